//! `idle`: what 1,000 connections cost that do nothing.
//!
//! A kernel client in a tenant's namespace of the demo's configuration makes them to the HTTP service of a real
//! `firelaned`, asks for one page on each, and falls silent. Measured are the daemon's CPU time over 30 seconds
//! and its memory; and, in this process, what both ends of a connection allocate. The peer is what the kernel's
//! slab caches take for the same number of connections of its own.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use firelane::{Stack, StreamConfig, TcpListener, TcpStream, WireConfig, wire};
use firelane_interop::Sandbox;

use crate::peer::{self, Peer, Place, Result};
use crate::report::{Samples, Table, Verdict};
use crate::scene::mortal;
use crate::{alloc, cpu};

const CONNECTIONS: usize = 1000;
const SPAN: Duration = Duration::from_secs(30);
/// A connection gives memory back one second after its last traffic.
const SETTLE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(10);
const WANTED_CPU_PERCENT: f64 = 0.5;
const WANTED_BYTES: f64 = 1024.0;
const SERVICE: &str = "10.0.0.10:80";
const CONFIG: &str = include_str!("../../../examples/two-tenants.toml");

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let kernel = kernel_bytes()?;
    let allocated = allocated_bytes()?;
    let sandbox = Sandbox::new();
    let daemon = Daemon::start(&sandbox)?;
    let mut client = Peer::start(Place::Netns(&sandbox, "alice"), "idle-client", &[])?;
    std::thread::sleep(SETTLE);
    let before = resident_bytes(daemon.0.id());
    let made = client.ask(&format!("{SERVICE} {CONNECTIONS}"))?;
    if made != [CONNECTIONS as u64] {
        return Err(format!("{made:?} connections instead of {CONNECTIONS}").into());
    }
    std::thread::sleep(SETTLE);
    let resident = resident_bytes(daemon.0.id()).saturating_sub(before) as f64 / CONNECTIONS as f64;
    let (start, busy) = (Instant::now(), cpu::process_time(daemon.0.id()));
    std::thread::sleep(SPAN);
    let busy = cpu::process_time(daemon.0.id()).saturating_sub(busy);
    let percent = 100.0 * busy.as_secs_f64() / start.elapsed().as_secs_f64();
    // A connection that has ended in the meantime would be no idle one.
    if client.ask("check")? != [CONNECTIONS as u64] {
        return Err("some connections did not last".into());
    }
    let table = Table::begin("idle: 1,000 connections that do nothing");
    let one = |value: f64| [value].into_iter().collect::<Samples>();
    table.row("the daemon's CPU over 30 s", &one(percent), "% of a CPU");
    table.row("an end of a connection, allocated", &one(allocated), "bytes");
    table.row("a connection in the daemon, resident", &one(resident), "bytes");
    table.row("an end of a connection, kernel's slab", &one(kernel), "bytes");
    table.note(
        "resident memory holds the HTTP service's task, its page tables' share and what allocators keep",
    );
    table.at_most("the daemon's CPU", percent, WANTED_CPU_PERCENT, "%");
    table.at_most("an end of an idle connection", allocated, WANTED_BYTES, "bytes");
    Ok(Verdict {
        name: "idle",
        ratio: kernel / allocated,
        firelane: format!("{allocated:.0} bytes a connection, {percent:.2} % of a CPU"),
        peer: format!("{kernel:.0} bytes a connection"),
    })
}

/// A `firelaned` with the demo's configuration, killed with its owner.
struct Daemon(Child);

impl Daemon {
    fn start(sandbox: &Sandbox) -> Result<Self> {
        let folder = sandbox.folder();
        let config = folder.join("two-tenants.toml");
        fs::write(&config, CONFIG)?;
        let program = std::env::current_exe()?.with_file_name("firelaned");
        let runtime = folder.join("run");
        fs::create_dir_all(runtime.join("state/www"))?;
        fs::write(runtime.join("state/www/index.html"), "idle\n")?;
        let mut command = mortal(sandbox, program);
        command.arg("--config").arg(&config).arg("--runtime-dir").arg(&runtime);
        command.stdin(Stdio::null()).stderr(fs::File::create(folder.join("daemon.log"))?);
        let daemon = Self(command.spawn()?);
        peer::retry(|| match runtime.join("api.sock").exists() {
            true => Ok(()),
            false => Err(peer::not_started(&folder.join("daemon.log"))),
        })?;
        Ok(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `ADDR N` makes connections, asks for a page on each, and is answered with how many there are; `check` with
/// how many still are.
pub(crate) fn play_client() -> Result<()> {
    let mut streams: Vec<KernelStream> = Vec::new();
    peer::serve(|words| match words {
        ["check"] => {
            let mut alive = 0;
            for stream in &mut streams {
                stream.set_nonblocking(true)?;
                let mut byte = [0];
                alive += u64::from(
                    matches!(stream.read(&mut byte), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock),
                );
            }
            Ok(vec![alive])
        }
        &[address, count] => {
            let address: SocketAddr = address.parse()?;
            for _ in 0..count.parse::<usize>()? {
                let mut stream = KernelStream::connect(address)?;
                stream.write_all(b"GET / HTTP/1.1\r\nHost: idle\r\n\r\n")?;
                let mut answer = [0; 512];
                let mut length = 0;
                while !answer[..length].ends_with(b"idle\n") {
                    match stream.read(&mut answer[length..])? {
                        0 => return Err("the service ended the connection".into()),
                        more => length += more,
                    }
                }
                streams.push(stream);
            }
            Ok(vec![streams.len() as u64])
        }
        _ => Err("ADDR N or check".into()),
    })
}

pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() * 1024
}

/// What one end of a connection allocates, socket included, after it has carried a message and fallen silent.
pub(crate) fn allocated_bytes() -> Result<f64> {
    let (one, two) = wire(WireConfig::default());
    let stack = |end: firelane_driver_memory::End, mac: &str, address: &str| -> Result<Stack> {
        Ok(Stack::builder().interface(end).mac(mac)?.address(address)?.build()?)
    };
    let client = stack(one, "02:08:20:00:00:01", "10.0.0.1/24")?;
    let server = stack(two, "02:08:20:00:00:02", "10.0.0.2/24")?;
    let listener = TcpListener::bind(&server, "10.0.0.2:7")?;
    let connect = |count: usize| -> Result<Vec<TcpStream>> {
        let mut streams = Vec::with_capacity(2 * count);
        for _ in 0..count {
            let address = SocketAddr::from(([10, 0, 0, 2], 7));
            let mut stream = TcpStream::connect_with(&client, address, StreamConfig::default(), PATIENCE)?;
            let (mut accepted, _) = listener.accept()?;
            stream.write_all(b"message")?;
            accepted.read_exact(&mut [0; 7])?;
            streams.extend([stream, accepted]);
        }
        Ok(streams)
    };
    // Tables grow in steps; the first thousand brings them to their size.
    let first = connect(CONNECTIONS)?;
    std::thread::sleep(SETTLE);
    let before = alloc::live_bytes();
    let second = connect(CONNECTIONS)?;
    std::thread::sleep(SETTLE);
    let grown = alloc::live_bytes().saturating_sub(before);
    let ends = second.len();
    drop((first, second));
    Ok(grown as f64 / ends as f64)
}

/// What one end of a connection takes in the kernel's slab caches, over loopback.
pub(crate) fn kernel_bytes() -> Result<f64> {
    let listener = KernelListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let before = slab_bytes()?;
    let mut streams = Vec::with_capacity(2 * CONNECTIONS);
    // Descriptors of one process are often limited to 1,024.
    for _ in 0..CONNECTIONS.min(400) {
        let stream = KernelStream::connect(address)?;
        let (accepted, _) = listener.accept()?;
        streams.extend([stream, accepted]);
    }
    let grown = slab_bytes()?.saturating_sub(before);
    Ok(grown as f64 / streams.len() as f64)
}

/// Bytes of the objects that sockets are made of.
fn slab_bytes() -> Result<u64> {
    const CACHES: [&str; 5] = ["TCP", "sock_inode_cache", "filp", "dentry", "lsm_inode_cache"];
    let text = fs::read_to_string("/proc/slabinfo").map_err(|e| format!("/proc/slabinfo: {e}"))?;
    let bytes = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let active: u64 = words.next()?.parse().ok()?;
        let size: u64 = words.nth(1)?.parse().ok()?;
        CACHES.contains(&name).then_some(active * size)
    });
    Ok(bytes.sum())
}
