//! Whatever the wire does, both streams arrive whole and in order, and the connection ends.

mod common;

use std::time::Duration;

use common::World;
use common::host::Script;
use common::random::{Random, each_seed};
use common::wire::Faults;
use firelane_tcp::{CloseReason, Keepalive, State, TcpConfig};

fn config(random: &mut Random) -> TcpConfig {
    TcpConfig {
        // A fifth of all packets lost, both ways, makes rows of failures that the default would give up on.
        abort_timeout: Duration::from_secs(6 * 3600),
        connect_timeout: Duration::from_secs(3600),
        timestamps: random.chance(70),
        sack: random.chance(70).into(),
        window_scaling: random.chance(70),
        max_buffer: random.pick(&[1 << 14, 1 << 16, 1 << 20, 6 << 20]),
        ..TcpConfig::default()
    }
}

fn script(random: &mut Random) -> Script {
    let mss = random.pick(&[88, 100, 536, 1220, 1448, 1460, 8948, 9000]);
    let large = random.pick(&[1, 1460, 16_384, 65_535]);
    // Near the wrap in most runs, so that the stream crosses it.
    let iss = u32::MAX - random.between(0, 100_000) as u32;
    let rings = [1, 7, 100, 1000, 4096, 20_000, 65_536, 262_144];
    let recv_ring = random.pick(&rings) as usize;
    let send_ring = random.pick(&rings) as usize;
    let slow = random.chance(30);
    Script {
        opens: false,
        config: config(random),
        mss,
        large,
        cut: random.chance(60),
        iss,
        send_ring,
        recv_ring,
        bytes: 0,
        write: random.pick(&[1, 100, 1460, 5000, 100_000]),
        write_every: if random.chance(20) {
            Duration::from_millis(random.between(0, 50))
        } else {
            Duration::ZERO
        },
        read_every: if slow { Duration::from_millis(random.between(0, 3000)) } else { Duration::ZERO },
        read: random.pick(&[1, 50, 1000, 1 << 16, 1 << 18]),
        closes_first: false,
        abort_after: None,
        nodelay: random.chance(30),
        keepalive: None,
        stall: Duration::ZERO,
        fast: false,
    }
}

/// How much goes one way: no more than some hundreds of reads, writes and windows, so that runs stay short.
fn amount(random: &mut Random, from: &Script, to: &Script) -> u64 {
    let least = from.send_ring.min(to.recv_ring).min(from.write).min(to.read) as u64;
    let most = (least * 300).min(400_000);
    if random.chance(10) { 0 } else { random.between(1, most) }
}

fn faults(random: &mut Random) -> Faults {
    Faults {
        loss: random.pick(&[0, 0, 1, 5, 20]),
        duplicate: random.pick(&[0, 0, 2, 10]),
        reorder: random.pick(&[0, 0, 3, 20]),
        delay: Duration::from_micros(random.pick(&[0, 10, 1000, 20_000, 150_000])),
        jitter: Duration::from_micros(random.pick(&[0, 0, 100, 5000])),
        until: 20_000,
    }
}

fn scripts(random: &mut Random) -> [Script; 2] {
    let (mut left, mut right) = (script(random), script(random));
    left.bytes = amount(random, &left, &right);
    right.bytes = amount(random, &right, &left);
    left.opens = true;
    // Both at once opens simultaneously; neither closing first would wait for ever.
    right.opens = random.chance(15);
    match random.between(0, 2) {
        0 => left.closes_first = true,
        1 => right.closes_first = true,
        _ => (left.closes_first, right.closes_first) = (true, true),
    }
    [left, right]
}

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let scripts = scripts(&mut random);
    let faults = faults(&mut random);
    let mut world = World::new(seed, scripts, faults);
    world.run();
    world.assert_streams_equal();
    world.assert_graceful();
}

#[test]
fn streams_survive_any_wire() {
    each_seed(0..400, run);
}

/// The SYN carries text, which is taken, lost, or left to be sent again; the answer may leave before the handshake is over.
#[test]
fn streams_that_open_fast_survive_any_wire() {
    let fast = std::cell::Cell::new([0; 2]);
    for seed in 0..300 {
        let mut random = Random::new(seed ^ 0xfa57);
        let mut scripts = scripts(&mut random);
        scripts[0].fast = true;
        scripts[1].fast = random.chance(80);
        // A server gives a handshake up after five repetitions.
        let faults = Faults { loss: random.pick(&[0, 0, 1, 5]), ..faults(&mut random) };
        let mut world = World::new(seed, scripts, faults);
        world.run_until(|world| world.hosts[0].connected);
        let info = world.hosts[0].connection.as_ref().map(|it| it.info(world.now).syn_text);
        let [taken, refused] = fast.get();
        fast.set(if info == Some(true) { [taken + 1, refused] } else { [taken, refused + 1] });
        world.run();
        world.assert_streams_equal();
        world.assert_graceful();
    }
    let [taken, refused] = fast.get();
    assert!(taken > 50 && refused > 50, "{taken} and {refused}");
}

/// The reader sleeps for minutes while the window is closed, and probes and their answers are lost.
#[test]
fn streams_survive_a_closed_window() {
    each_seed(0..100, |seed| {
        let mut random = Random::new(seed ^ 0x5a5a);
        let mut scripts = scripts(&mut random);
        for script in &mut scripts {
            script.stall = Duration::from_secs(random.between(0, 1200));
        }
        let faults = faults(&mut random);
        let mut world = World::new(seed, scripts, faults);
        world.run();
        world.assert_streams_equal();
        world.assert_graceful();
    });
}

/// Both ends send all they can while they read what comes, through windows of any size and scale. On a path without faults
/// nobody waits for a timer then: no window closes for long, and nothing is sent that the other end does not take.
#[test]
fn greedy_ends_never_wait_for_a_timer() {
    each_seed(0..100, |seed| {
        let mut random = Random::new(seed ^ 0x6eed);
        let mss = random.pick(&[536, 1448, 8948, 65_483]);
        let rings = [3000, 5000, 20_000, 65_536, 200_000, 1 << 20, 6 << 20];
        let scripts = [true, false].map(|opens| {
            let mut config = config(&mut random);
            config.window_scaling = random.chance(90);
            let read_every = Duration::from_micros(random.pick(&[0, 0, 10, 300, 2000]));
            let (send_ring, recv_ring) = (random.pick(&rings) as usize, random.pick(&rings) as usize);
            let (read, write) = (random.pick(&[700, 9000, 60_000]), random.pick(&[900, 60_000]));
            let script = Script {
                opens,
                config,
                mss,
                send_ring,
                recv_ring,
                read_every,
                read,
                write,
                ..script(&mut random)
            };
            Script {
                write_every: Duration::ZERO,
                bytes: random.between(50_000, 400_000),
                closes_first: true,
                ..script
            }
        });
        let delay = Duration::from_micros(random.pick(&[0, 5, 100, 1000]));
        let mut world = World::new(seed, scripts, Faults { delay, ..Faults::default() });
        let waits = std::cell::Cell::new(Duration::ZERO);
        let last = std::cell::Cell::new(world.now);
        world.run_until(|world| {
            waits.set(waits.get().max(world.now.saturating_since(last.replace(world.now))));
            let both = world.hosts.each_ref().map(|host| host.connection.as_ref());
            for connection in both.iter().flatten() {
                let troubles = connection.info(world.now).troubles;
                assert_eq!(troubles.timeouts, 0, "{}", world.describe());
            }
            (0..2).all(|n| world.hosts[n].received == world.hosts[1 - n].script.bytes)
        });
        assert!(
            waits.get() < Duration::from_millis(100),
            "{:?} of silence: {}",
            waits.get(),
            world.describe()
        );
    });
}

/// One end aborts in the middle: the other learns it from the RST, or from the answer to what it sends.
#[test]
fn an_abort_ends_both() {
    each_seed(0..200, |seed| {
        let mut random = Random::new(seed ^ 0xa5a5);
        let mut scripts = scripts(&mut random);
        let who = random.between(0, 1) as usize;
        scripts[who].abort_after = Some(random.between(0, scripts[1 - who].bytes));
        let keepalive =
            Keepalive { idle: Duration::from_secs(30), interval: Duration::from_secs(5), probes: 9 };
        scripts[1 - who].keepalive = Some(keepalive);
        let faults = faults(&mut random);
        let mut world = World::new(seed, scripts, faults);
        world.run();
        world.assert_prefixes();
        let closed = world.hosts[who].closed;
        let aborted = closed == Some(CloseReason::Aborted);
        assert!(
            aborted || closed == Some(CloseReason::Finished) || world.hosts[who].state() == State::TimeWait
        );
    });
}

/// Both FINs cross: CLOSING on both sides, and both go through TIME-WAIT.
#[test]
fn both_may_close_at_once() {
    for bytes in [0, 1, 1000] {
        // Opened at once, they run in step.
        let script = Script { opens: true, closes_first: true, bytes, ..Script::default() };
        let delay = Faults { delay: Duration::from_millis(50), ..Faults::default() };
        let mut world = World::new(1, [script.clone(), script], delay);
        world.run();
        world.assert_streams_equal();
        assert!(
            world.hosts.iter().all(|host| host.visited.contains(&State::Closing)),
            "{}",
            world.describe()
        );
        assert!(world.hosts.iter().all(|host| host.state() == State::TimeWait), "{}", world.describe());
    }
}

/// RFC 9293 §3.5 figure 8: the SYNs cross.
#[test]
fn both_may_open_at_once() {
    let script = Script { opens: true, bytes: 5000, closes_first: true, ..Script::default() };
    let delay = Faults { delay: Duration::from_millis(50), ..Faults::default() };
    let mut world = World::new(1, [script.clone(), script], delay);
    world.run_until(|world| world.hosts.iter().all(|host| host.state() == State::SynReceived));
    world.run();
    world.assert_streams_equal();
    world.assert_graceful();
}

/// One end closes at once and still receives everything (half close).
#[test]
fn a_half_closed_connection_carries_the_rest() {
    let opens = Script { opens: true, bytes: 100, closes_first: true, ..Script::default() };
    let sends = Script { bytes: 300_000, ..Script::default() };
    let delay = Faults { delay: Duration::from_millis(10), ..Faults::default() };
    let mut world = World::new(1, [opens, sends], delay);
    world.run_until(|world| world.hosts[0].state() == State::FinWait2 && world.hosts[0].received < 100_000);
    assert_eq!(world.hosts[1].state(), State::CloseWait);
    world.run();
    world.assert_streams_equal();
    world.assert_graceful();
}
