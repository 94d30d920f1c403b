//! `fused-conn`: what libMicro measures of stream sockets, and connections that carry a byte each way.
//!
//! One thread has both ends, and a case is done in batches, one behind the other, of which the median counts, as in libMicro. Sockets
//! are made and closed outside the time of the other cases. What the first batch after a pause takes is told beside it.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::cpu;
use crate::peer::{self, Peer, Result};
use crate::report::{Samples, Table, Verdict, number};
use crate::scene::Scene;
use crate::sockets::{self, accept, bind, connect, listen, socket};

use super::{Placed, least, sides};

const ROUNDS: usize = 9;
/// How often a case is done in a batch; a listener's queue holds as many.
pub(crate) const TIMES: usize = 100;
/// How many batches a round has of each case.
const BATCHES: usize = 15;
const BACKLOG: i32 = 128;
/// Where the thread runs. The lane is on the other CPU, as is the best for both.
const CPUS: [&str; 2] = ["0", "any"];
const LANES: &str = "cpus = \"1\"";

/// A case, and how many times faster than the kernel's it is to be.
const CASES: [(&str, Option<f64>); 5] = [
    ("connect-accept", Some(3.0)),
    ("socket-close", Some(2.0)),
    ("bind", None),
    ("listen", None),
    ("connection-byte", Some(4.0)),
];

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    scene.set_daemon(LANES)?;
    let mut all = Vec::new();
    for side in sides(&scene) {
        let mut peers = Vec::new();
        for cpu in CPUS {
            peers.push(Peer::start(side.place, "conn-cases", &[cpu, side.host])?);
        }
        let none = <[Placed; CASES.len()]>::default();
        all.push((side, peers, [none.clone(), none.clone(), none]));
    }
    let mut foreign = Samples::default();
    for _ in 0..ROUNDS {
        for (nth, (case, _)) in CASES.iter().enumerate() {
            for (side, peers, told) in &mut all {
                for (placement, peer) in peers.iter_mut().enumerate() {
                    let (mut nanos, used) = side.measure(&[peer.pid()], || peer.ask(case))?;
                    nanos.push(used.parties.as_nanos() as u64 / BATCHES as u64);
                    for (micros, nanos) in told.iter_mut().zip(nanos) {
                        micros[nth][placement].push(nanos as f64 * 1e-3 / TIMES as f64);
                    }
                    foreign.push(used.foreign());
                }
            }
        }
    }
    let table = Table::begin("fused-conn: a call at a time, both ends in one thread, at its best placement");
    let mut ratios = [0.0; CASES.len()];
    let mut firsts = [0.0; 2];
    for (nth, (case, wanted)) in CASES.iter().enumerate() {
        let mut bests = [0.0; 2];
        for ((side, _, [micros, firsts, cpus]), best) in all.iter().zip(&mut bests) {
            let (placement, micro) = least(&micros[nth]);
            table.row(&format!("{case}: {}", side.name), &micros[nth][placement], "us");
            table.row("  the first after a pause", &firsts[nth][placement], "us");
            table.row("  CPU time of all parties, with what goes before", &cpus[nth][placement], "us");
            *best = micro;
        }
        ratios[nth] = bests[1] / bests[0];
        match wanted {
            Some(wanted) => table.at_least("  of the kernel's", ratios[nth], *wanted, "times as fast"),
            None => table.fact("  of the kernel's", &format!("{} times as fast", number(ratios[nth]))),
        }
        if nth == 0 {
            firsts = bests;
        }
    }
    table.disturbance(&foreign);
    Ok(Verdict {
        name: "fused-conn",
        ratio: ratios[0],
        firelane: format!("{} us connect and accept", number(firsts[0])),
        peer: format!("{} us", number(firsts[1])),
    })
}

/// `CPU HOST`, then a case's name is answered with the nanoseconds of [`TIMES`] times: the median of [`BATCHES`], and the first.
pub(crate) fn play_cases(args: &[&str]) -> Result<()> {
    let &[on, host] = args else { return Err("CPU HOST".into()) };
    cpu::bind_to(on)?;
    let host: Ipv4Addr = host.parse()?;
    peer::serve(|words| {
        let mut took = (0..BATCHES).map(|_| batch(words, host)).collect::<Result<Vec<_>>>()?;
        let first = took[0];
        took.sort_unstable();
        Ok([took[BATCHES / 2], first].map(|took| took.as_nanos() as u64).into())
    })
}

fn batch(words: &[&str], host: Ipv4Addr) -> Result<Duration> {
    match words {
        ["connect-accept"] => connect_and_accept(host),
        ["socket-close"] => socket_and_close(),
        ["bind"] => bind_or_listen(host, false),
        ["listen"] => bind_or_listen(host, true),
        ["connection-byte"] => connections_with_a_byte(host),
        other => Err(format!("no case is called {other:?}").into()),
    }
}

/// A listener, and where it listens.
fn listener(host: Ipv4Addr) -> Result<(OwnedFd, SocketAddrV4)> {
    let listener = socket()?;
    bind(&listener, SocketAddrV4::new(host, 0))?;
    listen(&listener, BACKLOG)?;
    let address = sockets::name(&listener)?;
    Ok((listener, address))
}

fn connect_and_accept(host: Ipv4Addr) -> Result<Duration> {
    let (listener, address) = listener(host)?;
    let clients: Vec<OwnedFd> = (0..TIMES).map(|_| socket()).collect::<io::Result<_>>()?;
    let mut servers = Vec::with_capacity(TIMES);
    let start = Instant::now();
    for client in &clients {
        connect(client, address)?;
        servers.push(accept(&listener)?);
    }
    Ok(start.elapsed())
}

fn socket_and_close() -> Result<Duration> {
    let start = Instant::now();
    for _ in 0..TIMES {
        drop(socket()?);
    }
    Ok(start.elapsed())
}

fn bind_or_listen(host: Ipv4Addr, listens: bool) -> Result<Duration> {
    let sockets: Vec<OwnedFd> = (0..TIMES).map(|_| socket()).collect::<io::Result<_>>()?;
    let bind_all = || sockets.iter().try_for_each(|socket| bind(socket, SocketAddrV4::new(host, 0)));
    let listen_all = || sockets.iter().try_for_each(|socket| listen(socket, BACKLOG));
    let mut start = Instant::now();
    bind_all()?;
    if listens {
        start = Instant::now();
        listen_all()?;
    }
    Ok(start.elapsed())
}

fn connections_with_a_byte(host: Ipv4Addr) -> Result<Duration> {
    let (listener, address) = listener(host)?;
    let start = Instant::now();
    for _ in 0..TIMES {
        let client = socket()?;
        connect(&client, address)?;
        let server = accept(&listener)?;
        for (from, to) in [(&client, &server), (&server, &client)] {
            sockets::send(from)?;
            sockets::receive(to)?;
        }
    }
    Ok(start.elapsed())
}
