//! Calls that users of std and tokio look for first, with their names and meanings.

use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use firelane::{
    Envelope, Incoming, Outgoing, Poller, Ready, Stack, StreamConfig, TcpListener, TcpStream, UdpSocket,
};
use tokio::io::ReadBuf;
use tokio::runtime::Runtime;

use crate::wired::pair;

fn connected() -> ([Stack; 2], [TcpStream; 2]) {
    let [server, client] = pair();
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    let stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
    let accepted = listener.accept().unwrap().0;
    ([server, client], [stream, accepted])
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

#[test]
fn what_was_set_can_be_read() {
    let (stacks, [stream, _accepted]) = connected();
    assert_eq!((stream.nodelay().unwrap(), stream.ttl().unwrap()), (false, 64));
    stream.set_nodelay(true).unwrap();
    stream.set_ttl(9).unwrap();
    assert_eq!((stream.nodelay().unwrap(), stream.ttl().unwrap()), (true, 9));
    let limit = Some(Duration::from_millis(20));
    assert_eq!((stream.read_timeout().unwrap(), stream.write_timeout().unwrap()), (None, None));
    stream.set_read_timeout(limit).unwrap();
    stream.set_write_timeout(limit).unwrap();
    assert_eq!((stream.read_timeout().unwrap(), stream.write_timeout().unwrap()), (limit, limit));
    for linger in [Some(Duration::ZERO), limit, None] {
        stream.set_linger(linger).unwrap();
        assert_eq!(stream.linger().unwrap(), linger);
    }
    let listener = TcpListener::bind(&stacks[0], "10.0.0.1:8").unwrap();
    assert_eq!(listener.ttl().unwrap(), 64);
    let socket = UdpSocket::bind(&stacks[0], "10.0.0.1:9").unwrap();
    assert_eq!((socket.ttl().unwrap(), socket.broadcast().unwrap()), (64, false));
    socket.set_ttl(3).unwrap();
    socket.set_broadcast(true).unwrap();
    assert_eq!((socket.ttl().unwrap(), socket.broadcast().unwrap()), (3, true));
    assert_eq!((socket.multicast_ttl_v4().unwrap(), socket.multicast_loop_v4().unwrap()), (1, true));
    socket.set_multicast_ttl_v4(4).unwrap();
    socket.set_multicast_loop_v4(false).unwrap();
    assert_eq!((socket.multicast_ttl_v4().unwrap(), socket.multicast_loop_v4().unwrap()), (4, false));
    assert!(socket.multicast_loop_v6().unwrap());
    socket.set_multicast_loop_v6(false).unwrap();
    assert!(!socket.multicast_loop_v6().unwrap());
    socket.set_read_timeout(limit).unwrap();
    socket.set_write_timeout(limit).unwrap();
    assert_eq!((socket.read_timeout().unwrap(), socket.write_timeout().unwrap()), (limit, limit));
    assert_eq!(socket.set_write_timeout(Some(Duration::ZERO)).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_look_takes_nothing() {
    let (stacks, [mut stream, mut accepted]) = connected();
    stream.write_all(b"hello").unwrap();
    let mut seen = [0; 3];
    assert_eq!(accepted.peek(&mut seen).unwrap(), 3);
    assert_eq!(runtime().block_on(accepted.peek_async(&mut seen)).unwrap(), 3);
    let mut all = [0; 5];
    accepted.read_exact(&mut all).unwrap();
    assert_eq!((&seen, &all), (b"hel", b"hello"));
    accepted.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    assert_eq!(accepted.peek(&mut seen).unwrap_err().kind(), ErrorKind::WouldBlock);
    let [here, there] = ["10.0.0.1:9", "10.0.0.2:9"].map(|it| it.parse::<SocketAddr>().unwrap());
    let receiver = UdpSocket::connected(&stacks[0], here, there).unwrap();
    let sender = UdpSocket::bind(&stacks[1], there).unwrap();
    sender.send_to(b"hello", here).unwrap();
    assert_eq!(receiver.peek(&mut seen).unwrap(), 3);
    assert_eq!(runtime().block_on(receiver.peek_from_async(&mut seen)).unwrap(), (3, there));
    assert_eq!(receiver.recv(&mut all).unwrap(), 5);
}

#[test]
fn a_connection_has_a_limit_of_time() {
    let [_server, client] = pair();
    let nobody = "10.0.0.99:7".parse().unwrap();
    let limit = Duration::from_millis(20);
    assert_eq!(TcpStream::connect_timeout(&client, &nobody, limit).unwrap_err().kind(), ErrorKind::TimedOut);
    for refused in [
        TcpStream::connect_timeout(&client, &nobody, Duration::ZERO),
        TcpStream::connect_with(&client, nobody, StreamConfig::default(), Duration::ZERO),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn connections_come_one_after_another() {
    let [server, client] = pair();
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    let streams: Vec<_> = (0..3).map(|_| TcpStream::connect(&client, "10.0.0.1:7").unwrap()).collect();
    let accepted: Vec<_> = listener.incoming().take(3).map(|it| it.unwrap().peer_addr().unwrap()).collect();
    let asked: Vec<_> = streams.iter().map(|it| it.local_addr().unwrap()).collect();
    assert_eq!(accepted, asked);
    assert!(listener.take_error().unwrap().is_none());
}

#[test]
fn an_error_is_taken_once() {
    let (_stacks, [stream, accepted]) = connected();
    accepted.set_linger(Some(Duration::ZERO)).unwrap();
    drop(accepted);
    let deadline = Instant::now() + Duration::from_secs(10);
    let error = loop {
        assert!(Instant::now() < deadline, "it was reset");
        if let Some(error) = stream.take_error().unwrap() {
            break error;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(stream.take_error().unwrap().is_none());
}

#[test]
fn who_lingers_waits_until_everything_was_acknowledged() {
    let (_stacks, [mut stream, mut accepted]) = connected();
    stream.write_all(b"last words").unwrap();
    stream.set_linger(Some(Duration::from_secs(10))).unwrap();
    let began = Instant::now();
    drop(stream);
    assert!(began.elapsed() < Duration::from_secs(5), "they are acknowledged at once");
    let mut text = String::new();
    accepted.read_to_string(&mut text).unwrap();
    assert_eq!(text, "last words");
    // One that reads nothing is waited for as long as that.
    let (_stacks, [mut stream, _accepted]) = connected();
    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    while stream.write(&[7; 65_536]).is_ok() {}
    stream.set_linger(Some(Duration::from_millis(60))).unwrap();
    let began = Instant::now();
    drop(stream);
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(60) && took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_task_waits_until_it_can_read_or_write() {
    let (_stacks, [stream, mut accepted]) = connected();
    let both = Ready::READABLE | Ready::WRITABLE;
    assert_eq!(runtime().block_on(stream.ready(both)).unwrap(), Ready::WRITABLE);
    let mut waits = 0;
    // The lane may yet move something on.
    while waits < 20 {
        match stream.try_write(&[7; 65_536]) {
            Ok(_) => waits = 0,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                waits += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    let is_ready = |context: &mut Context<'_>| pin!(stream.writable()).poll(context).is_ready();
    assert!(!is_ready(&mut Context::from_waker(Waker::noop())), "there is no room");
    let reading = std::thread::spawn(move || {
        accepted.read_exact(&mut [0; 65_536]).unwrap();
        accepted.write_all(b"x").unwrap();
        accepted
    });
    runtime().block_on(stream.writable()).unwrap();
    let ready = runtime().block_on(stream.ready(Ready::READABLE)).unwrap();
    assert_eq!(ready, Ready::READABLE);
    let accepted = reading.join().unwrap();
    assert_eq!(runtime().block_on(stream.ready(Ready::NONE)).unwrap_err().kind(), ErrorKind::InvalidInput);
    accepted.abort();
    let deadline = Instant::now() + Duration::from_secs(10);
    while runtime().block_on(stream.ready(Ready::WRITABLE)).unwrap() != Ready::WRITABLE | Ready::HANGUP {
        assert!(Instant::now() < deadline, "it is over");
    }
}

#[test]
fn two_tasks_own_the_halves() {
    let (_stacks, [stream, mut accepted]) = connected();
    runtime().block_on(async {
        let (mut reads, mut writes) = stream.into_split();
        tokio::io::AsyncWriteExt::write_all(&mut writes, b"question").await.unwrap();
        assert_eq!(writes.peer_addr().unwrap(), "10.0.0.1:7".parse().unwrap());
        // The peer finds the end, and answers.
        drop(writes);
        let mut text = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut accepted, &mut text).await.unwrap();
        assert_eq!(text, "question");
        tokio::io::AsyncWriteExt::write_all(&mut accepted, b"answer").await.unwrap();
        drop(accepted);
        text.clear();
        tokio::io::AsyncReadExt::read_to_string(&mut reads, &mut text).await.unwrap();
        assert_eq!(text, "answer");
    });
    let (_stacks, [stream, mut accepted]) = connected();
    let (_others, [other, _]) = connected();
    let (reads, writes) = stream.into_split();
    let (reads, writes) = other.into_split().0.reunite(writes).map_err(|error| (reads, error.1)).unwrap_err();
    let mut whole = writes.reunite(reads).unwrap();
    whole.write_all(b"x").unwrap();
    accepted.read_exact(&mut [0]).unwrap();
}

#[test]
fn datagrams_are_tried_polled_and_waited_for() {
    let [server, client] = pair();
    let [here, there] = ["10.0.0.1:9", "10.0.0.2:9"].map(|it| it.parse::<SocketAddr>().unwrap());
    let receiver = UdpSocket::bind(&server, here).unwrap();
    let sender = UdpSocket::connected(&client, there, here).unwrap();
    let mut room = [0; 9];
    assert_eq!(receiver.try_recv_from(&mut room).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(receiver.try_send(b"x").unwrap_err().kind(), ErrorKind::NotConnected);
    runtime().block_on(async {
        sender.writable().await.unwrap();
        assert_eq!(sender.try_send(b"one").unwrap(), 3);
        assert_eq!(sender.send_async(b"two").await.unwrap(), 3);
        assert_eq!(std::future::poll_fn(|context| sender.poll_send(context, b"three")).await.unwrap(), 5);
        receiver.readable().await.unwrap();
        assert_eq!(receiver.try_recv_from(&mut room).unwrap(), (3, there));
        assert_eq!(receiver.recv_async(&mut room).await.unwrap(), 3);
        let mut buffer = ReadBuf::new(&mut room);
        let peer =
            std::future::poll_fn(|context| receiver.poll_recv_from(context, &mut buffer)).await.unwrap();
        assert_eq!((peer, buffer.filled()), (there, &b"three"[..]));
        assert_eq!(receiver.try_send_to(b"back", there).unwrap(), 4);
        assert_eq!(sender.recv_async(&mut room).await.unwrap(), 4);
    });
}

#[test]
fn tasks_send_and_receive_many_with_what_is_written_on_them() {
    let [server, client] = pair();
    let [here, there] = ["10.0.0.1:9", "10.0.0.2:9"].map(|it| it.parse::<SocketAddr>().unwrap());
    let receiver = UdpSocket::bind(&server, here).unwrap();
    let sender = UdpSocket::bind(&client, there).unwrap();
    runtime().block_on(async {
        let mut rooms = [[0; 9]; 4];
        let mut incoming: Vec<_> = rooms.iter_mut().map(|it| Incoming::new(it)).collect();
        assert_eq!(receiver.try_recv_many(&mut incoming).unwrap_err().kind(), ErrorKind::WouldBlock);
        let outgoing = [b"one", b"two"].map(|it| Outgoing { envelope: Envelope::to(here), payload: it });
        assert_eq!(sender.try_send_many(&outgoing).unwrap(), 2);
        assert_eq!(sender.send_many_async(&outgoing).await.unwrap(), 2);
        let mut count = 0;
        while count < 4 {
            count += receiver.recv_many_async(&mut incoming[count..]).await.unwrap();
        }
        for got in &incoming {
            assert_eq!((got.len, got.envelope.unwrap().peer), (3, there));
        }
        assert_eq!(sender.send_many(&outgoing).unwrap(), 2);
        let poll = |context: &mut std::task::Context<'_>| receiver.poll_recv_many(context, &mut incoming);
        assert!(std::future::poll_fn(poll).await.unwrap() > 0);
    });
}

#[test]
fn a_connection_that_was_reset_cannot_be_shut_down() {
    let (_stacks, [mut stream, accepted]) = connected();
    accepted.abort();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(stream.shutdown(Shutdown::Write).unwrap_err().kind(), ErrorKind::NotConnected);
    runtime().block_on(tokio::io::AsyncWriteExt::shutdown(&mut stream)).unwrap();
}

#[test]
fn a_group_that_was_not_joined_cannot_be_left() {
    let [server, _client] = pair();
    let socket = UdpSocket::bind(&server, "10.0.0.1:9").unwrap();
    let (group, any) = ("224.0.1.1".parse().unwrap(), "0.0.0.0".parse().unwrap());
    let left = socket.leave_multicast_v4(&group, &any).unwrap_err();
    assert_eq!(left.kind(), ErrorKind::AddrNotAvailable);
    socket.join_multicast_v4(&group, &"10.0.0.1".parse().unwrap()).unwrap();
    socket.leave_multicast_v4(&group, &any).unwrap();
    assert!(socket.leave_multicast_v4(&group, &any).is_err(), "it has left it");
}

#[test]
fn errors_have_the_systems_numbers() {
    let (stacks, [stream, _accepted]) = connected();
    let numbers = [
        (stream.try_read(&mut [0]).unwrap_err(), 11),
        (UdpSocket::bind(&stacks[0], "10.0.0.1:9").unwrap().send(b"x").unwrap_err(), 107),
        (
            TcpStream::connect_timeout(&stacks[1], &"10.0.0.99:7".parse().unwrap(), Duration::from_millis(1))
                .unwrap_err(),
            110,
        ),
    ];
    for (error, number) in numbers {
        assert_eq!(error.raw_os_error(), Some(number), "{error}");
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.try_write(b"x").unwrap_err().raw_os_error(), Some(32));
}

#[test]
fn who_is_watched_by_a_poller_that_is_gone_can_be_watched() {
    let (_stacks, [stream, _accepted]) = connected();
    let (gone, poller) = (Poller::new(), Poller::new());
    gone.watch(&stream, 1, Ready::READABLE).unwrap();
    assert_eq!(poller.watch(&stream, 2, Ready::READABLE).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(poller.forget(&stream).unwrap_err().kind(), ErrorKind::NotFound, "it is another's");
    drop(gone);
    poller.watch(&stream, 2, Ready::READABLE).unwrap();
    let mut events = Vec::new();
    poller.wait(&mut events, Some(Duration::from_secs(5)));
    assert_eq!(events.iter().map(|event| event.key).collect::<Vec<_>>(), [2]);
    poller.forget(&stream).unwrap();
}
