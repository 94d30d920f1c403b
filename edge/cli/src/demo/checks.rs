//! What the demo wants, in order: reach the netstack, move files whole, open many connections, hold a limit.
//!
//! Each check runs real programs and enters one row into the report. A check that fails does not stop the
//! others.

use std::fs;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use super::program::{self, Running};
use super::report::{Report, Row};
use crate::session::{Failure, Session};
use crate::stage::host::Host;

const DOWNLOAD_BYTES: usize = 256 << 20;
const UPLOAD_BYTES: usize = 64 << 20;
const REQUESTS: u32 = 200;
const PINGS: u32 = 5;
/// The limit of flow `iperf` in the configuration, and what it is changed to while traffic runs.
const LIMIT_MBPS: f64 = 50.0;
const CHANGED_MBPS: f64 = 100.0;
/// How far a measured wire rate may be from its limit: the flow's counters are read over a second and a half,
/// some milliseconds early or late.
const RATE_TOLERANCE: f64 = 0.02;
/// How long a reading of the counters may take, and how often it is tried for.
const READING_MAX: Duration = Duration::from_millis(5);
const READINGS_MAX: u32 = 10;
/// How long a rate settles before it is measured, and how long it is measured.
const SETTLE: Duration = Duration::from_millis(500);
const MEASURE: Duration = Duration::from_millis(1500);
/// How long two programs may take to start and meet on a machine that has other things to do.
const TRAFFIC_PATIENCE: Duration = Duration::from_secs(20);

/// Runs every check.
pub(super) fn run(session: &mut Session<'_>, host: &Host, report: &mut Report) -> Result<(), Failure> {
    for note in host.notes() {
        report.say(session, &format!("note: {note}\n"))?;
    }
    ping(session, report, "ping 10.0.0.10", "10.0.0.10")?;
    ping(session, report, "ping fd00::10", "fd00::10")?;
    let prepared = prepare(host);
    match &prepared {
        Ok(hash) => {
            download(session, report, "download 256 MiB, IPv4", "http://10.0.0.10/download.bin", hash)?;
            download(session, report, "download 256 MiB, IPv6", "http://[fd00::10]/download.bin", hash)?;
            upload(session, host, report)?;
        }
        Err(why) => report.enter(session, Row::failed("prepare files", "written", why))?,
    }
    closing_requests(session, report)?;
    limited(session, host, report)?;
    changed_live(session, host, report)?;
    unlimited(session, host, report)
}

fn ping(session: &mut Session<'_>, report: &mut Report, name: &str, address: &str) -> Result<(), Failure> {
    let count = PINGS.to_string();
    // The first packet may wait for the neighbour's address; its time would blur the average.
    let warm_up = program::run("alice", &["ping", "-c", "1", "-W", "5", "-q", address]);
    let row = warm_up
        .and_then(|_| program::run("alice", &["ping", "-c", &count, "-i", "0.2", "-W", "5", "-q", address]))
        .and_then(|text| program::read_ping(&text).ok_or_else(|| format!("ping printed {text:?}")));
    let wanted = format!("{PINGS} answers");
    let row = match row {
        Ok(pinged) => Row::new(
            name,
            &wanted,
            format!("{} answers, {:.3} ms", pinged.answers, pinged.average_ms),
            pinged.answers == PINGS,
        )
        .figure("answers", f64::from(pinged.answers))
        .figure("average_ms", pinged.average_ms),
        Err(why) => Row::failed(name, &wanted, &why),
    };
    report.enter(session, row)
}

/// Writes the files that are moved, and answers the SHA-256 of the download.
fn prepare(host: &Host) -> Result<String, String> {
    let folder = host.served();
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    write_noise(&folder.join("download.bin"), DOWNLOAD_BYTES, 1)?;
    write_noise(&folder.with_file_name("upload.bin"), UPLOAD_BYTES, 2)?;
    let index = "<!doctype html><title>Firelane</title><p>Served by Firelane's own TCP.\n";
    fs::write(folder.join("index.html"), index).map_err(|e| format!("index.html: {e}"))?;
    hash(&folder.join("download.bin"))
}

/// Writes `bytes` bytes that no compression and no repetition can make up for.
fn write_noise(path: &std::path::Path, bytes: usize, seed: u64) -> Result<(), String> {
    let failed = |e| format!("{}: {e}", path.display());
    let mut file = fs::File::create(path).map_err(failed)?;
    let mut state = seed;
    let mut block = vec![0; 1 << 20];
    for _ in 0..bytes / block.len() {
        for word in block.chunks_exact_mut(8) {
            // SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes());
        }
        file.write_all(&block).map_err(failed)?;
    }
    Ok(())
}

/// A file's SHA-256, by the program that a person would use.
fn hash(path: &std::path::Path) -> Result<String, String> {
    let output = Command::new("sha256sum").arg(path).output().map_err(|e| format!("sha256sum: {e}"))?;
    first_word(&String::from_utf8_lossy(&output.stdout))
}

fn first_word(text: &str) -> Result<String, String> {
    let word = text.split_whitespace().next().unwrap_or_default();
    if word.len() == 64 { Ok(word.to_owned()) } else { Err(format!("sha256sum printed {text:?}")) }
}

fn download(
    session: &mut Session<'_>,
    report: &mut Report,
    name: &str,
    url: &str,
    wanted: &str,
) -> Result<(), Failure> {
    // Hashing takes longer than the transfer, so the speed is measured without it.
    let speed = program::run(
        "alice",
        &["curl", "-sS", "--fail", "-g", "-o", "/dev/null", "-w", "%{speed_download}", url],
    );
    let hashed = format!("curl -sS --fail -g '{url}' | sha256sum");
    let hash = program::run("alice", &["sh", "-c", &hashed]).and_then(|text| first_word(&text));
    report.enter(session, transfer_row(name, speed, hash, wanted))
}

/// A row about a transfer whose speed curl printed in bytes per second.
fn transfer_row(
    name: &str,
    speed: Result<String, String>,
    hash: Result<String, String>,
    wanted: &str,
) -> Row {
    match (speed, hash) {
        (Ok(speed), Ok(hash)) => {
            let gigabits = speed.trim().parse::<f64>().unwrap_or(0.0) * 8.0 / 1e9;
            let same = hash == wanted;
            let measured = format!("{} at {gigabits:.2} Gb/s", if same { "same" } else { "differs" });
            Row::new(name, "same SHA-256", measured, same).figure("gigabits_per_second", gigabits)
        }
        (Err(why), _) | (_, Err(why)) => Row::failed(name, "same SHA-256", &why),
    }
}

fn upload(session: &mut Session<'_>, host: &Host, report: &mut Report) -> Result<(), Failure> {
    let source = host.served().with_file_name("upload.bin");
    let data = format!("@{}", source.display());
    let words = [
        "curl",
        "-sS",
        "--fail",
        "--data-binary",
        &data,
        "-o",
        "/dev/null",
        "-w",
        "%{speed_upload}",
        "http://10.0.0.10/uploaded.bin",
    ];
    let speed = program::run("alice", &words);
    let stored = hash(&host.served().join("uploaded.bin"));
    let row = match hash(&source) {
        Ok(wanted) => transfer_row("upload 64 MiB (POST)", speed, stored, &wanted),
        Err(why) => Row::failed("upload 64 MiB (POST)", "same SHA-256", &why),
    };
    report.enter(session, row)
}

fn closing_requests(session: &mut Session<'_>, report: &mut Report) -> Result<(), Failure> {
    let urls = format!("http://10.0.0.10/index.html?[1-{REQUESTS}]");
    let begin = Instant::now();
    let words = [
        "curl",
        "-sS",
        "-H",
        "Connection: close",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code} %{num_connects}\n",
        &urls,
    ];
    let answers = program::run("bob", &words);
    let rate = f64::from(REQUESTS) / begin.elapsed().as_secs_f64();
    let wanted = format!("{REQUESTS} x 200");
    let row = match answers {
        Ok(text) => {
            let good = text.lines().filter(|line| *line == "200 1").count() as u32;
            Row::new(
                "requests, Connection: close",
                &wanted,
                format!("{good} x 200, {rate:.0}/s"),
                good == REQUESTS,
            )
            .figure("answers", f64::from(good))
            .figure("per_second", rate)
        }
        Err(why) => Row::failed("requests, Connection: close", &wanted, &why),
    };
    report.enter(session, row)
}

/// iperf3 from alice to bob, running.
struct Iperf {
    server: Running,
    client: std::thread::JoinHandle<Result<String, String>>,
}

impl Iperf {
    fn start(seconds: u32) -> Result<Self, String> {
        let words = ["iperf3", "--server", "--one-off", "--forceflush"];
        let server = Running::start("bob", &words, "Server listening")?;
        let seconds = seconds.to_string();
        let client = std::thread::spawn(move || {
            let words =
                ["iperf3", "--client", "10.0.0.2", "--time", &seconds, "--congestion", "cubic", "--json"];
            program::run("alice", &words)
        });
        Ok(Self { server, client })
    }

    /// The receiver's bits per second. The server has ended too, so that the next one finds its port free.
    fn finish(self) -> Result<f64, String> {
        let text = self.client.join().map_err(|_| "iperf3's thread failed".to_owned())??;
        let rate = program::read_iperf(&text)?;
        self.server.finish()?;
        Ok(rate)
    }

    /// Bits per second of its flow on the wire, measured once traffic runs and while it does.
    fn wire_rate(&self, host: &Host) -> Result<f64, String> {
        let begin = Reading::take(host)?.bytes;
        let deadline = Instant::now() + TRAFFIC_PATIENCE;
        while Reading::take(host)?.bytes < begin + 100_000 {
            if self.client.is_finished() || Instant::now() > deadline {
                return Err("no traffic in flow iperf".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(SETTLE);
        let first = Reading::sharp(host)?;
        std::thread::sleep(MEASURE);
        let last = Reading::sharp(host)?;
        if self.client.is_finished() {
            return Err("iperf3 ended before its rate was measured".into());
        }
        Ok((last.bytes - first.bytes) as f64 * 8.0 / (last.at - first.at).as_secs_f64())
    }
}

/// What flow `iperf` had received, and when.
struct Reading {
    bytes: u64,
    at: Instant,
    /// How long it took to find out: the figure is of some instant in between.
    took: Duration,
}

impl Reading {
    fn take(host: &Host) -> Result<Self, String> {
        let asked = Instant::now();
        let bytes = host.flow("iperf")?.traffic.rbytes;
        let took = asked.elapsed();
        Ok(Self { bytes, at: asked + took / 2, took })
    }

    /// One whose instant is known well enough. Where others have the CPU while the answer is on its way it is asked for
    /// again; the best of them counts.
    fn sharp(host: &Host) -> Result<Self, String> {
        let mut best = Self::take(host)?;
        for _ in 0..READINGS_MAX {
            if best.took <= READING_MAX {
                break;
            }
            let again = Self::take(host)?;
            if again.took < best.took {
                best = again;
            }
        }
        Ok(best)
    }
}

fn rate_row(name: &str, limit_mbps: f64, measured: Result<(f64, Option<f64>), String>) -> Row {
    let wanted = format!("{limit_mbps:.0} Mb/s");
    match measured {
        Ok((wire, payload)) => {
            let megabits = wire / 1e6;
            let is_exact = (megabits / limit_mbps - 1.0).abs() <= RATE_TOLERANCE;
            let payload_text =
                payload.map(|p| format!(" (iperf3: {:.1} of payload)", p / 1e6)).unwrap_or_default();
            let row = Row::new(name, &wanted, format!("{megabits:.2} Mb/s{payload_text}"), is_exact)
                .figure("wire_megabits_per_second", megabits);
            payload.map_or(row.clone(), |p| row.figure("payload_megabits_per_second", p / 1e6))
        }
        Err(why) => Row::failed(name, &wanted, &why),
    }
}

fn limited(session: &mut Session<'_>, host: &Host, report: &mut Report) -> Result<(), Failure> {
    let measured = Iperf::start(4).and_then(|iperf| {
        let wire = iperf.wire_rate(host);
        // If iperf3 failed, its words say more than the silence on the wire.
        let payload = iperf.finish()?;
        Ok((wire?, Some(payload)))
    });
    report.enter(session, rate_row("iperf3 under maxbw=50M", LIMIT_MBPS, measured))
}

fn changed_live(session: &mut Session<'_>, host: &Host, report: &mut Report) -> Result<(), Failure> {
    let words = ["flowadm", "set-flowprop", "-l", "bob0", "-p", "maxbw=100M", "iperf"];
    report.say(session, &format!("$ firelane {}\n", words.join(" ")))?;
    let measured = Iperf::start(5).and_then(|iperf| {
        std::thread::sleep(Duration::from_millis(700));
        host.firelane(&words)?;
        let wire = iperf.wire_rate(host);
        iperf.finish()?;
        Ok((wire?, None))
    });
    report.enter(session, rate_row("the same, changed while it runs", CHANGED_MBPS, measured))
}

fn unlimited(session: &mut Session<'_>, host: &Host, report: &mut Report) -> Result<(), Failure> {
    let words = ["flowadm", "reset-flowprop", "-l", "bob0", "-p", "maxbw", "iperf"];
    report.say(session, &format!("$ firelane {}\n", words.join(" ")))?;
    let measured = host.firelane(&words).and_then(|_| Iperf::start(3)).and_then(Iperf::finish);
    let name = "iperf3 without a limit";
    let row = match measured {
        Ok(bits) => Row::new(name, "over 1 Gb/s", format!("{:.2} Gb/s", bits / 1e9), bits > 1e9)
            .figure("gigabits_per_second", bits / 1e9),
        Err(why) => Row::failed(name, "over 1 Gb/s", &why),
    };
    report.enter(session, row)
}
