//! Comments say why, never what changed, and leave no errand behind.

use super::Finding;
use super::source::Source;

/// Words that speak of a change instead of the code, or put work off.
const BANNED: &[&str] =
    &["no longer", "previously", "used to be", "TODO", "FIXME", "XXX", "HACK:", "for now", "we now "];

/// Checks the comments of one file.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    if source.is_below("xtask") {
        return Vec::new();
    }
    let comments = source.lines.iter().enumerate().filter_map(|(n, l)| comment(l).map(|c| (n + 1, c)));
    comments
        .flat_map(|(number, text)| {
            BANNED
                .iter()
                .filter(move |word| text.contains(*word))
                .map(move |word| Finding::new(&source.path, number, format!("a comment says {word:?}")))
        })
        .collect()
}

fn comment(line: &str) -> Option<&str> {
    let start = line.find("//")?;
    let before = &line[..start];
    (before.matches('"').count().is_multiple_of(2) && !before.ends_with(':')).then(|| &line[start..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn talk_of_change_is_found() {
        let text = "//! X.\n// This is no longer needed.\nconst A: &str = \"TODO\";\n";
        assert_eq!(check(&Source::parse(Path::new("base/x.rs"), text).unwrap()).len(), 1);
    }
}
