//! `tap-bulk`: one connection of a kernel client over TAP to a Firelane service, beside the same client over a
//! veth pair to a kernel server.
//!
//! Both servers are processes of their own on CPU 1, the client is one process on CPU 0, and both links have an
//! MTU of 1,500. The figure is bytes per CPU-second of all parties on both CPUs: over veth the kernel does the
//! server's receive work in the client's time, so neither side alone says what a byte costs.

use std::time::Duration;

use firelane::TcpListener;
use firelane_interop::Sandbox;

use crate::bulk::{self, Rates, Way};
use crate::cpu::Meter;
use crate::peer::{self, Peer, Place, Result};
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict};
use crate::two_servers::{FIRELANE_ADDRESS, KERNEL_ADDRESS, TOPOLOGY, tap_stack};

const ROUNDS: usize = ROUNDS_MIN + 2;
const SPAN: Duration = Duration::from_millis(1500);
const WANTED_RATIO: f64 = 0.6;
const AIM_RATIO: f64 = 0.8;

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let sandbox = Sandbox::new();
    peer::ip(&sandbox, TOPOLOGY)?;
    let firelane = Peer::start(Place::Sandbox(&sandbox), "tap-server", &[])?;
    let kernel = Peer::start(Place::Netns(&sandbox, "server"), "bulk-server", &[KERNEL_ADDRESS])?;
    let mut client = Peer::start(Place::Netns(&sandbox, "client"), "bulk-client", &[])?;
    let mut foreign = Samples::default();
    let mut round = |server: &Peer, way: Way, address: &str, rates: &mut Rates| -> Result<()> {
        let meter = Meter::start(&[client.pid(), server.pid()]);
        let answer = client.ask(&format!("{} {address} {}", way.word(), SPAN.as_millis()))?;
        let used = meter.stop();
        let &[bytes, nanos] = answer.as_slice() else {
            return Err("a count and a time were expected".into());
        };
        foreign.push(used.foreign());
        rates.push(bytes, Duration::from_nanos(nanos), used.parties);
        Ok(())
    };
    let mut rates = Way::ALL.map(|way| (way, Rates::default(), Rates::default()));
    for _ in 0..ROUNDS {
        for (way, ours, theirs) in &mut rates {
            round(&firelane, *way, FIRELANE_ADDRESS, ours)?;
            round(&kernel, *way, KERNEL_ADDRESS, theirs)?;
        }
    }
    Ok(report(&rates, &foreign))
}

fn report(rates: &[(Way, Rates, Rates); 2], foreign: &Samples) -> Verdict {
    let table = Table::begin(
        "tap-bulk: one connection, kernel client over TAP to Firelane, beside veth to the kernel (cubic)",
    );
    let mut worst: Option<(f64, f64, f64)> = None;
    for (way, ours, theirs) in rates {
        let word = way.word();
        table.row(&format!("{word}, firelane"), &ours.wall, "Gb/s");
        table.row(&format!("{word}, kernel"), &theirs.wall, "Gb/s");
        table.row(&format!("{word}, firelane, CPUs busy"), &ours.cpus, "CPUs");
        table.row(&format!("{word}, kernel, CPUs busy"), &theirs.cpus, "CPUs");
        table.row(&format!("{word}, firelane, per CPU-second of all"), &ours.cpu, "Gb/CPU-s");
        table.row(&format!("{word}, kernel, per CPU-second of all"), &theirs.cpu, "Gb/CPU-s");
        let (mine, peers) = (ours.cpu.median(), theirs.cpu.median());
        let ratio = mine / peers;
        table.note(&format!("{word}: {ratio:.2} of the kernel's per CPU-second"));
        if worst.is_none_or(|(lowest, ..)| ratio < lowest) {
            worst = Some((ratio, mine, peers));
        }
    }
    table.disturbance(foreign);
    let (ratio, mine, peers) = worst.unwrap_or_default();
    table.at_least("ratio, the worse direction", ratio, WANTED_RATIO, "");
    table.at_least("ratio, the aim", ratio, AIM_RATIO, "");
    Verdict {
        name: "tap-bulk",
        ratio,
        firelane: format!("{mine:.2} Gb/CPU-s"),
        peer: format!("{peers:.2} Gb/CPU-s"),
    }
}

/// A Firelane stack on a TAP in the client's namespace, serving bulk connections until the input ends.
pub(crate) fn play_server() -> Result<()> {
    let stack = tap_stack()?;
    let listener = TcpListener::bind(&stack, FIRELANE_ADDRESS)?;
    std::thread::spawn(move || {
        let mut buffer = vec![0; bulk::WRITE_BYTES];
        while let Ok((mut stream, _)) = listener.accept() {
            // A client that has what it wanted resets the connection.
            let _ = bulk::serve(&mut stream, &mut buffer);
        }
    });
    peer::serve(|_| Ok(Vec::new()))
}
