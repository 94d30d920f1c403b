//! What stands behind the window: storage that the receive ring has, or surely gets.
//!
//! The rings of programs have their storage of an arena that may be used up (`base/frame/src/arena.rs`), and at rest they
//! have none. While memory is plenty all of a ring is promised as if it were there. Else an announcement takes storage first
//! and promises no more than it got; with none the window is closed until the peer asks, or until a clock finds
//! some. What was promised while memory was plenty stays promised (RFC 9293 SHLD-14), and text that does not find its room
//! then is lost as on the way. Rings of this process always have what they promise, and nothing here concerns them. Called
//! by `receive` and the connection's clock.

use core::time::Duration;

use firelane_frame::RingWriter;
use firelane_units::Instant;

use crate::connection::{Connection, Rings};
use crate::receive::{NOWHERE, ReceiveSide};

/// How often a connection looks for storage whose window is closed without any, or whose program finds none to write to. The peer's
/// probes ask, too, but ever more rarely (RFC 9293 §3.8.6.1).
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Whether the ring had all the storage that it would like to have, the last time that it mattered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Storage {
    /// It had, or could have.
    #[default]
    Enough,
    /// It had less.
    Short,
    /// There was none.
    Absent,
}

impl ReceiveSide {
    /// The ring asks for storage, if it lacks any: what is announced from here on is what it has then.
    #[cold]
    pub(crate) fn back(&mut self, ring: &RingWriter) {
        let room = ring.back();
        self.storage = match () {
            () if ring.is_short() => Storage::Short,
            () if ring.is_unbacked() && room == 0 => Storage::Absent,
            () => Storage::Enough,
        };
    }

    /// Text did not find the room that it was promised: memory was plenty then.
    #[cold]
    pub(crate) fn note_lost_room(&mut self, ring: &RingWriter) {
        if self.storage == Storage::Enough && ring.is_short() {
            self.storage = Storage::Short;
        }
    }

    /// The program has read: a ring that is short may have more storage by now.
    #[inline]
    pub(crate) fn look_for_more(&mut self, ring: &RingWriter) {
        if self.storage == Storage::Short {
            ring.enlarge();
            self.back(ring);
        }
    }

    /// The peer asks whether there is room: there may be storage by now, so the next announcement asks for it.
    #[inline]
    pub(crate) fn doubt_absence(&mut self) {
        if self.storage == Storage::Absent {
            self.storage = Storage::Enough;
        }
    }

    /// Whether the peer may wait for storage: its window is closed without any.
    fn awaits_storage(&self) -> bool {
        self.storage == Storage::Absent
            && self.fin == NOWHERE
            && self.promised < self.nxt + u64::from(self.mss.bytes())
    }
}

impl Connection {
    /// The time to look at the memory has come: to give it back, or to have some by now. Traffic sets that clock, so who waits for
    /// storage finds it running.
    #[cold]
    pub(crate) fn look_at_memory(&mut self, now: Instant, rings: &mut Rings<'_>) {
        if self.timers.take_idle(now, self.heard_at) {
            self.shrink(now, rings);
        }
        if !self.receive.awaits_storage() {
            return;
        }
        self.receive.back(rings.recv);
        if self.receive.awaits_storage() {
            self.timers.look_again(now + LOOK_AGAIN);
            return;
        }
        self.note_storage(now);
        if self.receive.owes_update(rings.recv, self.options.room()) {
            self.receive.ack.demand();
        }
    }

    /// A ring has got storage without traffic: it goes back if none comes.
    pub fn note_storage(&mut self, now: Instant) {
        self.timers.note_traffic(now);
    }

    /// The program would like to write, and there is no storage: the lane looks again when a clock has come.
    pub fn await_storage(&mut self, now: Instant) {
        self.awaits_storage = true;
        self.timers.look_again(now + LOOK_AGAIN);
    }

    /// Whether the program waits for storage. Who finds none says so again.
    pub fn take_awaited_storage(&mut self) -> bool {
        core::mem::take(&mut self.awaits_storage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receive::RoomLimits;
    use firelane_frame::{ArenaPair, MarginRef, byte_rings_in};
    use firelane_shm::layout::{PAGE, status};
    use firelane_shm::{Arena, Holder, Layout, StreamEnd};
    use firelane_units::Mss;
    use proptest::prelude::*;
    use std::io::IoSliceMut;

    const PAGES: usize = 128;
    const CAPACITY: usize = 16 * PAGE as usize;
    const LEAST: usize = 1 << 14;
    const MSS: u16 = 1000;

    /// A receiver whose program is another process, and what others have of its memory.
    struct Bench {
        arena: Arena,
        _held: MarginRef,
        block: u32,
        ring: RingWriter,
        side: ReceiveSide,
        others: Vec<ArenaPair>,
    }

    impl Bench {
        fn new() -> Self {
            // There is more address space than memory.
            let layout = Layout { lanes: 1, blocks: 256, storage_bytes: 8 * PAGES as u64 * PAGE };
            let arena = Arena::create_within(layout, 1, PAGES as u64 * PAGE).unwrap();
            let (held, (ring, _)) = byte_rings_in(arena.rings(), CAPACITY, CAPACITY).unwrap();
            let block = held.far().unwrap().block();
            arena.mapping().block(block).unwrap().tell(status::CONNECTED);
            let mut side = ReceiveSide::new(Mss::clamped(MSS));
            side.scale = 2;
            Self { arena, _held: held, block, ring, side, others: Vec::new() }
        }

        fn used(&self) -> usize {
            self.arena.rings().in_use().storage
        }

        /// Whether all of a ring may be promised before there is storage for it.
        fn is_plenty(&self) -> bool {
            self.used() + CAPACITY <= PAGES * PAGE as usize / 4
        }

        /// Others have so many pages in all, as far as there are as many.
        fn others_have(&mut self, pages: usize) {
            self.others.truncate(pages / 2);
            while self.others.len() < pages / 2 {
                let Some(pair) = self.arena.rings().take_pair([PAGE as usize; 2]) else { return };
                self.others.push(pair);
            }
        }

        fn announce(&mut self) -> u64 {
            self.side.announce(&self.ring, RoomLimits::NONE);
            self.side.promised - self.side.nxt
        }

        /// So much text arrives. How much of it was taken.
        fn come(&mut self, bytes: usize) -> usize {
            let before = self.side.nxt;
            let _ =
                self.side.take_next(Instant::from_secs(9), &vec![7; bytes], &mut self.ring, Duration::ZERO);
            (self.side.nxt - before) as usize
        }

        fn read(&mut self, bytes: usize) {
            let end = StreamEnd::new(self.arena.mapping(), self.block, Holder::new(1, 1)).unwrap();
            let _ = end.read(&mut [IoSliceMut::new(&mut vec![0; bytes])], false);
            self.side.look_for_more(&self.ring);
        }

        /// The clock has come. Whether a window update is due.
        fn wait(&mut self) -> bool {
            if self.side.awaits_storage() {
                self.side.back(&self.ring);
            }
            !self.side.awaits_storage() && self.side.owes_update(&self.ring, RoomLimits::NONE)
        }
    }

    proptest! {
        /// However memory comes and goes: while it is not plenty, nothing is promised anew but what has storage; what has, is taken;
        /// nothing promised is taken back; and once there is memory, the window opens.
        #[test]
        fn what_is_promised_anew_has_storage(
            steps in prop::collection::vec((0u8..6, 0usize..PAGES, 0usize..90_000), 1..80),
        ) {
            let mut bench = Bench::new();
            // The furthest edge that was promised while memory was plenty, or of which the storage went back.
            let mut loose = 0;
            for (step, pages, bytes) in steps {
                let before = bench.side.promised;
                match step {
                    0 => bench.others_have(pages),
                    1 => {
                        let is_plenty = bench.is_plenty();
                        bench.announce();
                        if is_plenty && bench.ring.is_unbacked() {
                            loose = bench.side.promised;
                        }
                    }
                    2 => {
                        let due = bytes.min((bench.side.promised - bench.side.nxt) as usize);
                        let is_kept = bench.side.promised > loose;
                        let taken = bench.come(due);
                        prop_assert!(!is_kept || taken == due, "{taken} of {due}");
                    }
                    3 => bench.read(bytes),
                    4 if bench.ring.detach_if_empty() => loose = bench.side.promised,
                    _ => {
                        bench.wait();
                    }
                }
                let head = bench.ring.cursor() - bench.ring.unread() as u64;
                let backed = head + bench.ring.attached_bytes() as u64;
                prop_assert!(bench.side.promised >= before);
                prop_assert!(bench.side.promised <= loose.max(backed), "{loose}, {backed}");
            }
            bench.others_have(0);
            bench.read(usize::MAX >> 40);
            let is_told = bench.wait();
            let was_open = bench.side.promised >= bench.side.nxt + u64::from(MSS);
            prop_assert!(was_open || is_told || bench.side.owes_update(&bench.ring, RoomLimits::NONE));
            prop_assert!(bench.announce() >= u64::from(MSS));
            prop_assert_eq!(bench.come(usize::from(MSS)), usize::from(MSS));
        }
    }

    #[test]
    fn while_memory_is_plenty_all_is_promised_and_nothing_taken() {
        let mut bench = Bench::new();
        bench.others_have(PAGES / 4 - 16);
        assert_eq!((bench.announce(), bench.ring.attached_bytes()), (CAPACITY as u64, 0));
        assert_eq!(bench.come(CAPACITY), CAPACITY);
        bench.read(CAPACITY);
        assert!(bench.ring.detach_if_empty());
        assert_eq!((bench.announce(), bench.ring.attached_bytes()), (CAPACITY as u64, 0), "as before");
    }

    /// Less than would be good is promised as it is, and grows when there is memory.
    #[test]
    fn a_ring_that_is_short_promises_what_it_has() {
        let mut bench = Bench::new();
        bench.others_have(PAGES * 3 / 4);
        assert_eq!(bench.announce(), LEAST as u64);
        for _ in 0..5 {
            assert_eq!(bench.come(LEAST), LEAST, "all that was promised");
            assert_eq!(bench.announce(), 0);
            bench.read(LEAST);
            assert_eq!(bench.announce(), LEAST as u64);
        }
        bench.others_have(0);
        bench.come(1000);
        bench.read(1000);
        assert_eq!((bench.announce(), bench.ring.attached_bytes()), (CAPACITY as u64, CAPACITY));
    }

    /// Segments of the loopback are larger than the storage.
    #[test]
    fn a_ring_of_less_than_a_segment_opens_its_window_again() {
        for is_promised_before in [false, true] {
            let mut bench = Bench::new();
            bench.side.mss = Mss::clamped(60_000);
            if is_promised_before {
                bench.announce();
            }
            bench.others_have(PAGES * 3 / 4);
            bench.announce();
            for _ in 0..6 {
                assert_eq!(bench.come(LEAST), LEAST);
                bench.announce();
                bench.read(LEAST);
                assert!(bench.announce() >= LEAST as u64);
            }
        }
    }

    #[test]
    fn without_storage_the_window_is_closed_until_there_is_some() {
        let mut bench = Bench::new();
        bench.others_have(PAGES);
        assert_eq!(bench.announce(), 0);
        for _ in 0..3 {
            assert!(!bench.wait() && bench.announce() == 0, "nobody is told of nothing");
        }
        // Who only sends announces with each segment.
        let refused = bench.arena.rings().in_use().refused;
        assert!((0..100).all(|_| bench.announce() == 0));
        assert_eq!(bench.arena.rings().in_use().refused, refused, "it asks by the clock");
        bench.others_have(PAGES - 4);
        assert!(bench.wait());
        assert_eq!(bench.announce(), LEAST as u64);
        // The peer may ask before.
        let mut bench = Bench::new();
        bench.others_have(PAGES);
        assert_eq!(bench.announce(), 0);
        bench.others_have(PAGES - 4);
        assert_eq!((bench.come(1), bench.announce()), (0, LEAST as u64));
    }
}
