//! A stream that is not begun: its program was offered the block (`offers.rs`), or waits for text for its SYN.
//!
//! The program says in its words where to, and which options its socket has by now that it has told nobody of. Whoever finds that
//! first, the lane's worker or the hub, begins the connection. Part of `stream.rs`; owned by the stream.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use firelane_lane::{Connect, SocketCommand, StreamOption};
use firelane_shm::layout::request;
use firelane_shm::{Block, Mapping};
use firelane_socket::{StreamConfig, stream_in};
use firelane_units::LaneId;
use rustix::io::Errno;

use super::{CLOSED, DEFERS, HAS_LATER, Stream};
use crate::error::lane_failed;
use crate::fabric::{Fabric, Message};
use crate::programs::addresses::reachable;
use crate::programs::arena::ProgramArena;
use crate::programs::options::Options;
use crate::stack::Stack;

/// What is known of a stream until it is begun, and until it is known whose it is.
#[derive(Debug)]
pub(super) struct Offered {
    /// What the lane will be told; none once it was.
    connect: Option<Connect>,
    /// In which place it was offered, and the options of its socket. One that is deferred has said its own already.
    beside: Option<(usize, Arc<Options>)>,
}

impl Offered {
    /// Its program has asked for it, and waits for text.
    pub(super) fn deferred(connect: Connect) -> Self {
        Self { connect: Some(connect), beside: None }
    }
}

impl Stream {
    /// Makes one ready, offered in this place and to be in this lane, that connects when its program says where to.
    pub(in crate::programs) fn offer(
        stack: &Stack,
        arena: &ProgramArena,
        rings: StreamConfig,
        (place, lane): (usize, LaneId),
        options: &Arc<Options>,
    ) -> io::Result<Arc<Self>> {
        let (hold, slot) = stream_in(arena.rings(), rings, lane, stack.id).ok_or(Errno::NOBUFS)?;
        let stream = Self::begin(arena, hold, rings, options.beginning());
        if stack.inner.fabric.has_failed(lane) {
            // Nobody would look there whether its program begins. Who asks is told.
            arena.remove(&stream);
            return Err(lane_failed());
        }
        let nowhere = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
        let connect = Connect { remote: nowhere, local: None, stream: slot, options: options.first() };
        let beside = Some((place, Arc::clone(options)));
        *stream.offered() = Some(Box::new(Offered { connect: Some(connect), beside }));
        Ok(stream)
    }

    pub(super) fn offered(&self) -> MutexGuard<'_, Option<Box<Offered>>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its program was offered the block and says where to connect to: what the lane is told of that, once.
    pub(super) fn take_offer(&self, block: &Block, mapping: &Mapping) -> Option<Message> {
        if !block.asks_to_connect() {
            return None;
        }
        // Held until all is known: who finds it begun asks for its options.
        let mut offered = self.offered();
        let mut connect = offered.as_mut()?.connect.take()?;
        let beside = offered.take().and_then(|it| it.beside);
        let (ip, port, has_untold) = block.take_address();
        if !self.has(DEFERS) {
            connect.remote = reachable(SocketAddr::new(ip.to_canonical(), port));
        }
        if has_untold && let Some((place, mut options)) = beside {
            for option in mapping.untold(place).into_iter().flat_map(|it| it.take()) {
                let value = option.value().to_ne_bytes();
                // Both ends know that nothing refuses these.
                let _ = Arc::make_mut(&mut options).set(option.level(), option.name(), &value);
            }
            self.begins_with(&options, block, &mut connect);
            *offered = Some(Box::new(Offered { connect: None, beside: Some((place, options)) }));
        }
        drop(offered);
        Some(self.message(SocketCommand::Connect(Box::new(connect))))
    }

    /// It begins with these options in place of a new socket's. What its words have of them its program has written there itself, who may
    /// have changed it since.
    fn begins_with(&self, options: &Options, block: &Block, connect: &mut Connect) {
        connect.options = options.first();
        let [send_capacity, recv_capacity] = self.capacities().map(|it| it as usize);
        let rings = options.rings(StreamConfig { send_capacity, recv_capacity });
        self.hold.set_send_capacity(rings.send_capacity);
        connect.stream.recv.set_capacity(rings.recv_capacity);
        for (at, bytes) in [rings.send_capacity, rings.recv_capacity].into_iter().enumerate() {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.capacities[at].store(bytes, Ordering::Relaxed);
            block.capacity[at].store(bytes, Ordering::Relaxed);
        }
        let beginning = options.beginning();
        block.file.fetch_or(beginning.shown, Ordering::Relaxed);
        block.low_water[1].store(beginning.unsent.unwrap_or(0), Ordering::SeqCst);
        // A program that has taken its cork away since may have been heard by now, and says no more.
        let is_corked = block.requests.load(Ordering::Acquire) & request::CORK != 0;
        for option in beginning.later {
            if option == StreamOption::Cork(true) && !is_corked {
                continue;
            }
            self.later().put(option);
            self.state.fetch_or(HAS_LATER, Ordering::SeqCst);
        }
    }

    /// The options that it has begun with, if they are not those of a new socket; once, for whoever has the books.
    pub(in crate::programs) fn take_own_options(&self) -> Option<Arc<Options>> {
        let begun = self.offered().take_if(|it| it.connect.is_none());
        begun.and_then(|it| it.beside).map(|(_, options)| options)
    }

    /// Whether its program was offered it, and says where to connect to.
    pub(super) fn says_where(&self, block: &Block) -> bool {
        block.asks_to_connect() && !self.has(DEFERS)
    }

    /// Whether it is a connection by now. If its program has asked for one and the lane has not looked yet, it is begun.
    pub(in crate::programs) fn begin_if_asked(&self, fabric: &Fabric, arena: &ProgramArena) -> bool {
        let block = arena.mapping().block(self.number());
        if let Some(connect) = block.and_then(|block| self.take_offer(block, arena.mapping()))
            && fabric.enter_surely(self.lane(), connect).is_err()
        {
            self.lane_failed(fabric, arena);
        }
        self.is_begun()
    }

    /// Whether its program was offered it, has taken it, and it is not begun. The hub begins such ones, too.
    pub(in crate::programs) fn is_asked(&self, arena: &ProgramArena) -> bool {
        let says_where = |block| self.says_where(block);
        arena.mapping().block(self.number()).is_some_and(says_where) && !self.is_begun()
    }

    /// Whether it is a connection by now, without beginning it.
    pub(in crate::programs) fn is_begun(&self) -> bool {
        self.offered().as_ref().is_none_or(|it| it.connect.is_none())
    }

    /// Takes back what is not begun. Whether it was not.
    fn gives_up(&self) -> bool {
        self.offered().take_if(|it| it.connect.is_some()).is_some()
    }

    /// Nobody may take it any more.
    pub(in crate::programs) fn withdraw(&self, arena: &ProgramArena) {
        if self.gives_up() {
            arena.remove(self);
        }
    }

    /// Nobody has the socket any more: if it was deferred and nobody has written, there is no connection to close. Whether that was
    /// so.
    pub(super) fn drops_deferred(&self) -> bool {
        let is_deferred = self.has(DEFERS) && self.gives_up();
        if is_deferred {
            self.state.fetch_or(CLOSED, Ordering::AcqRel);
        }
        is_deferred
    }
}
