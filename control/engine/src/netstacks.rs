//! Netstacks: made, tuned and removed, and in which lanes their connections are.
//!
//! The connections of a netstack spread over the lanes that all share, or over lanes of its own: one for each CPU that it names,
//! from those in reserve, always some in which programs can have sockets (`own_lanes.rs`). A connection stays in its lane, so lanes of its own are given when a netstack is
//! made; to another CPU they move as threads do, with all that they carry.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use firelane_classify::Steering;
use firelane_ip::IidKind;
use firelane_lane::{Control, NetstackConfig as LaneNetstack};
use firelane_tcp::TcpConfig;
use firelane_units::{LaneId, NetstackId};

use crate::cpus::Threads;
use crate::engine::{Engine, Inner};
use crate::error::ChangeError;
use crate::fabric::PROGRAM_LANES_MAX;
use crate::netstack_config::NetstackConfig;
use crate::registry::{Netstack, Registry};

/// How often a lane is asked whether what was removed has ended there, and how many times: ten seconds, when a million connections take
/// less than one.
const ENDS_LOOK: Duration = Duration::from_millis(1);
const ENDS_AWAITED: usize = 10_000;

impl Engine {
    /// Makes a netstack whose connections spread over the lanes that all share. Its addresses are used at once.
    ///
    /// # Errors
    /// All lanes have failed.
    pub fn add_netstack(&self, tcp: TcpConfig) -> Result<NetstackId, ChangeError> {
        self.add_netstack_with(&NetstackConfig { tcp, ..NetstackConfig::default() })
    }

    /// Makes a netstack with tunables of the caller's. If its addresses are tested for duplicates before they are
    /// used, a notice says how each test ended.
    ///
    /// # Errors
    /// All lanes have failed.
    pub fn add_netstack_with(&self, config: &NetstackConfig) -> Result<NetstackId, ChangeError> {
        self.add_netstack_on(config, &[])
    }

    /// The same with lanes of its own on these CPUs, over which its connections spread; without CPUs over the lanes that all
    /// share. What others do in theirs takes no turn of a lane that is its own.
    ///
    /// # Errors
    /// A CPU does not exist, is off line, or is not for this process; the engine has no lane left for it; all lanes have failed.
    pub fn add_netstack_on(
        &self,
        config: &NetstackConfig,
        cpus: &[usize],
    ) -> Result<NetstackId, ChangeError> {
        let mut registry = self.0.registry();
        let lanes = match cpus {
            // In others a program's words to its sockets would reach nobody.
            [] => self.0.fabric.common_lanes().take(PROGRAM_LANES_MAX).collect(),
            _ => self.0.netstack_lanes(cpus, &registry).inspect_err(|_| self.0.rest_lanes(&registry))?,
        };
        let id = registry.mint_netstack().ok_or(ChangeError::ManyNetstacks)?;
        let mut base = LaneNetstack::new(id);
        base.steering = Steering::even(&lanes);
        base.dad = config.dad;
        base.link_local = Some(IidKind::Stable);
        base.group_reports = true;
        base.stable_secret = self.0.stable_secret;
        let told = config.for_lanes(base);
        self.0.tell_all(|_| Control::AddNetstack(told.clone()))?;
        let config = Arc::new(config.clone());
        registry.netstacks.insert(id, Netstack::new(lanes, config));
        self.0.lend(&mut registry)?;
        Ok(id)
    }

    /// Moves the lanes of a netstack's own to these CPUs, one to each, with all connections and no byte lost.
    ///
    /// # Errors
    /// The netstack does not exist, or has not as many lanes of its own; one of them serves others, too; a CPU does not exist,
    /// is off line, or is not for this process. Then all stay where they are.
    pub fn set_netstack_cpus(&self, id: NetstackId, cpus: &[usize]) -> Result<(), ChangeError> {
        let registry = self.0.registry();
        let mut threads = self.lane_threads();
        let moves = self.0.moves(&registry, &threads, id, cpus)?;
        let whole = threads.whole;
        for &(nth, cpu, _) in &moves {
            if let Err(error) = threads.own[nth].bind(Some(cpu), &whole) {
                for &(nth, _, before) in &moves {
                    // Where it was a moment ago it may be again.
                    let _ = threads.own[nth].bind(before, &whole);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether [`set_netstack_cpus`](Self::set_netstack_cpus) would move the lanes of a netstack's own to these CPUs now.
    ///
    /// # Errors
    /// As there.
    pub fn check_netstack_cpus(&self, id: NetstackId, cpus: &[usize]) -> Result<(), ChangeError> {
        self.0.moves(&self.0.registry(), &self.lane_threads(), id, cpus).map(drop)
    }

    /// The CPUs on which a netstack's own lanes may run, as the scheduler says; none if its connections are in the lanes that all share.
    pub fn netstack_cpus(&self, id: NetstackId) -> Vec<usize> {
        let registry = self.0.registry();
        registry.netstacks.get(&id).map_or(Vec::new(), |it| self.0.own_cpus(&it.lanes))
    }

    /// Removes a netstack; its connections are aborted. It is nobody's at once, and others are changed meanwhile; when this returns,
    /// programs and peers have been told, by lanes that run: who takes the VNICs away next takes no RST from them.
    ///
    /// # Errors
    /// It does not exist.
    pub fn remove_netstack(&self, id: NetstackId) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        // What lanes share of it ends behind them, and not in one of them.
        let _netstack = registry.netstacks.remove(&id).ok_or(ChangeError::NoNetstack(id))?;
        let removed = self.0.tell_all(|_| Control::RemoveNetstack(id));
        registry.give_back_netstack(id);
        let removed = removed.and(self.0.take_back(&mut registry));
        drop(registry);
        self.0.await_ends();
        self.0.fabric.programs.netstack_removed();
        removed
    }

    /// Changes a netstack's tunables. Its shards follow at once and running connections within a few turns of their
    /// lanes; what two ends agreed on when they connected stays, and so do the sizes of sockets that are open.
    ///
    /// # Errors
    /// It does not exist.
    pub fn tune(&self, id: NetstackId, config: &NetstackConfig) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        registry.netstack_mut(id)?.config = Arc::new(config.clone());
        let told = config.for_lanes(LaneNetstack::new(id));
        self.0.tell_all(|_| Control::Tune(told.clone()))?;
        // A router's flows may have lanes less often.
        self.0.steer(&mut registry, id)
    }
}

/// A lane in reserve that moves: which, to which CPU, and from which.
type Move = (usize, usize, Option<usize>);

impl Inner {
    /// Which lanes of a netstack's own move, if its lanes are to be on these CPUs.
    fn moves(
        &self,
        registry: &Registry,
        threads: &Threads,
        id: NetstackId,
        cpus: &[usize],
    ) -> Result<Vec<Move>, ChangeError> {
        let lanes = &registry.netstacks.get(&id).ok_or(ChangeError::NoNetstack(id))?.lanes;
        let (common, used) = (self.fabric.lane_count(), registry.lanes_beside(id));
        let own: Vec<_> = lanes.iter().filter_map(|lane| lane.index().checked_sub(common)).collect();
        if own.len() != cpus.len() {
            return Err(ChangeError::FixedLanes { own: own.len(), asked: cpus.len() });
        }
        threads.check(cpus)?;
        let moves = own.into_iter().zip(cpus).map(|(nth, &cpu)| (nth, cpu, threads.own[nth].cpu));
        let moves: Vec<Move> = moves.filter(|&(_, cpu, before)| before != Some(cpu)).collect();
        let shared = moves.iter().find(|(nth, ..)| used.contains(&LaneId((common + nth) as u16)));
        match shared {
            Some((_, _, before)) => Err(ChangeError::SharedLane(before.unwrap_or_default())),
            None => Ok(moves),
        }
    }

    /// Waits until connections that were removed have ended in all lanes, some of them in each turn. A lane that has no time for turns, or
    /// no thread, is not waited for without end: what was removed is nobody's in any case.
    pub(crate) fn await_ends(&self) {
        let have_threads = self.have_threads();
        for lane in self.fabric.lane_ids() {
            for _ in 0..ENDS_AWAITED {
                if self.fabric.visit(lane, |_, lane| lane.is_ending()) != Some(true) {
                    break;
                }
                match self.fabric.is_worker_of(lane) {
                    true => self.fabric.give_way(lane),
                    false if have_threads => std::thread::sleep(ENDS_LOOK),
                    false => return,
                }
            }
        }
    }

    /// Lanes for a netstack or a flow, in which programs can have sockets. A CPU that is named twice has no second one.
    pub(crate) fn netstack_lanes(
        &self,
        cpus: &[usize],
        registry: &Registry,
    ) -> Result<Vec<LaneId>, ChangeError> {
        let lanes = self.own_lanes(cpus, registry, true)?;
        match (0..lanes.len()).find(|&nth| lanes[..nth].contains(&lanes[nth])) {
            Some(nth) => Err(ChangeError::NoLane(cpus[nth])),
            None => Ok(lanes),
        }
    }

    /// The CPUs of a netstack's lanes, if they are its own.
    pub(crate) fn own_cpus(&self, lanes: &[LaneId]) -> Vec<usize> {
        let is_common = |lane: &LaneId| lane.index() < self.fabric.lane_count();
        if lanes.iter().any(is_common) { Vec::new() } else { self.bound_cpus(lanes) }
    }
}

impl Registry {
    pub(crate) fn netstack_mut(&mut self, id: NetstackId) -> Result<&mut Netstack, ChangeError> {
        self.netstacks.get_mut(&id).ok_or(ChangeError::NoNetstack(id))
    }

    /// The lanes that somebody has but this netstack.
    fn lanes_beside(&self, id: NetstackId) -> BTreeSet<LaneId> {
        let others = self.netstacks.iter().filter(|&(&other, _)| other != id).map(|(_, it)| it.all_lanes());
        let lanes = self.queues.values().map(|it| &it.lanes).chain(self.flows.values().map(|it| &it.lanes));
        lanes.flatten().copied().chain(others.flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use firelane_driver_memory::{WireConfig, wire};
    use firelane_units::Mtu;

    use super::*;
    use crate::cpus::listed;
    use crate::engine::EngineConfig;

    fn lanes_of(engine: &Engine, id: NetstackId) -> Vec<usize> {
        engine.0.registry().netstacks[&id].lanes.iter().map(|lane| lane.index()).collect()
    }

    #[test]
    fn netstacks_spread_over_lanes_in_which_programs_have_sockets() {
        let lanes = PROGRAM_LANES_MAX + 2;
        let engine =
            Engine::start(&EngineConfig { lanes, threads: false, ..EngineConfig::default() }).unwrap();
        let id = engine.add_netstack(TcpConfig::default()).unwrap();
        assert_eq!(lanes_of(&engine, id), (0..PROGRAM_LANES_MAX).collect::<Vec<_>>());
    }

    #[test]
    fn a_device_leaves_netstacks_the_lanes_in_which_programs_have_sockets() {
        let lanes = PROGRAM_LANES_MAX - 1;
        let engine = Engine::start(&EngineConfig { lanes, reserve: 2, ..EngineConfig::default() }).unwrap();
        let link = engine.add_link(Mtu::ETHERNET).unwrap();
        let (queue, _other) = wire(WireConfig::default());
        engine.add_uplink(link, vec![queue.into()]).unwrap();
        let cpus = listed(&engine.lane_threads().whole);
        let (cpu, devices) = (cpus[0], cpus[cpus.len() - 1]);
        engine.set_link_cpus(link, &[devices]).unwrap();
        let id = engine.add_netstack_on(&NetstackConfig::default(), &[cpu]).unwrap();
        assert_eq!(lanes_of(&engine, id), [lanes]);
        assert_eq!((engine.link_cpus(link), engine.netstack_cpus(id)), (vec![devices], vec![cpu]));
        engine.set_link_cpus(link, &[]).unwrap();
        assert_eq!(lanes_of(&engine, id), [lanes]);
    }
}
