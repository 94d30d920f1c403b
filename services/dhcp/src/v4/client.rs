//! The client's state machine (RFC 2131 §4.4, figure 5), without a socket or a clock.
//!
//! ```text
//!  INIT -> SELECTING -> REQUESTING -+-> testing -> BOUND -> RENEWING -> REBINDING -> INIT
//!          INIT-REBOOT/REBOOTING ---+
//! ```
//!
//! Given: messages, whether an address passed its test (RFC 5227), what the operator wants, and `now`. Gives
//! [`Action`]s, which its owner carries out in order (`task.rs`), and the time of its next timer. Of several offers the
//! first is taken: the DISCOVER names the address that the client had, for any server to offer it. A server that is not the
//! one asked is not believed.

use core::net::Ipv4Addr;
use core::time::Duration;
use std::collections::VecDeque;

use firelane_units::{Instant, MacAddr};

use crate::outcome::{Counters, Loss};
use crate::random::Random;
use crate::v4::lease::{Lease, Unusable};
use crate::v4::message::{Message, MessageType, option};

/// RFC 2131 §4.1: the first wait for an answer; it doubles up to the longest, and is spread by a second.
const RETRY_FIRST: Duration = Duration::from_secs(4);
const RETRY_LONGEST: Duration = Duration::from_secs(64);
const RETRY_SPREAD: Duration = Duration::from_secs(1);
/// RFC 2131 §3.1 step 5: a request is sent so often, which is a minute, before all begins again.
const REQUESTS: u32 = 4;
/// How often a server is asked about the address of before; then an address that is still ours is used (§3.2 step 4).
const REBOOT_REQUESTS: u32 = 2;
/// Whether a lease holds where the link leads now is asked for so long: a switch's port may forward only after half a minute,
/// and a lease of another network may last for days.
const VERIFY_TIME: Duration = Duration::from_secs(600);
/// So often at the pace of every other question, and then so rarely.
const VERIFY_REQUESTS: u32 = 5;
const VERIFY_RARE: Duration = Duration::from_secs(180);
/// So long if T2 is over: all servers are asked for more time then.
const VERIFY_LATE: Duration = Duration::from_secs(12);
/// §4.4.5: the least time between two requests of a client that has its address.
const EXTEND_LEAST: Duration = Duration::from_secs(60);
/// §3.1 step 5: the least wait after an address was declined; and how long one waits that could not be used.
const DECLINE_WAIT: Duration = Duration::from_secs(10);
/// Servers that refuse again and again are asked ever more rarely.
const REFUSED_WAIT: Duration = Duration::from_secs(1);
const REFUSED_WAIT_LONGEST: Duration = Duration::from_secs(64);

/// The longest message that is taken: what one Ethernet packet carries.
pub(super) const LONGEST_MESSAGE: u16 = 1472;

/// §4.1: how long an answer to a message is waited for that was sent so often before.
pub(super) fn wait_for_answer(random: &mut Random, sent: u32) -> Duration {
    let wait = (RETRY_FIRST * 2_u32.saturating_pow(sent.min(8))).min(RETRY_LONGEST);
    random.around(wait, RETRY_SPREAD)
}

/// What a client is told at the start.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The interface's Ethernet address.
    pub mac: MacAddr,
    /// Who the client is, in every message the same (RFC 4361).
    pub id: Vec<u8>,
    /// The name that the client asks for.
    pub host_name: Option<String>,
    /// Whether the interface has an address of the link alone while there is no lease (RFC 3927); its task's to do.
    pub link_local: bool,
    /// The seed of its numbers.
    pub seed: u64,
}

/// A lease that is in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// What the server gave.
    pub lease: Lease,
    /// When it ends.
    pub until: Instant,
    renew_at: Instant,
    rebind_at: Instant,
}

impl Held {
    /// When its server is asked for more time.
    pub const fn renew_at(&self) -> Instant {
        self.renew_at
    }

    /// How long one asks who began to at `began` whether the lease holds, if nobody answers. T1, T2 and the end come in time.
    fn verified_until(&self, began: Instant) -> Instant {
        let longest = if self.rebind_at <= began { VERIFY_LATE } else { VERIFY_TIME };
        let turns = [self.renew_at, self.rebind_at, self.until];
        turns.into_iter().filter(|at| *at > began).fold(began + longest, Instant::min)
    }
}

/// Where the client stands (RFC 2131 figure 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Waits before it begins.
    Init,
    /// Looks for servers.
    Selecting,
    /// Has asked one for its offer.
    Requesting,
    /// Asks for the address of before.
    Rebooting,
    /// Has an address, whose test runs.
    Testing,
    /// Uses its address.
    Bound,
    /// Uses it, and asks its server for more time.
    Renewing,
    /// Uses it, and asks all servers for more time.
    Rebinding,
    /// Has given its address back.
    Released,
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send this to everybody on the link, from no address.
    Broadcast(Vec<u8>),
    /// Send this to a server, from the leased address.
    Unicast(Ipv4Addr, Vec<u8>),
    /// Give the interface the lease's address and say how its test ended.
    Test(Lease),
    /// The lease is in force, or it is in force for longer.
    Bound(Held),
    /// Take everything of this lease away.
    Lost(Lease, Loss),
}

/// One exchange: its number, and when it is asked again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Exchange {
    xid: u32,
    begun: Instant,
    sent: u32,
    next: Instant,
    /// The operator waits for the answer.
    is_urgent: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Init {
        at: Instant,
    },
    Selecting(Exchange),
    Requesting(Exchange, Lease),
    Rebooting(Exchange, Held),
    Testing(Held),
    Bound(Held),
    Renewing(Exchange, Held),
    Rebinding(Exchange, Held),
    /// In use, and asked for as after a start: the network may be another.
    Verifying(Exchange, Held),
    Released,
}

/// A DHCPv4 client of one interface.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    state: State,
    random: Random,
    /// When the client began to look for an address: what its messages say in `secs`.
    began: Instant,
    /// The address of before, which is asked for again.
    last: Option<Ipv4Addr>,
    /// Refusals since the last lease.
    refusals: u32,
    actions: VecDeque<Action>,
    counters: Counters,
}

impl Client {
    /// A client that begins at `now`: with the lease of before, whose rest of time is given, or with nothing.
    pub fn new(now: Instant, config: ClientConfig, before: Option<(Lease, Duration)>) -> Self {
        let mut client = Self {
            random: Random::new(config.seed),
            config,
            state: State::Init { at: now },
            began: now,
            last: None,
            refusals: 0,
            actions: VecDeque::new(),
            counters: Counters::default(),
        };
        match before {
            Some((lease, left)) if lease.time.is_none() || !left.is_zero() => client.reboot(now, lease, left),
            Some((lease, _)) => client.last = Some(lease.addr),
            None => {}
        }
        client
    }

    /// Where the client stands.
    pub const fn phase(&self) -> Phase {
        match self.state {
            State::Init { .. } => Phase::Init,
            State::Selecting(_) => Phase::Selecting,
            State::Requesting(..) => Phase::Requesting,
            State::Rebooting(..) => Phase::Rebooting,
            State::Testing(_) => Phase::Testing,
            State::Bound(_) | State::Verifying(..) => Phase::Bound,
            State::Renewing(..) => Phase::Renewing,
            State::Rebinding(..) => Phase::Rebinding,
            State::Released => Phase::Released,
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
        match &self.state {
            State::Init { at } => Some(*at),
            State::Selecting(it) | State::Requesting(it, _) | State::Rebooting(it, _) => Some(it.next),
            State::Testing(held) => Some(held.until),
            State::Bound(held) => Some(held.renew_at),
            State::Renewing(it, held) => Some(it.next.min(held.rebind_at)),
            State::Rebinding(it, held) | State::Verifying(it, held) => Some(it.next.min(held.until)),
            State::Released => None,
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self, now: Instant) -> Option<Action> {
        if self.actions.is_empty() && self.poll_at().is_some_and(|at| at <= now) {
            self.on_timer(now);
        }
        self.actions.pop_front()
    }

    /// A message that arrived at the client's port.
    pub fn on_message(&mut self, now: Instant, bytes: &[u8]) {
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(_) => return self.counters.malformed += 1,
        };
        if !self.is_for_us(&message) {
            return self.counters.unasked += 1;
        }
        match message.kind {
            MessageType::Offer => self.on_offer(now, &message),
            MessageType::Ack => self.on_ack(now, &message),
            MessageType::Nak => self.on_nak(now, &message),
            _ => self.counters.unasked += 1,
        }
    }

    /// How the test of the lease's address ended. Also a conflict later on, which the netstack could not defend
    /// against (RFC 5227 §2.4).
    pub fn on_tested(&mut self, now: Instant, addr: Ipv4Addr, is_free: bool) {
        let held = match &self.state {
            State::Testing(held) => Some(held),
            _ if !is_free => self.held(),
            _ => None,
        };
        let Some(held) = held.filter(|held| held.lease.addr == addr).cloned() else { return };
        if is_free {
            self.refusals = 0;
            self.bind(held);
        } else {
            self.decline(now, held.lease);
        }
    }

    /// The interface could not be given the address for a reason of our own, of which its server need not hear: it keeps
    /// the lease, and is asked for it again after a while.
    pub fn put_off(&mut self, now: Instant) {
        if let State::Testing(held) = &self.state {
            self.last = Some(held.lease.addr);
            self.state = State::Init { at: now + DECLINE_WAIT };
        }
    }

    /// The operator wants another host name: it is asked for from the next message on.
    pub fn rename(&mut self, host_name: Option<String>) {
        self.config.host_name = host_name;
    }

    /// The operator wants to know at once whether the lease still holds, or one again that he has given back.
    pub fn refresh(&mut self, now: Instant) {
        match self.state.clone() {
            State::Bound(held) | State::Renewing(_, held) => {
                let it = Exchange { is_urgent: true, ..self.exchange(now) };
                self.renew(now, it, held);
            }
            State::Rebinding(_, held) => {
                let it = Exchange { is_urgent: true, ..self.exchange(now) };
                self.rebind(now, it, held);
            }
            // It asks already, but perhaps not for minutes.
            State::Verifying(..) => self.verify(now),
            State::Released => self.begin(now),
            // It asks already, or waits because it must.
            _ => {}
        }
    }

    /// The link was away, and may lead to another network: whether the lease holds there is asked at once, then ever more rarely, and it is
    /// used until somebody says that it does not (§3.7). Who has none asks anew.
    pub fn verify(&mut self, now: Instant) {
        match self.state.clone() {
            State::Bound(held)
            | State::Renewing(_, held)
            | State::Rebinding(_, held)
            | State::Verifying(_, held) => {
                self.began = now;
                let it = self.exchange(now);
                self.ask_whether_it_holds(now, it, held);
            }
            State::Selecting(_) | State::Requesting(..) => self.begin(now),
            // It asks already, or waits because it must.
            _ => {}
        }
    }

    /// The operator gives the address back.
    pub fn release(&mut self) {
        if let Some(held) = self.held() {
            let lease = held.lease.clone();
            let xid = self.random.draw() as u32;
            let mut message = self.message(MessageType::Release, xid);
            message.client = lease.addr;
            message.options.insert(option::SERVER, lease.server.octets().to_vec());
            self.send(Action::Unicast(lease.server, message.emit()));
        }
        self.end(Loss::Released);
        self.state = State::Released;
    }
}

/// What happens without a message.
impl Client {
    fn on_timer(&mut self, now: Instant) {
        match self.state.clone() {
            State::Init { .. } => self.begin(now),
            State::Selecting(it) => self.discover(now, it),
            State::Requesting(it, _) if it.sent >= REQUESTS => self.begin(now),
            State::Requesting(it, offer) => self.request(now, it, offer),
            State::Rebooting(it, held) if it.sent >= REBOOT_REQUESTS => self.use_again(now, held),
            State::Rebooting(it, held) => self.ask_again(now, it, held),
            State::Testing(_) => self.lose(now, Loss::Expired),
            State::Bound(held) | State::Renewing(_, held) if held.rebind_at <= now => {
                let it = self.exchange(now);
                self.rebind(now, it, held);
            }
            State::Bound(held) => {
                let it = self.exchange(now);
                self.renew(now, it, held);
            }
            State::Renewing(it, held) => {
                let it = self.extend(now, it, &held, Some(held.lease.server));
                self.state = State::Renewing(it, held);
            }
            State::Rebinding(_, held) if held.until <= now => self.lose(now, Loss::Expired),
            State::Rebinding(it, held) => {
                let it = self.extend(now, it, &held, None);
                self.state = State::Rebinding(it, held);
            }
            State::Verifying(_, held) if held.until <= now => self.lose(now, Loss::Expired),
            // Nobody answers, and nobody has said that it does not hold.
            State::Verifying(_, held) if held.verified_until(self.began) <= now => self.use_on(now, held),
            State::Verifying(it, held) => self.ask_whether_it_holds(now, it, held),
            State::Released => {}
        }
    }

    fn begin(&mut self, now: Instant) {
        self.began = now;
        let it = self.exchange(now);
        self.discover(now, it);
    }

    fn discover(&mut self, now: Instant, it: Exchange) {
        let mut message = self.message(MessageType::Discover, it.xid);
        self.say_when(now, &mut message);
        self.add_wishes(&mut message);
        if let Some(last) = self.last {
            message.options.insert(option::REQUESTED_ADDRESS, last.octets().to_vec());
        }
        self.send(Action::Broadcast(message.emit()));
        self.state = State::Selecting(self.sent(now, it));
    }

    fn request(&mut self, now: Instant, it: Exchange, offer: Lease) {
        let mut message = self.message(MessageType::Request, it.xid);
        self.say_when(now, &mut message);
        self.add_wishes(&mut message);
        message.options.insert(option::REQUESTED_ADDRESS, offer.addr.octets().to_vec());
        message.options.insert(option::SERVER, offer.server.octets().to_vec());
        self.send(Action::Broadcast(message.emit()));
        self.state = State::Requesting(self.sent(now, it), offer);
    }

    fn reboot(&mut self, now: Instant, lease: Lease, left: Duration) {
        // A wall clock that was set meanwhile says more than there ever was.
        let until = lease.time.map_or(Instant::FAR_FUTURE, |most| now + left.min(most));
        let held = Held { lease, until, renew_at: now, rebind_at: now };
        self.last = Some(held.lease.addr);
        let it = self.exchange(now);
        self.ask_again(now, it, held);
    }

    fn ask_again(&mut self, now: Instant, it: Exchange, held: Held) {
        let it = self.ask_for(now, it, held.lease.addr);
        self.state = State::Rebooting(it, held);
    }

    fn ask_whether_it_holds(&mut self, now: Instant, it: Exchange, held: Held) {
        // They are so far apart then that an answer is to the last one: what it gives counts from there.
        let it =
            if it.sent < REBOOT_REQUESTS { it } else { Exchange { sent: it.sent, ..self.exchange(now) } };
        let mut it = self.ask_for(now, it, held.lease.addr);
        if it.sent > VERIFY_REQUESTS {
            it.next = now + self.random.around(VERIFY_RARE, RETRY_SPREAD);
        }
        it.next = it.next.min(held.verified_until(self.began));
        self.state = State::Verifying(it, held);
    }

    /// The lease is used, and asked for more time if it is time.
    fn use_on(&mut self, now: Instant, held: Held) {
        let is_time = held.renew_at <= now;
        self.state = State::Bound(held);
        if is_time {
            self.on_timer(now);
        }
    }

    /// Asks all servers whether the address of before is right here.
    fn ask_for(&mut self, now: Instant, it: Exchange, addr: Ipv4Addr) -> Exchange {
        let mut message = self.message(MessageType::Request, it.xid);
        self.say_when(now, &mut message);
        self.add_wishes(&mut message);
        message.options.insert(option::REQUESTED_ADDRESS, addr.octets().to_vec());
        self.send(Action::Broadcast(message.emit()));
        self.sent(now, it)
    }

    /// No server answers: what is left of the lease is used, and asked for more time at once (§3.2 step 4).
    fn use_again(&mut self, now: Instant, held: Held) {
        if held.until <= now {
            return self.begin(now);
        }
        // T2 is where the server said; whom the lease came from is asked at once until then, because nobody has confirmed it.
        let rebind_at = held.lease.time.map_or(Instant::FAR_FUTURE, |time| {
            let behind = time.saturating_sub(held.lease.rebind);
            now + held.until.saturating_since(now).saturating_sub(behind)
        });
        self.test(Held { renew_at: now, rebind_at, ..held });
    }

    fn renew(&mut self, now: Instant, it: Exchange, held: Held) {
        let it = self.extend(now, it, &held, Some(held.lease.server));
        self.state = State::Renewing(it, held);
    }

    fn rebind(&mut self, now: Instant, it: Exchange, held: Held) {
        let it = self.extend(now, it, &held, None);
        self.state = State::Rebinding(it, held);
    }

    /// Asks for more time: the address stands in `ciaddr`, and no server is named (§4.3.2).
    fn extend(&mut self, now: Instant, it: Exchange, held: &Held, server: Option<Ipv4Addr>) -> Exchange {
        let mut message = self.message(MessageType::Request, it.xid);
        message.client = held.lease.addr;
        message.broadcast = false;
        self.add_wishes(&mut message);
        let limit = if server.is_some() { held.rebind_at } else { held.until };
        self.send(match server {
            Some(server) => Action::Unicast(server, message.emit()),
            None => Action::Broadcast(message.emit()),
        });
        if it.is_urgent && it.sent < REQUESTS {
            // We differ: a message that is lost shall not let the operator wait for a minute.
            return self.sent(now, it);
        }
        // §4.4.5: half of what is left, but not less than a minute.
        let wait = (limit.saturating_since(now) / 2).max(EXTEND_LEAST);
        // They are so far apart that an answer is to the last one: what it gives counts from there.
        Exchange { begun: now, sent: it.sent + 1, next: now + wait, ..it }
    }

    fn lose(&mut self, now: Instant, why: Loss) {
        self.end(why);
        self.begin(now);
    }

    /// Everything of the lease goes, if there is one that its owner was told of, or remembers.
    fn end(&mut self, why: Loss) {
        let (State::Rebooting(_, held)
        | State::Testing(held)
        | State::Bound(held)
        | State::Renewing(_, held)
        | State::Rebinding(_, held)
        | State::Verifying(_, held)) = &self.state
        else {
            return;
        };
        self.actions.push_back(Action::Lost(held.lease.clone(), why));
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

    fn decline(&mut self, now: Instant, lease: Lease) {
        self.counters.declined += 1;
        let xid = self.random.draw() as u32;
        let mut message = self.message(MessageType::Decline, xid);
        message.options.insert(option::REQUESTED_ADDRESS, lease.addr.octets().to_vec());
        message.options.insert(option::SERVER, lease.server.octets().to_vec());
        self.end(Loss::Conflict);
        self.send(Action::Broadcast(message.emit()));
        self.last = None;
        self.state = State::Init { at: now + DECLINE_WAIT };
    }
}

/// What servers say.
impl Client {
    /// The exchange whose answer the client waits for.
    pub const fn open(&self) -> Option<u32> {
        match &self.state {
            State::Selecting(it)
            | State::Requesting(it, _)
            | State::Rebooting(it, _)
            | State::Renewing(it, _)
            | State::Rebinding(it, _)
            | State::Verifying(it, _) => Some(it.xid),
            _ => None,
        }
    }

    fn is_for_us(&self, message: &Message) -> bool {
        // RFC 6842: a server that repeats the client's identifier repeats the right one.
        let is_ours = message.options.get(&option::CLIENT_ID).is_none_or(|id| *id == self.config.id);
        message.is_reply && self.open() == Some(message.xid) && message.mac == self.config.mac && is_ours
    }

    fn on_offer(&mut self, now: Instant, message: &Message) {
        let State::Selecting(it) = self.state else { return self.counters.unasked += 1 };
        match Lease::read(message) {
            Ok(offer) => {
                self.counters.used += 1;
                // A new wait, but the same exchange: §4.4.1 wants the number of the DISCOVER.
                self.request(now, Exchange { begun: now, sent: 0, ..it }, offer);
            }
            Err(why) => self.refuse(message, why),
        }
    }

    fn on_ack(&mut self, now: Instant, message: &Message) {
        let lease = match Lease::read(message) {
            Ok(lease) => lease,
            Err(why) => return self.refuse(message, why),
        };
        let (it, is_meant) = match &self.state {
            // Whoever is faster than the server that was asked may be anybody.
            State::Requesting(it, offer) => (*it, (lease.addr, lease.server) == (offer.addr, offer.server)),
            State::Rebooting(it, held) | State::Rebinding(it, held) | State::Verifying(it, held) => {
                (*it, lease.addr == held.lease.addr)
            }
            State::Renewing(it, held) => {
                (*it, (lease.addr, lease.server) == (held.lease.addr, held.lease.server))
            }
            _ => return self.counters.unasked += 1,
        };
        if !is_meant {
            return self.counters.unasked += 1;
        }
        self.counters.used += 1;
        let held = self.hold(it.begun, lease);
        if held.until <= now {
            return self.lose(now, Loss::Expired);
        }
        match &self.state {
            State::Requesting(..) | State::Rebooting(..) => self.test(held),
            State::Renewing(_, old) | State::Rebinding(_, old) | State::Verifying(_, old)
                if old.lease.prefix_len != held.lease.prefix_len =>
            {
                // Another subnet is another address for everybody who uses it.
                self.end(Loss::Replaced);
                self.test(held);
            }
            _ => self.bind(held),
        }
    }

    fn on_nak(&mut self, now: Instant, message: &Message) {
        let server = message.address(option::SERVER);
        let is_meant = match &self.state {
            State::Requesting(_, offer) => server == Some(offer.server),
            State::Renewing(_, held) => server == Some(held.lease.server),
            State::Rebooting(..) | State::Rebinding(..) | State::Verifying(..) => server.is_some(),
            _ => false,
        };
        if !is_meant {
            return self.counters.unasked += 1;
        }
        self.counters.refused += 1;
        self.end(Loss::Refused);
        self.last = None;
        // The first refusal is what a client that has moved expects; the next ones are a quarrel.
        let wait = match self.refusals {
            0 => Duration::ZERO,
            n => (REFUSED_WAIT * 2_u32.saturating_pow(n.min(8) - 1)).min(REFUSED_WAIT_LONGEST),
        };
        self.refusals += 1;
        self.state = State::Init { at: now + wait };
    }

    fn refuse(&mut self, message: &Message, why: Unusable) {
        tracing::warn!("DHCP {:?} for {}: {why}", message.kind, self.config.mac);
        self.counters.unusable += 1;
    }

    /// A lease that was asked for at `begun`: its times count from there (§4.4.5), and T1 and T2 are spread.
    fn hold(&mut self, begun: Instant, lease: Lease) -> Held {
        let Some(time) = lease.time else {
            let never = Instant::FAR_FUTURE;
            return Held { lease, until: never, renew_at: never, rebind_at: never };
        };
        let mut early = |at: Duration| begun + at.saturating_sub(self.random.up_to(at / 32));
        let (renew_at, rebind_at) = (early(lease.renew), early(lease.rebind));
        Held { until: begun + time, renew_at: renew_at.min(rebind_at), rebind_at, lease }
    }
}

/// What every message has.
impl Client {
    fn exchange(&mut self, now: Instant) -> Exchange {
        Exchange { xid: self.random.draw() as u32, begun: now, sent: 0, next: now, is_urgent: false }
    }

    fn sent(&mut self, now: Instant, it: Exchange) -> Exchange {
        Exchange { sent: it.sent + 1, next: now + wait_for_answer(&mut self.random, it.sent), ..it }
    }

    fn message(&self, kind: MessageType, xid: u32) -> Message {
        let mut message = Message::request(kind, xid, self.config.mac);
        message.options.insert(option::CLIENT_ID, self.config.id.clone());
        message
    }

    /// Until it has an address the client hears only what is for everybody.
    fn say_when(&self, now: Instant, message: &mut Message) {
        message.broadcast = true;
        message.secs = u16::try_from(now.saturating_since(self.began).as_secs()).unwrap_or(u16::MAX);
    }

    fn add_wishes(&self, message: &mut Message) {
        const WISHES: [u8; 8] = [
            option::SUBNET_MASK,
            option::CLASSLESS_ROUTES,
            option::ROUTERS,
            option::NAME_SERVERS,
            option::DOMAIN_NAME,
            option::DOMAIN_SEARCH,
            option::RENEWAL_TIME,
            option::REBINDING_TIME,
        ];
        message.options.insert(option::PARAMETERS, WISHES.to_vec());
        message.options.insert(option::LONGEST_MESSAGE, LONGEST_MESSAGE.to_be_bytes().to_vec());
        if let Some(name) = &self.config.host_name {
            message.options.insert(option::HOST_NAME, name.clone().into_bytes());
        }
    }

    fn send(&mut self, action: Action) {
        self.counters.sent += 1;
        self.actions.push_back(action);
    }
}

#[cfg(test)]
mod tests;
