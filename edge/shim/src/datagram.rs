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
use crate::awaited::Awaited;
use crate::buffers::{Sink, Source};
use crate::interfaces::{self, LOOPBACK};
use crate::socket::{self, Beside, Held, Kind, Received, broken_pipe};
use crate::stream::{Stop, Stream, Waiting};
use crate::to_itself::Outcome;
use crate::{corking, echoes, elsewhere, names, options, session, to_itself};

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
    let held = socket.becomes_stream(arena, block).ok_or(Errno::BADF)?;
    let stream = held.stream().ok_or(Errno::PROTO)?;
    stream.set_nonblocking(is_nonblocking);
    if !held.is_echo() {
        to_itself::hears(arena, block);
    }
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
        Given::Unspecified(_) if socket.kind() == Kind::Fresh => return Ok(()),
        Given::Unspecified(_) if socket.is_v6() => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        Given::Unspecified(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        to => destination(socket, to)?,
    };
    match session::connect(socket, address, false) {
        Ok(place) if socket.kind() == Kind::Fresh => settled(socket, place).map(drop),
        Ok(_) => Ok(()),
        Err(errno) => {
            // As in Linux it has an address by now, even so.
            let _ = bound(socket);
            Err(errno)
        }
    }
}

/// An address that datagrams of this socket may go to.
fn destination(socket: &Held, to: Given) -> Result<SocketAddr, Errno> {
    match to {
        Given::Address(SocketAddr::V6(_)) if !socket.is_v6() => Err(Errno::AFNOSUPPORT),
        Given::Address(mut address) => {
            if address.ip().to_canonical().is_unspecified() {
                address.set_ip(own_host(socket, address.ip()));
            }
            Ok(address)
        }
        // As in Linux a datagram of UDP may go to an address of IPv4 whose family was not said.
        Given::Unspecified(Some(address)) if !socket.is_v6() && !socket.is_echo() => {
            destination(socket, Given::Address(address.into()))
        }
        Given::Short | Given::Unspecified(None) => Err(Errno::INVAL),
        Given::Other(_) | Given::Unspecified(Some(_)) => Err(Errno::AFNOSUPPORT),
    }
}

/// Where what is sent to nobody's address goes, which is this host: as in Linux to the socket's own address of IPv4, if it has one.
fn own_host(socket: &Held, nobody: IpAddr) -> IpAddr {
    let own = socket.stream().and_then(|stream| names::local_of(stream.end().block()));
    let own = match own.map(|own| own.ip().to_canonical()) {
        Some(IpAddr::V4(own)) if !own.is_unspecified() => Some(own),
        _ => None,
    };
    let is_v4 = nobody.to_canonical().is_ipv4();
    match own {
        None if !is_v4 => Ipv6Addr::LOCALHOST.into(),
        Some(own) if is_v4 && !own.is_multicast() && !own.is_broadcast() => own.into(),
        _ => Ipv4Addr::LOCALHOST.into(),
    }
}

/// Ends a direction. As in Linux who has no peer is told so, and it ends all the same, by which programs wake those who wait.
pub(crate) fn shutdown(socket: &Held, how: c_int) -> Result<(), Errno> {
    let by_now = elsewhere::changed(socket);
    let stream = by_now.as_ref().unwrap_or(socket).stream().ok_or(Errno::NOTCONN)?;
    stream.shutdown(how)?;
    if stream.end().block().has_peer() { Ok(()) } else { Err(Errno::NOTCONN) }
}

/// Where a datagram goes: what the call says, or the socket's peer. As in Linux a socket of IPv6 finds out that there is none before
/// it looks at anything else.
fn target(socket: &Held, to: Option<Given>) -> Result<Option<SocketAddr>, Errno> {
    let to = to.filter(|to| !socket.is_v6() || !matches!(to, Given::Unspecified(_)));
    match to {
        Some(to) if socket.is_v6() => destination(socket, to).map(Some),
        None if socket.is_v6() => {
            let known = corking::begun_to(socket).or_else(|| names::peer_of(socket));
            known.map(Some).ok_or(Errno::DESTADDRREQ)
        }
        _ => Ok(None),
    }
}

fn is_v4(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_ipv4()
}

/// Sends a datagram, or several of one length. What stands beside it is read when it is known whether it goes over IPv4.
pub(crate) fn send(
    socket: &Held,
    source: Source<'_>,
    flags: c_int,
    to: Option<Given>,
    extra: impl FnOnce(bool) -> Result<Extra, Errno>,
) -> Result<usize, Errno> {
    let (socket, stream) = bound(socket)?;
    let known = target(&socket, to)?;
    let by_v4 = !socket.is_v6() || known.is_some_and(is_v4);
    if by_v4 && source.len() > usize::from(u16::MAX) {
        return Err(Errno::MSGSIZE);
    }
    // As in Linux a datagram of UDP over IPv6 takes it, and nobody is told.
    if (by_v4 || socket.is_echo()) && flags & libc::MSG_OOB != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    if source.is_faulty() {
        return Err(Errno::FAULT);
    }
    if corking::may_have_begun()
        && let Some(gone_on) = corking::go_on(&socket, source, flags, by_v4)
    {
        return gone_on;
    }
    let said = match to {
        Some(to) if !socket.is_v6() => Some(destination(&socket, to)?),
        Some(Given::Unspecified(_)) | None => None,
        Some(_) => known,
    };
    if socket.is_echo() {
        echoes::check(&socket, source)?;
    } else if said.is_some_and(|to| to.port() == 0) {
        return Err(Errno::INVAL);
    }
    if said.is_some_and(is_nowhere) {
        return Err(Errno::NETUNREACH);
    }
    let peer = said.or_else(|| names::peer_of(&socket)).ok_or(Errno::DESTADDRREQ)?;
    let mut envelope = envelope(&stream, peer, extra(is_v4(peer))?);
    if socket.is_echo() {
        envelope.peer.set_port(0);
    }
    let is_too_long = source.len() > envelope.payload_max();
    if !is_too_long && envelope.segments(source.len()) > SEGMENTS_MAX {
        check(&stream, flags)?;
        return Err(Errno::INVAL);
    }
    if socket::is_dead(socket.word) {
        return Err(stream.is_over());
    }
    if corking::holds(&stream, flags) && !is_too_long {
        return corking::begin(&socket, &stream, envelope, source, flags);
    }
    write_pieces(&stream, &envelope, source.len(), || source.from(0), flags).map(|()| source.len())
}

/// Whether one may be begun.
pub(crate) fn check(stream: &Stream, flags: c_int) -> Result<(), Errno> {
    stream.end().may_send().map_err(|error| match stream.stop_writing(error) {
        Stop::Failed(errno) => errno,
        Stop::Closed | Stop::Wait => broken_pipe(flags),
    })
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
    let mut wait = Waiting::new(stream, Awaited::Room, flags);
    loop {
        let outcome = Outcome::of(stream, envelope.peer);
        match stream.end().send_record(envelope, len, pieces()) {
            Ok(()) => {
                stream.kick();
                if let Some(outcome) = outcome {
                    outcome.wait(stream);
                }
                return Ok(());
            }
            Err(error) => match stream.stop_writing(error) {
                Stop::Closed => return Err(broken_pipe(flags)),
                stop => wait.after(known(stream, stop), 0)?,
            },
        }
    }
}

fn envelope(stream: &Stream, peer: SocketAddr, extra: Extra) -> Envelope {
    let bits = stream.end().block().file.load(Ordering::Relaxed);
    let usual = ((bits & file::SEGMENT) >> file::SEGMENT_SHIFT) as u16;
    let interface = if extra.interface != 0 { extra.interface } else { scope_of(peer) };
    Envelope {
        peer: SocketAddr::new(peer.ip(), peer.port()),
        // As in Linux one of IPv4 that is left open is not the socket's own.
        local: extra.local.filter(|&local| local != IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        // What goes by the loopback interface goes where its address says, but to a group.
        own: None,
        link: match interface {
            0 => None,
            LOOPBACK => peer.ip().to_canonical().is_multicast().then_some(LinkId::LOOPBACK),
            _ => Some(LinkId(interface - 1)),
        },
        tos: extra.tos,
        hops: extra.hops,
        dont_fragment: extra.dont_fragment,
        segment: extra.segment.unwrap_or(usual),
        arrived: None,
        dropped: 0,
    }
}

/// The interface that an address says: as in Linux only one that every interface has (RFC 4007 §4, §6) says any.
const fn scope_of(peer: SocketAddr) -> u32 {
    let SocketAddr::V6(v6) = peer else { return 0 };
    let ip = v6.ip();
    // Of a group the scope stands in its second octet: the interface's own, or the link's.
    let is_everywhere =
        ip.is_unicast_link_local() || ip.is_multicast() && matches!(ip.octets()[1] & 0xf, 1 | 2);
    if is_everywhere { v6.scope_id() } else { 0 }
}

/// Whether an address says an interface over which nobody has it: one that is not there, or for one station the loopback device.
fn is_nowhere(peer: SocketAddr) -> bool {
    match scope_of(peer) {
        0 => false,
        LOOPBACK => !peer.ip().is_multicast(),
        scope => !interfaces::is_there(scope),
    }
}

/// Receives a datagram; with UDP_GRO perhaps several of one length.
pub(crate) fn receive(socket: &Held, sink: &mut Sink<'_>, flags: c_int) -> Result<Received, Errno> {
    let by_now = elsewhere::changed(socket);
    let socket = by_now.as_ref().unwrap_or(socket);
    // Nothing can have come to who has no address; who waits for something gets one.
    if socket.kind() == Kind::Fresh && (flags & libc::MSG_DONTWAIT != 0 || socket.is_nonblocking()?) {
        return Err(if socket::is_dead(socket.word) { Errno::NETDOWN } else { Errno::AGAIN });
    }
    let (socket, stream) = bound(socket)?;
    let mut wait = Waiting::new(&stream, Awaited::Bytes(1), flags);
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
            // As in Linux who does not wait is not told of the end.
            Ok(None) if flags & libc::MSG_DONTWAIT != 0 || stream.is_nonblocking() => {
                return Err(Errno::AGAIN);
            }
            Ok(None) => return Ok(Received { bytes: 0, from: None, flags: 0, beside: Beside::Nothing }),
            Err(error) => wait.after(known(&stream, stream.stop_reading(error)), 0)?,
        }
    }
}

/// Why a call has moved nothing; a refusal is known from here on.
fn known(stream: &Stream, stop: Stop) -> Stop {
    if let Stop::Failed(Errno::CONNREFUSED) = stop {
        to_itself::refused(stream);
    }
    stop
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
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => match interface(envelope) {
            // What the netstack has sent to itself is from an address of its own.
            0 => interfaces::scoped(address, address.ip()),
            known => SocketAddrV6::new(*v6.ip(), v6.port(), 0, known).into(),
        },
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
    session::begin_again()?;
    let era = session::era();
    let fd = session::open_datagrams(is_v6, is_echo, flags)?;
    socket::born(fd, socket::datagram_word_of(is_v6, is_echo, era));
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_not_every_interface_has_says_none() {
        for (address, interface) in [
            ("[fe80::1%3]:9", 3),
            ("[ff02::fb%3]:9", 3),
            ("[ff11::1%3]:9", 3),
            ("[ff05::2%3]:9", 0),
            ("[2001:db8::1%3]:9", 0),
            ("[fd00::1%3]:9", 0),
            ("10.0.0.1:9", 0),
        ] {
            assert_eq!(scope_of(address.parse().unwrap()), interface, "{address}");
        }
    }
}
