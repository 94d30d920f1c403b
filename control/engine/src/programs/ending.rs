//! What programs have had and nobody has any more: streams and datagram sockets whose blocks may have to wait before they are others'.
//!
//! Owned by `hub.rs`, which asks now and then whether they have ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use firelane_shm::control::SocketId;

use super::arena::ProgramArena;
use super::datagrams::Datagrams;
use super::hub::Hub;
use super::socket::Role;
use super::stream::Stream;
use crate::fabric::Fabric;

/// One of them.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) arena: Arc<ProgramArena>,
    ended: Ended,
    resets: bool,
    /// The socket that it was, if that is there still.
    was: Option<SocketId>,
}

/// How many connections of a socket that it has no more are kept from being others'.
const DISSOLVED_MAX: usize = 4;

/// What sockets were before they were without a connection again. Other processes may have such a socket, and know it by the block that it had:
/// that is no other connection's as long as the socket is there.
#[derive(Debug, Default)]
pub(super) struct Dissolved(BTreeMap<SocketId, VecDeque<Ending>>);

impl Dissolved {
    /// It has ended, but for its block. What nobody has to keep any more lets go of that.
    pub(super) fn keep(&mut self, ended: Ending, is_there: impl Fn(SocketId) -> bool) {
        match ended.was.filter(|&was| is_there(was)) {
            Some(was) => {
                let kept = self.0.entry(was).or_default();
                kept.push_back(ended);
                if kept.len() > DISSOLVED_MAX {
                    kept.pop_front().into_iter().for_each(Ending::let_go);
                }
            }
            None => ended.let_go(),
        }
    }

    /// The socket is gone, or another one.
    pub(super) fn forget(&mut self, socket: SocketId) {
        self.0.remove(&socket).into_iter().flatten().for_each(Ending::let_go);
    }

    /// Where their blocks are.
    pub(super) fn arenas(&self) -> impl Iterator<Item = u32> {
        self.0.values().flatten().map(|it| it.arena.place)
    }
}

/// What it was.
#[derive(Debug)]
enum Ended {
    Stream(Arc<Stream>),
    Datagrams(Arc<Datagrams>),
}

impl Ending {
    /// What is left of a socket, if it had anything.
    pub(super) fn of(role: Role, arena: Arc<ProgramArena>, resets: bool) -> Option<Self> {
        let ended = match role {
            Role::Stream(stream, _) => Ended::Stream(stream),
            Role::Datagrams(Some(made), _) => Ended::Datagrams(made),
            _ => return None,
        };
        Some(Self { arena, ended, resets, was: None })
    }

    /// The same of a socket that is there still. Who has it in another process is told of a reset.
    pub(super) fn dissolved(role: Role, arena: Arc<ProgramArena>, was: SocketId) -> Option<Self> {
        Self::of(role, arena, true).map(|it| Self { was: Some(was), ..it }).inspect(|it| {
            if let Ended::Stream(stream) = &it.ended {
                stream.dissolve(&it.arena);
            }
        })
    }

    /// Closes it. Whether it has ended: the lane knows, and no thread of a session is inside that `lives` there.
    pub(super) fn end(&self, fabric: &Fabric, lives: impl Fn(u32) -> bool) -> bool {
        let arena = &*self.arena;
        match &self.ended {
            Ended::Stream(stream) => {
                let has_ended = stream.close(fabric, self.resets) && !stream.is_entered(arena, lives);
                if has_ended {
                    // Its lane may have something to send for as long as the peer likes.
                    stream.left().into_iter().for_each(|left| arena.closed().add(left));
                }
                has_ended
            }
            Ended::Datagrams(made) => {
                made.close(fabric);
                !made.is_entered(arena, lives)
            }
        }
    }

    /// What has ended may be another's.
    fn let_go(self) {
        match &self.ended {
            Ended::Stream(stream) => self.arena.remove(stream),
            Ended::Datagrams(made) => {
                self.arena.waiters.forget(made.number());
                self.arena.datagrams.remove(made.number());
            }
        }
    }
}

impl Hub {
    /// What a socket was ends.
    pub(super) fn end_role(&mut self, role: Role, arena: Arc<ProgramArena>, resets: bool) {
        Ending::of(role, arena, resets).into_iter().for_each(|it| self.finish(it));
    }

    /// Ends it now, or when that can be.
    pub(super) fn finish(&mut self, ending: Ending) {
        if self.has_ended(&ending) {
            let sockets = &self.sockets;
            self.dissolved.keep(ending, |it| sockets.contains_key(&it));
        } else {
            self.ending.push(ending);
        }
    }

    fn has_ended(&self, ending: &Ending) -> bool {
        ending.end(&self.engine.0.fabric, |session| self.may_be_inside(session, &ending.arena))
    }
}
