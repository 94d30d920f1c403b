//! What a netstack's administrator may tune, as the connections of that netstack see it.
//!
//! A connection holds an `Arc` of its configuration, so a change reaches running connections by handing them
//! another one. Defaults follow Solaris (`ipadm show-prop`), except where the standards of 2026 or Linux'
//! practice ask for a shorter time: each such field says so.

use core::time::Duration;

use firelane_units::Mss;

use crate::congestion::Algorithm;
use crate::delayed_ack::DEFAULT_DELAY;
use crate::fast_open::FastOpenPolicy;
use crate::flight::FlightConfig;
use crate::profile::Profile;
use crate::rtt::{RtoLimits, Rtt};

/// The tunables of TCP.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// How long an ACK may wait for company. RFC 9293 SHLD-18 allows 500 ms and Solaris takes 100 ms.
    pub delayed_ack: Duration,
    /// How long an attempt to connect lasts (`_ip_abort_cinterval`).
    pub connect_timeout: Duration,
    /// How long data may stay unacknowledged before the connection is given up (`_ip_abort_interval`; RFC 9293
    /// §3.8.3 R2). The user timeout of RFC 5482 overrides it per socket.
    pub abort_timeout: Duration,
    /// What a socket that asks for keepalive starts with.
    pub keepalive: Keepalive,
    /// How long FIN-WAIT-2 waits for a peer's FIN once nobody can read (`_fin_wait_2_flush_interval`).
    pub fin_wait_2_timeout: Duration,
    /// Which system it looks like; [`TcpConfig::with_profile`] sets what goes with it.
    pub profile: Profile,
    /// In each such time a connection sends at most [`TcpConfig::challenge_burst`] challenge ACKs (RFC 5961 §7;
    /// Linux' `tcp_invalid_ratelimit`).
    pub challenge_interval: Duration,
    /// How many.
    pub challenge_burst: u8,
    /// Offer and accept timestamps (RFC 7323).
    pub timestamps: bool,
    /// Selective acknowledgment (RFC 2018).
    pub sack: Willing,
    /// Offer and accept window scaling (RFC 7323).
    pub window_scaling: bool,
    /// When the largest segment of the path is searched for without its routers.
    pub mtu_probing: MtuProbing,
    /// What a peer takes that announces no MSS, over IPv4 and over IPv6 (`_mss_def_ipv4`, `_mss_def_ipv6`).
    pub default_mss: [Mss; 2],
    /// What a connection's buffers may grow to (`max_buf`): the window scale is chosen for it, once.
    pub max_buffer: u32,
    /// Explicit congestion notification (RFC 3168; Solaris' property `ecn`, whose default is `passive`).
    pub ecn: Willing,
    /// When a SYN is answered with a cookie.
    pub syn_cookies: SynCookies,
    /// How many half-open connections a listener has on one lane before that (`_conn_req_max_q0`; Solaris adds the backlog).
    pub half_open_max: u32,
    /// Who uses Fast Open (RFC 7413).
    pub fast_open: FastOpenPolicy,
    /// Loss detection and congestion control.
    pub flight: FlightConfig,
}

/// When a SYN is answered with a cookie instead of an entry (RFC 4987 §3.6; Linux: `tcp_syncookies` 0, 1, 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SynCookies {
    /// Never: beyond a limit SYNs are dropped.
    Off,
    /// Beyond a limit.
    Pressure,
    /// Always, which shows what an application loses by it.
    Always,
}

/// When the largest segment of a path is searched for without its routers (RFC 4821; Linux: `tcp_mtu_probing` 0, 1, 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MtuProbing {
    /// Never: routers are believed, and a path that says nothing stays silent.
    Off,
    /// After time-outs in a row.
    Doubt,
    /// From the beginning of a connection: it begins with what nearly every path carries.
    Always,
}

/// Whether an extension that both ends must know is used (Solaris: `never`, `passive`, `active`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Willing {
    /// Neither offered nor accepted.
    Never,
    /// Accepted if the peer offers it.
    Passive,
    /// Offered and accepted.
    Active,
}

impl Willing {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Never, Self::Passive, Self::Active];

    /// The word of a property.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Passive => "passive",
            Self::Active => "active",
        }
    }

    /// What `word` means.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|willing| willing.word() == word)
    }

    /// Whether our SYN offers it.
    pub const fn offers(self) -> bool {
        matches!(self, Self::Active)
    }

    /// Whether a peer's offer is accepted.
    pub const fn accepts(self) -> bool {
        !matches!(self, Self::Never)
    }
}

impl From<bool> for Willing {
    fn from(on: bool) -> Self {
        if on { Self::Active } else { Self::Never }
    }
}

impl SynCookies {
    /// What the word of a property means.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "off" => Some(Self::Off),
            "on" => Some(Self::Pressure),
            "always" => Some(Self::Always),
            _ => None,
        }
    }
}

impl MtuProbing {
    /// What the word of a property means.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "off" => Some(Self::Off),
            "on" => Some(Self::Doubt),
            "always" => Some(Self::Always),
            _ => None,
        }
    }
}

/// When and how often an idle peer is asked whether it lives (RFC 9293 §3.8.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes before the connection is given up.
    pub probes: u8,
}

impl Default for Keepalive {
    /// Solaris: two hours, then eight minutes of probes.
    fn default() -> Self {
        Self { idle: Duration::from_secs(7200), interval: Duration::from_secs(60), probes: 8 }
    }
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            delayed_ack: DEFAULT_DELAY,
            connect_timeout: Duration::from_secs(180),
            abort_timeout: Duration::from_secs(300),
            keepalive: Keepalive::default(),
            fin_wait_2_timeout: Duration::from_secs(60),
            profile: Profile::Linux,
            challenge_interval: Duration::from_millis(500),
            challenge_burst: 1,
            timestamps: true,
            sack: Willing::Active,
            window_scaling: true,
            mtu_probing: MtuProbing::Doubt,
            default_mss: [Mss::DEFAULT_V4, Mss::DEFAULT_V6],
            max_buffer: 6 << 20,
            ecn: Willing::Passive,
            syn_cookies: SynCookies::Pressure,
            half_open_max: 1024,
            fast_open: FastOpenPolicy::default(),
            flight: FlightConfig {
                algorithm: Algorithm::Cubic,
                rto: RtoLimits::default(),
                initial_segments: 10,
                slow_start_after_idle: false,
                abe: false,
                pacing: false,
            },
        }
    }
}

impl TcpConfig {
    /// The window scale to offer: the least with which the largest receive buffer fits the field
    /// (RFC 7323 §2.3 allows at most 14).
    pub fn window_scale(&self) -> u8 {
        let mut scale = 0;
        while scale < MAX_WINDOW_SCALE && self.max_buffer >> scale > u32::from(u16::MAX) {
            scale += 1;
        }
        scale
    }

    /// How long each SYN of a row waits for its answer, without an end.
    fn syn_waits(&self) -> impl Iterator<Item = Duration> + use<> {
        let mut rtt = Rtt::new(self.flight.rto);
        core::iter::repeat_with(move || {
            let rto = rtt.rto().duration();
            rtt.on_timeout();
            rto
        })
    }

    /// How often a SYN is repeated before `connect_timeout` has passed.
    pub fn syn_repeats(&self) -> u8 {
        let (mut waits, mut repeats) = (self.syn_waits(), 0_u8);
        let mut waited = waits.next().unwrap_or_default();
        while waited < self.connect_timeout && repeats < u8::MAX {
            waited += waits.next().unwrap_or_default();
            repeats += 1;
        }
        repeats
    }

    /// How long it takes to repeat a SYN so often and to wait for the last answer.
    pub(crate) fn repeats_within(&self, repeats: u8) -> Duration {
        self.syn_waits().take(usize::from(repeats) + 1).sum()
    }

    /// The scale for a receive ring of `capacity` bytes at birth: a ring that is tiny beside the largest one
    /// could otherwise never announce anything but zero.
    pub(crate) fn window_scale_for(&self, capacity: usize) -> u8 {
        let mut scale = self.window_scale();
        while scale > 0 && capacity >> scale < WINDOW_STEPS_MIN {
            scale -= 1;
        }
        scale
    }
}

/// A ring is announced in at least so many steps.
const WINDOW_STEPS_MIN: usize = 256;

/// The largest window scale (RFC 7323 §2.3): a larger one is taken as this.
pub(crate) const MAX_WINDOW_SCALE: u8 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_the_least_that_fits() {
        for (buffer, scale) in [(0, 0), (65_535, 0), (65_536, 1), (6 << 20, 7), (u32::MAX, 14)] {
            let config = TcpConfig { max_buffer: buffer, ..TcpConfig::default() };
            assert_eq!(config.window_scale(), scale, "{buffer}");
        }
    }

    #[test]
    fn times_that_the_standards_bound() {
        let config = TcpConfig::default();
        assert!(config.keepalive.idle >= Duration::from_secs(2 * 3600), "RFC 9293 MUST-28");
        assert!(config.keepalive.probes > 1, "RFC 9293 MUST-29");
        assert!(config.connect_timeout >= Duration::from_secs(180), "RFC 9293 MUST-23");
        assert!(config.abort_timeout >= Duration::from_secs(100), "RFC 9293 SHLD-11");
        assert!(config.delayed_ack < Duration::from_millis(500), "RFC 9293 MUST-40");
    }

    #[test]
    fn a_syn_is_repeated_until_its_time_is_over() {
        for (seconds, repeats) in [(1, 0), (2, 1), (3, 1), (4, 2), (63, 5), (64, 6), (123, 6), (180, 7)] {
            let connect_timeout = Duration::from_secs(seconds);
            let config = TcpConfig { connect_timeout, ..TcpConfig::default() };
            assert_eq!(config.syn_repeats(), repeats, "{seconds}");
        }
    }

    #[test]
    fn a_tiny_ring_is_announced_finely() {
        let config = TcpConfig::default();
        for (capacity, scale) in [(1, 0), (511, 0), (512, 1), (32_767, 6), (32_768, 7), (6 << 20, 7)] {
            assert_eq!(config.window_scale_for(capacity), scale, "{capacity}");
        }
    }
}
