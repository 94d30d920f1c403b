//! The ends of a connection (RFC 9293 §3.6, §3.10.4, §3.10.5; RFC 2525 §2.17).

use firelane_tcp::{CloseReason, Events, State};
use firelane_units::DropReason;
use firelane_wire::TcpOptions;

use crate::common::lab::{ACK, FIN, Lab, Peer, plain, reply};

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

/// RFC 9293 §3.10.5: who hears of an abort.
#[test]
fn an_abort_tells_the_peer_if_it_knows_of_us() {
    let mut opening = Lab::opening(plain());
    opening.sent();
    assert_eq!(reply(&opening.connection.abort(opening.now)), "");
    let mut answering = Lab::answering(plain(), TcpOptions::EMPTY);
    answering.sent();
    assert_eq!(reply(&answering.connection.abort(answering.now)), "R. 1:1(0) ack 1 win 0");
    let mut lab = Lab::established();
    lab.write(10);
    lab.sent();
    assert_eq!(reply(&lab.connection.abort(lab.now)), "R. 11:11(0) ack 1 win 0");
    assert_eq!((lab.sent(), lab.connection.abort(lab.now).closed), (vec![], None));
}
