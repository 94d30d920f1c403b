//! Why a rule is refused: the token, and what is allowed in its place.

use core::fmt;

use crate::value::refusal;

/// Why a rule is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleError {
    /// On which line of the text, from 1.
    pub line: usize,
    /// The word at fault; empty if the rule ended too early.
    pub token: String,
    /// What is allowed, or why this is not.
    pub allowed: String,
}

impl RuleError {
    pub(super) fn new(line: usize, token: impl fmt::Display, allowed: impl Into<String>) -> Self {
        Self { line, token: token.to_string(), allowed: allowed.into() }
    }
}

impl fmt::Display for RuleError {
    /// `"token": what is allowed`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.token.as_str() {
            "" => write!(f, "the rule ends here: {}", self.allowed),
            token => f.write_str(&refusal(&format!("{token:?}"), &self.allowed)),
        }
    }
}

impl core::error::Error for RuleError {}
