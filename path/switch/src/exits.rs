//! Exits: the ports to which a frame goes whose station is at no port, and who lies beyond which of them.
//!
//! Called by `switch.rs`. The uplink is an exit, and so is each end of a wire. With one exit nothing is learned, since there is but
//! one way. With several of them the source addresses of what comes in by an exit say who lies beyond it, as in any bridge
//! (IEEE 802.1Q section 8.7), for [`STAY`]; what is for nobody known goes out by all of them. Stations of the switch are never learned.
//! The memory has one size: who floods it with invented sources makes frames go by more exits than they need, no more.

use core::time::Duration;

use firelane_units::{Instant, MacAddr, SwitchPortId, VlanId};

use crate::address_table::Key;
use crate::port::Port;

/// How long a station that is silent is still known: the ageing time of IEEE 802.1Q table 8-6.
const STAY: Duration = Duration::from_secs(300);
/// Stations that may be known, in pairs of places.
const PLACES: usize = 2048;

/// The exits of a switch.
#[derive(Clone, Default)]
pub(crate) struct Exits {
    ports: Vec<SwitchPortId>,
    /// Who lies beyond them; empty while nothing is to be learned.
    known: Vec<Known>,
}

/// A station beyond an exit.
#[derive(Clone, Copy)]
struct Known {
    key: Key,
    exit: SwitchPortId,
    heard: Instant,
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
        self.ports.retain(|&it| it != port);
        if is_exit {
            self.ports.push(port);
        }
        self.known.clear();
        if self.ports.len() > 1 {
            let nobody = Known { key: Key::NOBODY, exit: port, heard: Instant::ZERO };
            self.known.resize(PLACES, nobody);
        }
    }

    /// Whether a port is one.
    #[inline]
    pub(crate) fn has(&self, port: SwitchPortId) -> bool {
        self.ports.contains(&port)
    }

    /// Whether there is anything to learn.
    #[inline]
    pub(crate) fn learn(&self) -> bool {
        !self.known.is_empty()
    }

    /// Notes that a station sends by `exit`.
    pub(crate) fn note(&mut self, now: Instant, station: MacAddr, vlan: Option<VlanId>, exit: SwitchPortId) {
        if !station.is_unicast() {
            return;
        }
        let key = Key::new(station, vlan);
        let Some([one, two]) = self.known.as_chunks_mut::<2>().0.get_mut(pair_of(key)) else { return };
        // In its own place, or in that of who was silent for longest.
        let place = match (one.key == key, two.key == key) {
            (true, _) => one,
            (_, true) => two,
            _ if one.heard <= two.heard => one,
            _ => two,
        };
        *place = Known { key, exit, heard: now };
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
        let mut exits = self.ports.iter().copied().filter(|&port| carries(port));
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

fn pair_of(key: Key) -> usize {
    key.hash() % (PLACES / 2)
}
