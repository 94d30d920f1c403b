//! Runs every household rule over the tree and collects the findings.
//!
//! A rule is a function from a parsed [`Source`] (or the whole tree) to findings. Rules never change a
//! file. `main.rs` prints what they find.

mod docs;
mod edges;
mod functions;
mod length;
mod purity;
mod requirements;
mod source;
mod stations;
mod unsafety;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use source::Source;

/// One broken rule, at one place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: PathBuf,
    line: usize,
    text: String,
}

impl Finding {
    fn new(path: &Path, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.text)
    }
}

/// Checks the whole tree.
pub(crate) fn run() -> Result<Vec<Finding>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies below the root")?;
    let mut findings = edges::check(root)?;
    findings.extend(docs::check(root)?);
    findings.extend(stations::check(root)?);
    findings.extend(requirements::check(root)?);
    for path in source::rust_files(root)? {
        let source = Source::read(root, &path)?;
        findings.extend(check_source(&source));
    }
    findings.sort();
    Ok(findings)
}

/// What the tables of requirements count, for a person.
pub(crate) fn requirements() -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies below the root")?;
    requirements::summary(root)
}

fn check_source(source: &Source) -> Vec<Finding> {
    let rules = [length::check, functions::check, unsafety::check, purity::check, words::check];
    rules.iter().flat_map(|rule| rule(source)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_obeys_every_rule() {
        let findings = run().unwrap();
        let text: Vec<_> = findings.iter().map(ToString::to_string).collect();
        assert!(text.is_empty(), "\n{}", text.join("\n"));
    }
}
