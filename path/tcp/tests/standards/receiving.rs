//! What is taken of what arrives, and how it is acknowledged (RFC 9293 §3.10.7.4, RFC 5681 §4.2, RFC 7323 §4.3).

use firelane_tcp::{CloseReason, State, TcpConfig};
use firelane_units::{Bytes, DropReason};
use firelane_wire::TcpOptions;

use crate::common::lab::{ACK, FIN, Lab, NOTHING, Peer, RST, ms, plain, secs};

/// RFC 9293 §3.10.7.4 step 5: without ACK the segment is dropped.
#[test]
fn text_without_an_acknowledgment_is_dropped() {
    let mut lab = Lab::established();
    let bare = Peer { ack: None, flags: firelane_wire::TcpFlags::EMPTY, ..Peer::new(ACK, 1) };
    assert_eq!(lab.get(bare.text(10)).dropped, Some(DropReason::Unacceptable));
    assert_eq!((lab.read(), lab.sent()), (0, vec![]));
}

fn stamped() -> Lab {
    let options = TcpOptions { timestamps: Some((500, 0)), ..TcpOptions::EMPTY };
    Lab::established_with(TcpConfig { timestamps: true, ..plain() }, options, 10_000)
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

#[test]
fn an_ack_waits_for_a_second_segment_or_40_ms() {
    let mut lab = Lab::established().past_quick_acks();
    lab.get(Peer::new(ACK, 2).acks(2).text(1000));
    assert_eq!(lab.sent(), NOTHING);
    lab.get(Peer::new(ACK, 1002).acks(2).text(1000));
    assert_eq!(lab.sent(), [". 2:2(0) ack 2002 win 7999"]);
    lab.get(Peer::new(ACK, 2002).acks(2).text(1000));
    assert_eq!(lab.sent(), NOTHING);
    assert_eq!(lab.wait(ms(50)).0, ["40 . 2:2(0) ack 3002 win 6999"]);
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

/// RFC 9293 MUST-26 from the other side: a keepalive probe is answered.
#[test]
fn a_probe_is_answered() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 0));
    assert_eq!(lab.sent(), [". 1:1(0) ack 1 win 10000"]);
}

#[test]
fn urgent_text_is_marked_on_the_way_out() {
    let mut lab = Lab::established();
    lab.write(5);
    lab.rings(|connection, _, rings| connection.mark_urgent(rings));
    assert_eq!(lab.sent(), ["PU. 1:6(5) ack 1 win 10000 urg 5"]);
}

/// RFC 9293 MUST-31: urgent text may be longer than the pointer can say; each of its segments points as far as it can.
#[test]
fn urgent_text_may_be_of_any_length() {
    const END: u32 = 70_001;
    let mut lab = Lab::established();
    lab.write(END as usize - 1);
    lab.rings(|connection, _, rings| connection.mark_urgent(rings));
    let mut seen = 1;
    while seen < END {
        let sent = lab.sent();
        assert!(!sent.is_empty(), "at {seen}");
        for line in sent {
            let (next, ahead) = (seen + 1_000, (END - seen).min(65_535));
            let push = if next == END { "P" } else { "" };
            assert_eq!(line, format!("{push}U. {seen}:{next}(1000) ack 1 win 10000 urg {ahead}"));
            seen = next;
        }
        lab.now += ms(50);
        lab.get(Peer::new(ACK, 1).acks(seen));
    }
    lab.write(5);
    assert_eq!(lab.sent(), ["P. 70001:70006(5) ack 1 win 10000"], "the next text is as any");
}

/// RFC 7323 §2.3: less than one unit of the window field cannot be said, and a window of nothing would never open.
#[test]
fn a_buffer_below_the_unit_of_the_window_still_receives() {
    let config = TcpConfig { window_scaling: true, ..plain() };
    let options = TcpOptions { window_scale: Some(0), ..TcpOptions::EMPTY };
    let mut lab = Lab::established_with(config, options, 10_000);
    assert_eq!(lab.connection.info(lab.now).window_scales, Some((0, 5)));
    lab.rings(|connection, _, rings| connection.set_receive_buffer(10, rings.recv));
    let mut at = 1;
    for round in 0..20 {
        let room = lab.connection.info(lab.now).receive_window.0.min(1000) as usize;
        assert!(room > 0, "a closed window in round {round}");
        lab.get(Peer::new(ACK, at).text(room));
        at += room as u32;
        assert_eq!(lab.read(), room);
        lab.sent();
        // All that was promised before is used up.
        lab.wait(secs(2));
    }
    assert_eq!(lab.connection.info(lab.now).receive_window, Bytes(32));
}
