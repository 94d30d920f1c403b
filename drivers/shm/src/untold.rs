//! Options of sockets that their library keeps, and has told nobody of: they go with the offer by which the socket connects.
//!
//! Most programs set a few before they connect, and each would be a question by itself. Which may wait is agreed here: those of
//! which both ends know that nothing refuses them, whoever the program is and whatever its socket is, and that change nothing before
//! there is a connection. The library asks for all others at once, with what it has kept before them.
//!
//! Used by the preloaded library, which writes them beside an offer ([`crate::Offers`]), and by the engine, which takes them
//! when it begins the connection. What a program writes there is judged as what it asks for: see [`UntoldOption::decode`].

use core::array;

use crate::sync::{AtomicU64, Ordering};

/// How many options wait at most. Programs that set more of them than this ask.
pub const UNTOLD_MAX: usize = 16;

/// An option that has a number, by Linux' numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UntoldOption {
    level: u16,
    name: u16,
    value: i32,
}

const LEVEL_SHIFT: u32 = 48;
const NAME_SHIFT: u32 = 32;

impl UntoldOption {
    /// The option, if it is one that may wait with this value.
    pub const fn new(level: i32, name: i32, value: i32) -> Option<Self> {
        if !may_wait(level, name, value) {
            return None;
        }
        // Both are small, or it would be none of those.
        Some(Self { level: level as u16, name: name as u16, value })
    }

    /// Its level.
    pub const fn level(self) -> i32 {
        self.level as i32
    }

    /// Its name at that level.
    pub const fn name(self) -> i32 {
        self.name as i32
    }

    /// What it is set to.
    pub const fn value(self) -> i32 {
        self.value
    }

    /// Whether it is the same option, whatever it is set to.
    pub const fn is_named_as(self, other: Self) -> bool {
        self.level == other.level && self.name == other.name
    }

    /// In a word, which is never zero: there is no option without a name.
    const fn encode(self) -> u64 {
        (self.level as u64) << LEVEL_SHIFT | (self.name as u64) << NAME_SHIFT | self.value as u32 as u64
    }

    /// The option in a word; `None` if the word is none that a library writes.
    const fn decode(word: u64) -> Option<Self> {
        Self::new((word >> LEVEL_SHIFT) as i32, (word >> NAME_SHIFT) as u16 as i32, word as u32 as i32)
    }
}

/// Whether nothing refuses an option with this value to a stream socket that is new, and nothing shows it before the socket connects but
/// a question about it, before which it is told.
const fn may_wait(level: i32, name: i32, value: i32) -> bool {
    match (level, name) {
        // REUSEADDR, BROADCAST, SNDBUF, RCVBUF, KEEPALIVE, OOBINLINE and REUSEPORT of SOL_SOCKET.
        (1, 2 | 6 | 7 | 8 | 9 | 10 | 15) => true,
        // TCP's NODELAY, CORK, LINGER2, QUICKACK and NOTSENT_LOWAT.
        (6, 1 | 3 | 8 | 12 | 25) => true,
        // TCP_KEEPIDLE and TCP_KEEPINTVL; TCP_KEEPCNT and TCP_SYNCNT; TCP_USER_TIMEOUT.
        (6, 4 | 5) => 1 <= value && value <= 32_767,
        (6, 6 | 7) => 1 <= value && value <= 127,
        (6, 18) => value >= 0,
        // IP_TOS, IP_TTL, IP_MTU_DISCOVER and IP_BIND_ADDRESS_NO_PORT.
        (0, 1 | 24) => true,
        (0, 2) => 1 <= value && value <= 255,
        (0, 10) => 0 <= value && value <= 5,
        _ => false,
    }
}

/// What lies beside one offer: the options in the order in which they were set, and zero behind the last of them.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Untold {
    words: [AtomicU64; UNTOLD_MAX],
}

impl Untold {
    /// Program, who has taken the offer: these go with it. Those for which there is no room are left out; nobody keeps so many.
    pub fn put(&self, options: impl IntoIterator<Item = UntoldOption>) {
        let words = options.into_iter().map(UntoldOption::encode).chain(core::iter::repeat(0));
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Ordering::Relaxed);
        }
    }

    /// Daemon, who has seen that there are some: each word is read once. What is none that may wait is left out, which hurts only the
    /// program that has written it.
    pub fn take(&self) -> impl Iterator<Item = UntoldOption> {
        let words: [u64; UNTOLD_MAX] = array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        words.into_iter().take_while(|&word| word != 0).filter_map(UntoldOption::decode)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn untold() -> Untold {
        Untold { words: array::from_fn(|_| AtomicU64::new(u64::MAX)) }
    }

    #[test]
    fn what_is_put_beside_an_offer_is_taken_in_its_order() {
        let option = |level, name, value| UntoldOption::new(level, name, value).unwrap();
        let all = [option(1, 9, 1), option(6, 18, i32::MAX), option(1, 7, -1), option(0, 1, i32::MIN)];
        let untold = untold();
        untold.put(all);
        assert!(untold.take().eq(all));
        untold.put([]);
        assert_eq!(untold.take().count(), 0);
        let many = [option(6, 1, 1); UNTOLD_MAX];
        untold.put(many.into_iter().chain([option(6, 3, 1)]));
        assert!(untold.take().eq(many), "what has no room is left out");
        assert!(many[0].is_named_as(option(6, 1, 0)) && !many[0].is_named_as(option(0, 1, 1)));
        let first = all[1];
        assert_eq!((first.level(), first.name(), first.value()), (6, 18, i32::MAX));
    }

    #[test]
    fn what_could_be_refused_may_not_wait_whoever_writes_it() {
        let refused =
            [(6, 4, 0), (6, 5, 32_768), (6, 6, 128), (6, 7, 0), (6, 18, -1), (0, 2, 0), (0, 2, 256)];
        // SO_MARK, SO_PRIORITY, SO_BINDTOIFINDEX, TCP_FASTOPEN_CONNECT, TCP_CONGESTION, and what is at no level.
        let others =
            [(1, 36, 1), (1, 12, 6), (1, 62, 3), (6, 30, 1), (6, 13, 0), (0, 10, 6), (17, 1, 1), (0, 0, 7)];
        for (level, name, value) in refused.into_iter().chain(others) {
            assert_eq!(UntoldOption::new(level, name, value), None, "{level} {name} {value}");
            let untold = untold();
            let word = (level as u64) << LEVEL_SHIFT | (name as u64) << NAME_SHIFT | value as u32 as u64;
            untold.words[0].store(word, Ordering::Relaxed);
            untold.words[1].store(UntoldOption::new(6, 1, 1).unwrap().encode(), Ordering::Relaxed);
            untold.words[2].store(0, Ordering::Relaxed);
            assert_eq!(untold.take().count(), 1, "{level} {name} {value}");
        }
        for (level, name) in [(1 + (1 << 16), 9), (1, 9 + (1 << 16)), (-1, 9)] {
            assert_eq!(UntoldOption::new(level, name, 1), None);
        }
    }
}
