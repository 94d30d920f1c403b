//! What was known of connections at their end, for as long as their programs have the sockets: Linux answers
//! `getsockopt(TCP_INFO)` of them as before.
//!
//! A shard keeps it: `outbound` puts it there when a connection goes whose program has not closed it, `commands` takes it away when
//! the program does, and `mod` answers from it. There are never more than sockets that programs hold.

use std::collections::BTreeMap;

use firelane_socket::{ConnRef, Flags};
use firelane_tcp::State;
use firelane_units::Instant;

use super::conn::{Conn, Program};
use crate::stream_info::StreamInfo;

/// What is left of connections, by the names that they had.
#[derive(Debug, Default)]
pub(crate) struct Ended(BTreeMap<ConnRef, Box<Last>>);

#[derive(Debug)]
struct Last {
    at: Instant,
    info: StreamInfo,
}

impl Ended {
    /// `conn` goes. One that never stood, or that nobody accepted, leaves nothing: Linux takes the socket of the former back to
    /// where it began, and the latter has no socket.
    pub(crate) fn keep(&mut self, now: Instant, conn: &Conn) {
        let flags = conn.stream.shared().words().flags();
        let is_somebodys = flags.contains(Flags::CONNECTED)
            && (conn.listener().is_none() || flags.contains(Flags::ACCEPTED));
        if conn.program == Program::Gone || !is_somebodys {
            return;
        }
        let name = conn.stream.shared().conn();
        if let (Some(name), Some(mut info)) = (name, conn.info(now)) {
            info.tcp.state = State::Closed;
            self.0.insert(name, Box::new(Last { at: now, info }));
        }
    }

    /// Its program has closed the socket.
    pub(crate) fn forget(&mut self, name: ConnRef) {
        self.0.remove(&name);
    }

    /// Forgets one of them, if there is one. Whether there was.
    pub(super) fn forget_first(&mut self) -> bool {
        self.0.pop_first().is_some()
    }

    /// What was known at its end; silence has lasted since.
    pub(crate) fn info(&self, now: Instant, name: ConnRef) -> Option<StreamInfo> {
        let Last { at, mut info } = **self.0.get(&name)?;
        let since = now.saturating_since(at);
        let tcp = &mut info.tcp;
        [&mut tcp.last_sent, &mut tcp.last_text, &mut tcp.last_heard].into_iter().for_each(|it| *it += since);
        Some(info)
    }
}
