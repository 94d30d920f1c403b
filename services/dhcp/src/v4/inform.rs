//! What a network is like, asked by a station whose address the operator gave (RFC 2131 §3.4, §4.4.3): a state machine
//! without a socket or a clock.
//!
//! ```text
//!  INFORMING -+-> INFORMED
//!             +-> UNANSWERED
//! ```
//!
//! Given: messages and `now`. Gives messages for everybody on the link, which leave from the address, and the time of its
//! next timer. No lease is made: the address stays the operator's, as do its routes, whatever a server says of them.

use core::net::Ipv4Addr;

use firelane_units::{Instant, MacAddr};

use crate::outcome::Counters;
use crate::random::Random;
use crate::v4::client::{LONGEST_MESSAGE, wait_for_answer};
use crate::v4::lease::{LIST_MAX, domains, is_station};
use crate::v4::message::{Message, MessageType, option};

/// §4.4.3: whoever was asked so often has had a minute.
const QUESTIONS: u32 = 4;

/// What a question is about.
#[derive(Clone, Debug)]
pub struct InformConfig {
    /// The interface's Ethernet address.
    pub mac: MacAddr,
    /// Who the client is, in every message the same (RFC 4361).
    pub id: Vec<u8>,
    /// The address that it has.
    pub addr: Ipv4Addr,
    /// The seed of its numbers.
    pub seed: u64,
}

/// What a server says of its network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// Who says it.
    pub server: Ipv4Addr,
    /// Who resolves names.
    pub name_servers: Vec<Ipv4Addr>,
    /// Where names are looked for.
    pub domains: Vec<String>,
}

impl Network {
    /// What an ACK says; `None` if it does not say who sends it.
    fn read(message: &Message) -> Option<Self> {
        Some(Self {
            server: message.address(option::SERVER).filter(|server| is_station(*server))?,
            name_servers: message.addresses(option::NAME_SERVERS, LIST_MAX),
            domains: domains(message),
        })
    }
}

/// How far a question is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InformPhase {
    /// It waits for an answer.
    Informing,
    /// It has one.
    Informed,
    /// Nobody has answered.
    Unanswered,
}

/// A question to the servers of one interface.
#[derive(Debug)]
pub struct Inform {
    config: InformConfig,
    phase: InformPhase,
    xid: u32,
    begun: Instant,
    sent: u32,
    next: Instant,
    random: Random,
    network: Option<Network>,
    counters: Counters,
}

impl Inform {
    /// A question that is first asked at `now`.
    pub fn new(now: Instant, config: InformConfig) -> Self {
        let mut random = Random::new(config.seed);
        Self {
            xid: random.draw() as u32,
            config,
            phase: InformPhase::Informing,
            begun: now,
            sent: 0,
            next: now,
            random,
            network: None,
            counters: Counters::default(),
        }
    }

    /// How far it is.
    pub const fn phase(&self) -> InformPhase {
        self.phase
    }

    /// What was answered.
    pub const fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// What it has seen.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// When [`poll`](Self::poll) has something; `None` if it has ended.
    pub const fn poll_at(&self) -> Option<Instant> {
        match self.phase {
            InformPhase::Informing => Some(self.next),
            InformPhase::Informed | InformPhase::Unanswered => None,
        }
    }

    /// The next message for everybody on the link.
    pub fn poll(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.poll_at().filter(|at| *at <= now)?;
        if self.sent == QUESTIONS {
            self.phase = InformPhase::Unanswered;
            return None;
        }
        self.next = now + wait_for_answer(&mut self.random, self.sent);
        self.sent += 1;
        self.counters.sent += 1;
        Some(self.question(now).emit())
    }

    /// Table 5: the address stands in `ciaddr`, and neither an address nor a server is asked for. It can be reached at
    /// its address, so that nobody else need hear the answer.
    fn question(&self, now: Instant) -> Message {
        const WISHES: [u8; 3] = [option::NAME_SERVERS, option::DOMAIN_NAME, option::DOMAIN_SEARCH];
        let mut message = Message::request(MessageType::Inform, self.xid, self.config.mac);
        message.client = self.config.addr;
        message.secs = u16::try_from(now.saturating_since(self.begun).as_secs()).unwrap_or(u16::MAX);
        message.options.insert(option::CLIENT_ID, self.config.id.clone());
        message.options.insert(option::PARAMETERS, WISHES.to_vec());
        message.options.insert(option::LONGEST_MESSAGE, LONGEST_MESSAGE.to_be_bytes().to_vec());
        message
    }

    /// A message that arrived at the client's port. The first server that answers is believed (§4.4.3).
    pub fn on_message(&mut self, bytes: &[u8]) {
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(_) => return self.counters.malformed += 1,
        };
        if self.phase != InformPhase::Informing || !self.is_answer(&message) {
            return self.counters.unasked += 1;
        }
        match Network::read(&message) {
            Some(network) => {
                self.counters.used += 1;
                self.network = Some(network);
                self.phase = InformPhase::Informed;
            }
            None => self.counters.unusable += 1,
        }
    }

    /// The exchange whose answer is waited for.
    pub fn open(&self) -> Option<u32> {
        (self.phase == InformPhase::Informing).then_some(self.xid)
    }

    fn is_answer(&self, message: &Message) -> bool {
        // RFC 6842: a server that repeats the client's identifier repeats the right one.
        let is_ours = message.options.get(&option::CLIENT_ID).is_none_or(|id| *id == self.config.id);
        let is_about_us = message.client.is_unspecified() || message.client == self.config.addr;
        let is_ack = message.is_reply && message.kind == MessageType::Ack;
        is_ack && message.xid == self.xid && message.mac == self.config.mac && is_ours && is_about_us
    }
}
