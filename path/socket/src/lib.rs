//! Who reads it: the endpoints that an application and a lane share.
//!
//! Each endpoint has two sides. The application's side (`…End`) writes and reads bytes at once and never
//! waits; the lane's side (`…Slot`) is where the protocol takes them and puts them. Between them are rings,
//! a few words and nothing else: no descriptor, no lock, no thread. Waiting is the engine's: an application
//! that finds nothing to do leaves its *interest*, looks again, and sleeps; the lane that makes the interest
//! true gets the socket's token and passes it on after its turn.
//!
//! - `shared.rs`: the words between the sides: interest, flags, error, kicks.
//! - `stream.rs`: two byte rings, for a connection. `unsent.rs`: one that is to hold little. `fused.rs`: one that two of them share. `listener.rs`: the accept queue that all lanes share.
//! - `datagram.rs`: two queues, for UDP. `records.rs`: one of them, over a byte ring. `error.rs`: what an application may be told.
#![forbid(unsafe_code)]

mod datagram;
mod error;
mod fused;
mod listener;
mod records;
mod shared;
mod stream;
mod unsent;
mod urgent;

pub use datagram::{
    ArenaDatagrams, DatagramEnd, DatagramShared, DatagramSlot, RecvDatagramEnd, SendDatagramEnd,
    SendDatagramError, datagram, datagram_in,
};
pub use error::SocketError;
pub use fused::{Fusion, Nudge, fuse_streams, part_streams, sever_streams};
pub use listener::{
    Accepted, HALF_OPEN_MAX, ListenerClosed, ListenerEnd, ListenerSlot, listener, listener_in,
};
pub use records::{Datagram, QueueIn, QueueOut, Torn};
pub use shared::{Flags, Ready, Shared, SocketToken, Words};
pub use stream::{
    AnyEnd, ArenaEnd, ConnRef, LeftStream, Names, ReadError, RecvEnd, SendEnd, StreamConfig, StreamEnd,
    StreamRef, StreamShared, StreamSlot, WriteError, stream, stream_in,
};
pub use urgent::{UrgentError, UrgentMode};
