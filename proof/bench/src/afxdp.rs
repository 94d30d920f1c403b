//! `afxdp`: 64-byte frames into a veth through an AF_XDP socket of ours, beside testpmd's.
//!
//! Each sends from one thread on the same CPU; the kernel carries the frames across the veth inside its system calls,
//! and drops them at the far end, whose counter is the result. Rates are per second of the sender's CPU time, so that
//! who merely spins is charged for it. Both make the same system calls: what differs is how many frames each carries.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant as Clock};

use firelane_driver_afxdp::{AfXdpConfig, AfXdpQueue, open};
use firelane_frame::{Chain, Driver, Pools, PoolsConfig};
use firelane_units::{DropCounters, Mtu};

use crate::cpu;
use crate::peer::Result;
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict};
use crate::testpmd;

const SPAN: Duration = Duration::from_millis(300);
const CHAIN: usize = 64;
const FRAME_BYTES: usize = 64;
/// What testpmd sends: UDP to a neighbour that is not there, so that the kernel takes the same way to drop it.
const DATAGRAM: [u8; 42] = [
    2, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
    0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0xec, 0x92, 198, 18, 0, 1, 198, 18, 0, 2, // IPv4
    0, 9, 0, 9, 0, 30, 0, 0, // UDP
];
/// How long testpmd may take to start.
const START: Duration = Duration::from_secs(20);

/// Runs the benchmark in a thread with namespaces of its own, which end with it.
pub(crate) fn run() -> Result<Verdict> {
    std::thread::spawn(inside).join().map_err(|_| "the benchmark's thread panicked")?
}

fn inside() -> Result<Verdict> {
    let flags = rustix::thread::UnshareFlags::NEWNET | rustix::thread::UnshareFlags::NEWNS;
    // SAFETY: this thread is new and has opened nothing that depends on its old namespaces.
    unsafe { rustix::thread::unshare_unsafe(flags) }?;
    for line in [
        "mount --make-rprivate /",
        "mount -t sysfs sysfs /sys",
        "ip link add near type veth peer name far",
        "ip link set near up",
        "ip link set far up",
    ] {
        command(line)?;
    }
    fs::write("/proc/sys/net/ipv6/conf/near/disable_ipv6", "1")?;
    fs::write("/proc/sys/net/ipv6/conf/far/disable_ipv6", "1")?;
    cpu::bind(1)?;
    let (mut ours, mut peer, mut attached) = (Samples::default(), Samples::default(), String::new());
    for _ in 0..ROUNDS_MIN {
        let (rate, how) = send()?;
        ours.push(rate);
        attached = how;
        peer.push(testpmd()?);
    }
    let table = Table::begin("afxdp: 64-byte frames into a veth, one sender on one CPU");
    table.row("firelane", &ours, "M/CPU-s");
    table.row("testpmd, net_af_xdp", &peer, "M/CPU-s");
    table.fact("firelane's socket", &attached);
    let ratio = ours.median() / peer.median().max(1e-6);
    table.at_least("firelane beside testpmd", ratio, 1.0, "of it");
    Ok(Verdict {
        name: "afxdp",
        ratio,
        firelane: format!("{:.2} M frames/CPU-s", ours.median()),
        peer: format!("{:.2}, testpmd", peer.median()),
    })
}

fn command(line: &str) -> Result<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new(words[0]).args(&words[1..]).output()?;
    if !output.status.success() {
        return Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(())
}

fn arrived() -> Result<u64> {
    Ok(fs::read_to_string("/sys/class/net/far/statistics/rx_packets")?.trim().parse()?)
}

/// Millions of frames that arrived in a span of `work`, per second of CPU time of the process and of the kernel's threads.
fn rate(pid: u32, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    // The meter takes a while to begin, in which frames arrive.
    let meter = cpu::Meter::start(&[pid]);
    let (begin, frames) = (Clock::now(), arrived()?);
    while begin.elapsed() < SPAN {
        work()?;
    }
    let (frames, used) = (arrived()? - frames, meter.stop());
    Ok(frames as f64 / used.parties.as_secs_f64() / 1e6)
}

fn send() -> Result<(f64, String)> {
    let (mut queues, attached) = open("near", &AfXdpConfig::new(Mtu::ETHERNET))?;
    let mut queue: AfXdpQueue = queues.remove(0);
    let mut pools = Pools::new(PoolsConfig { small_slots: 1024, large_slots: 0 });
    let (mut chain, mut drops) = (Chain::with_capacity(CHAIN), DropCounters::default());
    let mut frame = [0; FRAME_BYTES];
    frame[..DATAGRAM.len()].copy_from_slice(&DATAGRAM);
    let mut turn = || {
        while chain.len() < CHAIN {
            chain.push(pools.copy_of(&frame).ok_or("no buffer")?);
        }
        queue.transmit(&mut chain, &mut drops);
        Ok(())
    };
    // The first frames make the kernel's caches.
    rate(std::process::id(), &mut turn)?;
    Ok((rate(std::process::id(), &mut turn)?, attached.to_string()))
}

fn testpmd() -> Result<f64> {
    let environment = ["--lcores=0@1,1@1", "--vdev=net_af_xdp0,iface=near"].map(str::to_owned);
    let length = format!("--txpkts={FRAME_BYTES}");
    let options = ["--total-num-mbufs=16384", &length, "--stats-period=60"];
    let testpmd = testpmd::start(128, &environment, "txonly", &options, [Stdio::null(), Stdio::null()])?;
    let (begin, before) = (Clock::now(), arrived()?);
    while arrived()? < before + 1000 {
        if begin.elapsed() > START {
            return Err("testpmd sends nothing through net_af_xdp".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = testpmd.pid();
    let rate = rate(pid, || {
        std::thread::sleep(SPAN);
        Ok(())
    })?;
    drop(testpmd);
    // It leaves its program behind when it is ended.
    command("ip link set dev near xdp off")?;
    Ok(rate)
}
