//! `firelane capture` read by the real tcpdump: from a file, through a pipe, with the reason of a drop. `firelane trace` and
//! `show steps` of the same traffic.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use firelane_interop::{Background, Daemon, Sandbox, binary};

/// Two tenants that may ping each other.
const CONFIG: &str = "[etherstub.vswitch1]\n\
    [vnic.alice0]\nover = \"vswitch1\"\n\
    tap = { namespace = \"alice\", addresses = [\"10.0.0.1/24\"] }\n\
    [vnic.bob0]\nover = \"vswitch1\"\n\
    tap = { namespace = \"bob\", addresses = [\"10.0.0.2/24\"] }\n\
    [flow.pings]\nlink = \"bob0\"\nmatch = { transport = \"icmp\" }\n";

/// Pings bob from alice in the background until the value is dropped.
struct Pings<'a>(&'a Sandbox, std::process::Child);

impl<'a> Pings<'a> {
    fn start(sandbox: &'a Sandbox) -> Self {
        let mut command = sandbox.command("ip");
        command.args(["netns", "exec", "alice", "ping", "-i", "0.2", "-s", "100", "10.0.0.2"]);
        let child = command.stdout(Stdio::null()).spawn().expect("ip");
        thread::sleep(Duration::from_millis(100));
        Self(sandbox, child)
    }
}

impl Drop for Pings<'_> {
    fn drop(&mut self) {
        let _ = self.1.kill();
        let _ = self.1.wait();
    }
}

#[test]
fn tcpdump_reads_what_was_captured_into_a_file() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, CONFIG);
    let pings = Pings::start(&sandbox);
    let file = sandbox.folder().join("alice0.pcapng");
    let file = file.to_string_lossy().into_owned();
    daemon.firelane(&["capture", "-l", "alice0", "-w", &file, "-c", "6"]).expect_success();
    let text = pings.0.run(None, "tcpdump", &["-Z", "root", "-nr", &file]).expect_success();
    assert_eq!(text.lines().count(), 6, "{text}");
    assert!(text.contains("10.0.0.1 > 10.0.0.2: ICMP echo request"), "{text}");
    assert!(text.contains("10.0.0.2 > 10.0.0.1: ICMP echo reply"), "{text}");
}

#[test]
fn tcpdump_reads_a_flow_from_a_pipe_and_ends_the_capture() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, CONFIG);
    let _pings = Pings::start(&sandbox);
    let pipe = "$FIRELANE capture -f pings -s 96 -w - | tcpdump -Z root -c 4 -nr -";
    let mut command = sandbox.command("sh");
    command.env("FIRELANE", binary("firelane")).env("FIRELANE_SOCKET", daemon.runtime().join("api.sock"));
    let output = command.args(["-c", pipe]).output().expect("sh");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().filter(|line| line.contains("ICMP echo")).count(), 4, "{text}");
    // The daemon is well, and has room for more captures.
    daemon.firelane(&["status"]).expect_success();
}

#[test]
fn a_real_and_an_invented_frame_are_followed_to_their_ends() {
    let sandbox = Sandbox::new();
    let path = sandbox.folder().join("three.toml");
    let netstack = "[vnic.web0]\nover = \"vswitch1\"\nnetstack = \"web\"\n\
        [netstack.web.addresses]\n\"web0/v4\" = \"10.0.0.10/24\"\n";
    std::fs::write(&path, format!("{CONFIG}{netstack}")).expect("the sandbox's folder is writable");
    let daemon = Daemon::start(&sandbox, &path);
    let _pings = Pings::start(&sandbox);
    let followed = daemon.firelane(&["trace", "-p", "-o", "station,decision", "-n", "2", "10.0.0.2"]);
    let text = followed.expect_success();
    assert!(text.contains("icmp 10.0.0.1 > 10.0.0.2"), "{text}");
    assert!(text.contains("driver:to the device of bob0"), "{text}");
    let invented =
        ["trace", "-p", "-o", "decision,reason", "-l", "bob0", "tcp", "10.0.0.2:9", "10.0.0.10:81"];
    let text = daemon.firelane(&invented).expect_success();
    assert!(text.contains("to netstack web by web0:\n"), "{text}");
    assert!(text.ends_with("dropped\\: tcp_no_connection:tcp_no_connection\n"), "{text}");
    // A filter and a translator say what they have decided, and by which rule.
    for (command, file, rules) in [
        (
            "ipf",
            "ipf.conf",
            "block in all\nblock return-rst in quick proto tcp from any to any port = 23\npass in proto tcp from any to any port = 81\n",
        ),
        ("ipnat", "ipnat.conf", "rdr web0 10.0.0.10/32 port 80 -> 10.0.0.10 port 81 tcp\n"),
    ] {
        let file = sandbox.folder().join(file);
        std::fs::write(&file, rules).expect("the sandbox's folder is writable");
        daemon.firelane(&[command, "-f", &file.to_string_lossy()]).expect_success();
    }
    let decided = |to: &str| {
        let invented = ["trace", "-p", "-o", "station,decision", "-l", "bob0", "tcp", "10.0.0.2:9", to];
        let text = daemon.firelane(&invented).expect_success().replace("\\:", ":");
        let of_doors = text.lines().filter(|line| line.starts_with("filter:") || line.starts_with("nat:"));
        of_doors.map(|line| format!("{line}\n")).collect::<String>()
    };
    assert_eq!(
        decided("10.0.0.10:80"),
        "nat:step in\nnat:translated: tcp 10.0.0.2:9 > 10.0.0.10:81\nfilter:step in\n\
         filter:passed by: pass in proto tcp from any to any port = 81\n"
    );
    assert_eq!(
        decided("10.0.0.10:23"),
        "nat:step in\nfilter:step in\n\
         filter:blocked by: block return-rst in quick proto tcp from any to any port = 23\n\
         filter:dropped: filter_blocked\n"
    );
    for words in [["ipf", "-Fa"], ["ipnat", "-C"]] {
        daemon.firelane(&words).expect_success();
    }
    let drops = daemon.firelane(&["drops", "-p", "-o", "reason,frames"]).expect_success();
    assert!(drops.contains("tcp_no_connection:2\n"), "the counter has the same word: {drops}");
    let steps = daemon.firelane(&["show", "steps", "-p", "-o", "step,direction,frames"]).expect_success();
    let idle = "filter:in:0\nfilter:out:0\nnat:in:0\nnat:out:0\nforward:in:0\nforward:out:0\n\
                tunnel:in:0\ntunnel:out:0\nip:in:";
    assert!(steps.starts_with(idle), "{steps}");
}

#[test]
fn mistakes_are_one_line_and_capture_nothing() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, CONFIG);
    for (args, code, said) in [
        (&["capture", "-l", "nobody0", "-w", "-"][..], 1, "nobody0"),
        (&["capture", "-f", "nothing"], 1, "nothing"),
        (&["capture", "-l", "alice0", "-w", "/nonexistent/file"], 1, "/nonexistent/file"),
        (&["capture"], 2, "--link <LINK>|--flow <FLOW>"),
        (&["capture", "-l", "alice0", "-s", "3"], 2, "a number from 64 to 65549"),
        (&["trace", "-l", "nobody0", "udp", "10.0.0.1:1", "10.0.0.2:2"], 1, "nobody0"),
        (&["trace", "-l", "alice0", "udp", "10.0.0.1:1", "10.0.0.9:2"], 2, "no VNIC has 10.0.0.9"),
    ] {
        let refused = daemon.firelane(args);
        assert_eq!((refused.code(), refused.stdout.as_str()), (code, ""), "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(said) && refused.stderr.lines().count() == 1, "{}", refused.stderr);
    }
}

#[test]
fn a_frame_for_an_address_that_a_tap_was_given_goes_to_its_vnic() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, CONFIG);
    let invented =
        ["trace", "-p", "-o", "station,decision", "-l", "alice0", "udp", "10.0.0.1:9", "10.0.0.2:9"];
    let text = daemon.firelane(&invented).expect_success();
    assert!(text.contains("switch:to bob0") && text.contains("driver:to the device of bob0"), "{text}");
}

/// Much less than the minute for which they would look.
const PATIENCE: Duration = Duration::from_secs(20);

/// One at a time follows frames, and one counts steps.
#[test]
fn who_looks_and_goes_away_leaves_it_to_the_next_one() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start_as(&sandbox, CONFIG);
    for (words, brief) in [
        (&["show", "steps", "-i", "60"][..], &["show", "steps"][..]),
        (&["trace", "-w", "60", "10.9.9.9"], &["trace", "-w", "1", "10.9.9.9"]),
    ] {
        let begin = Instant::now();
        let is_taken = || daemon.firelane(brief).stderr.contains("already");
        let look = || {
            let mut command = sandbox.command(binary("firelane"));
            command.env("FIRELANE_SOCKET", daemon.runtime().join("api.sock"));
            Background::start(command.args(words).stdout(Stdio::null()).stderr(Stdio::null()))
        };
        let mut looks = look();
        // Who asks whether somebody looks may have come first.
        while !is_taken() {
            assert!(begin.elapsed() < PATIENCE, "{words:?}: it does not begin");
            drop(looks);
            looks = look();
        }
        drop(looks);
        let begin = Instant::now();
        while is_taken() {
            assert!(begin.elapsed() < PATIENCE, "{words:?}: it goes on without its asker");
            thread::sleep(Duration::from_millis(20));
        }
    }
}
