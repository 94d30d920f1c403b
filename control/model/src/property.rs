//! The protocol properties of a netstack, as `ipadm` names them: one table of names, ranges and defaults.
//!
//! Names, units and what they mean are Solaris'; a name that begins with an underscore is private there and may change.
//! A default is what Firelane's stack really does, which is Solaris' unless the standards of 2026 or Linux' practice
//! ask for another; `ipadm(8)` lists the differences. A property of the original that Firelane does not have is in a
//! table of its own with the reason, so that nobody sets it in vain.

use core::fmt;

use crate::FieldError;
use crate::port_set::PortSet;

/// A protocol of `ipadm set-prop`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// Both versions of IP.
    Ip,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// ICMP of both versions.
    Icmp,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 6] = [Self::Ip, Self::Ipv4, Self::Ipv6, Self::Icmp, Self::Tcp, Self::Udp];

    /// The word used in commands and in the file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Icmp => "icmp",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// The protocol of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.word() == word)
    }
}

/// What a property may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowed {
    /// A whole number from the first to the second.
    Number(u32, u32),
    /// One of these words.
    Words(&'static [&'static str]),
    /// Any ports, several of them or none.
    Ports,
}

impl fmt::Display for Allowed {
    /// As the POSSIBLE column shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(min, max) => write!(f, "{min}-{max}"),
            Self::Words(words) => f.write_str(&words.join(",")),
            Self::Ports => f.write_str("1-65535"),
        }
    }
}

/// A property's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// A number.
    Number(u32),
    /// A word.
    Word(&'static str),
    /// Ports.
    Ports(PortSet),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Word(word) => word.fmt(f),
            Self::Ports(ports) => ports.fmt(f),
        }
    }
}

/// Why a property cannot be set to a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PropertyError {
    /// There is no such property.
    Unknown(FieldError),
    /// Firelane does not have it; the error says why.
    Absent(FieldError),
    /// The value is no number, or not one of the words.
    Malformed(FieldError),
    /// The number is outside the range.
    OutOfRange(FieldError),
}

impl PropertyError {
    /// The field, its value and what is allowed.
    pub fn into_field(self) -> FieldError {
        match self {
            Self::Unknown(error) | Self::Absent(error) | Self::Malformed(error) | Self::OutOfRange(error) => {
                error
            }
        }
    }
}

/// A property's line in the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    /// Whose it is.
    pub protocol: Protocol,
    /// Its name.
    pub name: &'static str,
    /// What it may be.
    pub allowed: Allowed,
    /// What it is unless it is set.
    pub default: Setting,
}

macro_rules! properties {
    ($($(#[$doc:meta])* $id:ident = $protocol:ident $name:literal, $allowed:expr, $default:expr;)*) => {
        /// A protocol property.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Prop { $($(#[$doc])* $id),* }

        impl Prop {
            /// All of them, by protocol.
            pub const ALL: &'static [Self] = &[$(Self::$id),*];

            /// Its line in the table.
            pub const fn line(self) -> Line {
                match self {
                    $(Self::$id => Line {
                        protocol: Protocol::$protocol,
                        name: $name,
                        allowed: $allowed,
                        default: $default,
                    }),*
                }
            }
        }
    };
}

use Allowed::{Number, Ports, Words};
use Setting::{Number as N, Ports as P, Word as W};

const SWITCH: Allowed = Words(&["on", "off"]);
const WILLING: Allowed = Words(&["never", "passive", "active"]);
/// What one socket may hold at the most.
const BUFFER_MAX: u32 = 1 << 30;

properties! {
    /// Packets for others are forwarded.
    Forwarding4 = Ipv4 "forwarding", SWITCH, W("off");
    /// The time to live of packets.
    Ttl = Ipv4 "ttl", Number(1, 255), N(64);
    /// Who sends what goes back to his own link is told of the shorter way.
    SendRedirects4 = Ipv4 "_send_redirects", SWITCH, W("off");
    /// Packets for others are forwarded.
    Forwarding6 = Ipv6 "forwarding", SWITCH, W("off");
    /// The hop limit of packets.
    HopLimit = Ipv6 "hoplimit", Number(1, 255), N(64);
    /// Who sends what goes back to his own link is told of the shorter way.
    SendRedirects6 = Ipv6 "_send_redirects", SWITCH, W("off");
    /// Which congestion control new connections use.
    CongestionControl = Tcp "congestion_control", Words(&["cubic", "newreno", "dctcp", "bbr"]), W("cubic");
    /// Explicit congestion notification.
    TcpEcn = Tcp "ecn", WILLING, W("passive");
    /// Ports that only privileged programs get.
    TcpPrivilegedPorts = Tcp "extra_priv_ports", Ports, P(PortSet::NONE);
    /// The largest local port that is chosen.
    TcpLargestPort = Tcp "largest_anon_port", Number(1024, 65_535), N(65_535);
    /// What buffers may grow to, in bytes; the window scale is chosen for it.
    TcpMaxBuf = Tcp "max_buf", Number(131_072, BUFFER_MAX), N(6 << 20);
    /// Which system the netstack looks like on the wire: order of a SYN's options, initial window, `max_buf` unless that
    /// is set, challenge ACKs.
    Profile = Tcp "profile", Words(&["linux", "freebsd"]), W("linux");
    /// A new socket's receive buffer, in bytes.
    TcpRecvBuf = Tcp "recv_buf", Number(4096, BUFFER_MAX), N(1 << 20);
    /// Selective acknowledgment.
    Sack = Tcp "sack", WILLING, W("active");
    /// A new socket's send buffer, in bytes.
    TcpSendBuf = Tcp "send_buf", Number(4096, BUFFER_MAX), N(1 << 18);
    /// The smallest local port that is chosen.
    TcpSmallestPort = Tcp "smallest_anon_port", Number(1024, 65_535), N(32_768);
    /// The most finished connections that wait for one listener.
    ConnReqMaxQ = Tcp "_conn_req_max_q", Number(1, 65_536), N(4096);
    /// The most half-open connections of one listener on a lane; SYNs beyond it are what `_syn_cookies` says.
    ConnReqMaxQ0 = Tcp "_conn_req_max_q0", Number(1, 16_384), N(1024);
    /// The least backlog that a listener gets.
    ConnReqMin = Tcp "_conn_req_min", Number(1, 1024), N(1);
    /// How long an acknowledgment may wait for company, in milliseconds (RFC 9293 MUST-58: 500 at the most).
    DeferredAckInterval = Tcp "_deferred_ack_interval", Number(1, 500), N(40);
    /// Who uses Fast Open, the sum of: clients (1), servers (2), clients also without a cookie (4), servers also
    /// without a cookie (512), every listener (1024).
    FastOpen = Tcp "_fastopen", Number(0, 1543), N(1);
    /// How long FIN-WAIT-2 waits for a peer's FIN once nobody can read, in milliseconds.
    FinWait2Interval = Tcp "_fin_wait_2_flush_interval", Number(1000, 7_200_000), N(60_000);
    /// Whether connections of a netstack with itself are fused (Solaris: `do_tcp_fusion`).
    Fusion = Tcp "_fusion", Words(&["on", "off"]), W("on");
    /// How many writes to a fused connection may be unread; zero is as many as the buffers hold (Solaris:
    /// `tcp_fusion_rcv_unread_min`).
    FusionUnread = Tcp "_fusion_rcv_unread_min", Number(0, u32::MAX), N(0);
    /// How long an attempt to connect lasts, in milliseconds.
    AbortConnectInterval = Tcp "_ip_abort_cinterval", Number(1000, u32::MAX), N(180_000);
    /// How long data may stay unacknowledged before the connection is given up, in milliseconds.
    AbortInterval = Tcp "_ip_abort_interval", Number(500, u32::MAX), N(300_000);
    /// How long a peer that is asked whether it lives may stay silent, in milliseconds.
    KeepaliveAbortInterval = Tcp "_keepalive_abort_interval", Number(8000, 864_000_000), N(480_000);
    /// Silence before a peer is asked whether it lives, in milliseconds.
    KeepaliveInterval = Tcp "_keepalive_interval", Number(10_000, 864_000_000), N(7_200_000);
    /// What a peer takes that announces no MSS over IPv4.
    MssDefault4 = Tcp "_mss_def_ipv4", Number(88, 65_495), N(536);
    /// What a peer takes that announces no MSS over IPv6.
    MssDefault6 = Tcp "_mss_def_ipv6", Number(88, 65_475), N(1220);
    /// When the largest segment of a path is searched for without its routers (RFC 4821): after time-outs in a row (on), never,
    /// or from the beginning (Linux: `tcp_mtu_probing` 1, 0, 2).
    MtuProbing = Tcp "_mtu_probing", Words(&["on", "off", "always"]), W("on");
    /// How many bytes of a connection may be written and unsent; the largest number is no limit (Linux:
    /// `tcp_notsent_lowat`).
    NotsentLowat = Tcp "_notsent_lowat", Number(1, u32::MAX), N(u32::MAX);
    /// The first retransmission time-out, in milliseconds.
    RexmitInitial = Tcp "_rexmit_interval_initial", Number(1, 20_000), N(1000);
    /// The longest retransmission time-out, in milliseconds.
    RexmitMax = Tcp "_rexmit_interval_max", Number(1000, 240_000), N(60_000);
    /// The least retransmission time-out, in milliseconds.
    RexmitMin = Tcp "_rexmit_interval_min", Number(1, 20_000), N(200);
    /// RSTs per second and lane to segments of no connection.
    RstSentRate = Tcp "_rst_sent_rate", Number(0, u32::MAX - 1), N(40);
    /// Whether `_rst_sent_rate` holds.
    RstSentRateEnabled = Tcp "_rst_sent_rate_enabled", Number(0, 1), N(1);
    /// Whether a connection that rested longer than its retransmission time-out begins again with the initial window
    /// (RFC 5681 section 4.1; Linux: `tcp_slow_start_after_idle`).
    SlowStartAfterIdle = Tcp "_slow_start_after_idle", Number(0, 1), N(0);
    /// The initial congestion window in segments; zero is the profile's (RFC 6928).
    SlowStartInitial = Tcp "_slow_start_initial", Number(0, 64), N(0);
    /// When SYNs are answered with cookies: beyond the limits of half-open connections (on), never, or always.
    SynCookies = Tcp "_syn_cookies", Words(&["on", "off", "always"]), W("on");
    /// How long a closed connection's ports rest, in milliseconds.
    TimeWaitInterval = Tcp "_time_wait_interval", Number(1000, 600_000), N(60_000);
    /// Timestamps are offered and accepted.
    TstampAlways = Tcp "_tstamp_always", Number(0, 1), N(1);
    /// Window scaling is offered and accepted.
    WscaleAlways = Tcp "_wscale_always", Number(0, 1), N(1);
    /// Ports that only privileged programs get.
    UdpPrivilegedPorts = Udp "extra_priv_ports", Ports, P(PortSet::NONE);
    /// The largest local port that is chosen.
    UdpLargestPort = Udp "largest_anon_port", Number(1024, 65_535), N(65_535);
    /// What buffers may be set to, in bytes.
    UdpMaxBuf = Udp "max_buf", Number(65_536, BUFFER_MAX), N(2 << 20);
    /// A new socket's receive buffer, in bytes.
    UdpRecvBuf = Udp "recv_buf", Number(4096, BUFFER_MAX), N(256 << 10);
    /// A new socket's send buffer, in bytes.
    UdpSendBuf = Udp "send_buf", Number(4096, BUFFER_MAX), N(256 << 10);
    /// The smallest local port that is chosen.
    UdpSmallestPort = Udp "smallest_anon_port", Number(1024, 65_535), N(32_768);
}

impl Prop {
    /// The property `name` of `protocol`; the error says why there is none.
    pub fn find(protocol: Protocol, name: &str) -> Result<Self, PropertyError> {
        let is_it = |prop: &&Self| prop.line().protocol == protocol && prop.line().name == name;
        if let Some(prop) = Self::ALL.iter().find(is_it) {
            return Ok(*prop);
        }
        let absent = ABSENT.iter().find(|(whose, names, _)| *whose == protocol && names.contains(&name));
        if let Some((.., why)) = absent {
            return Err(PropertyError::Absent(FieldError::new(name, "", *why)));
        }
        let known: Vec<_> = Self::of(protocol).map(|prop| prop.line().name).collect();
        let allowed = match known[..] {
            [] => format!("{} has no properties here", protocol.word()),
            _ => format!("{} has {}", protocol.word(), known.join(", ")),
        };
        Err(PropertyError::Unknown(FieldError::new(name, "", allowed)))
    }

    /// The properties of `protocol`.
    pub fn of(protocol: Protocol) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |prop| prop.line().protocol == protocol)
    }

    /// Whether Solaris promises nothing about it, and shows it only to who asks for it by name.
    pub fn is_private(self) -> bool {
        self.line().name.starts_with('_')
    }

    /// Reads a value.
    pub fn read(self, text: &str) -> Result<Setting, PropertyError> {
        let Line { name, allowed, .. } = self.line();
        let field = || FieldError::new(name, text, allowed.to_string());
        match allowed {
            Words(words) => {
                let word = words.iter().find(|word| **word == text);
                word.map(|word| W(word)).ok_or_else(|| PropertyError::Malformed(field()))
            }
            Number(min, max) => match text.parse::<u64>() {
                Err(_) => Err(PropertyError::Malformed(field())),
                Ok(number) => {
                    let number = u32::try_from(number).ok().filter(|number| (min..=max).contains(number));
                    number.map(N).ok_or_else(|| PropertyError::OutOfRange(field()))
                }
            },
            Ports => PortSet::read(name, text).map(P),
        }
    }
}

impl fmt::Display for Prop {
    /// `tcp.send_buf`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.line().protocol.word(), self.line().name)
    }
}

/// Properties of the original that Firelane does not have, and why.
const ABSENT: &[(Protocol, &[&str], &str)] = &[
    (
        Protocol::Ipv4,
        &["hostmodel"],
        "a netstack takes packets for its addresses on every interface, and sends by the source's interface if a route leads there (src-priority)",
    ),
    (
        Protocol::Ipv6,
        &["hostmodel"],
        "a netstack takes packets for its addresses on every interface, and sends by the source's interface if a route leads there (src-priority)",
    ),
    (
        Protocol::Icmp,
        &["max_buf", "recv_buf", "send_buf"],
        "there are no raw ICMP sockets that could have buffers",
    ),
    (
        Protocol::Tcp,
        &["smallest_nonpriv_port"],
        "low ports are not privileged as such: who may use a netstack may use its ports, but those in extra_priv_ports",
    ),
    (
        Protocol::Tcp,
        &["_extra_priv_ports_add", "_extra_priv_ports_del"],
        "extra_priv_ports += and -= add and take ports",
    ),
    (
        Protocol::Udp,
        &["smallest_nonpriv_port"],
        "low ports are not privileged as such: who may use a netstack may use its ports, but those in extra_priv_ports",
    ),
    (
        Protocol::Udp,
        &["_extra_priv_ports_add", "_extra_priv_ports_del"],
        "extra_priv_ports += and -= add and take ports",
    ),
    (Protocol::Tcp, &["_ipv4_ttl"], "it is the property ttl of ipv4"),
    (Protocol::Tcp, &["_ipv6_hoplimit"], "it is the property hoplimit of ipv6"),
    (
        Protocol::Tcp,
        &["_dupack_fast_retransmit", "_rtt_updates", "_rexmit_interval_extra"],
        "losses are found by time (RFC 8985), and the time-out is RFC 6298's",
    ),
    (Protocol::Tcp, &["_abc", "_abc_l_var"], "bytes are counted always, with L = 2 (RFC 3465)"),
    (Protocol::Tcp, &["_strong_iss", "_iss_incr"], "initial sequence numbers are always those of RFC 6528"),
    (Protocol::Tcp, &["_local_dack_interval", "_local_dacks_max"], "a local peer is a peer like others"),
    (Protocol::Tcp, &["_deferred_acks_max"], "every second full segment is acknowledged (RFC 9293 SHLD-19)"),
    (Protocol::Tcp, &["_naglim_def"], "a program turns Nagle's algorithm off for its socket (TCP_NODELAY)"),
    (
        Protocol::Tcp,
        &[
            "_cwnd_max",
            "_maxpsz_multiplier",
            "_xmit_lowat",
            "_recv_hiwat_minmss",
            "_wroff_xtra",
            "_dev_flow_ctl",
        ],
        "the size of a socket's buffers is what limits",
    ),
    (Protocol::Tcp, &["_mss_min"], "no segment carries less than 88 bytes on a peer's demand"),
    (Protocol::Tcp, &["_tstamp_if_wscale"], "it is the property _tstamp_always"),
    (
        Protocol::Tcp,
        &["_ip_notify_interval", "_ip_notify_cinterval"],
        "TCP tells IP of a silent peer after three time-outs in a row, however long they are (RFC 9293 MUST-20)",
    ),
    (
        Protocol::Tcp,
        &["_ip_abort_linterval"],
        "a half-open connection ends when its SYN-ACK was repeated five times, after 63 seconds",
    ),
    (Protocol::Tcp, &["_push_timer_interval"], "who reads is woken by any text, pushed or not"),
    (
        Protocol::Tcp,
        &["_reass_timeout"],
        "text that came ahead of its turn stays, within the window and in 64 pieces at the most",
    ),
    (
        Protocol::Tcp,
        &["_listener_limit_conf", "_listener_limit_conf_add", "_listener_limit_conf_del"],
        "a flow limits what a listener gets",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_table_is_in_order_and_every_default_is_allowed() {
        let mut names = BTreeSet::new();
        for prop in Prop::ALL {
            let line = prop.line();
            assert!(names.insert((line.protocol, line.name)), "{prop} twice");
            assert_eq!(prop.read(&line.default.to_string()), Ok(line.default), "{prop}");
            assert_eq!(Prop::find(line.protocol, line.name), Ok(*prop));
        }
        for protocol in Protocol::ALL {
            assert_eq!(Protocol::from_word(protocol.word()), Some(protocol));
            let of_it: Vec<_> =
                Prop::of(protocol).map(|prop| (prop.is_private(), prop.line().name)).collect();
            assert!(of_it.is_sorted(), "{of_it:?}");
        }
    }

    #[test]
    fn nothing_is_both_there_and_absent() {
        let mut seen = BTreeSet::new();
        for (protocol, names, why) in ABSENT {
            for name in *names {
                assert!(seen.insert((*protocol, *name)), "{name} twice");
                match Prop::find(*protocol, name) {
                    Err(PropertyError::Absent(error)) => {
                        assert_eq!((&*error.field, &*error.allowed), (*name, *why))
                    }
                    other => panic!("{name}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_value() {
        use PropertyError as E;
        let kind = |prop: Prop, text: &str| match prop.read(text) {
            Ok(_) => "fine",
            Err(E::Malformed(_)) => "malformed",
            Err(E::OutOfRange(_)) => "out of range",
            Err(other) => panic!("{other:?}"),
        };
        for (prop, text, wanted) in [
            (Prop::Ttl, "1", "fine"),
            (Prop::Ttl, "255", "fine"),
            (Prop::Ttl, "0", "out of range"),
            (Prop::Ttl, "256", "out of range"),
            (Prop::Ttl, "99999999999", "out of range"),
            (Prop::Ttl, "-1", "malformed"),
            (Prop::Ttl, "", "malformed"),
            (Prop::Ttl, "many", "malformed"),
            (Prop::Sack, "passive", "fine"),
            (Prop::Sack, "1", "malformed"),
            (Prop::TcpPrivilegedPorts, "2049,4045", "fine"),
            (Prop::TcpPrivilegedPorts, "nfs", "malformed"),
            (Prop::UdpPrivilegedPorts, "0", "out of range"),
        ] {
            assert_eq!(kind(prop, text), wanted, "{prop} {text:?}");
        }
        let unknown = Prop::find(Protocol::Ipv4, "tttl").unwrap_err().into_field();
        assert_eq!(unknown.allowed, "ipv4 has forwarding, ttl, _send_redirects");
        let none = Prop::find(Protocol::Ip, "tttl").unwrap_err().into_field();
        assert_eq!(none.allowed, "ip has no properties here");
    }
}
