//! What a netstack's own clients wait for, which its filter and its translation let through.
//!
//! Called by `services/dhcp`. Each lane knows it, because any of them may be the first to look at what arrives
//! (`path/lane/src/stacks/awaited.rs`).

use firelane_lane::Control;
use firelane_units::{Family, LinkId, NetstackId};

use crate::engine::Engine;
use crate::error::ChangeError;

impl Engine {
    /// Says that a DHCP client of a netstack waits on a link for the answer to the exchange with this number (`xid`), or for none: the
    /// answers of servers to it pass the netstack's filter and its translation, whatever their rules. There is one of a
    /// family on a link.
    ///
    /// # Errors
    /// The netstack does not exist.
    pub fn await_answer(
        &self,
        netstack: NetstackId,
        link: LinkId,
        family: Family,
        number: Option<u32>,
    ) -> Result<(), ChangeError> {
        self.0.registry().netstack_mut(netstack)?;
        self.0.tell_all(|_| Control::Await(netstack, link, family, number))
    }
}
