//! The few questions to the kernel's interfaces that go through rtnetlink: up, address, move, make, delete.
//!
//! Called by `netns.rs`, `veth.rs` and `nic.rs` in threads that stand in the right network namespace. Each function opens a
//! socket of its own, because a socket belongs to the namespace of the thread that made it.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use firelane_units::{IpPrefix, MacAddr, Mtu};
use rtnetlink::packet_route::address::AddressMessage;
use rtnetlink::{AddressMessageBuilder, Handle, LinkUnspec, LinkVeth};

/// Whether there is an interface `name`.
pub(crate) fn exists(name: &str) -> io::Result<bool> {
    match index_of(name) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Switches an interface on.
pub(crate) fn set_up(name: &str) -> io::Result<()> {
    let index = index_of(name)?;
    request(async |it| it.link().set(LinkUnspec::new_with_index(index).up().build()).execute().await)
}

/// Gives an interface, which is down, another name, its Ethernet address and its MTU.
pub(crate) fn shape(old_name: &str, name: &str, mac: MacAddr, mtu: Mtu) -> io::Result<()> {
    let index = index_of(old_name)?;
    let link = LinkUnspec::new_with_index(index).name(name).address(mac.0.to_vec()).mtu(mtu.bytes().into());
    request(async |it| it.link().set(link.build()).execute().await)
}

/// Sets an interface's MTU.
pub(crate) fn set_mtu(name: &str, mtu: Mtu) -> io::Result<()> {
    let link = LinkUnspec::new_with_index(index_of(name)?).mtu(mtu.bytes().into());
    request(async |it| it.link().set(link.build()).execute().await)
}

/// Gives an interface an address.
pub(crate) fn add_address(name: &str, address: IpPrefix) -> io::Result<()> {
    let index = index_of(name)?;
    request(async |it| it.address().add(index, address.addr(), address.prefix_len()).execute().await)
}

/// Takes an address from an interface.
pub(crate) fn remove_address(name: &str, address: IpPrefix) -> io::Result<()> {
    let message = address_message(index_of(name)?, address);
    request(async |it| it.address().del(message).execute().await)
}

/// Makes a pair of interfaces that are each other's wire.
pub(crate) fn add_veth(near: &str, far: &str) -> io::Result<()> {
    request(async |it| it.link().add(LinkVeth::new(near, far).build()).execute().await)
}

/// Moves an interface into a network namespace.
pub(crate) fn move_to(name: &str, namespace: BorrowedFd<'_>) -> io::Result<()> {
    let link = LinkUnspec::new_with_index(index_of(name)?).setns_by_fd(namespace.as_raw_fd());
    request(async |it| it.link().set(link.build()).execute().await)
}

/// Deletes an interface. One that is gone already is no error.
pub(crate) fn delete(name: &str) -> io::Result<()> {
    if !exists(name)? {
        return Ok(());
    }
    let index = index_of(name)?;
    request(async |it| it.link().del(index).execute().await)
}

/// The number of the interface `name`.
pub(crate) fn index_of(name: &str) -> io::Result<u32> {
    let probe = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    Ok(rustix::net::netdevice::name_to_index(&probe, name)?)
}

fn address_message(index: u32, address: IpPrefix) -> AddressMessage {
    let length = address.prefix_len();
    match address.addr() {
        IpAddr::V4(addr) => {
            AddressMessageBuilder::<std::net::Ipv4Addr>::new().index(index).address(addr, length).build()
        }
        IpAddr::V6(addr) => {
            AddressMessageBuilder::<std::net::Ipv6Addr>::new().index(index).address(addr, length).build()
        }
    }
}

/// Sends one request and waits for its answer.
fn request<F>(work: impl FnOnce(Handle) -> F) -> io::Result<()>
where
    F: Future<Output = Result<(), rtnetlink::Error>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let connection = tokio::spawn(connection);
        let answer = work(handle).await;
        connection.abort();
        answer.map_err(|error| match error {
            rtnetlink::Error::NetlinkError(message) => message.to_io(),
            other => io::Error::other(other.to_string()),
        })
    })
}
