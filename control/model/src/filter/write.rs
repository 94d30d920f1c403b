//! A rule in the form in which `ipfstat -io` prints it, which reads back as the same rule.

use core::fmt;

use firelane_units::{
    BlockAnswer, Direction, FilterAction, FilterAddresses, FilterEnd, FilterLog, FilterMatch, FilterPorts,
    FilterProtocol, FilterRule, GroupCall, KeepState, MapKey,
};

use super::words;
use crate::LinkName;

/// Writes the whole rule.
pub(super) fn rule(rule: &FilterRule<LinkName>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let is_log = rule.action == FilterAction::Log;
    action(rule.action, f)?;
    if let Some(log) = rule.log.filter(|_| is_log) {
        log_options(log, f)?;
    }
    f.write_str(match rule.direction {
        Direction::In => " in",
        Direction::Out => " out",
    })?;
    if let Some(log) = rule.log.filter(|_| !is_log) {
        f.write_str(" log")?;
        log_options(log, f)?;
    }
    f.write_str(if rule.quick { " quick" } else { "" })?;
    if let Some(link) = &rule.link {
        write!(f, " on {link}")?;
    }
    matching(&rule.matching, f)?;
    if let Some(state) = rule.keep_state {
        keep_state(state, f)?;
    }
    f.write_str(if rule.keep_frags { " keep frags" } else { "" })?;
    if let Some(head) = rule.head {
        write!(f, " head {head}")?;
    }
    rule.group.map_or(Ok(()), |group| write!(f, " group {group}"))
}

fn action(action: FilterAction, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match action {
        FilterAction::Pass => f.write_str("pass"),
        FilterAction::Count => f.write_str("count"),
        FilterAction::Log => f.write_str("log"),
        FilterAction::Skip(count) => write!(f, "skip {count}"),
        FilterAction::Call(GroupCall { map, by: MapKey::Source }) => write!(f, "call now fr_srcgrpmap/{map}"),
        FilterAction::Call(GroupCall { map, by: MapKey::Destination }) => {
            write!(f, "call now fr_dstgrpmap/{map}")
        }
        FilterAction::Block(BlockAnswer::Silent) => f.write_str("block"),
        FilterAction::Block(BlockAnswer::Reset) => f.write_str("block return-rst"),
        FilterAction::Block(BlockAnswer::Icmp { code, as_dest }) => {
            f.write_str(if as_dest { "block return-icmp-as-dest" } else { "block return-icmp" })?;
            match (code, words::UNREACHABLE_CODES.get(usize::from(code))) {
                (0, _) => Ok(()),
                (_, Some(word)) => write!(f, "({word})"),
                (_, None) => write!(f, "({code})"),
            }
        }
    }
}

fn log_options(log: FilterLog, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(if log.body { " body" } else { "" })?;
    f.write_str(if log.first { " first" } else { "" })
}

fn matching(it: &FilterMatch, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if *it == FilterMatch::default() {
        return f.write_str(" all");
    }
    it.tos.map_or(Ok(()), |tos| write!(f, " tos {tos:#x}"))?;
    it.ttl.map_or(Ok(()), |ttl| write!(f, " ttl {ttl}"))?;
    match it.protocol {
        FilterProtocol::Any => {}
        FilterProtocol::TcpUdp => f.write_str(" proto tcp/udp")?,
        FilterProtocol::Number(number) => match words::protocol_word(number) {
            Some(word) => write!(f, " proto {word}")?,
            None => write!(f, " proto {number}")?,
        },
    }
    end("from", &it.from, f)?;
    end("to", &it.to, f)?;
    if let Some((kind, code)) = it.icmp {
        let word = words::icmp_type_word(kind).filter(|_| it.protocol == FilterProtocol::Number(1));
        match word {
            Some(word) => write!(f, " icmp-type {word}")?,
            None => write!(f, " icmp-type {kind}")?,
        }
        code.map_or(Ok(()), |code| write!(f, " code {code}"))?;
    }
    if let Some(flags) = it.flags {
        write!(f, " flags {}/{}", flag_letters(flags.set), flag_letters(flags.mask))?;
    }
    for (place, (asked, is_so)) in it.with.iter().enumerate() {
        f.write_str(if place == 0 { " with " } else { "," })?;
        write!(f, "{}{}", if *is_so { "" } else { "not " }, asked.word())?;
    }
    Ok(())
}

fn end(word: &str, end: &FilterEnd, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, " {word} ")?;
    place(end, f)
}

/// One end: its addresses and ports.
pub(super) fn place(end: &FilterEnd, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(if end.negated { "!" } else { "" })?;
    match end.addresses {
        FilterAddresses::Any => f.write_str("any")?,
        FilterAddresses::Prefix(prefix) => write!(f, "{prefix}")?,
        FilterAddresses::Pool(number) => write!(f, "pool/{number}")?,
    }
    match end.ports {
        FilterPorts::Any => Ok(()),
        FilterPorts::Equal(port) => write!(f, " port = {port}"),
        FilterPorts::NotEqual(port) => write!(f, " port != {port}"),
        FilterPorts::Less(port) => write!(f, " port < {port}"),
        FilterPorts::Greater(port) => write!(f, " port > {port}"),
        FilterPorts::AtMost(port) => write!(f, " port <= {port}"),
        FilterPorts::AtLeast(port) => write!(f, " port >= {port}"),
        FilterPorts::Inside(low, high) => write!(f, " port {low} >< {high}"),
        FilterPorts::Outside(low, high) => write!(f, " port {low} <> {high}"),
        FilterPorts::Range(low, high) => write!(f, " port {low}:{high}"),
    }
}

fn flag_letters(bits: u8) -> String {
    let set = |(place, _): &(usize, char)| bits & (1 << place) != 0;
    words::TCP_FLAGS.chars().enumerate().filter(set).map(|(_, letter)| letter).collect()
}

fn keep_state(state: KeepState, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let options = [
        state.limit.map(|limit| format!("limit {limit}")),
        state.strict.then(|| "strict".to_owned()),
        state.no_icmp_err.then(|| "no-icmp-err".to_owned()),
        state.age.map(|(forward, back)| format!("age {forward}/{back}")),
    ];
    let options: Vec<_> = options.into_iter().flatten().collect();
    f.write_str(" keep state")?;
    if options.is_empty() { Ok(()) } else { write!(f, " ({})", options.join(",")) }
}
