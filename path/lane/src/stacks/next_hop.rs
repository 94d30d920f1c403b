//! Datagrams whose next hop's address is not known as yet: a few go to where frames wait for it (`firelane_ip`), the rest stays in their
//! sockets' queues, and goes with them if nobody answers.
//!
//! Asked by `datagrams_out.rs` before each record. RFC 4861 §7.2.2 and RFC 1122 §2.3.2.2 want some to be kept; in Linux what waits is in a
//! socket's send buffer, so a burst to somebody new loses nothing there either.

use core::net::{IpAddr, SocketAddr};

use firelane_frame::Envelope;
use firelane_ip::{Egress, ErrorKind, NextHop, QuotedText, Said, TransportError};
use firelane_units::{Instant, LinkId, Port, SocketId};
use firelane_wire::IpProtocol;

use super::echoes;
use super::inbound::Inside;
use super::limited::Cause;
use super::shard::Shard;
use crate::message::DatagramKind;

/// Frames that wait for an address of those that a limit holds: when it is known all come to the limit at once.
const OF_LIMITED: usize = 2;

/// Who a socket's first record waits for.
pub(super) type Awaited = (LinkId, IpAddr);

/// What a record does whose next hop is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hop {
    /// It goes, or waits where frames do.
    Go,
    /// It stays in its socket's queue, and asks again at this time at the latest.
    StayUntil(Instant),
    /// Nobody has answered.
    GiveUp,
}

impl Shard {
    /// Those who wait for a next hop look again, if there is news.
    pub(super) fn hear_of_next_hops(&mut self, now: Instant) {
        if self.awaits_since.is_some_and(|generation| generation != self.ip.core.generation()) {
            self.awaits_since = None;
            self.limited_datagrams.ask_anew(now, |cause| matches!(cause, Cause::NextHop(..)));
        }
    }
}

impl<D> Inside<'_, D> {
    /// What a socket's first record does, which is so many frames.
    pub(super) fn hop_of(
        &mut self,
        socket: SocketId,
        egress: &Egress,
        frames: usize,
        is_limited: bool,
    ) -> Hop {
        let next = self.shard.ip.core.next_hop(egress);
        if next == NextHop::Known {
            return Hop::Go;
        }
        let Some(place) = self.shard.datagrams.get_mut(socket.0) else { return Hop::Go };
        let hop = (egress.link, egress.next_hop);
        match next {
            NextHop::Unasked if place.awaits == Some(hop) => Hop::GiveUp,
            NextHop::Asked { waiting, room, until } => {
                let most = if is_limited { OF_LIMITED.saturating_sub(waiting) } else { room };
                // One goes whatever its size, as far as there is room for frames at all.
                if frames <= most || waiting == 0 && room > 0 {
                    return Hop::Go;
                }
                place.awaits = Some(hop);
                let generation = self.shard.ip.core.generation();
                // Others who wait may not have heard of the last news.
                self.shard.awaits_since.get_or_insert(generation);
                Hop::StayUntil(until)
            }
            _ => Hop::Go,
        }
    }

    /// A record goes the way of the frames that waited before it, or of what nobody hears: its program is told as of these.
    #[cold]
    pub(super) fn give_up_record(
        &mut self,
        socket: SocketId,
        (envelope, len): (&Envelope, usize),
        local: SocketAddr,
        kind: ErrorKind,
    ) {
        let Some(place) = self.shard.datagrams.get(socket.0) else { return };
        let remote = SocketAddr::new(envelope.peer.ip().to_canonical(), envelope.peer.port());
        let protocol = match place.kind {
            DatagramKind::Udp => IpProtocol::UDP,
            DatagramKind::Echo => echoes::protocol(remote.ip()),
        };
        let mut text = [0; QuotedText::MOST];
        let quoted = len.min(text.len());
        place.slot.send.copy_payload(&mut text[..quoted]);
        let (own, peer) = ((local.ip(), Port(local.port())), (remote.ip(), Port(remote.port())));
        let mut said = Said::by_ourselves(own.0, &text[..quoted]);
        if kind == ErrorKind::PortUnreachable {
            (said.from, said.icmp) = (peer.0, if peer.0.is_ipv4() { [3, 3] } else { [1, 4] });
        }
        let error = TransportError {
            protocol,
            src: own.0,
            dst: peer.0,
            ports: (own.1, peer.1),
            seq: None,
            kind,
            said,
        };
        self.shard.udp_counters.unsendable += envelope.segments(len) as u64;
        self.blame_datagrams(own, peer, &error);
    }
}
