//! The last handle of an engine goes: what was written before arrives, and no peer waits for one who is gone.

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use firelane::units::BitRate;
use firelane::{Conditions, Queue, Stack, StreamConfig, TcpListener, TcpStream, WireConfig, wire};

const TEXT: usize = 300_000;

/// Two netstacks 10 ms apart.
fn pair(lanes: usize) -> [Stack; 2] {
    pair_over(lanes, None)
}

/// The same over a wire with a rate.
fn pair_over(lanes: usize, rate: Option<BitRate>) -> [Stack; 2] {
    let far = Conditions { delay: Duration::from_millis(5), rate, ..Conditions::default() };
    let (left, right) = wire(WireConfig { forth: far.clone(), back: far, ..WireConfig::default() });
    let build = |end: Queue, n: u8| {
        let builder = Stack::builder().lanes(lanes).interface(end);
        builder.address(&format!("10.0.0.{n}/24")).unwrap().build().unwrap()
    };
    [build(left.into(), 1), build(right.into(), 2)]
}

fn connect(server: &Stack, client: &Stack) -> [TcpStream; 2] {
    let listener = TcpListener::bind(server, "10.0.0.1:7").unwrap();
    let rings = StreamConfig { send_capacity: 1 << 20, ..client.sockets().unwrap().stream };
    let limit = Duration::from_secs(10);
    let stream = TcpStream::connect_with(client, "10.0.0.1:7".parse().unwrap(), rings, limit).unwrap();
    [stream, listener.accept().unwrap().0]
}

#[test]
fn what_was_written_arrives_though_everything_was_dropped() {
    for lanes in [1, 3] {
        let [server, client] = pair(lanes);
        let streams: Vec<_> = (0..3).map(|_| connect(&server, &client)).collect();
        let mut readers = Vec::new();
        for [mut stream, mut accepted] in streams {
            stream.write_all(&[7; TEXT]).unwrap();
            accepted.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            readers.push(thread::spawn(move || {
                let mut text = Vec::new();
                accepted.read_to_end(&mut text).map(|_| text.len())
            }));
        }
        // The last streams are gone, too.
        drop(client);
        for reader in readers {
            assert_eq!(reader.join().unwrap().unwrap(), TEXT, "{lanes} lanes");
        }
    }
}

#[test]
fn what_takes_longer_than_a_second_arrives_as_long_as_the_peer_takes_it() {
    // Two seconds and a half.
    let [server, client] = pair_over(1, Some(BitRate::from_mbps(1)));
    let [mut stream, mut accepted] = connect(&server, &client);
    stream.write_all(&[7; TEXT]).unwrap();
    accepted.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        accepted.read_to_end(&mut text).map(|_| text.len())
    });
    drop(stream);
    drop(client);
    assert_eq!(reader.join().unwrap().unwrap(), TEXT);
}

#[test]
fn a_peer_that_reads_nothing_is_not_waited_for_without_end_and_is_told() {
    let [server, client] = pair(1);
    let [mut stream, mut accepted] = connect(&server, &client);
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    while stream.write(&[7; 65_536]).is_ok() {}
    drop(stream);
    let began = Instant::now();
    drop(client);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    accepted.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut text = Vec::new();
    let error = accepted.read_to_end(&mut text).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn who_says_that_nothing_can_leave_any_more_waits_for_nobody() {
    let [server, client] = pair(1);
    let [mut stream, _accepted] = connect(&server, &client);
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    while stream.write(&[7; 65_536]).is_ok() {}
    drop(stream);
    client.engine().leave_unsaid();
    let began = Instant::now();
    drop(client);
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
}

#[test]
fn who_has_nothing_to_say_goes_at_once() {
    let [server, client] = pair(1);
    let [stream, mut accepted] = connect(&server, &client);
    assert!(client.drain(Duration::ZERO), "it is open");
    drop(stream);
    assert!(client.drain(Duration::from_secs(10)), "its end was acknowledged");
    let began = Instant::now();
    drop(client);
    assert!(began.elapsed() < Duration::from_millis(500), "nothing is to be waited for");
    assert_eq!(accepted.read(&mut [0]).unwrap(), 0);
    // A peer that has heard the end is not reset: it would lose what it has not read.
    thread::sleep(Duration::from_millis(50));
    assert_eq!(accepted.read(&mut [0]).unwrap(), 0);
}

#[test]
fn draining_says_whether_all_was_sent() {
    let [server, client] = pair(1);
    let [mut stream, accepted] = connect(&server, &client);
    stream.write_all(&[7; TEXT]).unwrap();
    drop(stream);
    // The peer's buffer takes less than that.
    assert!(!client.drain(Duration::from_millis(20)), "so much needs several round trips");
    let reader = thread::spawn(move || std::io::copy(&mut &accepted, &mut std::io::sink()));
    assert!(client.drain(Duration::from_secs(20)));
    assert!(client.engine().drain(Duration::ZERO), "of all netstacks");
    assert_eq!(reader.join().unwrap().unwrap(), TEXT as u64);
}
