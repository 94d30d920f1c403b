//! One turn of a lane: fetch, pass through, let time work, send, and say until when to sleep.
//!
//! Called by the worker through the squeue (`host.rs`). Application threads that ran an item inline settle
//! instead: they finish what they began and leave fetching and time to the worker.

use core::mem;
use core::time::Duration;

use firelane_frame::Driver;
use firelane_units::Instant;

use crate::drive::How;
use crate::lane::Lane;
use crate::poll::{Fetched, Looked, Rest};
use crate::squeue::{Idle, Sleep};

/// How often netstacks and link side may answer each other within one turn before the worker looks at its
/// squeue again: two sockets of one lane that talk to each other must not keep everybody else out.
const ROUNDS_MAX: usize = 64;

/// When to try a full device or an empty pool again: neither says when it has room, and a ring of 256 frames
/// at 10 Gb/s empties in 300 µs.
pub(crate) const TX_RETRY: Duration = Duration::from_micros(100);

/// So many devices that rest are read as soon as the lane's worker has asked all of them whether they have called.
const FEW_RESTING: usize = 4;

/// How long threads that do the worker's work may keep it from listening to devices that rest.
const LISTENS_WITHIN: Duration = Duration::from_millis(1);

/// A turn of which only the end is left: until when the worker may sleep.
pub(crate) struct Turned {
    work_left: bool,
    pause: Option<Instant>,
    /// There is more to pass on or to send.
    more: bool,
}

impl<D: Driver> Lane<D> {
    /// The worker's turn. The squeue's waiting items ran before.
    pub fn turn(&mut self, now: Instant, idle: Idle) -> Sleep {
        let turned = self.go_through(now, idle);
        self.end_turn(turned, idle)
    }

    /// All of a turn that others wait for.
    pub(crate) fn go_through(&mut self, now: Instant, idle: Idle) -> Turned {
        let (fetched, more) = self.go_round(now, idle);
        let (work_left, pause) = self.rest(fetched, more, idle);
        Turned { work_left, pause, more }
    }

    /// The end of a turn.
    pub(crate) fn end_turn(&mut self, turned: Turned, idle: Idle) -> Sleep {
        let Turned { work_left, pause, more } = turned;
        // Who comes again at once need not know what is due later.
        let comes_again = work_left || idle == Idle::StaysAwake;
        self.pause = pause;
        let until = if comes_again { Some(self.common.now) } else { self.next_deadline() };
        let is_deaf = pause.is_some();
        self.sleeps_until = until;
        let listens = (self.links.unpolled > 0 || self.is_unheard) && idle == Idle::Sleeps;
        Sleep { until, work_left, is_deaf, listens, yields: !more && self.policy.looks_again() }
    }

    /// A thread that is about to wait for a socket of this lane does the worker's work while the worker pauses.
    pub fn look(&mut self, now: Instant) -> Looked {
        if !self.policy.is_loaded() {
            return Looked::NoPause;
        }
        if self.is_unheard && self.heard_at + LISTENS_WITHIN <= now {
            // Only the worker can.
            self.sleeps_until = Some(now);
            return Looked::CallWorker;
        }
        let (fetched, more) = self.go_round(now, Idle::Sleeps);
        let has_more = more || fetched.before_more > 0 || self.common.backlogs.of(self.common.id) > 0;
        let may_pause = !has_more && self.links.may_pause();
        let Some(pause) = self.policy.looked(now, fetched, may_pause) else {
            self.sleeps_until = Some(now);
            return Looked::CallWorker;
        };
        self.pause = Some(pause);
        self.sleeps_until = self.next_deadline();
        Looked::Until(self.sleeps_until.unwrap_or(pause))
    }

    /// Lets time work, fetches, passes through and sends. What was fetched, and whether there is more to do.
    fn go_round(&mut self, now: Instant, idle: Idle) -> (Fetched, bool) {
        self.common.now = now;
        self.common.counters.turns += 1;
        self.stacks.take_kicks(&mut self.common);
        self.links.advance(now);
        self.links.sent.begin_round();
        self.stacks.begin_turn(now);
        self.stacks.sweep(&mut self.common, &self.links);
        self.stacks.end_removed(&mut self.common, &mut self.departures);
        self.stacks.end_deserted(&mut self.common);
        self.stacks.on_time(&mut self.common);
        self.stacks.search_on(&mut self.common);
        if self.links.lender.goes_first(now) {
            self.stacks.lend(&mut self.common, &mut self.links);
        }
        self.links.release(&mut self.common);
        self.links.let_in(&mut self.common);
        let mut fetched = self.fetch(idle);
        self.links.answer_flood(&mut self.common);
        let more = self.pass_on() | self.flush() | self.stacks.comes_again();
        fetched.load.is_awaited = self.stacks.are_held_up();
        (fetched, more)
    }

    /// Finishes what an item began: what is to be sent is sent. Answers whether the worker must be woken: there is
    /// more to do, or something is due before it would wake up.
    pub fn settle(&mut self, now: Instant) -> bool {
        self.common.now = now;
        self.stacks.take_kicks(&mut self.common);
        let more = self.pass_on() | self.flush() | self.stacks.comes_again();
        if self.sleeps_until.is_some_and(|until| until <= now) {
            return more;
        }
        let next = self.next_deadline();
        let is_late = next.is_some_and(|at| self.sleeps_until.is_none_or(|until| at < until));
        if is_late {
            // Asked once: until its next turn the worker is on its way.
            self.sleeps_until = next;
        }
        more || is_late
    }

    fn fetch(&mut self, idle: Idle) -> Fetched {
        let backlog = self.common.backlogs.of(self.common.id);
        if !self.policy.may_fetch(backlog) {
            return Fetched::default();
        }
        if self.policy.is_loaded() || self.policy.looks_again() {
            // Nobody has listened since.
            self.devices.listened(true);
        }
        // Who never sleeps is told of nothing.
        let passes_empty = self.devices.fetch() && idle == Idle::Sleeps;
        let ignores_calls = idle == Idle::StaysAwake;
        let is_heard = mem::take(&mut self.has_listened);
        if is_heard {
            (self.is_unheard, self.heard_at) = (false, self.common.now);
        }
        if ignores_calls || !(is_heard || passes_empty) {
            self.ask_resting(idle);
        }
        let how = How { passes_empty, ignores_calls, is_heard };
        let Self { links, common, stacks, fetched, .. } = self;
        let fetched = links.fetch(common, how, fetched, |links, common| stacks.arrive(common, links));
        if fetched.before_more > 0 && !self.policy.is_polling() {
            self.links.notify(false);
        }
        fetched
    }

    /// Devices that rest may have called since the worker last listened. A few are read; to many it is to listen.
    fn ask_resting(&mut self, idle: Idle) {
        if idle == Idle::StaysAwake || self.links.queues.resting() <= FEW_RESTING {
            self.links.queues.wake_all();
        } else {
            self.is_unheard = true;
        }
    }

    /// Lets netstacks and link side answer each other until both are silent; whether they are not. What a round
    /// made is sent at its end: the far side begins with it while the next round is made.
    fn pass_on(&mut self) -> bool {
        let more = self.answer_each_other();
        if self.stacks.has_to_join() || self.links.has_to_lend(&self.common) {
            self.stacks.join(&mut self.common, &mut self.links);
            // Who has sent his last segments in that round may ask for credit now.
            return self.answer_each_other() | self.stacks.has_to_ask();
        }
        more
    }

    fn answer_each_other(&mut self) -> bool {
        self.stacks.arrive(&mut self.common, &mut self.links);
        // Who could not send is dirty again, so rounds without a result are counted, not asked for.
        let mut barren = self.stacks.rounds();
        for _ in 0..ROUNDS_MAX {
            if self.stacks.is_turn_over() {
                break;
            }
            self.links.sent.begin_round();
            let more = self.stacks.transmit(&mut self.common, &mut self.links, &mut self.departures);
            self.links.hear_of_told(self.common.now);
            // What a netstack sends to itself has arrived already.
            if self.departures.is_empty() && !self.links.has_arrivals() {
                self.links.hear_of_asked(self.common.now);
                if self.stacks.take_handed_across() {
                    barren = self.stacks.rounds() + 1;
                }
                if more {
                    continue;
                }
                if barren <= 1 {
                    return false;
                }
                barren -= 1;
                continue;
            }
            self.links.take_departures(&mut self.common, &mut self.departures);
            self.links.hear_of_asked(self.common.now);
            self.stacks.arrive(&mut self.common, &mut self.links);
            barren = self.stacks.rounds();
            self.is_tx_full = self.links.flush(&mut self.common);
        }
        true
    }

    /// Sends once; whether sockets that waited for a device may go on at once.
    fn flush(&mut self) -> bool {
        self.is_tx_full = self.links.flush(&mut self.common);
        !self.is_tx_full && self.stacks.has_blocked()
    }

    /// Whether there is work left for the worker; if there is none and it is to sleep, devices wake it, or it pauses until
    /// then.
    fn rest(&mut self, fetched: Fetched, more: bool, idle: Idle) -> (bool, Option<Instant>) {
        if idle == Idle::StaysAwake {
            if !self.policy.is_polling() {
                self.links.notify(false);
                self.policy.poll_on();
            }
            return (more || fetched.before_more > 0, None);
        }
        let backlog = self.common.backlogs.of(self.common.id);
        let rest = self.policy.after_fetch(self.common.now, fetched, backlog, || self.links.may_pause());
        let pause = if let Rest::Pause(until) = rest { Some(until) } else { None };
        let is_asked = rest == Rest::AwaitNotification && self.links.notify(true);
        // What a lane will not read now it need not ask for: it is called when it may.
        let is_unpolled_asked = self.links.ask_unpolled(!self.policy.is_stopped());
        let waiting = is_asked | is_unpolled_asked | self.links.take_unended();
        self.is_starved = waiting && fetched == Fetched::default() && self.common.pools.is_any_empty();
        if self.is_starved {
            // What waits in a device cannot be fetched until a buffer comes back, which no device tells.
            self.links.notify(false);
            return (more, None);
        }
        if pause.is_some() {
            self.links.notify(false);
        }
        (more || waiting || matches!(rest, Rest::PollAgain | Rest::LookAgain), pause)
    }

    /// The earliest instant at which there is something to do without being woken. Timers of TCP and of IP end a pause as little as
    /// frames do: their ticks are coarser, and a pacer makes good what it was late.
    fn next_deadline(&mut self) -> Option<Instant> {
        let is_stuck = self.is_tx_full || self.is_starved || self.stacks.has_dirty();
        let retry = is_stuck.then(|| self.common.now + TX_RETRY);
        let sweep = self.stacks.sweep_at(self.common.now);
        let loan = self.links.lender.next();
        let stacks = match self.pause {
            Some(_) => self.stacks.next_limit(),
            None => self.stacks.next_deadline(),
        };
        let (release, event) = (self.links.flows.wake_for_release(), self.links.next_event());
        Instant::earliest([release, loan, event, self.pause, stacks, retry, sweep])
    }
}
