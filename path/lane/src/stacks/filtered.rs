//! The filter's two gates: what comes in to a netstack by a link passes one before IP, what leaves by a link the other behind IP.
//!
//! A known forwarded flow has both ways as steps of its list ([`Step::Filter`]), and what was said of it beside it (`passage.rs`);
//! everything else is asked about before the classifier says whose it is, so nothing goes round. The way out is one place for all:
//! segments, datagrams, ICMP, forwarded packets, and what waited for a neighbour. Packets are asked about in the order in which
//! they came, each on its way in and then on its way out. A verdict that is for all packets of a flow is remembered with the list of
//! rules that it is of. What a netstack sends to itself passes neither gate, as in the original.

use core::net::SocketAddr;
use std::sync::Arc;

use firelane_classify::{FlowCache, Headers, L3, Tuple};
use firelane_filter::{Filter, FilterCounts, Packet, PoolChange, RuleList, Ruling, STATES_MAX, Verdict};
use firelane_frame::{Chain, Frame};
use firelane_ip::LOOPBACK;
use firelane_nat::{Nat, NatList, NatRef};
use firelane_tcp::{ResetBudget, reset_for};
use firelane_units::{BlockAnswer, Direction, DropReason, Instant, LaneId, LinkId, NetstackId};
use firelane_wire::IpProtocol;

use super::early::Stay;
use super::inbound::{Inside, segment_in};
use super::passage::{Judged, Remembered};
use super::pieces::Asked;
use super::shard::Shard;
use super::{NO_NETSTACK, Stacks};
use crate::config::Secrets;
use crate::control::Refusal;
use crate::message::{FilteredPacket, Learned, Stage};
use crate::outbox::Notice;
use crate::steer::datagram_lane;
use crate::steps::Step;
use crate::watch::Sight;

/// Of how many packets the operator is told each second; a flood is not to fill his log.
const TOLD_PER_SECOND: u32 = 100;
/// How much of each is told.
const TOLD_BYTES: usize = 128;
/// IPv6's header.
const IPV6_BYTES: u16 = firelane_wire::Ipv6View::HEADER_LEN as u16;
/// The headers that a state is made of: IPv6's, as many extensions as are walked, and UDP's.
const HEADERS_MAX: usize = 40 + 512 + 8;

/// A shard's filter, and what it said of whole flows.
#[derive(Debug)]
pub(crate) struct Gate {
    filter: Filter,
    /// Who translates addresses, in the netstack's home lane, if there are rules.
    nat: Option<Box<Nat>>,
    /// Packets are asked about, by either.
    is_on: bool,
    /// What it said, of each direction.
    said: [FlowCache<Said>; 2],
    /// The list of rules; zero is none.
    list: u32,
    /// The rules and the pools of which something was said; what was said of others does not count.
    edition: u32,
    /// So many of the frames that IP has ready were asked about, or need not be.
    asked: usize,
    /// The lanes that were asked about first pieces.
    pieces: Asked,
    /// Of how many packets the operator may still be told.
    told: ResetBudget,
    /// Storage of what is asked about on its way out.
    ready: Chain,
}

/// What was said of a packet that leaves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gone {
    /// By the filter.
    pub(crate) ruling: Ruling,
    /// The session by which it was translated.
    pub(crate) session: Option<NatRef>,
    /// It did not leave: the filter, the translator or what it waits for has it.
    pub(crate) stays: bool,
}

/// A ruling for all packets of a flow, small enough to share a cache line with the flow's names: twice the number of its
/// rule counted from one, or zero without a rule, and one more if it blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Said(pub(crate) u32);

impl Said {
    pub(crate) fn of(ruling: Ruling) -> Self {
        let blocks = u32::from(ruling.verdict != Verdict::Pass);
        Self(ruling.rule.map_or(0, |rule| rule + 1) << 1 | blocks)
    }

    #[inline]
    pub(crate) const fn blocks(self) -> bool {
        self.0 & 1 != 0
    }

    #[inline]
    fn ruling(self, filter: &Filter) -> Ruling {
        let rule = (self.0 >> 1).checked_sub(1);
        let verdict = match rule.filter(|_| self.blocks()) {
            Some(rule) => Verdict::Block(filter.answer(rule)),
            None => Verdict::Pass,
        };
        Ruling { verdict, rule, is_for_all: true, ..Ruling::default() }
    }
}

/// Whether extension headers of IPv6 stand before the transport's: rules may be about those, so the flow's names do not say all.
#[inline]
fn is_behind_others(headers: &Headers) -> bool {
    matches!(headers.l3, L3::V6 { .. }) && headers.l4_offset != headers.l3_offset + IPV6_BYTES
}

/// The bytes of a frame's packet, from its IP header on.
#[inline]
pub(crate) fn packet_bytes(headers: &Headers) -> u32 {
    headers.l3_end.saturating_sub(headers.l3_offset.into())
}

impl Gate {
    pub(crate) fn new(secrets: &Secrets) -> Self {
        let filter = Filter::new(secrets.filter(), STATES_MAX);
        Self {
            filter,
            nat: None,
            is_on: false,
            said: [FlowCache::new(), FlowCache::new()],
            list: 0,
            edition: 0,
            asked: 0,
            pieces: Asked::default(),
            told: ResetBudget::new(TOLD_PER_SECOND),
            ready: Chain::new(),
        }
    }

    /// Whether anything is asked.
    #[inline]
    pub(crate) const fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether the filter has rules, which are the same in all lanes.
    #[inline]
    pub(crate) fn has_filter_rules(&self) -> bool {
        self.filter.has_rules()
    }

    /// Whether the filter has rules, or states that go on without.
    #[inline]
    pub(crate) fn has_filter(&self) -> bool {
        self.filter.is_on()
    }

    /// Whether addresses are translated here.
    #[inline]
    pub(crate) const fn has_nat(&self) -> bool {
        self.nat.is_some()
    }

    #[inline]
    pub(crate) fn nat(&mut self) -> Option<&mut Nat> {
        self.nat.as_deref_mut()
    }

    pub(crate) fn nat_seen(&self) -> Option<&Nat> {
        self.nat.as_deref()
    }

    /// Other rules of translation count; without any it ends, and what it has made with it.
    pub(crate) fn set_nat(&mut self, list: &Arc<NatList>, key: (u64, u64)) {
        if list.is_empty() {
            self.nat = None;
        } else {
            self.nat.get_or_insert_with(|| Box::new(Nat::new(key))).follow_list(list);
        }
        self.look();
    }

    fn look(&mut self) {
        self.is_on = self.has_filter() || self.has_nat();
    }

    /// Whether what was let through before may pass by that.
    pub(crate) fn has_states(&self) -> bool {
        self.filter.is_on() && self.filter.has_states()
    }

    #[inline]
    pub(crate) fn filter(&mut self) -> &mut Filter {
        &mut self.filter
    }

    /// The same, to look into its pools.
    pub(crate) fn filter_ref(&self) -> &Filter {
        &self.filter
    }

    /// The lanes that were asked about first pieces of datagrams.
    pub(super) const fn pieces(&mut self) -> &mut Asked {
        &mut self.pieces
    }

    /// A packet of a flow of which this is remembered will come soon: what that needs is read before.
    #[inline]
    pub(crate) fn touch(&mut self, judged: Judged) {
        if let Some(nat) = &self.nat {
            judged.get_session().iter().for_each(|&session| nat.touch(session));
        } else if let Remembered::State(state) = judged.get() {
            self.filter.touch(state);
        }
    }

    /// What IP has made ready and was not asked about yet is taken out to be.
    fn take_unasked(&mut self, ready: &mut Chain) {
        while ready.len() > self.asked
            && let Some(frame) = ready.pop_back()
        {
            self.ready.push_front(frame);
        }
    }

    /// The frame that IP has made ready last may go: those before it were asked about.
    #[inline]
    pub(crate) fn let_out(&mut self) {
        self.asked += 1;
    }

    /// A packet of a flow of which this was said.
    #[inline]
    pub(crate) fn repeat(&mut self, direction: Direction, bytes: u32, said: Said) -> Ruling {
        let ruling = said.ruling(&self.filter);
        self.filter.repeat(direction, bytes, ruling);
        ruling
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        let nat = self.nat.as_ref().and_then(|nat| nat.poll_at());
        Instant::earliest([self.filter.poll_at(), nat])
    }

    /// What is due; whether nothing is asked about any more that was before.
    pub(crate) fn on_time(&mut self, now: Instant) -> bool {
        self.filter.on_time(now);
        self.pieces.expire(now);
        if let Some(nat) = &mut self.nat {
            nat.on_time(now);
        }
        let was_on = self.is_on;
        self.look();
        was_on && !self.is_on
    }

    /// Frames that wait for the first pieces of their datagrams.
    pub(crate) fn held(&self) -> u64 {
        self.nat.as_ref().map_or(0, |nat| nat.waiting() as u64)
    }

    pub(crate) fn counts(&self) -> FilterCounts {
        self.filter.counts()
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        self.filter.allocated_bytes() + self.nat.as_ref().map_or(0, |nat| nat.allocated_bytes())
    }

    /// Another lane has let a packet through.
    pub(crate) fn adopt(&mut self, packet: &FilteredPacket, now: Instant) {
        let FilteredPacket { direction, link, rule, list, ref bytes } = *packet;
        if let Some(packet) = Packet::read_cut(direction, link, bytes).filter(|_| list == self.list) {
            self.filter.adopt(&packet, rule, now);
        }
    }

    /// The begin of a packet, for others to be told of it.
    fn begin_of(
        &self,
        direction: Direction,
        link: LinkId,
        packet: &[u8],
        rule: Option<u32>,
        most: usize,
    ) -> Box<FilteredPacket> {
        let bytes = packet[..packet.len().min(most)].to_vec();
        Box::new(FilteredPacket { direction, link, rule, list: self.list, bytes })
    }

    /// What becomes of a packet; what is none passes, as IP says what is wrong with it.
    fn judge(
        &mut self,
        direction: Direction,
        link: LinkId,
        frame: &[u8],
        headers: &Headers,
        now: Instant,
    ) -> Ruling {
        let tuple = headers.tuple().filter(|_| !headers.tagged && !is_behind_others(headers));
        let said = &self.said[direction.index()];
        if let Some(said) = tuple.and_then(|tuple| said.lookup(link, &tuple, self.edition)) {
            return self.repeat(direction, packet_bytes(headers), said);
        }
        let bytes = frame.get(usize::from(headers.l3_offset)..).unwrap_or_default();
        let Some(packet) = Packet::read(direction, link, bytes) else { return Ruling::default() };
        let ruling = self.filter.judge(&packet, now);
        if let Some(tuple) = tuple.filter(|_| ruling.is_for_all) {
            self.said[direction.index()].insert(link, &tuple, self.edition, Said::of(ruling));
        }
        ruling
    }
}

impl Stacks {
    /// A netstack's filter follows other rules; its pools stay.
    pub(crate) fn set_filter(&mut self, id: NetstackId, list: &Arc<RuleList>) -> Result<(), Refusal> {
        let shard = self.shards.get_mut(id).ok_or(NO_NETSTACK)?;
        shard.gate.list = shard.gate.list.wrapping_add(1).max(1);
        shard.gate.filter.follow_list(list);
        shard.gate.look();
        shard.begin_edition();
        Ok(())
    }

    /// Networks come into the pools of a netstack's filter and go.
    pub(crate) fn change_pools(&mut self, id: NetstackId, changes: &[PoolChange]) -> Result<(), Refusal> {
        let shard = self.shards.get_mut(id).ok_or(NO_NETSTACK)?;
        shard.gate.filter.change_pools(changes);
        shard.begin_edition();
        Ok(())
    }

    /// How many networks the pools of a netstack's filter have in this lane.
    pub(crate) fn pooled(&self, id: NetstackId) -> Option<usize> {
        self.shards.get(id).map(|shard| shard.gate.filter.pooled())
    }

    /// What a netstack's filter has counted in this lane.
    pub(crate) fn filter_counts(&self, id: NetstackId) -> Option<FilterCounts> {
        self.shards.get(id).map(|shard| shard.gate.counts())
    }
}

impl Shard {
    /// What was said of flows may not be said again, and forwarded flows' lists of steps are chosen anew.
    pub(super) fn begin_edition(&mut self) {
        self.gate.edition = self.gate.edition.wrapping_add(1).max(1);
        self.ip.core.decide_anew();
    }
}

impl<D> Inside<'_, D> {
    /// A packet comes in: gives the frame back if it may, and what was said of it.
    pub(crate) fn come_in(
        &mut self,
        link: LinkId,
        frame: Frame,
        headers: &Headers,
    ) -> (Option<Frame>, Ruling) {
        if link == LOOPBACK || !matches!(headers.l3, L3::V4 { .. } | L3::V6 { .. }) {
            return (Some(frame), Ruling::default());
        }
        if self.is_awaited(link, &frame, headers) {
            return (Some(frame), Ruling::default());
        }
        let trace = frame.meta().trace;
        self.step(Step::Filter, Direction::In, trace, |it| it.come_in_asked(link, frame, headers))
    }

    fn come_in_asked(&mut self, link: LinkId, frame: Frame, headers: &Headers) -> (Option<Frame>, Ruling) {
        // All that is translated has its states here.
        if !self.shard.gate.has_nat()
            && let Some(lane) = self
                .lane_of_quoted(link, frame.as_slice(), headers)
                .or_else(|| self.lane_of_piece(link, frame.as_slice(), headers))
        {
            self.common.hand_over(lane, Stage::Door(self.shard.config.id), link, frame);
            return (None, Ruling::default());
        }
        // What was made before it is asked about before it.
        self.go_out();
        let ruling = self.judge(Direction::In, link, &frame, headers);
        if ruling.verdict == Verdict::Pass {
            return (self.keep_piece(link, frame, headers), ruling);
        }
        self.end_blocked(ruling.verdict, link, frame, headers);
        (None, ruling)
    }

    /// A packet ends that came in. Rules see it before IP does, so its ends may be anybody's.
    pub(crate) fn end_blocked(&mut self, verdict: Verdict, link: LinkId, frame: Frame, headers: &Headers) {
        let ends = headers.addresses();
        if let Verdict::Block(answer @ (BlockAnswer::Reset | BlockAnswer::Icmp { .. })) = verdict
            && ends.is_some_and(|(src, dst)| self.shard.ip.core.may_be_answered(link, src, dst))
        {
            self.answer_blocked(answer, link, frame.as_slice(), headers);
        }
        self.drop_frame(frame, reason(verdict));
    }

    /// What becomes of a packet.
    fn judge(&mut self, direction: Direction, link: LinkId, frame: &Frame, headers: &Headers) -> Ruling {
        let (now, trace) = (self.common.now, frame.meta().trace);
        let frame = frame.as_slice();
        let ruling = self.shard.gate.judge(direction, link, frame, headers, now);
        self.common.see(trace, Sight::Judged(self.shard.config.id, ruling.verdict, ruling.rule));
        self.heed(direction, link, frame, headers, ruling);
        ruling
    }

    /// Tells the operator of a packet, if a rule says so, and the lane that gets what comes back to it of its state.
    #[inline]
    pub(crate) fn heed(
        &mut self,
        direction: Direction,
        link: LinkId,
        frame: &[u8],
        headers: &Headers,
        ruling: Ruling,
    ) {
        if let Some(rule) = ruling.logged {
            self.tell_of(direction, link, frame, headers, (rule, ruling.verdict));
        }
        if ruling.is_news && headers.protocol == IpProtocol::UDP {
            self.tell_lane_of_return(direction, link, frame, headers, ruling.rule);
        }
    }

    /// Tells the operator of a packet, unless there are too many of them.
    #[cold]
    fn tell_of(
        &mut self,
        direction: Direction,
        link: LinkId,
        frame: &[u8],
        headers: &Headers,
        (rule, verdict): (u32, Verdict),
    ) {
        if !self.shard.gate.told.allow(self.common.now) {
            return;
        }
        let packet = &frame[usize::from(headers.l3_offset)..];
        let packet = self.shard.gate.begin_of(direction, link, packet, Some(rule), TOLD_BYTES);
        self.common.outbox.notices.push(Notice::Filtered(self.shard.config.id, packet, verdict));
    }

    /// Datagrams arrive in the lane of the port that they are for, so those that come back to a forwarded one arrive in another.
    #[cold]
    fn tell_lane_of_return(
        &mut self,
        direction: Direction,
        link: LinkId,
        frame: &[u8],
        headers: &Headers,
        rule: Option<u32>,
    ) {
        let Some((from, _)) = headers.ports else { return };
        let lane = datagram_lane(from, &self.shard.config.steering, &self.common.secrets.steering());
        if lane == self.common.id {
            return;
        }
        let packet = &frame[usize::from(headers.l3_offset)..];
        let packet = self.shard.gate.begin_of(direction, link, packet, rule, HEADERS_MAX);
        self.tell_lane(lane, Learned::Filtered(packet));
    }

    /// The other lane that has the state of what an ICMP error quotes.
    pub(super) fn lane_of_quoted(&self, link: LinkId, frame: &[u8], headers: &Headers) -> Option<LaneId> {
        if self.shard.others.is_empty()
            || !matches!(headers.protocol, IpProtocol::ICMPV4 | IpProtocol::ICMPV6)
        {
            return None;
        }
        let packet = Packet::read(Direction::In, link, &frame[usize::from(headers.l3_offset)..])?;
        let quoted = packet.quoted()?;
        let (from, to) = quoted.ports()?;
        let (steering, key) = (&self.shard.config.steering, self.common.secrets.steering());
        let lane = match quoted.protocol {
            IpProtocol::TCP => {
                let tuple = Tuple::new(IpProtocol::TCP, (quoted.src, from), (quoted.dst, to))?;
                self.lane_of_ends(&tuple)
            }
            IpProtocol::UDP => datagram_lane(from, steering, &key),
            _ => return None,
        };
        (lane != self.common.id).then_some(lane)
    }

    /// Tells the sender of a packet that ends here what the rule wants him to hear. The answer is the filter's own and no rule is asked
    /// about it.
    pub(super) fn answer_blocked(
        &mut self,
        answer: BlockAnswer,
        link: LinkId,
        frame: &[u8],
        headers: &Headers,
    ) {
        let bytes = &frame[usize::from(headers.l3_offset)..];
        self.go_out();
        match answer {
            BlockAnswer::Silent => return,
            BlockAnswer::Reset => self.reset_blocked(link, bytes),
            BlockAnswer::Icmp { code, as_dest } => {
                let now = self.common.now;
                self.shard.ip.core.refuse(now, bytes, code, as_dest, &mut self.common.pools);
                self.shard.ip.touch();
            }
        }
        match self.shard.gate.has_nat() {
            true => self.answer_goes_out(),
            false => self.shard.gate.asked = self.shard.ip.core.output().len(),
        }
    }

    /// Whom it is for knows the packet by its names outside, if it was translated before rules saw it.
    fn answer_goes_out(&mut self) {
        // Packets that have not been asked about may wait behind it.
        let answers = self.shard.ip.core.output().len().saturating_sub(self.shard.gate.asked);
        self.shard.gate.take_unasked(self.shard.ip.core.output());
        for _ in 0..answers {
            let Some(mut frame) = self.shard.gate.ready.pop() else { return };
            let link = frame.meta().ingress;
            let passed = match Headers::parse(frame.as_slice()) {
                Ok(headers) if link != LOOPBACK => self.translate_out(&mut frame, headers.l3_offset),
                _ => Ok(None),
            };
            match passed {
                Ok(_) => self.leave(frame),
                Err(stay) => self.stay(frame, stay),
            }
        }
    }

    /// RFC 9293 §3.10.7.1, in the name of whoever the segment was for.
    fn reset_blocked(&mut self, link: LinkId, bytes: &[u8]) {
        let Some(packet) = Packet::read(Direction::In, link, bytes) else { return };
        let (Some((from, to)), Some(segment)) = (packet.ports(), packet.segment()) else { return };
        let Some(reply) = reset_for(&segment_in(&segment, firelane_wire::Ecn::NotCapable)) else { return };
        if packet.is_for_many() || !self.shard.resets.allow(self.common.now) {
            return;
        }
        let Ok(mut egress) = self.shard.ip.core.egress(self.common.now, None, packet.src) else { return };
        egress.src = packet.dst;
        let [local, remote] =
            [(packet.dst, to), (packet.src, from)].map(|(ip, port)| SocketAddr::new(ip, port.0));
        self.send_by(&mut egress, local, remote, &reply);
    }

    /// What IP has made ready is asked about; what was said of the last of it.
    #[inline]
    pub(crate) fn go_out(&mut self) -> Option<Gone> {
        if !self.shard.gate.is_on() || self.shard.ip.core.output().len() == self.shard.gate.asked {
            return None;
        }
        self.rest_goes_out()
    }

    /// The same, and what may go leaves now.
    pub(crate) fn all_go_out(&mut self) {
        self.go_out();
        self.shard.gate.asked = 0;
    }

    fn rest_goes_out(&mut self) -> Option<Gone> {
        self.shard.gate.take_unasked(self.shard.ip.core.output());
        let mut last = None;
        while let Some(mut frame) = self.shard.gate.ready.pop() {
            last = Some(match self.go_out_asked(&mut frame) {
                Ok(gone) => {
                    self.leave(frame);
                    gone
                }
                Err((ruling, stay)) => {
                    self.answer_leaving(ruling.verdict, &frame);
                    self.stay(frame, stay);
                    Gone { ruling, session: None, stays: true }
                }
            });
            self.let_follow_out();
        }
        last
    }

    /// A frame was asked about and may go.
    pub(super) fn leave(&mut self, frame: Frame) {
        self.shard.ip.core.output().push(frame);
        self.shard.gate.let_out();
    }

    /// The frame that IP has made ready last ends here.
    pub(crate) fn end_last(&mut self, verdict: Verdict) {
        if let Some(frame) = self.shard.ip.core.output().pop_back() {
            self.answer_leaving(verdict, &frame);
            self.stay(frame, Stay::Ended(reason(verdict)));
        }
    }

    /// Tells the sender of a packet that may not leave what the rule wants him to hear: another station, or by the netstack's way to
    /// itself one of its own sockets.
    fn answer_leaving(&mut self, verdict: Verdict, frame: &Frame) {
        if let Verdict::Block(answer @ (BlockAnswer::Reset | BlockAnswer::Icmp { .. })) = verdict
            && let Ok(headers) = Headers::parse(frame.as_slice())
        {
            self.answer_blocked(answer, frame.meta().ingress, frame.as_slice(), &headers);
        }
    }

    /// A packet leaves: what was said of it, or why it stays.
    fn go_out_asked(&mut self, frame: &mut Frame) -> Result<Gone, (Ruling, Stay)> {
        let (link, pass) = (frame.meta().ingress, Gone::default());
        let Some(headers) = Headers::parse(frame.as_slice()).ok().filter(|_| link != LOOPBACK) else {
            return Ok(pass);
        };
        if !matches!(headers.l3, L3::V4 { .. } | L3::V6 { .. }) {
            return Ok(pass);
        }
        let mut ruling = Ruling::default();
        if self.shard.gate.has_filter() {
            ruling = self.step(Step::Filter, Direction::Out, frame.meta().trace, |it| {
                it.judge(Direction::Out, link, frame, &headers)
            });
            if ruling.verdict != Verdict::Pass {
                return Err((ruling, Stay::Ended(reason(ruling.verdict))));
            }
        }
        let session = match self.shard.gate.has_nat() {
            true => self.translate_out(frame, headers.l3_offset).map_err(|stay| (ruling, stay))?,
            false => None,
        };
        Ok(Gone { ruling, session, stays: false })
    }
}

/// Why a packet with this verdict ends.
const fn reason(verdict: Verdict) -> DropReason {
    match verdict {
        Verdict::NoRoom => DropReason::FilterFull,
        Verdict::OutOfWindow => DropReason::FilterWindow,
        Verdict::Pass | Verdict::Block(_) => DropReason::FilterBlocked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firelane_units::{FilterAction, FilterRule};
    use firelane_wire::{EtherType, EthernetRepr, Ipv4Repr};

    /// A datagram's frame.
    fn frame() -> Vec<u8> {
        let mac = |n| firelane_units::MacAddr([2, 0, 0, 0, 0, n]);
        let mut bytes = vec![0; 34];
        EthernetRepr { dst: mac(1), src: mac(2), ethertype: EtherType::IPV4 }.emit(&mut bytes);
        Ipv4Repr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::UDP, 8).emit(&mut bytes[14..]);
        bytes.extend([0, 7, 0, 53, 0, 8, 0, 0]);
        bytes
    }

    /// Rules may be about what stands before the ports, and the filter need not find the same ports behind it.
    #[test]
    fn what_is_said_of_a_packet_behind_extension_headers_is_said_of_no_other() {
        let mut gate = Gate::new(&Secrets::new([7; Secrets::BYTES]));
        let mut rule = FilterRule::new(Direction::In, FilterAction::Block(BlockAnswer::Silent));
        rule.matching.protocol = firelane_units::FilterProtocol::Number(17);
        gate.edition = 1;
        gate.filter.set_rules(vec![rule]);
        let packet = |before: &[u8], first: IpProtocol| {
            let payload = [before, &[0, 7, 0, 53, 0, 8, 0, 0]].concat();
            let mut bytes = frame();
            bytes.truncate(14);
            bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
            bytes.resize(54, 0);
            let [src, dst] = ["fd00::1", "fd00::2"].map(|text| text.parse().unwrap());
            firelane_wire::Ipv6Repr::new(src, dst, first, payload.len() as u16).emit(&mut bytes[14..]);
            [bytes, payload].concat()
        };
        // An authentication header, which is a protocol of its own for rules.
        let behind = packet(&[17, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0], IpProtocol::AUTHENTICATION);
        let plain = packet(&[], IpProtocol::UDP);
        for _ in 0..2 {
            for (frame, passes) in [(&behind, true), (&plain, false)] {
                let headers = Headers::parse(frame).unwrap();
                assert_eq!(headers.ports.map(|(_, to)| to.0), Some(53));
                let ruling = gate.judge(Direction::In, LinkId(1), frame, &headers, Instant::ZERO);
                assert_eq!(ruling.verdict == Verdict::Pass, passes);
            }
        }
    }

    #[test]
    fn what_is_for_all_of_a_flow_is_found_again() {
        let mut gate = Gate::new(&Secrets::new([7; Secrets::BYTES]));
        let rule = FilterRule::new(Direction::In, FilterAction::Block(BlockAnswer::Silent));
        gate.edition = 1;
        gate.filter.set_rules(vec![rule]);
        let frame = frame();
        let headers = Headers::parse(&frame).unwrap();
        for direction in Direction::ALL {
            let first = gate.judge(direction, LinkId(1), &frame, &headers, Instant::ZERO);
            let tuple = headers.tuple().unwrap();
            let said = gate.said[direction.index()].lookup(LinkId(1), &tuple, 1).expect("it is remembered");
            assert_eq!(said.ruling(&gate.filter), first, "{direction:?}");
            assert_eq!(gate.judge(direction, LinkId(1), &frame, &headers, Instant::ZERO), first);
        }
        assert_eq!((gate.counts().blocked, gate.counts().passed), ([2, 0], [0, 2]));
    }
}
