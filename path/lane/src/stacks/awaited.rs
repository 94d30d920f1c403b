//! What a netstack's own DHCP clients wait for passes its filter and its translation: no rule has to name DHCP, and none takes an answer
//! away (in Linux the clients have sockets beside the firewall for this).
//!
//! A client says which exchange it has open ([`Control::Await`](crate::Control::Await)), in all lanes, as what arrives is looked at in the
//! home lane first where addresses are translated. An answer is known by its link, its ports and the number of its exchange (RFC 2131
//! §4.1, RFC 8415 §16), and it is for the netstack itself, so that nothing is forwarded by this. Asked by both gates, `filtered.rs`
//! and `translated.rs`.

use core::net::IpAddr;

use firelane_classify::{Fragment, Headers};
use firelane_frame::Frame;
use firelane_units::{Family, LinkId, NetstackId, Port};
use firelane_wire::{IpProtocol, UdpView};

use super::inbound::Inside;
use super::{NO_NETSTACK, Stacks};
use crate::control::Refusal;

/// From which port to which servers answer clients (RFC 2131 §4.1, RFC 8415 §7.2).
const PORTS: [(Family, Port, Port); 2] =
    [(Family::V4, Port(67), Port(68)), (Family::V6, Port(547), Port(546))];

/// The exchanges that clients have open, no more than one of a family on a link.
#[derive(Debug, Default)]
pub(super) struct Awaited(Vec<(LinkId, Family, u32)>);

impl Awaited {
    /// The exchange that a client has open from now on, if any.
    fn set(&mut self, link: LinkId, family: Family, number: Option<u32>) {
        self.0.retain(|&(its, of, _)| (its, of) != (link, family));
        self.0.extend(number.map(|number| (link, family, number)));
    }
}

/// Whether a datagram is one from a server to a client, as its ports say.
pub(super) fn is_of_server(headers: &Headers) -> bool {
    family_of(headers).is_some()
}

fn family_of(headers: &Headers) -> Option<Family> {
    let ports = headers.ports.filter(|_| headers.protocol == IpProtocol::UDP)?;
    let is_v4 = headers.addresses()?.0.is_ipv4();
    let family = if is_v4 { Family::V4 } else { Family::V6 };
    PORTS.contains(&(family, ports.0, ports.1)).then_some(family)
}

/// The number of the exchange that a server's message is of.
fn number_of(family: Family, message: &[u8]) -> Option<u32> {
    match (family, message) {
        // A reply (RFC 2131 §2).
        (Family::V4, &[2, _, _, _, a, b, c, d, ..]) => Some(u32::from_be_bytes([a, b, c, d])),
        // RFC 8415 §8: its kind, and 24 bits.
        (Family::V6, &[_, a, b, c, ..]) => Some(u32::from_be_bytes([0, a, b, c])),
        _ => None,
    }
}

impl Stacks {
    /// A client of a netstack's own waits for another answer than before.
    pub(crate) fn set_awaited(
        &mut self,
        id: NetstackId,
        link: LinkId,
        family: Family,
        number: Option<u32>,
    ) -> Result<(), Refusal> {
        self.shards.get_mut(id).ok_or(NO_NETSTACK)?.awaited.set(link, family, number);
        Ok(())
    }
}

impl<D> Inside<'_, D> {
    /// Whether a client of the netstack's own waits for what comes in.
    #[inline]
    pub(super) fn is_awaited(&self, link: LinkId, frame: &Frame, headers: &Headers) -> bool {
        !self.shard.awaited.0.is_empty() && self.is_answer(link, frame.as_slice(), headers)
    }

    #[cold]
    fn is_answer(&self, link: LinkId, frame: &[u8], headers: &Headers) -> bool {
        let Some(family) = family_of(headers).filter(|_| headers.fragment == Fragment::Whole) else {
            return false;
        };
        let is_for_us = headers.addresses().is_some_and(|(_, dst)| match dst {
            IpAddr::V4(dst) if dst.is_broadcast() => true,
            dst => self.shard.ip.core.is_local(dst),
        });
        let datagram = frame.get(usize::from(headers.l4_offset)..headers.l3_end as usize).map(UdpView::parse);
        let number = match datagram {
            Some(Ok(datagram)) => number_of(family, datagram.payload()),
            _ => None,
        };
        is_for_us && number.is_some_and(|number| self.shard.awaited.0.contains(&(link, family, number)))
    }
}
