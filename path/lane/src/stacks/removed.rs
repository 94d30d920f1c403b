//! A netstack goes, and what it had ends.
//!
//! From the answer on nobody finds it by its number: frames for it end, commands for it fail, and another netstack may have the number.
//! Its shard stays until all that waits in it was told, some of it in each turn of the lane, because a lane with a
//! million connections must not be busy with their end for a tenth of a second: listeners and datagram sockets first, whose programs
//! wait, then half-open connections and connections, whose peers get their RST. A connection tells by its [`Epoch`](crate::slab::Epoch)
//! that it is not of the netstack that has the number now. Called by `lane.rs` and `turn.rs`.

use core::mem;

use firelane_frame::{Chain, Driver};
use firelane_socket::Ready;
use firelane_units::{DropReason, NetstackId};

use super::ahead::{MOST, Next};
use super::conn::Program;
use super::inbound::Inside;
use super::shard::Shard;
use super::{NO_NETSTACK, Stacks, datagrams};
use crate::common::Common;
use crate::control::Refusal;
use crate::links::Links;

/// What one turn spends on netstacks that were removed: 256 ends, as many places as the hand looks at.
const STEPS_PER_TURN: u32 = 256 * STEPS_PER_END;

/// What an end costs, by the places of tables without one that are looked at in its time: cache misses against what is read in its order.
const STEPS_PER_END: u32 = 16;

/// How many places of half-open connections are looked at together.
const HALF_OPEN_TOGETHER: u32 = 16;

/// A netstack that has gone.
pub(super) struct Removed {
    shard: Box<Shard>,
    stage: Stage,
    /// Where in the stage's table to go on.
    at: usize,
}

/// What ends, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Listeners,
    Datagrams,
    HalfOpen,
    Connections,
    /// What was kept of connections that had ended before.
    Memories,
    Over,
}

impl Stage {
    const fn next(self) -> Self {
        match self {
            Self::Listeners => Self::Datagrams,
            Self::Datagrams => Self::HalfOpen,
            Self::HalfOpen => Self::Connections,
            Self::Connections => Self::Memories,
            Self::Memories | Self::Over => Self::Over,
        }
    }
}

impl Stacks {
    /// Ends a netstack: its connections are aborted, and their peers are told before it goes, as are those who believe to be connected.
    /// It is nobody's when this returns; of a large one the rest ends in the turns that follow ([`Stacks::is_ending`]).
    pub(crate) fn remove<D: Driver>(
        &mut self,
        common: &mut Common<D>,
        links: &mut Links<D>,
        out: &mut Chain,
        id: NetstackId,
    ) -> Result<(), Refusal> {
        self.shards.get(id).ok_or(NO_NETSTACK)?;
        // What its programs have said before leaves.
        self.transmit(common, links, out);
        self.conns.leave_turns(id);
        let mut shard = self.shards.remove(id).ok_or(NO_NETSTACK)?;
        if common.is_ahead() {
            Inside { common, shard: &mut shard, conns: &mut self.conns }
                .send_shares(links, super::datagrams_out::TURN);
        }
        shard.searches.end(common);
        self.ports_from = self.ports_from.max(shard.port_counter);
        self.removed.push_back(Removed { shard, stage: Stage::Listeners, at: 0 });
        // Whoever gets its number from here on has no connections of before.
        self.conns.slab.begin_epoch();
        self.end_removed(common, out);
        Ok(())
    }

    /// Goes on with the end of netstacks that were removed, as far as one turn does.
    pub(crate) fn end_removed<D: Driver>(&mut self, common: &mut Common<D>, out: &mut Chain) {
        let mut steps = STEPS_PER_TURN;
        while steps > 0
            && let Some(mut removed) = self.removed.pop_front()
        {
            self.go_on_ending(common, &mut removed, &mut steps);
            let shard = &mut *removed.shard;
            Inside { common, shard, conns: &mut self.conns }.all_go_out();
            shard.ip.collect(common, out, &mut self.loops);
            // What it says to itself nobody hears.
            self.loops.drain(..).for_each(|frame| common.drop_frame(frame, DropReason::NoPort));
            match removed.stage {
                // What waits for a neighbour or for its other fragments ends with the netstack.
                Stage::Over => common.counters.drops.add(DropReason::NoPort, shard.held()),
                _ => self.removed.push_front(removed),
            }
        }
    }

    /// Whether one has yet to end.
    pub(super) fn is_removing(&self) -> bool {
        !self.removed.is_empty()
    }

    /// The shards that have yet to end.
    pub(super) fn removed_shards(&self) -> impl Iterator<Item = &Shard> {
        self.removed.iter().map(|it| &*it.shard)
    }

    fn go_on_ending<D>(&mut self, common: &mut Common<D>, removed: &mut Removed, steps: &mut u32) {
        let Removed { shard, stage, at } = removed;
        let mut inside = Inside { common, shard, conns: &mut self.conns };
        while *stage != Stage::Over && *steps > 0 {
            let (spent, goes_on) = match *stage {
                Stage::Listeners => inside.end_listener(at),
                Stage::Datagrams => inside.end_datagrams(at),
                Stage::HalfOpen => inside.end_half_open(at),
                Stage::Connections => inside.end_connections(at),
                Stage::Memories => (STEPS_PER_END, inside.shard.ended.forget_first()),
                Stage::Over => (0, false),
            };
            *steps = steps.saturating_sub(spent);
            if !goes_on {
                (*stage, *at) = (stage.next(), 0);
            }
        }
    }
}

/// What a step has cost, and whether there is another one of its kind.
type Step = (u32, bool);

impl<D> Inside<'_, D> {
    /// Whoever waits for a connection is told.
    fn end_listener(&mut self, at: &mut usize) -> Step {
        let nth = mem::replace(at, *at + 1);
        let listening = self.shard.listening.at(nth).map(|(_, it)| it);
        if let Some(listening) = listening {
            self.common.outbox.tell(listening.slot.end(), Ready::ALL);
        }
        (cost(listening.is_some()), *at < self.shard.listening.places())
    }

    /// Whoever waits at a datagram socket is told.
    fn end_datagrams(&mut self, at: &mut usize) -> Step {
        let nth = mem::replace(at, *at + 1);
        let socket = self.shard.datagrams.at(nth).map(|(_, it)| it);
        if let Some(token) = socket.map(datagrams::end) {
            self.common.outbox.tell(token, Ready::ALL);
        }
        (cost(socket.is_some()), *at < self.shard.datagrams.places())
    }

    /// Whoever believes to be connected is told.
    fn end_half_open(&mut self, at: &mut usize) -> Step {
        let first = *at as u32;
        let (mut left, listening) = (Vec::new(), &self.shard.listening);
        let places = first..first + HALF_OPEN_TOGETHER;
        let goes_on = self.shard.half_open.forget_some(places, |listener, names, reset| {
            let link = listening.get(listener.0).and_then(|it| it.options.link);
            left.push((link, *names, reset));
        });
        for (link, names, reset) in left {
            self.send_loose_over(link, names.local(), names.remote(), &reset);
        }
        *at += HALF_OPEN_TOGETHER as usize;
        (HALF_OPEN_TOGETHER * STEPS_PER_END, goes_on)
    }

    /// The next connections end, as many as are looked for together.
    fn end_connections(&mut self, at: &mut usize) -> Step {
        let (mut next, mut looked) = (Next::default(), 0);
        while !next.is_full()
            && looked < MOST * STEPS_PER_END as usize
            && let Some(slot) = self.shard.conns.slot(*at + looked)
        {
            looked += 1;
            slot.into_iter().for_each(|id| next.push(id));
        }
        self.conns.look_ahead(&next);
        for &id in next.iter() {
            if let Some(conn) = self.conns.slab.get_mut(id) {
                // Nobody can ask what became of it.
                conn.program = Program::Gone;
            }
            self.end(id);
        }
        // Who stood behind them may stand in their slots now.
        match next.iter().next() {
            None => *at += looked,
            Some(&first) if self.shard.conns.slot(*at) == Some(Some(first)) => {
                debug_assert!(false, "who has ended has left the table");
                *at += 1;
            }
            Some(_) => {}
        }
        let spent = next.iter().len() as u32 * STEPS_PER_END + looked as u32;
        (spent, !self.shard.conns.is_empty() && looked > 0)
    }
}

const fn cost(ends: bool) -> u32 {
    if ends { STEPS_PER_END } else { 1 }
}
