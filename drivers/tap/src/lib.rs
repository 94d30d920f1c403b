//! TAP interfaces: a VNIC whose user is the kernel, in any network namespace.
//!
//! [`open()`] makes the interface and returns one [`TapQueue`] per lane. Frames carry their virtio-net
//! offload state as metadata, so segments of up to 64 KiB cross in one system call with no checksum
//! computed on either side. The interface vanishes with its descriptors. A program at its door drops what a lane says
//! it would drop anyway.

mod address;
mod bpf;
mod choosing;
mod discipline;
mod door;
mod handle;
mod open;
mod program;
mod queue;
mod rtnetlink;
mod spread;
mod sys;

pub use choosing::Selector;
pub use door::probe as probe_door;
pub use handle::TapHandle;
pub use open::{OpenError, TapConfig, open};
pub use queue::TapQueue;
pub use spread::{Spread, Spreader};
