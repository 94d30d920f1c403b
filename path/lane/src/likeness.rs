//! What packets will be like, as far as flows ask, before anybody has made them: those of what a socket is about to send, and those in
//! which fused text would have gone. Its flows are theirs, so limits, counters and properties of flows say the same of both.

use core::net::IpAddr;

use firelane_classify::{Headers, L3, Tuple};
use firelane_units::MacAddr;

/// What packets from the tuple's local end to its remote one are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Likeness {
    tuple: Tuple,
    /// The DS field with ECN's bits, as their sender says it. What TCP makes of ECN differs from segment to segment, and is left out.
    dsfield: u8,
    /// The stations that send and get them: nobody's address where no link carries them, or where it is not known as yet.
    src: MacAddr,
    dst: MacAddr,
}

impl Likeness {
    pub(crate) const fn new(tuple: Tuple, dsfield: u8) -> Self {
        Self { tuple, dsfield, src: MacAddr::ZERO, dst: MacAddr::ZERO }
    }

    /// The same on a link, from one station to another.
    pub(crate) const fn between(self, src: MacAddr, dst: MacAddr) -> Self {
        Self { src, dst, ..self }
    }

    /// Whose they are.
    pub(crate) const fn tuple(&self) -> &Tuple {
        &self.tuple
    }

    /// Their headers, as far as flow rules ask for them.
    pub(crate) fn headers(&self) -> Headers {
        let tuple = &self.tuple;
        let l3 = match (tuple.local(), tuple.remote()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => L3::V4 { src, dst },
            (IpAddr::V6(src), IpAddr::V6(dst)) => L3::V6 { src, dst },
            _ => L3::Other,
        };
        Headers {
            src: self.src,
            dst: self.dst,
            l3,
            protocol: tuple.protocol(),
            dsfield: self.dsfield,
            ports: Some((tuple.local_port(), tuple.remote_port())),
            ..Headers::EMPTY
        }
    }
}
