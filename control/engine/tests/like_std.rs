//! What a program that was written for std expects of the sockets without having read about them.

use std::io::ErrorKind;
use std::net::SocketAddr;

use firelane::{Queue, Stack, TcpListener, UdpSocket, WireConfig, wire};

fn pair() -> [Stack; 2] {
    let (left, right) = wire(WireConfig::default());
    let build = |end: Queue, n: u8| {
        let builder = Stack::builder().interface(end);
        builder.address(&format!("10.0.0.{n}/24")).unwrap().build().unwrap()
    };
    [build(left.into(), 1), build(right.into(), 2)]
}

#[test]
fn the_first_address_that_can_be_bound_is() {
    let [server, _client] = pair();
    let addresses: [SocketAddr; 2] = ["10.0.0.9:90", "10.0.0.1:90"].map(|it| it.parse().unwrap());
    let listener = TcpListener::bind(&server, &addresses[..]).unwrap();
    assert_eq!(listener.local_addr().unwrap(), addresses[1]);
    let datagrams = UdpSocket::bind(&server, &addresses[..]).unwrap();
    assert_eq!(datagrams.local_addr().unwrap(), addresses[1]);
    // The last one says why.
    let last = TcpListener::bind(&server, &[addresses[0], addresses[1]][..]).unwrap_err();
    assert_eq!(last.kind(), ErrorKind::AddrInUse);
    assert_eq!(TcpListener::bind(&server, &[][..]).unwrap_err().kind(), ErrorKind::InvalidInput);
    let peer = UdpSocket::bind(&server, "10.0.0.1:0").unwrap();
    let peers: [SocketAddr; 2] = ["99.9.9.9:9", "10.0.0.2:9"].map(|it| it.parse().unwrap());
    peer.connect(&peers[..]).unwrap();
    assert_eq!(peer.peer_addr().unwrap(), peers[1]);
}

#[test]
fn an_address_that_no_station_can_have_is_refused_in_words() {
    for text in
        ["10.0.0.0/24", "10.0.0.255/24", "127.0.0.1/8", "224.0.0.1/4", "0.0.0.0/0", "::1/128", "10.0.0.1"]
    {
        let refused = Stack::builder().interface(wire(WireConfig::default()).0).address(text).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{text}");
        let said = refused.to_string();
        assert!(said.contains(&format!("{text:?}")) && said.len() > 50, "{said}");
    }
}
