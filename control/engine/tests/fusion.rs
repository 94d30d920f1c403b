//! TCP Fusion with threads: applications that wait for each other, and a property that changes while they talk.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use firelane::{FusionTuning, NetstackConfig, Stack, TcpListener, TcpStream};

use crate::ending::Ending;

/// A stack with `lanes` lanes that nobody else is connected to, and a connection with itself.
fn pair(lanes: usize) -> (Stack, TcpStream, TcpStream) {
    let stack = Stack::builder().lanes(lanes).build().unwrap();
    let listener = TcpListener::bind(&stack, "127.0.0.1:7").unwrap();
    let client = TcpStream::connect(&stack, "127.0.0.1:7").unwrap();
    let (server, _) = listener.accept().unwrap();
    (stack, client, server)
}

fn tune(stack: &Stack, is_on: bool) {
    let fusion = FusionTuning { is_on, ..FusionTuning::default() };
    let config = NetstackConfig { fusion, ..NetstackConfig::default() };
    stack.engine().tune(stack.id(), &config).unwrap();
}

/// The byte that belongs at a place of a stream.
fn byte_at(seed: u64, place: u64) -> u8 {
    ((place ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Numbers that follow from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Writes pieces of any size until it is told to stop, and then says that this was all. How much it was.
fn write_all(mut stream: TcpStream, seed: u64, stop: &AtomicBool) -> u64 {
    let mut random = Random(seed);
    let mut place = 0;
    while !stop.load(Ordering::Relaxed) {
        let most = if random.below(4) == 0 { 300_000 } else { 2000 };
        let len = 1 + random.below(most);
        let bytes: Vec<u8> = (place..place + len).map(|at| byte_at(seed, at)).collect();
        stream.write_all(&bytes).unwrap();
        place += len;
    }
    stream.shutdown(Shutdown::Write).unwrap();
    place
}

/// Reads to the end and compares every byte.
fn read_all(mut stream: TcpStream, seed: u64) -> u64 {
    let mut random = Random(seed ^ 0x5555);
    let (mut place, mut bytes) = (0, vec![0; 400_000]);
    loop {
        let most = 1 + random.below(bytes.len() as u64) as usize;
        let count = stream.read(&mut bytes[..most]).unwrap();
        if count == 0 {
            return place;
        }
        let wrong = (0..count).find(|&n| bytes[n] != byte_at(seed, place + n as u64));
        assert_eq!(wrong, None, "behind byte {place}");
        place += count as u64;
    }
}

/// Both directions run at full speed while fusion is turned off and on again every few milliseconds.
fn flip_under_load(seed: u64, span: Duration) {
    let (stack, client, server) = pair(1 + seed as usize % 2);
    let (stop, mut random) = (AtomicBool::new(false), Random(seed | 1));
    let begin = Instant::now();
    let mut flips = 0;
    thread::scope(|scope| {
        let ending = Ending(&stop);
        let mut ends = Vec::new();
        for (from, to, seed) in [(&client, &server, seed ^ 0x11), (&server, &client, seed ^ 0x22)] {
            let (from, to, stop) = (from.clone(), to.clone(), &stop);
            let writer = scope.spawn(move || write_all(from, seed, stop));
            ends.push((writer, scope.spawn(move || read_all(to, seed))));
        }
        while begin.elapsed() < span {
            tune(&stack, flips % 2 == 1);
            flips += 1;
            thread::sleep(Duration::from_micros(500 + random.below(5000)));
        }
        drop(ending);
        for (writer, reader) in ends {
            let (written, read) = (writer.join().unwrap(), reader.join().unwrap());
            assert!(written == read && read > 0, "seed {seed}: {read} of {written} bytes arrived");
        }
    });
    assert!(flips > 2, "seed {seed}");
}

#[test]
fn every_byte_arrives_while_it_changes_between_both() {
    for seed in [1, 2] {
        flip_under_load(seed, Duration::from_millis(300));
    }
}

#[test]
#[ignore = "runs for minutes: make soak"]
fn soak_every_byte_arrives_while_it_changes_between_both() {
    let first = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(100);
    println!("seeds {first}..{}", first + 24);
    for seed in first..first + 24 {
        flip_under_load(seed, Duration::from_secs(10));
    }
}

/// Each waits for the other without a sound of the lane; nobody sleeps on.
#[test]
fn two_that_wait_for_each_other_wake_each_other() {
    let (stack, mut client, mut server) = pair(1);
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while server.read(&mut byte).unwrap() == 1 {
            server.write_all(&byte).unwrap();
        }
    });
    let mut byte = [0];
    for n in 0..20_000u32 {
        client.write_all(&[n as u8]).unwrap();
        client.read_exact(&mut byte).unwrap();
        assert_eq!(byte[0], n as u8);
        if n == 100 {
            assert!(client.info().unwrap().is_fused);
        }
    }
    assert_eq!(client.info().unwrap().tcp.bytes_acknowledged.0, 20_000);
    client.shutdown(Shutdown::Write).unwrap();
    echo.join().unwrap();
    drop(stack);
}

/// A full ring makes the writer wait, an empty one the reader: the direction is a pipe of known size.
#[test]
fn a_fast_writer_waits_for_a_slow_reader() {
    let (stack, client, server) = pair(1);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let ending = Ending(&stop);
        let writer = scope.spawn(|| write_all(client, 77, &stop));
        let reader = scope.spawn(|| read_all(server, 77));
        thread::sleep(Duration::from_millis(100));
        drop(ending);
        assert_eq!(writer.join().unwrap(), reader.join().unwrap());
    });
    drop(stack);
}
