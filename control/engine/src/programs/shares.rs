//! Places that are for all programs, so that nobody takes them all: who has which, and how many anybody may have.
//!
//! A program is a process of a user; another name for itself, a socket in another session, gives nobody more. Used for those who wait with
//! SO_LINGER (`lingering.rs`) and for the groups of a netstack (`datagram_options.rs`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firelane_ip::{GROUPS_MAX, MEMBERS_MAX};
use firelane_units::NetstackId;

use super::session::Owner;

/// How much one may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    /// Places.
    pub(super) places: usize,
    /// Uses of one place.
    pub(super) uses: usize,
}

/// How much a program and a user may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) program: Most,
    pub(super) user: Most,
}

/// Who has a place: his user and his process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Who {
    user: u32,
    pid: u32,
}

impl Who {
    pub(super) fn of(owner: &Owner) -> Self {
        Self { user: owner.user, pid: owner.pid }
    }
}

/// Which places somebody has, and how often he uses each.
type Has<K> = BTreeMap<K, usize>;

/// Who has which.
#[derive(Debug)]
pub(super) struct Shares<K> {
    programs: BTreeMap<Who, Has<K>>,
    users: BTreeMap<u32, Has<K>>,
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self { programs: BTreeMap::new(), users: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Shares<K> {
    /// Somebody uses a place, once more if he does already. Whether he may.
    pub(super) fn take(&mut self, who: Who, place: &K, bounds: Bounds) -> bool {
        let may = |has: Option<&Has<K>>, most: Most| match has.and_then(|has| has.get(place)) {
            Some(uses) => *uses < most.uses,
            None => has.map_or(0, Has::len) < most.places,
        };
        let allowed =
            may(self.programs.get(&who), bounds.program) && may(self.users.get(&who.user), bounds.user);
        if allowed {
            *self.programs.entry(who).or_default().entry(place.clone()).or_default() += 1;
            *self.users.entry(who.user).or_default().entry(place.clone()).or_default() += 1;
        }
        allowed
    }

    /// He does so once less.
    pub(super) fn give(&mut self, who: Who, place: &K) {
        give(&mut self.programs, &who, place);
        give(&mut self.users, &who.user, place);
    }
}

fn give<N: Ord, K: Ord>(all: &mut BTreeMap<N, Has<K>>, whose: &N, place: &K) {
    let Some(has) = all.get_mut(whose) else { return };
    if let Some(uses) = has.get_mut(place) {
        *uses -= 1;
        if *uses == 0 {
            has.remove(place);
        }
    }
    if has.is_empty() {
        all.remove(whose);
    }
}

/// Of a netstack's groups, and of the members of one group, a program has at most a half and a user three quarters.
const OF_GROUPS: Bounds = Bounds {
    program: Most { places: GROUPS_MAX / 2, uses: MEMBERS_MAX / 2 },
    user: Most { places: GROUPS_MAX / 4 * 3, uses: MEMBERS_MAX / 4 * 3 },
};

/// A link, and a group there.
type Group = (u32, IpAddr);

/// Which programs are in which groups, by netstack.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupShares(Arc<Mutex<BTreeMap<NetstackId, Shares<Group>>>>);

/// A socket is in a group.
#[derive(Debug)]
pub(super) struct Seat {
    shares: GroupShares,
    netstack: NetstackId,
    who: Who,
    group: Group,
}

impl GroupShares {
    /// A socket of somebody's joins a group, if he may.
    pub(super) fn take(&self, netstack: NetstackId, who: Who, group: Group) -> Option<Seat> {
        let allowed = self.all().entry(netstack).or_default().take(who, &group, OF_GROUPS);
        allowed.then(|| Seat { shares: self.clone(), netstack, who, group })
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<NetstackId, Shares<Group>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut all = self.shares.all();
        if let Some(shares) = all.get_mut(&self.netstack) {
            shares.give(self.who, &self.group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { program: Most { places: 2, uses: 3 }, user: Most { places: 3, uses: 4 } };

    fn who(user: u32, pid: u32) -> Who {
        Who { user, pid }
    }

    #[test]
    fn a_program_and_a_user_have_so_many_places_and_others_have_theirs() {
        let mut shares = Shares::default();
        let mut take = |user, pid, place: &str| shares.take(who(user, pid), &place.to_owned(), BOUNDS);
        assert!(take(1, 10, "a") && take(1, 10, "b"));
        assert!(!take(1, 10, "c"), "the program has two");
        assert!(take(1, 11, "c") && !take(1, 11, "d"), "the user has three");
        assert!(take(1, 11, "a"), "which is one that the user has");
        assert!(take(2, 12, "d") && take(2, 12, "e"));
    }

    #[test]
    fn a_place_is_used_so_often_and_given_back() {
        let mut shares = Shares::default();
        for _ in 0..3 {
            assert!(shares.take(who(1, 10), &"a", BOUNDS));
        }
        assert!(!shares.take(who(1, 10), &"a", BOUNDS) && shares.take(who(1, 11), &"a", BOUNDS));
        assert!(!shares.take(who(1, 11), &"a", BOUNDS), "the user has four");
        (0..3).for_each(|_| shares.give(who(1, 10), &"a"));
        shares.give(who(1, 11), &"a");
        shares.give(who(1, 11), &"b");
        assert!(shares.programs.is_empty() && shares.users.is_empty(), "nothing is kept");
    }
}
