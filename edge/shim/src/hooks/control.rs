//! Control data of datagrams (`struct cmsghdr`): what a program says of one, and what it is told of one (`ip(7)`,
//! RFC 3542 §6, `udp(7)`).

use core::ffi::{c_int, c_void};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use firelane_frame::Envelope;
use firelane_shm::layout::file;
use libc::{cmsghdr, msghdr};
use rustix::io::Errno;

use crate::datagram::{self, Extra};
use crate::faults::Told;
use crate::socket::Beside;
use crate::{buffers, wait};

const SOL_UDP: c_int = 17;
const UDP_SEGMENT: c_int = 103;
const UDP_GRO: c_int = 104;
const TCP_CM_INQ: c_int = 36;
/// A header and the most that follows it here, `struct in6_pktinfo`.
const HEADER: usize = size_of::<cmsghdr>();
const WORD: usize = size_of::<usize>();

/// Reads what a message says of its datagram, which goes over IPv4 or not: what is of another protocol is passed over, as in
/// Linux.
///
/// # Safety
/// The control data are readable, or among what [`buffers::check`] refuses.
pub(crate) unsafe fn read(message: &msghdr, is_v4: bool, is_v6_socket: bool) -> Result<Extra, Errno> {
    let mut extra = Extra::default();
    let take = |level, kind, data: &[u8]| match (level, kind) {
        (SOL_UDP, UDP_SEGMENT) => {
            let bytes = data.try_into().map_err(|_| Errno::INVAL)?;
            extra.segment = Some(u16::from_ne_bytes(bytes));
            Ok(())
        }
        (SOL_UDP, _) => Err(Errno::INVAL),
        (libc::IPPROTO_IP, kind) if is_v4 => take_v4(&mut extra, kind, data),
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if is_v4 && is_v6_socket => {
            take_v6(&mut extra, libc::IPV6_PKTINFO, data)?;
            extra.local.filter(IpAddr::is_ipv4).ok_or(Errno::INVAL).map(drop)
        }
        (libc::IPPROTO_IPV6, kind) if !is_v4 => {
            take_v6(&mut extra, kind, data)?;
            if extra.local.is_some_and(|local| local.is_ipv4()) { Err(Errno::INVAL) } else { Ok(()) }
        }
        _ => Ok(()),
    };
    // SAFETY: the caller's promise.
    unsafe { each(message, take) }?;
    Ok(extra)
}

/// Looks at what a message says of text of a stream, where nothing can be said: what is not the socket's level is passed over.
///
/// # Safety
/// As for [`read`].
pub(crate) unsafe fn check(message: &msghdr) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { each(message, |_, _, _| Ok(())) }
}

/// Does `take` to each part, with its level and kind. Those of the socket's level are refused, but for two that other families have.
///
/// # Safety
/// As for [`read`].
unsafe fn each(
    message: &msghdr,
    mut take: impl FnMut(c_int, c_int, &[u8]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    if message.msg_controllen > c_int::MAX as usize {
        return Err(Errno::NOBUFS);
    }
    // Linux copies what is too short for a header, too.
    buffers::check(message.msg_control, message.msg_controllen)?;
    if message.msg_controllen < HEADER {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    let mut left = unsafe { buffers::bytes(message.msg_control.cast_const(), message.msg_controllen) }?;
    while let Some((header, rest)) = left.split_first_chunk::<HEADER>() {
        let word = |at: usize| header[at..].first_chunk().map_or(0, |bytes| c_int::from_ne_bytes(*bytes));
        let len = header.first_chunk().map_or(0, |bytes| usize::from_ne_bytes(*bytes));
        let data = len.checked_sub(HEADER).and_then(|len| rest.get(..len)).ok_or(Errno::INVAL)?;
        match (word(WORD), word(WORD + 4)) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS | libc::SCM_CREDENTIALS) => {}
            (libc::SOL_SOCKET, _) => return Err(Errno::INVAL),
            (level, kind) => take(level, kind, data)?,
        }
        left = left.get(len.next_multiple_of(WORD)..).unwrap_or_default();
    }
    Ok(())
}

/// A number in `range`, which is all that there is.
fn number(data: &[u8], range: core::ops::RangeInclusive<c_int>) -> Result<c_int, Errno> {
    let bytes = data.try_into().map_err(|_| Errno::INVAL)?;
    Some(c_int::from_ne_bytes(bytes)).filter(|it| range.contains(it)).ok_or(Errno::INVAL)
}

/// `ip_cmsg_send` of Linux.
fn take_v4(extra: &mut Extra, kind: c_int, data: &[u8]) -> Result<(), Errno> {
    match kind {
        libc::IP_PKTINFO => {
            let info: [u8; 12] = data.try_into().map_err(|_| Errno::INVAL)?;
            let [a, b, c, d, e, f, g, h, ..] = info;
            extra.interface = u32::from_ne_bytes([a, b, c, d]);
            extra.local = Some(Ipv4Addr::new(e, f, g, h).into());
        }
        libc::IP_TTL => extra.hops = Some(number(data, 1..=255)? as u8),
        libc::IP_TOS => {
            extra.tos = Some(match data {
                [octet] => *octet,
                _ => number(data, 0..=255)? as u8,
            });
        }
        _ => return Err(Errno::INVAL),
    }
    Ok(())
}

/// `ip6_datagram_send_ctl` of Linux, as far as there are such options here. A value of -1 is the socket's.
fn take_v6(extra: &mut Extra, kind: c_int, data: &[u8]) -> Result<(), Errno> {
    let octet = || number(data, -1..=255).map(|it| u8::try_from(it).ok());
    match kind {
        libc::IPV6_PKTINFO => {
            let (local, rest) = data.split_first_chunk::<16>().ok_or(Errno::INVAL)?;
            let index = rest.first_chunk().ok_or(Errno::INVAL)?;
            extra.interface = u32::from_ne_bytes(*index);
            extra.local = Some(Ipv6Addr::from(*local).to_canonical());
        }
        libc::IPV6_TCLASS => extra.tos = octet()?,
        libc::IPV6_HOPLIMIT => extra.hops = octet()?,
        libc::IPV6_DONTFRAG => extra.dont_fragment = Some(number(data, 0..=1)? != 0),
        _ => return Err(Errno::INVAL),
    }
    Ok(())
}

/// Control data as they grow.
struct Growing<'a> {
    room: &'a mut [u8],
    len: usize,
    is_cut: bool,
}

impl Growing<'_> {
    fn add(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let (wanted, room) = (HEADER + data.len(), &mut self.room[self.len..]);
        // What does not fit is cut, as `put_cmsg` of Linux has it.
        let len = wanted.min(room.len());
        self.is_cut |= len < wanted;
        if len < HEADER {
            return;
        }
        room[..WORD].copy_from_slice(&len.to_ne_bytes());
        room[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        room[WORD + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        room[HEADER..len].copy_from_slice(&data[..len - HEADER]);
        self.len = (self.len + len.next_multiple_of(WORD)).min(self.room.len());
    }
}

/// Tells the program what it wants to know of a datagram. The flags that go with it.
///
/// # Safety
/// The room for control data is writable and nobody else's, or among what [`buffers::check`] refuses.
pub(crate) unsafe fn write(
    message: &mut msghdr,
    beside: Beside,
    fault: Option<&Told>,
) -> Result<c_int, Errno> {
    let len = if message.msg_control.is_null() { 0 } else { message.msg_controllen };
    message.msg_controllen = 0;
    if matches!(beside, Beside::Nothing) {
        return Ok(0);
    }
    let control: *mut c_void = message.msg_control;
    // SAFETY: the caller's promise.
    let Ok(room) = (unsafe { buffers::bytes_mut(control, len) }) else {
        // What came is told all the same, as by the kernel.
        return Ok(0);
    };
    let mut growing = Growing { room, len: 0, is_cut: false };
    match (beside, fault) {
        (Beside::Datagram { envelope, bits, port }, None) => {
            tell(&mut growing, &envelope, bits);
            target(&mut growing, &envelope, bits, port);
        }
        (Beside::Datagram { bits, .. }, Some(fault)) => {
            if let Some(envelope) = &fault.envelope {
                tell(&mut growing, envelope, bits);
            }
            growing.add(fault.option.0, fault.option.1, fault.bytes());
        }
        (Beside::Unread(count), _) => growing.add(libc::IPPROTO_TCP, TCP_CM_INQ, &count.to_ne_bytes()),
        (Beside::Nothing, _) => {}
    }
    message.msg_controllen = growing.len;
    Ok(if growing.is_cut { libc::MSG_CTRUNC } else { 0 })
}

/// When it arrived, by the clock of the day.
fn stamp(to: &mut Growing<'_>, envelope: &Envelope, bits: u64) {
    let wanted = bits & (file::STAMP | file::STAMP_NANOS);
    let Some(arrived) = envelope.arrived.filter(|_| wanted != 0) else { return };
    let day = wait::day_of(Duration::from_nanos(arrived.nanos()));
    let (kind, part) = match wanted == file::STAMP_NANOS {
        true => (libc::SCM_TIMESTAMPNS, day.subsec_nanos()),
        false => (libc::SCM_TIMESTAMP, day.subsec_micros()),
    };
    let mut value = [0; 16];
    value[..8].copy_from_slice(&day.as_secs().to_ne_bytes());
    value[8..].copy_from_slice(&u64::from(part).to_ne_bytes());
    to.add(libc::SOL_SOCKET, kind, &value);
}

fn tell(to: &mut Growing<'_>, envelope: &Envelope, bits: u64) {
    let has = |bit| bits & bit != 0;
    let (tos, hops) = (envelope.tos.unwrap_or(0), c_int::from(envelope.hops.unwrap_or(0)));
    let index = datagram::told_interface(envelope).to_ne_bytes();
    stamp(to, envelope, bits);
    if envelope.dropped != 0 && has(file::DROPS) {
        to.add(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &envelope.dropped.to_ne_bytes());
    }
    // Before what is IP's, as in Linux: a program may have room for this, and not for all.
    joined(to, envelope, bits);
    // Of both families, and before what is one's own (`ip6_datagram_recv_common_ctl` of Linux).
    if let Some(local) = envelope.local.filter(|_| has(file::INFO_V6)) {
        let octets = match local {
            IpAddr::V4(local) => local.to_ipv6_mapped().octets(),
            IpAddr::V6(local) => local.octets(),
        };
        let mut info = [0; 20];
        info[..16].copy_from_slice(&octets);
        info[16..].copy_from_slice(&index);
        to.add(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
    }
    match envelope.local {
        Some(IpAddr::V4(local)) => {
            if has(file::INFO_V4) {
                let mut info = [0; 12];
                info[..4].copy_from_slice(&index);
                info[4..8].copy_from_slice(&own(local, envelope.own).octets());
                info[8..].copy_from_slice(&local.octets());
                to.add(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            if has(file::HOPS_V4) {
                to.add(libc::IPPROTO_IP, libc::IP_TTL, &hops.to_ne_bytes());
            }
            if has(file::TOS_V4) {
                to.add(libc::IPPROTO_IP, libc::IP_TOS, &[tos]);
            }
        }
        Some(IpAddr::V6(_)) | None => {
            if has(file::HOPS_V6) {
                to.add(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &hops.to_ne_bytes());
            }
            if has(file::TOS_V6) {
                to.add(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &c_int::from(tos).to_ne_bytes());
            }
        }
    }
}

/// The address of this host that a datagram to `local` came to (`ipi_spec_dst`), with which an answer may go. What came to many has that
/// by which the sender knows this host; where it has none, the way that the answer takes chooses.
fn own(local: Ipv4Addr, own: Option<Ipv4Addr>) -> Ipv4Addr {
    let is_many = local.is_multicast() || local.is_broadcast();
    own.unwrap_or(if is_many { Ipv4Addr::UNSPECIFIED } else { local })
}

/// What several datagrams in one are long.
fn joined(to: &mut Growing<'_>, envelope: &Envelope, bits: u64) {
    if envelope.segment != 0 && bits & file::GRO != 0 {
        to.add(SOL_UDP, UDP_GRO, &c_int::from(envelope.segment).to_ne_bytes());
    }
}

/// To which address and port it came, as a `sockaddr`.
fn target(to: &mut Growing<'_>, envelope: &Envelope, bits: u64, port: u16) {
    let Some(local) = envelope.local else { return };
    let (bit, level, name) = match local {
        IpAddr::V4(_) => (file::TARGET_V4, libc::IPPROTO_IP, libc::IP_ORIGDSTADDR),
        IpAddr::V6(_) => (file::TARGET_V6, libc::IPPROTO_IPV6, libc::IPV6_ORIGDSTADDR),
    };
    if bits & bit != 0 {
        to.add(level, name, datagram::shown_target(envelope, local, port).bytes());
    }
}
