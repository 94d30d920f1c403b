//! One netstack's shard in one lane: its IP side, its tables, its listeners, its budgets.
//!
//! Everything that all lanes must agree on (addresses, routes, neighbours, listeners, tunables) is a replica,
//! changed by message; connections and datagram sockets exist in one shard only.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use firelane_classify::{ConnTable, Listeners, LocalAddr, Steering, SteeringKey};
use firelane_ip::LOOPBACK;
use firelane_socket::{ListenerSlot, StreamConfig};
use firelane_table::Numbered;
use firelane_tcp::{
    ChallengeBudget, FastOpenCache, FastOpenServer, HALF_OPEN_TOTAL, ResetBudget, Secret, SegmentIn,
    SynAnswer, SynTable, TimeWaitTable, Tuple,
};
use firelane_udp::UdpTable;
use firelane_units::{DropCounters, Instant, LaneId, LinkId, Port, SocketId};
use firelane_wire::IpProtocol;
use siphasher::sip::SipHasher24;

use super::admission::SocketFilters;
use super::awaited::Awaited;
use super::bands::Bands;
use super::brought::Brought;
use super::datagrams::DatagramSocket;
use super::ended::Ended;
use super::ending::Ending;
use super::filtered::Gate;
use super::ip_config;
use super::ip_side::IpSide;
use super::limited::Limited;
use super::local_ports::Searches;
use super::onward::ForwardedFlows;
use super::steered::ASKED_PER_SECOND;
use super::tunneled::Tunneled;
use crate::common::Common;
use crate::message::{NetstackConfig, StreamOptions};
use crate::netstack_counters::{NetstackCounters, TcpCounters, UdpCounters};
use crate::slab::Epoch;

/// How many records one netstack's shard keeps in TIME-WAIT: 10,000 connections per second for a minute.
const TIME_WAIT_MAX: usize = 600_000;

/// How many challenge ACKs a shard sends per second (RFC 5961 §7; Linux' default).
const CHALLENGES_PER_SECOND: u32 = 1000;

/// A netstack's shard.
pub(crate) struct Shard {
    pub(crate) config: NetstackConfig,
    /// The other lanes that have a shard of this netstack with connections.
    pub(crate) others: Vec<LaneId>,
    pub(crate) ip: IpSide,
    pub(crate) gate: Gate,
    pub(super) awaited: Awaited,
    pub(crate) tunnels: Tunneled,
    pub(crate) conns: ConnTable,
    pub(crate) forwarded: ForwardedFlows,
    pub(crate) listeners: Listeners,
    /// What spreads connections over listeners that share an address.
    steering_key: SteeringKey,
    pub(crate) listening: Numbered<Listening>,
    pub(crate) socket_filters: SocketFilters,
    pub(crate) half_open: SynTable,
    pub(crate) time_wait: TimeWaitTable,
    pub(crate) ended: Ended,
    /// What was learned of servers, and what our listeners grant and take.
    pub(crate) fast_opens: FastOpenCache,
    pub(crate) fast_open_server: FastOpenServer,
    pub(crate) secret: Secret,
    /// Draws the ports of datagram sockets.
    pub(crate) ports: SipHasher24,
    pub(crate) challenges: ChallengeBudget,
    pub(crate) resets: ResetBudget,
    /// For how many SYNs other lanes are asked while the steering settles.
    pub(super) asks: ResetBudget,
    pub(crate) udp: UdpTable,
    /// Who asks for echoes, by identifier.
    pub(crate) echoes: UdpTable,
    pub(crate) tcp_counters: TcpCounters,
    pub(crate) udp_counters: UdpCounters,
    /// Frames that transports gave up, by reason; IP's are with IP.
    pub(crate) drops: DropCounters,
    pub(crate) datagrams: Numbered<DatagramSocket>,
    /// Storage for the sockets that hear one datagram.
    pub(crate) listeners_of_many: Vec<SocketId>,
    /// Datagram sockets with something to send.
    pub(crate) dirty_datagrams: Bands<SocketId>,
    /// Datagram sockets with a record that is not shown yet.
    pub(crate) joining_datagrams: Vec<SocketId>,
    /// Those that wait for a limit, or for their next hop's address.
    pub(crate) limited_datagrams: Limited<SocketId>,
    /// The generation of ways since which one of them waits for an address.
    pub(super) awaits_since: Option<u32>,
    /// The VNICs that this netstack uses.
    pub(crate) links: Vec<LinkId>,
    /// Where the search for a local port begins (RFC 6056 §3.3.3).
    pub(crate) port_counter: u32,
    /// Its home lane has a translator of addresses.
    pub(crate) is_translated: bool,
    /// Searches for local ports that are not over.
    pub(super) searches: Searches,
    /// Connections that began before were another netstack's that had its number.
    pub(super) since: Epoch,
    /// Addresses that have gone, and whose connections have yet to end.
    pub(super) ending: BTreeMap<IpAddr, Ending>,
}

/// A listener as a shard knows it.
#[derive(Clone, Debug)]
pub(crate) struct Listening {
    pub(crate) address: LocalAddr,
    pub(crate) port: Port,
    pub(crate) slot: ListenerSlot,
    /// Others may listen there, too.
    pub(crate) shares: bool,
    pub(crate) rings: StreamConfig,
    pub(crate) options: StreamOptions,
    pub(crate) brought: Brought,
}

impl Listening {
    /// Its application has closed it, and it is nobody at once, not only when the lane is told: whoever connects then is refused.
    /// Where others share its address he is not: he asks again, and is theirs then.
    fn is_gone(&self) -> bool {
        !self.shares && self.slot.is_closed()
    }

    /// Whether what has come by `link` is for it.
    pub(crate) fn hears(&self, link: LinkId) -> bool {
        !self.is_gone() && self.options.link.is_none_or(|bound| bound == link)
    }
}

impl Shard {
    pub(crate) fn new<D>(common: &Common<D>, config: NetstackConfig, connections: usize) -> Self {
        let secrets = &common.secrets.of(config.id);
        Self {
            ip: IpSide::new(ip_config(&config, secrets, common.id)),
            gate: Gate::new(secrets),
            awaited: Awaited::default(),
            tunnels: Tunneled::default(),
            conns: ConnTable::new(secrets.table(), connections),
            forwarded: ForwardedFlows::default(),
            listeners: Listeners::new(),
            steering_key: secrets.steering(),
            listening: Numbered::default(),
            socket_filters: SocketFilters::new(),
            half_open: SynTable::new(secrets.time_wait(), secrets.cookie(), HALF_OPEN_TOTAL),
            time_wait: TimeWaitTable::new(secrets.time_wait(), config.time_wait, TIME_WAIT_MAX),
            ended: Ended::default(),
            fast_opens: FastOpenCache::new(secrets.time_wait()),
            fast_open_server: FastOpenServer::new(secrets.fast_open()),
            secret: Secret::new(secrets.sequence()),
            ports: SipHasher24::new_with_key(&secrets.ports()),
            challenges: ChallengeBudget::new(secrets.challenge(), CHALLENGES_PER_SECOND),
            resets: ResetBudget::new(config.resets_per_second),
            asks: ResetBudget::new(ASKED_PER_SECOND),
            udp: UdpTable::keyed(secrets.spread()),
            echoes: UdpTable::keyed(secrets.spread()),
            tcp_counters: TcpCounters::default(),
            udp_counters: UdpCounters::default(),
            drops: DropCounters::default(),
            datagrams: Numbered::default(),
            listeners_of_many: Vec::new(),
            dirty_datagrams: Bands::default(),
            joining_datagrams: Vec::new(),
            limited_datagrams: Limited::default(),
            awaits_since: None,
            links: Vec::new(),
            port_counter: 0,
            is_translated: false,
            searches: Searches::default(),
            since: Epoch::default(),
            ending: BTreeMap::new(),
            others: others(&config, common.id),
            config,
        }
    }

    /// Which lanes get what arrives by its links: those of its sockets, unless its addresses are translated.
    pub(super) fn doors(&self) -> Steering {
        let steering = &self.config.steering;
        if self.is_translated { Steering::single(steering.home()) } else { steering.clone() }
    }

    /// The listener for what comes from `remote` to `local` by `link`.
    pub(crate) fn listener(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        link: LinkId,
    ) -> Option<(SocketId, &Listening)> {
        let hash = || {
            let [here, there] = [local, remote].map(|end| (end.ip(), Port(end.port())));
            let tuple = firelane_classify::Tuple::new(IpProtocol::TCP, here, there);
            tuple.map_or(0, |tuple| tuple.symmetric_hash(&self.steering_key))
        };
        let hears = |socket: SocketId| self.listening.get(socket.0).is_some_and(|it| it.hears(link));
        let socket = self.listeners.lookup_among(local.ip(), Port(local.port()), hears, hash)?;
        Some((socket, self.listening.get(socket.0)?))
    }

    /// The link by which a packet has come for who hears one alone: what the netstack sends to itself comes, as in Linux, by the link
    /// that has the address.
    pub(crate) fn link_of_arrival(&self, link: LinkId, local: IpAddr) -> LinkId {
        if link == LOOPBACK { self.ip.core.link_of(local).unwrap_or(link) } else { link }
    }

    /// What its table of half-open connections says to a segment.
    pub(crate) fn on_half_open(&mut self, now: Instant, names: &Tuple, seg: &SegmentIn<'_>) -> SynAnswer {
        let listening = &self.listening;
        let has_room = |socket: SocketId| listening.get(socket.0).is_some_and(|it| it.slot.has_room());
        self.half_open.on_segment(now, names, seg, has_room)
    }

    /// Everything that it has counted.
    pub(crate) fn counters(&self) -> NetstackCounters {
        let mut fast_open = self.fast_opens.counters();
        fast_open.merge(&self.fast_open_server.counters());
        let mut drops = self.drops.clone();
        drops.merge(self.ip.drops());
        NetstackCounters {
            ip: self.ip.core.counts(),
            refused: self.ip.core.refused(),
            udp: self.udp_counters,
            tcp: self.tcp_counters,
            syn: self.half_open.counters(),
            fast_open,
            connections: (self.conns.len() + self.half_open.len() + self.time_wait.len()) as u64,
            drops,
        }
    }

    /// Frames inside.
    pub(crate) fn held(&self) -> u64 {
        self.ip.held() + self.gate.held()
    }

    /// When this shard itself has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        Instant::earliest([
            self.ip.core.poll_at(),
            self.gate.poll_at(),
            self.time_wait.poll_at(),
            self.half_open.poll_at(),
            self.limited_datagrams.next_at(),
        ])
    }

    /// Whether something is to be sent that could not be.
    pub(crate) fn has_more(&self) -> bool {
        self.dirty_datagrams.len() > 0 || self.ip.is_open()
    }
}

/// The other lanes in which sockets of the netstack are or may begin.
pub(super) fn others(config: &NetstackConfig, me: LaneId) -> Vec<LaneId> {
    let mut lanes = config.steering.lanes();
    lanes.retain(|&lane| lane != me);
    lanes
}
