//! Every transition of the client, against servers that are a few lines of the test, in virtual time.

use super::*;
use crate::v4::lease::tests::ack;

const MAC: MacAddr = MacAddr([2, 8, 32, 1, 2, 3]);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER_SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const ADDR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

/// A client and the time.
struct Lab {
    client: Client,
    now: Instant,
}

impl Lab {
    fn new(before: Option<(Lease, Duration)>) -> Self {
        Self::seeded(1, before)
    }

    fn seeded(seed: u64, before: Option<(Lease, Duration)>) -> Self {
        let config = ClientConfig {
            mac: MAC,
            id: vec![255, 0, 0, 0, 1],
            host_name: Some("web".into()),
            link_local: false,
            seed,
        };
        let now = Instant::from_secs(100);
        Self { client: Client::new(now, config, before), now }
    }

    fn next(&mut self) -> Option<Action> {
        self.client.poll(self.now)
    }

    /// The next message that the client sends now, and whether to everybody.
    #[track_caller]
    fn sent(&mut self) -> (Message, bool) {
        match self.next() {
            Some(Action::Broadcast(bytes)) => (Message::parse(&bytes).unwrap(), true),
            Some(Action::Unicast(to, bytes)) => {
                assert_eq!(to, SERVER);
                (Message::parse(&bytes).unwrap(), false)
            }
            other => panic!("{other:?} in {:?}", self.client.phase()),
        }
    }

    /// Lets time pass to the next timer; how long it took.
    #[track_caller]
    fn wait(&mut self) -> Duration {
        assert_eq!(self.next(), None, "something is due now");
        let at = self.client.poll_at().unwrap();
        let waited = at.saturating_since(self.now);
        self.now = at;
        waited
    }

    fn hear(&mut self, message: &Message) {
        self.client.on_message(self.now, &message.emit());
    }

    /// A server's answer to `asked`.
    fn answer(&mut self, kind: MessageType, asked: &Message, server: Ipv4Addr) {
        let answer = answer(kind, asked, server);
        self.hear(&answer);
    }

    fn phase(&self) -> Phase {
        self.client.phase()
    }

    /// From the beginning to a lease of an hour in force.
    fn bind(&mut self) -> Held {
        let (discover, _) = self.sent();
        self.answer(MessageType::Offer, &discover, SERVER);
        let (request, _) = self.sent();
        self.answer(MessageType::Ack, &request, SERVER);
        assert!(matches!(self.next(), Some(Action::Test(lease)) if lease.addr == ADDR));
        self.client.on_tested(self.now, ADDR, true);
        let Some(Action::Bound(held)) = self.next() else { panic!("bound") };
        assert_eq!(self.phase(), Phase::Bound);
        held
    }

    /// The same, up to RENEWING, and what was asked there.
    fn renewing(&mut self) -> Message {
        self.bind();
        self.wait();
        self.sent().0
    }
}

fn answer(kind: MessageType, asked: &Message, server: Ipv4Addr) -> Message {
    let mut answer = Message { kind, xid: asked.xid, ..ack() };
    answer.options.insert(option::SERVER, server.octets().to_vec());
    if kind == MessageType::Nak {
        answer.yours = Ipv4Addr::UNSPECIFIED;
        answer.options.remove(&option::LEASE_TIME);
    }
    answer
}

fn lease() -> Lease {
    Lease::read(&ack()).unwrap()
}

fn within(duration: Duration, low: u64, high: u64) -> bool {
    (Duration::from_secs(low)..=Duration::from_secs(high)).contains(&duration)
}

#[test]
fn from_nothing_to_a_lease() {
    let mut lab = Lab::new(None);
    let (discover, to_all) = lab.sent();
    assert_eq!((discover.kind, to_all, discover.broadcast), (MessageType::Discover, true, true));
    assert_eq!((discover.client, discover.mac), (Ipv4Addr::UNSPECIFIED, MAC));
    assert_eq!(discover.options[&option::CLIENT_ID], [255, 0, 0, 0, 1]);
    assert_eq!(discover.options[&option::HOST_NAME], b"web");
    lab.answer(MessageType::Offer, &discover, SERVER);
    let (request, to_all) = lab.sent();
    // RFC 2131 §4.3.2 table: server and requested address, no ciaddr.
    assert_eq!((request.kind, to_all, request.client), (MessageType::Request, true, Ipv4Addr::UNSPECIFIED));
    assert_eq!((request.xid, request.address(option::SERVER)), (discover.xid, Some(SERVER)));
    assert_eq!(request.address(option::REQUESTED_ADDRESS), Some(ADDR));
    lab.answer(MessageType::Ack, &request, SERVER);
    assert_eq!(lab.next(), Some(Action::Test(lease())));
    assert_eq!((lab.phase(), lab.client.held()), (Phase::Testing, None));
    lab.client.on_tested(lab.now, ADDR, true);
    let Some(Action::Bound(held)) = lab.next() else { panic!("bound") };
    assert_eq!(held.until, lab.now + Duration::from_secs(3600));
    assert!(within(lab.wait(), 1740, 1800), "T1 is half of the lease, a little earlier");
}

#[test]
fn questions_are_repeated_ever_more_rarely() {
    for seed in 0..50 {
        let mut lab = Lab::seeded(seed, None);
        let (first, _) = lab.sent();
        for (low, high) in [(3, 5), (7, 9), (15, 17), (31, 33), (63, 65), (63, 65)] {
            assert!(within(lab.wait(), low, high), "seed {seed}");
            let (again, _) = lab.sent();
            assert_eq!((again.kind, again.xid), (MessageType::Discover, first.xid));
            assert_eq!(u64::from(again.secs), lab.now.saturating_since(Instant::from_secs(100)).as_secs());
        }
    }
}

#[test]
fn an_offer_without_an_acknowledgment_is_forgotten_after_a_minute() {
    let mut lab = Lab::new(None);
    let (discover, _) = lab.sent();
    lab.answer(MessageType::Offer, &discover, SERVER);
    let mut waited = Duration::ZERO;
    for _ in 0..REQUESTS {
        assert_eq!(lab.sent().0.kind, MessageType::Request);
        waited += lab.wait();
    }
    assert!(within(waited, 56, 64), "{waited:?}");
    let (again, _) = lab.sent();
    assert_eq!(again.kind, MessageType::Discover);
    assert_ne!(again.xid, discover.xid);
}

#[test]
fn of_two_servers_the_first_is_taken_and_the_other_is_not_believed() {
    let mut lab = Lab::new(None);
    let (discover, _) = lab.sent();
    lab.answer(MessageType::Offer, &discover, SERVER);
    let (request, _) = lab.sent();
    lab.answer(MessageType::Offer, &discover, OTHER_SERVER);
    lab.answer(MessageType::Ack, &request, OTHER_SERVER);
    lab.answer(MessageType::Nak, &request, OTHER_SERVER);
    let mut another = answer(MessageType::Ack, &request, SERVER);
    another.yours = Ipv4Addr::new(10, 0, 0, 6);
    lab.hear(&another);
    assert_eq!((lab.phase(), lab.client.counters().unasked), (Phase::Requesting, 4));
    lab.answer(MessageType::Ack, &request, SERVER);
    assert_eq!(lab.phase(), Phase::Testing);
}

#[test]
fn what_is_for_others_or_out_of_turn_is_counted_and_nothing_else() {
    let mut lab = Lab::new(None);
    let (discover, _) = lab.sent();
    let good = answer(MessageType::Offer, &discover, SERVER);
    let mut others = vec![
        Message { xid: good.xid ^ 1, ..good.clone() },
        Message { mac: MacAddr([2, 8, 32, 9, 9, 9]), ..good.clone() },
        Message { is_reply: false, ..good.clone() },
        Message { kind: MessageType::Nak, ..good.clone() },
        Message { kind: MessageType::Ack, ..good.clone() },
        Message { kind: MessageType::Release, ..good.clone() },
    ];
    let mut stranger = good.clone();
    stranger.options.insert(option::CLIENT_ID, vec![1, 2, 3]);
    others.push(stranger);
    for other in &others {
        lab.hear(other);
    }
    assert_eq!(lab.client.counters().unasked, others.len() as u64);
    lab.client.on_message(lab.now, b"nonsense");
    lab.hear(&Message { yours: Ipv4Addr::new(224, 0, 0, 1), ..good.clone() });
    let seen = lab.client.counters();
    assert_eq!((seen.malformed, seen.unusable, lab.phase()), (1, 1, Phase::Selecting));
    lab.hear(&good);
    assert_eq!(lab.phase(), Phase::Requesting);
}

#[test]
fn a_refusal_begins_anew_at_once_and_then_ever_more_slowly() {
    let mut lab = Lab::new(None);
    let mut waits = Vec::new();
    for _ in 0..9 {
        let (discover, _) = lab.sent();
        assert_eq!(discover.kind, MessageType::Discover);
        lab.answer(MessageType::Offer, &discover, SERVER);
        let (request, _) = lab.sent();
        lab.answer(MessageType::Nak, &request, SERVER);
        assert_eq!(lab.phase(), Phase::Init);
        let at = lab.client.poll_at().unwrap();
        waits.push(at.saturating_since(lab.now).as_secs());
        lab.now = at;
    }
    assert_eq!(waits, [0, 1, 2, 4, 8, 16, 32, 64, 64]);
    lab.bind();
}

#[test]
fn an_address_that_another_station_has_is_declined() {
    let mut lab = Lab::new(None);
    let (discover, _) = lab.sent();
    lab.answer(MessageType::Offer, &discover, SERVER);
    let (request, _) = lab.sent();
    lab.answer(MessageType::Ack, &request, SERVER);
    lab.next();
    lab.client.on_tested(lab.now, Ipv4Addr::new(10, 0, 0, 77), false);
    assert_eq!(lab.phase(), Phase::Testing, "that was another address");
    lab.client.on_tested(lab.now, ADDR, false);
    assert_eq!(lab.next(), Some(Action::Lost(lease(), Loss::Conflict)));
    let (decline, to_all) = lab.sent();
    assert_eq!((decline.kind, to_all), (MessageType::Decline, true));
    assert_eq!(decline.address(option::REQUESTED_ADDRESS), Some(ADDR));
    assert_eq!(decline.address(option::SERVER), Some(SERVER));
    assert_eq!(lab.wait(), DECLINE_WAIT);
    let (discover, _) = lab.sent();
    assert_eq!(discover.address(option::REQUESTED_ADDRESS), None, "not that one again");
}

#[test]
fn an_address_that_cannot_be_used_here_is_not_declined_and_asked_for_again() {
    let mut lab = Lab::new(None);
    let (discover, _) = lab.sent();
    lab.answer(MessageType::Offer, &discover, SERVER);
    let (request, _) = lab.sent();
    lab.answer(MessageType::Ack, &request, SERVER);
    assert_eq!(lab.next(), Some(Action::Test(lease())));
    lab.client.put_off(lab.now);
    assert_eq!((lab.next(), lab.phase(), lab.client.counters().declined), (None, Phase::Init, 0));
    assert_eq!(lab.wait(), DECLINE_WAIT);
    let (discover, _) = lab.sent();
    assert_eq!(
        (discover.kind, discover.address(option::REQUESTED_ADDRESS)),
        (MessageType::Discover, Some(ADDR))
    );
    let mut lab = Lab::new(None);
    lab.bind();
    lab.client.put_off(lab.now);
    assert_eq!(lab.phase(), Phase::Bound, "it is used");
}

#[test]
fn a_conflict_while_the_address_is_in_use_ends_the_lease() {
    let mut lab = Lab::new(None);
    lab.bind();
    lab.client.on_tested(lab.now, ADDR, false);
    assert_eq!(lab.next(), Some(Action::Lost(lease(), Loss::Conflict)));
    assert_eq!(lab.sent().0.kind, MessageType::Decline);
    assert_eq!((lab.phase(), lab.client.counters().declined), (Phase::Init, 1));
}

#[test]
fn a_lease_is_renewed_where_it_came_from() {
    let mut lab = Lab::new(None);
    let held = lab.bind();
    lab.wait();
    let (request, to_all) = lab.sent();
    // §4.3.2: ciaddr, and neither server nor requested address.
    assert_eq!((request.kind, to_all, request.client), (MessageType::Request, false, ADDR));
    assert!(!request.broadcast && request.address(option::SERVER).is_none());
    assert_eq!(request.address(option::REQUESTED_ADDRESS), None);
    let asked_at = lab.now;
    lab.now += Duration::from_secs(3);
    lab.answer(MessageType::Ack, &request, SERVER);
    let Some(Action::Bound(renewed)) = lab.next() else { panic!("renewed") };
    assert_eq!(renewed.until, asked_at + Duration::from_secs(3600), "from when it was asked for");
    assert!(renewed.until > held.until && lab.phase() == Phase::Bound);
}

/// RFC 2131 §4.4.5: from when the request was sent that is answered, and not from the first that nobody heard.
#[test]
fn a_lease_that_is_given_late_and_for_less_is_in_force() {
    let mut lab = Lab::new(None);
    let mut request = lab.renewing();
    for _ in 0..3 {
        lab.wait();
        request = lab.sent().0;
    }
    let mut short = answer(MessageType::Ack, &request, SERVER);
    short.options.insert(option::LEASE_TIME, 60_u32.to_be_bytes().to_vec());
    let asked_at = lab.now;
    lab.now += Duration::from_secs(1);
    lab.hear(&short);
    let Some(Action::Bound(held)) = lab.next() else { panic!("in {:?}", lab.phase()) };
    assert_eq!(held.until, asked_at + Duration::from_secs(60));
}

#[test]
fn without_its_server_all_are_asked_and_without_any_the_address_is_lost() {
    let mut lab = Lab::new(None);
    let held = lab.bind();
    lab.wait();
    let mut unicast = 0;
    while lab.phase() == Phase::Bound || lab.phase() == Phase::Renewing {
        let (request, to_all) = lab.sent();
        if to_all {
            assert_eq!((request.client, lab.phase()), (ADDR, Phase::Rebinding));
            break;
        }
        unicast += 1;
        // The last wait is cut short where RENEWING ends.
        let (from, waited) = (lab.now, lab.wait());
        assert!(waited >= EXTEND_LEAST || from + EXTEND_LEAST > held.rebind_at);
    }
    assert!((4..12).contains(&unicast), "{unicast}: halves of what is left, but not less than a minute");
    let rebind = held.until.saturating_since(lab.now);
    assert!(within(rebind, 450, 550), "{rebind:?}");
    while lab.wait() > Duration::ZERO && lab.now < held.until {
        assert_eq!((lab.sent().1, lab.phase()), (true, Phase::Rebinding));
    }
    assert_eq!(lab.next(), Some(Action::Lost(lease(), Loss::Expired)));
    assert_eq!((lab.now, lab.sent().0.kind), (held.until, MessageType::Discover));
}

#[test]
fn another_server_may_take_a_lease_over() {
    let mut lab = Lab::new(None);
    lab.renewing();
    let request = loop {
        lab.wait();
        if let (request, true) = lab.sent() {
            break request;
        }
    };
    lab.answer(MessageType::Ack, &request, OTHER_SERVER);
    let Some(Action::Bound(held)) = lab.next() else { panic!("bound") };
    assert_eq!(held.lease.server, OTHER_SERVER);
}

#[test]
fn a_refused_renewal_takes_the_address_away_at_once() {
    let mut lab = Lab::new(None);
    let request = lab.renewing();
    lab.answer(MessageType::Nak, &request, OTHER_SERVER);
    assert_eq!(lab.phase(), Phase::Renewing, "it is not for this server to say");
    lab.answer(MessageType::Nak, &request, SERVER);
    assert_eq!(lab.next(), Some(Action::Lost(lease(), Loss::Refused)));
    assert_eq!(lab.sent().0.kind, MessageType::Discover);
}

#[test]
fn another_subnet_is_tested_anew() {
    let mut lab = Lab::new(None);
    let request = lab.renewing();
    let mut wider = answer(MessageType::Ack, &request, SERVER);
    wider.options.insert(option::SUBNET_MASK, vec![255, 255, 0, 0]);
    lab.hear(&wider);
    assert_eq!(lab.next(), Some(Action::Lost(lease(), Loss::Replaced)));
    assert!(matches!(lab.next(), Some(Action::Test(lease)) if lease.prefix_len == 16));
}

#[test]
fn the_lease_of_before_is_asked_for_first() {
    let mut lab = Lab::new(Some((lease(), Duration::from_secs(600))));
    let (request, to_all) = lab.sent();
    // §4.3.2: requested address, no server.
    assert_eq!((request.kind, to_all, lab.phase()), (MessageType::Request, true, Phase::Rebooting));
    assert_eq!(
        (request.address(option::REQUESTED_ADDRESS), request.address(option::SERVER)),
        (Some(ADDR), None)
    );
    lab.answer(MessageType::Ack, &request, SERVER);
    assert!(matches!(lab.next(), Some(Action::Test(_))));

    let mut lab = Lab::new(Some((lease(), Duration::from_secs(600))));
    let (request, _) = lab.sent();
    lab.answer(MessageType::Nak, &request, OTHER_SERVER);
    assert_eq!(lab.next(), Some(Action::Lost(lease(), Loss::Refused)), "it is not remembered");
    let (discover, _) = lab.sent();
    assert_eq!((discover.kind, lab.client.counters().refused), (MessageType::Discover, 1));

    let mut lab = Lab::new(Some((lease(), Duration::from_secs(600))));
    lab.sent();
    lab.client.release();
    assert_eq!(lab.next(), Some(Action::Lost(lease(), Loss::Released)), "nor what the operator gives back");
    assert_eq!((lab.next(), lab.phase()), (None, Phase::Released));
}

#[test]
fn with_no_server_there_the_rest_of_the_old_lease_is_used() {
    let mut lab = Lab::new(Some((lease(), Duration::from_secs(600))));
    let until = lab.now + Duration::from_secs(600);
    lab.sent();
    lab.wait();
    lab.sent();
    lab.wait();
    assert!(matches!(lab.next(), Some(Action::Test(_))));
    lab.client.on_tested(lab.now, ADDR, true);
    let Some(Action::Bound(held)) = lab.next() else { panic!("bound") };
    assert_eq!(held.until, until);
    let (request, to_all) = lab.sent();
    assert_eq!((request.client, to_all), (ADDR, false), "and asked for more at once");
    // One that is over is only a wish.
    let mut lab = Lab::new(Some((lease(), Duration::ZERO)));
    let (discover, _) = lab.sent();
    assert_eq!(discover.kind, MessageType::Discover);
    assert_eq!(discover.address(option::REQUESTED_ADDRESS), Some(ADDR));
}

#[test]
fn a_wall_clock_that_was_set_gives_no_lease_more_time_than_it_had() {
    let mut lab = Lab::new(Some((lease(), Duration::from_secs(36_000))));
    let begun = lab.now;
    for _ in 0..2 {
        lab.sent();
        lab.wait();
    }
    assert!(matches!(lab.next(), Some(Action::Test(_))));
    lab.client.on_tested(lab.now, ADDR, true);
    let Some(Action::Bound(held)) = lab.next() else { panic!("bound") };
    assert_eq!(held.until, begun + Duration::from_secs(3600));
}

#[test]
fn the_operator_renews_and_releases() {
    let mut lab = Lab::new(None);
    lab.bind();
    lab.client.refresh(lab.now);
    let (request, to_all) = lab.sent();
    assert_eq!((request.kind, to_all, lab.phase()), (MessageType::Request, false, Phase::Renewing));
    lab.client.release();
    let (release, to_all) = lab.sent();
    assert_eq!((release.kind, to_all, release.client), (MessageType::Release, false, ADDR));
    assert_eq!(release.address(option::SERVER), Some(SERVER));
    assert_eq!(lab.next(), Some(Action::Lost(lease(), Loss::Released)));
    assert_eq!((lab.next(), lab.client.poll_at(), lab.phase()), (None, None, Phase::Released));
    lab.client.refresh(lab.now);
    assert_eq!(lab.sent().0.kind, MessageType::Discover);
    // Without a lease there is nothing to give back.
    lab.client.release();
    assert_eq!((lab.next(), lab.phase()), (None, Phase::Released));
}

#[test]
fn what_the_operator_asks_for_is_repeated_like_a_first_request_and_then_like_a_renewal() {
    let mut lab = Lab::new(None);
    let held = lab.bind();
    lab.client.refresh(lab.now);
    let (first, _) = lab.sent();
    for (low, high) in [(3, 5), (7, 9), (15, 17), (31, 33)] {
        assert!(within(lab.wait(), low, high));
        let (again, to_all) = lab.sent();
        assert_eq!((again.kind, again.xid, to_all), (MessageType::Request, first.xid, false));
    }
    let half = held.rebind_at.saturating_since(lab.now) / 2;
    assert_eq!(lab.wait(), half, "RFC 2131 §4.4.5");
}

#[test]
fn a_lease_without_an_end_asks_for_nothing() {
    let mut lab = Lab::new(None);
    let (discover, _) = lab.sent();
    lab.answer(MessageType::Offer, &discover, SERVER);
    let (request, _) = lab.sent();
    let mut forever = answer(MessageType::Ack, &request, SERVER);
    forever.options.insert(option::LEASE_TIME, vec![255; 4]);
    lab.hear(&forever);
    lab.next();
    lab.client.on_tested(lab.now, ADDR, true);
    assert!(matches!(lab.next(), Some(Action::Bound(_))));
    assert_eq!(lab.client.poll_at(), Some(Instant::FAR_FUTURE));
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
            let (Action::Broadcast(bytes) | Action::Unicast(_, bytes)) = action else {
                match action {
                    Action::Test(lease) => lab.client.on_tested(lab.now, lease.addr, true),
                    Action::Lost(..) => lost += 1,
                    _ => {}
                }
                continue;
            };
            let asked = Message::parse(&bytes).unwrap();
            let kind =
                if asked.kind == MessageType::Discover { MessageType::Offer } else { MessageType::Ack };
            if luck.draw() & 3 != 0 {
                lab.answer(kind, &asked, SERVER);
            }
        }
        let seen = lab.client.counters();
        assert!(lab.client.held().is_some() && lost == 0 && seen.sent < 400, "seed {seed}: {lost} {seen:?}");
    }
}

#[test]
fn a_lease_is_used_while_a_link_that_was_away_is_asked_whether_it_holds() {
    let mut lab = Lab::new(None);
    let held = lab.bind();
    lab.now += Duration::from_secs(60);
    lab.client.verify(lab.now);
    let (asked, to_all) = lab.sent();
    // RFC 2131 §4.3.2: as after a start, because who serves another network answers that alone.
    assert_eq!((asked.kind, to_all, asked.client), (MessageType::Request, true, Ipv4Addr::UNSPECIFIED));
    assert_eq!((asked.address(option::REQUESTED_ADDRESS), asked.address(option::SERVER)), (Some(ADDR), None));
    assert_eq!((lab.phase(), lab.client.held()), (Phase::Bound, Some(&held)));
    // The same network: the lease is longer, and nobody is disturbed.
    lab.answer(MessageType::Ack, &asked, SERVER);
    let Some(Action::Bound(longer)) = lab.next() else { panic!("bound") };
    assert_eq!((longer.lease, longer.until), (held.lease, lab.now + Duration::from_secs(3600)));
    assert_eq!(lab.next(), None);
}

/// What a client that asks whether its lease holds does while nobody answers: when it began, and the waits until it asks no more.
fn unanswered(lab: &mut Lab) -> (Instant, Vec<Duration>) {
    let (began, mut waits) = (lab.now, Vec::new());
    while matches!(lab.client.state, State::Verifying(..)) && lab.now <= began + VERIFY_TIME {
        let Some(action) = lab.next() else {
            // What is over waits for something else.
            if matches!(lab.client.state, State::Verifying(..)) {
                waits.push(lab.wait());
            }
            continue;
        };
        if !matches!(lab.client.state, State::Verifying(..)) {
            lab.client.actions.push_front(action);
            break;
        }
        assert!(matches!(action, Action::Broadcast(_)), "{action:?}");
        assert_eq!(lab.phase(), Phase::Bound, "it is used meanwhile");
    }
    (began, waits)
}

/// A switch's port that has its carrier again may learn for half a minute before it forwards (IEEE 802.1D).
#[test]
fn a_lease_of_another_network_goes_also_where_the_first_questions_are_swallowed() {
    for swallowed in [14, 30, 100, 400] {
        let mut lab = Lab::new(None);
        let held = lab.bind();
        lab.client.verify(lab.now);
        let forwards = lab.now + Duration::from_secs(swallowed);
        while lab.now < forwards {
            lab.sent();
            lab.wait();
        }
        assert_eq!(lab.client.held(), Some(&held));
        let (asked, _) = lab.sent();
        lab.answer(MessageType::Nak, &asked, OTHER_SERVER);
        assert_eq!(lab.next(), Some(Action::Lost(held.lease, Loss::Refused)), "{swallowed}");
    }
}

#[test]
fn what_a_late_answer_gives_counts_from_its_question() {
    let mut lab = Lab::new(None);
    lab.bind();
    lab.client.verify(lab.now);
    let (first, _) = lab.sent();
    let mut asked = first.clone();
    for _ in 0..7 {
        lab.wait();
        asked = lab.sent().0;
    }
    let seen = lab.client.counters();
    lab.answer(MessageType::Ack, &first, SERVER);
    assert_eq!(lab.client.counters().unasked, seen.unasked + 1, "it is of minutes ago");
    let mut short = answer(MessageType::Ack, &asked, SERVER);
    short.options.insert(option::LEASE_TIME, 60_u32.to_be_bytes().to_vec());
    lab.hear(&short);
    let Some(Action::Bound(held)) = lab.next() else { panic!("in {:?}", lab.phase()) };
    assert_eq!(held.until, lab.now + Duration::from_secs(60));
}

#[test]
fn a_lease_is_renewed_in_time_while_nobody_says_whether_it_holds() {
    let before = |at: Instant, seconds| at - Duration::from_secs(seconds);
    // T1 comes while it is asked.
    let mut lab = Lab::new(None);
    let held = lab.bind();
    lab.now = before(held.renew_at, 40);
    lab.client.verify(lab.now);
    unanswered(&mut lab);
    assert_eq!((lab.now, lab.sent().1, lab.phase()), (held.renew_at, false, Phase::Renewing));
    // T1 is over.
    lab.client.verify(lab.now);
    let (began, _) = unanswered(&mut lab);
    assert_eq!((lab.now, lab.sent().1, lab.phase()), (began + VERIFY_TIME, false, Phase::Renewing));
    // T2 comes while it is asked.
    lab.now = before(held.rebind_at, 200);
    lab.client.verify(lab.now);
    unanswered(&mut lab);
    assert_eq!((lab.now, lab.sent().1, lab.phase()), (held.rebind_at, true, Phase::Rebinding));
    // T2 is over.
    lab.client.verify(lab.now);
    let (began, _) = unanswered(&mut lab);
    assert_eq!((lab.now, lab.sent().1, lab.phase()), (began + VERIFY_LATE, true, Phase::Rebinding));
    // It ends while it is asked.
    lab.now = before(held.until, 5);
    lab.client.verify(lab.now);
    unanswered(&mut lab);
    assert_eq!((lab.now, lab.next()), (held.until, Some(Action::Lost(held.lease, Loss::Expired))));
}

#[test]
fn who_wants_to_know_at_once_does_not_wait_for_a_rare_question() {
    let mut lab = Lab::new(None);
    lab.bind();
    lab.client.verify(lab.now);
    for _ in 0..6 {
        lab.sent();
        lab.wait();
    }
    lab.sent();
    assert!(lab.client.poll_at() > Some(lab.now + Duration::from_secs(100)));
    lab.client.refresh(lab.now);
    assert_eq!(lab.sent().0.kind, MessageType::Request);
    assert!(within(lab.wait(), 3, 5));
}

#[test]
fn a_lease_of_another_network_goes_at_once_and_one_that_nobody_speaks_of_stays() {
    let mut lab = Lab::new(None);
    let held = lab.bind();
    lab.client.verify(lab.now);
    let (asked_at, waits) = unanswered(&mut lab);
    assert!((8..10).contains(&waits.len()), "{waits:?}");
    let bounds = [(3, 5), (7, 9), (15, 17), (31, 33), (63, 65), (179, 181), (179, 181)];
    assert!(waits.iter().zip(bounds).all(|(wait, (low, high))| within(*wait, low, high)), "{waits:?}");
    assert_eq!((lab.now, lab.client.held()), (asked_at + VERIFY_TIME, Some(&held)), "nobody has answered");
    assert_eq!((lab.next(), lab.client.poll_at()), (None, Some(held.renew_at)));
    lab.client.verify(lab.now);
    let (asked, _) = lab.sent();
    lab.answer(MessageType::Nak, &asked, OTHER_SERVER);
    assert_eq!(lab.next(), Some(Action::Lost(held.lease, Loss::Refused)));
    assert_eq!(lab.sent().0.kind, MessageType::Discover);
    // Who looks for a first lease does not wait for the turn that the silence of another network has brought it to.
    for _ in 0..4 {
        lab.wait();
        lab.sent();
    }
    lab.client.verify(lab.now);
    assert_eq!((lab.sent().0.kind, lab.phase()), (MessageType::Discover, Phase::Selecting));
    assert!(within(lab.wait(), 3, 5));
}
