//! The interface over the daemon's unix socket: one HTTP/1.1 request per connection.
//!
//! The daemon is trusted no further than its answers parse: sizes are bounded, and a daemon that does not
//! answer in time is an error, not a wait without end. Where it ends between a change and its answer, nobody knows
//! whether the change was made, and that is what is said.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use firelane_api::{
    AccountingInfo, AddFlow, AddrInfo, AddrProperty, Api, ApiError, CaptureRequest, Change, ChangeAccounting,
    ChangeFilter, ChangeNat, ChangePools, ChangeRequest, ChangeRoutes, CreateAddr, CreateEtherstub, CreateIf,
    CreateIptun, CreateVnic, CreateWire, DestinationInfo, DropInfo, EnableIf, EtherstubInfo, FilterInfo,
    Finding, FlowInfo, FlowStats, Flushed, FpmInfo, GroupInfo, IfInfo, IptunInfo, LeaseAction, LinkInfo,
    LinkStats, MemoryInfo, Method, ModifyAddr, ModifyIptun, ModifyVnic, ModifyWire, NatInfo, NatSession,
    NeighbourInfo, NetstackInfo, ObjectProps, PlanReply, PoolsInfo, ProgramReport, PropChange, Property,
    ProtocolCounters, ProtocolProperty, RenameLink, Replacing, RouteInfo, SetProps, SocketPage, Status,
    StatusInfo, StepInfo, TellClient, TraceReport, TraceRequest, Usage, UsageRequest, UsageSample, VnicInfo,
    Which, WireInfo, WireStats, paths,
};
use firelane_model::{AddrObjName, LinkName, MODEL_TEXT_MAX, Model, NetstackName, WireSide};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::chunks::{Body, Chunks};
use crate::common::system_message;
use crate::patient::{Patience, Patient};

/// How long the daemon may take for one answer: an apply of a large file makes thousands of devices.
const ANSWER_TIME: Duration = Duration::from_secs(120);
/// When it is said that there is none: most changes take milliseconds.
const NOTICE_TIME: Duration = Duration::from_secs(5);
/// What answers after a time that was asked for, or when something has passed.
const SLOW: [&str; 2] = [paths::TRACE, paths::STEPS];
/// What changes nothing, though it has a body.
const QUESTIONS: [&str; 2] = [paths::PLAN, paths::TRACE];
/// The longest answer: a model with every list, in JSON.
const ANSWER_MAX: u64 = 4 * MODEL_TEXT_MAX as u64;
/// How much of a stream is read at once, and how long its headers may be.
const STREAM_PIECE: usize = 64 << 10;
/// Status line and headers of an answer.
const HEADERS_MAX: usize = 64;

/// The daemon behind a socket.
#[derive(Debug)]
pub struct Client {
    socket: Option<PathBuf>,
}

impl Client {
    /// The daemon behind `socket`.
    pub fn new(socket: PathBuf) -> Self {
        Self { socket: Some(socket) }
    }

    /// The daemon that `FIRELANE_SOCKET` names, or the one of this user.
    pub fn of_environment() -> Self {
        Self { socket: socket_of_environment() }
    }

    fn get<T: DeserializeOwned>(&self, path: &str, which: Which) -> Result<T, ApiError> {
        let query = if which == Which::Persistent { "?persistent=true" } else { "" };
        self.send(Method::Get, &format!("{path}{query}"), &())
    }

    fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        target: &str,
        body: &impl Serialize,
    ) -> Result<T, ApiError> {
        let body = serde_json::to_vec(body).map_err(|error| garbled(&error.to_string()))?;
        let body = if body == b"null" { Vec::new() } else { body };
        let (status, answer) = self.exchange(method, target, &body)?;
        if status == 200 {
            return serde_json::from_slice(&answer).map_err(|error| garbled(&error.to_string()));
        }
        Err(serde_json::from_slice(&answer).unwrap_or_else(|_| garbled(&format!("HTTP status {status}"))))
    }

    fn connect(&self, target: &str) -> Result<Patient, ApiError> {
        // No name has such bytes, and in a request line they would mean something else.
        if !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Status::NotFound.into());
        }
        let Some(socket) = &self.socket else {
            let allowed = format!("set {} or XDG_RUNTIME_DIR", paths::SOCKET_VARIABLE);
            return Err(ApiError::new(Status::NoDaemon, "socket", "", allowed));
        };
        let stream = UnixStream::connect(socket).map_err(|error| self.unreachable(&error))?;
        let is_slow = SLOW.iter().any(|it| target.starts_with(it));
        let notice = Some(NOTICE_TIME).filter(|_| !is_slow);
        // Nobody is left to be told when the error output itself is gone.
        let say = |text: &str| drop(writeln!(std::io::stderr(), "{text}"));
        Ok(Patient::new(stream, Patience { notice, end: ANSWER_TIME, say }))
    }

    fn unreachable(&self, error: &std::io::Error) -> ApiError {
        self.lost(unanswered(error))
    }

    fn lost(&self, why: String) -> ApiError {
        let socket = self.socket.as_deref().unwrap_or(Path::new(""));
        ApiError::new(Status::NoDaemon, "socket", socket.display(), why)
    }

    /// Asks for an answer without a length and passes it on as it comes. One that breaks off is a failure.
    fn stream(&self, target: &str, sink: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), ApiError> {
        let unreachable = |error: std::io::Error| self.unreachable(&error);
        let mut stream = self.connect(target)?;
        let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).map_err(unreachable)?;
        let mut answer = Vec::new();
        let mut piece = vec![0; STREAM_PIECE];
        let start = loop {
            let count = stream.read(&mut piece).map_err(unreachable)?;
            answer.extend_from_slice(&piece[..count]);
            let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
            match (end, count) {
                (Some(end), _) => break end + 4,
                (None, 0) => return Err(self.lost(ENDED.to_owned())),
                (None, _) if answer.len() > STREAM_PIECE => return Err(garbled("its headers do not end")),
                (None, _) => {}
            }
        };
        if !answer.starts_with(b"HTTP/1.1 200 ") {
            stream.take(ANSWER_MAX).read_to_end(&mut answer).map_err(unreachable)?;
            let (status, body) = split_answer(&answer)?.ok_or_else(|| self.lost(ENDED.to_owned()))?;
            let unknown = || garbled(&format!("HTTP status {status}"));
            return Err(serde_json::from_slice(&body).unwrap_or_else(|_| unknown()));
        }
        let mut chunks = Chunks::default();
        let mut body = chunks.take(&answer[start..], sink);
        let mut stream = stream.into_stream();
        // Nothing may pass for days.
        stream.set_read_timeout(None).map_err(unreachable)?;
        while body == Body::Open {
            let count = stream.read(&mut piece).map_err(unreachable)?;
            if count == 0 {
                return Err(self.lost(ENDED.to_owned()));
            }
            body = chunks.take(&piece[..count], sink);
        }
        if body == Body::Garbled { Err(garbled("a chunk is none")) } else { Ok(()) }
    }

    fn modify_wire(
        &self,
        name: &LinkName,
        side: Option<WireSide>,
        changes: &[PropChange],
        temporary: bool,
    ) -> Result<serde_json::Value, ApiError> {
        let SetProps { props, .. } = props(changes, temporary);
        let body = ModifyWire { side, props, temporary };
        self.send(Method::Patch, &format!("{}/{name}", paths::WIRES), &body)
    }

    fn create(&self, collection: &str, body: &impl Serialize) -> Result<serde_json::Value, ApiError> {
        self.send(Method::Post, collection, body)
    }

    fn change_props(&self, change: Change, temporary: bool) -> Result<serde_json::Value, ApiError> {
        let of = |all: &str, name: &dyn std::fmt::Display| format!("{all}/{name}/{}", paths::PROPS);
        let (target, changes) = match change {
            Change::SetLinkProps(name, changes) => (of(paths::LINKS, &name), changes),
            Change::SetFlowProps(name, changes) => (of(paths::FLOWS, &name), changes),
            Change::SetNetstackProps(name, changes) => (of(paths::NETSTACKS, &name), changes),
            Change::SetAddrProps(name, changes) => (format!("{}/{name}", paths::ADDR_PROPS), changes),
            _ => return Err(Status::BadArg.into()),
        };
        self.send(Method::Patch, &target, &props(&changes, temporary))
    }

    fn change_link(&self, change: Change, temporary: bool) -> Result<serde_json::Value, ApiError> {
        match change {
            Change::RemoveFlowsOf(link) => {
                let target = format!("{}/{link}/flows?temporary={temporary}", paths::LINKS);
                self.send(Method::Delete, &target, &())
            }
            Change::RenameLink(from, name) => {
                self.send(Method::Put, &format!("{}/{from}/name", paths::LINKS), &RenameLink { name })
            }
            Change::DeletePhys(name) => {
                self.send(Method::Delete, &format!("{}/{name}?temporary={temporary}", paths::LINKS), &())
            }
            _ => Err(Status::BadArg.into()),
        }
    }

    fn enable_if(&self, name: &LinkName, enabled: bool) -> Result<serde_json::Value, ApiError> {
        self.send(Method::Patch, &format!("{}/{name}", paths::IFS), &EnableIf { enabled })
    }

    fn modify_addr(&self, name: &AddrObjName, body: &ModifyAddr) -> Result<serde_json::Value, ApiError> {
        self.send(Method::Patch, &format!("{}/{name}", paths::ADDRS), body)
    }

    fn change_rules(
        &self,
        netstack: &NetstackName,
        of: &str,
        body: &impl Serialize,
    ) -> Result<serde_json::Value, ApiError> {
        self.send(Method::Patch, &format!("{}/{netstack}/{of}", paths::NETSTACKS), body)
    }

    fn exchange(&self, method: Method, target: &str, body: &[u8]) -> Result<(u16, Vec<u8>), ApiError> {
        let unreachable = |error: std::io::Error| self.unreachable(&error);
        let mut stream = self.connect(target)?;
        let head = format!(
            "{} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            method.word(),
            body.len()
        );
        let written = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let mut answer = Vec::new();
        let read = stream.take(ANSWER_MAX).read_to_end(&mut answer);
        let is_change = method != Method::Get && !QUESTIONS.contains(&target);
        let broken = |why: &str| match is_change {
            true => self.lost(format!("{why}; it is not known whether the change was made")),
            false => self.lost(why.to_owned()),
        };
        // A daemon that refuses a body may answer and close before it has read all of it.
        if answer.is_empty() {
            written.map_err(unreachable)?;
        }
        read.map_err(|error| broken(&unanswered(&error)))?;
        split_answer(&answer)?.ok_or_else(|| broken(ENDED))
    }
}

/// The daemon's socket, by `FIRELANE_SOCKET` or by who the user is.
pub(crate) fn socket_of_environment() -> Option<PathBuf> {
    let explicit = std::env::var_os(paths::SOCKET_VARIABLE);
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR");
    let is_root = rustix::process::geteuid().is_root();
    paths::socket_to_ask(explicit.as_deref(), is_root, runtime_dir.as_deref(), Path::exists)
}

/// A daemon that ends, or is ended, with a question open.
const ENDED: &str = "it has ended before its answer did";

fn unanswered(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::WouldBlock => "it does not answer".to_owned(),
        _ => system_message(error),
    }
}

fn garbled(why: &str) -> ApiError {
    ApiError::new(Status::Failed, "answer", "", format!("firelaned's answer makes no sense: {why}"))
}

/// The status and body of an HTTP answer that ends with its connection; nothing if it is cut off.
fn split_answer(answer: &[u8]) -> Result<Option<(u16, Vec<u8>)>, ApiError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(answer).map_err(|error| garbled(&error.to_string()))?;
    let (httparse::Status::Complete(start), Some(status)) = (parsed, response.code) else {
        return Ok(None);
    };
    let header = |name: &str| {
        let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.and_then(|header| std::str::from_utf8(header.value).ok())
    };
    let rest = &answer[start..];
    if header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        return Ok(unchunked(rest).map(|body| (status, body)));
    }
    let length = header("content-length").and_then(|value| value.trim().parse().ok()).unwrap_or(rest.len());
    Ok(rest.get(..length).map(|body| (status, body.to_vec())))
}

fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let httparse::Status::Complete((start, size)) = httparse::parse_chunk_size(rest).ok()? else {
            return None;
        };
        if size == 0 {
            return Some(body);
        }
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        body.extend_from_slice(rest.get(start..end)?);
        rest = rest.get(end..)?.strip_prefix(b"\r\n")?;
    }
}

fn props(changes: &[PropChange], temporary: bool) -> SetProps {
    SetProps {
        props: changes.iter().map(|change| (change.name.clone(), change.value.clone())).collect(),
        temporary,
    }
}

impl Client {
    fn change_wire(&self, change: Change, temporary: bool) -> Result<serde_json::Value, ApiError> {
        match change {
            Change::CreateWire(name, wire) => {
                self.create(paths::WIRES, &CreateWire { name, wire, temporary })
            }
            Change::ModifyWire(name, side, changes) => self.modify_wire(&name, side, &changes, temporary),
            Change::DeleteWire(name) => {
                self.send(Method::Delete, &format!("{}/{name}?temporary={temporary}", paths::WIRES), &())
            }
            _ => Err(Status::BadArg.into()),
        }
    }

    fn change_filter(&self, change: Change, temporary: bool) -> Result<serde_json::Value, ApiError> {
        match change {
            Change::ChangeRoutes(name, change) => {
                self.change_rules(&name, paths::ROUTES, &ChangeRoutes { change, temporary })
            }
            Change::ChangeFilter(name, change) => {
                self.change_rules(&name, paths::FILTER, &ChangeFilter { change, temporary })
            }
            Change::ChangePools(name, change) => {
                self.change_rules(&name, paths::POOLS, &ChangePools { change, temporary })
            }
            Change::ChangeNat(name, change) => {
                self.change_rules(&name, paths::NAT, &ChangeNat { change, temporary })
            }
            Change::SetNatLimits(name, changes) => {
                self.change_rules(&name, paths::NAT_LIMITS, &props(&changes, temporary))
            }
            _ => Err(Status::BadArg.into()),
        }
    }

    fn change_ip(&self, change: Change, temporary: bool) -> Result<serde_json::Value, ApiError> {
        let delete = |path: &str, name: &dyn std::fmt::Display| {
            self.send(Method::Delete, &format!("{path}/{name}?temporary={temporary}"), &())
        };
        match change {
            Change::CreateIf(name, netstack) => {
                self.create(paths::IFS, &CreateIf { name, netstack, temporary })
            }
            Change::DeleteIf(name) => delete(paths::IFS, &name),
            Change::SetIfProps(name, changes) => {
                let target = format!("{}/{name}/{}", paths::IFS, paths::PROPS);
                self.send(Method::Patch, &target, &props(&changes, temporary))
            }
            Change::CreateAddr(name, address) => {
                self.create(paths::ADDRS, &CreateAddr { name, address, temporary })
            }
            Change::DeleteAddr(name) => delete(paths::ADDRS, &name),
            Change::EnableIf(name) => self.enable_if(&name, true),
            Change::DisableIf(name) => self.enable_if(&name, false),
            Change::EnableAddr(name) => self.modify_addr(&name, &ModifyAddr::Enabled(true)),
            Change::DisableAddr(name) => self.modify_addr(&name, &ModifyAddr::Enabled(false)),
            Change::MarkAddr(name, up) if temporary => {
                self.modify_addr(&name, &ModifyAddr::UpTemporarily(up))
            }
            Change::MarkAddr(name, up) => self.modify_addr(&name, &ModifyAddr::Up(up)),
            _ => Err(Status::BadArg.into()),
        }
    }

    fn change_tunnel(&self, change: Change, temporary: bool) -> Result<serde_json::Value, ApiError> {
        let at = |name: &dyn std::fmt::Display| format!("{}/{name}", paths::IPTUNS);
        match change {
            Change::CreateIptun(name, vnic) => {
                self.send(Method::Post, paths::IPTUNS, &CreateIptun { name, vnic, temporary })
            }
            Change::ModifyIptun(name, change) => {
                self.send(Method::Patch, &at(&name), &ModifyIptun { change, temporary })
            }
            Change::DeleteIptun(name) => {
                self.send(Method::Delete, &format!("{}?temporary={temporary}", at(&name)), &())
            }
            _ => Err(Status::BadArg.into()),
        }
    }
}

impl Api for Client {
    fn status(&self) -> Result<StatusInfo, ApiError> {
        self.get(paths::STATUS, Which::Active)
    }

    fn model(&self, which: Which) -> Result<Model, ApiError> {
        self.get(paths::MODEL, which)
    }

    fn plan(&self, wanted: &Model) -> Result<PlanReply, ApiError> {
        self.send(Method::Post, paths::PLAN, wanted)
    }

    fn apply(&self, wanted: &Model, how: Replacing) -> Result<PlanReply, ApiError> {
        let Replacing { temporary, empty, of } = how;
        let mut path = format!("{}?temporary={temporary}", paths::MODEL);
        if empty {
            path += "&empty=true";
        }
        if let Some(of) = of {
            path += &format!("&configuration={of}");
        }
        self.send(Method::Put, &path, wanted)
    }

    fn change(&self, request: &ChangeRequest) -> Result<(), ApiError> {
        let temporary = request.temporary;
        let delete = |path: &str, name: &dyn std::fmt::Display| {
            self.send(Method::Delete, &format!("{path}/{name}?temporary={temporary}"), &())
        };
        let _: serde_json::Value = match request.change.clone() {
            Change::CreateEtherstub(name, etherstub) => {
                self.create(paths::ETHERSTUBS, &CreateEtherstub { name, etherstub, temporary })
            }
            Change::DeleteEtherstub(name) => delete(paths::ETHERSTUBS, &name),
            wire @ (Change::CreateWire(..) | Change::ModifyWire(..) | Change::DeleteWire(_)) => {
                self.change_wire(wire, temporary)
            }
            Change::CreateVnic(name, vnic) => {
                self.create(paths::VNICS, &CreateVnic { name, vnic, temporary })
            }
            Change::ModifyVnic(name, change) => {
                let target = format!("{}/{name}", paths::VNICS);
                self.send(Method::Patch, &target, &ModifyVnic { change, temporary })
            }
            Change::DeleteVnic(name) => delete(paths::VNICS, &name),
            tunnel @ (Change::CreateIptun(..) | Change::ModifyIptun(..) | Change::DeleteIptun(_)) => {
                self.change_tunnel(tunnel, temporary)
            }
            link @ (Change::RenameLink(..) | Change::DeletePhys(_) | Change::RemoveFlowsOf(_)) => {
                self.change_link(link, temporary)
            }
            Change::AddFlow(name, flow) => self.create(paths::FLOWS, &AddFlow { name, flow, temporary }),
            Change::RemoveFlow(name) => delete(paths::FLOWS, &name),
            set @ (Change::SetLinkProps(..)
            | Change::SetFlowProps(..)
            | Change::SetNetstackProps(..)
            | Change::SetAddrProps(..)) => self.change_props(set, temporary),
            rules @ (Change::ChangeRoutes(..)
            | Change::ChangeFilter(..)
            | Change::ChangePools(..)
            | Change::ChangeNat(..)
            | Change::SetNatLimits(..)) => self.change_filter(rules, temporary),
            ip @ (Change::CreateIf(..)
            | Change::DeleteIf(_)
            | Change::SetIfProps(..)
            | Change::EnableIf(_)
            | Change::DisableIf(_)
            | Change::CreateAddr(..)
            | Change::DeleteAddr(_)
            | Change::EnableAddr(_)
            | Change::DisableAddr(_)
            | Change::MarkAddr(..)) => self.change_ip(ip, temporary),
            Change::SetAccounting(change) => {
                self.send(Method::Patch, paths::ACCOUNTING, &ChangeAccounting { change, temporary })
            }
        }?;
        Ok(())
    }

    fn tell_client(&self, name: &str, action: LeaseAction) -> Result<(), ApiError> {
        self.send(Method::Post, &format!("{}/{name}", paths::LEASES), &TellClient { action })
    }

    fn links(&self, which: Which) -> Result<Vec<LinkInfo>, ApiError> {
        self.get(paths::LINKS, which)
    }

    fn vnics(&self, which: Which) -> Result<Vec<VnicInfo>, ApiError> {
        self.get(paths::VNICS, which)
    }

    fn iptuns(&self, which: Which) -> Result<Vec<IptunInfo>, ApiError> {
        self.get(paths::IPTUNS, which)
    }

    fn etherstubs(&self, which: Which) -> Result<Vec<EtherstubInfo>, ApiError> {
        self.get(paths::ETHERSTUBS, which)
    }

    fn wires(&self, which: Which) -> Result<Vec<WireInfo>, ApiError> {
        self.get(paths::WIRES, which)
    }

    fn flows(&self, which: Which) -> Result<Vec<FlowInfo>, ApiError> {
        self.get(paths::FLOWS, which)
    }

    fn addrs(&self, which: Which) -> Result<Vec<AddrInfo>, ApiError> {
        self.get(paths::ADDRS, which)
    }

    fn ifs(&self, which: Which) -> Result<Vec<IfInfo>, ApiError> {
        self.get(paths::IFS, which)
    }

    fn netstacks(&self, which: Which) -> Result<Vec<NetstackInfo>, ApiError> {
        self.get(paths::NETSTACKS, which)
    }

    fn link_props(&self, name: &str, which: Which) -> Result<Vec<Property>, ApiError> {
        self.get(&format!("{}/{name}/{}", paths::LINKS, paths::PROPS), which)
    }

    fn flow_props(&self, name: &str, which: Which) -> Result<Vec<Property>, ApiError> {
        self.get(&format!("{}/{name}/{}", paths::FLOWS, paths::PROPS), which)
    }

    fn all_link_props(&self, which: Which) -> Result<Vec<ObjectProps>, ApiError> {
        self.get(paths::LINK_PROPS, which)
    }

    fn all_flow_props(&self, which: Which) -> Result<Vec<ObjectProps>, ApiError> {
        self.get(paths::FLOW_PROPS, which)
    }

    fn netstack_props(&self, name: &str) -> Result<Vec<ProtocolProperty>, ApiError> {
        self.get(&format!("{}/{name}/{}", paths::NETSTACKS, paths::PROPS), Which::Active)
    }

    fn if_props(&self, name: &str) -> Result<Vec<ProtocolProperty>, ApiError> {
        self.get(&format!("{}/{name}/{}", paths::IFS, paths::PROPS), Which::Active)
    }

    fn addr_props(&self, name: &str) -> Result<Vec<AddrProperty>, ApiError> {
        self.get(&format!("{}/{name}", paths::ADDR_PROPS), Which::Active)
    }

    fn routes(&self, name: &str) -> Result<Vec<RouteInfo>, ApiError> {
        self.get(&format!("{}/{name}/{}", paths::NETSTACKS, paths::ROUTES), Which::Active)
    }

    fn neighbours(&self, name: &str) -> Result<Vec<NeighbourInfo>, ApiError> {
        self.get(&format!("{}/{name}/neighbours", paths::NETSTACKS), Which::Active)
    }

    fn destinations(&self, name: &str) -> Result<Vec<DestinationInfo>, ApiError> {
        self.get(&format!("{}/{name}/destinations", paths::NETSTACKS), Which::Active)
    }

    fn memory(&self) -> Result<MemoryInfo, ApiError> {
        self.get(paths::MEMORY, Which::Active)
    }

    fn counters(&self, name: &str) -> Result<Vec<ProtocolCounters>, ApiError> {
        self.get(&format!("{}/{name}/counters", paths::NETSTACKS), Which::Active)
    }

    fn filter(&self, name: &str) -> Result<FilterInfo, ApiError> {
        self.get(&format!("{}/{name}/{}", paths::NETSTACKS, paths::FILTER), Which::Active)
    }

    fn pools(&self, name: &str) -> Result<PoolsInfo, ApiError> {
        self.get(&format!("{}/{name}/{}", paths::NETSTACKS, paths::POOLS), Which::Active)
    }

    fn fpm(&self) -> Result<Vec<FpmInfo>, ApiError> {
        self.get(paths::FPM, Which::Active)
    }

    fn groups(&self, name: &str) -> Result<Vec<GroupInfo>, ApiError> {
        self.get(&format!("{}/{name}/groups", paths::NETSTACKS), Which::Active)
    }

    fn nat(&self, name: &str) -> Result<NatInfo, ApiError> {
        self.get(&format!("{}/{name}/{}", paths::NETSTACKS, paths::NAT), Which::Active)
    }

    fn nat_sessions(&self, name: &str) -> Result<Vec<NatSession>, ApiError> {
        self.get(&format!("{}/{name}/{}", paths::NETSTACKS, paths::NAT_SESSIONS), Which::Active)
    }

    fn flush_nat(&self, name: &str) -> Result<u64, ApiError> {
        let target = format!("{}/{name}/{}", paths::NETSTACKS, paths::NAT_SESSIONS);
        let Flushed { flushed } = self.send(Method::Delete, &target, &())?;
        Ok(flushed)
    }

    fn sockets(&self, netstack: Option<&str>, after: Option<&str>) -> Result<SocketPage, ApiError> {
        let netstack = netstack.map(|name| format!("netstack={name}"));
        let after = after.map(|place| format!("after={place}"));
        let query: Vec<_> = netstack.into_iter().chain(after).collect();
        self.get(&format!("{}?{}", paths::SOCKETS, query.join("&")), Which::Active)
    }

    fn program(&self, pid: u32) -> Result<ProgramReport, ApiError> {
        self.get(&format!("{}/{pid}", paths::PROGRAMS), Which::Active)
    }

    fn link_stats(&self) -> Result<Vec<LinkStats>, ApiError> {
        self.get(paths::LINK_STATS, Which::Active)
    }

    fn flow_stats(&self) -> Result<Vec<FlowStats>, ApiError> {
        self.get(paths::FLOW_STATS, Which::Active)
    }

    fn wire_stats(&self) -> Result<Vec<WireStats>, ApiError> {
        self.get(paths::WIRE_STATS, Which::Active)
    }

    fn usage(&self, request: &UsageRequest) -> Result<Vec<Usage>, ApiError> {
        self.get(&format!("{}?{}", request.of.path(), request.query()), Which::Active)
    }

    fn usage_samples(&self, name: &str, request: &UsageRequest) -> Result<Vec<UsageSample>, ApiError> {
        self.get(&format!("{}/{name}?{}", request.of.path(), request.query()), Which::Active)
    }

    fn capture(&self, wanted: &CaptureRequest, sink: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), ApiError> {
        self.stream(&format!("{}?{}", paths::CAPTURE, wanted.query()), sink)
    }

    fn trace(&self, wanted: &TraceRequest, _: &dyn Fn() -> bool) -> Result<TraceReport, ApiError> {
        self.send(Method::Post, paths::TRACE, wanted)
    }

    fn steps(&self, seconds: u32, _: &dyn Fn() -> bool) -> Result<Vec<StepInfo>, ApiError> {
        self.get(&format!("{}?seconds={seconds}", paths::STEPS), Which::Active)
    }

    fn accounting(&self) -> Result<AccountingInfo, ApiError> {
        self.get(paths::ACCOUNTING, Which::Active)
    }

    fn drops(&self) -> Result<Vec<DropInfo>, ApiError> {
        self.get(paths::DROPS, Which::Active)
    }

    fn doctor(&self) -> Result<Vec<Finding>, ApiError> {
        self.get(paths::DOCTOR, Which::Active)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_with_a_length_in_chunks_or_to_the_end() {
        let head = "HTTP/1.1 200 OK\r\n";
        for answer in [
            format!("{head}content-length: 2\r\n\r\n{{}}"),
            format!("{head}\r\n{{}}"),
            format!("{head}Transfer-Encoding: chunked\r\n\r\n1\r\n{{\r\n1\r\n}}\r\n0\r\n\r\n"),
        ] {
            assert_eq!(split_answer(answer.as_bytes()), Ok(Some((200, b"{}".to_vec()))), "{answer}");
            for end in 0..head.len() + 2 {
                assert_eq!(split_answer(&answer.as_bytes()[..end]), Ok(None));
            }
        }
        for cut in ["", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}"] {
            assert_eq!(split_answer(cut.as_bytes()), Ok(None));
        }
        assert_eq!(split_answer(b"nonsense\r\n\r\n").unwrap_err().status, Status::Failed);
    }

    #[test]
    fn without_a_daemon_the_socket_is_named() {
        let client = Client::new("/nonexistent/api.sock".into());
        let want = "could not reach firelaned (socket=/nonexistent/api.sock: No such file or directory)";
        assert_eq!(client.status().unwrap_err().to_string(), want);
        let nowhere = Client { socket: None };
        assert!(nowhere.status().unwrap_err().to_string().contains("FIRELANE_SOCKET"));
    }
}
