//! The netstacks of a lane: one shard of each, and the connections of all of them.
//!
//! Called by `lane.rs` with messages and by `turn.rs` with frames and time. Each mechanism has its file:
//! `inbound` (a frame's way to its socket), `events` (what TCP tells), `outbound` (a segment's way to IP), `open`
//! (how connections begin), `commands` (what programs say), `ending` and `removed` (how
//! many of them end), `conn` and `shard` (the state).

mod across;
mod admission;
mod ahead;
mod awaited;
mod bands;
mod brought;
mod commands;
mod conn;
mod credit;
mod datagrams;
mod datagrams_out;
mod direct;
mod early;
mod echoes;
mod ended;
mod ending;
mod events;
mod fast_open;
mod filtered;
mod fusion;
mod inbound;
mod ip_side;
mod learned;
mod limited;
mod local;
mod local_ports;
mod next_hop;
mod onward;
mod open;
mod outbound;
mod pace;
mod passage;
mod pieces;
mod removed;
mod shard;
mod shards;
mod steered;
mod sweep;
mod translated;
mod tune;
mod tunneled;
mod turns;
mod unsaid;
mod view;

pub use bands::Band;
pub use fast_open::SynText;
use limited::Cause;
pub(crate) use limited::Tickets;
pub use steered::{Heard, Strangers};
pub use unsaid::Unsaid;

use core::net::IpAddr;
use std::collections::VecDeque;

use firelane_frame::{Chain, Driver, Frame, read_ahead};
use firelane_ip::{
    AddressError, AutoconfConfig, IfConfig, IfRouting, IpConfig, Origin, Route, RouteError, RouteTableError,
};
use firelane_socket::{ConnRef, Flags, Names, SocketError};
use firelane_tcp::{FastOpenCounters, SynCounters};
use firelane_units::{ConnId, Direction, Instant, IpPrefix, LaneId, LinkId, Mtu, NetstackId, SocketId};

use self::conn::Conns;
use self::inbound::Inside;
pub(crate) use self::onward::Foreseen;
pub(crate) use self::open::said_by;
use self::removed::Removed;
use self::shard::Shard;
use self::shards::Shards;
pub(crate) use self::tunneled::PEER;
use self::tunneled::leave_tunnels;
use crate::arrivals::Arrivals;
use crate::common::Common;
use crate::config::{LaneConfig, Secrets};
use crate::control::Refusal;
use crate::counters::TableMemory;
use crate::links::Links;
use crate::message::{
    Learned, NetstackConfig, PortConfig, PortKind, PortUser, RouteChange, RouteConfig, SocketCommand,
};
use crate::steps::StepLists;
use crate::stream_info::{StreamInfo, Unfused};

/// Every netstack's shard in this lane.
pub(crate) struct Stacks {
    shards: Shards,
    conns: Conns,
    steps: StepLists,
    /// Storage of what a netstack sends to itself.
    loops: Vec<Frame>,
    /// How many connections to make room for in a new netstack.
    room: usize,
    /// Netstacks that were removed and have yet to end, the one that does so next first.
    removed: VecDeque<Removed>,
    /// Where netstacks begin to search for a local port.
    ports_from: u32,
    /// Kicks that wait for others, so that what they need is waited for once.
    kicks: Vec<(NetstackId, ConnRef)>,
}

const NO_NETSTACK: Refusal = "no such netstack";

/// How many frames ahead a packet's headers are asked for: what was found of a chain has pushed them out of the innermost cache.
const SOON: usize = 2;
/// Connections whose timers one turn serves: some hundred microseconds of work.
const TIMERS_PER_TURN: usize = 512;

impl Stacks {
    pub(crate) fn new(config: &LaneConfig) -> Self {
        Self {
            shards: Shards::new(),
            conns: Conns::new(config.start),
            steps: StepLists::default(),
            loops: Vec::new(),
            room: config.connections,
            removed: VecDeque::new(),
            ports_from: 0,
            kicks: Vec::with_capacity(ahead::MOST),
        }
    }

    /// Lets the netstacks have the frames that are for them.
    pub(crate) fn arrive<D: Driver>(&mut self, common: &mut Common<D>, links: &mut Links<D>) {
        self.go_on_looping(common, links);
        self.enter_tunnels(common, links);
        match common.watch.is_on() {
            false => self.arrive_all::<_, false>(common, &mut links.arrivals),
            true => self.arrive_all::<_, true>(common, &mut links.arrivals),
        }
        leave_tunnels(common, links);
    }

    /// All frames, of which those before look ahead for those behind them.
    fn arrive_all<D, const WATCHED: bool>(&mut self, common: &mut Common<D>, arrivals: &mut Arrivals) {
        let (mut frames, known) = arrivals.take();
        for chain in known.chunks_mut(onward::AHEAD) {
            self.look_for_flows(common.now, chain);
            for part in chain.chunks_mut(ahead::MOST) {
                self.look_for_connections(part);
                for arrival in part {
                    let Some(frame) = frames.next() else { return };
                    let soon = frames.as_slice().get(SOON).and_then(|frame| frame.as_slice().first());
                    soon.iter().for_each(|byte| read_ahead(*byte));
                    self.arrive_one::<_, WATCHED>(common, frame, arrival);
                }
            }
        }
    }

    /// Lets sockets send, and collects what the netstacks have made. Whether datagrams wait for the next round alone.
    pub(crate) fn transmit<D: Driver>(
        &mut self,
        common: &mut Common<D>,
        links: &mut Links<D>,
        out: &mut Chain,
    ) -> bool {
        let share = datagrams_out::TURN / self.shards.senders().max(1);
        let (mut nth, mut more) = (0, false);
        let has_gone_first = self.datagrams_go_first(common.now);
        while has_gone_first && let Some(shard) = self.shards.nth_sender(nth) {
            nth += 1;
            more |= Inside { common, shard, conns: &mut self.conns }.transmit_datagrams(links, share);
        }
        self.transmit_streams(common, links);
        nth = 0;
        while let Some(shard) = self.shards.nth_sender(nth) {
            nth += 1;
            let mut inside = Inside { common, shard, conns: &mut self.conns };
            inside.show_joined();
            if !has_gone_first {
                more |= inside.transmit_datagrams(links, share);
            }
            inside.pass_events();
            inside.all_go_out();
            shard.ip.collect(common, out, &mut self.loops);
            let is_captured = !common.taps.is_empty();
            for mut frame in self.loops.drain(..) {
                if is_captured {
                    let mut inside =
                        Inside { common: &mut *common, shard: &mut *shard, conns: &mut self.conns };
                    inside.show_loop(links, &mut frame);
                }
                shard.send_to_itself(common, links, Some(Direction::Out), frame);
            }
        }
        self.shards.end_round();
        more
    }

    /// Whether a datagram socket has waited longer for a limit that is due than any connection.
    fn datagrams_go_first(&mut self, now: Instant) -> bool {
        let Some(stream) = self.conns.first_due(now) else { return false };
        let mut nth = 0;
        while let Some(shard) = self.shards.nth_sender(nth) {
            nth += 1;
            if shard.limited_datagrams.first_due(now).is_some_and(|datagram| datagram < stream) {
                return true;
            }
        }
        false
    }

    fn inside<'a, D>(&'a mut self, common: &'a mut Common<D>, netstack: NetstackId) -> Option<Inside<'a, D>> {
        let shard = self.shards.get_mut(netstack)?;
        Some(Inside { common, shard, conns: &mut self.conns })
    }

    /// An application queued datagrams.
    pub(crate) fn kick_datagrams<D>(
        &mut self,
        common: &mut Common<D>,
        netstack: NetstackId,
        socket: SocketId,
    ) {
        if let Some(mut inside) = self.inside(common, netstack) {
            inside.kick_datagrams(socket);
        }
    }

    /// A socket's command.
    pub(crate) fn on_command<D: Driver>(
        &mut self,
        common: &mut Common<D>,
        links: &Links<D>,
        netstack: NetstackId,
        command: SocketCommand,
    ) {
        if let Some(mut inside) = self.inside(common, netstack) {
            match &command {
                SocketCommand::SetDatagramOption(socket, _) => inside.transmit_before(*socket, links),
                SocketCommand::ConnectDatagrams(connect) => inside.transmit_before(connect.socket, links),
                _ => {}
            }
            inside.on_command(command);
        } else {
            commands::fail(common, command);
        }
    }

    /// Limits are others now: whoever waits for one asks again.
    pub(crate) fn ask_limits_anew(&mut self, now: Instant) {
        // Who waits for long looks by himself.
        let is_limit = |cause: &Cause| matches!(cause, Cause::Limits(_) | Cause::Own);
        self.conns.ask_anew(now, is_limit);
        let waits = |shard: &Shard| shard.limited_datagrams.next_at().is_some();
        self.shards.each_where(waits, |shard| shard.limited_datagrams.ask_anew(now, is_limit));
    }

    /// Another lane of a netstack has learned something.
    pub(crate) fn on_learned<D>(&mut self, common: &mut Common<D>, netstack: NetstackId, learned: Learned) {
        if let Some(mut inside) = self.inside(common, netstack) {
            inside.on_learned(learned);
        }
    }

    /// Timers that are due, or as many of them as one turn serves: the rest stays due, so the next turn comes at once,
    /// and frames and messages have theirs in between (R12).
    pub(crate) fn on_time<D>(&mut self, common: &mut Common<D>) {
        for _ in 0..TIMERS_PER_TURN / ahead::MOST {
            let due = self.conns.all_due(common.now);
            due.iter().for_each(|&id| self.on_conn_time(common, id));
            if !due.is_full() {
                break;
            }
        }
        let mut from = 0;
        while let Some(index) = self.shards.next_due(common.now, from) {
            let id = self.shards.at(index).map(|shard| shard.config.id);
            if let Some(mut inside) = id.and_then(|id| self.inside(common, id)) {
                inside.on_shard_time();
            }
            from = index + 1;
        }
    }

    /// A connection's timer is due.
    fn on_conn_time<D>(&mut self, common: &mut Common<D>, id: ConnId) {
        let Some(netstack) = self.home(id) else { return };
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        if conn.fusion.is_on() {
            return self.on_fused_time(common, id);
        }
        let (tcp, mut rings) = conn.parts();
        let way = tcp.other_ways();
        let told = tcp.on_timer(common.now, &mut rings);
        let (doubts, wants_other) = (tcp.doubts_way(), tcp.other_ways() != way);
        let awaits_storage = tcp.take_awaited_storage();
        if wants_other {
            conn.change_label();
        }
        if doubts {
            // RFC 9293 SHLD-9: the program may learn of it while the wait goes on.
            conn.stream.shared().words().set_flags(Flags::DOUBTFUL);
        }
        let doubted = conn.stream.shared().names().filter(|_| doubts);
        if let Some(mut inside) = self.inside(common, netstack) {
            if awaits_storage {
                inside.provide(id);
            }
            if let Some(Names { local, remote }) = doubted {
                inside.doubt_fast_open(id);
                inside.shard.ip.core.doubt(inside.common.now, local.ip(), remote.ip());
                inside.shard.ip.touch();
            }
            inside.conclude(id, told);
        }
    }

    /// How many rounds of [`Stacks::transmit`] the connections that are dirty now need.
    pub(crate) fn rounds(&self) -> usize {
        self.conns.dirty().div_ceil(outbound::CONNECTIONS_PER_ROUND)
    }

    /// Whether a connection has more to send and could not: it is out of buffers.
    pub(crate) fn has_dirty(&self) -> bool {
        self.conns.dirty() > 0
    }

    /// Whether so much was sent in this turn that devices and messages are to have theirs.
    pub(crate) fn is_turn_over(&self) -> bool {
        self.conns.is_turn_over()
    }

    /// A turn begins: the ACKs that waited for it leave, unless an answer has carried them.
    pub(crate) fn begin_turn(&mut self, now: Instant) {
        self.conns.begin_turn();
        self.conns.end_patience(now);
    }

    /// Whether something waits for the next turn: an ACK, or a search for a local port.
    pub(crate) fn comes_again(&self) -> bool {
        self.conns.has_patient() || self.has_searches()
    }

    /// Whether a socket waits for a device.
    pub(crate) fn has_blocked(&self) -> bool {
        self.conns.has_blocked()
    }

    /// When something is due.
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        Instant::earliest([self.conns.next_deadline(), Some(self.shards.first_due())])
    }

    /// When a limit lets somebody go on, or a shard has something to do, which is seldom. Timers of connections have ticks of a
    /// millisecond and are late by one anyway.
    pub(crate) fn next_limit(&mut self) -> Option<Instant> {
        Instant::earliest([self.conns.next_limit(), Some(self.shards.first_due())])
    }

    /// Whether a connection's text waited for an acknowledgement since this was last asked.
    pub(crate) fn are_held_up(&mut self) -> bool {
        core::mem::take(&mut self.conns.are_held_up)
    }

    /// Frames inside the netstacks.
    pub(crate) fn held(&self) -> u64 {
        self.shards.iter().chain(self.removed_shards()).map(Shard::held).sum()
    }

    /// What is known of a connection; of one that has ended, what was known then, until its program closes it.
    pub(crate) fn stream_info<D>(
        &self,
        common: &Common<D>,
        links: &Links<D>,
        now: Instant,
        conn: ConnRef,
    ) -> Option<StreamInfo> {
        let Some(id) = self.conns.slab.resolve(conn) else {
            return self.shards.iter().find_map(|shard| shard.ended.info(now, conn));
        };
        let (conn, since) = self.conns.slab.get_dated(id)?;
        let shard = self.shards.get(conn.netstack).filter(|it| !it.is_successor(since))?;
        let tuple = conn.tuple()?;
        let ends = self.ends_as_seen(links, conn);
        let unfused = ends.map_or(Some(Unfused::Away), |ends| self.unfused(common, links, ends, &tuple));
        let unfused = unfused.or_else(|| self.conns.wants_segments(id));
        let limits = match (conn.is_fused(), conn.route()) {
            (true, _) => self.limits_of_fused(links, conn),
            (false, route) => route.map(|route| shard.flows_of(links, route, &tuple, conn.dsfield())),
        };
        let limited = limits.and_then(|limits| links.limited_by(limits));
        Some(StreamInfo { unfused, limited, ..conn.info(now)? })
    }

    pub(crate) fn connections(&self) -> usize {
        self.conns.slab.len()
    }

    pub(crate) fn time_wait(&self) -> usize {
        self.shards.iter().map(|shard| shard.time_wait.len()).sum()
    }

    pub(crate) fn memory(&self) -> TableMemory {
        let (connections, timers) = self.conns.allocated_bytes();
        let of_shards =
            |bytes: fn(&Shard) -> usize| self.shards.iter().chain(self.removed_shards()).map(bytes).sum();
        TableMemory {
            connections,
            index: of_shards(|shard| {
                shard.conns.allocated_bytes()
                    + shard.forwarded.allocated_bytes()
                    + shard.gate.allocated_bytes()
            }),
            timers,
            time_wait: of_shards(|shard| shard.time_wait.allocated_bytes()),
            links: self.shards.allocated_bytes(),
        }
    }

    pub(crate) fn half_open(&self) -> (usize, SynCounters) {
        let mut sum = (0, SynCounters::default());
        for shard in self.shards.iter() {
            sum.0 += shard.half_open.len();
            sum.1.merge(&shard.half_open.counters());
        }
        sum
    }

    pub(crate) fn fast_open(&self) -> FastOpenCounters {
        let mut sum = FastOpenCounters::default();
        for shard in self.shards.iter() {
            sum.merge(&shard.fast_opens.counters());
            sum.merge(&shard.fast_open_server.counters());
        }
        sum
    }

    pub(crate) fn add<D>(&mut self, common: &mut Common<D>, config: NetstackConfig) -> Result<(), Refusal> {
        let mut shard = Shard::new(common, config, self.room);
        shard.since = self.conns.slab.epoch();
        // Peers of one that had its number may not have heard of its end: it goes on behind the ports of that one.
        shard.port_counter = self.ports_from;
        self.shards.insert(shard)
    }

    /// A port of a netstack begins.
    pub(crate) fn attach<D>(
        &mut self,
        common: &mut Common<D>,
        links: &Links<D>,
        config: PortConfig,
    ) -> Result<(), Refusal> {
        let (PortUser::Netstack(id), PortKind::Vnic { mac, .. }) = (config.user, config.kind) else {
            return Ok(());
        };
        let shard = self.shards.get_mut(id).ok_or(NO_NETSTACK)?;
        let mtu = links.switches.get(config.over.0).ok_or("no such link")?.mtu;
        let is_home = shard.config.steering.home() == common.id;
        shard.ip.core.add_interface(IfConfig { link: config.id, mac, mtu, is_home });
        if links.is_over_tunnel(config.over) {
            shard.ip.core.set_peer(config.id, PEER);
        }
        shard.ip.core.bring_up(common.now, config.id);
        shard.ip.touch();
        shard.links.push(config.id);
        common.regrouped.push((id, config.id));
        Ok(())
    }

    /// A port ends, or gets another user.
    pub(crate) fn detach<D>(&mut self, common: &mut Common<D>, link: LinkId) {
        let uses = |shard: &Shard| shard.links.contains(&link);
        self.shards.each_where(uses, |shard| {
            shard.links.retain(|&mine| mine != link);
            shard.ip.core.remove_interface(link, &mut common.pools);
            shard.ip.touch();
        });
    }

    pub(crate) fn add_address<D>(
        &mut self,
        common: &mut Common<D>,
        id: NetstackId,
        link: LinkId,
        address: IpPrefix,
    ) -> Result<(), Refusal> {
        let ip = &mut self.shards.get_mut(id).ok_or(NO_NETSTACK)?.ip;
        ip.touch();
        ip.core.add_address(common.now, link, address).map_err(address_refusal)
    }

    pub(crate) fn set_address(
        &mut self,
        id: NetstackId,
        link: LinkId,
        address: IpPrefix,
        is_deprecated: bool,
    ) -> Result<(), Refusal> {
        let ip = &mut self.shards.get_mut(id).ok_or(NO_NETSTACK)?.ip;
        ip.core.change_address(link, address, is_deprecated).map_err(address_refusal)
    }

    /// Whether a link has an address.
    pub(crate) fn check_address(&self, id: NetstackId, link: LinkId, address: IpAddr) -> Result<(), Refusal> {
        let ip = &self.shards.get(id).ok_or(NO_NETSTACK)?.ip;
        let is_there = ip.core.addresses().any(|it| it.link == link && it.prefix.addr() == address);
        if is_there { Ok(()) } else { Err(address_refusal(AddressError::Missing)) }
    }

    /// An address ceases to be one of the netstack's. Connections that have it find no way, and send again until it is back.
    pub(crate) fn suspend_address(
        &mut self,
        id: NetstackId,
        link: LinkId,
        address: IpAddr,
    ) -> Result<(), Refusal> {
        let ip = &mut self.shards.get_mut(id).ok_or(NO_NETSTACK)?.ip;
        ip.touch();
        ip.core.remove_address(link, address).map_err(address_refusal)
    }

    /// Says how a link is configured automatically: its home lane does it.
    pub(crate) fn set_autoconf<D>(
        &mut self,
        common: &mut Common<D>,
        id: NetstackId,
        link: LinkId,
        settings: Option<AutoconfConfig>,
    ) -> Result<(), Refusal> {
        let ip = &mut self.shards.get_mut(id).ok_or(NO_NETSTACK)?.ip;
        ip.touch();
        ip.core.set_autoconf(common.now, link, settings);
        Ok(())
    }

    pub(crate) fn add_route(&mut self, id: NetstackId, route: RouteConfig) -> Result<(), Refusal> {
        let ip = &mut self.shards.get_mut(id).ok_or(NO_NETSTACK)?.ip;
        ip.core.insert_route(ip_route(route)).map_err(route_refusal)
    }

    pub(crate) fn remove_route(&mut self, id: NetstackId, route: RouteConfig) -> Result<(), Refusal> {
        let ip = &mut self.shards.get_mut(id).ok_or(NO_NETSTACK)?.ip;
        ip.core.delete_route(ip_route(route)).map_err(route_refusal)
    }

    /// Follows a routing daemon: the rest goes on if there is no room for one of its routes.
    pub(crate) fn change_routes(&mut self, id: NetstackId, changes: &[RouteChange]) -> Result<(), Refusal> {
        let ip = &mut self.shards.get_mut(id).ok_or(NO_NETSTACK)?.ip;
        let learned = |route| Route { origin: Origin::Daemon, ..ip_route(route) };
        let mut outcome = Ok(());
        for change in changes {
            let done = match *change {
                RouteChange::Add(route) => ip.core.insert_route(learned(route)),
                RouteChange::Remove(route) => ip.core.delete_route(learned(route)),
            };
            match done {
                // It may have gone with its link.
                Ok(()) | Err(RouteTableError::Exists | RouteTableError::Missing) => {}
                Err(error) => outcome = Err(route_refusal(error)),
            }
        }
        outcome
    }

    /// Says how large packets by these interfaces may be.
    pub(crate) fn set_mtu(&mut self, mtu: Mtu, interfaces: &[(NetstackId, LinkId)]) -> Result<(), Refusal> {
        interfaces.iter().try_for_each(|&(id, link)| {
            let ip = &mut self.shards.get_mut(id).ok_or(NO_NETSTACK)?.ip;
            let is_there = ip.core.set_mtu(link, mtu);
            is_there.then_some(()).ok_or("the netstack does not have the link")
        })
    }

    /// Says what an operator wants of an interface.
    pub(crate) fn rejoin<D>(
        &mut self,
        common: &mut Common<D>,
        id: NetstackId,
        link: LinkId,
    ) -> Result<(), Refusal> {
        let ip = &mut self.shards.get_mut(id).ok_or(NO_NETSTACK)?.ip;
        ip.touch();
        ip.core.rejoin(common.now, link, &mut common.pools);
        Ok(())
    }

    pub(crate) fn set_routing(
        &mut self,
        id: NetstackId,
        link: LinkId,
        routing: IfRouting,
    ) -> Result<(), Refusal> {
        let ip = &mut self.shards.get_mut(id).ok_or(NO_NETSTACK)?.ip;
        let is_there = ip.core.set_routing(link, routing);
        is_there.then_some(()).ok_or("the netstack does not have the link")
    }
}

impl<D> Inside<'_, D> {
    /// What is due in the shard itself.
    fn on_shard_time(&mut self) {
        let now = self.common.now;
        self.shard.ip.on_time(self.common);
        if self.shard.gate.on_time(now) {
            self.shard.begin_edition();
        }
        self.let_follow();
        self.let_follow_out();
        self.shard.time_wait.on_timer(now);
        let mut again = Vec::new();
        self.shard.half_open.on_timer(now, |names, answer| again.push((*names, answer)));
        for (names, answer) in again {
            self.send_half_open(&names, &answer);
        }
    }
}

fn ip_config(config: &NetstackConfig, secrets: &Secrets, lane: LaneId) -> IpConfig {
    let drawn = IpConfig::new(secrets.ip());
    IpConfig {
        replica: lane.0,
        forwarding: config.forwarding,
        hops: config.hops,
        dad: config.dad,
        link_local: config.link_local,
        group_reports: config.group_reports,
        stable_secret: config.stable_secret.unwrap_or(drawn.stable_secret),
        ..drawn
    }
}

fn ip_route(route: RouteConfig) -> Route {
    let RouteConfig { destination, gateway, link, source, kind, congestion, lease } = route;
    let origin = lease.map_or(Origin::Operator, Origin::Lease);
    let hint = congestion.map_or(0, open::hint_of);
    Route { gateway, link, source, hint, origin, ..Route::ending(destination, kind) }
}

const fn route_error(error: RouteError) -> SocketError {
    match error {
        RouteError::NoRoute | RouteError::Family => SocketError::NetworkUnreachable,
        RouteError::NoSource | RouteError::SourceNotOurs => SocketError::AddressNotAvailable,
    }
}

const fn address_refusal(error: AddressError) -> Refusal {
    match error {
        AddressError::Link => "the netstack does not have the link",
        AddressError::Invalid => "it is no address that one station can have",
        AddressError::Exists => "the netstack has the address",
        AddressError::Missing => "the netstack does not have the address",
        AddressError::Full => "the netstack has as many addresses as it may",
    }
}

const fn route_refusal(error: RouteTableError) -> Refusal {
    match error {
        RouteTableError::Family => "destination and gateway are of different families",
        RouteTableError::Gateway => {
            "a route needs a link or a station as its gateway, and one that ends packets neither"
        }
        RouteTableError::Exists => "the route exists",
        RouteTableError::Missing => "there is no such route",
        RouteTableError::Link => "the netstack does not have the link",
        RouteTableError::Full => "the netstack has as many routes as it may",
    }
}
