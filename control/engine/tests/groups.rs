//! Groups and broadcasts between two netstacks: who hears what, from any lane.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use firelane::{
    Engine, EngineConfig, FilterMode, RouteConfig, SourceFilter, Stack, UdpSocket, VnicConfig, VnicUser,
};
use firelane_units::{LinkId, Mtu};

use crate::wired::pair_with_lanes;

fn open(stack: &Stack, address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(stack, address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// Asserts that the next datagram that `socket` hears is this one.
fn assert_hears(socket: &UdpSocket, content: &[u8]) -> SocketAddr {
    let mut bytes = [0; 64];
    let (len, from) = socket.recv_from(&mut bytes).unwrap();
    assert_eq!(&bytes[..len], content);
    from
}

fn assert_hears_nothing(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    let error = socket.recv_from(&mut [0; 64]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
}

#[test]
fn a_group_is_heard_by_its_members_and_by_nobody_else() {
    for lanes in [1, 3] {
        let [here, there] = pair_with_lanes(lanes);
        for (group, any) in [("239.1.2.3", "0.0.0.0"), ("ff05::1:3", "::")] {
            let group: IpAddr = group.parse().unwrap();
            let any: IpAddr = any.parse().unwrap();
            let bind = |stack: &Stack, port| open(stack, &SocketAddr::new(any, port).to_string());
            let sender = bind(&here, 0);
            let (member, other) = (bind(&there, 7000), bind(&there, 7001));
            member.join_multicast(group, None).unwrap();
            // The other one has joined nothing; a unicast datagram tells it when to look.
            for port in [7000, 7001] {
                sender.send_to(b"to the group", SocketAddr::new(group, port)).unwrap();
            }
            let to: IpAddr = if group.is_ipv4() { [10, 0, 0, 2].into() } else { "fd00::2".parse().unwrap() };
            sender.send_to(b"to one", SocketAddr::new(to, 7001)).unwrap();
            assert_hears(&member, b"to the group");
            assert_hears(&other, b"to one");
            assert_hears_nothing(&other);
            // What is left is not heard.
            member.leave_multicast(group, None).unwrap();
            sender.send_to(b"again", SocketAddr::new(group, 7000)).unwrap();
            sender.send_to(b"to one", SocketAddr::new(to, 7000)).unwrap();
            assert_hears(&member, b"to one");
            assert_hears_nothing(&member);
        }
    }
}

#[test]
fn members_here_hear_what_is_sent_here_unless_the_sender_says_otherwise() {
    let [here, _there] = pair_with_lanes(2);
    let group: IpAddr = [239, 1, 2, 3].into();
    let (sender, member) = (open(&here, "10.0.0.1:0"), open(&here, "0.0.0.0:7000"));
    member.join_multicast_v4(&Ipv4Addr::new(239, 1, 2, 3), &Ipv4Addr::new(10, 0, 0, 1)).unwrap();
    sender.send_to(b"loop", SocketAddr::new(group, 7000)).unwrap();
    assert_eq!(assert_hears(&member, b"loop").ip(), IpAddr::from([10, 0, 0, 1]));
    sender.set_multicast_loop(false).unwrap();
    sender.send_to(b"no loop", SocketAddr::new(group, 7000)).unwrap();
    sender.set_multicast_loop(true).unwrap();
    sender.set_multicast_ttl(0).unwrap();
    sender.send_to(b"loop alone", SocketAddr::new(group, 7000)).unwrap();
    assert_hears(&member, b"loop alone");
}

#[test]
fn a_filter_names_who_is_heard() {
    let [here, there] = pair_with_lanes(1);
    let group: IpAddr = [232, 1, 2, 3].into();
    let member = open(&there, "0.0.0.0:7000");
    let only = |source: [u8; 4]| SourceFilter { mode: FilterMode::Include, sources: vec![source.into()] };
    let sender = open(&here, "10.0.0.1:0");
    member.set_multicast_filter(group, None, only([10, 0, 0, 9])).unwrap();
    sender.send_to(b"refused", SocketAddr::new(group, 7000)).unwrap();
    sender.send_to(b"to one", "10.0.0.2:7000").unwrap();
    assert_hears(&member, b"to one");
    member.set_multicast_filter(group, None, only([10, 0, 0, 1])).unwrap();
    sender.send_to(b"heard", SocketAddr::new(group, 7000)).unwrap();
    assert_hears(&member, b"heard");
    let wrong = member.set_multicast_filter([10, 0, 0, 1].into(), None, SourceFilter::any());
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::InvalidInput);
    let elsewhere = member.join_multicast(group, Some(LinkId(77)));
    assert_eq!(elsewhere.unwrap_err().raw_os_error(), Some(rustix::io::Errno::NODEV.raw_os_error()));
}

#[test]
fn everybody_is_sent_to_by_who_may() {
    let [here, there] = pair_with_lanes(2);
    let (sender, hearer) = (open(&here, "10.0.0.1:0"), open(&there, "0.0.0.0:7000"));
    for to in ["10.0.0.255:7000", "255.255.255.255:7000"] {
        sender.set_broadcast(false).unwrap();
        // The call tells it, unless its lane is busy.
        let error = (0..1000).find_map(|_| sender.send_to(b"refused", to).err()).unwrap();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{to}");
        sender.set_broadcast(true).unwrap();
        sender.send_to(b"to all", to).unwrap();
        assert_hears(&hearer, b"to all");
    }
}

/// A netstack at 10.0.1.1 and 10.0.2.1, with the links by which it has these. What leads to a group is the first one.
fn with_two_links() -> (Stack, [LinkId; 2]) {
    let engine = Engine::start(&EngineConfig { lanes: 2, ..EngineConfig::default() }).unwrap();
    let id = engine.add_netstack(Default::default()).unwrap();
    let links = [1, 2].map(|n| {
        let over = engine.add_link(Mtu::ETHERNET).unwrap();
        let config = VnicConfig::new(format!("02:08:20:00:00:0{n}").parse().unwrap());
        let vnic = engine.add_vnic(over, &config, VnicUser::Netstack(id)).unwrap();
        engine.add_address(vnic, format!("10.0.{n}.1/24").parse().unwrap()).unwrap();
        vnic
    });
    (engine.stack(id).unwrap(), links)
}

/// Where somebody of the netstack listens to `group`.
fn links_of(stack: &Stack, group: IpAddr) -> Vec<LinkId> {
    let all = stack.engine().memberships(stack.id()).unwrap();
    all.iter().filter(|it| it.group == group).map(|it| it.link).collect()
}

#[test]
fn a_group_is_left_on_the_link_that_is_meant() {
    let (stack, [first, second]) = with_two_links();
    let group: IpAddr = [239, 1, 2, 3].into();
    let socket = open(&stack, "0.0.0.0:7000");
    socket.join_multicast(group, Some(second)).unwrap();
    socket.join_multicast(group, None).unwrap();
    assert_eq!(links_of(&stack, group), [first, second]);
    socket.leave_multicast(group, None).unwrap();
    assert_eq!(links_of(&stack, group), [second], "it was joined under this name");
    socket.leave_multicast(group, None).unwrap();
    assert_eq!(links_of(&stack, group), [], "no name is any");
    socket.join_multicast(group, None).unwrap();
    let elsewhere = socket.leave_multicast(group, Some(second)).unwrap_err();
    assert_eq!(elsewhere.kind(), ErrorKind::AddrNotAvailable);
    assert_eq!(links_of(&stack, group), [first]);
    socket.leave_multicast(group, Some(first)).unwrap();
    assert_eq!(links_of(&stack, group), []);
}

#[test]
fn a_group_is_left_where_it_was_joined_whatever_leads_there_now() {
    let (stack, [first, second]) = with_two_links();
    let group: IpAddr = [239, 1, 2, 3].into();
    let socket = open(&stack, "0.0.0.0:7000");
    socket.join_multicast(group, None).unwrap();
    assert_eq!(links_of(&stack, group), [first]);
    let way = RouteConfig::on_link("239.0.0.0/8".parse().unwrap(), second);
    stack.engine().add_route(stack.id(), way).unwrap();
    // Who says the same again has one membership.
    socket.join_multicast(group, None).unwrap();
    assert_eq!(links_of(&stack, group), [first]);
    socket.leave_multicast(group, None).unwrap();
    assert_eq!(links_of(&stack, group), []);
    socket.join_multicast(group, None).unwrap();
    assert_eq!(links_of(&stack, group), [second]);
    drop(socket);
    assert_eq!(links_of(&stack, group), [], "its groups end with it");
}

#[test]
fn what_two_threads_join_and_leave_ends_with_the_socket() {
    let (stack, _) = with_two_links();
    let group: IpAddr = [239, 1, 2, 3].into();
    for _ in 0..20 {
        let socket = open(&stack, "0.0.0.0:7000");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        socket.join_multicast(group, None).unwrap();
                        // The other one may have been first.
                        let _ = socket.leave_multicast(group, None);
                    }
                });
            }
        });
        let is_member = socket.leave_multicast(group, None).is_ok();
        assert_eq!((is_member, links_of(&stack, group).len()), (false, 0), "who joins leaves");
        socket.join_multicast(group, None).unwrap();
        drop(socket);
        assert_eq!(links_of(&stack, group), []);
    }
}
