//! The local port of a connection that a program begins without one: how it is drawn, and to whom none is left.
//!
//! One is drawn whose segments arrive in this lane, from a secret offset per peer, so that nobody can guess the next one (RFC 6056
//! §3.3.3, algorithm 3). Where most are taken all may have to be looked at, tens of thousands. So a message looks at a few hundred, and
//! the search goes on in the lane's next turns, where netstacks have theirs one after the other, as have the peers of one netstack;
//! who connects to the same peer meanwhile waits for the same search. That a peer has no port left is remembered for a moment, or until
//! one comes free, so who tries without end costs no search each time. A connection for which this lane has no port is handed to the
//! netstack's next lane, which has others; it fails when all were asked.
//!
//! Called by `open.rs`, `commands.rs` and `turn.rs`; each shard keeps its [`Searches`].

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::collections::VecDeque;

use firelane_classify::Tuple;
use firelane_ip::{Egress, LOOPBACK};
use firelane_socket::{Flags, SocketError, StreamRef, StreamShared};
use firelane_tcp::Reopening;
use firelane_units::{ConnId, Instant, LaneId, SeqNum};

use super::Stacks;
use super::inbound::Inside;
use super::open::fail;
use crate::common::Common;
use crate::message::{Connect, LaneMessage, SocketCommand};

/// How many ports one message looks at, or one turn in all: some tens of microseconds of the lane.
pub(crate) const PORTS_AT_ONCE: usize = 256;

/// For how long it is remembered that a peer has no port left: what TIME-WAIT gives back comes a quarter of its tick late.
const EXHAUSTED_FOR: Duration = Duration::from_millis(250);

/// Of how many peers that is remembered: to exhaust one takes tens of thousands of connections.
const EXHAUSTED_MAX: usize = 64;

/// The two ends but for the local port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pair {
    local: IpAddr,
    remote: SocketAddr,
}

/// A connection that is to begin, and the lane that was asked first if this is not the one.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(super) connect: Box<Connect>,
    pub(super) first: Option<LaneId>,
}

impl Beginning {
    /// Its program has closed the socket.
    fn is_given_up(&self) -> bool {
        self.connect.stream.shared().words().flags().contains(Flags::LEFT)
    }
}

/// A search for ports to one peer.
#[derive(Debug)]
struct Search {
    pair: Pair,
    /// Where it began, and how many ports it has looked at.
    begins: u32,
    looked: u32,
    /// Ports that have come free meanwhile.
    freed: Vec<u16>,
    waiting: VecDeque<Beginning>,
}

/// A shard's searches that are not over.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    under_way: VecDeque<Search>,
    /// To whom no port was left, and until when that counts.
    exhausted: VecDeque<(Pair, Instant)>,
}

/// What has come of a search so far.
enum Drawn {
    /// A free tuple, and beside it what the initial number must exceed if the tuple comes out of TIME-WAIT.
    Port(Tuple, Option<SeqNum>),
    /// There are more ports to be looked at.
    Later,
    /// None is free.
    Nothing,
}

impl Searches {
    fn is_exhausted(&mut self, now: Instant, pair: Pair) -> bool {
        while self.exhausted.front().is_some_and(|&(_, until)| until <= now) {
            self.exhausted.pop_front();
        }
        self.exhausted.iter().any(|&(other, _)| other == pair)
    }

    fn note_exhausted(&mut self, now: Instant, pair: Pair) {
        self.exhausted.retain(|&(other, _)| other != pair);
        if self.exhausted.len() == EXHAUSTED_MAX {
            self.exhausted.pop_front();
        }
        self.exhausted.push_back((pair, now + EXHAUSTED_FOR));
    }

    /// Lets a connection wait for the search for its peer, if there is one.
    fn join(&mut self, pair: Pair, beginning: Beginning) -> Result<(), Beginning> {
        match self.under_way.iter_mut().find(|search| search.pair == pair) {
            Some(search) => {
                search.waiting.push_back(beginning);
                Ok(())
            }
            None => Err(beginning),
        }
    }

    /// The port of a connection between these ends has come free, or goes on to TIME-WAIT.
    pub(super) fn on_free(&mut self, local: SocketAddr, remote: SocketAddr) {
        if self.exhausted.is_empty() && self.under_way.is_empty() {
            return;
        }
        let pair = Pair { local: local.ip(), remote };
        self.exhausted.retain(|&(other, _)| other != pair);
        if let Some(search) = self.under_way.iter_mut().find(|search| search.pair == pair) {
            search.freed.push(local.port());
        }
    }

    /// Other ports are drawn from here on, or lead here.
    pub(super) fn forget_exhausted(&mut self) {
        self.exhausted.clear();
    }

    /// The netstack ends: who waits is told.
    pub(super) fn end<D>(&mut self, common: &mut Common<D>) {
        for beginning in self.under_way.drain(..).flat_map(|search| search.waiting) {
            fail(common, &beginning.connect.stream, SocketError::Aborted);
        }
    }
}

impl Stacks {
    /// Goes on with searches for local ports, so many ports of them as one turn looks at.
    pub(crate) fn search_on<D>(&mut self, common: &mut Common<D>) {
        let mut room = PORTS_AT_ONCE;
        for _ in 0..self.conns.searching.len() {
            let Some(netstack) = self.conns.searching.pop_front() else { return };
            if let Some(mut inside) = self.inside(common, netstack) {
                inside.search_on(&mut room);
            }
            if room == 0 {
                return;
            }
        }
    }

    /// Whether a search for a local port is to go on.
    pub(super) fn has_searches(&self) -> bool {
        !self.conns.searching.is_empty()
    }
}

impl<D> Inside<'_, D> {
    /// A connection needs a local port for the way that was found for it.
    pub(super) fn open_by_drawn_port(&mut self, beginning: Beginning, egress: Egress, room: &mut usize) {
        let pair = Pair { local: egress.src, remote: canonical(beginning.connect.remote) };
        if self.shard.searches.is_exhausted(self.common.now, pair) {
            return self.open_elsewhere(beginning);
        }
        let Err(beginning) = self.shard.searches.join(pair, beginning) else { return };
        let begins = self.shard.port_counter;
        let mut search = Search { pair, begins, looked: 0, freed: Vec::new(), waiting: VecDeque::new() };
        if let Some(waits) = self.open_if_drawn(&mut search, beginning, egress, room) {
            search.waiting.push_back(waits);
            self.keep_search(search);
        }
    }

    /// Goes on with this netstack's searches.
    fn search_on(&mut self, room: &mut usize) {
        for _ in 0..self.shard.searches.under_way.len() {
            // Whoever has used the room is the last the next time.
            if *room == 0 {
                return self.searches_on();
            }
            let Some(mut search) = self.shard.searches.under_way.pop_front() else { break };
            while *room > 0
                && let Some(beginning) = search.waiting.pop_front()
            {
                *room -= 1;
                if let Some(waits) = self.go_on(&mut search, beginning, room) {
                    search.waiting.push_front(waits);
                }
            }
            if !search.waiting.is_empty() {
                self.keep_search(search);
            }
        }
    }

    /// Goes on with a search for the connection that has waited longest; back comes one that waits on.
    fn go_on(&mut self, search: &mut Search, beginning: Beginning, room: &mut usize) -> Option<Beginning> {
        if beginning.is_given_up() {
            fail(self.common, &beginning.connect.stream, SocketError::Aborted);
            return None;
        }
        // Routes and addresses may be others by now.
        match self.way_of_connect(&beginning.connect) {
            Ok(egress) if egress.src == search.pair.local => {
                return self.open_if_drawn(search, beginning, egress, room);
            }
            Ok(egress) => self.open_by_drawn_port(beginning, egress, room),
            Err(error) => fail(self.common, &beginning.connect.stream, error),
        }
        None
    }

    /// Opens a connection if a port is found, or gives it away if there is none; back comes one for which there is more to look at.
    fn open_if_drawn(
        &mut self,
        search: &mut Search,
        beginning: Beginning,
        egress: Egress,
        room: &mut usize,
    ) -> Option<Beginning> {
        match self.draw(search, egress.link == LOOPBACK, room) {
            Drawn::Port(tuple, least_iss) => self.open_between(beginning, egress, &tuple, least_iss),
            Drawn::Later => return Some(beginning),
            Drawn::Nothing => {
                self.shard.searches.note_exhausted(self.common.now, search.pair);
                self.open_elsewhere(beginning);
            }
        }
        None
    }

    /// A search goes on in the next turn.
    fn keep_search(&mut self, search: Search) {
        self.shard.searches.under_way.push_back(search);
        self.searches_on();
    }

    /// The netstack has searches for the next turn.
    fn searches_on(&mut self) {
        let netstack = self.shard.config.id;
        if !self.conns.searching.contains(&netstack) {
            self.conns.searching.push_back(netstack);
        }
    }

    /// Looks at so many more ports as there is room for.
    fn draw(&mut self, search: &mut Search, is_here: bool, room: &mut usize) -> Drawn {
        let range = self.shard.config.tcp_ports.clone();
        let (first, count) = (*range.start(), u32::from(*range.end() - *range.start()) + 1);
        let Pair { local, remote } = search.pair;
        while *room > 0
            && let Some(port) = search.freed.pop()
        {
            *room -= 1;
            let claimed = range.contains(&port).then(|| self.claim_port(search.pair, port, is_here));
            if let Some((tuple, least_iss)) = claimed.flatten() {
                return Drawn::Port(tuple, least_iss);
            }
        }
        let from = u64::from(self.shard.secret.port_offset(local, remote)) + u64::from(search.begins);
        while *room > 0 && search.looked < count {
            *room -= 1;
            let step = (from + u64::from(search.looked)) % u64::from(count);
            search.looked += 1;
            self.shard.port_counter = self.shard.port_counter.wrapping_add(1);
            if let Some((tuple, least_iss)) = self.claim_port(search.pair, first + step as u16, is_here) {
                return Drawn::Port(tuple, least_iss);
            }
        }
        let has_more = search.looked < count || !search.freed.is_empty();
        if has_more { Drawn::Later } else { Drawn::Nothing }
    }

    /// Takes a port that leads to this lane, if it is free.
    fn claim_port(&mut self, pair: Pair, port: u16, is_here: bool) -> Option<(Tuple, Option<SeqNum>)> {
        let (local, remote) = (SocketAddr::new(pair.local, port), pair.remote);
        let tuple = Self::tuple(local, remote)?;
        // What would be drawn for itself is no port: a socket is connected with itself only if its program says so.
        if local == remote || self.lane_of_ends(&tuple) != self.common.id {
            return None;
        }
        // Who has no port of his own gets none whose listener he would surprise; who names one has been told by bind(2) whether
        // he may have it, and connects beside it, as one does who punches a hole through a NAT.
        if self.shard.listeners.lookup(tuple.local(), tuple.local_port(), || 0).is_some() {
            return None;
        }
        self.claim(&tuple, (local, remote), is_here).map(|least_iss| (tuple, least_iss))
    }

    /// Takes a tuple, unless a connection has it or it must stay in TIME-WAIT, as nothing does where the peer `is_here`, in the same netstack ([`Leaving::TimeWait`](super::conn::Leaving)).
    pub(super) fn claim(
        &mut self,
        tuple: &Tuple,
        (local, remote): (SocketAddr, SocketAddr),
        is_here: bool,
    ) -> Option<Option<SeqNum>> {
        let names = firelane_tcp::Tuple::new(local, remote);
        if !is_here {
            self.shard.time_wait.look_ahead(&names);
        }
        if self.lookup(tuple).is_some() {
            return None;
        }
        if is_here {
            return Some(None);
        }
        match self.shard.time_wait.reopen(self.common.now, &names) {
            Reopening::Free => Some(None),
            Reopening::After(least_iss) => Some(Some(least_iss)),
            Reopening::Waits => None,
        }
    }

    /// This lane has no port for a connection: the next one of the netstack may have, until all were asked. Lanes that only some flows
    /// have draw none.
    fn open_elsewhere(&mut self, beginning: Beginning) {
        let Beginning { connect, first } = beginning;
        let (steering, me) = (&self.shard.config.steering, self.common.id);
        let first = first.unwrap_or(me);
        let next = core::iter::successors(Some(me), |&lane| steering.next_to_ask(lane, first));
        match next.skip(1).find(|&lane| steering.has_entries(lane)) {
            Some(lane) => {
                let command = SocketCommand::ConnectElsewhere(connect, first);
                self.common.outbox.messages.push((lane, LaneMessage::Socket(self.shard.config.id, command)));
            }
            None => fail(self.common, &connect.stream, SocketError::NoPort),
        }
    }

    /// Another lane of the netstack has no port for a connection, nor have those between it and `first`.
    pub(super) fn open_from_elsewhere(&mut self, connect: Box<Connect>, first: LaneId) {
        let me = self.common.id;
        if first == me {
            return fail(self.common, &connect.stream, SocketError::NoPort);
        }
        // Commands for it come here from now on.
        connect.stream.shared().set_lane(me);
        let beginning = Beginning { connect, first: Some(first) };
        match beginning.is_given_up() {
            true => fail(self.common, &beginning.connect.stream, SocketError::Aborted),
            false => self.open_active(beginning),
        }
    }

    /// The program has closed its socket when no connection was there: one that another lane has made, or will make, ends as well, as
    /// does one that waits here for a port.
    pub(super) fn close_unmade(&mut self, stream: &StreamRef) {
        let shared = stream.get();
        if shared.conn().is_none() && !shared.words().flags().contains(Flags::CLOSED) {
            shared.words().leave();
            if !(shared.conn().is_some() && shared.words().take_leave()) {
                return;
            }
        }
        self.close_wherever(shared);
    }

    fn close_wherever(&mut self, shared: StreamShared<'_>) {
        let Some(conn) = shared.conn() else { return };
        if shared.lane() == self.common.id {
            return self.close_named(conn);
        }
        let close = LaneMessage::Socket(shared.netstack(), SocketCommand::Close(conn));
        self.common.outbox.messages.push((shared.lane(), close));
    }

    /// A connection that another lane was to make first is made: if its program has closed the socket meanwhile, it ends.
    pub(super) fn close_if_left(&mut self, id: ConnId) {
        let Some(shared) = self.conns.slab.get(id).map(|conn| conn.stream.shared()) else { return };
        if let Some(conn) = shared.conn().filter(|_| shared.words().take_leave()) {
            self.close_named(conn);
        }
    }
}

/// An address as the tables have it.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
