//! A ring between two threads: one producer, one consumer, no lock; items move by value.
//!
//! Frames cross by handle, a chain at a time ([`frame_ring`]), or short ones by content (`parcel.rs`).
//!
//! R1. Only the producer moves `tail`, only the consumer moves `head`; both count up and wrap with `usize`.
//! R2. Slots `head..tail` hold items and belong to the consumer; all others are empty and belong to the
//!     producer. A side releases slots by a release store of its index, and gains slots by an acquire load
//!     of the other's.
//! R3. Each side keeps the last value that it saw of the other's index and looks again only when that does
//!     not suffice, so a long chain costs one cache miss.
//! R4. A side that is about to sleep raises its flag and then looks at the ring; the other side moves its
//!     index and then looks at the flag, with a full fence between on both sides. So one of them sees the
//!     other, and no wake-up is lost.

use core::fmt;
use core::mem::MaybeUninit;

use crate::ahead::{Use, fetch};
use crate::sync::{Arc, AtomicBool, AtomicUsize, CachePadded, Ordering, UnsafeCell, fence};
use crate::{Chain, Frame};

struct Shared<T> {
    tail: CachePadded<AtomicUsize>,
    head: CachePadded<AtomicUsize>,
    wishes: CachePadded<Wishes>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

/// Who is about to sleep (R4).
struct Wishes {
    consumer: AtomicBool,
    producer: AtomicBool,
}

// SAFETY: (R2) a slot is touched by one side at a time, and items only move between the sides.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: the ring owns its items.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    fn slot(&self, position: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[position & (self.slots.len() - 1)]
    }
}

/// The slots of a ring, looked up once for a chain.
struct Slots<'a, T> {
    all: &'a [UnsafeCell<MaybeUninit<T>>],
    mask: usize,
}

impl<'a, T> Slots<'a, T> {
    #[inline]
    fn of(shared: &'a Shared<T>) -> Self {
        Self { all: &shared.slots, mask: shared.slots.len() - 1 }
    }

    #[inline]
    fn at(&self, position: usize) -> &'a UnsafeCell<MaybeUninit<T>> {
        &self.all[position & self.mask]
    }

    /// Fetches the slot at `position` for its use. A hint.
    #[inline]
    fn foresee(&self, position: usize, purpose: Use) {
        self.at(position).with_mut(|slot| fetch(slot.cast_const(), purpose));
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let tail = self.tail.0.load(Ordering::Relaxed);
        let mut head = self.head.0.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: (R2) slots `head..tail` hold items, and both sides are gone.
            self.slot(head).with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            head = head.wrapping_add(1);
        }
    }
}

/// The side that puts items in.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    head_seen: usize,
}

/// The side that takes items out.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    tail_seen: usize,
}

/// The sending side of a frame ring.
pub type FrameProducer = Producer<Frame>;
/// The receiving side of a frame ring.
pub type FrameConsumer = Consumer<Frame>;

/// A ring for frames; see [`spsc_ring`].
pub fn frame_ring(capacity: usize) -> (FrameProducer, FrameConsumer) {
    spsc_ring(capacity)
}

/// A ring for `capacity` items, rounded up to a power of two.
pub fn spsc_ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity.max(1).next_power_of_two();
    let shared = Arc::new(Shared {
        tail: CachePadded(AtomicUsize::new(0)),
        head: CachePadded(AtomicUsize::new(0)),
        wishes: CachePadded(Wishes { consumer: AtomicBool::new(false), producer: AtomicBool::new(false) }),
        slots: (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
    });
    let producer = Producer { shared: Arc::clone(&shared), tail: 0, head_seen: 0 };
    (producer, Consumer { shared, head: 0, tail_seen: 0 })
}

/// How many slots ahead the lines are fetched: a line takes as long to come from another CPU as a few items take to
/// be copied.
const FORESIGHT: usize = 6;
/// The same where many rings get few items each.
const FORESIGHT_APART: usize = 2;

impl<T> Producer<T> {
    /// How many items the ring holds at most.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// How many items can be pushed.
    pub fn free(&mut self) -> usize {
        self.head_seen = self.shared.head.0.load(Ordering::Acquire);
        self.free_seen()
    }

    fn free_seen(&self) -> usize {
        self.capacity() - self.tail.wrapping_sub(self.head_seen)
    }

    /// Room for `wanted` items if there is, else what there is (R3).
    pub(crate) fn room_for(&mut self, wanted: usize) -> usize {
        let seen = self.free_seen();
        if seen >= wanted { wanted } else { self.free().min(wanted) }
    }

    /// Puts an item in; gives it back if the ring is full.
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.room_for(1) == 0 {
            return Err(item);
        }
        self.place(item);
        self.publish();
        Ok(())
    }

    /// Writes the next slot, which must be free, without showing it to the consumer.
    #[inline]
    fn place(&mut self, item: T) {
        // SAFETY: (R2) the caller made sure that the slot at `tail` is free, so it is the producer's and
        // holds no item.
        self.shared.slot(self.tail).with_mut(|slot| _ = unsafe { (*slot).write(item) });
        self.tail = self.tail.wrapping_add(1);
    }

    /// Writes `count` slots, each of which must be free, where the items will lie, without showing them to the consumer.
    /// The lines of the slots are fetched ahead.
    ///
    /// # Safety
    /// There is room for them, and each call of `write` leaves an item in its slot.
    #[inline]
    pub(crate) unsafe fn place_each(&mut self, count: usize, mut write: impl FnMut(&mut MaybeUninit<T>)) {
        let Self { shared, tail, .. } = self;
        let slots = Slots::of(shared);
        (0..count.min(FORESIGHT)).for_each(|ahead| slots.foresee(tail.wrapping_add(ahead), Use::Write));
        for nth in 0..count {
            if nth + FORESIGHT < count {
                slots.foresee(tail.wrapping_add(FORESIGHT), Use::Write);
            }
            // SAFETY: (R2) the caller made sure that the slot at `tail` is free, so it is the producer's and
            // holds no item.
            slots.at(*tail).with_mut(|slot| write(unsafe { &mut *slot }));
            *tail = tail.wrapping_add(1);
        }
    }

    /// Begins to fetch the words that a push needs. A hint.
    #[inline]
    pub(crate) fn foresee_words(&self) {
        let Shared { tail, wishes, slots, .. } = &*self.shared;
        fetch(tail, Use::Write);
        fetch(wishes, Use::Read);
        fetch(slots, Use::Read);
    }

    /// Begins to fetch the slots of a short push, whose words are there. A hint.
    #[inline]
    pub(crate) fn foresee_slots(&self) {
        let slots = Slots::of(&self.shared);
        (0..FORESIGHT_APART).for_each(|ahead| slots.foresee(self.tail.wrapping_add(ahead), Use::Write));
    }

    pub(crate) fn publish(&self) {
        self.shared.tail.0.store(self.tail, Ordering::Release);
    }

    /// Whether the consumer sleeps and must be woken, asked after a push. The answer `true` is given once
    /// per wish (R4).
    pub fn take_wake_wish(&self) -> bool {
        fence(Ordering::SeqCst);
        let wish = &self.shared.wishes.0.consumer;
        wish.load(Ordering::Relaxed) && wish.swap(false, Ordering::Relaxed)
    }

    /// Asks to be woken when there is room, or takes the wish back. Returns whether there is room already.
    pub fn wish_room(&mut self, on: bool) -> bool {
        self.shared.wishes.0.producer.store(on, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.free() > 0
    }

    /// Whether the consumer was dropped.
    pub fn is_consumer_gone(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }
}

impl Producer<Frame> {
    /// Moves frames from the front of `chain` into the ring, as many as fit, and returns how many.
    pub fn push_chain(&mut self, chain: &mut Chain) -> usize {
        self.push_front_of(chain, usize::MAX)
    }

    /// As [`Producer::push_chain`], with at most `limit` frames.
    pub fn push_front_of(&mut self, chain: &mut Chain, limit: usize) -> usize {
        let count = self.room_for(chain.len().min(limit));
        for frame in chain.drain_front(count) {
            self.place(frame);
        }
        self.publish();
        count
    }
}

impl<T> Consumer<T> {
    /// How many items the ring holds at most.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// How many items can be popped.
    pub fn len(&mut self) -> usize {
        self.tail_seen = self.shared.tail.0.load(Ordering::Acquire);
        self.len_seen()
    }

    /// Whether nothing can be popped.
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    fn len_seen(&self) -> usize {
        self.tail_seen.wrapping_sub(self.head)
    }

    /// Takes the first item.
    pub fn pop(&mut self) -> Option<T> {
        if self.len_seen() == 0 && self.is_empty() {
            return None;
        }
        let item = self.lift();
        self.release();
        Some(item)
    }

    /// Takes the item at `head`, which must be there, without giving the slot back.
    #[inline]
    fn lift(&mut self) -> T {
        // SAFETY: (R2) the caller made sure that the slot at `head` holds an item, so it is the consumer's; it is read
        // once, because `head` moves past it.
        let item = self.shared.slot(self.head).with_mut(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(1);
        item
    }

    /// How many of `wanted` items are there (R3).
    pub(crate) fn ready(&mut self, wanted: usize) -> usize {
        if self.len_seen() >= wanted { wanted } else { self.len().min(wanted) }
    }

    /// Takes up to `count` items, which must be there, where they lie, until `read` takes none; answers how many. The
    /// lines of the slots are fetched ahead.
    ///
    /// # Safety
    /// There are so many items, and `read` takes out of one whatever needs to be dropped, unless it answers `false`.
    #[inline]
    pub(crate) unsafe fn lift_each(
        &mut self,
        count: usize,
        mut read: impl FnMut(&mut MaybeUninit<T>) -> bool,
    ) -> usize {
        let Self { shared, head, .. } = self;
        let slots = Slots::of(shared);
        (0..count.min(FORESIGHT)).for_each(|ahead| slots.foresee(head.wrapping_add(ahead), Use::Read));
        for nth in 0..count {
            if nth + FORESIGHT < count {
                slots.foresee(head.wrapping_add(FORESIGHT), Use::Read);
            }
            // SAFETY: (R2) the caller made sure that the slot at `head` holds an item, so it is the consumer's.
            if !slots.at(*head).with_mut(|slot| read(unsafe { &mut *slot })) {
                return nth;
            }
            *head = head.wrapping_add(1);
        }
        count
    }

    pub(crate) fn release(&self) {
        self.shared.head.0.store(self.head, Ordering::Release);
    }

    /// Asks to be woken when items arrive, or takes the wish back. Returns whether items are there already.
    pub fn wish_wake(&mut self, on: bool) -> bool {
        self.shared.wishes.0.consumer.store(on, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !self.is_empty()
    }

    /// Whether the producer waits for room and must be woken, asked after a pop. The answer `true` is given
    /// once per wish (R4).
    pub fn take_room_wish(&self) -> bool {
        fence(Ordering::SeqCst);
        let wish = &self.shared.wishes.0.producer;
        wish.load(Ordering::Relaxed) && wish.swap(false, Ordering::Relaxed)
    }

    /// Whether the producer was dropped. What it pushed before can still be popped.
    pub fn is_producer_gone(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }
}

impl Consumer<Frame> {
    /// Moves up to `budget` frames from the ring to the end of `out`, and returns how many.
    pub fn pop_into(&mut self, out: &mut Chain, budget: usize) -> usize {
        self.pop_each_into(out, budget, |_| {})
    }

    /// As [`Consumer::pop_into`], and lets `f` see each frame on its way.
    pub fn pop_each_into(&mut self, out: &mut Chain, budget: usize, mut f: impl FnMut(&mut Frame)) -> usize {
        let count = self.ready(budget);
        if count == 0 {
            return 0;
        }
        out.reserve(count);
        for _ in 0..count {
            let mut frame = self.lift();
            f(&mut frame);
            out.push(frame);
        }
        self.release();
        count
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Producer({} of {} free)", self.free_seen(), self.capacity())
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Consumer({} of {})", self.len_seen(), self.capacity())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{Pool, PoolConfig};
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::thread;

    proptest! {
        #[test]
        fn behaves_as_a_bounded_deque(pushes in prop::collection::vec(any::<bool>(), 0..200)) {
            let (mut producer, mut consumer) = spsc_ring::<Box<usize>>(5);
            prop_assert_eq!(producer.capacity(), 8);
            let mut model = VecDeque::new();
            for (n, push) in pushes.into_iter().enumerate() {
                if push {
                    let pushed = producer.push(Box::new(n)).is_ok();
                    prop_assert_eq!(pushed, model.len() < 8);
                    if pushed { model.push_back(n) }
                } else {
                    prop_assert_eq!(consumer.pop().map(|b| *b), model.pop_front());
                }
                prop_assert_eq!(consumer.len(), model.len());
                prop_assert_eq!(producer.free(), 8 - model.len());
            }
        }
    }

    #[test]
    fn a_chain_goes_in_as_far_as_there_is_room_and_comes_out_in_order() {
        let mut pool = Pool::new(PoolConfig { slots: 8, slot_bytes: 256 });
        let (mut producer, mut consumer) = frame_ring(4);
        let mut chain = Chain::new();
        for len in 1..=6 {
            let mut frame = pool.take().unwrap();
            frame.append(len);
            chain.push(frame);
        }
        assert_eq!(producer.push_chain(&mut chain), 4);
        assert_eq!(chain.iter().map(Frame::len).collect::<Vec<_>>(), [5, 6]);
        let mut out = Chain::new();
        assert_eq!(consumer.pop_into(&mut out, 3), 3);
        assert_eq!(producer.push_front_of(&mut chain, 1), 1);
        assert_eq!(consumer.pop_into(&mut out, 10), 2);
        assert_eq!(out.iter().map(Frame::len).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        producer.push_chain(&mut chain);
        drop((producer, consumer, out));
        assert_eq!(pool.free(), 8, "the ring's drop sends its frames home");
    }

    #[test]
    fn a_wish_is_answered_once() {
        let (mut producer, mut consumer) = spsc_ring::<u8>(1);
        assert!(!consumer.wish_wake(true));
        producer.push(1).unwrap();
        assert!(producer.take_wake_wish() && !producer.take_wake_wish());
        assert!(!producer.wish_room(true) && consumer.wish_wake(true));
        consumer.pop();
        assert!(consumer.take_room_wish() && !consumer.take_room_wish());
        drop(producer);
        assert!(consumer.is_producer_gone());
    }

    #[test]
    fn two_threads_that_sleep_lose_nothing() {
        const ITEMS: u64 = 30_000;
        let (mut producer, mut consumer) = spsc_ring::<u64>(8);
        let main = thread::current();
        let child = thread::spawn(move || {
            let mut sum = 0u64;
            for expected in 0..ITEMS {
                let item = loop {
                    if let Some(item) = consumer.pop() {
                        break item;
                    }
                    if !consumer.wish_wake(true) {
                        thread::park();
                    }
                };
                if consumer.take_room_wish() {
                    main.unpark();
                }
                assert_eq!(item, expected);
                sum += item;
            }
            sum
        });
        for item in 0..ITEMS {
            while producer.push(item).is_err() {
                if !producer.wish_room(true) {
                    thread::park();
                }
            }
            if producer.take_wake_wish() {
                child.thread().unpark();
            }
        }
        assert_eq!(child.join().unwrap(), ITEMS * (ITEMS - 1) / 2);
    }
}

#[cfg(test)]
#[cfg(loom)]
mod models {
    use super::*;
    use loom::thread;

    #[test]
    fn items_arrive_in_order_and_a_sleeper_is_woken() {
        loom::model(|| {
            let (mut producer, mut consumer) = spsc_ring::<u8>(2);
            let sender = thread::spawn(move || {
                producer.push(1).unwrap();
                let first = producer.take_wake_wish();
                producer.push(2).unwrap();
                first | producer.take_wake_wish()
            });
            let mut got = Vec::new();
            got.extend(consumer.pop());
            let would_sleep = !consumer.wish_wake(true);
            let woken = sender.join().unwrap();
            // Everything is pushed by this point; a consumer that slept was told, unless all it missed
            // had been popped before.
            if would_sleep && got.len() < 2 {
                assert!(woken);
            }
            while let Some(item) = consumer.pop() {
                got.push(item);
            }
            assert_eq!(got, [1, 2]);
        });
    }
}
