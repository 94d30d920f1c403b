//! Filters of single sockets as programs set them: listeners and datagram sockets, with any number of lanes.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use firelane::{Stack, StreamConfig, TcpListener, TcpStream, UdpSocket, WireConfig, wire};
use firelane_units::{
    BlockAnswer, Direction, FilterAction, FilterAddresses, FilterLog, FilterRule, KeepState, LinkId,
};

/// A server at 10.0.0.1, and a client at 10.0.0.2 and .3.
fn pair(lanes: usize) -> (Stack, Stack) {
    let (left, right) = wire(WireConfig::default());
    let stack = |end: firelane::Queue, n: u8, addresses: &[&str]| {
        let mut builder =
            Stack::builder().lanes(lanes).interface(end).mac(&format!("02:08:20:00:00:0{n}")).unwrap();
        for address in addresses {
            builder = builder.address(address).unwrap();
        }
        builder.build().unwrap()
    };
    (stack(left.into(), 1, &["10.0.0.1/24"]), stack(right.into(), 2, &["10.0.0.2/24", "10.0.0.3/24"]))
}

fn rule(action: FilterAction, from: &str) -> FilterRule<LinkId> {
    let mut rule = FilterRule::new(Direction::In, action);
    rule.matching.from.addresses = FilterAddresses::Prefix(from.parse().unwrap());
    rule
}

fn connect(client: &Stack, local: &str, remote: SocketAddr) -> std::io::Result<TcpStream> {
    let local = SocketAddr::new(local.parse().unwrap(), 0);
    let stream = TcpStream::begin_from(client, Some(local), remote, StreamConfig::default())?;
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Poll::Ready(told) = stream.poll_connected(&mut Context::from_waker(Waker::noop())) {
            return told.map(|()| stream);
        }
        assert!(Instant::now() < deadline, "nobody answers");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_listener_lets_in_whom_its_rules_name_and_changes_its_mind_live() {
    for lanes in [1, 3] {
        let (server, client) = pair(lanes);
        let listener = TcpListener::bind(&server, "10.0.0.1:80").unwrap();
        let address = listener.local_addr().unwrap();
        let reset = FilterAction::Block(BlockAnswer::Reset);
        listener.set_filter(vec![rule(reset, "10.0.0.3/32")], Vec::new()).unwrap();
        let mut first = connect(&client, "10.0.0.2", address).unwrap();
        let (mut served, _) = listener.accept().unwrap();
        assert_eq!(connect(&client, "10.0.0.3", address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let counts = listener.filter_counts();
        assert_eq!((counts.blocked, counts.passed, counts.rules[0].packets), ([1, 0], [1, 0], 1));
        listener.set_filter(vec![rule(reset, "10.0.0.0/24")], Vec::new()).unwrap();
        assert_eq!(connect(&client, "10.0.0.2", address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        // The first goes on.
        first.write_all(b"still here").unwrap();
        let mut bytes = [0; 10];
        served.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"still here");
        listener.set_filter(Vec::new(), Vec::new()).unwrap();
        connect(&client, "10.0.0.3", address).unwrap();
        assert!(listener.filter_counts().rules.is_empty());
    }
}

#[test]
fn a_pool_of_addresses_keeps_datagrams_out() {
    let (server, client) = pair(2);
    let receiver = UdpSocket::bind(&server, "10.0.0.1:53").unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut rule = FilterRule::new(Direction::In, FilterAction::Block(BlockAnswer::Silent));
    rule.matching.from.addresses = FilterAddresses::Pool(7);
    receiver.set_filter(vec![rule], vec![(7, vec!["10.0.0.3/32".parse().unwrap()])]).unwrap();
    let mut bytes = [0; 9];
    for (from, is_heard) in [("10.0.0.3:4000", false), ("10.0.0.2:4000", true)] {
        let sender = UdpSocket::bind(&client, from).unwrap();
        sender.send_to(b"hello", "10.0.0.1:53").unwrap();
        assert_eq!(receiver.recv_from(&mut bytes).is_ok(), is_heard, "{from}");
    }
    assert_eq!(receiver.filter_counts().blocked, [1, 0]);
}

#[test]
fn rules_that_make_no_sense_for_a_socket_are_refused_by_number_and_nothing_changes() {
    let (server, _client) = pair(1);
    let listener = TcpListener::bind(&server, "10.0.0.1:80").unwrap();
    let block = FilterAction::Block(BlockAnswer::Silent);
    let good = rule(block, "10.0.0.3/32");
    listener.set_filter(vec![good.clone()], Vec::new()).unwrap();
    let plain = FilterRule::new(Direction::In, block);
    for (bad, what) in [
        (FilterRule::new(Direction::Out, block), "what comes in"),
        (FilterRule { keep_state: Some(KeepState::default()), ..plain.clone() }, "no state"),
        (FilterRule { keep_frags: true, ..plain.clone() }, "no fragments"),
        (FilterRule { log: Some(FilterLog::default()), ..plain.clone() }, "do not log"),
        (FilterRule::new(Direction::In, FilterAction::Log), "do not log"),
    ] {
        let error = listener.set_filter(vec![plain.clone(), bad], Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.starts_with("rule 2: ") && text.contains(what), "{text}");
        assert_eq!(listener.filter_counts().rules.len(), 1);
    }
}
