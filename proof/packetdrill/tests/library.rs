//! The library itself, loaded and called by a C program as packetdrill does.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo puts the library beside the tests.
fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().join("libfirelane_packetdrill.so")
}

/// Builds the C program, runs it with the library and `flags`, and returns what it printed and how it ended.
fn run(name: &str, flags: &str) -> (String, String, Option<i32>) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/caller.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let built = Command::new("cc").arg("-pthread").arg("-o").arg(&program).arg(&source).arg("-ldl").output();
    let built = built.expect("a C compiler, which Rust needs for linking");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(&program).arg(library()).arg(flags).output().unwrap();
    std::fs::remove_file(&program).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (text(&ran.stdout), text(&ran.stderr), ran.status.code())
}

#[test]
fn a_c_program_loads_the_library_and_calls_every_function() {
    assert_eq!(run("calls", "profile=linux,cc=cubic"), ("ok".into(), String::new(), Some(0)));
}

#[test]
fn options_that_cannot_be_used_end_the_process_with_a_line() {
    let said = "firelane: --so_flags: mtu: \"5\": 576 to 65535";
    assert_eq!(run("options", "mtu=5"), (String::new(), said.into(), Some(2)));
}
