//! One AF_XDP socket: its four rings and its pieces of the shared memory.
//!
//! Called by `open.rs`, which makes one per NIC queue, and by `queue.rs`. Pieces of memory belong to one socket for
//! ever: half of them wait for frames, half carry frames out, so no lane shares anything with another.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use firelane_frame::{Chain, Pools};
use firelane_units::{DropCounters, DropReason};
use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::error::Refused;
use crate::partial;
use crate::sys::{Descriptor, Ring, Umem, kick_receive, kick_transmit};

/// A piece of memory: a page, which every mode takes.
pub(crate) const CHUNK_BYTES: u32 = 4096;
/// What the kernel keeps before a frame (`XDP_PACKET_HEADROOM`), and Ethernet with a tag.
pub(crate) const MTU_MAX: u16 = CHUNK_BYTES as u16 - 256 - 18;
/// Entries of each ring: at 10 Gb/s and 64 bytes 137 us.
const RING_ENTRIES: u32 = 2048;
/// A socket's memory: one half to receive, one to send.
pub(crate) const SOCKET_BYTES: usize = 2 * RING_ENTRIES as usize * CHUNK_BYTES as usize;
/// So many frames before its turn a frame's bytes are fetched from the CPU that has written them: as long as it takes.
const FRAMES_AHEAD: u32 = 8;
/// In copy mode the kernel takes 32 frames per call.
const KICKS_MAX: u32 = RING_ENTRIES / 32;
/// A queue is free some time after its last socket was closed, or after a child that had it became another program.
const BUSY_RETRIES: u32 = 50;
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// How a socket is bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) index: u32,
    pub(crate) queue: u32,
    pub(crate) zero_copy: bool,
}

/// A socket on one queue.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    umem: Arc<Umem>,
    fill: Ring<u64>,
    completion: Ring<u64>,
    rx: Ring<Descriptor>,
    tx: Ring<Descriptor>,
    /// Where this socket's memory begins.
    first: u64,
    /// Pieces to send with.
    free: Vec<u64>,
    filled: u32,
    completed: u32,
    received: u32,
    sent: u32,
    /// Whether the device was down when it was last to send.
    is_down: bool,
}

impl Socket {
    /// A socket on a queue. The first has the memory registered; the others share it with `first`.
    pub(crate) fn open(
        umem: &Arc<Umem>,
        nth: u32,
        place: Place,
        first: Option<&Self>,
    ) -> Result<Self, Refused> {
        let failed = |what| move |error| Refused::of(what, error);
        let fd = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .map_err(failed("AF_XDP socket"))?;
        if first.is_none() {
            umem.register(&fd, CHUNK_BYTES).map_err(failed("registering memory (RLIMIT_MEMLOCK?)"))?;
        }
        for set in [
            sockopt::set_xdp_umem_fill_ring_size,
            sockopt::set_xdp_umem_completion_ring_size,
            sockopt::set_xdp_rx_ring_size,
            sockopt::set_xdp_tx_ring_size,
        ] {
            set(&fd, RING_ENTRIES).map_err(failed("making rings"))?;
        }
        let at = sockopt::xdp_mmap_offsets(&fd).map_err(failed("offsets of rings"))?;
        let mapped = |error: std::io::Error| Refused::System("mapping rings", error);
        let socket = fd.as_fd();
        let fill = Ring::map(socket, XDP_UMEM_PGOFF_FILL_RING, at.fr, RING_ENTRIES).map_err(mapped)?;
        let completion =
            Ring::map(socket, XDP_UMEM_PGOFF_COMPLETION_RING, at.cr, RING_ENTRIES).map_err(mapped)?;
        let rx = Ring::map(socket, XDP_PGOFF_RX_RING, at.rx, RING_ENTRIES).map_err(mapped)?;
        let tx = Ring::map(socket, XDP_PGOFF_TX_RING, at.tx, RING_ENTRIES).map_err(mapped)?;
        bind_patiently(&fd, place, first).map_err(failed("binding to the queue"))?;
        let begin = u64::from(nth) * SOCKET_BYTES as u64;
        let piece = |number: u32| begin + u64::from(number) * u64::from(CHUNK_BYTES);
        for number in 0..RING_ENTRIES {
            fill.write(number, piece(number));
        }
        fill.publish(RING_ENTRIES);
        Ok(Self {
            fd,
            umem: Arc::clone(umem),
            fill,
            completion,
            rx,
            tx,
            first: begin,
            free: (RING_ENTRIES..2 * RING_ENTRIES).map(piece).collect(),
            filled: RING_ENTRIES,
            completed: 0,
            received: 0,
            sent: 0,
            is_down: false,
        })
    }

    /// Whether the kernel and the device use our memory without a copy.
    pub(crate) fn is_zero_copy(&self) -> bool {
        let options = sockopt::xdp_options(&self.fd);
        options.is_ok_and(|it| it.contains(rustix::net::xdp::XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    fn owns(&self, addr: u64) -> bool {
        (self.first..self.first + SOCKET_BYTES as u64).contains(&addr)
    }

    /// Frames that wait.
    pub(crate) fn waiting(&self) -> u32 {
        self.rx.producer().wrapping_sub(self.received).min(self.rx.size())
    }

    /// Lets the kernel look at its side, if it sleeps.
    pub(crate) fn wake_receive(&self) {
        if self.fill.needs_wakeup() {
            kick_receive(self.fd.as_fd());
        }
    }

    /// Has the device polled now, for busy polling.
    pub(crate) fn poll_device(&self) {
        kick_receive(self.fd.as_fd());
    }

    /// Copies up to `budget` frames out. What no buffer was free for stays in the ring.
    pub(crate) fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        limits: Limits,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        let (begin, mut frames) = (self.received, 0);
        let waiting = self.waiting();
        (0..waiting.min(FRAMES_AHEAD)).for_each(|nth| self.read_ahead(begin.wrapping_add(nth)));
        for nth in 0..waiting.min(u32::try_from(budget).unwrap_or(u32::MAX)) {
            if nth + FRAMES_AHEAD < waiting {
                self.read_ahead(self.received.wrapping_add(FRAMES_AHEAD));
            }
            let Descriptor { addr, len, .. } = self.rx.read(self.received);
            let len = len as usize;
            if len > limits.longest {
                drops.count(DropReason::TooLong);
            } else {
                let Some(mut frame) = pools.take(len) else { break };
                if self.umem.copy_out(addr, frame.append(len)) {
                    if limits.is_virtual {
                        frame.meta_mut().checksum = partial::of(frame.as_slice());
                    }
                    out.push(frame);
                    frames += 1;
                } else {
                    drops.count(DropReason::BadDescriptor);
                }
            }
            self.received = self.received.wrapping_add(1);
            if self.owns(addr) {
                self.fill.write(self.filled, addr & !u64::from(CHUNK_BYTES - 1));
                self.filled = self.filled.wrapping_add(1);
            }
        }
        if self.received != begin {
            self.rx.release(self.received);
            self.fill.publish(self.filled);
            self.wake_receive();
        }
        frames
    }

    /// Starts to fetch the frame at a place of the ring of those that wait.
    #[inline]
    fn read_ahead(&self, place: u32) {
        let Descriptor { addr, len, .. } = self.rx.read(place);
        self.umem.read_ahead(addr, len as usize);
    }

    /// Takes pieces back whose frames have left.
    fn reclaim(&mut self) {
        let done = self.completion.producer().wrapping_sub(self.completed).min(self.completion.size());
        for _ in 0..done {
            let addr = self.completion.read(self.completed) & !u64::from(CHUNK_BYTES - 1);
            self.completed = self.completed.wrapping_add(1);
            if self.owns(addr) {
                self.free.push(addr);
            }
        }
        if done > 0 {
            self.completion.release(self.completed);
        }
    }

    /// Sends from the front of `chain`; what finds no room stays there.
    pub(crate) fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        // What is put into the ring while the interface is off would leave when it is on again.
        if self.is_down && self.push() == Err(Down) {
            return refuse(chain, drops);
        }
        self.reclaim();
        let begin = self.sent;
        while let Some(frame) = chain.front() {
            if frame.len() > CHUNK_BYTES as usize {
                drops.count(DropReason::TooLong);
                chain.pop();
                continue;
            }
            let Some(addr) = self.free.pop() else { break };
            if self.umem.copy_in(addr, frame.as_slice()) {
                let len = frame.len() as u32;
                self.tx.write(self.sent, Descriptor { addr, len, options: 0 });
                self.sent = self.sent.wrapping_add(1);
            }
            chain.pop();
        }
        if self.sent != begin {
            self.tx.publish(self.sent);
        }
        if self.push() == Err(Down) {
            refuse(chain, drops);
        }
    }

    /// Frames that the kernel has not taken yet.
    pub(crate) fn is_unsent(&self) -> bool {
        self.tx.consumer() != self.sent
    }

    /// Whether the kernel has yet to be told of them again: the last time it did not take all.
    pub(crate) fn has_to_push(&self) -> bool {
        !self.is_down && self.is_unsent() && self.tx.needs_wakeup()
    }

    /// Has the kernel take what is to be sent.
    pub(crate) fn push(&mut self) -> Result<(), Down> {
        let pushed = self.try_push();
        self.is_down = pushed == Err(Down);
        pushed
    }

    fn try_push(&mut self) -> Result<(), Down> {
        for _ in 0..KICKS_MAX {
            if !self.is_unsent() || !self.tx.needs_wakeup() {
                return Ok(());
            }
            let taken = self.tx.consumer();
            match kick_transmit(self.fd.as_fd()) {
                Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => return Err(Down),
                // More than it takes in one call. Kernels before 6.17 show only at the end how much that was.
                Err(Errno::AGAIN) => {}
                Ok(()) if self.tx.consumer() != taken => {}
                // The device has only begun, or is busy: a turn tries again soon.
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}

/// Drops what an interface does not take.
fn refuse(chain: &mut Chain, drops: &mut DropCounters) {
    drops.add(DropReason::DeviceRefused, chain.len() as u64);
    chain.clear();
}

/// The interface is down or gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Down;

/// What a frame may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) longest: usize,
    /// There is no wire: checksums may be left open.
    pub(crate) is_virtual: bool,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Binds to a queue that may have been another socket's until just now.
fn bind_patiently(fd: &OwnedFd, place: Place, first: Option<&Socket>) -> Result<(), Errno> {
    for _ in 0..BUSY_RETRIES {
        match bind(fd, place, first) {
            Err(Errno::BUSY) => std::thread::sleep(BUSY_PAUSE),
            other => return other,
        }
    }
    Err(Errno::BUSY)
}

fn bind(fd: &OwnedFd, place: Place, first: Option<&Socket>) -> Result<(), Errno> {
    let Place { index, queue, zero_copy } = place;
    let copying = if zero_copy { SocketAddrXdpFlags::XDP_ZEROCOPY } else { SocketAddrXdpFlags::XDP_COPY };
    match first {
        // Who shares the memory takes the first one's flags.
        Some(first) => rustix::net::bind(
            fd,
            &SocketAddrXdpWithSharedUmem {
                addr: SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, index, queue),
                shared_umem_fd: first.fd.as_fd(),
            },
        ),
        None => {
            let flags = copying | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
            rustix::net::bind(fd, &SocketAddrXdp::new(flags, index, queue))
        }
    }
}
