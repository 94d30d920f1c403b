//! Every message survives its bytes, and no bytes do harm.

use super::*;
use proptest::prelude::*;

fn addresses() -> [SocketAddr; 2] {
    let mut v6: std::net::SocketAddrV6 = "[fe80::1]:443".parse().unwrap();
    v6.set_scope_id(7);
    ["10.0.0.1:80".parse().unwrap(), v6.into()]
}

fn requests() -> Vec<Request> {
    let socket = SocketId(0x1234_5678_9abc);
    let mut all = vec![
        Request::Hello {
            netstack: String::from("web0"),
            filter: "block in all\n".repeat(315),
            room: 1 << 26,
        },
        Request::Hello { netstack: String::new(), filter: String::new(), room: u64::MAX },
        Request::Socket { family: Family::V6, kind: Kind::Datagram, count: SOCKETS_MAX },
        Request::Listen { socket, backlog: 4096 },
        Request::SetOption { socket, level: 6, name: -1, value: vec![1, 2, 3] },
        Request::GetOption { socket, level: 1, name: 4, len: OPTION_MAX as u32 },
        Request::Names { socket },
        Request::Linger { socket },
        Request::Disconnect { socket },
        Request::Fault { socket },
        Request::Closed { socket, place: None },
        Request::Closed { socket, place: Some(Place { arena: 1, block: 0 }) },
        Request::Take { place: Place { arena: u64::MAX, block: BLOCKS_MAX - 1 } },
        Request::Urgent { socket, end: u64::MAX },
        Request::Attach,
        Request::Waiter { arena: 9 },
        Request::NoWaiter { arena: 9, slot: SLOTS - 1 },
        Request::Share { place: Place { arena: 9, block: BLOCKS_MAX - 1 }, waiter: u32::MAX, is_anew: true },
        Request::Segment { segment: 11 },
        Request::Bell { segment: 11, slot: SLOTS - 1 },
        Request::Interfaces,
    ];
    all.extend(addresses().map(|address| Request::Bind { socket, address }));
    all.extend(addresses().map(|address| Request::Connect { socket, address, fast: address.is_ipv6() }));
    all
}

fn answers() -> Vec<Answer> {
    let place = Place { arena: u64::MAX, block: BLOCKS_MAX - 1 };
    let [local, remote] = addresses();
    let interface = |address| Interface {
        name: String::from("web0"),
        index: 2,
        mtu: 1500,
        mac: [2; 6],
        reach: Reach::Named,
        address,
    };
    let attached = |place| Answer::Attached {
        socket: SocketId(1),
        family: Family::V4,
        kind: Kind::Stream,
        state: State::Listening,
        place,
    };
    vec![
        Answer::Welcome { session: 1, lanes: LANES_MAX, arena: 3, netstack: String::from("web0") },
        Answer::Refused { errno: 13, text: String::from("web0 is not yours") },
        Answer::Failed { errno: 98 },
        Answer::Done,
        Answer::Sockets { sockets: (0..u64::from(SOCKETS_MAX)).map(SocketId).collect() },
        Answer::Stream { place },
        Answer::Option { value: vec![7; OPTION_MAX] },
        Answer::Names { local: Some(local), remote: Some(remote) },
        Answer::Names { local: None, remote: None },
        attached(Some(place)),
        attached(None),
        Answer::Slot { slot: 0 },
        Answer::Interfaces {
            addresses: vec![
                interface(None),
                interface(Some((local.ip(), 24))),
                interface(Some((remote.ip(), 64))),
            ],
        },
    ]
}

#[test]
fn every_message_survives_its_bytes() {
    for (number, request) in (7..).zip(requests()) {
        let bytes = request.encode(number);
        assert!(bytes.len() <= MESSAGE_MAX);
        assert_eq!(Request::decode(&bytes), Ok((number, request)));
    }
    for (number, answer) in (7..).zip(answers()) {
        let bytes = answer.encode(number);
        assert!(bytes.len() <= MESSAGE_MAX);
        assert_eq!(Answer::decode(&bytes), Ok((number, answer)));
    }
    let [local, remote] = addresses();
    for (local, remote) in [(local, remote), (remote, local), (remote, remote)] {
        let place = Place { arena: 5, block: 6 };
        let arrived = Arrived { place, local, remote };
        assert_eq!(Arrived::decode(&arrived.encode()), Ok(arrived));
    }
}

#[test]
fn what_is_said_of_a_closed_socket_needs_no_memory() {
    for socket in [0, 1, 0x1234_5678_9abc, u64::MAX].map(SocketId) {
        for place in [None, Some(Place { arena: u64::MAX, block: BLOCKS_MAX - 1 })] {
            assert_eq!(closed(socket, place)[..], Request::Closed { socket, place }.encode(0));
        }
    }
}

#[test]
fn the_longest_list_of_interfaces_fits_a_message() {
    let address = Some((addresses()[1].ip(), 128));
    let interface = Interface {
        name: "n".repeat(NAME_MAX),
        index: u32::MAX,
        mtu: 65_535,
        mac: [2; 6],
        reach: Reach::Named,
        address,
    };
    let bytes = Answer::Interfaces { addresses: vec![interface; ADDRESSES_MAX + 1] }.encode(1);
    assert!(bytes.len() <= MESSAGE_MAX, "{}", bytes.len());
    let (_, Answer::Interfaces { addresses }) = Answer::decode(&bytes).unwrap() else { panic!("interfaces") };
    assert_eq!(addresses.len(), ADDRESSES_MAX);
}

#[test]
fn a_message_that_is_cut_off_or_too_long_is_refused() {
    for request in requests() {
        let mut bytes = request.encode(1);
        for len in 0..bytes.len() {
            assert!(Request::decode(&bytes[..len]).is_err(), "{request:?} cut to {len}");
        }
        bytes.push(0);
        assert_eq!(Request::decode(&bytes).unwrap_err().field, "message");
    }
    for answer in answers() {
        let bytes = answer.encode(1);
        assert!((0..bytes.len()).all(|len| Answer::decode(&bytes[..len]).is_err()));
    }
}

#[test]
fn what_is_not_allowed_is_named() {
    let spoil = |request: &Request, at: usize, byte: u8| {
        let mut bytes = request.encode(1);
        bytes[at] = byte;
        Request::decode(&bytes).unwrap_err().field
    };
    let socket = Request::Socket { family: Family::V4, kind: Kind::Stream, count: 1 };
    assert_eq!(spoil(&socket, 0, 0), "magic");
    assert_eq!(spoil(&socket, 8, VERSION as u8 + 1), "version");
    assert_eq!(spoil(&socket, 16, 99), "what");
    assert_eq!(spoil(&socket, 17, 5), "family");
    assert_eq!(spoil(&socket, 18, 0), "kind");
    assert_eq!(spoil(&socket, 19, 0), "count");
    assert_eq!(spoil(&socket, 19, 33), "count");
    assert_eq!(spoil(&Request::NoWaiter { arena: 1, slot: 0 }, 25, 64), "slot");
    assert_eq!(
        spoil(&Request::Hello { netstack: String::from("x"), filter: String::new(), room: 0 }, 19, 0xff),
        "netstack"
    );
    let get = Request::GetOption { socket: SocketId(1), level: 0, name: 0, len: OPTION_MAX as u32 + 1 };
    assert_eq!(Request::decode(&get.encode(1)).unwrap_err().field, "len");
    let text = Answer::Refused { errno: 1, text: "ä".repeat(TEXT_MAX) };
    let (_, Answer::Refused { text, .. }) = Answer::decode(&text.encode(1)).unwrap() else {
        panic!("refused")
    };
    assert_eq!(text.len(), TEXT_MAX, "cut between characters");
}

proptest! {
    #[test]
    fn no_bytes_do_harm(body in prop::collection::vec(any::<u8>(), 0..200), what in any::<u8>()) {
        let mut bytes = envelope(what, 1).0;
        bytes.extend(&body);
        if let Ok((number, request)) = Request::decode(&bytes) {
            prop_assert_eq!(Request::decode(&request.encode(number)), Ok((number, request)));
        }
        if let Ok((number, answer)) = Answer::decode(&bytes) {
            prop_assert_eq!(Answer::decode(&answer.encode(number)), Ok((number, answer)));
        }
        let _ = (Request::decode(&body), Answer::decode(&body));
    }
}
