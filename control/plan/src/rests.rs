//! Which steps a step rests on: those that make what it names.
//!
//! Asked by the daemon, whose start goes on after a step that failed, and tells of those that could not be carried out without it.

use crate::{Action, Step};

/// What a step makes, or needs. Links of every class have their names together.
#[derive(PartialEq, Eq)]
enum Object<'a> {
    Link(&'a str),
    Netstack(&'a str),
}

impl Step {
    /// Whether what `other` makes is needed here.
    pub fn rests_on(&self, other: &Self) -> bool {
        made(&other.action).is_some_and(|it| needed(&self.action).contains(&it))
    }
}

fn made(action: &Action) -> Option<Object<'_>> {
    match action {
        Action::CreateNetstack(name, ..) => Some(Object::Netstack(name.as_str())),
        Action::CreateLink(name, _) | Action::CreateEtherstub(name, _) | Action::CreateVnic(name, _) => {
            Some(Object::Link(name.as_str()))
        }
        _ => None,
    }
}

fn needed(action: &Action) -> Vec<Object<'_>> {
    match action {
        Action::CreateVnic(_, vnic) => {
            let over = vnic.over.link().map(|it| Object::Link(it.as_str()));
            over.into_iter().chain(vnic.netstack().map(|it| Object::Netstack(it.as_str()))).collect()
        }
        Action::CreateWire(_, wire) => wire.ends.iter().map(|it| Object::Link(it.as_str())).collect(),
        Action::AddFlow(_, flow) => vec![Object::Link(flow.link.as_str())],
        Action::AddAddress(netstack, address, _) => {
            vec![Object::Link(address.interface()), Object::Netstack(netstack.as_str())]
        }
        Action::SetInterface(netstack, name, _, interface) => {
            let links = [name].into_iter().chain(interface.sources());
            links.map(|it| Object::Link(it.as_str())).chain([Object::Netstack(netstack.as_str())]).collect()
        }
        Action::SetFilter(netstack, _, filter) => {
            let rules = filter.rules.iter().filter_map(|it| it.rule().link.as_ref());
            let links = rules.chain(filter.nat.iter().map(|it| &it.rule().link));
            links.map(|it| Object::Link(it.as_str())).chain([Object::Netstack(netstack.as_str())]).collect()
        }
        Action::SetTunables(netstack, ..)
        | Action::SetPrograms(netstack, ..)
        | Action::SetFpm(netstack, ..)
        | Action::SetCpus(netstack, ..)
        | Action::AddRoute(netstack, _) => vec![Object::Netstack(netstack.as_str())],
        Action::StartService(_, service) => vec![Object::Netstack(service.netstack.as_str())],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Step, plan};
    use firelane_model::Model;

    #[test]
    fn a_step_rests_on_those_that_make_what_it_names_and_on_no_other() {
        let text = "[link.net0]\nkind = 'nic'\nifname = 'eth7'\n[etherstub.s0]\n\
                    [vnic.v0]\nover = 'net0'\nnetstack = 'web'\n[vnic.t0]\nover = 's0'\ntap = {}\n\
                    [netstack.web]\nfilter = ['block in on v0 all']\n[netstack.web.addresses]\n'v0/v4' = '10.0.0.1/24'\n\
                    [flow.f0]\nlink = 'v0'\nmatch = { transport = 'tcp' }\n\
                    [service.files]\nkind = 'http'\nnetstack = 'web'\nport = 80\nroot = '/srv'\n\
                    [wire.w0]\nends = ['net0', 's0']\n";
        let steps = plan(&Model::from_toml("test", text).unwrap(), &Model::default());
        let below = |start: &str| {
            let step = steps.iter().find(|it| it.to_string().starts_with(start)).unwrap();
            let names = |it: &&Step| step.rests_on(it);
            let first_words = |it: &Step| it.to_string().split(' ').take(3).collect::<Vec<_>>().join(" ");
            let mut below: Vec<_> = steps.iter().filter(names).map(first_words).collect();
            below.sort();
            below
        };
        for (start, wanted) in [
            ("create link net0", &[][..]),
            ("create vnic v0", &["create link net0", "create netstack web"]),
            ("create vnic t0", &["create etherstub s0"]),
            ("create wire w0", &["create etherstub s0", "create link net0"]),
            ("set filter", &["create netstack web", "create vnic v0"]),
            ("add address v0/v4", &["create netstack web", "create vnic v0"]),
            ("add flow f0", &["create vnic v0"]),
            ("start service files", &["create netstack web"]),
        ] {
            assert_eq!(below(start), wanted, "{start}");
        }
    }
}
