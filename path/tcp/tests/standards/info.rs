//! What is told of a connection, and what a silent one holds.

use crate::common::lab::{ACK, Lab, Peer, secs};

/// An idle connection holds no ring memory.
#[test]
fn silence_gives_the_memory_back() {
    let mut lab = Lab::established();
    lab.get(Peer::new(ACK, 1).text(100));
    lab.write(100);
    lab.sent();
    lab.get(Peer::new(ACK, 101).acks(101));
    assert_eq!(lab.read(), 100);
    assert!(lab.reader.attached_bytes() > 0 && lab.writer.attached_bytes() > 0);
    lab.wait(secs(3));
    assert_eq!((lab.reader.attached_bytes(), lab.writer.attached_bytes()), (0, 0));
    assert_eq!(lab.connection.poll_at(), None);
}

/// A word of `struct tcp_info`, by its offset in include/uapi/linux/tcp.h.
fn info_word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[test]
fn tcp_info_tells_what_happened() {
    let mut lab = Lab::established();
    let around = firelane_tcp::Surroundings {
        path_mtu: firelane_units::Mtu::ETHERNET,
        unsent: firelane_units::Bytes(77),
        receive_buffer: firelane_units::Bytes(10_000),
    };
    lab.get(Peer::new(ACK, 1).text(100));
    lab.get(Peer::new(ACK, 201).text(100));
    lab.write(3000);
    lab.sent();
    lab.get(Peer::new(ACK, 101).acks(1001));
    lab.wait(secs(2));
    let info = lab.connection.info(lab.now);
    let bytes = info.tcp_info(&around);
    let byte = |at: usize| bytes[at];
    let word = |at| info_word(&bytes, at);
    // tcpi_state, tcpi_ca_state, tcpi_retransmits, tcpi_backoff.
    assert_eq!((byte(0), byte(1), byte(2), byte(4)), (1, 4, info.timeouts, info.backoff));
    assert!(info.timeouts > 0 && word(8) >= 1_000_000, "tcpi_rto, doubled");
    // tcpi_snd_mss, tcpi_unacked, tcpi_lost, tcpi_retrans.
    assert_eq!((word(16), word(24)), (1000, 2));
    assert_eq!(word(28) + word(32) + word(36), 2, "tcpi_sacked, tcpi_lost, tcpi_retrans");
    // tcpi_pmtu, tcpi_snd_cwnd, tcpi_advmss.
    assert_eq!((word(60), word(80), word(84)), (1500, 1, u32::from(info.receive_mss.bytes())));
    assert_eq!(word(100), u32::from(info.timeouts), "tcpi_total_retrans");
    // tcpi_bytes_acked and tcpi_bytes_received, of 64 bits.
    assert_eq!((word(120), word(128)), (1000, 100));
    // tcpi_segs_in, tcpi_data_segs_in, tcpi_rcv_ooopack.
    assert_eq!((word(140) - word(152), word(152), word(224)), (word(140) - 2, 2, 1));
    assert_eq!(word(156), 3 + u32::from(info.timeouts), "tcpi_data_segs_out");
    assert_eq!((word(144), word(236)), (77, 0), "tcpi_notsent_bytes, tcpi_rehash");
    // tcpi_bytes_sent and tcpi_bytes_retrans.
    assert_eq!((word(200), word(208)), (3000 + 1000 * word(100), 1000 * word(100)));
    assert_eq!((word(228), word(232)), (info.send_window.0 as u32, info.receive_window.0 as u32));
}

#[test]
fn tcp_info_of_a_new_connection() {
    let lab = Lab::established();
    let around = firelane_tcp::Surroundings {
        path_mtu: firelane_units::Mtu::ETHERNET,
        unsent: firelane_units::Bytes::ZERO,
        receive_buffer: firelane_units::Bytes(10_000),
    };
    let bytes = lab.connection.info(lab.now).tcp_info(&around);
    assert_eq!(bytes.len(), 240);
    assert_eq!(info_word(&bytes, 76), 0x7fff_ffff, "tcpi_snd_ssthresh");
    assert_eq!((info_word(&bytes, 24), info_word(&bytes, 100), info_word(&bytes, 88)), (0, 0, 3));
}
