//! Datagram sockets join groups: what lanes are told of it, and by whom as long as a socket has no address.
//!
//! As in Linux a group is joined at once. Before it is bound a socket is nothing to lanes, so that somebody else is the member
//! ([`Unbound`]): the group is reported, and heard by who else of the netstack is bound (IP_MULTICAST_ALL). Called by
//! `datagrams.rs` and `socket.rs`.

use std::io;

use firelane_ip::LOOPBACK;
use firelane_lane::{Join, LaneMessage, SocketCommand};
use firelane_units::{LinkId, NetstackId, SocketId};

use super::memberships::{Member, Named};
use crate::fabric::Fabric;
use crate::stack::Stack;

/// The member in place of a socket without an address. Its groups are left with it: who is bound joins them himself first.
#[derive(Debug)]
pub(super) struct Unbound {
    stack: Stack,
    socket: SocketId,
}

impl Unbound {
    pub(super) fn new(stack: &Stack) -> Self {
        Self { stack: stack.clone(), socket: stack.inner.mint_socket() }
    }

    /// A membership begins, ends, or has another filter.
    pub(super) fn set(&self, member: &Member) -> io::Result<()> {
        set(&self.stack, self.socket, member)
    }
}

impl Drop for Unbound {
    fn drop(&mut self) {
        leave(&self.stack.inner.fabric, self.stack.id(), self.socket);
    }
}

/// The link that a program names, if the netstack has it.
pub(super) fn link_of(stack: &Stack, named: Named) -> Option<u32> {
    match named {
        Named::Address(address) if address.is_loopback() => Some(LOOPBACK_NUMBER),
        Named::Address(address) => stack.link_of(address),
        Named::Number(number) => stack.has_link(link_named(number)).then_some(number),
        Named::Towards(group) => stack.link_towards(group),
    }
}

/// What memberships have the loopback device by: it is number one to programs, whose numbers begin there.
const LOOPBACK_NUMBER: u32 = 0;

/// The link that has this number in memberships.
pub(super) fn link_named(number: u32) -> LinkId {
    if number == LOOPBACK_NUMBER { LOOPBACK } else { LinkId(number) }
}

/// All lanes of the netstack are told of a membership.
pub(super) fn set(stack: &Stack, socket: SocketId, member: &Member) -> io::Result<()> {
    let Member { group, link, ref filter } = *member;
    let lanes = stack.inner.registry().netstack_mut(stack.id())?.all_lanes();
    let join = Join { socket, group, link: Some(link_named(link)), filter: filter.clone() };
    stack.inner.fabric.tell_lanes(stack.id(), &lanes, || SocketCommand::Join(Box::new(join.clone())))
}

/// The socket is in no group any more.
pub(super) fn leave(fabric: &Fabric, netstack: NetstackId, socket: SocketId) {
    for lane in fabric.lane_ids() {
        // A lane that has failed has no members.
        let _ = fabric.enter_surely(lane, LaneMessage::Socket(netstack, SocketCommand::LeaveGroups(socket)));
    }
}
