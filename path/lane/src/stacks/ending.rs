//! An address goes, and the connections that have it end.
//!
//! From the answer on the address is nobody's: IP takes nothing for it, nothing begins with it, and nobody finds a connection of it. The
//! connections themselves end when the hand comes to them (`sweep.rs`), with a RST to their peers in the address' name, or as
//! soon as somebody needs their names or their programs say something. The address may be given again meanwhile: what began before it
//! went is told from what has begun since by the [`Epoch`] of each, which begins anew with each removal that takes more than
//! its message. Called by `lane.rs` for the operator, by `learned.rs` for addresses that were made here.

use core::net::IpAddr;

use firelane_socket::Names;
use firelane_units::{ConnId, IpPrefix, LinkId, NetstackId};

use super::conn::{Conn, Program};
use super::inbound::Inside;
use super::shard::Shard;
use super::{NO_NETSTACK, Stacks, address_refusal};
use crate::common::Common;
use crate::control::Refusal;
use crate::slab::Epoch;

/// An address that has gone, whose connections have yet to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    /// Those that have begun before.
    before: Epoch,
    /// Where it was, if their peers are to be told: the route to its subnet stands until then.
    subnet: Option<(LinkId, IpPrefix)>,
}

impl Shard {
    /// Whether what began then is of one that had the number of this netstack before it.
    #[inline]
    pub(super) const fn is_successor(&self, since: Epoch) -> bool {
        since.is_before(self.since)
    }

    /// Whether the address of a connection has gone since it began.
    #[inline]
    pub(super) fn is_ended(&self, (conn, since): (&Conn, Epoch)) -> bool {
        !self.ending.is_empty() && self.has_lost_address(conn, since)
    }

    #[cold]
    fn has_lost_address(&self, conn: &Conn, since: Epoch) -> bool {
        let ending = conn.tuple().and_then(|tuple| self.ending.get(&tuple.local()));
        ending.is_some_and(|it| since.is_before(it.before))
    }

    /// Whether a connection is of this netstack and its end has not come.
    #[inline]
    pub(super) fn has(&self, dated: (&Conn, Epoch)) -> bool {
        !self.is_successor(dated.1) && !self.is_ended(dated)
    }
}

impl Stacks {
    /// Whose a connection is, unless its end has come.
    #[inline]
    pub(super) fn home(&self, id: ConnId) -> Option<NetstackId> {
        let dated @ (conn, _) = self.conns.slab.get_dated(id)?;
        self.shards.get(conn.netstack)?.has(dated).then_some(conn.netstack)
    }

    /// An address goes, with the connections that have it and what the translator has made of it. It is nobody's when this returns;
    /// of many connections the rest ends in the turns that follow ([`Stacks::is_ending`]).
    pub(crate) fn remove_address<D>(
        &mut self,
        common: &mut Common<D>,
        id: NetstackId,
        link: LinkId,
        address: IpAddr,
    ) -> Result<(), Refusal> {
        // Another link's is not ended for who has never had it.
        self.check_address(id, link, address)?;
        let mut inside = self.inside(common, id).ok_or(NO_NETSTACK)?;
        inside.end_translations(address);
        inside.shard.ip.touch();
        if inside.conns.are_few() {
            inside.end_few(address);
            return inside.shard.ip.core.remove_address(link, address).map_err(address_refusal);
        }
        let prefix = inside.shard.ip.core.withdraw_address(link, address).map_err(address_refusal)?;
        inside.end_many(address, Some((link, prefix)));
        Ok(())
    }

    /// The connections that have an address end, and what the translator has made of it, as in [`Stacks::remove_address`]. It has
    /// gone before, so nobody is told.
    pub(crate) fn abort_address<D>(
        &mut self,
        common: &mut Common<D>,
        id: NetstackId,
        address: IpAddr,
    ) -> Result<(), Refusal> {
        let mut inside = self.inside(common, id).ok_or(NO_NETSTACK)?;
        inside.end_translations(address);
        inside.end_connections_of(address);
        Ok(())
    }

    /// The hand is over with an address, unless it has gone once more since.
    pub(super) fn forget_ending(&mut self, id: NetstackId, address: IpAddr, before: Epoch) {
        let Some(shard) = self.shards.get_mut(id) else { return };
        if shard.ending.get(&address).is_some_and(|it| it.before == before)
            && let Some(Ending { subnet: Some((link, prefix)), .. }) = shard.ending.remove(&address)
        {
            shard.ip.touch();
            shard.ip.core.forget_subnet(link, prefix);
        }
    }
}

impl<D> Inside<'_, D> {
    /// The connections of an address that has gone end.
    pub(super) fn end_connections_of(&mut self, address: IpAddr) {
        match self.conns.are_few() {
            true => self.end_few(address),
            false => self.end_many(address, None),
        }
    }

    /// All of them, as there are few in the lane.
    fn end_few(&mut self, address: IpAddr) {
        let netstack = self.shard.config.id;
        for place in 0..self.conns.slab.places() as u32 {
            let is_its = |(conn, since): (&Conn, Epoch)| {
                conn.netstack == netstack
                    && !self.shard.is_successor(since)
                    && conn.tuple().is_some_and(|it| it.local() == address)
            };
            if self.conns.slab.get_dated(ConnId(place)).is_some_and(is_its) {
                self.end(ConnId(place));
            }
        }
    }

    /// Each when the hand comes to it.
    fn end_many(&mut self, address: IpAddr, subnet: Option<(LinkId, IpPrefix)>) {
        let before = self.conns.slab.begin_epoch();
        let earlier = self.shard.ending.get(&address).and_then(|it| it.subnet);
        let subnet = subnet.or(earlier);
        if let Some((link, prefix)) = earlier.filter(|_| earlier != subnet) {
            self.shard.ip.core.forget_subnet(link, prefix);
        }
        self.shard.ending.insert(address, Ending { before, subnet });
        self.conns.hand.end(self.shard.config.id, address, before);
    }

    /// The end of a connection whose address has gone: its peer hears of it in the address' name.
    pub(super) fn end_of_address(&mut self, id: ConnId) {
        let names = self.conns.slab.get(id).and_then(|conn| conn.stream.shared().names());
        if let Some(Names { local, remote }) = names {
            self.lead_in_name(id, local.ip(), remote.ip());
        }
        self.end(id);
    }

    /// Lets what a connection says last go the way that it had, if its address is still gone. Who had an address that has gone hears of it
    /// otherwise.
    fn lead_in_name(&mut self, id: ConnId, local: IpAddr, remote: IpAddr) {
        let ending = &self.shard.ending;
        let subnet = ending.get(&local).and_then(|it| it.subnet).filter(|_| !ending.contains_key(&remote));
        let ip = &mut self.shard.ip.core;
        if let Some((link, _)) = subnet.filter(|_| !ip.is_local(local))
            && let Ok(egress) = ip.egress_in_name(self.common.now, link, local, remote)
            && let Some(conn) = self.conns.slab.get_mut(id)
        {
            conn.set_route(egress);
        }
    }

    /// Ends a connection here and now; its peer hears of it by a RST.
    pub(super) fn end(&mut self, id: ConnId) {
        if let Some(told) = self.abort(id) {
            self.conclude(id, told);
        }
        self.settle(id);
    }

    /// A connection that is about to begin needs these names: who has them still, though its address went, ends before, and says
    /// nothing, which the new one's peer could take for its word.
    pub(super) fn end_predecessor(&mut self, tuple: &firelane_classify::Tuple) {
        if self.shard.ending.is_empty() {
            return;
        }
        let conns = &*self.conns;
        let found = self.shard.conns.lookup(tuple, |id| conns.is_named(id, tuple));
        let Some(id) = found.filter(|&id| !self.has(id)) else { return };
        if let Some(told) = self.abort(id) {
            self.conclude(id, firelane_tcp::Disposition { reply: None, ..told });
        }
        self.settle(id);
    }

    /// Whether a connection is of this netstack and its end has not come.
    #[inline]
    pub(super) fn has(&self, id: ConnId) -> bool {
        self.conns.slab.get_dated(id).is_some_and(|dated| self.shard.has(dated))
    }

    /// A program says something to a connection, or has closed it. If its end has come it ends now, and nobody hears that. Whether it lives.
    pub(super) fn meets_living(&mut self, id: ConnId, is_close: bool) -> bool {
        let Some(dated @ (_, since)) = self.conns.slab.get_dated(id) else { return false };
        if self.shard.has(dated) {
            return true;
        }
        if !self.shard.is_successor(since) {
            if let Some(conn) = self.conns.slab.get_mut(id).filter(|_| is_close) {
                // Nobody will ask what became of it.
                conn.program = Program::Gone;
            }
            self.end_of_address(id);
        }
        false
    }

    fn end_translations(&mut self, address: IpAddr) {
        if let (IpAddr::V4(address), Some(nat)) = (address, self.shard.gate.nat()) {
            nat.end_address(address);
        }
    }
}
