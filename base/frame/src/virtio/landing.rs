//! Where frames land that a device hands over one by one with a virtio-net header before each.
//!
//! Nobody knows a frame's length before it is read, so it is read into a large buffer that is kept ready;
//! a small frame is copied out of it, so that a queue of acknowledgements does not pin 64 KiB each. The
//! reading itself is the driver's: this file does no I/O. A tag that the device hands over beside its frame is put back where
//! it stood.

use firelane_units::{DropCounters, DropReason};

use super::header::{self, BadOffload, HEADER_BYTES};
use crate::{Chain, Checksum, Frame, Pools, Segmentation};

/// The longest frame that a kernel hands over: 64 KiB of packet behind an Ethernet header with one tag.
pub const FRAME_BYTES_MAX: usize = 65_535 + 18;
/// After so many octets a chain ends: more would push the first of them out of the CPU's own cache before anybody reads them.
const OCTETS_MAX: usize = 128 << 10;
/// Frames up to this length are copied to a small buffer.
const COPY_BYTES_MAX: usize = 1_600;

/// Both stations' addresses: a VLAN tag stands behind them.
const STATIONS_BYTES: usize = 12;

/// A VLAN tag that is not in its frame: protocol and control, as on the wire (IEEE 802.1Q section 9).
pub type Tag = [u8; 4];

/// A large buffer, ready for the next frame.
#[derive(Debug, Default)]
pub struct Landing {
    ready: Option<Frame>,
    leaves_some: bool,
}

impl Landing {
    /// Reads up to `budget` frames to the end of `out` and returns how many.
    ///
    /// `read` fills a header and the body behind it, in one piece, which a system call takes sooner than two, and returns the
    /// length of both together, and the tag that it has left out, or `None` if the device has nothing. A header that contradicts its frame costs the frame: [`DropReason::BadOffload`].
    pub fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
        mut read: impl FnMut(&mut [u8]) -> Option<(usize, Option<Tag>)>,
    ) -> usize {
        let (mut frames, mut refused, mut octets) = (0, 0, 0);
        self.leaves_some = false;
        for _ in 0..budget {
            if octets >= OCTETS_MAX {
                break;
            }
            let Some(mut frame) = self.ready.take().or_else(|| pools.take(FRAME_BYTES_MAX)) else {
                self.leaves_some = true;
                break;
            };
            frame.truncate(0);
            frame.prepend(HEADER_BYTES);
            frame.append(FRAME_BYTES_MAX);
            let read = read(frame.as_mut_slice());
            let mut bytes = [0; HEADER_BYTES];
            bytes.copy_from_slice(&frame.as_slice()[..HEADER_BYTES]);
            frame.trim_front(HEADER_BYTES);
            let Some((length, tag)) = read else {
                self.ready = Some(frame);
                return frames;
            };
            octets += length;
            frame.truncate(length.saturating_sub(HEADER_BYTES));
            let tag = tag.filter(|_| frame.len() >= STATIONS_BYTES);
            let is_whole = length >= HEADER_BYTES;
            let said = if is_whole { header::read(&bytes, frame.as_slice()) } else { Err(BadOffload) };
            let said = said.and_then(|said| behind(tag, said));
            match said {
                Ok((checksum, segmentation)) => {
                    let meta = frame.meta_mut();
                    (meta.checksum, meta.segmentation) = (checksum, segmentation);
                    let mut frame = self.settle(frame, pools);
                    if let Some(tag) = tag {
                        put_back(&mut frame, tag);
                    }
                    out.push(frame);
                    frames += 1;
                }
                Err(BadOffload) => {
                    self.ready = Some(frame);
                    drops.count(DropReason::BadOffload);
                    refused += 1;
                }
            }
        }
        self.leaves_some |= refused > 0;
        frames
    }

    /// Whether the last chain ended for want of a buffer, or for what was refused in it, and not because the device had nothing: what it
    /// has waits there, and it does not call for that again.
    pub fn leaves_some(&self) -> bool {
        self.leaves_some
    }

    /// Moves a small frame to a small buffer and keeps the large one.
    fn settle(&mut self, frame: Frame, pools: &mut Pools) -> Frame {
        if frame.len() > COPY_BYTES_MAX {
            return frame;
        }
        match pools.duplicate(&frame) {
            Some(small) => {
                self.ready = Some(frame);
                small
            }
            None => frame,
        }
    }
}

/// Puts a tag back behind the stations' addresses.
fn put_back(frame: &mut Frame, tag: Tag) {
    frame.prepend(tag.len());
    let bytes = frame.as_mut_slice();
    bytes.copy_within(tag.len()..tag.len() + STATIONS_BYTES, 0);
    bytes[STATIONS_BYTES..STATIONS_BYTES + tag.len()].copy_from_slice(&tag);
}

/// Where that moves what the header has said of the frame.
fn behind(
    tag: Option<Tag>,
    (checksum, segmentation): (Checksum, Option<Segmentation>),
) -> Result<(Checksum, Option<Segmentation>), BadOffload> {
    let Some(tag) = tag else { return Ok((checksum, segmentation)) };
    let moved = |at: u16| at.checked_add(tag.len() as u16).ok_or(BadOffload);
    let checksum = match checksum {
        Checksum::Partial { start, offset } => Checksum::Partial { start: moved(start)?, offset },
        done => done,
    };
    let moved_cut = |cut: Segmentation| Ok(Segmentation { header_bytes: moved(cut.header_bytes)?, ..cut });
    Ok((checksum, segmentation.map(moved_cut).transpose()?))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{FrameMeta, PoolsConfig, SegmentKind};

    /// Reads the given frames behind all-zero headers.
    fn receive(landing: &mut Landing, pools: &mut Pools, frames: &[usize]) -> (Chain, DropCounters) {
        let (mut out, mut drops, mut rest) = (Chain::new(), DropCounters::default(), frames.iter());
        landing.receive(pools, 64, &mut out, &mut drops, |both| {
            let length = *rest.next()?;
            let (header, body) = both.split_at_mut(HEADER_BYTES);
            header.fill(0);
            header[1] = u8::from(length == 13) * 9;
            body[..length].fill(length as u8);
            Some((HEADER_BYTES + length, None))
        });
        (out, drops)
    }

    #[test]
    fn a_tag_stands_behind_the_addresses_again_and_what_is_left_to_the_device_moves_on() {
        let mut pools = Pools::new(PoolsConfig { small_slots: 8, large_slots: 2 });
        let (mut landing, mut out, mut drops) = (Landing::default(), Chain::new(), DropCounters::default());
        let cut =
            Segmentation { kind: SegmentKind::TcpV4, segment_bytes: 1448, header_bytes: 66, ecn: false };
        let meta = FrameMeta {
            checksum: Checksum::Partial { start: 34, offset: 16 },
            segmentation: Some(cut),
            ..FrameMeta::default()
        };
        let mut body: Vec<u8> = (0..3000).map(|n| n as u8).collect();
        body[46] = 8 << 4;
        // A small one in its own buffer, a large one where it landed, one that no station could have sent, one whose checksum would begin
        // beyond all that a header can say, and one after all.
        let far =
            FrameMeta { checksum: Checksum::Partial { start: 65_533, offset: 6 }, ..FrameMeta::default() };
        let mut wanted = [(1000, true), (3000, true), (11, true), (65_550, true), (60, false)].into_iter();
        landing.receive(&mut pools, 64, &mut out, &mut drops, |both| {
            let (length, is_tagged) = wanted.next()?;
            let (header, rest) = both.split_at_mut(HEADER_BYTES);
            let said = match length {
                1000 | 3000 => header::write(&meta),
                65_550 => header::write(&far),
                _ => [0; HEADER_BYTES],
            };
            header.copy_from_slice(&said);
            let known = length.min(body.len());
            rest[..known].copy_from_slice(&body[..known]);
            Some((HEADER_BYTES + length, is_tagged.then_some([0x81, 0, 0x20, 5])))
        });
        for length in [1000, 3000] {
            let frame = out.pop().unwrap();
            assert_eq!(*frame.as_slice(), [&body[..12], &[0x81, 0, 0x20, 5], &body[12..length]].concat());
            assert_eq!(frame.meta().checksum, Checksum::Partial { start: 38, offset: 16 });
            assert_eq!(frame.meta().segmentation, Some(Segmentation { header_bytes: 70, ..cut }));
        }
        assert_eq!([11, 60].map(|length| *out.pop().unwrap().as_slice() == body[..length]), [true; 2]);
        assert_eq!(drops.of(DropReason::BadOffload), 1);
    }

    #[test]
    fn small_frames_do_not_pin_large_buffers() {
        let mut pools = Pools::new(PoolsConfig { small_slots: 8, large_slots: 2 });
        let mut landing = Landing::default();
        let (out, _) = receive(&mut landing, &mut pools, &[60, 1514, 60_000]);
        assert_eq!(out.iter().map(Frame::len).collect::<Vec<_>>(), [60, 1514, 60_000]);
        assert!(out.iter().all(|f| f.as_slice().iter().all(|&b| b == f.len() as u8)));
        assert_eq!((pools.small.free(), pools.large.free()), (6, 0), "one large frame out, one ready");
    }

    #[test]
    fn a_chain_of_large_frames_ends_early() {
        let mut pools = Pools::new(PoolsConfig { small_slots: 80, large_slots: 8 });
        let (out, _) = receive(&mut Landing::default(), &mut pools, &[60_000; 5]);
        assert_eq!(out.len(), 3, "the one that reaches the limit is its last");
        let (out, _) = receive(&mut Landing::default(), &mut pools, &[60; 70]);
        assert_eq!(out.len(), 64, "small ones are as many as were asked for");
    }

    #[test]
    fn a_contradicting_header_costs_its_frame_only() {
        let mut pools = Pools::new(PoolsConfig { small_slots: 8, large_slots: 1 });
        let (out, drops) = receive(&mut Landing::default(), &mut pools, &[13, 60]);
        assert_eq!((out.len(), drops.of(DropReason::BadOffload)), (1, 1));
    }

    #[test]
    fn a_chain_of_nothing_but_refused_frames_leaves_what_lies_behind_them() {
        let mut pools = Pools::new(PoolsConfig { small_slots: 8, large_slots: 1 });
        let mut landing = Landing::default();
        for (frames, leaves_some) in [(vec![13; 70], true), (vec![13; 63], false), (vec![60, 60], false)] {
            let (out, drops) = receive(&mut landing, &mut pools, &frames);
            let refused = drops.of(DropReason::BadOffload) as usize;
            assert_eq!((out.len() + refused, landing.leaves_some()), (frames.len().min(64), leaves_some));
        }
    }

    #[test]
    fn without_a_buffer_nothing_is_read_and_that_is_told_until_there_is_one() {
        let mut pools = Pools::new(PoolsConfig { small_slots: 8, large_slots: 1 });
        let mut landing = Landing::default();
        let (out, _) = receive(&mut landing, &mut pools, &[60_000, 60]);
        assert_eq!((out.len(), landing.leaves_some()), (1, true));
        let (none, _) = receive(&mut landing, &mut pools, &[60]);
        assert!(none.is_empty() && landing.leaves_some());
        drop(out);
        let (out, _) = receive(&mut landing, &mut pools, &[60]);
        assert_eq!((out.len(), landing.leaves_some()), (1, false));
    }
}
