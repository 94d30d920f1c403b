//! A wire at full speed: frames cross by handle, in order, with back-pressure and wake-ups.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

use firelane_driver_memory::{End, WireConfig, wire};
use firelane_frame::{
    Capabilities, Chain, Checksum, Driver, FlowTag, Pools, PoolsConfig, SegmentKind, Segmentation,
};
use firelane_units::{DropCounters, DropReason, FlowId, Mtu};

fn pools() -> Pools {
    Pools::new(PoolsConfig { small_slots: 256, large_slots: 2 })
}

fn chain(pools: &mut Pools, contents: impl IntoIterator<Item = u32>) -> Chain {
    contents.into_iter().map(|n| pools.copy_of(&n.to_be_bytes()).expect("a free slot")).collect()
}

fn numbers(chain: &mut Chain) -> Vec<u32> {
    chain
        .drain()
        .map(|f| u32::from_be_bytes(f.as_slice().try_into().expect("a frame of four bytes")))
        .collect()
}

fn small_wire() -> (End, End) {
    wire(WireConfig { ring_frames: 4, ..WireConfig::default() })
}

#[test]
fn a_full_ring_leaves_the_rest_with_the_sender() {
    let (mut one, mut two) = small_wire();
    assert!(one.control().is_none() && one.next_event().is_none());
    let mut pools = pools();
    let mut drops = DropCounters::default();
    let mut sent = chain(&mut pools, 0..6);
    one.transmit(&mut sent, &mut drops);
    assert_eq!(sent.len(), 2);
    let mut out = Chain::new();
    assert_eq!(two.receive(&mut pools, 3, &mut out, &mut drops), 3);
    one.transmit(&mut sent, &mut drops);
    assert_eq!(two.receive(&mut pools, 9, &mut out, &mut drops), 3);
    assert_eq!(numbers(&mut out), [0, 1, 2, 3, 4, 5]);
    assert_eq!((one.counters().frames_out, one.counters().bytes_out), (6, 24));
    assert_eq!((two.counters().frames_in, two.counters().bytes_in), (6, 24));
    assert_eq!((drops.total(), pools.small.free()), (0, 256));
}

#[test]
fn what_the_sender_knew_stays_with_it_and_offloads_pass() {
    let (mut one, mut two) = small_wire();
    let mut pools = pools();
    let mut drops = DropCounters::default();
    let mut frame = pools.take(60_000).unwrap();
    frame.append(60_000).fill(1);
    let cut = Segmentation { kind: SegmentKind::TcpV6, segment_bytes: 1400, header_bytes: 74, ecn: false };
    let meta = frame.meta_mut();
    (meta.trace, meta.flow) = (9, FlowId(3).into());
    (meta.checksum, meta.segmentation) = (Checksum::Partial { start: 54, offset: 16 }, Some(cut));
    let mut chain = Chain::from_iter([frame]);
    one.transmit(&mut chain, &mut drops);
    two.receive(&mut pools, 1, &mut chain, &mut drops);
    let frame = chain.pop().unwrap();
    assert_eq!((frame.meta().trace, frame.meta().flow), (0, FlowTag::NONE));
    assert_eq!(frame.meta().segmentation, Some(cut));
    assert_eq!(frame.meta().checksum, Checksum::Partial { start: 54, offset: 16 });
    assert_eq!(frame.len(), 60_000);
}

#[test]
fn a_plain_device_refuses_what_it_cannot_do() {
    let capabilities = Capabilities::plain(Mtu::ETHERNET);
    let (mut one, mut two) = wire(WireConfig { capabilities, ..WireConfig::default() });
    let mut pools = pools();
    let mut drops = DropCounters::default();
    let mut partial = pools.copy_of(&[0; 80]).unwrap();
    partial.meta_mut().checksum = Checksum::Partial { start: 34, offset: 16 };
    let long = pools.copy_of(&[0; 1519]).unwrap();
    let mut chain = chain(&mut pools, [1]);
    chain.push(partial);
    chain.push(long);
    chain.push(pools.copy_of(&2u32.to_be_bytes()).unwrap());
    one.transmit(&mut chain, &mut drops);
    assert!(chain.is_empty());
    two.receive(&mut pools, 9, &mut chain, &mut drops);
    assert_eq!(numbers(&mut chain), [1, 2]);
    assert_eq!((drops.of(DropReason::BadOffload), drops.of(DropReason::TooLong)), (1, 1));
}

#[test]
fn a_wire_without_a_peer_refuses_everything() {
    let (mut one, two) = small_wire();
    drop(two);
    let mut pools = pools();
    let mut drops = DropCounters::default();
    let mut chain = chain(&mut pools, 0..3);
    one.transmit(&mut chain, &mut drops);
    assert_eq!((chain.len(), drops.of(DropReason::DeviceRefused)), (0, 3));
}

#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_bell_rings_once_for_each_wish() {
    for simulated in [false, true] {
        let (mut one, mut two) = wire(WireConfig { timed: simulated, ..WireConfig::default() });
        let bell = Arc::new(Bell::default());
        two.set_waker(Waker::from(Arc::clone(&bell)));
        let rung = || bell.0.load(Ordering::Relaxed);
        let mut pools = pools();
        let mut drops = DropCounters::default();
        one.transmit(&mut chain(&mut pools, 0..2), &mut drops);
        assert_eq!(rung(), 0, "nobody asked");
        assert!(two.notify(true), "frames are waiting");
        let mut out = Chain::new();
        two.receive(&mut pools, 9, &mut out, &mut drops);
        assert!(!two.notify(true));
        one.transmit(&mut chain(&mut pools, 0..2), &mut drops);
        one.transmit(&mut chain(&mut pools, 0..2), &mut drops);
        assert_eq!(rung(), 1);
        two.receive(&mut pools, 9, &mut out, &mut drops);
        assert!(!two.notify(true));
        assert!(!two.notify(false));
        one.transmit(&mut chain(&mut pools, 0..2), &mut drops);
        assert_eq!(rung(), 1, "the wish was taken back");
    }
}

/// As when an end moves from one lane to another.
#[test]
fn whoever_has_the_end_now_is_woken() {
    for simulated in [false, true] {
        let (mut one, mut two) = wire(WireConfig { timed: simulated, ..WireConfig::default() });
        let bells = [(); 2].map(|()| Arc::new(Bell::default()));
        let mut pools = pools();
        let mut drops = DropCounters::default();
        for bell in &bells {
            two.set_waker(Waker::from(Arc::clone(bell)));
            two.receive(&mut pools, 9, &mut Chain::new(), &mut drops);
            assert!(!two.notify(true));
            one.transmit(&mut chain(&mut pools, 0..1), &mut drops);
        }
        assert_eq!(bells.map(|bell| bell.0.load(Ordering::Relaxed)), [1, 1]);
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn two_lanes_that_sleep_lose_nothing() {
    const FRAMES: u32 = 20_000;
    let (mut one, mut two) = small_wire();
    one.set_waker(Waker::from(Arc::new(Unpark(thread::current()))));
    let receiver = thread::spawn(move || {
        two.set_waker(Waker::from(Arc::new(Unpark(thread::current()))));
        let mut pools = pools();
        let mut drops = DropCounters::default();
        let (mut out, mut expected) = (Chain::new(), 0);
        while expected < FRAMES {
            if two.receive(&mut pools, 3, &mut out, &mut drops) == 0 && !two.notify(true) {
                thread::park();
            }
            for number in numbers(&mut out) {
                assert_eq!(number, expected);
                expected += 1;
            }
        }
    });
    let mut pools = pools();
    let mut drops = DropCounters::default();
    let (mut pending, mut next) = (Chain::new(), 0);
    while next < FRAMES || !pending.is_empty() {
        if pending.is_empty() {
            let end = (next + 7).min(FRAMES);
            pending.append(&mut chain(&mut pools, next..end));
            next = end;
        }
        one.transmit(&mut pending, &mut drops);
        if !pending.is_empty() {
            thread::park();
        }
    }
    receiver.join().unwrap();
    assert_eq!((drops.total(), pools.small.free()), (0, 256));
}
