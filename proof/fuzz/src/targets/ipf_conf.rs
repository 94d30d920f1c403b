//! `ipf.conf`: the rules of a packet filter as text, and what they say together.
//!
//! A text is refused with the lines that are wrong, or its rules are written in one form, which reads back as the same
//! rules. Where rules contradict each other the model says so; where they do not, neither do those that are left when a
//! VNIC goes.

use std::collections::BTreeMap;

use firelane_model::{
    Etherstub, Filter, IpfFile, IpfRule, LinkName, Model, Netstack, NetstackName, Pool, PoolNumber, Vnic,
    VnicUser,
};

use crate::feedback::note;

/// Pools that rules may name.
const POOLS: u32 = 3;

/// An `ipf.conf`.
pub fn target_ipf_conf(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else { return };
    match IpfFile::read("fuzz", text) {
        Ok(file) => {
            let rules: Vec<_> = file.lines.into_iter().map(|it| it.rule.rule).collect();
            check_text(&rules);
            check_together(rules);
        }
        Err(faults) => {
            assert!(!faults.is_empty(), "refused without a reason");
            for fault in faults {
                assert!((1..=text.lines().count()).contains(&fault.line), "{fault}");
                let told = fault.message.rsplit_once("\": ").map_or(fault.message.as_str(), |(_, told)| told);
                note(told.to_owned());
            }
        }
    }
}

fn check_text(rules: &[IpfRule]) {
    let text: String = rules.iter().map(|rule| format!("{rule}\n")).collect();
    let again = IpfFile::read("again", &text).expect("what is written can be read");
    assert!(again.lines.iter().map(|it| &it.rule.rule).eq(rules), "{text}");
    for rule in rules {
        let it = rule.rule();
        let kinds = [&it.matching.from, &it.matching.to].map(|end| core::mem::discriminant(&end.ports));
        note((core::mem::discriminant(&it.action), kinds, it.keep_state.is_some(), it.head.is_some()));
    }
}

/// The rules as the filter of a netstack that has every VNIC which they name.
fn check_together(rules: Vec<IpfRule>) {
    let links: Vec<LinkName> = rules.iter().filter_map(|rule| rule.rule().link.clone()).collect();
    let pools: BTreeMap<_, _> = (0..POOLS).map(|number| (PoolNumber(number), Pool::default())).collect();
    let filter = Filter { rules, pools, ..Filter::default() };
    let mut netstack = Netstack::default();
    netstack.set_packet_filter(filter.clone());
    let name: NetstackName = "web".parse().expect("a plain word");
    let below: LinkName = "switch0".parse().expect("a word and a number");
    if links.contains(&below) {
        return;
    }
    let mut model = Model::default();
    model.etherstubs.insert(below.clone(), Etherstub::default());
    for link in &links {
        let user = VnicUser::Netstack(name.clone());
        model.vnics.insert(link.clone(), Vnic { user, ..Vnic::new(below.clone()) });
    }
    model.netstacks.insert(name.clone(), netstack);
    let faults = model.validate();
    note(("together", faults.first().map(|it| it.allowed.clone())));
    let Some(gone) = links.first().filter(|_| faults.is_empty()) else { return };
    model.vnics.remove(gone);
    if let Some(netstack) = model.netstacks.get_mut(&name) {
        netstack.set_packet_filter(filter.without(|link| link == gone));
    }
    assert_eq!(model.validate(), [], "without {gone}: {filter:?}");
}
