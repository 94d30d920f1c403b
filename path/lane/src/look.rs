//! What a lane tells of a netstack's routes and neighbours: a question that goes round, like that about sockets.
//!
//! Routes, addresses and neighbours are the same in every lane of a netstack, so one lane is asked: the home lane, which
//! speaks ARP and neighbour discovery. It copies a bounded number of each at a time into storage that the asker brought.

use firelane_ip::{Address, NarrowPath, Neighbour, Route};
use firelane_units::NetstackId;

/// How many of each one answer holds.
const EACH: usize = 256;

/// A question about a netstack's tables, and then its answer.
#[derive(Clone, Debug)]
pub struct Look {
    /// Whose question it is; the lane gives it back as it is.
    pub ticket: u64,
    /// Of which netstack.
    pub netstack: NetstackId,
    /// How many of each were told before; the lane adds what it tells.
    pub told: usize,
    /// Whether there is nothing more.
    pub is_done: bool,
    /// Addresses.
    pub addresses: Vec<Address>,
    /// Routes.
    pub routes: Vec<Route>,
    /// Neighbours.
    pub neighbours: Vec<Neighbour>,
    /// Destinations whose paths carry less than their link.
    pub paths: Vec<NarrowPath>,
}

impl Look {
    /// A question that begins after `told` of each.
    pub fn new(ticket: u64, netstack: NetstackId, told: usize) -> Self {
        let (addresses, routes) = (Vec::with_capacity(EACH), Vec::with_capacity(EACH));
        let (neighbours, paths) = (Vec::with_capacity(EACH), Vec::new());
        Self { ticket, netstack, told, is_done: false, addresses, routes, neighbours, paths }
    }

    /// Takes the next of each, and notes whether more are left.
    pub(crate) fn take(&mut self, ip: &firelane_ip::Ip) {
        self.addresses.extend(ip.addresses().skip(self.told).take(EACH).cloned());
        self.routes.extend(ip.routes().skip(self.told).take(EACH).copied());
        self.neighbours.extend(ip.neighbours().skip(self.told).take(EACH));
        self.paths.extend(ip.narrow_paths().skip(self.told).take(EACH));
        let lens = [self.addresses.len(), self.routes.len(), self.neighbours.len(), self.paths.len()];
        let most = lens.into_iter().max().unwrap_or(0);
        self.is_done = most < EACH;
        self.told += EACH;
    }
}
