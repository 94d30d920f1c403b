//! What a model of the path hears of the fate of sent data (draft-ietf-ccwg-bbr §5.2).
//!
//! A connection whose congestion control is BBR tells its model of each ACK, loss, recovery and undoing; the model
//! answers with the window. Proportional rate reduction and thresholds have no say then. Called by `recovery` only.

use firelane_units::{Bytes, Instant};

use super::ack::News;
use super::{Path, Recovery};
use crate::congestion::bbr::{Bbr, BbrAck};

impl Recovery {
    pub(crate) fn model(&self) -> Option<&Bbr> {
        self.model.as_deref()
    }

    pub(crate) fn model_mut(&mut self) -> Option<&mut Bbr> {
        self.model.as_deref_mut()
    }

    /// Congestion control has changed.
    pub(crate) fn set_model(&mut self, model: Option<Box<Bbr>>) {
        self.model = model;
    }

    /// An ACK: the model is brought up to date and gives the window.
    pub(super) fn follow_model(
        &mut self,
        now: Instant,
        delivered: Bytes,
        limited: bool,
        path: &mut Path<'_>,
        news: &News,
    ) {
        let (in_flight, in_recovery) = (self.in_flight(path.mss), self.is_recovering());
        let (Some(model), Some(sample)) = (&mut self.model, news.sample) else { return };
        let ack = BbrAck {
            now,
            rate: sample.rate().map_or(0, |rate| rate.bps() / 8),
            volume: sample.delivered.0,
            app_limited: sample.app_limited,
            prior_delivered: sample.prior_delivered.0,
            delivered: self.rate.delivered().0,
            newly_delivered: delivered.0,
            tx_in_flight: sample.in_flight.0,
            lost: (self.sent.lost_ever() as u32).wrapping_sub(sample.lost_before).into(),
            shows_loss: news.lost > 0,
            rtt: news.newest.map(|at| now.saturating_since(at)),
            in_flight: in_flight.0,
            window_limited: limited,
            in_recovery,
            sack: path.sack,
        };
        let window = model.on_ack(&ack, path.control.window());
        path.control.set_window(window);
        if model.holds_back() {
            self.rate.on_app_limited(in_flight);
        }
    }

    /// Ranges were found lost.
    pub(super) fn tell_losses(&mut self, now: Instant, path: &Path<'_>) {
        let note = self.sent.take_note();
        if let (Some(model), Some(note)) = (&mut self.model, note) {
            model.on_lost(now, self.rate.delivered().0, &note, path.control.window(), path.sack);
        }
    }

    /// The peer echoed a congestion mark. Says whether there is a model: to it a mark is a round with losses.
    pub(super) fn tell_mark(&mut self, path: &Path<'_>) -> bool {
        let Some(model) = &mut self.model else { return false };
        model.note_congestion(self.rate.delivered().0, path.control.window());
        self.is_reduced = true;
        self.set_point(true);
        true
    }

    /// A recovery begins.
    pub(super) fn tell_recovery(&mut self, path: &Path<'_>) {
        let in_recovery = self.is_recovering();
        if let Some(model) = &mut self.model {
            model.on_recovery(path.control.window(), in_recovery);
        }
    }

    /// A recovery has ended: the window of before, within what the model allows from the next ACK on.
    pub(super) fn tell_recovered(&self, path: &mut Path<'_>) {
        if let Some(model) = &self.model {
            path.control.set_window(model.on_recovered(path.control.window()));
        }
    }

    /// Nothing had been lost.
    pub(super) fn tell_undo(&mut self) {
        if let Some(model) = &mut self.model {
            model.on_undo(self.rate.delivered().0);
        }
    }
}
