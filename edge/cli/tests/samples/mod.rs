//! What the host of the transcripts has: `transcripts.rs` shows it by every command.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::collections::BTreeMap;

use firelane_api::{
    AddressState, ConnectionInfo, DeviceModes, FpmInfo, LeaseInfo, Leased, MemoryInfo, PoolInfo, ProgramInfo,
    ProgramReport, RefusedInfo, ResolverInfo, RingStorage, SeenInfo, SocketInfo, SocketReport, StepInfo,
    TableInfo, TraceReport,
};
use firelane_model::AddrObjName;

/// Two lanes, of which one has run out of large frames.
pub(crate) fn memory() -> MemoryInfo {
    let pool = |lane, pool: &str, [bytes, slots, used]: [u32; 3], failures| PoolInfo {
        lane,
        pool: pool.into(),
        bytes,
        slots: slots.into(),
        used: used.into(),
        free: (slots - used).into(),
        failures,
    };
    let tables = |lane| TableInfo { lane, connections: 65_536, index: 16_384, timers: 8192, time_wait: 512 };
    MemoryInfo {
        pools: vec![
            pool(0, "small", [2048, 8192, 12], 0),
            pool(0, "large", [66_560, 1024, 1024], 31),
            pool(1, "small", [2048, 8192, 0], 0),
            pool(1, "large", [66_560, 1024, 0], 0),
        ],
        rings: [(15, 3), (20, 1)]
            .map(|(shift, used)| RingStorage { bytes: 1 << shift, used, kept: 2, failures: 0 })
            .to_vec(),
        tables: vec![tables(0), tables(1)],
    }
}

/// What clients have, once there are such address objects.
pub(crate) fn leased() -> BTreeMap<AddrObjName, Leased> {
    let leased = |prefix: Option<&str>, state, info: LeaseInfo| Leased {
        state,
        prefix: prefix.map(|it| it.parse().unwrap()),
        deprecated: false,
        resolvers: ResolverInfo {
            name_servers: vec!["10.0.0.53".parse().unwrap()],
            domains: vec!["lab.example".into()],
        },
        info,
    };
    let info = |state: &str, [sent, received, declined]: [u64; 3]| LeaseInfo {
        state: state.into(),
        sent,
        received,
        declined,
        ..LeaseInfo::default()
    };
    let bound = LeaseInfo {
        server: "10.0.0.1".parse().ok(),
        began: Some(1_763_757_662),
        renews: Some(1_763_759_462),
        expires: Some(1_763_761_262),
        ..info("BOUND", [4, 4, 1])
    };
    let forever = LeaseInfo { began: Some(1_763_757_662), ..info("BOUND", [2, 2, 0]) };
    let asked = LeaseInfo { server: "10.0.0.1".parse().ok(), ..info("INFORMED", [1, 1, 0]) };
    let all = [
        ("web0/leased", leased(Some("10.0.0.77/24"), AddressState::Ok, bound)),
        ("web1/leased", leased(Some("10.0.0.78/24"), AddressState::Ok, forever)),
        ("web0/asked", leased(None, AddressState::Ok, asked)),
        ("web0/mute", leased(None, AddressState::Ok, info("UNANSWERED", [4, 0, 0]))),
    ];
    all.map(|(name, it)| (name.parse().unwrap(), it)).into()
}

/// A frame that was followed to its end, and steps.
pub(crate) fn watched() -> (TraceReport, Vec<StepInfo>) {
    let seen = |station: &str, decision: &str, reason: Option<&str>| SeenInfo {
        frame: 1,
        lane: 0,
        station: station.into(),
        decision: decision.into(),
        reason: reason.map(str::to_owned),
    };
    let all = vec![
        seen("driver", "received at db0, 54 bytes: tcp 10.0.0.20:4000 > 10.0.0.10:81", None),
        seen("flow", "out at db0: its own flow", None),
        seen("switch", "to web0", None),
        seen("tcp", "step in", None),
        seen("tcp", "dropped: tcp_no_connection", Some("tcp_no_connection")),
    ];
    let step = |step: &str, direction: &str, frames, cycles| StepInfo {
        step: step.into(),
        direction: direction.into(),
        frames,
        cycles,
    };
    let steps =
        vec![step("ip", "in", 1200, 60_000), step("ip", "out", 0, 0), step("tcp", "in", 1200, 240_600)];
    (TraceReport { seen: all, lost: 0 }, steps)
}

/// A program on a netstack, and one that is not.
pub(crate) fn modes(autoneg: bool, speeds: &[&str], pause: &str) -> DeviceModes {
    DeviceModes { autoneg, speeds: speeds.iter().map(|it| (*it).into()).collect(), pause: pause.into() }
}

pub(crate) fn fpm() -> Vec<FpmInfo> {
    let refused = |reason: &str, messages| RefusedInfo { reason: reason.into(), messages };
    let connected = FpmInfo {
        netstack: "web".parse().unwrap(),
        listen: "127.0.0.1:2620".into(),
        namespace: Some("frr".into()),
        state: "connected".into(),
        peer: Some("127.0.0.1:40112".into()),
        fault: None,
        sessions: 2,
        turned_away: 1,
        bytes: 123_456,
        messages: 2048,
        routes: 1000,
        stale: 7,
        unresolved: 1,
        installed: 1010,
        next_hops: 12,
        swept: 3,
        refused: vec![refused("kernel_route", 4), refused("table", 0), refused("family", 2)],
    };
    let fault = Some("a frame of version 71: FPM's is 1".into());
    let alone = FpmInfo {
        netstack: "db".parse().unwrap(),
        listen: "127.0.0.1:2621".into(),
        namespace: None,
        state: "listening".into(),
        peer: None,
        fault,
        sessions: 1,
        turned_away: 0,
        bytes: 3,
        messages: 0,
        routes: 0,
        stale: 0,
        unresolved: 0,
        installed: 0,
        next_hops: 0,
        swept: 0,
        refused: vec![refused("version", 1)],
    };
    vec![alone, connected]
}

pub(crate) fn programs() -> Vec<ProgramReport> {
    let socket = |fd, path: &str, protocol: &str, state: &str, ends: [Option<&str>; 2]| {
        let [local, remote] = ends.map(|end| end.map(|it| it.parse().unwrap()));
        let [path, protocol, state] = [path, protocol, state].map(str::to_owned);
        SocketReport { fd, path, protocol, state, local, remote, ..SocketReport::default() }
    };
    let listener = SocketReport {
        options: vec!["reuseaddr".into()],
        ..socket(6, "firelane", "tcp", "LISTEN", [Some("10.0.0.10:6379"), None])
    };
    let connection = SocketReport {
        why: "not fused: its peer is not on this netstack".into(),
        lane: Some(1),
        flow: Some("redis".into()),
        fused: Some(false),
        options: vec!["nodelay".into(), "keepalive=300s,100s,3".into()],
        sent: Some(123_456),
        received: Some(789),
        segments: Some([900, 1000, 2]),
        ..socket(8, "firelane", "tcp", "ESTABLISHED", [Some("10.0.0.10:6379"), Some("10.0.0.1:40312")])
    };
    let kernels = SocketReport {
        why: "only TCP and UDP sockets are Firelane's".into(),
        ..socket(9, "kernel", "udp", "Idle", [Some("0.0.0.0:5353"), None])
    };
    let other = ProgramReport {
        pid: 4712,
        command: "sshd".into(),
        path: "kernel".into(),
        why: "libfirelane_preload.so is not in front of its libraries: no firelane run".into(),
        ..ProgramReport::default()
    };
    let redis = ProgramReport {
        pid: 4711,
        command: "redis-server".into(),
        path: "accelerated".into(),
        why: "its TCP and UDP sockets are on netstack web".into(),
        netstack: Some("web".parse().unwrap()),
        sockets: vec![listener, connection, kernels],
        others: 1,
    };
    vec![redis, other]
}

/// A socket of each kind.
pub(crate) fn sockets() -> Vec<SocketInfo> {
    let socket = |protocol: &str, state: &str, local: &str, remote: Option<&str>| SocketInfo {
        netstack: "web".parse().unwrap(),
        protocol: protocol.to_owned(),
        state: state.to_owned(),
        local: local.parse().unwrap(),
        remote: remote.map(|it| it.parse().unwrap()),
        backlog: None,
        time_wait_ms: None,
        program: None,
        tcp: None,
    };
    let known = |n: u64| ConnectionInfo {
        inbytes: 1_250_000 * n,
        outbytes: 268_435_456 * n,
        retransbytes: 2896 * n,
        insegs: 900,
        outsegs: 190_000,
        retranssegs: 2,
        inunordersegs: 1,
        inunorderbytes: 1448,
        recvq: 7,
        sendq: 65_160,
        suna: 43_440,
        unsent: 21_720,
        swnd: 3_145_728,
        rwnd: 1_048_576,
        cwnd: 144_800,
        mss: 1448,
        rto_us: 201_375,
        rtt_us: Some(1375),
        rtts_us: 130_625,
        rttc: 95,
        snxt: 0x8000_a9b0,
        suna_seq: 0x8000_0000,
        rnxt: 0x1234_5678,
        rack: 0x1234_5678,
        ..ConnectionInfo::default()
    };
    let program = Some(ProgramInfo {
        user: "www-data".to_owned(),
        pid: 4711,
        command: "nginx".to_owned(),
        lane: Some(0),
        sent: 268_435_456,
        received: 1_250_007,
    });
    let mut all = vec![
        SocketInfo { backlog: Some([2, 1024]), ..socket("tcp", "LISTEN", "[::]:80", None) },
        SocketInfo {
            program,
            tcp: Some(Box::new(known(1))),
            ..socket("tcp", "ESTABLISHED", "10.0.0.10:80", Some("10.0.0.1:43210"))
        },
        socket("tcp", "TIME_WAIT", "10.0.0.10:80", Some("10.0.0.2:43211")),
        SocketInfo {
            tcp: Some(Box::new(ConnectionInfo { fused: true, fused_bytes: Some([64, 1 << 30]), ..known(2) })),
            ..socket("tcp", "CLOSE_WAIT", "[fd00::10]:80", Some("[fd00::1]:43212"))
        },
        socket("udp", "Idle", "10.0.0.10:53", None),
        socket("udp", "Connected", "[fd00::10]:5353", Some("[fd00::2]:5353")),
    ];
    all[2].time_wait_ms = Some(12_345);
    all
}
