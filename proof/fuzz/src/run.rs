//! Running a target: one input, or a stream of mutations, with the failing input written to a file.
//!
//! A panic in a target is the only failure. It is caught, the input is kept under `target/fuzz/`, and the
//! report says how to replay it.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::feedback;
use crate::mutate::mutate;
use crate::random::Random;
use crate::{Target, corpus};

/// An input that takes longer each time it is run is a failure: nothing here has more than some thousand
/// steps. Once may be the machine's fault.
const TIME_MAX: Duration = Duration::from_secs(10);
const SLOW_RUNS: usize = 3;

/// An input that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The target's name.
    pub target: &'static str,
    /// What it panicked with, or that it took too long.
    pub what: String,
    /// Where the input was written.
    pub file: PathBuf,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, what, file } = self;
        write!(f, "{target}: {what}\nreplay with: cargo run -p firelane-fuzz -- {target} {}", file.display())
    }
}

/// Runs one input. What it panics with goes to standard error as usual.
pub fn run(target: &Target, input: &[u8]) -> Result<(), Failure> {
    let mut what = String::new();
    for _ in 0..SLOW_RUNS {
        let begin = Instant::now();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
            let text = panic.downcast_ref::<&str>().map(|&text| text.to_owned());
            what = panic.downcast_ref::<String>().cloned().or(text).unwrap_or_else(|| "panicked".to_owned());
            break;
        }
        if begin.elapsed() < TIME_MAX {
            return Ok(());
        }
        what = format!("takes {:?}", begin.elapsed());
    }
    let file = keep(target, input).unwrap_or_else(|error| PathBuf::from(format!("(not written: {error})")));
    Err(Failure { target: target.name, what, file })
}

fn keep(target: &Target, input: &[u8]) -> std::io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz").join(target.name);
    fs::create_dir_all(&folder)?;
    let file = folder.join(format!("crash-{:016x}", hasher.finish()));
    fs::write(&file, input)?;
    Ok(file)
}

/// How long a stream of mutations is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// So many inputs: the same on every machine.
    Inputs(u64),
    /// So long.
    Time(Duration),
}

/// What a stream of mutations did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// How many inputs were run.
    pub inputs: u64,
    /// How many different things they showed.
    pub notes: usize,
    /// How many inputs were kept because they showed something new.
    pub kept: usize,
}

/// The most inputs that are kept in memory beside the corpus.
const KEPT_MAX: usize = 4096;

/// Runs the corpus, and then mutations of it and of what showed something new, from `seed`.
pub fn explore(target: &Target, seed: u64, budget: Budget) -> Result<Report, Failure> {
    let inputs = corpus::load(target).unwrap_or_default();
    let mut corpus: Vec<Vec<u8>> = inputs.into_iter().map(|(_, input)| input).collect();
    let (mut seen, mut report) = (HashSet::new(), Report::default());
    feedback::take_notes();
    for input in &corpus {
        run(target, input)?;
        seen.extend(feedback::take_notes());
    }
    let (mut random, begin) = (Random::new(seed), Instant::now());
    let own = corpus.len();
    loop {
        let goes_on = match budget {
            Budget::Inputs(count) => report.inputs < count,
            Budget::Time(span) => begin.elapsed() < span,
        };
        if !goes_on {
            report.notes = seen.len();
            report.kept = corpus.len() - own;
            return Ok(report);
        }
        let input = mutate(&mut random, &corpus);
        run(target, &input)?;
        report.inputs += 1;
        let before = seen.len();
        seen.extend(feedback::take_notes());
        if seen.len() > before && corpus.len() < own + KEPT_MAX {
            corpus.push(input);
        }
    }
}
