//! Two or three stations on one wire in virtual time, and frames made by hand.
//!
//! Shared by the scenario tests. A [`Station`] is an `Ip` with its pools; [`exchange`] carries frames between
//! stations until nobody has anything to say, as a hub would.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use core::net::IpAddr;

use firelane_frame::{Frame, Pools, PoolsConfig};
use firelane_ip::{
    DadConfig, Delivered, Hearsay, IfConfig, Input, Ip, IpConfig, IpEvent, LOOPBACK, Sent, Upper,
};
use firelane_units::{DropReason, Instant, LinkId, MacAddr, Mtu};

pub const LINK: LinkId = LinkId(7);
pub const ETHERNET: usize = 14;
/// A neighbour has answered another lane.
pub const ANSWER: Hearsay = Hearsay::Answer { replace: true };

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub const fn mac(last: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, last])
}

pub struct Station {
    pub ip: Ip,
    pub pools: Pools,
    pub delivered: Vec<Delivered>,
    pub drops: Vec<DropReason>,
    pub events: Vec<IpEvent>,
}

impl Station {
    /// A home lane with one interface whose addresses are usable at once.
    pub fn new(last: u8, addresses: &[&str]) -> Self {
        let mut station = Self::bare(last, DadConfig::OFF, true, 1500);
        for address in addresses {
            station.ip.add_address(Instant::ZERO, LINK, address.parse().unwrap()).unwrap();
        }
        station.ip.on_timer(Instant::ZERO, &mut station.pools);
        while station.ip.poll_output().is_some() {}
        while station.ip.poll_event().is_some() {}
        station
    }

    pub fn bare(last: u8, dad: DadConfig, is_home: bool, mtu: u16) -> Self {
        let mut ip = Ip::new(IpConfig { dad, ..IpConfig::new([last; 16]) });
        ip.add_interface(IfConfig { link: LINK, mac: mac(last), mtu: Mtu::new(mtu).unwrap(), is_home });
        Self {
            ip,
            pools: Pools::new(PoolsConfig { small_slots: 512, large_slots: 64 }),
            delivered: Vec::new(),
            drops: Vec::new(),
            events: Vec::new(),
        }
    }

    pub fn frame(&mut self, bytes: &[u8]) -> Frame {
        self.pools.copy_of(bytes).unwrap()
    }

    pub fn input(&mut self, now: Instant, link: LinkId, frame: Frame) -> &'static str {
        match self.ip.input(now, link, frame, ETHERNET, &mut self.pools) {
            Input::Deliver(delivered) => {
                self.delivered.push(delivered);
                "deliver"
            }
            Input::Consumed => "consumed",
            Input::Forwarded(_) => "forwarded",
            Input::Held => "held",
            Input::Drop(_, reason) => {
                self.drops.push(reason);
                "drop"
            }
        }
    }

    pub fn input_bytes(&mut self, now: Instant, bytes: &[u8]) -> &'static str {
        let frame = self.frame(bytes);
        self.input(now, LINK, frame)
    }

    pub fn send(&mut self, now: Instant, dst: &str, payload: &[u8], upper: Upper) -> Sent {
        let mut egress = self.ip.egress(now, None, ip(dst)).unwrap();
        let frame = self.frame(payload);
        self.ip.send(now, &mut egress, frame, upper, &mut self.pools)
    }

    /// Frames for the wire; those for oneself are taken in.
    pub fn outputs(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(frame) = self.ip.poll_output() {
            if frame.meta().ingress == LOOPBACK {
                self.input(now, LOOPBACK, frame);
            } else {
                out.push(frame.as_slice().to_vec());
            }
        }
        while let Some(event) = self.ip.poll_event() {
            self.events.push(event);
        }
        out
    }
}

/// Carries frames until nobody has any; says all that was on the wire.
pub fn exchange(now: Instant, stations: &mut [&mut Station]) -> Vec<Vec<u8>> {
    let mut wire = Vec::new();
    loop {
        let mut any = false;
        for from in 0..stations.len() {
            for bytes in stations[from].outputs(now) {
                any = true;
                for to in (0..stations.len()).filter(|&to| to != from) {
                    let dst = MacAddr(bytes[..6].try_into().unwrap());
                    let own = stations[to].ip.interfaces().next().unwrap().mac;
                    if dst == own || dst.is_multicast() {
                        stations[to].input_bytes(now, &bytes);
                    }
                }
                wire.push(bytes);
            }
        }
        if !any {
            return wire;
        }
    }
}
