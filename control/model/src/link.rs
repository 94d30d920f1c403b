//! A link: the lower side of VNICs that leads out of Firelane.
//!
//! On a host it is a NIC, a TAP device that the kernel bridges or routes, or a memif to another process; in tests and
//! embedded stacks it is a memory wire. A virtual switch without a way out is an [`crate::Etherstub`].

use firelane_units::{BitRate, Mtu, Priority};
use serde::{Deserialize, Serialize};

use crate::fusing::{Fusing, is_same_zone};
use crate::polling::{self, Polling};
use crate::value;
use crate::{Cpus, IfName, LinkRings, Memif, Nic, NicDriver, Rings};

/// What a link is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkKind {
    /// A TAP device of the host, by its interface name.
    Tap(IfName),
    /// An interface of the host, which Firelane has alone or beside the kernel.
    Nic(Nic),
    /// Memory shared with another process.
    Memif(Memif),
    /// A wire inside the process; the other end belongs to whoever embeds the stack.
    Memory,
}

/// A link and its properties.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "LinkTable", into = "LinkTable")]
pub struct Link {
    /// What it is made of.
    pub kind: LinkKind,
    /// The largest packet it carries.
    pub mtu: Mtu,
    /// The limit of everything that passes it, in each direction.
    pub maxbw: Option<BitRate>,
    /// Its place when a lane cannot serve everything.
    pub priority: Priority,
    /// Whether its connections may be fused.
    pub fusion: Fusing,
    /// When its device is read.
    pub polling: Polling,
    /// The CPUs of lanes of its own, which serve its device; without any, all lanes do.
    pub cpus: Cpus,
    /// By how many rings of its device it receives and sends.
    pub rings: LinkRings,
}

impl Link {
    /// A link of `kind` with the default properties.
    pub fn new(kind: LinkKind) -> Self {
        Self {
            kind,
            mtu: Mtu::ETHERNET,
            maxbw: None,
            priority: Priority::High,
            fusion: Fusing::default(),
            polling: Polling::default(),
            cpus: Cpus::NONE,
            rings: LinkRings::UNSAID,
        }
    }
}

/// What a link is made of.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
enum KindWord {
    /// A TAP device of the host.
    Tap,
    /// An interface of the host.
    Nic,
    /// Memory shared with another process.
    Memif,
    /// A wire inside the process.
    Memory,
}

/// A link as it stands in the file.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
struct LinkTable {
    /// What it is made of.
    kind: KindWord,
    /// The interface's name, of a TAP device or a NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ifname: Option<IfName>,
    /// How a NIC's frames come; `auto` unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    driver: Option<NicDriver>,
    /// Whether the kernel keeps a NIC as well; if it has an address on it, unless said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shared: Option<bool>,
    /// The other process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memif: Option<Memif>,
    /// The largest packet it carries.
    #[serde(default = "ethernet", with = "value", skip_serializing_if = "is_ethernet")]
    #[cfg_attr(feature = "schema", schema(value_type = u16, default = 1500))]
    mtu: Mtu,
    /// Its limit, in each direction.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "50M"))]
    maxbw: Option<BitRate>,
    /// Its place when a lane cannot serve everything.
    #[serde(default = "high", with = "value", skip_serializing_if = "is_high")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "high"))]
    priority: Priority,
    /// Whether its connections may be fused.
    #[serde(default, skip_serializing_if = "is_same_zone")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "same-zone"))]
    fusion: Fusing,
    /// When its device is read.
    #[serde(default, skip_serializing_if = "polling::is_auto")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "auto"))]
    polling: Polling,
    /// The CPUs of lanes of its own, which serve its device; without any, all lanes do.
    #[serde(default, skip_serializing_if = "Cpus::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "0,2-3"))]
    cpus: Cpus,
    /// By how many rings of its device it receives: `sw`, `hw` or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "2"))]
    rxrings: Option<Rings>,
    /// By how many it sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "hw"))]
    txrings: Option<Rings>,
}

fn ethernet() -> Mtu {
    Mtu::ETHERNET
}

fn is_ethernet(mtu: &Mtu) -> bool {
    *mtu == Mtu::ETHERNET
}

pub(crate) fn high() -> Priority {
    Priority::High
}

pub(crate) fn is_high(priority: &Priority) -> bool {
    *priority == Priority::High
}

impl TryFrom<LinkTable> for Link {
    type Error = &'static str;

    fn try_from(table: LinkTable) -> Result<Self, Self::Error> {
        let LinkTable {
            kind,
            ifname,
            driver,
            shared,
            memif,
            mtu,
            maxbw,
            priority,
            fusion,
            polling,
            cpus,
            ..
        } = table;
        let rings = LinkRings { rx: table.rxrings, tx: table.txrings };
        if driver.is_some() && !matches!(kind, KindWord::Nic) {
            return Err("driver: only kind = \"nic\" has a driver");
        }
        if shared.is_some() && !matches!(kind, KindWord::Nic) {
            return Err("shared: only an interface of kind = \"nic\" may be the kernel's as well");
        }
        if (shared, driver) == (Some(false), Some(NicDriver::Packet)) {
            return Err(
                "shared: a packet socket gets copies; with driver = \"packet\" the kernel keeps every frame",
            );
        }
        let kind = match (kind, ifname, memif) {
            (KindWord::Tap, Some(ifname), None) => LinkKind::Tap(ifname),
            (KindWord::Nic, Some(ifname), None) => {
                LinkKind::Nic(Nic { ifname, driver: driver.unwrap_or_default(), sharing: shared.into() })
            }
            (KindWord::Tap, None, None) => {
                return Err("ifname: missing; kind = \"tap\" needs the interface's name");
            }
            (KindWord::Nic, None, None) => {
                return Err("ifname: missing; kind = \"nic\" needs the interface's name");
            }
            (KindWord::Memif, None, Some(memif)) => LinkKind::Memif(memif),
            (KindWord::Memif, None, None) => {
                return Err("memif: missing; kind = \"memif\" needs a table memif");
            }
            (KindWord::Memory, None, None) => LinkKind::Memory,
            (KindWord::Memory | KindWord::Memif, Some(_), _) => {
                return Err("ifname: only kind = \"tap\" and kind = \"nic\" have an interface name");
            }
            (KindWord::Memory | KindWord::Tap | KindWord::Nic, _, Some(_)) => {
                return Err("memif: only kind = \"memif\" has another process");
            }
        };
        if !cpus.is_empty() && matches!(kind, LinkKind::Memory) {
            return Err("cpus: kind = \"memory\" has no device that lanes of its own could serve");
        }
        if rings.of_device().is_some() && matches!(kind, LinkKind::Memory) {
            return Err("rxrings and txrings: kind = \"memory\" has no device with rings");
        }
        Ok(Self { kind, mtu, maxbw, priority, fusion, polling, cpus, rings })
    }
}

impl From<Link> for LinkTable {
    fn from(link: Link) -> Self {
        let Link { kind, mtu, maxbw, priority, fusion, polling, cpus, rings } = link;
        let (mut driver, mut shared) = (None, None);
        let (kind, ifname, memif) = match kind {
            LinkKind::Tap(ifname) => (KindWord::Tap, Some(ifname), None),
            LinkKind::Nic(nic) => {
                driver = Some(nic.driver).filter(|&it| it != NicDriver::Auto);
                shared = nic.sharing.said();
                (KindWord::Nic, Some(nic.ifname), None)
            }
            LinkKind::Memif(memif) => (KindWord::Memif, None, Some(memif)),
            LinkKind::Memory => (KindWord::Memory, None, None),
        };
        let LinkRings { rx: rxrings, tx: txrings } = rings;
        Self {
            kind,
            ifname,
            driver,
            shared,
            memif,
            mtu,
            maxbw,
            priority,
            fusion,
            polling,
            cpus,
            rxrings,
            txrings,
        }
    }
}

#[cfg(feature = "schema")]
mod schema {
    use utoipa::openapi::{RefOr, schema::Schema};

    impl utoipa::PartialSchema for super::Link {
        fn schema() -> RefOr<Schema> {
            super::LinkTable::schema()
        }
    }

    impl utoipa::ToSchema for super::Link {
        fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
            super::LinkTable::schemas(schemas);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Sharing};

    fn read(lines: &str) -> Result<LinkKind, String> {
        let model = Model::from_toml("f.toml", &format!("[link.net0]\n{lines}"));
        model.map(|it| it.links["net0"].kind.clone()).map_err(|faults| faults[0].to_string())
    }

    #[test]
    fn who_else_keeps_an_interface_is_said_of_interfaces_alone_and_only_where_it_can_be() {
        for (lines, wanted) in [
            ("", Sharing::Auto),
            ("shared = true", Sharing::Shared),
            ("shared = false", Sharing::Alone),
            ("shared = true\ndriver = 'packet'", Sharing::Shared),
            ("shared = false\ndriver = 'afxdp'", Sharing::Alone),
        ] {
            let kind = read(&format!("kind = 'nic'\nifname = 'eth0'\n{lines}"));
            assert!(matches!(&kind, Ok(LinkKind::Nic(nic)) if nic.sharing == wanted), "{lines}: {kind:?}");
        }
        let error = read("kind = 'tap'\nifname = 'tap0'\nshared = true").unwrap_err();
        assert!(error.contains("only an interface of kind = \"nic\""), "{error}");
        let error = read("kind = 'nic'\nifname = 'eth0'\ndriver = 'packet'\nshared = false").unwrap_err();
        assert!(error.contains("the kernel keeps every frame"), "{error}");
    }
}
