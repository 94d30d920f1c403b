//! Which lane of a netstack a packet belongs to.
//!
//! TCP by the symmetric hash of its tuple, so that both directions of a connection meet in one lane; UDP by its
//! local port, so that a socket has one lane whoever writes to it; everything else (ARP, neighbour discovery,
//! ICMP, fragments) in the netstack's home lane. Used by the link side for every frame that a netstack gets,
//! and by the engine to find a socket's lane.

use firelane_classify::{Fragment, Headers, Steering, SteeringKey, Tuple};
use firelane_units::{LaneId, Port};
use firelane_wire::IpProtocol;

/// The lane of an arriving packet.
#[inline]
pub(crate) fn lane_of(headers: &Headers, steering: &Steering, key: &SteeringKey) -> LaneId {
    if let Some(lane) = steering.only() {
        return lane;
    }
    match headers.protocol {
        IpProtocol::TCP => match headers.tuple() {
            Some(tuple) => steering.lane_of(tuple.symmetric_hash(key)),
            None => steering.home(),
        },
        IpProtocol::UDP => match headers.ports {
            Some((_, local)) if headers.fragment == Fragment::Whole => datagram_lane(local, steering, key),
            _ => steering.home(),
        },
        _ => steering.home(),
    }
}

/// The lane of a TCP connection.
pub fn connection_lane(tuple: &Tuple, steering: &Steering, key: &SteeringKey) -> LaneId {
    steering.lane_of(tuple.symmetric_hash(key))
}

/// The lane of a UDP socket by its local port.
#[inline]
pub fn datagram_lane(local: Port, steering: &Steering, key: &SteeringKey) -> LaneId {
    // Nobody gains by choosing ports that meet in one lane: they are the program's own sockets.
    let mixed = (u64::from(local.0) ^ key.0[0]).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    steering.lane_of((mixed >> 32) as u32)
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
