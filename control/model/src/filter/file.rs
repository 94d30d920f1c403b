//! `ipf.conf` or `ipnat.conf` as a whole: its rules with their lines, or every line that is wrong.

use super::error::RuleError;
use super::nat::IpnatRule;
use super::rule::PlacedRule;
use super::tokens::Token;
use super::{nat, rule, tokens};
use crate::FileError;
use crate::limits::{FILTER_RULES_MAX, MODEL_TEXT_MAX, NAT_RULES_MAX};

/// The faults of one file that are shown.
const FAULTS_SHOWN_MAX: usize = 100;

/// A rule, and the line on which it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleLine<R> {
    /// From 1.
    pub line: usize,
    /// What stands there.
    pub rule: R,
}

/// The rules of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleFile<R> {
    /// Its name, as it was given.
    pub name: String,
    /// Its rules.
    pub lines: Vec<RuleLine<R>>,
}

/// The rules of an `ipf.conf`.
pub type IpfFile = RuleFile<PlacedRule>;
/// The rules of an `ipnat.conf`.
pub type IpnatFile = RuleFile<IpnatRule>;

impl IpfFile {
    /// Reads `text`, the file called `name`. Errs with the first hundred lines that are wrong.
    pub fn read(name: &str, text: &str) -> Result<Self, Vec<FileError>> {
        Self::read_with(name, text, FILTER_RULES_MAX, rule::of_tokens)
    }

    /// Where a rule stands that is written `text`: of several places the last, since it is the second one that is refused.
    pub fn line_of(&self, text: &str) -> Option<usize> {
        self.lines.iter().rfind(|it| it.rule.rule.to_string() == text).map(|it| it.line)
    }
}

impl IpnatFile {
    /// Reads `text`, the file called `name`. Errs with the first hundred lines that are wrong.
    pub fn read(name: &str, text: &str) -> Result<Self, Vec<FileError>> {
        Self::read_with(name, text, NAT_RULES_MAX, nat::of_tokens)
    }

    /// Where a rule stands that is written `text`: of several places the last, since it is the second one that is refused.
    pub fn line_of(&self, text: &str) -> Option<usize> {
        self.lines.iter().rfind(|it| it.rule.to_string() == text).map(|it| it.line)
    }
}

impl<R> RuleFile<R> {
    fn read_with(
        name: &str,
        text: &str,
        most: usize,
        read: impl Fn(&[Token<'_>]) -> Result<R, RuleError>,
    ) -> Result<Self, Vec<FileError>> {
        let fault = |line, message| FileError { file: name.to_owned(), line, message };
        if text.len() > MODEL_TEXT_MAX {
            return Err(vec![fault(1, format!("the file has more than {MODEL_TEXT_MAX} bytes"))]);
        }
        let (mut lines, mut faults) = (Vec::new(), Vec::new());
        for tokens in tokens::rules(text) {
            match read(&tokens) {
                Ok(rule) => lines.push(RuleLine { line: tokens[0].line, rule }),
                Err(error) => faults.push(error),
            }
            if lines.len() > most {
                return Err(vec![fault(tokens[0].line, format!("more than {most} rules"))]);
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
}
