//! The Transmission Control Protocol, without I/O.
