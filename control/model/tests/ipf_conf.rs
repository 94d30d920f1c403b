//! `ipf.conf`: what each form of ipf(5) means, as the one form in which rules are printed, and what is refused with which
//! words.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use firelane_model::{IpfFile, IpfRule, LinkName, Model};

/// A file's rules as they are printed.
fn rules(text: &str) -> Vec<String> {
    let file = IpfFile::read("ipf.conf", text).unwrap_or_else(|faults| panic!("{faults:?}"));
    file.lines.iter().map(|it| it.rule.to_string()).collect()
}

#[test]
fn every_form_has_one_spelling() {
    let same = [
        "block in all",
        "pass out quick on web0 all",
        "count in on web0 from any to any port = 80",
        "log in all",
        "log body first out on web0 all",
        "block in log body first quick from 10.0.0.0/8 to any",
        "block return-rst in quick proto tcp from any to any flags S/SA",
        "block return-icmp in all",
        "block return-icmp(port-unr) in proto udp from any to any",
        "block return-icmp-as-dest(filter-prohib) in all",
        "skip 3 in proto icmp from any to any icmp-type unreach code 4",
        "pass in proto icmpv6 from any to any icmp-type 135",
        "pass in tos 0x10 ttl 255 proto 200 from any to any",
        "pass in from !pool/7 to 192.0.2.1/32",
        "pass in proto tcp/udp from any port 1024 >< 2048 to fd00::/8 port 1:9",
        "pass in proto udp from any port 1024 <> 2048 to any port >= 5",
        "block in from any to any with not ipopts,short,frag,frag-body,not oow,multicast",
        "pass in quick proto tcp from any to any flags S/FSRPAU keep state (limit 5,strict,no-icmp-err,age 10/20) keep frags",
        "block in on web0 all head 100",
        "call now fr_srcgrpmap/1010 in all",
        "call now fr_dstgrpmap/4294967295 out quick on web0 from 10.0.0.0/8 to any group 3",
        "pass in from any to any with short head 101 group 100",
    ];
    for text in same {
        let text =
            if text.contains("port = 80") { text.replace("from", "proto tcp from") } else { text.to_owned() };
        assert_eq!(rules(&text), [text.as_str()]);
    }
    let spelled = [
        ("pass in from any to any", "pass in all"),
        ("pass in proto tcp all", "pass in proto tcp from any to any"),
        ("block return-icmp(0) in all", "block return-icmp in all"),
        ("block return-icmp ( 3 ) in all", "block return-icmp(port-unr) in all"),
        ("pass in quick log on web0 all", "pass in log quick on web0 all"),
        ("pass in from 10.1.2.3/8 to any", "pass in from 10.0.0.0/8 to any"),
        ("pass in from 10.1.2.3 mask 255.255.0.0 to any", "pass in from 10.1.0.0/16 to any"),
        ("pass in from 10.1.2.3 mask 0xffffff00 to any", "pass in from 10.1.2.0/24 to any"),
        ("pass in from 10.1.2.3/255.0.0.0 to any", "pass in from 10.0.0.0/8 to any"),
        ("pass in from ! fd00::1 to any", "pass in from !fd00::1/128 to any"),
        ("pass in from 0.0.0.0/0 to any", "pass in from 0.0.0.0/0 to any"),
        ("pass in proto tcp from any to any port=ssh", "pass in proto tcp from any to any port = 22"),
        ("pass in proto 6 from any to any port ne www", "pass in proto tcp from any to any port != 80"),
        ("pass in proto tcp from any to any port 5 : 10", "pass in proto tcp from any to any port 5:10"),
        ("pass in proto tcp from any to any port 5><10", "pass in proto tcp from any to any port 5 >< 10"),
        ("pass in proto ipv6-icmp all icmp-type echo", "pass in proto icmpv6 from any to any icmp-type 128"),
        (
            "pass in proto icmp all icmp-type 3 code port-unr",
            "pass in proto icmp from any to any icmp-type unreach code 3",
        ),
        ("pass in proto tcp all flags S", "pass in proto tcp from any to any flags S/FSRPAU"),
        ("pass in proto tcp all flags /AS", "pass in proto tcp from any to any flags /SA"),
        ("pass in all with frags and no short", "pass in from any to any with not short,frag"),
        ("pass in all with mcast not short", "pass in from any to any with not short,multicast"),
        ("pass in all keep frags keep state (age 9)", "pass in all keep state (age 9/9) keep frags"),
        ("pass in tos 16 all group 0", "pass in tos 0x10 from any to any"),
        ("@7 pass in all", "@7 pass in all"),
    ];
    for (text, spelling) in spelled {
        assert_eq!(rules(text), [spelling], "{text}");
    }
}

#[test]
fn comments_and_lines() {
    let text = "# a file\nblock in all # everything\n\npass in quick \\\n\tproto tcp \\\n from any to any port = 22\r\n";
    let file = IpfFile::read("ipf.conf", text).unwrap();
    let lines: Vec<_> = file.lines.iter().map(|it| (it.line, it.rule.to_string())).collect();
    let ssh = "pass in quick proto tcp from any to any port = 22";
    assert_eq!(lines, [(2, "block in all".to_owned()), (4, ssh.to_owned())]);
    assert_eq!((file.line_of(ssh), file.line_of("pass in all")), (Some(4), None));
    assert_eq!(rules(""), [""; 0]);
}

/// The only fault of a file.
fn fault(text: &str) -> String {
    let faults = IpfFile::read("ipf.conf", text).unwrap_err();
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults[0].to_string()
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_token() {
    let table = [
        ("permit in all", "\"permit\": a rule begins with pass, block, count, log, skip or call"),
        ("pass", "the rule ends here: in or out"),
        ("pass all", "\"all\": in or out"),
        (
            "pass in",
            "the rule ends here: log, quick, on, tos, ttl or proto, and then all, or from ADDRESS to ADDRESS",
        ),
        ("pass in quik all", "\"quik\": log, quick, on, tos"),
        ("pass in quick quick all", "\"quick\": it has been said"),
        ("pass in on 0web all", "\"0web\": a link name has"),
        ("pass in on web0,web1 all", "\",\": log, quick"),
        ("pass in tos 256 all", "\"256\": 0 to 255, or 0x0 to 0xff"),
        ("pass in ttl 0x10 all", "\"0x10\": 0 to 255"),
        ("pass in proto foo all", "\"foo\": a protocol is tcp, udp, tcp/udp, icmp, icmpv6"),
        ("pass in proto 256 all", "\"256\": a protocol is"),
        ("pass in from any", "the rule ends here: port, or to and the other address"),
        ("pass in from host1 to any", "\"host1\": any, an address, a network such as"),
        ("pass in from 10.0.0.0/33 to any", "\"10.0.0.0/33\": any, an address"),
        ("pass in from pool/x to any", "\"pool/x\": any, an address"),
        ("pass in from hash/1 to any", "\"hash/1\": any, an address"),
        ("pass in from 10.0.0.0 mask 255.0.255.0 to any", "\"255.0.255.0\": a mask of leading ones"),
        ("pass in from fd00:: mask 255.0.0.0 to any", "\"255.0.0.0\": a mask"),
        ("pass in from ! any to any", "\"!\": not any is no address"),
        (
            "pass in proto tcp from any port 80 to any",
            "\"to\": before a port alone stands =, between two <>, >< or :",
        ),
        ("pass in proto tcp from any port to any", "\"to\": port is followed by = != < >"),
        ("pass in proto tcp from any to any port = 65536", "\"65536\": a port is a number from 0 to 65535"),
        ("pass in proto tcp from any to any port = +5", "\"+5\": a port is"),
        ("pass in proto tcp from any to any port = sssh", "\"sssh\": a port is"),
        ("pass in proto tcp from any to any port => 5", "\"=>\": port is followed by"),
        ("pass in proto tcp from any to any port 9:5", "\"port 9\": the lower port stands first"),
        ("pass in from any to any port = 80", "\"port\": only with proto tcp, udp or tcp/udp"),
        ("pass in proto icmp from any to any port = 80", "\"port\": only with proto tcp"),
        ("pass in from 10.0.0.1 to fd00::1", "\"to\": both addresses are of one family"),
        ("pass in proto icmp from any to fd00::1", "\"icmp\": IPv6 has icmpv6"),
        ("pass in proto icmpv6 from 10.0.0.1 to any", "\"icmpv6\": IPv4 has icmp"),
        ("pass in proto tcp all flags SS/SA", "\"SS/SA\": flags of F, S, R, P, A, U, E and C"),
        ("pass in proto tcp all flags s", "\"s\": flags of"),
        ("pass in proto tcp all flags S/A", "\"flags\": those that are set are among those"),
        ("pass in proto tcp all flags S/", "\"flags\": those that are set"),
        ("pass in proto udp all flags S", "\"flags\": only with proto tcp"),
        ("pass in all icmp-type echo", "\"icmp-type\": only with proto icmp or icmpv6"),
        (
            "pass in proto icmp all icmp-type toobig",
            "\"toobig\": a number from 0 to 255, or one of echorep, unreach",
        ),
        ("pass in proto icmp all icmp-type 3 code 256", "\"256\": a code from 0 to 255"),
        ("block return-icmp(16) in all", "\"16\": a code from 0 to 15, or one of net-unr"),
        ("block return-icmp(3 in all", "\"in\": a parenthesis closes the code"),
        ("block return-rst in all", "\"return-rst\": only with proto tcp"),
        ("block return-rst in proto tcp/udp all", "\"return-rst\": only with proto tcp"),
        ("skip 0 in all", "\"skip\": how many rules are left out, from 1 to 65535"),
        ("skip 65536 in all", "\"65536\": how many rules"),
        (
            "pass in all with big",
            "\"big\": one of ipopts, short, frag, frag-body, oow, multicast, or one of them",
        ),
        ("pass in all with short,not short", "\"short\": a packet cannot be so and not so"),
        ("pass in all keep states", "\"states\": keep is followed by state or frags"),
        ("pass in all keep state (often)", "\"often\": one of strict, no-icmp-err, limit N and age F[/R]"),
        ("pass in all keep state (limit 0)", "\"0\": how many states, from 1"),
        ("pass in all keep state (age 0)", "\"0\": seconds from 1, forward"),
        ("pass in all keep state (strict limit 5)", "\"limit\": a comma before another option"),
        ("block in all keep state", "\"keep\": only with pass"),
        ("count in all keep frags", "\"keep\": only with pass"),
        ("pass in all head 0", "\"0\": a group is a number from 1 to 4294967295"),
        ("pass in all group web", "\"web\": a group is a number"),
        ("pass in all head 5 group 5", "\"head\": a rule is not in its own group"),
        ("@0 pass in all", "\"@0\": @ and the place among the rules"),
        ("call fr_srcgrpmap/7 in all", "\"fr_srcgrpmap/7\": now: what is called is called at once"),
        ("call now fr_x/7 in all", "\"fr_x/7\": fr_srcgrpmap/N or fr_dstgrpmap/N, N being"),
        ("call now fr_srcgrpmap in all", "\"fr_srcgrpmap\": fr_srcgrpmap/N"),
        ("call now fr_srcgrpmap/x in all", "\"fr_srcgrpmap/x\": fr_srcgrpmap/N"),
        ("call now dstgrpmap/7 in all head 3", "\"head\": the groups are those of the map"),
        ("call now dstgrpmap/7 in log all", "\"log\": who calls logs nothing"),
        ("call now dstgrpmap/7 in all keep state", "\"keep\": only with pass"),
        (
            "pass in all quick",
            "\"quick\": flags, icmp-type, with, keep state, keep frags, head, group, or the end",
        ),
    ];
    for (text, wanted) in table {
        let told = fault(text);
        assert!(told.starts_with(&format!("ipf.conf:1: {wanted}")), "{text}: {told}");
    }
    // The token's line, where it is not the rule's first.
    assert!(fault("# x\nblock in \\\n all \\\n fast").starts_with("ipf.conf:4: \"fast\": flags"));
    assert!(fault("\nblock return-rst \\\n in all").starts_with("ipf.conf:2: \"return-rst\":"));
}

#[test]
fn what_the_original_knows_and_we_do_not_is_refused_by_name() {
    let table = [
        ("auth in all", "no program is asked about packets"),
        ("preauth in all", "no program is asked"),
        ("pass in dup-to web0 all", "a capture has copies"),
        ("pass in fastroute all", "routes say where packets go"),
        ("pass in to web0 all", "routes say"),
        ("pass in reply-to web0 all", "routes say"),
        ("log level auth.info in all", "what is logged has no facility"),
        ("pass in log or-block all", "what is logged is never waited for"),
        ("pass in all keep state (newisn)", "initial sequence numbers"),
        ("pass in all keep state (sync)", "states are not shared"),
        ("pass in all with opt lsrr", "ipopts asks whether"),
        ("pass in all with bad", "packets that are wrong end before the filter"),
        ("pass in all set-tag(log=1)", "there are no tags"),
        ("pass in all pps 5", "flows have limits"),
    ];
    for (text, why) in table {
        let told = fault(text);
        assert!(told.contains(&format!(": not supported: {why}")), "{text}: {told}");
    }
}

#[test]
fn every_wrong_line_is_told_up_to_a_hundred() {
    let faults = IpfFile::read("f", "x\nblock in all\ny\n").unwrap_err();
    assert_eq!(faults.iter().map(|it| it.line).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(IpfFile::read("f", &"x\n".repeat(1000)).unwrap_err().len(), 100);
    let long = fault(&"x".repeat(1000));
    assert!(long.len() < 200, "{long}");
}

/// A model with a netstack that has the VNIC web0, and says `more`.
fn model(more: &str) -> Result<Model, Vec<String>> {
    let text = format!(
        "[etherstub.sw0]\n[vnic.web0]\nover = 'sw0'\nnetstack = 'web'\n[vnic.x0]\nover = 'sw0'\n[netstack.web]\n{more}\n"
    );
    Model::from_toml("f", &text).map_err(|faults| faults.iter().map(ToString::to_string).collect())
}

#[test]
fn rules_stand_in_the_model_in_their_one_form() {
    let said = model("filter = ['block in all', 'pass in quick on web0 proto tcp from pool/13 to any port=80']\n[netstack.web.pools]\n13 = ['192.0.2.1', '10.1.2.3/8', '10.0.0.0/8']").unwrap();
    let text = said.to_toml();
    assert!(text.contains("\"pass in quick on web0 proto tcp from pool/13 to any port = 80\""), "{text}");
    assert!(text.contains("13 = [\"10.0.0.0/8\", \"192.0.2.1/32\"]"), "{text}");
    assert_eq!(Model::from_toml("f", &text), Ok(said));
}

#[test]
fn what_rules_may_not_say_together() {
    let lines = |rules: &[&str]| {
        let said = model(&format!("filter = {rules:?}"));
        said.map(drop).map_err(|faults| faults.join("\n")).err().unwrap_or_default()
    };
    let table: [(&[&str], &str); 12] = [
        (&["block in all foo"], "f:8: netstack.web.filter: \"foo\": flags, icmp-type, with"),
        (&["block in all\npass in all"], "f:8: netstack.web.filter: \"pass\": one text is one rule"),
        (&["# nothing"], "f:8: netstack.web.filter: the rule ends here: a rule is missing"),
        (&["@1 block in all"], "f:8: netstack.web.filter: \"@1\": rules are in the order of the list"),
        (
            &["block in on x0 all"],
            "f:8: netstack.web.filter: \"block in on x0 all\": x0 is no VNIC of this netstack",
        ),
        (&["block in from pool/9 to any"], "there is no pool 9"),
        (
            &["block in all group 7"],
            "\"block in all group 7\": no rule of its direction is the head of group 7",
        ),
        (
            &["block out all head 7", "block in all group 7"],
            "no rule of its direction is the head of group 7",
        ),
        (
            &["block in all head 7", "pass in all head 7"],
            "\"pass in all head 7\": group 7 has a head already in this direction",
        ),
        (&["block in all head 1 group 2", "pass in all head 2 group 1"], "group 2 is within itself"),
        (
            &["skip 1 in all", "block out all"],
            "\"skip 1 in all\": skips more rules than its group has after it",
        ),
        (&["skip 2 in all", "block in all", "block in all head 1", "pass in all group 1"], ""),
    ];
    for (rules, wanted) in table {
        let told = lines(rules);
        assert!(told.contains(wanted) && told.is_empty() == wanted.is_empty(), "{rules:?}: {told}");
    }
    let pools = model("pools = { x = [] }").unwrap_err();
    assert!(pools[0].contains("a pool is a number from 0 to 4294967295"), "{pools:?}");
    let pools = model("pools = { 1 = ['10.0.0.0/40'] }").unwrap_err();
    assert!(pools[0].contains("\"10.0.0.0/40\": an IP address with a prefix length"), "{pools:?}");
}

#[test]
fn what_calls_and_maps_may_not_say_together() {
    let lines = |rules: &[&str], pools: &str| {
        let said = model(&format!("filter = {rules:?}\n[netstack.web.pools]\n{pools}"));
        said.map(drop).map_err(|faults| faults.join("\n")).err().unwrap_or_default()
    };
    let call = "call now fr_srcgrpmap/5 in all";
    let table: [(&[&str], &str, &str); 13] = [
        (&[call, "pass in all group 20"], "5 = ['10.0.0.0/8 in group 20', '::/0 in group 21']", ""),
        // A map may be empty, and lead to rules that come later.
        (&[call, "pass in all group 20"], "5 = []", ""),
        (&[call], "", "there is no pool 5"),
        (&[call], "5 = ['10.0.0.0/8']", "\"call now fr_srcgrpmap/5 in all\": pool 5 is no group map"),
        (&[call], "5 = ['10.0.0.0/8 out group 20']", "group map 5 is about packets that go out"),
        (
            &["pass in from pool/5 to any"],
            "5 = ['10.0.0.0/8 in group 20']",
            "pool 5 is a group map, which rules call",
        ),
        (
            &[],
            "5 = ['10.0.0.0/8 in group 20', '10.0.0.1']",
            "\"5\": networks of a group map all have a group",
        ),
        (&[], "5 = ['10.0.0.0/8 in group 20', '10.0.0.1 out group 20']", "of one direction"),
        (&[call, "pass out all group 20"], "5 = []", "no rule of its direction is the head of group 20"),
        (
            &[call, "call now fr_dstgrpmap/5 in all group 20"],
            "5 = ['10.0.0.0/8 in group 20']",
            "\"call now fr_dstgrpmap/5 in all group 20\": its group is within itself",
        ),
        (
            &[call, "count in all head 21 group 20", "call now fr_dstgrpmap/5 in all group 21"],
            "5 = ['10.0.0.0/8 in group 20']",
            "group 21\": its group is within itself",
        ),
        (
            &[call, "call now fr_dstgrpmap/6 in all group 20", "call now fr_dstgrpmap/7 in all group 30"],
            "5 = ['10.0.0.0/8 in group 20']\n6 = ['10.0.0.0/8 in group 30']\n7 = ['10.0.0.0/8 in group 40']",
            "",
        ),
        (&["pass in all group 0", "call now fr_dstgrpmap/5 in quick on web0 all"], "5 = []", ""),
    ];
    for (rules, pools, wanted) in table {
        let told = lines(rules, pools);
        assert!(told.contains(wanted) && told.is_empty() == wanted.is_empty(), "{rules:?} {pools}: {told}");
    }
    // Sixteen calls within each other, and one more.
    for (deep, wanted) in [(16, ""), (17, "calls are at most 16 within each other")] {
        let rule = |n: u32| match n {
            0 => "call now fr_srcgrpmap/0 in all".to_owned(),
            n => format!("call now fr_srcgrpmap/{n} in all group {n}"),
        };
        let rules: Vec<_> = (0..deep).map(rule).collect();
        let pools: String = (0..deep).map(|n| format!("{n} = ['10.0.0.0/8 in group {}']\n", n + 1)).collect();
        let told = lines(&rules.iter().map(String::as_str).collect::<Vec<_>>(), &pools);
        assert!(told.contains(wanted) && told.is_empty() == wanted.is_empty(), "{deep}: {told}");
    }
}

#[test]
fn without_the_links_of_its_calls_a_filter_has_no_rules_that_only_they_lead_to() {
    let said = "filter = ['call now fr_srcgrpmap/5 in on web0 all', 'pass in all head 21 group 20', 'block in all group 21', \
                'count in all head 3', 'count in all group 3', 'call now fr_dstgrpmap/6 out all', 'pass out all group 20']\n\
                [netstack.web.pools]\n5 = ['10.0.0.0/8 in group 20']\n6 = []";
    let filter = model(said).unwrap().netstacks["web"].packet_filter();
    let left = filter.without(|link| link.as_str() == "web0");
    let rules: Vec<_> = left.rules.iter().map(IpfRule::to_string).collect();
    assert_eq!(
        rules,
        [
            "count in all head 3",
            "count in all group 3",
            "call now fr_dstgrpmap/6 out all",
            "pass out all group 20"
        ]
    );
    assert_eq!(filter.without(|_| false), filter);
}

#[test]
fn a_filter_without_a_link_does_the_same_to_all_others() {
    let said = model("filter = ['skip 3 in all', 'block in on web0 all head 1', 'count in all', 'count in proto udp all', 'skip 1 in all group 1', 'pass in all head 2 group 1', 'log in all group 2', 'skip 1 out all', 'pass out on web0 all']").unwrap();
    let filter = said.netstacks["web"].packet_filter();
    let is_web0 = |link: &LinkName| link.as_str() == "web0";
    let left: Vec<_> = filter.without(is_web0).rules.iter().map(IpfRule::to_string).collect();
    assert_eq!(
        left,
        ["skip 2 in all", "count in all", "count in proto udp from any to any", "count out all"]
    );
    assert_eq!(filter.without(|_| false), filter);
}
