//! memif: frames through memory shared with another process (DPDK, VPP, another Firelane), both ends.
//!
//! [`open()`] makes an interface and returns one [`MemifQueue`] per ring pair. The *server* (the original's
//! master) listens on a control socket; the *client* (slave) connects, and its memory holds rings and
//! buffers. Sessions come and go; the queues stay.
//!
//! The other process is not trusted: every index, length and offset is copied, checked and then used; what is
//! wrong costs a frame or the session, never more. A lane never touches a descriptor that the other process
//! has too, because a write to it can be made to block: doorbells go through the interface's keeper thread.
//!
//! - `message.rs`, `handshake.rs`: the control protocol, sans-I/O. `wire.rs`: its socket. `keeper.rs`: the
//!   thread that runs it. `doorbell.rs`: the only descriptors of a stranger that it writes to.
//! - `layout.rs`: where rings and buffers lie. `sys.rs`: the mapping, the only unsafe code.
//! - `session.rs`: a session's rings, made and checked. `receive.rs`, `transmit.rs`: the two directions.
//! - `queue.rs`: a ring pair as a [`firelane_frame::Driver`]. `seat.rs`: how it learns of sessions.

mod config;
mod doorbell;
mod handshake;
mod keeper;
mod layout;
mod message;
mod open;
mod queue;
mod receive;
mod seat;
mod session;
mod sys;
mod transmit;
mod wire;

pub use config::{ConfigError, MemifConfig, OpenError, Role, SECRET_BYTES_MAX, Secret};
pub use message::{MESSAGE_BYTES, Message, Name};
pub use open::open;
pub use queue::MemifQueue;
pub use seat::{Failures, MemifStatus, Standing};
pub use wire::check_path;
