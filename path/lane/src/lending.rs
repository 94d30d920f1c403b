//! Loans: credit for text of fused connections, which no frame carries, from the lanes in which its flows' limits are kept.
//!
//! A connection that lacks credit sends an [`Errand`]. It goes to the home of each limit that has a say, the tightest first, waits
//! its turn there (`firelane_flow::Lender`), is charged, and comes back with what was lent (`stacks/credit.rs`). Where no limit
//! has a say any more, it comes back at once.

use core::mem;

use firelane_flow::{Limits, Loan};
use firelane_socket::ConnRef;
use firelane_units::{Bytes, FlowId, LaneId};

use crate::common::Common;
use crate::links::Links;
use crate::message::LaneMessage;
use crate::stream_info::LimitedBy;

/// Who wants credit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Borrower {
    /// The lane of the connection.
    pub(crate) lane: LaneId,
    pub(crate) conn: ConnRef,
}

/// A connection's question for credit, on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errand {
    pub(crate) borrower: Borrower,
    /// The flows whose limits are yet to be asked.
    pub(crate) ways: Limits,
    /// How much is wanted; where a limit was asked, how much it has lent.
    pub(crate) bytes: Bytes,
}

impl<D> Links<D> {
    /// Takes an errand to the next limit, or back.
    pub(crate) fn run(&mut self, common: &mut Common<D>, errand: Errand) {
        let Errand { borrower, ways, bytes } = errand;
        let limited = ways.map(|way| way.filter(|&(flow, side)| self.flows.is_limited(flow, side)));
        let tightest =
            limited.into_iter().flatten().min_by_key(|&(flow, side)| self.flows.tightest(flow, side));
        let home_of =
            |flow: FlowId| self.places.get(flow.0).and_then(|place| place.home).unwrap_or(common.id);
        let next = tightest.map_or(borrower.lane, |(flow, _)| home_of(flow));
        let here = limited.map(|way| way.filter(|&(flow, _)| home_of(flow) == common.id));
        if next != common.id {
            let errand = Errand { ways: limited, ..errand };
            common.outbox.messages.push((next, LaneMessage::Errand(Box::new(errand))));
        } else if tightest.is_none() {
            self.lent.push((borrower, bytes));
        } else {
            let rest = limited.map(|way| way.filter(|&(flow, _)| home_of(flow) != common.id));
            self.lender.ask(common.now, Loan { borrower: (borrower, rest), ways: here, wanted: bytes });
        }
    }

    /// Lends to who is due.
    pub(crate) fn lend(&mut self, common: &mut Common<D>) {
        let mut granted = mem::take(&mut self.granted);
        while self.lender.is_due(common.now) {
            self.lender.lend(common.now, &mut self.flows, |loan, bytes| granted.push((loan.borrower, bytes)));
            for ((borrower, ways), bytes) in granted.drain(..) {
                self.run(common, Errand { borrower, ways, bytes });
            }
        }
        self.granted = granted;
    }

    /// Limits or their homes have changed: who waits asks anew.
    pub(crate) fn ask_anew(&mut self, common: &mut Common<D>) {
        if self.lender.is_empty() {
            return;
        }
        for Loan { borrower: (borrower, rest), ways, wanted } in self.lender.take_all() {
            let mut others = ways.into_iter().chain(rest).flatten();
            self.run(common, Errand { borrower, ways: [others.next(), others.next()], bytes: wanted });
        }
    }

    /// Rules have changed: who waits goes home with nothing, and asks those that are his now.
    pub(crate) fn send_home(&mut self, common: &mut Common<D>) {
        for Loan { borrower: (borrower, _), .. } in self.lender.take_all() {
            self.run(common, Errand { borrower, ways: Limits::default(), bytes: Bytes::ZERO });
        }
    }

    /// Whose limit is the tightest in these flows.
    pub(crate) fn limited_by(&self, flows: Limits) -> Option<LimitedBy> {
        let all = flows.into_iter().flatten();
        let (_, flow) = all.filter_map(|(flow, direction)| self.flows.tightest(flow, direction)).min()?;
        let place = self.places.get(flow.0)?;
        Some(if place.rule.is_some() { LimitedBy::Flow(flow) } else { LimitedBy::Link(place.owner) })
    }

    /// Whether there is anything to lend, or was.
    #[inline]
    pub(crate) fn has_to_lend(&self, common: &Common<D>) -> bool {
        !self.lent.is_empty() || self.lender.is_due(common.now)
    }
}
