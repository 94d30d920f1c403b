//! DHCPv6's messages on the wire (RFC 8415 §8, §21): a type, a number, and options, some of which hold options.
//!
//! [`Message::parse`] is given whatever arrives: every length is checked before it is believed. [`Message::emit`] writes
//! what a client sends.

use core::fmt;
use core::net::Ipv6Addr;

/// Options of one message, those in others not counted: more is nobody's honest answer.
const OPTIONS_MAX: usize = 64;
/// A transaction number has 24 bits.
const XID_MASK: u32 = 0x00ff_ffff;

/// Numbers of options (RFC 8415 §21, and as named).
pub(crate) mod option {
    pub(crate) const CLIENT_ID: u16 = 1;
    pub(crate) const SERVER_ID: u16 = 2;
    pub(crate) const IA_NA: u16 = 3;
    pub(crate) const IA_ADDR: u16 = 5;
    pub(crate) const REQUESTED: u16 = 6;
    pub(crate) const PREFERENCE: u16 = 7;
    pub(crate) const ELAPSED: u16 = 8;
    pub(crate) const STATUS: u16 = 13;
    /// RFC 3646.
    pub(crate) const NAME_SERVERS: u16 = 23;
    pub(crate) const DOMAINS: u16 = 24;
    pub(crate) const REFRESH: u16 = 32;
    pub(crate) const SOL_MAX_RT: u16 = 82;
    pub(crate) const INF_MAX_RT: u16 = 83;
}

/// What a message is (RFC 8415 §7.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageType {
    /// Who has addresses for me?
    Solicit,
    /// A server: I have these.
    Advertise,
    /// I take them.
    Request,
    /// Do they still belong to this link?
    Confirm,
    /// I want to keep them, server.
    Renew,
    /// I want to keep them, whoever you are.
    Rebind,
    /// A server's answer.
    Reply,
    /// I do not need them any more.
    Release,
    /// Somebody else uses one.
    Decline,
    /// I have addresses, and want to know the rest.
    InformationRequest,
}

impl MessageType {
    const ALL: [(u8, Self); 10] = [
        (1, Self::Solicit),
        (2, Self::Advertise),
        (3, Self::Request),
        (4, Self::Confirm),
        (5, Self::Renew),
        (6, Self::Rebind),
        (7, Self::Reply),
        (8, Self::Release),
        (9, Self::Decline),
        (11, Self::InformationRequest),
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
    /// Shorter than a message's head, or than an option's.
    Truncated,
    /// None of the messages between a client and a server; relays speak others.
    BadType(u8),
    /// An option says that it is longer than what is left.
    BadOption(u16),
    /// More options than anybody needs.
    ManyOptions,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("too short"),
            Self::BadType(kind) => write!(f, "message type {kind}"),
            Self::BadOption(code) => write!(f, "option {code} has a wrong length"),
            Self::ManyOptions => f.write_str("too many options"),
        }
    }
}

impl core::error::Error for Malformed {}

/// Options in their order; one number may stand there several times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options(Vec<(u16, Vec<u8>)>);

impl Options {
    /// Reads a list of options.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (mut list, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            let (head, tail) = rest.split_first_chunk::<4>().ok_or(Malformed::Truncated)?;
            let [code, len] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_be_bytes);
            let (value, tail) = tail.split_at_checked(usize::from(len)).ok_or(Malformed::BadOption(code))?;
            if list.len() == OPTIONS_MAX {
                return Err(Malformed::ManyOptions);
            }
            list.push((code, value.to_vec()));
            rest = tail;
        }
        Ok(Self(list))
    }

    /// Writes them.
    pub fn emit(&self, into: &mut Vec<u8>) {
        for (code, value) in &self.0 {
            into.extend(code.to_be_bytes());
            into.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
            into.extend(&value[..value.len().min(usize::from(u16::MAX))]);
        }
    }

    /// Adds one at the end.
    pub fn add(&mut self, code: u16, value: impl Into<Vec<u8>>) {
        self.0.push((code, value.into()));
    }

    /// The first of a number.
    pub fn get(&self, code: u16) -> Option<&[u8]> {
        self.all(code).next()
    }

    /// Every one of a number.
    pub fn all(&self, code: u16) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(known, _)| *known == code).map(|(_, value)| value.as_slice())
    }

    /// Takes every one of a number away.
    pub fn remove(&mut self, code: u16) {
        self.0.retain(|(known, _)| *known != code);
    }

    /// The number that an option has.
    pub(crate) fn number(&self, code: u16) -> Option<u32> {
        Some(u32::from_be_bytes(self.get(code)?.try_into().ok()?))
    }

    /// What a status option says, success if there is none (RFC 8415 §21.13).
    pub(crate) fn status(&self) -> u16 {
        let code = self.get(option::STATUS).and_then(<[u8]>::first_chunk);
        code.map_or(0, |code| u16::from_be_bytes(*code))
    }

    /// The addresses that an option has, at most `most`; none if it is no list of addresses.
    pub(crate) fn addresses(&self, code: u16, most: usize) -> Vec<Ipv6Addr> {
        let (whole, rest) = self.get(code).unwrap_or_default().as_chunks::<16>();
        let known = if rest.is_empty() { whole } else { &[] };
        known.iter().take(most).map(|octets| Ipv6Addr::from(*octets)).collect()
    }
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// What it is.
    pub kind: MessageType,
    /// Which exchange it belongs to: 24 bits.
    pub xid: u32,
    /// Everything else.
    pub options: Options,
}

impl Message {
    /// A message without options.
    pub fn new(kind: MessageType, xid: u32) -> Self {
        Self { kind, xid: xid & XID_MASK, options: Options::default() }
    }

    /// Reads what arrived.
    ///
    /// # Errors
    /// It is no message; nothing of it is to be believed.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let ([kind, a, b, c], rest) = bytes.split_first_chunk::<4>().ok_or(Malformed::Truncated)?;
        let kind = MessageType::of(*kind).ok_or(Malformed::BadType(*kind))?;
        Ok(Self { kind, xid: u32::from_be_bytes([0, *a, *b, *c]), options: Options::parse(rest)? })
    }

    /// Writes it.
    pub fn emit(&self) -> Vec<u8> {
        let [_, a, b, c] = self.xid.to_be_bytes();
        let mut bytes = vec![self.kind.number(), a, b, c];
        self.options.emit(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_not_a_message_has_a_name() {
        for (bytes, wanted) in [
            (&[7, 0, 0][..], Malformed::Truncated),
            (&[0, 0, 0, 1], Malformed::BadType(0)),
            (&[10, 0, 0, 1], Malformed::BadType(10)),
            (&[12, 0, 0, 1], Malformed::BadType(12)),
            (&[7, 0, 0, 1, 0, 1, 0], Malformed::Truncated),
            (&[7, 0, 0, 1, 0, 2, 0, 9, 1], Malformed::BadOption(2)),
        ] {
            assert_eq!(Message::parse(bytes), Err(wanted), "{bytes:?}");
        }
        let mut many = vec![7, 0, 0, 1];
        many.extend([0, 2, 0, 0].repeat(OPTIONS_MAX));
        assert!(Message::parse(&many).is_ok());
        many.extend([0, 2, 0, 0]);
        assert_eq!(Message::parse(&many), Err(Malformed::ManyOptions));
        let status = Options::parse(&[0, 13, 0, 3, 0, 4, b'x']).unwrap();
        assert_eq!((status.status(), Options::default().status()), (4, 0));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            xid: u32, kind in 0..10_usize,
            options in prop::collection::vec((any::<u16>(), prop::collection::vec(any::<u8>(), 0..40)), 0..9),
        ) {
            let mut message = Message::new(MessageType::ALL[kind].1, xid);
            options.iter().for_each(|(code, value)| message.options.add(*code, value.clone()));
            prop_assert_eq!(Message::parse(&message.emit()), Ok(message));
        }

        #[test]
        fn anything_may_arrive(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(message) = Message::parse(&bytes) {
                prop_assert_eq!(message.emit(), bytes);
            }
        }
    }
}
