//! A peer that does what the standards let it do and nobody likes: it takes its window back, throws away what it has
//! reported, loses what it is sent and what it sends. When it behaves again, everything arrives soon.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::lab::{ACK, Lab, Peer, ms, plain, secs};
use common::random::{Random, each_seed};
use firelane_tcp::congestion::Algorithm;
use firelane_tcp::flight::FlightConfig;
use firelane_tcp::rtt::RtoLimits;
use firelane_tcp::{State, TcpConfig};
use firelane_units::{BitRate, Bytes, Instant, Mss, SeqNum};
use firelane_wire::{TcpFlags, TcpOptions};

/// The number before our first octet.
const ISS: SeqNum = SeqNum(u32::MAX - 500);
/// How long after the last fault the last octet may arrive: three of the longest time-outs, and a second for the text.
const SOON: Duration = Duration::from_secs(7);
/// The same with BBR, which learns in some rounds what the path carries.
const SOON_LEARNT: Duration = Duration::from_secs(30);

enum Event {
    ToPeer { at: u64, len: u64, stamp: u32 },
    ToUs(Peer),
}

struct Game {
    lab: Lab,
    random: Random,
    events: BTreeMap<(Instant, u64), Event>,
    count: u64,
    /// What the peer has of our stream, the FIN last.
    has: Vec<bool>,
    next: u64,
    edge: u64,
    echo: u32,
    left: u64,
    sack: bool,
    stamps: bool,
    loss: u64,
    is_fair: bool,
    may_send_at: Instant,
}

impl Game {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (sack, stamps) = (random.chance(60), random.chance(50));
        let flight = FlightConfig {
            algorithm: random.pick(&[Algorithm::Cubic, Algorithm::Cubic, Algorithm::NewReno, Algorithm::Bbr]),
            pacing: random.chance(20),
            slow_start_after_idle: random.chance(30),
            rto: RtoLimits::new(secs(1), ms(200), secs(2)),
            ..FlightConfig::default()
        };
        let config = TcpConfig {
            timestamps: stamps,
            sack: sack.into(),
            abort_timeout: secs(24 * 3600),
            flight,
            ..plain()
        };
        let offered =
            TcpOptions { timestamps: stamps.then_some((500, 0)), sack_permitted: sack, ..TcpOptions::EMPTY };
        let mut lab = Lab::established_with(config, offered, 10_000);
        lab.limits.max_segment_payload = Bytes(random.pick(&[1, 3000, 65_535]));
        lab.connection.set_nodelay(random.chance(50));
        let left = random.between(1, 80_000);
        let loss = random.pick(&[0, 5, 20, 50]);
        let may_send_at = lab.now;
        Self {
            lab,
            random,
            events: BTreeMap::new(),
            count: 0,
            has: vec![false; left as usize + 1],
            next: 0,
            edge: 10_000,
            echo: 0,
            left,
            sack,
            stamps,
            loss,
            is_fair: false,
            may_send_at,
        }
    }

    fn later(&mut self, event: Event) {
        if !self.is_fair && self.random.chance(self.loss) {
            return;
        }
        self.count += 1;
        let jitter = if self.is_fair { 0 } else { self.random.pick(&[0, 0, 0, 3, 30]) };
        let at = self.lab.now + ms(10 + jitter);
        self.events.insert((at, self.count), event);
    }

    fn send(&mut self) {
        if self.lab.now < self.may_send_at {
            self.lab.rings(|connection, now, rings| connection.hold(now, rings));
            return;
        }
        let (limits, mut count) = (self.lab.limits, 0);
        while let Some(out) =
            self.lab.rings(|connection, now, rings| connection.poll_transmit(now, rings, &limits))
        {
            count += 1;
            assert!(count < 2000, "a flood");
            let is_fin = u64::from(out.flags.contains(TcpFlags::FIN));
            let at = (i64::from(out.seq.offset_from(ISS)) - 1) as u64;
            let stamp = out.options.timestamps.map_or(0, |(value, _)| value);
            let piece = u64::from(out.segment_bytes.max(1));
            let len = out.payload_len() as u64 + is_fin;
            let mut from = 0;
            loop {
                let upto = if from + piece + is_fin >= len { len } else { from + piece };
                self.later(Event::ToPeer { at: at.wrapping_add(from), len: upto - from, stamp });
                from = upto;
                if from >= len {
                    break;
                }
            }
        }
    }

    /// A segment reaches the peer.
    fn take(&mut self, at: u64, len: u64, stamp: u32) {
        let answers = len > 0 || at != self.next;
        if at <= self.next && len > 0 {
            self.echo = stamp;
        }
        for octet in at..at.saturating_add(len) {
            // The FIN needs room, too.
            if octet >= self.next && octet < self.edge {
                self.has[octet as usize] = true;
            }
        }
        while self.has.get(self.next as usize) == Some(&true) {
            self.next += 1;
        }
        if answers && (self.is_fair || self.random.chance(80)) {
            self.answer();
        }
    }

    fn blocks(&self) -> Vec<(u32, u32)> {
        let (mut blocks, mut from) = (Vec::new(), None);
        for (n, &has) in self.has.iter().enumerate().skip(self.next as usize) {
            match (has, from) {
                (true, None) => from = Some(n as u32),
                (false, Some(start)) => {
                    blocks.push((start + 1, n as u32 + 1));
                    from = None;
                }
                _ => {}
            }
        }
        if let Some(start) = from {
            blocks.push((start + 1, self.has.len() as u32 + 1));
        }
        blocks.truncate(3);
        blocks
    }

    fn answer(&mut self) {
        if !self.is_fair && self.random.chance(5) {
            // RFC 2018 §8.
            let next = self.next as usize;
            self.has[next..].fill(false);
        }
        let most =
            if self.is_fair { 10_000 } else { self.random.pick(&[0, 1, 10, 400, 999, 1000, 3000, 10_000]) };
        self.edge = self.next + most;
        let mut peer = Peer::new(ACK, 1).acks(self.next as u32 + 1).win(most as u16);
        if self.sack {
            peer = peer.sacks(&self.blocks());
        }
        if self.stamps {
            peer = peer.stamps(self.lab.clock(), self.echo);
        }
        self.later(Event::ToUs(peer));
    }

    fn chaos(&mut self) {
        let random = &mut self.random;
        match random.between(0, 40) {
            0..=9 => self.write(),
            10 => self.lab.connection.set_path_mss(Mss::clamped(random.pick(&[100, 500, 900, 1000]))),
            11 => self.lab.connection.set_cork(random.chance(50)),
            12 => self.may_send_at = self.lab.now + ms(random.pick(&[1, 50, 2000])),
            13 => {
                let limit = random.chance(50).then(|| BitRate::from_bps(random.pick(&[50_000, 1_000_000])));
                self.lab.connection.set_pacing_limit(self.lab.now, limit);
            }
            14..=16 => self.answer(),
            17 => {
                let algorithm = random.pick(&Algorithm::ALL);
                self.lab.connection.set_algorithm(self.lab.now, algorithm);
            }
            _ => {}
        }
    }

    fn write(&mut self) {
        let len = self.random.between(1, 5000).min(self.left);
        self.left -= len;
        if len > 0 {
            self.lab.write(len as usize);
        }
    }

    fn behave(&mut self) {
        self.is_fair = true;
        self.may_send_at = self.lab.now;
        self.lab.connection.set_cork(false);
        self.lab.connection.set_pacing_limit(self.lab.now, None);
        self.lab.write(self.left as usize);
        self.left = 0;
        self.lab.shutdown();
        self.answer();
    }

    /// The next thing happens.
    fn step(&mut self, end: Instant) {
        let timer = self.lab.connection.poll_at();
        let held = (self.may_send_at > self.lab.now).then_some(self.may_send_at);
        let event = self.events.keys().next().map(|key| key.0);
        let at = [timer, held, event, Some(end)].into_iter().flatten().min().expect("there is an end");
        self.lab.now = self.lab.now.max(at);
        let told = self.lab.rings(|connection, now, rings| connection.on_timer(now, rings));
        assert_eq!(told.closed, None);
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= self.lab.now) {
            match entry.remove() {
                Event::ToPeer { at, len, stamp } => self.take(at, len, stamp),
                Event::ToUs(peer) => {
                    self.lab.get(peer);
                }
            }
        }
        self.send();
    }
}

fn run(seed: u64) {
    let mut game = Game::new(seed);
    game.write();
    let end = game.lab.now + secs(game.random.between(1, 40));
    let mut steps = 0;
    while game.lab.now < end {
        game.chaos();
        game.send();
        let until = end.min(game.lab.now + ms(game.random.pick(&[1, 20, 300])));
        game.step(until);
        steps += 1;
        assert!(steps < 100_000, "a timer stays due");
    }
    game.behave();
    game.send();
    let is_bbr = game.lab.connection.info(game.lab.now).congestion == Algorithm::Bbr;
    let end = game.lab.now + if is_bbr { SOON_LEARNT } else { SOON };
    while game.lab.state() != State::FinWait2 {
        assert!(
            game.lab.now < end,
            "not soon: {} of {} {:#?}",
            game.next,
            game.has.len(),
            game.lab.connection
        );
        game.step(end);
        steps += 1;
        assert!(steps < 200_000, "a timer stays due");
    }
    let info = game.lab.connection.info(game.lab.now);
    assert_eq!((info.in_flight, info.lost, info.sacked, info.repeated), Default::default());
}

#[test]
fn a_stubborn_peer_gets_everything_in_the_end() {
    each_seed(0..700, run);
}
