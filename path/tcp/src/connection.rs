//! One TCP connection: its state and the thin parents that walk the RFC's steps in order.
//!
//! A connection does no I/O, reads no clock and allocates nothing per segment. Three kinds of calls: the wire
//! and the clock talk to it (`on_segment`, `on_timer`), the program commands it (`close.rs`, the setters here),
//! and the lane asks it (`poll_transmit` in `send.rs`, `poll_at`). Every call returns what the caller must do;
//! nothing is sent from inside. Each step of RFC 9293 §3.10 lives in the file that is named for it.

use core::time::Duration;
use std::sync::Arc;

use firelane_frame::{RingReader, RingWriter};
use firelane_units::{BitRate, DropReason, Instant, Mss, SeqNum};

use crate::busy::{Busy, Doing};
use crate::config::{Keepalive, MtuProbing, TcpConfig};
use crate::congestion::Algorithm;
use crate::counts::{Counts, Troubles};
use crate::ecn::EcnState;
use crate::fast_open::FastOpenState;
use crate::flight::{Flight, TimerFired};
use crate::isn::TimestampClock;
use crate::mtu_search::{DOUBT_AFTER, MtuSearch};
use crate::receive::{ReceiveSide, RoomLimits};
use crate::segment::{CloseReason, Disposition, SegmentIn, Verdict};
use crate::send::SendSide;
use crate::state::State;
use crate::timers::{QuietTimer, SendTimer, Timers};
use crate::timestamps::Timestamps;

/// How many answers in a row fail to come before the way is in doubt (RFC 9293 SHLD-10: at least three).
const R1: u8 = 3;

/// The two byte rings of a connection, as its lane holds them.
#[derive(Debug)]
pub struct Rings<'a> {
    /// What the program wrote.
    pub send: &'a mut RingReader,
    /// What the program will read.
    pub recv: &'a mut RingWriter,
}

/// What a connection is born with, beside its configuration.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// The initial sequence number ([`crate::Secret::numbers`]).
    pub iss: SeqNum,
    /// The timestamp clock ([`crate::Secret::numbers`]).
    pub clock: TimestampClock,
    /// The largest segment that our side of the path takes: what we announce, and the most we send.
    pub mss: Mss,
    /// What a peer takes that announces no MSS ([`Mss::DEFAULT_V4`] or [`Mss::DEFAULT_V6`]).
    pub peer_default: Mss,
}

/// A TCP connection.
#[derive(Debug)]
pub struct Connection {
    pub(crate) config: Arc<TcpConfig>,
    pub(crate) send: SendSide,
    pub(crate) receive: ReceiveSide,
    pub(crate) flight: Flight,
    pub(crate) stamps: Timestamps,
    pub(crate) ecn: EcnState,
    pub(crate) timers: Timers,
    pub(crate) counts: Counts,
    pub(crate) busy: Busy,
    pub(crate) troubles: Option<Box<Troubles>>,
    /// When the peer was last heard.
    pub(crate) heard_at: Instant,
    /// When the peer last acknowledged something new, or the first thing it has yet to acknowledge left.
    pub(crate) progress_at: Instant,
    /// When the present interval of challenge ACKs began (RFC 5961 §7); the epoch if none ever left.
    pub(crate) challenged_at: Instant,
    pub(crate) options: SocketOptions,
    /// The largest segment that the peer takes.
    pub(crate) peer_mss: Mss,
    pub(crate) state: State,
    pub(crate) pending: Pending,
    pub(crate) doing: Doing,
    /// How many challenge ACKs have left in it.
    pub(crate) challenges: u8,
    /// How often the SYN (or SYN-ACK) was repeated.
    pub(crate) syn_retries: u8,
    /// Keepalive probes in a row without an answer.
    pub(crate) keepalive_probes: u8,
    /// We opened it; a refusal is the program's to hear (RFC 9293 §3.10.7.4 step 2).
    pub(crate) active: bool,
    /// An ICMP error about what is in flight said that the peer cannot be reached, and nothing came since.
    pub(crate) is_unreachable: bool,
    /// The program waits for storage to write to.
    pub(crate) awaits_storage: bool,
}

/// Which buffers follow what the path carries, up to the netstack's limit: those whose sizes the program left to us
/// (SO_SNDBUF, SO_RCVBUF).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tuning {
    /// The send ring (`send_tuning.rs`).
    pub send: bool,
    /// The receive ring (`receive_tuning.rs`).
    pub receive: bool,
}

impl Tuning {
    /// Both.
    pub const BOTH: Self = Self { send: true, receive: true };
}

/// What the program chose for its socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct SocketOptions {
    pub(crate) nodelay: bool,
    pub(crate) cork: bool,
    pub(crate) tuning: Tuning,
    /// The program closed the socket: nobody will read.
    pub(crate) orphan: bool,
    /// The program reads no more of what is to come (`shutdown(SHUT_RD)`).
    pub(crate) read_shut: bool,
    /// ICMP errors are the program's to hear at once, of IPv4 and of IPv6 (`IP_RECVERR`, `IPV6_RECVERR`).
    hears_errors: [bool; 2],
    /// What few sockets ask for; most connections do not pay for it.
    rare: Option<Box<RareOptions>>,
}

/// Options that most sockets leave alone, and what only troubled connections have.
#[derive(Clone, Debug, Default)]
struct RareOptions {
    /// The search for the path's largest segment, once time-outs have made it necessary.
    mtu_search: Option<MtuSearch>,
    keepalive: Option<Keepalive>,
    /// RFC 5482.
    user_timeout: Option<Duration>,
    /// `SO_MAX_PACING_RATE`.
    pacing_limit: Option<BitRate>,
    /// The cursor after our urgent text.
    urgent_sent: u64,
    /// The cursor after the peer's urgent text.
    urgent_received: Option<u64>,
    /// `TCP_NOTSENT_LOWAT`.
    unsent_limit: Option<u32>,
    /// `TCP_SYNCNT`.
    syn_retries: Option<u8>,
    /// `TCP_MAXSEG`.
    mss_limit: Option<Mss>,
    /// `TCP_LINGER2`.
    fin_wait_2: Option<Duration>,
    /// `TCP_WINDOW_CLAMP`, and `SO_RCVBUF` where it is less than what had been promised.
    room: RoomLimits,
    /// It opened fast, or tried to.
    fast_open: Option<Box<FastOpenState>>,
}

impl SocketOptions {
    fn rare(&mut self) -> &mut RareOptions {
        self.rare.get_or_insert_default()
    }

    #[inline]
    pub(crate) fn mtu_search(&self) -> Option<&MtuSearch> {
        self.rare.as_ref()?.mtu_search.as_ref()
    }

    #[inline]
    pub(crate) fn mtu_search_mut(&mut self) -> Option<&mut MtuSearch> {
        self.rare.as_mut()?.mtu_search.as_mut()
    }

    fn begin_mtu_search(&mut self, search: Option<MtuSearch>) {
        if search.is_some() {
            self.rare().mtu_search = search;
        }
    }

    fn keepalive(&self) -> Option<Keepalive> {
        self.rare.as_ref()?.keepalive
    }

    #[inline]
    pub(crate) fn user_timeout(&self) -> Option<Duration> {
        self.rare.as_ref()?.user_timeout
    }

    pub(crate) fn syn_retries(&self) -> Option<u8> {
        self.rare.as_ref()?.syn_retries
    }

    /// What limits new promises beside the receive ring.
    #[inline]
    pub(crate) fn room(&self) -> RoomLimits {
        self.rare.as_ref().map_or(RoomLimits::NONE, |rare| rare.room)
    }

    pub(crate) fn set_room(&mut self, room: RoomLimits) {
        if room != self.room() {
            self.rare().room = room;
        }
    }

    fn fin_wait_2(&self) -> Option<Duration> {
        self.rare.as_ref()?.fin_wait_2
    }

    /// Whether nothing here has a say in what a segment with new text looks like and when it goes.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.rare.as_ref().is_none_or(|rare| {
            rare.mtu_search.is_none() && rare.pacing_limit.is_none() && rare.urgent_sent == 0
        })
    }

    pub(crate) fn mss_limit(&self) -> Option<Mss> {
        self.rare.as_ref()?.mss_limit
    }

    #[inline]
    pub(crate) fn pacing_limit(&self) -> Option<BitRate> {
        self.rare.as_ref()?.pacing_limit
    }

    /// The cursor after our urgent text; zero if there never was any.
    #[inline]
    pub(crate) fn urgent_sent(&self) -> u64 {
        self.rare.as_ref().map_or(0, |rare| rare.urgent_sent)
    }

    pub(crate) fn set_urgent_sent(&mut self, cursor: u64) {
        self.rare().urgent_sent = cursor;
    }

    pub(crate) fn fast_open(&self) -> Option<&FastOpenState> {
        self.rare.as_ref()?.fast_open.as_deref()
    }

    pub(crate) fn fast_open_mut(&mut self) -> Option<&mut FastOpenState> {
        self.rare.as_mut()?.fast_open.as_deref_mut()
    }

    pub(crate) fn set_fast_open(&mut self, state: FastOpenState) {
        self.rare().fast_open = Some(Box::new(state));
    }

    pub(crate) fn urgent_received(&self) -> Option<u64> {
        self.rare.as_ref()?.urgent_received
    }

    pub(crate) fn set_urgent_received(&mut self, cursor: u64) {
        self.rare().urgent_received = Some(cursor);
    }
}

/// What waits for the next `poll_transmit` beside text and ACKs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) syn: bool,
    /// Nobody knows when our SYN-ACK left: it was a cookie.
    pub(crate) syn_unmeasured: bool,
    /// Whether our SYN scales windows, once it has left: all its copies say the same.
    pub(crate) syn_scales: Option<bool>,
    /// A window or keepalive probe.
    probe: bool,
    /// The persist timer fired: what fits the window goes, however silly it looks.
    override_sws: bool,
}

impl Pending {
    pub(crate) fn demand_probe(&mut self) {
        self.probe = true;
    }

    pub(crate) fn take_probe(&mut self) -> bool {
        core::mem::take(&mut self.probe)
    }

    pub(crate) fn is_empty(self) -> bool {
        !(self.syn || self.probe || self.override_sws)
    }

    pub(crate) fn demand_override(&mut self) {
        self.override_sws = true;
    }

    pub(crate) fn overrides(self) -> bool {
        self.override_sws
    }

    /// Text left, so no window needs probing.
    pub(crate) fn clear_override(&mut self) {
        self.override_sws = false;
    }
}

impl Connection {
    /// A connection that has nothing but its birth; `handshake.rs` gives it a state.
    pub(crate) fn new(config: &Arc<TcpConfig>, birth: &Birth, state: State, now: Instant) -> Self {
        let mut counts = Counts::default();
        counts.begin(now);
        Self {
            config: Arc::clone(config),
            send: SendSide::new(birth.iss, birth.mss),
            receive: ReceiveSide::new(birth.mss),
            flight: Flight::new(&config.flight),
            stamps: Timestamps::new(birth.clock, config.timestamps),
            ecn: EcnState::default(),
            timers: Timers::new(),
            counts,
            busy: Busy::default(),
            troubles: None,
            heard_at: now,
            progress_at: now,
            challenged_at: Instant::ZERO,
            options: SocketOptions::default(),
            peer_mss: birth.peer_default,
            state,
            pending: Pending::default(),
            doing: Doing::Idle,
            challenges: 0,
            syn_retries: 0,
            keepalive_probes: 0,
            active: state == State::SynSent,
            is_unreachable: false,
            awaits_storage: false,
        }
    }

    /// Nobody asks it for anything any more: what it holds ends, but for the memory that the next one can use
    /// ([`Connection::renew`]).
    pub fn retire(&mut self) {
        let kept = self.flight.retire();
        self.flight.keep(kept);
        (self.options, self.troubles) = (SocketOptions::default(), None);
        self.receive.retire();
    }

    /// Becomes another one, in the memory that one that was retired has left.
    #[inline]
    pub fn renew(&mut self, next: Self) {
        let kept = self.flight.retire();
        *self = next;
        self.flight.keep(kept);
    }

    /// Begins to fetch what a segment needs beside the connection itself, which should be near.
    #[inline]
    pub fn look_ahead(&self) {
        self.flight.look_ahead();
        self.receive.look_ahead();
    }

    /// A segment of this connection arrived. Most segments are taken by [`Connection::on_expected`] at less cost.
    pub fn on_segment(&mut self, now: Instant, seg: &SegmentIn<'_>, rings: &mut Rings<'_>) -> Disposition {
        self.timers.note_traffic(now);
        self.counts.on_received(now, seg.payload.len(), self.receive.segment().into());
        let mut out = Disposition::default();
        let verdict = match self.state {
            State::Closed => Err(Disposition::drop(DropReason::NoConnection)),
            State::SynSent => self.on_segment_syn_sent(now, seg, rings, &mut out),
            _ => self.walk(now, seg, rings, &mut out),
        };
        match verdict {
            Ok(()) => out,
            Err(mut ending) => {
                ending.events |= out.events;
                ending
            }
        }
    }

    /// RFC 9293 §3.10.7.4: the eight steps, in its order. (The third, security, is obsolete.)
    fn walk(
        &mut self,
        now: Instant,
        seg: &SegmentIn<'_>,
        rings: &mut Rings<'_>,
        out: &mut Disposition,
    ) -> Verdict {
        self.check_repeated_syn(seg)?;
        let seg = &self.behind_crossing_syn(seg);
        self.check_reset(now, seg)?;
        self.check_sequence(now, seg)?;
        self.check_syn(now, seg)?;
        (self.heard_at, self.keepalive_probes) = (now, 0);
        self.check_ack(now, seg, rings, out)?;
        self.check_urgent(seg, out);
        self.take_text(now, seg, rings, out)?;
        self.take_fin(now, seg, rings, out);
        Ok(())
    }

    /// Time passed; harmless if early.
    pub fn on_timer(&mut self, now: Instant, rings: &mut Rings<'_>) -> Disposition {
        if self.limit_at().is_some_and(|at| at <= now) {
            return self.die(now, CloseReason::TimedOut);
        }
        loop {
            let fired = self.flight.on_timer(now);
            if matches!(fired, TimerFired::Retransmission { .. }) {
                let timeouts = &mut self.troubles().timeouts;
                *timeouts = timeouts.wrapping_add(1);
            }
            match fired {
                TimerFired::Nothing => break,
                TimerFired::Retransmission { .. } | TimerFired::Held if self.has_waited_too_long(now) => {
                    return self.die(now, CloseReason::TimedOut);
                }
                TimerFired::Retransmission { count } => {
                    self.ask_for_other_way(now);
                    if count >= DOUBT_AFTER {
                        self.doubt_path();
                    }
                }
                _ => {}
            }
        }
        if self.timers.send.at() <= now
            && let Some(ending) = self.on_send_timer(now, rings)
        {
            return ending;
        }
        if self.timers.is_look_due(now) {
            self.look_at_memory(now, rings);
        }
        if self.timers.quiet.at() <= now { self.on_quiet_timer(now) } else { Disposition::default() }
    }

    /// What is sent may be too long for the path: nothing has arrived for several time-outs (RFC 4821 §7.8), or nobody
    /// has tried yet.
    pub(crate) fn doubt_path(&mut self) {
        if self.config.mtu_probing == MtuProbing::Off {
            return;
        }
        match self.options.mtu_search_mut() {
            Some(search) => search.on_timeout(),
            None => self.options.begin_mtu_search(MtuSearch::begin(self.send.mss)),
        }
        self.follow_path();
    }

    /// How often something was not answered in time: each time asks for another way through the network, which a new flow
    /// label gets where routers choose by it (RFC 6438; Linux' txrehash).
    #[inline]
    pub fn other_ways(&self) -> u32 {
        self.troubles.as_deref().map_or(0, |it| it.other_ways)
    }

    pub(crate) fn ask_for_other_way(&mut self, now: Instant) {
        self.troubles().on_silence(now);
    }

    /// The clock of a SYN, of what waits to leave or of the peer's window has come.
    fn on_send_timer(&mut self, now: Instant, rings: &Rings<'_>) -> Option<Disposition> {
        match self.timers.send {
            SendTimer::Off => None,
            SendTimer::Syn(_) => self.on_syn_timer(now),
            SendTimer::Held(_) => self.on_held_timer(now),
            SendTimer::Persist(_) => {
                if now.saturating_since(self.closed_window_since()) >= self.patience() {
                    return Some(self.die(now, CloseReason::TimedOut));
                }
                self.demand_window_probe(rings);
                self.timers.send = SendTimer::Persist(now + self.persist_interval());
                None
            }
        }
    }

    /// Keepalive or FIN-WAIT-2.
    fn on_quiet_timer(&mut self, now: Instant) -> Disposition {
        let QuietTimer::Keepalive(_) = self.timers.quiet else {
            // FIN-WAIT-2: what the peer might still send has no reader.
            self.forget();
            return Disposition::closed(CloseReason::Finished);
        };
        let Some(keepalive) = self.options.keepalive() else {
            self.timers.quiet = QuietTimer::Off;
            return Disposition::default();
        };
        let quiet_until = self.heard_at + keepalive.idle;
        if now < quiet_until || !self.flight.is_empty() {
            self.keepalive_probes = 0;
            // The first question is due when it would have been with the last word known; behind text, an interval later.
            let next = if now < quiet_until { quiet_until } else { now + keepalive.interval };
            self.timers.quiet = QuietTimer::Keepalive(next);
            return Disposition::default();
        }
        // As in Linux, the program's own limit counts instead of the number of questions; one is asked at least.
        let is_over =
            self.options.user_timeout().map_or(self.keepalive_probes >= keepalive.probes, |limit| {
                self.keepalive_probes > 0 && now.saturating_since(self.heard_at) >= limit
            });
        if is_over {
            return self.die(now, CloseReason::TimedOut);
        }
        self.keepalive_probes = self.keepalive_probes.saturating_add(1);
        self.pending.demand_probe();
        self.timers.quiet = QuietTimer::Keepalive(now + keepalive.interval);
        Disposition::default()
    }

    /// Whether what is unacknowledged has been so for longer than anybody will wait. Behind a window that the peer
    /// took back nothing can be acknowledged, so there its answers count, as they do for probes (SHLD-17).
    fn has_waited_too_long(&self, now: Instant) -> bool {
        let is_closed = self.send.room(self.flight.una()) == 0;
        let since = if is_closed { self.closed_window_since() } else { self.progress_at };
        now.saturating_since(since) >= self.patience()
    }

    /// Since when patience with a closed window is used up: the peer's last word, or when something began to wait, if that was
    /// later. RFC 9293 MUST-37: a peer that answers keeps the connection, unless nobody is left who would want it to (RFC 6429: the system may
    /// reclaim it).
    fn closed_window_since(&self) -> Instant {
        if self.options.orphan { self.progress_at } else { self.heard_at.max(self.progress_at) }
    }

    /// Whether so much has gone unanswered in a row that the way is in doubt: R1 of RFC 9293 §3.8.3, for a SYN, for text
    /// or for the question whether the peer lives. The lane asks after a timer and tells IP (MUST-20).
    pub fn doubts_way(&self) -> bool {
        let unanswered = match self.state {
            State::SynSent => self.syn_retries,
            _ => self.flight.timeouts().max(self.keepalive_probes),
        };
        unanswered >= R1
    }

    /// RFC 9293 §3.8.3 R2, or RFC 5482's user timeout.
    pub(crate) fn patience(&self) -> Duration {
        self.options.user_timeout().unwrap_or(self.config.abort_timeout)
    }

    /// When the program's own limit ends the wait for an acknowledgment (RFC 5482), be the window open or closed.
    fn limit_at(&self) -> Option<Instant> {
        let limit = self.options.user_timeout()?;
        let waits = !self.flight.is_empty() || self.timers.send != SendTimer::Off;
        waits.then(|| self.progress_at + limit)
    }

    /// When [`Connection::on_timer`] or [`Connection::poll_transmit`] has something to do next.
    #[inline]
    pub fn poll_at(&self) -> Option<Instant> {
        if self.state == State::Closed {
            return None;
        }
        let ack = self.receive.ack.deadline().unwrap_or(Instant::FAR_FUTURE);
        let limit = self.limit_at().unwrap_or(Instant::FAR_FUTURE);
        self.timers.earliest(self.flight.next_at().min(ack).min(limit))
    }

    /// The same while it may send nothing: what its pace or a delayed acknowledgment lets go does not count, as it is not asked for that.
    pub fn due_unsent(&self) -> Option<Instant> {
        if self.state == State::Closed {
            return None;
        }
        let limit = self.limit_at().unwrap_or(Instant::FAR_FUTURE);
        self.timers.earliest(self.flight.deadline().unwrap_or(Instant::FAR_FUTURE).min(limit))
    }

    /// Starts what an established connection has running.
    pub(crate) fn start_keepalive(&mut self, now: Instant) {
        let Some(keepalive) = self.options.keepalive() else {
            if matches!(self.timers.quiet, QuietTimer::Keepalive(_)) {
                self.timers.quiet = QuietTimer::Off;
            }
            return;
        };
        if self.state.is_synchronized() && self.timers.quiet == QuietTimer::Off {
            self.timers.quiet = QuietTimer::Keepalive(now + keepalive.idle);
        }
    }

    /// Whether the program closed the socket, so that nobody can read.
    pub(crate) fn is_orphan(&self) -> bool {
        self.options.orphan
    }

    /// The cursor of the receive ring where the peer's urgent text ends, if it ever sent any (RFC 6093: the text
    /// itself stays in the stream).
    pub fn urgent_mark(&self) -> Option<u64> {
        self.options.urgent_received()
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// `TCP_NODELAY`: small segments do not wait for each other.
    pub fn set_nodelay(&mut self, on: bool) {
        self.options.nodelay = on;
    }

    /// Which rings grow. What has grown stays so until the ring is empty for a while.
    pub fn set_tuning(&mut self, tuning: Tuning) {
        self.options.tuning = tuning;
    }

    /// `TCP_QUICKACK`: ACKs leave at once for a while, or wait for the program's answers. Not for ever, as in Linux.
    pub fn set_quickack(&mut self, on: bool) {
        self.receive.ack.set_quick(on);
    }

    /// `TCP_CORK`: only full segments leave, until it is taken out (or the persist timer fires).
    pub fn set_cork(&mut self, on: bool) {
        self.options.cork = on;
    }

    /// `SO_KEEPALIVE` with its times; `None` turns it off (RFC 9293 MUST-24 and -25: off unless asked for).
    pub fn set_keepalive(&mut self, now: Instant, keepalive: Option<Keepalive>) {
        if keepalive != self.options.keepalive() {
            self.options.rare().keepalive = keepalive;
        }
        if matches!(self.timers.quiet, QuietTimer::Keepalive(_)) {
            self.timers.quiet = QuietTimer::Off;
        }
        self.keepalive_probes = 0;
        self.start_keepalive(now);
    }

    /// Whether its program says how long data may stay unacknowledged.
    pub fn has_user_timeout(&self) -> bool {
        self.options.user_timeout().is_some()
    }

    /// `TCP_USER_TIMEOUT` (RFC 5482): how long data may stay unacknowledged; `None` follows the configuration.
    pub fn set_user_timeout(&mut self, timeout: Option<Duration>) {
        if timeout != self.options.user_timeout() {
            self.options.rare().user_timeout = timeout;
            self.follow_patience();
        }
    }

    /// `SO_MAX_PACING_RATE`: sends no faster than this, and evenly; so does what waits. Zero is no limit, as in Linux.
    pub fn set_pacing_limit(&mut self, now: Instant, limit: Option<BitRate>) {
        let limit = limit.filter(|&rate| rate != BitRate::ZERO);
        if limit != self.options.pacing_limit() {
            self.options.rare().pacing_limit = limit;
            self.flight.change_pace(now, limit);
        }
    }

    /// `TCP_MAXSEG`, which was said before the connection began: no segment is larger, whatever the path carries later.
    pub fn set_mss_limit(&mut self, limit: Option<Mss>) {
        if limit != self.options.mss_limit() {
            self.options.rare().mss_limit = limit;
        }
    }

    /// `TCP_NOTSENT_LOWAT`: how much may be written and unsent.
    pub fn set_unsent_limit(&mut self, limit: Option<u32>) {
        if limit != self.unsent_limit() {
            self.options.rare().unsent_limit = limit;
        }
    }

    /// `TCP_SYNCNT`: how often a SYN is repeated before the connect has failed; `None` follows the configuration.
    pub fn set_syn_retries(&mut self, most: Option<u8>) {
        if most != self.options.syn_retries() {
            self.options.rare().syn_retries = most;
        }
    }

    /// `TCP_LINGER2`: how long a closed socket waits in FIN-WAIT-2 for the peer's FIN; `None` follows the configuration.
    pub fn set_fin_wait_2(&mut self, timeout: Option<Duration>) {
        if timeout != self.options.fin_wait_2() {
            self.options.rare().fin_wait_2 = timeout;
        }
    }

    /// How long that is.
    pub(crate) fn fin_wait_2_timeout(&self) -> Duration {
        self.options.fin_wait_2().unwrap_or(self.config.fin_wait_2_timeout)
    }

    /// `TCP_WINDOW_CLAMP`: the most that is announced of what the receive ring has free; `None` is all of it. What has been
    /// announced is not taken back (RFC 9293 SHLD-14): it shrinks with the text that comes.
    pub fn set_window_clamp(&mut self, clamp: Option<u32>) {
        self.options.set_room(RoomLimits { clamp, ..self.options.room() });
        // A connection that took the text of a SYN has yet to announce anything.
        if let (Some(clamp), true) = (clamp, self.pending.syn && self.syn_retries == 0) {
            self.receive.promised = self.receive.promised.min(self.receive.nxt + u64::from(clamp));
        }
    }

    /// `SO_RCVBUF`: how much may be unread. Of what has been announced all is taken (RFC 9293 §3.8.6), so a `ring` that is to
    /// be smaller keeps room for that, until it is used up and nothing has come for a second; only what is announced from
    /// here on obeys. It is no less than what the window field can say: a window of nothing would never open.
    pub fn set_receive_buffer(&mut self, bytes: usize, ring: &mut RingWriter) {
        let bytes = bytes.max(1 << self.receive.scale);
        let buffer = self.receive.resize(bytes, ring);
        self.options.set_room(RoomLimits { buffer, ..self.options.room() });
    }

    /// `IP_RECVERR` and `IPV6_RECVERR`, in this order: the program hears of ICMP errors at once.
    pub fn set_hears_errors(&mut self, hears: [bool; 2]) {
        self.options.hears_errors = hears;
    }

    /// Whether the program hears at once of ICMP errors, of IPv6 or of IPv4.
    pub fn hears_errors(&self, is_v6: bool) -> bool {
        self.options.hears_errors[usize::from(is_v6)]
    }

    /// How much may be written and unsent, if the program wants a limit.
    #[inline]
    pub fn unsent_limit(&self) -> Option<u32> {
        self.options.rare.as_ref()?.unsent_limit
    }

    /// `TCP_CONGESTION`: another congestion control goes on from the present window.
    pub fn set_algorithm(&mut self, now: Instant, algorithm: Algorithm) {
        self.flight.set_algorithm(now, algorithm);
    }

    /// Gives back memory that an idle connection does not need: the books of what was sent and of what came
    /// ahead, and the storage of rings that hold nothing. A second of silence does this by itself.
    pub fn shrink(&mut self, now: Instant, rings: &mut Rings<'_>) {
        self.receive.shrink(self.send.sack);
        if let Some(bytes) = self.options.room().buffer {
            self.set_receive_buffer(bytes as usize, rings.recv);
        }
        self.keep_cwr();
        self.flight.shrink(now, self.state == State::Established);
        if let Some(at) = self.flight.pace_holds_until(now).filter(|at| *at > now) {
            self.timers.look_again(at);
        }
        rings.send.detach_if_empty();
        rings.recv.detach_if_empty();
    }

    /// Follows changed tunables from here on. What both ends agreed on in their SYNs stays, and so does the
    /// congestion control.
    pub fn set_config(&mut self, config: Arc<TcpConfig>) {
        let before = self.flight.rtt().rto();
        self.flight.follow(&config.flight);
        if let SendTimer::Syn(at) = &mut self.timers.send {
            *at = self.flight.rtt().rto().instead_of(before, *at);
        }
        self.config = config;
        self.follow_patience();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle connection is this struct: the flight's books and the reassembly's ranges are allocated while
    /// they are needed.
    #[test]
    fn an_idle_connection_is_small() {
        let parts = [
            ("flight", size_of::<Flight>()),
            ("receive", size_of::<ReceiveSide>()),
            ("send", size_of::<SendSide>()),
            ("options", size_of::<SocketOptions>()),
            ("timers", size_of::<Timers>()),
            ("stamps", size_of::<Timestamps>()),
        ];
        let size = size_of::<Connection>();
        assert!(size <= 456, "{size} bytes: {parts:?}");
    }
}
