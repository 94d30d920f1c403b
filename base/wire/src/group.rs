//! Membership of groups: the messages of IGMP (RFC 1112, RFC 2236, RFC 3376) and MLD (RFC 2710, RFC 3810).
//!
//! Both protocols say the same in the same shape, with addresses of four or of sixteen bytes, so one file reads and
//! writes both. `path/ip` is a listener: it reads queries and the reports of others, and writes reports. Checksums
//! are the caller's: IGMP's covers the message, MLD's a pseudo-header too.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

parse_error! {
    /// Why bytes are no message about groups that a listener obeys.
    GroupError {
        /// Shorter than its kind's fixed part.
        Truncated = "shorter than a group membership message" => BadGroup,
        /// A type that a listener does not hear.
        Kind = "a group membership type that is not handled" => BadGroup,
        /// The group is neither unspecified nor a group.
        Group = "the group of a membership message is no group" => BadGroup,
        /// More sources are announced than there are bytes (V10).
        Sources = "more sources than the message has" => BadGroup,
    }
}

/// Which of the two protocols.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GroupProtocol {
    /// For IPv4.
    Igmp,
    /// For IPv6.
    Mld,
}

impl GroupProtocol {
    pub(crate) const fn address_len(self) -> usize {
        match self {
            Self::Igmp => 4,
            Self::Mld => 16,
        }
    }

    const fn query_len(self) -> usize {
        // Type, code, checksum, (for MLD response time and reserved), group; then flags, interval, count.
        match self {
            Self::Igmp => 8,
            Self::Mld => 24,
        }
    }

    pub(crate) fn address(self, bytes: &[u8]) -> Option<IpAddr> {
        match self {
            Self::Igmp => bytes.first_chunk::<4>().map(|b| Ipv4Addr::from(*b).into()),
            Self::Mld => bytes.first_chunk::<16>().map(|b| Ipv6Addr::from(*b).into()),
        }
    }
}

/// How old the querier is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GroupVersion {
    /// IGMPv1: no answer has a time, and nobody says that he leaves.
    One,
    /// IGMPv2 or MLDv1: no sources.
    Two,
    /// IGMPv3 or MLDv2.
    Three,
}

/// "Who listens?"
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupQuery<'a> {
    /// How old the querier is.
    pub version: GroupVersion,
    /// To which group; `None` asks for all.
    pub group: Option<IpAddr>,
    /// Within which time an answer is wanted.
    pub max_response: Duration,
    /// How often a report is repeated, if the querier says.
    pub robustness: Option<u8>,
    /// How often it asks, if it says.
    pub interval: Option<Duration>,
    protocol: GroupProtocol,
    sources: &'a [u8],
}

impl<'a> GroupQuery<'a> {
    /// Which sources it asks for; none asks for all.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = IpAddr> + use<'a> {
        let protocol = self.protocol;
        let any = match protocol {
            GroupProtocol::Igmp => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            GroupProtocol::Mld => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let sources = self.sources.chunks_exact(protocol.address_len());
        sources.map(move |bytes| protocol.address(bytes).unwrap_or(any))
    }
}

/// A message that a listener hears.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupMessage<'a> {
    /// A query.
    Query(GroupQuery<'a>),
    /// Another host of an old version listens to this group.
    OldReport(IpAddr),
    /// What only routers hear.
    ForRouters,
}

impl<'a> GroupMessage<'a> {
    /// Reads an IGMP message whose checksum is right.
    pub fn parse_igmp(message: &'a [u8]) -> Result<Self, GroupError> {
        let &[kind, code, ..] = message else { return Err(GroupError::Truncated) };
        if message.len() < GroupProtocol::Igmp.query_len() {
            return Err(GroupError::Truncated);
        }
        match kind {
            0x11 => {
                let version = match message.len() {
                    8 if code == 0 => GroupVersion::One,
                    // RFC 3376 §7.1: between the two lengths is no version.
                    8 => GroupVersion::Two,
                    9..12 => return Err(GroupError::Truncated),
                    _ => GroupVersion::Three,
                };
                let tenths = match version {
                    GroupVersion::One => 100,
                    GroupVersion::Two => u64::from(code),
                    GroupVersion::Three => u64::from(float8(code)),
                };
                let max_response = Duration::from_millis(tenths * 100);
                Self::parse_query(GroupProtocol::Igmp, message, 4, version, max_response)
            }
            0x12 | 0x16 => old_report(GroupProtocol::Igmp, message, 4),
            0x17 | 0x22 => Ok(Self::ForRouters),
            _ => Err(GroupError::Kind),
        }
    }

    /// Reads an MLD message (an ICMPv6 message of the types 130 to 132 and 143) whose checksum is right.
    pub fn parse_mld(message: &'a [u8]) -> Result<Self, GroupError> {
        let &[kind, _, _, _, high, low, ..] = message else { return Err(GroupError::Truncated) };
        match kind {
            130 => {
                let version = match message.len() {
                    24 => GroupVersion::Two,
                    28.. => GroupVersion::Three,
                    _ => return Err(GroupError::Truncated),
                };
                let code = u16::from_be_bytes([high, low]);
                let millis = match version {
                    GroupVersion::Three => float16(code),
                    _ => u32::from(code),
                };
                let max_response = Duration::from_millis(millis.into());
                Self::parse_query(GroupProtocol::Mld, message, 8, version, max_response)
            }
            131 => old_report(GroupProtocol::Mld, message, 8),
            132 | 143 => Ok(Self::ForRouters),
            _ => Err(GroupError::Kind),
        }
    }

    fn parse_query(
        protocol: GroupProtocol,
        message: &'a [u8],
        group_at: usize,
        version: GroupVersion,
        max_response: Duration,
    ) -> Result<Self, GroupError> {
        let group = protocol.address(&message[group_at..]).ok_or(GroupError::Truncated)?;
        if !group.is_unspecified() && !group.is_multicast() {
            return Err(GroupError::Group);
        }
        let mut query = GroupQuery {
            version,
            group: Some(group).filter(|group| !group.is_unspecified()),
            max_response,
            robustness: None,
            interval: None,
            protocol,
            sources: &[],
        };
        if version == GroupVersion::Three {
            let &[flags, interval, high, low, ref rest @ ..] = &message[protocol.query_len()..] else {
                return Err(GroupError::Truncated);
            };
            let len = usize::from(u16::from_be_bytes([high, low])) * protocol.address_len();
            query.sources = rest.get(..len).ok_or(GroupError::Sources)?;
            query.robustness = Some(flags & 7).filter(|&said| said > 0);
            let seconds = Duration::from_secs(float8(interval).into());
            query.interval = Some(seconds).filter(|said| !said.is_zero());
        }
        Ok(Self::Query(query))
    }
}

fn old_report(protocol: GroupProtocol, message: &[u8], at: usize) -> Result<GroupMessage<'_>, GroupError> {
    let group = message.get(at..).and_then(|bytes| protocol.address(bytes)).ok_or(GroupError::Truncated)?;
    if group.is_multicast() { Ok(GroupMessage::OldReport(group)) } else { Err(GroupError::Group) }
}

/// RFC 3376 §4.1.1: a small floating-point number above 127.
fn float8(code: u8) -> u16 {
    match code {
        0..128 => code.into(),
        _ => (u16::from(code & 15) | 16) << ((code >> 4 & 7) + 3),
    }
}

/// RFC 3810 §5.1.3.
fn float16(code: u16) -> u32 {
    match code {
        0..0x8000 => code.into(),
        _ => (u32::from(code & 0xfff) | 0x1000) << ((code >> 12 & 7) + 3),
    }
}

/// What a report says about one group (RFC 3376 §4.2.12, RFC 3810 §5.2.12).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RecordKind {
    /// These sources are wanted.
    IsInclude = 1,
    /// All but these are wanted.
    IsExclude = 2,
    /// From now on these are wanted.
    ToInclude = 3,
    /// From now on all but these are wanted.
    ToExclude = 4,
    /// These are wanted too.
    Allow = 5,
    /// These are not wanted any more.
    Block = 6,
}

/// One group in a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupRecord<'a> {
    /// What is said.
    pub kind: RecordKind,
    /// About which group.
    pub group: IpAddr,
    /// And which sources.
    pub sources: &'a [IpAddr],
}

/// Bytes of a report's fixed part.
pub const REPORT_HEADER_LEN: usize = 8;

impl GroupRecord<'_> {
    /// Bytes that the record takes.
    pub const fn emitted_len(&self) -> usize {
        let address = if self.group.is_ipv4() { 4 } else { 16 };
        4 + address * (1 + self.sources.len())
    }

    fn emit(&self, buffer: &mut [u8]) -> usize {
        buffer[..4].copy_from_slice(&[self.kind as u8, 0, 0, 0]);
        buffer[2..4].copy_from_slice(&(self.sources.len() as u16).to_be_bytes());
        let mut at = 4;
        for addr in core::iter::once(&self.group).chain(self.sources) {
            at += emit_address(*addr, &mut buffer[at..]);
        }
        at
    }
}

/// Writes an IGMPv3 or MLDv2 report with a checksum field of zero to the front of `buffer`.
pub fn emit_report(protocol: GroupProtocol, records: &[GroupRecord<'_>], buffer: &mut [u8]) {
    let kind = if protocol == GroupProtocol::Igmp { 0x22 } else { 143 };
    buffer[..REPORT_HEADER_LEN].copy_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
    buffer[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
    let mut at = REPORT_HEADER_LEN;
    for record in records {
        at += record.emit(&mut buffer[at..]);
    }
}

/// What a host of an old version says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OldKind {
    /// IGMPv1's report.
    ReportV1,
    /// IGMPv2's or MLDv1's report.
    Report,
    /// IGMPv2's leave or MLDv1's done.
    Leave,
}

/// Bytes that [`emit_old`] writes.
pub const fn old_len(protocol: GroupProtocol) -> usize {
    protocol.query_len()
}

/// Writes a message of an old version with a checksum field of zero to the front of `buffer`.
pub fn emit_old(kind: OldKind, group: IpAddr, buffer: &mut [u8]) {
    let protocol = if group.is_ipv4() { GroupProtocol::Igmp } else { GroupProtocol::Mld };
    let message = &mut buffer[..protocol.query_len()];
    message.fill(0);
    message[0] = match (protocol, kind) {
        (GroupProtocol::Igmp, OldKind::ReportV1) => 0x12,
        (GroupProtocol::Igmp, OldKind::Report) => 0x16,
        (GroupProtocol::Igmp, OldKind::Leave) => 0x17,
        (GroupProtocol::Mld, OldKind::Leave) => 132,
        (GroupProtocol::Mld, _) => 131,
    };
    let at = message.len() - protocol.address_len();
    emit_address(group, &mut message[at..]);
}

fn emit_address(addr: IpAddr, buffer: &mut [u8]) -> usize {
    match addr {
        IpAddr::V4(v4) => {
            buffer[..4].copy_from_slice(&v4.octets());
            4
        }
        IpAddr::V6(v6) => {
            buffer[..16].copy_from_slice(&v6.octets());
            16
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn igmp(bytes: &[u8]) -> Result<GroupMessage<'_>, GroupError> {
        GroupMessage::parse_igmp(bytes)
    }

    fn query(message: GroupMessage<'_>) -> GroupQuery<'_> {
        match message {
            GroupMessage::Query(query) => query,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn queries_of_every_version() {
        let one = query(igmp(&[0x11, 0, 0, 0, 0, 0, 0, 0]).unwrap());
        assert_eq!((one.version, one.max_response.as_secs(), one.group), (GroupVersion::One, 10, None));
        let two = query(igmp(&[0x11, 20, 0, 0, 239, 1, 2, 3]).unwrap());
        assert_eq!((two.version, two.max_response.as_millis()), (GroupVersion::Two, 2000));
        assert_eq!(two.group, Some(IpAddr::from([239, 1, 2, 3])));
        let bytes = [0x11, 0x8f, 0, 0, 239, 1, 2, 3, 0x02, 125, 0, 1, 192, 0, 2, 1];
        let three = query(igmp(&bytes).unwrap());
        assert_eq!((three.version, three.max_response.as_millis()), (GroupVersion::Three, 24_800));
        assert_eq!((three.robustness, three.interval), (Some(2), Some(Duration::from_secs(125))));
        assert_eq!(three.sources().collect::<Vec<_>>(), [IpAddr::from([192, 0, 2, 1])]);
        let mut mld = vec![130, 0, 0, 0, 0x03, 0xe8, 0, 0];
        mld.extend([0; 16]);
        let two = query(GroupMessage::parse_mld(&mld).unwrap());
        assert_eq!((two.version, two.max_response.as_millis(), two.group), (GroupVersion::Two, 1000, None));
        mld[4] = 0x83;
        mld.extend([0, 0x80, 0, 1]);
        mld.extend([0xfd; 16]);
        let three = query(GroupMessage::parse_mld(&mld).unwrap());
        assert_eq!((three.version, three.max_response.as_millis()), (GroupVersion::Three, 40_768));
        assert_eq!((three.robustness, three.interval), (None, Some(Duration::from_secs(128))));
        assert_eq!(three.sources().len(), 1);
    }

    #[test]
    fn v10_counts_that_lie_and_groups_that_are_none() {
        for (bytes, error) in [
            (&[0x11, 0, 0][..], GroupError::Truncated),
            (&[0x11, 0, 0, 0, 0, 0, 0, 0, 0], GroupError::Truncated),
            (&[0x11, 0, 0, 0, 10, 0, 0, 1], GroupError::Group),
            (&[0x16, 0, 0, 0, 10, 0, 0, 1], GroupError::Group),
            (&[0x13, 0, 0, 0, 0, 0, 0, 0], GroupError::Kind),
            (&[0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], GroupError::Sources),
            (&[0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1, 2, 3, 4], GroupError::Sources),
        ] {
            assert_eq!(igmp(bytes), Err(error), "{bytes:?}");
        }
        let mut mld = vec![130, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(GroupMessage::parse_mld(&mld), Err(GroupError::Truncated));
        mld.extend([0; 18]);
        assert_eq!(GroupMessage::parse_mld(&mld), Err(GroupError::Truncated));
        mld.extend([0xff, 0xff]);
        assert_eq!(GroupMessage::parse_mld(&mld), Err(GroupError::Sources));
    }

    #[test]
    fn reports_as_the_standards_draw_them() {
        let sources = [IpAddr::from([192, 0, 2, 1])];
        let group = IpAddr::from([239, 1, 2, 3]);
        let records = [
            GroupRecord { kind: RecordKind::ToExclude, group, sources: &[] },
            GroupRecord { kind: RecordKind::Allow, group, sources: &sources },
        ];
        let len = REPORT_HEADER_LEN + records.iter().map(GroupRecord::emitted_len).sum::<usize>();
        let mut bytes = vec![0xee; len];
        emit_report(GroupProtocol::Igmp, &records, &mut bytes);
        let expected = [
            &[0x22, 0, 0, 0, 0, 0, 0, 2][..],
            &[4, 0, 0, 0, 239, 1, 2, 3],
            &[5, 0, 0, 1, 239, 1, 2, 3, 192, 0, 2, 1],
        ]
        .concat();
        assert_eq!(bytes, expected);
        let mut old = vec![0xee; old_len(GroupProtocol::Igmp)];
        emit_old(OldKind::Leave, group, &mut old);
        assert_eq!(old, [0x17, 0, 0, 0, 239, 1, 2, 3]);
        let mut old = vec![0xee; old_len(GroupProtocol::Mld)];
        emit_old(OldKind::Report, "ff02::9".parse().unwrap(), &mut old);
        assert_eq!((old.len(), old[0], old[8], old[23]), (24, 131, 0xff, 9));
        assert_eq!(igmp(&expected), Ok(GroupMessage::ForRouters));
    }
}
