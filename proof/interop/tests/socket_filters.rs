//! `firelane run --filter`: rules of a program's listeners and datagram sockets, with real programs and the kernel as their peer.
//!
//! The kernel's namespace has two addresses: the program's rules know them apart.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use firelane_interop::{On, Output, Sandbox, Server, Stage};

const WELCOME: &str = Stage::KERNEL;
const STRANGER: &str = "10.0.0.2";

fn stage(sandbox: &Sandbox, lanes: usize) -> Stage<'_> {
    let stage = Stage::new(sandbox, lanes);
    stage.ask(On::Kernel, &["ip", "address", "add", &format!("{STRANGER}/24"), "dev", "kernel0"]);
    stage
}

fn written(stage: &Stage<'_>, name: &str, text: &str) -> String {
    let path = stage.folder().join(name);
    std::fs::write(&path, text).expect("the folder is writable");
    path.to_string_lossy().into_owned()
}

/// A server on the netstack with the rules of a file.
fn serve(stage: &Stage<'_>, rules: &str, words: &[&str]) -> Server {
    let file = written(stage, "web.conf", rules);
    stage.serve_with(On::Firelane, &["--filter", &file], words)
}

/// What curl gets from a port, from one of the kernel's addresses.
fn curl(stage: &Stage<'_>, from: &str, port: u16) -> Output {
    let url = format!("http://{}:{port}/", Stage::FIRELANE);
    stage.run(On::Kernel, &["curl", "--silent", "--max-time", "5", "--interface", from, &url])
}

/// What a connection gets to read, or the error.
fn read(stage: &Stage<'_>, from: &str, port: u16) -> String {
    let text = "import socket, sys\n\
                try: s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 3, (sys.argv[3], 0)); \
                print(s.recv(100).decode().strip())\n\
                except OSError as error: print(type(error).__name__)";
    let port = port.to_string();
    stage.ask(On::Kernel, &["/usr/bin/python3", "-c", text, Stage::FIRELANE, &port, from]).trim().to_owned()
}

/// The answer to a datagram, or the error.
fn ask(stage: &Stage<'_>, from: &str, port: u16) -> String {
    let text = "import socket, sys\n\
                s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1); s.bind((sys.argv[3], 0))\n\
                s.connect((sys.argv[1], int(sys.argv[2]))); s.send(b'me')\n\
                try: print(s.recv(100).decode())\n\
                except OSError as error: print(type(error).__name__)";
    let port = port.to_string();
    stage.ask(On::Kernel, &["/usr/bin/python3", "-c", text, Stage::FIRELANE, &port, from]).trim().to_owned()
}

fn wait_for_file(path: &Path, server: &Server) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) => return text,
            Err(error) => assert!(Instant::now() < deadline, "{error}\n{}", server.log()),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn script(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/shim");
    folder.join(name).to_string_lossy().into_owned()
}

#[test]
fn curl_gets_a_page_of_python_or_is_refused_as_the_rules_say() {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = stage(&sandbox, lanes);
        let rules = format!(
            "# who may not come\nblock return-rst in quick proto tcp from {STRANGER}/32 to any port = 8080\n\
             pass in all\n"
        );
        let words = ["/usr/bin/python3", "-m", "http.server", "8080", "--bind", Stage::FIRELANE];
        let server = serve(&stage, &rules, &words);
        let page = stage.wait_for(
            &server,
            On::Kernel,
            &["curl", "-sS", &format!("http://{}:8080/", Stage::FIRELANE)],
        );
        assert!(page.contains("Directory listing"), "{page}");
        let refused = curl(&stage, STRANGER, 8080);
        assert_eq!(refused.code(), 7, "refused at once: {refused:?}");
        assert_eq!(curl(&stage, WELCOME, 8080).code(), 0);
        let find = format!("pgrep -P {} | head -1", server.pid());
        let pid = stage.ask(On::Kernel, &["sh", "-c", &find]).trim().to_owned();
        let told = stage.daemon().firelane(&["explain", &pid]).expect_success();
        let line =
            format!(": filter: 1 block return-rst in quick proto tcp from {STRANGER}/32 to any port = 8080");
        assert!(told.contains(&line) && told.contains("passed, 1 blocked"), "{told}");
        let told = stage.daemon().firelane(&["explain", &pid, "-j"]).expect_success();
        let json: serde_json::Value = serde_json::from_str(&told).unwrap();
        let filter =
            json["program"]["sockets"].as_array().and_then(|all| all.iter().find_map(|it| it.get("filter")));
        assert_eq!(filter.map(|it| it["blocked"].clone()), Some(1.into()), "{told}");
    }
}

#[test]
fn children_and_datagrams_have_the_rules_too_and_a_listener_may_have_others() {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = stage(&sandbox, lanes);
        let rules = format!(
            "block in quick proto udp from {STRANGER}/32 to any\n\
             block return-rst in quick proto tcp from {STRANGER}/32 to any\n"
        );
        let ready = stage.folder().join("ready");
        let words = ["/usr/bin/python3", &script("filtered.py"), Stage::FIRELANE, &ready.to_string_lossy()];
        let server = serve(&stage, &rules, &words);
        let told = wait_for_file(&ready, &server);
        let told: Vec<&str> = told.split(' ').collect();
        assert_eq!(told[2..], ["EINVAL", "EINVAL", "EINVAL", "ENOPROTOOPT", "ENOPROTOOPT", "ENOPROTOOPT"]);
        let until = Instant::now() + Duration::from_secs(20);
        while read(&stage, WELCOME, 7002) != "here" || ask(&stage, WELCOME, 7004) != "got me" {
            assert!(Instant::now() < until, "{}", server.log());
        }
        for (port, is_of) in [(7001, "the parent"), (7002, "its child")] {
            assert_eq!(read(&stage, WELCOME, port), "here", "{is_of}");
            assert_eq!(read(&stage, STRANGER, port), "ConnectionRefusedError", "{is_of}");
        }
        for (port, is_of) in [(7003, "the parent"), (7004, "its child")] {
            assert_eq!(ask(&stage, WELCOME, port), "got me", "{is_of}");
            assert_eq!(ask(&stage, STRANGER, port), "TimeoutError", "{is_of}: nobody hears of it");
        }
        // A listener with rules of its own has those in place of its program's.
        assert_eq!(read(&stage, WELCOME, 7005), "ConnectionRefusedError");
        assert_eq!(read(&stage, STRANGER, 7005), "here, a connection: EISCONN");
        assert!(read(&stage, WELCOME, 7005).starts_with("here"), "{}", server.log());
    }
}

#[test]
fn rules_name_a_vnic_and_a_pool_that_ippool_changes_while_the_program_runs() {
    let sandbox = Sandbox::new();
    let stage = stage(&sandbox, 2);
    let ippool = |words: &[&str]| stage.daemon().firelane(&[&["ippool"], words].concat()).expect_success();
    ippool(&["-A", "-m", "7"]);
    let rule = "block return-rst in quick on web0 proto tcp from pool/7 to any";
    let words = ["/usr/bin/python3", "-m", "http.server", "8080", "--bind", Stage::FIRELANE];
    let server = serve(&stage, &format!("{rule}\n"), &words);
    let page =
        stage.wait_for(&server, On::Kernel, &["curl", "-sS", &format!("http://{}:8080/", Stage::FIRELANE)]);
    assert!(page.contains("Directory listing"), "{page}");
    assert_eq!(curl(&stage, STRANGER, 8080).code(), 0, "nobody is in the pool");
    ippool(&["-a", "-m", "7", "-i", STRANGER]);
    assert_eq!((curl(&stage, STRANGER, 8080).code(), curl(&stage, WELCOME, 8080).code()), (7, 0));
    let find = format!("pgrep -P {} | head -1", server.pid());
    let pid = stage.ask(On::Kernel, &["sh", "-c", &find]).trim().to_owned();
    let told = stage.daemon().firelane(&["explain", &pid]).expect_success();
    assert!(told.contains(&format!(": filter: 1 {rule}")), "{told}");
    ippool(&["-r", "-m", "7", "-i", STRANGER]);
    assert_eq!(curl(&stage, STRANGER, 8080).code(), 0);
}

#[test]
fn what_cannot_be_is_refused_before_the_program_or_its_sockets_begin() {
    let sandbox = Sandbox::new();
    let stage = stage(&sandbox, 1);
    let begun = stage.folder().join("begun");
    let touch = ["touch", &begun.to_string_lossy()];
    for (rules, line, why) in [
        ("pass in all\nblock out all\n", 2, "a socket's rules are about what comes in"),
        ("pass in all\nblock in on lost0 all\n", 2, "lost0 is no VNIC of netstack"),
        ("\nblock in from pool/9 to any\n", 2, "has no pool 9"),
        ("\n\nblock in sideways\n", 3, "sideways"),
    ] {
        let file = written(&stage, "bad.conf", rules);
        let refused = stage.run_with(On::Firelane, &["--filter", &file], &touch);
        assert_eq!(refused.code(), 2, "{refused:?}");
        let begin = format!("{file}:{line}: ");
        assert!(refused.stderr.starts_with(&begin) && refused.stderr.contains(why), "{refused:?}");
        assert!(!begun.exists(), "it was started");
    }
    let refused = stage.run_with(On::Firelane, &["--filter", "/no/such.conf"], &touch);
    assert!(refused.code() == 2 && refused.stderr.contains("/no/such.conf"), "{refused:?}");
    // Without the command in front, the daemon judges, or the library where the daemon would see half of it.
    let socket =
        "import socket\ntry: socket.socket(); print('made')\nexcept OSError as error: print(error.strerror)";
    let long = "pass in all\n".repeat(500);
    for (rules, why) in [
        ("block in sideways", "firelane: filter:1: \"sideways\""),
        (&long, "FIRELANE_FILTER is longer than 4096 bytes"),
        (
            "pass in all\nblock in on lost0 all",
            "firelane: filter:2: \"block in on lost0 all\": lost0 is no VNIC",
        ),
        ("block in from pool/9 to any", "has no pool 9"),
        ("block in all", ""),
    ] {
        let rules = format!("FIRELANE_FILTER={rules}");
        let told = stage.run(On::Firelane, &["env", &rules, "/usr/bin/python3", "-c", socket]);
        let wanted = if why.is_empty() { "made" } else { "Invalid argument" };
        assert_eq!(told.stdout.trim(), wanted, "{told:?}");
        assert!(told.stderr.contains(why), "{told:?}");
    }
}
