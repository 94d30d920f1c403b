//! One address that this host makes itself: which it is now, and which comes next if another has it.
//!
//! The state machine of RFC 4862 §5.4.5 and RFC 7217 §6, used by `autoconf.rs` for the link-local address and by
//! `slaac.rs` for those of a prefix: try, be told of a duplicate, wait, try the next identifier, and after a
//! few tries give up (A08). It sends nothing and keeps no table.

use core::net::Ipv6Addr;
use core::time::Duration;

use firelane_units::{Instant, MacAddr};

use crate::iid::{self, IidInput, IidKind};

/// RFC 7217 §7: identifiers that are tried before a host gives up.
const IDGEN_RETRIES: u8 = 3;
/// RFC 7217 §7: the wait before the next one is tried.
const IDGEN_DELAY: Duration = Duration::from_secs(1);

/// Where an address is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// It is to be tried from then on.
    Due(Instant),
    /// It is tested, or used.
    Live,
    /// All that were tried belong to others.
    GivenUp,
}

/// An address in the making.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OwnAddress {
    kind: IidKind,
    input: IidInput,
    addr: Ipv6Addr,
    phase: Phase,
}

impl OwnAddress {
    /// An address of `network`, to be tried at once.
    pub(crate) fn new(
        now: Instant,
        kind: IidKind,
        secret: &[u8; 16],
        mac: MacAddr,
        network: Ipv6Addr,
    ) -> Self {
        let input = IidInput { mac, network, tries: 0 };
        let iid = iid::stable(kind, secret, &input).unwrap_or_else(|| iid::eui64(mac));
        Self { kind, input, addr: iid::address(network, iid), phase: Phase::Due(now) }
    }

    /// Which it is now.
    pub(crate) const fn addr(&self) -> Ipv6Addr {
        self.addr
    }

    /// Where it is on its way.
    pub(crate) const fn phase(&self) -> Phase {
        self.phase
    }

    /// When it is to be tried.
    pub(crate) const fn poll_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Due(at) => Some(at),
            Phase::Live | Phase::GivenUp => None,
        }
    }

    /// The address, if it is to be tried now.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Ipv6Addr> {
        let is_due = self.poll_at().is_some_and(|at| at <= now);
        is_due.then(|| {
            self.phase = Phase::Live;
            self.addr
        })
    }

    /// Another station has it: says whether there is another to try.
    pub(crate) fn on_duplicate(&mut self, now: Instant, secret: &[u8; 16]) -> bool {
        let input = IidInput { tries: self.input.tries + 1, ..self.input };
        let next = iid::stable(self.kind, secret, &input).filter(|_| input.tries < IDGEN_RETRIES);
        let Some(iid) = next else {
            self.phase = Phase::GivenUp;
            return false;
        };
        self.input = input;
        self.addr = iid::address(input.network, iid);
        self.phase = Phase::Due(now + IDGEN_DELAY);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 16] = [1; 16];

    fn own(kind: IidKind) -> OwnAddress {
        let mac = MacAddr([2, 8, 0x20, 1, 2, 3]);
        OwnAddress::new(Instant::ZERO, kind, &SECRET, mac, "fe80::".parse().unwrap())
    }

    #[test]
    fn a08_three_identifiers_are_tried_a_second_apart_and_then_none() {
        let mut own = own(IidKind::Stable);
        let mut tried = Vec::new();
        let mut now = Instant::ZERO;
        while let Some(at) = own.poll_at() {
            assert!(at == now || at == now + IDGEN_DELAY);
            now = at;
            tried.push(own.poll(now).unwrap());
            assert_eq!(own.poll(now), None);
            own.on_duplicate(now, &SECRET);
        }
        assert_eq!((tried.len(), own.phase()), (3, Phase::GivenUp));
        tried.dedup();
        assert_eq!(tried.len(), 3);
    }

    #[test]
    fn an_identifier_from_the_hardware_or_the_operator_has_no_second() {
        for kind in [IidKind::Eui64, IidKind::Token([5; 8])] {
            let mut own = own(kind);
            assert!(own.poll(Instant::ZERO).is_some());
            assert!(!own.on_duplicate(Instant::ZERO, &SECRET));
            assert_eq!((own.phase(), own.poll_at()), (Phase::GivenUp, None));
        }
    }
}
