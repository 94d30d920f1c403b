//! The `firelane` command, and `acctadm`, `dladm`, `flowadm`, `ipadm`, `ipf`, `ipfstat`, `ipnat`, `ippool`, `route`, `dlstat`, `flowstat`, `netstat` and
//! `connstat` when called by those names.
//!
//! All of it is in the library, so that tests run the whole command in one process.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    firelane_cli::main(std::env::args_os())
}
