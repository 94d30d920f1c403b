//! A netstack's counters under the names of the original's `netstat -s`, and its groups.
//!
//! Called by `host.rs` without its lock. A counter that the original has bears its name and means the same; others
//! have names after its fashion. What the original counts and Firelane does not is absent, never zero.

use firelane::{FamilyCounts, IcmpCounts, Membership, NetstackCounters};
use firelane_api::{Counter, GroupInfo, ProtocolCounters};
use firelane_model::{Prop, Tunables};
use firelane_units::DropReason as R;

use crate::ways::Names;

/// RFC 4022: the time-out is RFC 6298's.
const RTO_ALGORITHM: u64 = 5;

/// Every protocol's counters, in the order in which they are shown.
pub(crate) fn protocols(it: &NetstackCounters, tunables: &Tunables) -> Vec<ProtocolCounters> {
    let forwards = |prop| if tunables.word(prop) == "on" { 1 } else { 2 };
    let number = |prop| u64::from(tunables.number(prop));
    let mut v4 = vec![("ipForwarding", forwards(Prop::Forwarding4)), ("ipDefaultTTL", number(Prop::Ttl))];
    v4.extend(family(&it.ip.v4).into_iter().zip(IPV4).map(|(value, name)| (name, value)));
    let mut v6 = vec![
        ("ipv6Forwarding", forwards(Prop::Forwarding6)),
        ("ipv6DefaultHopLimit", number(Prop::HopLimit)),
    ];
    v6.extend(family(&it.ip.v6).into_iter().zip(IPV6).map(|(value, name)| (name, value)));
    v6.extend(refused(it));
    let icmp = |counts: &IcmpCounts, names: [&'static str; 7]| messages(counts).into_iter().zip(names);
    let named = |(value, name)| (name, value);
    vec![
        section("udp", udp(it)),
        section("tcp", tcp(it, tunables)),
        section("ip", both_versions(it)),
        section("ipv4", v4),
        section("ipv6", v6),
        section("icmp", icmp(&it.ip.v4.icmp, ICMP).map(named).collect()),
        section("icmpv6", icmp(&it.ip.v6.icmp, ICMPV6).map(named).collect()),
        section("igmp", vec![("igmpInMsgs", it.ip.v4.group_in), ("igmpOutMsgs", it.ip.v4.group_out)]),
    ]
}

fn section(protocol: &str, counters: Vec<(&'static str, u64)>) -> ProtocolCounters {
    let counter = |(name, value): (&str, u64)| Counter { name: name.to_owned(), value };
    ProtocolCounters { protocol: protocol.to_owned(), counters: counters.into_iter().map(counter).collect() }
}

fn udp(it: &NetstackCounters) -> Vec<(&'static str, u64)> {
    vec![
        ("udpInDatagrams", it.udp.received),
        ("udpInErrors", it.drops.of(R::BadDatagram)),
        ("udpOutDatagrams", it.udp.sent),
        ("udpOutErrors", it.udp.unsendable),
        ("udpNoPorts", it.drops.of(R::NoSocket)),
        ("udpInOverflows", it.drops.of(R::BufferFull)),
    ]
}

fn tcp(it: &NetstackCounters, tunables: &Tunables) -> Vec<(&'static str, u64)> {
    let (tcp, drops) = (&it.tcp, |reason| it.drops.of(reason));
    let number = |prop| u64::from(tunables.number(prop));
    let (syn, fast) = (&it.syn, &it.fast_open);
    vec![
        ("tcpRtoAlgorithm", RTO_ALGORITHM),
        ("tcpRtoMin", number(Prop::RexmitMin)),
        ("tcpRtoMax", number(Prop::RexmitMax)),
        ("tcpActiveOpens", tcp.active_opens),
        ("tcpPassiveOpens", tcp.passive_opens),
        // From SYN-RECEIVED to CLOSED or LISTEN (RFC 4022): half-open entries are no connections yet.
        ("tcpAttemptFails", tcp.attempt_fails + syn.failed + syn.evicted),
        ("tcpEstabResets", tcp.established_resets),
        ("tcpCurrEstab", tcp.established),
        ("tcpConnTableSize", it.connections),
        ("tcpOutSegs", tcp.segments_out),
        ("tcpOutDataSegs", tcp.text_segments_out),
        ("tcpOutDataBytes", tcp.text_bytes_out),
        ("tcpRetransSegs", tcp.repeated),
        ("tcpRetransBytes", tcp.repeated_bytes),
        ("tcpOutRsts", tcp.resets_out),
        ("tcpInSegs", tcp.segments_in),
        ("tcpInErrs", drops(R::BadSegment)),
        ("tcpInClosed", drops(R::NoConnection)),
        ("tcpInDupSegs", drops(R::Duplicate)),
        ("tcpInPastWinSegs", drops(R::OutOfWindow)),
        ("tcpInUnacceptable", drops(R::Unacceptable)),
        ("tcpInFewHops", drops(R::FewHops)),
        ("tcpInOldTimestamp", drops(R::OldTimestamp)),
        ("tcpInNoReader", drops(R::NoReader)),
        ("tcpReasmFull", drops(R::ReassemblyFull)),
        ("tcpListenDrop", drops(R::ListenFull)),
        ("tcpListenDropQ0", drops(R::HalfOpenFull)),
        ("tcpHalfOpenDrop", syn.evicted),
        ("tcpSynAckRetrans", syn.repeated),
        ("tcpSyncookiesSent", syn.cookies_sent),
        ("tcpSyncookiesRecv", syn.cookies_accepted),
        ("tcpSyncookiesFailed", syn.cookies_failed),
        ("tcpFastOpenActive", fast.active),
        ("tcpFastOpenActFail", fast.active_failed),
        ("tcpFastOpenBlackhole", fast.black_holes),
        ("tcpFastOpenPassive", fast.passive),
        ("tcpFastOpenAltKey", fast.passive_old),
        ("tcpFastOpenPasFail", fast.passive_failed),
        ("tcpFastOpenOverflow", fast.overflowed),
        ("tcpFastOpenReqd", fast.asked),
    ]
}

/// What is not counted by version.
fn both_versions(it: &NetstackCounters) -> Vec<(&'static str, u64)> {
    let drops = |reason| it.drops.of(reason);
    vec![
        ("ipInHdrErrors", drops(R::BadHeader)),
        ("ipInCksumErrs", drops(R::BadChecksum)),
        ("ipInAddrErrors", drops(R::NotForUs) + drops(R::Martian)),
        ("ipInBadOptions", drops(R::BadOption)),
        ("ipInUnknownProtos", drops(R::UnknownProtocol)),
        ("ipInUnknownTypes", drops(R::UnknownEtherType)),
        ("ipInBadFragments", drops(R::BadFragment)),
        ("ipReasmFails", drops(R::ReassemblyLimit)),
        ("ipOutNoRoutes", drops(R::NoRoute)),
        ("ipForwProhibits", drops(R::Prohibited) + drops(R::NotForwarding)),
        ("ipForwUnreachable", drops(R::Unreachable)),
        ("ipForwBlackholes", drops(R::Blackhole)),
        ("ipInReversePath", drops(R::ReversePath)),
        ("ipOutDiscards", drops(R::NeighbourUnresolved)),
        ("ipFragFails", drops(R::TooBig)),
        ("ipInHopsExceeded", drops(R::HopsExceeded)),
        ("ipInBadArp", drops(R::BadArp)),
        ("ipInBadNdp", drops(R::BadNdp)),
        ("ipInBadGroups", drops(R::BadGroup)),
    ]
}

const IPV4: [&str; 9] = [
    "ipInReceives",
    "ipInDelivers",
    "ipForwDatagrams",
    "ipOutRequests",
    "ipReasmReqds",
    "ipReasmOKs",
    "ipReasmTimeout",
    "ipFragOKs",
    "ipFragCreates",
];

const IPV6: [&str; 9] = [
    "ipv6InReceives",
    "ipv6InDelivers",
    "ipv6OutForwDatagrams",
    "ipv6OutRequests",
    "ipv6ReasmReqds",
    "ipv6ReasmOKs",
    "ipv6ReasmTimeout",
    "ipv6OutFragOKs",
    "ipv6OutFragCreates",
];

fn family(it: &FamilyCounts) -> [u64; 9] {
    [
        it.received,
        it.delivered,
        it.forwarded,
        it.sent,
        it.fragments,
        it.joined,
        it.timed_out,
        it.cut,
        it.pieces,
    ]
}

/// What did not fit the lists that others fill.
fn refused(it: &NetstackCounters) -> [(&'static str, u64); 7] {
    let it = it.refused;
    [
        ("ipv6RefusedRouters", it.routers),
        ("ipv6RefusedRoutes", it.routes),
        ("ipv6RefusedPrefixes", it.prefixes),
        ("ipv6RefusedAddrs", it.addresses),
        ("ipv6RefusedServers", it.servers),
        ("ipv6RefusedDomains", it.domains),
        ("ipv6RefusedGroups", it.groups),
    ]
}

const ICMP: [&str; 7] = [
    "icmpInMsgs",
    "icmpInErrors",
    "icmpInEchos",
    "icmpInErrMsgs",
    "icmpOutMsgs",
    "icmpOutErrMsgs",
    "icmpOutDrops",
];

const ICMPV6: [&str; 7] = [
    "icmp6InMsgs",
    "icmp6InErrors",
    "icmp6InEchos",
    "icmp6InErrMsgs",
    "icmp6OutMsgs",
    "icmp6OutErrMsgs",
    "icmp6OutDrops",
];

fn messages(it: &IcmpCounts) -> [u64; 7] {
    [it.received, it.bad, it.echoes, it.errors_in, it.sent, it.errors_out, it.limited]
}

/// The groups, by interface and address.
pub(crate) fn groups(memberships: &[Membership], names: &Names) -> Vec<GroupInfo> {
    let info = |it: &Membership| GroupInfo {
        interface: names.get(&it.link).map_or_else(|| "?".to_owned(), |(name, _)| name.clone()),
        group: it.group,
        members: it.members as u64,
    };
    let mut all: Vec<_> = memberships.iter().map(info).collect();
    all.sort_by(|a, b| (&a.interface, a.group).cmp(&(&b.interface, b.group)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_counter_has_a_name_of_its_own_that_fits_its_column() {
        let all = protocols(&NetstackCounters::default(), &Tunables::default());
        let names: Vec<_> = all.iter().flat_map(|it| &it.counters).map(|it| it.name.as_str()).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        assert!(names.iter().all(|name| name.len() <= 20), "{names:?}");
    }

    #[test]
    fn every_reason_of_ip_and_the_transports_has_a_counter_or_is_one_of_icmp() {
        for &reason in R::ALL {
            let mut it = NetstackCounters::default();
            it.drops.add(reason, 7);
            let all = protocols(&it, &Tunables::default());
            let shown = all.iter().flat_map(|it| &it.counters).any(|it| it.value == 7);
            let of_netstacks = matches!(reason.station().word(), "ip" | "udp" | "tcp" | "socket");
            // ICMP counts what it discards itself, and a bad cookie is `tcpSyncookiesFailed`.
            let elsewhere = [R::BadIcmp, R::IcmpLimit, R::BadCookie].contains(&reason);
            assert_eq!(shown, of_netstacks && !elsewhere, "{reason}");
        }
    }
}
