//! Datagrams with what goes beside their payload, and many in one call (sendmsg(2), sendmmsg(2), recvmmsg(2)).
//!
//! Part of the UDP socket. The lane is told once for all that a call sends.

use std::io;

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
        let Some(first) = messages.first() else { return Ok(0) };
        self.forget_others_errors();
        let queue = |from: usize| {
            self.with_sender(|end| {
                let mut send = |it: &Outgoing<'_>| {
                    sent(end.send_with(&it.envelope, it.payload), it.payload.len()).transpose()
                };
                let mut count = from;
                for message in &messages[from..] {
                    match send(message) {
                        Ok(Some(_)) => count += 1,
                        Err(error) if count == 0 => return Err(error),
                        Ok(None) | Err(_) => break,
                    }
                }
                Ok(count)
            })
        };
        match queue(0)? {
            0 => {
                self.send_msg(first)?;
                queue(1)
            }
            count => Ok(count),
        }
    }

    /// Receives one.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn recv_msg(&self, message: &mut Incoming<'_>) -> io::Result<usize> {
        let got = self.recv_sealed(|end| end.recv(message.to))?;
        (message.envelope, message.len, message.copied) = (Some(got.envelope), got.len, got.copied);
        Ok(got.copied)
    }

    /// Waits for one, and receives as many as are there and have room. Says how many.
    ///
    /// # Errors
    /// Those of the first.
    pub fn recv_many(&self, messages: &mut [Incoming<'_>]) -> io::Result<usize> {
        let Some((first, rest)) = messages.split_first_mut() else { return Ok(0) };
        self.recv_msg(first)?;
        let mut end = self.receiver();
        let mut count = 1;
        for message in rest {
            // An error behind datagrams waits for the next call, as their program has not asked for it.
            let Some(got) = end.recv_without_error(message.to) else { break };
            (message.envelope, message.len, message.copied) = (Some(got.envelope), got.len, got.copied);
            count += 1;
        }
        Ok(count)
    }

    /// What the lane has to say of datagrams that were sent, once (SO_ERROR).
    ///
    /// # Errors
    /// Never; as in std.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.shared.words().take_error().map(io_error))
    }
}
