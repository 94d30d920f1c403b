//! Every kind of driver queue as one type, so that a lane is generic over one driver and dispatches
//! without a table.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use firelane_driver_afxdp::AfXdpQueue;
use firelane_driver_memif::MemifQueue;
use firelane_driver_memory::End;
use firelane_driver_packet::PacketSocket;
use firelane_driver_tap::{Spread, TapQueue};
use firelane_frame::{Capabilities, Chain, Driver, Pools, Weight};
use firelane_units::{DropCounters, FlowId, Instant};

use crate::registry::Choice;
use crate::shared_nic::SharedQueue;
use crate::watched::Watched;

/// A driver's queue, for one lane.
pub enum Queue {
    /// An end of a wire of memory.
    Memory(Box<End>),
    /// A queue of a TAP.
    Tap(Watched<TapQueue>),
    /// A packet socket on a veth.
    Packet(Watched<PacketSocket>),
    /// A ring pair in memory shared with another process.
    Memif(Box<MemifQueue>),
    /// Sockets on queues of a NIC or a veth.
    AfXdp(Box<AfXdpQueue>),
    /// The same, and what the kernel copies of frames for groups.
    Shared(Box<Watched<SharedQueue>>),
}

/// What tells a device by which of its rings it is to send.
#[derive(Debug)]
pub(crate) enum Spreader {
    /// A TAP, by a program.
    Tap(firelane_driver_tap::Spreader),
    /// A NIC, by its own table.
    AfXdp(firelane_driver_afxdp::Spreader),
}

impl Spreader {
    /// As is said from now on; without a choice as the device likes. A NIC sets no queues aside.
    pub(crate) fn spread(&self, choice: Option<&Choice>) -> io::Result<()> {
        match self {
            Self::Tap(it) => it.spread(choice.map(|it| Spread { rings: it.rings, aside: &it.aside })),
            Self::AfXdp(it) => it.spread(choice.map(|it| it.rings)),
        }
    }
}

impl Queue {
    /// What tells the device by which of its rings it is to send, if it can be told.
    pub(crate) fn spreader(&self) -> Option<io::Result<Spreader>> {
        match self {
            Self::Tap(queue) => Some(queue.device().spreader().map(Spreader::Tap)),
            Self::AfXdp(queue) => queue.spreader().map(|it| it.map(Spreader::AfXdp)),
            Self::Shared(queue) => queue.device().claimed().spreader().map(|it| it.map(Spreader::AfXdp)),
            Self::Memory(_) | Self::Packet(_) | Self::Memif(_) => None,
        }
    }

    /// The same for another lane to send by, if the device takes frames from several at a time.
    pub(crate) fn for_sending(&self) -> Option<io::Result<Self>> {
        match self {
            Self::Tap(queue) => Some(queue.device().for_sending().map(Self::from)),
            Self::Memory(_) | Self::Packet(_) | Self::Memif(_) | Self::AfXdp(_) | Self::Shared(_) => None,
        }
    }

    /// One more queue of the same device, which is its ring `ring`, if it can have more than it was made with.
    pub(crate) fn one_more(&self, ring: u16) -> Option<io::Result<Self>> {
        match self {
            Self::Tap(queue) => Some(queue.device().one_more(ring).map(Self::from)),
            Self::Memory(_) | Self::Packet(_) | Self::Memif(_) | Self::AfXdp(_) | Self::Shared(_) => None,
        }
    }

    /// The descriptor that becomes readable when frames arrive, for kernel devices.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Memory(_) => None,
            Self::Tap(queue) => Some(queue.as_fd()),
            Self::Packet(socket) => Some(socket.as_fd()),
            Self::Memif(queue) => Some(queue.as_fd()),
            Self::AfXdp(queue) => Some(queue.as_fd()),
            Self::Shared(queue) => Some(queue.as_fd()),
        }
    }
}

impl From<End> for Queue {
    fn from(end: End) -> Self {
        Self::Memory(Box::new(end))
    }
}

impl From<TapQueue> for Queue {
    fn from(queue: TapQueue) -> Self {
        Self::Tap(Watched::new(queue))
    }
}

impl From<PacketSocket> for Queue {
    fn from(socket: PacketSocket) -> Self {
        Self::Packet(Watched::new(socket))
    }
}

impl From<SharedQueue> for Queue {
    fn from(queue: SharedQueue) -> Self {
        Self::Shared(Box::new(Watched::new(queue)))
    }
}

impl From<MemifQueue> for Queue {
    fn from(queue: MemifQueue) -> Self {
        Self::Memif(Box::new(queue))
    }
}

impl From<AfXdpQueue> for Queue {
    fn from(queue: AfXdpQueue) -> Self {
        Self::AfXdp(Box::new(queue))
    }
}

macro_rules! each {
    ($self:ident, $queue:ident => $call:expr) => {
        match $self {
            Self::Memory($queue) => $call,
            Self::Tap($queue) => $call,
            Self::Packet($queue) => $call,
            Self::Memif($queue) => $call,
            Self::AfXdp($queue) => $call,
            Self::Shared($queue) => $call,
        }
    };
}

impl Driver for Queue {
    fn capabilities(&self) -> Capabilities {
        each!(self, queue => queue.capabilities())
    }

    fn ring(&self) -> u16 {
        each!(self, queue => queue.ring())
    }

    fn receive(
        &mut self,
        pools: &mut Pools,
        budget: usize,
        out: &mut Chain,
        drops: &mut DropCounters,
    ) -> usize {
        each!(self, queue => queue.receive(pools, budget, out, drops))
    }

    fn transmit(&mut self, chain: &mut Chain, drops: &mut DropCounters) {
        each!(self, queue => queue.transmit(chain, drops));
    }

    fn notify(&mut self, on: bool) -> bool {
        each!(self, queue => queue.notify(on))
    }

    fn leave(&mut self, is_left: bool) {
        each!(self, queue => queue.leave(is_left));
    }

    fn call_as(&mut self, number: u32) {
        each!(self, queue => queue.call_as(number));
    }

    fn remind(&mut self, on: bool) {
        each!(self, queue => queue.remind(on));
    }

    fn can_wait(&self) -> bool {
        each!(self, queue => queue.can_wait())
    }

    fn is_drained(&self) -> bool {
        each!(self, queue => queue.is_drained())
    }

    fn is_gone(&self) -> bool {
        each!(self, queue => queue.is_gone())
    }

    fn is_read(&self) -> bool {
        each!(self, queue => queue.is_read())
    }

    fn shut_out(&mut self, now: Instant, frame: &[u8], flow: FlowId) -> bool {
        each!(self, queue => queue.shut_out(now, frame, flow))
    }

    fn let_in(&mut self, now: Instant, flow: FlowId) {
        each!(self, queue => queue.let_in(now, flow));
    }

    fn turned_away(&mut self, tell: &mut dyn FnMut(FlowId, Weight)) {
        each!(self, queue => queue.turned_away(tell));
    }

    fn next_event(&self) -> Option<Instant> {
        each!(self, queue => queue.next_event())
    }

    fn advance(&mut self, now: Instant) {
        each!(self, queue => queue.advance(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    use firelane_frame::PoolsConfig;
    use firelane_units::Mtu;

    use crate::bell::Bell;

    /// What one call leaves in the socket is told each time that the worker listens, until it is read.
    #[test]
    fn a_packet_socket_that_is_not_polled_calls_as_long_as_it_has_frames() {
        let socket = match PacketSocket::open("lo", Mtu::ETHERNET) {
            Ok(socket) => socket,
            Err(error) => {
                return firelane_skipped::skipped(format_args!("no packet socket can be made here: {error}"));
            }
        };
        let (bell, mut queue) = (Bell::new().unwrap(), Queue::from(socket));
        let Queue::Packet(watched) = &mut queue else { panic!("a packet socket") };
        watched.watch(&bell).unwrap();
        queue.call_as(0);
        queue.remind(true);
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..2 {
            to.send_to(b"one of two", to.local_addr().unwrap()).unwrap();
        }
        assert!(bell.glance(false));
        let mut pools = Pools::new(PoolsConfig { small_slots: 4, large_slots: 2 });
        let (mut chain, mut drops) = (Chain::new(), DropCounters::default());
        assert_eq!(queue.receive(&mut pools, 1, &mut chain, &mut drops), 1);
        assert!(bell.glance(false), "the other one waits");
    }
}
