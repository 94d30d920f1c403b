//! Lanes of flows' own: which connections and datagram sockets of a netstack are in lanes that a flow of its VNICs names.
//!
//! Part of a netstack's [`Steering`](crate::Steering), the same in all its lanes; changed by message as a whole. The most specific
//! flow decides, as it does for limits (`rules.rs`), so the flows without lanes of their own are here, too. What a packet may
//! have or not (DS field, VLAN, stations) tells no connection, and flows that pin such things are not asked.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_units::{Direction, FlowId, LaneId, Port};
use firelane_wire::IpProtocol;

use crate::headers::{Headers, L3};
use crate::pins::FlowMatch;
use crate::rules::{FlowRules, RuleError};
use crate::tuple::Tuple;

/// The lanes of a netstack's flows.
#[derive(Clone, Debug, Default)]
pub struct FlowLanes {
    rules: FlowRules,
    /// By flow. One without lanes of its own leaves its connections to the netstack's.
    lanes: Vec<(FlowId, Vec<LaneId>)>,
}

impl FlowLanes {
    /// No flows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a flow with its lanes, or with none of its own.
    ///
    /// # Errors
    /// Those of [`FlowRules::insert`]. Of two flows with the same attributes (those of two VNICs) the first counts.
    pub fn insert(&mut self, rule: &FlowMatch, flow: FlowId, lanes: Vec<LaneId>) -> Result<(), RuleError> {
        if !rule.tells_connections() {
            return Ok(());
        }
        self.rules.insert(rule, flow)?;
        let at = self.lanes.partition_point(|&(other, _)| other < flow);
        self.lanes.insert(at, (flow, lanes));
        Ok(())
    }

    /// All lanes that are some flow's own, each once, in order.
    pub fn lanes(&self) -> Vec<LaneId> {
        let mut lanes: Vec<_> = self.lanes.iter().flat_map(|(_, lanes)| lanes.iter().copied()).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }

    /// The lane of a connection whose ends have this `hash`, if its flow has lanes of its own.
    pub fn of_connection(&self, tuple: &Tuple, hash: impl FnOnce() -> u32) -> Option<LaneId> {
        let l3 = match (tuple.remote(), tuple.local()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => L3::V4 { src, dst },
            (IpAddr::V6(src), IpAddr::V6(dst)) => L3::V6 { src, dst },
            _ => return None,
        };
        let ports = (tuple.remote_port(), tuple.local_port());
        self.lane_of(self.found(tuple.protocol(), l3, ports)?, hash)
    }

    /// The lane of a datagram socket with this local port, if a flow that names nothing else has lanes of its own: whoever writes to
    /// it, a socket has one lane.
    pub fn of_datagrams(&self, local: Port, hash: impl FnOnce() -> u32) -> Option<LaneId> {
        let ports = (Port(0), local);
        let (src, dst) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED);
        let v6 = L3::V6 { src: Ipv6Addr::UNSPECIFIED, dst: Ipv6Addr::UNSPECIFIED };
        // A socket may be of both families, and is of one lane.
        let of_v4 = self.found(IpProtocol::UDP, L3::V4 { src, dst }, ports)?;
        let of_v6 = self.found(IpProtocol::UDP, v6, ports)?;
        if of_v4 == of_v6 { self.lane_of(of_v4, hash) } else { None }
    }

    fn found(&self, protocol: IpProtocol, l3: L3, ports: (Port, Port)) -> Option<FlowId> {
        let headers = Headers { l3, protocol, ports: Some(ports), ..Headers::EMPTY };
        self.rules.lookup(&headers, Direction::In)
    }

    fn lane_of(&self, flow: FlowId, hash: impl FnOnce() -> u32) -> Option<LaneId> {
        let at = self.lanes.binary_search_by_key(&flow, |&(flow, _)| flow).ok()?;
        match self.lanes[at].1.as_slice() {
            [] => None,
            &[only] => Some(only),
            several => Some(several[hash() as usize % several.len()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows(rules: &[(&str, FlowMatch, &[u16])]) -> FlowLanes {
        let mut flows = FlowLanes::new();
        for (nth, (name, rule, lanes)) in (0..).zip(rules) {
            let lanes = lanes.iter().map(|&lane| LaneId(lane)).collect();
            flows.insert(rule, FlowId(nth), lanes).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        }
        flows
    }

    fn port(text: &str) -> FlowMatch {
        FlowMatch { local_port: Some(text.parse().unwrap()), ..FlowMatch::default() }
    }

    fn tuple(local: &str, remote: &str) -> Tuple {
        let end = |text: &str| {
            let it: core::net::SocketAddr = text.parse().unwrap();
            (it.ip(), Port(it.port()))
        };
        Tuple::new(IpProtocol::TCP, end(local), end(remote)).unwrap()
    }

    #[test]
    fn the_most_specific_flow_decides_also_if_it_has_no_lanes() {
        let of_friend = FlowMatch { remote_ip: Some("10.0.0.7/32".parse().unwrap()), ..port("80") };
        let flows =
            flows(&[("web", port("80"), &[4]), ("friend", of_friend, &[]), ("v", port("90-99"), &[5, 6])]);
        let lane = |local, remote| flows.of_connection(&tuple(local, remote), || 1);
        assert_eq!(lane("10.0.0.1:80", "10.0.0.2:5000"), Some(LaneId(4)));
        assert_eq!(lane("[fd00::1]:80", "[fd00::2]:5000"), Some(LaneId(4)));
        assert_eq!(lane("10.0.0.1:80", "10.0.0.7:5000"), None);
        // Who connects to somebody else's port 80 is not of the service at this one.
        assert_eq!(lane("10.0.0.1:5000", "10.0.0.2:80"), None);
        assert_eq!(lane("10.0.0.1:95", "10.0.0.2:80"), Some(LaneId(6)));
        assert_eq!(flows.lanes(), [4, 5, 6].map(LaneId));
    }

    #[test]
    fn sockets_of_datagrams_go_by_flows_that_name_their_port_alone() {
        let udp = FlowMatch { transport: Some(IpProtocol::UDP), ..port("53") };
        let tcp = FlowMatch { transport: Some(IpProtocol::TCP), ..port("54") };
        let near = FlowMatch { remote_ip: Some("10.0.0.0/8".parse().unwrap()), ..port("55") };
        let flows = flows(&[("dns", udp, &[3]), ("tcp", tcp, &[3]), ("near", near, &[3])]);
        let lanes = [53, 54, 55, 56].map(|port| flows.of_datagrams(Port(port), || 0));
        assert_eq!(lanes, [Some(LaneId(3)), None, None, None]);
    }

    #[test]
    fn what_tells_packets_and_no_connection_is_not_asked() {
        let marked = FlowMatch { dsfield: firelane_units::DsField::new(0x20, 0xfc), ..port("80") };
        let flows = flows(&[("marked", marked, &[3])]);
        let any: IpAddr = "10.0.0.1".parse().unwrap();
        let tuple = Tuple::new(IpProtocol::TCP, (any, Port(80)), (any, Port(1))).unwrap();
        assert_eq!(flows.of_connection(&tuple, || 0), None);
        assert!(flows.lanes().is_empty());
    }
}
