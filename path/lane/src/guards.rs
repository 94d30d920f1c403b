//! Guards of protected ports: who is shown which frames, and how lanes teach each other.
//!
//! Called by `links.rs` for ports that are protected, and for nothing else; rules are `path/switch`'s.

use firelane_classify::{Fragment, Headers};
use firelane_frame::{Checksum, Frame};
use firelane_switch::{Guard, GuardCounters, Lesson, Packet, Piece, Rules};
use firelane_table::Minted;
use firelane_units::{Direction, DropReason, LinkId, MacAddr};

use crate::common::Common;
use crate::links::Links;
use crate::message::LaneMessage;

impl<D> Links<D> {
    /// Protects a port of the station `mac`, in another way, or no more.
    pub(crate) fn set_guard(&mut self, id: LinkId, mac: MacAddr, rules: Option<Rules>) {
        self.changed();
        let guarded = rules.is_some();
        match (rules, self.guards.get_mut(id.0)) {
            (Some(rules), Some(guard)) => guard.set_rules(rules),
            (Some(rules), None) => {
                assert!(self.guards.insert(id.0, Guard::new(mac, rules)).is_ok(), "the place is free");
            }
            (None, _) => drop(self.guards.remove(id.0)),
        }
        if let Some(port) = self.ports.get_mut(id.0) {
            port.guarded = guarded;
        }
    }

    /// Learns what another lane has.
    pub(crate) fn learn(&mut self, common: &mut Common<D>, link: LinkId, lesson: Lesson) {
        // A port that has gone meanwhile needs no lessons.
        if let Some(guard) = self.guards.get_mut(link.0) {
            guard.learn(common.now, lesson, |lesson| tell_lanes(common, link, lesson));
        }
    }

    /// What each guard has stopped.
    pub(crate) fn guard_counters(&self) -> Vec<(LinkId, GuardCounters)> {
        let guarded = self.ports.iter().filter(|port| port.guarded);
        guarded.filter_map(|port| Some((port.id, self.guards.get(port.id.0)?.counters()))).collect()
    }
}

/// Judges a frame that the user of a protected port sends.
pub(crate) fn judge<D>(
    guards: &mut Minted<Guard>,
    common: &Common<D>,
    link: LinkId,
    frame: &Frame,
    headers: &Headers,
) -> Result<(), DropReason> {
    let Some(guard) = guards.get_mut(link.0) else { return Ok(()) };
    guard.check(common.now, &packet(frame, headers))
}

/// Shows the guard of a protected port what its user has sent and no limit has stopped, or what he gets.
pub(crate) fn show<D>(
    guards: &mut Minted<Guard>,
    common: &mut Common<D>,
    (link, direction): (LinkId, Direction),
    frame: &Frame,
    headers: &Headers,
) {
    let Some(guard) = guards.get_mut(link.0) else { return };
    let (now, packet) = (common.now, packet(frame, headers));
    let taught = |lesson| tell_lanes(common, link, lesson);
    match direction {
        Direction::Out => guard.sent(now, &packet, taught),
        Direction::In => guard.see(now, &packet, taught),
    }
}

fn tell_lanes<D>(common: &mut Common<D>, link: LinkId, lesson: Lesson) {
    common.tell_lanes(|| LaneMessage::Lesson(link, lesson));
}

/// What a guard looks at.
fn packet<'a>(frame: &'a Frame, headers: &Headers) -> Packet<'a> {
    let bytes = frame.as_slice();
    let l3 = bytes.get(usize::from(headers.l3_offset)..).unwrap_or_default();
    let l4 = match headers.l4_offset {
        0 => None,
        at => bytes.get(usize::from(at)..headers.l3_end as usize),
    };
    Packet {
        src: headers.src,
        dst: headers.dst,
        tagged: headers.tagged,
        is_unfinished: matches!(frame.meta().checksum, Checksum::Partial { .. }),
        ethertype: headers.ethertype,
        l3,
        l4: l4.unwrap_or_default(),
        piece: match headers.fragment {
            Fragment::Whole => Piece::Whole,
            Fragment::First => Piece::First,
            Fragment::Later => Piece::Later,
        },
        addresses: headers.addresses(),
        protocol: headers.protocol,
        ttl: headers.ttl,
        ports: headers.ports,
    }
}
