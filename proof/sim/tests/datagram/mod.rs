//! A program's datagram socket in a simulation, of which the clients and servers of the DHCP tests are made, and how a world
//! of them goes on.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use firelane_frame::Envelope;
use firelane_ip::SourceFilter;
use firelane_lane::{Bind, DatagramKind, DatagramOption, Join, LaneMessage, Sharing, SocketCommand};
use firelane_sim::{Sim, StackId};
use firelane_socket::{DatagramEnd, datagram};
use firelane_units::{Instant, LaneId, SocketId};

/// A datagram socket on one link.
pub(crate) struct Socket {
    pub(crate) stack: StackId,
    pub(crate) end: DatagramEnd,
    socket: SocketId,
}

#[allow(dead_code, reason = "each of the tests that share this file uses its own part")]
impl Socket {
    fn bind(sim: &mut Sim, stack: StackId, local: SocketAddr) -> Self {
        let (end, slot) = datagram(1 << 16, 1 << 16, LaneId(0), stack.netstack);
        let socket = sim.next_socket(stack.host);
        let bind = Bind {
            socket,
            local,
            v6_only: true,
            sharing: Sharing::default(),
            remote: None,
            kind: DatagramKind::Udp,
            link: Some(stack.vnic),
            slot,
        };
        let bound = Self { stack, end, socket };
        bound.command(sim, SocketCommand::Bind(Box::new(bind)));
        bound
    }

    /// One that may speak to everybody.
    pub(crate) fn for_everybody(sim: &mut Sim, stack: StackId, port: u16) -> Self {
        let bound = Self::bind(sim, stack, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port));
        let broadcast = DatagramOption::Broadcast(true);
        bound.command(sim, SocketCommand::SetDatagramOption(bound.socket, broadcast));
        bound
    }

    /// One of IPv6.
    pub(crate) fn v6(sim: &mut Sim, stack: StackId, port: u16) -> Self {
        Self::bind(sim, stack, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port))
    }

    /// Hears what is said to a group.
    pub(crate) fn join(&self, sim: &mut Sim, group: Ipv6Addr) {
        let (socket, link, filter) = (self.socket, Some(self.stack.vnic), SourceFilter::any());
        let join = Join { socket, group: group.into(), link, filter };
        self.command(sim, SocketCommand::Join(Box::new(join)));
    }

    fn command(&self, sim: &mut Sim, command: SocketCommand) {
        sim.command(self.stack.host, LaneId(0), self.stack.netstack, command);
    }

    pub(crate) fn send(&mut self, sim: &mut Sim, to: impl Into<IpAddr>, port: u16, bytes: &[u8]) {
        let to = SocketAddr::new(to.into(), port);
        self.end.send.send_with(&Envelope::to(to), bytes).unwrap();
        if self.end.send.kick() {
            let kick = LaneMessage::KickDatagrams { netstack: self.stack.netstack, socket: self.socket };
            sim.send(self.stack.host, LaneId(0), kick);
        }
    }

    /// What has come, and from where.
    pub(crate) fn take(&mut self) -> Option<(Vec<u8>, SocketAddr)> {
        let mut bytes = vec![0; 2048];
        // What is sent before there is an address to send from, or to nobody, comes back as an error and is no matter.
        let datagram = self.end.recv.recv(&mut bytes).unwrap_or_default()?;
        bytes.truncate(datagram.copied);
        Some((bytes, datagram.envelope.peer))
    }
}

/// A simulation with programs that speak by datagrams.
pub(crate) trait World {
    /// The simulation, and the sockets that are waited for.
    fn parts(&mut self) -> (&mut Sim, Vec<&Socket>);

    /// Everybody does what is to be done now, and what must hold at any time is looked at; when there is more.
    fn turn(&mut self) -> Option<Instant>;

    /// Goes on until `done`, at most for `span`; whether it is done.
    fn run(&mut self, span: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let limit = self.parts().0.now() + span;
        loop {
            let next = self.turn().unwrap_or(limit).min(limit);
            if done(self) {
                return true;
            }
            let (sim, sockets) = self.parts();
            if sim.now() >= limit {
                return false;
            }
            sim.run_until(next.max(sim.now()), |sim| {
                sim.has_notices() || sockets.iter().any(|it| it.end.recv.is_readable())
            });
        }
    }
}
