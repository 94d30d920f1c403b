//! A frame is sent whole, whatever room there is before it for the header that goes with it.
//!
//! As root; otherwise the test says why it is skipped.

use crate::common;
use std::net::UdpSocket;
use std::time::Duration;

use firelane_frame::{Chain, Driver, Pools, PoolsConfig, virtio};
use firelane_units::DropCounters;

/// A datagram from 10.0.0.2:9 to 10.0.0.1:7 without UDP's checksum, which IPv4 does not ask for.
fn datagram(text: &[u8]) -> Vec<u8> {
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1];
    let length = |before: usize| u16::try_from(before + text.len()).unwrap().to_be_bytes();
    ip[2..4].copy_from_slice(&length(28));
    let sum: u32 = ip.chunks(2).map(|it| u32::from(u16::from_be_bytes([it[0], it[1]]))).sum();
    let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let link = [2, 8, 0x20, 0, 0, 1, 2, 8, 0x20, 0, 0, 2, 8, 0];
    let [high, low] = length(8);
    [&link[..], &ip, &[0, 9, 0, 7, high, low, 0, 0], text].concat()
}

#[test]
fn a_frame_is_sent_whole_with_room_before_it_and_without() {
    let Some(mut queues) = common::taps("sends0", 1, &["10.0.0.1/24"]) else { return };
    let socket = UdpSocket::bind("10.0.0.1:7").expect("the TAP has the address");
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut pools = Pools::new(PoolsConfig { small_slots: 8, large_slots: 1 });
    for headroom in [128, virtio::HEADER_BYTES, virtio::HEADER_BYTES - 1, 0] {
        let text = [headroom as u8; 100];
        let mut frame = pools.take(200).expect("there are frames");
        frame.reset(headroom);
        frame.extend_from_slice(&datagram(&text));
        let (mut chain, mut drops) = (Chain::new(), DropCounters::default());
        chain.push(frame);
        queues[0].transmit(&mut chain, &mut drops);
        assert!(chain.is_empty() && drops == DropCounters::default(), "{headroom}: {drops:?}");
        let mut got = [0; 200];
        let count = socket.recv(&mut got).unwrap_or_else(|error| panic!("{headroom}: {error}"));
        assert_eq!(&got[..count], &text, "{headroom}");
    }
}
