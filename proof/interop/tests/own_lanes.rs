//! `cpus` of links: their devices' queues are served by lanes on these CPUs, and go there while real programs' traffic passes.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use firelane_interop::{Background, Comparing, Daemon, Sandbox, cpu_ends, serve_echoes, until};

const TENANTS: &str = "[daemon]\nlanes = 2\n[etherstub.s0]\n\
    [vnic.alice0]\nover = \"s0\"\ntap = { namespace = \"alice\", addresses = [\"10.0.0.1/24\"] }\n\
    [vnic.bob0]\nover = \"s0\"\ntap = { namespace = \"bob\", addresses = [\"10.0.0.2/24\"] }\n\
    [vnic.web0]\nover = \"s0\"\nnetstack = \"web\"\n[netstack.web.addresses]\n\"web0/v4\" = \"10.0.0.10/24\"\n";

fn effective(daemon: &Daemon<'_>, link: &str) -> String {
    let words = ["dladm", "show-linkprop", "-c", "-o", "value", "-p", "cpus-effective", link];
    daemon.firelane(&words).expect_success().trim().to_owned()
}

#[test]
fn connections_of_programs_go_on_while_their_links_get_lanes_of_their_own_and_lose_them() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, TENANTS);
    let (first, last) = cpu_ends();
    let _servers = [
        serve_echoes(&sandbox),
        Background::start(sandbox.command_in("bob", &["iperf3", "-s", "-1"]).stdout(Stdio::null())),
    ];
    until("iperf3 listens", Duration::from_secs(20), || {
        !sandbox.run(Some("bob"), "ss", &["-ltnH", "sport", "=", "5201"]).stdout.trim().is_empty()
    });
    let compares = Comparing::begin(&sandbox, "alice", "8", "1");
    // So slow that no buffer of the kernel's overflows meanwhile.
    let datagrams =
        ["iperf3", "-c", "10.0.0.2", "-u", "-b", "20M", "-l", "1200", "-w", "1M", "-t", "7", "-J"];
    let mut counts = sandbox.command_in("alice", &datagrams);
    let counts = counts.stdout(Stdio::piped()).spawn().expect("nsenter is installed");
    let lists = [first.clone(), last.clone(), format!("{last},{first}")];
    for nth in 0..52 {
        let link = if nth % 2 == 0 { "alice0" } else { "bob0" };
        let list = &lists[nth / 4 % lists.len()];
        if nth / 2 % 2 == 0 && (first != last || !list.contains(',')) {
            let prop = format!("cpus={list}");
            daemon.firelane(&["dladm", "set-linkprop", "-t", "-p", &prop, link]).expect_success();
            let is = effective(&daemon, link);
            assert!(
                is == *list || list.contains(',') && is == format!("{first},{last}"),
                "{is} and not {list}"
            );
        } else {
            daemon.firelane(&["dladm", "reset-linkprop", "-t", "-p", "cpus", link]).expect_success();
            assert!(effective(&daemon, link).is_empty() || first == last);
        }
    }
    compares.ends_well();
    let counted = counts.wait_with_output().expect("it ends");
    let said: serde_json::Value = serde_json::from_slice(&counted.stdout).expect("iperf3 writes JSON");
    let sum = &said["end"]["sum"];
    assert_eq!(sum["lost_packets"], 0, "{sum}");
    assert!(sum["packets"].as_u64().is_some_and(|it| it > 5000), "{sum}");
    assert!(said["end"]["streams"][0]["udp"]["out_of_order"].as_u64().unwrap_or(0) == 0, "{said}");
}

#[test]
fn the_file_says_it_too_and_what_cannot_be_changes_nothing() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, TENANTS);
    let (first, last) = cpu_ends();
    let wanted = sandbox.folder().join("wanted.toml");
    let text = TENANTS.replace("[vnic.bob0]\n", &format!("[vnic.bob0]\ncpus = \"{last}\"\n"));
    fs::write(&wanted, text).expect("writable");
    let path = wanted.to_string_lossy().into_owned();
    let line = format!("live      set vnic bob0 cpus -- -> {last}\n");
    assert_eq!(daemon.firelane(&["plan", &path]).expect_success(), line);
    daemon.firelane(&["apply", &path]).expect_success();
    assert_eq!(effective(&daemon, "bob0"), last);
    assert!(daemon.firelane(&["dump"]).expect_success().contains(&format!("cpus = \"{last}\"")));
    for (link, prop, said) in [
        ("bob0", "cpus=1023", "cannot set link property 'cpus' on 'bob0': non-existent processor ID"),
        ("bob0", "cpus=1024", "1024 is an invalid value for link property cpus"),
        ("bob0", "cpus=0,0", "0,0 is an invalid value for link property cpus"),
        ("bob0", "cpus-effective=0", "read-only property"),
        ("web0", "cpus=1023", "cannot set link property 'cpus' on 'web0': non-existent processor ID"),
        ("s0", "cpus=0", "invalid link property 'cpus'"),
    ] {
        let refused = daemon.firelane(&["dladm", "set-linkprop", "-p", prop, link]);
        assert!(refused.code() == 1 && refused.stderr.contains(said), "{prop} {link}: {refused:?}");
        assert_eq!(effective(&daemon, "bob0"), last, "{prop} {link}");
    }
    sandbox.run(Some("alice"), "ping", &["-c", "1", "-W", "5", "10.0.0.2"]).expect_success();
    // It is what the next start finds, too.
    daemon.terminate();
    let daemon = Daemon::start(&sandbox, Path::new(&path));
    assert_eq!(effective(&daemon, "bob0"), last);
    assert!(!daemon.firelane(&["status"]).expect_success().contains("problem"));
    daemon.firelane(&["dladm", "reset-linkprop", "-p", "cpus", "bob0"]).expect_success();
    assert!(effective(&daemon, "bob0").is_empty() || first == last);
}

#[test]
fn a_link_whose_cpu_or_rings_are_gone_at_the_start_runs_without_and_it_is_told() {
    let sandbox = Sandbox::new();
    let text = TENANTS.replace("[vnic.bob0]\n", "[vnic.bob0]\ncpus = \"1023\"\nmaxbw = \"500M\"\n");
    let daemon = Daemon::start_as(&sandbox, &text);
    sandbox.run(Some("alice"), "ping", &["-c", "1", "-W", "5", "10.0.0.2"]).expect_success();
    assert!(effective(&daemon, "bob0").is_empty());
    let shown = |words: &[&str]| daemon.firelane(words).expect_success();
    let value = |prop: &str| shown(&["dladm", "show-linkprop", "-c", "-o", "value", "-p", prop, "bob0"]);
    assert_eq!((value("cpus").as_str(), value("maxbw").as_str()), ("\n", "500\n"));
    let lasting = ["dladm", "show-linkprop", "-P", "-c", "-o", "value", "-p", "cpus", "bob0"];
    assert_eq!(shown(&lasting), "1023\n", "it is wanted still");
    for words in [&["status"][..], &["doctor"]] {
        let said = daemon.firelane(words).stdout;
        assert!(said.contains("create vnic bob0") && said.contains("the rest of it runs"), "{said}");
    }
    daemon.firelane(&["dladm", "reset-linkprop", "-p", "cpus", "bob0"]).expect_success();
    assert!(!daemon.firelane(&["status"]).expect_success().contains("problem"));
}

#[test]
fn a_lane_that_is_moved_off_its_cpu_returns_and_a_plan_refuses_what_cannot_be() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, TENANTS);
    let (first, last) = cpu_ends();
    daemon.firelane(&["dladm", "set-linkprop", "-t", "-p", &format!("cpus={last}"), "bob0"]).expect_success();
    assert!(!daemon.firelane(&["status"]).expect_success().contains("problem"));
    if first != last {
        let (all, pid) = (format!("{first},{last}"), daemon.pid().to_string());
        sandbox.run(None, "taskset", &["-a", "-c", "-p", &all, &pid]).expect_success();
        let returns = || {
            daemon
                .firelane(&["doctor"])
                .stdout
                .contains("a link's, netstack's or flow's own, had to leave its CPU and came back")
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while !returns() {
            assert!(Instant::now() < deadline, "{}", daemon.firelane(&["doctor"]).stdout);
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(effective(&daemon, "bob0"), last);
        daemon.firelane(&["dladm", "reset-linkprop", "-t", "-p", "cpus", "bob0"]).expect_success();
        assert!(!daemon.firelane(&["status"]).expect_success().contains("problem"));
    }
    let wanted = sandbox.folder().join("wanted.toml");
    let path = wanted.to_string_lossy().into_owned();
    for (prop, said) in [
        ("rxrings = \"100\"", "request hw rings failed"),
        ("txrings = \"3\"", "request hw rings failed"),
        ("cpus = \"1023\"", "non-existent processor ID"),
    ] {
        fs::write(&wanted, TENANTS.replace("[vnic.bob0]\n", &format!("[vnic.bob0]\n{prop}\n")))
            .expect("writable");
        for verb in ["plan", "apply"] {
            let refused = daemon.firelane(&[verb, &path]);
            assert!(refused.code() != 0 && refused.stderr.contains(said), "{verb} {prop}: {refused:?}");
        }
    }
}
