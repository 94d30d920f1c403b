//! A program's session as the hub has it, and what goes between both: who it is, how much it may have, what it is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use firelane_shm::control::{Answer, Family, SocketId};
use firelane_units::{LaneId, NetstackId};
use rustix::io::Errno;

use super::arena::ProgramArena;
use super::arrivals::{Arrival, Home};
use super::hub::Hub;
use super::offers::Offers;
use super::options::Options;
use super::socket::{Role, Socket};
use super::stream::Stream;
use crate::fabric::Fabric;
use crate::stack::Stack;

/// Who a program is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub user: u32,
    /// Its command.
    pub command: String,
    /// Its kin, if that is known.
    pub kin: Option<Kin>,
}

/// Processes whose memory is not kept from each other: they have one user and group, and see each other. Numbers of the host, and of
/// namespaces the inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kin {
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
    /// The namespace of users.
    pub users: u64,
    /// The namespace of processes.
    pub processes: u64,
}

/// How much a program may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// With so many sockets, those that it has accepted among them, it makes no more.
    pub sockets: usize,
    /// Bytes that the buffers of its sockets have at a time.
    pub memory: u64,
    /// Bytes of its address space that its arena may take, and a fourth of them each segment that it shares.
    pub room: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sockets: 1 << 17, memory: u64::MAX, room: u64::MAX }
    }
}

/// An answer with the descriptors that go beside it.
#[derive(Debug)]
pub struct Reply {
    /// What is answered.
    pub answer: Answer,
    /// What goes beside it.
    pub fds: Vec<OwnedFd>,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self { answer, fds: Vec::new() }
    }
}

impl From<Errno> for Reply {
    fn from(errno: Errno) -> Self {
        Answer::Failed { errno: errno.raw_os_error() }.into()
    }
}

/// A program's process.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) owner: Arc<Owner>,
    pub(super) stack: Stack,
    pub(super) arena: Arc<ProgramArena>,
    /// What its sockets begin with, one of which has it for itself as soon as it sets something.
    pub(super) usual: Arc<Options>,
    pub(super) sockets_max: usize,
    pub(super) offers: Offers,
    pub(super) sockets: BTreeSet<SocketId>,
    /// Arenas of others whose sockets it has.
    pub(super) attached: BTreeMap<u64, Arc<ProgramArena>>,
    /// Programs that inherit a socket ring these too, so the lanes wait on them as long as the session lasts.
    pub(super) bells: Vec<(LaneId, OwnedFd)>,
}

impl Session {
    /// A new stream socket of its family, over one end of a pair.
    pub(super) fn fresh(&self, ours: OwnedFd, family: Family) -> Socket {
        Socket {
            ours,
            family,
            stack: self.stack.clone(),
            arena: Arc::clone(&self.arena),
            owner: Arc::clone(&self.owner),
            options: Arc::clone(&self.usual),
            is_arrival: false,
            is_ahead: false,
            signals: 0,
            role: Role::Fresh(None),
        }
    }

    /// Connections that its program has begun with what it was offered, since this was last asked; it is offered as many again. Those that
    /// no lane has begun as yet are, if their block may be used.
    pub(super) fn take_begun(&mut self, fabric: &Fabric, may_begin: &impl Fn(u32) -> bool) -> Vec<Arrival> {
        if !self.offers.are_there() {
            return Vec::new();
        }
        let begun = self.offers.take_begun(fabric, &self.arena, may_begin);
        if begun.is_empty() {
            return Vec::new();
        }
        let (stack, arena, owner) = (self.stack.clone(), Arc::clone(&self.arena), Arc::clone(&self.owner));
        let home = Arc::new(Home { stack, arena, owner });
        let arrival = |stream: Arc<Stream>| {
            let options = stream.take_own_options().unwrap_or_else(|| Arc::clone(&self.usual));
            Arrival::new(None, Arc::clone(&home), stream, options)
        };
        let begun = begun.into_iter().map(arrival).collect();
        self.offer();
        begun
    }

    /// Offers blocks to its program, as many as there is room for. Who is offered none asks.
    pub(super) fn offer(&mut self) {
        let _ = self.offers.refill(&self.stack, &self.arena, Arc::clone(&self.usual));
    }

    /// Lanes have failed: its program is offered blocks of those that are left.
    pub(super) fn offer_anew(&mut self, fabric: &Fabric) {
        if self.offers.are_there() {
            self.offers.withdraw_lost(fabric, &self.arena);
            self.offer();
        }
    }

    /// The numbers of all arenas that it may use.
    pub(super) fn arenas(&self) -> impl Iterator<Item = u64> {
        [self.arena.arena().number()].into_iter().chain(self.attached.keys().copied())
    }

    /// An arena that it may use, by its number.
    pub(super) fn arena_of(&self, number: u64) -> Option<&Arc<ProgramArena>> {
        if self.arena.arena().number() == number { Some(&self.arena) } else { self.attached.get(&number) }
    }
}

impl Hub {
    /// The netstack of a process' session.
    pub fn netstack_of(&self, pid: u32) -> Option<NetstackId> {
        self.sessions.values().find(|it| it.owner.pid == pid).map(|it| it.stack.id())
    }

    /// Sessions whose netstack was removed since this was last asked: they have nothing that is of use any more. Not those that were given sockets
    /// of another netstack.
    pub fn homeless(&self) -> Vec<u32> {
        if !self.engine.0.fabric.programs.has_homeless.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let is_removed = |stack: &Stack| self.engine.stack(stack.id()).is_none();
        let is_left = |name: &SocketId| self.stack_of(*name).is_none_or(is_removed);
        let is_homeless = |it: &Session| is_removed(&it.stack) && it.sockets.iter().all(is_left);
        self.sessions.iter().filter(|(_, it)| is_homeless(it)).map(|(&number, _)| number).collect()
    }

    /// How many sockets a session may have, if it has so many.
    pub fn limit_reached(&self, session: u32) -> Option<usize> {
        let session = self.sessions.get(&session)?;
        (session.sockets.len() >= session.sockets_max).then_some(session.sockets_max)
    }
}
