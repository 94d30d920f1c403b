//! firelaned: applies plans to an engine and serves the interface.
//!
//! ```text
//! server.rs --> dispatch --> host.rs --> plan --> works.rs --> engine (lanes), kernel.rs, services.rs
//! programs.rs --> engine       |                                            |
//!                          state.rs: what the next start begins with    owned.rs: what would outlive us
//! ```
//!
//! A mistake of the operator is an error of one request, or of one step of the start, and the rest runs.
//! `kill -9` at any moment is survived: the next start finds its configuration whole, removes what is not
//! wanted, and makes the rest again.
#![forbid(unsafe_code)]

mod accounts;
mod addresses;
mod args;
mod calendar;
mod caller;
mod capture;
mod carried;
mod counted;
mod daemon;
mod devices;
mod dhcp;
mod doctor;
mod explain;
mod facts;
mod filter;
mod folder;
mod fpm;
mod held;
mod history;
mod host;
mod interfaces;
mod kernel;
mod listener;
mod log_limit;
mod mac;
mod memif;
mod memory;
mod nat;
mod netlink;
mod netns;
mod nic;
mod owned;
mod programs;
mod ready;
mod rebuild;
mod refusal;
mod resources;
mod secret;
mod server;
mod services;
mod settings;
mod signals;
mod sockets;
mod state;
mod stations;
mod stats;
mod text;
mod trace;
mod tunnel;
mod veth;
mod ways;
mod wires;
mod works;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// What a connection is made of is got by the thread that keeps programs' books and freed by a lane, or the other way round, for which the
/// C library's allocator lets them wait for each other.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let args = match args::read() {
        Ok(args) => args,
        Err((text, 0)) => {
            // Whoever reads it may have read enough.
            let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
            return ExitCode::SUCCESS;
        }
        Err((text, code)) => {
            eprintln!("{text}");
            return ExitCode::from(code);
        }
    };
    match log_filter(std::env::var_os(LOG)) {
        Ok(filter) => log(filter),
        Err(text) => {
            eprintln!("firelaned: {text}");
            return ExitCode::from(2);
        }
    }
    match daemon::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            eprintln!("firelaned: {}", refusal.text);
            ExitCode::from(refusal.code)
        }
    }
}

/// The variable that says what is logged.
const LOG: &str = "FIRELANE_LOG";

/// What `asked` asks for, a level or levels of modules (`firelaned::host=debug`); steps and faults unless it says anything.
fn log_filter(asked: Option<OsString>) -> Result<EnvFilter, String> {
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { return Ok(EnvFilter::new("info")) };
    let refused = || {
        let allowed = "error, warn, info, debug, trace or off, or module=level";
        format!("{LOG}={}: {allowed}", asked.display())
    };
    let text = asked.to_str().ok_or_else(refused)?;
    // A word alone would be a module's name, of which everything is logged, and nothing of the others.
    let is_said = |part: &str| part.contains('=') || part.parse::<LevelFilter>().is_ok();
    if !text.split(',').all(is_said) {
        return Err(refused());
    }
    EnvFilter::try_new(text).map_err(|_| refused())
}

/// Logs to standard error.
fn log(filter: EnvFilter) {
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(terminal)
        .log_internal_errors(false)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_level_is_refused_and_not_silence() {
        for (asked, means) in
            [("", "info"), ("warn", "warn"), ("info,firelaned::host=debug", "firelaned::host=debug,info")]
        {
            assert_eq!(log_filter(Some(asked.into())).unwrap().to_string(), means, "{asked:?}");
        }
        assert_eq!(log_filter(None).unwrap().to_string(), "info");
        for bad in ["loud", "info,loud", "firelaned=loud"] {
            let want = format!("FIRELANE_LOG={bad}: error, warn, info, debug, trace or off, or module=level");
            assert_eq!(log_filter(Some(bad.into())).unwrap_err(), want);
        }
    }
}
