//! The frames of one flow that wait for its limit, in order of arrival.
//!
//! A hold is short on purpose: two ticks of 10 ms at the flow's limit, as in the original, and never less than
//! two of the largest frames seen. Longer queues would only add delay, because a sender that gets no answer
//! keeps sending. When it is full the frame that has waited longest is dropped for the new one: what comes after
//! the gap tells a TCP receiver at once, while a gap at the end would be found by a time-out.

use core::time::Duration;

use firelane_frame::{Chain, Frame};
use firelane_units::{BitRate, Bytes};

/// Two of the original's clock ticks.
const HOLD_TIME: Duration = Duration::from_millis(20);

/// A FIFO of frames with a limit in wire bytes.
#[derive(Default)]
pub(crate) struct Hold {
    frames: Chain,
    bytes: u64,
    largest: u64,
}

impl Hold {
    /// Whether a frame of `bytes` may wait behind the others, in a flow whose tightest limit is `rate`.
    pub(crate) fn has_room(&mut self, rate: BitRate, bytes: Bytes) -> bool {
        self.largest = self.largest.max(bytes.0);
        self.bytes + bytes.0 <= self.limit(rate)
    }

    /// Whether a frame of `bytes` may wait if the first of those that wait makes room.
    pub(crate) fn has_room_without_first(&self, rate: BitRate, bytes: Bytes) -> bool {
        self.next_bytes().is_some_and(|first| self.bytes - first.0 + bytes.0 <= self.limit(rate))
    }

    fn limit(&self, rate: BitRate) -> u64 {
        rate.bytes_in(HOLD_TIME).0.max(2 * self.largest)
    }

    pub(crate) fn push(&mut self, frame: Frame) {
        self.bytes += frame.wire_bytes() as u64;
        self.frames.push(frame);
    }

    pub(crate) fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop()?;
        self.bytes -= frame.wire_bytes() as u64;
        Some(frame)
    }

    /// The wire bytes of the frame that is next.
    pub(crate) fn next_bytes(&self) -> Option<Bytes> {
        self.frames.front().map(|frame| Bytes::from(frame.wire_bytes()))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_frame::{Pool, PoolConfig};

    fn fill(hold: &mut Hold, pool: &mut Pool, rate: BitRate, bytes: usize) -> usize {
        while hold.has_room(rate, Bytes::from(bytes)) {
            let mut frame = pool.take().unwrap();
            frame.append(bytes);
            hold.push(frame);
        }
        hold.len()
    }

    #[test]
    fn two_ticks_or_two_of_the_largest_frames() {
        let mut pool = Pool::new(PoolConfig { slots: 300, slot_bytes: 2048 });
        // 50 Mb/s for 20 ms are 125,000 bytes.
        let mut fast = Hold::default();
        assert_eq!(fill(&mut fast, &mut pool, BitRate::from_mbps(50), 1000), 125);
        let mut slow = Hold::default();
        assert_eq!(fill(&mut slow, &mut pool, BitRate::from_bps(1), 1000), 2);
        assert_eq!(slow.bytes(), Bytes(2000));
        assert_eq!((slow.next_bytes(), slow.pop().map(|f| f.len())), (Some(Bytes(1000)), Some(1000)));
        assert!(slow.has_room(BitRate::from_bps(1), Bytes(1000)) && !slow.is_empty());
    }
}
