//! The world: hosts, wires, applications, and one clock that jumps from one thing that is due to the next.
//!
//! Nothing here is concurrent. At each instant the workers whose bell rang and the applications that were told
//! something run in turn until nobody has anything left to do; then the clock goes to the earliest instant that
//! anybody waits for. If nobody waits for any, the world stands still, and so does whoever was forgotten.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use firelane_driver_memory::{Conditions, Control as WireControl, End, WireConfig, wire};
use firelane_frame::Capabilities;
use firelane_lane::{Control, LaneMessage, Mode, Notice, SocketCommand};
use firelane_socket::{ConnRef, Ready, SocketToken};
use firelane_units::{Instant, LaneId, LinkId, MacAddr, Mtu, NetstackId, SocketId};

use crate::app::{App, AppId, Cx, Next, any_mode};
use crate::host::{Host, HostConfig, Mail, StackConfig, StackId};
use crate::random::Random;
use crate::session::Ending;
use crate::trace::Port;

/// Rounds at one instant after which somebody must be talking to himself.
const ROUNDS_MAX: usize = 100_000;

/// Both directions of a wire: from its first end, and from its second.
#[derive(Clone, Debug)]
pub struct Wire {
    /// From the first end.
    pub forth: WireControl,
    /// From the second end.
    pub back: WireControl,
    /// The hosts at its ends.
    pub hosts: [usize; 2],
}

impl Wire {
    /// Sets both directions.
    pub fn set(&self, conditions: &Conditions) {
        self.forth.set(conditions.clone());
        self.back.set(conditions.clone());
    }
}

/// Where an end of a wire is plugged in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plug {
    /// Which host.
    pub host: usize,
    /// Over which of its links.
    pub link: LinkId,
    /// As the VNIC of this station, or as the link's uplink.
    pub vnic: Option<MacAddr>,
    /// The lane that has the queue.
    pub lane: LaneId,
}

struct Slot {
    /// Away while it runs.
    app: Option<Box<dyn App>>,
    until: Option<Instant>,
    is_done: bool,
}

type Event = Box<dyn FnOnce(&mut Sim)>;

/// A simulation.
pub struct Sim {
    seed: u64,
    now: Instant,
    random: Random,
    hosts: Vec<Host>,
    links: Vec<LinkId>,
    wires: Vec<Wire>,
    apps: Vec<Slot>,
    /// Applications that have something to do at this instant.
    called: BTreeSet<AppId>,
    events: BTreeMap<(Instant, u64), Event>,
    events_made: u64,
    mail: Rc<RefCell<Mail>>,
    endings: Vec<Ending>,
    replay: String,
    about: String,
}

impl Sim {
    /// An empty world; everything that it chooses follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            now: Instant::from_secs(1),
            random: Random::new(seed),
            hosts: Vec::new(),
            links: Vec::new(),
            wires: Vec::new(),
            apps: Vec::new(),
            called: BTreeSet::new(),
            events: BTreeMap::new(),
            events_made: 0,
            mail: Rc::default(),
            endings: Vec::new(),
            replay: String::new(),
            about: String::new(),
        }
    }

    /// Names the test that replays this seed, and what this world is about, for the message of a failure.
    pub fn set_replay(&mut self, test: &str, about: &str) {
        (self.replay, self.about) = (test.to_owned(), about.to_owned());
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The seed's generator.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// A host with one link whose VNICs share the wire that will be plugged in as its uplink.
    pub fn host(&mut self, config: HostConfig, mtu: Mtu) -> usize {
        let mut random = self.random.fork();
        let mut host = Host::new(self.hosts.len(), config, self.now, &mut random, &self.mail);
        self.links.push(host.add_link(self.now, mtu));
        self.hosts.push(host);
        self.hosts.len() - 1
    }

    /// The first link of a host.
    pub fn link(&self, host: usize) -> LinkId {
        self.links[host]
    }

    /// A netstack on a host's first link.
    pub fn stack(&mut self, host: usize, config: &StackConfig) -> StackId {
        let over = self.links[host];
        let (netstack, vnic) = self.hosts[host].add_stack(self.now, over, config);
        StackId { host, netstack, vnic, number: config.number }
    }

    /// A netstack has other tunables from here on.
    pub fn tune(&mut self, stack: StackId, config: &StackConfig) {
        self.hosts[stack.host].tune(self.now, stack.netstack, config);
    }

    /// Plugs a wire in between two places.
    pub fn connect(&mut self, from: Plug, to: Plug, mtu: Mtu, forth: Conditions, back: Conditions) -> usize {
        let seed = self.random.bits();
        let capabilities = Capabilities::plain(mtu);
        let config = WireConfig { capabilities, seed, forth, back, timed: true, ..WireConfig::default() };
        let (first, second) = wire(config);
        let control = |end: &End| end.control().expect("the wire is simulated");
        let hosts = [from.host, to.host];
        self.wires.push(Wire { forth: control(&first), back: control(&second), hosts });
        for (plug, end) in [(from, first), (to, second)] {
            self.hosts[plug.host].plug(self.now, plug.link, plug.vnic, end, plug.lane);
        }
        self.wires.len() - 1
    }

    /// Plugs one end of a wire in at a host and gives the other to the caller, who plays whatever is there.
    pub fn dangle(&mut self, host: usize, mtu: Mtu) -> End {
        self.dangle_at(self.uplink(host), mtu)
    }

    /// The same where `plug` says, with its time kept by whoever plays that end.
    pub fn dangle_at(&mut self, plug: Plug, mtu: Mtu) -> End {
        let capabilities = Capabilities::plain(mtu);
        let (mine, theirs) = wire(WireConfig { capabilities, timed: true, ..WireConfig::default() });
        self.hosts[plug.host].plug(self.now, plug.link, plug.vnic, theirs, plug.lane);
        mine
    }

    /// The uplink of a host.
    pub fn uplink(&self, host: usize) -> Plug {
        Plug { host, link: self.links[host], vnic: None, lane: LaneId(0) }
    }

    /// A wire.
    pub fn wire(&self, n: usize) -> &Wire {
        &self.wires[n]
    }

    /// All wires.
    pub fn wires(&self) -> &[Wire] {
        &self.wires
    }

    /// All hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// How many lanes a host has.
    pub fn lanes(&self, host: usize) -> usize {
        self.hosts[host].lanes()
    }

    /// Something happens to the world at `at`.
    pub fn at(&mut self, at: Instant, event: impl FnOnce(&mut Self) + 'static) {
        self.events_made += 1;
        self.events.insert((at.max(self.now), self.events_made), Box::new(event));
    }

    /// Begins an application.
    pub fn spawn(&mut self, app: Box<dyn App>) -> AppId {
        let id = AppId(self.apps.len());
        self.apps.push(Slot { app: Some(app), until: None, is_done: false });
        self.called.insert(id);
        id
    }

    /// Notes how a session ended.
    pub fn note(&mut self, ending: Ending) {
        self.endings.push(ending);
    }

    /// How the sessions ended that have ended.
    pub fn endings(&self) -> &[Ending] {
        &self.endings
    }

    /// What lanes reported since the last question.
    pub fn notices(&self) -> Vec<Notice> {
        std::mem::take(&mut self.mail.borrow_mut().notices)
    }

    /// Whether lanes have reported something since then.
    pub fn has_notices(&self) -> bool {
        !self.mail.borrow().notices.is_empty()
    }

    /// A name for a listener.
    pub fn next_socket(&mut self, host: usize) -> SocketId {
        self.hosts[host].next_socket()
    }

    /// Sends a socket's command to a lane.
    pub fn command(&mut self, host: usize, lane: LaneId, netstack: NetstackId, command: SocketCommand) {
        let message = LaneMessage::Socket(netstack, command);
        self.hosts[host].enter(lane, Mode::Process, self.now, message);
    }

    /// Tells a lane that an application wrote or read.
    pub fn kick(&mut self, host: usize, lane: LaneId, netstack: NetstackId, conn: ConnRef) {
        let mode = any_mode(&mut self.random);
        self.hosts[host].enter(lane, mode, self.now, LaneMessage::Kick { netstack, conn });
    }

    /// One application tells another that it wrote or read, as lanes do else.
    pub fn wake(&mut self, token: SocketToken, ready: Ready) {
        self.mail.borrow_mut().ready.push((token, ready));
    }

    /// Hands an item to a lane, as a program that enters it does.
    pub fn send(&mut self, host: usize, lane: LaneId, message: LaneMessage<Port>) {
        self.hosts[host].enter(lane, Mode::Process, self.now, message);
    }

    /// Sends a change of configuration to every lane of a host.
    pub fn control(&mut self, host: usize, change: impl Fn() -> Control<Port>) {
        self.hosts[host].control(self.now, |_| change());
    }

    /// Lets time pass until `done` says so, or until `limit`. Whether `done` did.
    pub fn run_until(&mut self, limit: Instant, mut done: impl FnMut(&Self) -> bool) -> bool {
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            match self.next_deadline() {
                Some(at) if at <= limit => self.now = at.max(self.now),
                _ => {
                    self.now = self.now.max(limit);
                    return false;
                }
            }
        }
    }

    /// Lets a span of time pass.
    pub fn run_for(&mut self, span: Duration) {
        self.run_until(self.now + span, |_| false);
    }

    /// Whether every application that must end has ended.
    pub fn is_over(&self) -> bool {
        self.apps.iter().all(|slot| slot.is_done || slot.app.as_ref().is_some_and(|app| !app.must_end()))
    }

    /// Everything that is due at this instant, until nobody has more to do.
    pub fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let mut moved = self.run_events();
            for host in &mut self.hosts {
                moved |= host.work(self.now);
            }
            moved |= self.run_apps();
            if !moved {
                return;
            }
        }
        panic!("at {:?} the world never becomes silent\n{}", self.now, self.describe());
    }

    fn run_events(&mut self) -> bool {
        let mut moved = false;
        while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= self.now) {
            entry.remove()(self);
            moved = true;
        }
        moved
    }

    /// Runs the applications that were told something, or whose time has come.
    fn run_apps(&mut self) -> bool {
        let ready = std::mem::take(&mut self.mail.borrow_mut().ready);
        self.called.extend(ready.into_iter().map(|(token, _)| AppId::of(token)));
        let now = self.now;
        let is_due = |slot: &Slot| slot.until.is_some_and(|at| at <= now);
        self.called.extend((0..self.apps.len()).filter(|&n| is_due(&self.apps[n])).map(AppId));
        let called = std::mem::take(&mut self.called);
        for &id in &called {
            self.run_app(id);
        }
        !called.is_empty()
    }

    fn run_app(&mut self, id: AppId) {
        let slot = &mut self.apps[id.0];
        slot.until = None;
        let Some(mut app) = slot.app.take() else { return };
        let next = app.turn(&mut Cx { sim: self, app: id });
        let slot = &mut self.apps[id.0];
        match next {
            Next::Again => {
                self.called.insert(id);
            }
            Next::Wait => {}
            Next::Until(at) => slot.until = Some(at),
            Next::Done => {
                slot.is_done = true;
                return;
            }
        }
        slot.app = Some(app);
    }

    /// The earliest instant that anybody waits for.
    pub fn next_deadline(&self) -> Option<Instant> {
        let hosts = self.hosts.iter().filter_map(Host::next_deadline).min();
        let apps = self.apps.iter().filter_map(|slot| slot.until).min();
        let event = self.events.keys().next().map(|&(at, _)| at);
        [hosts, apps, event].into_iter().flatten().min()
    }

    /// Where everybody stands, for a person.
    pub fn describe(&self) -> String {
        let mut text = format!("seed {} at {:?}: {}\n", self.seed, self.now, self.about);
        for (n, slot) in self.apps.iter().enumerate().filter(|(_, slot)| !slot.is_done) {
            let about = slot.app.as_ref().map_or_else(|| "runs".to_owned(), |app| app.describe());
            let _ = writeln!(text, "  app {n}: {about}, until {:?}", slot.until);
        }
        for (n, wire) in self.wires.iter().enumerate() {
            for (direction, control) in [("forth", &wire.forth), ("back", &wire.back)] {
                let (counters, conditions) = (control.counters(), control.conditions());
                let _ = writeln!(text, "  wire {n} {direction}: {counters:?} under {conditions:?}");
            }
        }
        text
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.describe());
            eprintln!(
                "replay: FIRELANE_SEED={} cargo test -p firelane-sim -- {} --nocapture",
                self.seed, self.replay
            );
        }
    }
}
