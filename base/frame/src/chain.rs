//! A chain: frames that stations hand on together, in order.
//!
//! Costs that a chain pays once (a clock read, a doorbell, a counter flush) are not paid per frame. A chain
//! keeps its storage when it is emptied, so in steady state no chain allocates.

use core::fmt;
use std::collections::VecDeque;

use firelane_units::Bytes;

use crate::Frame;

/// A FIFO of frames.
#[derive(Default)]
pub struct Chain {
    frames: VecDeque<Frame>,
    bytes: u64,
}

impl Chain {
    /// An empty chain without storage.
    pub const fn new() -> Self {
        Self { frames: VecDeque::new(), bytes: 0 }
    }

    /// An empty chain with storage for `frames` frames.
    pub fn with_capacity(frames: usize) -> Self {
        Self { frames: VecDeque::with_capacity(frames), bytes: 0 }
    }

    /// Appends a frame.
    #[inline]
    pub fn push(&mut self, frame: Frame) {
        self.bytes += frame.len() as u64;
        self.frames.push_back(frame);
    }

    /// Puts a frame back before all others.
    #[inline]
    pub fn push_front(&mut self, frame: Frame) {
        self.bytes += frame.len() as u64;
        self.frames.push_front(frame);
    }

    /// Takes the first frame.
    #[inline]
    pub fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.len() as u64;
        Some(frame)
    }

    /// Takes the last frame.
    pub fn pop_back(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_back()?;
        self.bytes -= frame.len() as u64;
        Some(frame)
    }

    /// The first frame.
    pub fn front(&self) -> Option<&Frame> {
        self.frames.front()
    }

    /// Moves all frames of `other` behind these.
    pub fn append(&mut self, other: &mut Self) {
        if self.frames.is_empty() {
            core::mem::swap(self, other);
        } else {
            self.bytes += core::mem::take(&mut other.bytes);
            self.frames.append(&mut other.frames);
        }
    }

    /// Moves the first `count` frames (or all, if there are fewer) behind those of `to`.
    pub fn move_front(&mut self, count: usize, to: &mut Self) {
        if count >= self.len() {
            return to.append(self);
        }
        for _ in 0..count {
            let Some(frame) = self.pop() else { return };
            to.push(frame);
        }
    }

    /// Keeps the first `at` frames and returns the rest.
    pub fn split_off(&mut self, at: usize) -> Self {
        let frames = self.frames.split_off(at.min(self.frames.len()));
        let bytes = frames.iter().map(|f| f.len() as u64).sum();
        self.bytes -= bytes;
        Self { frames, bytes }
    }

    /// How many frames.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The sum of their lengths.
    #[inline]
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes)
    }

    /// The frames in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Frame> + DoubleEndedIterator {
        self.frames.iter()
    }

    /// Lets `f` change every frame, its length included.
    pub fn for_each_mut(&mut self, mut f: impl FnMut(&mut Frame)) {
        let mut bytes = 0;
        for frame in &mut self.frames {
            f(frame);
            bytes += frame.len() as u64;
        }
        self.bytes = bytes;
    }

    /// Keeps the frames for which `keep` says so; the others go home.
    pub fn retain(&mut self, mut keep: impl FnMut(&Frame) -> bool) {
        self.frames.retain(|frame| keep(frame));
        self.bytes = self.frames.iter().map(|f| f.len() as u64).sum();
    }

    /// Takes all frames, in order.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = Frame> + '_ {
        self.bytes = 0;
        self.frames.drain(..)
    }

    /// Takes the first `count` frames (or all, if there are fewer), in order.
    pub fn drain_front(&mut self, count: usize) -> impl ExactSizeIterator<Item = Frame> + '_ {
        let count = count.min(self.len());
        if count == self.len() {
            self.bytes = 0;
        } else {
            self.bytes -= self.frames.iter().take(count).map(|f| f.len() as u64).sum::<u64>();
        }
        self.frames.drain(..count)
    }

    /// Sends all frames home.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.bytes = 0;
    }

    /// How many frames fit before the storage grows.
    pub fn capacity(&self) -> usize {
        self.frames.capacity()
    }

    /// Makes room for `frames` more.
    pub fn reserve(&mut self, frames: usize) {
        self.frames.reserve(frames);
    }
}

impl Extend<Frame> for Chain {
    fn extend<I: IntoIterator<Item = Frame>>(&mut self, frames: I) {
        frames.into_iter().for_each(|frame| self.push(frame));
    }
}

impl FromIterator<Frame> for Chain {
    fn from_iter<I: IntoIterator<Item = Frame>>(frames: I) -> Self {
        let mut chain = Self::new();
        chain.extend(frames);
        chain
    }
}

impl IntoIterator for Chain {
    type Item = Frame;
    type IntoIter = std::collections::vec_deque::IntoIter<Frame>;

    fn into_iter(self) -> Self::IntoIter {
        self.frames.into_iter()
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chain({} frames, {} B)", self.len(), self.bytes)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::{Pool, PoolConfig};
    use proptest::prelude::*;

    fn frame(pool: &mut Pool, len: usize) -> Frame {
        let mut frame = pool.take().unwrap();
        frame.append(len);
        frame
    }

    proptest! {
        #[test]
        fn behaves_as_a_list_of_lengths(steps in prop::collection::vec((0u8..9, 0usize..20), 0..120)) {
            let mut pool = Pool::new(PoolConfig { slots: 256, slot_bytes: 256 });
            let (mut one, mut two) = (Chain::new(), Chain::new());
            let (mut a, mut b): (Vec<usize>, Vec<usize>) = (vec![], vec![]);
            for (step, n) in steps {
                match step {
                    0 => { one.push(frame(&mut pool, n)); a.push(n) }
                    1 => { two.push(frame(&mut pool, n)); b.push(n) }
                    2 => { one.push_front(frame(&mut pool, n)); a.insert(0, n) }
                    3 => { one.pop(); if !a.is_empty() { a.remove(0); } }
                    4 => { one.append(&mut two); a.append(&mut b) }
                    5 => { two.append(&mut one.split_off(n)); b.extend(a.drain(n.min(a.len())..)) }
                    6 => { one.move_front(n, &mut two); b.extend(a.drain(..n.min(a.len()))) }
                    7 => { one.retain(|f| f.len() != n); a.retain(|&len| len != n) }
                    _ => {
                        one.for_each_mut(|f| f.truncate(n));
                        a.iter_mut().for_each(|len| *len = n.min(*len));
                    }
                }
                for (chain, model) in [(&one, &a), (&two, &b)] {
                    prop_assert_eq!(&chain.iter().map(Frame::len).collect::<Vec<_>>(), model);
                    prop_assert_eq!(chain.bytes(), Bytes::from(model.iter().sum::<usize>()));
                }
            }
            prop_assert_eq!(pool.free() + one.len() + two.len(), 256);
        }
    }

    #[test]
    fn an_emptied_chain_keeps_its_storage() {
        let mut pool = Pool::new(PoolConfig { slots: 8, slot_bytes: 256 });
        let mut chain: Chain = (0..8).map(|_| frame(&mut pool, 1)).collect();
        let capacity = chain.capacity();
        assert_eq!(chain.drain().count(), 8);
        assert_eq!((chain.capacity(), chain.bytes()), (capacity, Bytes::ZERO));
    }
}
