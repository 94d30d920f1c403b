//! What a guard reads of DHCP messages (RFC 2131, RFC 2132), and nothing more.
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
    /// The address that the client has, by its own word.
    pub(crate) current: Ipv4Addr,
    /// The one that it asks for, or declines.
    pub(crate) requested: Option<Ipv4Addr>,
    /// What the server gives.
    pub(crate) yours: Ipv4Addr,
    /// The client's Ethernet address.
    pub(crate) hardware: MacAddr,
    /// The message's type.
    pub(crate) kind: u8,
    /// The client's identifier, type byte included.
    pub(crate) client: Option<&'a [u8]>,
    /// Whether nobody else can find another client in it: there is one identifier at most, options stand where options do, and it does not
    /// say that a relay has heard it, and where, which clients never say (RFC 2131 §4.1, RFC 3046 §2.1).
    pub(crate) is_plain: bool,
    /// For how many seconds.
    pub(crate) lease: Option<u32>,
}

const UDP_BYTES: usize = 8;
/// The fixed part, up to the magic cookie.
const FIXED_BYTES: usize = 236;
const COOKIE: [u8; 4] = [99, 130, 83, 99];

const OPTION_PAD: u8 = 0;
const OPTION_REQUESTED: u8 = 50;
const OPTION_LEASE: u8 = 51;
/// Says that the fields of names hold options, too (RFC 2132 §9.3).
const OPTION_OVERLOAD: u8 = 52;
const OPTION_KIND: u8 = 53;
const OPTION_CLIENT: u8 = 61;
/// What a relay says of the client (RFC 3046).
const OPTION_RELAY: u8 = 82;
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
        current: Ipv4Addr::from(*fixed[12..].first_chunk::<4>()?),
        requested: None,
        yours: Ipv4Addr::from(*fixed[16..].first_chunk::<4>()?),
        hardware: MacAddr(*fixed[28..].first_chunk()?),
        kind: 0,
        client: None,
        is_plain: fixed[24..28] == [0; 4],
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
                    (OPTION_REQUESTED, value) => {
                        dhcp.requested = <[u8; 4]>::try_from(value).ok().map(Ipv4Addr::from);
                    }
                    (OPTION_LEASE, value) => dhcp.lease = value.try_into().ok().map(u32::from_be_bytes),
                    (OPTION_CLIENT, value) => dhcp.is_plain &= dhcp.client.replace(value).is_none(),
                    (OPTION_OVERLOAD | OPTION_RELAY, _) => dhcp.is_plain = false,
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        }
    }
}
