//! One session: the two ways of a conversation whose ends are others inside than outside, how far it is, and when it ends.
//!
//! TCP's times are RFC 5382 REQ-5's, with RFC 7857 §2: a reset only shortens a connection's time, and what comes after it
//! shows that it was not the end. Whether segments are in the window is the filter's question (`keep state`). What has no handshake is
//! a conversation once who has asked asks again behind an answer, or is inside and is answered for longer: a question from outside and its
//! answers may have come in anybody's name.

use core::num::NonZeroU16;
use core::time::Duration;

use firelane_table::Kept;
use firelane_units::{Direction, Instant, NatLimits};
use firelane_wire::{IpProtocol, TcpFlags};

use crate::tuple::Tuple;

/// How far a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// One end has sent.
    Asked,
    /// The other has answered, and the first not yet.
    Answered,
    /// Both are there.
    Established,
    /// Both have sent all.
    Closed,
    /// Somebody has reset it.
    Reset,
}

impl Phase {
    /// Its word in lists.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Answered => "answered",
            Self::Established => "established",
            Self::Closed => "closed",
            Self::Reset => "reset",
        }
    }
}

/// A conversation. A packet with the ends of `keys[way]` gets those of the other key, reversed.
#[derive(Debug)]
pub(crate) struct Session {
    /// What arrives here, of each way.
    pub(crate) keys: [Tuple; 2],
    pub(crate) ends: Instant,
    pub(crate) number: u64,
    /// Where each way's packets change: on their way in to this netstack, or out of it.
    pub(crate) at: [Direction; 2],
    /// The rule that made it.
    pub(crate) rule: u32,
    /// The mappings that stand while it does.
    pub(crate) mappings: [u32; 2],
    /// For how many seconds its rule lets it last, forth and back.
    pub(crate) age: Option<(u32, u32)>,
    /// The largest segment that its rule lets SYNs offer.
    pub(crate) mss: Option<NonZeroU16>,
    phase: Phase,
    /// When its first packet came.
    began: Instant,
    /// It is of two inside: what goes forth leaves in its sender's names outside, by a session of its own.
    pub(crate) is_turned: bool,
    /// Both ends have shown that they are there.
    has_met: bool,
    has_finished: [bool; 2],
}

/// No mapping.
pub(crate) const NO_MAPPING: u32 = u32::MAX;

// What a packet of a session waits for is two cache lines.
const _: () = assert!(size_of::<Option<Session>>() <= 128);

/// How long a question of UDP and its answer last, if they are all, to a port that is well known: short ones alone go there, or those that are soon
/// more than one question (RFC 4787 REQ-5 a).
const UDP_QUESTION: Duration = Duration::from_secs(30);
const WELL_KNOWN: u16 = 1023;
/// Who is answered from outside for longer than this without asking again is sent a stream.
const STREAM: Duration = Duration::from_secs(2);

impl Kept for Session {
    #[inline]
    fn ends(&self) -> Instant {
        self.ends
    }

    fn is_half_open(&self) -> bool {
        !self.has_met
    }

    #[inline]
    fn is_spent(&self) -> bool {
        match self.phase {
            Phase::Closed => true,
            // RFC 7857 §2.2: anybody can send a reset, whose numbers nobody asks here. What both ends have shown to be theirs waits for
            // what comes after it.
            Phase::Reset => !self.has_met || self.has_finished == [true; 2],
            _ => false,
        }
    }
}

impl Session {
    /// What a first packet begins; it ends at once unless somebody takes it on ([`renew`](Self::renew)).
    pub(crate) const fn new(keys: [Tuple; 2], at: [Direction; 2], mappings: [u32; 2]) -> Self {
        Self {
            keys,
            ends: Instant::ZERO,
            number: 0,
            at,
            rule: 0,
            mappings,
            age: None,
            mss: None,
            phase: Phase::Asked,
            began: Instant::ZERO,
            is_turned: false,
            has_met: false,
            has_finished: [false; 2],
        }
    }

    pub(crate) const fn phase(&self) -> Phase {
        self.phase
    }

    /// What a packet of a way gets for its ends.
    #[inline]
    pub(crate) const fn ends_of(&self, way: usize) -> Tuple {
        self.keys[1 - way].reversed()
    }

    /// Whether packets of a way go inside because somebody outside has begun to send, and nobody has shown that both ends are there: the
    /// netstack may have asked him since.
    #[inline]
    pub(crate) fn may_be_in_hosts_way(&self, way: usize) -> bool {
        way == 0 && !self.has_met && self.at[0] == Direction::In && self.mappings == [NO_MAPPING; 2]
    }

    /// Whether a segment opens a new connection with the names of one that is over.
    #[inline]
    pub(crate) fn is_over(&self, flags: TcpFlags) -> bool {
        flags.syn() && !flags.ack() && self.is_spent()
    }

    /// A packet goes on: it lasts longer for that. Packets that go back do so where both ends have sent, and of TCP where the first one has
    /// answered to that: nobody keeps alone what somebody else has left (RFC 4787 REQ-6).
    #[inline]
    pub(crate) fn renew(&mut self, way: usize, flags: TcpFlags, now: Instant, limits: &NatLimits) {
        let is_tcp = self.keys[0].protocol == IpProtocol::TCP;
        match is_tcp {
            true => self.follow(way, flags),
            false => self.note(way, now),
        }
        self.has_met |= self.phase == Phase::Established;
        let lasts = self.time(way, limits);
        if way == 0 || self.has_met || (!is_tcp && self.phase == Phase::Answered) {
            self.ends = now + lasts;
        }
    }

    /// The same of what has no handshake.
    fn note(&mut self, way: usize, now: Instant) {
        if self.ends == Instant::ZERO {
            self.began = now;
        }
        self.phase = match (self.phase, way) {
            (Phase::Asked, 1) => Phase::Answered,
            (Phase::Answered, 0) => Phase::Established,
            // Servers repeat what they answer, to whoever seems to have asked from outside.
            (Phase::Answered, _) if self.at[0] == Direction::Out && now >= self.began + STREAM => {
                Phase::Established
            }
            (phase, _) => phase,
        };
    }

    fn follow(&mut self, way: usize, flags: TcpFlags) {
        // What begins behind a reset with the same names has finished nothing yet. If nobody follows the SYN it changes no more than that.
        if self.phase == Phase::Reset && flags.syn() && !flags.rst() && self.has_finished != [true; 2] {
            self.has_finished = [false; 2];
        }
        self.has_finished[way] |= flags.fin();
        self.phase = match self.phase {
            _ if flags.rst() => Phase::Reset,
            // RFC 7857 §2.2: only somebody's word that it was over, and a SYN is no more than that. Of what never was nobody has to say so.
            Phase::Reset if self.has_met && self.has_finished != [true; 2] && !flags.syn() => {
                Phase::Established
            }
            phase @ (Phase::Reset | Phase::Closed) => phase,
            Phase::Asked if way == 1 && flags.syn() => Phase::Answered,
            Phase::Asked if way == 1 => Phase::Established,
            Phase::Answered if way == 0 && flags.ack() => Phase::Established,
            phase => phase,
        };
        if self.phase == Phase::Established && self.has_finished == [true; 2] {
            self.phase = Phase::Closed;
        }
    }

    /// Whether a packet of this moment has renewed it: it may need another session, too.
    pub(crate) fn is_of_now(&self, now: Instant, limits: &NatLimits) -> bool {
        [0, 1].iter().any(|&way| self.ends == now + self.time(way, limits))
    }

    /// How long it lasts after a packet of a way.
    fn time(&self, way: usize, limits: &NatLimits) -> Duration {
        match self.age {
            Some((forth, back)) => Duration::from_secs(u64::from([forth, back][way])),
            None => self.lasts(limits),
        }
    }

    fn lasts(&self, limits: &NatLimits) -> Duration {
        match (self.keys[0].protocol, self.phase) {
            (IpProtocol::TCP, Phase::Established) => limits.tcp_established,
            (IpProtocol::TCP, _) => limits.tcp_transitory,
            (IpProtocol::UDP, Phase::Asked | Phase::Answered) if self.keys[0].ports[1] <= WELL_KNOWN => {
                limits.udp.min(UDP_QUESTION)
            }
            (IpProtocol::UDP, _) => limits.udp,
            (IpProtocol::ICMPV4, _) => limits.icmp,
            _ => limits.other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYN: TcpFlags = TcpFlags::SYN;
    const ACK: TcpFlags = TcpFlags::ACK;
    const FIN: TcpFlags = TcpFlags::FIN;
    const RST: TcpFlags = TcpFlags::RST;

    fn after(steps: &[(usize, TcpFlags)]) -> Session {
        let ends = [[10, 0, 0, 1].into(), [192, 0, 2, 1].into()];
        let key = Tuple { src: ends[0], dst: ends[1], ports: [1, 2], protocol: IpProtocol::TCP };
        let mut session =
            Session::new([key, key.reversed()], [Direction::Out, Direction::In], [NO_MAPPING; 2]);
        let limits = NatLimits::default();
        steps.iter().for_each(|&(way, flags)| session.renew(way, flags, Instant::ZERO, &limits));
        session
    }

    #[test]
    fn a_connection_is_as_far_as_its_segments_say() {
        let open = [(0, SYN), (1, SYN.with(ACK)), (0, ACK)];
        let after = |steps: &[(usize, TcpFlags)]| after(steps).phase();
        let with = |more: &[(usize, TcpFlags)]| after(&[&open, more].concat());
        assert_eq!(after(&open[..1]), Phase::Asked);
        assert_eq!(after(&open[..2]), Phase::Answered, "a server that answers a flood");
        assert_eq!(after(&open), Phase::Established);
        // RFC 5382 REQ-2: both SYNs cross.
        assert_eq!(after(&[(0, SYN), (1, SYN), (0, SYN.with(ACK))]), Phase::Established);
        assert_eq!(with(&[(1, FIN.with(ACK)), (0, ACK)]), Phase::Established, "half closed");
        assert_eq!(with(&[(1, FIN.with(ACK)), (0, FIN.with(ACK))]), Phase::Closed);
        assert_eq!(with(&[(1, RST)]), Phase::Reset);
        assert_eq!(with(&[(1, RST), (0, ACK)]), Phase::Established, "it was not the end");
        assert_eq!(with(&[(0, RST), (0, SYN)]), Phase::Reset, "nobody has answered");
        let again = [&[(1, FIN.with(ACK)), (0, RST)], &open[..]].concat();
        assert_eq!(with(&again), Phase::Established, "another connection with the same names");
        let half = [&again[..], &[(0, FIN.with(ACK)), (1, ACK)]].concat();
        assert_eq!(with(&half), Phase::Established, "which has not sent all because the one before had");
        assert_eq!(with(&[&half[..], &[(1, FIN.with(ACK))]].concat()), Phase::Closed);
        assert_eq!(after(&[(0, SYN), (1, RST.with(ACK))]), Phase::Reset);
        assert_eq!(after(&[(0, SYN), (0, RST), (0, ACK)]), Phase::Reset, "one end alone shows nothing");
        assert_eq!(after(&[(0, ACK), (1, ACK)]), Phase::Established, "one that was there before us");
    }

    #[test]
    fn what_one_reset_alone_says_is_over_does_not_give_way() {
        let open = [(0, SYN), (1, SYN.with(ACK)), (0, ACK)];
        let spent = |more: &[(usize, TcpFlags)]| {
            let session = after(&[&open, more].concat());
            assert_eq!(session.is_over(SYN), session.is_spent(), "{more:?}: it begins anew, or goes on");
            session.is_spent()
        };
        assert!(!spent(&[(1, RST)]) && !spent(&[(0, RST)]) && !spent(&[(0, FIN.with(ACK)), (1, RST)]));
        let fins = [(0, FIN.with(ACK)), (1, FIN.with(ACK))];
        assert!(!spent(&[(1, RST), (1, SYN)]), "both may be anybody's");
        assert!(spent(&fins) && spent(&[&fins[..], &[(1, RST)]].concat()));
        assert!(after(&[(0, SYN), (1, RST.with(ACK))]).is_spent(), "it was refused");
    }
}
