//! How large a packet may be on the way to one destination (RFC 1191, RFC 8201).
//!
//! Owns what was learned from ICMP: it only ever lowers the link's MTU, stays above a floor, and is
//! forgotten after ten minutes, when a larger packet is tried again. Whether a message is to be believed
//! was decided before, by the transport that sent the packet (RFC 5927 §7).

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use firelane_units::{Instant, Mtu};
use hashbrown::HashMap;

use crate::random::Keyed;

/// RFC 1191 §6.3, RFC 8201 §4: how long a lower MTU is believed.
const LIFETIME: Duration = Duration::from_secs(600);
/// RFC 8200 §5: every IPv6 link carries this.
const FLOOR_V6: u16 = 1280;
/// Destinations with a lower MTU than their link's.
const PATHS_MAX: usize = 4096;
/// RFC 1191 §7.1, table 7-1: what links have, for routers that do not say.
const PLATEAUS: [u16; 9] = [32_000, 17_914, 8166, 4352, 2002, 1492, 1006, 576, 552];

/// A destination with a lower MTU than its link's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NarrowPath {
    /// Where to.
    pub dst: IpAddr,
    /// What its path carries.
    pub mtu: Mtu,
    /// Since when that is known.
    pub since: Instant,
}

/// Paths with a lower MTU than their link's.
#[derive(Debug)]
pub(crate) struct Paths {
    table: HashMap<IpAddr, (Mtu, Instant), Keyed>,
    ages: BTreeSet<(Instant, IpAddr)>,
}

impl Paths {
    pub(crate) fn new(keyed: Keyed) -> Self {
        Self { table: HashMap::with_hasher(keyed), ages: BTreeSet::new() }
    }

    /// The path's MTU over a link of `link_mtu`.
    #[inline]
    pub(crate) fn mtu(&self, dst: IpAddr, link_mtu: Mtu) -> Mtu {
        if self.table.is_empty() {
            return link_mtu;
        }
        self.table.get(&dst).map_or(link_mtu, |&(mtu, _)| mtu.min(link_mtu))
    }

    /// Whether it would be lower than what is believed.
    pub(crate) fn is_lower(&self, dst: IpAddr, mtu: Mtu, link_mtu: Mtu) -> bool {
        mtu.max(floor(dst)) < self.mtu(dst, link_mtu)
    }

    /// Believes that packets to `dst` may have `mtu`; says whether that is lower than before.
    pub(crate) fn lower(&mut self, now: Instant, dst: IpAddr, mtu: Mtu, link_mtu: Mtu) -> bool {
        if !self.is_lower(dst, mtu, link_mtu) {
            return false;
        }
        let mtu = mtu.max(floor(dst));
        self.forget(dst);
        if self.table.len() == PATHS_MAX
            && let Some((_, oldest)) = self.ages.first().copied()
        {
            self.forget(oldest);
        }
        let until = now + LIFETIME;
        self.table.insert(dst, (mtu, until));
        self.ages.insert((until, dst));
        true
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NarrowPath> {
        let path = |(dst, (mtu, until)): (&IpAddr, &(Mtu, Instant))| {
            let since = Instant::ZERO + until.saturating_since(Instant::ZERO).saturating_sub(LIFETIME);
            NarrowPath { dst: *dst, mtu: *mtu, since }
        };
        self.table.iter().map(path)
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.ages.first().map(|&(at, _)| at)
    }

    /// Forgets what is too old; says whether there was anything.
    pub(crate) fn on_timer(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some((_, dst)) = self.ages.first().copied().filter(|&(at, _)| at <= now) {
            self.forget(dst);
            any = true;
        }
        any
    }

    fn forget(&mut self, dst: IpAddr) {
        if let Some((_, until)) = self.table.remove(&dst) {
            self.ages.remove(&(until, dst));
        }
    }
}

/// The least MTU that is believed: lower ones only serve attacks.
fn floor(dst: IpAddr) -> Mtu {
    let bytes = if dst.is_ipv4() { Mtu::MIN } else { FLOOR_V6 };
    Mtu::new(bytes).expect("both floors are MTUs")
}

/// The MTU that an ICMP error means: `claimed`, or if a router does not say, the next that links have below
/// the packet that was too large.
pub(crate) fn claimed_mtu(dst: IpAddr, claimed: u32, packet_len: u16) -> Mtu {
    let claimed = u16::try_from(claimed).unwrap_or(u16::MAX);
    let guess = || PLATEAUS.into_iter().find(|&plateau| plateau < packet_len).unwrap_or(0);
    let bytes = if claimed == 0 && dst.is_ipv4() { guess() } else { claimed };
    Mtu::new(bytes).map_or(floor(dst), |mtu| mtu.max(floor(dst)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mtu(bytes: u16) -> Mtu {
        Mtu::new(bytes).unwrap()
    }

    #[test]
    fn c03_claims_are_kept_within_reason() {
        let v4: IpAddr = "192.0.2.1".parse().unwrap();
        let v6: IpAddr = "2001:db8::1".parse().unwrap();
        for (dst, claimed, packet, believed) in [
            (v4, 1400, 1500, 1400),
            (v4, 0, 1500, 1492),
            (v4, 0, 1492, 1006),
            (v4, 1, 1500, 576),
            (v4, 68, 1500, 576),
            (v6, 0, 1500, 1280),
            (v6, 1279, 1500, 1280),
            (v6, 1400, 1500, 1400),
            (v6, u32::MAX, 1500, u16::MAX),
        ] {
            assert_eq!(claimed_mtu(dst, claimed, packet), mtu(believed), "{dst} {claimed}");
        }
    }

    #[test]
    fn a_path_only_shrinks_and_is_forgotten_after_ten_minutes() {
        let dst: IpAddr = "192.0.2.1".parse().unwrap();
        let mut paths = Paths::new(Keyed::new([0; 16], 0));
        let link = Mtu::ETHERNET;
        assert!(!paths.lower(Instant::ZERO, dst, mtu(1500), link));
        assert!(paths.lower(Instant::ZERO, dst, mtu(1400), link));
        assert!(!paths.lower(Instant::ZERO, dst, mtu(1450), link));
        assert!(paths.lower(Instant::from_secs(60), dst, mtu(1300), link));
        assert_eq!(paths.mtu(dst, link), mtu(1300));
        let known = NarrowPath { dst, mtu: mtu(1300), since: Instant::from_secs(60) };
        assert_eq!(Vec::from_iter(paths.iter()), [known]);
        assert!(!paths.on_timer(Instant::from_secs(659)));
        assert!(paths.on_timer(Instant::from_secs(660)));
        assert_eq!((paths.mtu(dst, link), paths.poll_at()), (link, None));
    }

    #[test]
    fn paths_are_bounded() {
        let mut paths = Paths::new(Keyed::new([0; 16], 0));
        for i in 0..PATHS_MAX as u32 + 10 {
            let dst = IpAddr::V4((0x0a00_0000 + i).into());
            assert!(paths.lower(Instant::from_secs(u64::from(i)), dst, mtu(1000), Mtu::ETHERNET));
        }
        assert_eq!((paths.table.len(), paths.ages.len()), (PATHS_MAX, PATHS_MAX));
    }
}
