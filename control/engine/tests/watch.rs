//! Frames followed through a running engine, and steps counted while it works.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use firelane::{ChangeError, InventedPacket, Seen, Sight, Step, TcpListener, TcpStream, TraceOf};
use firelane_units::{Direction, DropReason, LinkId, MacAddr};

use crate::wired::pair;

/// What a trace sees until `is_enough`, in order.
fn follow(trace: &firelane::Trace, is_enough: impl Fn(&[Seen]) -> bool) -> Vec<Sight> {
    let (mut all, begin) = (Vec::new(), Instant::now());
    while !is_enough(&all) {
        all.append(&mut trace.take().0);
        all.sort_by_key(|seen| seen.order);
        assert!(begin.elapsed() < Duration::from_secs(10), "{all:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    all.into_iter().map(|seen| seen.what).collect()
}

#[test]
fn a_connections_segment_is_followed_and_its_steps_are_counted() {
    let [server, client] = pair();
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    let mut stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    let trace = server.engine().trace(TraceOf::Address("10.0.0.2".parse().unwrap()), 1).unwrap();
    assert!(matches!(server.engine().trace(TraceOf::Invented, 1), Err(ChangeError::Tracing)));
    let meter = server.engine().count_steps().unwrap();
    assert!(matches!(server.engine().count_steps(), Err(ChangeError::Metering)));
    stream.write_all(b"seen").unwrap();
    accepted.read_exact(&mut [0; 4]).unwrap();
    let sights = follow(&trace, |all| all.iter().any(|seen| seen.what == Sight::Delivered));
    let steps: Vec<_> = sights.iter().filter(|sight| matches!(sight, Sight::Step(..))).copied().collect();
    assert_eq!(steps[..2], [Step::Ip, Step::Tcp].map(|step| Sight::Step(step, Direction::In)));
    drop(trace);
    let counts = meter.counts();
    for step in [Step::Ip, Step::Tcp, Step::Socket] {
        let count = counts.of(step, Direction::In);
        assert!(count.frames > 0 && count.cycles > 0, "{step:?} {count:?}");
    }
    drop(meter);
    drop(server.engine().trace(TraceOf::Invented, 1).unwrap());
    drop(server.engine().count_steps().unwrap());
}

#[test]
fn an_invented_packet_is_dropped_with_the_counters_word() {
    let [server, _client] = pair();
    let packet: InventedPacket = "tcp 10.0.0.2:4000 10.0.0.1:81 A".parse().unwrap();
    let station = server.engine().station_of("10.0.0.1".parse().unwrap()).unwrap();
    assert_eq!(server.engine().station_of("10.0.0.77".parse().unwrap()), None);
    let bytes = packet.frame(MacAddr([2, 0, 0, 0, 0, 2]), station);
    let trace = server.engine().trace(TraceOf::Invented, 1).unwrap();
    let uplink = *server.engine().snapshot().ports.keys().next().unwrap();
    assert!(trace.invent(LinkId(99), &bytes).is_err());
    assert_eq!(trace.invent(uplink, &bytes).unwrap(), 1);
    let sights = follow(&trace, |all| all.iter().any(|seen| matches!(seen.what, Sight::Dropped(_))));
    assert_eq!(sights.last(), Some(&Sight::Dropped(DropReason::NoConnection)));
    assert_eq!(server.engine().snapshot().counters.drops.of(DropReason::NoConnection), 1);
}
