//! What a guard reads of DHCPv6 messages (RFC 8415), and nothing more.
//!
//! Called by `guard.rs` and `known.rs` with a UDP datagram. What is malformed ends what is read.

use core::net::Ipv6Addr;

use firelane_units::MacAddr;

const UDP_BYTES: usize = 8;

/// Messages (RFC 8415 §7.3).
const SOLICIT: u8 = 1;
const REQUEST: u8 = 3;
const CONFIRM: u8 = 4;
const RENEW: u8 = 5;
const REBIND: u8 = 6;
const REPLY: u8 = 7;
const RELEASE: u8 = 8;
const DECLINE: u8 = 9;
const INFORMATION_REQUEST: u8 = 11;

/// Options (RFC 8415 §21).
const CLIENT: u16 = 1;
const IA_NA: u16 = 3;
const IA_TA: u16 = 4;
const IA_ADDRESS: u16 = 5;
const STATUS: u16 = 13;

/// A message between a client and a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dhcp6<'a> {
    kind: u8,
    /// Which question it is, or belongs to.
    pub(crate) transaction: u32,
    options: &'a [u8],
}

/// Reads the message in a UDP datagram.
pub(crate) fn read(datagram: &[u8]) -> Option<Dhcp6<'_>> {
    let (&[kind, a, b, c], options) = datagram.get(UDP_BYTES..)?.split_first_chunk()?;
    Some(Dhcp6 { kind, transaction: u32::from_be_bytes([0, a, b, c]), options })
}

impl<'a> Dhcp6<'a> {
    /// Whether a client says it. What relays say has another form.
    pub(crate) fn is_of_client(&self) -> bool {
        self.asks() || self.gives_back() || matches!(self.kind, CONFIRM | INFORMATION_REQUEST)
    }

    /// Whether it asks for addresses, or for more time with them.
    pub(crate) fn asks(&self) -> bool {
        matches!(self.kind, SOLICIT | REQUEST | RENEW | REBIND)
    }

    /// Whether its sender gives its addresses back.
    pub(crate) fn gives_back(&self) -> bool {
        matches!(self.kind, RELEASE | DECLINE)
    }

    /// Whether it answers for good, and well.
    pub(crate) fn grants(&self) -> bool {
        self.kind == REPLY && succeeds(self.options)
    }

    /// The client's DUID, if there is one alone.
    pub(crate) fn client(&self) -> Option<&'a [u8]> {
        let mut clients = options(self.options).filter(|(code, _)| *code == CLIENT).map(|(_, value)| value);
        clients.next().filter(|_| clients.next().is_none())
    }

    /// The addresses in it that nothing is said against, and for how many seconds they are valid.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (Ipv6Addr, u32)> + use<'a> {
        let associations = options(self.options).filter_map(|(code, value)| match code {
            // Identifier, and of those that are not temporary two times.
            IA_NA => value.get(12..),
            IA_TA => value.get(4..),
            _ => None,
        });
        let granted = associations.filter(|inner| succeeds(inner));
        granted.flat_map(options).filter(|(code, _)| *code == IA_ADDRESS).filter_map(|(_, value)| {
            let (address, rest) = value.split_first_chunk::<16>()?;
            let (times, more) = rest.split_first_chunk::<8>()?;
            let valid = u32::from_be_bytes([times[4], times[5], times[6], times[7]]);
            succeeds(more).then_some((Ipv6Addr::from(*address), valid))
        })
    }
}

/// Options one after the other.
fn options(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        let (code, after) = rest.split_first_chunk::<2>()?;
        let (length, after) = after.split_first_chunk::<2>()?;
        let (value, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        rest = after;
        Some((u16::from_be_bytes(*code), value))
    })
}

/// Whether no status among them is a failure.
fn succeeds(bytes: &[u8]) -> bool {
    options(bytes).all(|(code, value)| code != STATUS || value.starts_with(&[0, 0]))
}

/// Whether a DUID is made of the link-layer address: DUID-LLT or DUID-LL over Ethernet (RFC 8415 §11).
pub(crate) fn is_duid_of(duid: &[u8], mac: MacAddr) -> bool {
    match duid {
        [0, 1, 0, 1, _, _, _, _, address @ ..] | [0, 3, 0, 1, address @ ..] => *address == mac.0,
        _ => false,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn option(code: u16, value: &[u8]) -> Vec<u8> {
        let length = value.len() as u16;
        [&code.to_be_bytes(), &length.to_be_bytes(), value].concat()
    }

    fn status(code: u16) -> Vec<u8> {
        option(STATUS, &[&code.to_be_bytes(), &b"so it is"[..]].concat())
    }

    fn address(address: &str, valid: u32, more: &[u8]) -> Vec<u8> {
        let octets = address.parse::<Ipv6Addr>().unwrap().octets();
        option(IA_ADDRESS, &[&octets[..], &[0; 4], &valid.to_be_bytes(), more].concat())
    }

    /// A datagram with a message of this kind and transaction, of a client whose DUID is of `mac`, about addresses.
    pub(crate) fn message(kind: u8, transaction: u32, mac: MacAddr, about: &[(&str, u32)]) -> Vec<u8> {
        let head = u32::from(kind) << 24 | transaction;
        let mut bytes = [&[0; UDP_BYTES][..], &head.to_be_bytes()].concat();
        bytes.extend(option(CLIENT, &[&[0, 3, 0, 1], &mac.0[..]].concat()));
        let all: Vec<u8> = about.iter().flat_map(|(it, valid)| address(it, *valid, &[])).collect();
        bytes.extend(option(IA_NA, &[&[0; 12], &all[..]].concat()));
        bytes
    }

    #[test]
    fn who_asks_and_what_is_granted() {
        let mac = MacAddr([2, 8, 0x20, 0, 0, 1]);
        let bytes = message(REQUEST, 0x00ab_cdef, mac, &[("2001:db8::1", 60)]);
        let question = read(&bytes).unwrap();
        assert!(question.asks() && !question.gives_back() && !question.grants());
        assert_eq!(question.transaction, 0x00ab_cdef);
        let duid = question.client().unwrap();
        assert!(is_duid_of(duid, mac) && !is_duid_of(duid, MacAddr([2, 0, 0, 0, 0, 1])));
        assert!(read(&message(RELEASE, 1, mac, &[])).unwrap().gives_back());
        assert!(read(&bytes[..11]).is_none() && read(&bytes[..20]).unwrap().client().is_none());
    }

    #[test]
    fn what_a_status_is_against_is_not_granted() {
        let [one, two] = ["2001:db8::1", "2001:db8::2"];
        let refused = status(2);
        let pieces = [
            option(IA_NA, &[&[0; 12][..], &address(one, 60, &[]), &address(two, 70, &refused)].concat()),
            option(IA_NA, &[&[0; 12][..], &refused, &address("2001:db8::3", 60, &[])].concat()),
            option(IA_TA, &[&[0; 4][..], &status(0), &address("2001:db8::4", 80, &[])].concat()),
            option(25, &[&[0; 12][..], &address("2001:db8::5", 60, &[])].concat()),
            option(IA_NA, &[0; 11]),
            option(IA_NA, &[&[0; 12][..], &address("2001:db8::6", 60, &[])[..20]].concat()),
        ];
        let mut bytes = [&[0; UDP_BYTES][..], &[REPLY, 0, 0, 1]].concat();
        bytes.extend(pieces.concat());
        let answer = read(&bytes).unwrap();
        assert!(answer.grants());
        let granted: Vec<_> = answer.addresses().collect();
        assert_eq!(granted, [(one.parse().unwrap(), 60), ("2001:db8::4".parse().unwrap(), 80)]);
        bytes.extend(refused);
        assert!(!read(&bytes).unwrap().grants());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..100) {
            let whole = message(REPLY, 7, MacAddr([2; 6]), &[("2001:db8::1", 60), ("2001:db8::2", 60)]);
            for bytes in [&bytes[..], &whole[..whole.len() - cut.min(whole.len())]] {
                if let Some(it) = read(bytes) {
                    it.client();
                    prop_assert!(it.addresses().count() <= 20);
                }
            }
        }
    }
}
