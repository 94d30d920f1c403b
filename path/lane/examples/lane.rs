//! How long a lane takes per forwarded frame: ring -> lane -> ring, and per byte of a connection inside it.
//!
//! `cargo run --release -p firelane-lane --example lane [forward|stream|request-response|idle]` prints nanoseconds
//! per 64-byte frame, gigabits per second between two sockets of one lane, requests per second, and memory.

use std::time::{Duration, Instant as Clock};

use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_units::{FlowId, Instant, LaneId, LinkId, Mtu};
use firelane_world::*;

const CHAIN: usize = 256;

fn forward() {
    let mut world = World::new(1);
    world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: MTU }));
    for n in 1..=2 {
        world.add_flow(plain_flow(FlowId(n), LinkId(n), None, None));
    }
    let (mut alice, a) = wire(Capabilities::plain(MTU));
    let (mut bob, b) = wire(Capabilities::plain(MTU));
    let user = PortUser::Driver { through: LaneId(0) };
    world.add_port(vnic(1, 0, 1, 1, user), vec![a.into()]);
    world.add_port(vnic(2, 0, 2, 2, user), vec![b.into()]);
    let mut pools = Pools::new(PoolsConfig { small_slots: 1024, large_slots: 1 });
    let mut chain = Chain::new();
    for n in 0..CHAIN {
        chain.push(udp_frame(&mut pools, 1, 2, (n as u16, 53), 64));
    }
    let mut best = f64::MAX;
    for sample in 0..200 {
        let start = Clock::now();
        for n in 0..100u64 {
            alice.tx.push_chain(&mut chain);
            let now = Instant::from_micros(sample * 1000 + n);
            while world.lanes[0].turn(now, Idle::StaysAwake).work_left {}
            bob.rx.pop_into(&mut chain, CHAIN);
            assert_eq!(chain.len(), CHAIN);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / (100 * CHAIN) as f64);
    }
    println!("forward: {best:.1} ns per frame, {:.2} Mpps", 1000.0 / best);
}

fn stream() {
    let mut world = two_stacks(1, Mtu::ETHERSTUB);
    let listener = world.listen(2, 1, "10.0.0.2:80", 8);
    let mut client = world.connect(1, 0, "10.0.0.2:80");
    world.run();
    let mut server = listener.accept().expect("the handshake is over").stream;
    let (chunk, mut buffer) = (vec![7; 1 << 17], vec![0; 1 << 18]);
    let (start, mut got) = (Clock::now(), 0u64);
    while got < 4 << 30 {
        world.now = Instant::from_nanos(start.elapsed().as_nanos() as u64 + 1_000_000_000);
        let _ = world.write(&mut client, &chunk);
        let _ = world.lanes[0].turn(world.now, Idle::StaysAwake);
        while let Ok(count @ 1..) = world.read(&mut server, &mut buffer) {
            got += count as u64;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("stream: {:.1} Gb/s between two sockets of one lane", got as f64 * 8.0 / 1e9 / seconds);
}

/// Requests and responses of 64 bytes over 64 connections between two netstacks of one lane.
fn request_response() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let listener = world.listen(2, 1, "10.0.0.2:80", 128);
    // The neighbours get to know each other first: only a few frames may wait for an answer.
    let _first = world.connect(1, 0, "10.0.0.2:80");
    world.run();
    listener.accept().expect("the handshake is over");
    let mut clients: Vec<_> = (0..64).map(|_| world.connect(1, 0, "10.0.0.2:80")).collect();
    world.run();
    let mut servers: Vec<_> = std::iter::from_fn(|| listener.accept()).map(|a| a.stream).collect();
    assert_eq!(servers.len(), 64);
    let (mut buffer, message) = ([0; 64], [7; 64]);
    let (start, mut answers) = (Clock::now(), 0u64);
    for client in &mut clients {
        world.write(client, &message).expect("there is room");
    }
    while answers < 2_000_000 {
        world.now = Instant::from_nanos(start.elapsed().as_nanos() as u64 + 1_000_000_000);
        let _ = world.lanes[0].turn(world.now, Idle::StaysAwake);
        for server in &mut servers {
            if let Ok(64) = world.read(server, &mut buffer) {
                world.write(server, &buffer).expect("there is room");
            }
        }
        let _ = world.lanes[0].turn(world.now, Idle::StaysAwake);
        for client in &mut clients {
            if let Ok(64) = world.read(client, &mut buffer) {
                answers += 1;
                world.write(client, &message).expect("there is room");
            }
        }
    }
    let rate = answers as f64 / start.elapsed().as_secs_f64() / 1e6;
    println!("request-response: {rate:.2} M/s with both ends in one lane");
}

/// Resident memory per idle connection, one end, with the application's side.
fn idle() {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        let pages: u64 = statm.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number");
        pages * 4096
    };
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let listener = world.listen(2, 1, "10.0.0.2:80", 4096);
    let _first = world.connect(1, 0, "10.0.0.2:80");
    world.run();
    listener.accept().expect("the handshake is over");
    let mut pairs = Vec::with_capacity(20_000);
    let before = resident();
    for _ in 0..20_000 {
        let client = world.connect(1, 0, "10.0.0.2:80");
        world.run();
        pairs.push((client, listener.accept().expect("the handshake is over").stream));
    }
    world.run_for(Duration::from_secs(2));
    let fresh = (resident() - before) / 40_000;
    // One after the other says something; a second later its rings are given back.
    for (client, server) in &mut pairs {
        world.write(client, b"x").expect("there is room");
        world.run_for(Duration::from_millis(10));
        assert_eq!(world.read(server, &mut [0; 16]), Ok(1));
    }
    world.run_for(Duration::from_secs(2));
    let used = (resident() - before) / 40_000;
    println!("idle: {fresh} bytes per connection's end, {used} after it was used; both sides of the socket");
}

fn main() {
    let only = std::env::args().nth(1);
    let parts: [(&str, fn()); 4] =
        [("forward", forward), ("stream", stream), ("request-response", request_response), ("idle", idle)];
    for (name, part) in parts {
        if only.as_deref().is_none_or(|only| only == name) {
            part();
        }
    }
}
