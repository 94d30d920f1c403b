//! The status words of the Solaris management libraries, with the HTTP status of each.
//!
//! The texts are interface: scripts match them. The ones with an initial capital are those of the IP
//! administration library, the others those of the data-link library.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $http:literal;)*) => {
        /// Why a request failed.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Status { $($(#[$doc])* $name),* }

        impl Status {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The text that the commands print.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// The HTTP status that carries it.
            pub const fn http(self) -> u16 {
                match self { $(Self::$name => $http),* }
            }
        }
    };
}

statuses! {
    /// An argument is malformed.
    BadArg = "invalid argument", 400;
    /// The operation failed for a reason that has no word.
    Failed = "operation failed", 500;
    /// Firelane cannot do it.
    NotSupported = "operation not supported", 501;
    /// There is no such object.
    NotFound = "object not found", 404;
    /// A value is not one of those allowed.
    BadValue = "invalid value", 400;
    /// A property has one value, and more were given.
    BadCount = "invalid number of values", 400;
    /// No memory.
    NoMemory = "insufficient memory", 507;
    /// There is such an object.
    Exists = "object already exists", 409;
    /// The link does not exist or is of the wrong class.
    LinkInvalid = "invalid link", 400;
    /// The property cannot be set.
    ReadOnly = "read-only property", 400;
    /// The caller may not.
    Denied = "permission denied", 403;
    /// The system refused.
    Io = "I/O error", 500;
    /// The configuration is another than the one that a change is of.
    Overtaken = "configuration has changed", 409;
    /// The change cannot be kept over a restart.
    TemporaryOnly = "change cannot be persistent", 409;
    /// Nothing answered in time.
    TimedOut = "operation timed out", 504;
    /// The address is not one that a link can have.
    MacInvalid = "invalid MAC address value", 400;
    /// The address has another number of bytes than a link's.
    MacLengthInvalid = "invalid MAC address length", 400;
    /// The prefix of a chosen address is not one that a station's can have.
    MacPrefixInvalid = "Invalid MAC address prefix value", 400;
    /// Or it has another number of bytes.
    MacPrefixLengthInvalid = "Invalid MAC address prefix length", 400;
    /// The link is in use.
    LinkBusy = "link busy", 409;
    /// The VLAN identifier is out of range.
    VidInvalid = "invalid VLAN identifier", 400;
    /// Not now.
    TryAgain = "try again later", 503;
    /// Another link has the address.
    MacInUse = "MAC address is already in use", 409;
    /// A virtual function of the link's device has the address.
    MacReserved = "MAC address reserved for use by underlying data-link", 409;
    /// The link's device has no such slot.
    FactorySlotInvalid = "invalid factory MAC address slot", 400;
    /// Somebody has the address of the slot.
    FactoryMacUsed = "factory MAC address slot already used", 409;
    /// And of all others.
    AllFactoryMacsUsed = "all factory MAC address slots are in use", 409;
    /// The link has no factory addresses to choose from.
    NoFactoryMac = "factory MAC address slots not supported", 501;
    /// The system has no such CPU.
    CpuUnknown = "non-existent processor ID", 400;
    /// The CPU is off line, or not for the daemon.
    CpuOffline = "processor not online", 409;
    /// The link's device has not the rings that were asked for.
    HwRings = "request hw rings failed", 409;
    /// There are too many.
    TooMany = "too many elements specified", 400;
    /// Another flow of the link matches the same.
    FlowIdentical = "a flow with identical attributes exists", 409;
    /// The link cannot go while it has flows.
    LinkHasFlows = "link still has flows", 409;
    /// The name is taken by a flow that returns at the next start.
    PersistentFlowExists = "persistent flow with the same name exists", 409;
    /// The IP address is malformed.
    BadIp = "invalid IP address", 400;
    /// The prefix length does not fit.
    BadPrefixLength = "invalid IP prefix length", 400;
    /// The transport is not one of those known.
    BadTransport = "invalid IP protocol", 400;
    /// The port is out of range.
    BadPort = "invalid port number", 400;
    /// The differentiated-services field is malformed.
    BadDsField = "invalid dsfield", 400;
    /// The mask behind it is.
    BadDsMask = "invalid dsfield mask", 400;
    /// The MTU is out of range.
    BadMtu = "MTU check failed, MTU outside of device's supported range", 400;
    /// There is no such property.
    BadProperty = "invalid property", 400;
    /// A port without a transport that has ports.
    PortNeedsTransport = "local or remote port requires transport", 400;
    /// What it rests on will be gone at the next start.
    TemporaryBelow = "can't create persistent object on top of temporary object", 409;
    /// The interface exists.
    IfExists = "Interface already exists", 409;
    /// The interface does not exist.
    NoIf = "Interface does not exist", 404;
    /// The interface has another user.
    IfInUse = "Interface already in use", 409;
    /// The link that the interface would be on does not exist.
    NoDatalink = "Datalink does not exist", 404;
    /// The address object exists.
    AddrObjExists = "Address object already exists", 409;
    /// The address object does not exist.
    NoAddrObj = "Object not found", 404;
    /// No type of tunnel is called so.
    IptunType = "invalid IP tunnel type", 400;
    /// A tunnel has a type.
    IptunTypeRequired = "IP tunnel type required", 400;
    /// No tunnel may end at the address here.
    BadIptunLocal = "invalid local IP tunnel address", 400;
    /// Or there.
    BadIptunRemote = "invalid remote IP tunnel address", 400;
    /// Another tunnel has the same ends.
    IptunInUse = "address already in use", 409;
    /// The address is taken.
    AddrInUse = "Address already in use", 409;
    /// The address is not one that an interface can have.
    BadAddr = "Invalid address", 400;
    /// The name is malformed.
    BadName = "Invalid name", 400;
    /// The object is only active, or what it rests on is.
    TemporaryObject = "Persistent operation on temporary object", 409;
    /// The object is kept, and not in force.
    DisabledObject = "Operation not supported on disabled object", 409;
    /// There is no such protocol property.
    PropUnknown = "Unknown property", 404;
    /// The value of a protocol property is malformed.
    InvalidArgument = "Invalid argument provided", 400;
    /// The value of a protocol property is outside its range.
    OutOfRange = "Value is outside the allowed range", 400;
    /// The property can only be read.
    PropReadOnly = "Permission denied", 403;
    /// Firelane cannot do it with addresses.
    IpNotSupported = "Operation not supported", 501;
    /// No server has given an address in time.
    DhcpTimedOut = "Operation timed out", 504;
    /// The daemon does not answer.
    NoDaemon = "could not reach firelaned", 503;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn texts_are_distinct_and_the_http_status_is_an_error() {
        let texts: HashSet<_> = Status::ALL.iter().map(|s| s.text()).collect();
        assert_eq!(texts.len(), Status::ALL.len());
        assert!(Status::ALL.iter().all(|s| (400..600).contains(&s.http())));
    }
}
