//! `conn-memory`: what a million established connections take that say nothing, and what they leave in TIME-WAIT.
//!
//! Two hosts of one lane each in this process, driven by hand in time of their own; both ends of every connection
//! are here, and each end counts as one. Every connection has carried a message in both directions and then been
//! silent for seconds. Counted is what the process has allocated since before the first connection, as it was
//! asked for, without what the program keeps for itself (the handle of an end): the connection's place in the
//! lane's table with room to grow, the index, the timers, and the block of the two rings' heads with the words
//! that lane and program share. The peer is what the kernel's slab caches take for a connection of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use firelane_driver_memory::{End, WireConfig, wire};
use firelane_flow::FlowConfig;
use firelane_lane::{
    Backlogs, Connect, Control, FlowSetup, Idle, Lane, LaneConfig, LaneMessage, LinkConfig, Listen,
    NetstackConfig, PortConfig, PortKind, PortUser, Secrets, SocketCommand, StreamOptions, TableMemory,
};
use firelane_socket::{ListenerEnd, StreamConfig, StreamEnd, StreamShared, listener, stream};
use firelane_units::{FlowId, Instant, LaneId, LinkId, MacAddr, Mtu, NetstackId, Priority, SocketId};

use crate::alone::NoMail;
use crate::peer::Result;
use crate::report::{Samples, Table, Verdict};
use crate::{alloc, idle};

const CONNECTIONS: usize = 1_000_000;
const TIME_WAIT: usize = 100_000;
/// Ports that the server listens on: each takes as many connections as the client has ports, and is not filled.
const PORTS: u16 = 40;
/// Connections that are made at a time, and may wait to be accepted.
const BATCH: usize = 100;
/// Virtual time per batch: the pace of a busy server.
const PACE: Duration = Duration::from_millis(1);
/// A connection gives memory back one second after its last traffic.
const SILENCE: Duration = Duration::from_secs(5);
const RINGS: StreamConfig = StreamConfig { send_capacity: 1 << 16, recv_capacity: 1 << 16 };
const WANTED_BYTES: f64 = 600.0;
const WANTED_TIME_WAIT: f64 = 64.0;
const NETSTACK: NetstackId = NetstackId(0);

/// Runs the benchmark.
pub(crate) fn run() -> Result<Verdict> {
    let kernel = idle::kernel_bytes()?;
    let socket = idle::allocated_bytes()?;
    let mut world = World::new();
    let (mut clients, mut servers) = (Vec::with_capacity(CONNECTIONS), Vec::with_capacity(CONNECTIONS));
    // The first finds the neighbour, for which no more than a few segments wait.
    world.connect(1, &mut clients, &mut servers)?;
    let (before, resident) = (alloc::live_bytes(), idle::resident_bytes(std::process::id()));
    world.connect(CONNECTIONS - 1, &mut clients, &mut servers)?;
    world.pass(SILENCE);
    let ends = (2 * CONNECTIONS) as f64;
    let allocated = alloc::live_bytes().saturating_sub(before) as f64 / ends;
    let resident = idle::resident_bytes(std::process::id()).saturating_sub(resident) as f64 / ends;
    let tables = [world.client.memory(), world.server.memory()];
    world.end(TIME_WAIT, &mut clients, &mut servers)?;
    let records = world.client.memory().time_wait as f64 / TIME_WAIT as f64;
    drop((clients, servers));

    let table = Table::begin("conn-memory: 1,000,000 idle connections in a process, each end counted");
    let row = |what: &str, value: f64| table.row(what, &[value].into_iter().collect::<Samples>(), "bytes");
    row("an end of an idle connection, allocated", allocated);
    let part = |what: &str, bytes: fn(&TableMemory) -> usize| {
        row(what, tables.iter().map(bytes).sum::<usize>() as f64 / ends);
    };
    part("  its place in the lane's table", |tables| tables.connections);
    part("  its entry in the index", |tables| tables.index);
    part("  its timer", |tables| tables.timers);
    row("  rings' heads and shared words", stream_bytes());
    row("an end, resident", resident);
    row("an end with the crate's socket (of 1,000)", socket);
    row("a record in TIME-WAIT, with its index", records);
    row("an end, kernel's slab (of 400)", kernel);
    table.note("resident: page tables' share, the allocator's own, and what the program keeps (72 bytes)");
    table.at_most("an end of an idle connection", allocated, WANTED_BYTES, "bytes");
    table.at_most("a record in TIME-WAIT", records, WANTED_TIME_WAIT, "bytes");
    Ok(Verdict {
        name: "conn-memory",
        ratio: kernel / allocated,
        firelane: format!("{allocated:.0} bytes an end, {records:.0} in TIME-WAIT"),
        peer: format!("{kernel:.0} bytes an end"),
    })
}

/// What a stream takes beside its halves.
fn stream_bytes() -> f64 {
    let before = alloc::live_bytes();
    let made = stream(RINGS, LaneId(0), NETSTACK);
    let bytes = alloc::live_bytes().saturating_sub(before);
    drop(made);
    bytes as f64
}

/// A lane with a netstack on one end of the wire.
struct Station(Lane<End>);

impl Station {
    fn new(end: End, n: u8) -> Self {
        let secrets = Secrets::new(std::array::from_fn(|at| at as u8 ^ n));
        let config = LaneConfig::new(LaneId(0), secrets, Arc::new(Backlogs::new(1)), Instant::ZERO);
        let mut station = Self(Lane::new(config));
        let (link, vnic) = (LinkId(0), LinkId(1));
        station.tell(Control::AddLink(LinkConfig { link, mtu: Mtu::ETHERNET }));
        let user = PortUser::Driver { through: LaneId(0) };
        station.tell(Control::AddPort(
            PortConfig { id: link, over: link, kind: PortKind::Uplink, user },
            Some(end),
        ));
        station.tell(Control::AddNetstack(NetstackConfig::new(NETSTACK)));
        let config = FlowConfig { parent: None, maxbw: None, priority: Priority::Medium };
        station.tell(Control::AddFlow(FlowSetup {
            flow: FlowId(0),
            owner: vnic,
            rule: None,
            config,
            home: None,
        }));
        let kind = PortKind::Vnic { mac: MacAddr([2, 8, 0x20, 0, 0, n]), vlan: None, flow: FlowId(0) };
        let user = PortUser::Netstack(NETSTACK);
        station.tell(Control::AddPort(PortConfig { id: vnic, over: link, kind, user }, None));
        let address = format!("10.0.0.{n}/24").parse().expect("a prefix");
        station.tell(Control::AddAddress(NETSTACK, vnic, address));
        station
    }

    fn tell(&mut self, control: Control<End>) {
        self.0.on_message(Instant::ZERO, LaneMessage::Control(Box::new(control)));
        self.0.empty_outbox(&mut NoMail::unrefused());
    }

    fn command(&mut self, now: Instant, command: SocketCommand) {
        self.0.on_message(now, LaneMessage::Socket(NETSTACK, command));
    }

    fn kick(&mut self, now: Instant, shared: StreamShared<'_>) {
        if let Some(conn) = shared.conn() {
            self.0.on_message(now, LaneMessage::Kick { netstack: NETSTACK, conn });
        }
    }

    fn memory(&self) -> TableMemory {
        self.0.snapshot().memory
    }
}

/// Two stations on a wire.
struct World {
    client: Station,
    server: Station,
    listeners: Vec<ListenerEnd>,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let (one, two) = wire(WireConfig::default());
        let (client, server) = (Station::new(one, 1), Station::new(two, 2));
        let mut world = Self { client, server, listeners: Vec::new(), now: Instant::ZERO };
        for port in 0..PORTS {
            let (end, slot) = listener(BATCH);
            let (socket, options) = (SocketId(port.into()), StreamOptions::default());
            let listen = Listen {
                socket,
                local: Self::service(port),
                v6_only: false,
                shares: false,
                slot,
                rings: RINGS,
                options,
            };
            world.server.command(world.now, SocketCommand::Listen(Box::new(listen)));
            world.listeners.push(end);
        }
        world.run();
        world
    }

    fn service(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 2], 1000 + port))
    }

    /// Turns of both lanes until both are silent; when the first of them has to be looked at again.
    fn run(&mut self) -> Option<Instant> {
        loop {
            let sleeps = [&mut self.client, &mut self.server].map(|station| {
                let sleep = station.0.turn(self.now, Idle::Sleeps);
                station.0.empty_outbox(&mut NoMail::unrefused());
                sleep
            });
            let until = sleeps.iter().filter_map(|sleep| sleep.until).min();
            let is_busy = sleeps.iter().any(|sleep| sleep.work_left);
            if !is_busy && until.is_none_or(|at| at > self.now) {
                return until;
            }
        }
    }

    /// Lets time pass.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        while let Some(at) = self.run().filter(|&at| at <= end) {
            self.now = at;
        }
        self.now = end;
        self.run();
    }

    /// Makes connections, and lets each carry a message in both directions.
    fn connect(
        &mut self,
        count: usize,
        clients: &mut Vec<StreamEnd>,
        servers: &mut Vec<StreamEnd>,
    ) -> Result<()> {
        let end = clients.len() + count;
        for batch in 0.. {
            let size = BATCH.min(end - clients.len());
            if size == 0 {
                break;
            }
            let port = batch % PORTS;
            let mut ours: Vec<StreamEnd> = (0..size).map(|_| self.open(port)).collect();
            self.pass(PACE);
            let listener = &self.listeners[usize::from(port)];
            let mut theirs: Vec<StreamEnd> =
                std::iter::from_fn(|| listener.accept()).map(|a| a.stream).collect();
            if theirs.len() != size {
                return Err(format!("{} of {size} connections came to port {port}", theirs.len()).into());
            }
            say(&mut self.client, self.now, &mut ours)?;
            self.pass(PACE);
            hear(&mut theirs)?;
            say(&mut self.server, self.now, &mut theirs)?;
            self.pass(PACE);
            hear(&mut ours)?;
            clients.append(&mut ours);
            servers.append(&mut theirs);
        }
        Ok(())
    }

    fn open(&mut self, port: u16) -> StreamEnd {
        let (end, slot) = stream(RINGS, LaneId(0), NETSTACK);
        let connect = Connect {
            remote: Self::service(port),
            local: None,
            stream: slot,
            options: StreamOptions::default(),
        };
        self.client.command(self.now, SocketCommand::Connect(Box::new(connect)));
        end
    }

    /// Ends connections, the client first: its side passes through TIME-WAIT.
    fn end(
        &mut self,
        count: usize,
        clients: &mut Vec<StreamEnd>,
        servers: &mut Vec<StreamEnd>,
    ) -> Result<()> {
        for start in (0..count).step_by(BATCH) {
            let size = BATCH.min(count - start);
            close(&mut self.client, self.now, clients.drain(clients.len() - size..))?;
            self.pass(PACE);
            close(&mut self.server, self.now, servers.drain(servers.len() - size..))?;
            self.pass(PACE);
        }
        self.pass(SILENCE);
        let [ours, theirs] = [&self.client, &self.server].map(|station| station.0.snapshot().time_wait);
        if (ours, theirs) != (count, 0) {
            return Err(format!("{ours} and {theirs} records of {count} in TIME-WAIT").into());
        }
        Ok(())
    }
}

/// The program closes its ends.
fn close(station: &mut Station, now: Instant, ends: impl Iterator<Item = StreamEnd>) -> Result<()> {
    for end in ends {
        let conn = end.shared().conn().ok_or("a connection has gone")?;
        station.command(now, SocketCommand::Close(conn));
    }
    Ok(())
}

/// Each end says something.
fn say(station: &mut Station, now: Instant, ends: &mut [StreamEnd]) -> Result<()> {
    for end in ends {
        end.send.write(b"message").map_err(|e| format!("a connection does not write: {e:?}"))?;
        if end.send.nudge().kick {
            station.kick(now, end.shared());
        }
    }
    Ok(())
}

/// Each end hears what was said.
fn hear(ends: &mut [StreamEnd]) -> Result<()> {
    for end in ends {
        let mut message = [0; 8];
        if end.recv.read(&mut message) != Ok(7) {
            return Err("a message is missing".into());
        }
    }
    Ok(())
}
