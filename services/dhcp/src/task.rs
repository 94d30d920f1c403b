//! A DHCPv4 client at work: the state machine with a socket, a clock, and the interface that it gives its lease to.
//!
//! One tokio task for each interface, begun and ended by the daemon. It carries out the client's actions in their order;
//! what it has given the interface (address, routes) is written down first, so that whoever ends the task can take it
//! away. The address' test for duplicates is the netstack's, whose notices the daemon passes on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use firelane::{ChangeError, Engine, Primacy, RouteConfig, Stack, UdpSocket};
use firelane_units::{Family, Instant, IpPrefix, LinkId};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::awaiting::Awaiting;
use crate::clock::{Clock, seconds_of};
use crate::link_local::{LinkLocal, Step};
use crate::outcome::{Counters, Loss, Times};
use crate::v4::{Action, Client, ClientConfig, Lease, Phase, Route};

/// RFC 2131 §4.1.
pub(crate) const SERVER_PORT: u16 = 67;
pub(crate) const CLIENT_PORT: u16 = 68;
/// More than a message that fits an Ethernet packet.
pub(crate) const MESSAGE_MAX: usize = 2048;
/// A released address stays for so long: what gives it back may wait for its server's Ethernet address.
const RELEASE_WAIT: Duration = Duration::from_millis(100);
/// A socket that fails is asked again after this time.
pub(crate) const SOCKET_WAIT: Duration = Duration::from_secs(1);

/// A lease as it is kept over a restart.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Remembered {
    /// What the server gave.
    pub lease: Lease,
    /// When it ends, in seconds since 1970; `None` is never.
    pub until: Option<u64>,
}

/// Where leases are kept: called with each that is in force and with `None` when there is none.
pub type Keep = Box<dyn Fn(Option<&Remembered>) + Send + Sync>;

/// Where a client stands.
#[derive(Clone, Debug)]
pub struct Report {
    /// In which state.
    pub phase: Phase,
    /// Its lease, if one is in force.
    pub lease: Option<Remembered>,
    /// The address of the link alone that is used meanwhile (RFC 3927).
    pub link_local: Option<IpPrefix>,
    /// The times of that lease.
    pub times: Option<Times>,
    /// What it has seen.
    pub counters: Counters,
}

enum Command {
    Tested(Ipv4Addr, bool),
    Refresh,
    Verify,
    Rename(Option<String>),
    Release(oneshot::Sender<()>),
}

/// What an interface has from its lease.
#[derive(Debug)]
struct Given {
    address: Option<IpPrefix>,
    link_local: Option<IpPrefix>,
    routes: Vec<RouteConfig>,
    primacy: Primacy,
}

impl Default for Given {
    fn default() -> Self {
        Self { address: None, link_local: None, routes: Vec::new(), primacy: Primacy::Other }
    }
}

/// An interface with what its lease gave it.
#[derive(Debug)]
struct Interface {
    stack: Stack,
    link: LinkId,
    given: Mutex<Given>,
    report: Mutex<Report>,
}

/// A client that runs.
#[derive(Debug)]
pub struct Running {
    task: JoinHandle<()>,
    commands: mpsc::UnboundedSender<Command>,
    interface: Arc<Interface>,
}

impl Running {
    /// What its socket is bound to.
    pub const SOCKET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), CLIENT_PORT);

    /// Begins a client on `link` of `stack`, with the lease of before if there is one.
    ///
    /// # Errors
    /// Its socket cannot be opened: the netstack does not have the link, or a program has DHCP's port.
    pub fn start(
        runtime: &Handle,
        stack: &Stack,
        link: LinkId,
        config: ClientConfig,
        before: Option<Remembered>,
        keep: Keep,
    ) -> io::Result<Self> {
        let socket = UdpSocket::bind_on(stack, Self::SOCKET, link)?;
        socket.set_broadcast(true)?;
        let clock = Clock::begin();
        let before = before.map(|before| {
            let left = before.until.map(|until| until.saturating_sub(seconds_of(SystemTime::now())));
            (before.lease, Duration::from_secs(left.unwrap_or(0)))
        });
        let link_local = config.link_local.then(|| LinkLocal::new(config.mac));
        let client = Client::new(clock.now(), config, before);
        let report = Report {
            phase: client.phase(),
            lease: None,
            link_local: None,
            times: None,
            counters: client.counters(),
        };
        let interface = Arc::new(Interface {
            stack: stack.clone(),
            link,
            given: Mutex::new(Given::default()),
            report: Mutex::new(report),
        });
        let (commands, orders) = mpsc::unbounded_channel();
        let awaiting = Awaiting::new(stack, link, Family::V4);
        let own = Arc::clone(&interface);
        let at_work = AtWork { client, link_local, clock, socket, awaiting, interface: own, keep };
        Ok(Self { task: runtime.spawn(at_work.run(orders)), commands, interface })
    }

    /// Which link it serves.
    pub fn link(&self) -> LinkId {
        self.interface.link
    }

    /// Where it stands.
    pub fn report(&self) -> Report {
        self.interface.report().clone()
    }

    /// How the test of an address of the link ended, or that another station claims one that is in use.
    pub fn on_tested(&self, addr: Ipv4Addr, is_free: bool) {
        self.order(Command::Tested(addr, is_free));
    }

    /// Asks for another host name from the next message on.
    pub fn rename(&self, host_name: Option<String>) {
        self.order(Command::Rename(host_name));
    }

    /// Whether the routes of its lease come before those of others. It holds at once.
    pub fn set_primary(&self, is_primary: bool) {
        self.interface.set_primacy(if is_primary { Primacy::Primary } else { Primacy::Other });
    }

    /// Its link was away, and may lead to another network.
    pub fn verify(&self) {
        self.order(Command::Verify);
    }

    /// Asks for more time at once.
    pub fn refresh(&self) {
        self.order(Command::Refresh);
    }

    /// Gives the lease back; what is received ends when that is done.
    pub fn release(&self) -> oneshot::Receiver<()> {
        let (done, released) = oneshot::channel();
        self.order(Command::Release(done));
        released
    }

    /// Ends it and takes away what its interface has from it. The server is told nothing.
    pub fn stop(self, runtime: &Handle) {
        self.task.abort();
        // It ends cancelled, which is no news.
        let _ = runtime.block_on(self.task);
        self.interface.take_back();
        self.interface.take_link_local();
    }

    fn order(&self, command: Command) {
        // A task that has ended serves nobody.
        let _ = self.commands.send(command);
    }
}

impl Interface {
    fn engine(&self) -> Engine {
        self.stack.engine()
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is somebody else's is not noted as given, for it would be taken back.
    fn give_address(&self, prefix: IpPrefix) -> Result<(), ChangeError> {
        self.take_back();
        let given = self.add("leased", prefix);
        self.given().address = given.is_ok().then_some(prefix);
        given
    }

    fn add(&self, what: &str, prefix: IpPrefix) -> Result<(), ChangeError> {
        let added = self.engine().add_address(self.link, prefix);
        added.inspect_err(|error| tracing::error!("{what} address {prefix}: {error}"))
    }

    /// Gives the routes of a lease, and takes those away that it has no more.
    fn give_routes(&self, lease: &Lease) {
        let mut given = self.given();
        let wanted = lease.routes.iter().filter_map(|it| route_of(it, self.link, given.primacy)).collect();
        self.replace_routes(&mut given, wanted);
    }

    fn set_primacy(&self, primacy: Primacy) {
        let mut given = self.given();
        given.primacy = primacy;
        let again = |it: &RouteConfig| RouteConfig { lease: Some(primacy), ..*it };
        let wanted = given.routes.iter().map(again).collect();
        self.replace_routes(&mut given, wanted);
    }

    /// The new ones come before the old ones go, so that there is a way all the time.
    fn replace_routes(&self, given: &mut Given, wanted: Vec<RouteConfig>) {
        let old = std::mem::take(&mut given.routes);
        for route in wanted.iter().filter(|it| !old.contains(it)) {
            if let Err(error) = self.engine().add_route(self.stack.id(), *route) {
                tracing::error!("leased route {}: {error}", route.destination);
            }
        }
        old.iter().filter(|it| !wanted.contains(it)).for_each(|it| self.remove_route(*it));
        given.routes = wanted;
    }

    fn take_back(&self) {
        let mut given = self.given();
        std::mem::take(&mut given.routes).into_iter().for_each(|it| self.remove_route(it));
        if let Some(prefix) = given.address.take()
            && let Err(error) = self.engine().remove_address(self.link, prefix)
        {
            tracing::debug!("leased address {prefix}: {error}");
        }
    }

    fn give_link_local(&self, prefix: IpPrefix) -> bool {
        self.take_link_local();
        let is_given = self.add("link-local", prefix).is_ok();
        self.given().link_local = is_given.then_some(prefix);
        is_given
    }

    fn take_link_local(&self) {
        if let Some(prefix) = self.given().link_local.take()
            && let Err(error) = self.engine().remove_address(self.link, prefix)
        {
            tracing::debug!("link-local address {prefix}: {error}");
        }
    }

    fn remove_route(&self, route: RouteConfig) {
        if let Err(error) = self.engine().remove_route(self.stack.id(), route) {
            tracing::debug!("leased route {}: {error}", route.destination);
        }
    }
}

/// A route of a lease that `link` has: through its router, or to the stations of a subnet that is there beside the address' own.
fn route_of(route: &Route, link: LinkId, primacy: Primacy) -> Option<RouteConfig> {
    let destination = route.destination()?;
    let through = match route.is_on_link() {
        true => RouteConfig::on_link(destination, link),
        false => RouteConfig::via(destination, IpAddr::V4(route.via)),
    };
    Some(RouteConfig { link: Some(link), lease: Some(primacy), ..through })
}

/// What the task owns.
struct AtWork {
    client: Client,
    /// `Some` if the operator wants one.
    link_local: Option<LinkLocal>,
    clock: Clock,
    // It ends before the socket does, as who has the port next has an exchange of his own.
    awaiting: Awaiting,
    socket: UdpSocket,
    interface: Arc<Interface>,
    keep: Keep,
}

impl AtWork {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Command>) {
        let mut bytes = [0; MESSAGE_MAX];
        loop {
            while let Some(action) = self.client.poll(self.clock.now()) {
                self.carry_out(action).await;
            }
            self.awaiting.follow(self.client.open());
            let other = self.run_link_local();
            self.tell();
            let next = [self.client.poll_at(), other].into_iter().flatten().min();
            tokio::select! {
                () = self.clock.reach(next) => {}
                received = self.socket.recv_from_async(&mut bytes) => match received {
                    Ok((len, from)) if from.port() == SERVER_PORT => {
                        self.client.on_message(self.clock.now(), &bytes[..len]);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!("DHCP socket: {error}");
                        tokio::time::sleep(SOCKET_WAIT).await;
                    }
                },
                order = orders.recv() => match order {
                    None => return,
                    Some(Command::Tested(addr, is_free)) => {
                        let now = self.clock.now();
                        self.client.on_tested(now, addr, is_free);
                        self.link_local.iter_mut().for_each(|it| it.on_tested(now, addr, is_free));
                    }
                    Some(Command::Rename(name)) => self.client.rename(name),
                    Some(Command::Refresh) => self.client.refresh(self.clock.now()),
                    Some(Command::Verify) => self.client.verify(self.clock.now()),
                    Some(Command::Release(done)) => {
                        self.client.release();
                        while let Some(action) = self.client.poll(self.clock.now()) {
                            self.carry_out(action).await;
                        }
                        self.tell();
                        // Who asked may have gone.
                        let _ = done.send(());
                    }
                },
            }
        }
    }

    /// While there is no lease the interface has an address of the link alone; when the next step is due.
    fn run_link_local(&mut self) -> Option<Instant> {
        let now = self.clock.now();
        let own = self.link_local.as_mut()?;
        own.follow(now, self.client.phase());
        while let Some(step) = own.poll(now) {
            match step {
                Step::Try(prefix) => {
                    if !self.interface.give_link_local(prefix)
                        && let IpAddr::V4(addr) = prefix.addr()
                    {
                        own.on_tested(now, addr, false);
                    }
                }
                Step::Drop(_) => self.interface.take_link_local(),
            }
        }
        own.poll_at()
    }

    async fn carry_out(&mut self, action: Action) {
        self.awaiting.follow(self.client.open());
        match action {
            Action::Broadcast(bytes) => self.send(Ipv4Addr::BROADCAST, &bytes).await,
            Action::Unicast(server, bytes) => self.send(server, &bytes).await,
            Action::Test(lease) => {
                let now = self.clock.now();
                match lease.prefix().map_or(Ok(()), |prefix| self.interface.give_address(prefix)) {
                    Ok(()) => {}
                    Err(ChangeError::AddressTaken(_)) => self.client.on_tested(now, lease.addr, false),
                    // A server that hears of it gives out another one, which cannot be used either.
                    Err(_) => self.client.put_off(now),
                }
            }
            Action::Bound(held) => {
                let lease = &held.lease;
                tracing::info!("lease of {}/{} from {}", lease.addr, lease.prefix_len, lease.server);
                self.interface.give_routes(lease);
                let times = self.clock.times(lease.time, held.until, held.renew_at());
                let left = held.until.saturating_since(self.clock.now());
                let until = lease.time.map(|_| seconds_of(SystemTime::now() + left));
                let remembered = Remembered { lease: held.lease, until };
                (self.keep)(Some(&remembered));
                let mut report = self.interface.report();
                (report.lease, report.times) = (Some(remembered), Some(times));
            }
            Action::Lost(lease, why) => {
                tracing::warn!("lease of {}/{} ends: {why:?}", lease.addr, lease.prefix_len);
                if why == Loss::Released {
                    tokio::time::sleep(RELEASE_WAIT).await;
                }
                self.interface.take_back();
                (self.keep)(None);
                let mut report = self.interface.report();
                (report.lease, report.times) = (None, None);
            }
        }
    }

    async fn send(&self, to: Ipv4Addr, bytes: &[u8]) {
        let to = SocketAddr::new(to.into(), SERVER_PORT);
        if let Err(error) = self.socket.send_to_async(bytes, to).await {
            tracing::debug!("DHCP to {to}: {error}");
        }
    }

    fn tell(&self) {
        let mut report = self.interface.report();
        (report.phase, report.counters) = (self.client.phase(), self.client.counters());
        let link_local = self.link_local.as_ref().is_some_and(|it| it.in_use().is_some());
        report.link_local = self.interface.given().link_local.filter(|_| link_local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_without_a_router_leads_to_the_link() {
        let link = LinkId(7);
        let route = |via: [u8; 4]| Route { network: [10, 9, 0, 0].into(), prefix_len: 16, via: via.into() };
        let of = |via| route_of(&route(via), link, Primacy::Primary).unwrap();
        let (near, far) = (of([0; 4]), of([10, 0, 0, 8]));
        assert_eq!((near.gateway, near.link, near.lease), (None, Some(link), Some(Primacy::Primary)));
        assert_eq!((far.gateway, far.link), (Some([10, 0, 0, 8].into()), Some(link)));
        assert_eq!((near.destination, far.destination), ("10.9.0.0/16".parse().unwrap(), near.destination));
    }
}
