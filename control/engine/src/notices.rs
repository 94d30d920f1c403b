//! What lanes have reported and nobody has looked at yet.
//!
//! Lanes put notices in (`fabric.rs`), and whoever asks the engine takes all of them out (`configured.rs`). A program that embeds the engine
//! need not ask: it must not collect them for ever, the less as strangers make them, who announce routers or send what a rule logs.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;

use firelane_ip::Configured;
use firelane_lane::Notice;
use firelane_units::{LaneId, LinkId, NetstackId};

/// How many wait; the oldest give way.
pub(crate) const WAITING_MAX: usize = 4096;

/// Notices, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    waiting: VecDeque<(LaneId, Notice)>,
    /// How many of them have to stay.
    followed: usize,
}

impl Notices {
    pub(crate) fn push(&mut self, lane: LaneId, notice: Notice) {
        self.waiting.push_back((lane, notice));
        if self.waiting.len() > WAITING_MAX.max(2 * self.followed) {
            self.shed();
        }
    }

    pub(crate) fn take(&mut self) -> VecDeque<(LaneId, Notice)> {
        std::mem::take(self).waiting
    }

    /// Of what the engine follows the last word stays, of the others the newest half.
    fn shed(&mut self) {
        let (mut known, mut room) = (HashSet::new(), WAITING_MAX / 2);
        let mut kept = VecDeque::new();
        for (lane, notice) in std::mem::take(&mut self.waiting).into_iter().rev() {
            let stays = match subject(&notice) {
                Some(subject) => known.insert(subject),
                None => {
                    let has_room = room > 0;
                    room -= usize::from(has_room);
                    has_room
                }
            };
            if stays {
                kept.push_front((lane, notice));
            }
        }
        (self.waiting, self.followed) = (kept, known.len());
    }
}

/// What the engine follows: an address that a netstack has made on a link, or what its routers say about names there.
type Subject = (NetstackId, LinkId, Option<IpAddr>);

fn subject(notice: &Notice) -> Option<Subject> {
    match notice {
        Notice::Configured(id, Configured::Address { link, prefix, .. }) => {
            Some((*id, *link, Some(prefix.addr())))
        }
        Notice::Configured(id, Configured::NoAddress { link, addr }) => Some((*id, *link, Some(*addr))),
        Notice::Resolvers(id, known) => Some((*id, known.link, None)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_ip::AddressOrigin;
    use firelane_units::IpPrefix;

    const NETSTACK: NetstackId = NetstackId(3);
    const LANE: LaneId = LaneId(0);

    fn address(nth: u32) -> IpPrefix {
        format!("fd00::{:x}:{:x}/64", nth >> 16, nth & 0xffff).parse().unwrap()
    }

    fn change(nth: u32, is_there: bool) -> Notice {
        let (link, prefix) = (LinkId(nth % 2), address(nth));
        let origin = AddressOrigin::Prefix;
        Notice::Configured(
            NETSTACK,
            match is_there {
                true => Configured::Address { link, prefix, origin, is_deprecated: false },
                false => Configured::NoAddress { link, addr: prefix.addr() },
            },
        )
    }

    /// The addresses that are there by what was told.
    fn followed(told: impl IntoIterator<Item = (LaneId, Notice)>) -> HashSet<IpAddr> {
        let mut there = HashSet::new();
        for (_, notice) in told {
            match notice {
                Notice::Configured(_, Configured::Address { prefix, .. }) => {
                    there.insert(prefix.addr());
                }
                Notice::Configured(_, Configured::NoAddress { addr, .. }) => {
                    there.remove(&addr);
                }
                _ => {}
            }
        }
        there
    }

    #[test]
    fn who_never_asks_collects_nothing_and_is_told_what_counts() {
        let (mut notices, mut all) = (Notices::default(), Vec::new());
        for nth in 0..100_000_u32 {
            let one = match nth % 3 {
                0 => Notice::AddressReady(NETSTACK, LinkId(1), address(nth)),
                // Some hundred of them come and go again and again.
                _ => change(nth.wrapping_mul(2_654_435_769) >> 23, nth % 5 > 1),
            };
            notices.push(LANE, one.clone());
            all.push((LANE, one));
            assert!(notices.waiting.len() <= WAITING_MAX, "{nth}");
        }
        let (told, last) = (notices.take(), all.last().cloned());
        assert_eq!(told.back(), last.as_ref());
        assert!(told.iter().any(|(_, notice)| subject(notice).is_none()));
        assert_eq!(followed(told), followed(all));
        assert!(notices.take().is_empty());
    }

    #[test]
    fn what_has_to_stay_stays_however_much_it_is() {
        let mut notices = Notices::default();
        let most = 3 * WAITING_MAX as u32;
        (0..2 * most).for_each(|nth| notices.push(LANE, change(nth % most, true)));
        assert!(notices.waiting.len() <= 2 * most as usize);
        assert_eq!(followed(notices.take()).len(), most as usize);
    }
}
