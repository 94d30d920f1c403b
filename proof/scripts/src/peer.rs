//! The peer that a script plays: its connections' numbers, and its packets on their way to and from the station.

use std::collections::BTreeMap;

use firelane_frame::Driver;
use firelane_units::Instant;
use firelane_wire::{Ecn, FastOpen, IpProtocol, TcpView};

use crate::icmp::Message;
use crate::packet::{Body, Envelope, Packet};
use crate::segment::{Flow, Segment};
use crate::station::{Class, Station};

/// The peer's port, unless a line or a connect says another.
const PEER_PORT: u16 = 40_000;
/// The netstack's port, unless it listens at another.
const OUR_PORT: u16 = 80;

/// One connection's numbers and our port of it.
pub(crate) struct Known {
    pub(crate) flow: Flow,
    pub(crate) our_port: u16,
}

/// The peer.
pub(crate) struct Peer {
    /// Its first sequence number on every connection.
    first: u32,
    /// By its port.
    flows: BTreeMap<u16, Known>,
    /// The port that a segment comes from and goes to if the line says no other.
    pub(crate) port: u16,
    pub(crate) our_port: u16,
    /// The Fast Open cookie that the netstack gave last.
    cookie: Option<FastOpen>,
}

impl Peer {
    pub(crate) fn new(first: u32) -> Self {
        Self { first, flows: BTreeMap::new(), port: PEER_PORT, our_port: OUR_PORT, cookie: None }
    }

    /// A segment of the netstack's in the script's numbers.
    pub(crate) fn read<D: Driver>(
        &mut self,
        station: &Station<D>,
        bytes: &[u8],
        class: Class,
    ) -> Result<Segment, String> {
        let view = TcpView::parse(bytes).map_err(|error| format!("a bad segment: {error:?}"))?;
        if !view.is_checksum_valid(station.theirs, station.ip) {
            return Err("a segment with a wrong checksum".into());
        }
        let cookie = self.cookie;
        let known = self.flow(view.dst_port().0, view.src_port().0);
        known.flow.cookie = cookie;
        let mut segment = Segment::read(&view, class.ecn, &mut known.flow)?;
        let cookie = known.flow.cookie;
        (segment.ttl, segment.dscp) = (Some(class.ttl), Some(class.dscp));
        segment.relabelled = class.relabelled;
        if known.our_port != view.src_port().0 {
            return Err(format!("a segment from port {}: `{segment}`", view.src_port().0));
        }
        segment.port = Some(view.dst_port().0);
        self.cookie = cookie;
        Ok(segment)
    }

    pub(crate) fn flow(&mut self, peer_port: u16, our_port: u16) -> &mut Known {
        let first = self.first;
        self.flows.entry(peer_port).or_insert_with(|| Known { flow: Flow::new(first), our_port })
    }

    /// Sends a packet of the script's.
    pub(crate) fn inject<D: Driver>(&mut self, station: &mut Station<D>, now: Instant, packet: &Packet) {
        let (src, dst) = station.ends(&packet.envelope);
        let (protocol, ecn, bytes) = match &packet.body {
            Body::Segment(segment) => {
                let (peer_port, our_port) = (segment.port.unwrap_or(self.port), self.our_port);
                let (first, cookie) = (self.first, self.cookie);
                let known = self.flow(peer_port, our_port);
                known.flow.cookie = cookie;
                if segment.is_new {
                    known.flow = Flow::new(first);
                    known.our_port = our_port;
                }
                let bytes = segment.emit(&known.flow, ((src, peer_port), (dst, known.our_port)));
                (IpProtocol::TCP, segment.ecn.unwrap_or_default(), bytes)
            }
            Body::Udp(datagram) => (IpProtocol::UDP, Ecn::default(), datagram.emit(src, dst)),
            Body::Icmp(message) => return self.say(station, now, &packet.envelope, message),
            Body::Bytes(count) => (IpProtocol(253), Ecn::default(), vec![0; *count]),
        };
        station.send(now, &packet.envelope, protocol, ecn, &bytes);
    }

    /// Sends an ICMP message. What it quotes is the netstack's packet to the station.
    pub(crate) fn say<D: Driver>(
        &mut self,
        station: &mut Station<D>,
        now: Instant,
        envelope: &Envelope,
        message: &Message,
    ) {
        let (src, dst) = station.ends(envelope);
        let about = message.about().map_or((self.our_port, self.port), |about| about.ports);
        let first = self.flow(about.1, about.0).flow.our_first.unwrap_or(0);
        let bytes = message.emit(src, dst, first);
        let protocol = if dst.is_ipv4() { IpProtocol::ICMPV4 } else { IpProtocol::ICMPV6 };
        station.send(now, envelope, protocol, Ecn::default(), &bytes);
    }

    /// A connection from `our_port` to the peer's `port` begins; `is_new` says that there was one before.
    pub(crate) fn begin(&mut self, our_port: u16, port: u16, is_new: bool) {
        self.port = port;
        if is_new {
            self.flows.remove(&port);
        }
        self.flow(port, our_port);
    }
}
