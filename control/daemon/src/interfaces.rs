//! Interfaces that others may delete, rename, switch off or change while links and VNICs use them: what is wrong with them,
//! and how what uses them goes on.
//!
//! Called by `host.rs`: once a second, for status and doctor, and before a file is applied. A link whose interface is there again gets it
//! in place of the one that went, with all that is above it as it was; a TAP that was deleted is made again where it was. Everything else
//! is told, and waits for whoever did it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use firelane::{Queue, WireConfig, wire};
use firelane_api::Status;
use firelane_model::{Flow, FlowName, Link, LinkKind, LinkName, Mac, Model, Tap};
use firelane_units::{BitRate, LinkId, Mtu, Protection};

use crate::kernel::{Device, Shall, TAP_SPEED, Wanted};
use crate::memif;
use crate::nic;
use crate::refusal::refused;
use crate::stats;
use crate::works::{Below, Done, Lower, Properties, Works};

/// Between two trials to give a link what it was refused: each may wait for a second, and everybody waits with it.
pub(crate) const AGAIN: Duration = Duration::from_secs(30);

/// What was told of interfaces, so that each thing is logged once.
#[derive(Debug, Default)]
pub(crate) struct Told {
    faults: BTreeMap<LinkName, String>,
    /// Why links do not get the interfaces that are there again, and when that was.
    refused: BTreeMap<LinkName, (String, Instant)>,
    pub(crate) memifs: memif::Told,
}

impl Told {
    /// Whether it is time to give a link the interface that is there again.
    pub(crate) fn may_try(&self, name: &LinkName) -> bool {
        self.refused.get(name).is_none_or(|(_, at)| at.elapsed() >= AGAIN)
    }

    /// Whether the link got it.
    pub(crate) fn note(&mut self, name: LinkName, tried: Done) {
        match tried {
            Ok(()) => drop(self.refused.remove(&name)),
            Err(error) => drop(self.refused.insert(name, (error.to_string(), Instant::now()))),
        }
    }

    /// What is wrong, with why it was not mended.
    pub(crate) fn whole(&self, mut faults: BTreeMap<LinkName, String>) -> BTreeMap<LinkName, String> {
        for (name, fault) in &mut faults {
            if let Some((why, _)) = self.refused.get(name) {
                *fault = format!("{fault}; it was refused: {why}");
            }
        }
        faults
    }

    /// Logs what is new.
    pub(crate) fn tell(&mut self, faults: BTreeMap<LinkName, String>) {
        self.refused.retain(|name, _| faults.contains_key(name));
        let faults = self.whole(faults);
        for (name, fault) in faults.iter().filter(|(name, fault)| self.faults.get(*name) != Some(*fault)) {
            tracing::warn!("link {name}: {fault}");
        }
        for name in self.faults.keys().filter(|name| !faults.contains_key(*name)) {
            tracing::info!("link {name}: nothing is wrong with its interface any more");
        }
        self.faults = faults;
    }
}

/// What users see as the speed of a link with this limit, in Mb/s: what is less than one is shown as one.
fn speed_of(limit: Option<BitRate>) -> u32 {
    limit.map_or(TAP_SPEED, |limit| {
        // More is "unknown" to those that read it.
        u32::try_from(limit.bps().div_ceil(1_000_000)).unwrap_or(u32::MAX).min(i32::MAX.cast_unsigned())
    })
}

/// What the user of a VNIC, or of a link, sees as its speed: its own limit, or that of what is below it.
fn limit_of(model: &Model, name: &LinkName) -> Option<BitRate> {
    let Some(vnic) = model.vnics.get(name) else { return model.links.get(name)?.maxbw };
    let below = || {
        let over = vnic.over.link()?;
        let link = model.links.get(over).and_then(|it| it.maxbw);
        link.or_else(|| model.etherstubs.get(over)?.maxbw)
    };
    vnic.maxbw.or_else(below)
}

/// Each property that queues have, and what new ones begin with in its place; all else is as it is, because it is the link's.
fn each_of_queues(whole: Properties<'_>) -> [(Properties<'_>, Properties<'_>); 4] {
    let Properties { cpus, rings, polling, looks_on, .. } = Properties::UNLIMITED;
    let but = [
        Properties { cpus, ..whole },
        Properties { rings, ..whole },
        Properties { polling, ..whole },
        Properties { looks_on, ..whole },
    ];
    but.map(|begins| (begins, whole))
}

/// What is wrong.
impl Works {
    /// Why interfaces do not carry what links and VNICs have for them.
    pub(crate) fn interface_faults(&self, model: &Model) -> BTreeMap<LinkName, String> {
        let nics = self.links.iter().filter_map(|(name, lower)| {
            let link = model.links.get(name)?;
            Some((name.clone(), lower.nic.as_ref()?.fault(link.mtu)?))
        });
        // What is for the kernel behind a link is not for one address alone.
        let links = self.links.iter().filter_map(|(name, lower)| {
            let mtu = model.links.get(name)?.mtu;
            let shall = Shall { mac: None, is_filtered: false, heeds_senders: false, mtu };
            Some((name.clone(), lower.device.as_ref()?.fault(shall)?))
        });
        let vnics = self.vnics.iter().filter_map(|(name, upper)| {
            let vnic = model.vnics.get(name)?;
            let mtu = vnic.mtu.or_else(|| model.mtu_below(vnic))?;
            let shall = Shall {
                mac: Some(upper.mac),
                is_filtered: vnic.promisc_filtered.is_on(),
                heeds_senders: vnic.guard.kinds.has(Protection::MacNospoof),
                mtu,
            };
            Some((name.clone(), upper.device.as_ref()?.fault(shall)?))
        });
        nics.chain(links).chain(self.bare(model)).chain(vnics).collect()
    }

    /// Links to which nothing leads, because what was made for them could not be made anew.
    fn bare(&self, model: &Model) -> impl Iterator<Item = (LinkName, String)> {
        self.links.iter().filter(|(_, lower)| lower.is_bare).filter_map(|(name, _)| {
            let what = match &model.links.get(name)?.kind {
                LinkKind::Tap(ifname) => ifname.to_string(),
                LinkKind::Memif(memif) => format!("memif {}", memif.socket),
                LinkKind::Nic(_) | LinkKind::Memory => return None,
            };
            Some((
                name.clone(),
                format!("{what} is gone and could not be made again; it is as soon as it can be"),
            ))
        })
    }

    /// How many frames users of interfaces have sent in vain ([`Device::overflowed`]), by the ports that they send by.
    pub(crate) fn overflowed(&self) -> impl Iterator<Item = (LinkId, u64)> {
        let links = self.links.values().filter_map(|it| Some((it.uplink?, it.device.as_ref()?)));
        let vnics = self.vnics.values().filter_map(|it| Some((it.id, it.device.as_ref()?)));
        links.chain(vnics).map(|(id, device)| (id, device.overflowed()))
    }

    /// Lets the user of a VNIC or link, and of the VNICs over it, see its limit as the speed of his interface.
    pub(crate) fn show_speed(&self, model: &Model, name: &LinkName) {
        let show = |link: &LinkName, device: &Option<Device>| {
            let Some(device) = device else { return };
            if let Err(error) = device.show_speed(speed_of(limit_of(model, link))) {
                // Its limit holds all the same.
                tracing::debug!("link {link}: its interface shows another speed: {error}");
            }
        };
        if let Some(vnic) = self.vnics.get(name) {
            return show(name, &vnic.device);
        }
        if let Some(lower) = self.links.get(name) {
            show(name, &lower.device);
        }
        let above = |it: &LinkName| model.vnics.get(it).is_some_and(|vnic| vnic.over.is(name.as_str()));
        for (vnic, upper) in self.vnics.iter().filter(|(vnic, _)| above(vnic)) {
            show(vnic, &upper.device);
        }
    }
}

/// How it goes on.
impl Works {
    /// Links whose interface went, and may be had again.
    pub(crate) fn returned(&self) -> Vec<LinkName> {
        let is_back = |lower: &Lower| match &lower.nic {
            Some(nic) => nic.is_back(),
            None => lower.is_bare || lower.device.as_ref().is_some_and(Device::is_gone),
        };
        self.links.iter().filter(|(_, lower)| is_back(lower)).map(|(name, _)| name.clone()).collect()
    }

    /// Whoever is behind a link that has got its carrier again is asked for anew.
    pub(crate) fn rejoin(&mut self) {
        let joined = self.links.values_mut().filter_map(|lower| {
            let nic = lower.nic.as_mut()?;
            nic.has_rejoined().then_some(lower.id)
        });
        for link in joined.collect::<Vec<_>>() {
            self.rejoin_above(link);
        }
    }

    /// The netstacks of the VNICs over a link ask for everybody anew, and their leases are asked for.
    fn rejoin_above(&self, link: LinkId) {
        for (name, vnic) in self.vnics.iter().filter(|(_, vnic)| vnic.over == Some(link)) {
            if let Err(error) = self.engine.rejoin(vnic.id) {
                tracing::warn!("vnic {name}: {error}");
            }
            self.clients.verify(vnic.id);
        }
    }

    /// VNICs whose interface was deleted and may be made again; with `anywhere` also those whose namespace went.
    pub(crate) fn bereft(&self, anywhere: bool) -> Vec<LinkName> {
        let may = |device: &Device| if device.has_place() { device.is_gone() } else { anywhere };
        let bereft = self.vnics.iter().filter(|(_, it)| it.device.as_ref().is_some_and(may));
        bereft.map(|(name, _)| name.clone()).collect()
    }

    /// Lets links go of interfaces that are gone. In another namespace the program of a link's would take all frames of theirs.
    pub(crate) fn let_go_of_lost(&mut self, model: &Model) {
        let is_lost = |lower: &Lower| lower.nic.as_ref().is_some_and(nic::Attached::is_lost);
        let lost = self.links.iter().filter(|(_, lower)| is_lost(lower)).map(|(name, _)| name.clone());
        for name in lost.collect::<Vec<_>>() {
            if let Err(error) = self.let_go(&name, model) {
                tracing::warn!("link {name}: {error}");
            }
        }
    }

    /// Gives a link an interface in place of the one that went, which it lets go first: an interface has one program.
    pub(crate) fn reattach(&mut self, name: &LinkName, model: &Model) -> Done {
        self.reattach_as(name, model.links.get(name).ok_or(Status::LinkInvalid)?, model)
    }

    /// Gives a link packets of another size: its interface is attached again with room for them, and the netstacks above are told.
    pub(crate) fn resize(&mut self, name: &LinkName, (from, mtu): (&Link, Mtu), model: &Model) -> Done {
        if from.mtu == mtu {
            return Ok(());
        }
        let resized = Link { mtu, ..from.clone() };
        if let LinkKind::Nic(it) = &from.kind {
            // Before anything pauses for what cannot be.
            nic::check(it, mtu)?;
        }
        if from.kind != LinkKind::Memory
            && let Err(error) = self.reattach_as(name, &resized, model)
        {
            if let Err(again) = self.reattach_as(name, from, model) {
                tracing::warn!("link {name}: {again}");
            }
            return Err(error);
        }
        self.tell_mtu(name, from.mtu, mtu)
    }

    /// Tells netstacks how large packets over a link may be.
    pub(crate) fn tell_mtu(&self, name: &LinkName, from: Mtu, to: Mtu) -> Done {
        let id = self.links.get(name).ok_or(Status::LinkInvalid)?.id;
        if from == to { Ok(()) } else { self.engine.set_link_mtu(id, to).map_err(refused) }
    }

    fn reattach_as(&mut self, name: &LinkName, link: &Link, model: &Model) -> Done {
        self.let_go(name, model)?;
        let lower = self.links.get_mut(name).ok_or(Status::LinkInvalid)?;
        lower.is_bare = true;
        // The interface that the daemon has made gives its name to the next one.
        if let Some(own) = lower.device.take() {
            self.kernel.close(&own);
        }
        let Below { device, memif, nic, queues } = self.below(name, link, model)?;
        self.lead(name, queues, model)?;
        let lower = self.links.get_mut(name).ok_or(Status::LinkInvalid)?;
        (lower.device, lower.memif, lower.nic, lower.is_bare) = (device, memif, nic, false);
        let id = lower.id;
        self.resettle(name, model);
        self.rejoin_above(id);
        self.show_speed(model, name);
        Ok(())
    }

    /// Lets a link lead nowhere, with all that is said of it, until it has an interface again.
    fn let_go(&mut self, name: &LinkName, model: &Model) -> Done {
        let is_let_go = |lower: &Lower| lower.nic.as_ref().is_some_and(nic::Attached::is_let_go);
        if self.links.get(name).is_some_and(is_let_go) {
            return Ok(());
        }
        let (nowhere, _) = wire(WireConfig::default());
        self.lead(name, vec![nowhere.into()], model)?;
        let lower = self.links.get_mut(name).ok_or(Status::LinkInvalid)?;
        lower.nic.iter_mut().for_each(nic::Attached::let_go);
        Ok(())
    }

    /// Gives a link these queues in place of those that it has. What passed those it has carried all the same, and so have its flows.
    fn lead(&mut self, name: &LinkName, queues: Vec<Queue>, model: &Model) -> Done {
        let (carried, by_flows) = stats::carried_by(self, name, model);
        let lower = self.links.get_mut(name).ok_or(Status::LinkInvalid)?;
        if lower.uplink.take().is_some() {
            self.engine.remove_uplink(lower.id).map_err(refused)?;
            self.before.keep_link(name, &carried);
            by_flows.iter().for_each(|(flow, traffic)| self.before.keep_flow(flow, *traffic));
        }
        lower.uplink = Some(self.engine.add_uplink(lower.id, queues).map_err(refused)?);
        for (flow, config) in model.flows.iter().filter(|(_, flow)| flow.link == *name) {
            self.refound(flow, config);
        }
        Ok(())
    }

    /// Links that did not get all that is said of them when their interface was there again, and are due for a trial.
    pub(crate) fn unsettled(&self) -> Vec<LinkName> {
        let is_due = |lower: &Lower| lower.unsettled.is_some_and(|at| at.elapsed() >= AGAIN);
        self.links.iter().filter(|(_, lower)| is_due(lower)).map(|(name, _)| name.clone()).collect()
    }

    /// What is said of the queues of a link holds for new ones, too: each thing as far as it can, whatever becomes of the others (a CPU
    /// may be away), and what cannot is tried again.
    pub(crate) fn resettle(&mut self, name: &LinkName, model: &Model) {
        let (Some(link), Some(lower)) = (model.links.get(name), self.links.get(name)) else { return };
        let mut unsettled = None;
        for (begins, wanted) in each_of_queues(link.into()) {
            if let Err(error) = self.limit(lower.id, begins, wanted) {
                tracing::warn!("link {name}: {error}");
                unsettled = Some(Instant::now());
            }
        }
        self.links.entry(name.clone()).and_modify(|lower| lower.unsettled = unsettled);
    }

    /// The flows of what passed a link's wire went with it.
    fn refound(&mut self, name: &FlowName, flow: &Flow) {
        self.flows.remove(name);
        if let Err(error) = self.add_flow(name, flow) {
            tracing::warn!("flow {name}: {error}");
        }
    }

    /// Opens what leads out of a link.
    pub(crate) fn below(
        &mut self,
        name: &LinkName,
        link: &Link,
        present: &Model,
    ) -> Result<Below, firelane_api::ApiError> {
        let ifname = match &link.kind {
            LinkKind::Tap(ifname) => ifname,
            LinkKind::Memory => return Ok(Below::default()),
            LinkKind::Nic(nic) => {
                let share = nic::Share {
                    queues: self.kernel.queues(),
                    stations: self.links.get(name).map(|it| self.stations(it.id)).unwrap_or_default(),
                    is_wired: present.is_wired(name),
                };
                let (queues, interface) = nic::open(nic, link.mtu, share)?;
                return Ok(Below { nic: Some(interface), queues, ..Below::default() });
            }
            LinkKind::Memif(memif) => {
                let (queues, status) = memif::open(name, memif, link.mtu)?;
                return Ok(Below { memif: Some(status), queues, ..Below::default() });
            }
        };
        let tap = Tap { ifname: Some(ifname.clone()), ..Tap::default() };
        let mac = self.macs.choose(name, Mac::Auto, self.is_taken());
        let wanted = Wanted { link: name, tap: &tap, mac, mtu: link.mtu, rings: link.rings.asked() };
        let (device, queues) = self.kernel.open(&wanted)?;
        Ok(Below { device: Some(device), queues, ..Below::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_told_with_its_fault_and_tried_again_later_and_forgotten_with_it() {
        let name: LinkName = "net0".parse().unwrap();
        let gone = BTreeMap::from([(name.clone(), "near is gone".to_owned())]);
        let mut told = Told::default();
        assert!(told.may_try(&name));
        told.note(name.clone(), Err(Status::Denied.into()));
        assert!(!told.may_try(&name));
        assert_eq!(told.whole(gone.clone())[&name], "near is gone; it was refused: permission denied");
        told.tell(gone.clone());
        assert!(!told.may_try(&name), "it is as it was");
        told.tell(BTreeMap::new());
        assert!(told.may_try(&name));
        told.note(name.clone(), Ok(()));
        assert_eq!(told.whole(gone.clone()), gone);
    }

    /// One that is refused keeps no other back.
    #[test]
    fn what_queues_have_is_given_to_new_ones_one_by_one() {
        let text = "[link.net0]\nkind = 'nic'\nifname = 'near0'\nmaxbw = '1G'\ncpus = '1'\nrxrings = 2\npolling = 'off'\n";
        let model = Model::from_toml("test", text).unwrap();
        let whole = Properties::from(model.links.values().next().unwrap());
        let changes = |from: Properties<'_>, to: Properties<'_>| {
            [
                from.cpus != to.cpus,
                from.rings != to.rings,
                from.polling != to.polling,
                from.looks_on != to.looks_on,
                (from.maxbw, from.minbw, from.priority, from.fusion)
                    != (to.maxbw, to.minbw, to.priority, to.fusion),
            ]
        };
        let each = each_of_queues(whole).map(|(from, to)| changes(from, to));
        assert_eq!(
            each,
            [
                [true, false, false, false, false],
                [false, true, false, false, false],
                [false, false, true, false, false],
                [false; 5],
            ]
        );
    }

    #[test]
    fn a_speed_is_the_limit_that_comes_first_upwards() {
        let text = "[link.net0]\nkind = 'memory'\nmaxbw = '1G'\n[etherstub.s0]\n\
                    [vnic.own0]\nover = 'net0'\nmaxbw = '1500K'\n[vnic.net1]\nover = 'net0'\n[vnic.free0]\nover = 's0'\n";
        let model = Model::from_toml("test", text).unwrap();
        let speed = |name: &str| speed_of(limit_of(&model, &name.parse().unwrap()));
        assert_eq!([speed("own0"), speed("net1"), speed("net0"), speed("free0")], [2, 1000, 1000, TAP_SPEED]);
        assert_eq!(speed_of(Some(BitRate::from_bps(0))), 0);
        assert_eq!(speed_of(Some(BitRate::from_bps(1))), 1);
        assert_eq!(speed_of(Some(BitRate::from_bps(u64::MAX))), i32::MAX.cast_unsigned());
    }
}
