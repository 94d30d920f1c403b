//! `forward-veth`: 64-byte datagrams from one veth to another through a router on AF_XDP, beside testpmd and the kernel.
//!
//! A generator on one CPU sends as fast as it can into the far end of the first pair; who forwards has the other CPU. What
//! the far end of the second pair counts is the result. The three use the same pairs in turn: a daemon whose model has both
//! near ends as links and a netstack that routes between them (route, neighbour, hop, checksum, both addresses of the
//! frame), testpmd with two `net_af_xdp` ports in mode `mac` (both addresses of the frame, no look-up), and the kernel,
//! which moves the packet without a copy, on the generator's CPU. Before each round a frame is caught and judged.

use std::fs;
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::{Duration, Instant as Clock};

use firelane_interop::Testpmd;
use firelane_units::MacAddr;
use firelane_wire::{EtherType, EthernetRepr, IpProtocol, Ipv4Repr, Ipv4View};

use crate::bridge::received;
use crate::burst::{Burst, packet_socket};
use crate::cpu;
use crate::peer::{self, Peer, Result};
use crate::report::{ROUNDS_MIN, Samples, Table, Verdict};
use crate::scene::{Scene, mortal};

const SPAN_MILLIS: u64 = 1000;
const FRAME_BYTES: usize = 64;
/// How long a forwarder may take until frames come through it.
const START: Duration = Duration::from_secs(20);
/// How long the catcher waits for a frame before it sends again.
const CATCH: Duration = Duration::from_millis(20);
/// Discard: nobody listens there, and the sink's namespace is not the datagram's destination anyway.
const PORT: u16 = 9;

/// The stations: the router's legs, and the generator and the sink behind them.
const LEFT: [u8; 6] = [2, 8, 0x20, 0, 0, 0x11];
const LEG_LEFT: [u8; 6] = [2, 8, 0x20, 0, 0, 0x21];
const LEG_RIGHT: [u8; 6] = [2, 8, 0x20, 0, 0, 0x22];
const RIGHT: [u8; 6] = [2, 8, 0x20, 0, 0, 0x12];

/// Two pairs: the near ends belong to who forwards, the far ends to a namespace that has the generator and the sink.
const TOPOLOGY: &[&str] = &[
    "netns add out",
    "link add near0 address 2:8:20:0:0:21 type veth peer name left address 2:8:20:0:0:11 netns out",
    "link add near1 address 2:8:20:0:0:22 type veth peer name right address 2:8:20:0:0:12 netns out",
    "-n out address add 10.1.0.2/24 dev left",
    "-n out address add 10.2.0.2/24 dev right",
    "-n out link set left up",
    "-n out link set right up",
    "link set near0 up",
    "link set near1 up",
];
/// The kernel as router.
const ROUTER: &[&str] = &[
    "address add 10.1.0.1/24 dev near0",
    "address add 10.2.0.1/24 dev near1",
    "route add 10.3.0.0/16 via 10.2.0.2",
];
const NO_ROUTER: &[&str] = &["address flush dev near0", "address flush dev near1"];

/// Firelane as router.
const CONFIG: &str = r#"
[link.net0]
kind = "nic"
ifname = "near0"
driver = "afxdp"
[link.net1]
kind = "nic"
ifname = "near1"
driver = "afxdp"
[vnic.web0]
over = "net0"
mac = "2:8:20:0:0:21"
netstack = "router"
[vnic.web1]
over = "net1"
mac = "2:8:20:0:0:22"
netstack = "router"
[netstack.router]
routes = [{ destination = "10.3.0.0/16", gateway = "10.2.0.2" }]
[netstack.router.addresses]
"web0/v4" = "10.1.0.1/24"
"web1/v4" = "10.2.0.1/24"
[netstack.router.tunables]
ipv4 = { forwarding = "on" }
"#;

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let mut world = World::start()?;
    let [mut ours, mut peer, mut kernel] = <[Side; 3]>::default();
    let mut foreign = Samples::default();
    for _ in 0..ROUNDS_MIN {
        world.firelane(&mut ours, &mut foreign)?;
        world.testpmd(&mut peer, &mut foreign)?;
        world.kernel(&mut kernel, &mut foreign)?;
    }
    let table =
        Table::begin("forward-veth: 64-byte UDP from veth to veth, generator and router on a CPU each");
    for (name, side) in
        [("firelane, AF_XDP", &ours), ("testpmd, net_af_xdp, mac", &peer), ("the kernel", &kernel)]
    {
        table.row(&format!("{name}: arrived"), &side.wall, "Mpps");
        table.row(&format!("{name}: CPU of who forwards"), &side.own, "M/CPU-s");
        table.row(&format!("{name}: CPU of all parties"), &side.all, "M/CPU-s");
    }
    table.disturbance(&foreign);
    table.note("the kernel forwards in its interrupt, inside the generator's system calls: it has no process of its own");
    let ratio = |of: fn(&Side) -> &Samples| of(&ours).median() / of(&peer).median().max(1e-6);
    table.at_least("arrived, beside testpmd", ratio(|side| &side.wall), 1.0, "of it");
    table.at_least("per CPU-second, beside testpmd", ratio(|side| &side.own), 1.0, "of it");
    Ok(Verdict {
        name: "forward-veth",
        ratio: ratio(|side| &side.own),
        firelane: format!("{:.2} M frames/CPU-s", ours.own.median()),
        peer: format!("{:.2}, testpmd", peer.own.median()),
    })
}

/// What one of the three did in all rounds, in millions of frames.
#[derive(Default)]
struct Side {
    /// Per second.
    wall: Samples,
    /// Per second of CPU time of who forwards.
    own: Samples,
    /// And of all parties.
    all: Samples,
}

/// The pairs, the daemon that has them by turns, and the generator.
struct World {
    scene: Scene,
    generator: Peer,
}

impl World {
    fn start() -> Result<Self> {
        let scene = Scene::of(&[TOPOLOGY], CONFIG, 1)?;
        fs::write(scene.sandbox.folder().join("none.toml"), "")?;
        let sandbox = &scene.sandbox;
        peer::run(sandbox, None, "mount", "-t sysfs sysfs /sys")?;
        for netns in [None, Some("out")] {
            peer::run(sandbox, netns, "sysctl", "-qw net.ipv6.conf.all.disable_ipv6=1")?;
        }
        cpu::bind_process(scene.daemon(), "1")?;
        let generator = Peer::start(scene.netns("out"), "veth-generator", &["0"])?;
        Ok(Self { scene, generator })
    }

    fn apply(&self, file: &str) -> Result<()> {
        let path = self.scene.sandbox.folder().join(file);
        self.scene.tell(&["apply", "--empty", &path.to_string_lossy()])
    }

    /// A round of frames with so many hops left, forwarded by a process or by the kernel alone.
    fn measure(
        &mut self,
        forwarder: Option<u32>,
        ttl: u8,
        side: &mut Side,
        foreign: &mut Samples,
    ) -> Result<()> {
        self.generator.ask(&format!("judge {ttl}"))?;
        let meter = cpu::Meter::start(
            &[Some(self.generator.pid()), forwarder].into_iter().flatten().collect::<Vec<_>>(),
        );
        // Behind it, as it takes a while, in which who polls uses time and forwards nothing that is counted.
        let before = forwarder.map(cpu::process_time);
        let [frames, nanos] = *self.generator.ask(&format!("send {SPAN_MILLIS}"))?.as_slice() else {
            return Err("the generator answers frames and nanoseconds".into());
        };
        let used = meter.stop();
        let own = match (forwarder, before) {
            (Some(pid), Some(before)) => cpu::process_time(pid) - before,
            _ => used.parties,
        };
        let millions = frames as f64 / 1e6;
        side.wall.push(millions * 1e9 / nanos as f64);
        side.own.push(millions / own.as_secs_f64());
        side.all.push(millions / used.parties.as_secs_f64());
        foreign.push(used.foreign());
        Ok(())
    }

    fn firelane(&mut self, side: &mut Side, foreign: &mut Samples) -> Result<()> {
        self.apply("host.toml")?;
        let daemon = self.scene.daemon();
        self.measure(Some(daemon), 63, side, foreign)?;
        self.apply("none.toml")
    }

    fn testpmd(&mut self, side: &mut Side, foreign: &mut Samples) -> Result<()> {
        let testpmd = self.start_testpmd()?;
        self.measure(Some(testpmd.pid()), 64, side, foreign)?;
        drop(testpmd);
        // It leaves its programs behind when it is ended.
        peer::ip(&self.scene.sandbox, &["link set dev near0 xdp off", "link set dev near1 xdp off"])
    }

    /// A testpmd of two ports; its main thread, which only waits, is on the same CPU.
    fn start_testpmd(&self) -> Result<Testpmd> {
        let devices = [0, 1].map(|n| format!("--vdev=net_af_xdp{n},iface=near{n}"));
        let environment = [vec!["--lcores=0@1,1@1".to_owned()], devices.to_vec()].concat();
        let options = [
            "--total-num-mbufs=32768",
            "--nb-cores=1",
            "--eth-peer=1,02:08:20:00:00:12",
            "--stats-period=60",
        ];
        let program = mortal(&self.scene.sandbox, "dpdk-testpmd");
        Testpmd::start(program, 256, &environment, "mac", &options, [Stdio::null(), Stdio::null()])
            .map_err(|error| format!("dpdk-testpmd (Debian: dpdk-dev): {error}").into())
    }

    fn kernel(&mut self, side: &mut Side, foreign: &mut Samples) -> Result<()> {
        peer::ip(&self.scene.sandbox, ROUTER)?;
        peer::run(&self.scene.sandbox, None, "sysctl", "-qw net.ipv4.ip_forward=1")?;
        self.measure(None, 63, side, foreign)?;
        peer::run(&self.scene.sandbox, None, "sysctl", "-qw net.ipv4.ip_forward=0")?;
        peer::ip(&self.scene.sandbox, NO_ROUTER)
    }
}

/// The generator, on a CPU, in the namespace of the far ends. `judge TTL` sends until a frame arrives, which must be what a
/// router makes of it; `send MILLIS` is answered with the frames that arrived and how long that took in nanoseconds.
pub(crate) fn play_generator(args: &[&str]) -> Result<()> {
    let &[on] = args else { return Err("CPU".into()) };
    cpu::bind_to(on)?;
    let mut burst = Burst::new("left", &datagram())?;
    peer::serve(|words| match words {
        ["judge", ttl] => judge(&mut burst, ttl.parse()?).map(|()| vec![]),
        ["send", millis] => {
            let span = Duration::from_millis(millis.parse()?);
            let ([before, _], begin) = (received("right")?, Clock::now());
            while begin.elapsed() < span {
                burst.send()?;
            }
            let ([after, _], took) = (received("right")?, begin.elapsed());
            Ok(vec![after - before, took.as_nanos() as u64])
        }
        _ => Err("judge TTL or send MILLIS".into()),
    })
}

/// A datagram from a host behind the generator to one behind the sink.
fn datagram() -> [u8; FRAME_BYTES] {
    let mut bytes = [0; FRAME_BYTES];
    let ethernet = EthernetRepr { dst: MacAddr(LEG_LEFT), src: MacAddr(LEFT), ethertype: EtherType::IPV4 };
    ethernet.emit(&mut bytes);
    let (src, dst) = ([10, 1, 0, 7].into(), [10, 3, 0, 9].into());
    Ipv4Repr::new(src, dst, IpProtocol::UDP, (FRAME_BYTES - 34) as u16).emit(&mut bytes[14..]);
    bytes[34..36].copy_from_slice(&PORT.to_be_bytes());
    bytes[36..38].copy_from_slice(&PORT.to_be_bytes());
    bytes[38..40].copy_from_slice(&30u16.to_be_bytes());
    bytes
}

/// Sends until one arrives, and compares it with what it should be.
fn judge(burst: &mut Burst, ttl: u8) -> Result<()> {
    let socket = packet_socket("right", EtherType::IPV4.0)?;
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, Some(CATCH))?;
    let begin = Clock::now();
    while begin.elapsed() < START {
        burst.send()?;
        let mut bytes = [0; 2048];
        let Ok((_, len)) = rustix::net::recv(socket.as_fd(), &mut bytes[..], rustix::net::RecvFlags::empty())
        else {
            continue;
        };
        let frame = &bytes[..len];
        if len < FRAME_BYTES || frame[34..42] != datagram()[34..42] {
            continue;
        }
        let is_right = frame[..6] == RIGHT
            && frame[6..12] == LEG_RIGHT
            && Ipv4View::parse(&frame[14..]).is_ok_and(|view| view.ttl() == ttl && view.is_checksum_valid());
        return if is_right { Ok(()) } else { Err(format!("a frame came out wrong: {frame:x?}").into()) };
    }
    Err("no frame comes through".into())
}
