//! How long a lane takes per forwarded frame: ring -> lane -> ring, and per byte of a connection inside it.
//!
//! `cargo run --release -p firelane-lane --example forward` prints nanoseconds per 64-byte frame and gigabits per
//! second between two sockets of one lane.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant as Clock;

use firelane_frame::{Capabilities, Chain, Pools, PoolsConfig};
use firelane_lane::*;
use firelane_units::{FlowId, Instant, LaneId, LinkId, Mtu};
use support::*;

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
            while world.lanes[0].turn(now).work_left {}
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
        let _ = world.lanes[0].turn(world.now);
        while let Ok(count @ 1..) = world.read(&mut server, &mut buffer) {
            got += count as u64;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("stream: {:.1} Gb/s between two sockets of one lane", got as f64 * 8.0 / 1e9 / seconds);
}

fn main() {
    forward();
    stream();
}
