//! Side by side with the kernel, in one run: `firelane-bench NAME` prints a table and a last line
//! `NAME: ratio R (firelane X, peer Y)`.
//!
//! A benchmark interleaves its own rounds with its peer's (A B A B), five rounds or more, and reports medians
//! with the tenth and ninetieth percentile; where a peer cannot be started for each round, its header says so. It is bounded in time and leaves nothing behind. The program also
//! starts itself as `firelane-bench --peer ROLE ...`: the processes that are measured.

mod afxdp;
mod alloc;
mod alone;
mod attack_cost;
mod bridge;
mod bulk;
mod burst;
mod computing;
mod conn_memory;
mod conn_rate;
mod cpu;
mod distance;
mod duel;
mod filter;
mod forward;
mod forward_veth;
mod fused;
mod growth;
mod idle;
mod isolation;
mod kernel;
mod lanes_scale;
mod limit;
mod loss;
mod memif;
mod neighbours;
mod nginx;
mod nginx_close;
mod peer;
mod polling;
mod redis;
mod redis_tap;
mod relay;
mod replay;
mod report;
mod rr;
mod run_start;
mod scene;
mod sendfile;
mod shim_memory;
mod shim_rtt;
mod side_by_side;
mod sockets;
mod stream;
mod switch;
mod tap_bulk;
mod testpmd;
mod two_lanes;
mod two_servers;
mod udp;
mod udp_kernel;
mod wire_tcp;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// A benchmark: its name, what it measures in a line, and the whole of it.
struct Bench {
    name: &'static str,
    about: &'static str,
    run: fn() -> peer::Result<report::Verdict>,
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "switch",
        about: "64-byte frames, ring -> classify -> flow -> switch -> ring in one lane, beside the kernel's bridge",
        run: switch::run,
    },
    Bench {
        name: "forward",
        about: "64-byte UDP through a router, ring to ring in one lane, beside DPDK's testpmd",
        run: forward::run,
    },
    Bench {
        name: "forward-veth",
        about: "64-byte UDP from veth to veth over AF_XDP, beside DPDK's testpmd, and the kernel's own forwarding",
        run: forward_veth::run,
    },
    Bench {
        name: "attack-cost",
        about: "what a frame of each attack of a neighbour's costs a lane, ring to ring, beside the kernel over veth",
        run: attack_cost::run,
    },
    Bench {
        name: "filter",
        about: "the router of `forward` with 1,000 rules and with 1,048,576 states, beside itself without a filter",
        run: filter::run,
    },
    Bench {
        name: "wire-tcp",
        about: "bulk and request/response between two stacks over a memory wire, beside kernel loopback",
        run: wire_tcp::run,
    },
    Bench {
        name: "conn-rate",
        about: "connect, a byte each way, close, through TIME-WAIT, beside kernel loopback",
        run: conn_rate::run,
    },
    Bench {
        name: "tap-bulk",
        about: "one connection over TAP to Firelane, beside veth to the kernel, per CPU-second of all parties",
        run: tap_bulk::run,
    },
    Bench {
        name: "memif",
        about: "64-byte frames to and from DPDK's testpmd through shared memory, beside two testpmds",
        run: memif::run,
    },
    Bench {
        name: "afxdp",
        about: "64-byte frames into a veth through an AF_XDP socket, beside testpmd's",
        run: afxdp::run,
    },
    Bench {
        name: "loss",
        about: "goodput over paths that lose and reorder, beside the kernel through the same relay",
        run: loss::run,
    },
    Bench {
        name: "idle",
        about: "1,000 idle connections: the daemon's CPU, and memory beside the kernel's",
        run: idle::run,
    },
    Bench {
        name: "conn-memory",
        about: "1,000,000 idle connections and 100,000 records in TIME-WAIT, beside the kernel's slab",
        run: conn_memory::run,
    },
    Bench {
        name: "growth",
        about: "a segment with 10, 10,000 and 1,000,000 connections, beside the kernel's with 10 and 9,000",
        run: growth::run,
    },
    Bench {
        name: "udp",
        about: "datagrams one way, and there and back, over a memory wire and TAP, beside loopback and veth",
        run: udp::run,
    },
    Bench {
        name: "limit",
        about: "how exact a limit is on the wire, 1 Mb/s to 10 Gb/s, beside tc's htb and tbf",
        run: limit::run,
    },
    Bench {
        name: "isolation",
        about: "a victim's round trips beside a flood and 1,000 connections that have a limit, beside bridge and htb",
        run: isolation::run,
    },
    Bench {
        name: "polling",
        about: "wake-ups and context switches under a load of five clients, devices polled beside notified",
        run: polling::run,
    },
    Bench {
        name: "computing",
        about: "echoes of a lane while programs compute on every CPU, with a slice of its own beside the kernel's",
        run: computing::run,
    },
    Bench {
        name: "lanes-scale",
        about: "frames switched by two lanes beside one, and by a lane with 1,000 VNICs and 10,000 flows",
        run: lanes_scale::run,
    },
    Bench {
        name: "shim-rtt",
        about: "64 bytes there and back for unmodified programs, beside veth and kernel loopback",
        run: shim_rtt::run,
    },
    Bench {
        name: "redis-tap",
        about: "redis GET, a kernel client over TAP to an unmodified server, beside veth",
        run: redis_tap::run,
    },
    Bench {
        name: "nginx-close",
        about: "wrk and nginx, a connection for each request, over an etherstub, beside veth",
        run: nginx_close::run,
    },
    Bench {
        name: "sendfile",
        about: "a kernel client over TAP asks an unmodified nginx for files of 1 MB, beside veth",
        run: sendfile::run,
    },
    Bench {
        name: "shim-memory",
        about: "100,000 idle connections of an unmodified program, beside the kernel's slab",
        run: shim_memory::run,
    },
    Bench {
        name: "run-start",
        about: "what `firelane run` adds to the start of a program",
        run: run_start::run,
    },
    Bench {
        name: "fused-rtt",
        about: "there and back between two unmodified programs, fused, beside kernel loopback and AF_UNIX",
        run: fused::rtt::run,
    },
    Bench {
        name: "fused-bulk",
        about: "one connection one way, fused, beside kernel loopback and AF_UNIX",
        run: fused::bulk::run,
    },
    Bench {
        name: "fused-redis",
        about: "redis GET per CPU-second of the server, alone and pipelined, fused, beside kernel loopback",
        run: fused::redis::run,
    },
    Bench {
        name: "fused-java",
        about: "a Java client's strings to a Java echo server, fused, beside kernel loopback",
        run: fused::java::run,
    },
    Bench {
        name: "fused-conn",
        about: "connect and accept, socket and close, bind, listen, connections with a byte, beside the kernel's",
        run: fused::conn::run,
    },
    Bench {
        name: "neighbours",
        about: "connect and accept alone, and beside 500 netstacks and 300 TAPs that do nothing",
        run: neighbours::run,
    },
    Bench {
        name: "fused-pgbench",
        about: "PostgreSQL, select-only, fused, beside kernel loopback",
        run: fused::pgbench::run,
    },
    Bench {
        name: "fused-nginx-close",
        about: "wrk and nginx, 1 KB, a connection for each request, fused, beside kernel loopback",
        run: fused::nginx::run,
    },
];

/// How often it is noted how far the CPUs are from each other, before anything is measured.
const LOOKS: u32 = 3;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--peer", role, rest @ ..] => finish(&format!("peer {role}"), peer::play(role, rest)),
        ["--help" | "-h"] => {
            print!("{}", usage());
            ExitCode::SUCCESS
        }
        [name] => match BENCHES.iter().find(|bench| bench.name == *name) {
            Some(bench) => {
                // Some bind themselves to one CPU, or have a table before their first round.
                (0..LOOKS).for_each(|_| distance::note());
                finish(name, (bench.run)().map(|verdict| println!("{verdict}")))
            }
            None => refuse(&format!("no benchmark is called {name:?}")),
        },
        _ => refuse("one benchmark is named at a time"),
    }
}

fn usage() -> String {
    let list: String = BENCHES.iter().map(|b| format!("  {:<17} {}\n", b.name, b.about)).collect();
    format!("usage: firelane-bench NAME\n{list}")
}

fn refuse(why: &str) -> ExitCode {
    eprint!("firelane-bench: {why}\n{}", usage());
    ExitCode::from(2)
}

fn finish(what: &str, result: peer::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("firelane-bench: {what}: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_makefile_names_every_benchmark() {
        let makefile = include_str!("../../../Makefile");
        let list = makefile.split("usage: make bench B=").nth(1).and_then(|rest| rest.split('"').next());
        let mut named: Vec<_> = list.expect("it says how it is used").split('|').collect();
        let mut known: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
        named.sort_unstable();
        known.sort_unstable();
        assert_eq!(named, known);
    }
}
