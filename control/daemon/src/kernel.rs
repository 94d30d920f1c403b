//! Everything that the daemon has in the kernel: interfaces that use VNICs, and the namespaces they are in.
//!
//! Called by `works.rs`. An interface is a TAP; where `/dev/net/tun` cannot be opened, it is a veth pair, and
//! status says so with the reason. Namespaces that exist already are used and left as they are; those made
//! here are removed when nothing of the configuration is in them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use firelane::{OpenError, Queue, TapConfig, TapHandle, TapQueue, open_tap};
use firelane_api::{ApiError, Status};
use firelane_model::{Instance, LinkName, Model, NamespaceName, Route, Tap};
use firelane_units::{IpPrefix, MacAddr, Mtu};
use rustix::io::Errno;

use crate::mac;
use crate::netlink::{self, Asker, Seen};
use crate::netns::{self, Identity, Presence};
use crate::owned::Owned;
use crate::text::plain;
use crate::veth::{self, Pair};

/// How long a name may stay taken: a TAP ends some time after its last descriptor is closed.
pub(crate) const NAME_WAIT: Duration = Duration::from_secs(1);
/// Between two looks.
const NAME_POLL: Duration = Duration::from_millis(10);

/// The speed that the kernel gives a TAP, in Mb/s.
pub(crate) const TAP_SPEED: u32 = 10_000;

/// What the daemon has in the kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    instance: Instance,
    owned: Owned,
    queues: u16,
    /// What [`Device::overflowed`] said of those that are closed.
    overflowed: u64,
}

/// An interface of the kernel that uses a VNIC or carries a link.
#[derive(Debug)]
pub(crate) struct Device {
    ifname: String,
    namespace: Option<PathBuf>,
    detour: Option<Detour>,
    /// Whether floods end at its door, if it is a TAP.
    has_door: Option<bool>,
    /// What tells of it, if it is a TAP.
    handle: Option<TapHandle>,
    /// Where it was made, if it is a TAP.
    home: Option<Home>,
    /// The speed that its user sees, in Mb/s.
    speed: AtomicU32,
    /// What was known of [`Self::overflowed`] at last.
    overflowed: AtomicU64,
}

/// The network namespace in which a TAP was made, which its queues keep.
#[derive(Debug)]
struct Home {
    namespace: Identity,
    asker: Asker,
}

impl Home {
    /// That of a TAP which has just been made.
    fn of(tap: &TapHandle) -> io::Result<Self> {
        let mut asker = None;
        tap.inside(|| {
            asker = Some(Asker::new()?);
            Ok(())
        })?;
        let asker = asker.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { namespace: netns::identity(tap.namespace()?)?, asker })
    }
}

/// A device as it is now, whatever its user has done to it.
#[derive(Debug)]
struct Found {
    seen: Seen,
    /// It is in another namespace than it shall be in, which may have a name.
    elsewhere: Option<Option<String>>,
}

/// What a device shall be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shall {
    /// The address of its VNIC, if it has one.
    pub(crate) mac: Option<MacAddr>,
    /// Whether frames come for that address alone.
    pub(crate) is_filtered: bool,
    /// Whether frames from other addresses are dropped (`mac-nospoof`).
    pub(crate) heeds_senders: bool,
    /// The largest packet.
    pub(crate) mtu: Mtu,
}

impl Shall {
    /// What becomes of frames where it has another address.
    fn of_another_address(self) -> Vec<&'static str> {
        let effects = [
            (self.is_filtered, "what is sent to it does not come there"),
            (self.heeds_senders, "what it sends is dropped (mac-nospoof)"),
        ];
        effects.into_iter().filter_map(|(happens, effect)| happens.then_some(effect)).collect()
    }
}

/// A veth pair in place of a TAP.
#[derive(Debug)]
struct Detour {
    near: String,
    why: String,
}

impl Device {
    /// The interface's name, and the file that holds its network namespace if that is not the daemon's own.
    pub(crate) fn place(&self) -> (&str, Option<&PathBuf>) {
        (&self.ifname, self.namespace.as_ref())
    }

    /// How it is attached if that is not by a TAP, and why.
    pub(crate) fn detour(&self) -> Option<String> {
        let it = self.detour.as_ref()?;
        Some(format!("{}: veth pair {} in place of a TAP, which is slower: {}", self.ifname, it.near, it.why))
    }
}

impl Device {
    /// The TAP's name if nothing hangs at its door.
    pub(crate) fn doorless(&self) -> Option<&str> {
        (self.has_door == Some(false)).then_some(self.ifname.as_str())
    }

    /// What it is called now.
    pub(crate) fn name(&self) -> String {
        self.handle.as_ref().and_then(TapHandle::name).unwrap_or_else(|| self.ifname.clone())
    }

    /// Does some work where it is now.
    fn inside(&self, work: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
        match &self.handle {
            Some(handle) => handle.inside(work),
            None => netns::inside(self.namespace.as_deref(), work),
        }
    }

    /// Whether somebody has deleted it.
    pub(crate) fn is_gone(&self) -> bool {
        match (&self.handle, &self.detour) {
            (Some(handle), _) => handle.name().is_none(),
            (None, Some(Detour { near, .. })) => netlink::exists(near).is_ok_and(|is_there| !is_there),
            (None, None) => false,
        }
    }

    /// As it is now; none if it is gone. A TAP is found wherever it is, a veth only where it shall be.
    fn look(&self) -> io::Result<Option<Found>> {
        if let (Some(tap), Some(home)) = (&self.handle, &self.home) {
            let Some(name) = tap.name() else { return Ok(None) };
            let namespace = netns::identity(tap.namespace()?)?;
            if namespace == home.namespace {
                let seen = home.asker.look_by_name(&name)?;
                return Ok(seen.map(|seen| Found { seen, elsewhere: None }));
            }
            let mut seen = None;
            tap.inside(|| {
                seen = Asker::new()?.look_by_name(&name)?;
                Ok(())
            })?;
            return Ok(seen.map(|seen| Found { seen, elsewhere: Some(netns::name_of(namespace)) }));
        }
        let Some(Detour { near, .. }) = &self.detour else { return Err(io::ErrorKind::Unsupported.into()) };
        let Some(near) = Asker::new()?.look_by_name(near)? else { return Ok(None) };
        let far = near.peer.ok_or(io::ErrorKind::NotFound)?;
        let seen = netns::inside(self.namespace.as_deref(), || netlink::look(far))?;
        // Numbers are counted in each namespace.
        let is_its = |it: &Seen| it.peer == Some(near.index);
        Ok(Some(match seen.filter(is_its) {
            Some(seen) => Found { seen, elsewhere: None },
            // The near end has a carrier as long as the far one is on, and is as large.
            None => {
                Found { seen: Seen { name: self.ifname.clone(), mac: None, ..near }, elsewhere: Some(None) }
            }
        }))
    }

    /// How many frames its user has sent in vain, because those before were still to be read: the ring that the kernel has for them was
    /// full. It is what a limit does to who does not heed it, as far as that has not ended at the door.
    pub(crate) fn overflowed(&self) -> u64 {
        let tap = self.handle.as_ref();
        if let Some((tap, Ok(Some(Found { seen, .. })))) = tap.map(|tap| (tap, self.look())) {
            // The door is asked last, because it counts first: what is in both is never taken for lost in the ring.
            self.overflowed.fetch_max(seen.unsent.saturating_sub(tap.turned_away()), Relaxed);
        }
        self.overflowed.load(Relaxed)
    }

    /// Whether nothing passes it. One that cannot be asked after is taken for good.
    pub(crate) fn is_down(&self) -> bool {
        self.look().is_ok_and(|found| found.is_none_or(|it| !it.seen.passes()))
    }

    /// That its user has given it another name, which he may, and what the next start makes of that.
    pub(crate) fn renamed(&self) -> Option<String> {
        let (is, was) = (shown(&self.name()), &self.ifname);
        (is != *was).then(|| format!("{was} is called {is} now, and the next start makes it as {was} again"))
    }

    /// What its user has made of it that keeps frames from him, or that was not said, with what sets it right.
    fn changes(&self, shall: Shall) -> Option<String> {
        // One that cannot be asked after is taken for good, and one that is gone is told of elsewhere.
        let Found { seen, elsewhere } = self.look().ok()??;
        let place = self.namespace.as_ref().and_then(|it| it.file_name()).map(|it| it.to_string_lossy());
        let now = shown(&seen.name);
        let into = |place: Option<&str>| place.map_or(String::new(), |place| format!("-n {place} "));
        if let Some(other) = elsewhere {
            let home = place.map_or("the daemon's".to_owned(), |it| it.into_owned());
            return Some(match other {
                Some(other) => format!(
                    "{now} is in the namespace {other} and shall be in {home}: deleted (`ip -n {other} link delete {now}`), \
                     it is made again there"
                ),
                None => format!(
                    "{now} has left the namespace {home}: deleted where it is, it is made again there"
                ),
            });
        }
        let set = |words: String| format!("`ip {}link set {now} {words}`", into(place.as_deref()));
        let mut told = Vec::new();
        if let Some(why) = seen.stopped() {
            let switch = if seen.is_up { "carrier on" } else { "up" };
            told.push(format!("{now} {why}: {}", set(switch.to_owned())));
        }
        let effects = shall.of_another_address().join(", and ");
        if let (Some(mac), Some(other), false) = (shall.mac, seen.mac, effects.is_empty())
            && mac != other
        {
            let set = set(format!("address {mac}"));
            told.push(format!("{now} has the address {other}, its VNIC {mac}: {effects}: {set}"));
        }
        let mtu = u32::from(shall.mtu.bytes());
        if seen.mtu != mtu {
            told.push(format!(
                "{now} has the MTU {}, its VNIC {mtu}: {}",
                seen.mtu,
                set(format!("mtu {mtu}"))
            ));
        }
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// Whether the network namespace is there that it shall be in.
    pub(crate) fn has_place(&self) -> bool {
        self.namespace.as_ref().is_none_or(|path| path.exists())
    }

    /// Why it does not carry what it shall, or nobody new can come to it. A TAP keeps the namespace of a name that was taken away.
    pub(crate) fn fault(&self, shall: Shall) -> Option<String> {
        let name = &self.ifname;
        let place = self.namespace.as_ref().filter(|_| !self.has_place());
        let place = place.map(|it| it.file_name().unwrap_or_default().to_string_lossy().into_owned());
        match (self.is_gone(), place) {
            (false, None) => self.changes(shall),
            (true, None) => Some(format!("{name} is gone: somebody has deleted it")),
            (true, Some(place)) => {
                Some(format!("{name} is gone with its namespace {place}: `firelane apply` makes both again"))
            }
            (false, Some(place)) => Some(format!(
                "the namespace {place} of {name} has lost its name: what is inside goes on, `firelane apply` makes both again"
            )),
        }
    }

    /// Lets its user see a speed, in Mb/s. A veth has only its own.
    pub(crate) fn show_speed(&self, mbps: u32) -> io::Result<()> {
        let Some(handle) = self.handle.as_ref().filter(|_| self.speed.load(Relaxed) != mbps) else {
            return Ok(());
        };
        handle.set_speed(mbps)?;
        self.speed.store(mbps, Relaxed);
        Ok(())
    }
}

/// An interface that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    /// The VNIC or link.
    pub(crate) link: &'a LinkName,
    /// Which interface.
    pub(crate) tap: &'a Tap,
    /// Its Ethernet address.
    pub(crate) mac: MacAddr,
    /// The largest packet.
    pub(crate) mtu: Mtu,
    /// How many queues it has at least.
    pub(crate) rings: u16,
}

impl Kernel {
    /// What the record in `state_folder` says is ours. A TAP gets `queues` queues.
    pub(crate) fn new(instance: Instance, state_folder: &Path, queues: u16) -> Self {
        Self { instance, owned: Owned::load(state_folder), queues, overflowed: 0 }
    }

    /// How many queues an interface gets: one per lane.
    pub(crate) fn queues(&self) -> u16 {
        self.queues
    }

    /// Removes what a daemon that died has left and `wanted` has no use for. Namespaces that are wanted stay,
    /// with the programs inside.
    pub(crate) fn recover(&mut self, wanted: &Model) {
        for name in self.owned.interfaces() {
            match veth::delete(&name) {
                Ok(()) => self.owned.forget_interface(&name),
                Err(error) => tracing::warn!("interface {name}, left by an earlier run: {error}"),
            }
        }
        self.collect(wanted);
    }

    /// Removes namespaces of ours that `present` has no use for.
    pub(crate) fn collect(&mut self, present: &Model) {
        let taps = present.vnics.values().filter_map(|vnic| vnic.tap()?.namespace.as_ref());
        let used: BTreeSet<String> = taps.map(|name| self.instance.namespace(name)).collect();
        for name in self.owned.namespaces().into_iter().filter(|name| !used.contains(name)) {
            match self.remove_namespace(&name) {
                Ok(()) => self.owned.forget_namespace(&name),
                Err(error) => tracing::warn!("network namespace {name}: {error}"),
            }
        }
    }

    fn remove_namespace(&self, name: &str) -> io::Result<()> {
        match netns::look(name)? {
            Presence::Namespace(inode) if !self.owned.has_namespace(name, inode) => {
                tracing::warn!("network namespace {name} was replaced by somebody and stays");
                Ok(())
            }
            Presence::Absent => Ok(()),
            Presence::Namespace(_) | Presence::Leftover => {
                tracing::info!("network namespace {name} removed");
                netns::delete(name)
            }
        }
    }

    /// Makes sure that the namespace `name` exists.
    fn ensure_namespace(&mut self, name: &str) -> io::Result<()> {
        match netns::look(name)? {
            Presence::Namespace(inode) => {
                if self.owned.has_namespace(name, inode) {
                    self.owned.note_namespace(name, inode);
                }
                return Ok(());
            }
            Presence::Leftover if self.owned.has_begun_namespace(name) => netns::delete(name)?,
            Presence::Leftover => return Err(no_namespace(name)),
            Presence::Absent => {}
        }
        self.owned.note_namespace(name, 0);
        match netns::create(name) {
            Ok(inode) => {
                self.owned.note_namespace(name, inode);
                tracing::info!("network namespace {name} made");
                Ok(())
            }
            Err(error) => {
                self.owned.forget_namespace(name);
                Err(error)
            }
        }
    }

    /// Whether there can be an interface of this name in this namespace when those of `ended` are no more.
    pub(crate) fn may_open(
        &self,
        ifname: &str,
        namespace: Option<&NamespaceName>,
        ended: &BTreeSet<(String, Option<PathBuf>)>,
        wait: Duration,
    ) -> Result<(), ApiError> {
        let name = namespace.map(|name| self.instance.namespace(name));
        if let Some(name) = &name {
            let failed = |error: io::Error| refused("namespace", name, "", &error);
            match netns::look(name).map_err(failed)? {
                Presence::Namespace(_) => {}
                Presence::Leftover if !self.owned.has_begun_namespace(name) => {
                    return Err(failed(no_namespace(name)));
                }
                Presence::Leftover | Presence::Absent => return Ok(()),
            }
        }
        let place = (ifname.to_owned(), name.as_deref().map(netns::path_of));
        if ended.contains(&place) { Ok(()) } else { may_be_called(&place.0, place.1.as_deref(), wait) }
    }

    /// Makes an interface, with its routes, and gives its queues.
    pub(crate) fn open(&mut self, wanted: &Wanted<'_>) -> Result<(Device, Vec<Queue>), ApiError> {
        let (device, queues) = self.open_unrouted(wanted)?;
        match self.reroute(&device, &BTreeSet::new(), &wanted.tap.routes) {
            Ok(()) => Ok((device, queues)),
            Err(error) => {
                self.close(&device);
                Err(error)
            }
        }
    }

    fn open_unrouted(&mut self, wanted: &Wanted<'_>) -> Result<(Device, Vec<Queue>), ApiError> {
        let ifname = wanted.tap.ifname(wanted.link).to_owned();
        let name = wanted.tap.namespace.as_ref().map(|name| self.instance.namespace(name));
        if let Some(name) = &name {
            self.ensure_namespace(name).map_err(|error| refused("namespace", name, "", &error))?;
        }
        let namespace = name.as_deref().map(netns::path_of);
        may_be_called(&ifname, namespace.as_deref(), NAME_WAIT)?;
        let config = TapConfig {
            queues: self.queues.max(wanted.rings),
            mtu: wanted.mtu,
            mac: wanted.mac,
            addresses: wanted.tap.addresses.clone(),
            namespace: namespace.clone(),
        };
        match open_tap(&ifname, &config) {
            Ok(queues) => {
                let has_door = Some(queues.iter().all(TapQueue::has_door));
                let handle = queues.first().and_then(|queue| queue.handle().ok());
                let home = handle.as_ref().and_then(|tap| Home::of(tap).ok());
                let queues = queues.into_iter().map(Queue::from).collect();
                Ok((
                    Device {
                        ifname,
                        namespace,
                        detour: None,
                        has_door,
                        handle,
                        home,
                        speed: AtomicU32::new(TAP_SPEED),
                        overflowed: AtomicU64::new(0),
                    },
                    queues,
                ))
            }
            Err(OpenError::Create(_, error)) if means_no_tun(&error) => {
                self.open_veth(wanted, ifname, namespace, &format!("/dev/net/tun: {}", plain(&error)))
            }
            Err(error) => Err(ApiError::new(Status::Io, "tap", ifname, plain(&error))),
        }
    }

    fn open_veth(
        &mut self,
        wanted: &Wanted<'_>,
        ifname: String,
        namespace: Option<PathBuf>,
        why: &str,
    ) -> Result<(Device, Vec<Queue>), ApiError> {
        let near = self.free_near(wanted.link);
        self.owned.note_interface(&near);
        let pair = Pair {
            near: &near,
            ifname: &ifname,
            namespace: namespace.as_deref(),
            mac: wanted.mac,
            mtu: wanted.mtu,
            addresses: &wanted.tap.addresses,
        };
        match veth::create(&pair) {
            Ok(socket) => {
                let detour = Some(Detour { near, why: why.to_owned() });
                let device = Device {
                    ifname,
                    namespace,
                    detour,
                    has_door: None,
                    handle: None,
                    home: None,
                    speed: AtomicU32::new(TAP_SPEED),
                    overflowed: AtomicU64::new(0),
                };
                tracing::warn!("{}", device.detour().unwrap_or_default());
                Ok((device, vec![Queue::from(socket)]))
            }
            Err(error) => {
                self.owned.forget_interface(&near);
                Err(refused("tap", &ifname, &format!("{why}; nor can a veth pair be made: "), &error))
            }
        }
    }

    /// A name for the near end of a pair: that of a link which was renamed may still be what is made of this one's name.
    fn free_near(&self, link: &LinkName) -> String {
        let mut nth = 0;
        loop {
            let near = mac::near_name(link, &self.instance, nth);
            if !self.owned.has_interface(&near) {
                return near;
            }
            nth += 1;
        }
    }

    /// Removes what remains of an interface once its queues are closed.
    pub(crate) fn close(&mut self, device: &Device) {
        self.overflowed += device.overflowed();
        let Some(detour) = &device.detour else { return };
        match veth::delete(&detour.near) {
            Ok(()) => self.owned.forget_interface(&detour.near),
            Err(error) => tracing::warn!("interface {}: {error}", detour.near),
        }
    }

    /// What [`Device::overflowed`] said of interfaces that are closed.
    pub(crate) const fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// Changes the addresses of an interface from `is` to `shall`, whatever its user calls it; on an error they are as before.
    ///
    /// Where one goes, what stays is added, too: the kernel may take a subnet's other addresses along with its first
    /// (`promote_secondaries`). What its user has done to others is his affair.
    pub(crate) fn readdress(
        &self,
        device: &Device,
        is: &[IpPrefix],
        shall: &[IpPrefix],
    ) -> Result<(), ApiError> {
        if is == shall {
            return Ok(());
        }
        let name = device.name();
        let changed = device.inside(|| {
            let (stay, gone): (Vec<IpPrefix>, Vec<IpPrefix>) = is.iter().partition(|it| shall.contains(it));
            gone.iter().try_for_each(|it| netlink::remove_address(&name, *it))?;
            if !gone.is_empty() {
                stay.iter().for_each(|it| drop(netlink::add_address(&name, *it)));
            }
            let new = shall.iter().filter(|it| !is.contains(it));
            new.into_iter().try_for_each(|it| netlink::add_address(&name, *it))
        });
        changed.map_err(|error| {
            // Each for itself: one that cannot be had back is no reason to have none.
            let _ = device.inside(|| {
                let new = shall.iter().filter(|it| !is.contains(it));
                new.into_iter().for_each(|it| drop(netlink::remove_address(&name, *it)));
                is.iter().for_each(|it| drop(netlink::add_address(&name, *it)));
                Ok(())
            });
            ApiError::new(status_of(&error), "addresses", &name, error.to_string())
        })
    }

    /// Changes the routes by an interface from `is` to `shall`; on an error they are as before.
    ///
    /// What stays is added, too: a route goes with the address on whose network its router is.
    pub(crate) fn reroute(
        &self,
        device: &Device,
        is: &BTreeSet<Route>,
        shall: &BTreeSet<Route>,
    ) -> Result<(), ApiError> {
        if is.is_empty() && shall.is_empty() {
            return Ok(());
        }
        let name = device.name();
        let set = |from: &BTreeSet<Route>, to: &BTreeSet<Route>| {
            for route in from.difference(to) {
                let Some(router) = route.gateway() else { continue };
                netlink::remove_route(&name, route.destination(), router)?;
            }
            to.iter().try_for_each(|route| {
                let Some(router) = route.gateway() else { return Ok(()) };
                netlink::add_route(&name, route.destination(), router)
            })
        };
        device.inside(|| set(is, shall)).map_err(|error| {
            let _ = device.inside(|| set(shall, is));
            ApiError::new(status_of(&error), "routes", &name, plain(&error))
        })
    }

    /// What may remain in the kernel if the daemon is killed.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.owned.fault()
    }
}

/// An interface's name as a terminal and a shell may have it: a tenant calls his what he likes.
fn shown(name: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "._-@+".contains(it);
    name.chars().map(|it| if is_plain(it) { it } else { '?' }).collect()
}

fn no_namespace(name: &str) -> io::Error {
    let text = format!("{} is no network namespace", netns::path_of(name).display());
    io::Error::new(io::ErrorKind::AlreadyExists, text)
}

/// Refuses an interface whose name somebody else's has.
fn may_be_called(ifname: &str, namespace: Option<&Path>, wait: Duration) -> Result<(), ApiError> {
    match becomes_free(ifname, namespace, wait).map_err(|error| refused("tap", ifname, "", &error))? {
        true => Ok(()),
        false => Err(ApiError::new(Status::Exists, "tap", ifname, "the interface's name is already taken")),
    }
}

/// Waits a little while `ifname` is that of an interface which is just ending; whether it is free then.
///
/// The driver would say the same at once; what ends just now is waited for.
fn becomes_free(ifname: &str, namespace: Option<&Path>, wait: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + wait;
    while netns::inside(namespace, || netlink::exists(ifname))? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(NAME_POLL);
    }
    Ok(true)
}

fn is(error: &io::Error, number: Errno) -> bool {
    error.raw_os_error() == Some(number.raw_os_error())
}

/// Whether the error says that this host or this user has no TAPs at all.
fn means_no_tun(error: &io::Error) -> bool {
    [Errno::ACCESS, Errno::PERM, Errno::NOENT, Errno::NODEV, Errno::NXIO].into_iter().any(|it| is(error, it))
}

/// Why the kernel made no interface or namespace, and what the daemon lacks if it may not.
fn refused(field: &str, name: &str, before: &str, error: &io::Error) -> ApiError {
    let status = status_of(error);
    let rights = match status {
        Status::Denied => "; interfaces are made with CAP_NET_ADMIN, namespaces with CAP_SYS_ADMIN",
        _ => "",
    };
    ApiError::new(status, field, name, format!("{before}{}{rights}", plain(error)))
}

fn status_of(error: &io::Error) -> Status {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Status::Denied,
        io::ErrorKind::AlreadyExists => Status::Exists,
        _ => Status::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_make_interfaces_is_told_what_it_takes() {
        let told = |number: Errno| refused("tap", "alice0", "", &number.into()).to_string();
        assert_eq!(
            told(Errno::PERM),
            "permission denied (tap=alice0: Operation not permitted; interfaces are made with CAP_NET_ADMIN, namespaces \
             with CAP_SYS_ADMIN)"
        );
        assert_eq!(told(Errno::NOSPC), "I/O error (tap=alice0: No space left on device)");
    }
}
