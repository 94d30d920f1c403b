//! What request/response means here, the same over every stack: 64 bytes there and 64 bytes back, on each of 64
//! connections at once, the next request as soon as the answer is there.

use std::time::Duration;

use crate::report::Samples;

/// The size of a request and of its answer.
pub(crate) const REQUEST_BYTES: usize = 64;
/// Connections.
pub(crate) const CONNECTIONS: usize = 64;

/// Rates of several rounds.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    /// Million requests with their answers per second: one lane or process makes them, the other answers.
    pub(crate) wall: Samples,
    /// Million per second of CPU time of both.
    pub(crate) cpu: Samples,
}

impl Rates {
    pub(crate) fn push(&mut self, requests: u64, wall: Duration, busy: Duration) {
        let millions = requests as f64 * 1e-6;
        self.wall.push(millions / wall.as_secs_f64());
        self.cpu.push(millions / busy.as_secs_f64());
    }
}
