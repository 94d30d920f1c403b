//! Blocks that are made ready for a session's sockets, so that its program connects without a question: it writes into one as
//! which socket, and where to, and the lane begins the connection (`docs/shm.md`, *Set-up*).
//!
//! Everything that `hub.rs` would decide is decided when a block is offered: the netstack, the lane, the options of a new socket. What
//! the program adds is an address, which the lane takes as it takes any, options that nothing refuses, of which it has told nobody
//! ([`firelane_shm::Untold`]), and a name, which `hub.rs` judges as that of a connection that was accepted ([`super::arrivals`]). Owned
//! by `session.rs`.

use std::io;
use std::sync::Arc;

use firelane_shm::{OFFERS, Offer};

use super::arena::ProgramArena;
use super::options::Options;
use super::stream::Stream;
use crate::fabric::Fabric;
use crate::stack::Stack;

/// So many connections are begun by questions before blocks are made ready: most programs begin few.
const FEW: u32 = 4;

/// So many blocks are offered at first. Who has used all of them when they are next looked at is offered twice as many, up to [`OFFERS`].
const FIRST: usize = 64;

/// A session's.
#[derive(Debug, Default)]
pub(super) struct Offers {
    /// What stands in each place; nothing as long as nothing was ever offered.
    streams: Vec<Option<Arc<Stream>>>,
    /// How many connections were asked for by questions, up to [`FEW`].
    asked: u32,
    /// Where the turn begins in which its places go round the netstack's lanes; drawn when blocks are first offered.
    first: Option<usize>,
    /// The program is not believed what it has taken.
    is_suspected: bool,
}

impl Offers {
    /// The program has asked for a connection. Whether blocks are to be made ready.
    pub(super) fn note_question(&mut self) -> bool {
        self.asked = self.asked.saturating_add(1).min(FEW);
        self.asked == FEW
    }

    /// Takes those out of which connections were made; where the lane has not looked yet they are made, if the block may be used.
    pub(super) fn take_begun(
        &mut self,
        fabric: &Fabric,
        arena: &ProgramArena,
        may_begin: &impl Fn(u32) -> bool,
    ) -> Vec<Arc<Stream>> {
        let is_begun = |it: &mut Arc<Stream>| match it.is_asked(arena) {
            true => may_begin(it.number()) && it.begin_if_asked(fabric, arena),
            false => it.is_begun(),
        };
        let offers = arena.mapping().offers();
        let may_be_begun = |nth| self.is_suspected || offers.is_taken(nth);
        let taken = self.streams.iter_mut().enumerate().filter(|&(nth, _)| may_be_begun(nth));
        taken.filter_map(|(_, place)| place.take_if(is_begun)).collect()
    }

    /// From here on each place is looked at, also those that the program says it has not taken: it ends.
    pub(super) fn suspect(&mut self) {
        self.is_suspected = true;
    }

    /// How many there are to be.
    fn wanted(&self) -> usize {
        match self.streams.len() {
            0 => FIRST,
            len if self.streams.iter().all(Option::is_none) => OFFERS.min(2 * len),
            len => len,
        }
    }

    /// Makes blocks ready where there are none.
    pub(super) fn refill(
        &mut self,
        stack: &Stack,
        arena: &ProgramArena,
        mut options: Arc<Options>,
    ) -> io::Result<()> {
        let config = stack.config()?;
        Options::follow(&mut options, &config);
        self.streams.resize(self.wanted(), None);
        let first = *self.first.get_or_insert_with(|| stack.inner.draw_turn());
        for (nth, place) in self.streams.iter_mut().enumerate() {
            if place.is_none() {
                let rings = options.rings(config.sockets.stream);
                let lane = stack.inner.lane_in_turn(stack.id, first.wrapping_add(nth))?;
                let stream = Stream::offer(stack, arena, rings, (nth, lane), &options)?;
                let block = stream.number();
                arena.mapping().offers().put(Offer { place: nth, block, lane: u32::from(lane.0) });
                *place = Some(stream);
            }
        }
        Ok(())
    }

    /// Takes back what lanes have that have failed; what its program has taken already is told so.
    pub(super) fn withdraw_lost(&mut self, fabric: &Fabric, arena: &ProgramArena) {
        for (nth, place) in self.streams.iter_mut().enumerate() {
            let is_lost = |it: &mut Arc<Stream>| {
                fabric.has_failed(it.lane()) && arena.mapping().offers().take_back(nth, it.number())
            };
            place.take_if(is_lost).into_iter().for_each(|stream| stream.withdraw(arena));
        }
    }

    /// Whether anything is offered.
    pub(super) fn are_there(&self) -> bool {
        !self.streams.is_empty()
    }

    /// The session ends: nothing more is begun.
    pub(super) fn withdraw(&mut self, arena: &ProgramArena) {
        self.streams.drain(..).flatten().for_each(|stream| stream.withdraw(arena));
    }
}
