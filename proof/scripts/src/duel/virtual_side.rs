//! Our side of an exchange: a lane with one netstack, in virtual time, with the properties of profile `linux`.

use firelane_driver_memory::End;
use firelane_sim::{Sim, StackId};
use firelane_units::Instant;

use super::exchange::Exchange;
use super::player::{World, play};
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

struct Virtual {
    sim: Sim,
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
        let sockets = Sockets::new(stack, family.is_v6(), station.ip);
        sim.settle();
        // The announcements of the netstack's addresses.
        station.receive(sim.now());
        Self { sim, station, sockets }
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
