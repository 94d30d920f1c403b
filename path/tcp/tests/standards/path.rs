//! What the network says of a path (RFC 5927, RFC 8201).

use firelane_tcp::CloseReason;

use crate::common::lab::{ACK, Lab, Peer, plain};

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
