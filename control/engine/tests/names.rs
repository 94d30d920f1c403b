//! A program that depends on the crate `firelane` alone: each type of a public signature or field has a name there. So this file uses no
//! other crate of the repository; what a signature takes that has no name does not compile here.

use std::any::type_name;
use std::collections::BTreeMap;
use std::time::Duration;

use firelane::counters::{
    Arrivals, BusyTimes, ConnectionCounts, GuardCounters, IpCounts, LaneCounters, SqueueStats, SynCounters,
    TableMemory, TcpCounters, Troubles, UdpCounters,
};
use firelane::device::{AfXdpProbe, AfXdpSpreader, MemifConfigError, Selector, Spread, Spreader};
use firelane::frame::{
    Arrival, Capabilities, Chain, Checksum, ExtentUsage, FlowTag, Frame, FrameMeta, Pool, PoolConfig,
    PoolUsage, Pools, PoolsConfig, SegmentKind, Segmentation, Weight,
};
use firelane::headers::{
    EtherType, FastOpen, Fragment, OptionLayout, Piece, QuoteError, Quoted, Rank, RouterPreference,
    SackBlocks, SteeringKey, TcpError, TcpFlags, TcpOptions, TcpView, Tuple,
};
use firelane::ip::{AddressState, LinkParameters, NeighbourState, Refused};
use firelane::session::{Answer, Place, Request, SocketId};
use firelane::tcp::{Event, FlightConfig, Info, Phase, State, Surroundings};
use firelane::units::{
    BitRate, Bytes, Direction, DropCounters, DsField, Family, FilterAction, FilterRule, FlowId, Instant,
    IpPrefix, LaneId, LinkId, MacAddr, Mss, Mtu, NetstackId, Port, PortRange, Priority, Protections, SeqNum,
    VlanId,
};
use firelane::{
    Chance, Conditions, Corruption, Driver, Engine, EngineConfig, EngineMemory, EngineSnapshot, FlowMatch,
    GilbertElliott, IpProtocol, Loss, Mark, NetstackConfig, Notice, Queue, RouteConfig, Stack, StreamInfo,
    TcpConfig, TcpListener, TcpStream, Traffic, UdpSocket, VnicConfig, VnicUser, WireConfig, WireControl,
    WireEnd, WireEndCounters, wire,
};

/// What a program keeps of what it is given.
struct Kept {
    engine: Engine,
    netstack: NetstackId,
    link: LinkId,
    vnic: LinkId,
    flow: FlowId,
    far: WireEnd,
    control: Option<WireControl>,
}

fn kept() -> Kept {
    let pools = PoolsConfig { small_slots: 512, large_slots: 16 };
    let engine = Engine::start(&EngineConfig { pools, ..EngineConfig::default() }).unwrap();
    let never = Chance::NEVER;
    let bursts = GilbertElliott { worsen: never, recover: never, loss_good: never, loss_bad: never };
    let slow = Conditions {
        loss: Loss::Burst(bursts),
        mark: Mark::None,
        corruption: Corruption::Shows,
        ..Conditions::default()
    };
    let (near, far): (WireEnd, WireEnd) =
        wire(WireConfig { forth: slow.clone(), back: slow, ..WireConfig::default() });
    let control: Option<WireControl> = near.control();
    let (mtu, mac): (Mtu, MacAddr) = (Mtu::ETHERNET, "02:08:20:00:00:01".parse().unwrap());
    let link: LinkId = engine.add_link(mtu).unwrap();
    let _uplink: LinkId = engine.add_uplink(link, vec![Queue::from(near)]).unwrap();
    let netstack: NetstackId = engine.add_netstack(TcpConfig::default()).unwrap();
    let vlan: Option<VlanId> = None;
    let config = VnicConfig { vlan, priority: Priority::High, ..VnicConfig::new(mac) };
    let vnic = engine.add_vnic(link, &config, VnicUser::Netstack(netstack)).unwrap();
    let rule = FlowMatch { transport: Some(IpProtocol::TCP), ..FlowMatch::default() };
    let flow: FlowId = engine.add_flow(vnic, rule, None, Priority::Medium).unwrap();
    Kept { engine, netstack, link, vnic, flow, far, control }
}

#[test]
fn what_a_signature_takes_can_be_made() {
    let Kept { engine, netstack, link, vnic, flow, far, control } = kept();
    let (rate, address): (BitRate, IpPrefix) = (BitRate::from_mbps(10), "10.0.0.1/24".parse().unwrap());
    engine.set_link_maxbw(vnic, Some(rate)).unwrap();
    engine.set_flow_maxbw(flow, Some(rate)).unwrap();
    engine.set_link_priority(link, Priority::Low).unwrap();
    engine.add_address(vnic, address).unwrap();
    engine
        .add_route(netstack, RouteConfig::via("0.0.0.0/0".parse().unwrap(), "10.0.0.2".parse().unwrap()))
        .unwrap();
    let rule: FilterRule<LinkId> = FilterRule::new(Direction::In, FilterAction::Pass);
    let stack: Stack = engine.stack(netstack).unwrap();
    let listener = TcpListener::bind(&stack, "10.0.0.1:7").unwrap();
    listener.set_filter(vec![rule], Vec::new()).unwrap();
    let stream = TcpStream::connect(&stack, "10.0.0.1:7").unwrap();
    stream.set_max_pacing_rate(Some(rate)).unwrap();
    let socket = UdpSocket::bind_on(&stack, "10.0.0.1:9".parse().unwrap(), vnic).unwrap();
    socket.join_multicast("224.0.1.1".parse().unwrap(), Some(vnic)).unwrap();
    control.unwrap().set(Conditions::default());
    let counted: WireEndCounters = far.counters();
    assert!(counted.frames_in <= counted.frames_out + 1);
    let _: Vec<(LaneId, Notice)> = engine.notices();
    let _: (Instant, NetstackConfig) =
        (engine.now(), engine.stack(netstack).map(|_| NetstackConfig::default()).unwrap());
}

#[test]
fn what_is_told_can_be_kept() {
    let Kept { engine, netstack, flow, .. } = kept();
    let snapshot: EngineSnapshot = engine.snapshot();
    let _: Option<&[Traffic; 2]> = snapshot.flows.get(&flow);
    let _: &BTreeMap<LinkId, GuardCounters> = &snapshot.guards;
    let _: (LaneCounters, SynCounters) = (snapshot.counters, snapshot.syn);
    let _: Option<(SqueueStats, TableMemory)> = snapshot.lanes.first().map(|it| (it.squeue, it.memory));
    let memory: EngineMemory = engine.memory();
    let _: (Vec<ExtentUsage>, Option<TableMemory>) = (memory.rings, memory.lanes.first().map(|it| it.tables));
    let counted = engine.netstack_counters(netstack).unwrap();
    let _: (TcpCounters, UdpCounters, IpCounts) = (counted.tcp, counted.udp, counted.ip);
    let info = |stream: &TcpStream| -> (StreamInfo, Info) {
        let info = stream.info().unwrap();
        (info, info.tcp)
    };
    let _ = info;
}

/// Sends and receives frames as the other end of a netstack's wire.
#[test]
fn a_program_holds_the_end_of_a_wire() {
    let (near, mut far) = wire(WireConfig::default());
    let _stack = Stack::builder().interface(near).address("10.0.0.1/24").unwrap().build().unwrap();
    let mut pools = Pools::new(PoolsConfig { small_slots: 64, large_slots: 4 });
    let (mut chain, mut drops) = (Chain::default(), DropCounters::default());
    // Who has 10.0.0.1?
    let mut asks = vec![0xff; 6];
    asks.extend([2, 0, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2]);
    asks.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
    let frame: Frame = pools.copy_of(&asks).unwrap();
    chain.push(frame);
    far.transmit(&mut chain, &mut drops);
    let answers = (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        far.receive(&mut pools, 16, &mut chain, &mut drops);
        chain.drain().any(|frame| frame.as_slice().get(20..22) == Some(&[0, 2]))
    });
    assert!(answers, "the netstack says so");
}

#[test]
fn every_type_has_a_name() {
    let names = [
        type_name::<(Arrivals, BusyTimes, ConnectionCounts, Troubles)>(),
        type_name::<(AfXdpProbe, AfXdpSpreader, MemifConfigError, Selector, Spread, Spreader)>(),
        type_name::<(Arrival, Capabilities, Checksum, FlowTag, FrameMeta, Pool, PoolConfig, PoolUsage)>(),
        type_name::<(SegmentKind, Segmentation, Weight)>(),
        type_name::<(EtherType, FastOpen, Fragment, OptionLayout, Piece, QuoteError, Quoted, Rank)>(),
        type_name::<(RouterPreference, SackBlocks, SteeringKey, TcpError, TcpFlags, TcpOptions, Tuple)>(),
        type_name::<(TcpView<'_>, AddressState, LinkParameters, NeighbourState, Refused)>(),
        type_name::<(Answer, Place, Request, SocketId)>(),
        type_name::<(Event, FlightConfig, Phase, State, Surroundings)>(),
        type_name::<(Bytes, DsField, Family, Mss, Port, PortRange, Protections, SeqNum)>(),
    ];
    assert!(names.iter().all(|name| name.contains("firelane")));
}
