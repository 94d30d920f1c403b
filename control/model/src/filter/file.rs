//! `ipf.conf` as a whole: its rules with their lines, or every line that is wrong.

use super::error::RuleError;
use super::rule::{PlacedRule, of_tokens};
use super::tokens;
use crate::FileError;
use crate::limits::{FILTER_RULES_MAX, MODEL_TEXT_MAX};

/// The faults of one file that are shown.
const FAULTS_SHOWN_MAX: usize = 100;

/// A rule, and the line on which it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IpfLine {
    /// From 1.
    pub line: usize,
    /// What stands there.
    pub rule: PlacedRule,
}

/// The rules of an `ipf.conf`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IpfFile {
    /// Its name, as it was given.
    pub name: String,
    /// Its rules.
    pub lines: Vec<IpfLine>,
}

impl IpfFile {
    /// Reads `text`, the file called `name`. Errs with the first hundred lines that are wrong.
    pub fn read(name: &str, text: &str) -> Result<Self, Vec<FileError>> {
        let fault = |line, message| FileError { file: name.to_owned(), line, message };
        if text.len() > MODEL_TEXT_MAX {
            return Err(vec![fault(1, format!("the file has more than {MODEL_TEXT_MAX} bytes"))]);
        }
        let (mut lines, mut faults) = (Vec::new(), Vec::new());
        for tokens in tokens::rules(text) {
            match of_tokens(&tokens) {
                Ok(rule) => lines.push(IpfLine { line: tokens[0].line, rule }),
                Err(error) => faults.push(error),
            }
            if lines.len() > FILTER_RULES_MAX {
                return Err(vec![fault(tokens[0].line, format!("more than {FILTER_RULES_MAX} rules"))]);
            }
            if faults.len() == FAULTS_SHOWN_MAX {
                break;
            }
        }
        let told = |error: RuleError| fault(error.line, error.to_string());
        if faults.is_empty() {
            return Ok(Self { name: name.to_owned(), lines });
        }
        Err(faults.into_iter().map(told).collect())
    }

    /// Where a rule stands that is written `text`.
    pub fn line_of(&self, text: &str) -> Option<usize> {
        self.lines.iter().find(|it| it.rule.rule.to_string() == text).map(|it| it.line)
    }
}
