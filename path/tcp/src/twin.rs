//! Twins, for the tests of the short ways: two connections that live through the same, one by the short ways for
//! what is common, one by the long ways alone. The law is that nobody can tell them apart.

use core::time::Duration;
use std::sync::Arc;

use firelane_frame::{RingReader, RingWriter, byte_rings};
use firelane_units::{Bytes, Instant, Mss, Port, SeqNum};
use firelane_wire::{TcpRepr, TcpView};
use proptest::prelude::*;

use crate::config::{Keepalive, TcpConfig, Willing};
use crate::congestion::Algorithm;
use crate::connection::{Birth, Connection, Rings, Tuning};
use crate::isn::TimestampClock;
use crate::segment::{Disposition, SegmentIn, SegmentOut};
use crate::send::TransmitLimits;

const LIMITS: TransmitLimits = TransmitLimits { max_segment_payload: Bytes(60_000) };

/// A connection, its rings and the program's side of them.
struct End {
    tcp: Connection,
    send: RingReader,
    recv: RingWriter,
    program: (RingWriter, RingReader),
    /// Takes what is common by the short ways.
    is_short: bool,
    /// How often it did: in, and out.
    shortened: (usize, usize),
}

/// A segment on the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Packet {
    out: SegmentOut,
    text: Vec<u8>,
    bytes: Vec<u8>,
}

impl Packet {
    fn segment(&self) -> SegmentIn<'_> {
        let SegmentOut { seq, ack, flags, window, urgent, options, ecn, .. } = self.out;
        SegmentIn { seq, ack, flags, window, urgent, options, payload: &self.text, ecn }
    }
}

impl End {
    fn new(tcp: Connection, is_short: bool) -> Self {
        let (program, (recv, send)) = byte_rings(1 << 14, 1 << 14);
        Self { tcp, send, recv, program, is_short, shortened: (0, 0) }
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut Connection, &mut Rings<'_>) -> T) -> T {
        call(&mut self.tcp, &mut Rings { send: &mut self.send, recv: &mut self.recv })
    }

    fn poll(&mut self, now: Instant) -> Option<Packet> {
        let is_short = self.is_short;
        let is_quiet = self.call(|tcp, rings| tcp.is_quiet(now, rings));
        let (out, was_short) = self.call(|tcp, rings| match is_short {
            true => match tcp.poll_small(now, rings) {
                Some(out) => (Some(out), true),
                None => (tcp.poll_any(now, rings, &LIMITS), false),
            },
            false => (tcp.poll_any(now, rings, &LIMITS), false),
        });
        self.shortened.1 += usize::from(was_short);
        assert!(!is_quiet || out.is_none(), "it was quiet and has something to send: {out:?}");
        let out = out?;
        let mut text = vec![0; out.payload_len()];
        if !text.is_empty() {
            self.send.copy_at(out.payload.start, &mut text);
        }
        let SegmentOut { seq, ack, flags, window, urgent, options, .. } = out;
        let (src_port, dst_port) = (Port(1), Port(2));
        let repr = TcpRepr { src_port, dst_port, seq, ack, flags, window, urgent, options };
        let mut bytes = vec![0; repr.emitted_len()];
        repr.emit(&mut bytes);
        bytes.extend(&text);
        Some(Packet { out, text, bytes })
    }

    fn take(&mut self, now: Instant, packet: &Packet) -> Disposition {
        let is_short = self.is_short;
        let (told, was_short) = self.call(|tcp, rings| {
            let view = TcpView::parse(&packet.bytes).expect("a segment");
            match is_short.then(|| tcp.on_expected(now, &view, rings)).flatten() {
                Some(told) => {
                    let (events, dropped) = (told.events, told.dropped);
                    (Disposition { events, dropped, ..Disposition::default() }, true)
                }
                None => (tcp.on_segment(now, &packet.segment(), rings), false),
            }
        });
        self.shortened.0 += usize::from(was_short);
        told
    }

    /// Everything that can be known of it.
    fn look(&self) -> String {
        let at = (self.recv.cursor(), self.recv.ahead(), self.recv.capacity(), self.send.cursor());
        format!("{at:?} {:?}", self.tcp)
    }
}

/// What happens in one step.
#[derive(Clone, Debug)]
enum Step {
    Write(bool, usize),
    Read(bool, usize),
    /// Microseconds pass.
    Wait(u64),
    /// What is on the wire arrives, the `n`-th packet each way with this fate.
    Exchange(Vec<(Fate, Fate)>),
    Nodelay(bool),
    Cork(bool),
    Keepalive,
    Urgent,
    PathMss(u16),
    Close(bool),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Pass,
    Lose,
    Double,
    /// Held until the next exchange.
    Late,
}

fn step() -> impl Strategy<Value = Step> {
    let fate = || {
        prop_oneof![20 => Just(Fate::Pass), 1 => Just(Fate::Lose), 1 => Just(Fate::Double),
        1 => Just(Fate::Late)]
    };
    let exchange = prop_oneof![
        3 => Just(vec![]),
        1 => prop::collection::vec((fate(), fate()), 1..12),
    ];
    prop_oneof![
        12 => (any::<bool>(), 1usize..200).prop_map(|(twins, len)| Step::Write(twins, len)),
        2 => (any::<bool>(), 1usize..9_000).prop_map(|(twins, len)| Step::Write(twins, len)),
        8 => (any::<bool>(), 1usize..20_000).prop_map(|(twins, len)| Step::Read(twins, len)),
        12 => exchange.prop_map(Step::Exchange),
        6 => (1u64..60_000).prop_map(Step::Wait),
        1 => (100_000u64..3_000_000).prop_map(Step::Wait),
        1 => any::<bool>().prop_map(Step::Nodelay),
        1 => prop::bool::weighted(0.2).prop_map(Step::Cork),
        1 => prop_oneof![3 => Just(Step::Keepalive), 1 => Just(Step::Urgent),
            1 => (100u16..1_500).prop_map(Step::PathMss), 1 => any::<bool>().prop_map(Step::Close)],
    ]
}

fn config() -> impl Strategy<Value = TcpConfig> {
    let mostly = || prop::bool::weighted(0.8);
    let rarely = || prop::bool::weighted(0.1);
    let algorithm = prop_oneof![6 => Just(Algorithm::Cubic), 1 => Just(Algorithm::NewReno),
        1 => Just(Algorithm::Dctcp), 1 => Just(Algorithm::Bbr)];
    (algorithm, mostly(), mostly(), mostly(), rarely(), rarely()).prop_map(
        |(algorithm, stamps, sack, scale, pacing, ecn)| {
            let mut config = TcpConfig { timestamps: stamps, window_scaling: scale, ..TcpConfig::default() };
            config.sack = if sack { Willing::Active } else { Willing::Never };
            config.ecn = if ecn { Willing::Active } else { Willing::Never };
            config.flight.algorithm = algorithm;
            config.flight.pacing = pacing;
            config
        },
    )
}

/// The twins, whom they talk to, and what is under way.
struct World {
    now: Instant,
    twins: [End; 2],
    peer: End,
    to_twins: Vec<Packet>,
    to_peer: Vec<Packet>,
}

impl World {
    /// Connected.
    fn new(config: &TcpConfig, tuning: Tuning) -> Self {
        let (now, config) = (Instant::from_secs(100), Arc::new(config.clone()));
        let birth = |iss| Birth {
            iss: SeqNum(iss),
            clock: TimestampClock::from_offset(iss),
            mss: Mss::clamped(1460),
            peer_default: Mss::DEFAULT_V4,
        };
        let twin = |is_short| End::new(Connection::open(&config, &birth(7_000), now), is_short);
        let mut twins = [twin(true), twin(false)];
        twins.iter_mut().for_each(|twin| twin.tcp.set_tuning(tuning));
        let [syn, _] = twins.each_mut().map(|twin| twin.poll(now).expect("a SYN"));
        let answers = Connection::from_syn(&config, &birth(u32::MAX - 3_000), &syn.segment(), now);
        let (to_twins, to_peer) = (Vec::new(), Vec::new());
        let mut world = Self { now, twins, peer: End::new(answers, true), to_twins, to_peer };
        world.exchange(&[]);
        world
    }

    /// Everybody sends and hears until nobody has anything to say.
    fn exchange(&mut self, fates: &[(Fate, Fate)]) {
        let now = self.now;
        let mut fates = fates.iter().copied();
        for _ in 0..40 {
            while let Some(packet) = self.both_poll(now) {
                self.to_peer.push(packet);
            }
            while let Some(packet) = self.peer.poll(now) {
                self.to_twins.push(packet);
            }
            if self.to_peer.is_empty() && self.to_twins.is_empty() {
                return;
            }
            let (to_peer, to_twins) =
                (core::mem::take(&mut self.to_peer), core::mem::take(&mut self.to_twins));
            let mut late = (Vec::new(), Vec::new());
            let mut next = || fates.next().unwrap_or((Fate::Pass, Fate::Pass));
            for packet in to_peer {
                match next().0 {
                    Fate::Pass => self.peer_take(now, &packet),
                    Fate::Double => (0..2).for_each(|_| self.peer_take(now, &packet)),
                    Fate::Late => late.0.push(packet),
                    Fate::Lose => {}
                }
            }
            for packet in to_twins {
                match next().1 {
                    Fate::Pass => self.both_take(now, &packet),
                    Fate::Double => (0..2).for_each(|_| self.both_take(now, &packet)),
                    Fate::Late => late.1.push(packet),
                    Fate::Lose => {}
                }
            }
            (self.to_peer, self.to_twins) = late;
        }
    }

    fn compare(&self, what: &str) {
        let [short, long] = self.twins.each_ref().map(End::look);
        assert_eq!(short, long, "{what}");
    }

    fn both_poll(&mut self, now: Instant) -> Option<Packet> {
        let [short, long] = self.twins.each_mut().map(|twin| twin.poll(now));
        assert_eq!(short, long, "what is sent");
        self.compare("after sending");
        short
    }

    fn both_take(&mut self, now: Instant, packet: &Packet) {
        let [short, long] = self.twins.each_mut().map(|twin| twin.take(now, packet));
        assert_eq!(short, long, "what is said of {packet:?}");
        self.compare("after a segment");
    }

    fn peer_take(&mut self, now: Instant, packet: &Packet) {
        self.peer.take(now, packet);
    }

    fn each(&mut self, twins: bool, mut call: impl FnMut(&mut End)) {
        match twins {
            true => self.twins.iter_mut().for_each(call),
            false => call(&mut self.peer),
        }
    }

    fn take(&mut self, step: &Step) {
        let now = self.now;
        match *step {
            Step::Write(twins, len) => {
                let text: Vec<u8> = (0..len).map(|n| (n * 7 + len) as u8).collect();
                self.each(twins, |end| assert!(end.program.0.write(&text) <= len));
            }
            Step::Read(twins, len) => self.each(twins, |end| {
                end.program.1.read(&mut vec![0; len]);
                end.call(|tcp, rings| tcp.window_opened(now, rings));
            }),
            Step::Wait(micros) => {
                self.now += Duration::from_micros(micros);
                let now = self.now;
                let [short, long] =
                    self.twins.each_mut().map(|twin| twin.call(|tcp, rings| tcp.on_timer(now, rings)));
                assert_eq!(short, long, "a timer");
                self.peer.call(|tcp, rings| tcp.on_timer(now, rings));
            }
            Step::Exchange(ref fates) => self.exchange(fates),
            Step::Nodelay(on) => self.each(true, |end| end.tcp.set_nodelay(on)),
            Step::Cork(on) => self.each(true, |end| end.tcp.set_cork(on)),
            Step::Keepalive => {
                self.each(true, |end| end.tcp.set_keepalive(now, Some(Keepalive::default())));
            }
            Step::Urgent => self.each(true, |end| end.call(|tcp, rings| tcp.mark_urgent(rings))),
            Step::PathMss(mss) => self.each(true, |end| end.tcp.set_path_mss(Mss::clamped(mss))),
            Step::Close(twins) => self.each(twins, |end| {
                end.call(|tcp, rings| tcp.shutdown_send(now, rings));
            }),
        }
        self.compare("after a step");
    }
}

proptest! {
    #[test]
    fn the_short_ways_do_what_the_long_ways_do(
        config in config(),
        receive: bool,
        steps in prop::collection::vec(step(), 1..100),
    ) {
        let mut world = World::new(&config, Tuning { receive, send: true });
        for step in &steps {
            world.take(step);
        }
    }
}

#[test]
fn requests_and_answers_take_the_short_ways() {
    let mut world = World::new(&TcpConfig::default(), Tuning::BOTH);
    world.take(&Step::Nodelay(true));
    let before = world.twins[0].shortened;
    for _ in 0..10 {
        for step in [Step::Write(true, 64), Step::Exchange(vec![]), Step::Read(false, 64)] {
            world.take(&step);
        }
        for step in [Step::Write(false, 64), Step::Exchange(vec![]), Step::Read(true, 64), Step::Wait(20)] {
            world.take(&step);
        }
    }
    let after = world.twins[0].shortened;
    assert!(after.0 >= before.0 + 10 && after.1 == before.1 + 10, "{before:?} {after:?}");
    assert_eq!(world.twins[1].shortened, (0, 0));
}
