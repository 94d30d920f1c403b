//! Real servers on a netstack, with clients there and in the kernel: what they themselves check.

use std::path::Path;

use firelane_interop::{BOTH, On, Output, Sandbox, Stage};

const HOST: &str = Stage::FIRELANE;
/// Debian's, which has its own modules.
const PYTHON: &str = "/usr/bin/python3";

fn script(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name).to_string_lossy().into_owned()
}

/// Runs a test with one lane and with two.
fn on_lanes(test: impl Fn(&Stage<'_>)) {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        test(&stage);
        stage.wait_until_nothing_is_left();
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn redis_serves_its_client_and_its_benchmark() {
    on_lanes(|stage| {
        let words = ["redis-server", "--bind", HOST, "--save", "", "--protected-mode", "no"];
        let server = stage.serve(On::Firelane, &words);
        for on in BOTH {
            stage.wait_for(&server, on, &["redis-cli", "-e", "-h", HOST, "ping"]);
            assert_eq!(stage.ask(on, &["redis-cli", "-h", HOST, "set", "key", "value"]), "OK\n");
            assert_eq!(stage.ask(on, &["redis-cli", "-h", HOST, "get", "key"]), "value\n");
            let words = ["redis-benchmark", "-h", HOST, "-n", "500", "-c", "20", "-t", "get,set", "--csv"];
            let told = stage.ask(on, &words);
            let is_about = |l: &&str| l.starts_with("\"SET\"") || l.starts_with("\"GET\"");
            assert_eq!(told.lines().filter(is_about).count(), 2, "{told}");
        }
    });
}

#[test]
fn memcached_serves_sixteen_clients_with_four_threads() {
    // In an ordinary user's namespace nobody else can be become.
    let user = if is_root() { "nobody" } else { "root" };
    on_lanes(|stage| {
        let words = ["memcached", "-u", user, "-t", "4", "-l", HOST, "-U", "0"];
        let server = stage.serve(On::Firelane, &words);
        for on in BOTH {
            stage.wait_for(&server, on, &[PYTHON, &script("memcached.py"), HOST]);
        }
    });
}

/// nginx's configuration: two workers, files by `sendfile`, with and without TLS; at one port each worker has listeners of
/// its own.
fn nginx_config(folder: &Path, daemon: &str) -> String {
    let folder = folder.display();
    // Workers of an ordinary user's namespace cannot become anybody else.
    let user = if is_root() { "www-data" } else { "root" };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {folder}/{name};"))
        .concat();
    format!(
        "user {user}; daemon {daemon}; worker_processes 2; pid {folder}/pid; error_log {folder}/nginx.log; events {{}}
        http {{ access_log off; sendfile on; {temporary}
        ssl_certificate {folder}/certificate; ssl_certificate_key {folder}/key;
        server {{ listen {HOST}:8080; listen {HOST}:8443 ssl; root {folder}; }}
        server {{ listen 8082 reuseport; listen [::]:8082 reuseport; root {folder};
        location = /worker {{ return 200 $pid; }} }} }}"
    )
}

/// The file of that configuration, with the certificate that it names beside it.
fn configured(stage: &Stage<'_>, daemon: &str) -> String {
    let path = |name: &str| stage.folder().join(name).to_string_lossy().into_owned();
    std::fs::write(path("nginx.conf"), nginx_config(stage.folder(), daemon)).unwrap();
    let key = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test"];
    let files = ["-keyout", &path("key"), "-out", &path("certificate")];
    stage.ask(On::Kernel, &[&key[..], &files].concat());
    path("nginx.conf")
}

#[test]
fn nginx_serves_files_with_two_workers_and_is_reloaded() {
    on_lanes(|stage| {
        let folder = stage.folder();
        let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n * 7) as u8).collect();
        std::fs::write(folder.join("file"), &bytes).unwrap();
        let server = stage.serve(On::Firelane, &["nginx", "-c", &configured(stage, "off")]);
        let (plain, secure) = (format!("http://{HOST}:8080/file"), format!("https://{HOST}:8443/file"));
        for on in BOTH {
            let got = path(&format!("got-{on:?}"));
            let is_whole = |by: &str| assert!(std::fs::read(&got).unwrap() == bytes, "{by}, {on:?}");
            stage.wait_for(&server, on, &["curl", "-sSf", "-o", &got, &plain]);
            is_whole("curl");
            stage.ask(on, &["wget", "-q", "-O", &got, &plain]);
            is_whole("wget");
            stage.ask(on, &["curl", "-sSfk", "-o", &got, &secure]);
            is_whole("curl with TLS");
            let told = stage.ask(on, &["wrk", "-t2", "-c4", "-d1", &plain]);
            assert!(told.contains("requests in") && !told.contains("Socket errors"), "{told}");
        }
        // Each worker gets its part.
        let many = format!("http://{HOST}:8082/worker?[1-60]");
        let told = stage.ask(On::Kernel, &["curl", "-sSf", "-H", "Connection: close", "-w", " ", &many]);
        let workers: std::collections::BTreeSet<&str> = told.split_whitespace().collect();
        assert_eq!(workers.len(), 2, "{told}");
        // A reload starts new workers at the old listeners and refuses nobody.
        let wrk = stage.serve(On::Kernel, &["wrk", "-t1", "-c4", "-d2", "-H", "Connection: close", &plain]);
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(400));
            stage.ask(On::Kernel, &["sh", "-c", &format!("kill -HUP $(cat {})", path("pid"))]);
        }
        let told = wrk.expect_success();
        assert!(told.contains("requests in") && !told.contains("Socket errors"), "{told}");
        stage.ask(On::Kernel, &["curl", "-sSf", &many]);
        let log = std::fs::read_to_string(folder.join("nginx.log")).unwrap();
        assert!(!log.contains("[alert]") && !log.contains("[crit]"), "{log}");
    });
}

/// nginx as it is without `daemon off`: nobody waits for it.
struct Nginx<'a>(&'a Path);

impl Nginx<'_> {
    /// Its master, or by `.oldbin` the one before it.
    fn master(&self, which: &str) -> Option<rustix::process::Pid> {
        let text = std::fs::read_to_string(self.0.join(format!("pid{which}"))).ok()?;
        rustix::process::Pid::from_raw(text.trim().parse().ok()?)
    }

    fn signal(&self, which: &str, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.master(which).expect("it runs"), signal).unwrap();
    }
}

impl Drop for Nginx<'_> {
    fn drop(&mut self) {
        for master in ["", ".oldbin"].into_iter().filter_map(|which| self.master(which)) {
            let _ = rustix::process::kill_process(master, rustix::process::Signal::TERM);
        }
    }
}

/// The new binary takes over the old one's listeners, with an environment that nginx has cleaned for it; nobody is refused.
#[test]
fn nginx_is_replaced_while_it_serves() {
    on_lanes(|stage| {
        let folder = stage.folder();
        std::fs::write(folder.join("file"), "what it says").unwrap();
        // What replaces it is found by this name.
        let begun = stage.run(On::Firelane, &["/usr/sbin/nginx", "-c", &configured(stage, "on")]);
        assert!(begun.status.success(), "{begun:?}");
        let nginx = Nginx(folder);
        let plain = format!("http://{HOST}:8080/file");
        stage.ask(On::Kernel, &["curl", "-sSf", "--retry", "9", "--retry-connrefused", &plain]);
        let wrk = stage.serve(On::Kernel, &["wrk", "-t1", "-c4", "-d3", "-H", "Connection: close", &plain]);
        let old = nginx.master("");
        nginx.signal("", rustix::process::Signal::USR2);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while nginx.master(".oldbin") != old || nginx.master("").is_none_or(|new| Some(new) == old) {
            let log = || std::fs::read_to_string(folder.join("nginx.log"));
            assert!(std::time::Instant::now() < deadline, "{:?}", log());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        nginx.signal(".oldbin", rustix::process::Signal::QUIT);
        let told = wrk.expect_success();
        assert!(told.contains("requests in") && !told.contains("Socket errors"), "{told}");
        assert_eq!(stage.ask(On::Firelane, &["curl", "-sSf", &plain]), "what it says");
        assert_ne!(nginx.master(""), old);
        let log = std::fs::read_to_string(folder.join("nginx.log")).unwrap();
        assert!(!log.contains("[alert]") && !log.contains("[crit]"), "{log}");
    });
}

#[test]
fn pythons_libraries_talk_to_themselves() {
    on_lanes(|stage| assert_eq!(stage.ask(On::Firelane, &[PYTHON, &script("python.py"), HOST]), "good\n"));
}

#[test]
fn pythons_web_server_answers_requests() {
    on_lanes(|stage| {
        std::fs::write(stage.folder().join("page"), "what it says").unwrap();
        for (server, host, clients) in
            [(On::Firelane, HOST, &BOTH[..]), (On::Kernel, Stage::KERNEL, &[On::Firelane])]
        {
            let folder = stage.folder().to_string_lossy();
            let words = [PYTHON, "-m", "http.server", "8000", "--bind", host, "--directory", &folder];
            let server = stage.serve(server, &words);
            let address = format!("http://{host}:8000/page");
            for &on in clients {
                let fetch = format!("import requests; print(requests.get('{address}').text)");
                assert_eq!(stage.wait_for(&server, on, &[PYTHON, "-c", &fetch]), "what it says\n");
            }
        }
    });
}

#[test]
fn iperf3_measures_both_directions() {
    on_lanes(|stage| {
        let server = stage.serve(On::Firelane, &["iperf3", "-s", "-B", HOST]);
        for on in BOTH {
            for direction in [&[][..], &["-R"], &["-P", "3"]] {
                let told = stage.iperf3(&server, on, &[&["-c", HOST, "-n", "20M"][..], direction].concat());
                let bytes = |what: &str| told["end"][what]["bytes"].as_f64().unwrap_or_default();
                // Its receiver leaves when the sender says that it is done.
                assert!(bytes("sum_sent") >= 20e6, "{on:?} {direction:?}: {told}");
                assert!(bytes("sum_received") > 1e6, "{on:?} {direction:?}: {told}");
            }
        }
    });
}

/// PostgreSQL's programs are not in PATH on Debian.
const POSTGRES: &str = "/usr/lib/postgresql/15/bin";

/// A command of a user who is not root, which PostgreSQL insists on.
fn as_user(words: &[&str]) -> Vec<String> {
    let user = ["unshare", "--user", "--map-user=1000", "--map-group=1000"];
    user.iter().chain(words).map(|&word| word.to_owned()).collect()
}

#[test]
fn postgresql_forks_for_each_connection() {
    on_lanes(|stage| {
        let data = stage.folder().join("data").to_string_lossy().into_owned();
        let run = |on, words: &[&str]| -> Output {
            let words = as_user(words);
            stage.run(on, &words.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let initdb = format!("{POSTGRES}/initdb");
        run(On::Kernel, &[&initdb, "-D", &data, "-U", "test", "-A", "trust", "--no-sync"]).expect_success();
        let rules = "host all all 10.0.0.0/24 trust\n";
        std::fs::write(Path::new(&data).join("pg_hba.conf"), rules).unwrap();
        let postgres = format!("{POSTGRES}/postgres");
        let listen = format!("listen_addresses={HOST}");
        let words = as_user(&[&postgres, "-D", &data, "-c", &listen, "-c", "unix_socket_directories=", "-F"]);
        let server = stage.serve(On::Firelane, &words.iter().map(String::as_str).collect::<Vec<_>>());
        for on in BOTH {
            let psql = ["psql", "-h", HOST, "-U", "test", "-d", "postgres", "-At", "-c"];
            let ask = |text| [&psql[..], &[text]].concat();
            assert_eq!(stage.wait_for(&server, on, &ask("select 6 * 7")), "42\n");
            let long = stage.ask(on, &ask("select repeat('x', 300000)"));
            assert_eq!(long.len(), 300_001);
            let pgbench = ["pgbench", "-h", HOST, "-U", "test", "postgres"];
            stage.ask(on, &[&pgbench[..], &["-i", "-q"]].concat());
            let told = stage.ask(on, &[&pgbench[..], &["-c", "4", "-j", "2", "-t", "20"]].concat());
            assert!(told.contains("80/80"), "{told}");
        }
    });
}

#[test]
fn java_echoes_with_threads_and_with_selectors() {
    on_lanes(|stage| {
        let folder = stage.folder().to_string_lossy();
        stage.ask(On::Kernel, &["javac", "-d", &folder, &script("Echo.java")]);
        let java = |what, kind| ["java", "-cp", &folder, "Echo", what, kind, HOST, "9100"];
        for kind in ["plain", "nio"] {
            let server = stage.serve(On::Firelane, &java("serve", kind));
            for on in BOTH {
                assert_eq!(stage.wait_for(&server, on, &java("ask", kind)), "good\n");
            }
        }
    });
}

#[test]
fn node_serves_and_asks() {
    on_lanes(|stage| {
        let server = stage.serve(On::Firelane, &["node", &script("web.js"), "serve", HOST]);
        for on in BOTH {
            assert_eq!(stage.wait_for(&server, on, &["node", &script("web.js"), "ask", HOST]), "good\n");
        }
    });
}
