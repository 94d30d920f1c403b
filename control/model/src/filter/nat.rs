//! A rule of address translation, in the language of ipnat(5): read from one line, written as one line.
//!
//! ```text
//! map|map-block|bimap link net | from end to end -> net [portmap proto low:high|auto] [icmpidmap icmp low:high] [ports n|auto] [mssclamp n] [age f/b]
//! rdr link net [port low[-high]] | from end to end -> address[,address] [port [=] n] [proto] [mssclamp n] [age f/b]
//! ```
//!
//! `0/32` as the target is whatever address the link has. Application proxies are refused.

use core::fmt;
use core::net::Ipv4Addr;
use core::num::NonZeroU16;
use core::str::FromStr;

use firelane_units::{
    FilterAddresses, FilterEnd, FilterPorts, FilterProtocol, IpPrefix, NatAction, NatEnd, NatPorts,
    NatRedirect, NatRule, NatTarget, Port, nat_block_ports,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ends::{masked, port};
use super::error::RuleError;
use super::read::{Words, decimal};
use super::rule::serde_as_line;
use super::{tokens, words};
use crate::LinkName;

/// A rule that does not contradict itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct IpnatRule(NatRule<LinkName>);

type Read<T> = Result<T, RuleError>;

const NET: &str = "an IPv4 network such as 10.0.0.0/8";
const OUTSIDE: &str = "a network whose addresses stations may have, or 0/32 for the VNIC's own; who keeps his own is left out before ->";
const TCP: u8 = 6;
const UDP: u8 = 17;
/// The original takes it for any port, and no packet has it.
const NO_PORT: Port = Port(0);

impl IpnatRule {
    /// What it says.
    pub const fn rule(&self) -> &NatRule<LinkName> {
        &self.0
    }
}

impl FromStr for IpnatRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Read<Self> {
        let mut rules = tokens::rules(text);
        let only = rules.next().ok_or_else(|| RuleError::new(1, "", "a rule is missing"))?;
        if let Some(second) = rules.next() {
            return Err(RuleError::new(second[0].line, second[0].text, "one text is one rule"));
        }
        of_tokens(&only)
    }
}

/// The rule that the tokens are.
pub(super) fn of_tokens(tokens: &[tokens::Token<'_>]) -> Read<IpnatRule> {
    let mut words = Words::new(tokens);
    let kind = words.value("a rule begins with map, map-block, bimap or rdr", |word| {
        ["map", "map-block", "bimap", "rdr"].into_iter().find(|kind| *kind == word)
    })?;
    let link = words.value("the name of a VNIC", |word| word.parse::<LinkName>().ok())?;
    let rule = if kind == "rdr" { redirect(link, &mut words)? } else { map(kind, link, &mut words)? };
    match words.peek() {
        None => Ok(IpnatRule(rule)),
        Some("proxy") => Err(words.refuse("not supported: no application proxies are followed")),
        Some(_) => Err(words.refuse("the rule ends here, or says mssclamp or age")),
    }
}

/// Whether each address of a network may be a station's: neither this network's, nor a host's own, nor many stations' (RFC 1122 §3.2.1.3).
fn is_of_stations(net: IpPrefix) -> bool {
    const OTHERS: [(Ipv4Addr, u8); 3] =
        [(Ipv4Addr::UNSPECIFIED, 8), (Ipv4Addr::new(127, 0, 0, 0), 8), (Ipv4Addr::new(224, 0, 0, 0), 3)];
    let mut others = OTHERS.into_iter().filter_map(|(address, len)| IpPrefix::new(address.into(), len));
    others.all(|other| !other.contains(net.addr()) && !net.contains(other.addr()))
}

fn network(word: &str) -> Option<IpPrefix> {
    let (address, mask) = word.split_once('/').unwrap_or((word, "32"));
    let address = if address == "0" { "0.0.0.0" } else { address };
    masked(address.parse().ok()?, mask).filter(|net| net.addr().is_ipv4())
}

/// `net`, or `from end to end`: whether it was the latter.
fn ends(words: &mut Words<'_>) -> Read<Option<[NatEnd; 2]>> {
    if !words.take("from") {
        return Ok(None);
    }
    let from = nat_end(words)?;
    words.expect("to", "to and where the packet goes")?;
    Ok(Some([from, nat_end(words)?]))
}

fn nat_end(words: &mut Words<'_>) -> Read<NatEnd> {
    let before = words.refuse("an IPv4 address or network, or any; pools are the filter's");
    let FilterEnd { negated, addresses, ports } = words.end()?;
    let prefix = match addresses {
        FilterAddresses::Any if !negated => None,
        FilterAddresses::Prefix(prefix) if prefix.addr().is_ipv4() => Some(prefix),
        _ => return Err(before),
    };
    Ok(NatEnd { negated, prefix, ports })
}

fn arrow(words: &mut Words<'_>) -> Read<()> {
    words.expect("-", "-> and the address outside, or whom it is for")?;
    words.expect(">", "-> and the address outside, or whom it is for")
}

fn range(word: &str) -> Option<(Port, Port)> {
    let (low, high) = word.split_once([':', '-']).unwrap_or((word, word));
    Some((port(low)?, port(high)?)).filter(|(low, high)| low <= high)
}

fn protocol(word: &str) -> Option<FilterProtocol> {
    match word {
        "tcp/udp" | "tcpudp" => Some(FilterProtocol::TcpUdp),
        _ => words::protocol(word).or_else(|| decimal(word)).map(FilterProtocol::Number),
    }
}

fn has_ports(protocol: FilterProtocol) -> bool {
    matches!(protocol, FilterProtocol::TcpUdp | FilterProtocol::Number(TCP | UDP))
}

fn map(kind: &str, link: LinkName, words: &mut Words<'_>) -> Read<NatRule<LinkName>> {
    let said = ends(words)?;
    let [from, to] = match said {
        Some(ends) => ends,
        None => {
            let prefix = Some(words.value(NET, network)?);
            [NatEnd { prefix, ..NatEnd::default() }, NatEnd::default()]
        }
    };
    arrow(words)?;
    let before = words.refuse("as many addresses as there are inside, which is said without !");
    let is_of_link = |net: IpPrefix| net.addr().is_unspecified() && net.prefix_len() == 32;
    let net =
        words.value(OUTSIDE, |word| network(word).filter(|net| is_of_link(*net) || is_of_stations(*net)))?;
    let target = if is_of_link(net) { NatTarget::OfLink } else { NatTarget::Prefix(net) };
    let size = |net: IpPrefix| 1_u64 << (32 - net.prefix_len());
    let (inside, outside) = (from.prefix.filter(|_| !from.negated).map(size), size(net));
    let mut rule = NatRule::new(link, NatAction::Bimap(target));
    (rule.from, rule.to) = (from, to);
    if kind == "bimap" {
        if inside != Some(outside) {
            return Err(before);
        }
    } else {
        let ports = if kind == "map-block" { NatPorts::Block(None) } else { NatPorts::Same };
        rule.action = NatAction::Map(target, ports_of(kind, words, &mut rule.protocol, ports)?);
    }
    if let NatAction::Map(_, NatPorts::Block(each)) = rule.action {
        // What is asked for, and what there is.
        let most = inside.and_then(|inside| nat_block_ports(inside, outside));
        if most.is_none() || each > most {
            return Err(RuleError {
                allowed: "a port or more for each address inside, which is said without !".into(),
                ..before
            });
        }
    }
    options(words, &mut rule)?;
    // A block is for all protocols.
    if kind != "map-block"
        && rule.protocol == FilterProtocol::Any
        && let Some(protocol) = words.peek().and_then(protocol)
    {
        (rule.protocol, _) = (protocol, words.value("", |_| Some(())));
    }
    refuse_ports(&rule, words)?;
    Ok(rule)
}

fn ports_of(kind: &str, words: &mut Words<'_>, of: &mut FilterProtocol, ports: NatPorts) -> Read<NatPorts> {
    const RANGE: &str = "the first and the last port, such as 1025:65000";
    if kind == "map-block" {
        return match words.take("ports") {
            false => Ok(ports),
            true => words.value("how many ports each address inside has, or auto", |word| match word {
                "auto" => Some(NatPorts::Block(None)),
                _ => decimal::<NonZeroU16>(word).map(|each| NatPorts::Block(Some(each))),
            }),
        };
    }
    if words.take("portmap") {
        *of = words.value("tcp, udp or tcp/udp", |word| protocol(word).filter(|it| has_ports(*it)))?;
        return words.value("the first and the last port, such as 1025:65000, or auto", |word| match word {
            "auto" => Some(NatPorts::Block(None)),
            _ => range(word).filter(|(low, _)| *low != NO_PORT).map(|(low, high)| NatPorts::Range(low, high)),
        });
    }
    if words.take("icmpidmap") {
        *of = words.value("icmp", |word| (word == "icmp").then_some(FilterProtocol::Number(1)))?;
        return words.value(RANGE, |word| range(word).map(|(low, high)| NatPorts::Range(low, high)));
    }
    Ok(ports)
}

fn redirect(link: LinkName, words: &mut Words<'_>) -> Read<NatRule<LinkName>> {
    let (from, mut to) = match ends(words)? {
        Some([from, to]) => (from, to),
        None => {
            let prefix = Some(words.value(NET, network)?);
            (NatEnd::default(), NatEnd { prefix, ..NatEnd::default() })
        }
    };
    if words.take("port") {
        const PORTS: &str =
            "a port from 1, or the first and the last, such as 6000-6009; all of them if nothing is said";
        let (low, high) = words.value(PORTS, |word| range(word).filter(|(low, _)| *low != NO_PORT))?;
        to.ports = if low == high { FilterPorts::Equal(low) } else { FilterPorts::Range(low, high) };
    }
    arrow(words)?;
    const WHOM: &str = "the IPv4 address of the station whom it is for, which may be the netstack's own";
    let station = |word: &str| {
        let address: Ipv4Addr = word.parse().ok()?;
        Some(address).filter(|it| is_of_stations(IpPrefix::host((*it).into())))
    };
    let address = words.value(WHOM, |word| station(word.strip_suffix("/32").unwrap_or(word)))?;
    let second = match words.take(",") {
        true => Some(words.value(WHOM, station)?),
        false => None,
    };
    let (mut first, mut is_range) = (None, false);
    if words.take("port") {
        is_range = !words.take("=") && matches!(to.ports, FilterPorts::Range(..));
        first = Some(first_of(to.ports, is_range, words)?);
    }
    let action = NatAction::Redirect(NatRedirect { address, second, port: first, is_range });
    let mut rule = NatRule { from, to, ..NatRule::new(link, action) };
    if let Some(protocol) = words.peek().and_then(protocol) {
        (rule.protocol, _) = (protocol, words.value("", |_| Some(())));
    } else if first.is_some() || to.ports != FilterPorts::Any {
        // As the original has it.
        rule.protocol = FilterProtocol::Number(TCP);
    }
    options(words, &mut rule)?;
    refuse_ports(&rule, words)?;
    Ok(rule)
}

/// The port whom it is for, or the first of as many as are asked for.
fn first_of(asked: FilterPorts, is_range: bool, words: &mut Words<'_>) -> Read<Port> {
    const WHICH: &str = "the port whom it is for, from 1; the one that it has if nothing is said";
    let last = match asked {
        FilterPorts::Range(low, high) if is_range => u16::MAX - (high.0 - low.0),
        _ => u16::MAX,
    };
    let fewer = format!("a port from 1 to {last}, as there are as many from it on as before ->");
    let which = if last == u16::MAX { WHICH } else { &fewer };
    words.value(which, |word| port(word).filter(|port| (1..=last).contains(&port.0)))
}

/// What may stand at the end of each rule.
fn options(words: &mut Words<'_>, rule: &mut NatRule<LinkName>) -> Read<()> {
    words.take("round-robin");
    loop {
        if words.take("mssclamp") {
            rule.mss = Some(words.value("the largest segment in bytes, from 1", decimal)?);
        } else if words.take("age") {
            rule.age =
                Some(words.value("seconds from 1, forward and back, such as 60/60", super::read::age)?);
        } else {
            return Ok(());
        }
    }
}

fn refuse_ports(rule: &NatRule<LinkName>, words: &Words<'_>) -> Read<()> {
    let asks = rule.from.ports != FilterPorts::Any || rule.to.ports != FilterPorts::Any;
    if asks && !has_ports(rule.protocol) {
        return Err(words.refuse("ports are asked for with tcp, udp or tcp/udp only"));
    }
    if rule.age.is_some_and(|(forth, back)| forth == 0 || back == 0) {
        return Err(words.refuse("age is in seconds from 1"));
    }
    Ok(())
}

impl fmt::Display for IpnatRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = &self.0;
        let kind = match rule.action {
            NatAction::Map(_, NatPorts::Block(_)) if rule.protocol == FilterProtocol::Any => "map-block",
            NatAction::Map(..) => "map",
            NatAction::Bimap(_) => "bimap",
            NatAction::Redirect(_) => "rdr",
        };
        write!(f, "{kind} {} from ", rule.link)?;
        let end = |end: &NatEnd| {
            let addresses = end.prefix.map_or(FilterAddresses::Any, FilterAddresses::Prefix);
            FilterEnd { negated: end.negated, addresses, ports: end.ports }
        };
        super::write::place(&end(&rule.from), f)?;
        f.write_str(" to ")?;
        super::write::place(&end(&rule.to), f)?;
        f.write_str(" -> ")?;
        let protocol = ProtocolWord(rule.protocol);
        match rule.action {
            NatAction::Map(target, ports) => {
                write_target(target, f)?;
                match ports {
                    NatPorts::Same => {}
                    NatPorts::Range(low, high) if rule.protocol == FilterProtocol::Number(1) => {
                        write!(f, " icmpidmap icmp {low}:{high}")?;
                    }
                    NatPorts::Range(low, high) => write!(f, " portmap {protocol} {low}:{high}")?,
                    NatPorts::Block(_) if kind == "map" => write!(f, " portmap {protocol} auto")?,
                    NatPorts::Block(None) => f.write_str(" ports auto")?,
                    NatPorts::Block(Some(each)) => write!(f, " ports {each}")?,
                }
            }
            NatAction::Bimap(target) => write_target(target, f)?,
            NatAction::Redirect(to) => {
                write!(f, "{}", to.address)?;
                to.second.map_or(Ok(()), |second| write!(f, ",{second}"))?;
                let sign = if to.is_range { "" } else { "= " };
                to.port.map_or(Ok(()), |port| write!(f, " port {sign}{port}"))?;
                if rule.protocol != FilterProtocol::Any {
                    write!(f, " {protocol}")?;
                }
            }
        }
        rule.mss.map_or(Ok(()), |mss| write!(f, " mssclamp {mss}"))?;
        rule.age.map_or(Ok(()), |(forth, back)| write!(f, " age {forth}/{back}"))?;
        let is_plain = matches!(rule.action, NatAction::Map(_, NatPorts::Same) | NatAction::Bimap(_));
        if is_plain && rule.protocol != FilterProtocol::Any { write!(f, " {protocol}") } else { Ok(()) }
    }
}

fn write_target(target: NatTarget, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match target {
        NatTarget::OfLink => f.write_str("0/32"),
        NatTarget::Prefix(net) => write!(f, "{net}"),
    }
}

struct ProtocolWord(FilterProtocol);

impl fmt::Display for ProtocolWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FilterProtocol::Any => Ok(()),
            FilterProtocol::TcpUdp => f.write_str("tcp/udp"),
            FilterProtocol::Number(number) => match words::protocol_word(number) {
                Some(word) => f.write_str(word),
                None => write!(f, "{number}"),
            },
        }
    }
}

serde_as_line!(IpnatRule, "a rule of ipnat.conf, such as \"map web0 10.0.0.0/8 -> 0/32\"");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_written_in_one_form_that_reads_back() {
        let cases = [
            (
                "map w0 10.0.0.0/8 -> 0/32 portmap tcp/udp 1025:65000",
                "map w0 from 10.0.0.0/8 to any -> 0/32 portmap tcp/udp 1025:65000",
            ),
            ("map w0 10.0.0.0/8 -> 0.0.0.0/32", "map w0 from 10.0.0.0/8 to any -> 0/32"),
            (
                "map w0 10.0.0.0/8 -> 0/32 icmpidmap icmp 1000:20000",
                "map w0 from 10.0.0.0/8 to any -> 0/32 icmpidmap icmp 1000:20000",
            ),
            (
                "map w0 10.0.0.0/24 -> 192.0.2.1/32 portmap udp auto",
                "map w0 from 10.0.0.0/24 to any -> 192.0.2.1/32 portmap udp auto",
            ),
            (
                "map-block w0 10.0.0.0/24 -> 192.0.2.0/30 ports 100",
                "map-block w0 from 10.0.0.0/24 to any -> 192.0.2.0/30 ports 100",
            ),
            ("bimap w0 10.0.0.5/32 -> 192.0.2.5/32", "bimap w0 from 10.0.0.5/32 to any -> 192.0.2.5/32"),
            (
                "rdr w0 192.0.2.1/32 port 80 -> 10.0.0.9 port 8080 tcp",
                "rdr w0 from any to 192.0.2.1/32 port = 80 -> 10.0.0.9 port = 8080 tcp",
            ),
            (
                "rdr w0 192.0.2.1/32 port 80-90 -> 10.0.0.9 port 8080",
                "rdr w0 from any to 192.0.2.1/32 port 80:90 -> 10.0.0.9 port 8080 tcp",
            ),
            (
                "rdr w0 192.0.2.1/32 port 9000-9010 -> 10.0.0.9 port 65525",
                "rdr w0 from any to 192.0.2.1/32 port 9000:9010 -> 10.0.0.9 port 65525 tcp",
            ),
            (
                "rdr w0 192.0.2.1/32 port 9000-9010 -> 10.0.0.9 port = 65530",
                "rdr w0 from any to 192.0.2.1/32 port 9000:9010 -> 10.0.0.9 port = 65530 tcp",
            ),
            (
                "rdr w0 0/0 port 53 -> 10.0.0.9,10.0.0.10 port 53 udp round-robin",
                "rdr w0 from any to 0.0.0.0/0 port = 53 -> 10.0.0.9,10.0.0.10 port = 53 udp",
            ),
            (
                "map w0 from 10.0.0.0/8 port > 1023 to ! 10.9.0.0/16 -> 0/32 portmap tcp 1:9 mssclamp 1400 age 10/20",
                "map w0 from 10.0.0.0/8 port > 1023 to !10.9.0.0/16 -> 0/32 portmap tcp 1:9 mssclamp 1400 age 10/20",
            ),
        ];
        for (text, form) in cases {
            let rule: IpnatRule = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(rule.to_string(), form);
            assert_eq!(form.parse(), Ok(rule), "{form}");
        }
    }

    #[test]
    fn errors_name_the_word_and_what_is_allowed() {
        let cases = [
            ("nat w0", "nat"),
            ("map w0 10.0.0.0/8 - 0/32", "0/32"),
            ("map w0 fd00::/8 -> 0/32", "fd00::/8"),
            ("map w0 10.0.0.0/8 -> 0/32 proxy port ftp ftp/tcp", "proxy"),
            ("map w0 10.0.0.0/8 -> 0/32 portmap gre 1:2", "gre"),
            ("map w0 10.0.0.0/8 -> 0/32 portmap tcp 9:2", "9:2"),
            ("map-block w0 10.0.0.0/8 -> 192.0.2.1/32", "192.0.2.1/32"),
            // Its addresses and ports are for all protocols.
            ("map-block w0 10.0.0.0/24 -> 192.0.2.0/30 ports 100 tcp", "tcp"),
            ("map-block w0 10.0.0.0/24 -> 192.0.2.0/30 icmp", "icmp"),
            ("bimap w0 10.0.0.0/24 -> 192.0.2.1/32", "192.0.2.1/32"),
            ("bimap w0 from !10.0.0.1/32 to any -> 192.0.2.1/32", "192.0.2.1/32"),
            ("rdr w0 192.0.2.1/32 port 80 -> 10.0.0.9 port 80 icmp", ""),
            ("rdr w0 192.0.2.1/32 port 80 -> web port 80", "web"),
            ("map w0 from pool/3 to any -> 0/32", "pool/3"),
            ("map w0 10.0.0.0/8 -> 0/32 frag", "frag"),
            // Who would have any address, or one that no station has.
            ("map w0 10.0.0.0/8 -> 0/0", "0/0"),
            ("map w0 10.0.0.0/8 -> 192.0.0.0/2", "192.0.0.0/2"),
            ("map w0 10.0.0.0/8 -> 224.0.0.5/32", "224.0.0.5/32"),
            ("bimap w0 10.0.0.5/32 -> 127.0.0.5/32", "127.0.0.5/32"),
            ("rdr w0 192.0.2.1/32 port 80 -> 127.0.0.1 port 80", "127.0.0.1"),
            ("rdr w0 192.0.2.1/32 port 80 -> 10.0.0.9,0.0.0.0 port 80", "0.0.0.0"),
            ("rdr w0 192.0.2.1/32 port 0 -> 10.0.0.9 port 80 tcp", "0"),
            ("rdr w0 192.0.2.1/32 port 80 -> 10.0.0.9 port 0 tcp", "0"),
            ("map w0 10.0.0.0/8 -> 0/32 portmap tcp/udp 0:65535", "0:65535"),
            // As many ports as are asked for are not left.
            ("rdr w0 192.0.2.1/32 port 9000-9010 -> 10.0.0.9 port 65526 tcp", "65526"),
            ("rdr w0 from any to any port 1:65535 -> 10.0.0.9 port 2 udp", "2"),
        ];
        for (text, token) in cases {
            let error = text.parse::<IpnatRule>().expect_err(text);
            assert_eq!(error.token, token, "{text}: {error}");
        }
    }
}
