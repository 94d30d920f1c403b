//! Congestion marks on their way through a tunnel (RFC 6040).
//!
//! On the way in the outer header says what the inner one does. On the way out what happened outside is told to the inner packet, or
//! ends it if its transport would not understand.

use firelane_wire::{Ecn, update16};

/// What the inner packet says behind the tunnel (RFC 6040 §4.2, figure 4); `None` if it ends there.
pub(crate) const fn behind(inner: Ecn, outer: Ecn) -> Option<Ecn> {
    match (inner, outer) {
        (Ecn::NotCapable, Ecn::Congested) => None,
        (Ecn::NotCapable, _) => Some(Ecn::NotCapable),
        (Ecn::Congested, _) | (_, Ecn::Congested) => Some(Ecn::Congested),
        (Ecn::Capable0, Ecn::Capable1) => Some(Ecn::Capable1),
        (inner, _) => Some(inner),
    }
}

/// Writes a packet's congestion field, and keeps IPv4's checksum right. What is no IP packet stays as it is.
pub fn set_ecn(packet: &mut [u8], ecn: Ecn) {
    match packet {
        [first, tos, _, _, _, _, _, _, _, _, high, low, ..] if *first >> 4 == 4 => {
            let new = *tos & !3 | ecn.bits();
            let words = [*tos, new].map(|tos| u16::from_be_bytes([*first, tos]));
            let sum = update16(u16::from_be_bytes([*high, *low]), words[0], words[1]);
            *tos = new;
            [*high, *low] = sum.to_be_bytes();
        }
        [first, second, ..] if *first >> 4 == 6 => *second = *second & !0x30 | ecn.bits() << 4,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_wire::{IpProtocol, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View};

    const ALL: [Ecn; 4] = [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::Congested];

    #[test]
    fn marks_are_those_of_the_table() {
        // RFC 6040, figure 4: rows are the inner field, columns the outer one, both in the order of `ALL`.
        let table = ["not not not drop", "ect0 ect0 ect1 ce", "ect1 ect1 ect1 ce", "ce ce ce ce"];
        let word = |ecn: Option<Ecn>| match ecn {
            None => "drop",
            Some(Ecn::NotCapable) => "not",
            Some(Ecn::Capable0) => "ect0",
            Some(Ecn::Capable1) => "ect1",
            Some(Ecn::Congested) => "ce",
        };
        for (inner, row) in ALL.into_iter().zip(table) {
            let found: Vec<_> = ALL.into_iter().map(|outer| word(behind(inner, outer))).collect();
            assert_eq!(found.join(" "), row, "{inner:?}");
        }
    }

    #[test]
    fn a_field_is_written_and_the_rest_stays() {
        for (before, after) in ALL.into_iter().flat_map(|it| ALL.map(|other| (it, other))) {
            let mut v4 = [0; 28];
            let repr = Ipv4Repr {
                dscp: 46,
                ecn: before,
                ..Ipv4Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::UDP, 8)
            };
            repr.emit(&mut v4);
            set_ecn(&mut v4, after);
            let view = Ipv4View::parse(&v4).unwrap();
            assert!(view.is_checksum_valid() && view.dscp() == 46 && view.ecn() == after);
            let mut v6 = [0; 40];
            let addr = "fd00::1".parse().unwrap();
            let repr =
                Ipv6Repr { dscp: 46, ecn: before, ..Ipv6Repr::new(addr, addr, IpProtocol::NO_NEXT, 0) };
            repr.emit(&mut v6);
            set_ecn(&mut v6, after);
            let view = Ipv6View::parse(&v6).unwrap();
            assert!(view.dscp() == 46 && view.ecn() == after && view.flow_label() == 0);
        }
        let mut nothing = [0x50, 1];
        set_ecn(&mut nothing, Ecn::Congested);
        assert_eq!(nothing, [0x50, 1]);
    }
}
