//! The corpus and some thousand mutations of it, in every test run; for longer by `make soak`.
//!
//! A failing input is under `target/fuzz/`; the message says how to replay it. `FIRELANE_FUZZ_SEED` replays a
//! whole run; it is printed at its start.

use std::time::Duration;

use firelane_fuzz::run::{Budget, explore, run};
use firelane_fuzz::{TARGETS, corpus, seeds};

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|value| value.parse().ok())
}

#[test]
fn every_target_has_a_corpus_and_passes_it() {
    for target in TARGETS {
        let inputs = corpus::load(target).unwrap_or_else(|error| panic!("{}: {error}", target.name));
        assert!(!inputs.is_empty(), "{} has no corpus", target.name);
        for (name, input) in inputs {
            run(target, &input).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        }
    }
}

/// The seed files are what `seeds.rs` makes, so that a binary file in the tree has a readable source.
#[test]
fn the_seeds_in_the_tree_are_those_of_the_code() {
    for target in TARGETS {
        let inputs = corpus::load(target).expect("every target has a corpus");
        let mut written: Vec<_> = inputs
            .into_iter()
            .filter_map(|(name, input)| Some((name.strip_prefix("seed-")?.to_owned(), input)))
            .collect();
        let mut made: Vec<_> = seeds::of(target.name);
        written.sort();
        made.sort();
        assert_eq!(written, made, "{}: run `cargo run -p firelane-fuzz -- seeds`", target.name);
    }
}

/// The same inputs in every run.
#[test]
fn mutations_of_the_corpus_pass() {
    let seed = number("FIRELANE_FUZZ_SEED").unwrap_or(1);
    println!("FIRELANE_FUZZ_SEED={seed}");
    for target in TARGETS {
        let report = explore(target, seed, Budget::Inputs(target.share));
        let report = report.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        println!("{}: {report:?}", target.name);
    }
}

/// Other inputs in every run, for `FIRELANE_SOAK_SECONDS` (60).
#[test]
#[ignore = "runs for a minute or more: make soak"]
fn soak_fuzz() {
    let seconds = number("FIRELANE_SOAK_SECONDS").unwrap_or(60);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = number("FIRELANE_FUZZ_SEED").unwrap_or_else(|| now.map_or(1, |now| now.as_secs()));
    println!("FIRELANE_FUZZ_SEED={seed}");
    let share = Duration::from_secs(seconds) / TARGETS.len() as u32;
    for target in TARGETS {
        let report = explore(target, seed, Budget::Time(share));
        let report = report.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        println!("{}: {report:?}", target.name);
    }
}
