//! Two connections, a wire that loses, doubles and reorders, and two programs that do anything in any order.
//!
//! The law: what one program reads is what the other wrote, octet by octet, whatever happens; and if nobody
//! ends the connection early, all of it, once the wire is good again.

use std::collections::VecDeque;
use std::time::Duration;

use firelane_tcp::{CloseReason, Connection, Disposition, Keepalive, State};
use firelane_units::{Instant, Mss};

use super::tcp_host::{Host, Packet, Setup};
use crate::feedback::note;
use crate::input::Input;

/// The most steps of a scenario, and of its end, in which the wire is good.
const STEPS_MAX: usize = 600;
const END_STEPS_MAX: usize = 40_000;

struct World {
    hosts: [Host; 2],
    /// What is on its way to each host.
    wires: [VecDeque<Packet>; 2],
    now: Instant,
    /// Nobody did what may end the connection before all is delivered.
    graceful: bool,
}

/// How the hosts are made, and then one step after the other.
pub fn target_tcp_pair(data: &[u8]) {
    let mut input = Input::new(data);
    let both_open = input.u8() & 7 == 7;
    let mut hosts = [Host::new(Setup::of(&mut input, true)), Host::new(Setup::of(&mut input, both_open))];
    for (from, to) in [(0, 1), (1, 0)] {
        // A stream of tiny segments takes some hundreds of them, so that its end is near.
        let least = hosts[from].setup.send_ring.min(hosts[to].setup.recv_ring);
        hosts[from].write_limit = (least as u64 * 300).min(200_000);
    }
    let now = Instant::from_secs(1000);
    let mut world = World { hosts, wires: Default::default(), now, graceful: true };
    for host in 0..2 {
        if world.hosts[host].setup.opens {
            world.hosts[host].open(now);
            world.collect(host);
        }
    }
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
    }
    world.end();
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        let choice = input.u8();
        let (who, now) = (usize::from(choice >> 7), self.now);
        match choice & 0x1f {
            0..=6 => self.deliver(who, 1 + usize::from(choice >> 5 & 3)),
            7 => drop(self.wires[who].pop_front()),
            8 => self.double(who, input),
            9 => self.reorder(who, input),
            10..=12 => self.hosts[who].write(now, input.amount()),
            13..=15 => self.hosts[who].read(now, input.amount()),
            16 | 17 => self.pass(Duration::from_micros(input.amount())),
            18 => self.pass(Duration::from_millis(input.amount() >> 9)),
            19 | 20 => self.pass_to_next_timer(),
            21 => self.shutdown(who),
            22 => self.wires[who].clear(),
            23 => self.deliver(who, usize::MAX),
            24..=27 => self.set_option(who, input),
            28 => self.close(who, input),
            _ => self.deliver(0, 1),
        }
        self.collect(who);
    }

    /// What a host has said goes on the wire to the other.
    fn collect(&mut self, who: usize) {
        let said = self.hosts[who].outbox.drain(..);
        self.wires[1 - who].extend(said);
    }

    fn deliver(&mut self, to: usize, count: usize) {
        for _ in 0..count {
            let Some(packet) = self.wires[to].pop_front() else { break };
            self.hosts[to].check_allowed(&packet);
            self.hosts[to].on_packet(self.now, &packet);
            self.collect(to);
        }
    }

    fn double(&mut self, to: usize, input: &mut Input<'_>) {
        let count = self.wires[to].len();
        if count > 0 {
            let again = self.wires[to][input.below(count)].clone();
            self.wires[to].push_back(again);
        }
    }

    fn reorder(&mut self, to: usize, input: &mut Input<'_>) {
        let count = self.wires[to].len();
        if count > 1 {
            let late = self.wires[to].remove(input.below(count)).expect("it is below the length");
            self.wires[to].push_back(late);
        }
    }

    fn pass(&mut self, span: Duration) {
        self.now += span;
        for who in 0..2 {
            self.hosts[who].on_time(self.now);
            self.collect(who);
        }
    }

    fn pass_to_next_timer(&mut self) {
        let next = self.hosts.iter().filter_map(Host::poll_at).min();
        if let Some(at) = next {
            // Nothing waits for a day except what is not waited for.
            let span = at.saturating_since(self.now).min(Duration::from_secs(86_400));
            self.pass(span);
        }
    }

    fn set_option(&mut self, who: usize, input: &mut Input<'_>) {
        let (now, kind, value) = (self.now, input.below(12), input.u8());
        self.graceful &= !matches!(kind, 9 | 10);
        self.hosts[who].call(now, |connection, rings| {
            match kind {
                0 | 1 => connection.set_nodelay(value & 1 == 1),
                2 | 3 => connection.set_cork(value & 1 == 1),
                4 | 5 => connection.set_path_mss(Mss::clamped(u16::from(value) * 8)),
                6 | 7 => connection.mark_urgent(rings),
                8 => connection.shrink(now, rings),
                9 => {
                    let interval = Duration::from_millis(1 + u64::from(value) * 50);
                    let keepalive = Keepalive { idle: interval * 2, interval, probes: value % 5 };
                    connection.set_keepalive(now, (value > 20).then_some(keepalive));
                }
                10 => {
                    let timeout = Duration::from_millis(u64::from(value) * 100);
                    connection.set_user_timeout((value > 20).then_some(timeout));
                }
                _ => return connection.on_timer(now, rings),
            }
            Disposition::default()
        });
    }

    fn shutdown(&mut self, who: usize) {
        let state = self.hosts[who].connection.as_ref().map(Connection::state);
        // RFC 9293 §3.10.4: in SYN-SENT a close is the end.
        self.graceful &= state != Some(State::SynSent);
        self.hosts[who].shutdown(self.now);
    }

    /// Ends the connection early.
    fn close(&mut self, who: usize, input: &mut Input<'_>) {
        // Rare among the steps, or few scenarios would live long.
        if input.u8() & 7 != 0 || self.hosts[who].connection.is_none() {
            return;
        }
        self.graceful = false;
        let (now, aborts) = (self.now, input.flag());
        self.hosts[who].shut = true;
        self.hosts[who].call(
            now,
            |connection, rings| {
                if aborts { connection.abort(now) } else { connection.close(now, rings) }
            },
        );
    }

    /// The wire is good, both programs read everything and write no more.
    fn end(&mut self) {
        note(("graceful", self.graceful, self.hosts[0].connected, self.hosts[1].connected));
        for _ in 0..END_STEPS_MAX {
            let now = self.now;
            for who in 0..2 {
                self.hosts[who].read(now, u64::MAX);
                if self.hosts[who].connected && !self.hosts[who].shut {
                    self.hosts[who].call(now, |connection, _| {
                        connection.set_cork(false);
                        Disposition::default()
                    });
                    self.hosts[who].shutdown(now);
                }
                self.collect(who);
            }
            if self.is_over() {
                return self.judge();
            }
            if self.wires.iter().all(VecDeque::is_empty) {
                if self.hosts.iter().all(|host| host.poll_at().is_none()) {
                    return self.judge();
                }
                self.pass_to_next_timer();
            } else {
                self.pass(Duration::from_micros(50));
                self.deliver(0, usize::MAX);
                self.deliver(1, usize::MAX);
            }
        }
        panic!("it never ends: {:#?}", self.hosts);
    }

    fn is_over(&self) -> bool {
        self.wires.iter().all(VecDeque::is_empty)
            && self.hosts.iter().all(|host| host.is_done() || host.connection.is_none())
    }

    fn judge(&self) {
        let [a, b] = &self.hosts;
        for (from, to) in [(a, b), (b, a)] {
            assert!(to.received <= from.written(), "read more than was written");
        }
        if !self.graceful {
            return;
        }
        for (from, to) in [(a, b), (b, a)] {
            assert!(from.connected && to.connected, "never connected: {:#?}", self.hosts);
            assert_eq!(to.received, from.written(), "a part of the stream is missing: {:#?}", self.hosts);
            assert!(to.peer_closed, "the end of the stream was not told: {:#?}", self.hosts);
            assert!(from.is_done(), "never done: {:#?}", self.hosts);
            assert!(
                matches!(from.closed, None | Some(CloseReason::Finished)),
                "ended by {:?}: {:#?}",
                from.closed,
                self.hosts
            );
        }
    }
}
