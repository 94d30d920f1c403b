//! The command `fuzz`: long runs, replays, and the seeds of the corpus.
//!
//! `fuzz list`, `fuzz TARGET FILE...` replays, `fuzz TARGET|all [--seconds N] [--seed S]` explores until the
//! time is over or an input fails, `fuzz seeds` writes the seed files of the corpus.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs};

use firelane_fuzz::run::{Budget, explore, run};
use firelane_fuzz::{TARGETS, Target, corpus, seeds};

const USAGE: &str =
    "usage: fuzz list | fuzz seeds | fuzz TARGET FILE... | fuzz TARGET|all [--seconds N] [--seed S]";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match act(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn act(words: &[String]) -> Result<(), String> {
    let (first, rest) = words.split_first().ok_or(USAGE)?;
    match first.as_str() {
        "list" => TARGETS.iter().for_each(|target| println!("{:16} {}", target.name, target.about)),
        "seeds" => write_seeds().map_err(|error| error.to_string())?,
        "all" => return fuzz(TARGETS, rest),
        name => {
            let target = TARGETS.iter().find(|target| target.name == name).ok_or(USAGE)?;
            if rest.first().is_none_or(|word| word.starts_with("--")) {
                return fuzz(core::slice::from_ref(target), rest);
            }
            for file in rest {
                let input = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
                run(target, &input).map_err(|failure| failure.to_string())?;
                println!("{file}: ok");
            }
        }
    }
    Ok(())
}

/// Goes round the targets, so that each gets its share of the time.
fn fuzz(targets: &[Target], options: &[String]) -> Result<(), String> {
    let (mut seconds, mut seed) = (60, fresh_seed());
    for pair in options.chunks(2) {
        let [name, value] = pair else { return Err(USAGE.to_owned()) };
        let value: u64 = value.parse().map_err(|_| format!("{name}: {value:?} is no number"))?;
        match name.as_str() {
            "--seconds" => seconds = value,
            "--seed" => seed = value,
            _ => return Err(USAGE.to_owned()),
        }
    }
    let share = Duration::from_secs(seconds) / targets.len() as u32;
    for target in targets {
        println!("{}: seed {seed}", target.name);
        let report = explore(target, seed, Budget::Time(share)).map_err(|failure| failure.to_string())?;
        println!("{}: {} inputs, {} kept, {} notes", target.name, report.inputs, report.kept, report.notes);
    }
    Ok(())
}

fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn write_seeds() -> std::io::Result<()> {
    for target in TARGETS {
        let folder = corpus::folder(target);
        fs::create_dir_all(&folder)?;
        for (name, bytes) in seeds::of(target.name) {
            fs::write(folder.join(format!("seed-{name}")), bytes)?;
        }
    }
    Ok(())
}
