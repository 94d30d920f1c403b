//! Sets of ports that any thread may change and ask: a bit each.
//!
//! Used by `connecting.rs` and `to_itself.rs`, for what is known of listeners of this process.

use core::sync::atomic::{AtomicU64, Ordering};

const PORTS: usize = 1 << 16;
const BITS: usize = u64::BITS as usize;

/// A set of ports.
pub(crate) struct Ports([AtomicU64; PORTS / BITS]);

impl Ports {
    /// None of them.
    pub(crate) const fn none() -> Self {
        Self([const { AtomicU64::new(0) }; PORTS / BITS])
    }

    fn place(&self, port: u16) -> (&AtomicU64, u64) {
        let at = usize::from(port);
        (&self.0[at / BITS], 1 << (at % BITS))
    }

    pub(crate) fn put(&self, port: u16) {
        let (word, bit) = self.place(port);
        word.fetch_or(bit, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn has(&self, port: u16) -> bool {
        let (word, bit) = self.place(port);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Takes a port out; whether it was there. Asked for what is mostly not.
    pub(crate) fn take(&self, port: u16) -> bool {
        let (word, bit) = self.place(port);
        self.has(port) && word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_is_one_by_itself() {
        static SET: Ports = Ports::none();
        for port in [0, 63, 64, u16::MAX] {
            SET.put(port);
            assert_eq!([port ^ 1, port].map(|it| SET.has(it)), [false, true], "{port}");
            assert_eq!([port ^ 1, port, port].map(|it| SET.take(it)), [false, true, false], "{port}");
            assert!(!SET.has(port), "{port}");
        }
    }
}
