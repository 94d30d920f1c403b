//! Questions to lanes, and whoever waits for their answers.
//!
//! A question is an item of a lane's squeue. If nobody is inside, the asker answers it himself on the spot; otherwise
//! the lane answers between its other items and gives it back through its outlet, which finds the asker here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firelane_ip::{Address, Neighbour, Route};
use firelane_lane::{Cursor, LaneMessage, Look, Question, SocketRow};
use firelane_units::{LaneId, Mtu, NetstackId};

use crate::engine::Engine;
use crate::error::ChangeError;
use crate::fabric::{Fabric, Message};

/// How often a waiting asker looks whether the lane still works.
const LOOK: Duration = Duration::from_millis(100);

/// The askers that wait, by ticket.
#[derive(Debug)]
pub(crate) struct Desk<Q>(Mutex<Waiting<Q>>);

#[derive(Debug)]
struct Waiting<Q> {
    next: u64,
    askers: HashMap<u64, Sender<Q>>,
}

impl<Q> Default for Desk<Q> {
    fn default() -> Self {
        Self(Mutex::new(Waiting { next: 0, askers: HashMap::new() }))
    }
}

impl<Q> Desk<Q> {
    fn waiting(&self) -> MutexGuard<'_, Waiting<Q>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_ticket(&self) -> (u64, Receiver<Q>) {
        let (sender, receiver) = channel();
        let mut waiting = self.waiting();
        waiting.next += 1;
        let ticket = waiting.next;
        waiting.askers.insert(ticket, sender);
        (ticket, receiver)
    }

    /// Gives an answer to whoever asked.
    pub(crate) fn hand_back(&self, ticket: u64, question: Q) {
        if let Some(asker) = self.waiting().askers.get(&ticket) {
            // He may have given up.
            let _ = asker.send(question);
        }
    }
}

/// A place among all lanes' sockets, at which [`Engine::sockets`] goes on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct SocketCursor {
    /// Which lane.
    pub lane: u16,
    /// Where in the lane.
    pub place: Cursor,
}

/// Some of an engine's sockets.
#[derive(Clone, Debug, Default)]
pub struct SocketPage {
    /// What was found.
    pub rows: Vec<SocketRow>,
    /// Where the next page begins; none if this was the last.
    pub next: Option<SocketCursor>,
}

impl Engine {
    /// The sockets from `from` on, of one netstack or of all, at least `wanted` of them if there are as many. No lane
    /// stops: each looks at [`firelane_lane::PLACES_PER_ANSWER`] places at a time, between its other items. What begins or ends in the
    /// meantime may be on the pages or not.
    ///
    /// # Errors
    /// A lane is out of service.
    pub fn sockets(
        &self,
        netstack: Option<NetstackId>,
        from: SocketCursor,
        wanted: usize,
    ) -> Result<SocketPage, ChangeError> {
        let fabric = &self.0.fabric;
        let (ticket, answers) = fabric.desk.take_ticket();
        let mut page = SocketPage { rows: Vec::new(), next: Some(from) };
        let mut outcome = Ok(());
        while let Some(SocketCursor { lane, place }) = page.next
            && page.rows.len() < wanted
        {
            if usize::from(lane) >= fabric.lane_ids().count() {
                page.next = None;
                break;
            }
            let question = Question::new(ticket, netstack, place);
            let answer = ask(fabric, LaneId(lane), LaneMessage::Ask(Box::new(question)), &answers);
            let cursor = match answer {
                Ok(mut answer) => {
                    page.rows.append(&mut answer.rows);
                    answer.cursor
                }
                // Nothing is there any more that could be shown.
                Err(_) if fabric.has_failed(LaneId(lane)) => None,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            };
            page.next = Some(match cursor {
                Some(place) => SocketCursor { lane, place },
                None => SocketCursor { lane: lane.saturating_add(1), place: Cursor::default() },
            });
        }
        fabric.desk.waiting().askers.remove(&ticket);
        outcome.map(|()| page)
    }
}

/// Puts a question to `lane` and waits for it to come back.
fn ask<Q>(fabric: &Fabric, lane: LaneId, question: Message, answers: &Receiver<Q>) -> Result<Q, ChangeError> {
    fabric.enter_surely(lane, question)?;
    loop {
        // The lane's own thread gives it the turn that answers, and nobody else may.
        let limit = if fabric.is_worker_of(lane) { Duration::ZERO } else { LOOK };
        match answers.recv_timeout(limit) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) if !fabric.squeue(lane).is_poisoned() => fabric.give_way(lane),
            // It may have answered before it failed; who asks the next lane is not to get that.
            Err(_) => return answers.try_recv().map_err(|_| ChangeError::LaneFailed),
        }
    }
}

/// What a netstack's lanes know of the way to others.
#[derive(Clone, Debug, Default)]
pub struct IpTables {
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// Its routes, in no order.
    pub routes: Vec<Route>,
    /// Its neighbours, in no order.
    pub neighbours: Vec<Neighbour>,
    /// Destinations whose paths carry less than their link, in no order.
    pub paths: Vec<KnownPath>,
}

/// A destination whose path carries less than its link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownPath {
    /// Where to.
    pub dst: IpAddr,
    /// What the path carries.
    pub mtu: Mtu,
    /// For how long that is known.
    pub age: Duration,
}

impl Engine {
    /// A netstack's addresses, routes, neighbours and narrow paths, read from its home lane a few hundred at a time.
    ///
    /// # Errors
    /// It does not exist, or its lane is out of service.
    pub fn ip_tables(&self, netstack: NetstackId) -> Result<IpTables, ChangeError> {
        let home = self.0.registry().netstack_mut(netstack)?.steering.home();
        let fabric = &self.0.fabric;
        let (ticket, answers) = fabric.looks.take_ticket();
        let (mut tables, mut told) = (IpTables::default(), Some(0));
        let mut outcome = Ok(());
        while let Some(begin) = told.take() {
            let look = LaneMessage::Look(Box::new(Look::new(ticket, netstack, begin)));
            match ask(fabric, home, look, &answers) {
                Ok(mut look) => {
                    tables.addresses.append(&mut look.addresses);
                    tables.routes.append(&mut look.routes);
                    tables.neighbours.append(&mut look.neighbours);
                    let now = fabric.now();
                    tables.paths.extend(look.paths.iter().map(|it| KnownPath {
                        dst: it.dst,
                        mtu: it.mtu,
                        age: now.saturating_since(it.since),
                    }));
                    told = (!look.is_done).then_some(look.told);
                }
                Err(error) => outcome = Err(error),
            }
        }
        fabric.looks.waiting().askers.remove(&ticket);
        outcome.map(|()| tables)
    }
}
