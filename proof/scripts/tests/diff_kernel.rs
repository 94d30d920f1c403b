//! The same exchanges with our netstack and with Linux's, and every difference on the page that explains it.
//!
//! `FIRELANE_BLESS=1` writes the differences into the page; why they are there, a person writes. `FIRELANE_SCRIPT=paws`
//! plays the exchanges whose name has that part and prints both sides.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use firelane_scripts::Family;
use firelane_scripts::duel::{Exchange, Page, Transcript, differences, ours};

/// How many exchanges the kernel plays at once: most of an exchange is waiting.
const AT_ONCE: usize = 12;
/// How often the kernel is asked again if it differs: its side runs in real time, on a machine that does other things.
const TRIES: usize = 4;
/// How often an exchange that is not as the page says is played again, when nothing else is: what Linux sends may depend on how late
/// an answer comes.
const AGAIN: usize = 3;
/// Exit code of the kernel's side where no TAP may be opened.
const NO_TAP: i32 = 3;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("diff")
}

fn page_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/linux-differences.md")
}

/// Every exchange with its file.
fn exchanges() -> Vec<(PathBuf, Exchange)> {
    let mut files: Vec<_> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let read = Exchange::read_all(&text).unwrap_or_else(|error| panic!("{}:{error}", file.display()));
        all.extend(read.into_iter().map(|exchange| (file.clone(), exchange)));
    }
    all
}

/// What Linux answers, in a network namespace of its own; `Err` says why no TAP may be opened.
fn kernels(file: &Path, exchange: &Exchange, family: Family) -> Result<Transcript, String> {
    let family = if family == Family::V6 { "v6" } else { "v4" };
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--net"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg(env!("CARGO_BIN_EXE_firelane-kernel-side")).arg(file).arg(&exchange.name).arg(family);
    let output = command.output().expect("setpriv and unshare (util-linux) are installed");
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => {}
        Some(NO_TAP) => return Err(said),
        _ if said.starts_with("unshare: ") => return Err(said),
        _ => panic!("{} {family}: {said}", exchange.name),
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(Transcript::parse(&text).unwrap_or_else(|| panic!("{} {family}: {text}", exchange.name)))
}

/// What differs over one family.
fn found(file: &Path, exchange: &Exchange, family: Family, shows: bool) -> Result<Vec<String>, String> {
    let Some(own) = ours(exchange, family).unwrap() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for _ in 0..TRIES {
        let theirs = kernels(file, exchange, family)?;
        if shows {
            println!("{} {family:?}\nlinux:\n{theirs}ours:\n{own}", exchange.name);
        }
        let now = differences(&own, &theirs);
        // The same twice is no accident.
        if now.is_empty() || now == found {
            return Ok(now);
        }
        found = now;
    }
    Ok(found)
}

/// What differs over both families, if anything does.
fn compared(file: &Path, exchange: &Exchange, shows: bool) -> Result<Option<String>, String> {
    let [v4, v6] = Family::ALL.map(|family| found(file, exchange, family, shows));
    let (v4, v6) = (v4?, v6?);
    Ok((!v4.is_empty() || !v6.is_empty()).then(|| told(exchange, &v4, &v6)))
}

/// One text for both families if they differ alike.
fn told(exchange: &Exchange, v4: &[String], v6: &[String]) -> String {
    let about = format!("{}\n", exchange.about);
    let part = |name: &str, lines: &[String]| match lines {
        [] => String::new(),
        lines => format!("{name}:\n{}\n", lines.join("\n")),
    };
    let parts = if v4 == v6 { part("IPv4 and IPv6", v4) } else { part("IPv4", v4) + &part("IPv6", v6) };
    format!("{about}{parts}").trim_end().to_owned()
}

/// Plays again, one after the other, what is not as the page says.
fn play_again(all: &[(PathBuf, Exchange)], page: &Page, results: &mut BTreeMap<String, String>) {
    for (file, exchange) in all {
        if page.says(&exchange.name) == results.get(&exchange.name) {
            continue;
        }
        match compared(file, exchange, false).expect("it was compared before") {
            None => results.remove(&exchange.name),
            Some(text) => results.insert(exchange.name.clone(), text),
        };
    }
}

#[test]
fn every_difference_to_linux_is_explained() {
    let part = std::env::var("FIRELANE_SCRIPT").ok();
    let wanted = |exchange: &Exchange| part.as_ref().is_none_or(|part| exchange.name.contains(part));
    let all: Vec<_> = exchanges().into_iter().filter(|(_, exchange)| wanted(exchange)).collect();
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let refused = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((file, exchange)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match compared(file, exchange, part.is_some()) {
                        Ok(None) => {}
                        Ok(Some(text)) => {
                            results.lock().unwrap().insert(exchange.name.clone(), text);
                        }
                        Err(why) => *refused.lock().unwrap() = Some(why),
                    }
                }
            });
        }
    });
    if let Some(why) = refused.into_inner().unwrap() {
        // An ordinary user may often not open one; then root's run of the same test is the proof.
        println!("not compared with Linux: {why}");
        return;
    }
    let mut found = results.into_inner().unwrap();
    let page = Page::parse(&std::fs::read_to_string(page_path()).unwrap_or_default());
    if part.is_some() {
        found.values().for_each(|text| println!("{text}"));
        return;
    }
    if std::env::var_os("FIRELANE_BLESS").is_some() {
        std::fs::write(page_path(), page.renewed(&found)).unwrap();
    }
    for _ in 0..AGAIN {
        play_again(&all, &page, &mut found);
    }
    let faults = page.faults(&found);
    assert!(faults.is_empty(), "docs/linux-differences.md:\n{}", faults.join("\n\n"));
}

#[test]
fn there_are_enough_exchanges_with_names_of_their_own() {
    let all = exchanges();
    let mut names: Vec<_> = all.iter().map(|(_, exchange)| exchange.name.clone()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all.len());
    assert!(all.len() >= 60);
    let silent =
        |exchange: &Exchange| Family::ALL.into_iter().all(|family| ours(exchange, family).unwrap().is_none());
    assert!(!all.iter().any(|(_, exchange)| silent(exchange)));
}
