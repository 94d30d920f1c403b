//! One netstack's IP side against frames of any bytes, in any order, while time passes and it sends.
//!
//! The laws: no panic; a frame comes back, waits inside and is counted, or is gone, so no slot leaks; what is
//! sent is well formed and fits the link; one frame does not cause many.

use core::net::IpAddr;
use core::time::Duration;

use firelane_frame::{Checksum, Frame, Pools, PoolsConfig};
use firelane_ip::{DadConfig, Delivered, IfConfig, Input as Fate, Ip, IpConfig, LOOPBACK, Sent, Upper};
use firelane_udp::{ChecksumWork, encode};
use firelane_units::{Instant, LinkId, MacAddr, Mtu};
use firelane_wire::{Ecn, IpProtocol};

use super::frames::{Repair, assert_well_formed};
use crate::feedback::{note, note_form};
use crate::input::Input;

const LINK: LinkId = LinkId(2);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const MTU: u16 = 1500;
const SLOTS: PoolsConfig = PoolsConfig { small_slots: 700, large_slots: 24 };

struct Station {
    ip: Ip,
    pools: Pools,
    now: Instant,
    forwards: bool,
}

fn own() -> [IpAddr; 2] {
    [IpAddr::from([10, 0, 0, 10]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 0x10])]
}

/// A byte that chooses the station, and then steps: frames, time, datagrams to send.
pub fn target_ip(data: &[u8]) {
    let mut input = Input::new(data);
    let mut station = Station::new(input.u8());
    for _ in 0..200 {
        if input.is_empty() {
            break;
        }
        station.step(&mut input);
        station.check();
    }
    // What waits is given up in the end, and every slot is free again.
    for _ in 0..64 {
        let Some(at) = station.ip.poll_at() else { break };
        station.pass_to(at);
    }
    station.now += Duration::from_secs(600);
    station.pass_to(station.now);
    assert_eq!(station.ip.held_frames(), 0, "frames wait for ever");
    station.check();
}

impl Station {
    fn new(bits: u8) -> Self {
        let dad = if bits & 1 == 0 { DadConfig::OFF } else { DadConfig::FAST };
        let forwards = bits & 2 != 0;
        let mut ip = Ip::new(IpConfig { forwarding: forwards.into(), dad, ..IpConfig::new([bits; 16]) });
        let is_home = bits & 4 == 0;
        ip.add_interface(IfConfig { link: LINK, mac: MAC, mtu: Mtu::new(MTU).unwrap(), is_home });
        let mut station = Self { ip, pools: Pools::new(SLOTS), now: Instant::from_secs(1000), forwards };
        for address in ["10.0.0.10/24", "fd00::10/64", "fe80::10/64"] {
            station.ip.add_address(station.now, LINK, address.parse().unwrap()).unwrap();
        }
        station.ip.add_route("0.0.0.0/0".parse().unwrap(), Some([10, 0, 0, 1].into()), None).unwrap();
        station.ip.add_route("::/0".parse().unwrap(), Some("fe80::1".parse().unwrap()), Some(LINK)).unwrap();
        station.drain();
        station
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() & 7 {
            0..=4 => {
                let (len, repair) = (usize::from(input.u16() % 2048), Repair(input.u8()));
                let mut bytes = input.take(len).to_vec();
                repair.apply(&mut bytes, MAC, own());
                let Some(frame) = self.pools.copy_of(&bytes) else { return };
                self.arrive(LINK, frame);
            }
            5 => {
                let span = Duration::from_micros(input.amount() * 16);
                self.pass_to(self.now + span);
            }
            6 => self.pass_to(self.ip.poll_at().unwrap_or(self.now)),
            _ => self.send(input),
        }
        self.drain();
    }

    fn pass_to(&mut self, at: Instant) {
        self.now = self.now.max(at);
        self.ip.on_timer(self.now, &mut self.pools);
        assert!(self.ip.poll_at().is_none_or(|at| at > self.now), "a deadline stays due");
        self.drain();
    }

    fn arrive(&mut self, link: LinkId, frame: Frame) {
        match self.ip.input(self.now, link, frame, 14, &mut self.pools) {
            Fate::Deliver(delivered) => self.deliver(delivered),
            Fate::Drop(frame, reason) => {
                note(("drop", reason));
                self.pools.put(frame);
            }
            other => note(core::mem::discriminant(&other)),
        }
    }

    fn deliver(&mut self, delivered: Delivered) {
        let payload = delivered.frame.as_slice().get(delivered.payload.clone());
        assert!(payload.is_some(), "the payload lies in the frame: {:?}", delivered.payload);
        note(("deliver", delivered.protocol.0.min(60), delivered.is_broadcast_or_multicast));
        if delivered.protocol == IpProtocol::UDP {
            let (frame, at) = (&delivered.frame, delivered.payload.clone());
            let good = firelane_udp::receive(frame, delivered.src, delivered.dst, at).is_ok();
            note(("udp", good));
            if good {
                self.ip.unreachable_port(self.now, &delivered, &mut self.pools);
            }
        }
        self.pools.put(delivered.frame);
    }

    fn send(&mut self, input: &mut Input<'_>) {
        let dst = match input.u8() & 7 {
            0 => "10.0.0.1",
            1 => "10.0.0.99",
            2 => "8.8.8.8",
            3 => "fd00::1",
            4 => "ff02::1",
            5 => "10.0.0.10",
            6 => "255.255.255.255",
            _ => "2001:db8::1",
        };
        let dst = dst.parse().expect("an address");
        let is_tcp = input.u8() & 3 == 0;
        let len = (input.amount() % 5000) as usize;
        let Ok(mut egress) = self.ip.egress(self.now, None, dst) else { return note("no way") };
        let Some(mut frame) = self.pools.take(len) else { return };
        frame.append(len).fill(0x5a);
        encode(&mut frame, (egress.src, 9).into(), (dst, 9).into(), ChecksumWork::Compute)
            .expect("it is short");
        let upper = if is_tcp {
            // A segment of its own kind: what matters here is that it may not be cut.
            Upper { dont_fragment: true, ..Upper::udp() }
        } else {
            Upper { ecn: Ecn::Capable0, ..Upper::udp() }
        };
        match self.ip.send(self.now, &mut egress, frame, upper, &mut self.pools) {
            Sent::Drop(frame, reason) => {
                note(("unsent", reason));
                self.pools.put(frame);
            }
            Sent::Out => note(("out", egress.link == LOOPBACK, len > 1472)),
            Sent::Held => note("waits"),
        }
    }

    /// Takes what there is to send. Packets for this station itself come back, which may cause answers.
    fn drain(&mut self) {
        for count in 0.. {
            let Some(frame) = self.ip.poll_output() else { break };
            assert!(count < 400, "one step causes too many frames");
            if frame.meta().ingress == LOOPBACK {
                self.arrive(LOOPBACK, frame);
                continue;
            }
            assert_eq!(frame.meta().ingress, LINK);
            assert!(frame.len() <= 14 + usize::from(MTU), "{} bytes do not fit the link", frame.len());
            if !self.forwards {
                let is_open = matches!(frame.meta().checksum, Checksum::Partial { .. });
                assert_well_formed(frame.as_slice(), MAC, is_open);
            }
            self.pools.put(frame);
        }
        while let Some(event) = self.ip.poll_event() {
            note_form(event);
        }
        self.ip.take_drops().iter().for_each(|(reason, _)| note(("later", reason)));
    }

    /// Every slot is free or counted as held.
    fn check(&mut self) {
        let used = (self.pools.small.slots() - self.pools.small.free())
            + (self.pools.large.slots() - self.pools.large.free());
        assert_eq!(used, self.ip.held_frames(), "slots that nobody counts");
        assert!(self.ip.neighbours().count() <= 4096);
    }
}
