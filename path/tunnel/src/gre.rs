//! GRE's header: RFC 2784, with the key and the sequence number of RFC 2890.
//!
//! Of RFC 1701 nothing is left: a header with its routing, its strict source route or its recursion control is refused, as
//! RFC 2784 §2.3 tells.

use firelane_units::DropReason;
use firelane_wire::{EtherType, IpProtocol, Sum};

/// What a tunnel's GRE headers have besides the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gre {
    /// The tunnel's name between its two ends; packets with another one are not its.
    pub key: Option<u32>,
    /// Whether each packet has a checksum; one that has none is refused then.
    pub checksum: bool,
    /// Whether each packet has a number; what is older than the last one is refused then.
    pub sequence: bool,
}

/// The longest header.
pub(crate) const HEADER_MAX: usize = 16;

const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
/// Bits 1, 4 and 5, which are RFC 1701's, and the version.
const REFUSED: u16 = 0x4c07;

/// A header that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) protocol: IpProtocol,
    pub(crate) has_checksum: bool,
    pub(crate) key: Option<u32>,
    pub(crate) sequence: Option<u32>,
    pub(crate) len: usize,
}

impl Gre {
    /// Bytes of each packet's header.
    pub const fn header_len(&self) -> usize {
        4 + 4 * (self.key.is_some() as usize + self.checksum as usize + self.sequence as usize)
    }

    /// Writes the header of `packet`, with the number `sequence` if the tunnel has numbers; how long it is.
    pub(crate) fn emit(
        &self,
        packet: &[u8],
        is_v4: bool,
        sequence: u32,
        into: &mut [u8; HEADER_MAX],
    ) -> usize {
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let flags =
            flag(self.checksum, CHECKSUM) | flag(self.key.is_some(), KEY) | flag(self.sequence, SEQUENCE);
        let ethertype = if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let mut len = 0;
        let mut put = |word: [u8; 4]| {
            into[len..len + 4].copy_from_slice(&word);
            len += 4;
        };
        let ([a, b], [c, d]) = (flags.to_be_bytes(), ethertype.0.to_be_bytes());
        put([a, b, c, d]);
        if self.checksum {
            put([0; 4]);
        }
        if let Some(key) = self.key {
            put(key.to_be_bytes());
        }
        if self.sequence {
            put(sequence.to_be_bytes());
        }
        if self.checksum {
            let sum = Sum::of(&into[..len]).combine(Sum::of(packet)).checksum();
            into[4..6].copy_from_slice(&sum.to_be_bytes());
        }
        len
    }
}

impl Header {
    /// Reads a header and checks its checksum, if it has one and `bytes` are all of the packet.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, DropReason> {
        let header = Self::parse(bytes)?;
        if header.has_checksum && !Sum::of(bytes).is_valid() {
            return Err(DropReason::GreChecksum);
        }
        Ok(header)
    }

    /// Reads a header that may be quoted: what is behind it need not be there.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, DropReason> {
        let word = |at: usize| bytes.get(at..at + 4).and_then(|it| it.first_chunk::<4>()).copied();
        let [a, b, c, d] = word(0).ok_or(DropReason::GreHeader)?;
        let flags = u16::from_be_bytes([a, b]);
        if flags & REFUSED != 0 {
            return Err(DropReason::GreHeader);
        }
        let protocol = match EtherType(u16::from_be_bytes([c, d])) {
            EtherType::IPV4 => IpProtocol::IPV4,
            EtherType::IPV6 => IpProtocol::IPV6,
            _ => return Err(DropReason::GreProtocol),
        };
        let mut len = 4;
        let mut take = |flag: u16| {
            if flags & flag == 0 {
                return Ok(None);
            }
            len += 4;
            word(len - 4).map(|word| Some(u32::from_be_bytes(word))).ok_or(DropReason::GreHeader)
        };
        let has_checksum = take(CHECKSUM)?.is_some();
        let (key, sequence) = (take(KEY)?, take(SEQUENCE)?);
        Ok(Self { protocol, has_checksum, key, sequence, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_refused() {
        for (bytes, reason) in [
            (&[][..], DropReason::GreHeader),
            (&[0, 0, 8], DropReason::GreHeader),
            // Routing, strict source route, recursion control; version 1 is PPTP's.
            (&[0x40, 0, 8, 0], DropReason::GreHeader),
            (&[0x08, 0, 8, 0], DropReason::GreHeader),
            (&[0x04, 0, 8, 0], DropReason::GreHeader),
            (&[0x30, 1, 0x88, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0], DropReason::GreHeader),
            // The key is cut off.
            (&[0x20, 0, 8, 0, 0, 0], DropReason::GreHeader),
            // Ethernet, and a keepalive.
            (&[0, 0, 0x65, 0x58], DropReason::GreProtocol),
            (&[0, 0, 0, 0], DropReason::GreProtocol),
            (&[0x80, 0, 8, 0, 1, 2, 0, 0], DropReason::GreChecksum),
        ] {
            assert_eq!(Header::read(bytes), Err(reason), "{bytes:x?}");
        }
    }

    #[test]
    fn reserved_bits_are_ignored() {
        // RFC 2784 §2.3: bits 6 to 12.
        let header = Header::read(&[0x03, 0xf8, 0x86, 0xdd]).unwrap();
        assert_eq!((header.protocol, header.len, header.key), (IpProtocol::IPV6, 4, None));
    }
}
