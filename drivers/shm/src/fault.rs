//! What became of a datagram that a program had sent, as it asks for it with MSG_ERRQUEUE (`IP_RECVERR`, ip(7)).
//!
//! The daemon keeps a queue of them for each socket and says in the socket's status word whether there are any
//! ([`crate::layout::status::FAULTS`]); one is taken with [`crate::control::Request::Fault`], whose answer has these bytes.

use core::net::{IpAddr, SocketAddr};

use crate::codec::{In, Malformed, Out};
use crate::layout::{Block, margin, status};
use crate::sync::Ordering;

/// The most octets of what was sent.
const TEXT_MAX: usize = 512;

/// Who says it, by the numbers of `struct sock_extended_err`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// SO_EE_ORIGIN_LOCAL: this station's netstack, before it sent it.
    Local = 1,
    /// SO_EE_ORIGIN_ICMP.
    Icmp = 2,
    /// SO_EE_ORIGIN_ICMP6.
    Icmp6 = 3,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// A number of errno(3).
    pub errno: i32,
    /// Who says it.
    pub origin: Origin,
    /// Type and code of ICMP.
    pub icmp: [u8; 2],
    /// An MTU, or where a problem is.
    pub info: u32,
    /// Where the datagram was to go.
    pub to: SocketAddr,
    /// Who sent the ICMP message, or would have.
    pub offender: IpAddr,
    /// To which address of this station.
    pub local: IpAddr,
    /// By which interface it came, counted from one; zero is unknown.
    pub interface: u32,
    /// Its TTL or hop limit.
    pub hops: u8,
    /// Its traffic class.
    pub tos: u8,
    /// The begin of what was sent.
    pub text: Vec<u8>,
}

impl Fault {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        out.i32(self.errno).u8(self.origin as u8).u8(self.icmp[0]).u8(self.icmp[1]).u32(self.info);
        out.address(self.to).ip(self.offender).ip(self.local).u32(self.interface);
        out.u8(self.hops).u8(self.tos).bytes(&self.text, TEXT_MAX);
        out.0
    }

    /// Reads it.
    ///
    /// # Errors
    /// Which field is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = In(bytes);
        let errno = from.i32("errno")?;
        let origin = match from.u8("origin")? {
            1 => Origin::Local,
            2 => Origin::Icmp,
            3 => Origin::Icmp6,
            other => return Err(Malformed::new("origin", format!("{other}: 1 to 3 are allowed"))),
        };
        let fault = Self {
            errno,
            origin,
            icmp: [from.u8("type")?, from.u8("code")?],
            info: from.u32("info")?,
            to: from.address("to")?,
            offender: from.ip("offender")?,
            local: from.ip("local")?,
            interface: from.u32("interface")?,
            hops: from.u8("hops")?,
            tos: from.u8("tos")?,
            text: from.bytes("text", TEXT_MAX)?,
        };
        from.end(fault)
    }
}

impl Block {
    /// Whether there are faults to ask for.
    pub fn has_faults(&self) -> bool {
        self.rings.margin[margin::STATUS].load(Ordering::Acquire) & status::FAULTS != 0
    }

    /// Daemon: a fault was taken, and the next one, if there is any, has the number `next`. As in Linux the socket's error is
    /// the next one's then, and none if there is none.
    pub fn took_fault(&self, next: Option<i32>) {
        let below = (1u64 << status::ERROR_SHIFT) - 1;
        let number = u64::from(next.map_or(0, i32::unsigned_abs)) << status::ERROR_SHIFT;
        let there = if next.is_some() { status::FAULTS } else { 0 };
        let change = |word: u64| Some(word & below & !status::FAULTS | number | there);
        let _ = self.rings.margin[margin::STATUS].fetch_update(Ordering::AcqRel, Ordering::Relaxed, change);
    }

    /// Daemon: there are no faults any more, and the socket's error stays, as in Linux.
    pub fn dropped_faults(&self) {
        self.rings.margin[margin::STATUS].fetch_and(!status::FAULTS, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn one() -> Fault {
        Fault {
            errno: 111,
            origin: Origin::Icmp,
            icmp: [3, 3],
            info: 0,
            to: "10.0.0.2:33434".parse().unwrap(),
            offender: [10, 0, 0, 9].into(),
            local: "fd00::1".parse().unwrap(),
            interface: 3,
            hops: 61,
            tos: 0xc0,
            text: b"what was sent".to_vec(),
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_shorter() {
        for origin in [Origin::Local, Origin::Icmp, Origin::Icmp6] {
            let fault = Fault { origin, ..one() };
            let bytes = fault.encode();
            assert_eq!(Fault::decode(&bytes), Ok(fault));
            assert!((0..bytes.len()).all(|len| Fault::decode(&bytes[..len]).is_err()));
        }
        let mut bytes = one().encode();
        bytes[4] = 9;
        assert!(Fault::decode(&bytes).unwrap_err().to_string().contains("origin"));
    }

    #[test]
    fn the_word_says_whether_there_are_any_and_the_next_ones_error() {
        let block = Block::default();
        block.tell(status::CONNECTED | status::FAULTS | 111 << status::ERROR_SHIFT);
        assert!(block.has_faults());
        let word = || block.rings.margin[margin::STATUS].load(Ordering::Relaxed);
        block.took_fault(Some(113));
        assert_eq!(word(), status::CONNECTED | status::FAULTS | 113 << status::ERROR_SHIFT);
        block.took_fault(None);
        assert_eq!((word(), block.has_faults()), (status::CONNECTED, false));
    }
}
