//! What a program that was written for std expects of the sockets without having read about them.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use firelane::{Stack, StreamConfig, TcpListener, TcpStream, UdpSocket, WireConfig, Worker, wire};

use crate::wired::pair;

/// The client's end, and the server's.
fn connected(server: &Stack, client: &Stack) -> [TcpStream; 2] {
    let listener = TcpListener::bind(server, "10.0.0.1:7").unwrap();
    [TcpStream::connect(client, "10.0.0.1:7").unwrap(), listener.accept().unwrap().0]
}

#[test]
fn what_is_written_in_pieces_is_one_segment() {
    let [server, client] = pair();
    let [mut stream, mut accepted] = connected(&server, &client);
    let before = stream.info().unwrap().tcp.counts.text_out;
    for _ in 0..10 {
        let pieces = [IoSlice::new(b"head"), IoSlice::new(b""), IoSlice::new(b"body")];
        assert_eq!(stream.write_vectored(&pieces).unwrap(), 8);
        let (mut head, mut body) = ([0; 3], [0; 5]);
        let mut rooms = [IoSliceMut::new(&mut head), IoSliceMut::new(&mut body)];
        assert_eq!(accepted.read_vectored(&mut rooms).unwrap(), 8);
        assert_eq!((&head, &body), (b"hea", b"dbody"));
        accepted.write_all(b"k").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    let sent = stream.info().unwrap().tcp.counts.text_out - before;
    assert_eq!(sent, 10, "a segment for each request");
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

/// Lets a lane that no thread drives have some turns, in a thread that makes no calls.
fn drive(worker: &mut Worker) {
    let turns = || (0..3).for_each(|_| _ = worker.run_once(Some(Duration::ZERO)));
    thread::scope(|scope| scope.spawn(turns).join().unwrap());
}

#[test]
fn a_datagram_that_cannot_go_is_told_by_its_own_call() {
    let (left, right) = wire(WireConfig::default());
    // Nobody is in the lane of one who sends.
    let server = Stack::builder().driven().interface(left).address("10.0.0.1/24").unwrap().build().unwrap();
    let client = Stack::builder().interface(right).address("10.0.0.2/24").unwrap().build().unwrap();
    let mut worker = server.engine().workers().remove(0);
    let sender = UdpSocket::bind(&server, "10.0.0.1:53").unwrap();
    sender.set_nonblocking(true).unwrap();
    let good = UdpSocket::bind(&client, "10.0.0.2:53").unwrap();
    good.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    for (to, kind) in
        [("99.9.9.9:9", ErrorKind::NetworkUnreachable), ("10.0.0.255:9", ErrorKind::PermissionDenied)]
    {
        assert_eq!(sender.send_to(b"bad", to).unwrap_err().kind(), kind, "{to}");
        assert_eq!(sender.recv_from(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "{to}");
        assert_eq!(sender.send_to(b"good", "10.0.0.2:53").unwrap(), 4);
        // The neighbour is asked for first.
        let heard = (0..1000).find_map(|_| {
            drive(&mut worker);
            good.recv_from(&mut [0; 9]).ok()
        });
        assert_eq!(heard.unwrap().0, 4);
    }
}

#[test]
fn a_connected_socket_is_told_of_what_came_back() {
    let [server, _client] = pair();
    let [here, there] = ["10.0.0.1:0", "10.0.0.2:9"].map(|it| it.parse().unwrap());
    let asking = UdpSocket::connected(&server, here, there).unwrap();
    asking.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    asking.send(b"x").unwrap();
    assert_eq!(asking.recv(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn who_connects_is_not_connected() {
    let [server, client] = pair();
    let stream = TcpStream::begin(&client, "10.0.0.99:9".parse().unwrap(), StreamConfig::default()).unwrap();
    assert_eq!(stream.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    let [stream, _accepted] = connected(&server, &client);
    assert_eq!(stream.peer_addr().unwrap(), "10.0.0.1:7".parse().unwrap());
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
