//! Segments whose one program has left, for the next program of the same kin that is fused with the other.
//!
//! A program maps each of its segments once and for all, and only so many. A server whose clients come and go gets its own segments again
//! here, with the next client at the other end, and maps no more than it has had clients at a time. Nothing is left in them of what was
//! carried; but who has left may have given its mapping to others (a forked child has it), who would see what the next one carries. So
//! that one must be of the same kin. Called by `pages.rs`, which empties them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::arena::ProgramArena;
use super::segment::Segment;
use super::session::Kin;

/// As many as a program maps of one server's, and of all.
const OF_ONE_MAX: usize = 48;
const MOST: usize = 1024;

/// One of them, or one that may be.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) segment: Arc<Segment>,
    /// Which of its sides has left, and of what kin that was, if all who have seen it were of one.
    left: usize,
    kin: Option<Kin>,
}

impl Spare {
    /// The arena in this place, which programs of one kin have seen, is gone, and so is this segment's side.
    pub(super) fn new(segment: Arc<Segment>, place: u32, kin: Option<Kin>) -> Self {
        let left = usize::from(segment.sides[0] != place);
        Self { segment, left, kin }
    }

    /// The place of the arena that is still there.
    fn stays(&self) -> u32 {
        self.segment.sides[1 - self.left]
    }

    /// Which of two ends takes the side that has left, if they may have it.
    fn newcomer(&self, ends: [&ProgramArena; 2]) -> Option<usize> {
        let newcomer =
            (0..2).find(|&at| ends[1 - at].place == self.stays() && ends[at].place != self.stays())?;
        // Connections that it carried may not have ended.
        let is_free = Arc::strong_count(&self.segment) == 1;
        (is_free && ends[newcomer].kin() == self.kin && self.segment.fits(ends)).then_some(newcomer)
    }

    /// Whether it may be another's: there is who stays, knows it, and is not who has left.
    fn is_of_use(&self) -> bool {
        let stays = 1 - self.left;
        let is_there = self.segment.sides[self.left] != self.stays() && !self.segment.is_left_by(stays);
        is_there && self.kin.is_some() && self.segment.is_mapped_by(stays)
    }
}

/// All of them, those that have been there for long first.
#[derive(Debug, Default)]
pub(super) struct Spares(Mutex<Vec<Spare>>);

impl Spares {
    fn all(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more, which is empty, and in which there is no connection. If it is of no use, it is gone.
    pub(super) fn put(&self, spare: Spare) {
        let mut all = self.all();
        // Who says that a program is gone looks here behind that.
        let count = all.iter().filter(|it| it.stays() == spare.stays()).count();
        let mut gone = Vec::new();
        if spare.is_of_use() && count < OF_ONE_MAX {
            all.push(spare);
        } else {
            gone.push(spare);
        }
        let too_many = all.len().saturating_sub(MOST);
        gone.extend(all.drain(..too_many));
        // It takes system calls.
        drop((all, gone));
    }

    /// The program that stays with these is gone, too.
    pub(super) fn forget(&self, place: u32) -> Vec<Spare> {
        self.all().extract_if(.., |spare| spare.stays() == place).collect()
    }

    /// There is room for none.
    pub(super) fn clear(&self) {
        let gone = std::mem::take(&mut *self.all());
        drop(gone);
    }

    /// One for these two, where that which stays is the other, and which of them takes the side that was left.
    pub(super) fn take(&self, ends: [&ProgramArena; 2]) -> Option<(Spare, usize)> {
        let mut all = self.all();
        let (at, newcomer) =
            all.iter().enumerate().rev().find_map(|(at, spare)| Some((at, spare.newcomer(ends)?)))?;
        Some((all.remove(at), newcomer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Limits;
    use crate::programs::segment::{Hold, Segments};
    use crate::programs::space::Space;
    use firelane_shm::Mapping;

    const KIN: Kin = Kin { user: 1000, group: 100, users: 1, processes: 2 };

    fn arena(place: u32, kin: Option<Kin>) -> ProgramArena {
        ProgramArena::new(&Space::default(), 1, place, 100 + u64::from(place), Limits::default(), kin)
            .unwrap()
    }

    /// The arena in this place is gone, and who is in no hurry has done what is to be done.
    fn forget(all: &Segments, place: u32, kin: Option<Kin>) {
        all.forget(place, kin);
        all.pages.work();
    }

    /// The number of the segment of a server with a client that comes and leaves; a new one has `number`.
    fn visit(all: &Segments, number: u64, [server, client]: [&ProgramArena; 2]) -> u64 {
        let ends = if server.place < client.place { [server, client] } else { [client, server] };
        let segment = all.make(number, ends).unwrap();
        assert_eq!(segment.numbers, ends.map(|end| end.arena().number()));
        assert!(all.numbered(segment.arena().number()).is_some_and(|it| Arc::ptr_eq(&it, &segment)));
        let is_new = segment.arena().number() == number;
        let known = [0, 1].map(|at| segment.is_mapped_by(at));
        assert_eq!(known, ends.map(|end| !is_new && end.place == server.place));
        assert!(segment.is_asked_by(|_| true));
        forget(all, client.place, client.kin());
        segment.arena().number()
    }

    #[test]
    fn who_comes_gets_what_one_of_the_same_kin_had_with_the_same_server() {
        let all = Segments::default();
        let server = arena(1, Some(KIN));
        assert_eq!(visit(&all, 1, [&server, &arena(2, Some(KIN))]), 1);
        assert_eq!(visit(&all, 2, [&server, &arena(0, Some(KIN))]), 1, "on the other side");
        assert_eq!(visit(&all, 3, [&arena(3, Some(KIN)), &arena(0, Some(KIN))]), 3, "with another server");
        let strangers = [
            Kin { user: 0, ..KIN },
            Kin { group: 0, ..KIN },
            Kin { users: 0, ..KIN },
            Kin { processes: 0, ..KIN },
        ];
        for (n, kin) in strangers.into_iter().enumerate() {
            assert_eq!(visit(&all, 10 + n as u64, [&server, &arena(4, Some(kin))]), 10 + n as u64, "{kin:?}");
        }
        let seen = arena(5, Some(KIN));
        seen.show_to(Some(KIN));
        assert_eq!(visit(&all, 20, [&server, &seen]), 1);
        seen.show_to(Some(Kin { user: 7, ..KIN }));
        assert_eq!(visit(&all, 21, [&server, &seen]), 21, "another sees its words, too");
        assert_eq!(visit(&all, 22, [&server, &arena(6, None)]), 22);
        assert_eq!(visit(&all, 23, [&server, &arena(6, None)]), 23, "nobody knows who they are");
        forget(&all, server.place, server.kin());
        assert_eq!(visit(&all, 24, [&arena(1, Some(KIN)), &arena(2, Some(KIN))]), 24, "the server is gone");
    }

    #[test]
    fn one_that_is_in_use_or_unknown_to_who_stays_is_none() {
        let all = Segments::default();
        let [server, one, two] = [0, 1, 2].map(|place| arena(place, Some(KIN)));
        let segment = all.make(1, [&server, &one]).unwrap();
        assert!(segment.is_asked_by(|number| number == one.arena().number()));
        forget(&all, one.place, one.kin());
        drop(segment);
        assert_eq!(visit(&all, 2, [&server, &two]), 2, "the server has not mapped it");
        let held = all.numbered(2).unwrap();
        assert_eq!(visit(&all, 3, [&server, &one]), 3, "a connection has it");
        drop(held);
        // Both are there; who comes gets either, and then there is one.
        let first = all.make(4, [&server, &one]).unwrap();
        let second = all.make(5, [&server, &two]).unwrap();
        let mut numbers = [&first, &second].map(|it| it.arena().number());
        numbers.sort_unstable();
        assert_eq!(numbers, [2, 3]);
    }

    #[test]
    fn what_two_share_is_within_the_limits_of_both() {
        let all = Segments::default();
        let small = |place: u32, memory: u64| {
            let limits = Limits { memory, ..Limits::default() };
            ProgramArena::new(&Space::default(), 1, place, 100 + u64::from(place), limits, Some(KIN)).unwrap()
        };
        let [server, one, two] = [small(0, 64 << 20), small(1, 1 << 20), small(2, 64 << 20)];
        let segment = all.make(1, [&server, &one]).unwrap();
        let taken = segment.arena().rings().take_pair([1 << 19; 2]);
        assert!(taken.is_some() && segment.arena().rings().take_pair([1 << 12; 2]).is_none());
        assert!(segment.is_asked_by(|_| true));
        forget(&all, one.place, one.kin());
        drop((taken, segment));
        assert_eq!(visit(&all, 2, [&server, &two]), 2, "who may have more gets another");
        assert_eq!(visit(&all, 3, [&server, &small(1, 1 << 20)]), 1);
    }

    #[test]
    fn what_a_program_has_touched_beyond_the_books_is_given_back_by_who_has_time() {
        let (all, big) = (Segments::default(), 8 << 20);
        let [server, one, two] = [0, 1, 2].map(|place| arena(place, Some(KIN)));
        for kin in [one.kin(), None] {
            let segment = all.make(1, [&server, &one]).unwrap();
            assert!(segment.is_asked_by(|_| true));
            // Who stays has it mapped for good, and so may somebody to whom the other has given it.
            let (there, _) = Mapping::attach(segment.arena()).unwrap();
            let at = there.layout().storage_at();
            let text = vec![7; big];
            let (pair, far) = (segment.arena().rings().take_pair([1 << 12; 2]).unwrap(), at + (1 << 30));
            let hold = Hold::new(Arc::clone(&segment));
            assert!(there.copy_in(at, b"within") && there.copy_in(far, &text));
            all.forget(one.place, kin);
            all.pages.work();
            assert!(segment.arena().memory().unwrap() >= big as u64, "a connection is still there");
            drop((pair, hold));
            assert!(segment.arena().memory().unwrap() >= big as u64, "nobody waits for the kernel");
            all.pages.work();
            assert!(segment.arena().memory().unwrap() < 1 << 20, "{kin:?}");
            // What is written behind that does not come to the next one either.
            assert!(there.copy_in(far, b"later"));
            drop(segment);
            let next = all.make(2, [&server, &two]).unwrap();
            assert_eq!(next.arena().number(), if kin.is_some() { 1 } else { 2 });
            let mut bytes = [1; 5];
            assert!(next.arena().mapping().copy_out(far, &mut bytes));
            assert_eq!(bytes, [0; 5]);
            forget(&all, two.place, None);
        }
    }

    #[test]
    fn one_that_is_written_to_while_it_is_spare_is_emptied_anew_before_it_is_anybodys() {
        let all = Segments::default();
        let [server, one] = [0, 1].map(|place| arena(place, Some(KIN)));
        let segment = all.make(1, [&server, &one]).unwrap();
        assert!(segment.is_asked_by(|_| true));
        let (there, _) = Mapping::attach(segment.arena()).unwrap();
        drop(segment);
        forget(&all, one.place, one.kin());
        assert!(there.copy_in(there.layout().storage_at(), &vec![7; 64 << 20]));
        assert_eq!(all.make(2, [&server, &one]).unwrap().arena().number(), 2, "nobody waits for that");
        forget(&all, one.place, None);
        assert_eq!(all.make(3, [&server, &one]).unwrap().arena().number(), 1);
    }

    #[test]
    fn one_is_no_spare_when_who_would_stay_has_gone_meanwhile() {
        let all = Segments::default();
        let [server, one, two] = [0, 1, 2].map(|place| arena(place, Some(KIN)));
        let segment = all.make(1, [&server, &one]).unwrap();
        assert!(segment.is_asked_by(|_| true));
        drop(segment);
        all.forget(one.place, one.kin());
        all.forget(server.place, server.kin());
        all.pages.work();
        assert!(all.pages.spares.all().is_empty());
        // Another program has its place.
        let next = arena(0, Some(KIN));
        assert_eq!(all.make(2, [&next, &two]).unwrap().arena().number(), 2);
    }

    #[test]
    fn many_programs_leave_room_in_the_daemon() {
        use crate::programs::segment::SEGMENTS_MAX;
        let all = Segments::default();
        let arenas: Vec<_> = (0..20).map(|place| arena(place, Some(KIN))).collect();
        let pairs = || (0..arenas.len()).flat_map(|one| (0..one).map(move |two| [two, one]));
        let make = |nth: usize, pair: [usize; 2]| all.make(nth as u64, pair.map(|at| &arenas[at]));
        let made: Vec<_> =
            pairs().take(SEGMENTS_MAX).enumerate().map(|(nth, it)| make(nth, it).unwrap()).collect();
        let [beyond, next] = [0, 1].map(|nth| pairs().nth(SEGMENTS_MAX + nth).unwrap());
        assert_eq!(make(200, beyond).unwrap_err().kind(), std::io::ErrorKind::OutOfMemory);
        // The first two are fused no more, and one is kept of what they had, for a program of its kin.
        assert!(made[0].is_asked_by(|_| true));
        forget(&all, 0, arenas[0].kin());
        drop(made);
        assert!(make(201, beyond).is_ok() && make(202, next).is_ok(), "what is spare goes first");
    }

    #[test]
    fn so_many_are_kept_of_one() {
        let all = Segments::default();
        let server = arena(0, Some(KIN));
        let clients: Vec<_> = (1..=60).map(|place| arena(place, Some(KIN))).collect();
        for (n, client) in clients.iter().enumerate() {
            let segment = all.make(n as u64, [&server, client]).unwrap();
            assert!(segment.is_asked_by(|number| number == server.arena().number()));
        }
        clients.iter().for_each(|client| forget(&all, client.place, client.kin()));
        let new = (0..60).filter(|&n| {
            let segment = all.make(100 + n, [&server, &clients[n as usize]]).unwrap();
            segment.arena().number() >= 100
        });
        assert_eq!(new.count(), 60 - OF_ONE_MAX);
    }
}
