//! Every file opens with a `//!` and stays short: at most 700 lines of code without tests.

use super::Finding;
use super::source::Source;

const CODE_LINES_MAX: usize = 700;

/// Checks the file's first line and its length.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !source.lines.first().is_some_and(|l| l.starts_with("//!")) {
        findings.push(Finding::new(&source.path, 1, "a file opens with a `//!` that says what it owns"));
    }
    let code = code_lines(source);
    if code > CODE_LINES_MAX {
        let text = format!("{code} lines of code; at most {CODE_LINES_MAX} (one file, one idea)");
        findings.push(Finding::new(&source.path, 1, text));
    }
    findings
}

fn code_lines(source: &Source) -> usize {
    let is_code = |(number, line): &(usize, &String)| {
        let text = line.trim();
        !text.is_empty() && !text.starts_with("//") && !source.is_test(number + 1)
    };
    source.lines.iter().enumerate().filter(is_code).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn findings(text: &str) -> usize {
        check(&Source::parse(Path::new("path/x/src/y.rs"), text).unwrap()).len()
    }

    #[test]
    fn a_missing_opening_is_found() {
        assert_eq!(findings("fn f() {}\n"), 1);
        assert_eq!(findings("//! Owns f.\nfn f() {}\n"), 0);
    }

    #[test]
    fn test_code_and_comments_do_not_count() {
        let body = "const X: u8 = 1;\n".repeat(699);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// a\nconst Y: u8 = 1;\n".repeat(500));
        assert_eq!(findings(&format!("//! Owns.\n{body}{tests}")), 0);
        assert_eq!(findings(&format!("//! Owns.\n{body}const A: u8 = 1;\nconst B: u8 = 1;\n{tests}")), 1);
    }
}
