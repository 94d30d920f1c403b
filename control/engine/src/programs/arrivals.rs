//! Connections that a listener's program has been told of, until it says under which socket's name it has taken each; and those
//! that programs have begun with blocks that were offered (`offers.rs`), until the named socket is found.
//!
//! A program takes a connection with a socket of its own session: it writes the socket's name into the words of the stream,
//! and tells nobody. That is found when the socket is asked about, or closed ([`Arrivals::take_named`]). A name is a
//! program's word: `hub.rs` judges whose it is. Owned by `hub.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use firelane_shm::control::{Family, Place, SocketId};
use firelane_shm::layout::TAKEN;

use super::Owner;
use super::arena::ProgramArena;
use super::options::Options;
use super::stream::Stream;
use crate::stack::Stack;

/// So many looks at a listener's empty queue, half a second apart, and what was in it and has no name is nobody's.
const LOOKS: u8 = 3;

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
    /// A program that could have taken it has died, and may have done so between taking and naming: looks since then.
    suspected: Option<u8>,
}

impl Arrival {
    /// One that waits in the queue of a listener, or was begun.
    pub(super) fn new(
        from: Option<(SocketId, Family)>,
        home: Arc<Home>,
        stream: Arc<Stream>,
        options: Arc<Options>,
    ) -> Self {
        Self { from, home, options, stream, suspected: None }
    }

    fn block(&self) -> Option<&firelane_shm::Block> {
        self.home.arena.mapping().block(self.stream.number())
    }

    /// The name under which its program has it, as the program says; zero is none.
    fn name(&self) -> u64 {
        self.block().map_or(0, |block| block.taken_as.load(Ordering::Acquire))
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
        self.0.get_mut(&arena).into_iter().flatten().for_each(|it| it.suspected = Some(0));
    }

    /// To be called every half a second while it is suspected that connections are nobody's, which [`Arrivals::has_suspects`]
    /// tells: takes those out that are. `is_all_read` knows of a listener whether its program has been told of all connections.
    pub(super) fn take_nobodys(&mut self, is_all_read: impl Fn(SocketId) -> bool) -> Vec<Arrival> {
        self.extract(None, |it| {
            let Some(looks) = &mut it.suspected else { return false };
            let is_queue_empty = it.from.is_none_or(|(listener, _)| is_all_read(listener));
            *looks = if is_queue_empty { *looks + 1 } else { 0 };
            *looks >= LOOKS
        })
    }

    /// Where their words are.
    pub(super) fn arenas(&self) -> impl Iterator<Item = u32> {
        self.0.values().filter_map(|all| Some(all.first()?.home.arena.place))
    }

    pub(super) fn has_suspects(&self) -> bool {
        self.0.values().flatten().any(|it| it.suspected.is_some())
    }
}
