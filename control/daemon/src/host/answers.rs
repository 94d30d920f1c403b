//! What the interface is answered: each question of [`Api`] put to who knows, and each change to the host.
//!
//! Part of the host (`host.rs`), whose lock each answer takes. `server.rs` asks.

use std::time::Duration;

use firelane::{Engine, IpTables};
use firelane_api::{
    AccountingInfo, AddrInfo, AddrProperty, Api, ApiError, CaptureRequest, Change, ChangeRequest,
    DestinationInfo, DropInfo, EtherstubInfo, FilterInfo, Finding, FindingState, FlowInfo, FlowStats,
    FpmInfo, GroupInfo, IfInfo, IptunInfo, LeaseAction, LinkInfo, LinkStats, MemoryInfo, NatInfo, NatSession,
    NeighbourInfo, NetstackInfo, ObjectProps, PlanReply, PlanStep, PoolsInfo, ProgramReport, Property,
    ProtocolCounters, ProtocolProperty, Replacing, RouteInfo, SocketPage, Status, StatusInfo, StepInfo,
    Store, TraceReport, TraceRequest, Usage, UsageRequest, UsageSample, VnicInfo, Which, WireInfo, WireStats,
    device_is_there, forget_ended, informed_object, leased_object, made_permanent,
};
use firelane_model::{Instance, Lanes, Model};
use firelane_plan::{Effect, Step, apply_to_model, plan};
use firelane_units::NetstackId;

use super::Host;
use crate::explain::{Known, Process};
use crate::programs::Programs;
use crate::{
    calendar, capture, counted, doctor, filter, history, memory, nat, netns, nic, rebuild, sockets, stats,
    trace, ways,
};

impl Api for Host {
    fn status(&self) -> Result<StatusInfo, ApiError> {
        let mut inner = self.lock();
        inner.note_addresses();
        let model = &inner.store.active;
        let snapshot = inner.works.engine.snapshot();
        let (failed, noted): (Vec<_>, Vec<_>) =
            inner.works.vacancies(model).into_iter().partition(|it| it.state == FindingState::Fail);
        let line = |Finding { check, detail, .. }: Finding| format!("{check}: {detail}");
        Ok(StatusInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instance: self.instance.clone(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            lanes: u16::try_from(inner.works.engine.lanes()).unwrap_or(u16::MAX),
            links: model.link_names().count(),
            flows: model.flows.len(),
            netstacks: model.netstacks.len(),
            connections: snapshot.connections,
            configuration: inner.store.mark(),
            notes: inner
                .works
                .detours()
                .into_iter()
                .chain(note_of_lies(snapshot.counters.shm_lies))
                .chain(noted.into_iter().map(line))
                .collect(),
            problems: {
                let mut problems = inner.problems(self.lanes_given, snapshot.lanes.len());
                let faults = inner.interface_faults();
                problems.extend(faults.into_iter().map(|(name, fault)| format!("link {name}: {fault}")));
                problems.extend(failed.into_iter().map(line));
                problems
            },
        })
    }

    fn model(&self, which: Which) -> Result<Model, ApiError> {
        Ok(self.lock().store.model(which).clone())
    }

    fn plan(&self, wanted: &Model) -> Result<PlanReply, ApiError> {
        let inner = self.lock();
        let mut next = inner.store.replaced(wanted, false)?;
        next.settle(&inner.store.active, &|_, link| nic::factory_of_link(link))?;
        let present = &inner.as_said_by(&next.active);
        let steps = inner.checked(&next.active, present, Duration::ZERO)?;
        let mut reply = shown(&steps, present);
        reply.steps.extend(kept_from_now_on(&inner.store, &next));
        Ok(reply)
    }

    fn apply(&self, wanted: &Model, how: Replacing) -> Result<PlanReply, ApiError> {
        let mut inner = self.lock();
        let mut next = inner.store.replaced_as(wanted, how)?;
        next.settle(&inner.store.active, &|_, link| nic::factory_of_link(link))?;
        let (present, way) = inner.way_to(&next)?;
        if !how.temporary {
            inner.make_up()?;
        }
        let before = inner.store.active.clone();
        let mut steps = inner.remake(true);
        let kept = if how.temporary { Vec::new() } else { kept_from_now_on(&inner.store, &next) };
        steps.extend(match steps.is_empty() {
            true => inner.go(present, way, next)?,
            // What was made again, or could not be, may have changed the way.
            false => inner.move_to(next)?,
        });
        let mut reply = shown(&steps, &before);
        reply.steps.extend(kept);
        let is_accounting = before.daemon.accounting != inner.store.active.daemon.accounting;
        drop(inner);
        if is_accounting {
            self.follow_accounting()?;
        }
        Ok(reply)
    }

    fn change(&self, request: &ChangeRequest) -> Result<(), ApiError> {
        let mut inner = self.lock();
        let now = calendar::seconds();
        if matches!(request.change, Change::ChangePools(..)) {
            // Lanes have forgotten them already, so that no step is needed.
            forget_ended(&mut inner.store.active, now);
            forget_ended(&mut inner.store.persistent, now);
        }
        if let Change::DeletePhys(name) = &request.change
            && inner.works.has_device(name)
        {
            return Err(device_is_there(name));
        }
        if let Change::RenameLink(from, to) = &request.change
            && inner.succeeds(from, to)
        {
            return inner.succeed(from, to);
        }
        let mut next = inner.store.changed(&request.clone().at(now))?;
        next.settle(&inner.store.active, &|_, link| nic::factory_of_link(link))?;
        match &request.change {
            Change::RenameLink(from, to) => inner.rename_link(next, from, to),
            // An interface brings the CPUs that its VNIC was given.
            Change::SetLinkProps(..)
            | Change::ModifyVnic(..)
            | Change::CreateIf(..)
            | Change::CreateAddr(..)
            | Change::EnableIf(_)
            // A netstack goes with its last interface.
            | Change::DeleteIf(_)
            | Change::DisableIf(_) => {
                // What cannot be in any case is told first.
                let (present, way) = inner.way_to(&next)?;
                inner.spare_sockets(&next)?;
                inner.go(present, way, next).map(drop)
            }
            Change::SetAccounting(_) => {
                inner.move_to(next)?;
                // Its last records are in the file when it has ended, and from its beginning on all is accounted of.
                drop(inner);
                self.follow_accounting()
            }
            _ => inner.move_to(next).map(drop),
        }
    }

    fn tell_client(&self, name: &str, action: LeaseAction) -> Result<(), ApiError> {
        let mut inner = self.lock();
        match action {
            LeaseAction::Refresh => inner.works.clients.refresh(&leased_object(&inner.store.active, name)?),
            LeaseAction::Inform => {
                let asker = informed_object(&inner.store.active, name)?;
                inner.works.inform(&asker)
            }
            LeaseAction::Release => {
                let name = leased_object(&inner.store.active, name)?;
                let wait = inner.works.clients.release(&name)?;
                drop(inner);
                wait();
                Ok(())
            }
        }
    }

    fn links(&self, which: Which) -> Result<Vec<LinkInfo>, ApiError> {
        Ok(self.view(which, |it| it.links()))
    }

    fn vnics(&self, which: Which) -> Result<Vec<VnicInfo>, ApiError> {
        Ok(self.view(which, |it| it.vnics()))
    }

    fn iptuns(&self, which: Which) -> Result<Vec<IptunInfo>, ApiError> {
        Ok(self.view(which, |it| it.iptuns()))
    }

    fn etherstubs(&self, which: Which) -> Result<Vec<EtherstubInfo>, ApiError> {
        Ok(self.view(which, |it| it.etherstubs()))
    }

    fn wires(&self, which: Which) -> Result<Vec<WireInfo>, ApiError> {
        Ok(self.view(which, |it| it.wires()))
    }

    fn flows(&self, which: Which) -> Result<Vec<FlowInfo>, ApiError> {
        Ok(self.view(which, |it| it.flows()))
    }

    fn addrs(&self, which: Which) -> Result<Vec<AddrInfo>, ApiError> {
        Ok(self.view(which, |it| it.addrs()))
    }

    fn ifs(&self, which: Which) -> Result<Vec<IfInfo>, ApiError> {
        Ok(self.view(which, |it| it.ifs()))
    }

    fn netstacks(&self, which: Which) -> Result<Vec<NetstackInfo>, ApiError> {
        Ok(self.view(which, |it| it.netstacks()))
    }

    fn link_props(&self, name: &str, which: Which) -> Result<Vec<Property>, ApiError> {
        self.view(which, |it| it.link_props(name))
    }

    fn flow_props(&self, name: &str, which: Which) -> Result<Vec<Property>, ApiError> {
        self.view(which, |it| it.flow_props(name))
    }

    fn all_link_props(&self, which: Which) -> Result<Vec<ObjectProps>, ApiError> {
        Ok(self.view(which, |it| it.all_link_props()))
    }

    fn all_flow_props(&self, which: Which) -> Result<Vec<ObjectProps>, ApiError> {
        Ok(self.view(which, |it| it.all_flow_props()))
    }

    fn netstack_props(&self, name: &str) -> Result<Vec<ProtocolProperty>, ApiError> {
        self.view(Which::Active, |it| it.netstack_props(name))
    }

    fn if_props(&self, name: &str) -> Result<Vec<ProtocolProperty>, ApiError> {
        self.view(Which::Active, |it| it.if_props(name))
    }

    fn addr_props(&self, name: &str) -> Result<Vec<AddrProperty>, ApiError> {
        self.view(Which::Active, |it| it.addr_props(name))
    }

    fn routes(&self, name: &str) -> Result<Vec<RouteInfo>, ApiError> {
        let fpm = self.lock().works.fpms.of(name);
        let whence = |destination| fpm.as_ref()?.whence(destination);
        self.ways(name).map(|(tables, names)| ways::routes(&tables, &names, whence))
    }

    fn neighbours(&self, name: &str) -> Result<Vec<NeighbourInfo>, ApiError> {
        self.ways(name).map(|(tables, names)| ways::neighbours(&tables, &names))
    }

    fn destinations(&self, name: &str) -> Result<Vec<DestinationInfo>, ApiError> {
        self.ways(name).map(|(tables, _)| ways::destinations(&tables))
    }

    fn memory(&self) -> Result<MemoryInfo, ApiError> {
        let engine = self.lock().works.engine.clone();
        Ok(memory::info(&engine.memory()))
    }

    fn counters(&self, name: &str) -> Result<Vec<ProtocolCounters>, ApiError> {
        let (engine, netstack, tunables) = {
            let inner = self.lock();
            let absent = || ApiError::new(Status::NotFound, "netstack", name, "");
            let netstack = inner.works.netstacks.get(name).copied().ok_or_else(absent)?;
            let wanted = inner.store.active.netstacks.get(name).ok_or_else(absent)?;
            (inner.works.engine.clone(), netstack, wanted.tunables.clone())
        };
        let counted = engine.netstack_counters(netstack).map_err(crate::refusal::refused)?;
        Ok(counted::protocols(&counted, &tunables))
    }

    fn fpm(&self) -> Result<Vec<FpmInfo>, ApiError> {
        Ok(self.lock().works.fpms.infos())
    }

    fn groups(&self, name: &str) -> Result<Vec<GroupInfo>, ApiError> {
        let (engine, netstack, names) = self.place_of(name)?;
        let known = engine.memberships(netstack).map_err(crate::refusal::refused)?;
        Ok(counted::groups(&known, &names))
    }

    fn filter(&self, name: &str) -> Result<FilterInfo, ApiError> {
        // Under the lock, so that counts are those of the rules.
        let inner = self.lock();
        let absent = || ApiError::new(Status::NotFound, "netstack", name, "");
        let netstack = inner.works.netstacks.get(name).copied().ok_or_else(absent)?;
        let rules = &inner.store.active.netstacks.get(name).ok_or_else(absent)?.filter;
        let counted = inner.works.engine.filter_counts(netstack).map_err(crate::refusal::refused)?;
        Ok(filter::info(rules, &counted))
    }

    fn pools(&self, name: &str) -> Result<PoolsInfo, ApiError> {
        let inner = self.lock();
        let absent = || ApiError::new(Status::NotFound, "netstack", name, "");
        let netstack = inner.works.netstacks.get(name).copied().ok_or_else(absent)?;
        let pools = &inner.store.active.netstacks.get(name).ok_or_else(absent)?.pools;
        filter::pools(&inner.works.engine, netstack, pools)
    }

    fn nat(&self, name: &str) -> Result<NatInfo, ApiError> {
        // Under the lock, so that counts are those of the rules.
        let inner = self.lock();
        let absent = || ApiError::new(Status::NotFound, "netstack", name, "");
        let netstack = inner.works.netstacks.get(name).copied().ok_or_else(absent)?;
        let said = inner.store.active.netstacks.get(name).ok_or_else(absent)?;
        nat::info(&inner.works.engine, netstack, said)
    }

    fn nat_sessions(&self, name: &str) -> Result<Vec<NatSession>, ApiError> {
        let inner = self.lock();
        let absent = || ApiError::new(Status::NotFound, "netstack", name, "");
        let netstack = inner.works.netstacks.get(name).copied().ok_or_else(absent)?;
        let rules = &inner.store.active.netstacks.get(name).ok_or_else(absent)?.nat;
        nat::sessions(&inner.works.engine, netstack, rules)
    }

    fn flush_nat(&self, name: &str) -> Result<u64, ApiError> {
        let (engine, netstack, _) = self.place_of(name)?;
        engine.flush_nat(netstack).map_err(crate::refusal::refused)
    }

    fn sockets(&self, netstack: Option<&str>, after: Option<&str>) -> Result<SocketPage, ApiError> {
        let (engine, netstacks) = {
            let inner = self.lock();
            (inner.works.engine.clone(), inner.works.netstacks.clone())
        };
        let programs = self.programs().as_ref().map(Programs::sockets).unwrap_or_default();
        sockets::page(&engine, &netstacks, netstack, after, &programs)
    }

    fn program(&self, pid: u32) -> Result<ProgramReport, ApiError> {
        let process = Process::look(pid)?;
        let (session, sockets) = self
            .programs()
            .as_ref()
            .map_or((None, Vec::new()), |programs| programs.explain(pid, &process.inodes()));
        let inner = self.lock();
        let (works, model) = (&inner.works, &inner.store.active);
        let named = |id| works.netstacks.iter().find(|(_, it)| **it == id).map(|(name, _)| name);
        let instance: Instance = self.instance.parse().unwrap_or_default();
        let beside = model.vnics.iter().filter_map(|(name, vnic)| {
            let namespace = vnic.tap()?.namespace.as_ref()?;
            Some((name.clone(), netns::path_of(&instance.namespace(namespace))))
        });
        let inherited = || sockets.iter().find(|it| !it.is_ahead).map(|it| it.socket.netstack);
        let netstack = session.or_else(inherited).and_then(named).cloned();
        let vnics = works.vnics.iter().map(|(name, it)| (it.id, name.to_string()));
        let links = works.links.iter().map(|(name, it)| (it.id, name.to_string())).chain(vnics).collect();
        let (has_session, beside) = (session.is_some(), beside.collect());
        let known = Known { has_session, netstack, sockets, flows: &works.flows, links, beside };
        Ok(process.report(&known))
    }

    fn link_stats(&self) -> Result<Vec<LinkStats>, ApiError> {
        let inner = self.lock();
        Ok(stats::links(&inner.works, &inner.store.active))
    }

    fn flow_stats(&self) -> Result<Vec<FlowStats>, ApiError> {
        let inner = self.lock();
        Ok(stats::flows(&inner.works, &inner.store.active))
    }

    fn wire_stats(&self) -> Result<Vec<WireStats>, ApiError> {
        Ok(self.lock().works.wire_stats())
    }

    fn usage(&self, request: &UsageRequest) -> Result<Vec<Usage>, ApiError> {
        self.history().as_ref().ok_or_else(history::absent)?.usage(request)
    }

    fn usage_samples(&self, name: &str, request: &UsageRequest) -> Result<Vec<UsageSample>, ApiError> {
        self.history().as_ref().ok_or_else(history::absent)?.samples(name, request)
    }

    fn capture(&self, wanted: &CaptureRequest, sink: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), ApiError> {
        let running = capture::Running::begin(&self.lock().works, wanted)?;
        running.run(sink);
        Ok(())
    }

    fn trace(&self, wanted: &TraceRequest, is_awaited: &dyn Fn() -> bool) -> Result<TraceReport, ApiError> {
        let running = {
            let inner = self.lock();
            trace::Running::begin(&inner.works, &inner.store.active, wanted)?
        };
        Ok(running.finish(is_awaited))
    }

    fn steps(&self, seconds: u32, is_awaited: &dyn Fn() -> bool) -> Result<Vec<StepInfo>, ApiError> {
        let engine = self.lock().works.engine.clone();
        trace::steps(&engine, Duration::from_secs(seconds.into()), is_awaited)
    }

    fn accounting(&self) -> Result<AccountingInfo, ApiError> {
        let inner = self.lock();
        let accounting = inner.store.active.daemon.accounting.clone();
        Ok(AccountingInfo { accounting, fault: inner.accounting_fault.clone() })
    }

    fn drops(&self) -> Result<Vec<DropInfo>, ApiError> {
        Ok(stats::drops(&self.lock().works))
    }

    fn doctor(&self) -> Result<Vec<Finding>, ApiError> {
        let inner = self.lock();
        let lanes = inner.works.engine.snapshot().lanes.len();
        let common = lanes.min(inner.works.engine.lanes());
        let returned = inner.returns.told(inner.works.engine.lanes());
        let problems = inner.problems(self.lanes_given, lanes);
        let are_chosen = !self.lanes_given && inner.store.active.daemon.lanes == Lanes::Auto;
        let common = doctor::Lanes { running: common, are_chosen };
        let mut findings =
            doctor::examine(&inner.works, common, &returned, inner.interface_faults(), &problems);
        findings.extend(inner.works.vacancies(&inner.store.active));
        Ok(findings)
    }
}

impl Host {
    /// What the lanes of the netstack `name` know, and what its links are called.
    fn ways(&self, name: &str) -> Result<(IpTables, ways::Names), ApiError> {
        let (engine, netstack, names) = self.place_of(name)?;
        let tables = engine.ip_tables(netstack);
        let failed = |error: firelane::ChangeError| ApiError::new(Status::Failed, "", "", error.to_string());
        Ok((tables.map_err(failed)?, names))
    }

    /// Where the netstack `name` runs, and what its links are called.
    fn place_of(&self, name: &str) -> Result<(Engine, NetstackId, ways::Names), ApiError> {
        let inner = self.lock();
        let works = &inner.works;
        let netstack = works.netstacks.get(name).copied();
        let netstack = netstack.ok_or_else(|| ApiError::new(Status::NotFound, "netstack", name, ""))?;
        let names = works.vnics.iter().map(|(name, it)| (it.id, (name.to_string(), it.mac))).collect();
        Ok((works.engine.clone(), netstack, names))
    }
}

/// Programs that spoilt their shared memory.
fn note_of_lies(lies: u64) -> Option<String> {
    let text = "connections of programs were reset: what the programs said of their rings could not be";
    (lies > 0).then(|| format!("shm_lies: {lies} {text}"))
}

/// The steps as they are felt: one that stands for several, which end what it names, says so.
fn shown(steps: &[Step], before: &Model) -> PlanReply {
    let mut present = before.clone();
    let shown = |step: &Step| {
        let rebuilt = rebuild::instead_of(step, &present);
        let effect = if rebuilt.is_some() { Effect::Recreate } else { step.effect };
        apply_to_model(&mut present, step);
        let mut lines = step.lines();
        lines.extend(rebuilt.iter().flat_map(|steps| rebuild::remade(steps)));
        PlanStep { effect: effect.word().to_owned(), step: step.to_string(), lines }
    };
    PlanReply { steps: steps.iter().map(shown).collect() }
}

/// What is in force until the next start, and is kept with `next`.
fn kept_from_now_on(store: &Store, next: &Store) -> Vec<PlanStep> {
    let steps = plan(&next.persistent, &store.kept_beside(next));
    let said =
        |it: &Step| PlanStep { effect: it.effect.word().to_owned(), step: it.to_string(), lines: it.lines() };
    made_permanent(steps.iter().map(said).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use firelane::UdpSocket;
    use firelane_api::{Api, Which};
    use firelane_model::{Accounting, Tracked};

    use super::super::partings::tests::{TEMPORARY, host};
    use crate::folder::tests::Scratch;
    use crate::history::History;

    #[test]
    fn who_applies_a_configuration_that_ends_accounting_is_told_what_was_lost() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let host = Arc::new(host(&folder, &runtime));
        host.set_history(History::start(folder.path(), &host).unwrap());
        let disk = folder.path().join("disk");
        std::fs::create_dir(&disk).unwrap();
        let without = host.model(Which::Active).unwrap();
        let mut with = without.clone();
        let file = disk.join("net.log").to_str().expect("a plain path").to_owned();
        with.daemon.accounting = Accounting { active: true, file: Some(file.clone()), net: Tracked::BASIC };
        host.apply(&with, TEMPORARY).unwrap();

        let stack = |name: &str| {
            let inner = host.lock();
            inner.works.engine.stack(inner.works.netstacks[name]).unwrap()
        };
        let receiver = UdpSocket::bind(&stack("far"), ("10.0.0.2", 4000)).unwrap();
        let sender = UdpSocket::bind(&stack("near"), ("10.0.0.1", 4000)).unwrap();
        sender.send_to(&[0; 1000], ("10.0.0.2", 4000)).unwrap();
        receiver.recv_from(&mut [0; 2000]).unwrap();

        std::fs::remove_dir_all(&disk).unwrap();
        let told = host.apply(&without, TEMPORARY).unwrap_err();
        assert_eq!((told.field.as_str(), told.value.as_str()), ("file", file.as_str()));
        assert!(
            told.allowed.contains("changed all the same") && told.allowed.ends_with("are lost"),
            "{told}"
        );
        assert_eq!(host.accounting().unwrap().accounting, without.daemon.accounting);
        let problems = host.status().unwrap().problems;
        assert!(problems.iter().any(|it| it.ends_with("seconds are lost")), "{problems:?}");
        host.apply(&without, TEMPORARY).expect("it is told once");
        host.shut_down();
    }
}
