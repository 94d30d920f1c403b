//! Linux's side of an exchange: its TCP/IP behind a TAP of this network namespace, in real time.
//!
//! The caller has made the namespace for this exchange alone, so nothing that the kernel remembers or limits per
//! namespace reaches from one exchange to another. Whether the kernel has dealt with a packet is asked by ARP: it takes
//! frames in their order, so once it has answered, what it says at once to those before has been said.

use std::fmt;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant as Wall};

use firelane_driver_tap::{OpenError, TapConfig, TapQueue, open};
use firelane_sim::station_mac;
use firelane_units::{Instant, IpPrefix};

use super::exchange::Exchange;
use super::kernel_sockets::KernelSockets;
use super::player::{World, play};
use super::transcript::Transcript;
use crate::settings::{Family, Settings};
use crate::sockets::Effect;
use crate::station::{Seen, Station, THEIR_NUMBER, address};
use crate::text::Call;

/// The interface's name, in a namespace of its own.
const IFNAME: &str = "tap0";
/// The largest window that Linux offers: the default of `tcp_rmem`, and our `max_buf`.
const WINDOW: &str = "6291456";
/// How long the kernel may take to answer a question by ARP on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a thread sleeps between two looks at the wire.
const LOOK: Duration = Duration::from_micros(300);

/// What the namespace is told before its interface comes: addresses count at once, and the kernel says nothing of itself.
const SYSCTLS: [(&str, &str); 6] = [
    ("ipv4/tcp_rmem", "4096 131072 6291456"),
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/dad_transmits", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv4/tcp_no_metrics_save", "1"),
];

/// Why the kernel's side could not be played.
#[derive(Debug)]
pub enum KernelError {
    /// No TAP may be opened here.
    NoTap(String),
    /// Something else went wrong, or the exchange makes a call that does not exist.
    Failed(String),
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTap(what) | Self::Failed(what) => f.write_str(what),
        }
    }
}

/// Gives `what: error`.
fn failed(what: &str, error: &dyn fmt::Display) -> KernelError {
    KernelError::Failed(format!("{what}: {error}"))
}

/// What Linux answers, in the network namespace of this process. `None` if the exchange is not about that family.
///
/// # Errors
/// [`KernelError`].
pub fn kernels(exchange: &Exchange, family: Family) -> Result<Option<Transcript>, KernelError> {
    let settings = &exchange.script.settings;
    if !settings.families.contains(&family) {
        return Ok(None);
    }
    let mut world = Kernel::new(exchange, settings, family)?;
    play(&mut world, exchange, settings).map(Some).map_err(KernelError::Failed)
}

struct Kernel {
    station: Station<TapQueue>,
    sockets: KernelSockets,
    start: Wall,
}

impl Kernel {
    fn new(exchange: &Exchange, settings: &Settings, family: Family) -> Result<Self, KernelError> {
        let own = exchange.settings().filter_map(sysctl_of);
        for (name, value) in SYSCTLS.into_iter().chain(own) {
            let path = format!("/proc/sys/net/{name}");
            std::fs::write(&path, value).map_err(|error| failed(&path, &error))?;
        }
        let both = [(false, 24), (true, 64)].into_iter();
        let addresses = both.filter_map(|(v6, len)| IpPrefix::new(address(THEIR_NUMBER, v6), len)).collect();
        let config = TapConfig {
            queues: 1,
            mtu: settings.mtu(family),
            mac: station_mac(THEIR_NUMBER),
            addresses,
            namespace: None,
        };
        let mut queues = open(IFNAME, &config).map_err(|error| match error {
            OpenError::Create(..) => KernelError::NoTap(error.to_string()),
            _ => failed("TAP", &error),
        })?;
        let queue = queues.pop().ok_or_else(|| failed(IFNAME, &"no queue"))?;
        wait_for_address(address(THEIR_NUMBER, true))?;
        // Whole segments with whole checksums, as a wire carries them.
        run("ethtool", &["-K", IFNAME, "tx", "off", "tso", "off", "gso", "off", "sg", "off"])?;
        // The largest window that is ever offered would else be that of the machine's `rmem_max`.
        for (family, network, metric) in [("-4", "10.0.0.0/24", "0"), ("-6", "fd00::/64", "256")] {
            let route =
                [family, "route", "replace", network, "dev", IFNAME, "metric", metric, "window", WINDOW];
            run("ip", &route)?;
        }
        let is_v6 = family.is_v6();
        let sockets = KernelSockets::new(is_v6);
        let mut world = Self { station: Station::new(queue, is_v6), sockets, start: Wall::now() };
        world.settle();
        Ok(world)
    }

    /// What came, without what the kernel says to others than the station.
    fn look(&mut self) -> Vec<(Instant, Seen)> {
        let now = self.now();
        let came = self.station.receive(now);
        came.into_iter().filter(|seen| !is_chatter(seen)).map(|seen| (now, seen)).collect()
    }
}

/// Waits until the kernel lets a program use `address`: it looks after new ones in its own time.
fn wait_for_address(address: IpAddr) -> Result<(), KernelError> {
    let deadline = Wall::now() + PATIENCE;
    while let Err(error) = std::net::UdpSocket::bind((address, 0)) {
        if Wall::now() > deadline {
            return Err(failed(&address.to_string(), &error));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// The setting of the kernel that stands for one of ours.
fn sysctl_of(setting: &str) -> Option<(&'static str, &str)> {
    if let Some(bits) = setting.strip_prefix("tcp.fast_open ") {
        return Some(("ipv4/tcp_fastopen", bits));
    }
    Some(match setting {
        "tcp.ecn never" => ("ipv4/tcp_ecn", "0"),
        "tcp.ecn active" => ("ipv4/tcp_ecn", "1"),
        "tcp.ecn passive" => ("ipv4/tcp_ecn", "2"),
        "tcp.timestamps off" => ("ipv4/tcp_timestamps", "0"),
        "tcp.sack off" => ("ipv4/tcp_sack", "0"),
        "tcp.window_scaling off" => ("ipv4/tcp_window_scaling", "0"),
        "tcp.syn_cookies always" => ("ipv4/tcp_syncookies", "2"),
        _ => return None,
    })
}

fn is_chatter(seen: &Seen) -> bool {
    matches!(seen, Seen::Other(what) if what.starts_with("a packet from ") || what.starts_with("a frame of type "))
}

fn run(program: &str, words: &[&str]) -> Result<(), KernelError> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    command.args(words).env("PATH", path).stdin(Stdio::null());
    let output = command.output().map_err(|error| failed(program, &error))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(failed(program, &said.trim())) }
}

impl World for Kernel {
    type Wire = TapQueue;

    fn now(&self) -> Instant {
        Instant::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn station(&mut self) -> &mut Station<TapQueue> {
        &mut self.station
    }

    fn settle(&mut self) -> Vec<(Instant, Seen)> {
        let (mut all, deadline) = (Vec::new(), Wall::now() + PATIENCE);
        loop {
            self.station.take_silence();
            let now = self.now();
            let before = self.station.answers();
            self.station.ask(now);
            self.station.take_silence();
            let count = all.len();
            while self.station.answers() == before && Wall::now() < deadline {
                all.extend(self.look());
                std::thread::sleep(LOOK);
            }
            all.extend(self.look());
            // Who was asked for an address, or told something, may have more to say.
            if (self.station.take_silence() && all.len() == count) || Wall::now() >= deadline {
                return all;
            }
        }
    }

    fn run_until(&mut self, at: Instant) -> Vec<(Instant, Seen)> {
        let mut all = Vec::new();
        while self.now() < at {
            all.extend(self.look());
            std::thread::sleep(LOOK.min(at.saturating_since(self.now())));
        }
        all
    }

    fn call(&mut self, _: &Settings, call: &Call) -> Result<(String, Effect), String> {
        self.sockets.call(call)
    }
}
