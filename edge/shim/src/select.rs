//! `select` as a `poll` of the descriptors in its sets.

use core::ffi::{c_int, c_short};

use libc::{pollfd, sigset_t};
use rustix::io::Errno;

use crate::handlers::Seen;
use crate::memory::Pages;
use crate::sys::{Call, Limit, Manner};
use crate::wait::Deadline;
use crate::{poll, table};

/// What makes a descriptor readable, writable or exceptional, as Linux has it.
const READ: c_short = libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLIN | libc::POLLHUP | libc::POLLERR;
const WRITE: c_short = libc::POLLWRBAND | libc::POLLWRNORM | libc::POLLOUT | libc::POLLERR;
const EXCEPT: c_short = libc::POLLPRI;
const MASKS: [c_short; 3] = [READ, WRITE, EXCEPT];

/// So many are copied to the stack.
const FEW: usize = 64;

/// Which of the descriptors that a set has by itself (FD_SETSIZE) were sockets of ours when a call began, and so were open.
struct Begun([u64; 16]);

impl Begun {
    fn note(&mut self, fd: c_int) {
        if table::get(fd).is_some()
            && let Some(word) = self.0.get_mut(fd as usize / 64)
        {
            *word |= 1 << (fd as usize % 64);
        }
    }

    fn has(&self, fd: c_int) -> bool {
        self.0.get(fd as usize / 64).is_some_and(|word| word >> (fd as usize % 64) & 1 != 0)
    }
}

/// The sets of a call: to be read, written, and exceptional; words of 64 descriptors.
pub(crate) struct Sets<'a> {
    n: c_int,
    sets: [Option<&'a mut [u64]>; 3],
}

impl<'a> Sets<'a> {
    /// The sets of the first `n` descriptors, if one of ours is in them.
    pub(crate) fn concerning(n: c_int, sets: [Option<&'a mut [u64]>; 3]) -> Option<Self> {
        let sets = Self { n, sets };
        (0..n).any(|fd| sets.events(fd) != 0 && table::get(fd).is_some()).then_some(sets)
    }

    /// What is asked of `fd`.
    fn events(&self, fd: c_int) -> c_short {
        let (word, bit) = (fd as usize / 64, fd as usize % 64);
        let is_in = |set: &Option<&mut [u64]>| set.as_ref().is_some_and(|set| set[word] >> bit & 1 != 0);
        self.sets
            .iter()
            .zip(MASKS)
            .fold(0, |events, (set, mask)| if is_in(set) { events | mask } else { events })
    }

    /// Takes `fd` out of every set for which none of `ready` is a reason; how many it stays in.
    fn keep(&mut self, fd: c_int, ready: c_short) -> c_int {
        let (word, bit) = (fd as usize / 64, fd as usize % 64);
        let mut count = 0;
        for (set, mask) in self.sets.iter_mut().zip(MASKS) {
            let Some(set) = set else { continue };
            if set[word] >> bit & 1 != 0 {
                if ready & mask == 0 {
                    set[word] &= !(1 << bit);
                } else {
                    count += 1;
                }
            }
        }
        count
    }
}

/// Waits for the first of them: how many places are set, and what is left of the time, which is told whatever has ended the wait.
pub(crate) fn wait(sets: Sets<'_>, limit: Limit, mask: Option<&sigset_t>) -> (Result<c_int, Errno>, Limit) {
    let (seen, deadline) = (Seen::now(), Deadline::of(limit));
    let answer = wait_since(seen, sets, limit, mask);
    (answer, deadline.map(Deadline::left))
}

fn wait_since(seen: Seen, mut sets: Sets<'_>, limit: Limit, mask: Option<&sigset_t>) -> Result<c_int, Errno> {
    let all = (0..sets.n).filter(|&fd| sets.events(fd) != 0).count();
    let (mut few, mut many);
    // Most sets have few, and a confined process may not map memory.
    let list = if all <= FEW {
        few = [pollfd { fd: -1, events: 0, revents: 0 }; FEW];
        &mut few[..]
    } else {
        many = Pages::<pollfd>::new(all)?;
        &mut many[..]
    };
    let (mut len, mut begun) = (0, Begun([0; 16]));
    for fd in 0..sets.n {
        let events = sets.events(fd);
        if events != 0 {
            begun.note(fd);
            list[len] = pollfd { fd, events, revents: 0 };
            len += 1;
        }
    }
    let list = &mut list[..len];
    poll::wait_since(seen, list, limit, Manner { call: Call::Masked, mask })?;
    for entry in list.iter_mut().filter(|entry| entry.revents & libc::POLLNVAL != 0) {
        if !begun.has(entry.fd) {
            return Err(Errno::BADF);
        }
        // Another thread has closed it meanwhile: Linux has it be whatever was asked.
        entry.revents = READ | WRITE | EXCEPT;
    }
    Ok(list.iter().map(|entry| sets.keep(entry.fd, entry.revents)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_stays_in_the_sets_that_have_a_reason() {
        let (mut read, mut write) = ([1_u64 << 3, 1 << 6], [1_u64 << 3, 0]);
        let mut sets = Sets { n: 128, sets: [Some(&mut read), Some(&mut write), None] };
        assert_eq!((sets.events(3), sets.events(70), sets.events(4)), (READ | WRITE, READ, 0));
        assert_eq!(sets.keep(3, libc::POLLOUT), 1);
        assert_eq!(sets.keep(70, libc::POLLHUP), 1, "a hang-up is readable");
        assert_eq!((read, write), ([0, 1 << 6], [1 << 3, 0]));
    }
}
