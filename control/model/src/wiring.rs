//! What wires may join: two links, of which a VNIC has no user, that no other wires join already.
//!
//! A switch sends what is for all by every wire, so a ring of wires would carry a broadcast for ever. The model's links and wires
//! are therefore a forest. Called by `validate.rs` for a whole model, and by the API for one more wire.

use std::collections::BTreeMap;
use std::fmt;

use firelane_units::Mtu;

use crate::vnic::VnicUser;
use crate::{LinkKind, LinkName, Model, Over, Sharing, Wire};

/// Why a wire cannot be where it is to be. Each has the end that is at fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WiringFault {
    /// There is no such link.
    Unknown(LinkName),
    /// A tunnel carries packets, and has no neighbours.
    Tunnel(LinkName),
    /// The VNIC has a user.
    Used(LinkName),
    /// The kernel keeps the interface below as well.
    Shared(LinkName),
    /// The VNIC is an end of another wire.
    Taken(LinkName, LinkName),
    /// Both ends are at the same switch, or other wires join them already.
    Loop(LinkName),
}

impl WiringFault {
    /// The end.
    pub const fn end(&self) -> &LinkName {
        match self {
            Self::Unknown(end)
            | Self::Tunnel(end)
            | Self::Used(end)
            | Self::Shared(end)
            | Self::Taken(end, _)
            | Self::Loop(end) => end,
        }
    }
}

impl fmt::Display for WiringFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(_) => f.write_str("is unknown; a wire is between two links, etherstubs or VNICs"),
            Self::Tunnel(_) => f.write_str("is a tunnel, which carries no frames"),
            Self::Used(_) => f.write_str("has a user; a wire's VNIC has none"),
            Self::Shared(_) => f.write_str(
                "is at an interface that the kernel keeps as well (shared = true); what is behind a wire needs every frame",
            ),
            Self::Taken(_, wire) => write!(f, "is an end of wire {wire}; a VNIC has one at most"),
            Self::Loop(_) => {
                f.write_str("is joined with the other end already; frames for all would go round for ever")
            }
        }
    }
}

impl Model {
    /// Why `wire` cannot be beside those that the model has.
    ///
    /// # Errors
    /// The first fault.
    pub fn check_wiring(&self, wire: &Wire) -> Result<(), WiringFault> {
        let mut wired = Wired::default();
        for (name, other) in &self.wires {
            wired.add(self, name, other);
        }
        self.check_ends(wire)?;
        wired.check(self, wire)
    }

    /// The wires that cannot be beside those before them, and why.
    pub(crate) fn wiring_faults(&self) -> impl Iterator<Item = (&LinkName, WiringFault)> {
        let mut wired = Wired::default();
        self.wires.iter().filter_map(move |(name, wire)| {
            let checked = self.check_ends(wire).and_then(|()| wired.check(self, wire));
            wired.add(self, name, wire);
            Some((name, checked.err()?))
        })
    }

    fn check_ends(&self, wire: &Wire) -> Result<(), WiringFault> {
        wire.ends.iter().try_for_each(|end| self.check_end(end))
    }

    fn check_end(&self, end: &LinkName) -> Result<(), WiringFault> {
        match self.vnics.get(end) {
            _ if self.class_of(end.as_str()).is_none() => Err(WiringFault::Unknown(end.clone())),
            Some(vnic) if vnic.over.tunnel().is_some() => Err(WiringFault::Tunnel(end.clone())),
            Some(vnic) if vnic.user != VnicUser::Nobody => Err(WiringFault::Used(end.clone())),
            _ if self.sharing_below(end) == Some(Sharing::Shared) => Err(WiringFault::Shared(end.clone())),
            _ => Ok(()),
        }
    }

    /// Whether the kernel keeps the interface as well that the end of a wire is at.
    fn sharing_below(&self, end: &LinkName) -> Option<Sharing> {
        match &self.links.get(self.switch_of(end))?.kind {
            LinkKind::Nic(nic) => Some(nic.sharing),
            _ => None,
        }
    }

    /// Whether wires lead on from a link or from VNICs over it.
    pub fn is_wired(&self, link: &LinkName) -> bool {
        self.wires.values().flat_map(|wire| &wire.ends).any(|end| self.switch_of(end) == link)
    }

    /// The link or etherstub whose switch the end of a wire is at.
    pub fn switch_of<'a>(&'a self, end: &'a LinkName) -> &'a LinkName {
        self.vnics.get(end).and_then(|vnic| vnic.over.link()).unwrap_or(end)
    }

    /// The largest packet that goes by a wire: that of the smaller end.
    pub fn wire_mtu(&self, wire: &Wire) -> Option<Mtu> {
        let [one, two] = wire.ends.each_ref().map(|end| match self.vnics.get(end) {
            Some(vnic) => match &vnic.over {
                Over::Link(over) => vnic.mtu.or_else(|| self.lower_mtu(over.as_str())),
                Over::Tunnel(_) => None,
            },
            None => self.lower_mtu(end.as_str()),
        });
        Some(one?.min(two?))
    }
}

/// Wires, one after the other, of which each is looked up beside all before it without asking them one by one.
#[derive(Default)]
struct Wired<'a> {
    /// The ends that are taken, by which wire.
    taken: BTreeMap<&'a LinkName, &'a LinkName>,
    joined: Joined<'a>,
}

impl<'a> Wired<'a> {
    /// Whether another wire may be beside these.
    fn check(&self, model: &Model, wire: &Wire) -> Result<(), WiringFault> {
        for end in wire.ends.iter().filter(|end| model.vnics.contains_key(*end)) {
            if let Some(&other) = self.taken.get(end) {
                return Err(WiringFault::Taken(end.clone(), other.clone()));
            }
        }
        let [one, two] = wire.ends.each_ref().map(|end| self.joined.root(model.switch_of(end)));
        if one == two { Err(WiringFault::Loop(wire.ends[1].clone())) } else { Ok(()) }
    }

    fn add(&mut self, model: &'a Model, name: &'a LinkName, wire: &'a Wire) {
        for end in &wire.ends {
            self.taken.insert(end, name);
        }
        let [one, two] = wire.ends.each_ref().map(|end| model.switch_of(end));
        self.joined.join(one, two);
    }
}

/// Which switches are joined: each has the name of one of those that it is joined with, and who has none of another is of so many.
/// The fewer follow the more, so that nobody is far from there.
#[derive(Default)]
struct Joined<'a> {
    with: BTreeMap<&'a LinkName, &'a LinkName>,
    of: BTreeMap<&'a LinkName, usize>,
}

impl<'a> Joined<'a> {
    fn root<'b>(&self, mut at: &'b LinkName) -> &'b LinkName
    where
        'a: 'b,
    {
        while let Some(&next) = self.with.get(at) {
            at = next;
        }
        at
    }

    fn join(&mut self, one: &'a LinkName, two: &'a LinkName) {
        let (one, two) = (self.root(one), self.root(two));
        if one == two {
            return;
        }
        let [ones, twos] = [one, two].map(|it| self.of.get(it).copied().unwrap_or(1));
        let (fewer, more) = if ones < twos { (one, two) } else { (two, one) };
        self.with.insert(fewer, more);
        self.of.insert(more, ones + twos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKS: &str = r#"
[link.n0]
kind = "tap"
ifname = "n0"
[etherstub.a0]
[etherstub.b0]
mtu = 1400
[etherstub.c0]
[netstack.web]
[vnic.used0]
over = "a0"
netstack = "web"
[vnic.v0]
over = "n0"
vlan = 7
[vnic.v1]
over = "n0"
mtu = 1300
[link.kept0]
kind = "nic"
ifname = "k0"
shared = true
[link.own0]
kind = "nic"
ifname = "k1"
shared = false
[vnic.v2]
over = "kept0"
[vnic.tun0]
iptun = { type = "gre", local = "10.0.0.1", remote = "10.0.0.2" }
"#;

    fn model(wires: &[[&str; 2]]) -> Result<Model, String> {
        let mut text = LINKS.to_owned();
        for (n, [one, two]) in wires.iter().enumerate() {
            text.push_str(&format!("[wire.w{n}]\nends = [\"{one}\", \"{two}\"]\n"));
        }
        Model::from_toml("f.toml", &text).map_err(|errors| errors[0].to_string())
    }

    #[test]
    fn a_wire_is_between_any_two_links_as_long_as_there_is_no_ring() {
        let good: &[&[[&str; 2]]] = &[
            &[["a0", "b0"], ["b0", "c0"], ["n0", "c0"]],
            &[["n0", "a0"], ["n0", "b0"]],
            &[["v0", "a0"], ["v1", "b0"]],
            &[["v0", "a0"], ["a0", "b0"]],
            &[["own0", "a0"]],
        ];
        for wires in good {
            model(wires).unwrap_or_else(|error| panic!("{wires:?}: {error}"));
        }
        for (wires, why) in [
            (&[["a0", "a0"]] as &[[&str; 2]], "for ever"),
            (&[["v0", "v1"]], "for ever"),
            (&[["v0", "n0"]], "for ever"),
            (&[["a0", "b0"], ["b0", "a0"]], "for ever"),
            (&[["a0", "b0"], ["b0", "c0"], ["c0", "a0"]], "for ever"),
            (&[["n0", "a0"], ["v0", "a0"]], "for ever"),
            (&[["v0", "a0"], ["v0", "b0"]], "is an end of wire w0"),
            (&[["used0", "b0"]], "has a user"),
            (&[["a0", "kept0"]], "is at an interface that the kernel keeps as well"),
            (&[["v2", "a0"]], "is at an interface that the kernel keeps as well"),
            (&[["tun0", "b0"]], "carries no frames"),
            (&[["nobody0", "b0"]], "is unknown"),
        ] {
            let error = model(wires).map(drop).unwrap_err();
            assert!(error.contains(why), "{wires:?}: {error}");
        }
    }

    #[test]
    fn a_wire_carries_what_both_its_ends_do() {
        let model = model(&[["a0", "b0"], ["v1", "c0"]]).unwrap();
        let mtu = |name: &str| model.wire_mtu(&model.wires[name]);
        assert_eq!((mtu("w0"), mtu("w1")), (Mtu::new(1400), Mtu::new(1300)));
    }
}
