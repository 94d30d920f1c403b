//! The words that both sides of an endpoint see: interest, flags, error and kicks.
//!
//! Part of every endpoint in this crate. Rules, referred to by number:
//! - R1. The lane changes what it has to tell (ring cursors, flags, error) before it looks at the interest; the
//!   application leaves its interest before it looks again. A full fence stands between the two halves on
//!   both sides, so one of them sees the other and no wake-up is lost.
//! - R2. An interest is taken by the one who fulfils it: one edge per interest. A standing interest stays, and
//!   gets every edge.
//! - R3. A kick's bit is set before its message is sent and cleared before its work is done, so a message on
//!   its way covers everything that was written before it runs.
//! - R4. A stream is full from the application's write on until the lane has sent enough; meanwhile acknowledgments make
//!   no edge. The application sets the bit before its kick, so the lane that the kick reaches sees it.
//! - R5. While a connection is fused, each application is to the other what the lane is else: it tells what it did (R1).
//!   It looks whether it still is after it wrote, and the lane looks at the ring after it ended that, with a full fence
//!   between on both sides: what was written is told to the peer, or seen by the lane.
//! - R6. A connection may be on its way from one lane to another that makes it. Whoever is told meanwhile that the
//!   application has closed the socket leaves that in a flag before he looks whether the connection is made; who has made it
//!   looks at the flag after that, with a full fence between on both sides. Who takes the flag back ends the connection.

use core::ops::{BitOr, BitOrAssign};
use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::SocketError;

/// The engine's name for a socket, returned with its readiness. Zero names nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SocketToken(pub u64);

macro_rules! bits {
    ($(#[$doc:meta])* $name:ident { $($(#[$bit_doc:meta])* $bit:ident = $value:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name(u32);

        impl $name {
            /// None of them.
            pub const NONE: Self = Self(0);
            $($(#[$bit_doc])* pub const $bit: Self = Self($value);)*

            /// Whether all bits of `other` are in `self`.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any bit of `other` is in `self`.
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// As a number, for words that several threads change.
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// The bits of such a number.
            pub const fn of_bits(bits: u32) -> Self {
                Self(bits)
            }

            /// Whether no bit is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }

        impl BitOr for $name {
            type Output = Self;
            fn bitor(self, rhs: Self) -> Self {
                Self(self.0 | rhs.0)
            }
        }

        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, rhs: Self) {
                self.0 |= rhs.0;
            }
        }
    };
}

bits! {
    /// What a socket has become ready for, or what is waited for.
    Ready {
        /// Bytes, a datagram, a connection to accept, or the end of the stream.
        READABLE = 1,
        /// Room to write; the end of connecting.
        WRITABLE = 2,
        /// It failed or is closed in both directions. Always reported with the other two.
        HANGUP = 4,
        /// Urgent text was announced (POLLPRI).
        URGENT = 8,
    }
}

impl Ready {
    /// Everything: what a failure wakes.
    pub const ALL: Self = Self(7);
}

bits! {
    /// What has happened to a socket for good.
    Flags {
        /// The connection is established.
        CONNECTED = 1,
        /// The peer sends no more: after the ring's last byte comes the end.
        PEER_CLOSED = 2,
        /// Nothing more may be written.
        WRITE_CLOSED = 4,
        /// The lane has forgotten the socket: nothing more happens.
        CLOSED = 8,
        /// An application has accepted the connection.
        ACCEPTED = 16,
        /// There is a mark of urgent text. This one ends, if the application forgets it.
        URGENT = 32,
        /// The connection is fused: what one side writes the other reads from the same ring. This one ends, too.
        FUSED = 64,
        /// The peer has left several repetitions in a row unanswered (RFC 9293 §3.8.3, R1). It ends with an answer.
        DOUBTFUL = 128,
        /// The application has closed the socket, and its connection was not made: whoever makes it ends it. This one ends with that.
        LEFT = 256,
        /// The application reads no more of what is to come: after the last byte that is there comes the end.
        READ_CLOSED = 32_768,
    }
}

/// Where in the second word the interest, the kick bit, the flags and the error lie.
const INTEREST: u64 = 0x0f;
/// An interest that stays when it was fulfilled.
const STANDING: u64 = INTEREST << STANDING_SHIFT;
const STANDING_SHIFT: u32 = 4;
const KICKED: u64 = 1 << 8;
/// As much is written and unsent as the program wants.
const FULL: u64 = 1 << 9;
/// How much that is about: one more than the power of two; zero is as much as the ring holds.
const LIMIT: u64 = 0x3f << LIMIT_SHIFT;
const LIMIT_SHIFT: u32 = 10;
const FLAGS_SHIFT: u32 = 16;
const ERROR_SHIFT: u32 = 32;
const ERROR: u64 = 0xff << ERROR_SHIFT;
/// The low bits of the cursor behind the peer's urgent text.
const MARK_SHIFT: u32 = 40;
const URGENT: u64 = (Flags::URGENT.0 as u64) << FLAGS_SHIFT;

/// The words of an endpoint that has no rings of bytes to keep them between.
#[derive(Debug, Default)]
pub struct Shared([AtomicU64; 2]);

impl Shared {
    /// The words.
    pub fn words(&self) -> Words<'_> {
        let [token, state] = &self.0;
        Words { token, state }
    }
}

/// The words of one endpoint: its token, and interest, kicks, flags and error together in one.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    pub(crate) token: &'a AtomicU64,
    pub(crate) state: &'a AtomicU64,
}

impl Words<'_> {
    /// Names the socket for its edges. The engine does so before it leaves any interest.
    pub fn set_token(self, token: SocketToken) {
        self.token.store(token.0, Ordering::Release);
    }

    /// The socket's name.
    pub fn token(self) -> SocketToken {
        SocketToken(self.token.load(Ordering::Acquire))
    }

    /// Application: asks to be told of `ready`. It looks again after this and before it sleeps (R1).
    pub fn wait_for(self, ready: Ready) {
        self.state.fetch_or(u64::from((ready | Ready::HANGUP).0), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Application: asks to be told of `ready` each time, until [`Words::watch`] of something else (R1).
    pub fn watch(self, ready: Ready) {
        let standing = u64::from(ready.0) << STANDING_SHIFT;
        // Only the application writes these bits, and a new socket has none.
        if self.state.load(Ordering::Relaxed) & STANDING & !standing != 0 {
            self.state.fetch_and(!STANDING | standing, Ordering::Relaxed);
        }
        if standing != 0 {
            self.state.fetch_or(standing, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    /// Application: it asks to be told of nothing more, also of what it waited for.
    pub fn ignore(self) {
        self.state.fetch_and(!(INTEREST | STANDING), Ordering::Relaxed);
    }

    /// Lane: something has become ready. Answers the token to tell, if anybody waits for it (R1, R2).
    pub fn tell(self, ready: Ready) -> Option<SocketToken> {
        fence(Ordering::SeqCst);
        self.tell_after(ready)
    }

    /// The same, behind a full fence that the caller has.
    #[inline]
    pub(crate) fn tell_after(self, ready: Ready) -> Option<SocketToken> {
        let state = self.state.load(Ordering::Relaxed);
        let ready = if state & FULL != 0 && !ready.contains(Ready::HANGUP) {
            u64::from(ready.0 & !Ready::WRITABLE.0)
        } else {
            u64::from(ready.0)
        };
        let stands = state & STANDING & ready << STANDING_SHIFT != 0;
        if state & INTEREST & ready == 0 {
            return stands.then(|| self.token());
        }
        let old = self.state.fetch_and(!ready, Ordering::AcqRel);
        (stands || old & ready != 0).then(|| self.token())
    }

    /// What has happened for good.
    pub fn flags(self) -> Flags {
        Flags((self.state.load(Ordering::Acquire) >> FLAGS_SHIFT) as u32 & 0xffff)
    }

    /// Adds flags.
    pub fn set_flags(self, flags: Flags) {
        self.state.fetch_or(u64::from(flags.0) << FLAGS_SHIFT, Ordering::Release);
    }

    /// Lane: takes flags back. What follows is seen by whoever has not seen that (R5).
    pub fn clear_flags(self, flags: Flags) {
        self.state.fetch_and(!(u64::from(flags.0) << FLAGS_SHIFT), Ordering::AcqRel);
        fence(Ordering::SeqCst);
    }

    /// Application: what it did before this is seen by the lane that takes a flag back, or this sees that it did (R5).
    #[inline]
    pub(crate) fn flags_after(self) -> Flags {
        fence(Ordering::SeqCst);
        self.flags()
    }

    /// Lane: the application has closed the socket. Another lane that has made the connection before this is seen to have, or finds
    /// that the socket is left (R6).
    pub fn leave(self) {
        self.set_flags(Flags::LEFT);
        fence(Ordering::SeqCst);
    }

    /// Lane: whether the socket is left, and ending the connection that is made is this one's to do (R6).
    pub fn take_leave(self) -> bool {
        fence(Ordering::SeqCst);
        let left = u64::from(Flags::LEFT.0) << FLAGS_SHIFT;
        self.state.fetch_and(!left, Ordering::AcqRel) & left != 0
    }

    /// Lane: the socket failed. The first error stays.
    pub fn fail(self, error: SocketError) {
        let first = |state| (error_in(state) == 0).then_some(state | u64::from(error.code()) << ERROR_SHIFT);
        let _ = self.state.fetch_update(Ordering::Release, Ordering::Relaxed, first);
    }

    /// The error, if there is one.
    pub fn error(self) -> Option<SocketError> {
        SocketError::of_code(error_in(self.state.load(Ordering::Acquire)))
    }

    /// Application: takes the error, so that it is told once (SO_ERROR).
    pub fn take_error(self) -> Option<SocketError> {
        // Every write asks, and there is hardly ever one.
        self.error()?;
        SocketError::of_code(error_in(self.state.fetch_and(!ERROR, Ordering::AcqRel)))
    }

    /// Application: there is work for the lane. Whether a kick message must be sent; none is needed while
    /// another is on its way (R3).
    pub fn kick(self) -> bool {
        self.state.fetch_or(KICKED, Ordering::AcqRel) & KICKED == 0
    }

    /// Lane: a kick arrived; also the application's, when its message found the squeue full (R3).
    pub fn unkick(self) {
        self.state.fetch_and(!KICKED, Ordering::AcqRel);
    }
}

/// Where urgent text ends (`urgent.rs`).
impl Words<'_> {
    /// Lane: behind the octet before `cursor`.
    pub fn set_mark(self, cursor: u64) {
        let mark = cursor << MARK_SHIFT;
        let marked = |state| Some(state & ((1 << MARK_SHIFT) - 1) | mark | URGENT);
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, marked);
    }

    /// The mark, if there is one: the cursor nearest to `near` that it may be.
    pub fn mark(self, near: u64) -> Option<u64> {
        let state = self.state.load(Ordering::Acquire);
        let ahead = (state & !((1 << MARK_SHIFT) - 1)).wrapping_sub(near << MARK_SHIFT) as i64 >> MARK_SHIFT;
        (state & URGENT != 0).then(|| near.wrapping_add_signed(ahead))
    }

    /// Application: it has passed the mark.
    pub fn forget_mark(self) {
        self.state.fetch_and(!URGENT, Ordering::AcqRel);
    }
}

/// How much may be written and unsent (TCP_NOTSENT_LOWAT).
impl Words<'_> {
    /// Lane: as much as `limit` may be unsent.
    pub fn limit_unsent(self, limit: Option<u32>) {
        let power = u64::from(limit.map_or(0, |limit| limit.max(1).ilog2() + 1));
        let limited = |state| Some(state & !LIMIT | power << LIMIT_SHIFT);
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, limited);
    }

    /// How much may be unsent, if there is a limit: the power of two below it. The lane knows it exactly, and relieves a
    /// stream that seems full for the difference.
    pub fn unsent_limit(self) -> Option<usize> {
        let power = (self.state.load(Ordering::Acquire) & LIMIT) >> LIMIT_SHIFT;
        (power != 0).then(|| 1 << (power - 1))
    }

    /// Application: as much is written as is wanted (R4).
    pub fn fill(self) {
        self.state.fetch_or(FULL, Ordering::AcqRel);
    }

    /// Whether it is.
    pub fn is_full(self) -> bool {
        self.state.load(Ordering::Acquire) & FULL != 0
    }

    /// Lane: enough was sent; says whether that is news, of which an edge follows (R1, R4).
    pub fn relieve(self) -> bool {
        self.is_full() && self.state.fetch_and(!FULL, Ordering::AcqRel) & FULL != 0
    }
}

const fn error_in(state: u64) -> u32 {
    ((state & ERROR) >> ERROR_SHIFT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interest_is_told_once() {
        let shared = Shared::default();
        let shared = shared.words();
        shared.set_token(SocketToken(7));
        assert_eq!(shared.tell(Ready::READABLE), None, "nobody waits");
        shared.wait_for(Ready::READABLE);
        assert_eq!(shared.tell(Ready::WRITABLE), None, "not for this");
        assert_eq!(shared.tell(Ready::READABLE), Some(SocketToken(7)));
        assert_eq!(shared.tell(Ready::READABLE), None, "told");
    }

    #[test]
    fn a_standing_interest_is_told_each_time() {
        let shared = Shared::default();
        let shared = shared.words();
        shared.set_token(SocketToken(7));
        shared.watch(Ready::READABLE);
        for _ in 0..2 {
            assert_eq!(shared.tell(Ready::WRITABLE), None, "not for this");
            assert_eq!(shared.tell(Ready::READABLE), Some(SocketToken(7)));
        }
        shared.wait_for(Ready::WRITABLE);
        assert_eq!(shared.tell(Ready::WRITABLE), Some(SocketToken(7)));
        assert_eq!(shared.tell(Ready::WRITABLE), None, "told");
        shared.watch(Ready::NONE);
        assert_eq!(shared.tell(Ready::READABLE), None, "nobody watches");
        assert_eq!(shared.tell(Ready::HANGUP), Some(SocketToken(7)), "who waited would hear of it");
        shared.wait_for(Ready::READABLE);
        shared.watch(Ready::READABLE);
        shared.ignore();
        assert_eq!(shared.tell(Ready::ALL), None);
        assert_eq!((shared.flags(), shared.error()), (Flags::NONE, None));
    }

    #[test]
    fn a_full_stream_makes_no_edge_until_it_is_relieved() {
        let shared = Shared::default();
        let shared = shared.words();
        shared.set_token(SocketToken(7));
        shared.watch(Ready::WRITABLE | Ready::READABLE | Ready::HANGUP);
        assert!(!shared.relieve(), "it was not full");
        for (limit, told) in
            [(Some(1), Some(1)), (Some(16_384), Some(16_384)), (Some(u32::MAX), Some(1 << 31)), (None, None)]
        {
            shared.limit_unsent(limit);
            assert_eq!(shared.unsent_limit(), told);
        }
        shared.limit_unsent(Some(9000));
        assert_eq!(shared.unsent_limit(), Some(8192));
        assert_eq!((shared.flags(), shared.error()), (Flags::NONE, None));
        shared.fill();
        assert_eq!(shared.tell(Ready::WRITABLE), None);
        assert_eq!(shared.tell(Ready::WRITABLE | Ready::READABLE), Some(SocketToken(7)));
        assert_eq!(shared.tell(Ready::ALL), Some(SocketToken(7)), "a failure is told");
        assert!(shared.relieve() && !shared.relieve());
        assert_eq!(shared.tell(Ready::WRITABLE), Some(SocketToken(7)));
    }

    #[test]
    fn a_hang_up_is_told_to_everybody_who_waits() {
        let shared = Shared::default();
        let shared = shared.words();
        shared.set_token(SocketToken(1));
        shared.wait_for(Ready::WRITABLE);
        assert_eq!(shared.tell(Ready::HANGUP), Some(SocketToken(1)));
    }

    #[test]
    fn the_first_error_stays_until_it_is_taken() {
        let shared = Shared::default();
        let shared = shared.words();
        shared.fail(SocketError::Reset);
        shared.fail(SocketError::TimedOut);
        assert_eq!(shared.take_error(), Some(SocketError::Reset));
        assert_eq!(shared.take_error(), None);
    }

    #[test]
    fn one_message_per_kick() {
        let shared = Shared::default();
        let shared = shared.words();
        assert!(shared.kick());
        assert!(!shared.kick());
        shared.unkick();
        assert!(shared.kick());
    }

    #[test]
    fn no_wake_up_is_lost_between_two_threads() {
        use core::sync::atomic::AtomicBool;
        for _ in 0..2000 {
            let (shared, data) = (Shared::default(), AtomicBool::new(false));
            let shared = shared.words();
            shared.set_token(SocketToken(1));
            let (saw, told) = std::thread::scope(|scope| {
                let app = scope.spawn(|| {
                    shared.wait_for(Ready::READABLE);
                    data.load(Ordering::Relaxed)
                });
                let lane = scope.spawn(|| {
                    data.store(true, Ordering::Relaxed);
                    shared.tell(Ready::READABLE).is_some()
                });
                (app.join().unwrap(), lane.join().unwrap())
            });
            assert!(saw || told);
        }
    }
}
