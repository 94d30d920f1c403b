//! U: attacks on UDP.

use crate::holds;

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
