//! TIME-WAIT against RFC 9293, 1337 and 6191 by table, and the wheel against a map of deadlines.

use super::*;
use firelane_wire::{Ecn, TcpOptions};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn tuple(port: u16) -> Tuple {
    Tuple::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], port).into())
}

fn record(port: u16) -> TimeWaitRecord {
    TimeWaitRecord {
        tuple: tuple(port),
        snd_nxt: SeqNum(1000),
        rcv_nxt: SeqNum(2000),
        recent: 50,
        clock: TimestampClock::from_offset(0),
        window: 9,
        has_timestamps: true,
    }
}

fn seg(seq: u32, flags: TcpFlags, value: Option<u32>) -> SegmentIn<'static> {
    SegmentIn {
        seq: SeqNum(seq),
        ack: flags.contains(TcpFlags::ACK).then_some(SeqNum(1000)),
        flags,
        window: 0,
        urgent: 0,
        options: TcpOptions { timestamps: value.map(|value| (value, 0)), ..TcpOptions::EMPTY },
        payload: &[],
        ecn: Ecn::NotCapable,
    }
}

fn table() -> TimeWaitTable {
    TimeWaitTable::new([5; 16], Duration::from_secs(60), 100)
}

fn at(secs: u64) -> Instant {
    Instant::from_secs(1000 + secs)
}

/// A record of one of 100,000 peers, of both families and with two addresses of ours.
fn far_record(n: u32) -> TimeWaitRecord {
    let port = 1024 + (n / 4) as u16;
    let [local, remote]: [std::net::SocketAddr; 2] = match n % 4 {
        0 => [([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], port).into()],
        1 => [([10, 0, 0, 9], 80).into(), ([10, 0, 0, 2], port).into()],
        2 => [([10, 0, 0, 1], 81).into(), ([10, 0, 0, 2], port).into()],
        _ => ["[fd00::1]:80".parse().unwrap(), (std::net::Ipv6Addr::from(7), port).into()],
    };
    TimeWaitRecord { tuple: Tuple::new(local, remote), ..record(0) }
}

#[test]
fn a_record_takes_at_most_64_bytes_with_its_index_and_all_memory_comes_back() {
    let mut table = TimeWaitTable::new([5; 16], Duration::from_secs(60), 600_000);
    let empty = table.allocated_bytes();
    let mut records = 0;
    for n in 0..200_000 {
        assert!(table.insert(at(0), far_record(n)));
        records += 1;
        if records >= 10_000 {
            let bytes = table.allocated_bytes();
            assert!(bytes <= records * 64, "{bytes} bytes for {records}");
        }
    }
    for n in (0..200_000).step_by(977) {
        let known = table.on_segment(at(1), &far_record(n).tuple, &seg(2000, TcpFlags::ACK, Some(50)), true);
        assert_ne!(known, TimeWaitAnswer::Unknown);
    }
    for _ in 0..200_000 / AT_ONCE + 1 {
        assert!(table.poll_at().is_some_and(|due| due <= at(62)));
        table.on_timer(at(62));
    }
    assert_eq!((table.len(), table.allocated_bytes()), (0, empty));
}

/// A lane that closed many connections in one second goes on with others when that second's records end.
#[test]
fn what_ends_together_is_forgotten_bit_by_bit() {
    let mut table = TimeWaitTable::new([5; 16], Duration::from_secs(60), 600_000);
    let many = 3 * AT_ONCE as u32;
    assert!((0..many).all(|n| table.insert(at(0), far_record(n))));
    table.on_timer(at(62));
    assert_eq!(table.len(), 2 * AT_ONCE);
    // Who comes meanwhile stays, in whatever place.
    assert!((0..10).all(|n| table.insert(at(62), far_record(many + n))));
    (0..2).for_each(|_| table.on_timer(at(62)));
    assert_eq!((table.len(), table.poll_at().map(|due| due > at(120))), (10, Some(true)));
    (0..4).for_each(|_| table.on_timer(at(124)));
    assert!(table.is_empty());
}

/// An index that grows again and again still finds everybody, and nobody who was forgotten.
#[test]
fn growth_keeps_who_is_there_and_only_him() {
    let mut table = TimeWaitTable::new([5; 16], Duration::from_secs(60), 600_000);
    let syn = seg(3000, TcpFlags::SYN, None);
    for n in 0..50_000 {
        assert!(table.insert(at(0), far_record(n)));
        if n % 3 == 0 {
            let answer = table.on_segment(at(0), &far_record(n).tuple, &syn, true);
            assert!(matches!(answer, TimeWaitAnswer::Reuse { .. }));
        }
    }
    let ack = seg(2000, TcpFlags::ACK, Some(50));
    for n in 0..50_000 {
        let known = table.on_segment(at(0), &far_record(n).tuple, &ack, true) != TimeWaitAnswer::Unknown;
        assert_eq!(known, n % 3 != 0, "{n}");
    }
}

/// What an index says of an entry's distance is so, also after others before it were taken out, and of some it cannot say it.
#[test]
fn every_entry_knows_how_far_from_home_it_is() {
    let mut table = TimeWaitTable::new([5; 16], Duration::from_secs(60), 600_000);
    let syn = seg(3000, TcpFlags::SYN, None);
    let mut far = 0;
    for n in 0..49_152 {
        assert!(table.insert(at(0), far_record(n)));
    }
    for gone in [5, 3, 2] {
        for (slot, entry) in table.index.iter().enumerate().filter(|(_, entry)| **entry != Slot::EMPTY) {
            let home = table.home(table.hash.of(&table.tuple_at(entry.position() as u32)));
            let distance = slot.wrapping_sub(home) & (table.index.len() - 1);
            assert_eq!(entry.distance(), (distance < Slot::FAR).then_some(distance));
            far += usize::from(distance >= Slot::FAR);
        }
        for n in (0..49_152).step_by(gone) {
            let _ = table.on_segment(at(0), &far_record(n).tuple, &syn, true);
        }
    }
    assert!(far > 0);
}

/// RFC 6191: pairs that are used again at once, over and over, take no more places than there are pairs.
#[test]
fn who_is_reused_leaves_its_place() {
    let mut table = table();
    for round in 0..50 {
        table.on_timer(at(round));
        for port in 0..100 {
            assert!(table.insert(at(round), record(port)));
        }
        for port in 0..99 {
            let syn = seg(3000, TcpFlags::SYN, None);
            let answer = table.on_segment(at(round), &tuple(port), &syn, true);
            assert!(matches!(answer, TimeWaitAnswer::Reuse { .. }));
        }
    }
    assert_eq!((table.len(), table.places.len()), (1, 100));
    // What came last ends when its own time is up.
    table.on_timer(at(49 + 59));
    assert_eq!(table.len(), 1);
    table.on_timer(at(49 + 61));
    assert!(table.is_empty());
}

/// R07: our own program gets the tuple again after a second if both ends use timestamps, else after the whole time.
#[test]
fn r07_the_tuple_is_ours_again_after_a_second_with_timestamps() {
    let after = Reopening::After(SeqNum(1000) + INCARNATIONS_APART);
    for (has_timestamps, secs, answer) in [
        (true, 0, Reopening::Waits),
        (true, 2, after),
        (false, 2, Reopening::Waits),
        (false, 59, Reopening::Waits),
        (false, 62, Reopening::Free),
    ] {
        let mut table = table();
        assert_eq!(table.reopen(at(0), &tuple(1)), Reopening::Free);
        assert!(table.insert(at(0), TimeWaitRecord { has_timestamps, ..record(1) }));
        table.on_timer(at(secs));
        assert_eq!(table.reopen(at(secs), &tuple(1)), answer, "{has_timestamps} after {secs} s");
        let left = usize::from(answer == Reopening::Waits);
        assert_eq!(table.len(), left, "{has_timestamps} after {secs} s");
    }
}

/// RFC 9293 §3.10.7.4 in TIME-WAIT, RFC 1337 and RFC 6191.
#[test]
fn answers() {
    let (ack, fin, syn, rst) = (TcpFlags::ACK, TcpFlags::FIN, TcpFlags::SYN, TcpFlags::RST);
    for (seq, flags, value, answer) in [
        (1999, fin.with(ack), Some(50), "reply"),
        (2000, ack, Some(50), "drop"),
        (1990, ack, Some(50), "reply"),
        (2000, rst, None, "drop"),
        (2000, rst.with(ack), Some(60), "drop"),
        (5, syn, Some(51), "reuse"),
        (2001, syn, Some(50), "reuse"),
        (2000, syn, Some(50), "reply"),
        (2001, syn, Some(49), "reply"),
        (2001, syn, None, "reuse"),
        (1000, syn, None, "reply"),
        (2001, syn.with(ack), Some(51), "reply"),
    ] {
        let mut table = table();
        assert!(table.insert(at(0), record(1)));
        let said = match table.on_segment(at(1), &tuple(1), &seg(seq, flags, value), true) {
            TimeWaitAnswer::Unknown => "unknown",
            TimeWaitAnswer::Drop(_) => "drop",
            TimeWaitAnswer::Reply(out) => {
                assert_eq!((out.seq, out.ack, out.window), (SeqNum(1000), Some(SeqNum(2000)), 9));
                "reply"
            }
            TimeWaitAnswer::Reuse { least_iss } => {
                assert!(least_iss.after(SeqNum(1000)));
                assert!(table.is_empty());
                "reuse"
            }
        };
        assert_eq!(said, answer, "{seq} {flags:?} {value:?}");
    }
}

/// RFC 1337: a SYN that opens nothing is answered as anything else is, and the record stays for who repeats his FIN.
#[test]
fn where_nobody_listens_no_syn_ends_a_record() {
    let mut table = table();
    assert!(table.insert(at(0), record(1)));
    for value in [None, Some(51)] {
        let syn = seg(2001, TcpFlags::SYN, value);
        assert!(matches!(table.on_segment(at(1), &tuple(1), &syn, false), TimeWaitAnswer::Reply(_)));
    }
    assert!(matches!(
        table.on_segment(at(1), &tuple(1), &seg(2001, TcpFlags::SYN, None), true),
        TimeWaitAnswer::Reuse { .. }
    ));
}

#[test]
fn a_repeated_fin_restarts_the_time() {
    let mut table = table();
    table.insert(at(0), record(1));
    table.insert(at(0), record(2));
    let fin = seg(1999, TcpFlags::FIN.with(TcpFlags::ACK), Some(50));
    let elsewhere = seg(1900, TcpFlags::FIN.with(TcpFlags::ACK), Some(50));
    assert!(matches!(table.on_segment(at(50), &tuple(2), &elsewhere, true), TimeWaitAnswer::Reply(_)));
    assert!(matches!(table.on_segment(at(50), &tuple(1), &fin, true), TimeWaitAnswer::Reply(_)));
    table.on_timer(at(62));
    assert_eq!(table.len(), 1);
    assert!(matches!(table.on_segment(at(62), &tuple(2), &fin, true), TimeWaitAnswer::Unknown));
    table.on_timer(at(112));
    assert!(table.is_empty() && table.poll_at().is_none());
}

#[test]
fn beyond_the_limit_nothing_is_kept() {
    let mut table = TimeWaitTable::new([5; 16], Duration::from_secs(60), 2);
    assert!(table.insert(at(0), record(1)) && table.insert(at(0), record(2)));
    assert!(!table.insert(at(0), record(3)));
    assert!(table.insert(at(0), record(2)), "a newer one of the same tuple replaces it");
    assert_eq!(table.len(), 2);
}

proptest! {
    /// The wheel and its index against a map of deadlines.
    #[test]
    fn behaves_like_a_map_of_deadlines(steps in proptest::collection::vec((0u16..40, 0u64..30, 0u8..4), 1..300)) {
        let mut table = table();
        let mut model = BTreeMap::new();
        let mut now = at(0);
        for (port, pause, what) in steps {
            now += Duration::from_secs(pause);
            table.on_timer(now);
            model.retain(|_, ends| *ends + TICK > now);
            match what {
                0 | 1 => {
                    prop_assert!(table.insert(now, record(port)));
                    model.insert(port, now + Duration::from_secs(60));
                }
                2 => {
                    let syn = seg(3000, TcpFlags::SYN, None);
                    let reused = matches!(
                        table.on_segment(now, &tuple(port), &syn, true),
                        TimeWaitAnswer::Reuse { .. }
                    );
                    prop_assert_eq!(reused, model.remove(&port).is_some());
                }
                _ => {
                    let known = table.on_segment(now, &tuple(port), &seg(2000, TcpFlags::ACK, Some(50)), true);
                    prop_assert_eq!(known != TimeWaitAnswer::Unknown, model.contains_key(&port));
                }
            }
            prop_assert_eq!(table.len(), model.len());
            prop_assert_eq!(table.poll_at().is_some(), !model.is_empty());
        }
    }
}
