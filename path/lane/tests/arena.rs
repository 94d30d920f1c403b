//! Connections of programs that share an arena with the lanes: the same bytes, and what lies do.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::Ordering;
use std::time::Duration;

use firelane_frame::ArenaPair;
use firelane_lane::{LaneMessage, SocketCommand};
use firelane_shm::layout::{PAGE, request, status};
use firelane_shm::{Arena, Block, Holder, Layout, Mapping, ReadError, StreamEnd, WriteError};
use firelane_socket::{AnyEnd, ArenaEnd, ListenerEnd, listener_in, stream_in};
use firelane_units::{DropReason, LaneId, Mtu, NetstackId};
use firelane_world::*;

const LAYOUT: Layout = Layout { lanes: 4, blocks: 64, storage_bytes: 4096 * PAGE };

/// A program, and who answers for it in the daemon.
struct Program {
    arena: Arena,
    /// As the program has mapped it.
    memory: Mapping,
    ends: HashMap<u32, ArenaEnd>,
}

impl Program {
    fn new() -> Self {
        let arena = Arena::create(LAYOUT, 1).unwrap();
        let memory = Mapping::attach(&arena).unwrap().0;
        Self { arena, memory, ends: HashMap::new() }
    }

    fn stream(&self, block: u32) -> StreamEnd<'_> {
        StreamEnd::new(&self.memory, block, Holder::new(1, 1)).unwrap()
    }

    fn block(&self, block: u32) -> &Block {
        self.memory.block(block).unwrap()
    }

    fn keep(&mut self, end: ArenaEnd) -> u32 {
        let block = end.block();
        for word in &self.block(block).capacity {
            word.store(RINGS.send_capacity as u32, Ordering::Relaxed);
        }
        self.ends.insert(block, end);
        block
    }

    fn connect(&mut self, world: &mut World, netstack: u16, lane: u16, remote: &str) -> u32 {
        let made = stream_in(self.arena.rings(), RINGS, LaneId(lane), NetstackId(netstack));
        let (end, slot) = made.expect("there is a block");
        world.connect_with(netstack, lane, remote, slot);
        self.keep(end)
    }

    fn accept(&mut self, listener: &ListenerEnd) -> Option<u32> {
        match listener.accept_any()?.stream {
            AnyEnd::There(end) => Some(self.keep(end)),
            AnyEnd::Here(_) => panic!("the listener is in an arena"),
        }
    }

    /// What the engine does around a turn: kicks go to the lanes, and news to the program.
    fn turn(&self, world: &mut World) {
        for lane in 0..world.lanes.len() as u32 {
            let inbox = self.arena.mapping().lane(lane).unwrap();
            while let Some((first, bits)) = inbox.news.take_word() {
                for block in (0..64).filter(|n| bits >> n & 1 != 0).map(|n| first + n) {
                    self.kicked(world, block);
                }
            }
        }
        world.run_for(Duration::from_millis(1));
        for (&block, end) in &self.ends {
            end.publish_names();
            let words = end.shared().words();
            let error = if words.error().is_some() { 104 << status::ERROR_SHIFT } else { 0 };
            self.block(block).tell(u64::from(words.flags().bits()) << 16 | error);
        }
    }

    fn kicked(&self, world: &mut World, block: u32) {
        let Some(end) = self.ends.get(&block) else { return };
        let Some(conn) = end.shared().conn() else { return };
        let (netstack, lane) = (end.shared().netstack(), end.shared().lane());
        let requests = self
            .block(block)
            .requests
            .fetch_and(!(request::SHUT_WRITE | request::WANTS_STORAGE), Ordering::AcqRel);
        let mut messages = vec![LaneMessage::Kick { netstack, conn }];
        if requests & request::SHUT_WRITE != 0 {
            messages.push(LaneMessage::Socket(netstack, SocketCommand::Shutdown(conn)));
        }
        for message in messages {
            world.lanes[lane.index()].on_message(world.now, message);
        }
    }

    fn close(&mut self, world: &mut World, block: u32) {
        let end = self.ends.remove(&block).unwrap();
        if let Some(conn) = end.shared().conn() {
            let message = LaneMessage::Socket(end.shared().netstack(), SocketCommand::Close(conn));
            world.lanes[end.shared().lane().index()].on_message(world.now, message);
        }
    }

    fn write(&self, block: u32, bytes: &[u8]) -> usize {
        let stream = self.stream(block);
        match stream.write(&[IoSlice::new(bytes)]) {
            Ok(count) => {
                stream.kick(0, |_| false);
                count
            }
            Err(WriteError::WouldBlock) => {
                stream.asks_for_storage();
                stream.kick(0, |_| false);
                0
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    fn read(&self, block: u32, bytes: &mut [u8]) -> Option<usize> {
        let stream = self.stream(block);
        match stream.read(&mut [IoSliceMut::new(bytes)], false) {
            Ok((count, kick)) => {
                if kick {
                    stream.kick(0, |_| false);
                }
                Some(count)
            }
            Err(ReadError::WouldBlock) => None,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn transfer(&self, world: &mut World, from: u32, to: u32, bytes: &[u8]) {
        let (mut sent, mut got, mut buffer) = (0, Vec::new(), vec![0; 100_000]);
        for _ in 0..10_000 {
            sent += self.write(from, &bytes[sent..]);
            self.turn(world);
            while let Some(count) = self.read(to, &mut buffer) {
                got.extend_from_slice(&buffer[..count]);
            }
            if got.len() == bytes.len() {
                assert!(got == bytes, "the bytes are the same");
                return;
            }
        }
        panic!("{} of {} bytes arrived", got.len(), bytes.len());
    }
}

/// A program with a connection to itself, between two netstacks: the client's block and the server's.
fn connected(lanes: u16) -> (World, Program, ListenerEnd, [u32; 2]) {
    let (mut world, mut program) = (two_stacks(lanes, Mtu::ETHERNET), Program::new());
    let (listener, slot) = listener_in(program.arena.rings().clone(), 8);
    world.listen_with(2, 0, "10.0.0.2:80", slot);
    let client = program.connect(&mut world, 1, lanes - 1, "10.0.0.2:80");
    program.turn(&mut world);
    let server = program.accept(&listener).expect("the handshake is over");
    program.turn(&mut world);
    (world, program, listener, [client, server])
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + (n >> 8)) as u8).collect()
}

#[test]
fn bytes_travel_both_ways_and_everything_comes_back() {
    for lanes in [1, 2, 4] {
        let (mut world, mut program, _listener, [client, server]) = connected(lanes);
        program.transfer(&mut world, client, server, &pattern(1_000_000));
        program.transfer(&mut world, server, client, &pattern(300_000));
        program.stream(client).shut_write();
        program.stream(client).kick(0, |_| false);
        program.turn(&mut world);
        program.turn(&mut world);
        assert_eq!(program.read(server, &mut [0]), Some(0), "the end");
        for block in [server, client] {
            program.close(&mut world, block);
        }
        world.run_for(Duration::from_secs(1));
        world.check_conservation();
        let used = program.arena.rings().in_use();
        assert_eq!((used.blocks, used.storage, used.refused), (0, 0, 0));
    }
}

#[test]
fn names_are_shown_and_a_silent_connection_has_no_storage() {
    let (mut world, program, _listener, [client, server]) = connected(1);
    program.transfer(&mut world, client, server, b"hello");
    assert!(program.arena.rings().in_use().storage > 0);
    world.run_for(Duration::from_secs(5));
    assert_eq!(program.arena.rings().in_use().storage, 0);
    let words = |block| program.block(block).rings.margin.each_ref().map(|word| word.load(Ordering::Relaxed));
    let (ours, theirs) = (words(client), words(server));
    assert_eq!(ours[3] >> 48, 80, "the remote port");
    assert_eq!((ours[5], ours[7]), (theirs[7], theirs[5]));
    assert_eq!(program.stream(client).room(), 0);
    program.transfer(&mut world, client, server, b"again");
    program.transfer(&mut world, server, client, b"and back");
}

/// A program that may have two megabytes, of which `sizes` are in use, with a connection to a generous one: its block and the other's.
fn poor(sizes: [usize; 2]) -> (World, [Program; 2], ArenaPair, [u32; 2]) {
    let (mut world, mut rich, listener, _) = connected(1);
    let small = Arena::create_within(LAYOUT, 2, 2 << 20).unwrap();
    let others = small.rings().take_pair(sizes).unwrap();
    let mut poor = Program { memory: Mapping::attach(&small).unwrap().0, arena: small, ends: HashMap::new() };
    let block = poor.connect(&mut world, 1, 0, "10.0.0.2:80");
    poor.turn(&mut world);
    let peer = rich.accept(&listener).unwrap();
    for _ in 0..3 {
        poor.turn(&mut world);
        rich.turn(&mut world);
    }
    (world, [poor, rich], others, [block, peer])
}

/// Sends `bytes` to the poor one. In how many milliseconds all of it was there.
fn send_to_poor(
    world: &mut World,
    [poor, rich]: &[Program; 2],
    [block, peer]: [u32; 2],
    bytes: &[u8],
) -> u64 {
    let (begin, mut sent, mut got, mut buffer) = (world.now, 0, Vec::new(), vec![0; 100_000]);
    while got.len() < bytes.len() {
        sent += rich.write(peer, &bytes[sent..]);
        rich.turn(world);
        poor.turn(world);
        while let Some(count) = poor.read(block, &mut buffer) {
            got.extend_from_slice(&buffer[..count]);
        }
        assert!(world.now < begin + Duration::from_secs(100), "{} bytes arrived", got.len());
    }
    assert!(got == bytes, "the bytes are the same");
    world.now.saturating_since(begin).as_millis() as u64
}

#[test]
fn without_storage_the_window_is_closed_and_opens_when_there_is_some() {
    let (mut world, programs, others, [block, peer]) = poor([1 << 20; 2]);
    let bytes = pattern(100_000);
    assert!(programs[1].write(peer, &bytes) == bytes.len());
    programs[1].turn(&mut world);
    world.run_for(Duration::from_secs(40));
    programs[0].turn(&mut world);
    assert_eq!(programs[0].read(block, &mut [0; 9]), None);
    let drops = world.counters().drops.of(DropReason::OutOfWindow);
    assert!(drops < 10, "{drops}: its questions, and no text that has no room");
    assert!(programs[0].arena.rings().in_use().refused > 0);
    drop(others);
    // The peer asks every half minute by now.
    let begin = world.now;
    let (mut got, mut buffer) = (Vec::new(), vec![0; 100_000]);
    while got.len() < bytes.len() {
        programs[0].turn(&mut world);
        let count = programs[0].read(block, &mut buffer).unwrap_or(0);
        got.extend_from_slice(&buffer[..count]);
        assert!(world.now < begin + Duration::from_millis(400), "{} bytes arrived", got.len());
    }
    assert!(got == bytes);
    world.check_conservation();
}

/// Rings of 16 KiB are short, and not slow.
#[test]
fn with_little_storage_little_is_promised_and_it_flows() {
    let (mut world, programs, others, blocks) = poor([1 << 20, 1 << 19]);
    let bytes = pattern(1_000_000);
    let took = send_to_poor(&mut world, &programs, blocks, &bytes);
    assert!(took < 1000, "{took} ms");
    assert_eq!(world.counters().drops.of(DropReason::OutOfWindow), 0);
    // Its storage went back, and is there again at once.
    world.run_for(Duration::from_secs(5));
    let took = send_to_poor(&mut world, &programs, blocks, &bytes[..10_000]);
    assert!(took < 20, "{took} ms");
    drop(others);
    // In use all the time, it looks now and then whether there is more.
    world.run_for(Duration::from_millis(300));
    let took = send_to_poor(&mut world, &programs, blocks, &bytes);
    assert!(took < 1000, "{took} ms");
    let storage = programs[0].arena.rings().in_use().storage;
    assert!(storage >= RINGS.recv_capacity, "it has grown: {storage}");
    world.check_conservation();
}

#[test]
fn who_would_like_to_write_and_finds_no_storage_hears_of_it_later() {
    let (mut world, programs, others, [block, _]) = poor([1 << 20; 2]);
    for _ in 0..3 {
        assert_eq!(programs[0].write(block, b"nothing to write to"), 0);
        programs[0].turn(&mut world);
    }
    // It asks once and waits to be told.
    world.run_for(Duration::from_secs(5));
    drop(others);
    world.run_for(Duration::from_millis(250));
    assert_eq!(programs[0].write(block, b"something"), 9);
}

/// Storage that came late, and that nobody uses then: a window update that the peer had no text for, a program that writes no more.
#[test]
fn storage_that_came_late_goes_back_if_nobody_uses_it() {
    for writes in [false, true] {
        let (mut world, programs, others, [block, peer]) = poor([1 << 20; 2]);
        if writes {
            assert_eq!(programs[0].write(block, b"nothing to write to"), 0);
            programs[0].turn(&mut world);
        }
        world.run_for(Duration::from_secs(5));
        drop(others);
        // There is some, and it is not plenty.
        let _others = programs[0].arena.rings().take_pair([1 << 20, 1 << 18]).unwrap();
        let used = || programs[0].arena.rings().in_use().storage - (1 << 20) - (1 << 18);
        world.run_for(Duration::from_millis(250));
        assert!(used() >= 1 << 14, "{writes}: who waited has some");
        world.run_for(Duration::from_secs(3));
        assert_eq!(used(), 0, "{writes}");
        let bytes = pattern(100_000);
        let took = send_to_poor(&mut world, &programs, [block, peer], &bytes);
        assert!(took < 400, "{took} ms");
    }
}

/// The first burst after a silence finds all of the window.
#[test]
fn while_memory_is_plenty_storage_that_went_back_is_promised() {
    let (mut world, programs, _others, blocks) = poor([1 << 17; 2]);
    let bytes = pattern(200_000);
    send_to_poor(&mut world, &programs, blocks, &bytes);
    world.run_for(Duration::from_secs(5));
    assert_eq!(programs[0].arena.rings().in_use().storage, 1 << 18, "the others'");
    let took = send_to_poor(&mut world, &programs, blocks, &bytes);
    assert!(took < 20, "{took} ms");
}

#[test]
fn a_lie_resets_the_connection_that_it_is_about_and_no_other() {
    type Lie = fn(&Block);
    let lies: [Lie; 6] = [
        |block| block.rings.one.tail.store(u64::MAX, Ordering::Relaxed),
        |block| {
            block.rings.one.tail.fetch_add(1 << 40, Ordering::Relaxed);
        },
        |block| {
            block.rings.one.tail.fetch_sub(1, Ordering::Relaxed);
        },
        |block| {
            block.rings.one.head.fetch_add(1, Ordering::Relaxed);
        },
        |block| block.rings.one.head.store(u64::MAX / 2, Ordering::Relaxed),
        |block| {
            block.rings.one.head.fetch_sub(1, Ordering::Relaxed);
        },
    ];
    for (nth, lie) in lies.into_iter().enumerate() {
        let (mut world, mut program, listener, [liar, server]) = connected(1);
        let honest = program.connect(&mut world, 1, 0, "10.0.0.2:80");
        program.turn(&mut world);
        let other = program.accept(&listener).unwrap();
        program.turn(&mut world);
        program.transfer(&mut world, liar, server, b"true");
        program.transfer(&mut world, server, liar, b"true");
        // The lane has seen all that is true.
        program.stream(liar).kick(0, |_| false);
        program.turn(&mut world);
        lie(program.block(liar));
        program.stream(liar).kick(0, |_| false);
        for _ in 0..3 {
            program.turn(&mut world);
        }
        let lies: u64 = world.lanes.iter().map(|lane| lane.snapshot().counters.shm_lies).sum();
        assert_eq!(lies, 1, "lie {nth}");
        assert!(program.stream(server).readiness().has(firelane_shm::Readiness::ERROR), "its peer got a RST");
        program.transfer(&mut world, honest, other, &pattern(100_000));
        program.transfer(&mut world, other, honest, &pattern(100_000));
    }
}

#[test]
fn words_that_only_the_daemon_writes_are_not_read_back() {
    let (mut world, program, _listener, [client, server]) = connected(1);
    program.transfer(&mut world, client, server, &pattern(1000));
    let block = program.block(client);
    for word in &block.rings.margin {
        word.store(u64::MAX, Ordering::Relaxed);
    }
    for side in [&block.rings.one, &block.rings.two] {
        side.storage.store(std::ptr::without_provenance_mut(usize::MAX), Ordering::Relaxed);
        side.state.store(u64::MAX, Ordering::Relaxed);
    }
    for word in [&block.rings.two.tail, &block.rings.two.head] {
        word.store(u64::MAX, Ordering::Relaxed);
    }
    // The lane still knows whose segments these are and where their bytes go.
    assert!(program.write(server, &pattern(5000)) > 0);
    program.turn(&mut world);
    assert_eq!(program.stream(server).unacknowledged(), 0, "its peer's lane took them");
    world.check_conservation();
}

/// A number after another, for scribbling (SplitMix64).
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ *seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 27
}

/// Writes anything into any word of some blocks and inboxes.
fn scribble(memory: &Mapping, seed: &mut u64) {
    let block = memory.block((next(seed) % 4) as u32).unwrap();
    let [one, two] = [&block.rings.one, &block.rings.two];
    let words = [&one.tail, &one.head, &one.state, &two.tail, &two.head, &two.state];
    let more = [&block.waiters, &block.requests];
    let at = (next(seed) % 10) as usize;
    let value = match next(seed) % 4 {
        0 => next(seed),
        1 => next(seed) % 100_000,
        2 => u64::MAX,
        _ => 0,
    };
    match at {
        0..6 => words[at].store(value, Ordering::Relaxed),
        6..8 => more[at - 6].store(value, Ordering::Relaxed),
        8 => block.rings.margin[(value % 8) as usize].store(next(seed), Ordering::Relaxed),
        _ => one.storage.store(std::ptr::without_provenance_mut(value as usize), Ordering::Relaxed),
    }
    memory.lane(0).unwrap().news.set((value % 70) as u32);
}

#[test]
fn who_scribbles_over_its_arena_harms_nobody_else() {
    for mut seed in 0..20 {
        let mut world = two_stacks(1, Mtu::ETHERNET);
        let (mut vandal, mut honest) = (Program::new(), Program::new());
        let (listener, slot) = listener_in(vandal.arena.rings().clone(), 8);
        world.listen_with(2, 0, "10.0.0.2:80", slot);
        let (other, slot) = listener_in(honest.arena.rings().clone(), 8);
        world.listen_with(2, 1, "10.0.0.2:81", slot);
        let spoilt = [0; 2].map(|_| vandal.connect(&mut world, 1, 0, "10.0.0.2:80"));
        let client = honest.connect(&mut world, 1, 0, "10.0.0.2:81");
        vandal.turn(&mut world);
        while vandal.accept(&listener).is_some() {}
        let server = honest.accept(&other).expect("the handshake is over");
        honest.turn(&mut world);
        for round in 0..60 {
            for block in spoilt {
                // As far as its own words let it.
                let _ = vandal.stream(block).write(&[IoSlice::new(&[round; 3000])]);
                let _ = vandal.stream(block).read(&mut [IoSliceMut::new(&mut [0; 999])], false);
            }
            scribble(&vandal.memory, &mut seed);
            vandal.turn(&mut world);
            honest.transfer(&mut world, client, server, &pattern(500));
        }
        world.check_conservation();
        honest.transfer(&mut world, server, client, &pattern(50_000));
    }
}
