//! A server whose process has no descriptor left for what a client hands over: that is its own trouble, and it says so.
//!
//! Alone in its process, whose limit it lowers.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use firelane_driver_memif::{MESSAGE_BYTES, MemifConfig, Message, Role, open};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, recvmsg, sendmsg, socket_with,
};
use rustix::process::{Resource, getrlimit, setrlimit};

fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [const { MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(8))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    assert!(fds.is_empty() || beside.push(SendAncillaryMessage::ScmRights(fds)));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL).unwrap();
}

fn receive(socket: &OwnedFd) -> Message {
    let (mut bytes, mut beside) = ([0; MESSAGE_BYTES], Default::default());
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut beside, RecvFlags::empty()).unwrap();
    assert_eq!(got.bytes, MESSAGE_BYTES, "it has hung up");
    Message::decode(&bytes).unwrap()
}

#[test]
fn who_has_no_descriptor_for_what_is_handed_over_says_that_and_blames_nobody() {
    let path = std::env::temp_dir().join(format!("firelane-memif-descriptors-{}", std::process::id()));
    let (queues, _status) = open(&MemifConfig::new(Role::Server, &path)).unwrap();
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    assert!(matches!(receive(&socket), Message::Hello(_)));
    let mut init = vec![0; MESSAGE_BYTES];
    init[..2].copy_from_slice(&3u16.to_ne_bytes());
    init[2..4].copy_from_slice(&0x0200u16.to_ne_bytes());
    send(&socket, &init, &[]);
    assert!(matches!(receive(&socket), Message::Ack));
    let memory = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let mut limit = getrlimit(Resource::Nofile);
    // Those below are taken.
    limit.current = Some(3);
    setrlimit(Resource::Nofile, limit).unwrap();
    send(&socket, &Message::AddRegion { index: 0, size: 4096 }.encode(), &[memory.as_fd()]);
    let Message::Disconnect { reason, .. } = receive(&socket) else { panic!("it agrees") };
    let told = String::from_utf8_lossy(&reason).into_owned();
    assert!(told.contains("no descriptor left"), "{told:?}");
    drop(queues);
}
