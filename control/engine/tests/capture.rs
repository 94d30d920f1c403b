//! Looking on: what passes a link, with directions, drops and their reasons, and the end of a capture.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use firelane::{Capture, CaptureOf, ChangeError, TcpListener, TcpStream, UdpSocket};
use firelane_units::{FlowId, LinkId};
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::{Block, PcapNgReader};

use crate::wired::pair;

const WHOLE: usize = 65_549;

/// Reads until `is_enough`.
fn read(
    capture: &mut Capture,
    is_enough: impl Fn(&[EnhancedPacketBlock<'static>]) -> bool,
) -> Vec<EnhancedPacketBlock<'static>> {
    let (mut out, begin) = (Vec::new(), Instant::now());
    loop {
        capture.read_pcapng(&mut out, u64::MAX, |link| format!("port {link}"));
        let mut reader = PcapNgReader::new(out.as_slice()).unwrap();
        let mut packets = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                packets.push(packet.into_owned());
            }
        }
        if is_enough(&packets) {
            return packets;
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "{} frames are not enough", packets.len());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn comment(packet: &EnhancedPacketBlock<'_>) -> Option<String> {
    packet.options.iter().find_map(|option| match option {
        EnhancedPacketOption::Comment(text) => Some(text.to_string()),
        _ => None,
    })
}

#[test]
fn a_connection_is_seen_in_both_directions_in_the_order_of_time() {
    let [server, client] = pair();
    let mut capture = client.engine().capture(CaptureOf::Link(LinkId(0)), WHOLE).unwrap();
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    let mut stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    stream.write_all(b"seen").unwrap();
    accepted.read_exact(&mut [0; 4]).unwrap();
    // Once as the VNIC sends it, and once as it leaves by the wire.
    let is_text = |packet: &&EnhancedPacketBlock<'_>| packet.data.ends_with(b"seen");
    let packets = read(&mut capture, |packets| packets.iter().filter(is_text).count() >= 2);
    assert!(packets.windows(2).all(|pair| pair[0].timestamp <= pair[1].timestamp));
    let directions: Vec<String> =
        packets.iter().filter(is_text).map(|packet| format!("{:?}", packet.options)).collect();
    assert_eq!(directions, ["[Flags(2)]", "[Flags(1)]"], "out of the VNIC, into the wire's port");
    let age = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(age.abs_diff(packets[0].timestamp) < Duration::from_secs(60), "the time is the wall's");
    assert_eq!(capture.lost(), 0);
}

#[test]
fn a_dropped_frame_carries_its_reason() {
    let [server, client] = pair();
    // The flow of the server's VNIC: what its netstack gets carries it.
    let mut capture = server.engine().capture(CaptureOf::Link(LinkId(0)), 96).unwrap();
    let socket = UdpSocket::bind(&client, "10.0.0.2:9").unwrap();
    socket.send_to(&[7; 500], "10.0.0.1:9").unwrap();
    // Beside what the netstacks say to their link by themselves.
    let is_it = |packet: &EnhancedPacketBlock<'_>| {
        comment(packet).is_some_and(|text| text == "dropped: udp_no_socket (udp)")
    };
    let packets = read(&mut capture, |packets| packets.iter().any(is_it));
    let dropped = packets.iter().find(|packet| is_it(packet)).unwrap();
    assert_eq!((dropped.data.len(), dropped.original_len), (96, 542));
}

#[test]
fn captures_are_bounded_and_end_with_their_values() {
    let [server, _client] = pair();
    let engine = server.engine();
    let begin = || engine.capture(CaptureOf::Link(LinkId(0)), WHOLE);
    let mut running: Vec<Capture> = (0..8).map(|_| begin().unwrap()).collect();
    assert!(matches!(begin(), Err(ChangeError::ManyCaptures(8))));
    running.pop();
    assert!(begin().is_ok());
    let nothing = engine.capture(CaptureOf::Link(LinkId(99)), WHOLE);
    assert!(matches!(nothing, Err(ChangeError::NoLink(LinkId(99)))));
    let nothing = engine.capture(CaptureOf::Flow(FlowId(99)), WHOLE);
    assert!(matches!(nothing, Err(ChangeError::NoFlow(FlowId(99)))));
}

#[test]
fn who_does_not_read_loses_frames_and_the_traffic_none() {
    let [server, client] = pair();
    let mut capture = client.engine().capture(CaptureOf::Link(LinkId(0)), WHOLE).unwrap();
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    let mut stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        accepted.read_to_end(&mut received).unwrap();
        received.len()
    });
    stream.write_all(&vec![1; 20 << 20]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(reader.join().unwrap(), 20 << 20);
    assert!(capture.lost() > 0, "four megabytes do not hold twenty");
    let packets = read(&mut capture, |packets| !packets.is_empty());
    assert!(packets.len() > 10, "{}", packets.len());
}

/// Whoever ends a capture ends no other that begins just then.
#[test]
fn captures_of_several_threads_begin_and_end_for_themselves() {
    let [server, client] = pair();
    let sink = UdpSocket::bind(&server, "10.0.0.1:9").unwrap();
    let source = UdpSocket::bind(&client, "10.0.0.2:5000").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let mut capture = client.engine().capture(CaptureOf::Link(LinkId(0)), WHOLE).unwrap();
                    // Each thread's frames are seen by all, and one is enough.
                    source.send_to(b"x", "10.0.0.1:9").unwrap();
                    assert!(!read(&mut capture, |packets| !packets.is_empty()).is_empty());
                }
            });
        }
    });
    drop(sink);
}
