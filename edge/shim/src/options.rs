//! Socket options: those that this library keeps, those that a stream's words have, and the rest, which the daemon knows.
//!
//! Times to wait lie at the kernel's descriptor, where copies of it and other processes find them; a stream has them in
//! its words, too. What nobody knows is refused as Linux refuses it.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use firelane_shm::UntoldOption;
use firelane_shm::control::OWN_LEVEL;
use firelane_shm::layout::request;
use libc::{IPPROTO_TCP, IPPROTO_UDP, SOL_SOCKET, timeval};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};

use crate::socket::{Held, Kind};
use crate::stream::Stream;
use crate::{corking, echoes, epoll, session, sys, table, untold, waiter};

/// Levels that all sockets of the internet's families have.
const LEVELS: [c_int; 3] = [SOL_SOCKET, libc::IPPROTO_IP, libc::IPPROTO_IPV6];

const UDP_CORK: c_int = 1;

const INT: usize = size_of::<c_int>();
/// Times as programs give them: seconds and microseconds.
const TIME: usize = size_of::<timeval>();

fn transport(socket: &Held) -> c_int {
    match (socket.is_datagram(), socket.is_echo()) {
        (_, true) => echoes::protocol(socket.is_v6()),
        (true, _) => IPPROTO_UDP,
        (false, _) => IPPROTO_TCP,
    }
}

fn has_level(socket: &Held, level: c_int) -> bool {
    level == transport(socket) || LEVELS.contains(&level)
}

/// Reads an option; how many bytes of `value` it has.
pub(crate) fn get(socket: &Held, level: c_int, name: c_int, value: &mut [u8]) -> Result<usize, Errno> {
    if !has_level(socket, level) {
        return Err(if socket.is_v6() { Errno::NOPROTOOPT } else { Errno::OPNOTSUPP });
    }
    let number = match (level, name) {
        (SOL_SOCKET, libc::SO_TYPE) if socket.is_datagram() => libc::SOCK_DGRAM,
        (SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (SOL_SOCKET, libc::SO_PROTOCOL) => transport(socket),
        (SOL_SOCKET, libc::SO_DOMAIN) => {
            if socket.is_v6() {
                libc::AF_INET6
            } else {
                libc::AF_INET
            }
        }
        (SOL_SOCKET, libc::SO_ACCEPTCONN) => socket.is_listener().into(),
        (SOL_SOCKET, libc::SO_ERROR) if socket.tells_given_up() => libc::ECONNRESET,
        (SOL_SOCKET, libc::SO_ERROR) => socket.stream().map_or(0, |stream| stream.end().take_error()),
        (SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => return get_time(socket, name, value),
        (SOL_SOCKET, libc::SO_RCVLOWAT) if let Some(least) = low_water(socket) => least,
        (IPPROTO_TCP, _) if let Some((stream, bit)) = lane_bit(socket, name) => stream.option(bit).into(),
        _ if let Some(is_on) = untold::flag(socket, level, name) => is_on.into(),
        _ => return give(&session::get_option(socket, level, name, value.len())?, value),
    };
    give(&number.to_ne_bytes(), value)
}

/// As much of an option as has room.
fn give(known: &[u8], value: &mut [u8]) -> Result<usize, Errno> {
    let len = known.len().min(value.len());
    value[..len].copy_from_slice(&known[..len]);
    Ok(len)
}

/// The options that the lane reads from a stream's words.
fn lane_bit(socket: &Held, name: c_int) -> Option<(Stream, u64)> {
    let bit = match name {
        libc::TCP_NODELAY => request::NODELAY,
        libc::TCP_CORK => request::CORK,
        libc::TCP_QUICKACK => request::QUICKACK,
        _ => return None,
    };
    Some((socket.stream()?, bit))
}

/// Sets an option.
pub(crate) fn set(socket: &Held, level: c_int, name: c_int, value: &[u8]) -> Result<(), Errno> {
    if !has_level(socket, level) && level != OWN_LEVEL {
        return Err(Errno::NOPROTOOPT);
    }
    let takes_text = level == IPPROTO_TCP && [libc::TCP_CONGESTION, libc::TCP_ULP].contains(&name);
    let takes_name = level == SOL_SOCKET && name == libc::SO_BINDTODEVICE;
    if level == SOL_SOCKET && !takes_name || level == IPPROTO_TCP && !takes_text {
        value.first_chunk::<INT>().ok_or(Errno::INVAL)?;
    }
    // Programs set them before they connect.
    let never_refused = number_of(level, value).and_then(|number| UntoldOption::new(level, name, number));
    if never_refused.is_some_and(|option| untold::keep(socket, option)) {
        return Ok(());
    }
    match (level, name) {
        // Servers set these on each connection that they accept. Whoever asks about it next asks behind that.
        (SOL_SOCKET, libc::SO_KEEPALIVE)
        | (IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT)
            if never_refused.is_some() && a_stream(socket).is_some() =>
        {
            session::post_option(socket, level, name, value)
        }
        (SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => set_time(socket, name, value),
        (SOL_SOCKET, libc::SO_RCVLOWAT) if let Some(stream) = a_stream(socket) => {
            // As in Linux, less than none is as much as there can be.
            let least = match number(value).unwrap_or(1) {
                ..0 => c_int::MAX.unsigned_abs(),
                least => least.unsigned_abs().max(1),
            };
            stream.end().block().low_water[0].store(least, Ordering::SeqCst);
            tell_watchers(socket.fd, &stream);
            Ok(())
        }
        (
            SOL_SOCKET,
            libc::SO_TYPE | libc::SO_PROTOCOL | libc::SO_DOMAIN | libc::SO_ACCEPTCONN | libc::SO_ERROR,
        ) => Err(Errno::NOPROTOOPT),
        (IPPROTO_TCP, _) if let Some((stream, bit)) = lane_bit(socket, name) => {
            stream.set_option(bit, number(value).is_some_and(|on| on != 0));
            Ok(())
        }
        (SOL_SOCKET, libc::SO_KEEPALIVE) | (IPPROTO_TCP, libc::TCP_NODELAY)
            if socket.kind() == Kind::Fresh =>
        {
            // Nothing refuses either, where they cannot wait.
            session::post_option(socket, level, name, value)
        }
        (IPPROTO_UDP, UDP_CORK) => {
            if number(value) == Some(0) {
                corking::flush(socket)?;
            }
            session::set_option(socket, level, name, value)
        }
        _ => session::set_option(socket, level, name, value),
    }
}

/// How long close(2) waits, if SO_LINGER says so.
pub(crate) fn linger(socket: &Held) -> Result<Option<Duration>, Errno> {
    let value = session::get_option(socket, SOL_SOCKET, libc::SO_LINGER, 2 * INT)?;
    let is_on = number(&value).is_some_and(|on| on != 0);
    let seconds = value.get(INT..).and_then(number).and_then(|seconds| u64::try_from(seconds).ok());
    Ok(seconds.filter(|&seconds| is_on && seconds > 0).map(Duration::from_secs))
}

fn number(value: &[u8]) -> Option<c_int> {
    value.first_chunk().map(|bytes| c_int::from_ne_bytes(*bytes))
}

/// The same; of IPv4's options an octet is enough.
fn number_of(level: c_int, value: &[u8]) -> Option<c_int> {
    let octet = value.first().filter(|_| level == libc::IPPROTO_IP);
    number(value).or(octet.map(|&octet| octet.into()))
}

/// It, if it is a connection, whose words have SO_RCVLOWAT: programs change that between two reads.
fn a_stream(socket: &Held) -> Option<Stream> {
    socket.stream().filter(|_| !socket.is_datagram())
}

/// What is there may be enough now: whoever waits for it looks again.
fn tell_watchers(fd: c_int, stream: &Stream) {
    if let Some(word) = table::get(fd) {
        epoll::has_news(word);
        waiter::watchers(word).ring();
    }
    stream.wake();
}

/// How much is worth telling of (SO_RCVLOWAT).
fn low_water(socket: &Held) -> Option<c_int> {
    let least = a_stream(socket)?.end().block().low_water[0].load(Ordering::Relaxed);
    Some(least.max(1).cast_signed())
}

fn timeout(name: c_int) -> Timeout {
    if name == libc::SO_RCVTIMEO { Timeout::Recv } else { Timeout::Send }
}

fn get_time(socket: &Held, name: c_int, value: &mut [u8]) -> Result<usize, Errno> {
    let limit = sockopt::socket_timeout(sys::borrow(socket.fd), timeout(name))?;
    let time = limit.filter(|&limit| limit != NOT_AT_ALL).unwrap_or_default();
    let mut bytes = [0; TIME];
    bytes[..8].copy_from_slice(&time.as_secs().to_ne_bytes());
    bytes[8..].copy_from_slice(&u64::from(time.subsec_micros()).to_ne_bytes());
    give(&bytes, value)
}

/// Whether calls that receive at its descriptor wait for so long at most (SO_RCVTIMEO).
pub(crate) fn limits_reads(socket: &Held) -> Result<bool, Errno> {
    Ok(sockopt::socket_timeout(sys::borrow(socket.fd), Timeout::Recv)?.is_some())
}

/// Whether calls that receive at its descriptor do not wait at all, which the kernel does not know.
pub(crate) fn forbids_waits(socket: &Held) -> Result<bool, Errno> {
    let has_times = HAS_TIMES.load(Ordering::Relaxed);
    Ok(has_times && sockopt::socket_timeout(sys::borrow(socket.fd), Timeout::Recv)? == Some(NOT_AT_ALL))
}

/// What lies at a descriptor whose calls do not wait at all: Linux keeps a negative time as no time, but shows that as it shows one that
/// is for ever. Nobody means so many million years.
const NOT_AT_ALL: Duration = Duration::from_secs(1 << 50);

fn set_time(socket: &Held, name: c_int, value: &[u8]) -> Result<(), Errno> {
    let bytes = value.first_chunk::<TIME>().ok_or(Errno::INVAL)?;
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| i64::from_ne_bytes(*word));
    let (seconds, micros) = (word(0), word(8));
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::DOM);
    }
    // With a negative time calls do not wait, and the microseconds count for nothing (`sock_set_timeout` of Linux).
    let limit = match u64::try_from(seconds) {
        Ok(seconds) => {
            let time =
                Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros.unsigned_abs()));
            (!time.is_zero()).then_some(time)
        }
        Err(_) => Some(NOT_AT_ALL),
    };
    note_times();
    sockopt::set_socket_timeout(sys::borrow(socket.fd), timeout(name), limit)?;
    socket.stream().map_or(Ok(()), |stream| hand_time_to(socket, &stream, name))
}

/// A stream waits as long as its descriptor says.
fn hand_time_to(socket: &Held, stream: &Stream, name: c_int) -> Result<(), Errno> {
    let limit = sockopt::socket_timeout(sys::borrow(socket.fd), timeout(name))?;
    let nanos = match limit {
        None => 0,
        Some(NOT_AT_ALL) => 1,
        Some(limit) => u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
    };
    let block = stream.end().block();
    let word = if name == libc::SO_RCVTIMEO { &block.recv_timeout } else { &block.send_timeout };
    word.store(nanos, Ordering::Relaxed);
    Ok(())
}

/// Whether any socket of this process may have times that lie at its descriptor alone.
static HAS_TIMES: AtomicBool = AtomicBool::new(false);

/// A socket may have some from now on: they were set here, or it comes from another process.
pub(crate) fn note_times() {
    HAS_TIMES.store(true, Ordering::Relaxed);
}

/// A descriptor that has served before is a new socket's, which waits for ever.
pub(crate) fn clear_times(fd: c_int) -> Result<(), Errno> {
    if !HAS_TIMES.load(Ordering::Relaxed) {
        return Ok(());
    }
    let times = [Timeout::Recv, Timeout::Send];
    times.into_iter().try_for_each(|time| sockopt::set_socket_timeout(sys::borrow(fd), time, None))
}

/// A connection waits as long as its listener's descriptor says.
pub(crate) fn inherit_times(listener: &Held, connection: &Held) -> Result<(), Errno> {
    if !HAS_TIMES.load(Ordering::Relaxed) {
        return Ok(());
    }
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // The descriptor may have served before.
        let limit = sockopt::socket_timeout(sys::borrow(listener.fd), timeout(name))?;
        sockopt::set_socket_timeout(sys::borrow(connection.fd), timeout(name), limit)?;
        connection.stream().map_or(Ok(()), |stream| hand_time_to(connection, &stream, name))?;
    }
    Ok(())
}

/// A new stream takes over what was set before it was one.
pub(crate) fn hand_times(socket: &Held, stream: &Stream) -> Result<(), Errno> {
    if !HAS_TIMES.load(Ordering::Relaxed) {
        return Ok(());
    }
    hand_time_to(socket, stream, libc::SO_RCVTIMEO)?;
    hand_time_to(socket, stream, libc::SO_SNDTIMEO)
}
