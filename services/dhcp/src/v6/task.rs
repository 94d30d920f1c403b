//! A DHCPv6 client at work: the state machine with a socket, a clock, and the interface that it gives its lease to.
//!
//! One tokio task for each interface, begun and ended by the daemon, which passes on what routers say and how the
//! netstack's test of an address ended. The sibling of the task of DHCPv4; a lease here is an address alone, because
//! routes are the routers' to say.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use firelane::{ChangeError, Engine, Stack, UdpSocket};
use firelane_units::{Family, IpPrefix, LinkId};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::awaiting::Awaiting;
use crate::clock::{Clock, seconds_of};
use crate::outcome::{Counters, Times};
use crate::v6::{Action, Client, ClientConfig, Lease, Network, Phase, Wanted};

/// RFC 8415 §7.1 and §7.2.
const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const SERVER_PORT: u16 = 547;
const CLIENT_PORT: u16 = 546;
/// More than a message that fits an Ethernet packet.
const MESSAGE_MAX: usize = 2048;
/// A socket that fails is asked again after this time.
const SOCKET_WAIT: Duration = Duration::from_secs(1);

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
    /// Whether nothing new begins with its address.
    pub is_retired: bool,
    /// Who sent the last message that was used.
    pub server: Option<Ipv6Addr>,
    /// What the network is like.
    pub network: Network,
    /// The times of that lease.
    pub times: Option<Times>,
    /// What it has seen.
    pub counters: Counters,
}

enum Command {
    Wanted(Wanted),
    Tested(Ipv6Addr, bool),
    Refresh,
    Verify,
    Release(oneshot::Sender<()>),
}

/// An interface with what its lease gave it.
#[derive(Debug)]
struct Interface {
    stack: Stack,
    link: LinkId,
    given: Mutex<Option<IpPrefix>>,
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
    pub const SOCKET: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), CLIENT_PORT);

    /// Begins a client on `link` of `stack`, with the lease of before if there is one. It waits for what routers say.
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
        let clock = Clock::begin();
        let before = before.map(|before| {
            let left = before.until.map(|until| until.saturating_sub(seconds_of(SystemTime::now())));
            (before.lease, Duration::from_secs(left.unwrap_or(0)))
        });
        let client = Client::new(clock.now(), config, before);
        let report = Report {
            phase: client.phase(),
            lease: None,
            is_retired: false,
            server: None,
            network: Network::default(),
            times: None,
            counters: client.counters(),
        };
        let interface = Arc::new(Interface {
            stack: stack.clone(),
            link,
            given: Mutex::new(None),
            report: Mutex::new(report),
        });
        let (commands, orders) = mpsc::unbounded_channel();
        let awaiting = Awaiting::new(stack, link, Family::V6);
        let own = Arc::clone(&interface);
        let at_work = AtWork { client, clock, socket, awaiting, interface: own, keep, released: None };
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

    /// What the link's routers say is to be had.
    pub fn set_wanted(&self, wanted: Wanted) {
        self.order(Command::Wanted(wanted));
    }

    /// How the test of an address of the link ended.
    pub fn on_tested(&self, addr: Ipv6Addr, is_free: bool) {
        self.order(Command::Tested(addr, is_free));
    }

    /// Its link was away, and may lead to another network.
    pub fn verify(&self) {
        self.order(Command::Verify);
    }

    /// Asks for more time at once.
    pub fn refresh(&self) {
        self.order(Command::Refresh);
    }

    /// Gives the lease back; what is received ends when its server has heard of it, or does not answer.
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

    fn given(&self) -> MutexGuard<'_, Option<IpPrefix>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is somebody else's is not noted as given, for it would be taken back.
    fn give(&self, prefix: IpPrefix) -> Result<(), ChangeError> {
        self.take_back();
        let given = self.engine().add_address(self.link, prefix);
        match &given {
            Ok(()) => *self.given() = Some(prefix),
            Err(error) => tracing::error!("leased address {prefix}: {error}"),
        }
        given
    }

    /// Says whether something new may begin with the address.
    fn retire(&self, prefix: IpPrefix, is_retired: bool) {
        if std::mem::replace(&mut self.report().is_retired, is_retired) != is_retired
            && let Err(error) = self.engine().set_address(self.link, prefix, is_retired)
        {
            tracing::error!("leased address {prefix}: {error}");
        }
    }

    fn take_back(&self) {
        self.report().is_retired = false;
        if let Some(prefix) = self.given().take()
            && let Err(error) = self.engine().remove_address(self.link, prefix)
        {
            tracing::debug!("leased address {prefix}: {error}");
        }
    }
}

/// What the task owns.
struct AtWork {
    client: Client,
    clock: Clock,
    // It ends before the socket does, as who has the port next has an exchange of his own.
    awaiting: Awaiting,
    socket: UdpSocket,
    interface: Arc<Interface>,
    keep: Keep,
    /// Who waits for the end of a release.
    released: Option<oneshot::Sender<()>>,
}

impl AtWork {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Command>) {
        let mut bytes = [0; MESSAGE_MAX];
        loop {
            while let Some(action) = self.client.poll(self.clock.now()) {
                self.carry_out(action).await;
            }
            self.awaiting.follow(self.client.open());
            self.tell();
            tokio::select! {
                () = self.clock.reach(self.client.poll_at()) => {}
                received = self.socket.recv_from_async(&mut bytes) => match received {
                    Ok((len, from)) => self.hear(&bytes[..len], from),
                    Err(error) => {
                        tracing::debug!("DHCPv6 socket: {error}");
                        tokio::time::sleep(SOCKET_WAIT).await;
                    }
                },
                order = orders.recv() => match order {
                    None => return,
                    Some(order) => self.obey(order),
                },
            }
        }
    }

    fn hear(&mut self, bytes: &[u8], from: SocketAddr) {
        // Servers and relays of the link answer from there (RFC 8415 §18.3.10 and §19.2).
        if let IpAddr::V6(from) = from.ip() {
            let used = self.client.counters().used;
            self.client.on_message(self.clock.now(), bytes);
            if self.client.counters().used > used {
                self.interface.report().server = Some(from);
            }
        }
    }

    fn obey(&mut self, order: Command) {
        let now = self.clock.now();
        match order {
            Command::Wanted(wanted) => self.client.set_wanted(now, wanted),
            Command::Tested(addr, is_free) => self.client.on_tested(now, addr, is_free),
            Command::Refresh => self.client.refresh(now),
            Command::Verify => self.client.verify(now),
            Command::Release(done) => {
                self.client.release(now);
                self.released = Some(done);
            }
        }
    }

    async fn carry_out(&mut self, action: Action) {
        self.awaiting.follow(self.client.open());
        match action {
            Action::Send(bytes) => self.send(&bytes).await,
            Action::Test(lease) => {
                let now = self.clock.now();
                match self.interface.give(lease.prefix()) {
                    Ok(()) => {}
                    Err(ChangeError::AddressTaken(_)) => self.client.on_tested(now, lease.addr, false),
                    // A server that hears of it gives out another one, which cannot be used either.
                    Err(_) => self.client.put_off(now),
                }
            }
            Action::Bound(held) => {
                tracing::info!("lease of {}", held.lease.addr);
                self.interface.retire(held.lease.prefix(), false);
                let times = self.clock.times(held.lease.valid, held.until, held.renew_at());
                let left = held.until.saturating_since(self.clock.now());
                let until = held.lease.valid.map(|_| seconds_of(SystemTime::now() + left));
                let remembered = Remembered { lease: held.lease, until };
                (self.keep)(Some(&remembered));
                let mut report = self.interface.report();
                report.network = remembered.lease.network.clone();
                (report.lease, report.times) = (Some(remembered), Some(times));
            }
            Action::Retire(lease) => self.interface.retire(lease.prefix(), true),
            Action::Lost(lease, why) => {
                tracing::warn!("lease of {} ends: {why:?}", lease.addr);
                self.interface.take_back();
                (self.keep)(None);
                let mut report = self.interface.report();
                (report.lease, report.times, report.network) = (None, None, Network::default());
            }
            Action::Informed(network) => self.interface.report().network = network,
        }
    }

    async fn send(&self, bytes: &[u8]) {
        let to = SocketAddr::new(SERVERS.into(), SERVER_PORT);
        if let Err(error) = self.socket.send_to_async(bytes, to).await {
            tracing::debug!("DHCPv6 to {to}: {error}");
        }
    }

    fn tell(&mut self) {
        let mut report = self.interface.report();
        (report.phase, report.counters) = (self.client.phase(), self.client.counters());
        if report.phase == Phase::Released
            && let Some(done) = self.released.take()
        {
            // Who asked may have gone.
            let _ = done.send(());
        }
    }
}
