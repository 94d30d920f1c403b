//! The household's own commands: `cargo xtask tidy`, `cargo xtask setup` and `cargo xtask man`.
//!
//! `tidy` checks the rules that a compiler does not: which crate may know which, how long a file or a
//! function may be, where unsafe code may live, what a comment may say. Each rule is a file of `tidy/`.

mod man;
mod setup;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match (args.next().as_deref(), args.next()) {
        (Some("tidy"), None) => {
            if let Ok(counts) = tidy::requirements() {
                println!("{counts}");
            }
            report(tidy::run())
        }
        (Some("setup"), Some(purpose)) => match setup::run(&purpose) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("setup: {error:#}");
                ExitCode::FAILURE
            }
        },
        (Some("man"), Some(folder)) => match man::run(folder.as_ref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("man: {error:#}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("usage: cargo xtask tidy | cargo xtask setup demo|test|bench | cargo xtask man FOLDER");
            ExitCode::from(2)
        }
    }
}

fn report(outcome: anyhow::Result<Vec<tidy::Finding>>) -> ExitCode {
    match outcome {
        Ok(findings) if findings.is_empty() => {
            println!("tidy: ok");
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            for finding in &findings {
                eprintln!("{finding}");
            }
            eprintln!("tidy: {} finding(s)", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("tidy: {error:#}");
            ExitCode::FAILURE
        }
    }
}
