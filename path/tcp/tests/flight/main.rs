//! The sending side against a small network: a sender, a path with delay, rate and faults, a receiver.
//!
//! Each scenario names one thing that can go wrong on the way and what RFC 5681, 6298, 6582, 8985, 5682, 3522
//! or 3708 makes of it. The receiver is `Reassembly`, so both halves of SACK are tried against each other.
//! Time is virtual.
#![allow(clippy::single_range_in_vec_init)] // a list of blocks may have one block

mod network;

use core::ops::Range;
use core::time::Duration;

use firelane_tcp::congestion::Algorithm;
use firelane_tcp::flight::{AckIn, Flight, FlightConfig, Phase, TimerFired};
use firelane_units::{Bytes, Instant, Mss};
use proptest::prelude::*;

use network::{Fate, MSS, Network};

#[test]
fn a_clean_path_costs_nothing_extra() {
    let mut network = Network::new(400 * MSS);
    let took = network.run();
    assert_eq!((network.excess(), network.timeouts, network.probes), (0, 0, 0));
    assert_eq!(network.phases, [Phase::Open]);
    // 10, 20, 40, 80, 160, 90: six round trips of slow start and 40 ms to serialise.
    assert!(took < Duration::from_millis(6 * 50 + 50), "{took:?}");
    assert!(network.flight.window().0 >= 300 * MSS, "{:?}", network.flight.window());
    let srtt = network.flight.rtt().smoothed().expect("samples");
    assert!(srtt >= Duration::from_millis(50) && srtt < Duration::from_millis(70), "{srtt:?}");
}

#[test]
fn one_loss_is_one_retransmission_and_one_reduction() {
    for (algorithm, share) in [(Algorithm::Cubic, 70), (Algorithm::NewReno, 50)] {
        let mut network = Network::new(400 * MSS).losing(&[45]);
        let config = FlightConfig { algorithm, ..FlightConfig::default() };
        network.flight = Flight::new(&config);
        let rtt = Some(Duration::from_millis(50));
        network.flight.on_established(network.now, Mss::clamped(MSS as u16), true, rtt, 0);
        let mut window = 0;
        while !network.phases.contains(&Phase::Recovery) {
            window = network.flight.window().0;
            assert!(network.step());
        }
        let threshold = network.flight.slow_start_threshold().expect("a loss").0;
        assert!(
            threshold <= window * (share + 5) / 100 && threshold >= window * (share - 15) / 100,
            "{window} {threshold}"
        );
        network.run();
        assert_eq!((network.excess(), network.timeouts), (MSS, 0), "{algorithm:?}");
        assert_eq!(network.phases, [Phase::Open, Phase::Disorder, Phase::Recovery, Phase::Open]);
    }
}

#[test]
fn many_losses_in_a_window_are_repaired_in_one_recovery() {
    let lost: Vec<u64> = (30..70).step_by(3).collect();
    let mut network = Network::new(400 * MSS).losing(&lost);
    network.run();
    assert_eq!((network.excess(), network.timeouts), (lost.len() as u64 * MSS, 0));
    let recoveries = network.phases.iter().filter(|phase| **phase == Phase::Recovery).count();
    assert_eq!(recoveries, 1, "{:?}", network.phases);
}

#[test]
fn a_lost_retransmission_needs_no_time_out() {
    let mut copies = 0;
    let mut network = Network::new(400 * MSS).segments(move |_, range| {
        copies += u64::from(range.start == 40 * MSS);
        if range.start == 40 * MSS && copies < 4 { Fate::Lose } else { Fate::Pass }
    });
    network.run();
    assert_eq!((network.excess(), network.timeouts), (3 * MSS, 0));
}

#[test]
fn a_lost_tail_is_probed_long_before_the_time_out() {
    // The last three of ten segments: the probe repeats the last, its SACK shows the others.
    let mut network = Network::new(10 * MSS).losing(&[7, 8, 9]);
    let took = network.run();
    assert_eq!((network.probes, network.timeouts), (1, 0));
    // PRR: the ACK that shows two losses lets one segment go, the next one the other.
    assert!(took > Duration::from_millis(300) && took < Duration::from_millis(310), "{took:?}");
    assert_eq!(network.excess(), 3 * MSS);
    assert!(network.phases.contains(&Phase::Recovery));
}

#[test]
fn a_probe_that_repairs_the_loss_itself_still_reduces_the_window() {
    // RFC 8985 §7.4.2: only the last segment was lost, so nothing but the probe shows it.
    let mut network = Network::new(10 * MSS).losing(&[9]);
    network.run();
    network.length += 2 * MSS;
    network.run();
    assert_eq!((network.probes, network.timeouts), (1, 0));
    assert!(network.flight.slow_start_threshold().is_some());
    assert_eq!(network.excess(), MSS);
}

#[test]
fn a_probe_for_a_late_ack_reduces_nothing() {
    // The ACKs of the first flight are late by three round trips: the probe causes a duplicate, which says
    // so.
    let late = Duration::from_millis(120);
    let mut network =
        Network::new(10 * MSS).acks(move |n, _| if n < 10 { Fate::Delay(late) } else { Fate::Pass });
    network.run();
    network.length += 5 * MSS;
    network.run();
    assert_eq!((network.probes, network.timeouts), (1, 0));
    assert_eq!(network.flight.slow_start_threshold(), None);
}

#[test]
fn a_dead_path_backs_off_and_comes_back() {
    // Everything is lost for ten seconds.
    let mut network = Network::new(40 * MSS).segments(|n, _| if n < 17 { Fate::Lose } else { Fate::Pass });
    let took = network.run();
    assert!(network.timeouts >= 5, "{}", network.timeouts);
    // 250 ms doubled each time: the sum of the waits is the time it took.
    assert!(took > Duration::from_secs(4) && took < Duration::from_secs(60), "{took:?}");
    assert_eq!(network.flight.timeouts(), 0, "progress ends the count");
    assert_eq!(network.flight.rtt().backoff(), 0);
}

#[test]
fn a_time_out_restarts_from_one_segment() {
    let mut network =
        Network::new(100 * MSS).segments(|n, _| if (20..70).contains(&n) { Fate::Lose } else { Fate::Pass });
    while network.timeouts == 0 {
        assert!(network.step());
    }
    assert_eq!(network.flight.phase(), Phase::Loss);
    assert_eq!(network.flight.budget(), Bytes(MSS));
    network.run();
    assert_eq!(network.flight.phase(), Phase::Open);
}

/// The way back is dead for half a second, from the second flight on; then all ACKs arrive at once.
fn spike(network: Network) -> Network {
    let until = network.now + Duration::from_millis(550);
    network.acks(move |n, _| if n >= 10 { Fate::Until(until) } else { Fate::Pass })
}

#[test]
fn a_delay_spike_is_found_out_by_frto() {
    let mut network = spike(Network::new(200 * MSS));
    let mut window = 0;
    while network.timeouts == 0 {
        window = network.flight.window().0;
        assert!(network.step());
    }
    network.run();
    assert_eq!((network.timeouts, network.undone), (1, 1), "{:?}", network.phases);
    assert!(network.flight.window().0 >= window, "the window came back");
    assert!(network.excess() <= 2 * MSS, "{}", network.excess());
}

#[test]
fn a_delay_spike_is_found_out_by_a_timestamp() {
    let mut network = spike(Network::new(200 * MSS).with_timestamps());
    network.run();
    assert_eq!((network.timeouts, network.undone), (1, 1));
    assert_eq!(network.flight.slow_start_threshold(), None, "as before the time-out");
}

#[test]
fn a_delay_spike_without_sack_is_found_out_too() {
    let mut network = spike(Network::new(200 * MSS).without_sack());
    network.run();
    assert_eq!((network.timeouts, network.undone), (1, 1), "{:?}", network.phases);
}

#[test]
fn a_spike_of_two_time_outs_is_found_out_too() {
    for sack in [true, false] {
        let mut network = Network::new(200 * MSS);
        if !sack {
            network = network.without_sack();
        }
        let until = network.now + Duration::from_millis(1_300);
        let mut network = network.acks(move |n, _| if n >= 10 { Fate::Until(until) } else { Fate::Pass });
        network.run();
        assert_eq!((network.timeouts, network.undone), (2, 1), "sack {sack}: {:?}", network.phases);
    }
}

#[test]
fn a_lone_segment_is_judged_by_its_timestamp() {
    // Nothing else is out, so F-RTO learns nothing; the echo names the first copy.
    for timestamps in [true, false] {
        let mut network = Network::new(MSS).without_sack();
        if timestamps {
            network = network.with_timestamps();
        }
        let late = Duration::from_millis(300);
        let mut network = network.segments(move |n, _| if n == 0 { Fate::Delay(late) } else { Fate::Lose });
        network.run();
        assert_eq!((network.timeouts, network.undone), (1, u32::from(timestamps)));
    }
}

#[test]
fn an_ack_that_a_retransmission_may_have_caused_proves_nothing() {
    // Without SACK, two duplicates are too few: a time-out, and then one ACK for everything. The last two
    // were sent once, but they waited at the receiver: neither their arrival (RFC 5682) nor their age (Karn)
    // means anything.
    let mut network = Network::new(3 * MSS).without_sack().losing(&[0]);
    network.run();
    assert_eq!((network.timeouts, network.undone), (1, 0));
    assert_eq!(network.flight.rtt().smoothed(), Some(Duration::from_millis(50)));
}

#[test]
fn duplicates_from_before_a_recovery_start_no_other() {
    // RFC 6582 §3.2 step 2, and §4.1: una stands where the last recovery ended.
    let mut network = Network::new(10 * MSS).without_sack();
    network.transmit();
    let duplicate = |ack| AckIn { ack, sack: &[], echoed: None, duplicate: true, congested: false };
    let times = |network: &mut Network, ack| {
        for _ in 0..3 {
            network.now += Duration::from_millis(1);
            network.flight.on_ack(network.now, &duplicate(ack));
            network.transmit();
        }
    };
    times(&mut network, 0);
    assert_eq!(network.flight.phase(), Phase::Recovery);
    network.flight.on_ack(network.now, &AckIn { duplicate: false, ..duplicate(10 * MSS) });
    assert_eq!(network.flight.phase(), Phase::Open);
    network.length += 10 * MSS;
    network.transmit();
    times(&mut network, 10 * MSS);
    assert_eq!((network.flight.phase(), network.flight.lost()), (Phase::Disorder, Bytes::ZERO));
    network.flight.on_ack(network.now, &AckIn { duplicate: false, ..duplicate(11 * MSS) });
    times(&mut network, 11 * MSS);
    assert_eq!(network.flight.phase(), Phase::Recovery);
}

#[test]
fn a_loss_found_by_the_clock_opens_the_window_for_one_segment() {
    let mut network = Network::new(10 * MSS);
    network.transmit();
    network.now += Duration::from_millis(50);
    let ack = AckIn { ack: 0, sack: &[1_000..2_000], echoed: None, duplicate: true, congested: false };
    network.flight.on_ack(network.now, &ack);
    assert_eq!((network.flight.phase(), network.flight.lost()), (Phase::Disorder, Bytes::ZERO));
    let deadline = network.flight.deadline().expect("a suspect");
    assert!(deadline <= network.now + Duration::from_micros(12_500), "a quarter of the round trip");
    assert_eq!(network.flight.on_timer(deadline), TimerFired::Reordering);
    assert_eq!((network.flight.phase(), network.flight.lost()), (Phase::Recovery, Bytes(MSS)));
    assert_eq!(network.flight.budget(), Bytes(MSS));
}

#[test]
fn a_duplicate_of_a_probe_does_not_undo_an_earlier_recovery() {
    let mut network = Network::new(40 * MSS).losing(&[12]);
    network.run();
    let threshold = network.flight.slow_start_threshold();
    let mut network = network.acks(|_, _| Fate::Delay(Duration::from_millis(170)));
    network.length += MSS;
    network.run();
    network.length += MSS;
    network.run();
    assert!(network.probes >= 1);
    assert_eq!((network.timeouts, network.undone), (0, 0));
    assert_eq!(network.flight.slow_start_threshold(), threshold);
}

#[test]
fn the_window_grows_only_for_those_who_use_it() {
    let mut network = Network::new(0);
    for (segments, window) in [(4, 10), (5, 10), (4, 10), (6, 16), (8, 16), (9, 25)] {
        network.length += segments * MSS;
        network.run();
        assert_eq!(network.flight.window(), Bytes(window * MSS), "after {segments}");
    }
}

#[test]
fn a_real_time_out_is_not_undone() {
    for sack in [true, false] {
        let mut network = Network::new(200 * MSS);
        if !sack {
            network = network.without_sack();
        }
        // The whole second flight is lost.
        let mut network =
            network.segments(|n, _| if (10..30).contains(&n) { Fate::Lose } else { Fate::Pass });
        network.run();
        assert_eq!(network.undone, 0, "sack {sack}: {:?}", network.phases);
        assert!(network.flight.slow_start_threshold().is_some());
    }
}

#[test]
fn duplicates_of_all_retransmissions_undo_the_reduction() {
    // One segment is late by 30 ms: it is sent again, and the receiver reports the duplicate.
    let late = Duration::from_millis(30);
    let mut network =
        Network::new(200 * MSS).segments(move |n, _| if n == 40 { Fate::Delay(late) } else { Fate::Pass });
    network.run();
    assert_eq!((network.timeouts, network.undone), (0, 1), "{:?}", network.phases);
    assert_eq!(network.flight.slow_start_threshold(), None);
}

#[test]
fn a_late_segment_does_not_excuse_a_lost_one() {
    // Segment 40 is late by 6 ms, 44 is lost. Both are sent again; then the first copy of 40 arrives and is
    // acknowledged with its own timestamp (RFC 3522). The other retransmission is still out, and it was needed.
    let late = Duration::from_millis(6);
    for timestamps in [true, false] {
        let mut network = Network::new(300 * MSS).segments(move |n, _| match n {
            40 => Fate::Delay(late),
            44 => Fate::Lose,
            _ => Fate::Pass,
        });
        if timestamps {
            network = network.with_timestamps();
        }
        network.run();
        assert_eq!((network.undone, network.timeouts), (0, 0), "{:?}", network.phases);
        assert!(network.flight.slow_start_threshold().is_some());
    }
}

#[test]
fn a_late_segment_behind_which_a_retransmission_waits_excuses_nothing() {
    // The retransmission of 44 arrives before the first copy of 40, which then fills the last hole: its old
    // timestamp is that of the whole acknowledgement.
    let late = Duration::from_millis(57);
    let mut copies = 0;
    let mut network = Network::new(300 * MSS)
        .segments(move |n, range| {
            copies += u64::from(range.start == 40 * MSS);
            match (n, range.start / MSS, copies) {
                (40, ..) => Fate::Delay(late),
                (44, ..) => Fate::Lose,
                // Nor does the second copy of 40 come sooner.
                (_, 40, 2) => Fate::Delay(late),
                _ => Fate::Pass,
            }
        })
        .with_timestamps();
    network.run();
    assert_eq!(network.undone, 0, "{:?}", network.phases);
    assert!(network.flight.slow_start_threshold().is_some());
}

#[test]
fn a_report_from_an_earlier_recovery_does_not_undo_a_later_one() {
    // 40 is late, so it is sent again needlessly; the report of that comes while 60's real loss is repaired.
    let late = Duration::from_millis(30);
    let mut network = Network::new(300 * MSS).segments(move |n, _| match n {
        40 => Fate::Delay(late),
        70 => Fate::Lose,
        _ => Fate::Pass,
    });
    network.run();
    assert!(network.flight.slow_start_threshold().is_some(), "{:?}", network.phases);
}

#[test]
fn copies_that_the_path_made_excuse_nothing() {
    // Every fourth segment comes twice, and 45 is lost: the reports are of copies that were never sent.
    let mut network = Network::new(300 * MSS).segments(|n, _| match n {
        45 => Fate::Lose,
        n if n % 4 == 0 => Fate::Double,
        _ => Fate::Pass,
    });
    network.run();
    assert_eq!(network.undone, 0, "{:?}", network.phases);
    assert!(network.flight.slow_start_threshold().is_some());
}

#[test]
fn reordering_is_no_way_round_a_loss() {
    // One segment in a hundred is lost. That three more in a hundred are late does not help.
    let goodput = |late: u8, timestamps: bool| {
        let faults = Faults { loss: 1, late, double: 0, seed: 77 };
        let fates = faults.with_scale(100, Duration::from_millis(3));
        let mut network = Network::new(6_000 * MSS).segments(fates);
        network.per_segment = Duration::from_micros(10);
        if timestamps {
            network = network.with_timestamps();
        }
        network.run().as_millis()
    };
    for timestamps in [true, false] {
        let (lost, both) = (goodput(0, timestamps), goodput(3, timestamps));
        assert!(both * 10 >= lost * 8, "timestamps {timestamps}: {lost} ms with losses, {both} ms with both");
    }
}

#[test]
fn reordering_is_learned() {
    // Every tenth segment is late by 4 ms (40 segments). A few are sent again, then no more.
    let late = Duration::from_millis(4);
    let mut network = Network::new(2_000 * MSS)
        .segments(move |n, _| if n % 10 == 9 { Fate::Delay(late) } else { Fate::Pass });
    network.run();
    assert_eq!(network.timeouts, 0);
    assert!(network.excess() <= 10 * MSS, "{} of 200 late segments were sent again", network.excess() / MSS);
}

/// RFC 8985 §6.2: what was learned holds as long as the connection, also where it is silent between its answers.
#[test]
fn reordering_is_not_forgotten_in_silence() {
    // In each answer of thirty segments one is late by half a millisecond (five segments).
    let late = Duration::from_micros(500);
    let mut network = Network::new(0).segments(move |_, range| match range.start / MSS % 30 {
        3 => Fate::Delay(late),
        _ => Fate::Pass,
    });
    for _ in 0..50 {
        network.length += 30 * MSS;
        network.run();
        network.flight.shrink(network.now, true);
        network.now += Duration::from_secs(2);
    }
    assert!(network.excess() <= 2 * MSS, "{} of 50 late segments were sent again", network.excess() / MSS);
}

#[test]
fn an_ack_that_tells_of_several_blocks_is_no_sign_of_reordering() {
    // 1, 3, 5 and 7 are lost; one acknowledgement stands for what the others would have said, the newest block first.
    let mut network = Network::new(9 * MSS);
    network.transmit();
    let t = |millis| Instant::from_secs(1_000) + Duration::from_millis(millis);
    let ack = |sack| AckIn { ack: MSS, sack, echoed: None, duplicate: false, congested: false };
    let together = [8_000..9_000, 4_000..5_000, 6_000..7_000, 2_000..3_000];
    let out = network.flight.on_ack(t(50), &ack(&together));
    assert_eq!((out.delivered, out.reordered), (Bytes(5 * MSS), false));
    assert_eq!(
        out.lost,
        Bytes(4 * MSS),
        "four segments are beyond the first: no time is given to the lost ones"
    );
    // What lies below that and comes later was overtaken, or sent again: nothing was.
    let out = network.flight.on_ack(t(51), &ack(&[2_000..5_000, 8_000..9_000, 6_000..7_000]));
    assert_eq!((out.delivered, out.reordered), (Bytes(MSS), true));
}

#[test]
fn three_duplicates_without_sack() {
    let mut network = Network::new(200 * MSS).without_sack().losing(&[25]);
    network.run();
    assert_eq!((network.excess(), network.timeouts), (MSS, 0));
    assert!(network.phases.contains(&Phase::Recovery));
}

#[test]
fn partial_acknowledgements_without_sack() {
    // RFC 6582: one retransmission per round trip, no time-out.
    let mut network = Network::new(300 * MSS).without_sack().losing(&[30, 34, 38]);
    network.run();
    assert_eq!((network.excess(), network.timeouts), (3 * MSS, 0));
    let recoveries = network.phases.iter().filter(|phase| **phase == Phase::Recovery).count();
    assert_eq!(recoveries, 1, "{:?}", network.phases);
}

#[test]
fn limited_transmit_keeps_a_small_window_alive() {
    // RFC 3042: with three segments out and the first lost, two duplicates let two new segments go, whose
    // duplicates make the third. Without SACK, so that RACK cannot help.
    let mut network = Network::new(20 * MSS).without_sack().losing(&[0]);
    let config = FlightConfig { initial_segments: 3, ..FlightConfig::default() };
    network.flight = Flight::new(&config);
    let rtt = Some(Duration::from_millis(50));
    network.flight.on_established(network.now, Mss::clamped(MSS as u16), false, rtt, 0);
    network.run();
    assert_eq!((network.excess(), network.timeouts), (MSS, 0));
}

#[test]
fn a_reneging_peer_gets_everything_again() {
    let mut network = Network::new(10 * MSS);
    network.transmit();
    let t = |millis| Instant::from_secs(1_000) + Duration::from_millis(millis);
    let flight = &mut network.flight;
    let ack = |ack, sack| AckIn { ack, sack, echoed: None, duplicate: false, congested: false };
    // 1000..10000 is reported; then the acknowledgement stops at 1000, which the peer says it has.
    flight.on_ack(t(50), &ack(0, &[1_000..10_000]));
    flight.on_sent(t(51), 0..1_000);
    flight.on_ack(t(101), &ack(1_000, &[]));
    let deadline = flight.deadline().expect("data are out");
    assert!(matches!(flight.on_timer(deadline), TimerFired::Retransmission { .. }));
    assert_eq!(flight.next_retransmit(Bytes(MSS), false), Some(1_000..2_000));
    assert_eq!(flight.sacked(), Bytes::ZERO);
}

#[test]
fn an_idle_flight_is_small_and_starts_again() {
    let mut network = Network::new(100 * MSS);
    network.run();
    let window = network.flight.window();
    network.flight.shrink(network.now, false);
    assert_eq!((network.flight.una(), network.flight.nxt()), (100 * MSS, 100 * MSS));
    assert_eq!(network.flight.ranges().count(), 0);
    assert!(size_of::<Flight>() <= 200, "{}", size_of::<Flight>());
    // RFC 5681 §4.1: after a long silence, from the initial window.
    network.now += Duration::from_secs(60);
    network.length += 100 * MSS;
    network.transmit();
    assert_eq!(network.flight.in_flight(), Bytes(10 * MSS));
    assert!(window > Bytes(50 * MSS));
    network.run();
    assert_eq!((network.excess(), network.timeouts), (0, 0));
}

#[test]
fn dup_ack_spoofing_gains_nothing() {
    // S06: a peer without SACK sends ten thousand duplicates for ten segments.
    let mut network = Network::new(1_000 * MSS).without_sack();
    network.transmit();
    for _ in 0..10_000 {
        network.now += Duration::from_micros(10);
        network.flight.on_ack(
            network.now,
            &AckIn { ack: 0, sack: &[], echoed: None, duplicate: true, congested: false },
        );
        network.transmit();
    }
    // Ten and two of limited transmit were out when recovery began; twice that and the window are the bound.
    assert!(network.flight.nxt() <= 40 * MSS, "{} segments went out", network.flight.nxt() / MSS);
}

#[derive(Clone, Debug)]
struct Faults {
    loss: u8,
    late: u8,
    double: u8,
    seed: u64,
}

fn faults() -> impl Strategy<Value = Faults> {
    (0u8..60, 0u8..60, 0u8..60, any::<u64>()).prop_map(|(loss, late, double, seed)| Faults {
        loss,
        late,
        double,
        seed,
    })
}

impl Faults {
    /// Fates with chances in parts of `scale`, and delays of up to `most`.
    fn with_scale(self, scale: u64, most: Duration) -> impl FnMut(u64, &Range<u64>) -> Fate {
        let mut state = self.seed | 1;
        move |_, _| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            match (state >> 32) % scale {
                draw if draw < u64::from(self.loss) => Fate::Lose,
                draw if draw < u64::from(self.loss + self.late) => {
                    Fate::Delay(Duration::from_micros(state % most.as_micros() as u64))
                }
                _ => Fate::Pass,
            }
        }
    }

    /// A fate from a small generator (xorshift), the same for the same seed.
    fn into_fates(self) -> impl FnMut(u64, &Range<u64>) -> Fate {
        let mut state = self.seed | 1;
        move |_, _| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let draw = (state >> 32) as u8;
            let (late, double) = (self.loss.saturating_add(self.late), self.double);
            match draw {
                _ if draw < self.loss => Fate::Lose,
                _ if draw < late => Fate::Delay(Duration::from_micros(state % 80_000)),
                _ if draw < late.saturating_add(double) => Fate::Double,
                _ => Fate::Pass,
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_byte_arrives_over_any_path(
        segments in faults(), acks in faults(), length in 1u64..150_000, sack: bool, timestamps: bool, newreno: bool,
    ) {
        let mut network = Network::new(length);
        let algorithm = if newreno { Algorithm::NewReno } else { Algorithm::Cubic };
        network.flight = Flight::new(&FlightConfig { algorithm, ..FlightConfig::default() });
        let rtt = Some(Duration::from_millis(50));
        network.flight.on_established(network.now, Mss::clamped(MSS as u16), sack, rtt, 0);
        network.sack = sack;
        if timestamps {
            network = network.with_timestamps();
        }
        let mut network = network.segments(segments.into_fates()).acks(acks.into_fates());
        network.run();
        prop_assert_eq!(network.next, length);
        prop_assert!(network.flight.is_empty() && network.flight.deadline().is_none());
        prop_assert_eq!(network.flight.in_flight(), Bytes::ZERO);
    }

    /// T04: any acknowledgement that passes RFC 9293's check, with any blocks, at any time.
    #[test]
    fn no_acknowledgement_breaks_the_books(
        events in prop::collection::vec(
            (0u64..50_000, prop::collection::vec((0u64..80_000, 0u64..20_000), 0..4), any::<bool>(), 0u64..400),
            1..150,
        ),
        sack: bool,
    ) {
        let mut network = Network::new(200 * MSS).segments(|_, _| Fate::Lose);
        let rtt = Some(Duration::from_millis(50));
        network.flight.on_established(network.now, Mss::clamped(MSS as u16), sack, rtt, 0);
        for (advance, blocks, duplicate, millis) in events {
            network.transmit();
            network.now += Duration::from_millis(millis);
            let (una, nxt) = (network.flight.una(), network.flight.nxt());
            let sack: Vec<_> = blocks.iter().map(|&(from, len)| {
                // Some blocks lie below the acknowledgement, some are empty, some are turned round.
                let start = (una + from).saturating_sub(10_000);
                start..(start + len).saturating_sub(500)
            }).collect();
            let ack = if duplicate { una } else { (una + advance).min(nxt) };
            network.flight.on_ack(network.now, &AckIn { ack, sack: &sack, echoed: None, duplicate, congested: false });
            while network.flight.on_timer(network.now) != TimerFired::Nothing {
                network.transmit();
            }
            let flight = &network.flight;
            let outstanding = Bytes(flight.nxt() - flight.una());
            prop_assert!(flight.in_flight() + flight.sacked() + flight.lost() <= outstanding);
            prop_assert!(flight.window() >= Bytes(MSS));
            prop_assert_eq!(flight.is_empty(), flight.deadline().is_none());
        }
    }
}
