//! A TCP connection as somebody between its ends sees it: which sequence numbers may come, and how far it is.
//!
//! The bounds are those of van Rooij, "Real Stateful TCP Packet Filtering in IP Filter" (2000): what an end sends lies
//! below what the other has offered, not further back than the other's largest window, and acknowledges neither what was never sent nor
//! what is long gone. Windows are scaled as both SYNs say (RFC 7323 §2).

use core::time::Duration;

use firelane_units::SeqNum;
use firelane_wire::TcpView;

/// How far an acknowledgement may be behind: what was sent last may still be under way (ipf's MAXACKWINDOW).
const ACK_SKEW: i64 = 66_000;
/// The largest shift of RFC 7323 §2.3, for a connection whose SYNs were not seen.
const SHIFT_MAX: u8 = 14;

/// One end.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// Behind the last that it has sent; while that is nothing, behind the SYN that it may answer.
    end: u32,
    /// How far the other lets it send; while it has sent nothing, what comes next of a connection that it alone remembers.
    most: u32,
    /// Its largest window.
    window: u32,
}

/// What an end has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Has {
    #[default]
    SentNothing,
    Sent,
    Finished,
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Phase {
    /// One end has asked.
    #[default]
    Asked,
    /// The other has answered.
    Answered,
    /// Both have sent.
    Established,
    /// One has sent all.
    HalfClosed,
    /// Both have.
    Closed,
    /// Somebody has reset it.
    Reset,
}

impl Phase {
    /// How long it lasts without packets (ipf's `fr_tcp…timeout`).
    pub(crate) const fn lasts(self) -> Duration {
        Duration::from_secs(match self {
            Self::Asked | Self::Answered | Self::Closed => 240,
            Self::Established => 5 * 24 * 3600,
            Self::HalfClosed => 2 * 3600,
            Self::Reset => 30,
        })
    }
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tracked {
    sides: [Side; 2],
    /// What an end acknowledged last that was not all: there the other one resets what it does not know (RFC 5961 §3.2). Of both ends, for
    /// their numbers have nothing in common.
    acked: u32,
    /// By how much each end's windows are shifted.
    shifts: [u8; 2],
    has: [Has; 2],
    phase: Phase,
    /// Each segment must begin where the last one ended.
    strict: bool,
    /// Both SYNs had a window scale, or neither was seen.
    scales: bool,
    /// Both ends have shown that they are there.
    has_met: bool,
}

impl Tracked {
    /// From the first segment that is seen, which the end 0 has sent.
    pub(crate) fn new(segment: &TcpView<'_>, strict: bool) -> Self {
        let mut tracked = Self { strict, ..Self::default() };
        let (flags, scale) = (segment.flags(), segment.options().window_scale);
        let is_begin = flags.syn() && !flags.ack();
        // An answer scales if what it answers does (RFC 7323 §2.2), but does not say by how much.
        tracked.scales = !flags.syn() || scale.is_some();
        tracked.shifts = match scale.map(|scale| scale.min(SHIFT_MAX)) {
            _ if !flags.syn() => [SHIFT_MAX; 2],
            Some(scale) if is_begin => [scale, 0],
            Some(scale) => [scale, SHIFT_MAX],
            None => [0; 2],
        };
        tracked.has[0] = Has::Sent;
        let offered = tracked.offers(0, segment);
        let [from, to] = &mut tracked.sides;
        to.end = segment.seq().0.wrapping_add(1);
        if !is_begin {
            // The other end has offered what this one uses, and has sent what this one acknowledges.
            to.end = segment.ack_field().0;
            tracked.has[1] = Has::Sent;
            to.window = u32::from(u16::MAX) << tracked.shifts[1];
        }
        from.end = end(segment);
        from.most = from.end.wrapping_add(if is_begin { 0 } else { to.window });
        from.window = offered.max(1);
        to.most = if is_begin { from.end } else { segment.ack_field().0.wrapping_add(from.window) };
        tracked.follow(0, segment);
        tracked
    }

    /// How far it is.
    pub(crate) const fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether both ends have sent all, or one has reset it.
    #[inline]
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Closed | Phase::Reset)
    }

    /// Whether nobody has shown that both ends are there.
    pub(crate) const fn is_half_open(&self) -> bool {
        !self.has_met
    }

    /// A segment of the end `at`: whether it may be one of this connection's, in which case it is followed.
    pub(crate) fn take(&mut self, at: usize, segment: &TcpView<'_>) -> bool {
        let is_answer = self.answers(at, segment);
        if !is_answer && !self.asks_again(at, segment) && !self.is_in_window(at, segment) {
            return self.is_of_forgotten(at, segment);
        }
        if !self.believes(at, segment) {
            return true;
        }
        let (offered, has_other) = (self.offers(at, segment), self.has_sent(1 - at));
        let (from, to) = self.pair(at);
        from.window = from.window.max(offered).max(1);
        let sent = end(segment);
        if is_answer || ahead(sent, from.end) > 0 {
            from.end = sent;
        }
        if segment.flags().ack() {
            let most = segment.ack_field().0.wrapping_add(offered.max(1));
            if !has_other || ahead(most, to.most) > 0 {
                to.most = most;
            }
            if segment.ack_field().0 != to.end {
                self.acked = segment.ack_field().0;
            }
        }
        if !self.has_sent(at) {
            self.has[at] = Has::Sent;
        }
        self.follow(at, segment);
        true
    }

    /// The other end's first: it says where its own numbers begin, and whether both scale.
    fn answers(&mut self, at: usize, segment: &TcpView<'_>) -> bool {
        if self.has_sent(at) || !segment.flags().syn() {
            return false;
        }
        let scale = segment.options().window_scale.filter(|_| self.scales);
        if segment.flags().ack() && !self.takes_syn(at, segment) {
            return false;
        }
        let (from, to) = self.pair(at);
        if segment.flags().ack() {
            // Text of the SYN that it leaves comes again.
            to.end = segment.ack_field().0;
        }
        from.most = end(segment).wrapping_add(to.window);
        match scale {
            Some(scale) => self.shifts[at] = scale.min(SHIFT_MAX),
            None => self.shifts = [0; 2],
        }
        true
    }

    /// Whoever has asked asks again before there is an answer: if for another connection, that is the one to follow, for nobody else
    /// knows of the first.
    fn asks_again(&mut self, at: usize, segment: &TcpView<'_>) -> bool {
        let flags = segment.flags();
        let is_question = at == 0 && flags.syn() && !flags.ack() && !flags.rst();
        if !is_question || self.phase != Phase::Asked || self.has_sent(1) {
            return false;
        }
        // The same without the text that it had: the answer may be to either (RFC 7413 §4.1.3).
        if segment.seq().0.wrapping_add(1) != self.sides[1].end {
            *self = Self::new(segment, self.strict);
        }
        true
    }

    /// RFC 9293 §3.5.1: who is asked for a connection and has another with these names acknowledges that, and whoever has forgotten it
    /// resets it. Neither says anything of the connection that is asked for.
    fn is_of_forgotten(&mut self, at: usize, segment: &TcpView<'_>) -> bool {
        let flags = segment.flags();
        if self.phase != Phase::Asked || self.has_sent(1) {
            return false;
        }
        match (at, flags.rst()) {
            (1, false) if flags.ack() && segment.sequence_len() == 0 => {
                self.sides[1].most = segment.ack_field().0;
                true
            }
            (0, true) => segment.seq().0 == self.sides[1].most,
            _ => false,
        }
    }

    /// Whether what an end acknowledges that has sent nothing is the other's SYN, with as much of its text as it likes (RFC 7413 §4.2).
    fn takes_syn(&self, at: usize, segment: &TcpView<'_>) -> bool {
        let (ack, [own, other]) = (segment.ack_field().0, [&self.sides[at], &self.sides[1 - at]]);
        ahead(ack, own.end) >= 0 && ahead(other.end, ack) >= 0
    }

    fn is_in_window(&self, at: usize, segment: &TcpView<'_>) -> bool {
        let [from, to] = [&self.sides[at], &self.sides[1 - at]];
        let flags = segment.flags();
        if !self.has_sent(at) {
            // Before it has sent a SYN an end may refuse, and no more.
            return flags.rst() && flags.ack() && self.takes_syn(at, segment);
        }
        let (seq, end) = (segment.seq().0, end(segment));
        // Who asks again begins anew: it is the same SYN.
        let is_below = ahead(from.most, end) >= 0;
        let is_above = ahead(end, from.end.wrapping_sub(to.window)) >= 0;
        let skew = ahead(to.end, segment.ack_field().0);
        let is_known = !flags.ack() || !self.has_sent(1 - at) || {
            let least = ACK_SKEW << self.shifts[1 - at].min(SHIFT_MAX);
            (-ACK_SKEW..=least.max(i64::from(to.window))).contains(&skew)
        };
        let is_next = !self.strict || ahead(seq, from.end) == 0 || end == from.end;
        is_below && is_above && is_known && is_next
    }

    /// Whether a segment inside the window says something of the connection. Of one that both ends have shown to be there a reset does
    /// only with a number that the other end would believe: any other one in the window is easily guessed, and answered by the end itself
    /// (RFC 5961 §3.2).
    fn believes(&self, at: usize, segment: &TcpView<'_>) -> bool {
        let is_theirs = self.has_met && matches!(self.phase, Phase::Established | Phase::HalfClosed);
        let seq = segment.seq().0;
        !is_theirs || !segment.flags().rst() || seq == self.sides[at].end || seq == self.acked
    }

    /// How far the connection is after a segment.
    fn follow(&mut self, at: usize, segment: &TcpView<'_>) {
        let flags = segment.flags();
        if flags.fin() {
            self.has[at] = Has::Finished;
        }
        let finished = self.has.iter().filter(|has| **has == Has::Finished).count();
        // Whatever one end sends alone, anybody can send in its name.
        self.has_met |= !flags.rst()
            && !flags.syn()
            && match self.phase {
                Phase::Asked => at == 1,
                Phase::Answered => at == 0 && flags.ack(),
                _ => false,
            };
        self.phase = match (self.phase, finished) {
            _ if flags.rst() => Phase::Reset,
            // A SYN after the end is a new connection with the same names.
            (phase @ (Phase::Reset | Phase::Closed), _) => phase,
            (Phase::Asked, _) if at == 1 && flags.syn() => Phase::Answered,
            (phase, _) if !self.has_met => phase,
            (_, 2) => Phase::Closed,
            (_, 1) => Phase::HalfClosed,
            _ => Phase::Established,
        };
    }

    /// Whether an end has sent something of this connection.
    pub(crate) fn has_sent(&self, at: usize) -> bool {
        self.has[at] != Has::SentNothing
    }

    /// The window that a segment offers; a SYN's is never scaled.
    fn offers(&self, at: usize, segment: &TcpView<'_>) -> u32 {
        let shift = if segment.flags().syn() { 0 } else { self.shifts[at] };
        u32::from(segment.window()) << shift
    }

    fn pair(&mut self, at: usize) -> (&mut Side, &mut Side) {
        let [one, two] = &mut self.sides;
        if at == 0 { (one, two) } else { (two, one) }
    }
}

/// Behind the last that a segment carries.
fn end(segment: &TcpView<'_>) -> u32 {
    segment.seq().0.wrapping_add(segment.sequence_len())
}

/// How far `one` is ahead of `two`.
fn ahead(one: u32, two: u32) -> i64 {
    i64::from(SeqNum(one).offset_from(SeqNum(two)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::Port;
    use firelane_wire::{TcpFlags, TcpOptions, TcpRepr};

    const SYN: TcpFlags = TcpFlags::SYN;
    const ACK: TcpFlags = TcpFlags::ACK;

    /// A segment's bytes.
    fn segment(flags: TcpFlags, seq: u32, ack: u32, window: u16, len: usize, scale: Option<u8>) -> Vec<u8> {
        let options = TcpOptions { window_scale: scale, ..TcpOptions::EMPTY };
        let ack = flags.ack().then_some(SeqNum(ack));
        let ports = (Port(1), Port(2));
        let repr = TcpRepr {
            src_port: ports.0,
            dst_port: ports.1,
            seq: SeqNum(seq),
            ack,
            flags,
            window,
            urgent: 0,
            options,
        };
        let mut bytes = vec![0; repr.emitted_len() + len];
        repr.emit(&mut bytes);
        bytes
    }

    fn take(tracked: &mut Tracked, at: usize, bytes: &[u8]) -> bool {
        tracked.take(at, &TcpView::parse(bytes).unwrap())
    }

    /// A connection whose ends have numbers from 1000 and 5000 and windows of 1000 and 2000, scaled by 2 and 3.
    fn established() -> Tracked {
        let syn = segment(SYN, 999, 0, 1000, 0, Some(2));
        let mut tracked = Tracked::new(&TcpView::parse(&syn).unwrap(), false);
        assert_eq!(tracked.phase(), Phase::Asked);
        assert!(take(&mut tracked, 1, &segment(SYN.with(ACK), 4999, 1000, 2000, 0, Some(3))));
        assert_eq!(tracked.phase(), Phase::Answered);
        assert!(take(&mut tracked, 0, &segment(ACK, 1000, 5000, 250, 0, None)));
        assert_eq!(tracked.phase(), Phase::Established);
        tracked
    }

    #[test]
    fn what_lies_in_both_windows_passes_and_nothing_else() {
        let cases: [(usize, u32, u32, usize, bool); 12] = [
            (0, 1000, 5000, 100, true),
            // As far as the SYN's window lets it, and no further.
            (0, 1000, 5000, 2000, true),
            (0, 1000, 5000, 2001, false),
            (0, 40_000, 5000, 0, false),
            // Not further back than the other's largest window.
            (0, 1000_u32.wrapping_sub(2000), 5000, 0, true),
            (0, 1000_u32.wrapping_sub(2001), 5000, 0, false),
            // What was never sent is not acknowledged, but for what is under way.
            (0, 1000, 5000 + 66_000, 0, true),
            (0, 1000, 5000 + 66_001, 0, false),
            (1, 5000, 1000, 1000, true),
            (1, 5000, 1000, 1001, false),
            (1, 5000 - 1000, 1000, 0, true),
            (1, 5000 - 1001, 1000, 0, false),
        ];
        for (at, seq, ack, len, passes) in cases {
            let mut tracked = established();
            let bytes = segment(ACK, seq, ack, 250, len, None);
            assert_eq!(take(&mut tracked, at, &bytes), passes, "{at} {seq} {ack} {len}");
        }
    }

    #[test]
    fn a_window_is_scaled_once_both_have_said_so() {
        let mut tracked = established();
        assert!(take(&mut tracked, 1, &segment(ACK, 5000, 1000, 2000, 0, None)));
        assert!(take(&mut tracked, 0, &segment(ACK, 1000 + 15_000, 5000, 250, 1000, None)), "2000 << 3");
        let syn = segment(SYN, 999, 0, 1000, 0, Some(2));
        let mut plain = Tracked::new(&TcpView::parse(&syn).unwrap(), false);
        assert!(take(&mut plain, 1, &segment(SYN.with(ACK), 4999, 1000, 2000, 0, None)));
        assert!(take(&mut plain, 1, &segment(ACK, 5000, 1000, 2000, 0, None)));
        assert!(!take(&mut plain, 0, &segment(ACK, 1000 + 15_000, 5000, 250, 1000, None)), "one did not");
    }

    #[test]
    fn a_connection_ends_by_two_fins_or_a_reset_inside_the_window() {
        let fin = ACK.with(TcpFlags::FIN);
        let mut tracked = established();
        assert!(take(&mut tracked, 0, &segment(fin, 1000, 5000, 250, 0, None)));
        assert_eq!(tracked.phase(), Phase::HalfClosed);
        assert!(take(&mut tracked, 1, &segment(fin, 5000, 1001, 250, 0, None)));
        assert_eq!(tracked.phase(), Phase::Closed);
        let mut tracked = established();
        assert!(!take(&mut tracked, 1, &segment(TcpFlags::RST, 90_000, 0, 0, 0, None)), "out of window");
        assert_eq!(tracked.phase(), Phase::Established);
        assert!(take(&mut tracked, 1, &segment(TcpFlags::RST, 5000, 0, 0, 0, None)));
        assert_eq!(tracked.phase(), Phase::Reset);
    }

    #[test]
    fn before_its_syn_an_end_may_only_refuse() {
        let syn = segment(SYN, 999, 0, 1000, 0, None);
        let new = || Tracked::new(&TcpView::parse(&syn).unwrap(), false);
        assert!(!take(&mut new(), 1, &segment(ACK, 4999, 1000, 2000, 10, None)));
        assert!(!take(&mut new(), 1, &segment(SYN.with(ACK), 4999, 77, 2000, 0, None)), "another's answer");
        assert!(
            !take(&mut new(), 1, &segment(TcpFlags::RST, 0, 0, 0, 0, None)),
            "RFC 9293: it must acknowledge"
        );
        let mut refused = new();
        assert!(take(&mut refused, 1, &segment(TcpFlags::RST.with(ACK), 0, 1000, 0, 0, None)));
        assert_eq!(refused.phase(), Phase::Reset);
        assert!(take(&mut new(), 0, &segment(SYN, 999, 0, 1000, 0, None)), "it asks again");
    }

    #[test]
    fn who_is_strict_takes_only_what_is_next() {
        let syn = segment(SYN, 999, 0, 1000, 0, None);
        let mut tracked = Tracked::new(&TcpView::parse(&syn).unwrap(), true);
        assert!(take(&mut tracked, 1, &segment(SYN.with(ACK), 4999, 1000, 2000, 0, None)));
        assert!(take(&mut tracked, 0, &segment(ACK, 1000, 5000, 1000, 100, None)));
        assert!(!take(&mut tracked, 0, &segment(ACK, 1200, 5000, 1000, 100, None)), "a hole");
        assert!(take(&mut tracked, 0, &segment(ACK, 1100, 5000, 1000, 100, None)));
        assert!(take(&mut tracked, 0, &segment(ACK, 1100, 5000, 1000, 100, None)), "once more");
    }

    #[test]
    fn a_connection_that_was_there_before_is_followed_from_where_it_is() {
        let middle = segment(ACK, 70_000, 90_000, 500, 100, None);
        let mut tracked = Tracked::new(&TcpView::parse(&middle).unwrap(), false);
        assert_eq!(tracked.phase(), Phase::Asked, "the other end is not known to be there");
        assert!(take(&mut tracked, 1, &segment(ACK, 90_000, 70_100, 500, 1400, None)));
        assert_eq!(tracked.phase(), Phase::Established);
        assert!(take(&mut tracked, 0, &segment(ACK, 70_100, 91_400, 500, 1400, None)));
    }

    #[test]
    fn who_asks_for_another_connection_before_an_answer_is_followed() {
        let new = |flags, ack| {
            Tracked::new(&TcpView::parse(&segment(flags, 999, ack, 1000, 100, None)).unwrap(), true)
        };
        let again = |seq, len, scale| segment(SYN, seq, 0, 3000, len, scale);
        let answer = |ack| segment(SYN.with(ACK), 4999, ack, 2000, 0, Some(3));
        let mut asked = new(SYN, 0);
        assert!(take(&mut asked, 0, &again(70_000, 0, Some(2))));
        assert!(!take(&mut asked, 1, &answer(1000)), "to what it asked for no more");
        assert!(take(&mut asked, 1, &answer(70_001)));
        assert!(take(&mut asked, 1, &segment(ACK, 5000, 70_001, 2000, 3000, None)), "its window");
        assert!(!take(&mut asked, 0, &again(80_000, 0, None)), "once it is answered");
        assert!(take(&mut asked, 0, &segment(ACK, 70_001, 8000, 1000, 0, None)));
        assert!(!take(&mut asked, 0, &again(80_000, 0, None)), "and established");
        // The same once more without text (RFC 7413 section 4.1.3): the answer may be to either.
        for ack in [1000, 1100] {
            let mut asked = new(SYN, 0);
            assert!(take(&mut asked, 0, &again(999, 0, None)));
            assert!(take(&mut asked, 1, &answer(ack)), "{ack}");
        }
        assert!(
            !take(&mut new(ACK, 4000), 0, &again(70_000, 0, None)),
            "what was there before may be established"
        );
        assert!(!take(&mut new(SYN, 0), 0, &segment(SYN.with(TcpFlags::RST), 70_000, 0, 0, 0, None)));
    }

    /// RFC 7413 section 4.2: a server need not take the text of a SYN.
    #[test]
    fn a_server_may_leave_a_syns_text() {
        let syn = segment(SYN, 999, 0, 1000, 100, None);
        let new = |strict| Tracked::new(&TcpView::parse(&syn).unwrap(), strict);
        for (ack, is_its) in [(999, false), (1000, true), (1050, true), (1100, true), (1101, false)] {
            let mut answered = new(true);
            let bytes = segment(SYN.with(ACK), 4999, ack, 2000, 0, None);
            assert_eq!(take(&mut answered, 1, &bytes), is_its, "{ack}");
            let again = segment(ACK, ack, 5000, 1000, 100, None);
            assert_eq!(take(&mut answered, 0, &again), is_its, "what it left comes again, from {ack} on");
            let bytes = segment(TcpFlags::RST.with(ACK), 0, ack, 0, 0, None);
            assert_eq!(take(&mut new(false), 1, &bytes), is_its, "it refuses with {ack}");
        }
    }
}
