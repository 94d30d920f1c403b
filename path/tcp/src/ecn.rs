//! RFC 3168: explicit congestion notification, both halves.
//!
//! A router that is about to drop marks instead: the receiver echoes the mark (ECE) on every ACK until the sender
//! says that it has slowed down (CWR). Owns what the handshake agreed on and the echo; called by `handshake` and
//! `syn` for the agreement, by `receive` for what arrives, and by `send` for what leaves. The reduction itself is
//! `recovery`'s.
//!
//! DCTCP (RFC 8257 §3.2) echoes each mark exactly instead: ECE says whether the text was marked that arrived
//! last, and a change is acknowledged at once.

use firelane_units::Instant;
use firelane_wire::{Ecn, TcpFlags};

use crate::config::{TcpConfig, Willing};
use crate::congestion::Algorithm;
use crate::connection::{Connection, Rings};
use crate::segment::{Disposition, SegmentIn, SegmentOut};

/// The bits of a SYN that asks for ECN (RFC 3168 §6.1.1).
pub(crate) const ASKS: TcpFlags = TcpFlags::ECE.with(TcpFlags::CWR);

/// The bits that mean something else in a segment that has SYN.
pub(crate) const OF_SYN: TcpFlags = ASKS.with(TcpFlags::SYN);

/// Whether a SYN asks for ECN, credibly: none may carry ECT (§6.1.1), so one that does met something that sets
/// the bits at will. With AE set it means RFC 9768, and this is the answer that it foresees.
pub(crate) fn is_asked(syn: &SegmentIn<'_>) -> bool {
    syn.flags.contains(ASKS) && syn.ecn == Ecn::NotCapable
}

/// Whether who listens with `config` agrees to a SYN that asks. DCTCP is nothing without.
pub(crate) fn is_accepted(config: &TcpConfig) -> bool {
    config.ecn != Willing::Never || config.flight.algorithm == Algorithm::Dctcp
}

/// What both ends agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Agreement {
    #[default]
    None,
    /// Our SYN asked.
    Asked,
    /// Both take part.
    Made,
}

/// ECN's part of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnState {
    agreement: Agreement,
    /// A mark arrived and the peer has not said CWR: every ACK carries ECE.
    echo: bool,
    /// The peer has sent something that could be marked.
    seen: bool,
    /// The window was reduced before a silence, and the peer has yet to hear of it (CWR).
    owes_cwr: bool,
}

impl EcnState {
    /// Whether both ends take part.
    #[inline]
    pub(crate) fn is_on(self) -> bool {
        self.agreement == Agreement::Made
    }

    /// Whether the peer has sent something that could be marked.
    pub(crate) fn is_seen(self) -> bool {
        self.seen
    }

    /// The bits of our SYN. One that is repeated does not ask again: the path may lose those that do
    /// (§6.1.1.1), and whoever has sent one that does not ask takes no part.
    pub(crate) fn ask(&mut self, wanted: bool, is_first: bool) -> TcpFlags {
        if wanted && is_first {
            self.agreement = Agreement::Asked;
            return ASKS;
        }
        self.agreement = Agreement::None;
        TcpFlags::EMPTY
    }

    /// The peer's SYN asked, and we agree.
    pub(crate) fn agree(&mut self) {
        self.agreement = Agreement::Made;
    }

    /// The peer's SYN crosses ours. Whoever has sent one that does not ask takes no part, so both must have (§6.1.1).
    pub(crate) fn take_crossing_syn(&mut self, asks: bool) {
        let was_asked = self.agreement == Agreement::Asked;
        self.agreement = if asks && was_asked { Agreement::Made } else { Agreement::None };
    }

    /// The bit of our SYN-ACK.
    pub(crate) fn answer(self) -> TcpFlags {
        if self.is_on() { TcpFlags::ECE } else { TcpFlags::EMPTY }
    }

    /// The peer's SYN-ACK: ECE alone agrees; with CWR it is our own bits, sent back by something that copies
    /// what it does not know (§6.1.1).
    pub(crate) fn take_syn_ack(&mut self, flags: TcpFlags) {
        let agrees = flags.contains(TcpFlags::ECE) && !flags.contains(TcpFlags::CWR);
        let was_asked = self.agreement == Agreement::Asked;
        self.agreement = if agrees && was_asked { Agreement::Made } else { Agreement::None };
    }

    /// The bit of the next segment with an ACK.
    #[inline]
    pub(crate) fn echo(self) -> TcpFlags {
        if self.echo { TcpFlags::ECE } else { TcpFlags::EMPTY }
    }
}

impl Connection {
    /// Whether our SYN asks for ECN. DCTCP is nothing without it.
    pub(crate) fn wants_ecn(&self) -> bool {
        self.config.ecn == Willing::Active || self.flight.algorithm() == Algorithm::Dctcp
    }

    /// The bits of the SYN that leaves now.
    pub(crate) fn ask_for_ecn(&mut self) -> TcpFlags {
        let wanted = self.wants_ecn();
        self.ecn.ask(wanted, self.syn_retries == 0)
    }

    /// A SYN that asks for ECN is agreed to.
    pub(crate) fn take_ecn_of_syn(&mut self, syn: &SegmentIn<'_>) {
        if is_asked(syn) && is_accepted(&self.config) {
            self.ecn.agree();
        }
    }

    /// Text of the window arrived: was it marked, and has the peer slowed down?
    #[inline]
    pub(crate) fn take_ecn(
        &mut self,
        now: Instant,
        seg: &SegmentIn<'_>,
        rings: &Rings<'_>,
        out: &mut Disposition,
    ) {
        if !self.ecn.is_on() {
            return;
        }
        if seg.ecn != Ecn::NotCapable {
            self.ecn.seen = true;
            let segment = self.receive.segment();
            self.troubles().on_ecn(seg.ecn, seg.payload.len(), segment);
        }
        let is_marked = seg.ecn == Ecn::Congested;
        if self.flight.algorithm() == Algorithm::Dctcp {
            self.echo_exactly(now, is_marked, rings, out);
            return;
        }
        if seg.has(TcpFlags::CWR) {
            // §6.1.3: the echo ends, unless this segment was marked too. The peer's window may be down to one
            // segment, so it hears at once.
            self.ecn.echo = false;
            self.receive.ack.demand();
        }
        if is_marked && !self.ecn.echo {
            self.ecn.echo = true;
            self.receive.ack.demand();
        }
    }

    /// RFC 8257 §3.2. What came before the change is acknowledged by itself, so that the sender counts exactly.
    fn echo_exactly(&mut self, now: Instant, is_marked: bool, rings: &Rings<'_>, out: &mut Disposition) {
        if is_marked == self.ecn.echo {
            return;
        }
        if self.receive.ack.is_owed() {
            out.reply = Some(self.bare_ack(now, rings));
        }
        self.ecn.echo = is_marked;
        self.receive.ack.demand();
    }

    /// What a segment with new text carries beside it: ECT(0) in the IP header, and CWR if it is the first since
    /// the window was reduced. Nothing else may be marked: no repeated text, probe, bare ACK or SYN (§6.1.4 to
    /// §6.1.6).
    #[inline]
    pub(crate) fn put_ecn(&mut self, out: &mut SegmentOut) {
        if !self.ecn.is_on() {
            return;
        }
        out.ecn = Ecn::Capable0;
        if core::mem::take(&mut self.ecn.owes_cwr) {
            self.flight.renew_reduction();
        }
        if self.flight.take_reduced() {
            out.flags |= TcpFlags::CWR;
        }
    }

    /// Where nothing is out, the books of what was sent may end: that the peer has yet to hear of a reduction stays known.
    pub(crate) fn keep_cwr(&mut self) {
        self.ecn.owes_cwr |= self.ecn.is_on() && self.flight.is_empty() && self.flight.take_reduced();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        for policy in Willing::ALL {
            assert_eq!(Willing::from_word(policy.word()), Some(policy));
        }
        assert_eq!(Willing::from_word("always"), None);
    }

    /// RFC 3168 §6.1.1 and §6.1.1.1: (asked, SYNs sent, bits of the SYN-ACK) -> agreed.
    #[test]
    fn what_a_syn_ack_means() {
        let (ece, cwr, none) = (TcpFlags::ECE, TcpFlags::CWR, TcpFlags::EMPTY);
        for (wanted, syns, answer, agreed) in [
            (true, 1, ece, true),
            (true, 1, ASKS, false),
            (true, 1, none, false),
            (true, 1, cwr, false),
            (true, 2, ece, false),
            (false, 1, ece, false),
        ] {
            let mut state = EcnState::default();
            for n in 0..syns {
                assert_eq!(state.ask(wanted, n == 0), if wanted && n == 0 { ASKS } else { none });
            }
            state.take_syn_ack(answer);
            assert_eq!(state.is_on(), agreed, "{wanted} {syns} {answer:?}");
        }
    }
}
