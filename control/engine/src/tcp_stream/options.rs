//! Options of a TCP connection: under std's and tokio's names where they have it, as Linux calls them beside that.
//!
//! Part of `tcp_stream.rs`. What a lane has to know is told to it; what only calls need, and what they are asked back, is kept at the
//! socket.

use std::io;
use std::num::NonZeroU8;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use firelane_lane::StreamOption;
use firelane_socket::ConnRef;
use firelane_tcp::Keepalive;
use firelane_tcp::congestion::Algorithm;
use firelane_units::{BitRate, Family};

use super::{Socket, TcpStream, invalid};
use crate::calls;

/// How often it is looked whether the peer has everything.
const LOOK: Duration = Duration::from_millis(1);

/// How long a call waits at most, in nanoseconds; zero is for ever.
#[derive(Debug, Default)]
pub(crate) struct Limit(AtomicU64);

impl Limit {
    pub(crate) fn get(&self) -> Option<Duration> {
        let nanos = self.0.load(Ordering::Relaxed);
        (nanos != 0).then(|| Duration::from_nanos(nanos))
    }

    pub(crate) fn set(&self, limit: Option<Duration>) -> io::Result<()> {
        if limit == Some(Duration::ZERO) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // Beyond 584 years it is for ever too.
        let nanos = limit.and_then(|limit| u64::try_from(limit.as_nanos()).ok()).unwrap_or(0);
        self.0.store(nanos, Ordering::Relaxed);
        Ok(())
    }
}

/// How calls behave, and what a lane was told, a bit each.
#[derive(Debug, Default)]
pub(super) struct Modes(AtomicU8);

impl Modes {
    pub(super) const NONBLOCKING: u8 = 1;
    pub(super) const NODELAY: u8 = 2;

    pub(super) fn has(&self, mode: u8) -> bool {
        self.0.load(Ordering::Relaxed) & mode != 0
    }

    pub(super) fn set(&self, mode: u8, on: bool) {
        if on {
            self.0.fetch_or(mode, Ordering::Relaxed)
        } else {
            self.0.fetch_and(!mode, Ordering::Relaxed)
        };
    }
}

/// SO_LINGER: one more than in how many hundredths of a second the peer is to have everything; zero waits for nothing. There are many
/// connections, so it is short.
#[derive(Debug, Default)]
pub(super) struct Linger(AtomicU16);

impl Linger {
    /// Ten minutes.
    const MOST: u128 = 60_000;

    pub(super) fn get(&self) -> Option<Duration> {
        let hundredths = self.0.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Duration::from_millis(u64::from(hundredths) * 10))
    }

    fn set(&self, limit: Option<Duration>) {
        let hundredths = |limit: Duration| limit.as_millis().div_ceil(10).min(Self::MOST) as u16;
        self.0.store(limit.map_or(0, |limit| hundredths(limit) + 1), Ordering::Relaxed);
    }
}

impl TcpStream {
    /// Whether small segments are sent without waiting for each other (TCP_NODELAY).
    ///
    /// # Errors
    /// `NotConnected` before connecting has begun in its lane, and once the connection has ended.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket.set_option(StreamOption::Nodelay(nodelay))?;
        self.socket.modes.set(Modes::NODELAY, nodelay);
        Ok(())
    }

    /// As in std.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(self.socket.modes.has(Modes::NODELAY))
    }

    /// Whether only full segments are sent, for at most a fifth of a second (TCP_CORK).
    ///
    /// # Errors
    /// `NotConnected` before connecting has begun in its lane, and once the connection has ended.
    pub fn set_cork(&self, cork: bool) -> io::Result<()> {
        self.socket.set_option(StreamOption::Cork(cork))
    }

    /// Whether ACKs leave at once for a while, or wait for answers to ride on (TCP_QUICKACK). The connection goes back to
    /// its own judgement after some segments.
    ///
    /// # Errors
    /// `NotConnected` before connecting has begun in its lane, and once the connection has ended.
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        self.socket.set_option(StreamOption::QuickAck(quickack))
    }

    /// When and how often a silent peer is asked whether it lives; `None` never asks (SO_KEEPALIVE).
    ///
    /// # Errors
    /// `NotConnected` before connecting has begun in its lane, and once the connection has ended.
    pub fn set_keepalive(&self, keepalive: Option<Keepalive>) -> io::Result<()> {
        self.socket.set_option(StreamOption::Keepalive(keepalive))
    }

    /// How long data may stay unacknowledged before the connection is given up (TCP_USER_TIMEOUT).
    ///
    /// # Errors
    /// `NotConnected` before connecting has begun in its lane, and once the connection has ended.
    pub fn set_user_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.set_option(StreamOption::UserTimeout(timeout))
    }

    /// How many hops its packets may make (IP_TTL, IPV6_UNICAST_HOPS).
    ///
    /// # Errors
    /// `InvalidInput` for other numbers than 1 to 255, `NotConnected` before connecting has begun in its lane, and once the connection has ended.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let hops = u8::try_from(ttl).ok().and_then(NonZeroU8::new);
        let hops = hops.ok_or_else(|| invalid(format!("ttl {ttl}: 1 to 255 are allowed")))?;
        Family::BOTH
            .into_iter()
            .try_for_each(|family| self.socket.set_option(StreamOption::Hops(family, Some(hops))))?;
        self.socket.hops.store(hops.get(), Ordering::Relaxed);
        Ok(())
    }

    /// As in std: what was set, or the netstack's.
    ///
    /// # Errors
    /// `NotConnected` as long as there is no way to the peer; the netstack is gone.
    pub fn ttl(&self) -> io::Result<u32> {
        let set = self.socket.hops.load(Ordering::Relaxed);
        if set != 0 {
            return Ok(set.into());
        }
        let is_v4 = self.local_addr()?.is_ipv4();
        let mut registry = self.socket.engine.registry();
        let its = registry.netstack_mut(self.socket.shared.get().netstack())?.config.hops;
        Ok(if is_v4 { its.v4 } else { its.v6 }.into())
    }

    /// The differentiated services code point of its packets (the upper six bits of IP_TOS or IPV6_TCLASS).
    ///
    /// # Errors
    /// `InvalidInput` above 63, `NotConnected` before connecting has begun in its lane, and once the connection has ended.
    pub fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        if dscp > 63 {
            return Err(invalid(format!("dscp {dscp}: 0 to 63 are allowed")));
        }
        Family::BOTH
            .into_iter()
            .try_for_each(|family| self.socket.set_option(StreamOption::Dscp(family, dscp)))
    }

    /// Which congestion control decides how much it sends (TCP_CONGESTION); it goes on from the present window.
    ///
    /// # Errors
    /// `NotConnected` before connecting has begun in its lane, and once the connection has ended.
    pub fn set_congestion_control(&self, algorithm: Algorithm) -> io::Result<()> {
        self.socket.set_option(StreamOption::Congestion(algorithm))
    }

    /// How fast it sends at most, and evenly (SO_MAX_PACING_RATE); `None` lifts the limit.
    ///
    /// # Errors
    /// `NotConnected` before connecting has begun in its lane, and once the connection has ended.
    pub fn set_max_pacing_rate(&self, limit: Option<BitRate>) -> io::Result<()> {
        self.socket.set_option(StreamOption::PacingLimit(limit))
    }

    /// How much may be written and unsent (TCP_NOTSENT_LOWAT): beyond it the stream takes nothing, and says that it is
    /// writable once less is unsent. So what is written is sent soon, and a program can decide late what it sends.
    /// `None` takes as much as the send buffer holds.
    ///
    /// # Errors
    /// `InvalidInput` for zero, `NotConnected` before connecting has begun in its lane, and once the connection has ended.
    pub fn set_notsent_lowat(&self, limit: Option<u32>) -> io::Result<()> {
        if limit == Some(0) {
            return Err(invalid("notsent_lowat 0: 1 and more are allowed".to_owned()));
        }
        self.socket.set_option(StreamOption::UnsentLimit(limit))
    }

    /// How long a read waits at most.
    ///
    /// # Errors
    /// `InvalidInput` for a zero duration, as in std.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.read_limit.set(timeout)
    }

    /// As in std.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.read_limit.get())
    }

    /// How long a write waits at most.
    ///
    /// # Errors
    /// `InvalidInput` for a zero duration, as in std.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.write_limit.set(timeout)
    }

    /// As in std.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.write_limit.get())
    }

    /// What becomes of text that the peer has not acknowledged when the last clone goes (SO_LINGER): it is sent meanwhile (`None`), waited
    /// for as long as that, or with zero discarded, and the connection reset. A drop in a waker waits for nobody. It counts in hundredths of
    /// a second, up to ten minutes.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.socket.linger.set(linger);
        Ok(())
    }

    /// As in std.
    ///
    /// # Errors
    /// Never; as in std.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.linger.get())
    }
}

impl Socket {
    /// Waits until the peer has acknowledged all that was written, and the end, or `limit` is over.
    pub(super) fn await_end(&self, conn: ConnRef, limit: Duration) {
        let fabric = &self.engine.fabric;
        let lane = self.shared.get().lane();
        let until = Instant::now().checked_add(limit);
        let is_over = || until.is_some_and(|until| Instant::now() >= until);
        while fabric.stream_info(lane, conn).is_ok_and(|info| info.tcp.state.may_send_text()) && !is_over() {
            // A program that drives its lane itself gives it its turns.
            fabric.give_way(lane);
            std::thread::sleep(LOOK);
        }
    }

    /// Whether the drop of the last clone may wait.
    pub(super) fn may_linger() -> bool {
        !calls::is_calling()
    }
}
