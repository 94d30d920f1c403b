//! A lane's share of an interface's queues as a [`Driver`].
//!
//! Usually one socket; more where the NIC has more queues than there are lanes, because a queue without a socket
//! would give its frames to the kernel.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use firelane_frame::{Capabilities, Chain, Driver, Pools};
use firelane_units::{DropCounters, Instant, Mtu};
use rustix::event::epoll;
use rustix::io::Errno;

use crate::error::Refused;
use crate::open::{AfXdpConfig, Attachment};
use crate::socket::{Limits, Socket};
use crate::spread::{Dealing, Nic, Spreader};

/// So many frames since the lane was last told to sleep make it worth two system calls to be woken for none of those that follow.
const UNWATCHED_AFTER: usize = 16;

/// When a device that was busy is told again of frames that it has not taken: a full ring of it empties in some hundred microseconds.
const PUSHES_AGAIN: Duration = Duration::from_micros(100);

/// A lane's sockets on one interface.
#[derive(Debug)]
pub struct AfXdpQueue {
    sockets: Vec<Socket>,
    /// Which of the link's rings it is.
    ring: u16,
    /// Readable when a socket is that is in it.
    set: OwnedFd,
    /// Whether the sockets are in the set: the kernel wakes whoever watches a socket for every frame that it has sent, to say that
    /// there is room, and for every frame that it has received, which costs a busy lane and who sends to it a tenth of their time.
    is_watched: bool,
    /// Frames that have come and gone since the lane last wanted to be woken.
    passed: usize,
    /// Whether the lane wants to be woken.
    notifies: bool,
    mtu: Mtu,
    is_virtual: bool,
    busy_poll: bool,
    /// Who is asked first.
    next: usize,
    /// What time it was in this turn.
    now: Instant,
    _attachment: Arc<Attachment>,
    /// By which queues of the NIC frames come.
    dealing: Arc<Dealing<Nic>>,
}

impl AfXdpQueue {
    /// Deals the sockets out; with fewer sockets than queues, there are fewer queues.
    pub(crate) fn share_out(
        sockets: Vec<Socket>,
        attachment: Arc<Attachment>,
        config: &AfXdpConfig,
        (index, is_virtual): (u32, bool),
    ) -> Result<Vec<Self>, Refused> {
        let failed = |error| Refused::of("epoll", error);
        let count = usize::from(config.queues).min(sockets.len());
        let nic =
            Nic::of(index).map_err(|error| Refused::System("a socket to ask the interface by", error))?;
        let dealing = Arc::new(Dealing::new(nic, sockets.len() as u32, count as u16));
        let mut dealt: Vec<Vec<Socket>> = (0..count).map(|_| Vec::new()).collect();
        for (nth, socket) in sockets.into_iter().enumerate() {
            dealt[nth % count].push(socket);
        }
        let make = |(sockets, ring): (Vec<Socket>, u16)| {
            let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
            let mut queue = Self {
                sockets,
                ring,
                set,
                is_watched: false,
                passed: 0,
                notifies: false,
                mtu: config.mtu,
                is_virtual,
                busy_poll: config.busy_poll,
                next: 0,
                now: Instant::ZERO,
                _attachment: Arc::clone(&attachment),
                dealing: Arc::clone(&dealing),
            };
            // A set that takes them now takes them ever after.
            queue.watch().map_err(failed)?;
            Ok(queue)
        };
        dealt.into_iter().zip(0..).map(make).collect()
    }

    /// What tells the NIC by how many of its rings to send, if it can be told; an error if it could not be asked.
    pub fn spreader(&self) -> Option<std::io::Result<Spreader>> {
        Spreader::of(&self.dealing)
    }

    /// Puts the sockets into the set.
    fn watch(&mut self) -> Result<(), Errno> {
        if !self.is_watched {
            for socket in &self.sockets {
                let flags = epoll::EventFlags::IN;
                match epoll::add(&self.set, socket, epoll::EventData::new_u64(0), flags) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
            }
            self.is_watched = true;
        }
        Ok(())
    }

    /// So many frames more have passed: from some on, an awake lane is not woken for them.
    fn pass(&mut self, frames: usize) {
        self.passed = self.passed.saturating_add(frames);
        if !self.notifies && self.passed >= UNWATCHED_AFTER {
            self.unwatch();
        }
    }

    /// Takes them out.
    fn unwatch(&mut self) {
        if self.is_watched {
            self.is_watched = false;
            for socket in &self.sockets {
                let _ = epoll::delete(&self.set, socket);
            }
        }
    }
}

impl AsFd for AfXdpQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl Driver for AfXdpQueue {
    fn ring(&self) -> u16 {
        self.ring
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::plain(self.mtu)
    }

    fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        let limits = Limits { longest: self.capabilities().max_frame, is_virtual: self.is_virtual };
        let (count, mut frames) = (self.sockets.len(), 0);
        // Who is first may take the whole budget, so each is first in its turn.
        self.next = (self.next + 1) % count.max(1);
        for nth in 0..count {
            let socket = &mut self.sockets[(self.next + nth) % count];
            if self.busy_poll && socket.waiting() == 0 {
                socket.poll_device();
            }
            frames += socket.receive(pools, budget - frames, limits, out, drops);
            // What the device had no room for is tried again.
            let _ = socket.push();
        }
        // Who has found nothing is about to sleep.
        if frames > 0 {
            self.pass(frames);
        }
        frames
    }

    /// The first socket sends all, so that order stays.
    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        self.pass(chain.len());
        if let Some(socket) = self.sockets.first_mut() {
            socket.transmit(chain, drops);
        }
    }

    fn notify(&mut self, on: bool) -> bool {
        self.notifies = on;
        if on {
            self.passed = 0;
            self.sockets.iter().for_each(Socket::wake_receive);
            if self.watch().is_err() {
                // Nobody would wake a sleeper: the lane looks again instead.
                return true;
            }
        }
        self.sockets.iter().any(|socket| socket.waiting() > 0)
    }

    fn leave(&mut self, is_left: bool) {
        if is_left {
            self.unwatch();
        }
    }

    /// Nobody tells when a device that was busy takes more.
    fn next_event(&self) -> Option<Instant> {
        self.sockets.iter().any(Socket::has_to_push).then(|| self.now + PUSHES_AGAIN)
    }

    fn advance(&mut self, now: Instant) {
        self.now = now;
    }
}
