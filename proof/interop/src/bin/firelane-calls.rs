//! Asks a socket in each of its states for everything that can go wrong, and prints the answers.
//!
//! `firelane-calls ADDRESS` runs with an address of its own host, over the kernel or under the preloaded library; a
//! test compares what the two print, line by line. Every line is made with fresh sockets, so each stands alone.

// Every unsafe block here is one of libc's calls with pointers to locals, or, on purpose, to nowhere.
#![allow(clippy::undocumented_unsafe_blocks)]

use std::ffi::{c_int, c_void};
use std::mem::{size_of, zeroed};
use std::net::Ipv4Addr;
use std::ptr::{null, null_mut};

use libc::{iovec, msghdr, pollfd, sockaddr, sockaddr_in, socklen_t};

/// A socket in some state, and what keeps it there.
struct Subject {
    fd: c_int,
    others: Vec<c_int>,
    address: Ipv4Addr,
}

impl Drop for Subject {
    fn drop(&mut self) {
        for &fd in self.others.iter().chain([&self.fd]) {
            unsafe { libc::close(fd) };
        }
    }
}

type State = (&'static str, fn(Ipv4Addr) -> Subject);
type Call = (&'static str, fn(&Subject) -> i64);

fn name_of(address: Ipv4Addr, port: u16) -> sockaddr_in {
    let mut name: sockaddr_in = unsafe { zeroed() };
    name.sin_family = libc::AF_INET as u16;
    name.sin_port = port.to_be();
    name.sin_addr.s_addr = u32::from(address).to_be();
    name
}

const NAME_BYTES: socklen_t = size_of::<sockaddr_in>() as socklen_t;

fn bind(fd: c_int, name: &sockaddr_in, len: socklen_t) -> i64 {
    unsafe { libc::bind(fd, (&raw const *name).cast(), len) }.into()
}

fn connect(fd: c_int, name: &sockaddr_in, len: socklen_t) -> i64 {
    unsafe { libc::connect(fd, (&raw const *name).cast(), len) }.into()
}

fn port_of(fd: c_int) -> u16 {
    let mut name = name_of(Ipv4Addr::UNSPECIFIED, 0);
    let mut len = NAME_BYTES;
    assert_eq!(unsafe { libc::getsockname(fd, (&raw mut name).cast(), &mut len) }, 0, "getsockname");
    u16::from_be(name.sin_port)
}

fn plain(kind: c_int, address: Ipv4Addr) -> Subject {
    let fd = unsafe { libc::socket(libc::AF_INET, kind | libc::SOCK_NONBLOCK, 0) };
    assert!(fd >= 0, "socket: {}", std::io::Error::last_os_error());
    Subject { fd, others: Vec::new(), address }
}

fn fresh(address: Ipv4Addr) -> Subject {
    plain(libc::SOCK_STREAM, address)
}

fn bound(address: Ipv4Addr) -> Subject {
    let subject = fresh(address);
    assert_eq!(bind(subject.fd, &name_of(address, 0), NAME_BYTES), 0, "bind");
    subject
}

fn listening(address: Ipv4Addr) -> Subject {
    let subject = bound(address);
    assert_eq!(unsafe { libc::listen(subject.fd, 8) }, 0, "listen");
    subject
}

fn wait(fd: c_int, events: i16) {
    let mut entry = pollfd { fd, events, revents: 0 };
    let count = unsafe { libc::poll(&mut entry, 1, 3000) };
    assert_eq!(count, 1, "poll for {events:#x}");
}

fn connected(address: Ipv4Addr) -> Subject {
    let mut listener = listening(address);
    let mut subject = fresh(address);
    connect(subject.fd, &name_of(address, port_of(listener.fd)), NAME_BYTES);
    wait(listener.fd, libc::POLLIN);
    let peer = unsafe { libc::accept4(listener.fd, null_mut(), null_mut(), libc::SOCK_NONBLOCK) };
    assert!(peer >= 0, "accept");
    wait(subject.fd, libc::POLLOUT);
    subject.others = vec![peer, std::mem::replace(&mut listener.fd, -1)];
    subject
}

fn refused(address: Ipv4Addr) -> Subject {
    let port = port_of(bound(address).fd);
    let subject = fresh(address);
    connect(subject.fd, &name_of(address, port), NAME_BYTES);
    wait(subject.fd, libc::POLLOUT);
    subject
}

fn finished(address: Ipv4Addr) -> Subject {
    let subject = connected(address);
    assert_eq!(unsafe { libc::shutdown(subject.fd, libc::SHUT_WR) }, 0, "shutdown");
    subject
}

fn deaf(address: Ipv4Addr) -> Subject {
    let subject = connected(address);
    assert_eq!(unsafe { libc::shutdown(subject.fd, libc::SHUT_RD) }, 0, "shutdown");
    subject
}

fn with_data(address: Ipv4Addr) -> Subject {
    let subject = connected(address);
    assert_eq!(unsafe { libc::send(subject.others[0], b"hello".as_ptr().cast(), 5, 0) }, 5, "send");
    wait(subject.fd, libc::POLLIN);
    subject
}

fn peer_finished(address: Ipv4Addr) -> Subject {
    let subject = connected(address);
    assert_eq!(unsafe { libc::shutdown(subject.others[0], libc::SHUT_WR) }, 0, "shutdown");
    wait(subject.fd, libc::POLLIN);
    subject
}

fn reset(address: Ipv4Addr) -> Subject {
    let mut subject = connected(address);
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let peer = subject.others.remove(0);
    unsafe {
        let value = (&raw const linger).cast();
        libc::setsockopt(
            peer,
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            value,
            size_of::<libc::linger>() as socklen_t,
        );
        libc::close(peer);
    }
    wait(subject.fd, libc::POLLIN);
    subject
}

const STATES: &[State] = &[
    ("fresh", fresh),
    ("bound", bound),
    ("listening", listening),
    ("refused", refused),
    ("connected", connected),
    ("with data", with_data),
    ("finished", finished),
    ("deaf", deaf),
    ("peer finished", peer_finished),
    ("reset", reset),
];

fn get_option(s: &Subject, level: c_int, name: c_int) -> i64 {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    let answer = unsafe { libc::getsockopt(s.fd, level, name, (&raw mut value).cast(), &mut len) };
    if answer == 0 { i64::from(value) } else { -1 }
}

fn set_option(s: &Subject, level: c_int, name: c_int, value: c_int, len: socklen_t) -> i64 {
    unsafe { libc::setsockopt(s.fd, level, name, (&raw const value).cast(), len) }.into()
}

fn poll_now(s: &Subject, events: i16) -> i64 {
    let mut entry = pollfd { fd: s.fd, events, revents: 0 };
    let count = unsafe { libc::poll(&mut entry, 1, 0) };
    i64::from(count) << 16 | i64::from(entry.revents)
}

fn recv(s: &Subject, len: usize, flags: c_int) -> i64 {
    let mut bytes = [0_u8; 16];
    unsafe { libc::recv(s.fd, bytes.as_mut_ptr().cast(), len.min(16), flags | libc::MSG_DONTWAIT) as i64 }
}

fn send(s: &Subject, len: usize, flags: c_int) -> i64 {
    let bytes = [7_u8; 16];
    let flags = flags | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    unsafe { libc::send(s.fd, bytes.as_ptr().cast(), len.min(16), flags) as i64 }
}

/// Sends a message, or receives one, with so many pieces of one byte.
fn message(s: &Subject, pieces: usize, sends: bool) -> i64 {
    let mut byte = 1_u8;
    let mut list = vec![iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 }; pieces];
    let mut header: msghdr = unsafe { zeroed() };
    header.msg_iov = list.as_mut_ptr();
    header.msg_iovlen = pieces as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    unsafe {
        if sends {
            libc::sendmsg(s.fd, &header, flags) as i64
        } else {
            libc::recvmsg(s.fd, &mut header, flags) as i64
        }
    }
}

const NOWHERE: usize = 1;

fn nowhere<T>() -> *mut T {
    std::ptr::without_provenance_mut(NOWHERE)
}

const CALLS: &[Call] = &[
    ("bind to nowhere", |s| unsafe { libc::bind(s.fd, nowhere::<sockaddr>(), NAME_BYTES).into() }),
    ("bind, short", |s| bind(s.fd, &name_of(s.address, 0), 15)),
    ("bind, long", |s| bind(s.fd, &name_of(s.address, 0), 129)),
    ("bind, other family", |s| {
        let mut name = name_of(s.address, 0);
        name.sin_family = libc::AF_UNIX as u16;
        bind(s.fd, &name, NAME_BYTES)
    }),
    ("bind, not our address", |s| bind(s.fd, &name_of(Ipv4Addr::new(203, 0, 113, 9), 0), NAME_BYTES)),
    ("bind", |s| bind(s.fd, &name_of(s.address, 0), NAME_BYTES)),
    ("listen", |s| unsafe { libc::listen(s.fd, 4).into() }),
    ("listen, negative", |s| unsafe { libc::listen(s.fd, -1).into() }),
    ("accept", |s| unsafe { libc::accept(s.fd, null_mut(), null_mut()).into() }),
    ("accept4, unknown flag", |s| unsafe { libc::accept4(s.fd, null_mut(), null_mut(), 1).into() }),
    ("connect, short", |s| connect(s.fd, &name_of(s.address, 9), 15)),
    ("connect, to nowhere", |s| unsafe { libc::connect(s.fd, nowhere::<sockaddr>(), NAME_BYTES).into() }),
    ("connect, other family", |s| {
        let mut name = name_of(s.address, 9);
        name.sin_family = libc::AF_UNIX as u16;
        connect(s.fd, &name, NAME_BYTES)
    }),
    ("getsockname, no length", |s| {
        let mut name = name_of(s.address, 0);
        unsafe { libc::getsockname(s.fd, (&raw mut name).cast(), nowhere()).into() }
    }),
    ("getsockname, room for two", |s| {
        let (mut name, mut len) = (name_of(Ipv4Addr::UNSPECIFIED, 0), 2);
        let answer = unsafe { libc::getsockname(s.fd, (&raw mut name).cast(), &mut len) };
        i64::from(answer) << 8 | i64::from(len)
    }),
    ("getsockname, negative", |s| {
        let (mut name, mut len) = (name_of(s.address, 0), -1_i32 as socklen_t);
        unsafe { libc::getsockname(s.fd, (&raw mut name).cast(), &mut len).into() }
    }),
    ("getpeername", |s| {
        let (mut name, mut len) = (name_of(s.address, 0), NAME_BYTES);
        unsafe { libc::getpeername(s.fd, (&raw mut name).cast(), &mut len).into() }
    }),
    ("shutdown, unknown", |s| unsafe { libc::shutdown(s.fd, 3).into() }),
    ("shutdown, read", |s| unsafe { libc::shutdown(s.fd, libc::SHUT_RD).into() }),
    ("shutdown, write", |s| unsafe { libc::shutdown(s.fd, libc::SHUT_WR).into() }),
    ("shutdown twice", |s| unsafe {
        libc::shutdown(s.fd, libc::SHUT_RDWR);
        libc::shutdown(s.fd, libc::SHUT_RDWR).into()
    }),
    ("recv", |s| recv(s, 16, 0)),
    ("recv twice", |s| {
        recv(s, 16, 0);
        recv(s, 16, 0)
    }),
    ("recv, nothing", |s| recv(s, 0, 0)),
    ("recv, peek", |s| recv(s, 16, libc::MSG_PEEK)),
    ("recv, truncating", |s| recv(s, 2, libc::MSG_TRUNC)),
    ("recv, out of band", |s| recv(s, 1, libc::MSG_OOB)),
    ("recv, error queue", |s| recv(s, 16, libc::MSG_ERRQUEUE)),
    ("read to nowhere", |s| unsafe { libc::read(s.fd, nowhere::<c_void>(), 4) as i64 }),
    ("read, nothing", |s| unsafe { libc::read(s.fd, null_mut(), 0) as i64 }),
    ("readv, nothing", |s| unsafe { libc::readv(s.fd, null(), 0) as i64 }),
    ("readv, negative", |s| unsafe { libc::readv(s.fd, null(), -1) as i64 }),
    ("readv, too many", |s| unsafe {
        let list = vec![iovec { iov_base: null_mut(), iov_len: 0 }; 1025];
        libc::readv(s.fd, list.as_ptr(), 1025) as i64
    }),
    ("recvmsg", |s| message(s, 3, false)),
    ("recvmsg, too many", |s| message(s, 1025, false)),
    ("pread", |s| {
        let mut bytes = [0_u8; 4];
        unsafe { libc::pread(s.fd, bytes.as_mut_ptr().cast(), 4, 0) as i64 }
    }),
    ("lseek", |s| unsafe { libc::lseek(s.fd, 0, libc::SEEK_SET) }),
    ("send", |s| send(s, 4, 0)),
    ("send twice", |s| {
        send(s, 4, 0);
        send(s, 4, 0)
    }),
    ("send, nothing", |s| send(s, 0, 0)),
    ("send from nowhere", |s| unsafe {
        libc::send(s.fd, nowhere::<c_void>(), 4, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as i64
    }),
    ("sendto an address", |s| unsafe {
        let name = name_of(s.address, 9);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        libc::sendto(s.fd, b"x".as_ptr().cast(), 1, flags, (&raw const name).cast(), NAME_BYTES) as i64
    }),
    ("write, nothing", |s| unsafe { libc::write(s.fd, null(), 0) as i64 }),
    ("writev, nothing", |s| unsafe { libc::writev(s.fd, null(), 0) as i64 }),
    ("writev, negative", |s| unsafe { libc::writev(s.fd, null(), -1) as i64 }),
    ("sendmsg", |s| message(s, 3, true)),
    ("sendmsg, too many", |s| message(s, 1025, true)),
    ("sendfile from itself", |s| unsafe { libc::sendfile(s.fd, s.fd, null_mut(), 4) as i64 }),
    ("sendfile from a closed one", |s| unsafe { libc::sendfile(s.fd, 999, null_mut(), 4) as i64 }),
    ("poll, all", |s| poll_now(s, libc::POLLIN | libc::POLLOUT | libc::POLLPRI | libc::POLLRDHUP)),
    ("poll, nothing", |s| poll_now(s, 0)),
    ("select beyond", |s| unsafe {
        let mut set: libc::fd_set = zeroed();
        libc::FD_SET(s.fd, &mut set);
        libc::select(-1, &mut set, null_mut(), null_mut(), null_mut()).into()
    }),
    ("epoll_ctl, change what is not there", |s| unsafe {
        let epoll = libc::epoll_create1(0);
        let mut event = libc::epoll_event { events: 1, u64: 1 };
        let answer = libc::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, s.fd, &mut event);
        let errno = *libc::__errno_location();
        libc::close(epoll);
        *libc::__errno_location() = errno;
        answer.into()
    }),
    ("epoll_ctl, add twice", |s| unsafe {
        let epoll = libc::epoll_create1(0);
        let mut event = libc::epoll_event { events: 1, u64: 1 };
        libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, s.fd, &mut event);
        let answer = libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, s.fd, &mut event);
        let errno = *libc::__errno_location();
        libc::close(epoll);
        *libc::__errno_location() = errno;
        answer.into()
    }),
    ("epoll_wait, all", |s| unsafe {
        let epoll = libc::epoll_create1(0);
        let wanted = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLPRI | libc::EPOLLRDHUP;
        let mut event = libc::epoll_event { events: wanted as u32, u64: 1 };
        libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, s.fd, &mut event);
        let mut got = libc::epoll_event { events: 0, u64: 0 };
        let count = libc::epoll_wait(epoll, &mut got, 1, 0);
        libc::close(epoll);
        let events = got.events;
        i64::from(count) << 16 | i64::from(events)
    }),
    ("SO_ERROR", |s| get_option(s, libc::SOL_SOCKET, libc::SO_ERROR)),
    ("SO_TYPE", |s| get_option(s, libc::SOL_SOCKET, libc::SO_TYPE)),
    ("SO_DOMAIN", |s| get_option(s, libc::SOL_SOCKET, libc::SO_DOMAIN)),
    ("SO_PROTOCOL", |s| get_option(s, libc::SOL_SOCKET, libc::SO_PROTOCOL)),
    ("SO_ACCEPTCONN", |s| get_option(s, libc::SOL_SOCKET, libc::SO_ACCEPTCONN)),
    ("SO_KEEPALIVE", |s| get_option(s, libc::SOL_SOCKET, libc::SO_KEEPALIVE)),
    ("TCP_NODELAY", |s| get_option(s, libc::IPPROTO_TCP, libc::TCP_NODELAY)),
    ("TCP_NODELAY, set", |s| {
        set_option(s, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1, 4);
        get_option(s, libc::IPPROTO_TCP, libc::TCP_NODELAY)
    }),
    ("TCP_NODELAY, one byte", |s| set_option(s, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1, 1)),
    ("SO_REUSEADDR, one byte", |s| set_option(s, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1, 1)),
    ("SO_TYPE, set", |s| set_option(s, libc::SOL_SOCKET, libc::SO_TYPE, 1, 4)),
    ("TCP option 999", |s| set_option(s, libc::IPPROTO_TCP, 999, 1, 4)),
    ("TCP option 999, get", |s| get_option(s, libc::IPPROTO_TCP, 999)),
    ("SOL_SOCKET option 999", |s| set_option(s, libc::SOL_SOCKET, 999, 1, 4)),
    ("level 999", |s| set_option(s, 999, 1, 1, 4)),
    ("level 999, get", |s| get_option(s, 999, 1)),
    ("setsockopt from nowhere", |s| unsafe {
        libc::setsockopt(s.fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, nowhere::<c_void>(), 4).into()
    }),
    ("FIONREAD", |s| {
        let mut count: c_int = -7;
        let answer = unsafe { libc::ioctl(s.fd, libc::FIONREAD, &mut count) };
        i64::from(answer) << 32 | i64::from(count)
    }),
    ("TIOCOUTQ", |s| {
        let mut count: c_int = -7;
        unsafe { libc::ioctl(s.fd, libc::TIOCOUTQ, &mut count) }.into()
    }),
    ("ioctl, a terminal's", |s| {
        let mut size = [0_u16; 4];
        unsafe { libc::ioctl(s.fd, libc::TIOCGWINSZ, &mut size) }.into()
    }),
    ("fcntl, flags", |s| {
        i64::from(unsafe { libc::fcntl(s.fd, libc::F_GETFL) } & (libc::O_NONBLOCK | libc::O_ACCMODE))
    }),
    ("fcntl, unknown", |s| unsafe { libc::fcntl(s.fd, 999).into() }),
    ("dup2 to -1", |s| unsafe { libc::dup2(s.fd, -1).into() }),
    ("dup3 to itself", |s| unsafe { libc::dup3(s.fd, s.fd, 0).into() }),
    ("dup, then read the copy", |s| unsafe {
        let copy = libc::dup(s.fd);
        let mut byte = 0_u8;
        let answer = libc::recv(copy, (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) as i64;
        let errno = *libc::__errno_location();
        libc::close(copy);
        *libc::__errno_location() = errno;
        answer
    }),
    ("ftruncate", |s| unsafe { libc::ftruncate(s.fd, 0).into() }),
    ("closed", |s| unsafe {
        let copy = libc::dup(s.fd);
        libc::close(copy);
        libc::shutdown(copy, libc::SHUT_WR).into()
    }),
    ("kind by fstat", |s| unsafe {
        let mut stat: libc::stat = zeroed();
        libc::fstat(s.fd, &mut stat);
        i64::from(stat.st_mode & libc::S_IFMT)
    }),
];

fn main() {
    let address =
        std::env::args().nth(1).and_then(|text| text.parse().ok()).expect("usage: firelane-calls ADDRESS");
    for (state_name, state) in STATES {
        for (call_name, call) in CALLS {
            let subject = state(address);
            // A value that no call sets, so that one that succeeds is seen to leave it.
            unsafe { *libc::__errno_location() = 0x5EED };
            let answer = call(&subject);
            let errno = unsafe { *libc::__errno_location() };
            let told = if answer == -1 { format!("errno {errno}") } else { format!("{answer}") };
            println!("{state_name}: {call_name}: {told}");
        }
    }
}
