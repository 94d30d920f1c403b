//! What a netstack sends to itself, as the VNICs see it that have its addresses.
//!
//! Such traffic passes no link. It is still what the VNIC with the sender's address sends, and what the one with the
//! receiver's gets: their flows count it. Loopback addresses are no VNIC's. Text of fused connections passes no lane
//! either: here is counted what others have seen of it, the rings' cursors (`fusion.rs`) and whoever serves programs.

use firelane_classify::Tuple;
use firelane_socket::ConnRef;
use firelane_units::{Bytes, ConnId, Direction, LinkId, NetstackId};

use super::Stacks;
use super::conn::Conns;
use crate::fusion::Fusion;
use crate::links::Links;

/// Places that one look for fused connections passes.
const PLACES_PER_LOOK: u32 = 1024;

/// Text that has gone from one end of a connection to the other past TCP, and is to be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    netstack: NetstackId,
    /// From whom to whom.
    tuple: Tuple,
    bytes: u64,
}

impl Conns {
    /// Notes what the peer of a connection of this process has read straight from its ring since this was last asked: when
    /// the connection is parted at the latest, because then TCP reads there. Of one that is over, all that was written will be read so.
    pub(super) fn note_passed(&mut self, id: ConnId) {
        let Some(conn) = self.slab.get(id) else { return };
        let send = &conn.stream.send;
        let unread = if conn.fusion == Fusion::Severed { send.available() as u64 } else { 0 };
        let bytes = send.take_passed(send.cursor() + unread);
        if let Some(tuple) = conn.tuple().filter(|_| bytes > 0) {
            self.passed.push(Passed { netstack: conn.netstack, tuple, bytes });
        }
    }
}

impl Stacks {
    /// Counts text that two programs have carried past the lane: what went from the connection to its peer, and what came.
    pub(crate) fn count_beside<D>(&mut self, links: &mut Links<D>, conn: ConnRef, carried: [u64; 2]) {
        let Some(conn) = self.conns.slab.resolve(conn).and_then(|id| self.conns.slab.get(id)) else { return };
        let (netstack, Some(tuple)) = (conn.netstack, conn.tuple()) else { return };
        for (tuple, bytes) in [tuple, tuple.reversed()].into_iter().zip(carried) {
            self.conns.passed.push(Passed { netstack, tuple, bytes });
        }
        self.count_passed(links);
    }

    /// Counts what connections of this process have carried past TCP, of some places of the table from `from` on. Where to go
    /// on, if there are more.
    pub(crate) fn count_fused<D>(&mut self, links: &mut Links<D>, from: u32) -> Option<u32> {
        if self.conns.lent == 0 {
            return None;
        }
        let end = from.saturating_add(PLACES_PER_LOOK);
        for place in from..end {
            let id = ConnId(place);
            if self.conns.slab.get(id).is_some_and(|conn| conn.fusion.peer().is_some()) {
                self.conns.note_passed(id);
            }
        }
        self.count_passed(links);
        ((end as usize) < self.conns.slab.places()).then_some(end)
    }

    /// Counts what was noted.
    pub(crate) fn count_passed<D>(&mut self, links: &mut Links<D>) {
        while let Some(Passed { netstack, tuple, bytes }) = self.conns.passed.pop() {
            let Some(shard) = self.shards.get(netstack.index()) else { continue };
            let ends = [tuple.local(), tuple.remote()].map(|it| shard.ip.core.link_of(it));
            links.count_fused(ends, &tuple, Bytes(bytes));
        }
    }
}

impl<D> Links<D> {
    /// Text has gone from the VNIC that has the tuple's local address to the one that has its remote address.
    fn count_fused(&mut self, [from, to]: [Option<LinkId>; 2], tuple: &Tuple, bytes: Bytes) {
        for (link, direction) in [(from, Direction::Out), (to, Direction::In)] {
            let Some(link) = link else { continue };
            if let Some(flow) = self.flow_at(link, tuple, direction) {
                self.flows.count_fused(flow, direction, bytes);
            }
            if let Some(port) = self.ports.get_mut(link.index()) {
                let fused = &mut port.counters.of_mut(direction).fused;
                *fused = fused.saturating_add(bytes.0);
            }
        }
    }
}
