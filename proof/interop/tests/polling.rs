//! `polling` of a real daemon's links: whose frames are INTRS and whose are POLLS, and changes under load.

use firelane_interop::{Daemon, Sandbox};

const CONFIG: &str = r#"
[etherstub.s1]
[vnic.alice0]
over = "s1"
tap = { namespace = "alice", addresses = ["10.0.0.1/24"] }
polling = "off"
[vnic.web0]
over = "s1"
netstack = "web"
[netstack.web.addresses]
"web0/v4" = "10.0.0.10/24"
"#;

/// Packets of alice's that the netstack got: those of a first chain after a call of her TAP, and others.
fn arrivals(daemon: &Daemon<'_>) -> [u64; 2] {
    let words = ["dlstat", "show-link", "-r", "-p", "-o", "id,intrs,polls", "web0"];
    let said = daemon.firelane(&words).expect_success();
    let row = said.lines().find_map(|line| line.strip_prefix("sw:")).unwrap_or_else(|| panic!("{said}"));
    let (intrs, polls) = row.split_once(':').unwrap_or_else(|| panic!("{said}"));
    [intrs, polls].map(|number| number.parse().unwrap_or_else(|_| panic!("{said}")))
}

fn set(daemon: &Daemon<'_>, polling: &str) {
    let prop = format!("polling={polling}");
    daemon.firelane(&["dladm", "set-linkprop", "-t", "-p", &prop, "alice0"]).expect_success();
}

/// Echoes that the netstack did not answer, because too many asked at once.
fn unanswered(daemon: &Daemon<'_>) -> u64 {
    let said = daemon.firelane(&["drops"]).expect_success();
    let line = said.lines().find(|line| line.contains("ip_icmp_limit"));
    line.map_or(0, |line| line.split_whitespace().last().and_then(|it| it.parse().ok()).expect("a number"))
}

/// Alice asks for so many echoes, fifty at once, and every one comes back that was to be answered.
fn ping(sandbox: &Sandbox, daemon: &Daemon<'_>, count: &str) {
    const AT_ONCE: u64 = 50;
    let before = unanswered(daemon);
    let words = ["-q", "-n", "-f", "-c", count, "-l", &AT_ONCE.to_string(), "-w", "60", "10.0.0.10"];
    let said = sandbox.run(Some("alice"), "ping", &words).stdout;
    let number = |word: &str| {
        let part = said.split(", ").find(|part| part.contains(word)).unwrap_or_else(|| panic!("{said}"));
        let number = part.lines().last().and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        number.unwrap_or_else(|| panic!("{said}"))
    };
    let missing = number("transmitted") - number("received");
    // Some were under way when the last one came back.
    let excused = unanswered(daemon) - before + AT_ONCE;
    assert!(missing <= excused, "{missing} missing, {excused} excused\n{said}");
}

#[test]
fn a_device_that_is_not_polled_is_told_of_chain_by_chain_and_changes_lose_nothing() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, CONFIG);
    let shown = ["dladm", "show-linkprop", "-c", "-o", "value,default,possible", "-p", "polling", "alice0"];
    assert_eq!(daemon.firelane(&shown).expect_success(), "off:auto:auto,off\n");
    ping(&sandbox, &daemon, "2000");
    let [intrs, polls] = arrivals(&daemon);
    assert!(intrs >= 2000 && polls == 0, "{intrs} and {polls}");
    set(&daemon, "auto");
    ping(&sandbox, &daemon, "20000");
    let [told, polled] = arrivals(&daemon);
    assert!(polled > 1000, "{told} and {polled}");
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| ping(&sandbox, &daemon, "30000"));
        while !asking.is_finished() {
            set(&daemon, "off");
            set(&daemon, "auto");
        }
    });
    set(&daemon, "off");
    let [_, before] = arrivals(&daemon);
    ping(&sandbox, &daemon, "2000");
    assert_eq!(arrivals(&daemon)[1], before, "nothing was polled");
}

#[test]
fn what_has_no_device_has_no_such_property() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, CONFIG);
    for (link, prop, said) in [
        ("alice0", "polling=on", "link property 'polling' must be one of: auto,off"),
        ("s1", "polling=off", "invalid link property 'polling'"),
    ] {
        let refused = daemon.firelane(&["dladm", "set-linkprop", "-p", prop, link]);
        assert!(refused.code() == 1 && refused.stderr.contains(said), "{refused:?}");
    }
}
