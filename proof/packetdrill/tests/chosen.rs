//! Options of how streams begin and end, of what is unsent, of urgent text and of packets' headers: set as scripts set them, and
//! what the peer sees of it.
#![allow(unsafe_code, missing_docs)]

mod support;

use libc::{
    EAGAIN, EINVAL, ENOPROTOOPT, EPOLLPRI, IP_TOS, IP_TTL, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP,
    IPV6_TCLASS, IPV6_UNICAST_HOPS, MSG_DONTWAIT, MSG_OOB, SO_OOBINLINE, SO_RCVLOWAT, SOL_SOCKET,
    TCP_DEFER_ACCEPT, TCP_FASTOPEN, TCP_FASTOPEN_NO_COOKIE, TCP_LINGER2, TCP_MAXSEG, TCP_NOTSENT_LOWAT,
    TCP_SYNCNT,
};

use firelane_wire::TcpFlags;
use support::{Drill, waits};

const ACK: TcpFlags = TcpFlags::ACK;

fn both(flags: &str, test: impl Fn(Drill)) {
    for is_v6 in [false, true] {
        let drill = Drill::new(flags, is_v6);
        test(drill);
        drill.free();
    }
}

#[test]
fn what_is_chosen_is_what_is_got() {
    both("", |drill| {
        let fd = drill.tcp();
        for (level, name, value, got) in [
            (IPPROTO_TCP, TCP_FASTOPEN, 5, Ok(5)),
            (IPPROTO_TCP, TCP_FASTOPEN, -1, Err(EINVAL)),
            (IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, 1, Ok(1)),
            (IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, 2, Err(EINVAL)),
            // In seconds of repeats of the SYN-ACK, as Linux rounds them.
            (IPPROTO_TCP, TCP_DEFER_ACCEPT, 5, Ok(7)),
            (IPPROTO_TCP, TCP_SYNCNT, 3, Ok(3)),
            (IPPROTO_TCP, TCP_SYNCNT, 0, Err(EINVAL)),
            (IPPROTO_TCP, TCP_LINGER2, 7, Ok(7)),
            (IPPROTO_TCP, TCP_LINGER2, -9, Ok(-1)),
            (IPPROTO_TCP, TCP_LINGER2, 0, Ok(60)),
            (IPPROTO_TCP, TCP_NOTSENT_LOWAT, 4096, Ok(4096)),
            (IPPROTO_TCP, TCP_MAXSEG, 700, Ok(700)),
            (IPPROTO_TCP, TCP_MAXSEG, 87, Err(EINVAL)),
            (IPPROTO_IP, IP_TTL, 9, Ok(9)),
            (IPPROTO_IP, IP_TTL, 0, Err(EINVAL)),
            (IPPROTO_IP, IP_TTL, -1, Ok(64)),
            (IPPROTO_IP, IP_TOS, 0x28, Ok(0x28)),
            (IPPROTO_IPV6, IPV6_UNICAST_HOPS, 256, Err(EINVAL)),
            (IPPROTO_IPV6, IPV6_TCLASS, 0xb8, Ok(0xb8)),
            (IPPROTO_IPV6, 200, 1, Err(ENOPROTOOPT)),
            (SOL_SOCKET, SO_RCVLOWAT, 10, Ok(10)),
            (SOL_SOCKET, SO_RCVLOWAT, 0, Ok(1)),
            (SOL_SOCKET, SO_OOBINLINE, 1, Ok(1)),
            (SOL_SOCKET, SO_OOBINLINE, 0, Ok(0)),
        ] {
            let set = drill.set(fd, level, name, &[value]);
            let after = set.and_then(|_| drill.get_int(fd, level, name));
            assert_eq!(after, got, "{level} {name} {value}");
        }
    });
}

/// The hop limit and the class of a packet.
fn header(packet: &[u8]) -> (u8, u8) {
    match packet[0] >> 4 {
        4 => (packet[8], packet[1]),
        _ => (packet[7], packet[0] << 4 | packet[1] >> 4),
    }
}

#[test]
fn packets_have_the_chosen_hop_limit_and_class() {
    both("", |drill| {
        let (level, hops, class) = match drill.is_v6 {
            true => (IPPROTO_IPV6, IPV6_UNICAST_HOPS, IPV6_TCLASS),
            false => (IPPROTO_IP, IP_TTL, IP_TOS),
        };
        let choose = |fd, ttl, tos| {
            drill.set(fd, level, hops, &[ttl]).unwrap();
            drill.set(fd, level, class, &[tos]).unwrap();
        };
        let (fd, _) = drill.established(80);
        choose(fd, 5, 0x28);
        drill.write(fd, b"text").unwrap();
        assert_eq!(header(&drill.receive().0), (5, 0x28));
        let datagrams = drill.socket(libc::SOCK_DGRAM);
        choose(datagrams, 7, 0xb8);
        drill.sendto(datagrams, b"one", 53).unwrap();
        assert_eq!(header(&drill.receive().0), (7, 0xb8));
        choose(datagrams, -1, 0);
        drill.sendto(datagrams, b"two", 53).unwrap();
        assert_eq!(header(&drill.receive().0), (64, 0));
    });
}

#[test]
fn a_program_that_wants_little_to_be_unsent_writes_little() {
    both("", |drill| {
        let (fd, iss) = drill.established(80);
        drill.nonblocking(fd);
        drill.set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &[4096]).unwrap();
        assert_eq!(drill.write(fd, &[1; 60_000]), Ok(4096));
        // The window takes these and more, so they are sent at once, and the next, until it is full.
        while drill.write(fd, &[1; 60_000]).is_ok() {}
        assert_eq!(drill.poll(fd, libc::POLLOUT, 0), (0, 0));
        // All of the initial window, until the first is sent again.
        let mut end = iss;
        loop {
            let got = drill.segment();
            if got.seq != end {
                break;
            }
            end = end.wrapping_add(got.text.len() as u32);
        }
        assert!((8_000..=10_000).contains(&end.wrapping_sub(iss)), "{}", end.wrapping_sub(iss));
        drill.peer((9, 80), ACK, 1, Some(end), b"");
        assert_eq!(drill.poll(fd, libc::POLLOUT, 0), (1, libc::POLLOUT));
    });
}

#[test]
fn a_deferred_connection_is_accepted_with_its_text() {
    both("", |drill| {
        let listener = drill.tcp();
        drill.set(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &[5]).unwrap();
        drill.bind(listener, 80).unwrap();
        drill.listen(listener, 4).unwrap();
        drill.nonblocking(listener);
        let iss = drill.opens(80);
        assert_eq!(drill.accept(listener), Err(EAGAIN));
        drill.peer((9, 80), ACK, 1, Some(iss), b"text");
        let (fd, _) = drill.accept(listener).unwrap();
        assert_eq!(drill.recv(fd, 9, MSG_DONTWAIT), Ok(b"text".to_vec()));
    });
}

#[test]
fn a_largest_segment_is_announced_and_kept_to() {
    both("", |drill| {
        let listener = drill.tcp();
        drill.set(listener, IPPROTO_TCP, TCP_MAXSEG, &[600]).unwrap();
        drill.bind(listener, 80).unwrap();
        drill.listen(listener, 4).unwrap();
        drill.peer((9, 80), TcpFlags::SYN, 0, None, b"");
        let answer = drill.segment();
        assert_eq!(answer.options[..4], [2, 4, 2, 88], "an MSS of 600");
        let iss = answer.seq.wrapping_add(1);
        drill.peer((9, 80), ACK, 1, Some(iss), b"");
        let (fd, _) = drill.accept(listener).unwrap();
        drill.write(fd, &[1; 1200]).unwrap();
        assert_eq!([drill.segment().text.len(), drill.segment().text.len()], [600, 600]);
    });
}

#[test]
fn syns_are_repeated_as_often_as_was_said() {
    both("", |drill| {
        let fd = drill.socket(libc::SOCK_STREAM | libc::SOCK_NONBLOCK);
        drill.set(fd, IPPROTO_TCP, TCP_SYNCNT, &[2]).unwrap();
        assert_eq!(drill.connect(fd, 80), Err(libc::EINPROGRESS));
        for _ in 0..3 {
            assert_eq!(drill.segment().flags, TcpFlags::SYN);
        }
        drill.usleep(60_000_000);
        assert_eq!(drill.get_int(fd, SOL_SOCKET, libc::SO_ERROR), Ok(libc::ETIMEDOUT));
    });
}

#[test]
fn a_closed_half_waits_as_long_as_was_said() {
    both("", |drill| {
        for (seconds, answers) in [(50, true), (5, false)] {
            let port = if answers { 80 } else { 81 };
            let (fd, iss) = drill.established(port);
            drill.set(fd, IPPROTO_TCP, TCP_LINGER2, &[seconds]).unwrap();
            drill.close(fd).unwrap();
            assert!(drill.segment().flags.contains(TcpFlags::FIN));
            drill.peer((9, port), ACK, 1, Some(iss + 1), b"");
            drill.usleep(10_000_000);
            drill.peer((9, port), ACK | TcpFlags::FIN, 1, Some(iss + 1), b"");
            let answer = drill.segment().flags;
            assert_eq!(answer.contains(TcpFlags::RST), !answers, "{seconds} s: {answer:?}");
        }
    });
}

#[test]
fn a_syn_brings_text_where_the_listener_takes_it() {
    both("fast_open=2", |drill| {
        let listener = drill.tcp();
        drill.set(listener, IPPROTO_TCP, TCP_FASTOPEN, &[4]).unwrap();
        drill.set(listener, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &[1]).unwrap();
        drill.bind(listener, 80).unwrap();
        drill.listen(listener, 4).unwrap();
        drill.peer((9, 80), TcpFlags::SYN, 0, None, b"early");
        let answer = drill.segment();
        assert_eq!(answer.ack, support::PEER_ISN + 6, "the text is acknowledged with the SYN");
        let (fd, _) = drill.accept(listener).unwrap();
        assert_eq!(drill.recv(fd, 9, MSG_DONTWAIT), Ok(b"early".to_vec()));
    });
}

#[test]
fn a_reader_hears_of_no_less_than_his_low_water() {
    both("", |drill| {
        let (fd, iss) = drill.established(80);
        drill.set(fd, SOL_SOCKET, SO_RCVLOWAT, &[5]).unwrap();
        drill.peer((9, 80), ACK, 1, Some(iss), b"abc");
        assert_eq!(drill.poll(fd, libc::POLLIN, 0), (0, 0));
        let reader = waits(move || drill.read(fd, 100));
        drill.peer((9, 80), ACK, 4, Some(iss), b"def");
        assert_eq!(reader.join().unwrap(), Ok(b"abcdef".to_vec()));
        drill.peer((9, 80), ACK, 7, Some(iss), b"ghijk");
        assert_eq!(drill.poll(fd, libc::POLLIN, 0), (1, libc::POLLIN));
        assert_eq!(drill.recv(fd, 2, MSG_DONTWAIT), Ok(b"gh".to_vec()));
        assert_eq!(
            drill.recv(fd, 9, MSG_DONTWAIT),
            Ok(b"ijk".to_vec()),
            "who does not wait gets what there is"
        );
    });
}

#[test]
fn urgent_text_is_apart_or_in_line() {
    both("", |drill| {
        let (fd, iss) = drill.established(80);
        assert_eq!(drill.recv(fd, 1, MSG_OOB), Err(EINVAL), "there is none");
        drill.peer((9, 80), ACK | TcpFlags::URG, 1, Some(iss), b"ab!");
        assert_eq!(drill.poll(fd, EPOLLPRI as i16, 0), (1, EPOLLPRI as i16));
        assert_eq!(drill.recv(fd, 1, MSG_OOB), Ok(b"!".to_vec()));
        assert_eq!(drill.recv(fd, 1, MSG_OOB), Err(EINVAL), "it was read");
        assert_eq!(drill.recv(fd, 9, MSG_DONTWAIT), Ok(b"ab".to_vec()));
        assert_eq!(drill.segment().flags, ACK);
        let (fd, iss) = drill.established(81);
        drill.set(fd, SOL_SOCKET, SO_OOBINLINE, &[1]).unwrap();
        drill.peer((9, 81), ACK | TcpFlags::URG, 1, Some(iss), b"cd?");
        assert_eq!(drill.recv(fd, 1, MSG_OOB), Err(EINVAL));
        assert_eq!(drill.recv(fd, 9, MSG_DONTWAIT), Ok(b"cd".to_vec()), "a read ends at the mark");
        assert_eq!(drill.recv(fd, 9, MSG_DONTWAIT), Ok(b"?".to_vec()));
        assert_eq!(drill.send(fd, b"now", MSG_OOB), Ok(3));
        let now = loop {
            let got = drill.segment();
            if !got.text.is_empty() {
                break got;
            }
        };
        assert!(now.flags.contains(TcpFlags::URG) && now.text == b"now", "{now:?}");
    });
}
