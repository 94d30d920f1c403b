//! A netstack that configures itself as its router says, in one lane and in several.
//!
//! The router is this test: it holds the other end of the wire.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use firelane::{
    AutoconfConfig, Engine, EngineConfig, FlowMatch, IidKind, Stack, TcpConfig, UdpSocket, VnicConfig,
    VnicUser, WireConfig, wire,
};
use firelane_driver_memory::End;
use firelane_frame::{Chain, Driver, Pools, PoolsConfig};
use firelane_units::{DropCounters, MacAddr, Mtu, NetstackId, Priority};
use firelane_wire::{
    EtherType, EthernetRepr, IpProtocol, Ipv6Repr, NdpMessage, NdpOption, NdpRepr, PrefixInformation,
    RouterPreference, ethernet, icmpv6,
};

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const ROUTER_MAC: MacAddr = MacAddr([2, 8, 0x20, 0, 0, 0xfe]);
const SERVER: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0x53);

/// A message of the router.
fn message(dst_mac: MacAddr, dst: Ipv6Addr, message: NdpMessage, options: &[NdpOption<'_>]) -> Vec<u8> {
    let repr = NdpRepr { message, options };
    let len = repr.emitted_len();
    let mut frame = vec![0; 54 + len];
    EthernetRepr { dst: dst_mac, src: ROUTER_MAC, ethertype: EtherType::IPV6 }.emit(&mut frame);
    let header = Ipv6Repr::new(ROUTER, dst, IpProtocol::ICMPV6, len as u16);
    Ipv6Repr { hop_limit: 255, ..header }.emit(&mut frame[14..]);
    repr.emit(&mut frame[54..]);
    icmpv6::fill_checksum(&mut frame[54..], ROUTER, dst);
    frame
}

/// What the router says to a frame: it answers who asks for it.
fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    let asks = frame.get(20) == Some(&58) && frame[54] == 135 && frame[62..78] == ROUTER.octets();
    let asker = Ipv6Addr::from(*frame.get(22..38)?.first_chunk::<16>()?);
    let advert = NdpMessage::NeighbourAdvert { target: ROUTER, router: true, solicited: true, replace: true };
    let to = MacAddr(*frame.get(6..12)?.first_chunk::<6>()?);
    asks.then(|| message(to, asker, advert, &[NdpOption::TargetLinkLayer(ROUTER_MAC)]))
}

/// An advertisement of `fd00:1::/64` and a name server.
fn advertisement() -> Vec<u8> {
    let hour = Duration::from_secs(3600);
    let advert = NdpMessage::RouterAdvert {
        hop_limit: 64,
        managed: false,
        other: false,
        preference: RouterPreference::Medium,
        lifetime: hour,
        reachable: Duration::ZERO,
        retransmit: Duration::ZERO,
    };
    let prefix = PrefixInformation {
        prefix: Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0),
        prefix_len: 64,
        on_link: true,
        autonomous: true,
        valid: hour,
        preferred: hour,
    };
    let servers = [SERVER.octets()];
    let options = [
        NdpOption::SourceLinkLayer(ROUTER_MAC),
        NdpOption::Prefix(prefix),
        NdpOption::RecursiveDns { lifetime: hour, servers: &servers },
    ];
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    message(ethernet::group_mac(all_nodes.into()), all_nodes, advert, &options)
}

/// Waits until `check` has something.
fn soon<T>(mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_router_gives_a_netstack_its_address_its_way_out_and_its_name_server() {
    for lanes in [1, 3] {
        let (here, mut there) = wire(WireConfig::default());
        let settings = AutoconfConfig { iid: IidKind::Eui64, stateless: true, temporary: false };
        let stack = Stack::builder().lanes(lanes).interface(here).mac("02:08:20:00:00:01").unwrap();
        let stack = stack.autoconf(settings).unwrap().build().unwrap();
        let mut pools = Pools::new(PoolsConfig { small_slots: 256, large_slots: 8 });

        let own: IpAddr = "fd00:1::8:20ff:fe00:1".parse().unwrap();
        let engine = stack.engine();
        advertise_until(&engine, stack.id(), own, &mut there, &mut pools);
        assert_eq!(
            engine.configured_addresses(stack.id()).len(),
            2,
            "the link-local address and the router's"
        );
        let resolvers = soon(|| stack.resolvers().pop().filter(|known| !known.servers.is_empty()));
        assert_eq!(resolvers.servers, [SERVER]);

        // Whichever lane a socket lives in, its packets leave by the router, from the address that it brought.
        for port in 5000..5008 {
            leaves_by_the_router(&stack, SocketAddr::new(own, port), &mut there, &mut pools);
        }
    }
}

/// The router speaks until the netstack has made itself the address.
fn advertise_until(engine: &Engine, id: NetstackId, own: IpAddr, there: &mut End, pools: &mut Pools) {
    let (mut chain, mut drops) = (Chain::default(), DropCounters::default());
    let mut looks = 0;
    soon(|| {
        // As routers do, it says so again: the first may come before the interface hears.
        if looks % 256 == 0 {
            chain.push(pools.copy_of(&advertisement()).unwrap());
            there.transmit(&mut chain, &mut drops);
        }
        looks += 1;
        let configured = engine.configured_addresses(id);
        configured.iter().any(|(_, prefix)| prefix.addr() == own).then_some(())
    });
}

/// Sends a datagram from there to the world, and looks at it at the router.
fn leaves_by_the_router(stack: &Stack, from: SocketAddr, there: &mut End, pools: &mut Pools) {
    let (mut chain, mut drops) = (Chain::default(), DropCounters::default());
    let socket = UdpSocket::bind(stack, from).unwrap();
    socket.send_to(b"out", "[2001:db8::1]:53").unwrap();
    let frame = soon(|| {
        there.receive(pools, 1, &mut chain, &mut drops);
        let frame = chain.pop()?;
        if let Some(answer) = answer(frame.as_slice()) {
            chain.push(pools.copy_of(&answer).unwrap());
            there.transmit(&mut chain, &mut drops);
        }
        (frame.as_slice()[20] == 17).then_some(frame)
    });
    let bytes = frame.as_slice();
    assert_eq!(bytes[..6], ROUTER_MAC.0);
    assert_eq!(IpAddr::from(*bytes[22..38].first_chunk::<16>().unwrap()), from.ip());
    assert_eq!(bytes[54..56], from.port().to_be_bytes());
    pools.put(frame);
}

#[test]
fn a_lane_that_joins_later_knows_what_the_router_has_said() {
    let (here, mut there) = wire(WireConfig::default());
    let engine = Engine::start(&EngineConfig { lanes: 1, reserve: 1, ..EngineConfig::default() }).unwrap();
    let link = engine.add_link(Mtu::ETHERNET).unwrap();
    engine.add_uplink(link, vec![here.into()]).unwrap();
    let id = engine.add_netstack(TcpConfig::default()).unwrap();
    let config = VnicConfig::new("02:08:20:00:00:01".parse().unwrap());
    let vnic = engine.add_vnic(link, &config, VnicUser::Netstack(id)).unwrap();
    let settings = AutoconfConfig { iid: IidKind::Eui64, stateless: true, temporary: false };
    engine.set_autoconf(vnic, Some(settings)).unwrap();
    let stack = engine.stack(id).unwrap();
    let mut pools = Pools::new(PoolsConfig { small_slots: 256, large_slots: 8 });
    let own: IpAddr = "fd00:1::8:20ff:fe00:1".parse().unwrap();
    advertise_until(&engine, id, own, &mut there, &mut pools);
    let service = FlowMatch { local_port: Some("5000-5009".parse().unwrap()), ..FlowMatch::default() };
    let flow = engine.add_flow(vnic, service, None, Priority::Medium).unwrap();
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| set.is_set(cpu)).unwrap();
    // It leaves, and joins again.
    for round in 0..3 {
        engine.set_flow_cpus(flow, &[cpu]).unwrap();
        leaves_by_the_router(&stack, SocketAddr::new(own, 5000 + round), &mut there, &mut pools);
        let own_lane = &engine.snapshot().lanes[1];
        assert!(own_lane.counters.entered() > 0, "the socket is in the flow's lane");
        engine.set_flow_cpus(flow, &[]).unwrap();
    }
}
