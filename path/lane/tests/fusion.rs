//! TCP Fusion between two sockets of a netstack: everything about TCP stays true, and nothing passes the lane.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use firelane_classify::FlowMatch;
use firelane_flow::FlowConfig;
use firelane_frame::{RingReader, byte_ring};
use firelane_lane::{
    CaptureTap, Captured, Control, FlowSetup, FuseWith, FusionTuning, LaneMessage, NetstackConfig,
    SocketCommand, StreamOption, Unfused,
};
use firelane_socket::{
    Flags, ListenerEnd, ReadError, Ready, SocketError, SocketToken, StreamEnd, UrgentMode, WriteError,
};
use firelane_tcp::Keepalive;
use firelane_units::{FlowId, LinkId, Mtu, NetstackId, Priority};
use firelane_world::*;
use proptest::prelude::*;

/// What a stream holds when it is fused: both buffers.
const BOTH: usize = RINGS.send_capacity + RINGS.recv_capacity;

fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|n| (n * 31 + (n >> 8)) as u8).collect()
}

fn is_fused(end: &StreamEnd) -> bool {
    end.shared().words().flags().contains(Flags::FUSED)
}

/// A netstack's connection with itself.
struct Pair {
    world: World,
    listener: ListenerEnd,
    client: StreamEnd,
    server: StreamEnd,
}

fn pair(lanes: u16, remote: &str) -> Pair {
    let mut world = two_stacks(lanes, Mtu::ETHERNET);
    let listen = if remote.starts_with('[') { "[::]:80" } else { "0.0.0.0:80" };
    let listener = world.listen(1, 1, listen, 8);
    let client = world.connect(1, lanes - 1, remote);
    world.run();
    let server = listener.accept().expect("the handshake is over").stream;
    Pair { world, listener, client, server }
}

fn fused() -> Pair {
    let pair = pair(1, "127.0.0.1:80");
    assert!(is_fused(&pair.client) && is_fused(&pair.server));
    pair
}

impl Pair {
    /// What lanes have made so far.
    fn packets(&self) -> u64 {
        self.world.counters().originated
    }

    fn tune(&mut self, is_on: bool) {
        self.tune_with(FusionTuning { is_on, ..FusionTuning::default() });
    }

    fn tune_with(&mut self, fusion: FusionTuning) {
        let config = NetstackConfig { fusion, ..NetstackConfig::new(NetstackId(1)) };
        self.world.all(|| Control::Tune(config.clone()));
        self.world.run();
    }

    fn read(&mut self, to: &mut [u8]) -> Result<usize, ReadError> {
        let Self { world, server, .. } = self;
        world.read(server, to)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, WriteError> {
        let Self { world, client, .. } = self;
        world.write(client, bytes)
    }
}

#[test]
fn bytes_pass_without_a_packet_and_the_end_comes_behind_them() {
    for lanes in [1, 4] {
        for remote in ["127.0.0.1:80", "10.0.0.1:80", "[::1]:80", "[fd00::1]:80"] {
            let mut pair = pair(lanes, remote);
            assert!(is_fused(&pair.client) && is_fused(&pair.server), "{remote}");
            let before = pair.packets();
            let Pair { world, client, server, .. } = &mut pair;
            world.transfer(client, server, &pattern(0, 3_000_000));
            world.transfer(server, client, &pattern(0, 300_000));
            assert_eq!(pair.packets(), before, "{remote}");
            pair.write(b"the last").unwrap();
            let Pair { world, client, server, .. } = &mut pair;
            world.command(client, SocketCommand::Shutdown);
            world.run();
            let mut bytes = [0; 100];
            assert_eq!(world.read(server, &mut bytes), Ok(8));
            assert_eq!(world.read(server, &mut bytes), Ok(0), "the end");
            world.transfer(server, client, &pattern(0, 1_000_000));
            world.command(server, SocketCommand::Close);
            world.run();
            assert_eq!(world.read(client, &mut bytes), Ok(0));
            world.check_conservation();
            let connections: usize = world.lanes.iter().map(|lane| lane.snapshot().connections).sum();
            assert_eq!(connections, 0);
        }
    }
}

#[test]
fn a_connection_is_fused_before_it_is_accepted() {
    let mut pair = fused();
    let Pair { world, listener, .. } = &mut pair;
    let mut client = world.connect(1, 0, "127.0.0.1:80");
    world.run();
    assert!(is_fused(&client));
    assert_eq!(world.write(&mut client, b"early"), Ok(5));
    let mut server = listener.accept().unwrap().stream;
    let mut bytes = [0; 8];
    assert_eq!(world.read(&mut server, &mut bytes), Ok(5));
}

#[test]
fn a_direction_holds_what_both_buffers_hold() {
    let mut pair = fused();
    let chunk = pattern(0, 100_000);
    let mut written = 0;
    while let Ok(count) = pair.write(&chunk) {
        written += count;
    }
    assert_eq!(written, BOTH);
    assert_eq!(pair.client.send.unacknowledged(), RINGS.send_capacity, "the rest counts as received");
    assert_eq!(pair.server.recv.available(), BOTH);
    // Nobody need be told before a good part is free.
    pair.client.shared().words().set_token(SocketToken(9));
    pair.client.shared().words().wait_for(Ready::WRITABLE);
    assert_eq!(pair.write(b"x"), Err(WriteError::WouldBlock));
    let mut bytes = vec![0; RINGS.send_capacity - 1];
    pair.world.mail.ready.clear();
    assert_eq!(pair.read(&mut bytes), Ok(bytes.len()));
    assert_eq!(pair.world.mail.ready, []);
    assert_eq!(pair.read(&mut bytes[..1]), Ok(1));
    assert_eq!(pair.world.mail.ready, [(SocketToken(9), Ready::WRITABLE)]);
    assert_eq!(pair.write(b"x"), Ok(1));
}

#[test]
fn a_reader_that_waits_is_told_once() {
    let mut pair = fused();
    let words = pair.server.shared().words();
    words.set_token(SocketToken(5));
    pair.world.mail.ready.clear();
    pair.write(b"a").unwrap();
    assert_eq!(pair.world.mail.ready, [], "nobody waits");
    pair.server.shared().words().wait_for(Ready::READABLE);
    pair.write(b"b").unwrap();
    pair.write(b"c").unwrap();
    assert_eq!(pair.world.mail.ready, [(SocketToken(5), Ready::READABLE)]);
}

#[test]
fn closing_with_unread_text_resets() {
    for unread_here in [true, false] {
        let mut pair = fused();
        let Pair { world, client, server, .. } = &mut pair;
        world.write(server, b"for the client").unwrap();
        if unread_here {
            world.write(client, b"unread").unwrap();
        }
        let before = world.counters().originated;
        world.command(server, SocketCommand::Close);
        world.run();
        let mut bytes = [0; 100];
        assert_eq!(world.read(client, &mut bytes), Ok(14), "what was received before stays to be read");
        let end = world.read(client, &mut bytes);
        if unread_here {
            assert_eq!(world.counters().originated, before, "nobody else needs to know");
            assert_eq!(end, Err(ReadError::Failed(SocketError::Reset)));
            assert_eq!(world.write(client, b"x"), Err(WriteError::Closed));
        } else {
            assert_eq!(end, Ok(0));
        }
        world.check_conservation();
    }
}

#[test]
fn an_abort_lets_the_peer_read_what_it_has() {
    let mut pair = fused();
    let Pair { world, client, server, .. } = &mut pair;
    world.write(client, b"abc").unwrap();
    world.command(client, SocketCommand::Abort);
    world.run();
    let mut bytes = [0; 8];
    assert_eq!(world.read(server, &mut bytes), Ok(3));
    assert_eq!(world.read(server, &mut bytes), Err(ReadError::Failed(SocketError::Reset)));
    assert_eq!(world.read(client, &mut bytes), Err(ReadError::Failed(SocketError::Aborted)));
    assert_eq!(world.lanes[0].snapshot().connections, 0);
    drop(pair);
}

#[test]
fn who_was_not_accepted_is_reset_with_its_listener() {
    let pair = fused();
    let Pair { mut world, listener, .. } = pair;
    let mut client = world.connect(1, 0, "127.0.0.1:80");
    world.run();
    assert!(is_fused(&client));
    drop(listener);
    let command = SocketCommand::Unlisten(firelane_units::SocketId(1));
    world.lanes[0].on_message(world.now, LaneMessage::Socket(NetstackId(1), command));
    world.run();
    assert_eq!(world.read(&mut client, &mut [0]), Err(ReadError::Failed(SocketError::Reset)));
}

#[test]
fn urgent_text_is_announced_at_once() {
    let mut pair = fused();
    pair.server.recv.heed_urgent(UrgentMode::OutOfBand);
    pair.write(b"ab!").unwrap();
    let end = pair.client.send.cursor();
    let Pair { world, client, .. } = &mut pair;
    world.command(client, |conn| SocketCommand::Urgent(conn, end));
    pair.write(b"cd").unwrap();
    assert!(pair.server.recv.has_urgent());
    assert_eq!(pair.server.recv.read_urgent(false), Ok(b'!'));
    let mut bytes = [0; 8];
    assert_eq!(pair.read(&mut bytes), Ok(2));
    assert!(pair.server.recv.is_at_mark());
    assert_eq!((pair.read(&mut bytes), &bytes[..2]), (Ok(2), &b"cd"[..]));
}

#[test]
fn silence_costs_nothing_and_ends_nothing() {
    let mut pair = fused();
    let keepalive = Keepalive { idle: Duration::from_secs(10), ..Keepalive::default() };
    let option = StreamOption::Keepalive(Some(keepalive));
    let Pair { world, client, .. } = &mut pair;
    world.command(client, |conn| SocketCommand::SetOption(conn, option));
    // By then the netstack has announced its addresses.
    world.run_for(Duration::from_secs(9));
    let before = pair.packets();
    pair.world.run_for(Duration::from_secs(3600));
    assert_eq!(pair.packets(), before, "the peer's end is here: nobody asks whether it lives");
    assert!(is_fused(&pair.client));
    pair.write(b"x").unwrap();
    assert_eq!(pair.read(&mut [0]), Ok(1));
    let Pair { world, client, .. } = &mut pair;
    world.command(client, |conn| SocketCommand::SetOption(conn, StreamOption::Keepalive(None)));
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.run(), None, "without keepalive no clock is left");
}

#[test]
fn a_silent_connection_has_no_storage() {
    let mut pair = fused();
    for _ in 0..2 {
        pair.write(&pattern(0, 1000)).unwrap();
        assert_eq!(pair.client.send.storage_bytes(), BOTH);
        pair.world.run_for(Duration::from_secs(5));
        assert_eq!(pair.client.send.storage_bytes(), BOTH, "somebody has yet to read");
        assert_eq!(pair.read(&mut [0; 2000]), Ok(1000));
        pair.write(b"x").unwrap();
        assert_eq!(pair.read(&mut [0; 2000]), Ok(1));
        pair.world.run_for(Duration::from_secs(5));
        assert_eq!(pair.client.send.storage_bytes(), 0);
    }
}

#[test]
fn a_reader_that_stands_still_ends_the_users_patience() {
    let mut pair = fused();
    let option = StreamOption::UserTimeout(Some(Duration::from_secs(20)));
    let Pair { world, client, .. } = &mut pair;
    world.command(client, |conn| SocketCommand::SetOption(conn, option));
    while pair.write(&pattern(0, 100_000)).is_ok() {}
    let mut bytes = vec![0; BOTH];
    pair.world.run_for(Duration::from_secs(15));
    assert_eq!(pair.read(&mut bytes[..1000]), Ok(1000), "it moves");
    pair.world.run_for(Duration::from_secs(15));
    assert!(pair.client.shared().words().error().is_none());
    pair.world.run_for(Duration::from_secs(10));
    assert_eq!(pair.write(b"x"), Err(WriteError::Failed(SocketError::TimedOut)));
    assert_eq!(pair.read(&mut bytes), Ok(BOTH - 1000));
    assert_eq!(pair.read(&mut bytes), Err(ReadError::Failed(SocketError::Reset)));
}

#[test]
fn so_many_writes_may_be_unread() {
    let mut pair = pair(1, "127.0.0.1:80");
    pair.tune(false);
    assert!(!is_fused(&pair.client));
    pair.tune_with(FusionTuning { is_on: true, unread_min: 8 });
    assert!(is_fused(&pair.client));
    let written = (0..20).take_while(|_| pair.write(b"x").is_ok()).count();
    assert_eq!(written, 8);
    assert_eq!(pair.read(&mut [0; 7]), Ok(7));
    assert_eq!(pair.write(b"x"), Err(WriteError::WouldBlock), "until the reader finds the end");
    assert_eq!(pair.read(&mut [0; 7]), Ok(1));
    assert_eq!(pair.write(b"x"), Ok(1));
}

#[test]
fn the_property_turns_connections_back_and_again() {
    let mut pair = fused();
    pair.write(&pattern(0, 300_000)).unwrap();
    assert_eq!(pair.read(&mut [0; 1000]), Ok(1000));
    for is_on in [false, true, false, true, true, false] {
        pair.tune(is_on);
        assert_eq!([is_fused(&pair.client), is_fused(&pair.server)], [is_on; 2]);
        let Pair { world, client, server, .. } = &mut pair;
        world.transfer(server, client, &pattern(0, 300_000));
    }
    let mut rest = vec![0; 300_000];
    let mut got = 1000;
    while got < 300_000 {
        let count = pair.read(&mut rest[got..]).unwrap();
        got += count;
        pair.world.run();
    }
    assert!(rest[1000..] == pattern(0, 300_000)[1000..]);
    let counters = pair.world.counters();
    assert_eq!((counters.fused, counters.parted), (3, 3));
    pair.world.check_conservation();
}

/// Who asks is told the same in both modes.
#[test]
fn what_is_known_of_a_connection_counts_fused_bytes() {
    for is_on in [true, false] {
        let mut pair = fused();
        pair.tune(is_on);
        pair.write(&pattern(0, 1000)).unwrap();
        pair.world.run();
        let mut bytes = [0; 400];
        pair.read(&mut bytes).unwrap();
        pair.world.run_for(Duration::from_secs(1));
        let info = |end: &StreamEnd| {
            pair.world.lanes[0].stream_info(pair.world.now, end.shared().conn().unwrap()).unwrap()
        };
        let (client, server) = (info(&pair.client), info(&pair.server));
        assert_eq!((client.tcp.bytes_acknowledged.0, server.tcp.bytes_received.0), (1000, 1000), "{is_on}");
        assert_eq!((client.unsent.0, server.unread.0, client.is_fused), (0, 600, is_on));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write { client: bool, len: usize },
    Read { client: bool, len: usize },
    Tune(bool),
    Run(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (any::<bool>(), 1usize..200_000).prop_map(|(client, len)| Step::Write { client, len }),
        6 => (any::<bool>(), 1usize..200_000).prop_map(|(client, len)| Step::Read { client, len }),
        2 => any::<bool>().prop_map(Step::Tune),
        2 => (0u64..50).prop_map(Step::Run),
    ];
    proptest::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// However often it changes between both, each end reads what the other wrote, and then the end.
    #[test]
    fn the_stream_is_its_cursor(steps in steps()) {
        let mut pair = fused();
        let (mut written, mut read) = ([0usize; 2], [0usize; 2]);
        for step in steps {
            let Pair { world, client, server, .. } = &mut pair;
            match step {
                Step::Write { client: by_client, len } => {
                    let end = if by_client { client } else { server };
                    let bytes = pattern(written[usize::from(by_client)], len);
                    written[usize::from(by_client)] += world.write(end, &bytes).unwrap_or(0);
                }
                Step::Read { client: by_client, len } => {
                    let end = if by_client { client } else { server };
                    let from = &mut read[usize::from(!by_client)];
                    let mut bytes = vec![0; len];
                    if let Ok(count) = world.read(end, &mut bytes) {
                        prop_assert!(bytes[..count] == pattern(*from, count));
                        *from += count;
                    }
                }
                Step::Tune(is_on) => pair.tune(is_on),
                Step::Run(millis) => world.run_for(Duration::from_millis(millis)),
            }
        }
        let Pair { world, client, server, .. } = &mut pair;
        world.command(client, SocketCommand::Shutdown);
        world.command(server, SocketCommand::Shutdown);
        for (end, from) in [(server, 1), (client, 0)] {
            world.read_to_end(end, |bytes| {
                assert!(bytes == pattern(read[from], bytes.len()));
                read[from] += bytes.len();
            });
            prop_assert_eq!(read[from], written[from]);
        }
        pair.world.check_conservation();
    }
}

/// What the VNIC and its flow have counted of fused text, inward and outward; both must agree.
fn counted(world: &mut World) -> [u64; 2] {
    let [mut of_port, mut of_flow] = [[0; 2]; 2];
    for lane in &mut world.lanes {
        let mut from = Some(0);
        while let Some(place) = from {
            from = lane.count_fused(place);
        }
        let snapshot = lane.snapshot();
        let (_, port) = snapshot.ports.iter().find(|(id, _)| *id == LinkId(1)).expect("the VNIC is there");
        let (_, flow) = snapshot.flows.iter().find(|(id, _)| *id == FlowId(1)).expect("and its flow");
        of_port = [of_port[0] + port.inward.fused, of_port[1] + port.outward.fused];
        of_flow = [of_flow[0] + flow[0].fused, of_flow[1] + flow[1].fused];
    }
    assert_eq!(of_port, of_flow);
    of_port
}

#[test]
fn fused_text_is_counted_where_its_addresses_are_to_the_byte() {
    for lanes in [1, 4] {
        let mut pair = pair(lanes, "10.0.0.1:80");
        let Pair { world, client, server, .. } = &mut pair;
        world.transfer(client, server, &pattern(0, 300_000));
        world.transfer(server, client, &pattern(0, 20_000));
        // What one end sends the other gets: here both are one VNIC's.
        assert_eq!(counted(world), [320_000; 2]);
        assert_eq!(counted(world), [320_000; 2], "once");
        pair.tune(false);
        let Pair { world, client, server, .. } = &mut pair;
        world.transfer(client, server, &pattern(0, 50_000));
        assert_eq!(counted(world), [320_000; 2], "segments carried that");
        pair.tune(true);
        assert!(is_fused(&pair.client));
        pair.write(&pattern(0, 500)).unwrap();
        let mut bytes = [0; 300];
        assert_eq!(pair.read(&mut bytes), Ok(300));
        assert_eq!(counted(&mut pair.world), [320_300; 2]);
        // The rest can still be read when the connection is over.
        let Pair { world, client, .. } = &mut pair;
        world.command(client, SocketCommand::Abort);
        world.run();
        assert_eq!(counted(world), [320_500; 2]);
        assert_eq!(pair.read(&mut bytes), Ok(200));
    }
}

#[test]
fn what_goes_to_a_loopback_address_is_no_vnics() {
    let mut pair = fused();
    let Pair { world, client, server, .. } = &mut pair;
    world.transfer(client, server, &pattern(0, 10_000));
    assert_eq!(counted(world), [0; 2]);
}

/// Somebody begins to look on.
pub(crate) fn look_on(world: &mut World, link: Option<u32>, flows: &[FlowId]) -> Vec<RingReader> {
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for _ in &world.lanes {
        let (writer, reader) = byte_ring(1 << 20);
        writers.push(writer);
        readers.push(reader);
    }
    let lost = Arc::new(AtomicU64::new(0));
    let writers = RefCell::new(writers);
    world.all(|| {
        let writer = writers.borrow_mut().pop().expect("one for each lane");
        let (link, flows, lost) = (link.map(LinkId), flows.to_vec(), Arc::clone(&lost));
        Control::AddTap(CaptureTap { id: 3, link, flows, snap: 64, writer, lost })
    });
    world.run();
    readers
}

/// How many frames he has seen, outward and inward.
pub(crate) fn seen(readers: &mut [RingReader]) -> [usize; 2] {
    let (mut count, mut bytes) = ([0; 2], Vec::new());
    for reader in readers {
        while let Some(captured) = Captured::take(reader, &mut bytes) {
            assert_eq!((captured.link, captured.reason), (LinkId(1), None));
            count[captured.direction.index()] += 1;
        }
    }
    count
}

#[test]
fn while_somebody_looks_on_text_goes_in_segments_that_he_sees() {
    for lanes in [1, 4] {
        // The VNIC, what it is over, its flow.
        for (link, flows) in [(Some(1), vec![]), (Some(0), vec![]), (None, vec![FlowId(1)])] {
            let mut pair = pair(lanes, "10.0.0.1:80");
            pair.write(&pattern(0, 5000)).unwrap();
            for round in 0..3 {
                let mut readers = look_on(&mut pair.world, link, &flows);
                assert!(!is_fused(&pair.client) && !is_fused(&pair.server), "{link:?}");
                let Pair { world, client, server, .. } = &mut pair;
                let mut bytes = [0; 5000];
                if round == 0 {
                    // What was written before and not read comes in segments, too.
                    assert_eq!(world.read(server, &mut bytes), Ok(5000));
                    assert_eq!(bytes[..], pattern(0, 5000));
                }
                world.transfer(client, server, &pattern(0, 100_000));
                world.transfer(server, client, &pattern(0, 100_000));
                let [inward, outward] = seen(&mut readers);
                assert!(inward == outward && inward > 3, "{inward} and {outward}");
                let mut late = world.connect(1, 0, "10.0.0.1:80");
                world.run();
                assert!(!is_fused(&late));
                world.write(&mut late, b"!").unwrap();
                world.all(|| Control::RemoveTap(3));
                world.run();
                assert!(is_fused(&pair.client) && is_fused(&pair.server) && is_fused(&late));
                let before = pair.packets();
                let Pair { world, client, server, .. } = &mut pair;
                world.transfer(client, server, &pattern(0, 100_000));
                assert_eq!(pair.packets(), before);
                pair.world.check_conservation();
            }
        }
    }
}

#[test]
fn who_looks_elsewhere_unfuses_nobody() {
    let mut pair = pair(1, "10.0.0.1:80");
    for (link, flows) in [(Some(2), vec![]), (None, vec![FlowId(2)]), (None, vec![])] {
        let mut readers = look_on(&mut pair.world, link, &flows);
        assert!(is_fused(&pair.client) && is_fused(&pair.server));
        let Pair { world, client, server, .. } = &mut pair;
        world.transfer(client, server, &pattern(0, 100_000));
        assert_eq!(seen(&mut readers), [0; 2]);
        world.all(|| Control::RemoveTap(3));
        world.run();
    }
    let mut local = fused();
    look_on(&mut local.world, Some(1), &[]);
    assert!(is_fused(&local.client), "127.0.0.1 is no VNIC's");
}

#[test]
fn a_link_a_vnic_or_a_flow_says_whether_connections_are_fused_and_running_ones_follow() {
    for lanes in [1, 4] {
        let mut pair = pair(lanes, "10.0.0.1:80");
        let local_port = Some("80".parse().unwrap());
        let rule = FlowMatch { local_port, ..FlowMatch::default() };
        let (served, parent) = (FlowId(8), Some(FlowId(1)));
        let config = FlowConfig { parent, maxbw: None, priority: Priority::Medium };
        pair.world.add_flow(FlowSetup {
            flow: served,
            owner: LinkId(1),
            rule: Some(rule),
            config,
            home: None,
        });
        pair.world.run();
        assert!(is_fused(&pair.client));
        // The server's own flow, and what it is part of.
        for (flow, why) in [(served, Unfused::Flow(served)), (FlowId(1), Unfused::Link(LinkId(1)))] {
            pair.write(&pattern(0, 5000)).unwrap();
            pair.world.all(|| Control::SetFusion(flow, FuseWith::Nobody));
            pair.world.run();
            assert!(!is_fused(&pair.client) && !is_fused(&pair.server));
            let (lane, conn) = (pair.client.shared().lane(), pair.client.shared().conn().unwrap());
            let info = pair.world.lanes[lane.index()].stream_info(pair.world.now, conn).unwrap();
            assert_eq!(info.unfused, Some(why));
            let mut bytes = [0; 5000];
            assert_eq!(pair.read(&mut bytes), Ok(5000));
            assert_eq!(bytes[..], pattern(0, 5000));
            pair.world.all(|| Control::SetFusion(flow, FuseWith::Itself));
            pair.world.run();
            assert!(is_fused(&pair.client) && is_fused(&pair.server));
        }
        // A flow that forbids it and goes leaves its connections to those who do not.
        pair.world.all(|| Control::SetFusion(served, FuseWith::Nobody));
        pair.world.all(|| Control::RemoveFlow(served));
        pair.world.run();
        assert!(is_fused(&pair.client));
        // Another VNIC's say is nothing to it.
        pair.world.all(|| Control::SetFusion(FlowId(2), FuseWith::Nobody));
        pair.world.run();
        assert!(is_fused(&pair.client) && is_fused(&pair.server));
        pair.world.check_conservation();
    }
}
