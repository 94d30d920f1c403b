//! One thread, one poller, every kind of socket: accepting, echoing, datagrams, and the end of a connection.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use firelane::{
    Event, Poller, Ready, Stack, StreamConfig, TcpListener, TcpStream, UdpSocket, WireConfig, wire,
};

const LISTENER: u64 = u64::MAX;
const DATAGRAMS: u64 = u64::MAX - 1;
const CLIENTS: usize = 8;
const MESSAGE: usize = 100_000;

fn pair() -> (Stack, Stack) {
    let (left, right) = wire(WireConfig::default());
    let stack = |end: firelane::Queue, n: u8| {
        let builder = Stack::builder().lanes(2).interface(end).mac(&format!("02:08:20:00:00:0{n}")).unwrap();
        builder.address(&format!("10.0.0.{n}/24")).unwrap().build().unwrap()
    };
    (stack(left.into(), 1), stack(right.into(), 2))
}

/// A connection and what of its bytes has to go back.
struct Echo {
    stream: TcpStream,
    waits: Vec<u8>,
    over: bool,
}

impl Echo {
    /// Reads and writes until neither goes on: events are edges.
    fn go_on(&mut self) -> std::io::Result<()> {
        let mut bytes = [0; 4096];
        loop {
            while !self.waits.is_empty() {
                match self.stream.try_write(&self.waits) {
                    Ok(count) => drop(self.waits.drain(..count)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            match self.stream.try_read(&mut bytes) {
                Ok(0) => {
                    self.over = true;
                    return self.stream.shutdown(Shutdown::Write);
                }
                Ok(count) => self.waits.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Serves until every client has closed, all from one thread.
fn serve(listener: TcpListener, datagrams: UdpSocket) {
    let (poller, mut events) = (Poller::new(), Vec::<Event>::new());
    listener.set_nonblocking(true).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    poller.watch(&listener, LISTENER, Ready::READABLE).unwrap();
    poller.watch(&datagrams, DATAGRAMS, Ready::READABLE).unwrap();
    let mut echoes: Vec<Echo> = Vec::new();
    let mut bytes = [0; 100];
    while echoes.len() < CLIENTS || echoes.iter().any(|echo| !echo.over) {
        poller.wait(&mut events, Some(Duration::from_secs(20)));
        assert!(!events.is_empty(), "nothing happens for long");
        for event in &events {
            match event.key {
                LISTENER => {
                    while let Ok((stream, _)) = listener.accept() {
                        let key = echoes.len() as u64;
                        poller.watch(&stream, key, Ready::READABLE | Ready::WRITABLE).unwrap();
                        echoes.push(Echo { stream, waits: Vec::new(), over: false });
                    }
                }
                DATAGRAMS => {
                    while let Ok((count, from)) = datagrams.recv_from(&mut bytes) {
                        datagrams.send_to(&bytes[..count], from).unwrap();
                    }
                }
                key if echoes[key as usize].over => {}
                key => echoes[key as usize].go_on().unwrap(),
            }
        }
    }
}

#[test]
fn one_thread_serves_many_connections_and_datagrams() {
    let (server, client) = pair();
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    let datagrams = UdpSocket::bind(&server, "10.0.0.1:7").unwrap();
    let serving = thread::spawn(move || serve(listener, datagrams));
    let mine = UdpSocket::bind(&client, "10.0.0.2:0").unwrap();
    mine.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let clients: Vec<_> = (0..CLIENTS as u8)
        .map(|n| {
            let client = client.clone();
            thread::spawn(move || {
                let mut stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
                let mut writing = stream.clone();
                let writer = thread::spawn(move || {
                    writing.write_all(&vec![n; MESSAGE]).unwrap();
                    writing.shutdown(Shutdown::Write).unwrap();
                });
                let mut received = Vec::new();
                stream.read_to_end(&mut received).unwrap();
                writer.join().unwrap();
                assert!(received == vec![n; MESSAGE]);
            })
        })
        .collect();
    let mut back = [0; 10];
    mine.send_to(b"hello", "10.0.0.1:7").unwrap();
    assert_eq!(mine.recv_from(&mut back).unwrap().0, 5);
    assert_eq!(&back[..5], b"hello");
    clients.into_iter().for_each(|client| client.join().unwrap());
    serving.join().unwrap();
}

#[test]
fn a_connection_that_ends_is_reported_and_a_forgotten_one_is_not() {
    let (server, client) = pair();
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    let ours = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
    let (theirs, _) = listener.accept().unwrap();
    let (poller, mut events) = (Poller::new(), Vec::new());
    poller.watch(&ours, 5, Ready::READABLE).unwrap();
    poller.wait(&mut events, Some(Duration::ZERO));
    theirs.abort();
    poller.wait(&mut events, Some(Duration::from_secs(20)));
    assert!(events[0].key == 5 && events[0].ready.contains(Ready::HANGUP), "{events:?}");
    assert_eq!(ours.try_read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let other = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
    let (theirs, _) = listener.accept().unwrap();
    poller.watch(&other, 6, Ready::READABLE).unwrap();
    poller.wait(&mut events, Some(Duration::ZERO));
    poller.forget(&other).unwrap();
    (&theirs).write_all(b"x").unwrap();
    (&other).read_exact(&mut [0; 1]).unwrap();
    poller.wait(&mut events, Some(Duration::from_millis(20)));
    assert_eq!(events, []);
}

/// A closed socket's connection goes on for a while, and what happens to it is nothing to the socket that has its token by now.
#[test]
fn who_follows_a_closed_socket_hears_nothing_of_it() {
    let (left, right) = wire(WireConfig::default());
    let stack = |end: firelane::Queue, n: u8| {
        let builder = Stack::builder().driven().interface(end).mac(&format!("02:08:20:00:00:0{n}")).unwrap();
        builder.address(&format!("10.0.0.{n}/24")).unwrap().build().unwrap()
    };
    let (server, client) = (stack(left.into(), 1), stack(right.into(), 2));
    let mut workers: Vec<_> = [&server, &client].iter().flat_map(|stack| stack.engine().workers()).collect();
    let mut turns = |count: usize| {
        for worker in (0..count).flat_map(|_| 0..2) {
            workers[worker].run_once(Some(Duration::ZERO));
        }
    };
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    listener.set_nonblocking(true).unwrap();
    let begin = || TcpStream::begin(&client, "10.0.0.1:7".parse().unwrap(), StreamConfig::default()).unwrap();
    let (poller, mut events) = (Poller::new(), Vec::<Event>::new());
    let first = begin();
    poller.watch(&first, 1, Ready::READABLE | Ready::WRITABLE).unwrap();
    turns(20);
    let (accepted, _) = listener.accept().unwrap();
    drop(first);
    let second = begin();
    poller.watch(&second, 2, Ready::READABLE).unwrap();
    turns(20);
    poller.wait(&mut events, Some(Duration::ZERO));
    assert!(events.iter().any(|event| event.key == 2), "a watch begins with a look");
    drop(accepted);
    turns(20);
    poller.wait(&mut events, Some(Duration::ZERO));
    assert!(events.is_empty(), "{events:?}");
}

/// The same of one that was waited for when it connected: who waits leaves more behind than who watches.
#[test]
fn who_follows_a_socket_that_was_waited_for_hears_nothing_of_it() {
    let (server, client) = pair();
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    let first = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
    let (theirs, _) = listener.accept().unwrap();
    drop(first);
    let second = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
    let _accepted = listener.accept().unwrap();
    let (poller, mut events) = (Poller::new(), Vec::<Event>::new());
    poller.watch(&second, 6, Ready::READABLE).unwrap();
    poller.wait(&mut events, Some(Duration::ZERO));
    assert_eq!(events.len(), 1, "a watch begins with a look");
    drop(theirs);
    poller.wait(&mut events, Some(Duration::from_millis(300)));
    assert!(events.is_empty(), "{events:?}");
}
