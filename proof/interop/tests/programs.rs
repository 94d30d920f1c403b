//! Real servers and clients behind the preloaded library, over a daemon without a netstack: what they themselves check.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use firelane_interop::{Loopback, binary};

const HOST: &str = "10.9.0.1";

struct World {
    _daemon: Loopback,
    folder: PathBuf,
}

/// A server that ends with its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // `timeout` hands the signal on and waits for nobody.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.0),
            rustix::process::Signal::TERM,
        );
        let _ = self.0.wait();
    }
}

impl World {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("firelane-programs-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self { _daemon: Loopback::start(&folder.join("app.sock")), folder }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg("60").args(words).stdin(Stdio::null());
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin"));
        command.env("LD_PRELOAD", binary("libfirelane_preload.so"));
        command.env("FIRELANE_APP_SOCKET", self.folder.join("app.sock"));
        command
    }

    fn serve(&self, words: &[&str]) -> Server {
        let log = std::fs::File::create(self.folder.join("log")).unwrap();
        let errors = log.try_clone().unwrap();
        Server(self.command(words).stdout(log).stderr(errors).spawn().unwrap())
    }

    fn run(&self, words: &[&str]) -> Result<String, String> {
        let output = self.command(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        Err(format!("{words:?}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
    }

    #[track_caller]
    fn ask(&self, words: &[&str]) -> String {
        self.run(words).unwrap_or_else(|text| panic!("{text}"))
    }

    /// Asks until the server has started.
    #[track_caller]
    fn wait_for(&self, words: &[&str]) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Err(text) = self.run(words) {
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "{text}\n{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn script(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).to_string_lossy().into_owned()
}

#[test]
fn redis_serves_its_client_and_its_benchmark() {
    let world = World::new("redis");
    let _server = world.serve(&["redis-server", "--bind", HOST, "--save", "", "--protected-mode", "no"]);
    world.wait_for(&["redis-cli", "-e", "-h", HOST, "ping"]);
    assert_eq!(world.ask(&["redis-cli", "-h", HOST, "set", "key", "value"]), "OK\n");
    assert_eq!(world.ask(&["redis-cli", "-h", HOST, "get", "key"]), "value\n");
    let told = world.ask(&["redis-benchmark", "-h", HOST, "-n", "500", "-c", "20", "-t", "get,set", "--csv"]);
    assert_eq!(
        told.lines().filter(|l| l.starts_with("\"SET\"") || l.starts_with("\"GET\"")).count(),
        2,
        "{told}"
    );
}

#[test]
fn memcached_serves_sixteen_clients_with_four_threads() {
    let world = World::new("memcached");
    let _server = world.serve(&["memcached", "-u", "root", "-t", "4", "-l", HOST, "-U", "0"]);
    world.wait_for(&["/usr/bin/python3", &script("memcached.py"), HOST]);
}

#[test]
fn nginx_serves_files_with_two_workers() {
    let world = World::new("nginx");
    let folder = world.folder.display();
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n * 7) as u8).collect();
    std::fs::write(world.folder.join("file"), &bytes).unwrap();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {folder}/{name};"))
        .concat();
    let text = format!(
        "user root; daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/log; events {{}}
        http {{ access_log off; sendfile on; {temporary} server {{ listen {HOST}:8080; root {folder}; }} }}"
    );
    let config = world.folder.join("nginx.conf").to_string_lossy().into_owned();
    std::fs::write(&config, text).unwrap();
    let _server = world.serve(&["nginx", "-c", &config]);
    let address = format!("http://{HOST}:8080/file");
    let got = world.folder.join("got").to_string_lossy().into_owned();
    world.wait_for(&["curl", "-sSf", "-o", &got, &address]);
    assert!(std::fs::read(&got).unwrap() == bytes, "curl");
    world.ask(&["wget", "-q", "-O", &got, &address]);
    assert!(std::fs::read(&got).unwrap() == bytes, "wget");
    let told = world.ask(&["wrk", "-t2", "-c4", "-d1", &address]);
    assert!(told.contains("requests in") && !told.contains("Socket errors"), "{told}");
}

#[test]
fn pythons_libraries_talk_to_themselves() {
    let world = World::new("python");
    assert_eq!(world.ask(&["/usr/bin/python3", &script("python.py"), HOST]), "good\n");
}
