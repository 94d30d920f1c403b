//! Requests of programs that need the host's word while it is being changed. A change can take seconds (interfaces are made, a kernel
//! is waited for), and one thread serves all programs: so who asks then waits by himself, and the others are answered.
//!
//! Owned by `programs.rs`, which asks for each request whether it has to wait, and now and then whether the change is over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use firelane::Foreign;
use firelane_shm::control::{OWN_FILTER, OWN_LEVEL, Request};

use crate::devices;

/// How often the host is looked at while somebody waits for it.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Who waits, by the keys of their connections: one request each, for nobody is listened to who waits.
#[derive(Debug, Default)]
pub(crate) struct Held(BTreeMap<u64, HeldRequest>);

/// A request, its number, and what came with it.
#[derive(Debug)]
pub(crate) struct HeldRequest {
    pub(crate) number: u32,
    pub(crate) request: Request,
    pub(crate) fds: Foreign,
}

/// Whether the host is asked for the answer.
pub(crate) fn asks_host(request: &Request) -> bool {
    match request {
        Request::Hello { .. } | Request::Interfaces => true,
        Request::SetOption { level: OWN_LEVEL, name: OWN_FILTER, .. } => true,
        other => devices::are_named(other),
    }
}

impl Held {
    /// It waits.
    pub(crate) fn put(&mut self, key: u64, held: HeldRequest) {
        self.0.insert(key, held);
    }

    /// Nobody wants it answered any more. Whether it has waited.
    pub(crate) fn forget(&mut self, key: u64) -> bool {
        self.0.remove(&key).is_some()
    }

    /// Nobody has to wait any more: all of them, if there are any.
    pub(crate) fn take(&mut self, may_go_on: impl FnOnce() -> bool) -> BTreeMap<u64, HeldRequest> {
        if self.0.is_empty() || !may_go_on() { BTreeMap::new() } else { std::mem::take(&mut self.0) }
    }

    /// When to look at the host.
    pub(crate) fn alarm(&self) -> Option<Instant> {
        (!self.0.is_empty()).then(|| Instant::now() + LOOK_EVERY)
    }
}
