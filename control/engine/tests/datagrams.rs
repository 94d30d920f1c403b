//! UDP sockets of the crate: the largest datagrams, batches, offload both ways, options and peers.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use firelane::{Echo, EchoSocket, Envelope, Incoming, Outgoing, UdpSocket};

use crate::wired::pair_with_lanes;

fn sockets(lanes: usize, family: &str) -> (UdpSocket, UdpSocket, SocketAddr) {
    let [server, client] = pair_with_lanes(lanes);
    let there: SocketAddr =
        format!("{}1{}:9", family, if family == "[fd00::" { "]" } else { "" }).parse().unwrap();
    let any = if there.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let sockets = (UdpSocket::bind(&server, there).unwrap(), UdpSocket::bind(&client, any).unwrap());
    sockets.0.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    sockets.1.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    (sockets.0, sockets.1, there)
}

const FAMILIES: [(&str, usize); 2] = [("10.0.0.", 65_507), ("[fd00::", 65_527)];

#[test]
fn the_largest_datagram_arrives_and_one_byte_more_is_refused() {
    for lanes in [1, 2] {
        for (family, most) in FAMILIES {
            let (server, client, there) = sockets(lanes, family);
            let payload: Vec<u8> = (0..=most).map(|n| (n % 251) as u8).collect();
            let refused = client.send_to(&payload, there).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(90), "EMSGSIZE");
            assert_eq!(client.send_to(&payload[..most], there).unwrap(), most);
            let mut buffer = vec![0; most + 1];
            let (len, _) = server.peek_from(&mut buffer).unwrap();
            assert!(len == most && buffer[..most] == payload[..most]);
            assert_eq!(server.recv_from(&mut buffer).unwrap().0, most);
        }
    }
}

/// RFC 1122 §3.2.2.6: who asks for an echo gets its answer, and nobody else does.
#[test]
fn an_echos_answer_comes_to_who_asked_with_the_text_that_it_had() {
    for lanes in [1, 2] {
        let [_there, here] = pair_with_lanes(lanes);
        for (own, there) in
            [("0.0.0.0", "10.0.0.1"), ("::", "fd00::1"), ("fd00::2", "fd00::1"), ("0.0.0.0", "10.0.0.2")]
        {
            let asking = [0, 1].map(|_| EchoSocket::bind(&here, own.parse().unwrap()).unwrap());
            assert_ne!(asking[0].identifier().unwrap(), asking[1].identifier().unwrap());
            asking.iter().for_each(|it| it.set_read_timeout(Some(Duration::from_secs(10))).unwrap());
            let (to, mut got) = (there.parse().unwrap(), vec![0; 70_000]);
            for (sequence, len) in [(7, 0), (8, 56), (u16::MAX, 65_505)] {
                let text: Vec<u8> = (0..len).map(|n| (n * 7 + usize::from(sequence)) as u8).collect();
                asking[0].send_to(to, sequence, &text).unwrap();
                assert_eq!(asking[0].recv_from(&mut got).unwrap(), Echo { from: to, sequence, len });
                assert!(got[..len] == text, "{there} {len}");
            }
            asking[1].set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            assert_eq!(
                asking[1].recv_from(&mut got).unwrap_err().kind(),
                ErrorKind::WouldBlock,
                "it asked nothing"
            );
            let refused = asking[0].send_to(to, 1, &[0; 65_526]).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(90), "EMSGSIZE");
        }
        let strange = EchoSocket::bind(&here, "10.0.0.7".parse().unwrap()).unwrap_err();
        assert_eq!(strange.raw_os_error(), Some(99), "EADDRNOTAVAIL");
    }
}

#[test]
fn many_go_in_one_call_and_come_in_few() {
    let (server, client, there) = sockets(2, "10.0.0.");
    let payloads: Vec<Vec<u8>> = (0..50u8).map(|n| vec![n; usize::from(n) * 20]).collect();
    let messages: Vec<_> =
        payloads.iter().map(|payload| Outgoing { envelope: Envelope::to(there), payload }).collect();
    // What waits for a neighbour's first answer is little.
    client.send_to(b"where are you?", there).unwrap();
    server.recv_from(&mut [0; 100]).unwrap();
    assert_eq!(client.send_many(&messages).unwrap(), 50);
    let mut got = Vec::new();
    while got.len() < 50 {
        let mut buffers = vec![vec![0; 2000]; 16];
        let mut room: Vec<_> = buffers.iter_mut().map(|buffer| Incoming::new(buffer)).collect();
        let count = server.recv_many(&mut room).unwrap();
        assert!((1..=16).contains(&count));
        for message in &room[..count] {
            assert_eq!(message.envelope.unwrap().peer, client.local_addr().unwrap().with_ip([10, 0, 0, 2]));
            got.push(message.to[..message.copied].to_vec());
        }
        assert!(room[count..].iter().all(|message| message.envelope.is_none()));
    }
    assert_eq!(got, payloads);
    assert_eq!(client.send_many(&[]).unwrap(), 0);
}

trait WithIp {
    fn with_ip(self, ip: [u8; 4]) -> SocketAddr;
}

impl WithIp for SocketAddr {
    fn with_ip(self, ip: [u8; 4]) -> SocketAddr {
        SocketAddr::from((ip, self.port()))
    }
}

#[test]
fn a_batch_without_room_sends_what_has_and_a_wrong_one_is_told_apart() {
    let (_server, client, there) = sockets(1, "10.0.0.");
    let (right, long) = (vec![0; 60_000], vec![0; 65_508]);
    let to = Envelope::to(there);
    let wrong = Outgoing { envelope: to, payload: &long };
    let many = Outgoing { envelope: Envelope { segment: 10, ..to }, payload: &right[..1281] };
    let good = Outgoing { envelope: to, payload: &right };
    assert_eq!(client.send_many(&[good, wrong]).unwrap(), 1);
    assert_eq!(client.send_many(&[wrong, good]).unwrap_err().raw_os_error(), Some(90));
    assert_eq!(client.send_msg(&many).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn offload_cuts_and_joins() {
    for (family, _) in FAMILIES {
        let (server, client, there) = sockets(2, family);
        let payload: Vec<u8> = (0..30_000u32).map(|n| (n % 253) as u8).collect();
        let envelope = Envelope { segment: 1000, ..Envelope::to(there) };
        let mut buffer = vec![0; 65_535];
        assert_eq!(client.send_msg(&Outgoing { envelope, payload: &payload }).unwrap(), 30_000);
        for piece in payload.chunks(1000) {
            let (len, _) = server.recv_from(&mut buffer).unwrap();
            assert!(buffer[..len] == *piece);
        }
        server.set_receive_offload(true).unwrap();
        client.send_msg(&Outgoing { envelope, payload: &payload }).unwrap();
        let mut message = Incoming::new(&mut buffer);
        assert_eq!(server.recv_msg(&mut message).unwrap(), 30_000);
        assert_eq!(message.envelope.unwrap().segment, 1000);
        assert!(buffer[..30_000] == payload);
    }
}

#[test]
fn packets_carry_what_the_socket_or_the_call_says() {
    for (family, _) in FAMILIES {
        let (server, client, there) = sockets(1, family);
        client.set_traffic_class(0x88).unwrap();
        client.set_ttl(9).unwrap();
        let mut buffer = [0; 10];
        for (tos, hops) in [(None, None), (Some(0x28), Some(200))] {
            let envelope = Envelope { tos, hops, ..Envelope::to(there) };
            client.send_msg(&Outgoing { envelope, payload: b"x" }).unwrap();
            let mut message = Incoming::new(&mut buffer);
            server.recv_msg(&mut message).unwrap();
            let seen = message.envelope.unwrap();
            assert_eq!((seen.tos, seen.hops), (tos.or(Some(0x88)), hops.or(Some(9))));
            assert_eq!(seen.local, Some(there.ip()));
        }
        assert_eq!(client.set_ttl(256).unwrap_err().kind(), ErrorKind::InvalidInput);
        client.set_dont_fragment(true).unwrap();
        // The call tells it, unless its lane is busy.
        let refused = (0..1000).find_map(|_| client.send_to(&[0; 5000], there).err());
        assert_eq!(refused.unwrap().raw_os_error(), Some(90));
    }
}

#[test]
fn a_socket_is_connected_again_and_told_of_its_own_peers_errors() {
    let [server, client] = pair_with_lanes(2);
    let one = UdpSocket::bind(&server, "10.0.0.1:9").unwrap();
    let socket = UdpSocket::bind(&client, "0.0.0.0:0").unwrap();
    assert_eq!(socket.send(b"x").unwrap_err().kind(), ErrorKind::NotConnected);
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.connect("10.0.0.1:9").unwrap();
    assert_eq!(socket.local_addr().unwrap().ip(), SocketAddr::from(([10, 0, 0, 2], 0)).ip());
    assert_eq!(socket.peer_addr().unwrap(), "10.0.0.1:9".parse().unwrap());
    socket.send(b"hello").unwrap();
    let mut buffer = [0; 10];
    let (len, from) = one.recv_from(&mut buffer).unwrap();
    one.send_to(&buffer[..len], from).unwrap();
    assert_eq!(socket.recv(&mut buffer).unwrap(), 5);
    // Nobody is there: the next call is told.
    socket.connect("10.0.0.1:10").unwrap();
    socket.send(b"hello").unwrap();
    assert_eq!(socket.recv(&mut buffer).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(socket.connect("192.0.2.1:1").unwrap_err().kind(), ErrorKind::NetworkUnreachable);
    socket.disconnect().unwrap();
    assert!(socket.local_addr().unwrap().ip().is_unspecified());
    assert_eq!(socket.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
}
