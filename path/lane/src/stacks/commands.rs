//! Commands of sockets: listen, shutdown, close, abort, options, and the kicks that say "look at the rings".

use firelane_classify::LocalAddr;
use firelane_frame::Packed;
use firelane_ip::{JoinError, LOOPBACK, Member};
use firelane_socket::{ConnRef, LeftStream, Ready, SocketError};
use firelane_tcp::{Disposition, Events, State};
use firelane_units::{ConnId, SocketId};

use super::brought::Brought;
use super::conn::{Leaving, Program};
use super::inbound::Inside;
use super::local_ports::Beginning;
use super::open::port;
use super::shard::Listening;
use super::{Stacks, datagrams, open};
use crate::common::Common;
use crate::fusion::Fusion;
use crate::message::{Join, Listen, Relisten, SocketCommand, StreamOption};

/// The largest differentiated services code point: the field has six bits (RFC 2474 §3).
const DSCP_MAX: u8 = 63;

/// A command for a netstack that was removed while it was on its way: who waits for what comes of it is told.
#[cold]
pub(super) fn fail<D>(common: &mut Common<D>, command: SocketCommand) {
    match command {
        SocketCommand::Connect(connect) | SocketCommand::ConnectElsewhere(connect, _) => {
            open::fail(common, &connect.stream, SocketError::Aborted)
        }
        SocketCommand::Bind(bind) => {
            let token = datagrams::fail(&bind.slot, SocketError::Aborted);
            common.outbox.tell(token, Ready::ALL);
        }
        SocketCommand::Listen(listen) => common.outbox.tell(listen.slot.end(), Ready::ALL),
        _ => {}
    }
}

impl<D> Inside<'_, D> {
    pub(crate) fn on_command(&mut self, command: SocketCommand) {
        match command {
            SocketCommand::Connect(connect) => self.open_active(Beginning { connect, first: None }),
            SocketCommand::ConnectElsewhere(connect, first) => self.open_from_elsewhere(connect, first),
            SocketCommand::Listen(listen) => self.listen(*listen),
            SocketCommand::Unlisten(socket) => self.unlisten(socket),
            SocketCommand::Relisten(socket, started) => self.relisten(socket, *started),
            SocketCommand::Filter(socket, setup) => self.set_socket_filter(socket, &setup),
            SocketCommand::Shutdown(conn) => self.command(conn, |inside, id| {
                let now = inside.common.now;
                // A FIN goes in a segment.
                inside.part(id);
                let (tcp, rings) = inside.conns.slab.get_mut(id)?.parts();
                let told = tcp.shutdown_send(now, &rings);
                inside.part_from_nobody(id);
                Some(told)
            }),
            SocketCommand::ShutdownRead(conn) => self.command(conn, |inside, id| {
                inside.conns.slab.get_mut(id)?.tcp().shutdown_receive();
                inside.part_from_nobody(id);
                Some(Disposition::default())
            }),
            SocketCommand::Urgent(conn, end) => self.command(conn, |inside, id| {
                let conn = inside.conns.slab.get_mut(id)?;
                let end = end.min(conn.stream.writable_to());
                conn.tcp().mark_urgent_to(end);
                inside.mark_fused(id, end);
                Some(Disposition::default())
            }),
            SocketCommand::Close(conn) => self.close_named(conn),
            SocketCommand::CloseUnmade(stream) => self.close_unmade(&stream),
            SocketCommand::Abort(conn) => self.command(conn, Self::abort_behind_end),
            SocketCommand::Borrow { conn, lacks, carried } => self.conns.borrow(conn, [lacks, carried]),
            SocketCommand::SetOption(conn, option) => {
                self.command(conn, |inside, id| inside.set_stream_option(id, option));
            }
            SocketCommand::Bind(bind) => self.bind(*bind),
            SocketCommand::ConnectDatagrams(connect) => self.connect_datagrams(&connect),
            SocketCommand::CloseDatagrams(socket) => self.close_datagrams(socket),
            SocketCommand::SetDatagramOption(socket, option) => self.set_datagram_option(socket, option),
            SocketCommand::Join(join) => self.join(*join),
            SocketCommand::LeaveGroups(socket) => self.leave_groups(socket),
        }
    }

    fn set_stream_option(&mut self, id: ConnId, option: StreamOption) -> Option<Disposition> {
        let now = self.common.now;
        let conn = self.conns.slab.get_mut(id)?;
        match option {
            StreamOption::Tuning(tuning) => conn.tcp().set_tuning(tuning),
            StreamOption::SendBuffer(bytes) => {
                conn.stream.send.resize(bytes);
                let token = conn.stream.tell(Ready::WRITABLE);
                self.common.outbox.tell(token, Ready::WRITABLE);
            }
            StreamOption::ReceiveBuffer(bytes) => {
                let (tcp, rings) = conn.parts();
                tcp.set_receive_buffer(bytes, rings.recv);
            }
            StreamOption::Nodelay(on) => conn.tcp().set_nodelay(on),
            StreamOption::Cork(on) => conn.tcp().set_cork(on),
            StreamOption::QuickAck(on) => conn.tcp().set_quickack(on),
            StreamOption::Keepalive(keepalive) => conn.tcp().set_keepalive(now, keepalive),
            StreamOption::UserTimeout(timeout) => {
                conn.tcp().set_user_timeout(timeout);
                self.reconsider_segments(id);
            }
            StreamOption::Signalled(is_signalled) => {
                conn.program = if is_signalled { Program::Signalled } else { Program::Asks };
                self.reconsider_segments(id);
            }
            StreamOption::Congestion(algorithm) => conn.tcp().set_algorithm(now, algorithm),
            StreamOption::PacingLimit(limit) => conn.tcp().set_pacing_limit(now, limit),
            StreamOption::SynRetries(most) => conn.tcp().set_syn_retries(most),
            StreamOption::FinWait2(timeout) => conn.tcp().set_fin_wait_2(timeout),
            StreamOption::WindowClamp(clamp) => conn.tcp().set_window_clamp(clamp),
            StreamOption::HearsErrors(hears) => conn.tcp().set_hears_errors(hears),
            StreamOption::UnsentLimit(limit) => {
                conn.limit_unsent(limit);
                self.relieve(id);
            }
            StreamOption::Band(band) => conn.band = band,
            StreamOption::Hops(family, hops) if conn.is_of(family) => conn.set_hops(hops),
            StreamOption::Dscp(family, dscp) if conn.is_of(family) => self.mark(id, dscp & DSCP_MAX),
            StreamOption::LeastHops(family, least) if conn.is_of(family) => {
                conn.least_hops = least;
                self.reconsider_segments(id);
            }
            StreamOption::Hops(..) | StreamOption::Dscp(..) | StreamOption::LeastHops(..) => {}
        }
        Some(Disposition::default())
    }

    /// A program marks its packets otherwise. What went past TCP until now was marked as before.
    fn mark(&mut self, id: ConnId, dscp: u8) {
        self.conns.note_passed(id);
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        conn.set_dscp(dscp);
        self.conns.remarked.push(id);
        // Who waits for a limit may wait for another one, or for none.
        self.conns.touch(id);
    }

    /// The application wrote, or read.
    pub(crate) fn kick(&mut self, conn: ConnRef) {
        let now = self.common.now;
        let Some(id) = self.conns.slab.resolve(conn) else { return };
        if !self.meets_living(id, false) {
            return;
        }
        self.conns.wake_up(id);
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        if conn.fusion.is_on() {
            return self.kick_fused(id);
        }
        conn.stream.shared().words().unkick();
        self.provide(id);
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        let (tcp, rings) = conn.parts();
        tcp.window_opened(now, &rings);
        if tcp.unsent_limit().is_some() {
            self.relieve(id);
        }
        self.conclude_expected(id, Events::NONE);
    }

    /// Gives a program in another process storage to write to, if it has none; it may wait for that. If there is none, its
    /// connection's clock brings it here again.
    pub(super) fn provide(&mut self, id: ConnId) {
        let now = self.common.now;
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        if conn.stream.attach() {
            conn.tcp().note_storage(now);
            let token = conn.stream.tell(Ready::WRITABLE);
            self.common.outbox.tell(token, Ready::WRITABLE);
        } else if conn.stream.is_bare() {
            conn.tcp().await_storage(now);
        }
    }

    /// The program has closed its socket: nobody asks any more what became of the connection.
    pub(super) fn close_named(&mut self, conn: ConnRef) {
        self.shard.ended.forget(conn);
        if let Some(id) = self.conns.slab.resolve(conn)
            && !self.meets_living(id, true)
        {
            return;
        }
        self.command(conn, |inside, id| {
            inside.conns.slab.get_mut(id)?.program = Program::Gone;
            inside.close(id)
        });
    }

    pub(crate) fn close(&mut self, id: ConnId) -> Option<Disposition> {
        let now = self.common.now;
        let conn = self.conns.slab.get_mut(id)?;
        if matches!(conn.fusion, Fusion::Fused(_)) {
            return self.close_fused(id);
        }
        if conn.leaving == Leaving::Reset {
            return None;
        }
        let lives = conn.leaving == Leaving::No;
        if lives && conn.is_local() && conn.tcp().state() == State::SynSent {
            conn.leaving = Leaving::Begun;
            self.conns.touch(id);
            return None;
        }
        let (tcp, rings) = conn.parts();
        if lives && rings.recv.unread() > 0 && tcp.unsent(&rings) > 0 {
            // The program may have written it just before, and its kernel would have sent it there and then.
            conn.leaving = Leaving::Reset;
            self.conns.touch(id);
            return None;
        }
        Some(tcp.close(now, &rings))
    }

    /// The program wants a reset. Where it has shut its direction before, its kernel would have sent the FIN there and then, and who has
    /// that takes what comes behind it otherwise (RFC 9293 §3.10.7.4: CLOSE-WAIT).
    fn abort_behind_end(&mut self, id: ConnId) -> Option<Disposition> {
        let conn = self.conns.slab.get_mut(id)?;
        if conn.leaving == Leaving::No && conn.fusion.peer().is_none() && conn.tcp().owes_fin() {
            conn.leaving = Leaving::Reset;
            self.conns.touch(id);
            return None;
        }
        self.abort(id)
    }

    /// Calls into a connection, if it is still there, and acts on what it says.
    pub(super) fn command(
        &mut self,
        conn: ConnRef,
        call: impl FnOnce(&mut Self, ConnId) -> Option<Disposition>,
    ) {
        if let Some(id) = self.conns.slab.resolve(conn)
            && self.meets_living(id, false)
            && let Some(told) = call(self, id)
        {
            self.conclude(id, told);
        }
    }

    fn listen(&mut self, listen: Listen) {
        let Listen { socket, local, v6_only, shares, slot, rings, options } = listen;
        let address = LocalAddr::of(local.ip(), v6_only);
        let brought = Brought::default();
        let listening = Listening { address, port: port(local), slot, shares, rings, options, brought };
        if self.shard.listeners.insert(address, port(local), (socket, options.link), shares).is_err() {
            return self.refuse("listen", "another socket listens there");
        }
        if self.shard.listening.insert(socket.0, listening).is_err() {
            self.shard.listeners.remove(address, port(local), socket);
            self.refuse("listen", "the socket listens already");
        }
    }

    fn relisten(&mut self, socket: SocketId, started: Relisten) {
        let Some(listening) = self.shard.listening.get_mut(socket.0) else { return };
        let (before, link) = (listening.options.link, started.options.link);
        (listening.rings, listening.options) = (started.rings, started.options);
        let Listening { address, port, shares, .. } = *listening;
        let listeners = &mut self.shard.listeners;
        // Who would meet another one where he goes to stays where he was, and hears what he should.
        if before != link && listeners.remove(address, port, socket) {
            let _ = listeners
                .insert(address, port, (socket, link), shares)
                .or_else(|_| listeners.insert(address, port, (socket, before), shares));
        }
    }

    /// Ends a listener, and every connection of it that nobody has accepted.
    fn unlisten(&mut self, socket: SocketId) {
        let Some(listening) = self.shard.listening.remove(socket.0) else { return };
        self.shard.socket_filters.remove(&socket);
        self.shard.listeners.remove(listening.address, listening.port, socket);
        self.shard.searches.forget_exhausted();
        let mut left = Vec::new();
        self.shard.half_open.forget_listener(socket, |names, reset| left.push((*names, reset)));
        for (names, reset) in left {
            self.send_loose_over(listening.options.link, names.local(), names.remote(), &reset);
        }
        self.shard.fast_open_server.forget_listener(socket);
        self.desert(socket, listening.brought);
    }

    fn join(&mut self, join: Join) {
        let Join { socket, group, link, filter } = join;
        let (now, member) = (self.common.now, Member::Socket(socket.0));
        let ip = &mut self.shard.ip;
        ip.touch();
        let why = match ip.core.set_membership(now, link, group, member, filter, &mut self.common.pools) {
            // Nobody beyond the netstack has to know of groups on the loopback device.
            Ok(LOOPBACK) => return,
            Ok(link) => return self.common.regrouped.push((self.shard.config.id, link)),
            Err(JoinError::Address) => "it is no group",
            Err(JoinError::Link) => "no link leads to the group",
            Err(JoinError::Full) => "there are as many groups or members as there may be",
            Err(JoinError::Sources) => "there are too many sources",
        };
        self.refuse("join", why);
    }

    fn leave_groups(&mut self, socket: SocketId) {
        let (now, member) = (self.common.now, Member::Socket(socket.0));
        self.shard.ip.touch();
        self.shard.ip.core.leave_groups(now, member, &mut self.common.pools);
        let (id, links) = (self.shard.config.id, &self.shard.links);
        self.common.regrouped.extend(links.iter().map(|&link| (id, link)));
    }

    fn refuse(&mut self, what: &'static str, why: &'static str) {
        self.common.outbox.notices.push(crate::outbox::Notice::Refused { what, why });
    }
}

impl Stacks {
    /// A connection whose program is gone goes on from memory of this process.
    pub(crate) fn move_home(&mut self, conn: ConnRef, left: Packed) -> Result<Option<LeftStream>, Packed> {
        match self.conns.slab.resolve(conn).and_then(|id| self.conns.slab.get_mut(id)) {
            Some(conn) => conn.stream.move_home(left).map(Some),
            None => Ok(None),
        }
    }
}
