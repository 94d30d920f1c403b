//! What programs leave when they die beside a peer that does not read: their text, and nothing else.
//!
//! Alone in its file, because it looks at the address space of this process.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

mod support;

use std::io::{ErrorKind, IoSlice, Read};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use firelane::{ListenConfig, StreamConfig, TcpListener};
use firelane_shm::{Readiness, Spin, WriteError};

use support::*;

/// So many bytes are in this process' address space, and so many of its memory are shared.
fn space() -> [u64; 2] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    };
    [of("VmSize:"), of("RssShmem:")]
}

/// Writes at least so much, and until there has been no room for a while. How much that was.
fn fill(program: &Program<'_>, block: u32, all: &[u8], least: usize) -> usize {
    let end = program.end(block);
    let (mut written, mut refused) = (0, 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    while written < least || refused < 2 {
        assert!(Instant::now() < deadline, "{written}");
        let result = end.write(&[IoSlice::new(&all[written..])]);
        program.kick(&end);
        match result {
            Ok(count) => (written, refused) = (written + count, 0),
            Err(WriteError::WouldBlock) => {
                refused += u32::from(!end.asks_for_storage());
                end.wait(Readiness::WRITABLE, Duration::from_millis(5), &mut Spin::new(1));
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    written
}

#[test]
fn two_hundred_that_die_with_full_buffers_keep_no_arena_and_lose_no_byte() {
    let world = World::new();
    let mut config = firelane::NetstackConfig::default();
    config.sockets.stream.send_capacity = 64 << 10;
    world.stack.engine().tune(world.stack.id(), &config).unwrap();
    let small = StreamConfig { recv_capacity: 16 << 10, ..StreamConfig::default() };
    let config = ListenConfig { rings: small, ..ListenConfig::default() };
    let listener = TcpListener::bind_with(&world.peer, "10.0.0.2:0".parse().unwrap(), config).unwrap();
    let to = listener.local_addr().unwrap();
    let (all, before) = (pattern(1 << 20), space());
    let mut peers = Vec::new();
    for _ in 0..200 {
        let program = Program::new(&world);
        let (fd, block) = program.connect(to);
        program.wait(&program.end(block), Readiness::WRITABLE);
        peers.push((listener.accept().unwrap().0, fill(&program, block, &all, 65 << 10)));
        drop((program, fd));
        world.hub.lock().unwrap().tidy();
    }
    world.wait_for(|[programs, _, arenas, _]| programs + arenas == 0);
    let [taken, shared] = space();
    // The last ones' address space may be given back a moment later.
    assert!(taken.saturating_sub(before[0]) < 4 << 36, "200 arenas would be 50 times as much: {taken}");
    assert!(shared.saturating_sub(before[1]) < 1 << 22, "nothing of them is left: {shared}");
    // Others are served meanwhile.
    let program = Program::new(&world);
    let (_fd, block) = program.connect(to);
    program.write(block, b"a living one");
    let mut bytes = [0; 12];
    listener.accept().unwrap().0.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"a living one");
    for (mut peer, written) in peers {
        peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), written);
        assert!(got == all[..written], "each byte in its place");
    }
}

/// Who has the memory of one that is gone, and says there what cannot be true, keeps no arena by that.
#[test]
fn what_the_dead_cannot_have_written_is_reset() {
    let world = World::new();
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let program = Program::new(&world);
    let (fd, block) = program.connect(listener.local_addr().unwrap());
    program.wait(&program.end(block), Readiness::WRITABLE);
    let (mut peer, _) = listener.accept().unwrap();
    let written = fill(&program, block, &pattern(1 << 24), 1);
    world.hub.lock().unwrap().end(program.session);
    let words = &program.mapping.block(block).unwrap().rings.one;
    words.tail.store(u64::MAX, Ordering::Release);
    drop(fd);
    world.wait_for(|[_, _, arenas, _]| arenas == 0);
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut got = Vec::new();
    let end = peer.read_to_end(&mut got).unwrap_err();
    assert!(got.len() <= written && end.kind() == ErrorKind::ConnectionReset, "{end}");
}
