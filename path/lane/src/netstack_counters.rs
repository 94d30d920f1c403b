//! What one netstack has counted in one lane: the numbers of `netstat -s`.
//!
//! Raised in the shard by the files that see a packet, a segment or a connection come and go (`stacks/`); read by the
//! engine, which adds the lanes of a netstack. Names in brackets are those of RFC 4022, RFC 4113 or Linux. A large
//! frame or segment counts as the pieces that it is on the wire.

use firelane_frame::Frame;
use firelane_ip::{IpCounts, Refused};
use firelane_tcp::{FastOpenCounters, SegmentOut, State, SynCounters};
use firelane_units::DropCounters;
use firelane_wire::TcpFlags;

/// A netstack's numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NetstackCounters {
    /// IP's and ICMP's.
    pub ip: IpCounts,
    /// What was refused because a list was full.
    pub refused: Refused,
    /// UDP's.
    pub udp: UdpCounters,
    /// TCP's.
    pub tcp: TcpCounters,
    /// What the table of half-open connections has counted.
    pub syn: SynCounters,
    /// What became of Fast Opens.
    pub fast_open: FastOpenCounters,
    /// Connections, half-open ones and those in TIME-WAIT among them, at this moment.
    pub connections: u64,
    /// Frames of this netstack that ended, by reason.
    pub drops: DropCounters,
}

impl NetstackCounters {
    /// Adds another lane's.
    pub fn merge(&mut self, other: &Self) {
        self.ip.merge(&other.ip);
        self.refused.merge(&other.refused);
        self.udp.merge(&other.udp);
        self.tcp.merge(&other.tcp);
        self.syn.merge(&other.syn);
        self.fast_open.merge(&other.fast_open);
        self.connections += other.connections;
        self.drops.merge(&other.drops);
    }
}

/// UDP's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdpCounters {
    /// Datagrams that a socket got (`InDatagrams`).
    pub received: u64,
    /// Datagrams that sockets sent (`OutDatagrams`).
    pub sent: u64,
    /// Datagrams that could not be sent, and whose programs were told.
    pub unsendable: u64,
}

impl UdpCounters {
    fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.sent += other.sent;
        self.unsendable += other.unsendable;
    }
}

/// TCP's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpCounters {
    /// Connections that programs here began (`ActiveOpens`).
    pub active_opens: u64,
    /// Connections that peers began (`PassiveOpens`).
    pub passive_opens: u64,
    /// Connections that ended before they were established (`AttemptFails`).
    pub attempt_fails: u64,
    /// Connections that ended without a FIN while data could flow (`EstabResets`).
    pub established_resets: u64,
    /// Connections in ESTABLISHED or CLOSE-WAIT at this moment (`CurrEstab`).
    pub established: u64,
    /// Segments that arrived (`InSegs`).
    pub segments_in: u64,
    /// Segments that left, those sent again not counted (`OutSegs`).
    pub segments_out: u64,
    /// Of those, the ones with text.
    pub text_segments_out: u64,
    /// Their bytes.
    pub text_bytes_out: u64,
    /// Segments that left again (`RetransSegs`).
    pub repeated: u64,
    /// Their bytes.
    pub repeated_bytes: u64,
    /// Segments with RST that left (`OutRsts`).
    pub resets_out: u64,
}

impl TcpCounters {
    /// A segment arrived.
    #[inline]
    pub(crate) fn on_received(&mut self, frame: &Frame) {
        self.segments_in += frame.meta().segmentation.map_or(1, |cut| cut.segments(frame.len()) as u64);
    }

    /// A segment arrived that had no packet.
    #[inline]
    pub(crate) fn on_received_direct(&mut self) {
        self.segments_in += 1;
    }

    /// A segment leaves.
    #[inline]
    pub(crate) fn on_sent(&mut self, out: &SegmentOut) {
        let bytes = out.payload_len() as u64;
        if bytes == 0 {
            self.segments_out += 1;
            self.resets_out += u64::from(out.flags.contains(TcpFlags::RST));
            return;
        }
        let is_one = bytes <= u64::from(out.segment_bytes);
        let pieces = if is_one { 1 } else { out.pieces() as u64 };
        if out.is_repeated {
            self.repeated += pieces;
            self.repeated_bytes += bytes;
        } else {
            self.segments_out += pieces;
            self.text_segments_out += pieces;
            self.text_bytes_out += bytes;
        }
    }

    /// A connection went from one state to another (RFC 4022: what each number means).
    pub(crate) fn on_state(&mut self, from: State, to: State) {
        let is_open = |state| matches!(state, State::Established | State::CloseWait);
        match (is_open(from), is_open(to)) {
            (false, true) => self.established += 1,
            (true, false) => self.established -= 1,
            _ => {}
        }
        if to == State::Closed {
            self.established_resets += u64::from(is_open(from));
            self.attempt_fails += u64::from(matches!(from, State::SynSent | State::SynReceived));
        }
    }

    fn merge(&mut self, other: &Self) {
        self.active_opens += other.active_opens;
        self.passive_opens += other.passive_opens;
        self.attempt_fails += other.attempt_fails;
        self.established_resets += other.established_resets;
        self.established += other.established;
        self.segments_in += other.segments_in;
        self.segments_out += other.segments_out;
        self.text_segments_out += other.text_segments_out;
        self.text_bytes_out += other.text_bytes_out;
        self.repeated += other.repeated;
        self.repeated_bytes += other.repeated_bytes;
        self.resets_out += other.resets_out;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::SeqNum;

    #[test]
    fn states_move_the_gauge_and_ends_are_told_apart() {
        let mut tcp = TcpCounters::default();
        let mut go = |from, to| {
            tcp.on_state(from, to);
            (tcp.established, tcp.attempt_fails, tcp.established_resets)
        };
        assert_eq!(go(State::SynSent, State::Closed), (0, 1, 0));
        assert_eq!(go(State::SynReceived, State::Established), (1, 1, 0));
        assert_eq!(go(State::Established, State::CloseWait), (1, 1, 0));
        assert_eq!(go(State::CloseWait, State::Closed), (0, 1, 1));
        assert_eq!(go(State::SynSent, State::Established), (1, 1, 1));
        assert_eq!(go(State::Established, State::FinWait1), (0, 1, 1));
        assert_eq!(go(State::FinWait1, State::Closed), (0, 1, 1), "it had said its FIN");
    }

    #[test]
    fn what_leaves_again_is_counted_apart() {
        let mut tcp = TcpCounters::default();
        let mut out = SegmentOut::control(SeqNum(1), None, TcpFlags::RST);
        tcp.on_sent(&out);
        assert_eq!((tcp.segments_out, tcp.resets_out), (1, 1));
        out.flags = TcpFlags::ACK;
        (out.payload, out.segment_bytes) = (0..2_500, 1_000);
        tcp.on_sent(&out);
        out.is_repeated = true;
        tcp.on_sent(&out);
        assert_eq!((tcp.segments_out, tcp.text_segments_out, tcp.text_bytes_out), (4, 3, 2_500));
        assert_eq!((tcp.repeated, tcp.repeated_bytes, tcp.resets_out), (3, 2_500, 1));
    }
}
