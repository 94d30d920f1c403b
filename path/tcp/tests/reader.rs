//! A program that reads as it likes and changes its buffer and its clamp meanwhile, and a peer that sends anything of its
//! stream in any order, also where there is no room. No promise is taken back, each octet is read once and as it was
//! sent, and once both behave, all of it is there soon.

mod common;

use std::time::Duration;

use common::lab::{ACK, FIN, Lab, Peer, ms, plain, secs};
use common::random::{Random, each_seed};
use firelane_tcp::{State, TcpConfig, Tuning};
use firelane_units::SeqNum;
use firelane_wire::TcpOptions;

/// The number before the peer's first octet.
const IRS: SeqNum = SeqNum(u32::MAX - 100);
/// When timestamps of the peer begin, and with which value (`Lab::established_with`).
const STAMP: u32 = 500;
const STAMPED_AT: u32 = 100_000;
/// How long all of it may take in the end.
const SOON: Duration = Duration::from_secs(300);

struct Game {
    lab: Lab,
    random: Random,
    /// How long the peer's stream is, how much of it was acknowledged, and the furthest edge that was announced.
    total: u64,
    una: u64,
    edge: u64,
    /// What one step of the window field means.
    unit: u64,
    stamps: bool,
    is_fair: bool,
}

impl Game {
    fn new(mut random: Random) -> Self {
        let (stamps, sack, scales) = (random.chance(50), random.chance(60), random.chance(50));
        let config = TcpConfig { timestamps: stamps, sack: sack.into(), window_scaling: scales, ..plain() };
        let offered = TcpOptions {
            timestamps: stamps.then_some((STAMP, 0)),
            sack_permitted: sack,
            window_scale: scales.then_some(3),
            ..TcpOptions::EMPTY
        };
        let ring = random.pick(&[1, 10, 999, 1000, 1500, 3000, 10_000]) as usize;
        let mut lab = Lab::established_with(config, offered, ring);
        let info = lab.connection.info(lab.now);
        if random.chance(30) {
            lab.connection.set_tuning(Tuning::BOTH);
        }
        Self {
            lab,
            total: random.between(1, 40_000),
            una: 0,
            edge: info.receive_window.0,
            unit: 1 << info.window_scales.map_or(0, |(_, ours)| ours),
            stamps,
            is_fair: false,
            random,
        }
    }

    /// What the connection has to say reaches the peer, or some of it.
    fn send(&mut self) {
        let limits = self.lab.limits;
        while let Some(out) =
            self.lab.rings(|connection, now, rings| connection.poll_transmit(now, rings, &limits))
        {
            let ack = out.ack.map_or(0, |ack| ack.offset_from(IRS)) as u64 - 1;
            assert!(ack <= self.total + 1, "more than there is");
            let edge = ack + u64::from(out.window) * self.unit;
            // RFC 7323 §2.4: the field may hide less than one unit of the edge.
            assert!(edge + self.unit > self.edge || ack > self.total, "{edge} was {}", self.edge);
            if self.is_fair || self.random.chance(70) {
                (self.una, self.edge) = (self.una.max(ack), self.edge.max(edge));
            }
        }
    }

    /// The peer sends this piece of its stream, and perhaps its end.
    fn get(&mut self, at: u64, len: u64) {
        let end = (at + len).min(self.total);
        let mut peer = Peer::new(ACK, at as u32 + 1).text(end.saturating_sub(at) as usize);
        if end == self.total && at <= end && (self.is_fair || self.random.chance(60)) {
            peer.flags = FIN;
        }
        if self.stamps {
            let clock = self.lab.clock();
            peer = peer.stamps(STAMP + clock - STAMPED_AT, clock);
        }
        self.lab.get(peer);
    }

    fn read(&mut self, most: usize) {
        let (from, mut text) = (self.lab.reader.cursor() as u32 + 1, vec![0; most]);
        let count = self.lab.reader.read(&mut text);
        for (n, &octet) in text[..count].iter().enumerate() {
            assert_eq!(octet, (from + n as u32) as u8);
        }
        self.lab.rings(|connection, now, rings| connection.window_opened(now, rings));
        self.send();
    }

    fn wait(&mut self, span: Duration) {
        let (end, mut looks) = (self.lab.now + span, 0);
        while let Some(at) = self.lab.connection.poll_at().filter(|&at| at <= end) {
            looks += 1;
            assert!(looks < 1000, "a timer stays due");
            self.lab.now = self.lab.now.max(at);
            self.lab.rings(|connection, now, rings| connection.on_timer(now, rings));
            self.send();
        }
        self.lab.now = end;
    }

    fn set_buffer(&mut self, bytes: u64) {
        self.lab.rings(|connection, _, rings| connection.set_receive_buffer(bytes as usize, rings.recv));
    }

    fn chaos(&mut self) {
        let random = &mut self.random;
        match random.between(0, 12) {
            0..=5 => {
                let back = random.between(0, 3000);
                let anywhere = [random.between(0, self.total), self.una + random.between(0, 4000)];
                let at = random.pick(&[self.una, self.una, self.edge, self.una.saturating_sub(back)]);
                let at = if random.chance(40) { random.pick(&anywhere) } else { at };
                let len = random.pick(&[0, 1, 1, 10, 100, 1000, 3000]);
                if at <= self.total {
                    self.get(at, len);
                }
                if self.random.chance(60) {
                    self.send();
                }
            }
            6 | 7 => {
                let most = random.pick(&[1, 10, 500, 100_000]) as usize;
                self.read(most);
            }
            8 => {
                let bytes = random.pick(&[1, 500, 2304, 5000, 20_000]);
                self.set_buffer(bytes);
            }
            9 => {
                let clamp = random.chance(50).then(|| random.pick(&[1, 600, 1152, 4000]));
                self.lab.connection.set_window_clamp(clamp);
            }
            _ => {
                let span = ms(random.pick(&[0, 1, 40, 300, 1500]));
                self.wait(span);
            }
        }
    }

    /// All that there is room for, again from what was acknowledged; without room the peer asks.
    fn go_on(&mut self) {
        let before = (self.una, self.edge);
        self.read(100_000);
        for at in (self.una..self.edge.min(self.total)).step_by(1000) {
            self.get(at, (self.edge - at).min(1000));
        }
        if self.una >= self.total || self.una == self.edge {
            self.get(self.una.min(self.total), 1);
        }
        self.send();
        self.read(100_000);
        self.wait(if before == (self.una, self.edge) { secs(1) } else { ms(40) });
    }
}

fn run(seed: u64) {
    let mut game = Game::new(Random::new(seed));
    for _ in 0..game.random.between(1, 200) {
        game.chaos();
    }
    game.is_fair = true;
    game.lab.connection.set_window_clamp(None);
    let bytes = game.random.pick(&[20, 3000, 3000, 10_000]);
    game.set_buffer(bytes);
    let end = game.lab.now + SOON;
    while game.lab.state() != State::CloseWait || game.lab.reader.cursor() < game.total {
        assert!(game.lab.now < end, "not soon: {} to {} of {}", game.una, game.edge, game.total);
        game.go_on();
    }
    assert_eq!(game.lab.reader.cursor(), game.total);
}

#[test]
fn a_reader_gets_everything_in_the_end() {
    each_seed(0..1000, run);
}
