//! A netstack as a program sees it: the handle that sockets are opened on, and a builder for embedding one.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use firelane_ip::{AutoconfConfig, LOOPBACK};
use firelane_lane::RouteConfig;
use firelane_tcp::TcpConfig;
use firelane_units::{IpPrefix, LinkId, MacAddr, Mtu, NetstackId};

use crate::engine::{Engine, EngineConfig, Inner, VnicConfig, VnicUser};
use crate::netstack_config::{NetstackConfig, SocketDefaults};
use crate::queue::Queue;
use crate::udp_groups::check_link;

/// One IP instance. Clones are the same netstack; the engine runs as long as any of them or a socket does.
///
/// ```
/// use std::time::Duration;
/// use firelane::{Stack, TcpListener};
/// # fn main() -> std::io::Result<()> {
/// let (left, right) = firelane::wire(firelane::WireConfig::default());
/// let server = Stack::builder().interface(left).address("10.0.0.1/24")?.build()?;
/// let _client = Stack::builder().interface(right).address("10.0.0.2/24")?.build()?;
/// let listener = TcpListener::bind(&server, "10.0.0.1:7")?;
/// assert_eq!(listener.local_addr()?.port(), 7);
/// assert!(server.drain(Duration::from_secs(1)), "nothing was written that has yet to arrive");
/// # Ok(())
/// # }
/// ```
///
/// With the last of these handles the engine ends, and with it every connection, unlike the kernel's, which outlives a program. So the
/// drop of the last one waits until peers have acknowledged what was written before, for a second at most; what has not arrived by then
/// is lost, and its connection reset. [`Stack::drain`] waits as long as its caller likes, and says whether everything has arrived. An
/// engine without threads ([`StackBuilder::driven`]) sends nothing of its own: drain it before.
#[derive(Clone)]
pub struct Stack {
    pub(crate) inner: Arc<Inner>,
    pub(crate) id: NetstackId,
}

impl Stack {
    /// Whether one of its VNICs is this one, or the loopback device is.
    pub(crate) fn has_link(&self, link: LinkId) -> bool {
        link == LOOPBACK || check_link(&self.inner.registry_of_now(), self.id, link).is_ok()
    }

    /// Begins an engine with one netstack.
    pub fn builder() -> StackBuilder {
        StackBuilder {
            engine: EngineConfig::default(),
            tcp: TcpConfig::default(),
            interfaces: Vec::new(),
            routes: Vec::new(),
        }
    }

    /// The engine that it runs in.
    pub fn engine(&self) -> Engine {
        Engine(Arc::clone(&self.inner))
    }

    /// Its tunables as they are now.
    pub(crate) fn config(&self) -> io::Result<Arc<NetstackConfig>> {
        Ok(Arc::clone(&self.inner.registry().netstack_mut(self.id)?.config))
    }

    /// The link that has an address.
    pub(crate) fn link_of(&self, address: IpAddr) -> Option<u32> {
        let mut registry = self.inner.registry();
        let netstack = registry.netstack_mut(self.id).ok()?;
        let its = netstack.addresses.iter().find(|(_, prefix)| prefix.addr() == address);
        its.map(|(link, _)| link.0)
    }

    /// The link that leads to a group, if any does.
    pub(crate) fn link_towards(&self, group: IpAddr) -> Option<u32> {
        let lane = self.inner.registry().netstack_mut(self.id).ok()?.all_lanes().first().copied()?;
        let found = self.inner.fabric.visit(lane, |_, lane| lane.group_link(self.id, group));
        found.flatten().map(|link| link.0)
    }

    /// Whether a socket may have the address.
    pub(crate) fn owns(&self, ip: IpAddr) -> io::Result<bool> {
        Ok(self.inner.registry_of_now().netstack_mut(self.id)?.owns(ip))
    }

    /// Whether the interface over a link has the address.
    pub(crate) fn owns_on(&self, link: LinkId, ip: IpAddr) -> io::Result<bool> {
        Ok(self.inner.registry_of_now().netstack_mut(self.id)?.has_address_on(link, ip))
    }

    /// Whether one of its datagram sockets may be bound to an address.
    pub(crate) fn may_bind(&self, ip: IpAddr) -> io::Result<bool> {
        Ok(self.inner.registry_of_now().netstack_mut(self.id)?.may_bind(ip))
    }

    /// What its sockets begin with.
    ///
    /// # Errors
    /// The netstack is gone.
    pub fn sockets(&self) -> io::Result<SocketDefaults> {
        Ok(self.config()?.sockets.clone())
    }

    /// Its identifier in that engine.
    pub fn id(&self) -> NetstackId {
        self.id
    }
}

impl Engine {
    /// The handle of a netstack, to open sockets on.
    pub fn stack(&self, id: NetstackId) -> Option<Stack> {
        let exists = self.0.registry().netstacks.contains_key(&id);
        exists.then(|| Stack { inner: Arc::clone(&self.0), id })
    }
}

struct Interface {
    queues: Vec<Queue>,
    mac: Option<MacAddr>,
    mtu: Mtu,
    addresses: Vec<IpPrefix>,
    autoconf: Option<AutoconfConfig>,
}

/// Builds an engine with one netstack.
///
/// ```
/// use firelane::{Stack, WireConfig, wire};
/// # fn main() -> std::io::Result<()> {
/// let (end, _other) = wire(WireConfig::default());
/// let stack = Stack::builder()
///     .lanes(2)
///     .interface(end)
///     .mac("02:08:20:00:00:01")?
///     .address("10.0.0.1/24")?
///     .address("fd00::1/64")?
///     .gateway("10.0.0.254")?
///     .build()?;
/// assert_eq!(stack.engine().lanes(), 2);
/// # Ok(())
/// # }
/// ```
pub struct StackBuilder {
    engine: EngineConfig,
    tcp: TcpConfig,
    interfaces: Vec<Interface>,
    routes: Vec<RouteConfig>,
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl StackBuilder {
    /// How many lanes; one unless said otherwise.
    #[must_use]
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.engine.lanes = lanes;
        self
    }

    /// The CPUs that lanes are bound to.
    #[must_use]
    pub fn cpus(mut self, cpus: &[usize]) -> Self {
        self.engine.cpus = cpus.to_vec();
        self
    }

    /// Starts no threads: the program drives the lanes through [`Engine::workers`].
    #[must_use]
    pub fn driven(mut self) -> Self {
        self.engine.threads = false;
        self
    }

    /// TCP's tunables.
    #[must_use]
    pub fn tcp(mut self, tcp: TcpConfig) -> Self {
        self.tcp = tcp;
        self
    }

    /// Begins an interface over a device with one queue: a wire's end, a TAP, a packet socket.
    #[must_use]
    pub fn interface(self, queue: impl Into<Queue>) -> Self {
        self.interface_queues(vec![queue.into()])
    }

    /// Begins an interface over a device with several queues.
    #[must_use]
    pub fn interface_queues(mut self, queues: Vec<Queue>) -> Self {
        let mtu = queues.first().map_or(Mtu::ETHERNET, |queue| {
            use firelane_frame::Driver;
            queue.capabilities().mtu
        });
        let addresses = Vec::new();
        self.interfaces.push(Interface { queues, mac: None, mtu, addresses, autoconf: None });
        self
    }

    /// The Ethernet address of the interface begun last; otherwise one is drawn.
    ///
    /// # Errors
    /// No interface was begun, or the text is no unicast address.
    pub fn mac(mut self, mac: &str) -> io::Result<Self> {
        let address: MacAddr = mac.parse().map_err(|e| invalid(format!("MAC address {mac:?}: {e}")))?;
        if !address.is_unicast() {
            return Err(invalid(format!("MAC address {mac:?}: not the address of one station")));
        }
        self.last("mac")?.mac = Some(address);
        Ok(self)
    }

    /// An address of the interface begun last, such as `10.0.0.1/24`.
    ///
    /// # Errors
    /// No interface was begun, or the text is no address with prefix length that one station can have.
    pub fn address(mut self, address: &str) -> io::Result<Self> {
        let prefix: IpPrefix = address.parse().map_err(|e| invalid(format!("address {address:?}: {e}")))?;
        if IpPrefix::of_interface(address).is_none() {
            let text = format!("address {address:?}: a prefix length is missing, as in {address}/24");
            return Err(invalid(text));
        }
        if !prefix.is_of_a_station() {
            let allowed =
                "unicast addresses are allowed, of IPv4 neither a network's own nor its broadcast address";
            return Err(invalid(format!("address {address:?} is no station's: {allowed}")));
        }
        self.last("address")?.addresses.push(prefix);
        Ok(self)
    }

    /// Lets the interface begun last configure IPv6 by itself, as its routers say.
    ///
    /// # Errors
    /// No interface was begun.
    pub fn autoconf(mut self, settings: AutoconfConfig) -> io::Result<Self> {
        self.last("autoconf")?.autoconf = Some(settings);
        Ok(self)
    }

    /// The default route through `gateway`.
    ///
    /// # Errors
    /// The text is no address.
    pub fn gateway(mut self, gateway: &str) -> io::Result<Self> {
        let gateway: IpAddr =
            gateway.parse().map_err(|_| invalid(format!("gateway {gateway:?}: invalid IP address")))?;
        let any: IpAddr = if gateway.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let destination = IpPrefix::new(any, 0).expect("zero fits every family");
        self.routes.push(RouteConfig::via(destination, gateway));
        Ok(self)
    }

    /// How its engine is made.
    pub(crate) fn engine_config(&self) -> &EngineConfig {
        &self.engine
    }

    fn last(&mut self, what: &str) -> io::Result<&mut Interface> {
        self.interfaces.last_mut().ok_or_else(|| invalid(format!("{what}: begin an interface first")))
    }

    /// Starts it.
    ///
    /// # Errors
    /// The engine cannot start, or refuses one of the parts.
    pub fn build(self) -> io::Result<Stack> {
        let engine = Engine::start(&self.engine)?;
        let id = engine.add_netstack(self.tcp)?;
        for interface in self.interfaces {
            let link = engine.add_link(interface.mtu)?;
            engine.add_uplink(link, interface.queues)?;
            let mac = interface.mac.map_or_else(random_mac, Ok)?;
            let vnic = engine.add_vnic(link, &VnicConfig::new(mac), VnicUser::Netstack(id))?;
            for address in interface.addresses {
                engine.add_address(vnic, address)?;
            }
            if interface.autoconf.is_some() {
                engine.set_autoconf(vnic, interface.autoconf)?;
            }
        }
        for route in self.routes {
            engine.add_route(id, route)?;
        }
        Ok(Stack { inner: Arc::clone(&engine.0), id })
    }
}

/// Does something with the first of a name's addresses with which it can be done, as std does; why not is told of the last one.
pub(crate) fn each_address<T>(
    addr: impl ToSocketAddrs,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in addr.to_socket_addrs()? {
        match attempt(addr) {
            Ok(value) => return Ok(value),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| invalid("the name has no address".to_owned())))
}

/// A locally administered address under the prefix that Solaris gives random addresses.
fn random_mac() -> io::Result<MacAddr> {
    let mut tail = [0; 3];
    getrandom::fill(&mut tail).map_err(io::Error::other)?;
    let [d, e, f] = tail;
    Ok(MacAddr([0x02, 0x08, 0x20, d, e, f]))
}
