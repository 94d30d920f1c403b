//! The routing daemons of netstacks: who is listened for where, their connections, and the routes that come of it.
//!
//! Called by `works.rs` for steps and by `host.rs` for questions. Each has a thread of its own, which waits for a connection,
//! reads it, and hands changes of routes to the engine; while the lanes have no room for more, nothing is read, and zebra waits in
//! its turn. What the bytes mean is `firelane-fpm`'s business. One daemon is served at a time: another one that comes is turned
//! away. The protocol knows no password, so who may come is decided by where it is listened.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use firelane::{Engine, RouteChange, RouteConfig, RouteKind};
use firelane_api::{ApiError, FpmInfo, RefusedInfo, Status};
use firelane_fpm::{Change, Config, End, Feed, Hop, Refusal, Whence};
use firelane_model::{Fpm, Instance, LinkName, Model, NetstackName};
use firelane_units::{Instant, IpPrefix, LinkId, NetstackId};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::text::plain;
use crate::works::{Upper, Works};
use crate::{netlink, netns};

/// What is read at a time.
const CHUNK: usize = 1 << 16;
/// How often interfaces are looked for that routes need and that are not known.
const LOOK: Duration = Duration::from_secs(1);
/// How long nobody is accepted when there is no descriptor for one: the connection waits, and asking again at once would take a CPU.
const REST: Duration = Duration::from_secs(1);
/// A peer that is gone without a word is found out after two or three of these.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// All of them.
#[derive(Debug)]
pub(crate) struct Fpms {
    engine: Engine,
    instance: Instance,
    begin: std::time::Instant,
    running: BTreeMap<NetstackName, Running>,
}

#[derive(Debug)]
struct Running {
    said: Fpm,
    namespace: Option<PathBuf>,
    /// Which namespace had that name when it was listened in.
    place: Option<u64>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What a thread and those who ask it have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    known: Mutex<Known>,
    /// Wakes the thread.
    bell: OwnedFd,
    shall_stop: AtomicBool,
}

#[derive(Debug)]
struct Known {
    feed: Feed,
    peer: Option<SocketAddr>,
    fault: Option<String>,
    turned_away: u64,
    has_failed: bool,
    /// Our links by the names of the interfaces beside them, in the daemon's namespace.
    interfaces: BTreeMap<String, LinkId>,
}

impl Shared {
    fn new(feed: Feed) -> io::Result<Arc<Self>> {
        let known = Known {
            feed,
            peer: None,
            fault: None,
            turned_away: 0,
            has_failed: false,
            interfaces: BTreeMap::new(),
        };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { known: Mutex::new(known), bell, shall_stop: AtomicBool::new(false) }))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // A full counter rings as well.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Where a route of the daemon comes from.
    pub(crate) fn whence(&self, destination: IpPrefix) -> Option<Whence> {
        self.known().feed.whence(destination)
    }
}

fn config(said: &Fpm) -> Config {
    Config { grace: Duration::from_secs(said.grace.into()), settle: Duration::from_secs(said.settle.into()) }
}

/// Gives a netstack what changes; a lane that is out of service says so elsewhere.
fn tell(engine: &Engine, netstack: NetstackId, changes: &[Change]) {
    let changes: Vec<RouteChange> = changes.iter().map(|change| route_change(*change)).collect();
    if let Err(error) = engine.change_routes(netstack, &changes) {
        tracing::error!("routes of a routing daemon: {error}");
    }
}

fn route_change(change: Change) -> RouteChange {
    let config = |to: IpPrefix, hop: Hop| match hop {
        Hop::Via(gateway, link) => RouteConfig { link, ..RouteConfig::via(to, gateway) },
        Hop::OnLink(link) => RouteConfig::on_link(to, link),
        Hop::Ends(End::Blackhole) => RouteConfig::ending(to, RouteKind::Blackhole),
        Hop::Ends(End::Unreachable) => RouteConfig::ending(to, RouteKind::Unreachable),
        Hop::Ends(End::Prohibit) => RouteConfig::ending(to, RouteKind::Prohibit),
    };
    match change {
        Change::Add(to, hop) => RouteChange::Add(config(to, hop)),
        Change::Remove(to, hop) => RouteChange::Remove(config(to, hop)),
    }
}

impl Fpms {
    /// None yet.
    pub(crate) fn new(engine: Engine, instance: Instance) -> Self {
        Self { engine, instance, begin: std::time::Instant::now(), running: BTreeMap::new() }
    }

    /// Whether a routing daemon could be listened for as is said, when all of `next` is there but this.
    pub(crate) fn check(&self, said: &Fpm, next: &Model) -> Result<(), ApiError> {
        if let Some(name) = &said.namespace {
            let path = netns::path_of(&self.instance.namespace(name));
            let mut taps = next.vnics.values().filter_map(|vnic| vnic.tap()?.namespace.as_ref());
            return match path.exists() || taps.any(|it| it == name) {
                true => Ok(()),
                false => Err(no_namespace(said, &path)),
            };
        }
        // Who listens for another one of ours, or for this one elsewhere, may let go of the port before. Any port tells of the address alone.
        let has_port = |it: &Running| it.namespace.is_none() && it.said.listen.port() == said.listen.port();
        let is_ours = self.running.values().any(has_port);
        let port = if is_ours { 0 } else { said.listen.port() };
        may_be_bound(SocketAddr::new(said.listen.ip(), port)).map_err(|error| refused(said, &error))
    }

    /// Listens for a netstack's daemon, at another place, or no more: then its routes go.
    pub(crate) fn set(
        &mut self,
        name: &NetstackName,
        netstack: NetstackId,
        to: Option<&Fpm>,
    ) -> Result<(), ApiError> {
        let Some(said) = to else {
            if let Some(mut running) = self.running.remove(name) {
                running.stop();
                let engine = self.engine.clone();
                let mut sink = |changes: &[Change]| tell(&engine, netstack, changes);
                running.shared.known().feed.clear(since(self.begin), &mut sink);
            }
            return Ok(());
        };
        let namespace = said.namespace.as_ref().map(|it| netns::path_of(&self.instance.namespace(it)));
        let place = namespace.as_deref().and_then(place_of);
        let is_there = |it: &&mut Running| it.said.door() == said.door() && it.place == place;
        if let Some(running) = self.running.get_mut(name).filter(is_there) {
            running.shared.known().feed.set_config(config(said));
            running.shared.ring();
            running.said = said.clone();
            return Ok(());
        }
        let listener = bind(said, namespace.as_deref())?;
        // The routes of before stay for the grace time, as if their daemon had gone away.
        let feed = self.running.remove(name).map(|mut before| {
            before.stop();
            let mut known = before.shared.known();
            known.feed.disconnected(since(self.begin));
            core::mem::replace(&mut known.feed, Feed::new(config(said)))
        });
        let mut feed = feed.unwrap_or_else(|| Feed::new(config(said)));
        feed.set_config(config(said));
        let failed = |error: io::Error| ApiError::new(Status::Io, "fpm", name, plain(&error));
        let shared = Shared::new(feed).map_err(failed)?;
        let listening = Listening {
            name: name.clone(),
            engine: self.engine.clone(),
            netstack,
            namespace: namespace.clone(),
            shared: Arc::clone(&shared),
            begin: self.begin,
            listener,
            stream: None,
            looked: None,
            rests_until: None,
        };
        let builder = std::thread::Builder::new().name(format!("fpm-{name}"));
        let thread = Some(builder.spawn(move || listening.run()).map_err(failed)?);
        let running = Running { said: said.clone(), namespace, place, shared, thread };
        self.running.insert(name.clone(), running);
        Ok(())
    }

    /// A netstack goes, and its routes with it.
    pub(crate) fn forget(&mut self, name: &NetstackName) {
        if let Some(mut running) = self.running.remove(name) {
            running.stop();
        }
    }

    /// Whether any of them has interfaces in a namespace.
    fn has_namespaces(&self) -> bool {
        self.running.values().any(|it| it.namespace.is_some())
    }

    /// What a netstack's daemon knows, for whoever shows its routes.
    pub(crate) fn of(&self, name: &str) -> Option<Arc<Shared>> {
        self.running.get(name).map(|it| Arc::clone(&it.shared))
    }

    /// All of them, as they are shown.
    pub(crate) fn infos(&self) -> Vec<FpmInfo> {
        self.running.iter().map(|(name, it)| it.info(name)).collect()
    }

    /// Ends all; their netstacks end as well.
    pub(crate) fn stop_all(&mut self) {
        self.running.values_mut().for_each(Running::stop);
        self.running.clear();
    }
}

/// Which namespace has a name now, by its inode.
fn place_of(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|it| it.ino())
}

impl Works {
    /// Namespaces were made anew: whoever is listened for in one comes to the new one.
    pub(crate) fn listen_anew(&mut self, present: &Model) {
        for (name, netstack) in &present.netstacks {
            let Some(said) = &netstack.fpm else { continue };
            let listens = self.netstack(name).and_then(|id| self.fpms.set(name, id, Some(said)));
            if let Err(error) = listens {
                tracing::error!("fpm of netstack {name}: {error}");
            }
        }
        self.note_interfaces(present);
    }

    /// VNICs have come or gone: which of them lie beside the interfaces of routing daemons. An interface of the daemon's namespace
    /// and the netstack's VNIC belong together if they are over one link, in one VLAN; where the netstack has two there, the
    /// daemon's interface cannot say which it means.
    pub(crate) fn note_interfaces(&self, present: &Model) {
        if !self.fpms.has_namespaces() {
            return;
        }
        for (netstack, running) in &self.fpms.running {
            let Some(namespace) = &running.namespace else { continue };
            let its = |upper: &Upper| {
                let (ifname, place) = upper.device.as_ref()?.place();
                (place == Some(namespace)).then(|| ifname.to_owned())
            };
            let beside = |(name, upper): (&LinkName, &Upper)| {
                let (ifname, vnic) = (its(upper)?, present.vnics.get(name)?);
                let mut own = present.vnics.iter().filter(|(_, it)| {
                    it.netstack() == Some(netstack) && (&it.over, it.vlan) == (&vnic.over, vnic.vlan)
                });
                let (only, other) = (own.next()?, own.next());
                let id = self.vnics.get(only.0)?.id;
                other.is_none().then_some((ifname, id))
            };
            let interfaces = self.vnics.iter().filter_map(beside).collect();
            running.shared.known().interfaces = interfaces;
            running.shared.ring();
        }
    }
}

impl Running {
    fn stop(&mut self) {
        self.shared.shall_stop.store(true, Ordering::Release);
        self.shared.ring();
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }

    fn info(&self, name: &NetstackName) -> FpmInfo {
        let known = self.shared.known();
        let counts = known.feed.counts();
        let refused =
            |why: &Refusal| RefusedInfo { reason: why.word().to_owned(), messages: counts.refused(*why) };
        let state = match (known.has_failed, known.feed.is_connected()) {
            (true, _) => "failed",
            (false, true) => "connected",
            (false, false) => "listening",
        };
        FpmInfo {
            netstack: name.clone(),
            listen: self.said.listen.to_string(),
            namespace: self.said.namespace.as_ref().map(ToString::to_string),
            state: state.to_owned(),
            peer: known.peer.map(|it| it.to_string()),
            fault: known.fault.clone(),
            sessions: counts.sessions,
            turned_away: known.turned_away,
            bytes: counts.bytes,
            messages: counts.messages,
            routes: counts.routes,
            stale: counts.stale,
            unresolved: counts.unresolved,
            installed: counts.installed,
            next_hops: counts.next_hops,
            swept: counts.swept,
            refused: Refusal::ALL.iter().map(refused).collect(),
        }
    }
}

fn bind(said: &Fpm, namespace: Option<&Path>) -> Result<TcpListener, ApiError> {
    if let Some(path) = namespace.filter(|path| !path.exists()) {
        return Err(no_namespace(said, path));
    }
    let listening = netns::inside(namespace, || {
        let listener = TcpListener::bind(said.listen)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listening.map_err(|error| refused(said, &error))
}

fn no_namespace(said: &Fpm, path: &Path) -> ApiError {
    let name = said.namespace.as_ref().map(ToString::to_string).unwrap_or_default();
    let allowed = format!("there is no network namespace {}", path.display());
    ApiError::new(Status::NotFound, "fpm.namespace", name, allowed)
}

fn refused(said: &Fpm, error: &io::Error) -> ApiError {
    let status = match error.kind() {
        io::ErrorKind::AddrInUse => Status::AddrInUse,
        io::ErrorKind::PermissionDenied => Status::Denied,
        _ => Status::Io,
    };
    ApiError::new(status, "fpm.listen", said.listen, plain(error))
}

/// Whether somebody could listen there in the daemon's own namespace. Nobody does by this: who connects meanwhile is refused.
fn may_be_bound(listen: SocketAddr) -> io::Result<()> {
    let family = if listen.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // As who listens says it, or ports would be taken by connections that rest.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(rustix::net::bind(&socket, &listen)?)
}

/// The time that feeds reckon in.
fn since(begin: std::time::Instant) -> Instant {
    Instant::from_nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// What a thread has.
struct Listening {
    name: NetstackName,
    engine: Engine,
    netstack: NetstackId,
    namespace: Option<PathBuf>,
    shared: Arc<Shared>,
    begin: std::time::Instant,
    listener: TcpListener,
    stream: Option<TcpStream>,
    /// When interfaces were looked for.
    looked: Option<std::time::Instant>,
    /// Until when nobody is accepted.
    rests_until: Option<std::time::Instant>,
}

/// What a thread was woken for.
#[derive(Default)]
struct Woken {
    bell: bool,
    listener: bool,
    stream: bool,
}

impl Listening {
    fn run(mut self) {
        let mut chunk = vec![0; CHUNK];
        while !self.shared.shall_stop.load(Ordering::Acquire) {
            let woken = match self.wait() {
                Ok(woken) => woken,
                Err(error) => {
                    tracing::error!("fpm of netstack {}: {error}", self.name);
                    let mut known = self.shared.known();
                    (known.has_failed, known.fault) = (true, Some(plain(&error)));
                    return;
                }
            };
            if woken.bell {
                let _ = rustix::io::read(&self.shared.bell, &mut [0; 8]);
                self.looked = None;
            }
            if woken.stream {
                self.read(&mut chunk);
            }
            if woken.listener {
                self.accept();
            }
            self.look();
            self.with_feed(|feed, now, sink| feed.on_time(now, sink));
        }
    }

    /// Does something with the feed, whose changes go to the engine.
    fn with_feed<T>(&self, work: impl FnOnce(&mut Feed, Instant, &mut dyn FnMut(&[Change])) -> T) -> T {
        let mut sink = |changes: &[Change]| tell(&self.engine, self.netstack, changes);
        work(&mut self.shared.known().feed, since(self.begin), &mut sink)
    }

    fn wait(&self) -> io::Result<Woken> {
        let mut until = self.shared.known().feed.deadline().map(|at| at.saturating_since(since(self.begin)));
        if self.needs_interfaces() {
            until = Some(until.map_or(LOOK, |until| until.min(LOOK)));
        }
        let rest = self.rests_until.map(|end| end.saturating_duration_since(std::time::Instant::now()));
        let rest = rest.filter(|rest| !rest.is_zero());
        let listens = if rest.is_some() { PollFlags::empty() } else { PollFlags::IN };
        until = until.into_iter().chain(rest).min();
        let timeout = until.and_then(|until| Timespec::try_from(until).ok());
        let mut fds =
            vec![PollFd::new(&self.shared.bell, PollFlags::IN), PollFd::new(&self.listener, listens)];
        fds.extend(self.stream.as_ref().map(|stream| PollFd::new(stream, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Woken::default()),
            Err(error) => return Err(error.into()),
        }
        let is_woken = |nth: usize| fds.get(nth).is_some_and(|fd| !fd.revents().is_empty());
        Ok(Woken { bell: is_woken(0), listener: is_woken(1), stream: is_woken(2) })
    }

    fn accept(&mut self) {
        let (stream, from) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => return self.rest(&error),
        };
        if self.stream.is_some() {
            self.shared.known().turned_away += 1;
            tracing::warn!("fpm of netstack {}: {from} was turned away: another is connected", self.name);
            return;
        }
        if let Err(error) = stream.set_nonblocking(true).and_then(|()| keep_alive(&stream)) {
            tracing::warn!("fpm of netstack {}: {from}: {error}", self.name);
            return;
        }
        tracing::info!("fpm of netstack {}: {from} is connected", self.name);
        self.stream = Some(stream);
        self.looked = None;
        let now = since(self.begin);
        let mut known = self.shared.known();
        (known.peer, known.fault) = (Some(from), None);
        known.feed.connected(now);
    }

    /// Nobody could be accepted.
    fn rest(&mut self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
        if !matches!(error.kind(), ConnectionAborted | Interrupted | WouldBlock) {
            tracing::warn!("fpm of netstack {}: nobody is accepted for {REST:?}: {error}", self.name);
            self.rests_until = Some(std::time::Instant::now() + REST);
            if self.stream.is_none() {
                self.shared.known().fault = Some(plain(error));
            }
        }
    }

    fn read(&mut self, chunk: &mut [u8]) {
        let Some(stream) = &mut self.stream else { return };
        let end = match stream.read(chunk) {
            Ok(0) => None,
            Ok(length) => {
                let bytes = &chunk[..length];
                match self.with_feed(|feed, now, sink| feed.received(now, bytes, sink)) {
                    Ok(()) => return,
                    Err(broken) => Some(broken.to_string()),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            Err(error) => Some(plain(&error)),
        };
        match &end {
            None => tracing::info!("fpm of netstack {}: the routing daemon has gone away", self.name),
            Some(why) => tracing::warn!("fpm of netstack {}: the connection was ended: {why}", self.name),
        }
        self.stream = None;
        let now = since(self.begin);
        let mut known = self.shared.known();
        (known.peer, known.fault) = (None, end);
        known.feed.disconnected(now);
    }

    /// Whether routes wait for interfaces that are not known, and that may come.
    fn needs_interfaces(&self) -> bool {
        self.namespace.is_some() && self.stream.is_some() && {
            let known = self.shared.known();
            !known.interfaces.is_empty() && known.feed.counts().unresolved > 0
        }
    }

    /// Asks the kernel for the numbers of the interfaces in the daemon's namespace.
    fn look(&mut self) {
        let is_due = match self.looked {
            None => true,
            Some(looked) => looked.elapsed() >= LOOK && self.needs_interfaces(),
        };
        let Some(namespace) = self.namespace.as_deref().filter(|_| is_due) else { return };
        self.looked = Some(std::time::Instant::now());
        let interfaces = self.shared.known().interfaces.clone();
        let number = |(name, link): (&String, &LinkId)| Some((netlink::index_of(name).ok()?, *link));
        let numbers = || Ok(interfaces.iter().filter_map(number).collect::<HashMap<u32, LinkId>>());
        match netns::inside(Some(namespace), numbers) {
            Ok(links) => self.with_feed(|feed, _, sink| feed.set_links(links, sink)),
            Err(error) => {
                tracing::warn!("fpm of netstack {}: {}: {error}", self.name, namespace.display());
            }
        }
    }
}

fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let fd = stream.as_fd();
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(fd, KEEPALIVE)?;
    Ok(sockopt::set_tcp_keepcnt(fd, 2)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane::EngineConfig;
    use std::net::UdpSocket;

    #[test]
    fn who_cannot_accept_does_not_try_at_once_again() {
        // A datagram waits where `accept` has nothing to take: it fails, and goes on being told of.
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        let config = Config { grace: Duration::from_secs(1), settle: Duration::from_secs(1) };
        let mut listening = Listening {
            name: "web".parse().unwrap(),
            engine: Engine::start(&EngineConfig::default()).unwrap(),
            netstack: NetstackId(0),
            namespace: None,
            shared: Shared::new(Feed::new(config)).unwrap(),
            begin: std::time::Instant::now(),
            listener: OwnedFd::from(socket).into(),
            stream: None,
            looked: None,
            rests_until: None,
        };
        // So nobody sleeps here, however long the rest is.
        rustix::io::write(&listening.shared.bell, &1u64.to_ne_bytes()).unwrap();
        assert!(listening.wait().unwrap().listener);
        listening.accept();
        assert!(listening.shared.known().fault.is_some());
        listening.rests_until = listening.rests_until.map(|until| until + Duration::from_secs(3600));
        let woken = listening.wait().unwrap();
        assert!(woken.bell && !woken.listener, "it rests");
        listening.rests_until = Some(listening.begin);
        assert!(listening.wait().unwrap().listener, "and goes on");
    }
}
