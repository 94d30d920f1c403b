//! poll(2) and epoll(7): what a descriptor is ready for, levels and edges.
//!
//! Nothing waits here; `plugin.rs` looks again whenever something may have changed.

use core::ops::{BitOr, BitOrAssign};
use std::collections::BTreeMap;

use crate::errno::{Sys, fail};

/// What a descriptor is ready for, in poll's bits; epoll's are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mask(u32);

impl Mask {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const IN: Self = Self((libc::EPOLLIN | libc::EPOLLRDNORM) as u32);
    pub(crate) const PRI: Self = Self(libc::EPOLLPRI as u32);
    pub(crate) const OUT: Self = Self((libc::EPOLLOUT | libc::EPOLLWRNORM) as u32);
    pub(crate) const ERR: Self = Self(libc::EPOLLERR as u32);
    pub(crate) const HUP: Self = Self(libc::EPOLLHUP as u32);
    pub(crate) const RDHUP: Self = Self(libc::EPOLLRDHUP as u32);
    /// Reported whether they were asked for or not.
    const ALWAYS: Self = Self(Self::ERR.0 | Self::HUP.0);

    pub(crate) const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits that were asked for, and those that always count.
    pub(crate) const fn asked(self, events: u32) -> u32 {
        self.0 & (events | Self::ALWAYS.0)
    }

    /// From poll's bits.
    pub(crate) const fn of_poll(bits: i16) -> Self {
        Self(bits as u16 as u32)
    }
}

impl BitOr for Mask {
    type Output = Self;
    fn bitor(self, rhs: Self) -> Self {
        Self(self.0 | rhs.0)
    }
}

impl BitOrAssign for Mask {
    fn bitor_assign(&mut self, rhs: Self) {
        self.0 |= rhs.0;
    }
}

/// What one descriptor looks like to an epoll instance at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Look {
    pub(crate) mask: Mask,
    /// Counts of edges: of what came, and of room.
    pub(crate) edges: (u64, u64),
}

#[derive(Clone, Copy, Debug)]
struct Interest {
    events: u32,
    data: u64,
    /// With EPOLLET: what was seen when it was last reported.
    seen: Option<Look>,
    /// EPOLLONESHOT has fired.
    is_spent: bool,
}

/// An epoll instance.
#[derive(Debug, Default)]
pub(crate) struct Epoll {
    interests: BTreeMap<i32, Interest>,
}

impl Epoll {
    /// epoll_ctl(2).
    pub(crate) fn control(&mut self, op: i32, fd: i32, event: Option<(u32, u64)>) -> Sys<()> {
        let is_known = self.interests.contains_key(&fd);
        if op == libc::EPOLL_CTL_DEL {
            return if self.interests.remove(&fd).is_some() { Ok(()) } else { fail(libc::ENOENT) };
        }
        let Some((events, data)) = event else { return fail(libc::EFAULT) };
        match op {
            libc::EPOLL_CTL_ADD if is_known => return fail(libc::EEXIST),
            libc::EPOLL_CTL_MOD if !is_known => return fail(libc::ENOENT),
            libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => {}
            _ => return fail(libc::EINVAL),
        }
        self.interests.insert(fd, Interest { events, data, seen: None, is_spent: false });
        Ok(())
    }

    /// A descriptor was closed.
    pub(crate) fn forget(&mut self, fd: i32) {
        self.interests.remove(&fd);
    }

    /// The descriptors that it watches.
    pub(crate) fn watched(&self) -> Vec<i32> {
        self.interests.keys().copied().collect()
    }

    /// Takes up to `max` events of what `looks` shows, in the order of `watched`.
    pub(crate) fn take(&mut self, looks: &[(i32, Look)], max: usize) -> Vec<(u32, u64)> {
        let mut events = Vec::new();
        for (fd, look) in looks {
            let Some(interest) = self.interests.get_mut(fd) else { continue };
            let ready = look.mask.asked(interest.events);
            if ready == 0 {
                // What ends is an edge when it begins again.
                interest.seen = None;
                continue;
            }
            let is_edge_triggered = interest.events & libc::EPOLLET as u32 != 0;
            let is_old = is_edge_triggered && interest.seen.is_some_and(|seen| !is_edge(seen, *look));
            if interest.is_spent || is_old || events.len() == max {
                continue;
            }
            interest.seen = Some(*look);
            interest.is_spent = interest.events & libc::EPOLLONESHOT as u32 != 0;
            events.push((ready, interest.data));
        }
        events
    }
}

/// Whether something has happened since `seen`: a bit that was not set, something that came, room after none.
fn is_edge(seen: Look, now: Look) -> bool {
    !seen.mask.contains(now.mask) || seen.edges != now.edges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(mask: Mask, came: u64) -> Look {
        Look { mask, edges: (came, 0) }
    }

    #[test]
    fn a_level_is_reported_again_and_an_edge_is_not() {
        let mut epoll = Epoll::default();
        epoll.control(libc::EPOLL_CTL_ADD, 3, Some((libc::EPOLLIN as u32, 30))).unwrap();
        let et = (libc::EPOLLIN | libc::EPOLLET) as u32;
        epoll.control(libc::EPOLL_CTL_ADD, 4, Some((et, 40))).unwrap();
        let input = libc::EPOLLIN as u32;
        let both = [(3, look(Mask::IN, 1)), (4, look(Mask::IN, 1))];
        assert_eq!(epoll.take(&both, 9), [(input, 30), (input, 40)]);
        assert_eq!(epoll.take(&both, 9), [(input, 30)]);
        let more = [(3, look(Mask::NONE, 1)), (4, look(Mask::IN, 2))];
        assert_eq!(epoll.take(&more, 9), [(input, 40)], "more came");
    }

    #[test]
    fn one_shot_fires_once_until_it_is_armed_again() {
        let mut epoll = Epoll::default();
        let once = Some(((libc::EPOLLIN | libc::EPOLLONESHOT) as u32, 7));
        epoll.control(libc::EPOLL_CTL_ADD, 3, once).unwrap();
        let ready = [(3, look(Mask::IN, 1))];
        assert_eq!(epoll.take(&ready, 9).len(), 1);
        assert_eq!(epoll.take(&ready, 9).len(), 0);
        epoll.control(libc::EPOLL_CTL_MOD, 3, once).unwrap();
        assert_eq!(epoll.take(&ready, 9).len(), 1);
    }

    #[test]
    fn mistakes_have_their_numbers() {
        let mut epoll = Epoll::default();
        let event = Some((1, 1));
        assert_eq!(epoll.control(libc::EPOLL_CTL_MOD, 3, event), fail(libc::ENOENT));
        assert_eq!(epoll.control(libc::EPOLL_CTL_DEL, 3, None), fail(libc::ENOENT));
        assert_eq!(epoll.control(libc::EPOLL_CTL_ADD, 3, None), fail(libc::EFAULT));
        epoll.control(libc::EPOLL_CTL_ADD, 3, event).unwrap();
        assert_eq!(epoll.control(libc::EPOLL_CTL_ADD, 3, event), fail(libc::EEXIST));
        assert_eq!(epoll.control(99, 3, event), fail(libc::EINVAL));
    }
}
