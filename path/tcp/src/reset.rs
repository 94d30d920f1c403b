//! RST, SYN and guesses: what to believe, and what to answer (RFC 9293 §3.5.2, §3.10.7.1; RFC 5961).
//!
//! An attacker off the path must guess numbers. So a RST counts only exactly at RCV.NXT, anything else inside the
//! window and any SYN earns a challenge ACK, which only the real peer can use. Challenges are limited per
//! connection here, and per host by [`ChallengeBudget`], whose size is random so that it cannot serve as a side
//! channel (CVE-2016-5696).

use core::hash::Hasher;

use firelane_units::{DropReason, Instant, SeqNum};
use firelane_wire::TcpFlags;
use siphasher::sip::SipHasher13;

use crate::connection::Connection;
use crate::segment::{CloseReason, Disposition, Events, SegmentIn, SegmentOut, Verdict};
use crate::state::State;

/// The answer to a segment that belongs to no connection (RFC 9293 §3.10.7.1); a RST gets none.
pub fn reset_for(seg: &SegmentIn<'_>) -> Option<SegmentOut> {
    if seg.has(TcpFlags::RST) {
        return None;
    }
    Some(match seg.ack {
        Some(ack) => SegmentOut::control(ack, None, TcpFlags::RST),
        None => SegmentOut::control(SeqNum(0), Some(seg.end()), TcpFlags::RST),
    })
}

impl Connection {
    /// RFC 9293 §3.10.7.4 step 2 with RFC 5961 §3.2. It comes before the others because a RST carries no
    /// timestamp that could be checked (RFC 7323 §5.2) and is never answered with an ACK for being outside.
    pub(crate) fn check_reset(&mut self, now: Instant, seg: &SegmentIn<'_>) -> Verdict {
        if !seg.has(TcpFlags::RST) {
            return Ok(());
        }
        if seg.seq == self.receive.space.seq(self.receive.nxt) || self.is_at_fin(seg.seq) {
            return Err(self.on_reset());
        }
        if self.receive.is_in_window(seg.seq) {
            return Err(self.challenge(now, DropReason::Unacceptable));
        }
        Err(Disposition::drop(DropReason::OutOfWindow))
    }

    /// Whether `seq` is that of the peer's FIN, which has been taken. We differ from RFC 5961 §3.2, as Linux does: macOS ends a
    /// program's connections with a FIN and a RST of the same number, and hardly answers challenges.
    fn is_at_fin(&self, seq: SeqNum) -> bool {
        matches!(self.state, State::CloseWait | State::LastAck | State::Closing)
            && seq + 1 == self.receive.space.seq(self.receive.nxt)
    }

    /// The peer reset the connection, by a segment or fused with this end. We differ from RFC 9293 §3.10.7.4, as Linux does: in
    /// CLOSING and LAST-ACK the program hears of it, too, because the peer may not have taken the text before our FIN.
    pub fn on_reset(&mut self) -> Disposition {
        let reason = match self.state {
            State::SynReceived if self.active => CloseReason::Refused,
            State::TimeWait => CloseReason::Finished,
            State::CloseWait => CloseReason::BrokenPipe,
            _ => CloseReason::Reset,
        };
        self.forget();
        Disposition::closed(reason)
    }

    /// Step 4: a SYN in a synchronized state (RFC 5961 §4.2), whatever its number.
    pub(crate) fn check_syn(&mut self, now: Instant, seg: &SegmentIn<'_>) -> Verdict {
        if seg.has(TcpFlags::SYN) { Err(self.challenge(now, DropReason::Unacceptable)) } else { Ok(()) }
    }

    /// An ICMP error arrived that quotes a segment of ours beginning at `quoted`; `hard` errors say that trying
    /// again is useless. RFC 5927 §4: believed only if it quotes what is in flight, and it ends only a connection
    /// that is not synchronized, everywhere else retransmission decides (RFC 1122 §4.2.3.9 asked for more trust).
    /// The lane says `hard` of every error whose program wants to hear of them at once, and of a neighbour that was asked for in vain, as in
    /// Linux.
    /// What does not end the connection is its program's to hear if the wait ends in vain (RFC 9293 MUST-47), as on
    /// Linux: "no route to host" says more than "timed out".
    pub fn on_unreachable(&mut self, quoted: SeqNum, hard: bool) -> Disposition {
        let connecting = matches!(self.state, State::SynSent | State::SynReceived);
        let is_of_syn = connecting && quoted == self.send.space.initial();
        if !(hard && is_of_syn) {
            self.is_unreachable |= is_of_syn || self.has_in_flight(quoted);
            return Disposition::default();
        }
        self.forget();
        Disposition::closed(CloseReason::Unreachable)
    }

    /// Whether a segment of ours that begins at `quoted` is in flight: what an ICMP "too big" must quote before
    /// [`Connection::set_path_mss`] follows it (RFC 5927 §7.2).
    pub fn has_in_flight(&self, quoted: SeqNum) -> bool {
        let at = self.send.space.cursor(quoted, self.flight.nxt());
        at >= self.flight.una() as i64 && at < self.flight.nxt() as i64
    }

    /// A challenge ACK, if this connection may send one yet.
    pub(crate) fn challenge(&mut self, now: Instant, reason: DropReason) -> Disposition {
        let mut out = Disposition::drop(reason);
        if self.may_challenge(now) {
            let ack = Some(self.receive.space.seq(self.receive.nxt));
            let mut reply = SegmentOut::control(self.seq_without_text(), ack, TcpFlags::EMPTY);
            reply.window = self.receive.last_window();
            reply.options.timestamps = self.stamps.option(now);
            out.reply = Some(reply);
            out.events |= Events::CHALLENGE;
        }
        out
    }

    /// RFC 5961 §7 and the ACK-storm rule: so many answers per interval to what is not acceptable.
    pub(crate) fn may_challenge(&mut self, now: Instant) -> bool {
        let interval = self.config.challenge_interval;
        let last = self.challenged_at;
        if last == Instant::ZERO || now.saturating_since(last) >= interval {
            (self.challenged_at, self.challenges) = (now, 0);
        }
        let allowed = self.challenges < self.config.challenge_burst;
        self.challenges += u8::from(allowed);
        allowed
    }
}

/// How many challenge ACKs a host sends per second, with a random size: an attacker who counts those that come
/// back to himself learns nothing about other connections.
#[derive(Clone, Debug)]
pub struct ChallengeBudget {
    key: [u8; 16],
    per_second: u32,
    second: u64,
    left: u32,
}

impl ChallengeBudget {
    /// About `per_second` (half to one and a half of it), drawn with the secret `key`.
    pub fn new(key: [u8; 16], per_second: u32) -> Self {
        Self { key, per_second, second: u64::MAX, left: 0 }
    }

    /// Whether one more may leave.
    pub fn allow(&mut self, now: Instant) -> bool {
        let second = now.millis() / 1000;
        if second != self.second {
            let mut hasher = SipHasher13::new_with_key(&self.key);
            hasher.write_u64(second);
            let draw = hasher.finish() % u64::from(self.per_second.max(1));
            self.second = second;
            self.left = self.per_second / 2 + draw as u32;
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }
}

/// How many RSTs a host sends per second to segments of no connection (Solaris: `_rst_sent_rate`, 40).
#[derive(Clone, Debug)]
pub struct ResetBudget {
    per_second: u32,
    second: u64,
    left: u32,
}

impl ResetBudget {
    /// Solaris' default.
    pub const DEFAULT_RATE: u32 = 40;

    /// `per_second` of them.
    pub fn new(per_second: u32) -> Self {
        Self { per_second, second: u64::MAX, left: 0 }
    }

    /// `per_second` of them from the next second on; `u32::MAX` is no limit.
    pub fn set_rate(&mut self, per_second: u32) {
        self.per_second = per_second;
    }

    /// Whether one more may leave.
    pub fn allow(&mut self, now: Instant) -> bool {
        let second = now.millis() / 1000;
        if second != self.second {
            (self.second, self.left) = (second, self.per_second);
        }
        let allowed = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }

    /// Whether no more may leave in this second.
    pub fn is_spent(&self, now: Instant) -> bool {
        self.left == 0 && self.second == now.millis() / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_wire::{Ecn, TcpOptions};

    fn seg(flags: TcpFlags, ack: Option<u32>, payload: &[u8]) -> SegmentIn<'_> {
        SegmentIn {
            seq: SeqNum(100),
            ack: ack.map(SeqNum),
            flags,
            window: 0,
            urgent: 0,
            options: TcpOptions::EMPTY,
            payload,
            ecn: Ecn::NotCapable,
        }
    }

    /// RFC 9293 §3.10.7.1.
    #[test]
    fn answers_without_a_connection() {
        let (syn, ack, fin) = (TcpFlags::SYN, TcpFlags::ACK, TcpFlags::FIN);
        for (flags, acked, payload, answer) in [
            (syn, None, &b""[..], Some((0, Some(101)))),
            (TcpFlags::EMPTY, None, b"abc", Some((0, Some(103)))),
            (syn.with(fin), None, b"abc", Some((0, Some(105)))),
            (ack, Some(7), b"", Some((7, None))),
            (ack.with(fin), Some(7), b"x", Some((7, None))),
            (TcpFlags::RST, None, b"", None),
            (TcpFlags::RST.with(ack), Some(7), b"", None),
        ] {
            let reply = reset_for(&seg(flags, acked, payload));
            let numbers = reply.as_ref().map(|out| (out.seq.0, out.ack.map(|n| n.0)));
            assert_eq!(numbers, answer, "{flags:?}");
            assert!(reply.is_none_or(|out| out.flags.contains(TcpFlags::RST)));
        }
    }

    #[test]
    fn the_size_of_a_challenge_budget_is_no_constant() {
        let mut sizes = std::collections::HashSet::new();
        let mut budget = ChallengeBudget::new([7; 16], 1000);
        for second in 0..20 {
            let now = Instant::from_secs(second);
            let size = (0..2000).take_while(|_| budget.allow(now)).count();
            assert!((500..1500).contains(&size), "{size}");
            sizes.insert(size);
        }
        assert!(sizes.len() > 15, "{sizes:?}");
    }

    #[test]
    fn resets_are_limited_per_second() {
        let mut budget = ResetBudget::new(2);
        let allowed = [0, 1, 999, 1000, 1001, 1999].map(|ms| budget.allow(Instant::from_millis(ms)));
        assert_eq!(allowed, [true, true, false, true, true, false]);
    }
}
