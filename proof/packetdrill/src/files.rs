//! The table of descriptors: what each number means to a script.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use firelane_lane::StreamOption;

use crate::dgram::DatagramSocket;
use crate::errno::{Errno, Sys, fail};
use crate::host::HostFd;
use crate::readiness::{Epoll, Look};
use crate::sockopt::{Stored, may_share};
use crate::stream::{StreamSocket, overlap};
use crate::world::World;

/// The first port that a bind to port zero gets: the ones below are Linux' for connects.
const FIRST_BOUND_PORT: u16 = 61_000;

/// What a descriptor is.
pub(crate) enum Kind {
    Stream(Box<StreamSocket>),
    Datagram(Box<DatagramSocket>),
    Epoll(Epoll),
}

impl Kind {
    pub(crate) fn stored(&mut self) -> Sys<&mut Stored> {
        match self {
            Self::Stream(socket) => Ok(&mut socket.stored),
            Self::Datagram(socket) => Ok(&mut socket.stored),
            Self::Epoll(_) => fail(libc::ENOTSOCK),
        }
    }

    /// Gives a connection an option.
    pub(crate) fn tell(&self, world: &mut World, option: StreamOption) {
        if let Self::Stream(socket) = self {
            socket.set_option(world, option);
        }
    }

    /// Its packets' headers have changed.
    pub(crate) fn tell_header(&self, world: &mut World) {
        match self {
            Self::Stream(socket) => socket.tell_header(world),
            Self::Datagram(socket) => socket.tell_header(world),
            Self::Epoll(_) => {}
        }
    }

    pub(crate) fn take_error(&mut self) -> Sys<Option<Errno>> {
        match self {
            Self::Stream(socket) => Ok(socket.take_error()),
            Self::Datagram(socket) => Ok(socket.take_error()),
            Self::Epoll(_) => fail(libc::ENOTSOCK),
        }
    }

    fn local(&self) -> Option<SocketAddr> {
        match self {
            Self::Stream(socket) => socket.bound,
            Self::Datagram(socket) => socket.local(),
            Self::Epoll(_) => None,
        }
    }

    pub(crate) fn look(&mut self) -> Look {
        match self {
            Self::Stream(socket) => {
                let edges = socket.edges();
                Look { mask: socket.mask(), edges }
            }
            Self::Datagram(socket) => Look { mask: socket.mask(), edges: socket.edges() },
            Self::Epoll(_) => Look::default(),
        }
    }

    fn close(&mut self, world: &mut World) {
        match self {
            Self::Stream(socket) => socket.close(world),
            Self::Datagram(socket) => socket.close(world),
            Self::Epoll(_) => {}
        }
    }
}

/// An open file.
pub(crate) struct File {
    pub(crate) kind: Kind,
    pub(crate) is_nonblocking: bool,
    host: HostFd,
}

/// All of them.
pub(crate) struct Files {
    open: BTreeMap<i32, File>,
    next_port: u16,
}

impl Files {
    pub(crate) fn new() -> Self {
        Self { open: BTreeMap::new(), next_port: FIRST_BOUND_PORT }
    }

    pub(crate) fn insert(&mut self, kind: Kind, is_nonblocking: bool) -> Sys<i32> {
        let host = HostFd::open()?;
        let fd = host.fd;
        // A number that came back was closed behind our back: what it meant is gone.
        self.open.insert(fd, File { kind, is_nonblocking, host });
        Ok(fd)
    }

    pub(crate) fn is_ours(&self, fd: i32) -> bool {
        self.open.contains_key(&fd)
    }

    pub(crate) fn get(&mut self, fd: i32) -> Sys<&mut File> {
        self.open.get_mut(&fd).ok_or(Errno(libc::EBADF))
    }

    pub(crate) fn stream(&mut self, fd: i32) -> Sys<&mut StreamSocket> {
        match &mut self.get(fd)?.kind {
            Kind::Stream(socket) => Ok(socket),
            Kind::Datagram(_) => fail(libc::EOPNOTSUPP),
            Kind::Epoll(_) => fail(libc::ENOTSOCK),
        }
    }

    pub(crate) fn epoll(&mut self, fd: i32) -> Sys<&mut Epoll> {
        match &mut self.get(fd)?.kind {
            Kind::Epoll(epoll) => Ok(epoll),
            _ => fail(libc::EINVAL),
        }
    }

    pub(crate) fn close(&mut self, world: &mut World, fd: i32) -> Sys<()> {
        let mut file = self.open.remove(&fd).ok_or(Errno(libc::EBADF))?;
        file.kind.close(world);
        file.host.close();
        for other in self.open.values_mut() {
            if let Kind::Epoll(epoll) = &mut other.kind {
                epoll.forget(fd);
            }
        }
        Ok(())
    }

    /// The end of the script.
    pub(crate) fn close_all(&mut self, world: &mut World) {
        while let Some((_, mut file)) = self.open.pop_first() {
            file.kind.close(world);
            file.host.close();
        }
    }

    /// Gives `fd` the local end that it asks for, if nobody else has it; port zero asks for any.
    pub(crate) fn claim(&mut self, fd: i32, local: SocketAddr) -> Sys<SocketAddr> {
        if local.port() != 0 {
            return if self.is_free(fd, local)? { Ok(local) } else { fail(libc::EADDRINUSE) };
        }
        for _ in FIRST_BOUND_PORT..=u16::MAX {
            let candidate = SocketAddr::new(local.ip(), self.next_port);
            self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_BOUND_PORT);
            if self.is_free(fd, candidate)? {
                return Ok(candidate);
            }
        }
        fail(libc::EADDRINUSE)
    }

    fn is_free(&mut self, fd: i32, local: SocketAddr) -> Sys<bool> {
        let mine = self.get(fd)?;
        let is_stream = matches!(mine.kind, Kind::Stream(_));
        let stored = mine.kind.stored()?.clone();
        for (&number, file) in &mut self.open {
            let same_protocol = is_stream == matches!(file.kind, Kind::Stream(_));
            let meets = file.kind.local().is_some_and(|other| overlap(local, other));
            if number == fd || !same_protocol || !meets {
                continue;
            }
            let listens = matches!(&file.kind, Kind::Stream(socket) if socket.is_listening());
            if !may_share((&stored, false), (file.kind.stored()?, listens)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
