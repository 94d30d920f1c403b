//! memif against DPDK: testpmd as client and as server, frames there and back. Both ends in one daemon: what is said of a memif
//! that stays down.
//!
//! testpmd sends each frame back with its addresses exchanged (`macswap`). It runs without huge pages, NIC or
//! privileges; where it is not installed (Debian: dpdk-dev, librte-net-memif23), the tests say so and end.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use firelane_driver_memif::{MemifConfig, MemifQueue, Role, Secret, Standing, open};
use firelane_frame::{Chain, Driver, Pools, PoolsConfig};
use firelane_interop::{Daemon, Sandbox, Testpmd, cpu_ends, skipped, until};
use firelane_units::DropCounters;

const LIMIT: Duration = Duration::from_secs(60);

/// A testpmd in the sandbox; `None` without the program, said aloud.
fn testpmd(sandbox: &Sandbox, device: &str, queues: u16, mode: &str) -> Option<Testpmd> {
    let is_there = |program: &&str| Path::new(program).exists();
    let Some(program) = ["/usr/bin/dpdk-testpmd", "/usr/local/bin/dpdk-testpmd"].into_iter().find(is_there)
    else {
        skipped("dpdk-testpmd is not installed (Debian: dpdk-dev, librte-net-memif23)");
        return None;
    };
    let log = File::create(sandbox.folder().join("testpmd.log")).unwrap();
    // Two lanes of DPDK on whatever CPUs there are: one for control, one that forwards.
    let environment = ["--lcores=0@0,1@0".to_owned(), format!("--vdev={device}")];
    // What comes before it has started is for us, too.
    let options = ["--total-num-mbufs=4096", "--no-flush-rx", "--stats-period=1"];
    let [receiving, sending] = [format!("--rxq={queues}"), format!("--txq={queues}")];
    let options = [&options[..], &[&receiving, &sending]].concat();
    let output = [log.try_clone().unwrap().into(), log.into()];
    Some(Testpmd::start(sandbox.command(program), 128, &environment, mode, &options, output).unwrap())
}

struct Port {
    queue: MemifQueue,
    pools: Pools,
    drops: DropCounters,
    sandbox: std::path::PathBuf,
}

impl Port {
    fn new(queue: MemifQueue, sandbox: &Sandbox) -> Self {
        let pools = Pools::new(PoolsConfig { small_slots: 2048, large_slots: 8 });
        Self { queue, pools, drops: DropCounters::default(), sandbox: sandbox.folder().to_owned() }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.sandbox.join("testpmd.log")).unwrap_or_default()
    }

    fn await_peer(&self, connected: bool) {
        let begin = Instant::now();
        while matches!(self.queue.status().standing(), Standing::Connected { .. }) != connected {
            let standing = self.queue.status().standing();
            assert!(begin.elapsed() < LIMIT, "{standing:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends frames and awaits each, its addresses exchanged and all else untouched.
    fn there_and_back(&mut self, lengths: impl Iterator<Item = usize>) {
        let (mut chain, mut expected) = (Chain::new(), Vec::new());
        for (number, len) in lengths.enumerate() {
            let mut bytes: Vec<u8> = (0..len).map(|at| (number * 13 + at) as u8).collect();
            bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
            bytes[14] = number as u8;
            chain.push(self.pools.copy_of(&bytes).unwrap());
            bytes[..12].rotate_left(6);
            expected.push(bytes);
        }
        let (mut back, begin) = (Vec::new(), Instant::now());
        while back.len() < expected.len() {
            assert!(
                begin.elapsed() < LIMIT,
                "{} of {} came back\n{}",
                back.len(),
                expected.len(),
                self.log()
            );
            self.queue.transmit(&mut chain, &mut self.drops);
            let mut got = Chain::new();
            self.queue.receive(&mut self.pools, 64, &mut got, &mut self.drops);
            back.extend(got.iter().map(|frame| frame.as_slice().to_vec()));
            std::thread::sleep(Duration::from_micros(50));
        }
        assert_eq!(back, expected);
    }
}

fn config(role: Role, sandbox: &Sandbox) -> MemifConfig {
    MemifConfig::new(role, sandbox.folder().join("memif.sock"))
}

fn device(role: &str, sandbox: &Sandbox) -> String {
    let socket = sandbox.folder().join("memif.sock");
    format!("net_memif0,role={role},id=0,socket={},socket-abstract=no", socket.display())
}

#[test]
fn testpmd_as_client_sends_back_what_it_gets_and_comes_again_after_its_death() {
    let sandbox = Sandbox::new();
    let config = MemifConfig { secret: Secret::new("open sesame"), ..config(Role::Server, &sandbox) };
    let (mut queues, _) = open(&config).unwrap();
    let mut port = Port::new(queues.remove(0), &sandbox);
    for _ in 0..2 {
        let device = format!("{},secret=open sesame", device("client", &sandbox));
        let Some(peer) = testpmd(&sandbox, &device, 1, "macswap") else { return };
        port.await_peer(true);
        let Standing::Connected { program, .. } = port.queue.status().standing() else { panic!("gone") };
        assert!(program.starts_with("DPDK"), "{program}");
        for round in 0..8 {
            port.there_and_back((0..100).map(|n| 60 + (round * 100 + n * 11) % 1455));
        }
        drop(peer);
        port.await_peer(false);
    }
}

#[test]
fn testpmd_as_server_takes_our_memory() {
    let sandbox = Sandbox::new();
    // Rings larger than DPDK's mempool cache, wrapped several times, and frames in several buffers.
    let config = MemifConfig { ring_size: 256, buffer_bytes: 512, ..config(Role::Client, &sandbox) };
    let (mut queues, _) = open(&config).unwrap();
    let mut port = Port::new(queues.remove(0), &sandbox);
    let Some(_testpmd) = testpmd(&sandbox, &device("server", &sandbox), 1, "macswap") else { return };
    port.await_peer(true);
    for round in 0..8 {
        port.there_and_back((0..64).map(|n| 60 + (round * 64 + n * 17) % 1455));
    }
}

#[test]
fn testpmd_with_two_queues_has_two_wires() {
    let sandbox = Sandbox::new();
    let (queues, _) = open(&MemifConfig { queues: 2, ..config(Role::Server, &sandbox) }).unwrap();
    let mut ports: Vec<_> = queues.into_iter().map(|queue| Port::new(queue, &sandbox)).collect();
    let Some(_testpmd) = testpmd(&sandbox, &device("client", &sandbox), 2, "macswap") else { return };
    ports[0].await_peer(true);
    for port in &mut ports {
        port.there_and_back((0..100).map(|n| 60 + n * 14));
    }
}

/// A kernel's namespace, a virtual switch and a DPDK program: ARP and ping through all of it.
#[test]
fn a_vnic_whose_user_is_testpmd_answers_pings_from_a_namespace() {
    let sandbox = Sandbox::new();
    let socket = sandbox.folder().join("memif.sock");
    let text = format!(
        "[etherstub.vswitch0]\n\
         [vnic.alice0]\nover = \"vswitch0\"\n\
         tap = {{ namespace = \"alice\", addresses = [\"10.0.0.1/24\"] }}\n\
         [vnic.dp0]\nover = \"vswitch0\"\nmac = \"2:8:20:0:0:7\"\n\
         memif = {{ role = \"server\", socket = \"{}\" }}\n",
        socket.display()
    );
    let config = sandbox.folder().join("host.toml");
    std::fs::write(&config, text).unwrap();
    let daemon = Daemon::start(&sandbox, &config);
    let state = || daemon.firelane(&["dladm", "show-link", "-p", "-o", "state", "dp0"]).expect_success();
    assert_eq!(state(), "down\n", "nobody is there yet");
    let device = format!("{},mac=02:08:20:00:00:07", device("client", &sandbox));
    let Some(peer) = testpmd(&sandbox, &device, 1, "icmpecho") else { return };
    let begin = Instant::now();
    while state() != "up\n" {
        assert!(begin.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(20));
    }
    let ping = || sandbox.run(Some("alice"), "ping", &["-c", "1", "-W", "20", "10.0.0.7"]);
    ping().expect_success();
    // Its queue goes from lane to lane, and no ping is lost.
    let mut pings = sandbox.command("ip");
    pings.args(["netns", "exec", "alice", "ping", "-q", "-i", "0.01", "-c", "300", "-W", "5", "10.0.0.7"]);
    let mut pings = pings.stdout(Stdio::piped()).spawn().expect("ping is installed");
    let (first, last) = cpu_ends();
    let mut moves = 0;
    while pings.try_wait().expect("our own child").is_none() {
        let prop = format!("cpus={}", if moves % 2 == 0 { &first } else { &last });
        daemon.firelane(&["dladm", "set-linkprop", "-t", "-p", &prop, "dp0"]).expect_success();
        daemon.firelane(&["dladm", "reset-linkprop", "-t", "-p", "cpus", "dp0"]).expect_success();
        moves += 1;
    }
    let told = String::from_utf8_lossy(&pings.wait_with_output().expect("it has ended").stdout).into_owned();
    // How often it moves is the machine's to say.
    assert!(told.contains("300 received") && moves >= 2, "{moves} moves: {told}");
    drop(peer);
    while state() != "down\n" {
        assert!(begin.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// As firelane.toml(5) has it: what is over the link at the other end has the address of the VNIC that the memif is of, or both ends are
/// links, beyond which any stations may be.
#[test]
fn firelane_at_both_ends_of_a_memif_is_a_station_or_a_network() {
    let sandbox = Sandbox::new();
    let [trunk, station] =
        ["trunk.sock", "station.sock"].map(|name| sandbox.folder().join(name).display().to_string());
    let memif = |role: &str, socket: &str| format!("memif = {{ role = '{role}', socket = '{socket}' }}\n");
    let link = |name: &str, role, socket| format!("[link.{name}]\nkind = 'memif'\n{}", memif(role, socket));
    let guest = |name: &str, over: &str, more: &str, address: &str| {
        format!(
            "[vnic.{name}0]\nover = '{over}'\nnetstack = '{name}'\n{more}[netstack.{name}.addresses]\n'{name}0/v4' = '{address}/24'\n"
        )
    };
    let mac = "mac = '2:8:20:0:0:7'\n";
    let text = [
        "[etherstub.stub0]\nmtu = 1500\n[wire.wire0]\nends = ['stub0', 'far0']\n".to_owned(),
        "[vnic.alice0]\nover = 'stub0'\ntap = { namespace = 'alice', addresses = ['10.0.0.1/24'] }\n"
            .to_owned(),
        link("far0", "server", &trunk),
        link("far1", "client", &trunk),
        guest("two", "far1", "", "10.0.0.2"),
        format!("[vnic.three0]\nover = 'stub0'\n{mac}{}", memif("server", &station)),
        link("far3", "client", &station),
        guest("four", "far3", mac, "10.0.0.4"),
    ];
    let daemon = Daemon::start_as(&sandbox, &text.concat());
    until("the memifs are up", LIMIT, || {
        let links = daemon.firelane(&["dladm", "show-link", "-p", "-o", "link,state"]).expect_success();
        ["far0", "far1", "three0", "far3"].iter().all(|it| links.contains(&format!("{it}:up\n")))
    });
    for address in ["10.0.0.2", "10.0.0.4"] {
        let pings = ["-q", "-c", "3", "-i", "0.01", "-W", "20", "-s", "1472", "-M", "do", address];
        sandbox.run(Some("alice"), "ping", &pings).expect_success();
    }
}

/// Whoever looks at the daemon, at either end, learns what keeps a memif down and what sets it right.
#[test]
fn why_a_memif_stays_down_is_told_by_status_doctor_and_log() {
    let sandbox = Sandbox::new();
    let [socket, nobody] =
        ["memif.sock", "nobody.sock"].map(|name| sandbox.folder().join(name).display().to_string());
    let config = |id: u32, secret: &str| {
        format!(
            "[link.up0]\nkind = 'memif'\nmemif = {{ role = 'server', socket = '{socket}', secret = 'open sesame' }}\n\
             [link.up1]\nkind = 'memif'\n\
             memif = {{ role = 'client', socket = '{socket}', id = {id}, secret = '{secret}' }}\n\
             [link.up2]\nkind = 'memif'\nmemif = {{ role = 'client', socket = '{nobody}' }}\n"
        )
    };
    let (daemon, log) = Daemon::start_logged(&sandbox, &config(0, "open barley"));
    let log = || std::fs::read_to_string(&log).unwrap();
    let file = sandbox.folder().join("host.toml");
    let apply = |id, secret: &str| {
        std::fs::write(&file, config(id, secret)).unwrap();
        daemon.firelane(&["apply", &file.to_string_lossy()]).expect_success();
    };
    let status = || daemon.firelane(&["status"]).expect_success();
    let is_told = |lines: &[String]| {
        until(&format!("{lines:?} in status"), LIMIT, || {
            lines.iter().all(|line| status().contains(line.as_str()))
        });
        until(&format!("{lines:?} in the log"), LIMIT, || {
            lines.iter().all(|line| log().contains(line.split_once(": ").unwrap().1))
        });
        let told = daemon.firelane(&["doctor"]);
        assert_eq!(told.code(), 1, "{}", told.stdout);
        for line in lines {
            let (kind, rest) = line.split_once(": link ").unwrap();
            let (name, detail) = rest.split_once(": ").unwrap();
            let state = if kind == "note" { "note" } else { "fail" };
            let line = format!("{:<14} {state:<5} {detail}", format!("link {name}"));
            assert!(told.stdout.contains(&line), "{line:?} in {}", told.stdout);
        }
    };
    let nobody_at = |kind: &str, link: &str, role: &str, socket: &str, why: &str| {
        format!("{kind}: link {link}: nobody is at the other end of its memif ({role} of {socket}): {why}\n")
    };
    let same = "`id` (here 0) and `secret` have to be the same at both ends";
    is_told(&[
        nobody_at(
            "problem",
            "up0",
            "server",
            &socket,
            "the secret is wrong; `secret` has to be the same at both ends",
        ),
        nobody_at(
            "problem",
            "up1",
            "client",
            &socket,
            &format!("the other end: the secret is wrong; {same}, and no other client may be there"),
        ),
        nobody_at("note", "up2", "client", &nobody, "nobody listens there"),
    ]);
    apply(7, "open sesame");
    is_told(&[nobody_at(
        "problem",
        "up0",
        "server",
        &socket,
        "interface id 7 is not on this socket; `id` has to be the same at both ends: here 0",
    )]);
    apply(0, "open sesame");
    let mended = |link: &str| format!("link {link}: somebody is at the other end of its memif");
    until("it is mended", LIMIT, || !status().contains("problem: ") && log().contains(&mended("up0")));
    until("the other end says so", LIMIT, || log().contains(&mended("up1")));
    let told = daemon.firelane(&["doctor"]);
    assert_eq!(told.code(), 0, "{}", told.stdout);
    let count = log().matches("link up2: ").count();
    assert_eq!(count, 1, "once is enough: {}", log());
}
