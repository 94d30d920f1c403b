//! The calls of datagram sockets: `u = bind(7)`, `send(u, 10, to 40000)`, `recv(u, 10)`.
//!
//! Called by `sockets.rs`, which keeps the socket by its name. A datagram's text is always a pattern from its beginning.

use std::net::{IpAddr, SocketAddr};

use firelane_frame::Envelope;
use firelane_lane::{Bind, DatagramKind, LaneMessage, Sharing, SocketCommand};
use firelane_sim::{Sim, StackId};
use firelane_socket::{DatagramEnd, SendDatagramError, datagram};
use firelane_units::{LaneId, SocketId};

use crate::segment::{OUR_TEXT, PEER_TEXT};
use crate::settings::{Settings, number};
use crate::sockets::word_of;

/// A datagram socket of a script.
pub(crate) struct DatagramSocket {
    end: DatagramEnd,
    socket: SocketId,
    peer: Option<SocketAddr>,
}

impl DatagramSocket {
    /// `bind(port[, to peer])`: all in the first lane, where a script's datagrams arrive.
    pub(crate) fn bind(
        sim: &mut Sim,
        settings: &Settings,
        (stack, peer): (StackId, IpAddr),
        words: &[&str],
    ) -> Result<Self, String> {
        let (port, remote) = match words {
            [port] => (number(port)?, None),
            [port, to] => {
                let to = to.strip_prefix("to ").ok_or(format!("`{to}` is no part of a bind"))?;
                (number(port)?, Some(SocketAddr::new(peer, number(to)?)))
            }
            _ => return Err("bind takes a port".into()),
        };
        let rings = settings.rings;
        let (end, slot) = datagram(rings.send_capacity, rings.recv_capacity, LaneId(0), stack.netstack);
        let socket = sim.next_socket(stack.host);
        let local = stack.at(peer.is_ipv6(), port);
        let bind = Bind {
            socket,
            local,
            v6_only: true,
            sharing: Sharing::default(),
            remote,
            kind: DatagramKind::Udp,
            link: None,
            slot,
        };
        sim.command(stack.host, LaneId(0), stack.netstack, SocketCommand::Bind(Box::new(bind)));
        Ok(Self { end, socket, peer: remote })
    }

    /// `send(u, n[, to port][, by bytes])`: one datagram, or as many of so many bytes as it takes (UDP_SEGMENT).
    pub(crate) fn send(
        &mut self,
        sim: &mut Sim,
        (stack, peer): (StackId, IpAddr),
        words: &[&str],
    ) -> Result<String, String> {
        let (len, words) = words.split_first().ok_or("send takes a length")?;
        let (len, mut to, mut segment) = (number::<usize>(len)?, self.peer, 0);
        for word in words {
            match word.split_once(' ') {
                Some(("to", port)) => to = Some(SocketAddr::new(peer, number(port)?)),
                Some(("by", bytes)) => segment = number(bytes)?,
                _ => return Err(format!("`{word}` is no part of a send")),
            }
        }
        let to = to.ok_or("the socket has no peer: to whom?")?;
        let mut bytes = vec![0; len];
        let one = if segment == 0 { len.max(1) } else { usize::from(segment) };
        bytes.chunks_mut(one).for_each(|datagram| OUR_TEXT.fill(0, datagram));
        let result = self.end.send.send_with(&Envelope { segment, ..Envelope::to(to) }, &bytes);
        if result.is_ok() && self.end.send.kick() {
            let kick = LaneMessage::KickDatagrams { netstack: stack.netstack, socket: self.socket };
            sim.send(stack.host, LaneId(0), kick);
        }
        Ok(match result {
            Ok(()) => "ok".into(),
            Err(SendDatagramError::WouldBlock) => "again".into(),
            Err(SendDatagramError::TooLong) => "toolong".into(),
            Err(SendDatagramError::TooMany) => "toomany".into(),
            Err(SendDatagramError::Failed(error)) => word_of(error).into(),
        })
    }

    /// `recv(u, n)`: how much of the next datagram fits into `n` bytes.
    pub(crate) fn recv(&mut self, room: usize) -> String {
        let mut bytes = vec![0; room];
        match self.end.recv.recv(&mut bytes) {
            Ok(None) => "again".into(),
            Err(error) => word_of(error).into(),
            Ok(Some(datagram)) => match PEER_TEXT.first_wrong(0, &bytes[..datagram.copied]) {
                None => datagram.copied.to_string(),
                Some(wrong) => format!("a wrong byte at {wrong}"),
            },
        }
    }

    pub(crate) fn close(self, sim: &mut Sim, stack: StackId) {
        let close = SocketCommand::CloseDatagrams(self.socket);
        sim.command(stack.host, LaneId(0), stack.netstack, close);
    }
}
