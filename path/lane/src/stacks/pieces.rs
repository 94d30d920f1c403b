//! Pieces of datagrams at a filter's door: which lane is asked about them, and where they go on.
//!
//! Pieces come to the home lane, which does not know the states of others. The first piece of a datagram has the ports, so the lane that
//! has the state of whole packets with these ports is asked about it, and about the pieces behind it, which have none. What is passed
//! on goes on from there; what is for the netstack itself comes back to the home lane, where all pieces of a datagram meet,
//! those included that have overtaken the first one and that rules alone were asked about. Where addresses are translated all states are in
//! the home lane, and nothing of this is needed. Called by `filtered.rs`.

use core::time::Duration;

use firelane_classify::{Fragment, Headers, L3, Tuple};
use firelane_filter::{Datagram, Packet, Piece};
use firelane_frame::Frame;
use firelane_table::Recent;
use firelane_units::{Direction, Instant, LaneId, LinkId, Port};
use firelane_wire::IpProtocol;

use super::inbound::Inside;
use crate::message::Stage;
use crate::steer::datagram_lane;

/// For how long a datagram's lane is known: as long as its first piece lets others through (`path/filter`).
const LASTS: Duration = Duration::from_secs(60);

/// The lanes that were asked about first pieces.
#[derive(Debug)]
pub(super) struct Asked(Recent<Datagram, LaneId>);

impl Default for Asked {
    fn default() -> Self {
        Self(Recent::new(LASTS))
    }
}

impl Asked {
    /// Forgets those that are old.
    pub(super) fn expire(&mut self, now: Instant) {
        self.0.expire(now);
    }
}

impl<D> Inside<'_, D> {
    /// The other lane that is asked about a piece that has come to the home lane.
    #[inline]
    pub(super) fn lane_of_piece(&mut self, link: LinkId, frame: &[u8], headers: &Headers) -> Option<LaneId> {
        // Nothing for many has a state. Without rules everything passes, and lanes without states do not ask.
        let stays = headers.fragment == Fragment::Whole
            || headers.dst.is_multicast()
            || !self.shard.gate.has_filter_rules()
            || self.shard.others.is_empty()
            || self.shard.config.steering.home() != self.common.id;
        if stays { None } else { self.lane_asked(link, frame, headers) }
    }

    #[cold]
    fn lane_asked(&mut self, link: LinkId, frame: &[u8], headers: &Headers) -> Option<LaneId> {
        let packet = Packet::read(Direction::In, link, frame.get(usize::from(headers.l3_offset)..)?)?;
        let (datagram, now) = (Datagram::of(&packet), self.common.now);
        let lane = match packet.piece {
            Piece::Whole => None,
            Piece::Later => self.shard.gate.pieces().0.find(&datagram, now),
            Piece::First => {
                let lane = packet.ports().and_then(|ports| self.lane_of_ports(&packet, ports));
                // That it is this one is remembered, too: others may have had the number before.
                let kept = lane.unwrap_or(self.common.id);
                self.shard.gate.pieces().0.keep(datagram, kept, now, |other| other.src == datagram.src);
                lane
            }
        };
        lane.filter(|&lane| lane != self.common.id)
    }

    /// The lane of whole packets with the ports of one that comes in.
    fn lane_of_ports(&self, packet: &Packet<'_>, (from, to): (Port, Port)) -> Option<LaneId> {
        match packet.protocol {
            IpProtocol::TCP => {
                let tuple = Tuple::new(IpProtocol::TCP, (packet.dst, to), (packet.src, from))?;
                Some(self.lane_of_ends(&tuple))
            }
            IpProtocol::UDP => {
                Some(datagram_lane(to, &self.shard.config.steering, &self.common.secrets.steering()))
            }
            _ => None,
        }
    }

    /// A piece was let through: gives it back if this lane goes on with it.
    #[inline]
    pub(super) fn keep_piece(&mut self, link: LinkId, frame: Frame, headers: &Headers) -> Option<Frame> {
        let home = self.shard.config.steering.home();
        if headers.fragment == Fragment::Whole || home == self.common.id {
            return Some(frame);
        }
        let is_own = match headers.l3 {
            L3::V4 { dst, .. } => self.shard.ip.core.is_local(dst.into()),
            L3::V6 { dst, .. } => self.shard.ip.core.is_local(dst.into()),
            _ => false,
        };
        if !is_own {
            return Some(frame);
        }
        self.common.hand_over(home, Stage::Asked(self.shard.config.id, self.common.id), link, frame);
        None
    }
}
