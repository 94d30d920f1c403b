//! Addresses and netstacks go while they have more connections than one turn looks at: each turn ends some, and others have their turns
//! in between (`stacks/sweep.rs`, `stacks/ending.rs`, `stacks/removed.rs`).

use std::time::{Duration, Instant as Clock};

use firelane_ip::DadConfig;
use firelane_lane::*;
use firelane_socket::{Flags, ListenerEnd, ReadError, Ready, SocketError, SocketToken, StreamEnd, stream};
use firelane_units::{LaneId, LinkId, Mtu, NetstackId};
use firelane_world::*;
use proptest::prelude::*;

/// Both ends of each are in the lane's table, so a turn looks at less than half of them.
const CONNECTIONS: usize = 300;
/// So many ends one turn brings about, at the most.
const ENDS_PER_TURN: usize = 256;

/// Who goes: netstack 1 with its address. Its peers are in netstack 2.
const GOES: NetstackId = NetstackId(1);
const ADDRESS: &str = "10.0.0.1";

/// A connection and the end that its peer has.
struct Pair {
    own: StreamEnd,
    far: StreamEnd,
}

/// One lane with netstacks 1 and 2, and 3 and 4, which nobody touches.
struct Net {
    world: World,
    listener: ListenerEnd,
    watched: Pair,
}

impl Net {
    fn new() -> Self {
        let mut world = two_stacks(1, Mtu::ETHERNET);
        [3, 4].into_iter().for_each(|n| world.add_stack_tested(n, DadConfig::OFF));
        let listener = world.listen(2, 1, "10.0.0.2:80", 2 * CONNECTIONS);
        let watching = world.listen(4, 2, "10.0.0.4:80", 1);
        world.run();
        let own = world.connect(3, 0, "10.0.0.4:80");
        world.run_for(Duration::from_millis(10));
        let far = watching.accept().expect("the handshake is over").stream;
        Self { world, listener, watched: Pair { own, far } }
    }

    fn with(connections: usize) -> (Self, Vec<Pair>) {
        let mut net = Self::new();
        let pairs = (0..connections).map(|_| net.open(None)).collect();
        (net, pairs)
    }

    /// Begins a connection of the netstack that goes, from a port that is chosen or named.
    fn begin(&mut self, port: Option<u16>) -> StreamEnd {
        let (end, stream) = stream(RINGS, LaneId(0), GOES);
        let local = port.map(|port| format!("{ADDRESS}:{port}").parse().unwrap());
        let remote = "10.0.0.2:80".parse().unwrap();
        let connect = Connect { remote, local, stream, options: StreamOptions::default() };
        let command = SocketCommand::Connect(Box::new(connect));
        let now = self.world.now;
        self.world.lanes[0].on_message(now, LaneMessage::Socket(GOES, command));
        end
    }

    /// The same, until its peer has it, too. Turns that end others may pass meanwhile.
    fn open(&mut self, port: Option<u16>) -> Pair {
        let own = self.begin(port);
        // The last ACK may wait for a turn.
        for _ in 0..3 {
            self.turn();
            if let Some(far) = self.accept_from(&own) {
                return Pair { own, far };
            }
        }
        panic!("the handshake is not over");
    }

    fn accept_from(&mut self, own: &StreamEnd) -> Option<StreamEnd> {
        let names = own.shared().names()?;
        std::iter::from_fn(|| self.listener.accept())
            .find(|it| it.names.remote == names.local)
            .map(|it| it.stream)
    }

    fn turn(&mut self) {
        self.world.now += Duration::from_micros(50);
        let now = self.world.now;
        self.world.lanes[0].turn(now, Idle::Sleeps);
        self.world.exchange();
    }

    /// The law: text that somebody else sends arrives within the turn.
    fn watched_turn(&mut self) {
        let Pair { own, far } = &mut self.watched;
        assert_eq!(self.world.write(own, b"now"), Ok(3));
        let now = self.world.now;
        self.world.lanes[0].turn(now, Idle::Sleeps);
        self.world.exchange();
        assert_eq!(self.world.read(far, &mut [0; 9]), Ok(3), "it arrives within the turn");
    }

    fn remove_address(&mut self) {
        self.world.all(|| Control::RemoveAddress(GOES, LinkId(1), ADDRESS.parse().unwrap()));
    }

    fn add_address(&mut self) {
        self.world.all(|| Control::AddAddress(GOES, LinkId(1), "10.0.0.1/24".parse().unwrap()));
    }

    fn remove_netstack(&mut self) {
        self.world.all(|| Control::RemoveNetstack(GOES));
    }

    /// Another netstack with the same number, VNIC and address.
    fn add_netstack(&mut self) {
        let steering = firelane_classify::Steering::even(&self.world.lane_ids());
        let config = NetstackConfig { steering, dad: DadConfig::OFF, ..NetstackConfig::new(GOES) };
        self.world.all(|| Control::AddNetstack(config.clone()));
        self.world.all(|| Control::SetUser(LinkId(1), PortUser::Netstack(GOES)));
        self.add_address();
    }

    fn is_ending(&self) -> bool {
        self.world.lanes[0].is_ending()
    }

    fn connections(&self) -> usize {
        self.world.lanes[0].snapshot().connections
    }

    /// What goes has gone, in turns of which each ended some and served others.
    fn end_all(&mut self, pairs: &[Pair], least_turns: usize) {
        let (mut before, mut turns) = (closed(pairs), 0);
        assert!(before <= ENDS_PER_TURN, "{before} in one message");
        while self.is_ending() {
            self.watched_turn();
            let after = closed(pairs);
            assert!(after - before <= ENDS_PER_TURN, "{before}, then {after}");
            (before, turns) = (after, turns + 1);
        }
        assert!(turns >= least_turns, "{turns}");
        self.world.run();
        assert_eq!(closed(pairs), pairs.len());
    }
}

fn is_closed(end: &StreamEnd) -> bool {
    end.shared().words().flags().contains(Flags::CLOSED)
}

fn closed(pairs: &[Pair]) -> usize {
    pairs.iter().filter(|pair| is_closed(&pair.own)).count()
}

/// Why both ends have ended.
fn errors(pairs: &[Pair]) -> Vec<[Option<SocketError>; 2]> {
    let of = |end: &StreamEnd| end.shared().words().take_error();
    pairs.iter().map(|pair| [of(&pair.own), of(&pair.far)]).collect()
}

/// Text goes both ways.
fn talks(net: &mut Net, pair: &mut Pair) {
    let Pair { own, far } = pair;
    net.world.transfer(own, far, b"hello");
    net.world.transfer(far, own, b"hello yourself");
}

const ABORTED_AND_RESET: [Option<SocketError>; 2] = [Some(SocketError::Aborted), Some(SocketError::Reset)];

#[test]
fn an_address_that_goes_ends_its_connections_in_turns_and_tells_their_peers() {
    let (mut net, pairs) = Net::with(CONNECTIONS);
    net.remove_address();
    net.end_all(&pairs, 2);
    assert!(errors(&pairs).iter().all(|it| *it == ABORTED_AND_RESET));
    assert_eq!(net.connections(), 2, "those that watched");
    // Its subnet has no way any more.
    let fails = net.begin(None);
    assert!(fails.poll_connected().is_err());
    net.world.check_conservation();
}

#[test]
fn a_netstack_that_goes_ends_its_connections_in_turns_and_tells_their_peers() {
    let (mut net, pairs) = Net::with(CONNECTIONS);
    let listener = net.world.listen(1, 9, "0.0.0.0:80", 8);
    listener.words().set_token(SocketToken(5));
    listener.words().wait_for(Ready::READABLE);
    let mut datagrams = net.world.bind(1, 10, 0, "10.0.0.1:9");
    net.remove_netstack();
    assert!(listener.words().flags().contains(Flags::CLOSED), "it is told at once");
    assert_eq!(datagrams.recv.recv(&mut []), Err(SocketError::Aborted));
    net.end_all(&pairs, 1);
    assert!(errors(&pairs).iter().all(|it| *it == ABORTED_AND_RESET));
    assert_eq!(net.connections(), 2, "those that watched");
    assert_eq!(net.world.lanes[0].snapshot().held, 0);
    net.world.check_conservation();
}

/// As if they had ended: what comes for them is for nobody, and what their programs write leaves no more.
#[test]
fn what_comes_for_connections_whose_address_has_gone_reaches_nobody() {
    let (mut net, mut pairs) = Net::with(CONNECTIONS);
    net.remove_address();
    for Pair { far, .. } in &mut pairs {
        assert_eq!(net.world.write(far, b"to nobody"), Ok(9));
    }
    // The hand has been at some of them, and text has come for all.
    net.watched_turn();
    assert!(net.is_ending() && closed(&pairs) < CONNECTIONS);
    for Pair { own, .. } in &mut pairs {
        let text = net.world.read(own, &mut [0; 20]);
        assert!(!matches!(text, Ok(1..)), "{text:?}");
        let _ = net.world.write(own, b"by nobody");
    }
    while net.is_ending() {
        net.watched_turn();
    }
    net.world.run();
    for Pair { own, far } in &mut pairs {
        // Who has asked before has heard why.
        let end = net.world.read(own, &mut [0; 20]);
        assert!(matches!(end, Ok(0) | Err(ReadError::Failed(SocketError::Aborted))), "{end:?}");
        assert_eq!(net.world.read(far, &mut [0; 20]), Err(ReadError::Failed(SocketError::Reset)));
    }
    net.world.check_conservation();
}

/// Programs close, abort and ask while the hand is on its way.
#[test]
fn who_closes_a_connection_whose_address_has_gone_leaves_nothing_behind() {
    let (mut net, pairs) = Net::with(CONNECTIONS);
    net.remove_address();
    for (nth, pair) in pairs.iter().enumerate() {
        let command = [SocketCommand::Close, SocketCommand::Abort, SocketCommand::Shutdown][nth % 3];
        net.world.command(&pair.own, command);
    }
    while net.is_ending() {
        net.watched_turn();
    }
    net.world.run();
    assert_eq!((closed(&pairs), net.connections()), (CONNECTIONS, 2));
    let now = net.world.now;
    let known =
        |pair: &Pair| net.world.lanes[0].stream_info(now, pair.own.shared().conn().unwrap()).is_some();
    let nth_is_known: Vec<bool> = pairs.iter().map(known).collect();
    assert!(nth_is_known.iter().enumerate().all(|(nth, known)| *known != (nth % 3 == 0)), "until they close");
    net.world.check_conservation();
}

#[test]
fn an_address_that_is_given_again_keeps_what_begins_with_it_then() {
    let (mut net, old) = Net::with(CONNECTIONS);
    net.remove_address();
    net.add_address();
    let mut new: Vec<Pair> = Vec::new();
    while net.is_ending() {
        let before = closed(&old);
        new.push(net.open(None));
        assert!(closed(&old) - before <= ENDS_PER_TURN);
    }
    assert!(new.len() >= 2, "{}", new.len());
    net.world.run();
    assert!(errors(&old).iter().all(|it| *it == ABORTED_AND_RESET));
    assert_eq!(closed(&new), 0);
    for pair in &mut new {
        talks(&mut net, pair);
    }
    assert_eq!(net.connections(), 2 + 2 * new.len());
    net.world.check_conservation();
}

/// Who begins with the names of one that has yet to end ends it, and is not taken for it.
#[test]
fn names_of_a_connection_that_has_yet_to_end_are_free() {
    let (mut net, old) = Net::with(CONNECTIONS);
    let ports: Vec<u16> = old.iter().map(|pair| pair.own.shared().names().unwrap().local.port()).collect();
    net.remove_address();
    net.add_address();
    assert!(closed(&old) < CONNECTIONS && net.is_ending());
    let new: Vec<StreamEnd> = ports.iter().map(|&port| net.begin(Some(port))).collect();
    net.world.run_for(Duration::from_secs(5));
    assert_eq!(closed(&old), CONNECTIONS);
    for own in new {
        assert_eq!(own.poll_connected(), Ok(true));
        let mut accepted = std::iter::from_fn(|| net.listener.accept());
        let far = accepted.next().expect("each has its peer").stream;
        assert!(!is_closed(&own) && !is_closed(&far));
    }
    assert_eq!(net.connections(), 2 + 2 * CONNECTIONS);
    net.world.check_conservation();
}

/// The second removal ends all that have begun before it, wherever the hand is.
#[test]
fn an_address_that_goes_twice_takes_along_what_began_in_between() {
    let (mut net, first) = Net::with(3 * CONNECTIONS);
    net.remove_address();
    net.turn();
    net.add_address();
    let second: Vec<Pair> = vec![net.open(None)];
    net.remove_address();
    net.add_address();
    let mut third: Vec<Pair> = vec![net.open(None)];
    assert!(net.is_ending() && closed(&first) < first.len());
    while net.is_ending() {
        net.watched_turn();
    }
    net.world.run();
    for gone in [&first, &second] {
        assert!(errors(gone).iter().all(|it| *it == ABORTED_AND_RESET));
    }
    assert_eq!(closed(&third), 0);
    third.iter_mut().for_each(|pair| talks(&mut net, pair));
    net.world.check_conservation();
}

#[test]
fn a_netstack_with_the_number_of_one_that_goes_works_at_once() {
    let (mut net, mut old) = Net::with(CONNECTIONS);
    net.remove_netstack();
    net.add_netstack();
    assert!(closed(&old) < CONNECTIONS, "some have yet to end");
    let (rows, _) = net.world.ask(0, Some(GOES.0));
    assert!(rows.is_empty(), "and are not the new one's");
    // The programs of before go on as they please.
    for (nth, Pair { own, .. }) in old.iter_mut().enumerate() {
        match nth % 3 {
            0 => _ = net.world.write(own, b"is anybody there"),
            1 => net.world.command(own, SocketCommand::Close),
            _ => net.world.command(own, SocketCommand::Abort),
        }
    }
    let mut new = vec![net.open(None)];
    while net.is_ending() {
        new.push(net.open(None));
    }
    net.world.run();
    assert_eq!(closed(&old), CONNECTIONS);
    for (nth, [own, far]) in errors(&old).into_iter().enumerate() {
        // Who has written may have heard it then.
        assert!(own == Some(SocketError::Aborted) || (own.is_none() && nth % 3 == 0), "{nth}: {own:?}");
        assert_eq!(far, Some(SocketError::Reset), "{nth}");
    }
    assert_eq!((closed(&new), net.connections()), (0, 2 + 2 * new.len()));
    new.iter_mut().for_each(|pair| talks(&mut net, pair));
    net.world.check_conservation();
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Open,
    /// The how manieth of those that live.
    Abort(usize),
    Talk(usize),
    Turn,
    Address,
    Netstack,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => Just(Op::Open),
        3 => any::<usize>().prop_map(Op::Abort),
        3 => any::<usize>().prop_map(Op::Talk),
        4 => Just(Op::Turn),
        2 => Just(Op::Address),
        1 => Just(Op::Netstack),
    ];
    prop::collection::vec(op, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Connections come and go, and so do the address and the netstack that they have: who has begun before it went has ended, who has
    /// begun since it is there again lives, and nothing of the one reaches the other.
    #[test]
    fn who_began_before_ends_and_who_began_since_lives(ops in ops()) {
        let (mut net, mut live) = Net::with(CONNECTIONS / 2);
        let (mut gone, mut aborted) = (Vec::new(), Vec::new());
        let pick = |live: &mut Vec<Pair>, nth: usize| (!live.is_empty()).then(|| live.remove(nth % live.len()));
        for op in ops {
            match op {
                Op::Open => live.push(net.open(None)),
                Op::Abort(nth) => if let Some(pair) = pick(&mut live, nth) {
                    net.world.command(&pair.own, SocketCommand::Abort);
                    aborted.push(pair);
                },
                Op::Talk(nth) => if let Some(mut pair) = pick(&mut live, nth) {
                    prop_assert_eq!(net.world.write(&mut pair.own, b"text"), Ok(4));
                    net.turn();
                    prop_assert_eq!(net.world.read(&mut pair.far, &mut [0; 9]), Ok(4));
                    live.push(pair);
                },
                Op::Turn => net.watched_turn(),
                Op::Address => {
                    net.remove_address();
                    net.add_address();
                    gone.append(&mut live);
                }
                Op::Netstack => {
                    net.remove_netstack();
                    net.add_netstack();
                    gone.append(&mut live);
                }
            }
        }
        net.world.run();
        prop_assert!(!net.is_ending());
        prop_assert_eq!((closed(&gone), closed(&aborted), closed(&live)), (gone.len(), aborted.len(), 0));
        prop_assert!(errors(&gone).iter().all(|it| *it == ABORTED_AND_RESET));
        prop_assert_eq!(net.connections(), 2 + 2 * live.len());
        if let Some(pair) = live.last_mut() {
            talks(&mut net, pair);
        }
        net.world.check_conservation();
    }
}

/// What removals cost a lane that has so many connections: `cargo test --release -p firelane-lane --test all ending::costs -- --ignored
/// --nocapture`.
#[test]
#[ignore = "it measures"]
fn costs_of_removals() {
    const MANY: usize = 200_000;
    const PER_PORT: usize = 25_000;
    for removes_netstack in [false, true] {
        let mut world = two_stacks(1, Mtu::ETHERNET);
        let mut ends = Vec::with_capacity(2 * MANY);
        for nth in 0..MANY / PER_PORT {
            let (socket, server) = (nth as u32 + 1, format!("10.0.0.2:{}", 80 + nth));
            let listener = world.listen(2, socket, &server, 16);
            for _ in 0..PER_PORT {
                ends.push(world.connect(1, 0, &server));
                world.run();
                ends.push(listener.accept().expect("the handshake is over").stream);
            }
        }
        world.run_for(Duration::from_secs(3));
        let control = match removes_netstack {
            true => Control::RemoveNetstack(GOES),
            false => Control::RemoveAddress(GOES, LinkId(1), ADDRESS.parse().unwrap()),
        };
        let (now, what) = (world.now, control.word());
        let began = Clock::now();
        world.lanes[0].on_message(now, LaneMessage::Control(Box::new(control)));
        let message = began.elapsed();
        let mut turns = Vec::new();
        loop {
            let began = Clock::now();
            let sleep = world.lanes[0].turn(now, Idle::Sleeps);
            turns.push(began.elapsed());
            world.exchange();
            if !sleep.work_left && sleep.until.is_none_or(|at| at > now) {
                break;
            }
        }
        let whole = began.elapsed();
        turns.sort_unstable();
        let of = |percent: usize| turns[(turns.len() - 1) * percent / 100];
        let reset =
            ends.iter().filter(|end| end.shared().words().error() == Some(SocketError::Reset)).count();
        println!("{what}: {MANY} connections, message {message:?}, all {whole:?}, {reset} peers reset");
        println!("{} turns: median {:?}, 99 % {:?}, longest {:?}", turns.len(), of(50), of(99), of(100));
    }
}
