//! A program's end over a real arena, with the lane's part played by hand.

use super::*;
use crate::UrgentError;
use crate::layout::{DEFERRED, Layout, PAGE};
use crate::{Arena, Mapping};
use core::ptr::without_provenance_mut;
use firelane_frame::ring_state::{GROWN, SIZE_SHIFT};

const LAYOUT: Layout = Layout { lanes: 1, blocks: 16, storage_bytes: 16 * PAGE };
const ME: Holder = Holder::new(1, 1);
/// Text and room.
const BOTH: u32 = Readiness::READABLE | Readiness::WRITABLE;

/// An arena with one stream, established, with a page of storage for each ring.
struct World {
    arena: Arena,
    program: Mapping,
}

impl World {
    fn new() -> Self {
        let arena = Arena::create(LAYOUT, 1).unwrap();
        let program = Mapping::attach(&arena).unwrap().0;
        let world = Self { arena, program };
        world.block().capacity.iter().for_each(|word| word.store(PAGE as u32, Ordering::Relaxed));
        world.attach(&world.block().rings.one, 0);
        world.attach(&world.block().rings.two, 1);
        world.block().tell(status::CONNECTED);
        world
    }

    fn block(&self) -> &Block {
        self.arena.mapping().block(3).unwrap()
    }

    fn attach(&self, side: &RingSide, page: u64) {
        let at = LAYOUT.storage_at() + page * PAGE;
        side.storage.store(without_provenance_mut(at as usize), Ordering::Relaxed);
        side.state.store(ATTACHED | u64::from(PAGE.trailing_zeros()) << SIZE_SHIFT, Ordering::Release);
    }

    fn end(&self) -> StreamEnd<'_> {
        StreamEnd::new(&self.program, 3, ME).unwrap()
    }

    /// The lane puts bytes into the receive ring.
    fn deliver(&self, bytes: &[u8]) {
        let side = &self.block().rings.two;
        let tail = side.tail.load(Ordering::Relaxed);
        let (storage, size) = place(side);
        for (at, (from, to)) in parts(storage, size, tail, bytes.len()) {
            assert!(self.arena.mapping().copy_in(at, &bytes[from..to]));
        }
        side.tail.store(tail + bytes.len() as u64, Ordering::Release);
    }

    /// The lane takes what the program wrote.
    fn take(&self) -> Vec<u8> {
        let (ours, theirs) = (&self.block().rings.two, &self.block().rings.one);
        let (head, tail) = (ours.head.load(Ordering::Relaxed), theirs.tail.load(Ordering::Acquire));
        let mut bytes = vec![0; (tail - head) as usize];
        let (storage, size) = place(theirs);
        for (at, (from, to)) in parts(storage, size, head, bytes.len()) {
            assert!(self.arena.mapping().copy_out(at, &mut bytes[from..to]));
        }
        ours.head.store(tail, Ordering::Release);
        bytes
    }
}

fn write(end: &StreamEnd<'_>, bytes: &[u8]) -> Result<usize, WriteError> {
    let (a, b) = bytes.split_at(bytes.len() / 3);
    end.write(&[IoSlice::new(a), IoSlice::new(b)])
}

fn read(end: &StreamEnd<'_>, len: usize) -> Result<Vec<u8>, ReadError> {
    let (mut a, mut b) = (vec![0; len / 2], vec![0; len - len / 2]);
    let (count, _) = end.read(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], false)?;
    a.extend_from_slice(&b);
    a.truncate(count);
    Ok(a)
}

#[test]
fn storage_that_is_not_mapped_here_is_a_lie() {
    let world = World::new();
    let beyond = LAYOUT.len();
    for side in [&world.block().rings.one, &world.block().rings.two] {
        side.storage.store(without_provenance_mut(beyond as usize), Ordering::Relaxed);
    }
    world.block().rings.two.tail.store(5, Ordering::Release);
    let end = world.end();
    assert_eq!(end.write(&[IoSlice::new(b"text")]), Err(WriteError::Lie));
    assert_eq!(end.read(&mut [IoSliceMut::new(&mut [0; 5])], false), Err(ReadError::Lie));
    assert_eq!(world.block().rings.one.tail.load(Ordering::Relaxed), 0, "nothing was written");
}

#[test]
fn bytes_pass_both_ways_round_the_end_of_the_storage() {
    let world = World::new();
    let end = world.end();
    for round in 0..20u8 {
        let text: Vec<u8> = (0..1500).map(|n| (n as u8).wrapping_mul(7) ^ round).collect();
        assert_eq!(write(&end, &text), Ok(1500));
        assert_eq!(end.unacknowledged(), 1500);
        assert_eq!(world.take(), text);
        world.deliver(&text);
        assert_eq!(end.available(), 1500);
        assert_eq!(read(&end, 700).unwrap(), text[..700]);
        assert_eq!(read(&end, 4000).unwrap(), text[700..]);
        assert_eq!(read(&end, 1), Err(ReadError::WouldBlock));
    }
}

/// The window is what there is storage for, whatever the ring would like to have.
#[test]
fn of_small_storage_quarters_are_told() {
    let world = World::new();
    world.block().capacity[1].store(64 * PAGE as u32, Ordering::Relaxed);
    world.deliver(&[1; PAGE as usize]);
    let read = |bytes: usize| world.end().read(&mut [IoSliceMut::new(&mut vec![0; bytes])], false).unwrap().1;
    assert_eq!([read(1000), read(24), read(1024)], [false, true, true]);
}

#[test]
fn a_full_ring_takes_no_more_and_the_window_is_told_by_quarters() {
    let world = World::new();
    let end = world.end();
    assert_eq!(write(&end, &[1; 5000]), Ok(4096));
    assert_eq!(write(&end, &[1; 1]), Err(WriteError::WouldBlock));
    assert!(!end.readiness().has(Readiness::WRITABLE));
    world.take();
    assert!(end.readiness().has(Readiness::WRITABLE));
    world.deliver(&[1; 4096]);
    let mut told = 0;
    for _ in 0..8 {
        let mut bytes = [0; 512];
        told += usize::from(end.read(&mut [IoSliceMut::new(&mut bytes)], false).unwrap().1);
    }
    assert_eq!(told, 4);
}

/// Who waits for an edge looks again only where this number is another.
#[test]
fn a_ring_that_has_grown_is_progress() {
    let world = World::new();
    let (end, side) = (world.end(), &world.block().rings.one);
    assert_eq!(write(&end, &[1; PAGE as usize]), Ok(PAGE as usize));
    let (full, text) = (end.progress(BOTH), end.progress(Readiness::READABLE));
    assert!(!end.readiness().has(Readiness::WRITABLE));
    let grown = ATTACHED | GROWN | u64::from((2 * PAGE).trailing_zeros()) << SIZE_SHIFT;
    side.state.store(grown, Ordering::Release);
    assert!(end.readiness().has(Readiness::WRITABLE));
    assert_ne!(end.progress(BOTH), full);
    assert_eq!(end.progress(Readiness::READABLE), text, "room to write is nothing to read");
    // Entering and leaving is the program's own.
    let before = end.progress(BOTH);
    side.state.store(grown.wrapping_add(EPOCH), Ordering::Release);
    assert_eq!(end.progress(BOTH), before);
    // A larger buffer (SO_SNDBUF) counts as well, once there is storage for it.
    side.state.store(grown & !GROWN, Ordering::Release);
    let cramped = end.progress(BOTH);
    world.block().capacity[0].store(2 * PAGE as u32, Ordering::Relaxed);
    assert_ne!(end.progress(BOTH), cramped);
}

#[test]
fn text_is_progress_for_who_reads_and_that_somebody_has_accepted_is_none() {
    let world = World::new();
    let end = world.end();
    let all = || [BOTH, Readiness::READABLE, Readiness::WRITABLE].map(|events| end.progress(events));
    let before = all();
    world.block().tell(status::ACCEPTED);
    assert_eq!(all(), before);
    world.deliver(b"text");
    let [both, text, room] = all();
    assert_ne!([both, text], before[..2]);
    assert_eq!(room, before[2]);
    world.block().tell(status::PEER_CLOSED);
    assert!(all().into_iter().zip([both, text, room]).all(|(now, before)| now != before));
}

/// What the program does and the lane undoes leaves no trace but this.
#[test]
fn a_write_that_was_refused_is_progress() {
    let world = World::new();
    let (end, block) = (world.end(), world.block());
    block.low_water[1].store(1000, Ordering::Relaxed);
    let told = end.progress(BOTH);
    assert!(end.readiness().has(Readiness::WRITABLE));
    assert_eq!(write(&end, &[1; 1000]), Ok(1000));
    assert_eq!(write(&end, &[1; 1]), Err(WriteError::WouldBlock));
    end.note_refusal();
    // All of it was sent, and nothing is acknowledged as yet.
    block.requests.fetch_and(!request::FULL, Ordering::Relaxed);
    assert!(end.readiness().has(Readiness::WRITABLE));
    assert_ne!(end.progress(BOTH), told);
}

#[test]
fn who_wants_little_to_be_unsent_is_full_until_the_lane_says_otherwise() {
    let world = World::new();
    let (end, block) = (world.end(), world.block());
    let is_full = || block.requests.load(Ordering::Relaxed) & request::FULL != 0;
    block.low_water[1].store(1000, Ordering::Relaxed);
    assert_eq!((write(&end, &[1; 400]), is_full(), end.room()), (Ok(400), false, 3696));
    assert_eq!(
        (write(&end, &[1; 1000]), is_full(), end.room()),
        (Ok(1000), true, 0),
        "what was begun is filled"
    );
    let before = end.progress(BOTH);
    world.take();
    assert_eq!(write(&end, &[1; 1]), Err(WriteError::WouldBlock), "the lane knows what was sent");
    assert!(!end.readiness().has(Readiness::WRITABLE));
    block.requests.fetch_and(!request::FULL, Ordering::Relaxed);
    assert_ne!(end.progress(BOTH), before);
    assert!(end.readiness().has(Readiness::WRITABLE));
    assert_eq!((write(&end, &[1; 1000]), is_full()), (Ok(1000), true));
    block.low_water[1].store(0, Ordering::Relaxed);
    assert_eq!(
        (write(&end, &[1; 3000]), is_full()),
        (Ok(3000), true),
        "without a limit the word means nothing"
    );
}

#[test]
fn peeking_leaves_what_is_there() {
    let world = World::new();
    world.deliver(b"hello");
    let mut bytes = [0; 9];
    let peeked = world.end().read(&mut [IoSliceMut::new(&mut bytes)], true);
    assert_eq!((peeked, &bytes[..5]), (Ok((5, false)), &b"hello"[..]));
    assert_eq!(read(&world.end(), 9).unwrap(), b"hello");
}

#[test]
fn the_end_and_errors_come_after_the_bytes() {
    let world = World::new();
    let end = world.end();
    world.deliver(b"ab");
    world.block().tell(status::CLOSED | 104 << status::ERROR_SHIFT);
    world.block().tell(5 << status::ERROR_SHIFT);
    let ready = end.readiness();
    assert!(ready.has(Readiness::ERROR) && ready.has(Readiness::HANGUP) && ready.has(Readiness::READABLE));
    assert_eq!(read(&end, 2).unwrap(), b"ab");
    assert_eq!(read(&end, 2), Err(ReadError::Failed(104)), "the first error stays");
    assert_eq!(read(&end, 2).unwrap(), b"");
    assert_eq!(write(&end, b"x"), Err(WriteError::Closed));
}

#[test]
fn a_datagram_socket_that_the_daemon_has_ended_says_so_each_time() {
    let world = World::new();
    let end = world.end();
    let receive = || end.receive_record(std::iter::empty(), false);
    let down = rustix::io::Errno::NETDOWN.raw_os_error();
    world.block().tell(status::DATAGRAMS | status::CONNECTED | status::CLOSED | 103 << status::ERROR_SHIFT);
    assert_eq!(receive(), Err(ReadError::Failed(103)), "why, first of all");
    assert_eq!([receive(), receive()], [Err(ReadError::Failed(down)); 2]);
    assert_eq!(end.may_send(), Err(WriteError::Failed(down)));
    end.shut_read();
    assert_eq!(receive(), Ok(None), "that is the program's doing");
}

/// As in Linux: who reads finds the end that the peer has said, and who writes is told.
#[test]
fn an_error_after_the_peers_end_is_for_who_writes() {
    let world = World::new();
    let end = world.end();
    world.deliver(b"ab");
    world.block().tell(status::PEER_CLOSED | status::CLOSED | 32 << status::ERROR_SHIFT);
    assert_eq!(read(&end, 9).unwrap(), b"ab");
    assert_eq!(read(&end, 9).unwrap(), b"");
    assert!(end.readiness().has(Readiness::ERROR));
    assert_eq!(write(&end, b"x"), Err(WriteError::Failed(32)));
    end.put_back(32);
    end.put_back(104);
    assert_eq!((end.take_error(), end.take_error()), (32, 0), "the first that is put back stays");
}

#[test]
fn an_error_of_a_stream_that_stands_is_nothing_to_read_for_poll() {
    let world = World::new();
    let end = world.end();
    world.block().tell(113 << status::ERROR_SHIFT);
    let ready = end.readiness();
    assert!(ready.has(Readiness::ERROR) && !ready.has(Readiness::READABLE | Readiness::HANGUP));
    assert_eq!(read(&end, 2), Err(ReadError::Failed(113)));
    assert!(!end.readiness().has(Readiness::ERROR | Readiness::READABLE), "it is told once");
}

#[test]
fn without_storage_there_is_no_room_and_it_is_asked_for_once() {
    let world = World::new();
    let end = world.end();
    world.block().rings.one.state.fetch_and(!ATTACHED, Ordering::Relaxed);
    assert_eq!((write(&end, b"x"), end.room()), (Err(WriteError::WouldBlock), 0));
    assert!(end.asks_for_storage(), "a write that found none has not asked: nobody would kick");
    assert!(!end.asks_for_storage());
    assert_eq!(world.block().requests.load(Ordering::Relaxed), request::WANTS_STORAGE);
    assert!(!end.readiness().has(Readiness::WRITABLE));
    world.attach(&world.block().rings.one, 5);
    assert_eq!(write(&end, b"x"), Ok(1));
}

#[test]
fn shutting_is_told_and_kept() {
    let world = World::new();
    let end = world.end();
    end.shut_write();
    assert_eq!(world.block().requests.load(Ordering::Relaxed), request::SHUT_WRITE);
    assert_eq!(write(&end, b"x"), Err(WriteError::Closed));
    assert!(!end.readiness().has(Readiness::HANGUP));
    world.deliver(b"before");
    end.shut_read();
    assert_eq!(
        world.block().requests.load(Ordering::Relaxed),
        request::SHUT_WRITE | request::SHUT_READ,
        "what comes for nobody is the lane's to refuse"
    );
    world.deliver(b"late");
    assert_eq!(read(&end, 99).unwrap(), b"beforelate");
    assert_eq!(read(&end, 9).unwrap(), b"");
    assert!(end.readiness().has(Readiness::HANGUP));
    // An error is told before the end that one has made oneself.
    end.put_back(104);
    assert_eq!(read(&end, 9), Err(ReadError::Failed(104)));
    assert_eq!(read(&end, 9).unwrap(), b"");
}

#[test]
fn options_are_levels() {
    let world = World::new();
    let (end, requests) = (world.end(), &world.block().requests);
    end.set_option(request::NODELAY, true);
    assert_eq!(requests.load(Ordering::Relaxed), request::NODELAY | request::OPTIONS);
    end.set_option(request::NODELAY, false);
    assert_eq!(requests.load(Ordering::Relaxed), request::OPTIONS);
}

#[test]
fn a_lane_that_sleeps_needs_no_cpu() {
    let world = World::new();
    let inbox = world.arena.mapping().lane(0).unwrap();
    assert_eq!([inbox.last_on(), inbox.awake_on()], [None; 2], "it has not said where it is");
    inbox.is_on(6);
    assert_eq!([inbox.last_on(), inbox.awake_on()], [Some(6); 2]);
    assert!(inbox.fall_asleep());
    assert_eq!([inbox.last_on(), inbox.awake_on()], [Some(6), None]);
    inbox.wake_up();
    assert_eq!(inbox.awake_on(), Some(6));
}

#[test]
fn a_kick_reaches_the_lane_and_rings_only_a_sleeper() {
    let world = World::new();
    let inbox = world.arena.mapping().lane(0).unwrap();
    let kick = |cpu: u16| {
        let mut rung = Vec::new();
        world.end().kick(cpu, |lane| {
            rung.push(lane);
            lane == 0 && cpu != 1
        });
        rung
    };
    assert_eq!((inbox.last_told_on(), kick(6)), (None, vec![]));
    assert_eq!((inbox.news.take_word(), inbox.news.take_word()), (Some((0, 1 << 3)), None));
    assert!(inbox.fall_asleep());
    assert_eq!((inbox.last_told_on(), kick(1), inbox.last_told_on()), (Some(6), vec![0], Some(1)));
    assert_eq!(
        [kick(0), kick(0)],
        [vec![0], vec![]],
        "one who could not ring leaves it to the next, who does"
    );
    world.block().rings.margin[margin::PLACE].store(9, Ordering::Relaxed);
    assert_eq!(kick(0), [0; 0], "no such lane");
}

#[test]
fn both_know_on_which_cpu_the_other_was() {
    let world = World::new();
    let inbox = world.arena.mapping().lane(0).unwrap();
    assert!(!world.end().has_lane_on(0), "it has said nothing");
    inbox.is_on(0);
    assert!(world.end().has_lane_on(0) && !world.end().has_lane_on(1));
    inbox.is_on(u16::MAX);
    assert!(world.end().has_lane_on(u16::MAX));
    world.block().rings.margin[margin::PLACE].store(9, Ordering::Relaxed);
    assert!(!world.end().has_lane_on(u16::MAX), "no such lane");
}

#[test]
fn who_dies_inside_is_buried_and_the_next_goes_on() {
    let world = World::new();
    let other = StreamEnd::new(&world.program, 3, Holder::new(2, 1)).unwrap();
    let block = world.block();
    core::mem::forget(Inside::enter(&block.send_owner, ME).unwrap());
    core::mem::forget(Inside::enter(&block.recv_owner, ME).unwrap());
    core::mem::forget(Held::take(&block.rings.one.state).unwrap());
    assert_eq!(write(&world.end(), b"x"), Err(WriteError::Busy(Busy::Myself)));
    block.bury(2);
    assert_eq!(write(&other, b"x"), Err(WriteError::Busy(Busy::Other(ME))));
    let epoch = block.rings.one.state.load(Ordering::Relaxed) & !(EPOCH - 1);
    block.bury(1);
    let state = block.rings.one.state.load(Ordering::Relaxed);
    assert_eq!((state & HELD, state & !(EPOCH - 1)), (0, epoch + EPOCH));
    assert_eq!(write(&other, b"x"), Ok(1));
    world.deliver(b"y");
    assert_eq!(read(&other, 1).unwrap(), b"y");
}

#[test]
fn waiting_ends_with_the_bytes() {
    let world = World::new();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut spin = Spin::new(2);
            let end = world.end();
            while end.wait(Readiness::READABLE, Duration::from_secs(1), &mut spin) != Woken::Ready {}
            read(&end, 10).unwrap()
        });
        std::thread::sleep(Duration::from_millis(20));
        world.deliver(b"at last");
        world.block().wake();
        assert_eq!(reader.join().unwrap(), b"at last");
    });
}

impl World {
    /// The lane brings text whose last byte is urgent, as it does: the mark first.
    fn deliver_urgent(&self, bytes: &[u8]) {
        let tail = self.block().rings.two.tail.load(Ordering::Relaxed);
        self.announce(tail + bytes.len() as u64);
        self.deliver(bytes);
    }

    fn announce(&self, mark: u64) {
        self.block().rings.margin[margin::MARK].store(mark, Ordering::Release);
    }
}

/// At the mark; bytes for FIONREAD; readable and urgent for poll(2).
fn seen(end: &StreamEnd<'_>) -> (bool, usize, bool, bool) {
    let ready = end.readiness();
    (end.is_at_mark(), end.unread(), ready.has(Readiness::READABLE), ready.has(Readiness::URGENT))
}

#[test]
fn an_urgent_byte_is_read_apart_or_left_out() {
    let world = World::new();
    let end = world.end();
    assert_eq!(end.read_urgent(false), Err(UrgentError::Nothing));
    world.deliver_urgent(b"abC");
    world.deliver(b"de");
    assert_eq!((seen(&end), end.ends_at_mark()), ((false, 2, true, true), true));
    assert_eq!(read(&end, 9).unwrap(), b"ab");
    assert_eq!(seen(&end), (true, 0, true, true));
    assert_eq!((end.read_urgent(true), end.read_urgent(false)), (Ok(b'C'), Ok(b'C')));
    assert_eq!((end.read_urgent(false), seen(&end)), (Err(UrgentError::Nothing), (true, 0, true, false)));
    assert_eq!((read(&end, 9).unwrap(), seen(&end)), (b"de".to_vec(), (false, 0, false, false)));
    world.deliver_urgent(b"F");
    assert_eq!(seen(&end), (true, 0, false, true), "there is nothing but the byte that is left out");
    assert_eq!(read(&end, 9), Err(ReadError::WouldBlock));
    assert_eq!(end.read_urgent(false), Err(UrgentError::Nothing), "it was passed");
}

#[test]
fn an_urgent_byte_that_has_not_come_is_waited_for() {
    let world = World::new();
    let end = world.end();
    world.announce(3);
    world.deliver(b"ab");
    assert_eq!((seen(&end), end.read_urgent(false)), ((false, 2, true, false), Err(UrgentError::NotYet)));
    assert_eq!(read(&end, 9).unwrap(), b"ab");
    assert!(end.is_at_mark() && !end.has_urgent() && !end.is_before_urgent());
    world.block().tell(status::PEER_CLOSED);
    assert_eq!(end.read_urgent(false), Err(UrgentError::Ended));
    assert_eq!(read(&end, 9).unwrap(), b"", "the end");
}

#[test]
fn inline_a_read_ends_before_the_urgent_byte_and_begins_with_it() {
    let world = World::new();
    let end = world.end();
    world.block().file.fetch_or(crate::layout::OOB_INLINE, Ordering::Relaxed);
    world.deliver_urgent(b"abC");
    world.deliver(b"de");
    assert_eq!((seen(&end), end.read_urgent(false)), ((false, 5, true, true), Err(UrgentError::Nothing)));
    assert_eq!(read(&end, 9).unwrap(), b"ab");
    assert_eq!(seen(&end), (true, 3, true, true));
    assert_eq!((read(&end, 9).unwrap(), seen(&end)), (b"Cde".to_vec(), (false, 0, false, false)));
}

#[test]
fn a_new_mark_makes_the_old_byte_text_unless_the_reader_stands_there() {
    let world = World::new();
    let end = world.end();
    world.deliver_urgent(b"aB");
    assert_eq!(end.read_urgent(false), Ok(b'B'));
    world.deliver_urgent(b"cD");
    assert_eq!(
        (end.unread_in_all(), end.unread_with_end()),
        (4, 4),
        "as for SO_RCVLOWAT and TCP_INQ in Linux"
    );
    assert_eq!((end.unread(), read(&end, 9).unwrap()), (3, b"aBc".to_vec()), "as in Linux");
    assert!(end.is_before_urgent() && end.unread_in_all() == 0, "the urgent byte is the next one");
    assert_eq!(end.unread_with_end(), 1);
    assert_eq!(seen(&end), (true, 0, false, true));
    world.deliver_urgent(b"eF");
    assert_eq!(seen(&end), (false, 1, true, true));
    let mut byte = [0];
    assert_eq!(end.read(&mut [IoSliceMut::new(&mut byte)], true), Ok((1, false)));
    assert_eq!((byte, read(&end, 9).unwrap()), (*b"e", b"e".to_vec()), "the byte before it is left out");
    assert_eq!((end.read_urgent(false), read(&end, 9)), (Ok(b'F'), Err(ReadError::WouldBlock)));
}

#[test]
fn the_lane_knows_the_mark_before_it_sees_the_byte() {
    let world = World::new();
    let end = world.end();
    let mut told = Vec::new();
    let mut urgent = |bytes: &[u8], answer| {
        let announce = |mark| {
            told.push((mark, world.take().len()));
            answer
        };
        end.write_urgent(&[IoSlice::new(bytes)], announce)
    };
    assert_eq!(urgent(b"abc", Ok(())), Ok(3));
    assert_eq!(urgent(b"", Ok(())), Ok(0));
    assert_eq!(urgent(b"d", Err(32)), Err(WriteError::Failed(32)), "then nothing is written");
    assert_eq!(urgent(b"e", Ok(())), Ok(1));
    assert_eq!((world.take(), told), (b"e".to_vec(), vec![(3, 0), (4, 3), (4, 0)]));
    assert_eq!(world.block().rings.one.state.load(Ordering::Relaxed) & HELD, 0);
}

#[test]
fn a_deferred_connection_begins_once_and_with_what_has_room() {
    let arena = Arena::create(LAYOUT, 1).unwrap();
    let program = Mapping::attach(&arena).unwrap().0;
    let world = World { arena, program };
    let (end, block) = (world.end(), world.block());
    block.capacity.iter().for_each(|word| word.store(PAGE as u32, Ordering::Relaxed));
    let asks = || block.requests.load(Ordering::Relaxed) & request::CONNECT != 0;
    assert!(!end.is_deferred() && end.begin_early(&[IoSlice::new(b"text")]).is_none() && !asks());
    // Without storage it begins without text.
    block.file.fetch_or(DEFERRED, Ordering::Relaxed);
    assert!(end.is_deferred() && end.readiness() == Readiness(Readiness::WRITABLE));
    assert_eq!((end.begin_early(&[IoSlice::new(b"text")]), asks()), (Some(0), true));
    block.requests.store(0, Ordering::Relaxed);
    world.attach(&block.rings.one, 0);
    block.file.fetch_or(DEFERRED, Ordering::Relaxed);
    assert_eq!(write(&end, b"text"), Err(WriteError::WouldBlock), "there is no connection");
    let text: Vec<u8> = (0..5000).map(|n| n as u8).collect();
    let (a, b) = text.split_at(700);
    assert_eq!((end.begin_early(&[IoSlice::new(a), IoSlice::new(b)]), asks()), (Some(PAGE as usize), true));
    assert_eq!((end.begin_early(&[IoSlice::new(b"more")]), end.readiness()), (None, Readiness(0)));
    assert_eq!(world.take(), text[..PAGE as usize]);
}
