//! A rate in bits per second, with the spelling of the Solaris commands.
//!
//! `maxbw` values are an integer or decimal with an optional letter K, M or G (powers of ten); without a
//! letter they mean Mb/s. They are shown in Mb/s with three decimals if it is not whole (`500`, `1.500`), with six below a kilobit.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::Bytes;

/// Bits per second on the wire. Zero is legal and means that nothing passes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BitRate(u64);

const NANOS_PER_SEC: u128 = 1_000_000_000;

impl BitRate {
    /// Nothing passes.
    pub const ZERO: Self = Self(0);

    /// A rate of `bits` per second.
    pub const fn from_bps(bits: u64) -> Self {
        Self(bits)
    }

    /// A rate of `megabits` times 10^6 bits per second.
    pub const fn from_mbps(megabits: u64) -> Self {
        Self(megabits.saturating_mul(1_000_000))
    }

    /// Bits per second.
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// How long `bytes` take at this rate; [`Duration::MAX`] at rate zero.
    pub fn time_for(self, bytes: Bytes) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = (u128::from(bytes.0) * 8 * NANOS_PER_SEC).div_ceil(u128::from(self.0));
        u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
    }

    /// How many whole bytes pass in `span`.
    pub fn bytes_in(self, span: Duration) -> Bytes {
        let bytes = u128::from(self.0) * span.as_nanos() / (8 * NANOS_PER_SEC);
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

/// Why a rate could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseRateError;

impl fmt::Display for ParseRateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a rate is a number with an optional K, M or G (no letter means Mb/s), such as 50M or 1200K",
        )
    }
}

impl core::error::Error for ParseRateError {}

impl FromStr for BitRate {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        let (digits, unit) = match text.as_bytes().last() {
            Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000u64),
            Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
            Some(b'g' | b'G') => (&text[..text.len() - 1], 1_000_000_000),
            _ => (text, 1_000_000),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_number = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
            return Err(ParseRateError);
        }
        if digits.contains('.') && fraction.is_empty() {
            return Err(ParseRateError);
        }
        let whole: u64 = whole.parse().map_err(|_| ParseRateError)?;
        let mut bits = whole.checked_mul(unit).ok_or(ParseRateError)?;
        let mut place = unit;
        for digit in fraction.bytes() {
            place /= 10;
            // Less than a bit per second would be cut to nothing at all, which is another thing.
            if place == 0 && digit != b'0' {
                return Err(ParseRateError);
            }
            bits = bits.checked_add(u64::from(digit - b'0') * place).ok_or(ParseRateError)?;
        }
        Ok(Self(bits))
    }
}

impl fmt::Display for BitRate {
    /// Mb/s as the Solaris commands show it, with three decimals, or six where they would hide something.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mega, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        let text = match (rest, rest % 1_000) {
            (0, _) => mega.to_string(),
            (_, 0) => format!("{mega}.{:03}", rest / 1_000),
            _ => format!("{mega}.{rest:06}"),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spellings() {
        for (text, bits) in [
            ("50M", 50_000_000),
            ("50m", 50_000_000),
            ("50", 50_000_000),
            ("1200K", 1_200_000),
            ("1G", 1_000_000_000),
            ("1000M", 1_000_000_000),
            ("1.5", 1_500_000),
            ("0", 0),
            ("0.000001", 1),
            ("0.0010K", 1),
        ] {
            assert_eq!(text.parse(), Ok(BitRate::from_bps(bits)), "{text}");
        }
        for text in [
            "",
            "M",
            "-1",
            "1T",
            "5%",
            "1.",
            ".5",
            "1e3",
            "99999999999999G",
            " 5",
            "0.0001K",
            "0.0000001",
            "1.0005K",
        ] {
            assert_eq!(text.parse::<BitRate>(), Err(ParseRateError), "{text:?}");
        }
    }

    #[test]
    fn shown_in_megabits() {
        assert_eq!(BitRate::from_mbps(500).to_string(), "500");
        assert_eq!(BitRate::from_bps(1_500_000).to_string(), "1.500");
        assert_eq!(BitRate::from_bps(1).to_string(), "0.000001");
    }

    proptest! {
        #[test]
        fn time_and_bytes_agree(bps in 1u64..1_000_000_000_000, bytes in 0u64..1 << 40) {
            let rate = BitRate::from_bps(bps);
            let span = rate.time_for(Bytes(bytes));
            prop_assert!(rate.bytes_in(span) >= Bytes(bytes));
        }
    }
}
