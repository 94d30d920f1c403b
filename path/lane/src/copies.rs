//! What a device's frames for many cost its neighbours: each copy is a frame of its own for who sends and receives it, so it counts as
//! one of those that the device may bring per round.
//!
//! Kept by `drive.rs` for each queue. A chain that turned out dear is paid off in the rounds that follow, in which nothing is fetched from
//! the device, and of what comes next less is fetched at a time. What it cannot bring meanwhile its sender finds in the ring, as with a
//! bridge, on which he would make the copies himself. A link's own device brings what the stations beyond it send to everybody here: it owes no
//! more than a few rounds, lest one of them keeps all the others' frames from all VNICs, and less is fetched at a time.

use crate::drive::FETCH_FRAMES;

/// How much a device owes at most that many send by.
const OWED_BY_MANY: usize = 4 * FETCH_FRAMES;

/// Who sends by a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Users {
    /// Its user, who is kept waiting.
    One,
    /// All stations beyond it.
    Many,
}

/// The account of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Copies {
    /// Copies that are not paid off.
    owed: usize,
    /// Copies of a frame in the chains of late.
    each: usize,
}

impl Copies {
    /// How many frames may be fetched in this round.
    #[inline]
    pub(crate) fn budget(&mut self) -> usize {
        let left = FETCH_FRAMES.saturating_sub(self.owed);
        self.owed = self.owed.saturating_sub(FETCH_FRAMES);
        // Mostly no frame was for many, and nothing is to be divided.
        if left == 0 || self.each == 0 { left } else { (left / (1 + self.each)).max(1) }
    }

    /// So many frames were fetched, and so many copies made of them.
    #[inline]
    pub(crate) fn charge(&mut self, users: impl FnOnce() -> Users, frames: usize, copies: usize) {
        self.each /= 2;
        if copies > 0 {
            let most = if users() == Users::Many { OWED_BY_MANY } else { usize::MAX };
            self.owed = self.owed.saturating_add(copies).min(most);
            self.each = self.each.max(copies.div_ceil(frames));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn frames_for_one_cost_nothing() {
        let mut copies = Copies::default();
        for _ in 0..10 {
            assert_eq!(copies.budget(), FETCH_FRAMES);
            copies.charge(|| Users::One, FETCH_FRAMES, 0);
        }
    }

    proptest! {
        /// Whatever a device brings, in many rounds it has brought as much as its neighbours might, but for a chain and its copies.
        #[test]
        fn copies_are_paid_off(fans in prop::collection::vec(0..400_usize, 1..200), rounds in 1..2000_usize) {
            let mut copies = Copies::default();
            let (mut brought, mut dearest) = (0, 0);
            for fan in fans.iter().cycle().take(rounds) {
                let frames = copies.budget();
                if frames > 0 {
                    copies.charge(|| Users::One, frames, frames * fan);
                    brought += frames * (1 + fan);
                    dearest = dearest.max(frames * (1 + fan));
                }
            }
            prop_assert!(brought <= rounds * 2 * FETCH_FRAMES + dearest, "{brought} in {rounds} rounds");
        }

        /// Nobody is shut out: who owes is asked again after so many rounds as that takes.
        #[test]
        fn who_owes_has_its_turn_again(frames in 1..=FETCH_FRAMES, fan in 1..1000_usize) {
            let mut copies = Copies::default();
            copies.charge(|| Users::One, frames, frames * fan);
            let rests = (0..).take_while(|_| copies.budget() == 0).count();
            prop_assert_eq!(rests, frames * fan / FETCH_FRAMES);
        }

        /// Whatever one station sends to all, the others' frames are fetched again soon.
        #[test]
        fn one_station_keeps_no_other_waiting(fans in prop::collection::vec(0..400_usize, 1..200)) {
            let (mut copies, mut rests) = (Copies::default(), 0);
            for fan in fans {
                let frames = copies.budget();
                rests = if frames == 0 { rests + 1 } else { 0 };
                prop_assert!(rests <= OWED_BY_MANY / FETCH_FRAMES);
                copies.charge(|| Users::Many, frames.max(1), frames * fan);
            }
        }
    }
}
