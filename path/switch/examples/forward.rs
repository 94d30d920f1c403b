//! How long the link side takes per frame: ring -> classify -> flow -> switch -> flow -> ring, one lane.
//!
//! `cargo run --release -p firelane-switch --example forward [FLOWS] [VNICS]` prints nanoseconds per 64-byte frame,
//! station by station and as a whole. Frames go round, so that the pool and the rings are part of the figure.

use std::hint::black_box;
use std::time::Instant as Clock;

use firelane_classify::{FlowMatch, FlowRules, Headers};
use firelane_flow::{FlowConfig, FlowTable, Verdict};
use firelane_frame::{Chain, Frame, Pools, PoolsConfig, frame_ring};
use firelane_switch::{Destination, GroupFilter, L2, PortConfig, Role, Switch};
use firelane_units::{
    BitRate, Direction, DropCounters, FlowId, Instant, MacAddr, Port, Priority, SwitchPortId,
};
use firelane_wire::IpProtocol;

const CHAIN: usize = 256;
/// Chains per sample, and samples; the best tenth counts, because a shared machine is often interrupted.
const ROUNDS: usize = 100;
const SAMPLES: usize = 400;

/// One lane's link side, with `vnics` VNICs of which each has `flows` flow rules.
struct Lane {
    switch: Switch,
    flows: FlowTable,
    /// Each VNIC's rules and the flow of what no rule matches, by switch port.
    vnics: Vec<(FlowRules, FlowId)>,
    pools: Pools,
    drops: DropCounters,
}

fn mac(n: u32) -> MacAddr {
    let [_, a, b, c] = n.to_be_bytes();
    MacAddr([2, 8, 0x20, a, b, c])
}

impl Lane {
    fn new(flows_per_vnic: u32, vnics: u32) -> Self {
        let (mut switch, mut flows) = (Switch::new(), FlowTable::new());
        let mut id = 0;
        let mut mint = |flows: &mut FlowTable, parent| {
            let flow = FlowId(id);
            id += 1;
            let config = FlowConfig { parent, maxbw: None, priority: Priority::Medium };
            flows.insert(Instant::ZERO, flow, config).expect("identifiers are minted in order");
            flow
        };
        let vnics = (0..vnics).map(|n| {
            let role = Role::Station { vlan: None };
            let config = PortConfig { role, addresses: vec![mac(n)], groups: GroupFilter::All };
            switch.add_port(SwitchPortId(n), config).expect("addresses differ");
            let vnic = mint(&mut flows, None);
            let mut rules = FlowRules::new();
            for port in 0..flows_per_vnic {
                let rule = FlowMatch {
                    transport: Some(IpProtocol::UDP),
                    local_port: Some(Port(port as u16).into()),
                    ..FlowMatch::default()
                };
                rules.insert(&rule, mint(&mut flows, Some(vnic))).expect("ports differ");
            }
            (rules, vnic)
        });
        let vnics = vnics.collect();
        let pools = Pools::new(PoolsConfig { small_slots: 2 * CHAIN as u32, large_slots: 0 });
        Self { switch, flows, vnics, pools, drops: DropCounters::default() }
    }

    fn flow_of(&self, port: SwitchPortId, headers: &Headers, direction: Direction) -> FlowId {
        let (rules, default) = &self.vnics[port.index()];
        rules.lookup(headers, direction).unwrap_or(*default)
    }

    /// What a lane does with a chain of one port's frames; the first drop ends up in the counters.
    fn turn(&mut self, now: Instant, ingress: SwitchPortId, chain: &mut Chain, out: &mut Chain) {
        let mut headers = Headers::EMPTY;
        while let Some(frame) = chain.pop() {
            match headers.read(frame.as_slice()) {
                Ok(()) => self.forward(now, ingress, &headers, frame, out),
                Err(reason) => {
                    self.drops.count(reason);
                    self.pools.put(frame);
                }
            }
        }
    }

    #[inline]
    fn pass(&mut self, now: Instant, flow: FlowId, direction: Direction, frame: Frame) -> Option<Frame> {
        if self.flows.pass_unlimited(flow, direction, frame.weight()) {
            return Some(frame);
        }
        match self.flows.admit(now, flow, direction, frame) {
            Verdict::Pass(frame) => Some(frame),
            Verdict::Held | Verdict::Drop(..) => None,
        }
    }

    #[inline]
    fn forward(
        &mut self,
        now: Instant,
        ingress: SwitchPortId,
        headers: &Headers,
        frame: Frame,
        out: &mut Chain,
    ) {
        let flow = self.flow_of(ingress, headers, Direction::Out);
        let Some(frame) = self.pass(now, flow, Direction::Out, frame) else { return };
        let l2 = L2 { dst: headers.dst, src: headers.src, vlan: headers.vlan, tagged: headers.tagged };
        let Destination::Port(to) = self.switch.forward(now, ingress, &l2, &frame) else { return };
        let flow = self.flow_of(to, headers, Direction::In);
        let Some(mut frame) = self.pass(now, flow, Direction::In, frame) else { return };
        if self.switch.deliver(ingress, to, &l2, &mut frame) {
            out.push(frame);
        }
    }
}

/// A UDP datagram of 64 bytes with its Ethernet header.
fn frame(pools: &mut Pools, dst: u32, port: u16) -> Frame {
    let mut bytes = [mac(dst).0, mac(0).0].concat();
    bytes.extend_from_slice(&[8, 0, 0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend_from_slice(&[0x9c, 0x40]);
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&[0, 30, 0, 0]);
    bytes.resize(64, 0);
    pools.copy_of(&bytes).expect("the pool holds two chains")
}

fn measure(what: &str, mut round: impl FnMut(Instant)) {
    let mut samples: Vec<f64> = (0..SAMPLES)
        .map(|sample| {
            let start = Clock::now();
            (0..ROUNDS).for_each(|n| round(Instant::from_micros((1000 + sample * ROUNDS + n) as u64)));
            start.elapsed().as_nanos() as f64 / (ROUNDS * CHAIN) as f64
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    let nanos = samples[SAMPLES / 10];
    println!("{what:<26} {nanos:>6.1} ns/frame {:>7.2} Mpps", 1000.0 / nanos);
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let (flows, vnics) = (numbers.next().unwrap_or(8), numbers.next().unwrap_or(4).max(2));
    println!("{flows} flows on each of {vnics} VNICs, chains of {CHAIN}");
    let mut lane = Lane::new(flows, vnics);
    let frames = |n: u32| (1 + n % (vnics - 1), (n * 7 % (flows + 1)) as u16);
    let mut chain: Chain = (0..CHAIN as u32)
        .map(|n| {
            let (dst, port) = frames(n);
            frame(&mut lane.pools, dst, port)
        })
        .collect();
    let (mut to_lane, mut in_ring) = frame_ring(2 * CHAIN);
    let (mut out_ring, mut from_lane) = frame_ring(2 * CHAIN);
    measure("ring", |_| {
        to_lane.push_chain(&mut chain);
        in_ring.pop_into(&mut chain, CHAIN);
    });
    measure("classify: headers", |_| {
        let mut headers = Headers::EMPTY;
        for frame in chain.iter() {
            headers.read(black_box(frame.as_slice())).expect("the frames are good");
            black_box(&headers);
        }
    });
    let parsed: Vec<_> = chain.iter().map(|f| Headers::parse(f.as_slice()).expect("good")).collect();
    measure("classify: rules", |_| {
        for headers in &parsed {
            black_box(lane.flow_of(SwitchPortId(1), black_box(headers), Direction::In));
        }
    });
    let (mut out, ingress) = (Chain::with_capacity(CHAIN), SwitchPortId(0));
    measure("classify + flow + switch", |now| {
        lane.turn(now, ingress, &mut chain, &mut out);
        chain.append(&mut out);
    });
    // A limit that is never reached, on every VNIC: each frame is charged twice.
    let (vnics, terabit) = (lane.vnics.clone(), BitRate::from_mbps(1_000_000));
    let limit = |lane: &mut Lane, maxbw| {
        for (_, flow) in &vnics {
            lane.flows.set_maxbw(Instant::ZERO, *flow, maxbw).expect("the VNICs have flows");
        }
    };
    limit(&mut lane, Some(terabit));
    measure("the same, limited", |now| {
        lane.turn(now, ingress, &mut chain, &mut out);
        chain.append(&mut out);
    });
    limit(&mut lane, None);
    let mut work = Chain::with_capacity(CHAIN);
    measure("ring to ring", |now| {
        to_lane.push_chain(&mut chain);
        in_ring.pop_into(&mut work, CHAIN);
        lane.turn(now, ingress, &mut work, &mut out);
        out_ring.push_chain(&mut out);
        from_lane.pop_into(&mut chain, CHAIN);
    });
    assert_eq!((chain.len(), lane.drops.total()), (CHAIN, 0), "every frame came round");
}
