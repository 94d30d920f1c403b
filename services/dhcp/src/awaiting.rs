//! The exchange that a client has open, as its netstack knows it: the answer passes the netstack's filter and its translation of
//! addresses. Held by the tasks, `task.rs`, `informer.rs` and `v6/task.rs`; who ends one leaves nothing open.

use firelane::Stack;
use firelane_units::{Family, LinkId};

/// What a client waits for.
#[derive(Debug)]
pub(crate) struct Awaiting {
    stack: Stack,
    link: LinkId,
    family: Family,
    number: Option<u32>,
}

impl Awaiting {
    /// Nothing is asked yet on `link` of `stack`.
    pub(crate) fn new(stack: &Stack, link: LinkId, family: Family) -> Self {
        Self { stack: stack.clone(), link, family, number: None }
    }

    /// The exchange with this number is open from here on, before its question is sent, or none is. A netstack hears what is new to it.
    pub(crate) fn follow(&mut self, number: Option<u32>) {
        if std::mem::replace(&mut self.number, number) == number {
            return;
        }
        let (engine, id) = (self.stack.engine(), self.stack.id());
        if let Err(error) = engine.await_answer(id, self.link, self.family, number) {
            tracing::debug!("DHCP answer on link {}: {error}", self.link.0);
        }
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        self.follow(None);
    }
}
