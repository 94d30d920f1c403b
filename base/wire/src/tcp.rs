//! The TCP header (RFC 9293 §3.1).
//!
//! [`TcpView`] is parsed once per segment by `path/classify` and `path/tcp`; its accessors are single
//! loads. [`TcpRepr`] is what `path/tcp` sends. `emit` leaves the checksum zero, because who fills it
//! depends on the way out: [`fill_checksum`], [`fill_checksum_with`] or [`fill_partial`].

use core::fmt;
use core::net::IpAddr;
use core::ops::{BitOr, BitOrAssign};

use firelane_units::{Port, SeqNum};

use crate::bytes::{be16, be32, fixed, put};
use crate::{IpProtocol, Sum, TcpOptions};

parse_error! {
    /// Why bytes are no TCP segment.
    TcpError {
        /// Fewer than 20 bytes.
        Truncated = "shorter than the TCP header" => BadSegment,
        /// The data offset is below 5 words or past the segment's end.
        DataOffset = "the TCP data offset is below 20 bytes or past the segment" => BadSegment,
        /// A port is zero.
        Port = "a TCP port is zero" => BadSegment,
    }
}

/// Where the checksum field begins in the header.
pub const CHECKSUM_OFFSET: usize = 16;

/// The control bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TcpFlags(u16);

impl TcpFlags {
    /// None.
    pub const EMPTY: Self = Self(0);
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);
    /// Accurate ECN (RFC 9768).
    pub const AE: Self = Self(0x100);

    /// From the low nine bits of the word that holds the data offset; reserved bits are ignored (RFC 9293
    /// §3.1).
    #[inline]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & 0x01ff)
    }

    /// The nine bits.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether all of `flags` are set.
    #[inline]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether any of `flags` is set.
    #[inline]
    pub const fn intersects(self, flags: Self) -> bool {
        self.0 & flags.0 != 0
    }

    /// These and `flags`.
    #[inline]
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// These without `flags`.
    #[inline]
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }

    /// Whether SYN is set.
    #[inline]
    pub const fn syn(self) -> bool {
        self.contains(Self::SYN)
    }

    /// Whether ACK is set.
    #[inline]
    pub const fn ack(self) -> bool {
        self.contains(Self::ACK)
    }

    /// Whether FIN is set.
    #[inline]
    pub const fn fin(self) -> bool {
        self.contains(Self::FIN)
    }

    /// Whether RST is set.
    #[inline]
    pub const fn rst(self) -> bool {
        self.contains(Self::RST)
    }

    /// Whether PSH is set.
    #[inline]
    pub const fn psh(self) -> bool {
        self.contains(Self::PSH)
    }

    /// Whether URG is set.
    #[inline]
    pub const fn urg(self) -> bool {
        self.contains(Self::URG)
    }

    /// How many sequence numbers SYN and FIN take.
    #[inline]
    pub const fn sequence_len(self) -> u32 {
        self.syn() as u32 + self.fin() as u32
    }
}

impl BitOr for TcpFlags {
    type Output = Self;
    #[inline]
    fn bitor(self, rhs: Self) -> Self {
        self.with(rhs)
    }
}

impl BitOrAssign for TcpFlags {
    #[inline]
    fn bitor_assign(&mut self, rhs: Self) {
        *self = self.with(rhs);
    }
}

impl fmt::Display for TcpFlags {
    /// As tcpdump writes them: `S.`, `F.`, `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = [
            (Self::FIN, "F"),
            (Self::SYN, "S"),
            (Self::RST, "R"),
            (Self::PSH, "P"),
            (Self::ACK, "."),
            (Self::URG, "U"),
            (Self::ECE, "E"),
            (Self::CWR, "W"),
            (Self::AE, "e"),
        ];
        if *self == Self::EMPTY {
            return f.write_str("none");
        }
        letters.iter().filter(|(flag, _)| self.contains(*flag)).try_for_each(|(_, word)| f.write_str(word))
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A segment whose data offset is right. Its checksum is checked by [`is_checksum_valid`](Self::is_checksum_valid).
#[derive(Clone, Copy, Debug)]
pub struct TcpView<'a> {
    header: &'a [u8; TcpView::HEADER_LEN],
    segment: &'a [u8],
    options: &'a [u8],
    payload: &'a [u8],
}

impl TcpView<'_> {
    /// Bytes of a header without options.
    pub const HEADER_LEN: usize = 20;
}

impl<'a> TcpView<'a> {
    /// Checks an IP payload.
    #[inline]
    pub fn parse(segment: &'a [u8]) -> Result<Self, TcpError> {
        let (header, rest) =
            segment.split_first_chunk::<{ TcpView::HEADER_LEN }>().ok_or(TcpError::Truncated)?;
        let options_len = (usize::from(header[12] >> 4) * 4)
            .checked_sub(TcpView::HEADER_LEN)
            .ok_or(TcpError::DataOffset)?;
        let (options, payload) = rest.split_at_checked(options_len).ok_or(TcpError::DataOffset)?;
        if be16(header, 0) == 0 || be16(header, 2) == 0 {
            return Err(TcpError::Port);
        }
        Ok(Self { header, segment, options, payload })
    }

    /// The sender's port.
    #[inline]
    pub fn src_port(&self) -> Port {
        Port(be16(self.header, 0))
    }

    /// The receiver's port.
    #[inline]
    pub fn dst_port(&self) -> Port {
        Port(be16(self.header, 2))
    }

    /// The sequence number of the first byte, or of SYN.
    #[inline]
    pub fn seq(&self) -> SeqNum {
        SeqNum(be32(self.header, 4))
    }

    /// The next sequence number that the sender expects, if ACK says that it is significant.
    #[inline]
    pub fn ack(&self) -> Option<SeqNum> {
        self.flags().ack().then_some(SeqNum(be32(self.header, 8)))
    }

    /// The acknowledgement field, significant or not.
    #[inline]
    pub fn ack_field(&self) -> SeqNum {
        SeqNum(be32(self.header, 8))
    }

    /// The control bits.
    #[inline]
    pub fn flags(&self) -> TcpFlags {
        TcpFlags::from_bits(be16(self.header, 12))
    }

    /// The window field, not scaled.
    #[inline]
    pub fn window(&self) -> u16 {
        be16(self.header, 14)
    }

    /// The checksum field.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.header, 16)
    }

    /// The urgent pointer, significant or not.
    #[inline]
    pub fn urgent(&self) -> u16 {
        be16(self.header, 18)
    }

    /// Bytes of the header, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        TcpView::HEADER_LEN + self.options.len()
    }

    /// The options.
    #[inline]
    pub fn options(&self) -> TcpOptions {
        TcpOptions::parse(self.options)
    }

    /// Timestamp value and echo reply, if they are all the options and laid out as everybody does.
    #[inline]
    pub fn lone_timestamps(&self) -> Option<(u32, u32)> {
        TcpOptions::lone_timestamps(self.options)
    }

    /// The options as they came.
    #[inline]
    pub fn option_bytes(&self) -> &'a [u8] {
        self.options
    }

    /// The segment's payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// How many sequence numbers the segment takes: payload, SYN and FIN (RFC 9293 §3.4, SEG.LEN).
    #[inline]
    pub fn sequence_len(&self) -> u32 {
        self.payload.len() as u32 + self.flags().sequence_len()
    }

    /// Whether the checksum is right.
    #[inline]
    pub fn is_checksum_valid(&self, src: IpAddr, dst: IpAddr) -> bool {
        let pseudo = Sum::pseudo(src, dst, IpProtocol::TCP, self.segment.len() as u32);
        pseudo.combine(Sum::of(self.segment)).is_valid()
    }
}

/// A TCP header as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpRepr {
    /// The sender's port.
    pub src_port: Port,
    /// The receiver's port.
    pub dst_port: Port,
    /// The sequence number of the first byte, or of SYN.
    pub seq: SeqNum,
    /// The next sequence number that the sender expects. It alone decides whether ACK is emitted.
    pub ack: Option<SeqNum>,
    /// The control bits; in a parsed header ACK is set as it was on the wire.
    pub flags: TcpFlags,
    /// The window field, not scaled.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// The options.
    pub options: TcpOptions,
}

impl TcpRepr {
    /// The view's header as values.
    #[inline]
    pub fn parse(view: &TcpView<'_>) -> Self {
        Self {
            src_port: view.src_port(),
            dst_port: view.dst_port(),
            seq: view.seq(),
            ack: view.ack(),
            flags: view.flags(),
            window: view.window(),
            urgent: view.urgent(),
            options: view.options(),
        }
    }

    /// Bytes that [`emit`](Self::emit) writes: the header with its options.
    #[inline]
    pub const fn emitted_len(&self) -> usize {
        TcpView::HEADER_LEN + self.options.emitted_len()
    }

    /// Writes the header, with a checksum field of zero, to the front of `buffer`.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        match (self.options.only_timestamps(), buffer.first_chunk_mut()) {
            (Some(stamps), Some(header)) => self.emit_stamped(stamps, header),
            _ => self.emit_any(buffer),
        }
    }

    /// The header of nearly every segment, in whole words.
    #[inline]
    fn emit_stamped(&self, (value, echo): (u32, u32), header: &mut [u8; TcpView::HEADER_LEN + 12]) {
        const WORDS: u32 = (TcpView::HEADER_LEN as u32 + 12) / 4;
        let flags = u32::from(self.emitted_flags().bits());
        let words = [
            u32::from(self.src_port.0) << 16 | u32::from(self.dst_port.0),
            self.seq.0,
            self.ack.unwrap_or_default().0,
            WORDS << 28 | flags << 16 | u32::from(self.window),
            u32::from(self.urgent),
            TcpOptions::TIMESTAMPS_LEAD,
            value,
            echo,
        ];
        for (place, word) in header.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
    }

    /// The control bits as they go on the wire.
    #[inline]
    const fn emitted_flags(&self) -> TcpFlags {
        match self.ack {
            Some(_) => self.flags.with(TcpFlags::ACK),
            None => self.flags.without(TcpFlags::ACK),
        }
    }

    fn emit_any(&self, buffer: &mut [u8]) {
        let words = (self.emitted_len() / 4) as u16;
        let (header, options) = buffer
            .split_first_chunk_mut::<{ TcpView::HEADER_LEN }>()
            .expect("the caller of emit reserved emitted_len() bytes");
        let flags = self.emitted_flags();
        put(header, 0, self.src_port.0.to_be_bytes());
        put(header, 2, self.dst_port.0.to_be_bytes());
        put(header, 4, self.seq.0.to_be_bytes());
        put(header, 8, self.ack.unwrap_or_default().0.to_be_bytes());
        put(header, 12, (words << 12 | flags.bits()).to_be_bytes());
        put(header, 14, self.window.to_be_bytes());
        put(header, 16, [0, 0]);
        put(header, 18, self.urgent.to_be_bytes());
        self.options.emit(options);
    }
}

/// Completes the checksum of a whole segment whose checksum field is zero.
///
/// # Panics
/// If `segment` is shorter than a header.
#[inline]
pub fn fill_checksum(segment: &mut [u8], pseudo: Sum) {
    fill_checksum_with(segment, pseudo, Sum::ZERO);
}

/// Completes the checksum of a header with options, whose field is zero, over a payload that was summed
/// while it was copied.
///
/// # Panics
/// If `header` is shorter than a header.
#[inline]
pub fn fill_checksum_with(header: &mut [u8], pseudo: Sum, payload: Sum) {
    let checksum = pseudo.combine(Sum::of(header)).combine(payload).checksum();
    put(fixed::<{ TcpView::HEADER_LEN }>(header), CHECKSUM_OFFSET, checksum.to_be_bytes());
}

/// Leaves the checksum to the device: the field gets the sum of the pseudo-header.
///
/// # Panics
/// If `header` is shorter than a header.
#[inline]
pub fn fill_partial(header: &mut [u8], pseudo: Sum) {
    put(fixed::<{ TcpView::HEADER_LEN }>(header), CHECKSUM_OFFSET, pseudo.folded().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    const ENDS: (IpAddr, IpAddr) =
        (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 10)));

    prop_compose! {
        fn repr()(ports in (1u16.., 1u16..), seq: u32, ack: Option<u32>, flags in 0u16..0x200, window: u16,
                  urgent: u16, mss: Option<u16>, window_scale: Option<u8>, sack_permitted: bool,
                  timestamps: Option<(u32, u32)>) -> TcpRepr {
            let flags = TcpFlags::from_bits(flags).without(TcpFlags::ACK);
            TcpRepr {
                src_port: Port(ports.0), dst_port: Port(ports.1), seq: SeqNum(seq), ack: ack.map(SeqNum),
                flags: if ack.is_some() { flags | TcpFlags::ACK } else { flags }, window, urgent,
                options: TcpOptions { mss, window_scale, sack_permitted, timestamps, ..TcpOptions::EMPTY },
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_read_back(repr in repr(), payload in proptest::collection::vec(any::<u8>(), 0..99)) {
            let length = repr.emitted_len();
            let mut segment = vec![0xee; length];
            repr.emit(&mut segment);
            segment.extend(&payload);
            let pseudo = Sum::pseudo(ENDS.0, ENDS.1, IpProtocol::TCP, segment.len() as u32);

            let mut apart = segment.clone();
            fill_checksum_with(&mut apart[..length], pseudo, Sum::of(&payload));
            let mut partial = segment.clone();
            fill_partial(&mut partial, pseudo);
            let completed = Sum::of(&partial).checksum();
            fill_checksum(&mut segment, pseudo);
            prop_assert_eq!(&apart, &segment);

            let view = TcpView::parse(&segment).unwrap();
            prop_assert_eq!(completed, view.checksum());
            prop_assert_eq!(TcpRepr::parse(&view), repr);
            prop_assert_eq!((view.header_len(), view.payload()), (length, &payload[..]));
            prop_assert!(view.is_checksum_valid(ENDS.0, ENDS.1));
            segment[4] ^= 1;
            prop_assert!(!TcpView::parse(&segment).unwrap().is_checksum_valid(ENDS.0, ENDS.1));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..90)) {
            if let Ok(view) = TcpView::parse(&bytes) {
                prop_assert_eq!(view.header_len() + view.payload().len(), bytes.len());
                prop_assert!(TcpRepr::parse(&view).emitted_len() <= 60);
            }
        }
    }

    /// T01: a data offset that lies before the header's end or behind the segment's.
    #[test]
    fn t01_malformed() {
        let segment = |offset: u8, length: usize| {
            let mut bytes = vec![0; length];
            (bytes[1], bytes[3], bytes[12]) = (1, 1, offset << 4);
            TcpView::parse(&bytes).map(|view| (view.header_len(), view.payload().len()))
        };
        for (offset, length, expected) in [
            (5, 19, Err(TcpError::Truncated)),
            (0, 20, Err(TcpError::DataOffset)),
            (4, 60, Err(TcpError::DataOffset)),
            (6, 20, Err(TcpError::DataOffset)),
            (6, 23, Err(TcpError::DataOffset)),
            (15, 59, Err(TcpError::DataOffset)),
            (15, 60, Ok((60, 0))),
            (5, 20, Ok((20, 0))),
            (5, 21, Ok((20, 1))),
        ] {
            assert_eq!(segment(offset, length), expected, "offset {offset} of {length}");
        }
        assert_eq!(TcpView::parse(&[0x50; 0]).unwrap_err(), TcpError::Truncated);
        let no_port = [[0, 0, 0, 80], [0, 80, 0, 0]].map(|ports| {
            let mut bytes = [0; 20];
            bytes[..4].copy_from_slice(&ports);
            bytes[12] = 0x50;
            TcpView::parse(&bytes).map(|view| view.header_len())
        });
        assert_eq!(no_port, [Err(TcpError::Port); 2]);
    }

    #[test]
    fn flags_read_as_tcpdump_writes_them() {
        let flags = TcpFlags::SYN | TcpFlags::ACK;
        assert_eq!(flags.to_string(), "S.");
        assert_eq!(TcpFlags::EMPTY.to_string(), "none");
        assert_eq!(TcpFlags::from_bits(0xffff).bits(), 0x1ff);
        assert_eq!((flags | TcpFlags::FIN).sequence_len(), 2);
        assert!(flags.intersects(TcpFlags::SYN | TcpFlags::RST));
        assert!(!flags.contains(TcpFlags::SYN | TcpFlags::RST));
    }
}
