//! What the basic operations cost, in nanoseconds: `cargo run --release -p firelane-frame --example cost`.
//!
//! Each figure is the best of seven runs on one thread, both sides of a ring included.

use std::hint::black_box;
use std::time::Instant;

use firelane_frame::{Chain, MpscRing, Pools, PoolsConfig, byte_ring, frame_ring, spsc_ring};

const CHAIN: usize = 32;

/// The best nanoseconds per operation of seven runs of `rounds` rounds with `each` operations.
fn measure(name: &str, rounds: usize, each: usize, mut round: impl FnMut()) -> f64 {
    let best = (0..7)
        .map(|_| {
            let start = Instant::now();
            (0..rounds).for_each(|_| round());
            start.elapsed().as_nanos() as f64 / (rounds * each) as f64
        })
        .fold(f64::INFINITY, f64::min);
    println!("{name:<48} {best:>10.2} ns");
    best
}

fn main() {
    let mut pools = Pools::new(PoolsConfig { small_slots: 256, large_slots: 4 });
    measure("pool: take, drop (return stack)", 1_000_000, 1, || {
        drop(black_box(pools.take(64)));
    });
    measure("pool: take, put (home)", 1_000_000, 1, || {
        if let Some(frame) = black_box(pools.take(64)) {
            pools.put(frame);
        }
    });

    let mut chain = Chain::new();
    measure("chain: push, pop, 32 frames", 100_000, CHAIN, || {
        chain.extend((0..CHAIN).filter_map(|_| pools.take(64)));
        pools.put_all(&mut chain);
    });

    let (mut producer, mut consumer) = frame_ring(256);
    chain.extend((0..CHAIN).filter_map(|_| pools.take(64)));
    measure("frame ring: push + pop, chains of 32, per frame", 100_000, CHAIN, || {
        producer.push_chain(&mut chain);
        consumer.pop_into(&mut chain, CHAIN);
    });
    let (mut one_in, mut one_out) = spsc_ring::<u64>(256);
    measure("spsc ring of u64: push + pop, one by one", 1_000_000, 1, || {
        let _ = one_in.push(1);
        black_box(one_out.pop());
    });

    let ring = MpscRing::new(256);
    measure("mpsc ring of u64: push + pop, one by one", 1_000_000, 1, || {
        let _ = ring.push(1u64);
        black_box(ring.pop());
    });
    measure("mpsc ring of u64: push + pop_each, 32", 100_000, CHAIN, || {
        for n in 0..CHAIN as u64 {
            let _ = ring.push(n);
        }
        ring.pop_each(CHAIN, |n| {
            black_box(n);
        });
    });

    bytes(64 * 1024, 2_000);
    bytes(64, 200_000);
}

fn bytes(len: usize, rounds: usize) {
    let (mut writer, mut reader) = byte_ring(256 * 1024);
    let (from, mut to) = (vec![7u8; len], vec![0u8; len]);
    let nanos = measure(&format!("byte ring: write + read, {len} B"), rounds, 1, || {
        writer.write(&from);
        reader.read(black_box(&mut to));
    });
    println!("{:<48} {:>10.1} GB/s", "", len as f64 / nanos);
    measure(&format!("byte ring: write + peek + release, {len} B"), rounds, 1, || {
        writer.write(&from);
        black_box(reader.peek_at(reader.cursor(), len));
        reader.release(len);
    });
    measure(&format!("byte ring: attach, write, read, detach, {len} B"), rounds / 10, 1, || {
        writer.write(&from);
        reader.read(black_box(&mut to));
        reader.detach_if_empty();
    });
}
