//! Who waits until a limit, his own pace or a next hop lets him send.
//!
//! `shard.rs` has one for its datagram sockets, `conn.rs` one for connections. Those who wait for the same limits stand in one line, which
//! has one time: when the limit has said that there may be room. Then a few of its first are asked in a round, so what a limit costs does
//! not depend on how many wait for it; who is told to wait is where he was. The most urgent go first, and of these who has waited
//! longest: each has a ticket of the lane's, which he keeps until he has sent something. Without it the same few would go first each time,
//! or connections before datagrams. Who waits for something of his own has a time of his own.
//!
//! A program has as many sockets as it may, so finding a place for one must not cost more the more there are, and neither must leaving it.

use core::cmp::Reverse;
use core::net::IpAddr;
use core::num::NonZeroU64;
use core::time::Duration;
use std::collections::{BinaryHeap, HashMap};

use firelane_flow::Limits;
use firelane_units::{Instant, LinkId};

use super::bands::{Band, PassedOver};

/// How many of a line are asked in a round: some more than a limit lets go of small frames at once, and as few as cost nobody much.
const OF_A_LINE: usize = 16;

/// How many are asked in a round in all: what else is due is due in the next one.
const OF_A_ROUND: usize = 256;

/// How many lines are kept in which nobody stands.
const LINES_KEPT: usize = 64;

/// Who waits for longer than this looks meanwhile whether he still has to.
pub(super) const LOOKS_AGAIN: Duration = Duration::from_secs(5);

/// So many who are gone may stand in line in any case.
const GONE_MIN: usize = 64;

/// A place in line.
pub(crate) type Ticket = NonZeroU64;

/// A lane's tickets.
#[derive(Debug)]
pub(crate) struct Tickets(Ticket);

impl Default for Tickets {
    fn default() -> Self {
        Self(Ticket::MIN)
    }
}

impl Tickets {
    /// His, or the next one if he has none.
    pub(crate) fn of(&mut self, ticket: &mut Option<Ticket>) -> Ticket {
        *ticket.get_or_insert_with(|| {
            let next = self.0;
            self.0 = next.saturating_add(1);
            next
        })
    }
}

/// What somebody waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Cause {
    /// The limits of these flows.
    Limits(Limits),
    /// The Ethernet address of somebody on a link.
    NextHop(LinkId, IpAddr),
    /// Something of his own: his pace, or the end of his patience.
    Own,
}

impl Cause {
    /// When one who waits for this goes on, which is said to be at that time. Who may have to wait for longer than until `latest` looks by
    /// himself: a line is asked by a few at a time, which is for those who have their turns in it.
    pub(crate) fn at_latest(self, at: Instant, latest: Instant) -> (Self, Instant) {
        if at > latest { (Self::Own, latest) } else { (self, at) }
    }
}

/// Those who wait for the same thing.
#[derive(Debug)]
struct Line<T> {
    /// When its first ones are asked.
    at: Instant,
    /// When they were last.
    asked: Instant,
    /// Since when each waits, and who he is, by how urgent he is.
    bands: [BinaryHeap<Reverse<(Ticket, T)>>; Band::ALL.len()],
    passed_over: PassedOver,
}

impl<T: Ord> Line<T> {
    fn is_empty(&self) -> bool {
        self.bands.iter().all(BinaryHeap::is_empty)
    }

    /// The ticket of who has waited longest.
    fn first(&self) -> Option<Ticket> {
        self.bands.iter().filter_map(|band| band.peek().map(|Reverse((ticket, _))| *ticket)).min()
    }

    fn pop(&mut self) -> Option<(Ticket, T)> {
        let Self { bands, passed_over, .. } = self;
        let next = passed_over.next(|band| !bands[band].is_empty())?;
        bands[next].pop().map(|Reverse(first)| first)
    }
}

/// Those who wait.
#[derive(Debug)]
pub(crate) struct Limited<T> {
    lines: HashMap<Cause, Line<T>>,
    /// When each line is asked. A time that a line does not name any more is nobody's; the first is somebody's.
    times: BinaryHeap<Reverse<(Instant, Cause)>>,
    /// Lines that were asked in this round, and have more.
    asked: Vec<Cause>,
    /// Those who wait alone: when each goes on, since when he waits, and who he is.
    alone: BinaryHeap<Reverse<(Instant, Ticket, T)>>,
    /// How many wait, and how many of these at most are gone.
    waiting: usize,
    gone: usize,
}

impl<T: Ord> Default for Limited<T> {
    fn default() -> Self {
        let (times, alone) = (BinaryHeap::new(), BinaryHeap::new());
        Self { lines: HashMap::new(), times, asked: Vec::new(), alone, waiting: 0, gone: 0 }
    }
}

impl<T: Ord> Limited<T> {
    /// One waits for `cause`, which has said: not before `at`.
    pub(crate) fn put(&mut self, (cause, at): (Cause, Instant), band: Band, ticket: Ticket, who: T) {
        self.waiting += 1;
        if cause == Cause::Own {
            self.alone.push(Reverse((at, ticket, who)));
            return;
        }
        let line = self.lines.entry(cause).or_insert_with(|| {
            let bands = Band::ALL.map(|_| BinaryHeap::new());
            Line { at, asked: Instant::ZERO, bands, passed_over: PassedOver::default() }
        });
        // What those hear who were asked holds for all of them. Who comes meanwhile makes none of them wait for longer.
        let was_asked = line.is_empty() || line.at <= line.asked;
        let at = if was_asked { at } else { at.min(line.at) };
        let is_news = line.is_empty() || line.at != at;
        line.bands[band as usize].push(Reverse((ticket, who)));
        if is_news {
            line.at = at;
            self.times.push(Reverse((at, cause)));
            self.settle();
        }
    }

    /// Since when the next one waits whose time has come.
    pub(crate) fn first_due(&self, now: Instant) -> Option<Ticket> {
        let line = self.times.peek().filter(|Reverse((at, _))| *at <= now);
        let first = line.and_then(|Reverse((_, cause))| self.lines.get(cause)?.first());
        let alone = self.alone.peek().filter(|Reverse((at, ..))| *at <= now);
        alone.map(|Reverse((_, ticket, _))| *ticket).into_iter().chain(first).min()
    }

    /// A round begins: takes those whose time has come, the first ones of each line, with their tickets. Which limits' lines are asked.
    pub(crate) fn wake(
        &mut self,
        now: Instant,
        mut each: impl FnMut(T, Ticket),
        mut asked: impl FnMut(Limits),
    ) {
        let mut left = OF_A_ROUND;
        while left > 0
            && self.alone.peek().is_some_and(|Reverse((at, ..))| *at <= now)
            && let Some(Reverse((_, ticket, who))) = self.alone.pop()
        {
            (left, self.waiting) = (left - 1, self.waiting - 1);
            each(who, ticket);
        }
        left = OF_A_ROUND;
        while left > 0
            && let Some(cause) = self.next_line(now)
        {
            let Some(line) = self.lines.get_mut(&cause) else { continue };
            if let Cause::Limits(limits) = cause {
                asked(limits);
            }
            for _ in 0..OF_A_LINE.min(left) {
                let Some((ticket, who)) = line.pop() else { break };
                (left, self.waiting) = (left - 1, self.waiting - 1);
                each(who, ticket);
            }
            match line.is_empty() {
                // One is kept for the next who waits there.
                true if self.lines.len() > LINES_KEPT => drop(self.lines.remove(&cause)),
                true => {}
                false => self.asked.push(cause),
            }
        }
        self.asked.sort_unstable();
        self.asked.dedup();
        // Lines that are due and had no turn go before.
        for cause in self.asked.drain(..) {
            if let Some(line) = self.lines.get_mut(&cause) {
                (line.at, line.asked) = (now, now);
                self.times.push(Reverse((now, cause)));
            }
        }
        self.settle();
    }

    /// Takes the next line whose time has come.
    fn next_line(&mut self, now: Instant) -> Option<Cause> {
        self.settle();
        self.times.peek().filter(|Reverse((at, _))| *at <= now)?;
        let Reverse(next) = self.times.pop()?;
        // A time may have been said twice.
        while self.times.peek().is_some_and(|Reverse(other)| *other == next) {
            self.times.pop();
        }
        Some(next.1)
    }

    /// Things are others now: lines of these causes are asked again, as those of a round are.
    pub(crate) fn ask_anew(&mut self, now: Instant, is_so: impl Fn(&Cause) -> bool) {
        for (&cause, line) in self.lines.iter_mut().filter(|(cause, line)| is_so(cause) && !line.is_empty()) {
            if line.at > now {
                line.at = now;
                self.times.push(Reverse((now, cause)));
            }
        }
        if is_so(&Cause::Own) {
            let all = core::mem::take(&mut self.alone).into_iter();
            self.alone = all.map(|Reverse((at, ticket, who))| Reverse((at.min(now), ticket, who))).collect();
        }
        self.settle();
    }

    /// One of those who wait is gone, or does not wait here any more. When more are than wait, they leave, all but those who are still `there`: so each that goes costs
    /// the same, however many wait.
    pub(crate) fn note_gone(&mut self, mut there: impl FnMut(T, Ticket) -> bool)
    where
        T: Copy,
    {
        self.gone += 1;
        if self.gone < GONE_MIN || self.gone <= self.waiting / 2 {
            return;
        }
        self.alone.retain(|&Reverse((_, ticket, who))| there(who, ticket));
        self.alone.shrink_to(2 * self.alone.len());
        (self.gone, self.waiting) = (0, self.alone.len());
        for line in self.lines.values_mut() {
            for band in &mut line.bands {
                band.retain(|&Reverse((ticket, who))| there(who, ticket));
                band.shrink_to(2 * band.len());
                self.waiting += band.len();
            }
        }
        self.settle();
    }

    /// What their places in line take.
    pub(crate) fn allocated_bytes(&self) -> usize {
        let lines = self.lines.values().flat_map(|line| &line.bands).map(BinaryHeap::capacity).sum::<usize>();
        lines * size_of::<Reverse<(Ticket, T)>>()
            + self.alone.capacity() * size_of::<Reverse<(Instant, Ticket, T)>>()
    }

    /// Takes times away that are nobody's, up to one that is somebody's; all of them where there are many.
    fn settle(&mut self) {
        if self.times.len() > LINES_KEPT + 4 * self.lines.len() {
            let lines = self.lines.iter().filter(|(_, line)| !line.is_empty());
            self.times = lines.map(|(&cause, line)| Reverse((line.at, cause))).collect();
        }
        while let Some(Reverse((at, cause))) = self.times.peek() {
            if self.lines.get(cause).is_some_and(|line| line.at == *at && !line.is_empty()) {
                return;
            }
            self.times.pop();
        }
    }

    /// When the first one goes on.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let alone = self.alone.peek().map(|Reverse((at, ..))| *at);
        Instant::earliest([alone, self.times.peek().map(|Reverse((at, _))| *at)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::{Direction, FlowId};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn line(flow: u32) -> Cause {
        Cause::Limits([Some((FlowId(flow), Direction::Out)), None])
    }

    fn woken(limited: &mut Limited<u32>, second: u64) -> Vec<u32> {
        let mut woken = Vec::new();
        limited.wake(Instant::from_secs(second), |who, _| woken.push(who), |_| ());
        woken
    }

    proptest! {
        /// Whoever waits is asked once, not before his time, and as long as somebody waits there is a time at which somebody is.
        #[test]
        fn nobody_is_lost_and_nobody_comes_twice(
            steps in prop::collection::vec((0u32..4, 0u64..20, 0usize..3, any::<bool>()), 0..200),
        ) {
            let (mut limited, mut tickets) = (Limited::default(), Tickets::default());
            let (mut inside, mut now) = (BTreeMap::new(), 0);
            for (who, &(flow, time, band, wakes)) in (0..).zip(&steps) {
                if wakes {
                    now += time;
                    for who in woken(&mut limited, now) {
                        prop_assert!(inside.remove(&who).is_some(), "{who} twice");
                    }
                } else {
                    let cause = if flow == 0 { Cause::Own } else { line(flow) };
                    limited.put((cause, Instant::from_secs(now + time)), Band::ALL[band], tickets.of(&mut None), who);
                    inside.insert(who, (cause, now + time));
                }
                let of_own = |(cause, at): &(Cause, u64)| (*cause == Cause::Own).then_some(*at);
                let own = inside.values().filter_map(of_own).min();
                prop_assert!(own.is_none_or(|at| limited.next_at().is_some_and(|next| next <= Instant::from_secs(at))));
                prop_assert_eq!(limited.next_at().is_none(), inside.is_empty());
            }
            while let Some(at) = limited.next_at() {
                for who in woken(&mut limited, (at.saturating_since(Instant::ZERO).as_secs()).max(now)) {
                    prop_assert!(inside.remove(&who).is_some(), "{who} twice");
                }
            }
            prop_assert!(inside.is_empty(), "{inside:?}");
        }

        /// Where a few of many may send each time, all have as many turns, and only a few more are asked.
        #[test]
        fn each_has_his_turn(many in 1..300_u32, few in 1..5_usize) {
            let (mut limited, mut tickets) = (Limited::default(), Tickets::default());
            let (mut own, mut turns) = (vec![None; many as usize], vec![0; many as usize]);
            let at = |second| (line(1), Instant::from_secs(second));
            (0..many).for_each(|n| limited.put(at(0), Band::Usual, tickets.of(&mut own[n as usize]), n));
            for second in 1..=(3 * u64::from(many)) {
                let due = woken(&mut limited, second);
                prop_assert_eq!(due.len(), OF_A_LINE.min(many as usize));
                for (place, n) in due.into_iter().enumerate() {
                    let index = n as usize;
                    if place < few {
                        turns[index] += 1;
                        own[index] = None;
                    }
                    limited.put(at(second + 1), Band::Usual, tickets.of(&mut own[index]), n);
                }
            }
            let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{turns:?}");
        }
    }

    #[test]
    fn lines_that_are_due_have_their_turns_whatever_the_others_hold() {
        let (mut limited, mut tickets) = (Limited::default(), Tickets::default());
        let lines = 2 * (OF_A_ROUND / OF_A_LINE) as u32;
        for n in 0..lines * 40 {
            limited.put((line(n % lines), Instant::ZERO), Band::Usual, tickets.of(&mut None), n);
        }
        for second in 1..=4 {
            let woken = woken(&mut limited, second);
            assert_eq!(woken.len(), OF_A_ROUND);
            let half: Vec<u32> = woken.iter().map(|n| n % lines).collect();
            assert!(half.iter().all(|line| (line < &(lines / 2)) == (second % 2 == 1)), "{second}: {half:?}");
        }
    }

    #[test]
    fn who_was_asked_says_when_and_who_comes_puts_nobody_off() {
        let (mut limited, mut tickets) = (Limited::default(), Tickets::default());
        let at = Instant::from_secs;
        let mut put = |limited: &mut Limited<u32>, seconds: &[u64]| {
            for &second in seconds {
                limited.put((line(1), at(second)), Band::Usual, tickets.of(&mut None), 0);
            }
        };
        put(&mut limited, &[9, 30, 20]);
        assert_eq!((limited.next_at(), woken(&mut limited, 8)), (Some(at(9)), vec![]));
        put(&mut limited, &[10; 2 * OF_A_LINE]);
        assert_eq!(woken(&mut limited, 9).len(), OF_A_LINE);
        // They have heard: not before 12. It is due for the others as well, who were not asked.
        put(&mut limited, &[12, 13, 11]);
        assert_eq!((limited.next_at(), woken(&mut limited, 10)), (Some(at(11)), vec![]));
        assert_eq!(woken(&mut limited, 11).len(), OF_A_LINE);
    }

    #[test]
    fn what_waits_for_longer_looks_by_itself() {
        let (now, later) = (Instant::from_secs(5), Instant::from_secs(9));
        assert_eq!(line(1).at_latest(now, later), (line(1), now));
        assert_eq!(line(1).at_latest(Instant::FAR_FUTURE, later), (Cause::Own, later));
        let (mut limited, mut tickets) = (Limited::default(), Tickets::default());
        for who in 0..3 * OF_A_LINE as u32 {
            limited.put((Cause::Own, later), Band::Usual, tickets.of(&mut None), who);
        }
        limited.ask_anew(now, |cause| *cause == Cause::Own);
        assert_eq!(woken(&mut limited, 5).len(), 3 * OF_A_LINE);
    }

    #[test]
    fn news_come_before_a_lines_time() {
        let (mut limited, mut tickets) = (Limited::default(), Tickets::default());
        let at = Instant::from_secs;
        for who in 0..3 {
            limited.put((line(1), at(20)), Band::Usual, tickets.of(&mut None), who);
        }
        limited.ask_anew(at(19), |cause| *cause == line(2));
        assert_eq!(limited.next_at(), Some(at(20)));
        limited.ask_anew(at(19), |cause| *cause == line(1));
        assert_eq!((limited.next_at(), woken(&mut limited, 19)), (Some(at(19)), vec![0, 1, 2]));
        assert_eq!(limited.next_at(), None);
    }
}
