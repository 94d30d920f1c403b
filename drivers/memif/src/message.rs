//! The messages of memif's control socket, version 2.0: 128 bytes each, in the machine's byte order.
//!
//! Read and written by `handshake.rs`. There is no RFC; the format is that of libmemif and of DPDK's
//! `net_memif`, which agree: a 16-bit type and a packed structure behind it. A message comes whole
//! (`SOCK_SEQPACKET`), so a length other than 128 is an error.

use std::fmt;

/// The length of every message.
pub const MESSAGE_BYTES: usize = 128;
/// Version 2.0, the only one in use.
pub(crate) const VERSION: u16 = 0x0200;
/// Ethernet frames; the other modes (IP, punt/inject) are VPP's own.
pub(crate) const MODE_ETHERNET: u8 = 0;
/// The ring carries frames from client to server.
pub(crate) const RING_TO_SERVER: u16 = 1;
/// The longest reason that a disconnect tells.
const REASON_BYTES: usize = 96;

/// A name as it stands in messages: up to 31 bytes and a zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name([u8; 32]);

impl Name {
    /// The first 31 bytes of `text`.
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; 32];
        for (to, from) in bytes[..31].iter_mut().zip(text.bytes()) {
            *to = from;
        }
        Self(bytes)
    }

    /// The text before the first zero. What is not printable ASCII is shown as `?`: it comes from a stranger.
    pub fn text(&self) -> String {
        text(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.text())
    }
}

fn text(bytes: &[u8]) -> String {
    let shown = |byte: &u8| if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '?' };
    bytes.iter().take_while(|&&byte| byte != 0).map(shown).collect()
}

/// What the server offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Who it is.
    pub name: Name,
    /// The lowest version it speaks.
    pub min_version: u16,
    /// The highest.
    pub max_version: u16,
    /// The highest index of a region.
    pub max_region: u16,
    /// The highest index of a ring to the client.
    pub max_to_client: u16,
    /// The highest index of a ring to the server.
    pub max_to_server: u16,
    /// The largest ring, as a power of two.
    pub max_log2_ring_size: u8,
}

/// What the client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Init {
    /// The version it speaks.
    pub version: u16,
    /// Which interface of the socket.
    pub id: u32,
    /// What the interface carries.
    pub mode: u8,
    /// The shared secret, padded with zeroes.
    pub secret: [u8; 24],
    /// Who it is.
    pub name: Name,
}

/// A ring that the client has laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddRing {
    /// Its direction.
    pub flags: u16,
    /// Its place among those of its direction.
    pub index: u16,
    /// The region that it lies in.
    pub region: u16,
    /// Where it begins there.
    pub offset: u32,
    /// Its descriptors, as a power of two.
    pub log2_size: u8,
    /// Bytes of metadata before each frame; nobody uses them.
    pub private_bytes: u16,
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// The last message was taken.
    Ack,
    /// Server: what it offers.
    Hello(Hello),
    /// Client: what it wants.
    Init(Init),
    /// Client: memory, with its descriptor beside the message.
    AddRegion {
        /// Its place among the regions.
        index: u16,
        /// Its bytes.
        size: u64,
    },
    /// Client: a ring, with its eventfd beside the message.
    AddRing(AddRing),
    /// Client: everything is there.
    Connect(Name),
    /// Server: the session begins.
    Connected(Name),
    /// Either: the session ends.
    Disconnect {
        /// A number for programs; all send zero.
        code: u32,
        /// Why.
        reason: [u8; REASON_BYTES],
    },
}

/// A type that no message has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownType(pub u16);

impl Message {
    /// The end of a session, with its reason.
    pub fn disconnect(reason: &str) -> Self {
        let mut bytes = [0; REASON_BYTES];
        for (to, from) in bytes[..REASON_BYTES - 1].iter_mut().zip(reason.bytes()) {
            *to = from;
        }
        Self::Disconnect { code: 0, reason: bytes }
    }

    /// Its number on the wire.
    pub fn number(&self) -> u16 {
        match self {
            Self::Ack => 1,
            Self::Hello(_) => 2,
            Self::Init(_) => 3,
            Self::AddRegion { .. } => 4,
            Self::AddRing(_) => 5,
            Self::Connect(_) => 6,
            Self::Connected(_) => 7,
            Self::Disconnect { .. } => 8,
        }
    }

    /// The message on the wire.
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut out = Out { bytes: [0; MESSAGE_BYTES], at: 0 };
        out.put(&self.number().to_ne_bytes());
        match self {
            Self::Ack => {}
            Self::Hello(it) => {
                out.put(&it.name.0);
                for word in
                    [it.min_version, it.max_version, it.max_region, it.max_to_client, it.max_to_server]
                {
                    out.put(&word.to_ne_bytes());
                }
                out.put(&[it.max_log2_ring_size]);
            }
            Self::Init(it) => {
                out.put(&it.version.to_ne_bytes());
                out.put(&it.id.to_ne_bytes());
                out.put(&[it.mode]);
                out.put(&it.secret);
                out.put(&it.name.0);
            }
            Self::AddRegion { index, size } => {
                out.put(&index.to_ne_bytes());
                out.put(&size.to_ne_bytes());
            }
            Self::AddRing(it) => {
                for word in [it.flags, it.index, it.region] {
                    out.put(&word.to_ne_bytes());
                }
                out.put(&it.offset.to_ne_bytes());
                out.put(&[it.log2_size]);
                out.put(&it.private_bytes.to_ne_bytes());
            }
            Self::Connect(name) | Self::Connected(name) => out.put(&name.0),
            Self::Disconnect { code, reason } => {
                out.put(&code.to_ne_bytes());
                out.put(reason);
            }
        }
        out.bytes
    }

    /// Reads a message. Any bytes have a meaning, except those of an unknown type.
    ///
    /// # Errors
    /// The type.
    pub fn decode(bytes: &[u8; MESSAGE_BYTES]) -> Result<Self, UnknownType> {
        let mut from = In { bytes, at: 0 };
        Ok(match from.word() {
            1 => Self::Ack,
            2 => Self::Hello(Hello {
                name: Name(from.take()),
                min_version: from.word(),
                max_version: from.word(),
                max_region: from.word(),
                max_to_client: from.word(),
                max_to_server: from.word(),
                max_log2_ring_size: from.take::<1>()[0],
            }),
            3 => Self::Init(Init {
                version: from.word(),
                id: u32::from_ne_bytes(from.take()),
                mode: from.take::<1>()[0],
                secret: from.take(),
                name: Name(from.take()),
            }),
            4 => Self::AddRegion { index: from.word(), size: u64::from_ne_bytes(from.take()) },
            5 => Self::AddRing(AddRing {
                flags: from.word(),
                index: from.word(),
                region: from.word(),
                offset: u32::from_ne_bytes(from.take()),
                log2_size: from.take::<1>()[0],
                private_bytes: from.word(),
            }),
            6 => Self::Connect(Name(from.take())),
            7 => Self::Connected(Name(from.take())),
            8 => Self::Disconnect { code: u32::from_ne_bytes(from.take()), reason: from.take() },
            other => return Err(UnknownType(other)),
        })
    }
}

/// The reason of a disconnect as text.
pub(crate) fn reason_text(reason: &[u8; REASON_BYTES]) -> String {
    text(reason)
}

struct Out {
    bytes: [u8; MESSAGE_BYTES],
    at: usize,
}

impl Out {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

struct In<'a> {
    bytes: &'a [u8; MESSAGE_BYTES],
    at: usize,
}

impl In<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        out
    }

    fn word(&mut self) -> u16 {
        u16::from_ne_bytes(self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The offsets that libmemif's packed structures have.
    #[test]
    fn fields_lie_where_the_format_has_them() {
        let init = Init { version: 0x0102, id: 0x0304_0506, mode: 7, secret: [8; 24], name: Name::new("x") };
        let bytes = Message::Init(init).encode();
        assert_eq!(bytes[..2], 3u16.to_ne_bytes());
        assert_eq!(bytes[2..4], 0x0102u16.to_ne_bytes());
        assert_eq!(bytes[4..8], 0x0304_0506u32.to_ne_bytes());
        assert_eq!((bytes[8], bytes[9], bytes[32], bytes[33]), (7, 8, 8, b'x'));
        let ring =
            AddRing { flags: 1, index: 2, region: 3, offset: 0x0405_0607, log2_size: 10, private_bytes: 9 };
        let bytes = Message::AddRing(ring).encode();
        assert_eq!(bytes[8..12], 0x0405_0607u32.to_ne_bytes());
        assert_eq!((bytes[12], &bytes[13..15]), (10, &9u16.to_ne_bytes()[..]));
        let bytes = Message::disconnect("why").encode();
        assert_eq!((&bytes[6..9], bytes[101]), (&b"why"[..], 0));
        let hello = Hello {
            name: Name::new(""),
            min_version: 1,
            max_version: 2,
            max_region: 3,
            max_to_client: 4,
            max_to_server: 5,
            max_log2_ring_size: 6,
        };
        let bytes = Message::Hello(hello).encode();
        assert_eq!(
            (&bytes[34..36], &bytes[40..42], bytes[44]),
            (&1u16.to_ne_bytes()[..], &4u16.to_ne_bytes()[..], 6)
        );
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_back(bytes in prop::collection::vec(any::<u8>(), MESSAGE_BYTES), kind in 0u16..10) {
            let mut bytes: [u8; MESSAGE_BYTES] = bytes.try_into().unwrap();
            bytes[..2].copy_from_slice(&kind.to_ne_bytes());
            match Message::decode(&bytes) {
                Ok(message) => {
                    prop_assert_eq!(message.number(), kind);
                    prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
                }
                Err(UnknownType(number)) => prop_assert!(number == kind && !(1..=8).contains(&kind)),
            }
        }
    }

    #[test]
    fn a_strangers_name_cannot_draw_on_a_terminal() {
        let mut name = Name::new("abc");
        name.0[1] = 0x1b;
        assert_eq!(name.text(), "a?c");
        assert_eq!(Name::new(&"y".repeat(40)).text().len(), 31);
    }
}
