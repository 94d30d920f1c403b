//! The chunks of an HTTP/1.1 body (RFC 9112 section 7.1), taken apart as they come, so that a stream which breaks off is told
//! from one that is over. Called by `client.rs`.

/// What has come and is not whole yet.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    rest: Vec<u8>,
}

/// How a body stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// More is to come.
    Open,
    /// The last chunk was there, or nobody wants more.
    Over,
    /// These are no chunks.
    Garbled,
}

impl Chunks {
    /// Takes `bytes` and gives each whole chunk to `sink`, until that answers `false`.
    pub(crate) fn take(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&[u8]) -> bool) -> Body {
        self.rest.extend_from_slice(bytes);
        let mut done = 0;
        let body = loop {
            let rest = &self.rest[done..];
            let (start, size) = match httparse::parse_chunk_size(rest) {
                Ok(httparse::Status::Complete(it)) => it,
                Ok(httparse::Status::Partial) => break Body::Open,
                Err(_) => break Body::Garbled,
            };
            if size == 0 {
                break Body::Over;
            }
            let end = usize::try_from(size).ok().and_then(|size| start.checked_add(size));
            let Some(end) = end.filter(|end| end.checked_add(2).is_some()) else { break Body::Garbled };
            let Some(after) = rest.get(end..end + 2) else { break Body::Open };
            if after != b"\r\n" {
                break Body::Garbled;
            }
            if !sink(&rest[start..end]) {
                break Body::Over;
            }
            done += end + 2;
        };
        self.rest.drain(..done);
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of `text` in pieces of `size` bytes.
    fn taken(text: &str, size: usize) -> (String, Body) {
        let (mut chunks, mut all, mut body) = (Chunks::default(), Vec::new(), Body::Open);
        for piece in text.as_bytes().chunks(size) {
            body = chunks.take(piece, &mut |bytes| {
                all.extend_from_slice(bytes);
                true
            });
            if body != Body::Open {
                break;
            }
        }
        (String::from_utf8(all).unwrap(), body)
    }

    #[test]
    fn a_body_is_over_only_behind_its_last_chunk() {
        let whole = "3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n";
        for size in 1..=whole.len() {
            assert_eq!(taken(whole, size), ("abc0123456789".to_owned(), Body::Over), "{size}");
            assert_eq!(taken(&whole[..whole.len() - 5], size), ("abc0123456789".to_owned(), Body::Open));
            assert_eq!(taken(&whole[..12], size), ("abc".to_owned(), Body::Open));
        }
        for bad in ["x\r\n", "3\r\nabcd\r\n", "ffffffffffffffff\r\n"] {
            assert_eq!(taken(bad, bad.len()).1, Body::Garbled, "{bad:?}");
        }
    }

    #[test]
    fn who_wants_no_more_ends_it() {
        let mut pieces = 0;
        let body = Chunks::default().take(b"1\r\na\r\n1\r\nb\r\n", &mut |_| {
            pieces += 1;
            false
        });
        assert_eq!((pieces, body), (1, Body::Over));
    }
}
