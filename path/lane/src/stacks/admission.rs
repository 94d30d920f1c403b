//! Filters of single sockets: rules of a listener or a datagram socket, about what comes to it and to nobody else.
//!
//! The netstack's own filter stands at its links (`filtered.rs`) and is asked first; this one is asked when it is known whose
//! a packet is. A listener's is asked about what would begin a connection, and never about one that has begun; a datagram socket's
//! about each datagram, those of its own netstack among them. A netstack whose sockets have none pays for a look at an empty table.
//! (The original's socket filters, soconfig(8), in the language of its packet filter.)

use core::net::SocketAddr;
use std::collections::BTreeMap;
use std::sync::Arc;

use firelane_classify::Headers;
use firelane_filter::{Filter, FilterCounts, FilterSetup, Packet, Verdict};
use firelane_frame::Frame;
use firelane_ip::Delivered;
use firelane_tcp::{AtListener, SegmentIn};
use firelane_units::{BlockAnswer, Direction, Instant, LinkId, NetstackId, SocketId};

use super::Stacks;
use super::inbound::Inside;

/// The filters of a shard's sockets.
pub(crate) type SocketFilters = BTreeMap<SocketId, SocketFilter>;

/// A socket's own filter.
pub(crate) struct SocketFilter {
    filter: Box<Filter>,
    /// As it was given.
    pub(crate) setup: Arc<FilterSetup>,
}

impl Stacks {
    /// What a socket's filter has counted in this lane, if it has one.
    pub(crate) fn socket_filter_counts(&self, id: NetstackId, socket: SocketId) -> Option<FilterCounts> {
        Some(self.shards.get(id)?.socket_filters.get(&socket)?.filter.counts())
    }
}

impl<D> Inside<'_, D> {
    /// A socket's filter follows other rules; without any it ends.
    pub(crate) fn set_socket_filter(&mut self, socket: SocketId, setup: &Arc<FilterSetup>) {
        if setup.is_empty() {
            self.shard.socket_filters.remove(&socket);
            return;
        }
        // Its rules keep no state: whoever gives them sees to that.
        let (secrets, id) = (&self.common.secrets, self.shard.config.id);
        let begin = || SocketFilter {
            filter: Box::new(Filter::new(secrets.of(id).filter(), 0)),
            setup: Arc::clone(setup),
        };
        let filter = self.shard.socket_filters.entry(socket).or_insert_with(begin);
        filter.setup = Arc::clone(setup);
        filter.filter.follow_setup(setup);
    }

    /// Whether a segment that belongs to no connection may go on to the listener that it is for. If not, its sender has heard what
    /// the rule wants him to hear.
    #[inline]
    pub(crate) fn admits_segment(
        &mut self,
        packet: &Delivered,
        seg: &SegmentIn<'_>,
        (local, remote): (SocketAddr, SocketAddr),
    ) -> bool {
        if self.shard.socket_filters.is_empty() || AtListener::of(seg) != AtListener::Open {
            return true;
        }
        let link = self.shard.link_of_arrival(packet.link, local.ip());
        let socket = self.shard.listener(local, remote, link).map(|(socket, _)| socket);
        socket.is_none_or(|socket| self.admits(packet, socket))
    }

    /// Whether a datagram may go on to a socket.
    #[inline]
    pub(crate) fn admits_datagram(&mut self, packet: &Delivered, socket: SocketId) -> bool {
        self.shard.socket_filters.is_empty() || self.admits(packet, socket)
    }

    fn admits(&mut self, packet: &Delivered, socket: SocketId) -> bool {
        let Some(filter) = self.shard.socket_filters.get_mut(&socket) else { return true };
        let at_links = self.shard.gate.filter_ref();
        let Some((headers, answer)) =
            judge(&mut filter.filter, at_links, packet.link, &packet.frame, self.common.now)
        else {
            return true;
        };
        if !packet.is_broadcast_or_multicast {
            self.answer_blocked(answer, packet.link, packet.frame.as_slice(), &headers);
        }
        false
    }
}

/// What the sender of a packet is to hear that a filter blocks; nothing if it passes. The rules name the pools of the netstack's own
/// filter.
fn judge(
    filter: &mut Filter,
    at_links: &Filter,
    link: LinkId,
    frame: &Frame,
    now: Instant,
) -> Option<(Headers, BlockAnswer)> {
    let headers = Headers::parse(frame.as_slice()).ok()?;
    let bytes = frame.as_slice().get(usize::from(headers.l3_offset)..)?;
    let packet = Packet::read(Direction::In, link, bytes)?;
    match filter.judge_beside(&packet, at_links, now).verdict {
        Verdict::Pass => None,
        Verdict::Block(answer) => Some((headers, answer)),
        // Rules without states come to neither.
        Verdict::NoRoom | Verdict::OutOfWindow => Some((headers, BlockAnswer::Silent)),
    }
}
