//! What passes a port or belongs to a flow, copied for somebody who looks on.
//!
//! A tap is a filter and a byte ring. `links.rs` shows it the frames that leave and reach ports, `common.rs` those that
//! are dropped; a copy goes into the ring as one record, or is counted as lost if the ring is full. Nobody is woken and
//! nothing waits: the engine's reader looks when it likes. Without taps, a frame costs the look at an empty list.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use firelane_frame::{Frame, RingReader, RingWriter};
use firelane_units::{Direction, DropReason, FlowId, Instant, LinkId};

/// A record's bytes beside the frame's.
const HEADER: usize = 24;
/// The byte of a record for a frame that was not dropped.
const NOT_DROPPED: u8 = u8::MAX;

/// A tap of one lane.
#[derive(Debug)]
pub struct CaptureTap {
    /// The engine's name for the capture, the same in every lane.
    pub id: u32,
    /// Everything at this port, or at the ports of this link.
    pub link: Option<LinkId>,
    /// Without a link: what belongs to one of these flows. With one: the flows whose drops are the link's.
    pub flows: Vec<FlowId>,
    /// How much of a frame is copied.
    pub snap: usize,
    /// Where the copies go.
    pub writer: RingWriter,
    /// Frames that found no room, of all lanes.
    pub lost: Arc<AtomicU64>,
}

/// What is known of a captured frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Captured {
    /// When it passed.
    pub at: Instant,
    /// At which port; for a drop, from which port it had come.
    pub link: LinkId,
    /// Which way, as the port's user sees it.
    pub direction: Direction,
    /// Why it was dropped, if it was.
    pub reason: Option<DropReason>,
    /// How long it was.
    pub len: usize,
}

/// A lane's taps.
#[derive(Debug, Default)]
pub(crate) struct Taps(Vec<CaptureTap>);

impl Taps {
    pub(crate) fn add(&mut self, tap: CaptureTap) {
        self.0.push(tap);
    }

    pub(crate) fn remove(&mut self, id: u32) {
        self.0.retain(|tap| tap.id != id);
    }

    /// Whether nobody looks on.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether somebody looks at the port `link` itself.
    pub(crate) fn want_port(&self, link: LinkId) -> bool {
        self.0.iter().any(|tap| tap.link == Some(link))
    }

    /// A frame that is not for the port `link` is shown there.
    pub(crate) fn see_beside(&mut self, now: Instant, link: LinkId, frame: &Frame) {
        let direction = Direction::In;
        for tap in self.0.iter_mut().filter(|tap| tap.link == Some(link)) {
            tap.record(&Captured { at: now, link, direction, reason: None, len: frame.len() }, frame);
        }
    }

    /// Whether somebody looks at what passes the port `link` of the link `over` and belongs to `flow`.
    pub(crate) fn want(&self, (link, over): (LinkId, LinkId), flow: Option<FlowId>) -> bool {
        self.0.iter().any(|tap| match tap.link {
            Some(wanted) => wanted == link || wanted == over,
            None => flow.is_some_and(|flow| tap.flows.contains(&flow)),
        })
    }

    /// A frame passes the port `link` of the link `over`.
    #[inline]
    pub(crate) fn see(&mut self, now: Instant, port: (LinkId, LinkId), direction: Direction, frame: &Frame) {
        if !self.is_empty() {
            self.show(now, port, direction, frame);
        }
    }

    #[cold]
    fn show(&mut self, now: Instant, (link, over): (LinkId, LinkId), direction: Direction, frame: &Frame) {
        for tap in &mut self.0 {
            let is_meant = match tap.link {
                Some(wanted) => wanted == link || wanted == over,
                None => has_flow(tap, frame),
            };
            if is_meant {
                tap.record(&Captured { at: now, link, direction, reason: None, len: frame.len() }, frame);
            }
        }
    }

    /// A frame is dropped. Which port it concerns is known by its flow.
    #[inline]
    pub(crate) fn dropped(&mut self, now: Instant, frame: &Frame, reason: DropReason) {
        for tap in &mut self.0 {
            if has_flow(tap, frame) {
                let (link, len) = (frame.meta().ingress, frame.len());
                let direction = Direction::In;
                tap.record(&Captured { at: now, link, direction, reason: Some(reason), len }, frame);
            }
        }
    }
}

fn has_flow(tap: &CaptureTap, frame: &Frame) -> bool {
    frame.meta().flow.id().is_some_and(|flow| tap.flows.contains(&flow))
}

impl CaptureTap {
    fn record(&mut self, what: &Captured, frame: &Frame) {
        let bytes = &frame.as_slice()[..what.len.min(self.snap)];
        if self.writer.free() < HEADER + bytes.len() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let at = self.writer.cursor();
        let written = self.writer.write_at(at, &what.encode(bytes.len()))
            + self.writer.write_at(at + HEADER as u64, bytes);
        debug_assert_eq!(written, HEADER + bytes.len(), "there was room for the whole record");
        self.writer.advance(HEADER + bytes.len());
    }
}

impl Captured {
    fn encode(&self, copied: usize) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&self.at.nanos().to_ne_bytes());
        header[8..12].copy_from_slice(&self.link.0.to_ne_bytes());
        header[12..16].copy_from_slice(&(copied as u32).to_ne_bytes());
        header[16..20].copy_from_slice(&(self.len as u32).to_ne_bytes());
        header[20] = self.direction.index() as u8;
        header[21] = self.reason.map_or(NOT_DROPPED, |reason| reason as u8);
        header
    }

    fn decode(header: &[u8; HEADER]) -> (Self, usize) {
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let mut nanos = [0; 8];
        nanos.copy_from_slice(&header[..8]);
        let captured = Self {
            at: Instant::from_nanos(u64::from_ne_bytes(nanos)),
            link: LinkId(word(8)),
            direction: Direction::ALL[usize::from(header[20])],
            reason: DropReason::ALL.get(usize::from(header[21])).copied(),
            len: word(16) as usize,
        };
        (captured, word(12) as usize)
    }

    /// Takes the first record of a tap's ring; its bytes replace what is in `bytes`.
    pub fn take(reader: &mut RingReader, bytes: &mut Vec<u8>) -> Option<Self> {
        let mut header = [0; HEADER];
        if reader.copy_at(reader.cursor(), &mut header) < HEADER {
            return None;
        }
        let (captured, copied) = Self::decode(&header);
        bytes.resize(copied, 0);
        reader.copy_at(reader.cursor() + HEADER as u64, bytes);
        reader.release(HEADER + copied);
        Some(captured)
    }
}

const _: () = assert!(DropReason::ALL.len() < NOT_DROPPED as usize, "a reason fits its byte");

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_frame::{Pools, PoolsConfig, byte_ring};

    const PORT: (LinkId, LinkId) = (LinkId(3), LinkId(1));

    fn tap(link: Option<u32>, capacity: usize) -> (Taps, RingReader, Arc<AtomicU64>) {
        let (writer, reader) = byte_ring(capacity);
        let lost = Arc::new(AtomicU64::new(0));
        let mut taps = Taps::default();
        let link = link.map(LinkId);
        taps.add(CaptureTap {
            id: 7,
            link,
            flows: vec![FlowId(5)],
            snap: 60,
            writer,
            lost: Arc::clone(&lost),
        });
        (taps, reader, lost)
    }

    fn frame(len: usize) -> Frame {
        let mut pools = Pools::new(PoolsConfig { small_slots: 2, large_slots: 1 });
        pools.copy_of(&vec![0xab; len]).unwrap()
    }

    #[test]
    fn what_passes_the_port_or_its_link_is_copied() {
        for (link, count) in [(3, 1), (1, 1), (2, 0)] {
            let (mut taps, mut reader, _) = tap(Some(link), 4096);
            taps.see(Instant::from_secs(9), PORT, Direction::Out, &frame(100));
            let mut bytes = Vec::new();
            let got = Captured::take(&mut reader, &mut bytes);
            assert_eq!(usize::from(got.is_some()), count);
            if let Some(got) = got {
                assert_eq!((got.at, got.link, got.len), (Instant::from_secs(9), LinkId(3), 100));
                assert_eq!((got.direction, got.reason, bytes.len()), (Direction::Out, None, 60));
                assert!(bytes.iter().all(|&byte| byte == 0xab));
            }
            assert_eq!(Captured::take(&mut reader, &mut bytes), None);
        }
    }

    #[test]
    fn a_drop_of_the_flow_comes_with_its_reason() {
        let (mut taps, mut reader, _) = tap(Some(3), 4096);
        let mut dropped = frame(80);
        taps.dropped(Instant::ZERO, &dropped, DropReason::NoBuffer);
        dropped.meta_mut().flow = FlowId(5).into();
        taps.dropped(Instant::ZERO, &dropped, DropReason::ListenFull);
        let mut bytes = Vec::new();
        assert_eq!(Captured::take(&mut reader, &mut bytes).unwrap().reason, Some(DropReason::ListenFull));
        assert_eq!(Captured::take(&mut reader, &mut bytes), None);
    }

    #[test]
    fn a_full_ring_loses_and_counts_and_a_removed_tap_is_gone() {
        let (mut taps, mut reader, lost) = tap(None, 256);
        let mut seen = frame(50);
        seen.meta_mut().flow = FlowId(5).into();
        for _ in 0..10 {
            taps.see(Instant::ZERO, PORT, Direction::In, &seen);
        }
        let mut bytes = Vec::new();
        let mut taken = 0;
        while Captured::take(&mut reader, &mut bytes).is_some() {
            taken += 1;
        }
        assert_eq!((taken, lost.load(Ordering::Relaxed)), (3, 7));
        taps.remove(7);
        taps.see(Instant::ZERO, PORT, Direction::In, &seen);
        assert_eq!(Captured::take(&mut reader, &mut bytes), None);
    }
}
