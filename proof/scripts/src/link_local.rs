//! Scripts of IPv4 addresses of the link alone (`linklocal/*.msg`, RFC 3927): ARP between a netstack and the script, in
//! virtual time.
//!
//! The netstack tests, announces and defends; the chooser of `services/dhcp` says which address, as its task would ask it.
//! Addresses are called `A`, `B` and so on, in the order in which the netstack probes for them. The language is in
//! `README.md`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use firelane_dhcp::{LinkLocal, Step};
use firelane_driver_memory::End;
use firelane_frame::{Chain, Driver, Pools, PoolsConfig};
use firelane_ip::DadConfig;
use firelane_lane::{Control, Notice};
use firelane_sim::{HostConfig, Sim, StackConfig, StackId, station_mac};
use firelane_units::{DropCounters, Instant, MacAddr, Mtu};
use firelane_wire::{ArpOperation, ArpRepr, ArpView, EtherType, EthernetRepr, EthernetView};

use crate::run::Failure;
use crate::station::{NUMBER, THEIR_NUMBER};
use crate::timed::{Came, Played, play};

/// Another host of the link's, with an address that nobody else has.
const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(169, 254, 7, 7);

/// Runs a script.
pub fn run_link_local(text: &str) -> Result<(), Failure> {
    play::<Link>(text)
}

/// What the netstack said.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Said(String);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Came for Said {
    fn is_as(&self, expected: &str) -> bool {
        self.0 == expected
    }
}

struct Link {
    sim: Sim,
    stack: StackId,
    own: LinkLocal,
    end: End,
    pools: Pools,
    drops: DropCounters,
    /// `A`, `B` and so on.
    names: Vec<Ipv4Addr>,
}

impl Played for Link {
    type Came = Said;
    const TOLERANCE: Duration = Duration::from_millis(3);

    fn new(settings: &[&str]) -> Result<(Self, Instant), String> {
        if let Some(setting) = settings.first() {
            return Err(format!("`{setting}`: there are no settings"));
        }
        let mut sim = Sim::new(1);
        let host = sim.host(HostConfig::default(), Mtu::ETHERNET);
        let stack = sim.stack(host, &StackConfig { dad: DadConfig::SLOW, ..StackConfig::new(THEIR_NUMBER) });
        for ip in [stack.ip(false), stack.ip(true)] {
            sim.control(stack.host, || Control::RemoveAddress(stack.netstack, stack.vnic, ip));
        }
        let end = sim.dangle(host, Mtu::ETHERNET);
        sim.settle();
        sim.notices();
        let start = sim.now();
        let pools = Pools::new(PoolsConfig { small_slots: 64, large_slots: 4 });
        let own = LinkLocal::new(station_mac(THEIR_NUMBER));
        let drops = DropCounters::default();
        let mut link = Self { sim, stack, own, end, pools, drops, names: Vec::new() };
        // What it has said about the addresses that it began with.
        link.advance(start)?;
        Ok((link, start))
    }

    fn next_deadline(&self) -> Option<Instant> {
        [self.sim.next_deadline(), self.own.poll_at()].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Instant) -> Result<Vec<Said>, String> {
        let mut said = Vec::new();
        loop {
            self.sim.run_until(now, |_| false);
            let before = said.len();
            self.receive(now, &mut said)?;
            for notice in self.sim.notices() {
                self.note(now, &notice);
            }
            let steps: Vec<Step> = std::iter::from_fn(|| self.own.poll(now)).collect();
            for step in &steps {
                let Self { sim, stack: StackId { host, netstack, vnic, .. }, .. } = self;
                match *step {
                    Step::Try(prefix) => sim.control(*host, || Control::AddAddress(*netstack, *vnic, prefix)),
                    Step::Drop(prefix) => {
                        sim.control(*host, || Control::RemoveAddress(*netstack, *vnic, prefix.addr()));
                    }
                }
            }
            if steps.is_empty() && said.len() == before && self.sim.next_deadline().is_none_or(|at| at > now)
            {
                return Ok(said);
            }
        }
    }

    fn hear(&mut self, now: Instant, words: &str) -> Result<(), String> {
        let Some((kind, name)) = words.split_once(' ') else {
            return Err(format!("`{words}` is no message"));
        };
        let addr = self.named(name)?;
        let (operation, sender_ip, target_ip) = match kind {
            "probe" => (ArpOperation::Request, Ipv4Addr::UNSPECIFIED, addr),
            "announce" => (ArpOperation::Request, addr, addr),
            "ask" => (ArpOperation::Request, NEIGHBOUR, addr),
            "reply" => (ArpOperation::Reply, addr, Ipv4Addr::UNSPECIFIED),
            _ => return Err(format!("`{kind}` is no message")),
        };
        let mac = station_mac(NUMBER);
        let arp = ArpRepr { operation, sender_mac: mac, sender_ip, target_mac: MacAddr::ZERO, target_ip };
        let mut bytes = vec![0; 14 + arp.emitted_len()];
        EthernetRepr { dst: MacAddr::BROADCAST, src: mac, ethertype: EtherType::ARP }.emit(&mut bytes);
        arp.emit(&mut bytes[14..]);
        let mut chain = Chain::new();
        chain.push(self.pools.copy_of(&bytes).ok_or("no buffer")?);
        self.end.advance(now);
        self.end.transmit(&mut chain, &mut self.drops);
        Ok(())
    }

    fn call(&mut self, now: Instant, words: &str) -> Result<(), String> {
        match words.split_once(' ') {
            // No server answers; one has given an address.
            None if words == "alone" => self.own.set_wanted(now, true),
            None if words == "leased" => self.own.set_wanted(now, false),
            Some(("uses", name)) => {
                let wanted = if name == "none" { None } else { Some(self.named(name)?) };
                let in_use = self.own.in_use();
                if in_use != wanted {
                    return Err(format!("expected {wanted:?} in use, got {in_use:?}"));
                }
            }
            _ => return Err(format!("`{words}` is no event")),
        }
        Ok(())
    }
}

impl Link {
    fn receive(&mut self, now: Instant, said: &mut Vec<Said>) -> Result<(), String> {
        let mut chain = Chain::new();
        self.end.advance(now);
        while self.end.receive(&mut self.pools, 64, &mut chain, &mut self.drops) > 0 {}
        self.end.notify(true);
        while let Some(frame) = chain.pop() {
            let told = self.told(frame.as_slice());
            self.pools.put(frame);
            said.extend(told?);
        }
        Ok(())
    }

    /// What a frame says, if it is ARP or IPv4.
    fn told(&mut self, frame: &[u8]) -> Result<Option<Said>, String> {
        let ethernet = EthernetView::parse(frame).map_err(|_| "a frame that is none")?;
        match ethernet.ethertype() {
            EtherType::ARP => {}
            EtherType::IPV4 => return Ok(Some(Said("a packet".to_owned()))),
            _ => return Ok(None),
        }
        let arp = ArpView::parse(ethernet.payload()).map_err(|_| "ARP that is none")?;
        // §2.5: all ARP packets with such an address are broadcast.
        let to = if ethernet.dst() == MacAddr::BROADCAST { "" } else { " to one" };
        let (sender, target) = (arp.sender_ip(), arp.target_ip());
        let text = match arp.operation() {
            ArpOperation::Request if sender.is_unspecified() => format!("probe {}{to}", self.name(target)),
            ArpOperation::Request if sender == target => format!("announce {}{to}", self.name(target)),
            ArpOperation::Request => format!("ask {target}{to}"),
            _ => format!("reply {}{to}", self.name(sender)),
        };
        Ok(Some(Said(text)))
    }

    fn note(&mut self, now: Instant, notice: &Notice) {
        let (netstack, link, prefix, is_free) = match notice {
            Notice::AddressReady(netstack, link, prefix) => (netstack, link, prefix, true),
            Notice::DuplicateAddress(netstack, link, prefix, _) => (netstack, link, prefix, false),
            _ => return,
        };
        if (*netstack, *link) == (self.stack.netstack, self.stack.vnic)
            && let IpAddr::V4(addr) = prefix.addr()
        {
            self.own.on_tested(now, addr, is_free);
        }
    }

    /// What an address is called; a new one gets the next letter.
    fn name(&mut self, addr: Ipv4Addr) -> String {
        if !addr.is_link_local() {
            return addr.to_string();
        }
        let at = self.names.iter().position(|it| *it == addr).unwrap_or_else(|| {
            self.names.push(addr);
            self.names.len() - 1
        });
        char::from(b'A' + at as u8).to_string()
    }

    fn named(&self, name: &str) -> Result<Ipv4Addr, String> {
        let at = name.bytes().next().filter(|_| name.len() == 1).and_then(|it| it.checked_sub(b'A'));
        let found = at.and_then(|at| self.names.get(usize::from(at)));
        found.copied().ok_or_else(|| format!("nobody has spoken of `{name}`"))
    }
}
