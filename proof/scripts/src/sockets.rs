//! The socket calls of a script, and their results as words.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use firelane_lane::{Connect, LaneMessage, Listen, Relisten, SocketCommand, StreamOption};
use firelane_sim::{Sim, StackId};
use firelane_socket::{
    Accepted, Flags, ListenerEnd, ReadError, SocketError, StreamEnd, UrgentError, UrgentMode, WriteError,
    listener, stream,
};
use firelane_tcp::FastOpenCounters;
use firelane_tcp::congestion::Algorithm;
use firelane_units::{BitRate, Family, LaneId, SocketId};

use crate::datagrams::DatagramSocket;
use crate::segment::{OUR_TEXT, PEER_TEXT};
use crate::settings::{Settings, keepalive, number, on};
use crate::text::{Call, span};

/// A script's sockets by name.
pub(crate) struct Sockets {
    stack: StackId,
    is_v6: bool,
    peer: std::net::IpAddr,
    named: BTreeMap<String, Socket>,
}

enum Socket {
    Listener { end: ListenerEnd, socket: SocketId },
    Stream(Box<Stream>),
    Datagrams(Box<DatagramSocket>),
}

struct Stream {
    end: StreamEnd,
    written: u64,
}

/// What a call brought about, beside its result.
pub(crate) enum Effect {
    None,
    /// A listener at this port.
    Listens(u16),
    /// A connection from this port of ours to that of the peer.
    Connects(u16, u16),
}

type Answer = Result<(String, Effect), String>;

impl Sockets {
    pub(crate) fn new(stack: StackId, is_v6: bool, peer: std::net::IpAddr) -> Self {
        Self { stack, is_v6, peer, named: BTreeMap::new() }
    }

    /// The netstack has another setting from here on.
    fn tune(&self, sim: &mut Sim, settings: &Settings, setting: &str) -> Result<String, String> {
        let mut tuned = settings.clone();
        tuned.take(setting)?;
        sim.tune(self.stack, &tuned.stack(self.stack.number));
        Ok("ok".into())
    }

    /// Makes a call. `Err` is a mistake of the script's.
    pub(crate) fn call(&mut self, sim: &mut Sim, settings: &Settings, call: &Call) -> Answer {
        let words: Vec<&str> = call.arguments.iter().map(String::as_str).collect();
        let done = |word: String| Ok((word, Effect::None));
        match (call.function.as_str(), &words[..]) {
            ("listen", [port]) => self.listen(sim, settings, call, port, 16),
            ("listen", [port, backlog]) => self.listen(sim, settings, call, port, number(backlog)?),
            ("connect", [port, words @ ..]) => self.connect(sim, settings, call, number(port)?, words),
            ("bind", words) => {
                let socket = DatagramSocket::bind(sim, settings, (self.stack, self.peer), words)?;
                self.named.insert(Self::name(call)?, Socket::Datagrams(Box::new(socket)));
                done("ok".into())
            }
            ("send", [name, words @ ..]) => {
                let ends = (self.stack, self.peer);
                done(self.datagrams(name)?.send(sim, ends, words)?)
            }
            ("recv", [name, room]) => done(self.datagrams(name)?.recv(number(room)?)),
            ("accept", [name]) => done(self.accept(call, name)?),
            ("write", [name, count]) => done(self.write(sim, name, number(count)?)?),
            ("read", [name, count]) => done(self.read(sim, name, number(count)?)?),
            ("connected", [name]) => done(match self.stream(name)?.end.poll_connected() {
                Ok(true) => "yes".into(),
                Ok(false) => "no".into(),
                Err(error) => word_of(error).into(),
            }),
            ("doubtful", [name]) => {
                let flags = self.stream(name)?.end.shared().words().flags();
                done(if flags.contains(Flags::DOUBTFUL) { "yes" } else { "no" }.into())
            }
            ("unacknowledged", [name]) => done(self.stream(name)?.end.send.unacknowledged().to_string()),
            ("shutdown", [name]) => {
                self.stream(name)?.end.send.shut();
                self.command(sim, name, SocketCommand::Shutdown)?;
                done("ok".into())
            }
            ("shutdown_read", [name]) => {
                self.command(sim, name, SocketCommand::ShutdownRead)?;
                done("ok".into())
            }
            ("close", [name]) => done(self.close(sim, name)?),
            ("abort", [name]) => {
                self.command(sim, name, SocketCommand::Abort)?;
                self.named.remove(*name);
                done("ok".into())
            }
            (what @ ("defer" | "buffer"), [name, n]) => {
                self.relisten(sim, name, relistened(settings, what, n)?)?;
                done("ok".into())
            }
            ("set", [name, option, values @ ..]) => {
                self.set(sim, name, option, values)?;
                done("ok".into())
            }
            ("tune", [name, value]) => done(self.tune(sim, settings, &format!("{name} {value}"))?),
            ("write_urgent" | "heed_urgent" | "urgent_left" | "at_mark" | "read_urgent", _) => {
                done(self.urgent(sim, call.function.as_str(), &words)?)
            }
            (function, words) => done(self.look(sim, function, words)?),
        }
    }

    /// The calls that are about urgent text.
    fn urgent(&mut self, sim: &mut Sim, function: &str, words: &[&str]) -> Result<String, String> {
        match (function, words) {
            ("write_urgent", [name, count]) => {
                let count = number(count)?;
                let stream = self.stream(name)?;
                let mut bytes = vec![0; count];
                OUR_TEXT.fill(stream.written, &mut bytes);
                let count = stream.end.send.write(&bytes).unwrap_or(0);
                stream.written += count as u64;
                let end = stream.end.send.cursor();
                self.command(sim, name, |conn| SocketCommand::Urgent(conn, end))?;
                Ok(count.to_string())
            }
            ("heed_urgent", [name, mode]) => {
                let mode = match *mode {
                    "ignored" => UrgentMode::Ignored,
                    "inline" => UrgentMode::Inline,
                    "apart" => UrgentMode::OutOfBand,
                    _ => return Err(format!("`{mode}` is none of ignored, inline, apart")),
                };
                self.stream(name)?.end.recv.heed_urgent(mode);
                Ok("ok".into())
            }
            ("urgent_left", [name]) => {
                let left = self.stream(name)?.end.recv.urgent_left();
                Ok(left.map_or("none".into(), |left| left.to_string()))
            }
            ("at_mark", [name]) => {
                Ok(if self.stream(name)?.end.recv.is_at_mark() { "yes" } else { "no" }.into())
            }
            ("read_urgent", [name]) => Ok(match self.stream(name)?.end.recv.read_urgent(false) {
                Ok(_) => "ok".into(),
                Err(UrgentError::NotYet) => "again".into(),
                Err(UrgentError::Nothing) => "nothing".into(),
            }),
            (function, words) => Err(format!("there is no {function} with {} arguments", words.len())),
        }
    }

    /// The calls that only look.
    fn look(&mut self, sim: &Sim, function: &str, words: &[&str]) -> Result<String, String> {
        match (function, words) {
            ("connections", []) => Ok(sum(sim, |s| s.connections)),
            ("time_wait", []) => Ok(sum(sim, |s| s.time_wait)),
            ("drops", []) => Ok(sum(sim, |s| s.counters.drops.total() as usize)),
            ("drops", [reason]) => Ok(drops(sim, reason)?),
            ("fast_opens", [which]) => Ok(fast_opens(sim, which)?),
            ("syn_text", [name]) => {
                let host = self.stack.host;
                let shared = self.stream(name)?.end.shared();
                let conn = shared.conn().ok_or("the connection was never made")?;
                let info = sim.stream_info(host, shared.lane(), conn);
                Ok(if info.is_some_and(|info| info.tcp.syn_text) { "yes" } else { "no" }.into())
            }
            ("turns", []) => Ok(sum(sim, |s| s.counters.turns as usize)),
            (function, words) => Err(format!("there is no {function} with {} arguments", words.len())),
        }
    }

    fn name(call: &Call) -> Result<String, String> {
        call.name.clone().ok_or_else(|| format!("{} needs a name for its socket", call.function))
    }

    fn stream(&mut self, name: &str) -> Result<&mut Stream, String> {
        match self.named.get_mut(name) {
            Some(Socket::Stream(stream)) => Ok(stream),
            _ => Err(format!("`{name}` is no connection")),
        }
    }

    fn datagrams(&mut self, name: &str) -> Result<&mut DatagramSocket, String> {
        match self.named.get_mut(name) {
            Some(Socket::Datagrams(socket)) => Ok(socket),
            _ => Err(format!("`{name}` is no datagram socket")),
        }
    }

    fn listen(
        &mut self,
        sim: &mut Sim,
        settings: &Settings,
        call: &Call,
        port: &str,
        backlog: usize,
    ) -> Answer {
        let (end, slot) = listener(backlog);
        let port = number(port)?;
        let socket = sim.next_socket(self.stack.host);
        let local = self.stack.at(self.is_v6, port);
        let (rings, options) = (settings.rings, settings.options);
        let listen = Listen { socket, local, v6_only: true, shares: false, slot, rings, options };
        for n in 0..sim.lanes(self.stack.host) {
            let command = SocketCommand::Listen(Box::new(listen.clone()));
            sim.command(self.stack.host, LaneId(n as u16), self.stack.netstack, command);
        }
        self.named.insert(Self::name(call)?, Socket::Listener { end, socket });
        Ok(("ok".into(), Effect::Listens(port)))
    }

    /// A listener's next connections have other options or rings.
    fn relisten(&mut self, sim: &mut Sim, name: &str, started: Relisten) -> Result<(), String> {
        let Some(&Socket::Listener { socket, .. }) = self.named.get(name) else {
            return Err(format!("`{name}` is no listener"));
        };
        for n in 0..sim.lanes(self.stack.host) {
            let command = SocketCommand::Relisten(socket, Box::new(started));
            sim.command(self.stack.host, LaneId(n as u16), self.stack.netstack, command);
        }
        Ok(())
    }

    /// `connect(port, from 5000, to 224.0.0.1, with 100)`: from a port that the program chooses, to somebody else, and with
    /// text that the SYN may carry. With `new` numbers are relative to the new connection's first ones.
    fn connect(
        &mut self,
        sim: &mut Sim,
        settings: &Settings,
        call: &Call,
        port: u16,
        words: &[&str],
    ) -> Answer {
        let (mut end, slot) = stream(settings.rings, LaneId(0), self.stack.netstack);
        let mut options = settings.options;
        let mut written = 0;
        let (mut remote, mut local) = (SocketAddr::new(self.peer, port), None);
        for word in words.iter().filter(|&&word| word != "new") {
            match word.split_once(' ') {
                Some(("from", n)) => local = Some(self.stack.at(self.is_v6, number(n)?)),
                Some(("to", address)) => remote.set_ip(number(address)?),
                Some(("with", count)) => {
                    let mut bytes = vec![0; number(count)?];
                    OUR_TEXT.fill(0, &mut bytes);
                    written = end.send.preload(&bytes) as u64;
                    options.fast_open = true;
                }
                _ => return Err(format!("`{word}` is no part of a connect")),
            }
        }
        let connect = Connect { remote, local, stream: slot, options };
        let command = SocketCommand::Connect(Box::new(connect));
        sim.command(self.stack.host, LaneId(0), self.stack.netstack, command);
        let effect =
            end.shared().names().map_or(Effect::None, |names| Effect::Connects(names.local.port(), port));
        self.named.insert(Self::name(call)?, Socket::Stream(Box::new(Stream { end, written })));
        Ok(("ok".into(), effect))
    }

    fn accept(&mut self, call: &Call, name: &str) -> Result<String, String> {
        let Some(Socket::Listener { end, .. }) = self.named.get(name) else {
            return Err(format!("`{name}` is no listener"));
        };
        let Some(Accepted { stream: end, .. }) = end.accept() else { return Ok("again".into()) };
        self.named.insert(Self::name(call)?, Socket::Stream(Box::new(Stream { end, written: 0 })));
        Ok("ok".into())
    }

    fn write(&mut self, sim: &mut Sim, name: &str, count: usize) -> Result<String, String> {
        let stream = self.stream(name)?;
        let mut bytes = vec![0; count];
        OUR_TEXT.fill(stream.written, &mut bytes);
        let result = stream.end.send.write(&bytes);
        let kicks = result.is_ok() && stream.end.send.nudge().kick;
        stream.written += result.unwrap_or(0) as u64;
        if kicks {
            self.kick(sim, name)?;
        }
        Ok(match result {
            Ok(count) => count.to_string(),
            Err(WriteError::WouldBlock) => "again".into(),
            Err(WriteError::Closed) => "closed".into(),
            Err(WriteError::Failed(error)) => word_of(error).into(),
        })
    }

    fn read(&mut self, sim: &mut Sim, name: &str, count: usize) -> Result<String, String> {
        let stream = self.stream(name)?;
        let mut bytes = vec![0; count];
        let result = stream.end.recv.read(&mut bytes);
        let got = result.unwrap_or(0);
        // An urgent octet that is read apart may lie before it.
        let at = stream.end.recv.cursor() - got as u64;
        let kicks = stream.end.recv.nudge().kick;
        if kicks {
            self.kick(sim, name)?;
        }
        if let Some(wrong) = PEER_TEXT.first_wrong(at, &bytes[..got]) {
            return Ok(format!("a wrong byte at {wrong}"));
        }
        Ok(match result {
            Ok(0) if count > 0 => "eof".into(),
            Ok(count) => count.to_string(),
            Err(ReadError::WouldBlock) => "again".into(),
            Err(ReadError::Failed(error)) => word_of(error).into(),
        })
    }

    fn close(&mut self, sim: &mut Sim, name: &str) -> Result<String, String> {
        if let Some(Socket::Datagrams(_)) = self.named.get(name) {
            if let Some(Socket::Datagrams(socket)) = self.named.remove(name) {
                socket.close(sim, self.stack);
            }
            return Ok("ok".into());
        }
        let Some(Socket::Listener { .. }) = self.named.get(name) else {
            self.command(sim, name, SocketCommand::Close)?;
            self.named.remove(name);
            return Ok("ok".into());
        };
        if let Some(Socket::Listener { end, socket }) = self.named.remove(name) {
            drop(end);
            for n in 0..sim.lanes(self.stack.host) {
                let command = SocketCommand::Unlisten(socket);
                sim.command(self.stack.host, LaneId(n as u16), self.stack.netstack, command);
            }
        }
        Ok("ok".into())
    }

    fn kick(&mut self, sim: &mut Sim, name: &str) -> Result<(), String> {
        let stack = self.stack;
        let shared = self.stream(name)?.end.shared();
        let conn = shared.conn().ok_or("the connection was never made")?;
        let message = LaneMessage::Kick { netstack: stack.netstack, conn };
        sim.send(stack.host, shared.lane(), message);
        Ok(())
    }

    /// Sets an option; a last word `v4` or `v6` says of which family's packets alone.
    fn set(&mut self, sim: &mut Sim, name: &str, option: &str, values: &[&str]) -> Result<(), String> {
        let (families, values) = match values.split_last() {
            Some((&"v4", values)) => (&Family::BOTH[..1], values),
            Some((&"v6", values)) => (&Family::BOTH[1..], values),
            _ => (&Family::BOTH[..], values),
        };
        for &family in families {
            let option = stream_option(option, values, family)?;
            self.command(sim, name, |conn| SocketCommand::SetOption(conn, option))?;
        }
        Ok(())
    }

    fn command(
        &mut self,
        sim: &mut Sim,
        name: &str,
        command: impl FnOnce(firelane_socket::ConnRef) -> SocketCommand,
    ) -> Result<(), String> {
        let stack = self.stack;
        let shared = self.stream(name)?.end.shared();
        let conn = shared.conn().ok_or("the connection was never made")?;
        sim.command(stack.host, shared.lane(), stack.netstack, command(conn));
        Ok(())
    }
}

/// `defer(l, 1)`: the next connections of a listener wait so many seconds for text. `buffer(l, 1500)`: they have receive
/// buffers of so many bytes.
fn relistened(settings: &Settings, what: &str, n: &str) -> Result<Relisten, String> {
    let mut started = Relisten { rings: settings.rings, options: settings.options };
    match what {
        "defer" => started.options.defer = number(n)?,
        _ => started.rings.recv_capacity = number(n)?,
    }
    Ok(started)
}

fn stream_option(option: &str, values: &[&str], family: Family) -> Result<StreamOption, String> {
    Ok(match (option, values) {
        ("nodelay", [word]) => StreamOption::Nodelay(on(word)?),
        ("quickack", [word]) => StreamOption::QuickAck(on(word)?),
        ("cork", [word]) => StreamOption::Cork(on(word)?),
        ("user_timeout", ["off"]) => StreamOption::UserTimeout(None),
        ("user_timeout", [seconds]) => StreamOption::UserTimeout(Some(span(seconds)?)),
        ("ttl", [n]) => StreamOption::Hops(family, Some(number(n)?)),
        ("dscp", [n]) => StreamOption::Dscp(family, number(n)?),
        ("keepalive", ["off"]) => StreamOption::Keepalive(None),
        ("keepalive", [idle, interval, probes]) => {
            StreamOption::Keepalive(Some(keepalive(idle, interval, probes)?))
        }
        ("congestion", [word]) => {
            let algorithm = Algorithm::from_word(word);
            StreamOption::Congestion(algorithm.ok_or(format!("`{word}` is no congestion control"))?)
        }
        ("syn_retries", [n]) => StreamOption::SynRetries(Some(number(n)?)),
        ("rcvbuf", [n]) => StreamOption::ReceiveBuffer(number(n)?),
        ("window_clamp", ["off"]) => StreamOption::WindowClamp(None),
        ("window_clamp", [n]) => StreamOption::WindowClamp(Some(number(n)?)),
        ("hears_errors", [word]) => StreamOption::HearsErrors([on(word)?; 2]),
        ("fin_wait_2", ["off"]) => StreamOption::FinWait2(None),
        ("fin_wait_2", [seconds]) => StreamOption::FinWait2(Some(span(seconds)?)),
        ("unsent_limit", ["off"]) => StreamOption::UnsentLimit(None),
        ("unsent_limit", [n]) => StreamOption::UnsentLimit(Some(number(n)?)),
        ("pacing_limit", ["off"]) => StreamOption::PacingLimit(None),
        ("pacing_limit", [bits]) => StreamOption::PacingLimit(Some(BitRate::from_bps(number(bits)?))),
        _ => return Err(format!("`{option}` is no option with such values")),
    })
}

fn sum(sim: &Sim, of: impl Fn(&firelane_lane::Snapshot) -> usize) -> String {
    sim.snapshots().iter().map(of).sum::<usize>().to_string()
}

/// How many frames were dropped for a reason.
fn drops(sim: &Sim, reason: &str) -> Result<String, String> {
    let known = firelane_units::DropReason::ALL.iter().find(|known| known.word() == reason);
    let known = *known.ok_or_else(|| format!("`{reason}` is no reason for a drop"))?;
    let count = |s: &firelane_lane::Snapshot| s.counters.drops.of(known) as usize;
    Ok(sum(sim, count))
}

/// What the lanes have counted of Fast Opens.
fn fast_opens(sim: &Sim, which: &str) -> Result<String, String> {
    let of: fn(&FastOpenCounters) -> u64 = match which {
        "active" => |it| it.active,
        "active_failed" => |it| it.active_failed,
        "black_holes" => |it| it.black_holes,
        "passive" => |it| it.passive,
        "passive_old" => |it| it.passive_old,
        "passive_failed" => |it| it.passive_failed,
        "overflowed" => |it| it.overflowed,
        "asked" => |it| it.asked,
        _ => return Err(format!("nobody counts `{which}`")),
    };
    Ok(sum(sim, |s| of(&s.fast_open) as usize))
}

pub(crate) const fn word_of(error: SocketError) -> &'static str {
    match error {
        SocketError::Refused => "refused",
        SocketError::Reset => "reset",
        SocketError::BrokenPipe => "closed",
        SocketError::TimedOut => "timedout",
        SocketError::HostUnreachable | SocketError::NetworkUnreachable => "unreachable",
        SocketError::Aborted => "aborted",
        SocketError::MessageTooLong => "toolong",
        SocketError::Prohibited => "forbidden",
        SocketError::ProtocolUnreachable => "noprotocol",
        SocketError::BadParameter => "badheader",
        _ => "failed",
    }
}
