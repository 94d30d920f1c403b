//! A datagram socket of a program: its queues lie in the program's arena, and the lane works on them there.
//!
//! Made by `socket.rs` when the program binds, connects or first sends. What the lane says goes to the program's words
//! ([`Datagrams::tell`]); the program's kicks become the lane's ([`Datagrams::obey`]). Its options are
//! `datagram_options.rs`'s. Nothing that the program can write is acted on but as a record of its own socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use firelane_filter::{FilterCounts, FilterSetup};
use firelane_lane::{
    Bind, ConnectDatagrams, DatagramInfo, DatagramKind, DatagramOption, Fault, LaneMessage, Sharing,
    SocketCommand,
};
use firelane_shm::layout::{file, margin, request, status};
use firelane_shm::{Block, Holder, Origin, is_roomy};
use firelane_socket::{ArenaDatagrams, DatagramSlot, Flags, Ready, datagram_in};
use firelane_units::{LaneId, LinkId, NetstackId, Port, SocketId};
use rustix::io::Errno;

use super::Place;
use super::arena::ProgramArena;
use super::datagram_options::Setting;
use super::faults::{self, Faults};
use super::joining;
use super::memberships::Member;
use super::signals::{self, Seen};
use crate::error::{io_error, lane_failed, number_of};
use crate::fabric::{Fabric, Message};
use crate::socket_filter;
use crate::stack::Stack;
use crate::udp_socket::at_drawn_port;

/// Where the flags of the lane's words lie in [`status`].
const FLAGS_SHIFT: u32 = 16;
/// In the margin's word that says whether names are there: they are, and the peer's is one of them.
const BOUND: u64 = 1;
const HAS_PEER: u64 = 2;

/// A program's datagram socket.
#[derive(Debug)]
pub(crate) struct Datagrams {
    hold: ArenaDatagrams,
    socket: SocketId,
    /// What the program has been told for good ([`status`]).
    told: AtomicU64,
    /// What had been sent when the program was last told of room.
    told_room: AtomicU64,
    is_closed: AtomicBool,
    /// It is or was a member of a group.
    has_joined: AtomicBool,
    names: Mutex<[Option<SocketAddr>; 2]>,
    faults: Mutex<Faults>,
}

/// What a socket is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) local: SocketAddr,
    pub(super) v6_only: bool,
    /// Whether the address need not be the netstack's (IP_FREEBIND).
    pub(super) is_free: bool,
    /// The only link that it speaks over.
    pub(super) link: Option<LinkId>,
    /// Over which protocol.
    pub(super) kind: DatagramKind,
    /// Which others may be bound to the same.
    pub(super) sharing: Sharing,
    /// The most bytes of records that wait to be sent, and to be received.
    pub(super) queues: [usize; 2],
    /// Which datagrams it gets, from the first on.
    pub(super) filter: Option<&'a Arc<FilterSetup>>,
}

impl Datagrams {
    /// Binds a socket; port zero draws a free one.
    pub(super) fn bind(stack: &Stack, arena: &ProgramArena, wanted: Wanted<'_>) -> io::Result<Arc<Self>> {
        let ports = {
            let mut registry = stack.inner.registry_of_now();
            let netstack = registry.netstack_mut(stack.id())?;
            if !wanted.is_free && !netstack.may_bind(wanted.local.ip()) {
                return Err(Errno::ADDRNOTAVAIL.into());
            }
            netstack.config.udp_ports.clone()
        };
        // Identifiers of echoes are drawn in the lane.
        if wanted.local.port() != 0 || wanted.kind == DatagramKind::Echo {
            return Self::bind_at(stack, arena, wanted);
        }
        at_drawn_port(&stack.inner.fabric.chance, &ports, |port| {
            let at = Wanted { local: SocketAddr::new(wanted.local.ip(), port), ..wanted };
            Self::bind_at(stack, arena, at)
        })
    }

    fn bind_at(stack: &Stack, arena: &ProgramArena, wanted: Wanted<'_>) -> io::Result<Arc<Self>> {
        let engine = &stack.inner;
        let (lane, _placing) =
            engine.lane_of_datagrams(stack.id(), wanted.kind, Port(wanted.local.port()))?;
        let [out, into] = wanted.queues;
        let (hold, slot) = datagram_in(arena.rings(), (out, into), lane, stack.id()).ok_or(Errno::NOBUFS)?;
        let made = Arc::new(Self {
            hold,
            socket: engine.mint_socket(),
            told: AtomicU64::new(0),
            told_room: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            has_joined: AtomicBool::new(false),
            names: Mutex::new([None; 2]),
            faults: Mutex::default(),
        });
        let done = made.enter_lane(engine.fabric.as_ref(), arena, wanted, slot);
        match done {
            Ok(()) => Ok(made),
            Err(error) => {
                if wanted.filter.is_some() {
                    // The lane has it already, for a socket that it does not get.
                    let _ = made.follow(engine.fabric.as_ref(), &Arc::default());
                }
                arena.datagrams.remove(made.number());
                Err(error)
            }
        }
    }

    /// Gives it other rules; none are no filter.
    pub(super) fn follow(&self, fabric: &Fabric, filter: &Arc<FilterSetup>) -> io::Result<()> {
        self.change(fabric, SocketCommand::Filter(self.socket, Arc::clone(filter)))
    }

    /// What its filter has counted.
    pub(super) fn filter_counts(&self, stack: &Stack) -> FilterCounts {
        socket_filter::counts(&stack.inner, (self.netstack(), self.socket), &[self.lane()])
    }

    /// Shows the program where its socket is, and lets the lane have it.
    fn enter_lane(
        self: &Arc<Self>,
        fabric: &Fabric,
        arena: &ProgramArena,
        wanted: Wanted<'_>,
        slot: DatagramSlot,
    ) -> io::Result<()> {
        let number = self.number();
        let block = arena.mapping().block(number).ok_or(Errno::NOBUFS)?;
        for (word, capacity) in block.capacity.iter().zip(wanted.queues) {
            word.store(u32::try_from(capacity).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
        self.show_names(block);
        // What is told finds the socket in its place.
        arena.datagrams.insert(number, Arc::clone(self));
        let words = self.hold.shared().words();
        words.set_token(Place { arena: arena.place, block: number }.token());
        words.watch(Ready::ALL);
        let Wanted { local, v6_only, kind, sharing, filter, link, .. } = wanted;
        if let Some(filter) = filter {
            self.follow(fabric, filter)?;
        }
        let bind = Bind { socket: self.socket, local, v6_only, sharing, remote: None, kind, link, slot };
        self.command(fabric, SocketCommand::Bind(Box::new(bind)))?;
        loop {
            if let Some(local) = self.hold.shared().local() {
                self.set_names(block, Some(local), None);
                self.tell(arena, Ready::ALL);
                return Ok(());
            }
            if words.flags().contains(Flags::CLOSED) {
                // The error may be in the program's words already, or on its way there.
                let told = block.rings.margin[margin::STATUS].load(Ordering::Acquire) >> status::ERROR_SHIFT;
                let told = (told != 0).then(|| io::Error::from_raw_os_error(told as i32));
                if let Some(error) = words.take_error().map(io_error).or(told) {
                    return Err(error);
                }
            }
            // Who has dropped the command has no such netstack any more.
            if Arc::strong_count(self.hold.shared()) == 1 && self.hold.shared().local().is_none() {
                return Err(Errno::NETDOWN.into());
            }
            if fabric.squeue(self.lane()).is_poisoned() {
                return Err(lane_failed());
            }
            fabric.give_way(self.lane());
        }
    }

    /// Another peer, or none, and the only link that it speaks over from then on.
    pub(super) fn connect(
        &self,
        fabric: &Fabric,
        arena: &ProgramArena,
        remote: Option<SocketAddr>,
        link: Option<LinkId>,
    ) -> io::Result<()> {
        let outcome = Arc::new(OnceLock::new());
        let connect = ConnectDatagrams { socket: self.socket, remote, link, outcome: Arc::clone(&outcome) };
        self.command(fabric, SocketCommand::ConnectDatagrams(Box::new(connect)))?;
        let local = loop {
            if let Some(outcome) = outcome.get() {
                break outcome.map_err(io_error)?;
            }
            // Who has dropped the command has no such netstack any more.
            if Arc::strong_count(&outcome) == 1 && outcome.get().is_none() {
                return Err(Errno::NETDOWN.into());
            }
            if fabric.squeue(self.lane()).is_poisoned() {
                return Err(lane_failed());
            }
            fabric.give_way(self.lane());
        };
        let block = arena.mapping().block(self.number()).ok_or(Errno::NOBUFS)?;
        self.set_names(block, Some(local), remote);
        Ok(())
    }

    fn set_names(&self, block: &Block, local: Option<SocketAddr>, remote: Option<SocketAddr>) {
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = [local, remote];
        self.show_names(block);
    }

    /// Its own address and its peer's.
    pub(super) fn names(&self) -> [Option<SocketAddr>; 2] {
        *self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows the program its names, and which lane to kick.
    fn show_names(&self, block: &Block) {
        let [local, remote] = self.names();
        let words = &block.rings.margin;
        let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        for (at, end) in [(margin::LOCAL, local), (margin::REMOTE, remote)] {
            let bits = match end.unwrap_or(nobody).ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
                IpAddr::V6(ip) => ip.to_bits(),
            };
            words[at].store((bits >> 64) as u64, Ordering::Relaxed);
            words[at + 1].store(bits as u64, Ordering::Relaxed);
        }
        let port = |end: Option<SocketAddr>| u64::from(end.map_or(0, |end| end.port()));
        let (lane, netstack) = (u64::from(self.lane().0), u64::from(self.netstack().0));
        let place = lane | netstack << 16 | port(local) << 32 | port(remote) << 48;
        words[margin::PLACE].store(place, Ordering::Relaxed);
        let peer = if remote.is_some() { HAS_PEER } else { 0 };
        words[margin::BOUND].store(local.map_or(0, |_| BOUND | peer), Ordering::Release);
    }

    /// Its block.
    pub(super) fn number(&self) -> u32 {
        self.hold.block()
    }

    pub(super) fn lane(&self) -> LaneId {
        self.hold.shared().lane()
    }

    fn netstack(&self) -> NetstackId {
        self.hold.shared().netstack()
    }

    /// Bytes of payload that were sent, and that have come.
    pub(super) fn carried(&self) -> [u64; 2] {
        self.hold.carried()
    }

    /// What its lane knows of its way out.
    pub(super) fn info(&self, fabric: &Fabric) -> Option<DatagramInfo> {
        fabric.datagram_info(self.lane(), self.netstack(), self.socket)
    }

    fn command(&self, fabric: &Fabric, command: SocketCommand) -> io::Result<()> {
        fabric
            .enter_surely(self.lane(), LaneMessage::Socket(self.netstack(), command))
            .map_err(|_| lane_failed())
    }

    /// A command that is in force for what comes after this has returned.
    fn change(&self, fabric: &Fabric, command: SocketCommand) -> io::Result<()> {
        let change = LaneMessage::Socket(self.netstack(), command);
        fabric.change(self.lane(), change).map_err(|_| lane_failed())
    }

    /// The lane has news of the socket: what the program sees is brought up to date, and who sleeps for it is woken. Whether somebody was.
    pub(super) fn tell(&self, arena: &ProgramArena, ready: Ready) -> bool {
        self.tell_or(arena, ready, 0)
    }

    /// The same, with the number of an error that counts if the lane has told none.
    fn tell_or(&self, arena: &ProgramArena, ready: Ready, failure: u64) -> bool {
        let Some(block) = arena.mapping().block(self.number()) else { return false };
        let words = self.hold.shared().words();
        let flags = u64::from(words.flags().bits()) << FLAGS_SHIFT | status::DATAGRAMS;
        let error = match self.take_error() {
            0 => failure,
            error => error,
        };
        let is_new = flags & !self.told.load(Ordering::Relaxed) != 0;
        let mut has_woken = if is_new || error != 0 {
            self.told.fetch_or(flags, Ordering::Relaxed);
            block.tell(flags | error << status::ERROR_SHIFT)
        } else if self.has_moved(ready) {
            block.wake()
        } else {
            return false;
        };
        has_woken |= arena.tell_waiters(self.number(), block);
        let look = || (self.seen(), self.has_room_again(block));
        arena.signals.tell(self.number(), error != 0, look);
        has_woken
    }

    /// Its lane is out of service: who waits for it is told, and nothing more happens.
    pub(super) fn lane_failed(&self, arena: &ProgramArena) {
        let words = self.hold.shared().words();
        if !self.is_closed.load(Ordering::Acquire) && !words.flags().contains(Flags::CLOSED) {
            words.set_flags(Flags::CLOSED);
            self.tell_or(arena, Ready::ALL, number_of(&lane_failed()));
        }
    }

    /// How far it has come, of what its program may be signalled for.
    pub(super) fn seen(&self) -> Seen {
        let [_, received] = self.hold.passed();
        Seen { received, mark: 0 }
    }

    /// The number of an error that the lane has noted.
    fn take_error(&self) -> u64 {
        self.hold.shared().words().take_error().map_or(0, |error| number_of(&io_error(error)))
    }

    /// A datagram did not arrive, and the program is to be told.
    pub(super) fn fault(&self, arena: &ProgramArena, fault: &Fault) {
        let Some(block) = arena.mapping().block(self.number()) else { return };
        let Some(told) = faults::told(fault) else { return };
        // What is too long for its way is noted already. It is told together with the fault: who takes that takes its number, too.
        let errno = match told.origin {
            Origin::Local => self.take_error(),
            _ => u64::from(told.errno.unsigned_abs()),
        };
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let there = if faults.add(told) { status::FAULTS } else { 0 };
        block.tell(there | errno << status::ERROR_SHIFT);
        drop(faults);
        arena.tell_waiters(self.number(), block);
        arena.signals.tell(self.number(), true, || (self.seen(), false));
    }

    /// The fault that has waited longest.
    pub(super) fn take_fault(&self, arena: &ProgramArena) -> Option<firelane_shm::Fault> {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let (fault, next) = faults.take()?;
        if let Some(block) = arena.mapping().block(self.number()) {
            block.took_fault(next);
        }
        Some(fault)
    }

    /// How many faults had no room.
    pub(super) fn lost_faults(&self) -> u64 {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).lost()
    }

    /// Whether there is room which its program has not found; it is signalled once.
    fn has_room_again(&self, block: &Block) -> bool {
        let [sent, _] = self.hold.passed();
        let [queued, limit] = self.hold.queued_behind(sent);
        is_roomy(limit.saturating_sub(queued), queued) && signals::ends_refusal(block)
    }

    /// Whether there may be somebody to wake: a datagram came, or there is room where there was none.
    fn has_moved(&self, ready: Ready) -> bool {
        let [sent, _] = self.hold.passed();
        let before = self.told_room.swap(sent, Ordering::Relaxed);
        let is_roomy_behind = |cursor| {
            let [queued, limit] = self.hold.queued_behind(cursor);
            is_roomy(limit.saturating_sub(queued), queued)
        };
        ready != Ready::WRITABLE || (!is_roomy_behind(before) && is_roomy_behind(sent))
    }

    /// The program has kicked: the lane looks at what it sends.
    pub(super) fn obey(&self, arena: &ProgramArena, block: &Block, mut give: impl FnMut(Message)) {
        if block.asks_to_shut() {
            block.requests.fetch_and(!request::SHUTS, Ordering::AcqRel);
            block.wake();
            arena.tell_waiters(self.number(), block);
        }
        if block.requests.load(Ordering::Acquire) & request::WANTS_STORAGE != 0 {
            block.requests.fetch_and(!request::WANTS_STORAGE, Ordering::AcqRel);
        }
        give(LaneMessage::KickDatagrams { netstack: self.netstack(), socket: self.socket });
    }

    /// Changes something.
    pub(super) fn set(&self, stack: &Stack, arena: &ProgramArena, setting: &Setting) -> io::Result<()> {
        let fabric = &stack.inner.fabric;
        match setting {
            Setting::Lane(option) => {
                self.change(fabric, SocketCommand::SetDatagramOption(self.socket, *option))?;
                if let (DatagramOption::ReceiveQueue(bytes), Some(block)) =
                    (*option, arena.mapping().block(self.number()))
                {
                    block.capacity[1].store(u32::try_from(bytes).unwrap_or(u32::MAX), Ordering::Relaxed);
                }
            }
            Setting::SendQueue(bytes) => {
                self.hold.set_send_capacity(*bytes);
                if let Some(block) = arena.mapping().block(self.number()) {
                    block.capacity[0].store(u32::try_from(*bytes).unwrap_or(u32::MAX), Ordering::Relaxed);
                }
            }
            Setting::Faults { bits, are_dropped } => {
                let [v4, v6] = [file::ERRORS_V4, file::ERRORS_V6].map(|bit| bits & bit != 0);
                let option = DatagramOption::Faults { v4, v6 };
                self.change(fabric, SocketCommand::SetDatagramOption(self.socket, option))?;
                let block = arena.mapping().block(self.number());
                // Who is told of a refusal waits for it a moment.
                block.inspect(|block| show_bits(block, *bits));
                if *are_dropped {
                    self.faults.lock().unwrap_or_else(PoisonError::into_inner).clear();
                    block.inspect(|block| block.dropped_faults());
                }
            }
            Setting::Member(member) => self.join(stack, member)?,
            Setting::Program(bits) => {
                if let Some(block) = arena.mapping().block(self.number()) {
                    show_bits(block, *bits);
                }
            }
            Setting::Nothing => {}
        }
        Ok(())
    }

    fn join(&self, stack: &Stack, member: &Member) -> io::Result<()> {
        self.has_joined.store(true, Ordering::Relaxed);
        joining::set(stack, self.socket, member)
    }

    /// The last descriptor is gone: what was queued goes first.
    pub(super) fn close(&self, fabric: &Fabric) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.hold.shared().words().watch(Ready::NONE);
        if self.has_joined.load(Ordering::Relaxed) {
            joining::leave(fabric, self.netstack(), self.socket);
        }
        // A lane that has failed has no sockets left to close.
        let _ = self.command(fabric, SocketCommand::CloseDatagrams(self.socket));
    }

    /// Whether a thread of a living session may be inside, so that the block must not be anybody else's yet.
    pub(super) fn is_entered(&self, arena: &ProgramArena, lives: impl Fn(u32) -> bool) -> bool {
        let Some(block) = arena.mapping().block(self.number()) else { return false };
        [&block.send_owner, &block.recv_owner].into_iter().any(|word| {
            Holder::of_word(word.load(Ordering::Acquire)).is_some_and(|holder| lives(holder.session()))
        })
    }
}

/// Sets the program's bits of the word `file`, and leaves those that it sets itself.
fn show_bits(block: &Block, bits: u64) {
    let kept = file::OWN;
    let change = |word: u64| Some(word & kept | bits & !kept);
    let _ = block.file.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change);
}

/// The datagram sockets of an arena, by their blocks.
#[derive(Debug, Default)]
pub(super) struct DatagramTable(std::sync::RwLock<Vec<Option<Arc<Datagrams>>>>);

impl DatagramTable {
    fn insert(&self, block: u32, socket: Arc<Datagrams>) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let place = block as usize;
        if table.len() <= place {
            table.resize(place + 1, None);
        }
        table[place] = Some(socket);
    }

    /// A socket has ended. The block is free when its hold is dropped, so nobody else's can be there.
    pub(super) fn remove(&self, block: u32) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let gone = table.get_mut(block as usize).and_then(Option::take);
        drop((table, gone));
    }

    /// Does something with the socket of a block, if there is one.
    pub(super) fn with(&self, block: u32, act: impl FnOnce(&Datagrams)) {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(Some(socket)) = table.get(block as usize) {
            act(socket);
        }
    }

    /// Does something with each.
    pub(super) fn each(&self, act: impl FnMut(&Arc<Datagrams>)) {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.iter().flatten().for_each(act);
    }
}
