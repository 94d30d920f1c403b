//! The connections of a lane: their places, their timers, and which of them have something to do.
//!
//! One table for all netstacks, so that an index names a connection to the timer wheel and to the dirty list.
//! A connection that may have something to send is *dirty*; the lane asks the dirty ones in turn, so that one
//! with much to send does not keep others waiting.

use core::cmp::Reverse;
use core::net::SocketAddr;
use std::collections::{BinaryHeap, VecDeque};

use firelane_classify::Tuple;
use firelane_ip::Egress;
use firelane_socket::{ConnRef, Flags, ListenerSlot, StreamEnd, StreamSlot};
use firelane_tcp::{Connection, Rings};
use firelane_units::{Bytes, ConnId, FlowId, Instant, LinkId, NetstackId, StepListId};

use crate::slab::Slab;
use crate::steps::StepLists;
use crate::stream_info::StreamInfo;
use crate::wheel::Wheel;

/// A connection and what the lane knows of it.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) tcp: Connection,
    pub(crate) stream: StreamSlot,
    pub(crate) tuple: Tuple,
    pub(crate) netstack: NetstackId,
    pub(crate) steps: StepListId,
    pub(crate) is_dirty: bool,
    /// The end is near: what follows when nothing is left to send.
    pub(crate) leaving: Leaving,
    /// The way of its segments; an idle connection has none.
    pub(crate) route: Option<Box<Egress>>,
    /// Which flow its segments belong to, and the count of rule changes at which that was looked up.
    pub(crate) flow: Option<(u32, Option<FlowId>)>,
    /// Whose passive connection it is.
    pub(crate) listener: Option<ListenerSlot>,
    /// The application's side, until the connection is established and its listener gets it.
    pub(crate) embryo: Option<Box<StreamEnd>>,
}

/// How far a connection's end has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leaving {
    /// It lives.
    No,
    /// Only TIME-WAIT is left, once everything is sent.
    TimeWait,
    /// It is gone, once everything is sent.
    Gone,
}

impl Conn {
    /// A connection with nothing to send as yet.
    pub(crate) fn new(
        tcp: Connection,
        stream: StreamSlot,
        tuple: Tuple,
        netstack: NetstackId,
        route: Option<Egress>,
    ) -> Self {
        Self {
            tcp,
            stream,
            tuple,
            netstack,
            steps: StepLists::TCP,
            is_dirty: false,
            leaving: Leaving::No,
            route: route.map(Box::new),
            flow: None,
            listener: None,
            embryo: None,
        }
    }

    /// Whether a second of silence has taken its rings' storage: then its way is looked up again when needed.
    pub(crate) fn is_idle(&self) -> bool {
        self.stream.send.attached_bytes() == 0 && self.stream.recv.attached_bytes() == 0
    }

    /// Whether it came by `listener` and nobody has accepted it.
    pub(crate) fn is_orphan_of(&self, listener: &ListenerSlot) -> bool {
        let is_accepted = self.stream.shared().words().flags().contains(Flags::ACCEPTED);
        !is_accepted && self.listener.as_ref().is_some_and(|mine| mine.is_same(listener))
    }

    /// Whether it has nothing to send and does not end: asked where most connections are.
    pub(crate) fn is_quiet(&mut self, now: Instant) -> bool {
        let (tcp, rings) = self.parts();
        tcp.is_quiet(now, &rings) && self.leaving == Leaving::No
    }

    /// What is known of it.
    pub(crate) fn info(&self, now: Instant) -> StreamInfo {
        let tcp = self.tcp.info(now);
        let (send, recv) = (&self.stream.send, &self.stream.recv);
        let sent = tcp.bytes_acknowledged + tcp.unacknowledged;
        let written = send.cursor() + send.available() as u64;
        StreamInfo {
            local: SocketAddr::new(self.tuple.local(), self.tuple.local_port().0),
            remote: SocketAddr::new(self.tuple.remote(), self.tuple.remote_port().0),
            unsent: Bytes(written.saturating_sub(sent.0)),
            unread: Bytes::from(recv.capacity() - recv.free()),
            receive_buffer: Bytes::from(recv.capacity()),
            tcp,
        }
    }

    /// The connection and its rings, for a call.
    pub(crate) fn parts(&mut self) -> (&mut Connection, Rings<'_>) {
        (&mut self.tcp, Rings { send: &mut self.stream.send, recv: &mut self.stream.recv })
    }
}

/// All connections of a lane.
#[derive(Debug)]
pub(crate) struct Conns {
    pub(crate) slab: Slab<Conn>,
    wheel: Wheel,
    dirty: VecDeque<ConnId>,
    /// Those that wait for their flow's limit, and until when.
    limited: BinaryHeap<Reverse<(Instant, ConnId)>>,
    /// Those that wait for a busy device.
    blocked: Vec<(LinkId, ConnId)>,
}

impl Conns {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            slab: Slab::new(),
            wheel: Wheel::new(now),
            dirty: VecDeque::new(),
            limited: BinaryHeap::new(),
            blocked: Vec::new(),
        }
    }

    /// Takes a new connection in; it is dirty.
    pub(crate) fn insert(&mut self, conn: Conn) -> ConnRef {
        let reference = self.slab.insert(conn);
        self.touch(reference.conn);
        reference
    }

    /// Takes a connection out.
    pub(crate) fn remove(&mut self, id: ConnId) -> Option<Conn> {
        self.wheel.cancel(id.0);
        self.slab.remove(id)
    }

    /// A connection may have something to send.
    pub(crate) fn touch(&mut self, id: ConnId) {
        if let Some(conn) = self.slab.get_mut(id)
            && !conn.is_dirty
        {
            conn.is_dirty = true;
            self.dirty.push_back(id);
        }
    }

    /// The next dirty connection; it is clean from here on.
    pub(crate) fn next_dirty(&mut self) -> Option<ConnId> {
        while let Some(id) = self.dirty.pop_front() {
            // A place may have been emptied, and taken by a successor that has an entry of its own.
            if let Some(conn) = self.slab.get_mut(id)
                && core::mem::take(&mut conn.is_dirty)
            {
                return Some(id);
            }
        }
        None
    }

    /// How many entries the dirty list has.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty.len()
    }

    /// Arms a connection's timer for what it waits for next.
    pub(crate) fn arm(&mut self, id: ConnId) {
        if let Some(conn) = self.slab.get(id) {
            self.wheel.arm(id.0, conn.tcp.poll_at().unwrap_or(Instant::FAR_FUTURE));
        }
    }

    /// A connection whose timer is due.
    pub(crate) fn next_due(&mut self, now: Instant) -> Option<ConnId> {
        self.wheel.pop(now).map(ConnId)
    }

    /// A connection waits for its flow's limit.
    pub(crate) fn wait_for_credit(&mut self, id: ConnId, until: Instant) {
        self.limited.push(Reverse((until, id)));
    }

    /// A connection waits for the device behind `port`.
    pub(crate) fn wait_for_device(&mut self, id: ConnId, port: LinkId) {
        self.blocked.push((port, id));
    }

    /// Those that waited for a limit that is due, or for a device that is free, are dirty again.
    pub(crate) fn wake(&mut self, now: Instant, is_busy: impl Fn(LinkId) -> bool) {
        while let Some(&Reverse((at, id))) = self.limited.peek()
            && at <= now
        {
            self.limited.pop();
            self.touch(id);
        }
        for n in (0..self.blocked.len()).rev() {
            let (port, id) = self.blocked[n];
            if !is_busy(port) {
                self.blocked.swap_remove(n);
                self.touch(id);
            }
        }
    }

    /// Takes out every connection of a netstack.
    pub(crate) fn purge(&mut self, netstack: NetstackId) {
        let of_it = self.slab.iter().filter(|(_, conn)| conn.netstack == netstack);
        let all: Vec<ConnId> = of_it.map(|(reference, _)| reference.conn).collect();
        for id in all {
            self.remove(id);
        }
    }

    /// Whether somebody waits for a device.
    pub(crate) fn has_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// When the next timer or limit is due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let limited = self.limited.peek().map(|&Reverse((at, _))| at);
        [self.wheel.next_deadline(), limited].into_iter().flatten().min()
    }
}
