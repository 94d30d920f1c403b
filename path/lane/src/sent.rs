//! What netstacks' senders have made in a round, and is on its way to the link side, where limits will hear of it.
//!
//! Owned by `links.rs`. Senders of a round ask one after the other, and what they make goes to the link side at its end. A limit must not give
//! the same room to each of them, so who has made use of his credit says so, and those who ask behind him have what is left.

use core::cell::RefCell;

use firelane_flow::{Conversation, Limits, UnderWay, Whose};
use firelane_units::{Bytes, Direction, FlowId};

/// A flow's limit in one direction.
pub(crate) type At = (FlowId, Direction);

/// Whom a sender asks, and for which conversation if it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) flows: Limits,
    pub(crate) speaker: Option<Conversation>,
}

/// What was sent in this round, at each limit, and what else limits are to hear of it.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    sent: RefCell<Vec<(At, Option<Conversation>, Bytes)>>,
    /// Those that have told somebody to come again.
    told: RefCell<Vec<At>>,
    /// Those of whom somebody who had been told so was asked.
    asked: RefCell<Vec<At>>,
}

impl Sent {
    /// The next round begins: what was sent in the last one has come to the link side.
    #[inline]
    pub(crate) fn begin_round(&mut self) {
        self.sent.get_mut().clear();
    }

    /// A limit has told somebody to come again.
    pub(crate) fn note_told(&self, at: At) {
        let mut told = self.told.borrow_mut();
        if told.last() != Some(&at) {
            told.push(at);
        }
    }

    /// Those who wait for these limits are asked in this round.
    pub(crate) fn note_asked(&self, limits: Limits) {
        self.asked.borrow_mut().extend(limits.into_iter().flatten());
    }

    /// Takes one of those whose senders were asked.
    pub(crate) fn take_asked(&mut self) -> Option<At> {
        self.asked.get_mut().pop()
    }

    /// Takes one that has told somebody to come again.
    pub(crate) fn take_told(&mut self) -> Option<At> {
        self.told.get_mut().pop()
    }

    /// A sender has made use of his credit.
    pub(crate) fn note(&self, Asked { flows, speaker }: Asked, bytes: Bytes) {
        let mut sent = self.sent.borrow_mut();
        for at in flows.into_iter().flatten() {
            match sent.iter_mut().rev().take(flows.len()).find(|it| (it.0, it.1) == (at, speaker)) {
                Some((.., sum)) => *sum += bytes,
                None => sent.push((at, speaker, bytes)),
            }
        }
    }

    /// Whether anything was sent at one of these limits.
    pub(crate) fn has_any(&self, asked: Asked) -> bool {
        let sent = self.sent.borrow();
        asked.flows.into_iter().flatten().any(|at| sent.iter().any(|it| it.0 == at))
    }

    /// How much of a flow's, how much of that is of the conversation that asks, and of how many it is who have no queue there.
    pub(crate) fn of(
        &self,
        at: At,
        speaker: Option<Conversation>,
        has_queue: impl Fn(Conversation) -> bool,
    ) -> UnderWay {
        let mut sum = UnderWay::default();
        for &(_, conversation, bytes) in self.sent.borrow().iter().filter(|it| it.0 == at) {
            sum.add(bytes, whose(conversation, speaker, &has_queue));
        }
        sum
    }
}

/// Of whom something is that one has sent whose conversation is known, or not.
pub(crate) fn whose(
    conversation: Option<Conversation>,
    speaker: Option<Conversation>,
    has_queue: impl Fn(Conversation) -> bool,
) -> Whose {
    match conversation {
        Some(_) if conversation == speaker => Whose::Own,
        Some(other) if has_queue(other) => Whose::Queued,
        _ => Whose::Others,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_behind_others_hears_of_what_they_sent() {
        let [one, other] = [1, 2].map(|n| Some(Conversation::from_number(n)));
        let (out, inward) = ((FlowId(1), Direction::Out), (FlowId(1), Direction::In));
        let mut sent = Sent::default();
        let both = Asked { flows: [Some(out), Some(inward)], speaker: one };
        sent.note(both, Bytes(100));
        sent.note(both, Bytes(10));
        sent.note(Asked { flows: [Some(out), None], speaker: other }, Bytes(1));
        sent.note(Asked { flows: [Some(out), None], speaker: None }, Bytes(1000));
        assert_eq!(sent.sent.borrow().len(), 4, "what one sends in a row is one entry");
        let of = |at, speaker| sent.of(at, speaker, |_| false);
        assert_eq!(of(out, one), UnderWay { all: Bytes(1111), own: Bytes(110), others: 2 });
        assert_eq!(of(inward, other), UnderWay { all: Bytes(110), own: Bytes(0), others: 1 });
        assert_eq!(of(out, None), UnderWay { all: Bytes(1111), own: Bytes(0), others: 3 });
        // Who has a queue needs none.
        let others = sent.of(out, one, |it| Some(it) == other).others;
        assert_eq!(others, 1);
        sent.begin_round();
        assert_eq!(sent.of(out, one, |_| false), UnderWay::default());
    }
}
