//! Keepalive (RFC 9293 §3.8.4).

use firelane_tcp::{CloseReason, Keepalive};

use crate::common::lab::{ACK, Lab, NOTHING, Peer, reply, secs};

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

/// The time without a word counts from the last one, however long the interval is (Linux: `keepalive_time_elapsed`).
#[test]
fn the_first_question_comes_when_nothing_was_heard_for_so_long() {
    let mut lab = Lab::established();
    lab.connection.set_keepalive(lab.now, Some(Keepalive { idle: secs(10), interval: secs(75), probes: 3 }));
    lab.wait(secs(5));
    lab.get(Peer::new(ACK, 1));
    assert_eq!(lab.wait(secs(9)).0, NOTHING);
    // A second later, which is ten after the last word.
    assert_eq!(lab.wait(secs(2)).0, ["1000 . 0:0(0) ack 1 win 10000"]);
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
