//! Cases and laws of joints, over memory of this process.

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;

use super::*;
use crate::layout::{FOLLOWED, LOST, Layout, PAGE, margin, status};
use crate::{Arena, Holder, ReadError, StreamEnd, WriteError};
use firelane_frame::ring_state::{ATTACHED, SIZE_SHIFT};

mod rests;
mod untold;

const LAYOUT: Layout = Layout { lanes: 1, blocks: 16, storage_bytes: 64 * PAGE };
/// Each ring of the lane, and each of the joint.
const RING: usize = PAGE as usize;
/// Text and room.
const BOTH: u32 = crate::Readiness::READABLE | crate::Readiness::WRITABLE;

/// Two programs' arenas and their segment; the test is the lane.
struct World {
    arenas: [Arena; 2],
    segment: Arena,
}

fn byte_at(cursor: u64) -> u8 {
    (cursor as u8).wrapping_mul(31) ^ (cursor >> 8) as u8
}

fn bytes_at(cursor: u64, len: usize) -> Vec<u8> {
    (cursor..cursor + len as u64).map(byte_at).collect()
}

impl World {
    /// A connection that could be fused, with so much room per direction.
    fn new(send: u32, receive: u32) -> Self {
        let [one, two, segment] = [1, 2, 3].map(|number| Arena::create(LAYOUT, number).unwrap());
        let storage = |ring: u64| LAYOUT.storage_at() + ring * PAGE;
        for arena in [&one, &two] {
            let block = arena.mapping().block(0).unwrap();
            let connected = status::CONNECTED;
            block.rings.margin[margin::STATUS].store(connected, Ordering::Relaxed);
            block.capacity.iter().for_each(|capacity| capacity.store(RING as u32, Ordering::Relaxed));
            for (ring, side) in (0..).zip([&block.rings.one, &block.rings.two]) {
                side.storage
                    .store(std::ptr::without_provenance_mut(storage(ring) as usize), Ordering::Relaxed);
                side.state.store(ATTACHED | 12 << SIZE_SHIFT, Ordering::Relaxed);
            }
        }
        let config = |ring| SideConfig { storage: storage(ring), size: RING, send, receive, block: 0 };
        segment.mapping().joint(0).unwrap().make([config(0), config(1)]);
        Self { arenas: [one, two], segment }
    }

    fn joint(&self) -> &Joint {
        self.segment.mapping().joint(0).unwrap()
    }

    fn beside(&self, at: usize) -> Beside<'_> {
        Beside::new(self.segment.mapping(), 0, at).unwrap()
    }

    fn end(&self, at: usize) -> StreamEnd<'_> {
        let end = StreamEnd::new(self.arenas[at].mapping(), 0, Holder::new(1, 1 + at as u32)).unwrap();
        end.with(self.beside(at))
    }

    fn fuse(&self) {
        self.joint().offer();
        [0, 1].into_iter().for_each(|at| self.beside(at).open(true));
    }

    /// What TCP does: up to `most` bytes go from the send ring to the peer's receive ring.
    fn carry(&self, from: usize, most: usize) {
        let [ours, theirs] = [from, 1 - from].map(|at| self.arenas[at].mapping().block(0).unwrap());
        let head = ours.rings.two.head.load(Ordering::Acquire);
        let there = ours.rings.one.tail.load(Ordering::Acquire) - head;
        let tail = theirs.rings.two.tail.load(Ordering::Acquire);
        assert_eq!(head, tail, "TCP numbers both alike");
        let room = RING as u64 - (tail - theirs.rings.one.head.load(Ordering::Acquire));
        let count = there.min(room).min(most as u64) as usize;
        let mut bytes = vec![0; count];
        let place = |ring: u64| (LAYOUT.storage_at() + ring * PAGE, RING);
        let mapping = |at: usize| self.arenas[at].mapping();
        assert!(copy_out(mapping(from), place(0), head, count, &mut [IoSliceMut::new(&mut bytes)], 0));
        assert!(copy_in(mapping(1 - from), place(1), tail, count, &[IoSlice::new(&bytes)], 0));
        theirs.rings.two.tail.store(tail + count as u64, Ordering::Release);
        ours.rings.two.head.store(head + count as u64, Ordering::Release);
    }

    fn write(&self, at: usize, bytes: &[u8]) -> usize {
        match self.end(at).write(&[IoSlice::new(bytes)]) {
            Ok(count) => count,
            Err(WriteError::WouldBlock) => 0,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        match self.end(at).read(&mut [IoSliceMut::new(&mut bytes)], false) {
            Ok((count, _)) => bytes.truncate(count),
            Err(ReadError::WouldBlock) => bytes.clear(),
            Err(error) => panic!("{error:?}"),
        }
        bytes
    }
}

#[test]
fn a_receivers_buffer_may_change_twice_and_leaves_the_senders() {
    let world = World::new(1024, 2048);
    let limits = || {
        let side = &world.joint().sides[0];
        [&side.limit, &side.room].map(|it| it.load(Ordering::Relaxed))
    };
    assert_eq!(limits(), [3072, 2048]);
    // Together they are more than the storage.
    world.joint().resize_receiving(1, 4096);
    assert_eq!(limits(), [4096, 4096]);
    world.joint().resize_receiving(1, 512);
    assert_eq!(limits(), [1536, 512]);
    world.joint().resize_sending(0, 8192);
    world.joint().resize_receiving(1, 256);
    assert_eq!(limits(), [4096, 256]);
    world.joint().resize_sending(0, 64);
    assert_eq!(limits(), [320, 256]);
}

#[test]
fn a_direction_is_joined_once_it_is_offered_and_open() {
    let world = World::new(64, 36);
    assert_eq!(world.write(0, b"by TCP"), 6);
    world.joint().offer();
    assert_eq!(world.write(0, b", still"), 7);
    assert!(!world.beside(1).is_open());
    world.beside(1).open(true);
    assert!(world.beside(1).is_open() && !world.beside(0).is_open());
    assert_eq!(world.write(0, b" beside"), 7);
    assert_eq!(world.end(0).unacknowledged(), 13, "what the peer's buffer would hold counts as acknowledged");
    assert!(world.joint().is_joined() && world.end(0).concerns_lane());
    // What TCP has yet to carry comes first.
    assert_eq!((world.read(1, 99), world.end(1).available()), (vec![], 0));
    world.carry(0, 8);
    assert_eq!((world.end(1).available(), world.read(1, 99)), (8, b"by TCP, ".to_vec()));
    world.carry(0, 99);
    assert_eq!((world.end(1).available(), world.read(1, 99)), (12, b"still beside".to_vec()));
    assert!(!world.end(0).concerns_lane());
    assert_eq!(world.joint().passed(0), [7, 0]);
}

#[test]
fn a_direction_holds_what_both_buffers_do_and_asks_for_room() {
    let world = World::new(64, 36);
    world.fuse();
    assert_eq!(world.write(0, &[1; 200]), 100);
    assert_eq!((world.write(0, b"x"), world.end(0).unacknowledged(), world.joint().unread(0)), (0, 64, 100));
    assert!(!world.end(0).readiness().has(crate::Readiness::WRITABLE));
    assert!(!world.beside(1).makes_room(), "nobody asked");
    assert!(!world.end(0).asks_for_storage());
    assert_eq!(world.read(1, 33).len(), 33);
    assert!(!world.beside(1).makes_room(), "it is little");
    assert_eq!(world.read(1, 1).len(), 1);
    assert!(world.beside(1).makes_room() && !world.beside(1).makes_room(), "told once");
    assert!(world.end(0).readiness().has(crate::Readiness::WRITABLE));
}

#[test]
fn a_writer_looks_at_what_was_read_now_and_then_and_always_before_it_says_that_there_is_no_room() {
    let world = World::new(3000, 1000);
    world.fuse();
    let seen = || world.joint().sides[0].seen_head.load(Ordering::Relaxed);
    for round in 0..30_u8 {
        assert_eq!(world.write(0, &[round; 300]), 300);
        assert_eq!(world.read(1, 999), [round; 300]);
        assert_eq!(seen(), u64::from(round) / 13 * 3900, "{round}");
    }
    assert_eq!((world.write(0, &[1; 3800]), world.write(0, &[1; 3800])), (3800, 200));
    assert_eq!((world.write(0, b"x"), world.read(1, 99).len(), world.write(0, &[1; 200])), (0, 99, 99));
}

#[test]
fn so_many_writes_may_be_unread() {
    let world = World::new(64, 64);
    world.joint().limit_writes(8);
    world.fuse();
    assert_eq!((0..20).map(|_| world.write(0, b"x")).sum::<usize>(), 8);
    let is_writable = || world.end(0).readiness().has(crate::Readiness::WRITABLE);
    assert!(!is_writable() && !world.end(0).asks_for_storage());
    assert_eq!((world.read(1, 7).len(), world.write(0, b"x")), (7, 0));
    assert!(world.beside(1).makes_room() && !is_writable(), "until the reader finds the end");
    world.end(0).asks_for_storage();
    assert_eq!(world.read(1, 7).len(), 1);
    assert!(world.beside(1).makes_room() && is_writable());
    assert_eq!(world.write(0, b"x"), 1);
    world.joint().limit_writes(0);
    assert_eq!((0..20).map(|_| world.write(0, b"x")).sum::<usize>(), 20);
}

#[test]
fn what_was_written_before_the_end_can_be_read_after_it() {
    let world = World::new(64, 64);
    world.fuse();
    assert_eq!((world.write(0, b"last words"), world.write(1, b"unheard")), (10, 7));
    // The first program leaves text unread: TCP makes a reset of it.
    assert!(world.joint().close(0));
    let block = world.arenas[1].mapping().block(0).unwrap();
    block.tell(status::CLOSED | 104 << status::ERROR_SHIFT);
    assert_eq!(world.read(1, 99), b"last words");
    let mut byte = [0];
    let failed = world.end(1).read(&mut [IoSliceMut::new(&mut byte)], false);
    assert_eq!(failed, Err(ReadError::Failed(104)));
}

#[test]
fn the_end_is_there_when_the_call_has_returned_behind_all_text_and_is_one_edge() {
    let world = World::new(64, 64);
    world.fuse();
    assert_eq!(world.write(0, b"last words"), 10);
    let before = world.end(1).progress(BOTH);
    world.end(0).shut_write();
    assert!(world.end(0).end_beside());
    let told = world.end(1).progress(BOTH);
    assert_ne!(told, before);
    let ends = crate::Readiness::PEER_CLOSED | crate::Readiness::READABLE;
    assert_eq!(world.end(1).readiness().0 & ends, ends);
    assert_eq!(world.end(1).status() & status::PEER_CLOSED, 0, "TCP's is on its way");
    assert_eq!(world.read(1, 99), b"last words");
    let mut byte = [0];
    let mut read = |at: usize| world.end(at).read(&mut [IoSliceMut::new(&mut byte)], false);
    assert_eq!(read(1), Ok((0, false)));
    let after = world.end(1).progress(BOTH);
    world.end(1).block().tell(status::PEER_CLOSED);
    assert_eq!(world.end(1).progress(BOTH), after, "what TCP says of it is no news");
    assert_eq!((read(1), read(0)), (Ok((0, false)), Err(ReadError::WouldBlock)));
    assert_eq!((world.write(1, b"answer"), world.read(0, 99)), (6, b"answer".to_vec()), "it is half of it");
    assert!(world.joint().has_ended(0) && !world.joint().has_ended(1));
}

#[test]
fn an_end_waits_for_what_tcp_carries_and_goes_its_way_where_the_direction_does() {
    let world = World::new(64, 64);
    assert!(!world.end(0).end_beside(), "nothing is offered");
    assert_eq!(world.write(0, b"by TCP"), 6);
    world.fuse();
    assert!(world.end(0).end_beside());
    let ended = |at: usize| world.end(at).readiness().has(crate::Readiness::PEER_CLOSED);
    assert!(!ended(1) && world.read(1, 99).is_empty());
    world.carry(0, 5);
    assert!(!ended(1));
    world.carry(0, 1);
    assert!(ended(1));
    assert_eq!(world.read(1, 99), b"by TCP");
    // The other direction is parted with something unread.
    assert_eq!(world.write(1, b"beside"), 6);
    world.joint().part();
    assert!(ended(1), "it stays");
    assert!(!world.end(1).end_beside());
    world.joint().offer();
    assert!(!world.end(1).end_beside() && !ended(0));
    assert_eq!(world.read(0, 99), b"beside");
    assert!(world.end(1).end_beside() && ended(0));
}

#[test]
fn that_a_stream_is_fused_is_no_news_and_that_a_full_direction_is_parted_is() {
    let world = World::new(64, 64);
    // A ring at rest has no storage.
    world.end(0).rings().one.state.store(0, Ordering::Relaxed);
    let before = world.end(0).progress(BOTH);
    world.fuse();
    assert_eq!(world.end(0).progress(BOTH), before);
    assert_eq!((world.write(0, b"x"), world.end(0).progress(BOTH)), (1, before));
    assert_eq!(world.write(0, &[1; 200]), 127);
    let full = world.end(0).progress(BOTH);
    world.joint().part();
    assert_ne!(world.end(0).progress(BOTH), full);
    world.joint().offer();
    world.joint().begin_limit(0);
    assert_eq!(world.read(1, 999).len(), 128);
    let limited = world.end(0).progress(BOTH);
    world.joint().end_limit(0);
    assert_ne!(world.end(0).progress(BOTH), limited);
}

#[test]
fn a_write_that_comes_behind_the_end_is_refused() {
    let world = World::new(64, 64);
    world.fuse();
    assert!(world.end(0).end_beside() && !world.end(0).end_beside(), "it is told once");
    // Who was on his way in when another thread shut the direction has not seen that.
    let late = world.end(0).write(&[IoSlice::new(b"x")]);
    assert_eq!(late, Err(WriteError::Closed));
    assert_eq!(world.end(0).undelivered(), 0);
}

#[test]
fn who_writes_to_one_who_has_left_finds_out() {
    let world = World::new(64, 64);
    world.fuse();
    assert_eq!(world.write(0, b"a"), 1);
    assert!(!world.beside(0).tell(|_| true).asks_daemon);
    assert!(world.joint().close(1), "it was not read");
    assert!(world.beside(0).tell(|_| true).asks_daemon, "the daemon is to be told");
    assert_eq!((world.write(0, b"b"), world.end(0).concerns_lane()), (1, true), "TCP's answer is a reset");
}

#[test]
fn a_waiter_who_sleeps_is_rung_until_somebody_says_that_he_was() {
    let world = World::new(64, 64);
    world.fuse();
    let inbox = world.segment.mapping().slot(5).unwrap();
    world.beside(1).watch(1 << 5);
    let rung = |says: bool| {
        let mut slots = Vec::new();
        let told = world.beside(0).tell(|slot| {
            slots.push(slot);
            says
        });
        assert_eq!(told.has_woken, says && !slots.is_empty(), "who was rung was asleep");
        (slots, told.asks_daemon)
    };
    assert_eq!(rung(true), (vec![], false), "he is awake");
    let forget = || while inbox.news.take_word().is_some() {};
    assert_eq!(inbox.news.take_word(), Some((0, 1)));
    forget();
    assert!(inbox.fall_asleep());
    assert_eq!(rung(false), (vec![5], true), "he could not be rung");
    assert_eq!(rung(true), (vec![5], false));
    assert_eq!(rung(true), (vec![], false), "he was rung for");
    forget();
    assert!(inbox.fall_asleep());
    assert_eq!(rung(true), (vec![5], false), "that is another nap");
    world.beside(1).unwatch(1 << 5);
    forget();
    assert!(inbox.fall_asleep());
    assert_eq!(rung(true), (vec![], false));
}

#[test]
fn who_waits_knows_whether_the_peer_has_another_cpu() {
    let world = World::new(64, 36);
    let meets = |at, cpu| world.beside(at).meet(cpu, &mut Spin::beside(2));
    assert!(meets(0, 0), "the peer has not waited as yet");
    assert!(!meets(1, 0) && meets(1, 1), "it has moved");
    assert!(meets(0, 0) && !meets(0, 1));
    // Whatever a peer says is a CPU.
    world.joint().sides[1].cpu.store(u16::MAX, Ordering::Relaxed);
    assert!(meets(0, 1) && meets(0, u16::MAX));
}

#[test]
fn when_one_end_tries_whether_looking_pays_the_other_does() {
    let world = World::new(64, 36);
    let mut spins = [Spin::beside(2), Spin::beside(2)];
    let wait = |at: usize, spin: &mut Spin| {
        assert!(world.beside(at).meet(at as u16, spin));
        let mut looks = 0;
        spin.until(|| {
            looks += 1;
            false
        });
        looks
    };
    // In vain, until the first of them tries again, and the other with him though he has waited less often.
    for at in [0, 0, 0, 0, 1, 1] {
        wait(at, &mut spins[at]);
    }
    let most = (0..64).map(|_| wait(0, &mut spins[0])).find(|&looks| looks > 1);
    assert_eq!(most, Some(wait(1, &mut spins[1])));
    assert_eq!([wait(0, &mut spins[0]), wait(1, &mut spins[1])], [1, 1], "no trial leads to another");
}

#[test]
fn who_dies_while_he_writes_has_written_nothing() {
    let world = World::new(64, 64);
    world.fuse();
    assert_eq!(world.write(0, b"whole"), 5);
    // All that he does before the swap that publishes it.
    let side = &world.joint().sides[0];
    let place = (LAYOUT.storage_at(), RING);
    assert!(copy_in(world.segment.mapping(), place, 5, 4, &[IoSlice::new(b"half")], 0));
    world.joint().part();
    assert_eq!((world.read(1, 99), side.written()), (b"whole".to_vec(), 5));
    side.base.store(5, Ordering::Relaxed);
    side.joined_at.store(3, Ordering::Relaxed);
    assert_eq!(world.write(0, b"by TCP"), 6);
    world.carry(0, 99);
    assert_eq!(world.read(1, 99), b"by TCP");
}

#[test]
fn the_count_goes_on_where_half_of_it_ends() {
    let world = World::new(64, 64);
    let begin = (1_u64 << 32) - 9;
    world.joint().sides[0].tail.store(begin - (1 << 29), Ordering::Relaxed);
    world.joint().sides[0].state.store(begin << way::WRITTEN_SHIFT, Ordering::Relaxed);
    world.joint().sides[1].head.store(begin, Ordering::Relaxed);
    world.fuse();
    for round in 0..40_u8 {
        assert_eq!(world.write(0, &[round; 3]), 3);
        assert_eq!(world.joint().unread(0), 3);
        assert_eq!(world.read(1, 99), [round; 3]);
    }
    assert_eq!(world.joint().passed(0), [begin + 120, 0]);
    assert_eq!(world.joint().passed(1), [0, begin + 120]);
}

/// Whatever a program writes to the words that it shares, the other reads bytes of its own connection or is told of a lie;
/// nothing is touched outside the segment's storage.
#[test]
fn lies_are_found_out_or_harm_nobody_else() {
    let spoilt = |spoil: fn(&Side)| {
        let world = World::new(64, 64);
        world.fuse();
        assert_eq!(world.write(0, b"true"), 4);
        world.joint().sides.iter().for_each(spoil);
        let mut bytes = [0; 99];
        let read = world.end(1).read(&mut [IoSliceMut::new(&mut bytes)], false);
        // The writer need not look at what was read as long as there is room for certain.
        let write = || world.end(0).write(&[IoSlice::new(&[7; 99])]);
        let written = write().and_then(|_| write());
        let _ = (world.end(1).readiness(), world.end(0).unacknowledged(), world.beside(0).tell(|_| true));
        (read, written)
    };
    let (read, written) = spoilt(|side| _ = side.state.fetch_or(1 << 60, Ordering::Relaxed));
    assert_eq!((read, written), (Err(ReadError::Lie), Err(WriteError::Lie)));
    let (read, written) = spoilt(|side| side.head.store(1 << 30, Ordering::Relaxed));
    assert_eq!((read, written), (Err(ReadError::Lie), Err(WriteError::Lie)));
    let (read, written) = spoilt(|side| side.storage.store(u64::MAX - 3, Ordering::Relaxed));
    assert_eq!((read, written), (Err(ReadError::Lie), Err(WriteError::Lie)));
    let (read, written) = spoilt(|side| side.storage.store(0, Ordering::Relaxed));
    assert_eq!((read, written), (Err(ReadError::Lie), Err(WriteError::Lie)), "the header is no storage");
    for spoil in [
        (|side| side.shift.store(u16::MAX, Ordering::Relaxed)) as fn(&Side),
        |side| side.limit.store(u32::MAX, Ordering::Relaxed),
        |side| side.base.store(u64::MAX / 3, Ordering::Relaxed),
        |side| side.joined_at.store(u64::MAX, Ordering::Relaxed),
        |side| side.state.store(u64::MAX, Ordering::Relaxed),
        |side| side.tail.store(u64::MAX / 5, Ordering::Relaxed),
        |side| side.seen_head.store(u64::MAX / 7, Ordering::Relaxed),
        |side| side.block.store(u32::MAX, Ordering::Relaxed),
        |side| side.waiters.store(u64::MAX, Ordering::Relaxed),
    ] {
        let _ = spoilt(spoil);
    }
}

proptest! {
    /// In whatever order a stream is written, read, carried, offered, taken back and joined, it is whole and in order.
    #[test]
    fn the_stream_is_whole(steps in prop::collection::vec((0u8..12, 1usize..300, any::<bool>()), 1..400)) {
        let world = World::new(200, 100);
        let (mut written, mut read) = ([0u64; 2], [0u64; 2]);
        for (what, len, first) in steps {
            let at = usize::from(first);
            match what {
                0..=3 => written[at] += world.write(at, &bytes_at(written[at], len)) as u64,
                4..=6 => {
                    let bytes = world.read(at, len);
                    prop_assert_eq!(&bytes, &bytes_at(read[at], bytes.len()));
                    read[at] += bytes.len() as u64;
                }
                7 | 8 => world.carry(at, len),
                9 => world.joint().offer(),
                10 => world.beside(at).open(true),
                _ => world.joint().part(),
            }
        }
        for at in [0, 1] {
            loop {
                world.carry(1 - at, RING);
                let bytes = world.read(at, 999);
                prop_assert_eq!(&bytes, &bytes_at(read[at], bytes.len()));
                read[at] += bytes.len() as u64;
                if bytes.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(read[at], written[1 - at]);
        }
    }
}

/// Four threads: one writes, one reads, one is TCP, one changes its mind.
/// A process whose parent has used the joint, and that cannot map the segment.
#[test]
fn who_cannot_reach_what_lies_in_a_joint_reads_nothing_until_it_is_said_what_that_is() {
    const ABORTED: i32 = rustix::io::Errno::CONNABORTED.raw_os_error();
    for is_lost in [false, true] {
        let world = World::new(64, 64);
        let block = world.arenas[1].mapping().block(0).unwrap();
        block.segment.store(3, Ordering::SeqCst);
        let bare = || StreamEnd::new(world.arenas[1].mapping(), 0, Holder::new(1, 9)).unwrap().alone();
        let read = || {
            let mut bytes = [0; 99];
            bare().read(&mut [IoSliceMut::new(&mut bytes)], false).map(|(count, _)| bytes[..count].to_vec())
        };
        let write = || bare().write(&[IoSlice::new(b"answer")]);
        let ready = || bare().readiness().0;
        world.write(0, b"by TCP");
        world.carry(0, 99);
        assert_eq!(read(), Ok(b"by TCP".to_vec()), "nobody has used the joint");
        assert!(!bare().asks_to_part() && write() == Ok(6));

        block.file.fetch_or(FOLLOWED, Ordering::SeqCst);
        world.fuse();
        world.write(0, b"beside");
        world.joint().part();
        world.write(0, b"behind");
        world.carry(0, 99);
        block.tell(status::PEER_CLOSED);
        let before = bare().progress(BOTH);
        assert_eq!((read(), write(), ready()), (Err(ReadError::WouldBlock), Err(WriteError::WouldBlock), 0));
        assert_eq!([bare().asks_to_part(), bare().asks_to_part()], [true, false], "the lane is told once");
        if is_lost {
            block.tell((ABORTED as u64) << status::ERROR_SHIFT);
            block.file.fetch_or(LOST, Ordering::SeqCst);
            assert!(bare().readiness().has(crate::Readiness::ERROR));
            assert_eq!([read(), read()], [Err(ReadError::Failed(ABORTED)), Ok(vec![])]);
            assert!(write() == Err(WriteError::Closed) && bare().readiness().has(crate::Readiness::HANGUP));
        } else {
            assert_eq!(world.read(1, 6), b"beside", "others read on");
            block.segment.store(0, Ordering::SeqCst);
            assert_eq!([read(), read()], [Ok(b"behind".to_vec()), Ok(vec![])]);
        }
        assert!(bare().progress(BOTH) != before && !bare().awaits_parting() && !bare().asks_to_part());
    }
}

#[test]
fn the_stream_is_whole_between_threads() {
    const BYTES: u64 = 400_000;
    let (world, is_over) = (World::new(600, 400), AtomicBool::new(false));
    world.fuse();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut cursor = 0;
            while cursor < BYTES {
                let len = (BYTES - cursor).min(1 + cursor % 97) as usize;
                let count = world.write(0, &bytes_at(cursor, len));
                cursor += count as u64;
                if count == 0 {
                    std::thread::yield_now();
                }
            }
        });
        scope.spawn(|| {
            let mut cursor = 0;
            while cursor < BYTES {
                let bytes = world.read(1, 1 + (cursor % 113) as usize);
                assert_eq!(bytes, bytes_at(cursor, bytes.len()), "at {cursor}");
                cursor += bytes.len() as u64;
                if bytes.is_empty() {
                    std::thread::yield_now();
                }
            }
            is_over.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                world.carry(0, 700);
                std::thread::yield_now();
            }
        });
        while !is_over.load(Ordering::SeqCst) {
            world.joint().part();
            std::thread::yield_now();
            world.joint().offer();
            std::thread::yield_now();
        }
    });
}

/// Both ends sleep whenever they can, and each is woken by the other alone.
#[test]
fn sleepers_are_woken_between_threads() {
    const BYTES: u64 = 60_000;
    let world = World::new(300, 200);
    world.fuse();
    let wait = |at: usize, events: u32| {
        world.end(at).wait(events, crate::SLICE, &mut crate::Spin::new(1));
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut cursor = 0;
            while cursor < BYTES {
                let len = (BYTES - cursor).min(1 + cursor % 251) as usize;
                match world.write(0, &bytes_at(cursor, len)) {
                    0 => {
                        world.end(0).asks_for_storage();
                        wait(0, crate::Readiness::WRITABLE);
                    }
                    count => {
                        cursor += count as u64;
                        world.beside(0).tell(|_| true);
                    }
                }
            }
        });
        let mut cursor = 0;
        while cursor < BYTES {
            let bytes = world.read(1, 1 + (cursor % 199) as usize);
            assert_eq!(bytes, bytes_at(cursor, bytes.len()), "at {cursor}");
            cursor += bytes.len() as u64;
            if bytes.is_empty() {
                wait(1, crate::Readiness::READABLE);
            } else if world.beside(1).makes_room() {
                world.beside(1).tell(|_| true);
            }
        }
    });
}

/// Who reads the state word, and then a count that has passed it meanwhile, takes nothing for 4 GiB more.
#[test]
fn a_count_that_is_ahead_of_the_state_word_is_no_more_than_it_was() {
    let side = Side::default();
    for at in [0, 5u64, u64::from(u32::MAX) - 10, 7 << 32] {
        let state = (at << WRITTEN_SHIFT) | OFFERED;
        for tail in [at, at + 4096, at.saturating_sub(1 << 30)] {
            side.tail.store(tail, Ordering::Relaxed);
            assert_eq!(side.whole(state), at, "{tail}");
        }
    }
}

#[test]
fn what_is_urgent_goes_with_tcp_and_in_its_place() {
    let world = World::new(RING as u32, 0);
    world.fuse();
    let [one, two] = [world.end(0), world.end(1)];
    let read = |len: usize| {
        let mut bytes = vec![0; len];
        let (count, _) = two.read(&mut [IoSliceMut::new(&mut bytes)], false).unwrap();
        bytes.truncate(count);
        bytes
    };
    assert_eq!(one.write(&[IoSlice::new(b"joint")]), Ok(5));
    assert!(world.joint().is_joined());
    assert_eq!(one.write_urgent(&[IoSlice::new(b"tcP")], |mark| (mark == 3).then_some(()).ok_or(1)), Ok(3));
    assert!(!world.joint().is_joined(), "the writer has left it");
    assert_eq!(one.write(&[IoSlice::new(b"tcp")]), Ok(3), "as long as any of its text is unread there");
    world.arenas[1].mapping().block(0).unwrap().rings.margin[margin::MARK].store(3, Ordering::Release);
    world.carry(0, RING);
    assert_eq!((two.unread(), two.is_at_mark(), two.read_urgent(false)), (7, false, Ok(b'P')));
    // Who looks sees all that lies before the mark, in one look; what counts for SO_RCVLOWAT is all there is.
    let look = |len: usize| {
        let mut bytes = vec![0; len];
        let (count, _) = two.read(&mut [IoSliceMut::new(&mut bytes)], true).unwrap();
        bytes.truncate(count);
        bytes
    };
    assert_eq!((look(99), look(6), look(3)), (b"jointtc".to_vec(), b"jointt".to_vec(), b"joi".to_vec()));
    assert_eq!((two.available(), two.ends_at_mark(), two.unread_in_all()), (7, true, 11));
    let file = &world.arenas[1].mapping().block(0).unwrap().file;
    file.fetch_or(crate::layout::OOB_INLINE, Ordering::Relaxed);
    assert_eq!(
        (two.unread(), look(99)),
        (11, b"jointtc".to_vec()),
        "inline all counts, and a look ends at the mark"
    );
    file.fetch_and(!crate::layout::OOB_INLINE, Ordering::Relaxed);
    assert_eq!((read(99), read(99)), (b"joint".to_vec(), b"tc".to_vec()));
    assert!(two.is_at_mark() && two.unread_in_all() == 3);
    assert_eq!(one.write(&[IoSlice::new(b"again")]), Ok(5));
    assert!(world.joint().is_joined());
    assert_eq!(read(99), b"tcpagain");
}

#[test]
fn a_limited_writer_writes_what_is_granted_and_asks_for_the_rest() {
    let world = World::new(600, 400);
    world.fuse();
    assert_eq!(world.write(0, &[1; 50]), 50);
    assert_eq!((world.joint().begin_limit(0), world.write(0, &[2; 90])), (50, 0));
    assert_eq!(world.joint().asked(0), [140, 50], "how far it would like to write");
    assert!(world.end(0).asks_for_storage() && !world.end(0).asks_for_storage(), "once");
    let is_writable = || world.end(0).readiness().has(crate::Readiness::WRITABLE);
    assert!(!is_writable() && world.end(0).room() == 0);
    world.joint().grant(0, 80);
    assert!(is_writable() && world.end(0).room() == 30);
    assert_eq!((world.write(0, &[2; 90]), world.write(0, &[2; 60])), (30, 0));
    // The other direction is none of this one's.
    assert_eq!(world.write(1, &[3; 100]), 100);
    // Who waits and has nothing to write yet would like a frame's worth.
    world.joint().grant(0, 140);
    assert_eq!((world.write(0, &[2; 60]), is_writable()), (60, false));
    let _ = world.end(0).asks_for_storage();
    assert_eq!(world.joint().asked(0), [140 + ASKED_LEAST, 140]);
    world.joint().end_limit(0);
    assert_eq!((world.write(0, &[4; 999]), world.read(1, 999).len()), (860, 999));
    // A limit that comes later begins with what is written then.
    assert_eq!((world.joint().begin_limit(0), world.write(0, b"x")), (1000, 0));
}

#[test]
fn who_writes_over_what_was_granted_waits_until_the_next_loan() {
    let world = World::new(600, 400);
    world.fuse();
    world.joint().begin_limit(0);
    world.joint().grant(0, 10);
    let side = &world.joint().sides[0];
    for lie in [0, 9, u64::MAX] {
        side.granted.store(lie, Ordering::Relaxed);
        assert_eq!(world.write(0, &[0; 9999]), if lie == 9 { 9 } else { 0 }, "{lie}");
    }
    // The daemon's own count is what counts.
    world.joint().grant(0, 20);
    assert_eq!(world.write(0, &[0; 9999]), 11);
    // Whatever is asked, and whatever the writer has told of itself, the reader gets what was written.
    side.asked.store(u64::MAX, Ordering::Relaxed);
    assert_eq!((world.read(1, 999).len(), world.end(1).available()), (20, 0));
}

/// While limits come and go, nobody writes beyond what was granted, and who waits for credit is woken by it.
#[test]
fn no_byte_is_written_without_credit_between_threads() {
    const BYTES: u64 = 40_000;
    let world = World::new(3000, 1000);
    world.fuse();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut cursor = 0;
            while cursor < BYTES {
                match world.write(0, &bytes_at(cursor, (BYTES - cursor).min(701) as usize)) {
                    0 => {
                        world.end(0).asks_for_storage();
                        let writable = crate::Readiness::WRITABLE;
                        world.end(0).wait(writable, crate::SLICE, &mut crate::Spin::new(1));
                    }
                    count => cursor += count as u64,
                }
            }
            is_over.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            let mut cursor = 0;
            while cursor < BYTES {
                let bytes = world.read(1, 997);
                assert_eq!(bytes, bytes_at(cursor, bytes.len()));
                cursor += bytes.len() as u64;
                match bytes.is_empty() {
                    true => std::thread::yield_now(),
                    false if world.beside(1).makes_room() => drop(world.beside(1).tell(|_| true)),
                    false => {}
                }
            }
        });
        while !is_over.load(Ordering::SeqCst) {
            let mut granted = world.joint().begin_limit(0);
            for _ in 0..20 {
                let [asked, written] = world.joint().asked(0);
                assert!(written <= granted, "{written} of {granted}");
                if asked > granted {
                    granted += 300;
                    world.joint().grant(0, granted);
                    world.beside(1).wake_threads();
                }
                std::thread::yield_now();
            }
            world.joint().end_limit(0);
            world.beside(1).wake_threads();
        }
    });
}
