//! Who waits behind a limit of zero: his clocks run, he hears of a way around it, and when he is gone nothing of him stays.

use std::time::Duration;

use firelane_lane::*;
use firelane_socket::{ReadError, SocketError, StreamEnd, stream};
use firelane_units::{BitRate, FlowId, LaneId, LinkId, Mtu, NetstackId};
use firelane_world::*;

const CLIENT: NetstackId = NetstackId(1);
/// Another netstack, and the client's own.
const REMOTES: [&str; 2] = ["10.0.0.2:80", "10.0.0.1:80"];

fn shut(world: &mut World, maxbw: Option<BitRate>) {
    world.all(|| Control::SetMaxbw(FlowId(1), maxbw));
}

/// Two netstacks, the first of which may send nothing.
fn suspended() -> World {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let fusion = FusionTuning { is_on: false, ..FusionTuning::default() };
    let config = NetstackConfig { fusion, ..NetstackConfig::new(CLIENT) };
    world.all(|| Control::Tune(config.clone()));
    shut(&mut world, Some(BitRate::ZERO));
    world.run();
    world
}

fn begin(world: &mut World, remote: &str, options: StreamOptions) -> StreamEnd {
    let (end, slot) = stream(RINGS, LaneId(0), CLIENT);
    let connect = Connect { remote: remote.parse().unwrap(), local: None, stream: slot, options };
    let command = SocketCommand::Connect(Box::new(connect));
    world.lanes[0].on_message(world.now, LaneMessage::Socket(CLIENT, command));
    end
}

/// How many seconds pass until a connection that waits has failed, as its time-out; at most `most`.
fn fails_after(
    world: &mut World,
    mut outcome: impl FnMut(&mut World) -> Option<SocketError>,
    most: u64,
) -> Option<u64> {
    for second in 0..=most {
        if let Some(error) = outcome(world) {
            assert_eq!(error, SocketError::TimedOut);
            return Some(second);
        }
        world.run_for(Duration::from_secs(1));
    }
    None
}

#[test]
fn a_connect_ends_when_it_would_have_without_an_answer() {
    for remote in REMOTES {
        let three = StreamOptions { user_timeout: Some(Duration::from_secs(3)), ..StreamOptions::default() };
        // After one, three and seven seconds.
        let repeats = StreamOptions { syn_retries: Some(2), ..StreamOptions::default() };
        for (options, seconds) in [(three, 3), (repeats, 7), (StreamOptions::default(), 180)] {
            let mut world = suspended();
            let client = begin(&mut world, remote, options);
            let failed = fails_after(&mut world, |_| client.poll_connected().err(), 300);
            assert!(
                failed.is_some_and(|it| (seconds..=seconds + 1).contains(&it)),
                "{remote} {seconds}: {failed:?}"
            );
            assert_eq!(world.lanes[0].snapshot().connections, 0, "its program has heard of it");
            world.check_conservation();
        }
    }
}

/// A limit that was shut for some time is no sign that the way loses segments.
#[test]
fn a_connect_goes_on_when_the_limit_opens() {
    let mut world = suspended();
    let listener = world.listen(2, 1, "10.0.0.2:80", 1);
    let client = begin(&mut world, REMOTES[0], StreamOptions::default());
    world.run_for(Duration::from_secs(100));
    assert_eq!(client.poll_connected(), Ok(false));
    shut(&mut world, None);
    world.run();
    assert_eq!((client.poll_connected(), listener.accept().is_some()), (Ok(true), true));
    let counters = world.lanes[0].netstack_counters(CLIENT).unwrap().tcp;
    assert_eq!(counters.repeated, 0, "nothing was sent twice");
}

#[test]
fn text_that_may_not_leave_waits_no_longer_than_its_program_will() {
    for (user_timeout, seconds) in [(Some(Duration::from_secs(3)), 3), (None, 300)] {
        let mut world = two_stacks(1, Mtu::ETHERNET);
        let listener = world.listen(2, 1, "10.0.0.2:80", 1);
        let mut client =
            begin(&mut world, REMOTES[0], StreamOptions { user_timeout, ..StreamOptions::default() });
        world.run_for(Duration::from_secs(10));
        let _server = listener.accept().expect("the handshake is over").stream;
        shut(&mut world, Some(BitRate::ZERO));
        // An idle connection has nothing that could be late.
        world.run_for(Duration::from_secs(10));
        world.write(&mut client, b"text").unwrap();
        let outcome = |world: &mut World| match world.read(&mut client, &mut [0]) {
            Err(ReadError::Failed(error)) => Some(error),
            _ => None,
        };
        let failed = fails_after(&mut world, outcome, 400);
        assert!(failed.is_some_and(|it| (seconds..=seconds + 1).contains(&it)), "{seconds}: {failed:?}");
    }
}

/// What waits long, and may go on then, has the clock of what is under way, or none.
#[test]
fn text_that_waited_leaves_and_nothing_ends() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let listener = world.listen(2, 1, "10.0.0.2:80", 1);
    let user_timeout = Some(Duration::from_secs(30));
    let mut client =
        begin(&mut world, REMOTES[0], StreamOptions { user_timeout, ..StreamOptions::default() });
    world.run_for(Duration::from_secs(1));
    let mut server = listener.accept().expect("the handshake is over").stream;
    for _ in 0..3 {
        shut(&mut world, Some(BitRate::ZERO));
        world.write(&mut client, b"text").unwrap();
        world.run_for(Duration::from_secs(25));
        assert_eq!(world.read(&mut server, &mut [0; 8]), Err(ReadError::WouldBlock));
        shut(&mut world, None);
        world.run();
        assert_eq!(world.read(&mut server, &mut [0; 8]), Ok(4));
        world.run_for(Duration::from_secs(100));
    }
    assert_eq!(world.read(&mut client, &mut [0]), Err(ReadError::WouldBlock), "it lives");
    world.check_conservation();
}

#[test]
fn who_gives_up_leaves_nothing_behind() {
    const ROUNDS: usize = 20;
    const CONNECTS: usize = 500;
    for remote in REMOTES {
        let mut world = suspended();
        // One stays, so that the list is never empty.
        let _stays = begin(&mut world, remote, StreamOptions::default());
        let mut taken = Vec::new();
        for _ in 0..ROUNDS {
            for _ in 0..CONNECTS {
                let client = begin(&mut world, remote, StreamOptions::default());
                world.run();
                world.command(&client, SocketCommand::Close);
            }
            world.run_for(Duration::from_millis(10));
            let snapshot = world.lanes[0].snapshot();
            assert_eq!(snapshot.connections, 1, "{remote}");
            taken.push(snapshot.memory.connections + snapshot.memory.timers);
        }
        assert!(taken[ROUNDS - 1] <= taken[0] + 4096, "{remote}: {taken:?}");
    }
}

/// Nobody tells who waits that there is a way around the limit.
#[test]
fn who_waits_looks_whether_he_still_has_to() {
    let mut world = two_stacks(1, Mtu::ETHERNET);
    let beside = LinkId(10);
    world.all(|| Control::AddLink(LinkConfig { link: beside, mtu: Mtu::ETHERNET }));
    for (n, link) in [(1, LinkId(11)), (2, LinkId(12))] {
        world.add_flow(plain_flow(FlowId(link.0), link, None, None));
        world.add_port(
            vnic(link.0, beside.0, link.0 as u8, link.0, PortUser::Netstack(NetstackId(n))),
            vec![],
        );
        let address = format!("10.0.1.{n}/24").parse().unwrap();
        world.all(|| Control::AddAddress(NetstackId(n), link, address));
    }
    let far = "192.0.2.1/32".parse().unwrap();
    world.all(|| Control::AddAddress(NetstackId(2), LinkId(2), far));
    let route =
        |prefix: &str, next_hop: &str| RouteConfig::via(prefix.parse().unwrap(), next_hop.parse().unwrap());
    world.all(|| Control::AddRoute(CLIENT, route("192.0.2.0/24", "10.0.0.2")));
    shut(&mut world, Some(BitRate::ZERO));
    let _client = begin(&mut world, "192.0.2.1:80", StreamOptions::default());
    world.run_for(Duration::from_secs(1));
    let sent = |world: &World| world.lanes[0].netstack_counters(CLIENT).unwrap().tcp.segments_out;
    assert_eq!(sent(&world), 0);
    world.all(|| Control::AddRoute(CLIENT, route("192.0.2.1/32", "10.0.1.2")));
    world.run_for(Duration::from_secs(6));
    assert!(sent(&world) > 0, "the SYN leaves by the other VNIC");
}
