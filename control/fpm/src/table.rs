//! The routes that a daemon has told, and what of them the netstack has been given.
//!
//! Owned by `feed.rs`. Messages change what is told; when a frame is over, what is told and what is given are compared,
//! destination by destination, and the difference goes out: what begins before what ends. So a route that a daemon deletes and
//! adds again within a frame, as zebra does to change one, is there all the time.

use core::net::IpAddr;
use std::collections::HashMap;

use firelane_units::{IpPrefix, LinkId};

use crate::counts::{Counts, Refusal};
use crate::hops::{Meaning, Objects};
use crate::message::{Object, RawHop, Target};

/// Destinations: the table of the whole Internet, in both families, with room.
const ROUTES_MAX: usize = 2_000_000;
/// Ways of all of them together, which leaves room for others in the netstack's table.
const INSTALLED_MAX: usize = 2_000_000;
/// Changes that go out at a time.
const AT_ONCE: usize = 256;

/// How packets end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// Nobody is told.
    Blackhole,
    /// Their sender is told that the host cannot be reached.
    Unreachable,
    /// Their sender is told that they are forbidden.
    Prohibit,
}

/// One of the ways to a destination.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hop {
    /// Through a router; without a link by the one on which it is.
    Via(IpAddr, Option<LinkId>),
    /// To stations on a link.
    OnLink(LinkId),
    /// Nowhere.
    Ends(End),
}

/// Where a route comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whence {
    /// The protocol, by `RTPROT_...`.
    pub protocol: u8,
    /// What the daemon says of its worth.
    pub metric: u32,
}

impl Whence {
    /// The protocol's name, as `ip route` has it (`/etc/iproute2/rt_protos`); none for a number without one.
    pub const fn word(self) -> Option<&'static str> {
        Some(match self.protocol {
            3 => "boot",
            4 => "static",
            11 => "zebra",
            42 => "babel",
            186 => "bgp",
            187 => "isis",
            188 => "ospf",
            189 => "rip",
            190 => "ripng",
            191 => "nhrp",
            192 => "eigrp",
            193 => "ldp",
            194 => "sharp",
            195 => "pbr",
            // FRR's own static routes.
            196 => "static",
            197 => "openfabric",
            198 => "srte",
            _ => return None,
        })
    }
}

/// What changes in the netstack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// A way begins.
    Add(IpPrefix, Hop),
    /// A way ends.
    Remove(IpPrefix, Hop),
}

/// Takes changes, in their order.
pub type Sink<'a> = dyn FnMut(&[Change]) + 'a;

#[derive(Debug)]
struct Entry {
    told: Told,
    whence: Whence,
    /// The session that said so last.
    session: u32,
    /// What the netstack has, sorted.
    given: Box<[Hop]>,
}

#[derive(Debug)]
enum Told {
    Target(Target),
    /// By a session that is over, whose numbers of next hops mean nothing any more: what is given stays.
    Kept,
    /// It is gone as soon as the netstack knows.
    Gone,
}

/// All that is known.
#[derive(Debug, Default)]
pub(crate) struct Table {
    routes: HashMap<IpPrefix, Entry>,
    objects: Objects,
    /// Our links by the daemon's numbers of interfaces.
    links: HashMap<u32, LinkId>,
    session: u32,
    /// Routes of the present session.
    fresh: usize,
    installed: usize,
    unresolved: usize,
    touched: Vec<IpPrefix>,
    touched_objects: Vec<u32>,
}

/// Changes on their way out.
struct Batch<'a, 'b> {
    changes: Vec<Change>,
    sink: &'a mut Sink<'b>,
}

impl Batch<'_, '_> {
    fn push(&mut self, change: Change) {
        self.changes.push(change);
        if self.changes.len() == AT_ONCE {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if !self.changes.is_empty() {
            (self.sink)(&self.changes);
            self.changes.clear();
        }
    }
}

impl Table {
    /// A route begins, or takes another's place.
    pub(crate) fn put(
        &mut self,
        destination: IpPrefix,
        target: Target,
        whence: Whence,
    ) -> Result<(), Refusal> {
        let is_full = self.routes.len() >= ROUTES_MAX;
        let session = self.session;
        let entry = match self.routes.get_mut(&destination) {
            Some(entry) => {
                if entry.session != session {
                    self.fresh += 1;
                }
                entry
            }
            None if is_full => return Err(Refusal::Full),
            None => {
                (self.fresh, self.unresolved) = (self.fresh + 1, self.unresolved + 1);
                let (told, given) = (Told::Gone, [].into());
                self.routes.entry(destination).or_insert(Entry { told, whence, session, given })
            }
        };
        let before = core::mem::replace(&mut entry.told, Told::Target(target));
        (entry.whence, entry.session) = (whence, session);
        if let Told::Target(Target::Named(id)) = before {
            self.objects.end_use(id, destination);
        }
        if let Told::Target(Target::Named(id)) = entry.told {
            self.objects.begin_use(id, destination);
        }
        self.touched.push(destination);
        Ok(())
    }

    /// A route ends.
    pub(crate) fn remove(&mut self, destination: IpPrefix) {
        let Some(entry) = self.routes.get_mut(&destination) else { return };
        let before = core::mem::replace(&mut entry.told, Told::Gone);
        if let Told::Target(Target::Named(id)) = before {
            self.objects.end_use(id, destination);
        }
        self.touched.push(destination);
    }

    pub(crate) fn put_object(&mut self, id: u32, object: Object) -> Result<(), Refusal> {
        self.objects.put(id, object)?;
        self.touched_objects.push(id);
        Ok(())
    }

    pub(crate) fn remove_object(&mut self, id: u32) {
        self.objects.remove(id);
        self.touched_objects.push(id);
    }

    /// A frame is over: the netstack is told of what has changed.
    pub(crate) fn settle(&mut self, counts: &mut Counts, sink: &mut Sink<'_>) {
        let mut batch = Batch { changes: Vec::new(), sink };
        for destination in core::mem::take(&mut self.touched) {
            self.settle_one(destination, counts, &mut batch);
        }
        for id in core::mem::take(&mut self.touched_objects) {
            for dependent in self.objects.dependents(id) {
                let users = self.objects.take_users(dependent);
                users.iter().for_each(|&user| self.settle_one(user, counts, &mut batch));
                self.objects.put_users(dependent, users);
            }
        }
        batch.flush();
    }

    fn settle_one(&mut self, destination: IpPrefix, counts: &mut Counts, batch: &mut Batch<'_, '_>) {
        let Some(entry) = self.routes.get_mut(&destination) else { return };
        let is_v4 = destination.addr().is_ipv4();
        let is_gone = matches!(entry.told, Told::Gone);
        let mut wanted = match &entry.told {
            Told::Kept => return,
            Told::Gone => Vec::new(),
            Told::Target(Target::Ends(end)) => vec![Hop::Ends(*end)],
            Told::Target(Target::Hops(hops)) => usable(hops, is_v4, &self.links),
            Told::Target(Target::Named(id)) => match self.objects.meaning(*id) {
                // Until it is known, what was given stays.
                Meaning::Unknown => return,
                Meaning::Ends => vec![Hop::Ends(End::Blackhole)],
                Meaning::Hops(hops) => usable(&hops, is_v4, &self.links),
            },
        };
        wanted.sort_unstable();
        wanted.dedup();
        let before = core::mem::take(&mut entry.given);
        wanted.retain(|hop| {
            let is_new = before.binary_search(hop).is_err();
            if is_new && self.installed >= INSTALLED_MAX {
                counts.refuse(Refusal::Full);
                return false;
            }
            if is_new {
                self.installed += 1;
                batch.push(Change::Add(destination, *hop));
            }
            true
        });
        for hop in before.iter().filter(|hop| wanted.binary_search(hop).is_err()) {
            self.installed -= 1;
            batch.push(Change::Remove(destination, *hop));
        }
        self.unresolved -= usize::from(before.is_empty());
        if is_gone {
            self.fresh -= usize::from(entry.session == self.session);
            self.routes.remove(&destination);
            return;
        }
        self.unresolved += usize::from(wanted.is_empty());
        entry.given = wanted.into();
    }

    /// A session begins. What others have told stays until it is told again or swept.
    pub(crate) fn begin_session(&mut self) -> u32 {
        self.keep_all();
        self.session = self.session.wrapping_add(1);
        self.fresh = 0;
        self.session
    }

    /// A session is over: what it said stays, and its next hops are forgotten.
    pub(crate) fn keep_all(&mut self) {
        self.objects = Objects::default();
        self.routes.values_mut().for_each(|entry| entry.told = Told::Kept);
    }

    /// Removes what no session after `session` has told. Answers how many.
    pub(crate) fn sweep(&mut self, session: u32, counts: &mut Counts, sink: &mut Sink<'_>) -> usize {
        let is_old = |entry: &Entry| session.wrapping_sub(entry.session) < u32::MAX / 2;
        let old: Vec<IpPrefix> =
            self.routes.iter().filter(|(_, entry)| is_old(entry)).map(|(to, _)| *to).collect();
        old.iter().for_each(|&destination| self.remove(destination));
        self.settle(counts, sink);
        old.len()
    }

    /// The daemon's numbers of interfaces mean these links.
    pub(crate) fn set_links(
        &mut self,
        links: HashMap<u32, LinkId>,
        counts: &mut Counts,
        sink: &mut Sink<'_>,
    ) {
        if self.links != links {
            self.links = links;
            self.touched = self.routes.keys().copied().collect();
            self.settle(counts, sink);
        }
    }

    /// Where the route to `destination` comes from.
    pub(crate) fn whence(&self, destination: IpPrefix) -> Option<Whence> {
        self.routes.get(&destination).map(|entry| entry.whence)
    }

    /// What is there, in numbers. Without a session all routes are stale.
    pub(crate) fn count(&self, has_session: bool, counts: &mut Counts) {
        counts.routes = self.routes.len();
        counts.stale = self.routes.len() - if has_session { self.fresh } else { 0 };
        (counts.unresolved, counts.installed) = (self.unresolved, self.installed);
        counts.next_hops = self.objects.len();
    }
}

/// The next hops that lead out of this netstack to a destination of the family. An address that is in no other link's network
/// says by itself which link it is on; one that is on every link, or none, needs the daemon's interface.
fn usable(hops: &[RawHop], is_v4: bool, links: &HashMap<u32, LinkId>) -> Vec<Hop> {
    let of = |hop: &RawHop| {
        let link = || links.get(&hop.index).copied();
        match hop.gateway {
            None => link().map(Hop::OnLink),
            // IPv4 may go by IPv6 (RFC 8950).
            Some(gateway) if gateway.is_ipv4() && !is_v4 => None,
            Some(gateway) if hop.is_on_link || is_link_local(gateway) => {
                link().map(|link| Hop::Via(gateway, Some(link)))
            }
            Some(gateway) => Some(Hop::Via(gateway, None)),
        }
    };
    hops.iter().filter_map(of).collect()
}

const fn is_link_local(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local())
}
