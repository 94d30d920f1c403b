//! Installs the Debian packages that a target of the Makefile needs, or names them.
//!
//! As root on a Debian system missing packages are installed with `apt-get`; otherwise the command to run
//! is printed and the target stops before it fails in the middle.

use std::process::{Command, Stdio};

use anyhow::{Result, bail, ensure};

/// A program that must be on PATH and the Debian package that brings it.
const DEMO: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("ping", "iputils-ping"),
    ("curl", "curl"),
    ("iperf3", "iperf3"),
    ("unshare", "util-linux"),
    ("sha256sum", "coreutils"),
];

const TEST: &[(&str, &str)] = &[
    ("tcpdump", "tcpdump"),
    ("ethtool", "ethtool"),
    ("python3", "python3"),
    ("wget", "wget"),
    ("valgrind", "valgrind"),
    ("redis-server", "redis-server"),
    ("nginx", "nginx"),
    ("wrk", "wrk"),
    ("memcached", "memcached"),
    ("dnsmasq", "dnsmasq-base"),
    ("openssl", "openssl"),
    ("psql", "postgresql"),
    ("javac", "openjdk-17-jdk-headless"),
    ("node", "nodejs"),
    // A module is no program, but a file that lies beside them.
    ("../lib/python3/dist-packages/requests/__init__.py", "python3-requests"),
    // Its own tests, run on a netstack.
    ("../lib/python3.11/test/test_socket.py", "libpython3.11-testsuite"),
    // Judges tunnels.
    ("../lib/python3/dist-packages/scapy/__init__.py", "python3-scapy"),
    ("dpdk-testpmd", "dpdk-dev"),
    // Its daemons lie beside the programs.
    ("../lib/frr/zebra", "frr"),
];

/// Makes sure that everything for `purpose` (demo, test or bench) is there.
pub(crate) fn run(purpose: &str) -> Result<()> {
    let mut wanted = DEMO.to_vec();
    match purpose {
        "demo" => {}
        "test" | "bench" => wanted.extend(TEST),
        _ => bail!("setup knows demo, test and bench, not {purpose:?}"),
    }
    let mut missing: Vec<&str> =
        wanted.iter().filter(|(p, _)| !is_on_path(p)).map(|&(_, package)| package).collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let command = format!("apt-get install --yes --no-install-recommends {}", missing.join(" "));
    if !is_root() {
        bail!("these Debian packages are missing: {}\nrun as root: {command}", missing.join(" "));
    }
    println!("setup: {command}");
    apt(&["update"])?;
    let mut args = vec!["install", "--yes", "--no-install-recommends"];
    args.extend(&missing);
    apt(&args)
}

fn apt(args: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    ensure!(status.success(), "apt-get {} failed: {status}", args.join(" "));
    Ok(())
}

fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin".into(), "/sbin".into()]);
    folders.iter().any(|f| f.join(program).is_file())
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.starts_with(b"0\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_on_path() {
        assert!(is_on_path("sh"));
        assert!(!is_on_path("no-such-program-anywhere"));
    }

    #[test]
    fn an_unknown_purpose_is_refused() {
        assert!(run("lunch").is_err());
    }
}
