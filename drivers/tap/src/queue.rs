//! One queue of a TAP as a [`Driver`]: chains in, chains out, one system call per frame.
//!
//! The kernel hands over frames of up to 64 KiB with their segmentation still to do, and takes the same,
//! so a system call moves forty packets' worth. A frame is read into a large buffer that is kept ready;
//! a small one is copied out of it, so that a queue of acknowledgements does not pin 64 KiB each.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use firelane_frame::virtio::{self, HEADER_BYTES};
use firelane_frame::{Capabilities, Chain, Driver, Frame, Pools};
use firelane_units::{DropCounters, DropReason, Mtu};
use rustix::io::Errno;

/// Ethernet header and one VLAN tag.
const LINK_HEADER_BYTES: usize = 18;
/// The largest frame that the kernel hands over: 64 KiB of packet behind the Ethernet header.
const FRAME_BYTES_MAX: usize = 65_535 + LINK_HEADER_BYTES;
/// Frames up to this length are copied to a small buffer.
const COPY_BYTES_MAX: usize = 1_600;

/// One queue of a TAP interface.
#[derive(Debug)]
pub struct TapQueue {
    fd: OwnedFd,
    mtu: Mtu,
    udp_segmentation: bool,
    landing: Option<Frame>,
}

/// What one read brought.
enum Read {
    Frame(Frame),
    Refused(DropReason),
    Empty,
}

impl TapQueue {
    pub(crate) fn new(fd: OwnedFd, mtu: Mtu, udp_segmentation: bool) -> Self {
        Self { fd, mtu, udp_segmentation, landing: None }
    }

    fn read(&mut self, pools: &mut Pools) -> Read {
        let Some(mut landing) = self.landing.take().or_else(|| pools.take(FRAME_BYTES_MAX)) else {
            return Read::Empty;
        };
        landing.truncate(0);
        let mut header = [0; HEADER_BYTES];
        let body = landing.append(FRAME_BYTES_MAX);
        let read = rustix::io::readv(&self.fd, &mut [IoSliceMut::new(&mut header), IoSliceMut::new(body)]);
        let length = match read {
            Ok(length) => length.saturating_sub(HEADER_BYTES),
            Err(_) => {
                self.landing = Some(landing);
                return Read::Empty;
            }
        };
        landing.truncate(length);
        match virtio::read(&header, landing.as_slice()) {
            Ok((checksum, segmentation)) => {
                let meta = landing.meta_mut();
                meta.checksum = checksum;
                meta.segmentation = segmentation;
                Read::Frame(self.settle(landing, pools))
            }
            Err(virtio::BadOffload) => {
                self.landing = Some(landing);
                Read::Refused(DropReason::BadOffload)
            }
        }
    }

    /// Moves a small frame to a small buffer and keeps the large one.
    fn settle(&mut self, landing: Frame, pools: &mut Pools) -> Frame {
        if landing.len() > COPY_BYTES_MAX {
            return landing;
        }
        let Some(mut small) = pools.take(landing.len()) else { return landing };
        small.truncate(0);
        small.append(landing.len()).copy_from_slice(landing.as_slice());
        *small.meta_mut() = *landing.meta();
        self.landing = Some(landing);
        small
    }
}

impl AsFd for TapQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Driver for TapQueue {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            mtu: self.mtu,
            checksum_offload: true,
            segmentation: true,
            udp_segmentation: self.udp_segmentation,
            max_frame: FRAME_BYTES_MAX,
        }
    }

    fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        let mut frames = 0;
        for _ in 0..budget {
            match self.read(pools) {
                Read::Frame(frame) => {
                    out.push(frame);
                    frames += 1;
                }
                Read::Refused(reason) => drops.count(reason),
                Read::Empty => break,
            }
        }
        frames
    }

    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        while let Some(frame) = chain.pop() {
            let header = virtio::write(frame.meta());
            let parts = [IoSlice::new(&header), IoSlice::new(frame.as_slice())];
            match rustix::io::writev(&self.fd, &parts) {
                Ok(_) => {}
                Err(Errno::INVAL) => drops.count(DropReason::BadOffload),
                Err(_) => drops.count(DropReason::DeviceRefused),
            }
        }
    }

    /// The descriptor is level-triggered: whoever waits for it is told of frames that are there already.
    fn notify(&mut self, _on: bool) -> bool {
        false
    }
}
