//! Filters of single sockets: which rules a socket can have, and their way to its lanes.
//!
//! Called by `tcp_listener.rs`, and for programs' sockets by `programs/`; the lanes ask the rules (`path/lane/src/stacks/admission.rs`).

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use firelane_filter::{FOREVER, FilterConfig, FilterCounts, FilterSetup};
use firelane_lane::SocketCommand;
use firelane_units::{FilterRule, IpPrefix, LaneId, LinkId, NetstackId, SocketId};

use crate::engine::Inner;
use crate::udp_socket::UdpSocket;

/// The filter of a socket, as its lanes follow it.
#[derive(Debug, Default)]
pub(crate) struct Followed(Mutex<Arc<FilterSetup>>);

impl Followed {
    /// Lets the socket's lanes follow another one, in which they look at no rule: it was made and compared here.
    pub(crate) fn change(
        &self,
        mut setup: FilterSetup,
        tell: impl FnOnce(&Arc<FilterSetup>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        setup.compare(&followed);
        let setup = Arc::new(setup);
        tell(&setup)?;
        // No lane follows the one before any more: it ends here and not in one of them.
        *followed = setup;
        Ok(())
    }
}

/// Rules that a socket can have, and pools whose members stay.
pub(crate) fn checked(
    rules: Vec<FilterRule<LinkId>>,
    pools: Vec<(u32, Vec<IpPrefix>)>,
) -> io::Result<FilterSetup> {
    let unfit = rules.iter().enumerate().find_map(|(nth, rule)| Some((nth, rule.unfit_for_socket()?)));
    if let Some((nth, why)) = unfit {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("rule {}: {why}", nth + 1)));
    }
    let lasting = |prefixes: Vec<IpPrefix>| prefixes.into_iter().map(|prefix| (prefix, FOREVER)).collect();
    let pools = pools.into_iter().map(|(pool, prefixes)| (pool, lasting(prefixes))).collect();
    let chance = RandomState::new();
    let key = (chance.hash_one(0_u8), chance.hash_one(1_u8));
    Ok(FilterSetup::new(FilterConfig { rules, pools }, key))
}

/// Lets lanes follow them.
pub(crate) fn tell(
    engine: &Inner,
    (netstack, socket): (NetstackId, SocketId),
    lanes: &[LaneId],
    setup: &Arc<FilterSetup>,
) -> io::Result<()> {
    engine.fabric.tell_lanes(netstack, lanes, || SocketCommand::Filter(socket, Arc::clone(setup)))
}

/// What the filter of a socket has counted, summed over its lanes.
pub(crate) fn counts(
    engine: &Inner,
    (netstack, socket): (NetstackId, SocketId),
    lanes: &[LaneId],
) -> FilterCounts {
    let mut sum = FilterCounts::default();
    for &lane in lanes {
        let counted = engine.fabric.visit(lane, |_, lane| lane.socket_filter_counts(netstack, socket));
        counted.flatten().iter().for_each(|counted| sum.merge(counted));
    }
    sum
}

impl UdpSocket {
    /// Gives it a filter of its own, or other rules, or none: each datagram is asked about from the next one on.
    ///
    /// # Errors
    /// A rule is about what goes out, keeps or logs something; the lane has failed.
    pub fn set_filter(
        &self,
        rules: Vec<FilterRule<LinkId>>,
        pools: Vec<(u32, Vec<IpPrefix>)>,
    ) -> io::Result<()> {
        let place = (self.shared.netstack(), self.socket);
        self.followed
            .change(checked(rules, pools)?, |setup| tell(&self.engine, place, &[self.shared.lane()], setup))
    }

    /// What its filter has counted; of rules since they were given.
    pub fn filter_counts(&self) -> FilterCounts {
        counts(&self.engine, (self.shared.netstack(), self.socket), &[self.shared.lane()])
    }
}
