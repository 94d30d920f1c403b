//! An interface of the host that a link has, alone or beside the kernel: a NIC, or an end of a veth pair.

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

/// Whether the kernel keeps an interface as well: what is for no VNIC goes on to it, and of what is for groups it has its copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sharing {
    /// If it has an address on it when the link gets it.
    #[default]
    Auto,
    /// It does.
    Shared,
    /// Every frame is the link's.
    Alone,
}

impl Sharing {
    /// As the file says it.
    pub const fn said(self) -> Option<bool> {
        match self {
            Self::Auto => None,
            Self::Shared => Some(true),
            Self::Alone => Some(false),
        }
    }
}

impl From<Option<bool>> for Sharing {
    fn from(said: Option<bool>) -> Self {
        match said {
            None => Self::Auto,
            Some(true) => Self::Shared,
            Some(false) => Self::Alone,
        }
    }
}

/// An interface of the host. It exists already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nic {
    /// Its name.
    pub ifname: IfName,
    /// How its frames come.
    pub driver: NicDriver,
    /// Whether the kernel keeps it as well.
    pub sharing: Sharing,
}
