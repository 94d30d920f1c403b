//! A lane's driver queues: those that each turn visits, and those that rest.
//!
//! A lane may have a device for each of hundreds of containers, most of which do nothing. A device that was read until nothing was left,
//! wakes the lane for whatever comes after that, and has nothing to send, rests: no turn looks at it until it calls, is sent to, or is
//! changed. Visited by `drive.rs`; whoever takes a queue to change it wakes it.

use firelane_frame::Driver;

use crate::marked::Marked;
use crate::poll::Polling;
use crate::ports::{Dense, Queue, Stay};

/// All of them.
pub(crate) struct Queues<D> {
    all: Dense<Queue<D>>,
    awake: Marked,
    count: usize,
}

impl<D> Queues<D> {
    pub(crate) fn new() -> Self {
        Self { all: Dense::new(), awake: Marked::default(), count: 0 }
    }

    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<&Queue<D>> {
        self.all.get(place)
    }

    /// The queue at a place, which is woken by it.
    #[inline]
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut Queue<D>> {
        let queue = self.all.get_mut(place)?;
        self.awake.put(place);
        Some(queue)
    }

    /// Takes it out.
    pub(crate) fn remove(&mut self, place: usize) -> Option<Queue<D>> {
        let queue = self.all.remove(place)?;
        self.awake.retain(|other| other != place);
        self.count -= 1;
        Some(queue)
    }

    /// How many places there are, empty ones included.
    pub(crate) fn places(&self) -> usize {
        self.all.places()
    }

    /// All of them, those that rest included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Queue<D>> {
        self.all.iter()
    }

    /// The places of those that do not rest.
    #[inline]
    pub(crate) fn awake_places(&self) -> &[usize] {
        self.awake.places()
    }

    /// Those that do not rest.
    #[inline]
    pub(crate) fn awake(&self) -> impl Iterator<Item = (usize, &Queue<D>)> {
        self.awake.places().iter().filter_map(|&place| Some((place, self.all.get(place)?)))
    }

    /// The same, to change them.
    #[inline]
    pub(crate) fn each_awake(&mut self, mut act: impl FnMut(&mut Queue<D>)) {
        let Self { all, awake, .. } = self;
        awake.places().iter().for_each(|&place| all.get_mut(place).into_iter().for_each(&mut act));
    }

    /// How many rest.
    pub(crate) fn resting(&self) -> usize {
        self.count - self.awake.places().len()
    }

    /// Wakes one, if there is any at that place.
    pub(crate) fn wake(&mut self, place: usize) {
        let _ = self.get_mut(place);
    }

    /// Wakes all of them.
    pub(crate) fn wake_all(&mut self) {
        if self.resting() > 0 {
            (0..self.all.places()).for_each(|place| self.wake(place));
        }
    }
}

impl<D: Driver> Queues<D> {
    /// Puts a queue in the first place that is free. Its device calls by the number of that.
    pub(crate) fn add(&mut self, mut queue: Queue<D>) -> usize {
        let place = (0..).find(|&place| self.all.get(place).is_none()).expect("some number is free");
        queue.driver.call_as(place as u32);
        assert!(self.all.insert(place, queue).is_ok(), "the place is free");
        self.count += 1;
        self.awake.grow(self.all.places());
        self.awake.put(place);
        place
    }

    /// The lane is about to listen: those of which no turn need take notice rest from here on.
    pub(crate) fn let_rest(&mut self) {
        let Self { all, awake, .. } = self;
        awake.retain(|place| all.get(place).is_some_and(|queue| !queue.may_rest()));
    }
}

impl<D: Driver> Queue<D> {
    /// Whether it can be left alone until its device calls.
    fn may_rest(&self) -> bool {
        let driver = &self.driver;
        let is_silent = !driver.is_read() || driver.is_drained() && self.notifies;
        is_silent
            && self.tx.is_empty()
            && self.stay == Stay::Stays
            && self.polling == Polling::Auto
            && self.not_before.is_none()
            && driver.can_wait()
            && driver.next_event().is_none()
    }
}
