//! Command lines against a real daemon, with every byte of what they say and their exit codes.
//!
//! A golden file is read from top to bottom against one daemon in a sandbox of its own. `$ ` begins a command line (its
//! first word is `firelane` or one of the Solaris commands), `! ` a line of the error output, `~` is an empty line,
//! `exit N` ends a command that failed. `# host: NAME` starts the daemon with `golden/hosts/NAME.toml`, `# restart`
//! ends it and starts it again with what it remembers; other lines that begin with `#` are for the reader. `@/` is the folder
//! `golden/files`.
//! `FIRELANE_BLESS=1 cargo test -p firelane-interop --test golden` rewrites what commands say; the diff is then the review.

use std::fs;
use std::path::{Path, PathBuf};

use firelane_interop::{Daemon, Sandbox};

/// How many command lines are compared at the least.
const LINES_LEAST: usize = 150;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

macro_rules! goldens {
    ($($name:ident),* $(,)?) => {
        /// The files that have a test.
        const FILES: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            compare(stringify!($name));
        })*
    };
}

goldens!(
    links,
    vnics,
    vlans,
    iptuns,
    names,
    protection,
    running,
    link_properties,
    ip_properties,
    flows,
    flow_properties,
    classification,
    statistics,
    refusals,
    translation,
    wires
);

#[test]
fn every_file_is_compared_and_there_are_enough_lines() {
    let mut lines = 0;
    for entry in fs::read_dir(folder()).expect("the folder is part of the source") {
        let path = entry.expect("readable").path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".txt")) else {
            continue;
        };
        assert!(FILES.contains(&name), "{name}.txt has no test");
        let text = fs::read_to_string(&path).expect("readable");
        lines += text.lines().filter(|line| line.starts_with("$ ")).count();
    }
    assert!(lines >= LINES_LEAST, "{lines} command lines");
}

/// Replays the file `name` and compares.
#[track_caller]
fn compare(name: &str) {
    let path = folder().join(name).with_extension("txt");
    let text = fs::read_to_string(&path).expect("the file is part of the source");
    let replayed = replay(&text);
    if std::env::var_os("FIRELANE_BLESS").is_some() {
        fs::write(&path, &replayed).expect("the source is writable");
        return;
    }
    let differs = replayed.lines().zip(text.lines()).position(|(now, then)| now != then);
    let around = |text: &str| {
        let at = differs.unwrap_or_default().saturating_sub(3);
        text.lines().skip(at).take(8).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(replayed, text, "{name}.txt says\n{}\nbut now\n{}\n", around(&text), around(&replayed));
}

/// The file as it should be.
fn replay(text: &str) -> String {
    let sandbox = Sandbox::new();
    let mut daemon = None;
    let mut replayed = String::new();
    let mut expecting = false;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let daemon = daemon.as_ref().expect("`# host:` comes before the first command");
            replayed.push_str(&format!("{line}\n{}", said(daemon, command)));
            expecting = true;
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            expecting = false;
        }
        if let Some(host) = line.strip_prefix("# host: ") {
            assert!(daemon.is_none(), "one file, one daemon");
            daemon = Some(Daemon::start(&sandbox, &folder().join("hosts").join(host).with_extension("toml")));
        } else if line == "# restart" {
            let running: Daemon<'_> = daemon.take().expect("`# host:` comes before");
            assert!(running.terminate().success());
            daemon = Some(Daemon::start_with(&sandbox, &[]));
        }
        if !expecting {
            replayed.push_str(&format!("{line}\n"));
        }
    }
    replayed
}

/// What one command says, as golden files write it.
fn said(daemon: &Daemon<'_>, command: &str) -> String {
    let files = format!("{}/", folder().join("files").display());
    let command = command.replace("@/", &files);
    let words: Vec<&str> = command.split(' ').filter(|&word| word != "firelane").collect();
    let output = daemon.firelane(&words);
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| it.replace(&files, "@/"));
    let code = output.code();
    assert!(stdout.is_empty() || stdout.ends_with('\n'), "{command}: {stdout:?}");
    let mut said = String::new();
    for line in stdout.lines() {
        // An empty line would end the expectation.
        said.push_str(if line.is_empty() { "~" } else { line });
        said.push('\n');
    }
    for line in stderr.lines() {
        said.push_str(&format!("! {line}\n"));
    }
    if code != 0 {
        said.push_str(&format!("exit {code}\n"));
    }
    said
}
