//! An address of a netstack has one owner, and ends with that.

use std::io::{Read, Write};

use firelane::{
    ChangeError, Engine, EngineConfig, NetstackConfig, TcpListener, TcpStream, VnicConfig, VnicUser,
};
use firelane_units::{MacAddr, Mtu};

#[test]
fn who_does_not_have_an_address_cannot_take_it_from_its_owner() {
    let engine = Engine::start(&EngineConfig { lanes: 2, ..EngineConfig::default() }).unwrap();
    let link = engine.add_link(Mtu::ETHERNET).unwrap();
    let netstack = engine.add_netstack_with(&NetstackConfig::default()).unwrap();
    let vnic = |n| {
        let config = VnicConfig::new(MacAddr([2, 8, 0x20, 0, 0, n]));
        engine.add_vnic(link, &config, VnicUser::Netstack(netstack)).unwrap()
    };
    let (owner, other) = (vnic(1), vnic(2));
    let address = "10.0.0.1/24".parse().unwrap();
    engine.add_address(owner, address).unwrap();
    let stack = engine.stack(netstack).unwrap();
    let listener = TcpListener::bind(&stack, "10.0.0.1:80").unwrap();
    let mut near = TcpStream::connect(&stack, "10.0.0.1:80").unwrap();
    let (mut far, _) = listener.accept().unwrap();
    for vnic in [owner, other] {
        let again = engine.add_address(vnic, address);
        assert!(matches!(again, Err(ChangeError::AddressTaken(_))), "{again:?}");
    }
    engine.remove_address(other, address).unwrap();
    near.write_all(b"stands").unwrap();
    let mut bytes = [0; 6];
    far.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"stands");
    engine.remove_address(owner, address).unwrap();
    assert!(far.read_exact(&mut bytes).is_err(), "it ends with its owner");
    engine.add_address(other, address).unwrap();
    assert!(TcpStream::connect(&stack, "10.0.0.1:80").is_ok(), "somebody else has it now");
}
