//! States: what a rule with `keep state` has let through, and whatever belongs to it, both ways.
//!
//! They stand in [`Places`], with an index with a secret hash by the two ends. When all places are taken one that is over goes first, then
//! the half-open entry that waits longest; what both ends have shown to be theirs stays, and the newcomer is refused.

use core::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use firelane_frame::{read_ahead, read_begin_ahead};
use firelane_table::{Index, Places};
use firelane_units::{Direction, Instant, KeepState, LinkId, Port};
use firelane_wire::{IpProtocol, TcpView};

use crate::packet::Packet;
use crate::rules::{OneWay, RuleList};
use crate::state::{Going, Key, RuleId, Secret, State, asks, is_question, query, query_ports};

/// How many states there may be, unless said otherwise.
pub const STATES_MAX: usize = 1 << 20;

/// How many flows [`Filter::seek`](crate::Filter::seek) looks for.
pub const FORESEEN_MAX: usize = 64;

/// Where a state is, and which of its ways a packet goes; good until the state ends, which is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateRef {
    /// The place, and in its lowest bit the way.
    place: u32,
    number: u64,
}

/// A whole packet of a flow whose state is known ([`StateRef`]): what the state asks of it.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// In to the netstack, or out of it.
    pub direction: Direction,
    /// By which link.
    pub link: LinkId,
    /// By which link it goes out of the netstack then, if it came in to be passed on.
    pub onward: Option<LinkId>,
    /// All of its bytes, from the IP header on.
    pub bytes: u32,
    /// The segment, if it is one.
    pub segment: Option<&'a TcpView<'a>>,
}

/// What names a flow: who sends, to whom, between which ports.
#[derive(Clone, Copy, Debug)]
pub struct FlowNames {
    /// Who sends, as high and low half; IPv4 in its mapped form.
    pub src: [u64; 2],
    /// Whom it is for.
    pub dst: [u64; 2],
    /// Source and destination port.
    pub ports: (Port, Port),
    /// What it is.
    pub protocol: IpProtocol,
}

impl FlowNames {
    /// No flow's.
    pub const NOBODY: Self =
        Self { src: [0; 2], dst: [0; 2], ports: (Port(0), Port(0)), protocol: IpProtocol(0) };

    #[inline]
    const fn key(&self) -> Key {
        let Self { src, dst, ports: (from, to), protocol } = *self;
        Key::of_halves(src, dst, protocol, [from.0, to.0], 0)
    }
}

/// States that are looked for: little beside what a lane handles meanwhile, all of which has to stay near.
#[derive(Debug)]
pub struct Sought {
    /// The hash of each flow's names, and the place that most likely has them.
    flows: [(u32, u32); FORESEEN_MAX],
    /// A bit for each whose state's first line says all.
    brief: u64,
    count: usize,
}

const _: () = assert!(FORESEEN_MAX as u32 == u64::BITS);

/// What a new rule is called before it has a name.
const NAMELESS: RuleId = RuleId(u32::MAX);

/// The place of none.
const NOWHERE: u32 = u32::MAX;

/// Why no state was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoState {
    /// Such a packet has none (a reset, an ICMP error, a piece without ports): it passes by itself.
    Never,
    /// There is no place.
    Full,
    /// Its rule has as many as it may.
    RuleFull,
}

/// What a packet that belongs to a state is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Belongs {
    /// To none.
    No,
    /// To the state made by this rule; one that is in the list no more has no number.
    To {
        /// The rule, if the list still has it.
        rule: Option<u32>,
        /// It goes as the first one did, and others have not heard of the state for a while.
        is_news: bool,
        /// Which state; none of an ICMP error, which is about it.
        state: Option<StateRef>,
    },
    /// By its numbers to this state, and it came by another link: if rules let it through, its connection has moved.
    Moved(StateRef),
    /// By its names, but it is outside the window.
    OutOfWindow,
    /// The same, and it asks for a new connection with these names.
    Anew,
}

/// What the state of a flow says of its next packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Follows {
    /// As [`Belongs::To`] has it.
    pub(crate) rule: Option<u32>,
    pub(crate) is_news: bool,
    /// It goes out as it came in: whether it is news there.
    pub(crate) onward: Option<bool>,
}

/// What states have counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StateCounts {
    /// There are so many.
    pub active: u64,
    /// Were made.
    pub added: u64,
    /// Ended for want of packets.
    pub expired: u64,
    /// Gave their place to others.
    pub evicted: u64,
    /// Found no place.
    pub full: u64,
    /// Were more than their rule may have.
    pub rule_full: u64,
    /// Packets that passed by one.
    pub hits: u64,
    /// Packets outside the window of theirs.
    pub out_of_window: u64,
}

impl StateCounts {
    /// Adds those of another table.
    pub fn merge(&mut self, other: &Self) {
        let Self { active, added, expired, evicted, full, rule_full, hits, out_of_window } = self;
        let sums = [
            (active, other.active),
            (added, other.added),
            (expired, other.expired),
            (evicted, other.evicted),
            (full, other.full),
            (rule_full, other.rule_full),
            (hits, other.hits),
            (out_of_window, other.out_of_window),
        ];
        sums.into_iter().for_each(|(sum, count)| *sum += count);
    }
}

/// Which rules have made the states.
#[derive(Debug, Default)]
struct Owners {
    /// The list that is there now, whose rules count states that are limited for all lanes together.
    rules: Arc<RuleList>,
    /// Of each of its rules its name.
    list: Vec<RuleId>,
    names: Vec<Name>,
}

/// What a rule is called by states.
#[derive(Clone, Copy, Debug, Default)]
struct Name {
    /// Which rule of the list it is, or that it is in it no more.
    rule: Option<u32>,
    /// So many states know it.
    states: u32,
    /// Of these, so many are counted by the rule's limit.
    limited: u32,
}

impl Name {
    /// Nobody knows it, and another rule may have it.
    const fn is_free(&self) -> bool {
        self.rule.is_none() && self.states == 0
    }
}

impl Owners {
    /// Which rule of the list has this name.
    #[inline]
    fn rule(&self, id: RuleId) -> Option<u32> {
        self.names.get(id.0 as usize)?.rule
    }

    /// The name of a rule of the list.
    fn owner(&self, rule: u32) -> Option<RuleId> {
        self.list.get(rule as usize).copied()
    }

    /// A rule is to have another state: whether it may, of those that count.
    fn take_room(&self, rule: u32, limit: NonZeroU32) -> bool {
        let more = |states: u32| (states < limit.get()).then(|| states + 1);
        let states = self.rules.states(rule);
        states.is_none_or(|it| it.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok())
    }

    /// A state that counts has gone, or did not come.
    fn leave_room(&self, id: RuleId) {
        if let Some(states) = self.rule(id).and_then(|rule| self.rules.states(rule)) {
            states.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A state comes.
    fn enter(&mut self, state: &State) {
        if let Some(name) = self.names.get_mut(state.rule.0 as usize) {
            name.states += 1;
            name.limited += u32::from(state.is_limited);
        }
    }

    /// A state goes.
    fn leave(&mut self, state: &State) {
        if let Some(name) = self.names.get_mut(state.rule.0 as usize) {
            name.states -= 1;
            name.limited -= u32::from(state.is_limited);
        }
    }

    /// This lane's states are counted by another list's rules, or by none.
    fn count_elsewhere(&self, list: Option<&RuleList>, same: &[Option<u32>]) {
        let limited = |nth: u32| self.names[self.list[nth as usize].0 as usize].limited;
        for nth in 0..self.list.len() as u32 {
            if let Some(states) = self.rules.states(nth) {
                states.fetch_sub(limited(nth), Ordering::Relaxed);
            }
        }
        for (nth, old) in (0..).zip(same) {
            if let (Some(old), Some(states)) = (*old, list.and_then(|list| list.states(nth))) {
                states.fetch_add(limited(old), Ordering::Relaxed);
            }
        }
    }

    /// Another list, in which each of `same` is that rule of the one before.
    fn begin(&mut self, list: &Arc<RuleList>, same: &[Option<u32>]) {
        // A list that was compared with the one before counts where that did.
        if self.rules.has_limits() && !list.continues(&self.rules) {
            self.count_elsewhere(Some(list), same);
        }
        self.rules = Arc::clone(list);
        let before = core::mem::take(&mut self.list);
        before.iter().for_each(|id| self.names[id.0 as usize].rule = None);
        self.list.reserve_exact(same.len());
        for (nth, old) in same.iter().enumerate() {
            let id = old.and_then(|old| before.get(old as usize).copied());
            if let Some(id) = id {
                self.names[id.0 as usize].rule = Some(nth as u32);
            }
            self.list.push(id.unwrap_or(NAMELESS));
        }
        while self.names.last().is_some_and(Name::is_free) {
            self.names.pop();
        }
        let mut at = 0;
        for (nth, id) in self.list.iter_mut().enumerate().filter(|(_, id)| **id == NAMELESS) {
            while self.names.get(at).is_some_and(|name| !name.is_free()) {
                at += 1;
            }
            if at == self.names.len() {
                self.names.push(Name::default());
            }
            self.names[at].rule = Some(nth as u32);
            *id = RuleId(at as u32);
        }
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        // Other lanes may go on with the list.
        if self.rules.has_limits() {
            self.count_elsewhere(None, &[]);
        }
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct States {
    places: Places<State>,
    index: Index,
    secret: Secret,
    rules: Owners,
    counts: StateCounts,
}

impl States {
    /// None as yet, and never more than `most`.
    pub(crate) fn new(secret: Secret, most: usize) -> Self {
        Self {
            places: Places::new(most),
            index: Index::default(),
            secret,
            rules: Owners::default(),
            counts: StateCounts::default(),
        }
    }

    /// What was counted.
    pub(crate) fn counts(&self) -> StateCounts {
        StateCounts { active: self.len() as u64, ..self.counts }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Another list of rules counts from here on, in which each of `same` is that rule of the one before: states stay, and those
    /// of other rules belong to none.
    pub(crate) fn begin_list(&mut self, list: &Arc<RuleList>, same: &[Option<u32>]) {
        self.rules.begin(list, same);
    }

    /// The state that a packet belongs to; it lasts longer for that.
    pub(crate) fn take(&mut self, packet: &Packet<'_>, now: Instant) -> Belongs {
        if self.len() == 0 {
            return Belongs::No;
        }
        let Some(key) = Key::of(packet) else { return self.take_error(packet, now) };
        let Some((at, way)) = self.find(&key) else { return Belongs::No };
        let Some(state) = self.places.get_mut(at) else { return Belongs::No };
        let segment = packet.segment();
        if state.ends <= now || state.is_over(segment.as_ref()) {
            self.counts.expired += 1;
            self.remove(at);
            return Belongs::No;
        }
        let number = state.number;
        let going = Going { way, direction: packet.direction, link: packet.link };
        if !state.is_by_link(going) {
            return match segment {
                // What is established is only its own.
                Some(segment) if !state.tcp.is_half_open() => match state.may_have_moved(way, &segment) {
                    true => Belongs::Moved(StateRef::new(at, way, number)),
                    false => self.out_of_window((at, way), packet.direction, &segment),
                },
                _ => Belongs::No,
            };
        }
        if let Some(segment) = segment
            && !state.tcp.take(way, &segment)
        {
            return self.out_of_window((at, way), packet.direction, &segment);
        }
        state.note_link(going);
        let is_news = state.renew(way, now);
        self.counts.hits += 1;
        let rule = self.rules.rule(state.rule);
        Belongs::To { rule, is_news, state: Some(StateRef::new(at, way, number)) }
    }

    /// Rules let a packet through that [`Moved`](Belongs::Moved), and it has begun no state: whoever it is for heeds it, above all a reset.
    pub(crate) fn follow_moved(&mut self, known: StateRef, packet: &Packet<'_>) {
        let (at, way) = known.place();
        let state = self.places.get_mut(at).filter(|state| state.number == known.number);
        if let (Some(state), Some(segment)) = (state, packet.segment()) {
            state.tcp.take(way, &segment);
        }
    }

    /// A segment has the names of a state, and nothing else of it.
    fn out_of_window(
        &mut self,
        (at, way): (u32, usize),
        direction: Direction,
        segment: &TcpView<'_>,
    ) -> Belongs {
        self.counts.out_of_window += 1;
        match self.places.get(at) {
            _ if !is_question(segment) => Belongs::OutOfWindow,
            // What has come in to be passed on was asked about there.
            Some(state) if direction == Direction::Out && state.comes_in(way) => {
                Belongs::To { rule: self.rules.rule(state.rule), is_news: false, state: None }
            }
            _ => Belongs::Anew,
        }
    }

    /// A packet of a flow whose state is known: what [`take`](Self::take) says of it, and then of the same packet on its way out, if it
    /// is to be passed on. Nothing if it does not simply belong to the state; then nothing was counted and nothing has changed
    /// that `take` would not change. If only its way out is unusual, that is to be asked about alone.
    #[inline]
    pub(crate) fn follow(&mut self, known: StateRef, whole: &Whole<'_>, now: Instant) -> Option<Follows> {
        let (at, way) = known.place();
        let state = self.places.get_mut(at).filter(|state| state.number == known.number)?;
        let Whole { direction, link, onward, segment, .. } = *whole;
        if !state.takes(Going { way, direction, link }, segment, now) {
            return None;
        }
        let is_news = state.renew(way, now);
        let onward = onward.filter(|&link| {
            let going = Going { way, direction: Direction::Out, link };
            state.takes(going, segment, now)
        });
        let onward = onward.map(|_| state.renew(way, now));
        self.counts.hits += 1 + u64::from(onward.is_some());
        Some(Follows { rule: self.rules.rule(state.rule), is_news, onward })
    }

    /// Begins to look for the states of several flows; what [`approach`](Self::approach) needs is on its way from memory then, and what
    /// [`found`](Self::found) needs after that, so that who does something else in between does not wait. Of more than [`FORESEEN_MAX`] only so many are looked for.
    pub(crate) fn seek(&self, flows: impl Iterator<Item = FlowNames>) -> Sought {
        let mut sought = Sought { flows: [(0, NOWHERE); FORESEEN_MAX], brief: 0, count: 0 };
        for ((hash, _), flow) in sought.flows.iter_mut().zip(flows) {
            let key = flow.key();
            *hash = key.hash(self.secret);
            sought.brief |= u64::from(key.is_brief()) << sought.count;
            sought.count += 1;
        }
        // Close together, so that what leads to their pages is waited for side by side, too.
        sought.flows[..sought.count].iter().for_each(|(hash, _)| self.index.touch(*hash));
        sought
    }

    /// Goes on to the places, after something else was done.
    pub(crate) fn approach(&self, sought: &mut Sought) {
        for (nth, (hash, at)) in sought.flows[..sought.count].iter_mut().enumerate() {
            // Where the hash leads to nearly always has the names: it is fetched before they are compared.
            *at = self.index.find(*hash, |_| true).unwrap_or(NOWHERE);
            let Some(place) = self.places.place(*at) else { continue };
            match sought.brief >> nth & 1 != 0 {
                true => read_begin_ahead(place),
                false => read_ahead(place),
            }
        }
    }

    /// The state of the `nth` flow that was looked for, which has these names.
    #[inline]
    pub(crate) fn found(&self, sought: &Sought, nth: usize, flow: FlowNames) -> Option<StateRef> {
        let &(hash, at) = sought.flows[..sought.count].get(nth)?;
        let key = flow.key();
        let way = |state: &State| Some((at, state.way_of(&key)?));
        let found = self.places.get(at)?;
        let (at, way) = way(found).or_else(|| self.find_hashed(&key, hash))?;
        Some(StateRef::new(at, way, self.places.get(at)?.number))
    }

    /// Begins to fetch what a packet of a state will ask for.
    #[inline]
    pub(crate) fn touch_known(&self, known: StateRef) {
        self.places.place(known.place().0).iter().for_each(|state| read_ahead(*state));
    }

    /// An ICMP error about a packet of a state, from its other end or from somebody between.
    fn take_error(&mut self, packet: &Packet<'_>, now: Instant) -> Belongs {
        let Some(quoted) = packet.quoted() else { return Belongs::No };
        // Whoever sends it tells the sender of what it quotes.
        if quoted.src != packet.dst {
            return Belongs::No;
        }
        let (ports, kind) = match (quoted.protocol, quoted.ports(), quoted.transport()) {
            (_, Some((Port(from), Port(to))), _) => ([from, to], 0),
            (protocol @ (IpProtocol::ICMPV4 | IpProtocol::ICMPV6), _, &[kind, _, _, _, high, low, ..]) => {
                let Some(asked) = query(protocol, kind) else { return Belongs::No };
                (query_ports(protocol, kind, u16::from_be_bytes([high, low])), asked)
            }
            _ => ([0, 0], 0),
        };
        let key = Key::new(quoted.src, quoted.dst, quoted.protocol, ports, kind);
        let Some((at, _)) = self.find(&key) else { return Belongs::No };
        let Some(state) = self.places.get(at) else { return Belongs::No };
        if state.ends <= now || state.no_icmp_err {
            return Belongs::No;
        }
        self.counts.hits += 1;
        Belongs::To { rule: self.rules.rule(state.rule), is_news: false, state: None }
    }

    /// Makes a state of a packet that a rule lets through.
    pub(crate) fn make(
        &mut self,
        packet: &Packet<'_>,
        rule: u32,
        keep: KeepState,
        now: Instant,
    ) -> Result<StateRef, NoState> {
        let key = Key::of(packet).ok_or(NoState::Never)?;
        let segment = packet.segment();
        let is_never = match packet.protocol {
            IpProtocol::TCP => segment.as_ref().is_none_or(|segment| segment.flags().rst()),
            protocol => packet.icmp().is_some_and(|(kind, _)| !asks(protocol, kind)),
        };
        if is_never || packet.is_for_many() {
            return Err(NoState::Never);
        }
        let id = self.rules.owner(rule).ok_or(NoState::Never)?;
        // What is there did not take the packet: the names have a new user.
        let before = self.find(&key).map(|(at, _)| at);
        let is_alike = |state: &State| state.rule == id && state.is_limited;
        let has_room = before.and_then(|at| self.places.get(at)).is_some_and(is_alike);
        if keep.limit.is_some_and(|limit| !has_room && !self.rules.take_room(rule, limit)) {
            self.counts.rule_full += 1;
            return Err(NoState::RuleFull);
        }
        match before {
            // It has the other one's room in its rule.
            Some(at) if keep.limit.is_some() && has_room => _ = self.take_out(at),
            Some(at) => self.remove(at),
            None => {}
        }
        if self.places.is_full() && !self.evict(now) {
            keep.limit.iter().for_each(|_| self.rules.leave_room(id));
            self.counts.full += 1;
            return Err(NoState::Full);
        }
        let mut state = State::new(key, packet, segment.as_ref(), keep, now);
        (state.rule, state.number) = (id, self.counts.added + 1);
        Ok(self.enter(state))
    }

    fn enter(&mut self, state: State) -> StateRef {
        let (number, hash) = (state.number, state.key().hash(self.secret));
        self.rules.enter(&state);
        let at = self.places.enter(state);
        self.counts.added += 1;
        self.index.insert(hash, at);
        StateRef::new(at, 0, number)
    }

    /// Whether a state has the names of a packet with ports that goes this way.
    pub(crate) fn knows(&self, way: &OneWay) -> bool {
        let OneWay { protocol, from: (src, from), to: (dst, to), .. } = *way;
        self.len() > 0 && self.find(&Key::new(src, dst, protocol, [from.0, to.0], 0)).is_some()
    }

    /// Which state has these names, and whether the packet goes its way (0) or back (1).
    fn find(&self, key: &Key) -> Option<(u32, usize)> {
        self.find_hashed(key, key.hash(self.secret))
    }

    fn find_hashed(&self, key: &Key, hash: u32) -> Option<(u32, usize)> {
        let way_of = |at: u32| self.places.get(at)?.way_of(key);
        let at = self.index.find(hash, |at| way_of(at).is_some())?;
        Some((at, way_of(at)?))
    }

    fn remove(&mut self, at: u32) {
        if let Some(state) = self.take_out(at).filter(|state| state.is_limited) {
            self.rules.leave_room(state.rule);
        }
    }

    /// A state ends, whose room in its rule is somebody else's.
    fn take_out(&mut self, at: u32) -> Option<State> {
        let state = self.places.take(at)?;
        let hash = state.key().hash(self.secret);
        self.index.remove(hash, at);
        self.rules.leave(&state);
        if self.places.is_empty() {
            // All memory goes with the last one.
            self.index = Index::default();
        }
        Some(state)
    }

    /// Makes room: one that is over goes, or the half-open state that waits longest. Whether there was one.
    fn evict(&mut self, now: Instant) -> bool {
        let gone = self.places.spent(now).or_else(|| self.places.oldest_half_open());
        if let Some(at) = gone {
            self.counts.evicted += 1;
            self.remove(at);
        }
        gone.is_some()
    }

    /// Takes out what has ended; when to look again.
    pub(crate) fn on_time(&mut self, now: Instant) -> Option<Instant> {
        while let Some(at) = self.places.sweep(now) {
            self.counts.expired += 1;
            self.remove(at);
        }
        self.poll_at()
    }

    /// When to look again.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.places.poll_at()
    }

    /// The bytes that it takes.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.places.allocated_bytes() + self.index.allocated_bytes()
    }
}

impl StateRef {
    const fn new(at: u32, way: usize, number: u64) -> Self {
        Self { place: at << 1 | way as u32, number }
    }

    const fn place(self) -> (u32, usize) {
        (self.place >> 1, (self.place & 1) as usize)
    }

    /// As words, for tables in which it is to be small.
    pub const fn to_words(self) -> [u32; 3] {
        [self.place, self.number as u32, (self.number >> 32) as u32]
    }

    /// From [`to_words`](Self::to_words)'s.
    pub const fn from_words([place, low, high]: [u32; 3]) -> Self {
        Self { place, number: (high as u64) << 32 | low as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_rules_and_of_states_and_no_more() {
        let mut owners = Owners::default();
        let none = Arc::default();
        owners.begin(&none, &[None, None]);
        let (kept, old) = (owners.list[0], owners.list[1]);
        [kept, old].iter().for_each(|id| owners.names[id.0 as usize].states += 1);
        for _ in 0..1000 {
            owners.begin(&none, &[None, Some(0), None]);
            assert_eq!(
                (owners.rule(kept), owners.rule(old)),
                (Some(1), None),
                "states of the other are nobody's"
            );
            owners.begin(&none, &[Some(1)]);
            assert_eq!((owners.rule(kept), owners.owner(0)), (Some(0), Some(kept)));
        }
        for _ in 0..1000 {
            // A rule that comes stays, and the one before it goes.
            owners.begin(&none, &[Some(0), None]);
            owners.begin(&none, &[Some(1)]);
        }
        assert!(owners.names.len() <= 4);
        owners.begin(&none, &[None]);
        assert_eq!((owners.rule(kept), owners.rule(old)), (None, None));
        assert!(![kept, old].contains(&owners.list[0]), "states know them");
        owners.names[old.0 as usize].states -= 1;
        owners.begin(&none, &[None, Some(0)]);
        assert!(owners.list.contains(&old), "nobody remembers it");
    }
}
