//! Socket options of programs, by Linux' numbers: what is kept for a socket that is no stream yet, what a stream is told, and
//! what there is not.
//!
//! Called by `socket.rs`. An option that Firelane does not have is `ENOPROTOOPT`, never taken in silence.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use firelane_filter::FilterSetup;
use firelane_ip::HopLimits;
use firelane_lane::{Band, StreamOption, StreamOptions};
use firelane_shm::layout::{Block, LINGERS, OOB_INLINE, RESETS, TELLS_UNREAD, request};
use firelane_socket::StreamConfig;
use firelane_tcp::congestion::Algorithm;
use firelane_tcp::{Keepalive, TcpConfig, Tuning, Unconnected, deferred_repeats};
use firelane_units::{BitRate, Mss};
use rustix::io::Errno;

use super::alike::Alike;
use super::asked::Asked;
use super::headers::{HeaderOption, Headers, family_of};
use super::inert::Inert;
use super::lingering::Linger;
use super::numbers::{
    ECN, band_of, buffer_of, buffer_shown, domain, ip, ipv6, number, pacing_of, pacing_shown, packet_max,
    socket, tcp,
};
use super::stream::Beginning;
use crate::netstack_config::{NetstackConfig, SocketDefaults};

/// How many ticks Linux' own limits of keep-alive are (`MAX_TCP_KEEPIDLE`, `MAX_TCP_KEEPCNT`).
const KEEP_SECONDS_MAX: i32 = 32_767;
const KEEP_COUNT_MAX: i32 = 127;
/// Linux' limits of repeated SYNs (`MAX_TCP_SYNCNT`), of FIN-WAIT-2 (`TCP_FIN_TIMEOUT_MAX`) and of segments.
const SYN_RETRIES_MAX: i32 = 127;
const FIN_WAIT_2_MAX: i32 = 120;
/// Linux' least clamp of a window, half of its least buffer (`SOCK_MIN_RCVBUF`).
const CLAMP_MIN: i32 = 1152;
const SEGMENT_MIN: i32 = Mss::FLOOR as i32;
const SEGMENT_MAX: i32 = 32_767;
/// The bytes of a `struct ipv6_mreq`.
const MEMBERSHIP_V6: usize = 20;
/// The options that a stream has in its own words.
const LANE_BITS: u64 = request::NODELAY | request::CORK | request::QUICKACK;

/// What a program has set.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) reuse_address: bool,
    pub(super) reuse_port: bool,
    broadcast: bool,
    /// bind(2) with an address alone leaves the port to connect(2), which may share it (IP_BIND_ADDRESS_NO_PORT).
    pub(super) port_later: bool,
    oob_inline: bool,
    /// Each message comes with how much is left to read (TCP_INQ).
    tells_unread: bool,
    pub(super) v6_only: bool,
    keepalive: bool,
    keep: KeepTimes,
    linger: Linger,
    buffers: [Option<usize>; 2],
    nodelay: bool,
    cork: bool,
    quickack: bool,
    user_timeout: Option<Duration>,
    congestion: Option<Algorithm>,
    pacing: Option<BitRate>,
    /// TCP_FASTOPEN and TCP_DEFER_ACCEPT; zero leaves it to the netstack.
    fast_open: u32,
    defer: u32,
    /// Text goes with the SYN of a connect (TCP_FASTOPEN_CONNECT), or without a cookie (TCP_FASTOPEN_NO_COOKIE).
    fast_connect: bool,
    fast_trusts: bool,
    syn_retries: Option<u8>,
    /// TCP_LINGER2, in seconds; less than zero is not at all, zero as long as the netstack says.
    fin_wait_2: i32,
    /// TCP_NOTSENT_LOWAT, and what the netstack says where that is zero; zero is no limit.
    unsent: [u32; 2],
    /// TCP_WINDOW_CLAMP.
    clamp: Option<u32>,
    /// IP_RECVERR and IPV6_RECVERR.
    hears_errors: [bool; 2],
    /// TCP_MAXSEG, of a connection that is to come.
    segment: Option<Mss>,
    inert: Inert,
    pub(super) alike: Alike,
    headers: Headers,
    priority: i32,
    /// IP_MTU_DISCOVER and IPV6_MTU_DISCOVER, where they are not the usual, IP_PMTUDISC_WANT.
    discover: [Option<i32>; 2],
    /// Who may begin a connection, once it listens.
    pub(super) filter: Option<Arc<FilterSetup>>,
}

/// When a silent peer is asked: what the program has said, and what the netstack says where that is nothing.
#[derive(Clone, Copy, Debug, Default)]
struct KeepTimes {
    idle: Option<Duration>,
    interval: Option<Duration>,
    probes: Option<u8>,
    usual: Keepalive,
}

impl KeepTimes {
    fn times(&self) -> Keepalive {
        self.over(self.usual)
    }

    fn over(&self, usual: Keepalive) -> Keepalive {
        Keepalive {
            idle: self.idle.unwrap_or(usual.idle),
            interval: self.interval.unwrap_or(usual.interval),
            probes: self.probes.unwrap_or(usual.probes),
        }
    }
}

/// What else a getsockopt(2) may be about.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub(super) is_v6: bool,
    /// What it is without a stream.
    pub(super) otherwise: Unconnected,
    pub(super) stream: Option<Asked<'a>>,
    pub(super) usual: &'a SocketDefaults,
    pub(super) tcp: &'a TcpConfig,
    /// Of packets whose program says nothing.
    pub(super) hops: HopLimits,
}

impl About<'_> {
    fn is_listening(&self) -> bool {
        matches!(self.otherwise, Unconnected::Listening { .. })
    }
}

impl Options {
    /// As a new socket has them.
    pub(super) fn with_filter(filter: Option<Arc<FilterSetup>>) -> Self {
        Self { filter, ..Self::default() }
    }

    /// setsockopt(2). What a stream that exists is to be told.
    pub(super) fn set(&mut self, level: i32, name: i32, value: &[u8]) -> Result<Option<StreamOption>, Errno> {
        match (level, name) {
            (socket::LEVEL, socket::LINGER) => {
                self.linger.set(value)?;
                Ok(None)
            }
            (socket::LEVEL, socket::MAX_PACING_RATE) => {
                self.pacing = pacing_of(value)?;
                Ok(Some(StreamOption::PacingLimit(self.pacing)))
            }
            (tcp::LEVEL, tcp::CONGESTION) if value.is_empty() => Err(Errno::INVAL),
            (tcp::LEVEL, tcp::CONGESTION) => {
                let word = value.split(|&byte| byte == 0).next().unwrap_or_default();
                let algorithm = std::str::from_utf8(word).ok().and_then(algorithm_of);
                self.congestion = Some(algorithm.ok_or(Errno::NOENT)?);
                Ok(self.congestion.map(StreamOption::Congestion))
            }
            // A connection is in no group.
            (ipv6::LEVEL, ipv6::ADD_MEMBERSHIP | ipv6::DROP_MEMBERSHIP) if value.len() < MEMBERSHIP_V6 => {
                Err(Errno::INVAL)
            }
            (ip::LEVEL, ip::ADD_MEMBERSHIP | ip::DROP_MEMBERSHIP)
            | (ipv6::LEVEL, ipv6::ADD_MEMBERSHIP | ipv6::DROP_MEMBERSHIP) => Err(Errno::PROTO),
            (ip::LEVEL, ip::MULTICAST_TTL | ip::MULTICAST_IF) => Err(Errno::INVAL),
            (ipv6::LEVEL, ipv6::MULTICAST_HOPS | ipv6::MULTICAST_IF) => Err(Errno::NOPROTOOPT),
            _ => self.set_number(level, name, number(level, value)?),
        }
    }

    fn set_number(&mut self, level: i32, name: i32, value: i32) -> Result<Option<StreamOption>, Errno> {
        let on = value != 0;
        match (level, name) {
            (socket::LEVEL, socket::REUSEADDR) => self.reuse_address = on,
            (socket::LEVEL, socket::REUSEPORT) => self.reuse_port = on,
            (socket::LEVEL, socket::BROADCAST) => self.broadcast = on,
            (socket::LEVEL, socket::OOBINLINE) => self.oob_inline = on,
            (socket::LEVEL, socket::SNDBUF | socket::RCVBUF) => {
                let wanted = buffer_of(value);
                self.buffers[usize::from(name == socket::RCVBUF)] = Some(wanted);
                return Ok(Some(StreamOption::Tuning(self.tuning())));
            }
            (socket::LEVEL, socket::KEEPALIVE) => {
                self.keepalive = on;
                return Ok(Some(self.keep_option()));
            }
            (tcp::LEVEL, tcp::KEEPIDLE | tcp::KEEPINTVL) if (1..=KEEP_SECONDS_MAX).contains(&value) => {
                let span = Duration::from_secs(u64::from(value.unsigned_abs()));
                *(if name == tcp::KEEPIDLE { &mut self.keep.idle } else { &mut self.keep.interval }) =
                    Some(span);
                return Ok(self.keepalive.then(|| self.keep_option()));
            }
            (tcp::LEVEL, tcp::KEEPCNT) if (1..=KEEP_COUNT_MAX).contains(&value) => {
                self.keep.probes = Some(value as u8);
                return Ok(self.keepalive.then(|| self.keep_option()));
            }
            (tcp::LEVEL, tcp::KEEPIDLE | tcp::KEEPINTVL | tcp::KEEPCNT) => return Err(Errno::INVAL),
            (tcp::LEVEL, tcp::NODELAY) => {
                self.nodelay = on;
                return Ok(Some(StreamOption::Nodelay(on)));
            }
            (tcp::LEVEL, tcp::CORK) => {
                self.cork = on;
                return Ok(Some(StreamOption::Cork(on)));
            }
            (tcp::LEVEL, tcp::QUICKACK) => {
                self.quickack = on;
                return Ok(Some(StreamOption::QuickAck(on)));
            }
            (tcp::LEVEL, tcp::USER_TIMEOUT) => {
                let millis = u64::try_from(value).map_err(|_| Errno::INVAL)?;
                self.user_timeout = (millis != 0).then(|| Duration::from_millis(millis));
                return Ok(Some(StreamOption::UserTimeout(self.user_timeout)));
            }
            (ipv6::LEVEL, ipv6::V6ONLY) => self.v6_only = on,
            (ip::LEVEL, ip::BIND_ADDRESS_NO_PORT) => self.port_later = on,
            (tcp::LEVEL, _) => return self.set_of_connecting(name, value),
            _ => return self.set_of_packets(level, name, value),
        }
        Ok(None)
    }

    /// How connections begin and end.
    fn set_of_connecting(&mut self, name: i32, value: i32) -> Result<Option<StreamOption>, Errno> {
        match (name, value) {
            (tcp::FASTOPEN, 0..) => self.fast_open = value.unsigned_abs(),
            (tcp::FASTOPEN_CONNECT, 0..=1) => self.fast_connect = value != 0,
            (tcp::FASTOPEN_NO_COOKIE, 0..=1) => self.fast_trusts = value != 0,
            (tcp::INQ, 0..=1) => self.tells_unread = value != 0,
            (tcp::DEFER_ACCEPT, _) => self.defer = value.max(0).unsigned_abs(),
            (tcp::SYNCNT, 1..=SYN_RETRIES_MAX) => {
                self.syn_retries = Some(value as u8);
                return Ok(Some(StreamOption::SynRetries(self.syn_retries)));
            }
            (tcp::LINGER2, _) => {
                self.fin_wait_2 = value.clamp(-1, FIN_WAIT_2_MAX);
                return Ok(Some(StreamOption::FinWait2(self.fin_wait_2())));
            }
            (tcp::NOTSENT_LOWAT, _) => {
                self.unsent[0] = value.cast_unsigned();
                return Ok(Some(StreamOption::UnsentLimit(self.unsent_limit())));
            }
            (tcp::WINDOW_CLAMP, _) => {
                self.clamp = (value != 0).then(|| value.max(CLAMP_MIN).unsigned_abs());
                return Ok(Some(StreamOption::WindowClamp(self.clamp)));
            }
            (tcp::MAXSEG, 0) => self.segment = None,
            (tcp::MAXSEG, SEGMENT_MIN..=SEGMENT_MAX) => self.segment = Some(Mss::clamped(value as u16)),
            (
                tcp::FASTOPEN
                | tcp::SYNCNT
                | tcp::MAXSEG
                | tcp::FASTOPEN_CONNECT
                | tcp::FASTOPEN_NO_COOKIE
                | tcp::INQ,
                _,
            ) => {
                return Err(Errno::INVAL);
            }
            _ => return Err(Errno::NOPROTOOPT),
        }
        Ok(None)
    }

    fn fin_wait_2(&self) -> Option<Duration> {
        (self.fin_wait_2 != 0).then(|| Duration::from_secs(self.fin_wait_2.max(0).unsigned_abs().into()))
    }

    /// How much may be written and unsent, if that is limited.
    pub(super) fn unsent_limit(&self) -> Option<u32> {
        self.unsent.into_iter().find(|&limit| limit != 0)
    }

    /// Takes over what the netstack says of sockets that say nothing themselves.
    pub(super) fn follow(own: &mut Arc<Self>, config: &NetstackConfig) {
        let (limit, keep) = (config.sockets.unsent_limit().unwrap_or(0), config.sockets.keepalive);
        if own.unsent[1] != limit || own.keep.usual != keep {
            let own = Arc::make_mut(own);
            (own.unsent[1], own.keep.usual) = (limit, keep);
        }
    }

    /// What its packets are like and when they go.
    fn set_of_packets(&mut self, level: i32, name: i32, value: i32) -> Result<Option<StreamOption>, Errno> {
        // Congestion is TCP's own to mark.
        if let Some(option) = self.headers.set((level, name), value, !ECN, &mut self.priority) {
            return option.map(|option| Some(of_header(option)));
        }
        match (level, name) {
            (ip::LEVEL, ip::MTU_DISCOVER) | (ipv6::LEVEL, ipv6::MTU_DISCOVER) => match value {
                // Segments are never cut, whatever it is: TCP finds out what the way carries.
                0..=5 => self.discover[family_of(level).index()] = Some(value),
                _ => return Err(Errno::INVAL),
            },
            // Segments are as large as TCP_MAXSEG says, and never cut.
            (ipv6::LEVEL, ipv6::MTU) => drop(packet_max(value)?),
            (ip::LEVEL, ip::RECVERR) | (ipv6::LEVEL, ipv6::RECVERR) => {
                self.hears_errors[usize::from(level == ipv6::LEVEL)] = value != 0;
                return Ok(Some(StreamOption::HearsErrors(self.hears_errors)));
            }
            (socket::LEVEL, socket::PRIORITY) => {
                self.priority = value;
                return Ok(Some(StreamOption::Band(band_of(value))));
            }
            (ip::LEVEL, ip::MULTICAST_ALL) if !(0..=1).contains(&value) => return Err(Errno::INVAL),
            (ipv6::LEVEL, ipv6::MULTICAST_LOOP) if !(0..=1).contains(&value) => return Err(Errno::INVAL),
            _ if self.alike.set(level, name, value) || self.inert.set(level, name, value != 0) => {}
            _ => return Err(Errno::NOPROTOOPT),
        }
        Ok(None)
    }

    fn keep_option(&self) -> StreamOption {
        StreamOption::Keepalive(self.keepalive.then(|| self.keep.times()))
    }

    /// getsockopt(2), at most `len` bytes.
    pub(super) fn get(&self, level: i32, name: i32, len: usize, about: &About<'_>) -> Result<Vec<u8>, Errno> {
        let mut value = match (level, name) {
            (socket::LEVEL, socket::MAX_PACING_RATE) => pacing_shown(self.pacing, len),
            (socket::LEVEL, socket::LINGER) => self.linger.shown(),
            (tcp::LEVEL, tcp::CONGESTION) => {
                let mut word = linux_word(self.congestion_of(about)).as_bytes().to_vec();
                word.resize(16, 0);
                word
            }
            (tcp::LEVEL, tcp::INFO) => {
                let info = about.stream.and_then(|stream| stream.info().ok());
                info.map_or_else(|| about.otherwise.tcp_info(), |info| info.tcp_info()).to_vec()
            }
            _ => self.number(level, name, about)?.to_ne_bytes().to_vec(),
        };
        value.truncate(len);
        Ok(value)
    }

    fn number(&self, level: i32, name: i32, about: &About<'_>) -> Result<i32, Errno> {
        let seconds = |span: Duration| i32::try_from(span.as_secs()).unwrap_or(i32::MAX);
        let info = || about.stream.and_then(|stream| stream.info().ok());
        let buffer = |at: usize, usual: usize| buffer_shown(self.buffers[at].unwrap_or(usual));
        Ok(match (level, name) {
            (socket::LEVEL, socket::REUSEADDR) => self.reuse_address.into(),
            (socket::LEVEL, socket::REUSEPORT) => self.reuse_port.into(),
            (socket::LEVEL, socket::BROADCAST) => self.broadcast.into(),
            (socket::LEVEL, socket::OOBINLINE) => self.oob_inline.into(),
            (socket::LEVEL, socket::KEEPALIVE) => self.keepalive.into(),
            (socket::LEVEL, socket::SNDBUF) => buffer(0, about.usual.stream.send_capacity),
            (socket::LEVEL, socket::RCVBUF) => buffer(1, about.usual.stream.recv_capacity),
            (socket::LEVEL, socket::TYPE | socket::SNDLOWAT) => 1,
            // Errors are in the stream's words.
            (socket::LEVEL, socket::ERROR) => 0,
            (socket::LEVEL, socket::ACCEPTCONN) => about.is_listening().into(),
            (socket::LEVEL, socket::PROTOCOL) => tcp::LEVEL,
            (socket::LEVEL, socket::DOMAIN) => domain(about.is_v6),
            (socket::LEVEL, socket::PRIORITY) => self.priority,
            (ip::LEVEL, ip::MTU_DISCOVER) | (ipv6::LEVEL, ipv6::MTU_DISCOVER) => {
                self.discover[family_of(level).index()].unwrap_or(1)
            }
            (tcp::LEVEL, tcp::NODELAY) => self.nodelay.into(),
            (tcp::LEVEL, tcp::CORK) => self.cork.into(),
            (tcp::LEVEL, tcp::QUICKACK) => self.quickack.into(),
            (tcp::LEVEL, tcp::KEEPIDLE) => seconds(self.keep_of(about).idle),
            (tcp::LEVEL, tcp::KEEPINTVL) => seconds(self.keep_of(about).interval),
            (tcp::LEVEL, tcp::KEEPCNT) => self.keep_of(about).probes.into(),
            (tcp::LEVEL, tcp::MAXSEG) => {
                let begins = self.segment.unwrap_or(Mss::DEFAULT_V4);
                info().map_or(begins, |info| info.tcp.send_mss).bytes().into()
            }
            // What a connection could announce at most; Linux knows that of none before it stands.
            (tcp::LEVEL, tcp::WINDOW_CLAMP) => {
                let most = info().map(|info| u32::try_from(info.receive_buffer.0).unwrap_or(u32::MAX));
                self.clamp.into_iter().chain(most).min().unwrap_or(0).cast_signed()
            }
            (tcp::LEVEL, tcp::FASTOPEN) => self.fast_open.cast_signed(),
            (tcp::LEVEL, tcp::FASTOPEN_CONNECT) => self.fast_connect.into(),
            (tcp::LEVEL, tcp::FASTOPEN_NO_COOKIE) => self.fast_trusts.into(),
            (tcp::LEVEL, tcp::INQ) => self.tells_unread.into(),
            (tcp::LEVEL, tcp::DEFER_ACCEPT) => (1 << deferred_repeats(self.defer)) - 1,
            (tcp::LEVEL, tcp::NOTSENT_LOWAT) => self.unsent[0].cast_signed(),
            (tcp::LEVEL, tcp::SYNCNT) => self.syn_retries.unwrap_or_else(|| about.tcp.syn_repeats()).into(),
            (tcp::LEVEL, tcp::LINGER2) if self.fin_wait_2 != 0 => self.fin_wait_2,
            (tcp::LEVEL, tcp::LINGER2) => seconds(about.tcp.fin_wait_2_timeout),
            (tcp::LEVEL, tcp::USER_TIMEOUT) => {
                self.user_timeout.map_or(0, |span| i32::try_from(span.as_millis()).unwrap_or(i32::MAX))
            }
            (ip::LEVEL, ip::RECVERR) => self.hears_errors[0].into(),
            (ipv6::LEVEL, ipv6::RECVERR) => self.hears_errors[1].into(),
            (ipv6::LEVEL, ipv6::V6ONLY) => self.v6_only.into(),
            (ip::LEVEL, ip::BIND_ADDRESS_NO_PORT) => self.port_later.into(),
            _ => {
                let kept = self.headers.get(level, name, about.hops).or(self.alike.get(level, name));
                kept.or(self.inert.get(level, name)).or(of_groups(level, name)).ok_or(Errno::NOPROTOOPT)?
            }
        })
    }

    /// Which congestion control it has: a connection's is also the route's or the netstack's to say.
    fn congestion_of(&self, about: &About<'_>) -> Algorithm {
        let of_connection =
            || about.stream.and_then(|stream| stream.info().ok()).map(|info| info.tcp.congestion);
        self.congestion.or_else(of_connection).unwrap_or(about.tcp.flight.algorithm)
    }

    /// When its peer is asked: a socket that has begun nothing yet will take over what the netstack says then.
    fn keep_of(&self, about: &About<'_>) -> Keepalive {
        let has_begun = about.is_listening() || about.stream.is_some();
        if has_begun { self.keep.times() } else { self.keep.over(about.usual.keepalive) }
    }

    /// Which buffers grow by themselves: those that the program has not set.
    fn tuning(&self) -> Tuning {
        let [send, receive] = self.buffers.map(|buffer| buffer.is_none());
        Tuning { send, receive }
    }

    /// What a connection begins with.
    pub(super) fn first(&self) -> StreamOptions {
        StreamOptions {
            tuning: self.tuning(),
            nodelay: self.nodelay,
            keepalive: self.keepalive.then(|| self.keep.times()),
            user_timeout: self.user_timeout,
            congestion: self.congestion,
            pacing_limit: self.pacing,
            link: self.alike.link,
            fast_open: self.fast_connect,
            fast_open_trusts: self.fast_trusts,
            fast_open_queue: self.fast_open,
            syn_retries: self.syn_retries,
            fin_wait_2: self.fin_wait_2(),
            mss_limit: self.segment,
            window_clamp: self.clamp,
            hears_errors: self.hears_errors,
            hops: self.headers.hops,
            dscp: self.headers.class.map(|class| class >> 2),
            least_hops: self.headers.least_hops,
            unsent_limit: self.unsent_limit(),
            defer: self.defer,
            ..StreamOptions::default()
        }
    }

    /// Those of a connection of a listener with `own`: all the same, but that its priority is the usual one, as in Linux, and what is
    /// about listeners alone is none of its.
    pub(super) fn of_accepted(own: &Arc<Self>) -> Arc<Self> {
        if (own.priority, own.fast_open, own.defer) == (0, 0, 0) {
            return Arc::clone(own);
        }
        Arc::new(Self { priority: 0, fast_open: 0, defer: 0, ..Self::clone(own) })
    }

    /// What goes beside that.
    pub(super) fn beginning(&self) -> Beginning {
        Beginning {
            bits: self.bits(),
            shown: self.shown(),
            unsent: self.unsent_limit(),
            low_water: self.alike.low_water,
            later: self.later(),
            resets: self.resets(),
        }
    }

    /// What the program's side of a stream is to know.
    pub(super) fn shown(&self) -> u64 {
        let bit = |on, bit| if on { bit } else { 0 };
        bit(self.lingers().is_some(), LINGERS)
            | bit(self.resets(), RESETS)
            | bit(self.oob_inline, OOB_INLINE)
            | bit(self.tells_unread, TELLS_UNREAD)
    }

    /// How urgent what it sends is.
    pub(super) fn band(&self) -> Band {
        band_of(self.priority)
    }

    /// What it is told once it is there.
    fn later(&self) -> Vec<StreamOption> {
        let cork = self.cork.then_some(StreamOption::Cork(true));
        let band = Some(self.band()).filter(|&band| band != Band::Usual).map(StreamOption::Band);
        cork.into_iter().chain(band).collect()
    }

    /// What was set and is not as it was, as words; `bits` are the options that the program keeps itself.
    pub(super) fn spelled(&self, bits: u64) -> Vec<String> {
        let has = |bit| bits & bit != 0;
        let flags = [
            (self.reuse_address, "reuseaddr"),
            (self.reuse_port, "reuseport"),
            (self.broadcast, "broadcast"),
            (self.oob_inline, "oobinline"),
            (self.v6_only, "v6only"),
            (self.port_later, "bind_address_no_port"),
            (self.tells_unread, "inq"),
            (self.fast_connect, "fastopen_connect"),
            (self.fast_trusts, "fastopen_no_cookie"),
            (self.hears_errors != [false; 2], "recverr"),
            (has(request::NODELAY), "nodelay"),
            (has(request::CORK), "cork"),
            (has(request::QUICKACK), "quickack"),
        ];
        let mut words: Vec<String> =
            flags.into_iter().filter(|(on, _)| *on).map(|(_, word)| word.to_owned()).collect();
        let mut add =
            |name: &str, value: Option<String>| words.extend(value.map(|it| format!("{name}={it}")));
        let Keepalive { idle, interval, probes } = self.keep.times();
        let keep = || format!("{}s,{}s,{probes}", idle.as_secs(), interval.as_secs());
        add("keepalive", self.keepalive.then(keep));
        add("linger", self.linger.seconds().map(|seconds| format!("{seconds}s")));
        add("sndbuf", self.buffers[0].map(|bytes| bytes.to_string()));
        add("rcvbuf", self.buffers[1].map(|bytes| bytes.to_string()));
        add("user_timeout", self.user_timeout.map(|span| format!("{}ms", span.as_millis())));
        add("congestion", self.congestion.map(|it| it.word().to_owned()));
        add("max_pacing_rate", self.pacing.map(|rate| format!("{}bps", rate.bps())));
        add("priority", (self.priority != 0).then(|| self.priority.to_string()));
        let some = |number: u32| (number != 0).then(|| number.to_string());
        add("fastopen", some(self.fast_open));
        add("defer_accept", some(self.defer).map(|seconds| format!("{seconds}s")));
        add("syncnt", self.syn_retries.map(|most| most.to_string()));
        add("linger2", (self.fin_wait_2 != 0).then(|| format!("{}s", self.fin_wait_2)));
        add("notsent_lowat", some(self.unsent[0]));
        add("window_clamp", self.clamp.map(|most| most.to_string()));
        add("maxseg", self.segment.map(|segment| segment.bytes().to_string()));
        words.extend(self.headers.spelled().chain(self.alike.spelled()));
        words
    }

    /// The options that have a bit in a stream's own words.
    pub(super) fn bits(&self) -> u64 {
        let bit = |on, bit| if on { bit } else { 0 };
        bit(self.nodelay, request::NODELAY)
            | bit(self.cork, request::CORK)
            | bit(self.quickack, request::QUICKACK)
    }

    /// The options that a stream had in its own words, once it is without a connection.
    pub(super) fn take_words(own: &mut Arc<Self>, block: &Block) {
        let (bits, least) =
            (block.requests.load(Ordering::Relaxed), block.low_water[0].load(Ordering::Relaxed));
        let has = |bit| bits & bit != 0;
        if own.bits() != bits & LANE_BITS || own.alike.low_water != least {
            let own = Arc::make_mut(own);
            (own.nodelay, own.cork) = (has(request::NODELAY), has(request::CORK));
            own.quickack = has(request::QUICKACK);
            own.alike.low_water = least.clamp(1, i32::MAX.unsigned_abs());
        }
    }

    /// The sizes of a connection's rings.
    pub(super) fn rings(&self, usual: StreamConfig) -> StreamConfig {
        StreamConfig {
            send_capacity: self.buffers[0].unwrap_or(usual.send_capacity),
            recv_capacity: self.buffers[1].unwrap_or(usual.recv_capacity),
        }
    }

    /// The size that was chosen of one buffer.
    pub(super) fn buffer(&self, receives: bool) -> Option<usize> {
        self.buffers[usize::from(receives)]
    }

    /// Whether close(2) resets (`SO_LINGER` with zero seconds).
    pub(super) fn resets(&self) -> bool {
        self.linger.seconds() == Some(0)
    }

    /// How long close(2) waits for the peer's acknowledgement, if it does (`SO_LINGER`).
    pub(super) fn lingers(&self) -> Option<Duration> {
        let seconds = self.linger.seconds().filter(|&seconds| seconds > 0);
        seconds.map(|seconds| Duration::from_secs(seconds.into()))
    }
}

/// How far, and by which link, what a stream sends to groups would go: it sends none, and nobody can say otherwise.
const fn of_groups(level: i32, name: i32) -> Option<i32> {
    match (level, name) {
        (ip::LEVEL, ip::MULTICAST_TTL) | (ipv6::LEVEL, ipv6::MULTICAST_HOPS) => Some(1),
        (ip::LEVEL, ip::MULTICAST_IF) | (ipv6::LEVEL, ipv6::MULTICAST_IF) => Some(0),
        _ => None,
    }
}

fn of_header(option: HeaderOption) -> StreamOption {
    match option {
        HeaderOption::Hops(family, hops) => StreamOption::Hops(family, hops),
        HeaderOption::Class(family, class) => StreamOption::Dscp(family, class >> 2),
        HeaderOption::LeastHops(family, least) => StreamOption::LeastHops(family, least),
    }
}

/// What Linux calls NewReno.
const RENO: &str = "reno";

/// The congestion control that a program names.
fn algorithm_of(word: &str) -> Option<Algorithm> {
    if word == RENO { Some(Algorithm::NewReno) } else { Algorithm::from_word(word) }
}

/// What a program is told of it.
const fn linux_word(algorithm: Algorithm) -> &'static str {
    if let Algorithm::NewReno = algorithm { RENO } else { algorithm.word() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::LinkId;

    fn usual() -> SocketDefaults {
        let stream = StreamConfig { send_capacity: 1000, recv_capacity: 2000 };
        SocketDefaults { stream, ..SocketDefaults::default() }
    }

    /// A socket of IPv4 that has begun nothing.
    fn closed<'a>(usual: &'a SocketDefaults, tcp: &'a TcpConfig) -> About<'a> {
        let otherwise = Unconnected::Closed;
        About { is_v6: false, otherwise, stream: None, usual, tcp, hops: HopLimits::DEFAULT }
    }

    #[test]
    fn what_a_program_leaves_open_is_as_the_netstack_has_it() {
        let (usual, tcp) = (usual(), TcpConfig::default());
        let about = closed(&usual, &tcp);
        let options = Options::default();
        for (name, got) in [(2, 536), (4, 7200), (5, 75), (6, 9), (7, 7), (8, 60), (9, 0), (23, 0)] {
            assert_eq!(options.get(6, name, 4, &about), Ok(i32::to_ne_bytes(got).to_vec()), "{name}");
        }
        assert_eq!(options.get(1, 19, 4, &about), Ok(i32::to_ne_bytes(1).to_vec()), "SO_SNDLOWAT");
    }

    #[test]
    fn what_decides_without_a_word_of_the_program_is_told() {
        let usual = usual();
        let mut tcp = TcpConfig::default();
        tcp.flight.algorithm = Algorithm::Bbr;
        let about = About {
            otherwise: Unconnected::Listening { waiting: 3, backlog: 8 },
            hops: HopLimits { v4: 77, v6: 78 },
            ..closed(&usual, &tcp)
        };
        let mut options = Options::default();
        let congestion = |options: &Options| options.get(6, tcp::CONGESTION, 4, &about);
        assert_eq!(congestion(&options), Ok(b"bbr\0".to_vec()));
        options.set(6, tcp::CONGESTION, b"cubic").unwrap();
        assert_eq!(congestion(&options), Ok(b"cubi".to_vec()));
        let info = options.get(6, tcp::INFO, 240, &about).unwrap();
        assert_eq!((info.len(), info[0], info[24], info[28]), (240, 10, 3, 8), "TCP_LISTEN");
        assert_eq!(options.get(0, 2, 1, &about), Ok(vec![77]), "IP_TTL");
        assert_eq!(options.get(41, 16, 1, &about), Ok(vec![78]), "IPV6_UNICAST_HOPS");
        let closed = About { otherwise: Unconnected::Closed, ..about };
        assert_eq!(options.get(6, tcp::INFO, 1, &closed), Ok(vec![7]), "TCP_CLOSE");
    }

    /// `_keepalive_interval` of ipadm, and TCP_KEEPIDLE and its like, which count more.
    #[test]
    fn keepalive_is_as_the_netstack_has_it_where_the_program_says_nothing() {
        let secs = Duration::from_secs;
        let mut config = NetstackConfig::default();
        config.sockets.keepalive = Keepalive { idle: secs(90), interval: secs(9), probes: 3 };
        let older = SocketDefaults::default();
        let about = |usual| About { hops: config.hops, ..closed(usual, &config.tcp) };
        let said = config.sockets.clone();
        let mut options = Arc::new(Options::default());
        assert_eq!(options.get(6, tcp::KEEPIDLE, 4, &about(&said)), Ok(i32::to_ne_bytes(90).to_vec()));
        Arc::make_mut(&mut options).set(1, socket::KEEPALIVE, &1i32.to_ne_bytes()).unwrap();
        Options::follow(&mut options, &config);
        assert_eq!(options.first().keepalive, Some(config.sockets.keepalive));
        let told = Arc::make_mut(&mut options).set(6, tcp::KEEPINTVL, &5i32.to_ne_bytes());
        let chosen = Keepalive { interval: secs(5), ..config.sockets.keepalive };
        assert_eq!(told, Ok(Some(StreamOption::Keepalive(Some(chosen)))));
        let otherwise = Unconnected::Listening { waiting: 0, backlog: 1 };
        let listening = About { otherwise, ..about(&older) };
        for (name, got) in [(tcp::KEEPIDLE, 90), (tcp::KEEPINTVL, 5), (tcp::KEEPCNT, 3)] {
            assert_eq!(options.get(6, name, 4, &listening), Ok(i32::to_ne_bytes(got).to_vec()), "{name}");
        }
    }

    #[test]
    fn what_is_set_is_what_is_got_and_the_rest_is_refused() {
        let (usual, tcp) = (usual(), TcpConfig::default());
        let about = closed(&usual, &tcp);
        let mut options = Options::default();
        for (level, name, value, got) in [
            (1, 2, 5, Ok(1)),
            (1, 9, 1, Ok(1)),
            (1, 8, 100_000, Ok(200_000)),
            (1, 8, 1, Ok(4096)),
            (1, 8, -1, Ok(1 << 27)),
            (1, 8, 1, Ok(4096)),
            (0, 49, 2, Err(Errno::INVAL)),
            (41, 19, 2, Err(Errno::INVAL)),
            (6, 1, 1, Ok(1)),
            (6, 4, 30, Ok(30)),
            (6, 4, 0, Err(Errno::INVAL)),
            (6, 6, 128, Err(Errno::INVAL)),
            (6, 18, -1, Err(Errno::INVAL)),
            (0, 2, 255, Ok(255)),
            (0, 2, 256, Err(Errno::INVAL)),
            (41, 26, 1, Ok(1)),
            (1, 12, 6, Ok(6)),
            (0, 10, 2, Ok(2)),
            (0, 10, 0, Ok(0)),
            (0, 10, 6, Err(Errno::INVAL)),
            (0, 8, 1, Ok(1)),
            (0, 24, 1, Ok(1)),
            (41, 19, 0, Ok(0)),
            (1, 19, 1, Err(Errno::NOPROTOOPT)),
            (6, 2, 87, Err(Errno::INVAL)),
            (6, 2, 32_768, Err(Errno::INVAL)),
            (6, 2, 1000, Ok(1000)),
            (6, 7, 0, Err(Errno::INVAL)),
            (6, 7, 128, Err(Errno::INVAL)),
            (6, 7, 3, Ok(3)),
            (6, 8, -5, Ok(-1)),
            (6, 8, 500, Ok(120)),
            (6, 9, -1, Ok(0)),
            (6, 9, 30, Ok(31)),
            (6, 9, 1000, Ok(31)),
            (6, 10, -1, Ok(1152)),
            (6, 10, 100, Ok(1152)),
            (6, 10, 0, Ok(0)),
            (6, 10, 5000, Ok(5000)),
            (0, 11, 7, Ok(1)),
            (41, 25, 1, Ok(1)),
            (41, 25, 0, Ok(0)),
            (6, 23, -1, Err(Errno::INVAL)),
            (6, 23, 5, Ok(5)),
            (6, 25, 16_384, Ok(16_384)),
            (6, 30, 1, Ok(1)),
            (6, 30, 2, Err(Errno::INVAL)),
            (6, 34, 1, Ok(1)),
            (6, 34, -1, Err(Errno::INVAL)),
            (6, 33, 1, Err(Errno::NOPROTOOPT)),
            (1, 36, 5, Ok(5)),
            (1, 49, 1, Err(Errno::NOPROTOOPT)),
            (1, 62, 3, Ok(3)),
            (0, 15, 2, Ok(1)),
            (41, 78, 0, Ok(0)),
            (17, 1, 1, Err(Errno::NOPROTOOPT)),
            (0, 33, 1, Err(Errno::INVAL)),
            (0, 32, 0, Err(Errno::INVAL)),
            (0, 35, 1, Err(Errno::PROTO)),
            (41, 18, 1, Err(Errno::NOPROTOOPT)),
            (41, 20, 1, Err(Errno::INVAL)),
            (1, 18, 0, Ok(1)),
            (1, 18, -1, Ok(i32::MAX)),
            (1, 18, 5, Ok(5)),
        ] {
            let set = options.set(level, name, &i32::to_ne_bytes(value)).map(|_| ());
            let number = set.and_then(|()| options.get(level, name, 4, &about));
            assert_eq!(number, got.map(|it: i32| it.to_ne_bytes().to_vec()), "{level} {name} {value}");
        }
        for (level, name, got) in [(0, 33, 1), (0, 32, 0), (41, 18, 1), (41, 17, 0)] {
            assert_eq!(
                options.get(level, name, 4, &about),
                Ok(i32::to_ne_bytes(got).to_vec()),
                "{level} {name}"
            );
        }
        assert_eq!(options.beginning().low_water, 5);
        assert_eq!(options.set(41, 20, &[0; 20]).unwrap_err(), Errno::PROTO);
        assert_eq!(options.set(1, 2, &[1, 0]).unwrap_err(), Errno::INVAL, "too short for a number");
        assert_eq!(options.set(6, 13, b"vegas\0").unwrap_err(), Errno::NOENT);
        assert_eq!(options.set(6, 13, b"").unwrap_err(), Errno::INVAL);
        assert!(options.set(6, 13, b"bbr").is_ok());
        assert_eq!(options.get(6, 13, 4, &about).unwrap(), b"bbr\0");
        assert!(!options.resets());
        options.set(1, 13, &[1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert!(options.resets());
        assert_eq!(options.rings(usual.stream), StreamConfig { send_capacity: 1000, recv_capacity: 2048 });
        let first = options.first();
        assert_eq!(first.tuning, Tuning { send: true, receive: false }, "SO_RCVBUF was set");
        assert_eq!((first.fast_open_queue, first.defer), (5, 1000));
        assert_eq!((first.fast_open, first.fast_open_trusts, first.link), (true, true, Some(LinkId(2))));
        assert_eq!((first.syn_retries, first.mss_limit), (Some(3), Some(Mss::clamped(1000))));
        assert_eq!((first.window_clamp, first.hears_errors), (Some(5000), [true, false]));
        assert_eq!(first.fin_wait_2, Some(Duration::from_secs(120)));
        assert_eq!(options.bits(), request::NODELAY);
        let words = "reuseaddr v6only bind_address_no_port fastopen_connect fastopen_no_cookie recverr cork \
                     keepalive=30s,60s,8 linger=0s rcvbuf=2048 congestion=bbr priority=6 \
                     fastopen=5 defer_accept=1000s syncnt=3 linger2=120s notsent_lowat=16384 window_clamp=5000 maxseg=1000 ttl=255 mark=0x5 bindtodevice=3";
        assert_eq!(options.spelled(request::CORK).join(" "), words);
        assert_eq!(options.band(), Band::Urgent);
        let own = Arc::new(options);
        let accepted = Options::of_accepted(&own);
        assert_eq!((accepted.band(), accepted.headers), (Band::Usual, own.headers));
        let of_listeners = [tcp::FASTOPEN, tcp::DEFER_ACCEPT].map(|name| accepted.get(6, name, 4, &about));
        assert_eq!(of_listeners, [Ok(vec![0; 4]), Ok(vec![0; 4])]);
        assert!(Arc::ptr_eq(&accepted, &Options::of_accepted(&accepted)), "what is alike is shared");
    }
}
