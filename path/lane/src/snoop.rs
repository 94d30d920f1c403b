//! What users of devices say of the groups that they listen to, heard on its way to routers (RFC 4541); and who is heard beyond an exit.
//!
//! Called by `links.rs` for frames that go to many. Which groups a port then gets is `path/switch`'s, as is where frames go; the other
//! lanes' replicas are told. Netstacks say what they listen to themselves (`Lane::regroup`).

use core::net::IpAddr;

use firelane_classify::Headers;
use firelane_frame::Frame;
use firelane_switch::Located;
use firelane_units::{Instant, LinkId};
use firelane_wire::checksum::Sum;
use firelane_wire::{GroupProtocol, GroupSaying, Icmpv6View, IpProtocol};

use crate::common::Common;
use crate::links::Links;
use crate::message::{LaneMessage, PortKind, PortUser};

/// Routers of groups greet each other in this protocol (RFC 7761 section 4.9).
const PIM: IpProtocol = IpProtocol(103);

impl<D> Links<D> {
    /// The user of a port has said something of groups in another lane.
    pub(crate) fn hear(&mut self, id: LinkId, saying: GroupSaying) {
        if let Some(port) = self.ports.get(id.0)
            && let Some(link) = self.switches.get_mut(port.over.0)
        {
            link.switch.hear(port.at_switch, saying);
        }
    }

    /// A station was heard beyond an exit in another lane.
    pub(crate) fn locate(&mut self, now: Instant, exit: LinkId, located: Located) {
        if let Some(port) = self.ports.get(exit.0)
            && let Some(link) = self.switches.get_mut(port.over.0)
        {
            link.switch.locate(now, port.at_switch, located);
        }
    }

    /// The same of groups in this lane: what the others are to hear of it.
    fn hear_here(&mut self, now: Instant, id: LinkId, saying: GroupSaying) -> Option<GroupSaying> {
        let port = self.ports.get(id.0)?;
        self.switches.get_mut(port.over.0)?.switch.hear_here(now, port.at_switch, saying)
    }
}

/// Listens to a frame for many that the user of a device sends.
pub(crate) fn listen<D>(
    links: &mut Links<D>,
    common: &mut Common<D>,
    from: LinkId,
    frame: &Frame,
    headers: &Headers,
) {
    // Hosts and routers that are near say it with a hop limit of one (RFC 3376 section 4, RFC 3810 section 5).
    let is_near = headers.ttl == 1 && headers.l4_offset != 0;
    if !is_near || !matches!(headers.protocol, IpProtocol::IGMP | IpProtocol::ICMPV6 | PIM) {
        return;
    }
    let is_device = |port: &crate::ports::Port| {
        matches!((port.kind, port.user), (PortKind::Vnic { .. }, PortUser::Driver { .. }))
    };
    if !links.ports.get(from.0).is_some_and(is_device) {
        return;
    }
    let message = frame.as_slice().get(usize::from(headers.l4_offset)..headers.l3_end as usize);
    let said = |saying| {
        if let Some(saying) = links.hear_here(common.now, from, saying) {
            common.tell_lanes(|| LaneMessage::Heard(from, saying));
        }
    };
    read(headers, message.unwrap_or_default(), said);
}

/// What a message says, if it is one about groups whose checksum is right. What is cut short ends where it is.
fn read(headers: &Headers, message: &[u8], mut said: impl FnMut(GroupSaying)) {
    let Some((src, dst)) = headers.addresses() else { return };
    // A question of nobody is that of a switch, not of a router (RFC 4541 section 2.1.1).
    let told = |saying| {
        if saying != GroupSaying::Asks || !src.is_unspecified() {
            said(saying);
        }
    };
    match (headers.protocol, src, dst) {
        (PIM, ..) => [GroupSaying::Asks].into_iter().for_each(told),
        (IpProtocol::IGMP, IpAddr::V4(_), _) if Sum::of(message).is_valid() => {
            let _ = GroupSaying::read(GroupProtocol::Igmp, message, told);
        }
        (IpProtocol::ICMPV6, IpAddr::V6(src), IpAddr::V6(dst)) => {
            let is_right = Icmpv6View::parse(message).is_ok_and(|it| it.is_checksum_valid(src, dst));
            if is_right && matches!(message.first(), Some(130..=132 | 143)) {
                let _ = GroupSaying::read(GroupProtocol::Mld, message, told);
            }
        }
        _ => {}
    }
}
