//! The words of ipf(5) that stand for numbers, and those that we do not follow.
//!
//! Used by `read.rs` and `write.rs`. The number that a word stands for is the same on every host: no file of the system
//! is asked, so that one configuration means one thing.

/// Protocols above IP. The first word of a number is the one that is written.
const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", 6),
    ("udp", 17),
    ("ipv6", 41),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ipv6-icmp", 58),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
];

/// Services in common use.
const SERVICES: &[(&str, u16)] = &[
    ("auth", 113),
    ("bgp", 179),
    ("bootpc", 68),
    ("bootps", 67),
    ("domain", 53),
    ("exec", 512),
    ("finger", 79),
    ("ftp", 21),
    ("ftp-data", 20),
    ("http", 80),
    ("https", 443),
    ("ident", 113),
    ("imap", 143),
    ("imaps", 993),
    ("ipsec-nat-t", 4500),
    ("isakmp", 500),
    ("kerberos", 88),
    ("ldap", 389),
    ("ldaps", 636),
    ("login", 513),
    ("mdns", 5353),
    ("microsoft-ds", 445),
    ("mysql", 3306),
    ("netbios-dgm", 138),
    ("netbios-ns", 137),
    ("netbios-ssn", 139),
    ("nfs", 2049),
    ("nfsd", 2049),
    ("nntp", 119),
    ("ntp", 123),
    ("openvpn", 1194),
    ("pop3", 110),
    ("pop3s", 995),
    ("postgresql", 5432),
    ("printer", 515),
    ("radius", 1812),
    ("radius-acct", 1813),
    ("redis", 6379),
    ("route", 520),
    ("shell", 514),
    ("smtp", 25),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("ssh", 22),
    ("submission", 587),
    ("sunrpc", 111),
    ("syslog", 514),
    ("telnet", 23),
    ("tftp", 69),
    ("time", 37),
    ("www", 80),
    ("x11", 6000),
];

/// Types of ICMP (RFC 792, RFC 1256, RFC 950).
const ICMP_TYPES: &[(&str, u8)] = &[
    ("echorep", 0),
    ("unreach", 3),
    ("squench", 4),
    ("redir", 5),
    ("echo", 8),
    ("routerad", 9),
    ("routersol", 10),
    ("timex", 11),
    ("paramprob", 12),
    ("timest", 13),
    ("timestrep", 14),
    ("inforeq", 15),
    ("inforep", 16),
    ("maskreq", 17),
    ("maskrep", 18),
];

/// Types of ICMPv6 (RFC 4443, RFC 4861), which the original knows by number alone. Ours, and so written as numbers.
const ICMPV6_TYPES: &[(&str, u8)] = &[
    ("unreach", 1),
    ("toobig", 2),
    ("timex", 3),
    ("paramprob", 4),
    ("echo", 128),
    ("echorep", 129),
    ("routersol", 133),
    ("routerad", 134),
    ("neighborsol", 135),
    ("neighborad", 136),
    ("redir", 137),
];

/// Codes of "destination unreachable", in order from 0 (RFC 792, RFC 1812 §5.2.7.1).
pub(super) const UNREACHABLE_CODES: [&str; 16] = [
    "net-unr",
    "host-unr",
    "proto-unr",
    "port-unr",
    "needfrag",
    "srcfail",
    "net-unk",
    "host-unk",
    "isolate",
    "net-prohib",
    "host-prohib",
    "net-tos",
    "host-tos",
    "filter-prohib",
    "host-preced",
    "cutoff-preced",
];

/// TCP's flags in the order of their bits (RFC 9293 §3.1).
pub(super) const TCP_FLAGS: &str = "FSRPAUEC";

/// Words of the original that we do not follow, and why.
const NOT_FOLLOWED: &[(&str, &str)] = &[
    ("auth", "no program is asked about packets"),
    ("preauth", "no program is asked about packets"),
    ("dup-to", "a capture has copies: firelane capture"),
    ("to", "routes say where packets go"),
    ("route-to", "routes say where packets go"),
    ("reply-to", "routes say where packets go"),
    ("fastroute", "routes say where packets go"),
    ("in-via", "a rule is of one link: on"),
    ("out-via", "a rule is of one link: on"),
    ("level", "what is logged has no facility"),
    ("or-block", "what is logged is never waited for"),
    ("newisn", "initial sequence numbers are never taken over from others"),
    ("sync", "states are not shared between hosts"),
    ("bcast", "a packet of a link's broadcast is multicast"),
    ("mbcast", "a packet of a link's broadcast is multicast"),
    ("nat", "a rule does not ask what became of addresses"),
    ("bad-nat", "a rule does not ask what became of addresses"),
    ("bad", "packets that are wrong end before the filter"),
    ("bad-src", "interfaces have rpfilter for that"),
    ("lowttl", "ttl asks for one"),
    ("state", "a packet of a state passes without rules"),
    ("opt", "ipopts asks whether there are any"),
    ("set-tag", "there are no tags"),
    ("pps", "flows have limits: flowadm"),
    ("scan", "contents are not looked at"),
    ("bpf-v4", "there is no program language in rules"),
    ("bpf-v6", "there is no program language in rules"),
];

/// The number of a word in one of the tables.
fn number<N: Copy>(table: &[(&str, N)], word: &str) -> Option<N> {
    table.iter().find(|(known, _)| *known == word).map(|(_, number)| *number)
}

/// The protocol of that name.
pub(super) fn protocol(word: &str) -> Option<u8> {
    number(PROTOCOLS, word)
}

/// The name of a protocol.
pub(super) fn protocol_word(wanted: u8) -> Option<&'static str> {
    PROTOCOLS.iter().find(|(_, number)| *number == wanted).map(|(word, _)| *word)
}

/// The port of a service.
pub(super) fn service(word: &str) -> Option<u16> {
    number(SERVICES, word)
}

/// The type of that name, of ICMP or ICMPv6.
pub(super) fn icmp_type(word: &str, v6: bool) -> Option<u8> {
    number(if v6 { ICMPV6_TYPES } else { ICMP_TYPES }, word)
}

/// The name of a type of ICMP.
pub(super) fn icmp_type_word(wanted: u8) -> Option<&'static str> {
    ICMP_TYPES.iter().find(|(_, number)| *number == wanted).map(|(word, _)| *word)
}

/// The names of types, as an error lists them.
pub(super) fn icmp_types_allowed(v6: bool) -> String {
    let table = if v6 { ICMPV6_TYPES } else { ICMP_TYPES };
    let words: Vec<_> = table.iter().map(|(word, _)| *word).collect();
    format!("a number from 0 to 255, or one of {}", words.join(", "))
}

/// Why a word of the original is refused.
pub(super) fn not_followed(word: &str) -> Option<&'static str> {
    NOT_FOLLOWED.iter().find(|(known, _)| *known == word).map(|(_, why)| *why)
}
