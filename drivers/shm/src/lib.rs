//! Memory that the daemon shares with programs: what lies where, what is said about it, and the program's end of a stream.
//!
//! One *arena* per program, a sealed memfd, holds everything: a *block* of words per stream, the *storage* of rings, an
//! *inbox* per lane in which programs leave which blocks have news, and one per waiter in which the daemon does. What
//! is rare goes over a control socket, as messages with descriptors beside them. Every word in an arena may be
//! changed by the program at any time: the daemon's end keeps private copies of what it must rely on.
//!
//! - `layout.rs`: the words and where they lie; `docs/shm.md` has the picture. `bits.rs`: sets of blocks in an inbox.
//! - `sys.rs`: the mapping, and all unsafe code. `arena.rs`: making and checking the memfd.
//! - `joint.rs`: what two programs share whose connection is fused.
//! - `doorbell.rs`: what wakes a waiter of many streams.
//! - `stream.rs`: the program's end of a stream; `owner.rs`: who of many is inside. `wait.rs`: spinning and sleeping.
//! - `readiness.rs`: what poll(2) says of a stream, and what edges are judged by.
//! - `accept_queue.rs`: connections that wait at a listener. `early.rs`: text that goes with a SYN.
//! - `urgent.rs`: urgent text. `fault.rs`: datagrams that did not arrive. `untold.rs`: options that go with a connection.
//! - `control.rs`: the messages; `codec.rs`: their bytes; `carry.rs`: how they travel with descriptors.
//!
//! Used by the engine and the daemon on one side, by the preloaded library on the other.

mod accept_queue;
mod arena;
mod bits;
pub mod carry;
mod codec;
pub mod control;
mod datagram;
pub mod doorbell;
mod early;
mod fault;
pub mod joint;
pub mod layout;
mod offers;
mod order;
mod owner;
mod passing;
mod readiness;
mod stream;
mod sync;
mod sys;
#[cfg(all(test, loom))]
mod tests;
mod unsent;
mod untold;
mod urgent;
mod wait;

pub use accept_queue::{AcceptQueue, Feeder};
pub use arena::{Arena, ArenaError, AttachError};
pub use bits::{Bits, set_bits};
pub use codec::Malformed;
pub use datagram::Record;
pub use fault::{Fault, Origin};
pub use joint::{Beside, Joint, Told};
pub use layout::{Block, Layout};
pub use offers::{OFFERS, Offer, Offers};
pub use owner::{Busy, Holder, spare_the_kernel};
pub use readiness::{Readiness, is_roomy};
pub use stream::{ReadError, StreamEnd, WriteError};
pub use sys::Mapping;
pub use untold::{UNTOLD_MAX, Untold, UntoldOption};
pub use urgent::UrgentError;
pub use wait::{SLICE, Sleep, Spin, Woken};
