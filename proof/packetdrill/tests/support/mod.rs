//! packetdrill's place at the table: calls with Rust's types, and packets of a peer.
#![allow(dead_code, missing_docs, unreachable_pub, unsafe_code)]

use std::ffi::CString;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use firelane_packetdrill::abi::{Interface, packetdrill_interface_init};
use firelane_units::{Port, SeqNum};
use firelane_wire::{
    IpProtocol, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View, TcpFlags, TcpOptions, TcpRepr, TcpView, tcp,
};

pub const LOCAL_V4: &str = "192.168.5.6";
pub const LOCAL_V6: &str = "fd3d:fa7b:d17d::9";
pub const REMOTE_V4: &str = "192.0.2.1";
pub const REMOTE_V6: &str = "2001:db8::1";
/// The peer's first sequence number.
pub const PEER_ISN: u32 = 1000;

/// The table, called as packetdrill does.
#[derive(Clone, Copy)]
pub struct Drill {
    pub table: Interface,
    pub is_v6: bool,
    /// The address of ours that the peer sends to.
    pub local: Option<IpAddr>,
}

// SAFETY: the plug-in takes calls from two threads; that is the point.
unsafe impl Send for Drill {}
// SAFETY: as above.
unsafe impl Sync for Drill {}

pub fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// A call's result, with errno if it failed.
pub fn result(value: impl Into<i64>) -> Result<i64, i32> {
    let value = value.into();
    if value < 0 { Err(errno()) } else { Ok(value) }
}

impl Drill {
    pub fn new(flags: &str, is_v6: bool) -> Self {
        let flags = CString::new(flags).unwrap();
        let mut table = MaybeUninit::<Interface>::uninit();
        // SAFETY: a C string, and room for the table.
        unsafe { packetdrill_interface_init(flags.as_ptr(), table.as_mut_ptr()) };
        // SAFETY: filled just above.
        Self { table: unsafe { table.assume_init() }, is_v6, local: None }
    }

    pub fn free(self) {
        // SAFETY: once, at the end.
        unsafe { (self.table.free)(self.table.userdata) };
    }

    pub fn local(&self) -> IpAddr {
        self.local.unwrap_or_else(|| if self.is_v6 { LOCAL_V6 } else { LOCAL_V4 }.parse().unwrap())
    }

    pub fn remote(&self) -> IpAddr {
        if self.is_v6 { REMOTE_V6 } else { REMOTE_V4 }.parse().unwrap()
    }

    pub fn socket(&self, kind: i32) -> i32 {
        let domain = if self.is_v6 { libc::AF_INET6 } else { libc::AF_INET };
        // SAFETY: no pointers but the table's own.
        let fd = unsafe { (self.table.socket)(self.table.userdata, domain, kind, 0) };
        assert!(fd >= 0, "socket: {}", errno());
        fd
    }

    pub fn tcp(&self) -> i32 {
        self.socket(libc::SOCK_STREAM)
    }

    pub fn bind(&self, fd: i32, port: u16) -> Result<i64, i32> {
        self.bind_to(fd, SocketAddr::new(self.local(), port))
    }

    pub fn bind_to(&self, fd: i32, local: SocketAddr) -> Result<i64, i32> {
        let bytes = sockaddr(local);
        // SAFETY: the address lives until the call returns.
        result(unsafe {
            (self.table.bind)(self.table.userdata, fd, bytes.as_ptr().cast(), bytes.len() as u32)
        })
    }

    pub fn listen(&self, fd: i32, backlog: i32) -> Result<i64, i32> {
        // SAFETY: no pointers but the table's own.
        result(unsafe { (self.table.listen)(self.table.userdata, fd, backlog) })
    }

    pub fn accept(&self, fd: i32) -> Result<(i32, Vec<u8>), i32> {
        let (mut bytes, mut len) = ([0_u8; 128], 128);
        // SAFETY: room as the length says.
        let accepted =
            unsafe { (self.table.accept)(self.table.userdata, fd, bytes.as_mut_ptr().cast(), &mut len) };
        result(accepted).map(|fd| (fd as i32, bytes[..len as usize].to_vec()))
    }

    pub fn connect(&self, fd: i32, port: u16) -> Result<i64, i32> {
        let bytes = sockaddr(SocketAddr::new(self.remote(), port));
        // SAFETY: the address lives until the call returns.
        result(unsafe {
            (self.table.connect)(self.table.userdata, fd, bytes.as_ptr().cast(), bytes.len() as u32)
        })
    }

    pub fn read(&self, fd: i32, len: usize) -> Result<Vec<u8>, i32> {
        self.recv(fd, len, 0)
    }

    pub fn recv(&self, fd: i32, len: usize, flags: i32) -> Result<Vec<u8>, i32> {
        let mut bytes = vec![0; len];
        // SAFETY: room as the length says.
        let count =
            unsafe { (self.table.recv)(self.table.userdata, fd, bytes.as_mut_ptr().cast(), len, flags) };
        result(count as i64).map(|count| bytes[..count as usize].to_vec())
    }

    pub fn write(&self, fd: i32, bytes: &[u8]) -> Result<i64, i32> {
        self.send(fd, bytes, 0)
    }

    pub fn send(&self, fd: i32, bytes: &[u8], flags: i32) -> Result<i64, i32> {
        // SAFETY: the bytes live until the call returns.
        let count =
            unsafe { (self.table.send)(self.table.userdata, fd, bytes.as_ptr().cast(), bytes.len(), flags) };
        result(count as i64)
    }

    pub fn sendto(&self, fd: i32, bytes: &[u8], port: u16) -> Result<i64, i32> {
        self.sendto_with(fd, bytes, 0, &sockaddr(SocketAddr::new(self.remote(), port)))
    }

    /// The address may be any bytes, or none.
    pub fn sendto_with(&self, fd: i32, bytes: &[u8], flags: i32, to: &[u8]) -> Result<i64, i32> {
        let address = if to.is_empty() { std::ptr::null() } else { to.as_ptr() };
        // SAFETY: both live until the call returns.
        let count = unsafe {
            (self.table.sendto)(
                self.table.userdata,
                fd,
                bytes.as_ptr().cast(),
                bytes.len(),
                flags,
                address.cast(),
                to.len() as u32,
            )
        };
        result(count as i64)
    }

    pub fn sendmsg(&self, fd: i32, bytes: &[u8], flags: i32, port: u16) -> Result<i64, i32> {
        let mut to = sockaddr(SocketAddr::new(self.remote(), port));
        let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let message = libc::msghdr {
            msg_name: to.as_mut_ptr().cast(),
            msg_namelen: to.len() as u32,
            msg_iov: &raw mut vector,
            msg_iovlen: 1,
            msg_control: std::ptr::null_mut(),
            msg_controllen: 0,
            msg_flags: 0,
        };
        // SAFETY: all that it points to lives until the call returns, and is only read.
        let count = unsafe { (self.table.sendmsg)(self.table.userdata, fd, &raw const message, flags) };
        result(count as i64)
    }

    pub fn close(&self, fd: i32) -> Result<i64, i32> {
        // SAFETY: no pointers but the table's own.
        result(unsafe { (self.table.close)(self.table.userdata, fd) })
    }

    pub fn shutdown(&self, fd: i32, how: i32) -> Result<i64, i32> {
        // SAFETY: no pointers but the table's own.
        result(unsafe { (self.table.shutdown)(self.table.userdata, fd, how) })
    }

    pub fn nonblocking(&self, fd: i32) {
        // SAFETY: the argument is a number.
        let set =
            unsafe { (self.table.fcntl)(self.table.userdata, fd, libc::F_SETFL, libc::O_NONBLOCK.into()) };
        assert_eq!(set, 0);
    }

    pub fn set(&self, fd: i32, level: i32, name: i32, value: &[i32]) -> Result<i64, i32> {
        let len = std::mem::size_of_val(value) as u32;
        // SAFETY: the value lives until the call returns.
        result(unsafe {
            (self.table.setsockopt)(self.table.userdata, fd, level, name, value.as_ptr().cast(), len)
        })
    }

    pub fn get(&self, fd: i32, level: i32, name: i32) -> Result<Vec<u8>, i32> {
        let (mut bytes, mut len) = ([0_u8; 512], 512);
        // SAFETY: room as the length says.
        let got = unsafe {
            (self.table.getsockopt)(self.table.userdata, fd, level, name, bytes.as_mut_ptr().cast(), &mut len)
        };
        result(got).map(|_| bytes[..len as usize].to_vec())
    }

    pub fn get_int(&self, fd: i32, level: i32, name: i32) -> Result<i32, i32> {
        self.get(fd, level, name).map(|bytes| i32::from_ne_bytes(bytes[..4].try_into().unwrap()))
    }

    pub fn poll(&self, fd: i32, events: i16, timeout: i32) -> (i64, i16) {
        let mut entry = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: one entry.
        let ready = unsafe { (self.table.poll)(self.table.userdata, &mut entry, 1, timeout) };
        (ready.into(), entry.revents)
    }

    /// Microseconds.
    pub fn now(&self) -> i64 {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        // SAFETY: room for the time.
        unsafe { (self.table.gettimeofday)(self.table.userdata, &mut time, std::ptr::null_mut()) };
        time.tv_sec * 1_000_000 + time.tv_usec
    }

    pub fn usleep(&self, micros: u32) {
        // SAFETY: no pointers but the table's own.
        unsafe { (self.table.usleep)(self.table.userdata, micros) };
    }

    pub fn inject(&self, packet: &[u8]) -> Result<i64, i32> {
        // SAFETY: the packet lives until the call returns.
        result(unsafe { (self.table.netdev_send)(self.table.userdata, packet.as_ptr().cast(), packet.len()) })
    }

    /// The next packet and when it left, in microseconds; an empty one if none comes.
    pub fn receive(&self) -> (Vec<u8>, i64) {
        let (mut bytes, mut len, mut time) = (vec![0; 65_536], 65_536, 0);
        // SAFETY: room as the length says.
        let got = unsafe {
            (self.table.netdev_receive)(self.table.userdata, bytes.as_mut_ptr().cast(), &mut len, &mut time)
        };
        assert_eq!(got, 0);
        bytes.truncate(len);
        (bytes, time)
    }

    /// The next packet, which is a TCP segment of the stack's.
    pub fn segment(&self) -> Got {
        let (packet, time) = self.receive();
        assert!(!packet.is_empty(), "no packet comes");
        let (src, dst, bytes) = match packet[0] >> 4 {
            4 => {
                let ip = Ipv4View::parse(&packet).unwrap();
                assert!(ip.is_checksum_valid());
                (IpAddr::V4(ip.src()), IpAddr::V4(ip.dst()), ip.payload())
            }
            _ => {
                let ip = Ipv6View::parse(&packet).unwrap();
                (IpAddr::V6(ip.src()), IpAddr::V6(ip.dst()), ip.payload())
            }
        };
        let tcp = TcpView::parse(bytes).unwrap();
        assert!(tcp.is_checksum_valid(src, dst));
        Got {
            src: SocketAddr::new(src, tcp.src_port().0),
            dst_port: tcp.dst_port().0,
            flags: tcp.flags(),
            seq: tcp.seq().0,
            ack: tcp.ack_field().0,
            text: tcp.payload().to_vec(),
            options: tcp.option_bytes().to_vec(),
            time,
        }
    }

    /// A segment of the peer's. `seq` counts from its first; with URG, its last byte is urgent.
    pub fn peer(&self, ports: (u16, u16), flags: TcpFlags, seq: u32, ack: Option<u32>, text: &[u8]) {
        let mut options = TcpOptions::default();
        if flags.contains(TcpFlags::SYN) {
            options.mss = Some(1000);
        }
        self.peer_with(ports, flags, (seq, ack), options, text);
    }

    /// The same with options of the peer's choice.
    pub fn peer_with(
        &self,
        ports: (u16, u16),
        flags: TcpFlags,
        (seq, ack): (u32, Option<u32>),
        options: TcpOptions,
        text: &[u8],
    ) {
        let repr = TcpRepr {
            src_port: Port(ports.0),
            dst_port: Port(ports.1),
            seq: SeqNum(PEER_ISN.wrapping_add(seq)),
            ack: ack.map(SeqNum),
            flags,
            window: 65_535,
            urgent: if flags.contains(TcpFlags::URG) { text.len() as u16 } else { 0 },
            options,
        };
        let mut segment = vec![0; repr.emitted_len()];
        repr.emit(&mut segment);
        segment.extend_from_slice(text);
        self.inject(&self.packet(IpProtocol::TCP, segment)).unwrap();
    }

    /// An IP packet of the peer's.
    pub fn packet(&self, protocol: IpProtocol, mut payload: Vec<u8>) -> Vec<u8> {
        match (self.remote(), self.local()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let repr = Ipv4Repr::new(src, dst, protocol, payload.len() as u16);
                if protocol == IpProtocol::TCP {
                    tcp::fill_checksum(&mut payload, repr.pseudo_header());
                }
                let mut packet = vec![0; repr.emitted_len()];
                repr.emit(&mut packet);
                packet.extend(payload);
                packet
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let repr = Ipv6Repr::new(src, dst, protocol, payload.len() as u16);
                if protocol == IpProtocol::TCP {
                    tcp::fill_checksum(&mut payload, repr.pseudo_header());
                }
                let mut packet = vec![0; repr.emitted_len()];
                repr.emit(&mut packet);
                packet.extend(payload);
                packet
            }
            _ => unreachable!("both are of one family"),
        }
    }

    /// A listener and a connection that the peer has opened from port 9: the connection, and the number that our next
    /// byte has.
    pub fn established(&self, port: u16) -> (i32, u32) {
        let listener = self.tcp();
        self.bind(listener, port).unwrap();
        self.listen(listener, 4).unwrap();
        let iss = self.opens(port);
        let (fd, _) = self.accept(listener).unwrap();
        self.close(listener).unwrap();
        (fd, iss)
    }

    /// The peer opens a connection from port 9.
    pub fn opens(&self, port: u16) -> u32 {
        self.peer((9, port), TcpFlags::SYN, 0, None, b"");
        let answer = self.segment();
        assert_eq!(answer.flags, TcpFlags::SYN | TcpFlags::ACK);
        let iss = answer.seq.wrapping_add(1);
        self.peer((9, port), TcpFlags::ACK, 1, Some(iss), b"");
        iss
    }
}

/// How long a call may take until its thread sleeps.
const PATIENCE: Duration = Duration::from_secs(20);

/// A call in a second thread, which sleeps in it by now: its state is looked at, as packetdrill does.
pub fn waits<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let (says, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        says.send(rustix::thread::gettid()).unwrap();
        call()
    });
    let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap());
    // Behind the name, which may be anything.
    let is_asleep = || {
        let text = std::fs::read_to_string(&stat).unwrap_or_default();
        text.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
    };
    let deadline = Instant::now() + PATIENCE;
    while !is_asleep() {
        assert!(!thread.is_finished(), "it does not wait");
        assert!(Instant::now() < deadline, "it neither sleeps nor ends");
        thread::sleep(Duration::from_millis(1));
    }
    thread
}

/// A segment that the stack sent.
#[derive(Clone, Debug)]
pub struct Got {
    pub src: SocketAddr,
    pub dst_port: u16,
    pub flags: TcpFlags,
    pub seq: u32,
    pub ack: u32,
    pub text: Vec<u8>,
    pub options: Vec<u8>,
    pub time: i64,
}

/// `struct sockaddr_in` or `sockaddr_in6`.
pub fn sockaddr(address: SocketAddr) -> Vec<u8> {
    let (family, len) = match address {
        SocketAddr::V4(_) => (libc::AF_INET, size_of::<libc::sockaddr_in>()),
        SocketAddr::V6(_) => (libc::AF_INET6, size_of::<libc::sockaddr_in6>()),
    };
    let mut bytes = (family as u16).to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => bytes.extend(ip.octets()),
        IpAddr::V6(ip) => {
            bytes.extend([0; 4]);
            bytes.extend(ip.octets());
        }
    }
    bytes.resize(len, 0);
    bytes
}

impl Drill {
    /// The peer answers a segment of ours.
    pub fn peer_to(&self, got: &Got, flags: TcpFlags, seq: u32, text: &[u8]) {
        let next = got.seq.wrapping_add(1);
        self.peer_from(got, flags, seq, next, text);
    }

    fn peer_from(&self, got: &Got, flags: TcpFlags, seq: u32, ack: u32, text: &[u8]) {
        let here = Self { local: Some(got.src.ip()), ..*self };
        here.peer((got.dst_port, got.src.port()), flags, seq, Some(ack), text);
    }

    pub fn set_timeout(&self, fd: i32, name: i32, seconds: i64) {
        let value = libc::timeval { tv_sec: seconds, tv_usec: 0 };
        // SAFETY: the value lives until the call returns.
        let set = unsafe {
            (self.table.setsockopt)(
                self.table.userdata,
                fd,
                libc::SOL_SOCKET,
                name,
                (&raw const value).cast(),
                size_of::<libc::timeval>() as u32,
            )
        };
        assert_eq!(set, 0);
    }
}
