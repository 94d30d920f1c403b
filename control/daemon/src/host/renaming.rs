//! A link gets another name: what runs stays, and what is said of it is said by that name.
//!
//! Part of the host (`host.rs`). Called by `answers.rs` for `dladm rename-link`, unless the name is that of a link whose NIC has gone
//! (`succession.rs`).

use firelane_api::{ApiError, Store};
use firelane_model::{LinkName, Mac, Model};
use firelane_plan::Action;

use super::Inner;

impl Inner {
    /// Gives a link another name. To a plan it would be another link, and its traffic would end.
    pub(super) fn rename_link(
        &mut self,
        mut next: Store,
        from: &LinkName,
        to: &LinkName,
    ) -> Result<(), ApiError> {
        // An address that was made of the old name stays what it is; one that has its old name again is not written down.
        let macs = self.works.macs;
        let runs = self.works.vnics.get(from).map(|upper| upper.mac);
        let is_kept = |mac: Mac| self.store.persistent.vnics.get(from).is_some_and(|kept| kept.mac == mac);
        let has_its_own = self.store.active.vnics.get(from).is_some_and(|active| is_kept(active.mac));
        for (before, after, is_in_force) in [
            (&self.store.active, &mut next.active, true),
            // One that was changed until the next start is kept as it was.
            (&self.store.persistent, &mut next.persistent, has_its_own),
        ] {
            let Some((vnic, said)) = after.vnics.get_mut(to).zip(before.vnics.get(from)) else { continue };
            // A factory's address is had by its slot, whatever the name.
            if !matches!(vnic.mac, Mac::Factory(_)) {
                let mac =
                    runs.filter(|_| is_in_force).unwrap_or_else(|| macs.choose(from, said.mac, |_| false));
                vnic.mac = macs.said(to, mac);
            }
        }
        let state = self.state.clone();
        let prepared = state.prepare(&next.persistent)?;
        let runs = self.store.active.class_of(from.as_str()).is_some();
        let counted = self.all_counted();
        if runs {
            self.works.rename_link(from, to)?;
        }
        if let Err(error) = prepared.commit() {
            if runs {
                self.works.rename_link(to, from)?;
            }
            return Err(state.refused(&error));
        }
        self.unkept = None;
        tracing::info!("rename link {from} to {to}");
        if runs {
            self.rename_counted(counted, from, to);
        }
        self.rename_failed((from, to), &next.persistent);
        self.store = next;
        Ok(())
    }

    /// What the start could not make is told of, and made when that can be, by what it is called from here on in what is kept.
    fn rename_failed(&mut self, names: (&LinkName, &LinkName), kept: &Model) {
        let missing: Vec<_> =
            (0..self.failed.len()).filter(|nth| self.is_missing(&self.failed[*nth].0)).collect();
        let mut said = Vec::new();
        for nth in missing {
            let step = &mut self.failed[nth].0;
            if let Some(action) = renamed(&step.action, names, kept) {
                let before = step.to_string();
                step.action = action;
                said.push((before, step.to_string()));
            }
        }
        // Of some it is said that they rest on others.
        for (_, why) in &mut self.failed {
            for (before, now) in said.iter().filter(|(before, now)| before != now) {
                *why = why.replace(&format!("\"{before}\""), &format!("\"{now}\""));
            }
        }
    }
}

/// The same of what has to do with the link, as `kept` has it.
fn renamed(action: &Action, (from, to): (&LinkName, &LinkName), kept: &Model) -> Option<Action> {
    let named = |name: &LinkName| if name == from { to.clone() } else { name.clone() };
    Some(match action {
        Action::CreateLink(name, _) => Action::CreateLink(named(name), kept.links.get(&named(name))?.clone()),
        Action::CreateEtherstub(name, _) => {
            Action::CreateEtherstub(named(name), kept.etherstubs.get(&named(name))?.clone())
        }
        Action::CreateVnic(name, _) => Action::CreateVnic(named(name), kept.vnics.get(&named(name))?.clone()),
        // A wire has its name beside those of links.
        Action::CreateWire(name, _) => Action::CreateWire(name.clone(), kept.wires.get(name)?.clone()),
        Action::AddFlow(name, _) => Action::AddFlow(name.clone(), kept.flows.get(name)?.clone()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use firelane_api::{Api, Change, ChangeRequest};

    use super::super::partings::tests::host_of;
    use crate::folder::tests::Scratch;

    const TEXT: &str = "[link.net0]\nkind = 'nic'\nifname = 'fl-nobody'\n\
        [vnic.v0]\nover = 'net0'\n[etherstub.s0]\n[wire.w0]\nends = ['v0', 's0']\n\
        [flow.f0]\nlink = 'net0'\nmatch = { transport = 'tcp' }\n";

    #[test]
    fn what_could_not_be_made_is_told_of_by_its_new_name() {
        let (folder, runtime) = (Scratch::new(), tokio::runtime::Runtime::new().unwrap());
        let host = host_of(TEXT, &folder, &runtime);
        let before = host.status().unwrap().problems;
        assert!(before.len() >= 4 && before.iter().any(|it| it.contains("create link net0")), "{before:?}");
        let change = |from: &str, to: &str| {
            let change = Change::RenameLink(from.parse().unwrap(), to.parse().unwrap());
            host.change(&ChangeRequest { temporary: false, change }).unwrap();
        };
        change("net0", "wan0");
        change("v0", "web0");
        let after = host.status().unwrap().problems;
        assert_eq!(after.len(), before.len(), "{after:?}");
        let said = after.join("\n");
        for new in ["create link wan0", "create vnic web0", "create wire w0", "add flow f0"] {
            assert!(said.contains(new), "{new}: {said}");
        }
        for old in ["link net0", "vnic v0", "over net0"] {
            assert!(!said.contains(old), "{old}: {said}");
        }
        host.shut_down();
    }
}
