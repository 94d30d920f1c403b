//! Limits on fused connections: who needs credit, who asks for it, and who gets it.
//!
//! Each end of a fused connection is a writer. If a limit stands on the way from its VNIC to its peer's, it writes only what it
//! has credit for. A writer without credit kicks its lane, which sends an errand (`lending.rs`) and passes on what comes back:
//! into the rings that it has lent, or for two programs to whoever serves them. One errand is under way at a time. What a
//! program wrote before it could write past the lane goes in segments, which the same limit holds up: until these have left nothing is
//! lent to what follows them. Who has an errand under way when limits get other homes sends another: the one may be lost with a lane
//! that has failed.

use firelane_socket::{ConnRef, Ready};
use firelane_units::{Bytes, ConnId};

use super::Stacks;
use super::conn::{Conn, Conns};
use crate::common::Common;
use crate::fusion::Fusion;
use crate::lending::{Borrower, Errand};
use crate::links::Links;
use crate::outbox::Join;

/// The most that is asked for at once. No limit below 10 Gb/s lends more.
const LOAN_MAX: Bytes = Bytes(1 << 20);
/// What is asked for once the segments have left. The program says again how much it lacks when it has that.
const LOAN_BEHIND: Bytes = Bytes(1 << 10);

/// What limits have to do with what a fused connection writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Allowance {
    /// None has a say.
    #[default]
    Free,
    /// It needs credit.
    Limited,
    /// It needs credit, and asks for some as soon as what was written before has left in segments.
    Behind,
    /// It needs credit, and has asked for some.
    Asked,
}

/// How much to ask for who lacks so much and has carried so much already: who carries much gets credit for some more such
/// writes, so that each need not ask. Who has just begun may be about to end.
fn loan_for(lacks: u64, carried: u64) -> Bytes {
    Bytes(lacks.max((carried / 4).min(lacks.saturating_mul(4)))).min(LOAN_MAX)
}

impl Conn {
    /// How much credit to ask for, if it lacks any and has asked for none.
    fn wanted(&self) -> Option<Bytes> {
        let (lacks, _) = self.stream.send.lacks();
        (lacks > 0 && self.allowance == Allowance::Limited)
            .then(|| loan_for(lacks, self.stream.send.cursor()))
    }

    /// Whether there is text that TCP has yet to send for the first time. Who rests has none, and goes on resting.
    fn has_unsent_text(&mut self) -> bool {
        if self.rests() {
            return false;
        }
        let (tcp, rings) = self.parts();
        tcp.unsent(&rings) > 0
    }

    /// Whether it is to ask only when its segments have left.
    fn waits_behind_segments(&mut self) -> bool {
        let waits = self.allowance == Allowance::Limited && self.has_unsent_text();
        if waits {
            self.allowance = Allowance::Behind;
        }
        waits
    }
}

impl Conns {
    /// A connection of this process may have asked for credit.
    pub(super) fn see_to_credit(&mut self, id: ConnId) {
        if let Some(bytes) = self.slab.get(id).and_then(Conn::wanted) {
            self.ask(id, bytes);
        }
    }

    /// The program of a connection lacks so much credit, and has carried so much.
    pub(super) fn borrow(&mut self, conn: ConnRef, [lacks, carried]: [Bytes; 2]) {
        let Some(id) = self.slab.resolve(conn) else { return };
        if !self.slab.get_mut(id).is_some_and(Conn::waits_behind_segments) {
            self.ask(id, loan_for(lacks.0, carried.0));
        }
    }

    /// A connection has sent what it had to send: whoever waited for that asks now.
    #[inline]
    pub(super) fn ask_behind_segments(&mut self, id: ConnId) {
        let Some(conn) = self.slab.get_mut(id) else { return };
        if conn.allowance == Allowance::Behind && !conn.has_unsent_text() {
            conn.allowance = Allowance::Limited;
            self.ask(id, LOAN_BEHIND);
        }
    }

    /// A connection asks for credit.
    fn ask(&mut self, id: ConnId, bytes: Bytes) {
        if let Some(conn) = self.slab.get_mut(id).filter(|conn| conn.allowance == Allowance::Limited) {
            conn.allowance = Allowance::Asked;
            self.asking.push((id, bytes));
        }
    }
}

impl Stacks {
    /// Whether somebody asks for credit.
    pub(crate) fn has_to_ask(&self) -> bool {
        !self.conns.asking.is_empty()
    }

    /// Asks for credit for those who lack it, and gives it to those who have got it.
    pub(crate) fn lend<D>(&mut self, common: &mut Common<D>, links: &mut Links<D>) {
        loop {
            while let Some((id, bytes)) = self.conns.asking.pop() {
                self.send_errand(common, links, id, bytes);
            }
            links.lend(common);
            if links.lent.is_empty() {
                return;
            }
            for (borrower, bytes) in core::mem::take(&mut links.lent) {
                self.get_credit(common, borrower, bytes);
            }
        }
    }

    fn send_errand<D>(&mut self, common: &mut Common<D>, links: &mut Links<D>, id: ConnId, bytes: Bytes) {
        let Some(conn) = self.conns.slab.get(id) else { return };
        let limits = self.limits_of_fused(links, conn);
        let (Some(reference), Some(ways)) = (conn.stream.shared().conn(), limits) else { return };
        let borrower = Borrower { lane: common.id, conn: reference };
        links.run(common, Errand { borrower, ways, bytes });
    }

    /// Limits have other homes, maybe because a lane has failed in which the errand of a connection was: as if it had come back with
    /// nothing, the connection asks once more. If it does come back, that was lent, too.
    pub(super) fn renew_question<D>(&mut self, common: &mut Common<D>, id: ConnId) {
        let asked = self.conns.slab.get(id).filter(|conn| conn.allowance == Allowance::Asked);
        if let Some(conn) = asked.and_then(|conn| conn.stream.shared().conn()) {
            self.get_credit(common, Borrower { lane: common.id, conn }, Bytes::ZERO);
        }
    }

    fn get_credit<D>(&mut self, common: &mut Common<D>, borrower: Borrower, bytes: Bytes) {
        // It may be gone; what was lent is lost then, as what was sent to it would be.
        let Some(id) = self.conns.slab.resolve(borrower.conn) else { return };
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        if conn.allowance == Allowance::Asked {
            conn.allowance = Allowance::Limited;
        }
        match conn.fusion {
            _ if conn.stream.is_far() => {
                common.outbox.joins.push(Join::Lent(conn.stream.shared().words().token(), bytes));
            }
            Fusion::Fused(_) | Fusion::Parting(_) => {
                let (_, unused) = conn.stream.send.lacks();
                conn.stream.send.grant(bytes.0);
                common.outbox.tell(conn.stream.tell(Ready::WRITABLE), Ready::WRITABLE);
                if unused == 0 {
                    // Who has used up all before will use this, too.
                    self.conns.see_to_credit(id);
                }
            }
            Fusion::Alone | Fusion::Wished | Fusion::Severed | Fusion::Beside => {}
        }
    }
}

impl Stacks {
    /// Whether a limit has a say on what goes from a connection to its peer.
    pub(super) fn is_limited<D>(&self, links: &Links<D>, id: ConnId) -> bool {
        if !links.flows.has_limits() {
            return false;
        }
        let conn = self.conns.slab.get(id);
        let ways = conn.and_then(|conn| self.limits_of_fused(links, conn)).unwrap_or_default();
        ways.into_iter().flatten().any(|(flow, direction)| links.flows.is_limited(flow, direction))
    }

    /// A connection has been fused, or limits may have changed: says whether it needs credit from now on.
    pub(super) fn limit<D>(&mut self, common: &mut Common<D>, links: &Links<D>, id: ConnId) {
        let is_limited = self.is_limited(links, id);
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        let is_on = matches!(conn.fusion, Fusion::Fused(_) | Fusion::Parting(_) | Fusion::Beside);
        let allowance = match (is_on && is_limited, conn.allowance) {
            (false, _) => Allowance::Free,
            (true, Allowance::Free) => Allowance::Limited,
            (true, other) => other,
        };
        let is_changed = (conn.allowance == Allowance::Free) != (allowance == Allowance::Free);
        conn.allowance = allowance;
        match conn.fusion {
            Fusion::Beside if is_changed => {
                let token = conn.stream.shared().words().token();
                common.outbox.joins.push(Join::Limited(token, is_limited));
            }
            Fusion::Fused(_) | Fusion::Parting(_) if is_changed => {
                conn.stream.send.limit(is_limited);
                common.outbox.tell(conn.stream.tell(Ready::WRITABLE), Ready::WRITABLE);
            }
            _ => {}
        }
    }
}
