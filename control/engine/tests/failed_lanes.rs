//! What programs hear when the lane of their sockets is out of service.
#![allow(clippy::unwrap_used, reason = "a helper of tests fails as a test does")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use firelane::units::Mtu;
use firelane::{Driver, TcpListener, UdpSocket, VnicConfig, VnicUser, WireConfig, wire};
use firelane_shm::control::{Answer, Arrived, Family, Kind, Request};
use firelane_shm::layout::{margin, status};
use firelane_shm::{Offer, Readiness, carry};

use crate::support::*;

const NETDOWN: u64 = 100;

/// A device's fault, in the lane that rings it; or a task's, which is the task's own.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a lane has a fault");
    }
}

/// Notes that it was called.
struct Notes(AtomicBool);

impl Wake for Notes {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl World {
    /// Has a handler panic in the lane of the programs.
    fn fail(&self) {
        self.fail_one();
        until(|| TcpListener::bind(&self.stack, "10.0.0.1:0").is_err());
    }

    /// The same in one of several.
    fn fail_one(&self) {
        let engine = self.stack.engine();
        let (end, mut device) = wire(WireConfig::default());
        let link = engine.add_link(Mtu::ETHERNET).unwrap();
        engine.add_uplink(link, vec![end.into()]).unwrap();
        let config = VnicConfig::new("02:08:20:00:00:99".parse().unwrap());
        let vnic = engine.add_vnic(link, &config, VnicUser::Netstack(self.stack.id())).unwrap();
        engine.add_address(vnic, "10.9.9.1/24".parse().unwrap()).unwrap();
        let socket = UdpSocket::bind(&self.stack, "10.9.9.1:9").unwrap();
        device.set_waker(Waker::from(Arc::new(Panics)));
        device.notify(true);
        let lanes = engine.lanes();
        // Who sends may come to work there himself, and so may who looks.
        let _ = catch_unwind(AssertUnwindSafe(|| socket.send_to(b"x", "10.9.9.2:9")));
        let has_lost = || engine.snapshot().lanes.len() < lanes;
        until(|| catch_unwind(AssertUnwindSafe(has_lost)).unwrap_or(false));
    }
}

#[test]
fn who_waits_at_a_socket_of_a_lane_that_has_failed_is_told() {
    let world = World::new();
    let program = Program::new(&world);
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let (_fd, block) = program.connect(listener.local_addr().unwrap());
    program.wait(&program.end(block), Readiness::WRITABLE);
    let request = Request::Socket { family: Family::V4, kind: Kind::Datagram, count: 1 };
    let reply = world.hub.lock().unwrap().request(program.session, request, Vec::new());
    let Answer::Sockets { sockets } = reply.answer else { panic!("{:?}", reply.answer) };
    let bind = Request::Bind { socket: sockets[0], address: "10.0.0.1:53".parse().unwrap() };
    let Answer::Stream { place } = program.ask(bind) else { panic!("it is bound") };
    world.fail();
    for block in [block, place.block] {
        let words = program.mapping.block(block).unwrap();
        let status = || words.rings.margin[margin::STATUS].load(Ordering::Acquire);
        until(|| status() & status::CLOSED != 0);
        assert_eq!(status() >> status::ERROR_SHIFT, NETDOWN);
    }
    program.wait(&program.end(block), Readiness::READABLE);
}

#[test]
fn who_waits_for_connections_hears_that_no_lane_is_left() {
    let world = World::new();
    let program = Program::new(&world);
    let (listener, _) = program.listen("10.0.0.1:0");
    world.fail();
    wait_for_one(&listener);
    assert_eq!(carry::receive(&listener, &mut [0; Arrived::BYTES], &mut Vec::new(), true).unwrap(), 0);
}

#[test]
fn who_connects_by_an_offer_of_a_lane_that_has_failed_is_told() {
    let world = World::new();
    let program = Program::new(&world);
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..4 {
        let connected = program.connect(address);
        drop((listener.accept().unwrap(), connected));
    }
    world.hub.lock().unwrap().look();
    let (_fd, socket) = program.socket();
    let Offer { block, .. } = program.mapping.take_offer().expect("blocks are offered");
    world.fail();
    program.begin(block, socket, address);
    let end = program.end(block);
    program.wait(&end, Readiness::WRITABLE);
    assert_eq!(u64::from(end.take_error().unsigned_abs()), NETDOWN);
    // Nothing new is offered there. Who is offered nothing asks.
    while let Some(Offer { block, .. }) = program.mapping.take_offer() {
        let (_fd, socket) = program.socket();
        program.begin(block, socket, address);
        program.wait(&program.end(block), Readiness::WRITABLE);
    }
    let (_fd, socket) = program.socket();
    let asked = program.ask(Request::Connect { socket, address, fast: false });
    assert_eq!(asked, Answer::Failed { errno: NETDOWN as i32 });
}

#[test]
fn who_connects_by_an_offer_does_so_in_the_lanes_that_are_left() {
    let world = World::of(2, firelane::WireConfig::default());
    let program = Program::new(&world);
    let listener = TcpListener::bind(&world.peer, "10.0.0.2:0").unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..4 {
        let connected = program.connect(address);
        drop((listener.accept().unwrap(), connected));
    }
    let mut hub = world.hub.lock().unwrap();
    hub.look();
    world.fail_one();
    // Whoever clears up behind the lane calls.
    until(|| hub.is_called());
    hub.look();
    drop(hub);
    // The lost one may have had the device, so not all of them can be made use of.
    for nth in 0..64 {
        let Offer { block, .. } = program.mapping.take_offer().expect("as many are offered as before");
        assert_eq!(program.end(block).readiness(), Readiness(0), "{nth}");
    }
}

#[test]
fn datagram_sockets_without_a_port_get_one_of_a_lane_that_is_left() {
    let world = World::of(2, firelane::WireConfig::default());
    let program = Program::new(&world);
    world.fail_one();
    for _ in 0..32 {
        let request = Request::Socket { family: Family::V4, kind: Kind::Datagram, count: 1 };
        let reply = world.hub.lock().unwrap().request(program.session, request, Vec::new());
        let Answer::Sockets { sockets } = reply.answer else { panic!("{:?}", reply.answer) };
        let bound = program.ask(Request::Bind { socket: sockets[0], address: "10.0.0.1:0".parse().unwrap() });
        assert!(matches!(bound, Answer::Stream { .. }), "{bound:?}");
    }
}

#[test]
fn wakers_that_fail_again_keep_no_other_from_being_woken() {
    let world = World::new();
    let notes = Arc::new(Notes(AtomicBool::new(false)));
    let listen = |waker: Waker| {
        let listener = TcpListener::bind(&world.stack, "10.0.0.1:0").unwrap();
        assert!(listener.poll_accept(&mut Context::from_waker(&waker)).is_pending());
        listener
    };
    let faults = || Waker::from(Arc::new(Panics));
    let _listeners = [listen(faults()), listen(faults()), listen(Waker::from(Arc::clone(&notes)))];
    world.fail();
    until(|| notes.0.load(Ordering::Acquire));
}
