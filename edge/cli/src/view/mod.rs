//! `netstat` and `connstat`: what sockets, routes and interfaces there are.
//!
//! Sockets come from the daemon in pages, and are printed page by page: a million of them need no more memory than
//! a few.

pub(crate) mod connstat;
mod counters;
mod dhcp;
mod memory;
pub(crate) mod netstat;
mod tables;

use firelane_api::{ApiError, SocketInfo, Status};

use crate::session::{Failure, Session};

/// Calls `each` with every page of sockets.
fn each_page(
    session: &mut Session<'_>,
    netstack: Option<&str>,
    mut each: impl FnMut(&mut Session<'_>, Vec<SocketInfo>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut after: Option<String> = None;
    loop {
        let page = session.api.sockets(netstack, after.as_deref());
        let page = page.map_err(|error| no_sockets(netstack, &error))?;
        each(session, page.sockets)?;
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

fn no_sockets(netstack: Option<&str>, error: &ApiError) -> Failure {
    match (error.status, netstack) {
        (Status::NotFound, Some(name)) => no_netstack(name),
        _ => crate::session::die_status("could not get sockets", error),
    }
}

fn no_netstack(name: &str) -> Failure {
    crate::session::die(format!("no netstack is called {name}"))
}

/// A JSON list of unknown length, an element per line: `{"version":1,"NAME":[...]}`. Nothing of it is printed before there is an answer,
/// so that who gets none has no document that breaks off.
struct JsonList {
    name: &'static str,
    /// What stands before the next element.
    before: String,
}

impl JsonList {
    fn new(name: &'static str) -> Self {
        Self { name, before: Self::head(name) + "\n" }
    }

    fn head(name: &str) -> String {
        format!("{{\"version\":1,\"{name}\":[")
    }

    fn push(&mut self, session: &mut Session<'_>, value: &impl serde::Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(std::io::Error::from)?;
        let before = core::mem::replace(&mut self.before, ",\n".to_owned());
        Ok(write!(session.out, "{before}{text}")?)
    }

    fn close(self, session: &mut Session<'_>) -> Result<(), Failure> {
        match self.before.as_str() {
            ",\n" => writeln!(session.out, "\n]}}")?,
            _ => writeln!(session.out, "{}]}}", Self::head(self.name))?,
        }
        Ok(session.out.flush()?)
    }
}
