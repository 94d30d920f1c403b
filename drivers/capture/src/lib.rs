//! Frames as pcapng (draft-ietf-opsawg-pcapng), the format of tcpdump and Wireshark.
//!
//! Only the format: blocks are appended to a buffer, whole, and who has the buffer sends it where it is wanted. Called
//! by the engine's reader of captures. Interfaces are named when their first frame comes; times are in nanoseconds; the
//! reason of a drop is the frame's comment.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::time::Duration;

use firelane_units::{Direction, DropReason, LinkId};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
/// The number whose bytes tell the order of all others.
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;

const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;
const USER_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const TIME_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;
const RECEIVED: u16 = 4;
const DROPPED: u16 = 5;
/// Times are in units of 10^-9 s.
const NANOSECONDS: u8 = 9;
/// The direction bits of a packet's flags.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// A frame to be written.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// At which port.
    pub link: LinkId,
    /// When, since 1970.
    pub at: Duration,
    /// Which way.
    pub direction: Direction,
    /// Why it was dropped, if it was.
    pub reason: Option<DropReason>,
    /// How long it was.
    pub len: usize,
    /// As much of it as was copied.
    pub bytes: &'a [u8],
}

/// Writes one section.
#[derive(Debug, Default)]
pub struct Writer {
    interfaces: BTreeMap<LinkId, u32>,
}

impl Writer {
    /// A section without interfaces; its header goes to `out`.
    pub fn new(out: &mut Vec<u8>) -> Self {
        block(out, SECTION, |body| {
            body.extend(BYTE_ORDER.to_ne_bytes());
            // Version 1.0; the section's length is not known.
            body.extend([1_u16, 0].into_iter().flat_map(u16::to_ne_bytes));
            body.extend((-1_i64).to_ne_bytes());
            option(body, USER_APPLICATION, concat!("firelane ", env!("CARGO_PKG_VERSION")).as_bytes());
            option(body, END_OF_OPTIONS, &[]);
        });
        Self::default()
    }

    /// Appends a frame; if it is the first at its port, the port is introduced with its `name`.
    pub fn packet(&mut self, out: &mut Vec<u8>, packet: &Packet<'_>, name: impl FnOnce() -> String) {
        let next = self.interfaces.len() as u32;
        let interface = *self.interfaces.entry(packet.link).or_insert_with(|| {
            introduce(out, &name());
            next
        });
        block(out, PACKET, |body| {
            body.extend(interface.to_ne_bytes());
            body.extend(time(packet.at));
            body.extend((packet.bytes.len() as u32).to_ne_bytes());
            body.extend((packet.len as u32).to_ne_bytes());
            padded(body, packet.bytes);
            let flags = match packet.direction {
                Direction::In => INBOUND,
                Direction::Out => OUTBOUND,
            };
            option(body, PACKET_FLAGS, &flags.to_ne_bytes());
            if let Some(reason) = packet.reason {
                let comment = format!("dropped: {} ({})", reason.word(), reason.station().word());
                option(body, COMMENT, comment.as_bytes());
            }
            option(body, END_OF_OPTIONS, &[]);
        });
    }

    /// Appends how many frames were captured and how many the capture lost, if there is an interface.
    pub fn statistics(&self, out: &mut Vec<u8>, at: Duration, captured: u64, lost: u64) {
        if self.interfaces.is_empty() {
            return;
        }
        block(out, STATISTICS, |body| {
            // The whole capture shares its rings, so the first interface speaks for all.
            body.extend(0_u32.to_ne_bytes());
            body.extend(time(at));
            option(body, RECEIVED, &(captured + lost).to_ne_bytes());
            option(body, DROPPED, &lost.to_ne_bytes());
            option(body, END_OF_OPTIONS, &[]);
        });
    }
}

fn introduce(out: &mut Vec<u8>, name: &str) {
    block(out, INTERFACE, |body| {
        body.extend([LINKTYPE_ETHERNET, 0].into_iter().flat_map(u16::to_ne_bytes));
        // No limit: a frame's own lengths tell how much was copied.
        body.extend(0_u32.to_ne_bytes());
        option(body, INTERFACE_NAME, name.as_bytes());
        option(body, TIME_RESOLUTION, &[NANOSECONDS]);
        option(body, END_OF_OPTIONS, &[]);
    });
}

/// A time as two words, the upper first.
fn time(at: Duration) -> impl Iterator<Item = u8> {
    let nanos = at.as_nanos() as u64;
    [(nanos >> 32) as u32, nanos as u32].into_iter().flat_map(u32::to_ne_bytes)
}

/// A block: type, length, body, length again.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend(kind.to_ne_bytes());
    out.extend([0; 4]);
    body(out);
    let len = (out.len() - begin + 4) as u32;
    out.extend(len.to_ne_bytes());
    out[begin + 4..begin + 8].copy_from_slice(&len.to_ne_bytes());
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    // Names and comments are short; the field has two bytes.
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend(code.to_ne_bytes());
    body.extend((value.len() as u16).to_ne_bytes());
    padded(body, value);
}

/// Bytes, filled up to a multiple of four.
fn padded(body: &mut Vec<u8>, bytes: &[u8]) {
    body.extend_from_slice(bytes);
    body.resize(body.len() + bytes.len().wrapping_neg() % 4, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::{Block, PcapNgReader};

    #[test]
    fn a_reader_of_others_finds_what_was_written() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        let at = Duration::new(1_700_000_000, 123_456_789);
        let mut put = |link, reason: Option<DropReason>, bytes: &[u8]| {
            let direction = if reason.is_none() { Direction::Out } else { Direction::In };
            let packet = Packet { link: LinkId(link), at, direction, reason, len: 1500, bytes };
            writer.packet(&mut out, &packet, || format!("port{link}"));
        };
        put(7, None, b"first");
        put(9, Some(DropReason::ListenFull), b"a second");
        put(7, None, b"");
        writer.statistics(&mut out, at, 3, 4);
        let mut reader = PcapNgReader::new(out.as_slice()).unwrap();
        let (mut packets, mut statistics) = (Vec::new(), 0);
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::EnhancedPacket(packet) => packets.push(packet.into_owned()),
                Block::InterfaceStatistics(_) => statistics += 1,
                _ => {}
            }
        }
        let names: Vec<String> = reader.interfaces().iter().map(|it| format!("{:?}", it.options)).collect();
        assert!(names[0].contains("port7") && names[1].contains("port9") && names.len() == 2, "{names:?}");
        let ids: Vec<u32> = packets.iter().map(|packet| packet.interface_id).collect();
        assert_eq!((ids, statistics), (vec![0, 1, 0], 1));
        assert_eq!(packets[0].data.as_ref(), b"first");
        assert_eq!(packets[0].timestamp, at);
        assert_eq!(packets[1].original_len, 1500);
        let comment = packets[1].options.iter().find_map(|option| match option {
            EnhancedPacketOption::Comment(text) => Some(text.to_string()),
            _ => None,
        });
        assert_eq!(comment.unwrap(), "dropped: tcp_listen_full (tcp)");
        assert_eq!(packets[0].options.len(), 1, "the direction alone");
    }
}
