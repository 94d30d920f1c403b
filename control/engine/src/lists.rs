//! Lists of a netstack's rules that all its lanes share: one takes another's place whole. Making one, comparing it with the one before and ending that
//! take milliseconds where it is long, and are done here, in no lane.
//!
//! Called by `filter.rs` and `nat.rs`.

use std::sync::Arc;

use firelane_lane::Control;
use firelane_units::NetstackId;

use crate::engine::Inner;
use crate::error::ChangeError;
use crate::queue::Queue;
use crate::registry::Netstack;

/// A list of rules, and where a netstack has it.
pub(crate) trait List: Sized {
    /// Where it is.
    fn of(netstack: &mut Netstack) -> &mut Arc<Self>;

    /// Compares it with the list whose place it takes.
    fn compare(&mut self, before: &Arc<Self>);

    /// What lanes are told.
    fn control(self: Arc<Self>, netstack: NetstackId) -> Control<Queue>;
}

impl Inner {
    /// Puts a list in the place of the one that a netstack has.
    ///
    /// # Errors
    /// The netstack does not exist.
    pub(crate) fn replace_list<L: List>(&self, netstack: NetstackId, mut list: L) -> Result<(), ChangeError> {
        loop {
            let before = Arc::clone(L::of(self.registry().netstack_mut(netstack)?));
            // Of a long one this takes milliseconds, in which others go on.
            list.compare(&before);
            let mut registry = self.registry();
            let known = L::of(registry.netstack_mut(netstack)?);
            if !Arc::ptr_eq(known, &before) {
                continue;
            }
            let list = Arc::new(list);
            *known = Arc::clone(&list);
            // In the order in which they are known: what each was compared with is what lanes follow then.
            let told = self.tell_all(|_| Arc::clone(&list).control(netstack));
            drop(registry);
            // No lane follows it any more: it ends here and not in one of them.
            drop(before);
            return told;
        }
    }
}
