//! The path beside: a network namespace with a VNIC on the program's switch, for what cannot be preloaded.
//!
//! Called by `run/mod.rs`. The VNIC has an address of its own, the limits of the VNIC that the program would have
//! shared, and the routes of its netstack. It lasts as long as somebody is in the namespace (`cleanup.rs`).

use std::collections::BTreeSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use firelane_api::{Api, ApiError, Change, ChangeRequest, Status, Which};
use firelane_model::{
    Flow, FlowName, Instance, LinkName, Mac, Model, NamespaceName, Over, Route, Tap, Vnic, VnicUser, Way,
};
use firelane_units::IpPrefix;
use rustix::thread::LinkNameSpaceType;

use super::target::Target;
use super::{address, cleanup};
use crate::EXIT_USAGE;
use crate::common::system_message;
use crate::own::Refused;
use crate::session::{Session, die};

/// What the VNICs are called, with the program's process id behind.
const PREFIX: &str = "run";
/// Of a route that is for all sources; the kernel's own value for IPv6.
const METRIC: u32 = 1024;
/// How often a name or an address may be gone before it is ours.
const TRIES: usize = 16;
/// The longest wait before the second try is twice this, and doubles with each.
const PAUSE_MICROS: u64 = 10_000;
/// How often it doubles.
const PAUSE_DOUBLINGS: usize = 5;

/// A namespace that waits for its program.
#[derive(Debug)]
pub(super) struct Aside {
    vnic: LinkName,
    over: Over,
    like: LinkName,
    namespace: String,
    addresses: Vec<IpPrefix>,
    routes: Vec<Route>,
}

impl Aside {
    /// Makes the VNIC with its namespace, and the process that removes it.
    pub(super) fn make(
        session: &mut Session<'_>,
        target: &Target,
        wanted: &[IpPrefix],
    ) -> Result<Self, Refused> {
        let api = session.api;
        let instance: Instance = api.status()?.instance.parse().unwrap_or_default();
        let namespace =
            cleanup::namespace_of_this_process().ok_or_else(|| Refused(die("/proc: cannot be read"), 1))?;
        cleanup::sweep(api, &api.model(Which::Active)?, |name| instance.namespace(name));
        let mut tries = (0..TRIES).map(|failed| {
            if failed > 0 {
                std::thread::sleep(pause(failed));
            }
            Self::try_to_make(api, target, wanted, &namespace)
        });
        let made = tries.find_map(Result::transpose).transpose()?;
        let busy =
            || Refused(die("a network namespace for the program: others take every name and address"), 1);
        let mut place = made.ok_or_else(busy)?;
        place.namespace = instance.namespace(&namespace);
        let begun = cleanup::begin(&place.namespace, &namespace, &place.vnic);
        if let Err(text) = begun {
            let _ = cleanup::remove(api, &place.vnic, &namespace);
            return Err(Refused(die(text), 1));
        }
        Ok(place)
    }

    /// One try: `None` if somebody was faster with the name or the address.
    fn try_to_make(
        api: &dyn Api,
        target: &Target,
        wanted: &[IpPrefix],
        namespace: &NamespaceName,
    ) -> Result<Option<Self>, Refused> {
        let model = api.model(Which::Active)?;
        let (like, addresses) = place_for(api, &model, target, wanted)?;
        let vnic = copy(&model.vnics[&like], namespace, &addresses);
        let over = vnic.over.clone();
        let name = free_name(&model);
        let change = |change| api.change(&ChangeRequest { temporary: true, change });
        match change(Change::CreateVnic(name.clone(), vnic)) {
            Ok(()) => {}
            Err(error) if error.status == Status::Exists => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let rest = || {
            let now = api.model(Which::Active)?;
            if wanted.is_empty() && is_shared(&now, &name, &addresses) {
                return Ok::<_, ApiError>(false);
            }
            for (flow, like) in flows(&now, &like, &name, &addresses) {
                change(Change::AddFlow(flow, like))?;
            }
            Ok(true)
        };
        let outcome = rest();
        if !matches!(outcome, Ok(true)) {
            cleanup::remove(api, &name, namespace)?;
            outcome?;
            return Ok(None);
        }
        let routes =
            model.netstacks.get(&target.netstack).into_iter().flat_map(|it| it.routes.iter().copied());
        let routes = routes.collect();
        Ok(Some(Self { vnic: name, over, like, namespace: String::new(), addresses, routes }))
    }

    /// The path in one line.
    pub(super) fn description(&self) -> String {
        let addresses: Vec<_> = self.addresses.iter().map(|it| it.to_string()).collect();
        let addresses =
            if addresses.is_empty() { String::new() } else { format!(" {}", addresses.join(" ")) };
        format!(
            "it runs in a network namespace of its own on {}, interface {}{addresses}, with the limits of {}, \
             until its last process ends",
            self.over, self.vnic, self.like
        )
    }

    /// Goes into the namespace with this thread, from where the program starts.
    pub(super) fn enter(&self) -> Result<(), String> {
        let path = cleanup::path_of(&self.namespace);
        let shown = |error: std::io::Error| {
            format!("network namespace {}: {}", self.namespace, system_message(&error))
        };
        let file = File::open(path).map_err(shown)?;
        rustix::thread::move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| shown(error.into()))?;
        self.routes().into_iter().try_for_each(|words| add_route(&words))
    }

    /// What `ip route append` is to be told. Of several routes for one destination the one that says most about its
    /// source comes first; that it is for other addresses than ours makes it none.
    fn routes(&self) -> BTreeSet<Vec<String>> {
        let is_own = |prefix: IpPrefix| self.addresses.iter().any(|it| prefix.contains(it.addr()));
        let reaches = |gateway: IpAddr| self.addresses.iter().any(|it| it.contains(gateway));
        let ours = self
            .routes
            .iter()
            .filter(|route| route.gateway().is_none_or(reaches) && route.source().is_none_or(is_own));
        let words = ours.map(|route| {
            let to = route.destination().to_string();
            let mut words = match route.way() {
                Way::Via(gateway) => vec![to, "via".to_owned(), gateway.to_string()],
                Way::Ends(end) => vec![end.word().to_owned(), to],
            };
            let said = route.source().map_or(0, |it| 1 + u32::from(it.prefix_len()));
            words.extend(["metric".to_owned(), (METRIC - said).to_string()]);
            words
        });
        words.collect()
    }
}

fn add_route(words: &[String]) -> Result<(), String> {
    let mut command = Command::new("ip");
    // Several gateways may lead to one destination, which `add` would refuse.
    command.args(["route", "append"]).args(words).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("ip (Debian package iproute2): {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("route {}: {}", words.join(" "), text.trim())) }
}

/// The VNIC for a program beside `like`, with `addresses` of its own.
fn copy(like: &Vnic, namespace: &NamespaceName, addresses: &[IpPrefix]) -> Vnic {
    let mut vnic = like.clone();
    vnic.mac = Mac::Auto;
    // What is guaranteed was promised of the switch's limit, which may hold it once and not twice.
    vnic.minbw = None;
    if !vnic.guard.allowed_ips.is_empty() {
        vnic.guard.allowed_ips = addresses.iter().map(|it| IpPrefix::host(it.addr())).collect();
    }
    vnic.user = VnicUser::Tap(Tap {
        namespace: Some(namespace.clone()),
        ifname: None,
        addresses: addresses.to_vec(),
        ..Tap::default()
    });
    vnic
}

/// The VNIC whose place is shared, and the addresses for the new one.
fn place_for(
    api: &dyn Api,
    model: &Model,
    target: &Target,
    wanted: &[IpPrefix],
) -> Result<(LinkName, Vec<IpPrefix>), Refused> {
    let bad = |text: String| Refused(die(text), EXIT_USAGE);
    let there: Vec<&LinkName> = target
        .vnics
        .iter()
        .filter(|name| model.vnics.get(*name).is_some_and(|it| it.over.link().is_some()))
        .collect();
    let Some(&first) = there.first() else {
        return Err(bad(format!("zone {}: it has no VNIC, so there is no switch to be on", target.netstack)));
    };
    if !wanted.is_empty() {
        let known = api.addrs(Which::Active)?;
        for address in wanted.iter().map(|it| it.addr()) {
            if let Some(holder) = address::holder(model, &known, first, address) {
                let in_use = Status::IptunInUse.text();
                return Err(bad(format!("{address}: {in_use} ({holder})")));
            }
        }
        return Ok((first.clone(), wanted.to_vec()));
    }
    let met: Vec<_> = api.neighbours(target.netstack.as_str())?.into_iter().map(|it| it.address).collect();
    for &name in &there {
        let free = address::free(model, &target.netstack, name, met.iter().copied());
        if !free.is_empty() {
            return Ok((name.clone(), free));
        }
    }
    Err(bad(format!("{first}: no free address in its subnets (-a ADDR/LEN names one)")))
}

/// The name with the number of this process, which becomes the program; the next free one if another namespace of
/// processes has the number too.
fn free_name(model: &Model) -> LinkName {
    let names = (std::process::id()..).map(|number| format!("{PREFIX}{number}"));
    let free = names.filter(|name| model.class_of(name).is_none()).find_map(|name| name.parse().ok());
    free.expect("a model has fewer links than there are numbers")
}

/// Whether somebody else on the switch has one of the addresses. Whoever finds that gives way, also if both do: who was
/// there first may have looked before the other came.
fn is_shared(model: &Model, own: &LinkName, addresses: &[IpPrefix]) -> bool {
    let Some(over) = model.vnics.get(own).and_then(|it| it.over.link()) else { return true };
    let others = model.vnics_over(over.as_str()).filter(|(name, _)| *name != own);
    let mut taps = others.filter_map(|(_, it)| it.tap());
    taps.any(|tap| tap.addresses.iter().any(|it| addresses.iter().any(|own| own.addr() == it.addr())))
}

/// How long to wait before the try after `failed` ones: those who gave way to each other come back at different times.
fn pause(failed: usize) -> Duration {
    let longest = PAUSE_MICROS << failed.min(PAUSE_DOUBLINGS);
    Duration::from_micros(RandomState::new().hash_one(failed) % longest)
}

/// The flows of `like`, for `vnic` with its own addresses.
fn flows(model: &Model, like: &LinkName, vnic: &LinkName, addresses: &[IpPrefix]) -> Vec<(FlowName, Flow)> {
    let mut flows = Vec::new();
    for (name, flow) in model.flows_on(like.as_str()) {
        let mut matching = flow.matching.clone();
        if let Some(local) = matching.local_ip {
            let own = addresses.iter().find(|it| it.addr().is_ipv4() == local.addr().is_ipv4());
            // A part of the subnet stays one; an address becomes ours.
            matching.local_ip = own
                .filter(|it| !local.contains(it.addr()))
                .map_or(Some(local), |it| Some(IpPrefix::host(it.addr())));
        }
        if let Ok(name) = format!("{name}-{vnic}").parse() {
            // What passes its device has one lane of its flow's.
            let cpus = flow.cpus.first_alone();
            let link = vnic.clone();
            flows.push((name, Flow { link, matching, cpus, minbw: None, ..flow.clone() }));
        }
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_who_have_one_address_both_give_way() {
        let beside = |number: u32, address: &str| {
            format!(
                "[vnic.run{number}]\nover = \"s0\"\n\
                 tap = {{ namespace = \"run-{number}\", addresses = [\"{address}/24\"] }}\n"
            )
        };
        let vnics = [(99, "10.0.0.254"), (100, "10.0.0.254"), (101, "10.0.0.253")];
        let vnics: String = vnics.iter().map(|(number, address)| beside(*number, address)).collect();
        let model = Model::from_toml("test", &format!("[etherstub.s0]\n{vnics}")).unwrap();
        let is_shared = |name: &str| {
            let name = name.parse().unwrap();
            is_shared(&model, &name, &model.vnics[&name].tap().unwrap().addresses)
        };
        assert_eq!(["run99", "run100", "run101"].map(is_shared), [true, true, false]);
    }
}
