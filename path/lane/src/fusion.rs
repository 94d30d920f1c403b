//! The life of a fusion, as a table: which state follows which event.
//!
//! A connection of a lane is on its own, would like to be fused with its peer, is fused, or is on its way back to segments
//! while an application is still inside the peer's ring. `stacks/fusion.rs` does what the events say. (TCP Fusion; facts of
//! the original in `uts/common/inet/tcp/tcp_fusion.c`, which could not fuse again.)

use firelane_units::ConnId;

/// Where a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Fusion {
    /// Segments carry its text.
    #[default]
    Alone,
    /// The same, and it is to be fused as soon as nothing is under way.
    Wished,
    /// The peer reads the send ring, and this end the peer's.
    Fused(ConnId),
    /// It is to go back to segments, and waits until an application leaves the rings.
    Parting(ConnId),
    /// The connection is over, and what was written can be read to its end.
    Severed,
    /// Two programs may carry text past the lane, in memory that they share; TCP goes on beside it.
    Beside,
}

impl Fusion {
    /// Whether the rings are lent to the applications: TCP has no say.
    #[inline]
    pub(crate) const fn is_on(self) -> bool {
        matches!(self, Self::Fused(_) | Self::Parting(_) | Self::Severed)
    }

    /// With whom it shares rings.
    pub(crate) const fn peer(self) -> Option<ConnId> {
        match self {
            Self::Fused(peer) | Self::Parting(peer) => Some(peer),
            Self::Alone | Self::Wished | Self::Severed | Self::Beside => None,
        }
    }

    /// Somebody would like it fused.
    pub(crate) const fn wished(self) -> Self {
        match self {
            Self::Alone => Self::Wished,
            other => other,
        }
    }

    /// Nobody would like that any more.
    pub(crate) const fn unwished(self) -> Self {
        match self {
            Self::Wished => Self::Alone,
            other => other,
        }
    }

    /// The rings are asked back; `are_back` says whether nobody was inside.
    pub(crate) const fn parted(self, are_back: bool) -> Self {
        match self {
            Self::Fused(_) | Self::Parting(_) if are_back => Self::Alone,
            Self::Fused(peer) | Self::Parting(peer) => Self::Parting(peer),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_this_table() {
        use Fusion::{Alone, Beside, Fused, Parting, Severed, Wished};
        let peer = ConnId(7);
        // State, and what follows a wish, its end, rings that are back, rings that are not.
        for (state, wish, unwish, back, not_back) in [
            (Alone, Wished, Alone, Alone, Alone),
            (Wished, Wished, Alone, Wished, Wished),
            (Fused(peer), Fused(peer), Fused(peer), Alone, Parting(peer)),
            (Parting(peer), Parting(peer), Parting(peer), Alone, Parting(peer)),
            (Severed, Severed, Severed, Severed, Severed),
            (Beside, Beside, Beside, Beside, Beside),
        ] {
            let followed = [state.wished(), state.unwished(), state.parted(true), state.parted(false)];
            assert_eq!(followed, [wish, unwish, back, not_back], "{state:?}");
        }
    }
}
