//! A session's memory and rings: made by a client, checked by a server.
//!
//! Called by `keeper.rs` at the end of a handshake. What it yields is one [`Pair`] per queue; each goes to the
//! lane that owns the queue, and the memory stays mapped until the last of them is dropped.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create,
};

use crate::handshake::{Offer, Refusal, RingOffer};
use crate::layout::{COOKIE, Desc, Plan};
use crate::receive::{Own, Receiver};
use crate::sys::{Region, RingMemory};
use crate::transmit::Sender;

/// `TMPFS_MAGIC` of `linux/magic.h`: a memfd of ordinary pages. One of huge pages could fault when they run out.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Both directions of a queue.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) receiver: Receiver,
    pub(crate) sender: Sender,
}

/// The doorbells of a queue, which both processes have.
#[derive(Debug)]
pub(crate) struct Bells {
    /// The other end rings it.
    pub(crate) receive: OwnedFd,
    /// We do.
    pub(crate) send: OwnedFd,
}

/// A client's memory.
#[derive(Debug)]
pub(crate) struct ClientMemory {
    pub(crate) memfd: OwnedFd,
    pub(crate) bells: Vec<Bells>,
    pub(crate) pairs: Vec<Pair>,
}

impl ClientMemory {
    /// Makes rings and buffers as `plan` says.
    pub(crate) fn make(plan: Plan) -> io::Result<Self> {
        let memfd = memfd_create("firelane-memif", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&memfd, plan.bytes())?;
        fcntl_add_seals(&memfd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let region = Arc::new(Region::map(&memfd, plan.bytes())?);
        let regions: Arc<[_]> = Arc::new([Arc::clone(&region)]);
        let (mut bells, mut pairs) = (Vec::new(), Vec::new());
        for queue in 0..plan.queues {
            let ring = |to_server| {
                let ring = region.ring(plan.ring_at(to_server, queue), plan.log2_size);
                let ring = ring.ok_or(io::ErrorKind::InvalidInput)?;
                ring.cookie().store(COOKIE, Ordering::Relaxed);
                Ok::<_, io::Error>(ring)
            };
            let own = Some(Own { plan, queue });
            let (out, inward) = (ring(true)?, ring(false)?);
            for cursor in 0..inward.size() {
                let offset = plan.buffer_at(false, queue, cursor);
                inward.write(cursor, Desc { length: plan.buffer_bytes, offset, ..Desc::default() });
            }
            let receiver = Receiver {
                regions: Arc::clone(&regions),
                ring: inward,
                own,
                next: 0,
                given: 0,
                unfinished: (0, 0),
            };
            let sender = Sender { regions: Arc::clone(&regions), ring: out, own, next: 0 };
            pairs.push(Pair { receiver, sender });
            bells.push(Bells { receive: bell()?, send: bell()? });
        }
        Ok(Self { memfd, bells, pairs })
    }
}

fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Maps what a client has offered.
pub(crate) fn accept(offer: Offer) -> Result<(Vec<Pair>, Vec<Bells>), Refusal> {
    let regions: Vec<_> = offer
        .regions
        .iter()
        .map(|(memfd, size)| map_checked(memfd, *size).map(Arc::new))
        .collect::<Result<_, _>>()?;
    let regions: Arc<[_]> = regions.into();
    let (mut pairs, mut bells) = (Vec::new(), Vec::new());
    for (inward, out) in offer.to_server.into_iter().zip(offer.to_client) {
        let ring = ring_checked(&regions, &inward)?;
        let receiver = Receiver {
            regions: Arc::clone(&regions),
            ring,
            own: None,
            next: 0,
            given: 0,
            unfinished: (0, 0),
        };
        let sender =
            Sender { regions: Arc::clone(&regions), ring: ring_checked(&regions, &out)?, own: None, next: 0 };
        pairs.push(Pair { receiver, sender });
        bells.push(Bells { receive: inward.bell, send: out.bell });
    }
    Ok((pairs, bells))
}

/// Maps a region that cannot fault: ordinary pages, as many as were promised, sealed against becoming fewer.
fn map_checked(memfd: &OwnedFd, size: u64) -> Result<Region, Refusal> {
    let seals = fcntl_get_seals(memfd).map_err(|_| Refusal::RegionNotSealed)?;
    let filesystem = fstatfs(memfd).map_err(|_| Refusal::RegionNotSealed)?;
    if !seals.contains(SealFlags::SHRINK) || filesystem.f_type as u64 != TMPFS_MAGIC {
        return Err(Refusal::RegionNotSealed);
    }
    let length = fstat(memfd).map_err(|_| Refusal::RegionShort)?.st_size;
    if u64::try_from(length).unwrap_or(0) < size {
        return Err(Refusal::RegionShort);
    }
    Region::map(memfd, size).map_err(|error| Refusal::Memory(error.raw_os_error().unwrap_or(0)))
}

fn ring_checked(regions: &[Arc<Region>], offer: &RingOffer) -> Result<RingMemory, Refusal> {
    let region = regions.get(usize::from(offer.region)).ok_or(Refusal::RingRegion(offer.region))?;
    let ring = region.ring(offer.offset, offer.log2_size).ok_or(Refusal::RingPlace(offer.offset))?;
    if ring.cookie().load(Ordering::Relaxed) != COOKIE {
        return Err(Refusal::RingCookie);
    }
    if !is_eventfd(&offer.bell) {
        return Err(Refusal::NoEventfd);
    }
    Ok(ring)
}

/// Whether a stranger's descriptor is what it should be; others could do anything when they are written to.
fn is_eventfd(fd: &OwnedFd) -> bool {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    std::fs::read_link(link).is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}
