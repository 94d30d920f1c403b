//! Which connection of a lane sends next: netstacks have their turns one after the other, and inside one the most urgent goes first
//! (`bands.rs`).
//!
//! A deficit round robin (Shreedhar and Varghese, 1995): a turn is so much text, and what a connection has sent beyond it is taken from
//! its netstack's next turns. So no program has anything from another netstack's connections by how urgent it says its own are, or by
//! how many it has. Kept by `conn.rs`; `outbound.rs` says what was sent.

use std::collections::VecDeque;

use firelane_table::Minted;
use firelane_units::{ConnId, NetstackId};

use super::bands::{Band, Bands};

/// What a netstack may send in its turn: as much text as one connection may ([`super::outbound`]), so that a netstack with one that
/// has more has as much as a netstack with many.
const TURN: i64 = 128 << 10;

/// What all netstacks send before the lane looks at its devices and messages again. Programs on other CPUs write on meanwhile, so there
/// would be no end to it.
const MOST: i64 = 2 * TURN;

/// What asking a connection costs, and each of its frames, beside the text: as much text is copied in about that time. Who sends ACKs
/// without end has his turns as well.
const COST: i64 = 2 << 10;

/// Those that may have something to send, of all netstacks.
#[derive(Debug, Default)]
pub(super) struct Turns {
    netstacks: Minted<Netstack>,
    /// Those with connections that wait, in the order of their turns; whose turn it is stands first.
    waiting: VecDeque<NetstackId>,
    len: usize,
    /// What all have sent in this turn of the lane.
    sent: i64,
}

#[derive(Debug, Default)]
struct Netstack {
    dirty: Bands<ConnId>,
    /// What is left of its turn, or what it has had too much.
    credit: i64,
}

impl Turns {
    /// Behind the others of its band in its netstack; a netstack that had nobody is behind the other netstacks.
    #[inline]
    pub(super) fn push(&mut self, netstack: NetstackId, band: Band, id: ConnId) {
        let it = self.netstacks.get_or_default(netstack.0.into());
        if it.dirty.len() == 0 {
            // What it has had too much stays so: else who has one connection, which is taken out and put back, would pay nothing.
            it.credit = it.credit.min(0) + TURN;
            self.waiting.push_back(netstack);
        }
        it.dirty.push(band, id);
        self.len += 1;
    }

    /// The next one, and of which netstack it was put in.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(NetstackId, ConnId)> {
        loop {
            let &first = self.waiting.front()?;
            let it = self.netstacks.get_mut(first.0.into()).expect("who waits has not gone");
            if it.credit <= 0 {
                it.credit += TURN;
                self.waiting.rotate_left(1);
                continue;
            }
            it.credit -= COST;
            let next = it.dirty.pop();
            if it.dirty.len() == 0 {
                self.waiting.pop_front();
            }
            self.len -= usize::from(next.is_some());
            return next.map(|id| (first, id));
        }
    }

    /// A connection of this netstack has made a frame with so much text.
    #[inline]
    pub(super) fn charge(&mut self, netstack: NetstackId, text: usize) {
        let cost = text as i64 + COST;
        self.sent += cost;
        if let Some(it) = self.netstacks.get_mut(netstack.0.into()) {
            it.credit -= cost;
        }
    }

    /// So much was sent that is no connection's, with what it costs beside the text.
    #[inline]
    pub(super) fn add(&mut self, sent: usize) {
        self.sent += sent as i64;
    }

    /// A turn of the lane begins.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.sent = 0;
    }

    /// Whether enough was sent in this turn of the lane.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.sent >= MOST
    }

    /// The netstack is gone.
    pub(super) fn forget(&mut self, netstack: NetstackId) {
        if let Some(it) = self.netstacks.remove(netstack.0.into()) {
            self.len -= it.dirty.len();
            self.waiting.retain(|&other| other != netstack);
        }
    }

    /// How many there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The most text that one connection may send before the next one has its turn.
    const SHARE_MAX: usize = (128 << 10) + (64 << 10);

    proptest! {
        /// Connections that always have all that they may send: what a netstack gets does not depend on how many it has, how urgent
        /// they are, or by how much each exceeds a turn, and nobody waits for more than a turn or two of each other netstack.
        #[test]
        fn netstacks_get_the_same_whatever_their_connections_say(
            netstacks in prop::collection::vec((1u32..20, 0usize..3, TURN as usize..SHARE_MAX), 2..6),
        ) {
            let mut turns = Turns::default();
            let id = |number: usize| NetstackId(3 * number as u16);
            for (number, &(connections, band, _)) in netstacks.iter().enumerate() {
                (0..connections).for_each(|nth| turns.push(id(number), Band::ALL[band], ConnId(nth)));
            }
            let (mut sent, mut silent) = (vec![0; netstacks.len()], vec![0; netstacks.len()]);
            for _ in 0..20_000 {
                let (netstack, conn) = turns.pop().unwrap();
                let number = usize::from(netstack.0 / 3);
                let (_, band, text) = netstacks[number];
                turns.charge(netstack, text);
                turns.push(netstack, Band::ALL[band], conn);
                let all = text as i64 + 2 * COST;
                sent[number] += all;
                silent.iter_mut().for_each(|since| *since += all);
                silent[number] = 0;
                // Who has had too much waits for another round of them.
                let most = 2 * (netstacks.len() as i64 - 1) * (TURN + SHARE_MAX as i64 + 2 * COST);
                prop_assert!(silent.iter().all(|&since| since <= most), "{silent:?}");
            }
            let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
            prop_assert!(most - least <= 3 * (TURN + SHARE_MAX as i64), "{sent:?}");
        }

        /// Nobody is lost, none comes twice, and how many there are is known.
        #[test]
        fn who_is_put_in_comes_out_once(
            steps in prop::collection::vec(prop::option::weighted(0.6, (0u16..4, 0usize..3)), 0..200),
            gone in 0u16..5,
        ) {
            let (mut turns, mut inside) = (Turns::default(), Vec::new());
            for (number, step) in steps.iter().enumerate() {
                match *step {
                    Some((netstack, band)) => {
                        turns.push(NetstackId(netstack), Band::ALL[band], ConnId(number as u32));
                        inside.push((NetstackId(netstack), ConnId(number as u32)));
                    }
                    None => {
                        let next = turns.pop();
                        prop_assert_eq!(next.is_none(), inside.is_empty());
                        let at = next.map(|next| inside.iter().position(|&it| it == next).expect("it was put in"));
                        at.map(|at| inside.remove(at));
                    }
                }
                prop_assert_eq!(turns.len(), inside.len());
            }
            turns.forget(NetstackId(gone));
            inside.retain(|&(netstack, _)| netstack != NetstackId(gone));
            let mut left: Vec<_> = std::iter::from_fn(|| turns.pop()).collect();
            left.sort_unstable();
            inside.sort_unstable();
            prop_assert_eq!((left, turns.len()), (inside, 0));
        }
    }
}
