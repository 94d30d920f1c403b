//! Flows get lanes of their own while connections are there: what began before is found, what begins now begins where it belongs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use firelane_classify::{FlowLanes, FlowMatch, Steering};
use firelane_filter::RuleList;
use firelane_ip::{ErrorKind, QuotedText, Said, TransportError};
use firelane_lane::*;
use firelane_socket::{ListenerEnd, SocketError, StreamEnd};
use firelane_tcp::{SynCookies, TcpConfig};
use firelane_units::{
    BlockAnswer, Direction, FilterAction, FilterProtocol, FilterRule, FlowId, LaneId, Mtu, NetstackId, Port,
    SeqNum,
};
use firelane_wire::{IpProtocol, TcpFlags, TcpOptions};

use crate::floods::{Segment, Target, third};

const ID: NetstackId = NetstackId(1);
const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// Where everything begins at first, and where a flow's lane is then.
const OLD: LaneId = LaneId(0);
const NEW: LaneId = LaneId(1);

/// A netstack all of whose sockets begin in the first of its two lanes.
fn target(syn_cookies: SynCookies) -> (Target, ListenerEnd) {
    let mut target = Target::new(2);
    target.world.run_for(Duration::from_secs(70));
    let tcp = Arc::new(TcpConfig { syn_cookies, half_open_max: 6000, ..TcpConfig::default() });
    let config = NetstackConfig { tcp, ..NetstackConfig::new(ID) };
    target.world.all(|| Control::Tune(config.clone()));
    steer(&mut target, &Steering::single(OLD));
    let listener = target.world.listen(1, 1, "10.0.0.1:80", 64);
    target.segments();
    (target, listener)
}

fn steer(target: &mut Target, steering: &Steering) {
    target.world.all(|| Control::Steer(ID, steering.clone()));
}

/// What the local port 80 has begins in another lane from now on; the steering of that.
fn divert(target: &mut Target) -> Steering {
    let mut flows = FlowLanes::new();
    let rule = FlowMatch { local_port: Some("80".parse().unwrap()), ..FlowMatch::default() };
    flows.insert(&rule, FlowId(1), vec![NEW]).unwrap();
    let prepared = Steering::single(OLD).prepared(Some(&flows));
    steer(target, &prepared);
    let steering = prepared.followed_by(Some(Arc::new(flows)));
    steer(target, &steering);
    steering
}

/// The client's end of a connection, and the server's.
fn connect(target: &mut Target, listener: &ListenerEnd, port: u16) -> (Segment, StreamEnd) {
    let syn = target.syn((Ipv4Addr::new(192, 0, 2, 1), Port(port)));
    target.send(syn);
    let answers = target.segments();
    let ack = third(&syn, &answers[0]);
    target.send(ack);
    assert_eq!(target.segments().len(), 0, "it stands");
    (ack, listener.accept().expect("it stands").stream)
}

/// What all looks find that a lane takes.
fn strangers(target: &Target, at: LaneId) -> Strangers {
    let mut from = 0;
    loop {
        match target.world.lanes[at.index()].strangers(ID, from) {
            Strangers::NoneBefore(next) => from = next,
            found => return found,
        }
    }
}

/// So many SYNs from others that for the next ones no lane is asked.
fn flood(target: &mut Target) {
    for nth in 0..1000_u16 {
        let syn = target.syn((Ipv4Addr::new(192, 0, 2, 2), Port(10_000 + nth)));
        target.send(syn);
        target.segments();
    }
}

/// The peer of a connection closes it, and its other end says that it has heard.
fn send_fin(target: &mut Target, ack: Segment) {
    target.send(Segment { flags: TcpFlags::FIN | TcpFlags::ACK, ..ack });
    let answers = target.segments();
    assert_eq!(answers.iter().map(|it| it.ack).collect::<Vec<_>>(), [Some(ack.seq + 1)]);
}

fn connections(target: &Target) -> [usize; 2] {
    [OLD, NEW].map(|lane| target.world.lanes[lane.index()].snapshot().connections)
}

/// An ICMP error about what we sent, as the home lane tells it.
fn blame(target: &mut Target, error: (IpProtocol, SocketAddr, Option<SeqNum>), kind: ErrorKind) {
    let (protocol, peer, seq) = error;
    let said = Said {
        from: peer.ip(),
        link: None,
        hops: 64,
        tos: 0,
        icmp: [3, 3],
        rest: 0,
        text: QuotedText::of(&[]),
    };
    let ports = (Port(80), Port(peer.port()));
    let error = TransportError { protocol, src: HOST, dst: peer.ip(), ports, seq, kind, said };
    let message = LaneMessage::Learned(ID, Box::new(Learned::Error(error, None)));
    let now = target.world.now;
    target.world.lanes[NEW.index()].on_message(now, message);
    target.world.run();
}

#[test]
fn who_answers_a_cookie_is_connected_where_it_was_sent() {
    let (mut target, listener) = target(SynCookies::Always);
    let _old = connect(&mut target, &listener, 5000);
    divert(&mut target);
    let _new = connect(&mut target, &listener, 5001);
    assert_eq!(connections(&target), [1, 1]);
    assert_eq!(strangers(&target, NEW), Strangers::None);
    target.world.check_conservation();
}

#[test]
fn whoever_is_half_open_where_he_belongs_is_no_stranger() {
    let (mut target, _listener) = target(SynCookies::Pressure);
    let open = |target: &mut Target, port| {
        let syn = target.syn((Ipv4Addr::new(192, 0, 2, 1), Port(port)));
        target.send(syn);
        assert_eq!(target.segments().len(), 1);
    };
    let strangers = |target: &Target| [OLD, NEW].map(|at| strangers(target, at));
    open(&mut target, 5000);
    divert(&mut target);
    assert_eq!(strangers(&target), [Strangers::Some, Strangers::None], "it is in the old lane");
    target.world.run_for(Duration::from_secs(70));
    target.segments();
    assert_eq!(strangers(&target), [Strangers::None; 2], "it is over");
    open(&mut target, 5001);
    assert_eq!(target.sum(|it| it.half_open as u64), 1);
    assert_eq!(strangers(&target), [Strangers::None; 2], "it has begun since");
    target.world.check_conservation();
}

/// RFC 5961 §4: whoever forges a SYN of a connection does it no harm, wherever that is.
#[test]
fn a_syn_finds_the_connection_in_the_other_lane() {
    let (mut target, listener) = target(SynCookies::Pressure);
    let (ack, _server) = connect(&mut target, &listener, 5000);
    divert(&mut target);
    let forged = target.syn(ack.peer);
    target.send(Segment { seq: ack.seq + 1_000_000, ..forged });
    let answers = target.segments();
    assert_eq!(
        answers.iter().map(|it| (it.flags, it.ack)).collect::<Vec<_>>(),
        [(TcpFlags::ACK, Some(ack.seq))]
    );
    assert_eq!(target.sum(|it| it.half_open as u64), 0);
    send_fin(&mut target, ack);
    target.world.check_conservation();
}

/// For a SYN of a flood no other lane is asked: then it leaves nothing behind that would take a connection's segments.
#[test]
fn a_syn_in_a_flood_takes_no_connection_of_the_other_lane() {
    for syn_cookies in [SynCookies::Pressure, SynCookies::Off] {
        let (mut target, listener) = target(syn_cookies);
        let (ack, _server) = connect(&mut target, &listener, 5000);
        divert(&mut target);
        flood(&mut target);
        let half_open = |target: &Target| target.sum(|it| it.half_open as u64);
        let others = half_open(&target);
        assert!((990..=1000).contains(&others), "so many are no pressure yet: {others}");
        let forged = target.syn(ack.peer);
        target.send(Segment { seq: ack.seq + 1_000_000, ..forged });
        target.segments();
        assert_eq!(half_open(&target), others, "{syn_cookies:?}");
        send_fin(&mut target, ack);
        target.world.check_conservation();
    }
}

#[test]
fn icmp_errors_find_what_stayed_in_its_lane() {
    let (mut target, listener) = target(SynCookies::Pressure);
    let (ack, mut server) = connect(&mut target, &listener, 5000);
    let peer = SocketAddr::new(ack.peer.0.into(), ack.peer.1.0);
    let mut datagrams = target.world.bind(1, 2, OLD.0, "10.0.0.1:80");
    let to = "192.0.2.1:7";
    target.world.connect_datagrams(1, 2, Some(to)).unwrap();
    divert(&mut target);
    target.world.write(&mut server, &[1; 100]).unwrap();
    target.segments();
    let mss = |target: &Target| {
        let lane = &target.world.lanes[OLD.index()];
        let info = lane.stream_info(target.world.now, server.shared().conn().unwrap()).unwrap();
        info.tcp.path_mss.bytes()
    };
    assert!(mss(&target) > 1000);
    let mtu = Mtu::new(1000).unwrap();
    blame(&mut target, (IpProtocol::TCP, peer, ack.ack), ErrorKind::TooBig { mtu });
    assert!(mss(&target) < 1000, "the connection has heard of it");
    target.world.send_to(&mut datagrams, 2, to.parse().unwrap(), b"x");
    blame(&mut target, (IpProtocol::UDP, to.parse().unwrap(), None), ErrorKind::PortUnreachable);
    assert_eq!(datagrams.send.shared().words().take_error(), Some(SocketError::Refused));
    // What nobody has sent ends when all were asked.
    let (nobody, kind) = ("192.0.2.1:9".parse().unwrap(), ErrorKind::PortUnreachable);
    blame(&mut target, (IpProtocol::UDP, nobody, None), kind);
    blame(&mut target, (IpProtocol::TCP, nobody, Some(SeqNum(1))), kind);
    target.world.check_conservation();
}

/// What a server has closed first stays in TIME-WAIT in its old lane; who comes from the same port again begins in the new one.
#[test]
fn a_name_that_is_used_again_begins_where_it_belongs() {
    for in_a_flood in [false, true] {
        use_again(in_a_flood);
    }
}

fn use_again(in_a_flood: bool) {
    let (mut target, listener) = target(SynCookies::Pressure);
    let (ack, server) = connect(&mut target, &listener, 5000);
    target.world.command(&server, SocketCommand::Close);
    let fin = target.segments()[0];
    assert!(fin.flags.contains(TcpFlags::FIN));
    let (flags, all) = (TcpFlags::FIN | TcpFlags::ACK, Some(fin.seq + 1));
    target.send(Segment { flags, ack: all, ..ack });
    target.segments();
    let time_wait =
        |target: &Target| [OLD, NEW].map(|at| target.world.lanes[at.index()].snapshot().time_wait);
    assert_eq!((time_wait(&target), connections(&target)), ([1, 0], [0, 0]));
    let _old = connect(&mut target, &listener, 5001);
    let steering = divert(&mut target);
    target.world.run_for(Duration::from_secs(2));
    if in_a_flood {
        flood(&mut target);
    }
    let first = target.syn(ack.peer);
    let stamps = ack.options.timestamps.map(|(mine, _)| (mine.wrapping_add(2000), 0));
    let options = TcpOptions { timestamps: stamps, ..first.options };
    let syn = Segment { seq: ack.seq + 1_000_000, options, ..first };
    target.send(syn);
    let answers = target.segments();
    let ack = third(&syn, &answers[0]);
    target.send(ack);
    assert_eq!((target.segments().len(), connections(&target)), (0, [1, 1]), "{in_a_flood}");
    if !in_a_flood {
        // What began anew is found behind what is over, should its lane be taken away.
        steer(&mut target, &steering.followed_by(None));
        send_fin(&mut target, ack);
        return target.world.check_conservation();
    }
    // Both are over, in two lanes, and a FIN that is repeated is known by its number.
    let again = listener.accept().expect("it stands").stream;
    target.world.command(&again, SocketCommand::Close);
    let fin = target.segments()[0];
    let last = Segment { flags: TcpFlags::FIN | TcpFlags::ACK, ack: Some(fin.seq + 1), ..ack };
    for _ in 0..2 {
        target.send(last);
        let answers = target.segments();
        assert_eq!(answers.iter().map(|it| it.ack).collect::<Vec<_>>(), [Some(ack.seq + 1)]);
    }
    target.world.check_conservation();
}

/// A flood of SYNs for a flow with a lane of its own is that lane's matter.
#[test]
fn a_flood_in_one_lane_is_not_anothers() {
    let (mut target, listener) = target(SynCookies::Pressure);
    let _old = connect(&mut target, &listener, 5000);
    divert(&mut target);
    // Within a second, or two that it touches.
    for nth in 0..4000_u16 {
        let syn = target.syn((Ipv4Addr::new(192, 0, 2, 2), Port(10_000 + nth)));
        target.send(syn);
        target.segments();
    }
    // Each of its answers leaves by the other lane's ring.
    let asked = target.world.lanes[NEW.index()].snapshot().counters.handed - 4000;
    assert!((1000..2500).contains(&asked), "for {asked} of 4,000 the other lane was asked");
    target.world.check_conservation();
}

/// A lane that is looked at does nothing else, so it is not kept for long by a table that a flood has filled.
#[test]
fn half_open_ones_are_looked_at_by_and_by() {
    let (mut target, listener) = target(SynCookies::Off);
    let _old = connect(&mut target, &listener, 5000);
    for nth in 0..5000_u16 {
        let syn = target.syn((Ipv4Addr::new(192, 0, 2, 2), Port(10_000 + nth)));
        target.send(syn);
        target.segments();
    }
    let first = target.world.lanes[OLD.index()].strangers(ID, 0);
    assert!(matches!(first, Strangers::NoneBefore(..5000)), "{first:?}: not all are looked at");
    assert_eq!(strangers(&target, OLD), Strangers::None);
    divert(&mut target);
    assert_eq!(strangers(&target, OLD), Strangers::Some);
}

/// A reset in a peer's name, by which a rule (`return-rst out`) ends what may not be sent, finds the connection in its flow's lane, and one
/// that is still where it was before the flow had one.
#[test]
fn a_reset_of_what_may_not_leave_finds_the_connection_of_a_flow() {
    let (mut target, listener) = target(SynCookies::Off);
    let (_, old) = connect(&mut target, &listener, 5000);
    let steering = divert(&mut target);
    let (_, new) = connect(&mut target, &listener, 5001);
    assert_eq!(connections(&target), [1, 1]);
    let mut rule = FilterRule::new(Direction::Out, FilterAction::Block(BlockAnswer::Reset));
    rule.matching.protocol = FilterProtocol::Number(6);
    let list = Arc::new(RuleList::new(vec![rule]));
    target.world.all(|| Control::SetFilter(ID, Arc::clone(&list)));
    for mut end in [old, new] {
        target.world.write(&mut end, b"what may not leave").unwrap();
        target.world.run();
        assert_eq!(end.shared().words().take_error(), Some(SocketError::Reset));
        // Nobody is asked any more.
        steer(&mut target, &steering.settled());
    }
    assert_eq!(connections(&target), [0, 0]);
    assert_eq!(target.segments().len(), 0);
    target.world.check_conservation();
}
