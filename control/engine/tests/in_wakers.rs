//! What a waker may do, which lanes call in their own threads: everything that does not wait for others.

use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::mem;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use firelane::{
    Poller, Queue, Ready, SocketCursor, Stack, TcpListener, TcpStream, UdpSocket, WireConfig, wire,
};

/// A waker that does something once.
struct Once(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for Once {
    fn wake(self: Arc<Self>) {
        let act = self.0.lock().unwrap().take();
        act.into_iter().for_each(|act| act());
    }
}

fn waker(act: impl FnOnce() + Send + 'static) -> Waker {
    Waker::from(Arc::new(Once(Mutex::new(Some(Box::new(act))))))
}

/// A netstack that listens, a connection to it, and the peer's end of that.
struct Place {
    stack: Stack,
    listener: TcpListener,
    stream: TcpStream,
}

fn place(lanes: usize) -> (Place, (Stack, TcpStream)) {
    let (left, right) = wire(WireConfig::default());
    let build = |end: Queue, n: u8| {
        let builder = Stack::builder().lanes(lanes).interface(end);
        builder.address(&format!("10.0.0.{n}/24")).unwrap().build().unwrap()
    };
    let (stack, client) = (build(left.into(), 1), build(right.into(), 2));
    let listener = TcpListener::bind(&stack, "10.0.0.1:7").unwrap();
    let peer = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
    let stream = listener.accept().unwrap().0;
    (Place { stack, listener, stream }, (client, peer))
}

/// What `act` answers in a waker that a lane calls when something has come, and how long it took.
fn in_waker<T: Send + 'static>(lanes: usize, act: impl FnOnce(Place) -> T + Send + 'static) -> (T, Duration) {
    let (place, (client, mut peer)) = place(lanes);
    let waiting = place.stream.clone();
    let (sender, answer) = channel();
    let waker = waker(move || {
        let began = Instant::now();
        let answer = act(place);
        let _ = sender.send((answer, began.elapsed()));
    });
    let mut readable = Box::pin(waiting.readable());
    assert!(readable.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // A wait that is given up calls who waits elsewhere, too.
    mem::forget(readable);
    drop((waiting, waker));
    peer.write_all(b"hi").unwrap();
    let answer = answer.recv_timeout(Duration::from_secs(5));
    if answer.is_err() {
        // A lane that hangs is waited for by who drops its engine.
        mem::forget((client, peer));
        panic!("the lane hangs");
    }
    answer.unwrap()
}

#[test]
fn what_is_known_can_be_asked() {
    for lanes in [1, 2] {
        let (info, _) = in_waker(lanes, |it| it.stream.info().map(|info| info.local.port()));
        assert_eq!(info.unwrap(), 7);
        let (connections, _) = in_waker(lanes, |it| it.stack.engine().snapshot().connections);
        assert_eq!(connections, 1);
        let ask = |it: Place| it.stack.engine().sockets(None, SocketCursor::default(), 9).unwrap().rows.len();
        assert_eq!(in_waker(lanes, ask).0, 2, "the listener and the connection");
        let ask = |it: Place| it.stack.engine().ip_tables(it.stack.id()).unwrap().routes.len();
        assert!(in_waker(lanes, ask).0 > 0);
    }
}

#[test]
fn sockets_begin_and_end() {
    for lanes in [1, 2] {
        let act = |it: Place| {
            let socket = UdpSocket::bind(&it.stack, "10.0.0.1:0")?;
            socket.connect("10.0.0.2:9")?;
            socket.send(b"x")?;
            drop(it.listener);
            TcpListener::bind(&it.stack, "10.0.0.1:7")?.local_addr()
        };
        assert_eq!(in_waker(lanes, act).0.unwrap(), "10.0.0.1:7".parse().unwrap());
    }
}

#[test]
fn netstacks_come_and_go() {
    for lanes in [1, 2] {
        let act = |it: Place| {
            let engine = it.stack.engine();
            engine.add_netstack(Default::default())?;
            engine.remove_netstack(it.stack.id())
        };
        let (removed, took) = in_waker(lanes, act);
        removed.unwrap();
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}

#[test]
fn a_call_that_would_wait_is_refused() {
    let act = |mut it: Place| {
        it.stream.read_exact(&mut [0; 2]).unwrap();
        let datagrams = UdpSocket::bind(&it.stack, "10.0.0.1:0").unwrap();
        let refused = [
            it.stream.read(&mut [0]).unwrap_err(),
            it.listener.accept().unwrap_err(),
            TcpStream::connect(&it.stack, "10.0.0.2:9").unwrap_err(),
            datagrams.recv_from(&mut [0]).unwrap_err(),
        ];
        let poller = Poller::new();
        poller.watch(&it.stream, 1, Ready::READABLE).unwrap();
        let mut events = Vec::new();
        // What is ready is reported, and nothing is waited for.
        poller.wait(&mut events, None);
        poller.wait(&mut events, None);
        assert!(events.is_empty());
        refused.map(|error| (error.kind(), error.to_string()))
    };
    for (kind, text) in in_waker(1, act).0 {
        assert_eq!(kind, ErrorKind::Deadlock);
        assert!(text.contains("waker"), "{text}");
    }
}

#[test]
fn the_last_handle_goes_at_once() {
    for lanes in [1, 2, 3] {
        // What was written has yet to leave when the lanes end.
        let act = |mut it: Place| it.stream.write_all(&[7; 20_000]).unwrap();
        let (_, took) = in_waker(lanes, act);
        let (_, dropped) = in_waker(lanes, drop);
        assert!(took.max(dropped) < Duration::from_millis(500), "{lanes} lanes: {took:?} {dropped:?}");
    }
}

#[test]
fn who_changes_an_engine_is_in_the_way_of_no_waker() {
    let (Place { stack, listener, stream }, _peer) = place(1);
    let (sender, answers) = channel();
    let engine = stack.engine();
    // The thread that removes the netstack calls who waits for its sockets, some of the times.
    let bound = stack.clone();
    let waker = waker(move || drop(sender.send(TcpListener::bind(&bound, "10.0.0.1:9").map(drop))));
    assert!(listener.poll_accept(&mut Context::from_waker(&waker)).is_pending());
    let (begun, ended) = channel();
    let id = stack.id();
    let removing = thread::spawn({
        let engine = engine.clone();
        move || begun.send(engine.remove_netstack(id).is_ok())
    });
    if ended.recv_timeout(Duration::from_secs(5)) != Ok(true) {
        mem::forget((stack, listener, stream, removing, engine));
        panic!("it hangs");
    }
    assert!(answers.recv_timeout(Duration::from_secs(5)).unwrap().is_err(), "the netstack is gone");
}

#[test]
fn a_waker_with_a_fault_costs_no_lane() {
    let (Place { stack, listener, mut stream }, (client, mut peer)) = place(1);
    let faulty = waker(|| panic!("a waker has a fault"));
    assert!(listener.poll_accept(&mut Context::from_waker(&faulty)).is_pending());
    let _other = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
    listener.accept().unwrap();
    peer.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    assert_eq!(stack.engine().snapshot().lanes.len(), 1);
}
