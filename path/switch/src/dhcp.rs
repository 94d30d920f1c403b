//! What a guard reads of DHCP messages (RFC 2131, RFC 2132, RFC 8415), and nothing more.
//!
//! Called by `guard.rs` and `known.rs` with a UDP datagram. What is malformed is nothing.

use core::net::Ipv4Addr;

use firelane_units::MacAddr;

/// A DHCPv4 message for or from a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dhcp<'a> {
    /// Whether a server says it.
    pub(crate) is_reply: bool,
    /// Which question it belongs to.
    pub(crate) transaction: u32,
    /// What the server gives.
    pub(crate) yours: Ipv4Addr,
    /// The client's Ethernet address.
    pub(crate) hardware: MacAddr,
    /// The message's type.
    pub(crate) kind: u8,
    /// The client's identifier, type byte included.
    pub(crate) client: Option<&'a [u8]>,
    /// For how many seconds.
    pub(crate) lease: Option<u32>,
}

const UDP_BYTES: usize = 8;
/// The fixed part, up to the magic cookie.
const FIXED_BYTES: usize = 236;
const COOKIE: [u8; 4] = [99, 130, 83, 99];

const OPTION_PAD: u8 = 0;
const OPTION_LEASE: u8 = 51;
const OPTION_KIND: u8 = 53;
const OPTION_CLIENT: u8 = 61;
const OPTION_END: u8 = 255;

/// Reads the DHCPv4 message in a UDP datagram.
pub(crate) fn read(datagram: &[u8]) -> Option<Dhcp<'_>> {
    let (_, message) = datagram.split_at_checked(UDP_BYTES)?;
    let (fixed, rest) = message.split_at_checked(FIXED_BYTES)?;
    let (cookie, mut rest) = rest.split_first_chunk()?;
    let is_ethernet = fixed[1] == 1 && fixed[2] == 6;
    if !is_ethernet || *cookie != COOKIE {
        return None;
    }
    let mut dhcp = Dhcp {
        is_reply: fixed[0] == 2,
        transaction: u32::from_be_bytes(*fixed[4..].first_chunk()?),
        yours: Ipv4Addr::from(*fixed[16..].first_chunk::<4>()?),
        hardware: MacAddr(*fixed[28..].first_chunk()?),
        kind: 0,
        client: None,
        lease: None,
    };
    loop {
        match rest {
            [] | [OPTION_END, ..] => return (dhcp.kind != 0).then_some(dhcp),
            [OPTION_PAD, after @ ..] => rest = after,
            [option, length, after @ ..] => {
                let (value, after) = after.split_at_checked(usize::from(*length))?;
                match (*option, value) {
                    (OPTION_KIND, &[kind]) => dhcp.kind = kind,
                    (OPTION_LEASE, value) => dhcp.lease = value.try_into().ok().map(u32::from_be_bytes),
                    (OPTION_CLIENT, value) => dhcp.client = Some(value),
                    _ => {}
                }
                rest = after;
            }
            [_] => return None,
        }
    }
}

/// Whether a client identifier is just the Ethernet address with its type.
pub(crate) fn is_of_hardware(client: &[u8], mac: MacAddr) -> bool {
    client.split_first() == Some((&1, &mac.0))
}

/// The client's DUID in the DHCPv6 message of a UDP datagram.
pub(crate) fn client_of_v6(datagram: &[u8]) -> Option<&[u8]> {
    const TYPE_AND_TRANSACTION: usize = 4;
    const OPTION_CLIENTID: [u8; 2] = [0, 1];
    let mut rest = datagram.get(UDP_BYTES + TYPE_AND_TRANSACTION..)?;
    loop {
        let (code, after) = rest.split_first_chunk::<2>()?;
        let (length, after) = after.split_first_chunk::<2>()?;
        let (value, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        if *code == OPTION_CLIENTID {
            return Some(value);
        }
        rest = after;
    }
}

/// Whether a DUID is made of the link-layer address: DUID-LLT or DUID-LL over Ethernet (RFC 8415 §11).
pub(crate) fn is_duid_of(duid: &[u8], mac: MacAddr) -> bool {
    match duid {
        [0, 1, 0, 1, _, _, _, _, address @ ..] | [0, 3, 0, 1, address @ ..] => *address == mac.0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn identifiers_of_dhcpv6() {
        let mac = MacAddr([2, 8, 0x20, 0, 0, 1]);
        let mut message = vec![0; 8 + 4];
        message.extend([0, 8, 0, 2, 0, 0, 0, 1, 0, 10, 0, 3, 0, 1]);
        message.extend(mac.0);
        let duid = client_of_v6(&message).unwrap();
        assert!(is_duid_of(duid, mac) && !is_duid_of(duid, MacAddr([2, 0, 0, 0, 0, 1])));
        assert_eq!(client_of_v6(&message[..20]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), cookie in any::<bool>()) {
            let mut bytes = bytes;
            if cookie && bytes.len() > 8 + 240 {
                bytes[8 + 236..8 + 240].copy_from_slice(&COOKIE);
                (bytes[8 + 1], bytes[8 + 2]) = (1, 6);
            }
            if let Some(dhcp) = read(&bytes) {
                prop_assert!(dhcp.kind != 0);
            }
            client_of_v6(&bytes);
        }
    }
}
