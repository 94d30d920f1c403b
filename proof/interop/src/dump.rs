//! A real tcpdump in a namespace of a sandbox.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::sandbox::Sandbox;

/// A tcpdump that sees what comes from now on, and ends with the value.
#[derive(Debug)]
pub struct Dump {
    child: Child,
    said: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Dump {
    /// Starts it on a link of a network namespace, with what it is to show, and waits until it listens.
    ///
    /// # Panics
    /// If it does not.
    pub fn start(sandbox: &Sandbox, netns: &str, link: &str, filter: &[&str]) -> Self {
        let words = ["tcpdump", "-Z", "root", "-lnq", "--immediate-mode", "-i", link];
        let mut command = sandbox.command_in(netns, &[&words, filter].concat());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("nsenter is installed");
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert_ne!(errors.read_line(&mut line).expect("readable"), 0, "tcpdump ended");
        }
        let said = Arc::new(Mutex::new(String::new()));
        let (shared, lines) = (said.clone(), BufReader::new(child.stdout.take().expect("a pipe")).lines());
        let reader = std::thread::spawn(move || {
            // Its end must not meet a closed pipe.
            let _errors = errors;
            for line in lines.map_while(Result::ok) {
                let mut said = shared.lock().unwrap_or_else(PoisonError::into_inner);
                said.push_str(&line);
                said.push('\n');
            }
        });
        Self { child, said, reader: Some(reader) }
    }

    /// How many packets it has shown whose line has this.
    pub fn count(&self, what: &str) -> usize {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.lines().filter(|line| line.contains(what)).count()
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.reader.take().map(JoinHandle::join);
    }
}
