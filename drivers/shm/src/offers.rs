//! Blocks that are made ready for the sockets of an arena's session, so that connect(2) asks nobody, and which of them the program takes.
//!
//! In the first page of an arena, behind its header ([`crate::layout`]). The daemon offers, and takes back what a lane has that has failed; the
//! preloaded library takes. `docs/shm.md` has the words.
//!
//! The program takes a block in the lane that has the fewest of its connections, so that those that it has at a time share the lanes; but
//! it stays in the lane in which it has begun the last until that one has a third more than another. So one connection after the other, and
//! some of many, are begun in a lane that the last one has kept awake, and to wake others is not what connecting takes. After [`ROUND`]
//! connections another lane is preferred: each has only some of the ports, which connections that are over use for a while.

#[cfg(not(loom))]
use crate::layout::PAGE;
use crate::layout::{Block, COUNTED, COUNTED_SHIFT, LANES_MAX};
use crate::sync::{AtomicU32, Ordering};
#[cfg(not(loom))]
use crate::untold::Untold;

/// How many blocks are offered at a time at most.
pub const OFFERS: usize = 128;

/// So many connections are begun before another lane is preferred.
const ROUND: u32 = 256;

/// Of so many open connections in the lane whose turn it is one is not counted.
const LEEWAY: u32 = 4;

/// From this bit of a place on lies the lane's number; below, one more than the block's.
const LANE_SHIFT: u32 = 24;

/// The places, and how the program counts.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Offers {
    /// Zero is none.
    blocks: [AtomicU32; OFFERS],
    /// How many connections that were begun in each lane are open, for the program's side alone.
    open: [AtomicU32; LANES_MAX as usize],
    /// How many were begun, and the lane whose turn it is since. For the program's side alone.
    begun: AtomicU32,
    turn: AtomicU32,
}

/// What was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// In which place it was offered.
    pub place: usize,
    /// The block's number.
    pub block: u32,
    /// Its lane's.
    pub lane: u32,
}

impl Offer {
    const fn word(block: u32, lane: u32) -> u32 {
        lane << LANE_SHIFT | (block + 1)
    }

    fn of(place: usize, word: u32) -> Option<Self> {
        let block = (word & ((1 << LANE_SHIFT) - 1)).checked_sub(1)?;
        Some(Self { place, block, lane: word >> LANE_SHIFT })
    }
}

#[cfg(not(loom))]
impl Offers {
    /// Where they begin.
    pub const AT: u64 = 64;

    /// Where the options lie that go with the offer in a place, behind the first page.
    pub const fn untold_at(place: usize) -> Option<u64> {
        if place < OFFERS { Some(PAGE + (place * size_of::<Untold>()) as u64) } else { None }
    }
}

impl Offers {
    /// Takes one, for the program alone, of an arena with so many lanes.
    pub fn take(&self, lanes: u32) -> Option<Offer> {
        loop {
            let offer = self.best(lanes)?;
            let there = Offer::word(offer.block, offer.lane);
            // Who takes it sees its words as they were made ready.
            let place = &self.blocks[offer.place];
            if place.compare_exchange(there, 0, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Some(offer);
            }
        }
    }

    /// The one to take.
    fn best(&self, lanes: u32) -> Option<Offer> {
        let fewest = self.open.iter().take(lanes as usize).map(|open| open.load(Ordering::Relaxed)).min();
        let mut turn = self.turn.load(Ordering::Relaxed);
        let is_first = self.begun.load(Ordering::Relaxed) == 0;
        let mut best: Option<((u32, u32), Offer)> = None;
        for (at, place) in self.blocks.iter().enumerate() {
            let Some(offer) = Offer::of(at, place.load(Ordering::Relaxed)) else { continue };
            if is_first && best.is_none() {
                turn = offer.lane;
            }
            let open = self.open(offer.lane).map_or(0, |open| open.load(Ordering::Relaxed));
            let leeway = if offer.lane == turn { open / LEEWAY } else { 0 };
            let cost = (open - leeway, offer.lane.wrapping_sub(turn) % LANES_MAX);
            if cost <= (fewest.unwrap_or(0), 0) {
                return Some(offer);
            }
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, offer));
            }
        }
        best.map(|(_, offer)| offer)
    }

    fn open(&self, lane: u32) -> Option<&AtomicU32> {
        self.open.get(lane as usize)
    }

    /// Counts the connection that the program begins with what it has taken.
    pub fn count(&self, offer: &Offer, block: &Block) {
        if let Some(open) = self.open(offer.lane) {
            open.fetch_add(1, Ordering::Relaxed);
            let begun = self.begun.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            let is_over = begun.is_multiple_of(ROUND);
            self.turn.store(offer.lane + u32::from(is_over), Ordering::Relaxed);
            block.file.fetch_or(u64::from(offer.lane + 1) << COUNTED_SHIFT, Ordering::Relaxed);
        }
    }

    /// The program has closed a connection, or one of several descriptors of it: it counts no more.
    pub fn uncount(&self, block: &Block) {
        if block.file.load(Ordering::Relaxed) & COUNTED == 0 {
            return;
        }
        let file = block.file.fetch_and(!COUNTED, Ordering::Relaxed);
        let lane = ((file & COUNTED) >> COUNTED_SHIFT).checked_sub(1);
        if let Some(open) = lane.and_then(|lane| self.open(lane as u32)) {
            let one_less = |open: u32| open.checked_sub(1);
            let _ = open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        }
    }

    /// Takes back what was offered in a place, unless the program has it already; for the daemon.
    pub fn take_back(&self, place: usize, block: u32) -> bool {
        let Some(word) = self.blocks.get(place) else { return false };
        let there = word.load(Ordering::Relaxed);
        Offer::of(place, there).is_some_and(|it| it.block == block)
            && word.compare_exchange(there, 0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether the program has taken what was offered in a place, as it says.
    pub fn is_taken(&self, place: usize) -> bool {
        self.blocks.get(place).is_none_or(|place| place.load(Ordering::Relaxed) == 0)
    }

    /// Offers a block in a place.
    pub fn put(&self, offer: Offer) {
        if let Some(place) = self.blocks.get(offer.place) {
            place.store(Offer::word(offer.block, offer.lane), Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::BLOCKS_MAX;

    fn none() -> Offers {
        Offers {
            blocks: [const { AtomicU32::new(0) }; OFFERS],
            open: [const { AtomicU32::new(0) }; LANES_MAX as usize],
            begun: AtomicU32::new(0),
            turn: AtomicU32::new(0),
        }
    }

    #[test]
    fn what_is_offered_is_taken_once() {
        let offers = none();
        assert_eq!(offers.take(LANES_MAX), None);
        let [first, last] = [(5, 0, 0), (OFFERS - 1, BLOCKS_MAX - 1, LANES_MAX - 1)]
            .map(|(place, block, lane)| Offer { place, block, lane });
        offers.put(first);
        offers.put(last);
        offers.put(Offer { place: OFFERS, block: 9, lane: 0 });
        assert_eq!([4, 5, OFFERS].map(|place| offers.is_taken(place)), [true, false, true]);
        assert_eq!([(); 3].map(|()| offers.take(LANES_MAX)), [Some(first), Some(last), None]);
        assert!(offers.is_taken(5));
        offers.put(Offer { place: 5, block: 7, lane: 3 });
        assert!(
            ![(4, 7), (5, 8), (OFFERS, 7)].into_iter().any(|(place, block)| offers.take_back(place, block))
        );
        assert!(offers.take_back(5, 7) && !offers.take_back(5, 7) && offers.take(LANES_MAX).is_none());
    }

    /// A program's side. Each place has one block.
    struct Program {
        offers: Offers,
        blocks: Vec<Block>,
        lanes: u32,
    }

    impl Program {
        fn with(lanes: u32) -> Self {
            let blocks = (0..OFFERS).map(|_| Block::default()).collect();
            let program = Self { offers: none(), blocks, lanes };
            program.refill(&[]);
            program
        }

        /// The lanes begin with the last one.
        fn refill(&self, but: &[Offer]) {
            let is_to_be =
                |&place: &usize| self.offers.is_taken(place) && but.iter().all(|it| it.place != place);
            for place in (0..OFFERS).filter(is_to_be) {
                let (block, lane) = (place as u32, self.lanes - 1 - place as u32 % self.lanes);
                self.blocks[place].file.store(0, Ordering::Relaxed);
                self.offers.put(Offer { place, block, lane });
            }
        }

        fn connect(&self) -> Offer {
            let offer = self.offers.take(self.lanes).unwrap();
            self.offers.count(&offer, &self.blocks[offer.place]);
            offer
        }

        fn close(&self, offer: Offer) {
            // A copy's end is nothing more.
            (0..2).for_each(|_| self.offers.uncount(&self.blocks[offer.place]));
        }
    }

    #[test]
    fn one_connection_after_the_other_is_in_one_lane_as_long_as_it_is_offered() {
        let program = Program::with(2);
        for (lane, offers_again) in [(1, true), (1, false), (0, true)] {
            for _ in 0..OFFERS / 2 {
                let offer = program.connect();
                assert_eq!(offer.lane, lane);
                program.close(offer);
            }
            // The second time nothing is offered anew in time.
            if offers_again {
                program.refill(&[]);
            }
        }
    }

    #[test]
    fn lanes_take_turns_so_that_each_lends_its_ports() {
        let program = Program::with(3);
        let mut lanes = [0; 3];
        for _ in 0..9 * ROUND {
            let offer = program.connect();
            lanes[offer.lane as usize] += 1;
            program.close(offer);
            program.refill(&[]);
        }
        assert!(lanes.into_iter().all(|it| it >= 2 * ROUND), "{lanes:?}");
    }

    #[test]
    fn connections_of_a_time_share_the_lanes_and_most_are_where_the_last_was() {
        let program = Program::with(2);
        let open: Vec<u32> = (0..100).map(|_| program.connect().lane).collect();
        assert_eq!(open[..4].iter().filter(|&&lane| lane == 0).count(), 2, "{open:?}");
        let in_first = open.iter().filter(|&&lane| lane == 0).count();
        assert!((40..=60).contains(&in_first), "{in_first}");
        let moves = open.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(moves <= 12, "{moves}");
    }

    proptest! {
        /// However they come and go, a connection is begun where no third more are than anywhere.
        #[test]
        fn no_lane_has_many_more_than_another(lanes in 1_u32..8, closes in prop::collection::vec(0_usize..40, 0..200)) {
            let program = Program::with(lanes);
            let mut open: Vec<Offer> = Vec::new();
            for nth in closes {
                let of = |lane: u32| open.iter().filter(|it| it.lane == lane).count();
                let least = (0..lanes).map(of).min().unwrap();
                if nth < open.len() {
                    program.close(open.swap_remove(nth));
                } else if open.len() < 30 {
                    let offer = program.connect();
                    prop_assert!(3 * of(offer.lane) <= 4 * least + 3, "{} and {least}", of(offer.lane));
                    open.push(offer);
                }
                program.refill(&open);
            }
        }
    }

    #[test]
    fn what_was_never_counted_takes_nothing_away() {
        let (offers, block) = (none(), Block::default());
        offers.uncount(&block);
        // Words that a program has written itself.
        block.file.store(COUNTED, Ordering::Relaxed);
        offers.uncount(&block);
        block.file.store(1 << COUNTED_SHIFT, Ordering::Relaxed);
        offers.uncount(&block);
        assert!(offers.open.iter().all(|open| open.load(Ordering::Relaxed) == 0));
    }
}
