//! How a VNIC comes by its Ethernet address.

use core::str::FromStr;

use firelane_units::MacAddr;

use crate::value::{TextValue, serde_as_text};
use crate::{FactorySlot, LinkName};

/// Where a VNIC's address comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mac {
    /// Firelane chooses: the same address again after a restart.
    #[default]
    Auto,
    /// As `Auto`. The original's `auto` takes a factory address where there is one.
    Random,
    /// As `Auto`, with these first three bytes in place of [`AUTOMATIC_MAC_PREFIX`].
    Prefixed([u8; 3]),
    /// One that the NIC below has from its factory: the one in this slot, or in the lowest that is free.
    Factory(Option<FactorySlot>),
    /// This one.
    Fixed(MacAddr),
}

impl TextValue for Mac {
    const ALLOWED: &'static str = "auto, random, factory, factory/slot, random/prefix with a prefix of three bytes such as 2:8:20, or a unicast MAC address of six hexadecimal bytes with colons, such as 2:8:20:1:a:b";

    fn read(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "random" => Some(Self::Random),
            "factory" => Some(Self::Factory(None)),
            _ => match (text.strip_prefix("random/"), text.strip_prefix("factory/")) {
                (Some(prefix), _) => read_prefix(prefix).map(Self::Prefixed),
                (_, Some(slot)) => slot.parse().ok().map(|slot| Self::Factory(Some(slot))),
                (None, None) => text.parse().ok().filter(|mac: &MacAddr| mac.is_unicast()).map(Self::Fixed),
            },
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Random => "random".to_owned(),
            Self::Prefixed([a, b, c]) => format!("random/{a:02x}:{b:02x}:{c:02x}"),
            Self::Factory(None) => "factory".to_owned(),
            Self::Factory(Some(slot)) => format!("factory/{slot}"),
            Self::Fixed(mac) => mac.to_string(),
        }
    }
}

/// The first three bytes of an address, `2:8:20`; a station's, not a group's.
fn read_prefix(text: &str) -> Option<[u8; 3]> {
    // What three more bytes make an address of is checked as one.
    let MacAddr([a, b, c, ..]) =
        format!("{text}:0:0:1").parse().ok().filter(|mac: &MacAddr| mac.is_unicast())?;
    Some([a, b, c])
}

serde_as_text!(Mac);

impl FromStr for Mac {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::read(text).ok_or(Self::ALLOWED)
    }
}

/// The first three bytes of the addresses that Firelane chooses (the Solaris default prefix).
pub const AUTOMATIC_MAC_PREFIX: [u8; 3] = [0x02, 0x08, 0x20];

/// The address that Firelane chooses for `name`. `seed` tells hosts and instances apart; `attempt` counts
/// up from zero while the result is taken. The same arguments give the same address on every run.
pub fn automatic_mac(name: &LinkName, seed: u64, attempt: u32) -> MacAddr {
    prefixed_mac(AUTOMATIC_MAC_PREFIX, name, seed, attempt)
}

/// The same with another prefix.
pub fn prefixed_mac(prefix: [u8; 3], name: &LinkName, seed: u64, attempt: u32) -> MacAddr {
    // FNV-1a with a final mix: spreads names, needs no secret.
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = seed.to_le_bytes().into_iter().chain(attempt.to_le_bytes()).chain(name.as_str().bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    let mixed = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let [a, b, c] = prefix;
    let [.., d, e, f] = (mixed >> 32).to_be_bytes();
    MacAddr([a, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn automatic_addresses_are_stable_unicast_and_spread() {
        let name: LinkName = "web0".parse().unwrap();
        assert_eq!(automatic_mac(&name, 1, 0), automatic_mac(&name, 1, 0));
        let many: HashSet<_> = (0..1000)
            .map(|i| automatic_mac(&format!("vnic{i}").parse().unwrap(), 1, 0))
            .chain((1..10).map(|attempt| automatic_mac(&name, 1, attempt)))
            .collect();
        assert!(many.len() > 1000, "{}", many.len());
        assert!(many.iter().all(|mac| mac.is_unicast()));
    }

    #[test]
    fn words_and_addresses() {
        assert_eq!("auto".parse(), Ok(Mac::Auto));
        assert_eq!("random/aa:0:1".parse(), Ok(Mac::Prefixed([0xaa, 0, 1])));
        for text in ["factory", "factory/3"] {
            let mac: Mac = text.parse().unwrap();
            assert_eq!((mac.write().as_str(), matches!(mac, Mac::Factory(_))), (text, true));
        }
        assert_eq!("2:8:20:0:0:1".parse(), Ok(Mac::Fixed(MacAddr([2, 8, 0x20, 0, 0, 1]))));
        for bad in [
            "",
            "AUTO",
            "ff:ff:ff:ff:ff:ff",
            "1:0:0:0:0:0",
            "0:0:0:0:0:0",
            "2:8:20:0:0",
            "random/2:8",
            "random/1:0:0",
            "random/",
            "factory/",
            "factory/0",
            "factory/01x",
        ] {
            assert_eq!(bad.parse::<Mac>(), Err(Mac::ALLOWED), "{bad:?}");
        }
    }
}
