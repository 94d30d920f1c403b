//! Documents keep their promises: links lead somewhere, every promise in `SPECIFICATION.md` has a figure or says "pending", and the
//! benches and files that it names are there.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Finding;

const SPECIFICATION: &str = "SPECIFICATION.md";
/// Where the benches have their names.
const BENCHES: &str = "proof/bench/src/main.rs";
/// How the names of files end that are said without their folder.
const ENDS: [&str; 6] = [".rs", ".py", ".c", ".toml", ".md", ".txt"];

/// Checks every Markdown file of the repository.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    let mut findings = Vec::new();
    for file in files.iter().filter(|it| it.extension().is_some_and(|end| end == "md")) {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let name = file.strip_prefix(root).unwrap_or(file);
        findings.extend(dangling_links(name, &text, |target| {
            file.parent().is_some_and(|folder| folder.join(target).exists())
        }));
        if name == Path::new(SPECIFICATION) {
            findings.extend(unproven_rows(&text));
            let benches = fs::read_to_string(root.join(BENCHES)).context(BENCHES)?;
            let is_bench = |name: &str| benches.contains(&format!("name: \"{name}\""));
            let is_file = |name: &str| match name.contains('/') {
                true => root.join(name).exists(),
                false => files.iter().any(|it| it.file_name().is_some_and(|it| it == name)),
            };
            findings.extend(missing_proofs(&text, is_bench, is_file));
        }
    }
    Ok(findings)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" && name != ".git" {
            collect(&path, files)?;
        } else if path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

/// Links of the form `](target)` to files that do not exist.
fn dangling_links(name: &Path, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for part in line.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !target.contains("://") && !exists(file) {
                findings.push(Finding::new(name, number + 1, format!("the link {target:?} leads nowhere")));
            }
        }
    }
    findings
}

/// Table rows whose last cell is empty: a promise without a bench, a test or the word "pending".
fn unproven_rows(text: &str) -> Vec<Finding> {
    let rows = text.lines().enumerate().filter(|(_, l)| l.starts_with('|') && !l.contains("---"));
    rows.filter(|(_, l)| l.trim_end_matches('|').rsplit('|').next().is_some_and(|c| c.trim().is_empty()))
        .map(|(n, _)| {
            Finding::new(Path::new(SPECIFICATION), n + 1, "a promise without a figure or \"pending\"")
        })
        .collect()
}

/// Table rows that name a bench or a file that is not there. Whose folder was said before is named by its last part alone.
fn missing_proofs(
    text: &str,
    is_bench: impl Fn(&str) -> bool,
    is_file: impl Fn(&str) -> bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with('|')) {
        // What stands between two of these.
        for word in line.split('`').skip(1).step_by(2) {
            let is_there = match word.strip_prefix("make bench B=") {
                Some(bench) => is_bench(bench.split(' ').next().unwrap_or_default()),
                None if word.contains(' ') || word.starts_with('/') => true,
                None if word.contains('/') || ENDS.iter().any(|end| word.ends_with(end)) => is_file(word),
                None => true,
            };
            if !is_there {
                let why = format!("{word:?} is named as a proof and is not there");
                findings.push(Finding::new(Path::new(SPECIFICATION), number + 1, why));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dangling_link_is_found() {
        let text = "[a](there.md) [b](gone.md#x) [c](https://example.org) [d](#here)";
        assert_eq!(dangling_links(Path::new("x.md"), text, |t| t == "there.md").len(), 1);
    }

    #[test]
    fn what_a_row_names_is_there() {
        let found =
            |row: &str| missing_proofs(row, |it| it == "udp", |it| it == "a/b.rs" || it == "c.py").len();
        let good =
            "| a | `make bench B=udp` and `a/b.rs` (`c.py`), `make test`, `/dev/tcp`, law `it_is_so` |";
        assert_eq!(found(good), 0);
        for gone in ["`make bench B=tcp`", "`a/c.rs`", "`a/b`", "`d.py`"] {
            assert_eq!(found(&format!("| a | {gone} | met |")), 1, "{gone}");
            assert_eq!(found(gone), 0, "outside of tables nothing is promised: {gone}");
        }
    }

    #[test]
    fn a_promise_needs_a_figure() {
        assert_eq!(unproven_rows("| a | b |\n|---|---|\n| fast | |\n| slow | pending |\n").len(), 1);
    }
}
