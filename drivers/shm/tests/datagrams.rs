//! The program's side of a datagram socket against the lane's, over one arena.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use firelane_frame::{Envelope, RECORD_BYTES, RingArena, byte_rings_in};
use firelane_shm::layout::status;
use firelane_shm::{Arena, Holder, Layout, ReadError, StreamEnd, WriteError};

const BYTES: usize = 1 << 16;

fn arena() -> Arena {
    Arena::create(Layout { lanes: 1, blocks: 16, storage_bytes: 1 << 24 }, 7).unwrap()
}

fn end(arena: &Arena, block: u32) -> StreamEnd<'_> {
    let end = StreamEnd::new(arena.mapping(), block, Holder::new(1, 1)).unwrap();
    end.block().capacity.iter().for_each(|word| word.store(BYTES as u32, Ordering::Relaxed));
    end.block().tell(status::CONNECTED);
    end
}

fn envelope(port: u16) -> Envelope {
    Envelope { tos: Some(3), segment: 9, ..Envelope::to(([10, 0, 0, 1], port).into()) }
}

#[test]
fn records_cross_whole_and_in_order_as_often_as_the_ring_goes_round() {
    let arena = arena();
    let rings: &Arc<RingArena> = arena.rings();
    let (hold, (mut to_program, mut from_program)) = byte_rings_in(rings, BYTES, BYTES).unwrap();
    let program = end(&arena, hold.far().unwrap().block());
    assert_eq!(
        program.send_record(&envelope(1), 1, [&b"x"[..]].into_iter()),
        Err(WriteError::WouldBlock),
        "no storage"
    );
    assert!(from_program.attach_far());
    for round in 0..200u16 {
        let payload: Vec<u8> = (0..usize::from(round) * 37).map(|n| (n + usize::from(round)) as u8).collect();
        let (one, two) = payload.split_at(payload.len() / 3);
        program.send_record(&envelope(round), payload.len(), [one, two].into_iter()).unwrap();
        let mut record = vec![0; RECORD_BYTES + payload.len()];
        assert_eq!(from_program.read(&mut record), record.len());
        assert_eq!(Envelope::decode(record.first_chunk().unwrap()), (envelope(round), payload.len()));
        assert_eq!(record[RECORD_BYTES..], payload);
        // And back, where the program has less room.
        assert!(to_program.claim() >= record.len());
        to_program.write(&record);
        let (mut first, mut second) = (vec![0; payload.len() / 4], vec![0; payload.len() / 4]);
        for peek in [true, false] {
            let pieces = [&mut first[..], &mut second[..]].into_iter();
            let got = program.receive_record(pieces, peek).unwrap().unwrap();
            assert_eq!(
                (got.envelope, got.len, got.copied),
                (envelope(round), payload.len(), payload.len() / 4 * 2)
            );
            assert_eq!([&first[..], &second].concat(), payload[..got.copied]);
        }
        assert_eq!(program.receive_record([].into_iter(), false), Err(ReadError::WouldBlock));
    }
}

#[test]
fn a_record_without_room_is_not_begun_and_errors_come_first() {
    let arena = arena();
    let (hold, (mut to_program, mut from_program)) = byte_rings_in(arena.rings(), BYTES, BYTES).unwrap();
    let program = end(&arena, hold.far().unwrap().block());
    from_program.attach_far();
    let payload = vec![1; 40_000];
    assert_eq!(program.send_record(&envelope(1), payload.len(), [&payload[..]].into_iter()), Ok(()));
    assert_eq!(
        program.send_record(&envelope(1), payload.len(), [&payload[..]].into_iter()),
        Err(WriteError::WouldBlock)
    );
    assert_eq!(from_program.available(), RECORD_BYTES + payload.len());
    assert_eq!(
        program.send_record(&envelope(1), 65_508, [].into_iter()),
        Err(WriteError::Failed(90)),
        "EMSGSIZE"
    );
    to_program.claim();
    to_program.write(&[&envelope(1).encode(2)[..], b"ab"].concat());
    program.block().tell(111 << status::ERROR_SHIFT);
    assert_eq!(program.receive_record([].into_iter(), false), Err(ReadError::Failed(111)), "as in Linux");
    assert_eq!(program.receive_record([].into_iter(), false).unwrap().unwrap().len, 2);
    program.block().tell(111 << status::ERROR_SHIFT);
    assert_eq!(program.send_record(&envelope(1), 0, [].into_iter()), Err(WriteError::Failed(111)));
}

/// As in Linux: a datagram may be longer than SO_SNDBUF, and what follows waits until there is any room of that.
#[test]
fn a_datagram_is_sent_whole_by_who_has_any_of_its_buffer_left() {
    let arena = arena();
    let (hold, (_, mut from_program)) = byte_rings_in(arena.rings(), 2 * BYTES, BYTES).unwrap();
    let program = end(&arena, hold.far().unwrap().block());
    program.block().capacity[0].store(2_304, Ordering::Relaxed);
    from_program.attach_far();
    let payload = vec![1; 60_000];
    let send = |len: usize| program.send_record(&envelope(1), len, [&payload[..len]].into_iter());
    for len in [60_000, 5_000, 2_304] {
        assert_eq!((send(len), send(0)), (Ok(()), Err(WriteError::WouldBlock)), "{len}");
        from_program.release(RECORD_BYTES + len);
    }
    assert_eq!((send(1_000), send(60_000), send(0)), (Ok(()), Ok(()), Err(WriteError::WouldBlock)));
}
