//! What must be true of every world, whatever happened in it.
//!
//! Frames are conserved in each lane, over the lanes of a host and over each wire; and once everybody has gone,
//! nothing is left behind: no connection, no record, no timer.

use std::time::Duration;

use firelane_lane::{LaneCounters, Snapshot, StreamInfo};
use firelane_socket::ConnRef;
use firelane_units::{DropReason, LaneId};

use crate::sim::Sim;

impl Sim {
    /// Every lane's books balance, what lanes hand to each other arrives, and what hosts say that they sent and
    /// received is what the wires say.
    pub fn check_conservation(&self) {
        let (mut sent, mut received) = (vec![0; self.hosts().len()], vec![0; self.hosts().len()]);
        for wire in self.wires() {
            let (forth, back) = (wire.forth.counters(), wire.back.counters());
            for (counters, from, to) in [(forth, 0, 1), (back, 1, 0)] {
                let came = counters.sent + counters.duplicated;
                let went = counters.delivered + counters.lost() + counters.queued;
                assert_eq!(came, went, "a wire keeps its books: {counters:?}");
                // What finds no buffer has left its sender and is the receiver's loss.
                sent[wire.hosts[from]] += counters.sent + counters.dropped_buffer - counters.lost();
                received[wire.hosts[to]] += counters.delivered;
            }
        }
        for (n, host) in self.hosts().iter().enumerate() {
            let snapshots = host.snapshots(self.now());
            let mut sum = LaneCounters::default();
            for snapshot in &snapshots {
                assert!(snapshot.is_conserved(), "host {n}: {snapshot:#?}");
                sum.merge(&snapshot.counters);
            }
            assert_eq!(sum.taken, sum.handed, "host {n}: no frame is lost between lanes");
            if self.wires().iter().any(|wire| wire.hosts.contains(&n)) {
                assert_eq!(sum.forwarded, sent[n], "host {n} and its wires agree on what it sent");
                // A copy that found no buffer never came to be.
                let refused = sum.drops.of(DropReason::NoBuffer);
                let (least, most) = (received[n], received[n] + refused);
                assert!((least..=most).contains(&sum.received), "host {n}: {least} {} {most}", sum.received);
            }
        }
    }

    /// All lanes' books.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.hosts().iter().flat_map(|host| host.snapshots(self.now())).collect()
    }

    /// What is known of a connection, if it still exists.
    pub fn stream_info(&self, host: usize, lane: LaneId, conn: ConnRef) -> Option<StreamInfo> {
        self.hosts()[host].stream_info(self.now(), lane, conn)
    }

    /// Connections and records of all hosts.
    pub fn remains(&self) -> (usize, usize) {
        let snapshots = self.snapshots();
        (snapshots.iter().map(|s| s.connections).sum(), snapshots.iter().map(|s| s.time_wait).sum())
    }

    /// Lets the longest time-outs pass, after which nothing may be left, and nobody may have anything to do:
    /// an idle host uses no CPU.
    pub fn check_that_nothing_remains(&mut self) {
        self.run_for(Duration::from_secs(700));
        assert_eq!(self.remains(), (0, 0), "connections and records remain");
        let turns = |sim: &Self| sim.snapshots().iter().map(|s| s.counters.turns).sum::<u64>();
        let before = turns(self);
        self.run_for(Duration::from_secs(3600));
        let idle = turns(self) - before;
        assert!(idle <= 20 * self.snapshots().len() as u64, "idle hosts took {idle} turns in an hour");
    }
}
