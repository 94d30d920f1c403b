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
mod capture;
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
mod history;
mod host;
mod kernel;
mod mac;
mod memif;
mod memory;
mod nat;
mod netlink;
mod netns;
mod nic;
mod owned;
mod programs;
mod rebuild;
mod refusal;
mod resources;
mod secret;
mod server;
mod services;
mod settings;
mod sockets;
mod state;
mod stats;
mod text;
mod trace;
mod tunnel;
mod veth;
mod ways;
mod wires;
mod works;

use std::io::Write;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

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
    log();
    match daemon::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(refusal) => {
            eprintln!("firelaned: {}", refusal.text);
            ExitCode::from(refusal.code)
        }
    }
}

/// Logs to standard error what `FIRELANE_LOG` asks for; steps and faults unless it says otherwise.
fn log() {
    let filter = EnvFilter::try_from_env("FIRELANE_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(terminal)
        .log_internal_errors(false)
        .init();
}
