//! An interface that the kernel keeps as well: ours is what is for our stations, and of what is for groups both get a copy.
//!
//! AF_XDP gives a frame to one of the two. Frames for stations are therefore claimed by their addresses, and those for groups
//! go on to the kernel, whose packet socket copies them. Opened by whoever embeds the engine; a [`Queue`] like others.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use firelane_driver_afxdp::{
    AfXdpConfig, AfXdpError, AfXdpQueue, Attached, Claim, Refused, open as open_afxdp,
};
use firelane_driver_packet::PacketSocket;
use firelane_frame::{Capabilities, Chain, Driver, Pools};
use firelane_units::{DropCounters, Instant, MacAddr};
use rustix::event::epoll;

use crate::queue::Queue;

/// A lane that always has frames for stations looks for those for groups once in so many times, as that is a system call.
const TURNS_PER_LOOK: u32 = 32;

/// A lane's sockets on such an interface: the first lane has that for groups.
#[derive(Debug)]
pub struct SharedQueue {
    claimed: AfXdpQueue,
    groups: PacketSocket,
    /// Readable when one of both is that is in it.
    set: OwnedFd,
    turns: u32,
}

/// Opens an interface of the calling thread's network namespace: frames for `stations` are ours, and a copy of those for groups;
/// all others are the kernel's. [`Attached::claims`] changes whose they are.
///
/// # Errors
/// As of [`open_afxdp`], or there is no packet socket.
pub fn open_shared(
    name: &str,
    config: AfXdpConfig,
    stations: BTreeSet<MacAddr>,
) -> Result<(Vec<Queue>, Attached), AfXdpError> {
    let claim = Claim::Addresses { addresses: stations, groups: false };
    let mtu = config.mtu;
    let (queues, attached) = open_afxdp(name, &AfXdpConfig { claim, ..config })?;
    let refused = |error| AfXdpError::Refused(name.to_owned(), vec![("copies of frames for groups", error)]);
    let system = |error| refused(Refused::System("packet socket", error));
    let mut queues = queues.into_iter();
    let mut made = Vec::with_capacity(queues.len());
    if let Some(first) = queues.next() {
        let groups = PacketSocket::of_groups(name, mtu).map_err(system)?;
        let shared = SharedQueue::new(first, groups).map_err(|error| system(error.into()))?;
        made.push(Queue::from(shared));
    }
    made.extend(queues.map(Queue::from));
    Ok((made, attached))
}

impl SharedQueue {
    fn new(claimed: AfXdpQueue, groups: PacketSocket) -> rustix::io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for part in [claimed.as_fd(), groups.as_fd()] {
            epoll::add(&set, part, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Self { claimed, groups, set, turns: 0 })
    }

    /// The sockets for stations.
    pub(crate) fn claimed(&self) -> &AfXdpQueue {
        &self.claimed
    }
}

impl AsFd for SharedQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl Driver for SharedQueue {
    fn ring(&self) -> u16 {
        self.claimed.ring()
    }

    fn capabilities(&self) -> Capabilities {
        self.claimed.capabilities()
    }

    fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        self.turns = self.turns.wrapping_add(1);
        let looks = self.turns.is_multiple_of(TURNS_PER_LOOK);
        receive_both(&mut self.claimed, &mut self.groups, looks, pools, budget, out, drops)
    }

    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        self.claimed.transmit(chain, drops);
    }

    fn notify(&mut self, on: bool) -> bool {
        let waits = self.claimed.notify(on);
        self.groups.notify(on) || waits
    }

    fn next_event(&self) -> Option<Instant> {
        self.claimed.next_event()
    }

    fn advance(&mut self, now: Instant) {
        self.claimed.advance(now);
    }

    fn leave(&mut self, is_left: bool) {
        // Who watches the set does not hear of groups meanwhile either.
        self.claimed.leave(is_left);
    }
}

/// Takes frames for stations, and those for groups when it is time to look for them, or there is nothing else.
fn receive_both(
    claimed: &mut impl Driver,
    groups: &mut impl Driver,
    looks: bool,
    pools: &mut Pools,
    budget: usize,
    out: &mut Chain,
    drops: &mut DropCounters,
) -> usize {
    // Frames for stations may never leave room, so whoever looks does so before they have taken it.
    let first = if looks { groups.receive(pools, budget.div_ceil(2), out, drops) } else { 0 };
    let middle = claimed.receive(pools, budget - first, out, drops);
    let last = if middle == 0 && !looks { groups.receive(pools, budget, out, drops) } else { 0 };
    first + middle + last
}

#[cfg(test)]
mod tests {
    use firelane_driver_memory::{WireConfig, wire};
    use firelane_frame::PoolsConfig;

    use super::*;

    const BUDGET: usize = 8;

    #[test]
    fn what_comes_for_groups_is_heard_beside_a_flood_for_stations() {
        let mut pools = Pools::new(PoolsConfig { small_slots: 256, large_slots: 1 });
        let (mut station, mut claimed) = wire(WireConfig::default());
        let (mut peer, mut groups) = wire(WireConfig::default());
        let (mut drops, mut sent, mut got) = (DropCounters::default(), Chain::new(), Chain::new());
        for (number, count, from) in [(1, 100, &mut station), (2, 2, &mut peer)] {
            (0..count).for_each(|_| sent.push(pools.copy_of(&[number; 60]).unwrap()));
            from.transmit(&mut sent, &mut drops);
            assert!(sent.is_empty());
        }
        let mut turn = |looks| {
            let had = got.len();
            let count =
                receive_both(&mut claimed, &mut groups, looks, &mut pools, BUDGET, &mut got, &mut drops);
            assert_eq!(got.len() - had, count);
            assert!(count <= BUDGET);
            got.iter().skip(had).filter(|frame| frame.as_slice()[0] == 2).count()
        };
        assert_eq!([turn(false), turn(false)], [0, 0], "a look is a system call");
        assert_eq!(turn(true), 2);
        for _ in 0..100 {
            turn(false);
        }
        peer_sends(&mut peer, &mut pools);
        let (mut out, mut drops) = (Chain::new(), DropCounters::default());
        let count = receive_both(&mut claimed, &mut groups, false, &mut pools, BUDGET, &mut out, &mut drops);
        assert_eq!((count, out.len()), (1, 1), "who has nothing else looks");
    }

    fn peer_sends(peer: &mut impl Driver, pools: &mut Pools) {
        let mut sent = Chain::new();
        sent.push(pools.copy_of(&[2; 60]).unwrap());
        peer.transmit(&mut sent, &mut DropCounters::default());
    }
}
