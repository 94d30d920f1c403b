//! A truthful snapshot of a connection: what `TCP_INFO`, `netstat` and `connstat` show.
//!
//! Every field is read where it is kept, at the moment of asking; nothing is estimated for the sake of filling
//! a field. The layouts of other systems are made from this by whoever speaks them.

use core::time::Duration;

use firelane_units::{BitRate, Bytes, Instant, Mss, SeqNum};

use crate::busy::BusyTimes;
use crate::congestion::Algorithm;
use crate::connection::Connection;
use crate::counts::{Counts, Troubles};
use crate::flight::Phase;
use crate::state::State;

/// What is known of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// The state of RFC 9293.
    pub state: State,
    /// The state of the sender.
    pub phase: Phase,
    /// Which congestion control decides.
    pub congestion: Algorithm,
    /// Both ends send timestamps.
    pub timestamps: bool,
    /// The peer understands SACK.
    pub sack: bool,
    /// Both ends take part in ECN.
    pub ecn: bool,
    /// The peer has sent something that could be marked.
    pub ecn_seen: bool,
    /// The SYN carried text, which was taken (RFC 7413).
    pub syn_text: bool,
    /// Why that of our SYN was not, as Linux numbers it: no cookie, not acknowledged, repeated without.
    pub fast_open_failure: u8,
    /// The shifts of the peer's windows and of ours, if both scale.
    pub window_scales: Option<(u8, u8)>,
    /// The text of a full segment that we send.
    pub send_mss: Mss,
    /// The largest segment that the path takes, headers of IP and TCP excluded, as far as we know.
    pub path_mss: Mss,
    /// The largest segment that we announced.
    pub receive_mss: Mss,
    /// The largest segment that the peer was seen to send.
    pub receive_segment: u16,
    /// How long an ACK may wait.
    pub delayed_ack: Duration,
    /// The retransmission time-out, backed off.
    pub rto: Duration,
    /// The smoothed round-trip time, once there was a sample.
    pub rtt: Option<Duration>,
    /// Its mean deviation.
    pub rtt_variation: Duration,
    /// The least round-trip time of the last minutes.
    pub rtt_minimum: Option<Duration>,
    /// Retransmission time-outs in a row, also of the SYN.
    pub timeouts: u8,
    /// How often the time-out was doubled.
    pub backoff: u8,
    /// Window probes in a row.
    pub window_probes: u8,
    /// Keepalive probes in a row.
    pub keepalive_probes: u8,
    /// The congestion window.
    pub congestion_window: Bytes,
    /// The slow start threshold, after the first loss.
    pub slow_start_threshold: Option<Bytes>,
    /// The peer's window, as last announced.
    pub send_window: Bytes,
    /// Our window, as last announced and not used up.
    pub receive_window: Bytes,
    /// Sent and believed to be on the way.
    pub in_flight: Bytes,
    /// Sent and not cumulatively acknowledged, FIN included.
    pub unacknowledged: Bytes,
    /// Selectively acknowledged.
    pub sacked: Bytes,
    /// Under way for the second time or more.
    pub repeated: Bytes,
    /// Believed lost and not sent again yet.
    pub lost: Bytes,
    /// Text that was acknowledged, ever.
    pub bytes_acknowledged: Bytes,
    /// Text that arrived in order, ever.
    pub bytes_received: Bytes,
    /// The rate at which segments leave, if anything paces them.
    pub pacing_rate: Option<BitRate>,
    /// The most of it that the program asked for.
    pub pacing_limit: Option<BitRate>,
    /// The rate of delivery that was last measured.
    pub delivery_rate: Option<BitRate>,
    /// The program, not the path, limited that rate.
    pub app_limited: bool,
    /// The round trip that the receiver sees, once it measured one.
    pub receive_rtt: Option<Duration>,
    /// Since data last left; the SYN, before any did.
    pub last_sent: Duration,
    /// Since text last arrived, or since the handshake if none did.
    pub last_text: Duration,
    /// Since the peer was last heard.
    pub last_heard: Duration,
    /// How many round trips were measured, and their sum.
    pub rtt_measured: (u32, Duration),
    /// How long there was something to send.
    pub busy: BusyTimes,
    /// How long the peer was silent after time-outs.
    pub silent: Duration,
    /// Segments, ever.
    pub counts: Counts,
    /// What was unusual about them.
    pub troubles: Troubles,
}

impl Info {
    /// Segments with text or FIN that left for the first time.
    pub fn text_out_once(&self) -> u32 {
        // A SYN that was repeated is no text.
        let repeated = self.troubles.repeated.wrapping_sub(self.troubles.repeated_syns);
        self.counts.text_out.wrapping_sub(repeated)
    }
}

impl Connection {
    /// The next number that we send, the oldest that the peer has not acknowledged, the next that we expect, and the
    /// last that we acknowledged.
    pub fn sequence(&self) -> [SeqNum; 4] {
        let (send, receive) = (&self.send.space, &self.receive.space);
        let (una, nxt) = (self.flight.una(), self.flight.nxt());
        [send.seq(nxt), send.seq(una), receive.seq(self.receive.nxt), receive.seq(self.receive.acknowledged)]
    }

    /// What is known of the connection at `now`.
    pub fn info(&self, now: Instant) -> Info {
        let (flight, rtt) = (&self.flight, self.flight.rtt());
        let (una, nxt) = (flight.una(), flight.nxt());
        let is_asking = self.state == State::SynSent;
        let last_sent_at = if is_asking { self.progress_at } else { flight.last_sent_at() };
        Info {
            state: self.state,
            phase: flight.phase(),
            congestion: flight.algorithm(),
            timestamps: self.stamps.is_on(),
            sack: self.send.sack,
            ecn: self.ecn.is_on(),
            ecn_seen: self.ecn.is_seen(),
            syn_text: self.had_text_in_syn(),
            fast_open_failure: self.fast_open_failure() as u8,
            window_scales: self.send.scaled.then_some((self.send.scale, self.receive.scale)),
            send_mss: self.text_per_segment(),
            path_mss: self.send.path_mss,
            receive_mss: self.receive.mss,
            receive_segment: self.receive.segment(),
            delayed_ack: self.config.delayed_ack,
            rto: rtt.rto().duration(),
            rtt: rtt.smoothed(),
            rtt_variation: rtt.variation(),
            rtt_minimum: rtt.minimum(),
            timeouts: if is_asking { self.syn_retries } else { flight.timeouts() },
            backoff: rtt.backoff(),
            window_probes: self.send.persist_backoff,
            keepalive_probes: self.keepalive_probes,
            congestion_window: flight.window(),
            slow_start_threshold: flight.slow_start_threshold(),
            send_window: Bytes(self.send.window.into()),
            receive_window: Bytes(self.receive.promised.saturating_sub(self.receive.nxt)),
            in_flight: flight.in_flight(),
            unacknowledged: Bytes(nxt - una),
            sacked: flight.sacked(),
            repeated: flight.resent(),
            lost: flight.lost(),
            bytes_acknowledged: Bytes(una.min(self.send.fin)),
            bytes_received: Bytes(self.receive.text_end()),
            pacing_rate: flight.pacing_rate(self.options.pacing_limit()),
            pacing_limit: self.options.pacing_limit(),
            delivery_rate: flight.delivery_rate().and_then(|sample| sample.rate()),
            app_limited: flight.delivery_rate().is_some_and(|sample| sample.app_limited),
            receive_rtt: self.receive.round_trip(),
            last_sent: now.saturating_since(last_sent_at),
            last_text: Duration::from_millis(self.counts.since_text(now).into()),
            last_heard: now.saturating_since(self.heard_at),
            rtt_measured: rtt.measured(),
            busy: self.busy_times(now),
            silent: Duration::from_millis(self.troubles.as_deref().map_or(0, |it| it.silent(now)).into()),
            counts: self.counts,
            troubles: self.troubles.as_deref().copied().unwrap_or_default(),
        }
    }
}
