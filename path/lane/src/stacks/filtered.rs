//! The filter's two gates: what comes in to a netstack by a link passes one before IP, what leaves by a link the other behind IP.
//!
//! A known forwarded flow has the way in as a step of its list ([`Step::Filter`]); everything else is asked about before the
//! classifier says whose it is, so nothing goes round. The way out is one place for all: segments, datagrams, ICMP, forwarded packets, and
//! what waited for a neighbour. A verdict that is for all packets of a flow is remembered with the list of rules that it is of.
//! What a netstack sends to itself passes neither gate, as in the original.

use core::net::SocketAddr;
use core::num::NonZeroU32;

use firelane_classify::{FlowCache, Headers, L3, Tuple};
use firelane_filter::{Filter, FilterConfig, FilterCounts, Packet, Ruling, STATES_MAX, Verdict};
use firelane_frame::{Chain, Frame};
use firelane_ip::LOOPBACK;
use firelane_tcp::{ResetBudget, reset_for};
use firelane_units::{BlockAnswer, Direction, DropReason, Instant, LaneId, LinkId, NetstackId};
use firelane_wire::IpProtocol;

use super::inbound::{Inside, segment_in};
use super::shard::Shard;
use super::{NO_NETSTACK, Stacks};
use crate::config::Secrets;
use crate::control::Refusal;
use crate::message::{FilteredPacket, Learned, Stage};
use crate::outbox::Notice;
use crate::steer::{connection_lane, datagram_lane};
use crate::steps::Step;

/// Of how many packets the operator is told each second; a flood is not to fill his log.
const TOLD_PER_SECOND: u32 = 100;
/// How much of each is told.
const TOLD_BYTES: usize = 128;
/// The headers that a state is made of: IPv6's, as many extensions as are walked, and UDP's.
const HEADERS_MAX: usize = 40 + 512 + 8;

/// A shard's filter, and what it said of whole flows.
#[derive(Debug)]
pub(crate) struct Gate {
    filter: Filter,
    /// What it said, of each direction.
    said: [FlowCache<Said>; 2],
    /// The list of rules; zero is none.
    list: u32,
    /// Of the frames that IP has ready, those that the filter itself sends.
    own: Vec<usize>,
    /// Of how many packets the operator may still be told.
    told: ResetBudget,
    /// Storage of what is asked about on its way out.
    ready: Chain,
}

/// A ruling for all packets of a flow, small enough to share a cache line with the flow's names.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    verdict: Verdict,
    rule: Option<NonZeroU32>,
}

impl Said {
    fn of(ruling: Ruling) -> Self {
        Self { verdict: ruling.verdict, rule: ruling.rule.and_then(|rule| NonZeroU32::new(rule + 1)) }
    }

    fn ruling(self) -> Ruling {
        let rule = self.rule.map(|rule| rule.get() - 1);
        Ruling { verdict: self.verdict, rule, is_for_all: true, ..Ruling::default() }
    }
}

impl Gate {
    pub(crate) fn new(secrets: &Secrets) -> Self {
        let filter = Filter::new(secrets.filter(), STATES_MAX);
        Self {
            filter,
            said: [FlowCache::new(), FlowCache::new()],
            list: 0,
            own: Vec::new(),
            told: ResetBudget::new(TOLD_PER_SECOND),
            ready: Chain::new(),
        }
    }

    /// Whether anything is asked.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.filter.is_on()
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.filter.poll_at()
    }

    pub(crate) fn on_time(&mut self, now: Instant) {
        self.filter.on_time(now);
    }

    pub(crate) fn counts(&self) -> FilterCounts {
        self.filter.counts()
    }

    pub(crate) fn allocated_bytes(&self) -> usize {
        self.filter.allocated_bytes()
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
        let tuple = headers.tuple().filter(|_| !headers.tagged);
        let said = &mut self.said[direction.index()];
        if let Some(said) = tuple.and_then(|tuple| said.lookup(link, &tuple, self.list)) {
            let bytes = headers.l3_end.saturating_sub(headers.l3_offset.into());
            let ruling = said.ruling();
            self.filter.repeat(direction, bytes, ruling);
            return ruling;
        }
        let bytes = frame.get(usize::from(headers.l3_offset)..).unwrap_or_default();
        let Some(packet) = Packet::read(direction, link, bytes) else { return Ruling::default() };
        let ruling = self.filter.judge(&packet, now);
        if let Some(tuple) = tuple.filter(|_| ruling.is_for_all) {
            said.insert(link, &tuple, self.list, Said::of(ruling));
        }
        ruling
    }
}

impl Stacks {
    /// A netstack's filter follows other rules.
    pub(crate) fn set_filter(
        &mut self,
        now: Instant,
        id: NetstackId,
        config: FilterConfig,
    ) -> Result<(), Refusal> {
        let shard = self.shards.get_mut(id.index()).ok_or(NO_NETSTACK)?;
        shard.gate.list = shard.gate.list.wrapping_add(1).max(1);
        shard.gate.filter.set(config, now);
        // Forwarded flows' lists of steps are chosen anew.
        shard.ip.core.decide_anew();
        Ok(())
    }

    /// What a netstack's filter has counted in this lane.
    pub(crate) fn filter_counts(&self, id: NetstackId) -> Option<FilterCounts> {
        self.shards.get(id.index()).map(|shard| shard.gate.counts())
    }
}

impl<D> Inside<'_, D> {
    /// A packet comes in: gives the frame back if it may.
    pub(crate) fn come_in(&mut self, link: LinkId, frame: Frame, headers: &Headers) -> Option<Frame> {
        if link == LOOPBACK || !matches!(headers.l3, L3::V4 { .. } | L3::V6 { .. }) {
            return Some(frame);
        }
        let trace = frame.meta().trace;
        self.step(Step::Filter, Direction::In, trace, |it| it.come_in_asked(link, frame, headers))
    }

    fn come_in_asked(&mut self, link: LinkId, frame: Frame, headers: &Headers) -> Option<Frame> {
        if let Some(lane) = self.lane_of_quoted(link, frame.as_slice(), headers) {
            self.common.hand_over(lane, Stage::Door(self.shard.config.id), link, frame);
            return None;
        }
        let verdict = self.judge(Direction::In, link, frame.as_slice(), headers);
        if verdict == Verdict::Pass {
            return Some(frame);
        }
        if let Verdict::Block(answer) = verdict {
            self.answer_blocked(answer, link, frame.as_slice(), headers);
        }
        self.drop_frame(frame, reason(verdict));
        None
    }

    /// What becomes of a packet. The lane that gets what comes back to it hears of its state.
    fn judge(&mut self, direction: Direction, link: LinkId, frame: &[u8], headers: &Headers) -> Verdict {
        let now = self.common.now;
        let ruling = self.shard.gate.judge(direction, link, frame, headers, now);
        if let Some(rule) = ruling.logged {
            self.tell_of(direction, link, frame, headers, (rule, ruling.verdict));
        }
        if ruling.is_news && headers.protocol == IpProtocol::UDP {
            self.tell_lane_of_return(direction, link, frame, headers, ruling.rule);
        }
        ruling.verdict
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
    fn lane_of_quoted(&self, link: LinkId, frame: &[u8], headers: &Headers) -> Option<LaneId> {
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
                connection_lane(&tuple, steering, &key)
            }
            IpProtocol::UDP => datagram_lane(from, steering, &key),
            _ => return None,
        };
        (lane != self.common.id).then_some(lane)
    }

    /// Tells the sender of a packet that ends here what the rule wants him to hear. The answer is the filter's own and is asked
    /// about no more.
    fn answer_blocked(&mut self, answer: BlockAnswer, link: LinkId, frame: &[u8], headers: &Headers) {
        let bytes = &frame[usize::from(headers.l3_offset)..];
        let before = self.shard.ip.core.output().len();
        match answer {
            BlockAnswer::Silent => return,
            BlockAnswer::Reset => self.reset_blocked(link, bytes),
            BlockAnswer::Icmp { code, as_dest } => {
                let now = self.common.now;
                self.shard.ip.core.refuse(now, bytes, code, as_dest, &mut self.common.pools);
                self.shard.ip.touch();
            }
        }
        let after = self.shard.ip.core.output().len();
        self.shard.gate.own.extend(before..after);
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

    /// What IP has ready leaves, or ends here.
    pub(crate) fn go_out(&mut self) {
        if !self.shard.gate.is_on() || self.shard.ip.core.output().is_empty() {
            return;
        }
        let Shard { gate, ip, .. } = &mut *self.shard;
        core::mem::swap(&mut gate.ready, ip.core.output());
        let mut nth = 0;
        while let Some(frame) = self.shard.gate.ready.pop() {
            let is_asked = frame.meta().ingress != LOOPBACK && !self.shard.gate.own.contains(&nth);
            nth += 1;
            let verdict = if is_asked { self.go_out_asked(&frame) } else { Verdict::Pass };
            if verdict == Verdict::Pass {
                self.shard.ip.core.output().push(frame);
            } else {
                self.shard.ip.take_out();
                self.drop_frame(frame, reason(verdict));
            }
        }
        self.shard.gate.own.clear();
    }

    fn go_out_asked(&mut self, frame: &Frame) -> Verdict {
        let Ok(headers) = Headers::parse(frame.as_slice()) else { return Verdict::Pass };
        if !matches!(headers.l3, L3::V4 { .. } | L3::V6 { .. }) {
            return Verdict::Pass;
        }
        let link = frame.meta().ingress;
        self.step(Step::Filter, Direction::Out, frame.meta().trace, |it| {
            it.judge(Direction::Out, link, frame.as_slice(), &headers)
        })
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

    #[test]
    fn what_is_for_all_of_a_flow_is_found_again() {
        let mut gate = Gate::new(&Secrets::new([7; Secrets::BYTES]));
        let rule = FilterRule::new(Direction::In, FilterAction::Block(BlockAnswer::Silent));
        gate.list = 1;
        gate.filter.set(FilterConfig { rules: vec![rule], pools: Vec::new() }, Instant::ZERO);
        let frame = frame();
        let headers = Headers::parse(&frame).unwrap();
        for direction in Direction::ALL {
            let first = gate.judge(direction, LinkId(1), &frame, &headers, Instant::ZERO);
            let tuple = headers.tuple().unwrap();
            let said = gate.said[direction.index()].lookup(LinkId(1), &tuple, 1).expect("it is remembered");
            assert_eq!(said.ruling(), first, "{direction:?}");
            assert_eq!(gate.judge(direction, LinkId(1), &frame, &headers, Instant::ZERO), first);
        }
        assert_eq!((gate.counts().blocked, gate.counts().passed), ([2, 0], [0, 2]));
    }
}
