//! The frames of an FPM stream (FRR's `fpm/fpm.h`): a header of four bytes, then what it says is inside.
//!
//! Owned by `feed.rs`. A frame's length has 16 bits, so what is kept of an unfinished one is bounded by itself.

use core::fmt;

/// Version, type, and the length of the whole frame.
const HEADER: usize = 4;
/// The version that there is (`FPM_PROTO_VERSION`).
const VERSION: u8 = 1;
/// `FPM_MSG_TYPE_NETLINK`
const NETLINK: u8 = 1;

/// Why nothing behind a frame can be found any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// It has this version.
    Version(u8),
    /// It says that it has so many bytes, which is less than its header.
    Length(u16),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "a frame of version {version}: FPM's is {VERSION}"),
            Self::Length(length) => write!(f, "a frame of {length} bytes: its header alone has {HEADER}"),
        }
    }
}

/// What is in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frame<'a> {
    /// Netlink messages.
    Netlink(&'a [u8]),
    /// Something else.
    Other,
}

/// Puts frames together.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    held: Vec<u8>,
    /// How much of it has been read.
    at: usize,
}

impl Frames {
    /// More of the stream has come.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.held.drain(..self.at);
        self.at = 0;
        self.held.extend_from_slice(bytes);
    }

    /// Another stream begins.
    pub(crate) fn clear(&mut self) {
        (self.held, self.at) = (Vec::new(), 0);
    }

    /// The next frame that is whole.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, Broken> {
        let rest = &self.held[self.at..];
        let Some(&[version, kind, high, low]) = rest.first_chunk::<HEADER>() else { return Ok(None) };
        let length = u16::from_be_bytes([high, low]);
        if version != VERSION {
            return Err(Broken::Version(version));
        }
        if usize::from(length) < HEADER {
            return Err(Broken::Length(length));
        }
        let Some(inside) = rest.get(HEADER..length.into()) else { return Ok(None) };
        self.at += usize::from(length);
        Ok(Some(if kind == NETLINK { Frame::Netlink(inside) } else { Frame::Other }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(stream: &[u8], pieces: usize) -> (Vec<Option<Vec<u8>>>, Option<Broken>) {
        let mut frames = Frames::default();
        let mut found = Vec::new();
        for piece in stream.chunks(pieces) {
            frames.push(piece);
            loop {
                match frames.next() {
                    Ok(Some(Frame::Netlink(inside))) => found.push(Some(inside.to_vec())),
                    Ok(Some(Frame::Other)) => found.push(None),
                    Ok(None) => break,
                    Err(broken) => return (found, Some(broken)),
                }
            }
        }
        (found, None)
    }

    #[test]
    fn frames_are_told_apart() {
        let stream = [1, 1, 0, 6, 7, 8, 1, 2, 0, 5, 9, 1, 1, 0, 4, 1, 1, 0, 9];
        let expected = vec![Some(vec![7, 8]), None, Some(Vec::new())];
        assert_eq!(all(&stream, 100), (expected, None));
        assert_eq!(all(&[2, 1, 0, 6], 4).1, Some(Broken::Version(2)));
        assert_eq!(all(&[1, 1, 0, 3], 4).1, Some(Broken::Length(3)));
    }

    proptest! {
        #[test]
        fn how_a_stream_is_cut_makes_no_difference(
            stream in proptest::collection::vec(prop_oneof![4 => 0u8..6, 1 => any::<u8>()], 0..200),
            pieces in 1usize..50,
        ) {
            prop_assert_eq!(all(&stream, pieces), all(&stream, 1000));
        }
    }
}
