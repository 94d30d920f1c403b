//! Every transition of the client, against servers that are a few lines of the test, in virtual time.

use proptest::prelude::*;

use super::*;
use crate::v6::lease::tests::{IAID, SERVER, association};

const DUID: [u8; 6] = [0, 4, 1, 2, 3, 4];
const OTHER_SERVER: [u8; 4] = [0, 3, 0, 2];
const ADDR: &str = "2001:db8::5";
const OTHER: &str = "2001:db8::6";

/// A client and the time.
struct Lab {
    client: Client,
    now: Instant,
}

/// What a server gives: T1, T2, the address, its lifetimes.
type Given = ([u32; 2], &'static str, [u32; 2]);

const HOUR: Given = ([1000, 1600], ADDR, [2000, 3600]);

fn addr(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

impl Lab {
    fn new(before: Option<(Lease, Duration)>) -> Self {
        Self::seeded(1, before)
    }

    /// A client whose router says that addresses are to be had.
    fn seeded(seed: u64, before: Option<(Lease, Duration)>) -> Self {
        let mut lab = Self::idle(seed, before);
        lab.client.set_wanted(lab.now, Wanted::Addresses);
        assert!(lab.wait() <= DELAY_LONGEST);
        lab
    }

    fn idle(seed: u64, before: Option<(Lease, Duration)>) -> Self {
        let config = ClientConfig { duid: DUID.to_vec(), iaid: IAID, seed };
        let now = Instant::from_secs(100);
        Self { client: Client::new(now, config, before), now }
    }

    fn next(&mut self) -> Option<Action> {
        self.client.poll(self.now)
    }

    /// The next message that the client sends now.
    #[track_caller]
    fn sent(&mut self, kind: MessageType) -> Message {
        match self.next() {
            Some(Action::Send(bytes)) => {
                let message = Message::parse(&bytes).unwrap();
                assert_eq!(message.kind, kind);
                assert_eq!(message.options.get(option::CLIENT_ID), Some(&DUID[..]));
                message
            }
            other => panic!("{other:?} in {:?}", self.phase()),
        }
    }

    /// Lets time pass to the next timer; how long it took.
    #[track_caller]
    fn wait(&mut self) -> Duration {
        assert_eq!(self.client.actions.front(), None, "something is due now");
        let at = self.client.poll_at().unwrap();
        let waited = at.saturating_since(self.now);
        self.now = self.now.max(at);
        waited
    }

    fn hear(&mut self, message: &Message) {
        self.client.on_message(self.now, &message.emit());
    }

    fn answer(&mut self, kind: MessageType, asked: &Message, server: [u8; 4], given: Given) {
        self.hear(&answer(kind, asked, server, given));
    }

    fn refuse(&mut self, asked: &Message, server: [u8; 4], code: u16) {
        let mut message = answer(MessageType::Reply, asked, server, HOUR);
        message.options.remove(option::IA_NA);
        message.options.add(option::STATUS, code.to_be_bytes());
        self.hear(&message);
    }

    fn phase(&self) -> Phase {
        self.client.phase()
    }

    /// From the beginning to a lease of an hour in force.
    fn bind(&mut self) -> Held {
        let solicit = self.sent(MessageType::Solicit);
        self.answer(MessageType::Advertise, &solicit, SERVER, HOUR);
        self.wait();
        let request = self.sent(MessageType::Request);
        self.answer(MessageType::Reply, &request, SERVER, HOUR);
        self.pass_test()
    }

    #[track_caller]
    fn pass_test(&mut self) -> Held {
        let Some(Action::Test(lease)) = self.next() else { panic!("in {:?}", self.phase()) };
        self.client.on_tested(self.now, lease.addr, true);
        let Some(Action::Bound(held)) = self.next() else { panic!("bound") };
        held
    }
}

fn answer(kind: MessageType, asked: &Message, server: [u8; 4], (times, addr, lifetimes): Given) -> Message {
    let mut answer = Message::new(kind, asked.xid);
    answer.options.add(option::CLIENT_ID, DUID);
    answer.options.add(option::SERVER_ID, server);
    answer.options.add(option::IA_NA, association(IAID, times, addr, lifetimes));
    answer
}

/// The address in the association of a message.
fn asked_for(message: &Message) -> Option<Ipv6Addr> {
    let inner = Options::parse(message.options.get(option::IA_NA)?.get(12..)?).ok()?;
    inner.get(option::IA_ADDR)?.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets))
}

fn within(duration: Duration, low: f64, high: f64) -> bool {
    (low..=high).contains(&duration.as_secs_f64())
}

#[test]
fn without_a_router_that_says_so_nothing_is_sent() {
    let mut lab = Lab::idle(1, None);
    assert_eq!((lab.next(), lab.client.poll_at(), lab.phase()), (None, None, Phase::Idle));
    lab.client.set_wanted(lab.now, Wanted::Nothing);
    lab.client.refresh(lab.now);
    assert_eq!((lab.next(), lab.client.poll_at()), (None, None));
}

#[test]
fn from_nothing_to_a_lease() {
    let mut lab = Lab::new(None);
    let solicit = lab.sent(MessageType::Solicit);
    assert_eq!(solicit.options.get(option::IA_NA).unwrap(), [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(solicit.options.get(option::ELAPSED), Some(&[0, 0][..]));
    assert_eq!(solicit.options.get(option::SERVER_ID), None);
    lab.answer(MessageType::Advertise, &solicit, SERVER, HOUR);
    assert_eq!(lab.next(), None, "perhaps there is a better one (§18.2.1)");
    assert!(within(lab.wait(), 1.0, 1.1));
    let request = lab.sent(MessageType::Request);
    assert_eq!(request.options.get(option::SERVER_ID), Some(&SERVER[..]));
    assert_eq!(asked_for(&request), Some(addr(ADDR)));
    assert_ne!(request.xid, solicit.xid);
    lab.answer(MessageType::Reply, &request, SERVER, HOUR);
    assert_eq!((lab.phase(), lab.client.held()), (Phase::Testing, None));
    let held = lab.pass_test();
    assert_eq!((held.lease.addr, lab.phase()), (addr(ADDR), Phase::Bound));
    assert_eq!(held.until, lab.now + Duration::from_secs(3600));
    assert!(within(lab.wait(), 968.0, 1000.0), "T1, a little earlier");
    lab.sent(MessageType::Renew);
}

#[test]
fn the_server_that_is_liked_best_is_taken() {
    let preferred = |asked: &Message, server, preference: u8, address| {
        let mut message = answer(MessageType::Advertise, asked, server, ([0, 0], address, [2000, 3600]));
        message.options.add(option::PREFERENCE, [preference]);
        message
    };
    let mut lab = Lab::new(None);
    let solicit = lab.sent(MessageType::Solicit);
    lab.hear(&preferred(&solicit, SERVER, 5, ADDR));
    lab.hear(&preferred(&solicit, OTHER_SERVER, 9, OTHER));
    lab.hear(&preferred(&solicit, SERVER, 9, ADDR));
    lab.wait();
    let request = lab.sent(MessageType::Request);
    assert_eq!(request.options.get(option::SERVER_ID), Some(&OTHER_SERVER[..]));
    // One is not compared with others, and after the first wait the first is taken.
    let mut lab = Lab::new(None);
    let solicit = lab.sent(MessageType::Solicit);
    lab.hear(&preferred(&solicit, SERVER, 255, ADDR));
    lab.sent(MessageType::Request);
    let mut lab = Lab::new(None);
    lab.sent(MessageType::Solicit);
    lab.wait();
    let again = lab.sent(MessageType::Solicit);
    assert!(again.options.get(option::ELAPSED) >= Some(&[0, 100][..]));
    lab.hear(&preferred(&again, SERVER, 0, ADDR));
    lab.sent(MessageType::Request);
}

#[test]
fn what_is_for_others_or_out_of_turn_is_counted_and_nothing_else() {
    let mut lab = Lab::new(None);
    let solicit = lab.sent(MessageType::Solicit);
    let good = answer(MessageType::Advertise, &solicit, SERVER, HOUR);
    let without = |code: u16| {
        let mut message = good.clone();
        message.options.remove(code);
        message
    };
    let mut stranger = without(option::CLIENT_ID);
    stranger.options.add(option::CLIENT_ID, [9, 9]);
    let others = [
        Message { xid: good.xid ^ 1, ..good.clone() },
        Message { kind: MessageType::Solicit, ..good.clone() },
        Message { kind: MessageType::Reply, ..good.clone() },
        without(option::CLIENT_ID),
        without(option::SERVER_ID),
        stranger,
    ];
    others.iter().for_each(|it| lab.hear(it));
    let seen = lab.client.counters();
    assert_eq!((seen.unasked, seen.used), (others.len() as u64, 0));
    lab.client.on_message(lab.now, b"no");
    lab.hear(&without(option::IA_NA));
    let seen = lab.client.counters();
    assert_eq!((seen.malformed, seen.unusable, lab.phase()), (1, 1, Phase::Soliciting));
    lab.hear(&good);
    lab.wait();
    let request = lab.sent(MessageType::Request);
    // Whoever is faster than the server that was asked may be anybody.
    lab.answer(MessageType::Reply, &request, OTHER_SERVER, HOUR);
    lab.answer(MessageType::Advertise, &request, SERVER, HOUR);
    assert_eq!(lab.phase(), Phase::Requesting);
    lab.answer(MessageType::Reply, &request, SERVER, HOUR);
    assert_eq!(lab.phase(), Phase::Testing);
}

#[test]
fn a_server_that_does_not_answer_is_left_after_ten_requests() {
    let mut lab = Lab::new(None);
    let solicit = lab.sent(MessageType::Solicit);
    lab.answer(MessageType::Advertise, &solicit, SERVER, HOUR);
    lab.wait();
    for _ in 0..10 {
        lab.sent(MessageType::Request);
        lab.wait();
    }
    lab.sent(MessageType::Solicit);
}

#[test]
fn refusals_begin_anew_at_once_and_then_ever_more_slowly() {
    let mut lab = Lab::new(None);
    let mut waits = Vec::new();
    for _ in 0..9 {
        let solicit = lab.sent(MessageType::Solicit);
        lab.answer(MessageType::Advertise, &solicit, SERVER, HOUR);
        lab.wait();
        let request = lab.sent(MessageType::Request);
        lab.refuse(&request, SERVER, 2);
        assert_eq!(lab.phase(), Phase::Waiting);
        waits.push(lab.wait().as_secs());
    }
    assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 64, 120]);
    lab.bind();
}

#[test]
fn a_lease_is_renewed_by_its_server_then_by_any_then_lost() {
    let mut lab = Lab::new(None);
    let first = lab.bind();
    lab.wait();
    let renew = lab.sent(MessageType::Renew);
    assert_eq!(
        (renew.options.get(option::SERVER_ID), asked_for(&renew)),
        (Some(&SERVER[..]), Some(addr(ADDR)))
    );
    lab.answer(MessageType::Reply, &renew, OTHER_SERVER, HOUR);
    assert_eq!(lab.phase(), Phase::Renewing, "it is not for this server to say");
    lab.answer(MessageType::Reply, &renew, SERVER, HOUR);
    let Some(Action::Bound(second)) = lab.next() else { panic!("renewed") };
    assert!(second.until > first.until);
    // Nobody answers any more.
    let mut retired = None;
    loop {
        lab.wait();
        match lab.next() {
            Some(Action::Send(bytes)) => match Message::parse(&bytes).unwrap().kind {
                MessageType::Renew => assert!(lab.now < second.rebind_at),
                MessageType::Rebind => assert!(lab.now >= second.rebind_at),
                other => panic!("{other:?}"),
            },
            Some(Action::Retire(lease)) => retired = Some((lease.addr, lab.now)),
            Some(Action::Lost(lease, why)) => {
                assert_eq!((lease.addr, why, lab.now), (addr(ADDR), Loss::Expired, second.until));
                break;
            }
            None => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        retired,
        Some((addr(ADDR), second.retire_at)),
        "nothing new begins with it after 2000 seconds"
    );
    let solicit = lab.sent(MessageType::Solicit);
    assert_eq!(asked_for(&solicit), Some(addr(ADDR)), "the same again, if possible");
}

#[test]
fn another_server_may_take_a_lease_over_or_give_another() {
    for (given, is_same) in [(HOUR, true), (([0, 0], OTHER, [2000, 3600]), false)] {
        let mut lab = Lab::new(None);
        let held = lab.bind();
        lab.now = held.rebind_at;
        let rebind = lab.sent(MessageType::Rebind);
        assert_eq!(rebind.options.get(option::SERVER_ID), None);
        lab.answer(MessageType::Reply, &rebind, OTHER_SERVER, given);
        if is_same {
            let Some(Action::Bound(held)) = lab.next() else { panic!("bound") };
            assert_eq!(held.lease.server, OTHER_SERVER);
        } else {
            assert!(matches!(lab.next(), Some(Action::Lost(_, Loss::Replaced))));
            assert_eq!(lab.pass_test().lease.addr, addr(OTHER));
        }
    }
}

#[test]
fn a_server_that_knows_nothing_of_the_lease_or_takes_it_back_ends_it() {
    for withdrawn in [false, true] {
        let mut lab = Lab::new(None);
        lab.bind();
        lab.wait();
        let renew = lab.sent(MessageType::Renew);
        match withdrawn {
            true => lab.answer(MessageType::Reply, &renew, SERVER, ([0, 0], ADDR, [0, 0])),
            false => lab.refuse(&renew, SERVER, status::NO_BINDING),
        }
        assert!(matches!(lab.next(), Some(Action::Lost(_, Loss::Refused))));
        lab.wait();
        lab.sent(MessageType::Solicit);
    }
    // One that fails for another reason is asked again.
    let mut lab = Lab::new(None);
    lab.bind();
    lab.wait();
    let renew = lab.sent(MessageType::Renew);
    lab.refuse(&renew, SERVER, 1);
    assert_eq!((lab.phase(), lab.next()), (Phase::Renewing, None));
}

#[test]
fn an_address_that_another_station_has_is_declined() {
    let mut lab = Lab::new(None);
    let solicit = lab.sent(MessageType::Solicit);
    lab.answer(MessageType::Advertise, &solicit, SERVER, HOUR);
    lab.wait();
    let request = lab.sent(MessageType::Request);
    lab.answer(MessageType::Reply, &request, SERVER, HOUR);
    lab.next();
    lab.client.on_tested(lab.now, addr(OTHER), false);
    assert_eq!(lab.phase(), Phase::Testing, "that was another address");
    lab.client.on_tested(lab.now, addr(ADDR), false);
    assert!(matches!(lab.next(), Some(Action::Lost(_, Loss::Conflict))));
    let decline = lab.sent(MessageType::Decline);
    assert_eq!(
        (decline.options.get(option::SERVER_ID), asked_for(&decline)),
        (Some(&SERVER[..]), Some(addr(ADDR)))
    );
    lab.refuse(&decline, SERVER, status::SUCCESS);
    let solicit = lab.sent(MessageType::Solicit);
    assert_eq!(asked_for(&solicit), None, "not that one again");
    assert_eq!(lab.client.counters().declined, 1);
    // Without an answer it is said four times.
    let mut lab = Lab::new(None);
    lab.bind();
    lab.client.on_tested(lab.now, addr(ADDR), false);
    lab.next();
    for _ in 0..4 {
        lab.sent(MessageType::Decline);
        lab.wait();
    }
    lab.sent(MessageType::Solicit);
}

#[test]
fn an_address_that_cannot_be_used_here_is_not_declined_and_asked_for_again() {
    let mut lab = Lab::new(None);
    let solicit = lab.sent(MessageType::Solicit);
    lab.answer(MessageType::Advertise, &solicit, SERVER, HOUR);
    lab.wait();
    let request = lab.sent(MessageType::Request);
    lab.answer(MessageType::Reply, &request, SERVER, HOUR);
    assert!(matches!(lab.next(), Some(Action::Test(_))));
    lab.client.put_off(lab.now);
    assert_eq!((lab.next(), lab.phase(), lab.client.counters().declined), (None, Phase::Waiting, 0));
    assert_eq!(lab.wait(), UNUSED_WAIT);
    assert_eq!(asked_for(&lab.sent(MessageType::Solicit)), Some(addr(ADDR)));
}

#[test]
fn the_lease_of_before_is_confirmed_or_used_if_nobody_answers() {
    let mut lab = Lab::new(None);
    let lease = lab.bind().lease;
    let before = || Some((lease.clone(), Duration::from_secs(2400)));
    // Yes.
    let mut lab = Lab::new(before());
    let confirm = lab.sent(MessageType::Confirm);
    assert_eq!(asked_for(&confirm), Some(addr(ADDR)));
    lab.refuse(&confirm, OTHER_SERVER, status::SUCCESS);
    let held = lab.pass_test();
    assert!(within(held.until.saturating_since(Instant::from_secs(100)), 2400.0, 2400.0));
    assert!(matches!(lab.wait(), Duration::ZERO), "and asked for more at once");
    lab.sent(MessageType::Renew);
    // No.
    let mut lab = Lab::new(before());
    let confirm = lab.sent(MessageType::Confirm);
    lab.refuse(&confirm, SERVER, status::NOT_ON_LINK);
    assert_eq!(lab.next(), Some(Action::Lost(lease.clone(), Loss::Refused)), "it is not remembered");
    lab.wait();
    assert_eq!(asked_for(&lab.sent(MessageType::Solicit)), None);
    // Given back before anybody has answered.
    let mut lab = Lab::new(before());
    lab.sent(MessageType::Confirm);
    lab.client.release(lab.now);
    assert_eq!(lab.next(), Some(Action::Lost(lease.clone(), Loss::Released)));
    assert_eq!((lab.next(), lab.phase()), (None, Phase::Released));
    // Silence for ten seconds.
    let mut lab = Lab::new(before());
    let begun = lab.now;
    while lab.phase() != Phase::Testing {
        if let Some(action) = lab.next() {
            assert!(matches!(action, Action::Send(_)) || lab.phase() == Phase::Testing);
            if lab.phase() == Phase::Testing {
                break;
            }
        } else {
            lab.wait();
        }
    }
    assert_eq!(lab.now, begun + Duration::from_secs(10));
    // One that is over is only a wish.
    let mut lab = Lab::new(Some((lease, Duration::ZERO)));
    assert_eq!(asked_for(&lab.sent(MessageType::Solicit)), Some(addr(ADDR)));
}

#[test]
fn the_lease_of_before_is_retired_and_asked_of_all_servers_when_it_would_have_been() {
    let mut lab = Lab::new(None);
    let lease = lab.bind().lease;
    for (left, is_late) in [(2400, false), (1000, true)] {
        let mut lab = Lab::new(Some((lease.clone(), Duration::from_secs(left))));
        let end = Instant::from_secs(100 + left);
        let confirm = lab.sent(MessageType::Confirm);
        lab.refuse(&confirm, OTHER_SERVER, status::SUCCESS);
        let held = lab.pass_test();
        assert_eq!(held.until, end);
        // It was bound for 1200 or 2600 seconds: T2 is 1600, and it is preferred for 2000.
        let begun = lab.now;
        let at = |age: u64| (end - Duration::from_secs(3600 - age)).max(begun);
        let (mut renewed, mut rebound, mut retired) = (0, Vec::new(), None);
        loop {
            match lab.next() {
                Some(Action::Send(bytes)) => match Message::parse(&bytes).unwrap().kind {
                    MessageType::Renew => renewed += 1,
                    MessageType::Rebind => rebound.push(lab.now),
                    other => panic!("{other:?}"),
                },
                Some(Action::Retire(_)) => retired = Some(lab.now),
                Some(Action::Lost(_, why)) => break assert_eq!((why, lab.now), (Loss::Expired, end)),
                None => drop(lab.wait()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((rebound[0], retired), (at(1600), Some(at(2000))), "{left} s were left");
        assert_eq!(renewed == 0, is_late, "{left} s were left");
    }
}

#[test]
fn a_wall_clock_that_was_set_gives_no_lease_more_time_than_it_had() {
    let mut lab = Lab::new(None);
    let lease = lab.bind().lease;
    let mut lab = Lab::new(Some((lease, Duration::from_secs(36_000))));
    let confirm = lab.sent(MessageType::Confirm);
    lab.refuse(&confirm, SERVER, status::SUCCESS);
    assert_eq!(lab.pass_test().until, Instant::from_secs(100 + 3600));
}

#[test]
fn the_operator_renews_and_releases() {
    let mut lab = Lab::new(None);
    lab.bind();
    lab.client.refresh(lab.now);
    lab.sent(MessageType::Renew);
    lab.client.release(lab.now);
    assert!(matches!(lab.next(), Some(Action::Lost(_, Loss::Released))), "not used any more when it is said");
    let release = lab.sent(MessageType::Release);
    assert_eq!(
        (release.options.get(option::SERVER_ID), asked_for(&release)),
        (Some(&SERVER[..]), Some(addr(ADDR)))
    );
    lab.refuse(&release, SERVER, status::SUCCESS);
    assert_eq!((lab.next(), lab.client.poll_at(), lab.phase()), (None, None, Phase::Released));
    lab.client.refresh(lab.now);
    lab.sent(MessageType::Solicit);
    // Without a lease there is nothing to give back.
    lab.client.release(lab.now);
    assert_eq!((lab.next(), lab.phase()), (None, Phase::Released));
}

/// RFC 8415 §18.2.10: the server could not do what it was asked for, and has not said that there is nothing.
#[test]
fn a_server_that_fails_says_nothing_of_the_network() {
    let mut lab = Lab::idle(1, None);
    lab.client.set_wanted(lab.now, Wanted::Information);
    lab.wait();
    let asked = lab.sent(MessageType::InformationRequest);
    lab.refuse(&asked, SERVER, 1);
    assert_eq!((lab.next(), lab.phase(), lab.client.counters().unusable), (None, Phase::Informing, 1));
    assert!(lab.wait() <= Duration::from_millis(1100));
    let again = lab.sent(MessageType::InformationRequest);
    let mut reply = Message::new(MessageType::Reply, again.xid);
    reply.options.add(option::CLIENT_ID, DUID);
    reply.options.add(option::SERVER_ID, SERVER);
    lab.hear(&reply);
    assert_eq!((lab.next(), lab.phase()), (Some(Action::Informed(Network::default())), Phase::Informed));
}

#[test]
fn where_only_the_rest_is_to_be_had_only_that_is_asked_for() {
    let mut lab = Lab::idle(1, None);
    lab.client.set_wanted(lab.now, Wanted::Information);
    lab.wait();
    let asked = lab.sent(MessageType::InformationRequest);
    assert_eq!(asked.options.get(option::IA_NA), None);
    let mut reply = Message::new(MessageType::Reply, asked.xid);
    reply.options.add(option::CLIENT_ID, DUID);
    reply.options.add(option::SERVER_ID, SERVER);
    reply.options.add(option::NAME_SERVERS, addr("2001:db8::53").octets());
    reply.options.add(option::REFRESH, 60_u32.to_be_bytes());
    lab.hear(&reply);
    let Some(Action::Informed(network)) = lab.next() else { panic!("informed") };
    assert_eq!(network.name_servers, [addr("2001:db8::53")]);
    assert_eq!((lab.phase(), lab.wait()), (Phase::Informed, REFRESH_LEAST));
    lab.sent(MessageType::InformationRequest);
    // A router that says more is followed; one that says less takes nothing away.
    lab.client.set_wanted(lab.now, Wanted::Addresses);
    lab.wait();
    lab.bind();
    lab.client.set_wanted(lab.now, Wanted::Nothing);
    assert_eq!(lab.phase(), Phase::Bound);
}

#[test]
fn a_server_says_how_rarely_it_wants_to_be_asked_within_reason() {
    for (seconds, longest) in [(59, 3600), (86_401, 3600), (60, 60), (7200, 7200)] {
        let mut lab = Lab::new(None);
        let solicit = lab.sent(MessageType::Solicit);
        let mut refusal = answer(MessageType::Advertise, &solicit, SERVER, HOUR);
        refusal.options.remove(option::IA_NA);
        refusal.options.add(option::SOL_MAX_RT, (seconds as u32).to_be_bytes());
        lab.hear(&refusal);
        let mut waited = Duration::ZERO;
        for _ in 0..16 {
            waited = lab.wait();
            lab.sent(MessageType::Solicit);
        }
        assert!(within(waited, f64::from(longest) * 0.9, f64::from(longest) * 1.1), "{seconds}: {waited:?}");
    }
}

#[test]
fn answers_that_are_lost_delay_and_end_nothing() {
    // Every fourth answer of the server is lost: in the end there is a lease, and it is kept.
    for seed in 0..100 {
        let (mut lab, mut luck) = (Lab::seeded(seed, None), Random::new(seed ^ 0xdead));
        let mut lost = 0;
        let end = lab.now + Duration::from_secs(24 * 3600);
        while lab.now < end {
            let Some(action) = lab.next() else {
                lab.now = lab.client.poll_at().unwrap().max(lab.now);
                continue;
            };
            match action {
                Action::Send(bytes) => {
                    let asked = Message::parse(&bytes).unwrap();
                    let is_first = asked.kind == MessageType::Solicit;
                    let kind = if is_first { MessageType::Advertise } else { MessageType::Reply };
                    if luck.draw() & 3 != 0 {
                        lab.answer(kind, &asked, SERVER, HOUR);
                    }
                }
                Action::Test(lease) => lab.client.on_tested(lab.now, lease.addr, true),
                Action::Lost(..) => lost += 1,
                _ => {}
            }
        }
        let seen = lab.client.counters();
        assert!(lab.client.held().is_some() && lost == 0 && seen.sent < 400, "seed {seed}: {lost} {seen:?}");
    }
}

proptest! {
    /// Servers that say anything, at any time: the client comes to rest at every instant, and holds only what one station
    /// can have.
    #[test]
    fn whatever_servers_say_the_client_comes_to_rest(
        seed: u64,
        steps in prop::collection::vec((0_u8..8, any::<u16>(), prop::collection::vec(any::<u8>(), 0..60)), 1..60),
    ) {
        let mut lab = Lab::idle(seed, None);
        let mut asked = None;
        for (kind, number, bytes) in steps {
            match kind {
                0 => lab.client.set_wanted(lab.now, [Wanted::Information, Wanted::Addresses][usize::from(number & 1)]),
                1 => lab.now += Duration::from_millis(number.into()),
                2 => lab.now = lab.client.poll_at().filter(|at| *at != Instant::FAR_FUTURE).map_or(lab.now, |at| at.max(lab.now)),
                3 => lab.client.on_tested(lab.now, addr(ADDR), number & 1 == 0),
                4 => lab.client.refresh(lab.now),
                6 if number & 7 == 0 => lab.client.verify(lab.now),
                5 if number & 7 == 0 => lab.client.release(lab.now),
                _ => {
                    let Some(asked) = &asked else { continue };
                    let kind = [MessageType::Advertise, MessageType::Reply][usize::from(number & 1)];
                    let mut message = answer(kind, asked, SERVER, HOUR).emit();
                    // One byte in three answers is another, and something stands behind it.
                    if number % 3 == 0 {
                        let at = usize::from(number) % message.len();
                        message[at] ^= number.to_be_bytes()[0];
                    }
                    if number % 5 == 0 {
                        message.extend(bytes);
                    }
                    lab.client.on_message(lab.now, &message);
                }
            }
            for turn in 0.. {
                assert!(turn < 8, "no rest in {:?}", lab.phase());
                match lab.next() {
                    None => break,
                    Some(Action::Send(bytes)) => asked = Some(Message::parse(&bytes).unwrap()),
                    Some(Action::Bound(held)) => {
                        prop_assert!(crate::v6::lease::is_station(held.lease.addr) && held.until > lab.now);
                    }
                    Some(_) => {}
                }
            }
            prop_assert!(lab.client.poll_at().is_none_or(|at| at > lab.now), "at rest it waits for later");
        }
    }
}

/// What a client that asks whether its lease is right does while nobody answers: when it began, and how often it waited until it asked no more.
fn unanswered(lab: &mut Lab) -> (Instant, usize) {
    let (began, mut waits) = (lab.now, 0);
    while matches!(lab.client.state, State::Verifying(..)) && lab.now <= Pace::VERIFY.end(began) {
        let Some(action) = lab.next() else {
            // What is over waits for something else.
            if matches!(lab.client.state, State::Verifying(..)) {
                lab.wait();
                waits += 1;
            }
            continue;
        };
        if !matches!(lab.client.state, State::Verifying(..)) {
            lab.client.actions.push_front(action);
            break;
        }
        assert!(matches!(action, Action::Send(_) | Action::Retire(_)), "{action:?}");
        assert_eq!(lab.phase(), Phase::Bound, "it is used meanwhile");
    }
    (began, waits)
}

/// A switch's port that has its carrier again may learn for half a minute before it forwards (IEEE 802.1D).
#[test]
fn a_lease_of_another_link_goes_also_where_the_first_questions_are_swallowed() {
    for swallowed in [11, 30, 100, 400] {
        let mut lab = Lab::new(None);
        let held = lab.bind();
        lab.client.verify(lab.now);
        let forwards = lab.now + Duration::from_secs(swallowed);
        while lab.now < forwards {
            lab.sent(MessageType::Confirm);
            lab.wait();
        }
        assert_eq!(lab.client.held(), Some(&held));
        let asked = lab.sent(MessageType::Confirm);
        lab.refuse(&asked, OTHER_SERVER, status::NOT_ON_LINK);
        assert_eq!(lab.next(), Some(Action::Lost(held.lease, Loss::Refused)), "{swallowed}");
    }
}

#[test]
fn a_lease_is_renewed_in_time_while_nobody_says_whether_it_is_right() {
    let before = |at: Instant, seconds| at - Duration::from_secs(seconds);
    let mut lab = Lab::new(None);
    let held = lab.bind();
    // T1 comes while it is asked, then it is over, T2 comes, and it is over.
    lab.now = before(held.renew_at, 40);
    lab.client.verify(lab.now);
    unanswered(&mut lab);
    assert_eq!(lab.now, held.renew_at);
    lab.sent(MessageType::Renew);
    lab.now = before(held.rebind_at, 200);
    lab.client.verify(lab.now);
    unanswered(&mut lab);
    assert_eq!(lab.now, held.rebind_at);
    lab.sent(MessageType::Rebind);
    lab.client.verify(lab.now);
    let (began, _) = unanswered(&mut lab);
    assert_eq!(lab.now, Pace::CONFIRM.end(began));
    lab.sent(MessageType::Rebind);
    // It ends while it is asked; what is deprecated by then is told of before.
    lab.now = before(held.until, 5);
    lab.client.verify(lab.now);
    unanswered(&mut lab);
    assert_eq!((lab.now, lab.next()), (held.until, Some(Action::Lost(held.lease, Loss::Expired))));
}

#[test]
fn what_the_operator_wants_to_know_waits_for_no_rare_question() {
    let mut lab = Lab::new(None);
    lab.bind();
    lab.client.verify(lab.now);
    for _ in 0..8 {
        lab.sent(MessageType::Confirm);
        lab.wait();
    }
    lab.sent(MessageType::Confirm);
    assert!(lab.client.poll_at() > Some(lab.now + Duration::from_secs(100)));
    lab.client.refresh(lab.now);
    lab.sent(MessageType::Confirm);
    assert!(lab.wait() < Duration::from_secs(2));
}

#[test]
fn a_lease_is_used_while_a_link_that_was_away_is_asked_whether_it_is_right_there() {
    let mut lab = Lab::new(None);
    let held = lab.bind();
    lab.client.verify(lab.now);
    let asked = lab.sent(MessageType::Confirm);
    assert_eq!(
        (asked_for(&asked), lab.phase(), lab.client.held()),
        (Some(addr(ADDR)), Phase::Bound, Some(&held))
    );
    lab.refuse(&asked, SERVER, status::SUCCESS);
    assert_eq!((lab.next(), lab.client.held()), (None, Some(&held)));
    assert_eq!(lab.client.poll_at(), Some(held.renew_at), "it asks no more");
    // Nobody answers: RFC 8415 §18.2.3 has it used on.
    lab.client.verify(lab.now);
    let (began, waits) = unanswered(&mut lab);
    assert_eq!((lab.now, lab.client.held()), (Pace::VERIFY.end(began), Some(&held)));
    assert!((9..13).contains(&waits), "{waits}");
    assert_eq!((lab.next(), lab.client.poll_at()), (None, Some(held.renew_at)));
    let mut lab = Lab::new(None);
    let held = lab.bind();
    lab.client.verify(lab.now);
    let asked = lab.sent(MessageType::Confirm);
    lab.refuse(&asked, OTHER_SERVER, status::NOT_ON_LINK);
    assert_eq!(lab.next(), Some(Action::Lost(held.lease, Loss::Refused)));
    lab.wait();
    lab.sent(MessageType::Solicit);
}
