//! What an application does in a world, without waiting, and what it then waits for.

use std::time::Duration;

use firelane_lane::*;
use firelane_socket::{
    ConnRef, DatagramEnd, ListenerEnd, ListenerSlot, Nudge, ReadError, StreamConfig, StreamEnd, StreamSlot,
    WriteError, datagram, listener, stream,
};
use firelane_units::{LaneId, NetstackId, Port, SocketId};

use crate::{World, secrets};

impl World {
    /// Listens in all lanes of a netstack.
    pub fn listen(&mut self, netstack: u16, socket: u32, local: &str, backlog: usize) -> ListenerEnd {
        let (end, slot) = listener(backlog);
        self.listen_with(netstack, socket, local, slot);
        end
    }

    /// The same with a queue that there is.
    pub fn listen_with(&mut self, netstack: u16, socket: u32, local: &str, slot: ListenerSlot) {
        let listen = Listen {
            socket: SocketId(socket),
            local: local.parse().expect("an address and a port"),
            v6_only: false,
            shares: false,
            slot,
            rings: RINGS,
            options: StreamOptions::default(),
        };
        for lane in &mut self.lanes {
            let command = SocketCommand::Listen(Box::new(listen.clone()));
            lane.on_message(self.now, LaneMessage::Socket(NetstackId(netstack), command));
        }
    }

    /// Begins a connection in a lane.
    pub fn connect(&mut self, netstack: u16, lane: u16, remote: &str) -> StreamEnd {
        let (end, slot) = stream(RINGS, LaneId(lane), NetstackId(netstack));
        self.connect_with(netstack, lane, remote, slot);
        end
    }

    /// The same with rings that there are.
    pub fn connect_with(&mut self, netstack: u16, lane: u16, remote: &str, slot: StreamSlot) {
        let remote = remote.parse().expect("an address and a port");
        let options = StreamOptions::default();
        let connect = Connect { remote, local: None, stream: slot, options };
        let command = SocketCommand::Connect(Box::new(connect));
        let message = LaneMessage::Socket(NetstackId(netstack), command);
        self.lanes[usize::from(lane)].on_message(self.now, message);
    }

    /// Asks the lane of a connection for something.
    pub fn command(&mut self, end: &StreamEnd, command: impl FnOnce(ConnRef) -> SocketCommand) {
        let shared = end.shared();
        let conn = shared.conn().expect("the connection is made");
        let message = LaneMessage::Socket(shared.netstack(), command(conn));
        self.lanes[shared.lane().index()].on_message(self.now, message);
    }

    fn kick(&mut self, end: &StreamEnd) {
        let shared = end.shared();
        let (netstack, conn) = (shared.netstack(), shared.conn().expect("the connection is made"));
        self.lanes[shared.lane().index()].on_message(self.now, LaneMessage::Kick { netstack, conn });
    }

    /// Writes what has room.
    pub fn write(&mut self, end: &mut StreamEnd, bytes: &[u8]) -> Result<usize, WriteError> {
        let count = end.send.write(bytes);
        let nudge = if count.is_ok() { end.send.nudge() } else { Nudge::default() };
        self.pass_nudge(end, nudge);
        if count == Err(WriteError::WouldBlock) && end.send.is_cramped() {
            self.kick(end);
        }
        count
    }

    /// Reads what there is.
    pub fn read(&mut self, end: &mut StreamEnd, to: &mut [u8]) -> Result<usize, ReadError> {
        let count = end.recv.read(to)?;
        let nudge = end.recv.nudge();
        self.pass_nudge(end, nudge);
        Ok(count)
    }

    /// Does what a ring asks of its user after a read or a write.
    pub fn pass_nudge(&mut self, end: &StreamEnd, nudge: Nudge) {
        if nudge.kick {
            self.kick(end);
        }
        self.mail.ready.extend(nudge.wake);
    }

    /// Reads what still comes to an end until its peer's FIN, and shows it piece by piece; time passes meanwhile.
    pub fn read_to_end(&mut self, end: &mut StreamEnd, mut show: impl FnMut(&[u8])) {
        let mut bytes = vec![0; 1 << 20];
        for _ in 0..1000 {
            match self.read(end, &mut bytes) {
                Ok(0) => return,
                Ok(count) => show(&bytes[..count]),
                Err(error) => assert_eq!(error, ReadError::WouldBlock),
            }
            self.run_for(Duration::from_millis(10));
        }
        panic!("the end never comes");
    }

    /// Sends `bytes` from one end and reads them at the other; time passes when nothing else does.
    pub fn transfer(&mut self, from: &mut StreamEnd, to: &mut StreamEnd, bytes: &[u8]) {
        let (mut sent, mut got) = (0, Vec::with_capacity(bytes.len()));
        let mut buffer = vec![0; 256 * 1024];
        let mut idle = 0;
        while got.len() < bytes.len() {
            let mut moved = false;
            if sent < bytes.len()
                && let Ok(count) = self.write(from, &bytes[sent..])
            {
                sent += count;
                moved = true;
            }
            let until = self.run();
            while let Ok(count @ 1..) = self.read(to, &mut buffer) {
                got.extend_from_slice(&buffer[..count]);
                moved = true;
            }
            idle = if moved { 0 } else { idle + 1 };
            assert!(idle < 1000, "stuck at {} of {} bytes", got.len(), bytes.len());
            if !moved {
                self.now = until.expect("data are missing, so something is due");
            }
        }
        assert!(got == bytes, "the bytes arrive as they were sent");
    }
}

/// Of each connection.
pub const RINGS: StreamConfig = StreamConfig { send_capacity: 256 * 1024, recv_capacity: 256 * 1024 };

impl World {
    /// A datagram socket in the lane that its port steers to; port zero is `lane`'s choice.
    pub fn bind(&mut self, netstack: u16, socket: u32, lane: u16, local: &str) -> DatagramEnd {
        let local: std::net::SocketAddr = local.parse().expect("an address and a port");
        let steering = firelane_classify::Steering::even(&self.lane_ids());
        let lane = match local.port() {
            0 => LaneId(lane),
            port => datagram_lane(Port(port), &steering, &secrets().steering()),
        };
        let (end, slot) = datagram(1 << 16, 1 << 16, lane, NetstackId(netstack));
        let bind = Bind {
            socket: SocketId(socket),
            local,
            v6_only: false,
            sharing: Sharing::default(),
            remote: None,
            kind: DatagramKind::Udp,
            link: None,
            slot,
        };
        let message = LaneMessage::Socket(NetstackId(netstack), SocketCommand::Bind(Box::new(bind)));
        self.lanes[lane.index()].on_message(self.now, message);
        end
    }

    /// Sends a datagram.
    pub fn send_to(&mut self, end: &mut DatagramEnd, socket: u32, peer: std::net::SocketAddr, bytes: &[u8]) {
        assert!(self.offer_to(end, socket, peer, bytes), "the queue has room");
    }

    /// The same if the socket's queue has room; whether it had.
    pub fn offer_to(
        &mut self,
        end: &mut DatagramEnd,
        socket: u32,
        peer: std::net::SocketAddr,
        bytes: &[u8],
    ) -> bool {
        let has_room = end.send.send(peer, bytes).is_ok();
        if has_room && end.send.kick() {
            let shared = end.send.shared();
            let (netstack, socket) = (shared.netstack(), SocketId(socket));
            let message = LaneMessage::KickDatagrams { netstack, socket };
            self.lanes[shared.lane().index()].on_message(self.now, message);
        }
        has_room
    }
}
