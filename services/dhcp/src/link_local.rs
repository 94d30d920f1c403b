//! An IPv4 address of the link alone, while no server gives one (RFC 3927): which to try, and what to do about conflicts.
//!
//! Used by `task.rs` beside the client. The netstack tests, announces and defends (RFC 5227, which RFC 3927 §2 became);
//! this state machine chooses. It sends nothing and knows no clock. We differ from §2.2.1 in the times of the test, which
//! are those of the netstack for every address.

use core::net::Ipv4Addr;
use core::time::Duration;

use firelane_units::{Instant, IpPrefix, MacAddr};

use crate::random::Random;
use crate::v4::Phase;

/// The first address that may be chosen, and how many there are (§2.1): the first and the last 256 are reserved.
const FIRST: u32 = 0xa9fe_0100;
const COUNT: u64 = 0xfe00;
/// How much of it is the subnet's.
const PREFIX_LEN: u8 = 16;
/// How long a client looks for a server first: several questions without an answer.
const GRACE: Duration = Duration::from_secs(10);
/// §9: MAX_CONFLICTS and RATE_LIMIT_INTERVAL.
const CONFLICTS_MAX: u32 = 10;
const CONFLICTS_WAIT: Duration = Duration::from_secs(60);

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Give the interface this address and say how its test ended.
    Try(IpPrefix),
    /// Take it away.
    Drop(IpPrefix),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Off,
    Waiting(Instant),
    Trying(Ipv4Addr),
    InUse(Ipv4Addr),
}

/// The choice of one interface.
#[derive(Debug)]
pub struct LinkLocal {
    state: State,
    random: Random,
    /// What comes next: the last one that was in use, so that a host keeps its address (§2.1).
    next: Ipv4Addr,
    conflicts: u32,
    dropped: Option<Ipv4Addr>,
}

impl LinkLocal {
    /// Nothing yet. The addresses follow from the interface's own, so that they are the same after a restart.
    pub fn new(mac: MacAddr) -> Self {
        let seed = mac.0.iter().fold(0, |seed, byte| seed << 8 | u64::from(*byte));
        let mut random = Random::new(seed);
        let next = draw(&mut random);
        Self { state: State::Off, random, next, conflicts: 0, dropped: None }
    }

    /// The address in use.
    pub const fn in_use(&self) -> Option<Ipv4Addr> {
        match self.state {
            State::InUse(addr) => Some(addr),
            _ => None,
        }
    }

    /// Whether there is no other address: then one is chosen after a while, and dropped when there is (§1.9).
    pub fn set_wanted(&mut self, now: Instant, wanted: bool) {
        match (self.state, wanted) {
            (State::Off, true) => self.state = State::Waiting(now + GRACE),
            (State::Off, false) | (_, true) => {}
            (state, false) => {
                if let State::Trying(addr) | State::InUse(addr) = state {
                    self.dropped = Some(addr);
                }
                self.state = State::Off;
            }
        }
    }

    /// The same, by where the client of the interface stands.
    pub fn follow(&mut self, now: Instant, phase: Phase) {
        match phase {
            Phase::Bound | Phase::Renewing | Phase::Rebinding | Phase::Released => {
                self.set_wanted(now, false)
            }
            // Until its test is over nobody knows whether the leased address can be used.
            Phase::Testing => {}
            Phase::Init | Phase::Selecting | Phase::Requesting | Phase::Rebooting => {
                self.set_wanted(now, true)
            }
        }
    }

    /// When [`poll`](Self::poll) has something.
    pub const fn poll_at(&self) -> Option<Instant> {
        match (self.dropped, self.state) {
            (Some(_), _) => Some(Instant::ZERO),
            (None, State::Waiting(at)) => Some(at),
            (None, _) => None,
        }
    }

    /// The next step.
    pub fn poll(&mut self, now: Instant) -> Option<Step> {
        if let Some(addr) = self.dropped.take() {
            return Some(Step::Drop(prefix(addr)));
        }
        match self.state {
            State::Waiting(at) if at <= now => {
                self.state = State::Trying(self.next);
                Some(Step::Try(prefix(self.next)))
            }
            _ => None,
        }
    }

    /// How the test of an address ended, or that it could not be defended (§2.5).
    pub fn on_tested(&mut self, now: Instant, addr: Ipv4Addr, is_free: bool) {
        match self.state {
            State::Trying(own) if own == addr && is_free => {
                self.state = State::InUse(own);
                self.conflicts = 0;
            }
            State::Trying(own) | State::InUse(own) if own == addr && !is_free => {
                self.dropped = Some(own);
                self.next = draw(&mut self.random);
                self.conflicts += 1;
                // §2.2.1: whoever claims everything shall not be asked all the time.
                let wait = if self.conflicts > CONFLICTS_MAX { CONFLICTS_WAIT } else { Duration::ZERO };
                self.state = State::Waiting(now + wait);
            }
            _ => {}
        }
    }
}

fn draw(random: &mut Random) -> Ipv4Addr {
    let offset = (u128::from(random.draw()) * u128::from(COUNT)) >> 64;
    Ipv4Addr::from_bits(FIRST + offset as u32)
}

fn prefix(addr: Ipv4Addr) -> IpPrefix {
    IpPrefix::new(addr.into(), PREFIX_LEN).expect("sixteen bits are a prefix of IPv4")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: MacAddr = MacAddr([2, 8, 32, 1, 2, 3]);

    fn addr_of(prefix: IpPrefix) -> Ipv4Addr {
        match prefix.addr() {
            core::net::IpAddr::V4(addr) => addr,
            core::net::IpAddr::V6(_) => panic!("it is IPv4"),
        }
    }

    /// Lets time pass until an address is tried: which, and how long it took.
    fn tried(own: &mut LinkLocal, now: &mut Instant) -> (Ipv4Addr, Duration) {
        let begun = *now;
        loop {
            match own.poll(*now) {
                Some(Step::Try(prefix)) => return (addr_of(prefix), now.saturating_since(begun)),
                Some(Step::Drop(_)) => {}
                None => *now = own.poll_at().expect("it is wanted").max(*now),
            }
        }
    }

    #[test]
    fn after_a_while_without_a_server_an_address_is_used_until_there_is_one() {
        let (mut own, mut now) = (LinkLocal::new(MAC), Instant::from_secs(1));
        assert_eq!((own.poll_at(), own.poll(now)), (None, None));
        own.set_wanted(now, true);
        let (addr, waited) = tried(&mut own, &mut now);
        assert_eq!((waited, own.in_use()), (GRACE, None));
        own.on_tested(now, Ipv4Addr::new(169, 254, 1, 0), true);
        assert!(own.in_use().is_none() || addr == Ipv4Addr::new(169, 254, 1, 0), "that was another address");
        own.on_tested(now, addr, true);
        assert_eq!((own.in_use(), own.poll_at()), (Some(addr), None));
        own.set_wanted(now, false);
        assert_eq!((own.poll(now), own.in_use()), (Some(Step::Drop(prefix(addr))), None));
        assert_eq!((own.poll(now), own.poll_at()), (None, None));
        // The same again, and by the next start too.
        own.set_wanted(now, true);
        assert_eq!(tried(&mut own, &mut now).0, addr);
        let mut later = LinkLocal::new(MAC);
        later.set_wanted(now, true);
        assert_eq!(tried(&mut later, &mut now).0, addr);
        let mut other = LinkLocal::new(MacAddr([2, 8, 32, 1, 2, 4]));
        other.set_wanted(now, true);
        assert_ne!(tried(&mut other, &mut now).0, addr);
    }

    #[test]
    fn conflicts_bring_other_addresses_at_once_and_after_ten_once_a_minute() {
        let (mut own, mut now) = (LinkLocal::new(MAC), Instant::from_secs(1));
        own.set_wanted(now, true);
        let mut seen = Vec::new();
        for n in 0..14 {
            let (addr, waited) = tried(&mut own, &mut now);
            let expected = [GRACE, Duration::ZERO, CONFLICTS_WAIT][usize::from(n > 0) + usize::from(n > 10)];
            assert_eq!(waited, expected, "{n}");
            assert!(!seen.contains(&addr));
            seen.push(addr);
            own.on_tested(now, addr, false);
        }
        // One that is free forgives the others.
        let (addr, _) = tried(&mut own, &mut now);
        own.on_tested(now, addr, true);
        own.on_tested(now, addr, false);
        assert_eq!(own.in_use(), None, "it could not be defended");
        assert_eq!(tried(&mut own, &mut now).1, Duration::ZERO);
    }

    proptest! {
        #[test]
        fn what_is_chosen_is_never_reserved_and_one_at_a_time(
            mac: [u8; 6], events in prop::collection::vec((0_u8..4, 0_u64..30), 0..80)
        ) {
            let (mut own, mut now) = (LinkLocal::new(MacAddr(mac)), Instant::from_secs(1));
            let mut given = None;
            for (event, seconds) in events {
                match event {
                    0 => own.set_wanted(now, true),
                    1 => own.set_wanted(now, false),
                    2 => if let Some(addr) = given { own.on_tested(now, addr, seconds % 3 == 0) },
                    _ => now += Duration::from_secs(seconds),
                }
                while let Some(step) = own.poll(now) {
                    match step {
                        Step::Try(it) => {
                            let octets = addr_of(it).octets();
                            prop_assert!(octets[..2] == [169, 254] && (1..=254).contains(&octets[2]));
                            prop_assert_eq!(given.replace(addr_of(it)), None);
                        }
                        Step::Drop(it) => prop_assert_eq!(given.take(), Some(addr_of(it))),
                    }
                }
                prop_assert!(own.in_use().is_none() || own.in_use() == given);
            }
        }
    }
}
