//! A service that tests start in a namespace, to have a peer of the kernel's, and who compares what it sends back.

use std::process::{Child, Stdio};
use std::time::Duration;

use crate::sandbox::{Background, Sandbox};
use crate::until::until;

/// How long the service may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts that service in the namespace `bob`, and waits until it listens.
///
/// # Panics
/// If it does not.
pub fn serve_echoes(sandbox: &Sandbox) -> Background {
    let words = ["python3", "-c", ECHOES];
    let server = Background::start(sandbox.command_in("bob", &words).stdout(Stdio::null()));
    let asks = ["-ltnH", "sport", "=", "7"];
    until("bob listens", START_TIMEOUT, || !sandbox.run(Some("bob"), "ss", &asks).stdout.trim().is_empty());
    server
}

/// Who compares, while a test goes on.
#[derive(Debug)]
pub struct Comparing(Child);

impl Comparing {
    /// Begins in a namespace, for so many seconds, by so many connections.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn begin(sandbox: &Sandbox, netns: &str, seconds: &str, connections: &str) -> Self {
        let mut command = sandbox.command_in(netns, &["python3", "-c", COMPARES, seconds, connections]);
        Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("nsenter is installed"))
    }

    /// Whether its time is over.
    ///
    /// # Panics
    /// If that cannot be asked.
    pub fn is_over(&mut self) -> bool {
        self.0.try_wait().expect("our own child").is_some()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If anything else came back than was sent.
    #[track_caller]
    pub fn ends_well(self) {
        let ended = self.0.wait_with_output().expect("it ends");
        let told = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(ended.status.success() && told.starts_with("rounds"), "{told}");
    }
}

/// Python: whatever comes on a connection to port 7 of 10.0.0.2 goes back.
pub const ECHOES: &str = r"
import socket, threading
listener = socket.create_server(('10.0.0.2', 7))
def serve(stream):
    while part := stream.recv(1 << 16):
        stream.sendall(part)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
";

/// Python: sends text to that service and compares what comes back, for so many seconds, by so many connections.
pub const COMPARES: &str = r"
import os, socket, sys, threading, time
end, count, rounds, wrong = time.time() + float(sys.argv[1]), int(sys.argv[2]), [], []
def run():
    stream = socket.create_connection(('10.0.0.2', 7))
    text = os.urandom(1 << 18)
    while time.time() < end:
        threading.Thread(target=stream.sendall, args=(text,)).start()
        came = bytearray()
        while len(came) < len(text):
            part = stream.recv(1 << 16)
            if not part:
                return wrong.append('the connection ended')
            came += part
        if came != text:
            return wrong.append('other bytes')
        rounds.append(1)
threads = [threading.Thread(target=run) for _ in range(count)]
[it.start() for it in threads]
[it.join() for it in threads]
assert not wrong and len(rounds) >= count, wrong
print('rounds', len(rounds))
";
