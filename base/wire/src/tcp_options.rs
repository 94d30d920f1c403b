//! TCP options: MSS, window scale, SACK permitted, SACK blocks, timestamps and Fast Open (RFC 9293 §3.1, RFC 7323,
//! RFC 2018, RFC 7413).
//!
//! Parsed for every segment by `path/tcp`, so the layout that established connections use (two NOPs and a
//! timestamp) is recognised as a whole. Unknown options are skipped; one whose length is impossible ends
//! the parse, and what was read before it stands: a bad option never harms its connection. Emitted in
//! Linux's exact order and padding, which middleboxes and test tools expect. Which options mean something
//! on which segment is `path/tcp`'s to say.

use firelane_units::SeqNum;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const FAST_OPEN: u8 = 34;

/// The blocks of a SACK option, at most four: first and one past the last sequence number of each.
///
/// No SYN has such blocks and no other segment a Fast Open cookie, so a cookie lies in their place: every segment
/// carries its options about, and none pays for what one in a connection's life needs.
#[derive(Clone, Copy, Default)]
pub struct SackBlocks {
    blocks: [(SeqNum, SeqNum); SackBlocks::MAX],
    count: u8,
    /// One more than the length of the cookie that lies in the blocks' place; zero without one.
    cookie: u8,
}

impl SackBlocks {
    /// As many as fit into 40 bytes of options.
    pub const MAX: usize = 4;
    /// No block.
    pub const EMPTY: Self = Self { blocks: [(SeqNum(0), SeqNum(0)); Self::MAX], count: 0, cookie: 0 };

    /// Adds a block; says whether there was room.
    pub fn push(&mut self, first: SeqNum, past_last: SeqNum) -> bool {
        let Some(slot) = self.blocks.get_mut(usize::from(self.count)) else { return false };
        *slot = (first, past_last);
        self.count += 1;
        self.cookie = 0;
        true
    }

    /// Whether there are blocks, or a cookie in their place.
    #[inline]
    const fn is_used(&self) -> bool {
        self.count | self.cookie != 0
    }

    /// The place of the blocks with a cookie in it.
    #[cold]
    fn of_cookie(cookie: FastOpen) -> Self {
        let mut place = Self { cookie: cookie.len + 1, ..Self::EMPTY };
        let word = |n: usize| SeqNum(crate::bytes::be32(&cookie.bytes, n * 4));
        (place.blocks[0], place.blocks[1]) = ((word(0), word(1)), (word(2), word(3)));
        place
    }

    /// The cookie in the place of the blocks.
    #[cold]
    fn to_cookie(self) -> FastOpen {
        let [(a, b), (c, d), ..] = self.blocks;
        let mut cookie = FastOpen { len: self.cookie.saturating_sub(1), ..FastOpen::REQUEST };
        for (place, word) in cookie.bytes.as_chunks_mut::<4>().0.iter_mut().zip([a, b, c, d]) {
            *place = word.0.to_be_bytes();
        }
        cookie
    }

    /// The blocks, in the order of the option.
    #[inline]
    pub fn as_slice(&self) -> &[(SeqNum, SeqNum)] {
        &self.blocks[..usize::from(self.count)]
    }

    /// The blocks, in the order of the option.
    pub fn iter(&self) -> impl Iterator<Item = (SeqNum, SeqNum)> + '_ {
        self.as_slice().iter().copied()
    }

    /// How many blocks there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl FromIterator<(SeqNum, SeqNum)> for SackBlocks {
    /// The first four.
    fn from_iter<I: IntoIterator<Item = (SeqNum, SeqNum)>>(blocks: I) -> Self {
        let mut out = Self::EMPTY;
        for (first, past_last) in blocks.into_iter().take(Self::MAX) {
            out.push(first, past_last);
        }
        out
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        let cookies_agree =
            self.cookie == other.cookie && (self.cookie == 0 || self.to_cookie() == other.to_cookie());
        cookies_agree && self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}

impl core::fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// What the Fast Open option of a SYN or SYN-ACK holds (RFC 7413 §4.1.1): a cookie, or nothing, which asks for one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FastOpen {
    len: u8,
    bytes: [u8; FastOpen::MAX],
}

impl FastOpen {
    /// A cookie has at least so many bytes,
    pub const MIN: usize = 4;
    /// and at most so many. Their number is even.
    pub const MAX: usize = 16;
    /// Asks for a cookie.
    pub const REQUEST: Self = Self { len: 0, bytes: [0; Self::MAX] };

    /// A cookie, if its length is one that RFC 7413 allows; no bytes are the request.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let len = bytes.len();
        let is_cookie = (Self::MIN..=Self::MAX).contains(&len) && len.is_multiple_of(2);
        if len > 0 && !is_cookie {
            return None;
        }
        let mut cookie = Self { len: len as u8, ..Self::REQUEST };
        cookie.bytes[..len].copy_from_slice(bytes);
        Some(cookie)
    }

    /// The cookie's bytes; none asks for one.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether it asks for a cookie.
    pub const fn is_request(&self) -> bool {
        self.len == 0
    }
}

/// In which order and with which padding options are written. They differ in SYNs alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OptionLayout {
    /// MSS, SACK permitted, timestamps, window scale, Fast Open: each word full, SACK permitted in the padding of
    /// timestamps.
    #[default]
    Linux,
    /// MSS, window scale, SACK permitted, timestamps, Fast Open, then the end of the list and zeros.
    FreeBsd,
}

/// The options of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpOptions {
    /// The most payload that the sender takes in one segment, as announced.
    pub mss: Option<u16>,
    /// The sender's window shift, as announced (values above 14 included).
    pub window_scale: Option<u8>,
    /// Whether the sender understands SACK.
    pub sack_permitted: bool,
    /// What arrived out of order.
    pub sack: SackBlocks,
    /// Timestamp value and echo reply.
    pub timestamps: Option<(u32, u32)>,
    /// How they are written; of options that were read it says nothing.
    pub layout: OptionLayout,
}

impl TcpOptions {
    /// No option.
    pub const EMPTY: Self = Self {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        sack: SackBlocks::EMPTY,
        timestamps: None,
        layout: OptionLayout::Linux,
    };
    /// The most bytes that a header has for options.
    pub const MAX_LEN: usize = 40;

    /// Reads the options field of a header. Of an option that is repeated the last counts, as on Linux.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Self {
        match Self::lone_timestamps(bytes) {
            Some(timestamps) => Self { timestamps: Some(timestamps), ..Self::EMPTY },
            None if bytes.is_empty() => Self::EMPTY,
            None => Self::parse_any(bytes),
        }
    }

    /// The timestamps of an options field that holds nothing else, behind two NOPs (RFC 7323 appendix A).
    #[inline]
    pub fn lone_timestamps(bytes: &[u8]) -> Option<(u32, u32)> {
        let field: &[u8; 12] = bytes.try_into().ok()?;
        let is_lone = field.starts_with(&[NOP, NOP, TIMESTAMPS, 10]);
        is_lone.then(|| (crate::bytes::be32(field, 4), crate::bytes::be32(field, 8)))
    }

    fn parse_any(mut bytes: &[u8]) -> Self {
        let mut options = Self::EMPTY;
        // Each turn takes at least one byte, so 40 bytes are at most 40 turns.
        while let [kind, rest @ ..] = bytes {
            match *kind {
                END => break,
                NOP => bytes = rest,
                kind => {
                    let Some(&length) = rest.first() else { break };
                    let Some((option, after)) = bytes.split_at_checked(usize::from(length)) else { break };
                    // A length of 0 or 1 does not even cover itself.
                    let [_, _, body @ ..] = option else { break };
                    options.read(kind, body);
                    bytes = after;
                }
            }
        }
        options
    }

    /// Takes one option; a known kind with another length than its own is skipped as if unknown.
    fn read(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            (MSS, &[high, low]) => self.mss = Some(u16::from_be_bytes([high, low])),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
                self.timestamps = Some((u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h])));
            }
            (SACK, body) => {
                let (blocks, rest) = body.as_chunks::<8>();
                if rest.is_empty() && !blocks.is_empty() {
                    let edge = |b: &[u8; 8], at| SeqNum(crate::bytes::be32(b, at));
                    self.sack = blocks.iter().map(|block| (edge(block, 0), edge(block, 4))).collect();
                }
            }
            // A length that no cookie has is no option that we know.
            (FAST_OPEN, body) => {
                *self = FastOpen::new(body).map_or(*self, |cookie| self.with_fast_open(cookie))
            }
            _ => {}
        }
    }

    /// What a SYN or SYN-ACK says about Fast Open.
    #[inline]
    pub fn fast_open(&self) -> Option<FastOpen> {
        if self.sack.cookie == 0 { None } else { Some(self.sack.to_cookie()) }
    }

    /// These options of a SYN or SYN-ACK with this about Fast Open.
    #[must_use]
    pub fn with_fast_open(self, cookie: FastOpen) -> Self {
        Self { sack: SackBlocks::of_cookie(cookie), ..self }
    }

    /// How many SACK blocks fit beside the other options.
    #[inline]
    pub const fn sack_room(&self) -> usize {
        let room = (Self::MAX_LEN - self.len_without_sack()).saturating_sub(4) / 8;
        if room < SackBlocks::MAX { room } else { SackBlocks::MAX }
    }

    /// Bytes that [`emit`](Self::emit) writes, a multiple of 4 and at most 40.
    #[inline]
    pub const fn emitted_len(&self) -> usize {
        if self.only_timestamps().is_some() {
            return 12;
        }
        let blocks = self.emitted_blocks();
        self.len_without_sack() + if blocks > 0 { 4 + 8 * blocks } else { 0 }
    }

    /// The timestamps, if they are all: the options of nearly every segment.
    #[inline]
    pub(crate) const fn only_timestamps(&self) -> Option<(u32, u32)> {
        let has_others =
            self.mss.is_some() || self.window_scale.is_some() || self.sack_permitted || self.sack.is_used();
        if has_others { None } else { self.timestamps }
    }

    /// The first word of the timestamps option behind its padding.
    pub(crate) const TIMESTAMPS_LEAD: u32 = u32::from_be_bytes([NOP, NOP, TIMESTAMPS, 10]);

    const fn emitted_blocks(&self) -> usize {
        let room = self.sack_room();
        if self.sack.len() < room { self.sack.len() } else { room }
    }

    const fn len_without_sack(&self) -> usize {
        let mut length = 0;
        if self.mss.is_some() {
            length += 4;
        }
        if self.timestamps.is_some() {
            length += 12;
        } else if self.sack_permitted {
            length += 4;
        }
        if self.window_scale.is_some() {
            length += 4;
        }
        // FreeBSD lets SACK permitted and the timestamps share a word, as Linux does, so the sums are the same.
        if let Some(len) = self.sack.cookie.checked_sub(1) {
            let is_packed = matches!(self.layout, OptionLayout::FreeBsd)
                && self.timestamps.is_none()
                && self.sack_permitted;
            // FreeBSD begins it in the word that SACK permitted has left half empty.
            let begun = if is_packed { 2 } else { 0 };
            length += (2 + len as usize - begun).next_multiple_of(4);
        }
        length
    }

    /// Writes the options to the front of `buffer`. SACK blocks that do not fit are left out.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) {
        let mut out = Writer { rest: buffer };
        let of_syn = self.sack.is_empty()
            && (self.window_scale.is_some() || self.sack_permitted || self.sack.cookie != 0);
        if self.layout == OptionLayout::FreeBsd && of_syn {
            return self.emit_freebsd_syn(&mut out);
        }
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            out.put([MSS, 4, high, low]);
        }
        if let Some((value, echo)) = self.timestamps {
            // Linux puts "SACK permitted" where the padding of the timestamps would be.
            let lead = if self.sack_permitted { [SACK_PERMITTED, 2] } else { [NOP, NOP] };
            out.put([lead[0], lead[1], TIMESTAMPS, 10]);
            out.put(value.to_be_bytes());
            out.put(echo.to_be_bytes());
        } else if self.sack_permitted {
            out.put([NOP, NOP, SACK_PERMITTED, 2]);
        }
        if let Some(shift) = self.window_scale {
            out.put([NOP, WINDOW_SCALE, 3, shift]);
        }
        let blocks = self.emitted_blocks();
        if blocks > 0 {
            out.put([NOP, NOP, SACK, 2 + 8 * blocks as u8]);
            for (first, past_last) in self.sack.iter().take(blocks) {
                out.put(first.0.to_be_bytes());
                out.put(past_last.0.to_be_bytes());
            }
        }
        if self.sack.cookie != 0 {
            out.put_fast_open(&[], &self.sack.to_cookie(), NOP);
        }
    }
}

impl TcpOptions {
    /// A SYN's options as FreeBSD's `tcp_addoptions` writes them.
    #[cold]
    fn emit_freebsd_syn(&self, out: &mut Writer<'_>) {
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            out.put([MSS, 4, high, low]);
        }
        if let Some(shift) = self.window_scale {
            out.put([NOP, WINDOW_SCALE, 3, shift]);
        }
        let mut begun: &[u8] = if self.sack_permitted { &[SACK_PERMITTED, 2] } else { &[] };
        if let Some((value, echo)) = self.timestamps {
            let lead = if self.sack_permitted { [SACK_PERMITTED, 2] } else { [NOP, NOP] };
            out.put([lead[0], lead[1], TIMESTAMPS, 10]);
            out.put(value.to_be_bytes());
            out.put(echo.to_be_bytes());
            begun = &[];
        }
        match self.fast_open() {
            Some(fast_open) => out.put_fast_open(begun, &fast_open, END),
            None if begun.is_empty() => {}
            None => out.put([SACK_PERMITTED, 2, END, END]),
        }
    }
}

/// Writes words one behind the other.
struct Writer<'a> {
    rest: &'a mut [u8],
}

impl Writer<'_> {
    #[inline(always)]
    fn put(&mut self, word: [u8; 4]) {
        let rest = core::mem::take(&mut self.rest);
        let (slot, rest) =
            rest.split_first_chunk_mut().expect("the caller of emit reserved emitted_len() bytes");
        *slot = word;
        self.rest = rest;
    }

    /// The Fast Open option behind what has `begun` its first word, its last one filled with `padding`.
    #[cold]
    fn put_fast_open(&mut self, begun: &[u8], fast_open: &FastOpen, padding: u8) {
        let cookie = fast_open.as_slice();
        let mut bytes = [padding; 4 + FastOpen::MAX];
        let mut len = 0;
        for part in [begun, &[FAST_OPEN, 2 + cookie.len() as u8], cookie] {
            bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        bytes.as_chunks::<4>().0[..len.div_ceil(4)].iter().for_each(|word| self.put(*word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options() -> impl Strategy<Value = TcpOptions> {
        let block = any::<(u32, u32)>().prop_map(|(a, b)| (SeqNum(a), SeqNum(b)));
        let sack = proptest::collection::vec(block, 0..=4).prop_map(SackBlocks::from_iter);
        (any::<Option<u16>>(), any::<Option<u8>>(), any::<bool>(), sack, any::<Option<(u32, u32)>>())
            .prop_map(|(mss, window_scale, sack_permitted, sack, timestamps)| TcpOptions {
                mss,
                window_scale,
                sack_permitted,
                sack,
                timestamps,
                ..TcpOptions::EMPTY
            })
    }

    fn fast_open() -> impl Strategy<Value = FastOpen> {
        let bytes = proptest::collection::vec(any::<u8>(), 4..=16);
        let cookie = bytes.prop_map(|bytes| FastOpen::new(&bytes[..bytes.len() & !1]));
        proptest::option::of(cookie).prop_map(|it| it.flatten().unwrap_or(FastOpen::REQUEST))
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_read_back(options in options()) {
            let mut buffer = [0xee; 44];
            let length = options.emitted_len();
            options.emit(&mut buffer[..length]);
            prop_assert!(length <= 40 && length % 4 == 0);
            let fitting = options.sack.iter().take(options.sack_room()).collect();
            prop_assert_eq!(TcpOptions::parse(&buffer[..length]), TcpOptions { sack: fitting, ..options });
        }

        /// A SYN with everything, in both layouts: the longest has exactly the 40 bytes that there are.
        #[test]
        fn a_cookie_is_read_back(options in options(), fast_open in fast_open(), freebsd: bool) {
            let layout = if freebsd { OptionLayout::FreeBsd } else { OptionLayout::Linux };
            let syn = TcpOptions { layout, ..options }.with_fast_open(fast_open);
            prop_assert_eq!(syn.fast_open(), Some(fast_open));
            let mut buffer = [0xee; 44];
            let length = syn.emitted_len();
            syn.emit(&mut buffer[..length]);
            prop_assert!(length <= 40 && length.is_multiple_of(4));
            prop_assert_eq!(TcpOptions::parse(&buffer[..length]), TcpOptions { layout: OptionLayout::Linux, ..syn });
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(prop_oneof![0u8..12, any::<u8>()], 0..=40)) {
            prop_assert!(TcpOptions::parse(&bytes).sack.len() <= 4);
        }

        #[test]
        fn the_short_way_reads_the_same(value: u32, echo: u32) {
            let mut bytes = [0; 12];
            TcpOptions { timestamps: Some((value, echo)), ..TcpOptions::EMPTY }.emit(&mut bytes);
            prop_assert_eq!(TcpOptions::parse(&bytes), TcpOptions::parse_any(&bytes));
            prop_assert_eq!(TcpOptions::parse(&bytes).timestamps, Some((value, echo)));
        }
    }

    fn emitted(options: TcpOptions) -> Vec<u8> {
        let mut bytes = vec![0; options.emitted_len()];
        options.emit(&mut bytes);
        bytes
    }

    /// The layouts that Linux sends, byte by byte.
    #[test]
    fn linux_order_and_padding() {
        let syn =
            TcpOptions { mss: Some(1460), window_scale: Some(7), sack_permitted: true, ..TcpOptions::EMPTY };
        assert_eq!(emitted(syn), [2, 4, 5, 0xb4, 1, 1, 4, 2, 1, 3, 3, 7]);
        let stamped = TcpOptions { timestamps: Some((1, 2)), ..syn };
        assert_eq!(emitted(stamped), [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7]);
        let data = TcpOptions { timestamps: Some((1, 2)), ..TcpOptions::EMPTY };
        assert_eq!(emitted(data), [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        let block = [(SeqNum(3), SeqNum(4))].into_iter().collect();
        let gap = TcpOptions { sack: block, ..data };
        assert_eq!(emitted(gap), [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 5, 10, 0, 0, 0, 3, 0, 0, 0, 4]);
        let cookie = FastOpen::new(&[0xa, 0xb, 0xc, 0xd, 0xe, 0xf]).unwrap();
        let fast = syn.with_fast_open(cookie);
        let bytes = [2, 4, 5, 0xb4, 1, 1, 4, 2, 1, 3, 3, 7, 34, 8, 0xa, 0xb, 0xc, 0xd, 0xe, 0xf];
        assert_eq!(emitted(fast), bytes);
        let asking = TcpOptions { mss: Some(1460), ..TcpOptions::EMPTY }.with_fast_open(FastOpen::REQUEST);
        assert_eq!(emitted(asking), [2, 4, 5, 0xb4, 34, 2, 1, 1]);
        let plain_gap = TcpOptions { sack: block, ..TcpOptions::EMPTY };
        assert_eq!(emitted(plain_gap), [1, 1, 5, 10, 0, 0, 0, 3, 0, 0, 0, 4]);
        assert_eq!((TcpOptions::EMPTY.sack_room(), data.sack_room()), (4, 3));
    }

    /// FreeBSD's SYNs, byte by byte.
    #[test]
    fn freebsd_order_and_padding() {
        let layout = OptionLayout::FreeBsd;
        let syn = TcpOptions {
            mss: Some(1460),
            window_scale: Some(6),
            sack_permitted: true,
            layout,
            ..TcpOptions::EMPTY
        };
        assert_eq!(emitted(syn), [2, 4, 5, 0xb4, 1, 3, 3, 6, 4, 2, 0, 0]);
        let stamped = TcpOptions { timestamps: Some((1, 2)), ..syn };
        assert_eq!(emitted(stamped), [2, 4, 5, 0xb4, 1, 3, 3, 6, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        let data = TcpOptions { timestamps: Some((1, 2)), layout, ..TcpOptions::EMPTY };
        assert_eq!(emitted(data), [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        let asking = syn.with_fast_open(FastOpen::REQUEST);
        assert_eq!(emitted(asking), [2, 4, 5, 0xb4, 1, 3, 3, 6, 4, 2, 34, 2]);
        let asking = TcpOptions { sack_permitted: false, ..asking };
        assert_eq!(emitted(asking), [2, 4, 5, 0xb4, 1, 3, 3, 6, 34, 2, 0, 0]);
        let fast = syn.with_fast_open(FastOpen::new(&[7; 8]).unwrap());
        let bytes = [2, 4, 5, 0xb4, 1, 3, 3, 6, 4, 2, 34, 10, 7, 7, 7, 7, 7, 7, 7, 7];
        assert_eq!(emitted(fast), bytes);
        let no_sack = TcpOptions { sack_permitted: false, ..stamped };
        assert_eq!(emitted(no_sack), [2, 4, 5, 0xb4, 1, 3, 3, 6, 1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    }

    /// T02: impossible lengths end the parse, and what came before stands.
    #[test]
    fn t02_malformed() {
        let mss = TcpOptions { mss: Some(1460), ..TcpOptions::EMPTY };
        for (tail, what) in [
            (&[3, 0, 7, 0][..], "length 0"),
            (&[3, 1, 7, 0], "length 1"),
            (&[8, 10, 0, 0], "past the end"),
            (&[254, 255, 0, 0], "past the end, unknown"),
            (&[1, 1, 1, 3], "no length"),
            (&[0, 3, 3, 7], "behind the end of the list"),
            (&[0xfd, 4, 1, 2], "unknown"),
            (&[19, 2, 1, 1], "MD5 without a digest"),
            (&[3, 4, 7, 7], "window scale of another length"),
            (&[5, 2, 1, 1], "SACK without blocks"),
            (&[5, 4, 0, 0], "SACK with half an edge"),
            (&[8, 4, 0, 0], "timestamps of another length"),
            (&[34, 4, 1, 2], "a cookie that is too short"),
            (&[34, 7, 1, 2, 3, 4, 5], "a cookie of odd length"),
            (
                &[34, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18],
                "a cookie that is too long",
            ),
        ] {
            let bytes = [&[2, 4, 5, 0xb4][..], tail].concat();
            assert_eq!(TcpOptions::parse(&bytes), mss, "{what}");
        }
    }

    #[test]
    fn t02_anything_of_forty_bytes() {
        assert_eq!(TcpOptions::parse(&[1; 40]), TcpOptions::EMPTY);
        assert_eq!(TcpOptions::parse(&[0; 40]), TcpOptions::EMPTY);
        assert_eq!(TcpOptions::parse(&[0xfd, 2].repeat(20)), TcpOptions::EMPTY);
        let unknown_first = [30, 8, 0, 0, 0, 0, 0, 0, 3, 3, 9, 1];
        assert_eq!(TcpOptions::parse(&unknown_first).window_scale, Some(9));
        let repeated = [2, 4, 1, 0, 2, 4, 2, 0, 3, 3, 1, 3, 3, 2, 4, 2, 4, 2];
        let expected =
            TcpOptions { mss: Some(512), window_scale: Some(2), sack_permitted: true, ..TcpOptions::EMPTY };
        assert_eq!(TcpOptions::parse(&repeated), expected);
    }
}
