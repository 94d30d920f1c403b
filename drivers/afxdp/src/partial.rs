//! The partial-checksum trap: frames of a sender on this host whose transport checksum nobody has completed.
//!
//! Called by `queue.rs` for virtual interfaces. The kernel leaves a checksum to the device and says so beside the
//! frame, but an XDP program redirects the bytes alone. Such a frame is known by its field, which holds the folded
//! sum of the pseudo-header and nothing else; a complete checksum has that value once in 65,536 frames, and then its
//! frame is taken as good unseen, on an interface behind which there is no wire that could have spoiled it.

use firelane_frame::Checksum;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// What the frame's bytes say about its transport checksum.
pub(crate) fn of(frame: &[u8]) -> Checksum {
    find(frame).unwrap_or_default()
}

fn find(frame: &[u8]) -> Option<Checksum> {
    let mut network = 14;
    while matches!(frame.get(network - 2..network)?, [0x81, 0x00] | [0x88, 0xa8]) {
        network += 4;
    }
    let packet = &frame[network..];
    let (addresses, protocol, header, transport_len) =
        match (frame.get(network - 2..network)?, packet.first()? >> 4) {
            ([0x08, 0x00], 4) => {
                let header = usize::from(packet[0] & 15) * 4;
                let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
                // A fragment's sum is not its own.
                let is_whole = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff == 0;
                (packet.get(12..20).filter(|_| is_whole)?, packet[9], header, total.checked_sub(header)?)
            }
            ([0x86, 0xdd], 6) => {
                let length = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
                (packet.get(8..40)?, packet[6], 40, length)
            }
            _ => return None,
        };
    let offset = match protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let field = packet.get(header + offset..header + offset + 2)?;
    let words = addresses.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum = words.sum::<u32>() + u32::from(protocol) + transport_len as u32;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let start = u16::try_from(network + header).ok()?;
    (u16::from_be_bytes([field[0], field[1]]) == sum as u16)
        .then_some(Checksum::Partial { start, offset: offset as u8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UDP from 10.0.0.1 to 10.0.0.2 with eight bytes of text and this checksum.
    fn datagram(checksum: u16, tag: bool) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if tag {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend([8, 0, 0x45, 0, 0, 36, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 9, 0, 9, 0, 16]);
        frame.extend(checksum.to_be_bytes());
        frame.extend(*b"whatever");
        frame
    }

    /// 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 17 + 16
    const PSEUDO: u16 = 0x1424;

    #[test]
    fn a_pseudo_headers_sum_alone_is_partial() {
        assert_eq!(of(&datagram(PSEUDO, false)), Checksum::Partial { start: 34, offset: 6 });
        assert_eq!(of(&datagram(PSEUDO, true)), Checksum::Partial { start: 38, offset: 6 });
        assert_eq!(of(&datagram(PSEUDO + 1, false)), Checksum::Unchecked);
    }

    #[test]
    fn whatever_is_cut_off_nothing_is_read_beyond() {
        let frame = datagram(PSEUDO, true);
        for len in 0..46 {
            assert_eq!(of(&frame[..len]), Checksum::Unchecked, "{len}");
        }
        let mut fragment = datagram(PSEUDO, false);
        fragment[20] = 0x20;
        assert_eq!(of(&fragment), Checksum::Unchecked, "a fragment");
    }
}
