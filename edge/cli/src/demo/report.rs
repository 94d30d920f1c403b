//! What the demo shows: for a person line by line as it happens, or one JSON document at the end.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{CONFIG, picture};
use crate::session::{Failure, Session};
use crate::stage::host::Host;

/// Width of the columns of what was checked and what was wanted.
const NAME: usize = 33;
const WANTED: usize = 14;

/// One check: what was wanted, what was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Row {
    name: String,
    wanted: String,
    measured: String,
    ok: bool,
    figures: Map<String, Value>,
}

impl Row {
    pub(super) fn new(name: &str, wanted: &str, measured: String, ok: bool) -> Self {
        Self { name: name.into(), wanted: wanted.into(), measured, ok, figures: Map::new() }
    }

    pub(super) fn failed(name: &str, wanted: &str, why: &str) -> Self {
        Self::new(name, wanted, why.to_owned(), false)
    }

    /// Adds a number for the JSON document.
    pub(super) fn figure(mut self, name: &str, value: f64) -> Self {
        self.figures.insert(name.into(), json!(value));
        self
    }

    fn line(&self) -> String {
        let mark = if self.ok { "ok" } else { "FAILED" };
        format!("{:<NAME$} {:<WANTED$} {:<6} {}\n", self.name, self.wanted, mark, self.measured)
    }
}

/// All rows so far.
#[derive(Debug)]
pub(super) struct Report {
    is_json: bool,
    has_header: bool,
    rows: Vec<Row>,
}

impl Report {
    pub(super) fn new(is_json: bool) -> Self {
        Self { is_json, has_header: false, rows: Vec::new() }
    }

    /// Says something to a person.
    pub(super) fn say(&self, session: &mut Session<'_>, text: &str) -> Result<(), Failure> {
        if !self.is_json {
            session.out.write_all(text.as_bytes())?;
            session.out.flush()?;
        }
        Ok(())
    }

    /// Enters a row.
    pub(super) fn enter(&mut self, session: &mut Session<'_>, row: Row) -> Result<(), Failure> {
        if !self.has_header {
            self.has_header = true;
            self.say(session, &format!("{:<NAME$} {:<WANTED$} {:<6} MEASURED\n", "CHECK", "WANTED", ""))?;
        }
        self.say(session, &row.line())?;
        self.rows.push(row);
        Ok(())
    }

    /// Shows flows and drops, then the verdict; whether all is well.
    pub(super) fn finish(&self, session: &mut Session<'_>, host: &Host) -> Result<bool, Failure> {
        let all_well = self.rows.iter().all(|row| row.ok);
        if self.is_json {
            self.write_json(session, host, all_well)?;
            return Ok(all_well);
        }
        for words in [&["flowstat"][..], &["dlstat"], &["drops"]] {
            let text = host.firelane(words).unwrap_or_else(|why| format!("{why}\n"));
            write!(session.out, "\n$ firelane {}\n{text}", words.join(" "))?;
        }
        if all_well {
            writeln!(session.out, "\ndemo: ok")?;
        } else {
            writeln!(session.out)?;
            for row in self.rows.iter().filter(|row| !row.ok) {
                writeln!(session.out, "demo: failed: {}: wanted {}: {}", row.name, row.wanted, row.measured)?;
            }
        }
        Ok(all_well)
    }

    fn write_json(&self, session: &mut Session<'_>, host: &Host, all_well: bool) -> Result<(), Failure> {
        let list = |words: &[&str], name: &str| {
            let text = host.firelane(words).unwrap_or_default();
            serde_json::from_str::<Value>(&text).map_or(Value::Null, |document| document[name].clone())
        };
        let drops = host.drops().unwrap_or_default();
        let demo = json!({
            "ok": all_well,
            "configuration": CONFIG,
            "topology": picture(),
            "notes": host.notes(),
            "checks": self.rows,
            "flowstat": list(&["flowstat", "-j"], "flows"),
            "dlstat": list(&["dlstat", "-j"], "links"),
            "drops": drops,
        });
        session.json("demo", &demo, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_one_line_with_its_verdict() {
        let row = Row::new("ping", "5 answers", "5 answers".into(), true);
        assert_eq!(row.line(), format!("{:<33} {:<14} ok     5 answers\n", "ping", "5 answers"));
        assert!(Row::failed("ping", "5 answers", "no route").line().contains("FAILED no route"));
    }
}
