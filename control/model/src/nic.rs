//! An interface of the host that a link has for itself: a NIC, or an end of a veth pair.

use serde::{Deserialize, Serialize};

use crate::IfName;

/// How frames are fetched from an interface and given to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum NicDriver {
    /// AF_XDP in the best way that is offered, else a packet socket.
    #[default]
    Auto,
    /// AF_XDP, or not at all.
    Afxdp,
    /// A packet socket: slower, on any interface.
    Packet,
}

impl NicDriver {
    /// The word in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Afxdp => "afxdp",
            Self::Packet => "packet",
        }
    }
}

/// An interface of the host. It exists already, and the kernel's own stack should have no address on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nic {
    /// Its name.
    pub ifname: IfName,
    /// How its frames come.
    pub driver: NicDriver,
}
