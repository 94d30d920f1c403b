//! A process and its sockets, explained: which are Firelane's, which are the kernel's, and why.
//!
//! Called by `host.rs` for `firelane explain`. What a process has open is what `/proc` says; a socket of Firelane's is
//! found by the inode of its descriptor, so it does not matter which process has made it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use firelane::{ExplainedSocket, LimitedBy, Unfused, WaitsFor};
use firelane_api::{ApiError, ProgramReport, SocketReport, Status};
use firelane_model::{FlowName, LinkName};
use firelane_units::{FlowId, LinkId};

use crate::filter;
use crate::programs::command_in;
use crate::text::plain;

/// The library in front of a program's own.
const LIBRARY: &str = "libfirelane_preload.so";
/// What tells it where its daemon is.
const VARIABLE: &str = "FIRELANE_APP_SOCKET=";
/// The kernel's lists of sockets (`proc_net(5)`), with what they are of.
const LISTS: [(&str, &str); 6] =
    [("tcp", "tcp"), ("tcp6", "tcp"), ("udp", "udp"), ("udp6", "udp"), ("raw", "raw"), ("raw6", "raw")];

/// What the kernel shows of a process.
#[derive(Debug)]
pub(crate) struct Process {
    pid: u32,
    folder: PathBuf,
    command: String,
    /// Its sockets: descriptor and inode.
    sockets: BTreeMap<u32, u64>,
}

/// What the daemon knows beside that.
pub(crate) struct Known<'a> {
    /// Whether the process has a session.
    pub(crate) has_session: bool,
    /// The netstack of its session, or of its sockets: a child may have these from its parent and ask for nothing itself.
    pub(crate) netstack: Option<firelane_model::NetstackName>,
    /// Its sockets that are Firelane's.
    pub(crate) sockets: Vec<ExplainedSocket>,
    pub(crate) flows: &'a BTreeMap<FlowName, FlowId>,
    /// Links of any class.
    pub(crate) links: BTreeMap<LinkId, String>,
    /// Namespaces with a VNIC: the VNIC, and the file that holds the namespace.
    pub(crate) beside: Vec<(LinkName, PathBuf)>,
}

impl Process {
    /// Looks at process `pid`.
    pub(crate) fn look(pid: u32) -> Result<Self, ApiError> {
        Self::look_in(Path::new("/proc"), pid)
    }

    fn look_in(proc: &Path, pid: u32) -> Result<Self, ApiError> {
        let folder = proc.join(pid.to_string());
        let failed = |error: io::Error| {
            let status = match error.kind() {
                io::ErrorKind::NotFound => Status::NotFound,
                io::ErrorKind::PermissionDenied => Status::Denied,
                _ => Status::Io,
            };
            ApiError::new(status, "process", pid, plain(&error))
        };
        let mut sockets = BTreeMap::new();
        for entry in fs::read_dir(folder.join("fd")).map_err(failed)?.flatten() {
            let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // One that was closed meanwhile is none.
            let Ok(link) = fs::read_link(entry.path()) else { continue };
            if let Some(inode) = link.to_str().and_then(inode_of) {
                sockets.insert(fd, inode);
            }
        }
        let command = command_in(&folder);
        Ok(Self { pid, folder, command, sockets })
    }

    /// The inodes of its sockets.
    pub(crate) fn inodes(&self) -> BTreeSet<u64> {
        self.sockets.values().copied().collect()
    }

    /// How many descriptors it has of a socket.
    fn count(&self, inode: u64) -> usize {
        self.sockets.values().filter(|it| **it == inode).count()
    }

    fn is_preloaded(&self) -> bool {
        let maps = fs::read(self.folder.join("maps")).unwrap_or_default();
        String::from_utf8_lossy(&maps).lines().any(|line| line.ends_with(LIBRARY))
    }

    fn asks_for_netstack(&self) -> bool {
        let text = fs::read(self.folder.join("environ")).unwrap_or_default();
        text.split(|&byte| byte == 0).any(|word| word.starts_with(VARIABLE.as_bytes()))
    }

    /// The VNIC of its network namespace.
    fn vnic<'a>(&self, beside: &'a [(LinkName, PathBuf)]) -> Option<&'a LinkName> {
        let own = fs::metadata(self.folder.join("ns/net")).ok()?.ino();
        let is_own = |path: &Path| fs::metadata(path).is_ok_and(|it| it.ino() == own);
        beside.iter().find(|(_, path)| is_own(path)).map(|(name, _)| name)
    }

    /// Which path it has, and why.
    fn path(&self, known: &Known<'_>) -> (&'static str, String) {
        if let Some(netstack) = &known.netstack {
            return ("accelerated", format!("its TCP and UDP sockets are on netstack {netstack}"));
        }
        if known.has_ours() {
            return ("accelerated", "the netstack of its TCP and UDP sockets has ended".to_owned());
        }
        // Some programs write over their environment, so it decides only where there is nothing else to go by.
        if self.is_preloaded() && self.asks_for_netstack() {
            return ("accelerated", "it has asked for no socket of Firelane's as yet".to_owned());
        }
        match self.vnic(&known.beside) {
            Some(vnic) => ("beside", format!("its network namespace has VNIC {vnic}")),
            None if self.is_preloaded() => {
                ("kernel", format!("{LIBRARY} is there, but its environment has no {VARIABLE}..."))
            }
            None => ("kernel", format!("{LIBRARY} is not in front of its libraries: no firelane run")),
        }
    }

    /// The report.
    pub(crate) fn report(self, known: &Known<'_>) -> ProgramReport {
        let (path, why) = self.path(known);
        let kernels = self.kernels_sockets();
        let ours: BTreeMap<u64, &ExplainedSocket> = known.sockets.iter().map(|it| (it.inode, it)).collect();
        let mut sockets = Vec::new();
        let mut others = 0_u32;
        // Each socket by its lowest number: the library keeps copies.
        let mut told = BTreeSet::new();
        for (&fd, inode) in self.sockets.iter().filter(|(_, inode)| told.insert(**inode)) {
            match (ours.get(inode), kernels.get(inode)) {
                // The library has made it ahead: once the program has it there are two descriptors.
                (Some(socket), _) if socket.is_ahead && self.count(*inode) < 2 => {}
                (Some(socket), _) => sockets.push(SocketReport { fd, ..known.shown(socket) }),
                (None, Some(socket)) => {
                    let why = match (path, socket.protocol.as_str()) {
                        ("accelerated", "tcp" | "udp") => "it was made before or past the library",
                        ("accelerated", _) => "only TCP and UDP sockets are Firelane's",
                        _ => "as the program's",
                    };
                    sockets.push(SocketReport { fd, why: why.to_owned(), ..socket.clone() });
                }
                (None, None) => others += 1,
            }
        }
        // The library's session is a socket, too; a child that asks for nothing has its parent's.
        let others = others.saturating_sub(u32::from(known.has_ours()));
        let (pid, command, netstack) = (self.pid, self.command, known.netstack.clone());
        ProgramReport { pid, command, path: path.to_owned(), why, netstack, sockets, others }
    }

    /// The kernel's sockets of the internet's families in the process' network namespace, by inode.
    fn kernels_sockets(&self) -> BTreeMap<u64, SocketReport> {
        let mut found = BTreeMap::new();
        for (list, protocol) in LISTS {
            let text = fs::read_to_string(self.folder.join("net").join(list)).unwrap_or_default();
            for (inode, socket) in text.lines().skip(1).filter_map(|line| kernels_socket(line, protocol)) {
                found.insert(inode, socket);
            }
        }
        found
    }
}

impl Known<'_> {
    /// Whether the process has a session, or a socket of Firelane's.
    fn has_ours(&self) -> bool {
        self.has_session || self.sockets.iter().any(|it| !it.is_ahead)
    }

    fn shown(&self, it: &ExplainedSocket) -> SocketReport {
        let tcp = it.info.as_ref().map(|info| &info.tcp);
        let state = match tcp {
            Some(tcp) => tcp.state.word(),
            None if it.socket.is_listening => "LISTEN",
            None if it.socket.is_datagram => {
                state_word("udp", if it.socket.remote.is_some() { 1 } else { 7 })
            }
            // What has no connection any more, or never had one.
            None => "CLOSED",
        };
        let carried = it.socket.lane.map(|_| it.socket.carried);
        SocketReport {
            fd: 0,
            path: "firelane".to_owned(),
            why: listed([self.why_segments(it), self.limit(it), waits(it)]),
            protocol: match (it.socket.is_datagram, it.socket.is_echo) {
                (_, true) => "icmp",
                (true, _) => "udp",
                (false, _) => "tcp",
            }
            .to_owned(),
            state: state.to_owned(),
            local: it.socket.local,
            remote: it.socket.remote,
            lane: it.socket.lane.map(|lane| lane.0),
            flow: it.info.map_or_else(|| it.datagrams?.flow, |info| info.flow).and_then(|id| self.flow(id)),
            fused: it.info.map(|info| info.is_fused),
            options: it.options.clone(),
            filter: it.filter.as_ref().map(|(rules, counted)| filter::of_socket(rules, counted, &self.links)),
            sent: carried.map(|[sent, _]| sent),
            received: carried.map(|[_, received]| received),
            segments: tcp.map(|tcp| [tcp.counts.segments_in, tcp.counts.segments_out, tcp.troubles.repeated]),
        }
    }

    fn flow(&self, id: FlowId) -> Option<String> {
        self.flows.iter().find(|(_, it)| **it == id).map(|(name, _)| name.to_string())
    }

    /// Whose limit holds what a socket sends; nothing if none does.
    fn limit(&self, it: &ExplainedSocket) -> String {
        match it.info.map_or_else(|| it.datagrams?.limited, |info| info.limited) {
            None => String::new(),
            Some(LimitedBy::Link(id)) => {
                format!("limited by link {}", self.links.get(&id).map_or("?", String::as_str))
            }
            Some(LimitedBy::Flow(id)) => {
                format!("limited by flow {}", self.flow(id).unwrap_or_else(|| "?".to_owned()))
            }
        }
    }

    /// Why a connection's text goes in segments; nothing if it does not, or if it has not begun.
    fn why_segments(&self, it: &ExplainedSocket) -> String {
        let why = match &it.info {
            None => return String::new(),
            Some(info) if info.is_fused => return String::new(),
            Some(info) => match info.unfused {
                Some(Unfused::Property) => "not fused: _fusion is off",
                Some(Unfused::Link(id)) => {
                    let name = self.links.get(&id).map_or("?", String::as_str);
                    return format!("not fused: fusion is off at link {name}");
                }
                Some(Unfused::Flow(id)) => {
                    let name = self.flow(id).unwrap_or_else(|| "?".to_owned());
                    return format!("not fused: fusion is off at flow {name}");
                }
                Some(Unfused::Captured) => "not fused: a capture looks on at its VNIC or its flow",
                Some(Unfused::Away) => "not fused: its peer is not on this netstack",
                Some(Unfused::Apart) => {
                    "not fused: its peer is on another netstack, and not both have fusion=on"
                }
                Some(Unfused::Filtered) => {
                    "not fused: packets between its netstacks are filtered or translated"
                }
                Some(Unfused::Hops) => "not fused: its program counts the hops of segments",
                Some(Unfused::Patience) => "not fused: its program waits for so long only (TCP_USER_TIMEOUT)",
                Some(Unfused::Signalled) => "not fused: its program is signalled for what happens (O_ASYNC)",
                None => {
                    "not fused: its segments are still on their way, or its peer is no program, or wants segments"
                }
            },
        };
        why.to_owned()
    }
}

/// What a datagram socket waits for with what its program has sent; nothing if it does not.
fn waits(it: &ExplainedSocket) -> String {
    match it.datagrams.and_then(|info| info.waits) {
        None => String::new(),
        Some(WaitsFor::Limit) => "waits for its limit".to_owned(),
        Some(WaitsFor::Pace) => "waits for its own pace (SO_MAX_PACING_RATE)".to_owned(),
        Some(WaitsFor::NextHop(next_hop)) => format!("waits for the Ethernet address of {next_hop}"),
    }
}

/// What is said, one behind the other.
fn listed(parts: [String; 3]) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

/// `socket:[12345]`
fn inode_of(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// A line of a list of the kernel's: its inode, and what is shown of it.
fn kernels_socket(line: &str, protocol: &str) -> Option<(u64, SocketReport)> {
    let mut words = line.split_whitespace().skip(1);
    let (local, remote) = (address_of(words.next()?)?, address_of(words.next()?)?);
    let state = u8::from_str_radix(words.next()?, 16).ok()?;
    let inode = words.nth(5)?.parse().ok()?;
    let has_peer = remote.port() != 0 || !remote.ip().is_unspecified();
    let report = SocketReport {
        path: "kernel".to_owned(),
        protocol: protocol.to_owned(),
        state: state_word(protocol, state).to_owned(),
        local: Some(local),
        remote: has_peer.then_some(remote),
        ..SocketReport::default()
    };
    Some((inode, report))
}

/// `0100007F:1F90`: words of 32 bits in the host's order, then the port.
fn address_of(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let bytes = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// The kernel's numbers of states (`net/tcp_states.h`), in the words that `netstat` has for ours.
fn state_word(protocol: &str, state: u8) -> &'static str {
    const WORDS: [&str; 12] = [
        "ESTABLISHED",
        "SYN_SENT",
        "SYN_RCVD",
        "FIN_WAIT_1",
        "FIN_WAIT_2",
        "TIME_WAIT",
        "CLOSED",
        "CLOSE_WAIT",
        "LAST_ACK",
        "LISTEN",
        "CLOSING",
        "SYN_RCVD",
    ];
    match (protocol, state) {
        ("tcp", 1..=12) => WORDS[usize::from(state) - 1],
        (_, 1) => "Connected",
        _ => "Idle",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernels_lists_are_read_and_others_are_none() {
        let line =
            "   0: 0100007F:1F90 0200000A:0050 01 00000000:00000000 00:00000000 00000000  0  0 4711 1 0 20";
        let (inode, it) = kernels_socket(line, "tcp").unwrap();
        assert_eq!((inode, it.state.as_str()), (4711, "ESTABLISHED"));
        assert_eq!([3, 12].map(|state| state_word("tcp", state)), ["SYN_RCVD"; 2]);
        assert_eq!(it.local, Some("127.0.0.1:8080".parse().unwrap()));
        assert_eq!(it.remote, Some("10.0.0.2:80".parse().unwrap()));
        let line = "  9: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 7 1";
        let (inode, it) = kernels_socket(line, "tcp").unwrap();
        assert_eq!((inode, it.state.as_str(), it.remote), (7, "LISTEN", None));
        assert_eq!(it.local, Some("[::1]:22".parse().unwrap()));
        for cut in 0..line.len() - 4 {
            assert!(kernels_socket(&line[..cut], "tcp").is_none_or(|(inode, _)| inode == 7), "{cut}");
        }
        assert_eq!(state_word("udp", 7), "Idle");
        assert_eq!([0, 13, 255].map(|state| state_word("tcp", state)), ["Idle"; 3]);
    }

    #[test]
    fn sockets_are_told_by_their_links() {
        assert_eq!(inode_of("socket:[12]"), Some(12));
        assert_eq!(["pipe:[12]", "socket:[]", "/dev/null", "socket:[1"].map(inode_of), [None; 4]);
    }

    #[test]
    fn a_process_that_is_not_there_is_said_not_to_be() {
        let error = Process::look_in(Path::new("/nonexistent"), 5).unwrap_err();
        assert_eq!(error.status, Status::NotFound);
        assert!(error.to_string().contains("process=5"), "{error}");
    }
    #[test]
    fn a_process_cannot_speak_to_the_terminal_by_its_name() {
        let proc = crate::folder::tests::Scratch::new();
        let folder = proc.path().join("5");
        fs::create_dir_all(folder.join("fd")).unwrap();
        fs::write(folder.join("comm"), "a\x1b[2Jb\nc\n").unwrap();
        let command = || Process::look_in(proc.path(), 5).unwrap().command;
        assert_eq!(command(), "a[2Jbc");
        // Nor hide behind bytes that are no text; the kernel cuts a long name wherever it ends.
        fs::write(folder.join("comm"), b"gr\xc3\xb6\xc3\x9fenwahnsin\xc3\n").unwrap();
        assert_eq!(command(), "größenwahnsin\u{fffd}");
        // Nor turn what stands beside it round.
        fs::write(folder.join("comm"), "a\u{202e}b\u{2066}c\u{200f}\n").unwrap();
        assert_eq!(command(), "abc");
    }
}
