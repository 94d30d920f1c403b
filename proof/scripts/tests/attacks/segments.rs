//! T: malformed and misleading segments.

use std::fmt::Write as _;

use crate::{GRANTED, carries_text_in_spite_of, holds};

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
         +0 drops(tcp_duplicate) = 1\n\
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
