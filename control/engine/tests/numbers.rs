//! What comes and goes for years: lanes keep places for the links, VNICs, wires, tunnels and flows that there are, not for those that there were.

use std::time::Duration;

use firelane::{
    ChangeError, Engine, EngineConfig, FlowMatch, Gre, NetstackConfig, TunnelConfig, TunnelKind, UdpSocket,
    VnicConfig, VnicUser,
};
use firelane_units::{BitRate, LinkId, MacAddr, Mtu, NetstackId, Priority, Protection, Protections};

/// Everything that has numbers, made and taken away.
fn come_and_go(engine: &Engine, link: LinkId, netstack: NetstackId) {
    let stub = engine.add_link(Mtu::ETHERNET).unwrap();
    let mut config = VnicConfig::new(MacAddr([2, 8, 0x20, 0, 0, 9]));
    config.maxbw = Some(BitRate::from_mbps(10));
    config.protection.kinds = Protections::NONE.with(Protection::ALL[0]);
    let vnics =
        [link, stub].map(|over| engine.add_vnic(over, &config, VnicUser::Netstack(netstack)).unwrap());
    engine.add_address(vnics[0], "10.0.0.9/24".parse().unwrap()).unwrap();
    let rule = FlowMatch { local_port: Some("53".parse().unwrap()), ..FlowMatch::default() };
    let flow = || engine.add_flow(vnics[1], rule, Some(BitRate::from_mbps(1)), Priority::Low);
    let removed = flow().unwrap();
    assert!(matches!(flow(), Err(ChangeError::Rule(_))));
    engine.remove_flow(removed).unwrap();
    flow().unwrap();
    assert!(engine.add_vnic(stub, &config, VnicUser::Nobody).is_err());
    assert!(engine.add_uplink(LinkId(u32::MAX), Vec::new()).is_err());
    let wire = engine.add_wire([link, stub], Mtu::ETHERNET, None, Default::default()).unwrap();
    let carries = TunnelConfig {
        kind: TunnelKind::Gre(Gre::default()),
        local: "10.0.0.9".parse().unwrap(),
        remote: "10.0.0.7".parse().unwrap(),
        hops: 64,
        limit: None,
    };
    let tunnel = engine.add_tunnel(&config, Mtu::ETHERNET, Some((netstack, carries))).unwrap();
    engine.remove_tunnel(tunnel).unwrap();
    engine.remove_wire(&wire).unwrap();
    vnics.into_iter().for_each(|vnic| engine.remove_vnic(vnic).unwrap());
    let guest = engine.add_netstack_with(&NetstackConfig::default()).unwrap();
    engine.remove_netstack(guest).unwrap();
    engine.remove_link(stub).unwrap();
}

#[test]
fn what_has_been_costs_nothing() {
    let engine = Engine::start(&EngineConfig { lanes: 2, ..EngineConfig::default() }).unwrap();
    let link = engine.add_link(Mtu::ETHERNET).unwrap();
    let host = |n: u8| {
        let netstack = engine.add_netstack_with(&NetstackConfig::default()).unwrap();
        let mut config = VnicConfig::new(MacAddr([2, 8, 0x20, 0, 0, n]));
        config.maxbw = Some(BitRate::from_mbps(100));
        let vnic = engine.add_vnic(link, &config, VnicUser::Netstack(netstack)).unwrap();
        engine.add_address(vnic, format!("10.0.0.{n}/24").parse().unwrap()).unwrap();
        (netstack, vnic, engine.stack(netstack).unwrap())
    };
    let ((netstack, vnic, near), (.., far)) = (host(1), host(2));
    let held = || engine.snapshot().lanes.iter().map(|lane| lane.memory.links).sum::<usize>();
    come_and_go(&engine, link, netstack);
    let before = held();
    let sender = UdpSocket::bind(&near, "10.0.0.1:0").unwrap();
    let receiver = UdpSocket::bind(&far, "10.0.0.2:7000").unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for round in 0..300u32 {
        come_and_go(&engine, link, netstack);
        sender.send_to(&round.to_be_bytes(), "10.0.0.2:7000").unwrap();
        let mut bytes = [0; 8];
        assert_eq!(receiver.recv_from(&mut bytes).unwrap().0, 4);
        assert_eq!(bytes[..4], round.to_be_bytes());
    }
    // Growing tables double.
    let after = held();
    assert!(
        after <= 4 * before,
        "{before} bytes when as much had been for the first time, and {after} after many times"
    );
    let ports = engine.snapshot().ports;
    assert_eq!(ports.len(), 2, "{ports:?}");
    assert!(ports[&vnic].outward.packets >= 300, "what stays counts on");
}
