//! The peer's window: kept, taken back, used when it is small (RFC 9293 §3.8.6).

use firelane_tcp::State;

use crate::common::lab::{ACK, Lab, NOTHING, Peer, SYN, ms, reply, secs};

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

/// Neither would a RST, and the peer would believe for ever to be connected.
#[test]
fn a_reset_and_a_challenge_stay_inside_a_window_that_shrank() {
    let mut lab = Lab::established();
    lab.write(2000);
    lab.sent();
    lab.get(Peer::new(ACK, 1).acks(1001).win(100));
    assert_eq!(reply(&lab.get(Peer::new(SYN, 1))), ". 1101:1101(0) ack 1 win 10000");
    let now = lab.now;
    assert_eq!(reply(&lab.connection.abort(now)), "R. 1101:1101(0) ack 1 win 0");
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
