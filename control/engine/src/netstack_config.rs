//! A netstack's tunables as the engine takes them: IP, TCP, and what new sockets begin with.
//!
//! Checked by whoever makes one; the daemon makes it from the model's protocol properties, an embedded program
//! from `Default`. `engine.rs` gives the lanes their part and keeps the sockets' part in the registry.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use firelane_ip::{DadConfig, Forwarding, HopLimits};
use firelane_lane::{FusionTuning, NetstackConfig as LaneConfig};
use firelane_socket::StreamConfig;
use firelane_tcp::{Keepalive, TcpConfig, Tuning};
use firelane_units::NetstackId;

/// What a netstack begins with, and what [`crate::Engine::tune`] changes.
#[derive(Clone, Debug)]
pub struct NetstackConfig {
    /// TCP's tunables.
    pub tcp: TcpConfig,
    /// How addresses are tested before they are used; not at all unless asked for. It cannot be changed later.
    pub dad: DadConfig,
    /// Whether packets for others are forwarded.
    pub forwarding: Forwarding,
    /// The hops that its packets may take.
    pub hops: HopLimits,
    /// Where connections' local ports are chosen from.
    pub tcp_ports: RangeInclusive<u16>,
    /// Where datagram sockets' local ports are chosen from.
    pub udp_ports: RangeInclusive<u16>,
    /// How long the ports of a closed connection rest.
    pub time_wait: Duration,
    /// How many RSTs each lane sends per second to segments of no connection; `u32::MAX` is no limit.
    pub resets_per_second: u32,
    /// Whether connections between its own sockets are fused.
    pub fusion: FusionTuning,
    /// Ports that only privileged programs get.
    pub privileged: PrivilegedPorts,
    /// What sockets begin with.
    pub sockets: SocketDefaults,
}

impl Default for NetstackConfig {
    fn default() -> Self {
        let lane = LaneConfig::new(NetstackId(0));
        Self {
            tcp: TcpConfig::clone(&lane.tcp),
            dad: lane.dad,
            forwarding: lane.forwarding,
            hops: lane.hops,
            tcp_ports: lane.tcp_ports,
            udp_ports: lane.udp_ports,
            time_wait: lane.time_wait,
            resets_per_second: lane.resets_per_second,
            fusion: lane.fusion,
            privileged: PrivilegedPorts::default(),
            sockets: SocketDefaults::default(),
        }
    }
}

impl NetstackConfig {
    /// The lanes' part, over what they have.
    pub(crate) fn for_lanes(&self, base: LaneConfig) -> LaneConfig {
        LaneConfig {
            tcp: Arc::new(self.tcp.clone()),
            forwarding: self.forwarding,
            hops: self.hops,
            tcp_ports: self.tcp_ports.clone(),
            udp_ports: self.udp_ports.clone(),
            time_wait: self.time_wait,
            resets_per_second: self.resets_per_second,
            fusion: self.fusion,
            ..base
        }
    }
}

/// Ports that a program gets only if its user is root or the user of this process. Sockets of this process itself are not asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PrivilegedPorts {
    /// Of TCP.
    pub tcp: Vec<u16>,
    /// Of UDP.
    pub udp: Vec<u16>,
}

/// What sockets begin with unless their program says otherwise.
#[derive(Clone, Debug)]
pub struct SocketDefaults {
    /// The rings of a connection.
    pub stream: StreamConfig,
    /// The bytes of datagrams that wait to be sent.
    pub datagrams_out: usize,
    /// The bytes of datagrams that wait to be read.
    pub datagrams_in: usize,
    /// How many bytes of a connection may be written and unsent; `u32::MAX` is as many as its ring holds.
    pub unsent_limit: u32,
    /// The backlogs that listeners may have; one beyond is brought to the nearest.
    pub backlog: RangeInclusive<usize>,
    /// When a silent peer of a program that wants it to be asked (SO_KEEPALIVE), and says nothing else, is asked.
    pub keepalive: Keepalive,
}

/// Linux' `tcp_keepalive_time`, `tcp_keepalive_intvl` and `tcp_keepalive_probes`, which programs may read and reckon with.
const LINUX_KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 };

impl Default for SocketDefaults {
    fn default() -> Self {
        // Datagrams: Linux' default of `net.core.rmem_default`, rounded up. Backlogs: Linux' `net.core.somaxconn`.
        const DATAGRAMS: usize = 256 * 1024;
        const BACKLOG_MAX: usize = 4096;
        Self {
            stream: StreamConfig::default(),
            datagrams_out: DATAGRAMS,
            datagrams_in: DATAGRAMS,
            unsent_limit: u32::MAX,
            backlog: 1..=BACKLOG_MAX,
            keepalive: LINUX_KEEPALIVE,
        }
    }
}

impl SocketDefaults {
    /// Which of `rings` are what sockets begin with when their program does not choose: those follow the path.
    pub(crate) fn tuning(&self, rings: StreamConfig) -> Tuning {
        let usual = [StreamConfig::default(), self.stream];
        Tuning {
            send: usual.iter().any(|usual| usual.send_capacity == rings.send_capacity),
            receive: usual.iter().any(|usual| usual.recv_capacity == rings.recv_capacity),
        }
    }

    /// How much may be unsent, if there is a limit.
    pub(crate) fn unsent_limit(&self) -> Option<u32> {
        (self.unsent_limit != u32::MAX).then_some(self.unsent_limit)
    }

    /// The backlog of a listener that asks for `wanted`.
    pub(crate) fn backlog(&self, wanted: usize) -> usize {
        wanted.max(*self.backlog.start()).min(*self.backlog.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_brought_to_the_nearest_allowed_one() {
        let defaults = SocketDefaults { backlog: 2..=10, ..SocketDefaults::default() };
        assert_eq!([0, 2, 7, 10, 1000].map(|wanted| defaults.backlog(wanted)), [2, 2, 7, 10, 10]);
    }

    #[test]
    fn the_defaults_are_the_lanes() {
        let (ours, lanes) = (NetstackConfig::default(), LaneConfig::new(NetstackId(3)));
        let made = ours.for_lanes(lanes.clone());
        assert_eq!(format!("{made:?}"), format!("{lanes:?}"));
    }
}
