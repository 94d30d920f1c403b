//! A simulated wire: its conditions do what they say, exactly, and no frame is unaccounted for.

use core::time::Duration;
use std::collections::BTreeSet;

use firelane_driver_memory::{
    Chance, Conditions, Control, Corruption, End, GilbertElliott, Loss, Mark, Reorder, WireConfig, wire,
};
use firelane_frame::{Chain, Checksum, Driver, Pools, PoolsConfig};
use firelane_units::{BitRate, Bytes, DropCounters, DropReason, Instant, MacAddr, Mtu};
use proptest::prelude::*;

/// Two ends, and what a test needs to use them.
struct Bench {
    one: End,
    two: End,
    control: Control,
    pools: Pools,
    drops: DropCounters,
    now: Instant,
    sent: u32,
}

impl Bench {
    fn new(seed: u64, conditions: Conditions) -> Self {
        let (one, two) = wire(WireConfig::simulated(seed, conditions));
        Self {
            control: one.control().expect("simulated"),
            one,
            two,
            pools: Pools::new(PoolsConfig { small_slots: 4096, large_slots: 4 }),
            drops: DropCounters::default(),
            now: Instant::ZERO,
            sent: 0,
        }
    }

    fn at(&mut self, now: Instant) {
        self.now = now;
        self.one.advance(now);
        self.two.advance(now);
    }

    /// Sends numbered frames of `len` bytes.
    fn send(&mut self, frames: u32, len: usize) {
        let mut chain = Chain::new();
        for _ in 0..frames {
            let mut frame = self.pools.take(len).expect("a free slot");
            let content = frame.append(len);
            content.fill(0);
            content[14..18].copy_from_slice(&self.sent.to_be_bytes());
            self.sent += 1;
            chain.push(frame);
        }
        self.one.transmit(&mut chain, &mut self.drops);
        assert!(chain.is_empty(), "a simulated wire keeps nothing back");
    }

    /// The numbers of the frames that have arrived.
    fn receive(&mut self) -> Vec<u32> {
        let mut out = Chain::new();
        self.two.receive(&mut self.pools, usize::MAX, &mut out, &mut self.drops);
        let numbers = out.iter().map(|frame| number(frame.as_slice())).collect();
        self.pools.put_all(&mut out);
        numbers
    }

    /// As `run`, where some of what arrives may find no buffer; how much did.
    fn run_lossy(&mut self) -> usize {
        let mut out = Chain::new();
        while let Some(at) = self.two.next_event() {
            self.at(self.now.max(at));
            self.two.receive(&mut self.pools, usize::MAX, &mut out, &mut self.drops);
        }
        out.len()
    }

    /// Goes from event to event until nothing is on the way; returns when which frame arrived.
    fn run(&mut self) -> Vec<(Instant, u32)> {
        let mut arrivals = Vec::new();
        while let Some(at) = self.two.next_event() {
            self.at(self.now.max(at));
            let now = self.now;
            let arrived = self.receive();
            assert!(!arrived.is_empty(), "an event at which nothing arrives");
            arrivals.extend(arrived.into_iter().map(|n| (now, n)));
        }
        arrivals
    }

    fn order(&mut self) -> Vec<u32> {
        self.run().into_iter().map(|(_, n)| n).collect()
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[14], bytes[15], bytes[16], bytes[17]])
}

fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}

#[test]
fn a_rate_is_exact_over_any_time() {
    // 1,250 bytes at 3 Gb/s are 3,333 and a third nanoseconds.
    let rate = BitRate::from_mbps(3000);
    let mut bench = Bench::new(
        1,
        Conditions { rate: Some(rate), delay: micros(10), queue: Bytes(u64::MAX), ..Conditions::default() },
    );
    bench.send(3000, 1250);
    let arrivals = bench.run();
    assert_eq!(arrivals.len(), 3000);
    for (n, (at, number)) in arrivals.into_iter().enumerate() {
        let nanos = (n as u64 + 1) * 10_000 / 3;
        assert_eq!((at, number), (Instant::from_nanos(10_000 + nanos), n as u32));
    }
}

#[test]
fn an_idle_wire_saves_nothing_up() {
    let rate = Some(BitRate::from_mbps(8));
    let mut bench = Bench::new(1, Conditions { rate, ..Conditions::default() });
    bench.at(Instant::from_secs(5));
    bench.send(2, 1000);
    let times: Vec<Instant> = bench.run().into_iter().map(|(at, _)| at).collect();
    assert_eq!(times, [Instant::from_millis(5001), Instant::from_millis(5002)]);
}

#[test]
fn a_full_queue_drops_its_tail_and_an_empty_one_takes_any_frame() {
    let conditions =
        Conditions { rate: Some(BitRate::from_mbps(8)), queue: Bytes(2500), ..Conditions::default() };
    let mut bench = Bench::new(1, conditions);
    bench.send(4, 1000);
    assert_eq!(bench.drops.of(DropReason::RingFull), 2);
    bench.at(Instant::from_millis(1));
    bench.send(2, 1000);
    assert_eq!(bench.drops.of(DropReason::RingFull), 3, "one has left, one has room");
    assert_eq!(bench.order(), [0, 1, 4]);
    bench.control.change(|c| c.queue = Bytes(10));
    bench.send(2, 1000);
    assert_eq!(bench.order(), [6]);
}

#[test]
fn a_wire_has_a_bound_of_what_is_under_way_and_takes_no_buffers_of_the_sender() {
    let conditions = Conditions { delay: micros(1000), flight: Bytes(10_000), ..Conditions::default() };
    let mut bench = Bench::new(1, conditions);
    bench.pools = Pools::new(PoolsConfig { small_slots: 40, large_slots: 1 });
    for _ in 0..3 {
        bench.send(30, 1000);
        assert_eq!((bench.control.counters().queued, bench.run().len()), (10, 10));
    }
    let counters = bench.control.counters();
    assert_eq!((counters.dropped_full, counters.delivered), (60, 30));
    assert_eq!(bench.drops.of(DropReason::RingFull), 60);
    // What arrives where no buffer is free is lost there, and counted.
    bench.send(10, 1000);
    let taken: Vec<_> = (0..35).map(|_| bench.pools.take(1000).expect("a free slot")).collect();
    assert_eq!(bench.run_lossy(), 5);
    drop(taken);
    let counters = bench.control.counters();
    assert_eq!((counters.dropped_buffer, counters.queued), (5, 0));
    assert_eq!(counters.sent + counters.duplicated, counters.delivered + counters.lost());
}

#[test]
fn losses_are_as_frequent_as_asked() {
    let burst = GilbertElliott {
        worsen: Chance::percent(1.0),
        recover: Chance::percent(25.0),
        loss_good: Chance::NEVER,
        loss_bad: Chance::ALWAYS,
    };
    // The model is bad for worsen / (worsen + recover) of the frames.
    for (loss, least, most) in [
        (Loss::Random(Chance::percent(2.0)), 0.018, 0.022),
        (Loss::Burst(burst), 0.034, 0.043),
        (Loss::Random(Chance::ALWAYS), 1.0, 1.0),
    ] {
        let mut bench = Bench::new(3, Conditions { loss: loss.clone(), ..Conditions::default() });
        let (mut lost, mut runs, mut expected) = (0u32, 0u32, 0);
        for _ in 0..100 {
            bench.send(1000, 64);
            for number in bench.receive() {
                lost += number - expected;
                runs += u32::from(number > expected);
                expected = number + 1;
            }
        }
        let share = bench.drops.of(DropReason::WireLoss) as f64 / 100_000.0;
        assert!((least..=most).contains(&share), "{loss:?}: {share}");
        if matches!(loss, Loss::Burst(_)) {
            let mean = f64::from(lost) / f64::from(runs);
            assert!((3.5..4.5).contains(&mean), "bursts of 1 / recover frames, not {mean}");
        }
    }
}

#[test]
fn a_script_loses_what_it_names_counted_from_when_it_is_set() {
    let script = |indices: &[u64]| Loss::Scripted(indices.iter().copied().collect::<BTreeSet<_>>());
    let mut bench = Bench::new(1, Conditions { loss: script(&[0, 3]), ..Conditions::default() });
    bench.send(5, 64);
    assert_eq!(bench.order(), [1, 2, 4]);
    bench.control.change(|c| c.loss = script(&[1]));
    bench.send(3, 64);
    assert_eq!(bench.order(), [5, 7]);
}

#[test]
fn jitter_spreads_arrivals_and_keeps_the_order() {
    let conditions = Conditions { delay: micros(100), jitter: micros(50), ..Conditions::default() };
    let mut bench = Bench::new(9, conditions);
    let mut arrivals = Vec::new();
    let mut delays = BTreeSet::new();
    for n in 0..500 {
        let at = Instant::from_micros(n * 5);
        bench.at(at);
        bench.send(1, 64);
        arrivals.extend(bench.receive());
    }
    for (at, number) in bench.run() {
        arrivals.push(number);
        delays.insert(at.saturating_since(Instant::from_micros(u64::from(number) * 5)));
    }
    assert_eq!(arrivals, (0..500).collect::<Vec<_>>());
    assert!(delays.iter().all(|d| (micros(100)..=micros(150)).contains(d)));
    assert!(delays.len() > 5);
}

#[test]
fn a_reordered_frame_lets_so_many_pass_or_goes_on_in_time() {
    let reorder = |chance| Reorder::Positions { chance, later: 2, at_most: micros(70) };
    let mut bench = Bench::new(1, Conditions { delay: micros(10), ..Conditions::default() });
    bench.control.change(|c| c.reorder = reorder(Chance::ALWAYS));
    bench.send(1, 64);
    bench.control.change(|c| c.reorder = Reorder::None);
    bench.send(3, 64);
    assert_eq!(bench.order(), [1, 2, 0, 3]);

    bench.control.change(|c| c.reorder = reorder(Chance::ALWAYS));
    bench.send(1, 64);
    let sent_at = bench.now;
    assert_eq!(bench.run(), [(sent_at + micros(80), 4)], "nothing follows");

    bench.control.change(|c| c.reorder = reorder(Chance::ALWAYS));
    bench.send(1, 64);
    let sent_at = bench.now;
    bench.control.change(|c| (c.reorder, c.rate) = (Reorder::None, Some(BitRate::ZERO)));
    bench.send(2, 64);
    assert_eq!(bench.run(), [(sent_at + micros(80), 5)], "what follows never arrives");
    bench.control.change(|c| c.rate = None);
    assert_eq!(bench.order(), [6, 7]);

    bench.control.change(|c| c.reorder = Reorder::Delay { chance: Chance::ALWAYS, extra: micros(5) });
    bench.send(1, 64);
    bench.control.change(|c| c.reorder = Reorder::None);
    bench.send(2, 64);
    assert_eq!(bench.order(), [9, 10, 8]);
    assert_eq!(bench.control.counters().reordered, 4);
}

#[test]
fn a_duplicate_arrives_beside_its_original_and_respects_the_budget() {
    let conditions = Conditions { duplicate: Chance::ALWAYS, ..Conditions::default() };
    let mut bench = Bench::new(1, conditions);
    bench.send(2, 64);
    let mut out = Chain::new();
    for expected in [1, 1, 1, 1, 0] {
        let before = out.len();
        let got = bench.two.receive(&mut bench.pools, 1, &mut out, &mut bench.drops);
        assert_eq!((got, out.len() - before), (expected, expected));
    }
    let numbers: Vec<u32> = out.iter().map(|f| number(f.as_slice())).collect();
    assert_eq!(numbers, [0, 0, 1, 1]);
}

#[test]
fn corruption_flips_one_bit_and_the_receiver_must_look_unless_it_is_hidden() {
    for (corruption, checksum) in
        [(Corruption::Shows, Checksum::Unchecked), (Corruption::Hidden, Checksum::Verified)]
    {
        let (mut one, mut two) = wire(WireConfig {
            capabilities: firelane_frame::Capabilities::full(Mtu::ETHERNET),
            ..WireConfig::simulated(
                5,
                Conditions { corrupt: Chance::ALWAYS, corruption, ..Conditions::default() },
            )
        });
        let mut pools = Pools::new(PoolsConfig { small_slots: 4, large_slots: 1 });
        let mut drops = DropCounters::default();
        let mut frame = pools.copy_of(&[0; 100]).unwrap();
        frame.meta_mut().checksum = Checksum::Partial { start: 34, offset: 16 };
        let mut chain = Chain::from_iter([frame]);
        one.transmit(&mut chain, &mut drops);
        two.receive(&mut pools, 1, &mut chain, &mut drops);
        let frame = chain.pop().unwrap();
        assert_eq!(frame.meta().checksum, checksum);
        let mut expected = [0u8; 100];
        // The completed sum of zeros.
        expected[50..52].copy_from_slice(&[0xff, 0xff]);
        let flipped: u32 = frame.as_slice().iter().zip(&expected).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(flipped, 1);
        assert_eq!(frame.as_slice()[..14], expected[..14]);
    }
}

#[test]
fn conditions_change_while_frames_are_under_way() {
    let mut bench = Bench::new(1, Conditions { delay: micros(100), ..Conditions::default() });
    bench.send(1, 64);
    bench.control.change(|c| c.blackhole = true);
    bench.send(1, 64);
    bench.control.change(|c| (c.blackhole, c.mtu) = (false, Mtu::new(1000)));
    bench.send(1, 1014);
    bench.send(1, 1015);
    assert_eq!(bench.order(), [0, 2], "what had left arrives");
    let counters = bench.control.counters();
    assert_eq!((counters.dropped_loss, counters.dropped_long), (1, 1));
    assert_eq!((bench.drops.of(DropReason::WireLoss), bench.drops.of(DropReason::TooLong)), (1, 1));
}

#[test]
fn a_rate_of_zero_stops_the_wire_and_another_starts_it_again() {
    let mut bench = Bench::new(1, Conditions { rate: Some(BitRate::ZERO), ..Conditions::default() });
    bench.send(3, 1000);
    assert_eq!(bench.two.next_event(), None);
    bench.at(Instant::from_secs(1));
    assert_eq!(bench.receive(), []);
    bench.control.change(|c| c.rate = Some(BitRate::from_mbps(8)));
    // The control knows the time of the last call only: nothing was sent or received since.
    let times: Vec<_> = bench.run();
    let at = |millis: u64| Instant::from_millis(1000 + millis);
    assert_eq!(times, [(at(1), 0), (at(2), 1), (at(3), 2)]);
}

#[test]
fn a_sleeping_receiver_learns_of_frames_that_are_under_way() {
    let mut bench = Bench::new(1, Conditions { delay: micros(100), ..Conditions::default() });
    assert!(!bench.two.notify(true));
    bench.send(1, 64);
    assert!(!bench.two.notify(true), "it has not arrived");
    assert_eq!(bench.two.next_event(), Some(Instant::from_micros(100)));
    bench.at(Instant::from_micros(100));
    assert!(bench.two.notify(true));
}

fn chance() -> impl Strategy<Value = Chance> {
    prop::sample::select(vec![Chance::NEVER, Chance::percent(5.0), Chance::percent(40.0), Chance::ALWAYS])
}

prop_compose! {
    fn conditions()(
        mbps in prop::option::of(0u64..100), queue in 0u64..20_000, delay in 0u64..500, jitter in 0u64..200,
        loss in chance(), duplicate in chance(), corrupt in chance(), later in 0u32..4, reorder in chance(),
        mtu in prop::option::of(576u16..1500), flight in 3_000u64..200_000, blackhole in prop::bool::weighted(0.1),
    ) -> Conditions {
        Conditions {
            rate: mbps.map(BitRate::from_mbps),
            queue: Bytes(queue),
            flight: Bytes(flight),
            delay: micros(delay),
            jitter: micros(jitter),
            loss: Loss::Random(loss),
            mark: Mark::None,
            reorder: Reorder::Positions { chance: reorder, later, at_most: micros(300) },
            duplicate,
            corrupt,
            corruption: Corruption::Shows,
            mtu: mtu.and_then(Mtu::new),
            blackhole,
        }
    }
}

/// What happens: frames are sent, time passes, or conditions change.
#[derive(Clone, Debug)]
enum Step {
    Send(u32, usize),
    Wait(u64),
    Change(Box<Conditions>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1u32..20, 64usize..1500).prop_map(|(frames, len)| Step::Send(frames, len)),
        3 => (0u64..2000).prop_map(Step::Wait),
        1 => conditions().prop_map(|c| Step::Change(Box::new(c))),
    ];
    prop::collection::vec(step, 1..40)
}

/// Runs the steps; returns all arrivals.
fn play(bench: &mut Bench, steps: &[Step]) -> Vec<(Instant, u32)> {
    let mut arrivals = Vec::new();
    for step in steps {
        match step {
            Step::Send(frames, len) => bench.send(*frames, *len),
            Step::Wait(time) => bench.at(bench.now + micros(*time)),
            Step::Change(conditions) => bench.control.set((**conditions).clone()),
        }
        let now = bench.now;
        arrivals.extend(bench.receive().into_iter().map(|n| (now, n)));
        let c = bench.control.counters();
        assert_eq!(c.sent + c.duplicated, c.delivered + c.lost() + c.queued);
        assert_eq!(bench.drops.total(), c.lost());
        assert_eq!((c.sent, c.delivered), (u64::from(bench.sent), arrivals.len() as u64));
    }
    arrivals
}

/// RFC 3168 §5: what finds a queue is marked, but only if its transport takes part; checksums stay right.
#[test]
fn a_queue_marks_capable_packets() {
    use firelane_wire::{Ecn, EtherType, EthernetRepr, IpProtocol, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View};
    let frame = |v6: bool, ecn: Ecn| {
        let mut bytes = vec![0; 14 + 40 + 100];
        let ethertype = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        EthernetRepr { dst: MacAddr([2; 6]), src: MacAddr([4; 6]), ethertype }.emit(&mut bytes);
        if v6 {
            let (src, dst) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
            let mut header = Ipv6Repr::new(src, dst, IpProtocol::UDP, 100);
            header.ecn = ecn;
            header.emit(&mut bytes[14..]);
        } else {
            let mut header = Ipv4Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::UDP, 120);
            header.ecn = ecn;
            header.emit(&mut bytes[14..]);
        }
        bytes
    };
    for v6 in [false, true] {
        let rate = Some(BitRate::from_mbps(1));
        let conditions = Conditions { rate, mark: Mark::Above(Bytes(300)), ..Conditions::default() };
        let mut bench = Bench::new(1, conditions);
        let kinds = [Ecn::Capable0, Ecn::Capable0, Ecn::Capable0, Ecn::NotCapable, Ecn::Capable1];
        let mut chain: Chain =
            kinds.iter().map(|&ecn| bench.pools.copy_of(&frame(v6, ecn)).expect("a free slot")).collect();
        bench.one.transmit(&mut chain, &mut bench.drops);
        bench.at(Instant::from_secs(1));
        let mut out = Chain::new();
        bench.two.receive(&mut bench.pools, usize::MAX, &mut out, &mut bench.drops);
        let seen: Vec<Ecn> = out
            .iter()
            .map(|frame| {
                let packet = &frame.as_slice()[14..];
                if v6 {
                    Ipv6View::parse(packet).expect("IPv6").ecn()
                } else {
                    Ipv4View::parse(packet).expect("a right checksum").ecn()
                }
            })
            .collect();
        use Ecn::{Capable0, Congested, NotCapable};
        assert_eq!(seen, [Capable0, Capable0, Congested, NotCapable, Congested]);
        assert_eq!(bench.control.counters().marked, 2);
        bench.pools.put_all(&mut out);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_frame_is_unaccounted_for(seed: u64, start in conditions(), steps in steps()) {
        let mut bench = Bench::new(seed, start);
        let mut arrived = play(&mut bench, &steps).len() as u64;
        // A wire that stands still is set going, so that all of it drains.
        bench.control.change(|c| c.rate = None);
        arrived += bench.run().len() as u64;
        let c = bench.control.counters();
        prop_assert_eq!((c.queued, c.delivered), (0, arrived));
        prop_assert_eq!(c.sent + c.duplicated, c.delivered + c.lost());
        prop_assert_eq!(bench.pools.small.free(), 4096);
    }

    #[test]
    fn the_same_seed_gives_the_same_run(seed: u64, start in conditions(), steps in steps()) {
        let (mut one, mut two) = (Bench::new(seed, start.clone()), Bench::new(seed, start));
        prop_assert_eq!(play(&mut one, &steps), play(&mut two, &steps));
        prop_assert_eq!(one.control.counters(), two.control.counters());
    }
}

#[test]
fn another_seed_gives_another_run() {
    let run = |seed| {
        let loss = Loss::Random(Chance::percent(50.0));
        let mut bench = Bench::new(seed, Conditions { loss, ..Conditions::default() });
        bench.send(64, 64);
        bench.order()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
