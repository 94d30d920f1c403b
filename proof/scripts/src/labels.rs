//! The flow labels of what a netstack sends (RFC 6437): every script over IPv6 is held to them.
//!
//! One flow, one label, from its first packet to its last, also of what answers for a connection that is not there yet or
//! any more; and never none.

use std::collections::HashMap;

use firelane_wire::{IpProtocol, Ipv6View};

/// The labels that have come, by protocol and ports. Only one pair of addresses plays in a script.
#[derive(Default)]
pub(crate) struct Labels(HashMap<(u8, [u8; 4]), u32>);

impl Labels {
    /// Takes note of a packet's; says what is wrong with it.
    pub(crate) fn note(&mut self, packet: &Ipv6View<'_>) -> Result<(), String> {
        let (protocol, label) = (packet.next_header(), packet.flow_label());
        let has_ports = matches!(protocol, IpProtocol::TCP | IpProtocol::UDP);
        let Some(&ports) = packet.payload().first_chunk().filter(|_| has_ports) else { return Ok(()) };
        let first = *self.0.entry((protocol.0, ports)).or_insert(label);
        match label {
            0 => Err("a packet of a flow without a label".into()),
            _ if label != first => Err(format!("the flow label {label:05x}, it was {first:05x}")),
            _ => Ok(()),
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
        let mut note = |port: u8, flow_label| {
            let ends = ["fd00::1", "fd00::2"].map(|ip| ip.parse().unwrap());
            let header = Ipv6Repr { flow_label, ..Ipv6Repr::new(ends[0], ends[1], IpProtocol::TCP, 4) };
            let mut packet = [0, port, 0, 9].repeat(11);
            header.emit(&mut packet);
            labels.note(&Ipv6View::parse(&packet).unwrap())
        };
        assert_eq!((note(1, 5), note(1, 5), note(2, 6)), (Ok(()), Ok(()), Ok(())));
        assert_eq!(note(1, 6).unwrap_err(), "the flow label 00006, it was 00005");
        assert_eq!(note(3, 0).unwrap_err(), "a packet of a flow without a label");
    }
}
