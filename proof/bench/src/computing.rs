//! `computing`: how long a lane's frames wait where programs compute on every CPU.
//!
//! A tenant's kernel asks a netstack for echoes (ping(8)), which its lane answers, while programs on each CPU do nothing but
//! compute: once with lanes that have the kernel's slice, once with the slice that they ask for. Beside them the kernel
//! answers for itself over a veth pair, where no thread has to get a CPU: the answer is made in the asker's own call.

use std::thread::available_parallelism;

use crate::cpu::Meter;
use crate::peer::Result;
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict, number};
use crate::scene::{CLIENT, FIRELANE_HOST, KERNEL_HOST, Scene, Server, TENANT, mortal};

/// On each CPU: one alone gives way to who has slept, with any slice.
const PROGRAMS: usize = 4;
const ROUNDS: usize = ROUNDS_MIN + 2;
const ECHOES: &str = "500";
const EVERY: &str = "0.002";
const WANTED: f64 = 0.5;
const PERCENTILES: [(&str, f64); 4] = [("median", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)];
/// What is judged.
const P95: f64 = 0.95;

/// Who answers.
#[derive(Debug)]
struct Case {
    name: &'static str,
    /// Where the question comes from, and where it goes.
    way: (&'static str, &'static str),
    /// How long lanes run at a time.
    slice: &'static str,
    /// Of all rounds: what disturbs a lane comes in some of them.
    times: Samples,
}

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let scene = Scene::start(1)?;
    let compute = |cpu: usize| {
        let mut command = mortal(&scene.sandbox, "taskset");
        command.args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"]);
        Server::start(&mut command)
    };
    let cpus = available_parallelism()?.get();
    let programs = (0..PROGRAMS * cpus).map(|nth| compute(nth % cpus)).collect::<Result<Vec<_>>>()?;
    let case = |name, way, slice| Case { name, way, slice, times: Samples::default() };
    let ours = (TENANT, FIRELANE_HOST);
    let mut cases = [
        case("a lane with the kernel's slice", ours, "kernel"),
        case("a lane with a slice of 100 us", ours, "100us"),
        case("the kernel over veth", (CLIENT, KERNEL_HOST), "kernel"),
    ];
    let mut foreign = Samples::default();
    for _ in 0..ROUNDS {
        for case in &mut cases {
            scene.set_daemon(&format!("slice = \"{}\"", case.slice))?;
            let mut parties: Vec<u32> = programs.iter().map(Server::pid).collect();
            parties.push(scene.daemon());
            let meter = Meter::start(&parties);
            ask(&scene, case)?;
            foreign.push(meter.stop().foreign());
        }
    }
    // An echo that is lost is waited for without end.
    if let Some(case) = cases.iter().find(|case| case.times.percentile(P95).is_infinite()) {
        return Err(format!("{}: more than one echo in twenty was lost", case.name).into());
    }
    Ok(report(&cases, &foreign))
}

/// Microseconds from each question to its answer.
fn ask(scene: &Scene, case: &mut Case) -> Result<()> {
    let (from, to) = case.way;
    let mut command = scene.sandbox.command("ip");
    command.args(["netns", "exec", from, "ping", "-n", "-i", EVERY, "-c", ECHOES, to]);
    let output = command.output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    let millis =
        told.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse::<f64>().ok());
    // What was lost would be waited for, for ever.
    let lost = std::iter::repeat(f64::INFINITY);
    let all = millis.map(|millis| millis * 1e3).chain(lost).take(ECHOES.parse()?);
    case.times.extend(all);
    if output.status.success() { Ok(()) } else { Err(format!("ping {to}: {told}").into()) }
}

fn report(cases: &[Case; 3], foreign: &Samples) -> Verdict {
    let table = Table::begin("computing: echoes while four programs compute on each CPU");
    for case in cases {
        let times: Vec<_> = PERCENTILES
            .map(|(name, share)| format!("{name} {}", number(case.times.percentile(share))))
            .into();
        table.fact(case.name, &format!("{} us", times.join(", ")));
    }
    table.disturbance(foreign);
    let [usual, short, kernel] = cases.each_ref().map(|case| case.times.percentile(P95));
    table.at_most("p95, a slice of 100 us of the kernel's", short / usual, WANTED, "");
    Verdict {
        name: "computing",
        ratio: usual / short,
        firelane: format!("p95 {} us, {} with the kernel's slice", number(short), number(usual)),
        peer: format!("{} us where no thread has to be woken", number(kernel)),
    }
}
