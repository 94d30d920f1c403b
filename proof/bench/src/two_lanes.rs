//! Two hosts of one lane each in this process, on a wire of memory, driven by hand in time of their own, with both ends of every
//! connection.
//!
//! Used by `conn_memory.rs` and `growth.rs`.

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

/// Ports that the server listens on: each takes as many connections as the client has ports, and is not filled.
const PORTS: u16 = 40;
/// Connections that are made at a time, and may wait to be accepted.
const BATCH: usize = 100;
/// Virtual time per batch: the pace of a busy server.
const PACE: Duration = Duration::from_millis(1);
/// A connection gives memory back one second after its last traffic.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);
pub(crate) const RINGS: StreamConfig = StreamConfig { send_capacity: 1 << 16, recv_capacity: 1 << 16 };
pub(crate) const NETSTACK: NetstackId = NetstackId(0);

/// A lane with a netstack on one end of the wire.
pub(crate) struct Station(Lane<End>);

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

    pub(crate) fn memory(&self) -> TableMemory {
        self.0.snapshot().memory
    }
}

/// Two stations on a wire.
pub(crate) struct World {
    pub(crate) client: Station,
    pub(crate) server: Station,
    listeners: Vec<ListenerEnd>,
    now: Instant,
    /// What both lanes took of real time.
    pub(crate) busy: Duration,
}

/// Whose ends.
#[derive(Clone, Copy, Debug)]
enum Side {
    Client,
    Server,
}

impl World {
    pub(crate) fn new() -> Self {
        let (one, two) = wire(WireConfig::default());
        let (client, server) = (Station::new(one, 1), Station::new(two, 2));
        let mut world =
            Self { client, server, listeners: Vec::new(), now: Instant::ZERO, busy: Duration::ZERO };
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
    pub(crate) fn pass(&mut self, span: Duration) {
        let begin = std::time::Instant::now();
        let end = self.now + span;
        while let Some(at) = self.run().filter(|&at| at <= end) {
            self.now = at;
        }
        self.now = end;
        self.run();
        self.busy += begin.elapsed();
    }

    /// Segments that both have made since the beginning: each is a frame.
    pub(crate) fn segments(&self) -> u64 {
        [&self.client, &self.server].map(|station| station.0.snapshot().counters.originated).iter().sum()
    }

    /// Makes connections, and lets each carry a message in both directions.
    pub(crate) fn connect(
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
            self.exchange(
                PACE,
                &mut ours.iter_mut().collect::<Vec<_>>(),
                &mut theirs.iter_mut().collect::<Vec<_>>(),
            )?;
            clients.append(&mut ours);
            servers.append(&mut theirs);
        }
        Ok(())
    }

    /// Each client sends its server a message and, when that has come, gets one.
    pub(crate) fn exchange(
        &mut self,
        pace: Duration,
        clients: &mut [&mut StreamEnd],
        servers: &mut [&mut StreamEnd],
    ) -> Result<()> {
        self.say(Side::Client, clients)?;
        self.pass(pace);
        hear(servers)?;
        self.say(Side::Server, servers)?;
        self.pass(pace);
        hear(clients)
    }

    /// Each end says something.
    fn say(&mut self, side: Side, ends: &mut [&mut StreamEnd]) -> Result<()> {
        for end in &mut *ends {
            end.send.write(b"message").map_err(|e| format!("a connection does not write: {e:?}"))?;
        }
        let begin = std::time::Instant::now();
        let station = match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        };
        for end in ends {
            if end.send.nudge().kick {
                station.kick(self.now, end.shared());
            }
        }
        self.busy += begin.elapsed();
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
    pub(crate) fn end(
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

/// Each end hears what was said.
fn hear(ends: &mut [&mut StreamEnd]) -> Result<()> {
    for end in ends {
        let mut message = [0; 8];
        if end.recv.read(&mut message) != Ok(7) {
            return Err("a message is missing".into());
        }
    }
    Ok(())
}

/// The program closes its ends.
fn close(station: &mut Station, now: Instant, ends: impl Iterator<Item = StreamEnd>) -> Result<()> {
    for end in ends {
        let conn = end.shared().conn().ok_or("a connection has gone")?;
        station.command(now, SocketCommand::Close(conn));
    }
    Ok(())
}
