//! Our side of an exchange: a lane with one netstack, in virtual time, with the properties of profile `linux`; and the
//! same netstack besieged, with a neighbour that must not suffer.

use std::time::Duration;

use firelane_driver_memory::End;
use firelane_sim::{Client, Outcome, Plan, Server, Sim, SocketConfig, StackId};
use firelane_units::Instant;

use super::exchange::Exchange;
use super::player::{World, play, play_on};
use super::transcript::Transcript;
use crate::settings::{Family, Settings};
use crate::sockets::{Effect, Sockets};
use crate::station::{Seen, Station, THEIR_NUMBER};
use crate::text::Call;

/// What our netstack answers. `None` if the exchange is not about that family.
///
/// # Errors
/// The exchange makes a call that does not exist.
pub fn ours(exchange: &Exchange, family: Family) -> Result<Option<Transcript>, String> {
    let settings = &exchange.script.settings;
    if !settings.families.contains(&family) {
        return Ok(None);
    }
    let mut world = Virtual::new(settings, family);
    play(&mut world, exchange, settings).map(Some)
}

/// The neighbour's number, its service's port, and what the two exchange.
const NEIGHBOUR: u8 = 3;
const SERVICE: u16 = 9000;
const NEIGHBOUR_BYTES: u64 = 40_000;

/// Plays an exchange against our netstack while a neighbour of it, on the same switch, sends it a file. Whatever the
/// exchange does, frames are conserved, connections are no more than were asked for, and the neighbour is served.
///
/// # Panics
/// If one of these does not hold.
pub fn besieged(exchange: &Exchange, family: Family) {
    let settings = &exchange.script.settings;
    let mut world = Virtual::new(settings, family);
    let (v6, stack) = (family.is_v6(), world.stack);
    let neighbour = world.sim.stack(stack.host, &settings.stack(NEIGHBOUR));
    let sockets = SocketConfig::of(16_384);
    world.sim.spawn(Server::boxed(stack, stack.at(v6, SERVICE), sockets));
    let plan = Plan { pace: (2_000, Duration::from_millis(20)), ..Plan::upload(1, NEIGHBOUR_BYTES) };
    world.sim.spawn(Client::boxed(neighbour, stack.at(v6, SERVICE), plan, sockets, Duration::from_millis(1)));
    play_on(&mut world, exchange, settings);
    let events = exchange.script.events.len();
    let (connections, _) = world.sim.remains();
    assert!(connections <= 3 * events + 2, "{connections} connections after {events} events");
    let end = world.sim.now() + Duration::from_secs(30);
    world.run_until(end);
    world.sim.check_conservation();
    let endings = world.sim.endings();
    assert_eq!(endings.len(), 2, "the neighbour and its service have ended: {}", world.sim.describe());
    for ending in endings {
        assert_eq!(ending.outcome, Outcome::Complete, "{ending:?}");
        assert!(ending.bytes.0.max(ending.bytes.1) >= NEIGHBOUR_BYTES, "{ending:?}");
    }
}

struct Virtual {
    sim: Sim,
    stack: StackId,
    station: Station<End>,
    sockets: Sockets,
}

impl Virtual {
    fn new(settings: &Settings, family: Family) -> Self {
        let mut sim = Sim::new(1);
        let mtu = settings.mtu(family);
        let host = sim.host(settings.host(), mtu);
        let stack: StackId = sim.stack(host, &settings.stack(THEIR_NUMBER));
        let end = sim.dangle(host, mtu);
        let mut station = Station::new(end, family.is_v6());
        station.expect_labels();
        let sockets = Sockets::new(stack, family.is_v6(), station.ip);
        sim.settle();
        // The announcements of the netstack's addresses.
        station.receive(sim.now());
        Self { sim, stack, station, sockets }
    }
}

impl World for Virtual {
    type Wire = End;

    fn now(&self) -> Instant {
        self.sim.now()
    }

    fn station(&mut self) -> &mut Station<End> {
        &mut self.station
    }

    fn settle(&mut self) -> Vec<(Instant, Seen)> {
        let mut all = Vec::new();
        loop {
            self.sim.settle();
            let now = self.sim.now();
            let came = self.station.receive(now);
            let is_silent = self.station.take_silence() && came.is_empty();
            all.extend(came.into_iter().map(|seen| (now, seen)));
            if is_silent {
                return all;
            }
        }
    }

    fn run_until(&mut self, at: Instant) -> Vec<(Instant, Seen)> {
        let mut all = self.settle();
        while let Some(next) = self.sim.next_deadline().filter(|next| *next <= at) {
            self.sim.run_until(next, |_| false);
            all.extend(self.settle());
        }
        if at > self.sim.now() {
            self.sim.run_until(at, |_| false);
        }
        all
    }

    fn call(&mut self, settings: &Settings, call: &Call) -> Result<(String, Effect), String> {
        self.sockets.call(&mut self.sim, settings, call)
    }
}
