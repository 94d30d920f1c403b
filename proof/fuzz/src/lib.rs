//! Fuzz targets: whatever bytes come, no panic, and the laws hold.
//!
//! A target is a function of bytes that panics when a law is broken. Some bytes are what a wire delivers
//! (headers, frames), some are choices of a scenario ([`input::Input`]): which calls two connections get, in
//! which order, and what the wire between them loses. The corpus is in the tree; `tests/replay.rs` runs it
//! with some thousand mutations in every test run, `make soak` for as long as one likes, and the command
//! `fuzz` explores and replays. [`feedback`] keeps inputs that show something new.

pub mod corpus;
pub mod feedback;
pub mod input;
pub mod mutate;
pub mod random;
pub mod run;
pub mod seeds;
pub mod targets;

/// Something to fuzz.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: that of its folder in the corpus.
    pub name: &'static str,
    /// What it tries.
    pub about: &'static str,
    /// Runs one input; panics if a law is broken.
    pub run: fn(&[u8]),
    /// How much of the time a test run gives it: how many mutations per run.
    pub share: u64,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "ethernet",
        about: "Ethernet and VLAN headers",
        run: targets::wire::target_ethernet,
        share: 16_000,
    },
    Target { name: "arp", about: "ARP packets", run: targets::wire::target_arp, share: 16_000 },
    Target {
        name: "ipv4",
        about: "IPv4 headers with options",
        run: targets::wire::target_ipv4,
        share: 32_000,
    },
    Target {
        name: "ipv6",
        about: "IPv6 with extension headers",
        run: targets::wire::target_ipv6,
        share: 32_000,
    },
    Target {
        name: "icmpv4",
        about: "ICMP for IPv4, quotes included",
        run: targets::wire::target_icmpv4,
        share: 32_000,
    },
    Target {
        name: "icmpv6",
        about: "ICMP for IPv6, quotes included",
        run: targets::wire::target_icmpv6,
        share: 32_000,
    },
    Target {
        name: "ndp",
        about: "neighbour discovery with its options",
        run: targets::wire::target_ndp,
        share: 48_000,
    },
    Target {
        name: "udp",
        about: "UDP header view and path/udp",
        run: targets::wire::target_udp,
        share: 32_000,
    },
    Target { name: "tcp", about: "TCP header with options", run: targets::wire::target_tcp, share: 48_000 },
    Target {
        name: "checksum",
        about: "sums in pieces against sums of the whole",
        run: targets::wire::target_checksum,
        share: 16_000,
    },
    Target {
        name: "classify",
        about: "the classifier against the views of wire",
        run: targets::classify::target_classify,
        share: 80_000,
    },
    Target {
        name: "offload",
        about: "virtio-net headers, cutting and completing frames",
        run: targets::offload::target_offload,
        share: 32_000,
    },
    Target {
        name: "tcp_pair",
        about: "two connections, a bad wire, any order of calls",
        run: targets::tcp_pair::target_tcp_pair,
        share: 2_400,
    },
    Target {
        name: "tcp_hostile",
        about: "one connection against a peer that lies",
        run: targets::tcp_hostile::target_tcp_hostile,
        share: 4_800,
    },
    Target {
        name: "tcp_tables",
        about: "half-open and TIME-WAIT tables",
        run: targets::tcp_tables::target_tcp_tables,
        share: 8_000,
    },
    Target {
        name: "model",
        about: "the configuration file, its text and its plan",
        run: targets::model::target_model,
        share: 3_200,
    },
    Target {
        name: "ipf_conf",
        about: "rules of the packet filter as text",
        run: targets::ipf_conf::target_ipf_conf,
        share: 8_000,
    },
    Target {
        name: "api",
        about: "requests to the management interface",
        run: targets::api::target_api,
        share: 4_800,
    },
    Target {
        name: "cli",
        about: "command lines of the Solaris commands",
        run: targets::cli::target_cli,
        share: 2000,
    },
    Target {
        name: "dhcp_message",
        about: "DHCP messages",
        run: targets::dhcp::target_dhcp_message,
        share: 32_000,
    },
    Target {
        name: "dhcp_client",
        about: "a DHCP client and servers that say anything",
        run: targets::dhcp::target_dhcp_client,
        share: 8_000,
    },
    Target {
        name: "dhcp6_message",
        about: "DHCPv6 messages",
        run: targets::dhcp6::target_dhcp6_message,
        share: 32_000,
    },
    Target {
        name: "dhcp6_client",
        about: "a DHCPv6 client, routers and servers that say anything",
        run: targets::dhcp6::target_dhcp6_client,
        share: 8_000,
    },
    Target {
        name: "ip",
        about: "a netstack's IP side: frames, time, datagrams",
        run: targets::ip::target_ip,
        share: 2000,
    },
    Target {
        name: "netstack",
        about: "packets, calls and time together against a netstack with a neighbour",
        run: targets::netstack::target_netstack,
        share: 400,
    },
    Target {
        name: "lane",
        about: "the whole receive path, with sockets and changes",
        run: targets::lane::target_lane,
        share: 1000,
    },
];
