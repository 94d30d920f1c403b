//! Whether a change can be carried out, as far as that is known before anything of it is: a step that is refused half-way has ended by
//! then the connections of all that was taken down before it, and putting that back does not bring them back.
//!
//! Part of the host (`host.rs`): `firelane plan` shows what comes out of here, and each change goes through here first, so that the two
//! refuse the same.

use std::time::Duration;

use firelane::ChangeError;
use firelane_api::{ApiError, Status};
use firelane_model::{
    Address, Link, LinkKind, LinkName, Memif, Model, NamespaceName, NetstackName, Service, Vnic,
};
use firelane_plan::{Action, Step, plan};

use super::Inner;
use super::foreseen::{Before, lanes_wanted};
use crate::refusal::refused;
use crate::works::Done;
use crate::{memif, resources, services};

impl Inner {
    /// The steps from `present` to `next`.
    ///
    /// # Errors
    /// The first step that would be refused.
    /// Waits for so long for the name of an interface that may be just ending.
    pub(super) fn checked(
        &self,
        next: &Model,
        present: &Model,
        wait: Duration,
    ) -> Result<Vec<Step>, ApiError> {
        let steps = plan(next, present);
        let mut before = Before::the_first(&steps, &self.works, present, wait);
        for step in &steps {
            self.check(step, next, present, &before).map_err(|error| error.of_step(step))?;
            before.note(step, &self.works, (present, next));
        }
        Ok(steps)
    }

    fn check(&self, step: &Step, next: &Model, present: &Model, before: &Before) -> Done {
        resources::check(&self.works, step, present)?;
        self.check_lanes(&step.action, before)?;
        match &step.action {
            Action::CreateWire(_, wire) => self.works.may_be_wired(wire, next, &before.made),
            Action::StartService(_, service) => self.check_service(service, before),
            Action::SetService(_, _, service) => self.works.check_service(service),
            Action::SetFpm(_, _, Some(fpm)) => self.works.fpms.check(fpm, next),
            Action::CreateLink(_, Link { kind: LinkKind::Memif(memif), .. }) => check_memif(memif, before),
            Action::CreateLink(_, Link { kind: LinkKind::Tap(ifname), .. }) => {
                self.check_interface(ifname.as_str(), None, before)
            }
            Action::CreateVnic(name, vnic) => self.check_vnic(name, vnic, next, before),
            Action::AddAddress(netstack, _, address) => self.check_address(netstack, address, before),
            Action::SetAddress(netstack, _, Address::Static(from), to) if from.down => {
                self.check_address(netstack, to, before)
            }
            _ => Ok(()),
        }
    }

    fn check_interface(&self, ifname: &str, namespace: Option<&NamespaceName>, before: &Before) -> Done {
        self.works.kernel.may_open(ifname, namespace, &before.interfaces, before.wait)
    }

    /// An address that is chosen differs from all others. One that is said may be that of a VNIC which has chosen its own.
    fn check_vnic(&self, name: &LinkName, vnic: &Vnic, next: &Model, before: &Before) -> Done {
        if let Some((mac, other)) = before.rival(&self.works, name, vnic, next) {
            return Err(ApiError::new(Status::MacInUse, "mac", mac, format!("VNIC {other} has it")));
        }
        match (vnic.memif(), vnic.tap()) {
            (Some(memif), _) => check_memif(memif, before),
            (_, Some(tap)) => self.check_interface(tap.ifname(name), tap.namespace.as_ref(), before),
            (None, None) => Ok(()),
        }
    }

    /// An address may be that of a lease, or one that the netstack has made itself, of which no model says anything.
    fn check_address(&self, netstack: &NetstackName, address: &Address, before: &Before) -> Done {
        let Address::Static(it) = address else { return Ok(()) };
        let id = self.works.netstacks.get(netstack).filter(|_| !before.has_lost(netstack));
        let Some(id) = id.filter(|_| !it.down) else { return Ok(()) };
        match self.works.engine.holder_of(*id, it.prefix().addr()) {
            Some(holder) if !before.may_have_freed(holder) => {
                Err(refused(ChangeError::AddressTaken(it.prefix().addr())))
            }
            _ => Ok(()),
        }
    }

    /// A program may listen where a service is to.
    fn check_service(&self, service: &Service, before: &Before) -> Done {
        self.works.check_service(service)?;
        let netstack = &service.netstack;
        let id = self.works.netstacks.get(netstack).filter(|_| !before.has_lost(netstack));
        let stack = id.and_then(|id| self.works.engine.stack(*id));
        match stack.filter(|_| !before.has_freed(netstack, service.port)) {
            Some(stack) => services::check_port(service, &stack),
            None => Ok(()),
        }
    }

    /// Lanes are told by what is there now: with a step before that gives some, or takes some back, it may be otherwise.
    fn check_lanes(&self, action: &Action, before: &Before) -> Done {
        if !before.has_lanes_of_now() {
            return Ok(());
        }
        let engine = &self.works.engine;
        if let Action::SetCpus(name, _, cpus) = action {
            let numbers: Vec<usize> = cpus.numbers().collect();
            let id = self.works.netstacks.get(name);
            return id.map_or(Ok(()), |id| engine.check_netstack_cpus(*id, &numbers)).map_err(refused);
        }
        let Some((cpus, for_programs)) = lanes_wanted(action) else { return Ok(()) };
        engine.check_lanes(&cpus.numbers().collect::<Vec<_>>(), for_programs).map_err(refused)
    }
}

/// Who has the path already may be a memif that ends before.
fn check_memif(memif: &Memif, before: &Before) -> Done {
    memif::check(memif, (!before.has_ended_at(&memif.socket)).then_some(before.wait))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::TcpListener as KernelListener;
    use std::os::unix::net::UnixListener;
    use std::time::{Duration, Instant};

    use firelane::TcpListener;
    use firelane_api::{AddressState, Api, Status, Which};
    use firelane_model::{
        ADDRESSES_MAX, FLOW_KINDS, FLOW_RANGE_PAIRS, Flow, FlowName, LinkName, Model, ROUTE_SOURCES_MAX,
    };
    use firelane_units::LinkId;
    use rustix::thread::sched_getaffinity;

    use super::super::partings::tests::{TEMPORARY, TEXT, host, host_with};
    use crate::folder::tests::Scratch;
    use crate::host::Host;

    fn model(text: &str) -> Model {
        Model::from_toml("test", text).expect("a model")
    }

    /// The VNIC `far0` is made anew, beside what else `more` says.
    fn with(more: &str) -> Model {
        let anew = TEXT.replace("[vnic.far0]\n", "[vnic.far0]\nmac = '02:08:20:00:00:77'\n");
        model(&format!("{anew}{more}"))
    }

    fn vnics(host: &Host) -> BTreeMap<LinkName, LinkId> {
        host.lock().works.vnics.iter().map(|(name, it)| (name.clone(), it.id)).collect()
    }

    /// The plan says no, and so does the change, before anything is touched.
    #[track_caller]
    fn assert_refused(host: &Host, wanted: &Model, status: Status) {
        let before = (vnics(host), host.model(Which::Active).unwrap());
        let told = host.plan(wanted).expect_err("the plan says so");
        assert_eq!(told.status, status, "{told}");
        let again = host.apply(wanted, TEMPORARY).expect_err("nothing is made of it");
        assert_eq!(again.to_string(), told.to_string());
        assert_eq!((vnics(host), host.model(Which::Active).unwrap()), before, "all is as it was");
    }

    #[test]
    fn an_address_that_another_vnic_has_chosen_is_refused_before_anything_is_touched() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let host = host(&folder, &runtime);
        let mac = host.lock().works.vnics["near0"].mac;
        let said = |vnic: &str, over: &str| {
            let anew = format!("[vnic.{vnic}]\nmac = '{mac}'\nover = '{over}'\n");
            model(&TEXT.replace(&format!("[vnic.{vnic}]\nover = 's0'\n"), &anew))
        };
        assert_refused(&host, &said("far0", "s0"), Status::MacInUse);
        // Whoever has it says so, and elsewhere it is free.
        let before = vnics(&host);
        host.apply(&said("near0", "s0"), TEMPORARY).unwrap();
        assert_eq!(vnics(&host), before);
        host.apply(&said("far0", "s1"), TEMPORARY).unwrap();
        // Here it is, too, when who has it gets another one by the same change.
        let other = "[vnic.near0]\nmac = '02:08:20:00:00:78'\n";
        let far = format!("[vnic.far0]\nmac = '{mac}'\n");
        let text = TEXT.replace("[vnic.near0]\n", other).replace("[vnic.far0]\n", &far);
        host.apply(&model(&text), TEMPORARY).unwrap();
        assert_eq!(host.lock().works.vnics["far0"].mac, mac);
        host.shut_down();
    }

    #[test]
    fn an_address_that_a_lease_has_is_refused_before_anything_is_touched() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let host = host(&folder, &runtime);
        let near = vnics(&host)["near0"];
        // As a lease's comes.
        host.lock().works.engine.add_address(near, "10.9.0.9/24".parse().unwrap()).unwrap();
        let with_it = |anew: &str| {
            let anew = TEXT.replace(anew, &format!("{anew}mac = '02:08:20:00:00:77'\n"));
            let addresses = "[netstack.near.addresses]\n";
            model(&anew.replace(addresses, &format!("{addresses}'near0/more' = '10.9.0.9/24'\n")))
        };
        assert_refused(&host, &with_it("[vnic.far0]\n"), Status::Exists);
        // It goes with its VNIC.
        host.apply(&with_it("[vnic.near0]\n"), TEMPORARY).unwrap();
        host.shut_down();
    }

    #[test]
    fn a_port_that_a_program_listens_on_is_refused_before_anything_is_touched() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let host = host(&folder, &runtime);
        let stack = {
            let inner = host.lock();
            inner.works.engine.stack(inner.works.netstacks["near"]).unwrap()
        };
        let service = |name: &str, port: u16| {
            format!("[service.{name}]\nkind = 'http'\nnetstack = 'near'\nport = {port}\nroot = 'files'\n")
        };
        let program = TcpListener::bind(&stack, "10.0.0.1:80").unwrap();
        assert_refused(&host, &with(&service("files", 80)), Status::AddrInUse);
        drop(program);
        // What services give each other is nobody's in between.
        host.apply(&with(&format!("{}{}", service("a", 80), service("b", 81))), TEMPORARY).unwrap();
        host.apply(&with(&format!("{}{}", service("a", 81), service("b", 80))), TEMPORARY).unwrap();
        host.shut_down();
    }

    #[test]
    fn a_memifs_path_that_somebody_has_is_refused_before_anything_is_touched() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let host = host(&folder, &runtime);
        let path = folder.path().join("m.sock");
        let memif = |vnic: &str| {
            format!(
                "[vnic.{vnic}]\nover = 's0'\nmemif = {{ role = 'server', socket = '{}' }}\n",
                path.display()
            )
        };
        let other = UnixListener::bind(&path).unwrap();
        assert_refused(&host, &with(&memif("m0")), Status::Exists);
        drop(other);
        // Nobody is there any more.
        host.apply(&with(&memif("m0")), TEMPORARY).unwrap();
        // By one change it is another one's.
        host.apply(&with(&memif("m1")), TEMPORARY).unwrap();
        host.apply(&with(""), TEMPORARY).unwrap();
        std::fs::write(&path, "somebody's").unwrap();
        assert_refused(&host, &with(&memif("m0")), Status::Exists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody's");
        host.shut_down();
    }

    #[test]
    fn where_a_routing_daemon_cannot_be_listened_for_is_refused_before_anything_is_touched() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let host = host(&folder, &runtime);
        // An address of this host's that nobody else asks for.
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let listen = format!("127.77.{high}.{low}:2620");
        let taken = KernelListener::bind(&listen).unwrap();
        let listen = format!("[netstack.near.fpm]\nlisten = '{listen}'\n");
        assert_refused(&host, &with(&listen), Status::AddrInUse);
        assert_refused(&host, &with(&format!("{listen}namespace = 'nosuch'\n")), Status::NotFound);
        drop(taken);
        host.apply(&with(&listen), TEMPORARY).unwrap();
        // Another netstack has it from now on.
        host.apply(&with(&listen.replace("near", "far")), TEMPORARY).unwrap();
        host.shut_down();
    }

    /// The CPUs of this process.
    fn cpus() -> Vec<usize> {
        let set = sched_getaffinity(None).unwrap();
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
    }

    #[test]
    fn lanes_that_there_are_not_are_refused_before_anything_is_touched() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let host = host(&folder, &runtime);
        let cpu = cpus()[0];
        let own = |text: &str| {
            text.replace(
                "[netstack.far.addresses]",
                &format!("[netstack.far]\ncpus = '{cpu}'\n[netstack.far.addresses]"),
            )
        };
        assert_refused(&host, &model(&own(TEXT)), Status::TooMany);
        let flow = format!(
            "[flow.f1]\nlink = 'near0'\nmatch = {{ transport = 'tcp', local_port = 80 }}\ncpus = '{cpu}'\n"
        );
        assert_refused(&host, &with(&flow), Status::TooMany);
        host.shut_down();
        let host = host_with(1, TEXT, &folder, &runtime);
        host.apply(&model(&own(TEXT)), TEMPORARY).unwrap();
        // The one lane is given up for it, and had again.
        host.apply(&with(&flow), TEMPORARY).unwrap();
        host.shut_down();
    }

    #[test]
    fn a_lane_that_others_have_too_is_refused_before_anything_is_touched() {
        let [cpu, other, ..] = cpus()[..] else { return };
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let on = |text: &str, netstack: &str, cpu: usize| {
            let addresses = format!("[netstack.{netstack}.addresses]");
            text.replace(&addresses, &format!("[netstack.{netstack}]\ncpus = '{cpu}'\n{addresses}"))
        };
        let both = |cpus: [usize; 2]| on(&on(TEXT, "near", cpus[0]), "far", cpus[1]);
        let host = host_with(2, &both([cpu, cpu]), &folder, &runtime);
        assert_eq!(host.status().unwrap().problems, Vec::<String>::new());
        let anew = "[vnic.near0]\nmac = '02:08:20:00:00:77'\n";
        assert_refused(&host, &model(&both([other, cpu]).replace("[vnic.near0]\n", anew)), Status::LinkBusy);
        // Alone it goes where it likes.
        host.apply(&model(&on(TEXT, "near", cpu)), TEMPORARY).unwrap();
        host.apply(&model(&on(TEXT, "near", other)), TEMPORARY).unwrap();
        host.shut_down();
    }

    /// The same is said in other words: of a change that is refused these stay nowhere either.
    #[test]
    fn what_is_refused_leaves_the_words_as_they_were() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let host = host(&folder, &runtime);
        let mac = host.lock().works.vnics["near0"].mac;
        let wanted = model(&TEXT.replace("[vnic.near0]\n", &format!("[vnic.near0]\nmac = '{mac}'\n")));
        let before = (host.model(Which::Active).unwrap(), host.status().unwrap().configuration);
        // It cannot be written down.
        std::fs::remove_dir_all(folder.path()).unwrap();
        let kept = firelane_api::Replacing { temporary: false, ..TEMPORARY };
        assert_eq!(host.apply(&wanted, kept).unwrap_err().status, Status::Io);
        assert_eq!((host.model(Which::Active).unwrap(), host.status().unwrap().configuration), before);
        host.shut_down();
    }

    /// The flow that a text says.
    fn flow(matching: &str) -> Flow {
        let matching = matching.parse().expect("a match");
        let link = "near0".parse().expect("a name");
        let mut model = Model::from_toml(
            "f.toml",
            "[etherstub.s0]\n[vnic.v0]\nover = 's0'\n\
            [flow.f0]\nlink = 'v0'\nmatch = { transport = 'tcp' }\n",
        )
        .expect("a model");
        Flow { link, matching, ..model.flows.remove("f0").expect("it is there") }
    }

    /// What a configuration may hold, lanes have.
    #[test]
    fn as_many_addresses_and_sources_as_a_netstack_may_have_are_there() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let host = host(&folder, &runtime);
        let addresses: String = (2..ADDRESSES_MAX)
            .map(|n| format!("'near0/n{n}' = '10.9.{}.{}/16'\n", n >> 8, n & 255))
            .collect();
        let route = |n: usize| {
            format!("{{ destination = 'default', gateway = '10.0.0.9', source = '10.8.{n}.0/24' }},")
        };
        let routes: String = (0..ROUTE_SOURCES_MAX).map(route).collect();
        let header = "[netstack.near.addresses]\n";
        let text =
            TEXT.replace(header, &format!("[netstack.near]\nroutes = [{routes}]\n{header}{addresses}"));
        host.apply(&model(&text), TEMPORARY).unwrap();
        let are_tested = || {
            let known = host.addrs(Which::Active).unwrap();
            known.iter().all(|it| it.state == AddressState::Ok)
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while !are_tested() {
            assert!(Instant::now() < deadline, "one of them is not there");
            std::thread::sleep(Duration::from_millis(20));
        }
        let of_sources = host.routes("near").unwrap().iter().filter(|it| it.source.is_some()).count();
        assert_eq!(of_sources, ROUTE_SOURCES_MAX);
        host.shut_down();
    }

    /// What lanes would refuse in the middle of a change is refused before anything has ended.
    #[test]
    fn flows_that_a_lane_has_no_room_for_are_no_configuration() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let host = host(&folder, &runtime);
        let bare = host.model(Which::Active).unwrap();
        // Beside the one flow that there is already, as many kinds as there may be, in all of their ways.
        let kinds = (1..=32).flat_map(|length| {
            [format!("remote_ip=10.0.0.0/{length}"), format!("local_ip=10.0.0.0/{length},transport=tcp")]
        });
        let pairs =
            (1..=65).map(|port| format!("transport=tcp,local_port={port}-900,remote_port=1-{}", port + 900));
        for (all, allowed) in
            [(kinds.collect::<Vec<_>>(), FLOW_KINDS), (pairs.collect::<Vec<_>>(), FLOW_RANGE_PAIRS)]
        {
            let mut model = bare.clone();
            let mut last = None;
            for (nth, text) in all.iter().enumerate() {
                let name: FlowName = format!("g{nth:02}").parse().unwrap();
                last = model.flows.insert(name.clone(), flow(text)).or(Some(flow(text))).map(|it| (name, it));
            }
            let faults = model.validate();
            assert_eq!(faults.iter().map(|it| it.allowed.as_str()).collect::<Vec<_>>(), [allowed]);
            let told = host.plan(&model).unwrap_err();
            assert_eq!(told.allowed, allowed);
            // One less is taken by lanes, and what is one more to the model is one more to them.
            let (name, beyond) = last.unwrap();
            model.flows.remove(&name);
            host.apply(&model, TEMPORARY).unwrap();
            let told = host.lock().works.add_flow(&name, &beyond).unwrap_err();
            assert_eq!(told.status, Status::TooMany, "{told}");
            host.apply(&bare, TEMPORARY).unwrap();
        }
        // A prefix without a length is the same on either side.
        let mut model = bare.clone();
        for (name, text) in [("g1", "local_ip=::/0,transport=tcp"), ("g2", "remote_ip=::/0,transport=tcp")] {
            model.flows.insert(name.parse().unwrap(), flow(text));
        }
        let told = host.plan(&model).unwrap_err();
        assert!(told.allowed.contains("flow.g1.match has it already"), "{told}");
        host.shut_down();
    }
}
