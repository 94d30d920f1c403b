//! Who is on the link: one table for ARP and neighbour discovery, with the states of RFC 4861 §7.3.2.
//!
//! Owns entries, their timers, and the frames that wait for an answer. It sends nothing: it says whom to
//! ask ([`Due::Ask`]) and gives frames back; `arp.rs` and `ndp.rs` speak on the wire. Entries, entries
//! without answer and waiting frames are each bounded (RFC 6583): a scan of a subnet cannot push out
//! neighbours that are there.

use core::hash::{Hash, Hasher};
use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use firelane_frame::{Chain, Frame};
use firelane_units::{Instant, LinkId, MacAddr};
use hashbrown::HashMap;

use crate::event::Hearsay;
use crate::random::{Keyed, Random};

/// What is known about a neighbour (RFC 4861 §7.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NeighbourState {
    /// Asked for; no answer yet.
    Incomplete,
    /// Answered, or was heard of by a transport, not long ago.
    Reachable,
    /// Answered some time ago.
    Stale,
    /// Used since it became stale; a transport may still confirm it.
    Delay,
    /// Being asked again.
    Probe,
    /// Does not answer; still sent to by whoever has no other way, and asked ever more rarely (RFC 7048).
    Unreachable,
}

impl NeighbourState {
    /// The word that is shown.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Incomplete => "incomplete",
            Self::Reachable => "reachable",
            Self::Stale => "stale",
            Self::Delay => "delay",
            Self::Probe => "probe",
            Self::Unreachable => "unreachable",
        }
    }
}

/// A neighbour, as it is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// On which link.
    pub link: LinkId,
    /// Who.
    pub ip: IpAddr,
    /// Its Ethernet address, if it is known.
    pub mac: Option<MacAddr>,
    /// What is known about it.
    pub state: NeighbourState,
    /// Frames that wait for its address.
    pub waiting: usize,
}

/// What a packet finds that does not know its next hop's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextHop {
    /// It is known by now.
    Known,
    /// Nobody asks for it: the packet will, and wait.
    Unasked,
    /// It is asked for.
    Asked {
        /// Frames that wait for it.
        waiting: usize,
        /// Frames that may wait besides, before the oldest gives way (RFC 4861 §7.2.2).
        room: usize,
        /// When it is asked again, or given up.
        until: Instant,
    },
}

/// How somebody's address was heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Evidence {
    /// An answer to us. Without `replace` it only confirms.
    Answer { replace: bool },
    /// A statement that nobody asked for.
    Claim { replace: bool },
    /// One that is made to all, of an address that may have moved: it replaces what is known.
    Announcement,
    /// Somebody asks us something, so we shall answer: this alone makes a new entry.
    Question,
    /// Another lane of the netstack heard it.
    Hearsay(Hearsay),
}

/// What came of a piece of evidence.
#[derive(Debug, Default)]
pub(crate) struct Learnt {
    /// An address is another, or one is there that was waited for, or one that did not answer does: cached ways are void.
    pub(crate) changed: bool,
    /// Somebody of whom nothing was known: whoever has a way through him may have a better one.
    pub(crate) is_new: bool,
    /// The other lanes should hear of it.
    pub(crate) is_news: bool,
    /// What they know stays: here nobody is known, and whoever has answered replaces nobody.
    pub(crate) only_confirms: bool,
    /// Frames whose wait is over.
    pub(crate) released: Chain,
}

/// What happened to a frame that has to wait.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    /// The neighbour is to be asked.
    pub(crate) ask: bool,
    /// Frames that wait no more: for them there is no room.
    pub(crate) refused: Chain,
}

/// What time has brought.
#[derive(Debug)]
pub(crate) enum Due {
    /// Ask for the address: everybody, or one whose address is known.
    Ask { link: LinkId, ip: IpAddr, to: Option<MacAddr> },
    /// It does not answer: everybody is asked, and its users look for another way.
    Unreachable { link: LinkId, ip: IpAddr },
    /// The neighbour does not answer; what waited for it comes back. Whether it had an address, to which somebody may still send.
    Failed { link: LinkId, ip: IpAddr, had_address: bool, queue: Chain },
    /// Its users must look again, so that it is asked if it is used.
    Aged,
}

/// How good a gateway is, worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Standing {
    Silent,
    Unknown,
    Answers,
}

/// A place in the table, for confirmation without a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NeighbourId(u32);

/// Entries in all: four thousand stations on a link are many.
const ENTRIES_MAX: usize = 4096;
/// Entries without an answer.
const INCOMPLETE_MAX: usize = 256;
/// Frames that wait for one neighbour: a datagram of 64 KiB in fragments.
const WAITING_MAX: usize = 48;
/// Frames that wait in all.
const HELD_MAX: usize = 1024;
/// Entries that are looked at to make room for a new one; and where none of them is idle. Who has many stations answer for him keeps
/// all of them in use, and has each packet of another one search.
const SEARCH_MAX: usize = 16;
const SEARCH_IN_VAIN_MAX: usize = 16 * SEARCH_MAX;
/// RFC 4861 §10.
const REACHABLE_TIME: Duration = Duration::from_secs(30);
const DELAY_FIRST_PROBE: Duration = Duration::from_secs(5);
const RETRANS_TIMER: Duration = Duration::from_secs(1);
const MAX_PROBES: u8 = 3;
/// RFC 7048 §4: how the time between questions grows.
const BACKOFF_MULTIPLE: u32 = 3;
const MAX_RETRANS_TIMER: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Entry {
    link: LinkId,
    ip: IpAddr,
    mac: MacAddr,
    state: NeighbourState,
    timer: Option<Instant>,
    /// A confirmation moves only this; the timer follows when it fires.
    reachable_until: Instant,
    used: Instant,
    /// When it was asked without an answer.
    asked: Instant,
    probes: u8,
    queue: Chain,
}

/// Whose entry it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Station(LinkId, IpAddr);

impl Hash for Station {
    /// In one piece: asked for each new flow, and pieces cost more than what is in them.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self(link, ip) = self;
        let mut bytes = [0; 21];
        bytes[..4].copy_from_slice(&link.0.to_ne_bytes());
        match ip {
            IpAddr::V4(v4) => bytes[4..8].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => bytes[5..].copy_from_slice(&v6.octets()),
        }
        state.write(&bytes);
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Neighbours {
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    map: HashMap<Station, u32, Keyed>,
    agenda: BTreeSet<(Instant, u32)>,
    /// Entries without an answer, oldest first.
    incomplete: VecDeque<u32>,
    held: usize,
    /// Where the search for an entry to give up goes on.
    hand: usize,
    reachable_time: Duration,
    /// What routers have said, for IPv6 on their links: how long a neighbour is reachable, and the time between
    /// questions.
    timers: Vec<(LinkId, Duration, Duration)>,
}

impl Neighbours {
    pub(crate) fn new(keyed: Keyed, random: &mut Random) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            map: HashMap::with_hasher(keyed),
            agenda: BTreeSet::new(),
            incomplete: VecDeque::new(),
            held: 0,
            hand: 0,
            // RFC 4861 §6.3.2: spread, so that hosts do not ask all at once.
            reachable_time: random.around(REACHABLE_TIME),
            timers: Vec::new(),
        }
    }

    /// A router has said how neighbours are asked on its link.
    pub(crate) fn set_timers(&mut self, link: LinkId, reachable: Duration, retransmit: Duration) {
        self.timers.retain(|(other, ..)| *other != link);
        self.timers.push((link, reachable, retransmit));
    }

    fn timers(&self, link: LinkId, ip: IpAddr) -> (Duration, Duration) {
        let said = self.timers.iter().find(|(other, ..)| *other == link && ip.is_ipv6());
        said.map_or((self.reachable_time, RETRANS_TIMER), |&(_, reachable, retransmit)| {
            (reachable, retransmit)
        })
    }

    /// How good a gateway is as far as this table knows (RFC 4861 §6.3.6): one that answers, one that is not
    /// known, one that does not answer.
    pub(crate) fn standing(&self, link: LinkId, ip: IpAddr) -> Standing {
        let entry = self.map.get(&Station(link, ip)).and_then(|&slot| self.slots[slot as usize].as_ref());
        match entry.map(|entry| (entry.state, entry.probes)) {
            Some((NeighbourState::Unreachable, _)) => Standing::Silent,
            Some((NeighbourState::Incomplete, probes)) if probes > 1 => Standing::Silent,
            Some((NeighbourState::Incomplete, _)) | None => Standing::Unknown,
            Some(_) => Standing::Answers,
        }
    }

    /// Whether a neighbour is known to be at `mac`; at any address if none is named.
    pub(crate) fn is_at(&self, link: LinkId, ip: IpAddr, mac: Option<MacAddr>) -> bool {
        let entry = self.map.get(&Station(link, ip)).and_then(|&slot| self.slots[slot as usize].as_ref());
        let known = entry.filter(|entry| entry.state != NeighbourState::Incomplete);
        known.is_some_and(|entry| mac.is_none_or(|mac| mac == entry.mac))
    }

    /// The address to send to, if it is known.
    pub(crate) fn resolve(
        &mut self,
        now: Instant,
        link: LinkId,
        ip: IpAddr,
    ) -> Option<(NeighbourId, MacAddr)> {
        let slot = *self.map.get(&Station(link, ip))?;
        self.use_slot(now, slot)
    }

    /// The same of one whose place is known, if it is still there.
    pub(crate) fn resolve_again(
        &mut self,
        now: Instant,
        id: NeighbourId,
        link: LinkId,
        ip: IpAddr,
    ) -> Option<(NeighbourId, MacAddr)> {
        let entry = self.slots.get(id.0 as usize)?.as_ref()?;
        if (entry.link, entry.ip) == (link, ip) { self.use_slot(now, id.0) } else { None }
    }

    fn use_slot(&mut self, now: Instant, slot: u32) -> Option<(NeighbourId, MacAddr)> {
        let entry = self.entry(slot);
        if entry.state == NeighbourState::Incomplete {
            return None;
        }
        entry.used = now;
        let mac = entry.mac;
        if entry.state == NeighbourState::Stale {
            self.set(slot, NeighbourState::Delay, Some(now + DELAY_FIRST_PROBE));
        }
        Some((NeighbourId(slot), mac))
    }

    /// Lets a frame wait for the answer of a neighbour whose address is not known.
    pub(crate) fn wait(&mut self, now: Instant, link: LinkId, ip: IpAddr, frame: Frame) -> Wait {
        let mut wait = Wait::default();
        let slot = match self.map.get(&Station(link, ip)) {
            Some(&slot) => Some(slot),
            None => self.begin(now, link, ip, &mut wait),
        };
        let Some(slot) = slot.filter(|_| self.held < HELD_MAX) else {
            wait.refused.push(frame);
            return wait;
        };
        self.held += 1;
        let queue = &mut self.entry(slot).queue;
        queue.push(frame);
        // RFC 4861 §7.2.2: the oldest gives way.
        if queue.len() > WAITING_MAX
            && let Some(oldest) = queue.pop()
        {
            wait.refused.push(oldest);
            self.held -= 1;
        }
        wait
    }

    fn begin(&mut self, now: Instant, link: LinkId, ip: IpAddr, wait: &mut Wait) -> Option<u32> {
        if self.incomplete.len() == INCOMPLETE_MAX
            && let Some(&oldest) = self.incomplete.front()
        {
            wait.refused.append(&mut self.remove(oldest).queue);
        }
        let slot = self.create(now, link, ip)?;
        self.incomplete.push_back(slot);
        self.entry(slot).probes = 1;
        let (_, retransmit) = self.timers(link, ip);
        self.set(slot, NeighbourState::Incomplete, Some(now + retransmit));
        wait.ask = true;
        Some(slot)
    }

    /// Somebody's address was heard (RFC 4861 §7.2.3 to §7.2.5; for ARP the same).
    pub(crate) fn learn(
        &mut self,
        now: Instant,
        (link, ip): (LinkId, IpAddr),
        mac: Option<MacAddr>,
        evidence: Evidence,
    ) -> Learnt {
        match (self.map.get(&Station(link, ip)).copied(), mac) {
            (Some(slot), mac) if self.entry(slot).state != NeighbourState::Incomplete => {
                self.update(now, slot, mac, evidence)
            }
            (Some(slot), Some(mac)) => self.complete(now, slot, mac, evidence),
            (None, Some(mac)) if evidence == Evidence::Question => {
                let Some(slot) = self.create(now, link, ip) else { return Learnt::default() };
                self.entry(slot).mac = mac;
                Learnt { is_new: true, is_news: true, ..Learnt::default() }
            }
            // Another lane may have asked: all, or one whose address it knows, and who need not say it then. Or it goes by what
            // is not so any more.
            (_, mac) => {
                let is_told = match evidence {
                    Evidence::Answer { .. } => true,
                    Evidence::Announcement => mac.is_some(),
                    _ => false,
                };
                let only_confirms = evidence == Evidence::Answer { replace: false };
                Learnt { is_news: is_told, only_confirms, ..Learnt::default() }
            }
        }
    }

    fn complete(&mut self, now: Instant, slot: u32, mac: MacAddr, evidence: Evidence) -> Learnt {
        self.incomplete.retain(|&other| other != slot);
        let entry = self.entry(slot);
        entry.mac = mac;
        let mut released = Chain::default();
        released.append(&mut entry.queue);
        self.held -= released.len();
        match evidence {
            Evidence::Answer { .. } => self.set_reachable(now, slot),
            // What waited uses it: it will be asked unless a transport confirms it.
            _ if !released.is_empty() => {
                self.set(slot, NeighbourState::Delay, Some(now + DELAY_FIRST_PROBE));
            }
            _ => self.set(slot, NeighbourState::Stale, None),
        }
        Learnt { changed: true, is_news: true, released, ..Learnt::default() }
    }

    fn update(&mut self, now: Instant, slot: u32, mac: Option<MacAddr>, evidence: Evidence) -> Learnt {
        let entry = self.entry(slot);
        let (state, differs) = (entry.state, mac.is_some_and(|mac| mac != entry.mac));
        let may_replace = match evidence {
            Evidence::Answer { replace } | Evidence::Claim { replace } => replace,
            Evidence::Hearsay(Hearsay::Answer { replace }) => replace,
            Evidence::Announcement | Evidence::Question | Evidence::Hearsay(Hearsay::Claim) => true,
        };
        let is_answer = matches!(evidence, Evidence::Answer { .. });
        if differs && !may_replace {
            if state == NeighbourState::Reachable {
                self.set(slot, NeighbourState::Stale, None);
            }
            return Learnt { changed: state == NeighbourState::Reachable, ..Learnt::default() };
        }
        if let Some(mac) = mac {
            self.entry(slot).mac = mac;
        }
        let was_asked =
            matches!(state, NeighbourState::Delay | NeighbourState::Probe | NeighbourState::Unreachable);
        let is_confirmed = match evidence {
            Evidence::Answer { .. } => was_asked || !differs,
            Evidence::Hearsay(Hearsay::Answer { .. }) => was_asked && !differs,
            Evidence::Claim { .. }
            | Evidence::Announcement
            | Evidence::Question
            | Evidence::Hearsay(Hearsay::Claim) => false,
        };
        if is_confirmed {
            self.set_reachable(now, slot);
        } else if differs {
            self.set(slot, NeighbourState::Stale, None);
        }
        // Who went another way meanwhile looks again.
        let is_back = is_confirmed && state == NeighbourState::Unreachable;
        Learnt { changed: differs || is_back, is_news: is_answer || differs, ..Learnt::default() }
    }

    /// A transport made progress over this neighbour (RFC 4861 §7.3.1).
    #[inline]
    pub(crate) fn confirm(&mut self, now: Instant, id: NeighbourId, mac: MacAddr) {
        let Some(Some(entry)) = self.slots.get(id.0 as usize) else { return };
        if entry.mac != mac {
            return;
        }
        match entry.state {
            NeighbourState::Incomplete => {}
            NeighbourState::Reachable => {
                let until = now + self.timers(entry.link, entry.ip).0;
                self.entry(id.0).reachable_until = until;
            }
            _ => self.set_reachable(now, id.0),
        }
    }

    /// A transport hears nothing from beyond a neighbour: it is asked at once whether it is there, and forgotten if it
    /// does not answer (RFC 1122 §3.3.1.4, RFC 9293 MUST-20). Its address may be wrong: ARP has no checksum.
    pub(crate) fn doubt(&mut self, now: Instant, id: NeighbourId) {
        use NeighbourState::{Delay, Reachable, Stale};
        let Some(Some(entry)) = self.slots.get_mut(id.0 as usize) else { return };
        if matches!(entry.state, Reachable | Stale | Delay) {
            entry.probes = 0;
            self.set(id.0, NeighbourState::Probe, Some(now));
        }
    }

    /// When [`poll`](Self::poll) has something.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.agenda.first().map(|&(at, _)| at)
    }

    /// The next thing that is due.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Due> {
        loop {
            let &(at, slot) = self.agenda.first()?;
            if at > now {
                return None;
            }
            let entry = self.entry(slot);
            let (link, ip, state) = (entry.link, entry.ip, entry.state);
            let (is_spent, is_used) = (entry.probes >= MAX_PROBES, entry.used >= entry.asked);
            let (_, retransmit) = self.timers(link, ip);
            let entry = self.entry(slot);
            match state {
                NeighbourState::Reachable if entry.reachable_until > now => {
                    let until = entry.reachable_until;
                    self.set(slot, state, Some(until));
                }
                NeighbourState::Reachable | NeighbourState::Stale => {
                    self.set(slot, NeighbourState::Stale, None);
                    return Some(Due::Aged);
                }
                NeighbourState::Incomplete if is_spent => {
                    let queue = self.remove(slot).queue;
                    return Some(Due::Failed { link, ip, had_address: false, queue });
                }
                NeighbourState::Incomplete => {
                    entry.probes += 1;
                    self.set(slot, state, Some(now + retransmit));
                    return Some(Due::Ask { link, ip, to: None });
                }
                // Nobody uses it any more.
                NeighbourState::Unreachable if !is_used => {
                    let queue = self.remove(slot).queue;
                    return Some(Due::Failed { link, ip, had_address: true, queue });
                }
                NeighbourState::Probe | NeighbourState::Unreachable if is_spent => {
                    let exponent = u32::from(entry.probes - MAX_PROBES) + 1;
                    let wait = retransmit.saturating_mul(BACKOFF_MULTIPLE.saturating_pow(exponent));
                    entry.probes = entry.probes.saturating_add(1);
                    entry.asked = now;
                    let at = now + wait.min(MAX_RETRANS_TIMER);
                    self.set(slot, NeighbourState::Unreachable, Some(at));
                    return Some(Due::Unreachable { link, ip });
                }
                NeighbourState::Delay | NeighbourState::Probe | NeighbourState::Unreachable => {
                    entry.probes = if state == NeighbourState::Delay { 1 } else { entry.probes + 1 };
                    let to = Some(entry.mac);
                    self.set(slot, NeighbourState::Probe, Some(now + retransmit));
                    return Some(Due::Ask { link, ip, to });
                }
            }
        }
    }

    /// Forgets the neighbours of a link, and how routers have said that they are asked; gives back what waited for them.
    pub(crate) fn forget(&mut self, link: LinkId) -> Chain {
        self.timers.retain(|(on, ..)| *on != link);
        self.forget_stations(link)
    }

    /// Forgets the neighbours of a link; gives back what waited for them.
    pub(crate) fn forget_stations(&mut self, link: LinkId) -> Chain {
        let mut queues = Chain::default();
        for slot in 0..self.slots.len() {
            if self.slots[slot].as_ref().is_some_and(|entry| entry.link == link) {
                queues.append(&mut self.remove(slot as u32).queue);
            }
        }
        queues
    }

    /// The first frame that waits for a neighbour.
    pub(crate) fn first_waiting(&self, link: LinkId, ip: IpAddr) -> Option<&Frame> {
        let slot = *self.map.get(&Station(link, ip))?;
        self.slots[slot as usize].as_ref()?.queue.front()
    }

    /// What another frame finds that is for a neighbour.
    pub(crate) fn next_hop(&self, link: LinkId, ip: IpAddr) -> NextHop {
        let slot = self.map.get(&Station(link, ip));
        match slot.and_then(|&slot| self.slots[slot as usize].as_ref()) {
            None => NextHop::Unasked,
            Some(entry) if entry.state != NeighbourState::Incomplete => NextHop::Known,
            Some(entry) => NextHop::Asked {
                waiting: entry.queue.len(),
                room: (WAITING_MAX - entry.queue.len()).min(HELD_MAX - self.held),
                until: entry.timer.unwrap_or(Instant::FAR_FUTURE),
            },
        }
    }

    /// Frames that wait.
    pub(crate) const fn held(&self) -> usize {
        self.held
    }

    /// All, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Neighbour> {
        self.slots.iter().flatten().map(|entry| Neighbour {
            link: entry.link,
            ip: entry.ip,
            mac: (entry.state != NeighbourState::Incomplete).then_some(entry.mac),
            state: entry.state,
            waiting: entry.queue.len(),
        })
    }

    fn entry(&mut self, slot: u32) -> &mut Entry {
        self.slots[slot as usize].as_mut().expect("map, agenda and lists name entries that exist")
    }

    fn set_reachable(&mut self, now: Instant, slot: u32) {
        let entry = self.entry(slot);
        let (link, ip) = (entry.link, entry.ip);
        let until = now + self.timers(link, ip).0;
        self.entry(slot).reachable_until = until;
        self.set(slot, NeighbourState::Reachable, Some(until));
    }

    fn set(&mut self, slot: u32, state: NeighbourState, timer: Option<Instant>) {
        let entry = self.entry(slot);
        entry.state = state;
        let old = core::mem::replace(&mut entry.timer, timer);
        if let Some(old) = old {
            self.agenda.remove(&(old, slot));
        }
        if let Some(timer) = timer {
            self.agenda.insert((timer, slot));
        }
    }

    /// A new entry, stale; `None` if there is no room.
    fn create(&mut self, now: Instant, link: LinkId, ip: IpAddr) -> Option<u32> {
        if self.map.len() >= ENTRIES_MAX {
            let old = self.oldest_unused()?;
            self.remove(old);
        }
        let entry = Entry {
            link,
            ip,
            mac: MacAddr::ZERO,
            state: NeighbourState::Stale,
            timer: None,
            reachable_until: now,
            used: now,
            asked: now,
            probes: 0,
            queue: Chain::default(),
        };
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        if slot as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot as usize] = Some(entry);
        self.map.insert(Station(link, ip), slot);
        Some(slot)
    }

    /// Of the next few entries that are stale, the one whose last use is the longest ago.
    fn oldest_unused(&mut self) -> Option<u32> {
        let mut oldest: Option<(Instant, u32)> = None;
        for _ in 0..self.slots.len().min(SEARCH_IN_VAIN_MAX) {
            self.hand = (self.hand + 1) % self.slots.len();
            let is_idle = |e: &&Entry| matches!(e.state, NeighbourState::Stale | NeighbourState::Unreachable);
            let stale = self.slots[self.hand].as_ref().filter(is_idle);
            if let Some(entry) = stale
                && oldest.is_none_or(|(used, _)| entry.used < used)
            {
                oldest = Some((entry.used, self.hand as u32));
            }
            if oldest.is_some() && self.hand.is_multiple_of(SEARCH_MAX) {
                break;
            }
        }
        oldest.map(|(_, slot)| slot)
    }

    fn remove(&mut self, slot: u32) -> Entry {
        let entry = self.slots[slot as usize].take().expect("only entries that exist are removed");
        self.map.remove(&Station(entry.link, entry.ip));
        if let Some(timer) = entry.timer {
            self.agenda.remove(&(timer, slot));
        }
        if entry.state == NeighbourState::Incomplete {
            self.incomplete.retain(|&other| other != slot);
        }
        self.held -= entry.queue.len();
        self.free.push(slot);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_whose_entries_are_all_in_use_costs_a_newcomer_little() {
        let keyed = Keyed::new([0; 16], 0);
        let mut table = Neighbours::new(keyed, &mut Random::new(keyed, 0));
        let (link, mac, now) = (LinkId(1), MacAddr::BROADCAST, Instant::from_secs(1));
        let station = |n: u32| (link, IpAddr::from((0x0a00_0000 + n).to_be_bytes()));
        let learn = |table: &mut Neighbours, n: u32| {
            let before = table.hand;
            let is_learnt = table.learn(now, station(n), Some(mac), Evidence::Question).is_new;
            (is_learnt, (table.hand + ENTRIES_MAX - before) % ENTRIES_MAX)
        };
        for n in 0..ENTRIES_MAX as u32 {
            assert!(learn(&mut table, n).0);
            table.resolve(now, link, station(n).1).unwrap();
        }
        table.set(3000, NeighbourState::Stale, None);
        let tries: Vec<_> = (0..16).map(|n| learn(&mut table, ENTRIES_MAX as u32 + n)).collect();
        assert!(tries.iter().all(|&(_, looked_at)| looked_at <= SEARCH_IN_VAIN_MAX), "{tries:?}");
        assert_eq!(tries.iter().filter(|(is_learnt, _)| *is_learnt).count(), 1, "the idle one is found");
    }
}
