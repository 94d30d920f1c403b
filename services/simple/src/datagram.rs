//! The services over UDP (RFC 862, 863, 864: "UDP based").
//!
//! Two servers that answer each other's answers would never end, and a generator that answers more than it was asked
//! is a weapon in the hands of whoever forges an address. So nothing that came from a port of such a service is
//! answered, as inetd does it, nor anything that came to many, whom its sender would have answer all together; and no answer is longer than
//! its question; RFC 864 leaves the length to the server. An answer comes from the address that was asked (RFC 1122 §4.1.3.5).

use std::convert::Infallible;
use std::io;
use std::io::ErrorKind::{ConnectionAborted, NetworkDown};
use std::net::SocketAddr;

use firelane::{Envelope, Incoming, Outgoing, UdpSocket};
use tokio::task::consume_budget;

use crate::{Simple, pattern};

/// The longest datagram: what an IPv4 packet of 65,535 bytes holds.
const DATAGRAM_MAX: usize = 65_507;
/// The longest answer of a generator (RFC 864).
const CHARGEN_MAX: usize = 512;
/// Ports of services that answer whatever they are sent: echo, daytime, quote of the day, generator, time.
const ANSWERERS: [u16; 5] = [7, 13, 17, 19, 37];

/// Serves a datagram socket for as long as it works.
///
/// # Errors
/// The socket failed for good: its lane is out of service, or its netstack is gone.
pub async fn answer(kind: Simple, socket: UdpSocket) -> io::Result<Infallible> {
    let mut service = Datagrams::new(kind);
    let mut question = vec![0; DATAGRAM_MAX];
    loop {
        // A socket that has something at once never makes the task wait, and others have to have their turn.
        consume_budget().await;
        let mut room = [Incoming::new(&mut question)];
        match socket.recv_many_async(&mut room).await {
            Ok(_) => {}
            // Each further call says the same at once.
            Err(error) if matches!(error.kind(), NetworkDown | ConnectionAborted) => return Err(error),
            // What an earlier answer met is no fault of this socket.
            Err(_) => continue,
        }
        let [Incoming { envelope, copied, .. }] = room;
        let Some(Envelope { peer, local, own, .. }) = envelope else { continue };
        if own.is_some() || local.is_some_and(|local| local.is_multicast()) {
            continue;
        }
        if let Some(payload) = service.answer(&question[..copied], peer) {
            let envelope = Envelope { local, ..Envelope::to(peer) };
            // Like any datagram, an answer may be lost.
            let _ = socket.send_many_async(&[Outgoing { envelope, payload }]).await;
        }
    }
}

/// A service between two datagrams.
struct Datagrams {
    kind: Simple,
    text: Vec<u8>,
    datagrams: u64,
    bytes: u64,
}

impl Datagrams {
    fn new(kind: Simple) -> Self {
        let text = if kind == Simple::Chargen { pattern::whole() } else { Vec::new() };
        Self { kind, text, datagrams: 0, bytes: 0 }
    }

    /// What `question` is answered with. A sink is asked for its count by an empty datagram, and begins anew then.
    fn answer<'a>(&'a mut self, question: &'a [u8], from: SocketAddr) -> Option<&'a [u8]> {
        if ANSWERERS.contains(&from.port()) {
            return None;
        }
        match self.kind {
            Simple::Echo => Some(question),
            Simple::Discard => None,
            Simple::Chargen => Some(&self.text[..question.len().min(CHARGEN_MAX)]),
            Simple::Sink if question.is_empty() => {
                self.text = format!("{} datagrams, {} bytes\n", self.datagrams, self.bytes).into_bytes();
                (self.datagrams, self.bytes) = (0, 0);
                Some(&self.text)
            }
            Simple::Sink => {
                self.datagrams += 1;
                self.bytes += question.len() as u64;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};
    use std::task::{Wake, Waker};
    use std::thread;
    use std::time::Duration;

    use firelane::units::Mtu;
    use firelane::{Driver, Stack, VnicConfig, VnicUser, WireConfig, wire};

    use super::*;

    /// A device's fault, in the lane that rings it.
    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a lane has a fault");
        }
    }

    /// A netstack of one lane at 10.0.0.1 and another one at 10.0.0.2.
    fn pair() -> [Stack; 2] {
        let (left, right) = wire(WireConfig::default());
        let stack = |end: firelane::Queue, addr: &str| {
            Stack::builder().lanes(1).interface(end).address(addr).unwrap().build().unwrap()
        };
        [stack(left.into(), "10.0.0.1/24"), stack(right.into(), "10.0.0.2/24")]
    }

    /// An echo of `stack` that runs from here on, and what it ends with.
    fn echo(stack: &Stack) -> Receiver<io::ErrorKind> {
        let socket = UdpSocket::bind(stack, "10.0.0.1:7").unwrap();
        let (tell, told) = channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let Err(error) = runtime.block_on(answer(Simple::Echo, socket));
            let _ = tell.send(error.kind());
        });
        assert!(told.recv_timeout(Duration::from_millis(100)).is_err(), "nobody asks");
        told
    }

    #[test]
    fn a_service_ends_with_its_lane() {
        let [server, _client] = pair();
        let told = echo(&server);
        let (engine, (end, mut device)) = (server.engine(), wire(WireConfig::default()));
        let link = engine.add_link(Mtu::ETHERNET).unwrap();
        engine.add_uplink(link, vec![end.into()]).unwrap();
        let config = VnicConfig::new("02:08:20:00:00:99".parse().unwrap());
        let vnic = engine.add_vnic(link, &config, VnicUser::Netstack(server.id())).unwrap();
        engine.add_address(vnic, "10.9.9.1/24".parse().unwrap()).unwrap();
        let socket = UdpSocket::bind(&server, "10.9.9.1:9").unwrap();
        device.set_waker(Waker::from(Arc::new(Panics)));
        device.notify(true);
        // Whoever sends may come to work in the lane himself.
        let _ = catch_unwind(AssertUnwindSafe(|| socket.send_to(b"x", "10.9.9.2:9")));
        assert_eq!(told.recv_timeout(Duration::from_secs(5)), Ok(NetworkDown));
    }

    /// However many questions there are, a service that has heard some of them gives way to others.
    #[test]
    fn who_asks_faster_than_he_is_answered_keeps_no_other_from_its_turn() {
        let [server, client] = pair();
        let socket = UdpSocket::bind(&server, "10.0.0.1:9").unwrap();
        let asking = UdpSocket::bind(&client, "10.0.0.2:5000").unwrap();
        // The way is known by then: what waits for it is little.
        let other = UdpSocket::bind(&server, "10.0.0.1:10").unwrap();
        asking.send_to(b"x", "10.0.0.1:10").unwrap();
        other.recv_from(&mut [0]).unwrap();
        asking.set_nonblocking(true).unwrap();
        for n in 0..=300 {
            let question: &[u8] = if n < 300 { b"x" } else { b"" };
            while asking.send_to(question, "10.0.0.1:9").is_err() {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut service = std::pin::pin!(answer(Simple::Sink, socket));
        let mut polls = 0;
        let mut receipt = [0; 100];
        let count = loop {
            runtime.block_on(std::future::poll_fn(|cx| {
                assert!(service.as_mut().poll(cx).is_pending());
                std::task::Poll::Ready(())
            }));
            polls += 1;
            thread::sleep(Duration::from_millis(50));
            if let Ok((count, _)) = asking.recv_from(&mut receipt) {
                break count;
            }
        };
        assert_eq!(&receipt[..count], b"300 datagrams, 300 bytes\n");
        // Tokio lets a task do 128 things at a time.
        assert!(polls >= 3, "{polls}");
    }

    /// Who asks an address that is not the first is answered by that one, and who asks all is answered by none.
    #[test]
    fn an_answer_comes_from_whom_was_asked_alone() {
        let (left, right) = wire(WireConfig::default());
        let stack = |end: firelane::Queue, addresses: &[&str]| {
            let builder = Stack::builder().lanes(1).interface(end);
            addresses.iter().fold(builder, |it, address| it.address(address).unwrap()).build().unwrap()
        };
        let server = stack(left.into(), &["10.0.0.1/24", "10.0.0.3/24", "fd00::1/64", "fd00::3/64"]);
        let client = stack(right.into(), &["10.0.0.2/24", "fd00::2/64"]);
        let socket = UdpSocket::bind(&server, "[::]:7").unwrap();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(answer(Simple::Echo, socket))
        });
        let asking = UdpSocket::bind(&client, "[::]:5000").unwrap();
        asking.set_broadcast(true).unwrap();
        asking.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        for to in ["10.0.0.255:7", "255.255.255.255:7", "[ff02::1]:7"] {
            // Whether it leaves does not matter: none is answered.
            let _ = asking.send_to(b"all", to);
        }
        for to in ["10.0.0.3:7", "10.0.0.1:7", "[fd00::3]:7", "[fd00::1]:7"] {
            asking.send_to(to.as_bytes(), to).unwrap();
            let mut said = [0; 100];
            let (count, from) = asking.recv_from(&mut said).unwrap();
            let from = SocketAddr::new(from.ip().to_canonical(), from.port()).to_string();
            assert_eq!((&said[..count], from.as_str()), (to.as_bytes(), to));
        }
    }

    fn from(port: u16) -> SocketAddr {
        SocketAddr::new([192, 0, 2, 1].into(), port)
    }

    #[test]
    fn each_answers_as_its_rfc_says() {
        let mut echo = Datagrams::new(Simple::Echo);
        assert_eq!(echo.answer(b"hello", from(5000)), Some(&b"hello"[..]));
        assert_eq!(echo.answer(b"", from(5000)), Some(&b""[..]));
        assert_eq!(Datagrams::new(Simple::Discard).answer(b"hello", from(5000)), None);
    }

    #[test]
    fn a_generators_answer_is_no_longer_than_its_question() {
        let mut chargen = Datagrams::new(Simple::Chargen);
        for (asked, answered) in [(0, 0), (1, 1), (74, 74), (512, 512), (60_000, 512)] {
            let question = vec![0; asked];
            assert_eq!(chargen.answer(&question, from(5000)).unwrap(), &pattern::whole()[..answered]);
        }
    }

    #[test]
    fn a_sink_counts_between_two_empty_datagrams() {
        let mut sink = Datagrams::new(Simple::Sink);
        assert_eq!(sink.answer(b"12345", from(5000)), None);
        assert_eq!(sink.answer(b"678", from(5001)), None);
        assert_eq!(sink.answer(b"", from(5000)), Some(&b"2 datagrams, 8 bytes\n"[..]));
        assert_eq!(sink.answer(b"", from(5000)), Some(&b"0 datagrams, 0 bytes\n"[..]));
    }

    #[test]
    fn who_would_answer_the_answer_gets_none() {
        for kind in [Simple::Echo, Simple::Chargen, Simple::Sink] {
            for port in ANSWERERS {
                assert_eq!(Datagrams::new(kind).answer(b"", from(port)), None, "{kind:?} {port}");
            }
        }
    }
}
