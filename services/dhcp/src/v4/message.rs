//! DHCPv4's messages on the wire (RFC 2131 §2, RFC 2132; long options RFC 3396).
//!
//! [`Message::parse`] is given whatever arrives: every length is checked before it is believed. [`Message::emit`]
//! writes what a client sends. A codec of our own, because the crate that exists brings seventy others with it and
//! does not read options that overflow into other fields (§4.1).

use core::fmt;
use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use firelane_units::MacAddr;

/// Bytes before the options: BOOTP's fields.
const FIXED: usize = 236;
/// RFC 2131 §3: what the options begin with.
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Old relays drop shorter messages (RFC 1542 §2.1).
const LEN_LEAST: usize = 300;
/// One option's value, its parts put together.
const VALUE_MAX: usize = 4096;

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const ETHERNET: u8 = 1;
const BROADCAST_FLAG: u8 = 0x80;

/// Numbers of options (RFC 2132 and as named).
pub(crate) mod option {
    pub(crate) const PAD: u8 = 0;
    pub(crate) const SUBNET_MASK: u8 = 1;
    pub(crate) const ROUTERS: u8 = 3;
    pub(crate) const NAME_SERVERS: u8 = 6;
    pub(crate) const HOST_NAME: u8 = 12;
    pub(crate) const DOMAIN_NAME: u8 = 15;
    pub(crate) const REQUESTED_ADDRESS: u8 = 50;
    pub(crate) const LEASE_TIME: u8 = 51;
    pub(crate) const OVERLOAD: u8 = 52;
    pub(crate) const MESSAGE_TYPE: u8 = 53;
    pub(crate) const SERVER: u8 = 54;
    pub(crate) const PARAMETERS: u8 = 55;
    pub(crate) const LONGEST_MESSAGE: u8 = 57;
    pub(crate) const RENEWAL_TIME: u8 = 58;
    pub(crate) const REBINDING_TIME: u8 = 59;
    pub(crate) const CLIENT_ID: u8 = 61;
    /// RFC 3397.
    pub(crate) const DOMAIN_SEARCH: u8 = 119;
    /// RFC 3442.
    pub(crate) const CLASSLESS_ROUTES: u8 = 121;
    pub(crate) const END: u8 = 255;
}

/// What a message is (RFC 2132 §9.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageType {
    /// Who has an address for me?
    Discover,
    /// A server: I have this one.
    Offer,
    /// I take it, or keep it.
    Request,
    /// Somebody else uses it.
    Decline,
    /// A server: it is yours.
    Ack,
    /// A server: it is not yours.
    Nak,
    /// I do not need it any more.
    Release,
    /// I have an address; what is the network like?
    Inform,
}

impl MessageType {
    const ALL: [(u8, Self); 8] = [
        (1, Self::Discover),
        (2, Self::Offer),
        (3, Self::Request),
        (4, Self::Decline),
        (5, Self::Ack),
        (6, Self::Nak),
        (7, Self::Release),
        (8, Self::Inform),
    ];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == number).map(|(_, kind)| kind)
    }

    fn number(self) -> u8 {
        Self::ALL.into_iter().find(|(_, kind)| *kind == self).map_or(0, |(number, _)| number)
    }
}

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// Shorter than BOOTP's fields and the cookie.
    Truncated,
    /// Neither a request nor a reply, or not about an Ethernet address.
    NotEthernet,
    /// The options do not begin with their cookie.
    NoCookie,
    /// An option says that it is longer than what is left, or than any may be.
    BadOption(u8),
    /// No message type, or one that a client has no use for.
    BadType,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("too short"),
            Self::NotEthernet => f.write_str("not about an Ethernet address"),
            Self::NoCookie => f.write_str("no magic cookie"),
            Self::BadOption(code) => write!(f, "option {code} has a wrong length"),
            Self::BadType => f.write_str("unknown message type"),
        }
    }
}

impl core::error::Error for Malformed {}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Whether a server says it.
    pub is_reply: bool,
    /// What it is.
    pub kind: MessageType,
    /// Which exchange it belongs to.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// The client cannot receive unicast packets yet.
    pub broadcast: bool,
    /// The address that the client has and answers for.
    pub client: Ipv4Addr,
    /// The address that the server gives.
    pub yours: Ipv4Addr,
    /// The client's Ethernet address.
    pub mac: MacAddr,
    /// Everything else, without the message type; the parts of long options put together.
    pub options: BTreeMap<u8, Vec<u8>>,
}

impl Message {
    /// A client's message without options.
    pub fn request(kind: MessageType, xid: u32, mac: MacAddr) -> Self {
        Self {
            is_reply: false,
            kind,
            xid,
            secs: 0,
            broadcast: false,
            client: Ipv4Addr::UNSPECIFIED,
            yours: Ipv4Addr::UNSPECIFIED,
            mac,
            options: BTreeMap::new(),
        }
    }

    /// Reads what arrived.
    ///
    /// # Errors
    /// It is no message; nothing of it is to be believed.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (fixed, rest) = bytes.split_at_checked(FIXED).ok_or(Malformed::Truncated)?;
        let (cookie, area) = rest.split_at_checked(COOKIE.len()).ok_or(Malformed::Truncated)?;
        let is_reply = match fixed[0] {
            REQUEST => false,
            REPLY => true,
            _ => return Err(Malformed::NotEthernet),
        };
        if (fixed[1], fixed[2]) != (ETHERNET, 6) {
            return Err(Malformed::NotEthernet);
        }
        if cookie != COOKIE {
            return Err(Malformed::NoCookie);
        }
        let mut options = BTreeMap::new();
        read_options(area, &mut options)?;
        // §4.1: the options go on in `file`, then in `sname`.
        let overload =
            options.remove(&option::OVERLOAD).and_then(|value| value.first().copied()).unwrap_or(0);
        if overload & 1 != 0 {
            read_options(&fixed[108..236], &mut options)?;
        }
        if overload & 2 != 0 {
            read_options(&fixed[44..108], &mut options)?;
        }
        let kind = options.remove(&option::MESSAGE_TYPE);
        let kind = kind.and_then(|value| MessageType::of(*value.first()?)).ok_or(Malformed::BadType)?;
        Ok(Self {
            is_reply,
            kind,
            xid: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            secs: u16::from_be_bytes([fixed[8], fixed[9]]),
            broadcast: fixed[10] & BROADCAST_FLAG != 0,
            client: address_at(fixed, 12),
            yours: address_at(fixed, 16),
            mac: MacAddr([fixed[28], fixed[29], fixed[30], fixed[31], fixed[32], fixed[33]]),
            options,
        })
    }

    /// Writes it. Values longer than an option are continued in another of the same number (RFC 3396 §5).
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; FIXED];
        bytes[0] = if self.is_reply { REPLY } else { REQUEST };
        (bytes[1], bytes[2]) = (ETHERNET, 6);
        bytes[4..8].copy_from_slice(&self.xid.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.secs.to_be_bytes());
        bytes[10] = if self.broadcast { BROADCAST_FLAG } else { 0 };
        bytes[12..16].copy_from_slice(&self.client.octets());
        bytes[16..20].copy_from_slice(&self.yours.octets());
        bytes[28..34].copy_from_slice(&self.mac.0);
        bytes.extend(COOKIE);
        bytes.extend([option::MESSAGE_TYPE, 1, self.kind.number()]);
        for (code, value) in &self.options {
            // An option without a value (RFC 4039) is one all the same.
            let empty = value.is_empty().then_some(&[][..]);
            for part in value.chunks(255).chain(empty) {
                bytes.extend([*code, part.len() as u8]);
                bytes.extend(part);
            }
        }
        bytes.push(option::END);
        bytes.resize(bytes.len().max(LEN_LEAST), option::PAD);
        bytes
    }

    /// The address that an option has.
    pub(crate) fn address(&self, code: u8) -> Option<Ipv4Addr> {
        let value: [u8; 4] = self.options.get(&code)?.as_slice().try_into().ok()?;
        Some(value.into())
    }

    /// The addresses that an option has, at most `most`; none if it is no list of addresses.
    pub(crate) fn addresses(&self, code: u8, most: usize) -> Vec<Ipv4Addr> {
        let value = self.options.get(&code).map_or(&[][..], Vec::as_slice);
        let (whole, rest) = value.as_chunks::<4>();
        let known = if rest.is_empty() { whole } else { &[] };
        known.iter().take(most).map(|octets| Ipv4Addr::from(*octets)).collect()
    }

    /// The number that an option has.
    pub(crate) fn number(&self, code: u8) -> Option<u32> {
        match *self.options.get(&code)?.as_slice() {
            [a, b] => Some(u16::from_be_bytes([a, b]).into()),
            [a, b, c, d] => Some(u32::from_be_bytes([a, b, c, d])),
            _ => None,
        }
    }
}

fn address_at(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3])
}

fn read_options(area: &[u8], into: &mut BTreeMap<u8, Vec<u8>>) -> Result<(), Malformed> {
    let mut rest = area;
    while let [code, tail @ ..] = rest {
        match *code {
            option::PAD => rest = tail,
            option::END => break,
            code => {
                let wrong = Malformed::BadOption(code);
                let (len, tail) = tail.split_first().ok_or(wrong)?;
                let (value, tail) = tail.split_at_checked(usize::from(*len)).ok_or(wrong)?;
                let known: &mut Vec<u8> = into.entry(code).or_default();
                if known.len() + value.len() > VALUE_MAX {
                    return Err(wrong);
                }
                known.extend(value);
                rest = tail;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: MacAddr = MacAddr([2, 8, 32, 1, 2, 3]);

    fn offer() -> Message {
        let mut message = Message::request(MessageType::Offer, 7, MAC);
        (message.is_reply, message.yours) = (true, Ipv4Addr::new(10, 0, 0, 5));
        message.options.insert(option::SERVER, vec![10, 0, 0, 1]);
        message
    }

    #[test]
    fn a11_what_is_not_a_message_has_a_name() {
        let good = offer().emit();
        let cut = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Message::parse(&bytes)
        };
        assert_eq!(Message::parse(&good[..239]), Err(Malformed::Truncated));
        assert_eq!(cut(0, 3), Err(Malformed::NotEthernet));
        assert_eq!(cut(2, 16), Err(Malformed::NotEthernet));
        assert_eq!(cut(237, 0), Err(Malformed::NoCookie));
        assert_eq!(cut(242, 99), Err(Malformed::BadType));
        assert_eq!(cut(244, 200), Err(Malformed::BadOption(option::SERVER)));
        assert_eq!(Message::parse(&good), Ok(offer()));
    }

    #[test]
    fn options_go_on_in_the_names_of_file_and_server() {
        let mut bytes = offer().emit();
        // Option 52 says so; the router is in `file`, the mask in `sname`.
        let end = bytes.iter().rposition(|byte| *byte == option::END).unwrap();
        bytes.splice(end..=end, [option::OVERLOAD, 1, 3, option::END]);
        bytes[108..115].copy_from_slice(&[option::ROUTERS, 4, 10, 0, 0, 9, option::END]);
        bytes[44..51].copy_from_slice(&[option::SUBNET_MASK, 4, 255, 255, 255, 0, option::END]);
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.address(option::ROUTERS), Some(Ipv4Addr::new(10, 0, 0, 9)));
        assert_eq!(message.address(option::SUBNET_MASK), Some(Ipv4Addr::new(255, 255, 255, 0)));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            xid: u32, secs: u16, broadcast: bool,
            options in prop::collection::btree_map(
                (1_u8..=254).prop_filter("of the codec", |code| ![option::OVERLOAD, option::MESSAGE_TYPE].contains(code)),
                prop::collection::vec(any::<u8>(), 0..600), 0..4),
        ) {
            let message = Message { xid, secs, broadcast, options, ..offer() };
            prop_assert_eq!(Message::parse(&message.emit()), Ok(message));
        }

        #[test]
        fn anything_may_arrive(tail in prop::collection::vec(any::<u8>(), 0..400), at in 0_usize..600, byte: u8) {
            let mut bytes = offer().emit();
            bytes.truncate(240);
            bytes.extend(tail);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            if let Ok(message) = Message::parse(&bytes) {
                prop_assert!(message.options.values().all(|value| value.len() <= VALUE_MAX));
            }
        }
    }
}
