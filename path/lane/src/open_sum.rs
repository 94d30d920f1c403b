//! A checksum that a frame's sender has left open somewhere else than its headers have one: it is completed before anybody judges the
//! frame.
//!
//! Whoever may write to a packet socket says where the sum is to be put (virtio 1.2, 5.1.6), and the place may be an address, a port or
//! the tag. Completed on the way out it would change what link protection, flows, filters and the switch have judged. Some of it is
//! honest: a tunnel's device leaves the inner transport's open. Called by `links.rs` for each frame that comes in.

use firelane_classify::Headers;
use firelane_frame::{Checksum, Frame, offload};
use firelane_units::DropReason;
use firelane_wire::IpProtocol;

/// Whether a sum is open that is not the one of the transport header.
#[inline]
pub(crate) fn is_elsewhere(checksum: Checksum, headers: &Headers) -> bool {
    let Checksum::Partial { start, offset } = checksum else { return false };
    let is_its_field = match headers.protocol {
        IpProtocol::TCP => offset == 16,
        IpProtocol::UDP => offset == 6,
        _ => false,
    };
    // The ports are known where the transport header is there, and whole.
    !(is_its_field && start == headers.l4_offset && headers.ports.is_some())
}

/// Completes it, and reads the headers as they are then.
///
/// # Errors
/// The frame was to be cut by it ([`DropReason::BadOffload`]), or its headers are none.
#[cold]
pub(crate) fn close(frame: &mut Frame, headers: &mut Headers) -> Result<(), DropReason> {
    if frame.meta().segmentation.is_some() {
        return Err(DropReason::BadOffload);
    }
    offload::complete_checksum(frame)?;
    headers.read(frame.as_slice())
}
