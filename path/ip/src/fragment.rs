//! Cutting a datagram at its source (RFC 791 §3.2, RFC 8200 §4.5).
//!
//! Owns the cut alone: pieces of a payload with their IP headers, in order, all or none. Called by
//! `output.rs` for payloads that are too large for their way and may be cut, and by `forward.rs` for IPv4.

use firelane_frame::{Chain, Frame, Pools};
use firelane_units::{DropReason, Mtu};
use firelane_wire::{FragmentRepr, FragmentView, IpProtocol, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View};

use crate::output::{prepend_v4, prepend_v6};

/// Appends to `out` the fragments of a payload whose whole header is `header`: of a datagram, or of a
/// fragment that is cut again.
pub(crate) fn cut_v4(
    payload: &[u8],
    header: &Ipv4Repr,
    mtu: Mtu,
    pools: &mut Pools,
    out: &mut Chain,
) -> Result<(), DropReason> {
    cut(payload, mtu, Ipv4View::HEADER_LEN, pools, out, |part, offset, is_last| {
        let piece = Ipv4Repr {
            dont_fragment: false,
            more_fragments: header.more_fragments || !is_last,
            fragment_offset: header.fragment_offset + offset,
            payload_len: part.len() as u16,
            ..*header
        };
        prepend_v4(part, &piece);
    })
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
