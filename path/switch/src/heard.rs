//! Which groups the user of a port listens to, as far as he says so in reports (RFC 4541 §2.1).
//!
//! A device cannot be asked what its user has joined. What he tells routers in IGMP and MLD is heard by the lane, which calls
//! [`Switch::hear`]; from then on he gets the groups that he listens to, and those of which no port is known to be a member. A
//! port whose user never said anything gets all, for he may speak neither protocol; so does one that asks who listens, and
//! one that listens to more than is remembered, or says so much that lanes have little else to do than to tell each other. Nobody has to repeat himself: there may be no router that asks.
//! An exit gets all, too: of several stations beyond it one may leave what another one listens to (RFC 4541 §2.1.1).

use core::net::IpAddr;

use firelane_units::{Instant, MacAddr, SwitchPortId};
use firelane_wire::GroupSaying;
use firelane_wire::ethernet::group_mac;

use crate::allowance::Allowance;
use crate::port::{GroupFilter, is_solicited_node};
use crate::switch::Switch;

/// How many groups of a port are remembered: far more than hosts join, and less than would be felt.
const GROUPS_MAX: usize = 256;

/// What has been heard of a port's user.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Heard {
    /// The groups, and the addresses of their frames, in order. Several groups share one.
    groups: Vec<(MacAddr, IpAddr)>,
    /// Whether he has said anything.
    has_reported: bool,
    /// Whether he is to get every group: a router, or more groups than are remembered.
    gets_all: bool,
    /// How often he may still change his mind here. Who has done so too often gets every group, and is not heard any more.
    allowance: Allowance,
    is_unheard: bool,
}

impl Heard {
    /// Whether that is news.
    fn hear(&mut self, saying: GroupSaying) -> bool {
        let before = (self.groups.len(), self.has_reported, self.gets_all);
        match saying {
            GroupSaying::Asks => self.gets_all = true,
            GroupSaying::Listens(group) => {
                self.has_reported = true;
                let member = (group_mac(group), group);
                match self.groups.binary_search(&member) {
                    Err(_) if self.groups.len() >= GROUPS_MAX => self.gets_all = true,
                    Err(at) => self.groups.insert(at, member),
                    Ok(_) => {}
                }
            }
            GroupSaying::Leaves(group) => {
                self.has_reported = true;
                let member = (group_mac(group), group);
                if let Ok(at) = self.groups.binary_search(&member) {
                    self.groups.remove(at);
                }
            }
        }
        before != (self.groups.len(), self.has_reported, self.gets_all)
    }

    /// The same of what he says in this lane: what the others are to be told.
    fn hear_here(&mut self, now: Instant, saying: GroupSaying) -> Option<GroupSaying> {
        if self.is_unheard || !self.hear(saying) {
            return None;
        }
        self.is_unheard = !self.allowance.allow(now);
        if !self.is_unheard {
            return Some(saying);
        }
        self.gets_all = true;
        Some(GroupSaying::Asks)
    }

    /// Whether he listens to a group with that address.
    pub(crate) fn is_member(&self, address: MacAddr) -> bool {
        let at = self.groups.partition_point(|&(mac, _)| mac < address);
        self.groups.get(at).is_some_and(|&(mac, _)| mac == address)
    }

    /// Whether he gets a group's frames; `has_members` says whether any port is known to listen to it.
    pub(crate) fn wants(&self, address: MacAddr, has_members: bool) -> bool {
        !self.has_reported
            || self.gets_all
            || !has_members
            || is_everybodys(address)
            || self.is_member(address)
    }
}

impl Switch {
    /// Another lane has heard something of groups that the user of a port has said.
    pub fn hear(&mut self, id: SwitchPortId, saying: GroupSaying) {
        self.heard_of(id).map(|heard| heard.hear(saying));
    }

    /// The user of a port has said something of groups in this lane: what other replicas have to hear of that, if it is news.
    pub fn hear_here(&mut self, now: Instant, id: SwitchPortId, saying: GroupSaying) -> Option<GroupSaying> {
        self.heard_of(id)?.hear_here(now, saying)
    }

    fn heard_of(&mut self, id: SwitchPortId) -> Option<&mut Heard> {
        if self.exits.has(id) {
            return None;
        }
        let port = self.ports.get_mut(id.index())?.as_mut();
        port.filter(|port| port.config.groups == GroupFilter::All).map(|port| &mut port.heard)
    }
}

/// Addresses that every station gets: groups that stay on the link and are not always reported (RFC 4541 §2.1.2: 224.0.0.0/24;
/// of IPv6 those that ff02::1 and other well-known ones share), those in which stations are asked for, and what is no IP.
fn is_everybodys(MacAddr(address): MacAddr) -> bool {
    match address {
        [0x01, 0x00, 0x5e, 0, 0, _] | [0x33, 0x33, 0, 0, 0, _] => true,
        [0x01, 0x00, 0x5e, ..] => false,
        [0x33, 0x33, ..] => is_solicited_node(MacAddr(address)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    fn group(number: u16) -> IpAddr {
        let [high, low] = number.to_be_bytes();
        [239, 1, high, low].into()
    }

    #[test]
    fn who_has_said_nothing_asks_or_says_too_much_gets_all() {
        let mut heard = Heard::default();
        assert!(heard.wants(group_mac(group(1)), true));
        assert!(heard.hear(GroupSaying::Leaves(group(9))), "he speaks the protocol");
        assert!(!heard.wants(group_mac(group(1)), true));
        assert!(heard.wants(group_mac(group(1)), false));
        let mut router = heard.clone();
        assert!(router.hear(GroupSaying::Asks) && !router.hear(GroupSaying::Asks));
        assert!(router.wants(group_mac(group(1)), true));
        for number in 0..GROUPS_MAX as u16 {
            assert!(heard.hear(GroupSaying::Listens(group(number))) && !heard.gets_all);
            assert!(!heard.hear(GroupSaying::Listens(group(number))), "that is not news");
        }
        assert!(!heard.wants(group_mac(group(1000)), true));
        assert!(heard.hear(GroupSaying::Listens(group(1001))));
        assert!(heard.wants(group_mac(group(1000)), true));
        assert_eq!(heard.groups.len(), GROUPS_MAX);
    }

    #[test]
    fn who_changes_his_mind_without_end_gets_all_and_is_heard_no_more() {
        use crate::allowance::MOST;
        let (mut heard, mut replica, mut told) = (Heard::default(), Heard::default(), Vec::new());
        for second in [0, 60, 61] {
            let acts = (0..3 * MOST).map(|nth| match nth % 2 {
                0 => GroupSaying::Listens(group(9)),
                _ => GroupSaying::Leaves(group(9)),
            });
            // The first minute's are as many as he may say.
            let acts = acts.take(if second == 0 { MOST.into() } else { 3 * usize::from(MOST) });
            told.push(
                acts.filter_map(|act| heard.hear_here(Instant::from_secs(second), act)).collect::<Vec<_>>(),
            );
            for &saying in told.last().into_iter().flatten() {
                replica.hear(saying);
            }
            assert_eq!(heard.wants(group_mac(group(1)), true), second > 0, "{second}");
            assert_eq!(replica.wants(group_mac(group(1)), true), second > 0, "{second}");
        }
        let most = usize::from(MOST);
        assert_eq!(told.iter().map(Vec::len).collect::<Vec<_>>(), [most, most + 1, 0]);
        assert_eq!(told[1].last(), Some(&GroupSaying::Asks));
    }

    #[test]
    fn what_everybody_gets() {
        let mut heard = Heard::default();
        heard.hear(GroupSaying::Leaves(group(9)));
        for (address, wants) in [
            ("224.0.0.251", true),
            ("224.0.1.251", false),
            ("239.0.0.5", true),
            ("ff02::fb", true),
            ("ff02::1:ff12:3456", true),
            ("ff02::1:3", false),
            ("ff05::1:2:3", false),
        ] {
            let address = group_mac(address.parse().unwrap());
            assert_eq!(heard.wants(address, true), wants, "{address}");
        }
        for address in [MacAddr::BROADCAST, MacAddr([1, 0x80, 0xc2, 0, 0, 0x21])] {
            assert!(heard.wants(address, true), "{address}");
        }
    }

    proptest! {
        /// What is remembered is what a set of groups would hold.
        #[test]
        fn a_member_is_who_has_joined_since_he_left(acts in prop::collection::vec((any::<bool>(), 0u16..6, any::<bool>()), 1..60)) {
            let (mut heard, mut joined) = (Heard::default(), BTreeSet::new());
            for (joins, number, twin) in acts {
                // Two groups share an address.
                let [high, low] = (number | 0x100).to_be_bytes();
                let group: IpAddr = [239, if twin { 129 } else { 1 }, high, low].into();
                let news = match joins {
                    true => heard.hear(GroupSaying::Listens(group)),
                    false => heard.hear(GroupSaying::Leaves(group)),
                };
                let differs = if joins { joined.insert(group) } else { joined.remove(&group) };
                prop_assert!(news >= differs);
                let wanted = joined.iter().any(|it| group_mac(*it) == group_mac(group));
                prop_assert_eq!(heard.wants(group_mac(group), true), wanted);
            }
        }
    }
}
