//! The tables of what is not yet a connection, or was one, against any order of segments and time.
//!
//! The laws: both stay within their limits, counts agree with each other, time empties them, and what grows
//! out of a half-open entry is a connection that works.

use std::sync::Arc;
use std::time::Duration;

use firelane_frame::byte_ring;
use firelane_tcp::{
    Birth, HalfOpen, NewRing, Opening, Rings, SegmentIn, SegmentOut, SynAnswer, SynCookies, SynTable,
    TcpConfig, TimeWaitTable, TimestampClock, TransmitLimits, Tuple,
};
use firelane_units::{Bytes, Instant, Mss, SeqNum, SocketId};
use firelane_wire::{Ecn, TcpFlags, TcpOptions};

use crate::feedback::note;
use crate::input::Input;

const OF_ONE_LISTENER: u32 = 4;
const IN_ALL: u32 = 6;
const TIME_WAIT_LIMIT: usize = 3;

struct Tables {
    syn: SynTable,
    time_wait: TimeWaitTable,
    /// One without cookies, one with them beyond the limits, by the high bits of the peer.
    configs: [Arc<TcpConfig>; 8],
    now: Instant,
}

/// Steps of three bytes or more.
pub fn target_tcp_tables(data: &[u8]) {
    let mut input = Input::new(data);
    let mut tables = Tables {
        syn: SynTable::new([7; 16], [9; 16], IN_ALL),
        time_wait: TimeWaitTable::new([8; 16], Duration::from_secs(60), TIME_WAIT_LIMIT),
        configs: core::array::from_fn(|n| {
            let syn_cookies = [SynCookies::Off, SynCookies::Pressure][n & 1];
            Arc::new(TcpConfig { syn_cookies, half_open_max: OF_ONE_LISTENER, ..TcpConfig::default() })
        }),
        now: Instant::from_secs(1000),
    };
    for _ in 0..500 {
        if input.is_empty() {
            break;
        }
        tables.step(&mut input);
        tables.check();
    }
    // Whatever is left goes away by itself.
    for _ in 0..200 {
        let Some(at) = [tables.syn.poll_at(), tables.time_wait.poll_at()].into_iter().flatten().min() else {
            break;
        };
        tables.now = tables.now.max(at);
        tables.on_time();
    }
    assert!(tables.syn.is_empty() && tables.time_wait.is_empty(), "{tables:?}", tables = tables.syn);
}

fn tuple(peer: u8) -> Tuple {
    Tuple::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, peer % 12], 4000).into())
}

fn birth(peer: u8) -> Birth {
    Birth {
        iss: SeqNum(u32::MAX - u32::from(peer)),
        clock: TimestampClock::from_offset(9),
        mss: Mss::clamped(1460),
        peer_default: Mss::DEFAULT_V4,
    }
}

fn opening(config: &Arc<TcpConfig>, peer: u8) -> Opening<'_> {
    Opening {
        tuple: tuple(peer),
        listener: SocketId(u32::from(peer & 1)),
        config,
        birth: birth(peer),
        room: NewRing::of(65_536),
        reopens: peer & 0x1f == 0x1f,
        stateless: false,
        defer: if peer & 0x0f == 3 { 2 } else { 0 },
    }
}

/// What grows out of a handshake is a connection that works.
fn grow_up(half_open: HalfOpen, now: Instant, seg: &SegmentIn<'_>) {
    let mut connection = half_open.connection();
    let (_writer, mut send) = byte_ring(1 << 16);
    let (mut recv, _reader) = byte_ring(1 << 16);
    let rings = &mut Rings { send: &mut send, recv: &mut recv };
    connection.on_segment(now, seg, rings);
    let limits = TransmitLimits { max_segment_payload: Bytes(1460) };
    for count in 0.. {
        assert!(count < 100);
        if connection.poll_transmit(now, rings, &limits).is_none() {
            break;
        }
    }
}

impl Tables {
    fn step(&mut self, input: &mut Input<'_>) {
        let (what, peer) = (input.u8(), input.u8());
        match what & 7 {
            0 | 1 => self.on_syn(peer, input),
            2..=4 => self.on_segment(what, peer, input),
            5 => {
                self.now += Duration::from_micros(input.amount() << 4);
                self.on_time();
            }
            6 if peer & 7 == 0 => self.syn.forget_listener(SocketId(u32::from(what >> 7)), |_, _| {}),
            _ => self.close_one(peer),
        }
    }

    fn segment(
        &self,
        input: &mut Input<'_>,
        seq: SeqNum,
        ack: Option<SeqNum>,
        flags: TcpFlags,
    ) -> SegmentIn<'static> {
        let options = TcpOptions::parse(input.take(12));
        let window = input.u16();
        SegmentIn { seq, ack, flags, window, urgent: 0, options, payload: &[], ecn: Ecn::NotCapable }
    }

    fn on_syn(&mut self, peer: u8, input: &mut Input<'_>) {
        let seg = self.segment(input, SeqNum(u32::from(peer)), None, TcpFlags::SYN);
        match self.syn.on_segment(self.now, &tuple(peer), &seg, |_| true) {
            SynAnswer::Unknown => {}
            _ => return note("repeated SYN"),
        }
        let (before, cookies) = (self.syn.len(), self.syn.counters().cookies_sent);
        let config = Arc::clone(&self.configs[usize::from(peer >> 5)]);
        let opening = opening(&config, peer);
        let answer = self.syn.on_syn(self.now, &opening, &seg);
        let is_cookie = self.syn.counters().cookies_sent > cookies;
        note(("syn", answer.is_ok(), is_cookie, before));
        assert!(!is_cookie || self.syn.len() == before, "a cookie costs nothing");
        if let Ok(out) = answer {
            assert_eq!(out.ack, Some(seg.seq + 1));
            assert!(out.flags.contains(TcpFlags::SYN));
            if is_cookie {
                self.return_cookie(&opening, &seg, &out, input);
            }
        }
    }

    /// The peer answers a cookie, with a mistake or none.
    fn return_cookie(
        &mut self,
        opening: &Opening<'_>,
        syn: &SegmentIn<'_>,
        out: &SegmentOut,
        input: &mut Input<'_>,
    ) {
        let mistake = u32::from(input.u8() & 1);
        let echo = out.options.timestamps.map(|(value, _)| (1, value));
        let options = TcpOptions { timestamps: echo, ..TcpOptions::EMPTY };
        let ack = Some(out.seq + 1 + mistake);
        let seg = SegmentIn { seq: syn.seq + 1, ack, flags: TcpFlags::ACK, options, ..*syn };
        let read = self.syn.on_cookie(self.now, opening, &seg).expect("a cookie is out");
        match read {
            Ok(half_open) => grow_up(half_open, self.now, &seg),
            Err(_) => assert_eq!(mistake, 1, "our own cookie is believed"),
        }
    }

    fn on_segment(&mut self, what: u8, peer: u8, input: &mut Input<'_>) {
        let off = |bits: u8| [0, 0, 0, 1, u32::MAX, 1 << 20, 1 << 31, 2][usize::from(bits & 7)];
        let seq = SeqNum(u32::from(peer)) + 1 + off(what >> 3);
        let ack = birth(peer).iss + 1 + off(what >> 5);
        let bits = input.u8();
        let flags = if bits & 3 == 0 { TcpFlags::ACK } else { TcpFlags::from_bits(bits.into()) };
        let seg = self.segment(input, seq, flags.ack().then_some(ack), flags);
        let answer = self.time_wait.on_segment(self.now, &tuple(peer), &seg, true);
        note(core::mem::discriminant(&answer));
        let before = self.syn.len();
        let answer = self.syn.on_segment(self.now, &tuple(peer), &seg, |_| bits & 64 == 0);
        note(core::mem::discriminant(&answer));
        if let SynAnswer::Promote(half_open) = answer {
            assert_eq!(self.syn.len() + 1, before);
            grow_up(half_open, self.now, &seg);
        }
    }

    /// A connection that is closed by both ends leaves a record.
    fn close_one(&mut self, peer: u8) {
        use firelane_tcp::Connection;
        let (_writer, mut send) = byte_ring(1 << 10);
        let (mut recv, _reader) = byte_ring(1 << 10);
        let rings = &mut Rings { send: &mut send, recv: &mut recv };
        let seg = |seq: u32, ack: Option<SeqNum>, flags| SegmentIn {
            seq: SeqNum(seq),
            ack,
            flags,
            window: 1000,
            urgent: 0,
            options: TcpOptions::default(),
            payload: &[],
            ecn: Ecn::NotCapable,
        };
        let limits = TransmitLimits { max_segment_payload: Bytes(1460) };
        let (now, iss) = (self.now, birth(peer).iss);
        let syn = seg(5, None, TcpFlags::SYN);
        let mut connection = Connection::from_syn(&self.configs[0], &birth(peer), &syn, now);
        while connection.poll_transmit(now, rings, &limits).is_some() {}
        connection.on_segment(now, &seg(6, Some(iss + 1), TcpFlags::ACK), rings);
        connection.shutdown_send(now, rings);
        while connection.poll_transmit(now, rings, &limits).is_some() {}
        connection.on_segment(now, &seg(6, Some(iss + 2), TcpFlags::ACK | TcpFlags::FIN), rings);
        let record = connection.time_wait_record(tuple(peer)).expect("both ends closed, ours first");
        let taken = self.time_wait.insert(now, record);
        note(("time wait", taken, self.time_wait.len()));
    }

    fn on_time(&mut self) {
        let now = self.now;
        let mut sent = 0;
        self.syn.on_timer(now, |_, out| {
            assert!(out.flags.contains(TcpFlags::SYN));
            sent += 1;
        });
        assert!(sent <= 6 * 16, "each entry has a handful of retries");
        self.time_wait.on_timer(now);
        for at in [self.syn.poll_at(), self.time_wait.poll_at()].into_iter().flatten() {
            assert!(at > now, "a deadline that stays due");
        }
    }

    fn check(&self) {
        assert!(self.syn.len() <= IN_ALL as usize);
        assert!(self.time_wait.len() <= TIME_WAIT_LIMIT);
        let by_listener: u32 = (0..2).map(|n| self.syn.len_of(SocketId(n))).sum();
        assert_eq!(by_listener as usize, self.syn.len());
    }
}
