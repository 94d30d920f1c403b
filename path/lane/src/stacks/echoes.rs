//! Echoes of ICMP that programs ask for, and their answers (RFC 792, RFC 1122 §3.2.2.6, RFC 4443 §4).
//!
//! A socket for echoes is a datagram socket whose port is the identifier of its questions, in the netstack's home lane, where
//! ICMP is. What it queues and gets is what follows the identifier: two octets of sequence number, and text; of a program of
//! Linux' the whole message, whose header is made here all the same. Called by `inbound.rs` with answers and by `datagrams_out.rs` with questions.

use core::net::{IpAddr, SocketAddr};

use firelane_frame::{Envelope, Frame};
use firelane_ip::Delivered;
use firelane_socket::Ready;
use firelane_units::DropReason;
use firelane_wire::{IpProtocol, Sum, icmpv6};

use super::datagrams::DatagramSocket;
use super::inbound::Inside;

/// Type, code, checksum and identifier.
pub(super) const HEADER: usize = 6;
const CHECKSUM: core::ops::Range<usize> = 2..4;
/// Types of a question (RFC 792, RFC 4443 §4.1).
const ECHO_V4: u8 = 8;
const ECHO_V6: u8 = 128;
/// The sequence number.
const SEQUENCE: usize = 2;

/// Which ICMP asks `dst`.
pub(super) const fn protocol(dst: IpAddr) -> IpProtocol {
    if dst.is_ipv4() { IpProtocol::ICMPV4 } else { IpProtocol::ICMPV6 }
}

/// What stands before a socket's record in the message.
pub(super) const fn header_of(place: &DatagramSocket) -> usize {
    if place.options.has_header { 0 } else { HEADER }
}

/// Makes the question of a socket's first record. Whether it can be one: it has a sequence number.
pub(super) fn fill(
    place: &DatagramSocket,
    (src, dst): (IpAddr, IpAddr),
    len: usize,
    frame: &mut Frame,
) -> bool {
    let before = header_of(place);
    if before + len < HEADER + SEQUENCE {
        return false;
    }
    let message = frame.append(before + len);
    place.slot.send.copy_payload(&mut message[before..]);
    let header = &mut message[..HEADER];
    header.fill(0);
    header[0] = if dst.is_ipv4() { ECHO_V4 } else { ECHO_V6 };
    header[4..].copy_from_slice(&place.local.port().to_be_bytes());
    match (src, dst) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => icmpv6::fill_checksum(message, src, dst),
        _ => {
            let sum = Sum::of(message).checksum();
            message[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
        }
    }
    true
}

impl<D> Inside<'_, D> {
    /// An answer to an echo: whose identifier it has gets it.
    pub(crate) fn echo_answer(&mut self, packet: Delivered) {
        let Delivered { src, dst, link, .. } = packet;
        let of_arrival = self.shard.link_of_arrival(link, dst);
        let message = &packet.frame.as_slice()[packet.payload.clone()];
        let socket = message.get(4..HEADER).and_then(|id| {
            let identifier = u16::from_be_bytes([id[0], id[1]]);
            self.shard.echoes.lookup(of_arrival, SocketAddr::new(dst, identifier), SocketAddr::new(src, 0))
        });
        let place = socket.and_then(|socket| self.shard.datagrams.get_mut(socket.0));
        let (Some(socket), Some(place)) = (socket, place) else {
            return self.drop_frame(packet.frame, DropReason::BadIcmp);
        };
        let envelope = Envelope {
            peer: SocketAddr::new(src, 0),
            local: Some(dst),
            own: None,
            link: Some(link),
            tos: Some(packet.traffic_class()),
            hops: Some(packet.ttl),
            dont_fragment: None,
            segment: 0,
            arrived: Some(self.common.now),
            dropped: place.dropped,
        };
        let has_room = place.slot.recv.push(&envelope, &message[header_of(place)..]);
        place.dropped = place.dropped.wrapping_add(u32::from(!has_room));
        self.tell_datagrams(socket, Ready::READABLE);
        match has_room {
            true => self.common.deliver_seen(packet.frame),
            false => self.drop_frame(packet.frame, DropReason::BufferFull),
        }
    }
}
