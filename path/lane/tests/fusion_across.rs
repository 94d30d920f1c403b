//! TCP Fusion between two netstacks whose VNICs are on one switch (`fusion=on` at both).

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use firelane_filter::RuleList;
use firelane_flow::FlowConfig;
use firelane_ip::DadConfig;
use firelane_lane::*;
use firelane_socket::{Flags, ListenerEnd, ReadError, SocketError, StreamEnd};
use firelane_units::{
    BitRate, Direction, FilterAction, FilterAddresses, FilterMatch, FilterPorts, FilterProtocol, FilterRule,
    FlowId, IpPrefix, LaneId, LinkId, Mtu, NetstackId, Port, Priority,
};
use firelane_world::*;
use proptest::prelude::*;

/// The flow of the etherstub that both VNICs are on.
const STUB: FlowId = FlowId(9);

fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|n| (n * 31 + (n >> 8)) as u8).collect()
}

fn is_fused(end: &StreamEnd) -> bool {
    end.shared().words().flags().contains(Flags::FUSED)
}

/// A connection of netstack 1 with netstack 2.
struct Pair {
    world: World,
    listener: ListenerEnd,
    client: StreamEnd,
    server: StreamEnd,
}

/// Netstacks 1 and 2, whose VNICs' flows, 1 and 2, are part of their etherstub's.
fn neighbours(lanes: u16) -> World {
    let mut world = World::new(lanes);
    world.all(|| Control::AddLink(LinkConfig { link: LinkId(0), mtu: Mtu::ETHERNET }));
    world.add_flow(plain_flow(STUB, LinkId(0), None, None));
    for n in 1..=2_u8 {
        let id = NetstackId(u16::from(n));
        let steering = firelane_classify::Steering::even(&world.lane_ids());
        let config = NetstackConfig { steering, dad: DadConfig::OFF, ..NetstackConfig::new(id) };
        world.all(|| Control::AddNetstack(config.clone()));
        let (link, flow) = (LinkId(u32::from(n)), FlowId(u32::from(n)));
        let config = FlowConfig { parent: Some(STUB), maxbw: None, priority: Priority::Medium };
        world.add_flow(FlowSetup { flow, owner: link, rule: None, config, home: None });
        world.add_port(vnic(link.0, 0, n, flow.0, PortUser::Netstack(id)), vec![]);
        for address in [format!("10.0.0.{n}/24"), format!("fd00::{n}/64")] {
            let address: IpPrefix = address.parse().expect("a prefix");
            world.all(|| Control::AddAddress(id, link, address));
        }
    }
    world
}

fn connected(mut world: World, remote: &str) -> Pair {
    let listen = if remote.starts_with('[') { "[::]:80" } else { "0.0.0.0:80" };
    let listener = world.listen(2, 1, listen, 8);
    let client = world.connect(1, world.lanes.len() as u16 - 1, remote);
    world.run();
    let server = listener.accept().expect("the handshake is over").stream;
    Pair { world, listener, client, server }
}

fn pair(lanes: u16, remote: &str, fuses: &[(FlowId, FuseWith)]) -> Pair {
    let mut world = neighbours(lanes);
    for &(flow, with) in fuses {
        world.all(|| Control::SetFusion(flow, with));
    }
    connected(world, remote)
}

const BOTH: [(FlowId, FuseWith); 2] = [(FlowId(1), FuseWith::Others), (FlowId(2), FuseWith::Others)];

impl Pair {
    fn are_fused(&self) -> bool {
        assert_eq!(is_fused(&self.client), is_fused(&self.server));
        is_fused(&self.client)
    }

    fn change(&mut self, control: impl Fn() -> Control<AnyDriver>) {
        self.world.all(control);
        self.world.run();
    }

    /// What keeps it from being fused, asked at both ends.
    fn why(&self) -> [Option<Unfused>; 2] {
        [&self.client, &self.server].map(|end| {
            let (lane, conn) = (end.shared().lane(), end.shared().conn().expect("it is there"));
            let info = self.world.lanes[lane.index()].stream_info(self.world.now, conn);
            info.expect("it is there").unfused
        })
    }

    /// Bytes go both ways; whether any packet was made for them.
    fn carries(&mut self, len: usize) -> bool {
        let before = self.world.counters().originated;
        let Self { world, client, server, .. } = self;
        world.transfer(client, server, &pattern(0, len));
        world.transfer(server, client, &pattern(0, len));
        self.world.check_conservation();
        self.world.counters().originated > before
    }
}

#[test]
fn bytes_pass_without_a_packet_and_the_end_comes_behind_them() {
    for lanes in [1, 4] {
        for remote in ["10.0.0.2:80", "[fd00::2]:80"] {
            let mut pair = pair(lanes, remote, &BOTH);
            assert!(pair.are_fused(), "{remote}");
            assert_eq!(pair.why(), [None; 2]);
            assert!(!pair.carries(2_000_000), "{remote}");
            let Pair { world, client, server, .. } = &mut pair;
            world.write(client, b"the last").unwrap();
            world.command(client, SocketCommand::Close);
            world.run();
            let mut bytes = [0; 100];
            assert_eq!(world.read(server, &mut bytes), Ok(8));
            assert_eq!(world.read(server, &mut bytes), Ok(0), "the end");
            world.command(server, SocketCommand::Close);
            world.run();
            world.check_conservation();
            let connections: usize = world.lanes.iter().map(|lane| lane.snapshot().connections).sum();
            assert_eq!(connections, 0);
        }
    }
}

#[test]
fn a_connection_is_fused_before_it_is_accepted() {
    let mut pair = pair(1, "10.0.0.2:80", &BOTH);
    let Pair { world, listener, .. } = &mut pair;
    let mut client = world.connect(1, 0, "10.0.0.2:80");
    world.run();
    assert!(is_fused(&client));
    assert_eq!(world.write(&mut client, b"early"), Ok(5));
    let mut server = listener.accept().unwrap().stream;
    let mut bytes = [0; 8];
    assert_eq!(world.read(&mut server, &mut bytes), Ok(5));
}

/// What flows say, whether a connection is fused then, and if not, why.
#[test]
fn both_must_say_so_and_none_may_forbid_it() {
    use FuseWith::{Itself, Nobody, Others};
    let (one, two) = (FlowId(1), FlowId(2));
    for (says, why) in [
        (vec![], Some(Unfused::Apart)),
        (vec![(one, Others)], Some(Unfused::Apart)),
        (vec![(two, Others)], Some(Unfused::Apart)),
        (vec![(one, Others), (two, Others)], None),
        (vec![(STUB, Others)], None),
        (vec![(STUB, Others), (one, Itself)], None),
        (vec![(STUB, Others), (one, Nobody)], Some(Unfused::Link(LinkId(1)))),
        (vec![(STUB, Others), (two, Nobody)], Some(Unfused::Link(LinkId(2)))),
        (vec![(STUB, Nobody), (one, Others), (two, Others)], Some(Unfused::Link(LinkId(0)))),
    ] {
        let mut pair = pair(1, "10.0.0.2:80", &says);
        assert_eq!(pair.are_fused(), why.is_none(), "{says:?}");
        assert_eq!(pair.why(), [why; 2], "{says:?}");
        assert_eq!(pair.carries(100_000), why.is_some(), "{says:?}");
    }
}

#[test]
fn running_connections_follow_whoever_changes_his_mind() {
    for lanes in [1, 4] {
        let mut pair = pair(lanes, "10.0.0.2:80", &[]);
        for round in 0..3 {
            assert!(!pair.are_fused());
            assert!(pair.carries(50_000));
            pair.change(|| Control::SetFusion(FlowId(1), FuseWith::Others));
            assert!(!pair.are_fused());
            pair.change(|| Control::SetFusion(FlowId(2), FuseWith::Others));
            assert!(pair.are_fused(), "round {round} with {lanes} lanes");
            // What is written now is read after the next change.
            pair.world.write(&mut pair.client, &pattern(0, 5000)).unwrap();
            pair.change(|| Control::SetFusion(FlowId(1), FuseWith::Itself));
            assert_eq!(pair.why(), [Some(Unfused::Apart); 2]);
            let mut bytes = [0; 5000];
            assert_eq!(pair.world.read(&mut pair.server, &mut bytes), Ok(5000));
            assert_eq!(bytes[..], pattern(0, 5000));
            pair.change(|| Control::SetFusion(FlowId(2), FuseWith::Itself));
        }
    }
}

#[test]
fn who_filters_packets_sees_them() {
    let mut pair = pair(1, "10.0.0.2:80", &BOTH);
    for netstack in [NetstackId(1), NetstackId(2)] {
        assert!(!pair.carries(50_000));
        let rules = [Direction::In, Direction::Out].map(|way| FilterRule::new(way, FilterAction::Pass));
        let filter = Arc::new(RuleList::new(rules.to_vec()));
        pair.change(|| Control::SetFilter(netstack, Arc::clone(&filter)));
        assert!(!pair.are_fused());
        assert_eq!(pair.why(), [Some(Unfused::Filtered); 2]);
        assert!(pair.carries(50_000));
        let none = Arc::new(RuleList::default());
        pair.change(|| Control::SetFilter(netstack, Arc::clone(&none)));
        assert!(pair.are_fused());
    }
}

/// A state that outlives its rules has to see what the connection sends, or it does not fit when they come back.
#[test]
fn who_keeps_state_sees_packets_as_long_as_that_stands() {
    let mut pair = pair(1, "10.0.0.2:80", &BOTH);
    let keep = |way| {
        let mut rule = FilterRule::new(way, FilterAction::Pass);
        rule.keep_state = Some(firelane_units::KeepState::default());
        rule
    };
    let rules = Arc::new(RuleList::new(Direction::ALL.map(keep).to_vec()));
    let none = Arc::new(RuleList::default());
    for _ in 0..2 {
        pair.change(|| Control::SetFilter(NetstackId(2), Arc::clone(&rules)));
        assert!(pair.carries(500_000));
        pair.change(|| Control::SetFilter(NetstackId(2), Arc::clone(&none)));
        assert_eq!(pair.why(), [Some(Unfused::Filtered); 2]);
        assert!(pair.carries(500_000));
    }
}

#[test]
fn rules_that_meet_no_packet_of_a_connection_leave_it_fused() {
    let rule = |way, change: fn(&mut FilterMatch)| {
        let mut rule = FilterRule::new(way, FilterAction::Pass);
        rule.matching.protocol = FilterProtocol::Number(6);
        change(&mut rule.matching);
        rule
    };
    let with = |change: fn(&mut FilterMatch)| rule(Direction::In, change);
    let on = |link| FilterRule { link: Some(LinkId(link)), ..with(|_| {}) };
    let in_group = FilterRule { group: NonZeroU32::new(9), ..with(|_| {}) };
    // Netstack 2 has the port that is listened at.
    let table = [
        (with(|it| it.protocol = FilterProtocol::Number(17)), true),
        (with(|it| it.to.ports = FilterPorts::Equal(Port(81))), true),
        (with(|it| it.to.ports = FilterPorts::Equal(Port(80))), false),
        (rule(Direction::Out, |it| it.from.ports = FilterPorts::Equal(Port(81))), true),
        (rule(Direction::Out, |it| it.from.ports = FilterPorts::Equal(Port(80))), false),
        (
            with(|it| it.from.addresses = FilterAddresses::Prefix("10.0.0.0/32".parse().expect("a prefix"))),
            true,
        ),
        (
            with(|it| it.from.addresses = FilterAddresses::Prefix("10.0.0.0/24".parse().expect("a prefix"))),
            false,
        ),
        // What is in a pool changes.
        (with(|it| it.from.addresses = FilterAddresses::Pool(7)), false),
        (on(1), false),
        (on(2), false),
        (on(3), true),
        (in_group, true),
    ];
    let mut pair = pair(1, "10.0.0.2:80", &BOTH);
    for (rule, stays) in table {
        let filter = Arc::new(RuleList::new(vec![rule.clone()]));
        pair.change(|| Control::SetFilter(NetstackId(2), Arc::clone(&filter)));
        assert_eq!(pair.are_fused(), stays, "{rule:?}");
        assert_eq!(pair.why(), [(!stays).then_some(Unfused::Filtered); 2]);
        assert_eq!(pair.carries(50_000), !stays, "{rule:?}");
    }
}

#[test]
fn each_netstack_has_a_say() {
    let mut pair = pair(1, "10.0.0.2:80", &BOTH);
    for id in [NetstackId(1), NetstackId(2)] {
        for is_on in [false, true] {
            let fusion = FusionTuning { is_on, ..FusionTuning::default() };
            let config = NetstackConfig { fusion, ..NetstackConfig::new(id) };
            pair.change(|| Control::Tune(config.clone()));
            assert_eq!(pair.are_fused(), is_on);
            assert_eq!(pair.why(), [(!is_on).then_some(Unfused::Property); 2]);
        }
    }
}

#[test]
fn a_vnic_that_is_taken_away_takes_its_connections_along_as_if_they_were_not_fused() {
    let mut pair = pair(1, "10.0.0.2:80", &BOTH);
    pair.change(|| Control::SetUser(LinkId(2), PortUser::Nobody));
    assert!(!pair.are_fused());
    pair.world.write(&mut pair.client, b"into the void").unwrap();
    pair.world.run_for(Duration::from_secs(5));
    let mut bytes = [0; 100];
    assert_eq!(pair.world.read(&mut pair.server, &mut bytes), Err(ReadError::WouldBlock));
}

#[test]
fn a_netstack_that_ends_resets_the_other_ends() {
    let mut pair = pair(1, "10.0.0.2:80", &BOTH);
    pair.change(|| Control::RemoveNetstack(NetstackId(2)));
    let words = pair.client.shared().words();
    assert!(words.flags().contains(Flags::CLOSED));
    assert_eq!(words.take_error(), Some(SocketError::Reset));
    pair.world.check_conservation();
}

#[test]
fn who_aborts_is_heard_of_at_the_other_end() {
    let mut pair = pair(1, "10.0.0.2:80", &BOTH);
    pair.world.command(&pair.server, SocketCommand::Abort);
    pair.world.run();
    assert_eq!(pair.client.shared().words().take_error(), Some(SocketError::Reset));
    pair.world.check_conservation();
}

/// What the VNICs and their flows have counted of fused text, inward and outward.
fn counted(world: &mut World) -> [[u64; 2]; 2] {
    [1, 2].map(|n| {
        let (mut of_port, mut of_flow) = ([0; 2], [0; 2]);
        for lane in &mut world.lanes {
            let mut from = Some(0);
            while let Some(place) = from {
                from = lane.count_fused(place);
            }
            let snapshot = lane.snapshot();
            let (_, port) = snapshot.ports.iter().find(|(id, _)| *id == LinkId(n)).expect("a VNIC");
            let (_, flow) = snapshot.flows.iter().find(|(id, _)| *id == FlowId(n)).expect("its flow");
            of_port = [of_port[0] + port.inward.fused, of_port[1] + port.outward.fused];
            of_flow = [of_flow[0] + flow[0].fused, of_flow[1] + flow[1].fused];
        }
        assert_eq!(of_port, of_flow);
        of_port
    })
}

#[test]
fn each_vnic_counts_what_it_sends_and_gets_to_the_byte() {
    for lanes in [1, 4] {
        let mut pair = pair(lanes, "10.0.0.2:80", &BOTH);
        let Pair { world, client, server, .. } = &mut pair;
        world.transfer(client, server, &pattern(0, 300_000));
        world.transfer(server, client, &pattern(0, 20_000));
        assert_eq!(counted(world), [[20_000, 300_000], [300_000, 20_000]]);
    }
}

#[test]
fn limits_of_the_sending_and_of_the_receiving_vnic_hold() {
    let window = Duration::from_millis(100);
    for lanes in [1, 4] {
        for flow in [FlowId(1), FlowId(2), STUB] {
            let mut pair = pair(lanes, "10.0.0.2:80", &BOTH);
            let (rate, home) = (BitRate::from_mbps(100), LaneId(lanes - 1));
            pair.change(|| Control::SetHome(flow, Some(home)));
            pair.change(|| Control::SetMaxbw(flow, Some(rate)));
            assert!(pair.are_fused());
            let (piece, mut buffer) = (pattern(0, 10_000), vec![0; 1 << 18]);
            let Pair { world, client, server, .. } = &mut pair;
            for n in 0..10 {
                let end = world.now + window;
                let mut came = 0;
                while world.now < end {
                    let mut moved = world.write(client, &piece).is_ok();
                    let next = world.run().unwrap_or(end);
                    while let Ok(count @ 1..) = world.read(server, &mut buffer) {
                        (came, moved) = (came + count as u64, true);
                    }
                    if !moved {
                        world.now = next.min(end).max(world.now);
                    }
                }
                let wanted = rate.bytes_in(window).0;
                let allowed = (wanted / 100).max(2 * 1514);
                assert!(n == 0 || came.abs_diff(wanted) <= allowed, "{flow:?}: {came} for {wanted}");
            }
            assert!(pair.are_fused());
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write { by_client: bool, len: usize },
    Read { by_client: bool, len: usize },
    Say { netstack: u32, with: FuseWith },
    Run(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let with = prop_oneof![
        3 => Just(FuseWith::Others),
        1 => Just(FuseWith::Itself),
        1 => Just(FuseWith::Nobody)
    ];
    prop_oneof![
        4 => (any::<bool>(), 1..60_000_usize).prop_map(|(by_client, len)| Step::Write { by_client, len }),
        4 => (any::<bool>(), 1..90_000_usize).prop_map(|(by_client, len)| Step::Read { by_client, len }),
        2 => (1..=2_u32, with).prop_map(|(netstack, with)| Step::Say { netstack, with }),
        1 => (0..300_u64).prop_map(Step::Run),
    ]
}

#[test]
fn whoever_looks_on_at_their_switch_sees_segments() {
    let mut pair = pair(1, "10.0.0.2:80", &BOTH);
    for (looks_on, why) in [(false, None), (true, Some(Unfused::Captured)), (false, None)] {
        pair.change(|| Control::SetOnlooker(LinkId(1), looks_on));
        pair.carries(1000);
        assert_eq!(pair.why(), [why; 2]);
        assert_eq!(pair.carries(100_000), looks_on);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_both_say_and_when_no_byte_is_lost(steps in prop::collection::vec(step(), 1..60), lanes in 1..3_u16) {
        let mut pair = pair(lanes, "10.0.0.2:80", &BOTH);
        let (mut written, mut read) = ([0_usize; 2], [0_usize; 2]);
        for step in steps {
            let Pair { world, client, server, .. } = &mut pair;
            match step {
                Step::Write { by_client, len } => {
                    let (end, at) = if by_client { (client, 0) } else { (server, 1) };
                    written[at] += world.write(end, &pattern(written[at], len)).unwrap_or(0);
                }
                Step::Read { by_client, len } => {
                    let (end, at) = if by_client { (client, 1) } else { (server, 0) };
                    let mut bytes = vec![0; len];
                    if let Ok(count) = world.read(end, &mut bytes) {
                        prop_assert!(bytes[..count] == pattern(read[at], count));
                        read[at] += count;
                    }
                }
                Step::Say { netstack, with } => pair.change(|| Control::SetFusion(FlowId(netstack), with)),
                Step::Run(millis) => world.run_for(Duration::from_millis(millis)),
            }
        }
        let Pair { world, client, server, .. } = &mut pair;
        world.command(client, SocketCommand::Shutdown);
        world.command(server, SocketCommand::Shutdown);
        for (end, at) in [(server, 0), (client, 1)] {
            world.read_to_end(end, |bytes| {
                assert!(bytes == pattern(read[at], bytes.len()));
                read[at] += bytes.len();
            });
            prop_assert_eq!(read[at], written[at]);
        }
        pair.world.check_conservation();
    }
}
