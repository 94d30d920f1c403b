//! The host behind the interface: two configurations, what runs, and the way from one to the other.
//!
//! `server.rs` calls it through the trait [`Api`] (`host/answers.rs`). One lock covers all of it, so changes are made one after the
//! other, each whole. The order of a change: refuse what is known not to be possible (`host/checking.rs`), write the persistent
//! configuration beside its place (a full disk shows here), carry out the steps and replay each on the record of what is present, put the file in its
//! place. A step that fails takes the steps before it back.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use firelane_api::{AddressState, Api, ApiError, Facts, Snapshot, Store, Which};
use firelane_model::{
    Accounting, Daemon, IptunType, Lanes, LinkKind, LinkName, Mac, Model, NetstackName, Over,
    Programs as Rules, Slice, SocketFilter,
};
use firelane_plan::{Action, Step, apply_to_model, plan};
use firelane_shm::control::{Interface, Reach};
use firelane_units::{FilterRule, IpPrefix, LinkId, NetstackId};

use crate::addresses::Addresses;
use crate::facts::{Running, Stored};
use crate::filter::TimeOfDay;
use crate::history::accounting::Fault;
use crate::history::{History, Parting, Totals};
use crate::interfaces::Told;
use crate::kernel::NAME_WAIT;
use crate::programs::Programs;
use crate::resources::Returns;
use crate::state::State;
use crate::works::Works;
use crate::{filter, nic, rebuild, resources, stats};
use partings::Partings;

mod absent;
mod answers;
mod checking;
mod foreseen;
mod partings;
mod renaming;
mod sparing;
mod succession;

/// The netstack of programs that do not say which, if it is there.
const DEFAULT_NETSTACK: &str = "default";
/// How long the start waits for the tests of addresses, which take half a second.
const ADDRESSES_TIME: Duration = Duration::from_secs(2);
/// Between two looks.
const ADDRESSES_POLL: Duration = Duration::from_millis(10);
/// Between two looks at which CPUs and interfaces there are. The kernel tells nobody that a process may use a CPU again, nor that
/// something has become of an interface in another namespace.
const HOST_POLL: Duration = Duration::from_secs(1);

/// A running host.
#[derive(Debug)]
pub(crate) struct Host {
    started: Instant,
    instance: String,
    /// Whether `--lanes` decides, and not the configuration.
    lanes_given: bool,
    inner: Mutex<Inner>,
    programs: Mutex<Option<Programs>>,
    history: Mutex<Option<History>>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    works: Works,
    state: State,
    addresses: Addresses,
    /// What went wrong before there was a configuration.
    early: Vec<String>,
    /// Why what the store says is kept is not on the disk, if it is not.
    unkept: Option<String>,
    /// Steps of the start that failed.
    failed: Vec<(Step, String)>,
    /// When an interface that had come was last refused.
    refused_at: Option<Instant>,
    /// Lanes that came back to CPUs that they had lost.
    returns: Returns,
    /// What was told of interfaces.
    told: Told,
    /// By which ends of pools' networks were reckoned.
    time_of_day: TimeOfDay,
    /// What has ended, for the history.
    partings: Partings,
    /// What is wrong with the history.
    history_fault: Option<String>,
    /// Why no records are written although they should be, or which ones the last change has lost.
    accounting_fault: Option<String>,
}

/// What a host is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) instance: String,
    pub(crate) lanes_given: bool,
    pub(crate) works: Works,
    pub(crate) state: State,
    pub(crate) early: Vec<String>,
    /// Why the configuration could not be written down.
    pub(crate) unkept: Option<String>,
}

impl Host {
    /// Carries out `wanted` as far as possible: what fails is logged and shown in status, the rest runs.
    pub(crate) fn start(parts: Parts, wanted: &Model) -> Self {
        let Parts { instance, lanes_given, works, state, early, unkept } = parts;
        // What a device has not is told when its VNIC is made.
        let mut wanted = Store::new(wanted.clone());
        let _ = wanted.settle(&Model::default(), &|_, link| nic::factory_of_link(link));
        let wanted = wanted.active;
        // Lanes run already.
        // As many lanes as are wanted run; on which CPUs, and how long at a time, is the first thing that is carried out.
        let lanes = wanted.daemon.lanes;
        let daemon = Daemon { lanes, slice: Slice::Kernel, ..Daemon::default() };
        let active = Model { daemon, ..Model::default() };
        let store = Store { active, persistent: wanted.clone() };
        let addresses = Addresses::default();
        let (failed, returns, told) = (Vec::new(), Returns::default(), Told::default());
        let time_of_day = TimeOfDay::new(&works.engine);
        let mut inner = Inner {
            store,
            works,
            state,
            addresses,
            early,
            unkept,
            failed,
            refused_at: None,
            returns,
            told,
            time_of_day,
            partings: Partings::default(),
            history_fault: None,
            accounting_fault: None,
        };
        inner.begin(&wanted);
        inner.await_addresses();
        let (programs, history) = (Mutex::default(), Mutex::default());
        Self { started: Instant::now(), instance, lanes_given, inner: Mutex::new(inner), programs, history }
    }

    /// Ends what runs, in order.
    pub(crate) fn shut_down(&self) {
        drop(self.programs().take());
        let history = self.history().take();
        drop(history);
        self.lock().works.shut_down();
    }

    /// Programs are served from here on.
    pub(crate) fn set_programs(&self, programs: Programs) {
        *self.programs() = Some(programs);
    }

    /// What is carried is recorded from here on.
    pub(crate) fn set_history(&self, history: History) {
        *self.history() = Some(history);
    }

    /// What every link and flow has carried since it was made, and those that have ended since this was last asked.
    pub(crate) fn totals(&self) -> (Totals, Vec<Parting>) {
        let mut inner = self.lock();
        (stats::totals(&inner.works, &inner.store.active), inner.partings.take())
    }

    /// Lets `write` follow what is wanted of accounting, and notes what is wrong with it.
    pub(crate) fn account(&self, write: impl FnOnce(&Accounting) -> Result<(), Fault>) {
        let wanted = self.lock().store.active.daemon.accounting.clone();
        let told = write(&wanted).err().map(|fault| fault.to_string());
        let mut inner = self.lock();
        if let Some(told) = told.as_ref().filter(|told| inner.accounting_fault.as_ref() != Some(*told)) {
            tracing::error!("{told}");
        }
        inner.accounting_fault = told;
    }

    /// What is wanted of accounting is another now: returns when its last records are in the file, and gives what was lost.
    fn follow_accounting(&self) -> Result<(), ApiError> {
        self.history().as_ref().map_or(Ok(()), History::follow)
    }

    fn history(&self) -> MutexGuard<'_, Option<History>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is wrong with the history, which status shows as long as it is.
    pub(crate) fn note_history_fault(&self, fault: Option<String>) {
        self.lock().history_fault = fault;
    }

    /// Something went wrong that status shall show.
    pub(crate) fn note_fault(&self, text: String) {
        let mut inner = self.lock();
        // One that comes again and again is told once.
        if !inner.early.contains(&text) {
            inner.early.push(text);
        }
    }

    fn programs(&self) -> MutexGuard<'_, Option<Programs>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody changes it, so that who asks would have to wait.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.inner.try_lock(), Err(TryLockError::WouldBlock))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic half-way through a step leaves a record that is true but for that step.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        // Before anybody sees what there is.
        inner.settle_partings();
        inner
    }

    fn view<T>(&self, which: Which, view: impl FnOnce(Snapshot<'_>) -> T) -> T {
        let mut inner = self.lock();
        inner.note_addresses();
        let Inner { store, works, addresses, .. } = &*inner;
        let running = Running { works, model: &store.active, addresses };
        let facts: &dyn Facts = match which {
            Which::Active => &running,
            Which::Persistent => &Stored,
        };
        view(Snapshot { model: store.model(which), persistent: &store.persistent, facts })
    }
}

/// What programs are told.
impl Host {
    /// The netstack that a program gets which asks for `wanted`: a VNIC's, the one of that name, or without a name the
    /// obvious one. Else why there is none.
    pub(crate) fn netstack_of(&self, wanted: &str) -> Result<(NetstackName, NetstackId, Rules), String> {
        let inner = self.lock();
        let (model, known) = (&inner.store.active, &inner.works.netstacks);
        let name = match (model.vnics.get(wanted), known.get_key_value(wanted)) {
            (Some(vnic), _) => {
                vnic.netstack().ok_or_else(|| format!("VNIC {wanted} has no netstack of Firelane"))?.clone()
            }
            (None, Some((name, _))) => name.clone(),
            (None, None) if wanted.is_empty() => {
                let default = known.keys().find(|name| name.as_str() == DEFAULT_NETSTACK);
                let only = known.keys().next().filter(|_| known.len() == 1);
                default.or(only).ok_or("no netstack was asked for, and none is the obvious one")?.clone()
            }
            (None, None) => return Err(format!("there is no VNIC or netstack {wanted}")),
        };
        let id = known.get(&name).copied().ok_or_else(|| format!("netstack {name} does not run"))?;
        let rules = model.netstacks.get(&name).map(|it| it.programs.clone()).unwrap_or_default();
        Ok((name, id, rules))
    }

    /// Does something with the model of what is there.
    pub(crate) fn with_model<T>(&self, act: impl FnOnce(&Model) -> T) -> T {
        act(&self.lock().store.active)
    }

    /// What the rules that a program gives to its sockets say on this netstack, or what is wrong with them there.
    pub(crate) fn socket_rules(
        &self,
        netstack: &NetstackName,
        filter: &SocketFilter,
    ) -> Result<Vec<FilterRule<LinkId>>, String> {
        let inner = self.lock();
        match filter.faults_on("filter", &inner.store.active, netstack).first() {
            Some(fault) => Err(fault.to_string()),
            None => {
                let rules = filter.rules(|name| inner.works.vnics.get(name).map(|it| it.id));
                rules.ok_or_else(|| format!("netstack {netstack} changes"))
            }
        }
    }

    /// The interfaces of a netstack, one for each address, and at least one for each VNIC.
    pub(crate) fn interfaces(&self, netstack: &NetstackName) -> Vec<Interface> {
        let known = self.addrs(Which::Active).unwrap_or_default();
        let inner = self.lock();
        let mut interfaces: Vec<Interface> = Vec::new();
        // Among them is what each makes itself (RFC 4862 §5.3), whoever has said nothing of IPv6.
        let id = inner.works.netstacks.get(netstack);
        let made = id.map_or_else(Vec::new, |&id| inner.works.engine.configured_addresses(id));
        let own = inner.store.active.vnics.iter().filter(|(_, vnic)| vnic.netstack() == Some(netstack));
        for (name, vnic) in own {
            let Some(upper) = inner.works.vnics.get(name) else { continue };
            let (index, reach) = (upper.id.0 + 1, reach(&vnic.over));
            let mtu = inner.store.active.mtu_of(name.as_str()).map_or(0, |mtu| u32::from(mtu.bytes()));
            let with =
                |address| Interface { name: name.to_string(), index, mtu, mac: upper.mac.0, reach, address };
            let its = known.iter().filter(|it| it.name.interface() == name.as_str());
            let used = its.filter(|it| it.state != AddressState::Down);
            let prefixes = used.filter_map(|it| it.addr.parse::<IpPrefix>().ok());
            let before = interfaces.len();
            let mut addresses: Vec<_> = prefixes.map(|it| (it.addr(), it.prefix_len())).collect();
            for (_, prefix) in made.iter().filter(|(link, _)| *link == upper.id) {
                if addresses.iter().all(|(known, _)| *known != prefix.addr()) {
                    addresses.push((prefix.addr(), prefix.prefix_len()));
                }
            }
            interfaces.extend(addresses.into_iter().map(|it| with(Some(it))));
            if interfaces.len() == before {
                interfaces.push(with(None));
            }
        }
        interfaces
    }
}

/// Who hears what leaves by a VNIC.
fn reach(over: &Over) -> Reach {
    match over.tunnel().map(|tunnel| tunnel.kind) {
        None => Reach::Link,
        Some(IptunType::SixToFour) => Reach::Named,
        Some(IptunType::Ipv4 | IptunType::Ipv6 | IptunType::Gre) => Reach::End,
    }
}

impl Inner {
    fn begin(&mut self, wanted: &Model) {
        for step in plan(wanted, &self.store.active) {
            match self.carry_out(&step) {
                Ok(()) => {}
                Err(error) => {
                    tracing::error!("{step}: {error}");
                    self.fall_short(step, error);
                }
            }
        }
    }

    /// A step failed and the rest goes on: what can be done of it is done.
    fn fall_short(&mut self, step: Step, error: ApiError) {
        let mut why = error.to_string();
        let below = self.failed.iter().map(|(step, _)| step);
        if let Some(below) = below.filter(|it| step.rests_on(it)).find(|it| self.is_missing(it)) {
            why = format!("it rests on what failed, \"{below}\" ({why})");
        }
        let left = |step: &Step, error: &ApiError, present: &Model| {
            filter::as_far_as(step, present).or_else(|| resources::without(step, error))
        };
        let mut rest = left(&step, &error, &self.store.active);
        // Each of them asks for less than the one before.
        while let Some(tried) = rest.take() {
            match self.carry_out(&tried) {
                Ok(()) => why.push_str("; the rest of it runs"),
                Err(error) => {
                    tracing::error!("{tried}: {error}");
                    rest = left(&tried, &error, &self.store.active);
                }
            }
        }
        self.failed.push((step, why));
    }

    fn carry_out(&mut self, step: &Step) -> Result<(), ApiError> {
        match rebuild::instead_of(step, &self.store.active) {
            None => self.carry_out_plainly(step),
            Some(steps) => steps.iter().try_for_each(|step| self.carry_out_plainly(step)),
        }
    }

    fn carry_out_plainly(&mut self, step: &Step) -> Result<(), ApiError> {
        let ends = self.before_parting(&step.action);
        let done = self.works.carry_out(step, &self.store.active);
        if let Action::SetLink(..) = step.action {
            // Its interface may be another now, also where a part of it was refused, and what the one before had carried is kept.
            self.partings.read_anew();
        }
        done?;
        tracing::info!("{step}");
        if let Some(ended) = ends {
            self.part(ended);
        }
        self.addresses.follow(step);
        if let Action::SetFilter(..) = step.action {
            // What has been told until now is told by the numbers of the rules that decided.
            self.note_addresses();
        }
        apply_to_model(&mut self.store.active, step);
        if let Action::CreateLink(name, _)
        | Action::SetLink(name, ..)
        | Action::SetEtherstub(name, ..)
        | Action::CreateVnic(name, _)
        | Action::SetVnic(name, ..) = &step.action
        {
            self.works.show_speed(&self.store.active, name);
        }
        if let Action::CreateVnic(..) | Action::DeleteVnic(_) | Action::SetVnic(..) = step.action {
            self.works.note_interfaces(&self.store.active);
        }
        Ok(())
    }

    /// What is present, in the words of `wanted` where these say of a VNIC's address, or of a link's interface, what it is already:
    /// by another name it may have been written down, and nothing has to be made anew for that.
    fn as_said_by(&self, wanted: &Model) -> Model {
        let mut present = self.store.active.clone();
        let macs = self.works.macs;
        for (name, vnic) in &mut present.vnics {
            let (Some(shall), Some(upper)) = (wanted.vnics.get(name), self.works.vnics.get(name)) else {
                continue;
            };
            let is_slot = |mac| matches!(mac, Mac::Factory(_));
            if !is_slot(vnic.mac)
                && !is_slot(shall.mac)
                && macs.choose(name, shall.mac, |_| false) == upper.mac
            {
                vnic.mac = shall.mac;
            }
        }
        for (name, link) in &mut present.links {
            let shall = wanted.links.get(name).map(|it| &it.kind);
            let (LinkKind::Nic(is), Some(LinkKind::Nic(shall))) = (&mut link.kind, shall) else { continue };
            let nic = self.works.links.get(name).and_then(|it| it.nic.as_ref());
            if is.ifname != shall.ifname && nic.is_some_and(|it| it.is_called(shall.ifname.as_str())) {
                is.ifname = shall.ifname.clone();
            }
        }
        present
    }

    /// Goes from the present store to `next`, or stays where it is.
    fn move_to(&mut self, next: Store) -> Result<Vec<Step>, ApiError> {
        let (before, steps) = self.way_to(&next)?;
        self.go(before, steps, next)
    }

    /// What is present in the words of `next`, and the steps from there, none of which is known to be impossible.
    fn way_to(&self, next: &Store) -> Result<(Model, Vec<Step>), ApiError> {
        let before = self.as_said_by(&next.active);
        let steps = self.checked(&next.active, &before, NAME_WAIT);
        let steps = steps.inspect_err(|error| tracing::warn!("refused: {}", error.with_step()))?;
        Ok((before, steps))
    }

    fn go(&mut self, before: Model, steps: Vec<Step>, next: Store) -> Result<Vec<Step>, ApiError> {
        let was = std::mem::replace(&mut self.store.active, before.clone());
        self.partings.read_anew();
        let moved = self.move_through(&steps, &next);
        match moved {
            Ok(()) => self.works.take_names(&self.store.active),
            Err(_) => {
                self.take_back(&before);
                in_words_of(&mut self.store.active, &before, &was);
            }
        }
        self.works.kernel.collect(&self.store.active);
        moved.map(|()| steps)
    }

    fn move_through(&mut self, steps: &[Step], next: &Store) -> Result<(), ApiError> {
        if next.persistent == self.store.persistent {
            return steps.iter().try_for_each(|step| self.try_step(step));
        }
        // The state's place is a value of its own, because its borrow outlives the steps.
        let state = self.state.clone();
        let prepared = state.prepare(&next.persistent)?;
        steps.iter().try_for_each(|step| self.try_step(step))?;
        prepared.commit().map_err(|error| state.refused(&error))?;
        self.unkept = None;
        self.store.persistent = next.persistent.clone();
        Ok(())
    }

    /// Writes down what is kept, if that could not be done at the start: nothing would change of it otherwise.
    fn make_up(&mut self) -> Result<(), ApiError> {
        if self.unkept.is_some() {
            let prepared = self.state.prepare(&self.store.persistent)?;
            prepared.commit().map_err(|error| self.state.refused(&error))?;
            self.unkept = None;
        }
        Ok(())
    }

    fn try_step(&mut self, step: &Step) -> Result<(), ApiError> {
        let done = self.carry_out(step).inspect_err(|error| tracing::warn!("{step}: {error}"));
        done.map_err(|error| error.of_step(step))
    }

    fn take_back(&mut self, before: &Model) {
        for step in plan(before, &self.store.active) {
            if let Err(error) = self.carry_out(&step) {
                tracing::error!("taking a failed change back: {step}: {error}");
                self.fall_short(step, error);
            }
        }
    }

    /// Whoever gets the first answer shall find the addresses in use.
    fn await_addresses(&mut self) {
        let deadline = Instant::now() + ADDRESSES_TIME;
        self.note_addresses();
        while self.addresses.are_pending() && Instant::now() < deadline {
            std::thread::sleep(ADDRESSES_POLL);
            self.note_addresses();
        }
    }

    fn note_addresses(&mut self) {
        self.addresses.note(self.works.engine.notices(), &self.works, &self.store.active);
    }

    fn problems(&self, lanes_given: bool, lanes_alive: usize) -> Vec<String> {
        let mut problems = self.early.clone();
        problems.extend(self.unkept.clone());
        problems.extend(self.state.problem());
        let failed = self.failed.iter().filter(|(step, _)| self.is_missing(step));
        problems.extend(failed.map(|(step, why)| format!("{step}: {why}")));
        problems.extend(self.addresses.duplicates());
        problems.extend(self.works.kernel.fault().map(str::to_owned));
        problems.extend(self.history_fault.clone());
        problems.extend(self.accounting_fault.clone());
        let running = self.works.engine.lanes();
        let all = running + self.works.engine.reserve();
        if lanes_alive < all {
            let lost = all - lanes_alive;
            problems.push(format!("lanes: {lost} of {all} out of service after a fault; the log says more"));
        }
        problems.extend(resources::lanes_elsewhere(&self.works, &self.store.active));
        problems.extend(resources::own_elsewhere(&self.works, &self.store.active));
        if let Daemon { lanes: Lanes::Count(wanted), .. } = self.store.active.daemon
            && usize::from(wanted) != running
            && !lanes_given
        {
            problems.push(format!("lanes: {running} run; {wanted} will after the next start of firelaned"));
        }
        problems
    }

    /// What is wrong with interfaces that others may delete or change, and why it was not mended.
    fn interface_faults(&self) -> BTreeMap<LinkName, String> {
        self.told.whole(self.works.interface_faults(&self.store.active))
    }

    /// CPUs come and go: lanes return to theirs, and what was refused at the start is tried again.
    fn look_at_cpus(&mut self) {
        self.returns.look(&self.works.engine);
        self.works.engine.settle();
        for nth in (0..self.failed.len()).rev() {
            let step = &self.failed[nth].0;
            // Most steps are asked for no CPU, and that is known at once.
            let again = resources::again(&self.works, step, &self.store.active);
            let again = again.filter(|_| self.is_missing(step));
            // What is refused for another reason stands among the problems already.
            if again.is_some_and(|step| self.carry_out(&step).is_ok()) {
                self.failed.remove(nth);
            }
        }
    }

    /// The time of day may have been set: networks of pools end by it all the same.
    fn look_at_time(&mut self) {
        let Inner { works, store, time_of_day, .. } = self;
        if !time_of_day.was_set(&works.engine) {
            return;
        }
        for (name, netstack) in &store.active.netstacks {
            if let Err(error) = works.reckon_ends(name, &netstack.pools) {
                tracing::error!("pools of netstack {name}: {error}");
            }
        }
    }

    /// Interfaces come and go: who had one that is there again gets it, and what is wrong with others is logged.
    fn look_at_interfaces(&mut self) {
        self.works.rejoin();
        for name in self.works.unsettled() {
            self.works.resettle(&name, &self.store.active);
        }
        let mut faults = self.works.interface_faults(&self.store.active);
        // Nothing is missing where nothing is wrong.
        if !faults.is_empty() {
            self.works.let_go_of_lost(&self.store.active);
            let mut back = self.works.returned();
            back.retain(|name| self.told.may_try(name));
            for name in back {
                let tried = self.works.reattach(&name, &self.store.active);
                self.told.note(name, tried);
            }
            self.remake(false);
            faults = self.works.interface_faults(&self.store.active);
        }
        self.told.tell(faults);
        self.told.memifs.tell(self.works.memifs(&self.store.active));
    }

    /// Makes interfaces again that were deleted; with `anywhere` their namespaces, too. The steps that were carried out.
    fn remake(&mut self, anywhere: bool) -> Vec<Step> {
        // Links may have got other interfaces just now.
        self.partings.read_anew();
        let mut done = Vec::new();
        for name in self.works.bereft(anywhere) {
            tracing::warn!("vnic {name}: its interface was deleted and is made again");
            for step in rebuild::anew(&name, &self.store.active) {
                match self.carry_out_plainly(&step) {
                    Ok(()) => done.push(step),
                    Err(error) => {
                        tracing::error!("{step}: {error}");
                        self.fall_short(step, error);
                    }
                }
            }
        }
        if anywhere {
            self.works.listen_anew(&self.store.active);
        }
        done
    }

    /// Whether what `step` makes is still wanted and still not there.
    fn is_missing(&self, step: &Step) -> bool {
        step.would_change(&self.store.active) && !step.would_change(&self.store.persistent)
    }
}

/// What is as it is in `before` is said as in `was`, which means the same: a change that is refused leaves that alone, too.
fn in_words_of(model: &mut Model, before: &Model, was: &Model) {
    for (name, vnic) in &mut model.vnics {
        if let (Some(before), Some(was)) = (before.vnics.get(name), was.vnics.get(name))
            && vnic.mac == before.mac
        {
            vnic.mac = was.mac;
        }
    }
    for (name, link) in &mut model.links {
        if let (Some(before), Some(was)) = (before.links.get(name), was.links.get(name))
            && link.kind == before.kind
        {
            link.kind = was.kind.clone();
        }
    }
}

/// Reads what lanes report as soon as they do: a leased address waits for how its test ended.
pub(crate) async fn follow(host: Arc<Host>) {
    let engine = host.lock().works.engine.clone();
    loop {
        engine.noticed().await;
        if !goes_on(&host, "addresses", Inner::note_addresses).await {
            return;
        }
    }
}

/// Looks again and again which CPUs and interfaces there are.
pub(crate) async fn watch_host(host: Arc<Host>) {
    let mut looks = tokio::time::interval(HOST_POLL);
    loop {
        looks.tick().await;
        let look = |inner: &mut Inner| {
            inner.look_at_cpus();
            inner.look_at_absent();
            inner.look_at_interfaces();
            inner.look_at_time();
        };
        if !goes_on(&host, "CPUs and interfaces", look).await {
            return;
        }
    }
}

/// Looks once at `what`; whether to go on, until the daemon ends.
async fn goes_on(
    host: &Arc<Host>,
    what: &'static str,
    look: impl FnOnce(&mut Inner) + Send + 'static,
) -> bool {
    let host = Arc::clone(host);
    // The lock may be held while a change is made.
    let looked = tokio::task::spawn_blocking(move || {
        survive(what, || look(&mut host.lock()), |fault| host.note_fault(fault));
    });
    looked.await.is_ok()
}

/// A fault of ours ends one look and is told: others follow.
fn survive(what: &str, look: impl FnOnce(), tell: impl FnOnce(String)) {
    if catch_unwind(AssertUnwindSafe(look)).is_err() {
        tell(format!("{what}: a look at them has ended by a fault of the daemon, of which its log has more"));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) use super::partings::tests::host as two_netstacks;
    use super::partings::tests::host_of;
    use super::survive;
    use crate::filter::TimeOfDay;
    use crate::folder::tests::Scratch;
    use firelane::PoolChange;

    /// An entry that has ended by a clock that stood beyond is there again when that is set right.
    #[test]
    fn networks_of_pools_end_by_the_time_of_day_that_was_set() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let text = "[etherstub.s0]\n[vnic.web0]\nover = 's0'\nnetstack = 'web'\n\
                    [netstack.web]\npools = { 7 = ['10.0.0.0/8', '192.0.2.1 until 99999999999'] }\n";
        let host = host_of(text, &folder, &runtime);
        let mut inner = host.lock();
        let (engine, id) = (inner.works.engine.clone(), inner.works.netstacks["web"]);
        let (network, is_exception, group) = ("192.0.2.1/32".parse().unwrap(), false, None);
        engine
            .change_pools(id, &[PoolChange { pool: 7, network, until: None, is_exception, group }])
            .unwrap();
        inner.look_at_time();
        let pooled = || engine.pooled(id).unwrap().into_iter().max();
        assert_eq!(pooled(), Some(1), "nobody has set it");
        inner.time_of_day = TimeOfDay::of_another_day();
        inner.look_at_time();
        assert_eq!(pooled(), Some(2));
        drop(inner);
        host.shut_down();
    }

    #[test]
    fn a_fault_ends_one_look_and_is_told() {
        let mut told = Vec::new();
        survive("CPUs", || {}, |fault| told.push(fault));
        assert!(told.is_empty());
        survive("CPUs", || panic!("a fault"), |fault| told.push(fault));
        assert!(told.len() == 1 && told[0].starts_with("CPUs: "), "{told:?}");
    }
}
