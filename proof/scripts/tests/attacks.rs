//! Attacks on TCP and UDP by the names of the conformance list: what a peer may send, what must come of it, and the
//! counter that rises by exactly what was sent.
//!
//! T: malformed segments; S: attacks on a connection's state; R: attacks on resources; U: UDP. Each script runs over
//! both families and ends with the counters. What needs thousands of peers is written as a loop that makes a script.

use std::fmt::Write as _;

use firelane_scripts::{Family, Script, run};

/// The script is true.
#[track_caller]
fn holds(text: &str) {
    let script = Script::parse(text).unwrap_or_else(|error| panic!("line {error} of\n{text}"));
    for family in Family::ALL {
        if let Err(failure) = run(&script, family) {
            let line = text.lines().nth(failure.line - 1).unwrap_or_default();
            panic!("{family:?}, line {failure} in `{line}`");
        }
    }
}

/// A connection takes these segments' text, one after the other, and lives.
#[track_caller]
fn carries_text_in_spite_of(options: &[&str]) {
    let mut text = "+0 c = established(80)\n".to_owned();
    for (n, options) in options.iter().enumerate() {
        let (from, to) = (1 + 10 * n, 11 + 10 * n);
        writeln!(text, "+0 < P. {from}:{to}(10) ack 1 win 65535 <{options}>").expect("a string grows");
        writeln!(text, "+0 > . 1:1(0) ack {to}").expect("a string grows");
    }
    writeln!(text, "+0 read(c, 1000) = {}\n+0 drops() = 0", 10 * options.len()).expect("a string grows");
    holds(&text);
}

#[test]
fn t01_a_data_offset_that_cannot_be_is_dropped() {
    holds(
        "+0 l = listen(80)\n\
         +0 c = established(81)\n\
         +0 < port 40001 S 0:0(0) win 1000 offset 4\n\
         +0 < port 40001 S 0:0(0) win 1000 offset 0\n\
         +0 < port 40001 S 0:0(0) win 1000 offset 6\n\
         +0 < P. 1:11(10) ack 1 win 1000 offset 15\n\
         +0 < P. 1:11(10) ack 1 win 1000 offset 3\n\
         +1 quiet\n\
         +0 read(c, 100) = again\n\
         +0 drops(tcp_bad_segment) = 5\n\
         +0 drops() = 5",
    );
}

#[test]
fn t01_a_header_longer_than_its_packet_is_dropped() {
    holds(
        "set family v4\n\
         +0 c = established(80)\n\
         +0 < ip(len 39) P. 1:11(10) ack 1 win 1000\n\
         +0 < ip(len 28) R 1:1(0) win 0\n\
         +1 quiet\n\
         +0 drops(tcp_bad_segment) = 2\n\
         +0 drops() = 2\n\
         +0 connected(c) = yes",
    );
}

#[test]
fn t01_a_wrong_checksum_is_dropped() {
    holds(
        "+0 c = established(80)\n\
         +0 < P. 1:11(10) ack 1 win 1000 badsum\n\
         +0 < R 1:1(0) win 0 badsum\n\
         +0 < port 40001 S 0:0(0) win 1000 badsum\n\
         +1 quiet\n\
         +0 drops(tcp_bad_segment) = 3\n\
         +0 drops() = 3\n\
         +0 connected(c) = yes",
    );
}

#[test]
fn t01_ports_of_zero_are_dropped() {
    holds(
        "+0 l = listen(80)\n\
         +0 < port 0 S 0:0(0) win 1000\n\
         +1 quiet\n\
         +0 drops(tcp_bad_segment) = 1\n\
         +0 drops() = 1",
    );
}

#[test]
fn t02_option_length_zero_ends_parsing() {
    carries_text_in_spite_of(&[
        "hex 02000000",
        "hex 0800000000000000",
        "hex 0500",
        "hex fd00",
        "nop,hex 0300",
    ]);
}

#[test]
fn t02_option_length_one_ends_parsing() {
    carries_text_in_spite_of(&["hex 02010000", "hex 0801", "hex 0501", "hex fe01"]);
}

#[test]
fn t02_an_option_past_the_end_ends_parsing() {
    carries_text_in_spite_of(&["hex 0204ff", "hex 080aff", "hex 05ffffff", "hex 1e28", "nop,nop,nop,hex 02"]);
}

#[test]
fn t02_behind_the_end_of_the_list_nothing_counts() {
    holds(
        "+0 l = listen(80)\n\
         +0 < S 0:0(0) win 65535 <mss 900,eol,hex 0204006401ffff>\n\
         +0 > S. 0:0(0) ack 1 <mss 1460>\n\
         +.05 < . 1:1(0) ack 1 win 65535\n\
         +0 c = accept(l)\n\
         +0 write(c, 1000)\n\
         +0 > . 1:901(900) ack 1\n\
         +0 > P. 901:1001(100) ack 1\n\
         +0 drops() = 0",
    );
}

#[test]
fn t02_forty_bytes_of_nothing_are_nothing() {
    let nops = ["nop"; 40].join(",");
    let unknown = format!("hex fd28{}", "aa".repeat(38));
    let many = format!("hex {}", "fd02".repeat(20));
    let zeros = format!("hex {}", "00".repeat(40));
    carries_text_in_spite_of(&[&nops, &unknown, &many, &zeros]);
}

#[test]
fn t02_of_repeated_options_the_last_counts() {
    holds(
        "+0 l = listen(80)\n\
         +0 < S 0:0(0) win 65535 <mss 1400,mss 300,mss 500,nop,nop,sackOK,nop,nop,sackOK>\n\
         +0 > S. 0:0(0) ack 1 <mss 1460,nop,nop,sackOK>\n\
         +.05 < . 1:1(0) ack 1 win 65535\n\
         +0 c = accept(l)\n\
         +0 write(c, 600)\n\
         +0 > . 1:501(500) ack 1\n\
         +0 > P. 501:601(100) ack 1\n\
         +0 drops() = 0",
    );
}

#[test]
fn t03_a_tiny_mss_is_raised_to_88() {
    for mss in [0, 1, 48, 87] {
        holds(&format!(
            "+0 c = established(80, mss {mss})\n\
             +0 write(c, 100)\n\
             +0 > . 1:89(88) ack 1\n\
             +0 > P. 89:101(12) ack 1\n\
             +0 drops() = 0"
        ));
    }
}

#[test]
fn t03_a_huge_mss_is_cut_to_the_link() {
    holds(
        "+0 c = established(80, mss 65535)\n\
         +0 write(c, 1500)\n\
         +0 > . 1:1461(1460) ack 1\n\
         +0 > P. 1461:1501(40) ack 1",
    );
}

#[test]
fn t03_a_window_scale_above_14_is_taken_as_14() {
    for scale in [15, 255] {
        holds(&format!(
            "+0 c = established(80, wscale {scale}, win 1)\n\
             +0 write(c, 10000)\n\
             +0 > . 1:1001(1000) ack 1\n\
             +0 > . 1001:2001(1000) ack 1\n\
             +0 > . 2001:3001(1000) ack 1\n\
             +0 > . 3001:4001(1000) ack 1\n\
             +0 > . 4001:5001(1000) ack 1\n\
             +0 > . 5001:6001(1000) ack 1\n\
             +0 > . 6001:7001(1000) ack 1\n\
             +0 > . 7001:8001(1000) ack 1\n\
             +0 > . 8001:9001(1000) ack 1\n\
             +0 > P. 9001:10001(1000) ack 1"
        ));
    }
}

#[test]
fn t03_options_of_a_syn_mean_nothing_later() {
    holds(
        "+0 c = established(80)\n\
         +0 < P. 1:11(10) ack 1 win 2000 <mss 100,nop,wscale 9,nop,nop,sackOK>\n\
         +0 > . 1:1(0) ack 11\n\
         +0 write(c, 3000)\n\
         +0 > . 1:1001(1000) ack 11\n\
         +0 > . 1001:2001(1000) ack 11\n\
         +0 drops() = 0",
    );
}

#[test]
fn t04_impossible_sack_blocks_change_nothing() {
    for block in
        ["1:1", "2001:1001", "9001:9501", "-3000:-2000", "-9:1", "1500:99999", "2000000000:2000000500"]
    {
        holds(&format!(
            "+0 c = established(80, sack)\n\
             +0 write(c, 2000)\n\
             +0 > . 1:1001(1000) ack 1\n\
             +0 > P. 1001:2001(1000) ack 1\n\
             +.05 < . 1:1(0) ack 1 win 65535 <nop,nop,sack {block}>\n\
             +.02 < . 1:1(0) ack 2001 win 65535\n\
             +0 unacknowledged(c) = 0\n\
             +1 quiet\n\
             +0 drops() = 0"
        ));
    }
}

#[test]
fn t04_a_sack_option_longer_than_its_header_ends_parsing() {
    let cut = "hex 0522000000010000000200000003000000040000000500000006";
    let odd = "hex 0507000000010000";
    carries_text_in_spite_of(&[cut, odd, "nop,nop,hex 0502", "nop,nop,hex 05090102030405"]);
}

#[test]
fn t04_a_duplicate_report_below_the_acknowledgment_is_no_hole() {
    holds(
        "+0 c = established(80, sack)\n\
         +0 write(c, 3000)\n\
         +0 > . 1:1001(1000) ack 1\n\
         +0 > . 1001:2001(1000) ack 1\n\
         +0 > P. 2001:3001(1000) ack 1\n\
         +.05 < . 1:1(0) ack 2001 win 65535 <nop,nop,sack 1:1001>\n\
         +.01 < . 1:1(0) ack 3001 win 65535 <nop,nop,sack 1001:2001>\n\
         +1 quiet\n\
         +0 drops() = 0",
    );
}

#[test]
fn t05_flags_that_exclude_each_other_at_a_listener() {
    holds(
        "+0 l = listen(80)\n\
         +0 < - 0:0(0) win 1000\n\
         +0 < - 0:10(10) win 1000\n\
         +0 < F 0:0(0) win 1000\n\
         +0 < FPU 0:0(0) win 1000\n\
         +0 < SF 0:0(0) win 1000 <mss 1000>\n\
         +0 < SR 0:0(0) win 1000\n\
         +0 < SFRPU. 0:0(0) ack 1 win 1000\n\
         +1 quiet\n\
         +0 < SF. 0:0(0) ack 77 win 1000\n\
         +0 > R 77:77(0) win 0\n\
         +0 c = accept(l) = again\n\
         +0 drops() = 8\n\
         +0 connections() = 0",
    );
}

#[test]
fn t05_flags_that_exclude_each_other_at_a_closed_port() {
    holds(
        "+0 < - 0:0(0) win 1000\n\
         +0 > R. 0:0(0) ack 0 win 0\n\
         +0 < SF 0:0(0) win 1000\n\
         +0 > R. 0:0(0) ack 2 win 0\n\
         +0 < SR 0:0(0) win 1000\n\
         +0 < SFRPU. 0:0(0) ack 1 win 1000\n\
         +1 quiet\n\
         +0 drops(tcp_no_connection) = 4\n\
         +0 drops() = 4",
    );
}

#[test]
fn t05_flags_that_exclude_each_other_on_a_connection() {
    holds(
        "+0 c = established(80)\n\
         +0 < - 1:11(10) win 1000\n\
         +0 < F 1:1(0) win 1000\n\
         +0 < FPU 1:11(10) win 1000\n\
         +1 quiet\n\
         +0 drops(tcp_unacceptable) = 3\n\
         +0 < SF. 1:1(0) ack 1 win 1000\n\
         +0 > . 1:1(0) ack 1\n\
         +0 drops(tcp_unacceptable) = 4\n\
         +0 < SFRPU. 5:5(0) ack 1 win 1000\n\
         +0 drops(tcp_unacceptable) = 5\n\
         +0 connected(c) = yes\n\
         +0 < SFRPU. 1:1(0) ack 1 win 1000\n\
         +0 read(c, 10) = reset",
    );
}

#[test]
fn t06_urgent_pointers_point_anywhere_and_do_no_harm() {
    holds(
        "+0 c = established(80)\n\
         +0 < UP. 1:11(10) ack 1 win 65535\n\
         +0 > . 1:1(0) ack 11\n\
         +0 < UP. 11:21(10) ack 1 win 65535 urg 5\n\
         +0 > . 1:1(0) ack 21\n\
         +0 < UP. 21:31(10) ack 1 win 65535 urg 65535\n\
         +0 > . 1:1(0) ack 31\n\
         +0 < UP. 31:41(10) ack 1 win 65535 urg 1\n\
         +0 > . 1:1(0) ack 41\n\
         +0 < U. 41:41(0) ack 1 win 65535 urg 9\n\
         +0 read(c, 1000) = 40\n\
         +0 drops() = 0",
    );
}

#[test]
fn t06_urgent_in_a_syn_means_nothing() {
    holds(
        "+0 l = listen(80)\n\
         +0 < SU 0:0(0) win 65535 urg 65535 <mss 1000>\n\
         +0 > S. 0:0(0) ack 1 <mss 1460>\n\
         +.05 < U. 1:1(0) ack 1 win 65535 urg 3\n\
         +0 c = accept(l)\n\
         +0 < UP. 1:4(3) ack 1 win 65535 urg 3\n\
         +0 > . 1:1(0) ack 4\n\
         +0 read(c, 10) = 3\n\
         +0 drops() = 0",
    );
}

#[test]
fn t06_urgent_on_a_closed_window_is_answered_and_not_taken() {
    holds(
        "set rcvbuf 100\n\
         +0 c = established(80)\n\
         +0 < P. 1:101(100) ack 1 win 65535\n\
         +0 > . 1:1(0) ack 101 win 0\n\
         +0 < UP. 101:111(10) ack 1 win 65535 urg 10\n\
         +0 > . 1:1(0) ack 101 win 0\n\
         +0 drops(tcp_out_of_window) = 1\n\
         +0 read(c, 1000) = 100\n\
         +0 > . 1:1(0) ack 101 win 100\n\
         +0 drops() = 1",
    );
}

#[test]
fn t07_malformed_md5_and_ao_options_are_ignored() {
    let md5 = format!("nop,nop,hex 1312{}", "ab".repeat(16));
    carries_text_in_spite_of(&[
        &md5,
        "hex 1302",
        "hex 1303ff",
        "hex 1300",
        "hex 1d02",
        "hex 1d03ff",
        "hex 1dff",
        "hex 1d00",
    ]);
}

#[test]
fn t08_text_in_a_syn_is_left_to_be_sent_again() {
    holds(
        "+0 l = listen(80)\n\
         +0 < S 0:500(500) win 65535 <mss 1000>\n\
         +0 > S. 0:0(0) ack 1 <mss 1460>\n\
         +.05 < . 1:1(0) ack 1 win 65535\n\
         +0 c = accept(l)\n\
         +0 read(c, 1000) = again\n\
         +0 < P. 1:501(500) ack 1 win 65535\n\
         +0 > . 1:1(0) ack 501\n\
         +0 read(c, 1000) = 500\n\
         +0 drops() = 0",
    );
}

/// A server that grants `port` a cookie, which the attacker knows from then on.
const GRANTED: &str = "set tcp.fast_open 3\n\
     set fast_open_queue 3\n\
     +0 l = listen(80)\n\
     +0 < S 0:0(0) win 65535 <mss 1000,FO,nop,nop>\n\
     +0 > S. 0:0(0) ack 1 <mss 1460,FO ours,nop,nop>\n\
     +0 < R 1:1(0)\n";

#[test]
fn t08_text_in_a_syn_that_comes_twice_is_taken_once() {
    holds(&format!(
        "{GRANTED}\
         +0 < port 40001 S 0:500(500) win 65535 <mss 1000,FO ours,nop,nop>\n\
         +0 > port 40001 S. 0:0(0) ack 501 <mss 1460>\n\
         +.01 < port 40001 S 0:500(500) win 65535 <mss 1000,FO ours,nop,nop> othertext\n\
         +0 > port 40001 S. 0:0(0) ack 501 <mss 1460>\n\
         +0 c = accept(l)\n\
         +0 read(c, 1000) = 500\n\
         +0 d = accept(l) = again\n\
         +.01 < port 40001 . 501:501(0) ack 1 win 65535\n\
         +0 read(c, 1000) = again"
    ));
}

#[test]
fn t08_guessed_fast_open_cookies_open_nothing() {
    let mut text = "set tcp.fast_open 3\nset fast_open_queue 3\n+0 l = listen(80)\n".to_owned();
    for n in 0..200u32 {
        let (port, guess) = (41_000 + n, n.wrapping_mul(0x9e37_79b9));
        writeln!(text, "+0 < port {port} S 0:9(9) win 65535 <mss 1000,FO {guess:08x}{guess:08x},nop,nop>")
            .expect("a string grows");
        writeln!(text, "+0 > port {port} S. 0:0(0) ack 1 <mss 1460,FO ours,nop,nop>")
            .expect("a string grows");
    }
    text.push_str("+0 c = accept(l) = again\n+0 connections() = 0\n+0 fast_opens(passive_failed) = 200");
    holds(&format!("{text}\n+0 close(l)"));
}

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
fn t08_text_in_a_syn_ack_is_taken_once() {
    holds(
        "+0 c = connect(8080)\n\
         +0 > S 0:0(0) <...>\n\
         +.05 < S. 0:100(100) ack 1 win 65535 <mss 1000>\n\
         +0 > . 1:1(0) ack 101\n\
         +0 < P. 1:101(100) ack 1 win 65535 othertext\n\
         +0 > . 1:1(0) ack 101\n\
         +0 read(c, 1000) = 100\n\
         +0 drops(tcp_out_of_window) = 1\n\
         +0 drops() = 1",
    );
}

#[test]
fn t08_text_in_a_reset_is_ignored() {
    holds(
        "+0 c = established(80)\n\
         +0 < R. 1:1001(1000) ack 1 win 0\n\
         +0 read(c, 1000) = reset\n\
         +0 connections() = 0",
    );
}

#[test]
fn t09_a_total_length_below_the_headers_is_no_long_text() {
    holds(
        "set family v4\n\
         +0 c = established(80)\n\
         +0 < ip(len 20) P. 1:101(100) ack 1 win 65535\n\
         +0 < ip(len 21) P. 1:101(100) ack 1 win 65535\n\
         +0 < ip(len 19) P. 1:101(100) ack 1 win 65535\n\
         +0 < ip(len 0) P. 1:101(100) ack 1 win 65535\n\
         +1 quiet\n\
         +0 read(c, 1000) = again\n\
         +0 drops(tcp_bad_segment) = 2\n\
         +0 drops(ip_bad_header) = 2\n\
         +0 drops() = 4",
    );
    holds(
        "set family v6\n\
         +0 c = established(80)\n\
         +0 < ip(len 0) P. 1:101(100) ack 1 win 65535\n\
         +0 < ip(len 19) P. 1:101(100) ack 1 win 65535\n\
         +0 < ip(len 500) P. 1:101(100) ack 1 win 65535\n\
         +1 quiet\n\
         +0 read(c, 1000) = again\n\
         +0 drops() = 3",
    );
}

#[test]
fn s01_a_reset_counts_only_exactly() {
    holds(
        "+0 c = established(80)\n\
         +0 < R 0:0(0) win 0\n\
         +0 < R 65536:65536(0) win 0\n\
         +0 < R 2000000000:2000000000(0) win 0\n\
         +.1 quiet\n\
         +0 drops(tcp_out_of_window) = 3\n\
         +0 < R 2:2(0) win 0\n\
         +0 > . 1:1(0) ack 1\n\
         +0 < R 3:3(0) win 0\n\
         +0 drops(tcp_unacceptable) = 2\n\
         +0 connected(c) = yes\n\
         +0 < R 1:1(0) win 0\n\
         +0 read(c, 1) = reset\n\
         +0 drops() = 5",
    );
}

#[test]
fn s02_a_syn_on_a_connection_is_challenged() {
    holds(
        "+0 c = established(80)\n\
         +0 < S 1:1(0) win 1000\n\
         +0 > . 1:1(0) ack 1\n\
         +.1 < S 500:500(0) win 1000\n\
         +.1 < S. 1:1(0) ack 1 win 1000\n\
         +.1 quiet\n\
         +0 drops(tcp_unacceptable) = 3\n\
         +0 drops() = 3\n\
         +0 connected(c) = yes",
    );
}

#[test]
fn s03_text_with_an_impossible_acknowledgment_is_not_delivered() {
    holds(
        "set tcp.challenge_interval .01\n\
         +0 c = established(80, win 1000)\n\
         +0 < P. 1:11(10) ack 2 win 1000\n\
         +0 > . 1:1(0) ack 1\n\
         +.1 < P. 1:11(10) ack -1000 win 1000\n\
         +0 > . 1:1(0) ack 1\n\
         +.1 < P. 1:11(10) ack 1000000 win 1000\n\
         +0 > . 1:1(0) ack 1\n\
         +0 read(c, 10) = again\n\
         +0 drops(tcp_unacceptable) = 3\n\
         +0 drops() = 3",
    );
}

#[test]
fn s04_challenges_are_limited_per_connection_and_in_all() {
    // Two hundred connections, one forged SYN for each: the host answers a number that nobody can know in advance, and
    // each drop is counted. The size is the secret's (`reset.rs` has the law), so any number is expected.
    let mut text = "+0 l = listen(80, 300)\n".to_owned();
    for port in 41_000..41_200 {
        write!(
            text,
            "+0 < port {port} S 0:0(0) win 1000 <mss 1000>\n\
             +0 > port {port} S. 0:0(0) ack 1 <mss 1460>\n\
             +0 < port {port} . 1:1(0) ack 1 win 1000\n"
        )
        .expect("a string grows");
    }
    for port in 41_000..41_003 {
        writeln!(text, "+0 < port {port} S 7:7(0) win 1000\n+0 > port {port} . 1:1(0) ack 1")
            .expect("a string grows");
        writeln!(text, "+0 < port {port} S 8:8(0) win 1000").expect("a string grows");
    }
    text.push_str("+.4 quiet\n+0 drops(tcp_unacceptable) = 6\n+0 drops() = 6\n+0 connections() = 200");
    holds(&text);
}

#[test]
fn s05_two_ends_out_of_step_do_not_storm() {
    let mut text =
        "+0 c = established(80)\n+0 < . 99999:99999(0) ack 1 win 9\n+0 > . 1:1(0) ack 1\n".to_owned();
    for _ in 0..40 {
        text.push_str("+.01 < . 99999:99999(0) ack 1 win 9\n");
    }
    text.push_str("+.05 quiet\n+0 drops(tcp_out_of_window) = 41\n+0 drops() = 41\n+0 connected(c) = yes");
    holds(&text);
}

#[test]
fn s06_a_blind_fin_ends_nothing() {
    holds(
        "+0 c = established(80)\n\
         +0 < F. 99999:99999(0) ack 1 win 9\n\
         +0 > . 1:1(0) ack 1\n\
         +0 < F. -500:-500(0) ack 1 win 9\n\
         +0 > . 1:1(0) ack 1\n\
         +0 < F. 1:1(0) ack 500 win 9\n\
         +0 > . 1:1(0) ack 1\n\
         +0 read(c, 1) = again\n\
         +0 drops(tcp_out_of_window) = 2\n\
         +0 drops(tcp_unacceptable) = 1\n\
         +0 drops() = 3",
    );
}

#[test]
fn s06_a_blind_window_update_changes_nothing() {
    holds(
        "+0 c = established(80, win 1000)\n\
         +0 write(c, 3000)\n\
         +0 > . 1:1001(1000) ack 1\n\
         +.01 < . 99999:99999(0) ack 1 win 60000\n\
         +0 > . 1001:1001(0) ack 1\n\
         +.01 < . 1:1(0) ack 1500 win 60000\n\
         +.01 quiet\n\
         +.02 < . 1:1(0) ack 1001 win 1000\n\
         +0 > . 1001:2001(1000) ack 1\n\
         +0 drops() = 2",
    );
}

#[test]
fn s06_acknowledging_what_was_not_sent_opens_nothing() {
    holds(
        "set tcp.initial_segments 2\n\
         +0 c = established(80)\n\
         +0 write(c, 10000)\n\
         +0 > . 1:1001(1000) ack 1\n\
         +0 > . 1001:2001(1000) ack 1\n\
         +.05 < . 1:1(0) ack 2002 win 65535\n\
         +0 > . 2001:2001(0) ack 1\n\
         +0 < . 1:1(0) ack 9001 win 65535\n\
         +.01 quiet\n\
         +0 drops(tcp_unacceptable) = 2\n\
         +0 drops() = 2",
    );
}

#[test]
fn s06_dividing_an_acknowledgment_opens_no_more() {
    let mut text = "set tcp.initial_segments 2\n+0 c = established(80)\n+0 write(c, 20000)\n\
                    +0 > . 1:1001(1000) ack 1\n+0 > . 1001:2001(1000) ack 1\n"
        .to_owned();
    // A hundred acknowledgments of ten bytes: the room of one segment, and its growth by one.
    for n in 1..=100 {
        writeln!(text, "+.0001 < . 1:1(0) ack {} win 65535", 1 + 10 * n).expect("a string grows");
        if n == 50 {
            text.push_str("+0 > . 2001:3001(1000) ack 1\n");
        }
        if n == 100 {
            text.push_str("+0 > . 3001:4001(1000) ack 1\n");
        }
    }
    text.push_str("+.01 quiet\n+0 drops() = 0");
    holds(&text);
}

#[test]
fn s07_old_timestamps_are_dropped_and_acknowledged() {
    holds(
        "+0 c = established(80, ts)\n\
         +0 < P. 1:11(10) ack 1 win 65535 <nop,nop,TS val 2000 ecr 0>\n\
         +0 > . 1:1(0) ack 11 <nop,nop,TS val 50 ecr 2000>\n\
         +0 < P. 11:21(10) ack 1 win 65535 <nop,nop,TS val 1999 ecr 0>\n\
         +0 > . 1:1(0) ack 11 <nop,nop,TS val 50 ecr 2000>\n\
         +0 < P. 11:21(10) ack 1 win 65535 <nop,nop,TS val 0 ecr 0>\n\
         +0 > . 1:1(0) ack 11 <nop,nop,TS val 50 ecr 2000>\n\
         +0 drops(tcp_old_timestamp) = 2\n\
         +0 drops() = 2\n\
         +0 read(c, 100) = 10",
    );
}

#[test]
fn s07_after_24_days_of_silence_any_timestamp_is_new() {
    holds(
        "+0 c = established(80, ts)\n\
         +2073700 < P. 1:11(10) ack 1 win 65535 <nop,nop,TS val 3 ecr 0>\n\
         +0 > . 1:1(0) ack 11 <...>\n\
         +0 drops() = 0",
    );
}

#[test]
fn s11_a_window_of_one_byte_does_not_make_segments_of_one() {
    holds(
        "+0 c = established(80, win 1000)\n\
         +0 write(c, 3000)\n\
         +0 > . 1:1001(1000) ack 1\n\
         +.05 < . 1:1(0) ack 1001 win 1\n\
         +.2~+.3 > . 1001:1002(1) ack 1\n\
         +.05 < . 1:1(0) ack 1002 win 1\n\
         +.2~+.3 > . 1002:1003(1) ack 1\n\
         +.05 < . 1:1(0) ack 1003 win 1\n\
         +0 drops() = 0",
    );
}

#[test]
fn s11_probes_without_answer_end() {
    holds(
        "set tcp.abort_timeout 3\n\
         +0 c = established(80, win 1000)\n\
         +0 write(c, 2000)\n\
         +0 > . 1:1001(1000) ack 1\n\
         +.05 < . 1:1(0) ack 1001 win 0\n\
         +.25 > . 1000:1000(0) ack 1\n\
         +.5 > . 1000:1000(0) ack 1\n\
         +1 > . 1000:1000(0) ack 1\n\
         +2 > R. 1001:1001(0) ack 1\n\
         +0 read(c, 1) = timedout\n\
         +0 connections() = 0",
    );
}

#[test]
fn s11_keepalives_cost_an_answer_each_and_no_more() {
    let mut text = "+0 c = established(80)\n".to_owned();
    for _ in 0..20 {
        text.push_str("+1 < . 0:0(0) ack 1 win 9\n+0 > . 1:1(0) ack 1\n");
    }
    for _ in 0..20 {
        text.push_str("+.01 < . 0:0(0) ack 1 win 9\n");
    }
    text.push_str("+0 drops(tcp_out_of_window) = 40\n+0 drops() = 40");
    holds(&text);
}

#[test]
fn s12_numbers_wrap_in_both_directions() {
    // The peer's first number is chosen around the wrap; ours is a hash, so many connections meet it somewhere.
    for first in ["4294967295", "4294967294", "4294967286", "0", "2147483647"] {
        holds(&format!(
            "set peer_isn {first}\n\
             +0 c = established(80, sack)\n\
             +0 < P. 11:21(10) ack 1 win 65535\n\
             +0 > . 1:1(0) ack 1 <nop,nop,sack 11:21>\n\
             +0 < P. 1:11(10) ack 1 win 65535\n\
             +0 > . 1:1(0) ack 21\n\
             +0 read(c, 100) = 20\n\
             +0 < R 60000:60000(0) win 0\n\
             +0 > . 1:1(0) ack 21\n\
             +0 < F. 21:21(0) ack 1 win 65535\n\
             +0 > . 1:1(0) ack 22\n\
             +0 read(c, 100) = eof\n\
             +0 drops() = 1"
        ));
    }
}

#[test]
fn s12_a_window_of_a_gigabyte_is_no_overflow() {
    holds(
        "+0 c = established(80, wscale 14, win 65535)\n\
         +.01 < . 1:1(0) ack 1 win 65535\n\
         +0 write(c, 1000)\n\
         +0 > P. 1:1001(1000) ack 1\n\
         +.05 < . 1:1(0) ack 1001 win 65535\n\
         +0 < P. 1:11(10) ack -1000000000 win 65535\n\
         +0 > . 1001:1001(0) ack 11\n\
         +0 < P. 11:21(10) ack -1073730000 win 65535\n\
         +0 > . 1001:1001(0) ack 11\n\
         +0 drops(tcp_unacceptable) = 1\n\
         +0 drops() = 1",
    );
}

#[test]
fn s13_of_overlapping_copies_the_first_counts() {
    holds(
        "+0 c = established(80)\n\
         +0 < . 11:21(10) ack 1 win 65535\n\
         +0 > . 1:1(0) ack 1\n\
         +0 < . 6:26(20) ack 1 win 65535\n\
         +0 > . 1:1(0) ack 1\n\
         +0 < . 11:21(10) ack 1 win 65535 othertext\n\
         +0 > . 1:1(0) ack 1\n\
         +0 < . 1:6(5) ack 1 win 65535\n\
         +0 > . 1:1(0) ack 26\n\
         +0 < . 1:26(25) ack 1 win 65535 othertext\n\
         +0 > . 1:1(0) ack 26\n\
         +0 read(c, 100) = 25\n\
         +0 drops(tcp_duplicate) = 1\n\
         +0 drops(tcp_out_of_window) = 1\n\
         +0 drops() = 2",
    );
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

#[test]
fn u01_lengths_that_lie_are_dropped() {
    holds(
        "+0 u = bind(7)\n\
         +0 < udp 40000>7 (10) len 0\n\
         +0 < udp 40000>7 (10) len 7\n\
         +0 < udp 40000>7 (10) len 19\n\
         +0 < udp 40000>7 (10) len 65535\n\
         +1 quiet\n\
         +0 recv(u, 100) = again\n\
         +0 drops(udp_bad_datagram) = 4\n\
         +0 drops() = 4",
    );
}

#[test]
fn u01_no_checksum_is_wrong_over_ipv6_alone() {
    holds(
        "set family v6\n+0 u = bind(7)\n+0 < udp 40000>7 (10) nosum\n+0 recv(u, 100) = again\n\
         +0 drops(udp_bad_datagram) = 1\n+0 drops() = 1",
    );
    holds("set family v4\n+0 u = bind(7)\n+0 < udp 40000>7 (10) nosum\n+0 recv(u, 100) = 10\n+0 drops() = 0");
}

#[test]
fn u01_port_zero_is_nobodys() {
    holds("+0 < udp 40000>0 (10)\n+1 quiet\n+0 drops(udp_bad_datagram) = 1\n+0 drops() = 1");
}

#[test]
fn u02_a_flood_to_a_closed_port_gets_few_answers() {
    let mut text = String::new();
    for _ in 0..20 {
        text.push_str("+0 < udp 40000>9 (1)\n+0 > icmp unreachable port\n");
    }
    for _ in 0..500 {
        text.push_str("+0 < udp 40000>9 (1)\n");
    }
    text.push_str("+.05 quiet\n+0 drops(udp_no_socket) = 520\n+0 drops() = 520");
    holds(&text);
}

#[test]
fn u03_a_reader_that_sleeps_costs_its_own_queue() {
    let mut text = "set rcvbuf 1000\n+0 u = bind(7)\n+0 v = bind(8)\n".to_owned();
    for _ in 0..100 {
        text.push_str("+0 < udp 40000>7 (900)\n+0 < udp 40000>8 (50)\n+0 recv(v, 100) = 50\n");
    }
    text.push_str(
        "+0 drops(socket_buffer_full) = 99\n+0 drops() = 99\n+0 recv(u, 900)\n+0 recv(u, 900) = again",
    );
    holds(&text);
}

#[test]
fn u04_a_connected_socket_hears_its_peer_alone() {
    holds(
        "+0 u = bind(7, to 40000)\n\
         +0 < udp 40001>7 (10)\n\
         +0 > icmp unreachable port\n\
         +0 < udp 1>7 (10)\n\
         +0 > icmp unreachable port\n\
         +0 recv(u, 100) = again\n\
         +0 < udp 40000>7 (10)\n\
         +0 recv(u, 100) = 10\n\
         +0 drops(udp_no_socket) = 2\n\
         +0 drops() = 2",
    );
}
