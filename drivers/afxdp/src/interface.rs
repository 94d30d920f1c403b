//! What is known of an interface: its number, driver, queues, and the far end of a veth.
//!
//! Called by `open.rs`; [`probe`] is for whoever wants to know beforehand what an interface would get.

use std::fs;
use std::path::PathBuf;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::bpf;
use crate::error::{AfXdpError, Refused};
use crate::sys;

const ETHTOOL_GET_FLAGS: u32 = 0x25;
const ETHTOOL_SET_FLAGS: u32 = 0x26;
/// `ETH_FLAG_TXVLAN`: the device adds VLAN tags, so that they are not in the frame's bytes.
const FLAG_TX_VLAN: u32 = 1 << 7;

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

/// How many queues an interface of this name receives by, where /sys shows one: its folders are those of the namespace in which it
/// was mounted.
pub fn receive_queues(name: &str) -> Option<u32> {
    let entries = fs::read_dir(folder(name).join("queues")).ok()?.flatten();
    let queues = entries.filter(|it| it.file_name().to_string_lossy().starts_with("rx-")).count();
    Some(queues.max(1) as u32)
}

impl Interface {
    pub(crate) fn find(name: &str) -> Result<Self, AfXdpError> {
        let absent = || AfXdpError::NoInterface(name.to_owned());
        let probe = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let probe = probe.map_err(|_| absent())?;
        let index = rustix::net::netdevice::name_to_index(&probe, name).map_err(|_| absent())?;
        // Without the folders there is one queue.
        let queues = receive_queues(name).unwrap_or(1);
        let is_virtual = !folder(name).join("device").exists();
        Ok(Self { name: name.to_owned(), index, queues, is_virtual })
    }

    /// The far end of a veth, if it is in this namespace.
    fn far_end(&self) -> Option<String> {
        let far = number(&self.name, "iflink").filter(|&far| far != self.index)?;
        let names = fs::read_dir("/sys/class/net").ok()?.flatten();
        let mut names = names.filter_map(|entry| entry.file_name().into_string().ok());
        names.find(|name| number(name, "ifindex") == Some(far) && number(name, "iflink") == Some(self.index))
    }

    /// Sees to it that tags stand in the frames: a redirected frame loses what its sender left to the device.
    /// Answers what somebody else has to do.
    pub(crate) fn keep_tags(&self) -> Option<String> {
        if !self.is_virtual {
            return None;
        }
        let Some(far) = self.far_end() else {
            return Some(format!(
                "VLAN tags get lost while the far end of {} leaves them to the device: ethtool -K FAR txvlan off",
                self.name
            ));
        };
        let change = || {
            let probe = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
            use std::os::fd::AsFd;
            let mut words = [0; sys::ETHTOOL_WORDS];
            words[0] = ETHTOOL_GET_FLAGS;
            sys::ethtool(probe.as_fd(), &far, &mut words)?;
            (words[0], words[1]) = (ETHTOOL_SET_FLAGS, words[1] & !FLAG_TX_VLAN);
            sys::ethtool(probe.as_fd(), &far, &mut words)
        };
        let error = change().err()?;
        Some(format!("VLAN tags get lost: ethtool -K {far} txvlan off: {error}"))
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
