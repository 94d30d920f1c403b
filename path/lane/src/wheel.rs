//! The lane's timer wheel: every connection's next deadline, in slots that are found by arithmetic.
//!
//! Called by the lane only; reads no clock. Timers are named by index (a connection's place in its table), and a slot is a list of
//! such indices, so that those who come next are known and can be fetched before their turn. Arm and cancel take constant time.
//! Re-arming is lazy: a timer that is pushed back, as a retransmission timer is at every acknowledgement,
//! stays in its slot, and goes into its later one only when the earlier comes up.
//!
//! Six levels of 64 slots (Varghese and Lauck's hierarchical wheel): a slot of level 0 is one tick of 2^20 ns
//! (1.05 ms), a slot of each further level is 64 slots of the one below, and 2^36 ticks are two years.

use firelane_frame::read_ahead;
use firelane_units::Instant;

use crate::slab::grow;

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 6;
/// Nanoseconds per tick, as a power of two: finer than any timer of TCP.
const TICK_BITS: u32 = 20;
/// How far ahead of its turn a timer is fetched.
const AHEAD: usize = 8;
/// What an empty slot may keep of its list's room.
const ROOM_KEPT: usize = 1024;

/// Timers by index, fired in the order of their ticks.
#[derive(Debug)]
pub struct Wheel {
    /// The tick up to which everything has fired.
    now: u64,
    timers: Vec<Timer>,
    /// The timers of each slot, level by level.
    slots: Vec<Vec<u32>>,
    /// One bit per slot that holds a timer.
    occupied: [u64; LEVELS],
    /// The tick at which the first slot comes up, [`UNLINKED`] if none does; `None` while it is not known.
    first: Option<u64>,
    armed: usize,
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    /// When it is wanted; [`Instant::FAR_FUTURE`] if it is not armed.
    deadline: Instant,
    /// The tick of the slot that it is linked in: that of its deadline, or an earlier one. [`UNLINKED`] if it
    /// stands in none.
    tick: u64,
    /// Which place it has in its slot's list.
    at: u32,
    /// Which slot that is, of all levels.
    slot: u16,
}

/// A tick that no timer has.
const UNLINKED: u64 = u64::MAX;

const _: () = assert!(size_of::<Timer>() == 24);

impl Timer {
    const UNARMED: Self = Self { deadline: Instant::FAR_FUTURE, tick: UNLINKED, at: 0, slot: 0 };

    const fn is_linked(&self) -> bool {
        self.tick != UNLINKED
    }
}

impl Wheel {
    /// A wheel without timers that stands at `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            now: now.nanos() >> TICK_BITS,
            timers: Vec::new(),
            slots: vec![Vec::new(); LEVELS * SLOTS],
            occupied: [0; LEVELS],
            first: None,
            armed: 0,
        }
    }

    /// How many timers are armed.
    pub fn len(&self) -> usize {
        self.armed
    }

    /// What the timers take, armed or not.
    pub(crate) fn allocated_bytes(&self) -> usize {
        let listed: usize = self.slots.iter().map(Vec::capacity).sum();
        self.timers.capacity() * size_of::<Timer>() + listed * size_of::<u32>()
    }

    /// Whether no timer is armed.
    pub fn is_empty(&self) -> bool {
        self.armed == 0
    }

    /// Arms timer `index` for `deadline`, or moves it there. [`Instant::FAR_FUTURE`] cancels it.
    pub fn arm(&mut self, index: u32, deadline: Instant) {
        if deadline == Instant::FAR_FUTURE {
            self.cancel(index);
            return;
        }
        let place = index as usize;
        while place >= self.timers.len() {
            grow(&mut self.timers);
            self.timers.push(Timer::UNARMED);
        }
        let timer = &mut self.timers[place];
        if timer.deadline == Instant::FAR_FUTURE {
            self.armed += 1;
        }
        timer.deadline = deadline;
        let tick = tick_after(deadline);
        if timer.is_linked() && timer.tick <= tick {
            return;
        }
        if timer.is_linked() {
            self.unlink(index);
        }
        self.link(index, tick);
    }

    /// Disarms timer `index`.
    pub fn cancel(&mut self, index: u32) {
        let Some(timer) = self.timers.get_mut(index as usize) else { return };
        if timer.deadline != Instant::FAR_FUTURE {
            timer.deadline = Instant::FAR_FUTURE;
            self.armed -= 1;
        }
        if timer.is_linked() {
            self.unlink(index);
        }
    }

    /// Begins to fetch timer `index`.
    #[inline]
    pub(crate) fn look_ahead(&self, index: u32) {
        self.timers.get(index as usize).into_iter().for_each(read_ahead);
    }

    /// When timer `index` is due, if it is armed.
    pub fn deadline(&self, index: u32) -> Option<Instant> {
        let deadline = self.timers.get(index as usize)?.deadline;
        (deadline != Instant::FAR_FUTURE).then_some(deadline)
    }

    /// The instant at which [`Wheel::pop`] has to be asked again: no later than the first deadline rounded
    /// up to its tick. It may be earlier, when a timer has yet to move down a level or was pushed back.
    pub fn next_deadline(&self) -> Option<Instant> {
        let first = self.first.or_else(|| self.first_slot().map(|(.., tick)| tick));
        first
            .filter(|&tick| tick != UNLINKED)
            .map(|tick| Instant::from_nanos(tick.saturating_mul(1 << TICK_BITS)))
    }

    /// One timer that is due at `now`, disarmed; `None` when there are no more.
    pub fn pop(&mut self, now: Instant) -> Option<u32> {
        let until = now.nanos() >> TICK_BITS;
        if self.first.is_some_and(|first| first > until) {
            self.now = self.now.max(until);
            return None;
        }
        loop {
            let first = self.first_slot();
            self.first = Some(first.map_or(UNLINKED, |(.., tick)| tick));
            let Some((level, slot, tick)) = first.filter(|&(.., tick)| tick <= until) else {
                self.now = self.now.max(until);
                return None;
            };
            self.now = self.now.max(tick);
            let index = self.take_last(level * SLOTS + slot);
            let wanted = tick_after(self.timers[index as usize].deadline);
            if wanted > self.now {
                // Cascades from a higher level, or was pushed back since it was linked.
                self.link(index, wanted);
                continue;
            }
            self.timers[index as usize].deadline = Instant::FAR_FUTURE;
            self.armed -= 1;
            return Some(index);
        }
    }

    /// The slot that comes first, and the tick at which it does. A slot of a higher level whose span has
    /// begun comes before the lower levels' later slots: its timers have to move down first.
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        let mut first: Option<(usize, usize, u64)> = None;
        for (level, &occupied) in self.occupied.iter().enumerate().filter(|(_, occupied)| **occupied != 0) {
            let shift = SLOT_BITS * level as u32;
            // Slots wrap, so the search starts at `now`'s own.
            let here = (self.now >> shift) as u32 % SLOTS as u32;
            let ahead = occupied.rotate_right(here).trailing_zeros();
            let tick = (((self.now >> shift) + u64::from(ahead)) << shift).max(self.now);
            if first.is_none_or(|(.., before)| tick < before) {
                first = Some((level, (here + ahead) as usize % SLOTS, tick));
            }
        }
        first
    }

    /// The level and slot of `tick`, which is not before `now`.
    fn place(&self, tick: u64) -> (usize, usize) {
        let differs = (self.now ^ tick) | (SLOTS as u64 - 1);
        let level = ((u64::BITS - 1 - differs.leading_zeros()) / SLOT_BITS) as usize;
        let level = level.min(LEVELS - 1);
        let slot = (tick >> (SLOT_BITS * level as u32)) as usize % SLOTS;
        (level, slot)
    }

    fn link(&mut self, index: u32, tick: u64) {
        let tick = tick.max(self.now).min(self.horizon());
        let (level, slot) = self.place(tick);
        let nth = level * SLOTS + slot;
        let list = &mut self.slots[nth];
        let timer = &mut self.timers[index as usize];
        (timer.tick, timer.at, timer.slot) = (tick, list.len() as u32, nth as u16);
        list.push(index);
        self.occupied[level] |= 1 << slot;
        let shift = SLOT_BITS * level as u32;
        let begins = ((tick >> shift) << shift).max(self.now);
        self.first = self.first.map(|first| first.min(begins));
    }

    /// The last tick that the top level can hold without meeting its own tail. A later deadline is linked
    /// there and moves on when it comes up.
    fn horizon(&self) -> u64 {
        let top = SLOT_BITS * (LEVELS as u32 - 1);
        ((self.now >> top) + SLOTS as u64 - 1) << top
    }

    /// Takes a timer out of its slot, whose last one gets its place.
    fn unlink(&mut self, index: u32) {
        let timer = &mut self.timers[index as usize];
        let (nth, at) = (usize::from(timer.slot), timer.at as usize);
        timer.tick = UNLINKED;
        let list = &mut self.slots[nth];
        list.swap_remove(at);
        if let Some(&moved) = list.get(at) {
            self.timers[moved as usize].at = at as u32;
        }
        self.note_emptied(nth);
    }

    /// Takes the last timer out of a slot that has one, and begins to fetch one that comes soon.
    fn take_last(&mut self, nth: usize) -> u32 {
        let list = &mut self.slots[nth];
        let index = list.pop().expect("a slot's bit says that it holds a timer");
        if let Some(&soon) = list.len().checked_sub(AHEAD).and_then(|at| list.get(at)) {
            read_ahead(&self.timers[soon as usize]);
        }
        self.timers[index as usize].tick = UNLINKED;
        self.note_emptied(nth);
        index
    }

    /// A slot has lost a timer: without one it is not looked at.
    fn note_emptied(&mut self, nth: usize) {
        let list = &mut self.slots[nth];
        if list.is_empty() {
            if list.capacity() > ROOM_KEPT {
                *list = Vec::new();
            }
            self.occupied[nth / SLOTS] &= !(1 << (nth % SLOTS));
            self.first = None;
        }
    }
}

/// The first tick that is not before `deadline`: a timer never fires early.
fn tick_after(deadline: Instant) -> u64 {
    deadline.nanos().div_ceil(1 << TICK_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn at_tick(tick: u64) -> Instant {
        Instant::from_nanos(tick << TICK_BITS)
    }

    #[test]
    fn fires_at_the_deadline_and_never_before() {
        let mut wheel = Wheel::new(Instant::ZERO);
        let deadline = Instant::from_millis(200);
        wheel.arm(3, deadline);
        assert_eq!(wheel.pop(deadline), None, "the tick that contains the deadline has not ended");
        assert_eq!(wheel.pop(deadline + Duration::from_millis(2)), Some(3));
        assert_eq!((wheel.len(), wheel.next_deadline()), (0, None));
    }

    #[test]
    fn pushing_back_moves_nothing_until_the_first_slot_comes_up() {
        let mut wheel = Wheel::new(Instant::ZERO);
        wheel.arm(0, at_tick(10));
        wheel.arm(0, at_tick(500));
        assert_eq!(wheel.next_deadline(), Some(at_tick(10)), "still linked at the earlier tick");
        assert_eq!(wheel.pop(at_tick(10)), None);
        assert_eq!(wheel.pop(at_tick(499)), None);
        assert_eq!(wheel.pop(at_tick(500)), Some(0));
    }

    #[test]
    fn a_cancelled_timer_stays_away() {
        let mut wheel = Wheel::new(Instant::ZERO);
        wheel.arm(0, at_tick(5));
        wheel.arm(1, at_tick(5));
        wheel.cancel(1);
        wheel.cancel(7);
        assert_eq!((wheel.deadline(0), wheel.deadline(1)), (Some(at_tick(5)), None));
        assert_eq!((wheel.pop(at_tick(9)), wheel.pop(at_tick(9))), (Some(0), None));
    }

    #[test]
    fn the_far_end_of_time_is_reached_in_steps() {
        let mut wheel = Wheel::new(at_tick(77));
        let far = at_tick(1 << 40);
        wheel.arm(0, far);
        let mut asked = 0;
        let mut fired = None;
        while fired.is_none() {
            let next = wheel.next_deadline().expect("armed");
            assert!(next <= far);
            fired = wheel.pop(next);
            asked += 1;
        }
        assert!(asked < 100, "asked {asked} times");
        assert_eq!(wheel.now, 1 << 40);
    }

    #[test]
    fn a_slot_that_held_many_gives_its_room_back() {
        let mut wheel = Wheel::new(Instant::ZERO);
        let many = 4 * ROOM_KEPT as u32;
        (0..many).for_each(|index| wheel.arm(index, at_tick(5)));
        (0..many).step_by(2).for_each(|index| wheel.cancel(index));
        let mut fired: Vec<u32> = core::iter::from_fn(|| wheel.pop(at_tick(5))).collect();
        fired.sort_unstable();
        assert!(fired.into_iter().eq((1..many).step_by(2)));
        assert_eq!(wheel.allocated_bytes(), wheel.timers.capacity() * size_of::<Timer>());
    }

    #[derive(Clone, Debug)]
    enum Op {
        Arm(u32, u64),
        Cancel(u32),
        Advance(u64),
        Sleep,
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        // Spans of every level: 2^0 to 2^40 nanoseconds times a tick.
        let span = (0u32..38, any::<u64>()).prop_map(|(bits, n)| (n % (1 << bits)) << (TICK_BITS - 2));
        let op = prop_oneof![
            4 => (0u32..12, span.clone()).prop_map(|(i, s)| Op::Arm(i, s)),
            1 => (0u32..12).prop_map(Op::Cancel),
            2 => span.prop_map(Op::Advance),
            2 => Just(Op::Sleep),
        ];
        proptest::collection::vec(op, 1..120)
    }

    /// Everything that fires at `now` by the slow reference: a sorted map.
    fn fire(model: &mut BTreeMap<u32, Instant>, now: Instant) -> Vec<u32> {
        let tick = now.nanos() >> TICK_BITS;
        let due: Vec<u32> =
            model.iter().filter(|&(_, &at)| tick_after(at) <= tick).map(|(&i, _)| i).collect();
        model.retain(|i, _| !due.contains(i));
        due
    }

    proptest! {
        #[test]
        fn fires_what_a_sorted_map_fires(ops in ops(), start in 0u64..1 << 50) {
            let mut now = Instant::from_nanos(start);
            let mut wheel = Wheel::new(now);
            let mut model = BTreeMap::new();
            for op in ops {
                let is_asked = matches!(op, Op::Advance(_) | Op::Sleep);
                match op {
                    Op::Arm(index, span) => {
                        wheel.arm(index, now + Duration::from_nanos(span));
                        model.insert(index, now + Duration::from_nanos(span));
                    }
                    Op::Cancel(index) => {
                        wheel.cancel(index);
                        model.remove(&index);
                    }
                    Op::Advance(span) => now += Duration::from_nanos(span),
                    Op::Sleep => now = wheel.next_deadline().map_or(now, |at| now.max(at)),
                }
                if is_asked {
                    let mut fired: Vec<u32> = core::iter::from_fn(|| wheel.pop(now)).collect();
                    fired.sort_unstable();
                    prop_assert_eq!(fired, fire(&mut model, now));
                }
                prop_assert_eq!(wheel.len(), model.len());
                let earliest = model.values().map(|&at| tick_after(at)).min();
                match (wheel.next_deadline(), earliest) {
                    (Some(next), Some(tick)) => prop_assert!(next <= at_tick(tick)),
                    (next, earliest) => prop_assert_eq!(next.is_some(), earliest.is_some()),
                }
            }
        }
    }
}
