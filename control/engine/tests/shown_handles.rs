//! What `{:?}` shows of the handles: a short line as std's have, whatever the engine behind them holds, and no secret.

use std::fmt::Debug;

use firelane::{
    CaptureOf, Closer, EchoSocket, Engine, EngineConfig, Hub, Poller, Queue, Ready, Stack, StreamConfig,
    TcpListener, TcpStream, TraceOf, UdpSocket, VnicUser, WireConfig, wire,
};
use firelane_units::Mtu;

/// A secret that is easily found again.
const SECRET: [u8; 16] = [201; 16];

fn shown(it: &dyn Debug) -> String {
    let text = format!("{it:?}");
    assert!(text.len() <= 200 && !text.contains('\n'), "{} bytes: {:.300}", text.len(), text);
    assert!(!text.contains("201, 201") && !text.contains("4211"), "a secret: {text}");
    text
}

fn stack(end: Queue, n: u8) -> Stack {
    let builder = Stack::builder().interface(end).mac(&format!("02:08:20:00:00:0{n}")).unwrap();
    builder.address(&format!("10.0.0.{n}/24")).unwrap().build().unwrap()
}

#[test]
fn sockets_show_their_addresses_as_those_of_std_do() {
    let (left, right) = wire(WireConfig::default());
    let (server, client) = (stack(left.into(), 1), stack(right.into(), 2));
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    assert_eq!(shown(&listener), "TcpListener { addr: 10.0.0.1:7 }");
    let stream = TcpStream::connect(&client, "10.0.0.1:7").unwrap();
    let accepted = listener.accept();
    let local = stream.local_addr().unwrap();
    assert_eq!(shown(&stream), format!("TcpStream {{ addr: {local}, peer: 10.0.0.1:7 }}"));
    let of_accepted = format!("Ok((TcpStream {{ addr: 10.0.0.1:7, peer: {local} }}, {local}))");
    assert_eq!(shown(&accepted), of_accepted);
    let begun = TcpStream::begin(&client, "10.0.0.9:7".parse().unwrap(), StreamConfig::default()).unwrap();
    // It has no address as long as no lane has begun it.
    assert!(shown(&begun).starts_with("TcpStream"));
    let datagrams = UdpSocket::bind(&client, "10.0.0.2:9").unwrap();
    assert_eq!(shown(&datagrams), "UdpSocket { addr: 10.0.0.2:9 }");
    datagrams.connect("10.0.0.1:9").unwrap();
    assert_eq!(shown(&datagrams), "UdpSocket { addr: 10.0.0.2:9, peer: 10.0.0.1:9 }");
    assert!(shown(&EchoSocket::bind(&client, [10, 0, 0, 2].into()).unwrap()).starts_with("EchoSocket {"));
    let poller = Poller::new();
    poller.watch(&stream, 1, Ready::READABLE).unwrap();
    poller.watch(&listener, 2, Ready::READABLE).unwrap();
    assert_eq!(shown(&poller), "Poller { watched: 2 }");
}

#[test]
fn an_engine_and_what_belongs_to_it_show_one_line() {
    let (left, right) = wire(WireConfig::default());
    let (server, client) = (stack(left.into(), 1), stack(right.into(), 2));
    // What waits in an engine was in its text.
    let listener = TcpListener::bind(&server, "10.0.0.1:7").unwrap();
    let _streams: Vec<_> = (0..20)
        .map(|_| (TcpStream::connect(&client, "10.0.0.1:7").unwrap(), listener.accept().unwrap()))
        .collect();
    assert_eq!(shown(&client.engine()), "Engine { lanes: 1 }");
    assert!(shown(&client).starts_with("Stack { "));
    let engine = client.engine();
    let link = engine.add_link(Mtu::ETHERNET).unwrap();
    shown(&engine.capture(CaptureOf::Link(link), 64).unwrap());
    shown(&engine.trace(TraceOf::Invented, 16).unwrap());
    shown(&engine.count_steps().unwrap());
    engine.workers().iter().for_each(|worker| _ = shown(worker));
    let hub = Hub::new(engine).unwrap();
    shown(&hub);
    shown(&Closer::default());
}

#[test]
fn what_an_engine_is_made_from_keeps_its_secrets() {
    let config = EngineConfig {
        stable_secret: Some(SECRET),
        seed: Some(4211),
        threads: false,
        ..EngineConfig::default()
    };
    let text = format!("{config:?}");
    assert!(!text.contains("201") && !text.contains("4211"), "{text}");
    shown(&Engine::start(&config).unwrap());
    let (left, right) = wire(WireConfig::default());
    shown(&Queue::from(left));
    shown(&VnicUser::Device(vec![right.into()]));
    let end = wire(WireConfig::default()).0;
    let builder = Stack::builder().interface(end).address("10.0.0.1/24").unwrap();
    let text = format!("{builder:?}");
    assert!(text.len() < 2000 && !text.contains("201, 201"), "{text}");
}
