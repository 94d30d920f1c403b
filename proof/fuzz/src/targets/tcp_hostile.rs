//! One connection against a peer that sees everything and says anything.
//!
//! The peer's segments are near to what the connection expects (its numbers, one off, the edges of its window)
//! or arbitrary. The law: no panic, no endless reply, and a program that reads and writes as it likes finds
//! its calls working; what the host sends stays within the promises that `tcp_host.rs` checks.

use std::time::Duration;

use firelane_tcp::{Disposition, Keepalive};
use firelane_units::{Instant, Mss, SeqNum};
use firelane_wire::{Ecn, SackBlocks, TcpFlags, TcpOptions};

use super::tcp_host::{Host, Packet, Setup};
use crate::feedback::note;
use crate::input::Input;

const STEPS_MAX: usize = 600;

/// What the peer knows of the connection.
struct Peer {
    /// The next number that it may send, as the host last acknowledged it.
    next: SeqNum,
    /// The end of what the host has sent.
    heard: SeqNum,
    /// The host's window, unscaled.
    window: u32,
    /// The host's last timestamp.
    stamp: u32,
    /// Its own clock.
    clock: u32,
}

/// How the host is made, and then one step after the other.
pub fn target_tcp_hostile(data: &[u8]) {
    let mut input = Input::new(data);
    let opens = input.flag();
    let mut host = Host::new(Setup::of(&mut input, opens));
    host.checks_text = false;
    let mut now = Instant::from_secs(1000);
    let mut peer = Peer { next: SeqNum(input.u32()), heard: SeqNum(0), window: 1, stamp: 0, clock: 1 };
    if opens {
        host.open(now);
    }
    for _ in 0..STEPS_MAX {
        peer.listen(&mut host);
        if input.is_empty() {
            break;
        }
        step(&mut input, &mut host, &mut peer, &mut now);
    }
    // Whatever was done to it, it can still be given up.
    host.call(now, |connection, _| connection.abort(now));
    assert!(host.connection.is_none());
}

fn step(input: &mut Input<'_>, host: &mut Host, peer: &mut Peer, now: &mut Instant) {
    let choice = input.u8();
    match choice & 0x0f {
        0..=7 => {
            let packet = peer.segment(input, host.connected);
            note(("sends", packet.flags.bits(), host.connected));
            host.on_packet(*now, &packet);
        }
        8 => host.write(*now, input.amount()),
        9 => host.read(*now, input.amount()),
        10 => {
            *now += Duration::from_micros(input.amount());
            host.on_time(*now);
        }
        11 => {
            let wait = host.poll_at().map_or(Duration::ZERO, |at| at.saturating_since(*now));
            *now += wait.min(Duration::from_secs(86_400));
            host.on_time(*now);
        }
        12 => {
            let quoted = peer.heard - (input.below(4) as u32);
            let hard = input.flag();
            host.call(*now, |connection, _| connection.on_unreachable(quoted, hard));
        }
        13 => host.shutdown(*now),
        14 => set_option(input, host, *now),
        // Rare, or few scenarios would live long.
        _ if input.u8() & 15 == 0 => {
            let at = *now;
            host.shut = true;
            host.call(at, |connection, rings| connection.close(at, rings));
        }
        _ => {}
    }
}

fn set_option(input: &mut Input<'_>, host: &mut Host, now: Instant) {
    let (kind, value) = (input.below(8), input.u8());
    let span = Duration::from_millis(u64::from(value) * 40);
    host.call(now, |connection, rings| {
        match kind {
            0 => connection.set_nodelay(value & 1 == 1),
            1 => connection.set_cork(value & 1 == 1),
            2 => connection.set_path_mss(Mss::clamped(u16::from(value) * 8)),
            3 => connection.mark_urgent(rings),
            4 => connection.shrink(now, rings),
            5 => connection.set_user_timeout((value > 20).then_some(span)),
            6 => {
                let keepalive = Keepalive { idle: span, interval: span, probes: value % 4 };
                connection.set_keepalive(now, (value > 20).then_some(keepalive));
            }
            _ => connection.window_opened(now, rings),
        }
        Disposition::default()
    });
}

impl Peer {
    /// Reads what the host has said.
    fn listen(&mut self, host: &mut Host) {
        for packet in host.outbox.drain(..) {
            self.heard = packet.seq + packet.as_segment().len();
            self.window = u32::from(packet.window);
            if let Some(ack) = packet.ack {
                self.next = ack;
            }
            if let Some((value, _)) = packet.options.timestamps {
                self.stamp = value;
            }
        }
    }

    /// A segment: three bytes choose its shape, and more where the shape asks for them.
    fn segment(&mut self, input: &mut Input<'_>, connected: bool) -> Packet {
        let (shape, bits) = (input.u8(), input.u8());
        // Bytes whose low bits are zero are honest, so that short inputs get somewhere.
        let seq = match shape & 7 {
            0..=3 => self.next,
            4 => self.next - 1,
            5 => self.next + (u32::from(input.u16())),
            6 => self.next + self.window,
            _ => self.next + input.u32(),
        };
        let ack = match shape >> 3 & 7 {
            0..=3 => Some(self.heard),
            4 => Some(self.heard - u32::from(input.u16())),
            5 => Some(self.heard + 1 + u32::from(input.u8())),
            6 => Some(SeqNum(input.u32())),
            _ => None,
        };
        let flags = self.flags(shape >> 6, bits, connected, input);
        let options = self.options(bits >> 4, input);
        let text = [0, 1, 100, 536, 1460, 3000, usize::from(input.u8()), 0][usize::from(bits >> 1 & 7)];
        let window = match bits & 1 {
            0 => u16::MAX,
            _ => input.u16(),
        };
        let ecn = Ecn::from_bits(shape ^ bits);
        let flags = if ack.is_some() { flags.with(TcpFlags::ACK) } else { flags.without(TcpFlags::ACK) };
        Packet { seq, ack, flags, window, urgent: bits.into(), options, payload: vec![b'x'; text], ecn }
    }

    fn flags(&self, how: u8, bits: u8, connected: bool, input: &mut Input<'_>) -> TcpFlags {
        match how {
            0 | 1 if connected => TcpFlags::PSH,
            0 | 1 => TcpFlags::SYN,
            2 => [TcpFlags::FIN, TcpFlags::RST, TcpFlags::SYN, TcpFlags::URG][usize::from(bits & 3)],
            _ => TcpFlags::from_bits(input.u16()),
        }
    }

    fn options(&mut self, how: u8, input: &mut Input<'_>) -> TcpOptions {
        let mut options = TcpOptions::default();
        if how & 1 == 0 {
            self.clock = self.clock.wrapping_add(1);
            options.timestamps = Some((self.clock, self.stamp));
        }
        if how & 2 != 0 {
            // SACK blocks of what the host has sent, or of what it has not.
            options.sack = (0..=input.below(4))
                .map(|_| {
                    let first = self.heard - u32::from(input.u16());
                    (first, first + u32::from(input.u16()))
                })
                .collect::<SackBlocks>();
        }
        if how & 4 != 0 {
            options.mss = Some(input.u16());
            options.window_scale = Some(input.u8());
            options.sack_permitted = input.flag();
        }
        if how & 8 != 0 {
            options.timestamps = Some((input.u32(), input.u32()));
        }
        options
    }
}
