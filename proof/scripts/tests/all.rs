//! Every script of the tree, those with packets over both families. `FIRELANE_SCRIPT=part/of/a/path` runs those whose path has it.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use firelane_scripts::{Failure, Family, Script, run, run_dhcp4, run_dhcp6, run_link_local};

fn collect(folder: &Path, wanted: &str, scripts: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the entry can be read").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            collect(&path, wanted, scripts);
        } else if path.extension().is_some_and(|extension| extension == wanted) {
            scripts.push(path);
        }
    }
}

/// What is wrong with one script, a line per failure.
fn check(name: &str, text: &str) -> Vec<String> {
    let script = match Script::parse(text) {
        Ok(script) => script,
        Err(error) => return vec![format!("{name}:{error}")],
    };
    let failed = |family| match catch_unwind(AssertUnwindSafe(|| run(&script, family))) {
        Ok(outcome) => outcome.err().map(|failure| format!("{name}:{failure} ({family:?})")),
        Err(_) => Some(format!("{name}: panics ({family:?})")),
    };
    Family::ALL.into_iter().filter_map(failed).collect()
}

/// Plays the scripts of a folder whose names end so; `play` says what is wrong with one.
fn every_script(folder: &str, extension: &str, play: impl Fn(&str, &str) -> Vec<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut scripts = Vec::new();
    collect(&root.join(folder), extension, &mut scripts);
    scripts.sort();
    assert!(!scripts.is_empty(), "{folder} has no scripts");
    let part = std::env::var("FIRELANE_SCRIPT").unwrap_or_default();
    let mut failures = Vec::new();
    for path in scripts.iter().filter(|path| path.to_string_lossy().contains(&part)) {
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        let text = fs::read_to_string(path).expect("a script is text");
        failures.extend(play(&name, &text));
    }
    let count = scripts.len();
    assert!(failures.is_empty(), "{} of {count} scripts fail:\n{}", failures.len(), failures.join("\n"));
}

/// The same of scripts without a family.
fn told(name: &str, outcome: Result<(), Failure>) -> Vec<String> {
    outcome.err().map(|failure| format!("{name}:{failure}")).into_iter().collect()
}

#[test]
fn every_script_is_true() {
    every_script("", "pkt", check);
}

#[test]
fn dhcpv4s_client_does_what_every_script_says() {
    every_script("dhcp4", "msg", |name, text| told(name, run_dhcp4(text)));
}

#[test]
fn dhcpv6s_client_does_what_every_script_says() {
    every_script("dhcp6", "msg", |name, text| told(name, run_dhcp6(text)));
}

#[test]
fn addresses_of_the_link_are_chosen_as_every_script_says() {
    every_script("linklocal", "msg", |name, text| told(name, run_link_local(text)));
}

#[track_caller]
fn expect_failure(text: &str, outcome: Result<(), Failure>, what: &str) {
    let failures = told("a.msg", outcome);
    assert!(
        failures.first().is_some_and(|it| it.starts_with(&format!("a.msg:{what}"))),
        "{text}: {failures:?}"
    );
}

#[test]
fn a_script_of_clients_that_is_wrong_fails_at_its_line() {
    for (text, what) in [
        ("", "0: nothing happens"),
        (
            "+0 wanted addresses\n+0~+1 > request any",
            "2: expected `request any`, got `solicit new elapsed 0 any asks",
        ),
        (
            "+0 wanted addresses\n+0~+1 > solicit addr 2001:db8::1",
            "2: expected `solicit addr 2001:db8::1`, got",
        ),
        ("+0 wanted addresses\n+2 quiet", "2: expected nothing, got `solicit"),
        ("+0 wanted addresses\n+0~+1 > solicit same any", "2: expected `solicit same any`, got `solicit new"),
        ("+0 wanted addresses\n+5~+6 > solicit any", "2: `solicit any` came at"),
        ("+0 < shout", "1: `shout` is no message"),
        ("set colour 1\n+0 quiet", "1: `colour 1`: the setting is"),
    ] {
        expect_failure(text, run_dhcp6(text), what);
    }
    for (text, what) in [
        ("+0 > discover asks 10.0.0.5", "1: expected `discover asks 10.0.0.5`, got `discover new secs 0`"),
        ("+0 > discover to 10.0.0.1", "1: expected `discover to 10.0.0.1`, got"),
        ("+0 > discover secs 9", "1: expected `discover secs 9`, got"),
        ("+0 > discover\n+9 quiet", "2: expected nothing, got `discover same"),
        ("+0 > discover\n+0 < offer loud", "2: `loud` is nothing that a server says"),
        ("+0 > discover\n+0 holds /24", "2: no lease is in force"),
        ("+0 > discover\n+0 counter unasked 1", "2: expected unasked 1, got 0"),
        ("set colour 1\n+0 quiet", "1: `colour 1`: the settings are"),
    ] {
        expect_failure(text, run_dhcp4(text), what);
    }
    let failures = told("a.msg", run_link_local("+0 alone\n+10~+11 > announce A"));
    assert!(failures[0].starts_with("a.msg:2: expected `announce A`, got `probe A`"), "{failures:?}");
    let failures = told("a.msg", run_link_local("+0 < probe A"));
    assert_eq!(failures, ["a.msg:1: nobody has spoken of `A`"]);
}

#[test]
fn a_failure_names_file_line_and_both_sides() {
    let text = "+0 l = listen(80)\n+0 < S 0:0(0) win 1000 <mss 1000>\n+0 > S. 0:0(0) ack 2 <...>\n";
    let failures = check("a.pkt", text);
    assert_eq!(failures.len(), 2);
    assert!(failures[0].starts_with("a.pkt:3: expected `S. 0:0(0) ack 2 <...>`, got `S. 0:0(0) ack 1 win"));
    for (text, what) in [
        ("+0 l = listen(80)\n+0 < S 0:0(0) win 1000 <mss 1000>\n+1 quiet", "3: expected nothing, got `S."),
        ("+0 l = listen(80)\n+1 > S. 0:0(0) ack 1", "2: expected `S. 0:0(0) ack 1`, got nothing until 1.00"),
        ("+0 l = listen(80)\n+0 c = accept(l)", "2: expected accept() = ok, got again"),
        ("+0 l = listen(80)\n+0 read(l, 5)", "2: `l` is no connection"),
        ("+0 < S 0:0(0)\n+0 > R. 0:0(0) ack 1\n+0 < S 0:0(0)", "3: expected the end, got `R."),
    ] {
        let failures = check("a.pkt", text);
        assert!(failures[0].contains(what), "{text}: {failures:?}");
    }
}
