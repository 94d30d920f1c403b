//! Which packets a netstack lets in and out: IPFilter's rules, states, kept fragments and pools.
//!
//! A filter belongs to one netstack's shard in one lane: both directions of a connection meet in one lane, so states need no
//! lock. `path/lane` asks it for each packet that comes in by a link, before IP, and for each that goes out by one, behind IP; what a
//! netstack sends to itself is not asked about, as in the original (`intercept_loopback`). Sans-I/O: packets and `now` in, a [`Ruling`] out.
//! Facts: ipf(5); Solaris' IPFilter 4.1.
#![forbid(unsafe_code)]

mod frags;
mod packet;
mod pools;
mod rules;
mod setup;
mod state;
mod states;
mod tcp;

use std::sync::Arc;

use firelane_units::{
    BlockAnswer, Direction, FilterAction, FilterRule, Instant, IpPrefix, KeepState, LinkId,
};

pub use frags::Datagram;
pub use packet::{Packet, Piece};
pub use pools::{FOREVER, PoolChange};
pub use rules::{OneWay, RuleCount, RuleList};
pub use setup::FilterSetup;
pub use states::{FORESEEN_MAX, FlowNames, STATES_MAX, Sought, StateCounts, StateRef, Whole};

use frags::Frags;
use pools::Pools;
use rules::{PoolsInSight, Rules};
use states::{Belongs, Follows, NoState, States};

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verdict {
    /// It goes on.
    #[default]
    Pass,
    /// It ends here, and its sender hears this.
    Block(BlockAnswer),
    /// A rule lets it through that keeps state, and there is no room for one.
    NoRoom,
    /// The same, and it is outside the window of the state that has its names.
    OutOfWindow,
}

/// A verdict, and how it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ruling {
    /// What becomes of the packet.
    pub verdict: Verdict,
    /// The rule that decided; without one packets pass.
    pub rule: Option<u32>,
    /// The rule that asks that somebody is told of the packet.
    pub logged: Option<u32>,
    /// It goes the way of a state's first packet, and a table that gets what comes back has not heard of the state for a while
    /// ([`Filter::adopt`]).
    pub is_news: bool,
    /// Each packet of the same link, direction, addresses, ports and protocol would hear the same, as long as the rules stay.
    pub is_for_all: bool,
    /// The state that it belongs to, or has begun.
    pub state: Option<StateRef>,
}

/// A packet that has simply passed by its state: a [`Ruling`] that fits into registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Followed {
    /// The rule that has made the state, if the list still has it.
    pub rule: Option<u32>,
    /// The rule asks that somebody is told of the packet.
    pub is_logged: bool,
    /// As [`Ruling::is_news`].
    pub is_news: bool,
}

impl Followed {
    /// Whether somebody is to hear of the packet, or of its state.
    #[inline]
    pub const fn is_told(self) -> bool {
        self.is_logged || self.is_news
    }

    /// The ruling.
    pub fn ruling(self) -> Ruling {
        let Self { rule, is_logged, is_news } = self;
        Ruling { rule, is_news, logged: rule.filter(|_| is_logged), ..Ruling::default() }
    }
}

/// What a filter has counted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FilterCounts {
    /// Packets that went on, in and out.
    pub passed: [u64; 2],
    /// Packets that ended, in and out.
    pub blocked: [u64; 2],
    /// What each rule has met, in the order of the rules.
    pub rules: Vec<RuleCount>,
    /// States.
    pub states: StateCounts,
}

/// What a filter follows: the same in each lane.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FilterConfig {
    /// Rules in their order.
    pub rules: Vec<FilterRule<LinkId>>,
    /// Pools by number, with what is in them and until when.
    pub pools: Vec<(u32, Vec<(IpPrefix, Instant)>)>,
}

/// A netstack's filter in one lane.
#[derive(Debug)]
pub struct Filter {
    rules: Rules,
    /// Nobody else's, unless they are those of a setup.
    pools: Arc<Pools>,
    states: States,
    frags: Frags,
    passed: [u64; 2],
    blocked: [u64; 2],
    expire_at: Option<Instant>,
}

impl FilterCounts {
    /// Adds what another lane has counted under the same rules.
    pub fn merge(&mut self, other: &Self) {
        for at in 0..2 {
            self.passed[at] += other.passed[at];
            self.blocked[at] += other.blocked[at];
        }
        self.rules.resize(self.rules.len().max(other.rules.len()), RuleCount::default());
        for (mine, theirs) in self.rules.iter_mut().zip(&other.rules) {
            mine.packets += theirs.packets;
            mine.bytes += theirs.bytes;
        }
        self.states.merge(&other.states);
    }
}

impl Filter {
    /// Without rules; `keys` are secrets for tables that peers fill.
    pub fn new(keys: [(u64, u64); 2], states_max: usize) -> Self {
        Self {
            rules: Rules::default(),
            pools: Arc::new(Pools::new(keys[0])),
            states: States::new(keys[1], states_max),
            frags: Frags::default(),
            passed: [0; 2],
            blocked: [0; 2],
            expire_at: None,
        }
    }

    /// Whether packets have to be asked about: a state that stands without rules follows its connection, and fits when rules come back.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.rules.is_empty() || self.has_states()
    }

    /// Whether anything may be kept out.
    #[inline]
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Follows other rules from now on. States stay, as in the original: what was let through may go on. A rule that was there
    /// before goes on counting, and what it let through counts for it.
    pub fn set(&mut self, config: FilterConfig, now: Instant) {
        let FilterConfig { rules, pools } = config;
        self.set_rules(rules);
        let own = Arc::make_mut(&mut self.pools);
        own.clear();
        own.fill(pools);
        self.expire_at = own.expire(now);
    }

    /// The same with what was made before, for this filter and others.
    pub fn follow_setup(&mut self, setup: &FilterSetup) {
        self.follow_list(&setup.rules);
        self.pools = Arc::clone(&setup.pools);
        self.expire_at = self.pools.next_end();
    }

    /// As [`set`](Self::set), with the pools as they are.
    pub fn set_rules(&mut self, rules: Vec<FilterRule<LinkId>>) {
        self.follow_list(&Arc::new(RuleList::new(rules)));
    }

    /// The same with a list that was made before, for this filter and others. No rule is looked at if it was compared with the one that
    /// this filter follows; that one is left to whoever else has it.
    pub fn follow_list(&mut self, list: &Arc<RuleList>) {
        self.states.begin_list(list, &self.rules.follow(list));
    }

    /// Networks come into pools and go. A pool is there as soon as something is in it.
    pub fn change_pools(&mut self, changes: &[PoolChange]) {
        let pools = Arc::make_mut(&mut self.pools);
        for &PoolChange { pool, network, until, is_exception, group } in changes {
            match (until, group) {
                (Some(until), Some(group)) => pools.insert_group(pool, network, until, group),
                (Some(until), None) => pools.insert(pool, network, until, is_exception),
                (None, _) => pools.remove(pool, network),
            }
        }
        self.expire_at = pools.next_end();
    }

    /// What becomes of a packet.
    pub fn judge(&mut self, packet: &Packet<'_>, now: Instant) -> Ruling {
        let ruling = self.rule(packet, None, now);
        self.repeat(packet.direction, packet.bytes, ruling);
        ruling
    }

    /// The same, where a pool that the rules name and this filter has not is the one that `other` has: a socket's rules name
    /// the pools of its netstack. What is said of [`Ruling::is_for_all`] does not hold here.
    pub fn judge_beside(&mut self, packet: &Packet<'_>, other: &Self, now: Instant) -> Ruling {
        let ruling = self.rule(packet, Some(&other.pools), now);
        self.repeat(packet.direction, packet.bytes, ruling);
        ruling
    }

    /// Whether a packet that goes this way, by a link that `may_carry` it, could meet a rule now or when pools change, or has a state, which
    /// would not fit any more without it.
    pub fn may_meet(&self, way: &OneWay, may_carry: impl Fn(LinkId) -> bool) -> bool {
        self.rules.may_meet(way, may_carry) || self.states.knows(way)
    }

    /// A packet of a flow of which [`Ruling::is_for_all`] was said hears the same once more.
    #[inline]
    pub fn repeat(&mut self, direction: Direction, bytes: u32, ruling: Ruling) {
        if let Some(rule) = ruling.rule {
            self.rules.count(rule, bytes);
        }
        let counts = if ruling.verdict == Verdict::Pass { &mut self.passed } else { &mut self.blocked };
        counts[direction.index()] += 1;
    }

    /// What the sender of a packet hears that a rule blocks.
    pub fn answer(&self, rule: u32) -> BlockAnswer {
        match self.rules.get(rule).map(|rule| rule.action) {
            Some(FilterAction::Block(answer)) => answer,
            _ => BlockAnswer::Silent,
        }
    }

    fn rule(&mut self, packet: &Packet<'_>, beyond: Option<&Pools>, now: Instant) -> Ruling {
        if self.frags.knows(packet, now) {
            return Ruling::default();
        }
        let belongs = self.states.take(packet, now);
        if let Belongs::To { rule, is_news, state } = belongs {
            if rule.and_then(|rule| self.rules.get(rule)).is_some_and(|rule| rule.keep_frags) {
                self.frags.keep(packet, now);
            }
            return self.passed_by_state(rule, is_news, state);
        }
        let ruling = self.rule_of_list(packet, belongs, beyond, now);
        if let (Belongs::Moved(known), Verdict::Pass, None) = (belongs, ruling.verdict, ruling.state) {
            self.states.follow_moved(known, packet);
        }
        ruling
    }

    /// What the list says of a packet that no state lets through.
    fn rule_of_list(
        &mut self,
        packet: &Packet<'_>,
        belongs: Belongs,
        beyond: Option<&Pools>,
        now: Instant,
    ) -> Ruling {
        let pass = |rule| Ruling { rule, ..Ruling::default() };
        let pools = PoolsInSight { own: &self.pools, beyond };
        let is_outside = matches!(belongs, Belongs::OutOfWindow | Belongs::Anew);
        let found = self.rules.search(packet, is_outside, pools, now);
        let Some((nth, rule)) = found.rule.and_then(|nth| Some((nth, self.rules.get(nth)?))) else {
            let is_for_all = self.is_for_all(found.is_for_all);
            return Ruling { is_for_all, logged: found.logged, ..pass(None) };
        };
        let (keep_state, keep_frags) = (rule.keep_state, rule.keep_frags);
        let logged = if rule.log.is_some() { Some(nth) } else { found.logged };
        let mut state = None;
        let mut verdict = match rule.action {
            FilterAction::Block(answer) => Verdict::Block(answer),
            _ => Verdict::Pass,
        };
        if let (Verdict::Pass, Some(keep)) = (verdict, keep_state) {
            verdict = match belongs {
                // What does not fit a state begins none in its place.
                Belongs::OutOfWindow => Verdict::OutOfWindow,
                // Who has forgotten a connection asks for another one, and hears from the other end that the old one is still there
                // (RFC 9293 §3.5.1): the state stays as it is until he resets that.
                Belongs::Anew => Verdict::Pass,
                _ => match self.states.make(packet, nth, keep, now) {
                    Err(NoState::Full | NoState::RuleFull) => Verdict::NoRoom,
                    Err(NoState::Never) => Verdict::Pass,
                    Ok(made) => {
                        state = Some(made);
                        Verdict::Pass
                    }
                },
            };
        }
        if verdict == Verdict::Pass && keep_frags {
            self.frags.keep(packet, now);
        }
        let is_for_all = self.is_for_all(found.is_for_all) && logged.is_none();
        Ruling { verdict, rule: Some(nth), logged, is_news: state.is_some(), is_for_all, state }
    }

    /// A packet has passed by a state.
    #[inline]
    fn passed_by_state(&self, rule: Option<u32>, is_news: bool, state: Option<StateRef>) -> Ruling {
        let logged = rule.filter(|_| self.logs_all(rule));
        Ruling { verdict: Verdict::Pass, rule, logged, is_news, is_for_all: false, state }
    }

    /// The next packet of a flow whose state is known, as [`judge`](Self::judge) would rule about it, without a search for the
    /// state; and, if it is to be passed on, about it on its way out. Nothing if it does not simply pass by its state; then nothing was
    /// counted, and `judge` is to be asked, as about the way out alone if of that nothing is said.
    #[inline]
    pub fn follow(
        &mut self,
        state: StateRef,
        whole: &Whole<'_>,
        now: Instant,
    ) -> Option<(Followed, Option<Followed>)> {
        let Follows { rule, is_news, onward } = self.states.follow(state, whole, now)?;
        let gates = 1 + u32::from(onward.is_some());
        if let Some(rule) = rule {
            self.rules.count_times(rule, whole.bytes, gates);
        }
        self.passed[whole.direction.index()] += 1;
        self.passed[Direction::Out.index()] += u64::from(onward.is_some());
        let is_logged = self.logs_all(rule);
        let followed = |is_news| Followed { rule, is_logged, is_news };
        Some((followed(is_news), onward.map(followed)))
    }

    /// Whether the packets of a rule's states are told of.
    #[inline]
    fn logs_all(&self, rule: Option<u32>) -> bool {
        let log = rule.and_then(|rule| self.rules.get(rule)?.log);
        log.is_some_and(|log| !log.first)
    }

    /// Whether there are states.
    #[inline]
    pub fn has_states(&self) -> bool {
        self.states.len() > 0
    }

    /// Begins to look for the states of several flows together; then [`approach`](Self::approach) goes on, and [`found`](Self::found)
    /// tells. Who does something else in between does not wait for memory. Of more than [`FORESEEN_MAX`] flows only so many are looked
    /// for.
    pub fn seek(&self, flows: impl Iterator<Item = FlowNames>) -> Sought {
        self.states.seek(flows)
    }

    /// Goes on to where the states most likely are.
    #[inline]
    pub fn approach(&self, sought: &mut Sought) {
        self.states.approach(sought);
    }

    /// The state of the `nth` flow that was looked for, which has these names, if it has one.
    #[inline]
    pub fn found(&self, sought: &Sought, nth: usize, flow: FlowNames) -> Option<StateRef> {
        self.states.found(sought, nth, flow)
    }

    /// A packet of this state will be judged soon: what that needs is read before.
    #[inline]
    pub fn touch(&self, state: StateRef) {
        self.states.touch_known(state);
    }

    /// Another lane's filter has let a packet through by a state which this one's table is to have, too: what comes back to it arrives
    /// here. A state without room, or of other rules, is not made, and what comes back is asked about like anything else. It is the same
    /// conversation, which a rule's limit counts where it began.
    pub fn adopt(&mut self, packet: &Packet<'_>, rule: Option<u32>, now: Instant) {
        let keep = rule.and_then(|rule| self.rules.get(rule)).and_then(|rule| rule.keep_state);
        let belongs = self.states.take(packet, now);
        if let (Belongs::No | Belongs::Moved(_), Some(rule), Some(keep)) = (belongs, rule, keep) {
            let _ = self.states.make(packet, rule, KeepState { limit: None, ..keep }, now);
        }
    }

    fn is_for_all(&self, is_found_so: bool) -> bool {
        // An entry of a pool that ends would make it another verdict.
        is_found_so && !self.rules.keeps() && self.states.len() == 0 && self.expire_at.is_none()
    }

    /// Forgets what has ended; when to do so again.
    pub fn on_time(&mut self, now: Instant) -> Option<Instant> {
        if self.expire_at.is_some_and(|at| at <= now) {
            self.expire_at = Arc::make_mut(&mut self.pools).expire(now);
        }
        self.frags.expire(now);
        Instant::earliest([self.states.on_time(now), self.expire_at])
    }

    /// When [`on_time`](Self::on_time) has something to do.
    pub fn poll_at(&self) -> Option<Instant> {
        Instant::earliest([self.states.poll_at(), self.expire_at])
    }

    /// What it has counted.
    pub fn counts(&self) -> FilterCounts {
        FilterCounts {
            passed: self.passed,
            blocked: self.blocked,
            rules: self.rules.counts().to_vec(),
            states: self.states.counts(),
        }
    }

    /// How many entries its pools have.
    pub fn pooled(&self) -> usize {
        self.pools.len()
    }

    /// The bytes that its states take.
    pub fn allocated_bytes(&self) -> usize {
        self.states.allocated_bytes()
    }
}
