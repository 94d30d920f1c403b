//! CPUs, rings and interfaces that links ask for and may not get.
//!
//! Called by `host.rs`: a plan refuses beforehand what would be refused when it is carried out; a link whose CPUs or rings
//! are gone at the daemon's start begins without them, and gets its CPUs when they are there, as does a flow; a netstack begins in the lanes that
//! all share then, and stays there; and where a CPU went off line since, that is told, as is that its lanes came back to it.

use std::collections::{BTreeMap, BTreeSet};

use firelane::{CpuNews, Engine};
use firelane_api::{ApiError, Status};
use firelane_model::{Cpus, Daemon, Flow, Link, LinkKind, LinkName, LinkRings, Model, Rings, Vnic};
use firelane_plan::{Action, Effect, Step};
use firelane_units::{LaneId, LinkId};

use crate::history::accounting::{self, Absent};
use crate::memif;
use crate::nic;
use crate::rebuild;
use crate::refusal::{refused, refused_to};
use crate::works::{Done, Properties, Works};

/// Why a lane is elsewhere, and for how long.
const UNTIL: &str = "which is off line or not for this process, or somebody moved them; they return \
     within seconds of when they may";

/// Refuses a step that asks for CPUs, rings or interfaces that there are not.
pub(crate) fn check(works: &Works, step: &Step, present: &Model) -> Done {
    let are_usable = |cpus: &Cpus| works.engine.check_cpus(&cpus.numbers().collect::<Vec<_>>());
    let (link, from, to): (_, Option<Properties<'_>>, Properties<'_>) = match &step.action {
        Action::CreateNetstack(_, cpus, _) | Action::SetCpus(_, _, cpus) => {
            return are_usable(cpus).map_err(refused);
        }
        Action::AddFlow(_, flow) => return are_usable(&flow.cpus).map_err(refused),
        Action::SetFlow(_, from, to) if from.cpus != to.cpus => {
            return are_usable(&to.cpus).map_err(refused);
        }
        Action::SetDaemon(from, to) => {
            if from.accounting != to.accounting {
                accounting::check(&to.accounting, Absent::IsNotMade)?;
            }
            return if from.cpus == to.cpus { Ok(()) } else { are_usable(&to.cpus).map_err(refused) };
        }
        Action::CreateLink(_, link) => {
            has_interface(works, link)?;
            (None, None, link.into())
        }
        Action::CreateVnic(_, vnic) => {
            if let Some(memif) = vnic.memif() {
                has_rings(vnic.rings, &memif.socket, memif::RINGS)?;
            }
            (None, None, vnic.into())
        }
        Action::SetLink(name, from, to) => {
            if from.mtu != to.mtu {
                has_interface(works, to)?;
            }
            (id_of(works, name), Some(from.into()), to.into())
        }
        Action::SetVnic(name, from, to) => (id_of(works, name), Some(from.into()), to.into()),
        _ => return Ok(()),
    };
    let told = |error| refused_to(error, to);
    if from.is_none_or(|from| from.cpus != to.cpus) {
        are_usable(to.cpus).map_err(told)?;
    }
    // A device that is made again gets as many rings as are asked for.
    let stays = || rebuild::instead_of(step, present).is_none();
    match (link, from) {
        (Some(link), Some(from)) if from.rings != to.rings && stays() => {
            works.engine.check_link_rings(link, to.rings).map_err(told)
        }
        _ => Ok(()),
    }
}

/// Whether the interface that a link leads out by is there, carries its packets, and has its rings.
fn has_interface(works: &Works, link: &Link) -> Done {
    match &link.kind {
        LinkKind::Nic(nic) => {
            nic::check(nic, link.mtu)?;
            has_rings(link.rings, nic.ifname.as_str(), nic::rings_of(nic, works.kernel.queues()))
        }
        LinkKind::Memif(memif) => has_rings(link.rings, &memif.socket, memif::RINGS),
        LinkKind::Tap(_) | LinkKind::Memory => Ok(()),
    }
}

/// Refuses rings that a device made anew has not, unlike a TAP, which has as many as are asked for.
fn has_rings(asked: LinkRings, device: &str, all: u16) -> Done {
    for (property, asked) in [("rxrings", asked.rx), ("txrings", asked.tx)] {
        if let Some(Rings::Count(asked)) = asked
            && asked > all
        {
            let allowed = format!("so many rings has {device} here: {all}");
            return Err(ApiError::new(Status::HwRings, property, asked, allowed));
        }
    }
    Ok(())
}

/// A link or netstack that was refused its CPUs or rings, without these: whoever is reached by it finds it, be it slower.
pub(crate) fn without(step: &Step, why: &ApiError) -> Option<Step> {
    let (cpus, rings) = match why.status {
        Status::CpuOffline | Status::CpuUnknown => (true, false),
        Status::TooMany if why.field == "cpus" => (true, false),
        Status::HwRings => (false, true),
        _ => return None,
    };
    let reduce = |its: (&mut Cpus, &mut LinkRings)| {
        if cpus {
            *its.0 = Cpus::NONE;
        }
        if rings {
            *its.1 = LinkRings::UNSAID;
        }
    };
    let action = match &step.action {
        Action::CreateNetstack(name, its, tunables) => (cpus && !its.is_empty())
            .then(|| Action::CreateNetstack(name.clone(), Cpus::NONE, tunables.clone())),
        Action::AddFlow(name, flow) => (cpus && !flow.cpus.is_empty())
            .then(|| Action::AddFlow(name.clone(), Flow { cpus: Cpus::NONE, ..flow.clone() })),
        Action::CreateLink(name, link) => {
            let mut rest = link.clone();
            reduce((&mut rest.cpus, &mut rest.rings));
            (rest != *link).then(|| Action::CreateLink(name.clone(), rest))
        }
        Action::CreateVnic(name, vnic) => {
            let mut rest = vnic.clone();
            reduce((&mut rest.cpus, &mut rest.rings));
            (rest != *vnic).then(|| Action::CreateVnic(name.clone(), rest))
        }
        _ => None,
    };
    action.map(|action| Step { action, ..step.clone() })
}

/// A step of the start, which was refused its CPUs, or the file of its records, as it can be carried out once they are there: the rest of
/// it runs.
pub(crate) fn again(works: &Works, step: &Step, present: &Model) -> Option<Step> {
    let are_there = |cpus: &Cpus| {
        !cpus.is_empty() && works.engine.check_cpus(&cpus.numbers().collect::<Vec<_>>()).is_ok()
    };
    let action = match &step.action {
        Action::CreateLink(name, wanted) if are_there(&wanted.cpus) => {
            let is = present.links.get(name).filter(|is| is.cpus.is_empty())?;
            let to = Link { cpus: wanted.cpus.clone(), ..is.clone() };
            Action::SetLink(name.clone(), is.clone(), to)
        }
        Action::CreateVnic(name, wanted) if are_there(&wanted.cpus) => {
            let is = present.vnics.get(name).filter(|is| is.cpus.is_empty())?;
            let to = Vnic { cpus: wanted.cpus.clone(), ..is.clone() };
            Action::SetVnic(name.clone(), is.clone(), to)
        }
        Action::AddFlow(name, wanted) if are_there(&wanted.cpus) => {
            let is = present.flows.get(name).filter(|is| is.cpus.is_empty())?;
            let to = Flow { cpus: wanted.cpus.clone(), ..is.clone() };
            Action::SetFlow(name.clone(), is.clone(), to)
        }
        Action::SetDaemon(from, to) if from.cpus != to.cpus && are_there(&to.cpus) => step.action.clone(),
        // Its folder may be that of a disk which is mounted later.
        Action::SetDaemon(from, to)
            if from.accounting != to.accounting
                && accounting::check(&to.accounting, Absent::IsNotMade).is_ok() =>
        {
            let is = present.daemon.clone();
            let to = Daemon { accounting: to.accounting.clone(), ..is.clone() };
            Action::SetDaemon(is, to)
        }
        _ => return None,
    };
    Some(Step { action, effect: Effect::Live })
}

/// How often lanes have come back to CPUs that they had lost.
#[derive(Debug, Default)]
pub(crate) struct Returns(BTreeMap<LaneId, (usize, u64)>);

impl Returns {
    /// Puts lanes back where they shall run, if they may be there; what is new is logged.
    pub(crate) fn look(&mut self, engine: &Engine) {
        for news in engine.return_lanes() {
            match news {
                CpuNews::Away { lane, cpu, on } => {
                    let on = if on.is_empty() { "any other when it wakes".to_owned() } else { listed(&on) };
                    tracing::warn!(
                        "cpus: lane {lane} has lost CPU {cpu}, which is off line or not for this process any more; it runs on \
                         {on} until it may return"
                    );
                }
                CpuNews::Back { lane, cpu } => {
                    tracing::info!("cpus: lane {lane} is back on CPU {cpu}");
                    let (its, times) = self.0.entry(lane).or_default();
                    (*its, *times) = (cpu, *times + 1);
                }
            }
        }
    }

    /// A sentence for each lane that came back.
    pub(crate) fn told(&self, common: usize) -> Vec<String> {
        let told = |(lane, (cpu, times)): (&LaneId, &(usize, u64))| {
            let whose = if lane.index() < common { "" } else { ", a link's, netstack's or flow's own," };
            let times = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
            format!(
                "lane {lane}{whose} had to leave its CPU and came back, {times}; the last time to CPU {cpu}"
            )
        };
        self.0.iter().map(told).collect()
    }
}

/// Lanes that do not run on the CPU that they have: it went off line since, or somebody has moved them.
pub(crate) fn lanes_elsewhere(works: &Works, model: &Model) -> Vec<String> {
    let wanted: Vec<usize> = model.daemon.cpus.numbers().collect();
    let lanes = works.engine.lane_cpus().into_iter().zip(wanted.iter().cycle()).enumerate();
    let elsewhere = lanes.filter(|(_, (cpus, wanted))| cpus.as_slice() != core::slice::from_ref(*wanted));
    elsewhere
        .map(|(lane, (cpus, wanted))| {
            let cpus = listed(&cpus);
            format!("cpus: lane {lane} may run on {cpus}, not on {wanted} alone, {UNTIL}")
        })
        .collect()
}

/// The same of links and netstacks whose own lanes do not run where they shall.
pub(crate) fn own_elsewhere(works: &Works, model: &Model) -> Vec<String> {
    let links = model.links.iter().map(|(name, it)| (name, &it.cpus));
    let vnics = model.vnics.iter().map(|(name, it)| (name, &it.cpus));
    let links = links.chain(vnics).filter_map(|(name, cpus)| {
        Some((name.to_string(), cpus, works.engine.link_cpus(id_of(works, name)?)))
    });
    let netstacks = model.netstacks.iter().filter_map(|(name, it)| {
        let is = works.engine.netstack_cpus(works.netstack(name).ok()?);
        Some((format!("netstack {name}"), &it.cpus, is))
    });
    let flows = model.flows.iter().filter_map(|(name, it)| {
        let is = works.engine.flow_cpus(works.flow(name).ok()?);
        Some((format!("flow {name}"), &it.cpus, is))
    });
    let mut told = Vec::new();
    for (name, wanted, is) in links.chain(netstacks).chain(flows).filter(|(_, cpus, _)| !cpus.is_empty()) {
        let wanted: BTreeSet<usize> = wanted.numbers().collect();
        let is: BTreeSet<usize> = is.into_iter().collect();
        if is.is_empty() || !is.is_subset(&wanted) {
            let place = if is.is_empty() { "any CPU".to_owned() } else { listed(&is) };
            let wanted = listed(&wanted);
            told.push(format!("cpus: lanes of {name} may run on {place}, not on {wanted} alone, {UNTIL}"));
        }
    }
    told
}

fn listed<'a>(cpus: impl IntoIterator<Item = &'a usize>) -> String {
    cpus.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn id_of(works: &Works, name: &LinkName) -> Option<LinkId> {
    let upper = works.vnics.get(name).map(|it| it.id);
    upper.or_else(|| works.links.get(name).map(|it| it.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_plan::plan;

    #[test]
    fn returns_are_counted_lane_by_lane() {
        let mut returns = Returns::default();
        assert!(returns.told(2).is_empty());
        returns.0.insert(LaneId(1), (3, 1));
        returns.0.insert(LaneId(2), (0, 12));
        assert_eq!(
            returns.told(2),
            [
                "lane 1 had to leave its CPU and came back, once; the last time to CPU 3",
                "lane 2, a link's, netstack's or flow's own, had to leave its CPU and came back, 12 times; the last time to CPU 0"
            ]
        );
    }

    #[test]
    fn a_link_is_left_without_what_it_was_refused_and_nothing_else() {
        let text =
            "[etherstub.s0]\n[vnic.a0]\nover = 's0'\ntap = {}\ncpus = '3'\nrxrings = '4'\nmaxbw = '5M'\n";
        let wanted = Model::from_toml("test", text).unwrap();
        let steps = plan(&wanted, &Model::default());
        let of = |step: &Step| match &step.action {
            Action::CreateVnic(_, vnic) => Some(vnic.clone()),
            _ => None,
        };
        let step = steps.iter().find(|step| of(step).is_some()).unwrap();
        let is = of(step).unwrap();
        let error = |status, field: &str| ApiError::new(status, field, "", "");
        for (why, cpus, rings) in [
            (error(Status::CpuOffline, "cpus"), true, false),
            (error(Status::CpuUnknown, "cpus"), true, false),
            (error(Status::TooMany, "cpus"), true, false),
            (error(Status::HwRings, "rxrings"), false, true),
        ] {
            let rest = without(step, &why).unwrap();
            let left = of(&rest).unwrap();
            assert_eq!((left.cpus.is_empty(), left.rings == LinkRings::UNSAID), (cpus, rings), "{why:?}");
            let (mut left, whole) = (left, is.clone());
            (left.cpus, left.rings) = (whole.cpus.clone(), whole.rings);
            assert_eq!(left, whole);
            assert!(without(&rest, &why).is_none(), "there is nothing more to leave out");
        }
        for why in [error(Status::Io, ""), error(Status::TooMany, "allowed-ips")] {
            assert!(without(step, &why).is_none(), "{why:?}");
        }
    }
}
