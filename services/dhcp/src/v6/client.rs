//! The client's state machine (RFC 8415 §18.2), without a socket or a clock.
//!
//! ```text
//!  idle -> soliciting -> requesting -+-> testing -> bound -> renewing -> rebinding -> soliciting
//!   |      confirming ---------------+       '-> declining -> soliciting       '-> releasing
//!   '----> informing -> informed -> informing
//! ```
//!
//! Given: what routers say is to be had here (M and O, RFC 4861 §4.2), messages, whether an address passed its test, what
//! the operator wants, and `now`. Gives [`Action`]s, which its owner carries out in order (`task.rs`), and the time of its
//! next timer. Every message goes to all servers of the link from the link-local address, so none depends on the lease.

use core::net::Ipv6Addr;
use core::time::Duration;
use std::collections::VecDeque;

use firelane_units::Instant;

use crate::outcome::{Counters, Loss};
use crate::random::Random;
use crate::v6::lease::{Lease, Network, Unusable, status};
use crate::v6::message::{Message, MessageType, Options, option};
use crate::v6::pace::{Exchange, Pace};

/// RFC 8415 §7.6: the longest wait before a first message (SOL_MAX_DELAY, INF_MAX_DELAY).
const DELAY_LONGEST: Duration = Duration::from_secs(1);
/// A server that is liked more than any other is not compared (§18.2.1).
const PREFERENCE_MOST: u8 = 255;
/// RFC 8415 §7.6, §21.23: how long network parameters hold at the least, and if their server does not say.
const REFRESH_LEAST: Duration = Duration::from_secs(600);
const REFRESH_USUAL: Duration = Duration::from_secs(86_400);
/// How long an address waits that could not be used.
const UNUSED_WAIT: Duration = Duration::from_secs(10);
/// Servers that refuse again and again are asked ever more rarely.
const REFUSED_WAIT: Duration = Duration::from_secs(1);
const REFUSED_WAIT_LONGEST: Duration = Duration::from_secs(120);

/// What a client is told at the start.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The host's identifier, in every message the same.
    pub duid: Vec<u8>,
    /// The interface's.
    pub iaid: u32,
    /// The seed of its numbers.
    pub seed: u64,
}

/// What is to be had by DHCPv6 on a link, as its routers say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wanted {
    /// Nothing.
    Nothing,
    /// Name servers and the like (O).
    Information,
    /// Addresses too (M).
    Addresses,
}

/// A lease that is in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// What the server gave.
    pub lease: Lease,
    /// When it ends.
    pub until: Instant,
    retire_at: Instant,
    renew_at: Instant,
    rebind_at: Instant,
    is_retired: bool,
}

impl Held {
    /// When its server is asked for more time.
    pub const fn renew_at(&self) -> Instant {
        self.renew_at
    }

    /// How long one asks who began to at `began` whether the lease is right, if nobody answers. T1, T2 and the end come in time.
    fn verified_until(&self, began: Instant) -> Instant {
        // All servers are asked for more time from T2 on.
        let pace = if self.rebind_at <= began { Pace::CONFIRM } else { Pace::VERIFY };
        let turns = [self.renew_at, self.rebind_at, self.until];
        turns.into_iter().filter(|at| *at > began).fold(pace.end(began), Instant::min)
    }
}

/// Where the client stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No router says that there is something to be had.
    Idle,
    /// Waits before it begins.
    Waiting,
    /// Looks for servers.
    Soliciting,
    /// Has asked one for its offer.
    Requesting,
    /// Asks whether the address of before still belongs to the link.
    Confirming,
    /// Has an address, whose test runs.
    Testing,
    /// Uses its address.
    Bound,
    /// Uses it, and asks its server for more time.
    Renewing,
    /// Uses it, and asks all servers for more time.
    Rebinding,
    /// Tells its server that another station has the address.
    Declining,
    /// Tells its server that it does not need the address any more.
    Releasing,
    /// Has given its address back.
    Released,
    /// Asks what the network is like.
    Informing,
    /// Knows what the network is like.
    Informed,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send this to all servers of the link.
    Send(Vec<u8>),
    /// Give the interface the lease's address and say how its test ended.
    Test(Lease),
    /// The lease is in force, or it is in force for longer.
    Bound(Held),
    /// Nothing new begins with its address any more.
    Retire(Lease),
    /// Take everything of this lease away.
    Lost(Lease, Loss),
    /// What the network is like, without an address.
    Informed(Network),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Idle,
    Waiting {
        at: Instant,
        wanted: Wanted,
    },
    Soliciting(Exchange, Option<(u8, Lease)>),
    Requesting(Exchange, Lease),
    Confirming(Exchange, Held),
    Testing(Held),
    Bound(Held),
    Renewing(Exchange, Held),
    Rebinding(Exchange, Held),
    /// In use, and the link may be another.
    Verifying(Exchange, Held),
    Declining(Exchange, Lease),
    Releasing(Exchange, Lease),
    Released,
    Informing(Exchange),
    Informed {
        again: Instant,
    },
}

/// A DHCPv6 client of one interface.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    state: State,
    random: Random,
    /// The lease of before, with what is left of it.
    before: Option<(Lease, Instant)>,
    /// The address of before, which is asked for again.
    last: Option<Ipv6Addr>,
    /// Refusals since the last lease.
    refusals: u32,
    /// How long the last waits of SOLICIT and INFORMATION-REQUEST are, which a server may say (§21.24, §21.25).
    longest: [Duration; 2],
    actions: VecDeque<Action>,
    counters: Counters,
}

impl Client {
    /// A client that waits for what routers say; with the lease of before and what is left of its time, or with nothing.
    pub fn new(now: Instant, config: ClientConfig, before: Option<(Lease, Duration)>) -> Self {
        let last = before.as_ref().map(|(lease, _)| lease.addr);
        let before = before.filter(|(lease, left)| lease.valid.is_none() || !left.is_zero());
        Self {
            random: Random::new(config.seed),
            config,
            state: State::Idle,
            before: before.map(|(lease, left)| {
                // A wall clock that was set meanwhile says more than there ever was.
                let until = lease.valid.map_or(Instant::FAR_FUTURE, |most| now + left.min(most));
                (lease, until)
            }),
            last,
            refusals: 0,
            longest: [Pace::SOLICIT.longest, Pace::INFORM.longest],
            actions: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Where the client stands.
    pub const fn phase(&self) -> Phase {
        match self.state {
            State::Idle => Phase::Idle,
            State::Waiting { .. } => Phase::Waiting,
            State::Soliciting(..) => Phase::Soliciting,
            State::Requesting(..) => Phase::Requesting,
            State::Confirming(..) => Phase::Confirming,
            State::Testing(_) => Phase::Testing,
            State::Bound(_) | State::Verifying(..) => Phase::Bound,
            State::Renewing(..) => Phase::Renewing,
            State::Rebinding(..) => Phase::Rebinding,
            State::Declining(..) => Phase::Declining,
            State::Releasing(..) => Phase::Releasing,
            State::Released => Phase::Released,
            State::Informing(_) => Phase::Informing,
            State::Informed { .. } => Phase::Informed,
        }
    }

    /// The lease in force.
    pub const fn held(&self) -> Option<&Held> {
        match &self.state {
            State::Bound(held)
            | State::Renewing(_, held)
            | State::Rebinding(_, held)
            | State::Verifying(_, held) => Some(held),
            _ => None,
        }
    }

    /// What the client has seen.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// When [`poll`](Self::poll) has something.
    pub fn poll_at(&self) -> Option<Instant> {
        if !self.actions.is_empty() {
            return Some(Instant::ZERO);
        }
        let own = match &self.state {
            State::Idle | State::Released => return None,
            State::Waiting { at, .. } | State::Informed { again: at } => *at,
            State::Soliciting(it, _)
            | State::Requesting(it, _)
            | State::Confirming(it, _)
            | State::Declining(it, _)
            | State::Releasing(it, _)
            | State::Informing(it)
            | State::Verifying(it, _)
            | State::Rebinding(it, _) => it.next,
            State::Testing(held) => held.until,
            State::Bound(held) => held.renew_at,
            State::Renewing(it, held) => it.next.min(held.rebind_at),
        };
        let lease =
            self.held().map(|held| if held.is_retired { held.until } else { held.until.min(held.retire_at) });
        Some(lease.map_or(own, |at| at.min(own)))
    }

    /// The next thing to do.
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        if self.actions.is_empty() && self.poll_at().is_some_and(|at| at <= now) {
            self.on_timer(now);
        }
        self.actions.pop_front()
    }

    /// What routers say is to be had. What has begun goes on: a router that says less takes nothing away (RFC 4862 §5.5.3
    /// leaves it to the client).
    pub fn set_wanted(&mut self, now: Instant, wanted: Wanted) {
        let is_more = match self.state {
            State::Idle => wanted > Wanted::Nothing,
            State::Informing(_) | State::Informed { .. } => wanted > Wanted::Information,
            State::Waiting { wanted: already, .. } => wanted > already,
            _ => false,
        };
        if is_more {
            // §18.2.1: hosts that hear a router together do not ask together.
            self.state = State::Waiting { at: now + self.random.up_to(DELAY_LONGEST), wanted };
        }
    }

    /// How the test of the lease's address ended, or that another station claims one that is in use.
    pub fn on_tested(&mut self, now: Instant, addr: Ipv6Addr, is_free: bool) {
        let held = match &self.state {
            State::Testing(held) => Some(held),
            _ if !is_free => self.held(),
            _ => None,
        };
        let Some(held) = held.filter(|held| held.lease.addr == addr).cloned() else { return };
        if is_free {
            self.refusals = 0;
            return self.bind(held);
        }
        self.counters.declined += 1;
        self.end(Loss::Conflict);
        self.last = None;
        let it = Exchange::new(now, &mut self.random);
        self.decline(now, it, held.lease);
    }

    /// The interface could not be given the address for a reason of our own, of which its server need not hear: it keeps
    /// the lease, and is asked for it again after a while.
    pub fn put_off(&mut self, now: Instant) {
        if let State::Testing(held) = &self.state {
            self.last = Some(held.lease.addr);
            self.state = State::Waiting { at: now + UNUSED_WAIT, wanted: Wanted::Addresses };
        }
    }

    /// The operator wants to know at once whether what he has still holds, or something again that he has given back.
    pub fn refresh(&mut self, now: Instant) {
        match self.state.clone() {
            State::Bound(held) | State::Renewing(_, held) => self.renew(now, held),
            State::Rebinding(_, held) => self.rebind(now, held),
            State::Released | State::Waiting { wanted: Wanted::Addresses, .. } => self.solicit_anew(now),
            State::Informed { .. } => self.inform_anew(now),
            // It asks already, but perhaps not for minutes.
            State::Verifying(..) => self.verify(now),
            // It asks already, or there is nobody to ask.
            _ => {}
        }
    }

    /// The link was away, and may be another: whether the lease is right there is asked at once, then ever more rarely, and it is used until
    /// somebody says that it is not (§18.2.12). Who has none asks anew.
    pub fn verify(&mut self, now: Instant) {
        match self.state.clone() {
            State::Bound(held)
            | State::Renewing(_, held)
            | State::Rebinding(_, held)
            | State::Verifying(_, held) => {
                let it = Exchange::new(now, &mut self.random);
                self.ask_whether_it_holds(now, it, held);
            }
            State::Soliciting(..) | State::Requesting(..) => self.solicit_anew(now),
            State::Informing(_) | State::Informed { .. } => self.inform_anew(now),
            _ => {}
        }
    }

    /// The operator gives the address back.
    pub fn release(&mut self, now: Instant) {
        let lease = self.held().map(|held| held.lease.clone());
        self.end(Loss::Released);
        match lease {
            Some(lease) => {
                let it = Exchange::new(now, &mut self.random);
                self.give_back(now, it, lease);
            }
            None => self.state = State::Released,
        }
    }
}

/// What happens without a message.
impl Client {
    fn on_timer(&mut self, now: Instant) {
        if self.held().is_some_and(|held| held.until <= now) {
            return self.lose(now, Loss::Expired);
        }
        if let State::Bound(held)
        | State::Renewing(_, held)
        | State::Rebinding(_, held)
        | State::Verifying(_, held) = &mut self.state
            && !held.is_retired
            && held.retire_at <= now
        {
            held.is_retired = true;
            return self.actions.push_back(Action::Retire(held.lease.clone()));
        }
        match self.state.clone() {
            State::Idle | State::Released => {}
            State::Waiting { wanted: Wanted::Addresses, .. } => self.begin(now),
            State::Waiting { .. } | State::Informed { .. } => self.inform_anew(now),
            State::Soliciting(_, Some((_, offer))) => self.request_anew(now, offer),
            State::Soliciting(it, None) => self.solicit(now, it),
            State::Requesting(it, _) if Pace::REQUEST.is_over(now, &it) => self.solicit_anew(now),
            State::Requesting(it, offer) => self.request(now, it, offer),
            State::Confirming(it, held) if Pace::CONFIRM.is_over(now, &it) => self.use_again(now, held),
            State::Confirming(it, held) => self.confirm(now, it, held),
            State::Testing(_) => self.lose(now, Loss::Expired),
            State::Bound(held) | State::Renewing(_, held) if held.rebind_at <= now => self.rebind(now, held),
            State::Bound(held) => self.renew(now, held),
            State::Renewing(it, held) => self.ask_renewal(now, it, held),
            State::Rebinding(it, held) => self.ask_rebinding(now, it, held),
            // Nobody answers, and nobody has said that it is not right.
            State::Verifying(it, held) if held.verified_until(it.begun) <= now => self.use_on(now, held),
            State::Verifying(it, held) => self.ask_whether_it_holds(now, it, held),
            State::Declining(it, _) if Pace::DECLINE.is_over(now, &it) => self.solicit_anew(now),
            State::Declining(it, lease) => self.decline(now, it, lease),
            State::Releasing(it, _) if Pace::RELEASE.is_over(now, &it) => self.state = State::Released,
            State::Releasing(it, lease) => self.give_back(now, it, lease),
            State::Informing(it) => self.inform(now, it),
        }
    }

    /// With the lease of before, if there is one, else with nothing.
    fn begin(&mut self, now: Instant) {
        let Some((lease, until)) = self.before.take().filter(|(_, until)| *until > now) else {
            return self.solicit_anew(now);
        };
        let held =
            Held { lease, until, retire_at: until, renew_at: now, rebind_at: until, is_retired: false };
        let it = Exchange::new(now, &mut self.random);
        self.confirm(now, it, held);
    }

    fn solicit_anew(&mut self, now: Instant) {
        let it = Exchange::new(now, &mut self.random);
        self.solicit(now, it);
    }

    fn solicit(&mut self, now: Instant, it: Exchange) {
        let last = self.last;
        let pace = Pace::SOLICIT.up_to(self.longest[0]);
        let it = self.send(now, it, pace, MessageType::Solicit, None, Some(last));
        self.state = State::Soliciting(it, None);
    }

    fn request_anew(&mut self, now: Instant, offer: Lease) {
        let it = Exchange::new(now, &mut self.random);
        self.request(now, it, offer);
    }

    fn request(&mut self, now: Instant, it: Exchange, offer: Lease) {
        let it = self.send(
            now,
            it,
            Pace::REQUEST,
            MessageType::Request,
            Some(&offer.server),
            Some(Some(offer.addr)),
        );
        self.state = State::Requesting(it, offer);
    }

    fn confirm(&mut self, now: Instant, it: Exchange, held: Held) {
        let it = self.ask_confirmation(now, it, Pace::CONFIRM, held.lease.addr);
        self.state = State::Confirming(it, held);
    }

    fn ask_whether_it_holds(&mut self, now: Instant, it: Exchange, held: Held) {
        let mut it = self.ask_confirmation(now, it, Pace::VERIFY, held.lease.addr);
        it.next = it.next.min(held.verified_until(it.begun));
        self.state = State::Verifying(it, held);
    }

    fn ask_confirmation(&mut self, now: Instant, it: Exchange, pace: Pace, addr: Ipv6Addr) -> Exchange {
        self.send(now, it, pace, MessageType::Confirm, None, Some(Some(addr)))
    }

    /// The lease is used, and asked for more time if it is time.
    fn use_on(&mut self, now: Instant, held: Held) {
        let is_time = held.renew_at <= now;
        self.state = State::Bound(held);
        if is_time {
            self.on_timer(now);
        }
    }

    fn renew(&mut self, now: Instant, held: Held) {
        let it = Exchange::new(now, &mut self.random);
        self.ask_renewal(now, it, held);
    }

    fn ask_renewal(&mut self, now: Instant, it: Exchange, held: Held) {
        let server = Some(held.lease.server.as_slice());
        let it = self.send(now, it, Pace::RENEW, MessageType::Renew, server, Some(Some(held.lease.addr)));
        self.state = State::Renewing(it, held);
    }

    fn rebind(&mut self, now: Instant, held: Held) {
        let it = Exchange::new(now, &mut self.random);
        self.ask_rebinding(now, it, held);
    }

    fn ask_rebinding(&mut self, now: Instant, it: Exchange, held: Held) {
        let it = self.send(now, it, Pace::REBIND, MessageType::Rebind, None, Some(Some(held.lease.addr)));
        self.state = State::Rebinding(it, held);
    }

    fn decline(&mut self, now: Instant, it: Exchange, lease: Lease) {
        let it = self.send(
            now,
            it,
            Pace::DECLINE,
            MessageType::Decline,
            Some(&lease.server),
            Some(Some(lease.addr)),
        );
        self.state = State::Declining(it, lease);
    }

    fn give_back(&mut self, now: Instant, it: Exchange, lease: Lease) {
        let it = self.send(
            now,
            it,
            Pace::RELEASE,
            MessageType::Release,
            Some(&lease.server),
            Some(Some(lease.addr)),
        );
        self.state = State::Releasing(it, lease);
    }

    fn inform_anew(&mut self, now: Instant) {
        let it = Exchange::new(now, &mut self.random);
        self.inform(now, it);
    }

    fn inform(&mut self, now: Instant, it: Exchange) {
        let pace = Pace::INFORM.up_to(self.longest[1]);
        let it = self.send(now, it, pace, MessageType::InformationRequest, None, None);
        self.state = State::Informing(it);
    }

    /// What is left of the lease of before is used, and asked for more time at once. T2 and the preferred lifetime end where
    /// the server said: as long before the end of the lease as they did when it was given.
    fn use_again(&mut self, now: Instant, held: Held) {
        if held.until <= now {
            return self.solicit_anew(now);
        }
        let Lease { valid, preferred, rebind, .. } = held.lease;
        let at = |span: Duration| {
            valid.map_or(Instant::FAR_FUTURE, |valid| {
                now + held.until.saturating_since(now).saturating_sub(valid.saturating_sub(span))
            })
        };
        let (rebind_at, retire_at) = (at(rebind), at(preferred.unwrap_or(Duration::MAX)));
        self.test(Held { renew_at: now, rebind_at, retire_at, ..held });
    }

    fn lose(&mut self, now: Instant, why: Loss) {
        self.end(why);
        self.solicit_anew(now);
    }

    /// Everything of the lease goes, if there is one that its owner was told of, or remembers.
    fn end(&mut self, why: Loss) {
        if let State::Confirming(_, held)
        | State::Testing(held)
        | State::Bound(held)
        | State::Renewing(_, held)
        | State::Rebinding(_, held)
        | State::Verifying(_, held) = &self.state
        {
            self.actions.push_back(Action::Lost(held.lease.clone(), why));
        }
    }

    fn test(&mut self, held: Held) {
        self.actions.push_back(Action::Test(held.lease.clone()));
        self.state = State::Testing(held);
    }

    fn bind(&mut self, held: Held) {
        self.last = Some(held.lease.addr);
        self.actions.push_back(Action::Bound(held.clone()));
        self.state = State::Bound(held);
    }
}

/// What servers say.
impl Client {
    /// A message that arrived at the client's port.
    pub fn on_message(&mut self, now: Instant, bytes: &[u8]) {
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(_) => return self.counters.malformed += 1,
        };
        if !self.is_for_us(&message) {
            return self.counters.unasked += 1;
        }
        let counted = self.counters;
        match message.kind {
            MessageType::Advertise => self.on_advertise(now, &message.options),
            MessageType::Reply => self.on_reply(now, &message.options),
            _ => self.counters.unasked += 1,
        }
        if self.counters == counted {
            self.counters.used += 1;
        }
    }

    /// The exchange whose answer the client waits for.
    pub const fn open(&self) -> Option<u32> {
        match &self.state {
            State::Soliciting(it, _)
            | State::Requesting(it, _)
            | State::Confirming(it, _)
            | State::Renewing(it, _)
            | State::Rebinding(it, _)
            | State::Verifying(it, _)
            | State::Declining(it, _)
            | State::Releasing(it, _)
            | State::Informing(it) => Some(it.xid),
            _ => None,
        }
    }

    fn is_for_us(&self, message: &Message) -> bool {
        // RFC 8415 §16.3, §16.10.
        let is_ours = message.options.get(option::CLIENT_ID) == Some(self.config.duid.as_slice());
        self.open() == Some(message.xid) && is_ours && message.options.get(option::SERVER_ID).is_some()
    }

    fn on_advertise(&mut self, now: Instant, options: &Options) {
        let State::Soliciting(it, best) = &self.state else { return self.counters.unasked += 1 };
        let (it, best) = (*it, best.clone());
        self.hear_limits(options);
        let offer = match Lease::read(options, self.config.iaid) {
            Ok(offer) => offer,
            Err(why) => return self.refuse(why),
        };
        let preference = options.get(option::PREFERENCE).and_then(<[u8]>::first).copied().unwrap_or(0);
        // §18.2.9: after the first wait whoever answers is taken.
        if preference == PREFERENCE_MOST || it.sent > 1 {
            return self.request_anew(now, offer);
        }
        if best.is_none_or(|(liked, _)| preference > liked) {
            self.state = State::Soliciting(it, Some((preference, offer)));
        }
    }

    fn on_reply(&mut self, now: Instant, options: &Options) {
        self.hear_limits(options);
        match self.state.clone() {
            State::Requesting(_, offer) => match self.read_of(options, Some(&offer)) {
                Ok(lease) => {
                    let held = self.hold(now, lease);
                    self.test(held);
                }
                Err(Some(Unusable::Status(_) | Unusable::NoAddress)) => self.begin_again(now),
                Err(_) => {}
            },
            State::Confirming(_, held) | State::Verifying(_, held) => match options.status() {
                status::SUCCESS if self.held().is_some() => self.use_on(now, held),
                status::SUCCESS => self.use_again(now, held),
                status::NOT_ON_LINK => {
                    self.end(Loss::Refused);
                    self.begin_again(now);
                }
                code => self.refuse(Unusable::Status(code)),
            },
            State::Renewing(_, held) => self.on_extended(now, options, &held, true),
            State::Rebinding(_, held) => self.on_extended(now, options, &held, false),
            State::Declining(..) => self.solicit_anew(now),
            State::Releasing(..) => self.state = State::Released,
            // What it could not do, it says nothing of.
            State::Informing(_) if options.status() != status::SUCCESS => {
                self.refuse(Unusable::Status(options.status()));
            }
            State::Informing(_) => {
                let seconds = options.number(option::REFRESH).map(|it| Duration::from_secs(it.into()));
                let again = now + seconds.unwrap_or(REFRESH_USUAL).max(REFRESH_LEAST);
                self.actions.push_back(Action::Informed(Network::read(options)));
                self.state = State::Informed { again };
            }
            _ => self.counters.unasked += 1,
        }
    }

    fn on_extended(&mut self, now: Instant, options: &Options, held: &Held, same_server: bool) {
        match self.read_of(options, same_server.then_some(&held.lease)) {
            Ok(lease) if lease.addr == held.lease.addr => {
                let held = self.hold(now, lease);
                self.bind(held);
            }
            Ok(lease) => {
                self.end(Loss::Replaced);
                let held = self.hold(now, lease);
                self.test(held);
            }
            // We differ: §18.2.10.1 lets a client use an address of which its server knows nothing while it asks for it
            // again; the server may give it to another meanwhile.
            Err(Some(Unusable::Status(status::NO_BINDING | status::NOT_ON_LINK) | Unusable::NoAddress)) => {
                self.end(Loss::Refused);
                self.begin_again(now);
            }
            Err(_) => {}
        }
    }

    /// What a REPLY gives; it must be of the server that gave `asked`. `Err(None)` if it is not.
    fn read_of(&mut self, options: &Options, asked: Option<&Lease>) -> Result<Lease, Option<Unusable>> {
        if asked.is_some_and(|asked| options.get(option::SERVER_ID) != Some(asked.server.as_slice())) {
            self.counters.unasked += 1;
            return Err(None);
        }
        Lease::read(options, self.config.iaid).map_err(|why| {
            self.refuse(why);
            Some(why)
        })
    }

    /// A server refuses: the first refusal is what a client that has moved expects, the next ones are a quarrel.
    fn begin_again(&mut self, now: Instant) {
        self.counters.refused += 1;
        self.last = None;
        let wait = match self.refusals {
            0 => Duration::ZERO,
            n => (REFUSED_WAIT * 2_u32.saturating_pow(n.min(8) - 1)).min(REFUSED_WAIT_LONGEST),
        };
        self.refusals += 1;
        self.state = State::Waiting { at: now + wait, wanted: Wanted::Addresses };
    }

    fn refuse(&mut self, why: Unusable) {
        tracing::warn!("DHCPv6: {why}");
        self.counters.unusable += 1;
    }

    /// RFC 8415 §21.24, §21.25: servers say how rarely they want to be asked; other values are ignored.
    fn hear_limits(&mut self, options: &Options) {
        for (code, longest) in [option::SOL_MAX_RT, option::INF_MAX_RT].into_iter().zip(&mut self.longest) {
            if let Some(seconds) = options.number(code).filter(|it| (60..=86_400).contains(it)) {
                *longest = Duration::from_secs(seconds.into());
            }
        }
    }

    /// A lease that was given now: T1 and T2 are spread.
    fn hold(&mut self, now: Instant, lease: Lease) -> Held {
        let end = |span: Option<Duration>| span.map_or(Instant::FAR_FUTURE, |span| now + span);
        let mut early = |at: Duration| match at {
            Duration::MAX => Instant::FAR_FUTURE,
            at => now + at.saturating_sub(self.random.up_to(at / 32)),
        };
        let (renew_at, rebind_at) = (early(lease.renew), early(lease.rebind));
        let (until, retire_at) = (end(lease.valid), end(lease.preferred));
        Held { until, retire_at, renew_at: renew_at.min(rebind_at), rebind_at, is_retired: false, lease }
    }
}

/// What every message has.
impl Client {
    /// Sends a message of an exchange: to the server that it names, about an association with an address, with none, or
    /// about none.
    fn send(
        &mut self,
        now: Instant,
        it: Exchange,
        pace: Pace,
        kind: MessageType,
        server: Option<&[u8]>,
        association: Option<Option<Ipv6Addr>>,
    ) -> Exchange {
        let mut message = Message::new(kind, it.xid);
        message.options.add(option::CLIENT_ID, self.config.duid.clone());
        if let Some(server) = server {
            message.options.add(option::SERVER_ID, server);
        }
        message.options.add(option::ELAPSED, it.elapsed(now).to_be_bytes());
        if let Some(addr) = association {
            message.options.add(option::IA_NA, association_of(self.config.iaid, addr));
        }
        let asks = !matches!(kind, MessageType::Confirm | MessageType::Decline | MessageType::Release);
        if asks {
            const WISHES: [u16; 4] =
                [option::NAME_SERVERS, option::DOMAINS, option::SOL_MAX_RT, option::INF_MAX_RT];
            // §21.23: the time after which one asks again is asked for where it means something.
            let more = (kind == MessageType::InformationRequest).then_some(option::REFRESH);
            let wishes: Vec<u8> = WISHES.into_iter().chain(more).flat_map(u16::to_be_bytes).collect();
            message.options.add(option::REQUESTED, wishes);
        }
        self.counters.sent += 1;
        self.actions.push_back(Action::Send(message.emit()));
        pace.next(now, it, &mut self.random)
    }
}

/// An association with the address that is wanted or meant (RFC 8415 §21.4; times are the server's to say).
fn association_of(iaid: u32, addr: Option<Ipv6Addr>) -> Vec<u8> {
    let mut value = iaid.to_be_bytes().to_vec();
    value.extend([0; 8]);
    if let Some(addr) = addr {
        let mut inner = Options::default();
        inner.add(option::IA_ADDR, [&addr.octets()[..], &[0; 8]].concat());
        inner.emit(&mut value);
    }
    value
}

#[cfg(test)]
mod tests;
