//! When a lane fetches frames from its drivers, and when it sleeps and is notified instead.
//!
//! Called by `turn.rs` before and after each round of fetching. The decision is backlog alone (Solaris
//! `mac_sched.c`, dynamic polling): poll while anything is queued and take no notifications meanwhile;
//! above [`STOP_ABOVE`] unconsumed frames leave them in the ring, where overload is dropped at no cost;
//! fetch again at [`RESUME_AT`]; ask for notifications only after an empty fetch with nothing queued.
//! Backlog is what was fetched and not consumed yet, which with run-to-completion means frames that wait in
//! other lanes' squeues. Frames held by a limit are no backlog.

/// The backlog above which nothing is fetched (Solaris `mac_soft_ring_min_q_cnt`).
pub const STOP_ABOVE: usize = 256;

/// The backlog at which fetching resumes (Solaris `mac_soft_ring_poll_thres`).
pub const RESUME_AT: usize = 16;

/// What the lane does after a round of fetching.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Fetch again: there may be more.
    PollAgain,
    /// Sleep without notifications: whoever consumes the backlog calls.
    AwaitConsumers,
    /// Sleep until a driver notifies.
    AwaitNotification,
}

/// The polling policy of one lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PollPolicy {
    /// The backlog went above [`STOP_ABOVE`] and has not come down to [`RESUME_AT`].
    stopped: bool,
    /// The drivers were told to be quiet.
    polling: bool,
}

impl PollPolicy {
    /// Whether to fetch with `backlog` frames unconsumed.
    pub fn may_fetch(&mut self, backlog: usize) -> bool {
        self.stopped = backlog > if self.stopped { RESUME_AT } else { STOP_ABOVE };
        !self.stopped
    }

    /// What comes after a fetch that left `backlog` frames unconsumed. `fetched` counts the frames after which there may
    /// be more: none from devices that are known to be empty.
    pub fn after_fetch(&mut self, fetched: usize, backlog: usize) -> Rest {
        let rest = match (self.stopped, fetched, backlog) {
            (true, _, _) => Rest::AwaitConsumers,
            (false, 1.., _) => Rest::PollAgain,
            (false, 0, 1..) => Rest::AwaitConsumers,
            (false, 0, 0) => Rest::AwaitNotification,
        };
        self.polling = rest != Rest::AwaitNotification;
        rest
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
            assert_eq!(policy.after_fetch(fetched, after), rest, "{before} {fetched} {after}");
            assert_eq!(policy.is_polling(), rest != Rest::AwaitNotification);
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
