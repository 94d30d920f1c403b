//! What stations say of groups, for whoever stands between them and the group: reports of IGMP (RFC 1112, RFC 2236, RFC 3376) and
//! MLD (RFC 2710, RFC 3810).
//!
//! `path/lane` reads it for the virtual switch (RFC 4541); what a listener hears is in `group.rs`. Checksums are the
//! caller's.

use core::net::IpAddr;

use crate::group::{GroupError, GroupProtocol, REPORT_HEADER_LEN};

/// What a station says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupSaying {
    /// It listens to a group, to all of its senders or to some.
    Listens(IpAddr),
    /// It listens to a group no more.
    Leaves(IpAddr),
    /// It asks who listens: it is a router, or stands for one.
    Asks,
}

impl GroupSaying {
    /// Reads a message, and tells `said` what it says. What a listener may not understand is skipped (RFC 3376 §4.2.12).
    ///
    /// # Errors
    /// It is no message about groups, or ends in the middle; what it said before has been told.
    pub fn read(
        protocol: GroupProtocol,
        message: &[u8],
        mut said: impl FnMut(Self),
    ) -> Result<(), GroupError> {
        let &[kind, ..] = message else { return Err(GroupError::Truncated) };
        let group_at = |at: usize| {
            let group = message.get(at..).and_then(|bytes| protocol.address(bytes));
            group.ok_or(GroupError::Truncated).and_then(of_group)
        };
        match (protocol, kind) {
            (GroupProtocol::Igmp, 0x11) | (GroupProtocol::Mld, 130) => said(Self::Asks),
            (GroupProtocol::Igmp, 0x12 | 0x16) => said(Self::Listens(group_at(4)?)),
            (GroupProtocol::Igmp, 0x17) => said(Self::Leaves(group_at(4)?)),
            (GroupProtocol::Mld, 131) => said(Self::Listens(group_at(8)?)),
            (GroupProtocol::Mld, 132) => said(Self::Leaves(group_at(8)?)),
            (GroupProtocol::Igmp, 0x22) | (GroupProtocol::Mld, 143) => {
                return read_records(protocol, message, said);
            }
            _ => return Err(GroupError::Kind),
        }
        Ok(())
    }
}

fn of_group(group: IpAddr) -> Result<IpAddr, GroupError> {
    if group.is_multicast() { Ok(group) } else { Err(GroupError::Group) }
}

fn read_records(
    protocol: GroupProtocol,
    message: &[u8],
    mut said: impl FnMut(GroupSaying),
) -> Result<(), GroupError> {
    let (header, mut rest) = message.split_at_checked(REPORT_HEADER_LEN).ok_or(GroupError::Truncated)?;
    let address = protocol.address_len();
    for _ in 0..u16::from_be_bytes([header[6], header[7]]) {
        let &[kind, extra, high, low, ref behind @ ..] = rest else { return Err(GroupError::Truncated) };
        let sources = usize::from(u16::from_be_bytes([high, low]));
        // Auxiliary data comes in words (RFC 3376 §4.2.6).
        let len = address * (1 + sources) + usize::from(extra) * 4;
        let group = of_group(protocol.address(behind).ok_or(GroupError::Truncated)?)?;
        rest = behind.get(len..).ok_or(GroupError::Sources)?;
        match kind {
            // Of no source at all.
            1 | 3 if sources == 0 => said(GroupSaying::Leaves(group)),
            1..=4 => said(GroupSaying::Listens(group)),
            5 if sources > 0 => said(GroupSaying::Listens(group)),
            // Whether any source is left is not said.
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::{GroupRecord, OldKind, RecordKind, emit_old, emit_report, old_len};
    use proptest::prelude::*;

    fn read(protocol: GroupProtocol, message: &[u8]) -> (Vec<GroupSaying>, Result<(), GroupError>) {
        let mut all = Vec::new();
        let end = GroupSaying::read(protocol, message, |it| all.push(it));
        (all, end)
    }

    #[test]
    fn what_messages_of_every_version_say() {
        use GroupProtocol::{Igmp, Mld};
        use GroupSaying::{Asks, Leaves, Listens};
        let (four, six): (IpAddr, IpAddr) = ("239.1.2.3".parse().unwrap(), "ff05::7".parse().unwrap());
        for (protocol, group) in [(Igmp, four), (Mld, six)] {
            for (kind, says) in [(OldKind::Report, Listens(group)), (OldKind::Leave, Leaves(group))] {
                let mut message = vec![0; old_len(protocol)];
                emit_old(kind, group, &mut message);
                assert_eq!(read(protocol, &message), (vec![says], Ok(())));
            }
            let one =
                [if protocol == Igmp { IpAddr::from([192, 0, 2, 1]) } else { "fd00::1".parse().unwrap() }];
            for (kind, without, with) in [
                (RecordKind::IsInclude, Some(Leaves(group)), Some(Listens(group))),
                (RecordKind::IsExclude, Some(Listens(group)), Some(Listens(group))),
                (RecordKind::ToInclude, Some(Leaves(group)), Some(Listens(group))),
                (RecordKind::ToExclude, Some(Listens(group)), Some(Listens(group))),
                (RecordKind::Allow, None, Some(Listens(group))),
                (RecordKind::Block, None, None),
            ] {
                let records = [&[][..], &one[..]].map(|sources| GroupRecord { kind, group, sources });
                let len = REPORT_HEADER_LEN + records.iter().map(GroupRecord::emitted_len).sum::<usize>();
                let mut message = vec![0; len];
                emit_report(protocol, &records, &mut message);
                let said: Vec<_> = [without, with].into_iter().flatten().collect();
                assert_eq!(read(protocol, &message), (said, Ok(())), "{kind:?}");
                // Cut short anywhere it is refused, and nothing is read past its end.
                for cut in 0..message.len() {
                    assert!(read(protocol, &message[..cut]).1.is_err(), "{cut} of {kind:?}");
                }
            }
        }
        assert_eq!(read(Igmp, &[0x12, 0, 0, 0, 239, 1, 2, 3]).0, [Listens(four)]);
        assert_eq!(read(Igmp, &[0x11, 0, 0, 0, 0, 0, 0, 0]).0, [Asks]);
        assert_eq!(read(Mld, &[130, 0, 0, 0]).0, [Asks]);
        let mut aux = vec![0x22, 0, 0, 0, 0, 0, 0, 2, 4, 1, 0, 0, 239, 1, 2, 3, 9, 9, 9, 9];
        aux.extend([9, 0, 0, 0, 239, 1, 2, 3]);
        assert_eq!(read(Igmp, &aux), (vec![Listens(four)], Ok(())), "a kind that nobody knows is skipped");
        assert_eq!(read(Igmp, &[0x16, 0, 0, 0, 10, 0, 0, 1]).1, Err(GroupError::Group));
        assert_eq!(read(Igmp, &[0x13, 0, 0, 0, 0, 0, 0, 0]).1, Err(GroupError::Kind));
    }

    proptest! {
        /// No bytes are read past the message, and only groups are told.
        #[test]
        fn v10_any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200), mld: bool) {
            let protocol = if mld { GroupProtocol::Mld } else { GroupProtocol::Igmp };
            if let Some(first) = bytes.first_mut() {
                *first = match (*first % 4, mld) {
                    (0, false) => 0x22,
                    (0, true) => 143,
                    (1, true) => 131,
                    (n, _) => 0x14 + n,
                };
            }
            for saying in read(protocol, &bytes).0 {
                if let GroupSaying::Listens(group) | GroupSaying::Leaves(group) = saying {
                    prop_assert!(group.is_multicast());
                }
            }
        }
    }
}
