//! The virtio-net header of TAPs and packet sockets, and receiving frames behind it.
//!
//! `header.rs` turns the header into a frame's metadata and back; `landing.rs` is the receive loop that every
//! driver with such a header shares. Used by `drivers/tap` and `drivers/packet`.

mod header;
mod landing;

pub use header::{BadOffload, HEADER_BYTES, read, write};
pub use landing::{FRAME_BYTES_MAX, Landing, Tag};
