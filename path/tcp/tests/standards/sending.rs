//! When text leaves, how much at a time, and how often (RFC 896, RFC 6928, RFC 6298).

use std::sync::Arc;

use firelane_tcp::congestion::Algorithm;
use firelane_tcp::flight::FlightConfig;
use firelane_tcp::rtt::RtoLimits;
use firelane_tcp::{CloseReason, State, TcpConfig, Willing};
use firelane_units::{BitRate, Bytes};
use firelane_wire::{TcpFlags, TcpOptions};

use crate::common::lab::{ACK, Lab, NOTHING, Peer, SYN, ms, plain, reply, secs};

#[test]
fn nagle_holds_the_second_small_segment() {
    let mut lab = Lab::established();
    lab.write(10);
    assert_eq!(lab.sent(), ["P. 1:11(10) ack 1 win 10000"]);
    lab.write(10);
    assert_eq!(lab.sent(), NOTHING);
    lab.get(Peer::new(ACK, 1).acks(11));
    assert_eq!(lab.sent(), ["P. 11:21(10) ack 1 win 10000"]);
    lab.connection.set_nodelay(true);
    lab.write(10);
    assert_eq!(lab.sent(), ["P. 21:31(10) ack 1 win 10000"]);
}

#[test]
fn a_cork_holds_small_segments_for_a_while() {
    let mut lab = Lab::established();
    lab.connection.set_cork(true);
    lab.write(1010);
    assert_eq!(lab.sent(), [". 1:1001(1000) ack 1 win 10000"]);
    lab.get(Peer::new(ACK, 1).acks(1001));
    assert_eq!(lab.sent(), NOTHING);
    assert_eq!(lab.wait(ms(300)).0, ["200 P. 1001:1011(10) ack 1 win 10000"], "the persist timer pulls it");
}

#[test]
fn large_segments_are_whole_ones_and_a_rest() {
    let mut lab = Lab::established();
    lab.limits.max_segment_payload = firelane_units::Bytes(65_535);
    lab.write(4500);
    assert_eq!(lab.sent(), ["P. 1:4501(4500) ack 1 win 10000"]);
}

/// RFC 6928: ten segments at first, RFC 5681: then as ACKs come.
#[test]
fn the_congestion_window_is_kept() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 1).win(60_000));
    lab.write(50_000);
    assert_eq!(lab.sent().len(), 10);
    lab.get(Peer::new(ACK, 1).acks(2001).win(60_000));
    assert_eq!(lab.sent().len(), 4);
}

/// Karn: a SYN that was repeated gives no sample.
#[test]
fn a_repeated_syn_gives_no_round_trip_time() {
    for (wait, sampled) in [(500, true), (1500, false)] {
        let mut lab = Lab::opening(plain());
        lab.sent();
        lab.wait(ms(wait));
        lab.get(Peer::new(SYN.with(ACK), 0).acks(1));
        assert_eq!(lab.connection.info(lab.now).rtt.is_some(), sampled);
    }
}

/// RFC 7323 §4.1: a timestamp tells which of several SYNs was answered. One that no SYN had tells nothing.
#[test]
fn a_repeated_syn_is_timed_by_its_timestamp() {
    for (echo, rtt) in [(101_000, Some(ms(300))), (100_000, Some(ms(1300))), (99_999, None), (101_301, None)]
    {
        let mut lab = Lab::opening(TcpConfig::default());
        assert_eq!(lab.sent(), ["S 0:0(0) mss 1000 sackOK ts 100000 0 ws 5"]);
        assert_eq!(lab.wait(ms(1000)).0, ["1000 S 0:0(0) mss 1000 sackOK ts 101000 0 ws 5"]);
        lab.wait(ms(300));
        let options = TcpOptions { mss: Some(1000), sack_permitted: true, ..TcpOptions::EMPTY };
        lab.get(Peer::new(SYN.with(ACK), 0).acks(1).options(options).stamps(7, echo));
        assert_eq!(lab.connection.info(lab.now).rtt, rtt, "{echo}");
    }
}

#[test]
fn unacknowledged_text_is_repeated_and_given_up() {
    let mut lab = Lab::established();
    lab.connection.set_user_timeout(Some(secs(10)));
    lab.write(100);
    lab.sent();
    let (lines, told) = lab.wait(secs(100));
    assert!(lines.len() >= 4 && lines.iter().all(|line| line.contains(" 1:101(100) ")), "{lines:?}");
    assert_eq!(told_at(&mut lab), 10, "RFC 5482: not at the next time-out, which may be a minute away");
    assert_eq!(
        (told.closed, reply(&told).as_str()),
        (Some(CloseReason::TimedOut), "R. 101:101(0) ack 1 win 0")
    );
}

/// The second at which the connection was last heard of.
fn told_at(lab: &mut Lab) -> u64 {
    lab.told_at.saturating_since(firelane_units::Instant::from_secs(100)).as_secs()
}

/// `ipadm set-prop -p _rexmit_interval_min` and its like reach a time-out that runs: it is as long as if it had begun with
/// them, be that shorter or longer.
#[test]
fn changed_bounds_move_the_time_out_that_runs() {
    let bounded = |initial, min| {
        let mut config = plain();
        config.flight.rto = RtoLimits::new(ms(initial), ms(min), secs(60));
        Arc::new(config)
    };
    for (min, at) in [(1_000, 1_000), (300, 300), (20, 100)] {
        let mut lab = Lab::established();
        lab.connection.set_config(bounded(1_000, 600));
        lab.write(100);
        lab.sent();
        assert_eq!(lab.wait(ms(100)).0, [""; 0]);
        lab.connection.set_config(bounded(1_000, min));
        let (lines, _) = lab.wait(ms(1_200));
        let first: u64 = lines[0].split(' ').next().and_then(|it| it.parse().ok()).expect("milliseconds");
        assert!((at..at + 60).contains(&(first + 100)), "{min}: {lines:?}");
    }
    let mut lab = Lab::opening(Arc::unwrap_or_clone(bounded(3_000, 200)));
    lab.sent();
    lab.connection.set_config(bounded(500, 200));
    let (lines, _) = lab.wait(ms(600));
    assert!(lines[0].starts_with("500 S"), "{lines:?}");
}

/// `_slow_start_initial` and `_slow_start_after_idle`: how much a connection begins with, and whether it begins again after a
/// rest, also one that was there before the property was set.
#[test]
fn a_connection_that_rested_begins_again_if_it_is_told_so() {
    for (is_on, after) in [(false, 8_000), (true, 2_000)] {
        let mut lab = Lab::established_with(restarting(false), TcpOptions::EMPTY, 10_000);
        let window = |lab: &Lab| lab.connection.info(lab.now).congestion_window.0;
        lab.get(Peer::new(ACK, 1).acks(1).win(60_000));
        let mut acked = 1;
        for round in [2_000, 4_000] {
            assert_eq!(window(&lab), round);
            lab.write(round as usize);
            assert_eq!(lab.sent().len() as u64, round / 1_000);
            acked += round as u32;
            lab.get(Peer::new(ACK, 1).acks(acked).win(60_000));
        }
        lab.connection.set_config(Arc::new(restarting(is_on)));
        lab.wait(ms(900));
        lab.write(10_000);
        assert_eq!((lab.sent().len() as u64 * 1_000, window(&lab)), (after, after), "{is_on}");
    }
}

fn restarting(slow_start_after_idle: bool) -> TcpConfig {
    let mut config = plain();
    (config.flight.initial_segments, config.flight.slow_start_after_idle) = (2, slow_start_after_idle);
    config
}

/// A connection whose peer permits SACK, three segments of which the last left twice, as a probe: the ACK was late.
fn probed(algorithm: Algorithm) -> Lab {
    let flight = FlightConfig { algorithm, ..FlightConfig::default() };
    let config = TcpConfig { sack: Willing::Active, flight, ..plain() };
    let options = TcpOptions { sack_permitted: true, ..TcpOptions::EMPTY };
    let mut lab = Lab::established_with(config, options, 10_000);
    lab.write(3000);
    assert_eq!(lab.sent().len(), 3);
    assert_eq!(lab.wait(ms(3)).0, ["2 P. 2001:3001(1000) ack 1 win 10000"]);
    lab.get(Peer::new(ACK, 1).acks(3001));
    lab
}

/// RFC 8985 §7.4.2: the peer's report, or its duplicate ACK, says that the probe came twice, though nothing is out then.
#[test]
fn a_probe_that_was_not_needed_reduces_nothing_when_all_has_arrived() {
    for report in [&[(2001, 3001)][..], &[]] {
        let mut lab = probed(Algorithm::Cubic);
        lab.get(Peer::new(ACK, 1).acks(3001).sacks(report));
        lab.write(1000);
        assert_eq!(lab.sent().len(), 1);
        lab.get(Peer::new(ACK, 1).acks(4001));
        assert_eq!(lab.connection.info(lab.now).slow_start_threshold, None, "{report:?}");
    }
}

/// RFC 5681 §3.1: half of what was out when the ACK came, also if it acknowledges all of it.
#[test]
fn a_loss_that_a_probe_repaired_halves_what_was_out() {
    for algorithm in [Algorithm::NewReno, Algorithm::Dctcp] {
        let mut lab = probed(algorithm);
        lab.write(8000);
        assert_eq!(lab.sent().len(), 8);
        lab.get(Peer::new(ACK, 1).acks(11_001));
        assert_eq!(lab.connection.info(lab.now).slow_start_threshold, Some(Bytes(4000)), "{algorithm:?}");
    }
}

/// RFC 6298 §5.5 backs off for what was sent again: what its pace still holds has not been left unanswered.
#[test]
fn a_time_out_of_what_has_yet_to_leave_counts_for_nothing() {
    let mut lab = Lab::established();
    lab.connection.set_pacing_limit(lab.now, Some(BitRate::from_bps(4_000)));
    lab.write(1000);
    assert_eq!(lab.sent().len(), 1);
    assert_eq!(lab.wait(ms(1_900)).0, NOTHING);
    assert!(!lab.connection.doubts_way());
    assert_eq!(lab.wait(ms(200)).0, ["100 P. 1:1001(1000) ack 1 win 10000"]);
    lab.connection.set_pacing_limit(lab.now, None);
    assert_eq!(lab.wait(ms(1_500)).0.len(), 2, "400 and 800 ms later");
    assert!(lab.connection.doubts_way());
}

/// RFC 9293 §3.8.3 R2: whatever holds it, nobody waits for ever.
#[test]
fn who_cannot_send_again_gives_up_as_well() {
    let mut lab =
        Lab::established_with(TcpConfig { abort_timeout: secs(5), ..plain() }, TcpOptions::EMPTY, 10_000);
    lab.connection.set_pacing_limit(lab.now, Some(BitRate::from_bps(80)));
    lab.write(1000);
    assert_eq!(lab.sent().len(), 1);
    let (lines, told) = lab.wait(secs(6));
    assert_eq!((lines.len(), told.closed), (0, Some(CloseReason::TimedOut)));
}

/// RFC 3168 §6.1.2: CWR is owed until it has left; until that is acknowledged, the peer repeats what it said before.
#[test]
fn a_reduction_is_told_after_a_silence_too() {
    let (ece, cwr) = (TcpFlags::ECE, TcpFlags::CWR);
    for rests in [false, true] {
        let mut lab = Lab::opening(TcpConfig { ecn: Willing::Active, ..plain() });
        lab.sent();
        let options = TcpOptions { mss: Some(1000), ..TcpOptions::EMPTY };
        lab.get(Peer::new(SYN.with(ACK).with(ece), 0).options(options));
        lab.write(1000);
        lab.sent();
        lab.get(Peer::new(ACK.with(ece), 1).acks(1001));
        let reduced = lab.connection.info(lab.now).slow_start_threshold;
        assert!(reduced.is_some());
        lab.wait(secs(3));
        if rests {
            lab.connection = lab.connection.rest(lab.now).expect("it is quiet").wake();
        }
        lab.write(2000);
        let limits = lab.limits;
        let mut next = || lab.rings(|tcp, now, rings| tcp.poll_transmit(now, rings, &limits)).expect("text");
        let told = [(); 2].map(|()| next().flags.contains(cwr));
        assert_eq!(told, [true, false], "rests {rests}");
        lab.get(Peer::new(ACK.with(ece), 1).acks(1001).text(10));
        lab.get(Peer::new(ACK, 11).acks(3001));
        assert_eq!(lab.connection.info(lab.now).slow_start_threshold, reduced);
    }
}

/// SO_MAX_PACING_RATE, where it lets less than a segment go each second: the silence between two is the pace's.
#[test]
fn a_slow_pace_is_kept_through_a_silence() {
    let mut lab = Lab::established();
    lab.connection.set_pacing_limit(lab.now, Some(BitRate::from_bps(4_000)));
    lab.write(3000);
    assert_eq!(lab.sent().len(), 1);
    lab.get(Peer::new(ACK, 1).acks(1001));
    assert_eq!(lab.sent(), NOTHING);
    assert_eq!(lab.wait(ms(1_900)).0, NOTHING);
    assert!(lab.connection.rest(lab.now).is_none(), "text waits");
    assert_eq!(lab.wait(ms(200)).0, ["100 . 1001:2001(1000) ack 1 win 10000"]);
}

/// RFC 6582 §3.2 keeps duplicates of what a recovery repaired from beginning another one. A mark has repaired nothing.
#[test]
fn three_duplicates_show_a_loss_while_a_mark_is_answered() {
    let ece = ACK.with(TcpFlags::ECE);
    let mut lab = Lab::opening(TcpConfig { ecn: Willing::Active, ..plain() });
    lab.sent();
    let options = TcpOptions { mss: Some(1000), ..TcpOptions::EMPTY };
    lab.get(Peer::new(SYN.with(ece), 0).options(options));
    lab.write(6000);
    assert_eq!(lab.sent().len(), 6);
    for _ in 0..4 {
        assert_eq!(lab.sent(), NOTHING);
        lab.get(Peer::new(ece, 1).acks(1001));
    }
    assert_eq!(lab.sent(), [". 1001:2001(1000) ack 1 win 10000"]);
}

/// The same of the window behind the one that a mark was for: its first segment is the one that tells the peer of the reduction.
#[test]
fn three_duplicates_show_a_loss_behind_a_mark() {
    let ece = ACK.with(TcpFlags::ECE);
    // BBR has a pace.
    let soon = |lab: &mut Lab| [lab.sent(), lab.wait(ms(20)).0].concat();
    let at_once: &[u32] = &[6001];
    for (algorithm, acks, rests) in [
        (Algorithm::NewReno, at_once, false),
        (Algorithm::NewReno, at_once, true),
        (Algorithm::NewReno, &[1001, 6001], false),
        (Algorithm::Bbr, at_once, false),
    ] {
        let case = format!("{algorithm:?} {acks:?} {rests}");
        let flight = FlightConfig { algorithm, ..plain().flight };
        let mut lab = Lab::opening(TcpConfig { ecn: Willing::Active, flight, ..plain() });
        lab.sent();
        let options = TcpOptions { mss: Some(1000), ..TcpOptions::EMPTY };
        lab.get(Peer::new(SYN.with(ece), 0).options(options));
        lab.write(6000);
        assert_eq!(soon(&mut lab).len(), 6, "{case}");
        acks.iter().for_each(|&ack| _ = lab.get(Peer::new(ece, 1).acks(ack)));
        if rests {
            lab.wait(secs(3));
            lab.connection = lab.connection.rest(lab.now).expect("it is quiet").wake();
        }
        lab.write(6000);
        let sent = soon(&mut lab);
        assert!(sent.len() >= 4, "{case}: {sent:?}");
        (0..3).for_each(|_| _ = lab.get(Peer::new(ece, 1).acks(6001)));
        let again = soon(&mut lab);
        assert!(again.iter().any(|line| line.contains(" 6001:7001(1000)")), "{case}: {again:?}");
    }
}

/// The same where nothing waits in the silence: who writes now and then is held to his rate as well.
#[test]
fn a_slow_pace_outlasts_a_silence_in_which_nothing_waits() {
    let mut lab = Lab::established();
    lab.connection.set_pacing_limit(lab.now, Some(BitRate::from_bps(4_000)));
    lab.write(1000);
    assert_eq!(lab.sent().len(), 1);
    lab.get(Peer::new(ACK, 1).acks(1001));
    assert_eq!(lab.wait(ms(1_500)).0, NOTHING);
    assert!(lab.connection.rest(lab.now).is_none(), "the next segment is not due");
    lab.write(1000);
    assert_eq!(lab.sent(), NOTHING);
    assert_eq!(lab.wait(ms(400)).0, NOTHING);
    assert_eq!(lab.wait(ms(200)).0, ["100 P. 1001:2001(1000) ack 1 win 10000"]);
    lab.get(Peer::new(ACK, 1).acks(2001));
    assert_eq!(lab.wait(secs(3)).0, NOTHING);
    assert!(lab.connection.rest(lab.now).is_some(), "its time is over");
}

/// A limit that is changed holds at once, for what was told to wait as well. Who only changes it gains nothing.
#[test]
fn another_pace_holds_for_what_waits() {
    let mut lab = Lab::established();
    lab.connection.set_pacing_limit(lab.now, Some(BitRate::from_bps(4_000)));
    lab.write(4000);
    assert_eq!(lab.sent().len(), 1);
    lab.get(Peer::new(ACK, 1).acks(1001));
    assert_eq!(lab.wait(ms(1_000)).0, NOTHING);
    for bps in [8_000, 3_000, 8_000, 4_000] {
        lab.connection.set_pacing_limit(lab.now, Some(BitRate::from_bps(bps)));
        assert_eq!(lab.sent(), NOTHING);
    }
    // The second half of it takes a tenth of the time.
    lab.connection.set_pacing_limit(lab.now, Some(BitRate::from_bps(40_000)));
    assert_eq!(lab.sent(), NOTHING);
    assert_eq!(lab.wait(ms(110)).0, ["100 . 1001:2001(1000) ack 1 win 10000"]);
    lab.get(Peer::new(ACK, 1).acks(2001));
    assert_eq!(lab.wait(ms(100)).0, NOTHING);
    // Zero is no limit, behind which another one begins.
    lab.connection.set_pacing_limit(lab.now, Some(BitRate::ZERO));
    lab.connection.set_pacing_limit(lab.now, Some(BitRate::from_bps(80)));
    assert_eq!(lab.sent().len(), 1);
}

/// A patience that was longer before is not what counts.
#[test]
fn what_may_not_leave_follows_another_patience() {
    for (abort_timeout, ends) in [(None, 300), (Some(50), 50)] {
        let mut lab = Lab::established();
        lab.connection.set_user_timeout(Some(secs(1000)));
        lab.write(10);
        lab.rings(|connection, now, rings| connection.hold(now, rings));
        lab.connection.set_user_timeout(None);
        if let Some(timeout) = abort_timeout {
            let config = TcpConfig { abort_timeout: secs(timeout), ..plain() };
            lab.connection.set_config(Arc::new(config));
        }
        let start = lab.now;
        while lab.state() == State::Established {
            lab.now = lab.connection.due_unsent().expect("somebody waits");
            lab.rings(|connection, now, rings| connection.on_timer(now, rings));
        }
        assert_eq!(lab.now.saturating_since(start), secs(ends));
    }
}

/// What a reader of crumbs took says nothing of how fast the path is. Paced by that, the first segment behind it would keep the next one
/// for minutes.
#[test]
fn a_model_of_crumbs_keeps_nothing_for_minutes() {
    let flight = FlightConfig { algorithm: Algorithm::Bbr, ..FlightConfig::default() };
    let config = TcpConfig { sack: Willing::Active, flight, ..plain() };
    let options = TcpOptions { sack_permitted: true, ..TcpOptions::EMPTY };
    let mut lab = Lab::established_with(config, options, 10_000);
    lab.get(Peer::new(ACK, 1).win(40));
    lab.write(6000);
    for taken in 1..20 {
        lab.sent();
        assert!(!lab.wait(secs(2)).0.is_empty(), "crumb {taken}");
        lab.get(Peer::new(ACK, 1).acks(1 + 40 * taken).win(40));
    }
    lab.get(Peer::new(ACK, 1).acks(1 + 40 * 19).win(10_000));
    let count = lab.sent().len() + lab.wait(secs(2)).0.len();
    assert!(count >= 3, "{count} segments in two seconds");
}
