//! What an operator says of a netstack's interfaces and addresses while they are in use.
//!
//! Called by the daemon for `ipadm set-ifprop` and `set-addrprop`. Nothing here ends a connection.

use firelane_ip::IfRouting;
use firelane_lane::{Control, LinkConfig};
use firelane_units::{IpPrefix, LinkId, Mtu};

use crate::engine::Engine;
use crate::error::ChangeError;

impl Engine {
    /// Says how a VNIC's netstack treats packets that come or leave by it.
    ///
    /// # Errors
    /// The VNIC does not exist or has no netstack.
    pub fn set_interface(&self, vnic: LinkId, routing: IfRouting) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        let id = registry.netstack_of(vnic)?;
        self.0.tell_all(|_| Control::SetRouting(id, vnic, routing))?;
        registry.netstack_mut(id)?.routing.insert(vnic, routing);
        self.0.steer(&mut registry, id)
    }

    /// Who is on the link of a VNIC may be another than before, because it has its carrier again: its netstack, if it has one, asks everybody
    /// anew, and tells everybody where it is.
    ///
    /// # Errors
    /// The VNIC does not exist.
    pub fn rejoin(&self, vnic: LinkId) -> Result<(), ChangeError> {
        let registry = self.0.registry();
        match registry.netstack_of(vnic) {
            Ok(id) => self.0.tell_all(|_| Control::Rejoin(id, vnic)),
            Err(ChangeError::NoUser(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Says how large packets between a link's VNICs may be from here on. Netstacks mind it at once, and connections go on; devices have
    /// the packets that they were made for.
    ///
    /// # Errors
    /// The link does not exist.
    pub fn set_link_mtu(&self, link: LinkId, mtu: Mtu) -> Result<(), ChangeError> {
        let registry = self.0.registry();
        registry.links.get(&link).ok_or(ChangeError::NoLink(link))?;
        self.0.tell_all(|_| Control::SetMtu(LinkConfig { link, mtu }))
    }

    /// Gives an address of a VNIC's netstack another prefix length, and says whether nothing new shall begin with it.
    ///
    /// # Errors
    /// The VNIC does not exist or has no netstack.
    pub fn set_address(
        &self,
        vnic: LinkId,
        address: IpPrefix,
        is_deprecated: bool,
    ) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        let id = registry.netstack_of(vnic)?;
        self.0.tell_all(|_| Control::SetAddress(id, vnic, address, is_deprecated))?;
        let known = &mut registry.netstack_mut(id)?.addresses;
        let own = known.iter_mut().filter(|(link, it)| *link == vnic && it.addr() == address.addr());
        own.for_each(|(_, it)| *it = address);
        Ok(())
    }

    /// Takes an address from the netstack of a VNIC until it is added again: nobody is answered and nothing begins with it. Connections that have it
    /// send again until it is back ([`add_address`](Self::add_address)), or give up as if nobody answered them.
    ///
    /// # Errors
    /// The VNIC does not exist or has no netstack.
    pub fn suspend_address(&self, vnic: LinkId, address: IpPrefix) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        let id = registry.netstack_of(vnic)?;
        self.0.tell_all(|_| Control::SuspendAddress(id, vnic, address.addr()))?;
        registry.netstack_mut(id)?.addresses.retain(|it| *it != (vnic, address));
        Ok(())
    }

    /// Ends what has begun with an address that was taken by [`suspend_address`](Self::suspend_address).
    ///
    /// # Errors
    /// The VNIC does not exist or has no netstack.
    pub fn abort_address(&self, vnic: LinkId, address: IpPrefix) -> Result<(), ChangeError> {
        let id = self.0.registry().netstack_of(vnic)?;
        self.0.tell_all(|_| Control::AbortAddress(id, address.addr()))?;
        self.0.await_ends();
        Ok(())
    }
}
