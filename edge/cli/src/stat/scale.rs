//! Counters as people read them: decimal units with two decimals, right-justified in eight places.

/// How a counter is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scale {
    /// With the unit that leaves fewer than four digits before the point.
    Auto,
    /// In this power of a thousand.
    Unit(usize),
    /// As it is, without spaces, for programs.
    Plain,
}

const UNITS: [&str; 6] = ["", "K", "M", "G", "T", "P"];

impl Scale {
    /// The scale that `-u` names: `R` for raw, or a unit.
    pub(super) fn of_unit(word: &str) -> Option<Self> {
        let power = if word == "R" {
            Some(0)
        } else {
            UNITS.iter().skip(1).position(|unit| *unit == word).map(|p| p + 1)
        };
        power.map(Self::Unit)
    }

    /// The counter as text.
    pub(super) fn show(self, count: u64) -> String {
        let power = match self {
            Self::Plain => return count.to_string(),
            Self::Unit(power) => power,
            Self::Auto => {
                (0..UNITS.len() - 1).find(|&p| count < 1000u64.pow(p as u32 + 1)).unwrap_or(UNITS.len() - 1)
            }
        };
        if power == 0 {
            return format!(" {count:>7}");
        }
        format!(" {:>6.2}{}", count as f64 / 1000f64.powi(power as i32), UNITS[power])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_scale_by_thousands() {
        for (count, want) in [
            (0, "       0"),
            (999, "     999"),
            (1000, "   1.00K"),
            (58_000, "  58.00K"),
            (9_520_000, "   9.52M"),
            (787_390_000, " 787.39M"),
            (u64::MAX, " 18446.74P"),
        ] {
            assert_eq!(Scale::Auto.show(count), want);
        }
        assert_eq!(Scale::of_unit("R").unwrap().show(12_345), "   12345");
        assert_eq!(Scale::of_unit("M").unwrap().show(12_345), "   0.01M");
        assert_eq!(Scale::Plain.show(12_345), "12345");
        assert_eq!(Scale::of_unit("k"), None);
        assert_eq!(Scale::of_unit(""), None);
    }
}
