//! An interface of the host that goes away under a link, returns, is called otherwise or loses its carrier, and who is above it meanwhile.
//!
//! Part of `nic.rs`, whose veth pair and daemon it uses.

use std::io::{BufRead, Write};
use std::process::Stdio;

use super::*;

/// Ticks of CPU time that the process has used.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
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

/// It runs, and who asked for it is told that the next start knows nothing of it; what is written next says all.
#[test]
fn a_name_that_is_handed_on_and_cannot_be_written_down_is_told() {
    let sandbox = Sandbox::new();
    if !veth(&sandbox) {
        return;
    }
    let daemon = daemon(&sandbox, "packet");
    ip(&sandbox, "link add spare type veth peer name farther netns out");
    let more = std::fs::read_to_string(sandbox.folder().join("host.toml")).unwrap()
        + "[link.net1]\nkind = \"nic\"\nifname = \"spare\"\ndriver = \"packet\"\n";
    let path = sandbox.folder().join("more.toml");
    std::fs::write(&path, more).unwrap();
    daemon.firelane(&["apply", &path.to_string_lossy()]).expect_success();
    ip(&sandbox, "link delete near");
    // No file takes the place of a folder.
    let kept = daemon.runtime().join("state/model.toml");
    std::fs::rename(&kept, sandbox.folder().join("aside")).unwrap();
    std::fs::create_dir(&kept).unwrap();
    let told = daemon.firelane(&["dladm", "rename-link", "net1", "net0"]);
    assert!(
        told.code() == 1 && told.stderr.contains("net0 has its interface until the next start"),
        "{told:?}"
    );
    let shown = |daemon: &Daemon<'_>| {
        daemon.firelane(&["dladm", "show-phys", "-p", "-o", "link,device"]).expect_success()
    };
    assert_eq!(shown(&daemon), "net0:spare\n");
    let status = || daemon.firelane(&["status"]).stdout;
    assert!(status().contains("model.toml"), "{}", status());
    std::fs::remove_dir(&kept).unwrap();
    daemon.firelane(&["dladm", "create-etherstub", "other0"]).expect_success();
    assert!(!status().contains("model.toml"), "{}", status());
    daemon.terminate();
    assert_eq!(shown(&Daemon::start_with(&sandbox, &[])), "net0:spare\n");
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
