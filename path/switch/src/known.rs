//! The IP addresses that a port's network has given it, learned by looking on.
//!
//! Called by `guard.rs`. An address that a server gave in answer to this port's own question is known while its lease lasts (RFC 2131,
//! RFC 8415). Anybody on the link may answer, for questions are broadcast: so a question is known for a while, teaches some addresses and
//! not more, and no second answer to it takes back what the first one gave. Another IPv6 address is known once the port has tested it (RFC 4862 §5.4) under a prefix that a router announces for it,
//! or link-local; whoever has it already answers the test, which ends the claim: first come, first served, as RFC 6620 has it. A server
//! may answer in one lane before that has heard of the question, which another has sent: such an answer waits a moment for its question.
//! Each list has an end, and what is oldest gives way; but prefixes do not, which anybody announces.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use firelane_units::{Instant, IpPrefix, MacAddr};
use firelane_wire::{NdpMessage, NdpOption, NdpView, PrefixInformation};

use crate::dhcp::Dhcp;
use crate::dhcp6::Dhcp6;

/// Questions to DHCP servers that may be answered still, and for how long: clients ask again after a minute at the latest (RFC 2131 §4.1).
const QUESTIONS_MAX: usize = 16;
const QUESTION_LASTS: Duration = Duration::from_secs(120);
/// Addresses that answers to one question may give. Servers of DHCP for IPv4 give one each.
const ANSWERS_MAX_V4: usize = 4;
const ANSWERS_MAX_V6: usize = 16;
/// Addresses of one port, as many as may be listed.
const ADDRESSES_MAX: usize = 32;
/// Prefixes that routers announce on one link.
pub(crate) const PREFIXES_MAX: usize = 16;
/// RFC 4862 §5.5.3: an address is the network's half and the host's, and is not taken back before two hours are over.
const HALF: u8 = 64;
const TWO_HOURS: u32 = 7200;
/// How long after a test somebody else may say that the address is his: its probes and their time (RFC 4862), doubled.
const DEFENCE: Duration = Duration::from_secs(2);

/// How long an answer waits for its question, and how many addresses of such answers do.
const EARLY: Duration = Duration::from_secs(1);
const EARLY_MAX: usize = 8;

const DHCP_ACK: u8 = 5;
const DHCP_RELEASE: u8 = 7;
const DHCP_DECLINE: u8 = 4;

/// One thing learned. Lanes tell it to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lesson {
    /// The user has asked a DHCP server.
    Asked(Question),
    /// A server has given the user an address.
    Given(Lease),
    /// The user has tested an address, at that time.
    Claimed(Ipv6Addr, Instant),
    /// A router announces a prefix for addresses until then.
    Announced(IpPrefix, Instant),
    /// The user does not have the address, or no more.
    Gone(IpAddr),
}

/// An address that a server gives until then, in answer to a question. One that ends when it comes takes the address back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    pub(crate) address: IpAddr,
    pub(crate) until: Instant,
    pub(crate) question: Question,
}

/// A question, by its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// Of DHCP for IPv4.
    V4(u32),
    /// Of DHCPv6, and a digest of its client's DUID.
    V6(u32, u64),
}

impl Question {
    /// Which question a DHCPv6 message is, or answers; none of a client that it does not name (RFC 8415 §16).
    pub(crate) fn of(message: &Dhcp6<'_>) -> Option<Self> {
        // FNV-1a needs no secret here: who looks for another DUID with this digest could ask by that DUID at once.
        let digest = message.client()?.iter().fold(0xcbf2_9ce4_8422_2325_u64, |digest, &byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Some(Self::V6(message.transaction, digest))
    }
}

impl Lease {
    /// For so many seconds.
    pub(crate) fn new(now: Instant, address: IpAddr, seconds: u32, question: Question) -> Self {
        Self { address, until: after(now, seconds), question }
    }
}

/// What is known of one port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    questions: Vec<(Question, Instant)>,
    given: Vec<Lease>,
    claimed: Vec<(Ipv6Addr, Instant)>,
    prefixes: Vec<(IpPrefix, Instant)>,
    early: Vec<Early>,
}

/// What an answer teaches whose question is not known, and when it came.
#[derive(Clone, Copy, Debug)]
struct Early {
    came: Instant,
    lease: Lease,
}

impl Known {
    /// Whether the port may use `address`.
    pub(crate) fn has(&self, now: Instant, address: IpAddr) -> bool {
        let is_claimed =
            |v6: Ipv6Addr| self.claimed.iter().any(|(it, _)| *it == v6) && self.is_on_link(now, v6);
        match address {
            IpAddr::V6(v6) if is_claimed(v6) => true,
            _ => self.given.iter().any(|it| it.address == address && now < it.until),
        }
    }

    fn is_on_link(&self, now: Instant, address: Ipv6Addr) -> bool {
        let covers = |&(prefix, until): &(IpPrefix, Instant)| prefix.contains(address.into()) && now < until;
        address.is_unicast_link_local() || self.prefixes.iter().any(covers)
    }

    /// What a question of the user teaches.
    pub(crate) fn asked(&self, now: Instant, question: &Dhcp<'_>) -> Option<Lesson> {
        let back = match question.kind {
            DHCP_RELEASE => Some(question.current),
            DHCP_DECLINE => question.requested,
            _ if question.is_reply => return None,
            _ => return self.unknown(now, Question::V4(question.transaction)),
        };
        let address = IpAddr::V4(back?);
        self.was_given(address).then_some(Lesson::Gone(address))
    }

    /// What such a message of the user's teaches. Whether addresses fit the link is no question: servers say so of anybody's.
    pub(crate) fn asked6(&self, now: Instant, question: &Dhcp6<'_>) -> Option<Lesson> {
        if question.asks() { self.unknown(now, Question::of(question)?) } else { None }
    }

    /// What a question teaches that is not known, or was asked a while ago.
    fn unknown(&self, now: Instant, question: Question) -> Option<Lesson> {
        (!self.is_asked(now, question, QUESTION_LASTS / 2)).then_some(Lesson::Asked(question))
    }

    /// Whether the user has asked that within this time.
    fn is_asked(&self, now: Instant, question: Question, within: Duration) -> bool {
        self.questions.iter().any(|&(it, at)| it == question && now.saturating_since(at) < within)
    }

    /// What an answer teaches, if its question is known; else it waits for that.
    pub(crate) fn answers(&mut self, now: Instant, lease: Lease) -> Option<Lesson> {
        if self.is_asked(now, lease.question, QUESTION_LASTS) {
            return self.granted(now, lease);
        }
        keep(&mut self.early, Early { came: now, lease }, EARLY_MAX, |_| false);
        None
    }

    /// What the answer to a question of the user's teaches. Who answers once more, be it somebody else, takes nothing back.
    fn granted(&self, now: Instant, lease: Lease) -> Option<Lesson> {
        // Also of those that have ended, or many would be given one after the other, each for a second.
        let of_question = || self.given.iter().filter(|it| it.question == lease.question);
        let most = if lease.address.is_ipv4() { ANSWERS_MAX_V4 } else { ANSWERS_MAX_V6 };
        let is_news = match self.given.iter().find(|it| it.address == lease.address) {
            Some(old) => old.question != lease.question || old.until < lease.until,
            None => now < lease.until && of_question().count() < most,
        };
        is_news.then_some(Lesson::Given(lease))
    }

    /// What an answer teaches that has waited for a question which is known by now.
    pub(crate) fn next_early(&mut self, now: Instant) -> Option<Lesson> {
        self.early.retain(|early| now.saturating_since(early.came) < EARLY);
        loop {
            let is_asked = |it: &Early| self.is_asked(now, it.lease.question, QUESTION_LASTS);
            let at = self.early.iter().position(is_asked)?;
            let lease = self.early.remove(at).lease;
            if let Some(lesson) = self.granted(now, lease) {
                return Some(lesson);
            }
        }
    }

    /// Whether a server has given the user this address.
    pub(crate) fn was_given(&self, address: IpAddr) -> bool {
        self.given.iter().any(|it| it.address == address)
    }

    /// What an answer for the station `mac` teaches.
    pub(crate) fn answered(&mut self, now: Instant, mac: MacAddr, answer: &Dhcp<'_>) -> Option<Lesson> {
        let is_ours = answer.is_reply && answer.hardware == mac;
        if !is_ours || answer.kind != DHCP_ACK || answer.yours == Ipv4Addr::UNSPECIFIED {
            return None;
        }
        // An answer without a time answers a question about other things than an address.
        let question = Question::V4(answer.transaction);
        self.answers(now, Lease::new(now, answer.yours.into(), answer.lease?, question))
    }

    /// What a test of an address teaches.
    pub(crate) fn claimed(&self, now: Instant, target: Ipv6Addr) -> Option<Lesson> {
        self.is_on_link(now, target).then_some(Lesson::Claimed(target, now))
    }

    /// What a neighbour or router teaches.
    pub(crate) fn heard(&self, now: Instant, view: &NdpView<'_>) -> Option<Lesson> {
        match view.message() {
            NdpMessage::NeighbourAdvert { target, .. } => {
                let in_test =
                    |&(it, at): &(Ipv6Addr, Instant)| it == target && now.saturating_since(at) < DEFENCE;
                self.claimed.iter().any(in_test).then_some(Lesson::Gone(target.into()))
            }
            NdpMessage::RouterAdvert { .. } => view.options().find_map(|option| match option {
                NdpOption::Prefix(said) if said.autonomous => self.announced(now, &said),
                _ => None,
            }),
            _ => None,
        }
    }

    /// What a prefix teaches that hosts may make addresses from: what they believe of it (RFC 4862 §5.5.3), whoever says so. Else
    /// anybody could end the addresses that they go on to use. It is known for half as long again, so that not each repetition need be
    /// told: a host never has an address for longer.
    fn announced(&self, now: Instant, said: &PrefixInformation) -> Option<Lesson> {
        let is_local = said.prefix.is_unicast_link_local() || said.prefix.is_loopback();
        let is_sane = said.prefix_len == HALF && said.preferred <= said.valid;
        if is_local || said.prefix.is_multicast() || !is_sane {
            return None;
        }
        let prefix = IpPrefix::new(said.prefix.into(), said.prefix_len)?.network();
        let least = u32::try_from(said.valid.as_secs()).unwrap_or(u32::MAX);
        let longer = least.saturating_add(least / 2);
        let most = longer.max(TWO_HOURS);
        let known = self.prefixes.iter().find(|(it, until)| *it == prefix && now < *until);
        let seconds = match known {
            Some(&(_, until)) if until < after(now, least) => longer,
            Some(&(_, until)) if until > after(now, most) => most,
            // A07: who announces many pushes none out.
            None if least > 0 && self.has_room(now) => longer,
            _ => return None,
        };
        Some(Lesson::Announced(prefix, after(now, seconds)))
    }

    /// Whether there is room for one more prefix.
    fn has_room(&self, now: Instant) -> bool {
        self.prefixes.iter().filter(|(_, until)| now < *until).count() < PREFIXES_MAX
    }

    /// Puts a lesson among what is known.
    pub(crate) fn learn(&mut self, now: Instant, lesson: Lesson) {
        match lesson {
            Lesson::Asked(question) => {
                keep(&mut self.questions, (question, now), QUESTIONS_MAX, |(it, _)| *it == question);
            }
            Lesson::Given(lease) => {
                keep(&mut self.given, lease, ADDRESSES_MAX, |it| it.address == lease.address);
            }
            Lesson::Claimed(address, at) => {
                keep(&mut self.claimed, (address, at), ADDRESSES_MAX, |(it, _)| *it == address);
            }
            Lesson::Announced(prefix, until) => {
                self.prefixes.retain(|&(it, ends)| it != prefix && now < ends);
                if self.prefixes.len() < PREFIXES_MAX {
                    self.prefixes.push((prefix, until));
                }
            }
            Lesson::Gone(address) => {
                self.given.retain(|it| it.address != address);
                self.claimed.retain(|(it, _)| IpAddr::V6(*it) != address);
            }
        }
    }
}

/// The instant in so many seconds; the largest number stands for ever.
fn after(now: Instant, seconds: u32) -> Instant {
    match seconds {
        u32::MAX => Instant::FAR_FUTURE,
        _ => now.plus_nanos(u64::from(seconds) * 1_000_000_000),
    }
}

/// Puts `new` last, in place of one that is the `same`, and lets the oldest go beyond `most`.
fn keep<T>(list: &mut Vec<T>, new: T, most: usize, same: impl Fn(&T) -> bool) {
    list.retain(|it| !same(it));
    if list.len() == most {
        list.remove(0);
    }
    list.push(new);
}
