//! The end of what runs beside a test: it has to come also when the test fails, or the scope of its threads stays open for ever.

use std::sync::atomic::{AtomicBool, Ordering};

/// Says when it goes that the test is over.
pub(crate) struct Ending<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
