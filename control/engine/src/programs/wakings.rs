//! Requests about who waits where, and who wakes him: doorbells of waiters, and the segments in which they wait.
//!
//! A part of `hub.rs`, which has the sessions.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Wake, Waker};

use firelane_shm::control::{Answer, Request};
use firelane_shm::doorbell;
use rustix::io::Errno;

use super::closer::Foreign;
use super::hub::Hub;
use super::segment::Segment;
use super::session::Reply;
use super::sharers::Naming;

impl Hub {
    /// Rings those of whom there are too many for a lane. What is left it does when it has looked what else there is.
    pub(super) fn ring_crowds(&self) {
        // Of each program some, whatever there is of others.
        let with_more = self.arenas.iter().filter(|it| it.waiters.ring_crowds(it.mapping())).count();
        if with_more > 0 {
            self.bell.wake_by_ref();
        }
    }

    /// Requests about who waits where, and who wakes him.
    pub(super) fn answer_waiter(
        &mut self,
        number: u32,
        request: Request,
        mut fds: Foreign,
    ) -> Result<Reply, Errno> {
        let session = self.sessions.get(&number).ok_or(Errno::NETDOWN)?;
        match request {
            Request::Waiter { arena } => {
                let own = session.arena_of(arena).cloned();
                let segment = if own.is_none() { Some(self.segment(number, arena)?) } else { None };
                let wakes = fds.take(|it| doorbell::is_one(it)).ok_or(Errno::BADF)?;
                let of_own = own.as_ref().map(|it| (&it.waiters, it.mapping()));
                let of_segment = segment.as_ref().map(|it| (&it.waiters, it.arena().mapping()));
                let (waiters, memory) = of_own.or(of_segment).ok_or(Errno::INVAL)?;
                let slot = waiters.add(memory, number, wakes);
                Ok(Answer::Slot { slot }.into())
            }
            Request::Share { place, waiter, is_anew } => {
                let arena = session.arena_of(place.arena).ok_or(Errno::INVAL)?;
                let wakes = fds.take(|it| doorbell::is_one(it)).ok_or(Errno::BADF)?;
                let block = arena.mapping().block(place.block).ok_or(Errno::INVAL)?;
                let generation = block.generation.load(Ordering::Acquire);
                let naming = Naming { block: place.block, generation, who: (number, waiter), is_anew };
                let hub = || Waker::from(Arc::clone(&self.bell));
                let is_known = arena.waiters.share(naming, wakes, hub);
                if is_known { Ok(Answer::Done.into()) } else { Err(Errno::NOSPC) }
            }
            Request::NoWaiter { arena, slot } => {
                let arena = session.arena_of(arena).ok_or(Errno::INVAL)?;
                let was = arena.waiters.remove(arena.mapping(), number, Some(slot));
                if was { Ok(Answer::Done.into()) } else { Err(Errno::INVAL) }
            }
            Request::Segment { segment } => {
                let segment = self.segment(number, segment)?;
                let memfd = segment.arena().as_fd().try_clone_to_owned().map_err(super::socket::errno)?;
                Ok(Reply { answer: Answer::Done, fds: vec![memfd] })
            }
            Request::Bell { segment, slot } => {
                let bell = self.segment(number, segment)?.waiters.bell(slot).map_err(|_| Errno::NOENT)?;
                Ok(Reply { answer: Answer::Done, fds: vec![bell] })
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// A segment that the session may have: one of its sides is an arena of the session's.
    fn segment(&self, session: u32, number: u64) -> Result<Arc<Segment>, Errno> {
        let session = self.sessions.get(&session).ok_or(Errno::NETDOWN)?;
        let segment = self.engine.0.fabric.programs.segments.numbered(number);
        let is_asked = |it: &Arc<Segment>| it.is_asked_by(|side| session.arena_of(side).is_some());
        segment.filter(is_asked).ok_or(Errno::INVAL)
    }
}
