//! Attacks on TCP and UDP by the names of the conformance list: what a peer may send, what must come of it, and the
//! counter that rises by exactly what was sent.
//!
//! One file per family of names. Each script runs over both families of addresses and ends with the counters. What needs
//! thousands of peers is written as a loop that makes a script.

mod datagrams;
mod resources;
mod segments;
mod state;

use std::fmt::Write as _;

use firelane_scripts::{Family, Script, run};

/// A server that grants `port` a cookie, which the attacker knows from then on.
const GRANTED: &str = "set tcp.fast_open 3\n\
     set fast_open_queue 3\n\
     +0 l = listen(80)\n\
     +0 < S 0:0(0) win 65535 <mss 1000,FO,nop,nop>\n\
     +0 > S. 0:0(0) ack 1 <mss 1460,FO ours,nop,nop>\n\
     +0 < R 1:1(0)\n";

/// The script is true.
#[track_caller]
fn holds(text: &str) {
    let script = Script::parse(text).unwrap_or_else(|error| panic!("line {error} of\n{text}"));
    for family in Family::ALL {
        if let Err(failure) = run(&script, family) {
            let line = text.lines().nth(failure.line - 1).unwrap_or_default();
            panic!("{family:?}, line {failure} in `{line}`");
        }
    }
}

/// A connection takes these segments' text, one after the other, and lives.
#[track_caller]
fn carries_text_in_spite_of(options: &[&str]) {
    let mut text = "+0 c = established(80)\n".to_owned();
    for (n, options) in options.iter().enumerate() {
        let (from, to) = (1 + 10 * n, 11 + 10 * n);
        writeln!(text, "+0 < P. {from}:{to}(10) ack 1 win 65535 <{options}>").expect("a string grows");
        writeln!(text, "+0 > . 1:1(0) ack {to}").expect("a string grows");
    }
    writeln!(text, "+0 read(c, 1000) = {}\n+0 drops() = 0", 10 * options.len()).expect("a string grows");
    holds(&text);
}
