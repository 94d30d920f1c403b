//! What a benchmark prints: a table of medians with their spread, and the last line.
//!
//! Used by every benchmark. A row is one quantity over all rounds; a note says what a reader needs to judge it.

use std::fmt;

use crate::distance;

/// How many rounds a benchmark makes at least: fewer have no spread worth the name.
pub(crate) const ROUNDS_MIN: usize = 5;

/// What others may use of the CPUs in a round that counts as quiet: a twentieth of two.
const QUIET_CPUS: f64 = 0.1;

/// One quantity, measured once per round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The value below which the share `p` of the samples lies (nearest rank); zero without samples.
    pub(crate) fn percentile(&self, p: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (p * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(0.5)
    }

    /// Each sample changed by `f`.
    pub(crate) fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self(self.0.iter().map(|&value| f(value)).collect())
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl Extend<f64> for Samples {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, iter: I) {
        self.0.extend(iter);
    }
}

/// A table in text, printed row by row as the figures become known.
#[derive(Debug)]
pub(crate) struct Table;

impl Table {
    /// Prints the heading.
    pub(crate) fn begin(title: &str) -> Self {
        println!("{title}");
        println!("{}", machine());
        println!();
        println!("{:<44} {:>10}  {:>10} .. {:<10} {:<14}", "", "median", "p10", "p90", "unit");
        let trips = distance::noted();
        if !trips.is_empty() {
            Self.row("a cache line to the other CPU and back", &trips, "ns");
        }
        Self
    }

    /// One quantity.
    pub(crate) fn row(&self, what: &str, samples: &Samples, unit: &str) {
        let [low, median, high] = [0.1, 0.5, 0.9].map(|p| number(samples.percentile(p)));
        println!("{what:<44} {median:>10}  {low:>10} .. {high:<10} {unit:<14}");
    }

    /// How much of the machine others used meanwhile: a figure from a busy machine is worth little.
    pub(crate) fn disturbance(&self, foreign: &Samples) {
        self.row("CPUs that others used meanwhile", foreign, "CPUs");
        if foreign.median() > QUIET_CPUS {
            self.note("the machine was not quiet: measure again when it is");
        }
    }

    /// A fact that has no spread.
    pub(crate) fn fact(&self, what: &str, fact: &str) {
        println!("{what:<44} {fact}");
    }

    /// A quantity against what is wanted of it at least.
    pub(crate) fn at_least(&self, what: &str, value: f64, wanted: f64, unit: &str) {
        self.wanted(what, value, wanted, unit, "at least", value >= wanted);
    }

    /// A quantity against what is allowed of it at most.
    pub(crate) fn at_most(&self, what: &str, value: f64, wanted: f64, unit: &str) {
        self.wanted(what, value, wanted, unit, "at most", value <= wanted);
    }

    /// Whether nothing is allocated for frames. Chains keep their storage and grow a few times in their lives, when what a router says
    /// of itself leaves beside a full chain, however many frames pass.
    pub(crate) fn no_allocations(&self, what: &str, allocations: u64, frames: u64) {
        self.at_most(what, 1e6 * allocations as f64 / frames as f64, 1.0, "(counted)");
    }

    fn wanted(&self, what: &str, value: f64, wanted: f64, unit: &str, word: &str, is_met: bool) {
        let (value, wanted) = (number(value), number(wanted));
        let met = if is_met { "yes" } else { "NO" };
        println!("{what:<44} {value:>10}  wanted {word} {wanted} {unit}: {met}");
    }

    /// A remark below the rows.
    pub(crate) fn note(&self, text: &str) {
        println!("  {text}");
    }
}

/// Three significant digits, without an exponent.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 || v == 0.0 => 2,
        v if v >= 0.0995 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// The CPU and kernel in a line.
fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cpus} CPUs ({}), Linux {}", model.unwrap_or("unknown"), kernel.trim())
}

/// The last line of a benchmark.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) name: &'static str,
    /// How many times better Firelane is.
    pub(crate) ratio: f64,
    pub(crate) firelane: String,
    pub(crate) peer: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, ratio, firelane, peer } = self;
        write!(f, "{name}: ratio {ratio:.2} (firelane {firelane}, peer {peer})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let samples: Samples = [5.0, 1.0, 4.0, 2.0, 3.0].into_iter().collect();
        assert_eq!(samples.median(), 3.0);
        assert_eq!((samples.percentile(0.1), samples.percentile(0.9)), (1.0, 5.0));
        assert_eq!(Samples::default().median(), 0.0);
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        for (value, text) in [
            (0.0, "0.00"),
            (12345.6, "12346"),
            (99.96, "100"),
            (12.345, "12.3"),
            (1.234, "1.23"),
            (0.01234, "0.0123"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn the_last_line_is_as_promised() {
        let verdict = Verdict { name: "x", ratio: 1.5, firelane: "3 Gb/s".into(), peer: "2 Gb/s".into() };
        assert_eq!(verdict.to_string(), "x: ratio 1.50 (firelane 3 Gb/s, peer 2 Gb/s)");
    }
}
