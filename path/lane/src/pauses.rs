//! How long a lane under load pauses between two looks at devices that it finds empty.
//!
//! Owned by [`PollPolicy`](crate::poll::PollPolicy), which says when there is a pause. A pause costs nobody anything only if nobody
//! waits meanwhile, which frames do not tell: a sender may be held up by a window, by his send buffer, or by an answer. Therefore
//! it is tried, as adaptive interrupt moderation of NICs does: where longer pauses bring less in the same time than the shortest, somebody
//! waits, and pauses stay short for a while. Otherwise a pause is as long as a chain takes to come.
//!
//! A thread that looks at the devices each time before it waits makes the worker's looks superfluous. How often it comes is measured,
//! and the worker comes if it is late.

use core::time::Duration;

use firelane_units::Instant;

use crate::poll::Load;

/// From one look at devices that are found empty under load to the next, at least. It is of the order of what a NIC waits before it
/// interrupts.
pub const PAUSE: Duration = Duration::from_micros(100);

/// The longest pause of a lane that nobody else looks for: some times the way to a neighbour and back, which who does not
/// wait for an answer does not feel.
pub const PAUSE_ALONE: Duration = Duration::from_micros(500);

/// The longest pause after a look of a thread that looks regularly, and so the longest that a frame may wait. It is shorter than what
/// a sender waits before it takes silence for a loss: two round trips and two ticks of its kernel's clock.
pub const PAUSE_MAX: Duration = Duration::from_millis(2);

/// How many frames a pause is to bring: a chain. Devices have room for several.
const FRAMES_AIMED_AT: u64 = 64;

/// How many bytes it may bring, so that they are still in a cache when they are read.
const BYTES_AIMED_AT: u64 = 256 << 10;

/// How long what comes is counted before it is compared: several beats of who works at one.
const TRIAL: Duration = Duration::from_millis(8);

/// From one measurement of what the shortest pauses bring to the next, and from finding again and again that somebody waits to the
/// next trial: one that fails costs a part in a hundred.
const AGAIN: Duration = Duration::from_millis(800);

/// A load that was away for longer is another one.
const SILENCE: Duration = Duration::from_millis(100);

/// How long pauses are short after a request: its sender has more.
const ASKED: Duration = Duration::from_millis(1);

/// Who has stayed away for longer is not relied on.
const AWAY: Duration = Duration::from_millis(16);

/// How long pauses are, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pauses {
    length: Duration,
    trial: Option<Trial>,
    counted: Instant,
    /// Bytes in a second with the shortest pauses, and when they were measured.
    reference: (u64, Instant),
    /// Somebody waits for an answer or a window: until then they are short, and the next time for twice as long.
    is_waited_for: Option<Instant>,
    patience: Duration,
    is_asked: Option<Instant>,
    /// How long a chain takes to come.
    chain: Duration,
    /// When a thread looked last, and the time from one look to the next, which falls slowly.
    looked: Instant,
    between: Duration,
}

/// What has come since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Trial {
    began: Instant,
    frames: u64,
    bytes: u64,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            length: PAUSE,
            trial: None,
            counted: Instant::ZERO,
            reference: (0, Instant::ZERO),
            is_waited_for: None,
            patience: TRIAL,
            is_asked: None,
            chain: Duration::ZERO,
            looked: Instant::ZERO,
            between: AWAY,
        }
    }
}

impl Pauses {
    /// A thread looks before it waits.
    pub(crate) fn look(&mut self, now: Instant) {
        let gap = now.saturating_since(self.looked).min(AWAY);
        if gap < PAUSE {
            // He has had to do with what he found, and looks once more.
            return;
        }
        self.between = gap.max(self.between * 3 / 4 + gap / 4);
        self.looked = now;
    }

    /// How long the pause is that begins now, after `frames` that were `load`. `is_relied_on`: a thread has just looked.
    pub(crate) fn begin(&mut self, now: Instant, frames: usize, load: Load, is_relied_on: bool) -> Duration {
        if frames as u64 >= 2 * FRAMES_AIMED_AT || load.bytes as u64 >= 2 * BYTES_AIMED_AT {
            self.length = (self.length / 2).max(PAUSE);
        }
        if load.requests > 0 {
            self.is_asked = Some(now + ASKED);
        }
        if !self.are_long(now, load) {
            return PAUSE;
        }
        let most = PAUSE_MAX.min(2 * self.chain);
        // He is waited for twice as long as usual: who is only late is soon there, and the worker would find him inside the lane.
        let relies = is_relied_on && self.between * 3 / 2 <= most;
        if relies { self.length.max(most.min(2 * self.between)) } else { self.length }
    }

    /// Whether pauses are longer than the shortest, after what has come since the last.
    pub(crate) fn are_long(&self, now: Instant, load: Load) -> bool {
        let is_asked = load.requests > 0 || self.is_asked.is_some_and(|until| now < until);
        !is_asked && !load.is_awaited && self.length > PAUSE
    }

    /// So many frames and bytes have come, in a pause or not: a load at a beat pauses and listens by turns.
    pub(crate) fn count(&mut self, now: Instant, frames: usize, bytes: usize) {
        if frames == 0 {
            return;
        }
        let last = core::mem::replace(&mut self.counted, now);
        if now.saturating_since(last) > SILENCE {
            (self.length, self.trial, self.chain) = (PAUSE, None, Duration::ZERO);
        }
        // What came first took a time that nobody knows.
        let Some(trial) = &mut self.trial else {
            self.trial = Some(Trial { began: now, frames: 0, bytes: 0 });
            return;
        };
        trial.frames += frames as u64;
        trial.bytes += bytes as u64;
        let taken = now.saturating_since(trial.began);
        if taken >= TRIAL {
            let Trial { frames, bytes, .. } = *trial;
            self.trial = Some(Trial { began: now, frames: 0, bytes: 0 });
            self.judge(now, frames, bytes, taken);
        }
    }

    /// So much came in that time with pauses of this length.
    fn judge(&mut self, now: Instant, frames: u64, bytes: u64, taken: Duration) {
        let micros = (taken.as_micros() as u64).max(1);
        let aimed = |aim: u64, came: u64| Duration::from_micros(aim * micros / came.max(1));
        self.chain = aimed(FRAMES_AIMED_AT, frames).min(aimed(BYTES_AIMED_AT, bytes));
        let rate = bytes * 1_000_000 / micros;
        let (reference, measured) = self.reference;
        let is_longer = self.length > PAUSE;
        if !is_longer {
            self.reference = (rate, now);
        } else if rate < reference / 4 * 3 {
            self.is_waited_for = Some(now + self.patience);
            self.patience = (2 * self.patience).min(AGAIN);
        } else {
            // What was less once may have been less by itself.
            self.patience = (self.patience / 2).max(TRIAL);
        }
        let is_short = self.is_waited_for.is_some_and(|until| now < until);
        self.length = match is_short || is_longer && now >= measured + AGAIN {
            true => PAUSE,
            false => (2 * self.length).min(self.chain).clamp(PAUSE, PAUSE_ALONE),
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Plays a load until `until`: what comes in a pause of this length. The length of each pause.
    fn play(
        pauses: &mut Pauses,
        now: &mut Instant,
        span: Duration,
        came: impl Fn(Duration) -> (usize, Load),
    ) -> Vec<Duration> {
        let until = *now + span;
        let (mut lengths, mut last) = (Vec::new(), PAUSE);
        while *now < until {
            let (frames, load) = came(last);
            pauses.count(*now, frames, load.bytes);
            last = pauses.begin(*now, frames, load, false);
            lengths.push(last);
            *now += last;
        }
        lengths
    }

    /// So many frames of so many bytes each in a millisecond, whoever reads them.
    fn steadily(frames: u64, bytes: u64) -> impl Fn(Duration) -> (usize, Load) {
        move |pause| {
            let frames = (u64::from(pause.subsec_micros()) * frames / 1000) as usize;
            (frames, Load { bytes: frames * bytes as usize, ..Load::default() })
        }
    }

    #[test]
    fn a_pause_is_as_long_as_a_chain_takes_to_come() {
        for (frames, bytes, micros) in [
            (30, 1500, 500),
            (100, 60, 500),
            (200, 60, 320),
            (500, 60, 128),
            (3000, 60, 100),
            (100, 8000, 327),
            (100, 65_000, 100),
        ] {
            let (mut pauses, mut now) = (Pauses::default(), Instant::ZERO);
            let lengths = play(&mut pauses, &mut now, Duration::from_millis(200), steadily(frames, bytes));
            let last = lengths.last().expect("there were some").as_micros();
            assert!(last.abs_diff(micros) <= micros / 5, "{frames} of {bytes}: {last} and not {micros}");
        }
    }

    #[test]
    fn where_longer_pauses_bring_less_they_stay_short_nearly_all_of_the_time() {
        let (mut pauses, mut now) = (Pauses::default(), Instant::ZERO);
        // Ten who each send 16 KB, and more when they have been answered.
        let held_up = |_| (10, Load { bytes: 160_000, ..Load::default() });
        let lengths = play(&mut pauses, &mut now, Duration::from_secs(10), held_up);
        let long: Duration = lengths.iter().filter(|&&length| length > PAUSE).sum();
        assert!(long > Duration::ZERO && long < Duration::from_millis(200), "{long:?} of ten seconds");
    }

    #[test]
    fn who_begins_to_wait_later_is_found_out_too() {
        let (mut pauses, mut now) = (Pauses::default(), Instant::ZERO);
        let span = Duration::from_millis(100);
        let lengths = play(&mut pauses, &mut now, span, steadily(40, 1500));
        assert_eq!(lengths.last(), Some(&PAUSE_ALONE));
        let lengths =
            play(&mut pauses, &mut now, AGAIN + span, |_| (5, Load { bytes: 7500, ..Load::default() }));
        assert_eq!(lengths.last(), Some(&PAUSE));
    }

    #[test]
    fn a_load_that_was_away_is_another_one_and_a_beat_is_not() {
        for (gap, length) in [(5, PAUSE_ALONE), (101, PAUSE)] {
            let (mut pauses, mut now) = (Pauses::default(), Instant::ZERO);
            play(&mut pauses, &mut now, Duration::from_millis(100), steadily(40, 1500));
            now += Duration::from_millis(gap);
            // As much as would have come without the gap.
            pauses.count(now, 200, 300_000);
            assert_eq!(pauses.begin(now, 10, Load::default(), false), length);
        }
    }

    #[test]
    fn after_requests_and_where_acknowledgements_are_awaited_pauses_are_short() {
        let (mut pauses, mut now) = (Pauses::default(), Instant::ZERO);
        play(&mut pauses, &mut now, Duration::from_millis(100), steadily(40, 1500));
        let plain = Load { bytes: 40_000, ..Load::default() };
        let asking = Load { requests: 1, ..plain };
        let awaited = Load { is_awaited: true, ..plain };
        for (micros, load, length) in [
            (0, plain, PAUSE_ALONE),
            (500, awaited, PAUSE),
            (600, plain, PAUSE_ALONE),
            (1000, asking, PAUSE),
            (1999, plain, PAUSE),
            (2000, plain, PAUSE_ALONE),
        ] {
            let at = now + Duration::from_micros(micros);
            pauses.count(at, 10, load.bytes);
            assert_eq!(pauses.begin(at, 10, load, false), length, "at {micros} us");
        }
    }

    #[test]
    fn the_worker_relies_on_who_looks_regularly() {
        // How long after his last look the thread looks each time, and when the worker comes at last.
        let comes_after = |gaps: &[u64]| {
            let (mut pauses, mut now) = (Pauses::default(), Instant::ZERO + Duration::from_secs(1));
            let mut pause = PAUSE;
            for gap in gaps.iter().cycle().take(1000) {
                now += Duration::from_micros(*gap);
                pauses.look(now);
                let (frames, bytes) = (*gap as usize / 25, *gap as usize * 40);
                pauses.count(now, frames, bytes);
                pause = pauses.begin(now, frames, Load { bytes, ..Load::default() }, true);
            }
            pause.as_micros()
        };
        assert_eq!(comes_after(&[400]), 800);
        assert_eq!(comes_after(&[1000]), 2000);
        assert_eq!(comes_after(&[1200]), 2000, "that is the longest pause");
        assert_eq!(comes_after(&[950, 50]), 2000, "he looks again when he has found something");
        assert_eq!(comes_after(&[1500]), 500, "he comes too late");
        assert_eq!(comes_after(&[100, 100, 100, 1500]), 500, "he has stayed away lately");
        assert_eq!(comes_after(&[100]), 500, "he looks all the time");
    }

    proptest! {
        /// Whatever comes and whoever looks, a pause is neither shorter nor longer than is promised.
        #[test]
        fn a_pause_is_within_its_bounds(
            rounds in proptest::collection::vec((0u64..200_000, 0usize..2000, 0usize..9000, 0usize..3, any::<[bool; 2]>()), 1..300),
        ) {
            let (mut pauses, mut now) = (Pauses::default(), Instant::ZERO);
            for (gap, frames, bytes, requests, [is_awaited, looks]) in rounds {
                now += Duration::from_micros(gap);
                if looks {
                    pauses.look(now);
                }
                let load = Load { bytes: frames * bytes, requests, is_awaited, ..Load::default() };
                pauses.count(now, frames, load.bytes);
                let pause = pauses.begin(now, frames, load, looks);
                let longest = if looks { PAUSE_MAX } else { PAUSE_ALONE };
                prop_assert!((PAUSE..=longest).contains(&pause), "{:?}", pause);
                prop_assert!(requests == 0 && !is_awaited || pause == PAUSE);
            }
        }
    }
}
