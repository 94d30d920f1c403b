//! A known forwarded flow's way past both gates of the filter, and what is remembered of it.
//!
//! What the filter said of a flow stands in the flow's own entry ([`Judged`]), which is read ahead with the rest of its chain: the
//! rules that count for all of its packets, or the place of its state. Both gates are passed in one piece then. A packet that
//! is not as those before it takes the list's steps one by one (`onward.rs`), as all do while somebody looks on; a law says that
//! both rule and count alike (`tests/filter_laws.rs`). Rules that change begin another generation, in which all flows are asked
//! about anew.

use firelane_classify::Headers;
use firelane_filter::{Ruling, StateRef, Verdict, Whole};
use firelane_frame::Frame;
use firelane_ip::{Adjacency, LOOPBACK};
use firelane_nat::NatRef;
use firelane_units::Direction;
use firelane_wire::{IpProtocol, TcpView};

use super::filtered::{Said, packet_bytes};
use super::inbound::Inside;
use crate::arrivals::Arrival;

/// What the filter said of a flow, in so few bytes that the flow's entry stays within a cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Judged([u32; 3]);

/// The same, read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Remembered {
    /// Nothing that counts for all packets.
    Nothing,
    /// The same of all packets, on their way in and on their way out.
    Said([Said; 2]),
    /// That they belong to a state.
    State(StateRef),
}

/// The first word of flows with remembered rules; states have larger ones, and no flow's is zero.
const SAID: u32 = 1;

/// The bit in the first word of flows that come in by a session; no place needs it.
const INWARD: u32 = 1 << 31;

impl Judged {
    /// What two rulings about a flow's packet say of the next ones; a packet that ended on its way in has no second.
    pub(crate) fn of(inward: Ruling, outward: Option<Ruling>) -> Self {
        match (inward, outward) {
            (Ruling { state: Some(state), .. }, _) | (_, Some(Ruling { state: Some(state), .. })) => {
                Self::state(state)
            }
            (inward, Some(outward)) if inward.is_for_all && outward.is_for_all => {
                Self([SAID, Said::of(inward).0, Said::of(outward).0])
            }
            (inward, None) if inward.is_for_all && inward.verdict != Verdict::Pass => {
                Self([SAID, Said::of(inward).0, 0])
            }
            _ => Self::default(),
        }
    }

    /// A flow whose packets belong to a state.
    pub(crate) fn state(state: StateRef) -> Self {
        let [place, rest @ ..] = state.to_words();
        Self([place + SAID + 1, rest[0], rest[1]])
    }

    /// A flow whose packets are translated by a session, in a list of steps with [`Step::Nat`](crate::steps::Step::Nat); there nothing
    /// else is remembered.
    pub(crate) fn session(session: NatRef) -> Self {
        let [place, rest @ ..] = session.to_words();
        Self([place + 1, rest[0], rest[1]])
    }

    /// A flow whose packets come in by a session, and of whose way out nothing is known, or that another one translates them there.
    pub(crate) fn inward(session: NatRef) -> Self {
        let Self([place, rest @ ..]) = Self::session(session);
        Self([place | INWARD, rest[0], rest[1]])
    }

    /// The session of a flow that no other one translates.
    #[inline]
    pub(crate) fn get_session(self) -> Option<NatRef> {
        self.get_any_session().filter(|_| self.0[0] & INWARD == 0)
    }

    /// The session of a flow, which may not be all that there is to say of it.
    #[inline]
    pub(crate) fn get_any_session(self) -> Option<NatRef> {
        let [place, rest @ ..] = self.0;
        Some(NatRef::from_words([(place & !INWARD).checked_sub(1)?, rest[0], rest[1]]))
    }

    #[inline]
    pub(crate) fn get(self) -> Remembered {
        match self.0 {
            [0, ..] => Remembered::Nothing,
            [SAID, inward, outward] => Remembered::Said([Said(inward), Said(outward)]),
            [place, low, high] => Remembered::State(StateRef::from_words([place - SAID - 1, low, high])),
        }
    }
}

impl<D> Inside<'_, D> {
    /// A packet of a flow of which this is remembered: both gates and the way onward. Gives the frame back, of which nothing was
    /// counted then, if it has to be asked about.
    #[inline]
    pub(crate) fn pass_gates(
        &mut self,
        judged: Judged,
        adjacency: &Adjacency,
        frame: Frame,
        arrival: &Arrival,
    ) -> Result<(), Frame> {
        if arrival.link == LOOPBACK || adjacency.link == LOOPBACK {
            return Err(frame);
        }
        // What was made before it is asked about before it.
        self.go_out();
        match judged.get() {
            Remembered::Nothing => Err(frame),
            Remembered::Said(said) => self.pass_as_said(said, adjacency, frame, arrival),
            Remembered::State(state) => self.pass_by_state(state, adjacency, frame, arrival),
        }
    }

    fn pass_as_said(
        &mut self,
        [inward, outward]: [Said; 2],
        adjacency: &Adjacency,
        frame: Frame,
        arrival: &Arrival,
    ) -> Result<(), Frame> {
        let bytes = packet_bytes(&arrival.headers);
        if inward.blocks() {
            let ruling = self.shard.gate.repeat(Direction::In, bytes, inward);
            self.end_blocked(ruling.verdict, arrival.link, frame, &arrival.headers);
            return Ok(());
        }
        self.shard.ip.pass_on(adjacency, frame)?;
        let gate = &mut self.shard.gate;
        gate.repeat(Direction::In, bytes, inward);
        let ruling = gate.repeat(Direction::Out, bytes, outward);
        match outward.blocks() {
            true => self.end_last(ruling.verdict),
            false => gate.let_out(),
        }
        Ok(())
    }

    fn pass_by_state(
        &mut self,
        state: StateRef,
        adjacency: &Adjacency,
        frame: Frame,
        arrival: &Arrival,
    ) -> Result<(), Frame> {
        let headers = &arrival.headers;
        let Some(usual) = adjacency.usual(&frame) else { return Err(frame) };
        let segment = segment(frame.as_slice(), headers);
        let (now, bytes) = (self.common.now, packet_bytes(headers));
        let (link, onward) = (arrival.link, Some(adjacency.link));
        let whole = Whole { direction: Direction::In, link, onward, bytes, segment: segment.as_ref() };
        let followed = self.shard.gate.filter().follow(state, &whole, now);
        let Some((inward, outward)) = followed else { return Err(frame) };
        if inward.is_told() {
            self.heed(Direction::In, arrival.link, frame.as_slice(), headers, inward.ruling());
        }
        self.shard.ip.pass_usual(adjacency, usual, frame);
        match outward {
            Some(outward) if !outward.is_told() => self.shard.gate.let_out(),
            Some(outward) => self.tell_of_last(outward.ruling()),
            None => {
                self.go_out();
            }
        }
        Ok(())
    }

    /// The packet that IP has made ready last may go, and somebody is to hear of it.
    #[cold]
    fn tell_of_last(&mut self, ruling: Ruling) {
        let Some(frame) = self.shard.ip.core.output().pop_back() else { return };
        if let Ok(headers) = Headers::parse(frame.as_slice()) {
            let link = frame.meta().ingress;
            self.heed(Direction::Out, link, frame.as_slice(), &headers, ruling);
        }
        self.shard.ip.core.output().push(frame);
        self.shard.gate.let_out();
    }
}

/// The segment in a frame, if it carries one.
#[inline]
fn segment<'a>(frame: &'a [u8], headers: &Headers) -> Option<TcpView<'a>> {
    if headers.protocol != IpProtocol::TCP {
        return None;
    }
    TcpView::parse(frame.get(usize::from(headers.l4_offset)..headers.l3_end as usize)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::BlockAnswer;
    use proptest::prelude::*;

    #[test]
    fn only_what_counts_for_all_packets_is_remembered() {
        let state = StateRef::from_words([8, 1, 0]);
        let none = Ruling::default();
        let all = Ruling { is_for_all: true, rule: Some(0), ..none };
        let blocked = Ruling { verdict: Verdict::Block(BlockAnswer::Silent), rule: Some(6), ..all };
        let its = Ruling { state: Some(state), ..none };
        let said = |rulings: [Ruling; 2]| Remembered::Said(rulings.map(Said::of));
        let cases = [
            (none, Some(none), Remembered::Nothing),
            (all, Some(none), Remembered::Nothing),
            (none, Some(all), Remembered::Nothing),
            (all, Some(all), said([all, all])),
            (all, Some(blocked), said([all, blocked])),
            (blocked, None, said([blocked, none])),
            (its, Some(none), Remembered::State(state)),
            (none, Some(its), Remembered::State(state)),
        ];
        for (inward, outward, remembered) in cases {
            assert_eq!(Judged::of(inward, outward).get(), remembered, "{inward:?} {outward:?}");
        }
        assert!(Said::of(blocked).blocks() && !Said::of(all).blocks() && !Said::of(none).blocks());
    }

    proptest! {
        #[test]
        fn a_session_is_found_where_it_was_put(place in 0..1_u32 << 30, low: u32, high: u32) {
            let session = NatRef::from_words([place, low, high]);
            let (alone, inward) = (Judged::session(session), Judged::inward(session));
            prop_assert_eq!([alone, inward].map(Judged::get_any_session), [Some(session); 2]);
            prop_assert_eq!([alone, inward].map(Judged::get_session), [Some(session), None]);
            prop_assert_eq!(Judged::default().get_any_session(), None);
        }

        #[test]
        fn a_state_is_found_where_it_was_put(place in 0..1_u32 << 30, low: u32, high: u32) {
            let state = StateRef::from_words([place, low, high]);
            prop_assert_eq!(Judged::state(state).get(), Remembered::State(state));
        }
    }
}
