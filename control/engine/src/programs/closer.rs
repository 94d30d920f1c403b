//! Closing what programs have had in their hands, apart from the thread that serves them.
//!
//! The last close of a file waits as long as whoever made it likes: for his own file system (FUSE), for a peer (a socket of
//! the kernel's with SO_LINGER). And a UNIX socket takes the descriptors along that lie unread in its queue. So what a
//! program has sent, and a socket whose queue a program can have filled, is closed by a thread that keeps nobody else: one
//! for each user, as long as there is something of his. Used by `hub.rs`, and by the daemon for control connections.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, Shutdown, recvmsg, shutdown};

/// With so many that are not closed yet, of which one takes long, a user gets nothing more; with more of them in any case.
const BEHIND: usize = 256;
const FAR_BEHIND: u32 = 4;
/// What ends of itself, as a server's children do many at a time, is closed sooner, if its closer has a CPU.
const LONG: Duration = Duration::from_millis(100);

/// What is to be closed, by user. One with an entry has a thread.
#[derive(Clone, Default)]
pub struct Closer(Arc<Mutex<BTreeMap<u32, Waiting>>>);

/// What of a user is to be closed.
#[derive(Debug)]
struct Waiting {
    queue: VecDeque<OwnedFd>,
    /// Since when one is being closed.
    since: Instant,
}

impl Closer {
    /// Closes a descriptor that a program of `user` has made, sooner or later.
    pub fn close(&self, user: u32, fd: OwnedFd) {
        let mut waiting = self.lock();
        if let Some(waiting) = waiting.get_mut(&user) {
            return waiting.queue.push_back(fd);
        }
        let closer = self.clone();
        let thread = thread::Builder::new().name(format!("close-{user}")).spawn(move || closer.work(user));
        // Without another thread, which the whole process lacks then, this one has to.
        if thread.is_ok() {
            waiting.insert(user, Waiting { queue: VecDeque::from([fd]), since: Instant::now() });
        }
    }

    /// Ends a connection of a program of `user`, of which nobody but the daemon has this end. The program sees that at once. What it has sent
    /// last, and nobody has looked at, is closed with the descriptor: without any that is now. Whether it was.
    pub fn hang_up(&self, user: u32, control: OwnedFd) -> bool {
        let _ = shutdown(&control, Shutdown::Both);
        let is_at_end = is_at_end(&control);
        if !is_at_end {
            self.close(user, control);
        }
        is_at_end
    }

    /// Whether so much of a user's waits that he is to be given nothing more.
    pub fn is_behind(&self, user: u32) -> bool {
        self.times_behind(user) > 0
    }

    /// How many times as much.
    pub fn times_behind(&self, user: u32) -> u32 {
        self.lock().get(&user).map_or(0, |waiting| {
            let times = (waiting.queue.len() / BEHIND) as u32;
            if times >= FAR_BEHIND || times > 0 && waiting.since.elapsed() >= LONG { times } else { 0 }
        })
    }

    /// Descriptors that came from a program of `user`.
    pub fn foreign(&self, user: u32, fds: Vec<OwnedFd>) -> Foreign {
        Foreign { closer: self.clone(), user, fds }
    }

    fn work(&self, user: u32) {
        loop {
            let mut waiting = self.lock();
            let next = waiting.get_mut(&user).and_then(|it| {
                it.since = Instant::now();
                it.queue.pop_front()
            });
            let Some(fd) = next else {
                waiting.remove(&user);
                return;
            };
            drop(waiting);
            drop(fd);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Descriptors that came from a program. Nobody knows what they are: what is not taken out is closed elsewhere.
#[derive(Debug)]
pub struct Foreign {
    closer: Closer,
    user: u32,
    fds: Vec<OwnedFd>,
}

impl Foreign {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.fds.len()
    }

    /// Takes the first out if it is what the caller knows how to close. To ask must not wait: a question about a file can.
    pub fn take(&mut self, is_known: impl FnOnce(&OwnedFd) -> bool) -> Option<OwnedFd> {
        let is_known = self.fds.first().is_some_and(is_known);
        is_known.then(|| self.fds.remove(0))
    }

    /// All of them, for who looks at them next.
    pub fn into_inner(mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.fds)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.fds.drain(..).for_each(|fd| self.closer.close(self.user, fd));
    }
}

/// Whether nothing lies in the queue of a connection that is shut down, so that nothing more comes. A message may have no bytes, and
/// descriptors beside it all the same. With SO_PASSCRED there is something beside each, for which there is no room here; only the end has nothing.
fn is_at_end(control: &OwnedFd) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let (mut bytes, mut beside) = ([0], RecvAncillaryBuffer::default());
    let peek = |()| recvmsg(control, &mut [IoSliceMut::new(&mut bytes)], &mut beside, flags);
    let got = set_socket_passcred(control, true).and_then(peek);
    got.is_ok_and(|got| got.bytes == 0 && !got.flags.contains(ReturnFlags::CTRUNC))
}

/// Closes a socket whose other end programs have, and which is in `set`. Only one with something in its queue can keep whoever closes
/// it; meanwhile the set says nothing of it.
pub(super) fn close_end(closer: &Closer, user: u32, ours: OwnedFd, set: &OwnedFd) {
    if !ends_empty(&ours) {
        // One that is not there any more is nothing to take out.
        let _ = epoll::delete(set, ours.as_fd());
        closer.close(user, ours);
    }
}

/// Ends it for whoever still has the other end, and says whether nothing lies in its queue: from here on nothing can come to lie there.
fn ends_empty(ours: &OwnedFd) -> bool {
    let _ = shutdown(ours, Shutdown::Both);
    rustix::io::ioctl_fionread(ours) == Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::BorrowedFd;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    /// A connection of the kernel's whose last close takes as long as its peer does not read.
    fn slow() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        rustix::net::sockopt::set_socket_linger(&slow, Some(Duration::from_secs(600))).unwrap();
        slow.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &slow, &[0; 1 << 16]).is_ok() {}
        (slow.into(), peer)
    }

    fn until(what: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !what() {
            assert!(Instant::now() < deadline, "in vain");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn who_sends_what_is_slow_to_close_waits_for_it_alone() {
        let closer = Closer::default();
        let (fd, peer) = slow();
        drop(closer.foreign(1, vec![fd]));
        let [(mine, theirs), (other, others)] = [UnixStream::pair().unwrap(), UnixStream::pair().unwrap()];
        for _ in 0..BEHIND {
            closer.close(1, theirs.try_clone().unwrap().into());
        }
        closer.close(2, others.into());
        until(|| !closer.lock().contains_key(&2));
        assert_eq!(std::io::Read::read(&mut &other, &mut [0]).unwrap(), 0, "the other user's is closed");
        // Not before the first one has taken long.
        until(|| closer.is_behind(1));
        assert!(!closer.is_behind(2) && closer.lock()[&1].since.elapsed() >= LONG);
        drop((peer, theirs));
        until(|| !closer.lock().contains_key(&1));
        assert_eq!(std::io::Read::read(&mut &mine, &mut [0]).unwrap(), 0, "then his own");
    }

    #[test]
    fn a_socket_with_something_in_its_queue_is_closed_elsewhere() {
        let closer = Closer::default();
        let (fd, peer) = slow();
        let (ours, theirs) = UnixStream::pair().unwrap();
        firelane_shm::carry::send(&theirs, b"x", &[fd.as_fd()], true).unwrap();
        drop(fd);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&set, &ours, epoll::EventData::new_u64(1), epoll::EventFlags::IN).unwrap();
        let is_told = || {
            let mut events = [const { std::mem::MaybeUninit::uninit() }; 1];
            let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            let (events, _) = epoll::wait(&set, &mut events, Some(&now)).unwrap();
            !events.is_empty()
        };
        assert!(is_told());
        close_end(&closer, 1, ours.into(), &set);
        assert!(!is_told(), "it is nothing for the set any more");
        assert!(closer.lock().contains_key(&1));
        let (ours, _theirs) = UnixStream::pair().unwrap();
        close_end(&closer, 2, ours.into(), &set);
        assert!(!closer.lock().contains_key(&2), "it is closed already");
        drop(peer);
        until(|| closer.lock().is_empty());
    }

    #[test]
    fn nothing_comes_into_a_queue_that_was_found_empty() {
        let (fd, _peer) = slow();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ours = OwnedFd::from(ours);
        assert!(ends_empty(&ours));
        // Who closes it now takes nothing of a program's along, though that has its end still.
        assert!(firelane_shm::carry::send(&theirs, b"x", &[fd.as_fd()], false).is_err());
    }

    #[test]
    fn a_connection_is_closed_at_once_if_nothing_lies_in_it() {
        use firelane_shm::carry::send;
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let closer = Closer::default();
        let (any, _) = UnixStream::pair().unwrap();
        let (some, none) = ([any.as_fd()], []);
        let is_closed = |says: &[(&[u8], &[BorrowedFd<'_>])], has_gone: bool| {
            let kind = SocketType::SEQPACKET;
            let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            says.iter().for_each(|(bytes, beside)| send(&theirs, bytes, beside, true).unwrap());
            let theirs = (!has_gone).then_some(theirs);
            let is_closed = closer.hang_up(1, ours);
            let end = |it: OwnedFd| rustix::net::recv(it, &mut [0], RecvFlags::DONTWAIT) != Err(Errno::AGAIN);
            assert!(theirs.is_none_or(end), "it is told");
            is_closed
        };
        for has_gone in [false, true] {
            assert!(is_closed(&[], has_gone));
            for says in [&[(&b"x"[..], &none[..])][..], &[(b"x", &some)], &[(b"", &some)]] {
                assert!(!is_closed(says, has_gone));
            }
            assert!(!is_closed(&[(b"", &none), (b"", &some)], has_gone), "an empty message is not the end");
        }
        until(|| closer.lock().is_empty());
    }
}
