//! Loom models of the words that both ends change: news, sleep, and the hold on storage.

use std::io::IoSlice;
use std::time::Duration;

use firelane_frame::ring_state::{ATTACHED, HELD, SIZE_SHIFT};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::layout::{Block, Inbox, margin, status};
use crate::owner::Holder;
use crate::stream::{Storage, StreamEnd, WriteError};
use crate::sync::Ordering;
use crate::wait::Woken;

/// Storage of a page that may be detached: loom finds a use that is not ordered before its end.
struct Page(UnsafeCell<bool>);

impl Storage for Page {
    fn copy_in(&self, _at: u64, _bytes: &[u8]) -> bool {
        // SAFETY: loom checks that no exclusive access is concurrent.
        self.0.with(|alive| assert!(unsafe { *alive }, "written to after it was detached"));
        true
    }

    fn copy_out(&self, _at: u64, _to: &mut [u8]) -> bool {
        true
    }
}

// SAFETY: the model's point is that the words order the accesses; loom checks that they do.
unsafe impl Sync for Page {}

/// An established stream whose send ring has storage.
fn block() -> Block {
    let block = Block::default();
    block.rings.margin[margin::STATUS].store(status::CONNECTED, core::sync::atomic::Ordering::Relaxed);
    block.capacity[0].store(4096, Ordering::Relaxed);
    block.rings.one.state.store(ATTACHED | 12 << SIZE_SHIFT, Ordering::Relaxed);
    block
}

#[test]
fn model_news_reach_an_owner_who_falls_asleep() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::default());
        let theirs = Arc::clone(&inbox);
        let program = thread::spawn(move || theirs.tell(3));
        let sleeps = inbox.fall_asleep();
        let rung = program.join().unwrap();
        assert!(!sleeps || rung, "he sleeps, there are news, and nobody rings");
        assert_eq!(inbox.news.take_word(), Some((0, 1 << 3)));
    });
}

#[test]
fn model_news_of_two_are_taken_and_none_is_lost() {
    loom::model(|| {
        let inbox = Arc::new(Inbox::default());
        let theirs = Arc::clone(&inbox);
        let program = thread::spawn(move || theirs.tell(1));
        inbox.news.set(2);
        let mut all = 0;
        let take = |all: &mut u64| {
            while let Some((first, bits)) = inbox.news.take_word() {
                assert_eq!((first, *all & bits), (0, 0), "taken once");
                *all |= bits;
            }
        };
        take(&mut all);
        program.join().unwrap();
        take(&mut all);
        assert_eq!((all, inbox.news.any()), (0b110, false));
    });
}

#[test]
fn model_a_sleeper_is_woken() {
    loom::model(|| {
        let block = Arc::new(Block::default());
        let theirs = Arc::clone(&block);
        let lane = thread::spawn(move || {
            theirs.rings.two.tail.store(1, Ordering::Release);
            theirs.wake();
        });
        let is_ready = || block.rings.two.tail.load(Ordering::Acquire) > 0;
        // Time does not pass in models: a wake-up that is lost ends in a deadlock.
        assert_eq!(block.sleep(Duration::MAX, is_ready), Woken::Ready);
        lane.join().unwrap();
    });
}

#[test]
fn model_storage_is_not_detached_under_a_writer() {
    loom::model(|| {
        let shared = Arc::new((block(), Page(UnsafeCell::new(true))));
        let theirs = Arc::clone(&shared);
        let program = thread::spawn(move || {
            let (block, page) = &*theirs;
            StreamEnd::over(page, block, Holder::new(1, 1)).write(&[IoSlice::new(b"x")])
        });
        let (block, page) = &*shared;
        let (one, two) = (&block.rings.one, &block.rings.two);
        // As the lane does (`byte_ring/far.rs`): the word before the cursors, and a swap from what it said.
        let state = one.state.load(Ordering::Acquire);
        let is_empty = one.tail.load(Ordering::Acquire) == two.head.load(Ordering::Relaxed);
        let detached = state & HELD == 0
            && is_empty
            && one
                .state
                .compare_exchange(state, state & !ATTACHED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        if detached {
            // SAFETY: loom checks that the access is exclusive.
            page.0.with_mut(|alive| unsafe { *alive = false });
        }
        let written = program.join().unwrap();
        match detached {
            true => assert_eq!(written, Err(WriteError::WouldBlock)),
            false => assert_eq!((written, one.state.load(Ordering::Acquire) & HELD), (Ok(1), 0)),
        }
    });
}
