//! Which lane of a netstack a packet belongs to.
//!
//! TCP by the symmetric hash of its tuple, so that both directions of a connection meet in one lane; UDP by its
//! local port, so that a socket has one lane whoever writes to it; everything else (ARP, neighbour discovery,
//! ICMP, fragments) in the netstack's home lane, which asks others about some of it (`stacks/filtered.rs`). Flows with lanes of their own come before both. Used by the link side for
//! every frame that a netstack gets, and by the engine to find a socket's lane.

use firelane_classify::{FlowLanes, Fragment, Headers, Steering, SteeringKey, Tuple};
use firelane_units::{LaneId, Port};
use firelane_wire::IpProtocol;

/// The lane of a packet that arrives by a link.
#[inline]
pub(crate) fn lane_of(headers: &Headers, steering: &Steering, key: &SteeringKey) -> LaneId {
    match steering.only() {
        Some(lane) => lane,
        None => lane_by(headers, steering, steering.flows(), key),
    }
}

/// The lane of a packet that a netstack sends to itself. Flows' lanes are not for its connections with itself: at one end
/// of such a one another flow has a say than at the other, and both ends are in one lane.
#[inline]
pub(crate) fn lane_of_loop(headers: &Headers, steering: &Steering, key: &SteeringKey) -> LaneId {
    match headers.protocol {
        IpProtocol::TCP => lane_by(headers, steering, None, key),
        _ => lane_of(headers, steering, key),
    }
}

fn lane_by(headers: &Headers, steering: &Steering, flows: Option<&FlowLanes>, key: &SteeringKey) -> LaneId {
    match headers.protocol {
        IpProtocol::TCP => match headers.tuple() {
            Some(tuple) => connection_by(&tuple, steering, flows, key),
            None => steering.home(),
        },
        IpProtocol::UDP => match headers.ports {
            Some((_, local)) if headers.fragment == Fragment::Whole => {
                datagrams_by(local, steering, flows, key)
            }
            _ => steering.home(),
        },
        _ => steering.home(),
    }
}

/// The lane of a TCP connection by a link.
pub fn connection_lane(tuple: &Tuple, steering: &Steering, key: &SteeringKey) -> LaneId {
    connection_by(tuple, steering, steering.flows(), key)
}

/// The lane of a netstack's connection with itself.
pub(crate) fn loop_lane(tuple: &Tuple, steering: &Steering, key: &SteeringKey) -> LaneId {
    connection_by(tuple, steering, None, key)
}

fn connection_by(tuple: &Tuple, steering: &Steering, flows: Option<&FlowLanes>, key: &SteeringKey) -> LaneId {
    let hash = || tuple.symmetric_hash(key);
    let own = flows.and_then(|flows| flows.of_connection(tuple, hash));
    own.unwrap_or_else(|| steering.lane_of(hash()))
}

/// The lane of a UDP socket by its local port.
#[inline]
pub fn datagram_lane(local: Port, steering: &Steering, key: &SteeringKey) -> LaneId {
    datagrams_by(local, steering, steering.flows(), key)
}

fn datagrams_by(local: Port, steering: &Steering, flows: Option<&FlowLanes>, key: &SteeringKey) -> LaneId {
    // Nobody gains by choosing ports that meet in one lane: they are the program's own sockets.
    let mixed = (u64::from(local.0) ^ key.0[0]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = (mixed >> 32) as u32;
    let own = flows.and_then(|flows| flows.of_datagrams(local, || hash));
    own.unwrap_or_else(|| steering.lane_of(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_ports_spread_over_the_lanes() {
        let lanes = [LaneId(0), LaneId(1), LaneId(2), LaneId(3)];
        let steering = Steering::even(&lanes);
        let key = SteeringKey([1, 2, 3, 4]);
        let mut counts = [0; 4];
        for port in 1..=4000 {
            counts[datagram_lane(Port(port), &steering, &key).index()] += 1;
        }
        assert!(counts.iter().all(|&n| (700..1300).contains(&n)), "{counts:?}");
    }
}
