//! TCP Fast Open of clients (RFC 7413): MSG_FASTOPEN and TCP_FASTOPEN_CONNECT, as scripts use them and as Linux answers.
#![allow(unsafe_code, missing_docs)]

mod support;

use std::net::SocketAddr;

use firelane_wire::{FastOpen, TcpFlags, TcpOptions};
use libc::{
    EAGAIN, EALREADY, ECONNREFUSED, EINPROGRESS, EINVAL, EISCONN, ENOTCONN, EOPNOTSUPP, IPPROTO_TCP,
    MSG_DONTWAIT, MSG_FASTOPEN, POLLOUT, SHUT_WR, SO_ERROR, SOL_SOCKET, TCP_FASTOPEN, TCP_FASTOPEN_CONNECT,
    TCP_FASTOPEN_NO_COOKIE, TCP_INFO,
};
use support::{Drill, Got, waits};

const SYN: TcpFlags = TcpFlags::SYN;
const ACK: TcpFlags = TcpFlags::ACK;
const RST: TcpFlags = TcpFlags::RST;
const COOKIE: [u8; 8] = *b"a cookie";
const PORT: u16 = 8080;
/// What a SYN carries for a peer that has announced segments of 1000: Linux leaves room for all options that there may be.
const ROOM: usize = 960;

fn both(flags: &str, test: impl Fn(Drill)) {
    for is_v6 in [false, true] {
        let drill = Drill::new(flags, is_v6);
        test(drill);
        drill.free();
    }
}

/// The cookie in a SYN's options; empty if it asks for one.
fn cookie(got: &Got) -> Option<Vec<u8>> {
    TcpOptions::parse(&got.options).fast_open().map(|option| option.as_slice().to_vec())
}

/// The peer answers a SYN and acknowledges so much of its text.
fn answer(drill: &Drill, syn: &Got, text: u32, cookie: Option<&[u8]>) {
    let mut options = TcpOptions { mss: Some(1000), ..TcpOptions::default() };
    if let Some(cookie) = cookie {
        options = options.with_fast_open(FastOpen::new(cookie).unwrap());
    }
    let here = Drill { local: Some(syn.src.ip()), ..*drill };
    let ack = syn.seq.wrapping_add(1 + text);
    here.peer_with((syn.dst_port, syn.src.port()), SYN | ACK, (0, Some(ack)), options, b"");
}

fn nonblocking(drill: &Drill) -> i32 {
    drill.socket(libc::SOCK_STREAM | libc::SOCK_NONBLOCK)
}

fn to_peer(drill: &Drill) -> Vec<u8> {
    support::sockaddr(SocketAddr::new(drill.remote(), PORT))
}

fn send_fast(drill: &Drill, fd: i32, text: &[u8]) -> Result<i64, i32> {
    drill.sendto_with(fd, text, MSG_FASTOPEN, &to_peer(drill))
}

/// A first connection asks for the cookie, gets it, and is gone.
fn fetch_cookie(drill: &Drill) {
    let fd = nonblocking(drill);
    assert_eq!(send_fast(drill, fd, b""), Err(EINPROGRESS));
    let syn = drill.segment();
    assert_eq!((syn.flags, cookie(&syn), syn.text.len()), (SYN, Some(vec![]), 0), "it asks");
    answer(drill, &syn, 0, Some(&COOKIE));
    assert_eq!(drill.segment().flags, ACK);
    assert_eq!(drill.get_int(fd, SOL_SOCKET, SO_ERROR), Ok(0));
    drill.close(fd).unwrap();
    let fin = drill.segment();
    drill.peer_to(&fin, RST, 1, b"");
}

/// The text that leaves from here on, until the SYN's and this are `len` bytes.
fn text_after(drill: &Drill, mut text: Vec<u8>, len: usize) -> Vec<u8> {
    while text.len() < len {
        text.extend(drill.segment().text);
    }
    text
}

#[test]
fn the_first_asks_and_the_second_brings_text() {
    both("", |drill| {
        fetch_cookie(&drill);
        let fd = nonblocking(&drill);
        assert_eq!(send_fast(&drill, fd, &[7; 500]), Ok(500));
        let syn = drill.segment();
        assert_eq!((syn.flags, cookie(&syn)), (SYN, Some(COOKIE.to_vec())));
        assert_eq!(syn.text, [7; 500]);
        assert_eq!(drill.poll(fd, POLLOUT, 0), (0, 0));
        assert_eq!(drill.write(fd, b"more"), Err(EAGAIN), "until the handshake is over");
        assert_eq!(send_fast(&drill, fd, b"more"), Err(EALREADY));
        answer(&drill, &syn, 500, None);
        assert_eq!((drill.segment().flags, drill.poll(fd, POLLOUT, 0)), (ACK, (1, POLLOUT)));
        // It is told of once, as by connect(2), and the text goes on.
        assert_eq!(send_fast(&drill, fd, b"more"), Ok(4));
        let more = drill.segment();
        assert_eq!((more.seq, more.text), (syn.seq.wrapping_add(501), b"more".to_vec()));
        assert_eq!(send_fast(&drill, fd, b"more"), Err(EISCONN));
        assert_eq!(drill.connect(fd, PORT), Err(EISCONN));
    });
}

#[test]
fn a_syn_takes_no_more_than_a_segment() {
    both("", |drill| {
        fetch_cookie(&drill);
        let fd = drill.tcp();
        assert_eq!(drill.sendmsg(fd, &[7; 3000], MSG_FASTOPEN | MSG_DONTWAIT, PORT), Ok(ROOM as i64));
        let syn = drill.segment();
        assert_eq!(syn.text.len(), ROOM);
        answer(&drill, &syn, ROOM as u32, None);
        assert_eq!(drill.connect(fd, PORT), Ok(0));
        assert_eq!(drill.segment().flags, ACK);
        assert_eq!(drill.write(fd, b"the rest"), Ok(8));
        assert_eq!(drill.segment().text, b"the rest");
    });
}

#[test]
fn who_waits_gets_all_of_it_sent() {
    both("", |drill| {
        // Without a cookie all of it goes behind the handshake.
        for with_syn in [0, ROOM] {
            let fd = drill.tcp();
            let text: Vec<u8> = (0..2500_u32).map(|n| n as u8).collect();
            let sent = text.clone();
            let writer = waits(move || send_fast(&drill, fd, &sent));
            let syn = drill.segment();
            assert_eq!((syn.text.len(), cookie(&syn).is_some()), (with_syn, true));
            answer(&drill, &syn, with_syn as u32, Some(&COOKIE));
            assert_eq!(text_after(&drill, syn.text.clone(), text.len()), text);
            assert_eq!(writer.join().unwrap(), Ok(2500));
            drill.peer_to(&syn, RST, 1, b"");
        }
    });
}

#[test]
fn text_that_the_answer_does_not_cover_goes_again() {
    both("", |drill| {
        fetch_cookie(&drill);
        let fd = nonblocking(&drill);
        assert_eq!(send_fast(&drill, fd, b"a question"), Ok(10));
        let syn = drill.segment();
        answer(&drill, &syn, 0, None);
        let again = drill.segment();
        assert_eq!((again.seq, again.text), (syn.seq.wrapping_add(1), b"a question".to_vec()));
    });
}

#[test]
fn a_refused_connection_is_told_of() {
    both("", |drill| {
        fetch_cookie(&drill);
        let fd = drill.tcp();
        let writer = waits(move || send_fast(&drill, fd, b"text"));
        let syn = drill.segment();
        drill.peer_to(&Got { seq: syn.seq.wrapping_add(4), ..syn }, RST | ACK, 0, b"");
        assert_eq!(writer.join().unwrap(), Err(ECONNREFUSED));
        let fd = nonblocking(&drill);
        assert_eq!(send_fast(&drill, fd, b"text"), Ok(4));
        let syn = drill.segment();
        drill.peer_to(&Got { seq: syn.seq.wrapping_add(4), ..syn }, RST | ACK, 0, b"");
        assert_eq!(drill.get_int(fd, SOL_SOCKET, SO_ERROR), Ok(ECONNREFUSED));
    });
}

#[test]
fn who_has_no_patience_is_told_what_the_syn_took() {
    both("", |drill| {
        for taken in [Err(EINPROGRESS), Ok(4)] {
            let fd = drill.tcp();
            drill.set_timeout(fd, libc::SO_SNDTIMEO, 2);
            let began = drill.now();
            assert_eq!(send_fast(&drill, fd, b"text"), taken);
            assert!((2_000_000..2_100_000).contains(&(drill.now() - began)));
            let syn = drill.segment();
            // The second SYN is there by now; what it says is of the first, too.
            assert_eq!((drill.segment().flags, drill.segment().flags), (SYN, SYN));
            answer(&drill, &syn, taken.unwrap_or(0) as u32, Some(&COOKIE));
            assert_eq!(drill.connect(fd, PORT), Ok(0));
            drill.close(fd).unwrap();
            while !drill.segment().flags.contains(TcpFlags::FIN) {}
            drill.peer_to(&syn, RST, 1, b"");
        }
    });
}

#[test]
fn a_connect_waits_for_the_first_text() {
    both("", |drill| {
        let connects = |fd| {
            drill.set(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &[1]).unwrap();
            assert_eq!(drill.get_int(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT), Ok(1));
            drill.connect(fd, PORT)
        };
        let fd = nonblocking(&drill);
        assert_eq!(connects(fd), Err(EINPROGRESS), "it asks for the cookie, and waits as others do");
        let syn = drill.segment();
        assert_eq!((cookie(&syn), syn.text.len()), (Some(vec![]), 0));
        answer(&drill, &syn, 0, Some(&COOKIE));
        assert_eq!((drill.segment().flags, drill.connect(fd, PORT)), (ACK, Ok(0)));
        let fd = nonblocking(&drill);
        assert_eq!(connects(fd), Ok(0), "with a cookie it begins nothing");
        assert_eq!(drill.connect(fd, PORT), Err(EISCONN));
        assert_eq!((drill.bind(fd, 9), drill.listen(fd, 1)), (Err(EINVAL), Err(EINVAL)));
        assert_eq!(drill.poll(fd, POLLOUT, 0), (1, POLLOUT));
        assert_eq!(drill.read(fd, 9), Err(EAGAIN));
        assert_eq!(drill.get(fd, IPPROTO_TCP, TCP_INFO).unwrap()[0], 2, "TCP_SYN_SENT");
        assert_eq!(drill.write(fd, b"text"), Ok(4));
        let syn = drill.segment();
        assert_eq!((cookie(&syn), &syn.text[..]), (Some(COOKIE.to_vec()), &b"text"[..]));
        answer(&drill, &syn, 4, None);
        assert_eq!((drill.segment().flags, drill.connect(fd, PORT)), (ACK, Ok(0)));
        // One that is given up has sent nothing: what leaves next is another's.
        let fd = nonblocking(&drill);
        assert_eq!((connects(fd), drill.shutdown(fd, SHUT_WR)), (Ok(0), Ok(0)));
        assert_eq!(drill.read(fd, 9), Err(ENOTCONN));
        assert_eq!((connects(fd), drill.close(fd)), (Ok(0), Ok(0)));
        let fd = drill.tcp();
        assert_eq!(connects(fd), Ok(0));
        let writer = waits(move || drill.write(fd, &[7; 2000]));
        let syn = drill.segment();
        assert_eq!(syn.text.len(), ROOM);
        answer(&drill, &syn, ROOM as u32, None);
        assert_eq!(text_after(&drill, syn.text, 2000), [7; 2000]);
        assert_eq!(writer.join().unwrap(), Ok(2000));
    });
}

#[test]
fn no_cookie_is_needed_where_the_socket_says_so() {
    both("", |drill| {
        let fd = nonblocking(&drill);
        drill.set(fd, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &[1]).unwrap();
        assert_eq!(send_fast(&drill, fd, b"text"), Ok(4));
        let syn = drill.segment();
        assert_eq!((cookie(&syn), &syn.text[..]), (None, &b"text"[..]));
    });
}

#[test]
fn mistakes_have_their_numbers() {
    both("fast_open=2", |drill| {
        let fd = nonblocking(&drill);
        assert_eq!(send_fast(&drill, fd, b"text"), Err(EOPNOTSUPP), "no client here opens fast");
        assert_eq!(drill.set(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &[1]), Err(EOPNOTSUPP));
        assert_eq!(drill.set(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &[2]), Err(EINVAL));
    });
    both("", |drill| {
        let (accepted, _) = drill.established(80);
        assert_eq!(send_fast(&drill, accepted, b"text"), Err(EISCONN));
        for name in [TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE] {
            assert_eq!(drill.set(accepted, IPPROTO_TCP, name, &[1]), Err(EINVAL), "{name}: it is too late");
        }
        let listener = drill.tcp();
        drill.bind(listener, 81).unwrap();
        drill.listen(listener, 1).unwrap();
        assert_eq!(send_fast(&drill, listener, b"text"), Err(EISCONN));
        let fd = nonblocking(&drill);
        assert_eq!(drill.sendto_with(fd, b"text", MSG_FASTOPEN, &[]), Err(EINVAL), "to whom?");
        let unspecified = [libc::AF_UNSPEC as u8; 16];
        assert_eq!(drill.sendto_with(fd, b"text", MSG_FASTOPEN, &unspecified), Err(EOPNOTSUPP));
        assert_eq!(send_fast(&drill, fd, b""), Err(EINPROGRESS), "it has begun nothing before");
        assert_eq!(drill.segment().src.is_ipv6(), drill.is_v6);
    });
}
