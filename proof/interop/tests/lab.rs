//! `firelane lab` used by real programs: the four services over both transports and families, and nothing left.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use firelane_interop::{Sandbox, binary};

/// A laboratory of its own: the number stands for a user, and so for a folder.
struct Lab {
    sandbox: Sandbox,
    owner: u32,
}

impl Lab {
    fn new(nth: u32) -> Self {
        // Above every number that a user has.
        Self { sandbox: Sandbox::new(), owner: 4_000_000_000 + std::process::id() * 4 + nth }
    }

    fn folder(&self) -> PathBuf {
        format!("/var/tmp/firelane-lab-{}", self.owner).into()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.sandbox.command(binary("firelane"));
        command.arg("lab").args(words).env("FIRELANE_LAB_OWNER", self.owner.to_string());
        command
    }

    fn start(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// What a program of the kernel's side says.
    fn run(&self, program: &str, words: &[&str]) -> String {
        self.sandbox.run(Some("lab"), program, words).expect_success()
    }

    fn python(&self, script: &str) -> String {
        self.run("python3", &["-c", &format!("{PRELUDE}\n{script}")])
    }

    /// What `firelane` says about the laboratory's daemon.
    fn firelane(&self, words: &[&str]) -> String {
        let mut command = self.sandbox.command(binary("firelane"));
        command.args(words).env("FIRELANE_SOCKET", self.folder().join("api.sock"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn clean(&self) {
        assert_eq!(self.start(&["--clean"]), "lab: clean\n");
        assert!(!self.folder().exists());
        let left = self.sandbox.run(None, "ip", &["netns", "list"]).expect_success();
        assert_eq!(left, "", "namespaces are left");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.command(&["--clean"]).output();
        let _ = std::fs::remove_dir_all(self.folder());
    }
}

/// How the tests' programs speak to a service.
const PRELUDE: &str = r#"
import socket
def tcp(host, port, text, limit=None):
    s = socket.create_connection((host, port), 20)
    import threading
    def say():
        try:
            s.sendall(text); s.shutdown(socket.SHUT_WR)
        except OSError: pass
    t = threading.Thread(target=say); t.start()
    said = b''
    while limit is None or len(said) < limit:
        piece = s.recv(65536)
        if not piece: break
        said += piece
    s.close(); t.join()
    return said if limit is None else said[:limit]
def udp(host, port, *texts):
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(20); s.connect((host, port))
    for text in texts: s.send(text)
    return s
"#;

#[test]
fn all_four_services_answer_real_programs_over_both_families() {
    let lab = Lab::new(0);
    let said = lab.start(&[]);
    assert!(said.contains("10.7.0.1 and fd07::1") && said.contains("lab --clean"), "{said}");
    for host in ["10.7.0.1", "fd07::1"] {
        let shown = lab.python(&format!(
            r#"
text = bytes(range(256)) * 4000
assert tcp('{host}', 7, text) == text
assert tcp('{host}', 9, text) == b''
lines = tcp('{host}', 19, text, 74 * 200).split(b'\r\n')
assert lines[0] == bytes(range(32, 104)) and lines[94][1:] == lines[95][:71] and lines[95] == lines[0], lines
print(tcp('{host}', 5001, text).decode(), end='')
assert udp('{host}', 7, b'hello').recv(100) == b'hello'
assert udp('{host}', 7, text[:9000]).recv(65536) == text[:9000]
assert len(udp('{host}', 19, b'x' * 600).recv(65536)) == 512
s = udp('{host}', 9, b'hello')
s.settimeout(0.2)
try: raise SystemExit(s.recv(100))
except TimeoutError: pass
print(udp('{host}', 5001, b'12345', b'678', b'').recv(100).decode(), end='')
"#
        ));
        let mut lines = shown.lines();
        assert!(lines.next().is_some_and(|line| line.starts_with("1024000 bytes in ")), "{shown}");
        assert_eq!(lines.next(), Some("2 datagrams, 8 bytes"), "{shown}");
    }
    let shown = lab.firelane(&["netstat", "-an", "-P", "tcp", "-f", "inet6"]);
    for port in ["*.7 ", "*.9 ", "*.19 ", "*.5001 "] {
        assert!(shown.contains(port), "{port} in {shown}");
    }
    lab.clean();
}

#[test]
fn wishes_are_obeyed_and_a_killed_laboratory_is_cleaned() {
    let lab = Lab::new(1);
    let words = ["-a", "192.0.2.1/30", "--mtu", "1280", "-p", "ipv4.ttl=9", "--deterministic"];
    lab.start(&words);
    let shown = lab.run("ip", &["addr", "show", "lab0"]);
    assert!(shown.contains("mtu 1280") && shown.contains("192.0.2.2/30"), "{shown}");
    let pinged = lab.run("ping", &["-c", "1", "-W", "5", "192.0.2.1"]);
    assert!(pinged.contains("ttl=9 "), "{pinged}");
    let pid = std::fs::read_to_string(lab.folder().join("daemon.pid")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    lab.clean();
}

#[test]
fn a_folder_that_somebody_else_has_made_is_left_alone() {
    let lab = Lab::new(2);
    let (theirs, victim) = (lab.sandbox.folder().join("theirs"), lab.sandbox.folder().join("victim"));
    std::fs::create_dir(&theirs).unwrap();
    std::fs::write(&victim, "stays").unwrap();
    std::os::unix::fs::symlink(&victim, theirs.join("lock")).unwrap();
    let refused = |words: &[&str]| {
        let output = lab.command(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("belongs to somebody else"), "{words:?}: {said}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "stays", "{words:?}");
    };
    std::os::unix::fs::symlink(&theirs, lab.folder()).unwrap();
    refused(&["--clean"]);
    refused(&[]);
    std::fs::remove_file(lab.folder()).unwrap();
    // One that all may write to holds what anybody wishes, whoever has made it.
    std::fs::create_dir(lab.folder()).unwrap();
    std::fs::set_permissions(lab.folder(), PermissionsExt::from_mode(0o777)).unwrap();
    refused(&["--clean"]);
    assert!(lab.folder().exists());
}
