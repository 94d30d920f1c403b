//! Filters of single sockets: which rules a socket can have, and their way to its lanes.
//!
//! Called by `tcp_listener.rs`; the lanes ask the rules (`path/lane/src/stacks/admission.rs`).

use std::io;

use firelane_filter::FilterCounts;
use firelane_lane::{LaneMessage, SocketCommand};
use firelane_units::{Direction, FilterAction, FilterRule, IpPrefix, LaneId, LinkId, NetstackId, SocketId};

use crate::engine::Inner;
use crate::error::lane_failed;
use crate::filter::config_of;
use crate::udp_socket::UdpSocket;

/// Gives a socket of these lanes other rules.
pub(crate) fn set(
    engine: &Inner,
    (netstack, socket): (NetstackId, SocketId),
    lanes: &[LaneId],
    rules: Vec<FilterRule<LinkId>>,
    pools: Vec<(u32, Vec<IpPrefix>)>,
) -> io::Result<()> {
    if let Some(refused) = rules.iter().enumerate().find_map(|(nth, rule)| Some((nth, refusal(rule)?))) {
        let (nth, why) = refused;
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("rule {}: {why}", nth + 1)));
    }
    let config = config_of(rules, pools);
    for &lane in lanes {
        let command = SocketCommand::Filter(socket, config.clone());
        engine
            .fabric
            .enter_surely(lane, LaneMessage::Socket(netstack, command))
            .map_err(|_| lane_failed())?;
    }
    Ok(())
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

/// Why a socket cannot have a rule.
fn refusal(rule: &FilterRule<LinkId>) -> Option<&'static str> {
    match rule {
        _ if rule.direction == Direction::Out => Some("a socket's rules are about what comes in"),
        _ if rule.keep_state.is_some() => {
            Some("a socket's rules keep no state: a connection that has begun is not asked about again")
        }
        _ if rule.keep_frags => Some("a socket's rules keep no fragments: a socket gets whole packets"),
        _ if rule.log.is_some() || rule.action == FilterAction::Log => {
            Some("a socket's rules do not log: filter_counts tells what each has met")
        }
        _ => None,
    }
}
