//! Every entry point, called through the table as packetdrill calls it, over both families.
#![allow(unsafe_code, missing_docs)]

mod support;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use firelane_packetdrill::abi::Interface;
use firelane_wire::{IpProtocol, Sum, TcpFlags};
use libc::{
    EAGAIN, EALREADY, EBADF, ECONNREFUSED, ECONNRESET, EINPROGRESS, EINVAL, EISCONN, ENOTCONN, EPIPE,
};
use support::{Drill, PEER_ISN, result, sockaddr, waits};

const ACK: TcpFlags = TcpFlags::ACK;

fn both(test: impl Fn(Drill)) {
    for is_v6 in [false, true] {
        let drill = Drill::new("", is_v6);
        test(drill);
        drill.free();
    }
}

#[test]
fn the_table_has_packetdrills_order() {
    let names = "free socket bind listen accept connect read readv recv recvfrom recvmsg write writev send sendto \
        sendmsg fcntl ioctl close shutdown getsockopt setsockopt poll netdev_send netdev_receive usleep gettimeofday \
        epoll_create epoll_ctl epoll_wait pipe splice";
    assert_eq!(Interface::NAMES.join(" "), names);
    assert_eq!(Interface::NAMES.len(), 32);
    assert_eq!(size_of::<Interface>(), 33 * size_of::<usize>());
}

#[test]
fn a_peer_opens_a_connection_talks_and_closes() {
    both(|drill| {
        let listener = drill.tcp();
        drill.bind(listener, 8080).unwrap();
        drill.listen(listener, 1).unwrap();
        drill.nonblocking(listener);
        assert_eq!(drill.accept(listener), Err(EAGAIN));
        let iss = drill.opens(8080);
        let (fd, from) = drill.accept(listener).unwrap();
        assert_eq!(from, sockaddr(SocketAddr::new(drill.remote(), 9)));
        assert_eq!(drill.write(fd, b"hello"), Ok(5));
        let hello = drill.segment();
        assert_eq!((hello.seq, hello.text.as_slice()), (iss, &b"hello"[..]));
        drill.peer((9, 8080), ACK | TcpFlags::PSH, 1, Some(iss + 5), b"abc");
        assert_eq!(drill.recv(fd, 9, libc::MSG_PEEK), Ok(b"abc".to_vec()));
        assert_eq!(drill.read(fd, 9), Ok(b"abc".to_vec()));
        assert_eq!(drill.recv(fd, 9, libc::MSG_DONTWAIT), Err(EAGAIN));
        drill.peer((9, 8080), ACK | TcpFlags::FIN, 4, Some(iss + 5), b"");
        assert_eq!(drill.segment().ack, PEER_ISN + 4);
        assert_eq!(drill.segment().ack, PEER_ISN + 5);
        assert_eq!(drill.read(fd, 9), Ok(Vec::new()));
        assert_eq!(drill.close(fd), Ok(0));
        assert!(drill.segment().flags.contains(TcpFlags::FIN));
        // Its number may be another test's by now, which would lose it to a second close.
        assert_eq!(drill.set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &[1]), Err(EBADF));
        assert_eq!(drill.close(i32::MAX), Err(EBADF));
    });
}

#[test]
fn connecting_without_waiting_goes_through_linux_states() {
    both(|drill| {
        let fd = drill.socket(libc::SOCK_STREAM | libc::SOCK_NONBLOCK);
        assert_eq!(drill.write(fd, b"x"), Err(EPIPE));
        assert_eq!(drill.read(fd, 1), Err(ENOTCONN));
        assert_eq!(drill.connect(fd, 80), Err(EINPROGRESS));
        assert_eq!(drill.connect(fd, 80), Err(EALREADY));
        assert_eq!(drill.write(fd, b"x"), Err(EAGAIN));
        assert_eq!(drill.poll(fd, libc::POLLOUT, 0), (0, 0));
        let syn = drill.segment();
        assert_eq!(syn.flags, TcpFlags::SYN);
        drill.peer_to(&syn, TcpFlags::SYN | ACK, 0, b"");
        assert_eq!(drill.segment().flags, ACK);
        assert_eq!(drill.poll(fd, libc::POLLOUT, 0), (1, libc::POLLOUT));
        assert_eq!(drill.get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR), Ok(0));
        assert_eq!(drill.connect(fd, 80), Ok(0), "the first that asks is told");
        assert_eq!(drill.connect(fd, 80), Err(EISCONN));
        assert_eq!(drill.write(fd, b"x"), Ok(1));
    });
}

#[test]
fn a_refused_connect_is_told_once() {
    both(|drill| {
        let fd = drill.socket(libc::SOCK_STREAM | libc::SOCK_NONBLOCK);
        assert_eq!(drill.connect(fd, 80), Err(EINPROGRESS));
        let syn = drill.segment();
        drill.peer_to(&syn, TcpFlags::RST | ACK, 0, b"");
        let events = libc::POLLIN | libc::POLLOUT | libc::POLLERR | libc::POLLHUP;
        assert_eq!(drill.poll(fd, events, 0), (1, events));
        assert_eq!(drill.get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR), Ok(ECONNREFUSED));
        assert_eq!(drill.get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR), Ok(0));
        assert_eq!(drill.write(fd, b"x"), Err(EPIPE));
    });
}

#[test]
fn a_reset_is_told_as_linux_does() {
    both(|drill| {
        let (fd, iss) = drill.established(80);
        drill.peer((9, 80), TcpFlags::RST | ACK, 1, Some(iss), b"");
        assert_eq!(drill.read(fd, 1), Err(ECONNRESET));
        assert_eq!(drill.read(fd, 1), Ok(Vec::new()));
        assert_eq!(drill.write(fd, b"x"), Err(EPIPE));
    });
    both(|drill| {
        // After the peer's FIN, the reset breaks a pipe; who reads has had his end.
        let (fd, iss) = drill.established(80);
        drill.peer((9, 80), TcpFlags::FIN | ACK, 1, Some(iss), b"");
        drill.segment();
        drill.peer((9, 80), TcpFlags::RST | ACK, 2, Some(iss), b"");
        assert_eq!(drill.read(fd, 1), Ok(Vec::new()));
        assert_eq!(drill.get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR), Ok(EPIPE));
        assert_eq!(drill.read(fd, 1), Ok(Vec::new()));
        assert_eq!(drill.write(fd, b"x"), Err(EPIPE));
    });
}

#[test]
fn a_blocked_call_returns_at_the_instant_of_its_event() {
    both(|drill| {
        let (fd, iss) = drill.established(80);
        let begin = drill.now();
        let reader = waits(move || {
            let text = drill.read(fd, 10).unwrap();
            (text, drill.now())
        });
        drill.usleep(500_000);
        drill.peer((9, 80), ACK, 1, Some(iss), b"abc");
        // Time goes on at once, and the call has returned before.
        drill.usleep(7_000_000);
        let (text, at) = reader.join().unwrap();
        assert_eq!(text, b"abc");
        assert!((500_000..500_100).contains(&(at - begin)), "{}", at - begin);
        assert!(drill.now() - begin >= 7_500_000);
    });
}

#[test]
fn a_blocked_accept_and_a_blocked_connect_return() {
    both(|drill| {
        let listener = drill.tcp();
        drill.bind(listener, 80).unwrap();
        drill.listen(listener, 1).unwrap();
        let accept = waits(move || drill.accept(listener).map(|(fd, _)| fd));
        drill.opens(80);
        assert!(accept.join().unwrap().is_ok());
        let fd = drill.tcp();
        let connect = waits(move || drill.connect(fd, 4000));
        let syn = drill.segment();
        drill.peer_to(&syn, TcpFlags::SYN | ACK, 0, b"");
        assert_eq!(connect.join().unwrap(), Ok(0));
    });
}

#[test]
fn a_blocked_write_goes_on_as_the_peer_acknowledges() {
    let drill = Drill::new("send_buf=4096", false);
    let (fd, iss) = drill.established(80);
    let write = waits(move || drill.write(fd, &[7; 10_000]));
    let mut next = iss;
    while next.wrapping_sub(iss) < 10_000 {
        let segment = drill.segment();
        assert_eq!(segment.seq, next);
        next = next.wrapping_add(segment.text.len() as u32);
        drill.peer((9, 80), ACK, 1, Some(next), b"");
    }
    assert_eq!(write.join().unwrap(), Ok(10_000));
    drill.free();
}

#[test]
fn waiting_ends_in_virtual_time() {
    both(|drill| {
        let (fd, _) = drill.established(80);
        let begin = drill.now();
        assert_eq!(drill.poll(fd, libc::POLLIN, 2_000), (0, 0));
        assert!((2_000_000..2_000_100).contains(&(drill.now() - begin)));
        drill.set_timeout(fd, libc::SO_RCVTIMEO, 3);
        let begin = drill.now();
        assert_eq!(drill.read(fd, 1), Err(EAGAIN));
        assert!((3_000_000..3_000_100).contains(&(drill.now() - begin)));
    });
}

#[test]
fn minutes_of_retransmission_take_no_time() {
    both(|drill| {
        let (fd, iss) = drill.established(80);
        assert_eq!(drill.write(fd, b"lost"), Ok(4));
        let first = drill.segment();
        let wall = std::time::Instant::now();
        let mut last = first.time;
        let mut gaps = Vec::new();
        for _ in 0..6 {
            let again = drill.segment();
            assert_eq!(again.seq, iss);
            gaps.push(again.time - last);
            last = again.time;
        }
        assert!(last - first.time > 10_000_000, "{gaps:?}");
        assert!(gaps.windows(2).skip(1).all(|pair| pair[1] > pair[0]), "it backs off: {gaps:?}");
        assert!(wall.elapsed() < Duration::from_secs(5));
        drill.close(fd).unwrap();
    });
}

#[test]
fn waiting_for_a_packet_that_never_comes_ends() {
    both(|drill| {
        let before = drill.now();
        assert_eq!(drill.receive().0, b"");
        assert!(drill.now() > before, "a microsecond passes at least");
    });
}

#[test]
fn a_question_for_the_time_is_answered_later_than_the_one_before() {
    both(|drill| {
        let times: Vec<i64> = (0..100).map(|_| drill.now()).collect();
        assert!(times.windows(2).all(|pair| pair[1] > pair[0]));
    });
}

#[test]
fn vectors_and_messages_are_gathered_and_scattered() {
    both(|drill| {
        let (fd, iss) = drill.established(80);
        let (mut a, mut b) = (*b"ab", *b"cde");
        let mut vectors = [
            libc::iovec { iov_base: a.as_mut_ptr().cast(), iov_len: 2 },
            libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: 3 },
        ];
        let (table, user) = (drill.table, drill.table.userdata);
        // SAFETY: the vectors and what they name live until the calls return.
        unsafe {
            assert_eq!((table.writev)(user, fd, vectors.as_ptr(), 2), 5);
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (vectors.as_mut_ptr(), 2);
            assert_eq!((table.sendmsg)(user, fd, &message, 0), 5);
            assert_eq!(drill.segment().text, b"abcde");
            // Nagle keeps the second until the first is acknowledged.
            drill.peer((9, 80), ACK, 1, Some(iss + 5), b"");
            assert_eq!(drill.segment().text, b"abcde");
            drill.peer((9, 80), ACK, 1, Some(iss + 10), b"123456789");
            assert_eq!((table.readv)(user, fd, vectors.as_ptr(), 2), 5);
            assert_eq!((&a, &b), (b"12", b"345"));
            message.msg_controllen = 7;
            assert_eq!((table.recvmsg)(user, fd, &mut message, 0), 4);
            assert_eq!((&a, &b[..2], message.msg_controllen), (b"67", &b"89"[..], 0));
            assert_eq!((table.recvmsg)(user, fd, &mut message, libc::MSG_ERRQUEUE), -1);
            assert_eq!(support::errno(), EAGAIN);
        }
    });
}

#[test]
fn datagrams_go_both_ways() {
    both(|drill| {
        let fd = drill.socket(libc::SOCK_DGRAM);
        drill.bind(fd, 53).unwrap();
        assert_eq!(drill.write(fd, b"x"), Err(libc::EDESTADDRREQ));
        assert_eq!(drill.sendto(fd, b"question", 5353), Ok(8));
        let (packet, _) = drill.receive();
        assert!(packet.ends_with(b"question"));
        drill.inject(&drill.packet(IpProtocol::UDP, udp(&drill, 5353, 53, b"answer"))).unwrap();
        let (mut from, mut from_len, mut bytes) = ([0_u8; 64], 64, [0_u8; 4]);
        // SAFETY: room as the lengths say.
        let count = unsafe {
            (drill.table.recvfrom)(
                drill.table.userdata,
                fd,
                bytes.as_mut_ptr().cast(),
                4,
                libc::MSG_TRUNC,
                from.as_mut_ptr().cast(),
                &mut from_len,
            )
        };
        assert_eq!((count, &bytes), (6, b"answ"), "the call tells the whole length");
        assert_eq!(&from[..from_len as usize], sockaddr(SocketAddr::new(drill.remote(), 5353)));
        assert_eq!(drill.connect(fd, 5353), Ok(0));
        assert_eq!(drill.write(fd, b"more"), Ok(4));
        assert!(drill.receive().0.ends_with(b"more"));
        assert_eq!(drill.recv(fd, 1, libc::MSG_DONTWAIT), Err(EAGAIN));
    });
}

/// A UDP datagram of the peer's.
fn udp(drill: &Drill, from: u16, to: u16, text: &[u8]) -> Vec<u8> {
    let len = 8 + text.len() as u16;
    let words = [from, to, len, 0];
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u16::to_be_bytes).collect();
    bytes.extend(text);
    let pseudo = Sum::pseudo(drill.remote(), drill.local(), IpProtocol::UDP, len.into());
    firelane_wire::udp::fill_checksum(&mut bytes, pseudo);
    bytes
}

#[test]
fn options_are_kept_and_answered_as_linux_does() {
    both(|drill| {
        let fd = drill.tcp();
        let socket = |name| drill.get_int(fd, libc::SOL_SOCKET, name);
        assert_eq!(drill.set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &[10_000]), Ok(0));
        assert_eq!(socket(libc::SO_RCVBUF), Ok(20_000), "twice, as the kernel does");
        assert_eq!(drill.set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &[1]), Ok(0));
        assert_eq!(socket(libc::SO_REUSEADDR), Ok(1));
        assert_eq!(socket(libc::SO_TYPE), Ok(libc::SOCK_STREAM));
        assert_eq!(socket(libc::SO_ACCEPTCONN), Ok(0));
        assert_eq!(drill.set(fd, libc::SOL_SOCKET, libc::SO_LINGER, &[1, 7]), Ok(0));
        let linger = drill.get(fd, libc::SOL_SOCKET, libc::SO_LINGER).unwrap();
        assert_eq!(linger, [1_i32.to_ne_bytes(), 7_i32.to_ne_bytes()].concat());
        let tcp = |name| drill.get_int(fd, libc::IPPROTO_TCP, name);
        assert_eq!(drill.set(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &[5]), Ok(0));
        assert_eq!(tcp(libc::TCP_NODELAY), Ok(1));
        assert_eq!(drill.set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &[0]), Err(EINVAL));
        assert_eq!(drill.set(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &[30]), Ok(0));
        assert_eq!(tcp(libc::TCP_KEEPIDLE), Ok(30));
        assert_eq!(drill.get(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION).unwrap()[..6], *b"cubic\0");
        let vegas = i32::from_ne_bytes(*b"vega");
        assert_eq!(drill.set(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &[vegas]), Err(libc::ENOENT));
        let reno = i32::from_ne_bytes(*b"reno");
        assert_eq!(drill.set(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &[reno]), Ok(0));
        assert_eq!(drill.get(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION).unwrap()[..5], *b"reno\0");
        assert_eq!(socket(libc::SO_MAX_PACING_RATE), Ok(-1), "no limit");
        assert_eq!(drill.set(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &[125_000]), Ok(0));
        assert_eq!(socket(libc::SO_MAX_PACING_RATE), Ok(125_000));
        assert_eq!(drill.set(fd, libc::IPPROTO_TCP, 250, &[1]), Err(libc::ENOPROTOOPT));
        assert_eq!(drill.set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &[]), Err(EINVAL));
        assert_eq!(drill.set(99, libc::SOL_SOCKET, libc::SO_RCVBUF, &[1]), Err(EBADF));
    });
}

#[test]
fn tcp_info_has_linux_layout() {
    both(|drill| {
        let (fd, _) = drill.established(80);
        let info = drill.get(fd, libc::IPPROTO_TCP, libc::TCP_INFO).unwrap();
        assert_eq!(info[0], 1, "TCP_ESTABLISHED");
        let word = |at: usize| u32::from_ne_bytes(info[at..at + 4].try_into().unwrap());
        assert_eq!(word(16), 1000, "tcpi_snd_mss");
        assert_eq!(word(80), 10, "tcpi_snd_cwnd");
        let listener = drill.tcp();
        drill.bind(listener, 81).unwrap();
        drill.listen(listener, 1).unwrap();
        assert_eq!(drill.get(listener, libc::IPPROTO_TCP, libc::TCP_INFO).unwrap()[0], 10, "TCP_LISTEN");
    });
}

#[test]
fn queues_are_told_by_ioctl() {
    both(|drill| {
        let (fd, iss) = drill.established(80);
        drill.write(fd, b"12345").unwrap();
        drill.segment();
        drill.peer((9, 80), ACK, 1, Some(iss), b"abc");
        let ask = |request| {
            let mut value = -1;
            // SAFETY: room for the number.
            let done = unsafe { (drill.table.ioctl)(drill.table.userdata, fd, request, &mut value) };
            result(done).map(|_| value)
        };
        assert_eq!((ask(libc::FIONREAD), ask(libc::TIOCOUTQ), ask(0x894b)), (Ok(3), Ok(5), Ok(0)));
        assert_eq!(ask(1), Err(libc::ENOTTY));
    });
}

#[test]
fn local_ends_exclude_each_other() {
    both(|drill| {
        let (a, b) = (drill.tcp(), drill.tcp());
        assert_eq!(drill.bind(a, 80), Ok(0));
        assert_eq!(drill.bind(a, 81), Err(EINVAL), "bound already");
        assert_eq!(drill.bind(b, 80), Err(libc::EADDRINUSE));
        for fd in [a, b] {
            drill.set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &[1]).unwrap();
        }
        assert_eq!(drill.bind(b, 80), Ok(0), "neither listens");
        assert_eq!(drill.listen(a, 1), Ok(0));
        assert_eq!(drill.listen(b, 1), Err(libc::EADDRINUSE));
        let other_family: SocketAddr = if drill.is_v6 { "1.2.3.4:5" } else { "[fd00::1]:5" }.parse().unwrap();
        assert_eq!(drill.bind_to(drill.tcp(), other_family), Err(libc::EAFNOSUPPORT));
    });
    let drill = Drill::new("local=10.0.0.1/24", false);
    assert_eq!(drill.bind(drill.tcp(), 80), Err(libc::EADDRNOTAVAIL), "the addresses were said");
    drill.free();
}

#[test]
fn shutdown_ends_directions() {
    both(|drill| {
        assert_eq!(drill.shutdown(drill.tcp(), libc::SHUT_WR), Err(ENOTCONN));
        let (fd, iss) = drill.established(80);
        assert_eq!(drill.shutdown(fd, 9), Err(EINVAL));
        assert_eq!(drill.shutdown(fd, libc::SHUT_WR), Ok(0));
        assert!(drill.segment().flags.contains(TcpFlags::FIN));
        assert_eq!(drill.write(fd, b"x"), Err(EPIPE));
        drill.peer((9, 80), ACK, 1, Some(iss + 1), b"still");
        assert_eq!(drill.read(fd, 9), Ok(b"still".to_vec()));
        assert_eq!(drill.shutdown(fd, libc::SHUT_RD), Ok(0));
        assert_eq!(drill.read(fd, 9), Ok(Vec::new()));
    });
}

#[test]
fn an_ipv6_socket_serves_ipv4_in_mapped_addresses() {
    let drill = Drill::new("", false);
    let wide = Drill { is_v6: true, ..drill };
    let listener = wide.tcp();
    let mapped = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => IpAddr::from(ip.to_ipv6_mapped()),
        ip => ip,
    };
    assert_eq!(drill.bind_to(listener, SocketAddr::new(mapped(drill.local()), 80)), Ok(0));
    drill.listen(listener, 1).unwrap();
    drill.opens(80);
    let (_, from) = drill.accept(listener).unwrap();
    assert_eq!(from, sockaddr(SocketAddr::new(mapped(drill.remote()), 9)));
    drill.free();
}

#[test]
fn lingering_for_no_time_resets() {
    both(|drill| {
        let (fd, _) = drill.established(80);
        drill.set(fd, libc::SOL_SOCKET, libc::SO_LINGER, &[1, 0]).unwrap();
        drill.close(fd).unwrap();
        assert!(drill.segment().flags.contains(TcpFlags::RST));
    });
}

#[test]
fn epoll_reports_levels_and_edges() {
    both(|drill| {
        let (table, user) = (drill.table, drill.table.userdata);
        let (fd, iss) = drill.established(80);
        // SAFETY: events live until the calls return.
        unsafe {
            assert_eq!((table.epoll_create)(user, 0), -1);
            let epoll = (table.epoll_create)(user, 1);
            let events = (libc::EPOLLIN | libc::EPOLLET) as u32;
            let mut event = libc::epoll_event { events, u64: 77 };
            assert_eq!((table.epoll_ctl)(user, epoll, libc::EPOLL_CTL_ADD, fd, &mut event), 0);
            let mut found = [libc::epoll_event { events: 0, u64: 0 }; 4];
            assert_eq!((table.epoll_wait)(user, epoll, found.as_mut_ptr(), 4, 0), 0);
            drill.peer((9, 80), ACK, 1, Some(iss), b"a");
            assert_eq!((table.epoll_wait)(user, epoll, found.as_mut_ptr(), 4, -1), 1);
            let (events, data) = (found[0].events, found[0].u64);
            assert_eq!((events, data), (libc::EPOLLIN as u32, 77));
            assert_eq!((table.epoll_wait)(user, epoll, found.as_mut_ptr(), 4, 0), 0, "no new edge");
            drill.peer((9, 80), ACK, 2, Some(iss), b"b");
            assert_eq!((table.epoll_wait)(user, epoll, found.as_mut_ptr(), 4, 1000), 1);
            assert_eq!((table.epoll_wait)(user, fd, found.as_mut_ptr(), 4, 0), -1);
        }
    });
}

#[test]
fn pipes_are_the_hosts_and_splice_joins_them() {
    both(|drill| {
        let (table, user) = (drill.table, drill.table.userdata);
        let (fd, iss) = drill.established(80);
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors, and bytes that live until the calls return.
        unsafe {
            assert_eq!((table.pipe)(user, ends.as_mut_ptr()), 0);
            let [out, into] = ends;
            assert_eq!((table.write)(user, into, b"piped".as_ptr().cast(), 5), 5);
            let null = std::ptr::null_mut();
            assert_eq!((table.splice)(user, out, null, fd, null, 5, 0), 5);
            assert_eq!(drill.segment().text, b"piped");
            drill.peer((9, 80), ACK, 1, Some(iss + 5), b"back");
            assert_eq!((table.splice)(user, fd, null, into, null, 9, 0), 4);
            let mut bytes = [0_u8; 4];
            assert_eq!((table.read)(user, out, bytes.as_mut_ptr().cast(), 4), 4);
            assert_eq!(&bytes, b"back");
            assert_eq!(drill.poll(into, libc::POLLOUT, 0), (1, libc::POLLOUT));
            for end in ends {
                assert_eq!((table.close)(user, end), 0);
            }
        }
    });
}
