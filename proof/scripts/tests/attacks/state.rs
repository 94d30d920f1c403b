//! S: attacks on a connection's state.

use std::fmt::Write as _;

use crate::holds;

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
fn s08_a_split_handshake_confuses_nobody() {
    // Our SYN is answered by an ACK, by a SYN, and by the wrong one of both: only what RFC 9293 §3.5 knows opens.
    holds(
        "+0 c = connect(8080)\n\
         +0 > S 0:0(0) <...>\n\
         +.02 < . 0:0(0) ack 1 win 65535\n\
         +0 connected(c) = no\n\
         +.02 < S 0:0(0) win 65535 <mss 1000>\n\
         +0 > S. 0:0(0) ack 1 <mss 1460>\n\
         +0 connected(c) = no\n\
         +.02 < P. 1:11(10) ack 2 win 65535\n\
         +0 > R 2:2(0)\n\
         +0 connected(c) = no\n\
         +.02 < . 1:1(0) ack 1 win 65535\n\
         +0 connected(c) = yes\n\
         +0 write(c, 10)\n\
         +0 > P. 1:11(10) ack 1",
    );
}

#[test]
fn s08_both_ends_may_open_and_close_at_once() {
    holds(
        "+0 c = connect(8080)\n\
         +0 > S 0:0(0) <...>\n\
         +.05 < S 0:0(0) win 65535 <mss 1000>\n\
         +0 > S. 0:0(0) ack 1 <mss 1460>\n\
         +.05 < S. 0:0(0) ack 1 win 65535 <mss 1000>\n\
         +0 connected(c) = yes\n\
         +0 close(c)\n\
         +0 > F. 1:1(0) ack 1\n\
         +.05 < F. 1:1(0) ack 1 win 65535\n\
         +0 > . 2:2(0) ack 2\n\
         +.05 < . 2:2(0) ack 2 win 65535\n\
         +0 connections() = 0\n\
         +0 time_wait() = 1",
    );
}

/// RFC 1337: neither a RST nor old text nor an old SYN takes a tuple out of TIME-WAIT before its time.
#[test]
fn s09_time_wait_is_not_assassinated() {
    holds(
        "+0 c = established(80)\n\
         +0 close(c)\n\
         +0 > F. 1:1(0) ack 1\n\
         +.05 < F. 1:1(0) ack 2 win 65535\n\
         +0 > . 2:2(0) ack 2\n\
         +0 < R 2:2(0)\n\
         +0 < R. 2:2(0) ack 2\n\
         +1 < S 0:0(0) win 65535 <mss 1000>\n\
         +0 > . 2:2(0) ack 2\n\
         +1 < . 1:1(0) ack 2 win 65535\n\
         +0 > . 2:2(0) ack 2\n\
         +1 time_wait() = 1\n\
         +0 connections() = 0",
    );
}

/// RFC 6191: only a SYN that cannot be an old one opens the tuple anew.
#[test]
fn s09_a_later_timestamp_opens_a_tuple_in_time_wait() {
    holds(
        "+0 c = established(80, ts)\n\
         +0 close(c)\n\
         +0 > F. 1:1(0) ack 1 <nop,nop,TS val 50 ecr 1050>\n\
         +.05 < F. 1:1(0) ack 2 win 65535 <nop,nop,TS val 1100 ecr 50>\n\
         +0 > . 2:2(0) ack 2 <nop,nop,TS val 100 ecr 1100>\n\
         +1 < S -5000:-5000(0) win 65535 <mss 1000,nop,nop,TS val 1100 ecr 0>\n\
         +0 > . 2:2(0) ack 2 <nop,nop,TS val 1100 ecr 1100>\n\
         +0 time_wait() = 1\n\
         +0 < S -5000:-5000(0) win 65535 <mss 1000,nop,nop,TS val 2100 ecr 0> new\n\
         +0 > S. 0:0(0) ack -4999 <mss 1460,nop,nop,TS val 0 ecr 2100>",
    );
}

#[test]
fn s10_an_orphan_in_fin_wait_2_is_over_after_a_minute() {
    holds(
        "+0 c = established(80)\n\
         +0 close(c)\n\
         +0 > F. 1:1(0) ack 1\n\
         +.05 < . 1:1(0) ack 2 win 65535\n\
         +59 connections() = 1\n\
         +2 connections() = 0\n\
         +0 time_wait() = 0",
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
         +0 < P. 1:11(10) ack 1 win 65535\n\
         +0 > . 1001:1001(0) ack 11\n\
         +0 < P. 11:21(10) ack -1000000000 win 65535\n\
         +0 > . 1001:1001(0) ack 11\n\
         +1 < P. 11:21(10) ack -1073730000 win 65535\n\
         +0 > . 1001:1001(0) ack 11\n\
         +0 drops(tcp_unacceptable) = 2\n\
         +0 drops() = 2",
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
         +0 drops(tcp_duplicate) = 2\n\
         +0 drops() = 2",
    );
}
