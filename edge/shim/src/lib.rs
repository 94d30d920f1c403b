//! The library that puts an unmodified program's sockets on a Firelane netstack (LD_PRELOAD).
//!
//! It stands in front of libc's socket calls. What is not about the internet's families, or not asked for by the
//! environment, goes on untouched. A socket of ours has a real descriptor behind it, one end of a pair whose other end
//! the daemon holds; its bytes go through rings in memory shared with the daemon (`drivers/shm`).
//!
//! - `hooks/`: the exported functions, thin, by family. `real.rs`: the functions behind them. `answer.rs`: errno.
//! - `table.rs`: which descriptors are ours. `socket.rs`: what a socket is by now and who answers for it.
//! - `descriptors.rs`, `passing.rs`, `process.rs`: copies, `exec` and messages, `fork` and `vfork`. `elsewhere.rs`: what other
//!   processes have made of a socket.
//! - `session.rs`: the daemon, asked for what is rare. `wanted.rs`: whether there is to be one; `environment.rs`: also for the
//!   programs that are started. `arenas.rs`: mappings.
//!   `pool.rs`: sockets that it has made ahead. `kept.rs`: those that the program has closed, and their descriptors.
//!   `standard_error.rs`: where it says what is amiss.
//! - `accept_queue.rs`: connections that wait at listeners.
//! - `connecting.rs`, `listener.rs`, `stream.rs`, `names.rs`, `options.rs`, `ioctl.rs`, `copying.rs`, `splicing.rs`, `stdio.rs`:
//!   calls. `untold.rs`: options that wait for the first question.
//! - `ports.rs`: sets of ports. `to_itself.rs`: what a program sends to itself, which is there at once.
//! - `fused.rs`: streams whose bytes go past the daemon.
//! - `lingering.rs`: close(2) that waits. `corking.rs`: datagrams that are written in parts.
//! - `faults.rs`: datagrams that did not arrive. `echoes.rs`: `ping`. `signals.rs`: SIGIO and SIGURG.
//! - `interfaces.rs`: what `getifaddrs` shows.
//! - `poll.rs`, `select.rs`, `epoll.rs`: waiting for many; `ready.rs`: for what; `waiter.rs`: by what. `wait.rs`: how long.
//! - `handlers.rs`: signal handlers of the program that run meanwhile. `sleeping.rs`: sleeps that are long.
//! - `address.rs`, `buffers.rs`: what programs point to. `memory.rs`, `lock.rs`, `sys.rs`, `thread.rs`: the ground.
//!
//! Nothing here prints or uses std's I/O on the way of a call: it would come back through the hooks. `docs/shim.md`
//! says what works and how it shows when something does not.

// Newer compilers look at functions that have the names of libc's: these have their arguments too.
#![allow(unknown_lints, invalid_runtime_symbol_definitions, suspicious_runtime_symbol_definitions)]
// In its own tests the library stands in front of nothing, so what hooks call is not called.
#![cfg_attr(test, allow(dead_code))]

mod accept_queue;
mod address;
mod answer;
mod arenas;
mod awaited;
mod buffers;
mod cancelling;
mod confining;
mod connecting;
mod copying;
mod corking;
mod datagram;
mod descriptors;
mod echoes;
mod elsewhere;
mod environment;
mod epoll;
mod faults;
mod fused;
mod handlers;
mod holds;
mod hooks;
mod interfaces;
mod ioctl;
mod kept;
mod lingering;
mod listener;
mod lock;
mod locking;
mod memory;
mod names;
mod options;
mod passing;
mod poll;
mod pool;
mod ports;
mod process;
mod ready;
mod real;
mod room;
mod select;
mod session;
mod signals;
mod sleeping;
mod socket;
mod splicing;
mod standard_error;
mod stdio;
mod stream;
mod sys;
mod table;
mod thread;
mod to_itself;
mod untold;
mod wait;
mod waiter;
mod wanted;

/// Runs when the library is loaded: from then on no call has to look anything up.
extern "C" fn load() {
    hooks::resolve();
    if session::is_wanted() {
        standard_error::begins();
        environment::keep();
        passing::inherited();
        (0..=2).for_each(stdio::changed);
    }
}

#[cfg(not(test))]
mod loading {
    /// The loader calls what is named in this section.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static LOAD: extern "C" fn() = super::load;
}
