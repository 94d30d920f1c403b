//! What is wrong with a configuration: the field, its value, and what is allowed, on one line.

use core::fmt;

use crate::value::refusal;

/// One fault of a model. The field is a path in the file's own words, `vnic.web0.over`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldError {
    /// Where: the path of the field.
    pub field: String,
    /// What stands there; empty if nothing does.
    pub value: String,
    /// What is allowed, or why this is not.
    pub allowed: String,
}

impl FieldError {
    pub(crate) fn new(
        field: impl fmt::Display,
        value: impl fmt::Display,
        allowed: impl Into<String>,
    ) -> Self {
        Self { field: field.to_string(), value: value.to_string(), allowed: allowed.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            return write!(f, "{}: {}", self.field, self.allowed);
        }
        write!(f, "{}: {}", self.field, refusal(&format!("{:?}", self.value), &self.allowed))
    }
}

impl core::error::Error for FieldError {}

/// One fault of a configuration file: `file:line: field: "value": what is allowed`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileError {
    /// The file's name, as it was given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The rest, on one line.
    pub message: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl core::error::Error for FileError {}
