//! Which groups the TAP of a tenant gets: those that programs in its namespace have joined, as Linux reports it in IGMP and MLD.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use firelane_interop::{Daemon, Dump, Sandbox, until};

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

/// How long the switch may take to hear of who joins and who leaves, and packets to come.
const PATIENCE: Duration = Duration::from_secs(20);

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
        Self(child, stdin)
    }

    fn leave(mut self) {
        drop(self.1.take());
        self.0.wait().expect("it ends");
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
    let dump = Dump::start(sandbox, namespace, &format!("{namespace}0"), &["udp", "port", "4000"]);
    sandbox.run(Some("alice"), "python3", &["-c", SENDER]).expect_success();
    until("the group of nobody comes", PATIENCE, || dump.count(" > 239.1.2.9.4000") == 10);
    // Whatever else comes is on its way by now; what does not come can only be waited for.
    std::thread::sleep(Duration::from_millis(500));
    [" > 239.1.2.3.4000", " > ff05::1:2:3.4000", " > 239.1.2.9.4000"].map(|dst| dump.count(dst))
}

/// Sends until a namespace is given so many of each: Linux reports at once who joins and who leaves, and the switch hears of it a little
/// later.
#[track_caller]
fn is_given(sandbox: &Sandbox, namespace: &str, wanted: [usize; 3]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let given = given(sandbox, namespace);
        if given == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{namespace} is given {given:?}, not {wanted:?}");
    }
}

#[test]
fn a_tenant_gets_groups_of_others_only_if_he_has_joined_them() {
    let sandbox = Sandbox::new();
    let _daemon = Daemon::start_as(&sandbox, TENANTS);
    wait_for_an_address(&sandbox, "alice");
    let bob = Member::join(&sandbox, "bob");
    is_given(&sandbox, "bob", [10, 10, 10]);
    // She has never been in one, so it is so at once.
    assert_eq!(given(&sandbox, "carol"), [0, 0, 10]);
    let carol = Member::join(&sandbox, "carol");
    is_given(&sandbox, "carol", [10, 10, 10]);
    carol.leave();
    is_given(&sandbox, "carol", [0, 0, 10]);
    bob.leave();
}
