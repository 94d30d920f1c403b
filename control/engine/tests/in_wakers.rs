//! What a waker may do, which lanes call in their own threads: everything that does not wait for others.

use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::mem;
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use firelane::{
    Engine, EngineConfig, Poller, Queue, Ran, Ready, SocketCursor, Stack, StreamConfig, TcpListener,
    TcpStream, UdpSocket, WireConfig, wire,
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

/// How often two answer each other: in one call of a waker it would be for ever.
const LONG: usize = 20_000;

/// A task that answers each byte with one and runs in its waker.
struct Player {
    stream: TcpStream,
    /// Bytes that were answered in one thread, and in all.
    answered: Arc<[AtomicUsize; 2]>,
    watched: thread::ThreadId,
}

impl Wake for Player {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut context = Context::from_waker(&waker);
        while let Poll::Ready(Ok(1..)) = self.stream.poll_peek(&mut context, &mut [0]) {
            self.stream.try_read(&mut [0]).unwrap();
            let own = usize::from(thread::current().id() == self.watched);
            self.answered[0].fetch_add(own, Ordering::SeqCst);
            if self.answered[1].fetch_add(1, Ordering::SeqCst) == LONG {
                return;
            }
            self.stream.try_write(b"x").unwrap();
        }
    }
}

/// Begins a task at each end.
fn play(ends: [&TcpStream; 2]) -> Arc<[AtomicUsize; 2]> {
    let answered = Arc::new([const { AtomicUsize::new(0) }; 2]);
    for stream in ends {
        let (stream, answered) = (stream.clone(), Arc::clone(&answered));
        Arc::new(Player { stream, answered, watched: thread::current().id() }).wake();
    }
    answered
}

#[test]
fn who_writes_to_those_that_answer_each_other_without_end_goes_on() {
    let stack = Stack::builder().lanes(1).build().unwrap();
    let listener = TcpListener::bind(&stack, "127.0.0.1:7").unwrap();
    let mut client = TcpStream::connect(&stack, "127.0.0.1:7").unwrap();
    let (mut server, _) = listener.accept().unwrap();
    // What follows is fused.
    server.write_all(b"hello").unwrap();
    client.read_exact(&mut [0; 5]).unwrap();
    let answered = play([&client, &server]);
    client.try_write(b"x").unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while answered[1].load(Ordering::SeqCst) <= LONG && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(answered[1].load(Ordering::SeqCst), LONG + 1, "no waker is lost");
    assert!(answered[0].load(Ordering::SeqCst) < LONG / 10, "{answered:?}");
    // Tasks that wait have their streams, which have them.
    [client, server].iter().for_each(|it| it.shutdown(Shutdown::Both).unwrap());
}

#[test]
fn a_lane_has_its_turns_while_two_answer_each_other_without_end() {
    let engine = Engine::start(&EngineConfig { threads: false, ..EngineConfig::default() }).unwrap();
    let stack = engine.stack(engine.add_netstack(Default::default()).unwrap()).unwrap();
    let mut worker = engine.workers().pop().unwrap();
    let mut turn = || worker.run_once(Some(Duration::ZERO));
    let listener = TcpListener::bind(&stack, "127.0.0.1:7").unwrap();
    listener.set_nonblocking(true).unwrap();
    let begin = || TcpStream::begin(&stack, "127.0.0.1:7".parse().unwrap(), StreamConfig::default()).unwrap();
    let client = begin();
    let accepted = (0..1000).find_map(|_| {
        turn();
        listener.accept().ok()
    });
    let server = accepted.unwrap().0;
    let answered = play([&client, &server]);
    // Somebody else connects, for whom the first byte is sent by the lane's own thread.
    let first = client.clone();
    let waker = waker(move || _ = first.try_write(b"x").unwrap());
    assert!(listener.poll_accept(&mut Context::from_waker(&waker)).is_pending());
    let _other = begin();
    let (mut before, mut turns) = (0, 0);
    while before <= LONG {
        let ran = turn();
        let now = answered[1].load(Ordering::SeqCst);
        assert!(now - before < LONG / 10, "a turn that does not end");
        assert!(now > LONG || now == before || ran == Ran::Busy, "it has more to do");
        (before, turns) = (now, turns + 1);
        assert!(turns < 2 * LONG, "a waker is lost");
    }
    assert_eq!(answered[0].load(Ordering::SeqCst), LONG + 1, "all in its own thread");
    [client, server].iter().for_each(|it| it.shutdown(Shutdown::Both).unwrap());
    (0..10).for_each(|_| _ = turn());
}
