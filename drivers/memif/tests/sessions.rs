//! Both ends against each other: frames whole and in order, sessions that come, go and come again, two processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use firelane_driver_memif::{MemifConfig, MemifQueue, OpenError, Role, Secret, Standing, open};
use firelane_frame::{Chain, Driver, Pools, PoolsConfig};
use firelane_units::{DropCounters, DropReason, Mtu};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Far more than anything here takes.
const LIMIT: Duration = Duration::from_secs(20);

/// A folder of a test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("firelane-memif-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("memif.sock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A queue with the buffers of a lane.
struct Port {
    queue: MemifQueue,
    pools: Pools,
    out: Chain,
    drops: DropCounters,
}

impl Port {
    fn new(queue: MemifQueue) -> Self {
        let pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 64 });
        Self { queue, pools, out: Chain::new(), drops: DropCounters::default() }
    }

    fn open(config: &MemifConfig) -> Self {
        Self::new(open(config).unwrap().0.remove(0))
    }

    fn send(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) {
        for bytes in frames {
            self.out.push(self.pools.copy_of(&bytes).unwrap());
        }
        self.queue.transmit(&mut self.out, &mut self.drops);
    }

    fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut chain = Chain::new();
        self.queue.receive(&mut self.pools, 64, &mut chain, &mut self.drops);
        chain.iter().map(|frame| frame.as_slice().to_vec()).collect()
    }

    /// Receives until `count` frames are there, asleep in between as a lane is.
    fn await_frames(&mut self, count: usize) -> Vec<Vec<u8>> {
        let (begin, mut got) = (Instant::now(), Vec::new());
        while got.len() < count {
            assert!(begin.elapsed() < LIMIT, "{} of {count} frames came", got.len());
            got.extend(self.receive());
            self.queue.transmit(&mut self.out, &mut self.drops);
            if got.len() < count && !self.queue.notify(true) {
                let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                let _ = poll(&mut [PollFd::new(&self.queue, PollFlags::IN)], Some(&wait));
            }
            self.queue.notify(false);
        }
        got
    }

    fn standing(&self) -> Standing {
        self.queue.status().standing()
    }

    fn await_connected(&self) {
        wait_until("a session", || matches!(self.standing(), Standing::Connected { .. }));
    }

    /// Why nobody is there.
    fn await_end(&self) -> String {
        wait_until("an end", || matches!(self.standing(), Standing::Waiting(Some(_)) | Standing::Failed(_)));
        match self.standing() {
            Standing::Waiting(why) => why.unwrap_or_default(),
            Standing::Failed(why) => why,
            Standing::Connected { .. } => String::new(),
        }
    }
}

fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < LIMIT, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at) as u8).collect()
}

fn server(socket: &Path) -> MemifConfig {
    MemifConfig { name: "server0".into(), ..MemifConfig::new(Role::Server, socket) }
}

fn client(socket: &Path) -> MemifConfig {
    MemifConfig { name: "client0".into(), ..MemifConfig::new(Role::Client, socket) }
}

#[test]
fn frames_cross_whole_and_in_order_both_ways() {
    let folder = Folder::new();
    let (mut a, mut b) = (Port::open(&server(&folder.socket())), Port::open(&client(&folder.socket())));
    a.await_connected();
    b.await_connected();
    assert_eq!(
        a.standing(),
        Standing::Connected { program: program(), interface: "client0".into() },
        "each end knows the other's name"
    );
    // Rings wrap several times.
    for round in 0..40 {
        let sent: Vec<_> = (0..60).map(|n| frame(round + n, 60 + (round * 60 + n * 7) % 1455)).collect();
        a.send(sent.clone());
        assert_eq!(b.await_frames(60), sent);
        b.send(sent.clone());
        assert_eq!(a.await_frames(60), sent);
    }
    assert_eq!((a.drops.total(), b.drops.total()), (0, 0));
}

fn program() -> String {
    format!("firelane {}", env!("CARGO_PKG_VERSION"))
}

#[test]
fn frames_longer_than_a_buffer_take_several() {
    let folder = Folder::new();
    let mtu = Mtu::new(9000).unwrap();
    let small = |config| MemifConfig { mtu, ring_size: 256, buffer_bytes: 64, ..config };
    let (mut a, mut b) =
        (Port::open(&small(server(&folder.socket()))), Port::open(&small(client(&folder.socket()))));
    a.await_connected();
    b.await_connected();
    for round in 0..20 {
        let sent: Vec<_> = [1, 63, 64, 65, 128, 1514, 9018].map(|len| frame(round, len)).to_vec();
        a.send(sent.clone());
        assert_eq!(b.await_frames(sent.len()), sent);
        b.send(sent.clone());
        assert_eq!(a.await_frames(sent.len()), sent);
    }
}

#[test]
fn a_frame_that_no_ring_holds_is_dropped_and_not_waited_for() {
    let folder = Folder::new();
    let tiny = |config| MemifConfig { ring_size: 2, buffer_bytes: 64, ..config };
    let (mut a, mut b) =
        (Port::open(&tiny(server(&folder.socket()))), Port::open(&tiny(client(&folder.socket()))));
    a.await_connected();
    b.await_connected();
    a.send([frame(1, 1000), frame(2, 100)]);
    b.send([frame(3, 1000), frame(4, 100)]);
    assert_eq!((a.await_frames(1), b.await_frames(1)), (vec![frame(4, 100)], vec![frame(2, 100)]));
    assert_eq!((a.drops.of(DropReason::TooLong), b.drops.of(DropReason::TooLong)), (1, 1));
}

#[test]
fn each_queue_is_a_wire_of_its_own() {
    let folder = Folder::new();
    let three = |config| MemifConfig { queues: 3, ..config };
    let ports = |config| open(&config).unwrap().0.into_iter().map(Port::new).collect::<Vec<_>>();
    let (mut a, mut b) = (ports(three(server(&folder.socket()))), ports(three(client(&folder.socket()))));
    a[0].await_connected();
    b[0].await_connected();
    for (nth, port) in a.iter_mut().enumerate() {
        port.send([frame(nth, 100)]);
    }
    for (nth, port) in b.iter_mut().enumerate() {
        assert_eq!(port.await_frames(1), [frame(nth, 100)]);
        port.send([frame(nth + 10, 100)]);
    }
    for (nth, port) in a.iter_mut().enumerate() {
        assert_eq!(port.await_frames(1), [frame(nth + 10, 100)]);
    }
}

#[test]
fn sessions_come_and_go_and_come_again_at_either_end() {
    let folder = Folder::new();
    let mut a = Port::open(&server(&folder.socket()));
    a.send([frame(0, 60)]);
    assert_eq!(a.drops.of(DropReason::NoPeer), 1, "nobody is there");
    for round in 0..3 {
        let mut b = Port::open(&client(&folder.socket()));
        b.await_connected();
        a.await_connected();
        b.send([frame(round, 60)]);
        assert_eq!(a.await_frames(1), [frame(round, 60)]);
        drop(b);
        assert!(a.await_end().contains("the interface was removed"));
    }
    let mut b = Port::open(&client(&folder.socket()));
    b.await_connected();
    drop(a);
    assert!(b.await_end().contains("the interface was removed"));
    b.send([frame(9, 60)]);
    assert_eq!(b.drops.of(DropReason::NoPeer), 1);
    let mut a = Port::open(&server(&folder.socket()));
    a.await_connected();
    b.await_connected();
    a.send([frame(7, 60)]);
    assert_eq!(b.await_frames(1), [frame(7, 60)], "the client has come back by itself");
}

#[test]
fn a_second_client_and_a_stranger_are_told_why() {
    let folder = Folder::new();
    let config = MemifConfig { secret: Secret::new("open sesame"), ..server(&folder.socket()) };
    let mut a = Port::open(&config);
    let stranger = Port::open(&client(&folder.socket()));
    assert!(stranger.await_end().contains("a secret is required"));
    drop(stranger);
    let friend = MemifConfig { secret: Secret::new("open sesame"), ..client(&folder.socket()) };
    let mut b = Port::open(&friend);
    b.await_connected();
    let second = Port::open(&friend);
    assert!(second.await_end().contains("already connected"));
    b.send([frame(1, 60)]);
    assert_eq!(a.await_frames(1), [frame(1, 60)], "the first one is undisturbed");
}

#[test]
fn a_sockets_path_is_taken_over_from_the_dead_only() {
    let folder = Folder::new();
    let first = Port::open(&server(&folder.socket()));
    assert!(matches!(open(&server(&folder.socket())), Err(OpenError::InUse(_))));
    drop(first);
    assert!(!folder.socket().exists(), "an interface takes its socket with it");
    drop(std::os::unix::net::UnixListener::bind(folder.socket()).unwrap());
    drop(Port::open(&server(&folder.socket())));
    std::fs::write(folder.socket(), "precious").unwrap();
    assert!(matches!(open(&server(&folder.socket())), Err(OpenError::NoSocket(_))));
    assert_eq!(std::fs::read(folder.socket()).unwrap(), b"precious");
}

/// Somebody tidied the folder up, and another server listens where the first one did.
#[test]
fn an_interface_takes_nobody_elses_socket_with_it() {
    let folder = Folder::new();
    let first = Port::open(&server(&folder.socket()));
    std::fs::remove_file(folder.socket()).unwrap();
    let second = Port::open(&server(&folder.socket()));
    drop(first);
    assert!(folder.socket().exists(), "it is the second one's");
    drop(second);
    assert!(!folder.socket().exists());
}

/// Whoever has the path may give it up between two looks, which is no error of the kernel's.
#[test]
fn a_path_that_comes_and_goes_is_taken_or_had() {
    let folder = Folder::new();
    let (ready, path) = (folder.0.join("ready"), folder.socket());
    let listener =
        rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET, None);
    let listener = listener.unwrap();
    rustix::net::bind(&listener, &rustix::net::SocketAddrUnix::new(&ready).unwrap()).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let is_over = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while is_over.load(Ordering::Relaxed) == 0 {
                if std::fs::hard_link(&ready, &path).is_ok() {
                    std::fs::remove_file(&path).unwrap();
                }
            }
        });
        let opened: Vec<_> = (0..3000).map(|_| open(&server(&path)).map(drop)).collect();
        is_over.store(1, Ordering::Relaxed);
        let wrong = opened.into_iter().find(|it| !matches!(it, Ok(()) | Err(OpenError::InUse(_))));
        assert!(wrong.is_none(), "{wrong:?}");
    });
}

#[test]
fn a_reader_that_stops_costs_its_frames_only() {
    let folder = Folder::new();
    let mut a = Port::open(&server(&folder.socket()));
    let mut b = Port::open(&MemifConfig { ring_size: 16, ..client(&folder.socket()) });
    a.await_connected();
    b.await_connected();
    let now = firelane_units::Instant::ZERO + Duration::from_secs(1);
    a.queue.advance(now);
    a.send((0..20).map(|n| frame(n, 60)));
    assert_eq!((a.out.len(), a.drops.total()), (4, 0), "what finds no room waits at first");
    a.queue.advance(now + Duration::from_millis(9));
    a.send([]);
    assert_eq!(a.out.len(), 4);
    a.queue.advance(now + Duration::from_millis(10));
    a.send([]);
    assert_eq!((a.out.len(), a.drops.of(DropReason::RingFull)), (0, 4));
    assert_eq!(b.await_frames(16).len(), 16);
    a.send([frame(1, 60)]);
    assert_eq!(b.await_frames(1), [frame(1, 60)]);
}

#[test]
fn frames_longer_than_the_mtu_are_dropped() {
    let folder = Folder::new();
    let mut a = Port::open(&server(&folder.socket()));
    let mut b = Port::open(&MemifConfig { mtu: Mtu::new(9000).unwrap(), ..client(&folder.socket()) });
    a.await_connected();
    b.await_connected();
    b.send([frame(1, 1519), frame(2, 4000), frame(3, 1518)]);
    assert_eq!(a.await_frames(1), [frame(3, 1518)]);
    assert_eq!(a.drops.of(DropReason::TooLong), 2);
}

/// The socket that `the_other_process` uses; only set in the process that a test starts.
const CHILD: &str = "FIRELANE_MEMIF_CHILD";

/// Not a test by itself: the client of `two_processes_talk_and_one_is_killed`, which sends back what it gets.
#[test]
fn the_other_process() {
    let Some(socket) = std::env::var_os(CHILD) else { return };
    let mut port = Port::open(&client(Path::new(&socket)));
    loop {
        let got = port.await_frames(1);
        port.send(got);
    }
}

#[test]
fn two_processes_talk_and_one_is_killed() {
    let folder = Folder::new();
    let mut a = Port::open(&server(&folder.socket()));
    for round in 0..2 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_other_process"])
            .env(CHILD, folder.socket())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        a.await_connected();
        for n in 0..50 {
            let sent: Vec<_> = (0..20).map(|m| frame(round + n + m, 60 + 50 * m)).collect();
            a.send(sent.clone());
            assert_eq!(a.await_frames(20), sent, "both sleep and wake each other");
        }
        // SIGKILL in the middle of the stream: its memory stays ours until the keeper has seen the end.
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(a.await_end().contains("the other end has gone"));
        a.send([frame(1, 60)]);
        assert!(a.receive().is_empty());
    }
    assert_eq!(a.drops.of(DropReason::NoPeer), 2);
}
