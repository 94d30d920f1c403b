//! What is told of a connection, and what a silent one holds.

use firelane_tcp::{TcpConfig, Willing};
use firelane_wire::{TcpFlags, TcpOptions};

use crate::common::lab::{ACK, Lab, Peer, SYN, ms, plain, secs};

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
    assert_eq!((word(144), word(236)), (77, u32::from(info.timeouts)), "tcpi_notsent_bytes, tcpi_rehash");
    // tcpi_bytes_sent and tcpi_bytes_retrans.
    assert_eq!((word(200), word(208)), (3000 + 1000 * word(100), 1000 * word(100)));
    assert_eq!((word(228), word(232)), (info.send_window.0 as u32, info.receive_window.0 as u32));
}

/// What was repeated is counted beside what left for the first time, and a SYN is no text.
#[test]
fn repeated_syns_take_nothing_from_the_segments_with_text() {
    let mut lab = Lab::opening(plain());
    assert_eq!(lab.sent().len(), 1);
    assert_eq!(lab.wait(secs(4)).0.len(), 2, "after 1 and 3 s");
    let told = |lab: &Lab| {
        let info = lab.connection.info(lab.now);
        (info.text_out_once(), info.troubles.repeated)
    };
    assert_eq!(told(&lab), (0, 2));
    let options = TcpOptions { mss: Some(1000), ..TcpOptions::EMPTY };
    lab.get(Peer::new(SYN.with(ACK), 0).options(options));
    lab.write(1000);
    lab.sent();
    assert_eq!(told(&lab), (1, 2));
    lab.wait(secs(4));
    let (once, repeated) = told(&lab);
    assert!(once == 1 && repeated > 2, "{once} {repeated}");
    lab.get(Peer::new(ACK, 1).acks(1001));
    lab.write(2000);
    lab.sent();
    assert_eq!(told(&lab).0, 3, "tcpi_total_retrans has them all: {repeated}");
}

/// Nothing has come yet: times count from when it could, not from when the clock began.
#[test]
fn tcp_info_counts_silence_from_the_beginning() {
    // tcpi_last_data_sent and tcpi_last_data_recv.
    let silence = |lab: &Lab| (info_word(&linux_info(lab), 44), info_word(&linux_info(lab), 52));
    let mut lab = Lab::opening(plain());
    assert_eq!(lab.sent().len(), 1);
    lab.now += ms(300);
    assert_eq!(silence(&lab), (300, 300), "since the SYN");
    assert_eq!(lab.wait(secs(1)).0.len(), 1, "the SYN again");
    let bytes = linux_info(&lab);
    assert_eq!((bytes[2], info_word(&bytes, 100)), (1, 1), "tcpi_retransmits, tcpi_total_retrans");
    lab.get(Peer::new(SYN.with(ACK), 0));
    lab.now += ms(200);
    assert_eq!(silence(&lab), (200, 200), "since the handshake");
    assert_eq!((linux_info(&lab)[2], info_word(&linux_info(&lab), 100)), (0, 1));
    lab.get(Peer::new(ACK, 1).text(100));
    lab.now += ms(50);
    assert_eq!(silence(&lab), (250, 50));
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
    assert_eq!(bytes.len(), 280);
    assert_eq!(info_word(&bytes, 76), 0x7fff_ffff, "tcpi_snd_ssthresh");
    assert_eq!((info_word(&bytes, 24), info_word(&bytes, 100), info_word(&bytes, 88)), (0, 0, 3));
}

fn info_long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn linux_info(lab: &Lab) -> [u8; firelane_tcp::TCP_INFO_LEN] {
    lab.connection.info(lab.now).tcp_info(&firelane_tcp::Surroundings {
        path_mtu: firelane_units::Mtu::ETHERNET,
        unsent: firelane_units::Bytes::ZERO,
        receive_buffer: firelane_units::Bytes(10_000),
    })
}

/// tcpi_busy_time and tcpi_rwnd_limited in milliseconds.
fn busy(lab: &Lab) -> (u64, u64) {
    let bytes = linux_info(lab);
    assert_eq!(info_long(&bytes, 184), 0, "tcpi_sndbuf_limited");
    (info_long(&bytes, 168) / 1_000, info_long(&bytes, 176) / 1_000)
}

/// Busy is from the first octet sent to the last one acknowledged; what does not fit the peer's window counts twice.
#[test]
fn tcp_info_tells_how_long_it_was_busy_and_with_what() {
    let mut lab = Lab::established();
    lab.now += ms(500);
    assert_eq!(busy(&lab), (0, 0), "nothing to send");
    lab.write(3_000);
    lab.sent();
    lab.now += ms(40);
    assert_eq!(busy(&lab), (40, 0), "it waits for an ACK");
    lab.get(Peer::new(ACK, 1).acks(2_001));
    lab.now += ms(10);
    lab.get(Peer::new(ACK, 1).acks(3_001));
    lab.now += ms(700);
    assert_eq!(busy(&lab), (50, 0), "all is acknowledged");
    // The window holds one segment, and then none.
    lab.get(Peer::new(ACK, 1).acks(3_001).win(1_000));
    lab.write(2_000);
    assert_eq!(lab.sent().len(), 1);
    lab.now += ms(20);
    assert_eq!(busy(&lab), (70, 20), "another segment does not fit");
    lab.get(Peer::new(ACK, 1).acks(4_001).win(0));
    assert_eq!(lab.sent().len(), 0);
    lab.now += ms(100);
    assert_eq!(busy(&lab), (170, 120), "nothing is out, and no window");
    lab.get(Peer::new(ACK, 1).acks(4_001).win(10_000));
    assert_eq!(lab.sent().len(), 1);
    lab.now += ms(30);
    lab.get(Peer::new(ACK, 1).acks(5_001));
    lab.now += ms(500);
    assert_eq!(busy(&lab), (200, 120));
    // Rest changes nothing of it.
    lab.wait(secs(3));
    let rest = lab.connection.rest(lab.now).expect("it is quiet");
    let info = rest.look(|connection| connection.info(lab.now));
    assert_eq!((info.busy.busy, info.busy.window_limited), (200, 120));
}

/// What the peer acknowledges with a mark echoed arrived marked (tcpi_delivered_ce), as Linux counts it.
#[test]
fn tcp_info_tells_what_arrived_marked() {
    let ece = TcpFlags::ECE;
    let mut lab = Lab::opening(TcpConfig { ecn: Willing::Active, ..plain() });
    assert_eq!(lab.sent().len(), 1);
    lab.get(Peer::new(SYN.with(ACK).with(ece), 0));
    lab.write(4_000);
    lab.sent();
    lab.get(Peer::new(ACK, 1).acks(1_001));
    assert_eq!((info_word(&linux_info(&lab), 192), info_word(&linux_info(&lab), 196)), (2, 0));
    lab.get(Peer::new(ACK.with(ece), 1).acks(3_001));
    let bytes = linux_info(&lab);
    let segment = u32::from(lab.connection.info(lab.now).send_mss.bytes());
    assert_eq!(info_word(&bytes, 196), 2_000u32.div_ceil(segment), "tcpi_delivered_ce");
    lab.get(Peer::new(ACK, 1).acks(4_001));
    assert_eq!(info_word(&linux_info(&lab), 196), 2_000u32.div_ceil(segment), "no mark, no count");
}

/// What `connstat` shows as INUNORDERBYTES, INUNORDERSEGS, RTTS and RTTC.
#[test]
fn what_came_early_and_how_round_trips_went() {
    let mut lab = Lab::established();
    let before = lab.connection.info(lab.now);
    assert_eq!((before.troubles.unordered_bytes.0, before.troubles.unordered), (0, 0));
    let (count, sum) = before.rtt_measured;
    lab.get(Peer::new(ACK, 101).text(70));
    lab.get(Peer::new(ACK, 101).text(70));
    lab.get(Peer::new(ACK, 301).text(5));
    lab.get(Peer::new(ACK, 1).text(100));
    let after = lab.connection.info(lab.now).troubles;
    assert_eq!((after.unordered_bytes.0, after.unordered), (75, 2), "a duplicate is not early");
    for round_trip in [30, 50] {
        lab.write(10);
        lab.sent();
        lab.now += ms(round_trip);
        let end = lab.connection.sequence()[0];
        let ack = end.0.wrapping_sub(lab.connection.sequence()[1].0);
        let una = lab.connection.info(lab.now).bytes_acknowledged.0 as u32;
        lab.get(Peer::new(ACK, 171).acks(1 + una + ack));
    }
    let (more, later) = lab.connection.info(lab.now).rtt_measured;
    assert_eq!((more - count, later - sum), (2, ms(80)));
}

/// tcpi_total_rto, tcpi_total_rto_recoveries and tcpi_total_rto_time: from the first time-out to an answer is one recovery.
#[test]
fn tcp_info_tells_of_silence() {
    let half = |bytes: &[u8], at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let silence = |lab: &Lab| {
        let bytes = linux_info(lab);
        (half(&bytes, 240), half(&bytes, 242), info_word(&bytes, 244))
    };
    let mut lab = Lab::opening(plain());
    lab.sent();
    assert_eq!(lab.wait(ms(1_000)).0.len(), 1, "the SYN again");
    lab.now += ms(70);
    assert_eq!(silence(&lab), (1, 1, 70), "it is not over");
    lab.get(Peer::new(SYN.with(ACK), 0));
    lab.now += ms(200);
    assert_eq!(silence(&lab), (1, 1, 70));
    lab.write(100);
    lab.sent();
    let (rto, begun) = (lab.connection.info(lab.now).rto, lab.now);
    lab.wait(rto * 4);
    let (count, recoveries, spent) = silence(&lab);
    assert_eq!((count, recoveries), (3, 2), "two more, of one recovery");
    let expected = (lab.now.saturating_since(begun) - rto).as_millis() as u32 + 70;
    assert!(spent.abs_diff(expected) <= 20, "{spent} {expected}");
    lab.get(Peer::new(ACK, 1).acks(101));
    lab.now += ms(500);
    assert_eq!(silence(&lab), (count, recoveries, spent), "it is over");
}

/// What arrived with which code point, where both ends take part in ECN (tcpi_received_ce to tcpi_received_ce_bytes); what the
/// options of RFC 9768 would say stays zero.
#[test]
fn tcp_info_tells_what_came_marked() {
    use firelane_wire::Ecn;
    let told = |lab: &Lab| {
        let bytes = linux_info(lab);
        [248, 252, 256, 260, 264, 268, 272, 276].map(|at| info_word(&bytes, at))
    };
    for willing in [Willing::Active, Willing::Never] {
        let mut lab = Lab::opening(TcpConfig { ecn: willing, ..plain() });
        lab.sent();
        lab.get(Peer::new(SYN.with(ACK).with(TcpFlags::ECE), 0));
        for (at, ecn) in
            [(1, Ecn::Capable0), (101, Ecn::Congested), (201, Ecn::Capable1), (301, Ecn::NotCapable)]
        {
            lab.get(Peer::new(ACK, at).text(100).ecn(ecn));
        }
        let expected = if willing == Willing::Active { [1, 0, 0, 0, 100, 100, 100, 0] } else { [0; 8] };
        assert_eq!(told(&lab), expected, "{willing:?}");
    }
}
