//! What an epoll set wants of which sockets of ours, and who of them stands in line to be looked at.
//!
//! - R1. Level: who was told stays in line until a look finds nothing. Edge: he leaves, and is told again when lane or peer have
//!   changed something since. One-shot: he leaves, and
//!   nothing is asked of him until he is changed.
//! - R2. A descriptor that was closed, or is another socket by now, is found out by its word and by the use of its
//!   block, and dropped then.
//!
//! Used by `epoll.rs` alone. Arrays are by descriptor and by block, of memory that costs nothing untouched.

use core::ffi::c_int;

use firelane_shm::layout::BLOCKS_MAX;
use libc::epoll_event;
use rustix::io::Errno;

use crate::memory::Pages;
use crate::socket::{self, Kind};
use crate::table::{self, Word};
use crate::waiter::generation_of;
use crate::{arenas, ready, room};

const ERRORS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONE_SHOT: u32 = libc::EPOLLONESHOT as u32;
/// The bits of a one-shot interest that stay when it has been told: nothing is asked, not even for errors.
const KEPT: u32 = EDGE | ONE_SHOT | (libc::EPOLLWAKEUP | libc::EPOLLEXCLUSIVE) as u32;

/// How many arenas a process maps.
const ARENAS: usize = arenas::ARENAS_MAX;
/// No descriptor: they are counted from one here, so that zeroed memory says so.
const NOBODY: u32 = 0;

/// What a set wants of one descriptor.
#[derive(Clone, Copy)]
pub(crate) struct Interest {
    /// The table's word when it was added; zero is no interest.
    word: u64,
    /// The use of its block then.
    generation: u64,
    data: u64,
    events: u32,
    /// What its stream's words were when all were last put in line that had changed.
    progress: u64,
    /// The same when an edge of it was told last; zero is never, or not since it was changed.
    told: u64,
    /// Who is behind him in line.
    next: u32,
    /// Another descriptor with the same block.
    sibling: u32,
    is_in_line: u32,
}

/// The interests of a set.
pub(super) struct Interests {
    by_fd: Option<Pages<Interest>>,
    /// For each arena, the first descriptor of each block.
    by_block: [Option<Pages<u32>>; ARENAS],
    first: u32,
    last: u32,
    in_line: usize,
    /// One above the highest descriptor that ever was in.
    bound: usize,
}

impl Interests {
    pub(super) const fn new() -> Self {
        Self {
            by_fd: None,
            by_block: [const { None }; ARENAS],
            first: NOBODY,
            last: NOBODY,
            in_line: 0,
            bound: 0,
        }
    }

    fn at(&self, fd: usize) -> Option<&Interest> {
        self.by_fd.as_ref()?.get(fd).filter(|it| it.word != 0)
    }

    fn at_mut(&mut self, fd: usize) -> Option<&mut Interest> {
        self.by_fd.as_mut()?.get_mut(fd).filter(|it| it.word != 0)
    }

    /// Whether there is none, and never was.
    pub(super) fn is_empty(&self) -> bool {
        self.by_fd.is_none()
    }

    /// Whether the socket that `fd` is by now is in.
    pub(super) fn has(&self, fd: c_int, word: Word) -> bool {
        self.at(fd as usize).is_some_and(|it| is_current(it, word))
    }

    /// Each descriptor with its word, but for those whose words are another socket's by now: they may be a listener's, where marks are none.
    pub(super) fn each(&self, mut with: impl FnMut(c_int, Word)) {
        for fd in 0..self.bound {
            if let Some(it) = self.at(fd)
                && let Some(word) = Word::new(it.word)
                && it.generation == generation_of(word)
            {
                with(fd as c_int, word);
            }
        }
    }

    /// Puts a descriptor in, which is not in, and in line. What is not [`asked`], as errors of a one-shot interest that was told, is not told.
    pub(super) fn add(&mut self, fd: c_int, word: Word, event: epoll_event) -> Result<(), Errno> {
        if self.by_fd.is_none() {
            self.by_fd = Some(Pages::new(room::descriptors())?);
        }
        let fd = usize::try_from(fd).map_err(|_| Errno::BADF)?;
        if self.at(fd).is_some() {
            // A descriptor of this number was closed, and nobody has noticed as yet.
            self.unlink(fd);
        }
        let sibling = self.link(fd, word)?;
        let pages = self.by_fd.as_mut().and_then(|pages| pages.get_mut(fd)).ok_or(Errno::BADF)?;
        *pages = Interest {
            word: word.bits(),
            generation: generation_of(word),
            data: event.u64,
            events: event.events,
            sibling,
            told: 0,
            ..*pages
        };
        self.bound = self.bound.max(fd + 1);
        self.line_up(fd);
        Ok(())
    }

    /// Makes the arrays that the first descriptor would make, and for the streams of an arena.
    pub(super) fn make_room(&mut self, arena: u16) {
        if self.by_fd.is_none() {
            self.by_fd = Pages::new(room::descriptors()).ok();
        }
        if let Some(heads) = self.by_block.get_mut(usize::from(arena))
            && heads.is_none()
        {
            *heads = Pages::new(BLOCKS_MAX as usize).ok();
        }
    }

    /// Whether it was added with EPOLLEXCLUSIVE.
    pub(super) fn is_exclusive(&self, fd: c_int) -> bool {
        self.at(fd as usize).is_some_and(|it| it.events & libc::EPOLLEXCLUSIVE as u32 != 0)
    }

    /// Changes what is wanted of a descriptor that is in.
    pub(super) fn modify(&mut self, fd: c_int, event: epoll_event) {
        if let Some(it) = self.at_mut(fd as usize) {
            it.data = event.u64;
            (it.events, it.told) = (asked(event).events, 0);
            // One that is not ready has no place before those that become so.
            if self.ready(fd as usize).0 != 0 {
                self.line_up(fd as usize);
            }
        }
    }

    /// Takes a descriptor out; what was wanted of it.
    pub(super) fn remove(&mut self, fd: c_int, word: Word) -> Option<epoll_event> {
        let it = *self.at(fd as usize).filter(|it| is_of(it, word))?;
        self.unlink(fd as usize);
        Some(epoll_event { events: it.events, u64: it.data })
    }

    /// Whether another descriptor in the set has the block of `word`.
    pub(super) fn has_block_of(&self, word: Word) -> bool {
        let heads = self.by_block.get(usize::from(socket::arena(word))).and_then(Option::as_ref);
        heads.and_then(|heads| heads.get(socket::number(word) as usize)).is_some_and(|&head| head != NOBODY)
    }

    /// The first descriptor of the block of `word`: zero if it is no stream.
    fn head(&mut self, word: Word) -> Result<Option<&mut u32>, Errno> {
        if socket::kind(word) != Kind::Stream {
            return Ok(None);
        }
        let heads = self.by_block.get_mut(usize::from(socket::arena(word))).ok_or(Errno::NFILE)?;
        if heads.is_none() {
            *heads = Some(Pages::new(BLOCKS_MAX as usize)?);
        }
        Ok(heads.as_mut().and_then(|heads| heads.get_mut(socket::number(word) as usize)))
    }

    /// Puts a descriptor in front of the others of its block; who they are.
    fn link(&mut self, fd: usize, word: Word) -> Result<u32, Errno> {
        Ok(self.head(word)?.map_or(NOBODY, |head| core::mem::replace(head, fd as u32 + 1)))
    }

    /// Takes a descriptor out. Its place in line stays, and is passed over.
    fn unlink(&mut self, fd: usize) {
        let Some(it) = self.at_mut(fd) else { return };
        let (word, after) = (Word::new(it.word), it.sibling);
        it.word = 0;
        let own = fd as u32 + 1;
        let Some(Ok(Some(head))) = word.map(|word| self.head(word)) else { return };
        if *head == own {
            *head = after;
            return;
        }
        let mut before = *head;
        while before != NOBODY {
            let Some(it) = self.by_fd.as_mut().and_then(|pages| pages.get_mut(before as usize - 1)) else {
                return;
            };
            if it.sibling == own {
                it.sibling = after;
                return;
            }
            before = it.sibling;
        }
    }

    /// Puts all descriptors of a block in line.
    pub(super) fn line_up_block(&mut self, arena: u16, block: u32) {
        let heads = self.by_block.get(usize::from(arena)).and_then(Option::as_ref);
        let mut next = heads.and_then(|heads| heads.get(block as usize)).copied().unwrap_or(NOBODY);
        while next != NOBODY {
            self.line_up(next as usize - 1);
            next = self.at(next as usize - 1).map_or(NOBODY, |it| it.sibling);
        }
    }

    /// Puts everybody in line.
    pub(super) fn line_up_all(&mut self) {
        for fd in 0..self.bound {
            if self.at(fd).is_some() {
                self.line_up(fd);
            }
        }
    }

    /// Puts everybody in line for whom there may be news that nobody has left word of: who waits for an edge, if anything of his
    /// stream has changed since the last time.
    pub(super) fn line_up_changed(&mut self) {
        for fd in 0..self.bound {
            let Some(it) = self.at_mut(fd).filter(|it| it.events & !KEPT != 0) else { continue };
            let is_edge = it.events & EDGE != 0;
            let before = it.progress;
            if is_edge && let Some(word) = Word::new(it.word) {
                it.progress = ready::progress(fd as c_int, word, it.events);
            }
            if !is_edge || it.progress != before {
                self.line_up(fd);
            }
        }
    }

    /// Puts a descriptor at the end of the line, unless it stands there.
    fn line_up(&mut self, fd: usize) {
        let Some(pages) = &mut self.by_fd else { return };
        if pages[fd].is_in_line != 0 {
            return;
        }
        (pages[fd].is_in_line, pages[fd].next) = (1, NOBODY);
        match self.last {
            NOBODY => self.first = fd as u32 + 1,
            last => pages[last as usize - 1].next = fd as u32 + 1,
        }
        self.last = fd as u32 + 1;
        self.in_line += 1;
    }

    /// Takes the first out of the line.
    fn step_up(&mut self) -> Option<usize> {
        let fd = self.first.checked_sub(1)? as usize;
        let it = self.by_fd.as_mut()?.get_mut(fd)?;
        it.is_in_line = 0;
        self.first = it.next;
        if self.first == NOBODY {
            self.last = NOBODY;
        }
        self.in_line -= 1;
        Some(fd)
    }

    /// Who was taken out of the line is its first again.
    fn step_back(&mut self, fd: usize) {
        let Some(pages) = &mut self.by_fd else { return };
        (pages[fd].is_in_line, pages[fd].next) = (1, self.first);
        self.first = fd as u32 + 1;
        if self.last == NOBODY {
            self.last = self.first;
        }
        self.in_line += 1;
    }

    /// What is ready of a descriptor and wanted, and for an edge how far its stream was before that look; drops one that is another by
    /// now (R2). Of an edge that was told nothing is ready until its stream has changed: there are news that change nothing.
    fn ready(&mut self, fd: usize) -> (u32, u64) {
        let Some(it) = self.at(fd) else { return (0, 0) };
        let now = table::get(fd as c_int);
        let Some(word) = now.filter(|&word| is_current(it, word)) else {
            if !now.is_some_and(|word| may_become(it, word)) {
                self.unlink(fd);
            }
            return (0, 0);
        };
        let look = || ready::of(fd as c_int, word) & it.events;
        if it.events & EDGE == 0 {
            return (look(), 0);
        }
        let progress = || ready::progress(fd as c_int, word, it.events);
        let before = progress();
        if before != 0 && before == it.told {
            return (0, before);
        }
        // What has come between the number and the look would be told by this look and by the next one, so there is one more.
        let (ready, now) = (look(), progress());
        if now == before { (ready, before) } else { (look(), now) }
    }

    /// Tells what is ready, as far as there is room; how many (R1).
    pub(super) fn tell(&mut self, events: &mut [epoll_event]) -> usize {
        let mut count = 0;
        for _ in 0..self.in_line {
            if count == events.len() {
                break;
            }
            let Some(fd) = self.step_up() else { break };
            let (ready, progress) = self.ready(fd);
            let Some(it) = self.at_mut(fd).filter(|_| ready != 0) else { continue };
            events[count] = epoll_event { events: ready, u64: it.data };
            count += 1;
            it.told = progress;
            let stays = it.events & (EDGE | ONE_SHOT) == 0;
            if it.events & ONE_SHOT != 0 {
                it.events &= KEPT;
            }
            if stays {
                self.line_up(fd);
            }
        }
        count
    }

    /// Whether there is anything to tell.
    pub(super) fn is_any_ready(&mut self) -> bool {
        for _ in 0..self.in_line {
            let Some(fd) = self.step_up() else { return false };
            if self.ready(fd).0 != 0 {
                self.step_back(fd);
                return true;
            }
        }
        false
    }
}

/// What is asked by who says `event`: errors are told of in any case.
pub(super) fn asked(event: epoll_event) -> epoll_event {
    epoll_event { events: event.events | ERRORS, ..event }
}

/// Whether it may be the same socket, which connects, listens or was given up at this moment: who does that says so to the sets after he has
/// changed the word (`epoll::changed`).
fn may_become(it: &Interest, word: Word) -> bool {
    let is_fresh = |word| socket::kind(word) == Kind::Fresh;
    is_fresh(word) || Word::new(it.word).is_some_and(is_fresh)
}

/// Whether an interest is in the socket that `word` names now. Copies of its descriptor made meanwhile change nothing.
fn is_current(it: &Interest, word: Word) -> bool {
    is_of(it, word) && it.generation == generation_of(word)
}

/// Whether an interest was put in for what `word` names.
fn is_of(it: &Interest, word: Word) -> bool {
    Word::new(it.word).map(socket::shared) == Some(socket::shared(word))
}
