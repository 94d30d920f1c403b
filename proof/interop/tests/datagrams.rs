//! Datagram sockets of unmodified programs: what a program sees is what Linux shows it, and real programs.

use std::path::Path;

use firelane_interop::{BOTH, On, Sandbox, Stage};

const HOST: &str = Stage::FIRELANE;
/// Debian's, which has its own modules.
const PYTHON: &str = "/usr/bin/python3";

fn script(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name).to_string_lossy().into_owned()
}

/// Runs a test with one lane and with two; nothing is left of its programs.
fn on_lanes(test: impl Fn(&Stage<'_>)) {
    for lanes in [1, 2] {
        let sandbox = Sandbox::new();
        let stage = Stage::new(&sandbox, lanes);
        test(&stage);
        stage.wait_until_nothing_is_left();
    }
}

#[test]
fn datagrams_go_out_and_come_in() {
    on_lanes(|stage| {
        stage.ask(On::Firelane, &[PYTHON, &script("shim/datagrams.py"), HOST]);
    });
}

/// The script's own claims about Linux.
#[test]
fn the_kernel_does_the_same() {
    let sandbox = Sandbox::new();
    let stage = Stage::new(&sandbox, 1);
    stage.ask(On::Kernel, &[PYTHON, &script("shim/datagrams.py"), Stage::KERNEL]);
}

#[test]
fn node_answers_datagrams() {
    on_lanes(|stage| {
        let server = stage.serve(On::Firelane, &["node", &script("programs/echo.js"), HOST, "7000"]);
        for on in BOTH {
            let ask = script("programs/ask_datagrams.py");
            stage.wait_for(&server, on, &[PYTHON, &ask, HOST, "7000", "200"]);
        }
    });
}

#[test]
fn dnsmasq_answers_over_udp() {
    on_lanes(|stage| {
        let listen = format!("--listen-address={HOST}");
        let words = [
            "/usr/sbin/dnsmasq",
            "--no-daemon",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--user=",
            "--port=5353",
            "--bind-interfaces",
            &listen,
            "--address=/lane.test/192.0.2.7",
            "--pid-file=",
        ];
        let server = stage.serve(On::Firelane, &words);
        for on in BOTH {
            let answer = stage.wait_for(&server, on, &[PYTHON, &script("programs/ask_dns.py"), HOST, "5353"]);
            assert_eq!(answer.trim(), "192.0.2.7");
        }
    });
}

#[test]
fn iperf3_sends_datagrams_both_ways() {
    on_lanes(|stage| {
        let server = stage.serve(On::Firelane, &["iperf3", "-s", "-p", "5201"]);
        for on in BOTH {
            for direction in [&[][..], &["-R"]] {
                let words = ["-c", HOST, "-p", "5201", "-u", "-b", "20M", "-l", "1200", "-t", "1"];
                let words: Vec<&str> = words.iter().chain(direction).copied().collect();
                let report = stage.iperf3(&server, on, &words);
                let sum = &report["end"]["sum"];
                assert!(sum["packets"].as_u64() > Some(1500), "{on:?} {direction:?}: {report}");
                // Who gets no CPU for a tenth of a second finds his buffer full.
                assert!(sum["lost_percent"].as_f64() < Some(30.0), "{on:?} {direction:?}: {sum}");
            }
        }
    });
}
