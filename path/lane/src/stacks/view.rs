//! Answers questions about sockets, a bounded number of places at a time.
//!
//! Called by `lane.rs` for each [`crate::LaneMessage::Ask`] and [`crate::LaneMessage::Look`].

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use firelane_classify::LocalAddr;
use firelane_ip::Membership;
use firelane_units::{ConnId, Instant, LaneId, LinkId, MacAddr, NetstackId, SocketId};
use firelane_wire::ethernet::group_mac;

use super::Stacks;
use super::conn::Conn;
use super::shard::Shard;
use crate::datagram_info::DatagramInfo;
use crate::links::Links;
use crate::look::Look;
use crate::netstack_counters::NetstackCounters;
use crate::view::{ConnectionRow, Cursor, PLACES_PER_ANSWER, Question, SocketKind, SocketRow, Table};

/// All stations of a link, in whose groups everybody is (RFC 1112 §4, RFC 4291 §2.7.1).
const ALL_STATIONS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1))];

impl Stacks {
    /// Goes on with `question` from where it stopped.
    pub(crate) fn answer(&self, now: Instant, lane: LaneId, question: &mut Question) {
        let mut places = PLACES_PER_ANSWER;
        while let Some(cursor) = question.cursor
            && places > 0
            && question.rows.len() < question.rows.capacity()
        {
            places -= 1;
            question.cursor = match self.row_at(now, lane, cursor) {
                Place::Row(row) => {
                    if question.netstack.is_none_or(|wanted| wanted == row.netstack) {
                        question.rows.push(row);
                    }
                    Some(Cursor { place: cursor.place + 1, ..cursor })
                }
                Place::Empty => Some(Cursor { place: cursor.place + 1, ..cursor }),
                Place::Beyond => self.after(cursor),
            };
        }
    }

    /// What a netstack has counted here.
    pub(crate) fn netstack_counters(&self, id: NetstackId) -> Option<NetstackCounters> {
        self.shards.get(id).map(Shard::counters)
    }

    /// The groups that a netstack listens to, at most 512.
    pub(crate) fn memberships(&self, id: NetstackId) -> Vec<Membership> {
        self.shards.get(id).map(|shard| shard.ip.core.memberships().collect()).unwrap_or_default()
    }

    /// The groups of a link that sockets of a netstack listen to, and that of all stations, as Ethernet has them. What asks for
    /// its own addresses comes in any case.
    pub(crate) fn heard_groups(&self, id: NetstackId, link: LinkId) -> Vec<MacAddr> {
        let joined = self.memberships(id).into_iter().filter(|joined| joined.link == link);
        joined.map(|joined| joined.group).chain(ALL_STATIONS).map(group_mac).collect()
    }

    /// What is known of a datagram socket's way out.
    pub(crate) fn datagram_info<D>(
        &self,
        links: &Links<D>,
        now: Instant,
        id: NetstackId,
        socket: SocketId,
    ) -> Option<DatagramInfo> {
        let shard = self.shards.get(id)?;
        let place = shard.datagrams.get(socket.0)?;
        let last_way = place.last_way();
        let limits =
            last_way.map(|(way, tuple, mark)| shard.flows_of(links, way, &tuple, mark)).unwrap_or_default();
        Some(DatagramInfo {
            flow: limits[0].map(|(flow, _)| flow),
            limited: links.limited_by(limits),
            waits: place.waits_for(now),
        })
    }

    /// Tells the next of a netstack's addresses, routes and neighbours.
    pub(crate) fn look(&self, look: &mut Look) {
        match self.shards.get(look.netstack) {
            Some(shard) => look.take(&shard.ip.core),
            None => look.is_done = true,
        }
    }

    /// The beginning of what follows the table that `cursor` is in.
    fn after(&self, cursor: Cursor) -> Option<Cursor> {
        let is_shared = cursor.table == Table::Connections;
        let netstack = cursor.netstack.saturating_add(1);
        if !is_shared && usize::from(netstack) < self.shards.places() {
            return Some(Cursor { netstack, place: 0, ..cursor });
        }
        cursor.table.next().map(|table| Cursor { table, netstack: 0, place: 0 })
    }

    fn row_at(&self, now: Instant, lane: LaneId, Cursor { table, netstack, place }: Cursor) -> Place {
        if table == Table::Connections {
            return match self.conns.slab.place(place) {
                None => Place::Beyond,
                Some(None) => Place::Empty,
                // Who has yet to end is nobody's any more.
                Some(Some(conn)) => self
                    .home(ConnId(place))
                    .and_then(|_| connection(now, conn))
                    .map_or(Place::Empty, Place::Row),
            };
        }
        let Some(shard) = self.shards.at(usize::from(netstack)) else { return Place::Beyond };
        match table {
            Table::Listeners if shard.config.steering.home() == lane => listener(shard, place),
            Table::TimeWait => time_wait(now, shard, place),
            Table::Datagrams => datagram(shard, place),
            Table::Listeners | Table::Connections => Place::Beyond,
        }
    }
}

/// What is at a place.
#[allow(clippy::large_enum_variant)] // It is taken apart at once.
enum Place {
    Row(SocketRow),
    Empty,
    Beyond,
}

fn connection(now: Instant, conn: &Conn) -> Option<SocketRow> {
    let names = conn.stream.shared().names()?;
    let row = ConnectionRow {
        info: conn.look(|tcp| tcp.info(now)),
        sequence: conn.look(|tcp| tcp.sequence()),
        send_queue: conn.stream.send.available(),
        receive_queue: conn.stream.recv.unread(),
        is_fused: conn.is_fused(),
    };
    let (local, remote) = (names.local, Some(names.remote));
    Some(SocketRow { netstack: conn.netstack, local, remote, what: SocketKind::Connection(row) })
}

fn listener(shard: &Shard, place: u32) -> Place {
    if place as usize >= shard.listening.places() {
        return Place::Beyond;
    }
    let Some((_, listening)) = shard.listening.at(place as usize) else { return Place::Empty };
    let address = match listening.address {
        LocalAddr::AnyV6 { .. } => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        LocalAddr::AnyV4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        LocalAddr::One(address) => address,
    };
    Place::Row(SocketRow {
        netstack: shard.config.id,
        local: SocketAddr::new(address, listening.port.0),
        remote: None,
        what: SocketKind::Listener { waiting: listening.slot.waiting(), backlog: listening.slot.backlog() },
    })
}

fn time_wait(now: Instant, shard: &Shard, place: u32) -> Place {
    if place as usize >= shard.time_wait.places() {
        return Place::Beyond;
    }
    let Some((names, until)) = shard.time_wait.at(place) else { return Place::Empty };
    Place::Row(SocketRow {
        netstack: shard.config.id,
        local: names.local(),
        remote: Some(names.remote()),
        what: SocketKind::TimeWait { left: until.saturating_since(now) },
    })
}

fn datagram(shard: &Shard, place: u32) -> Place {
    if place as usize >= shard.datagrams.places() {
        return Place::Beyond;
    }
    let found = shard.datagrams.at(place as usize);
    let Some((number, local)) = found.and_then(|(number, it)| Some((number, it.local()?))) else {
        return Place::Empty;
    };
    let binding = shard.udp.binding(SocketId(number));
    Place::Row(SocketRow {
        netstack: shard.config.id,
        local,
        remote: binding.and_then(|it| it.remote()),
        what: SocketKind::Datagram,
    })
}
