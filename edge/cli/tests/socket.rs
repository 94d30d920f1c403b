//! The built command over a real unix socket, under each of its names.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use firelane_api::{Method, PlanStep, Request, Stub, dispatch};
use firelane_model::Model;

const FIRELANE: &str = env!("CARGO_BIN_EXE_firelane");

fn planner(wanted: &Model, present: &Model) -> Vec<PlanStep> {
    let steps = firelane_plan::plan(wanted, present);
    steps
        .iter()
        .map(|s| PlanStep { effect: s.effect.to_string(), step: s.to_string(), lines: s.lines() })
        .collect()
}

/// A folder of the test's own, gone when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("firelane-socket-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Serves `stub` on `socket` for as long as the test's process lives.
fn serve(stub: Arc<Stub>, socket: &Path) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(&stub, stream.unwrap());
        }
    });
}

fn answer(stub: &Stub, mut stream: UnixStream) {
    let mut bytes = Vec::new();
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut head = httparse::Request::new(&mut headers);
        if let httparse::Status::Complete(start) = head.parse(&bytes).unwrap() {
            let length = head.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
            let length: usize = std::str::from_utf8(length.unwrap().value).unwrap().parse().unwrap();
            if bytes.len() >= start + length {
                let (path, query) = head.path.unwrap().split_once('?').unwrap_or((head.path.unwrap(), ""));
                let method = Method::from_word(head.method.unwrap()).unwrap();
                let body = &bytes[start..start + length];
                let response = dispatch(stub, &Request { method, path, query, body });
                let size = response.body.len();
                write!(stream, "HTTP/1.1 {} X\r\ncontent-length: {size}\r\n\r\n", response.status).unwrap();
                return stream.write_all(&response.body).unwrap();
            }
        }
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "the client closed before its request was whole");
        bytes.extend_from_slice(&buffer[..read]);
    }
}

/// Runs `program` and gives its exit code and outputs.
fn run(program: &Path, socket: &Path, words: &[&str]) -> (i32, String, String) {
    let output = Command::new(program).args(words).env("FIRELANE_SOCKET", socket).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_change_and_list_crosses_the_socket() {
    let folder = Folder::new("all");
    let socket = folder.0.join("api.sock");
    let stub = Arc::new(Stub::new(Model::default(), planner));
    serve(stub.clone(), &socket);
    for name in ["dladm", "flowadm", "ipadm", "route", "dlstat", "flowstat"] {
        symlink(FIRELANE, folder.0.join(name)).unwrap();
    }
    let lines = [
        "dladm create-etherstub vswitch1",
        "dladm create-vnic -l vswitch1 -p maxbw=1000M vnic3",
        "flowadm create-flow -l vnic3 protocol=tcp,local_port=443 -p maxbw=50M http-1",
        "flowadm set-flowprop -l vnic3 -p maxbw=100M http-1",
        "dladm set-linkprop -t -p mtu=1500 vnic3",
        "ipadm create-if vnic3",
        "ipadm create-addr -T static -a 10.0.0.1/24 vnic3/v4",
        "route -p add default 10.0.0.254",
        "route -p change default 10.0.0.253",
        "route delete default",
        "ipadm show-addr",
        "ipadm show-if",
        "dladm show-vnic",
        "dladm show-linkprop",
        "flowadm show-flowprop",
        "dlstat",
        "flowstat",
        "route -p flush",
        "ipadm delete-addr vnic3/v4",
        "ipadm delete-if vnic3",
        "flowadm remove-flow http-1",
        "dladm delete-vnic vnic3",
        "dladm delete-etherstub vswitch1",
    ];
    for line in lines {
        let words: Vec<_> = line.split(' ').collect();
        let (code, _, err) = run(&folder.0.join(words[0]), &socket, &words[1..]);
        assert_eq!((code, err.as_str()), (0, ""), "{line}");
        if line.starts_with("flowadm set-flowprop") {
            let flow = &stub.store().persistent.flows["http-1"];
            assert_eq!(flow.maxbw, Some("100M".parse().unwrap()));
        }
        if line.starts_with("ipadm create-addr") {
            assert_eq!(stub.store().active.addresses().count(), 1);
        }
        if line.starts_with("route delete") {
            let routes = |model: &Model| model.netstacks["default"].routes.len();
            assert_eq!((routes(&stub.store().active), routes(&stub.store().persistent)), (0, 1));
        }
    }
    let netstacks = stub.store().active.netstacks.len();
    assert_eq!((stub.store().active.link_names().count(), netstacks), (0, 0));
    let (code, _, err) = run(&folder.0.join("dladm"), &socket, &["delete-vnic", "vnic3"]);
    assert_eq!((code, err.as_str()), (1, "dladm: vnic deletion failed: object not found\n"));
}

#[test]
fn a_daemon_that_ends_with_a_change_open_leaves_it_unknown() {
    let folder = Folder::new("ends");
    let socket = folder.0.join("api.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        // It ends without a word, within its headers, and within its body.
        let pieces = ["", "HTTP/1.1 200 X\r\ncontent", "HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\n{"];
        for (stream, piece) in listener.incoming().zip(pieces.into_iter().cycle()) {
            let mut stream = stream.unwrap();
            let (mut asked, mut buffer) = (Vec::new(), [0; 4096]);
            while !asked.ends_with(b"}") && !asked.ends_with(b"Content-Length: 0\r\n\r\n") {
                let read = stream.read(&mut buffer).unwrap();
                asked.extend_from_slice(&buffer[..read]);
            }
            stream.write_all(piece.as_bytes()).unwrap();
        }
    });
    let said = |why: &str| format!("could not reach firelaned (socket={}: {why})\n", socket.display());
    let unknown = said("it has ended before its answer did; it is not known whether the change was made");
    let question = said("it has ended before its answer did");
    for _ in 0..3 {
        let words = ["dladm", "create-etherstub", "stub0"];
        let (code, _, err) = run(Path::new(FIRELANE), &socket, &words);
        assert_eq!((code, err), (1, format!("dladm: {unknown}")));
    }
    for _ in 0..3 {
        let (code, _, err) = run(Path::new(FIRELANE), &socket, &["dladm", "show-vnic"]);
        assert_eq!((code, err), (1, format!("dladm: {question}")));
    }
}

#[test]
fn run_takes_a_netstack_by_whatever_other_commands_call_it() {
    let folder = Folder::new("run");
    let socket = folder.0.join("api.sock");
    serve(Arc::new(Stub::new(Model::default(), planner)), &socket);
    let said = ["-z", "-N", "--zone", "--netstack"]
        .map(|option| run(Path::new(FIRELANE), &socket, &["run", option, "nosuch", "true"]));
    assert!(said[0].2.contains("there is no such netstack"), "{:?}", said[0]);
    assert!(said.iter().all(|it| *it == said[0]), "{said:?}");
}

#[test]
fn a_file_is_applied_and_dumped() {
    let folder = Folder::new("file");
    let socket = folder.0.join("api.sock");
    let stub = Arc::new(Stub::new(Model::default(), planner));
    serve(stub.clone(), &socket);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/two-tenants.toml");
    let firelane = Path::new(FIRELANE);
    let (code, out, err) = run(firelane, &socket, &["apply", file]);
    assert_eq!((code, out.lines().count(), err.as_str()), (0, 9, ""));
    let (_, out, _) = run(firelane, &socket, &["apply", file]);
    assert_eq!(out, "no changes\n");
    let (_, dump, _) = run(firelane, &socket, &["dump"]);
    assert_eq!(Model::from_toml("dump", &dump), Ok(stub.store().active));
    let (code, out, _) = run(firelane, &socket, &["dladm", "show-link", "-p", "-o", "link"]);
    assert_eq!((code, out.as_str()), (0, "vswitch1\nalice0\nbob0\nweb0\n"));
}

#[test]
fn without_a_daemon_one_line_says_so() {
    let socket = Path::new("/nonexistent/api.sock");
    let why = "could not reach firelaned (socket=/nonexistent/api.sock: No such file or directory)\n";
    let table: [(&[&str], i32); 5] = [
        (&["status"], 75),
        (&["dump"], 75),
        (&["dladm", "create-etherstub", "sw0"], 1),
        (&["flowadm", "set-flowprop", "-p", "maxbw=5M", "f"], 1),
        (&["dladm", "reset-linkprop", "web0"], 1),
    ];
    for (words, want) in table {
        let (code, out, err) = run(Path::new(FIRELANE), socket, words);
        let program = if words.len() > 1 { words[0] } else { "firelane" };
        assert_eq!((code, out.as_str(), err), (want, "", format!("{program}: {why}")));
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = Folder::new("pipe");
    let socket = folder.0.join("api.sock");
    let model = Model::from_toml("t", include_str!("../../../examples/two-tenants.toml")).unwrap();
    serve(Arc::new(Stub::new(model, planner)), &socket);
    let script = format!("(sleep 0.2; '{FIRELANE}' dladm show-link) | true; exit ${{PIPESTATUS[0]}}");
    let output = Command::new("bash").args(["-c", &script]).env("FIRELANE_SOCKET", &socket).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

/// Answers the next request with `answer` and closes.
fn answer_once(socket: &Path, answer: &'static str) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
    });
}

#[test]
fn a_capture_that_breaks_off_with_its_daemon_is_a_failure() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let whole: &'static str = format!("{head}0\r\n\r\n").leak();
    let ended = "it has ended before its answer did";
    for (name, answer, want, why) in [("whole", whole, 0, ""), ("broken", head, 75, ended)] {
        let folder = Folder::new(name);
        let socket = folder.0.join("api.sock");
        answer_once(&socket, answer);
        let (code, out, err) = run(Path::new(FIRELANE), &socket, &["capture", "-l", "web0"]);
        assert_eq!((code, out.as_str()), (want, "abc"), "{name}: {err}");
        assert!(err.contains(why) && err.lines().count() == usize::from(want != 0), "{name}: {err}");
    }
}
