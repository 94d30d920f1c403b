//! Filters of single sockets: which rules a socket can have, and their way to its lanes.
//!
//! Called by `tcp_listener.rs`, and for programs' sockets by `programs/`; the lanes ask the rules (`path/lane/src/stacks/admission.rs`).

use std::io;
use std::sync::Arc;

use firelane_filter::{FilterConfig, FilterCounts};
use firelane_lane::SocketCommand;
use firelane_units::{FilterRule, IpPrefix, LaneId, LinkId, NetstackId, SocketId};

use crate::engine::Inner;
use crate::filter::config_of;
use crate::udp_socket::UdpSocket;

/// Gives a socket of these lanes other rules.
pub(crate) fn set(
    engine: &Inner,
    place: (NetstackId, SocketId),
    lanes: &[LaneId],
    rules: Vec<FilterRule<LinkId>>,
    pools: Vec<(u32, Vec<IpPrefix>)>,
) -> io::Result<()> {
    tell(engine, place, lanes, &checked(rules, pools)?)
}

/// Rules that a socket can have.
pub(crate) fn checked(
    rules: Vec<FilterRule<LinkId>>,
    pools: Vec<(u32, Vec<IpPrefix>)>,
) -> io::Result<Arc<FilterConfig>> {
    let unfit = rules.iter().enumerate().find_map(|(nth, rule)| Some((nth, rule.unfit_for_socket()?)));
    match unfit {
        Some((nth, why)) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("rule {}: {why}", nth + 1)))
        }
        None => Ok(config_of(rules, pools)),
    }
}

/// Lets lanes follow them.
pub(crate) fn tell(
    engine: &Inner,
    (netstack, socket): (NetstackId, SocketId),
    lanes: &[LaneId],
    config: &Arc<FilterConfig>,
) -> io::Result<()> {
    engine.fabric.tell_lanes(netstack, lanes, || SocketCommand::Filter(socket, Arc::clone(config)))
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
        set(&self.engine, (self.shared.netstack(), self.socket), &[self.shared.lane()], rules, pools)
    }

    /// What its filter has counted; of rules since they were given.
    pub fn filter_counts(&self) -> FilterCounts {
        counts(&self.engine, (self.shared.netstack(), self.socket), &[self.shared.lane()])
    }
}
