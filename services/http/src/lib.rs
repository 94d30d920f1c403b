//! A small HTTP/1.1 file service on Firelane's own TCP.
#![forbid(unsafe_code)]
