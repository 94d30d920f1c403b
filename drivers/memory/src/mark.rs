//! Congestion experienced: the mark that a router sets on a packet of a capable transport (RFC 3168 §5).
//!
//! Called by `direction.rs` for a frame that the conditions choose.

use firelane_frame::Frame;
use firelane_wire::{Ecn, EtherType, EthernetView, Ipv4View, Ipv6View, ipv4, ipv6};

/// Marks the packet in `frame` if it is IP and its transport takes part. Says whether it carries the mark now.
pub(crate) fn mark(frame: &mut Frame) -> bool {
    let bytes = frame.as_mut_slice();
    let Ok(view) = EthernetView::parse(bytes) else { return false };
    let (kind, at) = (view.ethertype(), bytes.len() - view.payload().len());
    let packet = &mut bytes[at..];
    match kind {
        EtherType::IPV4 => {
            let is_capable = Ipv4View::parse(packet).is_ok_and(|view| view.ecn() != Ecn::NotCapable);
            if is_capable {
                ipv4::mark_congested(packet);
            }
            is_capable
        }
        EtherType::IPV6 => {
            let is_capable = Ipv6View::parse(packet).is_ok_and(|view| view.ecn() != Ecn::NotCapable);
            if is_capable {
                ipv6::mark_congested(packet);
            }
            is_capable
        }
        _ => false,
    }
}
