//! The calls of the table, with Rust's types: `abi.rs` translates.

use std::net::SocketAddr;
use std::time::Duration;

use firelane_units::Instant;

use crate::dgram::DatagramSocket;
use crate::errno::{Errno, Sys, fail};
use crate::fast_open::Beginning;
use crate::files::{File, Kind};
use crate::host;
use crate::plugin::{Attempt, Inner, Plugin};
use crate::readiness::{Epoll, Mask};
use crate::sockopt::{self, Stored, any_address};
use crate::stream::{Received, StreamSocket};

/// What a `struct sockaddr` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Address {
    /// AF_UNSPEC.
    None,
    Some(SocketAddr),
}

/// An entry of poll(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PollEntry {
    pub(crate) fd: i32,
    pub(crate) events: i16,
    pub(crate) revents: i16,
}

fn nonblocking(file: &File, flags: i32) -> bool {
    file.is_nonblocking || flags & libc::MSG_DONTWAIT != 0
}

/// An address of the socket's own family, without IPv4 in IPv6's clothes.
fn own_family(stored: &Stored, address: SocketAddr) -> Sys<SocketAddr> {
    if stored.is_v6 != address.is_ipv6() {
        return fail(libc::EAFNOSUPPORT);
    }
    let plain = SocketAddr::new(address.ip().to_canonical(), address.port());
    if plain.is_ipv4() && stored.is_v6 && stored.v6_only { fail(libc::ENETUNREACH) } else { Ok(plain) }
}

impl Plugin {
    pub(crate) fn socket(&self, domain: i32, kind: i32, protocol: i32) -> Sys<i32> {
        let is_v6 = match domain {
            libc::AF_INET => false,
            libc::AF_INET6 => true,
            _ => return fail(libc::EAFNOSUPPORT),
        };
        let is_nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        let mut inner = self.enter();
        let stored = Stored::new(&inner.world, is_v6);
        let kind = match (kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC), protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => Kind::Stream(Box::new(StreamSocket::new(stored))),
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
                Kind::Datagram(Box::new(DatagramSocket::new(stored)))
            }
            (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => return fail(libc::EPROTONOSUPPORT),
            _ => return fail(libc::ESOCKTNOSUPPORT),
        };
        inner.files.insert(kind, is_nonblocking)
    }

    pub(crate) fn bind(&self, fd: i32, address: Address) -> Sys<()> {
        let mut inner = self.enter();
        let Inner { world, files, .. } = &mut *inner;
        let kind = &mut files.get(fd)?.kind;
        let Address::Some(address) = address else { return fail(libc::EAFNOSUPPORT) };
        let local = own_family(kind.stored()?, address)?;
        let is_bound = match kind {
            Kind::Stream(socket) => socket.local().is_some() || socket.is_deferred(),
            Kind::Datagram(socket) => socket.local().is_some(),
            Kind::Epoll(_) => return fail(libc::ENOTSOCK),
        };
        if is_bound {
            return fail(libc::EINVAL);
        }
        if !local.ip().is_unspecified() && !world.adopt(local.ip()) {
            return fail(libc::EADDRNOTAVAIL);
        }
        let local = files.claim(fd, local)?;
        match &mut files.get(fd)?.kind {
            Kind::Stream(socket) => socket.bound = Some(local),
            Kind::Datagram(socket) => socket.bind(world, local)?,
            Kind::Epoll(_) => return fail(libc::ENOTSOCK),
        }
        Ok(())
    }

    pub(crate) fn listen(&self, fd: i32, backlog: i32) -> Sys<()> {
        let mut inner = self.enter();
        let Inner { world, files, .. } = &mut *inner;
        let socket = files.stream(fd)?;
        let asked = socket.bound.unwrap_or_else(|| any_address(&socket.stored));
        let local = if asked.port() == 0 { files.claim(fd, asked)? } else { asked };
        files.stream(fd)?.listen(world, local, backlog)
    }

    /// A new descriptor, and whose connection it is.
    pub(crate) fn accept(&self, fd: i32) -> Sys<(i32, SocketAddr)> {
        let mut limit = None;
        self.call(|Inner { world, files, .. }| {
            let file = files.get(fd)?;
            let is_nonblocking = file.is_nonblocking;
            let socket = files.stream(fd)?;
            if let Some((accepted, remote)) = socket.accept(world)? {
                let remote = if socket.stored.is_v6 { mapped(remote) } else { remote };
                let fd = files.insert(Kind::Stream(Box::new(accepted)), false)?;
                return Ok(Attempt::Done((fd, remote)));
            }
            let patience = socket.stored.recv_timeout;
            wait_or(is_nonblocking, world.now(), &mut limit, patience, libc::EAGAIN)
        })
    }

    pub(crate) fn connect(&self, fd: i32, address: Address) -> Sys<()> {
        let mut limit = None;
        let mut has_begun = false;
        self.call(|Inner { world, files, .. }| {
            let file = files.get(fd)?;
            let is_nonblocking = file.is_nonblocking;
            let Address::Some(remote) = address else {
                match &mut file.kind {
                    Kind::Stream(socket) => socket.disconnect(world),
                    Kind::Datagram(socket) => socket.disconnect(world)?,
                    Kind::Epoll(_) => return fail(libc::ENOTSOCK),
                }
                return Ok(Attempt::Done(()));
            };
            let remote = own_family(file.kind.stored()?, remote)?;
            let socket = match &mut file.kind {
                Kind::Stream(socket) => socket,
                Kind::Datagram(socket) => return socket.connect(world, remote).map(Attempt::Done),
                Kind::Epoll(_) => return fail(libc::ENOTSOCK),
            };
            let patience = socket.stored.send_timeout;
            match socket.connect(world, remote) {
                Ok(()) => Ok(Attempt::Done(())),
                Err(Errno(libc::EINPROGRESS)) => {
                    has_begun = true;
                    wait_or(is_nonblocking, world.now(), &mut limit, patience, libc::EINPROGRESS)
                }
                Err(Errno(libc::EALREADY)) if has_begun || !is_nonblocking => {
                    wait_or(false, world.now(), &mut limit, patience, libc::EINPROGRESS)
                }
                Err(error) => Err(error),
            }
        })
    }

    pub(crate) fn read(&self, fd: i32, len: usize, flags: i32) -> Sys<Received> {
        if !self.enter().files.is_ours(fd) {
            let mut bytes = vec![0; len];
            let count = host::read(fd, &mut bytes)?;
            bytes.truncate(count);
            return Ok(Received { bytes, len: count, ..Received::default() });
        }
        let mut limit = None;
        let mut so_far: Option<Received> = None;
        self.call(|Inner { world, files, .. }| {
            let file = files.get(fd)?;
            let is_nonblocking = nonblocking(file, flags);
            let patience = file.kind.stored().map_err(|_| Errno(libc::EINVAL))?.recv_timeout;
            let target = match flags & libc::MSG_WAITALL {
                0 => file.kind.stored()?.chosen.low_water().min(len),
                _ => len,
            };
            let wants = len - so_far.as_ref().map_or(0, |got| got.len);
            let got = match &mut file.kind {
                Kind::Stream(socket) => socket.read(world, wants, flags),
                Kind::Datagram(socket) => socket.read(wants, flags),
                Kind::Epoll(_) => return fail(libc::EINVAL),
            };
            let is_end = matches!(&got, Ok(Some(got)) if got.len == 0);
            match (got, so_far.take()) {
                (Ok(Some(got)), before) => {
                    let mut all = before.unwrap_or_default();
                    all.len += got.len;
                    all.bytes.extend(got.bytes);
                    (all.from, all.is_cut) = (got.from, got.is_cut);
                    let peeks = flags & (libc::MSG_PEEK | libc::MSG_OOB) != 0;
                    if peeks || is_nonblocking || is_end || all.len >= target || all.from.is_some() {
                        return Ok(Attempt::Done(all));
                    }
                    so_far = Some(all);
                    Ok(Attempt::Wait(limit))
                }
                // What was read before an error or the end of patience counts.
                (Err(_), Some(before)) => Ok(Attempt::Done(before)),
                (Err(error), None) => Err(error),
                (Ok(None), before) => {
                    let waited = wait_or(is_nonblocking, world.now(), &mut limit, patience, libc::EAGAIN);
                    match (waited, before) {
                        (Err(_), Some(before)) => Ok(Attempt::Done(before)),
                        (waited, before) => {
                            so_far = before;
                            waited
                        }
                    }
                }
            }
        })
    }

    pub(crate) fn write(&self, fd: i32, bytes: &[u8], flags: i32, to: Option<Address>) -> Sys<usize> {
        if !self.enter().files.is_ours(fd) {
            return host::write(fd, bytes);
        }
        let (mut limit, mut connect_limit) = (None, None);
        let (mut written, mut beginning) = (0, Beginning::default());
        self.call(|Inner { world, files, .. }| {
            let file = files.get(fd)?;
            let is_nonblocking = nonblocking(file, flags);
            let stored = file.kind.stored().map_err(|_| Errno(libc::EINVAL))?;
            let patience = stored.send_timeout;
            let to = match to {
                Some(Address::Some(to)) => Some(own_family(stored, to)?),
                Some(Address::None) if flags & libc::MSG_FASTOPEN != 0 => return fail(libc::EOPNOTSUPP),
                _ => None,
            };
            let now = world.now();
            let waits_for = |written: usize, limit: &mut Option<Instant>, number: i32| match wait_or(
                is_nonblocking,
                now,
                limit,
                patience,
                number,
            ) {
                Err(_) if written > 0 => Ok(Attempt::Done(written)),
                waited => waited,
            };
            let sent = match &mut file.kind {
                Kind::Stream(socket) => {
                    match beginning.go_on(socket, world, (flags, to), bytes) {
                        Err(error) if Beginning::is_under_way(error) => {
                            written = beginning.with_syn;
                            return waits_for(written, &mut connect_limit, error.0);
                        }
                        stands => stands?,
                    }
                    socket.write(world, &bytes[written..], flags)
                }
                Kind::Datagram(socket) => socket.write(world, bytes, to),
                Kind::Epoll(_) => return fail(libc::EINVAL),
            };
            match sent {
                Ok(Some(count)) => {
                    written += count;
                    if is_nonblocking || written >= bytes.len() {
                        return Ok(Attempt::Done(written));
                    }
                    Ok(Attempt::Wait(limit))
                }
                Err(_) if written > 0 => Ok(Attempt::Done(written)),
                Err(error) => Err(error),
                Ok(None) => waits_for(written, &mut limit, libc::EAGAIN),
            }
        })
    }

    pub(crate) fn shutdown(&self, fd: i32, how: i32) -> Sys<()> {
        let mut inner = self.enter();
        let Inner { world, files, .. } = &mut *inner;
        match &mut files.get(fd)?.kind {
            Kind::Stream(socket) => socket.shutdown(world, how),
            Kind::Datagram(socket) => socket.shutdown(),
            Kind::Epoll(_) => fail(libc::ENOTSOCK),
        }
    }

    pub(crate) fn close(&self, fd: i32) -> Sys<()> {
        let mut inner = self.enter();
        let Inner { world, files, .. } = &mut *inner;
        if files.is_ours(fd) { files.close(world, fd) } else { host::close(fd) }
    }

    pub(crate) fn get_option(&self, fd: i32, level: i32, name: i32) -> Sys<Vec<u8>> {
        let mut inner = self.enter();
        let Inner { world, files, .. } = &mut *inner;
        sockopt::get(world, &mut files.get(fd)?.kind, level, name)
    }

    pub(crate) fn set_option(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Sys<()> {
        let mut inner = self.enter();
        let Inner { world, files, .. } = &mut *inner;
        sockopt::set(world, &mut files.get(fd)?.kind, level, name, value)
    }

    pub(crate) fn fcntl(&self, fd: i32, command: i32, argument: i64) -> Sys<i32> {
        let mut inner = self.enter();
        if !inner.files.is_ours(fd) {
            drop(inner);
            let is_number = matches!(
                command,
                libc::F_GETFL | libc::F_SETFL | libc::F_GETFD | libc::F_SETFD | libc::F_DUPFD
            );
            return if is_number { host::fcntl(fd, command, argument) } else { fail(libc::EINVAL) };
        }
        let file = inner.files.get(fd)?;
        match command {
            libc::F_GETFL => Ok(libc::O_RDWR | if file.is_nonblocking { libc::O_NONBLOCK } else { 0 }),
            libc::F_SETFL => {
                file.is_nonblocking = argument & i64::from(libc::O_NONBLOCK) != 0;
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => host::fcntl(fd, command, argument),
            _ => fail(libc::EINVAL),
        }
    }

    pub(crate) fn ioctl(&self, fd: i32, request: u64) -> Sys<i32> {
        let mut inner = self.enter();
        let Inner { world, files, .. } = &mut *inner;
        sockopt::ioctl(world, &mut files.get(fd)?.kind, request)
    }

    /// poll(2), with a time-out in milliseconds; negative is none.
    pub(crate) fn poll(&self, entries: &mut [PollEntry], timeout: i32) -> Sys<usize> {
        let mut limit = None;
        self.call(|inner| {
            let mut ready = 0;
            for entry in entries.iter_mut() {
                entry.revents = inner.poll_one(entry.fd, entry.events);
                ready += usize::from(entry.revents != 0);
            }
            Ok(ready_or_wait(ready > 0, ready, inner.world.now(), &mut limit, timeout))
        })
    }

    pub(crate) fn epoll_create(&self, size: i32) -> Sys<i32> {
        if size <= 0 {
            return fail(libc::EINVAL);
        }
        self.enter().files.insert(Kind::Epoll(Epoll::default()), false)
    }

    pub(crate) fn epoll_control(&self, epoll: i32, op: i32, fd: i32, event: Option<(u32, u64)>) -> Sys<()> {
        let mut inner = self.enter();
        if !inner.files.is_ours(fd) {
            // A descriptor of the host's must exist; a file of the disk is refused as the kernel does.
            host::fcntl(fd, libc::F_GETFD, 0)?;
        }
        if fd == epoll {
            return fail(libc::EINVAL);
        }
        inner.files.epoll(epoll)?.control(op, fd, event)
    }

    pub(crate) fn epoll_wait(&self, epoll: i32, max: i32, timeout: i32) -> Sys<Vec<(u32, u64)>> {
        if max <= 0 {
            return fail(libc::EINVAL);
        }
        let mut limit = None;
        self.call(|inner| {
            let watched = inner.files.epoll(epoll)?.watched();
            let looks: Vec<_> = watched.into_iter().map(|fd| (fd, inner.look(fd))).collect();
            let events = inner.files.epoll(epoll)?.take(&looks, max as usize);
            Ok(ready_or_wait(!events.is_empty(), events, inner.world.now(), &mut limit, timeout))
        })
    }

    /// splice(2) between a pipe and a socket.
    pub(crate) fn splice(&self, from: i32, to: i32, len: usize) -> Sys<usize> {
        let (from_is_ours, to_is_ours) = {
            let inner = self.enter();
            (inner.files.is_ours(from), inner.files.is_ours(to))
        };
        if from_is_ours == to_is_ours {
            return fail(libc::EINVAL);
        }
        let received = self.read(from, len, 0)?;
        self.write(to, &received.bytes, 0, None)
    }

    pub(crate) fn inject(&self, packet: &[u8]) -> Sys<()> {
        let mut inner = self.enter();
        let result = inner.world.inject(packet);
        drop(self.let_look(inner));
        result
    }

    pub(crate) fn ask_time(&self) -> Instant {
        self.enter().world.ask_time()
    }
}

impl Inner {
    fn poll_one(&mut self, fd: i32, events: i16) -> i16 {
        if fd < 0 {
            return 0;
        }
        match self.files.get(fd) {
            Ok(file) => file.kind.look().mask.asked(events as u16 as u32) as i16,
            Err(_) => host::poll(fd, events),
        }
    }

    fn look(&mut self, fd: i32) -> crate::readiness::Look {
        match self.files.get(fd) {
            Ok(file) => file.kind.look(),
            Err(_) => {
                let bits = host::poll(fd, libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP);
                crate::readiness::Look { mask: Mask::of_poll(bits), edges: (0, 0) }
            }
        }
    }
}

/// A call that would wait: it fails if it must not, or when its patience is over.
fn wait_or<T>(
    is_nonblocking: bool,
    now: Instant,
    limit: &mut Option<Instant>,
    patience: Option<Duration>,
    error: i32,
) -> Sys<Attempt<T>> {
    if is_nonblocking {
        return fail(error);
    }
    if limit.is_none() {
        *limit = patience.map(|patience| now + patience);
    }
    if limit.is_some_and(|limit| limit <= now) { fail(error) } else { Ok(Attempt::Wait(*limit)) }
}

/// poll's and epoll's end: something is ready, or the time is over.
fn ready_or_wait<T>(
    is_ready: bool,
    value: T,
    now: Instant,
    limit: &mut Option<Instant>,
    timeout: i32,
) -> Attempt<T> {
    if limit.is_none() && timeout >= 0 {
        *limit = Some(now + Duration::from_millis(timeout as u64));
    }
    if is_ready || limit.is_some_and(|limit| limit <= now) {
        return Attempt::Done(value);
    }
    Attempt::Wait(*limit)
}

/// An IPv4 end as an IPv6 socket sees it.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
        v6 => v6,
    }
}
