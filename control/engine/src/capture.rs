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
#[derive(Debug)]
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
    /// There is no such link or flow, too many captures run, or a lane has failed.
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
        for lane in self.0.fabric.lane_ids() {
            let (writer, reader) = byte_ring(RING_BYTES);
            capture.readers.push(reader);
            let (flows, lost) = (flows.clone(), Arc::clone(&lost));
            self.0.tell(lane, Control::AddTap(CaptureTap { id: free, link, flows, snap, writer, lost }))?;
        }
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
        let mut batch: Vec<(Captured, Vec<u8>)> = Vec::new();
        let most = usize::try_from(limit).unwrap_or(usize::MAX).min(BATCH);
        // Each lane's records are in order already; lanes have their share of the batch in turn.
        let mut is_more = true;
        while is_more && batch.len() < most {
            is_more = false;
            for reader in self.readers.iter_mut().take(most - batch.len()) {
                let mut bytes = Vec::new();
                if let Some(captured) = Captured::take(reader, &mut bytes) {
                    batch.push((captured, bytes));
                    is_more = true;
                }
            }
        }
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

impl Drop for Capture {
    fn drop(&mut self) {
        self.engine.registry().captures.remove(&self.id);
        // A lane that has failed captures nothing.
        let _ = self.engine.tell_all(|_| Control::RemoveTap(self.id));
    }
}
