//! A peer that sends anything: no panic, no endless sending, no timer that stays due, and the program reads only
//! what the first copy of each octet said.

mod common;

use std::time::Duration;

use common::lab::{ACK, FIN, Lab, Peer, RST, SYN, URG, plain};
use common::random::Random;
use firelane_tcp::{Keepalive, State, TcpConfig};
use firelane_units::{Bytes, Mss};
use firelane_wire::{SackBlocks, TcpFlags, TcpOptions};

/// A number near one that means something.
fn near(random: &mut Random, marks: &[u64]) -> u32 {
    let mark = random.pick(marks) as u32;
    match random.between(0, 9) {
        0..=3 => mark,
        4..=6 => mark.wrapping_add(random.between(0, 20) as u32).wrapping_sub(10),
        7 | 8 => mark.wrapping_add(random.between(0, 40_000) as u32).wrapping_sub(20_000),
        _ => random.next() as u32,
    }
}

fn segment(random: &mut Random, lab: &Lab) -> Peer {
    let info = lab.connection.info(lab.now);
    // Numbers are relative to the SYNs, so the first octet is 1.
    let received = info.bytes_received.0 + 1;
    let (una, sent) = (info.bytes_acknowledged.0 + 1, info.bytes_acknowledged.0 + 1 + info.unacknowledged.0);
    let flags = random.pick(&[ACK, ACK, ACK, ACK, ACK, FIN, RST, SYN, SYN.with(ACK), URG, TcpFlags::EMPTY]);
    let flags = if random.chance(2) { TcpFlags::from_bits(random.next() as u16) } else { flags };
    // Resets and FINs end the fun early: seldom.
    let flags = if random.chance(80) { flags.without(RST).without(TcpFlags::FIN) } else { flags };
    let seq = near(random, &[received, received, received + info.receive_window.0, 0]);
    let mut peer = Peer::new(flags, seq);
    peer.ack = peer.ack.map(|_| near(random, &[una, sent, sent, una + 1000]));
    peer.window = random.pick(&[0, 1, 10, 1000, 10_000, u16::MAX]);
    peer.text = random.pick(&[0, 0, 0, 1, 5, 999, 1000, 3000]);
    peer.urgent = random.pick(&[0, 1, 100, u16::MAX]);
    let sack: SackBlocks = (0..random.between(0, 4))
        .map(|_| {
            let edge = |random: &mut Random| near(random, &[una, sent, una + 500, una + 1000]);
            let start = firelane_units::SeqNum(u32::MAX - 500);
            (start + edge(random), start + edge(random))
        })
        .collect();
    let stamp =
        |random: &mut Random| lab.clock().wrapping_add(random.between(0, 2000) as u32).wrapping_sub(1000);
    peer.options = TcpOptions {
        mss: random.chance(10).then(|| random.next() as u16),
        window_scale: random.chance(10).then(|| random.next() as u8),
        sack_permitted: random.chance(10),
        sack,
        timestamps: random.chance(80).then(|| (500 + random.between(0, 50) as u32, stamp(random))),
        ..TcpOptions::EMPTY
    };
    peer
}

fn command(random: &mut Random, lab: &mut Lab) {
    match random.between(0, 11) {
        0..=3 => {
            let room = lab.writer.free().min(random.between(0, 5000) as usize);
            lab.write(room);
        }
        4..=6 => {
            lab.read();
        }
        7 => lab.connection.set_path_mss(Mss::clamped(random.between(0, 1500) as u16)),
        8 => lab.connection.set_nodelay(random.chance(50)),
        9 => lab.rings(|connection, _, rings| connection.mark_urgent(rings)),
        10 if random.chance(10) => {
            lab.shutdown();
        }
        11 if random.chance(5) => {
            lab.close();
        }
        _ => {
            let keepalive =
                Keepalive { idle: Duration::from_secs(1), interval: Duration::from_secs(1), probes: 200 };
            lab.connection.set_keepalive(lab.now, random.chance(50).then_some(keepalive));
        }
    }
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let config = TcpConfig {
        timestamps: random.chance(50),
        sack: random.chance(70).into(),
        window_scaling: random.chance(50),
        ..plain()
    };
    let offered = TcpOptions {
        timestamps: Some((500, 0)),
        sack_permitted: true,
        window_scale: Some(random.next() as u8),
        ..TcpOptions::EMPTY
    };
    let ring = random.pick(&[1, 100, 5000, 70_000]) as usize;
    let mut lab = Lab::established_with(config, offered, ring);
    lab.limits.max_segment_payload = Bytes(random.pick(&[1, 3000, 65_535]));
    for _ in 0..400 {
        match random.between(0, 9) {
            0..=5 => {
                let peer = segment(&mut random, &lab);
                lab.get(peer);
            }
            6 | 7 => command(&mut random, &mut lab),
            _ => {
                let (lines, _) = lab.wait(Duration::from_millis(random.pick(&[0, 1, 40, 300, 5000])));
                assert!(lines.len() < 20_000, "seed {seed}: a flood of its own");
            }
        }
        assert!(lab.sent().len() < 20_000, "seed {seed}");
        if lab.state() == State::Closed {
            assert_eq!(lab.connection.poll_at(), None, "seed {seed}");
        }
    }
}

#[test]
fn nothing_that_a_peer_sends_breaks_a_connection() {
    let seeds = std::env::var("SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(1500);
    for seed in 0..seeds {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
