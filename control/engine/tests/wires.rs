//! Wires between links of one engine: what they do to datagrams, and that they come and go.

use std::time::{Duration, Instant};

use firelane::{
    Chance, ChangeError, Conditions, Engine, EngineConfig, Loss, NetstackConfig, Stack, UdpSocket,
    VnicConfig, VnicUser,
};
use firelane_units::{LinkId, MacAddr, Mtu};

/// A netstack at 10.0.0.`n` on a switch of its own.
fn host(engine: &Engine, n: u8) -> (LinkId, Stack) {
    let link = engine.add_link(Mtu::ETHERNET).unwrap();
    let netstack = engine.add_netstack_with(&NetstackConfig::default()).unwrap();
    let config = VnicConfig::new(MacAddr([2, 8, 0x20, 0, 0, n]));
    let vnic = engine.add_vnic(link, &config, VnicUser::Netstack(netstack)).unwrap();
    engine.add_address(vnic, format!("10.0.0.{n}/24").parse().unwrap()).unwrap();
    (link, engine.stack(netstack).unwrap())
}

#[test]
fn a_wire_delays_and_loses_and_can_be_changed_and_taken_away() {
    for lanes in [1, 3] {
        let engine = Engine::start(&EngineConfig { lanes, ..EngineConfig::default() }).unwrap();
        let ((left, one), (right, two)) = (host(&engine, 1), host(&engine, 2));
        let delay = Duration::from_millis(30);
        let slow = Conditions { delay, ..Conditions::default() };
        let wire =
            engine.add_wire([left, right], Mtu::ETHERNET, Some(7), [slow.clone(), slow.clone()]).unwrap();
        let sender = UdpSocket::bind(&one, "10.0.0.1:0").unwrap();
        let receiver = UdpSocket::bind(&two, "10.0.0.2:7000").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes = [0; 64];
        for (conditions, least) in [(slow.clone(), delay), (Conditions::default(), Duration::ZERO)] {
            wire.set([conditions.clone(), conditions]);
            let begin = Instant::now();
            sender.send_to(b"over the wire", "10.0.0.2:7000").unwrap();
            assert_eq!(receiver.recv_from(&mut bytes).unwrap().0, 13, "{lanes} lanes");
            assert!(begin.elapsed() >= least, "{:?}", begin.elapsed());
            // The lane sleeps meanwhile, and it is the sender's thread that gives the frame to the wire.
            std::thread::sleep(least * 4);
            let begin = Instant::now();
            sender.send_to(b"again", "10.0.0.2:7000").unwrap();
            assert_eq!(receiver.recv_from(&mut bytes).unwrap().0, 5, "{lanes} lanes");
            assert!(begin.elapsed() >= least, "{lanes} lanes: {:?}", begin.elapsed());
        }
        let before = wire.counters();
        let lossy = Conditions { loss: Loss::Random(Chance::ALWAYS), ..Conditions::default() };
        wire.set([lossy, Conditions::default()]);
        for _ in 0..10 {
            sender.send_to(b"into nothing", "10.0.0.2:7000").unwrap();
        }
        let begin = Instant::now();
        while wire.counters()[0].dropped_loss < 10 {
            assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", wire.counters());
            std::thread::sleep(Duration::from_millis(1));
        }
        let after = wire.counters();
        assert_eq!(after[0].delivered, before[0].delivered, "nothing comes out");
        for counted in after {
            assert_eq!(
                counted.sent + counted.duplicated,
                counted.delivered + counted.lost() + counted.queued
            );
        }
        // A link may have another wire, and none is left once they are gone.
        let plain = || [Conditions::default(), Conditions::default()];
        let other = engine.add_link(Mtu::ETHERNET).unwrap();
        let beside = engine.add_wire([other, left], Mtu::ETHERNET, None, plain()).unwrap();
        assert!(matches!(engine.remove_link(other), Err(ChangeError::LinkBusy(link)) if link == other));
        engine.remove_wire(&beside).unwrap();
        engine.remove_link(other).unwrap();
        engine.remove_wire(&wire).unwrap();
        assert!(matches!(engine.remove_wire(&wire), Err(ChangeError::NoLink(_))));
        engine.add_wire([left, right], Mtu::ETHERNET, None, plain()).unwrap();
        sender.send_to(b"again", "10.0.0.2:7000").unwrap();
        assert_eq!(receiver.recv_from(&mut bytes).unwrap().0, 5);
    }
}
