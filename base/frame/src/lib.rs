//! Frames, chains, pools, rings and the driver trait: what travels, and how it gets in.
//!
//! A [`Frame`] owns one slot of a [`Pool`]; a [`Chain`] is a FIFO of frames that stations hand on together.
//! Frames cross threads by handle through [`frame_ring`] (one producer, one consumer), short ones by content
//! through [`parcel_ring`], or inside a [`MpscRing`] (many producers); bytes of a stream cross through [`byte_ring()`], whose 64-bit cursors are
//! TCP's sequence numbers. A [`Driver`] is the door to the outside, with [`Capabilities`]; what a device
//! cannot do itself, [`offload`] does in software.
//!
//! Nothing here reads a clock, takes a lock or allocates per frame. Unsafe code is in the files
//! that tidy lists only (`xtask/src/tidy/unsafety.rs`). With `--cfg loom` the atomics become loom's and the models run.

mod ahead;
mod alike;
mod arena;
mod byte_ring;
/// The bits of a ring's state word, for who shares the words with another process.
pub mod ring_state {
    pub use crate::byte_ring::{ATTACHED, EPOCH, GROWN, HELD, SIZE_SHIFT, room_in, size_in};
}
mod chain;
mod driver;
mod envelope;
#[cfg(not(loom))]
mod extents;
mod frame;
mod index_stack;
mod large_pages;
mod meta;
mod mpsc;
pub mod offload;
mod parcel;
mod pool;
mod pools;
mod return_stack;
mod ring;
#[cfg(not(loom))]
mod small;
mod sync;
pub mod virtio;
#[cfg(not(loom))]
mod zeroed;

pub use ahead::{read_ahead, read_all_ahead, read_begin_ahead, read_bytes_ahead};
pub use alike::alike;
pub use arena::{ArenaPair, ArenaParts, ArenaUse, BLOCK_BYTES, GENERATION_WORD, RingArena};
pub use byte_ring::{
    FarView, MARGIN_WORDS, Margin, MarginRef, Packed, RingReader, RingSide, RingWords, RingWriter,
    WeakMarginRef, byte_ring, byte_rings, byte_rings_in, move_home,
};
pub use byte_ring::{FusedReader, FusedWriter, Halves, Terms, Visit, fuse, is_cramped, part, reopen};
pub use chain::Chain;
pub use driver::{Capabilities, Driver};
pub use envelope::{Envelope, RECORD_BYTES, SEGMENTS_MAX};
#[cfg(not(loom))]
pub use extents::{ExtentUsage, extent_usage};
pub use frame::{Frame, Weight};
pub use large_pages::prefer_large_pages;
pub use meta::{Arrival, Checksum, FlowTag, FrameMeta, SegmentKind, Segmentation};
pub use mpsc::MpscRing;
pub use parcel::{ParcelConsumer, ParcelProducer, parcel_ring};
pub use pool::{HEADROOM, Pool, PoolConfig, PoolUsage};
pub use pools::{Pools, PoolsConfig};
pub use ring::{Consumer, FrameConsumer, FrameProducer, Producer, frame_ring, spsc_ring};
