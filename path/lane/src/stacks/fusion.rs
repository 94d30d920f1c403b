//! TCP Fusion in the lane: which connections are fused, when, and what else happens to them meanwhile.
//!
//! Both ends of a connection of one netstack with itself are in one lane, because steering is symmetric; those of two
//! netstacks are if both have their sockets in the same lanes (`across.rs`). When nothing is under way between them, each peer
//! has what the other sent, and the applications are lent the rings; from then on bytes do not pass the lane. It keeps what is rare: shutdown, close, reset, options, clocks. What needs segments (a
//! FIN, a change of mind) asks the rings back first; TCP goes on from the cursor that was reached. The states are
//! `fusion.rs`'.

use firelane_frame::Terms;
use firelane_ip::LOOPBACK;
use firelane_socket::{Fusion as Joined, Ready, SocketToken, fuse_streams, part_streams, sever_streams};
use firelane_tcp::{Connection, Disposition, Info, Reached};
use firelane_units::{Bytes, ConnId, DropReason, Instant};
use firelane_wire::TcpFlags;

use super::Stacks;
use super::conn::{Conn, Conns, Program};
use super::credit::Allowance;
use super::inbound::{Inside, TABLED, Travel, view};
use crate::common::Common;
use crate::fusion::Fusion;
use crate::links::Links;
use crate::outbox::Join;
use crate::steps::{Onward, StepLists};
use crate::stream_info::Unfused;

impl Conn {
    /// How far its streams are, by the rings.
    fn reached(&self) -> Reached {
        Reached { sent: self.stream.send.cursor(), received: self.stream.recv.cursor() }
    }

    /// Whether its peer is in the same netstack.
    pub(crate) fn is_local(&self) -> bool {
        self.route().is_some_and(|route| route.link == LOOPBACK)
    }

    /// What TCP would have counted: text counts as acknowledged if the peer's buffer would hold it.
    pub(crate) fn correct(&self, info: &mut Info) {
        let Reached { sent, received } = self.reached();
        let unread = self.stream.send.available();
        let acknowledged = unread.min(self.stream.send.room_beyond()) as u64;
        info.bytes_acknowledged = Bytes(sent + acknowledged);
        info.bytes_received =
            Bytes(received + (self.stream.recv.unread_in_all() - self.stream.recv.unread()) as u64);
        info.unacknowledged = Bytes::ZERO;
    }

    /// What its program has asked for that takes segments: hops that are left (RFC 5082), and of one that is another process, clocks
    /// (RFC 5482) and signals.
    fn wants_segments(&self) -> Option<Unfused> {
        if self.least_hops > 0 {
            return Some(Unfused::Hops);
        }
        let is_impatient = self.stream.is_far() && self.look(Connection::has_user_timeout);
        is_impatient
            .then_some(Unfused::Patience)
            .or((self.program == Program::Signalled).then_some(Unfused::Signalled))
    }

    fn may_fuse(&mut self) -> bool {
        !self.fusion.is_on() && !self.stream.is_far() && self.tcp().may_fuse()
    }

    /// Its clocks while it is fused.
    fn on_fused_time(&mut self, now: Instant) -> Disposition {
        let reached = self.reached();
        let owes = self.stream.send.available() > self.stream.send.room_beyond();
        let (tcp, mut rings) = self.parts();
        tcp.on_fused_timer(now, reached, owes, &mut rings)
    }
}

impl Conns {
    /// What a connection's program has asked for that takes segments.
    pub(super) fn wants_segments(&self, id: ConnId) -> Option<Unfused> {
        self.slab.get(id)?.wants_segments()
    }

    /// Fuses two connections that are each other's peers. Whether they are.
    fn fuse(&mut self, id: ConnId, peer: ConnId, terms: Terms, now: Instant) -> bool {
        let Some((one, two)) = self.slab.pair_mut(id, peer) else { return false };
        if !one.may_fuse() || !two.may_fuse() {
            return false;
        }
        let (ours, theirs) = (one.tcp().reached(), two.tcp().reached());
        if ours.sent != theirs.received || theirs.sent != ours.received {
            return false;
        }
        for conn in [&mut *one, &mut *two] {
            let (tcp, mut rings) = conn.parts();
            tcp.fuse(now, &mut rings);
        }
        if fuse_streams(&mut one.stream, &mut two.stream, terms) != Joined::Fused {
            return false;
        }
        for ((conn, other), is_limited) in [(one, peer), (two, id)].into_iter().zip(terms.limited) {
            conn.fusion = Fusion::Fused(other);
            conn.allowance = if is_limited { Allowance::Limited } else { Allowance::Free };
            conn.steps = StepLists::FUSED;
        }
        self.lent += 2;
        true
    }

    /// Asks a connection's rings back. Whether segments carry its text from here on: else an application is inside, and its
    /// kick comes back to this.
    pub(crate) fn part(&mut self, id: ConnId, now: Instant) -> bool {
        let Some(peer) = self.slab.get(id).and_then(|conn| conn.fusion.peer()) else { return true };
        let Some((one, two)) = self.slab.pair_mut(id, peer) else { return true };
        let are_back = part_streams(&mut one.stream, &mut two.stream);
        one.fusion = one.fusion.parted(are_back);
        two.fusion = two.fusion.parted(are_back);
        if !are_back {
            return false;
        }
        let windows = [&mut *one, &mut *two].map(|conn| {
            conn.steps = StepLists::TCP;
            let reached = conn.reached();
            let (tcp, rings) = conn.parts();
            tcp.part(now, reached);
            tcp.announce(rings.recv)
        });
        one.tcp().open_window(windows[1]);
        two.tcp().open_window(windows[0]);
        self.lent -= 2;
        for id in [id, peer] {
            self.note_passed(id);
            self.touch(id);
        }
        true
    }

    /// The connection is over on both ends at once: what was written stays to be read, and no segment is needed. The peer,
    /// which is to be told, if they shared rings.
    fn sever(&mut self, id: ConnId) -> Option<ConnId> {
        let peer = self.slab.get(id)?.fusion.peer()?;
        let (one, two) = self.slab.pair_mut(id, peer)?;
        sever_streams(&mut one.stream, &mut two.stream);
        (one.fusion, two.fusion) = (Fusion::Severed, Fusion::Severed);
        self.lent -= 2;
        self.note_passed(id);
        self.note_passed(peer);
        Some(peer)
    }

    /// Whether the program of one of the two is another process.
    fn is_any_far(&self, id: ConnId, peer: ConnId) -> bool {
        [id, peer].into_iter().any(|id| self.slab.get(id).is_some_and(|conn| conn.stream.is_far()))
    }

    /// Lets two programs carry their text past the lane, if both can, as soon as somebody answers for each.
    fn join_programs<D>(&mut self, common: &mut Common<D>, [id, peer]: [ConnId; 2], terms: Terms) {
        let Some((one, two)) = self.slab.pair_mut(id, peer) else { return };
        if !(one.stream.is_far() && two.stream.is_far()) {
            // What reads a ring in this process cannot read one in an arena.
            one.fusion = one.fusion.unwished();
            return;
        }
        let tokens = [&*one, &*two].map(|conn| conn.stream.shared().words().token());
        let are_known = tokens.iter().all(|&token| token != SocketToken::default());
        let are_there = [&mut *one, &mut *two].into_iter().all(|conn| conn.tcp().is_established());
        if !are_known || !are_there {
            return;
        }
        for (conn, is_limited) in [one, two].into_iter().zip(terms.limited) {
            conn.fusion = Fusion::Beside;
            conn.allowance = if is_limited { Allowance::Limited } else { Allowance::Free };
        }
        common.outbox.joins.push(Join::Joined(tokens, terms));
        common.counters.fused += 1;
    }

    /// Text of a program goes through the lane again.
    fn part_programs<D>(&mut self, common: &mut Common<D>, id: ConnId) {
        let Some(conn) = self.slab.get_mut(id).filter(|conn| conn.fusion == Fusion::Beside) else { return };
        conn.fusion = Fusion::Alone;
        common.outbox.joins.push(Join::Parted(conn.stream.shared().words().token()));
        common.counters.parted += 1;
    }

    /// Nobody wants a connection to be fused.
    fn unwish(&mut self, id: ConnId) {
        if let Some(conn) = self.slab.get_mut(id) {
            conn.fusion = conn.fusion.unwished();
        }
    }

    /// A connection is to be fused when nothing is under way.
    pub(crate) fn wish(&mut self, id: ConnId) {
        if let Some(conn) = self.slab.get_mut(id) {
            conn.fusion = conn.fusion.wished();
            self.wishes.push(id);
        }
    }
}

impl Stacks {
    /// Fuses what is to be fused and can be, tells the peers of what was severed, counts what was carried and lends. Called when
    /// nothing is left to pass on.
    pub(crate) fn join<D>(&mut self, common: &mut Common<D>, links: &mut Links<D>) {
        self.count_passed(links);
        self.lend(common, links);
        while let Some(id) = self.conns.remarked.pop() {
            self.follow_mark(common, links, id);
        }
        while let Some(id) = self.conns.wishes.pop() {
            self.join_one(common, links, id);
        }
        while let Some(peer) = self.conns.bereaved.pop() {
            let Some(id) = self.conns.slab.resolve(peer) else { continue };
            // Whose own end has come needs nobody's.
            let Some(netstack) = self.home(id) else { continue };
            let Some(told) = self.conns.slab.get_mut(id).map(|conn| conn.tcp().on_reset()) else { continue };
            if let Some(mut inside) = self.inside(common, netstack) {
                inside.conclude(id, told);
            }
        }
    }

    /// A program's listener has been told of a connection, so somebody answers for it: it is joined with its peer before that one hears
    /// that it is connected.
    pub(crate) fn join_accepted<D>(&mut self, common: &mut Common<D>, links: &Links<D>, id: ConnId) {
        if self.conns.slab.get(id).is_some_and(|conn| conn.stream.is_far()) {
            self.join_one(common, links, id);
        }
    }

    /// Whether [`Stacks::join`] has anything to do.
    pub(crate) fn has_to_join(&self) -> bool {
        let Conns { wishes, remarked, bereaved, passed, asking, .. } = &self.conns;
        let wants_nothing = wishes.is_empty() && remarked.is_empty() && bereaved.is_empty();
        !(wants_nothing && passed.is_empty() && asking.is_empty())
    }

    /// A program marks its packets otherwise: flows that tell them by that have or have not a say any more, at both ends.
    fn follow_mark<D>(&mut self, common: &mut Common<D>, links: &Links<D>, id: ConnId) {
        if self.home(id).is_none() {
            return;
        }
        let peer = self.peer_of(common, links, id);
        for end in [Some(id), peer].into_iter().flatten() {
            self.reconsider(common, links, end);
        }
        self.renew_question(common, id);
    }

    fn join_one<D>(&mut self, common: &mut Common<D>, links: &Links<D>, id: ConnId) {
        if self.home(id).is_none() {
            return self.conns.unwish(id);
        }
        if self.conns.wants_segments(id).is_some() {
            // Nothing goes past the lane the other way either.
            let peer = self.peer_of(common, links, id);
            for id in [Some(id), peer].into_iter().flatten() {
                self.conns.unwish(id);
                self.conns.part_programs(common, id);
            }
            return;
        }
        let Some(conn) = self.conns.slab.get(id).filter(|conn| conn.fusion == Fusion::Wished) else { return };
        let Some(tuning) = self.shards.get(conn.netstack).map(|shard| shard.config.fusion) else {
            return;
        };
        let peer = self.peer_of(common, links, id).filter(|&peer| self.conns.wants_segments(peer).is_none());
        let Some(peer) = peer.filter(|_| self.may_fuse(common, links, id)) else {
            // Nothing that happens to it by itself will change this.
            return self.conns.unwish(id);
        };
        let terms = Terms {
            most_writes: tuning.unread_min,
            limited: [id, peer].map(|id| self.is_limited(links, id)),
        };
        if self.conns.is_any_far(id, peer) {
            return self.conns.join_programs(common, [id, peer], terms);
        }
        if !self.conns.fuse(id, peer, terms, common.now) {
            return;
        }
        common.counters.fused += 1;
        for id in [id, peer] {
            // Each may have text to read in the other's ring, and room in its own.
            if let Some(conn) = self.conns.slab.get(id) {
                let ready = Ready::READABLE | Ready::WRITABLE;
                common.outbox.tell(conn.stream.tell(ready), ready);
            }
            self.conns.arm(id, common.now);
        }
    }

    /// Whether a connection with a peer in this lane may be fused.
    fn may_fuse<D>(&self, common: &Common<D>, links: &Links<D>, id: ConnId) -> bool {
        let Some(conn) = self.conns.slab.get(id).filter(|it| it.wants_segments().is_none()) else {
            return false;
        };
        let tuple = conn.tuple();
        tuple.is_some_and(|tuple| self.unfused(common, links, conn.ends(), &tuple).is_none())
    }

    /// The mind of its netstacks or links, or of who looks on, may have changed about fusing.
    pub(crate) fn reconsider<D>(&mut self, common: &mut Common<D>, links: &Links<D>, id: ConnId) {
        let Some(conn) = self.conns.slab.get(id) else { return };
        let (netstack, is_on) = (conn.netstack, conn.fusion.is_on());
        // Who is fused has found his peer.
        let has_peer = is_on || conn.fusion == Fusion::Beside || self.peer_of(common, links, id).is_some();
        if !self.may_fuse(common, links, id) {
            if let Some(mut inside) = self.inside(common, netstack) {
                inside.end_wish(id);
            }
        } else if !is_on && has_peer {
            self.conns.wish(id);
        }
        self.limit(common, links, id);
    }

    /// The timer of a connection that is fused.
    pub(crate) fn on_fused_time<D>(&mut self, common: &mut Common<D>, id: ConnId) {
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        let (netstack, told) = (conn.netstack, conn.on_fused_time(common.now));
        if told.closed.is_none() {
            return self.conns.arm(id, common.now);
        }
        if let Some(mut inside) = self.inside(common, netstack) {
            inside.bereave(id);
            inside.conclude(id, told);
        }
    }
}

impl<D> Inside<'_, D> {
    /// A connection is not to be fused any more, in any way.
    pub(super) fn end_wish(&mut self, id: ConnId) {
        self.conns.unwish(id);
        self.part(id);
        self.conns.part_programs(self.common, id);
    }

    /// Text that nobody is left to read is to come by segments, as only TCP tells its sender so.
    pub(super) fn part_from_nobody(&mut self, id: ConnId) {
        if self.conns.slab.get_mut(id).is_some_and(|conn| conn.tcp().lack_of_reader().is_some()) {
            self.end_wish(id);
        }
    }

    /// Its program may have asked for what takes segments, or does not want it any more.
    pub(super) fn reconsider_segments(&mut self, id: ConnId) {
        if self.conns.wants_segments(id).is_some() {
            self.end_wish(id);
        }
        // Its peer is told, or asked.
        self.conns.wish(id);
    }

    /// Asks a connection's rings back, as [`Conns::part`].
    pub(crate) fn part(&mut self, id: ConnId) -> bool {
        let peer = self.conns.slab.get(id).and_then(|conn| conn.fusion.peer());
        let is_alone = self.conns.part(id, self.common.now);
        if let Some(peer) = peer.filter(|_| is_alone) {
            self.common.counters.parted += 1;
            for end in [id, peer] {
                let Some(conn) = self.conns.slab.get_mut(end) else { continue };
                // Who waits for credit needs none to write to TCP, and TCP, which may have nothing of his, would not tell him of room.
                self.common.outbox.tell(conn.stream.tell(Ready::WRITABLE), Ready::WRITABLE);
            }
        }
        is_alone
    }

    /// Severs a connection from its peer, which is told that it was reset. Whether there was one.
    fn bereave(&mut self, id: ConnId) -> bool {
        let peer = self.conns.sever(id);
        let named = peer.and_then(|peer| self.conns.slab.get(peer)?.stream.shared().conn());
        self.conns.bereaved.extend(named);
        peer.is_some()
    }

    /// Ends a connection now, as its program or nobody wants it: its peer hears of it by a RST, or without one.
    pub(crate) fn abort(&mut self, id: ConnId) -> Option<Disposition> {
        let (is_fused, now) = (self.bereave(id), self.common.now);
        let tcp = self.conns.slab.get_mut(id)?.tcp();
        Some(if is_fused { tcp.end_fused() } else { tcp.abort(now) })
    }

    /// The program of a fused connection closes it. Text that it has not read, wherever that lies, makes it a reset.
    pub(crate) fn close_fused(&mut self, id: ConnId) -> Option<Disposition> {
        if self.conns.slab.get(id)?.stream.recv.unread_in_all() > 0 {
            return self.abort(id);
        }
        self.part(id);
        self.close(id)
    }

    /// A fused connection's program kicks: it left the rings that TCP waits for, or it wrote and nobody else was told.
    #[cold]
    pub(crate) fn kick_fused(&mut self, id: ConnId) {
        let now = self.common.now;
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        conn.stream.shared().words().unkick();
        conn.tcp().note_fused_traffic(now);
        let Some(peer) = conn.fusion.peer() else { return };
        let is_parting = matches!(conn.fusion, Fusion::Parting(_));
        let Some((one, two)) = self.conns.slab.pair_mut(id, peer) else { return };
        if is_parting || one.stream.is_cramped(&mut two.stream) {
            if self.part(id) && !is_parting {
                self.conns.wish(id);
            }
            return;
        }
        if one.stream.send.available() > 0 {
            self.common.outbox.tell(two.stream.tell(Ready::READABLE), Ready::READABLE);
        }
        self.conns.see_to_credit(id);
        self.conns.arm(id, now);
    }

    /// A fused connection's program has marked text as urgent: the peer's hears of it at once.
    pub(crate) fn mark_fused(&mut self, id: ConnId, end: u64) -> Option<()> {
        let peer = self.conns.slab.get(id)?.fusion.peer()?;
        let words = self.conns.slab.get(peer)?.stream.shared().words();
        words.set_mark(end);
        let ready = Ready::URGENT | Ready::READABLE;
        self.common.outbox.tell(words.tell(ready), ready);
        Some(())
    }

    /// A segment of a fused connection. A late ACK says nothing new; for anything else TCP is wanted again.
    pub(crate) fn pass_fused(&mut self, id: ConnId, travel: &mut Travel<'_>) -> Onward {
        let Some(packet) = &travel.packet else { return Onward::Ended };
        let is_late_ack = view(&packet.frame, packet.payload.clone(), || (packet.src, packet.dst))
            .is_ok_and(|view| view.payload().is_empty() && view.flags() == TcpFlags::ACK);
        if !is_late_ack && self.part(id) {
            self.conns.wish(id);
            return Onward::Next;
        }
        debug_assert!(self.conns.slab.get(id).is_some(), "{TABLED}");
        if let Some(packet) = travel.packet.take() {
            match is_late_ack {
                true => self.common.deliver(packet.frame),
                // It comes again, unless it is a stranger's.
                false => self.common.drop_frame(packet.frame, DropReason::Unacceptable),
            }
        }
        Onward::Ended
    }
}
