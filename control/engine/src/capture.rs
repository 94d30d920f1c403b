//! Looking on: what passes a link or belongs to a flow, as a pcapng stream.
//!
//! The lanes copy into rings of their own and neither wait nor wake anybody; who holds the [`Capture`] empties them when
//! he likes. What finds no room is counted, and the stream says how many. The end of the value is the end of the taps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use firelane_driver_capture::{Packet, Writer};
use firelane_frame::{RingReader, byte_ring};
use firelane_lane::{CaptureTap, Captured, Control};
use firelane_units::{FlowId, LinkId};

use crate::engine::{Engine, Inner};
use crate::error::ChangeError;

/// What a lane keeps for one capture at the most: a tenth of a second of full frames at 3 Gb/s.
const RING_BYTES: usize = 4 << 20;
/// So many captures run at once at the most: each copies.
const CAPTURES_MAX: usize = 8;
/// Records that are put in the order of time together.
const BATCH: usize = 4096;

/// What is captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaptureOf {
    /// Everything at a VNIC or an uplink, or at all of them over a link.
    Link(LinkId),
    /// What belongs to a flow.
    Flow(FlowId),
}

/// A running capture.
pub struct Capture {
    engine: Arc<Inner>,
    id: u32,
    readers: Vec<RingReader>,
    lost: Arc<AtomicU64>,
    /// What time it was when the engine's clock began.
    epoch: Duration,
    writer: Option<Writer>,
    captured: u64,
    /// The losses that the stream has told of.
    told: u64,
}

impl Engine {
    /// Begins a capture; `snap` bytes of each frame are copied.
    ///
    /// # Errors
    /// There is no such link or flow, too many captures run, or all lanes have failed.
    pub fn capture(&self, of: CaptureOf, snap: usize) -> Result<Capture, ChangeError> {
        let mut registry = self.0.registry();
        let (link, flows) = match of {
            CaptureOf::Flow(flow) if registry.flows.contains_key(&flow) => (None, vec![flow]),
            CaptureOf::Flow(flow) => return Err(ChangeError::NoFlow(flow)),
            CaptureOf::Link(link) => {
                let is_uplink = registry.links.values().any(|it| it.uplink == Some(link));
                if !is_uplink && !registry.links.contains_key(&link) && !registry.vnics.contains_key(&link) {
                    return Err(ChangeError::NoLink(link));
                }
                let is_over = |vnic: &LinkId| registry.vnics.get(vnic).is_some_and(|it| it.over == link);
                let of_link = |flow: &crate::registry::Flow| flow.owner == link || is_over(&flow.owner);
                let flows = registry.flows.iter().filter(|(_, flow)| of_link(flow)).map(|(&id, _)| id);
                (Some(link), flows.collect())
            }
        };
        let free = (0..).find(|id| !registry.captures.contains(id)).unwrap_or_default();
        if registry.captures.len() >= CAPTURES_MAX {
            return Err(ChangeError::ManyCaptures(CAPTURES_MAX));
        }
        let lost = Arc::new(AtomicU64::new(0));
        let mut capture = Capture {
            engine: Arc::clone(&self.0),
            id: free,
            readers: Vec::new(),
            lost: Arc::clone(&lost),
            epoch: self.0.fabric.epoch(),
            writer: None,
            captured: 0,
            told: 0,
        };
        registry.captures.insert(free);
        drop(registry);
        self.0.tell_all(|_| {
            let (writer, reader) = byte_ring(RING_BYTES);
            capture.readers.push(reader);
            let (flows, lost) = (flows.clone(), Arc::clone(&lost));
            Control::AddTap(CaptureTap { id: free, link, flows, snap, writer, lost })
        })?;
        Ok(capture)
    }
}

impl Capture {
    /// Appends what was captured since the last call, at most `limit` frames, as whole blocks of one pcapng
    /// section, and says how many frames that was. `name` is asked once for each port.
    pub fn read_pcapng(
        &mut self,
        out: &mut Vec<u8>,
        limit: u64,
        mut name: impl FnMut(LinkId) -> String,
    ) -> u64 {
        let mut writer = self.writer.take().unwrap_or_else(|| Writer::new(out));
        let most = usize::try_from(limit).unwrap_or(usize::MAX).min(BATCH);
        let mut batch = in_turn(&mut self.readers, most, |reader| {
            let mut bytes = Vec::new();
            Captured::take(reader, &mut bytes).map(|captured| (captured, bytes))
        });
        batch.sort_by_key(|(captured, _)| captured.at);
        for (captured, bytes) in &batch {
            let Captured { at, link, direction, reason, len } = *captured;
            let at = self.epoch + Duration::from_nanos(at.nanos());
            let packet = Packet { link, at, direction, reason, len, bytes };
            writer.packet(out, &packet, || name(link));
        }
        self.captured += batch.len() as u64;
        let lost = self.lost();
        if lost != self.told {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            writer.statistics(out, now, self.captured, lost);
            self.told = lost;
        }
        self.writer = Some(writer);
        batch.len() as u64
    }

    /// Frames that found no room.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// At most so many of what the rings have, each giving one in turn: their records are in order, and one that is full of them leaves room
/// for the others'.
fn in_turn<R, T>(rings: &mut [R], most: usize, mut take: impl FnMut(&mut R) -> Option<T>) -> Vec<T> {
    let mut taken = Vec::new();
    loop {
        let before = taken.len();
        for ring in rings.iter_mut() {
            if taken.len() == most {
                return taken;
            }
            taken.extend(take(ring));
        }
        if taken.len() == before {
            return taken;
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // A lane that has failed captures nothing. Before the next one can have its number, which would end with it.
        let _ = self.engine.tell_all(|_| Control::RemoveTap(self.id));
        self.engine.registry().captures.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::in_turn;

    #[test]
    fn every_ring_is_looked_at_however_few_are_wanted() {
        let rings = || [vec![], vec![1, 2, 3], vec![10, 20]].map(VecDeque::from);
        for (most, want) in
            [(0, vec![]), (1, vec![1]), (2, vec![1, 10]), (4, vec![1, 10, 2, 20]), (9, vec![1, 10, 2, 20, 3])]
        {
            assert_eq!(in_turn(&mut rings(), most, VecDeque::pop_front), want, "at most {most}");
        }
    }
}
