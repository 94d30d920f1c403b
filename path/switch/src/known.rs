//! The IP addresses that a port's network has given it, learned by looking on.
//!
//! Called by `guard.rs`. An address that a server gave in answer to this port's own question is known while its lease lasts (RFC 2131,
//! RFC 8415). Another IPv6 address is known once the port has tested it (RFC 4862 §5.4) under a prefix that a router announces for it,
//! or link-local; whoever has it already answers the test, which ends the claim: first come, first served, as RFC 6620 has it. A server
//! may answer in one lane before that has heard of the question, which another has sent: such an answer waits a moment for its question.
//! Each list has an end, and what is oldest gives way; but prefixes do not, which anybody announces.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use firelane_units::{Instant, IpPrefix, MacAddr};
use firelane_wire::{NdpMessage, NdpOption, NdpView, PrefixInformation};

use crate::dhcp::Dhcp;
use crate::dhcp6::Dhcp6;

/// Questions to DHCP servers that may be answered still.
const QUESTIONS_MAX: usize = 16;
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
    /// The user has an address until then.
    Given(IpAddr, Instant),
    /// The user has tested an address, at that time.
    Claimed(Ipv6Addr, Instant),
    /// A router announces a prefix for addresses until then.
    Announced(IpPrefix, Instant),
    /// The user does not have the address, or no more.
    Gone(IpAddr),
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

impl Lesson {
    /// The user has an address for so many seconds.
    pub(crate) fn given(now: Instant, address: Ipv6Addr, seconds: u32) -> Self {
        match seconds {
            0 => Self::Gone(address.into()),
            _ => Self::Given(address.into(), after(now, seconds)),
        }
    }
}

/// What is known of one port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    questions: Vec<Question>,
    given: Vec<(IpAddr, Instant)>,
    claimed: Vec<(Ipv6Addr, Instant)>,
    prefixes: Vec<(IpPrefix, Instant)>,
    early: Vec<Early>,
}

/// What an answer teaches whose question is not known, and when it came.
#[derive(Clone, Copy, Debug)]
struct Early {
    question: Question,
    came: Instant,
    lesson: Lesson,
}

impl Known {
    /// Whether the port may use `address`.
    pub(crate) fn has(&self, now: Instant, address: IpAddr) -> bool {
        let is_claimed =
            |v6: Ipv6Addr| self.claimed.iter().any(|(it, _)| *it == v6) && self.is_on_link(now, v6);
        match address {
            IpAddr::V6(v6) if is_claimed(v6) => true,
            _ => self.given.iter().any(|&(it, until)| it == address && now < until),
        }
    }

    fn is_on_link(&self, now: Instant, address: Ipv6Addr) -> bool {
        let covers = |&(prefix, until): &(IpPrefix, Instant)| prefix.contains(address.into()) && now < until;
        address.is_unicast_link_local() || self.prefixes.iter().any(covers)
    }

    /// What a question of the user teaches.
    pub(crate) fn asked(&self, question: &Dhcp<'_>) -> Option<Lesson> {
        let ends = matches!(question.kind, DHCP_RELEASE | DHCP_DECLINE);
        if ends && let Some(&(address, _)) = self.given.iter().find(|(it, _)| it.is_ipv4()) {
            return Some(Lesson::Gone(address));
        }
        if question.is_reply { None } else { self.unknown(Question::V4(question.transaction)) }
    }

    /// What such a message of the user's teaches. Whether addresses fit the link is no question: servers say so of anybody's.
    pub(crate) fn asked6(&self, question: &Dhcp6<'_>) -> Option<Lesson> {
        if question.asks() { self.unknown(Question::of(question)?) } else { None }
    }

    /// What a question teaches that is not known.
    fn unknown(&self, question: Question) -> Option<Lesson> {
        (!self.questions.contains(&question)).then_some(Lesson::Asked(question))
    }

    /// What an answer teaches, if its question is known; else it waits for that.
    pub(crate) fn answers(&mut self, now: Instant, question: Question, lesson: Lesson) -> Option<Lesson> {
        if self.questions.contains(&question) {
            return Some(lesson);
        }
        keep(&mut self.early, Early { question, came: now, lesson }, EARLY_MAX, |_| false);
        None
    }

    /// What an answer teaches that has waited for a question which is known by now.
    pub(crate) fn next_early(&mut self, now: Instant) -> Option<Lesson> {
        self.early.retain(|early| now.saturating_since(early.came) < EARLY);
        let at = self.early.iter().position(|early| self.questions.contains(&early.question))?;
        Some(self.early.remove(at).lesson)
    }

    /// Whether a server has given the user this address.
    pub(crate) fn was_given(&self, address: Ipv6Addr) -> bool {
        self.given.iter().any(|(it, _)| *it == address)
    }

    /// What an answer for the station `mac` teaches.
    pub(crate) fn answered(&mut self, now: Instant, mac: MacAddr, answer: &Dhcp<'_>) -> Option<Lesson> {
        let is_ours = answer.is_reply && answer.hardware == mac;
        if !is_ours || answer.kind != DHCP_ACK || answer.yours == Ipv4Addr::UNSPECIFIED {
            return None;
        }
        // An answer without a time answers a question about other things than an address.
        let lesson = Lesson::Given(answer.yours.into(), after(now, answer.lease?));
        self.answers(now, Question::V4(answer.transaction), lesson)
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
            Lesson::Asked(question) => keep(&mut self.questions, question, QUESTIONS_MAX, |_| false),
            Lesson::Given(address, until) => {
                keep(&mut self.given, (address, until), ADDRESSES_MAX, |(it, _)| *it == address);
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
                self.given.retain(|(it, _)| *it != address);
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
