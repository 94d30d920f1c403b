//! The connections of a lane: their places, their timers, and which of them have something to do.
//!
//! One table for all netstacks, so that an index names a connection to the timer wheel and to the dirty list.
//! A connection that may have something to send is *dirty*; the lane asks the dirty ones in turn, so that one with much to
//! send does not keep others waiting, and no netstack those of another (`turns.rs`). One that is silent rests: what TCP must
//! remember of it lies in its place, and the rest of its state exists while it is awake.

use core::net::SocketAddr;
use core::num::NonZeroU8;
use std::collections::VecDeque;
use std::sync::Arc;

use firelane_classify::Tuple;
use firelane_flow::Limits;
use firelane_frame::read_all_ahead;
use firelane_ip::{Egress, Front, Ip, Upper};
use firelane_socket::{AnyEnd, ConnRef, Flags, Names, StreamSlot};
use firelane_tcp::{AtRest, Connection, Rings, State, TcpConfig};
use firelane_units::{Bytes, ConnId, Family, Instant, LinkId, NetstackId, Port, SocketId, StepListId};
use firelane_wire::{Ecn, IpProtocol};

use super::bands::Band;
use super::brought::Deserted;
use super::credit::Allowance;
use super::limited::{Cause, LOOKS_AGAIN, Limited, Ticket, Tickets};
use super::local::Passed;
use super::sweep::Hand;
use super::turns::Turns;
use crate::fusion::Fusion;
use crate::message::StreamOptions;
use crate::netstack_counters::TcpCounters;
use crate::probes;
use crate::slab::Slab;
use crate::steps::StepLists;
use crate::stream_info::StreamInfo;
use crate::turn::TX_RETRY;
use crate::wheel::Wheel;

/// A connection and what the lane knows of it.
#[derive(Debug)]
pub(crate) struct Conn {
    tcp: Tcp,
    pub(crate) stream: StreamSlot,
    pub(crate) netstack: NetstackId,
    pub(crate) steps: StepListId,
    pub(crate) is_dirty: bool,
    waits: Waits,
    /// What the program chose for its packets: DiffServ, and the hop limit if it is not the link's.
    dscp: u8,
    hops: Option<NonZeroU8>,
    /// How many hops must be left of its peer's packets (RFC 5082).
    pub(super) least_hops: u8,
    pub(super) program: Program,
    /// Whether what it sends goes before others', or behind.
    pub(super) band: Band,
    /// The end is near: what follows when nothing is left to send.
    pub(crate) leaving: Leaving,
    /// Whose its peer is, as far as a netstack is known: its own, or another on the same switch (`across.rs`).
    pub(super) peers: NetstackId,
    /// Whether its text goes from ring to ring, and what limits have to do with it then.
    pub(crate) fusion: Fusion,
    pub(crate) allowance: Allowance,
    /// The state that probes were last told of.
    shown: State,
    /// What a connection at rest does not have.
    awake: Option<Box<Awake>>,
}

/// Why a connection is not asked for what it may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waits {
    Nothing,
    /// It owes an ACK that waits for the next turn.
    Turn,
    /// It is among those that wait for a limit.
    Limit,
    /// It is among those that wait for a device.
    Device,
}

/// What the lane knows of a connection while it is in use, or has not been accepted.
#[derive(Debug, Default)]
struct Awake {
    /// The way of its segments.
    route: Option<Egress>,
    /// The headers that go in front of them on that way.
    front: Option<Front>,
    /// Which flows they belong to, and the count of rule changes at which that was looked up.
    flows: Option<(u32, Limits)>,
    /// Its place among those that wait for a limit.
    ticket: Option<Ticket>,
    /// Whose passive connection it is.
    listener: Option<SocketId>,
    /// The application's side, until the connection is established and its listener gets it.
    embryo: Option<AnyEnd>,
}

// What an idle connection costs in its table.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Conn>() <= 368);

/// TCP's state, awake or at rest.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Most connections rest, and none should have an allocation for it.
enum Tcp {
    Awake(Box<Connection>),
    AtRest(AtRest),
}

impl Tcp {
    #[inline]
    fn wake(&mut self) -> &mut Connection {
        if let Self::AtRest(_) = self {
            self.unfold();
        }
        match self {
            Self::Awake(connection) => connection,
            Self::AtRest(_) => unreachable!("it was woken just above"),
        }
    }

    #[cold]
    fn unfold(&mut self) {
        if let Self::AtRest(rest) = self {
            *self = Self::Awake(Box::new(rest.wake()));
        }
    }

    fn is_at_rest(&self) -> bool {
        matches!(self, Self::AtRest(_))
    }
}

/// Memory of connections that have ended or gone to rest, for those that begin or wake.
#[derive(Debug, Default)]
#[allow(clippy::vec_box)] // The boxes are what is kept.
pub(crate) struct Spares {
    connections: Vec<Box<Connection>>,
    awake: Vec<Box<Awake>>,
}

/// How many of each are kept: more than come and go in a turn of a busy lane, and little beside what it has in use.
const SPARES_MAX: usize = 256;

impl Spares {
    #[inline]
    fn connection(&mut self, tcp: Connection) -> Box<Connection> {
        match self.connections.pop() {
            Some(mut spare) => {
                spare.renew(tcp);
                spare
            }
            None => Box::new(tcp),
        }
    }

    #[inline]
    fn awake(&mut self, awake: Awake) -> Box<Awake> {
        match self.awake.pop() {
            Some(mut spare) => {
                *spare = awake;
                spare
            }
            None => Box::new(awake),
        }
    }

    fn take_connection(&mut self, tcp: Tcp) {
        if let Tcp::Awake(mut tcp) = tcp
            && self.connections.len() < SPARES_MAX
        {
            tcp.retire();
            self.connections.push(tcp);
        }
    }

    fn take_awake(&mut self, awake: Option<Box<Awake>>) {
        if let Some(mut awake) = awake
            && self.awake.len() < SPARES_MAX
        {
            *awake = Awake::default();
            self.awake.push(awake);
        }
    }
}

/// How its program hears of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Program {
    /// It asks, or waits.
    Asks,
    /// It is signalled for what happens.
    Signalled,
    /// Not at all: it has closed its socket.
    Gone,
}

/// How far a connection's end has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leaving {
    /// It lives.
    No,
    /// Its program wants a reset, or has closed it with text unread: that goes behind what can be sent of what the program wrote.
    Reset,
    /// Its program has closed it when it had just begun. Its SYN goes first, to a peer of the same netstack: a kernel would have had the
    /// answer when connect(2) returned.
    Begun,
    /// Only TIME-WAIT is left, once everything is sent; nothing is, if the peer is in the same netstack, as in Solaris.
    TimeWait,
    /// It is gone, once everything is sent.
    Gone,
}

impl Conn {
    /// It may have something to send.
    fn begin_turn(&mut self, id: ConnId, dirty: &mut Turns) {
        if !core::mem::replace(&mut self.is_dirty, true) {
            dirty.push(self.netstack, self.band, id);
        }
    }

    /// A connection with nothing to send as yet.
    #[inline]
    pub(crate) fn new(
        tcp: Connection,
        stream: StreamSlot,
        netstack: NetstackId,
        route: Option<Egress>,
        spares: &mut Spares,
    ) -> Self {
        Self {
            shown: tcp.state(),
            tcp: Tcp::Awake(spares.connection(tcp)),
            stream,
            netstack,
            peers: netstack,
            steps: StepLists::TCP,
            is_dirty: false,
            waits: Waits::Nothing,
            band: Band::default(),
            dscp: 0,
            hops: None,
            least_hops: 0,
            program: Program::Asks,
            leaving: Leaving::No,
            fusion: Fusion::Alone,
            allowance: Allowance::Free,
            awake: route.map(|route| spares.awake(Awake { route: Some(route), ..Awake::default() })),
        }
    }

    /// It came by a listener, which gets the application's side when it is established.
    pub(crate) fn came_by(&mut self, listener: SocketId, embryo: AnyEnd) {
        let awake = self.awake();
        (awake.listener, awake.embryo) = (Some(listener), Some(embryo));
    }

    /// Whose passive connection it is.
    pub(crate) fn listener(&self) -> Option<SocketId> {
        self.awake.as_ref()?.listener
    }

    /// The application's side and whose it is, once.
    pub(crate) fn hatch(&mut self) -> Option<(AnyEnd, SocketId)> {
        let awake = self.awake.as_mut()?;
        Some((awake.embryo.take()?, awake.listener?))
    }

    fn awake(&mut self) -> &mut Awake {
        self.awake.get_or_insert_default()
    }

    /// The way of its segments, if it was looked up.
    #[inline]
    pub(crate) fn route(&self) -> Option<&Egress> {
        self.awake.as_ref()?.route.as_ref()
    }

    /// Its segments go this way from here on, which may be in other flows.
    pub(crate) fn set_route(&mut self, route: Egress) {
        let awake = self.awake();
        (awake.route, awake.front, awake.flows) = (Some(route), None, None);
    }

    /// What goes in front of its segments, if their way is current.
    #[inline]
    pub(crate) fn front(&self, ip: &Ip) -> Option<&Front> {
        self.awake.as_ref()?.front.as_ref().filter(|front| ip.is_front_current(front))
    }

    /// Has the headers for its segments ready from here on, if their way leads somewhere.
    pub(crate) fn make_front(&mut self, ip: &Ip) {
        let upper = self.upper(ip, Ecn::NotCapable);
        let awake = self.awake();
        awake.front = awake.route.as_ref().and_then(|route| ip.front(route, upper));
    }

    /// What IP has to know of a segment.
    pub(crate) fn upper(&self, ip: &Ip, ecn: Ecn) -> Upper {
        let hops = self.hops.map(NonZeroU8::get);
        let way = self.look(Connection::other_ways);
        let label = |Names { local, remote }| ip.flow_label_of_way(IpProtocol::TCP, local, remote, way);
        let flow_label = self.stream.shared().names().map_or(0, label);
        Upper { hops, dscp: self.dscp, flow_label, ..Upper::tcp(ecn) }
    }

    /// Its flow label is another one from here on.
    pub(crate) fn change_label(&mut self) {
        self.awake().front = None;
    }

    /// Whether its packets are of this family.
    pub(crate) fn is_of(&self, family: Family) -> bool {
        self.stream.shared().names().is_some_and(|names| Family::of(names.remote.ip()) == family)
    }

    /// What its program chose of what is not TCP's.
    pub(super) fn obey(&mut self, options: &StreamOptions, remote: SocketAddr) {
        let family = Family::of(remote.ip()).index();
        self.least_hops = options.least_hops[family];
        (self.hops, self.dscp) = (options.hops[family], options.dscp[family]);
        if options.unsent_limit.is_some() {
            self.limit_unsent(options.unsent_limit);
        }
    }

    /// Its packets may take so many hops; `None` leaves it to the link.
    pub(crate) fn set_hops(&mut self, hops: Option<NonZeroU8>) {
        self.hops = hops;
        self.awake().front = None;
    }

    /// The differentiated services code point of its packets, which may be in other flows then.
    pub(crate) fn set_dscp(&mut self, dscp: u8) {
        self.dscp = dscp;
        let awake = self.awake();
        (awake.front, awake.flows) = (None, None);
    }

    /// The DS field of its packets, without what TCP makes of ECN.
    pub(super) const fn dsfield(&self) -> u8 {
        self.dscp << 2
    }

    /// The flows of its segments, if they were looked up since rules changed for the `changes`-th time.
    #[inline]
    pub(crate) fn flows(&self, changes: u32) -> Option<Limits> {
        let (seen, flows) = self.awake.as_ref()?.flows?;
        (seen == changes).then_some(flows)
    }

    /// Its segments belong to these flows until rules change again.
    pub(crate) fn set_flows(&mut self, changes: u32, flows: Limits) {
        self.awake().flows = Some((changes, flows));
    }

    /// Tells probes of a new state. One at rest is established, as it was.
    pub(crate) fn show_state(&mut self, counters: &mut TcpCounters) {
        let Tcp::Awake(tcp) = &self.tcp else { return };
        let state = tcp.state();
        if state != self.shown {
            probes::tcp_state_change(|| self.tuple(), self.shown, state);
            counters.on_state(self.shown, state);
            self.shown = state;
        }
    }

    fn is_accepted(&self) -> bool {
        self.stream.shared().words().flags().contains(Flags::ACCEPTED)
    }

    /// TCP's state, woken.
    #[inline]
    pub(crate) fn tcp(&mut self) -> &mut Connection {
        self.tcp.wake()
    }

    /// Looks at TCP's state without waking it.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Connection) -> T) -> T {
        match &self.tcp {
            Tcp::Awake(connection) => look(connection),
            Tcp::AtRest(rest) => rest.look(look),
        }
    }

    /// Whether this connection has the tuple.
    #[inline]
    pub(crate) fn is_named(&self, tuple: &Tuple) -> bool {
        let ports = [tuple.local_port().0, tuple.remote_port().0];
        self.stream.shared().is_between(tuple.halves(), ports)
    }

    /// Its tuple; `None` before it is in the tables.
    pub(crate) fn tuple(&self) -> Option<Tuple> {
        let (halves, ports) = self.stream.shared().ends()?;
        Some(Tuple::of_halves(IpProtocol::TCP, halves, ports.map(Port)))
    }

    /// When it has something to do by itself.
    fn poll_at(&self) -> Instant {
        let at = match &self.tcp {
            Tcp::Awake(connection) => connection.poll_at(),
            Tcp::AtRest(rest) => rest.poll_at(),
        };
        at.unwrap_or(Instant::FAR_FUTURE)
    }

    /// The same while it may send nothing.
    fn due_unsent(&self) -> Instant {
        let at = match &self.tcp {
            Tcp::Awake(connection) => connection.due_unsent(),
            Tcp::AtRest(rest) => rest.poll_at(),
        };
        at.unwrap_or(Instant::FAR_FUTURE)
    }

    /// Follows changed tunables from here on.
    pub(crate) fn set_config(&mut self, config: Arc<TcpConfig>) {
        match &mut self.tcp {
            Tcp::Awake(connection) => connection.set_config(config),
            Tcp::AtRest(rest) => rest.set_config(config),
        }
    }

    /// Gives back what a silent connection does not need: its way is looked up again when it wakes.
    fn rest(&mut self, now: Instant, spares: &mut Spares) {
        if let Tcp::Awake(connection) = &mut self.tcp
            && self.leaving == Leaving::No
            && !self.is_dirty
            && let Some(rest) = connection.rest(now)
        {
            let waits =
                self.awake.as_ref().is_some_and(|awake| awake.listener.is_some()) && !self.is_accepted();
            // Its way says by which link alone it goes.
            let is_bound = self.route().is_some_and(|route| route.bound.is_some());
            spares.take_connection(core::mem::replace(&mut self.tcp, Tcp::AtRest(rest)));
            if !waits && !is_bound {
                spares.take_awake(self.awake.take());
            }
        }
    }

    /// Wakes one that is about to be used.
    #[cold]
    fn wake(&mut self, spares: &mut Spares) {
        if let Tcp::AtRest(rest) = &mut self.tcp {
            self.tcp = Tcp::Awake(spares.connection(rest.wake()));
            self.awake.get_or_insert_with(|| spares.awake(Awake::default()));
        }
    }

    /// Whether it came by `listener` and nobody has accepted it.
    pub(crate) fn is_orphan_of(&self, listener: SocketId) -> bool {
        self.listener() == Some(listener) && !self.is_accepted()
    }

    /// Whether it has nothing to send and does not end: asked where most connections are.
    #[inline]
    pub(crate) fn is_quiet(&mut self, now: Instant) -> bool {
        self.leaving == Leaving::No && self.has_sent_all(now)
    }

    /// Whether TCP is at rest.
    pub(super) fn rests(&self) -> bool {
        self.tcp.is_at_rest()
    }

    /// Whether it has nothing to send as it is now.
    #[inline]
    pub(crate) fn has_sent_all(&mut self, now: Instant) -> bool {
        let (tcp, rings) = self.parts();
        tcp.is_quiet(now, &rings)
    }

    /// Whether all that it has to send is an ACK that the program's answer may carry.
    pub(crate) fn may_wait(&mut self, now: Instant) -> bool {
        if self.is_far_from_answering() {
            return false;
        }
        let (tcp, rings) = self.parts();
        tcp.may_wait(now, &rings) && self.leaving == Leaving::No
    }

    /// Whether no answer will carry its ACK: it goes past TCP, or the program is another process that has yet to hear that
    /// there is a connection. Nobody need be woken for such an ACK then.
    fn is_far_from_answering(&self) -> bool {
        let is_new = || self.stream.send.cursor() == 0 && self.stream.recv.cursor() == 0;
        self.fusion == Fusion::Beside || self.stream.is_far() && is_new()
    }

    /// How much may be written and unsent.
    pub(crate) fn limit_unsent(&mut self, limit: Option<u32>) {
        self.tcp().set_unsent_limit(limit);
        self.stream.shared().words().limit_unsent(limit);
    }

    /// Whether its program wants little to be unsent.
    #[inline]
    pub(crate) fn has_unsent_limit(&self) -> bool {
        matches!(&self.tcp, Tcp::Awake(tcp) if tcp.unsent_limit().is_some())
    }

    /// Whether its text goes past TCP.
    pub(crate) fn is_fused(&self) -> bool {
        self.fusion.is_on() || self.fusion == Fusion::Beside
    }

    /// What is known of it.
    pub(crate) fn info(&self, now: Instant) -> Option<StreamInfo> {
        let mut tcp = self.look(|tcp| tcp.info(now));
        let Names { local, remote } = self.stream.shared().names()?;
        if self.fusion.is_on() {
            self.correct(&mut tcp);
        }
        let (send, recv) = (&self.stream.send, &self.stream.recv);
        let sent = tcp.bytes_acknowledged + tcp.unacknowledged;
        let written = send.cursor() + send.available() as u64;
        Some(StreamInfo {
            local,
            remote,
            is_fused: self.is_fused(),
            unfused: None,
            limited: None,
            flow: self.awake.as_ref().and_then(|awake| Some(awake.flows?.1[0]?.0)),
            unsent: Bytes(written.saturating_sub(sent.0)),
            unread: Bytes::from(recv.unread_in_all()),
            receive_buffer: Bytes::from(recv.capacity()),
            tcp,
        })
    }

    /// Begins to fetch what a segment needs beside this place, which should be near.
    #[inline]
    pub(super) fn look_ahead(&self) {
        self.stream.words_ahead();
        self.awake.as_deref().into_iter().for_each(read_all_ahead);
        if let Tcp::Awake(tcp) = &self.tcp {
            read_all_ahead(&**tcp);
        }
    }

    /// The same of what those name that were asked for by [`Conn::look_ahead`].
    #[inline]
    pub(super) fn look_further_ahead(&self) {
        self.stream.storage_ahead();
        if let Tcp::Awake(tcp) = &self.tcp {
            tcp.look_ahead();
        }
    }

    /// The connection and its rings, for a call.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut Connection, Rings<'_>) {
        (self.tcp.wake(), Rings { send: &mut self.stream.send, recv: &mut self.stream.recv })
    }
}

/// All connections of a lane.
#[derive(Debug)]
pub(crate) struct Conns {
    pub(crate) slab: Slab<Conn>,
    pub(super) spares: Spares,
    pub(super) wheel: Wheel,
    dirty: Turns,
    /// Those whose ACK waits for the next turn, so that the program's answer may carry it.
    patient: Vec<ConnId>,
    /// Those that wait for their flow's limit, and until when.
    limited: Limited<ConnId>,
    /// Those that wait for each busy device, the one that came first before others.
    blocked: Vec<(LinkId, VecDeque<ConnId>)>,
    /// Netstacks some of whose connections have still to find a local port, in the order of their turns.
    pub(super) searching: VecDeque<NetstackId>,
    /// Those that are to be fused with their peers.
    pub(crate) wishes: Vec<ConnId>,
    /// Those whose program marks their packets otherwise: flows, and what they say of fusing, may be others.
    pub(super) remarked: Vec<ConnId>,
    /// Those whose fused peers have reset the connection.
    pub(crate) bereaved: Vec<ConnRef>,
    /// Those that nobody will accept any more.
    pub(super) deserted: Deserted,
    /// Those that ask for credit, and for how much.
    pub(super) asking: Vec<(ConnId, Bytes)>,
    /// How many have lent their rings to each other.
    pub(super) lent: usize,
    /// Whether connections with other netstacks may be fused.
    pub(super) crosses: bool,
    /// What was carried past TCP and is to be counted.
    pub(super) passed: Vec<Passed>,
    /// Some have waited for an acknowledgement since this was last asked.
    pub(crate) are_held_up: bool,
    /// Some have got a segment from another one without a packet since this was last asked.
    pub(super) handed_across: bool,
    /// Who looks at all of them by and by.
    pub(super) hand: Hand,
}

/// How many of those that wait for a device go on in a round in which it is free: more than have their turn in it, and few enough that a
/// hundred thousand are no pause for others.
const WOKEN_PER_ROUND: usize = 64;

impl Conns {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            slab: Slab::new(),
            spares: Spares::default(),
            wheel: Wheel::new(now),
            dirty: Turns::default(),
            patient: Vec::new(),
            limited: Limited::default(),
            blocked: Vec::new(),
            searching: VecDeque::new(),
            wishes: Vec::new(),
            remarked: Vec::new(),
            bereaved: Vec::new(),
            deserted: Deserted::default(),
            asking: Vec::new(),
            lent: 0,
            crosses: false,
            passed: Vec::new(),
            are_held_up: false,
            handed_across: false,
            hand: Hand::default(),
        }
    }

    /// Takes a new connection in.
    #[inline]
    pub(crate) fn insert(&mut self, conn: Conn) -> ConnRef {
        self.slab.insert(conn)
    }

    /// Whether a connection has a tuple.
    #[inline]
    pub(crate) fn is_named(&self, id: ConnId, tuple: &Tuple) -> bool {
        self.slab.get(id).is_some_and(|conn| conn.is_named(tuple))
    }

    /// Takes a connection out.
    pub(crate) fn remove(&mut self, id: ConnId) {
        self.wheel.cancel(id.0);
        if let Some(Conn { tcp, awake, waits, .. }) = self.slab.remove(id) {
            if waits == Waits::Limit {
                self.forget_limited();
            }
            self.spares.take_connection(tcp);
            self.spares.take_awake(awake);
        }
    }

    /// One that waits for a limit is gone. Its place in line goes with others', once most are of such as it was.
    #[cold]
    fn forget_limited(&mut self) {
        let slab = &self.slab;
        self.limited.note_gone(|id, ticket| {
            slab.get(id).is_some_and(|conn| {
                // Who has rested, or was asked out of turn, has no ticket, and his place is here all the same.
                let own = conn.awake.as_ref().and_then(|it| it.ticket);
                conn.waits == Waits::Limit && own.is_none_or(|own| own == ticket)
            })
        });
    }

    /// A connection is about to be used: one that rests wakes.
    #[inline]
    pub(crate) fn wake_up(&mut self, id: ConnId) {
        if let Some(conn) = self.slab.get_mut(id).filter(|conn| conn.tcp.is_at_rest()) {
            conn.wake(&mut self.spares);
        }
    }

    /// Whether a connection is there that came by `listener` and that nobody has accepted.
    pub(super) fn is_orphan(&self, conn: ConnRef, listener: SocketId) -> bool {
        let id = self.slab.resolve(conn);
        id.and_then(|id| self.slab.get(id)).is_some_and(|conn| conn.is_orphan_of(listener))
    }

    /// A connection may have something to send.
    pub(crate) fn touch(&mut self, id: ConnId) {
        if let Some(conn) = self.slab.get_mut(id) {
            conn.begin_turn(id, &mut self.dirty);
        }
    }

    /// A connection has sent what it was made dirty for.
    pub(super) fn clean(&mut self, id: ConnId, now: Instant) {
        if let Some(conn) = self.slab.get_mut(id)
            && conn.is_quiet(now)
        {
            conn.is_dirty = false;
        }
    }

    /// A connection may have something to send, in the next turn.
    pub(crate) fn postpone(&mut self, id: ConnId) {
        let Some(conn) = self.slab.get_mut(id).filter(|conn| !conn.is_dirty) else { return };
        match conn.waits {
            Waits::Nothing => {
                conn.waits = Waits::Turn;
                self.patient.push(id);
            }
            Waits::Turn => {}
            // Its way may be another now.
            Waits::Limit | Waits::Device => self.touch(id),
        }
    }

    /// The next turn has come: what still owes its ACK is dirty.
    pub(crate) fn end_patience(&mut self, now: Instant) {
        for n in 0..self.patient.len() {
            let id = self.patient[n];
            if let Some(conn) = self.slab.get_mut(id)
                && conn.waits == Waits::Turn
            {
                conn.waits = Waits::Nothing;
                if !conn.is_quiet(now) {
                    self.touch(id);
                }
            }
        }
        self.patient.clear();
    }

    /// Whether somebody waits for the next turn.
    pub(crate) fn has_patient(&self) -> bool {
        !self.patient.is_empty()
    }

    /// The next dirty connection; it is clean from here on.
    pub(crate) fn next_dirty(&mut self) -> Option<ConnId> {
        while let Some((netstack, id)) = self.dirty.pop() {
            // A place may have been emptied, and taken by a successor that has an entry of its own.
            if let Some(conn) = self.slab.get_mut(id).filter(|conn| conn.netstack == netstack)
                && core::mem::take(&mut conn.is_dirty)
            {
                return Some(id);
            }
        }
        None
    }

    /// A connection of a netstack has made a frame with so much text: that is of its turn.
    #[inline]
    pub(crate) fn charge(&mut self, netstack: NetstackId, text: usize) {
        self.dirty.charge(netstack, text);
    }

    /// Datagrams with so much text, and what they cost beside it, were sent.
    pub(super) fn add_sent(&mut self, sent: usize) {
        self.dirty.add(sent);
    }

    /// A turn of the lane begins.
    pub(super) fn begin_turn(&mut self) {
        self.dirty.begin();
    }

    /// Whether so much was sent in this turn that others are to have theirs.
    pub(super) fn is_turn_over(&self) -> bool {
        self.dirty.is_over()
    }

    /// How many entries the dirty list has.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty.len()
    }

    /// Arms a connection's timer for what it waits for next; one that has been silent rests until then.
    pub(crate) fn arm(&mut self, id: ConnId, now: Instant) {
        if let Some(conn) = self.slab.get_mut(id) {
            conn.rest(now, &mut self.spares);
            self.wheel.arm(id.0, conn.poll_at());
        }
    }

    /// The same for one that has more to send than it had buffers or a turn for: it is asked again, and what its pace or its ACK lets
    /// go by now is no reason to come at once, over and over.
    pub(crate) fn arm_later(&mut self, id: ConnId, now: Instant) {
        if let Some(conn) = self.slab.get_mut(id) {
            self.wheel.arm(id.0, conn.poll_at().max(now + TX_RETRY));
        }
    }

    /// The same for one that waits for a limit or a device, which say when: nothing that is only to be sent is due before.
    pub(crate) fn arm_waiting(&mut self, id: ConnId, now: Instant) {
        if let Some(conn) = self.slab.get_mut(id) {
            self.wheel.arm(id.0, conn.due_unsent().max(now + TX_RETRY));
        }
    }

    /// Something happened to a connection: if it has nothing to send its timer is armed, else it has its turn.
    #[inline]
    pub(crate) fn follow_up(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.slab.get_mut(id) else { return };
        if conn.is_quiet(now) {
            self.arm(id, now);
        } else if conn.may_wait(now) {
            self.postpone(id);
        } else {
            self.touch(id);
        }
    }

    /// A connection waits for the limits of its flows, and looks meanwhile whether it still has to.
    pub(crate) fn wait_for_credit(
        &mut self,
        tickets: &mut Tickets,
        id: ConnId,
        limits: Limits,
        (now, until): (Instant, Instant),
    ) {
        if self.begins_to_wait(id, Waits::Limit, now)
            && let Some(conn) = self.slab.get_mut(id)
        {
            let (band, ticket) = (conn.band, tickets.of(&mut conn.awake().ticket));
            self.limited.put(Cause::Limits(limits).at_latest(until, now + LOOKS_AGAIN), band, ticket, id);
        }
    }

    /// Since when the next one waits whose time has come.
    pub(crate) fn first_due(&self, now: Instant) -> Option<Ticket> {
        self.limited.first_due(now)
    }

    /// It has sent something: the next time it waits behind those who wait by then.
    pub(crate) fn has_had_credit(&mut self, id: ConnId) {
        if let Some(awake) = self.slab.get_mut(id).and_then(|conn| conn.awake.as_mut()) {
            awake.ticket = None;
        }
    }

    /// Whether it does not wait already: it is asked again then, and says for what. Its clocks run.
    fn begins_to_wait(&mut self, id: ConnId, waits: Waits, now: Instant) -> bool {
        let Some(conn) = self.slab.get_mut(id) else { return false };
        let (tcp, rings) = conn.parts();
        tcp.hold(now, &rings);
        let begins = !matches!(conn.waits, Waits::Limit | Waits::Device);
        if begins {
            conn.waits = waits;
        }
        begins
    }

    /// Things are others now: whoever waits for one of these asks again.
    pub(crate) fn ask_anew(&mut self, now: Instant, is_so: impl Fn(&Cause) -> bool) {
        self.limited.ask_anew(now, is_so);
    }

    /// A connection waits for the device behind `port`.
    pub(crate) fn wait_for_device(&mut self, id: ConnId, port: LinkId, now: Instant) {
        if self.begins_to_wait(id, Waits::Device, now) {
            match self.blocked.iter_mut().find(|(of, _)| *of == port) {
                Some((_, waiting)) => waiting.push_back(id),
                None => self.blocked.push((port, VecDeque::from([id]))),
            }
        }
    }

    /// Those that waited for a limit that is due, or for a device that is free, are dirty again.
    pub(crate) fn wake(&mut self, now: Instant, is_busy: impl Fn(LinkId) -> bool, asked: impl FnMut(Limits)) {
        let Self { limited, slab, dirty, blocked, .. } = self;
        let mut end_waiting = |id| {
            if let Some(conn) = slab.get_mut(id) {
                conn.waits = Waits::Nothing;
                conn.begin_turn(id, dirty);
            }
        };
        limited.wake(now, |id, _| end_waiting(id), asked);
        for (port, waiting) in blocked.iter_mut() {
            let room = if is_busy(*port) { 0 } else { WOKEN_PER_ROUND.min(waiting.len()) };
            waiting.drain(..room).for_each(&mut end_waiting);
        }
        blocked.retain(|(_, waiting)| !waiting.is_empty());
    }

    /// The connections of a netstack have no turn to send any more.
    pub(super) fn leave_turns(&mut self, netstack: NetstackId) {
        self.dirty.forget(netstack);
    }

    /// What the places take, and the timers with those that wait for a limit.
    pub(crate) fn allocated_bytes(&self) -> (usize, usize) {
        (self.slab.allocated_bytes(), self.wheel.allocated_bytes() + self.limited.allocated_bytes())
    }

    /// Whether somebody waits for a device.
    pub(crate) fn has_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// When the next timer or limit is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        Instant::earliest([self.wheel.next_deadline(), self.next_limit()])
    }

    /// When a limit lets the next connection go on.
    pub(crate) fn next_limit(&self) -> Option<Instant> {
        self.limited.next_at()
    }
}
