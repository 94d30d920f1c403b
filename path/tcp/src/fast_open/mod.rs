//! TCP Fast Open (RFC 7413): text in the SYN, for a peer that has shown before that its address is its own.
//!
//! A server hands out cookies and takes the text of a SYN that brings one back ([`server`]); a client remembers the
//! cookies, and with whom Fast Open does not work ([`cache`]); what a connection does differently until its handshake is
//! over is in [`opening`]. A program must bear that text in a SYN arrives twice (RFC 7413 §2.1), so both ends ask for it.

mod cache;
mod opening;
mod server;

pub use cache::{FastOpenCache, FastOpenNews};
pub(crate) use opening::FastOpenState;
pub use opening::{FastOpenOffer, FastOpenReport};
pub use server::{FastOpenAnswer, FastOpenServer};

/// Who uses Fast Open, bit for bit as Linux' `net.ipv4.tcp_fastopen`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FastOpenPolicy(u32);

impl FastOpenPolicy {
    /// Programs that connect may send text in their SYNs.
    pub const CLIENT: Self = Self(0x1);
    /// Listeners may take text from SYNs.
    pub const SERVER: Self = Self(0x2);
    /// Text goes with a SYN also without a cookie, for networks in which nobody lies about his address.
    pub const CLIENT_WITHOUT_COOKIE: Self = Self(0x4);
    /// Text is taken from any SYN, for such networks.
    pub const SERVER_WITHOUT_COOKIE: Self = Self(0x200);
    /// Every listener takes part, with its backlog as the limit, whether its program asked or not.
    pub const EVERY_LISTENER: Self = Self(0x400);
    /// All bits that mean something.
    pub const MAX: u32 = 0x607;

    /// The policy of a number; bits without a meaning are ignored, as on Linux.
    pub const fn new(bits: u32) -> Self {
        Self(bits & Self::MAX)
    }

    /// The same, with what one socket asks for itself: no cookies in either direction (TCP_FASTOPEN_NO_COOKIE).
    #[must_use]
    pub const fn trusting(self, trusts: bool) -> Self {
        let both = Self::CLIENT_WITHOUT_COOKIE.0 | Self::SERVER_WITHOUT_COOKIE.0;
        Self(self.0 | if trusts { both } else { 0 })
    }

    /// Whether all of `other` is allowed.
    pub const fn allows(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Default for FastOpenPolicy {
    /// Linux': programs that ask for it may use it as clients; a server is the administrator's to allow.
    fn default() -> Self {
        Self::CLIENT
    }
}

/// What became of Fast Opens (Linux' `TCPFastOpen...`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FastOpenCounters {
    /// Text of our SYNs that was acknowledged with the SYN (`TCPFastOpenActive`).
    pub active: u64,
    /// Our SYNs with text or a question that were lost, or whose text was refused (`TCPFastOpenActiveFail`).
    pub active_failed: u64,
    /// Times that no SYN carried anything for a while, because text behind the handshake vanished (`TCPFastOpenBlackhole`).
    pub black_holes: u64,
    /// SYNs whose text was taken (`TCPFastOpenPassive`).
    pub passive: u64,
    /// Of those, with a cookie of the period before (`TCPFastOpenPassiveAltKey`).
    pub passive_old: u64,
    /// SYNs with a cookie that is not one (`TCPFastOpenPassiveFail`).
    pub passive_failed: u64,
    /// SYNs with a cookie that found the queue full (`TCPFastOpenListenOverflow`).
    pub overflowed: u64,
    /// SYNs that asked for a cookie (`TCPFastOpenCookieReqd`).
    pub asked: u64,
}

impl FastOpenCounters {
    /// Adds another's.
    pub fn merge(&mut self, other: &Self) {
        self.active += other.active;
        self.active_failed += other.active_failed;
        self.black_holes += other.black_holes;
        self.passive += other.passive;
        self.passive_old += other.passive_old;
        self.passive_failed += other.passive_failed;
        self.overflowed += other.overflowed;
        self.asked += other.asked;
    }
}
