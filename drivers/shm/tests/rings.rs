//! The same bytes through rings at home and rings in an arena, and through one that another process has mapped.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use firelane_frame::{MarginRef, RingReader, RingWriter, byte_rings, byte_rings_in};
use firelane_shm::layout::{PAGE, status};
use firelane_shm::{
    Arena, Holder, Layout, Mapping, ReadError, Readiness, Spin, StreamEnd, WriteError, carry,
};
use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

const LAYOUT: Layout = Layout { lanes: 1, blocks: 16, storage_bytes: 64 * PAGE };

/// A stream in an arena: the lane's halves, and what keeps it.
struct Lane {
    arena: Arena,
    _held: MarginRef,
    recv: RingWriter,
    send: RingReader,
    block: u32,
}

impl Lane {
    fn new(send: usize, recv: usize) -> Self {
        let arena = Arena::create(LAYOUT, 1).unwrap();
        let (held, (writer, reader)) = byte_rings_in(arena.rings(), send, recv).unwrap();
        let number = held.far().unwrap().block();
        let block = arena.mapping().block(number).unwrap();
        block.capacity[0].store(send as u32, Ordering::Relaxed);
        block.capacity[1].store(recv as u32, Ordering::Relaxed);
        block.tell(status::CONNECTED);
        Self { arena, _held: held, recv: writer, send: reader, block: number }
    }

    fn wake(&self) {
        self.arena.mapping().block(self.block).unwrap().wake();
    }
}

fn bytes_at(cursor: u64, len: usize) -> Vec<u8> {
    (cursor..cursor + len as u64).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8).collect()
}

proptest! {
    #[test]
    fn an_arena_changes_nothing_about_the_bytes(
        steps in prop::collection::vec((0u8..6, 0usize..6000), 1..150),
    ) {
        let mut lane = Lane::new(4096, 8192);
        let memory = Mapping::attach(&lane.arena).unwrap().0;
        let program = StreamEnd::new(&memory, lane.block, Holder::new(1, 1)).unwrap();
        let ((mut send, mut recv), (mut to, mut from)) = byte_rings(4096, 8192);
        for (step, len) in steps {
            match step {
                0 => {
                    // Writing nothing attaches nothing.
                    if len > 0 {
                        lane.send.attach_far();
                    }
                    let bytes = bytes_at(send.cursor(), len);
                    let wrote = match program.write(&[IoSlice::new(&bytes)]) {
                        Err(WriteError::WouldBlock) => 0,
                        other => other.unwrap(),
                    };
                    prop_assert_eq!(wrote, send.write(&bytes));
                }
                1 => {
                    let (mut here, mut there) = (vec![0; len], vec![0; len]);
                    prop_assert_eq!(lane.send.read(&mut there), from.read(&mut here));
                    prop_assert_eq!(there, here);
                }
                2 => {
                    // A claim attaches storage in an arena; at home the first byte does.
                    let len = len.max(1);
                    let bytes = bytes_at(to.cursor(), len);
                    prop_assert_eq!(lane.recv.claim(), to.claim());
                    prop_assert_eq!(lane.recv.write(&bytes), to.write(&bytes));
                }
                3 => {
                    let (mut here, mut there) = (vec![0; len], vec![0; len]);
                    let got = match program.read(&mut [IoSliceMut::new(&mut there)], false) {
                        Err(ReadError::WouldBlock) => 0,
                        other => other.unwrap().0,
                    };
                    prop_assert_eq!(got, recv.read(&mut here));
                    prop_assert_eq!(there, here);
                }
                4 => prop_assert_eq!(lane.recv.detach_if_empty(), to.detach_if_empty()),
                _ => prop_assert_eq!(lane.send.detach_if_empty(), from.detach_if_empty()),
            }
            prop_assert_eq!((lane.send.available(), program.available()), (from.available(), recv.available()));
            prop_assert!(!lane.send.far().unwrap().has_lied());
        }
    }
}

proptest! {
    /// The lane may let the program's send ring grow at any time, and the program may choose its size: what was written is read, and
    /// there is as much room as was said last.
    #[test]
    fn a_send_ring_in_an_arena_grows_under_the_bytes(
        steps in prop::collection::vec((0u8..4, 1usize..12_000), 1..100),
    ) {
        let mut lane = Lane::new(4096, 4096);
        let memory = Mapping::attach(&lane.arena).unwrap().0;
        let program = StreamEnd::new(&memory, lane.block, Holder::new(1, 1)).unwrap();
        lane.send.attach_far();
        let (mut limit, mut storage, mut written) = (4096usize, 4096, 0u64);
        for (step, len) in steps {
            match step {
                0 => {
                    let room = limit.saturating_sub(lane.send.available());
                    prop_assert_eq!(program.room(), room);
                    let wrote = match program.write(&[IoSlice::new(&bytes_at(written, len))]) {
                        Err(WriteError::WouldBlock) => 0,
                        other => other.unwrap(),
                    };
                    prop_assert_eq!(wrote, room.min(len));
                    written += wrote as u64;
                }
                1 => {
                    let (cursor, mut bytes) = (lane.send.cursor(), vec![0; len]);
                    let count = lane.send.read(&mut bytes);
                    prop_assert_eq!(&bytes[..count], &bytes_at(cursor, count)[..]);
                }
                2 => {
                    let wanted = len.next_power_of_two();
                    let grows = storage < wanted;
                    prop_assert_eq!(lane.send.grow(len), grows);
                    if grows {
                        (limit, storage) = (wanted, wanted);
                    }
                }
                _ => {
                    lane.arena.mapping().block(lane.block).unwrap().capacity[0].store(len as u32, Ordering::Relaxed);
                    lane.send.resize(len);
                    (limit, storage) = (len, storage.max(len.next_power_of_two()));
                }
            }
            let seen = lane._held.far().unwrap().written_behind(&lane._held, lane.send.cursor());
            prop_assert_eq!(seen, [written - lane.send.cursor(), limit as u64]);
            prop_assert!(!lane.send.far().unwrap().has_lied());
        }
    }
}

#[test]
fn a_send_ring_grows_only_where_there_is_storage_to_spare_and_begins_again_when_it_was_empty() {
    let page = PAGE as usize;
    let mut lane = Lane::new(page, page);
    let memory = Mapping::attach(&lane.arena).unwrap().0;
    let program = StreamEnd::new(&memory, lane.block, Holder::new(1, 1)).unwrap();
    assert!(!lane.send.grow(2 * page), "it has no storage as yet");
    lane.send.attach_far();
    program.write(&[IoSlice::new(&[7; 100])]).unwrap();
    let quota = 64 * page;
    assert!(!lane.send.grow(quota / 2), "with what is in use, more than half");
    assert_eq!(lane.arena.rings().in_use().refused, 0);
    assert!(lane.send.grow(quota / 4));
    assert_eq!((program.room(), lane.arena.rings().in_use().storage), (quota / 4 - 100, quota / 4));
    lane.send.release(100);
    assert!(lane.send.detach_if_empty() && lane.send.attach_far());
    assert_eq!((program.room(), lane.arena.rings().in_use().storage), (page, page));
}

/// Not a test of its own: what the other process runs, with its arena coming by standard input.
#[test]
fn child() {
    if std::env::var_os("FIRELANE_SHM_CHILD").is_none() {
        return;
    }
    let mut fds = Vec::new();
    let mut block = [0; 4];
    carry::receive(std::io::stdin(), &mut block, &mut fds, true).unwrap();
    let memory = Mapping::attach(&fds[0]).unwrap().0;
    let stream = StreamEnd::new(&memory, u32::from_le_bytes(block), Holder::new(7, 1)).unwrap();
    let (mut spin, mut bytes) = (Spin::new(2), [0; 3000]);
    loop {
        let count = match stream.read(&mut [IoSliceMut::new(&mut bytes)], false) {
            Ok((0, _)) => return,
            Ok((count, _)) => count,
            Err(ReadError::WouldBlock) => {
                stream.wait(Readiness::READABLE, Duration::from_millis(250), &mut spin);
                continue;
            }
            Err(error) => panic!("{error:?}"),
        };
        let mut sent = 0;
        while sent < count {
            match stream.write(&[IoSlice::new(&bytes[sent..count])]) {
                Ok(wrote) => sent += wrote,
                Err(WriteError::WouldBlock) => {
                    stream.wait(Readiness::WRITABLE, Duration::from_millis(250), &mut spin);
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

fn spawn(lane: &Lane) -> (Child, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child"])
        .env("FIRELANE_SHM_CHILD", "1")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    use std::os::fd::AsFd;
    carry::send(&ours, &lane.block.to_le_bytes(), &[lane.arena.as_fd()], true).unwrap();
    (child, ours)
}

/// Sends bytes to the other process and takes its echo until `total` have come back.
fn bounce(lane: &mut Lane, total: u64) {
    let (mut back, mut bytes) = (lane.send.cursor(), vec![0; 5000]);
    let end = Instant::now() + Duration::from_secs(60);
    while back < total {
        assert!(Instant::now() < end, "{back} of {total} bytes came back");
        lane.send.attach_far();
        let room = (lane.recv.claim() as u64).min(total - lane.recv.cursor()) as usize;
        lane.recv.write(&bytes_at(lane.recv.cursor(), room.min(2500)));
        let count = lane.send.read(&mut bytes);
        assert_eq!(bytes[..count], bytes_at(back, count));
        back += count as u64;
        lane.wake();
        if count == 0 {
            lane.send.detach_if_empty();
            lane.recv.detach_if_empty();
            std::thread::yield_now();
        }
    }
}

#[test]
fn another_process_answers_every_byte() {
    let mut lane = Lane::new(8192, 8192);
    let (mut child, _socket) = spawn(&lane);
    bounce(&mut lane, 500_000);
    lane.arena.mapping().block(lane.block).unwrap().tell(status::PEER_CLOSED);
    assert!(child.wait().unwrap().success());
    assert!(!lane.send.far().unwrap().has_lied());
}

#[test]
fn who_is_killed_anywhere_is_buried_and_another_goes_on() {
    for round in 0..5u64 {
        let mut lane = Lane::new(8192, 8192);
        let (mut child, _socket) = spawn(&lane);
        bounce(&mut lane, 20_000 + round * 7001);
        // It is in the middle of something: bytes are under way.
        lane.recv.claim();
        lane.recv.write(&bytes_at(lane.recv.cursor(), 4000));
        lane.wake();
        std::thread::sleep(Duration::from_micros(round * 50));
        child.kill().unwrap();
        child.wait().unwrap();
        let block = lane.arena.mapping().block(lane.block).unwrap();
        block.bury(7);
        assert_eq!(
            (block.send_owner.load(Ordering::Relaxed), block.recv_owner.load(Ordering::Relaxed)),
            (0, 0)
        );
        let stream = StreamEnd::new(lane.arena.mapping(), lane.block, Holder::new(8, 1)).unwrap();
        let mut bytes = [0; 8192];
        while stream.read(&mut [IoSliceMut::new(&mut bytes)], false).is_ok() {}
        lane.send.attach_far();
        while lane.send.read(&mut bytes) > 0 {}
        assert_eq!(stream.write(&[IoSlice::new(b"still here")]), Ok(10));
        assert_eq!((lane.send.read(&mut bytes), &bytes[..10]), (10, &b"still here"[..]));
        assert!(lane.send.detach_if_empty(), "nobody holds the storage");
    }
}
