//! A ring for frames between two lanes that each have pools of their own: short frames cross by content, long
//! ones by handle.
//!
//! A frame that crosses by handle takes its slot with it: the far side reads the slot's lines, sends the slot home
//! through the owner's return stack, and the owner fetches all of these lines back to write the next frame. For a
//! short frame that costs more than copying it twice, once into the ring and once into a slot that the far side
//! has in its cache. The ring's lines are written and read in order, which the hardware foresees.
//!
//! Used by the memory wire. The protocol of the indices is that of `ring.rs`; unsafe here is what a slot holds:
//!
//! R1. `bytes != 0` says that the content lies in the slot, `bytes == 0` that a frame does.

use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};

use crate::pool::Homeward;
use crate::ring::{Consumer, Producer, spsc_ring};
use crate::{Chain, Frame, FrameMeta, Pools};

/// The longest frame that crosses by content: a minimal IPv6 packet with all usual headers and 64 bytes fits.
const SHORT_MAX: usize = 224;

/// A slot of the ring.
#[repr(C, align(64))]
struct Parcel {
    bytes: u16,
    meta: FrameMeta,
    body: Body,
}

const _: () = assert!(size_of::<Parcel>() == 256, "four cache lines");

#[repr(C)]
union Body {
    content: [MaybeUninit<u8>; SHORT_MAX],
    frame: ManuallyDrop<Frame>,
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if self.bytes == 0 {
            // SAFETY: (R1) a frame lies here, and the parcel is dropped once.
            unsafe { ManuallyDrop::drop(&mut self.body.frame) };
        }
    }
}

/// The side that sends.
pub struct ParcelProducer(Producer<Parcel>);

/// The side that receives.
pub struct ParcelConsumer(Consumer<Parcel>);

/// A ring for `capacity` frames, rounded up to a power of two.
pub fn parcel_ring(capacity: usize) -> (ParcelProducer, ParcelConsumer) {
    let (producer, consumer) = spsc_ring(capacity);
    (ParcelProducer(producer), ParcelConsumer(consumer))
}

impl ParcelProducer {
    /// Moves frames from the front of `chain` into the ring, as many as fit, and returns how many.
    pub fn push_chain(&mut self, chain: &mut Chain) -> usize {
        let count = self.0.room_for(chain.len());
        let mut homeward = Homeward::new();
        let mut frames = chain.drain_front(count);
        // SAFETY: `room_for` said that there is room for each, and `write` leaves a parcel.
        unsafe {
            self.0.place_each(count, |slot| {
                let frame = frames.next().expect("the chain has so many frames");
                write(slot, frame, &mut homeward);
            });
        }
        drop((frames, homeward));
        self.0.publish();
        count
    }

    /// Begins to fetch what [`ParcelProducer::push_chain`] needs, in two steps, of which the second (`has_begun`) asks for what the
    /// first has fetched.
    #[inline]
    pub fn look_ahead(&self, has_begun: bool) {
        match has_begun {
            false => self.0.foresee_words(),
            true => self.0.foresee_slots(),
        }
    }

    /// As [`Producer::take_wake_wish`].
    pub fn take_wake_wish(&self) -> bool {
        self.0.take_wake_wish()
    }

    /// As [`Producer::wish_room`].
    pub fn wish_room(&mut self, on: bool) -> bool {
        self.0.wish_room(on)
    }

    /// Whether the consumer was dropped.
    pub fn is_consumer_gone(&self) -> bool {
        self.0.is_consumer_gone()
    }
}

/// Leaves a frame in a slot, whole. What crosses by content sends its slot home.
#[inline]
fn write(slot: &mut MaybeUninit<Parcel>, frame: Frame, homeward: &mut Homeward) {
    let parcel = slot.as_mut_ptr();
    let content = frame.as_slice();
    let is_short = !content.is_empty() && content.len() <= SHORT_MAX;
    // SAFETY: the pointers are to fields of the slot, which the caller lends for writing; a short content fits the
    // body, and frame and slot do not overlap.
    unsafe {
        if is_short {
            (&raw mut (*parcel).bytes).write(content.len() as u16);
            (&raw mut (*parcel).meta).write(*frame.meta());
            let to = (&raw mut (*parcel).body).cast::<u8>();
            copy(content.as_ptr(), to, content.len());
            homeward.add(frame);
        } else {
            (&raw mut (*parcel).bytes).write(0);
            (&raw mut (*parcel).body).cast::<Frame>().write(frame);
        }
    }
}

impl ParcelConsumer {
    /// Moves up to `budget` frames to the end of `out`, and returns how many. Short ones get slots of `pools`; when
    /// there are none, the rest stays in the ring.
    pub fn pop_into(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        mut f: impl FnMut(&mut Frame),
    ) -> usize {
        let ready = self.0.ready(budget);
        out.reserve(ready);
        // SAFETY: `ready` said that there is an item for each, and `read` takes the frame out of one.
        let count = unsafe {
            self.0.lift_each(ready, |slot| {
                let Some(vessel) = pools.small.take() else { return false };
                let mut frame = read(slot, vessel, pools);
                f(&mut frame);
                out.push(frame);
                true
            })
        };
        if count > 0 {
            self.0.release();
        }
        count
    }

    /// As [`Consumer::wish_wake`].
    pub fn wish_wake(&mut self, on: bool) -> bool {
        self.0.wish_wake(on)
    }

    /// As [`Consumer::take_room_wish`].
    pub fn take_room_wish(&self) -> bool {
        self.0.take_room_wish()
    }
}

/// Takes the frame out of a slot: the content in `vessel`, or the frame that lies there, and `vessel` goes home.
#[inline]
fn read(slot: &mut MaybeUninit<Parcel>, mut vessel: Frame, pools: &mut Pools) -> Frame {
    let parcel = slot.as_ptr();
    // SAFETY: the slot holds a parcel (the consumer's ring said so), whose `bytes` tell what lies in its body (R1);
    // the frame is read once, because the consumer's head moves past the slot.
    unsafe {
        let bytes = usize::from((*parcel).bytes);
        if bytes == 0 {
            pools.small.put(vessel);
            return (&raw const (*parcel).body).cast::<Frame>().read();
        }
        *vessel.meta_mut() = (*parcel).meta;
        let to = vessel.append(bytes).as_mut_ptr();
        copy((&raw const (*parcel).body).cast::<u8>(), to, bytes);
    }
    vessel
}

/// Copies a content. The usual ones, a segment without text and a small request, are two pieces of a fixed size that
/// overlap, without a call.
///
/// # Safety
/// As [`core::ptr::copy_nonoverlapping`] for `bytes` bytes.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise, and a piece is at most as long as the content.
    unsafe {
        match bytes {
            32..=64 => copy_ends::<32>(from, to, bytes),
            65..=128 => copy_ends::<64>(from, to, bytes),
            _ => core::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

/// Copies the first and the last `N` of `bytes` bytes.
///
/// # Safety
/// As [`copy`], and `bytes` is at least `N`.
#[inline]
unsafe fn copy_ends<const N: usize>(from: *const u8, to: *mut u8, bytes: usize) {
    for at in [0, bytes - N] {
        // SAFETY: `N` bytes from `at` are within `bytes` at both places.
        unsafe {
            to.add(at).cast::<[u8; N]>().write_unaligned(from.add(at).cast::<[u8; N]>().read_unaligned())
        };
    }
}

impl fmt::Debug for ParcelProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ParcelProducer").field(&self.0).finish()
    }
}

impl fmt::Debug for ParcelConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ParcelConsumer").field(&self.0).finish()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{Checksum, PoolsConfig};
    use proptest::prelude::*;

    fn pools() -> Pools {
        Pools::new(PoolsConfig { small_slots: 64, large_slots: 4 })
    }

    proptest! {
        #[test]
        fn every_length_arrives_whole_with_its_meta(lengths in prop::collection::vec(0usize..400, 1..40)) {
            let (mut ours, mut theirs) = (pools(), pools());
            let (mut producer, mut consumer) = parcel_ring(64);
            let mut chain = Chain::new();
            for (n, &len) in lengths.iter().enumerate() {
                let mut frame = ours.take(len).unwrap();
                frame.append(len).fill(n as u8 + 1);
                frame.meta_mut().checksum = Checksum::Partial { start: n as u16, offset: 16 };
                chain.push(frame);
            }
            prop_assert_eq!(producer.push_chain(&mut chain), lengths.len());
            let mut out = Chain::new();
            prop_assert_eq!(consumer.pop_into(&mut theirs, usize::MAX, &mut out, |_| {}), lengths.len());
            for (n, (frame, &len)) in out.iter().zip(&lengths).enumerate() {
                prop_assert_eq!(frame.len(), len);
                prop_assert!(frame.as_slice().iter().all(|&b| b == n as u8 + 1));
                prop_assert_eq!(frame.meta().checksum, Checksum::Partial { start: n as u16, offset: 16 });
                prop_assert!(frame.headroom() >= crate::HEADROOM);
            }
            drop(out);
            prop_assert_eq!((ours.small.free(), theirs.small.free()), (64, 64));
        }
    }

    #[test]
    fn every_short_content_arrives_byte_for_byte() {
        let (mut ours, mut theirs) = (pools(), pools());
        let (mut producer, mut consumer) = parcel_ring(1);
        for len in 1..=SHORT_MAX {
            let content: Vec<u8> = (0..len).map(|n| (n + len) as u8).collect();
            producer.push_chain(&mut Chain::from_iter(ours.copy_of(&content)));
            let mut out = Chain::new();
            assert_eq!(consumer.pop_into(&mut theirs, 1, &mut out, |_| {}), 1);
            assert_eq!(out.front().map(Frame::as_slice), Some(&content[..]));
        }
    }

    #[test]
    fn without_a_free_slot_the_rest_stays_in_the_ring() {
        let (mut ours, mut theirs) = (pools(), Pools::new(PoolsConfig { small_slots: 2, large_slots: 1 }));
        let (mut producer, mut consumer) = parcel_ring(4);
        let mut chain: Chain = (1..=6).map(|n| ours.copy_of(&[n; 60]).unwrap()).collect();
        assert_eq!((producer.push_chain(&mut chain), chain.len()), (4, 2));
        let mut out = Chain::new();
        assert_eq!(consumer.pop_into(&mut theirs, 9, &mut out, |_| {}), 2);
        out.clear();
        assert_eq!(producer.push_chain(&mut chain), 2);
        assert_eq!(consumer.pop_into(&mut theirs, 1, &mut out, |_| {}), 1);
        assert_eq!(consumer.pop_into(&mut theirs, 9, &mut out, |_| {}), 1);
        assert_eq!(out.iter().map(|frame| frame.as_slice()[0]).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn a_dropped_ring_sends_its_frames_home() {
        let mut ours = pools();
        let (mut producer, consumer) = parcel_ring(8);
        let mut chain: Chain =
            [60, 1400, 60, 1400].iter().map(|&n| ours.copy_of(&vec![7; n]).unwrap()).collect();
        producer.push_chain(&mut chain);
        drop((producer, consumer));
        assert_eq!(ours.small.free(), 64);
    }

    #[test]
    fn slots_of_several_pools_go_home_together_and_some_pools_are_gone() {
        let (mut ours, mut others) = (pools(), pools());
        let mut gone = pools();
        let mut chain = Chain::new();
        for from in [0, 0, 1, 2, 2, 0, 1] {
            let pools = [&mut ours, &mut others, &mut gone][from].copy_of(&[7; 60]);
            chain.push(pools.unwrap());
        }
        drop(gone);
        let (mut producer, _consumer) = parcel_ring(8);
        assert_eq!(producer.push_chain(&mut chain), 7);
        assert_eq!((ours.small.free(), others.small.free()), (64, 64));
    }
}
