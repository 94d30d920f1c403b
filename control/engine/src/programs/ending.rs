//! What programs have had and nobody has any more: streams and datagram sockets whose blocks may have to wait before they are others'.
//!
//! Owned by `hub.rs`, which asks now and then whether they have ended.

use std::sync::Arc;

use super::arena::ProgramArena;
use super::datagrams::Datagrams;
use super::socket::Role;
use super::stream::Stream;
use crate::fabric::Fabric;

/// One of them.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) arena: Arc<ProgramArena>,
    ended: Ended,
    resets: bool,
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
        Some(Self { arena, ended, resets })
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
                    arena.remove(stream);
                }
                has_ended
            }
            Ended::Datagrams(made) => {
                made.close(fabric);
                let has_ended = !made.is_entered(arena, lives);
                if has_ended {
                    arena.waiters.forget(made.number());
                    arena.datagrams.remove(made.number());
                }
                has_ended
            }
        }
    }
}
