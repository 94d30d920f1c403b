//! The same sockets as tokio sees them.

use std::cell::Cell;
use std::future::Future;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use firelane::{Queue, Stack, TcpListener, TcpStream, UdpSocket, WireConfig, wire};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

fn stack(end: impl Into<Queue>, n: u8) -> Stack {
    let builder = Stack::builder().interface(end).mac(&format!("02:08:20:00:00:0{n}")).unwrap();
    builder.address(&format!("10.0.0.{n}/24")).unwrap().build().unwrap()
}

/// A server and a client, and a connection: the client's end, and the server's.
fn connected() -> ([Stack; 2], [TcpStream; 2]) {
    let (left, right) = wire(WireConfig::default());
    let (server, client) = (stack(left, 1), stack(right, 2));
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    let streams = [TcpStream::connect(&client, "10.0.0.1:7").unwrap(), listener.accept().unwrap().0];
    ([server, client], streams)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

#[test]
fn tokio_tasks_share_one_thread() {
    let (left, right) = wire(WireConfig::default());
    let (server, client) = (stack(left, 1), stack(right, 2));
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    runtime().block_on(async {
        let serving = async {
            let (mut stream, _) = listener.accept_async().await.unwrap();
            let mut line = [0; 5];
            AsyncReadExt::read_exact(&mut stream, &mut line).await.unwrap();
            AsyncWriteExt::write_all(&mut stream, &line).await.unwrap();
            AsyncWriteExt::shutdown(&mut stream).await.unwrap();
        };
        let asking = async {
            let mut stream = TcpStream::connect_async(&client, "10.0.0.1:7".parse().unwrap()).await.unwrap();
            AsyncWriteExt::write_all(&mut stream, b"hello").await.unwrap();
            let mut answer = String::new();
            AsyncReadExt::read_to_string(&mut stream, &mut answer).await.unwrap();
            answer
        };
        assert_eq!(tokio::join!(serving, asking).1, "hello");
    });
}

#[test]
fn what_a_task_writes_in_pieces_goes_together() {
    let (_stacks, [mut stream, mut accepted]) = connected();
    assert!(tokio::io::AsyncWrite::is_write_vectored(&stream));
    let pieces = [IoSlice::new(b"head"), IoSlice::new(b"body")];
    assert_eq!(runtime().block_on(AsyncWriteExt::write_vectored(&mut stream, &pieces)).unwrap(), 8);
    assert_eq!(Read::read(&mut accepted, &mut [0; 9]).unwrap(), 8);
}

/// How often another task has its turn beside one that never waits.
fn turns_beside(busy: impl Future<Output = ()> + 'static) -> usize {
    let turns = Rc::new(Cell::new(0));
    let counted = Rc::clone(&turns);
    tokio::task::LocalSet::new().block_on(&runtime(), async move {
        let other = tokio::task::spawn_local(async move {
            loop {
                counted.set(counted.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        tokio::task::spawn_local(busy).await.unwrap();
        other.abort();
    });
    turns.get()
}

#[test]
fn a_task_whose_socket_is_always_ready_lets_others_go_on() {
    let ([server, client], [mut stream, mut accepted]) = connected();
    let sender = UdpSocket::bind(&server, "10.0.0.1:9").unwrap();
    let receiver = UdpSocket::bind(&client, "10.0.0.2:9").unwrap();
    Write::write_all(&mut stream, &[1; 1000]).unwrap();
    (0..1000).for_each(|_| _ = sender.send_to(b"x", "10.0.0.2:9").unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    while accepted.info().unwrap().unread.0 < 1000 {
        assert!(Instant::now() < deadline, "it does not arrive");
        std::thread::sleep(Duration::from_millis(1));
    }
    let _stays_open = accepted.clone();
    let reads = turns_beside(async move {
        for _ in 0..1000 {
            AsyncReadExt::read_exact(&mut accepted, &mut [0]).await.unwrap();
        }
    });
    let writes = turns_beside(async move {
        for _ in 0..1000 {
            AsyncWriteExt::write_all(&mut stream, &[0]).await.unwrap();
        }
    });
    let sends = turns_beside(async move {
        for _ in 0..1000 {
            receiver.send_to_async(b"x", "10.0.0.1:9".parse().unwrap()).await.unwrap();
        }
    });
    // As many calls as tokio lets a task make at a time are far less.
    assert!([reads, writes, sends].iter().all(|&turns| turns >= 5), "{reads} {writes} {sends}");
}

/// What the wakers of a test hold.
struct Held;

/// A waker of its own, as each task has one.
struct Own(#[allow(dead_code, reason = "it is counted")] Arc<Held>);

impl Wake for Own {
    fn wake(self: Arc<Self>) {}
}

/// Begins to wait as a task of its own, and gives up.
fn gives_up<T>(held: &Arc<Held>, wait: impl Future<Output = T>) {
    let waker = Waker::from(Arc::new(Own(Arc::clone(held))));
    assert!(pin!(wait).poll(&mut Context::from_waker(&waker)).is_pending(), "there is nothing to wait for");
}

#[test]
fn a_wait_that_was_given_up_leaves_nothing_behind() {
    let ([server, client], [mut stream, mut accepted]) = connected();
    let listener = TcpListener::bind(&server, "10.0.0.1:8").unwrap();
    let datagrams = UdpSocket::bind(&server, "10.0.0.1:8").unwrap();
    let held = Arc::new(Held);
    for _ in 0..10 {
        gives_up(&held, listener.accept_async());
        gives_up(&held, datagrams.recv_from_async(&mut [0]));
        gives_up(&held, stream.readable());
        gives_up(&held, TcpStream::connect_async(&client, "10.0.0.99:9".parse().unwrap()));
    }
    assert_eq!(Arc::strong_count(&held), 1, "wakers of waits that are over");
    // Who has a clone for itself waits in place of whoever had it before.
    for _ in 0..10 {
        gives_up(&held, AsyncReadExt::read(&mut accepted, &mut [0]));
    }
    assert!(Arc::strong_count(&held) <= 2, "one waits");
    drop(accepted.clone());
    Write::write_all(&mut stream, b"x").unwrap();
    assert_eq!(runtime().block_on(AsyncReadExt::read_u8(&mut accepted)).unwrap(), b'x');
    drop((stream, accepted));
    assert_eq!(Arc::strong_count(&held), 1, "nobody is left");
}

#[test]
fn a_wait_that_was_given_up_takes_no_others_with_it() {
    let (_stacks, [mut stream, accepted]) = connected();
    let both = async {
        let other = accepted.clone();
        let mut stays = pin!(other.readable());
        // Both have the waker of this task.
        tokio::select! { biased;
            _ = stays.as_mut() => panic!("nothing has come"),
            _ = accepted.readable() => panic!("nothing has come"),
            () = tokio::task::yield_now() => {}
        }
        Write::write_all(&mut stream, b"x").unwrap();
        stays.await.unwrap();
    };
    runtime().block_on(both);
}

#[test]
fn a_datagram_of_a_task_that_cannot_go_is_told_by_its_own_call() {
    let ([server, client], _) = connected();
    let sender = UdpSocket::bind(&server, "10.0.0.1:53").unwrap();
    let receiver = UdpSocket::bind(&client, "10.0.0.2:53").unwrap();
    runtime().block_on(async {
        // The call tells it, unless its lane is busy.
        let refused = loop {
            if let Err(refused) = sender.send_to_async(b"bad", "99.9.9.9:9".parse().unwrap()).await {
                break refused;
            }
        };
        assert_eq!(refused.kind(), ErrorKind::NetworkUnreachable);
        assert_eq!(sender.send_to_async(b"good", "10.0.0.2:53".parse().unwrap()).await.unwrap(), 4);
        assert_eq!(receiver.recv_from_async(&mut [0; 9]).await.unwrap().0, 4);
    });
}
