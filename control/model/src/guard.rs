//! Link protection of a VNIC: which kinds, and what they allow.

use firelane_units::{IpPrefix, Protection, Protections};

use crate::value::{TextValue, serde_as_text};

/// How a VNIC's user is kept from saying that it is somebody else.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guard {
    /// Which kinds of protection.
    pub kinds: Protections,
    /// The addresses that `ip-nospoof` allows; if none, those that its network gives it.
    pub allowed_ips: Vec<IpPrefix>,
    /// The client identifiers that `dhcp-nospoof` allows beside the VNIC's own.
    pub allowed_cids: Vec<ClientId>,
}

impl Guard {
    /// How many addresses, and how many identifiers, may be allowed (Solaris: `MPT_MAXIPADDR`, `MPT_MAXCID`).
    pub const LISTED_MAX: usize = 32;
}

impl TextValue for Protections {
    const ALLOWED: &'static str = "protection is words with commas in one string, of mac-nospoof, restricted, ip-nospoof and dhcp-nospoof";

    fn read(text: &str) -> Option<Self> {
        text.split(',')
            .try_fold(Self::NONE, |all, word| Protection::from_word(word).map(|kind| all.with(kind)))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

/// A DHCP client identifier or DUID: `0x` and hexadecimal digits, or the text itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(String);

/// An option of DHCPv4 has one byte for its length.
const CLIENT_ID_BYTES_MAX: usize = 255;

impl ClientId {
    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        bytes(&self.0).unwrap_or_default()
    }
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let Some(digits) = text.strip_prefix("0x") else { return Some(text.as_bytes().to_vec()) };
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok().filter(|_| pair.len() == 2))
        .collect()
}

impl TextValue for ClientId {
    const ALLOWED: &'static str = "a DHCP client identifier is 0x and pairs of hexadecimal digits, or up to 255 letters, digits and -_.:@";

    fn read(text: &str) -> Option<Self> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:@".contains(&b);
        let fits = bytes(text).is_some_and(|it| (1..=CLIENT_ID_BYTES_MAX).contains(&it.len()));
        (fits && text.bytes().all(plain)).then(|| Self(text.to_owned()))
    }

    fn write(&self) -> String {
        self.0.clone()
    }
}

serde_as_text!(ClientId);

impl core::fmt::Display for ClientId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::str::FromStr for ClientId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::read(text).ok_or(Self::ALLOWED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_identifiers() {
        let kinds = Protections::read("ip-nospoof,mac-nospoof").unwrap();
        assert_eq!(kinds.write(), "mac-nospoof,ip-nospoof");
        assert_eq!((Protections::read(""), Protections::read("mac")), (None, None));
        assert_eq!(ClientId::read("0x01ff").unwrap().bytes(), [1, 255]);
        assert_eq!(ClientId::read("alice").unwrap().bytes(), b"alice");
        for bad in ["", "0x", "0x1", "0xgg", "a,b", "\u{e9}", &"a".repeat(256)] {
            assert_eq!(ClientId::read(bad), None, "{bad:?}");
        }
    }
}
