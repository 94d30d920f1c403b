//! TCP Fast Open in a netstack's shard (RFC 7413): what a connect offers, which SYN a listener takes at once.
//!
//! Asked by `open.rs` when connections begin, and by `events.rs` when their handshakes are over. Cookies are told to the
//! netstack's other lanes, as neighbours are; the server needs to tell nobody, because every lane makes the same ones.

use core::net::{IpAddr, SocketAddr};

use firelane_ip::Egress;
use firelane_socket::Names;
use firelane_tcp::{
    Birth, CloseReason, Connection, FastOpenAnswer, FastOpenOffer, FastOpenPolicy, Rings, SegmentIn, Tuple,
};
use firelane_units::{ConnId, DropReason, Instant, NetstackId, SocketId};
use firelane_wire::{FastOpen, TcpOptions};

use super::Stacks;
use super::conn::Conn;
use super::inbound::{Inside, TABLED};
use super::open::{set_congestion, set_options};
use super::outbound::mss_of;
use crate::message::{Learned, StreamOptions};

/// What goes with the SYN of a connection that opens fast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SynText {
    /// The address that it goes from.
    pub source: IpAddr,
    /// How much text it carries, whatever its other options are (Linux: `tcp_send_syn_data`).
    pub room: usize,
}

impl Stacks {
    /// What a connect that asks for Fast Open would do, if its SYN would carry text by now, so that its program does well to wait
    /// with it until there is some. Where there is no way to the peer, the connect says so.
    pub(crate) fn opens_with_text(
        &mut self,
        now: Instant,
        id: NetstackId,
        (local, remote): (Option<SocketAddr>, SocketAddr),
        options: &StreamOptions,
    ) -> Option<SynText> {
        let shard = self.shards.get_mut(id)?;
        let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        let from = local.map(|it| it.ip().to_canonical()).filter(|ip| !ip.is_unspecified());
        let found = shard.ip.core.egress_for(now, options.link, from, remote.ip());
        let egress = found.ok()?;
        let config = &shard.config.tcp;
        let default = config.default_mss[usize::from(remote.is_ipv6())];
        let policy = config.fast_open.trusting(options.fast_open_trusts);
        let tuple = Tuple::new(SocketAddr::new(egress.src, 0), remote);
        let offer = shard.fast_opens.offer(now, &tuple, policy, default).filter(|offer| offer.text)?;
        let ours = options.mss_limit.map_or(mss_of(&egress), |limit| limit.min(mss_of(&egress)));
        let segment = usize::from(offer.mss.min(ours).bytes());
        Some(SynText { source: egress.src, room: segment.saturating_sub(TcpOptions::MAX_LEN) })
    }
}

impl<D> Inside<'_, D> {
    /// What the SYN of a connect may carry, if its program asked.
    pub(super) fn offer_fast_open(
        &mut self,
        names: &Names,
        options: &StreamOptions,
    ) -> Option<FastOpenOffer> {
        if !options.fast_open {
            return None;
        }
        let config = &self.shard.config.tcp;
        let default = config.default_mss[usize::from(names.remote.is_ipv6())];
        let tuple = Tuple::new(names.local, names.remote);
        let policy = config.fast_open.trusting(options.fast_open_trusts);
        self.shard.fast_opens.offer(self.common.now, &tuple, policy, default)
    }

    /// What a listener does with a SYN.
    pub(super) fn judge_fast_open(
        &mut self,
        listener: SocketId,
        names: &Names,
        seg: &SegmentIn<'_>,
    ) -> FastOpenAnswer {
        if seg.options.fast_open().is_none() && seg.payload.is_empty() {
            return FastOpenAnswer::Ordinary;
        }
        let Some(listening) = self.shard.listening.get(listener.0) else {
            return FastOpenAnswer::Ordinary;
        };
        let config = &self.shard.config.tcp;
        let limit = match listening.options.fast_open_queue {
            0 if config.fast_open.allows(FastOpenPolicy::EVERY_LISTENER) => listening.slot.backlog() as u32,
            asked => asked,
        };
        // RFC 4987: under pressure a SYN costs nothing here, so it brings nothing about either.
        let is_stateless =
            self.shard.half_open.wants_cookie(listener, config) || self.shard.asks_nobody(self.common.now);
        if limit == 0 || is_stateless {
            return FastOpenAnswer::Ordinary;
        }
        let tuple = Tuple::new(names.local, names.remote);
        let policy = config.fast_open.trusting(listening.options.fast_open_trusts);
        let server = &mut self.shard.fast_open_server;
        server.on_syn(self.common.now, &tuple, (listener, limit), policy, seg)
    }

    /// A SYN with a good cookie: its connection begins, and waits in the accept queue with the SYN's text.
    pub(super) fn accept_fast(
        &mut self,
        listener: SocketId,
        names: Names,
        birth: &Birth,
        renewed: Option<FastOpen>,
        egress: Egress,
        seg: &SegmentIn<'_>,
    ) -> Result<(), DropReason> {
        let Some(listening) = self.shard.listening.get(listener.0) else {
            return Err(DropReason::NoConnection);
        };
        let tuple = Self::tuple(names.local, names.remote).ok_or(DropReason::BadSegment)?;
        let (now, config) = (self.common.now, &self.shard.config.tcp);
        let made = listening.slot.stream(listening.rings, self.common.id, self.shard.config.id);
        let Some((end, mut stream)) = made else {
            // It was counted, and there is no connection that would end.
            self.shard.fast_open_server.on_end(now, listener, false);
            return Err(DropReason::ListenFull);
        };
        let mut rings = Rings { send: &mut stream.send, recv: &mut stream.recv };
        let (mut tcp, told) = Connection::accept_fast(config, birth, seg, renewed, now, &mut rings);
        set_options(&mut tcp, &listening.options, config, now);
        set_congestion(&mut tcp, &listening.options, egress.hint, now);
        let netstack = self.shard.config.id;
        let mut conn = Conn::new(tcp, stream, netstack, Some(egress), &mut self.conns.spares);
        conn.came_by(listener, end);
        conn.obey(&listening.options, names.remote);
        self.shard.tcp_counters.passive_opens += 1;
        let id = self.enter(conn, &tuple, names);
        self.note_brought(listener, id);
        let dropped = told.dropped;
        self.conclude(id, told);
        dropped.map_or(Ok(()), Err)
    }

    /// A connection's handshake is over, well or not: what has it shown?
    pub(super) fn note_fast_open(&mut self, id: ConnId, closed: Option<CloseReason>) {
        let now = self.common.now;
        let Some(conn) = self.conns.slab.get_mut(id) else { return };
        let (report, is_over) = (conn.tcp().take_fast_open_report(closed), conn.tcp().take_fast_open_end());
        if let Some(report) = report
            && let Some(Names { local, remote }) = conn.stream.shared().names()
            && let Some(news) = self.shard.fast_opens.learn(now, &Tuple::new(local, remote), report)
        {
            self.tell_lanes(&Learned::FastOpen(news));
        } else if is_over && let Some(listener) = conn.listener() {
            self.shard.fast_open_server.on_end(
                now,
                listener,
                matches!(closed, Some(CloseReason::Reset | CloseReason::BrokenPipe)),
            );
        }
    }

    /// Text of a connection is not acknowledged: does its way bear no Fast Open?
    pub(super) fn doubt_fast_open(&mut self, id: ConnId) {
        if self.conns.slab.get_mut(id).expect(TABLED).tcp().take_black_hole() {
            self.shard.fast_opens.on_black_hole(self.common.now);
        }
    }
}
