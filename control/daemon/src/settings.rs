//! From the model's words to the engine's: protocol properties and the attributes of flows.
//!
//! Called by `works.rs`. Every property of the model's table has its place here: a test sets each and looks for the
//! difference.

use std::time::Duration;

use firelane::{
    Algorithm, DadConfig, FastOpenPolicy, FlowMatch, Forwarding, FuseWith, FusionTuning, HopLimits,
    IpProtocol, Keepalive, MtuProbing, NetstackConfig, PrivilegedPorts, Profile, ProtectionRules,
    RouteConfig, RouteKind, RtoLimits, SocketDefaults, StreamConfig, SynCookies, TcpConfig, Willing,
};
use firelane_model::{ClientId, Fusing, Guard, Polling, Prop, Route, RouteEnd, Tunables, Way};
use firelane_units::Mss;

/// What protects a VNIC from its user.
pub(crate) fn protection(guard: &Guard) -> ProtectionRules {
    ProtectionRules {
        kinds: guard.kinds,
        allowed_ips: guard.allowed_ips.clone(),
        allowed_cids: guard.allowed_cids.iter().map(ClientId::bytes).collect(),
    }
}

/// With whom connections are fused.
pub(crate) fn fusion(fusing: Fusing) -> FuseWith {
    match fusing {
        Fusing::On => FuseWith::Others,
        Fusing::SameZone => FuseWith::Itself,
        Fusing::Off => FuseWith::Nobody,
    }
}

/// When a device is read.
pub(crate) fn polling(polling: Polling) -> firelane::Polling {
    match polling {
        Polling::Auto => firelane::Polling::Auto,
        Polling::Off => firelane::Polling::Off,
    }
}

/// A route, with what it says of sources and of congestion control.
pub(crate) fn route(route: &Route) -> RouteConfig {
    let congestion = route.congestion_control().and_then(|control| Algorithm::from_word(control.word()));
    let plain = match route.way() {
        Way::Via(gateway) => RouteConfig::via(route.destination(), gateway),
        Way::Ends(end) => RouteConfig::ending(route.destination(), kind(end)),
    };
    RouteConfig { congestion, source: route.source(), ..plain }
}

fn kind(end: RouteEnd) -> RouteKind {
    match end {
        RouteEnd::Blackhole => RouteKind::Blackhole,
        RouteEnd::Unreachable => RouteKind::Unreachable,
        RouteEnd::Prohibit => RouteKind::Prohibit,
    }
}

/// A netstack with its protocol properties. The model has checked them.
pub(crate) fn netstack(tunables: &Tunables) -> NetstackConfig {
    let number = |prop| tunables.number(prop);
    let is_on = |prop| tunables.word(prop) == "on";
    let octet = |prop| u8::try_from(number(prop)).unwrap_or(u8::MAX);
    let port = |prop| u16::try_from(number(prop)).unwrap_or(u16::MAX);
    let limited = number(Prop::RstSentRateEnabled) != 0;
    NetstackConfig {
        tcp: tcp(tunables),
        dad: DadConfig::FAST,
        forwarding: Forwarding {
            v4: is_on(Prop::Forwarding4),
            v6: is_on(Prop::Forwarding6),
            redirects_v4: is_on(Prop::SendRedirects4),
            redirects_v6: is_on(Prop::SendRedirects6),
        },
        hops: HopLimits { v4: octet(Prop::Ttl), v6: octet(Prop::HopLimit) },
        tcp_ports: port(Prop::TcpSmallestPort)..=port(Prop::TcpLargestPort),
        udp_ports: port(Prop::UdpSmallestPort)..=port(Prop::UdpLargestPort),
        time_wait: millis(tunables, Prop::TimeWaitInterval),
        resets_per_second: if limited { number(Prop::RstSentRate) } else { u32::MAX },
        privileged: PrivilegedPorts {
            tcp: tunables.ports(Prop::TcpPrivilegedPorts).as_slice().to_vec(),
            udp: tunables.ports(Prop::UdpPrivilegedPorts).as_slice().to_vec(),
        },
        fusion: FusionTuning { is_on: is_on(Prop::Fusion), unread_min: number(Prop::FusionUnread) },
        sockets: SocketDefaults {
            stream: StreamConfig {
                send_capacity: bytes(tunables, Prop::TcpSendBuf),
                recv_capacity: bytes(tunables, Prop::TcpRecvBuf),
            },
            datagrams_out: bytes(tunables, Prop::UdpSendBuf),
            datagrams_in: bytes(tunables, Prop::UdpRecvBuf),
            unsent_limit: number(Prop::NotsentLowat),
            backlog: bytes(tunables, Prop::ConnReqMin)..=bytes(tunables, Prop::ConnReqMaxQ),
            keepalive: keepalive_of_programs(tunables),
        },
    }
}

/// As Linux has it, as far as nobody has said something else.
fn keepalive_of_programs(tunables: &Tunables) -> Keepalive {
    let linux = SocketDefaults::default().keepalive;
    let is_usual = tunables.number(Prop::KeepaliveAbortInterval)
        == Tunables::default().number(Prop::KeepaliveAbortInterval);
    let own = keepalive(tunables);
    if is_usual { Keepalive { idle: own.idle, ..linux } } else { own }
}

fn keepalive(tunables: &Tunables) -> Keepalive {
    /// Questions in the time that `_keepalive_abort_interval` gives a silent peer.
    const PROBES: u8 = 8;
    Keepalive {
        idle: millis(tunables, Prop::KeepaliveInterval),
        interval: millis(tunables, Prop::KeepaliveAbortInterval) / PROBES.into(),
        probes: PROBES,
    }
}

fn tcp(tunables: &Tunables) -> TcpConfig {
    let millis = |prop| millis(tunables, prop);
    let mss = |prop| Mss::clamped(u16::try_from(tunables.number(prop)).unwrap_or(u16::MAX));
    let willing = |prop| Willing::from_word(tunables.word(prop));
    let mut config = TcpConfig {
        delayed_ack: millis(Prop::DeferredAckInterval),
        connect_timeout: millis(Prop::AbortConnectInterval),
        abort_timeout: millis(Prop::AbortInterval),
        keepalive: keepalive(tunables),
        fin_wait_2_timeout: millis(Prop::FinWait2Interval),
        timestamps: tunables.number(Prop::TstampAlways) != 0,
        sack: willing(Prop::Sack).unwrap_or(Willing::Active),
        ecn: willing(Prop::TcpEcn).unwrap_or(Willing::Passive),
        window_scaling: tunables.number(Prop::WscaleAlways) != 0,
        default_mss: [mss(Prop::MssDefault4), mss(Prop::MssDefault6)],
        syn_cookies: SynCookies::from_word(tunables.word(Prop::SynCookies)).unwrap_or(SynCookies::Pressure),
        half_open_max: tunables.number(Prop::ConnReqMaxQ0),
        mtu_probing: MtuProbing::from_word(tunables.word(Prop::MtuProbing)).unwrap_or(MtuProbing::Doubt),
        fast_open: FastOpenPolicy::new(tunables.number(Prop::FastOpen)),
        ..TcpConfig::of(Profile::from_word(tunables.word(Prop::Profile)).unwrap_or_default())
    };
    config.max_buffer = tunables.number(Prop::TcpMaxBuf);
    if let Some(segments) = u16::try_from(tunables.number(Prop::SlowStartInitial)).ok().filter(|&it| it > 0) {
        config.flight.initial_segments = segments;
    }
    config.flight.slow_start_after_idle = tunables.number(Prop::SlowStartAfterIdle) != 0;
    config.flight.rto =
        RtoLimits::new(millis(Prop::RexmitInitial), millis(Prop::RexmitMin), millis(Prop::RexmitMax));
    let algorithm = tunables.word(Prop::CongestionControl);
    let known = Algorithm::ALL.into_iter().find(|it| it.word() == algorithm);
    config.flight.algorithm = known.unwrap_or(config.flight.algorithm);
    config
}

fn millis(tunables: &Tunables, prop: Prop) -> Duration {
    Duration::from_millis(tunables.number(prop).into())
}

fn bytes(tunables: &Tunables, prop: Prop) -> usize {
    usize::try_from(tunables.number(prop)).unwrap_or(usize::MAX)
}

/// What a flow matches.
pub(crate) fn rule(matching: &firelane_model::FlowMatch) -> FlowMatch {
    FlowMatch {
        local_ip: matching.local_ip,
        remote_ip: matching.remote_ip,
        transport: matching.transport.map(|it| IpProtocol(it.number())),
        local_port: matching.local_port,
        remote_port: matching.remote_port,
        dsfield: matching.dsfield,
        vlan: matching.vlan_id,
        local_mac: matching.local_mac,
        remote_mac: matching.remote_mac,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_model::{Allowed, CongestionControl, Setting};
    use firelane_units::{DsField, Port};

    /// Everything that reaches the engine, as text.
    fn reached(tunables: &Tunables) -> String {
        format!("{:?}", netstack(tunables))
    }

    #[test]
    fn every_property_makes_a_difference_and_its_default_makes_none() {
        let nothing = Tunables::default();
        for &prop in Prop::ALL {
            let line = prop.line();
            let other = match (line.allowed, line.default) {
                (Allowed::Words(words), Setting::Word(default)) => {
                    (*words.iter().find(|word| **word != default).unwrap()).to_owned()
                }
                (Allowed::Ports, _) => "2049,4045".to_owned(),
                (Allowed::Number(min, _), Setting::Number(default)) if default > min => {
                    (default - 1).to_string()
                }
                (_, default) => (default.to_string().parse::<u32>().unwrap() + 1).to_string(),
            };
            let mut tunables = Tunables::default();
            tunables.set(prop, &line.default.to_string()).unwrap();
            assert_eq!(reached(&tunables), reached(&nothing), "{prop}");
            tunables.set(prop, &other).unwrap();
            if prop == Prop::UdpMaxBuf {
                // It bounds the other two, which is the model's to check.
                continue;
            }
            assert_ne!(reached(&tunables), reached(&nothing), "{prop}={other}");
        }
    }

    #[test]
    fn the_table_has_the_engines_defaults() {
        let ours = netstack(&Tunables::default());
        let engines = NetstackConfig { dad: DadConfig::FAST, ..NetstackConfig::default() };
        assert_eq!(format!("{ours:?}"), format!("{engines:?}"));
    }

    #[test]
    fn programs_ask_silent_peers_as_in_linux_as_far_as_nobody_says_something_else() {
        let mut tunables = Tunables::default();
        let asked = |tunables: &Tunables| {
            let config = netstack(tunables);
            [config.sockets.keepalive, config.tcp.keepalive]
                .map(|it| (it.idle.as_secs(), it.interval.as_secs(), it.probes))
        };
        assert_eq!(asked(&tunables), [(7200, 75, 9), (7200, 60, 8)]);
        tunables.set(Prop::KeepaliveInterval, "90000").unwrap();
        assert_eq!(asked(&tunables), [(90, 75, 9), (90, 60, 8)]);
        tunables.set(Prop::KeepaliveAbortInterval, "80000").unwrap();
        assert_eq!(asked(&tunables), [(90, 10, 8); 2]);
    }

    #[test]
    fn the_largest_buffer_of_each_profile_is_as_it_is_shown() {
        let mut tunables = Tunables::default();
        for profile in ["linux", "freebsd"] {
            tunables.set(Prop::Profile, profile).unwrap();
            let largest = TcpConfig::of(Profile::from_word(profile).unwrap()).max_buffer;
            assert_eq!(tunables.number(Prop::TcpMaxBuf), largest, "{profile}");
        }
        // FreeBSD's are smaller, unless one is set to more.
        tunables.set(Prop::TcpRecvBuf, "4194304").unwrap();
        assert_eq!(tunables.number(Prop::TcpMaxBuf), 4 << 20);
    }

    #[test]
    fn every_congestion_control_of_a_route_arrives() {
        let plain = Route::new("10.9.0.0/16".parse().unwrap(), "10.0.0.1".parse().unwrap()).unwrap();
        assert_eq!((route(&plain).congestion, route(&plain).source), (None, None));
        let source = "10.1.0.0/24".parse().ok();
        assert_eq!(route(&plain.with_source(source).unwrap()).source, source);
        use CongestionControl::{Bbr, Cubic, Dctcp, NewReno};
        let came: Vec<_> = [Cubic, NewReno, Dctcp, Bbr]
            .into_iter()
            .filter_map(|control| route(&plain.with_congestion_control(Some(control))).congestion)
            .collect();
        assert_eq!(came, Algorithm::ALL);
    }

    #[test]
    fn every_attribute_of_a_flow_arrives() {
        let text = "local_ip=10.0.0.0/24,remote_ip=10.1.0.0/16,transport=udp,local_port=5,remote_port=6-9,\
                    dsfield=0x2c:0xfc,vlan_id=7,local_mac=2:8:20:0:0:1,remote_mac=2:8:20:0:0:2";
        let rule = rule(&text.parse().unwrap());
        assert_eq!(rule.local_ip, "10.0.0.0/24".parse().ok());
        assert_eq!(rule.remote_ip, "10.1.0.0/16".parse().ok());
        assert_eq!(rule.transport, Some(IpProtocol(17)));
        assert_eq!((rule.local_port, rule.remote_port), (Some(Port(5).into()), "6-9".parse().ok()));
        assert_eq!(rule.vlan.map(|vlan| vlan.id()), Some(7));
        assert_eq!(rule.local_mac, "2:8:20:0:0:1".parse().ok());
        assert_eq!(rule.remote_mac, "2:8:20:0:0:2".parse().ok());
        assert_eq!(rule.dsfield, DsField::new(0x2c, 0xfc));
    }
}
