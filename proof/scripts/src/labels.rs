//! The flow labels of what a netstack sends (RFC 6437): every script over IPv6 is held to them.
//!
//! One flow, one label, from its first packet to its last, also of what answers for a connection that is not there yet or
//! any more; and never none. Only a segment that is sent again may have a new one, and then so has what follows it; what
//! answers when the connection is gone has the first again.

use std::collections::{HashMap, HashSet};

use firelane_wire::{IpProtocol, Ipv6View};

/// The labels that have come, by protocol and ports. Only one pair of addresses plays in a script.
#[derive(Default)]
pub(crate) struct Labels(HashMap<(u8, [u8; 4]), Flow>);

struct Flow {
    first: u32,
    now: u32,
    /// The sequence numbers of segments that take some.
    sent: HashSet<[u8; 4]>,
}

/// The sequence number of a segment with text, SYN or FIN.
fn sequence(segment: &[u8]) -> Option<[u8; 4]> {
    let (offset, flags) = (usize::from(segment.get(12)? >> 4) * 4, segment.get(13)?);
    let takes = segment.len() > offset || flags & 3 != 0;
    segment[4..].first_chunk().copied().filter(|_| takes)
}

impl Labels {
    /// Takes note of a packet's; says whether it is a new one of its flow, or what is wrong with it.
    pub(crate) fn note(&mut self, packet: &Ipv6View<'_>) -> Result<bool, String> {
        let (protocol, label) = (packet.next_header(), packet.flow_label());
        let has_ports = matches!(protocol, IpProtocol::TCP | IpProtocol::UDP);
        let Some(&ports) = packet.payload().first_chunk().filter(|_| has_ports) else { return Ok(false) };
        let new = || Flow { first: label, now: label, sent: HashSet::new() };
        let flow = self.0.entry((protocol.0, ports)).or_insert_with(new);
        let number = sequence(packet.payload()).filter(|_| protocol == IpProtocol::TCP);
        let is_repeat = number.is_some_and(|number| !flow.sent.insert(number));
        match label {
            0 => Err("a packet of a flow without a label".into()),
            _ if label == flow.now || label == flow.first => Ok(false),
            _ if is_repeat => {
                flow.now = label;
                Ok(true)
            }
            _ => Err(format!("the flow label {label:05x}, it was {:05x}", flow.now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use firelane_wire::Ipv6Repr;

    use super::*;

    #[test]
    fn a_label_that_changes_or_is_missing_is_named() {
        let mut labels = Labels::default();
        let mut note = |port: u8, number: u8, flow_label| {
            let ends = ["fd00::1", "fd00::2"].map(|ip| ip.parse().unwrap());
            let header = Ipv6Repr { flow_label, ..Ipv6Repr::new(ends[0], ends[1], IpProtocol::TCP, 24) };
            let mut packet = [0; 64];
            packet[40..48].copy_from_slice(&[0, port, 0, 9, 0, 0, 0, number]);
            packet[52] = 5 << 4;
            header.emit(&mut packet);
            labels.note(&Ipv6View::parse(&packet).unwrap())
        };
        assert_eq!((note(1, 0, 5), note(1, 4, 5), note(2, 0, 6)), (Ok(false), Ok(false), Ok(false)));
        assert_eq!(note(1, 8, 6).unwrap_err(), "the flow label 00006, it was 00005");
        assert_eq!(note(3, 0, 0).unwrap_err(), "a packet of a flow without a label");
        // Sent again with another label, which stays.
        assert_eq!((note(1, 4, 7), note(1, 12, 7)), (Ok(true), Ok(false)));
        assert_eq!(note(1, 16, 8).unwrap_err(), "the flow label 00008, it was 00007");
    }
}
