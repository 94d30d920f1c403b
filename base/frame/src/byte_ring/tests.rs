//! Tests of the byte ring: a model of the stream, and threads that attach and detach.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::thread;

/// The byte that belongs at a cursor, so that misplaced bytes show.
fn byte_at(cursor: u64) -> u8 {
    (cursor as u8).wrapping_mul(31) ^ (cursor >> 8) as u8
}

fn bytes_at(cursor: u64, len: usize) -> Vec<u8> {
    (cursor..cursor + len as u64).map(byte_at).collect()
}

proptest! {
    #[test]
    fn behaves_as_a_bounded_deque(
        capacity in 1usize..200,
        steps in prop::collection::vec((0u8..7, 0usize..150), 0..200),
    ) {
        let (mut writer, mut reader) = byte_ring(capacity);
        let mut model: VecDeque<u8> = VecDeque::new();
        for (step, n) in steps {
            match step {
                0 | 1 => {
                    let count = writer.write(&bytes_at(writer.cursor(), n));
                    prop_assert_eq!(count, n.min(capacity - model.len()));
                    model.extend(bytes_at(writer.cursor() - count as u64, count));
                }
                2 => {
                    let mut bytes = vec![0; n];
                    let count = reader.read(&mut bytes);
                    let expected: Vec<u8> = model.drain(..n.min(model.len())).collect();
                    prop_assert_eq!(&bytes[..count], &expected[..]);
                }
                3 => {
                    let from = n.min(model.len());
                    let (a, b) = reader.peek_at(reader.cursor() + from as u64, n);
                    let expected: Vec<u8> = model.iter().copied().skip(from).take(n).collect();
                    prop_assert_eq!([a, b].concat(), expected);
                }
                4 => {
                    let count = n.min(model.len());
                    reader.release(count);
                    model.drain(..count);
                }
                5 => {
                    let (attached, empty) = (reader.attached_bytes() > 0, model.is_empty());
                    prop_assert_eq!(reader.detach_if_empty(), attached && empty);
                }
                _ => {
                    let (attached, empty) = (writer.attached_bytes() > 0, model.is_empty());
                    prop_assert_eq!(writer.detach_if_empty(), attached && empty);
                }
            }
            prop_assert_eq!(reader.available(), model.len());
            prop_assert_eq!(writer.free(), capacity - model.len());
            prop_assert_eq!(writer.cursor() - reader.cursor(), model.len() as u64);
        }
    }

    #[test]
    fn pieces_in_any_order_make_the_stream(
        order in Just((0..16u64).collect::<Vec<_>>()).prop_shuffle(),
        start in 0usize..100,
    ) {
        let (mut writer, mut reader) = byte_ring(128);
        writer.write(&vec![0; start]);
        reader.release(start);
        let base = writer.cursor();
        for piece in order {
            let cursor = base + piece * 8;
            prop_assert_eq!(writer.write_at(cursor, &bytes_at(cursor, 8)), 8);
            prop_assert!(!reader.detach_if_empty() && !writer.detach_if_empty());
        }
        prop_assert_eq!(writer.ahead(), base + 128);
        prop_assert_eq!(writer.write_at(base + 128, &[1]), 0, "beyond the capacity");
        writer.advance(128);
        let mut got = [0; 128];
        prop_assert_eq!(reader.read(&mut got), 128);
        prop_assert_eq!(got.to_vec(), bytes_at(base, 128));
        prop_assert!(reader.detach_if_empty());
    }
}

#[test]
fn storage_comes_with_the_first_byte_and_goes_with_the_last() {
    let (mut writer, mut reader) = byte_ring(100_000);
    assert_eq!((writer.attached_bytes(), writer.free()), (0, 100_000));
    assert!(!reader.detach_if_empty());
    assert_eq!(writer.write(&[]), 0);
    assert_eq!(writer.attached_bytes(), 0, "an empty write attaches nothing");
    writer.write(b"x");
    assert_eq!(reader.attached_bytes(), 131_072);
    assert!(!reader.detach_if_empty() && !writer.detach_if_empty());
    reader.release(1);
    assert!(reader.detach_if_empty() && !writer.detach_if_empty());
    assert_eq!(reader.attached_bytes(), 0);
    writer.write(b"y");
    assert_eq!((reader.cursor(), reader.peek_at(1, 9).0), (1, &b"y"[..]));
}

proptest! {
    /// The reader may let a ring grow at any time: the stream stays what it was, and all of the storage is room.
    #[test]
    fn growing_changes_nothing_but_the_room(
        capacity in 1usize..200,
        steps in prop::collection::vec((0u8..4, 0usize..600), 0..100),
    ) {
        let (mut writer, mut reader) = byte_ring(capacity);
        let (mut limit, mut model) = (capacity, VecDeque::new());
        for (step, n) in steps {
            match step {
                0 => {
                    let count = writer.write(&bytes_at(writer.cursor(), n));
                    prop_assert_eq!(count, n.min(limit - model.len()));
                    model.extend(bytes_at(writer.cursor() - count as u64, count));
                }
                1 => {
                    let mut bytes = vec![0; n];
                    let count = reader.read(&mut bytes);
                    let expected: Vec<u8> = model.drain(..n.min(model.len())).collect();
                    prop_assert_eq!(&bytes[..count], &expected[..]);
                }
                2 => {
                    let before = reader.attached_bytes();
                    let grows = before > 0 && before < n.next_power_of_two();
                    prop_assert_eq!(reader.grow(n), grows);
                    limit = if grows { n.next_power_of_two() } else { limit };
                }
                _ => {
                    if reader.detach_if_empty() {
                        limit = capacity;
                    }
                }
            }
            prop_assert_eq!((writer.free(), reader.available()), (limit - model.len(), model.len()));
        }
    }
}

#[test]
fn a_ring_grows_between_threads_and_loses_nothing() {
    const BYTES: u64 = 3_000_000;
    let (mut writer, mut reader) = byte_ring(1000);
    let sender = thread::spawn(move || {
        while writer.cursor() < BYTES {
            let left = (BYTES - writer.cursor()).min(777) as usize;
            if writer.write(&bytes_at(writer.cursor(), left)) == 0 {
                thread::yield_now();
            }
        }
    });
    let (mut bytes, mut grown, mut capacity) = (vec![0; 500], 0, 1024);
    while reader.cursor() < BYTES {
        let cursor = reader.cursor();
        let count = reader.read(&mut bytes);
        assert_eq!(bytes[..count], bytes_at(cursor, count)[..]);
        // Now and then it begins again with what it was made for.
        if reader.detach_if_empty() {
            capacity = 1024;
        } else if capacity < 1 << 16 && reader.grow(2 * capacity) {
            (grown, capacity) = (grown + 1, 2 * capacity);
        }
        if count == 0 {
            thread::yield_now();
        }
    }
    sender.join().unwrap();
    assert!(grown > 0, "it was in use");
}

#[test]
fn a_larger_capacity_waits_until_the_ring_is_empty() {
    let (mut writer, mut reader) = byte_ring(64);
    assert!(writer.set_capacity(128), "nothing is attached");
    writer.write(&[7; 100]);
    assert!(!writer.set_capacity(1000));
    assert_eq!((writer.capacity(), writer.free()), (1000, 28));
    reader.release(100);
    assert_eq!(writer.free(), 1000);
    assert_eq!(writer.write(&bytes_at(100, 2000)), 1000);
    let mut got = vec![0; 1000];
    reader.read(&mut got);
    assert_eq!(got, bytes_at(100, 1000));
    assert!(writer.set_capacity(10));
    writer.write(&[1; 5]);
    assert!(writer.set_capacity(3));
    assert_eq!(writer.free(), 0, "a smaller capacity leaves no room, and takes nothing away");
}

#[test]
fn what_was_published_outlives_the_writer_and_the_rest_does_not() {
    let (mut writer, mut reader) = byte_ring(64);
    writer.write(b"last");
    writer.write_at(10, b"never published");
    drop(writer);
    let mut got = [0; 10];
    assert_eq!(reader.read(&mut got), 4);
    assert!(reader.detach_if_empty(), "unpublished bytes went with the writer");
}

#[test]
fn two_rings_of_one_block_do_not_meet() {
    let ((mut to, mut from), (mut back, mut forth)) = byte_rings(100, 30);
    assert_eq!((to.capacity(), back.capacity()), (100, 30));
    assert_eq!((to.write(b"there"), back.write(b"and back")), (5, 8));
    assert_eq!((to.attached_bytes(), forth.attached_bytes(), back.attached_bytes()), (128, 128, 64));
    let mut got = [0; 10];
    assert_eq!((forth.read(&mut got), &got[..5]), (5, &b"there"[..]));
    assert!(forth.detach_if_empty() && !from.detach_if_empty());
    assert_eq!((from.read(&mut got), &got[..8]), (8, &b"and back"[..]));
    assert_eq!((to.unread(), back.unread()), (0, 0));
}

#[test]
fn both_parties_see_one_margin_and_it_outlives_them() {
    let ((to, from), (back, forth)) = byte_rings(1, 1);
    let kept = to.margin_ref();
    to.margin()[7].store(9, Ordering::Relaxed);
    let seen = [from.margin(), back.margin(), forth.margin()].map(|margin| margin[7].load(Ordering::Relaxed));
    assert_eq!(seen, [9; 3]);
    drop((to, from, back, forth));
    assert_eq!(kept[7].load(Ordering::Relaxed), 9);
}

#[test]
#[should_panic(expected = "advance past")]
fn nothing_can_be_published_that_was_not_written() {
    let (mut writer, _reader) = byte_ring(64);
    writer.write_at(0, &[1, 2]);
    writer.advance(3);
}

#[test]
#[should_panic(expected = "release past")]
fn nothing_can_be_released_that_was_not_published() {
    let (mut writer, mut reader) = byte_ring(64);
    writer.write(&[1, 2]);
    reader.release(3);
}

#[test]
fn a_stream_between_threads_survives_constant_detaching() {
    const TOTAL: u64 = 2_000_000;
    let (mut writer, mut reader) = byte_ring(1 << 12);
    let sender = thread::spawn(move || {
        let mut step = 1;
        while writer.cursor() < TOTAL {
            let left = (TOTAL - writer.cursor()) as usize;
            step = step * 7 % 1009 + 1;
            if writer.write(&bytes_at(writer.cursor(), step.min(left))) == 0 {
                thread::yield_now();
            }
            if step % 5 == 0 {
                writer.detach_if_empty();
            }
        }
    });
    let mut bytes = vec![0; 1500];
    let mut detached = 0u32;
    while reader.cursor() < TOTAL {
        let from = reader.cursor();
        let count = reader.read(&mut bytes);
        assert_eq!(bytes[..count], bytes_at(from, count));
        if count == 0 {
            detached += u32::from(reader.detach_if_empty());
            thread::yield_now();
        }
    }
    sender.join().unwrap();
    assert!(detached > 0, "the test must meet its case");
    assert_eq!(reader.available(), 0);
}

/// Where the next byte lies.
fn place(reader: &RingReader) -> *const u8 {
    reader.peek_at(reader.cursor(), 1).0.as_ptr()
}

#[test]
fn an_emptied_ring_begins_again_at_the_begin_of_its_storage() {
    let (mut writer, mut reader) = byte_ring(1 << 16);
    writer.write(&[1; 100]);
    let begin = place(&reader);
    for round in 2..200u8 {
        let count = reader.available();
        let mut bytes = vec![0; count];
        assert_eq!((reader.read(&mut bytes), bytes.iter().all(|&b| b == round - 1)), (count, true));
        assert_eq!(writer.write(&[round; 100]), 100);
        // A cursor keeps its place within a cache line.
        assert_eq!(place(&reader), begin.wrapping_add(reader.cursor() as usize % 64), "in round {round}");
    }
    // With bytes in it, or ahead of it, it goes on behind them.
    writer.write(&[200; 50]);
    let next = place(&reader).wrapping_add(100);
    let mut bytes = [0; 150];
    assert_eq!(reader.read(&mut bytes[..100]), 100);
    assert_eq!((reader.available(), place(&reader)), (50, next));
    assert_eq!(writer.write_at(writer.cursor() + 10, &[2; 10]), 10);
    assert_eq!(reader.read(&mut bytes), 50);
    assert_eq!(writer.write(&[1; 10]), 10);
    writer.advance(10);
    assert_eq!((reader.read(&mut bytes), &bytes[..20]), (20, [[1; 10], [2; 10]].as_flattened()));
}

/// Rings that carry little touch one page each, and not all of them the same line of it.
#[test]
fn emptied_rings_lie_apart_in_a_cache() {
    let rings: Vec<_> = (0..8)
        .map(|_| {
            let (mut writer, mut reader) = byte_ring(1 << 18);
            let mut begins = || {
                assert_eq!(writer.write(b"text"), 4);
                let begin = reader.peek_at(reader.cursor(), 4).0.as_ptr().addr() % 4096;
                reader.release(4);
                begin / 64
            };
            let first = begins();
            assert!((0..100).all(|_| begins() == first), "an emptied ring begins where it began");
            (first, writer, reader)
        })
        .collect();
    let lines: std::collections::HashSet<_> = rings.iter().map(|(first, ..)| first).collect();
    assert!(lines.len() > 1, "{lines:?}");
}
