//! What the keeper thread and the lanes' queues share: sessions handed over, doorbells and faults handed back.
//!
//! A queue reads one word per call to see whether its session changed; everything else happens once per session.
//! - R1. The keeper puts a pair into the seat with its epoch, then shows the epoch; the queue sees another one than its own, then takes
//!   the pair with the epoch that lies there, which may be a later one.
//! - R2. Only the keeper writes to descriptors that the other process has too; who frees it from a write that waits reads them, without waiting.
//! - R3. Only the keeper lets go of a session's memory: the queues hand it back, because to unmap a gigabyte takes a second.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::handshake::Peer;
use crate::receive::Fault;
use crate::session::Pair;
use crate::wire::Bound;

/// Whether anybody is at the other end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nobody, and why the last one left: another may come at any time.
    Waiting(Option<String>),
    /// Nobody, and why the last attempt or session failed: whoever comes next fails, too, unless that is set right.
    Failed(String),
    /// A session runs.
    Connected {
        /// The program, as it calls itself.
        program: String,
        /// The interface, as the other end calls it.
        interface: String,
    },
}

/// What has failed since the interface was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Failures {
    /// How many attempts and sessions.
    pub count: u64,
    /// Why the last one did.
    pub last: String,
}

/// One queue's place.
#[derive(Debug)]
pub(crate) struct Seat {
    epoch: AtomicU64,
    session: Mutex<(u64, Option<Pair>)>,
    /// What the lane waits for: an epoll set, because the doorbell changes with each session.
    set: OwnedFd,
    news: OwnedFd,
}

/// What the keeper and the queues share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) seats: Vec<Seat>,
    /// Wakes the keeper.
    bell: OwnedFd,
    /// Queues whose reader is to be woken, a bit for each.
    doorbells: AtomicU64,
    fault: Mutex<Option<(u64, Fault)>>,
    /// What queues had of sessions that are over.
    left: Mutex<Vec<Pair>>,
    stop: AtomicBool,
    /// Rung once, when the interface is removed, and read by nobody.
    removed: OwnedFd,
    standing: Mutex<(Standing, Failures)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is replaced whole, so a panic leaves nothing half-done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Rings an eventfd of ours.
fn ring(bell: &OwnedFd) {
    // The counter of an eventfd does not overflow by ones, and nothing else can fail here.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

impl Seat {
    fn new() -> io::Result<Self> {
        let (set, news) = (epoll::create(epoll::CreateFlags::CLOEXEC)?, bell()?);
        epoll::add(&set, &news, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        Ok(Self { epoch: AtomicU64::new(0), session: Mutex::default(), set, news })
    }

    /// The descriptor that becomes readable when frames or sessions come.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// The queue: whether something changed since `seen`, and to what (R1).
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The queue: takes its new session, if there is one, and the epoch of that.
    pub(crate) fn take(&self) -> (u64, Option<Pair>) {
        let _ = rustix::io::read(&self.news, &mut [0; 8]);
        let mut session = lock(&self.session);
        (session.0, session.1.take())
    }

    /// The keeper: a new session, or none any more.
    pub(crate) fn put(&self, epoch: u64, pair: Option<Pair>) {
        *lock(&self.session) = (epoch, pair);
        self.epoch.store(epoch, Ordering::Release);
        ring(&self.news);
    }

    /// The keeper: the lane is woken by `receive`. Edge-triggered and never read: who reads a stranger's descriptor
    /// may have to wait.
    pub(crate) fn watch(&self, receive: &OwnedFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.set, receive, epoll::EventData::new_u64(1), flags)?)
    }

    /// The keeper: not any more. Closing alone would leave it, because the other process has it too.
    pub(crate) fn forget(&self, receive: &OwnedFd) {
        let _ = epoll::delete(&self.set, receive);
    }
}

impl Shared {
    pub(crate) fn new(queues: u16) -> io::Result<Self> {
        Ok(Self {
            seats: (0..queues).map(|_| Seat::new()).collect::<io::Result<_>>()?,
            bell: bell()?,
            doorbells: AtomicU64::new(0),
            fault: Mutex::default(),
            left: Mutex::default(),
            stop: AtomicBool::new(false),
            removed: bell()?,
            standing: Mutex::new((Standing::Waiting(None), Failures::default())),
        })
    }

    /// What wakes the keeper.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The keeper is awake.
    pub(crate) fn clear_bell(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// A queue: its reader sleeps and is to be woken.
    #[inline]
    pub(crate) fn ask_doorbell(&self, queue: usize) {
        if self.doorbells.fetch_or(1 << queue, Ordering::AcqRel) == 0 {
            ring(&self.bell);
        }
    }

    /// The keeper: which readers are to be woken.
    pub(crate) fn take_doorbells(&self) -> u64 {
        self.doorbells.swap(0, Ordering::AcqRel)
    }

    /// A queue: the other end of session `epoch` cheats. Who accuses one that is over does not hide what another queue says of the present one,
    /// which has nobody else to end it.
    pub(crate) fn accuse(&self, epoch: u64, fault: Fault) {
        let mut said = lock(&self.fault);
        if said.as_ref().is_none_or(|(of, _)| *of <= epoch) {
            *said = Some((epoch, fault));
        }
        drop(said);
        ring(&self.bell);
    }

    /// The keeper: what was found out about session `epoch`.
    pub(crate) fn take_fault(&self, epoch: u64) -> Option<Fault> {
        lock(&self.fault).take().filter(|(of, _)| *of == epoch).map(|(_, fault)| fault)
    }

    /// A queue: it is done with this (R3).
    pub(crate) fn hand_back(&self, pair: Option<Pair>) {
        if let Some(pair) = pair {
            lock(&self.left).push(pair);
            ring(&self.bell);
        }
    }

    /// The keeper: what was handed back.
    pub(crate) fn take_left(&self) -> Vec<Pair> {
        std::mem::take(&mut lock(&self.left))
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        ring(&self.bell);
        ring(&self.removed);
    }

    /// What is readable once the interface is removed.
    pub(crate) fn removed(&self) -> BorrowedFd<'_> {
        self.removed.as_fd()
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn set_standing(&self, standing: Standing) {
        let mut known = lock(&self.standing);
        if let Standing::Failed(why) = &standing {
            known.1.count += 1;
            known.1.last.clone_from(why);
        }
        known.0 = standing;
    }

    /// The keeper: the peer of a session that begins.
    pub(crate) fn set_connected(&self, peer: Peer) {
        let Peer { program, interface } = peer;
        self.set_standing(Standing::Connected { program, interface });
    }
}

/// Says who is at the other end; does not keep the interface.
#[derive(Clone, Debug)]
pub struct MemifStatus(pub(crate) Arc<Shared>);

impl MemifStatus {
    /// Who is there now.
    pub fn standing(&self) -> Standing {
        lock(&self.0.standing).0.clone()
    }

    /// What has failed until now, also if somebody is there again.
    pub fn failures(&self) -> Failures {
        lock(&self.0.standing).1.clone()
    }
}

/// The interface itself: it ends with the last of its queues.
#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) shared: Arc<Shared>,
    /// Where a server's socket is.
    pub(crate) bound: Option<Bound>,
}

impl Drop for Interface {
    fn drop(&mut self) {
        // Here and not by the keeper, so that the path is free when the last queue is gone.
        self.bound.iter().for_each(Bound::remove);
        self.shared.stop();
    }
}

#[cfg(test)]
mod tests {
    use firelane_frame::{Chain, Driver, Pools, PoolsConfig};
    use firelane_units::{DropCounters, Mtu};

    use super::*;
    use crate::layout::Plan;
    use crate::queue::MemifQueue;
    use crate::session::ClientMemory;

    /// R3.
    #[test]
    fn a_lane_does_not_unmap() {
        let plan = Plan { queues: 1, log2_size: 4, buffer_bytes: 2048 };
        let memory = || ClientMemory::make(plan).unwrap().pairs.pop().unwrap();
        let region = |pair: &Pair| Arc::downgrade(&pair.receiver.regions);
        let shared = Arc::new(Shared::new(1).unwrap());
        let interface = Arc::new(Interface { shared: Arc::clone(&shared), bound: None });
        let mut queue = MemifQueue::new(interface, 0, Mtu::ETHERNET);
        let (mut pools, mut out) = (Pools::new(PoolsConfig { small_slots: 4, large_slots: 1 }), Chain::new());
        let mut receive =
            |queue: &mut MemifQueue| queue.receive(&mut pools, 64, &mut out, &mut DropCounters::default());
        let [ended, replaced, last] = [memory(), memory(), memory()];
        let regions = [&ended, &replaced, &last].map(region);
        let is_there = || regions.each_ref().map(|it| it.strong_count() > 0);
        for (epoch, pair) in [(1, Some(ended)), (2, None), (3, Some(replaced)), (4, Some(last))] {
            shared.seats[0].put(epoch, pair);
            assert_eq!(receive(&mut queue), 0);
        }
        assert_eq!((is_there(), shared.take_left().len()), ([true; 3], 2));
        assert_eq!(is_there(), [false, false, true]);
        drop(queue);
        assert!(shared.has_stopped() && is_there()[2]);
        assert_eq!(shared.take_left().len(), 1);
    }

    #[test]
    fn an_accusation_of_a_session_that_is_over_hides_none_of_the_present_one() {
        let shared = Shared::new(2).unwrap();
        shared.accuse(7, Fault::Cursor);
        shared.accuse(5, Fault::Buffer);
        assert_eq!(shared.take_fault(7), Some(Fault::Cursor));
        shared.accuse(5, Fault::Buffer);
        shared.accuse(7, Fault::Cursor);
        assert_eq!(shared.take_fault(7), Some(Fault::Cursor));
        shared.accuse(5, Fault::Buffer);
        assert_eq!(shared.take_fault(7), None);
    }
}
