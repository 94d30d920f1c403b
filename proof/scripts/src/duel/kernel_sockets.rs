//! The socket calls of an exchange made of the kernel, with the words that our sockets answer in.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use firelane_sim::Pattern;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt};

use crate::segment::{OUR_TEXT, PEER_TEXT};
use crate::settings::{number, on};
use crate::sockets::Effect;
use crate::station::{NUMBER, THEIR_NUMBER, address};
use crate::text::{Call, span};

/// The program's sockets by name.
pub(super) struct KernelSockets {
    is_v6: bool,
    own: IpAddr,
    peer: IpAddr,
    named: BTreeMap<String, Socket>,
}

struct Socket {
    fd: OwnedFd,
    written: u64,
    read: u64,
    is_stream: bool,
}

/// Linux's flag for a `sendto` that connects (RFC 7413).
const MSG_FASTOPEN: u32 = 0x2000_0000;

type Answer = Result<(String, Effect), String>;

impl KernelSockets {
    pub(super) fn new(is_v6: bool) -> Self {
        Self {
            is_v6,
            own: address(THEIR_NUMBER, is_v6),
            peer: address(NUMBER, is_v6),
            named: BTreeMap::new(),
        }
    }

    pub(super) fn call(&mut self, call: &Call) -> Answer {
        let words: Vec<&str> = call.arguments.iter().map(String::as_str).collect();
        let done = |result: Result<String, Errno>| Ok((result.unwrap_or_else(word_of), Effect::None));
        match (call.function.as_str(), &words[..]) {
            ("listen", [port]) => self.listen(call, number(port)?, 16),
            ("listen", [port, backlog]) => self.listen(call, number(port)?, number(backlog)?),
            ("connect", [port]) => self.connect(call, number(port)?, None),
            ("connect", [port, "new", with] | [port, with]) => {
                let count = with.strip_prefix("with ").ok_or(format!("`{with}` is not like `with 10`"))?;
                self.connect(call, number(port)?, Some(number(count)?))
            }
            ("accept", [name]) => {
                let taken = rustix::net::accept_with(&self.socket(name)?.fd, flags());
                done(taken.map(|fd| self.keep(call, fd, true)))
            }
            ("connected", [name]) => done(connected(&self.socket(name)?.fd)),
            ("write", [name, count]) => {
                let result = self.socket(name)?.send(number(count)?, None);
                done(result.map(|count| count.to_string()))
            }
            ("read", [name, count]) => done(self.socket(name)?.read(number(count)?)),
            ("shutdown" | "shutdown_read", [name]) => {
                let how = if call.function == "shutdown" { Shutdown::Write } else { Shutdown::Read };
                let result = rustix::net::shutdown(&self.socket(name)?.fd, how);
                done(result.map(|()| "ok".into()))
            }
            ("close", [name]) => {
                self.named.remove(*name).ok_or_else(|| format!("`{name}` is no socket"))?;
                done(Ok("ok".into()))
            }
            ("abort", [name]) => {
                let socket = self.named.remove(*name).ok_or_else(|| format!("`{name}` is no socket"))?;
                let result = sockopt::set_socket_linger(&socket.fd, Some(Duration::ZERO));
                done(result.map(|()| "ok".into()))
            }
            ("set", [name, option, values @ ..]) => {
                let is_v6 = self.is_v6;
                let result = set(&self.socket(name)?.fd, is_v6, option, values)?;
                done(result.map(|()| "ok".into()))
            }
            ("bind", [port, words @ ..]) => self.bind(call, number(port)?, words),
            ("send", [name, count, words @ ..]) => {
                let to = self.peer_of(words)?;
                let result = self.socket(name)?.send(number(count)?, to);
                done(result.map(|_| "ok".into()))
            }
            ("recv", [name, room]) => done(self.socket(name)?.recv(number(room)?)),
            (function, words) => Err(format!("there is no {function} with {} arguments", words.len())),
        }
    }

    fn socket(&mut self, name: &str) -> Result<&mut Socket, String> {
        self.named.get_mut(name).ok_or_else(|| format!("`{name}` is no socket"))
    }

    /// `to 40000`, if it is said.
    fn peer_of(&self, words: &[&str]) -> Result<Option<SocketAddr>, String> {
        let [word] = words else { return Ok(None) };
        let port = word.strip_prefix("to ").ok_or(format!("`{word}` is not like `to 40000`"))?;
        Ok(Some(SocketAddr::new(self.peer, number(port)?)))
    }

    fn keep(&mut self, call: &Call, fd: OwnedFd, is_stream: bool) -> String {
        let socket = Socket { fd, written: 0, read: 0, is_stream };
        self.named.insert(call.name.clone().unwrap_or_default(), socket);
        "ok".into()
    }

    fn open(&self, kind: SocketType) -> Result<OwnedFd, String> {
        let family = if self.is_v6 { AddressFamily::INET6 } else { AddressFamily::INET };
        rustix::net::socket_with(family, kind, flags(), None).map_err(|error| error.to_string())
    }

    fn listen(&mut self, call: &Call, port: u16, backlog: i32) -> Answer {
        let fd = self.open(SocketType::STREAM)?;
        let own = SocketAddr::new(self.own, port);
        let result = sockopt::set_socket_reuseaddr(&fd, true)
            .and_then(|()| rustix::net::bind(&fd, &own))
            .and_then(|()| rustix::net::listen(&fd, backlog));
        let word = result.map_or_else(word_of, |()| self.keep(call, fd, true));
        Ok((word, Effect::Listens(port)))
    }

    /// Connects, with so many bytes of text that the SYN may carry.
    fn connect(&mut self, call: &Call, port: u16, with: Option<usize>) -> Answer {
        let fd = self.open(SocketType::STREAM)?;
        let (peer, mut written) = (SocketAddr::new(self.peer, port), 0);
        let begun = match with {
            None => rustix::net::connect(&fd, &peer),
            Some(count) => {
                let mut bytes = vec![0; count];
                OUR_TEXT.fill(0, &mut bytes);
                rustix::net::sendto(&fd, &bytes, SendFlags::from_bits_retain(MSG_FASTOPEN), &peer)
                    .map(|sent| written = sent as u64)
            }
        };
        if let Err(error) = begun
            && error != Errno::INPROGRESS
        {
            return Ok((word_of(error), Effect::None));
        }
        let local = rustix::net::getsockname(&fd).ok().and_then(|any| SocketAddr::try_from(any).ok());
        let local = local.ok_or("a socket that connects has no name")?;
        let word = self.keep(call, fd, true);
        if let Some(socket) = self.named.get_mut(call.name.as_deref().unwrap_or_default()) {
            socket.written = written;
        }
        Ok((word, Effect::Connects(local.port(), port)))
    }

    fn bind(&mut self, call: &Call, port: u16, words: &[&str]) -> Answer {
        let fd = self.open(SocketType::DGRAM)?;
        let mut result = rustix::net::bind(&fd, &SocketAddr::new(self.own, port));
        if let Some(peer) = self.peer_of(words)? {
            result = result.and_then(|()| rustix::net::connect(&fd, &peer));
        }
        Ok((result.map_or_else(word_of, |()| self.keep(call, fd, false)), Effect::None))
    }
}

impl Socket {
    fn send(&mut self, count: usize, to: Option<SocketAddr>) -> Result<usize, Errno> {
        let mut bytes = vec![0; count];
        OUR_TEXT.fill(if self.is_stream { self.written } else { 0 }, &mut bytes);
        let sent = match to {
            Some(to) => rustix::net::sendto(&self.fd, &bytes, SendFlags::NOSIGNAL, &to)?,
            None => rustix::net::send(&self.fd, &bytes, SendFlags::NOSIGNAL)?,
        };
        self.written += sent as u64;
        Ok(sent)
    }

    fn read(&mut self, count: usize) -> Result<String, Errno> {
        let mut bytes = vec![0; count];
        let got = rustix::io::read(&self.fd, &mut bytes)?;
        let at = self.read;
        self.read += got as u64;
        Ok(if got == 0 && count > 0 { "eof".into() } else { checked(PEER_TEXT, at, &bytes[..got]) })
    }

    fn recv(&mut self, room: usize) -> Result<String, Errno> {
        let mut bytes = vec![0; room];
        let (got, _) = rustix::net::recv(&self.fd, &mut bytes[..], RecvFlags::empty())?;
        Ok(checked(PEER_TEXT, 0, &bytes[..got]))
    }
}

/// How many bytes came, if they are those of the pattern.
fn checked(text: Pattern, at: u64, bytes: &[u8]) -> String {
    text.first_wrong(at, bytes).map_or(bytes.len().to_string(), |wrong| format!("a wrong byte at {wrong}"))
}

fn flags() -> SocketFlags {
    SocketFlags::NONBLOCK | SocketFlags::CLOEXEC
}

fn connected(fd: &OwnedFd) -> Result<String, Errno> {
    sockopt::socket_error(fd)??;
    Ok(match rustix::net::getpeername(fd) {
        Ok(_) => "yes".into(),
        Err(_) => "no".into(),
    })
}

fn set(fd: &OwnedFd, is_v6: bool, option: &str, values: &[&str]) -> Result<Result<(), Errno>, String> {
    Ok(match (option, values) {
        ("nodelay", [word]) => sockopt::set_tcp_nodelay(fd, on(word)?),
        ("quickack", [word]) => sockopt::set_tcp_quickack(fd, on(word)?),
        ("cork", [word]) => sockopt::set_tcp_cork(fd, on(word)?),
        ("user_timeout", [seconds]) => sockopt::set_tcp_user_timeout(fd, span(seconds)?.as_millis() as u32),
        ("ttl", [n]) if is_v6 => sockopt::set_ipv6_unicast_hops(fd, Some(number(n)?)),
        ("ttl", [n]) => sockopt::set_ip_ttl(fd, number(n)?),
        ("keepalive", [idle, interval, probes]) => sockopt::set_tcp_keepidle(fd, span(idle)?)
            .and_then(|()| sockopt::set_tcp_keepintvl(fd, span(interval).unwrap_or_default()))
            .and_then(|()| sockopt::set_tcp_keepcnt(fd, number(probes).unwrap_or(1)))
            .and_then(|()| sockopt::set_socket_keepalive(fd, true)),
        _ => return Err(format!("`{option}` is no option with such values")),
    })
}

/// The word of an error in a script.
fn word_of(error: Errno) -> String {
    match error {
        Errno::AGAIN => "again",
        Errno::CONNREFUSED => "refused",
        Errno::CONNRESET => "reset",
        Errno::TIMEDOUT => "timedout",
        Errno::HOSTUNREACH | Errno::NETUNREACH => "unreachable",
        Errno::CONNABORTED => "aborted",
        Errno::PIPE => "closed",
        Errno::MSGSIZE => "toolong",
        Errno::ACCESS => "forbidden",
        Errno::NOPROTOOPT => "noprotocol",
        Errno::PROTO => "badheader",
        _ => return error.to_string(),
    }
    .into()
}
