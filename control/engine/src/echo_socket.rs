//! A socket for echoes of ICMP: is a station there, and how far is it (RFC 1122 §3.2.2.6, RFC 4443 §4)?
//!
//! A datagram socket of the netstack's home lane, as `udp_socket.rs` makes them: what it asks and what it is answered is
//! told apart from other sockets' by an identifier of its own.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use firelane_lane::DatagramKind;
use rustix::io::Errno;

use crate::stack::Stack;
use crate::udp_socket::UdpSocket;

/// The sequence number in front of the text.
const SEQUENCE: usize = 2;

/// Asks stations for echoes, and gets their answers. Dropping it closes it.
pub struct EchoSocket(UdpSocket);

/// An answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo {
    /// Who answers.
    pub from: IpAddr,
    /// What the question had.
    pub sequence: u16,
    /// How much of the text was copied.
    pub len: usize,
}

impl EchoSocket {
    /// Opens one that asks from `addr`, or with an unspecified address from the one that is nearest to whom it asks.
    ///
    /// # Errors
    /// The address is none of the netstack's, or all identifiers are in use.
    pub fn bind(stack: &Stack, addr: IpAddr) -> io::Result<Self> {
        if !addr.is_unspecified() && !stack.owns(addr)? {
            return Err(Errno::ADDRNOTAVAIL.into());
        }
        UdpSocket::open_on(stack, SocketAddr::new(addr, 0), None, (DatagramKind::Echo, None)).map(Self)
    }

    /// The identifier of its questions.
    ///
    /// # Errors
    /// The netstack is gone.
    pub fn identifier(&self) -> io::Result<u16> {
        self.0.local_addr().map(|local| local.port())
    }

    /// Asks `to` to say `text`, of at most 65,505 octets over IPv4 and 65,525 over IPv6.
    ///
    /// # Errors
    /// The text is too long, or an earlier question could not be sent.
    pub fn send_to(&self, to: IpAddr, sequence: u16, text: &[u8]) -> io::Result<()> {
        let record = [&sequence.to_be_bytes()[..], text].concat();
        self.0.send_to(&record, SocketAddr::new(to, 0)).map(drop)
    }

    /// Waits for an answer, and copies what fits of its text into `to`.
    ///
    /// # Errors
    /// A question could not be sent, or nothing came within the time-out.
    pub fn recv_from(&self, to: &mut [u8]) -> io::Result<Echo> {
        let mut record = vec![0; SEQUENCE + to.len()];
        let (len, from) = self.0.recv_from(&mut record)?;
        let (sequence, text) = record[..len].split_at_checked(SEQUENCE).ok_or(io::ErrorKind::InvalidData)?;
        to[..text.len()].copy_from_slice(text);
        let sequence = u16::from_be_bytes([sequence[0], sequence[1]]);
        Ok(Echo { from: from.ip(), sequence, len: text.len() })
    }

    /// How long [`EchoSocket::recv_from`] waits; `None` is for ever.
    ///
    /// # Errors
    /// As `std::net::UdpSocket::set_read_timeout`.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(timeout)
    }
}
