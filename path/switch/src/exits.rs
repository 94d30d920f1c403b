//! Exits: the ports to which a frame goes whose station is at no port, and who lies beyond which of them.
//!
//! Called by `switch.rs`. The uplink is an exit, and so is each end of a wire. With one exit nothing is learned, since there is but
//! one way. With several of them the source addresses of what comes in by an exit say who lies beyond it, as in any bridge
//! (IEEE 802.1Q section 8.7), for [`STAY`]; what is for nobody known goes out by all of them. Stations of the switch are never learned.
//! The memory has one size: who floods it with invented sources, or chooses two that meet a station in its pair of places, makes frames go
//! by more exits than they need, no more. A secret would keep nobody from the former.
//! What one lane's replica learns the others are told, as often as an exit's [`Allowance`] lets it: a lane may read of no exit at all.

use core::time::Duration;

use firelane_units::{Instant, MacAddr, SwitchPortId, VlanId};

use crate::address_table::Key;
use crate::allowance::Allowance;
use crate::port::Port;

/// How long a station that is silent is still known: the ageing time of IEEE 802.1Q table 8-6.
const STAY: Duration = Duration::from_secs(300);
/// Stations that may be known, in pairs of places.
const PLACES: usize = 2048;

/// The exits of a switch.
#[derive(Clone, Default)]
pub(crate) struct Exits {
    ports: Vec<Exit>,
    /// Who lies beyond them; empty while nothing is to be learned.
    known: Vec<Known>,
}

/// One of them, and what is told of it.
#[derive(Clone)]
struct Exit {
    port: SwitchPortId,
    may_tell: Allowance,
}

/// A station beyond an exit.
#[derive(Clone, Copy)]
struct Known {
    key: Key,
    exit: SwitchPortId,
    heard: Instant,
    /// When all lanes were told that it is there.
    told: Option<Instant>,
}

/// Where a frame goes that is for nobody here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beyond {
    /// By one exit.
    Port(SwitchPortId),
    /// By all of its VLAN but the one that it came by.
    All,
    /// There is no other.
    Nowhere,
}

impl Exits {
    /// Makes a port an exit, or no more. What was known of who lies where is forgotten.
    pub(crate) fn set(&mut self, port: SwitchPortId, is_exit: bool) {
        self.ports.retain(|it| it.port != port);
        if is_exit {
            self.ports.push(Exit { port, may_tell: Allowance::default() });
        }
        self.known.clear();
        if self.ports.len() > 1 {
            let nobody = Known { key: Key::NOBODY, exit: port, heard: Instant::ZERO, told: None };
            self.known.resize(PLACES, nobody);
        }
    }

    /// Whether a port is one.
    #[inline]
    pub(crate) fn has(&self, port: SwitchPortId) -> bool {
        self.ports.iter().any(|it| it.port == port)
    }

    /// Whether there is anything to learn.
    #[inline]
    pub(crate) fn learn(&self) -> bool {
        !self.known.is_empty()
    }

    /// Notes that a station sends by `exit`. Whether other replicas are to hear it: they forget as this one does, and hear nothing themselves.
    pub(crate) fn note(
        &mut self,
        now: Instant,
        station: MacAddr,
        vlan: Option<VlanId>,
        exit: SwitchPortId,
    ) -> bool {
        let key = Key::new(station, vlan);
        let Some(place) = place_of(&mut self.known, station, key) else { return false };
        let is_same = place.key == key && place.exit == exit;
        let told = place.told.filter(|&at| is_same && now.saturating_since(at) < STAY / 2);
        let is_news = told.is_none()
            && self.ports.iter_mut().find(|it| it.port == exit).is_some_and(|it| it.may_tell.allow(now));
        *place = Known { key, exit, heard: now, told: if is_news { Some(now) } else { told } };
        is_news
    }

    /// Notes what another replica has heard.
    pub(crate) fn learn_of(
        &mut self,
        now: Instant,
        station: MacAddr,
        vlan: Option<VlanId>,
        exit: SwitchPortId,
    ) {
        let key = Key::new(station, vlan);
        if self.has(exit)
            && let Some(place) = place_of(&mut self.known, station, key)
        {
            *place = Known { key, exit, heard: now, told: Some(now) };
        }
    }

    /// The way of a frame from `ingress` to a station that is at no port.
    pub(crate) fn towards(
        &self,
        now: Instant,
        station: MacAddr,
        vlan: Option<VlanId>,
        ingress: SwitchPortId,
        ports: &[Option<Port>],
    ) -> Beyond {
        if let Some(exit) = self.known(now, station, vlan) {
            return if exit == ingress { Beyond::Nowhere } else { Beyond::Port(exit) };
        }
        let carries = |port: SwitchPortId| {
            port != ingress
                && ports.get(port.index()).and_then(Option::as_ref).is_some_and(|it| it.carries(vlan))
        };
        let mut exits = self.ports.iter().map(|it| it.port).filter(|&port| carries(port));
        match (exits.next(), exits.next()) {
            (None, _) => Beyond::Nowhere,
            (Some(exit), None) => Beyond::Port(exit),
            (Some(_), Some(_)) => Beyond::All,
        }
    }

    fn known(&self, now: Instant, station: MacAddr, vlan: Option<VlanId>) -> Option<SwitchPortId> {
        let key = Key::new(station, vlan);
        let pair = self.known.as_chunks::<2>().0.get(pair_of(key))?;
        let is_fresh = |it: &&Known| it.key == key && now.saturating_since(it.heard) < STAY;
        pair.iter().find(is_fresh).map(|it| it.exit)
    }
}

/// The place of a station that sends: its own, or that of who was silent for longest.
fn place_of(known: &mut [Known], station: MacAddr, key: Key) -> Option<&mut Known> {
    let [one, two] = known.as_chunks_mut::<2>().0.get_mut(pair_of(key)).filter(|_| station.is_unicast())?;
    Some(match (one.key == key, two.key == key) {
        (true, _) => one,
        (_, true) => two,
        _ if one.heard <= two.heard => one,
        _ => two,
    })
}

fn pair_of(key: Key) -> usize {
    key.hash() % (PLACES / 2)
}
