//! Two hosts on a simulated wire, in virtual time: what a peer sees that has only frames to judge by.

use std::time::Duration;

use firelane_driver_memory::{Chance, Conditions, Loss, Reorder, WireConfig};
use firelane_lane::SocketCommand;
use firelane_socket::StreamEnd;
use firelane_units::BitRate;
use firelane_world::*;

/// Two worlds with one clock.
struct Pair {
    client: World,
    server: World,
}

impl Pair {
    fn new(lanes: u16, config: WireConfig) -> Self {
        let (client, server) = two_hosts(lanes, config);
        Self { client, server }
    }

    /// Lets both run until they are silent at this instant; the earliest instant that either waits for.
    fn run(&mut self) -> Option<firelane_units::Instant> {
        loop {
            let a = self.client.run();
            let b = self.server.run();
            let until = [a, b].into_iter().flatten().min();
            // What the second sent at this instant, the first may have to hear at once.
            if until.is_none_or(|at| at > self.client.now) {
                return until;
            }
        }
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.client.now + span;
        while let Some(at) = self.run().filter(|&at| at <= end) {
            self.set(at);
        }
        self.set(end);
    }

    fn set(&mut self, now: firelane_units::Instant) {
        (self.client.now, self.server.now) = (now, now);
    }

    fn connect(&mut self, remote: &str) -> (StreamEnd, StreamEnd) {
        let listener = self.server.listen(2, 1, remote, 8);
        let client = self.client.connect(1, 0, remote);
        for _ in 0..100 {
            self.run_for(Duration::from_millis(100));
            if let Some(accepted) = listener.accept() {
                return (client, accepted.stream);
            }
        }
        panic!("no connection in ten seconds");
    }

    /// Sends `len` bytes from client to server; how long it took.
    fn upload(&mut self, client: &mut StreamEnd, server: &mut StreamEnd, len: usize) -> Duration {
        let bytes: Vec<u8> = (0..len).map(|n| (n * 31 + (n >> 8)) as u8).collect();
        let (begin, mut sent, mut got) = (self.client.now, 0, Vec::with_capacity(len));
        let mut buffer = vec![0; 1 << 18];
        while got.len() < len {
            if sent < len
                && let Ok(count) = self.client.write(client, &bytes[sent..])
            {
                sent += count;
            }
            let until = self.run();
            let mut read = 0;
            while let Ok(count @ 1..) = self.server.read(server, &mut buffer) {
                got.extend_from_slice(&buffer[..count]);
                read += count;
            }
            if read == 0 {
                self.set(until.expect("bytes are missing, so something is due"));
            }
            assert!(self.client.now < begin + Duration::from_secs(600), "{} of {len}", got.len());
        }
        assert!(got == bytes, "the bytes arrive as they were sent");
        self.client.now.saturating_since(begin)
    }

    fn check_conservation(&self) {
        self.client.check_conservation();
        self.server.check_conservation();
    }
}

fn conditions(mbps: u64, delay: Duration) -> Conditions {
    Conditions { rate: Some(BitRate::from_mbps(mbps)), delay, ..Conditions::default() }
}

#[test]
fn a_clean_wire_is_filled() {
    for lanes in [1, 2, 4] {
        let wire = conditions(1000, Duration::from_micros(200));
        let mut pair = Pair::new(lanes, WireConfig::simulated(7, wire));
        let (mut client, mut server) = pair.connect("10.0.0.2:80");
        let took = pair.upload(&mut client, &mut server, 20_000_000);
        let mbps = 20_000_000.0 * 8.0 / 1e6 / took.as_secs_f64();
        assert!((850.0..960.0).contains(&mbps), "{lanes} lanes: {mbps} Mb/s");
        pair.check_conservation();
    }
}

#[test]
fn loss_reordering_and_copies_cost_time_and_no_bytes() {
    for lanes in [1, 4] {
        for remote in ["10.0.0.2:80", "[fd00::2]:80"] {
            let mut wire = conditions(100, Duration::from_millis(5));
            wire.loss = Loss::Random(Chance::percent(1.0));
            wire.duplicate = Chance::percent(0.5);
            wire.corrupt = Chance::percent(0.2);
            wire.reorder = Reorder::default();
            wire.jitter = Duration::from_millis(1);
            let mut pair = Pair::new(lanes, WireConfig::simulated(11, wire));
            let (mut client, mut server) = pair.connect(remote);
            pair.upload(&mut client, &mut server, 2_000_000);
            pair.client.command(&client, SocketCommand::Close);
            pair.server.command(&server, SocketCommand::Close);
            pair.run_for(Duration::from_secs(200));
            pair.check_conservation();
            for world in [&pair.client, &pair.server] {
                for lane in &world.lanes {
                    let snapshot = lane.snapshot();
                    assert_eq!((snapshot.connections, snapshot.time_wait), (0, 0));
                }
            }
        }
    }
}

#[test]
fn a_silent_peer_is_given_up() {
    let mut pair = Pair::new(2, WireConfig::simulated(3, conditions(100, Duration::from_millis(1))));
    let (mut client, _server) = pair.connect("10.0.0.2:80");
    pair.server = World::new(1);
    pair.server.now = pair.client.now;
    pair.client.write(&mut client, b"hello?").unwrap();
    pair.client.run_for(Duration::from_secs(400));
    let error = client.recv.read(&mut [0]);
    assert_eq!(error, Err(firelane_socket::ReadError::Failed(firelane_socket::SocketError::TimedOut)));
}
