//! Scripts of DHCPv6's client (`dhcp6/*.msg`): what its servers say, what it sends and does, in virtual time.
//!
//! The script is the servers, the operator and the netstack that tests addresses. Messages are made and read here by RFC
//! 8415's numbers, not by the client's own code, so that both would have to be wrong in the same way. The language is in
//! `README.md`.

use std::fmt;
use std::net::Ipv6Addr;
use std::time::Duration;

use firelane_dhcp::v6::{Action, Client, ClientConfig, Lease, Network, Wanted};
use firelane_units::Instant;

use crate::lease::{self, Did, Kinds, Line, exact, expect_counter, kind_of, lost, message, number};
use crate::run::Failure;
use crate::timed::{Played, play};

/// RFC 8415 §7.3.
const KINDS: &Kinds = &[
    (1, "solicit"),
    (2, "advertise"),
    (3, "request"),
    (4, "confirm"),
    (5, "renew"),
    (6, "rebind"),
    (7, "reply"),
    (8, "release"),
    (9, "decline"),
    (11, "information"),
];
/// RFC 8415 §21, RFC 3646.
mod option {
    pub(super) const CLIENT_ID: u16 = 1;
    pub(super) const SERVER_ID: u16 = 2;
    pub(super) const IA_NA: u16 = 3;
    pub(super) const IA_ADDR: u16 = 5;
    pub(super) const ASKED: u16 = 6;
    pub(super) const PREFERENCE: u16 = 7;
    pub(super) const ELAPSED: u16 = 8;
    pub(super) const STATUS: u16 = 13;
    pub(super) const NAME_SERVERS: u16 = 23;
    pub(super) const REFRESH: u16 = 32;
    pub(super) const SOL_MAX_RT: u16 = 82;
    pub(super) const INF_MAX_RT: u16 = 83;
}

const IAID: u32 = 7;
/// The client's identifier: DUID-LL of an Ethernet card (§11.4).
const DUID: [u8; 10] = [0, 3, 0, 1, 2, 8, 0x20, 0, 0, 1];

/// Runs a script.
pub fn run_dhcp6(text: &str) -> Result<(), Failure> {
    play::<Servers>(text)
}

/// A message of the client's.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Sent {
    kind: &'static str,
    /// Whether it begins an exchange: its number is another one than the last message's.
    is_new: bool,
    /// Hundredths of a second since the exchange began, at most all ones (§21.9).
    elapsed: Option<u16>,
    server: Option<u8>,
    /// Of the association, if there is one: which address it is about.
    association: Option<Option<Ipv6Addr>>,
    asked: Vec<u16>,
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, is_new, elapsed, server, association, asked } = self;
        write!(f, "{kind} {}", if *is_new { "new" } else { "same" })?;
        elapsed.map_or(Ok(()), |elapsed| write!(f, " elapsed {elapsed}"))?;
        server.map_or(Ok(()), |server| write!(f, " server {server}"))?;
        match association {
            None => {}
            Some(None) => f.write_str(" any")?,
            Some(Some(addr)) => write!(f, " addr {addr}")?,
        }
        let asked: Vec<String> = asked.iter().map(u16::to_string).collect();
        if asked.is_empty() { Ok(()) } else { write!(f, " asks {}", asked.join(",")) }
    }
}

/// Everything around the client.
struct Servers {
    client: Client,
    /// The number of the last message.
    xid: [u8; 3],
}

impl Played for Servers {
    type Came = Did<Sent>;
    const TOLERANCE: Duration = Duration::from_millis(1);

    fn new(settings: &[&str]) -> Result<(Self, Instant), String> {
        let mut before = None;
        for setting in settings {
            let words: Vec<&str> = setting.split_whitespace().collect();
            let &["before", addr, "left", seconds] = words.as_slice() else {
                return Err(format!("`{setting}`: the setting is `before ADDRESS left SECONDS`"));
            };
            before = Some((lease_of_before(number(addr)?), Duration::from_secs(number(seconds)?)));
        }
        let start = Instant::from_secs(1000);
        let config = ClientConfig { duid: DUID.to_vec(), iaid: IAID, seed: 1 };
        Ok((Self { client: Client::new(start, config, before), xid: [0; 3] }, start))
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.client.poll_at()
    }

    fn advance(&mut self, now: Instant) -> Result<Vec<Did<Sent>>, String> {
        let mut done = Vec::new();
        while self.client.poll_at().is_some_and(|at| at <= now) {
            match self.client.poll(now) {
                Some(Action::Send(bytes)) => done.push(Did::Message(self.read(&bytes)?)),
                Some(other) => done.push(Did::Other(described(&other))),
                None => {}
            }
        }
        Ok(done)
    }

    fn hear(&mut self, now: Instant, words: &str) -> Result<(), String> {
        let bytes = message(words, KINDS, |kind| Answer { kind, xid: self.xid, ..Answer::default() })?;
        self.client.on_message(now, &bytes);
        Ok(())
    }

    fn call(&mut self, now: Instant, words: &str) -> Result<(), String> {
        match words.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["wanted", "addresses"] => self.client.set_wanted(now, Wanted::Addresses),
            ["wanted", "information"] => self.client.set_wanted(now, Wanted::Information),
            ["free", addr] => self.client.on_tested(now, number(addr)?, true),
            ["taken", addr] => self.client.on_tested(now, number(addr)?, false),
            ["release"] => self.client.release(now),
            ["refresh"] => self.client.refresh(now),
            ["counter", name, count] => expect_counter(&self.client.counters(), name, count)?,
            _ => return Err(format!("`{words}` is no event")),
        }
        Ok(())
    }
}

impl Servers {
    /// What is in a message of the client's, by its bytes.
    fn read(&mut self, bytes: &[u8]) -> Result<Sent, String> {
        let (&[kind, a, b, c], rest) = bytes.split_first_chunk::<4>().ok_or("a message without a head")?;
        let kind = kind_of(KINDS, kind)?;
        let mut sent = Sent {
            kind,
            is_new: self.xid != [a, b, c],
            elapsed: None,
            server: None,
            association: None,
            asked: Vec::new(),
        };
        self.xid = [a, b, c];
        let mut is_named = false;
        for (code, value) in options(rest)? {
            match code {
                option::CLIENT_ID => is_named = value == DUID,
                option::SERVER_ID => sent.server = value.last().copied().filter(|&n| value == server_id(n)),
                option::ELAPSED => sent.elapsed = Some(u16::from_be_bytes(exact(value)?)),
                option::ASKED => {
                    sent.asked = value.chunks_exact(2).map(|it| u16::from_be_bytes([it[0], it[1]])).collect();
                }
                option::IA_NA => sent.association = Some(association(value)?),
                other => return Err(format!("{kind}: option {other} is not expected of a client")),
            }
        }
        // §16, §21.9: every message of a client's says who sends it, and since when.
        if !is_named || sent.elapsed.is_none() {
            return Err(format!("{kind}: it does not say who sends it, or since when"));
        }
        Ok(sent)
    }
}

/// A server's message, as far as lines say what is in it.
struct Answer {
    kind: u8,
    xid: [u8; 3],
    client: Vec<u8>,
    server: Option<u8>,
    iaid: u32,
    times: [u32; 2],
    lifetimes: [u32; 2],
    addrs: Vec<Ipv6Addr>,
    has_association: bool,
    /// Of the association.
    inner_status: Option<u16>,
    more: Vec<(u16, Vec<u8>)>,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            kind: 0,
            xid: [0; 3],
            client: DUID.to_vec(),
            server: Some(1),
            iaid: IAID,
            times: [100, 160],
            lifetimes: [200, 300],
            addrs: Vec::new(),
            has_association: false,
            inner_status: None,
            more: Vec::new(),
        }
    }
}

impl Answer {
    fn put(&mut self, code: u16, value: &[u8]) {
        self.more.push((code, value.to_vec()));
    }
}

impl lease::Answer for Answer {
    fn take<'a>(&mut self, word: &str, words: &mut impl Iterator<Item = &'a str>) -> Result<(), String> {
        let mut next = || words.next().ok_or(format!("`{word}` has no value"));
        match word {
            "server" => self.server = Some(number(next()?)?),
            "nobody" => self.server = None,
            "stranger" => self.client[9] ^= 1,
            "late" => self.xid[2] ^= 1,
            "iaid" => self.iaid = number(next()?)?,
            "none" => self.has_association = true,
            "addr" => {
                self.has_association = true;
                self.addrs.push(number(next()?)?);
            }
            "t1" => self.times[0] = number(next()?)?,
            "t2" => self.times[1] = number(next()?)?,
            "preferred" => self.lifetimes[0] = number(next()?)?,
            "valid" => self.lifetimes[1] = number(next()?)?,
            "refused" => {
                self.has_association = true;
                self.inner_status = Some(number(next()?)?);
            }
            "status" => self.put(option::STATUS, &number::<u16>(next()?)?.to_be_bytes()),
            "pref" => self.put(option::PREFERENCE, &[number(next()?)?]),
            "dns" => self.put(option::NAME_SERVERS, &number::<Ipv6Addr>(next()?)?.octets()),
            "refresh" => self.put(option::REFRESH, &number::<u32>(next()?)?.to_be_bytes()),
            "sol_max_rt" => self.put(option::SOL_MAX_RT, &number::<u32>(next()?)?.to_be_bytes()),
            "inf_max_rt" => self.put(option::INF_MAX_RT, &number::<u32>(next()?)?.to_be_bytes()),
            _ => return Err(format!("`{word}` is nothing that a server says")),
        }
        Ok(())
    }

    fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind];
        bytes.extend(self.xid);
        add(&mut bytes, option::CLIENT_ID, &self.client);
        if let Some(server) = self.server {
            add(&mut bytes, option::SERVER_ID, &server_id(server));
        }
        if self.has_association {
            let mut inner: Vec<u8> =
                [self.iaid, self.times[0], self.times[1]].iter().flat_map(|it| it.to_be_bytes()).collect();
            for addr in &self.addrs {
                let times = self.lifetimes.iter().flat_map(|it| it.to_be_bytes());
                let value: Vec<u8> = addr.octets().into_iter().chain(times).collect();
                add(&mut inner, option::IA_ADDR, &value);
            }
            if let Some(status) = self.inner_status {
                add(&mut inner, option::STATUS, &status.to_be_bytes());
            }
            add(&mut bytes, option::IA_NA, &inner);
        }
        self.more.iter().for_each(|(code, value)| add(&mut bytes, *code, value));
        bytes
    }
}

fn add(bytes: &mut Vec<u8>, code: u16, value: &[u8]) {
    bytes.extend(code.to_be_bytes());
    bytes.extend((value.len() as u16).to_be_bytes());
    bytes.extend(value);
}

/// Code and value of each option (§21.1).
fn options(mut bytes: &[u8]) -> Result<Vec<(u16, &[u8])>, String> {
    let mut found = Vec::new();
    while let Some((&[a, b, c, d], rest)) = bytes.split_first_chunk::<4>() {
        let len = usize::from(u16::from_be_bytes([c, d]));
        let (value, rest) = rest.split_at_checked(len).ok_or("an option that is cut off")?;
        found.push((u16::from_be_bytes([a, b]), value));
        bytes = rest;
    }
    if bytes.is_empty() { Ok(found) } else { Err("bytes behind the options".into()) }
}

/// The address that an association of the client's is about (§21.4, §21.6): times are the server's to say.
fn association(value: &[u8]) -> Result<Option<Ipv6Addr>, String> {
    let (head, rest) = value.split_first_chunk::<12>().ok_or("an association that is cut off")?;
    if head[..4] != IAID.to_be_bytes() || head[4..] != [0; 8] {
        return Err("an association of another interface, or with times".into());
    }
    match options(rest)?.as_slice() {
        [] => Ok(None),
        [(option::IA_ADDR, value)] => {
            let bytes: [u8; 24] = exact(value)?;
            let addr: [u8; 16] = exact(&bytes[..16])?;
            if bytes[16..] == [0; 8] { Ok(Some(addr.into())) } else { Err("an address with times".into()) }
        }
        more => Err(format!("{} options in an association", more.len())),
    }
}

/// The identifier of a server by its number.
fn server_id(number: u8) -> [u8; 10] {
    [0, 3, 0, 1, 2, 0, 0, 0, 0, number]
}

fn lease_of_before(addr: Ipv6Addr) -> Lease {
    Lease {
        addr,
        server: server_id(1).to_vec(),
        preferred: Some(Duration::from_secs(200)),
        valid: Some(Duration::from_secs(300)),
        renew: Duration::from_secs(100),
        rebind: Duration::from_secs(160),
        network: Network::default(),
    }
}

fn described(action: &Action) -> String {
    match action {
        Action::Send(_) => "send".to_owned(),
        Action::Test(lease) => format!("test {}", lease.addr),
        Action::Bound(held) => format!("bound {}", held.lease.addr),
        Action::Retire(lease) => format!("retire {}", lease.addr),
        Action::Lost(lease, why) => lost(lease.addr, *why),
        Action::Informed(network) => {
            let servers: Vec<String> = network.name_servers.iter().map(Ipv6Addr::to_string).collect();
            format!("informed {}", servers.join(",")).trim_end().to_owned()
        }
    }
}

impl lease::Sent for Sent {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn is_new(&self) -> bool {
        self.is_new
    }

    /// What the line leaves out is not compared, but for server and association.
    fn has(&self, line: &Line<'_>) -> bool {
        let server = line.value("server").and_then(|it| it.parse().ok());
        let association = match line.value("addr") {
            Some(addr) => addr.parse().ok().map(Some),
            None => line.says("any").then_some(None),
        };
        let asked = self.asked.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        self.server == server
            && self.association == association
            && line.value("elapsed").is_none_or(|it| it.parse().ok() == self.elapsed)
            && line.value("asks").is_none_or(|it| it == asked)
    }
}
