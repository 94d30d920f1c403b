//! Opening a connection (RFC 9293 §3.5, §3.10.7.3, §3.10.7.4; RFC 6298 §5).

use firelane_tcp::congestion::Algorithm;
use firelane_tcp::{CloseReason, Events, State, TcpConfig};
use firelane_units::Mss;
use firelane_wire::TcpOptions;

use crate::common::lab::{ACK, FIN, Lab, Peer, RST, SYN, line, ms, plain, reply, secs};

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

/// RFC 7413 §4.2: a congestion control that is chosen while the SYN and its text are under way begins behind them.
#[test]
fn an_algorithm_of_before_the_syn_goes_on_behind_its_text() {
    for algorithm in Algorithm::ALL {
        let mut lab = Lab::opening_fast(plain());
        lab.connection.set_algorithm(lab.now, algorithm);
        lab.write(300);
        assert_eq!(lab.sent(), ["S 0:300(300) mss 1000"]);
        lab.get(Peer::new(SYN.with(ACK), 0).acks(301));
        lab.write(10);
        assert_eq!(lab.sent(), ["P. 301:311(10) ack 1 win 10000"], "{algorithm:?}");
        lab.get(Peer::new(ACK, 1).acks(311));
        assert_eq!(lab.connection.info(lab.now).congestion, algorithm);
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

/// Who asks for the acknowledgment alone gets the one that would have left, once; beside text, or a FIN, it is no acknowledgment alone.
#[test]
fn an_acknowledgment_alone_is_the_one_that_would_have_left() {
    for (text, closes) in [(0, false), (5, false), (0, true)] {
        let [mut one, mut two] = [(); 2].map(|()| {
            let mut lab = Lab::opening(plain());
            lab.sent();
            lab.get(Peer::new(SYN.with(ACK), 0).acks(1).win(10_000));
            lab.write(text);
            if closes {
                lab.shutdown();
            }
            lab
        });
        let alone = one.rings(|tcp, now, rings| tcp.poll_ack(now, rings)).map(|out| line(&out));
        let would_have_left = two.sent();
        if text > 0 || closes {
            assert_eq!((alone, one.sent()), (None, would_have_left));
        } else {
            assert_eq!((alone.into_iter().collect::<Vec<_>>(), one.sent()), (would_have_left, vec![]));
        }
        assert_eq!((one.state(), one.sent()), (two.state(), two.sent()));
    }
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

/// RFC 7323 §2.3: the shift of the first SYN is what the peer counts with, whichever copy it has read. Neither another buffer nor
/// another configuration changes it any more.
#[test]
fn the_scale_of_the_first_syn_stays() {
    let scaling = TcpConfig { window_scaling: true, ..plain() };
    let offered = TcpOptions { window_scale: Some(3), ..TcpOptions::EMPTY };
    for crosses in [false, true] {
        let mut lab = Lab::opening(scaling.clone());
        assert_eq!(lab.sent(), ["S 0:0(0) mss 1000 ws 5"]);
        lab.rings(|connection, _, rings| connection.set_receive_buffer(1 << 20, rings.recv));
        lab.connection.set_config(plain().into());
        if crosses {
            lab.get(Peer::new(SYN, 0).options(offered));
            assert_eq!(lab.sent(), ["S. 0:0(0) ack 1 win 65535 mss 1000 ws 5"]);
            lab.get(Peer::new(ACK, 1));
        } else {
            let (lines, _) = lab.wait(ms(1500));
            assert_eq!(lines, ["1000 S 0:0(0) mss 1000 ws 5"]);
            lab.get(Peer::new(SYN.with(ACK), 0).options(offered));
        }
        assert_eq!(lab.state(), State::Established);
        assert_eq!(lab.connection.info(lab.now).window_scales, Some((3, 5)));
    }
    // Whoever has not offered to scale does not scale, either.
    let mut lab = Lab::opening(plain());
    assert_eq!(lab.sent(), ["S 0:0(0) mss 1000"]);
    lab.connection.set_config(scaling.into());
    let (lines, _) = lab.wait(ms(1500));
    assert_eq!(lines, ["1000 S 0:0(0) mss 1000"]);
    lab.get(Peer::new(SYN.with(ACK), 0).options(offered));
    assert_eq!(lab.connection.info(lab.now).window_scales, None);
}

/// A route that carries less than it did when the SYN left is not forgotten for the handshake's sake.
#[test]
fn a_path_that_shrinks_while_connecting_stays_small() {
    let mut lab = Lab::opening(plain());
    lab.sent();
    lab.connection.set_path_mss(Mss::clamped(500));
    lab.get(Peer::new(SYN.with(ACK), 0).options(TcpOptions { mss: Some(1000), ..TcpOptions::EMPTY }));
    lab.sent();
    lab.write(800);
    assert_eq!(lab.sent(), [". 1:501(500) ack 1 win 10000", "P. 501:801(300) ack 1 win 10000"]);
}
