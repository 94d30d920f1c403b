//! Loom models of the words that both ends change: news, sleep, the hold on storage, and joints.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

use firelane_frame::ring_state::{ATTACHED, HELD, SIZE_SHIFT};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::accept_queue::{AcceptQueue, Feeder};
use crate::joint::{Beside, Joint, SideConfig, way};
use crate::layout::{Block, Inbox, margin, request, status};
use crate::owner::Holder;
use crate::stream::{Held, Storage, StreamEnd, WriteError};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::wait::Woken;

const AT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 80);

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
        assert!(!sleeps || rung.is_some(), "he sleeps, there are news, and nobody rings");
        assert_eq!(inbox.news.take_word(), Some((0, 1 << 3)));
    });
}

/// Of two who have news one may find that the other has rung, and a late word about an earlier nap takes nothing from a later one.
#[test]
fn model_an_owner_who_sleeps_and_has_news_was_rung() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(|| {
        let shared = Arc::new((Inbox::default(), AtomicU32::new(0)));
        let tell = |block: u32| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (inbox, bell) = &*shared;
                if let Some(nap) = inbox.tell(block) {
                    bell.fetch_add(1, Ordering::SeqCst);
                    inbox.was_rung(nap);
                }
            })
        };
        let programs = [1, 2].map(tell);
        let (inbox, bell) = &*shared;
        let mut sleeps = inbox.fall_asleep();
        if !sleeps || bell.swap(0, Ordering::SeqCst) > 0 {
            inbox.wake_up();
            while inbox.news.take_word().is_some() {}
            sleeps = inbox.fall_asleep();
        }
        programs.into_iter().for_each(|program| program.join().unwrap());
        let is_rung = bell.load(Ordering::SeqCst) > 0;
        assert!(!sleeps || is_rung || !inbox.news.any(), "he sleeps, there are news, and nobody rings");
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
fn model_a_connection_is_found_by_who_is_about_to_wait_or_told_to_him() {
    loom::model(|| {
        let words = Arc::new(AcceptQueue::default());
        let mut feeder = Feeder::begin(&words, AT);
        words.begin();
        let theirs = Arc::clone(&words);
        let daemon = thread::spawn(move || {
            if feeder.put(&theirs, 5, 5).is_err() {
                return true;
            }
            feeder.is_watched(&theirs) && !feeder.take_back(&theirs).is_empty()
        });
        words.watch();
        let is_found = words.take() == Some(5);
        let is_told = daemon.join().unwrap();
        assert!(is_found != is_told, "found {is_found}, told {is_told}");
    });
}

/// The waiter marks his slot once and sleeps as for streams.
#[test]
fn model_a_connection_is_found_by_a_waiter_who_is_about_to_sleep_or_rings_him() {
    loom::model(|| {
        let shared = Arc::new((AcceptQueue::default(), Inbox::default()));
        let mut feeder = Feeder::begin(&shared.0, AT);
        shared.0.begin();
        let theirs = Arc::clone(&shared);
        let daemon = thread::spawn(move || {
            let (words, inbox) = &*theirs;
            feeder.put(words, 5, 5).unwrap();
            words.waiters() & 1 << 9 != 0 && inbox.call(40)
        });
        let (words, inbox) = &*shared;
        words.mark(1 << 9);
        let is_quiet = inbox.fall_asleep();
        let is_found = words.take() == Some(5);
        let is_rung = daemon.join().unwrap();
        assert!(is_found || is_rung, "quiet {is_quiet}");
        assert!(is_found || words.take() == Some(5), "he finds it when he was rung");
    });
}

#[test]
fn model_a_connection_is_had_by_one_of_two() {
    loom::model(|| {
        let words = Arc::new(AcceptQueue::default());
        let mut feeder = Feeder::begin(&words, AT);
        words.begin();
        feeder.put(&words, 1, 1).unwrap();
        let theirs = Arc::clone(&words);
        let other = thread::spawn(move || theirs.take());
        // The place of the first may be used again as soon as it was taken.
        let put = [2, 3].map(|block| feeder.put(&words, block, block).is_ok());
        let mine = words.take();
        let mut all =
            [mine, other.join().unwrap(), words.take(), words.take()].map(Option::unwrap_or_default);
        all.sort_unstable();
        let expected = if put[1] { [0, 1, 2, 3] } else { [0, 0, 1, 2] };
        assert_eq!(all, expected);
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
fn model_who_closes_is_found_by_the_lane_and_not_in_the_next_use_of_the_block() {
    loom::model(|| {
        let shared = Arc::new((block(), Page(UnsafeCell::new(true)), Inbox::default()));
        let theirs = Arc::clone(&shared);
        let program = thread::spawn(move || {
            let (block, page, inbox) = &*theirs;
            assert!(StreamEnd::over(page, block, Holder::new(1, 1)).leave());
            inbox.tell(3)
        });
        let (block, _, inbox) = &*shared;
        let closes = || block.requests.load(Ordering::Acquire) & request::CLOSE != 0;
        let sleeps = inbox.fall_asleep();
        let is_found = inbox.news.take_word().is_some();
        assert!(!is_found || closes(), "there are news, and not what they are");
        if closes() {
            // Who keeps the books gives the block to others, perhaps before the lane was told.
            block.requests.store(0, Ordering::Release);
            program.join().unwrap();
            assert!(!closes());
        } else {
            let rung = program.join().unwrap();
            assert!((!sleeps || rung.is_some()) && inbox.news.take_word().is_some() && closes());
        }
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

#[test]
fn model_who_enters_after_one_who_died_inside_keeps_his_hold() {
    loom::model(|| {
        let block = block();
        let dead = 7_u64 << 32 | 1;
        block.send_owner.store(dead, Ordering::Relaxed);
        block.rings.one.state.fetch_or(HELD, Ordering::Relaxed);
        let block = Arc::new(block);
        let theirs = Arc::clone(&block);
        let daemon = thread::spawn(move || theirs.bury(7));
        let (owner, state) = (&block.send_owner, &block.rings.one.state);
        if owner.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            let held = Held::take(state).unwrap();
            daemon.join().unwrap();
            assert!(state.load(Ordering::Relaxed) & HELD != 0, "the lane may detach what is written to");
            drop(held);
        } else {
            daemon.join().unwrap();
        }
        assert_eq!((owner.load(Ordering::Relaxed) >> 32, state.load(Ordering::Relaxed) & HELD), (0, 0));
    });
}

/// A byte of a joint's storage: loom finds a read that is not ordered behind its write.
struct Byte(UnsafeCell<u8>);

impl Storage for Byte {
    fn copy_in(&self, _at: u64, bytes: &[u8]) -> bool {
        // SAFETY: loom checks that the access is exclusive.
        self.0.with_mut(|byte| unsafe { *byte = bytes[0] });
        true
    }

    fn copy_out(&self, _at: u64, to: &mut [u8]) -> bool {
        // SAFETY: loom checks that nobody writes meanwhile.
        self.0.with(|byte| to[0] = unsafe { *byte });
        true
    }
}

// SAFETY: the model's point is that the words order the accesses; loom checks that they do.
unsafe impl Sync for Byte {}

/// A joint with room for one byte each way, offered and open; the byte; and TCP's cursor at the reader.
fn joint() -> Arc<(Joint, Byte, AtomicU64)> {
    let joint = Joint::default();
    let config = SideConfig { storage: 0, size: 1, send: 1, receive: 0, block: 0 };
    joint.make([config; 2]);
    joint.sides[0].state.store(way::OFFERED | way::OPEN, Ordering::Relaxed);
    Arc::new((joint, Byte(UnsafeCell::new(0)), AtomicU64::new(0)))
}

/// Reads what there is at the end 1: bytes of TCP, and the joint's byte.
fn read_at_one(shared: &(Joint, Byte, AtomicU64)) -> (usize, Option<u8>) {
    let (joint, byte, tcp) = shared;
    let reader = Beside::over(byte, joint, 1);
    let found = reader.look(0, || tcp.load(Ordering::Acquire)).unwrap();
    let mut bytes = [0];
    let is_there = found.beside > 0;
    if is_there {
        reader.read(1, &mut [IoSliceMut::new(&mut bytes)], 0, false).unwrap();
    }
    (found.own, is_there.then_some(bytes[0]))
}

#[test]
fn model_what_is_published_is_there_and_the_place_is_used_again_after_it_was_read() {
    loom::model(|| {
        let shared = joint();
        let theirs = Arc::clone(&shared);
        let program = thread::spawn(move || {
            let writer = Beside::over(&theirs.1, &theirs.0, 0);
            [7, 8].map(|byte| writer.write(0, &[IoSlice::new(&[byte])]).unwrap().unwrap())
        });
        let first = read_at_one(&shared);
        assert!([(0, None), (0, Some(7))].contains(&first));
        let written = program.join().unwrap();
        assert_eq!(written[0], 1);
        let rest = if first.1.is_none() { Some(7) } else { Some(8).filter(|_| written[1] == 1) };
        assert_eq!(read_at_one(&shared), (0, rest));
    });
}

#[test]
fn model_a_direction_that_is_parted_keeps_its_order() {
    loom::model(|| {
        let shared = joint();
        let [program, daemon] = [Arc::clone(&shared), Arc::clone(&shared)];
        let program = thread::spawn(move || {
            let (joint, byte, tcp) = &*program;
            let goes_beside = Beside::over(byte, joint, 0).write(0, &[IoSlice::new(&[7])]).is_some();
            // The next write is TCP's for certain, and TCP is fast.
            joint.part();
            tcp.store(1, Ordering::Release);
            goes_beside
        });
        let daemon = thread::spawn(move || daemon.0.part());
        let (own, beside) = read_at_one(&shared);
        let goes_beside = program.join().unwrap();
        daemon.join().unwrap();
        assert!(own == 0 || !goes_beside, "TCP's byte was seen before the joint's");
        assert!(beside.is_none() || goes_beside);
        if goes_beside && beside.is_none() {
            assert_eq!(read_at_one(&shared), (0, Some(7)), "then TCP's");
        }
        assert_eq!(read_at_one(&shared), (1, None));
    });
}

#[test]
fn model_who_sleeps_at_a_joint_is_woken_by_a_write() {
    loom::model(|| {
        let shared = joint();
        let theirs = Arc::clone(&shared);
        let program = thread::spawn(move || {
            let writer = Beside::over(&theirs.1, &theirs.0, 0);
            assert_eq!(writer.write(0, &[IoSlice::new(&[7])]), Some(Ok(1)));
            writer.wake_threads();
        });
        let reader = Beside::over(&shared.1, &shared.0, 1);
        let is_ready = || reader.look(0, || 0).unwrap().beside > 0;
        // Time does not pass in models: a wake-up that is lost ends in a deadlock.
        assert_eq!(reader.sleep().until(Duration::MAX, is_ready), Woken::Ready);
        program.join().unwrap();
    });
}

#[test]
fn model_an_end_wakes_who_sleeps_and_is_seen_behind_all_text() {
    loom::model(|| {
        let shared = joint();
        let [program, daemon] = [Arc::clone(&shared), Arc::clone(&shared)];
        let program = thread::spawn(move || {
            let (joint, byte, tcp) = &*program;
            let writer = Beside::over(byte, joint, 0);
            if writer.write(0, &[IoSlice::new(&[7])]).is_none() {
                // The direction was parted before: the byte is TCP's, and so is the end.
                tcp.store(1, Ordering::Release);
            } else if writer.end(0) {
                writer.wake_threads();
                return true;
            }
            false
        });
        let daemon = thread::spawn(move || daemon.0.part());
        let tail = || shared.2.load(Ordering::Acquire);
        let has_ended = || Beside::over(&shared.1, &shared.0, 1).peer_has_ended(tail);
        let seen = has_ended();
        let found = read_at_one(&shared);
        assert!(!seen || found == (0, Some(7)), "the end was seen before the text");
        if program.join().unwrap() {
            assert_eq!(shared.0.sides[1].sleep.until(Duration::MAX, has_ended), Woken::Ready);
        } else {
            assert!(!has_ended());
        }
        daemon.join().unwrap();
    });
}

#[test]
fn model_who_sleeps_at_a_joint_is_woken_by_its_end() {
    loom::model(|| {
        let shared = joint();
        let theirs = Arc::clone(&shared);
        let program = thread::spawn(move || {
            let writer = Beside::over(&theirs.1, &theirs.0, 0);
            assert!(writer.end(0));
            writer.wake_threads();
        });
        let reader = Beside::over(&shared.1, &shared.0, 1);
        assert_eq!(reader.sleep().until(Duration::MAX, || reader.peer_has_ended(|| 0)), Woken::Ready);
        program.join().unwrap();
    });
}

#[test]
fn model_who_waits_for_room_at_a_joint_is_woken_by_a_read() {
    loom::model(|| {
        let shared = joint();
        let writer = Beside::over(&shared.1, &shared.0, 0);
        assert_eq!(writer.write(0, &[IoSlice::new(&[7])]), Some(Ok(1)));
        let theirs = Arc::clone(&shared);
        let program = thread::spawn(move || {
            assert_eq!(read_at_one(&theirs), (0, Some(7)));
            let reader = Beside::over(&theirs.1, &theirs.0, 1);
            if reader.makes_room() {
                reader.wake_threads();
            }
        });
        let writer = Beside::over(&shared.1, &shared.0, 0);
        writer.want_room();
        let is_ready = || writer.room().is_some_and(|(room, _)| room > 0);
        assert_eq!(writer.sleep().until(Duration::MAX, is_ready), Woken::Ready);
        program.join().unwrap();
    });
}

#[test]
fn model_who_waits_for_credit_is_woken_by_a_grant() {
    loom::model(|| {
        let shared = joint();
        let granted = shared.0.begin_limit(0);
        let theirs = Arc::clone(&shared);
        // The daemon grants what it finds asked, in whichever thread is told of the question.
        let daemon = thread::spawn(move || {
            theirs.0.grant(0, granted + 1);
            theirs.0.sides[0].sleep.wake();
        });
        let writer = Beside::over(&shared.1, &shared.0, 0);
        writer.want_room();
        writer.lacks_credit();
        let is_ready = || writer.room().is_some_and(|(room, _)| room > 0);
        assert_eq!(writer.sleep().until(Duration::MAX, is_ready), Woken::Ready);
        assert_eq!(writer.write(0, &[IoSlice::new(&[7])]), Some(Ok(1)));
        daemon.join().unwrap();
    });
}

#[test]
fn model_a_limit_that_comes_binds_the_write_that_is_under_way() {
    loom::model(|| {
        let shared = joint();
        let theirs = Arc::clone(&shared);
        let daemon = thread::spawn(move || theirs.0.begin_limit(0));
        let writer = Beside::over(&shared.1, &shared.0, 0);
        let written = writer.write(0, &[IoSlice::new(&[7])]).map_or(0, |count| count.unwrap());
        let granted = daemon.join().unwrap();
        assert_eq!(written as u64, granted, "what was written before the limit, and nothing after it");
    });
}
