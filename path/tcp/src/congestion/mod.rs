//! Congestion control: how many bytes may be under way.
//!
//! Owns the congestion window. [`Control`] is an enum, so the packet path dispatches statically; each
//! algorithm has a file, and what they share is in `window`. Called by `recovery` only, which decides when
//! something was lost; the algorithm answers with a threshold, and proportional rate reduction leads the
//! window there.
//!
//! Per ACK outside fast recovery: [`Control::on_ack`]. At a loss: [`Control::on_loss`], then per ACK
//! [`Control::set_window`] with what PRR says, at the end [`Control::on_recovered`]. At a time-out:
//! [`Control::on_timeout`]. A control is `Copy`: undoing a reduction is restoring a copy.

pub mod bbr;
mod cubic;
mod dctcp;
mod hystart;
mod newreno;
mod steered;
mod window;

use core::time::Duration;

use firelane_units::{BitRate, Bytes, Instant, Mss};

pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use hystart::{HyStart, Pace};
pub use newreno::NewReno;
pub use steered::Steered;
pub use window::{WINDOW_MAX, Window};

/// Which algorithm a connection uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// RFC 9438 with HyStart++ (RFC 9406).
    #[default]
    Cubic,
    /// RFC 5681 with appropriate byte counting (RFC 3465).
    NewReno,
    /// RFC 8257, for networks that mark early.
    Dctcp,
    /// draft-ietf-ccwg-bbr (BBRv3): follows a model of the path.
    Bbr,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cubic, Self::NewReno, Self::Dctcp, Self::Bbr];

    /// The word used by properties and `tcp_info`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "newreno",
            Self::Dctcp => "dctcp",
            Self::Bbr => "bbr",
        }
    }

    /// The algorithm called `word`.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.word() == word)
    }
}

/// What an ACK tells congestion control.
#[derive(Clone, Copy, Debug)]
pub struct AckSample {
    /// When it came.
    pub now: Instant,
    /// Bytes that it delivered for the first time.
    pub delivered: Bytes,
    /// The cumulative acknowledgement after it.
    pub una: u64,
    /// The end of what was sent.
    pub nxt: u64,
    /// The round trip of the newest range that it acknowledges, if it measures one.
    pub rtt: Option<Duration>,
    /// The smoothed round-trip time; zero if there is none.
    pub smoothed: Duration,
    /// Whether the window limited what was sent: only then does an ACK show that the path carries more
    /// (RFC 7661).
    pub window_limited: bool,
}

/// The congestion control of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// CUBIC.
    Cubic(Cubic),
    /// NewReno.
    NewReno(NewReno),
    /// DCTCP.
    Dctcp(Dctcp),
    /// The window of BBR, whose model is `flight`'s.
    Bbr(Steered),
}

macro_rules! each {
    ($self:expr, $inner:ident => $body:expr) => {
        match $self {
            Self::Cubic($inner) => $body,
            Self::NewReno($inner) => $body,
            Self::Dctcp($inner) => $body,
            Self::Bbr($inner) => $body,
        }
    };
}

impl Control {
    /// A control in slow start with an initial window of `segments` (RFC 6928).
    pub fn new(algorithm: Algorithm, mss: Mss, segments: u16) -> Self {
        Self::beginning_with(algorithm, Window::initial(mss, segments))
    }

    fn beginning_with(algorithm: Algorithm, window: Window) -> Self {
        match algorithm {
            Algorithm::Cubic => Self::Cubic(Cubic::new(window)),
            Algorithm::NewReno => Self::NewReno(NewReno::new(window)),
            Algorithm::Dctcp => Self::Dctcp(Dctcp::new(window)),
            Algorithm::Bbr => Self::Bbr(Steered::new(window)),
        }
    }

    fn inner(&self) -> &Window {
        each!(self, inner => &inner.window)
    }

    fn inner_mut(&mut self) -> &mut Window {
        each!(self, inner => &mut inner.window)
    }

    /// An initial window of `segments`, whatever their size: Linux' reading of RFC 6928.
    pub fn set_initial_segments(&mut self, segments: u16) {
        let window = self.inner_mut();
        window.set(u64::from(segments) * u64::from(window.mss()));
    }

    /// `algorithm`, going on from the present window.
    pub fn turned_into(&self, algorithm: Algorithm) -> Self {
        Self::beginning_with(algorithm, *self.inner())
    }

    /// How fast a paced connection sends; `None` before the first round trip. As in Linux, faster than a window per
    /// round trip: twice as fast while the window doubles, else by a fifth, so that it may grow.
    pub fn pacing_rate(&self, smoothed: Option<Duration>) -> Option<BitRate> {
        let nanos = smoothed?.as_nanos().max(1);
        let (window, threshold) = (self.window().0, self.slow_start_threshold());
        let doubles = threshold.is_none_or(|threshold| window < threshold.0 / 2);
        let percent = if doubles { 200 } else { 120 };
        let bits = u128::from(window) * 8 * percent * 10_000_000 / nanos;
        Some(BitRate::from_bps(u64::try_from(bits).unwrap_or(u64::MAX)))
    }

    /// Which algorithm it is.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Self::Cubic(_) => Algorithm::Cubic,
            Self::NewReno(_) => Algorithm::NewReno,
            Self::Dctcp(_) => Algorithm::Dctcp,
            Self::Bbr(_) => Algorithm::Bbr,
        }
    }

    /// The congestion window.
    pub fn window(&self) -> Bytes {
        Bytes(self.inner().bytes().into())
    }

    /// The slow start threshold; `None` before the first loss.
    pub fn slow_start_threshold(&self) -> Option<Bytes> {
        self.inner().threshold()
    }

    /// Whether the window grows exponentially.
    pub fn in_slow_start(&self) -> bool {
        !matches!(self, Self::Bbr(_)) && self.inner().in_slow_start()
    }

    /// Sets the window to what proportional rate reduction found.
    pub fn set_window(&mut self, window: Bytes) {
        self.inner_mut().set(window.0);
    }

    /// The path's segment size changed.
    pub fn set_mss(&mut self, mss: Mss) {
        self.inner_mut().set_mss(mss);
    }

    /// An ACK outside fast recovery delivered something.
    pub fn on_ack(&mut self, ack: &AckSample) {
        each!(self, inner => inner.on_ack(ack));
    }

    /// Something was lost, once per recovery: sets the threshold. `outstanding` is what was sent and not
    /// acknowledged (FlightSize).
    pub fn on_loss(&mut self, outstanding: Bytes) {
        each!(self, inner => inner.on_loss(outstanding));
    }

    /// The peer echoed a congestion mark, at most once per window of data: sets the threshold as a loss does
    /// (RFC 3168 §6.1.2). `abe` asks for the smaller steps of RFC 8511.
    pub fn on_mark(&mut self, outstanding: Bytes, abe: bool) {
        match self {
            Self::Cubic(cubic) if abe => cubic.on_mark(),
            Self::NewReno(reno) if abe => reno.on_mark(outstanding),
            Self::Dctcp(dctcp) => dctcp.on_mark(),
            _ => self.on_loss(outstanding),
        }
    }

    /// An ACK in any state: what it delivered, and whether it echoed a mark.
    pub fn on_echo(&mut self, delivered: Bytes, congested: bool, una: u64, nxt: u64) {
        if let Self::Dctcp(dctcp) = self {
            dctcp.on_echo(delivered, congested, una, nxt);
        }
    }

    /// Fast recovery ended: everything that was out when it began has arrived.
    pub fn on_recovered(&mut self) {
        self.inner_mut().set_to_threshold();
    }

    /// The retransmission time-out fired: one segment beside the `in_flight` bytes that are not lost
    /// (RFC 5681 §3.1). [`Control::on_loss`] went before unless this window's reduction was made already.
    pub fn on_timeout(&mut self, in_flight: Bytes) {
        let mss = u64::from(self.inner().mss());
        self.inner_mut().set(in_flight.0 + mss);
        each!(self, inner => inner.on_slow_start());
    }

    /// What is in flight but for `in_flight` bytes was too long for the path: the window is reached again by slow
    /// start.
    pub fn on_path_shrunk(&mut self, in_flight: Bytes) {
        let window = self.window().0;
        self.inner_mut().set_threshold(window);
        self.on_timeout(in_flight);
    }

    /// Data go after nothing was under way for `idle`, which is `timeouts` whole retransmission time-outs;
    /// `restart` says whether the window shrinks for it.
    pub fn on_idle(&mut self, idle: Duration, timeouts: u32, restart: Option<u16>) {
        if let (Some(segments), 1..) = (restart, timeouts) {
            let window = self.inner_mut();
            let initial = Window::initial(Mss::clamped(window.mss() as u16), segments);
            window.restart(initial, timeouts);
        }
        each!(self, inner => inner.on_idle(idle));
    }

    /// The reduction was a mistake: `self` as it was before, with the window no smaller than it is. The path may carry other
    /// segments since.
    pub fn undo(&mut self, before: &Self) {
        let (window, mss) = (self.window().max(before.window()), self.inner().mss());
        *self = *before;
        self.set_mss(Mss::clamped(mss as u16));
        self.set_window(window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(now: Instant, delivered: u64, una: u64) -> AckSample {
        AckSample {
            now,
            delivered: Bytes(delivered),
            una,
            nxt: una + 100_000,
            rtt: Some(Duration::from_millis(50)),
            smoothed: Duration::from_millis(50),
            window_limited: true,
        }
    }

    #[test]
    fn rfc_6928_initial_windows() {
        for (mss, window) in
            [(536, 5_360), (1_460, 14_600), (1_448, 14_480), (4_000, 14_600), (9_000, 18_000)]
        {
            let control = Control::new(Algorithm::Cubic, Mss::clamped(mss), 10);
            assert_eq!(control.window(), Bytes(window), "mss {mss}");
        }
        assert_eq!(Control::new(Algorithm::NewReno, Mss::clamped(1_460), 1).window(), Bytes(1_460));
    }

    #[test]
    fn undoing_keeps_the_present_segment_size() {
        for algorithm in Algorithm::ALL {
            let before = Control::new(algorithm, Mss::clamped(1_460), 10);
            let mut control = before;
            control.on_loss(before.window());
            control.on_recovered();
            control.set_mss(Mss::clamped(1_000));
            control.undo(&before);
            assert_eq!((control.inner().mss(), control.window()), (1_000, before.window()), "{algorithm:?}");
        }
    }

    #[test]
    fn words_are_read_back() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::from_word(algorithm.word()), Some(algorithm));
        }
        assert_eq!(Algorithm::from_word("vegas"), None);
    }

    #[test]
    fn idle_halves_per_timeout_down_to_the_initial_window() {
        let mut control = Control::new(Algorithm::NewReno, Mss::clamped(1_000), 10);
        control.set_window(Bytes(80_000));
        let hour = Duration::from_secs(3_600);
        let mut once = control;
        once.on_idle(hour, 1, Some(10));
        assert_eq!(once.window(), Bytes(40_000));
        let mut long = control;
        long.on_idle(hour, 200, Some(10));
        assert_eq!(long.window(), Bytes(10_000));
        control.on_idle(hour, 200, None);
        assert_eq!(control.window(), Bytes(80_000));
    }

    #[test]
    fn a_control_stays_small() {
        assert!(core::mem::size_of::<Control>() <= 80, "{}", core::mem::size_of::<Control>());
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Ack(u64),
        Loss,
        Mark(bool),
        Recovered,
        Timeout,
        Idle(u32),
        Mss(u16),
    }

    fn algorithms() -> impl Strategy<Value = Algorithm> {
        prop::sample::select(&[Algorithm::Cubic, Algorithm::NewReno, Algorithm::Dctcp][..])
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            8 => (1u64..200_000).prop_map(Event::Ack),
            1 => Just(Event::Loss),
            1 => any::<bool>().prop_map(Event::Mark),
            1 => Just(Event::Recovered),
            1 => Just(Event::Timeout),
            1 => (0u32..40).prop_map(Event::Idle),
            1 => (0u16..9_000).prop_map(Event::Mss),
        ];
        prop::collection::vec(event, 1..200)
    }

    proptest! {
        #[test]
        fn windows_keep_their_bounds_and_only_losses_shrink_them(
            events in events(), algorithm in algorithms(), step in 1u64..200,
        ) {
            let mut control = Control::new(algorithm, Mss::clamped(1_460), 10);
            let (mut now, mut una) = (Instant::from_secs(1), 0);
            for event in events {
                now += Duration::from_millis(step);
                let before = control;
                match event {
                    Event::Ack(delivered) => {
                        una += delivered;
                        control.on_echo(Bytes(delivered), delivered % 3 == 0, una, una + 100_000);
                        control.on_ack(&sample(now, delivered, una));
                        prop_assert!(control.window() >= before.window());
                        // ABC: what arrived, and at most one segment that earlier arrivals had earned.
                        prop_assert!(control.window().0 <= before.window().0 + delivered + 9_000);
                    }
                    Event::Loss => {
                        control.on_loss(before.window());
                        let threshold = control.slow_start_threshold().expect("a loss sets it");
                        prop_assert!(threshold.0 <= before.window().0.max(2 * 9_000));
                    }
                    Event::Mark(abe) => {
                        control.on_mark(before.window(), abe);
                        let threshold = control.slow_start_threshold().expect("a mark sets it");
                        prop_assert!(threshold.0 <= before.window().0.max(2 * 9_000));
                    }
                    Event::Recovered => control.on_recovered(),
                    Event::Timeout => control.on_timeout(Bytes::ZERO),
                    Event::Idle(timeouts) => {
                        control.on_idle(Duration::from_secs(timeouts.into()), timeouts, Some(10));
                        prop_assert!(control.window() <= before.window());
                    }
                    Event::Mss(mss) => control.set_mss(Mss::clamped(mss)),
                }
                prop_assert!(control.window().0 <= u64::from(WINDOW_MAX));
                prop_assert!(control.window().0 >= u64::from(Mss::FLOOR));
            }
        }

        #[test]
        fn no_growth_while_the_program_limits(delivered in 1u64..100_000, algorithm in algorithms()) {
            let mut control = Control::new(algorithm, Mss::clamped(1_460), 10);
            let before = control.window();
            let ack = AckSample { window_limited: false, ..sample(Instant::from_secs(1), delivered, delivered) };
            control.on_ack(&ack);
            prop_assert_eq!(control.window(), before);
        }

        #[test]
        fn undo_restores(loss_window in 20_000u64..1_000_000, algorithm in algorithms()) {
            let mut control = Control::new(algorithm, Mss::clamped(1_460), 10);
            control.set_window(Bytes(loss_window));
            let before = control;
            control.on_loss(Bytes(loss_window));
            control.on_timeout(Bytes::ZERO);
            control.undo(&before);
            prop_assert_eq!(control, before);
        }
    }
}
