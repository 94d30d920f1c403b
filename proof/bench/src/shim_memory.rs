//! `shim-memory`: what an idle connection of an unmodified program takes.
//!
//! A program on Firelane accepts 100,000 connections, or as many as a process may have descriptors for, from a client of the
//! kernel's over a TAP; each carries a byte there and back, and falls silent. Measured is what the daemon and the program have more of afterwards: memory of their own and
//! of their arena, each page shared out among those who have it (PSS). The kernel's slab for the descriptors that stand
//! behind the sockets is beside it, and what an end of a connection of the kernel's own takes.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::idle::kernel_bytes;
use crate::peer::{self, Peer, Place, Result};
use crate::report::{Samples, Table, Verdict};
use crate::scene::{FIRELANE_HOST, Scene, TENANT, WEB};

const CONNECTIONS_MAX: usize = 100_000;
/// A client of Linux' has 28,232 ports for each of the server's.
const PER_PORT: usize = 25_000;
const FIRST_PORT: u16 = 7000;
/// What the daemon has open besides.
const OTHERS: usize = 1000;
/// Connections that are made first, so that tables have their size and pages are there.
const FIRST: usize = 1000;
/// A connection gives memory back one second after its last traffic.
const SETTLE: Duration = Duration::from_secs(3);
const WANTED_BYTES: f64 = 2560.0;

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let connections = raise_limit()?;
    let kernel = kernel_bytes()?;
    let scene = Scene::start(1)?;
    let mut server = Peer::start(Place::Preloaded(&scene, WEB), "crowd-server", &[FIRELANE_HOST])?;
    let mut client = Peer::start(scene.netns(TENANT), "crowd-client", &[FIRELANE_HOST])?;
    let parties = [scene.daemon(), server.pid()];
    let mut connect = |from: usize, to: usize| -> Result<()> {
        let span = format!("{from} {to}");
        let accepted = std::thread::scope(|scope| {
            let served = scope.spawn(|| server.ask(&span));
            client.ask(&span)?;
            served.join().map_err(|_| "the server's thread failed")?
        })?;
        std::thread::sleep(SETTLE);
        if accepted == [to as u64] {
            Ok(())
        } else {
            Err(format!("{accepted:?} connections instead of {to}").into())
        }
    };
    connect(0, FIRST)?;
    let memory = || parties.map(proportional_bytes);
    let (before, slab) = (memory(), slab_bytes()?);
    connect(FIRST, FIRST + connections)?;
    let (after, grown) = (memory(), slab_bytes()?.saturating_sub(slab));
    let each = |grown: u64| grown as f64 / connections as f64;
    let [daemon, program] = [0, 1].map(|nth| each(after[nth].saturating_sub(before[nth])));
    let table =
        Table::begin(&format!("shim-memory: {connections} idle connections of an unmodified program"));
    let one = |value: f64| [value].into_iter().collect::<Samples>();
    table.row("the daemon's, with its part of the arena", &one(daemon), "bytes each");
    table.row("the program's, with its part of the arena", &one(program), "bytes each");
    // The client's end of each is the kernel's, and in what has grown.
    let beside = (each(grown) - kernel).max(0.0);
    table.row("kernel's slab for its descriptors", &one(beside), "bytes each");
    table.row("an end of a connection of the kernel's, slab", &one(kernel), "bytes each");
    table.at_most("an idle connection, without the slab", daemon + program, WANTED_BYTES, "bytes");
    Ok(Verdict {
        name: "shim-memory",
        ratio: kernel / (daemon + program + beside),
        firelane: format!("{:.0} bytes a connection, and {beside:.0} of slab", daemon + program),
        peer: format!("{kernel:.0} bytes a connection"),
    })
}

/// A process' memory, pages that several have shared out among them.
fn proportional_bytes(pid: u32) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    rollup.lines().find_map(|line| line.strip_prefix("Pss:")).map_or(0, kib)
}

/// All that the kernel's slab caches hold.
fn slab_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Slab:")).ok_or("/proc/meminfo has no Slab")?;
    Ok(kib(line))
}

/// The bytes of a line `N kB`.
fn kib(line: &str) -> u64 {
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() * 1024
}

/// Gives this process, and those that it starts, as many descriptors as it may; for how many connections they are enough.
fn raise_limit() -> Result<usize> {
    let wanted = (CONNECTIONS_MAX + FIRST + OTHERS) as u64;
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let more = Rlimit { current: Some(wanted), maximum: Some(wanted) };
    if maximum.is_some_and(|most| most < wanted) && setrlimit(Resource::Nofile, more).is_err() {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    }
    let most = getrlimit(Resource::Nofile).current.map_or(wanted, |most| most.min(wanted));
    Ok((most as usize).saturating_sub(FIRST + OTHERS))
}

/// Where the connections with these numbers go, port by port.
fn ports(from: usize, to: usize) -> impl Iterator<Item = u16> {
    (from..to).map(|nth| FIRST_PORT + (nth / PER_PORT) as u16)
}

/// `FROM TO` accepts the connections with these numbers and answers a byte on each; answered with how many there are.
pub(crate) fn play_server(args: &[&str]) -> Result<()> {
    let &[host] = args else { return Err("HOST".into()) };
    let host: Ipv4Addr = host.parse()?;
    let count = (FIRST + CONNECTIONS_MAX).div_ceil(PER_PORT) as u16;
    let listeners = (0..count)
        .map(|nth| TcpListener::bind((host, FIRST_PORT + nth)))
        .collect::<std::io::Result<Vec<_>>>()?;
    let mut streams = Vec::with_capacity(FIRST + CONNECTIONS_MAX);
    peer::serve(|words| {
        for port in span(words)? {
            let (mut stream, _) = listeners[usize::from(port - FIRST_PORT)].accept()?;
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            stream.write_all(&byte)?;
            streams.push(stream);
        }
        Ok(vec![streams.len() as u64])
    })
}

/// `FROM TO` makes those connections.
pub(crate) fn play_client(args: &[&str]) -> Result<()> {
    let &[host] = args else { return Err("HOST".into()) };
    let host: Ipv4Addr = host.parse()?;
    let mut streams = Vec::with_capacity(FIRST + CONNECTIONS_MAX);
    peer::serve(|words| {
        for port in span(words)? {
            let mut stream = TcpStream::connect(SocketAddr::from((host, port)))?;
            stream.write_all(&[1])?;
            stream.read_exact(&mut [0])?;
            streams.push(stream);
        }
        Ok(vec![streams.len() as u64])
    })
}

fn span(words: &[&str]) -> Result<impl Iterator<Item = u16> + use<>> {
    let &[from, to] = words else { return Err("FROM TO".into()) };
    Ok(ports(from.parse()?, to.parse()?))
}
