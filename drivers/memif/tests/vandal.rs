//! An other end that lies in its memory and in its messages: it hurts itself only.
//!
//! The vandal speaks the protocol by hand over a real socket, and writes into the shared memory through the memfd,
//! while our queue receives, sends and sleeps. Seeds are fixed, so a failure repeats.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use firelane_driver_memif::{MESSAGE_BYTES, MemifConfig, MemifQueue, Message, Name, Role, Standing, open};
use firelane_frame::{Chain, Driver, Pools, PoolsConfig};
use firelane_units::{DropCounters, DropReason};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::pwrite;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg, socket_with,
};

const LIMIT: Duration = Duration::from_secs(20);
const COOKIE: u32 = 0x03E3_1F20;
const REGION_BYTES: u64 = 1 << 16;
const LOG2_SIZE: u8 = 4;
/// The ring to the server begins at 0, the one to the client here.
const SECOND_RING: u64 = 4096;

/// A small generator: the same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

fn connect(path: &Path) -> OwnedFd {
    let (socket, begin) = (socket(), Instant::now());
    while rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).is_err() {
        assert!(begin.elapsed() < LIMIT, "nobody listens");
        std::thread::sleep(Duration::from_millis(1));
    }
    socket
}

fn send(socket: &OwnedFd, bytes: &[u8], fds: &[&OwnedFd]) -> bool {
    let mut space = [const { std::mem::MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(8))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    assert!(fds.is_empty() || beside.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(socket, &[std::io::IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL).is_ok()
}

/// The next message with its descriptors; `None` if the other end has hung up.
fn receive(socket: &OwnedFd) -> Option<(Message, Vec<OwnedFd>)> {
    let mut space = [const { std::mem::MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(8))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; MESSAGE_BYTES];
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    let got = recvmsg(socket, &mut parts, &mut beside, RecvFlags::CMSG_CLOEXEC).ok()?;
    let mut fds = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    (got.bytes == MESSAGE_BYTES).then(|| (Message::decode(&bytes).unwrap(), fds))
}

fn memfd(len: u64, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("vandal", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, len).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

fn bell() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC).unwrap()
}

fn init() -> Vec<u8> {
    let mut bytes = vec![0; MESSAGE_BYTES];
    bytes[..2].copy_from_slice(&3u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&0x0200u16.to_ne_bytes());
    bytes
}

fn ring(to_server: bool, region: u16, offset: u32, log2_size: u8) -> Vec<u8> {
    let mut bytes = vec![0; MESSAGE_BYTES];
    bytes[..2].copy_from_slice(&5u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&u16::from(to_server).to_ne_bytes());
    bytes[6..8].copy_from_slice(&region.to_ne_bytes());
    bytes[8..12].copy_from_slice(&offset.to_ne_bytes());
    bytes[12] = log2_size;
    bytes
}

fn region(size: u64) -> Vec<u8> {
    Message::AddRegion { index: 0, size }.encode().to_vec()
}

/// Our side, driven as a lane drives it.
struct Port {
    queue: MemifQueue,
    pools: Pools,
    drops: DropCounters,
    received: usize,
}

impl Port {
    fn open(role: Role, path: &Path) -> Self {
        let queue = open(&MemifConfig { ring_size: 1 << LOG2_SIZE, ..MemifConfig::new(role, path) });
        let pools = Pools::new(PoolsConfig { small_slots: 256, large_slots: 8 });
        Self { queue: queue.unwrap().0.remove(0), pools, drops: DropCounters::default(), received: 0 }
    }

    /// One turn of a lane; every frame that comes is of a length that the MTU allows.
    fn turn(&mut self, dice: &mut Dice) {
        let mut chain = Chain::new();
        self.received += self.queue.receive(&mut self.pools, 64, &mut chain, &mut self.drops);
        assert!(chain.iter().all(|frame| frame.len() <= 1518));
        self.pools.put_all(&mut chain);
        for _ in 0..dice.below(4) {
            let len = 14 + dice.below(1500) as usize;
            if let Some(frame) = self.pools.copy_of(&vec![0xab; len]) {
                chain.push(frame);
            }
        }
        self.queue.transmit(&mut chain, &mut self.drops);
        drop(chain);
        self.queue.notify(dice.below(2) == 0);
    }

    fn is_connected(&self) -> bool {
        matches!(self.queue.status().standing(), Standing::Connected { .. })
    }

    fn await_standing(&self, connected: bool) {
        let begin = Instant::now();
        while self.is_connected() != connected {
            assert!(begin.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("firelane-vandal-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes a random lie: a cursor, a flag, a descriptor, or any bytes anywhere. Every other time it is the truth about
/// a few frames more in the first ring, whose cursor lies `at`, so that some lies are read.
fn scribble(memory: &OwnedFd, dice: &mut Dice, rings: &[u64], bytes: u64, (at, cursor): (u64, &mut u16)) {
    if dice.below(2) == 0 {
        *cursor = cursor.wrapping_add(dice.below(4) as u16);
        pwrite(memory, &cursor.to_ne_bytes(), at).unwrap();
        return;
    }
    let ring = rings[dice.below(rings.len() as u64) as usize];
    let desc = ring + 128 + 16 * dice.below(1 << LOG2_SIZE);
    let number = match dice.below(4) {
        0 => dice.next(),
        1 => dice.below(u64::from(u16::MAX) + 1),
        _ => dice.below(40),
    };
    // A cursor's lie mostly ends the session, so there are few.
    let (at, len) = match dice.below(64) {
        0 => (ring + 6, 2),
        1 => (ring + 64, 2),
        2..8 => (ring + 4, 2),
        8..24 => (desc, 4),
        24..40 => (desc + 4, 4),
        40..56 => (desc + 8, 4),
        _ => (dice.below(bytes - 8), 8),
    };
    pwrite(memory, &number.to_ne_bytes()[..len], at).unwrap();
}

/// Talks a session with our server into being.
fn be_client(path: &Path) -> (OwnedFd, OwnedFd) {
    be_client_of(path, LOG2_SIZE, SECOND_RING, REGION_BYTES)
}

/// The same, with rings and a region of any size.
fn be_client_of(path: &Path, log2_size: u8, second_ring: u64, region_bytes: u64) -> (OwnedFd, OwnedFd) {
    let socket = connect(path);
    let memory = memfd(region_bytes, SealFlags::SHRINK);
    for (at, head) in [(0, 0u16), (second_ring, 1 << log2_size)] {
        pwrite(&memory, &COOKIE.to_ne_bytes(), at).unwrap();
        pwrite(&memory, &head.to_ne_bytes(), at + 6).unwrap();
        for index in 0..1u64 << log2_size {
            let words = [2048u32, 8192 + 2048 * index as u32];
            pwrite(&memory, &words.map(u32::to_ne_bytes).concat(), at + 128 + 16 * index + 4).unwrap();
        }
    }
    let bell = bell();
    let steps: [(Vec<u8>, Vec<&OwnedFd>); 5] = [
        (init(), vec![]),
        (region(region_bytes), vec![&memory]),
        (ring(true, 0, 0, log2_size), vec![&bell]),
        (ring(false, 0, second_ring as u32, log2_size), vec![&bell]),
        (Message::Connect(Name::new("vandal")).encode().to_vec(), vec![]),
    ];
    assert!(matches!(receive(&socket), Some((Message::Hello(_), _))));
    for (bytes, fds) in steps {
        assert!(send(&socket, &bytes, &fds));
        assert!(matches!(receive(&socket), Some((Message::Ack | Message::Connected(_), _))));
    }
    (socket, memory)
}

#[test]
fn a_client_that_scribbles_hurts_itself_only() {
    let folder = Folder::new("client");
    let path = folder.0.join("s");
    let mut port = Port::open(Role::Server, &path);
    let (mut ended, mut lasted) = (0, 0);
    for seed in 1..60 {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let (socket, memory) = be_client(&path);
        port.await_standing(true);
        let mut head = 0;
        for _ in 0..200 {
            scribble(&memory, &mut dice, &[0, SECOND_RING], REGION_BYTES, (6, &mut head));
            port.turn(&mut dice);
            assert_eq!(port.pools.small.free(), 256, "no buffer is lost");
        }
        drop(socket);
        port.await_standing(false);
        match port.queue.status().standing() {
            Standing::Failed(why) if why.contains("ring") || why.contains("buffer") => ended += 1,
            _ => lasted += 1,
        }
    }
    assert!(ended > 0, "some lies end the session ({ended} did, {lasted} lasted)");
    assert!(port.received > 0 && port.drops.of(DropReason::BadDescriptor) > 0, "others cost frames");
}

/// What is known of a frame without an end is not looked at again: each turn of a lane would walk through the whole ring.
#[test]
fn a_frame_whose_end_has_not_come_is_walked_through_once() {
    let folder = Folder::new("unfinished");
    let path = folder.0.join("s");
    let mut port = Port::open(Role::Server, &path);
    let (_socket, memory) = be_client_of(&path, 14, 1 << 19, 1 << 20);
    port.await_standing(true);
    let last = (1u16 << 14) - 1;
    let write = |index: u16, goes_on: u16, length: u32| {
        let desc = [&goes_on.to_ne_bytes()[..], &[0; 2], &length.to_ne_bytes(), &[0; 8]].concat();
        pwrite(&memory, &desc, 128 + 16 * u64::from(index)).unwrap();
    };
    let publish = |head: u16| pwrite(&memory, &head.to_ne_bytes(), 6).unwrap();
    let come = |port: &mut Port| {
        let mut chain = Chain::new();
        let frames = port.queue.receive(&mut port.pools, 64, &mut chain, &mut port.drops);
        (frames, chain.bytes().0, port.queue.notify(true))
    };
    (0..last).for_each(|index| write(index, 1, 0));
    publish(last);
    assert_eq!(come(&mut port), (0, 0, false));
    // Who walked there again would find an end.
    write(100, 0, 0);
    assert_eq!(come(&mut port), (0, 0, false));
    write(last, 0, 60);
    publish(last + 1);
    assert_eq!(come(&mut port), (1, 60, false));
    // The next one begins anew, behind another that is whole.
    (0..3).for_each(|index| write(index, u16::from(index > 0), 60));
    publish(last + 4);
    assert_eq!(come(&mut port), (1, 60, false), "the unfinished one is no reason to stay awake");
    write(3, 0, 60);
    publish(last + 5);
    assert_eq!(come(&mut port), (1, 180, false));
    assert!(port.is_connected() && port.drops.total() == 0);
}

#[test]
fn buffers_that_hold_next_to_nothing_end_the_session() {
    let folder = Folder::new("small");
    let path = folder.0.join("s");
    let mut port = Port::open(Role::Server, &path);
    let (_socket, memory) = be_client(&path);
    port.await_standing(true);
    for index in 0..1u64 << LOG2_SIZE {
        pwrite(&memory, &63u32.to_ne_bytes(), SECOND_RING + 128 + 16 * index + 4).unwrap();
    }
    let mut chain = Chain::from_iter(port.pools.copy_of(&[7; 600]));
    port.queue.transmit(&mut chain, &mut port.drops);
    port.await_standing(false);
    let standing = port.queue.status().standing();
    assert!(matches!(&standing, Standing::Failed(why) if why.contains("too small")), "{standing:?}");
    // It is known also when the next one is there.
    let _next = be_client(&path);
    port.await_standing(true);
    let failures = port.queue.status().failures();
    assert!(failures.count == 1 && failures.last.contains("too small"), "{failures:?}");
}

#[test]
fn a_server_that_scribbles_hurts_itself_only() {
    let folder = Folder::new("server");
    let path = folder.0.join("s");
    let listener = socket();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 4).unwrap();
    let mut port = Port::open(Role::Client, &path);
    for seed in 1..30 {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let socket = rustix::net::accept(&listener).unwrap();
        let mut hello = [0; MESSAGE_BYTES];
        hello[..2].copy_from_slice(&2u16.to_ne_bytes());
        hello[34..38].copy_from_slice(&[0x0200u16.to_ne_bytes(); 2].concat());
        hello[44] = 14;
        assert!(send(&socket, &hello, &[]));
        let (mut memory, mut rings, mut bytes) = (None, Vec::new(), 0);
        while let Some((message, mut fds)) = receive(&socket) {
            match message {
                Message::AddRegion { size, .. } => (memory, bytes) = (fds.pop(), size),
                Message::AddRing(ring) => rings.push(u64::from(ring.offset)),
                Message::Connect(_) => {
                    assert!(send(&socket, &Message::Connected(Name::new("vandal")).encode(), &[]));
                    break;
                }
                _ => {}
            }
            assert!(send(&socket, &Message::Ack.encode(), &[]));
        }
        let memory = memory.unwrap();
        assert!(ftruncate(&memory, 0).is_err(), "our memory is sealed");
        port.await_standing(true);
        let mut tail = 0;
        for _ in 0..200 {
            scribble(&memory, &mut dice, &rings, bytes, (rings[1] + 64, &mut tail));
            port.turn(&mut dice);
            assert_eq!(port.pools.small.free(), 256, "no buffer is lost");
        }
        drop(socket);
        port.await_standing(false);
    }
    assert!(port.received > 0 && port.drops.of(DropReason::TooLong) > 0);
}

/// Messages with the descriptors beside them.
type Steps<'a> = Vec<(Vec<u8>, Vec<&'a OwnedFd>)>;

/// Each is a handshake that must end in a disconnect that says why.
#[test]
fn lies_in_messages_are_refused_with_their_reason() {
    let folder = Folder::new("messages");
    let path = folder.0.join("s");
    let port = Port::open(Role::Server, &path);
    let sealed = || memfd(REGION_BYTES, SealFlags::SHRINK);
    let (zeroes, null) = (sealed(), OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
    let unsealed = memfd(REGION_BYTES, SealFlags::GROW);
    let bell = bell();
    let connect_message = Message::Connect(Name::new("vandal")).encode().to_vec();
    let whole = |memory| -> Steps<'_> {
        vec![
            (init(), vec![]),
            (region(REGION_BYTES), vec![memory]),
            (ring(true, 0, 0, LOG2_SIZE), vec![&bell]),
            (ring(false, 0, SECOND_RING as u32, LOG2_SIZE), vec![&bell]),
            (connect_message.clone(), vec![]),
        ]
    };
    let with = |memory, nth: usize, bytes: Vec<u8>, fds: Vec<&'static OwnedFd>| {
        let mut steps = whole(memory);
        let fds = if fds.is_empty() { steps[nth].1.clone() } else { fds };
        steps[nth] = (bytes, fds);
        steps
    };
    let cases: Vec<(&str, Steps<'_>)> = vec![
        ("out of turn", vec![(region(REGION_BYTES), vec![&zeroes])]),
        ("unknown", vec![(vec![0xff; MESSAGE_BYTES], vec![])]),
        ("128 bytes", vec![(vec![3, 0, 0], vec![])]),
        ("descriptors", vec![(init(), vec![]), (region(4096), vec![])]),
        ("descriptors", vec![(init(), vec![]), (region(4096), vec![&zeroes, &bell])]),
        ("region of", vec![(init(), vec![]), (region(u64::MAX), vec![&zeroes])]),
        ("F_SEAL_SHRINK", whole(&unsealed)),
        ("F_SEAL_SHRINK", whole(&null)),
        ("shorter", with(&zeroes, 1, region(REGION_BYTES + 1), vec![])),
        ("cookie", whole(&zeroes)),
        ("multiple of 8", with(&zeroes, 2, ring(true, 0, 4, LOG2_SIZE), vec![])),
        ("inside its region", with(&zeroes, 2, ring(true, 0, u32::MAX - 7, LOG2_SIZE), vec![])),
        ("does not exist", with(&zeroes, 2, ring(true, 1, 0, LOG2_SIZE), vec![])),
        ("ring of", with(&zeroes, 2, ring(true, 0, 0, 15), vec![])),
        ("came twice", with(&zeroes, 3, ring(true, 0, 0, LOG2_SIZE), vec![])),
    ];
    for (why, steps) in cases {
        let socket = connect(&path);
        assert!(matches!(receive(&socket), Some((Message::Hello(_), _))));
        let mut told = None;
        for (bytes, fds) in steps {
            // The other end may have hung up already.
            send(&socket, &bytes, &fds);
            match receive(&socket) {
                Some((Message::Ack, _)) => {}
                Some((Message::Disconnect { reason, .. }, _)) => {
                    told = Some(String::from_utf8_lossy(&reason).into_owned());
                    break;
                }
                other => panic!("{why}: {other:?}"),
            }
        }
        let told = told.unwrap_or_else(|| panic!("{why}: the server agreed"));
        assert!(told.contains(why), "{told:?} should say {why:?}");
    }
    assert!(!port.is_connected());
    drop(be_client(&path));
}

/// A ring's doorbell is any descriptor, or one that cannot be written to without waiting.
#[test]
fn a_doorbell_is_an_eventfd_and_a_full_one_holds_up_neither_lane_nor_interface() {
    let folder = Folder::new("bell");
    let path = folder.0.join("s");
    let mut port = Port::open(Role::Server, &path);
    let (socket, memory) = (connect(&path), memfd(REGION_BYTES, SealFlags::SHRINK));
    let pipe = rustix::pipe::pipe().unwrap();
    for at in [0, SECOND_RING] {
        pwrite(&memory, &COOKIE.to_ne_bytes(), at).unwrap();
    }
    assert!(matches!(receive(&socket), Some((Message::Hello(_), _))));
    for (bytes, fd) in [
        (init(), None),
        (region(REGION_BYTES), Some(&memory)),
        (ring(true, 0, 0, LOG2_SIZE), Some(&pipe.1)),
        (ring(false, 0, SECOND_RING as u32, LOG2_SIZE), Some(&pipe.1)),
    ] {
        assert!(send(&socket, &bytes, fd.as_slice()));
        assert!(matches!(receive(&socket), Some((Message::Ack, _))));
    }
    assert!(send(&socket, &Message::Connect(Name::new("vandal")).encode(), &[]));
    let Some((Message::Disconnect { reason, .. }, _)) = receive(&socket) else { panic!("no refusal") };
    assert!(String::from_utf8_lossy(&reason).contains("eventfd"));
    drop(socket);

    let full = bell();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let socket = connect(&path);
    for index in 0..1u64 << LOG2_SIZE {
        let words = [2048u32, 8192 + 2048 * index as u32].map(u32::to_ne_bytes).concat();
        pwrite(&memory, &words, SECOND_RING + 128 + 16 * index + 4).unwrap();
    }
    pwrite(&memory, &(1u16 << LOG2_SIZE).to_ne_bytes(), SECOND_RING + 6).unwrap();
    assert!(matches!(receive(&socket), Some((Message::Hello(_), _))));
    for (bytes, fd) in [
        (init(), None),
        (region(REGION_BYTES), Some(&memory)),
        (ring(true, 0, 0, LOG2_SIZE), Some(&full)),
        (ring(false, 0, SECOND_RING as u32, LOG2_SIZE), Some(&full)),
        (Message::Connect(Name::new("vandal")).encode().to_vec(), None),
    ] {
        assert!(send(&socket, &bytes, fd.as_slice()));
        assert!(receive(&socket).is_some());
    }
    port.await_standing(true);
    let begin = Instant::now();
    let mut dice = Dice(7);
    for _ in 0..100 {
        port.turn(&mut dice);
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "no lane waits for a bell");
    // Nor does the interface: it sees that the client has gone, although his full bell is there, and takes the next one.
    drop(socket);
    port.await_standing(false);
    let _next = be_client(&path);
    port.await_standing(true);
    let mut count = [0; 8];
    rustix::io::read(&full, &mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), u64::MAX - 1, "who has been told already is told nothing more");
}
