//! The programs as a lane's worker knows them, who has this for himself: so he looks at no table in his turns, and locks nothing.
//!
//! A worker that sleeps says so to each program, and to each that it is awake again. Of many programs most have nothing to say for long, as
//! a server's processes that wait for their turn, and then that costs more than what the others ask for. So who was silent for some
//! sleeps is *quiet*: his inbox goes on saying that the worker sleeps, and he rings when he has news, also while it is awake, which
//! finds them by one look in its next turn. With few programs all are near. Called by `mod.rs`.

use std::sync::Arc;

use firelane_frame::RingArena;
use firelane_shm::layout::Inbox;
use firelane_units::LaneId;

use super::ARENAS_LOOKED_AT;
use super::arena::ProgramArena;
use super::closings::Closings;
use super::hangups::Looked;

/// Who has had no news while the worker slept so often is quiet, if there are others.
const SILENT_SLEEPS: u8 = 64;

/// The arenas that there are, and what of them is to be done.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(super) changes: u64,
    /// Those that are told when the worker sleeps, and when it is awake.
    pub(super) near: Vec<Near>,
    /// Those that take it for asleep.
    quiet: Vec<Arc<ProgramArena>>,
    /// Which of these is asked next whether it has memory to give back.
    asked: usize,
    /// Streams that can be closed later, by arena and block.
    pub(super) closings: Closings<(Arc<ProgramArena>, u32)>,
    /// The last that programs have kicked for was to close some, and they may ask for something else now.
    pub(super) is_closing: bool,
    /// What the last look for hang-ups has said.
    pub(super) looked: Looked,
}

/// A program that may have news at any time.
#[derive(Debug)]
pub(super) struct Near {
    pub(super) arena: Arc<ProgramArena>,
    /// How often the worker has slept since it had some.
    pub(super) silent: u8,
}

impl Near {
    const fn new(arena: Arc<ProgramArena>) -> Self {
        Self { arena, silent: 0 }
    }
}

impl Known {
    /// Whether what can wait is to be closed now: who has closed it has asked for something else meanwhile, and is busy with that.
    pub(crate) fn has_to_close(&self) -> bool {
        self.closings.are_there() && !self.is_closing
    }

    /// These are there now, by their places. Who was there stays as he was, and nobody's count is touched for it.
    pub(super) fn follow(&mut self, all: &[Option<Arc<ProgramArena>>]) {
        let mut is_known = vec![false; all.len()];
        let mut is_there = |arena: &Arc<ProgramArena>| {
            let place = arena.place as usize;
            let stays = matches!(all.get(place), Some(Some(it)) if Arc::ptr_eq(it, arena));
            if stays {
                is_known[place] = true;
            }
            stays
        };
        self.near.retain(|it| is_there(&it.arena));
        self.quiet.retain(is_there);
        let new = all.iter().zip(is_known).filter(|(_, is_known)| !is_known);
        self.near.extend(new.filter_map(|(arena, _)| arena.clone()).map(Near::new));
    }

    /// The worker, on the CPU that is asked for, is about to look for news: quiet ones that have some are near again.
    pub(super) fn hear(&mut self, lane: LaneId, cpu: impl Fn() -> u16) {
        let heard = self.quiet.extract_if(.., |arena| arena.has_news(lane)).map(Near::new);
        self.near.extend(heard.inspect(|it| {
            it.arena.inbox(lane).into_iter().for_each(|inbox| wake(inbox, cpu()));
        }));
    }

    /// The worker is about to sleep: programs are to ring from here on. Whether it may. Arenas with memory to give back are given to `trim`.
    pub(super) fn fall_asleep(&mut self, lane: LaneId, trim: impl Fn(&Arc<RingArena>)) -> bool {
        let asks = |arena: &ProgramArena| {
            if arena.rings().calls_for_time() {
                trim(arena.rings());
            }
        };
        self.asked += 1;
        self.quiet.get(self.asked % self.quiet.len().max(1)).into_iter().for_each(|it| asks(it));
        let falls = |it: &Near| {
            asks(&it.arena);
            it.arena.inbox(lane).is_none_or(Inbox::fall_asleep)
        };
        let may_sleep = self.near.iter().all(falls) && !self.quiet.iter().any(|it| it.has_news(lane));
        if may_sleep && self.near.len() > ARENAS_LOOKED_AT {
            self.part_with_silent(lane);
        }
        may_sleep
    }

    /// All have been told that the worker sleeps: those that are silent go on hearing so.
    fn part_with_silent(&mut self, lane: LaneId) {
        let mut surplus = self.near.len() - ARENAS_LOOKED_AT;
        let is_silent = |it: &mut Near| {
            it.silent = it.silent.saturating_add(1);
            let is_silent = it.silent > SILENT_SLEEPS && surplus > 0;
            surplus -= usize::from(is_silent);
            is_silent
        };
        let parted = self.near.extract_if(.., is_silent).map(|it| it.arena).inspect(|arena| {
            arena.inbox(lane).into_iter().for_each(Inbox::is_nowhere);
        });
        self.quiet.extend(parted);
    }

    /// The worker is awake again, on this CPU.
    pub(super) fn wake_up(&self, lane: LaneId, cpu: u16) {
        self.near.iter().filter_map(|it| it.arena.inbox(lane)).for_each(|inbox| wake(inbox, cpu));
    }
}

fn wake(inbox: &Inbox, cpu: u16) {
    inbox.wake_up();
    inbox.is_on(cpu);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Limits, Programs};
    use super::*;
    use crate::bell::Bell;

    const LANE: LaneId = LaneId(0);

    /// So many programs, and a worker that has slept until those with nothing to say are quiet: the first of them has news each time.
    fn worker(count: usize) -> (Programs, Vec<Arc<ProgramArena>>, Known) {
        let programs = Programs::new([Bell::new().unwrap()].iter());
        let add = |_| programs.add_arena(Limits::default(), None, Duration::ZERO).unwrap();
        let arenas: Vec<_> = (0..count).map(add).collect();
        let mut known = Known::default();
        for _ in 0..=SILENT_SLEEPS {
            assert!(programs.fall_asleep(LANE, &mut known));
            programs.wake_up(LANE, &mut known);
            known.near[0].silent = 0;
        }
        (programs, arenas, known)
    }

    fn inbox(arena: &ProgramArena) -> &Inbox {
        arena.inbox(LANE).unwrap()
    }

    /// Who has to ring, as the worker is awake.
    fn ringers(arenas: &[Arc<ProgramArena>]) -> Vec<usize> {
        let rings =
            |&nth: &usize| inbox(&arenas[nth]).sleeping.load(std::sync::atomic::Ordering::SeqCst) != 0;
        (0..arenas.len()).filter(rings).collect()
    }

    #[test]
    fn of_many_who_is_silent_for_long_is_quiet_and_of_few_nobody() {
        for count in [1, ARENAS_LOOKED_AT] {
            let (_programs, arenas, _) = worker(count);
            assert_eq!(ringers(&arenas), []);
        }
        let (_programs, arenas, known) = worker(ARENAS_LOOKED_AT + 3);
        assert_eq!(ringers(&arenas), [1, 2, 3], "the first one has had news");
        assert_eq!((known.near.len(), known.quiet.len()), (ARENAS_LOOKED_AT, 3));
    }

    #[test]
    fn who_is_quiet_and_has_news_is_heard_before_a_sleep_and_near_then() {
        let (programs, arenas, mut known) = worker(ARENAS_LOOKED_AT + 3);
        assert!(inbox(&arenas[2]).tell(5).is_some(), "he rings, whatever the worker does");
        assert!(!programs.fall_asleep(LANE, &mut known), "it looks first");
        programs.wake_up(LANE, &mut known);
        known.hear(LANE, || 3);
        assert_eq!(ringers(&arenas), [1, 3]);
        assert!(inbox(&arenas[2]).was_on(3));
        assert!(inbox(&arenas[2]).tell(6).is_none(), "the worker is awake for him");
        assert!(!programs.fall_asleep(LANE, &mut known), "his news are there still");
        while inbox(&arenas[2]).news.take_word().is_some() {}
        assert!(programs.fall_asleep(LANE, &mut known));
        assert_eq!(ringers(&arenas).len(), arenas.len(), "all ring while it sleeps");
    }

    #[test]
    fn who_comes_is_near_and_who_has_gone_is_not_there() {
        let (programs, mut arenas, mut known) = worker(ARENAS_LOOKED_AT + 3);
        for gone in [2, 5] {
            programs.remove_arena(arenas[gone].place);
        }
        let next = programs.add_arena(Limits::default(), None, Duration::ZERO).unwrap();
        assert_eq!(next.place, arenas[2].place);
        arenas[2] = next;
        programs.wake_up(LANE, &mut known);
        assert_eq!((known.near.len(), known.quiet.len()), (ARENAS_LOOKED_AT, 2));
        assert_eq!(ringers(&arenas), [1, 3], "the others are as they were");
    }
}
