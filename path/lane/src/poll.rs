//! When a lane fetches frames from its drivers, and when it sleeps and is notified instead.
//!
//! Called by `turn.rs` before and after each round of fetching. The decision is backlog alone (Solaris
//! `mac_sched.c`, dynamic polling): poll while anything is queued and take no notifications meanwhile;
//! above [`STOP_ABOVE`] unconsumed frames leave them in the ring, where overload is dropped at no cost;
//! fetch again at [`RESUME_AT`]; ask for notifications only after an empty fetch with nothing queued.
//! Backlog is what was fetched and not consumed yet, which with run-to-completion means frames that wait in
//! other lanes' squeues. Frames held by a limit are no backlog. Above [`STOP_ABOVE`] programs' datagrams stay in their queues, too
//! (`stacks/datagrams_out.rs`).
//!
//! We differ: a lane that runs to completion is faster than its devices and finds them empty under any load, where the
//! original found what had arrived behind its back. So a lane that had [`LOADED_AT`] frames or more since it last slept is
//! under load. It does not ask for notifications, but comes back after a pause, as long as each pause brings
//! [`STAYS_LOADED_AT`] frames: one wake-up for many frames, and one for those who read them. One pause that brings fewer may be the
//! gap of a load that comes at a beat; two are its end.
//!
//! - P1. A pause is as long as a chain takes to come, between `PAUSE` and [`PAUSE_ALONE`](crate::PAUSE_ALONE), as long as nobody is
//!   seen to wait (`pauses.rs`); `PAUSE` where requests come, or a connection's text waits for an acknowledgement.
//! - P2. A thread that is about to wait for a socket looks before it does, and the pause begins anew ([`PollPolicy::looked`]). Where
//!   somebody looks regularly the worker comes only if he is late. Nothing waits longer than [`PAUSE_MAX`](crate::PAUSE_MAX).
//! - P3. After a datagram there are no pauses for [`GRACE`], and after many at once the lane lets who reads them run, and looks once
//!   more before it listens ([`Rest::LookAgain`]).
//! - P4. Where a limit or a guarantee stands there are none: somebody is promised not to feel his neighbours, and a load that is
//!   another's would make him wait.

use core::ops::AddAssign;
use core::time::Duration;

use firelane_classify::Headers;
use firelane_units::Instant;
use firelane_wire::{IpProtocol, TcpFlags};

use crate::pauses::Pauses;

/// The backlog above which nothing is fetched, and no datagram of a program is sent (Solaris `mac_soft_ring_min_q_cnt`).
pub const STOP_ABOVE: usize = 256;

/// The backlog at which fetching resumes (Solaris `mac_soft_ring_poll_thres`).
pub const RESUME_AT: usize = 16;

/// For how long there are no pauses after a datagram: others of the same conversation come.
pub const GRACE: Duration = Duration::from_micros(1000);

/// Datagrams of one round after which others are likely to be on their way already.
const MANY: usize = 3;

/// Frames between two sleeps that are a load: more than few who wait for each other's answers have under way.
pub const LOADED_AT: usize = 8;

/// Frames of a pause that are still one: with fewer, being notified costs no more than coming back.
pub const STAYS_LOADED_AT: usize = 3;

/// When a device is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Polling {
    /// When it has called, and under load without.
    #[default]
    Auto,
    /// Once for each time that it has called.
    Off,
}

/// What a round of fetching has brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fetched {
    /// Frames after which there may be more: none from devices that are known to be empty.
    pub before_more: usize,
    /// All frames of devices that are polled.
    pub polled: usize,
    /// What these were.
    pub load: Load,
}

/// What frames tell of who waits for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// All bytes.
    pub bytes: usize,
    /// Frames of what is no stream of TCP's, or begins or ends one.
    pub pressing: usize,
    /// Frames that are short, end what a program wrote, and are not the ends of longer texts.
    pub requests: usize,
    /// Connections have text that waits for an acknowledgement.
    pub is_awaited: bool,
}

impl Load {
    /// What another frame adds.
    #[inline]
    pub(crate) fn add(&mut self, senders: &mut Senders, headers: &Headers, len: usize) {
        self.bytes += len;
        if headers.protocol != IpProtocol::TCP || headers.tcp_flags.intersects(BEGINS_OR_ENDS) {
            self.pressing += 1;
        } else if len >= SHORT_BYTES {
            senders.lately |= bit(headers);
        } else if headers.tcp_flags.contains(TcpFlags::PSH) {
            let is_end = (senders.lately | senders.before) & bit(headers) != 0;
            self.requests += usize::from(!is_end);
        }
    }
}

/// Who has sent long frames lately: what he sends in a short one ends a longer text, and is no request. A bit for each
/// pair of ports, and so now and then somebody else's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Senders {
    lately: u128,
    before: u128,
    since: Instant,
}

impl Senders {
    /// How long a text may take.
    const SPAN: Duration = Duration::from_millis(1);

    pub(crate) fn advance(&mut self, now: Instant) {
        let past = now.saturating_since(self.since);
        if past >= Self::SPAN {
            self.before = if past < 2 * Self::SPAN { self.lately } else { 0 };
            (self.lately, self.since) = (0, now);
        }
    }
}

#[inline]
fn bit(headers: &Headers) -> u128 {
    let (from, to) = headers.ports.unwrap_or_default();
    let mixed = (u32::from(from.0) << 16 | u32::from(to.0)).wrapping_mul(0x9e37_79b9);
    1 << (mixed >> (u32::BITS - u128::BITS.ilog2()))
}

impl AddAssign for Load {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.pressing += other.pressing;
        self.requests += other.requests;
        self.is_awaited |= other.is_awaited;
    }
}

/// Flags of segments for which somebody waits.
const BEGINS_OR_ENDS: TcpFlags = TcpFlags::SYN.with(TcpFlags::FIN).with(TcpFlags::RST);

/// Frames up to here are short.
const SHORT_BYTES: usize = 1500;

/// What the lane does after a round of fetching.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Fetch again: there may be more.
    PollAgain,
    /// Let others run who have something to do now, and fetch again before notifications are asked for.
    LookAgain,
    /// Sleep without notifications: whoever consumes the backlog calls.
    AwaitConsumers,
    /// Sleep until a driver notifies.
    AwaitNotification,
    /// Sleep until then without notifications, and fetch again.
    Pause(Instant),
}

/// What a thread that is about to wait for a socket has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Looked {
    /// Nothing: the worker is told of what comes, or is awake.
    NoPause,
    /// The worker need not come before then.
    Until(Instant),
    /// The worker is to come at once.
    CallWorker,
}

/// The polling policy of one lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PollPolicy {
    /// The backlog went above [`STOP_ABOVE`] and has not come down to [`RESUME_AT`].
    stopped: bool,
    /// The drivers were told to be quiet.
    polling: bool,
    /// The lane looks again before it listens.
    looks_again: bool,
    /// The end of the last pause, as long as the lane is under load.
    pause: Option<Instant>,
    /// That pause followed one that brought no load.
    is_gap: bool,
    pauses: Pauses,
    /// Frames that were polled since the last sleep or the last pause began, and what they were.
    polled: usize,
    load: Load,
    /// Until then there are no pauses.
    grace: Option<Instant>,
}

impl PollPolicy {
    /// Whether to fetch with `backlog` frames unconsumed.
    pub fn may_fetch(&mut self, backlog: usize) -> bool {
        self.stopped = backlog > if self.stopped { RESUME_AT } else { STOP_ABOVE };
        !self.stopped
    }

    /// Whether nothing is fetched until others have consumed what there is.
    pub(crate) const fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// What comes after a fetch that left `backlog` frames unconsumed. `may_pause` says that every device has room for what
    /// arrives in a pause, and that nobody is promised better; it is asked under load and after datagrams alone.
    pub fn after_fetch(
        &mut self,
        now: Instant,
        fetched: Fetched,
        backlog: usize,
        may_pause: impl FnOnce() -> bool,
    ) -> Rest {
        self.note(now, fetched);
        self.looks_again = false;
        let rest = match (self.stopped, fetched.before_more, backlog) {
            (true, _, _) => Rest::AwaitConsumers,
            (false, 1.., _) => Rest::PollAgain,
            (false, 0, 1..) => Rest::AwaitConsumers,
            (false, 0, 0) => self.when_empty(now, fetched.load.pressing >= MANY, may_pause),
        };
        self.polling = rest != Rest::AwaitNotification;
        rest
    }

    fn note(&mut self, now: Instant, fetched: Fetched) {
        self.polled += fetched.polled;
        self.load += fetched.load;
        self.pauses.count(now, fetched.polled, fetched.load.bytes);
        if fetched.load.pressing > 0 {
            self.grace = Some(now + GRACE);
        }
    }

    fn when_empty(&mut self, now: Instant, are_many: bool, may_pause: impl FnOnce() -> bool) -> Rest {
        let under_way = self.pause.filter(|&until| now < until);
        let has_grace = self.grace.is_some_and(|until| now < until);
        let might_pause = !has_grace && (under_way.is_some() || self.is_load() || self.may_be_gap(now));
        if (might_pause || are_many) && may_pause() {
            if are_many {
                self.looks_again = true;
                return Rest::LookAgain;
            }
            // If one is under way, somebody else woke the lane.
            return Rest::Pause(under_way.unwrap_or_else(|| self.pause_from(now, false)));
        }
        (self.pause, self.polled, self.load) = (None, 0, Load::default());
        Rest::AwaitNotification
    }

    /// Whether what came since the last sleep or pause is a load.
    const fn is_load(&self) -> bool {
        self.polled >= if self.is_loaded() { STAYS_LOADED_AT } else { LOADED_AT }
    }

    /// Whether a pause that brought no load may be the gap of one: listening, each frame of the next beat would wake the lane until
    /// they are a load again. Where somebody may wait, it is none.
    fn may_be_gap(&self, now: Instant) -> bool {
        self.is_loaded() && !self.is_gap && self.pauses.are_long(now, self.load)
    }

    /// Begins a pause, whose end is answered. `is_relied_on`: a thread has just looked.
    fn pause_from(&mut self, now: Instant, is_relied_on: bool) -> Instant {
        self.is_gap = !self.is_load();
        let length = self.pauses.begin(now, self.polled, self.load, is_relied_on);
        (self.polled, self.load) = (0, Load::default());
        *self.pause.insert(now + length)
    }

    /// A thread that is about to wait for a socket has looked, in a pause, and brought this, and there is nothing more to do. When
    /// the worker is to come: `None` if that is at once.
    pub fn looked(&mut self, now: Instant, fetched: Fetched, may_pause: bool) -> Option<Instant> {
        self.note(now, fetched);
        self.pauses.look(now);
        let until = self.pause.filter(|_| may_pause && fetched.load.pressing == 0)?;
        if !self.is_load() {
            return Some(until);
        }
        // What is left alone from here on has not waited yet.
        Some(self.pause_from(now, true))
    }

    /// Whether the lane looks once more before it listens.
    pub(crate) const fn looks_again(&self) -> bool {
        self.looks_again
    }

    /// Whether devices are read until they are empty and then left alone for a while, instead of being listened to.
    pub const fn is_loaded(&self) -> bool {
        self.pause.is_some()
    }

    /// The drivers were told to be quiet, for a lane that does not sleep.
    pub const fn poll_on(&mut self) {
        self.polling = true;
    }

    /// Whether the drivers' notifications are off.
    pub const fn is_polling(&self) -> bool {
        self.polling
    }

    /// Whether consumers that bring the backlog from `before` down to `after` must call this lane.
    pub const fn consumers_call(before: usize, after: usize) -> bool {
        (before > RESUME_AT && after <= RESUME_AT) || (before > 0 && after == 0)
    }
}

/// What the worker has heard of devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Calls<'a> {
    /// All are quiet.
    Nobody,
    /// Those have called, by their numbers ([`firelane_frame::Driver::call_as`]).
    These(&'a [u32]),
    /// Some have, and it is not known which.
    Somebody,
}

/// What is known of devices that had nothing left when they were last read and wake the lane for what comes after.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Devices {
    /// Nothing: they are read.
    #[default]
    Unknown,
    /// Some may have called since, and are read however often it is said that others are quiet.
    Called,
    /// None has called: reading would find nothing.
    Quiet,
}

impl Devices {
    /// The worker has listened: whether some device called.
    pub(crate) fn listened(&mut self, called: bool) {
        *self = match (called, *self) {
            (true, _) | (_, Self::Called) => Self::Called,
            (false, _) => Self::Quiet,
        };
    }

    /// There is a fetch now: whether it may pass over those devices. It may pass over them once; who does not sleep
    /// listens by reading.
    pub(crate) fn fetch(&mut self) -> bool {
        let is_quiet = *self == Self::Quiet;
        *self = if is_quiet { Self::Unknown } else { Self::Quiet };
        is_quiet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pauses::PAUSE;
    use firelane_units::Port;

    #[test]
    fn a_device_that_called_is_read_and_others_are_passed_over_once() {
        let mut devices = Devices::default();
        let mut passes = |listened: Option<bool>| {
            listened.into_iter().for_each(|called| devices.listened(called));
            devices.fetch()
        };
        assert_eq!([None, None, None].map(&mut passes), [false, true, false], "who does not listen reads");
        assert_eq!([Some(false), Some(false)].map(&mut passes), [true; 2]);
        assert_eq!([Some(true), None, None].map(&mut passes), [false, true, false]);
        let mut devices = Devices::default();
        devices.listened(true);
        devices.listened(false);
        assert!(!devices.fetch(), "a call is not forgotten before the device is read");
    }

    #[test]
    fn hysteresis_between_256_and_16() {
        let mut policy = PollPolicy::default();
        for (backlog, fetches) in
            [(0, true), (256, true), (257, false), (256, false), (17, false), (16, true), (256, true)]
        {
            assert_eq!(policy.may_fetch(backlog), fetches, "backlog {backlog}");
        }
    }

    #[test]
    fn notifications_only_after_an_empty_fetch_with_nothing_queued() {
        // Backlog before the fetch, fetched, backlog after it, what follows.
        for (before, fetched, after, rest) in [
            (0, 0, 0, Rest::AwaitNotification),
            (0, 1, 0, Rest::PollAgain),
            (0, 64, 64, Rest::PollAgain),
            (3, 0, 3, Rest::AwaitConsumers),
            (3, 0, 0, Rest::AwaitNotification),
            (300, 0, 300, Rest::AwaitConsumers),
            (300, 0, 0, Rest::AwaitConsumers),
        ] {
            let mut policy = PollPolicy::default();
            policy.may_fetch(before);
            let fetched = Fetched { before_more: fetched, polled: fetched, load: Load::default() };
            assert_eq!(
                policy.after_fetch(Instant::ZERO, fetched, after, || false),
                rest,
                "{before} {fetched:?} {after}"
            );
            assert_eq!(policy.is_polling(), rest != Rest::AwaitNotification);
        }
    }

    #[test]
    fn a_load_begins_with_many_frames_and_ends_with_a_pause_of_few() {
        let at = |micros| Instant::ZERO + Duration::from_micros(micros);
        let mut policy = PollPolicy::default();
        // When, frames of devices that are then empty, whether all devices have room, what follows.
        for (now, polled, may_pause, rest) in [
            (0, LOADED_AT - 1, true, Rest::AwaitNotification),
            (10, LOADED_AT, false, Rest::AwaitNotification),
            (20, LOADED_AT, true, Rest::Pause(at(120))),
            (60, 1, true, Rest::Pause(at(120))),
            (120, STAYS_LOADED_AT - 1, true, Rest::Pause(at(220))),
            (220, STAYS_LOADED_AT, true, Rest::Pause(at(320))),
            (400, STAYS_LOADED_AT - 1, true, Rest::AwaitNotification),
            (410, STAYS_LOADED_AT, true, Rest::AwaitNotification),
            (420, 500, true, Rest::Pause(at(520))),
            (430, 0, false, Rest::AwaitNotification),
        ] {
            let load = Load { requests: polled, ..Load::default() };
            let fetched = Fetched { before_more: 0, polled, load };
            assert_eq!(policy.after_fetch(at(now), fetched, 0, || may_pause), rest, "at {now} us");
            assert_eq!(policy.is_loaded(), matches!(rest, Rest::Pause(_)));
        }
    }

    #[test]
    fn a_gap_of_one_pause_is_no_end_where_nobody_waits() {
        let loads = [
            Load::default(),
            Load { requests: 1, ..Load::default() },
            Load { is_awaited: true, ..Load::default() },
        ];
        for (load, forgives) in loads.into_iter().zip([true, false, false]) {
            let (mut policy, mut now) = (PollPolicy::default(), Instant::ZERO);
            let mut after = |polled, load| {
                let fetched = Fetched { before_more: 0, polled, load };
                let rest = policy.after_fetch(now, fetched, 0, || true);
                let Rest::Pause(until) = rest else { return false };
                now = until;
                true
            };
            let few = STAYS_LOADED_AT - 1;
            assert!((0..100).all(|_| after(LOADED_AT, Load { bytes: 12_000, ..Load::default() })));
            assert_eq!(after(few, load), forgives, "{load:?}");
            if forgives {
                assert!(
                    after(STAYS_LOADED_AT, load) && after(few, load),
                    "it was one gap, and so is the next"
                );
                assert!(!after(few, load), "two are an end");
            }
        }
    }

    #[test]
    fn datagrams_end_pauses_and_many_are_looked_for_again() {
        let at = |micros| Instant::ZERO + Duration::from_micros(micros);
        let brought =
            |polled, pressing| Fetched { before_more: 0, polled, load: Load { pressing, ..Load::default() } };
        let mut policy = PollPolicy::default();
        for (now, polled, pressing, rest) in [
            (0, 50, 0, Rest::Pause(at(100))),
            (100, 50, 1, Rest::AwaitNotification),
            (900, 50, 0, Rest::AwaitNotification),
            (1101, 50, 0, Rest::Pause(at(1201))),
            (1150, MANY, MANY, Rest::LookAgain),
            (1150, 0, 0, Rest::AwaitNotification),
        ] {
            assert_eq!(policy.after_fetch(at(now), brought(polled, pressing), 0, || true), rest, "{now}");
            assert_eq!(policy.looks_again(), rest == Rest::LookAgain);
        }
        let rest = policy.after_fetch(at(2000), brought(50, 50), 0, || false);
        assert_eq!(rest, Rest::AwaitNotification, "somebody is promised better");
    }

    #[test]
    fn who_looks_begins_a_pause_anew_if_that_is_worth_it() {
        let at = |micros| Instant::ZERO + Duration::from_micros(micros);
        let brought =
            |polled, pressing| Fetched { before_more: 0, polled, load: Load { pressing, ..Load::default() } };
        let mut policy = PollPolicy::default();
        assert_eq!(policy.looked(at(0), brought(50, 0), true), None, "there was no pause");
        policy.after_fetch(at(0), brought(50, 0), 0, || true);
        assert_eq!(policy.looked(at(20), brought(STAYS_LOADED_AT - 1, 0), true), Some(at(100)));
        assert_eq!(policy.looked(at(50), brought(1, 0), true), Some(at(150)), "together they are a load");
        assert_eq!(policy.looked(at(60), brought(9, 0), false), None);
        assert_eq!(policy.looked(at(60), brought(9, 1), true), None, "a datagram");
        assert_eq!(policy.after_fetch(at(61), brought(0, 0), 0, || true), Rest::AwaitNotification);
    }

    #[test]
    fn frames_of_all_rounds_since_the_last_sleep_count() {
        let mut policy = PollPolicy::default();
        let round = |policy: &mut PollPolicy, before_more, polled| {
            let load = Load::default();
            policy.after_fetch(Instant::ZERO, Fetched { before_more, polled, load }, 0, || true)
        };
        assert_eq!(round(&mut policy, 5, 5), Rest::PollAgain);
        assert_eq!(round(&mut policy, 0, LOADED_AT - 5), Rest::Pause(Instant::ZERO + PAUSE));
    }

    #[test]
    fn the_end_of_a_longer_text_is_no_request() {
        let mut senders = Senders::default();
        let segment = |from, tcp_flags| {
            let ports = Some((Port(from), Port(80)));
            Headers { protocol: IpProtocol::TCP, ports, tcp_flags, ..Headers::EMPTY }
        };
        let (text, end) = (TcpFlags::ACK, TcpFlags::ACK.with(TcpFlags::PSH));
        // When, whose, what, how long, and whether it is a request.
        for (micros, from, flags, len, is_request) in [
            (0, 1, end, 100, true),
            (10, 1, text, 7000, false),
            (20, 2, end, 100, true),
            (30, 1, end, 952, false),
            (1010, 1, end, 952, false),
            (2020, 1, end, 100, true),
            (2030, 1, text, 60, false),
            (2040, 1, end, 7000, false),
            (9000, 1, end, 100, true),
        ] {
            senders.advance(Instant::ZERO + Duration::from_micros(micros));
            let mut load = Load::default();
            load.add(&mut senders, &segment(from, flags), len);
            assert_eq!(load.requests, usize::from(is_request), "{micros}");
            assert_eq!((load.bytes, load.pressing), (len, 0));
        }
    }

    #[test]
    fn consumers_call_at_the_two_thresholds_only() {
        for (before, after, calls) in
            [(300, 17, false), (17, 16, true), (300, 3, true), (16, 1, false), (1, 0, true), (0, 0, false)]
        {
            assert_eq!(PollPolicy::consumers_call(before, after), calls, "{before} to {after}");
        }
    }
}
