//! Next hops by number, the groups of them, and who uses which.
//!
//! Owned by `table.rs`. A group may come before its members, and a next hop may become another one while routes use it: who has
//! to be looked at again is known without a search.

use std::collections::{BTreeSet, HashMap, HashSet};

use firelane_units::IpPrefix;

use crate::counts::Refusal;
use crate::message::{Object, RawHop};

/// Next hops and groups: an exchange's thousand peers, in every combination that is in use.
const OBJECTS_MAX: usize = 1 << 16;
/// Members of all groups together.
const MEMBERS_MAX: usize = 1 << 18;

/// What a number stands for at present.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Meaning {
    /// Nothing as yet.
    Unknown,
    /// Packets end.
    Ends,
    /// These next hops, as far as they are known.
    Hops(Vec<RawHop>),
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    known: HashMap<u32, Object>,
    groups_of: HashMap<u32, BTreeSet<u32>>,
    members: usize,
    users: HashMap<u32, HashSet<IpPrefix>>,
}

impl Objects {
    /// How many are known.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// A number stands for this from here on.
    pub(crate) fn put(&mut self, id: u32, object: Object) -> Result<(), Refusal> {
        let (before, of_before) = match self.known.get(&id) {
            Some(Object::Group(members)) => (1, members.len()),
            Some(_) => (1, 0),
            None => (0, 0),
        };
        let of_this = if let Object::Group(members) = &object { members.len() } else { 0 };
        let is_room = self.known.len() - before < OBJECTS_MAX
            && (self.members - of_before).saturating_add(of_this) <= MEMBERS_MAX;
        if !is_room {
            return Err(Refusal::Full);
        }
        self.remove(id);
        if let Object::Group(members) = &object {
            self.members += members.len();
            for &member in members {
                self.groups_of.entry(member).or_default().insert(id);
            }
        }
        self.known.insert(id, object);
        Ok(())
    }

    /// A number stands for nothing any more.
    pub(crate) fn remove(&mut self, id: u32) {
        let Some(Object::Group(members)) = self.known.remove(&id) else { return };
        self.members -= members.len();
        for member in members {
            if let Some(groups) = self.groups_of.get_mut(&member) {
                groups.remove(&id);
                if groups.is_empty() {
                    self.groups_of.remove(&member);
                }
            }
        }
    }

    /// A route names a number.
    pub(crate) fn begin_use(&mut self, id: u32, destination: IpPrefix) {
        self.users.entry(id).or_default().insert(destination);
    }

    /// A route names a number no more.
    pub(crate) fn end_use(&mut self, id: u32, destination: IpPrefix) {
        if let Some(users) = self.users.get_mut(&id) {
            users.remove(&destination);
            if users.is_empty() {
                self.users.remove(&id);
            }
        }
    }

    /// The numbers whose meaning depends on that of `id`: its own, and those of groups.
    pub(crate) fn dependents(&self, id: u32) -> Vec<u32> {
        let groups = self.groups_of.get(&id).into_iter().flatten().copied();
        std::iter::once(id).chain(groups).collect()
    }

    /// Takes the users of a number out for a while.
    pub(crate) fn take_users(&mut self, id: u32) -> HashSet<IpPrefix> {
        self.users.get_mut(&id).map(std::mem::take).unwrap_or_default()
    }

    /// Puts them back.
    pub(crate) fn put_users(&mut self, id: u32, users: HashSet<IpPrefix>) {
        if !users.is_empty() {
            self.users.insert(id, users);
        }
    }

    /// What a number stands for. A group has no groups in it, as the kernel's.
    pub(crate) fn meaning(&self, id: u32) -> Meaning {
        let one = |id: &u32| match self.known.get(id) {
            Some(Object::One(hop)) => Some(*hop),
            _ => None,
        };
        match self.known.get(&id) {
            None => Meaning::Unknown,
            Some(Object::Ends) => Meaning::Ends,
            Some(Object::Refused) => Meaning::Hops(Vec::new()),
            Some(Object::One(hop)) => Meaning::Hops(vec![*hop]),
            Some(Object::Group(members)) => {
                let is_unknown = |id: &u32| !self.known.contains_key(id);
                let hops: Vec<RawHop> = members.iter().filter_map(one).collect();
                if hops.is_empty() && members.iter().any(is_unknown) {
                    return Meaning::Unknown;
                }
                Meaning::Hops(hops)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(last: u8) -> RawHop {
        RawHop { gateway: Some([192, 0, 2, last].into()), index: 0, is_on_link: false }
    }

    #[test]
    fn a_group_may_come_before_its_members_and_is_what_is_known_of_them() {
        let mut objects = Objects::default();
        objects.put(9, Object::Group([1, 2].into())).unwrap();
        assert_eq!(objects.meaning(9), Meaning::Unknown);
        objects.put(2, Object::One(hop(2))).unwrap();
        assert_eq!(objects.meaning(9), Meaning::Hops(vec![hop(2)]));
        assert_eq!(objects.dependents(1), [1, 9]);
        objects.put(1, Object::One(hop(1))).unwrap();
        assert_eq!(objects.meaning(9), Meaning::Hops(vec![hop(1), hop(2)]));
        objects.put(9, Object::Group([2].into())).unwrap();
        assert_eq!((objects.dependents(1), objects.members), (vec![1], 1));
        objects.remove(9);
        assert_eq!((objects.dependents(2), objects.members, objects.len()), (vec![2], 0, 2));
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        let mut objects = Objects::default();
        let most = OBJECTS_MAX as u32;
        (1..=most).for_each(|id| objects.put(id, Object::Ends).unwrap());
        assert_eq!(objects.put(most + 1, Object::Ends), Err(Refusal::Full));
        objects.put(1, Object::One(hop(1))).unwrap();
        let large: Box<[u32]> = (0..256).collect();
        let groups = (1..=most).take_while(|&id| objects.put(id, Object::Group(large.clone())).is_ok());
        assert_eq!(groups.count() * 256, MEMBERS_MAX);
        objects.put(1, Object::Group(large)).unwrap();
        objects.put(2, Object::Ends).unwrap();
        assert_eq!(objects.members, MEMBERS_MAX - 256);
    }
}
