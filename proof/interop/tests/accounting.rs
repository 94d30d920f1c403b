//! Accounting to a file against a real daemon with a real program: what curl fetches is in the records, and nowhere when nobody asks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use firelane_interop::{Daemon, Sandbox};

/// The configuration of the demo.
fn two_tenants() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/two-tenants.toml")
}

const BYTES: u64 = 300_000;

fn fetch(sandbox: &Sandbox) {
    let words = ["-s", "-f", "-o", "/dev/null", "--max-time", "10", "http://10.0.0.10/large"];
    assert_eq!(sandbox.run(Some("bob"), "curl", &words).code(), 0);
}

/// What web0 has sent by the records, or nothing without any.
fn sent(daemon: &Daemon<'_>, file: &str) -> Option<u64> {
    let shown = daemon.firelane(&["dlstat", "show-link", "-h", "-f", file, "-j"]).expect_success();
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let usages = shown["usage"].as_array().expect("a list");
    let web = usages.iter().find(|it| it["name"] == "web0")?;
    web["traffic"]["obytes"].as_u64()
}

/// How often something is fetched that the writer should have accounted of: what comes before a daemon's first look is not, and on a
/// busy machine that may come late.
const TRIES: usize = 5;

#[test]
fn records_are_written_while_accounting_is_active() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let large = sandbox.folder().join("run/state/www/large");
    std::fs::write(large, vec![7; BYTES as usize]).expect("the daemon has made its folder");
    let place = sandbox.folder().join("net.log");
    let file = place.to_str().expect("a plain path");
    let acctadm = |daemon: &Daemon<'_>, words: &[&str]| daemon.firelane(&[&["acctadm"], words].concat());
    let flow = ["flowadm", "add-flow", "-l", "bob0", "-a", "transport=tcp,remote_port=80", "fetched"];
    daemon.firelane(&flow).expect_success();
    fetch(&sandbox);
    assert!(!place.exists(), "nobody has asked for records");

    // All that comes between two commands is accounted of, and written when the second one returns.
    let brief = sandbox.folder().join("brief.log");
    let brief = brief.to_str().expect("a plain path");
    for nth in 1..=3 {
        acctadm(&daemon, &["-e", "extended", "-f", brief, "net"]).expect_success();
        fetch(&sandbox);
        acctadm(&daemon, &["-x", "net"]).expect_success();
        let bytes = sent(&daemon, brief).unwrap_or_default();
        assert!(bytes >= nth * BYTES && bytes < (nth * BYTES) * 11 / 10, "{nth}: {bytes}");
    }

    acctadm(&daemon, &["-e", "extended", "-f", file, "net"]).expect_success();
    let shown = acctadm(&daemon, &[]).expect_success();
    assert!(shown.contains("Net accounting: active\n") && shown.contains(file), "{shown}");
    fetch(&sandbox);
    acctadm(&daemon, &["-D", "net"]).expect_success();
    let after = sent(&daemon, file).filter(|&bytes| bytes > BYTES).expect("there are records");
    assert!(after < 2 * BYTES, "{after}: what was fetched before is not in it");
    let flows = daemon.firelane(&["flowstat", "-h", "-f", file]).expect_success();
    assert!(flows.contains("fetched"), "{flows}");
    fetch(&sandbox);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(sent(&daemon, file), Some(after), "nobody asks for records any more");

    // It goes on after a restart, and its last record comes before the daemon ends.
    acctadm(&daemon, &["-e", "basic", "-f", file, "net"]).expect_success();
    assert!(daemon.terminate().success());
    let is_accounted = |_| {
        let daemon = Daemon::start_with(&sandbox, &[]);
        std::thread::sleep(Duration::from_millis(1500));
        fetch(&sandbox);
        assert!(daemon.terminate().success());
        let daemon = Daemon::start_with(&sandbox, &[]);
        let is_it = sent(&daemon, file).is_some_and(|bytes| bytes > after + BYTES);
        assert!(daemon.terminate().success());
        is_it
    };
    assert!((0..TRIES).any(is_accounted));
    let daemon = Daemon::start_with(&sandbox, &[]);

    // What is no file of records is left alone.
    let hosts = sandbox.folder().join("hosts");
    std::fs::write(&hosts, "127.0.0.1 localhost\n").expect("the sandbox's folder is writable");
    let refused = acctadm(&daemon, &["-f", hosts.to_str().expect("a plain path"), "net"]);
    assert_eq!(refused.code(), 1);
    assert_eq!(std::fs::read_to_string(&hosts).expect("it is there"), "127.0.0.1 localhost\n");
}

/// The folder of their file has gone, as with a disk.
#[test]
fn records_that_wait_go_where_accounting_goes_on_and_are_told_of_where_it_ends() {
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox, &two_tenants());
    let large = sandbox.folder().join("run/state/www/large");
    std::fs::write(large, vec![7; BYTES as usize]).expect("the daemon has made its folder");
    let disk = sandbox.folder().join("disk");
    let place = |name: &str| disk.join(name).to_str().expect("a plain path").to_owned();
    let elsewhere = sandbox.folder().join("net.log");
    let elsewhere = elsewhere.to_str().expect("a plain path");
    let acctadm = |words: &[&str]| daemon.firelane(&[&["acctadm"], words].concat());
    let waits = || {
        std::fs::create_dir(&disk).expect("it is not there");
        acctadm(&["-e", "basic", "-f", &place("net.log"), "net"]).expect_success();
        fetch(&sandbox);
        std::fs::remove_dir_all(&disk).expect("it is there");
    };
    waits();
    acctadm(&["-f", elsewhere, "net"]).expect_success();
    assert!(sent(&daemon, elsewhere).is_some_and(|bytes| bytes >= BYTES));
    waits();
    let told = acctadm(&["-x", "net"]);
    let is_told = told.stderr.contains("net.log: No such file or directory")
        && told.stderr.contains("seconds are lost");
    assert!(told.code() == 1 && is_told, "{told:?}");
    assert!(
        acctadm(&[]).expect_success().contains("Net accounting: inactive\n"),
        "it has ended all the same"
    );
}
