//! What one rule must not say, whatever the others say.

use firelane_units::{
    BlockAnswer, FilterAction, FilterAddresses, FilterEnd, FilterPorts, FilterProtocol, FilterRule,
};

use super::error::RuleError;
use crate::LinkName;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// The first thing that contradicts itself.
pub(super) fn rule(rule: &FilterRule<LinkName>) -> Result<(), RuleError> {
    let fault = action(rule).or_else(|| ends(rule)).or_else(|| header(rule)).or_else(|| keeps(rule));
    fault.map_or(Ok(()), |(token, allowed)| Err(RuleError::new(1, token, allowed)))
}

type Fault = Option<(String, &'static str)>;

fn fault(token: impl ToString, allowed: &'static str) -> Fault {
    Some((token.to_string(), allowed))
}

fn action(rule: &FilterRule<LinkName>) -> Fault {
    let protocol = rule.matching.protocol;
    match rule.action {
        FilterAction::Block(BlockAnswer::Reset) if protocol != FilterProtocol::Number(TCP) => {
            fault("return-rst", "only with proto tcp")
        }
        FilterAction::Block(BlockAnswer::Icmp { code, .. }) if code > 15 => {
            fault(code, "a code from 0 to 15")
        }
        FilterAction::Skip(0) => fault("skip", "how many rules are left out, from 1 to 65535"),
        FilterAction::Call(_) if rule.log.is_some() => {
            fault("log", "who calls logs nothing: rules of the groups may")
        }
        FilterAction::Call(_) if rule.head.is_some() => fault("head", "the groups are those of the map"),
        FilterAction::Log if rule.log.is_none() => fault("log", "what is logged is missing"),
        _ => None,
    }
}

fn ends(rule: &FilterRule<LinkName>) -> Fault {
    let it = &rule.matching;
    let has_ports = matches!(it.protocol, FilterProtocol::TcpUdp | FilterProtocol::Number(TCP | UDP));
    for end in [&it.from, &it.to] {
        if end.ports != FilterPorts::Any && !has_ports {
            return fault("port", "only with proto tcp, udp or tcp/udp");
        }
        if end.negated && end.addresses == FilterAddresses::Any {
            return fault("!", "not any is no address");
        }
        if let FilterPorts::Inside(low, high)
        | FilterPorts::Outside(low, high)
        | FilterPorts::Range(low, high) = end.ports
            && low > high
        {
            return fault(format!("port {low}"), "the lower port stands first");
        }
    }
    let [from, to] = [&it.from, &it.to].map(is_v4);
    if let (Some(a), Some(b)) = (from, to)
        && a != b
    {
        return fault("to", "both addresses are of one family");
    }
    match (it.protocol, from.or(to)) {
        (FilterProtocol::Number(ICMP), Some(false)) => fault("icmp", "IPv6 has icmpv6"),
        (FilterProtocol::Number(ICMPV6), Some(true)) => fault("icmpv6", "IPv4 has icmp"),
        _ => None,
    }
}

fn is_v4(end: &FilterEnd) -> Option<bool> {
    match end.addresses {
        FilterAddresses::Prefix(prefix) => Some(prefix.addr().is_ipv4()),
        FilterAddresses::Any | FilterAddresses::Pool(_) => None,
    }
}

fn header(rule: &FilterRule<LinkName>) -> Fault {
    let it = &rule.matching;
    if it.icmp.is_some() && !matches!(it.protocol, FilterProtocol::Number(ICMP | ICMPV6)) {
        return fault("icmp-type", "only with proto icmp or icmpv6");
    }
    match it.flags {
        Some(_) if it.protocol != FilterProtocol::Number(TCP) => fault("flags", "only with proto tcp"),
        Some(flags) if flags.mask == 0 || flags.set & !flags.mask != 0 => {
            fault("flags", "those that are set are among those that are looked at, such as S/SA")
        }
        _ => None,
    }
}

fn keeps(rule: &FilterRule<LinkName>) -> Fault {
    let passes = rule.action == FilterAction::Pass;
    match (rule.keep_state, rule.keep_frags) {
        (Some(_), _) | (_, true) if !passes => fault("keep", "only with pass"),
        (Some(state), _) if state.age.is_some_and(|(forward, back)| forward == 0 || back == 0) => {
            fault("age", "seconds from 1")
        }
        _ if rule.head.is_some() && rule.head == rule.group => {
            fault("head", "a rule is not in its own group")
        }
        _ => None,
    }
}
