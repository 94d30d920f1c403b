//! The program at a TAP's door, in the kernel: conversations that are shut out end there and are counted, and nobody else's.
//!
//! As root; otherwise each test says why it is skipped.

use crate::common;
use std::net::UdpSocket;
use std::time::{Duration, Instant as Clock};

use firelane_driver_tap::{TapQueue, probe_door};
use firelane_frame::{Chain, Driver, Pools, PoolsConfig, Weight};
use firelane_skipped::skipped;
use firelane_units::{DropCounters, FlowId, Instant};

const LIMIT: Duration = Duration::from_secs(20);
const FLOODED: FlowId = FlowId(7);
const OTHER: FlowId = FlowId(8);

/// A TAP in a network namespace of this thread's, and its neighbours 10.0.0.2 and fd00::2.
struct World {
    tap: TapQueue,
    pools: Pools,
    drops: DropCounters,
}

impl World {
    fn new() -> Option<Self> {
        let mut queues = common::taps("door0", 1, &["10.0.0.1/24", "fd00::1/64"])?;
        ["10.0.0.2", "fd00::2"].iter().for_each(|it| common::neighbour("door0", it));
        let tap = queues.remove(0);
        assert_eq!(tap.has_door(), probe_door().is_ok(), "what is tried is what is done");
        if !tap.has_door() {
            skipped("no right to load programs, or a kernel that knows none");
            return None;
        }
        let pools = Pools::new(PoolsConfig { small_slots: 1024, large_slots: 4 });
        Some(Self { tap, pools, drops: DropCounters::default() })
    }

    /// The datagrams to port 7 that have come, without waiting.
    fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut came = Vec::new();
        common::fetch(&mut self.tap, &mut self.pools, &mut self.drops, |frame| {
            if common::ports(frame).is_some_and(|[_, to]| to == 7) {
                came.push(frame.to_vec());
            }
        });
        came
    }

    fn turned_away(&mut self) -> Vec<(FlowId, Weight)> {
        let mut told = Vec::new();
        self.tap.turned_away(&mut |flow, weight| told.push((flow, weight)));
        told
    }
}

fn sender(to: &str) -> UdpSocket {
    let from = if to.contains('[') { "[fd00::1]:0" } else { "10.0.0.1:0" };
    // An address that has just come may be a moment late.
    let begin = Clock::now();
    let socket = loop {
        match UdpSocket::bind(from) {
            Ok(socket) => break socket,
            Err(error) => assert!(begin.elapsed() < LIMIT, "{error}"),
        }
    };
    socket.connect(to).unwrap();
    socket
}

#[test]
fn a_conversation_ends_at_the_door_and_nobody_elses_does() {
    for to in ["10.0.0.2:7", "[fd00::2]:7"] {
        let Some(mut world) = World::new() else { return };
        let (flood, other) = (sender(to), sender(to));
        let handle = world.tap.handle().unwrap();
        let send = |socket: &UdpSocket, count: usize| {
            (0..count).for_each(|_| assert_eq!(socket.send(&[1; 58]).unwrap(), 58));
        };
        send(&flood, 3);
        let came = world.receive();
        assert_eq!(came.len(), 3, "{to}");
        let now = Instant::from_secs(1);
        assert!(world.tap.shut_out(now, &came[0], FLOODED) && world.tap.shut_out(now, &came[0], FLOODED));
        send(&flood, 100);
        send(&other, 5);
        let through = world.receive();
        assert_eq!(through.len(), 5, "{to}");
        assert!(!through.contains(&came[0]));
        let bytes = 100 * came[0].len() as u64;
        assert_eq!(world.turned_away(), [(FLOODED, Weight { packets: 100, bytes })], "{to}");
        assert!(world.turned_away().is_empty(), "told once");
        assert_eq!(handle.turned_away(), 100, "who asks for all of them is told all of them");
        // What is too large to be one packet goes on, and so does a fragment.
        flood.send(&[1; 4000]).unwrap();
        world.receive();
        world.tap.let_in(now, OTHER);
        send(&flood, 1);
        assert_eq!(world.receive().len(), 0, "another flow's door");
        world.tap.let_in(now, FLOODED);
        send(&flood, 2);
        assert_eq!(world.receive().len(), 2, "{to}");
        let told: u64 = world.turned_away().iter().map(|(_, weight)| weight.packets).sum();
        assert!(told >= 1, "{to}: {told}");
        // Its line is its own still; another's only after a rest.
        assert!(world.tap.shut_out(now, &came[0], FLOODED) && !world.tap.shut_out(now, &came[0], OTHER));
        world.tap.let_in(now, FLOODED);
        world.turned_away();
        assert!(world.tap.shut_out(now + Duration::from_secs(1), &came[0], OTHER));
    }
}

#[test]
fn as_many_are_shut_out_as_the_table_has_lines_and_the_rest_comes() {
    let Some(mut world) = World::new() else { return };
    let senders: Vec<UdpSocket> = (0..200).map(|_| sender("10.0.0.2:7")).collect();
    let send = || senders.iter().for_each(|it| assert_eq!(it.send(b"x").unwrap(), 1));
    send();
    let came = world.receive();
    assert_eq!(came.len(), senders.len());
    let now = Instant::from_secs(1);
    let shut = came.iter().filter(|frame| world.tap.shut_out(now, frame, FLOODED)).count();
    assert!((40..=64).contains(&shut), "{shut} of 64 lines");
    send();
    assert_eq!(world.receive().len(), senders.len() - shut);
    assert_eq!(world.turned_away().iter().map(|(_, it)| it.packets).sum::<u64>(), shut as u64);
}

#[test]
fn what_no_door_can_tell_is_let_in() {
    let Some(mut world) = World::new() else { return };
    let ping = [[0u8; 12].as_slice(), &[8, 0, 0x45], &[0; 8], &[1], &[0; 40]].concat();
    for frame in [&[][..], &[0; 13], &[0; 60], &ping] {
        assert!(!world.tap.shut_out(Instant::ZERO, frame, FLOODED));
    }
}

#[test]
fn a_queue_that_is_lent_sends_and_shuts_out_and_reads_nothing() {
    let Some(mut world) = World::new() else { return };
    let mut lent = world.tap.for_sending().expect("a descriptor");
    assert!(!lent.is_read() && world.tap.is_read());
    let flood = sender("10.0.0.2:7");
    let send = |count: usize| (0..count).for_each(|_| assert_eq!(flood.send(&[1; 58]).unwrap(), 58));
    let now = Instant::from_secs(1);
    // As often as the table has lines, so that who leaves any taken is found out.
    for _ in 0..70 {
        send(1);
        let mut chain = Chain::new();
        assert_eq!(lent.receive(&mut world.pools, 64, &mut chain, &mut world.drops), 0);
        let came = world.receive();
        assert_eq!(came.len(), 1);
        assert!(lent.shut_out(now, &came[0], FLOODED));
        send(3);
        assert!(world.receive().is_empty());
        let mut told = Vec::new();
        lent.turned_away(&mut |flow, weight| told.push((flow, weight.packets)));
        assert_eq!(told, [(FLOODED, 3)]);
        lent = world.tap.for_sending().expect("a descriptor");
    }
    // What it sends comes to the host that has the TAP.
    let here = UdpSocket::bind("10.0.0.1:9").unwrap();
    here.set_read_timeout(Some(LIMIT)).unwrap();
    let mut frame = vec![0u8; 14 + 28 + 4];
    frame[..6].copy_from_slice(&[2, 8, 0x20, 0, 0, 1]);
    frame[6..14].copy_from_slice(&[2, 8, 0x20, 0, 0, 2, 8, 0]);
    frame[14..34].copy_from_slice(&[0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
    let words = frame[14..34].chunks_exact(2).map(|it| u32::from(u16::from_be_bytes([it[0], it[1]])));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[34..42].copy_from_slice(&[0, 7, 0, 9, 0, 12, 0, 0]);
    let mut chain = Chain::new();
    chain.push(world.pools.copy_of(&frame).unwrap());
    lent.transmit(&mut chain, &mut world.drops);
    let mut bytes = [1; 16];
    assert_eq!(here.recv_from(&mut bytes).unwrap(), (4, "10.0.0.2:7".parse().unwrap()));
}
