//! Bytes read as a sequence of choices, for the targets that play a scenario.
//!
//! When the bytes are used up every choice is zero, so a short input is a short scenario and a cut one
//! still means nearly the same.

/// What is left of the bytes.
#[derive(Clone, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// The choices of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether all bytes are used up.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One byte.
    pub fn u8(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    /// A coin.
    pub fn flag(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// A number below `limit`, at most 256 of them.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::from(self.u8()) % limit
    }

    /// One of `among`.
    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())]
    }

    /// A number of any size up to 2^24, small ones as likely as large ones: four bits choose the size.
    pub fn amount(&mut self) -> u64 {
        let [size, low] = [self.u8(), self.u8()];
        (u64::from(low) + 1) << (size & 0x0f) >> 4
    }

    /// Up to `count` bytes as they are.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }
}
