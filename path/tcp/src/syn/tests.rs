//! The table of half-open connections: cases, limits and cookies.

use super::*;
use crate::connection::Connection;
use crate::isn::TimestampClock;
use crate::state::State;
use firelane_units::{Mss, SeqNum};
use firelane_wire::{Ecn, TcpOptions};

const LISTENER: SocketId = SocketId(7);
const ISS: SeqNum = SeqNum(5000);
const IRS: SeqNum = SeqNum(100);

fn tuple(port: u16) -> Tuple {
    Tuple::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], port).into())
}

fn birth() -> Birth {
    let clock = TimestampClock::from_offset(77);
    Birth { iss: ISS, clock, mss: Mss::clamped(1460), peer_default: Mss::DEFAULT_V4 }
}

fn seg(seq: SeqNum, ack: Option<SeqNum>, flags: TcpFlags, options: TcpOptions) -> SegmentIn<'static> {
    let ecn = Ecn::NotCapable;
    SegmentIn { seq, ack, flags, window: 1000, urgent: 0, options, payload: &[], ecn }
}

fn syn() -> SegmentIn<'static> {
    let options = TcpOptions { mss: Some(1400), window_scale: Some(3), ..TcpOptions::EMPTY };
    seg(IRS, None, TcpFlags::SYN, options)
}

fn stamped_syn() -> SegmentIn<'static> {
    let mut syn = syn();
    syn.options.timestamps = Some((40, 0));
    syn.options.sack_permitted = true;
    syn
}

fn at(secs: u64) -> Instant {
    Instant::from_secs(1000 + secs)
}

fn table(most: u32) -> SynTable {
    SynTable::new([1; 16], [2; 16], most)
}

fn config(syn_cookies: SynCookies) -> Arc<TcpConfig> {
    limited(syn_cookies, TcpConfig::default().half_open_max)
}

fn limited(syn_cookies: SynCookies, half_open_max: u32) -> Arc<TcpConfig> {
    Arc::new(TcpConfig { syn_cookies, half_open_max, ..TcpConfig::default() })
}

fn opening(config: &Arc<TcpConfig>, port: u16) -> Opening<'_> {
    let room = NewRing::of(65_536);
    Opening {
        tuple: tuple(port),
        listener: LISTENER,
        config,
        birth: birth(),
        room,
        reopens: false,
        stateless: false,
        defer: 0,
    }
}

fn open(table: &mut SynTable, now: Instant, port: u16) -> Result<SegmentOut, DropReason> {
    table.on_syn(now, &opening(&config(SynCookies::Off), port), &syn())
}

/// RFC 7323 §3.2 and §5.3, before there is a connection (Linux: `tcp_check_req`).
#[test]
fn an_acknowledgment_with_an_old_timestamp_or_none_makes_no_connection() {
    let config = config(SynCookies::Off);
    let mut table = table(10);
    table.on_syn(at(0), &opening(&config, 1), &stamped_syn()).expect("there is room");
    let bare = seg(IRS + 1, Some(ISS + 1), TcpFlags::ACK, TcpOptions::EMPTY);
    let answer = table.on_segment(at(0), &tuple(1), &bare, |_| true);
    assert!(matches!(answer, SynAnswer::Drop(DropReason::OldTimestamp)), "{answer:?}");
    let stamped = |value| {
        let mut ack = bare;
        ack.options.timestamps = Some((value, 0));
        ack
    };
    // The SYN had 40.
    let answer = table.on_segment(at(0), &tuple(1), &stamped(39), |_| true);
    assert!(matches!(answer, SynAnswer::Reply(_)), "{answer:?}");
    assert_eq!(table.len(), 1);
    let answer = table.on_segment(at(0), &tuple(1), &stamped(40), |_| true);
    assert!(matches!(answer, SynAnswer::Promote(_)), "{answer:?}");
    // Who has not said that he has timestamps need have none.
    table.on_syn(at(0), &opening(&config, 2), &syn()).expect("there is room");
    let answer = table.on_segment(at(0), &tuple(2), &bare, |_| true);
    assert!(matches!(answer, SynAnswer::Promote(_)), "{answer:?}");
}

/// What the entry says to a segment: (seq offset from IRS, ack offset from ISS, flags) -> answer.
#[test]
fn answers() {
    let (ack, rst, syn_bit) = (TcpFlags::ACK, TcpFlags::RST, TcpFlags::SYN);
    for (seq, acked, flags, answer, left) in [
        (0, None, syn_bit, "SYN-ACK", 1),
        (1, Some(1), ack, "promote", 0),
        (1, Some(1), ack.with(TcpFlags::FIN), "promote", 0),
        (1, Some(2), ack, "RST", 1),
        (1, None, TcpFlags::EMPTY, "drop", 1),
        (0, Some(1), ack, "ACK", 1),
        (70_000, Some(1), ack, "ACK", 1),
        (5, None, syn_bit, "ACK", 1),
        (1, None, rst, "drop", 0),
        (2, None, rst, "ACK", 1),
        (70_000, None, rst, "drop", 1),
        (0, None, rst, "drop", 1),
    ] {
        let mut table = table(10);
        open(&mut table, at(0), 1).expect("room");
        let seg = seg(IRS + seq, acked.map(|ahead| ISS + ahead), flags, TcpOptions::EMPTY);
        let said = match table.on_segment(at(0), &tuple(1), &seg, |listener| listener == LISTENER) {
            SynAnswer::Unknown => "unknown",
            SynAnswer::Drop(_) => "drop",
            SynAnswer::Waits => "waits",
            SynAnswer::Reply(out) if out.flags.contains(TcpFlags::RST) => "RST",
            SynAnswer::Reply(out) if out.flags.contains(TcpFlags::SYN) => "SYN-ACK",
            SynAnswer::Reply(_) => "ACK",
            SynAnswer::Promote(half_open) => {
                let state = half_open.connection().state();
                assert_eq!((state, half_open.listener()), (State::SynReceived, LISTENER));
                "promote"
            }
        };
        assert_eq!((said, table.len()), (answer, left), "{seq} {acked:?} {flags:?}");
    }
}

/// RFC 5961 §7: two entries that are out of step, as two SYNs in others' names make them, do not answer each other without end.
#[test]
fn entries_that_are_out_of_step_do_not_answer_each_other_without_end() {
    let mut tables = [table(10), table(10)];
    let replies = tables.each_mut().map(|table| open(table, at(0), 1).expect("room"));
    let mut under_way = replies.map(|out| seg(out.seq + 1_000_000, out.ack, out.flags, out.options));
    let mut answers = 0;
    for round in 0..100 {
        for end in 0..2 {
            let now = at(round / 50);
            if let SynAnswer::Reply(out) =
                tables[end].on_segment(now, &tuple(1), &under_way[1 - end], |_| true)
            {
                under_way[end] = seg(out.seq + 1_000_000, out.ack, out.flags, out.options);
                answers += 1;
            }
        }
    }
    assert_eq!((answers, tables.map(|table| table.len())), (4, [1, 1]), "each once in each time");
}

/// R08: with the accept queue full the last ACK is dropped, not answered with a RST; the entry waits.
#[test]
fn r08_a_full_accept_queue_drops_the_last_ack() {
    let mut table = table(10);
    open(&mut table, at(0), 1).expect("room");
    let ack = seg(IRS + 1, Some(ISS + 1), TcpFlags::ACK, TcpOptions::EMPTY);
    for _ in 0..3 {
        let answer = table.on_segment(at(0), &tuple(1), &ack, |_| false);
        assert!(matches!(answer, SynAnswer::Drop(DropReason::ListenFull)), "{answer:?}");
    }
    let mut repeated = 0;
    table.on_timer(at(1), |_, _| repeated += 1);
    assert_eq!((repeated, table.counters().repeated), (1, 1));
    assert!(matches!(table.on_segment(at(1), &tuple(1), &ack, |_| true), SynAnswer::Promote(_)));
}

#[test]
fn the_answer_repeats_what_both_agree_on() {
    let out = open(&mut table(1), at(0), 1).expect("room");
    assert_eq!((out.seq, out.ack, out.window), (ISS, Some(SeqNum(101)), 64_240));
    assert_eq!((out.options.mss, out.options.window_scale), (Some(1460), Some(7)));
    assert_eq!((out.options.timestamps, out.options.sack_permitted), (None, false));
}

#[test]
fn a_syn_ack_is_repeated_five_times_and_forgotten() {
    let mut table = table(10);
    open(&mut table, at(0), 1).expect("room");
    let mut sent = Vec::new();
    while let Some(due) = table.poll_at() {
        table.on_timer(due, |_, out| {
            assert!(out.flags.contains(TcpFlags::SYN));
            sent.push(due.saturating_since(at(0)).as_secs());
        });
    }
    assert_eq!(sent, [1, 3, 7, 15, 31]);
    assert!(table.is_empty() && table.len_of(LISTENER) == 0);
    assert_eq!(table.counters().failed, 1, "the attempt has failed (RFC 4022 tcpAttemptFails)");
}

/// `_conn_req_max_q0` is asked with every SYN: a listener that waits follows at once, upwards and downwards.
#[test]
fn a_changed_limit_holds_for_a_listener_that_is_there() {
    let mut small = table(10);
    let mut syn_at = |port, most| {
        let answer = small.on_syn(at(0), &opening(&limited(SynCookies::Off, most), port), &syn());
        (answer.err(), small.len())
    };
    let full = Some(DropReason::HalfOpenFull);
    let steps = [
        (1, 2, None, 1),
        (2, 2, None, 2),
        (3, 2, full, 2),
        (3, 3, None, 3),
        (4, 3, full, 3),
        (4, 1, full, 3),
    ];
    for (port, most, refused, len) in steps {
        assert_eq!(syn_at(port, most), (refused, len), "{port} {most}");
    }
    let config = limited(SynCookies::Off, 1);
    let other = Opening { listener: SocketId(8), ..opening(&config, 5) };
    assert!(small.on_syn(at(0), &other, &syn()).is_ok(), "each listener by itself");
}

#[test]
fn limits_hold_and_an_unanswered_entry_gives_way() {
    let mut full = table(2);
    open(&mut full, at(0), 1).expect("room");
    assert!(open(&mut full, at(1), 2).is_ok());
    assert_eq!(open(&mut full, at(1), 3), Err(DropReason::HalfOpenFull));
    full.on_timer(at(1), |_, _| {});
    assert!(open(&mut full, at(1), 3).is_ok());
    assert_eq!(full.counters().evicted, 1);
    assert!(matches!(full.on_segment(at(1), &tuple(1), &syn(), |_| true), SynAnswer::Unknown));
    assert!(matches!(full.on_segment(at(1), &tuple(2), &syn(), |_| true), SynAnswer::Reply(_)));
    full.forget_listener(LISTENER, |_, _| panic!("nobody has answered"));
    assert!(full.is_empty());
    assert_eq!((full.counters().evicted, full.counters().failed), (1, 2), "who gave way counts apart");
}

#[test]
fn only_what_becomes_a_connection_is_no_failed_attempt() {
    let mut table = table(10);
    let (answer, _) = (open(&mut table, at(0), 1).expect("room"), open(&mut table, at(0), 2).expect("room"));
    let reset = seg(IRS + 1, None, TcpFlags::RST, TcpOptions::EMPTY);
    assert!(matches!(table.on_segment(at(0), &tuple(2), &reset, |_| true), SynAnswer::Drop(_)));
    assert_eq!(table.counters().failed, 1);
    assert!(matches!(table.on_segment(at(0), &tuple(1), &ack_of(&answer), |_| true), SynAnswer::Promote(_)));
    assert_eq!((table.counters().failed, table.is_empty()), (1, true));
}

/// The ACK of a peer that got `answer`, `later` seconds after.
fn ack_of(answer: &SegmentOut) -> SegmentIn<'static> {
    let echo = answer.options.timestamps.map(|(value, _)| (41, value));
    let options = TcpOptions { timestamps: echo, ..TcpOptions::EMPTY };
    seg(IRS + 1, Some(answer.seq + 1), TcpFlags::ACK, options)
}

/// What a connection that grew out of a cookie knows: MSS, window scale, SACK, timestamps.
fn knows(connection: &Connection) -> (u16, u8, bool, bool) {
    (connection.peer_mss.bytes(), connection.send.scale, connection.send.sack, connection.stamps.is_on())
}

#[test]
fn a_cookie_remembers_mss_and_by_timestamps_the_rest() {
    let config = config(SynCookies::Always);
    for (syn, offered, known) in [
        (syn(), (None, false, false), (1300, 0, false, false)),
        (stamped_syn(), (Some(7), true, true), (1300, 3, true, true)),
    ] {
        let mut table = table(10);
        let answer = table.on_syn(at(0), &opening(&config, 1), &syn).expect("a cookie needs no room");
        let options = answer.options;
        assert_eq!((options.window_scale, options.sack_permitted, options.timestamps.is_some()), offered);
        assert!(table.is_empty() && table.poll_at().is_none(), "a cookie costs nothing");
        let half_open = table.on_cookie(at(59), &opening(&config, 1), &ack_of(&answer));
        let half_open = half_open.expect("a cookie is out").expect("it is ours");
        assert_eq!((half_open.birth.iss, half_open.peer.irs), (answer.seq, IRS));
        assert_eq!(knows(&half_open.connection()), known);
        let counters = table.counters();
        assert_eq!((counters.cookies_sent, counters.cookies_accepted, counters.cookies_failed), (1, 1, 0));
    }
}

/// R01: a flood fills the listener's entries and nothing more; who answers gets his connection all the same.
#[test]
fn r01_beyond_the_limit_a_syn_costs_nothing() {
    let (mut table, config) = (table(16), limited(SynCookies::Pressure, 8));
    let mut places = 0;
    for port in 1..50_000 {
        let answer = table.on_syn(at(0), &opening(&config, port), &stamped_syn()).expect("always answered");
        assert!(table.len() <= 8);
        match port {
            1..=8 => assert_eq!(answer.seq, ISS, "an entry"),
            _ => assert_ne!(answer.seq, ISS, "a cookie"),
        }
        if port == 100 {
            places = table.places.capacity();
        }
        if port % 1000 == 0 {
            let half_open = table.on_cookie(at(0), &opening(&config, port), &ack_of(&answer));
            assert!(half_open.is_some_and(|it| it.is_ok()), "{port}");
        }
    }
    assert_eq!(table.places.capacity(), places, "memory is flat");
    assert_eq!((table.counters().cookies_sent, table.counters().cookies_accepted), (49_991, 49));
}

/// R02: an ACK is looked at as a cookie only for two minutes after the last one.
#[test]
fn r02_without_cookies_out_an_ack_is_nobodys() {
    let (mut table, config) = (table(0), limited(SynCookies::Pressure, 0));
    let ack = seg(IRS + 1, Some(ISS + 1), TcpFlags::ACK, TcpOptions::EMPTY);
    assert!(table.on_cookie(at(0), &opening(&config, 1), &ack).is_none());
    table.on_syn(at(0), &opening(&config, 1), &syn()).expect("a cookie");
    let answer = table.on_cookie(at(119), &opening(&config, 1), &ack);
    assert!(matches!(answer, Some(Err(DropReason::BadCookie))), "{answer:?}");
    for flags in [TcpFlags::ACK | TcpFlags::SYN, TcpFlags::ACK | TcpFlags::RST] {
        let odd = SegmentIn { flags, ..ack };
        assert!(table.on_cookie(at(119), &opening(&config, 1), &odd).is_none());
    }
    assert!(table.on_cookie(at(120), &opening(&config, 1), &ack).is_none());
    let other = Opening { listener: SocketId(8), ..opening(&config, 1) };
    assert!(table.on_cookie(at(1), &other, &ack).is_none(), "each listener by itself");
    assert_eq!(table.counters().cookies_failed, 1);
}

#[test]
fn who_reopens_from_time_wait_gets_an_entry() {
    let (mut table, config) = (table(10), limited(SynCookies::Pressure, 1));
    for (port, reopens, len) in [(1, false, 1), (2, false, 1), (3, true, 2)] {
        let opening = Opening { reopens, ..opening(&config, port) };
        table.on_syn(at(0), &opening, &syn()).expect("answered");
        assert_eq!(table.len(), len, "{port}");
    }
}

#[test]
fn an_empty_table_gives_its_memory_back() {
    let (mut table, config) = (table(100_000), limited(SynCookies::Off, 100_000));
    for port in 1..5000 {
        table.on_syn(at(0), &opening(&config, port), &syn()).expect("room");
    }
    let rst = seg(IRS + 1, None, TcpFlags::RST, TcpOptions::EMPTY);
    for port in 1..5000 {
        table.on_segment(at(0), &tuple(port), &rst, |_| true);
    }
    assert_eq!((table.len(), table.places.capacity(), table.poll_at()), (0, 0, None));
    open(&mut table, at(0), 1).expect("room");
    assert!(size_of::<Place>() <= 160, "{}", size_of::<Place>());
}

#[test]
fn a_listener_that_wants_text_first_gets_no_connection_for_a_bare_ack() {
    let config = config(SynCookies::Off);
    let ack = |payload: &'static [u8], flags| SegmentIn {
        payload,
        ..seg(IRS + 1, Some(ISS + 1), flags, TcpOptions::EMPTY)
    };
    // After how many seconds an ACK without text is enough, for each value of the option.
    for (seconds, repeats, from) in [(1, 1, 1), (2, 2, 3), (3, 2, 3), (4, 3, 7), (30, 5, 31), (9999, 5, 31)] {
        assert_eq!(deferred_repeats(seconds), repeats, "{seconds}");
        let mut table = table(8);
        let deferring = Opening { defer: repeats, ..opening(&config, 1) };
        table.on_syn(at(0), &deferring, &syn()).unwrap();
        let mut sent = Vec::new();
        for second in 0..from {
            table.on_timer(at(second), |_, _| sent.push(second));
            let answer = table.on_segment(at(second), &tuple(1), &ack(b"", TcpFlags::EMPTY), |_| true);
            assert!(matches!(answer, SynAnswer::Waits), "{seconds} {second}: {answer:?}");
        }
        assert_eq!(sent, [], "the peer has answered: {seconds}");
        table.on_timer(at(from), |_, _| sent.push(from));
        assert_eq!(sent, [from], "he is asked once more");
        let answer = table.on_segment(at(from), &tuple(1), &ack(b"", TcpFlags::EMPTY), |_| true);
        let SynAnswer::Promote(half_open) = answer else { panic!("{seconds}: {answer:?}") };
        assert!(half_open.connection().pending.syn_unmeasured, "the wait is no round trip");
    }
    assert_eq!(deferred_repeats(0), 0);
    for (payload, flags) in [(&b"GET"[..], TcpFlags::EMPTY), (b"", TcpFlags::FIN)] {
        let mut table = table(8);
        table.on_syn(at(0), &Opening { defer: 5, ..opening(&config, 1) }, &syn()).unwrap();
        let waits = table.on_segment(at(0), &tuple(1), &ack(b"", TcpFlags::EMPTY), |_| true);
        assert!(matches!(waits, SynAnswer::Waits));
        let answer = table.on_segment(at(1), &tuple(1), &ack(payload, flags), |_| true);
        assert!(matches!(answer, SynAnswer::Promote(_)), "{payload:?}: {answer:?}");
    }
}

#[test]
fn one_who_answers_and_then_says_nothing_is_forgotten_like_all_others() {
    let config = config(SynCookies::Off);
    let mut table = table(8);
    table.on_syn(at(0), &Opening { defer: 5, ..opening(&config, 1) }, &syn()).unwrap();
    let ack = seg(IRS + 1, Some(ISS + 1), TcpFlags::EMPTY, TcpOptions::EMPTY);
    assert!(matches!(table.on_segment(at(0), &tuple(1), &ack, |_| true), SynAnswer::Waits));
    (0..70).for_each(|second| table.on_timer(at(second), |_, _| ()));
    assert!(table.is_empty());
    assert_eq!(table.counters().failed, 1);
}

#[test]
fn who_believes_to_be_connected_hears_that_the_listener_is_gone() {
    let config = config(SynCookies::Off);
    let ack = seg(IRS + 1, Some(ISS + 1), TcpFlags::EMPTY, TcpOptions::EMPTY);
    let mut table = table(8);
    for (port, defer) in [(1, 0), (2, 5), (3, 0), (4, 0)] {
        table.on_syn(at(0), &Opening { defer, ..opening(&config, port) }, &syn()).unwrap();
    }
    let full = table.on_segment(at(0), &tuple(1), &ack, |_| false);
    assert!(matches!(full, SynAnswer::Drop(DropReason::ListenFull)), "{full:?}");
    assert!(matches!(table.on_segment(at(0), &tuple(2), &ack, |_| true), SynAnswer::Waits));
    let SynAnswer::Promote(half_open) = table.on_segment(at(0), &tuple(3), &ack, |_| true) else { panic!() };
    table.enter(at(0), tuple(3), half_open);
    let mut told = Vec::new();
    table.forget_listener(LISTENER, |names, reset| told.push((names.remote().port(), reset)));
    let reset = |port| (port, SegmentOut::control(ISS + 1, None, TcpFlags::RST));
    assert_eq!(told, [reset(1), reset(2), reset(3)]);
    assert!(table.is_empty());
}
