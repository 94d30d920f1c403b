//! Lanes of a link's own: the queues of its device are served on the CPUs that it names, and moved there while frames pass.
//!
//! An engine has lanes in reserve that know all that the others know and sleep. Each is bound to a CPU when a link names
//! it, or a netstack (`netstacks.rs`), serves all that name the same one, and rests again when none does. How a queue goes from
//! lane to lane is `path/lane/src/moving.rs`; here one follows the other, and each is waited for.

use std::collections::BTreeSet;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use firelane_lane::{Control, Lane};
use firelane_units::{LaneId, LinkId};

use crate::cpus::{Threads, listed};
use crate::engine::{Engine, Inner};
use crate::error::ChangeError;
use crate::fabric::PROGRAM_LANES_MAX;
use crate::queue::Queue;
use crate::registry::Registry;

/// How long a lane may take for one step of a move: it does so at its next turn, but its CPU may be busy.
pub(crate) const STEP_MAX: Duration = Duration::from_secs(10);
/// Between two looks at a lane.
const LOOK_EVERY: Duration = Duration::from_micros(50);

impl Engine {
    /// Lets lanes of its own on these CPUs serve the device of a VNIC, or of what a link has below: its first queue on the
    /// first of them, and round again. Without CPUs the lanes serve it that did at first. Traffic runs on; no frame is lost.
    ///
    /// # Errors
    /// The link does not exist or has no device; a CPU does not exist, is off line, or is not for this process; the engine has
    /// no lane left for it. Then everything is as before.
    pub fn set_link_cpus(&self, link: LinkId, cpus: &[usize]) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        let (port, queues) = registry.queues_of(link)?;
        let (before, dealt) = (queues.lanes.clone(), queues.dealt.clone());
        let wanted = match cpus {
            [] => dealt,
            _ => {
                let own =
                    self.0.own_lanes(cpus, &registry, false).inspect_err(|_| self.0.rest_lanes(&registry))?;
                (0..before.len()).map(|nth| own[nth % own.len()]).collect()
            }
        };
        // What is lent or set aside moves nowhere, and lanes that get queues of their own need it no more.
        self.0.keep_aside(&mut registry, port, &[])?;
        self.0.lend_to(&mut registry, port, &[])?;
        let moved = self.0.move_queues(&mut registry, port, &wanted);
        if moved.is_err() {
            // What cannot be moved back stays where the registry says.
            let _ = self.0.move_queues(&mut registry, port, &before);
        }
        let homes = self.0.rehome(&mut registry);
        moved.and(homes).and(self.0.take_back(&mut registry))
    }

    /// Whether there are lanes for these CPUs now, and those of a netstack or flow `for_programs`, in which programs have sockets.
    ///
    /// # Errors
    /// A CPU does not exist, is off line, or is not for this process; the engine has no lane left for it.
    pub fn check_lanes(&self, cpus: &[usize], for_programs: bool) -> Result<(), ChangeError> {
        let used = self.0.registry().lanes_in_use();
        choose(&self.lane_threads(), cpus, &used, for_programs).map(drop)
    }

    /// The CPUs on which the queues of a VNIC's device, or of a link's, are served, if these are some of its own, as the
    /// scheduler says; none if it is served where the kernel likes. Of a netstack's VNIC those of its netstack.
    pub fn link_cpus(&self, link: LinkId) -> Vec<usize> {
        let registry = self.0.registry();
        if let Some(netstack) = registry.user_of(link).and_then(|id| registry.netstacks.get(&id)) {
            return self.0.own_cpus(&netstack.lanes);
        }
        let port = registry.port_of(link).ok().flatten();
        port.and_then(|port| registry.queues.get(&port)).map_or(Vec::new(), |it| self.0.bound_cpus(&it.lanes))
    }

    /// How many lanes are kept for links and netstacks that are to have lanes of their own.
    pub fn reserve(&self) -> usize {
        self.0.fabric.reserve().count()
    }
}

impl Registry {
    /// The lanes that links, flows and netstacks have been given.
    pub(crate) fn lanes_in_use(&self) -> BTreeSet<LaneId> {
        let of_flows = self.flows_with_lanes().map(|(_, flow)| &flow.lanes);
        let lanes = self.queues.values().map(|it| &it.lanes).chain(of_flows);
        lanes.flatten().copied().chain(self.netstacks.values().flat_map(|it| it.all_lanes())).collect()
    }
}

impl Inner {
    /// A lane in reserve for each CPU: the one that is there, or one that rests. Only some of them are for programs' sockets; devices
    /// get the others as long as there are such.
    pub(crate) fn own_lanes(
        &self,
        cpus: &[usize],
        registry: &Registry,
        for_programs: bool,
    ) -> Result<Vec<LaneId>, ChangeError> {
        let mut threads = self.lane_threads();
        let chosen = choose(&threads, cpus, &registry.lanes_in_use(), for_programs)?;
        let (whole, first) = (threads.whole, threads.lanes.len());
        for (&nth, &cpu) in chosen.iter().zip(cpus) {
            let thread = &mut threads.own[nth];
            if thread.cpu.is_none() {
                thread.bind(Some(cpu), &whole)?;
            }
        }
        Ok(chosen.into_iter().map(|nth| LaneId((first + nth) as u16)).collect())
    }

    /// The CPUs on which these lanes may run, as the scheduler says; none if one of them was bound to none.
    pub(crate) fn bound_cpus(&self, lanes: &[LaneId]) -> Vec<usize> {
        let threads = self.lane_threads();
        let mut cpus = BTreeSet::new();
        for lane in lanes {
            let Some(thread) = threads.lanes.iter().chain(&threads.own).nth(lane.index()) else { continue };
            if thread.cpu.is_none() {
                return Vec::new();
            }
            cpus.extend(thread.affinity().iter().flat_map(listed));
        }
        cpus.into_iter().collect()
    }

    /// The lanes' threads, which know what CPUs there are now.
    pub(crate) fn lane_threads(&self) -> MutexGuard<'_, Threads> {
        let mut threads = self.lane_threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.renew(|lane| self.fabric.has_failed(lane));
        threads
    }

    /// Lets lanes in reserve that serve nobody rest, wherever the kernel likes.
    pub(crate) fn rest_lanes(&self, registry: &Registry) {
        let used = registry.lanes_in_use();
        let mut threads = self.lane_threads();
        let whole = threads.whole;
        for (lane, thread) in self.fabric.reserve().zip(&mut threads.own) {
            if thread.cpu.is_some() && !used.contains(&lane) {
                // One that stays bound sleeps there.
                let _ = thread.bind(None, &whole);
                thread.cpu = None;
            }
        }
    }

    /// Moves the queues of a port until they are in these lanes, and lets all others send through them.
    fn move_queues(
        &self,
        registry: &mut Registry,
        port: LinkId,
        wanted: &[LaneId],
    ) -> Result<(), ChangeError> {
        let Some(queues) = registry.queues.get_mut(&port) else { return Ok(()) };
        let mut missing = wanted.to_vec();
        // A queue that is where one is wanted stays; which of them is all the same.
        let mut going = Vec::new();
        for (nth, lane) in queues.lanes.iter().enumerate() {
            match missing.iter().position(|it| it == lane) {
                Some(at) => drop(missing.swap_remove(at)),
                None => going.push(nth),
            }
        }
        if going.is_empty() {
            return Ok(());
        }
        for (nth, to) in going.into_iter().zip(missing) {
            self.move_queue(port, queues.lanes[nth], to)?;
            queues.lanes[nth] = to;
        }
        self.direct(port, queues)
    }

    /// Moves one queue, and waits until it is there and the lanes that hand over to it know.
    pub(crate) fn move_queue(&self, port: LinkId, from: LaneId, to: LaneId) -> Result<(), ChangeError> {
        let count = |lane: LaneId| self.fabric.visit(lane, |_, it: &mut Lane<Queue>| it.queues_of(port));
        // All lanes say that nothing of the queue's is under way there before it goes. One that has failed never would, and nobody
        // would read the queue again.
        if self.fabric.lane_ids().any(|lane| self.fabric.has_failed(lane)) {
            return Err(ChangeError::LaneFailed);
        }
        let (there, _) = count(to).ok_or(ChangeError::LaneFailed)?;
        let (_, back) = count(from).ok_or(ChangeError::LaneFailed)?;
        self.tell(from, Control::GiveQueue(port, to))?;
        let deadline = Instant::now() + STEP_MAX;
        while count(to).ok_or(ChangeError::LaneFailed)?.0 == there {
            if count(from).ok_or(ChangeError::LaneFailed)?.1 != back {
                let text =
                    "the device cannot wake another lane; the system has no memory for it or watches no more";
                return Err(ChangeError::Device(std::io::Error::other(text)));
            }
            wait_until(deadline)?;
        }
        self.settle(port)?;
        self.follow(port, to)
    }

    /// Waits until no lane keeps frames of the port back.
    pub(crate) fn settle(&self, port: LinkId) -> Result<(), ChangeError> {
        self.await_all(Instant::now() + STEP_MAX, |it| it.is_settled(port))
    }

    /// Waits until something holds in every lane that is left.
    pub(crate) fn await_all(
        &self,
        deadline: Instant,
        holds: impl Fn(&mut Lane<Queue>) -> bool,
    ) -> Result<(), ChangeError> {
        self.fabric.lane_ids().try_for_each(|lane| match self.await_lane(lane, deadline, &holds) {
            Err(_) if self.fabric.has_failed(lane) => Ok(()),
            awaited => awaited,
        })
    }

    /// Waits until something holds in a lane.
    pub(crate) fn await_lane(
        &self,
        lane: LaneId,
        deadline: Instant,
        holds: impl Fn(&mut Lane<Queue>) -> bool,
    ) -> Result<(), ChangeError> {
        while !self.fabric.visit(lane, |_, it| holds(it)).ok_or(ChangeError::LaneFailed)? {
            wait_until(deadline)?;
        }
        Ok(())
    }

    /// What a lane's queue of a port says, if there is one.
    pub(crate) fn ask_queue<T>(
        &self,
        lane: LaneId,
        port: LinkId,
        ask: impl Fn(&Queue) -> Option<T>,
    ) -> Option<T> {
        self.fabric.visit(lane, |_, it| it.driver_of(port).and_then(&ask)).flatten()
    }
}

/// Which of the lanes in reserve are to be on these CPUs, one for each.
fn choose(
    threads: &Threads,
    cpus: &[usize],
    used: &BTreeSet<LaneId>,
    for_programs: bool,
) -> Result<Vec<usize>, ChangeError> {
    threads.check(cpus)?;
    let (first, all) = (threads.lanes.len(), threads.own.len());
    let programs = PROGRAM_LANES_MAX.saturating_sub(first).min(all);
    let others = if for_programs { all..all } else { programs..all };
    let mut chosen: Vec<usize> = Vec::new();
    for &cpu in cpus {
        // What is chosen here for a CPU before is bound to that one.
        let cpu_of = |nth: usize| {
            let before = chosen.iter().position(|&it| it == nth);
            threads.own[nth].cpu.or_else(|| before.map(|at| cpus[at]))
        };
        let is_there = |nth: usize| cpu_of(nth) == Some(cpu) && threads.own[nth].is_left();
        let is_used = |nth: usize| used.contains(&LaneId((first + nth) as u16));
        let rests = |nth: usize| cpu_of(nth).is_none() && threads.own[nth].is_left() && !is_used(nth);
        let mut there = others.clone().chain(0..programs);
        let mut resting = there.clone();
        let nth = there.find(|&nth| is_there(nth)).or_else(|| resting.find(|&nth| rests(nth)));
        chosen.push(nth.ok_or(ChangeError::NoLane(cpu))?);
    }
    Ok(chosen)
}

/// Waits a moment, unless the time is over.
fn wait_until(deadline: Instant) -> Result<(), ChangeError> {
    if Instant::now() > deadline {
        return Err(ChangeError::LaneFailed);
    }
    std::thread::sleep(LOOK_EVERY);
    Ok(())
}
