//! Interfaces of the host that links have: which driver each gets, and why, and whether the kernel keeps it as well.
//!
//! Called by `works.rs`, `interfaces.rs` and `stations.rs`. AF_XDP in the best way that is offered; where it is refused and the configuration leaves the
//! choice, a packet socket, which is slower, and status and doctor say so with the reason. Nothing of it outlives the
//! daemon: program and sockets end with its descriptors.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use firelane::{
    AfXdpConfig, AfXdpError, AfXdpRefused, CLAIMS_MAX, Claims, LinkModes, LinkSettings, LinkSpeed,
    PacketSocket, PauseFrames, Promiscuity, Queue, link_settings, open_afxdp, open_shared, receive_queues,
};
use firelane_api::{ApiError, DeviceInfo, DeviceModes, LinkState, Status, device_speed, slot_of};
use firelane_model::{
    FactoryMac, FactorySlot, Link, LinkKind, LinkName, Model, Nic, NicDriver, Sharing, Vnic,
};
use firelane_units::{MacAddr, Mtu};

use crate::netlink::{self, Addresses, Seen};
use crate::text::plain;

/// How long an interface may stay taken: a link's program ends when the lanes have let its queues go.
const PROGRAM_WAIT: Duration = Duration::from_secs(1);
/// Between two looks.
const PROGRAM_POLL: Duration = Duration::from_millis(10);

/// An interface that a link has.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Its name when it was attached, which is the configuration's.
    name: String,
    index: u32,
    how: How,
    /// How many queues it received by, if each is read by itself.
    queues: Option<u32>,
    /// The link reads it no more.
    is_let_go: bool,
    /// How often it had got a carrier when it was last asked.
    joined: Option<u32>,
    promiscuity: Promiscuity,
}

/// How its frames come.
#[derive(Debug)]
enum How {
    /// By AF_XDP, in this way: every one.
    AfXdp(String),
    /// By AF_XDP, in this way, beside the kernel: those for the stations that are claimed.
    Beside(String, Claims),
    /// By a packet socket, as the configuration says.
    Packet,
    /// By a packet socket, because of this.
    Detour(String),
}

impl Attached {
    /// How it is attached if that is not by AF_XDP, and why.
    pub(crate) fn detour(&self) -> Option<String> {
        let How::Detour(why) = &self.how else { return None };
        Some(format!("{}: a packet socket in place of AF_XDP, which is slower: {why}", self.called()))
    }

    /// How it is attached, in words.
    pub(crate) fn how(&self) -> String {
        match &self.how {
            How::AfXdp(how) => format!("{}: {how}", self.called()),
            How::Beside(how, _) => {
                format!(
                    "{}: {how}; the kernel keeps what is for no VNIC, and both get what is for groups",
                    self.called()
                )
            }
            How::Packet => format!("{}: a packet socket, as configured", self.called()),
            How::Detour(_) => self.detour().unwrap_or_default(),
        }
    }

    /// What the kernel cannot do any more because its frames of the interface come here.
    pub(crate) fn cut_off(&self) -> Option<String> {
        let name = self.name();
        let why = match &self.how {
            How::AfXdp(_) => "while the link has it alone",
            How::Beside(_, claims) => {
                let own = netlink::addresses(&name).ok()?.now?;
                claims.addresses().get(&own).map(|_| "while a VNIC has its station's address")?
            }
            How::Packet | How::Detour(_) => return None,
        };
        let addresses = netlink::kernels_addresses(self.index).ok().filter(|it| !it.is_empty())?;
        let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Some(format!(
            "the kernel has {addresses} on {name} and gets no frame from there {why}: what is to be reached at these addresses \
             has to be behind a VNIC, or the link needs shared = true and VNICs with addresses of their own"
        ))
    }

    /// Whether the kernel keeps it as well, so that only frames for stations that are claimed come, and those for groups.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.how, How::Beside(..))
    }

    /// Where it does: frames for these stations come from now on, and no others.
    pub(crate) fn claim(&mut self, stations: &BTreeSet<MacAddr>) -> Result<(), ApiError> {
        let How::Beside(_, claims) = &mut self.how else { return Ok(()) };
        claims.set(stations).map_err(|error| match stations.len() > CLAIMS_MAX as usize {
            true => {
                let allowed = format!(
                    "the kernel keeps {} as well, and tells at most {CLAIMS_MAX} stations apart",
                    self.name
                );
                ApiError::new(Status::TooMany, "over", &self.name, allowed)
            }
            false => ApiError::new(Status::Io, "over", &self.name, plain(&error)),
        })
    }

    /// What it is called, and was called when it was attached.
    fn called(&self) -> String {
        let name = self.name();
        if name == self.name { name } else { format!("{name}, once {}", self.name) }
    }

    /// Whether it is called so now.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.is_there() && self.name() == name
    }

    /// The configuration says what it is called now.
    pub(crate) fn take_name(&mut self, said: &str) {
        if self.name != said && self.is_called(said) {
            said.clone_into(&mut self.name);
        }
    }

    /// That the next start would not find it, if somebody has given it another name, and what makes that last.
    pub(crate) fn renamed(&self) -> Option<String> {
        let (was, is) = (&self.name, self.name());
        (*was != is).then(|| {
            format!(
                "{was} is called {is} now, and the next start would look for {was}: with ifname = \"{is}\" in the configuration, \
                 which changes nothing else, it finds it"
            )
        })
    }

    /// As it is now, whatever it is called; none if it is gone, though another may have its number. One that cannot be asked after
    /// is taken for there.
    fn seen(&self) -> Option<Seen> {
        if !self.promiscuity.holds() {
            return None;
        }
        let unknown = || Seen {
            name: self.name.clone(),
            index: self.index,
            mac: None,
            mtu: u32::MAX,
            is_up: true,
            has_carrier: true,
            joined: 0,
            peer: None,
            unsent: 0,
        };
        netlink::look(self.index).unwrap_or_else(|_| Some(unknown()))
    }

    /// What it is called now. It may have other names beside, by which it is attached as well.
    pub(crate) fn name(&self) -> String {
        let keeps = netlink::index_of(&self.name).is_ok_and(|index| index == self.index);
        let other = self.seen().filter(|_| !keeps).map(|seen| seen.name);
        other.unwrap_or_else(|| self.name.clone())
    }

    /// Whether it is there, under its number, and has not been away.
    pub(crate) fn is_there(&self) -> bool {
        self.seen().is_some()
    }

    /// Whether it is gone and the link has still to let it go: what is left of it may hang at the interface wherever that is now.
    pub(crate) fn is_lost(&self) -> bool {
        !self.is_let_go && !self.is_there()
    }

    /// Whether the link reads it no more.
    pub(crate) fn is_let_go(&self) -> bool {
        self.is_let_go
    }

    /// The link reads it no more.
    pub(crate) fn let_go(&mut self) {
        self.is_let_go = true;
    }

    /// Whether it has got a carrier since this was last asked: who is at its other end may be another.
    pub(crate) fn has_rejoined(&mut self) -> bool {
        // Who cannot be asked after has not.
        let Ok(Some(seen)) = netlink::look(self.index) else { return false };
        let before = self.joined.replace(seen.joined);
        before.is_some_and(|before| before != seen.joined)
    }

    /// Whether the link is to have the interface of its name anew, which is there.
    pub(crate) fn is_back(&self) -> bool {
        let Ok(index) = netlink::index_of(&self.name) else { return false };
        let is_read = !self.is_let_go && self.is_there();
        !is_read || index == self.index && self.queues_now().is_some()
    }

    /// How many queues it receives by, if those are more than are read.
    fn queues_now(&self) -> Option<(u32, u32)> {
        let read = self.queues?;
        let now = u32::from(queues_of(&self.name())?);
        (now > read).then_some((now, read))
    }

    /// Whether it passes frames: it is there, is read, and has somebody at the other end.
    pub(crate) fn state(&self) -> LinkState {
        let passes = !self.is_let_go && self.seen().is_some_and(|seen| seen.passes());
        if passes { LinkState::Up } else { LinkState::Down }
    }

    /// Why it does not carry all that a link with this MTU has for it.
    pub(crate) fn fault(&self, mtu: Mtu) -> Option<String> {
        let Some(seen) = self.seen() else {
            let name = &self.name;
            return Some(format!(
                "{name} is gone: the link has an interface again as soon as there is one of that name"
            ));
        };
        let stopped = seen.stopped();
        let Seen { name, mtu: most, .. } = seen;
        if self.is_let_go {
            return Some(format!("{name} is there, and the link has not got it again"));
        }
        if let Some(why) = stopped {
            return Some(format!("{name} {why}"));
        }
        if let Some((now, read)) = self.queues_now() {
            return Some(format!(
                "{name} receives by {now} queues now, of which the link reads {read}: what comes by the others is lost"
            ));
        }
        let mtu = u32::from(mtu.bytes());
        (most < mtu).then(|| {
            format!("{name} carries packets of at most {most} bytes now, the link's have up to {mtu}: larger ones are lost")
        })
    }
}

/// The speed that the kernel says an interface has, in Mb/s.
pub(crate) fn speed_of(name: &str) -> Option<u64> {
    // Minus one is nobody's.
    property(name, netlink::index_of(name).ok()?, "speed")?.parse().ok()
}

/// What the kernel says of an interface of the daemon's own namespace.
pub(crate) fn known_of(name: &str) -> DeviceInfo {
    let index = netlink::index_of(name).unwrap_or(0);
    let said = |file: &str| property(name, index, file).filter(|text| !text.is_empty() && text != "unknown");
    let addresses = netlink::addresses(name).unwrap_or_default();
    DeviceInfo {
        is_interface: true,
        macaddress: addresses.now.map(|mac| mac.to_string()),
        speed: speed_of(name),
        duplex: said("duplex"),
        factory: slots_of(addresses).into_iter().map(Into::into).collect(),
        ..settings_of(name)
    }
}

/// The addresses that a device has for good, in their slots. One that is gone has none.
fn factory_of(name: &str) -> Vec<FactoryMac> {
    slots_of(netlink::addresses(name).unwrap_or_default())
}

fn slots_of(addresses: Addresses) -> Vec<FactoryMac> {
    let Addresses { permanent, functions, .. } = addresses;
    let own = permanent.map(|mac| FactoryMac { slot: FactorySlot::OWN, mac, function: None });
    let functions = functions.into_iter().filter_map(|(function, mac)| {
        Some(FactoryMac { slot: FactorySlot::of_function(function)?, mac, function: Some(function) })
    });
    own.into_iter().chain(functions).collect()
}

/// The same of what a link is made of.
pub(crate) fn factory_of_link(link: &Link) -> Vec<FactoryMac> {
    match &link.kind {
        LinkKind::Nic(nic) => factory_of(nic.ifname.as_str()),
        LinkKind::Tap(_) | LinkKind::Memif(_) | LinkKind::Memory => Vec::new(),
    }
}

/// The address in the slot that a VNIC has, or gets if it comes without one that was settled.
pub(crate) fn factory_mac(
    name: &LinkName,
    vnic: &Vnic,
    slot: Option<FactorySlot>,
    present: &Model,
) -> Result<MacAddr, ApiError> {
    let link = vnic.over.link().and_then(|over| present.links.get(over));
    let slots = link.map(factory_of_link).unwrap_or_default();
    let slot = slot_of(present, name, vnic, slot, &slots)?;
    let its = slots.iter().find(|it| it.slot == slot);
    its.map(|it| it.mac).ok_or_else(|| Status::NoFactoryMac.into())
}

/// What its driver says of both ends of its cable.
fn settings_of(name: &str) -> DeviceInfo {
    let Some(LinkSettings { autoneg, pause, capable, advertised, peer }) = link_settings(name) else {
        return DeviceInfo::default();
    };
    let word = |pause: PauseFrames| match (pause.rx, pause.tx) {
        (true, true) => "bi".to_owned(),
        (true, false) => "rx".to_owned(),
        (false, true) => "tx".to_owned(),
        (false, false) => "none".to_owned(),
    };
    let speed = |it: &LinkSpeed| {
        let duplex = [(it.full, "f"), (it.half, "h")].map(|(goes, letter)| if goes { letter } else { "" });
        format!("{}-{}", device_speed(it.mbps.into()), duplex.concat())
    };
    let modes = |it: LinkModes| DeviceModes {
        autoneg: it.autoneg,
        speeds: it.speeds.iter().map(speed).collect(),
        pause: word(it.pause),
    };
    DeviceInfo {
        autoneg: Some(autoneg),
        pause: pause.map(word),
        capable: capable.map(modes),
        adv: advertised.map(modes),
        peeradv: peer.map(modes),
        ..DeviceInfo::default()
    }
}

/// What /sys says of an interface, if it shows the one with that number: it is of the namespace in which it was mounted.
fn property(name: &str, index: u32, file: &str) -> Option<String> {
    let read = |file: &str| fs::read_to_string(format!("/sys/class/net/{name}/{file}")).ok();
    let is_same = read("ifindex")?.trim().parse() == Ok(index);
    is_same.then(|| read(file))?.map(|text| text.trim().to_owned())
}

/// The interface's number, if there is one that carries packets of `mtu` bytes.
pub(crate) fn check(nic: &Nic, mtu: Mtu) -> Result<u32, ApiError> {
    let name = nic.ifname.as_str();
    let index = netlink::index_of(name).map_err(|_| {
        let allowed = "an interface of the network namespace that the daemon runs in";
        ApiError::new(Status::LinkInvalid, "ifname", name, allowed)
    })?;
    let most = netlink::look(index).ok().flatten().map(|seen| seen.mtu);
    match most.filter(|&most| u32::from(mtu.bytes()) > most) {
        Some(most) => {
            let allowed = format!("the interface {name} carries at most {most}");
            Err(ApiError::new(Status::BadMtu, "mtu", mtu, allowed))
        }
        None => Ok(index),
    }
}

/// How many rings a link made of `nic` has: as many as the interface, where /sys shows that, and no more than `most`.
pub(crate) fn rings_of(nic: &Nic, most: u16) -> u16 {
    match nic.driver {
        NicDriver::Packet => 1,
        NicDriver::Auto | NicDriver::Afxdp => queues_of(nic.ifname.as_str()).unwrap_or(u16::MAX).min(most),
    }
}

/// How many queues an interface receives by, each of which is a ring.
fn queues_of(name: &str) -> Option<u16> {
    property(name, netlink::index_of(name).ok()?, "ifindex")?;
    Some(u16::try_from(receive_queues(name)?).unwrap_or(u16::MAX))
}

/// Whether the kernel keeps an interface as well that a link gets now. Where it cannot be asked it has an address: a host that
/// nobody reaches any more cannot be mended.
pub(crate) fn is_shared(nic: &Nic) -> bool {
    match nic.sharing {
        Sharing::Shared => true,
        Sharing::Alone => false,
        Sharing::Auto => {
            let addresses = netlink::index_of(nic.ifname.as_str()).and_then(netlink::kernels_addresses);
            addresses.map_or(true, |it| !it.is_empty())
        }
    }
}

/// What of an interface is asked for.
pub(crate) struct Share {
    /// At most so many queues.
    pub(crate) queues: u16,
    /// The stations that are claimed if the kernel keeps it as well.
    pub(crate) stations: BTreeSet<MacAddr>,
    /// Wires lead on from there: unless the file says that the kernel keeps it, it does not.
    pub(crate) is_wired: bool,
}

/// Opens an interface for a link, and switches it on.
pub(crate) fn open(nic: &Nic, mtu: Mtu, share: Share) -> Result<(Vec<Queue>, Attached), ApiError> {
    let Nic { ifname, driver, sharing } = nic;
    let name = ifname.as_str();
    let failed = |error: io::Error| {
        let status =
            if error.kind() == io::ErrorKind::PermissionDenied { Status::Denied } else { Status::Io };
        ApiError::new(status, "ifname", name, plain(&error))
    };
    let index = check(nic, mtu)?;
    let promiscuity = Promiscuity::of(name).map_err(failed)?;
    netlink::set_up(name).map_err(failed)?;
    let is_shared = is_shared(nic) && !(share.is_wired && *sharing == Sharing::Auto);
    let stations = is_shared.then_some(share.stations);
    let packet = || PacketSocket::open(name, mtu).map(|it| vec![Queue::from(it)]).map_err(failed);
    let (rings, how, received_by) = match driver {
        NicDriver::Packet => (packet()?, How::Packet, None),
        NicDriver::Auto | NicDriver::Afxdp => match attach(name, mtu, share.queues, stations) {
            Ok(opened) => opened,
            Err(error) if *driver == NicDriver::Auto => (packet()?, How::Detour(plain(&error)), None),
            Err(error) => return Err(ApiError::new(Status::Io, "driver", driver.word(), plain(&error))),
        },
    };
    let joined = netlink::look(index).ok().flatten().map(|seen| seen.joined);
    let (name, queues, is_let_go) = (name.to_owned(), received_by, false);
    let interface = Attached { name, index, how, queues, is_let_go, joined, promiscuity };
    match interface.detour() {
        Some(detour) => tracing::warn!("{detour}"),
        None => tracing::info!("{}", interface.how()),
    }
    Ok((rings, interface))
}

/// Every frame, or those for `stations` if there are such.
fn attach(
    name: &str,
    mtu: Mtu,
    queues: u16,
    stations: Option<BTreeSet<MacAddr>>,
) -> Result<(Vec<Queue>, How, Option<u32>), AfXdpError> {
    let config = AfXdpConfig { queues, ..AfXdpConfig::new(mtu) };
    let opened = || match &stations {
        Some(stations) => open_shared(name, config.clone(), stations.clone()),
        None => open_afxdp(name, &config)
            .map(|(queues, attached)| (queues.into_iter().map(Queue::from).collect(), attached)),
    };
    let deadline = Instant::now() + PROGRAM_WAIT;
    loop {
        match opened() {
            Ok((queues, attached)) => {
                let how = attached.to_string();
                let how = match attached.claims {
                    Some(claims) => How::Beside(how, claims),
                    None => How::AfXdp(how),
                };
                return Ok((queues, how, Some(attached.queues)));
            }
            // It may be that of a link that was deleted just now.
            Err(AfXdpError::Refused(_, ways))
                if ways.iter().any(|(_, why)| matches!(why, AfXdpRefused::OtherProgram))
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(PROGRAM_POLL);
            }
            Err(error) => return Err(error),
        }
    }
}
