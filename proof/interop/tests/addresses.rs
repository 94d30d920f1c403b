//! Addresses and interfaces that are taken out of use and put back, by `ipadm`, against a real daemon with real programs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use firelane_interop::{Daemon, Sandbox};

const URL: &str = "http://10.0.0.10/";
const URL6: &str = "http://[fd00::10]/";

/// The configuration of the demo.
fn two_tenants() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/two-tenants.toml")
}

/// Whether alice gets an answer.
fn answers(sandbox: &Sandbox, url: &str) -> bool {
    sandbox.run(Some("alice"), "curl", &["-s", "-g", "-o", "/dev/null", "--max-time", "2", url]).code() == 0
}

fn ipadm(daemon: &Daemon<'_>, words: &[&str]) -> String {
    daemon.firelane(&[&["ipadm"], words].concat()).expect_success()
}

/// The state of an address object, as `show-addr` has it.
fn state(daemon: &Daemon<'_>, name: &str) -> String {
    ipadm(daemon, &["show-addr", "-p", "-o", "state,current,persistent", name]).trim_end().to_owned()
}

fn started(sandbox: &Sandbox) -> Daemon<'_> {
    let daemon = Daemon::start(sandbox, &two_tenants());
    let large = sandbox.folder().join("run/state/www/large");
    std::fs::write(large, vec![7; 3_000_000]).expect("the daemon has made its folder");
    daemon
}

#[test]
fn an_address_that_is_down_answers_nobody_and_its_connections_wait() {
    let sandbox = Sandbox::new();
    let daemon = started(&sandbox);
    assert!(answers(&sandbox, URL) && answers(&sandbox, URL6));
    let got = std::thread::scope(|scope| {
        let words =
            ["-s", "-o", "/dev/null", "-w", "%{size_download}", "--limit-rate", "1M", "--max-time", "60"];
        let url = format!("{URL}large");
        let words =
            [words.as_slice(), &[url.as_str()]].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
        let inside = &sandbox;
        let curl = scope.spawn(move || {
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            inside.run(Some("alice"), "curl", &words).expect_success()
        });
        std::thread::sleep(Duration::from_millis(700));
        ipadm(&daemon, &["down-addr", "-t", "web0/v4"]);
        assert!(!answers(&sandbox, URL), "nothing new begins");
        assert!(answers(&sandbox, URL6), "the other address is up");
        assert_eq!(state(&daemon, "web0/v4"), "down:-----:U--");
        ipadm(&daemon, &["down-addr", "-t", "web0/v4"]);
        ipadm(&daemon, &["up-addr", "-t", "web0/v4"]);
        ipadm(&daemon, &["up-addr", "-t", "web0/v4"]);
        curl.join().expect("curl's thread does not panic")
    });
    assert_eq!(got, "3000000", "what had begun has waited");
    assert!(answers(&sandbox, URL));

    // What is kept comes back with a restart, and what is down is deleted like any other.
    ipadm(&daemon, &["down-addr", "web0/v4"]);
    assert!(daemon.terminate().success());
    let daemon = Daemon::start_with(&sandbox, &[]);
    assert_eq!(state(&daemon, "web0/v4"), "down:-----:---");
    assert!(!answers(&sandbox, URL) && answers(&sandbox, URL6));
    ipadm(&daemon, &["up-addr", "web0/v4"]);
    assert!(answers(&sandbox, URL));
    ipadm(&daemon, &["down-addr", "-t", "web0/v4"]);
    ipadm(&daemon, &["delete-addr", "web0/v4"]);
    ipadm(&daemon, &["create-addr", "-T", "static", "-d", "-a", "10.0.0.10/24", "web0/v4"]);
    assert!(!answers(&sandbox, URL));
    ipadm(&daemon, &["up-addr", "web0/v4"]);
    assert!(answers(&sandbox, URL));
}

#[test]
fn what_is_disabled_is_gone_until_it_is_enabled_or_the_next_start() {
    let sandbox = Sandbox::new();
    let daemon = started(&sandbox);
    ipadm(&daemon, &["disable-addr", "-t", "web0/v4"]);
    assert_eq!(state(&daemon, "web0/v4"), "disabled:-----:U--");
    assert!(!answers(&sandbox, URL) && answers(&sandbox, URL6));
    ipadm(&daemon, &["enable-addr", "-t", "web0/v4"]);
    assert!(answers(&sandbox, URL));

    ipadm(&daemon, &["disable-if", "-t", "web0"]);
    let shown = ipadm(&daemon, &["show-if", "-p", "-o", "state,current,persistent", "web0"]);
    assert_eq!(shown, "disabled:-----------:-46\n");
    assert!(!answers(&sandbox, URL) && !answers(&sandbox, URL6));
    ipadm(&daemon, &["enable-if", "-t", "web0"]);
    assert!(answers(&sandbox, URL) && answers(&sandbox, URL6));
    ipadm(&daemon, &["disable-if", "-t", "web0"]);
    assert!(daemon.terminate().success());
    let _daemon = Daemon::start_with(&sandbox, &[]);
    assert!(answers(&sandbox, URL) && answers(&sandbox, URL6), "after a restart");
}
