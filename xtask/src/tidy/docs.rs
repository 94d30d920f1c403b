//! Documents keep their promises: links lead somewhere, and every number in `SPECIFICATION.md` names a
//! bench or a test, or says "pending".

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Finding;

const SPECIFICATION: &str = "SPECIFICATION.md";

/// Checks every Markdown file of the repository.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    let mut findings = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let name = file.strip_prefix(root).unwrap_or(&file);
        findings.extend(dangling_links(name, &text, |target| {
            file.parent().is_some_and(|folder| folder.join(target).exists())
        }));
        if name == Path::new(SPECIFICATION) {
            findings.extend(unproven_rows(&text));
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
        } else if path.extension().is_some_and(|e| e == "md") {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dangling_link_is_found() {
        let text = "[a](there.md) [b](gone.md#x) [c](https://example.org) [d](#here)";
        assert_eq!(dangling_links(Path::new("x.md"), text, |t| t == "there.md").len(), 1);
    }

    #[test]
    fn a_promise_needs_a_figure() {
        assert_eq!(unproven_rows("| a | b |\n|---|---|\n| fast | |\n| slow | pending |\n").len(), 1);
    }
}
