//! One netstack's routing daemon: its connection's bytes in, changes of routes out, and what happens when it goes away.
//!
//! Called by the daemon's thread for it. A session that ends leaves its routes for a grace time. They go when that is over, or when
//! a new session has told all that it has to tell: FPM has no mark for that, so it is a silence after its first route.

use core::time::Duration;
use std::collections::{HashMap, VecDeque};

use firelane_units::{Instant, IpPrefix, LinkId};

use crate::counts::{Counts, Refusal};
use crate::frames::{Broken, Frame, Frames};
use crate::message::{self, Message, Object};
use crate::table::{Sink, Table, Whence};

/// Ends of sessions that are remembered. Of a daemon that comes and goes faster, the second oldest is forgotten and its routes go
/// with those of the session after it: at the latest when the grace time has passed twice.
const LOST_MAX: usize = 16;

/// What an operator says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// How long routes stay after the session that told them.
    pub grace: Duration,
    /// The silence after which a new session has told everything.
    pub settle: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Session {
    /// When something came last.
    heard: Instant,
    /// Whether it has told a route.
    has_routes: bool,
}

/// A daemon's routes and its connection.
#[derive(Debug)]
pub struct Feed {
    config: Config,
    frames: Frames,
    table: Table,
    counts: Counts,
    session: Option<Session>,
    number: u32,
    /// Sessions that are over and whose routes may be there, with the time when they ended.
    lost: VecDeque<(u32, Instant)>,
}

impl Feed {
    /// Nothing is known.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            frames: Frames::default(),
            table: Table::default(),
            counts: Counts::default(),
            session: None,
            number: 0,
            lost: VecDeque::new(),
        }
    }

    /// The operator says something else.
    pub const fn set_config(&mut self, config: Config) {
        self.config = config;
    }

    /// The daemon's numbers of interfaces mean these links from here on.
    pub fn set_links(&mut self, links: HashMap<u32, LinkId>, sink: &mut Sink<'_>) {
        self.table.set_links(links, &mut self.counts, sink);
    }

    /// A daemon has connected. It takes the place of one that was there.
    pub fn connected(&mut self, now: Instant) {
        self.disconnected(now);
        self.number = self.table.begin_session();
        self.counts.sessions += 1;
        self.session = Some(Session { heard: now, has_routes: false });
    }

    /// The connection is over.
    pub fn disconnected(&mut self, now: Instant) {
        if self.session.take().is_none() {
            return;
        }
        self.frames.clear();
        self.table.keep_all();
        if self.lost.len() == LOST_MAX {
            self.lost.remove(1);
        }
        self.lost.push_back((self.number, now));
    }

    /// More of the stream has come. Frames before a broken one are followed.
    ///
    /// # Errors
    /// Nothing behind this can be read: the connection is to be closed.
    pub fn received(&mut self, now: Instant, bytes: &[u8], sink: &mut Sink<'_>) -> Result<(), Broken> {
        let Some(session) = &mut self.session else { return Ok(()) };
        session.heard = now;
        self.counts.bytes += bytes.len() as u64;
        self.frames.push(bytes);
        loop {
            let counts = &mut self.counts;
            let frame = match self.frames.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(broken) => {
                    counts.refuse(match broken {
                        Broken::Version(_) => Refusal::Version,
                        Broken::Length(_) => Refusal::FrameLength,
                    });
                    return Err(broken);
                }
            };
            let Frame::Netlink(inside) = frame else {
                counts.refuse(Refusal::NotNetlink);
                continue;
            };
            let table = &mut self.table;
            message::each(inside, |message| {
                counts.messages += 1;
                let is_route = matches!(message, Ok(Message::Route(..)));
                match message.and_then(|message| follow(table, message)) {
                    Ok(()) => session.has_routes |= is_route,
                    Err(why) => counts.refuse(why),
                }
            });
            self.table.settle(&mut self.counts, sink);
        }
    }

    /// When [`Feed::on_time`] has something to do, if nothing happens before.
    pub fn deadline(&self) -> Option<Instant> {
        let (_, ended) = self.lost.front()?;
        let over = after(*ended, self.config.grace);
        let told = self.session.filter(|it| it.has_routes).map(|it| after(it.heard, self.config.settle));
        Some(told.map_or(over, |told| over.min(told)))
    }

    /// Time has passed: removes the routes whose time is over.
    pub fn on_time(&mut self, now: Instant, sink: &mut Sink<'_>) {
        let has_told =
            self.session.is_some_and(|it| it.has_routes && now >= after(it.heard, self.config.settle));
        let mut last = None;
        while let Some(&(number, ended)) = self.lost.front()
            && (has_told || now >= after(ended, self.config.grace))
        {
            self.lost.pop_front();
            last = Some(number);
        }
        if let Some(number) = last {
            self.counts.swept += self.table.sweep(number, &mut self.counts, sink) as u64;
        }
    }

    /// The netstack shall have nothing of it any more.
    pub fn clear(&mut self, now: Instant, sink: &mut Sink<'_>) {
        self.disconnected(now);
        self.lost.clear();
        self.table.sweep(self.number, &mut self.counts, sink);
    }

    /// Whether a daemon is connected.
    pub const fn is_connected(&self) -> bool {
        self.session.is_some()
    }

    /// What was counted, and what is there.
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts;
        self.table.count(self.session.is_some(), &mut counts);
        counts
    }

    /// Where the route to `destination` comes from.
    pub fn whence(&self, destination: IpPrefix) -> Option<Whence> {
        self.table.whence(destination)
    }
}

fn after(begin: Instant, time: Duration) -> Instant {
    begin.plus_nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn follow(table: &mut Table, message: Message) -> Result<(), Refusal> {
    match message {
        Message::Route(destination, target, whence) => table.put(destination, target, whence),
        Message::RouteGone(destination) => {
            table.remove(destination);
            Ok(())
        }
        Message::RouteRefused(destination, why) => {
            table.remove(destination);
            Err(why)
        }
        Message::Object(id, object) => table.put_object(id, object),
        Message::ObjectGone(id) => {
            table.remove_object(id);
            Ok(())
        }
        Message::ObjectRefused(id, why) => {
            table.put_object(id, Object::Refused)?;
            Err(why)
        }
    }
}
