//! What a lane counts, and the law that the counts obey.
//!
//! Every frame ends in exactly one of: delivered, forwarded, held, dropped with a named reason. In a lane
//!
//! ```text
//! received + originated + copied + taken = delivered + forwarded + handed + dropped + held
//! ```
//!
//! where `held` is what is inside at the moment of reading, `taken` came from other lanes and `handed` went to
//! them. Over all lanes, with no item between two of them, `taken` equals `handed`.

use firelane_flow::Counters;
use firelane_frame::{Arrival, Weight};
use firelane_switch::GuardCounters;
use firelane_tcp::{FastOpenCounters, SynCounters};
use firelane_units::{Direction, DropCounters, FlowId, LaneId, LinkId};

use crate::squeue::SqueueStats;

/// A lane's counters since it began.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LaneCounters {
    /// Frames that drivers received, those that they dropped themselves included.
    pub received: u64,
    /// Frames that netstacks made.
    pub originated: u64,
    /// Frames that came into being on the way: copies for a group, pieces of a cut one beyond the first.
    pub copied: u64,
    /// Frames that other lanes handed over.
    pub taken: u64,
    /// Frames that a netstack consumed.
    pub delivered: u64,
    /// Frames that a driver took.
    pub forwarded: u64,
    /// Frames that were handed to other lanes.
    pub handed: u64,
    /// Frames that ended here, by reason.
    pub drops: DropCounters,
    /// Segments that found no buffer; TCP sends them again.
    pub unsent: u64,
    /// What packets have taught and other lanes, which had no room, were not told.
    pub untold: u64,
    /// Connections that were reset because their program wrote into shared memory what cannot be true (`shm_lie`).
    pub shm_lies: u64,
    /// How often two connections were fused.
    pub fused: u64,
    /// How often two that were went back to segments.
    pub parted: u64,
    /// Turns of the worker.
    pub turns: u64,
}

impl LaneCounters {
    /// Frames that came into the lane or into being there.
    pub const fn entered(&self) -> u64 {
        self.received + self.originated + self.copied + self.taken
    }

    /// Frames that ended in the lane or left it.
    pub fn ended(&self) -> u64 {
        self.delivered + self.forwarded + self.handed + self.drops.total()
    }

    /// Adds another lane's counters.
    pub fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.originated += other.originated;
        self.copied += other.copied;
        self.taken += other.taken;
        self.delivered += other.delivered;
        self.forwarded += other.forwarded;
        self.handed += other.handed;
        self.drops.merge(&other.drops);
        self.unsent += other.unsent;
        self.untold += other.untold;
        self.shm_lies += other.shm_lies;
        self.fused += other.fused;
        self.parted += other.parted;
        self.turns += other.turns;
    }
}

/// One direction of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortTraffic {
    /// Packets as a wire would carry them: a large frame counts its segments.
    pub packets: u64,
    /// Their bytes, link headers included.
    pub bytes: u64,
    /// Frames that were dropped at this port.
    pub dropped: u64,
    /// Text that went from ring to ring, in no packet.
    pub fused: u64,
    /// How the packets came.
    pub arrivals: Arrivals,
}

/// How the packets of one direction of a port came into the path. What is in none of the first three was made by this
/// host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrivals {
    /// Packets of the first chain after a device's notification.
    pub notified: u64,
    /// Packets that were fetched while notifications were off.
    pub polled: u64,
    /// The bytes of both.
    pub bytes: u64,
    /// Their chains of fewer than 10 packets, of 10 to 50, and of more (Solaris `mac_sched.c`).
    chains: [u64; 3],
    /// The chain that packets came in last, by its number, and how many of it came here.
    last: (u32, u64),
}

/// Both directions of a port, as its user sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortCounters {
    /// Towards the user.
    pub inward: PortTraffic,
    /// From the user.
    pub outward: PortTraffic,
}

impl PortCounters {
    /// One direction.
    pub(crate) fn of_mut(&mut self, direction: Direction) -> &mut PortTraffic {
        match direction {
            Direction::In => &mut self.inward,
            Direction::Out => &mut self.outward,
        }
    }
}

impl Arrivals {
    /// Chains of fewer than 10 packets, of 10 to 50, and of more.
    pub fn chains(&self) -> [u64; 3] {
        let mut chains = self.chains;
        if let Some(class) = Self::class(self.last.1) {
            chains[class] += 1;
        }
        chains
    }

    fn class(packets: u64) -> Option<usize> {
        match packets {
            0 => None,
            1..10 => Some(0),
            10..=50 => Some(1),
            _ => Some(2),
        }
    }

    /// Counts packets of the chain `number`.
    #[inline]
    fn count(&mut self, weight: Weight, arrival: Arrival, number: u32) {
        match arrival {
            Arrival::Local => return,
            Arrival::Notified => self.notified += weight.packets,
            Arrival::Polled => self.polled += weight.packets,
        }
        self.bytes += weight.bytes;
        if self.last.0 != number {
            self.chains = self.chains();
            self.last = (number, 0);
        }
        self.last.1 += weight.packets;
    }

    /// Adds another lane's.
    fn merge(&mut self, other: &Self) {
        self.notified += other.notified;
        self.polled += other.polled;
        self.bytes += other.bytes;
        self.chains.iter_mut().zip(other.chains()).for_each(|(sum, one)| *sum += one);
    }
}

impl PortTraffic {
    /// Counts packets of the chain `number`.
    #[inline]
    pub(crate) fn count(&mut self, weight: Weight, arrival: Arrival, number: u32) {
        self.packets += weight.packets;
        self.bytes += weight.bytes;
        self.arrivals.count(weight, arrival, number);
    }

    /// Takes back that a packet was counted, which is counted somewhere else.
    pub(crate) fn uncount(&mut self, weight: Weight, arrival: Arrival) {
        // What waited for the device when its ring came from another lane was counted there.
        let less = |count: &mut u64, by: u64| *count = count.saturating_sub(by);
        less(&mut self.packets, weight.packets);
        less(&mut self.bytes, weight.bytes);
        match arrival {
            Arrival::Local => return,
            Arrival::Notified => less(&mut self.arrivals.notified, weight.packets),
            Arrival::Polled => less(&mut self.arrivals.polled, weight.packets),
        }
        less(&mut self.arrivals.bytes, weight.bytes);
    }

    /// What was counted since it was `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let (now, then) = (&self.arrivals, &before.arrivals);
        let [mut chains, old] = [now.chains(), then.chains()];
        chains.iter_mut().zip(old).for_each(|(chains, old)| *chains = chains.saturating_sub(old));
        let arrivals = Arrivals {
            notified: now.notified - then.notified,
            polled: now.polled - then.polled,
            bytes: now.bytes - then.bytes,
            chains,
            last: (0, 0),
        };
        Self {
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
            dropped: self.dropped - before.dropped,
            fused: self.fused - before.fused,
            arrivals,
        }
    }

    /// Adds another lane's.
    pub fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.dropped += other.dropped;
        self.fused += other.fused;
        self.arrivals.merge(&other.arrivals);
    }
}

/// One ring of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingTraffic {
    /// What was fetched from it, whatever became of it then.
    pub fetched: PortTraffic,
    /// What was sent by it.
    pub sent: PortTraffic,
}

impl RingTraffic {
    /// Adds what it has carried in another lane.
    pub fn merge(&mut self, other: &Self) {
        self.fetched.merge(&other.fetched);
        self.sent.merge(&other.sent);
    }
}

/// A ring, whose it is, and what it has carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingCounters {
    /// The port.
    pub port: LinkId,
    /// Which of the rings of the port's device.
    pub ring: u16,
    /// Whether the lane in which it is sends by it.
    pub sends: bool,
    /// It is or was lent to this lane, or has ended here: what it has carried here is a part of what it has carried, or all.
    pub is_lent: bool,
    /// What it has carried, in whatever lane.
    pub traffic: RingTraffic,
}

/// What a lane's tables have allocated in bytes, for what is there and to grow; an end of a connection has its
/// rings beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TableMemory {
    /// The connections' places.
    pub connections: usize,
    /// The index from tuples to connections.
    pub index: usize,
    /// The timer wheel, and who waits for a limit.
    pub timers: usize,
    /// Records in TIME-WAIT and their index.
    pub time_wait: usize,
    /// The places of links, ports, flows and netstacks.
    pub links: usize,
}

/// Everything that can be read of a lane, at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Which lane.
    pub lane: LaneId,
    /// Its counters.
    pub counters: LaneCounters,
    /// Frames inside: held by limits, and waiting for a driver, a neighbour or their other fragments.
    pub held: u64,
    /// Each port's traffic in this lane.
    pub ports: Vec<(LinkId, PortCounters)>,
    /// The rings that are served in this lane.
    pub rings: Vec<RingCounters>,
    /// What the guards of protected ports have stopped in this lane.
    pub guards: Vec<(LinkId, GuardCounters)>,
    /// Each flow's traffic in this lane, inward and outward.
    pub flows: Vec<(FlowId, [Counters; Direction::ALL.len()])>,
    /// Connections of all netstacks.
    pub connections: usize,
    /// Records in TIME-WAIT.
    pub time_wait: usize,
    /// Half-open connections of all netstacks.
    pub half_open: usize,
    /// What the tables of half-open connections have counted.
    pub syn: SynCounters,
    /// What became of Fast Opens.
    pub fast_open: FastOpenCounters,
    /// What its tables take.
    pub memory: TableMemory,
    /// The squeue's statistics; filled in by whoever holds it.
    pub squeue: SqueueStats,
    /// How often its worker has slept; filled in by whoever starts it.
    pub sleeps: u64,
}

impl Snapshot {
    /// Whether every frame is accounted for.
    pub fn is_conserved(&self) -> bool {
        self.counters.entered() == self.counters.ended() + self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_told_by_their_numbers_and_classed_by_their_lengths() {
        let mut traffic = PortTraffic::default();
        let one = Weight { packets: 1, bytes: 60 };
        for (number, packets) in [(1, 9), (2, 10), (3, 50), (4, 51), (5, 1)] {
            let arrival = if number == 1 { Arrival::Notified } else { Arrival::Polled };
            (0..packets).for_each(|_| traffic.count(one, arrival, number));
            traffic.count(one, Arrival::Local, number);
        }
        let arrivals = traffic.arrivals;
        assert_eq!((traffic.packets, arrivals.notified, arrivals.polled), (126, 9, 112));
        assert_eq!((arrivals.chains(), arrivals.bytes), ([2, 2, 1], 121 * 60));
        let mut sum = PortTraffic::default();
        sum.merge(&traffic);
        sum.merge(&traffic);
        assert_eq!(sum.arrivals.chains(), [4, 4, 2]);
    }
}
