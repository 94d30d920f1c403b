//! The clauses of the RFCs, one behaviour per test: the test plays the peer and the clock.

mod common;

use std::time::Duration;

use common::lab::{ACK, FIN, Lab, Peer, RST, SYN, URG, plain, reply};
use firelane_tcp::{CloseReason, Events, Keepalive, State, TcpConfig};
use firelane_units::DropReason;
use firelane_wire::TcpOptions;

const NOTHING: [&str; 0] = [];

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

// The handshake.

#[test]
fn a_syn_offers_everything_in_one_go() {
    let mut lab = Lab::opening(TcpConfig::default());
    assert_eq!(lab.sent(), ["S 0:0(0) mss 1000 sackOK ts 100000 0 ws 5"]);
}

#[test]
fn a_syn_ack_repeats_only_what_was_offered() {
    let options = TcpOptions { mss: Some(1000), ..TcpOptions::EMPTY };
    let all = TcpOptions { window_scale: Some(3), sack_permitted: true, timestamps: Some((9, 0)), ..options };
    for (offer, answer) in [
        (options, "S. 0:0(0) ack 1 win 10000 mss 1000"),
        (all, "S. 0:0(0) ack 1 win 10000 mss 1000 sackOK ts 100000 9 ws 5"),
        (TcpOptions { timestamps: None, ..all }, "S. 0:0(0) ack 1 win 10000 mss 1000 sackOK ws 5"),
        (TcpOptions { window_scale: None, ..all }, "S. 0:0(0) ack 1 win 10000 mss 1000 sackOK ts 100000 9"),
    ] {
        assert_eq!(Lab::answering(TcpConfig::default(), offer).sent(), [answer]);
    }
}

/// RFC 9293 §3.10.7.3.
#[test]
fn segments_in_syn_sent() {
    use CloseReason::Refused;
    use State::{Closed, Established, SynReceived, SynSent};
    let syn_ack = SYN.with(ACK);
    for (peer, answer, state, closed) in [
        (Peer::new(syn_ack, 0).acks(1), "", Established, None),
        (Peer::new(SYN, 0), "", SynReceived, None),
        (Peer::new(syn_ack, 0).acks(2), "R 2:2(0)", SynSent, None),
        (Peer::new(syn_ack, 0).acks(0), "R 0:0(0)", SynSent, None),
        (Peer::new(ACK, 0).acks(9), "R 9:9(0)", SynSent, None),
        (Peer::new(ACK, 0).acks(1), "", SynSent, None),
        (Peer::new(RST.with(ACK), 0).acks(1), "", Closed, Some(Refused)),
        (Peer::new(RST.with(ACK), 0).acks(2), "", SynSent, None),
        (Peer::new(RST, 0), "", SynSent, None),
        (Peer::new(FIN, 0).acks(1), "", SynSent, None),
    ] {
        let mut lab = Lab::opening(plain());
        assert_eq!(lab.sent(), ["S 0:0(0) mss 1000"]);
        let out = lab.get(peer);
        assert_eq!((reply(&out).as_str(), lab.state(), out.closed), (answer, state, closed), "{peer:?}");
    }
}

#[test]
fn a_syn_ack_is_acknowledged_at_once_and_may_carry_text() {
    let mut lab = Lab::opening(plain());
    lab.sent();
    let out = lab.get(Peer::new(SYN.with(ACK), 0).acks(1).text(5));
    assert_eq!(out.events, Events::CONNECTED | Events::WRITABLE | Events::READABLE);
    assert_eq!(lab.sent(), [". 1:1(0) ack 6 win 9995"]);
}

/// RFC 6298 §5 and RFC 9293 MUST-23: at least three minutes.
#[test]
fn an_unanswered_syn_is_repeated_with_back_off_and_given_up() {
    let mut lab = Lab::opening(plain());
    lab.sent();
    let (lines, told) = lab.wait(secs(400));
    let at: Vec<&str> = lines.iter().map(|line| line.split(' ').next().expect("a time")).collect();
    assert_eq!(at, ["1000", "3000", "7000", "15000", "31000", "63000", "123000"]);
    assert_eq!((told.closed, told.reply), (Some(CloseReason::TimedOut), None));
    assert_eq!(lab.now.saturating_since(firelane_units::Instant::from_secs(100)), secs(400));
}

/// RFC 9293 §3.10.7.4 in SYN-RECEIVED.
#[test]
fn segments_in_syn_received() {
    use State::{Closed, Established, SynReceived};
    for (peer, answer, then, state) in [
        (Peer::new(ACK, 1), "", &[][..], Established),
        (Peer::new(ACK, 1).acks(2), "R 2:2(0)", &[], SynReceived),
        (Peer::new(SYN, 0), "", &["S. 0:0(0) ack 1 win 10000 mss 1000"], SynReceived),
        (Peer::new(SYN, 5), ". 1:1(0) ack 1 win 10000", &[], SynReceived),
        (Peer::new(RST, 1), "", &[], Closed),
        (Peer::new(RST, 2), ". 1:1(0) ack 1 win 10000", &[], SynReceived),
        (Peer::new(RST, 20_000), "", &[], SynReceived),
        (Peer::new(FIN, 1), "", &[], State::CloseWait),
    ] {
        let mut lab = Lab::answering(plain(), TcpOptions::EMPTY);
        lab.sent();
        let out = lab.get(peer);
        assert_eq!((reply(&out).as_str(), lab.state()), (answer, state), "{peer:?}");
        if state == SynReceived {
            assert_eq!(lab.sent(), then, "{peer:?}");
        }
    }
}

#[test]
fn a_peer_without_an_mss_gets_the_default() {
    let mut lab = Lab::answering(plain(), TcpOptions::EMPTY);
    lab.sent();
    lab.get(Peer::new(ACK, 1));
    lab.write(600);
    assert_eq!(lab.sent(), [". 1:537(536) ack 1 win 10000", "P. 537:601(64) ack 1 win 10000"]);
}

/// CVE-2019-11479: a tiny MSS is raised to the floor.
#[test]
fn t03_a_tiny_mss_is_not_obeyed() {
    let mut lab = Lab::answering(plain(), TcpOptions { mss: Some(1), ..TcpOptions::EMPTY });
    lab.sent();
    lab.get(Peer::new(ACK, 1));
    lab.write(100);
    assert_eq!(lab.sent(), [". 1:89(88) ack 1 win 10000", "P. 89:101(12) ack 1 win 10000"]);
}

// RFC 5961: blind attacks.

#[test]
fn s01_a_reset_counts_only_exactly() {
    let challenge = ". 1:1(0) ack 1 win 10000";
    for (seq, answer, state) in [
        (1, "", State::Closed),
        (2, challenge, State::Established),
        (9_999, challenge, State::Established),
        (10_001, "", State::Established),
        (0, "", State::Established),
    ] {
        let mut lab = Lab::established();
        let out = lab.get(Peer::new(RST, seq));
        assert_eq!((reply(&out).as_str(), lab.state()), (answer, state), "{seq}");
        assert_eq!(out.events.contains(Events::CHALLENGE), !answer.is_empty());
        assert_eq!(out.closed, (state == State::Closed).then_some(CloseReason::Reset));
        assert_eq!(lab.sent(), NOTHING);
    }
}

#[test]
fn s02_a_syn_earns_a_challenge_and_no_more_than_one() {
    let mut lab = Lab::established();
    let out = lab.get(Peer::new(SYN, 1));
    assert_eq!(reply(&out), ". 1:1(0) ack 1 win 10000");
    assert_eq!(lab.get(Peer::new(SYN, 2)).reply, None);
    lab.wait(ms(500));
    assert!(lab.get(Peer::new(SYN.with(ACK), 2)).reply.is_some());
    assert_eq!(lab.state(), State::Established);
}

#[test]
fn s03_an_acknowledgment_out_of_range_takes_its_text_along() {
    for (ack, taken) in [(2, false), (1, true), (u32::MAX - 20_000, false), (0, true)] {
        let mut lab = Lab::established();
        let out = lab.get(Peer::new(ACK, 1).acks(ack).text(10));
        assert_eq!(lab.read(), if taken { 10 } else { 0 }, "{ack}");
        assert_eq!(out.reply.is_some(), !taken, "{ack}");
    }
}

/// RFC 9293 §3.10.7.4 step 5: without ACK the segment is dropped.
#[test]
fn text_without_an_acknowledgment_is_dropped() {
    let mut lab = Lab::established();
    let bare = Peer { ack: None, flags: firelane_wire::TcpFlags::EMPTY, ..Peer::new(ACK, 1) };
    assert_eq!(lab.get(bare.text(10)).dropped, Some(DropReason::Unacceptable));
    assert_eq!((lab.read(), lab.sent()), (0, vec![]));
}

// RFC 7323.

fn stamped() -> Lab {
    let options = TcpOptions { timestamps: Some((500, 0)), ..TcpOptions::EMPTY };
    Lab::established_with(TcpConfig { timestamps: true, ..plain() }, options, 10_000)
}

#[test]
fn s07_an_old_timestamp_is_dropped_and_answered() {
    let mut lab = stamped();
    let out = lab.get(Peer::new(ACK, 1).text(10).stamps(499, 0));
    assert_eq!(out.dropped, Some(DropReason::OldTimestamp));
    assert_eq!(lab.sent(), [". 1:1(0) ack 1 win 10000 ts 100000 500"]);
    assert_eq!(lab.get(Peer::new(ACK, 1).text(10)).dropped, Some(DropReason::OldTimestamp));
    assert_eq!(lab.sent(), NOTHING);
    lab.get(Peer::new(ACK, 1).text(10).stamps(501, 0));
    assert_eq!(lab.sent(), [". 1:1(0) ack 11 win 9990 ts 100000 501"]);
}

#[test]
fn s07_after_24_days_any_timestamp_is_new() {
    let mut lab = stamped();
    lab.wait(secs(24 * 86_400 + 1));
    assert_eq!(lab.get(Peer::new(ACK, 1).text(10).stamps(1, 0)).dropped, None);
}

#[test]
fn a_reset_needs_no_timestamp() {
    assert_eq!(stamped().get(Peer::new(RST, 1)).closed, Some(CloseReason::Reset));
}

/// RFC 7323 §4.3: a segment that came ahead does not move the echo.
#[test]
fn the_echo_is_of_the_segment_that_the_ack_answers() {
    let mut lab = stamped();
    lab.get(Peer::new(ACK, 101).text(10).stamps(510, 0));
    assert_eq!(lab.sent(), [". 1:1(0) ack 1 win 10000 ts 100000 500"]);
    lab.get(Peer::new(ACK, 1).text(100).stamps(520, 0));
    assert_eq!(lab.sent(), [". 1:1(0) ack 111 win 9890 ts 100000 520"]);
}

// Receiving.

#[test]
fn an_ack_waits_for_a_second_segment_or_40_ms() {
    let mut lab = Lab::established().past_quick_acks();
    lab.get(Peer::new(ACK, 2).acks(2).text(1000));
    assert_eq!(lab.sent(), NOTHING);
    assert_eq!(lab.wait(ms(50)).0, ["40 . 2:2(0) ack 1002 win 8999"]);
    lab.get(Peer::new(ACK, 1002).acks(2).text(1000));
    assert_eq!(lab.sent(), NOTHING);
    lab.get(Peer::new(ACK, 2002).acks(2).text(1000));
    assert_eq!(lab.sent(), [". 2:2(0) ack 3002 win 6999"]);
}

#[test]
fn text_ahead_is_acknowledged_at_once_and_reported() {
    let options = TcpOptions { sack_permitted: true, ..TcpOptions::EMPTY };
    let mut lab = Lab::established_with(TcpConfig { sack: true.into(), ..plain() }, options, 10_000);
    lab.get(Peer::new(ACK, 11).text(10));
    assert_eq!(lab.sent(), [". 1:1(0) ack 1 win 10000 sack 11:21"]);
    lab.get(Peer::new(ACK, 31).text(10));
    assert_eq!(lab.sent(), [". 1:1(0) ack 1 win 10000 sack 31:41 sack 11:21"]);
    lab.get(Peer::new(ACK, 1).text(10));
    assert_eq!(lab.sent(), [". 1:1(0) ack 21 win 9980 sack 31:41"]);
    lab.get(Peer::new(ACK, 11).text(30));
    assert_eq!((lab.sent(), lab.read()), (vec![". 1:1(0) ack 41 win 9960 sack 11:21".to_string()], 40));
}

/// RFC 2883 §4: an old duplicate is named.
#[test]
fn a_duplicate_is_reported() {
    let options = TcpOptions { sack_permitted: true, ..TcpOptions::EMPTY };
    let mut lab = Lab::established_with(TcpConfig { sack: true.into(), ..plain() }, options, 10_000);
    lab.get(Peer::new(ACK, 1).text(10));
    lab.sent();
    lab.get(Peer::new(ACK, 1).text(10));
    assert_eq!(lab.sent(), [". 1:1(0) ack 11 win 9990 sack 1:11"]);
}

/// RFC 5681 §3.2: without SACK the peer counts, so three segments ahead in one turn are three duplicates.
#[test]
fn duplicates_are_not_merged_without_sack() {
    let mut lab = Lab::established();
    for seq in [11, 21, 31] {
        lab.get(Peer::new(ACK, seq).text(10));
    }
    assert_eq!(lab.sent(), [". 1:1(0) ack 1 win 10000"; 3]);
}

#[test]
fn a_filled_hole_is_one_acknowledgment() {
    let mut lab = Lab::established();
    for seq in [11, 21, 31, 1] {
        lab.get(Peer::new(ACK, seq).text(10));
    }
    assert_eq!(lab.sent(), [". 1:1(0) ack 41 win 9960"]);
}

/// RFC 7323 §4.3: when an ACK stands for several segments, the echo is of the first of them.
#[test]
fn the_echo_of_a_delayed_ack_is_the_oldest() {
    let mut lab = stamped();
    lab.get(Peer::new(ACK, 1).text(10).stamps(510, 0));
    lab.get(Peer::new(ACK, 11).text(10).stamps(520, 0));
    assert_eq!(lab.sent(), [". 1:1(0) ack 21 win 9980 ts 100000 510"]);
}

/// A ring that is made smaller takes nothing that it has no room for, whatever was promised.
#[test]
fn a_smaller_ring_drops_what_it_cannot_hold() {
    let mut lab = Lab::established();
    lab.rings(|_, _, rings| rings.recv.set_capacity(100));
    lab.get(Peer::new(ACK, 1).text(1000));
    assert_eq!((lab.read(), lab.sent()), (100, vec![". 1:1(0) ack 101 win 9900".to_string()]));
}

/// Nothing lies behind a FIN.
#[test]
fn text_behind_a_fin_is_not_taken() {
    let mut lab = Lab::established();
    lab.get(Peer::new(FIN, 11).text(10));
    lab.get(Peer::new(ACK, 16).text(100));
    lab.get(Peer::new(ACK, 1).text(200));
    assert_eq!((lab.read(), lab.state()), (20, State::CloseWait));
}

/// S13: the first copy wins.
#[test]
fn s13_an_overlap_does_not_change_what_arrived() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 11).text(10));
    // `Peer` fills text by its number, so a shifted copy would be seen by `read`.
    lab.get(Peer::new(ACK, 6).text(10));
    lab.get(Peer::new(ACK, 1).text(30));
    assert_eq!(lab.read(), 30);
}

#[test]
fn text_beyond_the_window_is_cut_off() {
    let mut lab = Lab::established_with(plain(), TcpOptions::EMPTY, 100);
    lab.get(Peer::new(ACK, 51).text(100));
    lab.get(Peer::new(ACK, 1).text(60));
    assert_eq!((lab.sent(), lab.read()), (vec![". 1:1(0) ack 101 win 0".to_string()], 100));
    let out = lab.get(Peer::new(ACK, 202).text(1));
    assert_eq!(out.dropped, Some(DropReason::OutOfWindow));
}

/// RFC 9293 §3.8.6.2.2: the window opens by half the ring or a segment, not by a byte.
#[test]
fn a_window_does_not_open_by_crumbs() {
    let mut lab = Lab::established_with(plain(), TcpOptions::EMPTY, 1000);
    lab.get(Peer::new(ACK, 1).text(1000));
    assert_eq!(lab.sent(), [". 1:1(0) ack 1001 win 0"]);
    let read = |lab: &mut Lab, len: usize| {
        lab.reader.release(len);
        lab.rings(|connection, now, rings| connection.window_opened(now, rings));
        lab.sent()
    };
    assert_eq!(read(&mut lab, 499), NOTHING);
    assert_eq!(read(&mut lab, 1), [". 1:1(0) ack 1001 win 500"]);
}

/// S05 and RFC 9293 step 1: an unacceptable segment is answered, an endless row of empty ones is not.
#[test]
fn s05_no_ack_storm() {
    let mut lab = Lab::established();
    let answers = (0..10).map(|_| {
        lab.get(Peer::new(ACK, 50_000));
        lab.sent().len()
    });
    assert_eq!(answers.sum::<usize>(), 1);
}

/// RFC 9293 MUST-26 from the other side: a keepalive probe is answered.
#[test]
fn a_probe_is_answered() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 0));
    assert_eq!(lab.sent(), [". 1:1(0) ack 1 win 10000"]);
}

/// T06: the urgent pointer only names a place; the text stays in the stream.
#[test]
fn t06_urgent_text() {
    let mut lab = Lab::established();
    let urgent = |at, seq, text| Peer { urgent: at, ..Peer::new(URG, seq).text(text) };
    assert!(lab.get(urgent(5, 1, 5)).events.contains(Events::URGENT));
    assert_eq!(lab.connection.urgent_mark(), Some(5));
    assert!(!lab.get(urgent(0, 6, 1)).events.contains(Events::URGENT), "a pointer of zero");
    assert!(!lab.get(urgent(5, 1, 5)).events.contains(Events::URGENT), "an old one");
    assert!(lab.get(urgent(u16::MAX, 7, 1)).events.contains(Events::URGENT), "beyond what is here");
    assert_eq!(lab.read(), 7);
}

#[test]
fn urgent_text_is_marked_on_the_way_out() {
    let mut lab = Lab::established();
    lab.write(5);
    lab.rings(|connection, _, rings| connection.mark_urgent(rings));
    assert_eq!(lab.sent(), ["PU. 1:6(5) ack 1 win 10000 urg 5"]);
}

// Sending.

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

/// RFC 9293 §3.8.6: nothing beyond the window, and MUST-34: a window that is taken back hurts nobody.
#[test]
fn the_peers_window_is_kept() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 1).win(1500));
    lab.write(3000);
    assert_eq!(lab.sent(), [". 1:1001(1000) ack 1 win 10000"]);
    lab.get(Peer::new(ACK, 1).acks(1001).win(100));
    assert_eq!(lab.sent(), NOTHING);
    lab.get(Peer::new(ACK, 1).acks(1001).win(2000));
    assert_eq!(lab.sent(), [". 1001:2001(1000) ack 1 win 10000", "P. 2001:3001(1000) ack 1 win 10000"]);
    lab.get(Peer::new(ACK, 1).acks(1001).win(0));
    lab.get(Peer::new(ACK, 1).acks(3001).win(0));
    assert_eq!((lab.sent(), lab.state()), (vec![], State::Established));
}

/// RFC 9293 §3.10.7.4: an older segment does not change the window (SND.WL1, SND.WL2).
#[test]
fn an_old_window_does_not_count() {
    let mut lab = Lab::established();
    lab.write(2000);
    lab.sent();
    lab.get(Peer::new(ACK, 1).acks(2001).win(5000));
    lab.get(Peer::new(ACK, 1).acks(1001).win(0));
    lab.write(1000);
    assert_eq!(lab.sent(), ["P. 2001:3001(1000) ack 1 win 10000"]);
}

/// SND.WL1: segments that change places do not change the window back.
#[test]
fn the_newest_window_counts() {
    let mut lab = Lab::established();
    lab.write(100);
    lab.get(Peer::new(ACK, 11).text(10).win(0));
    lab.get(Peer::new(ACK, 1).text(10).win(5000));
    assert_eq!(lab.sent(), [". 1:1(0) ack 21 win 9980"]);
}

/// A segment beyond a window that was taken back would not be acceptable, and its ACK would be lost.
#[test]
fn an_ack_stays_inside_a_window_that_shrank() {
    let mut lab = Lab::established();
    lab.write(2000);
    lab.sent();
    lab.get(Peer::new(ACK, 1).acks(1001).win(100));
    lab.get(Peer::new(ACK, 1).acks(1001).win(100).text(10));
    assert_eq!(lab.sent(), [". 1101:1101(0) ack 11 win 9990"]);
}

#[test]
fn a_fin_needs_room_in_the_window() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 1).win(100));
    lab.write(100);
    lab.shutdown();
    assert_eq!(lab.sent(), ["P. 1:101(100) ack 1 win 10000"]);
    lab.get(Peer::new(ACK, 1).acks(101).win(0));
    assert_eq!(lab.sent(), NOTHING);
    lab.get(Peer::new(ACK, 1).acks(101).win(1));
    assert_eq!(lab.sent(), ["F. 101:101(0) ack 1 win 10000"]);
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

/// While something is in flight its own timer keeps the connection awake; a closed window asks for no probes.
#[test]
fn probes_do_not_mix_with_retransmissions() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 1).win(1000));
    lab.write(5000);
    lab.sent();
    let (lines, _) = lab.wait(secs(5));
    assert!(lines.len() > 2 && lines.iter().all(|line| line.contains("1:1001(1000)")), "{lines:?}");
}

/// The override is for one segment: what the next small window admits waits again.
#[test]
fn a_silly_window_is_used_once_per_time_out() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 1).win(10));
    lab.write(100);
    lab.sent();
    assert_eq!(lab.wait(ms(250)).0, ["200 . 1:11(10) ack 1 win 10000"]);
    lab.get(Peer::new(ACK, 1).acks(11).win(10));
    assert_eq!(lab.sent(), NOTHING);
    assert_eq!(lab.wait(ms(250)).0, ["206 . 11:21(10) ack 1 win 10000"], "the time-out has seen 50 ms");
    lab.get(Peer::new(ACK, 1).acks(21).win(0));
    assert_eq!(lab.sent(), NOTHING);
    assert_eq!(lab.wait(ms(250)).0.len(), 1, "progress takes the back-off back");
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

/// MUST-36 and MUST-37: a closed window is probed for ever while the peer answers.
#[test]
fn s11_a_closed_window_is_probed_with_back_off() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 1).win(0));
    lab.write(100);
    assert_eq!(lab.sent(), NOTHING);
    let mut last = 0;
    for round in 0..40 {
        let (lines, told) = lab.wait(secs(61));
        assert!(!lines.is_empty() && told.closed.is_none(), "round {round}");
        assert!(lines.iter().all(|line| line.ends_with(". 0:0(0) ack 1 win 10000")), "{lines:?}");
        last = lines.len();
        lab.get(Peer::new(ACK, 1).win(0));
    }
    assert!((1..=2).contains(&last), "the probes end up a minute apart: {last}");
    lab.get(Peer::new(ACK, 1).win(100));
    assert_eq!(lab.sent(), ["P. 1:101(100) ack 1 win 10000"]);
}

#[test]
fn s11_a_silent_peer_with_a_closed_window_is_given_up() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 1).win(0));
    lab.write(100);
    lab.sent();
    let (_, told) = lab.wait(secs(600));
    assert_eq!(told.closed, Some(CloseReason::TimedOut));
    assert_eq!(reply(&told), "R. 1:1(0) ack 1 win 0");
}

/// RFC 9293 §3.8.6.2.1: a small window is used when nothing else can be done.
#[test]
fn s11_a_silly_window_is_used_at_last() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 1).win(10));
    lab.write(100);
    assert_eq!(lab.sent(), NOTHING);
    assert_eq!(lab.wait(ms(300)).0, ["200 . 1:11(10) ack 1 win 10000"]);
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

// Keepalive.

/// RFC 9293 §3.8.4.
#[test]
fn keepalive_asks_and_gives_up() {
    let mut lab = Lab::established();
    lab.connection.set_keepalive(lab.now, Some(Keepalive { idle: secs(10), interval: secs(2), probes: 3 }));
    assert_eq!(lab.wait(secs(10)).0, ["10000 . 0:0(0) ack 1 win 10000"]);
    lab.get(Peer::new(ACK, 1));
    assert_eq!(lab.wait(secs(9)).0, NOTHING);
    let (lines, told) = lab.wait(secs(20));
    assert_eq!(lines.len(), 3);
    assert_eq!((told.closed, reply(&told).as_str()), (Some(CloseReason::TimedOut), "R. 1:1(0) ack 1 win 0"));
}

/// Retransmission asks the same question.
#[test]
fn no_keepalive_while_text_is_unacknowledged() {
    let mut lab = Lab::established();
    lab.connection.set_keepalive(lab.now, Some(Keepalive { idle: secs(1), interval: secs(1), probes: 3 }));
    lab.write(10);
    lab.sent();
    let (lines, told) = lab.wait(secs(60));
    assert!(lines.iter().all(|line| line.contains("1:11(10)")), "{lines:?}");
    assert_eq!(told.closed, None);
}

/// MUST-24, MUST-25: not unless asked for.
#[test]
fn no_keepalive_by_itself() {
    let mut lab = Lab::established();
    let (lines, told) = lab.wait(secs(100_000));
    assert_eq!((lines.len(), told.closed), (0, None));
    assert_eq!(lab.connection.poll_at(), None);
}

// The ends.

#[test]
fn we_close_first() {
    let mut lab = Lab::established();
    lab.write(10);
    lab.shutdown();
    assert_eq!(lab.state(), State::FinWait1);
    assert_eq!(lab.sent(), ["FP. 1:11(10) ack 1 win 10000"]);
    lab.get(Peer::new(ACK, 1).acks(12));
    assert_eq!(lab.state(), State::FinWait2);
    let out = lab.get(Peer::new(FIN, 1).acks(12));
    assert!(out.events.contains(Events::TIME_WAIT | Events::PEER_CLOSED));
    assert_eq!((lab.state(), lab.sent()), (State::TimeWait, vec![". 12:12(0) ack 2 win 9999".to_string()]));
}

#[test]
fn the_peer_closes_first() {
    let mut lab = Lab::established();
    assert!(lab.get(Peer::new(FIN, 1).text(5)).events.contains(Events::PEER_CLOSED | Events::READABLE));
    assert_eq!((lab.state(), lab.sent()), (State::CloseWait, vec![". 1:1(0) ack 7 win 9994".to_string()]));
    assert_eq!(lab.read(), 5);
    lab.close();
    assert_eq!((lab.state(), lab.sent()), (State::LastAck, vec!["F. 1:1(0) ack 7 win 9994".to_string()]));
    let out = lab.get(Peer::new(ACK, 7).acks(2));
    assert_eq!((out.closed, lab.connection.poll_at()), (Some(CloseReason::Finished), None));
}

#[test]
fn a_fin_ahead_waits_for_its_turn() {
    let mut lab = Lab::established();
    assert!(!lab.get(Peer::new(FIN, 11).text(10)).events.contains(Events::PEER_CLOSED));
    assert_eq!(lab.state(), State::Established);
    assert!(lab.get(Peer::new(ACK, 1).text(10)).events.contains(Events::PEER_CLOSED));
    assert_eq!((lab.state(), lab.read()), (State::CloseWait, 20));
    assert_eq!(lab.sent(), [". 1:1(0) ack 22 win 9979"]);
}

/// S06: a blind FIN at another place neither moves nor ends the stream.
#[test]
fn s06_a_second_fin_elsewhere_is_ignored() {
    let mut lab = Lab::established();
    lab.get(Peer::new(FIN, 11).text(10));
    lab.get(Peer::new(FIN, 31).text(10));
    lab.get(Peer::new(ACK, 1).text(10));
    assert_eq!((lab.state(), lab.read()), (State::CloseWait, 20));
}

/// S06: text that is already here is not cut off by a FIN before it.
#[test]
fn s06_a_fin_before_text_is_ignored() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 7).text(10));
    lab.get(Peer::new(FIN, 1).text(5));
    assert_eq!((lab.state(), lab.read()), (State::Established, 5));
    lab.get(Peer::new(ACK, 6).text(1));
    assert_eq!((lab.state(), lab.read()), (State::Established, 11));
}

/// SHLD-3, RFC 2525 §2.17.
#[test]
fn closing_with_unread_text_is_a_reset() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 1).text(5));
    let out = lab.close();
    assert_eq!((reply(&out).as_str(), out.closed), ("R. 1:1(0) ack 6 win 0", Some(CloseReason::Aborted)));
}

#[test]
fn text_after_close_is_a_reset() {
    let mut lab = Lab::established();
    lab.close();
    lab.sent();
    let out = lab.get(Peer::new(ACK, 1).text(5).acks(2));
    assert_eq!((reply(&out).as_str(), out.closed), ("R. 2:2(0) ack 1 win 0", Some(CloseReason::Aborted)));
    assert_eq!(out.dropped, Some(DropReason::NoReader));
}

/// S10: only an orphan is timed.
#[test]
fn s10_fin_wait_2_ends_if_nobody_reads() {
    for (orphan, closed) in [(true, Some(CloseReason::Finished)), (false, None)] {
        let mut lab = Lab::established();
        if orphan {
            lab.close();
        } else {
            lab.shutdown();
        }
        lab.sent();
        lab.get(Peer::new(ACK, 1).acks(2));
        assert_eq!(lab.state(), State::FinWait2);
        assert_eq!(lab.wait(secs(59)).1.closed, None);
        assert_eq!(lab.wait(secs(2)).1.closed, closed);
    }
}

#[test]
fn closing_while_connecting() {
    let mut lab = Lab::opening(plain());
    lab.sent();
    let out = lab.close();
    assert_eq!((out.closed, out.reply), (Some(CloseReason::Finished), None));
    // In SYN-RECEIVED the FIN waits for the ACK.
    let mut lab = Lab::answering(plain(), TcpOptions::EMPTY);
    lab.sent();
    lab.shutdown();
    assert_eq!((lab.state(), lab.sent()), (State::SynReceived, vec![]));
    lab.get(Peer::new(ACK, 1));
    assert_eq!((lab.state(), lab.sent()), (State::FinWait1, vec!["F. 1:1(0) ack 1 win 10000".to_string()]));
}

/// RFC 9293 §3.10.5: who hears of an abort.
#[test]
fn an_abort_tells_the_peer_if_it_knows_of_us() {
    let mut opening = Lab::opening(plain());
    opening.sent();
    assert_eq!(reply(&opening.connection.abort()), "");
    let mut answering = Lab::answering(plain(), TcpOptions::EMPTY);
    answering.sent();
    assert_eq!(reply(&answering.connection.abort()), "R. 1:1(0) ack 1 win 0");
    let mut lab = Lab::established();
    lab.write(10);
    lab.sent();
    assert_eq!(reply(&lab.connection.abort()), "R. 11:11(0) ack 1 win 0");
    assert_eq!((lab.sent(), lab.connection.abort().closed), (vec![], None));
}

// RFC 5927.

#[test]
fn an_icmp_error_ends_only_an_attempt_to_connect() {
    let quoted = |ahead| firelane_units::SeqNum(u32::MAX - 500) + ahead;
    for (seq, hard, closed) in [(0, true, Some(CloseReason::Unreachable)), (0, false, None), (1, true, None)]
    {
        let mut lab = Lab::opening(plain());
        lab.sent();
        assert_eq!(lab.connection.on_unreachable(quoted(seq), hard).closed, closed);
    }
    let mut lab = Lab::established();
    lab.write(10);
    lab.sent();
    assert_eq!(lab.connection.on_unreachable(quoted(1), true).closed, None);
    assert!(lab.connection.has_in_flight(quoted(1)) && lab.connection.has_in_flight(quoted(10)));
    assert!(!lab.connection.has_in_flight(quoted(0)) && !lab.connection.has_in_flight(quoted(11)));
}

#[test]
fn a_smaller_path_makes_smaller_segments() {
    let mut lab = Lab::established();
    lab.connection.set_path_mss(firelane_units::Mss::clamped(500));
    lab.write(1000);
    assert_eq!(lab.sent(), [". 1:501(500) ack 1 win 10000", "P. 501:1001(500) ack 1 win 10000"]);
}

/// RFC 8201 §5.4: what was too long goes again in smaller segments, one and then slow start; the window stays.
#[test]
fn a_path_that_shrinks_gets_everything_again_in_smaller_segments() {
    let mut lab = Lab::established();
    lab.write(3000);
    assert_eq!(lab.sent().len(), 3);
    let window = lab.connection.info(lab.now).congestion_window;
    lab.connection.set_path_mss(firelane_units::Mss::clamped(500));
    assert_eq!(lab.sent(), [". 1:501(500) ack 1 win 10000"]);
    lab.get(Peer::new(ACK, 1).acks(501));
    assert_eq!(lab.sent(), [". 501:1001(500) ack 1 win 10000", ". 1001:1501(500) ack 1 win 10000"]);
    lab.get(Peer::new(ACK, 1).acks(1501));
    let rest = ["1501:2001", "2001:2501", "2501:3001"];
    assert_eq!(lab.sent().len(), rest.len());
    lab.get(Peer::new(ACK, 1).acks(3001));
    let info = lab.connection.info(lab.now);
    assert_eq!((info.slow_start_threshold, info.lost), (Some(window), firelane_units::Bytes::ZERO));
    assert_eq!(lab.sent(), Vec::<String>::new());
}

/// Segments that fit the smaller path are none of its business.
#[test]
fn a_path_that_shrinks_leaves_short_segments_alone() {
    let mut lab = Lab::established();
    lab.write(400);
    assert_eq!(lab.sent().len(), 1);
    lab.connection.set_path_mss(firelane_units::Mss::clamped(500));
    assert_eq!((lab.sent(), lab.connection.info(lab.now).lost), (vec![], firelane_units::Bytes::ZERO));
}

/// An idle connection holds no ring memory.
#[test]
fn silence_gives_the_memory_back() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 1).text(100));
    lab.write(100);
    lab.sent();
    lab.get(Peer::new(ACK, 101).acks(101));
    assert_eq!(lab.read(), 100);
    assert!(lab.reader.attached_bytes() > 0 && lab.writer.attached_bytes() > 0);
    lab.wait(secs(3));
    assert_eq!((lab.reader.attached_bytes(), lab.writer.attached_bytes()), (0, 0));
    assert_eq!(lab.connection.poll_at(), None);
}

// TCP_INFO.

/// A word of `struct tcp_info`, by its offset in include/uapi/linux/tcp.h.
fn info_word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[test]
fn tcp_info_tells_what_happened() {
    let mut lab = Lab::established();
    let around = firelane_tcp::Surroundings {
        path_mtu: firelane_units::Mtu::ETHERNET,
        unsent: firelane_units::Bytes(77),
        receive_buffer: firelane_units::Bytes(10_000),
    };
    lab.get(Peer::new(ACK, 1).text(100));
    lab.get(Peer::new(ACK, 201).text(100));
    lab.write(3000);
    lab.sent();
    lab.get(Peer::new(ACK, 101).acks(1001));
    lab.wait(secs(2));
    let info = lab.connection.info(lab.now);
    let bytes = info.tcp_info(&around);
    let byte = |at: usize| bytes[at];
    let word = |at| info_word(&bytes, at);
    // tcpi_state, tcpi_ca_state, tcpi_retransmits, tcpi_backoff.
    assert_eq!((byte(0), byte(1), byte(2), byte(4)), (1, 4, info.timeouts, info.backoff));
    assert!(info.timeouts > 0 && word(8) >= 1_000_000, "tcpi_rto, doubled");
    // tcpi_snd_mss, tcpi_unacked, tcpi_lost, tcpi_retrans.
    assert_eq!((word(16), word(24)), (1000, 2));
    assert_eq!(word(28) + word(32) + word(36), 2, "tcpi_sacked, tcpi_lost, tcpi_retrans");
    // tcpi_pmtu, tcpi_snd_cwnd, tcpi_advmss.
    assert_eq!((word(60), word(80), word(84)), (1500, 1, u32::from(info.receive_mss.bytes())));
    assert_eq!(word(100), u32::from(info.timeouts), "tcpi_total_retrans");
    // tcpi_bytes_acked and tcpi_bytes_received, of 64 bits.
    assert_eq!((word(120), word(128)), (1000, 100));
    // tcpi_segs_in, tcpi_data_segs_in, tcpi_rcv_ooopack.
    assert_eq!((word(140) - word(152), word(152), word(224)), (word(140) - 2, 2, 1));
    assert_eq!(word(156), 3 + u32::from(info.timeouts), "tcpi_data_segs_out");
    assert_eq!((word(144), word(236)), (77, 0), "tcpi_notsent_bytes, tcpi_rehash");
    // tcpi_bytes_sent and tcpi_bytes_retrans.
    assert_eq!((word(200), word(208)), (3000 + 1000 * word(100), 1000 * word(100)));
    assert_eq!((word(228), word(232)), (info.send_window.0 as u32, info.receive_window.0 as u32));
}

#[test]
fn tcp_info_of_a_new_connection() {
    let lab = Lab::established();
    let around = firelane_tcp::Surroundings {
        path_mtu: firelane_units::Mtu::ETHERNET,
        unsent: firelane_units::Bytes::ZERO,
        receive_buffer: firelane_units::Bytes(10_000),
    };
    let bytes = lab.connection.info(lab.now).tcp_info(&around);
    assert_eq!(bytes.len(), 240);
    assert_eq!(info_word(&bytes, 76), 0x7fff_ffff, "tcpi_snd_ssthresh");
    assert_eq!((info_word(&bytes, 24), info_word(&bytes, 100), info_word(&bytes, 88)), (0, 0, 3));
}
