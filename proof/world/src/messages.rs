//! Sockets of one lane that pass messages: the largest datagrams, and what goes beside their text.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use firelane_frame::Envelope;
use firelane_lane::{ConnectDatagrams, DatagramOption, LaneMessage, Sharing, SocketCommand, UdpCounters};
use firelane_socket::{DatagramEnd, SocketError, datagram};
use firelane_units::{LaneId, LinkId, NetstackId, SocketId};

use crate::World;

impl World {
    /// A socket with room for the largest datagrams.
    pub fn bind_large(&mut self, netstack: u16, socket: u32, local: &str) -> DatagramEnd {
        let local: SocketAddr = local.parse().expect("an address and a port");
        let lane = LaneId(0);
        let (end, slot) = datagram(1 << 20, 1 << 20, lane, NetstackId(netstack));
        let socket = SocketId(socket);
        let bind = firelane_lane::Bind {
            socket,
            local,
            v6_only: false,
            sharing: Sharing::default(),
            remote: None,
            kind: firelane_lane::DatagramKind::Udp,
            link: None,
            slot,
        };
        self.socket(netstack, SocketCommand::Bind(Box::new(bind)));
        end
    }

    fn socket(&mut self, netstack: u16, command: SocketCommand) {
        self.lanes[0].on_message(self.now, LaneMessage::Socket(NetstackId(netstack), command));
    }

    /// Sets an option of a socket.
    pub fn set(&mut self, netstack: u16, socket: u32, option: DatagramOption) {
        self.socket(netstack, SocketCommand::SetDatagramOption(SocketId(socket), option));
    }

    /// Connects a socket, or disconnects it.
    pub fn connect_datagrams(
        &mut self,
        netstack: u16,
        socket: u32,
        remote: Option<&str>,
    ) -> Result<SocketAddr, SocketError> {
        self.connect_datagrams_over(netstack, socket, remote, None)
    }

    /// The same over this link alone from then on.
    pub fn connect_datagrams_over(
        &mut self,
        netstack: u16,
        socket: u32,
        remote: Option<&str>,
        link: Option<LinkId>,
    ) -> Result<SocketAddr, SocketError> {
        let outcome = Arc::new(OnceLock::new());
        let remote = remote.map(|remote| remote.parse().expect("an address and a port"));
        let socket = SocketId(socket);
        let connect = ConnectDatagrams { socket, remote, link, outcome: Arc::clone(&outcome) };
        self.socket(netstack, SocketCommand::ConnectDatagrams(Box::new(connect)));
        *outcome.get().expect("it is carried out at once")
    }

    /// What a netstack's sockets have counted.
    pub fn udp(&self, netstack: u16) -> UdpCounters {
        self.lanes[0].netstack_counters(NetstackId(netstack)).expect("it has this netstack").udp
    }

    /// Sends a datagram with what goes beside it.
    pub fn send_msg(&mut self, end: &mut DatagramEnd, socket: u32, envelope: Envelope, bytes: &[u8]) {
        end.send.send_with(&envelope, bytes).expect("the queue has room");
        if end.send.kick() {
            let (netstack, socket) = (end.send.shared().netstack(), SocketId(socket));
            self.lanes[0].on_message(self.now, LaneMessage::KickDatagrams { netstack, socket });
        }
    }
}
