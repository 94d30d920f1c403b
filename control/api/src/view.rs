//! What the interface answers, and how an answer is built from a model and the engine's facts.

use std::collections::BTreeMap;

use firelane_model::{
    AddrObjName, Address, Flow, FlowMatch, FlowName, Iptun, LinkClass, LinkKind, LinkName, Mac, Model,
    NetstackName, Nic, VnicUser, spell_rate,
};
use firelane_units::{IpPrefix, MacAddr, Mtu};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::received::since;
use crate::{
    AddrProperty, ApiError, FactorySlotInfo, LeaseInfo, Leased, Mark, ResolverInfo, Status, WireInfo,
    addr_props, if_props, props, protocol_props,
};
use crate::{LaneReceived, RingStats};

/// Whether a link passes frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// It does.
    Up,
    /// It does not.
    Down,
    /// Nobody can tell, because it is not active.
    #[default]
    Unknown,
}

impl LinkState {
    /// The word used in commands.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Unknown => "unknown",
        }
    }
}

/// How far an address is usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AddressState {
    /// It is in use.
    Ok,
    /// It is being checked for duplicates.
    Tentative,
    /// Another station has it.
    Duplicate,
    /// It has no address yet, or no more.
    Down,
    /// Its interface is down.
    Inaccessible,
    /// It is not active.
    #[default]
    Disabled,
}

impl AddressState {
    /// The word used in commands.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Tentative => "tentative",
            Self::Duplicate => "duplicate",
            Self::Down => "down",
            Self::Inaccessible => "inaccessible",
            Self::Disabled => "disabled",
        }
    }
}

/// A link of any class.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LinkInfo {
    /// Its name.
    pub name: LinkName,
    /// What kind of link it is.
    pub class: LinkClass,
    /// The largest packet it carries.
    pub mtu: u16,
    /// Whether it passes frames.
    pub state: LinkState,
    /// What it rests on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<LinkName>,
    /// The kernel's device below it; only of class phys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Its speed in Mb/s: its limit, or what the device or the link below has; 0 if there is none.
    pub speed: u64,
    /// What is known of the device below it; only of class phys, and if it is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<DeviceInfo>,
}

/// The rings of a link's device, as the link's user sees them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceRings {
    /// How many there are.
    pub all: u16,
    /// Those by which it receives.
    pub rx: Vec<u16>,
    /// Those by which it sends.
    pub tx: Vec<u16>,
}

/// A device below a link that leads out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DeviceInfo {
    /// Whether it is an interface of the kernel.
    pub is_interface: bool,
    /// Its own Ethernet address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub macaddress: Option<String>,
    /// The addresses that it has from its factory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub factory: Vec<FactorySlotInfo>,
    /// How many rings it has.
    pub rings: u16,
    /// Those by which frames are received.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rxrings: Vec<u16>,
    /// Those by which they are sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub txrings: Vec<u16>,
    /// The speed in Mb/s that the kernel says it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<u64>,
    /// `full` or `half`, as the kernel says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplex: Option<String>,
    /// Whether that was negotiated, if its driver says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoneg: Option<bool>,
    /// Pause frames in use, if its driver has a say on them: `bi`, `rx`, `tx` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<String>,
    /// What it could do, if its driver says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capable: Option<DeviceModes>,
    /// What it tells the other end of its cable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adv: Option<DeviceModes>,
    /// What the other end told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peeradv: Option<DeviceModes>,
}

/// What one end of a cable could do, or tells the other.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DeviceModes {
    /// Whether it negotiates.
    pub autoneg: bool,
    /// Speeds and duplex, the fastest first: `1G-f`, `100M-fh`.
    pub speeds: Vec<String>,
    /// Pause frames: `bi`, `rx`, `tx` or `none`.
    pub pause: String,
}

/// A speed in Mb/s as the original writes it: `1G`, `2500M`.
pub fn device_speed(mbps: u64) -> String {
    if mbps >= 1000 && mbps.is_multiple_of(1000) { format!("{}G", mbps / 1000) } else { format!("{mbps}M") }
}

/// A VNIC.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VnicInfo {
    /// Its name.
    pub name: LinkName,
    /// The link or etherstub below it.
    pub over: LinkName,
    /// Its speed in Mb/s: its limit, or else the speed below it; 0 if there is none.
    pub speed: u64,
    /// Its Ethernet address; absent if it is not active and Firelane chooses the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub macaddress: Option<String>,
    /// `random`, `fixed`, or `factory, slot` with its number.
    pub macaddrtype: String,
    /// Its VLAN; 0 if none.
    pub vid: u16,
    /// Whether commands call it a VLAN.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_vlan: bool,
    /// The netstack that uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netstack: Option<NetstackName>,
    /// The kernel interface that uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ifname: Option<String>,
    /// The namespace of that interface, as the model calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// A tunnel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IptunInfo {
    /// Its name.
    pub name: LinkName,
    /// Its ends, and how it carries packets.
    #[serde(flatten)]
    pub tunnel: Iptun,
    /// The netstack whose addresses carry it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netstack: Option<NetstackName>,
}

/// A virtual switch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EtherstubInfo {
    /// Its name.
    pub name: LinkName,
    /// The largest packet it carries.
    pub mtu: u16,
}

/// A flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FlowInfo {
    /// Its name.
    pub name: FlowName,
    /// The link whose traffic it is part of.
    pub link: LinkName,
    /// What it matches.
    #[serde(rename = "match")]
    pub matching: FlowMatch,
    /// Its limit, as the file spells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maxbw: Option<String>,
    /// What it is guaranteed, as the file spells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minbw: Option<String>,
    /// Its priority.
    pub priority: String,
}

/// An address object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct AddrInfo {
    /// Its name.
    pub name: AddrObjName,
    /// The netstack that has it.
    pub netstack: NetstackName,
    /// Where it comes from: `static`, `addrconf` or `dhcp`.
    #[serde(rename = "type")]
    pub kind: String,
    /// How far it is usable.
    pub state: AddressState,
    /// The address with its prefix length.
    pub addr: String,
    /// Whether it returns at the next start.
    pub persistent: bool,
    /// Whether nothing new begins with it.
    #[serde(default)]
    pub deprecated: bool,
    /// Whether it will be down at the next start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persistent_down: bool,
    /// Whether it is one of those that change (RFC 8981).
    #[serde(default)]
    pub temporary: bool,
    /// Who resolves names, as its network says (RFC 8106, DHCP).
    #[serde(default, skip_serializing_if = "ResolverInfo::is_empty")]
    pub resolvers: ResolverInfo,
    /// What its DHCP client knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseInfo>,
}

/// An IP interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct IfInfo {
    /// Its name, which is its VNIC's.
    pub name: LinkName,
    /// The netstack that has it.
    pub netstack: NetstackName,
    /// `ok`, `failed` while the link below is down, or `disabled`.
    pub state: String,
    /// Whether it returns at the next start.
    pub persistent: bool,
}

/// A netstack.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NetstackInfo {
    /// Its name.
    pub name: NetstackName,
    /// Its interfaces.
    pub interfaces: Vec<LinkName>,
    /// Its addresses with their prefix lengths.
    pub addresses: Vec<String>,
    /// Its configured routes, `destination via gateway`, and `congestion_control` with a word if the route has one.
    pub routes: Vec<String>,
    /// Who resolves names, as the networks of its interfaces say: those of the primary interface's lease first.
    #[serde(default, skip_serializing_if = "ResolverInfo::is_empty")]
    pub resolvers: ResolverInfo,
}

/// A property of a link or flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Property {
    /// Its name.
    pub property: String,
    /// `rw` or `r-`.
    pub perm: String,
    /// Its value; empty if unset.
    pub value: String,
    /// Its default; empty if unset.
    pub default: String,
    /// Its possible values; empty if they cannot be listed.
    pub possible: String,
}

/// The properties of a link or flow, of many.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ObjectProps {
    /// Whose they are.
    pub name: String,
    /// What they are.
    pub properties: Vec<Property>,
}

/// A protocol property of a netstack.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ProtocolProperty {
    /// Whose it is: `ipv4`, `tcp`, ...
    pub protocol: String,
    /// Its name.
    pub property: String,
    /// `rw` or `r-`.
    pub perm: String,
    /// The value that holds.
    pub current: String,
    /// The value that the next start sets; empty if it sets none.
    pub persistent: String,
    /// The value of a property that is not set.
    pub default: String,
    /// Its possible values.
    pub possible: String,
}

/// Counters of one direction-pair. Inward is towards the link's user, outward is from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Traffic {
    /// Frames inward.
    pub ipackets: u64,
    /// Bytes inward.
    pub rbytes: u64,
    /// Frames inward that were dropped.
    pub ierrors: u64,
    /// Frames outward.
    pub opackets: u64,
    /// Bytes outward.
    pub obytes: u64,
    /// Frames outward that were dropped.
    pub oerrors: u64,
    /// Bytes inward that came from another connection's ring, in no frame: connections of a netstack with itself are fused.
    #[serde(default)]
    pub rfused: u64,
    /// The same outward.
    #[serde(default)]
    pub ofused: u64,
}

impl Traffic {
    /// Whether nothing was carried; what was dropped is not.
    pub fn is_nothing(&self) -> bool {
        Self { ierrors: 0, oerrors: 0, ..*self } == Self::default()
    }

    /// All counters, in the order of their declaration.
    pub const fn counts(&self) -> [u64; 8] {
        let Self { ipackets, rbytes, ierrors, opackets, obytes, oerrors, rfused, ofused } = *self;
        [ipackets, rbytes, ierrors, opackets, obytes, oerrors, rfused, ofused]
    }

    /// The counters in that order.
    pub const fn of(counts: [u64; 8]) -> Self {
        let [ipackets, rbytes, ierrors, opackets, obytes, oerrors, rfused, ofused] = counts;
        Self { ipackets, rbytes, ierrors, opackets, obytes, oerrors, rfused, ofused }
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        let (mut sum, more) = (self.counts(), other.counts());
        sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        Self::of(sum)
    }

    /// What came since it was `before`. Counters begin again when an object is made anew: if any has fallen, all have.
    pub fn since(self, before: Self) -> Self {
        Self::of(since(self.counts(), before.counts()))
    }
}

/// A link's traffic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LinkStats {
    /// The link's name.
    pub name: LinkName,
    /// Its counters since it was made.
    pub traffic: Traffic,
    /// What link protection has stopped.
    #[serde(default, skip_serializing_if = "Stopped::is_none")]
    pub stopped: Stopped,
    /// How its packets came in, in each lane in which any did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lanes: Vec<LaneReceived>,
    /// What each ring of its device has carried, if it has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rings: Vec<RingStats>,
}

/// Frames that link protection has stopped, by its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Stopped {
    /// By `mac-nospoof`.
    pub macspoofed: u64,
    /// By `restricted`.
    pub restricted: u64,
    /// By `ip-nospoof`.
    pub ipspoofed: u64,
    /// By `dhcp-nospoof`.
    pub dhcpspoofed: u64,
}

impl Stopped {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            macspoofed: self.macspoofed.saturating_add(other.macspoofed),
            restricted: self.restricted.saturating_add(other.restricted),
            ipspoofed: self.ipspoofed.saturating_add(other.ipspoofed),
            dhcpspoofed: self.dhcpspoofed.saturating_add(other.dhcpspoofed),
        }
    }

    /// What came since an earlier reading.
    pub fn since(self, before: Self) -> Self {
        Self {
            macspoofed: self.macspoofed.saturating_sub(before.macspoofed),
            restricted: self.restricted.saturating_sub(before.restricted),
            ipspoofed: self.ipspoofed.saturating_sub(before.ipspoofed),
            dhcpspoofed: self.dhcpspoofed.saturating_sub(before.dhcpspoofed),
        }
    }
}

/// A flow's traffic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FlowStats {
    /// The flow's name.
    pub name: FlowName,
    /// The link whose traffic it is part of.
    pub link: LinkName,
    /// Its counters since it was made.
    pub traffic: Traffic,
    /// Frames that its limit holds back at this moment.
    pub held: u64,
}

/// Frames that ended at one station for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DropInfo {
    /// The station's word.
    pub station: String,
    /// The reason's word.
    pub reason: String,
    /// How many.
    pub frames: u64,
}

/// How something on this host stands to Firelane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// As good as it can be.
    Ok,
    /// It works in another way than it could.
    Note,
    /// It does not work.
    Fail,
}

impl FindingState {
    /// The word in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Fail => "fail",
        }
    }
}

/// What an examination of the host has found at one place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// How it stands.
    pub state: FindingState,
    /// What was found, and if something is to be done, what.
    pub detail: String,
}

/// What runs, and whether all is well.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StatusInfo {
    /// Firelane's version.
    pub version: String,
    /// The daemon's instance; empty if it is the host's only one.
    pub instance: String,
    /// The daemon's process.
    pub pid: u32,
    /// Seconds since its start.
    pub uptime_seconds: u64,
    /// Lanes that run.
    pub lanes: u16,
    /// Links of every class.
    pub links: usize,
    /// Flows.
    pub flows: usize,
    /// Netstacks.
    pub netstacks: usize,
    /// TCP connections of all netstacks, those in TIME-WAIT not counted.
    #[serde(default)]
    pub connections: usize,
    /// What both configurations, the one in force and the one that is kept, are known by together: something else once either has changed.
    #[serde(default)]
    pub configuration: Mark,
    /// What works in another way than it could on this host, with the reason, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What does not work although the configuration asks for it, one line each; the rest runs.
    pub problems: Vec<String>,
}

/// One step of a plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PlanStep {
    /// What its traffic feels: `live`, `brief`, `recreate`, `ends` or `restart`.
    pub effect: String,
    /// What is done, on one line. `make permanent: ` stands before what is in force already and is kept from then on.
    pub step: String,
    /// What changes inside, line by line: `+` comes, `-` goes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
}

/// A plan; without steps there is nothing to change.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PlanReply {
    /// The steps in their order.
    pub steps: Vec<PlanStep>,
}

/// What only a running engine knows. The defaults are those of a configuration that is not active.
pub trait Facts {
    /// Whether the link passes frames.
    fn link_state(&self, _name: &LinkName) -> LinkState {
        LinkState::Unknown
    }

    /// The link's speed in Mb/s; 0 if it has none of its own.
    fn link_speed(&self, _name: &LinkName) -> u64 {
        0
    }

    /// The link's Ethernet address.
    fn mac(&self, _name: &LinkName) -> Option<MacAddr> {
        None
    }

    /// What the interface below the link is called now.
    fn ifname(&self, _name: &LinkName) -> Option<String> {
        None
    }

    /// The device below the link.
    fn device(&self, _name: &LinkName) -> Option<DeviceInfo> {
        None
    }

    /// The CPUs of lanes of its own that serve the link's device, or its netstack.
    fn cpus(&self, _name: &LinkName) -> Vec<usize> {
        Vec::new()
    }

    /// The CPUs of lanes of the flow's own.
    fn flow_cpus(&self, _name: &FlowName) -> Vec<usize> {
        Vec::new()
    }

    /// The rings of the link's device.
    fn rings(&self, _name: &LinkName) -> DeviceRings {
        DeviceRings::default()
    }

    /// How far the address is usable.
    fn address_state(&self, _name: &AddrObjName) -> AddressState {
        AddressState::Disabled
    }

    /// What the DHCP client of the object has.
    fn leased(&self, _name: &AddrObjName) -> Option<Leased> {
        None
    }

    /// Who resolves names, as the routers of the object's interface say.
    fn resolvers(&self, _name: &AddrObjName) -> ResolverInfo {
        ResolverInfo::default()
    }

    /// The addresses that the object's interface has configured by itself.
    fn configured(&self, _name: &AddrObjName) -> Vec<ConfiguredAddress> {
        Vec::new()
    }
}

impl AddrInfo {
    /// A client is at work beside the address.
    fn add_lease(&mut self, known: &Leased) {
        self.resolvers.append(&known.resolvers);
        self.lease = Some(known.info.clone());
    }
}

/// The row of a static address, with what a server knows of its network if the operator has asked.
fn informed(mut info: AddrInfo, known: Option<&Leased>) -> AddrInfo {
    known.into_iter().for_each(|known| info.add_lease(known));
    info
}

/// The row of an address that a server gives.
fn leased(info: AddrInfo, known: Option<Leased>) -> AddrInfo {
    let Some(Leased { state, prefix, deprecated, resolvers, info: lease }) = known else { return info };
    let addr = prefix.map(|prefix| prefix.to_string()).unwrap_or_default();
    AddrInfo { state, addr, deprecated, resolvers, lease: Some(lease), ..info }
}

/// An address that an interface has configured by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConfiguredAddress {
    /// The address with its prefix length.
    pub prefix: IpPrefix,
    /// Whether nothing new begins with it.
    pub deprecated: bool,
    /// Whether it is one of those that change (RFC 8981).
    pub temporary: bool,
}

/// A configuration with its facts: every answer but the counters.
#[derive(Clone, Copy)]
pub struct Snapshot<'a> {
    /// The configuration that is shown.
    pub model: &'a Model,
    /// The configuration that the next start begins with.
    pub persistent: &'a Model,
    /// What the engine knows of it.
    pub facts: &'a dyn Facts,
}

/// How a VNIC came by its address, in the original's words.
fn type_of(mac: Mac) -> String {
    match mac {
        Mac::Fixed(_) => "fixed".to_owned(),
        Mac::Factory(None) => "factory".to_owned(),
        Mac::Factory(Some(slot)) => format!("factory, slot {slot}"),
        Mac::Auto | Mac::Random | Mac::Prefixed(_) => "random".to_owned(),
    }
}

impl Snapshot<'_> {
    /// Links of every class.
    pub fn links(&self) -> Vec<LinkInfo> {
        self.model.link_names().map(|(name, class)| self.link(name, class)).collect()
    }

    fn link(&self, name: &LinkName, class: LinkClass) -> LinkInfo {
        let device = self.model.links.get(name).map(|link| match &link.kind {
            LinkKind::Tap(ifname) | LinkKind::Nic(Nic { ifname, .. }) => {
                self.facts.ifname(name).unwrap_or_else(|| ifname.to_string())
            }
            LinkKind::Memif(memif) => memif.socket.clone(),
            LinkKind::Memory => "memory".to_owned(),
        });
        LinkInfo {
            name: name.clone(),
            class,
            mtu: self.model.mtu_of(name.as_str()).map_or(0, Mtu::bytes),
            state: self.facts.link_state(name),
            over: self.model.vnics.get(name).and_then(|vnic| vnic.over.link().cloned()),
            device,
            speed: self.speed(name),
            below: self.facts.device(name).filter(|_| class == LinkClass::Phys),
        }
    }

    /// What the users of the link `name` see as its speed, in Mb/s.
    fn speed(&self, name: &LinkName) -> u64 {
        let vnic = self.model.vnics.get(name);
        let own = match (vnic, self.model.links.get(name), self.model.etherstubs.get(name)) {
            (Some(vnic), ..) => vnic.maxbw,
            (_, Some(link), _) => link.maxbw,
            (.., stub) => stub.and_then(|stub| stub.maxbw),
        };
        match (own, vnic) {
            (Some(limit), _) => limit.bps() / 1_000_000,
            (None, Some(vnic)) => vnic.over.link().map_or(0, |over| self.speed(over)),
            (None, None) => self.facts.link_speed(name),
        }
    }

    /// VNICs.
    pub fn vnics(&self) -> Vec<VnicInfo> {
        let info = |(name, vnic): (&LinkName, &firelane_model::Vnic)| {
            let over = vnic.over.link()?.clone();
            let fixed = match vnic.mac {
                Mac::Fixed(mac) => Some(mac),
                Mac::Auto | Mac::Random | Mac::Prefixed(_) | Mac::Factory(_) => None,
            };
            let (netstack, tap) = match &vnic.user {
                VnicUser::Netstack(netstack) => (Some(netstack.clone()), None),
                VnicUser::Tap(tap) => (None, Some(tap)),
                VnicUser::Nobody | VnicUser::Memif(_) => (None, None),
            };
            Some(VnicInfo {
                name: name.clone(),
                over,
                speed: self.speed(name),
                macaddress: fixed.or_else(|| self.facts.mac(name)).map(|mac| mac.to_string()),
                macaddrtype: type_of(vnic.mac),
                vid: vnic.vlan.map_or(0, firelane_units::VlanId::id),
                is_vlan: vnic.is_vlan,
                netstack,
                ifname: tap.map(|tap| tap.ifname(name).to_owned()),
                namespace: tap.and_then(|tap| tap.namespace.as_ref()).map(ToString::to_string),
            })
        };
        self.model.vnics.iter().filter_map(info).collect()
    }

    /// Tunnels.
    pub fn iptuns(&self) -> Vec<IptunInfo> {
        let info = |(name, vnic): (&LinkName, &firelane_model::Vnic)| {
            let tunnel = vnic.over.tunnel()?.clone();
            Some(IptunInfo { name: name.clone(), tunnel, netstack: vnic.netstack().cloned() })
        };
        self.model.vnics.iter().filter_map(info).collect()
    }

    /// Virtual switches.
    pub fn etherstubs(&self) -> Vec<EtherstubInfo> {
        let stubs = self.model.etherstubs.iter();
        stubs.map(|(name, stub)| EtherstubInfo { name: name.clone(), mtu: stub.mtu.bytes() }).collect()
    }

    /// Wires.
    pub fn wires(&self) -> Vec<WireInfo> {
        self.model.wires.iter().map(|(name, wire)| WireInfo::of(name, wire)).collect()
    }

    /// Flows.
    pub fn flows(&self) -> Vec<FlowInfo> {
        let info = |(name, flow): (&FlowName, &firelane_model::Flow)| FlowInfo {
            name: name.clone(),
            link: flow.link.clone(),
            matching: flow.matching.clone(),
            maxbw: flow.maxbw.map(spell_rate),
            minbw: flow.minbw.map(spell_rate),
            priority: flow.priority.word().to_owned(),
        };
        self.model.flows.iter().map(info).collect()
    }

    /// Address objects. Those in use cannot be reached while the link below their interface is down.
    pub fn addrs(&self) -> Vec<AddrInfo> {
        let mut infos = self.address_rows();
        let is_cut_off = |it: &AddrInfo| {
            let link = self.model.vnics.get_key_value(it.name.interface());
            link.is_some_and(|(link, _)| self.facts.link_state(link) == LinkState::Down)
        };
        for info in infos.iter_mut().filter(|it| it.state == AddressState::Ok) {
            if is_cut_off(info) {
                info.state = AddressState::Inaccessible;
            }
        }
        infos
    }

    fn address_rows(&self) -> Vec<AddrInfo> {
        let is_down = |address: Address| matches!(address, Address::Static(it) if it.down);
        let persistent = self.persistent.addresses().map(|(_, name, address)| (name, is_down(address)));
        let persistent: BTreeMap<_, _> = persistent.collect();
        let mut infos = Vec::new();
        for (netstack, name, address) in self.model.addresses() {
            let info = AddrInfo {
                name: name.clone(),
                netstack: netstack.clone(),
                kind: address.kind().to_owned(),
                state: match self.facts.address_state(name) {
                    AddressState::Disabled => AddressState::Disabled,
                    _ if is_down(address) => AddressState::Down,
                    state => state,
                },
                addr: address.prefix().map(|prefix| prefix.to_string()).unwrap_or_default(),
                persistent: persistent.contains_key(name),
                persistent_down: persistent.get(name).copied().unwrap_or(false),
                deprecated: matches!(address, Address::Static(it) if it.deprecated),
                temporary: false,
                resolvers: ResolverInfo::default(),
                lease: None,
            };
            let resolvers = self.facts.resolvers(name);
            let configured = match address {
                Address::Static(_) => {
                    infos.push(informed(info, self.facts.leased(name).as_ref()));
                    continue;
                }
                Address::Addrconf(_) => self.facts.configured(name),
                Address::Dhcp(conf) => {
                    let mut known = self.facts.leased(name);
                    known.iter_mut().for_each(|it| it.info.primary = conf.primary);
                    infos.push(leased(info, known));
                    continue;
                }
            };
            let row = |own: ConfiguredAddress| AddrInfo {
                state: AddressState::Ok,
                addr: own.prefix.to_string(),
                resolvers: resolvers.clone(),
                deprecated: own.deprecated,
                temporary: own.temporary,
                ..info.clone()
            };
            // As in the original, an object has a row for each of its addresses, and one if it has none. What a server
            // says of the network is said in the row of its lease, or in all if it gives none.
            let mut rows: Vec<_> = configured.into_iter().map(row).collect();
            match self.facts.leased(name) {
                Some(known) if known.prefix.is_some() || rows.is_empty() => {
                    rows.push(leased(info, Some(known)));
                }
                Some(known) => rows.iter_mut().for_each(|it| it.add_lease(&known)),
                None if rows.is_empty() => rows.push(info),
                None => {}
            }
            infos.append(&mut rows);
        }
        infos
    }

    /// IP interfaces.
    pub fn ifs(&self) -> Vec<IfInfo> {
        let vnics = self.model.vnics.iter().filter_map(|(name, vnic)| Some((name, vnic.netstack()?)));
        let info = |(name, netstack): (&LinkName, &NetstackName)| IfInfo {
            name: name.clone(),
            netstack: netstack.clone(),
            state: match self.facts.link_state(name) {
                LinkState::Up => "ok",
                // Nobody has marked it down: its link is.
                LinkState::Down => "failed",
                LinkState::Unknown => "disabled",
            }
            .to_owned(),
            persistent: self.persistent.vnics.get(name).is_some_and(|vnic| vnic.netstack().is_some()),
        };
        vnics.map(info).collect()
    }

    /// Netstacks.
    pub fn netstacks(&self) -> Vec<NetstackInfo> {
        let mut interfaces: BTreeMap<&NetstackName, Vec<LinkName>> = BTreeMap::new();
        for (name, vnic) in &self.model.vnics {
            if let Some(netstack) = vnic.netstack() {
                interfaces.entry(netstack).or_default().push(name.clone());
            }
        }
        let info = |(name, netstack): (&NetstackName, &firelane_model::Netstack)| {
            let routes = netstack.routes.iter();
            NetstackInfo {
                name: name.clone(),
                interfaces: interfaces.get(name).cloned().unwrap_or_default(),
                addresses: netstack.addresses.values().map(ToString::to_string).collect(),
                routes: routes.map(ToString::to_string).collect(),
                resolvers: self.resolvers_of(netstack),
            }
        };
        self.model.netstacks.iter().map(info).collect()
    }

    /// What all networks of a netstack say about names.
    fn resolvers_of(&self, netstack: &firelane_model::Netstack) -> ResolverInfo {
        let is_primary = |address: &Address| matches!(address, Address::Dhcp(it) if it.primary);
        let mut objects: Vec<_> = netstack.addresses.iter().collect();
        objects.sort_by_key(|(_, address)| !is_primary(address));
        let mut all = ResolverInfo::default();
        for (name, _) in objects {
            let leased = self.facts.leased(name);
            leased.iter().for_each(|it| all.append(&it.resolvers));
            all.append(&self.facts.resolvers(name));
        }
        all
    }

    /// The protocol properties of the netstack `name`.
    pub fn netstack_props(&self, name: &str) -> Result<Vec<ProtocolProperty>, ApiError> {
        let netstack = self.model.netstacks.get(name).ok_or(Status::NotFound)?;
        Ok(protocol_props::of_netstack(netstack, self.persistent.netstacks.get(name)))
    }

    /// The properties of the IP interface `name`.
    pub fn if_props(&self, name: &str) -> Result<Vec<ProtocolProperty>, ApiError> {
        if_props::of_interface(self.model, self.persistent, name)
    }

    /// The properties of the address object `name`.
    pub fn addr_props(&self, name: &str) -> Result<Vec<AddrProperty>, ApiError> {
        let known = self.model.addresses().find(|(_, it, _)| it.as_str() == name);
        let (_, name, address) =
            known.ok_or_else(|| ApiError::new(Status::NoAddrObj, "addrobj", name, ""))?;
        let leased = self.facts.leased(name).and_then(|it| it.prefix);
        Ok(addr_props::of_address(name, address, self.persistent, leased))
    }

    /// The properties of the link `name`.
    pub fn link_props(&self, name: &str) -> Result<Vec<Property>, ApiError> {
        let (name, _) = self.model.link_names().find(|(n, _)| n.as_str() == name).ok_or(Status::NotFound)?;
        Ok(self.props_of_link(name))
    }

    /// The properties of all links.
    pub fn all_link_props(&self) -> Vec<ObjectProps> {
        let of_link = |(name, _): (&LinkName, _)| ObjectProps {
            name: name.to_string(),
            properties: self.props_of_link(name),
        };
        self.model.link_names().map(of_link).collect()
    }

    fn props_of_link(&self, name: &LinkName) -> Vec<Property> {
        props::of_link(
            self.model,
            name,
            self.facts.link_state(name),
            self.facts.mac(name),
            self.speed(name),
            (&self.facts.cpus(name), &self.facts.rings(name)),
        )
    }

    /// The properties of the flow `name`.
    pub fn flow_props(&self, name: &str) -> Result<Vec<Property>, ApiError> {
        let of_flow = |(name, flow)| props::of_flow(flow, &self.facts.flow_cpus(name));
        self.model.flows.get_key_value(name).map(of_flow).ok_or_else(|| Status::NotFound.into())
    }

    /// The properties of all flows.
    pub fn all_flow_props(&self) -> Vec<ObjectProps> {
        let of_flow = |(name, flow): (&FlowName, &Flow)| ObjectProps {
            name: name.to_string(),
            properties: props::of_flow(flow, &self.facts.flow_cpus(name)),
        };
        self.model.flows.iter().map(of_flow).collect()
    }
}
