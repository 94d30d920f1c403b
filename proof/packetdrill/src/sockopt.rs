//! getsockopt(2) and setsockopt(2): the options that scripts use, with Linux' values and error numbers.
//!
//! What the stack cannot do is refused with ENOPROTOOPT, as a kernel does that was built without it. A stream's rings
//! keep the size that they began with: a later SO_SNDBUF or SO_RCVBUF is remembered and answered, and no more.

use core::time::Duration;
use std::net::SocketAddr;

use firelane_lane::{StreamOption, StreamOptions};
use firelane_tcp::congestion::Algorithm;
use firelane_tcp::{FastOpenPolicy, Keepalive, Tuning, Unconnected};
use firelane_units::BitRate;

use crate::chosen::Chosen;
use crate::errno::{Errno, Sys, fail};
use crate::files::Kind;
use crate::world::World;

/// Linux' limits for buffers: `net.core.wmem_max` and `rmem_max`, and the least.
const BUFFER_MAX: i32 = 212_992;
const SEND_BUFFER_MIN: i32 = 4_608;
const RECV_BUFFER_MIN: i32 = 2_304;
/// `TCP_SYN_SENT`.
const SYN_SENT: u8 = 2;
const MAX_KEEPALIVE_TIME: i32 = 32_767;
const MAX_KEEPALIVE_PROBES: i32 = 127;

/// What a program set, and what it is told when it asks.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) is_v6: bool,
    pub(crate) v6_only: bool,
    pub(crate) reuse_address: bool,
    pub(crate) reuse_port: bool,
    keepalive: bool,
    keepalive_times: Keepalive,
    /// Seconds of SO_LINGER, if it is on.
    pub(crate) linger: Option<i32>,
    nodelay: bool,
    pub(crate) cork: bool,
    user_timeout: u32,
    congestion: Option<Algorithm>,
    pacing_limit: Option<BitRate>,
    broadcast: bool,
    priority: i32,
    mark: i32,
    pub(crate) recv_timeout: Option<Duration>,
    pub(crate) send_timeout: Option<Duration>,
    /// As getsockopt tells it: twice what was asked for.
    send_buffer: i32,
    recv_buffer: i32,
    pub(crate) chosen: Chosen,
    /// What the rings get.
    pub(crate) send_ring: usize,
    pub(crate) recv_ring: usize,
}

impl Stored {
    pub(crate) fn new(world: &World, is_v6: bool) -> Self {
        let options = &world.options;
        let told = |ring: usize| i32::try_from(ring.saturating_mul(2)).unwrap_or(i32::MAX);
        Self {
            is_v6,
            v6_only: false,
            reuse_address: false,
            reuse_port: false,
            keepalive: false,
            keepalive_times: options.tcp.keepalive,
            linger: None,
            nodelay: false,
            cork: false,
            user_timeout: 0,
            congestion: None,
            pacing_limit: None,
            broadcast: false,
            priority: 0,
            mark: 0,
            recv_timeout: None,
            send_timeout: None,
            send_buffer: told(options.send_buf),
            recv_buffer: told(options.recv_buf),
            chosen: Chosen::default(),
            send_ring: options.send_buf,
            recv_ring: options.recv_buf,
        }
    }

    /// What a connection starts with.
    pub(crate) fn stream_options(&self) -> StreamOptions {
        self.chosen.begin(StreamOptions {
            // Scripts expect the windows of the buffer that they have.
            tuning: Tuning::default(),
            nodelay: self.nodelay,
            keepalive: self.asks(),
            user_timeout: self.patience(),
            congestion: self.congestion,
            pacing_limit: self.pacing_limit,
            ..StreamOptions::default()
        })
    }

    fn asks(&self) -> Option<Keepalive> {
        self.keepalive.then_some(self.keepalive_times)
    }

    fn patience(&self) -> Option<Duration> {
        (self.user_timeout != 0).then(|| Duration::from_millis(self.user_timeout.into()))
    }

    fn set_send_buffer(&mut self, bytes: i32) {
        self.send_buffer = (bytes.clamp(0, BUFFER_MAX) * 2).max(SEND_BUFFER_MIN);
        self.send_ring = self.send_buffer as usize;
    }

    /// Half of the buffer is the window (`tcp_adv_win_scale`).
    fn set_recv_buffer(&mut self, bytes: i32) {
        self.recv_buffer = (bytes.clamp(0, BUFFER_MAX) * 2).max(RECV_BUFFER_MIN);
        self.recv_ring = self.recv_buffer as usize / 2;
    }
}

/// setsockopt(2).
pub(crate) fn set(world: &mut World, kind: &mut Kind, level: i32, name: i32, value: &[u8]) -> Sys<()> {
    match level {
        libc::SOL_SOCKET => set_socket(world, kind, name, value),
        libc::IPPROTO_TCP => set_tcp(world, kind, name, value),
        libc::IPPROTO_IPV6 if name == libc::IPV6_V6ONLY => {
            let on = int(value)? != 0;
            let stored = kind.stored()?;
            if !stored.is_v6 {
                return fail(libc::ENOPROTOOPT);
            }
            stored.v6_only = on;
            Ok(())
        }
        libc::IPPROTO_IP | libc::IPPROTO_IPV6 => {
            kind.stored()?.chosen.set_header(level, name, int(value)?)?;
            kind.tell_header(world);
            Ok(())
        }
        _ => fail(libc::ENOPROTOOPT),
    }
}

fn set_socket(world: &mut World, kind: &mut Kind, name: i32, value: &[u8]) -> Sys<()> {
    let stored = kind.stored()?;
    match name {
        libc::SO_LINGER => {
            let (on, seconds) = (int(value)?, int(value.get(4..).unwrap_or_default())?);
            stored.linger = (on != 0).then_some(seconds);
            return Ok(());
        }
        libc::SO_RCVTIMEO => {
            stored.recv_timeout = timeout(value)?;
            return Ok(());
        }
        libc::SO_SNDTIMEO => {
            stored.send_timeout = timeout(value)?;
            return Ok(());
        }
        libc::SO_MAX_PACING_RATE => return set_pacing(world, kind, value),
        _ => {}
    }
    let number = int(value)?;
    let on = number != 0;
    match name {
        libc::SO_REUSEADDR => stored.reuse_address = on,
        libc::SO_REUSEPORT => stored.reuse_port = on,
        libc::SO_BROADCAST => stored.broadcast = on,
        libc::SO_PRIORITY => stored.priority = number,
        libc::SO_MARK => stored.mark = number,
        libc::SO_SNDBUF => stored.set_send_buffer(number),
        libc::SO_RCVBUF => stored.set_recv_buffer(number),
        libc::SO_KEEPALIVE => {
            stored.keepalive = on;
            let asks = stored.asks();
            kind.tell(world, StreamOption::Keepalive(asks));
        }
        libc::SO_RCVLOWAT => stored.chosen.set_low_water(number),
        libc::SO_OOBINLINE => {
            stored.chosen.oob_inline = on;
            if let Kind::Stream(socket) = kind {
                socket.heed_urgent();
            }
        }
        libc::SO_TYPE | libc::SO_ERROR | libc::SO_ACCEPTCONN | libc::SO_PROTOCOL | libc::SO_DOMAIN => {
            return fail(libc::ENOPROTOOPT);
        }
        _ => return fail(libc::ENOPROTOOPT),
    }
    Ok(())
}

fn set_tcp(world: &mut World, kind: &mut Kind, name: i32, value: &[u8]) -> Sys<()> {
    if !matches!(kind, Kind::Stream(_)) {
        return fail(libc::ENOPROTOOPT);
    }
    if name == libc::TCP_CONGESTION {
        return set_congestion(world, kind, value);
    }
    let number = int(value)?;
    may_open_fast(world, kind, name, number)?;
    let stored = kind.stored()?;
    let times = &mut stored.keepalive_times;
    let seconds = || match number {
        1..=MAX_KEEPALIVE_TIME => Ok(Duration::from_secs(number as u64)),
        _ => fail(libc::EINVAL),
    };
    match name {
        libc::TCP_NODELAY => {
            stored.nodelay = number != 0;
            kind.tell(world, StreamOption::Nodelay(number != 0));
            return Ok(());
        }
        libc::TCP_QUICKACK => {
            kind.tell(world, StreamOption::QuickAck(number != 0));
            return Ok(());
        }
        libc::TCP_CORK => {
            stored.cork = number != 0;
            kind.tell(world, StreamOption::Cork(number != 0));
            return Ok(());
        }
        libc::TCP_USER_TIMEOUT if number < 0 => return fail(libc::EINVAL),
        libc::TCP_USER_TIMEOUT => {
            stored.user_timeout = number as u32;
            let patience = stored.patience();
            kind.tell(world, StreamOption::UserTimeout(patience));
            return Ok(());
        }
        libc::TCP_KEEPIDLE => times.idle = seconds()?,
        libc::TCP_KEEPINTVL => times.interval = seconds()?,
        libc::TCP_KEEPCNT if !(1..=MAX_KEEPALIVE_PROBES).contains(&number) => return fail(libc::EINVAL),
        libc::TCP_KEEPCNT => times.probes = number as u8,
        _ => {
            if let Some(option) = stored.chosen.set_tcp(name, number)? {
                kind.tell(world, option);
            }
            return Ok(());
        }
    }
    if let Some(asks) = stored.asks() {
        kind.tell(world, StreamOption::Keepalive(Some(asks)));
    }
    Ok(())
}

/// Fast Open is chosen before there is a connection, and a client's where the stack allows it.
fn may_open_fast(world: &World, kind: &Kind, name: i32, value: i32) -> Sys<()> {
    let Kind::Stream(socket) = kind else { return Ok(()) };
    let is_early = match name {
        libc::TCP_FASTOPEN | libc::TCP_FASTOPEN_NO_COOKIE => socket.is_fresh() || socket.is_listening(),
        libc::TCP_FASTOPEN_CONNECT if (0..=1).contains(&value) => {
            if !world.options.tcp.fast_open.allows(FastOpenPolicy::CLIENT) {
                return fail(libc::EOPNOTSUPP);
            }
            socket.is_fresh()
        }
        _ => true,
    };
    if is_early { Ok(()) } else { fail(libc::EINVAL) }
}

/// A word of Linux' or of the stack's; one that is unknown is not there (ENOENT, as in Linux).
fn set_congestion(world: &mut World, kind: &mut Kind, value: &[u8]) -> Sys<()> {
    let word = value.split(|&byte| byte == 0).next().unwrap_or_default();
    let word = if word == b"reno" { b"newreno" } else { word };
    let known = core::str::from_utf8(word).ok().and_then(Algorithm::from_word);
    let algorithm = known.ok_or(Errno(libc::ENOENT))?;
    kind.stored()?.congestion = Some(algorithm);
    kind.tell(world, StreamOption::Congestion(algorithm));
    Ok(())
}

/// Linux' name for a socket's congestion control.
fn congestion(world: &World, stored: &Stored) -> &'static str {
    match stored.congestion.unwrap_or(world.options.tcp.flight.algorithm).word() {
        "newreno" => "reno",
        word => word,
    }
}

/// SO_MAX_PACING_RATE: bytes per second in four or eight bytes, all ones for no limit.
fn set_pacing(world: &mut World, kind: &mut Kind, value: &[u8]) -> Sys<()> {
    let bytes_per_second = match <[u8; 8]>::try_from(value) {
        Ok(wide) => Some(u64::from_ne_bytes(wide)).filter(|&rate| rate != u64::MAX),
        Err(_) => Some(int(value)? as u32).filter(|&rate| rate != u32::MAX).map(u64::from),
    };
    let limit = bytes_per_second.map(|rate| BitRate::from_bps(rate.saturating_mul(8)));
    kind.stored()?.pacing_limit = limit;
    kind.tell(world, StreamOption::PacingLimit(limit));
    Ok(())
}

/// getsockopt(2): the option's bytes, of which the caller takes what he has room for.
pub(crate) fn get(world: &World, kind: &mut Kind, level: i32, name: i32) -> Sys<Vec<u8>> {
    match (level, name) {
        (libc::SOL_SOCKET, _) => get_socket(kind, name),
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
            let Kind::Stream(socket) = kind else { return fail(libc::EOPNOTSUPP) };
            let mut word = congestion(world, &socket.stored).as_bytes().to_vec();
            word.resize(16, 0);
            Ok(word)
        }
        (libc::IPPROTO_TCP, libc::TCP_INFO) => {
            let Kind::Stream(socket) = kind else { return fail(libc::EOPNOTSUPP) };
            let mut bytes = match socket.info(world) {
                Some(info) => info.tcp_info(),
                None if socket.is_listening() => Unconnected::Listening { waiting: 0, backlog: 0 }.tcp_info(),
                None => Unconnected::Closed.tcp_info(),
            };
            // Its SYN waits for text.
            if socket.is_deferred() {
                bytes[0] = SYN_SENT;
            }
            Ok(bytes.to_vec())
        }
        (libc::IPPROTO_TCP, _) => get_tcp(world, kind, name),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => Ok(bytes_of(kind.stored()?.v6_only.into())),
        (libc::IPPROTO_IP | libc::IPPROTO_IPV6, _) => {
            Ok(bytes_of(kind.stored()?.chosen.get_header(level, name)?))
        }
        _ => fail(libc::ENOPROTOOPT),
    }
}

fn get_socket(kind: &mut Kind, name: i32) -> Sys<Vec<u8>> {
    let (is_stream, is_listening) = match kind {
        Kind::Stream(socket) => (true, socket.is_listening()),
        _ => (false, false),
    };
    if name == libc::SO_ERROR {
        return Ok(bytes_of(kind.take_error()?.map_or(0, |Errno(number)| number)));
    }
    let stored = kind.stored()?;
    Ok(bytes_of(match name {
        libc::SO_LINGER => {
            let mut bytes = bytes_of(stored.linger.is_some().into());
            bytes.extend(bytes_of(stored.linger.unwrap_or(0)));
            return Ok(bytes);
        }
        libc::SO_MAX_PACING_RATE => {
            let rate = stored.pacing_limit.map_or(u64::MAX, |limit| limit.bps() / 8);
            return Ok(rate.to_ne_bytes().to_vec());
        }
        libc::SO_RCVTIMEO => return Ok(timeval(stored.recv_timeout)),
        libc::SO_SNDTIMEO => return Ok(timeval(stored.send_timeout)),
        libc::SO_REUSEADDR => stored.reuse_address.into(),
        libc::SO_REUSEPORT => stored.reuse_port.into(),
        libc::SO_BROADCAST => stored.broadcast.into(),
        libc::SO_PRIORITY => stored.priority,
        libc::SO_MARK => stored.mark,
        libc::SO_SNDBUF => stored.send_buffer,
        libc::SO_RCVBUF => stored.recv_buffer,
        libc::SO_KEEPALIVE => stored.keepalive.into(),
        libc::SO_OOBINLINE => stored.chosen.oob_inline.into(),
        libc::SO_RCVLOWAT => i32::try_from(stored.chosen.low_water()).unwrap_or(i32::MAX),
        libc::SO_TYPE => {
            if is_stream {
                libc::SOCK_STREAM
            } else {
                libc::SOCK_DGRAM
            }
        }
        libc::SO_PROTOCOL => {
            if is_stream {
                libc::IPPROTO_TCP
            } else {
                libc::IPPROTO_UDP
            }
        }
        libc::SO_DOMAIN => {
            if stored.is_v6 {
                libc::AF_INET6
            } else {
                libc::AF_INET
            }
        }
        libc::SO_ACCEPTCONN => is_listening.into(),
        _ => return fail(libc::ENOPROTOOPT),
    }))
}

fn get_tcp(world: &World, kind: &mut Kind, name: i32) -> Sys<Vec<u8>> {
    let Kind::Stream(socket) = kind else { return fail(libc::ENOPROTOOPT) };
    let mss = socket.info(world).map(|info| info.tcp.send_mss.bytes());
    let stored = &socket.stored;
    let seconds = |span: Duration| span.as_secs() as i32;
    Ok(bytes_of(match name {
        libc::TCP_NODELAY => stored.nodelay.into(),
        libc::TCP_CORK => stored.cork.into(),
        libc::TCP_USER_TIMEOUT => stored.user_timeout as i32,
        libc::TCP_KEEPIDLE => seconds(stored.keepalive_times.idle),
        libc::TCP_KEEPINTVL => seconds(stored.keepalive_times.interval),
        libc::TCP_KEEPCNT => stored.keepalive_times.probes.into(),
        libc::TCP_MAXSEG if mss.is_some() => mss.unwrap_or_default().into(),
        _ => stored.chosen.get_tcp(name, &world.options.tcp).ok_or(Errno(libc::ENOPROTOOPT))?,
    }))
}

/// ioctl(2): SIOCINQ (FIONREAD), SIOCOUTQ and SIOCOUTQNSD.
pub(crate) fn ioctl(world: &World, kind: &mut Kind, request: u64) -> Sys<i32> {
    const SIOCOUTQNSD: u64 = 0x894b;
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    match kind {
        Kind::Stream(socket) if socket.is_listening() => fail(libc::EINVAL),
        Kind::Stream(socket) => {
            let (to_read, unacknowledged) = socket.queued().unwrap_or_default();
            let sent = socket.info(world).map_or(0, |info| info.tcp.unacknowledged.0 as usize);
            match request {
                libc::FIONREAD => Ok(number(to_read)),
                libc::TIOCOUTQ => Ok(number(unacknowledged)),
                SIOCOUTQNSD => Ok(number(unacknowledged.saturating_sub(sent))),
                _ => fail(libc::ENOTTY),
            }
        }
        Kind::Datagram(socket) => match request {
            libc::FIONREAD => Ok(number(socket.first_len())),
            libc::TIOCOUTQ => Ok(0),
            _ => fail(libc::ENOTTY),
        },
        Kind::Epoll(_) => fail(libc::ENOTTY),
    }
}

/// Whether two sockets may have the same local end.
pub(crate) fn may_share(a: (&Stored, bool), b: (&Stored, bool)) -> bool {
    let ((a, a_listens), (b, b_listens)) = (a, b);
    a.reuse_port && b.reuse_port || a.reuse_address && b.reuse_address && !a_listens && !b_listens
}

/// The local address of a socket that binds none.
pub(crate) fn any_address(stored: &Stored) -> SocketAddr {
    if stored.is_v6 { ([0_u16; 8], 0).into() } else { ([0_u8; 4], 0).into() }
}

fn int(value: &[u8]) -> Sys<i32> {
    let bytes = value.get(..4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    bytes.map(i32::from_ne_bytes).ok_or(Errno(libc::EINVAL))
}

fn bytes_of(value: i32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

/// `struct timeval`; zero is no time-out.
fn timeout(value: &[u8]) -> Sys<Option<Duration>> {
    let word =
        |at: usize| value.get(at..at + 8).and_then(|b| <[u8; 8]>::try_from(b).ok()).map(i64::from_ne_bytes);
    let (Some(seconds), Some(micros)) = (word(0), word(8)) else { return fail(libc::EINVAL) };
    if !(0..1_000_000).contains(&micros) {
        return fail(libc::EDOM);
    }
    let span = Duration::from_secs(seconds.max(0) as u64) + Duration::from_micros(micros as u64);
    Ok((!span.is_zero()).then_some(span))
}

fn timeval(span: Option<Duration>) -> Vec<u8> {
    let span = span.unwrap_or_default();
    let words = [span.as_secs() as i64, i64::from(span.subsec_micros())];
    words.into_iter().flat_map(i64::to_ne_bytes).collect()
}
