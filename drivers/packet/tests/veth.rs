//! Packet sockets at both ends of a veth, in a network namespace that each test has for itself.
//!
//! As root; otherwise each says why it is skipped.

use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use firelane_driver_packet::PacketSocket;
use firelane_frame::{Chain, Driver, Pools, PoolsConfig};
use firelane_skipped::skipped;
use firelane_units::{DropCounters, Mtu};

const LIMIT: Duration = Duration::from_secs(20);
const GROUP: u8 = 0x33;
const STATION: u8 = 0x02;

fn ip(line: &str) -> Option<String> {
    let mut command = Command::new("ip");
    let output = command.args(line.split(' ')).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn run(line: &str) -> bool {
    ip(line).is_some()
}

/// This thread in a namespace of its own, with `near` and `far`, which end with it.
fn veth() -> bool {
    // SAFETY: the test's thread has opened nothing yet that depends on its old namespace.
    if let Err(error) = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) } {
        skipped(format_args!("no network namespace of one's own: {error}"));
        return false;
    }
    let made =
        run("link add near type veth peer name far") && run("link set near up") && run("link set far up");
    if !made {
        skipped("no veth can be made here");
        return false;
    }
    // The kernel notices a moment later that there is a carrier, and drops what is sent before.
    let (begin, is_up) = (Instant::now(), |end: &str| {
        ip(&format!("link show {end}")).is_some_and(|it| it.contains("state UP"))
    });
    while !(is_up("near") && is_up("far")) {
        assert!(begin.elapsed() < LIMIT, "no carrier");
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

struct End(PacketSocket, Pools);

impl End {
    fn new(socket: std::io::Result<PacketSocket>) -> Self {
        Self(socket.unwrap(), Pools::new(PoolsConfig { small_slots: 256, large_slots: 2 }))
    }

    fn send(&mut self, bytes: &[u8]) {
        let (mut chain, mut drops) = (Chain::new(), DropCounters::default());
        chain.push(self.1.copy_of(bytes).unwrap());
        self.0.transmit(&mut chain, &mut drops);
        assert!(chain.is_empty() && drops.total() == 0);
    }

    /// What arrives of a test's frames until one has this number; the kernel sends frames of its own.
    fn until(&mut self, number: u8) -> Vec<Vec<u8>> {
        let (begin, mut drops, mut got) = (Instant::now(), DropCounters::default(), Vec::new());
        loop {
            assert!(begin.elapsed() < LIMIT, "{got:x?}");
            let mut chain = Chain::new();
            if self.0.receive(&mut self.1, 64, &mut chain, &mut drops) == 0 {
                let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                let mut fds =
                    [rustix::event::PollFd::from_borrowed_fd(self.0.as_fd(), rustix::event::PollFlags::IN)];
                let _ = rustix::event::poll(&mut fds, Some(&wait));
            }
            let ours = chain.iter().map(|frame| frame.as_slice().to_vec());
            got.extend(ours.filter(|bytes| bytes[6..8] == [2, 0xee]));
            if got.last().is_some_and(|bytes| bytes.ends_with(&[number])) {
                return got;
            }
        }
    }
}

/// A frame to a group or a station, with a VLAN tag if `tag` is one, that ends with its number.
fn frame(to: u8, tag: &[u8], number: u8) -> Vec<u8> {
    let stations = [to, 0, 0, 0, 0, 1, 2, 0xee, 0, 0, 0, 2];
    [&stations[..], tag, &[0x88, 0xb5], &[7; 60], &[number]].concat()
}

#[test]
fn vlan_tags_stand_where_the_sender_has_put_them() {
    if !veth() {
        return;
    }
    let mut near = End::new(PacketSocket::open("near", Mtu::ETHERNET));
    let mut far = End::new(PacketSocket::open("far", Mtu::ETHERNET));
    let tags: [&[u8]; 4] =
        [&[], &[0x81, 0, 0, 5], &[0x81, 0, 0xef, 0xfe], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9]];
    let sent: Vec<Vec<u8>> = (0..).zip(tags).map(|(number, tag)| frame(STATION, tag, number)).collect();
    sent.iter().for_each(|bytes| near.send(bytes));
    assert_eq!(far.until(3), sent);
}

#[test]
fn who_hears_groups_hears_nothing_else() {
    if !veth() {
        return;
    }
    let mut near = End::new(PacketSocket::open("near", Mtu::ETHERNET));
    let mut far = End::new(PacketSocket::of_groups("far", Mtu::ETHERNET));
    let sent: Vec<Vec<u8>> =
        (0..6).map(|number| frame([STATION, GROUP, 0xff][usize::from(number) % 3], &[], number)).collect();
    sent.iter().for_each(|bytes| near.send(bytes));
    let groups: Vec<Vec<u8>> = sent.into_iter().filter(|bytes| bytes[0] & 1 != 0).collect();
    assert_eq!(far.until(5), groups);
}

#[test]
fn what_no_buffer_was_free_for_waits_and_that_is_told() {
    if !veth() {
        return;
    }
    let mut near = End::new(PacketSocket::open("near", Mtu::ETHERNET));
    let mut far = End::new(PacketSocket::open("far", Mtu::ETHERNET));
    (0..2).for_each(|number| near.send(&frame(STATION, &[], number)));
    let (mut none, mut drops) =
        (Pools::new(PoolsConfig { small_slots: 0, large_slots: 0 }), DropCounters::default());
    assert_eq!(far.0.receive(&mut none, 64, &mut Chain::new(), &mut drops), 0);
    assert!(far.0.notify(true) && !far.0.notify(false), "no call comes for what has come already");
    assert_eq!(far.until(1).len(), 2);
    while !far.0.is_drained() {
        far.0.receive(&mut far.1, 64, &mut Chain::new(), &mut drops);
    }
    assert!(!far.0.notify(true));
}

#[test]
fn frames_that_come_after_the_interface_was_off_are_read_at_once() {
    if !veth() {
        return;
    }
    let mut far = End::new(PacketSocket::open("far", Mtu::ETHERNET));
    assert!(run("link set far down") && run("link set far up"));
    let begin = Instant::now();
    while !ip("link show far").is_some_and(|it| it.contains("state UP")) {
        assert!(begin.elapsed() < LIMIT, "no carrier");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut near = End::new(PacketSocket::open("near", Mtu::ETHERNET));
    near.send(&frame(STATION, &[], 1));
    let (mut chain, mut drops) = (Chain::new(), DropCounters::default());
    assert!(far.0.receive(&mut far.1, 64, &mut chain, &mut drops) > 0, "what lies behind the error");
}

/// A frame that the far end does not take (it is longer than its MTU) is told with ENOBUFS for ever, as a full queue is.
#[test]
fn a_frame_that_is_always_refused_holds_up_nobody_for_long() {
    if !veth() || !run("link set far mtu 1000") {
        return;
    }
    let mut near = End::new(PacketSocket::open("near", Mtu::ETHERNET));
    let mut far = End::new(PacketSocket::open("far", Mtu::ETHERNET));
    let (mut chain, mut drops) = (Chain::new(), DropCounters::default());
    let long = [frame(STATION, &[], 0), vec![0; 1400 - 75]].concat();
    let (begin, short) = (Instant::now(), [1, 2].map(|number| frame(STATION, &[], number)));
    for bytes in [&long, &long, &short[0], &long, &short[1]] {
        chain.push(near.1.copy_of(bytes).unwrap());
    }
    let mut turns = 0;
    while !chain.is_empty() {
        assert!(begin.elapsed() < LIMIT, "{} wait", chain.len());
        near.0.advance(firelane_units::Instant::ZERO + begin.elapsed());
        near.0.transmit(&mut chain, &mut drops);
        turns += 1;
        std::thread::sleep(Duration::from_micros(100));
    }
    assert!(begin.elapsed() < Duration::from_secs(1), "it is waited for once: {turns} turns");
    // Kernels before 6.9 say nothing of the far end's refusal.
    assert!(drops.total() <= 3, "{drops:?}");
    assert_eq!(far.until(2), short);
}
