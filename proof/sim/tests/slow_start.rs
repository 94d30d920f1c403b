//! How the first slow start ends on a path that queues long before it loses: HyStart++ (RFC 9406) leaves it because the round trip
//! grows, and nothing is lost; without, it ends by losing as much as the path holds.

mod endless;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use endless::{Sink, Source};
use firelane_driver_memory::Conditions;
use firelane_lane::StreamInfo;
use firelane_sim::{HostConfig, Sim, SocketConfig, StackConfig};
use firelane_tcp::congestion::Algorithm;
use firelane_units::{BitRate, Bytes, Mtu};

/// 20 Mb/s and a round trip of 50 ms: the path holds 125,000 bytes, and its queue twelve times as much.
const RATE: u64 = 20;
const DELAY: Duration = Duration::from_millis(25);
const QUEUE: Bytes = Bytes(1_500_000);
/// Long enough for slow start to fill the queue, too short for congestion avoidance to do so.
const SPAN: Duration = Duration::from_secs(4);

/// What is known of a sender after `SPAN`, and how much has arrived.
fn begin(algorithm: Algorithm, v6: bool) -> (StreamInfo, u64) {
    let mut sim = Sim::new(1);
    let [from, to] = [1, 2].map(|number| {
        let host = sim.host(HostConfig::default(), Mtu::ETHERNET);
        sim.stack(host, &StackConfig::new(number))
    });
    let wire = Conditions {
        rate: Some(BitRate::from_mbps(RATE)),
        delay: DELAY,
        queue: QUEUE,
        ..Conditions::default()
    };
    let (a, b) = (sim.uplink(0), sim.uplink(1));
    sim.connect(a, b, Mtu::ETHERNET, wire.clone(), wire);
    let mut sockets = SocketConfig::of(4 << 20);
    sockets.options.congestion = Some(algorithm);
    let (count, known) = (Rc::new(RefCell::new(0)), Rc::new(RefCell::new(vec![None])));
    let sink = Sink { v6, at: to, sockets, listener: None, streams: Vec::new(), count: Rc::clone(&count) };
    sim.spawn(Box::new(sink));
    sim.settle();
    sim.spawn(Box::new(Source { v6, from, to, sockets, stream: None, known: Rc::clone(&known), n: 0 }));
    sim.run_for(SPAN);
    let info = known.borrow()[0].expect("it has begun");
    let arrived = *count.borrow();
    (info, arrived)
}

#[test]
fn a_round_trip_that_grows_ends_slow_start_before_anything_is_lost() {
    for v6 in [false, true] {
        let (with, arrived) = begin(Algorithm::Cubic, v6);
        assert_eq!((with.tcp.troubles.repeated, with.tcp.troubles.timeouts), (0, 0));
        let threshold = with.tcp.slow_start_threshold.expect("slow start is over");
        assert!(threshold < QUEUE + Bytes(125_000), "{threshold:?}");
        assert!(threshold > Bytes(125_000), "the path is full: {threshold:?}");
        // 7.5 MB are the wire's; slow start takes some of the first half second.
        assert!(arrived > 6_500_000, "{arrived}");
        let (without, _) = begin(Algorithm::NewReno, v6);
        assert!(without.tcp.troubles.repeated > 50, "{}", without.tcp.troubles.repeated);
    }
}
