//! What is known of an interface: its number, driver, queues, and the far end of a veth.
//!
//! Called by `open.rs`; [`probe`] is for whoever wants to know beforehand what an interface would get.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::bpf;
use crate::error::{AfXdpError, Refused};
use crate::sys;

const ETHTOOL_GET_DRIVER: u32 = 0x3;
const ETHTOOL_GET_CHANNELS: u32 = 0x3c;
const ETHTOOL_GET_FLAGS: u32 = 0x25;
const ETHTOOL_SET_FLAGS: u32 = 0x26;
/// `ETH_FLAG_TXVLAN`: the device adds VLAN tags, so that they are not in the frame's bytes.
const FLAG_TX_VLAN: u32 = 1 << 7;
/// `ETH_FLAG_RXVLAN`: the device takes them out of the frames that it receives, and says them beside.
const FLAG_RX_VLAN: u32 = 1 << 8;
/// The words of an answer about the driver that name the bus behind it.
const BUS: core::ops::Range<usize> = 25..33;
/// Those of an answer about channels: how many receive, and how many do both.
const RECEIVING: usize = 5;
const COMBINED: usize = 8;

/// An interface of this namespace.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: u32,
    /// How many queues it receives with.
    pub(crate) queues: u32,
    /// There is no wire behind it.
    pub(crate) is_virtual: bool,
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from("/sys/class/net").join(name)
}

fn number(name: &str, file: &str) -> Option<u32> {
    fs::read_to_string(folder(name).join(file)).ok()?.trim().parse().ok()
}

/// A socket to ask by about interfaces of this namespace.
fn asker() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

/// What ethtool answers to a question about an interface.
fn ask(name: &str, question: u32) -> Result<[u32; sys::ETHTOOL_WORDS], Errno> {
    let mut words = [0; sys::ETHTOOL_WORDS];
    words[0] = question;
    sys::ethtool(asker()?.as_fd(), name, &mut words)?;
    Ok(words)
}

/// Whether a driver has named the bus behind an interface: a bridge says `N/A`, TAPs say what they are, others nothing.
fn names_a_bus(words: &[u32]) -> bool {
    let name: Vec<u8> =
        words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|&byte| byte != 0).collect();
    !matches!(name.as_slice(), b"" | b"N/A" | b"tap" | b"tun")
}

/// Takes flags from an interface, if it has them.
fn take_flags(name: &str, flags: u32) -> Result<(), Errno> {
    let mut words = ask(name, ETHTOOL_GET_FLAGS)?;
    if words[1] & flags == 0 {
        return Ok(());
    }
    (words[0], words[1]) = (ETHTOOL_SET_FLAGS, words[1] & !flags);
    sys::ethtool(asker()?.as_fd(), name, &mut words)
}

/// Whether /sys shows the interface: its folders are those of the namespace in which it was mounted, where another may have the name.
fn is_shown(name: &str, index: u32) -> bool {
    number(name, "ifindex") == Some(index)
}

/// How many queues an interface of this name receives by, if that is to be known.
pub fn receive_queues(name: &str) -> Option<u32> {
    queues_of(name, rustix::net::netdevice::name_to_index(asker().ok()?, name).ok()?)
}

fn queues_of(name: &str, index: u32) -> Option<u32> {
    if is_shown(name, index) {
        let entries = fs::read_dir(folder(name).join("queues")).ok()?.flatten();
        let queues = entries.filter(|it| it.file_name().to_string_lossy().starts_with("rx-")).count();
        return Some(queues.max(1) as u32);
    }
    let channels = ask(name, ETHTOOL_GET_CHANNELS).ok()?;
    Some((channels[RECEIVING] + channels[COMBINED]).max(1))
}

impl Interface {
    pub(crate) fn find(name: &str) -> Result<Self, AfXdpError> {
        let absent = || AfXdpError::NoInterface(name.to_owned());
        let probe = asker().map_err(|_| absent())?;
        let index = rustix::net::netdevice::name_to_index(&probe, name).map_err(|_| absent())?;
        // Of whom nothing is known, there is one queue.
        let queues = queues_of(name, index).unwrap_or(1);
        let has_bus = if is_shown(name, index) {
            folder(name).join("device").exists()
        } else {
            ask(name, ETHTOOL_GET_DRIVER).is_ok_and(|words| names_a_bus(&words[BUS]))
        };
        Ok(Self { name: name.to_owned(), index, queues, is_virtual: !has_bus })
    }

    /// The far end of a veth, if it is in this namespace.
    fn far_end(&self) -> Option<String> {
        let far = number(&self.name, "iflink")
            .filter(|&far| far != self.index && is_shown(&self.name, self.index))?;
        let names = fs::read_dir("/sys/class/net").ok()?.flatten();
        let mut names = names.filter_map(|entry| entry.file_name().into_string().ok());
        names.find(|name| number(name, "ifindex") == Some(far) && number(name, "iflink") == Some(self.index))
    }

    /// Sees to it that tags stand in the frames: a redirected frame loses what its sender left to the device, and what the device has
    /// taken out. Answers what somebody else has to do.
    pub(crate) fn keep_tags(&self) -> Option<String> {
        let lost = |what: String, error| format!("VLAN tags get lost: ethtool -K {what} off: {error}");
        if let Err(error) = take_flags(&self.name, FLAG_RX_VLAN)
            && !self.is_virtual
        {
            return Some(lost(format!("{} rxvlan", self.name), error));
        }
        if !self.is_virtual {
            return None;
        }
        let Some(far) = self.far_end() else {
            return Some(format!(
                "VLAN tags get lost while the far end of {} leaves them to the device: ethtool -K FAR txvlan off",
                self.name
            ));
        };
        take_flags(&far, FLAG_TX_VLAN).err().map(|error| lost(format!("{far} txvlan"), error))
    }
}

/// What an interface would get.
#[derive(Debug)]
pub struct Probe {
    /// Queues that it receives with.
    pub queues: u32,
    /// Whether sockets and programs can be made here at all; nothing was attached to find out.
    pub afxdp: Result<(), Refused>,
}

/// Looks at an interface without touching its traffic.
///
/// # Errors
/// There is no such interface.
pub fn probe(name: &str) -> Result<Probe, AfXdpError> {
    let interface = Interface::find(name)?;
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None);
    let afxdp = socket
        .map_err(|error| Refused::of("AF_XDP socket", error))
        .and_then(|_| bpf::socket_map(interface.queues))
        .and_then(|map| bpf::load(&map, None, true))
        .map(drop);
    Ok(Probe { queues: interface.queues, afxdp })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_bus_is_a_device() {
        let is_device = |name: &str| {
            let mut words = [0; 8];
            for (word, bytes) in words.iter_mut().zip(name.as_bytes().chunks(4)) {
                let mut four = [0; 4];
                four[..bytes.len()].copy_from_slice(bytes);
                *word = u32::from_ne_bytes(four);
            }
            names_a_bus(&words)
        };
        assert!(["0000:00:03.0", "virtio0", "usb-0000:00:14.0-1"].into_iter().all(is_device));
        assert!(!["", "N/A", "tap", "tun"].into_iter().any(is_device));
    }
}
