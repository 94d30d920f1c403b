//! R: attacks on resources.

use core::ops::Range;
use core::time::Duration;

use firelane_tcp::CloseReason;
use firelane_tcp::flight::{AckIn, Flight, FlightConfig};
use firelane_tcp::sent::RANGES_MAX;
use firelane_units::{Instant, Mss};

use crate::common::lab::{ACK, Lab, Peer, START, secs};

/// RFC 6429: an orphan with a closed window does not live on answers alone.
#[test]
fn r03_an_orphan_behind_a_closed_window_is_given_up() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 1).win(0));
    lab.write(100);
    lab.close();
    lab.sent();
    let mut told = None;
    for _ in 0..20 {
        told = told.or(lab.wait(secs(20)).1.closed);
        lab.get(Peer::new(ACK, 1).win(0));
    }
    assert_eq!(told, Some(CloseReason::TimedOut));
}

/// A flight with `segments` of 88 bytes under way: the least MSS that a peer can bring about (CVE-2019-11479).
fn flight(segments: u64) -> Flight {
    let mut flight = Flight::new(&FlightConfig::default());
    flight.on_established(START, Mss::clamped(88), true, Some(Duration::from_millis(50)), 0);
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
