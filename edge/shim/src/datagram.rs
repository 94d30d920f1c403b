//! A datagram socket: records in and out of its block, and waiting for them.
//!
//! It is *fresh* until it has an address, like a TCP socket without a connection; then its words are a block's, and
//! polling, waiting and the times of calls are a stream's (`stream.rs`). What goes beside a payload is read and written as
//! control data by `hooks/control.rs`.

use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use core::sync::atomic::Ordering;

use firelane_frame::{Envelope, SEGMENTS_MAX};
use firelane_shm::layout::file;
use firelane_units::LinkId;
use rustix::io::Errno;

use crate::address::{Given, Shown};
use crate::buffers::{Sink, Source};
use crate::interfaces::LOOPBACK;
use crate::socket::{self, Beside, Held, Kind, Received, broken_pipe};
use crate::stream::{Stop, Stream, Waiting};
use crate::{corking, echoes, elsewhere, names, options, session};

/// What a call says of one datagram beside where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Extra {
    /// From which of this host's addresses.
    pub(crate) local: Option<IpAddr>,
    /// By which interface, counted from one.
    pub(crate) interface: u32,
    pub(crate) tos: Option<u8>,
    pub(crate) hops: Option<u8>,
    pub(crate) dont_fragment: Option<bool>,
    /// How long each datagram is that the payload is cut into.
    pub(crate) segment: Option<u16>,
}

/// The socket with a block, which it has from here on: one without an address gets any.
fn bound(socket: &Held) -> Result<(Held, Stream), Errno> {
    let socket = match socket.kind() {
        Kind::Fresh => {
            let any: IpAddr =
                if socket.is_v6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
            match bind(socket, SocketAddr::new(any, 0)) {
                Ok(bound) => bound,
                // Somebody else who has the socket was faster.
                Err(Errno::INVAL) => settled(socket, session::attach(socket.fd)?.place.ok_or(Errno::INVAL)?)?,
                Err(errno) => return Err(errno),
            }
        }
        _ => *socket,
    };
    let stream = socket.stream().ok_or(Errno::PROTO)?;
    Ok((socket, stream))
}

/// The socket has its words there.
fn settled(socket: &Held, (arena, block): (u16, u32)) -> Result<Held, Errno> {
    let is_nonblocking = socket.is_nonblocking()?;
    let held = socket.becomes_stream(arena, block);
    let stream = held.stream().ok_or(Errno::PROTO)?;
    stream.set_nonblocking(is_nonblocking);
    options::hand_times(&held, &stream)?;
    Ok(held)
}

/// Gives it an address.
pub(crate) fn bind(socket: &Held, address: SocketAddr) -> Result<Held, Errno> {
    settled(socket, session::bind_datagrams(socket, address)?)
}

/// Names its only peer, or nobody.
pub(crate) fn connect(socket: &Held, to: Given) -> Result<(), Errno> {
    let address = match to {
        Given::Unspecified if socket.kind() == Kind::Fresh => return Ok(()),
        Given::Unspecified if socket.is_v6() => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        Given::Unspecified => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        to => destination(socket, to)?,
    };
    let place = session::connect(socket, address, false)?;
    if socket.kind() == Kind::Fresh {
        settled(socket, place)?;
    }
    Ok(())
}

/// An address that datagrams of this socket may go to.
fn destination(socket: &Held, to: Given) -> Result<SocketAddr, Errno> {
    match to {
        Given::Address(SocketAddr::V6(_)) if !socket.is_v6() => Err(Errno::AFNOSUPPORT),
        Given::Address(mut address) => {
            // As Linux has it: nobody's address is this host's.
            if address.ip().is_unspecified() {
                let host: IpAddr =
                    if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
                address.set_ip(host);
            }
            Ok(address)
        }
        Given::Short => Err(Errno::INVAL),
        Given::Other(_) | Given::Unspecified => Err(Errno::AFNOSUPPORT),
    }
}

/// Ends a direction, which only a socket with a peer has.
pub(crate) fn shutdown(socket: &Held, how: c_int) -> Result<(), Errno> {
    let by_now = elsewhere::changed(socket);
    let stream = by_now.as_ref().unwrap_or(socket).stream();
    let stream = stream.filter(|stream| stream.end().block().has_peer()).ok_or(Errno::NOTCONN)?;
    stream.shutdown(how)
}

/// Whether a datagram goes over IPv4.
pub(crate) fn goes_by_v4(socket: &Held, to: Option<Given>) -> bool {
    let is_v4 = |address: SocketAddr| address.ip().to_canonical().is_ipv4();
    match to {
        _ if !socket.is_v6() => true,
        Some(Given::Address(address)) => is_v4(address),
        Some(_) => false,
        None => names::peer_of(socket).is_some_and(is_v4),
    }
}

/// Sends a datagram, or several of one length.
pub(crate) fn send(
    socket: &Held,
    source: Source<'_>,
    flags: c_int,
    to: Option<Given>,
    extra: Extra,
) -> Result<usize, Errno> {
    if flags & libc::MSG_OOB != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if source.is_faulty() {
        return Err(Errno::FAULT);
    }
    if corking::may_have_begun()
        && let Some(gone_on) = corking::go_on(socket, source, flags)
    {
        return gone_on;
    }
    let to = to.map(|to| destination(socket, to)).transpose()?;
    if socket.is_echo() {
        echoes::check(socket, source)?;
    } else if to.is_some_and(|to| to.port() == 0) {
        return Err(Errno::INVAL);
    }
    let has_peer = |socket: &Held| socket.stream().is_some_and(|it| it.end().block().has_peer());
    if to.is_none() && !has_peer(socket) && !elsewhere::changed(socket).as_ref().is_some_and(has_peer) {
        return Err(Errno::DESTADDRREQ);
    }
    let (socket, stream) = bound(socket)?;
    let peer = to.or_else(|| names::peer_of(&socket)).ok_or(Errno::DESTADDRREQ)?;
    let mut envelope = envelope(&stream, peer, extra);
    if socket.is_echo() {
        envelope.peer.set_port(0);
    }
    if envelope.segments(source.len()) > SEGMENTS_MAX {
        return Err(Errno::INVAL);
    }
    if session::is_dead() {
        return Err(Errno::NETDOWN);
    }
    if corking::holds(&stream, flags) && source.len() <= envelope.payload_max() {
        return Ok(corking::begin(&socket, &stream, envelope, source));
    }
    write_pieces(&stream, &envelope, source.len(), || source.from(0), flags).map(|()| source.len())
}

/// Sends a datagram that is whole.
pub(crate) fn write(stream: &Stream, envelope: &Envelope, text: &[u8], flags: c_int) -> Result<(), Errno> {
    write_pieces(stream, envelope, text.len(), || core::iter::once(text), flags)
}

fn write_pieces<'p, P: Iterator<Item = &'p [u8]>>(
    stream: &Stream,
    envelope: &Envelope,
    len: usize,
    pieces: impl Fn() -> P,
    flags: c_int,
) -> Result<(), Errno> {
    let mut wait = Waiting::new(stream, false, flags);
    loop {
        match stream.end().send_record(envelope, len, pieces()) {
            Ok(()) => {
                stream.kick();
                return Ok(());
            }
            Err(error) => match stream.stop_writing(error) {
                Stop::Closed => return Err(broken_pipe(flags)),
                stop => wait.after(stop, 0)?,
            },
        }
    }
}

fn envelope(stream: &Stream, peer: SocketAddr, extra: Extra) -> Envelope {
    let bits = stream.end().block().file.load(Ordering::Relaxed);
    let usual = ((bits & file::SEGMENT) >> file::SEGMENT_SHIFT) as u16;
    let scope = match peer {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let interface = if extra.interface != 0 { extra.interface } else { scope };
    Envelope {
        peer: SocketAddr::new(peer.ip(), peer.port()),
        local: extra.local.filter(|local| !local.is_unspecified()),
        // What goes by the loopback interface goes where its address says.
        link: (interface > LOOPBACK).then(|| LinkId(interface - 1)),
        tos: extra.tos,
        hops: extra.hops,
        dont_fragment: extra.dont_fragment,
        segment: extra.segment.unwrap_or(usual),
        arrived: None,
        dropped: 0,
    }
}

/// Receives a datagram; with UDP_GRO perhaps several of one length.
pub(crate) fn receive(socket: &Held, sink: &mut Sink<'_>, flags: c_int) -> Result<Received, Errno> {
    let (socket, stream) = bound(socket)?;
    let mut wait = Waiting::new(&stream, true, flags);
    loop {
        if sink.is_faulty() && stream.end().first_record().is_some() {
            return Err(Errno::FAULT);
        }
        match stream.end().receive_record(sink.from(0), flags & libc::MSG_PEEK != 0) {
            Ok(Some(record)) => {
                let is_cut = record.copied < record.len;
                let bytes = if flags & libc::MSG_TRUNC != 0 { record.len } else { record.copied };
                let from = Some(shown(&record.envelope, socket.is_v6()));
                let flags = if is_cut { libc::MSG_TRUNC } else { 0 };
                let bits = stream.end().block().file.load(Ordering::Relaxed);
                let mut envelope = record.envelope;
                envelope.arrived = envelope.arrived.map(|at| stream.on_our_clock(at));
                let port = names::port_of(stream.end().block());
                return Ok(Received {
                    bytes,
                    from,
                    flags,
                    beside: Beside::Datagram { envelope, bits, port },
                });
            }
            Ok(None) => return Ok(Received { bytes: 0, from: None, flags: 0, beside: Beside::Nothing }),
            Err(error) => wait.after(stream.stop_reading(error), 0)?,
        }
    }
}

/// Whom a datagram is from, as a socket of this family shows it.
fn shown(envelope: &Envelope, is_v6: bool) -> Shown {
    Shown::new(scoped(envelope.peer, envelope), is_v6)
}

/// To which address and port a datagram came, in the form of the address's own family.
pub(crate) fn shown_target(envelope: &Envelope, local: IpAddr, port: u16) -> Shown {
    Shown::new(scoped(SocketAddr::new(local, port), envelope), local.is_ipv6())
}

/// An address of a datagram, with the interface that belongs to it.
fn scoped(address: SocketAddr, envelope: &Envelope) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, interface(envelope)).into()
        }
        address => address,
    }
}

/// The number of the interface by which a datagram came, as a program is told: what the netstack sends to itself comes by the loopback
/// interface.
pub(crate) fn told_interface(envelope: &Envelope) -> u32 {
    match interface(envelope) {
        0 => LOOPBACK,
        known => known,
    }
}

/// The same; that of what the netstack sends to itself is unknown.
fn interface(envelope: &Envelope) -> u32 {
    envelope.link.map_or(0, |link| link.0.wrapping_add(1))
}

/// The length of the first datagram (FIONREAD).
pub(crate) fn first_len(stream: &Stream) -> usize {
    stream.end().first_record().map_or(0, |(_, len)| len)
}

/// A new socket.
pub(crate) fn open(is_v6: bool, is_echo: bool, flags: c_int) -> Result<c_int, Errno> {
    let fd = session::open_datagrams(is_v6, is_echo, flags)?;
    crate::table::put(fd, socket::datagram_word(is_v6, is_echo));
    Ok(fd)
}
