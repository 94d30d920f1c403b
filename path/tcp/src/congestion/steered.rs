//! A window that a model steers from outside: BBR's.
//!
//! Nothing moves it but the model, time-outs and restarts, which come through [`super::Control::set_window`].

use core::time::Duration;

use firelane_units::Bytes;

use super::{AckSample, Window};

/// The window of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steered {
    pub(super) window: Window,
}

impl Steered {
    /// Begins with `window`.
    pub fn new(window: Window) -> Self {
        Self { window: window.without_threshold() }
    }

    pub(super) fn on_ack(&mut self, _ack: &AckSample) {}

    pub(super) fn on_loss(&mut self, _outstanding: Bytes) {}

    pub(super) fn on_slow_start(&mut self) {}

    pub(super) fn on_idle(&mut self, _idle: Duration) {}
}
