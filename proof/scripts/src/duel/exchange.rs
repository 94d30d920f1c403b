//! Exchanges, many in a file: `== name: what it is about`, then the lines of a script without expectations.

use crate::settings::Settings;
use crate::text::{Event, ParseError, Script};

/// What our side sets before everything that an exchange sets: what Linux has without being asked.
const LIKE_LINUX: [&str; 1] = ["tcp.profile linux"];

/// One exchange.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Its name, unique in all files.
    pub name: String,
    /// What it is about.
    pub about: String,
    pub(super) script: Script,
    lines: Vec<String>,
}

impl Exchange {
    /// Reads every exchange of a file.
    ///
    /// # Errors
    /// A line is none of the language, or stands before the first name.
    pub fn read_all(text: &str) -> Result<Vec<Self>, ParseError> {
        let mut exchanges = Vec::new();
        let (mut title, mut lines, mut first) = (None, Vec::new(), 1);
        for (n, line) in text.lines().enumerate() {
            if let Some(next) = line.strip_prefix("== ") {
                if let Some(title) = title.replace((next, n + 1)) {
                    exchanges.push(Self::read(title, &lines, first)?);
                }
                lines.clear();
                first = n + 2;
            } else if title.is_some() {
                lines.push(line.to_owned());
            } else if !line.trim().is_empty() && !line.starts_with("//") {
                return Err(ParseError { line: n + 1, what: "a line before the first `== name`".into() });
            }
        }
        match title {
            Some(title) => exchanges.push(Self::read(title, &lines, first)?),
            None => return Err(ParseError { line: 1, what: "no exchange".into() }),
        }
        Ok(exchanges)
    }

    fn read((title, at): (&str, usize), lines: &[String], first: usize) -> Result<Self, ParseError> {
        let named = title.split_once(": ");
        let (name, about) =
            named.ok_or(ParseError { line: at, what: "a title is `== name: about`".into() })?;
        let mut script = Script::parse(&lines.join("\n"))
            .map_err(|error| ParseError { line: error.line + first - 1, what: error.what })?;
        let own = lines.iter().filter_map(|line| line.trim().strip_prefix("set "));
        script.settings = Settings::default();
        for setting in LIKE_LINUX.into_iter().chain(own) {
            script.settings.take(setting).map_err(|what| ParseError { line: at, what })?;
        }
        Ok(Self { name: name.into(), about: about.into(), script, lines: lines.to_vec() })
    }

    /// The text of an event.
    pub(super) fn line_of(&self, event: &Event) -> &str {
        self.lines.get(event.line.saturating_sub(1)).map_or("", |line| line.trim())
    }

    /// The settings as they were written.
    pub(super) fn settings(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| line.trim().strip_prefix("set "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_have_names_and_their_lines_are_counted_in_the_file() {
        let text = "// all\n== one: first\n+0 < S 0:0(0)\n\n== two: second\n+0 l = listen(80)\n";
        let all = Exchange::read_all(text).unwrap();
        assert_eq!((all[0].name.as_str(), all[1].about.as_str()), ("one", "second"));
        assert_eq!(all[0].line_of(&all[0].script.events[0]), "+0 < S 0:0(0)");
        let wrong = Exchange::read_all("== one: first\n+0 < S 0:0(0)\n== two: second\n+0 < Q\n").unwrap_err();
        assert_eq!(wrong.line, 4);
        assert!(Exchange::read_all("+0 < S 0:0(0)\n").is_err());
    }
}
