//! Neighbour discovery (RFC 4861, RFC 4862): the five messages and their options.
//!
//! `path/ip`'s neighbour table and address configuration parse and emit them. [`NdpView::parse`] makes all
//! the checks for which RFC 4861 discards in silence, except the checksum and what depends on a node's own
//! tables (is the router the current one, is the target tentative). Fragments must not come here at all
//! (RFC 6980). The options are in `ndp_options.rs`.

use core::net::Ipv6Addr;
use core::time::Duration;

use crate::bytes::{array, be16, be32, fixed, put};
use crate::ndp_options::{NdpOption, NdpOptions};

parse_error! {
    /// Why a neighbour discovery message is discarded.
    NdpError {
        /// Not one of the five types.
        Kind = "not a neighbour discovery message" => BadNdp,
        /// The hop limit is not 255: it may come from beyond the link.
        HopLimit = "the hop limit of a neighbour discovery message is not 255" => BadNdp,
        /// The code is not zero.
        Code = "the code of a neighbour discovery message is not 0" => BadNdp,
        /// Shorter than its type's fixed part.
        Truncated = "shorter than the neighbour discovery message" => BadNdp,
        /// The target is a group, or a redirect's is neither a router nor the destination.
        Target = "the target of a neighbour discovery message is not allowed" => BadNdp,
        /// The source is not one that may send this type.
        Source = "the source of a neighbour discovery message is not allowed" => BadNdp,
        /// The destination is not one that this message may have.
        Destination = "the destination of a neighbour discovery message is not allowed" => BadNdp,
        /// An answer to a question that is sent to a group.
        Solicited = "a solicited advertisement is sent to a group" => BadNdp,
        /// An option's length is zero, past the message's end, or not its kind's.
        OptionLength = "the length of a neighbour discovery option is wrong" => BadNdp,
        /// An option that this message may not have from this source.
        OptionNotAllowed = "a link-layer address from the unspecified address" => BadNdp,
        /// More options than a message may have.
        TooManyOptions = "too many neighbour discovery options" => BadNdp,
    }
}

/// The hop limit of every message: a router in between would have lowered it (RFC 4861 §3.1).
pub const HOP_LIMIT: u8 = 255;

const ROUTER_SOLICIT: u8 = 133;
const ROUTER_ADVERT: u8 = 134;
const NEIGHBOUR_SOLICIT: u8 = 135;
const NEIGHBOUR_ADVERT: u8 = 136;
const REDIRECT: u8 = 137;

/// The group in which the owner of `address` hears solicitations (RFC 4291 §2.7.1).
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | a as u16, (b as u16) << 8 | c as u16)
}

/// What RFC 4861 checks of the IP header around a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NdpEnvelope {
    /// Who sent it.
    pub src: Ipv6Addr,
    /// Who it is for.
    pub dst: Ipv6Addr,
    /// The hop limit that arrived.
    pub hop_limit: u8,
}

/// How much a host should like a router (RFC 4191 §2.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum RouterPreference {
    /// Only if there is no other.
    Low,
    /// As any; the reserved value means this too.
    #[default]
    Medium,
    /// Before others.
    High,
}

impl RouterPreference {
    /// The two bits of a message; `None` for the reserved value.
    pub(crate) const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::Medium),
            1 => Some(Self::High),
            3 => Some(Self::Low),
            _ => None,
        }
    }

    pub(crate) const fn bits(self) -> u8 {
        match self {
            Self::Low => 3,
            Self::Medium => 0,
            Self::High => 1,
        }
    }
}

/// The fixed part of a message, as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NdpMessage {
    /// "Which routers are there?"
    RouterSolicit,
    /// "I am a router."
    RouterAdvert {
        /// The hop limit to send with; zero if the router does not say.
        hop_limit: u8,
        /// Addresses come from DHCPv6.
        managed: bool,
        /// Other configuration comes from DHCPv6.
        other: bool,
        /// How much to like it as a default router.
        preference: RouterPreference,
        /// How long it is a default router; zero if it is none. Whole seconds, at most 65,535.
        lifetime: Duration,
        /// How long a neighbour is reachable after it was heard; zero if the router does not say. Whole
        /// milliseconds.
        reachable: Duration,
        /// Time between solicitations; zero if the router does not say. Whole milliseconds.
        retransmit: Duration,
    },
    /// "Who has this address?"
    NeighbourSolicit {
        /// The address.
        target: Ipv6Addr,
    },
    /// "I have this address."
    NeighbourAdvert {
        /// The address.
        target: Ipv6Addr,
        /// The sender is a router.
        router: bool,
        /// It answers a solicitation.
        solicited: bool,
        /// It replaces what is known.
        replace: bool,
    },
    /// "Send this over another first hop."
    Redirect {
        /// The better first hop; equal to the destination if that is on the link.
        target: Ipv6Addr,
        /// Whose way it is about.
        destination: Ipv6Addr,
    },
}

impl NdpMessage {
    /// The ICMPv6 type.
    const fn kind(&self) -> u8 {
        match self {
            Self::RouterSolicit => ROUTER_SOLICIT,
            Self::RouterAdvert { .. } => ROUTER_ADVERT,
            Self::NeighbourSolicit { .. } => NEIGHBOUR_SOLICIT,
            Self::NeighbourAdvert { .. } => NEIGHBOUR_ADVERT,
            Self::Redirect { .. } => REDIRECT,
        }
    }

    /// Bytes in front of the options.
    const fn fixed_len(&self) -> usize {
        match self {
            Self::RouterSolicit => 8,
            Self::RouterAdvert { .. } => 16,
            Self::NeighbourSolicit { .. } | Self::NeighbourAdvert { .. } => 24,
            Self::Redirect { .. } => 40,
        }
    }

    /// The message, and the options behind it.
    fn parse(message: &[u8]) -> Result<(Self, &[u8]), NdpError> {
        let kind = *message.first().ok_or(NdpError::Truncated)?;
        let (parsed, options) = match kind {
            ROUTER_SOLICIT => (Some(Self::RouterSolicit), message.get(8..)),
            ROUTER_ADVERT => (message.first_chunk().map(Self::parse_router), message.get(16..)),
            NEIGHBOUR_SOLICIT | NEIGHBOUR_ADVERT => {
                (message.first_chunk().map(Self::parse_neighbour), message.get(24..))
            }
            REDIRECT => (message.first_chunk().map(Self::parse_redirect), message.get(40..)),
            _ => return Err(NdpError::Kind),
        };
        parsed.zip(options).ok_or(NdpError::Truncated)
    }

    fn parse_router(fixed: &[u8; 16]) -> Self {
        Self::RouterAdvert {
            hop_limit: fixed[4],
            managed: fixed[5] & 0x80 != 0,
            other: fixed[5] & 0x40 != 0,
            preference: RouterPreference::from_bits(fixed[5] >> 3 & 3).unwrap_or_default(),
            lifetime: Duration::from_secs(u64::from(be16(fixed, 6))),
            reachable: Duration::from_millis(u64::from(be32(fixed, 8))),
            retransmit: Duration::from_millis(u64::from(be32(fixed, 12))),
        }
    }

    fn parse_neighbour(fixed: &[u8; 24]) -> Self {
        let target = Ipv6Addr::from(array::<16, _>(fixed, 8));
        if fixed[0] == NEIGHBOUR_SOLICIT {
            return Self::NeighbourSolicit { target };
        }
        Self::NeighbourAdvert {
            target,
            router: fixed[4] & 0x80 != 0,
            solicited: fixed[4] & 0x40 != 0,
            replace: fixed[4] & 0x20 != 0,
        }
    }

    fn parse_redirect(fixed: &[u8; 40]) -> Self {
        Self::Redirect {
            target: Ipv6Addr::from(array::<16, _>(fixed, 8)),
            destination: Ipv6Addr::from(array::<16, _>(fixed, 24)),
        }
    }

    /// RFC 4861 §6.1.1, §6.1.2, §7.1.1, §7.1.2 and §8.1, without what concerns length, code and hop limit.
    fn check(&self, envelope: &NdpEnvelope, options: NdpOptions<'_>) -> Result<(), NdpError> {
        let from_nobody = envelope.src.is_unspecified();
        let has_source_mac = || options.source_mac().is_some();
        match *self {
            Self::RouterSolicit if from_nobody && has_source_mac() => Err(NdpError::OptionNotAllowed),
            Self::RouterAdvert { .. } | Self::Redirect { .. } if !envelope.src.is_unicast_link_local() => {
                Err(NdpError::Source)
            }
            Self::NeighbourSolicit { target } | Self::NeighbourAdvert { target, .. }
                if target.is_multicast() =>
            {
                Err(NdpError::Target)
            }
            Self::NeighbourSolicit { target } if from_nobody => {
                if envelope.dst != solicited_node(target) {
                    return Err(NdpError::Destination);
                }
                if has_source_mac() { Err(NdpError::OptionNotAllowed) } else { Ok(()) }
            }
            Self::NeighbourAdvert { solicited: true, .. } if envelope.dst.is_multicast() => {
                Err(NdpError::Solicited)
            }
            Self::Redirect { destination, .. } if destination.is_multicast() => Err(NdpError::Destination),
            Self::Redirect { target, destination }
                if target != destination && !target.is_unicast_link_local() =>
            {
                Err(NdpError::Target)
            }
            _ => Ok(()),
        }
    }

    fn emit(&self, buffer: &mut [u8]) {
        buffer[..self.fixed_len()].fill(0);
        buffer[0] = self.kind();
        match *self {
            Self::RouterSolicit => {}
            Self::RouterAdvert { hop_limit, managed, other, preference, lifetime, reachable, retransmit } => {
                let flags = u8::from(managed) << 7 | u8::from(other) << 6 | preference.bits() << 3;
                let lifetime = u16::try_from(lifetime.as_secs()).unwrap_or(u16::MAX);
                let millis = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
                let fixed = fixed::<16>(buffer);
                put(fixed, 4, [hop_limit, flags]);
                put(fixed, 6, lifetime.to_be_bytes());
                put(fixed, 8, millis(reachable).to_be_bytes());
                put(fixed, 12, millis(retransmit).to_be_bytes());
            }
            Self::NeighbourSolicit { target } => put(fixed::<24>(buffer), 8, target.octets()),
            Self::NeighbourAdvert { target, router, solicited, replace } => {
                let flags = u8::from(router) << 7 | u8::from(solicited) << 6 | u8::from(replace) << 5;
                let fixed = fixed::<24>(buffer);
                fixed[4] = flags;
                put(fixed, 8, target.octets());
            }
            Self::Redirect { target, destination } => {
                let fixed = fixed::<40>(buffer);
                put(fixed, 8, target.octets());
                put(fixed, 24, destination.octets());
            }
        }
    }
}

/// A message that passed RFC 4861's checks.
#[derive(Clone, Copy, Debug)]
pub struct NdpView<'a> {
    message: NdpMessage,
    options: NdpOptions<'a>,
}

impl<'a> NdpView<'a> {
    /// Checks an ICMPv6 message of the types 133 to 137 whose checksum is right.
    pub fn parse(envelope: &NdpEnvelope, message: &'a [u8]) -> Result<Self, NdpError> {
        if envelope.hop_limit != HOP_LIMIT {
            return Err(NdpError::HopLimit);
        }
        let (parsed, options) = NdpMessage::parse(message)?;
        if message[1] != 0 {
            return Err(NdpError::Code);
        }
        let options = NdpOptions::check(options)?;
        parsed.check(envelope, options)?;
        Ok(Self { message: parsed, options })
    }

    /// The fixed part.
    pub fn message(&self) -> NdpMessage {
        self.message
    }

    /// The options, in order.
    pub fn options(&self) -> NdpOptions<'a> {
        self.options
    }
}

/// A message with its options, to be emitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NdpRepr<'a> {
    /// The fixed part.
    pub message: NdpMessage,
    /// The options.
    pub options: &'a [NdpOption<'a>],
}

impl NdpRepr<'_> {
    /// Bytes that [`emit`](Self::emit) writes.
    pub fn emitted_len(&self) -> usize {
        self.message.fixed_len() + self.options.iter().map(NdpOption::emitted_len).sum::<usize>()
    }

    /// Writes the message, with a checksum field of zero for
    /// [`icmpv6::fill_checksum`](crate::icmpv6::fill_checksum), to the front of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) {
        self.message.emit(buffer);
        let mut at = self.message.fixed_len();
        for option in self.options {
            option.emit(&mut buffer[at..]);
            at += option.emitted_len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ndp_options::{OPTIONS_MAX, PrefixInformation};
    use firelane_units::MacAddr;
    use proptest::prelude::*;

    fn ip(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn envelope(src: &str, dst: &str) -> NdpEnvelope {
        NdpEnvelope { src: ip(src), dst: ip(dst), hop_limit: HOP_LIMIT }
    }

    fn emitted(message: NdpMessage, options: &[NdpOption<'_>]) -> Vec<u8> {
        let repr = NdpRepr { message, options };
        let mut bytes = vec![0xee; repr.emitted_len()];
        repr.emit(&mut bytes);
        bytes
    }

    const MAC: MacAddr = MacAddr([2, 8, 0x20, 1, 2, 3]);

    fn message() -> impl Strategy<Value = NdpMessage> {
        let seconds = any::<u16>().prop_map(|s| Duration::from_secs(u64::from(s)));
        let millis = || any::<u32>().prop_map(|ms| Duration::from_millis(u64::from(ms)));
        let preference = prop_oneof![
            Just(RouterPreference::Low),
            Just(RouterPreference::Medium),
            Just(RouterPreference::High)
        ];
        let target = || any::<u64>().prop_map(|low| Ipv6Addr::from((0xfe80u128 << 112) | u128::from(low)));
        prop_oneof![
            Just(NdpMessage::RouterSolicit),
            (any::<(u8, bool, bool)>(), preference, seconds, millis(), millis()).prop_map(
                |((hop_limit, managed, other), preference, lifetime, reachable, retransmit)| {
                    NdpMessage::RouterAdvert {
                        hop_limit,
                        managed,
                        other,
                        preference,
                        lifetime,
                        reachable,
                        retransmit,
                    }
                }
            ),
            target().prop_map(|target| NdpMessage::NeighbourSolicit { target }),
            (target(), any::<[bool; 3]>()).prop_map(|(target, [router, solicited, replace])| {
                NdpMessage::NeighbourAdvert { target, router, solicited, replace }
            }),
            (target(), target())
                .prop_map(|(target, destination)| NdpMessage::Redirect { target, destination }),
        ]
    }

    /// Options as owned values, from which [`NdpOption`] borrows.
    fn option(kind: u8, numbers: (u32, u32), bytes: &[u8; 48]) -> NdpOption<'_> {
        let mac = MacAddr([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]]);
        let (valid, preferred) = numbers;
        match kind {
            0 => NdpOption::SourceLinkLayer(mac),
            1 => NdpOption::TargetLinkLayer(mac),
            2 => NdpOption::Prefix(PrefixInformation {
                prefix: Ipv6Addr::from(*bytes.first_chunk::<16>().unwrap()),
                prefix_len: bytes[20],
                on_link: bytes[21] & 1 != 0,
                autonomous: bytes[21] & 2 != 0,
                valid: Duration::from_secs(u64::from(valid)),
                preferred: Duration::from_secs(u64::from(preferred)),
            }),
            3 => NdpOption::Redirected(&bytes[..40]),
            4 => NdpOption::Mtu(valid),
            5 => NdpOption::Nonce(&bytes[..6]),
            6 => NdpOption::RecursiveDns {
                lifetime: Duration::from_secs(u64::from(valid)),
                servers: &bytes.as_chunks().0[..2],
            },
            _ => NdpOption::Other(200, &bytes[..14]),
        }
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_read_back(
            message in message(),
            options in proptest::collection::vec((0u8..8, any::<(u32, u32)>(), any::<[u8; 16]>()), 0..6)) {
            let bodies: Vec<[u8; 48]> =
                options.iter().map(|(_, _, b)| *[*b, *b, *b].as_flattened().first_chunk().unwrap()).collect();
            let options: Vec<_> =
                options.iter().zip(&bodies).map(|((kind, numbers, _), body)| option(*kind, *numbers, body)).collect();
            let bytes = emitted(message, &options);
            let view = NdpView::parse(&envelope("fe80::1", "fe80::2"), &bytes).unwrap();
            prop_assert_eq!(view.message(), message);
            prop_assert_eq!(view.options().collect::<Vec<_>>(), options);
        }

        #[test]
        fn any_bytes_are_read_or_refused(kind in 132u8..139, mut bytes in proptest::collection::vec(
                prop_oneof![0u8..6, any::<u8>()], 2..200)) {
            (bytes[0], bytes[1]) = (kind, 0);
            if let Ok(view) = NdpView::parse(&envelope("fe80::1", "fe80::2"), &bytes) {
                let length: usize = view.options().map(|option| option.emitted_len()).sum();
                prop_assert_eq!(view.message().fixed_len() + length, bytes.len());
                prop_assert!(view.options().count() <= OPTIONS_MAX);
            }
        }
    }

    #[test]
    fn a_known_solicitation() {
        let target = ip("fe80::a00:27ff:fe01:203");
        let bytes = emitted(NdpMessage::NeighbourSolicit { target }, &[NdpOption::SourceLinkLayer(MAC)]);
        let expected = [
            &[135, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0][..],
            &[0x0a, 0, 0x27, 0xff, 0xfe, 1, 2, 3, 1, 1, 2, 8, 0x20, 1, 2, 3],
        ]
        .concat();
        assert_eq!(bytes, expected);
        assert_eq!(solicited_node(target), ip("ff02::1:ff01:203"));
        let view = NdpView::parse(&envelope("fe80::9", "ff02::1:ff01:203"), &bytes).unwrap();
        assert_eq!((view.options().source_mac(), view.options().target_mac()), (Some(MAC), None));
    }

    /// A06: hop limit, code, lengths and addresses for which RFC 4861 discards in silence.
    #[test]
    fn a06_malformed() {
        let target = ip("fd00::2");
        let solicit = emitted(NdpMessage::NeighbourSolicit { target }, &[NdpOption::SourceLinkLayer(MAC)]);
        let plain = emitted(NdpMessage::NeighbourSolicit { target }, &[]);
        let to_node = envelope("fd00::1", "ff02::1:ff00:2");
        assert!(NdpView::parse(&to_node, &solicit).is_ok());
        let far = NdpEnvelope { hop_limit: 254, ..to_node };
        assert_eq!(NdpView::parse(&far, &solicit).unwrap_err(), NdpError::HopLimit);
        let changed = |at: usize, value: u8| {
            let mut bytes = solicit.clone();
            bytes[at] = value;
            NdpView::parse(&to_node, &bytes).map(|_| ()).unwrap_err()
        };
        assert_eq!(changed(1, 1), NdpError::Code);
        assert_eq!(changed(8, 0xff), NdpError::Target);
        assert_eq!(changed(25, 0), NdpError::OptionLength);
        assert_eq!(changed(25, 2), NdpError::OptionLength);
        assert_eq!(changed(25, 255), NdpError::OptionLength);
        assert_eq!(changed(0, 138), NdpError::Kind);
        for length in 0..solicit.len() {
            let expected = match length {
                24 => None,
                25.. => Some(NdpError::OptionLength),
                _ => Some(NdpError::Truncated),
            };
            assert_eq!(NdpView::parse(&to_node, &solicit[..length]).err(), expected, "{length} bytes");
        }
        let probe = envelope("::", "ff02::1:ff00:2");
        assert!(NdpView::parse(&probe, &plain).is_ok());
        assert_eq!(NdpView::parse(&probe, &solicit).unwrap_err(), NdpError::OptionNotAllowed);
        for dst in ["fd00::2", "ff02::1", "ff02::1:ff00:3"] {
            let astray = envelope("::", dst);
            assert_eq!(NdpView::parse(&astray, &plain).unwrap_err(), NdpError::Destination, "{dst}");
        }
    }

    #[test]
    fn a06_answers_routers_and_redirects() {
        let refuse = |src: &str, dst: &str, message, options: &[NdpOption<'_>]| {
            NdpView::parse(&envelope(src, dst), &emitted(message, options)).err()
        };
        let (target, destination) = (ip("fd00::2"), ip("fd00::3"));
        let answer = NdpMessage::NeighbourAdvert { target, router: false, solicited: true, replace: true };
        assert_eq!(refuse("fd00::2", "fd00::1", answer, &[]), None);
        assert_eq!(refuse("fd00::2", "ff02::1", answer, &[]), Some(NdpError::Solicited));
        let group = NdpMessage::NeighbourAdvert {
            target: ip("ff02::1"),
            router: false,
            solicited: false,
            replace: true,
        };
        assert_eq!(refuse("fd00::2", "ff02::1", group, &[]), Some(NdpError::Target));
        let mac = [NdpOption::SourceLinkLayer(MAC)];
        assert_eq!(refuse("::", "ff02::2", NdpMessage::RouterSolicit, &[]), None);
        assert_eq!(refuse("fe80::1", "ff02::2", NdpMessage::RouterSolicit, &mac), None);
        let nobody = refuse("::", "ff02::2", NdpMessage::RouterSolicit, &mac);
        assert_eq!(nobody, Some(NdpError::OptionNotAllowed));
        let advert = NdpMessage::parse_router(&[134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(refuse("fe80::1", "ff02::1", advert, &[]), None);
        assert_eq!(refuse("fd00::1", "ff02::1", advert, &[]), Some(NdpError::Source));
        let redirect = |target, destination| {
            refuse("fe80::1", "fd00::1", NdpMessage::Redirect { target, destination }, &[])
        };
        assert_eq!(redirect(destination, destination), None);
        assert_eq!(redirect(ip("fe80::5"), destination), None);
        assert_eq!(redirect(target, destination), Some(NdpError::Target));
        assert_eq!(redirect(ip("fe80::5"), ip("ff0e::1")), Some(NdpError::Destination));
        let better = NdpMessage::Redirect { target: ip("fe80::5"), destination };
        let far = NdpMessage::parse_redirect(emitted(better, &[]).first_chunk().unwrap());
        assert_eq!(refuse("fd00::9", "fd00::1", far, &[]), Some(NdpError::Source));
        // Of each kind, one byte less than its fields.
        for message in
            [NdpMessage::RouterSolicit, advert, NdpMessage::NeighbourSolicit { target }, answer, better]
        {
            let bytes = emitted(message, &[]);
            let (whole, short) = (&bytes[..], &bytes[..bytes.len() - 1]);
            let envelope = envelope("fe80::1", "fd00::1");
            assert_eq!(NdpView::parse(&envelope, whole).err(), None, "{message:?}");
            assert_eq!(NdpView::parse(&envelope, short).err(), Some(NdpError::Truncated), "{message:?}");
        }
    }

    /// A07: options of another length than their kind has, half a DNS server, and too many options.
    #[test]
    fn a07_malformed_options() {
        let head =
            emitted(NdpMessage::parse_router(&[134, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), &[]);
        let parse = |option: &[u8]| {
            let bytes = [&head[..], option].concat();
            let view = NdpView::parse(&envelope("fe80::1", "ff02::1"), &bytes)?;
            Ok(view.options().map(|option| matches!(option, NdpOption::Other(..))).collect::<Vec<_>>())
        };
        let sized = |kind: u8, units: u8| {
            let mut option = vec![0; usize::from(units) * 8];
            (option[0], option[1]) = (kind, units);
            option
        };
        for (kind, units) in [(1, 2), (2, 2), (3, 3), (3, 5), (5, 2)] {
            assert_eq!(parse(&sized(kind, units)), Err(NdpError::OptionLength), "{kind} of {units}");
        }
        for (units, ignored) in [(1, true), (2, true), (3, false), (4, true), (5, false)] {
            assert_eq!(parse(&sized(25, units)), Ok(vec![ignored]), "DNS servers of {units}");
        }
        assert_eq!(parse(&sized(200, 1).repeat(OPTIONS_MAX)).map(|all| all.len()), Ok(OPTIONS_MAX));
        assert_eq!(parse(&sized(200, 1).repeat(OPTIONS_MAX + 1)), Err(NdpError::TooManyOptions));
    }
}
