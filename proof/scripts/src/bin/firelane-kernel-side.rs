//! Linux's side of one exchange: `firelane-kernel-side FILE NAME v4|v6` prints what the kernel answered.
//!
//! Called by the test `diff_kernel`, inside a network namespace that it made. Exit code 3: no TAP may be opened here.

use std::process::ExitCode;

use firelane_scripts::Family;
use firelane_scripts::duel::{Exchange, KernelError, kernels};

/// No TAP may be opened here.
const NO_TAP: u8 = 3;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (code, said) = match run(&words) {
        Ok(said) => (0, said),
        Err((code, said)) => {
            eprintln!("{said}");
            (code, String::new())
        }
    };
    print!("{said}");
    ExitCode::from(code)
}

fn run(words: &[String]) -> Result<String, (u8, String)> {
    let bad = |what: String| (2, what);
    let [file, name, family] = words else { return Err(bad("usage: FILE NAME v4|v6".into())) };
    let family = if family == "v6" { Family::V6 } else { Family::V4 };
    let text = std::fs::read_to_string(file).map_err(|error| bad(format!("{file}: {error}")))?;
    let all = Exchange::read_all(&text).map_err(|error| bad(format!("{file}:{error}")))?;
    let exchange = all
        .iter()
        .find(|exchange| exchange.name == *name)
        .ok_or_else(|| bad(format!("no exchange {name}")))?;
    let played = kernels(exchange, family).map_err(|error| match error {
        KernelError::NoTap(what) => (NO_TAP, what),
        KernelError::Failed(what) => (1, what),
    })?;
    Ok(played.map(|transcript| transcript.to_string()).unwrap_or_default())
}
