//! Links, VNICs, flows and netstacks that come and go: lanes keep places for those that there are, and who stays notices nothing.

use std::time::Duration;

use firelane_classify::{FlowMatch, Steering};
use firelane_flow::FlowConfig;
use firelane_lane::*;
use firelane_switch::Rules;
use firelane_table::Mint;
use firelane_units::{BitRate, FlowId, LaneId, LinkId, Mtu, NetstackId, Priority};
use firelane_world::*;

/// As an engine gives them; the first three are those of [`two_stacks`].
struct Numbers {
    links: Mint,
    flows: Mint,
    netstacks: Mint,
}

impl Numbers {
    fn new() -> Self {
        let mint = |end: u32| {
            let mut mint = Mint::below(end);
            (0..3).for_each(|number| assert_eq!(mint.mint(), Some(number)));
            mint
        };
        Self { links: mint(i32::MAX as u32), flows: mint(u32::MAX), netstacks: mint(1 << 16) }
    }

    fn netstack(&mut self) -> NetstackId {
        NetstackId(self.netstacks.mint().unwrap() as u16)
    }
}

/// A container as lanes have it: a link, a netstack with a protected VNIC, its limit and a flow.
#[derive(Clone, Copy)]
struct Guest {
    link: LinkId,
    vnic: LinkId,
    netstack: NetstackId,
    flows: [FlowId; 2],
}

impl Guest {
    fn begin(world: &mut World, numbers: &mut Numbers) -> Self {
        let [link, port] = [0; 2].map(|_| LinkId(numbers.links.mint().unwrap()));
        let flows = [0; 2].map(|_| FlowId(numbers.flows.mint().unwrap()));
        let netstack = numbers.netstack();
        let steering = Steering::even(&world.lane_ids());
        let config = NetstackConfig { steering, ..NetstackConfig::new(netstack) };
        world.all(|| Control::AddNetstack(config.clone()));
        world.all(|| Control::AddLink(LinkConfig { link, mtu: Mtu::ETHERNET }));
        let home = Some(LaneId(0));
        world.add_flow(plain_flow(flows[0], port, Some(BitRate::from_mbps(8)), home));
        let rule = FlowMatch { local_port: Some("53".parse().unwrap()), ..FlowMatch::default() };
        let config = FlowConfig { parent: Some(flows[0]), maxbw: None, priority: Priority::Low };
        world.all(|| Control::SetGuard(port, mac(9), Some(Rules::default())));
        world.add_port(vnic(port.0, link.0, 9, flows[0].0, PortUser::Netstack(netstack)), vec![]);
        world.add_flow(FlowSetup { flow: flows[1], owner: port, rule: Some(rule), config, home });
        world.all(|| Control::AddAddress(netstack, port, "10.0.0.9/24".parse().unwrap()));
        Self { link, vnic: port, netstack, flows }
    }

    fn end(self, world: &mut World, numbers: &mut Numbers) {
        world.all(|| Control::RemoveNetstack(self.netstack));
        world.all(|| Control::RemovePort(self.vnic));
        self.flows.into_iter().rev().for_each(|flow| world.all(|| Control::RemoveFlow(flow)));
        world.all(|| Control::RemoveLink(self.link));
        [self.link, self.vnic].into_iter().for_each(|link| numbers.links.give_back(link.0));
        self.flows.into_iter().for_each(|flow| numbers.flows.give_back(flow.0));
        numbers.netstacks.give_back(self.netstack.0.into());
    }
}

fn held(world: &World) -> usize {
    world.lanes.iter().map(|lane| lane.table_memory().links).sum()
}

/// Sockets of netstacks that stay have frames, timers and waiting datagrams all the time, while tables grow and others come and go.
#[test]
fn what_has_been_costs_nothing() {
    for lanes in [1, 2] {
        let (mut world, mut numbers) = (two_stacks(lanes, Mtu::ETHERNET), Numbers::new());
        // A few stay for as long as the others come and go.
        let stays: Vec<_> = (0..5).map(|_| Guest::begin(&mut world, &mut numbers)).collect();
        let mut client = world.bind(1, 1, 0, "10.0.0.1:0");
        let mut server = world.bind(2, 2, lanes - 1, "10.0.0.2:7000");
        let listener = world.listen(2, 3, "10.0.0.2:80", 8);
        let mut stream = world.connect(1, 0, "10.0.0.2:80");
        world.run();
        let mut peer = listener.accept().expect("it is there").stream;
        let guest = Guest::begin(&mut world, &mut numbers);
        let before = held(&world);
        guest.end(&mut world, &mut numbers);
        for round in 0..2_000u32 {
            let guest = Guest::begin(&mut world, &mut numbers);
            let of_its_own = world.bind(guest.netstack.0, 10 + round, 0, "10.0.0.9:53");
            let mut asks = world.bind(guest.netstack.0, 10_000 + round, lanes - 1, "10.0.0.9:99");
            world.send_to(&mut asks, 10_000 + round, "10.0.0.9:53".parse().unwrap(), b"who?");
            world.write(&mut stream, &round.to_be_bytes()).unwrap();
            world.send_to(&mut client, 1, "10.0.0.2:7000".parse().unwrap(), &round.to_be_bytes());
            world.run_for(Duration::from_millis(1));
            let mut bytes = [0; 8];
            assert!(matches!(server.recv.recv(&mut bytes), Ok(Some(_))), "{round}");
            assert_eq!(bytes[..4], round.to_be_bytes());
            assert_eq!((world.read(&mut peer, &mut bytes), &bytes[..4]), (Ok(4), &round.to_be_bytes()[..]));
            drop(of_its_own);
            guest.end(&mut world, &mut numbers);
        }
        let after = held(&world);
        assert!(
            after <= 2 * before,
            "{before} bytes for what there is, and {after} after as much had been 2,000 times"
        );
        let snapshot = world.lanes[0].snapshot();
        assert_eq!((snapshot.ports.len(), snapshot.flows.len()), (2 + stays.len(), 2 + 2 * stays.len()));
        for guest in stays {
            guest.end(&mut world, &mut numbers);
        }
        world.run();
        world.check_conservation();
    }
}
