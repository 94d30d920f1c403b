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

use firelane_api::{ApiError, SocketInfo};

use crate::session::{Failure, Session};

/// Calls `each` with every page of sockets.
fn each_page(
    session: &mut Session<'_>,
    netstack: Option<&str>,
    mut each: impl FnMut(&mut Session<'_>, Vec<SocketInfo>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut after: Option<String> = None;
    loop {
        let page = session.api.sockets(netstack, after.as_deref()).map_err(no_netstack)?;
        each(session, page.sockets)?;
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

fn no_netstack(error: ApiError) -> Failure {
    crate::session::die_status("could not get sockets", &error)
}

/// A JSON list of unknown length, an element per line: `{"version":1,"NAME":[...]}`.
struct JsonList {
    first: bool,
}

impl JsonList {
    fn open(session: &mut Session<'_>, name: &str) -> Result<Self, Failure> {
        write!(session.out, "{{\"version\":1,\"{name}\":[")?;
        Ok(Self { first: true })
    }

    fn push(&mut self, session: &mut Session<'_>, value: &impl serde::Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(std::io::Error::from)?;
        let before = if self.first { "\n" } else { ",\n" };
        self.first = false;
        Ok(write!(session.out, "{before}{text}")?)
    }

    fn close(self, session: &mut Session<'_>) -> Result<(), Failure> {
        writeln!(session.out, "{}]}}", if self.first { "" } else { "\n" })?;
        Ok(session.out.flush()?)
    }
}
