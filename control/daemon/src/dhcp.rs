//! The DHCP clients of the host's interfaces, and the files that their leases survive a restart in.
//!
//! Called by `works.rs` for steps and by `addresses.rs` for notices of lanes. A client is a task of its own
//! (`services/dhcp`); what it reports is asked for when somebody looks.

use std::collections::BTreeMap;
use std::fs;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use firelane::{RouterFlags, Stack};
use firelane_api::{AddressState, ApiError, Informed, LeaseInfo, Leased, ResolverInfo, Status};
use firelane_dhcp::v4::{self, ClientConfig, Phase};
use firelane_dhcp::{Counters, Duid, Informer, Remembered, Running, Times, iaid, v6};
use firelane_model::{AddrObjName, Dhcp};
use firelane_units::{LinkId, MacAddr};
use serde::Serialize;
use serde::de::DeserializeOwned;
use siphasher::sip128::{Hasher128, SipHasher24};
use tokio::runtime::Handle;

use crate::text::plain;
use crate::{calendar, folder};

/// The files' names, in the state folder.
const FILE: &str = "leases.toml";
const FILE_V6: &str = "leases6.toml";
/// How long whoever releases a lease waits: a message and a moment for it to leave.
const RELEASE_TIME: Duration = Duration::from_secs(2);

/// The clients that run.
#[derive(Debug)]
pub(crate) struct Clients {
    runtime: Handle,
    leases: Arc<Leases<Remembered>>,
    leases_v6: Arc<Leases<v6::Remembered>>,
    duid: Duid,
    running: BTreeMap<AddrObjName, Running>,
    running_v6: BTreeMap<AddrObjName, v6::Running>,
    /// What servers were asked for static addresses.
    informers: BTreeMap<AddrObjName, Informer>,
}

/// The interface that a client serves.
pub(crate) struct Place<'a> {
    pub(crate) stack: &'a Stack,
    pub(crate) link: LinkId,
    pub(crate) mac: MacAddr,
}

impl Clients {
    /// None yet. Leases are kept in `folder`; who the host is to servers is made from `secret`, which stays.
    pub(crate) fn new(runtime: Handle, folder: &Path, secret: Option<[u8; 16]>) -> Self {
        // Without a secret that stays the host is another one at each start, and servers may say so.
        let secret = secret.unwrap_or_else(random);
        let mut hasher = SipHasher24::new_with_key(&secret);
        hasher.write(b"DHCP unique identifier");
        let duid = Duid::new(hasher.finish128().as_bytes());
        Self {
            runtime,
            leases: Arc::new(Leases::load(folder, FILE)),
            leases_v6: Arc::new(Leases::load(folder, FILE_V6)),
            duid,
            running: BTreeMap::new(),
            running_v6: BTreeMap::new(),
            informers: BTreeMap::new(),
        }
    }

    /// Begins the client of `name`. Questions on its link end, for they have its port, and its lease says what they ask.
    pub(crate) fn start(
        &mut self,
        name: &AddrObjName,
        conf: &Dhcp,
        place: &Place<'_>,
    ) -> Result<(), ApiError> {
        let config = ClientConfig {
            mac: place.mac,
            id: self.duid.client_id(iaid(name.interface())),
            host_name: conf.host_name.map(|name| name.to_string()),
            link_local: conf.link_local,
            seed: seed(),
        };
        self.informers.values_mut().filter(|it| it.link() == place.link).for_each(|it| it.end(&self.runtime));
        let keep = keeper(&self.leases, name);
        let before = self.leases.of(name.as_str());
        let started = Running::start(&self.runtime, place.stack, place.link, config, before, keep);
        let running = started.map_err(|error| ApiError::new(Status::Io, "dhcp", name, plain(&error)))?;
        running.set_primary(conf.primary);
        self.running.insert(name.clone(), running);
        Ok(())
    }

    /// Begins the DHCPv6 client of `name`, which waits for what routers say.
    pub(crate) fn start_v6(&mut self, name: &AddrObjName, place: &Place<'_>) -> Result<(), ApiError> {
        let config = v6::ClientConfig {
            duid: self.duid.as_bytes().to_vec(),
            iaid: iaid(name.interface()),
            seed: seed(),
        };
        let keep = keeper(&self.leases_v6, name);
        let before = self.leases_v6.of(name.as_str());
        let started = v6::Running::start(&self.runtime, place.stack, place.link, config, before, keep);
        let running = started.map_err(|error| ApiError::new(Status::Io, "dhcpv6", name, plain(&error)))?;
        self.running_v6.insert(name.clone(), running);
        Ok(())
    }

    /// Asks what the network of a static address is like. What was known of it is known until there is an answer.
    pub(crate) fn inform(&mut self, asker: &Informed, place: &Place<'_>) -> Result<(), ApiError> {
        let name = &asker.name;
        if let Some((other, _)) = self.running.iter().find(|(_, it)| it.link() == place.link) {
            let allowed = "its lease says what the network is like";
            return Err(ApiError::new(Status::IpNotSupported, "addrobj", other, allowed));
        }
        let config = v4::InformConfig {
            mac: place.mac,
            id: self.duid.client_id(iaid(name.interface())),
            addr: asker.addr,
            seed: seed(),
        };
        let before = self.informers.remove(name).map(|it| it.stop(&self.runtime));
        let started = Informer::start(&self.runtime, place.stack, place.link, config, before);
        let informer = started.map_err(|error| ApiError::new(Status::Io, "dhcp", name, plain(&error)))?;
        self.informers.insert(name.clone(), informer);
        Ok(())
    }

    /// What the servers of a static address' network have said.
    fn informed(&self, name: &AddrObjName) -> Option<Leased> {
        use v4::InformPhase as P;
        let report = self.informers.get(name)?.report();
        let word = match report.phase {
            P::Informing => "INFORMING",
            P::Informed => "INFORMED",
            P::Unanswered => "UNANSWERED",
        };
        let network = report.network.as_ref();
        let info = LeaseInfo {
            state: word.to_owned(),
            server: network.map(|it| it.server.into()),
            ..lease_info(None, &report.counters)
        };
        let resolvers = ResolverInfo {
            name_servers: network.iter().flat_map(|it| &it.name_servers).map(|it| (*it).into()).collect(),
            domains: network.map(|it| it.domains.clone()).unwrap_or_default(),
        };
        Some(Leased { state: AddressState::Ok, prefix: None, deprecated: false, resolvers, info })
    }

    /// Ends the client of `name` and takes its lease from the interface. Its server is told nothing.
    pub(crate) fn stop(&mut self, name: &AddrObjName) {
        if let Some(running) = self.running.remove(name) {
            running.stop(&self.runtime);
        }
        if let Some(running) = self.running_v6.remove(name) {
            running.stop(&self.runtime);
        }
        if let Some(informer) = self.informers.remove(name) {
            informer.stop(&self.runtime);
        }
    }

    /// What the sockets of clients on these links are bound to.
    pub(crate) fn sockets(&self, links: &[LinkId]) -> Vec<SocketAddr> {
        let is_meant = |link| links.contains(&link);
        let v4 = self.running.values().filter(|it| is_meant(it.link())).map(|_| Running::SOCKET);
        let v6 = self.running_v6.values().filter(|it| is_meant(it.link())).map(|_| v6::Running::SOCKET);
        let informers = self.informers.values().filter(|it| is_meant(it.link()));
        v4.chain(v6).chain(informers.filter_map(Informer::socket)).collect()
    }

    /// Asks for another host name, from the next message on, and may be the primary one from now on.
    pub(crate) fn change(&self, name: &AddrObjName, conf: &Dhcp) -> Result<(), ApiError> {
        let running = self.running.get(name).ok_or(Status::NoAddrObj)?;
        running.rename(conf.host_name.map(|name| name.to_string()));
        running.set_primary(conf.primary);
        Ok(())
    }

    /// Asks for more time.
    pub(crate) fn refresh(&self, name: &AddrObjName) -> Result<(), ApiError> {
        if let Some(running) = self.running_v6.get(name) {
            running.refresh();
            return Ok(());
        }
        self.running.get(name).ok_or(Status::NoAddrObj)?.refresh();
        Ok(())
    }

    /// A link was away, and may lead to another network: its clients ask whether what they have is right there.
    pub(crate) fn verify(&self, link: LinkId) {
        self.running.values().filter(|it| it.link() == link).for_each(Running::verify);
        self.running_v6.values().filter(|it| it.link() == link).for_each(v6::Running::verify);
    }

    /// Gives the lease of `name` back; the answer waits until that is done.
    pub(crate) fn release(&self, name: &AddrObjName) -> Result<impl FnOnce() + use<>, ApiError> {
        let released = match self.running_v6.get(name) {
            Some(running) => running.release(),
            None => self.running.get(name).ok_or(Status::NoAddrObj)?.release(),
        };
        let runtime = self.runtime.clone();
        // A client that ends meanwhile has no lease either.
        Ok(move || drop(runtime.block_on(async { tokio::time::timeout(RELEASE_TIME, released).await })))
    }

    /// What a lane has found out about an address of `link`.
    pub(crate) fn on_tested(&self, link: LinkId, addr: IpAddr, is_free: bool) {
        match addr {
            IpAddr::V4(addr) => {
                let of_link = self.running.values().filter(|it| it.link() == link);
                of_link.for_each(|it| it.on_tested(addr, is_free));
            }
            IpAddr::V6(addr) => {
                let of_link = self.running_v6.values().filter(|it| it.link() == link);
                of_link.for_each(|it| it.on_tested(addr, is_free));
            }
        }
    }

    /// What the routers of `link` say of DHCPv6.
    pub(crate) fn on_router(&self, link: LinkId, flags: RouterFlags) {
        let wanted = match flags {
            RouterFlags { managed: true, .. } => v6::Wanted::Addresses,
            RouterFlags { other: true, .. } => v6::Wanted::Information,
            RouterFlags { .. } => v6::Wanted::Nothing,
        };
        let of_link = self.running_v6.values().filter(|it| it.link() == link);
        of_link.for_each(|it| it.set_wanted(wanted));
    }

    /// What the DHCPv6 client of `name` has; nothing unless a router said that there is something.
    fn leased_v6(&self, name: &AddrObjName) -> Option<Leased> {
        use v6::Phase as P;
        let report = self.running_v6.get(name)?.report();
        let (state, word) = match report.phase {
            P::Idle => return None,
            P::Waiting => (AddressState::Down, "WAITING"),
            P::Soliciting => (AddressState::Down, "SOLICITING"),
            P::Requesting => (AddressState::Down, "REQUESTING"),
            P::Confirming => (AddressState::Down, "CONFIRMING"),
            P::Testing => (AddressState::Tentative, "TESTING"),
            P::Bound => (AddressState::Ok, "BOUND"),
            P::Renewing => (AddressState::Ok, "RENEWING"),
            P::Rebinding => (AddressState::Ok, "REBINDING"),
            P::Declining => (AddressState::Duplicate, "DECLINING"),
            P::Releasing => (AddressState::Disabled, "RELEASING"),
            P::Released => (AddressState::Disabled, "RELEASED"),
            P::Informing => (AddressState::Ok, "INFORMING"),
            P::Informed => (AddressState::Ok, "INFORMED"),
        };
        let info = LeaseInfo {
            state: word.to_owned(),
            server: report.server.map(IpAddr::V6),
            expires: report.lease.as_ref().and_then(|it| it.until),
            ..lease_info(report.times, &report.counters)
        };
        let resolvers = ResolverInfo {
            name_servers: report.network.name_servers.into_iter().map(IpAddr::V6).collect(),
            domains: report.network.domains,
        };
        let prefix = report.lease.map(|it| it.lease.prefix());
        Some(Leased { state, prefix, deprecated: report.is_retired, resolvers, info })
    }

    /// What the client of `name` has.
    pub(crate) fn leased(&self, name: &AddrObjName) -> Option<Leased> {
        if self.running_v6.contains_key(name) {
            return self.leased_v6(name);
        }
        if self.informers.contains_key(name) {
            return self.informed(name);
        }
        let report = self.running.get(name)?.report();
        let (state, word) = match report.phase {
            Phase::Init => (AddressState::Down, "INIT"),
            Phase::Selecting => (AddressState::Down, "SELECTING"),
            Phase::Requesting => (AddressState::Down, "REQUESTING"),
            Phase::Rebooting => (AddressState::Down, "REBOOTING"),
            Phase::Testing => (AddressState::Tentative, "TESTING"),
            Phase::Bound => (AddressState::Ok, "BOUND"),
            Phase::Renewing => (AddressState::Ok, "RENEWING"),
            Phase::Rebinding => (AddressState::Ok, "REBINDING"),
            Phase::Released => (AddressState::Disabled, "RELEASED"),
        };
        let info = LeaseInfo {
            state: word.to_owned(),
            server: report.lease.as_ref().map(|it| it.lease.server.into()),
            expires: report.lease.as_ref().and_then(|it| it.until),
            ..lease_info(report.times, &report.counters)
        };
        let resolvers = ResolverInfo {
            name_servers: report
                .lease
                .iter()
                .flat_map(|it| &it.lease.name_servers)
                .map(|it| (*it).into())
                .collect(),
            domains: report.lease.iter().flat_map(|it| it.lease.domains.clone()).collect(),
        };
        let leased = report.lease.and_then(|it| it.lease.prefix());
        let prefix = leased.or(report.link_local);
        // The address of the link can be used, whatever the client does meanwhile.
        let state = if report.link_local.is_some() && leased.is_none() { AddressState::Ok } else { state };
        Some(Leased { state, prefix, deprecated: false, resolvers, info })
    }
}

/// When a lease began and will be renewed, and what its client has counted.
fn lease_info(times: Option<Times>, counters: &Counters) -> LeaseInfo {
    LeaseInfo {
        began: times.map(|it| it.began),
        renews: times.and_then(|it| it.renews),
        sent: counters.sent,
        received: counters.received(),
        declined: counters.declined,
        ..LeaseInfo::default()
    }
}

/// Is told of each lease in force, and of its end.
type Keeper<T> = Box<dyn Fn(Option<&T>) + Send + Sync>;

/// Notes the leases of an address object.
fn keeper<T: Kept>(leases: &Arc<Leases<T>>, name: &AddrObjName) -> Keeper<T> {
    let (leases, name) = (Arc::clone(leases), name.to_string());
    Box::new(move |lease| leases.note(&name, lease))
}

fn seed() -> u64 {
    let [seed @ .., _, _, _, _, _, _, _, _] = random();
    u64::from_ne_bytes(seed)
}

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    // Without chance the kernel gives, two hosts would ask alike, and each would still get its own answers.
    let _ = getrandom::fill(&mut bytes);
    bytes
}

/// What is kept of a lease.
trait Kept: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// When it ends, in seconds since 1970.
    fn until(&self) -> Option<u64>;
}

impl Kept for Remembered {
    fn until(&self) -> Option<u64> {
        self.until
    }
}

impl Kept for v6::Remembered {
    fn until(&self) -> Option<u64> {
        self.until
    }
}

/// The leases in force, in memory and in the state folder.
#[derive(Debug)]
struct Leases<T> {
    path: PathBuf,
    known: Mutex<BTreeMap<String, T>>,
}

impl<T: Kept> Leases<T> {
    fn load(folder: &Path, file: &str) -> Self {
        let path = folder.join(file);
        let text = fs::read_to_string(&path).unwrap_or_default();
        // A lease that is not remembered is asked for anew.
        let known = toml::from_str(&text).unwrap_or_else(|error: toml::de::Error| {
            tracing::warn!("{}: {}", path.display(), error.message());
            BTreeMap::new()
        });
        Self { path, known: Mutex::new(known) }
    }

    fn of(&self, name: &str) -> Option<T> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn note(&self, name: &str, lease: Option<&T>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = calendar::seconds();
        known.retain(|other, it| other != name && it.until().is_none_or(|until| until > now));
        known.extend(lease.map(|lease| (name.to_owned(), lease.clone())));
        let written = toml::to_string(&*known).map_err(std::io::Error::other);
        if let Err(error) = written.and_then(|text| folder::replace(&self.path, &text)) {
            tracing::warn!("{}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;
    use firelane::{Engine, EngineConfig, NetstackConfig, VnicConfig, VnicUser};
    use firelane_dhcp::v4::{Lease, Route};
    use firelane_units::Mtu;
    use std::net::Ipv4Addr;

    fn remembered(until: Option<u64>) -> Remembered {
        let lease = Lease {
            addr: Ipv4Addr::new(10, 0, 0, 5),
            prefix_len: 24,
            server: Ipv4Addr::new(10, 0, 0, 1),
            time: until.map(|_| Duration::from_secs(3600)),
            renew: Duration::from_secs(1800),
            rebind: Duration::from_secs(3150),
            routes: vec![Route {
                network: Ipv4Addr::UNSPECIFIED,
                prefix_len: 0,
                via: Ipv4Addr::new(10, 0, 0, 1),
            }],
            name_servers: vec![Ipv4Addr::new(10, 0, 0, 53)],
            domains: vec!["lab.example".into()],
        };
        Remembered { lease, until }
    }

    /// A question that nobody answers yet has DHCP's port on its link.
    #[test]
    fn a_client_begins_where_a_question_waits_for_its_answer() {
        let engine = Engine::start(&EngineConfig::default()).unwrap();
        let id = engine.add_netstack_with(&NetstackConfig::default()).unwrap();
        let stub = engine.add_link(Mtu::ETHERNET).unwrap();
        let mac = MacAddr([2, 8, 32, 1, 2, 3]);
        let link = engine.add_vnic(stub, &VnicConfig::new(mac), VnicUser::Netstack(id)).unwrap();
        engine.add_address(link, "10.0.0.9/24".parse().unwrap()).unwrap();
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let mut clients = Clients::new(runtime.handle().clone(), folder.path(), None);
        let stack = engine.stack(id).unwrap();
        let place = Place { stack: &stack, link, mac };
        let asker = Informed {
            netstack: "default".parse().unwrap(),
            name: "web0/v4".parse().unwrap(),
            addr: Ipv4Addr::new(10, 0, 0, 9),
        };
        clients.inform(&asker, &place).unwrap();
        let state = |clients: &Clients, name| clients.leased(name).unwrap().info.state;
        assert_eq!(state(&clients, &asker.name), "INFORMING");
        let name: AddrObjName = "web0/more".parse().unwrap();
        clients.start(&name, &Dhcp::default(), &place).unwrap();
        assert_eq!(state(&clients, &asker.name), "UNANSWERED");
        assert!(clients.inform(&asker, &place).is_err(), "its lease says what the network is like");
        for it in [&name, &asker.name] {
            clients.stop(it);
        }
    }

    #[test]
    fn leases_come_back_and_those_that_are_over_are_forgotten() {
        let folder = Scratch::new();
        let leases = Leases::<Remembered>::load(folder.path(), FILE);
        let (long, past) = (remembered(Some(u64::MAX >> 1)), remembered(Some(1)));
        leases.note("web0/v4", Some(&long));
        leases.note("web1/v4", Some(&past));
        leases.note("web2/v4", Some(&remembered(None)));
        let again = Leases::<Remembered>::load(folder.path(), FILE);
        assert_eq!(again.of("web0/v4"), Some(long));
        assert_eq!((again.of("web1/v4"), again.of("web2/v4")), (None, Some(remembered(None))));
        again.note("web0/v4", None);
        assert_eq!(Leases::<Remembered>::load(folder.path(), FILE).of("web0/v4"), None);
        fs::write(folder.path().join(FILE), "[[[").unwrap();
        assert_eq!(Leases::<Remembered>::load(folder.path(), FILE).of("web2/v4"), None);
    }
}
