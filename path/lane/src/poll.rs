//! When a lane fetches frames from its drivers, and when it sleeps and is notified instead.
//!
//! Called by `turn.rs` before and after each round of fetching. The decision is backlog alone (Solaris
//! `mac_sched.c`, dynamic polling): poll while anything is queued and take no notifications meanwhile;
//! above [`STOP_ABOVE`] unconsumed frames leave them in the ring, where overload is dropped at no cost;
//! fetch again at [`RESUME_AT`]; ask for notifications only after an empty fetch with nothing queued.
//! Backlog is what was fetched and not consumed yet, which with run-to-completion means frames that wait in
//! other lanes' squeues. Frames held by a limit are no backlog.
//!
//! We differ: a lane that runs to completion is faster than its devices and finds them empty under any load, where the
//! original found what had arrived behind its back. So a lane that had [`LOADED_AT`] frames or more since it last slept is
//! under load. It does not ask for notifications, but comes back [`PAUSE`] after it began, as long as each pause brings
//! [`STAYS_LOADED_AT`] frames: one wake-up for many frames, and one for those who read them. Where a limit or a guarantee stands it
//! does not: there somebody is promised not to feel his neighbours, and a load that is another's would make him wait.

use core::time::Duration;

use firelane_units::Instant;

/// The backlog above which nothing is fetched (Solaris `mac_soft_ring_min_q_cnt`).
pub const STOP_ABOVE: usize = 256;

/// The backlog at which fetching resumes (Solaris `mac_soft_ring_poll_thres`).
pub const RESUME_AT: usize = 16;

/// From one look at devices that are found empty under load to the next. It is what a frame may wait, and of the order of what
/// a NIC waits before it interrupts.
pub const PAUSE: Duration = Duration::from_micros(100);

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
}

/// What the lane does after a round of fetching.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Fetch again: there may be more.
    PollAgain,
    /// Sleep without notifications: whoever consumes the backlog calls.
    AwaitConsumers,
    /// Sleep until a driver notifies.
    AwaitNotification,
    /// Sleep until then without notifications, and fetch again.
    Pause(Instant),
}

/// The polling policy of one lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PollPolicy {
    /// The backlog went above [`STOP_ABOVE`] and has not come down to [`RESUME_AT`].
    stopped: bool,
    /// The drivers were told to be quiet.
    polling: bool,
    /// The end of the last pause, as long as the lane is under load.
    pause: Option<Instant>,
    /// Frames that were polled since the last sleep.
    polled: usize,
}

impl PollPolicy {
    /// Whether to fetch with `backlog` frames unconsumed.
    pub fn may_fetch(&mut self, backlog: usize) -> bool {
        self.stopped = backlog > if self.stopped { RESUME_AT } else { STOP_ABOVE };
        !self.stopped
    }

    /// What comes after a fetch that left `backlog` frames unconsumed. `may_pause` says that every device has room for what
    /// arrives in a pause, and that nobody is promised better; it is asked under load alone.
    pub fn after_fetch(
        &mut self,
        now: Instant,
        fetched: Fetched,
        backlog: usize,
        may_pause: impl FnOnce() -> bool,
    ) -> Rest {
        self.polled += fetched.polled;
        let rest = match (self.stopped, fetched.before_more, backlog) {
            (true, _, _) => Rest::AwaitConsumers,
            (false, 1.., _) => Rest::PollAgain,
            (false, 0, 1..) => Rest::AwaitConsumers,
            (false, 0, 0) => self.when_empty(now, may_pause),
        };
        self.polling = rest != Rest::AwaitNotification;
        rest
    }

    fn when_empty(&mut self, now: Instant, may_pause: impl FnOnce() -> bool) -> Rest {
        let under_way = self.pause.filter(|&until| now < until);
        let is_load = self.polled >= if self.is_loaded() { STAYS_LOADED_AT } else { LOADED_AT };
        if under_way.is_none() && !is_load || !may_pause() {
            (self.pause, self.polled) = (None, 0);
            return Rest::AwaitNotification;
        }
        if let Some(until) = under_way {
            // Somebody else woke the lane.
            return Rest::Pause(until);
        }
        let until = now + PAUSE;
        (self.pause, self.polled) = (Some(until), 0);
        Rest::Pause(until)
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
            let fetched = Fetched { before_more: fetched, polled: fetched };
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
            let fetched = Fetched { before_more: 0, polled };
            assert_eq!(policy.after_fetch(at(now), fetched, 0, || may_pause), rest, "at {now} us");
            assert_eq!(policy.is_loaded(), matches!(rest, Rest::Pause(_)));
        }
    }

    #[test]
    fn frames_of_all_rounds_since_the_last_sleep_count() {
        let mut policy = PollPolicy::default();
        let round = |policy: &mut PollPolicy, before_more, polled| {
            policy.after_fetch(Instant::ZERO, Fetched { before_more, polled }, 0, || true)
        };
        assert_eq!(round(&mut policy, 5, 5), Rest::PollAgain);
        assert_eq!(round(&mut policy, 0, LOADED_AT - 5), Rest::Pause(Instant::ZERO + PAUSE));
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
