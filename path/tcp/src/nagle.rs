//! RFC 896 with Minshall's variant, and RFC 9293 §3.8.6.2: when a segment is worth sending.
//!
//! Pure decisions for `send` and `receive`: how much of the queued data goes now, and when the receive
//! window's right edge moves. Both exist to keep segments from becoming silly.

use firelane_units::{Bytes, Mss};

/// What there is to send and what admits it.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// Bytes in the send ring that were never sent.
    pub queued: Bytes,
    /// What the peer's window, the congestion window and the segment limit admit, whichever is least.
    pub usable: Bytes,
    /// The largest window that the peer ever offered (RFC 9293's Max(SND.WND)).
    pub largest_window: Bytes,
    /// The payload of a full segment.
    pub mss: Mss,
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// TCP_CORK or MSG_MORE: only full segments go.
    pub cork: bool,
    /// A FIN follows the queued data, so nothing can be added to the last segment.
    pub last: bool,
    /// The end of the last small segment sent is not acknowledged yet.
    pub small_under_way: bool,
}

/// How many of the queued bytes to send now; zero means wait for an ACK, a window or more data.
///
/// Whole segments always go. The small rest goes if it is everything queued and Nagle lets it: no other
/// small segment under way (Minshall: full ones do not count, so a write of 1.5 segments is not held), or
/// TCP_NODELAY, or a FIN behind it. A rest that the window cuts goes only if it is at least half the largest
/// window that the peer ever offered (RFC 9293 §3.8.6.2.1 rule 3); the persist timer overrides this.
pub fn sendable(offer: &Offer) -> Bytes {
    let mss = u64::from(offer.mss.bytes());
    let admitted = offer.queued.0.min(offer.usable.0);
    let whole = admitted - admitted % mss;
    if admitted == whole {
        return Bytes(whole);
    }
    let is_everything = admitted == offer.queued.0;
    let rest_goes = if is_everything {
        offer.last || (!offer.cork && (offer.nodelay || !offer.small_under_way))
    } else {
        whole == 0 && offer.largest_window.0 > 0 && admitted >= offer.largest_window.0.div_ceil(2)
    };
    if rest_goes { Bytes(admitted) } else { Bytes(whole) }
}

/// The receive window's right edge to announce, as a receive cursor.
///
/// `announced` is the last edge, `next` the in-order cursor, `free` the room in the ring. The edge never moves
/// left (RFC 9293 SHLD-14), and right only by half the ring or one segment at once (§3.8.6.2.2).
pub fn right_edge(announced: u64, next: u64, free: Bytes, capacity: Bytes, mss: Mss) -> u64 {
    let reachable = next + free.0;
    let step = (capacity.0 / 2).min(u64::from(mss.bytes())).max(1);
    if reachable >= announced + step { reachable } else { announced.max(next) }
}

/// Whether the reader freed enough that the peer must hear of it without being asked: the edge would move by
/// half the ring or two segments, or a window of less than a segment opens.
pub fn window_update_due(announced: u64, next: u64, free: Bytes, capacity: Bytes, mss: Mss) -> bool {
    let edge = right_edge(announced, next, free, capacity, mss);
    let mss = u64::from(mss.bytes());
    let gain = edge - announced.min(edge);
    let was_closed = announced.saturating_sub(next) < mss.min(capacity.0 / 2).max(1);
    gain > 0 && (was_closed || gain >= (2 * mss).min(capacity.0 / 2).max(1))
}
