//! A small HTTP/1.1 file service: an ordinary user of the crate `firelane`.
//!
//! It serves the files of one folder (GET, HEAD, one byte range) and stores what is sent (PUT, POST), with
//! keep-alive, `Expect: 100-continue` and chunked uploads (RFC 9110, RFC 9112). [`serve`] speaks to any
//! stream, so the same code runs over Firelane's TCP and over a pipe in a test. An idle connection holds no
//! buffer, and ends after a while ([`Patience`]).
//!
//! - `request.rs`: the head of a request, and what its fields say about the body.
//! - `body.rs`: reading a body of known length or of chunks.
//! - `files.rs`: which file a path names; never one outside the folder.
//! - `response.rs`: heads of responses.
//! - `part.rs`: a file that is being received.
//! - `connection.rs`: one request after the other.
#![forbid(unsafe_code)]

mod body;
mod connection;
mod files;
mod part;
mod request;
mod response;

pub use connection::{Patience, serve, serve_with};
pub use files::Files;
