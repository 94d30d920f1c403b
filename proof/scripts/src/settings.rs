//! What a script sets before it begins: the netstack's tunables, the sockets' buffers, the family.
//!
//! The maximum segment size decides the wire's MTU, so that one script is true of both families.

use std::sync::Arc;
use std::time::Duration;

use firelane_lane::StreamOptions;
use firelane_sim::{HostConfig, StackConfig};
use firelane_socket::StreamConfig;
use firelane_tcp::congestion::Algorithm;
use firelane_tcp::{FastOpenPolicy, Keepalive, MtuProbing, Profile, SynCookies, TcpConfig, Willing};
use firelane_units::{Mss, Mtu};

use crate::text::span;

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) fn is_v6(self) -> bool {
        self == Self::V6
    }
}

/// The settings of a script.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) families: Vec<Family>,
    pub(crate) lanes: u16,
    /// The largest text of our segments without options.
    mss: u16,
    pub(crate) rings: StreamConfig,
    pub(crate) options: StreamOptions,
    /// The peer's first sequence number. Near the end, so that every script's numbers wrap.
    pub(crate) peer_first: u32,
    tcp: TcpConfig,
    time_wait: Duration,
    /// What the route to the peer says of congestion control.
    pub(crate) route_congestion: Option<Algorithm>,
    /// How late a packet may be: a lane's timers have ticks of about a millisecond.
    pub(crate) tolerance: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            families: Family::ALL.to_vec(),
            lanes: 1,
            mss: 1460,
            rings: StreamConfig { send_capacity: 65_536, recv_capacity: 65_536 },
            options: StreamOptions::default(),
            peer_first: u32::MAX - 99,
            tcp: TcpConfig::default(),
            time_wait: Duration::from_secs(60),
            route_congestion: None,
            tolerance: Duration::from_millis(3),
        }
    }
}

impl Settings {
    /// Takes `name value...`.
    pub(crate) fn take(&mut self, text: &str) -> Result<(), String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            ["family", "v4"] => self.families = vec![Family::V4],
            ["family", "v6"] => self.families = vec![Family::V6],
            ["lanes", n] => self.lanes = number(n)?,
            ["mss", n] => self.mss = number(n)?,
            ["rcvbuf", n] => self.rings.recv_capacity = number(n)?,
            ["sndbuf", n] => self.rings.send_capacity = number(n)?,
            ["peer_isn", n] => self.peer_first = number(n)?,
            ["tolerance", n] => self.tolerance = span(n)?,
            ["time_wait", n] => self.time_wait = span(n)?,
            ["route_congestion", word] => self.route_congestion = Some(algorithm(word)?),
            ["nodelay", word] => self.options.nodelay = on(word)?,
            ["fast_open_queue", n] => self.options.fast_open_queue = number(n)?,
            ["user_timeout", n] => self.options.user_timeout = Some(span(n)?),
            ["mss_limit", n] => self.options.mss_limit = Some(Mss::clamped(number(n)?)),
            ["window_clamp", n] => self.options.window_clamp = Some(number(n)?),
            ["hears_errors", word] => self.options.hears_errors = [on(word)?; 2],
            ["syn_retries", n] => self.options.syn_retries = Some(number(n)?),
            ["fin_wait_2", n] => self.options.fin_wait_2 = Some(span(n)?),
            ["defer", n] => self.options.defer = number(n)?,
            ["keepalive", idle, interval, probes] => {
                self.options.keepalive = Some(keepalive(idle, interval, probes)?);
            }
            [name, value] if name.starts_with("tcp.") => self.take_tcp(&name[4..], value)?,
            _ => return Err(format!("`{text}` is no setting")),
        }
        Ok(())
    }

    fn take_tcp(&mut self, name: &str, value: &str) -> Result<(), String> {
        let tcp = &mut self.tcp;
        match name {
            "timestamps" => tcp.timestamps = on(value)?,
            "sack" => tcp.sack = on(value)?.into(),
            "window_scaling" => tcp.window_scaling = on(value)?,
            "max_buffer" => tcp.max_buffer = number(value)?,
            "delayed_ack" => tcp.delayed_ack = span(value)?,
            "connect_timeout" => tcp.connect_timeout = span(value)?,
            "abort_timeout" => tcp.abort_timeout = span(value)?,
            "fin_wait_2_timeout" => tcp.fin_wait_2_timeout = span(value)?,
            "challenge_interval" => tcp.challenge_interval = span(value)?,
            "profile" => {
                let profile = Profile::from_word(value).ok_or(format!("`{value}` is no profile"))?;
                *tcp = tcp.clone().with_profile(profile);
            }
            "challenge_burst" => tcp.challenge_burst = number(value)?,
            "syn_cookies" => {
                let known = SynCookies::from_word(value);
                tcp.syn_cookies = known.ok_or(format!("`{value}` is none of off, on, always"))?;
            }
            "mtu_probing" => {
                let known = MtuProbing::from_word(value);
                tcp.mtu_probing = known.ok_or(format!("`{value}` is none of off, on, always"))?;
            }
            "fast_open" => tcp.fast_open = FastOpenPolicy::new(number(value)?),
            "initial_segments" => tcp.flight.initial_segments = number(value)?,
            "slow_start_after_idle" => tcp.flight.slow_start_after_idle = on(value)?,
            "pacing" => tcp.flight.pacing = on(value)?,
            "abe" => tcp.flight.abe = on(value)?,
            "ecn" => {
                let policy = Willing::from_word(value);
                tcp.ecn = policy.ok_or(format!("`{value}` is neither never nor passive nor active"))?;
            }
            "congestion" => tcp.flight.algorithm = algorithm(value)?,
            _ => return Err(format!("`tcp.{name}` is no setting")),
        }
        Ok(())
    }

    /// The MTU with which our segments have the size that the script wants.
    pub(crate) fn mtu(&self, family: Family) -> Mtu {
        let headers = if family.is_v6() { 60 } else { 40 };
        Mtu::new(self.mss + headers).expect("scripts choose an MSS that some MTU has")
    }

    pub(crate) fn host(&self) -> HostConfig {
        HostConfig {
            lanes: self.lanes,
            pools: firelane_frame::PoolsConfig { small_slots: 256, large_slots: 4 },
        }
    }

    pub(crate) fn stack(&self, number: u8) -> StackConfig {
        StackConfig { tcp: Arc::new(self.tcp.clone()), time_wait: self.time_wait, ..StackConfig::new(number) }
    }
}

fn algorithm(word: &str) -> Result<Algorithm, String> {
    Algorithm::from_word(word).ok_or_else(|| format!("`{word}` is no congestion control"))
}

pub(crate) fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("`{word}` is no such number"))
}

pub(crate) fn on(word: &str) -> Result<bool, String> {
    match word {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("`{word}` is neither on nor off")),
    }
}

/// The times of keepalive, in seconds, and how many probes.
pub(crate) fn keepalive(idle: &str, interval: &str, probes: &str) -> Result<Keepalive, String> {
    Ok(Keepalive { idle: span(idle)?, interval: span(interval)?, probes: number(probes)? })
}
