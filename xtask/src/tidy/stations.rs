//! A station has one name: its folder in `path/` is the word of `firelane_units::Station`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;

const STATIONS: &str = "base/units/src/drop_reason.rs";

/// Compares the folders of `path/` with the words in [`STATIONS`].
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>> {
    let text = fs::read_to_string(root.join(STATIONS)).context(STATIONS)?;
    let words = station_words(&text);
    let mut findings = Vec::new();
    for entry in fs::read_dir(root.join("path"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && !words.contains(&name) {
            let text = format!("the folder path/{name} is no word of Station");
            findings.push(Finding::new(Path::new(STATIONS), 1, text));
        }
    }
    for word in &words {
        if word != "driver" && !root.join("path").join(word).is_dir() {
            let text = format!("the station {word:?} has no folder path/{word}");
            findings.push(Finding::new(Path::new(STATIONS), 1, text));
        }
    }
    Ok(findings)
}

/// The words of `Self::Name => "word"` in the body of `Station::word`.
fn station_words(text: &str) -> Vec<String> {
    let body = text.split("impl Station").nth(1).unwrap_or_default();
    let body = body.split("macro_rules!").next().unwrap_or_default();
    body.lines()
        .filter_map(|l| l.trim().strip_prefix("Self::"))
        .filter_map(|l| l.split('"').nth(1))
        .map(Into::into)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        let text = "impl Station {\n Self::Ip => \"ip\",\n Self::Tcp => \"tcp\",\n}\nmacro_rules! x";
        assert_eq!(station_words(text), ["ip", "tcp"]);
    }
}
