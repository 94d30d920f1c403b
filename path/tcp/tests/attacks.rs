//! Attacks on the sender's books and on keyed draws, by the names of the conformance list. What a whole netstack must show
//! stands in `proof/scripts/tests/attacks.rs`.

use core::ops::Range;
use core::time::Duration;

use firelane_tcp::ChallengeBudget;
use firelane_tcp::flight::{AckIn, Flight, FlightConfig};
use firelane_tcp::sent::RANGES_MAX;
use firelane_units::{Instant, Mss};

const START: Instant = Instant::from_secs(1_000);

/// A flight with `segments` of 88 bytes under way: the least MSS that a peer can bring about (CVE-2019-11479).
fn flight(segments: u64) -> Flight {
    let mut flight = Flight::new(&FlightConfig::default());
    flight.on_established(START, Mss::clamped(88), true, Some(Duration::from_millis(50)), false);
    for n in 0..segments {
        flight.on_sent(START, n * 88..(n + 1) * 88);
    }
    flight
}

fn acknowledge(flight: &mut Flight, at: Instant, ack: u64, sack: &[Range<u64>]) {
    flight.on_ack(at, &AckIn { ack, sack, echoed: None, duplicate: ack == flight.una(), congested: false });
}

/// SACK Panic and SACK Slowness (CVE-2019-11477, -11478): a peer reports every other byte of a large queue.
#[test]
fn r06_reports_of_every_other_byte_keep_the_list_bounded() {
    let segments = 4_000;
    let mut flight = flight(segments);
    let mut at = START + Duration::from_millis(50);
    for n in 0..segments * 44 / 3 {
        let blocks: Vec<Range<u64>> = (0..3).map(|k| (2 * (3 * n + k) + 1)..(2 * (3 * n + k) + 2)).collect();
        acknowledge(&mut flight, at, 0, &blocks);
        assert!(flight.ranges().count() <= RANGES_MAX || n % 500 != 0, "after {n} reports");
        at += Duration::from_micros(1);
    }
    assert!(flight.ranges().count() <= RANGES_MAX);
    // Whatever was reported, the books agree with themselves and the end is the end.
    assert!(flight.sacked().0 + flight.lost().0 <= segments * 88);
    acknowledge(&mut flight, at, segments * 88, &[]);
    assert!(flight.is_empty());
    assert_eq!(flight.ranges().count(), 0);
}

/// CVE-2016-5696: who counts the challenges that come back to himself must not learn what others caused. The size of
/// a second's budget is a secret's, and another in the next second.
#[test]
fn s04_the_number_of_challenges_in_a_second_is_nobodys_to_know() {
    let sizes = |key: u8| -> Vec<u32> {
        let mut budget = ChallengeBudget::new([key; 16], 1000);
        (0..50)
            .map(|second| {
                let at = START + Duration::from_secs(second);
                (0..5000).filter(|_| budget.allow(at)).count() as u32
            })
            .collect()
    };
    let (one, other) = (sizes(1), sizes(2));
    assert!(one.iter().all(|size| (500..=1500).contains(size)), "{one:?}");
    let mut distinct = one.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 40, "fifty seconds have {} sizes", distinct.len());
    assert!(one.iter().zip(&other).filter(|(a, b)| a == b).count() < 3, "two secrets agree");
}
