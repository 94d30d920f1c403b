//! What tests say that cannot run on this machine.
//!
//! They pass, so cargo hides what they print. `make test` names a file in the environment, to which each adds a line, and shows it at its
//! end.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// The variable of the environment that names the file.
const FILE: &str = "FIRELANE_SKIPPED";

/// Says why the test that calls this is skipped.
pub fn skipped(why: impl Display) {
    eprintln!("skipped: {why}");
    let Some(file) = std::env::var_os(FILE) else { return };
    if let Err(error) = add(Path::new(&file), &line(&why)) {
        eprintln!("{}: {error}", file.display());
    }
}

/// The test's program without cargo's hash, the test, whose thread has its name, and why.
fn line(why: &dyn Display) -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).and_then(OsStr::to_str).unwrap_or_default();
    let program = program.rsplit_once('-').map_or(program, |(name, _)| name);
    let thread = std::thread::current();
    let why = why.to_string().replace('\n', " ");
    format!("{program}: {}: {why}\n", thread.name().unwrap_or_default())
}

/// In one piece: other programs add theirs meanwhile.
fn add(file: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_adds_a_line_with_its_name_and_why() {
        let file = std::env::temp_dir().join(format!("firelane-skipped-{}", std::process::id()));
        for why in ["no veth", "two\nlines"] {
            add(&file, &line(&why)).expect("the temporary folder is writable");
        }
        let text = std::fs::read_to_string(&file).expect("it is there");
        std::fs::remove_file(&file).expect("it is ours");
        let name = "firelane_skipped: tests::each_adds_a_line_with_its_name_and_why";
        assert_eq!(text, format!("{name}: no veth\n{name}: two lines\n"));
    }
}
