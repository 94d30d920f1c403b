//! `netstat -s` and `netstat -I`: what protocols have counted, and one link at intervals.

use std::collections::BTreeSet;

use firelane_api::{Counter, ProtocolCounters, Traffic, Which};
use firelane_model::NetstackName;
use serde::Serialize;

use crate::session::{Failure, Session, die};

/// The words of `-P` with `-s`, and the protocols that each stands for.
const PROTOCOLS: [(&str, &[&str]); 6] = [
    ("ip", &["ip", "ipv4"]),
    ("ipv6", &["ip", "ipv6"]),
    ("icmp", &["icmp", "igmp"]),
    ("icmpv6", &["icmpv6"]),
    ("tcp", &["tcp"]),
    ("udp", &["udp"]),
];

/// Which protocols `-s` shows.
pub(super) struct Shown {
    protocols: Option<&'static [&'static str]>,
    families: Vec<bool>,
}

impl Shown {
    /// Those of `-P`'s word and `-f`'s families.
    pub(super) fn of(word: Option<&str>, families: &[bool]) -> Result<Self, Failure> {
        let named = |word: &str| {
            let known = PROTOCOLS.map(|(word, _)| word).join(", ");
            let found = PROTOCOLS.iter().find(|(it, _)| *it == word).map(|(_, protocols)| *protocols);
            found.ok_or_else(|| die(format!("{word}: unknown protocol ({known})")))
        };
        Ok(Self { protocols: word.map(named).transpose()?, families: families.to_vec() })
    }

    fn shows(&self, protocol: &str) -> bool {
        let of_family = match protocol {
            "ipv4" | "icmp" | "igmp" => self.families.contains(&false),
            "ipv6" | "icmpv6" => self.families.contains(&true),
            _ => true,
        };
        of_family && self.protocols.is_none_or(|protocols| protocols.contains(&protocol))
    }
}

/// One netstack's part of the JSON document.
#[derive(Serialize)]
struct Part {
    netstack: NetstackName,
    protocols: Vec<ProtocolCounters>,
}

/// `-s`
pub(super) fn protocols(
    session: &mut Session<'_>,
    netstacks: &[NetstackName],
    shown: &Shown,
    json: bool,
) -> Result<(), Failure> {
    let mut all = Vec::new();
    for netstack in netstacks {
        let mut protocols = session.api.counters(netstack.as_str())?;
        protocols.retain(|it| shown.shows(&it.protocol));
        all.push(Part { netstack: netstack.clone(), protocols });
    }
    if json {
        return session.json("netstacks", &all, false);
    }
    for part in &all {
        if all.len() > 1 {
            writeln!(session.out, "\nNetstack {}", part.netstack)?;
        }
        for ProtocolCounters { protocol, counters } in &part.protocols {
            writeln!(session.out, "\n{}", table(title(protocol), counters))?;
        }
    }
    Ok(())
}

/// What the original calls a protocol.
fn title(protocol: &str) -> &str {
    let titles = [
        ("udp", "UDP"),
        ("tcp", "TCP"),
        ("ip", "IP"),
        ("ipv4", "IPv4"),
        ("ipv6", "IPv6"),
        ("icmp", "ICMPv4"),
        ("icmpv6", "ICMPv6"),
        ("igmp", "IGMP"),
    ];
    titles.iter().find(|(word, _)| *word == protocol).map_or(protocol, |(_, title)| title)
}

/// A tab, the name in 20 places, `=`, and the number in at least 6; two of them on a line.
fn table(title: &str, counters: &[Counter]) -> String {
    let one = |Counter { name, value }: &Counter| format!("\t{name:<20}={value:>6}");
    let lines = counters.chunks(2).map(|pair| pair.iter().map(one).collect::<String>());
    let text = lines.collect::<Vec<_>>().join("\n");
    format!("{title}{text}")
}

/// One link beside all of them, as `-I` shows it line by line: first what there was until now, then what came.
pub(super) struct Watched {
    link: String,
    before: [Traffic; 2],
    lines: usize,
}

/// Lines between two headings.
const LINES: usize = 20;

/// What `-I` gives a program.
#[derive(Serialize)]
struct Line<'a> {
    link: &'a str,
    own: Traffic,
    total: Traffic,
}

impl Watched {
    pub(super) fn new(link: &str) -> Self {
        Self { link: link.to_owned(), before: [Traffic::default(); 2], lines: 0 }
    }

    /// The next line.
    pub(super) fn show(&mut self, session: &mut Session<'_>, json: bool) -> Result<(), Failure> {
        let stats = session.api.link_stats()?;
        let own = stats.iter().find(|it| it.name.as_str() == self.link).map(|it| it.traffic);
        let own = own.ok_or_else(|| die(format!("no link is called {}", self.link)))?;
        // What VNICs over a link carry is what it carries: once is enough.
        let lower: BTreeSet<_> =
            session.api.links(Which::Active)?.into_iter().filter_map(|it| it.over).collect();
        let counted = stats.iter().filter(|it| !lower.contains(&it.name));
        let total = counted.map(|it| it.traffic).fold(Traffic::default(), Traffic::and);
        let [own_before, total_before] = std::mem::replace(&mut self.before, [own, total]);
        let (own, total) = (own.since(own_before), total.since(total_before));
        if json {
            return session.json("link", &Line { link: &self.link, own, total }, false);
        }
        if self.lines.is_multiple_of(LINES) {
            writeln!(session.out, "    input   {:<9} output           input  (Total)    output", self.link)?;
            let names = "packets errs  packets errs  colls";
            writeln!(session.out, "{names}  {names}")?;
        }
        self.lines += 1;
        // There are no collisions on a virtual wire.
        let side = |it: Traffic| {
            let Traffic { ipackets, ierrors, opackets, oerrors, .. } = it;
            format!("{ipackets:<7} {ierrors:<5} {opackets:<7} {oerrors:<5} {:<6}", 0)
        };
        Ok(writeln!(session.out, "{} {}", side(own), side(total).trim_end())?)
    }
}
