//! What of a stream goes past its lane: the joint that it shares with its peer on this host, once, and for as long as all agree.
//!
//! The joint comes with the fusing of the two connections (`joining.rs`, `segment.rs`) and stays to their end; the lane, the program and
//! whoever cannot reach it say when nothing goes there. Called by whoever is inside the lane or answers the program (`socket.rs`).

use std::sync::atomic::{Ordering, fence};

use firelane_lane::SocketCommand;
use firelane_shm::Block;
use firelane_shm::joint::Lie;
use firelane_shm::layout::{LOST, request, status};
use firelane_socket::ConnRef;
use rustix::io::Errno;

use super::super::arena::ProgramArena;
use super::super::segment::Joined;
use super::{APART, LIMITED, PARTED, Stream};
use crate::fabric::{Fabric, Message};

impl Stream {
    /// Bytes that have come past the lane, and that have gone there, if it was ever fused.
    pub(in crate::programs) fn fused(&self) -> Option<[u64; 2]> {
        let [sent, received] = self.joined()?.carried();
        Some([received, sent])
    }

    /// Lets the lane count what was carried past it since that was last done. Who has written what cannot be true loses the
    /// connection.
    pub(in crate::programs) fn count_fused(&self, fabric: &Fabric) {
        let (Some(joined), Some(conn)) = (self.joined(), self.conn()) else { return };
        match joined.take_carried(|| fabric.now()) {
            Ok([0, 0]) => {}
            Ok(carried) => {
                // A lane that has failed counts nothing any more.
                let _ = fabric.visit(self.lane(), |_, lane| lane.count_beside(conn, carried));
            }
            Err(Lie) => {
                self.hold.note_lie();
                self.kick(fabric);
            }
        }
    }

    /// What it shares with its peer, if they could be fused.
    pub(in crate::programs) fn joined(&self) -> Option<&Joined> {
        self.joined.get()
    }

    /// From now on it shares this with its peer; its program is shown where.
    pub(in crate::programs) fn join(&self, arena: &ProgramArena, joined: Joined) {
        let Some(block) = arena.mapping().block(self.number()) else { return };
        let [segment, joint] = joined.names();
        if self.joined.set(joined).is_ok() {
            block.joint.store(joint, Ordering::Relaxed);
            // Who marks that he waits looks at this afterwards, and whoever opens the joint looks for marks.
            block.segment.store(segment, Ordering::SeqCst);
            // Who waits to be connected hears of that after this, and looks for the joint then.
            if self.has_outcome() {
                self.call(arena);
            }
        }
        if let Some(joined) = self.joined() {
            // The lane may have said so when there was no joint to say it to, and the program, too.
            fence(Ordering::SeqCst);
            if self.has(APART) {
                joined.keep_apart(true);
            }
            if self.has(LIMITED) {
                joined.limit(true);
            }
            joined.offer();
        }
    }

    /// The lane lets nothing more go past it, until it joins it again. It may have no joint yet, and who makes one asks.
    pub(in crate::programs) fn part(&self) {
        self.state.fetch_or(PARTED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if let Some(joined) = self.joined() {
            joined.part();
        }
    }

    /// The lane joins it with its peer.
    pub(in crate::programs) fn end_parting(&self) {
        if self.is_parted() {
            self.state.fetch_and(!PARTED, Ordering::SeqCst);
        }
    }

    /// Whether the lane lets nothing go past it.
    pub(in crate::programs) fn is_parted(&self) -> bool {
        self.has(PARTED)
    }

    /// From now on nothing is carried past the lane, or may be again.
    pub(in crate::programs) fn keep_apart(&self, is_apart: bool) {
        match is_apart {
            true => self.state.fetch_or(APART, Ordering::SeqCst),
            false => self.state.fetch_and(!APART, Ordering::SeqCst),
        };
        fence(Ordering::SeqCst);
        if let Some(joined) = self.joined() {
            joined.keep_apart(is_apart);
        }
    }

    /// Whether a process of the program's asks that nothing more go where it cannot reach it. The answer is one to all.
    pub(in crate::programs) fn is_asked_to_part(block: &Block) -> bool {
        block.requests.load(Ordering::Acquire) & request::PART != 0
    }

    /// A process of the program's cannot reach what it shares with its peer: from here on all goes by the lane. Text that lies there would
    /// be missing in front of what comes, so then the connection fails. Whether it does.
    pub(super) fn give_joint_up(&self, block: &Block) -> bool {
        let Some(joined) = self.joined() else { return false };
        if !joined.give_up() {
            // Behind the look: whoever finds none reads what the lane brings.
            block.segment.store(0, Ordering::SeqCst);
            return false;
        }
        let is_first = block.file.load(Ordering::SeqCst) & LOST == 0;
        if is_first {
            // In this order: whoever finds that text is lost has the error first.
            block.note((Errno::CONNABORTED.raw_os_error() as u64) << status::ERROR_SHIFT);
            block.file.fetch_or(LOST, Ordering::SeqCst);
        }
        is_first
    }

    /// What the program asks for about what it shares with its peer.
    pub(super) fn obey_beside(
        &self,
        (conn, block): (ConnRef, &Block),
        asked: u64,
        give: &mut impl FnMut(Message),
    ) {
        if asked & request::PART != 0 && self.give_joint_up(block) {
            give(self.message(SocketCommand::Abort(conn)));
        }
        if asked & request::TELL_PEER != 0
            && let Some(joined) = self.joined()
        {
            // Text that nobody will read makes a reset of it, as TCP has it.
            match joined.deserted() {
                Some(peer) => give(self.message(SocketCommand::Abort(peer))),
                None => joined.tell_peer(),
            }
        }
        if asked & request::WANTS_CREDIT != 0
            && let Some([lacks, carried]) = self.joined().and_then(Joined::wants)
        {
            give(self.message(SocketCommand::Borrow { conn, lacks, carried }));
        }
    }
}
