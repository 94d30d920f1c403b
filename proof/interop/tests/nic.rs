//! Links on interfaces of the host: AF_XDP where it is offered, a packet socket else.
//!
//! The interface is an end of a veth pair; at the other end is a namespace of the kernel's. As root; otherwise each test
//! says why it is skipped.

#[path = "nic/leaving.rs"]
mod leaving;

use std::time::Duration;

use firelane_interop::{Comparing, Daemon, Output, Sandbox, cpu_ends, skipped, until};

const LIMIT: Duration = Duration::from_secs(20);

/// A veth pair from the daemon's namespace into `out`, where the kernel has 10.9.0.2.
fn veth(sandbox: &Sandbox) -> bool {
    sandbox.veth("near", "out", "10.9.0.2/24")
}

/// A daemon with a netstack and a file service behind `near`.
fn daemon<'a>(sandbox: &'a Sandbox, driver: &str) -> Daemon<'a> {
    daemon_of(sandbox, &format!("driver = \"{driver}\""))
}

/// The same, with lines of the link.
fn daemon_of<'a>(sandbox: &'a Sandbox, lines: &str) -> Daemon<'a> {
    let text = format!(
        "[link.net0]\nkind = \"nic\"\nifname = \"near\"\n{lines}\n\
         [vnic.web0]\nover = \"net0\"\nnetstack = \"web\"\n\
         [netstack.web.addresses]\n\"web0/v4\" = \"10.9.0.1/24\"\n\
         [service.files]\nkind = \"http\"\nnetstack = \"web\"\nport = 80\nroot = \"{}\"\n",
        sandbox.folder().display()
    );
    let config = sandbox.folder().join("host.toml");
    std::fs::write(&config, text).unwrap();
    Daemon::start(sandbox, &config)
}

fn from_outside(sandbox: &Sandbox, program: &str, words: &[&str]) -> Output {
    sandbox.run(Some("out"), program, words)
}

/// What `firelane doctor` says of the link.
fn found(daemon: &Daemon<'_>) -> String {
    let told = daemon.firelane(&["doctor"]).stdout;
    told.lines().find(|line| line.starts_with("link net0")).unwrap_or_else(|| panic!("{told}")).to_owned()
}

fn state(daemon: &Daemon<'_>) -> String {
    state_of(daemon, "net0")
}

fn state_of(daemon: &Daemon<'_>, link: &str) -> String {
    daemon.firelane(&["dladm", "show-link", "-p", "-o", "state", link]).expect_success().trim().to_owned()
}

/// A ping and a file of a megabyte: open checksums and large segments of the kernel's would not arrive whole.
fn talks(sandbox: &Sandbox) {
    from_outside(sandbox, "ping", &["-c", "1", "-W", "20", "10.9.0.1"]).expect_success();
    let body: Vec<u8> = (0..1 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(sandbox.folder().join("body"), &body).unwrap();
    let fetched = sandbox.folder().join("fetched");
    let words = ["-sS", "-m", "60", "-o", &fetched.to_string_lossy(), "http://10.9.0.1/body"];
    from_outside(sandbox, "curl", &words).expect_success();
    assert!(std::fs::read(fetched).unwrap() == body, "the file arrived changed");
}

#[test]
fn an_interface_gets_the_best_that_is_offered_and_doctor_says_what() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    let daemon = daemon(&sandbox, "auto");
    talks(&sandbox);
    assert_eq!(state(&daemon), "up");
    let said = found(&daemon);
    let is_afxdp = said.contains(" ok ") && said.contains("near: AF_XDP, ");
    let is_detour = said.contains(" note ") && said.contains("a packet socket in place of AF_XDP");
    assert!(is_afxdp || is_detour, "{said}");
}

#[test]
fn an_address_that_the_kernel_cannot_be_reached_at_any_more_is_told() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    ip(&sandbox, "address add 10.9.0.3/24 dev near");
    let reaches = || from_outside(&sandbox, "ping", &["-c", "1", "-W", "1", "10.9.0.3"]).status.success();
    let told = |daemon: &Daemon<'_>| {
        let said = "the kernel has 10.9.0.3 on near and gets no frame";
        let note = |it: &str| it.starts_with("note: ") && it.contains(said);
        let is_noted = daemon.firelane(&["status"]).expect_success().lines().any(note);
        assert_eq!(is_noted, found(daemon).contains(said));
        is_noted
    };
    assert!(reaches());
    let first = daemon_of(&sandbox, "shared = false");
    let has_afxdp = found(&first).contains("near: AF_XDP, ");
    assert_eq!((reaches(), told(&first)), (!has_afxdp, has_afxdp));
    ip(&sandbox, "address delete 10.9.0.3/24 dev near");
    assert!(!told(&first));
    assert!(first.terminate().success());
    ip(&sandbox, "address add 10.9.0.3/24 dev near");
    // A packet socket gets a copy of what the kernel gets.
    let config = sandbox.folder().join("host.toml");
    let text = std::fs::read_to_string(&config).unwrap().replace("shared = false", "driver = \"packet\"");
    std::fs::write(&config, text).unwrap();
    let second = Daemon::start_with(&sandbox, &[]);
    second.firelane(&["apply", &config.to_string_lossy()]).expect_success();
    assert!(reaches() && !told(&second));
    talks(&sandbox);
}

#[test]
fn an_interface_with_an_address_stays_the_kernels_as_well() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    ip(&sandbox, "address add 10.9.0.3/24 dev near");
    let pings =
        |address: &str| from_outside(&sandbox, "ping", &["-c", "1", "-W", "1", address]).status.success();
    let daemon = daemon(&sandbox, "auto");
    // The kernel at the far end knows nobody's Ethernet address yet, and asks all for it.
    assert!(pings("10.9.0.3"), "what is the kernel's stays with it");
    talks(&sandbox);
    let said = found(&daemon);
    assert!(!said.contains("AF_XDP, ") || said.contains("the kernel keeps what is for no VNIC"), "{said}");
    let status = daemon.firelane(&["status"]).expect_success();
    assert!(!status.contains("10.9.0.3"), "{status}");
    for line in [
        "dladm create-vnic -l net0 more0",
        "ipadm create-if -N web more0",
        "ipadm create-addr -T static -a 10.9.0.4/24 more0/v4",
        "ipadm create-addr -T static -a fd09::4/64 more0/v6",
    ] {
        daemon.firelane(&line.split(' ').collect::<Vec<_>>()).expect_success();
    }
    ip(&sandbox, "-n out address add fd09::2/64 dev far nodad");
    until("the new station", LIMIT, || pings("10.9.0.4") && pings("fd09::4"));
    daemon.firelane(&["ipadm", "delete-if", "more0"]).expect_success();
    daemon.firelane(&["dladm", "delete-vnic", "more0"]).expect_success();
    assert!(!pings("10.9.0.4") && pings("10.9.0.1") && pings("10.9.0.3"));
}

#[test]
fn behind_a_wire_is_no_interface_that_the_kernel_keeps() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    ip(&sandbox, "address add 10.9.0.3/24 dev near");
    let daemon = daemon(&sandbox, "auto");
    let has_afxdp = found(&daemon).contains("AF_XDP, ");
    daemon.firelane(&["dladm", "create-etherstub", "stub0"]).expect_success();
    let config = sandbox.folder().join("host.toml");
    let wired = std::fs::read_to_string(&config).unwrap()
        + "[etherstub.stub0]\n[wire.w0]\nends = [\"net0\", \"stub0\"]\n";
    std::fs::write(&config, &wired).unwrap();
    let path = config.to_string_lossy();
    let refused = |words: &[&str]| {
        let told = daemon.firelane(words);
        assert!(
            told.stderr.contains("the kernel keeps near as well") && told.stderr.contains("shared = false"),
            "{told:?}"
        );
    };
    if has_afxdp {
        refused(&["dladm", "create-wire", "-l", "net0", "-l", "stub0", "w0"]);
        refused(&["plan", &path]);
        refused(&["apply", &path]);
        from_outside(&sandbox, "ping", &["-c", "1", "-W", "5", "10.9.0.3"]).expect_success();
        talks(&sandbox);
    }
    std::fs::write(&config, wired.replace("driver = \"auto\"", "shared = false")).unwrap();
    daemon.firelane(&["apply", &path]).expect_success();
    // The far end knows the station already, and sends before its address is certain again.
    until("the link alone", LIMIT, || {
        from_outside(&sandbox, "ping", &["-c", "1", "-W", "1", "10.9.0.1"]).status.success()
    });
    talks(&sandbox);
}

#[test]
fn a_packet_socket_carries_the_same() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    let daemon = daemon(&sandbox, "packet");
    talks(&sandbox);
    assert!(found(&daemon).contains("near: a packet socket, as configured"), "{}", found(&daemon));
}

#[test]
fn its_own_address_and_speed_are_those_that_the_kernel_says() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    // /sys shows the interfaces of the namespace in which it was mounted.
    if !sandbox.run(None, "mount", &["-t", "sysfs", "sysfs", "/sys"]).status.success() {
        skipped("/sys cannot be mounted here");
        return;
    }
    let daemon = daemon(&sandbox, "packet");
    let dladm = |words: &[&str]| {
        let mut all = vec!["dladm"];
        all.extend(words);
        daemon.firelane(&all).expect_success()
    };
    let said = sandbox.run(None, "ip", &["-o", "link", "show", "near"]).expect_success();
    let address = said.split("link/ether ").nth(1).and_then(|it| it.split(' ').next()).expect("its address");
    let shown = dladm(&["show-phys", "-m", "-j"]);
    assert!(
        shown.contains(&format!("\"address\": \"{address}\"")) && shown.contains("\"inuse\": false"),
        "{shown}"
    );
    // A veth has its address from whoever made it, so that there is none from a factory.
    for more in [&[][..], &["-n", "1"]] {
        let words = ["dladm", "create-vnic", "-l", "net0", "-m", "factory"];
        let refused = daemon.firelane(&[&words, more, &["own0"]].concat());
        let told = "dladm: vnic creation over net0 failed: factory MAC address slots not supported\n";
        assert_eq!((refused.code(), refused.stderr.as_str()), (1, told), "{refused:?}");
    }
    // A VNIC that has the interface's own address is its client.
    dladm(&["create-vnic", "-l", "net0", "-m", address, "own0"]);
    assert_eq!(dladm(&["show-phys", "-m", "-p", "-o", "slot,inuse,client", "net0"]), "primary:yes:own0\n");
    assert_eq!(
        dladm(&["show-phys", "-H", "-p", "-o", "ringtype,rings"]),
        "RX:0\nTX:0\n",
        "a packet socket is one ring"
    );
    assert_eq!(dladm(&["show-ether", "-p", "-o", "speed-duplex,state"]), "10G-f:up\n", "as every veth says");
    assert_eq!(dladm(&["show-phys", "-p", "-o", "speed"]), "10000\n");
    assert_eq!(dladm(&["show-vnic", "-p", "-o", "speed", "own0"]), "10000\n", "that of what is below");
    // What a veth's driver does not know of any cable is not made up; ethtool, the judge, says "Not reported" there.
    let judged = sandbox.run(None, "ethtool", &["near"]).expect_success();
    assert!(
        judged.contains("Auto-negotiation: off") && judged.contains("Supported link modes:   Not reported"),
        "{judged}"
    );
    let ends = "net0:current:no:10G-f\n:capable:?:?\n:adv:?:?\n:peeradv:?:?\n";
    assert_eq!(dladm(&["show-ether", "-x", "-p", "-o", "link,ptype,auto,speed-duplex"]), ends);
}

#[test]
fn its_queue_goes_from_lane_to_lane_while_text_is_compared() {
    for driver in ["auto", "packet"] {
        let sandbox = Sandbox::new();
        if !veth(&sandbox) {
            return;
        }
        sandbox
            .run(None, "ip", &["-n", "out", "address", "add", "10.0.0.1/24", "dev", "far"])
            .expect_success();
        let text = format!(
            "[daemon]\nlanes = 2\n[link.net0]\nkind = \"nic\"\nifname = \"near\"\ndriver = \"{driver}\"\n\
             [vnic.web0]\nover = \"net0\"\nnetstack = \"web\"\n\
             [netstack.web.addresses]\n\"web0/v4\" = \"10.0.0.2/24\"\n\
             [service.echo1]\nkind = \"echo\"\nnetstack = \"web\"\nport = 7\n"
        );
        let daemon = Daemon::start_as(&sandbox, &text);
        let mut compares = Comparing::begin(&sandbox, "out", "4", "4");
        let (first, last) = cpu_ends();
        let wanted =
            [format!("cpus={first}"), "cpus=".to_owned(), format!("cpus={last}"), "cpus=".to_owned()];
        let mut moves = 0;
        while !compares.is_over() {
            let prop = &wanted[moves % wanted.len()];
            let words: &[&str] = match prop.as_str() {
                "cpus=" => &["dladm", "reset-linkprop", "-t", "-p", "cpus", "net0"],
                _ => &["dladm", "set-linkprop", "-t", "-p", prop, "net0"],
            };
            daemon.firelane(words).expect_success();
            let words = ["dladm", "show-linkprop", "-c", "-o", "value", "-p", "cpus-effective", "net0"];
            let shown = daemon.firelane(&words).expect_success();
            assert_eq!(format!("cpus={}", shown.trim()), *prop, "{driver}");
            moves += 1;
        }
        compares.ends_well();
        // Once everywhere at least; how often is the machine's to say.
        assert!(moves >= wanted.len(), "{driver}: {moves} moves");
    }
}

#[test]
fn anothers_program_on_the_interface_is_left_alone() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    let first = daemon(&sandbox, "auto");
    if !found(&first).contains("AF_XDP, ") {
        skipped(found(&first));
        return;
    }
    // The same interface under another name: the first link's program is another's to the second link.
    sandbox.run(None, "ip", &["link", "property", "add", "dev", "near", "altname", "again"]).expect_success();
    let more = std::fs::read_to_string(sandbox.folder().join("host.toml")).unwrap()
        + "[link.net1]\nkind = \"nic\"\nifname = \"again\"\ndriver = \"afxdp\"\n";
    std::fs::write(sandbox.folder().join("more.toml"), &more).unwrap();
    let path = sandbox.folder().join("more.toml");
    let refused = first.firelane(&["apply", &path.to_string_lossy()]);
    assert!(!refused.status.success());
    assert!(refused.stderr.contains("another XDP program is attached"), "{}", refused.stderr);
    std::fs::write(&path, more.replace("driver = \"afxdp\"", "driver = \"packet\"")).unwrap();
    first.firelane(&["apply", &path.to_string_lossy()]).expect_success();
    talks(&sandbox);
    assert!(found(&first).contains(" ok "), "{}", found(&first));
}

/// What `firelane status` says is wrong.
fn problems(daemon: &Daemon<'_>) -> String {
    daemon.firelane(&["status"]).expect_success().lines().filter(|it| it.starts_with("problem: ")).collect()
}

fn ip(sandbox: &Sandbox, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    sandbox.run(None, "ip", &words).expect_success();
}

/// Who is answered of forty that ask at once, each from a port of its own.
const ASKS_FORTY: &str = "import select, socket\n\
    all = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(40)]\n\
    [s.sendto(b'there?', ('10.9.0.1', 7)) for s in all]\n\
    silent = set(all)\n\
    while silent:\n\
    \x20heard = select.select(list(silent), [], [], 1)[0]\n\
    \x20if not heard: break\n\
    \x20[s.recv(100) for s in heard]\n\
    \x20silent -= set(heard)\n\
    print(40 - len(silent))";

#[test]
fn queues_that_an_interface_gets_later_are_read_as_well() {
    let sandbox = Sandbox::new();
    if !sandbox.run(None, "ip", &["netns", "add", "out"]).status.success() {
        skipped("no namespaces");
        return;
    }
    // /sys shows the interfaces of the namespace in which it was mounted.
    if !sandbox.run(None, "mount", &["-t", "sysfs", "sysfs", "/sys"]).status.success() {
        skipped("/sys cannot be mounted here");
        return;
    }
    for line in [
        "link add near numrxqueues 4 numtxqueues 4 type veth peer name far numrxqueues 4 numtxqueues 4 netns out",
        "-n out address add 10.9.0.2/24 dev far",
        "-n out link set far up",
        "link set near up",
    ] {
        ip(&sandbox, line);
    }
    let queues = |count: &str| {
        let sets = |netns, name| {
            sandbox.run(netns, "ethtool", &["-L", name, "rx", count, "tx", count]).status.success()
        };
        sets(None, "near") && sets(Some("out"), "far")
    };
    if !queues("1") {
        skipped("ethtool cannot change a veth's queues here");
        return;
    }
    let text = "[link.net0]\nkind = \"nic\"\nifname = \"near\"\n\
         [vnic.web0]\nover = \"net0\"\nnetstack = \"web\"\n\
         [netstack.web.addresses]\n\"web0/v4\" = \"10.9.0.1/24\"\n\
         [service.echo1]\nkind = \"echo\"\nnetstack = \"web\"\nport = 7\n";
    let daemon = Daemon::start_as(&sandbox, text);
    let answered = || {
        let said = from_outside(&sandbox, "python3", &["-c", ASKS_FORTY]).expect_success();
        said.trim().parse::<u32>().expect("a number")
    };
    until("one queue", LIMIT, || answered() == 40);
    if !found(&daemon).contains("AF_XDP, ") {
        skipped(found(&daemon));
        return;
    }
    assert!(found(&daemon).contains("1 queue(s)"), "{}", found(&daemon));
    assert!(queues("4"));
    until("four queues", LIMIT, || answered() == 40);
    until("no problem", LIMIT, || problems(&daemon).is_empty());
    assert!(found(&daemon).contains("4 queue(s)"), "{}", found(&daemon));
}

/// What comes by a bridge comes uncut, and a packet socket takes it.
#[test]
fn a_bridge_is_no_interface_for_afxdp_and_carries_all_the_same() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    for line in ["link add br0 type bridge", "link set near master br0", "link set br0 up"] {
        ip(&sandbox, line);
    }
    let text = "[link.net0]\nkind = \"nic\"\nifname = \"br0\"\n\
         [vnic.web0]\nover = \"net0\"\nnetstack = \"web\"\n\
         [netstack.web.addresses]\n\"web0/v4\" = \"10.9.0.1/24\"\n\
         [service.drop1]\nkind = \"discard\"\nnetstack = \"web\"\nport = 9\n";
    let daemon = Daemon::start_as(&sandbox, text);
    let said = found(&daemon);
    assert!(said.contains(" note ") && said.contains("br0: a packet socket in place of AF_XDP"), "{said}");
    let pings = || from_outside(&sandbox, "ping", &["-c", "1", "-W", "1", "10.9.0.1"]).status.success();
    until("the bridge", LIMIT, pings);
    let upload = "import socket; s = socket.create_connection(('10.9.0.1', 9)); s.settimeout(20); \
                  s.sendall(bytes(3 << 20)); s.shutdown(socket.SHUT_WR); print(len(s.recv(1)))";
    assert_eq!(from_outside(&sandbox, "python3", &["-c", upload]).expect_success().trim(), "0");
}

#[test]
fn what_cannot_be_opened_is_named() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    let daemon = daemon(&sandbox, "packet");
    let refusal = |text: &str| {
        let path = sandbox.folder().join("wrong.toml");
        let whole = std::fs::read_to_string(sandbox.folder().join("host.toml")).unwrap() + text;
        std::fs::write(&path, whole).unwrap();
        // A plan does not promise what could not be done.
        let verbs = ["plan", "apply"].map(|verb| daemon.firelane(&[verb, &path.to_string_lossy()]));
        assert!(verbs.iter().all(|it| !it.status.success()), "{text}: {verbs:?}");
        assert_eq!(verbs[0].stderr, verbs[1].stderr, "{text}");
        let [_, applied] = verbs;
        applied.stderr
    };
    let said = refusal("[link.n1]\nkind = \"nic\"\n");
    assert!(said.contains("ifname: missing"), "{said}");
    let said = refusal("[link.n1]\nkind = \"nic\"\nifname = \"nosuch0\"\n");
    assert!(
        said.contains("ifname=nosuch0") && said.contains("an interface of the network namespace"),
        "{said}"
    );
    let said = refusal("[link.n1]\nkind = \"nic\"\nifname = \"near\"\n");
    assert!(said.contains("ifname") && said.contains("near"), "{said}");
    ip(&sandbox, "link add spare type veth peer name spare1");
    let said = refusal("[link.n1]\nkind = \"nic\"\nifname = \"spare\"\nmtu = 9000\n");
    assert!(said.contains("mtu=9000") && said.contains("carries at most 1500"), "{said}");
    let said = refusal("[daemon]\ncpus = \"1023\"\n");
    assert!(said.contains("non-existent processor ID"), "{said}");
    let said = refusal("[link.n1]\nkind = \"tap\"\nifname = \"t0\"\ndriver = \"packet\"\n");
    assert!(said.contains("only kind = \"nic\" has a driver"), "{said}");
    talks(&sandbox);
}

#[test]
fn a_plan_promises_no_rings_that_the_interface_has_not_and_says_which_step_another_rests_on() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    let daemon = daemon(&sandbox, "auto");
    ip(&sandbox, "link add spare type veth peer name farther netns out");
    let wanted = sandbox.folder().join("wanted.toml");
    let more = |lines: &str| {
        let text = daemon.firelane(&["dump"]).expect_success();
        let link = format!("{text}\n[link.net1]\nkind = \"nic\"\nifname = \"spare\"\n{lines}");
        std::fs::write(&wanted, link).expect("writable");
        wanted.to_string_lossy().into_owned()
    };
    let memif = format!(
        "[vnic.m0]\nover = \"net1\"\nmemif = {{ role = \"server\", socket = \"{}\" }}\nrxrings = 2\n",
        sandbox.folder().join("m.sock").display()
    );
    let of_nic = ["rxrings = 100\n", "txrings = 100\n", "driver = \"packet\"\nrxrings = 2\n"];
    for lines in of_nic.into_iter().chain([memif.as_str()]) {
        for verb in ["plan", "apply"] {
            let refused = daemon.firelane(&[verb, &more(lines)]);
            assert!(
                refused.code() == 1 && refused.stderr.contains("request hw rings failed"),
                "{verb} {lines}: {refused:?}"
            );
        }
    }
    let vnic =
        "[vnic.more0]\nover = \"net1\"\n[flow.f1]\nlink = \"more0\"\nmatch = { transport = \"udp\" }\n";
    daemon.firelane(&["apply", &more(vnic)]).expect_success();
    assert!(daemon.terminate().success());
    ip(&sandbox, "link delete spare");
    let daemon = Daemon::start_with(&sandbox, &[]);
    let told = problems(&daemon);
    assert!(
        told.contains(
            "create vnic more0 over net1: it rests on what failed, \"create link net1 on nic spare"
        ),
        "{told}"
    );
    assert!(told.contains("it rests on what failed, \"create vnic more0 over net1\""), "{told}");
    // It comes after the daemon's start, and all that could not be made without it is made.
    ip(&sandbox, "link add spare type veth peer name farther netns out");
    ip(&sandbox, "-n out link set farther up");
    until("the link has its interface", LIMIT, || problems(&daemon).is_empty());
    let shown = daemon.firelane(&["flowadm", "show-flow", "-p", "-o", "flow,link"]).expect_success();
    assert_eq!(shown, "f1:more0\n");
}
