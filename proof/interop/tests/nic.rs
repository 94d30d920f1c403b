//! Links on interfaces of the host: AF_XDP where it is offered, a packet socket else, and an interface that goes away.
//!
//! The interface is an end of a veth pair; at the other end is a namespace of the kernel's. As root; otherwise each test
//! says why it is skipped.

use std::io::{BufRead, Write};
use std::process::Stdio;
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

/// Ticks of CPU time that the process has used.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
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

/// A client outside with a connection that asks nothing until it is told to.
struct Waiting(std::process::Child, std::io::BufReader<std::process::ChildStdout>);

impl Waiting {
    fn begin(sandbox: &Sandbox) -> Self {
        let script = "import socket, sys; s = socket.create_connection(('10.9.0.1', 80)); print('there', flush=True); \
                      sys.stdin.readline(); s.sendall(b'GET /body HTTP/1.0\\r\\n\\r\\n'); print(s.recv(12).decode(), flush=True)";
        let mut command = sandbox.command_in("out", &["python3", "-c", script]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 is installed");
        let output = std::io::BufReader::new(child.stdout.take().expect("it was asked for"));
        let mut begun = Self(child, output);
        assert_eq!(begun.line(), "there");
        begun
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("readable");
        line.trim().to_owned()
    }

    /// The beginning of what it is answered.
    fn ask(&mut self) -> String {
        self.0.stdin.take().expect("it was asked for").write_all(b"go\n").expect("it waits");
        let line = self.line();
        assert!(self.0.wait().expect("it ends").success());
        line
    }
}

#[test]
fn an_interface_that_goes_away_is_told_and_costs_nothing_and_returns_under_all_that_was_above() {
    for driver in ["auto", "packet"] {
        let sandbox = Sandbox::new();
        if !veth(&sandbox) {
            return;
        }
        let daemon = daemon(&sandbox, driver);
        let flowadm = |words: &[&str]| daemon.firelane(&[&["flowadm"], words].concat()).expect_success();
        flowadm(&["add-flow", "-l", "net0", "-a", "transport=icmp", "pings"]);
        talks(&sandbox);
        assert_eq!(problems(&daemon), "");
        let mut waiting = Waiting::begin(&sandbox);
        ip(&sandbox, "link delete near");
        until(driver, LIMIT, || state(&daemon) == "down");
        assert_eq!(state_of(&daemon, "web0"), "down", "a VNIC is as what is below it");
        let told = daemon.firelane(&["doctor"]);
        assert_eq!(told.code(), 1, "{told:?}");
        for told in [found(&daemon), problems(&daemon)] {
            assert!(told.contains("near is gone"), "{told}");
        }
        let before = ticks(daemon.pid());
        std::thread::sleep(Duration::from_secs(1));
        let used = ticks(daemon.pid()) - before;
        assert!(used <= 10, "{driver}: {used} of 100 ticks with nothing to do");
        // It comes back, and nobody has to do anything.
        for line in [
            "link add near type veth peer name far netns out",
            "-n out address add 10.9.0.2/24 dev far",
            "-n out link set far up",
        ] {
            ip(&sandbox, line);
        }
        until(driver, LIMIT, || state(&daemon) == "up");
        assert_eq!(state_of(&daemon, "web0"), "up");
        assert_eq!(problems(&daemon), "");
        let counted = || {
            let shown = daemon.firelane(&["flowstat", "-p", "-o", "ipkts", "pings"]).expect_success();
            shown.trim().parse::<u64>().expect("a number")
        };
        let before = counted();
        talks(&sandbox);
        assert!(flowadm(&["show-flow", "-po", "link", "pings"]).contains("net0"));
        assert!(counted() > before, "the link's flow is there again");
        assert_eq!(waiting.ask(), "HTTP/1.1 200", "a connection has waited for it");
    }
}

/// The kernel gives it the number that it had, and yet all that was opened on it is dead.
#[test]
fn an_interface_that_leaves_its_namespace_is_told_and_returns_under_all_that_was_above() {
    for driver in ["auto", "packet"] {
        let sandbox = Sandbox::new();
        if !veth(&sandbox) {
            return;
        }
        // A number that is free in both namespaces.
        for line in [
            "link delete near",
            "link add near index 77 type veth peer name far netns out",
            "-n out address add 10.9.0.2/24 dev far",
            "-n out link set far up",
            "link set near up",
        ] {
            ip(&sandbox, line);
        }
        let daemon = daemon(&sandbox, driver);
        talks(&sandbox);
        assert_eq!(problems(&daemon), "");
        let mut waiting = Waiting::begin(&sandbox);
        let back = format!("-n out link set near netns {}", daemon.pid());
        ip(&sandbox, "link set near netns out");
        until(driver, LIMIT, || state(&daemon) == "down");
        let told = problems(&daemon);
        assert!(told.contains("near is gone"), "{told}");
        until("its program has gone", LIMIT, || {
            let shown = from_outside(&sandbox, "ip", &["link", "show", "near"]).expect_success();
            assert!(shown.starts_with("77: near"), "{shown}");
            !shown.contains("xdp")
        });
        ip(&sandbox, &back);
        until(driver, LIMIT, || state(&daemon) == "up");
        let pings = || from_outside(&sandbox, "ping", &["-c", "1", "-W", "1", "10.9.0.1"]).status.success();
        until(driver, LIMIT, pings);
        assert_eq!(problems(&daemon), "");
        talks(&sandbox);
        let is_afxdp = found(&daemon).contains("AF_XDP, ");
        // There and back between two looks.
        ip(&sandbox, "link set near netns out");
        ip(&sandbox, &back);
        until(driver, LIMIT, pings);
        until(driver, LIMIT, || problems(&daemon).is_empty() && state(&daemon) == "up");
        talks(&sandbox);
        assert_eq!(found(&daemon).contains("AF_XDP, "), is_afxdp, "it is attached as before");
        assert_eq!(waiting.ask(), "HTTP/1.1 200", "a connection has waited for it");
    }
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
fn an_interface_that_is_renamed_or_carries_less_is_told_and_its_traffic_goes_on() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    let daemon = daemon(&sandbox, "auto");
    ip(&sandbox, "link set near name other");
    talks(&sandbox);
    let device = daemon.firelane(&["dladm", "show-phys", "-p", "-o", "state,device"]).expect_success();
    assert_eq!(device, "up:other\n");
    assert!(
        found(&daemon).contains(" note ") && found(&daemon).contains("other, once near: "),
        "{}",
        found(&daemon)
    );
    assert_eq!(problems(&daemon), "");
    ip(&sandbox, "link set other mtu 1400");
    for told in [found(&daemon), problems(&daemon)] {
        assert!(
            told.contains("other carries packets of at most 1400 bytes now, the link's have up to 1500"),
            "{told}"
        );
    }
    ip(&sandbox, "link set other mtu 1500");
    talks(&sandbox);
    ip(&sandbox, "link set other down");
    assert!(problems(&daemon).contains("other is switched off"), "{}", problems(&daemon));
    let of_ip = || {
        let shown = |verb| daemon.firelane(&["ipadm", verb, "-p", "-o", "state"]).expect_success();
        ["show-if", "show-addr"].map(shown)
    };
    assert_eq!([state(&daemon), state_of(&daemon, "web0")], ["down", "down"]);
    assert_eq!(of_ip(), ["failed\n", "inaccessible\n"]);
    ip(&sandbox, "link set other up");
    talks(&sandbox);
    assert_eq!(of_ip(), ["ok\n", "ok\n"]);
    ip(&sandbox, "-n out link set far down");
    until("no carrier", LIMIT, || problems(&daemon).contains("other has no carrier"));
    ip(&sandbox, "-n out link set far up");
    until("a carrier", LIMIT, || problems(&daemon).is_empty());
    talks(&sandbox);
    // Its new name is written down, which changes nothing else, and the next start finds it.
    let told = [daemon.firelane(&["status"]).stdout, found(&daemon)];
    let said = "near is called other now, and the next start would look for near";
    assert!(told.iter().all(|it| it.contains(said)), "{told:?}");
    let named = sandbox.folder().join("named.toml");
    let dump = daemon.firelane(&["dump"]).expect_success();
    std::fs::write(&named, dump.replace("\"near\"", "\"other\"")).unwrap();
    for verb in ["plan", "apply"] {
        assert_eq!(daemon.firelane(&[verb, &named.to_string_lossy()]).expect_success(), "no changes\n");
    }
    assert!(!daemon.firelane(&["status"]).stdout.contains("is called"));
    daemon.terminate();
    let daemon = Daemon::start_with(&sandbox, &[]);
    assert_eq!(problems(&daemon), "");
    talks(&sandbox);
}

/// As in the original: what was said of the name is the other card's from then on.
/// Linux asks for everybody anew, too.
#[test]
fn who_is_behind_an_interface_that_has_its_carrier_again_is_asked_for_anew() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    let daemon = daemon(&sandbox, "auto");
    talks(&sandbox);
    let knows =
        |whom: &str| daemon.firelane(&["netstat", "-pn", "-N", "web"]).expect_success().contains(whom);
    assert!(knows("10.9.0.2"));
    for line in ["link set far down", "link set far address 02:00:00:00:00:77"] {
        from_outside(&sandbox, "/sbin/ip", &line.split(' ').collect::<Vec<_>>()).expect_success();
    }
    until("the carrier ends", LIMIT, || state(&daemon) == "down");
    from_outside(&sandbox, "/sbin/ip", &["link", "set", "far", "up"]).expect_success();
    until("he is forgotten, or known anew", LIMIT, || !knows("10.9.0.2") || knows(":77"));
    talks(&sandbox);
}

#[test]
fn another_link_takes_the_name_and_all_that_is_above_it_when_its_interface_has_gone() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    let daemon = daemon(&sandbox, "auto");
    let rename = || {
        let told = daemon.firelane(&["dladm", "rename-link", "net1", "net0"]);
        (told.code(), told.stderr)
    };
    ip(&sandbox, "link add spare type veth peer name farther netns out");
    let more = std::fs::read_to_string(sandbox.folder().join("host.toml")).unwrap()
        + "[link.net1]\nkind = \"nic\"\nifname = \"spare\"\n";
    let path = sandbox.folder().join("more.toml");
    std::fs::write(&path, more).unwrap();
    daemon.firelane(&["apply", &path.to_string_lossy()]).expect_success();
    assert_eq!(rename(), (1, "dladm: rename operation failed: object already exists\n".to_owned()));
    ip(&sandbox, "link delete near");
    ip(&sandbox, "-n out address add 10.9.0.2/24 dev farther");
    ip(&sandbox, "-n out link set farther up");
    daemon.firelane(&["dladm", "create-vnic", "-l", "net1", "busy0"]).expect_success();
    assert_eq!(rename(), (1, "dladm: rename operation failed: link busy (vnic=busy0)\n".to_owned()));
    daemon.firelane(&["dladm", "delete-vnic", "busy0"]).expect_success();
    assert_eq!(rename(), (0, String::new()));
    let shown = |daemon: &Daemon<'_>| {
        daemon.firelane(&["dladm", "show-phys", "-p", "-o", "link,device,state"]).expect_success()
    };
    assert_eq!(shown(&daemon), "net0:spare:up\n");
    talks(&sandbox);
    daemon.terminate();
    let daemon = Daemon::start_with(&sandbox, &[]);
    assert_eq!(shown(&daemon), "net0:spare:up\n");
    talks(&sandbox);
}

/// What is above it goes first, and the link when its interface has gone; then it does not return either.
#[test]
fn a_link_is_deleted_by_its_name_when_its_interface_has_gone() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    let daemon = daemon(&sandbox, "packet");
    let delete = |daemon: &Daemon<'_>| {
        let told = daemon.firelane(&["dladm", "delete-phys", "net0"]);
        (told.code(), told.stderr)
    };
    let busy = |why: &str| (1, format!("dladm: delete operation failed: link busy{why}\n"));
    let none = sandbox.folder().join("bare.toml");
    let (code, said) = delete(&daemon);
    assert!(code == 1 && said.contains("link busy (link=net0: a link whose interface has gone"), "{said}");
    sandbox.run(None, "ip", &["link", "delete", "near"]).expect_success();
    assert_eq!(delete(&daemon), busy(" (vnic=web0)"));
    std::fs::write(&none, "[link.net0]\nkind = \"nic\"\nifname = \"near\"\ndriver = \"packet\"\n").unwrap();
    daemon.firelane(&["apply", &none.to_string_lossy()]).expect_success();
    assert_eq!(delete(&daemon), (0, String::new()));
    assert_eq!(delete(&daemon), (1, "dladm: delete operation failed: object not found\n".to_owned()));
    daemon.terminate();
    let daemon = Daemon::start_with(&sandbox, &[]);
    assert_eq!(daemon.firelane(&["dladm", "show-phys", "-p", "-o", "link"]).expect_success(), "");
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
