//! UDP sockets: what each call does, with Linux' error numbers.
//!
//! A datagram socket of the lane has its ends from birth, so a connect after a bind closes it and opens it again at the
//! same port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use firelane_lane::{Bind, DatagramKind, Sharing, SocketCommand};
use firelane_socket::{DatagramEnd, SendDatagramError, datagram};
use firelane_units::SocketId;

use crate::errno::{Errno, Sys, fail};
use crate::readiness::Mask;
use crate::sockopt::Stored;
use crate::stream::Received;
use crate::world::{LANE, NETSTACK, World};

/// A UDP socket.
pub(crate) struct DatagramSocket {
    pub(crate) stored: Stored,
    /// What bind(2) asked for.
    asked: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    open: Option<Open>,
    received: u64,
}

struct Open {
    end: DatagramEnd,
    id: SocketId,
}

impl DatagramSocket {
    pub(crate) fn new(stored: Stored) -> Self {
        Self { stored, asked: None, peer: None, open: None, received: 0 }
    }

    /// The local end, as far as it is known.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.open.as_ref().and_then(|open| open.end.recv.shared().local()).or(self.asked)
    }

    pub(crate) fn bind(&mut self, world: &mut World, local: SocketAddr) -> Sys<()> {
        self.asked = Some(local);
        self.open(world)
    }

    /// Opens the lane's socket with the ends that are known.
    fn open(&mut self, world: &mut World) -> Sys<()> {
        let local = self.local().unwrap_or_else(|| self.any());
        self.close(world);
        if let Some(peer) = self.peer {
            world.adopt_default(peer.ip());
        }
        let (end, slot) = datagram(self.stored.send_ring, self.stored.recv_ring, LANE, NETSTACK);
        let id = world.next_socket();
        let bind = Bind {
            socket: id,
            local,
            v6_only: self.stored.v6_only,
            sharing: Sharing::default(),
            remote: self.peer,
            kind: DatagramKind::Udp,
            link: None,
            slot,
        };
        world.command(SocketCommand::Bind(Box::new(bind)));
        if let Some(error) = end.recv.shared().words().take_error() {
            return Err(error.into());
        }
        self.open = Some(Open { end, id });
        self.tell_header(world);
        Ok(())
    }

    /// What its packets' headers are like from here on.
    pub(crate) fn tell_header(&self, world: &mut World) {
        for option in self.stored.chosen.datagram_header() {
            if let Some(open) = &self.open {
                world.command(SocketCommand::SetDatagramOption(open.id, option));
            }
        }
    }

    fn any(&self) -> SocketAddr {
        let ip: IpAddr =
            if self.stored.is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        SocketAddr::new(ip, 0)
    }

    pub(crate) fn connect(&mut self, world: &mut World, remote: SocketAddr) -> Sys<()> {
        let before = self.peer.replace(remote);
        self.open(world).inspect_err(|_| self.peer = before)
    }

    pub(crate) fn disconnect(&mut self, world: &mut World) -> Sys<()> {
        self.peer = None;
        if self.open.is_some() { self.open(world) } else { Ok(()) }
    }

    pub(crate) fn shutdown(&self) -> Sys<()> {
        if self.peer.is_some() { Ok(()) } else { fail(libc::ENOTCONN) }
    }

    pub(crate) fn read(&mut self, len: usize, flags: i32) -> Sys<Option<Received>> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            return fail(libc::EAGAIN);
        }
        let Some(open) = &mut self.open else { return Ok(None) };
        let mut bytes = vec![0; len];
        let peeks = flags & libc::MSG_PEEK != 0;
        let got = match peeks {
            true => open.end.recv.peek(&mut bytes),
            false => open.end.recv.recv(&mut bytes).map_err(Errno::from)?,
        };
        let Some(got) = got else { return Ok(None) };
        self.received += u64::from(!peeks);
        bytes.truncate(got.copied);
        let len = if flags & libc::MSG_TRUNC != 0 { got.len } else { got.copied };
        Ok(Some(Received { bytes, len, from: Some(got.envelope.peer), is_cut: got.copied < got.len }))
    }

    pub(crate) fn write(
        &mut self,
        world: &mut World,
        bytes: &[u8],
        to: Option<SocketAddr>,
    ) -> Sys<Option<usize>> {
        let Some(to) = to.or(self.peer) else { return fail(libc::EDESTADDRREQ) };
        if to.port() == 0 {
            return fail(libc::EINVAL);
        }
        world.adopt_default(to.ip());
        if self.open.is_none() {
            self.open(world)?;
        }
        let Some(open) = &mut self.open else { return fail(libc::EINVAL) };
        match open.end.send.send(to, bytes) {
            Ok(()) => {}
            Err(SendDatagramError::WouldBlock) => return Ok(None),
            Err(SendDatagramError::TooLong) => return fail(libc::EMSGSIZE),
            Err(SendDatagramError::TooMany) => return fail(libc::EINVAL),
            Err(SendDatagramError::Failed(error)) => return Err(error.into()),
        }
        if open.end.send.kick() {
            world.kick_datagrams(open.id);
        }
        Ok(Some(bytes.len()))
    }

    pub(crate) fn close(&mut self, world: &mut World) {
        if let Some(open) = self.open.take() {
            world.command(SocketCommand::CloseDatagrams(open.id));
        }
    }

    pub(crate) fn take_error(&mut self) -> Option<Errno> {
        let open = self.open.as_ref()?;
        open.end.recv.shared().words().take_error().map(Errno::from)
    }

    /// What poll(2) reports (`udp_poll`).
    pub(crate) fn mask(&self) -> Mask {
        let Some(open) = &self.open else { return Mask::OUT };
        let mut mask = Mask::OUT;
        if open.end.recv.is_readable() {
            mask |= Mask::IN;
        }
        if open.end.recv.shared().words().error().is_some() {
            mask |= Mask::ERR;
        }
        mask
    }

    /// A count that rises when datagrams are taken.
    pub(crate) fn edges(&self) -> (u64, u64) {
        (self.received, 0)
    }

    /// The length of the first datagram (FIONREAD).
    pub(crate) fn first_len(&mut self) -> usize {
        let open = self.open.as_mut();
        open.and_then(|open| open.end.recv.peek(&mut [])).map_or(0, |datagram| datagram.len)
    }
}
