//! Who may reset what was let through: only whoever knows where the connection is (RFC 5961 §3.2), for the ends believe nobody else.

mod common;

use common::*;
use firelane_filter::{Filter, Verdict};
use firelane_units::Direction;
use firelane_wire::TcpFlags;

const CLIENT: &str = "10.0.0.1:4000";
const SERVER: &str = "192.0.2.7:80";
const ACK: TcpFlags = TcpFlags::ACK;

/// Segments of a connection of somebody inside, the last of which the server has sent, up to 1400.
fn established() -> Filter {
    let mut filter = filter(vec![rule(IN, BLOCK), rule(OUT, BLOCK), rule(OUT, PASS).keep()]);
    let steps: [(Direction, Vec<u8>); 4] = [
        (OUT, syn(CLIENT, SERVER)),
        (IN, tcp(SERVER, CLIENT, TcpFlags::SYN.with(ACK), 499, 100, 0)),
        (OUT, tcp(CLIENT, SERVER, ACK, 100, 500, 50)),
        (IN, tcp(SERVER, CLIENT, ACK, 500, 150, 900)),
    ];
    for (direction, packet) in steps {
        assert_eq!(ask(&mut filter, direction, &packet), Verdict::Pass);
    }
    filter
}

fn reset(seq: u32) -> Vec<u8> {
    tcp(SERVER, CLIENT, TcpFlags::RST, seq, 0, 0)
}

#[test]
fn a_guessed_reset_ends_no_connection() {
    for seq in [1399, 1401, 1000] {
        let mut filter = established();
        for _ in 0..2 {
            assert_eq!(ask(&mut filter, IN, &reset(seq)), Verdict::Pass, "the end says what it is");
        }
        // What was reset is over after 30 s, and is taken from the next who asks for a connection.
        assert_eq!(ask_at(&mut filter, IN, LINK, &syn(SERVER, CLIENT), 31).verdict, BLOCKED);
        let text = tcp(SERVER, CLIENT, ACK, 1400, 150, 9);
        assert_eq!(ask_at(&mut filter, IN, LINK, &text, 3600).verdict, Verdict::Pass, "{seq}");
        assert_eq!(filter.counts().states.active, 1);
    }
}

#[test]
fn whoever_knows_where_the_connection_is_ends_it() {
    // The client lacks a segment, and whoever has forgotten the connection hears of it from there.
    let lacks = tcp(CLIENT, SERVER, ACK, 150, 500, 0);
    for (before, seq) in [(None, 1400), (Some(&lacks), 500), (Some(&lacks), 1400)] {
        let mut filter = established();
        if let Some(packet) = before {
            assert_eq!(ask(&mut filter, OUT, packet), Verdict::Pass);
        }
        assert_eq!(ask(&mut filter, IN, &reset(seq)), Verdict::Pass);
        let text = tcp(SERVER, CLIENT, ACK, 1400, 150, 9);
        assert_eq!(ask_at(&mut filter, IN, LINK, &text, 31).verdict, BLOCKED, "{seq}");
    }
}
