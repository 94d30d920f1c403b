//! What a program wants in the headers of its packets, and of those it gets (ip(7), ipv6(7)), of IPv4 and of IPv6 apart: a socket of IPv6 has the options of
//! both, and those of IPv4 count for what it sends to mapped addresses. Used by `options.rs` and `datagram_options.rs`.

use std::num::NonZeroU8;

use firelane_ip::HopLimits;
use firelane_units::Family;
use rustix::io::Errno;

use super::numbers::{class_of, ip, ipv6, priority_of_tos};

/// A change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeaderOption {
    /// IP_TTL, IPV6_UNICAST_HOPS; `None` is the link's.
    Hops(Family, Option<NonZeroU8>),
    /// IP_TOS, IPV6_TCLASS: the whole octet.
    Class(Family, u8),
    /// IP_MINTTL, IPV6_MINHOPCOUNT (RFC 5082).
    LeastHops(Family, u8),
}

/// What was set, by family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Headers {
    pub(super) hops: [Option<NonZeroU8>; 2],
    pub(super) class: [u8; 2],
    /// Of packets that come. Linux looks at those of streams alone.
    pub(super) least_hops: [u8; 2],
}

/// The family of a level.
pub(super) const fn family_of(level: i32) -> Family {
    if level == ipv6::LEVEL { Family::V6 } else { Family::V4 }
}

impl Headers {
    /// setsockopt(2), if the option is one of these. Of the class only the bits of `mask` are the program's; another TOS is another
    /// `priority`.
    pub(super) fn set(
        &mut self,
        (level, name): (i32, i32),
        value: i32,
        mask: u8,
        priority: &mut i32,
    ) -> Option<Result<HeaderOption, Errno>> {
        let family = family_of(level);
        match (level, name) {
            (ip::LEVEL, ip::TTL) | (ipv6::LEVEL, ipv6::UNICAST_HOPS) => {
                let hops = match value {
                    -1 => None,
                    _ => match u8::try_from(value).ok().and_then(NonZeroU8::new) {
                        None => return Some(Err(Errno::INVAL)),
                        hops => hops,
                    },
                };
                self.hops[family.index()] = hops;
                Some(Ok(HeaderOption::Hops(family, hops)))
            }
            (ip::LEVEL, ip::TOS) | (ipv6::LEVEL, ipv6::TCLASS) => Some(class_of(level, value).map(|class| {
                if family == Family::V4 && class & mask != self.class[family.index()] {
                    *priority = priority_of_tos(class & mask);
                }
                self.class[family.index()] = class & mask;
                HeaderOption::Class(family, class & mask)
            })),
            (ip::LEVEL, ip::MINTTL) | (ipv6::LEVEL, ipv6::MINHOPCOUNT) => {
                Some(u8::try_from(value).map_err(|_| Errno::INVAL).map(|least| {
                    self.least_hops[family.index()] = least;
                    HeaderOption::LeastHops(family, least)
                }))
            }
            _ => None,
        }
    }

    /// getsockopt(2), if the option is one of these; hops that the program has not set are the netstack's.
    pub(super) fn get(&self, level: i32, name: i32, usual: HopLimits) -> Option<i32> {
        let at = family_of(level).index();
        let usual = [usual.v4, usual.v6][at];
        match (level, name) {
            (ip::LEVEL, ip::TTL) | (ipv6::LEVEL, ipv6::UNICAST_HOPS) => {
                Some(self.hops[at].map_or(usual, NonZeroU8::get).into())
            }
            (ip::LEVEL, ip::TOS) | (ipv6::LEVEL, ipv6::TCLASS) => Some(self.class[at].into()),
            (ip::LEVEL, ip::MINTTL) | (ipv6::LEVEL, ipv6::MINHOPCOUNT) => Some(self.least_hops[at].into()),
            _ => None,
        }
    }

    /// What is not as it was in the beginning, of packets that are sent.
    pub(super) fn changed(&self) -> impl Iterator<Item = HeaderOption> + use<> {
        let Self { hops, class, .. } = *self;
        Family::BOTH.into_iter().flat_map(move |family| {
            let hops = hops[family.index()].map(|hops| HeaderOption::Hops(family, Some(hops)));
            let class = Some(class[family.index()]).filter(|&class| class != 0);
            hops.into_iter().chain(class.map(|class| HeaderOption::Class(family, class)))
        })
    }

    /// The same as words.
    pub(super) fn spelled(&self) -> impl Iterator<Item = String> + use<> {
        let least = Family::BOTH.into_iter().zip(self.least_hops).filter(|&(_, least)| least > 0);
        let least = least.map(|(family, least)| HeaderOption::LeastHops(family, least));
        self.changed().chain(least).map(|it| match it {
            HeaderOption::Hops(family, hops) => {
                let name = if family == Family::V4 { "ttl" } else { "hoplimit" };
                format!("{name}={}", hops.map_or(0, NonZeroU8::get))
            }
            HeaderOption::Class(family, class) => {
                let name = if family == Family::V4 { "tos" } else { "tclass" };
                format!("{name}={class:#04x}")
            }
            HeaderOption::LeastHops(family, least) => {
                let name = if family == Family::V4 { "minttl" } else { "minhopcount" };
                format!("{name}={least}")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_those_of_both_families() {
        let (mut headers, mut priority) = (Headers::default(), 0);
        let hops = |hops| NonZeroU8::new(hops);
        for (level, name, value, said) in [
            (0, 2, 7, Some(Ok(HeaderOption::Hops(Family::V4, hops(7))))),
            (41, 16, 9, Some(Ok(HeaderOption::Hops(Family::V6, hops(9))))),
            (0, 2, 0, Some(Err(Errno::INVAL))),
            (41, 16, 256, Some(Err(Errno::INVAL))),
            (0, 1, 0xbb, Some(Ok(HeaderOption::Class(Family::V4, 0xb8)))),
            (41, 67, 0x23, Some(Ok(HeaderOption::Class(Family::V6, 0x20)))),
            (41, 67, 256, Some(Err(Errno::INVAL))),
            (41, 16, -1, Some(Ok(HeaderOption::Hops(Family::V6, None)))),
            (0, 21, 255, Some(Ok(HeaderOption::LeastHops(Family::V4, 255)))),
            (41, 73, 254, Some(Ok(HeaderOption::LeastHops(Family::V6, 254)))),
            (41, 73, 256, Some(Err(Errno::INVAL))),
            (0, 21, -1, Some(Err(Errno::INVAL))),
            (41, 1, 1, None),
        ] {
            assert_eq!(
                headers.set((level, name), value, 0xfc, &mut priority),
                said,
                "{level} {name} {value}"
            );
        }
        assert_eq!(priority, 4, "that of the TOS");
        let got = [(0, 2), (41, 16), (0, 1), (41, 67), (0, 67)]
            .map(|(level, name)| headers.get(level, name, HopLimits { v4: 11, v6: 12 }));
        assert_eq!(got, [Some(7), Some(12), Some(0xb8), Some(0x20), None]);
        assert_eq!(
            headers.spelled().collect::<Vec<_>>(),
            ["ttl=7", "tos=0xb8", "tclass=0x20", "minttl=255", "minhopcount=254"]
        );
    }
}
