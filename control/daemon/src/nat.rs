//! What a netstack's address translation has counted and made, in the interface's words.
//!
//! Called by `host.rs`.

use firelane::{Engine, IpProtocol, NatCounts, NatRow, NatTuple};
use firelane_api::{ApiError, NatInfo, NatLimitInfo, NatRuleInfo, NatSession, NatTotals};
use firelane_model::{IpnatRule, Netstack};
use firelane_units::{FilterProtocol, Instant, NatAction, NatPorts, NetstackId};

use crate::refusal::refused;

/// What the translation of a netstack has counted, and may have made.
pub(crate) fn info(engine: &Engine, netstack: NetstackId, said: &Netstack) -> Result<NatInfo, ApiError> {
    let counted = engine.nat_counts(netstack).map_err(refused)?;
    let rule = |(place, rule): (usize, &IpnatRule)| {
        let made = counted.rules.get(place).copied().unwrap_or_default();
        NatRuleInfo { rule: rule.clone(), made: made.hits, sessions: made.active }
    };
    let rules = said.nat.iter().enumerate().map(rule).collect();
    Ok(NatInfo { rules, totals: totals(&counted), limits: NatLimitInfo::of(&said.nat_limits) })
}

fn totals(it: &NatCounts) -> NatTotals {
    NatTotals {
        inward: it.translated[0],
        outward: it.translated[1],
        errors: it.errors,
        ended: it.ended,
        sessions: it.sessions,
        half_open: it.half_open,
        mappings: it.mappings,
        waiting: it.waiting,
        early: it.early,
        given_up: it.given_up,
        added: it.added,
        expired: it.expired,
        evicted: it.evicted,
        flushed: it.flushed,
    }
}

/// The sessions that `rules` have made, and rules before them.
pub(crate) fn sessions(
    engine: &Engine,
    netstack: NetstackId,
    rules: &[IpnatRule],
) -> Result<Vec<NatSession>, ApiError> {
    let rows = engine.nat_sessions(netstack).map_err(refused)?;
    let now = engine.now();
    Ok(rows.iter().map(|row| session(row, now, rules)).collect())
}

fn session(row: &NatRow, now: Instant, rules: &[IpnatRule]) -> NatSession {
    let NatRow { forth, back, .. } = *row;
    let destination = |it: NatTuple| (it.dst, it.ports[1]);
    let source = |it: NatTuple| (it.src, it.ports[0]);
    // Who is answered by whom he has written to has another name outside; else whom it was for is another inside.
    let is_mapped = destination(forth) == source(back);
    let (inside, outside, peer) = match is_mapped {
        true => (source(forth), destination(back), destination(forth)),
        false => (source(back), destination(forth), source(forth)),
    };
    let rule = row.rule.and_then(|nth| rules.get(usize::try_from(nth).ok()?));
    let kind = match rule.map(|rule| (rule.rule().action, rule.rule().protocol)) {
        Some((NatAction::Map(_, NatPorts::Block(_)), FilterProtocol::Any)) => "MAP-BLOCK",
        Some((NatAction::Map(..), _)) => "MAP",
        Some((NatAction::Bimap(_), _)) => "BIMAP",
        Some((NatAction::Redirect(_), _)) => "RDR",
        None if is_mapped => "MAP",
        None => "RDR",
    };
    let protocol = match forth.protocol {
        IpProtocol::TCP => "tcp".to_owned(),
        IpProtocol::UDP => "udp".to_owned(),
        IpProtocol::ICMPV4 => "icmp".to_owned(),
        other => other.0.to_string(),
    };
    NatSession {
        kind: kind.to_owned(),
        protocol,
        inside: inside.0,
        inside_port: inside.1,
        outside: outside.0,
        outside_port: outside.1,
        peer: peer.0,
        peer_port: peer.1,
        phase: row.phase.word().to_owned(),
        ttl: row.ends.saturating_since(now).as_secs(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane::NatPhase;
    use std::net::Ipv4Addr;

    fn tuple(src: (u8, u16), dst: (u8, u16)) -> NatTuple {
        let at = |n: u8| Ipv4Addr::new(10, n, 0, 1);
        NatTuple { src: at(src.0), dst: at(dst.0), ports: [src.1, dst.1], protocol: IpProtocol::TCP }
    }

    fn row(rule: Option<u32>, forth: NatTuple, back: NatTuple) -> NatRow {
        let ends = Instant::ZERO.plus_nanos(90_500_000_000);
        NatRow { rule, forth, back, phase: NatPhase::Established, ends }
    }

    fn shown(row: &NatRow, rules: &[IpnatRule]) -> String {
        let it = session(row, Instant::ZERO.plus_nanos(30_000_000_000), rules);
        let NatSession {
            kind, inside, inside_port, outside, outside_port, peer, peer_port, phase, ttl, ..
        } = it;
        format!("{kind} {inside}:{inside_port} {outside}:{outside_port} {peer}:{peer_port} {phase} {ttl}")
    }

    #[test]
    fn who_is_inside_is_told_from_both_ways() {
        let rules = [
            "map w0 10.1.0.0/16 -> 0/32",
            "bimap w0 10.1.0.1/32 -> 10.2.0.1/32",
            "rdr w0 10.2.0.1/32 port 80 -> 10.1.0.1 port 8080",
        ];
        let rules: Vec<IpnatRule> = rules.iter().map(|it| it.parse().unwrap()).collect();
        // 10.1.0.1 is inside, 10.2.0.1 how it is known, 10.3.0.1 somebody else.
        let out = (tuple((1, 4000), (3, 80)), tuple((3, 80), (2, 5000)));
        let inward = (tuple((3, 4000), (2, 80)), tuple((1, 8080), (3, 4000)));
        for (rule, (forth, back), said) in [
            (Some(0), out, "MAP 10.1.0.1:4000 10.2.0.1:5000 10.3.0.1:80 established 60"),
            (Some(1), out, "BIMAP 10.1.0.1:4000 10.2.0.1:5000 10.3.0.1:80 established 60"),
            (Some(1), inward, "BIMAP 10.1.0.1:8080 10.2.0.1:80 10.3.0.1:4000 established 60"),
            (Some(2), inward, "RDR 10.1.0.1:8080 10.2.0.1:80 10.3.0.1:4000 established 60"),
            (None, inward, "RDR 10.1.0.1:8080 10.2.0.1:80 10.3.0.1:4000 established 60"),
            (Some(9), out, "MAP 10.1.0.1:4000 10.2.0.1:5000 10.3.0.1:80 established 60"),
        ] {
            assert_eq!(shown(&row(rule, forth, back), &rules), said);
        }
    }
}
