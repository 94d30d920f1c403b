//! What a flow rule pins: its attributes, and the same as bits that a look-up compares.
//!
//! Owns [`FlowMatch`] and its two halves: which bits count ([`Mask`]) and what they must be ([`Key`]). Called by
//! `rules.rs`, which sorts rules by the first and finds them by the second.

use core::cmp::Reverse;
use core::net::IpAddr;

use firelane_units::{Direction, DsField, IpPrefix, MacAddr, Port, PortRange, VlanId};
use firelane_wire::IpProtocol;

use crate::headers::{Headers, L3};
use crate::mix::{fold, halves};
use crate::rules::RuleError;
use crate::tuple::mapped;

/// What a flow's packets have in common. Absent attributes match everything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowMatch {
    /// The local address.
    pub local_ip: Option<IpPrefix>,
    /// The remote address.
    pub remote_ip: Option<IpPrefix>,
    /// The transport protocol.
    pub transport: Option<IpProtocol>,
    /// The local ports.
    pub local_port: Option<PortRange>,
    /// The remote ports.
    pub remote_port: Option<PortRange>,
    /// The DS field.
    pub dsfield: Option<DsField>,
    /// The VLAN of the frame's tag.
    pub vlan: Option<VlanId>,
    /// The local station.
    pub local_mac: Option<MacAddr>,
    /// The remote station.
    pub remote_mac: Option<MacAddr>,
}

/// Which bits of a packet are pinned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Mask {
    pub(crate) bits: Key,
    pub(crate) family: Family,
    pub(crate) ranged: Ranged,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Family {
    Any,
    V4,
    V6,
}

/// Which ports are pinned to a range of them. Their bits are not in the mask.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Ranged {
    pub(crate) local: bool,
    pub(crate) remote: bool,
}

/// A packet's values, the pinned bits of them, or their mask. IPv4 addresses are in mapped form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(crate) local: u128,
    pub(crate) remote: u128,
    pub(crate) local_mac: u64,
    pub(crate) remote_mac: u64,
    /// VLAN, protocol, local port, remote port and DS field, from high to low.
    pub(crate) rest: u64,
}

/// A rule, taken apart.
pub(crate) struct Pins {
    pub(crate) mask: Mask,
    pub(crate) key: Key,
    /// Local and remote; every port if it is not the mask's to range over.
    pub(crate) ranges: [PortRange; 2],
}

/// Where a rule stands among others (`rules.rs`): of those that match a packet the lowest decides. Rules that differ in values alone
/// have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rank {
    pinned: Reverse<(u32, Mask)>,
    widths: [u16; 2],
    ranges: [PortRange; 2],
}

/// What a look-up must know of a packet before a set of rules can apply to it, one bit each.
pub(crate) mod needs {
    pub(crate) const IP: u8 = 1;
    pub(crate) const V4: u8 = 2;
    pub(crate) const V6: u8 = 4;
    pub(crate) const PORTS: u8 = 8;
}

const ALL_PORTS: PortRange = PortRange::new(Port(0), Port(u16::MAX)).expect("zero comes first");

/// What a range of ports counts in the order, whatever its width: more than no port and less than one.
const RANGE_PINS: u32 = 8;

impl FlowMatch {
    /// Whether all that it pins stays the same for a connection's life. The rest is what single packets have or not.
    pub const fn tells_connections(&self) -> bool {
        let Self { dsfield, vlan, local_mac, remote_mac, .. } = self;
        dsfield.is_none() && vlan.is_none() && local_mac.is_none() && remote_mac.is_none()
    }

    /// Its place in the order in which rules are asked; none of a rule that cannot be.
    pub fn rank(&self) -> Option<Rank> {
        let Pins { mask, ranges, .. } = self.compile().ok()?;
        Some(Rank { pinned: mask.order(), widths: ranges.map(PortRange::width), ranges })
    }

    /// Takes the rule apart: which bits it pins, to what, and the ranges of ports.
    pub(crate) fn compile(&self) -> Result<Pins, RuleError> {
        if *self == Self::default() {
            return Err(RuleError::Empty);
        }
        let family = match (self.local_ip.map(family), self.remote_ip.map(family)) {
            (None, None) => Family::Any,
            (Some(a), Some(b)) if a != b => return Err(RuleError::MixedFamilies),
            (Some(named), _) | (None, Some(named)) => named,
        };
        let is_range = |ports: Option<PortRange>| ports.is_some_and(|it| it.single().is_none());
        let single = |ports: Option<PortRange>| {
            ports.and_then(PortRange::single).map_or((0, 0), |port| (port.0, u16::MAX))
        };
        let range = |ports: Option<PortRange>| ports.filter(|_| is_range(ports)).unwrap_or(ALL_PORTS);
        let (local_port, local_mask) = single(self.local_port);
        let (remote_port, remote_mask) = single(self.remote_port);
        let (protocol, protocol_mask) = self.transport.map_or((0, 0), |t| (t.0, u8::MAX));
        let (ds, ds_mask) = self.dsfield.map_or((0, 0), |ds| (ds.value(), ds.mask()));
        let (vlan, vlan_mask) = self.vlan.map_or((0, 0), |vlan| (vlan.id(), VLAN_BITS));
        let mask = Key {
            local: self.local_ip.map_or(0, mask_bits),
            remote: self.remote_ip.map_or(0, mask_bits),
            local_mac: self.local_mac.map_or(0, |_| MAC_BITS),
            remote_mac: self.remote_mac.map_or(0, |_| MAC_BITS),
            rest: pack(vlan_mask, protocol_mask, local_mask, remote_mask, ds_mask),
        };
        let key = Key {
            local: self.local_ip.map_or(0, |p| bits(p.addr())),
            remote: self.remote_ip.map_or(0, |p| bits(p.addr())),
            local_mac: self.local_mac.map_or(0, MacAddr::to_u64),
            remote_mac: self.remote_mac.map_or(0, MacAddr::to_u64),
            rest: pack(vlan, protocol, local_port, remote_port, ds),
        };
        let ranged = Ranged { local: is_range(self.local_port), remote: is_range(self.remote_port) };
        let ranges = [range(self.local_port), range(self.remote_port)];
        Ok(Pins { mask: Mask { bits: mask, family, ranged }, key: key.masked(&mask), ranges })
    }
}

impl Ranged {
    pub(crate) const fn any(self) -> bool {
        self.local || self.remote
    }
}

impl Mask {
    /// How many bits are pinned.
    fn pinned(&self) -> u32 {
        let named = u32::from(self.family != Family::Any);
        // The mapped form's first 96 bits are pinned by the family already.
        let address = |mask: u128| match self.family {
            Family::V4 => (mask as u32).count_ones(),
            Family::Any | Family::V6 => mask.count_ones(),
        };
        let stations = self.bits.local_mac.count_ones() + self.bits.remote_mac.count_ones();
        let ranges = (u32::from(self.ranged.local) + u32::from(self.ranged.remote)) * RANGE_PINS;
        let addresses = address(self.bits.local) + address(self.bits.remote);
        named + addresses + stations + self.bits.rest.count_ones() + ranges
    }

    /// What the sets are sorted by: the first is the most specific.
    pub(crate) fn order(&self) -> Reverse<(u32, Self)> {
        Reverse((self.pinned(), *self))
    }

    /// Whether VLAN, protocol, single ports and DS field are all that is pinned.
    pub(crate) fn is_plain(&self) -> bool {
        let Key { local, remote, local_mac, remote_mac, rest: _ } = self.bits;
        local | remote == 0 && local_mac | remote_mac == 0 && !self.ranged.any()
    }

    /// What a packet must have, as [`needs`] names it.
    pub(crate) fn needs(&self) -> u8 {
        let family = match self.family {
            Family::Any => 0,
            Family::V4 => needs::V4,
            Family::V6 => needs::V6,
        };
        let ports = self.ranged.any() || self.bits.rest & PORTS != 0;
        let packet = ports || self.bits.rest & pack(0, u8::MAX, 0, 0, u8::MAX) != 0;
        family | if packet { needs::IP } else { 0 } | if ports { needs::PORTS } else { 0 }
    }
}

/// What a packet has of [`needs`].
#[inline]
pub(crate) fn has(headers: &Headers) -> u8 {
    let family = match headers.l3 {
        L3::V4 { .. } => needs::IP | needs::V4,
        L3::V6 { .. } => needs::IP | needs::V6,
        L3::Arp | L3::Malformed | L3::Other => return 0,
    };
    family | if headers.ports.is_some() { needs::PORTS } else { 0 }
}

impl Key {
    /// What a packet pins beside its addresses.
    #[inline]
    pub(crate) fn rest_of(headers: &Headers, direction: Direction) -> u64 {
        let (src, dst) = headers.ports.map_or((0, 0), |(s, d)| (s.0, d.0));
        let (local, remote) = match direction {
            Direction::In => (dst, src),
            Direction::Out => (src, dst),
        };
        let vlan = headers.vlan.map_or(0, VlanId::id);
        pack(vlan, headers.protocol.0, local, remote, headers.dsfield)
    }

    /// All values of a packet.
    #[inline]
    pub(crate) fn of(headers: &Headers, direction: Direction, rest: u64) -> Self {
        let (src, dst) = match headers.l3 {
            L3::V4 { src, dst } => (mapped(src), mapped(dst)),
            L3::V6 { src, dst } => (src.to_bits(), dst.to_bits()),
            L3::Arp | L3::Malformed | L3::Other => (0, 0),
        };
        let (src_mac, dst_mac) = (headers.src.to_u64(), headers.dst.to_u64());
        match direction {
            Direction::In => Self { local: dst, remote: src, local_mac: dst_mac, remote_mac: src_mac, rest },
            Direction::Out => Self { local: src, remote: dst, local_mac: src_mac, remote_mac: dst_mac, rest },
        }
    }

    #[inline]
    pub(crate) const fn masked(&self, mask: &Self) -> Self {
        Self {
            local: self.local & mask.local,
            remote: self.remote & mask.remote,
            local_mac: self.local_mac & mask.local_mac,
            remote_mac: self.remote_mac & mask.remote_mac,
            rest: self.rest & mask.rest,
        }
    }

    /// Only the operator chooses what a table holds, so the constants need not be secret.
    #[inline]
    pub(crate) const fn hash(&self) -> u64 {
        let rest = self.rest ^ 0x8ebc_6af0_9c88_c6e3;
        let [local_high, local_low] = halves(self.local);
        let [remote_high, remote_low] = halves(self.remote);
        let a = fold(local_low ^ 0x9e37_79b9_7f4a_7c15, local_high ^ 0xd1b5_4a32_d192_ed03);
        let b = fold(remote_low ^ 0xa076_1d64_78bd_642f, remote_high ^ 0xe703_7ed1_a0b4_28db);
        let stations = fold(self.local_mac ^ 0x5896_36c3_9f51_8d4b, self.remote_mac ^ 0xc2b2_ae3d_27d4_eb4f);
        fold(a ^ b.rotate_left(32) ^ stations, rest)
    }
}

/// The local and the remote port of a [`Key::rest_of`].
#[inline]
pub(crate) const fn ports_of(rest: u64) -> [Port; 2] {
    [Port((rest >> 24) as u16), Port((rest >> 8) as u16)]
}

const MAC_BITS: u64 = (1 << 48) - 1;
const VLAN_BITS: u16 = 0xfff;

/// The port bits of [`pack`].
const PORTS: u64 = pack(0, 0, u16::MAX, u16::MAX, 0);

#[inline]
const fn pack(vlan: u16, protocol: u8, local_port: u16, remote_port: u16, dsfield: u8) -> u64 {
    let upper = (vlan as u64) << 48 | (protocol as u64) << 40;
    upper | (local_port as u64) << 24 | (remote_port as u64) << 8 | dsfield as u64
}

const fn family(prefix: IpPrefix) -> Family {
    if prefix.addr().is_ipv4() { Family::V4 } else { Family::V6 }
}

const fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => mapped(a),
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// The prefix's mask on the mapped form. Length zero pins the family only, as every such prefix does.
fn mask_bits(prefix: IpPrefix) -> u128 {
    let width = if prefix.addr().is_ipv4() { 32 } else { 128 };
    match prefix.prefix_len() {
        0 => 0,
        len => u128::MAX << (width - u32::from(len)),
    }
}
