//! Scripts of DHCPv4's client (`dhcp4/*.msg`): what its servers say, what it sends and does, in virtual time.
//!
//! The script is the servers, the operator and the netstack that tests addresses. Messages are made and read here by the numbers
//! of RFC 2131 and RFC 2132, not by the client's own code, so that both would have to be wrong in the same way. The language is in
//! `README.md`.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use firelane_dhcp::Counters;
use firelane_dhcp::v4::{Action, Client, ClientConfig, Inform, InformConfig, InformPhase, Lease};
use firelane_units::{Instant, MacAddr};

use crate::lease::{self, Did, Kinds, Line, exact, expect_counter, kind_of, lost, message, number};
use crate::run::Failure;
use crate::timed::{Played, play};

/// RFC 2132 §9.6.
const KINDS: &Kinds = &[
    (1, "discover"),
    (2, "offer"),
    (3, "request"),
    (4, "decline"),
    (5, "ack"),
    (6, "nak"),
    (7, "release"),
    (8, "inform"),
];

/// RFC 2132, RFC 3397, RFC 3442.
mod option {
    pub(super) const MASK: u8 = 1;
    pub(super) const ROUTERS: u8 = 3;
    pub(super) const NAME_SERVERS: u8 = 6;
    pub(super) const HOST_NAME: u8 = 12;
    pub(super) const DOMAIN: u8 = 15;
    pub(super) const WANTED: u8 = 50;
    pub(super) const LEASE: u8 = 51;
    pub(super) const OVERLOAD: u8 = 52;
    pub(super) const KIND: u8 = 53;
    pub(super) const SERVER: u8 = 54;
    pub(super) const PARAMETERS: u8 = 55;
    pub(super) const LONGEST: u8 = 57;
    pub(super) const T1: u8 = 58;
    pub(super) const T2: u8 = 59;
    pub(super) const CLIENT_ID: u8 = 61;
    pub(super) const ROUTES: u8 = 121;
    pub(super) const END: u8 = 255;
}

/// RFC 2131 §2: fields before the options, their cookie, and where `sname` and `file` are.
const FIXED: usize = 236;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const SNAME: std::ops::Range<usize> = 44..108;
const FILE: std::ops::Range<usize> = 108..236;

const MAC: [u8; 6] = [2, 8, 0x20, 0, 0, 1];
/// RFC 4361 §6.1: of an interface, and a DUID of Ethernet.
const ID: [u8; 15] = [255, 0, 0, 0, 7, 0, 3, 0, 1, 2, 8, 0x20, 0, 0, 1];

/// Runs a script.
pub fn run_dhcp4(text: &str) -> Result<(), Failure> {
    play::<Servers>(text)
}

/// A message of the client's.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Sent {
    kind: &'static str,
    /// Its number is another one than the last message's.
    is_new: bool,
    /// To one server, or to everybody.
    to: Option<Ipv4Addr>,
    secs: u16,
    /// The address that the client has.
    has: Option<Ipv4Addr>,
    /// The address that it asks for.
    asks: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
    name: Option<String>,
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} secs {}", self.kind, if self.is_new { "new" } else { "same" }, self.secs)?;
        for (word, addr) in [("to", self.to), ("has", self.has), ("asks", self.asks), ("server", self.server)]
        {
            addr.map_or(Ok(()), |addr| write!(f, " {word} {addr}"))?;
        }
        self.name.as_ref().map_or(Ok(()), |name| write!(f, " name {name}"))
    }
}

/// Who asks: a client that wants a lease, or one that has an address.
enum Asker {
    Client(Box<Client>),
    Inform(Box<Inform>),
}

impl Asker {
    fn poll_at(&self) -> Option<Instant> {
        match self {
            Self::Client(it) => it.poll_at(),
            Self::Inform(it) => it.poll_at(),
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Action> {
        match self {
            Self::Client(it) => it.poll(now),
            Self::Inform(it) => it.poll(now).map(Action::Broadcast),
        }
    }

    fn on_message(&mut self, now: Instant, bytes: &[u8]) {
        match self {
            Self::Client(it) => it.on_message(now, bytes),
            Self::Inform(it) => it.on_message(bytes),
        }
    }

    fn counters(&self) -> Counters {
        match self {
            Self::Client(it) => it.counters(),
            Self::Inform(it) => it.counters(),
        }
    }
}

/// Everything around the client.
struct Servers {
    client: Asker,
    /// The number of the last message.
    xid: [u8; 4],
}

impl Played for Servers {
    type Came = Did<Sent>;
    const TOLERANCE: Duration = Duration::from_millis(1);

    fn new(settings: &[&str]) -> Result<(Self, Instant), String> {
        let (mut before, mut host_name, mut inform) = (None, None, None);
        for setting in settings {
            match setting.split_whitespace().collect::<Vec<_>>().as_slice() {
                ["before", addr, "left", seconds] => {
                    before = Some((lease_of_before(number(addr)?), Duration::from_secs(number(seconds)?)));
                }
                ["name", name] => host_name = Some((*name).to_owned()),
                ["inform", addr] => inform = Some(number(addr)?),
                _ => {
                    return Err(format!(
                        "`{setting}`: the settings are `before ADDRESS left SECONDS`, `name NAME` and `inform ADDRESS`"
                    ));
                }
            }
        }
        let start = Instant::from_secs(1000);
        let (mac, id, seed) = (MacAddr(MAC), ID.to_vec(), 1);
        let client = match inform {
            Some(addr) => {
                let config = InformConfig { mac, id, addr, seed };
                Asker::Inform(Box::new(Inform::new(start, config)))
            }
            None => {
                let config = ClientConfig { mac, id, host_name, link_local: false, seed };
                Asker::Client(Box::new(Client::new(start, config, before)))
            }
        };
        Ok((Self { client, xid: [0; 4] }, start))
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.client.poll_at()
    }

    fn advance(&mut self, now: Instant) -> Result<Vec<Did<Sent>>, String> {
        let mut done = Vec::new();
        while self.client.poll_at().is_some_and(|at| at <= now) {
            match self.client.poll(now) {
                Some(Action::Broadcast(bytes)) => done.push(Did::Message(self.read(None, &bytes)?)),
                Some(Action::Unicast(to, bytes)) => done.push(Did::Message(self.read(Some(to), &bytes)?)),
                Some(other) => done.push(Did::Other(described(&other))),
                None => {}
            }
        }
        Ok(done)
    }

    fn hear(&mut self, now: Instant, words: &str) -> Result<(), String> {
        let bytes = message(words, KINDS, |kind| Answer::new(kind, self.xid))?;
        self.client.on_message(now, &bytes);
        Ok(())
    }

    fn call(&mut self, now: Instant, words: &str) -> Result<(), String> {
        let words_of = words.split_whitespace().collect::<Vec<_>>();
        if let ["counter", name, count] = words_of.as_slice() {
            return expect_counter(&self.client.counters(), name, count);
        }
        let client = match &mut self.client {
            Asker::Client(client) => client,
            Asker::Inform(inform) => return expect_informed(inform, &words_of),
        };
        match words_of.as_slice() {
            ["free", addr] => client.on_tested(now, number(addr)?, true),
            ["taken", addr] => client.on_tested(now, number(addr)?, false),
            ["release"] => client.release(),
            ["refresh"] => client.refresh(now),
            ["name", name] => client.rename(Some((*name).to_owned())),
            ["holds", what @ ..] => {
                let held = client.held().ok_or("no lease is in force")?;
                let is = network(&held.lease);
                if is != what.join(" ") {
                    return Err(format!("expected `{}`, got `{is}`", what.join(" ")));
                }
            }
            _ => return Err(format!("`{words}` is no event")),
        }
        Ok(())
    }
}

impl Servers {
    /// What is in a message of the client's, by its bytes.
    fn read(&mut self, to: Option<Ipv4Addr>, bytes: &[u8]) -> Result<Sent, String> {
        let (fixed, rest) = bytes.split_first_chunk::<FIXED>().ok_or("a message without its fields")?;
        let options = options(rest.strip_prefix(&COOKIE).ok_or("no cookie before the options")?)?;
        let value = |code: u8| options.iter().find(|(it, _)| *it == code).map(|(_, value)| *value);
        let addr = |at: usize| Ipv4Addr::from([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let named = |code| value(code).map(|it| exact::<4>(it).map(Ipv4Addr::from)).transpose();
        let (&[kind], xid) = (&exact::<1>(value(option::KIND).ok_or("no type")?)?, exact(&fixed[4..8])?);
        let kind = kind_of(KINDS, kind)?;
        // §2, §4.1: a request of Ethernet; only servers and relays fill the other fields; old relays drop what is shorter.
        let is_in_order = fixed[..4] == [1, 1, 6, 0]
            && [16, 20, 24].iter().all(|&at| addr(at).is_unspecified())
            && fixed[28..34] == MAC
            && fixed[34..].iter().all(|byte| *byte == 0)
            && bytes.len() >= 300
            && value(option::CLIENT_ID) == Some(&ID);
        if !is_in_order {
            return Err(format!("{kind}: a field is not as RFC 2131 §2 has it, or nobody is named"));
        }
        let has = Some(addr(12)).filter(|addr| !addr.is_unspecified());
        let is_asking = matches!(kind, "discover" | "request" | "inform");
        // Table 5: what a client wants to know stands in each of these, and in no other message.
        let tells = [option::PARAMETERS, option::LONGEST].map(|code| value(code).is_some());
        // §4.1: who has no address yet cannot hear what is for it alone.
        let is_broadcast = fixed[10] & 0x80 != 0;
        if tells != [is_asking; 2] || is_broadcast != (is_asking && has.is_none()) {
            return Err(format!("{kind}: its options or its flag are not those of RFC 2131 table 5"));
        }
        let name = value(option::HOST_NAME).map(|name| String::from_utf8_lossy(name).into_owned());
        let sent = Sent {
            kind,
            is_new: self.xid != xid,
            to,
            secs: u16::from_be_bytes([fixed[8], fixed[9]]),
            has,
            asks: named(option::WANTED)?,
            server: named(option::SERVER)?,
            name,
        };
        self.xid = xid;
        Ok(sent)
    }
}

/// `unanswered`, or `informed` by a server, of name servers and domains.
fn expect_informed(inform: &Inform, words: &[&str]) -> Result<(), String> {
    let is = match (inform.phase(), inform.network()) {
        (InformPhase::Informed, Some(it)) => {
            let servers: String = it.name_servers.iter().map(|server| format!(" dns {server}")).collect();
            let domains: String = it.domains.iter().map(|domain| format!(" domain {domain}")).collect();
            format!("informed by {}{servers}{domains}", it.server)
        }
        (InformPhase::Unanswered, None) => "unanswered".to_owned(),
        (InformPhase::Informing, None) => "informing".to_owned(),
        other => return Err(format!("{other:?}")),
    };
    if is == words.join(" ") { Ok(()) } else { Err(format!("expected `{}`, got `{is}`", words.join(" "))) }
}

/// Where options stand: behind the fields, in `file`, in `sname`; read in this order (RFC 3396 §5).
const AREAS: usize = 3;

/// A server's message, as far as lines say what is in it.
struct Answer {
    kind: u8,
    xid: [u8; 4],
    operation: u8,
    mac: [u8; 6],
    server: Option<Ipv4Addr>,
    yours: Ipv4Addr,
    lease: Option<u32>,
    mask: Option<Ipv4Addr>,
    /// Where the next options go.
    area: usize,
    /// The next option is cut, and its parts lie in all areas.
    is_spread: bool,
    areas: [Vec<u8>; AREAS],
    len: Option<usize>,
}

impl Answer {
    fn new(kind: u8, xid: [u8; 4]) -> Self {
        Self {
            kind,
            xid,
            operation: 2,
            mac: MAC,
            server: Some(Ipv4Addr::new(10, 0, 0, 1)),
            yours: Ipv4Addr::UNSPECIFIED,
            lease: Some(1000),
            mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
            area: 0,
            is_spread: false,
            areas: [const { Vec::new() }; AREAS],
            len: None,
        }
    }

    /// RFC 3396 §5: a long value is continued in further options of its number.
    fn put(&mut self, code: u8, value: &[u8]) {
        let spread = std::mem::take(&mut self.is_spread);
        let part_max = if spread { value.len().div_ceil(AREAS) } else { 255 };
        for (nth, part) in value.chunks(part_max).enumerate() {
            let area = if spread { nth } else { self.area };
            self.areas[area].extend([code, part.len() as u8]);
            self.areas[area].extend(part);
        }
    }
}

impl lease::Answer for Answer {
    fn take<'a>(&mut self, word: &str, words: &mut impl Iterator<Item = &'a str>) -> Result<(), String> {
        let mut next = || words.next().ok_or(format!("`{word}` has no value"));
        match word {
            "server" => self.server = Some(number(next()?)?),
            "nobody" => self.server = None,
            "addr" => self.yours = number(next()?)?,
            "lease" => {
                self.lease = match next()? {
                    "none" => None,
                    "forever" => Some(u32::MAX),
                    seconds => Some(number(seconds)?),
                }
            }
            "mask" => self.mask = Some(next()?).filter(|it| *it != "none").map(number).transpose()?,
            "stranger" => self.mac[5] ^= 1,
            "late" => self.xid[3] ^= 1,
            "asking" => self.operation = 1,
            "cut" => self.len = Some(number(next()?)?),
            "file" => self.area = 1,
            "sname" => self.area = 2,
            "spread" => self.is_spread = true,
            "id" => match next()? {
                "ours" => self.put(option::CLIENT_ID, &ID),
                _ => self.put(option::CLIENT_ID, &[255, 0, 0, 0, 8]),
            },
            "t1" => self.put(option::T1, &number::<u32>(next()?)?.to_be_bytes()),
            "t2" => self.put(option::T2, &number::<u32>(next()?)?.to_be_bytes()),
            "router" => self.put(option::ROUTERS, &number::<Ipv4Addr>(next()?)?.octets()),
            "dns" => self.put(option::NAME_SERVERS, &number::<Ipv4Addr>(next()?)?.octets()),
            "domain" => self.put(option::DOMAIN, next()?.as_bytes()),
            // So many networks 10.N.0.0/16, each through 10.0.0.N.
            "routes" => {
                let route = |n: u8| [16, 10, n, 10, 0, 0, n];
                let routes: Vec<u8> = (1..=number(next()?)?).flat_map(route).collect();
                self.put(option::ROUTES, &routes);
            }
            "option" => {
                let code = number::<u8>(next()?)?;
                let len = number::<u8>(next()?)?;
                self.areas[self.area].extend([code, len]);
            }
            "end" => self.areas[self.area].push(option::END),
            _ => return Err(format!("`{word}` is nothing that a server says")),
        }
        Ok(())
    }

    fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; FIXED];
        bytes[..4].copy_from_slice(&[self.operation, 1, 6, 0]);
        bytes[4..8].copy_from_slice(&self.xid);
        bytes[16..20].copy_from_slice(&self.yours.octets());
        bytes[28..34].copy_from_slice(&self.mac);
        let mut overload = 0;
        for (bit, (field, area)) in [FILE, SNAME].into_iter().zip(&self.areas[1..]).enumerate() {
            if !area.is_empty() {
                overload |= 1 << bit;
                bytes[field][..area.len()].copy_from_slice(area);
                bytes[[FILE, SNAME][bit].start + area.len()] = option::END;
            }
        }
        bytes.extend(COOKIE);
        bytes.extend([option::KIND, 1, self.kind]);
        let addrs = [(option::SERVER, self.server), (option::MASK, self.mask)];
        let addrs = addrs.into_iter().filter_map(|(code, addr)| Some((code, addr?.octets())));
        let lease = self.lease.map(|seconds| (option::LEASE, seconds.to_be_bytes()));
        // §4.3.2: a refusal gives nothing.
        let is_refusal = self.kind == 6;
        for (code, value) in addrs.chain(lease).filter(|(code, _)| !is_refusal || *code == option::SERVER) {
            bytes.extend([code, 4]);
            bytes.extend(value);
        }
        if overload != 0 {
            bytes.extend([option::OVERLOAD, 1, overload]);
        }
        bytes.extend(&self.areas[0]);
        bytes.push(option::END);
        bytes.truncate(self.len.unwrap_or(usize::MAX));
        bytes
    }
}

/// Code and value of each option, up to the end.
fn options(mut bytes: &[u8]) -> Result<Vec<(u8, &[u8])>, String> {
    let mut found = Vec::new();
    loop {
        match *bytes {
            [option::END, ..] => return Ok(found),
            [0, ref rest @ ..] => bytes = rest,
            [code, len, ref rest @ ..] => {
                let (value, rest) = rest.split_at_checked(len.into()).ok_or("an option that is cut off")?;
                if found.iter().any(|(other, _)| *other == code) {
                    return Err(format!("option {code} comes twice"));
                }
                found.push((code, value));
                bytes = rest;
            }
            _ => return Err("the options have no end".into()),
        }
    }
}

fn lease_of_before(addr: Ipv4Addr) -> Lease {
    Lease {
        addr,
        prefix_len: 24,
        server: Ipv4Addr::new(10, 0, 0, 1),
        time: Some(Duration::from_secs(1000)),
        renew: Duration::from_secs(500),
        rebind: Duration::from_secs(875),
        routes: Vec::new(),
        name_servers: Vec::new(),
        domains: Vec::new(),
    }
}

/// What a lease says beside its address and its times.
fn network(lease: &Lease) -> String {
    let mut words = vec![format!("/{}", lease.prefix_len)];
    match lease.routes.as_slice() {
        [] => {}
        [only] => words.push(format!("route {}/{} {}", only.network, only.prefix_len, only.via)),
        [.., last] => {
            let count = lease.routes.len();
            words.push(format!("routes {count} to {}/{} {}", last.network, last.prefix_len, last.via));
        }
    }
    words.extend(lease.name_servers.iter().map(|it| format!("dns {it}")));
    words.extend(lease.domains.iter().map(|it| format!("domain {it}")));
    words.join(" ")
}

fn described(action: &Action) -> String {
    match action {
        Action::Broadcast(_) | Action::Unicast(..) => "send".to_owned(),
        Action::Test(lease) => format!("test {}", lease.addr),
        Action::Bound(held) => format!("bound {}", held.lease.addr),
        Action::Lost(lease, why) => lost(lease.addr, *why),
    }
}

impl lease::Sent for Sent {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn is_new(&self) -> bool {
        self.is_new
    }

    /// Time and name are compared if the line says them; all addresses always.
    fn has(&self, line: &Line<'_>) -> bool {
        let addr = |name: &str| line.value(name).and_then(|it| it.parse().ok());
        [self.to, self.has, self.asks, self.server] == ["to", "has", "asks", "server"].map(addr)
            && line.value("secs").is_none_or(|it| it.parse().ok() == Some(self.secs))
            && line.value("name").is_none_or(|it| self.name.as_deref() == Some(it))
    }
}
