//! Whole commands against a host without an engine, from their words to every byte of their output.
//!
//! A transcript is a file of commands with their expected output: `$ ` begins a command, `! ` a line of the error
//! output, `~` is an empty line, `\#` a line that begins with `#`, `exit N` ends a command that failed. `# host:` says what the
//! host has, `# file:` what a file holds.
//! `FIRELANE_BLESS=1 cargo test -p firelane-cli` rewrites the expectations; the diff is then the review.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::path::{Path, PathBuf};

use firelane_api::{
    Api, Change, ChangeRequest, Counter, DestinationInfo, DeviceInfo, DropInfo, FilterInfo, FlowStats,
    GroupInfo, Judged, LaneReceived, LinkStats, NatInfo, NatRuleInfo, NatSession, NatTotals, NeighbourInfo,
    PlanStep, ProtocolCounters, RingStats, RouteInfo, RouteOrigin, RuleInfo, StateInfo, Stub, Traffic, Usage,
    UsageSample, WireCounts, WireStats,
};
use firelane_cli::{Session, run};
use firelane_model::{Model, Vnic};
use proptest::prelude::*;

mod samples;

use samples::{fpm, leased, memory, modes, programs, sockets, watched};

const TWO_TENANTS: &str = include_str!("../../../examples/two-tenants.toml");

fn planner(wanted: &Model, present: &Model) -> Vec<PlanStep> {
    let steps = firelane_plan::plan(wanted, present);
    steps
        .iter()
        .map(|s| PlanStep { effect: s.effect.to_string(), step: s.to_string(), lines: s.lines() })
        .collect()
}

/// Two rings, by which most of what a link of that traffic was brought and has sent went.
fn rings_of(traffic: Traffic) -> Vec<RingStats> {
    let ring = |ring: u16| {
        let n = u64::from(ring) + 1;
        RingStats {
            ring,
            lane: ring,
            ipackets: 230 * n,
            rbytes: 16_000 * n,
            intrs: 5 * n,
            polls: 225 * n,
            chains: [n, n, 2],
            opackets: traffic.opackets / 4 * n,
            obytes: traffic.obytes / 4 * n,
        }
    };
    vec![ring(0), ring(1)]
}

fn host(name: &str) -> Stub {
    let model = match name {
        "empty" => Model::default(),
        "two-tenants" => Model::from_toml("two-tenants.toml", TWO_TENANTS).unwrap(),
        "full" => Model::from_toml("full.toml", "[etherstub.vswitch1]\n").unwrap(),
        "wired" => {
            let text = "[etherstub.left0]\n[etherstub.right0]\n[etherstub.spare0]\n[wire.wire0]\nends = [\"left0\", \"right0\"]\n\
                        seed = 7\nforth = { rate = \"10M\", delay = \"20ms\" }\n";
            Model::from_toml("wired.toml", text).unwrap()
        }
        "nic" => {
            let text = "[link.net0]\nkind = \"nic\"\nifname = \"eth7\"\n[link.net1]\nkind = \"nic\"\nifname = \"veth7\"\n\
                        [etherstub.stub0]\n";
            Model::from_toml("nic.toml", text).unwrap()
        }
        "gone" => {
            let text = "[link.net0]\nkind = \"nic\"\nifname = \"eth7\"\n[link.net1]\nkind = \"nic\"\nifname = \"eth8\"\n\
                        [etherstub.stub0]\n[vnic.vnic1]\nover = \"net1\"\n[flow.f1]\nlink = \"net1\"\n\
                        match = { transport = \"udp\" }\n";
            Model::from_toml("gone.toml", text).unwrap()
        }
        "uplink" => {
            let text = "[link.net0]\nkind = \"tap\"\nifname = \"tap0\"\n[vnic.vnic1]\nover = \"net0\"\nvlan = 7\n\
                        mac = \"2:8:20:0:a:1\"\n";
            Model::from_toml("uplink.toml", text).unwrap()
        }
        _ => panic!("no host is called {name}"),
    };
    let traffic = |n: u64| Traffic {
        ipackets: 528_450 * n,
        rbytes: 787_390_000 * n,
        ierrors: n - 1,
        opackets: 179_390 * n,
        obytes: 11_850_000 * n,
        oerrors: 7 * n,
        rfused: 9_000_000 * (n - 1),
        ofused: 250_000 * (n - 1),
    };
    let mut stub = Stub::new(model, planner);
    if name == "full" {
        let full = "history.db: database or disk is full; the history waits in memory";
        stub.problems = vec![full.to_owned(), "link net0: of no interest to who asks for history".to_owned()];
    }
    let store = stub.store();
    let links = store.active.link_names().zip(1..);
    stub.link_stats = links
        .map(|((name, _), n)| LinkStats {
            name: name.clone(),
            traffic: traffic(n),
            stopped: firelane_api::Stopped::default(),
            lanes: vec![LaneReceived {
                lane: 0,
                ipackets: traffic(n).ipackets,
                rbytes: traffic(n).rbytes,
                sdrops: traffic(n).ierrors,
                intrs: 20 * n,
                polls: 700 * n,
                fetched_bytes: 50_000 * n,
                chains: [3, 5 * n, 8],
            }],
            rings: if store.active.links.contains_key(name) { rings_of(traffic(n)) } else { Vec::new() },
        })
        .collect();
    let counts = |n: u64| WireCounts {
        sent: 1000 * n,
        bytes: 64_000 * n,
        delivered: 990 * n,
        lost: 10 * n,
        ..WireCounts::default()
    };
    let wires = store.active.wires.keys();
    stub.wire_stats =
        wires.map(|name| WireStats { name: name.clone(), forth: counts(3), back: counts(1) }).collect();
    let usage = |name: String, link: String, n, deleted, days| Usage {
        name,
        link,
        deleted,
        seconds: 80 * n,
        traffic: traffic(n),
        days,
    };
    let links = store.active.link_names().zip(1..);
    let links =
        links.map(|((name, _), n)| usage(name.to_string(), String::new(), n, false, vec![20_000, 20_001]));
    let flows = store.active.flows.iter();
    let flows =
        flows.map(|(name, flow)| usage(name.to_string(), flow.link.to_string(), 2, false, vec![20_000]));
    stub.usage =
        links.chain(flows).chain([usage("gone0".to_owned(), String::new(), 1, true, vec![])]).collect();
    // The name of a flow that was on another link before.
    stub.usage.push(usage("iperf".to_owned(), "gone0".to_owned(), 1, true, vec![]));
    stub.usage_samples = [(1_795_348_800, 1), (1_795_348_861, 60), (1_795_352_400, 3600)]
        .map(|(start, seconds)| UsageSample { start, seconds, traffic: traffic(1) })
        .to_vec();
    let flows = store.active.flows.iter();
    stub.flow_stats = flows
        .map(|(name, flow)| FlowStats {
            name: name.clone(),
            link: flow.link.clone(),
            traffic: traffic(1),
            held: 3,
        })
        .collect();
    if name == "gone" {
        let plain = DeviceInfo { is_interface: true, rings: 1, ..DeviceInfo::default() };
        stub.devices.insert("net0".parse().unwrap(), plain);
    }
    if name == "nic" {
        let slot = |slot: u16, function| firelane_api::FactorySlotInfo {
            slot,
            macaddress: format!("00:1b:21:00:00:{slot:02x}"),
            function,
        };
        let device = DeviceInfo {
            is_interface: true,
            macaddress: Some("02:00:00:00:00:77".into()),
            factory: vec![slot(1, None), slot(2, Some(0)), slot(4, Some(2))],
            rings: 1,
            ..DeviceInfo::default()
        };
        stub.devices.insert("net0".parse().unwrap(), device);
        let duplex = Some("half".into());
        let plain = DeviceInfo { is_interface: true, rings: 1, duplex, ..DeviceInfo::default() };
        stub.devices.insert("net1".parse().unwrap(), plain);
    }
    if name == "uplink" {
        let device = DeviceInfo {
            is_interface: true,
            macaddress: Some("02:08:20:00:0a:01".into()),
            factory: Vec::new(),
            rings: 3,
            rxrings: vec![0],
            txrings: vec![0, 1, 2],
            speed: Some(10_000),
            duplex: Some("full".into()),
            autoneg: Some(true),
            pause: Some("none".into()),
            capable: Some(modes(true, &["10G-f", "1G-f", "100M-fh"], "bi")),
            adv: Some(modes(true, &["10G-f", "1G-f"], "rx")),
            peeradv: None,
        };
        stub.devices.insert("net0".parse().unwrap(), device);
    }
    if name == "two-tenants" {
        stub.fpm = fpm();
        stub.sockets = sockets();
        stub.programs = programs();
        (stub.trace, stub.steps) = watched();
        let route = |destination: &str, gateway: &str, flags: &str| RouteInfo {
            destination: destination.into(),
            gateway: Some(gateway.into()),
            interface: Some("web0".into()),
            flags: flags.into(),
            origin: match flags {
                _ if flags.contains('S') => RouteOrigin::Operator,
                _ if flags.contains('D') => RouteOrigin::Daemon,
                _ if flags.contains('G') => RouteOrigin::Lease,
                _ => RouteOrigin::Address,
            },
            source: None,
            protocol: None,
            metric: None,
            congestion_control: None,
        };
        stub.routes = vec![
            route("10.0.0.0/24", "10.0.0.10", "U"),
            route("fd00::/64", "fd00::10", "U"),
            route("0.0.0.0/0", "10.0.0.254", "UGS"),
            route("192.0.2.9/32", "10.0.0.253", "UGHS"),
            RouteInfo { source: Some("10.1.0.0/24".into()), ..route("198.51.100.0/24", "10.0.0.252", "UGS") },
            RouteInfo {
                protocol: Some("bgp".into()),
                metric: Some(20),
                ..route("203.0.113.0/24", "10.0.0.251", "UGD")
            },
        ];
        let neighbour = |address: &str, mac: Option<&str>, state: &str| NeighbourInfo {
            interface: "web0".into(),
            address: address.parse().unwrap(),
            mac: mac.map(str::to_owned),
            state: state.into(),
        };
        stub.neighbours = vec![
            neighbour("10.0.0.1", Some("2:8:20:0:0:1"), "reachable"),
            neighbour("10.0.0.2", Some("2:8:20:0:0:2"), "stale"),
            neighbour("10.0.0.9", None, "incomplete"),
            neighbour("10.0.0.10", Some("2:8:20:0:0:a"), "local"),
            neighbour("fd00::1", Some("2:8:20:0:0:1"), "delay"),
            neighbour("fd00::10", Some("2:8:20:0:0:a"), "local"),
        ];
        let counters = |protocol: &str, named: &[(&str, u64)]| ProtocolCounters {
            protocol: protocol.into(),
            counters: named.iter().map(|&(name, value)| Counter { name: name.into(), value }).collect(),
        };
        stub.counters = vec![
            counters("udp", &[("udpInDatagrams", 17), ("udpInErrors", 0), ("udpNoPorts", 3)]),
            counters("tcp", &[("tcpActiveOpens", 1_234_567), ("tcpFastOpenBlackhole", 2)]),
            counters("ip", &[("ipInCksumErrs", 5)]),
            counters("ipv4", &[("ipForwarding", 2), ("ipInReceives", 40)]),
            counters("ipv6", &[("ipv6Forwarding", 2)]),
            counters("icmp", &[("icmpInMsgs", 4)]),
            counters("icmpv6", &[("icmp6InMsgs", 6)]),
            counters("igmp", &[("igmpOutMsgs", 1)]),
        ];
        let group = |group: &str, members| GroupInfo {
            interface: "web0".into(),
            group: group.parse().unwrap(),
            members,
        };
        stub.groups = vec![group("239.1.2.3", 2), group("ff02::1:ff00:10", 1)];
        let destination =
            |address: &str, mtu, age| DestinationInfo { address: address.parse().unwrap(), mtu, age };
        stub.destinations = vec![destination("192.0.2.7", 1400, 61), destination("2001:db8::7", 1280, 599)];
        stub.memory = memory();
        stub.leased = leased();
    }
    let met = |packets| RuleInfo { rule: "count in all".parse().unwrap(), packets, bytes: 64 * packets };
    stub.filtered = FilterInfo {
        rules: [12, 430_918, 7, 0, 354_727].map(met).into(),
        inward: Judged { passed: 1234, blocked: 56 },
        outward: Judged { passed: 789, blocked: 0 },
        states: StateInfo { active: 3, added: 17, expired: 14, hits: 4321, ..StateInfo::default() },
    };
    let made =
        |made| NatRuleInfo { rule: "map w0 10.0.0.0/8 -> 0/32".parse().unwrap(), made, sessions: made / 2 };
    let totals = NatTotals {
        inward: 512,
        outward: 430,
        sessions: 2,
        mappings: 2,
        waiting: 3,
        early: 70,
        given_up: 5,
        added: 44,
        expired: 40,
        flushed: 2,
        ..NatTotals::default()
    };
    stub.translated = NatInfo { rules: [40, 3, 1].map(made).into(), totals, limits: Vec::new() };
    let session = |kind: &str, protocol: &str, ports: [u16; 3], phase: &str| NatSession {
        kind: kind.into(),
        protocol: protocol.into(),
        inside: [10, 1, 0, 2].into(),
        inside_port: ports[0],
        outside: [10, 0, 0, 10].into(),
        outside_port: ports[1],
        peer: [192, 0, 2, 7].into(),
        peer_port: ports[2],
        phase: phase.into(),
        ttl: 240,
    };
    stub.nat_sessions = vec![
        session("MAP", "tcp", [4000, 20_001, 443], "established"),
        session("RDR", "tcp", [8080, 80, 51_000], "asked"),
        session("MAP", "icmp", [7, 7, 0], "answered"),
    ];
    stub.drops = [("flow", "flow_limit", 1234), ("switch", "unknown_destination", 5)]
        .map(|(station, reason, frames)| DropInfo { station: station.into(), reason: reason.into(), frames })
        .into();
    stub
}

/// What one command says. Its words are separated by spaces; quotes keep a word together.
fn say(stub: &Stub, folder: &Path, line: &str) -> String {
    let words: Vec<String> =
        split(line).into_iter().map(|word| word.replace("@", folder.to_str().unwrap())).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut reports = 2;
    let mut session = Session {
        api: stub,
        out: &mut out,
        err: &mut err,
        rows: None,
        sleep: &mut |_| {
            reports -= 1;
            reports > 0
        },
    };
    let code = run(&mut session, &words);
    let clean = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(folder.to_str().unwrap(), "@");
    let mut said = clean(out);
    assert!(said.is_empty() || said.ends_with('\n'), "{line}: {said:?}");
    // An empty line would end the expectation, and so would one for the reader.
    let shown = |line: &str| match line.chars().next() {
        None => "~\n".to_owned(),
        Some('#') => format!("\\{line}\n"),
        Some(_) => format!("{line}\n"),
    };
    said = said.lines().map(shown).collect();
    for line in clean(err).lines() {
        said.push_str(&format!("! {line}\n"));
    }
    if code != 0 {
        said.push_str(&format!("exit {code}\n"));
    }
    said
}

fn split(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words
}

/// Replays a transcript and gives it as it should be.
fn replay(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let folder = std::env::temp_dir().join(format!(
        "firelane-transcript-{}-{}",
        std::process::id(),
        path.file_stem().unwrap().to_str().unwrap()
    ));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("two-tenants.toml"), TWO_TENANTS).unwrap();
    let mut stub = host("empty");
    let mut replayed = String::new();
    let mut expecting = false;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            replayed.push_str(&format!("{line}\n{}", say(&stub, &folder, command)));
            expecting = true;
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            expecting = false;
        }
        if let Some(name) = line.strip_prefix("# host: ") {
            stub = host(name);
        } else if let Some(file) = line.strip_prefix("# file: ") {
            let (name, content) = file.split_once(' ').unwrap();
            std::fs::write(folder.join(name), content.replace("\\n", "\n")).unwrap();
        }
        if !expecting {
            replayed.push_str(&format!("{line}\n"));
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    replayed
}

#[test]
fn every_transcript_replays() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 5);
    let mut stale = Vec::new();
    for path in paths {
        let replayed = replay(&path);
        if std::env::var_os("FIRELANE_BLESS").is_some() {
            std::fs::write(&path, &replayed).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        if replayed != text {
            let differs = replayed.lines().zip(text.lines()).find(|(a, b)| a != b);
            stale.push(format!("{}: {differs:?}", path.display()));
        }
    }
    assert!(stale.is_empty(), "{stale:#?}");
}

/// The time is another in each run, so no transcript can have it.
#[test]
fn each_report_has_its_time() {
    let stub = host("two-tenants");
    let folder = std::env::temp_dir();
    for report in [
        "netstat -n -f inet -P tcp",
        "netstat -rn -f inet",
        "netstat -i",
        "netstat -s -P udp",
        "dlstat -p -o link bob0",
        "dlstat show-link -p -o link,type bob0",
        "flowstat -p -o flow iperf",
    ] {
        let plain = say(&stub, &folder, report);
        let said = say(&stub, &folder, &format!("{report} -T u 1 2"));
        let mut rest = said.as_str();
        for _ in 0..2 {
            let (time, after) = rest.split_once('\n').expect("a line with the time");
            assert!(time.parse::<u64>().is_ok_and(|seconds| seconds > 1_700_000_000), "{said}");
            rest = after.strip_prefix(plain.as_str()).unwrap_or_else(|| panic!("{report}: {said}"));
        }
        assert_eq!(rest, "");
        let dated = say(&stub, &folder, &format!("{report} -T d"));
        let (date, after) = dated.split_once('\n').expect("a line with the date");
        assert_eq!((date.len(), &date[10..11], &date[19..], after), (20, "T", "Z", plain.as_str()));
    }
    // For programs connstat's line has a sign before the time, for people none.
    for (options, sign) in [("-P -o lport", "= "), ("-e", "")] {
        let said = say(&stub, &folder, &format!("connstat -T u {options}"));
        let time = said.lines().next().and_then(|line| line.strip_prefix(sign)).expect("the sign");
        assert!(time.parse::<u64>().is_ok(), "{said}");
    }
}

/// What is made between two reports is in the next one, under whatever name it has then.
#[test]
fn a_report_has_what_was_made_since_the_one_before() {
    let during = |command: &str, change: fn(&Stub)| {
        let mut stub = host("two-tenants");
        let late = LinkStats { name: "late0".parse().unwrap(), ..stub.link_stats[0].clone() };
        stub.link_stats.push(late);
        let (mut out, mut err, mut reports) = (Vec::new(), Vec::new(), 1);
        let words: Vec<_> = command.split(' ').map(str::to_owned).collect();
        let mut sleep = |_| {
            reports += 1;
            if reports == 2 {
                change(&stub);
            }
            reports == 2
        };
        let mut session = Session { api: &stub, out: &mut out, err: &mut err, rows: None, sleep: &mut sleep };
        assert_eq!(run(&mut session, &words), 0, "{}", String::from_utf8_lossy(&err));
        String::from_utf8(out).unwrap()
    };
    let made = |stub: &Stub| {
        let vnic = Vnic::new("vswitch1".parse().unwrap());
        let change = Change::CreateVnic("late0".parse().unwrap(), vnic);
        stub.change(&ChangeRequest { temporary: false, change }).unwrap();
    };
    for command in ["dladm show-vnic -s -i 1 -o link", "dladm show-vnic -l vswitch1 -s -i 1 -o link"] {
        assert_eq!(
            during(command, made),
            "LINK\nalice0\nbob0\nweb0\nalice0\nbob0\nweb0\nlate0\n",
            "{command}"
        );
    }
    assert!(during("dladm show-link -s -i 1 -o link", made).ends_with("\nlate0\n"));
    assert_eq!(during("dladm show-link -s -i 1 -o link bob0", made), "LINK\nbob0\nbob0\n");
}

#[test]
fn the_pages_show_every_usage() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man");
    let stub = host("empty");
    for command in ["dladm", "flowadm", "ipadm"] {
        let page = std::fs::read_to_string(pages.join(format!("{command}.8.md"))).unwrap();
        let help = say(&stub, &pages, &format!("{command} help"));
        assert!(help.lines().count() > 5);
        for line in help.lines().skip(1) {
            assert!(page.lines().any(|it| it == line), "{command}.8.md lacks {line:?}");
        }
    }
    let pages_of = [
        ("dlstat", &["dlstat", "flowstat"][..]),
        ("ipf", &["ipf", "ipfstat"]),
        ("ipnat", &["ipnat"]),
        ("ippool", &["ippool"]),
        ("route", &["route"]),
        ("acctadm", &["acctadm"]),
    ];
    for (page, commands) in pages_of {
        let text = std::fs::read_to_string(pages.join(format!("{page}.8.md"))).unwrap();
        for command in commands {
            let said = say(&stub, &pages, &format!("{command} a0 b0"));
            for line in said.lines().filter_map(|line| line.strip_prefix("! ")) {
                let line = line.strip_prefix("usage: ").unwrap_or(line);
                assert!(text.lines().any(|it| it == line), "{page}.8.md lacks {line:?}");
            }
        }
    }
}

/// Words that get far into a command, and words that do not.
fn word() -> impl Strategy<Value = String> {
    let known = "route add delete change get flush show default 10.0.0.1 10.1.0.0/16 -inet6 -net -host -netmask -blackhole -from -q acctadm net -x -D -e basic extended ippool -m 13 -A -R ipnat -C -f -l -s -v -F dladm flowadm ipadm dlstat flowstat netstat connstat ipf ipfstat -h -io -Fa -z show-prop set-prop reset-prop ttl=9 ipv4 tcp -f inet -F -c -e 1 show-link show-phys show-ether show-aggr -m -H show-vnic create-wire modify-wire show-wire delete-wire delay=1ms -d forth wire0 create-vnic delete-vnic set-linkprop show-linkprop \
                 create-etherstub show-etherstub add-flow remove-flow show-flow set-flowprop show-flowprop create-if \
                 create-addr delete-addr show-addr show-if check plan status drops -l -p -o -P -t -j -s -i -a -c -m -v \
                 -T -A -r -u -N -R static all web0 bob0 vswitch1 iperf web0/v4 1 x= =x , transport=tcp local_port=1 \
                 maxbw=5M,priority=low mtu=1 link,over --link=web0 --json -- - 10.0.0.9/24 /nonexistent/file";
    let known: Vec<String> = known.split_whitespace().map(str::to_owned).collect();
    prop_oneof![8 => prop::sample::select(known), 1 => "[^\\n]{0,12}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_words_make_a_command_panic(words in prop::collection::vec(word(), 0..7)) {
        // `dump FILE` would write where the words say, and `check -` waits for the terminal.
        prop_assume!(!words.iter().any(|word| word == "dump"));
        prop_assume!(!words.first().is_some_and(|word| word == "check" || word == "plan") || !words.contains(&"-".to_owned()));
        // `ipf -f -` waits for it, too.
        prop_assume!(words.first().is_none_or(|word| word != "ipf" && word != "ipnat") || !words.iter().any(|word| word.ends_with('-')));
        let stub = host("two-tenants");
        let line: Vec<_> = std::iter::once("firelane".to_owned()).chain(words).collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut session = Session { api: &stub, out: &mut out, err: &mut err, rows: Some(2), sleep: &mut |_| false };
        let code = run(&mut session, &line);
        prop_assert!([0, 1, 2].contains(&code));
        prop_assert!(code == 0 || !err.is_empty(), "{:?} failed without a word", line);
        let store = stub.store();
        prop_assert_eq!(store.active.validate(), vec![]);
    }
}
