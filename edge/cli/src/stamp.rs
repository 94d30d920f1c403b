//! The line with the time before each report: `-T` of `connstat`, `netstat`, `dlstat` and `flowstat`; what the line begins with is the
//! command's.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::Call;
use crate::session::{Failure, Session, die};

/// Which line.
pub(crate) enum Stamp {
    /// None at all.
    None,
    /// `-T d`: the date, behind these characters.
    Date(&'static str),
    /// `-T u`: seconds since the epoch, behind these characters.
    Seconds(&'static str),
}

impl Stamp {
    /// What `-T` says; the line begins with `before`.
    pub(crate) fn of(call: &Call<'_>, before: &'static str) -> Result<Self, Failure> {
        match call.args.value('T') {
            None => Ok(Self::None),
            Some("d") => Ok(Self::Date(before)),
            Some("u") => Ok(Self::Seconds(before)),
            Some(other) => Err(die(format!("invalid -T value '{other}': d or u"))),
        }
    }

    /// Writes the line.
    pub(crate) fn print(&self, session: &mut Session<'_>) -> Result<(), Failure> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        match self.line(seconds) {
            Some(line) => Ok(writeln!(session.out, "{line}")?),
            None => Ok(()),
        }
    }

    fn line(&self, seconds: u64) -> Option<String> {
        match self {
            Self::None => None,
            Self::Seconds(before) => Some(format!("{before}{seconds}")),
            Self::Date(before) => Some(format!("{before}{}", utc(seconds))),
        }
    }
}

/// `2026-11-21T20:41:02Z`: date(1)'s words depend on the language, and programs read this.
pub(crate) fn utc(seconds: u64) -> String {
    let (days, clock) = (seconds / 86_400, seconds % 86_400);
    // Howard Hinnant's civil_from_days: years begin in March, so a leap day ends one.
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        for (seconds, wanted) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_763_757_662, "2025-11-21T20:41:02Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), wanted);
        }
    }

    #[test]
    fn each_command_has_its_own_beginning() {
        for (stamp, line) in [
            (Stamp::None, None),
            (Stamp::Date("= "), Some("= 1970-01-01T00:01:00Z")),
            (Stamp::Seconds(""), Some("60")),
        ] {
            assert_eq!(stamp.line(60).as_deref(), line);
        }
    }
}
