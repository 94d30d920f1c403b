//! What a command may touch: the daemon's interface, two outputs, the terminal's height, and sleep.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use firelane_api::{Api, ApiError, Status};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::common::{plain, system_message};

/// The world of one command.
pub struct Session<'a> {
    /// The daemon, or what stands for it.
    pub api: &'a dyn Api,
    /// Data.
    pub out: &'a mut dyn Write,
    /// Messages.
    pub err: &'a mut dyn Write,
    /// The terminal's height; none if the output is no terminal.
    pub rows: Option<usize>,
    /// Sleeps between two reports and says whether to make another.
    pub sleep: &'a mut dyn FnMut(Duration) -> bool,
}

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// `program: message` on the error output.
    Die(String),
    /// A text that stands for itself, such as a usage.
    Text(String),
    /// How a command is used, which was asked for.
    Help(String),
    /// Everything has been said.
    Said,
    /// The output could not be written.
    Output(std::io::Error),
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}

/// Gives the failure `program: message`.
pub(crate) fn die(message: impl Into<String>) -> Failure {
    Failure::Die(message.into())
}

/// Gives the failure `program: what: status`; a daemon that does not answer needs no `what`.
pub(crate) fn die_status(what: &str, error: &ApiError) -> Failure {
    match error.status {
        Status::NoDaemon => Failure::Die(error.to_string()),
        _ => Failure::Die(format!("{what}: {error}")),
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Die(error.to_string())
    }
}

impl Session<'_> {
    /// Says why a command ended, and gives its exit code: `failed` if it did.
    pub(crate) fn report(&mut self, program: &str, result: Result<(), Failure>, failed: u8) -> u8 {
        let result = match result {
            Err(Failure::Help(usage)) => writeln!(self.out, "{usage}").map_err(Failure::from),
            other => other,
        };
        // Nothing is left to be done when the error output itself is gone.
        let _ = match result {
            Ok(()) => return 0,
            Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => return 0,
            Err(Failure::Output(error)) => {
                writeln!(self.err, "{program}: cannot write: {}", system_message(&error))
            }
            Err(Failure::Die(message)) => writeln!(self.err, "{program}: {}", plain(&message)),
            Err(Failure::Text(text) | Failure::Help(text)) => writeln!(self.err, "{text}"),
            Err(Failure::Said) => Ok(()),
        };
        failed
    }

    /// `program: warning: message`.
    pub(crate) fn warn(&mut self, program: &str, message: &str) {
        // As in `report`.
        let _ = writeln!(self.err, "{program}: warning: {message}");
    }

    /// One JSON document, `{"version":1,"NAME":...}`: for people over lines, in a stream on one line.
    pub(crate) fn json(&mut self, name: &str, value: &impl Serialize, stream: bool) -> Result<(), Failure> {
        let document = Document { name, value };
        let text =
            if stream { serde_json::to_string(&document) } else { serde_json::to_string_pretty(&document) };
        writeln!(self.out, "{}", text.map_err(std::io::Error::from)?)?;
        Ok(self.out.flush()?)
    }
}

/// The version of the documents' schema.
const DOCUMENT_VERSION: u32 = 1;

struct Document<'a, T> {
    name: &'a str,
    value: &'a T,
}

impl<T: Serialize> Serialize for Document<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(2))?;
        map.serialize_entry("version", &DOCUMENT_VERSION)?;
        map.serialize_entry(self.name, self.value)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::testing::capture;

    #[test]
    fn an_output_that_takes_nothing_is_told_in_the_systems_words() {
        let full = || Err(Failure::Output(rustix::io::Errno::NOSPC.into()));
        let said = "prog: cannot write: No space left on device\n".to_owned();
        assert_eq!(capture(None, |_| full()), (String::new(), said));
        assert_eq!(capture(None, |_| Err(Failure::Help("usage: prog".to_owned()))).0, "usage: prog\n");
    }
}
