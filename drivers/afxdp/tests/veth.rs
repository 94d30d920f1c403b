//! Real sockets on a veth, in a network namespace that each test has for itself.
//!
//! As root, on a kernel with AF_XDP; otherwise each says why it is skipped.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use firelane_driver_afxdp::{
    AfXdpConfig, AfXdpError, AfXdpQueue, Claim, Mode, Refused, Wish, open, probe, receive_queues,
};
use firelane_frame::{Capabilities, Chain, Checksum, Driver, Pools, PoolsConfig, offload};
use firelane_skipped::skipped;
use firelane_units::{DropCounters, DropReason, MacAddr, Mtu};

const LIMIT: Duration = Duration::from_secs(20);

fn run(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output =
        Command::new(words[0]).args(&words[1..]).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output();
    output.is_ok_and(|it| it.status.success())
}

/// This thread in a namespace of its own, with `near` and `far`; the kernel has 10.9.0.2/24 at the far end.
///
/// The thread ends with its test, and the namespace with it.
fn veth(more: &str) -> bool {
    let flags = rustix::thread::UnshareFlags::NEWNET | rustix::thread::UnshareFlags::NEWNS;
    // SAFETY: the test's thread has opened nothing yet that depends on its old namespaces.
    if let Err(error) = unsafe { rustix::thread::unshare_unsafe(flags) } {
        skipped(format_args!("no network namespace of one's own: {error}"));
        return false;
    }
    // /sys shows the interfaces of the namespace in which it was mounted.
    let made = run("mount --make-rprivate /")
        && run("mount -t sysfs sysfs /sys")
        && run(&format!(
            "ip link add near {more} address 2:0:0:0:0:1 type veth peer name far address 2:0:0:0:0:2 {more}"
        ))
        && run("ip link set near up")
        && run("ip link set far up")
        && run("ip address add 10.9.0.2/24 dev far")
        && run("ip neighbour add 10.9.0.1 lladdr 2:0:0:0:0:1 dev far nud permanent");
    if !made {
        skipped("no veth can be made here");
        return false;
    }
    // The kernel notices a moment later that there is a carrier, and drops what is sent before.
    let is_up =
        |end| fs::read_to_string(format!("/sys/class/net/{end}/operstate")).is_ok_and(|it| it.trim() == "up");
    let begin = Instant::now();
    while !(is_up("near") && is_up("far")) {
        assert!(begin.elapsed() < LIMIT, "no carrier");
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn config(wish: Wish) -> AfXdpConfig {
    AfXdpConfig { wish, ..AfXdpConfig::new(Mtu::ETHERNET) }
}

/// `None`, and why, where the kernel offers no AF_XDP.
fn try_open(wish: Wish) -> Option<Port> {
    open_with(&config(wish))
}

fn open_with(config: &AfXdpConfig) -> Option<Port> {
    match open("near", config) {
        Ok((queues, attached)) => {
            let mut queues = queues;
            Some(Port::new(queues.remove(0), attached.mode))
        }
        Err(AfXdpError::Refused(_, ways))
            if ways
                .iter()
                .all(|(_, why)| matches!(why, Refused::Unsupported(_) | Refused::Permission(_))) =>
        {
            skipped(format_args!("{ways:?}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

struct Port {
    queue: AfXdpQueue,
    mode: Mode,
    pools: Pools,
    drops: DropCounters,
}

impl Port {
    fn new(queue: AfXdpQueue, mode: Mode) -> Self {
        let pools = Pools::new(PoolsConfig { small_slots: 4096, large_slots: 4 });
        Self { queue, mode, pools, drops: DropCounters::default() }
    }

    /// Frames that `wanted` says are the right ones, until there are `count`; asleep in between.
    fn await_frames(&mut self, count: usize, wanted: impl Fn(&[u8]) -> bool) -> Chain {
        let (begin, mut got) = (Instant::now(), Chain::new());
        while got.len() < count {
            assert!(begin.elapsed() < LIMIT, "{} of {count} frames came; {:?}", got.len(), self.drops);
            self.queue.receive(&mut self.pools, 64, &mut got, &mut self.drops);
            got.retain(|frame| wanted(frame.as_slice()));
            if got.len() < count && !self.queue.notify(true) {
                let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                let fd = self.queue.as_fd();
                let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN)];
                let _ = rustix::event::poll(&mut fds, Some(&wait));
            }
        }
        got
    }

    /// The same for who does not sleep.
    fn await_polled(&mut self, count: usize) {
        let (begin, mut got) = (Instant::now(), Chain::new());
        while got.len() < count {
            assert!(begin.elapsed() < LIMIT, "{} of {count} frames came", got.len());
            self.queue.receive(&mut self.pools, 64, &mut got, &mut self.drops);
        }
    }

    fn send(&mut self, frames: impl IntoIterator<Item = Vec<u8>>) {
        let (mut chain, begin) = (Chain::new(), Instant::now());
        for bytes in frames {
            chain.push(self.pools.copy_of(&bytes).unwrap());
        }
        while !chain.is_empty() {
            assert!(begin.elapsed() < LIMIT);
            self.queue.transmit(&mut chain, &mut self.drops);
        }
    }
}

/// A UDP datagram to port 9 of 10.9.0.2, without a checksum (RFC 768 allows it).
fn datagram(number: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
    header[2..4].copy_from_slice(&(28 + len as u16).to_be_bytes());
    let sum: u32 = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend([0, 7, 0, 9]);
    frame.extend((8 + len as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(std::iter::repeat_n(number, len));
    frame
}

fn is_udp(frame: &[u8]) -> bool {
    frame.len() > 42 && frame[12..14] == [8, 0] && frame[23] == 17
}

fn there_and_back(wish: Wish) {
    if !veth("") {
        return;
    }
    let Some(mut port) = try_open(wish) else { return };
    assert_eq!(port.mode == Mode::Generic, wish == Wish::Generic, "{:?}", port.mode);
    let socket = UdpSocket::bind("10.9.0.2:9").unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    // More than a ring, in both directions.
    for round in 0..30u8 {
        port.send((0..100).map(|n| datagram(round, 18 + n * 14)));
        for n in 0..100 {
            let mut text = [0; 2000];
            let (len, _) = socket.recv_from(&mut text).unwrap();
            assert_eq!((len, text[0]), (18 + n * 14, round));
        }
        for n in 0..100u8 {
            socket.send_to(&[n; 100], "10.9.0.1:7").unwrap();
        }
        let got = port.await_frames(100, is_udp);
        assert!(got.iter().enumerate().all(|(n, frame)| frame.as_slice()[42] == n as u8));
    }
    assert_eq!(port.drops.total(), 0);
}

#[test]
fn frames_cross_in_the_driver() {
    there_and_back(Wish::Native);
}

#[test]
fn frames_cross_before_the_kernels_stack() {
    there_and_back(Wish::Generic);
}

/// A bridge's driver takes no program, and before the kernel's stack segments that nobody has cut would be lost.
#[test]
fn an_interface_without_a_wire_is_not_taken_before_the_kernels_stack_unless_that_is_asked_for() {
    if !veth("") {
        return;
    }
    if !run("ip link add br0 type bridge") || !run("ip link set br0 up") {
        return skipped("no bridge can be made here");
    }
    if let Err(error) = open("br0", &config(Wish::Generic)) {
        return skipped(error);
    }
    match open("br0", &config(Wish::Best)) {
        Err(AfXdpError::Refused(name, ways)) => {
            assert!(matches!(ways.last(), Some((_, Refused::Uncut))), "{name}: {ways:?}");
        }
        other => panic!("{:?}", other.map(|(_, attached)| attached)),
    }
}

/// The kernel leaves the checksum to the veth, which leaves it to nobody.
#[test]
fn what_is_sent_while_the_interface_is_off_does_not_leave_when_it_is_on_again() {
    if !veth("") {
        return;
    }
    let Some(mut port) = try_open(Wish::Generic) else { return };
    let socket = UdpSocket::bind("10.9.0.2:9").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(run("ip link set near down"));
    for number in [1, 2, 2, 2] {
        port.send([datagram(number, 20)]);
    }
    assert!(port.drops.of(DropReason::DeviceRefused) >= 3, "{:?}", port.drops);
    assert!(run("ip link set near up"));
    let (begin, mut text, mut got) = (Instant::now(), [0; 100], Vec::new());
    while got.last() != Some(&3) {
        assert!(begin.elapsed() < LIMIT, "{got:?}");
        port.send([datagram(3, 20)]);
        if socket.recv_from(&mut text).is_ok() {
            got.push(text[0]);
        }
    }
    assert!(!got.contains(&2), "{got:?}");
}

#[test]
fn a_checksum_that_the_sender_left_open_is_known_and_completed() {
    if !veth("") {
        return;
    }
    let Some(mut port) = try_open(Wish::Best) else { return };
    let socket = UdpSocket::bind("10.9.0.2:9").unwrap();
    socket.send_to(&[7; 101], "10.9.0.1:7").unwrap();
    let mut got = port.await_frames(1, is_udp);
    let frame = got.pop().unwrap();
    assert_eq!(frame.meta().checksum, Checksum::Partial { start: 34, offset: 6 });
    let mut chain = Chain::from_iter([frame]);
    let plain = Capabilities::plain(Mtu::ETHERNET);
    offload::prepare(&mut chain, &plain, &mut port.pools, &mut port.drops);
    let frame = chain.pop().unwrap();
    let (bytes, mut sum) = (frame.as_slice(), 17 + 109u32);
    let mut padded = bytes[26..].to_vec();
    padded.push(0);
    sum += padded.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    assert_eq!(sum, 0xffff, "pseudo-header, header and text add up");
}

#[test]
fn tags_stay_in_the_frames() {
    if !veth("") || !run("ip link add link far name far7 type vlan id 7") {
        return;
    }
    let up = run("ip link set far7 up") && run("ip address add 10.9.7.2/24 dev far7");
    assert!(up && run("ip neighbour add 10.9.7.1 lladdr 2:0:0:0:0:1 dev far7 nud permanent"));
    let Some(mut port) = try_open(Wish::Best) else { return };
    let socket = UdpSocket::bind("10.9.7.2:9").unwrap();
    socket.send_to(&[7; 101], "10.9.7.1:7").unwrap();
    let is_ours = |frame: &[u8]| frame.len() > 100 && frame.ends_with(&[7; 101]);
    let mut got = port.await_frames(1, is_ours);
    let frame = got.pop().unwrap();
    assert_eq!(frame.as_slice()[12..18], [0x81, 0, 0, 7, 8, 0]);
    assert_eq!(frame.meta().checksum, Checksum::Partial { start: 38, offset: 6 });
}

#[test]
fn queues_are_known_where_nothing_shows_the_namespace() {
    if !veth("numrxqueues 3 numtxqueues 3") || !run("umount /sys") {
        return;
    }
    assert!(!fs::exists("/sys/class/net/near").unwrap());
    match open("near", &config(Wish::Best)) {
        Ok((_, attached)) => assert_eq!(attached.queues, 3),
        Err(AfXdpError::Refused(_, ways)) => skipped(format_args!("{ways:?}")),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(receive_queues("near"), Some(3));
    assert_eq!(receive_queues("nothing0"), None);
}

/// Whether the queue's descriptor is readable within so many milliseconds.
fn wakes(port: &Port, millis: u64) -> bool {
    let wait = Duration::from_millis(millis).try_into().unwrap();
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(port.queue.as_fd(), rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&wait)).unwrap() > 0
}

/// The kernel asks for no routers and tells of no groups, as it would unasked.
fn be_silent() {
    for name in ["near", "far"] {
        fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1").unwrap();
    }
}

/// While a lane polls and sends, nothing watches its sockets; what it does not wait for wakes nobody, and what it waits for does.
#[test]
fn who_sends_much_is_woken_when_it_sleeps_and_not_before() {
    if !veth("") {
        return;
    }
    be_silent();
    let Some(mut port) = try_open(Wish::Best) else { return };
    let socket = UdpSocket::bind("10.9.0.2:9").unwrap();
    for round in 0..3u8 {
        assert!(!port.queue.notify(false), "nothing waits");
        port.send((0..64).map(|n| datagram(n, 50)));
        socket.send_to(&[round; 100], "10.9.0.1:7").unwrap();
        assert!(!wakes(&port, 20), "round {round}: a lane that polls was woken");
        assert!(port.queue.notify(true), "round {round}: a frame waits");
        assert!(wakes(&port, 1000), "round {round}");
        port.await_frames(1, is_udp);
        assert!(!port.queue.notify(true));
        // Somebody else's thread may send much while the lane sleeps.
        port.send((0..64).map(|n| datagram(n, 50)));
        let sender = socket.try_clone().unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            sender.send_to(&[round; 100], "10.9.0.1:7").unwrap();
        });
        assert!(wakes(&port, 5000), "round {round}: a lane that sleeps was not woken");
        port.await_frames(1, is_udp);
        // What a limit leaves in the device wakes nobody, until it is not left any more.
        port.queue.leave(true);
        port.queue.notify(false);
        socket.send_to(&[round; 100], "10.9.0.1:7").unwrap();
        assert!(!wakes(&port, 20), "round {round}: woken for what is left");
        port.queue.leave(false);
        assert!(port.queue.notify(true) && wakes(&port, 1000), "round {round}");
        port.await_frames(1, is_udp);
    }
    assert_eq!(port.drops.total(), 0);
}

/// The same of who sends little and gets much: the sender of what he gets would pay for waking him.
#[test]
fn who_gets_much_is_woken_when_it_sleeps_and_not_before() {
    if !veth("") {
        return;
    }
    be_silent();
    let Some(mut port) = try_open(Wish::Best) else { return };
    let socket = UdpSocket::bind("10.9.0.2:9").unwrap();
    let come = |count: usize| {
        for _ in 0..count {
            socket.send_to(&[7; 100], "10.9.0.1:7").unwrap();
        }
    };
    for round in 0..3 {
        assert!(!port.queue.notify(false), "round {round}: nothing waits");
        // Little by little: no chain is long.
        for _ in 0..16 {
            come(4);
            port.await_polled(4);
        }
        come(1);
        assert!(!wakes(&port, 20), "round {round}: a lane that polls was woken");
        assert!(port.queue.notify(true), "round {round}: a frame waits");
        assert!(wakes(&port, 1000), "round {round}");
        port.await_frames(1, is_udp);
        assert!(!port.queue.notify(true));
        // Somebody else's thread may fetch much while the lane sleeps.
        come(64);
        port.await_polled(64);
        let sender = socket.try_clone().unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            sender.send_to(&[7; 100], "10.9.0.1:7").unwrap();
        });
        assert!(wakes(&port, 5000), "round {round}: a lane that sleeps was not woken");
        port.await_frames(1, is_udp);
    }
    assert_eq!(port.drops.total(), 0);
}

#[test]
fn what_is_not_claimed_stays_with_the_kernel() {
    if !veth("") {
        return;
    }
    let ours = MacAddr([2, 0, 0, 0, 0, 0x99]);
    let claim = Claim::Addresses { addresses: [ours].into(), groups: false };
    let Some(mut port) = open_with(&AfXdpConfig { claim, ..config(Wish::Best) }) else { return };
    let sender = UdpSocket::bind("10.9.0.2:0").unwrap();
    assert!(run("ip neighbour replace 10.9.0.1 lladdr 2:0:0:0:0:99 dev far nud permanent"));
    sender.send_to(&[7; 100], "10.9.0.1:7").unwrap();
    let got = port.await_frames(1, is_udp);
    assert_eq!(got.front().unwrap().as_slice()[..6], ours.0);
    // A broadcast is the kernel's.
    sender.set_broadcast(true).unwrap();
    let before = rx_packets();
    sender.send_to(&[8; 100], "10.9.0.255:9").unwrap();
    let begin = Instant::now();
    while rx_packets() == before {
        assert!(begin.elapsed() < LIMIT, "the kernel sees nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut chain = Chain::new();
    port.queue.receive(&mut port.pools, 64, &mut chain, &mut port.drops);
    assert!(chain.iter().all(|frame| frame.as_slice()[..6] == ours.0));
}

#[test]
fn what_is_claimed_changes_while_frames_come() {
    if !veth("") {
        return;
    }
    let stations = [0x91, 0x92, 0x93].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
    let claim = Claim::Addresses { addresses: [stations[0]].into(), groups: false };
    let (mut port, mut claims) = match open("near", &AfXdpConfig { claim, ..config(Wish::Best) }) {
        Ok((mut queues, attached)) => (Port::new(queues.remove(0), attached.mode), attached.claims.unwrap()),
        Err(error) => return skipped(error),
    };
    let sender = UdpSocket::bind("10.9.0.2:0").unwrap();
    let mut rounds = 0;
    for claimed in [&stations[..1], &stations[..], &stations[1..], &[], &stations[2..]] {
        let wanted = claimed.iter().copied().collect();
        claims.set(&wanted).unwrap();
        assert_eq!(*claims.addresses(), wanted);
        rounds += 1;
        for (nth, MacAddr(station)) in (1..).zip(&stations) {
            let last = station[5];
            assert!(run(&format!(
                "ip neighbour replace 10.9.0.1 lladdr 2:0:0:0:0:{last:x} dev far nud permanent"
            )));
            sender.send_to(&[rounds, nth], "10.9.0.1:7").unwrap();
        }
        let its = |frame: &[u8]| is_udp(frame) && frame[42] == rounds;
        let got = port.await_frames(claimed.len(), its);
        let got: Vec<[u8; 6]> = got.iter().map(|frame| frame.as_slice()[..6].try_into().unwrap()).collect();
        assert_eq!(got, claimed.iter().map(|it| it.0).collect::<Vec<_>>(), "round {rounds}");
    }
    // Those that were not claimed are not late.
    let mut rest = Chain::new();
    port.queue.receive(&mut port.pools, 64, &mut rest, &mut port.drops);
    assert!(rest.iter().all(|frame| !is_udp(frame.as_slice())));
}

/// What the kernel's stack has received as IP in this namespace.
fn rx_packets() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
    let mut lines = text.lines().filter(|line| line.starts_with("Ip: "));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs
        .find(|(name, _)| *name == "InReceives")
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or_default()
}

fn has_program() -> bool {
    let output = Command::new("ip")
        .args(["link", "show", "near"])
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output();
    output.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains("xdp"))
}

#[test]
fn a_second_one_is_told_that_there_is_a_first_and_the_end_detaches() {
    if !veth("") {
        return;
    }
    let Some(port) = try_open(Wish::Best) else { return };
    assert!(has_program());
    match open("near", &config(Wish::Best)) {
        Err(error @ AfXdpError::Refused(..)) => {
            assert!(error.to_string().contains("another XDP program is attached"), "{error}");
        }
        other => panic!("{:?}", other.map(|(_, attached)| attached)),
    }
    assert!(has_program(), "the first is undisturbed");
    drop(port);
    assert!(!has_program());
    assert!(try_open(Wish::Best).is_some(), "and the interface is free again");
}

#[test]
fn several_queues_share_one_memory() {
    if !veth("numrxqueues 3 numtxqueues 3") {
        return;
    }
    let config = AfXdpConfig { queues: 2, ..config(Wish::Best) };
    let Some(port) = open_with(&config) else { return };
    drop(port);
    let (queues, attached) = open("near", &config).unwrap();
    assert_eq!((queues.len(), attached.queues), (2, 3));
    // The sender's end of a veth chooses the queue, and no program may choose another.
    assert!(queues.iter().all(|queue| queue.spreader().is_none()));
    let mut ports: Vec<_> = queues.into_iter().map(|queue| Port::new(queue, attached.mode)).collect();
    let socket = UdpSocket::bind("10.9.0.2:9").unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    for (nth, port) in ports.iter_mut().enumerate() {
        port.send([datagram(nth as u8, 50)]);
        let mut text = [0; 100];
        assert_eq!(socket.recv_from(&mut text).unwrap().0, 50);
        assert_eq!(text[0], nth as u8);
    }
    // Whatever queue the kernel chooses, no frame goes anywhere else.
    let senders: Vec<_> = (0..40).map(|_| UdpSocket::bind("10.9.0.2:0").unwrap()).collect();
    for sender in &senders {
        sender.send_to(&[1; 64], "10.9.0.1:7").unwrap();
    }
    let (mut got, begin) = (Chain::new(), Instant::now());
    while got.len() < 40 {
        assert!(begin.elapsed() < LIMIT, "{} came", got.len());
        for port in &mut ports {
            port.queue.receive(&mut port.pools, 64, &mut got, &mut port.drops);
        }
        got.retain(|frame| is_udp(frame.as_slice()));
    }
}

#[test]
fn a_lane_with_several_queues_takes_from_each_in_its_turn() {
    const SENDERS: usize = 40;
    const EACH: usize = 10;
    if !veth("numrxqueues 3 numtxqueues 3") {
        return;
    }
    let Some(mut port) = open_with(&config(Wish::Best)) else { return };
    let senders: Vec<_> = (0..SENDERS).map(|_| UdpSocket::bind("10.9.0.2:0").unwrap()).collect();
    for _ in 0..EACH {
        for sender in &senders {
            sender.send_to(&[1; 64], "10.9.0.1:7").unwrap();
        }
    }
    let (mut got, begin) = (Chain::new(), Instant::now());
    while got.len() < SENDERS * EACH {
        assert!(begin.elapsed() < LIMIT, "{} came", got.len());
        port.queue.receive(&mut port.pools, 8, &mut got, &mut port.drops);
        got.retain(|frame| is_udp(frame.as_slice()));
    }
    // Which queue a sender's frames take is the kernel's choice. Where one queue had to be empty before the next had its turn, senders of
    // that one would have sent the first quarter alone.
    let heard: BTreeSet<_> =
        got.iter().take(SENDERS * EACH / 4).map(|frame| frame.as_slice()[34..36].to_vec()).collect();
    assert!(heard.len() > SENDERS * 3 / 4, "of {} senders' frames", heard.len());
}

#[test]
fn wrong_settings_are_named() {
    let unknown = open("no-such-if0", &config(Wish::Best)).unwrap_err();
    assert!(unknown.to_string().contains("no-such-if0"), "{unknown}");
    let mtu = AfXdpConfig::new(Mtu::new(9000).unwrap());
    assert!(open("lo", &mtu).unwrap_err().to_string().contains("at most 3822"));
    let queues = AfXdpConfig { queues: 0, ..config(Wish::Best) };
    assert!(open("lo", &queues).unwrap_err().to_string().contains("1 to 64"));
    assert!(probe("no-such-if0").is_err());
    assert_eq!(probe("lo").unwrap().queues, 1);
}

/// Only set in the process that the next test starts.
const CHILD: &str = "FIRELANE_AFXDP_CHILD";

/// Not a test by itself: opens the interface, says so, and waits to be killed.
#[test]
fn the_other_process() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let word = if try_open(Wish::Best).map(std::mem::forget).is_some() { "opened" } else { "skipped" };
    fs::write(std::env::var_os(CHILD).unwrap(), word).unwrap();
    std::io::stdout().flush().unwrap();
    std::thread::sleep(LIMIT);
}

#[test]
fn a_killed_process_leaves_nothing_attached() {
    if !veth("") {
        return;
    }
    let file = std::env::temp_dir().join(format!("firelane-afxdp-{}", std::process::id()));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process"])
        .env(CHILD, &file)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let word = loop {
        match fs::read_to_string(&file) {
            Ok(word) if !word.is_empty() => break word,
            _ => assert!(begin.elapsed() < LIMIT),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let was_attached = has_program();
    child.kill().unwrap();
    child.wait().unwrap();
    let _ = fs::remove_file(&file);
    if word == "skipped" {
        return;
    }
    assert!(was_attached);
    while has_program() {
        assert!(begin.elapsed() < LIMIT, "the program is still attached");
        std::thread::sleep(Duration::from_millis(5));
    }
}
