//! What IP does for tunnels that begin at its addresses: it lets their packets through to whoever knows tunnels, and tells the senders
//! of what is inside what has happened outside (RFC 2003 §4, RFC 2473 §8, RFC 4213 §3.4, RFC 4459).
//!
//! IP knows of a tunnel its two ends. `path/tunnel` knows what stands before a packet, and `path/lane` brings both together. An
//! ICMP error about a packet outside is believed if its quotation has the two ends of a tunnel; that a packet is too large becomes
//! the path's MTU, which the next large packet inside learns of, and of anything else the quoted packet's sender is told: by whoever brings
//! both together, because it may have had other ends before it was translated ([`Ip::unreached`]).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firelane_frame::Pools;
use firelane_units::{DropReason, Instant, Mtu};
use firelane_wire::{EtherType, IpProtocol, Ipv6View, Quoted, ext};

use crate::event::ErrorKind;
use crate::icmp_error::IcmpError;
use crate::input::Delivered;
use crate::input_v4::PROTOCOL_AT;
use crate::stack::Ip;

/// Why a packet does not enter a tunnel, or is said not to have come out of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TunnelError {
    /// It is larger than this.
    TooBig(Mtu),
    /// The other end is not reached.
    Unreachable,
    /// The byte of the packet that forbids it (RFC 2473 §4.1.1).
    LimitReached(u16),
}

/// The most that an error shows of a packet.
const SHOWN_MAX: usize = firelane_wire::icmpv6::QUOTE_MAX;

/// What any station is, as the other end of a tunnel that has several.
const ANYBODY: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];

impl Ip {
    /// Says between which of our addresses and which others tunnels carry packets; the unspecified address is anybody's.
    pub fn set_tunnel_ends(&mut self, ends: Vec<(IpAddr, IpAddr)>) {
        self.tunnel_ends = ends;
    }

    /// Whether a packet is for whoever knows tunnels. Groups have none.
    pub(crate) fn is_for_tunnel(&self, delivered: &Delivered) -> bool {
        !self.tunnel_ends.is_empty() && delivered.protocol.is_tunnel() && !delivered.is_broadcast_or_multicast
    }

    /// There is no tunnel for a packet that was delivered: its sender is told, as without tunnels (I11).
    pub fn refuse_tunnel(&mut self, now: Instant, delivered: &Delivered, pools: &mut Pools) {
        let named_at = match delivered.dst {
            IpAddr::V4(_) => PROTOCOL_AT,
            IpAddr::V6(_) => {
                let view = Ipv6View::parse(&delivered.frame.as_slice()[delivered.l3_offset..]);
                view.ok().and_then(|view| ext::walk(&view).ok()).map_or(0, |chain| chain.named_at)
            }
        };
        self.report_protocol(now, delivered, named_at, pools);
    }

    /// Tells the sender of a packet for this station that nobody here has its protocol.
    pub(crate) fn report_protocol(
        &mut self,
        now: Instant,
        delivered: &Delivered,
        named_at: u16,
        pools: &mut Pools,
    ) {
        let packet = &delivered.frame.as_slice()[delivered.l3_offset..delivered.payload.end];
        self.send_error(now, packet, IcmpError::ProtocolUnreachable { named_at }, pools);
    }

    /// Tells the sender of a packet why a tunnel did not take it.
    pub fn report_tunnel(&mut self, now: Instant, packet: &[u8], error: TunnelError, pools: &mut Pools) {
        let error = match error {
            TunnelError::TooBig(mtu) => IcmpError::TooBig(mtu),
            TunnelError::Unreachable => IcmpError::HostUnreachable,
            TunnelError::LimitReached(pointer) => {
                IcmpError::Problem { code: 0, pointer, even_to_groups: false }
            }
        };
        self.send_error(now, packet, error, pools);
    }

    /// Whether an error quotes a packet that a tunnel may have sent.
    pub(crate) fn is_of_tunnel(&self, quoted: &Quoted<'_>) -> bool {
        let is_one = |&(local, remote): &(IpAddr, IpAddr)| {
            local == quoted.src && (remote == quoted.dst || ANYBODY.contains(&remote))
        };
        quoted.protocol.is_tunnel() && self.tunnel_ends.iter().any(is_one)
    }

    /// An error about a packet that a tunnel has sent.
    pub(crate) fn on_tunnel_error(&mut self, now: Instant, quoted: &Quoted<'_>, kind: ErrorKind) {
        if let ErrorKind::TooBig { mtu } = kind {
            // RFC 2003 §5.1: soft state, of which the next packet that is too large is told.
            let is_named = self.tunnel_ends.contains(&(quoted.src, quoted.dst));
            return match is_named {
                true => self.confirm_path_mtu(now, quoted.dst, mtu),
                false => self.suppose_path_mtu(now, quoted.dst, mtu),
            };
        }
        if let Some(inside) = quoted_inside(quoted) {
            // RFC 2003 §4.1, §4.3, RFC 2473 §8.2: whatever it is outside, inside somebody is not reached.
            self.unreached.clear();
            self.unreached.extend(&inside[..inside.len().min(SHOWN_MAX)]);
        }
    }

    /// What the last packet that was put in quotes of one that did not come out of a tunnel, or nothing: its sender is to be told
    /// ([`report_tunnel`](Self::report_tunnel)), and this emptied.
    #[inline]
    pub const fn unreached(&mut self) -> &mut Vec<u8> {
        &mut self.unreached
    }
}

/// The packet inside, as far as an error quotes it.
fn quoted_inside<'a>(quoted: &Quoted<'a>) -> Option<&'a [u8]> {
    let bytes = quoted.transport();
    if quoted.protocol != IpProtocol::GRE {
        return Some(bytes);
    }
    let &[flags, _, high, low, ..] = bytes else { return None };
    let is_ip = matches!(EtherType(u16::from_be_bytes([high, low])), EtherType::IPV4 | EtherType::IPV6);
    // RFC 2890 §2: checksum, key and number are four bytes each.
    let words = (flags & 0xb0).count_ones() as usize;
    bytes.get(4 + 4 * words..).filter(|_| is_ip)
}

/// Why a packet without a way to the tunnel's other end is dropped.
impl From<TunnelError> for DropReason {
    fn from(error: TunnelError) -> Self {
        match error {
            TunnelError::TooBig(_) => Self::TooBig,
            TunnelError::Unreachable => Self::TunnelDown,
            TunnelError::LimitReached(_) => Self::TunnelNested,
        }
    }
}
