//! Lanes assembled and running; sockets like those of std and tokio.
