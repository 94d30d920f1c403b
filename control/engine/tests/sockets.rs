//! Sockets over two netstacks in one process: blocking, asynchronous, many at once, and refused.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use firelane::{
    FastOpenPolicy, ListenConfig, NetstackConfig, Poller, Ready, Stack, StreamConfig, TcpListener, TcpStream,
    UdpSocket, UrgentMode, WireConfig, wire,
};

use crate::wired::pair_with_lanes;

/// Echoes every connection of `listener` to its end.
fn echo(listener: TcpListener) {
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
}

#[test]
fn what_is_sent_comes_back_over_both_families_and_any_number_of_lanes() {
    for lanes in [1, 2, 4] {
        let [server, client] = pair_with_lanes(lanes);
        echo(TcpListener::bind(&server, "[::]:7").unwrap());
        for address in ["10.0.0.1:7", "[fd00::1]:7"] {
            let mut stream = TcpStream::connect(&client, address).unwrap();
            let sent: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
            let mut writing = stream.clone();
            let content = sent.clone();
            let writer = thread::spawn(move || {
                writing.write_all(&content).unwrap();
                writing.shutdown(Shutdown::Write).unwrap();
            });
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            writer.join().unwrap();
            assert!(received == sent, "{lanes} lanes, {address}: {} bytes", received.len());
        }
    }
}

#[test]
fn many_connections_at_once_each_get_their_own_bytes() {
    let [server, client] = pair_with_lanes(2);
    echo(TcpListener::bind(&server, "10.0.0.1:7").unwrap());
    let threads: Vec<_> = (0..40u8)
        .map(|n| {
            let client = client.clone();
            thread::spawn(move || {
                let mut stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
                for round in 0..50 {
                    let message = [n, round, n ^ round];
                    stream.write_all(&message).unwrap();
                    let mut answer = [0; 3];
                    stream.read_exact(&mut answer).unwrap();
                    assert_eq!(answer, message);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// The first connect asks for a cookie, the second has its text in the SYN; the server answers both.
#[test]
fn text_in_the_syn_arrives_and_is_answered() {
    let [server, client] = pair_with_lanes(2);
    let mut config = NetstackConfig::default();
    config.tcp.fast_open = FastOpenPolicy::SERVER;
    server.engine().tune(server.id(), &config).unwrap();
    for address in ["10.0.0.1:7", "[fd00::1]:7"] {
        let address = address.parse().unwrap();
        let fast = ListenConfig { fast_open: 8, ..ListenConfig::default() };
        echo(TcpListener::bind_with(&server, address, fast).unwrap());
        for has_cookie in [false, true, true] {
            let (mut stream, count) = TcpStream::connect_fast(&client, address, b"question").unwrap();
            assert_eq!(count, 8);
            let mut answer = [0; 8];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"question");
            assert_eq!(stream.info().unwrap().tcp.syn_text, has_cookie, "{address}");
        }
    }
}

/// A writer that wants little to be unsent waits, is woken, and delivers everything; so does one whose netstack wants it.
#[test]
fn little_is_unsent_where_the_program_or_the_netstack_says_so() {
    const LIMIT: u32 = 20_000;
    for by_netstack in [false, true] {
        let [server, client] = pair_with_lanes(1);
        let mut config = NetstackConfig::default();
        config.sockets.unsent_limit = if by_netstack { LIMIT } else { u32::MAX };
        client.engine().tune(client.id(), &config).unwrap();
        let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
        let mut stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
        if !by_netstack {
            stream.set_notsent_lowat(Some(LIMIT)).unwrap();
        }
        let (mut accepted, _) = listener.accept().unwrap();
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut piece = [0; 30_000];
            loop {
                // Slower than the writer, so that windows close and open.
                thread::sleep(Duration::from_micros(50));
                match accepted.read(&mut piece).unwrap() {
                    0 => return bytes,
                    count => bytes.extend_from_slice(&piece[..count]),
                }
            }
        });
        let sent: Vec<u8> = (0..8_000_000u32).map(|n| (n % 251) as u8).collect();
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let count = stream.write(&rest[..rest.len().min(100_000)]).unwrap();
            rest = &rest[count..];
            let unsent = stream.info().unwrap().unsent.0;
            assert!(unsent <= 2 * u64::from(LIMIT), "{unsent} bytes are unsent, {by_netstack}");
        }
        stream.set_notsent_lowat(None).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(reader.join().unwrap() == sent);
        assert_eq!(stream.set_notsent_lowat(Some(0)).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

/// A connection of this crate's or of std's.
trait Twin: Read + Write + Sized + Send + 'static {
    fn another(&self) -> Self;
    fn end(&self, how: Shutdown);
}

impl Twin for TcpStream {
    fn another(&self) -> Self {
        self.clone()
    }

    fn end(&self, how: Shutdown) {
        self.shutdown(how).unwrap();
    }
}

impl Twin for std::net::TcpStream {
    fn another(&self) -> Self {
        self.try_clone().unwrap()
    }

    fn end(&self, how: Shutdown) {
        self.shutdown(how).unwrap();
    }
}

/// What reads say after `shutdown(Read)`, with text before it, text behind it, and a thread that waits for more; and after both.
fn reads_after_shutdown<T: Twin>(connected: impl Fn() -> (T, T)) -> Vec<Result<usize, ErrorKind>> {
    let mut told = Vec::new();
    let mut reads = |stream: &mut T| {
        let read = stream.read(&mut [0; 4]).map_err(|error| error.kind());
        told.push(read);
        read
    };
    let (mut stream, mut peer) = connected();
    stream.end(Shutdown::Read);
    for text in [b"first!", b"second"] {
        assert_eq!(reads(&mut stream), Ok(0));
        peer.write_all(text).unwrap();
        // It is on its way, and then there.
        while stream.read(&mut [0; 1]).unwrap() == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let rest: usize =
            std::iter::from_fn(|| stream.read(&mut [0; 4]).ok().filter(|&count| count > 0)).sum();
        assert_eq!(rest, 5);
    }
    stream.write_all(b"on").unwrap();
    let _ = reads(&mut peer);
    // A read that waits ends, and text for nobody resets.
    let (mut stream, mut peer) = connected();
    let mut waiting = stream.another();
    let reader = thread::spawn(move || waiting.read(&mut [0; 4]).map_err(|error| error.kind()));
    thread::sleep(Duration::from_millis(30));
    stream.end(Shutdown::Both);
    assert_eq!(reader.join().unwrap(), Ok(0));
    let _ = reads(&mut peer);
    while peer.write(b"lost").is_ok() {
        thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..2 {
        let _ = reads(&mut stream);
    }
    told
}

#[test]
fn reads_after_a_shutdown_say_what_those_of_std_say() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let wanted = reads_after_shutdown(|| {
        let stream = std::net::TcpStream::connect(addr).unwrap();
        (listener.accept().unwrap().0, stream)
    });
    for [server, client] in [pair_with_lanes(1), pair_with_lanes(2)] {
        let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
        let ours = reads_after_shutdown(|| {
            let stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
            (listener.accept().unwrap().0, stream)
        });
        assert_eq!(ours, wanted);
    }
}

/// Writes until the connection takes no more, and ends the direction under the write that waits.
fn write_under_shutdown<T: Twin>((stream, _peer): (T, T)) -> ErrorKind {
    let mut waiting = stream.another();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let ended = std::iter::repeat_with(|| waiting.write(&[1; 65_536])).find_map(Result::err);
        let _ = tell.send(ended.unwrap().kind());
    });
    assert!(told.recv_timeout(Duration::from_millis(300)).is_err(), "it does not wait");
    stream.end(Shutdown::Write);
    told.recv_timeout(Duration::from_secs(5)).expect("it waits on")
}

#[test]
fn a_write_that_waits_ends_with_its_direction() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(write_under_shutdown((stream, listener.accept().unwrap().0)), ErrorKind::BrokenPipe);
    for [server, client] in [pair_with_lanes(1), pair_with_lanes(2)] {
        let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
        let stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
        // One whose text may hardly be unsent waits for that, and not for room.
        let limited = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
        limited.set_notsent_lowat(Some(1)).unwrap();
        for stream in [stream, limited] {
            let accepted = listener.accept().unwrap().0;
            assert_eq!(write_under_shutdown((stream, accepted)), ErrorKind::BrokenPipe);
        }
    }
}

#[test]
fn who_accepts_hears_that_the_netstack_is_gone() {
    for lanes in [1, 2] {
        let [server, _client] = pair_with_lanes(lanes);
        let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            for _ in 0..2 {
                let _ = tell.send(listener.accept().map(drop).map_err(|error| error.kind()));
            }
        });
        assert!(told.recv_timeout(Duration::from_millis(100)).is_err(), "nobody connects");
        server.engine().remove_netstack(server.id()).unwrap();
        for _ in 0..2 {
            let told = told.recv_timeout(Duration::from_secs(5)).expect("it waits on");
            assert_eq!(told, Err(ErrorKind::ConnectionAborted));
        }
    }
}

/// Each of two who wait, and who asks once more; one of them is told what the lane has said.
#[test]
fn who_waits_for_datagrams_hears_that_the_netstack_is_gone() {
    for lanes in [1, 2] {
        let [server, _client] = pair_with_lanes(lanes);
        let socket = Arc::new(UdpSocket::bind(&server, "10.0.0.1:9").unwrap());
        let (tell, told) = mpsc::channel();
        for peeks in [false, true] {
            let (socket, tell) = (Arc::clone(&socket), tell.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let got = if peeks { socket.peek_from(&mut [0]) } else { socket.recv_from(&mut [0]) };
                    let _ = tell.send(got.map_err(|error| error.kind()));
                }
            });
        }
        assert!(told.recv_timeout(Duration::from_millis(100)).is_err(), "nobody sends");
        server.engine().remove_netstack(server.id()).unwrap();
        for _ in 0..4 {
            let told = told.recv_timeout(Duration::from_secs(5)).expect("it waits on");
            assert_eq!(told, Err(ErrorKind::ConnectionAborted));
        }
        socket.set_nonblocking(true).unwrap();
        assert_eq!(socket.recv_from(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionAborted);
    }
}

/// A poller tells of urgent text; its last octet is read apart, or with the stream.
#[test]
fn urgent_text_is_told_and_read_apart() {
    let [server, client] = pair_with_lanes(1);
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    // Often, because the lane looks at the ring whenever it likes: the mark must be there before the text is.
    for mode in [UrgentMode::OutOfBand, UrgentMode::Inline].repeat(100) {
        let mut stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.set_urgent_mode(mode);
        let poller = Poller::new();
        poller.watch(&accepted, 3, Ready::URGENT).unwrap();
        let mut events = Vec::new();
        // What is ready already is reported once, whether it is or not.
        poller.wait(&mut events, Some(Duration::ZERO));
        stream.write_all(b"first").unwrap();
        assert_eq!(stream.try_write_urgent(b"now!").unwrap(), 4);
        stream.write_all(b"rest").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        events.clear();
        while !events.iter().any(|event: &firelane::Event| event.ready.contains(Ready::URGENT)) {
            poller.wait(&mut events, Some(Duration::from_secs(10)));
            assert!(!events.is_empty(), "nobody was told");
        }
        assert_eq!(accepted.urgent_left(), Some(9));
        let mut before = [0; 8];
        accepted.read_exact(&mut before).unwrap();
        assert_eq!((&before, accepted.is_at_mark()), (b"firstnow", true));
        let mut rest = String::new();
        if mode == UrgentMode::OutOfBand {
            assert_eq!(accepted.read_urgent().unwrap(), b'!');
            accepted.read_to_string(&mut rest).unwrap();
            assert_eq!(rest, "rest");
        } else {
            accepted.read_to_string(&mut rest).unwrap();
            assert_eq!(rest, "!rest");
        }
        assert_eq!(accepted.read_urgent().unwrap_err().kind(), ErrorKind::InvalidInput);
        poller.forget(&accepted).unwrap();
    }
}

#[test]
fn a_port_without_a_listener_refuses_and_a_taken_one_is_in_use() {
    let [server, client] = pair_with_lanes(1);
    let error = TcpStream::connect(&client, "10.0.0.1:9").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let listener = TcpListener::bind(&server, "10.0.0.1:9").unwrap();
    let taken = TcpListener::bind(&server, "0.0.0.0:9").unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    let foreign = TcpListener::bind(&server, "10.0.0.7:9").unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::AddrNotAvailable);
    drop(listener);
    TcpListener::bind(&server, "0.0.0.0:9").unwrap();
}

#[test]
fn a_read_with_a_time_out_gives_up() {
    let [server, client] = pair_with_lanes(1);
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    let mut stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
    let (_kept, peer) = listener.accept().unwrap();
    assert_eq!(peer, stream.local_addr().unwrap());
    stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_closed_peer_ends_the_stream_and_refuses_writes() {
    let [server, client] = pair_with_lanes(1);
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    let mut stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.write_all(b"bye").unwrap();
    drop(accepted);
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, "bye");
    let failed = (0..1000).find_map(|_| {
        thread::sleep(Duration::from_millis(1));
        stream.write_all(b"x").err()
    });
    assert!(matches!(failed.map(|e| e.kind()), Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)));
}

#[test]
fn datagrams_keep_their_bounds_and_their_senders() {
    let [server, client] = pair_with_lanes(2);
    let there = UdpSocket::bind(&server, "10.0.0.1:53").unwrap();
    let here = UdpSocket::bind(&client, "10.0.0.2:0").unwrap();
    for payload in [&b"one"[..], b"", b"three"] {
        here.send_to(payload, "10.0.0.1:53").unwrap();
        let mut buffer = [0; 100];
        let (length, from) = there.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from), (payload, here.local_addr().unwrap()));
        there.send_to(&buffer[..length], from).unwrap();
        assert_eq!(here.recv_from(&mut buffer).unwrap(), (length, "10.0.0.1:53".parse().unwrap()));
    }
    let taken = UdpSocket::bind(&server, "10.0.0.1:53").unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
}

#[test]
fn a_program_may_drive_its_lanes_itself() {
    let (left, right) = wire(WireConfig::default());
    let stack = |end: firelane::Queue, n: u8| {
        let builder = Stack::builder().driven().interface(end).mac(&format!("02:08:20:00:00:0{n}")).unwrap();
        builder.address(&format!("10.0.0.{n}/24")).unwrap().build().unwrap()
    };
    let (server, client) = (stack(left.into(), 1), stack(right.into(), 2));
    let mut workers: Vec<_> =
        server.engine().workers().into_iter().chain(client.engine().workers()).collect();
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    listener.set_nonblocking(true).unwrap();
    let stream = TcpStream::begin(&client, "10.0.0.1:7".parse().unwrap(), Default::default()).unwrap();
    let (mut accepted, mut answer) = (None, [0; 4]);
    for round in 0.. {
        assert!(round < 100_000, "the connection makes no progress");
        for worker in &mut workers {
            worker.run_once(Some(Duration::ZERO));
        }
        if accepted.is_none() {
            accepted = listener.accept().ok();
        }
        let _ = stream.try_write(b"ping");
        if accepted.as_ref().is_some_and(|(peer, _)| peer.try_read(&mut answer).is_ok()) {
            break;
        }
    }
    assert_eq!(&answer, b"ping");
}

/// `TCP_INFO` of both ends of a transfer agrees with what was sent.
#[test]
fn a_stream_tells_what_it_knows_of_itself() {
    let [server, client] = pair_with_lanes(2);
    let listener = TcpListener::bind(&server, "[::]:7").unwrap();
    for (address, mtu) in [("10.0.0.1:7", 1500), ("[fd00::1]:7", 1500)] {
        let mut near = TcpStream::connect(&client, address).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 100_000]).unwrap();
        far.read_exact(&mut [0; 100_000]).unwrap();
        let info = far.info().unwrap();
        assert_eq!((info.tcp.bytes_received.0, info.unread.0), (100_000, 0));
        assert_eq!((info.local, info.remote), (near.peer_addr().unwrap(), near.local_addr().unwrap()));
        // The last ACK may still be on its way.
        let info = std::iter::repeat_with(|| near.info().unwrap())
            .find(|info| info.tcp.unacknowledged.0 == 0 && info.unsent.0 == 0)
            .unwrap();
        assert_eq!(info.tcp.bytes_acknowledged.0, 100_000);
        assert!(info.tcp.counts.text_out >= 69, "100,000 bytes in segments of 1,448 or less");
        assert_eq!(info.path_mtu().bytes(), mtu);
        let bytes = info.tcp_info();
        assert_eq!((bytes.len(), bytes[0]), (280, 1), "tcpi_state is TCP_ESTABLISHED");
        near.abort();
        // Both ends know what was, for as long as somebody has them.
        for (end, carried) in [(&near, [100_000, 0]), (&far, [0, 100_000])] {
            let last = std::iter::repeat_with(|| end.info().unwrap()).find(firelane::StreamInfo::has_ended);
            let last = last.unwrap();
            assert_eq!([last.tcp.bytes_acknowledged.0, last.tcp.bytes_received.0], carried);
            assert!(last.tcp.rtt.is_some() && last.tcp.counts.segments_in > 0);
            assert_eq!(last.tcp_info()[0], 7, "TCP_CLOSE");
            thread::sleep(Duration::from_millis(20));
            let later = end.info().unwrap().tcp;
            assert!(later.last_heard >= last.tcp.last_heard + Duration::from_millis(20));
        }
    }
}

/// What a program asks of a lane that its own thread runs is answered, whatever waits before it.
#[test]
fn a_driven_lane_answers_its_own_worker() {
    let (left, right) = wire(WireConfig::default());
    let stack = |end: firelane::Queue, n: u8| {
        let builder = Stack::builder().driven().interface(end).mac(&format!("02:08:20:00:00:0{n}")).unwrap();
        builder.address(&format!("10.0.0.{n}/24")).unwrap().build().unwrap()
    };
    let (server, client) = (stack(left.into(), 1), stack(right.into(), 2));
    let mut workers = [server.engine().workers().pop().unwrap(), client.engine().workers().pop().unwrap()];
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    listener.set_nonblocking(true).unwrap();
    let stream = TcpStream::begin(&client, "10.0.0.1:7".parse().unwrap(), Default::default()).unwrap();
    while listener.accept().is_err() {
        for worker in &mut workers {
            worker.run_once(Some(Duration::ZERO));
        }
    }
    assert_eq!(stream.try_write(b"waits in the FIFO").unwrap(), 17);
    let info = stream.info().unwrap();
    assert_eq!(info.remote, "10.0.0.1:7".parse().unwrap());
    for _ in 0..10_000 {
        // More than the FIFO holds.
        stream.set_nodelay(true).unwrap();
    }
}

/// What the program of a driven lane begins and ends is done in order with the lane's next turn, however much that is.
#[test]
fn a_driven_lane_does_what_its_program_wants_with_its_next_turn() {
    let (end, _other) = wire(WireConfig::default());
    let builder = Stack::builder().driven().interface(end).mac("02:08:20:00:00:01").unwrap();
    let stack = builder.address("10.0.0.1/24").unwrap().build().unwrap();
    let mut worker = stack.engine().workers().pop().unwrap();
    worker.run_once(Some(Duration::ZERO));
    let begin = || TcpStream::begin(&stack, "10.0.0.77:7".parse().unwrap(), Default::default()).unwrap();
    let connections = || stack.engine().snapshot().connections;
    let kept = begin();
    drop(begin());
    assert_eq!(kept.local_addr().unwrap_err().kind(), ErrorKind::NotConnected, "the lane has not turned");
    worker.run_once(Some(Duration::ZERO));
    assert_eq!(kept.local_addr().unwrap().ip().to_string(), "10.0.0.1");
    assert_eq!(connections(), 1);
    // More than the FIFO holds.
    (0..5_000).for_each(|_| drop(begin()));
    drop(kept);
    worker.run_once(Some(Duration::ZERO));
    assert_eq!(connections(), 0);
}

/// A driven lane whose thread has ended without another turn is open to who asks: what waits there is done first.
#[test]
fn a_driven_lane_that_nobody_drives_any_more_answers_all_the_same() {
    let (end, _other) = wire(WireConfig::default());
    let builder = Stack::builder().driven().interface(end).mac("02:08:20:00:00:01").unwrap();
    let stack = builder.address("10.0.0.1/24").unwrap().build().unwrap();
    let driven = stack.clone();
    let kept = thread::spawn(move || {
        let mut worker = driven.engine().workers().pop().unwrap();
        worker.run_once(Some(Duration::ZERO));
        TcpStream::begin(&driven, "10.0.0.77:7".parse().unwrap(), Default::default()).unwrap()
    })
    .join()
    .unwrap();
    let (told, answer) = std::sync::mpsc::channel();
    thread::spawn(move || told.send(stack.engine().snapshot().connections));
    assert_eq!(answer.recv_timeout(Duration::from_secs(20)).ok(), Some(1));
    drop(kept);
}

/// Programs may close what they have only begun to connect, also while the lane is busy: nothing stays.
#[test]
fn a_stream_that_is_closed_at_once_leaves_nothing() {
    let [_server, client] = pair_with_lanes(1);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let nobody = "10.0.0.77:7".parse().unwrap();
                    drop(TcpStream::begin(&client, nobody, Default::default()).unwrap());
                }
            });
        }
    });
    let left = || client.engine().snapshot().connections;
    let gone = (0..1_000).any(|_| {
        thread::sleep(Duration::from_millis(5));
        left() == 0
    });
    assert!(gone, "{} connections without a socket", left());
}

/// The segments of a connection arrive in the lane of its tuple, and a bound port leaves no choice of the tuple.
#[test]
fn who_has_bound_a_port_connects_with_any_number_of_lanes() {
    let [server, client] = pair_with_lanes(4);
    echo(TcpListener::bind(&server, "[::]:7").unwrap());
    echo(TcpListener::bind(&client, "[::]:7").unwrap());
    let ways = [
        ("10.0.0.2", "10.0.0.1:7"),
        ("0.0.0.0", "10.0.0.1:7"),
        ("10.0.0.2", "10.0.0.2:7"),
        ("0.0.0.0", "127.0.0.1:7"),
        ("fd00::2", "[fd00::1]:7"),
        ("::", "[fd00::2]:7"),
    ];
    for round in 0..16 {
        for ((local, remote), port) in ways.into_iter().zip(3000 + 10 * round..) {
            let local = SocketAddr::new(local.parse().unwrap(), port);
            let rings = StreamConfig::default();
            let begun = TcpStream::begin_from(&client, Some(local), remote.parse().unwrap(), rings);
            let mut stream = begun.unwrap();
            stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream.write_all(b"here").unwrap_or_else(|error| panic!("{local} to {remote}: {error}"));
            let mut answer = [0; 4];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!((&answer, stream.local_addr().unwrap().port()), (b"here", port));
        }
    }
}
