//! S: attacks on a connection's state.

use core::time::Duration;

use firelane_tcp::{ChallengeBudget, CloseReason, Events, State, TcpConfig};
use firelane_units::DropReason;
use firelane_wire::TcpOptions;

use crate::common::lab::{ACK, FIN, Lab, NOTHING, Peer, RST, START, SYN, ms, plain, reply, secs};

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
    // Zero was the number of our SYN: who acknowledges no more has not heard of us.
    for (ack, taken) in [(2, false), (1, true), (u32::MAX - 20_000, false), (0, false)] {
        let mut lab = Lab::established();
        let out = lab.get(Peer::new(ACK, 1).acks(ack).text(10));
        assert_eq!(lab.read(), if taken { 10 } else { 0 }, "{ack}");
        assert_eq!(out.reply.is_some(), !taken, "{ack}");
    }
}

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

/// Who had nothing to send for longer than anybody waits asks before he gives up, also where only a cork holds the text.
#[test]
fn s11_patience_begins_when_something_waits() {
    for user_timeout in [None, Some(secs(10))] {
        let mut lab = Lab::established();
        lab.connection.set_user_timeout(user_timeout);
        lab.get(Peer::new(ACK, 1).win(0));
        assert_eq!(lab.wait(secs(400)).0, NOTHING);
        lab.write(100);
        assert_eq!(lab.sent(), NOTHING);
        let (lines, told) = lab.wait(secs(9));
        assert!(!lines.is_empty() && told.closed.is_none(), "{lines:?} {told:?}");
        assert_eq!(lab.wait(secs(600)).1.closed, Some(CloseReason::TimedOut));
    }
    let mut lab = Lab::established();
    lab.connection.set_cork(true);
    assert_eq!(lab.wait(secs(400)).0, NOTHING);
    lab.write(10);
    assert_eq!(lab.sent(), NOTHING);
    assert_eq!(lab.wait(ms(300)).0, ["200 P. 1:11(10) ack 1 win 10000"]);
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

/// CVE-2016-5696: who counts the challenges that come back to himself must not learn what others caused. The size of
/// a second's budget is a secret's, and another in the next second.
#[test]
fn s04_the_number_of_challenges_in_a_second_is_nobodys_to_know() {
    let sizes = |key: u8| -> Vec<u32> {
        let mut budget = ChallengeBudget::new([key; 16], 1000);
        (0..50)
            .map(|second| {
                let at = START + Duration::from_secs(second);
                (0..5000).filter(|_| budget.allow(at)).count() as u32
            })
            .collect()
    };
    let (one, other) = (sizes(1), sizes(2));
    assert!(one.iter().all(|size| (500..=1500).contains(size)), "{one:?}");
    let mut distinct = one.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 40, "fifty seconds have {} sizes", distinct.len());
    assert!(one.iter().zip(&other).filter(|(a, b)| a == b).count() < 3, "two secrets agree");
}

/// Without SACK nobody is told of what came twice, so it keeps nobody from resting.
#[test]
fn what_came_twice_is_forgotten_where_nobody_is_told() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 1).text(10));
    lab.get(Peer::new(ACK, 6).text(15));
    assert_eq!(lab.read(), 20);
    lab.wait(secs(2));
    let now = lab.now;
    assert!(lab.connection.rest(now).is_some());
}
