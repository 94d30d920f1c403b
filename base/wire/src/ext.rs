//! IPv6 extension headers (RFC 8200 §4): the walk from the fixed header to the upper layer.
//!
//! `path/ip` walks every packet that is for this host with [`walk`], and one that it forwards with
//! [`walk_hop_by_hop`]; `path/classify` walks to find ports. The walk is bounded by [`HEADERS_MAX`] and
//! [`CHAIN_MAX`] and never goes back, so no packet costs more than reading 512 bytes once. An error says
//! what RFC 8200 wants: silence, or an ICMP parameter problem with its code and pointer. Whether that may
//! be sent (rate, multicast source) is the caller's to decide.
//!
//! Headers this host does not process (authentication, mobility, ...) end the walk as an upper layer that
//! nobody has, which leads to the parameter problem that RFC 8200 §4 asks for.

use firelane_units::DropReason;

use crate::{FragmentRepr, FragmentView, IpProtocol, Ipv6View};

/// Extension headers in one packet; honest packets have at most seven (RFC 8200 §4.1).
pub const HEADERS_MAX: usize = 8;

/// Bytes of all extension headers together: more serves only to hide the upper layer.
pub const CHAIN_MAX: usize = 512;

/// A problem that is reported to the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderProblem {
    /// A field has a value that cannot be processed (RFC 4443 §3.4).
    ErroneousField,
    /// A next header that is unknown or in the wrong place (RFC 4443 §3.4).
    UnrecognizedNextHeader,
    /// An option whose type asks for an answer when it is unknown (RFC 8200 §4.2). This one is reported
    /// even if the packet was for a group.
    UnrecognizedOption,
    /// The first fragment ends before the upper layer's header does (RFC 7112 §5).
    IncompleteFirstFragment,
    /// More than [`CHAIN_MAX`] bytes (RFC 8883 §3).
    ChainTooLong,
    /// More than [`HEADERS_MAX`] headers (RFC 8883 §3).
    TooManyHeaders,
}

impl HeaderProblem {
    /// The code of the ICMPv6 parameter problem.
    pub const fn code(self) -> u8 {
        match self {
            Self::ErroneousField => 0,
            Self::UnrecognizedNextHeader => 1,
            Self::UnrecognizedOption => 2,
            Self::IncompleteFirstFragment => 3,
            Self::ChainTooLong => 7,
            Self::TooManyHeaders => 8,
        }
    }
}

/// What is wrong with a chain that is dropped in silence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtFault {
    /// A header reaches past the packet.
    Truncated,
    /// An option reaches past its header.
    OptionLength,
    /// An unknown option that asks for silence (RFC 8200 §4.2).
    OptionRefused,
    /// A fragment header behind another.
    NestedFragment,
}

/// Why a chain cannot be walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtError {
    /// The sender is told, with `pointer` counted from the start of the packet.
    Report {
        /// What is wrong.
        problem: HeaderProblem,
        /// Where.
        pointer: u16,
    },
    /// The packet is dropped in silence.
    Discard(ExtFault),
}

impl ExtError {
    /// The reason under which a frame with this error is counted.
    pub const fn drop_reason(self) -> DropReason {
        match self {
            Self::Report { problem: HeaderProblem::IncompleteFirstFragment, .. }
            | Self::Discard(ExtFault::NestedFragment) => DropReason::BadFragment,
            _ => DropReason::BadOption,
        }
    }

    const fn report(problem: HeaderProblem, pointer: usize) -> Self {
        Self::Report { problem, pointer: pointer as u16 }
    }
}

impl From<ExtError> for DropReason {
    fn from(error: ExtError) -> Self {
        error.drop_reason()
    }
}

impl core::fmt::Display for ExtError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Report { problem, pointer } => write!(
                f,
                "IPv6 parameter problem {} (code {}) at byte {pointer}",
                match problem {
                    HeaderProblem::ErroneousField => "erroneous field",
                    HeaderProblem::UnrecognizedNextHeader => "unrecognized next header",
                    HeaderProblem::UnrecognizedOption => "unrecognized option",
                    HeaderProblem::IncompleteFirstFragment => "incomplete first fragment",
                    HeaderProblem::ChainTooLong => "extension header chain too long",
                    HeaderProblem::TooManyHeaders => "too many extension headers",
                },
                problem.code()
            ),
            Self::Discard(fault) => f.write_str(match fault {
                ExtFault::Truncated => "an IPv6 extension header reaches past the packet",
                ExtFault::OptionLength => "an IPv6 option reaches past its header",
                ExtFault::OptionRefused => "an unknown IPv6 option asks to discard the packet",
                ExtFault::NestedFragment => "an IPv6 fragment header behind another",
            }),
        }
    }
}

impl core::error::Error for ExtError {}

/// A fragment header that was met on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Where in the packet the fragment header begins: what is before it belongs to every fragment.
    pub header_at: u16,
    /// Where in the packet the next-header field is that names the fragment header.
    pub named_at: u16,
    /// The header as values.
    pub repr: FragmentRepr,
}

/// What the walk found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtChain {
    /// The upper layer; of a fragment that is not the first, what the whole datagram continues with.
    pub upper: IpProtocol,
    /// Where in the packet the upper layer, or a fragment's part of the datagram, begins.
    pub offset: u16,
    /// Where in the packet the field is that names it: the pointer of a parameter problem if nobody has
    /// that protocol.
    pub named_at: u16,
    /// The fragment header, if there is one.
    pub fragment: Option<Fragment>,
}

impl ExtChain {
    /// Whether the packet is only a part of a datagram. A fragment header that says "all of it" (an
    /// atomic fragment) does not make it one (RFC 6946).
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        match &self.fragment {
            Some(fragment) => !fragment.repr.is_atomic(),
            None => false,
        }
    }

    /// The packet's bytes from [`offset`](Self::offset) on.
    #[inline]
    pub fn payload<'a>(&self, packet: &Ipv6View<'a>) -> &'a [u8] {
        packet.payload().get(usize::from(self.offset) - Ipv6View::HEADER_LEN..).unwrap_or_default()
    }
}

/// Walks a packet for this host to its upper layer, obeying the headers on the way.
#[inline]
pub fn walk(packet: &Ipv6View<'_>) -> Result<ExtChain, ExtError> {
    let walk = Walk::new(packet);
    if is_extension(walk.protocol) { walk.run() } else { Ok(walk.end(None)) }
}

/// Checks what a router must look at: the hop-by-hop options, if they are there (RFC 8200 §4).
#[inline]
pub fn walk_hop_by_hop(packet: &Ipv6View<'_>) -> Result<(), ExtError> {
    let walk = Walk::new(packet);
    if walk.protocol == IpProtocol::HOP_BY_HOP { walk.header().and_then(|h| walk.options(h)) } else { Ok(()) }
}

/// Finds the upper layer behind `first` without obeying anything: in a packet that an ICMP error quotes,
/// behind a fragment header, or for who only looks. `None` if `bytes` end before, or the chain is longer than allowed.
pub fn skip(first: IpProtocol, bytes: &[u8]) -> Option<(IpProtocol, &[u8])> {
    let (mut protocol, mut rest) = (first, bytes);
    for _ in 0..=HEADERS_MAX {
        match protocol {
            IpProtocol::FRAGMENT => {
                let fragment = FragmentRepr::parse(&FragmentView::parse(rest).ok()?);
                if fragment.offset > 0 {
                    return None;
                }
                (protocol, rest) = (fragment.next_header, &rest[FragmentView::HEADER_LEN..]);
            }
            protocol_here if is_extension(protocol_here) => {
                let length = (usize::from(*rest.get(1)?) + 1) * 8;
                protocol = IpProtocol(rest[0]);
                rest = rest.get(length..)?;
            }
            upper => return Some((upper, rest)),
        }
    }
    None
}

/// Whether the walk goes on behind such a header.
#[inline]
const fn is_extension(protocol: IpProtocol) -> bool {
    matches!(
        protocol,
        IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING | IpProtocol::FRAGMENT | IpProtocol::DESTINATION_OPTIONS
    )
}

/// The least bytes that are a header of `upper` (RFC 7112 §3; of ICMPv6 the first 32 bits).
const fn upper_header_len(upper: IpProtocol) -> usize {
    match upper {
        IpProtocol::TCP => 20,
        IpProtocol::UDP => 8,
        IpProtocol::ICMPV6 => 4,
        _ => 0,
    }
}

/// The cursor: `protocol` begins `at`, and was named by the byte at `named_at`.
struct Walk<'a> {
    packet: &'a Ipv6View<'a>,
    protocol: IpProtocol,
    at: usize,
    named_at: usize,
}

impl<'a> Walk<'a> {
    #[inline]
    fn new(packet: &'a Ipv6View<'a>) -> Self {
        Self { packet, protocol: packet.next_header(), at: Ipv6View::HEADER_LEN, named_at: 6 }
    }

    #[inline]
    fn end(&self, fragment: Option<Fragment>) -> ExtChain {
        ExtChain { upper: self.protocol, offset: self.at as u16, named_at: self.named_at as u16, fragment }
    }

    fn run(mut self) -> Result<ExtChain, ExtError> {
        let mut fragment = None;
        let mut headers = 0;
        while is_extension(self.protocol) {
            headers += 1;
            if headers > HEADERS_MAX {
                return Err(ExtError::report(HeaderProblem::TooManyHeaders, self.at));
            }
            let header = self.header()?;
            match self.protocol {
                // RFC 8200 §4.3: directly behind the IPv6 header; elsewhere it is an unknown next header.
                IpProtocol::HOP_BY_HOP if headers > 1 => {
                    return Err(ExtError::report(HeaderProblem::UnrecognizedNextHeader, self.named_at));
                }
                IpProtocol::ROUTING => self.routing(header)?,
                IpProtocol::FRAGMENT if fragment.is_some() => {
                    return Err(ExtError::Discard(ExtFault::NestedFragment));
                }
                IpProtocol::FRAGMENT => {
                    let found = self.fragment(header)?;
                    fragment = Some(found);
                    if !found.repr.is_atomic() {
                        self.advance(header);
                        return Ok(self.end(fragment));
                    }
                }
                _ => self.options(header)?,
            }
            self.advance(header);
        }
        Ok(self.end(fragment))
    }

    /// The header at the cursor, which lies in the packet and within the limits.
    fn header(&self) -> Result<&'a [u8], ExtError> {
        let start = self.at - Ipv6View::HEADER_LEN;
        let rest = self.packet.payload().get(start..).unwrap_or_default();
        let &[_, length, ..] = rest else { return Err(ExtError::Discard(ExtFault::Truncated)) };
        let length = match self.protocol {
            IpProtocol::FRAGMENT => FragmentView::HEADER_LEN,
            _ => (usize::from(length) + 1) * 8,
        };
        if start + length > CHAIN_MAX {
            let first_past = Ipv6View::HEADER_LEN + CHAIN_MAX;
            return Err(ExtError::report(HeaderProblem::ChainTooLong, first_past));
        }
        rest.get(..length).ok_or(ExtError::Discard(ExtFault::Truncated))
    }

    fn advance(&mut self, header: &[u8]) {
        self.protocol = IpProtocol(header[0]);
        self.named_at = self.at;
        self.at += header.len();
    }

    /// RFC 8200 §4.2: unknown options do what the two high bits of their type say.
    fn options(&self, header: &[u8]) -> Result<(), ExtError> {
        let mut at = 2;
        while let Some(&kind) = header.get(at) {
            if kind == 0 {
                at += 1;
                continue;
            }
            let end = header.get(at + 1).map(|&length| at + 2 + usize::from(length));
            let Some(end) = end.filter(|&end| end <= header.len()) else {
                return Err(ExtError::Discard(ExtFault::OptionLength));
            };
            let unknown = ExtError::report(HeaderProblem::UnrecognizedOption, self.at + at);
            match kind >> 6 {
                0 => {}
                1 => return Err(ExtError::Discard(ExtFault::OptionRefused)),
                2 => return Err(unknown),
                _ if self.packet.dst().is_multicast() => {
                    return Err(ExtError::Discard(ExtFault::OptionRefused));
                }
                _ => return Err(unknown),
            }
            at = end;
        }
        Ok(())
    }

    /// RFC 8200 §4.4, RFC 5095: no type is known here, type 0 least of all; one without segments left is
    /// ignored.
    fn routing(&self, header: &[u8]) -> Result<(), ExtError> {
        let segments_left = header[3];
        if segments_left == 0 {
            return Ok(());
        }
        Err(ExtError::report(HeaderProblem::ErroneousField, self.at + 2))
    }

    /// RFC 8200 §4.5: lengths that fit no datagram, and RFC 7112: a first fragment without all headers.
    fn fragment(&self, header: &[u8]) -> Result<Fragment, ExtError> {
        let view = FragmentView::parse(header).map_err(|_| ExtError::Discard(ExtFault::Truncated))?;
        let repr = FragmentRepr::parse(&view);
        let start = self.at - Ipv6View::HEADER_LEN + header.len();
        let payload_len = usize::from(self.packet.payload_len());
        let part_len = payload_len.saturating_sub(start);
        if repr.more && !part_len.is_multiple_of(8) {
            return Err(ExtError::report(HeaderProblem::ErroneousField, 4));
        }
        let reassembled_len = payload_len - header.len() + usize::from(repr.offset);
        if reassembled_len > usize::from(u16::MAX) {
            return Err(ExtError::report(HeaderProblem::ErroneousField, self.at + 2));
        }
        if repr.more && repr.offset == 0 {
            let part = self.packet.payload().get(start..).unwrap_or_default();
            let upper = skip(repr.next_header, part);
            if upper.is_none_or(|(upper, bytes)| bytes.len() < upper_header_len(upper)) {
                return Err(ExtError::report(HeaderProblem::IncompleteFirstFragment, 0));
            }
        }
        Ok(Fragment { header_at: self.at as u16, named_at: self.named_at as u16, repr })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ipv6Repr;
    use proptest::prelude::*;

    const HBH: u8 = 0;
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const ICMPV6: u8 = 58;
    const DEST: u8 = 60;

    fn packet(dst: &str, first: u8, payload: &[u8]) -> Vec<u8> {
        let dst = dst.parse().unwrap();
        let mut bytes = vec![0; 40];
        Ipv6Repr::new("fd00::1".parse().unwrap(), dst, IpProtocol(first), payload.len() as u16)
            .emit(&mut bytes);
        bytes.extend(payload);
        bytes
    }

    fn walked(first: u8, payload: &[u8]) -> Result<ExtChain, ExtError> {
        walk(&Ipv6View::parse(&packet("fd00::2", first, payload)).unwrap())
    }

    /// A header of 8 bytes with padding.
    fn padded(next: u8) -> [u8; 8] {
        [next, 0, 1, 4, 0, 0, 0, 0]
    }

    fn upper(upper: u8, offset: u16, named_at: u16) -> Result<ExtChain, ExtError> {
        Ok(ExtChain { upper: IpProtocol(upper), offset, named_at, fragment: None })
    }

    fn report(problem: HeaderProblem, pointer: u16) -> Result<ExtChain, ExtError> {
        Err(ExtError::Report { problem, pointer })
    }

    #[test]
    fn chains_end_at_the_upper_layer() {
        assert_eq!(walked(TCP, &[0; 20]), upper(TCP, 40, 6));
        assert_eq!(walked(59, &[]), upper(59, 40, 6));
        assert_eq!(walked(HBH, &[&padded(UDP)[..], &[0; 8]].concat()), upper(UDP, 48, 40));
        let all = [&padded(DEST)[..], &padded(ROUTING), &[DEST, 0, 7, 0, 0, 0, 0, 0], &padded(51)].concat();
        assert_eq!(walked(HBH, &all), upper(51, 72, 64), "an unknown header is an upper layer");
        let bytes = packet("fd00::2", HBH, &[&padded(UDP)[..], &[7; 9]].concat());
        let view = Ipv6View::parse(&bytes).unwrap();
        assert_eq!(walk(&view).unwrap().payload(&view), &[7; 9]);
    }

    /// V02: too many, repeated, misplaced and truncated headers.
    #[test]
    fn v02_malformed() {
        let fifty = padded(DEST).repeat(50);
        assert_eq!(walked(DEST, &fifty), report(HeaderProblem::TooManyHeaders, 40 + 64));
        assert_eq!(
            walked(HBH, &[padded(HBH), padded(UDP)].concat()),
            report(HeaderProblem::UnrecognizedNextHeader, 40)
        );
        assert_eq!(
            walked(DEST, &[padded(DEST), padded(HBH), padded(UDP)].concat()),
            report(HeaderProblem::UnrecognizedNextHeader, 48)
        );
        let truncated = Err(ExtError::Discard(ExtFault::Truncated));
        assert_eq!(walked(HBH, &[]), truncated);
        assert_eq!(walked(HBH, &[UDP]), truncated);
        assert_eq!(walked(HBH, &padded(UDP)[..7]), truncated);
        assert_eq!(walked(ROUTING, &[UDP, 1, 0, 0, 0, 0, 0, 0]), truncated);
        assert_eq!(walked(FRAGMENT, &[UDP, 0, 0, 0, 0, 0, 0]), truncated);
        assert_eq!(walked(DEST, &[padded(DEST), [UDP, 9, 1, 4, 0, 0, 0, 0]].concat()), truncated);
        let mut long = vec![0; 600];
        (long[0], long[1]) = (UDP, 63);
        assert_eq!(walked(DEST, &long), upper(UDP, 552, 40), "exactly the limit");
        long[1] = 64;
        assert_eq!(walked(DEST, &long), report(HeaderProblem::ChainTooLong, 552));
    }

    /// V03: what RFC 8200 §4.2 says for the two high bits of an unknown option.
    #[test]
    fn v03_unknown_options() {
        let refused = Err(ExtError::Discard(ExtFault::OptionRefused));
        let reported = report(HeaderProblem::UnrecognizedOption, 43);
        for dst in ["fd00::2", "ff02::1"] {
            let group = dst == "ff02::1";
            for (kind, expected) in [
                (0x3e, upper(UDP, 48, 40)),
                (0x7e, refused),
                (0xbe, reported),
                (0xfe, if group { refused } else { reported }),
                (0xc2, if group { refused } else { reported }),
            ] {
                for first in [HBH, DEST] {
                    let bytes = packet(dst, first, &[UDP, 0, 0, kind, 2, 0, 0, 0]);
                    let view = Ipv6View::parse(&bytes).unwrap();
                    assert_eq!(walk(&view), expected, "{kind:#x} to {dst}");
                    let routed = if first == HBH { expected.map(|_| ()) } else { Ok(()) };
                    assert_eq!(walk_hop_by_hop(&view), routed, "a router obeys only hop-by-hop options");
                }
            }
        }
        for options in [[1, 5, 0, 0, 0, 0], [0, 0, 0, 0, 0, 5], [5, 2, 0, 0, 1, 1]] {
            let header = [&[UDP, 0][..], &options].concat();
            let expected = Err(ExtError::Discard(ExtFault::OptionLength));
            assert_eq!(walked(HBH, &header), expected, "{options:?}");
        }
    }

    /// V04: a routing header with segments left points at its type; without, it is ignored.
    #[test]
    fn v04_routing_headers() {
        for kind in [0, 2, 4, 255] {
            let header = |left| [&[UDP, 0, kind, left, 0, 0, 0, 0][..], &[0; 8]].concat();
            assert_eq!(walked(ROUTING, &header(0)), upper(UDP, 48, 40));
            assert_eq!(walked(ROUTING, &header(1)), report(HeaderProblem::ErroneousField, 42));
        }
    }

    fn fragment(next: u8, offset: u16, more: bool, part: &[u8]) -> Vec<u8> {
        let repr = FragmentRepr { next_header: IpProtocol(next), offset, more, identification: 0xabcd_ef01 };
        let mut bytes = vec![0; 8];
        repr.emit(&mut bytes);
        bytes.extend(part);
        bytes
    }

    #[test]
    fn fragments_stop_the_walk_and_atomic_ones_do_not() {
        let first = walked(FRAGMENT, &fragment(UDP, 0, true, &[0; 16])).unwrap();
        assert!(first.is_fragment());
        assert_eq!((first.upper, first.offset), (IpProtocol::UDP, 48));
        let found = first.fragment.unwrap();
        assert_eq!((found.header_at, found.named_at, found.repr.identification), (40, 6, 0xabcd_ef01));

        let behind = [&padded(FRAGMENT)[..], &fragment(DEST, 1400, false, &[0xfe; 3])].concat();
        let last = walked(HBH, &behind).unwrap();
        assert_eq!((last.upper, last.offset, last.named_at), (IpProtocol::DESTINATION_OPTIONS, 56, 48));
        assert_eq!(last.fragment.map(|f| (f.header_at, f.named_at)), Some((48, 40)));

        let whole = fragment(DEST, 0, false, &[&padded(UDP)[..], &[0; 8]].concat());
        let atomic = walked(FRAGMENT, &whole).unwrap();
        assert!(!atomic.is_fragment() && atomic.fragment.is_some());
        assert_eq!((atomic.upper, atomic.offset, atomic.named_at), (IpProtocol::UDP, 56, 48));
    }

    /// V06, V07: nested headers, lengths that fit no datagram, first fragments without all headers.
    #[test]
    fn v07_malformed_fragments() {
        let nested = fragment(FRAGMENT, 0, false, &fragment(UDP, 0, true, &[0; 16]));
        assert_eq!(walked(FRAGMENT, &nested), Err(ExtError::Discard(ExtFault::NestedFragment)));
        let odd = fragment(UDP, 8, true, &[0; 9]);
        assert_eq!(walked(FRAGMENT, &odd), report(HeaderProblem::ErroneousField, 4));
        let past = fragment(UDP, 65_528, false, &[0; 8]);
        assert_eq!(walked(FRAGMENT, &past), report(HeaderProblem::ErroneousField, 42));
        let just = fragment(UDP, 65_528, false, &[0; 7]);
        assert!(walked(FRAGMENT, &just).is_ok());
        let incomplete = report(HeaderProblem::IncompleteFirstFragment, 0);
        assert_eq!(walked(FRAGMENT, &fragment(TCP, 0, true, &[0; 16])), incomplete);
        assert!(walked(FRAGMENT, &fragment(TCP, 0, true, &[0; 24])).is_ok());
        assert_eq!(walked(FRAGMENT, &fragment(UDP, 0, true, &[])), incomplete);
        assert_eq!(walked(FRAGMENT, &fragment(ICMPV6, 0, true, &[])), incomplete);
        assert_eq!(walked(FRAGMENT, &fragment(DEST, 0, true, &padded(UDP))), incomplete);
        assert_eq!(walked(FRAGMENT, &fragment(DEST, 0, true, &[UDP, 5, 0, 0, 0, 0, 0, 0])), incomplete);
    }

    proptest! {
        #[test]
        fn any_chain_ends_inside_the_packet(
            first in prop_oneof![Just(HBH), Just(DEST), Just(ROUTING), Just(FRAGMENT), Just(UDP)],
            headers in proptest::collection::vec(
                (prop_oneof![Just(HBH), Just(DEST), Just(ROUTING), Just(FRAGMENT), Just(UDP)], 0u8..3,
                 proptest::array::uniform6(prop_oneof![0u8..6, any::<u8>()])), 0..12),
            cut in 0usize..100) {
            let mut payload = Vec::new();
            for (next, length, body) in headers {
                payload.extend([next, length]);
                payload.extend(body);
                payload.extend(vec![0; usize::from(length) * 8]);
            }
            payload.truncate(payload.len().saturating_sub(cut));
            let bytes = packet("fd00::2", first, &payload);
            let view = Ipv6View::parse(&bytes).unwrap();
            let _ = walk_hop_by_hop(&view);
            match walk(&view) {
                Ok(chain) => {
                    prop_assert!(usize::from(chain.offset) <= bytes.len());
                    prop_assert!(usize::from(chain.offset) <= 40 + CHAIN_MAX);
                    prop_assert_eq!(bytes[usize::from(chain.named_at)], chain.upper.0);
                    prop_assert_eq!(chain.payload(&view).len(), bytes.len() - usize::from(chain.offset));
                }
                Err(ExtError::Report { pointer, .. }) => prop_assert!(usize::from(pointer) < bytes.len().max(553)),
                Err(ExtError::Discard(_)) => {}
            }
        }
    }
}
