//! T: malformed and misleading segments.

use firelane_tcp::Events;
use firelane_units::DropReason;
use firelane_wire::TcpOptions;

use crate::common::lab::{ACK, Lab, Peer, URG, plain};

/// CVE-2019-11479: a tiny MSS is raised to the floor.
#[test]
fn t03_a_tiny_mss_is_not_obeyed() {
    let mut lab = Lab::answering(plain(), TcpOptions { mss: Some(1), ..TcpOptions::EMPTY });
    lab.sent();
    lab.get(Peer::new(ACK, 1));
    lab.write(100);
    assert_eq!(lab.sent(), [". 1:89(88) ack 1 win 10000", "P. 89:101(12) ack 1 win 10000"]);
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

/// RFC 9293 MUST-66: what is urgent is told also while there is no room for it.
#[test]
fn t06_urgent_text_on_a_closed_window() {
    let mut lab = Lab::established_with(plain(), TcpOptions::EMPTY, 100);
    lab.get(Peer::new(ACK, 1).text(100));
    let told = lab.get(Peer { urgent: 1, ..Peer::new(URG, 101).text(1) });
    assert!(told.events.contains(Events::URGENT));
    assert_eq!((lab.connection.urgent_mark(), told.dropped), (Some(101), Some(DropReason::OutOfWindow)));
}
