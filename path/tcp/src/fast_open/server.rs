//! Fast Open at a listener: cookies, and how many SYNs with text may wait for the end of their handshakes
//! (RFC 7413 §4.1.2, §4.2.2, §5.1).
//!
//! A cookie is a keyed hash of the two addresses and of the half day in which it was made, so nothing is kept per client,
//! every lane of a netstack makes the same ones, and one is good for half a day at least and a day at most. What bounds
//! the work that a stolen cookie can cause is the listener's limit: a Fast Open counts from its SYN until the peer's ACK
//! shows that the address is real; one that ends with a RST counts for a minute longer, because that is how a SYN
//! with a forged address ends. Beyond the limit a SYN is answered as if it carried nothing. Asked by the lane for each
//! SYN that a listener gets; beside `syn.rs`, which answers those.

use core::hash::Hasher;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use firelane_units::{Instant, SocketId};
use firelane_wire::FastOpen;
use siphasher::sip::SipHasher24;

use super::{FastOpenCounters, FastOpenPolicy};
use crate::segment::SegmentIn;
use crate::tuple::Tuple;

/// How long one kind of cookie is made. RFC 7413 §4.1.2 asks for expiry and leaves the time open.
const PERIOD_SECS: u64 = 12 * 3600;
/// How long one that was reset counts against its listener's limit (RFC 7413 §5.1; Linux: 60 s).
const RESET_COUNTS_FOR: Duration = Duration::from_secs(60);

/// What a listener does with a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastOpenAnswer {
    /// As with any other SYN.
    Ordinary,
    /// The same, and the SYN-ACK brings this cookie.
    Grant(FastOpen),
    /// Its connection begins at once, text included; the SYN-ACK brings this cookie if the peer's is about to end.
    Accept(Option<FastOpen>),
}

/// Fast Opens of one listener that are not over.
#[derive(Clone, Debug, Default)]
struct Waiting {
    open: u32,
    /// Until when those count that were reset, in order.
    reset: VecDeque<Instant>,
}

/// The server's side of a netstack, in one lane.
pub struct FastOpenServer {
    key: [u8; 16],
    counters: FastOpenCounters,
    /// Those that have accepted any.
    listeners: BTreeMap<SocketId, Waiting>,
}

impl core::fmt::Debug for FastOpenServer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FastOpenServer").field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl FastOpenServer {
    /// Cookies are made with the secret `key`.
    pub fn new(key: [u8; 16]) -> Self {
        Self { key, counters: FastOpenCounters::default(), listeners: BTreeMap::new() }
    }

    /// What it has counted.
    pub fn counters(&self) -> FastOpenCounters {
        self.counters
    }

    /// A SYN for `listener`, which lets `limit` Fast Opens wait (zero if it takes none). One that is accepted counts
    /// from here on, until [`FastOpenServer::on_end`].
    pub fn on_syn(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        (listener, limit): (SocketId, u32),
        policy: FastOpenPolicy,
        seg: &SegmentIn<'_>,
    ) -> FastOpenAnswer {
        if limit == 0 || !policy.allows(FastOpenPolicy::SERVER) {
            return FastOpenAnswer::Ordinary;
        }
        let trusts = !seg.payload.is_empty() && policy.allows(FastOpenPolicy::SERVER_WITHOUT_COOKIE);
        let renewed = match seg.options.fast_open() {
            _ if trusts => None,
            None => return FastOpenAnswer::Ordinary,
            Some(option) if option.is_request() => {
                self.counters.asked += 1;
                return FastOpenAnswer::Grant(self.cookie(now, tuple, 0));
            }
            Some(cookie) if cookie == self.cookie(now, tuple, 0) => None,
            Some(cookie) if cookie == self.cookie(now, tuple, 1) => Some(self.cookie(now, tuple, 0)),
            Some(_) => {
                self.counters.passive_failed += 1;
                return FastOpenAnswer::Grant(self.cookie(now, tuple, 0));
            }
        };
        let waiting = self.listeners.entry(listener).or_default();
        while waiting.reset.front().is_some_and(|&until| until <= now) {
            waiting.reset.pop_front();
        }
        if waiting.open as usize + waiting.reset.len() >= limit as usize {
            self.counters.overflowed += 1;
            return FastOpenAnswer::Ordinary;
        }
        waiting.open += 1;
        self.counters.passive += 1;
        self.counters.passive_old += u64::from(renewed.is_some());
        FastOpenAnswer::Accept(renewed)
    }

    /// One that was accepted is over: its handshake is, or its connection, by a RST or otherwise.
    pub fn on_end(&mut self, now: Instant, listener: SocketId, by_reset: bool) {
        let Some(waiting) = self.listeners.get_mut(&listener) else { return };
        waiting.open = waiting.open.saturating_sub(1);
        if by_reset {
            waiting.reset.push_back(now + RESET_COUNTS_FOR);
        }
    }

    /// How many of a listener are not over.
    pub fn waiting(&self, listener: SocketId) -> u32 {
        self.listeners.get(&listener).map_or(0, |waiting| waiting.open)
    }

    /// The listener is gone.
    pub fn forget_listener(&mut self, listener: SocketId) {
        self.listeners.remove(&listener);
    }

    /// The cookie of the two addresses, as it was made `ago` periods ago.
    fn cookie(&self, now: Instant, tuple: &Tuple, ago: u64) -> FastOpen {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        let ([local, remote], _) = tuple.parts();
        hasher.write(&local);
        hasher.write(&remote);
        hasher.write_u64((now.millis() / 1000 / PERIOD_SECS).wrapping_sub(ago));
        FastOpen::new(&hasher.finish().to_be_bytes()).expect("eight bytes are a cookie")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::SeqNum;
    use firelane_wire::{Ecn, TcpFlags, TcpOptions};
    use proptest::prelude::*;

    const SERVES: FastOpenPolicy = FastOpenPolicy::SERVER;
    const LISTENER: SocketId = SocketId(3);

    fn tuple(client: u8, port: u16) -> Tuple {
        Tuple::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, client], port).into())
    }

    fn syn(fast_open: Option<FastOpen>, payload: &[u8]) -> SegmentIn<'_> {
        SegmentIn {
            seq: SeqNum(7),
            ack: None,
            flags: TcpFlags::SYN,
            window: 1000,
            urgent: 0,
            options: fast_open.map_or(TcpOptions::EMPTY, |it| TcpOptions::EMPTY.with_fast_open(it)),
            payload,
            ecn: Ecn::NotCapable,
        }
    }

    fn server() -> FastOpenServer {
        FastOpenServer::new([9; 16])
    }

    /// The cookie that a client gets who asks.
    fn granted(server: &mut FastOpenServer, now: Instant, tuple: &Tuple) -> FastOpen {
        match server.on_syn(now, tuple, (LISTENER, 5), SERVES, &syn(Some(FastOpen::REQUEST), &[])) {
            FastOpenAnswer::Grant(cookie) => cookie,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_cookie_is_good_for_its_addresses_at_any_port() {
        let (mut server, now) = (server(), Instant::from_secs(1000));
        let cookie = granted(&mut server, now, &tuple(2, 4000));
        let with = syn(Some(cookie), b"text");
        let mut ask = |tuple: Tuple, policy| server.on_syn(now, &tuple, (LISTENER, 5), policy, &with);
        assert_eq!(ask(tuple(2, 4001), SERVES), FastOpenAnswer::Accept(None));
        assert!(matches!(ask(tuple(3, 4000), SERVES), FastOpenAnswer::Grant(other) if other != cookie));
        assert_eq!(ask(tuple(2, 4000), FastOpenPolicy::CLIENT), FastOpenAnswer::Ordinary);
        let counters = server.counters();
        assert_eq!((counters.asked, counters.passive, counters.passive_failed), (1, 1, 1));
    }

    #[test]
    fn a_cookie_of_the_period_before_is_renewed_and_an_older_one_is_none() {
        let (mut server, tuple) = (server(), tuple(2, 4000));
        let period = Duration::from_secs(PERIOD_SECS);
        let now = Instant::ZERO + period * 10;
        let cookie = granted(&mut server, now, &tuple);
        let mut ask = |now| server.on_syn(now, &tuple, (LISTENER, 5), SERVES, &syn(Some(cookie), b"text"));
        assert_eq!(ask(now + period - Duration::from_secs(1)), FastOpenAnswer::Accept(None));
        let FastOpenAnswer::Accept(Some(renewed)) = ask(now + period) else { panic!("renewed") };
        assert_eq!(ask(now + period * 2), FastOpenAnswer::Grant(server.cookie(now + period * 2, &tuple, 0)));
        assert_eq!(renewed, server.cookie(now + period, &tuple, 0));
        assert_eq!(server.counters().passive_old, 1);
    }

    #[test]
    fn without_cookies_if_the_administrator_trusts_everybody() {
        let (mut server, now, policy) = (server(), Instant::from_secs(1), FastOpenPolicy::new(0x202));
        let mut ask = |seg| server.on_syn(now, &tuple(2, 4000), (LISTENER, 5), policy, &seg);
        assert_eq!(ask(syn(None, b"text")), FastOpenAnswer::Accept(None));
        assert_eq!(ask(syn(None, &[])), FastOpenAnswer::Ordinary);
        assert!(matches!(ask(syn(Some(FastOpen::REQUEST), &[])), FastOpenAnswer::Grant(_)));
    }

    /// RFC 7413 §5.1: what waits is bounded, and a RST frees nothing for a minute.
    #[test]
    fn a_replayed_syn_is_bounded_by_the_listeners_limit() {
        let (mut server, now) = (server(), Instant::from_secs(1000));
        let cookie = granted(&mut server, now, &tuple(2, 1));
        let stolen = syn(Some(cookie), b"text");
        let accepted = |server: &mut FastOpenServer, now| {
            let ask = |port| server.on_syn(now, &tuple(2, port), (LISTENER, 5), SERVES, &stolen);
            (0..100).map(ask).filter(|answer| *answer == FastOpenAnswer::Accept(None)).count()
        };
        assert_eq!(accepted(&mut server, now), 5);
        server.on_end(now, LISTENER, false);
        assert_eq!(accepted(&mut server, now), 1, "a handshake that ended well makes room");
        (0..5).for_each(|_| server.on_end(now, LISTENER, true));
        assert_eq!(server.waiting(LISTENER), 0);
        assert_eq!(accepted(&mut server, now + Duration::from_secs(59)), 0);
        assert_eq!(accepted(&mut server, now + Duration::from_secs(60)), 5);
        server.forget_listener(LISTENER);
        assert_eq!(accepted(&mut server, now), 5);
    }

    proptest! {
        /// Whoever did not get a cookie for his own address has to guess all of its 64 bits.
        #[test]
        fn a_guessed_cookie_is_none(bytes in proptest::collection::vec(any::<u8>(), 4..=16), client: u8) {
            let (mut server, now) = (server(), Instant::from_secs(1000));
            let guess = FastOpen::new(&bytes[..bytes.len() & !1]).unwrap();
            let tuple = tuple(client, 4000);
            let right = granted(&mut server, now, &tuple);
            let answer = server.on_syn(now, &tuple, (LISTENER, 5), SERVES, &syn(Some(guess), b"text"));
            prop_assert_eq!(answer == FastOpenAnswer::Accept(None), guess == right);
            let flipped = guess.as_slice().iter().enumerate().map(|(n, byte)| byte ^ u8::from(n == 0));
            prop_assert_ne!(FastOpen::new(&flipped.collect::<Vec<_>>()), Some(guess));
        }

        /// Accepted and ended in any order: what waits never exceeds the limit.
        #[test]
        fn the_limit_holds(steps in proptest::collection::vec((0u8..3, 0u64..40), 0..200), limit in 1u32..6) {
            let mut server = server();
            let (mut now, mut open) = (Instant::from_secs(1000), 0);
            for (step, seconds) in steps {
                now += Duration::from_secs(seconds);
                let cookie = server.cookie(now, &tuple(2, 1), 0);
                match step {
                    0 => {
                        let asked = (LISTENER, limit);
                        let answer = server.on_syn(now, &tuple(2, 1), asked, SERVES, &syn(Some(cookie), b"x"));
                        open += u32::from(answer == FastOpenAnswer::Accept(None));
                    }
                    step if open > 0 => {
                        server.on_end(now, LISTENER, step == 1);
                        open -= 1;
                    }
                    _ => {}
                }
                prop_assert!(open <= limit);
                prop_assert_eq!(server.waiting(LISTENER), open);
            }
        }
    }
}
