//! What a program chooses of how its streams begin and end, of what is unsent and of its packets' headers, with Linux' values,
//! limits and error numbers.
//!
//! `sockopt.rs` asks here for options that it does not have itself; a connection gets them when it begins, and what changes
//! later by a message to the lane.

use core::num::NonZeroU8;
use core::time::Duration;

use firelane_lane::{DatagramOption, PacketOption, StreamOption, StreamOptions};
use firelane_tcp::{TcpConfig, deferred_repeats};
use firelane_units::{Family, Mss};

use crate::errno::{Sys, fail};

/// Linux' limits: `MAX_TCP_SYNCNT`, `TCP_FIN_TIMEOUT_MAX`, `TCP_MIN_MSS` and `MAX_TCP_WINDOW`.
const SYN_RETRIES_MAX: i32 = 127;
const FIN_WAIT_2_MAX: i32 = 120;
const SEGMENT_MIN: i32 = Mss::FLOOR as i32;
const SEGMENT_MAX: i32 = 32_767;

/// What is in the headers of a family's packets.
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    hops: Option<NonZeroU8>,
    class: u8,
}

const fn family_of(level: i32) -> Family {
    if level == libc::IPPROTO_IPV6 { Family::V6 } else { Family::V4 }
}

/// What was chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chosen {
    /// TCP_FASTOPEN of a listener, TCP_FASTOPEN_NO_COOKIE of either end, TCP_DEFER_ACCEPT.
    fast_open: u32,
    fast_trusts: bool,
    defer: u32,
    /// TCP_FASTOPEN_CONNECT.
    pub(crate) fast_connect: bool,
    syn_retries: Option<u8>,
    /// TCP_LINGER2: seconds; less than zero is not at all, zero as long as the stack says.
    fin_wait_2: i32,
    /// TCP_NOTSENT_LOWAT; zero is no limit.
    unsent: u32,
    /// TCP_MAXSEG.
    segment: Option<Mss>,
    /// IP_TTL and IP_TOS, IPV6_UNICAST_HOPS and IPV6_TCLASS.
    headers: [Header; 2],
    /// SO_RCVLOWAT less one.
    low_water: usize,
    /// SO_OOBINLINE.
    pub(crate) oob_inline: bool,
}

impl Chosen {
    /// setsockopt(2) of TCP's. What a connection that exists is told.
    pub(crate) fn set_tcp(&mut self, name: i32, value: i32) -> Sys<Option<StreamOption>> {
        match (name, value) {
            (libc::TCP_FASTOPEN, 0..) => self.fast_open = value.unsigned_abs(),
            (libc::TCP_FASTOPEN_NO_COOKIE, 0..=1) => self.fast_trusts = value != 0,
            (libc::TCP_FASTOPEN_CONNECT, 0..=1) => self.fast_connect = value != 0,
            (libc::TCP_DEFER_ACCEPT, _) => self.defer = value.max(0).unsigned_abs(),
            (libc::TCP_SYNCNT, 1..=SYN_RETRIES_MAX) => {
                self.syn_retries = Some(value as u8);
                return Ok(Some(StreamOption::SynRetries(self.syn_retries)));
            }
            (libc::TCP_LINGER2, _) => {
                self.fin_wait_2 = value.clamp(-1, FIN_WAIT_2_MAX);
                return Ok(Some(StreamOption::FinWait2(self.fin_wait_2())));
            }
            (libc::TCP_NOTSENT_LOWAT, _) => {
                self.unsent = value.cast_unsigned();
                return Ok(Some(StreamOption::UnsentLimit(self.unsent_limit())));
            }
            (libc::TCP_MAXSEG, 0) => self.segment = None,
            (libc::TCP_MAXSEG, SEGMENT_MIN..=SEGMENT_MAX) => self.segment = Some(Mss::clamped(value as u16)),
            (
                libc::TCP_FASTOPEN
                | libc::TCP_FASTOPEN_NO_COOKIE
                | libc::TCP_FASTOPEN_CONNECT
                | libc::TCP_SYNCNT
                | libc::TCP_MAXSEG,
                _,
            ) => return fail(libc::EINVAL),
            _ => return fail(libc::ENOPROTOOPT),
        }
        Ok(None)
    }

    /// setsockopt(2) of the packets' headers.
    pub(crate) fn set_header(&mut self, level: i32, name: i32, value: i32) -> Sys<()> {
        let at = family_of(level).index();
        match (level, name) {
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
                self.headers[at].hops = match (value, u8::try_from(value).ok().and_then(NonZeroU8::new)) {
                    (-1, _) => None,
                    (_, None) => return fail(libc::EINVAL),
                    (_, hops) => hops,
                };
            }
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                match u8::try_from(value) {
                    Ok(class) => self.headers[at].class = class,
                    Err(_) if value == -1 => self.headers[at].class = 0,
                    Err(_) => return fail(libc::EINVAL),
                }
            }
            _ => return fail(libc::ENOPROTOOPT),
        }
        Ok(())
    }

    /// SO_RCVLOWAT: zero is one, and less than zero everything.
    pub(crate) fn set_low_water(&mut self, value: i32) {
        self.low_water = usize::try_from(value).unwrap_or(i32::MAX as usize).saturating_sub(1);
    }

    /// How much must be there before a reader hears of it.
    pub(crate) fn low_water(&self) -> usize {
        self.low_water + 1
    }

    /// getsockopt(2) of TCP's; `None` is not one of these.
    pub(crate) fn get_tcp(&self, name: i32, usual: &TcpConfig) -> Option<i32> {
        Some(match name {
            libc::TCP_FASTOPEN => self.fast_open.cast_signed(),
            libc::TCP_FASTOPEN_NO_COOKIE => self.fast_trusts.into(),
            libc::TCP_FASTOPEN_CONNECT => self.fast_connect.into(),
            libc::TCP_DEFER_ACCEPT => (1 << deferred_repeats(self.defer)) - 1,
            libc::TCP_SYNCNT => self.syn_retries.unwrap_or_else(|| usual.syn_repeats()).into(),
            libc::TCP_LINGER2 if self.fin_wait_2 != 0 => self.fin_wait_2,
            libc::TCP_LINGER2 => i32::try_from(usual.fin_wait_2_timeout.as_secs()).unwrap_or(i32::MAX),
            libc::TCP_NOTSENT_LOWAT => self.unsent.cast_signed(),
            // A socket without a connection answers with the least that every path carries (`TCP_MSS_DEFAULT`).
            libc::TCP_MAXSEG => self.segment.unwrap_or(Mss::DEFAULT_V4).bytes().into(),
            _ => return None,
        })
    }

    /// getsockopt(2) of the packets' headers.
    pub(crate) fn get_header(&self, level: i32, name: i32) -> Sys<i32> {
        let Header { hops, class } = self.headers[family_of(level).index()];
        Ok(match (level, name) {
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
                hops.map_or(64, |hops| hops.get().into())
            }
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => class.into(),
            _ => return fail(libc::ENOPROTOOPT),
        })
    }

    /// What a connection, or a listener's connections, begin with.
    pub(crate) fn begin(&self, others: StreamOptions) -> StreamOptions {
        StreamOptions {
            fast_open_queue: self.fast_open,
            fast_open_trusts: self.fast_trusts,
            syn_retries: self.syn_retries,
            fin_wait_2: self.fin_wait_2(),
            mss_limit: self.segment,
            unsent_limit: self.unsent_limit(),
            defer: self.defer,
            ..others
        }
    }

    /// What a stream is told once it is there.
    pub(crate) fn stream_header(&self) -> impl Iterator<Item = StreamOption> + use<> {
        let headers = self.headers;
        Family::BOTH.into_iter().flat_map(move |family| {
            let Header { hops, class } = headers[family.index()];
            [StreamOption::Hops(family, hops), StreamOption::Dscp(family, class >> 2)]
        })
    }

    /// The same of a datagram socket.
    pub(crate) fn datagram_header(&self) -> impl Iterator<Item = DatagramOption> + use<> {
        let headers = self.headers;
        Family::BOTH.into_iter().flat_map(move |family| {
            let Header { hops, class } = headers[family.index()];
            [PacketOption::Hops(hops), PacketOption::TrafficClass(class)]
                .map(|option| DatagramOption::Packets(family, option))
        })
    }

    fn fin_wait_2(&self) -> Option<Duration> {
        (self.fin_wait_2 != 0).then(|| Duration::from_secs(self.fin_wait_2.max(0).unsigned_abs().into()))
    }

    fn unsent_limit(&self) -> Option<u32> {
        (self.unsent != 0).then_some(self.unsent)
    }
}
