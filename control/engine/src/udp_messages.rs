//! Datagrams with what goes beside their payload, and many in one call (sendmsg(2), sendmmsg(2), recvmmsg(2)).
//!
//! Part of the UDP socket. The lane is told of the first datagram of a batch, whose error is the call's, and once of all others.

use std::io;
use std::task::{Context, Poll};

use firelane_socket::{Datagram, Ready};

use crate::Envelope;
use crate::error::io_error;
use crate::udp_socket::{UdpSocket, sent};

/// A datagram to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Where it goes, and what its packet is to have other than the socket has. With `segment`, the payload is cut into
    /// datagrams of that many bytes (UDP_SEGMENT).
    pub envelope: Envelope,
    /// What is in it.
    pub payload: &'a [u8],
}

/// Room for a datagram, and what came.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// Where the payload goes.
    pub to: &'a mut [u8],
    /// What is written on the datagram. With `segment`, the payload is as many datagrams of that length as there are, of
    /// which the last may be shorter (UDP_GRO).
    pub envelope: Option<Envelope>,
    /// How long it was.
    pub len: usize,
    /// How much of it had room; the rest is lost.
    pub copied: usize,
}

impl<'a> Incoming<'a> {
    /// Room for one.
    pub fn new(to: &'a mut [u8]) -> Self {
        Self { to, envelope: None, len: 0, copied: 0 }
    }

    fn fill(&mut self, got: &Datagram) {
        (self.envelope, self.len, self.copied) = (Some(got.envelope), got.len, got.copied);
    }
}

impl UdpSocket {
    /// Sends one.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`]; `InvalidInput` if it would be more than 128 datagrams.
    pub fn send_msg(&self, message: &Outgoing<'_>) -> io::Result<usize> {
        self.send_sealed(&message.envelope, message.payload)
    }

    /// Sends as many as there is room for, at least one, and says how many.
    ///
    /// # Errors
    /// Those of the first; of a later one a connected socket's next call tells.
    pub fn send_many(&self, messages: &[Outgoing<'_>]) -> io::Result<usize> {
        self.block_for(Ready::WRITABLE, self.write_limit.get(), |socket| socket.send_many_now(messages))
    }

    /// The same; `WouldBlock` if there is no room for the first.
    ///
    /// # Errors
    /// As [`UdpSocket::send_many`].
    pub fn try_send_many(&self, messages: &[Outgoing<'_>]) -> io::Result<usize> {
        self.at_once(|socket| socket.send_many_now(messages))
    }

    /// The same without blocking the thread.
    ///
    /// # Errors
    /// As [`UdpSocket::send_many`].
    pub async fn send_many_async(&self, messages: &[Outgoing<'_>]) -> io::Result<usize> {
        self.wait(Ready::WRITABLE, |socket| socket.send_many_now(messages)).await
    }

    /// `None` if there is no room for the first.
    fn send_many_now(&self, messages: &[Outgoing<'_>]) -> Option<io::Result<usize>> {
        let Some(first) = messages.first() else { return Some(Ok(0)) };
        // Whether the way is there is told by the very call.
        let one = self.send_now(&first.envelope, first.payload)?;
        Some(one.map(|_| {
            1 + self.with_sender(|end| {
                let mut send =
                    |it: &Outgoing<'_>| sent(end.send_with(&it.envelope, it.payload), it.payload.len());
                messages[1..].iter().take_while(|it| matches!(send(it), Some(Ok(_)))).count()
            })
        }))
    }

    /// Receives one.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn recv_msg(&self, message: &mut Incoming<'_>) -> io::Result<usize> {
        let got = self.recv_sealed(|end| end.recv(message.to))?;
        message.fill(&got);
        Ok(got.copied)
    }

    /// Waits for one, and receives as many as are there and have room. Says how many.
    ///
    /// # Errors
    /// Those of the first.
    pub fn recv_many(&self, messages: &mut [Incoming<'_>]) -> io::Result<usize> {
        self.block_for(Ready::READABLE, self.read_limit.get(), |socket| socket.recv_many_now(messages))
    }

    /// The same; `WouldBlock` if there is none.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_many`].
    pub fn try_recv_many(&self, messages: &mut [Incoming<'_>]) -> io::Result<usize> {
        self.at_once(|socket| socket.recv_many_now(messages))
    }

    /// The same without blocking the thread.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_many`].
    pub async fn recv_many_async(&self, messages: &mut [Incoming<'_>]) -> io::Result<usize> {
        self.wait(Ready::READABLE, |socket| socket.recv_many_now(messages)).await
    }

    /// The same, polled.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_many`].
    pub fn poll_recv_many(
        &self,
        context: &mut Context<'_>,
        messages: &mut [Incoming<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_for(Ready::READABLE, context, |socket| socket.recv_many_now(messages))
    }

    /// `None` if there is nothing.
    fn recv_many_now(&self, messages: &mut [Incoming<'_>]) -> Option<io::Result<usize>> {
        let Some((first, rest)) = messages.split_first_mut() else { return Some(Ok(0)) };
        match self.recv_now(&mut |end| end.recv(first.to))? {
            Ok(got) => first.fill(&got),
            Err(error) => return Some(Err(error)),
        }
        let mut end = self.receiver();
        let mut count = 1;
        for message in rest {
            // An error behind datagrams waits for the next call, as their program has not asked for it.
            let Some(got) = end.recv_without_error(message.to) else { break };
            message.fill(&got);
            count += 1;
        }
        Some(Ok(count))
    }

    /// What the lane has to say of datagrams that were sent, once (SO_ERROR).
    ///
    /// # Errors
    /// Never; as in std.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.shared.words().take_error().map(io_error))
    }
}
