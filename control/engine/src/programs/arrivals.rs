//! Connections that a listener's program has been told of, until it says under which socket's name it has taken each; and those
//! that programs have begun with blocks that were offered (`offers.rs`), until the named socket is found.
//!
//! A program takes a connection with a socket of its own session: it writes the socket's name into the words of the stream,
//! and tells nobody. That is found when the socket is asked about, or closed ([`Arrivals::take_named`]). A name is a
//! program's word: `hub.rs` judges whose it is. Owned by `hub.rs`.
//!
//! Whoever takes one says first which session he is, which takes it along when it ends before there is a name. Between both the
//! connection is nobody's for some instructions: what was taken out when a session ended, and has neither after a while, was that
//! one's ([`Arrivals::take_nobodys`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use firelane_shm::control::{Family, Place, SocketId};
use firelane_shm::layout::{TAKEN, Taker};
use firelane_units::Instant;

use super::Owner;
use super::arena::ProgramArena;
use super::options::Options;
use super::stream::Stream;
use crate::stack::Stack;

/// What was taken out of its listener's queue for so long, and was not taken by anybody who lives, is nobody's: one who lives says at
/// once who he is, unless he gets no CPU.
const WAIT: Duration = Duration::from_secs(1);

/// Whose sockets are made: in which netstack, where their words are, and for whom.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) stack: Stack,
    pub(super) arena: Arc<ProgramArena>,
    pub(super) owner: Arc<Owner>,
}

/// A connection that was told of.
#[derive(Debug)]
pub(super) struct Arrival {
    /// The listener and its family; none if its program has begun it.
    pub(super) from: Option<(SocketId, Family)>,
    pub(super) home: Arc<Home>,
    pub(super) options: Arc<Options>,
    pub(super) stream: Arc<Stream>,
    /// How many its listener has accepted before.
    before: u64,
    suspected: Suspicion,
}

/// Whether a program that could have taken a connection has died, and may have done so before it has said that it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Suspicion {
    None,
    /// It has, and the connection was in the queue when that was last looked at.
    Waits,
    /// The same of one that was not in the queue any more, at this time.
    TakenOut(Instant),
}

impl Arrival {
    /// One that waits in the queue of a listener, or was begun.
    pub(super) fn new(
        from: Option<(SocketId, Family)>,
        home: Arc<Home>,
        stream: Arc<Stream>,
        options: Arc<Options>,
    ) -> Self {
        Self { from, home, options, stream, before: 0, suspected: Suspicion::None }
    }

    /// The same behind so many others that the listener has accepted.
    pub(super) fn after(self, before: u64) -> Self {
        Self { before, ..self }
    }

    fn block(&self) -> Option<&firelane_shm::Block> {
        self.home.arena.mapping().block(self.stream.number())
    }

    fn taker(&self) -> Taker {
        self.block().map_or(Taker::Socket(0), firelane_shm::Block::taker)
    }

    /// The name under which its program has it, as the program says; zero is none.
    fn name(&self) -> u64 {
        if let Taker::Socket(name) = self.taker() { name } else { 0 }
    }

    /// Whether its program has taken it, and has closed it since.
    fn is_left(&self) -> bool {
        self.name() != 0 && self.stream.is_left(&self.home.arena)
    }

    /// Whether the program has accepted it. One that nobody has is reset when its listener closes.
    pub(super) fn is_taken(&self) -> bool {
        self.block().is_none_or(|block| block.file.load(Ordering::Relaxed) & TAKEN != 0)
    }
}

/// Which arenas somebody asks about, by their numbers; none are all.
pub(super) type Near<'a> = Option<&'a [u64]>;

/// All of them, by the arenas where their words are: what programs have not taken is looked through by themselves alone.
#[derive(Debug, Default)]
pub(super) struct Arrivals(BTreeMap<u64, Vec<Arrival>>);

impl Arrivals {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Whether there are any in some arenas.
    pub(super) fn are_in(&self, arenas: &[u64]) -> bool {
        arenas.iter().any(|arena| self.0.contains_key(arena))
    }

    pub(super) fn add(&mut self, arrival: Arrival) {
        self.0.entry(arrival.home.arena.arena().number()).or_default().push(arrival);
    }

    /// Takes those out that are closed already.
    pub(super) fn take_left(&mut self, near: Near<'_>) -> Vec<Arrival> {
        self.extract(near, |it| it.is_left())
    }

    /// Takes those out that programs have begun as no socket.
    pub(super) fn take_nameless(&mut self, near: Near<'_>) -> Vec<Arrival> {
        self.extract(near, |it| it.from.is_none() && it.name() == 0)
    }

    /// Takes those that have names out.
    pub(super) fn take_named(&mut self, near: Near<'_>) -> Vec<(SocketId, Arrival)> {
        let named = self.extract(near, |it| it.name() != 0);
        named.into_iter().map(|it| (SocketId(it.name()), it)).collect()
    }

    /// Takes one out by its place.
    pub(super) fn take_at(&mut self, place: Place) -> Option<Arrival> {
        self.take_where(place, |_| true)
    }

    /// The same, of one that was taken under this name.
    pub(super) fn take_as(&mut self, name: SocketId, place: Place) -> Option<Arrival> {
        self.take_where(place, |it| it.name() == name.0)
    }

    fn take_where(&mut self, place: Place, is_it: impl Fn(&Arrival) -> bool) -> Option<Arrival> {
        let all = self.0.get_mut(&place.arena)?;
        let at = all.iter().position(|it| it.stream.number() == place.block && is_it(it))?;
        let arrival = all.remove(at);
        if all.is_empty() {
            self.0.remove(&place.arena);
        }
        Some(arrival)
    }

    /// Takes out what waited at a listener that is closed, whose connections are in this arena.
    pub(super) fn take_of(&mut self, listener: SocketId, arena: u64) -> Vec<Arrival> {
        let is_its = |it: &Arrival| it.from.is_some_and(|(name, _)| name == listener);
        self.extract(Some(&[arena]), |it| is_its(it) && it.name() == 0)
    }

    /// Takes out what is so, of those in some arenas.
    fn extract(&mut self, near: Near<'_>, mut is_it: impl FnMut(&mut Arrival) -> bool) -> Vec<Arrival> {
        let mut taken = Vec::new();
        let Some(arenas) = near else {
            self.0.values_mut().for_each(|all| taken.extend(all.extract_if(.., &mut is_it)));
            self.0.retain(|_, all| !all.is_empty());
            return taken;
        };
        for arena in arenas {
            let Some(all) = self.0.get_mut(arena) else { continue };
            taken.extend(all.extract_if(.., &mut is_it));
            if all.is_empty() {
                self.0.remove(arena);
            }
        }
        taken
    }

    /// A session has ended that had this arena.
    pub(super) fn suspect(&mut self, arena: u64) {
        let trusted = |it: &&mut Arrival| it.suspected == Suspicion::None;
        let all = self.0.get_mut(&arena).into_iter().flatten();
        all.filter(trusted).for_each(|it| it.suspected = Suspicion::Waits);
    }

    /// To be called when a session has ended, and every now and then while it is suspected that connections are nobody's, which
    /// [`Arrivals::has_suspects`] tells: takes those out that are. `taken_out` knows how many of a listener's are not in its queue any
    /// more, and `lives` of a session whether it is there and has an arena.
    pub(super) fn take_nobodys(
        &mut self,
        now: Instant,
        taken_out: impl Fn(SocketId) -> Option<u64>,
        lives: impl Fn(u32, &ProgramArena) -> bool,
    ) -> Vec<Arrival> {
        self.extract(None, |it| {
            if let Taker::Session(session) = it.taker() {
                return !lives(session, &it.home.arena);
            }
            let is_taken_out = || {
                it.from.is_none_or(|(listener, _)| taken_out(listener).is_none_or(|count| count > it.before))
            };
            match it.suspected {
                Suspicion::Waits if is_taken_out() => it.suspected = Suspicion::TakenOut(now),
                Suspicion::TakenOut(at) => return now.saturating_since(at) >= WAIT,
                Suspicion::None | Suspicion::Waits => {}
            }
            false
        })
    }

    /// Where their words are.
    pub(super) fn arenas(&self) -> impl Iterator<Item = u32> {
        self.0.values().filter_map(|all| Some(all.first()?.home.arena.place))
    }

    pub(super) fn has_suspects(&self) -> bool {
        self.0.values().flatten().any(|it| it.suspected != Suspicion::None)
    }
}
