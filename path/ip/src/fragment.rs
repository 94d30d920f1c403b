//! Cutting a datagram at its source (RFC 791 §3.2, RFC 8200 §4.5).
//!
//! Owns the cut alone: pieces of a payload with their IP headers, in order, all or none. Called by
//! `output.rs` for payloads that are too large for their way and may be cut, and by `forward.rs` for IPv4.

use firelane_frame::{Chain, Frame, Pools};
use firelane_units::{DropReason, Mtu};
use firelane_wire::{FragmentRepr, FragmentView, IpProtocol, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View, Sum};

use crate::output::{prepend_v4, prepend_v6};

/// Appends to `out` the fragments of a payload whose header is `header` with `options` behind it: of a datagram, or of
/// a fragment that is cut again. The first piece has all options, later ones those that say so (RFC 791 §3.1).
pub(crate) fn cut_v4(
    payload: &[u8],
    header: &Ipv4Repr,
    options: &[u8],
    mtu: Mtu,
    pools: &mut Pools,
    out: &mut Chain,
) -> Result<(), DropReason> {
    let copied = Copied::of(options);
    cut(payload, mtu, Ipv4View::HEADER_LEN + options.len(), pools, out, |part, offset, is_last| {
        let options = if offset == 0 { options } else { copied.as_slice() };
        part.prepend(options.len()).copy_from_slice(options);
        let piece = Ipv4Repr {
            dont_fragment: false,
            more_fragments: header.more_fragments || !is_last,
            fragment_offset: header.fragment_offset + offset,
            payload_len: part.len() as u16,
            ..*header
        };
        prepend_v4(part, &piece);
        if !options.is_empty() {
            lengthen_header(part.as_mut_slice(), options.len());
        }
    })
}

/// Makes the options behind a header a part of it.
fn lengthen_header(packet: &mut [u8], options_len: usize) {
    let header_len = Ipv4View::HEADER_LEN + options_len;
    packet[0] = 0x40 | (header_len / 4) as u8;
    packet[10..12].fill(0);
    let checksum = Sum::of(&packet[..header_len]).checksum();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The options that every fragment has, padded to whole words.
struct Copied {
    bytes: [u8; Self::MAX],
    len: usize,
}

impl Copied {
    /// Bytes of options that a header can have.
    const MAX: usize = 40;
    /// The bit of an option's type that says "in every fragment" (RFC 791 §3.1).
    const FLAG: u8 = 0x80;

    /// Takes them from options that were read when the packet came.
    fn of(options: &[u8]) -> Self {
        let mut copied = Self { bytes: [0; Self::MAX], len: 0 };
        let mut rest = options;
        while let &[kind, ref behind @ ..] = rest {
            let len = match (kind, behind) {
                (0, _) => break,
                (1, _) => 1,
                (_, &[len, ..]) => usize::from(len).max(2),
                _ => break,
            };
            let Some((option, behind)) = rest.split_at_checked(len) else { break };
            if kind & Self::FLAG != 0
                && let Some(room) = copied.bytes.get_mut(copied.len..copied.len + len)
            {
                room.copy_from_slice(option);
                copied.len += len;
            }
            rest = behind;
        }
        copied.len = copied.len.next_multiple_of(4);
        copied
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Appends to `out` the fragments of a payload whose whole header is `header`.
pub(crate) fn cut_v6(
    payload: &[u8],
    header: &Ipv6Repr,
    identification: u32,
    mtu: Mtu,
    pools: &mut Pools,
    out: &mut Chain,
) -> Result<(), DropReason> {
    let headers = Ipv6View::HEADER_LEN + FragmentView::HEADER_LEN;
    cut(payload, mtu, headers, pools, out, |part, offset, is_last| {
        let fragment =
            FragmentRepr { next_header: header.next_header, offset, more: !is_last, identification };
        fragment.emit(part.prepend(fragment.emitted_len()));
        let next_header = IpProtocol::FRAGMENT;
        prepend_v6(part, &Ipv6Repr { next_header, payload_len: part.len() as u16, ..*header });
    })
}

/// Cuts a payload so that each piece with `headers` bytes of headers fits the MTU. `prepend` gets a piece,
/// its offset, and whether it is the last. On failure `out` is as before.
fn cut(
    payload: &[u8],
    mtu: Mtu,
    headers: usize,
    pools: &mut Pools,
    out: &mut Chain,
    mut prepend: impl FnMut(&mut Frame, u16, bool),
) -> Result<(), DropReason> {
    let room = (usize::from(mtu.bytes()) - headers) & !7;
    let before = out.len();
    for (index, bytes) in payload.chunks(room).enumerate() {
        let Some(mut part) = pools.copy_of(bytes) else {
            while out.len() > before {
                out.pop_back().into_iter().for_each(|part| pools.put(part));
            }
            return Err(DropReason::NoBuffer);
        };
        let offset = index * room;
        prepend(&mut part, offset as u16, offset + bytes.len() == payload.len());
        out.push(part);
    }
    Ok(())
}
