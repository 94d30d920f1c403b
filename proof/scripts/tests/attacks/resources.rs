//! R: attacks on resources.

use std::fmt::Write as _;

use firelane_scripts::{Family, Script, run};

use crate::{GRANTED, holds};

/// Somebody has stolen a cookie and forges its owner's address, who resets what he did not ask for.
#[test]
fn r01_replayed_fast_opens_cost_no_more_than_their_limit() {
    let mut text = GRANTED.to_owned();
    for n in 0..100 {
        let (port, ack) = (41_000 + n, if n < 3 { 501 } else { 1 });
        writeln!(text, "+0 < port {port} S 0:500(500) win 65535 <mss 1000,FO ours,nop,nop>")
            .expect("a string grows");
        writeln!(text, "+0 > port {port} S. 0:0(0) ack {ack} <mss 1460>").expect("a string grows");
        writeln!(text, "+0 < port {port} R {ack}:{ack}(0)").expect("a string grows");
    }
    text.push_str("+0 connections() = 0\n+0 fast_opens(passive) = 3\n+0 fast_opens(overflowed) = 97\n");
    text.push_str("+61 < port 42000 S 0:500(500) win 65535 <mss 1000,FO ours,nop,nop>\n");
    text.push_str("+0 > port 42000 S. 0:0(0) ack 501 <mss 1460>\n+0 < port 42000 R 501:501(0)\n");
    text.push_str("+0 fast_opens(passive) = 4");
    holds(&text);
}

#[test]
fn r03_peers_that_never_read_are_given_up_once_the_program_is() {
    // Sockstress: connections with text to send, and peers that never open their window. Once the program has closed
    // them, even a peer that answers every probe keeps its connection for the abort timeout at most.
    let mut text = "set tcp.abort_timeout 1\nset tolerance .05\n+0 l = listen(80, 300)\n".to_owned();
    let ports = 41_000..41_020;
    for port in ports.clone() {
        write!(
            text,
            "+0 < port {port} S 0:0(0) win 0 <mss 1000>\n\
             +0 > port {port} S. 0:0(0) ack 1 <mss 1460>\n\
             +0 < port {port} . 1:1(0) ack 1 win 0\n\
             +0 c{port} = accept(l)\n\
             +0 write(c{port}, 1000)\n\
             +0 close(c{port})\n"
        )
        .expect("a string grows");
    }
    text.push_str("+0 connections() = 20\n");
    for wait in [".2", ".4"] {
        for port in ports.clone() {
            let wait = if port == ports.start { wait } else { "0" };
            writeln!(text, "+{wait} > port {port} . 0:0(0) ack 1").expect("a string grows");
        }
        for port in ports.clone() {
            writeln!(text, "+0 < port {port} . 1:1(0) ack 1 win 0").expect("a string grows");
        }
    }
    for port in ports.clone() {
        let wait = if port == ports.start { ".8" } else { "0" };
        writeln!(text, "+{wait} > port {port} R. 1:1(0) ack 1").expect("a string grows");
    }
    text.push_str("+0 connections() = 0\n+0 drops() = 0\n+60 quiet");
    holds(&text);
}

#[test]
fn r04_slow_readers_and_writers_hold_nobody_else_up() {
    // Slowloris: two hundred connections that say one byte every ten seconds. One beside them is served at once, and the
    // program ends the slow ones when its own time is up.
    let mut text = "+0 l = listen(80, 300)\n".to_owned();
    let ports = 41_000..41_200;
    for port in ports.clone() {
        write!(
            text,
            "+0 < port {port} S 0:0(0) win 9000 <mss 1000>\n\
             +0 > port {port} S. 0:0(0) ack 1 <mss 1460>\n\
             +0 < port {port} . 1:1(0) ack 1 win 9000\n\
             +0 c{port} = accept(l)\n"
        )
        .expect("a string grows");
    }
    for round in 1..=3 {
        text.push_str("+10 connections() = 200\n");
        for port in ports.clone() {
            writeln!(text, "+0 < port {port} P. {round}:{}(1) ack 1 win 9000", round + 1)
                .expect("a string grows");
            writeln!(text, "+0 > port {port} . 1:1(0) ack {}", round + 1).expect("a string grows");
        }
    }
    text.push_str(
        "+0 < S 0:0(0) win 9000 <mss 1000>\n+0 > S. 0:0(0) ack 1 <mss 1460>\n\
         +.01 < P. 1:101(100) ack 1 win 9000\n+0 > . 1:1(0) ack 101\n+0 c = accept(l)\n+0 read(c, 100)\n\
         +0 write(c, 500)\n+0 > P. 1:501(500) ack 101\n",
    );
    for port in ports {
        writeln!(text, "+0 abort(c{port})\n+0 > port {port} R. 1:1(0) ack 4").expect("a string grows");
    }
    text.push_str("+.01 < . 101:101(0) ack 501 win 9000\n+0 connections() = 1\n+0 drops() = 0");
    holds(&text);
}

#[test]
fn r05_every_other_byte_costs_64_pieces_and_no_more() {
    // SegmentSmack: a thousand pieces of one byte. 64 are kept; the rest is dropped and counted, and text in order passes.
    let mut text = "+0 c = established(80, sack)\n".to_owned();
    for n in 0..1000 {
        let at = 3 + 2 * n;
        writeln!(text, "+0 < . {at}:{}(1) ack 1 win 65535\n+0 > . 1:1(0) ack 1 <...>", at + 1)
            .expect("a string grows");
    }
    text.push_str(
        "+0 drops(tcp_reassembly_full) = 936\n\
         +0 < . 1:3(2) ack 1 win 65535\n+0 > . 1:1(0) ack 4 <...>\n\
         +0 < . 4:1004(1000) ack 1 win 65535\n+0 > . 1:1(0) ack 1004 <...>\n\
         +0 < . 1004:2004(1000) ack 1 win 65535\n+0~+.05 > . 1:1(0) ack 2004 <...>\n\
         +0 read(c, 5000) = 2003\n\
         +0 drops() = 936",
    );
    holds(&text);
}

#[test]
fn r12_timers_of_one_instant_are_served_in_several_turns() {
    // Eleven hundred connections in FIN-WAIT-2 that nobody reads end within the same tick: the lane looks at its queues in
    // between.
    let mut text = "set tcp.fin_wait_2_timeout 10\n+0 l = listen(80, 2000)\n".to_owned();
    for port in 41_000..42_100 {
        write!(
            text,
            "+0 < port {port} S 0:0(0) win 9000 <mss 1000>\n\
             +0 > port {port} S. 0:0(0) ack 1 <mss 1460>\n\
             +0 < port {port} . 1:1(0) ack 1 win 9000\n\
             +0 c{port} = accept(l)\n\
             +0 close(c{port})\n\
             +0 > port {port} F. 1:1(0) ack 1\n\
             +0 < port {port} . 1:1(0) ack 2 win 9000\n"
        )
        .expect("a string grows");
    }
    text.push_str("+9.9 connections() = 1100\n");
    let before = turns_of(&text);
    text.push_str("+.2 connections() = 0\n");
    let took = turns_of(&text) - before;
    assert!((3..20).contains(&took), "{took} turns for 1100 timers");
}

/// How many turns a script takes over IPv4: the answer to a guess that is wrong.
fn turns_of(text: &str) -> usize {
    let guess = format!("{text}+0 turns() = none");
    let failure = run(&Script::parse(&guess).expect("a script"), Family::V4).expect_err("a wrong guess");
    let got = failure.what.strip_prefix("expected turns() = none, got ");
    got.unwrap_or_else(|| panic!("{failure}")).parse().expect("turns are a number")
}
