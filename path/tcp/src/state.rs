//! The states of a connection and the moves between them (RFC 9293 §3.3.2).
//!
//! One sum type and one pure function: [`State::on`] says where an event leads, and `None` says that the
//! event means nothing in that state. Everything that sends or tells the socket lives with its step; nothing
//! here has a side effect. LISTEN is absent because a listener is no connection, and TIME-WAIT is only passed
//! through: `time_wait.rs` keeps what remains of the connection.

/// The state of a connection (RFC 9293 §3.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Our SYN is out; nothing came back.
    SynSent,
    /// Both SYNs are known; ours is not acknowledged.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// We closed; our FIN is not acknowledged.
    FinWait1,
    /// We closed and the peer knows; its own FIN is to come.
    FinWait2,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// The peer closed; we may still send.
    CloseWait,
    /// Both closed, the peer first; our FIN is not acknowledged.
    LastAck,
    /// Both closed, we first: only late segments are to come.
    TimeWait,
    /// Gone.
    Closed,
}

/// What moves a connection from state to state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A SYN without an acknowledgment of ours: both ends open at once.
    PeerSyn,
    /// A SYN that acknowledges ours.
    PeerSynAck,
    /// Our SYN was acknowledged.
    SynAcknowledged,
    /// The user has nothing more to send.
    Close,
    /// The peer's FIN, in order.
    PeerFin,
    /// Our FIN was acknowledged.
    FinAcknowledged,
    /// A valid RST, the user's abort, or the end of patience.
    Abort,
    /// The quiet time after the end is over.
    QuietTimeOver,
}

impl State {
    /// Every state, in the order of a life.
    pub const ALL: [Self; 10] = [
        Self::SynSent,
        Self::SynReceived,
        Self::Established,
        Self::FinWait1,
        Self::FinWait2,
        Self::Closing,
        Self::CloseWait,
        Self::LastAck,
        Self::TimeWait,
        Self::Closed,
    ];

    /// The state that `event` leads to, or `None` if it means nothing in this state.
    pub const fn on(self, event: Event) -> Option<Self> {
        use Event as E;
        use State as S;
        Some(match (self, event) {
            (S::Closed, _) => return None,
            (_, E::Abort) => S::Closed,
            (S::SynSent, E::PeerSyn) => S::SynReceived,
            (S::SynSent, E::PeerSynAck) | (S::SynReceived, E::SynAcknowledged) => S::Established,
            (S::SynSent, E::Close) => S::Closed,
            (S::Established, E::Close) => S::FinWait1,
            (S::Established, E::PeerFin) => S::CloseWait,
            (S::FinWait1, E::FinAcknowledged) => S::FinWait2,
            (S::FinWait1, E::PeerFin) => S::Closing,
            (S::FinWait2, E::PeerFin) | (S::Closing, E::FinAcknowledged) => S::TimeWait,
            (S::CloseWait, E::Close) => S::LastAck,
            (S::LastAck, E::FinAcknowledged) | (S::TimeWait | S::FinWait2, E::QuietTimeOver) => S::Closed,
            _ => return None,
        })
    }

    /// Whether both ends know each other's sequence numbers (RFC 9293 §3.5.2: a synchronized state).
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived | Self::Closed)
    }

    /// Whether data of the send ring may go out.
    pub const fn may_send_text(self) -> bool {
        use State as S;
        matches!(self, S::Established | S::CloseWait | S::FinWait1 | S::Closing | S::LastAck)
    }

    /// Whether text of the peer is still to come.
    pub const fn may_receive_text(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// The name that Solaris' `netstat` and `connstat` show.
    pub const fn word(self) -> &'static str {
        match self {
            Self::SynSent => "SYN_SENT",
            Self::SynReceived => "SYN_RCVD",
            Self::Established => "ESTABLISHED",
            Self::FinWait1 => "FIN_WAIT_1",
            Self::FinWait2 => "FIN_WAIT_2",
            Self::Closing => "CLOSING",
            Self::CloseWait => "CLOSE_WAIT",
            Self::LastAck => "LAST_ACK",
            Self::TimeWait => "TIME_WAIT",
            Self::Closed => "CLOSED",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 8] = [
        Event::PeerSyn,
        Event::PeerSynAck,
        Event::SynAcknowledged,
        Event::Close,
        Event::PeerFin,
        Event::FinAcknowledged,
        Event::Abort,
        Event::QuietTimeOver,
    ];

    fn matrix() -> String {
        let mut text = format!("{:12}", "state");
        for event in EVENTS {
            text += &format!(" {:15}", format!("{event:?}"));
        }
        for state in State::ALL {
            text = text.trim_end().to_string() + &format!("\n{:12}", state.word());
            for event in EVENTS {
                text += &format!(" {:15}", state.on(event).map_or("-", State::word));
            }
        }
        text.trim_end().to_string()
    }

    const MATRIX: &str = "\
state        PeerSyn         PeerSynAck      SynAcknowledged Close           PeerFin         FinAcknowledged Abort           QuietTimeOver
SYN_SENT     SYN_RCVD        ESTABLISHED     -               CLOSED          -               -               CLOSED          -
SYN_RCVD     -               -               ESTABLISHED     -               -               -               CLOSED          -
ESTABLISHED  -               -               -               FIN_WAIT_1      CLOSE_WAIT      -               CLOSED          -
FIN_WAIT_1   -               -               -               -               CLOSING         FIN_WAIT_2      CLOSED          -
FIN_WAIT_2   -               -               -               -               TIME_WAIT       -               CLOSED          CLOSED
CLOSING      -               -               -               -               -               TIME_WAIT       CLOSED          -
CLOSE_WAIT   -               -               -               LAST_ACK        -               -               CLOSED          -
LAST_ACK     -               -               -               -               -               CLOSED          CLOSED          -
TIME_WAIT    -               -               -               -               -               -               CLOSED          CLOSED
CLOSED       -               -               -               -               -               -               -               -";

    #[test]
    fn the_machine_is_this_table() {
        let printed = matrix();
        assert_eq!(printed, MATRIX, "\n{printed}");
    }

    /// RFC 9293 figure 5, read the other way: every state but CLOSED has a way out, and each is reached.
    #[test]
    fn every_state_can_end_and_is_reached() {
        for state in State::ALL {
            let reached = matches!(state, State::SynSent)
                || State::ALL.iter().any(|s| EVENTS.iter().any(|&e| s.on(e) == Some(state)));
            assert!(reached, "{state:?}");
            let ends = state == State::Closed || state.on(Event::Abort) == Some(State::Closed);
            assert!(ends, "{state:?}");
        }
    }
}
