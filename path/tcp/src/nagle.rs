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
    /// A FIN follows the queued data, so nothing can be added to the last segment; or some of it is urgent.
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
/// `announced` is the last edge, `next` the in-order cursor, `free` the room in the ring. The edge never
/// moves left (RFC 9293 SHLD-14), and right only by half the ring or one segment at once (§3.8.6.2.2).
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: Mss = Mss::clamped(1_000);

    fn offer(queued: u64, usable: u64) -> Offer {
        Offer {
            queued: Bytes(queued),
            usable: Bytes(usable),
            largest_window: Bytes(64_000),
            mss: MSS,
            nodelay: false,
            cork: false,
            last: false,
            small_under_way: false,
        }
    }

    #[test]
    fn what_goes() {
        let small = offer(10, 64_000);
        let cases = [
            ("nothing", offer(0, 64_000), 0),
            ("a first small segment", small, 10),
            ("Nagle holds a second", Offer { small_under_way: true, ..small }, 0),
            ("unless the program says no delay", Offer { small_under_way: true, nodelay: true, ..small }, 10),
            ("or closes", Offer { small_under_way: true, last: true, ..small }, 10),
            ("cork holds the first", Offer { cork: true, ..small }, 0),
            ("cork beats no delay", Offer { cork: true, nodelay: true, ..small }, 0),
            ("a close beats cork", Offer { cork: true, last: true, ..small }, 10),
            ("Minshall: 1.5 segments go whole", offer(1_500, 64_000), 1_500),
            (
                "the rest waits behind a small one",
                Offer { small_under_way: true, ..offer(1_500, 64_000) },
                1_000,
            ),
            (
                "whole segments always",
                Offer { small_under_way: true, cork: true, ..offer(3_000, 64_000) },
                3_000,
            ),
            ("a window cuts at a segment", offer(9_000, 2_700), 2_000),
            ("no silly segment", offer(9_000, 700), 0),
            (
                "half the peer's largest window",
                Offer { largest_window: Bytes(1_400), ..offer(9_000, 700) },
                700,
            ),
            ("a closed window", Offer { last: true, nodelay: true, ..offer(9_000, 0) }, 0),
        ];
        for (what, offer, bytes) in cases {
            assert_eq!(sendable(&offer), Bytes(bytes), "{what}");
        }
    }

    #[test]
    fn the_edge_moves_by_a_segment_or_half_the_ring() {
        // announced, next, free, capacity -> edge
        for (announced, next, free, capacity, edge) in [
            (10_000, 10_000, 999, 64_000, 10_000),
            (10_000, 10_000, 1_000, 64_000, 11_000),
            (10_000, 10_000, 500, 1_000, 10_500),
            (10_000, 10_000, 499, 1_000, 10_000),
            (20_000, 10_000, 2_000, 64_000, 20_000),
            (10_000, 12_000, 0, 64_000, 12_000),
            (0, 0, 0, 0, 0),
        ] {
            let moved = right_edge(announced, next, Bytes(free), Bytes(capacity), MSS);
            assert_eq!(moved, edge, "{announced} {next} {free} {capacity}");
        }
    }

    #[test]
    fn when_a_window_update_goes() {
        // announced, next, free, capacity -> due
        for (announced, next, free, capacity, due) in [
            (10_000, 10_000, 999, 64_000, false),
            (10_000, 10_000, 1_000, 64_000, true),
            (15_000, 10_000, 6_999, 64_000, false),
            (15_000, 10_000, 7_000, 64_000, true),
            (15_000, 10_000, 5_000, 64_000, false),
            (10_500, 10_000, 1_000, 1_000, true),
        ] {
            let is_due = window_update_due(announced, next, Bytes(free), Bytes(capacity), MSS);
            assert_eq!(is_due, due, "{announced} {next} {free} {capacity}");
        }
    }

    proptest! {
        #[test]
        fn never_more_than_is_there_and_silly_only_with_a_reason(
            queued in 0u64..10_000, usable in 0u64..10_000, largest in 0u64..20_000,
            nodelay: bool, cork: bool, last: bool, small_under_way: bool,
        ) {
            let offer = Offer {
                largest_window: Bytes(largest), nodelay, cork, last, small_under_way, ..offer(queued, usable)
            };
            let goes = sendable(&offer).0;
            prop_assert!(goes <= queued.min(usable));
            prop_assert!(goes + 1_000 > queued.min(usable), "whole segments never wait");
            if !goes.is_multiple_of(1_000) {
                prop_assert!(goes == queued || goes >= largest.div_ceil(2));
            }
            // Something goes when all is acknowledged, the window is open and nobody corks: no deadlock.
            if queued > 0 && usable >= queued && !cork && !small_under_way {
                prop_assert_eq!(goes, queued);
            }
        }

        #[test]
        fn the_edge_never_moves_left(
            announced in 0u64..100_000, next in 0u64..100_000, free in 0u64..100_000, capacity in 0u64..200_000,
        ) {
            let edge = right_edge(announced, next, Bytes(free), Bytes(capacity), MSS);
            prop_assert!(edge >= announced && edge >= next);
            prop_assert!(edge <= (next + free).max(announced).max(next));
        }
    }
}
