//! The addresses whose frames are ours: a map that the XDP program looks into, changed while frames come.
//!
//! Made by `open.rs` where not every frame is claimed; whoever opened the interface keeps it.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use firelane_units::MacAddr;
use rustix::io::Errno;

use crate::bpf;
use crate::error::Refused;

/// The addresses that are claimed on one interface.
#[derive(Debug)]
pub struct Claims {
    map: OwnedFd,
    addresses: BTreeSet<MacAddr>,
}

impl Claims {
    pub(crate) fn new(addresses: &BTreeSet<MacAddr>) -> Result<Self, Refused> {
        let failed = |error| Refused::of("map of addresses", error);
        let mut claims = Self { map: bpf::claim_map().map_err(failed)?, addresses: BTreeSet::new() };
        claims.change(addresses).map_err(failed)?;
        Ok(claims)
    }

    /// From now on frames for these addresses are ours, and no others. Those for an address that stays are at no time the
    /// kernel's.
    ///
    /// # Errors
    /// There are more than [`CLAIMS_MAX`](crate::CLAIMS_MAX), or the kernel has no memory for more; those that were added
    /// before stay, and so do all that were there.
    pub fn set(&mut self, addresses: &BTreeSet<MacAddr>) -> io::Result<()> {
        Ok(self.change(addresses)?)
    }

    /// Those that are claimed.
    pub fn addresses(&self) -> &BTreeSet<MacAddr> {
        &self.addresses
    }

    fn change(&mut self, wanted: &BTreeSet<MacAddr>) -> Result<(), Errno> {
        for &address in wanted {
            if !self.addresses.contains(&address) {
                bpf::claim(&self.map, address)?;
                self.addresses.insert(address);
            }
        }
        let map = &self.map;
        self.addresses.retain(|address| {
            // What is in the map can be taken out of it.
            wanted.contains(address) || bpf::disclaim(map, *address).is_err()
        });
        Ok(())
    }

    pub(crate) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
