//! What a client remembers of servers: their cookies, and with whom Fast Open does not work (RFC 7413 §4.1.3).
//!
//! One entry per pair of addresses and server's port, as the RFC asks: whether a port takes part is known apart
//! from the cookie. There is room for [`SETS`] times [`WAYS`] of them, found by a keyed hash; the one of a set that
//! was used longest ago gives way. A SYN that was lost or brought an ICMP error alone, or whose text was refused, makes the
//! next ones ordinary for two minutes, then four, up to a day. If text vanishes behind a handshake that went well, something on the way
//! cannot bear Fast Open at all, and for an hour, then two, up to three days, nobody uses it (Linux:
//! `tcp_fastopen_blackhole_timeout_sec`). Asked by the lane for each connect that wants it.

use core::net::SocketAddr;
use core::time::Duration;

use firelane_units::{Instant, Mss};
use firelane_wire::FastOpen;

use super::opening::{FastOpenOffer, FastOpenReport};
use super::{FastOpenCounters, FastOpenPolicy};
use crate::tuple::{KeyedHash, Tuple};

/// How many sets of entries there are; a power of two.
const SETS: usize = 256;
/// How many entries a set has.
const WAYS: usize = 4;
/// For how long the first failure counts. Linux waits a minute, and twice as long for each that follows.
const PAUSE: Duration = Duration::from_secs(120);
/// How often that doubles: to little more than a day.
const DOUBLINGS_MAX: u8 = 10;
/// For how long the first black hole counts, for everybody.
const BLACK_HOLE: Duration = Duration::from_secs(3600);
/// How often that doubles.
const BLACK_HOLE_DOUBLINGS_MAX: u8 = 6;

/// What is known of one server at one port.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The two ends, ours without its port.
    whose: Tuple,
    cookie: Option<FastOpen>,
    /// The MSS that it announced last.
    mss: Mss,
    /// How often in a row it went wrong, and until when it is not tried again.
    failures: u8,
    until: Instant,
    used_at: Instant,
}

/// What one lane has learned of a server, for the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastOpenNews {
    /// The two ends, of which our port means nothing.
    pub whose: Tuple,
    /// What the handshake brought.
    pub report: FastOpenReport,
}

/// The client's side of a netstack, in one lane.
#[derive(Debug)]
pub struct FastOpenCache {
    hash: KeyedHash,
    counters: FastOpenCounters,
    /// Allocated when the first server is learned.
    entries: Vec<Option<Entry>>,
    /// How often text has vanished since it last did not, and until when nobody tries.
    black_holes: u8,
    paused_until: Instant,
}

impl FastOpenCache {
    /// An empty cache, hashed with the secret `key`.
    pub fn new(key: [u8; 16]) -> Self {
        Self {
            hash: KeyedHash::new(key),
            counters: FastOpenCounters::default(),
            entries: Vec::new(),
            black_holes: 0,
            paused_until: Instant::ZERO,
        }
    }

    /// What it has counted.
    pub fn counters(&self) -> FastOpenCounters {
        self.counters
    }

    /// What the SYN of a connect that wants Fast Open carries; `None` if it is an ordinary one. Of a server that is not
    /// known, `default` is what segments it is taken to bear.
    pub fn offer(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        policy: FastOpenPolicy,
        default: Mss,
    ) -> Option<FastOpenOffer> {
        if !policy.allows(FastOpenPolicy::CLIENT) || now < self.paused_until {
            return None;
        }
        let trusted = policy.allows(FastOpenPolicy::CLIENT_WITHOUT_COOKIE);
        let asking =
            FastOpenOffer { option: (!trusted).then_some(FastOpen::REQUEST), text: trusted, mss: default };
        let Some(entry) = self.find(&key(tuple)) else { return Some(asking) };
        entry.used_at = now;
        if now < entry.until {
            return None;
        }
        let mss = entry.mss;
        Some(entry.cookie.map_or(FastOpenOffer { mss, ..asking }, |cookie| FastOpenOffer {
            option: Some(cookie),
            text: true,
            mss,
        }))
    }

    /// A handshake is over that began with an offer. Answers what the other lanes should know.
    pub fn learn(&mut self, now: Instant, tuple: &Tuple, report: FastOpenReport) -> Option<FastOpenNews> {
        match report {
            FastOpenReport::Refused { .. } | FastOpenReport::Lost => self.counters.active_failed += 1,
            FastOpenReport::Taken { .. } => self.counters.active += 1,
            FastOpenReport::Answered { .. } => {}
        }
        let whose = key(tuple);
        self.note(now, &FastOpenNews { whose, report }).then_some(FastOpenNews { whose, report })
    }

    /// Learns what this lane or another one has heard; says whether it was new.
    pub fn note(&mut self, now: Instant, news: &FastOpenNews) -> bool {
        let FastOpenNews { whose, report } = *news;
        let heard = match report {
            FastOpenReport::Answered { cookie, mss }
            | FastOpenReport::Taken { cookie, mss }
            | FastOpenReport::Refused { cookie, mss } => Some((cookie, mss)),
            FastOpenReport::Lost => None,
        };
        let entry = self.entry(now, whose, heard.map_or(Mss::DEFAULT_V4, |(_, mss)| mss));
        let before = (entry.cookie, entry.mss, entry.failures);
        entry.used_at = now;
        if let Some((cookie, mss)) = heard {
            // One that is not mentioned stays good (RFC 7413 §4.1.3).
            entry.cookie = cookie.or(entry.cookie);
            entry.mss = mss;
        }
        match report {
            // A new cookie says why the text was refused: the old one was not good any more.
            FastOpenReport::Refused { cookie: None, .. } | FastOpenReport::Lost => entry.fail(now),
            FastOpenReport::Taken { .. } => entry.failures = 0,
            FastOpenReport::Answered { .. } | FastOpenReport::Refused { .. } => {}
        }
        before != (entry.cookie, entry.mss, entry.failures)
    }

    /// Text vanished behind a handshake that went well.
    pub fn on_black_hole(&mut self, now: Instant) {
        self.counters.black_holes += 1;
        self.paused_until = now + BLACK_HOLE * (1 << self.black_holes);
        self.black_holes = (self.black_holes + 1).min(BLACK_HOLE_DOUBLINGS_MAX);
    }

    /// A connection that began with text in its SYN has brought an answer.
    pub fn on_success(&mut self) {
        self.black_holes = 0;
    }

    /// The set of a server.
    fn set(&mut self, whose: &Tuple) -> &mut [Option<Entry>] {
        let set = self.hash.of(whose) as usize % SETS;
        self.entries.get_mut(set * WAYS..(set + 1) * WAYS).unwrap_or_default()
    }

    fn find(&mut self, whose: &Tuple) -> Option<&mut Entry> {
        self.set(whose).iter_mut().flatten().find(|entry| entry.whose == *whose)
    }

    /// The entry of a server, made in the place of the one that was used longest ago if it is not known.
    fn entry(&mut self, now: Instant, whose: Tuple, mss: Mss) -> &mut Entry {
        if self.entries.is_empty() {
            self.entries = vec![None; SETS * WAYS];
        }
        let new = Entry { whose, cookie: None, mss, failures: 0, until: Instant::ZERO, used_at: now };
        let age = |place: &Option<Entry>| match place {
            Some(entry) if entry.whose == whose => (0, Instant::ZERO),
            Some(entry) => (2, entry.used_at),
            None => (1, Instant::ZERO),
        };
        let place = self.set(&whose).iter_mut().min_by_key(|place| age(place)).expect("a set has places");
        if place.as_ref().is_none_or(|entry| entry.whose != whose) {
            *place = Some(new);
        }
        place.as_mut().expect("it was filled just above")
    }
}

impl Entry {
    fn fail(&mut self, now: Instant) {
        self.until = now + PAUSE * (1 << self.failures.min(DOUBLINGS_MAX));
        self.failures = self.failures.saturating_add(1);
    }
}

/// The two ends without our port, which cookies do not depend on.
fn key(tuple: &Tuple) -> Tuple {
    Tuple::new(SocketAddr::new(tuple.local().ip(), 0), tuple.remote())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLIENT: FastOpenPolicy = FastOpenPolicy::CLIENT;
    const DEFAULT: Mss = Mss::DEFAULT_V4;

    fn tuple(server: u16, port: u16) -> Tuple {
        let [high, low] = server.to_be_bytes();
        Tuple::new(([10, 0, 0, 1], 4000).into(), ([10, 1, high, low], port).into())
    }

    fn cookie(n: u16) -> FastOpen {
        FastOpen::new(&[n.to_be_bytes(); 4].concat()).unwrap()
    }

    fn taken(n: u16) -> FastOpenReport {
        FastOpenReport::Taken { cookie: Some(cookie(n)), mss: Mss::clamped(1400) }
    }

    #[test]
    fn who_is_not_known_is_asked_and_who_has_answered_gets_text() {
        let (mut cache, now) = (FastOpenCache::new([1; 16]), Instant::from_secs(10));
        let asking = FastOpenOffer { option: Some(FastOpen::REQUEST), text: false, mss: DEFAULT };
        assert_eq!(cache.offer(now, &tuple(1, 80), CLIENT, DEFAULT), Some(asking));
        let mss = Mss::clamped(1400);
        let answered = FastOpenReport::Answered { cookie: Some(cookie(1)), mss };
        let news = cache.learn(now, &tuple(1, 80), answered).unwrap();
        let offer = Some(FastOpenOffer { option: Some(cookie(1)), text: true, mss });
        assert_eq!(cache.offer(now, &tuple(1, 80), CLIENT, DEFAULT), offer);
        assert_eq!(cache.offer(now, &tuple(1, 81), CLIENT, DEFAULT), Some(asking), "another port");
        assert_eq!(cache.learn(now, &tuple(1, 80), answered), None, "nothing new");
        let mut other = FastOpenCache::new([2; 16]);
        assert!(other.note(now, &news));
        assert_eq!(other.offer(now, &tuple(1, 80), CLIENT, DEFAULT), offer, "another lane");
        assert_eq!(cache.offer(now, &tuple(1, 80), FastOpenPolicy::SERVER, DEFAULT), None);
        let trusting = FastOpenOffer { option: None, text: true, mss: DEFAULT };
        assert_eq!(cache.offer(now, &tuple(2, 80), FastOpenPolicy::new(5), DEFAULT), Some(trusting));
    }

    #[test]
    fn failures_make_it_wait_longer_each_time() {
        let (mut cache, mut now) = (FastOpenCache::new([1; 16]), Instant::from_secs(10));
        cache.learn(now, &tuple(1, 80), taken(1));
        for minutes in [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 2048] {
            cache.learn(now, &tuple(1, 80), FastOpenReport::Lost);
            let span = Duration::from_secs(minutes * 60);
            assert_eq!(
                cache.offer(now + span - Duration::from_millis(1), &tuple(1, 80), CLIENT, DEFAULT),
                None
            );
            assert!(cache.offer(now + span, &tuple(1, 80), CLIENT, DEFAULT).is_some(), "{minutes}");
            now += span;
        }
        cache.learn(now, &tuple(1, 80), taken(1));
        cache.learn(now, &tuple(1, 80), FastOpenReport::Lost);
        assert!(
            cache.offer(now + PAUSE, &tuple(1, 80), CLIENT, DEFAULT).is_some(),
            "it went well in between"
        );
        let mss = Mss::clamped(1400);
        now += PAUSE;
        cache.learn(now, &tuple(1, 80), FastOpenReport::Refused { cookie: Some(cookie(2)), mss });
        let offer = Some(FastOpenOffer { option: Some(cookie(2)), text: true, mss });
        assert_eq!(cache.offer(now, &tuple(1, 80), CLIENT, DEFAULT), offer, "only the cookie was old");
        cache.learn(now, &tuple(1, 80), FastOpenReport::Refused { cookie: None, mss });
        assert_eq!(cache.offer(now, &tuple(1, 80), CLIENT, DEFAULT), None, "it takes no text");
    }

    #[test]
    fn a_black_hole_is_everybodys() {
        let (mut cache, now) = (FastOpenCache::new([1; 16]), Instant::from_secs(10));
        let hours = |n: u64| Duration::from_secs(n * 3600);
        for n in [1, 2, 4, 8, 16, 32, 64, 64] {
            cache.on_black_hole(now);
            let before = now + hours(n) - Duration::from_millis(1);
            assert_eq!(cache.offer(before, &tuple(7, 80), CLIENT, DEFAULT), None);
            assert!(cache.offer(now + hours(n), &tuple(7, 80), CLIENT, DEFAULT).is_some());
        }
        cache.on_success();
        cache.on_black_hole(now);
        assert!(cache.offer(now + hours(1), &tuple(7, 80), CLIENT, DEFAULT).is_some());
    }

    proptest! {
        /// However many servers there are, memory is bounded, and what is remembered is true.
        #[test]
        fn it_is_bounded_and_never_wrong(servers in proptest::collection::vec(any::<u16>(), 1..3000)) {
            let mut cache = FastOpenCache::new([5; 16]);
            for (n, &server) in servers.iter().enumerate() {
                let now = Instant::from_millis(n as u64);
                cache.learn(now, &tuple(server, 80), taken(server));
                let last = cache.offer(now, &tuple(server, 80), CLIENT, DEFAULT);
                prop_assert_eq!(last.and_then(|offer| offer.option), Some(cookie(server)));
            }
            prop_assert_eq!(cache.entries.len(), SETS * WAYS);
            for &server in &servers {
                let option = cache.offer(Instant::ZERO, &tuple(server, 80), CLIENT, DEFAULT).unwrap().option;
                prop_assert!(option == Some(cookie(server)) || option == Some(FastOpen::REQUEST));
            }
        }
    }
}
