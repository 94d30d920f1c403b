//! A link gets the name of one whose NIC has gone: in the original as here it comes into all that was said of that name.
//!
//! Called by `answers.rs` for `dladm rename-link`. What is above the name stays and goes on by the NIC of the link that was renamed, which
//! is no link of its own any more.

use firelane_api::{ApiError, Status, Store};
use firelane_model::{LinkKind, LinkName, Model};
use firelane_plan::Action;

use super::Inner;

impl Inner {
    /// Whether `to` is a link whose NIC has gone, and `from` one whose NIC is there.
    pub(super) fn succeeds(&self, from: &LinkName, to: &LinkName) -> bool {
        let is_nic = |name: &LinkName| {
            let link = self.store.active.links.get(name);
            link.is_some_and(|link| matches!(link.kind, LinkKind::Nic(_)))
        };
        let has = |name: &LinkName| self.works.has_device(name);
        from != to && is_nic(from) && is_nic(to) && has(from) && !has(to)
    }

    /// Gives the NIC of `from`, with which `from` ends, to `to`.
    pub(super) fn succeed(&mut self, from: &LinkName, to: &LinkName) -> Result<(), ApiError> {
        let mut next: Store = self.store.clone();
        for model in [&mut next.active, &mut next.persistent] {
            hand_on(model, from, to)?;
        }
        if let Some(fault) = next.active.validate().first() {
            return Err(ApiError::new(Status::OutOfRange, "link", to, fault.to_string()));
        }
        let state = self.state.clone();
        let prepared = state.prepare(&next.persistent)?;
        let former = self.store.active.links.get(from).cloned().ok_or(Status::NotFound)?;
        let ends = self.before_parting(&Action::DeleteLink(from.clone()));
        self.works.delete_lower(from)?;
        if let Some(ended) = ends {
            self.part(ended);
        }
        let back = |inner: &mut Self| {
            if let Err(error) = inner.works.create_link(from, &former, &inner.store.active) {
                tracing::error!("link {from}: {error}");
            }
        };
        self.works.reattach(to, &next.active).inspect_err(|_| back(self))?;
        let kept = prepared.commit().map_err(|error| state.refused(&error));
        self.unkept = kept.as_ref().err().map(ToString::to_string);
        tracing::info!("rename link {from} to {to}, whose interface was gone");
        self.store = next;
        kept.map_err(|error| {
            tracing::error!("{error}");
            let allowed = format!(
                "{}; {to} has its interface until the next start, which has both links again",
                error.allowed
            );
            ApiError { allowed, ..error }
        })
    }
}

/// Takes the link `from` out of a model, which is busy if something is above it, and gives what it is made of to `to`.
fn hand_on(model: &mut Model, from: &LinkName, to: &LinkName) -> Result<(), ApiError> {
    if let Some((vnic, _)) = model.vnics.iter().find(|(_, it)| it.over.is(from.as_str())) {
        return Err(ApiError::new(Status::LinkBusy, "vnic", vnic, ""));
    }
    if let Some((wire, _)) = model.wire_of(from.as_str()) {
        return Err(ApiError::new(Status::LinkBusy, "wire", wire, ""));
    }
    if let Some((flow, _)) = model.flows.iter().find(|(_, it)| it.link == *from) {
        return Err(ApiError::new(Status::LinkBusy, "flow", flow, ""));
    }
    let Some(link) = model.links.remove(from) else { return Ok(()) };
    match model.links.get_mut(to) {
        Some(heir) => heir.kind = link.kind,
        None => drop(model.links.insert(to.clone(), link)),
    }
    Ok(())
}
