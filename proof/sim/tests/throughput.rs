//! What a bulk transfer gets, by loss, delay and buffer, as a table in the tree: a change of behaviour shows as a
//! change of numbers. `FIRELANE_BLESS=1` writes the table anew.
//!
//! BBR's row of 5 % is far below that of 1 % because the model takes more than 2 % of losses in a round for a full path and
//! gives way (draft-ietf-ccwg-bbr §2.5, LossThresh).

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use firelane_driver_memory::{Chance, Conditions, GilbertElliott, Loss, Mark, Reorder};
use firelane_sim::{Client, HostConfig, Plan, Server, Sim, SocketConfig, StackConfig};
use firelane_tcp::congestion::Algorithm;
use firelane_tcp::{TcpConfig, Willing};
use firelane_units::{BitRate, Bytes, Mtu};

/// What is sent, and how long at most.
const BYTES: u64 = 6_000_000;
const LIMIT: Duration = Duration::from_secs(20);

const DELAYS: [u64; 3] = [1, 10, 50];
const BUFFERS: [usize; 3] = [16, 128, 1024];

/// The rows: their wire, and how both ends are tuned.
fn rows() -> Vec<(&'static str, Conditions, TcpConfig)> {
    let plain = TcpConfig::default();
    let mut rows: Vec<_> = faults().into_iter().map(|(name, wire)| (name, wire, plain.clone())).collect();
    // A data centre's switch marks early: 20 kB are 1.6 ms of this wire.
    let marks = Conditions { mark: Mark::Above(Bytes(20_000)), ..Conditions::default() };
    let ecn = TcpConfig { ecn: Willing::Active, ..TcpConfig::default() };
    rows.push(("marked, ecn", marks.clone(), ecn));
    rows.push(("marked, dctcp", marks, with(Algorithm::Dctcp)));
    for (name, wire) in faults() {
        if let Some(name) = of_bbr(name) {
            rows.push((name, wire, with(Algorithm::Bbr)));
        }
    }
    rows
}

/// What a row of CUBIC is called as one of BBR, if it is worth one.
fn of_bbr(name: &str) -> Option<&'static str> {
    Some(match name {
        "nothing" => "bbr",
        "1 % lost" => "bbr 1 % lost",
        "5 % lost" => "bbr 5 % lost",
        "bursts lost" => "bbr bursts lost",
        "3 % overtaken" => "bbr 3 % over",
        "short queue" => "bbr short queue",
        _ => return None,
    })
}

fn with(algorithm: Algorithm) -> TcpConfig {
    let mut tcp = TcpConfig::default();
    tcp.flight.algorithm = algorithm;
    tcp
}

/// The wires of the rows of CUBIC.
fn faults() -> Vec<(&'static str, Conditions)> {
    let random =
        |percent| Conditions { loss: Loss::Random(Chance::percent(percent)), ..Conditions::default() };
    let burst = GilbertElliott {
        worsen: Chance::percent(0.1),
        recover: Chance::percent(20.0),
        loss_good: Chance::NEVER,
        loss_bad: Chance::percent(80.0),
    };
    let late =
        Reorder::Positions { chance: Chance::percent(3.0), later: 5, at_most: Duration::from_millis(20) };
    let doubles = Conditions { duplicate: Chance::percent(5.0), ..Conditions::default() };
    vec![
        ("nothing", Conditions::default()),
        ("0.1 % lost", random(0.1)),
        ("1 % lost", random(1.0)),
        ("5 % lost", random(5.0)),
        ("bursts lost", Conditions { loss: Loss::Burst(burst), ..Conditions::default() }),
        ("3 % overtaken", Conditions { reorder: late, ..Conditions::default() }),
        ("1 %, 3 % over", Conditions { reorder: late, ..random(1.0) }),
        ("5 % doubled", doubles),
        // Elsewhere a megabyte may wait before the wire, 84 ms of it; here 4 ms.
        ("short queue", Conditions { queue: Bytes(50_000), ..Conditions::default() }),
    ]
}

/// Goodput in kilobits per second over a wire of 100 Mb/s.
fn goodput(faults: &Conditions, tcp: &TcpConfig, delay: Duration, buffer: usize) -> u64 {
    let mut sim = Sim::new(1);
    let sides = [1, 2].map(|number| {
        let host = sim.host(HostConfig::default(), Mtu::ETHERNET);
        sim.stack(host, &StackConfig { tcp: Arc::new(tcp.clone()), ..StackConfig::new(number) })
    });
    let rate = Some(BitRate::from_mbps(100));
    let forth = Conditions { rate, delay, ..faults.clone() };
    let back = Conditions { rate, delay, ..Conditions::default() };
    let (from, to) = (sim.uplink(0), sim.uplink(1));
    sim.connect(from, to, Mtu::ETHERNET, forth, back);
    let sockets = SocketConfig::of(buffer);
    sim.spawn(Server::boxed(sides[1], sides[1].at(false, 80), sockets));
    sim.settle();
    let plan = Plan::upload(7, BYTES);
    sim.spawn(Client::boxed(sides[0], sides[1].at(false, 80), plan, sockets, Duration::ZERO));
    let start = sim.now();
    sim.run_until(start + LIMIT, Sim::is_over);
    // What left the sender's ring has arrived; what is in it may not have.
    let arrived = sim.snapshots()[1].ports.iter().map(|(_, port)| port.inward.bytes).sum::<u64>();
    let took = sim.now().saturating_since(start);
    let bytes = if sim.is_over() { BYTES } else { arrived };
    bytes * 8 / took.as_millis() as u64
}

fn table() -> String {
    let mut text = String::from(
        "Goodput in Mb/s of 6 MB over a wire of 100 Mb/s, by one-way delay and buffers (send and receive).\n",
    );
    let _ = write!(text, "{:16}", "");
    for delay in DELAYS {
        for buffer in BUFFERS {
            let _ = write!(text, "{:>16}", format!("{delay} ms {buffer} KiB"));
        }
    }
    text.push('\n');
    for (name, conditions, tcp) in rows() {
        let _ = write!(text, "{name:16}");
        for delay in DELAYS {
            for buffer in BUFFERS {
                let kbps = goodput(&conditions, &tcp, Duration::from_millis(delay), buffer * 1024);
                let _ = write!(text, "{:>16}", format!("{}.{:02}", kbps / 1000, kbps % 1000 / 10));
            }
        }
        text.push('\n');
    }
    text
}

#[test]
fn throughput_is_what_the_table_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/throughput.txt");
    let found = table();
    if std::env::var_os("FIRELANE_BLESS").is_some() {
        return std::fs::write(path, found).expect("the table can be written");
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == expected,
        "throughput has changed; if that is meant, FIRELANE_BLESS=1 rewrites the table\n\nnow:\n{found}\nbefore:\n{expected}"
    );
}
