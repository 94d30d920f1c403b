//! What links and flows had carried when they were deleted, or got another name.
//!
//! The history and accounting read counters once a second (`history/mod.rs`), and these end with their object; a new name has
//! them from its beginning on. `host.rs` notes here what they were at last. Who is made anew by the same change has not ended:
//! he goes on with what he had carried (`carried.rs`), and nobody need know.

use std::collections::{BTreeMap, BTreeSet};

use firelane_api::{Traffic, UsageOf};
use firelane_model::{FlowMatch, LinkClass, LinkName, Model};
use firelane_plan::Action;

use super::Inner;
use crate::carried::Carried;
use crate::history::{Parting, Subject};
use crate::stats::{self, Counted};

/// How many wait for the next reading; where nothing is recorded nobody takes them.
const PARTINGS_MAX: usize = 100_000;

/// What has ended since the last reading.
#[derive(Debug, Default)]
pub(super) struct Partings {
    /// All counters before the first that ended by the change that is being made: one reading does for all of its steps.
    counted: Option<Counted>,
    /// Who has ended by that change, and may have been made anew by it.
    ended: BTreeMap<Subject, Ended>,
    list: Vec<Parting>,
}

/// What somebody was who has ended. Under his name there may be another one.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Ended {
    Link(LinkClass),
    Flow(FlowMatch),
}

impl Ended {
    /// Whether he is there.
    fn is_in(&self, model: &Model, subject: &Subject) -> bool {
        match self {
            Self::Link(class) => model.class_of(&subject.name) == Some(*class),
            Self::Flow(matching) => {
                let flow = model.flows.get(subject.name.as_str());
                flow.is_some_and(|it| {
                    it.link.as_str() == subject.link && it.matching.canonical() == *matching
                })
            }
        }
    }
}

impl Partings {
    /// Something is another, or may be: what was read of it is old.
    pub(super) fn read_anew(&mut self) {
        self.counted = None;
    }

    pub(super) fn take(&mut self) -> Vec<Parting> {
        std::mem::take(&mut self.list)
    }

    fn note(&mut self, parting: Parting) {
        if self.list.len() < PARTINGS_MAX {
            self.list.push(parting);
        }
    }
}

impl Inner {
    /// Who ends by `action`; what he has carried is read.
    pub(super) fn before_parting(&mut self, action: &Action) -> Option<(Subject, Ended)> {
        let ends = who_ends(action, &self.store.active)?;
        if !self.partings.counted.as_ref().is_some_and(|it| it.has(&ends.0)) {
            self.partings.counted = Some(stats::all(&self.works, &self.store.active));
        }
        Some(ends)
    }

    /// He has ended, and the model has him still. What he carried is his if he is made anew, and what he carried over an etherstub that
    /// one's as long as it is there.
    pub(super) fn part(&mut self, (subject, was): (Subject, Ended)) {
        let Some(counted) = self.partings.counted.as_mut() else { return };
        let (model, before) = (&self.store.active, &mut self.works.before);
        match subject.of {
            UsageOf::Links => {
                let Some((name, carried)) = counted.links.remove_entry(subject.name.as_str()) else { return };
                let over = model.vnics.get(&name).and_then(|it| it.over.link());
                if let Some(stub) = over.filter(|it| model.etherstubs.contains_key(*it)) {
                    let lanes = counted.sent.remove(&name).unwrap_or_default();
                    let traffic = stats::turned(carried.traffic);
                    before.keep_link(stub, &Carried { traffic, lanes, ..Carried::default() });
                }
                before.keep_link(&name, &carried);
            }
            UsageOf::Flows => {
                let Some((name, traffic)) = counted.flows.remove_entry(subject.name.as_str()) else { return };
                before.keep_flow(&name, traffic);
            }
        }
        self.partings.ended.entry(subject).or_insert(was);
    }

    /// The change is made: who is not there again has ended.
    pub(super) fn settle_partings(&mut self) {
        self.partings.counted = None;
        let ended = std::mem::take(&mut self.partings.ended);
        let named = |it: &Subject| (it.of, it.name.clone());
        let stays = ended.iter().filter(|(subject, was)| was.is_in(&self.store.active, subject));
        let staying: BTreeSet<_> = stays.map(|(subject, _)| named(subject)).collect();
        for (subject, _) in ended {
            // A flow that went to another link and back is one, whose sum is its name's.
            if staying.contains(&named(&subject)) {
                continue;
            }
            let total = match subject.of {
                UsageOf::Links => self.works.before.forget_link(&subject.name),
                UsageOf::Flows => self.works.before.forget_flow(&subject.name),
            };
            self.partings.note(Parting { subject, total, heir: None });
        }
    }

    /// The link `from`, which had carried what `counted` says, is called `to` now, and its flows are that one's.
    pub(super) fn rename_counted(
        &mut self,
        counted: BTreeMap<Subject, Traffic>,
        from: &LinkName,
        to: &LinkName,
    ) {
        for (subject, total) in counted {
            let heir = match subject.of {
                UsageOf::Links if subject.name == from.as_str() => {
                    Subject { name: to.to_string(), ..subject.clone() }
                }
                UsageOf::Flows if subject.link == from.as_str() => {
                    Subject { link: to.to_string(), ..subject.clone() }
                }
                _ => continue,
            };
            self.partings.note(Parting { subject, total, heir: Some(heir) });
        }
    }

    pub(super) fn all_counted(&self) -> BTreeMap<Subject, Traffic> {
        stats::totals(&self.works, &self.store.active).into_iter().collect()
    }
}

/// Who ends.
fn who_ends(action: &Action, present: &Model) -> Option<(Subject, Ended)> {
    match action {
        Action::RemoveFlow(name) => {
            let flow = present.flows.get(name)?;
            let subject = Subject { of: UsageOf::Flows, name: name.to_string(), link: flow.link.to_string() };
            Some((subject, Ended::Flow(flow.matching.canonical())))
        }
        Action::DeleteVnic(name) | Action::DeleteLink(name) | Action::DeleteEtherstub(name) => {
            let subject = Subject { of: UsageOf::Links, name: name.to_string(), link: String::new() };
            Some((subject, Ended::Link(present.class_of(name.as_str())?)))
        }
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    pub(in crate::host) const TEMPORARY: firelane_api::Replacing =
        firelane_api::Replacing { temporary: true, empty: true, of: None };

    use firelane::{Engine, EngineConfig, UdpSocket};
    use firelane_api::{Api, Traffic};
    use firelane_model::{Instance, Model};

    use crate::dhcp::Clients;
    use crate::folder::tests::Scratch;
    use crate::history::Parting;
    use crate::host::{Host, Parts};
    use crate::kernel::Kernel;
    use crate::state::State;
    use crate::works::Works;

    /// Two netstacks on a switch.
    pub(in crate::host) const TEXT: &str = "[etherstub.s0]\n[etherstub.s1]\n\
        [vnic.near0]\nover = 's0'\nnetstack = 'near'\n[vnic.far0]\nover = 's0'\nnetstack = 'far'\n\
        [flow.f0]\nlink = 'near0'\nmatch = { transport = 'udp' }\n\
        [netstack.near.addresses]\n'near0/v4' = '10.0.0.1/24'\n[netstack.far.addresses]\n'far0/v4' = '10.0.0.2/24'\n";

    fn model(text: &str) -> Model {
        Model::from_toml("test", text).unwrap()
    }

    pub(crate) fn host(folder: &Scratch, runtime: &tokio::runtime::Runtime) -> Host {
        host_of(TEXT, folder, runtime)
    }

    /// One that has begun with another configuration.
    pub(in crate::host) fn host_of(text: &str, folder: &Scratch, runtime: &tokio::runtime::Runtime) -> Host {
        host_with(0, text, folder, runtime)
    }

    /// The same with so many lanes in reserve.
    pub(in crate::host) fn host_with(
        reserve: usize,
        text: &str,
        folder: &Scratch,
        runtime: &tokio::runtime::Runtime,
    ) -> Host {
        let engine = Engine::start(&EngineConfig { lanes: 2, reserve, ..EngineConfig::default() }).unwrap();
        let instance: Instance = "test".parse().unwrap();
        let clients = Clients::new(runtime.handle().clone(), folder.path(), None);
        let kernel = Kernel::new(instance.clone(), folder.path(), 1);
        let places = (folder.path().to_owned(), folder.path().join("app.sock"));
        let works = Works::new(engine, kernel, &instance, places, runtime.handle().clone(), clients);
        let (state, instance) = (State::new(folder.path()), instance.to_string());
        let parts = Parts { instance, lanes_given: false, works, state, early: Vec::new(), unkept: None };
        Host::start(parts, &model(text))
    }

    /// What everybody has carried, and who has ended.
    fn read(host: &Host) -> (BTreeMap<String, Traffic>, Vec<(String, Traffic)>) {
        let (totals, partings) = host.totals();
        let ended = |Parting { subject, total, heir }: Parting| {
            assert_eq!(heir, None);
            (subject.name, total)
        };
        let totals = totals.into_iter().map(|(subject, traffic)| (subject.name, traffic));
        (totals.collect(), partings.into_iter().map(ended).collect())
    }

    /// Whether all of it is still in the counters, and what came since is nothing but a netstack's own news of itself.
    #[track_caller]
    fn assert_goes_on(before: &BTreeMap<String, Traffic>, now: &BTreeMap<String, Traffic>, name: &str) {
        let [before, now] = [before, now].map(|it| it[name].counts());
        for (before, now) in before.into_iter().zip(now) {
            assert!((before..before + 3000).contains(&now), "{name}: {before:?} {now:?}");
        }
    }

    #[test]
    fn who_is_made_anew_goes_on_and_who_is_not_has_ended() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let host = host(&folder, &runtime);
        let stack = |name: &str| {
            let inner = host.lock();
            inner.works.engine.stack(inner.works.netstacks[name]).unwrap()
        };
        let receiver = UdpSocket::bind(&stack("far"), ("10.0.0.2", 4000)).unwrap();
        let sender = UdpSocket::bind(&stack("near"), ("10.0.0.1", 4000)).unwrap();
        for _ in 0..50 {
            sender.send_to(&[0; 1000], ("10.0.0.2", 4000)).unwrap();
            receiver.recv_from(&mut [0; 2000]).unwrap();
        }
        drop((sender, receiver));
        let apply = |text: &str| host.apply(&model(text), TEMPORARY).unwrap();
        let (first, ended) = read(&host);
        assert!(
            first["near0"].obytes >= 50_000 && first["s0"].rbytes >= 50_000 && ended.is_empty(),
            "{first:?}"
        );
        assert_eq!(first["f0"].opackets, 50);
        let lanes_of_all = || host.link_stats().unwrap().into_iter().map(|it| it.lanes).collect::<Vec<_>>();
        let lanes = lanes_of_all();

        // Twice, with other addresses, so that what was carried before is there once.
        for mac in ["02:08:20:00:00:07", "02:08:20:00:00:08"] {
            apply(&TEXT.replace("[vnic.near0]\n", &format!("[vnic.near0]\nmac = '{mac}'\n")));
            let (now, ended) = read(&host);
            assert_eq!(ended, [], "{mac}");
            ["near0", "s0", "f0"].iter().for_each(|it| assert_goes_on(&first, &now, it));
            for (before, now) in lanes.iter().zip(lanes_of_all()) {
                let sum = |it: &[firelane_api::LaneReceived]| it.iter().map(|it| it.rbytes).sum::<u64>();
                assert!(sum(&now) >= sum(before), "{before:?} {now:?}");
            }
        }

        // Another flow of that name, and the same VNIC over another switch.
        let moved =
            TEXT.replace("'udp'", "'tcp'").replace("[vnic.near0]\nover = 's0'", "[vnic.near0]\nover = 's1'");
        apply(&moved);
        let (now, ended) = read(&host);
        assert_eq!(ended, [("f0".to_owned(), first["f0"])]);
        assert_eq!(now["f0"], Traffic::default());
        ["near0", "s0"].iter().for_each(|it| assert_goes_on(&first, &now, it));

        // Who goes has carried all of it, and the next one of that name nothing of that.
        apply("[etherstub.s0]\n");
        let (now, ended) = read(&host);
        let ended: BTreeMap<_, _> = ended.into_iter().collect();
        assert_eq!(ended.keys().collect::<Vec<_>>(), ["f0", "far0", "near0", "s1"]);
        assert_goes_on(&first, &ended, "near0");
        assert_goes_on(&first, &now, "s0");
        apply(TEXT);
        assert!(read(&host).0["near0"].obytes < 3000);
        host.shut_down();
    }
}
