//! Which groups the TAP of a tenant gets: those that programs in its namespace have joined, as Linux reports it in IGMP and MLD.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use firelane_interop::{Daemon, Sandbox};

const TENANTS: &str = "[daemon]\nlanes = 2\n[etherstub.s0]\n\
    [vnic.alice0]\nover = \"s0\"\ntap = { namespace = \"alice\", addresses = [\"10.0.0.1/24\"] }\n\
    [vnic.bob0]\nover = \"s0\"\ntap = { namespace = \"bob\", addresses = [\"10.0.0.2/24\"] }\n\
    [vnic.carol0]\nover = \"s0\"\ntap = { namespace = \"carol\", addresses = [\"10.0.0.3/24\"] }\n";

/// Joins the groups of both families until its input ends.
const MEMBER: &str = r"
import socket, struct, sys
link = socket.if_nametoindex(sys.argv[1])
four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
four.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
    socket.inet_aton('239.1.2.3') + struct.pack('@ii', 0, link))
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, 'ff05::1:2:3') + struct.pack('@I', link))
print('joined', flush=True)
sys.stdin.read()
";

/// Sends to the groups, and to a group of nobody.
const SENDER: &str = r"
import socket
link = socket.if_nametoindex('alice0')
four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
four.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton('10.0.0.1'))
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, link)
for _ in range(10):
    four.sendto(b'known', ('239.1.2.3', 4000))
    six.sendto(b'known', ('ff05::1:2:3', 4000))
    four.sendto(b'unknown', ('239.1.2.9', 4000))
";

struct Member(Child, Option<ChildStdin>);

impl Member {
    fn join(sandbox: &Sandbox, namespace: &str) -> Self {
        let mut command = sandbox.command("ip");
        let link = format!("{namespace}0");
        command.args(["netns", "exec", namespace, "python3", "-c", MEMBER, &link]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("ip is installed");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("readable");
        assert_eq!(line, "joined\n");
        let stdin = child.stdin.take();
        // Linux reports at once.
        std::thread::sleep(Duration::from_millis(300));
        Self(child, stdin)
    }

    fn leave(mut self) {
        drop(self.1.take());
        self.0.wait().expect("it ends");
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Waits until a namespace's TAP has an IPv6 address that Linux has tested: before that there is nothing to send from.
fn wait_for_an_address(sandbox: &Sandbox, namespace: &str) {
    let link = format!("{namespace}0");
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let ready = ["-6", "-o", "addr", "show", "dev", &link, "scope", "link", "-tentative"];
        let ready = sandbox.run(Some(namespace), "ip", &ready);
        if ready.expect_success().contains("fe80:") {
            return;
        }
        assert!(Instant::now() < until, "{link} has no address of the link");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// How many packets for the groups come into a namespace by its TAP: for those that it may have joined, of both families, and for
/// one of nobody.
fn given(sandbox: &Sandbox, namespace: &str) -> [usize; 3] {
    let mut command = sandbox.command("ip");
    let link = format!("{namespace}0");
    let dump = ["tcpdump", "-Z", "root", "-Unq", "--immediate-mode", "-i", &link, "udp", "port", "4000"];
    command.args(["netns", "exec", namespace]).args(dump).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut dump = command.spawn().expect("ip is installed");
    let mut said = BufReader::new(dump.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("listening on") {
        line.clear();
        assert_ne!(said.read_line(&mut line).expect("readable"), 0, "tcpdump ended");
    }
    sandbox.run(Some("alice"), "python3", &["-c", SENDER]).expect_success();
    // Whatever else comes is on its way by now; what does not come can only be waited for.
    std::thread::sleep(Duration::from_millis(500));
    let pid = rustix::process::Pid::from_child(&dump);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("our own child");
    let seen = dump.wait_with_output().expect("it ends").stdout;
    let seen = String::from_utf8_lossy(&seen).into_owned();
    [" > 239.1.2.3.4000", " > ff05::1:2:3.4000", " > 239.1.2.9.4000"]
        .map(|dst| seen.lines().filter(|line| line.contains(dst)).count())
}

#[test]
fn a_tenant_gets_groups_of_others_only_if_he_has_joined_them() {
    let sandbox = Sandbox::new();
    let _daemon = Daemon::start_as(&sandbox, TENANTS);
    wait_for_an_address(&sandbox, "alice");
    let bob = Member::join(&sandbox, "bob");
    assert_eq!(given(&sandbox, "bob"), [10, 10, 10]);
    assert_eq!(given(&sandbox, "carol"), [0, 0, 10]);
    let carol = Member::join(&sandbox, "carol");
    assert_eq!(given(&sandbox, "carol"), [10, 10, 10]);
    carol.leave();
    assert_eq!(given(&sandbox, "carol"), [0, 0, 10]);
    bob.leave();
}
