//! Which system a netstack looks like on the wire.
//!
//! Four habits that the standards leave open and by which test tools, middleboxes and fingerprints tell systems
//! apart; they change together. Asked by `handshake`, `syn` and `reset`; chosen by the netstack's property `profile`.
//!
//! | habit | linux | freebsd |
//! |---|---|---|
//! | order of a SYN's options | MSS, SACK permitted, timestamps, window scale | MSS, window scale, SACK permitted, timestamps |
//! | initial window | 10 segments (`TCP_INIT_CWND`) | 10 segments, at most 14,600 bytes or 2 segments (RFC 6928 §2) |
//! | receive space | up to 6 MiB; a SYN announces whole segments | up to 2 MiB; a SYN announces all there is |
//! | challenge ACKs of one connection | one per 500 ms | five per second (`ack_war_cnt`, `ack_war_timewindow`) |

use core::time::Duration;

use firelane_units::Mss;
use firelane_wire::OptionLayout;

use crate::config::TcpConfig;

/// Bytes of every segment that the timestamps option takes.
const STAMP_BYTES: usize = 12;
/// A ring of fewer segments is announced whole. We differ: Linux rounds those too, which costs up to half of them.
const ROUNDED_SEGMENTS: usize = 16;

/// Which system a netstack looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Profile {
    /// Linux 6.
    #[default]
    Linux,
    /// FreeBSD 14.
    FreeBsd,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 2] = [Self::Linux, Self::FreeBsd];

    /// The word of the property.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::FreeBsd => "freebsd",
        }
    }

    /// What `word` means.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.word() == word)
    }

    /// The order of a SYN's options.
    pub(crate) const fn layout(self) -> OptionLayout {
        match self {
            Self::Linux => OptionLayout::Linux,
            Self::FreeBsd => OptionLayout::FreeBsd,
        }
    }

    /// How much of `room` a SYN or SYN-ACK announces, before the field's own limit. `stamped`: both ends are known
    /// to use timestamps, so segments carry less text.
    pub(crate) fn syn_window(self, room: usize, mss: Mss, stamped: bool) -> usize {
        let text = usize::from(mss.bytes()) - if stamped { STAMP_BYTES } else { 0 };
        match self {
            Self::Linux if room >= text * ROUNDED_SEGMENTS => room - room % text,
            Self::Linux | Self::FreeBsd => room,
        }
    }

    /// Whether the initial window is so many segments, however large; else RFC 6928 §2 bounds their bytes too.
    pub(crate) const fn begins_with_whole_segments(self) -> bool {
        matches!(self, Self::Linux)
    }
}

impl TcpConfig {
    /// The defaults of a profile.
    pub fn of(profile: Profile) -> Self {
        Self::default().with_profile(profile)
    }

    /// These tunables with a profile's own.
    pub fn with_profile(self, profile: Profile) -> Self {
        let (challenge_burst, interval, max_buffer) = match profile {
            Profile::Linux => (1, 500, 6 << 20),
            Profile::FreeBsd => (5, 1000, 2 << 20),
        };
        let challenge_interval = Duration::from_millis(interval);
        Self { profile, challenge_burst, challenge_interval, max_buffer, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each system is known to announce in a SYN and a SYN-ACK, with 64 KiB of space and Ethernet's MSS.
    #[test]
    fn syn_windows() {
        let mss = Mss::clamped(1460);
        for (profile, stamped, room, window) in [
            (Profile::Linux, false, 65_536, 64_240),
            (Profile::Linux, true, 65_536, 65_160),
            (Profile::Linux, false, 10_000, 10_000),
            (Profile::Linux, false, 23_360, 23_360),
            (Profile::Linux, false, 24_000, 23_360),
            (Profile::FreeBsd, true, 65_536, 65_536),
        ] {
            assert_eq!(profile.syn_window(room, mss, stamped), window, "{profile:?} {stamped} {room}");
        }
    }

    #[test]
    fn a_profile_sets_its_habits_together() {
        for (profile, scale, burst) in [(Profile::Linux, 7, 1), (Profile::FreeBsd, 6, 5)] {
            let config = TcpConfig::of(profile);
            assert_eq!((config.window_scale(), config.challenge_burst), (scale, burst));
            assert_eq!(Profile::from_word(profile.word()), Some(profile));
        }
        assert_eq!(Profile::from_word("solaris"), None);
    }
}
