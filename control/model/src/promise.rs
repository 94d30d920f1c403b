//! Whether what is guaranteed (`minbw`) can be kept: no limit may be less than what is promised of it.
//!
//! Called by [`Model::validate`]. A guarantee is a part of the limits above it. Where there is none nothing has to wait, and it
//! is kept by itself.

use std::collections::BTreeMap;

use firelane_units::BitRate;

use crate::value::spell_rate;
use crate::{FieldError, LinkName, Model};

/// Every promise that cannot be kept.
pub(crate) fn faults(model: &Model) -> Vec<FieldError> {
    let mut faults = Vec::new();
    for (name, flow) in &model.flows {
        let path = format!("flow.{name}");
        let Some(minbw) = flow.minbw else { continue };
        if !model.vnics.contains_key(&flow.link) && model.class_of(flow.link.as_str()).is_some() {
            let allowed =
                format!("the flow's link is a VNIC; no limit is above what passes the wire of {}", flow.link);
            faults.push(FieldError::new(format!("{path}.minbw"), spell_rate(minbw), allowed));
        }
        faults.extend(beyond_own(&path, flow.minbw, flow.maxbw));
    }
    // All flows and VNICs are looked through once, for a link may have ten thousand.
    let mut of_flows = BTreeMap::new();
    for flow in model.flows.values() {
        promise(&mut of_flows, &flow.link, bits(flow.minbw));
    }
    let of_flows = |vnic: &LinkName| of_flows.get(vnic).copied().unwrap_or(0);
    let mut of_vnics = BTreeMap::new();
    for (name, vnic) in &model.vnics {
        let path = format!("vnic.{name}");
        faults.extend(beyond_own(&path, vnic.minbw, vnic.maxbw));
        faults.extend(beyond(&path, vnic.maxbw, of_flows(name), "its flows are"));
        if let Some(over) = vnic.over.link() {
            promise(&mut of_vnics, over, bits(vnic.minbw).max(of_flows(name)));
        }
    }
    let links = model.links.iter().map(|(name, link)| ("link", name, link.maxbw));
    let stubs = model.etherstubs.iter().map(|(name, stub)| ("etherstub", name, stub.maxbw));
    for (kind, name, maxbw) in links.chain(stubs) {
        let promised = of_vnics.get(name).copied().unwrap_or(0);
        faults.extend(beyond(&format!("{kind}.{name}"), maxbw, promised, "what is over it is"));
    }
    faults
}

fn bits(rate: Option<BitRate>) -> u64 {
    rate.map_or(0, BitRate::bps)
}

/// So much more is promised of a link.
fn promise<'a>(promised: &mut BTreeMap<&'a LinkName, u64>, link: &'a LinkName, bits: u64) {
    let sum = promised.entry(link).or_default();
    *sum = sum.saturating_add(bits);
}

fn beyond_own(path: &str, minbw: Option<BitRate>, maxbw: Option<BitRate>) -> Option<FieldError> {
    let (minbw, maxbw) = (minbw?, maxbw?);
    let allowed = || format!("at most its maxbw, {}", spell_rate(maxbw));
    (minbw > maxbw).then(|| FieldError::new(format!("{path}.minbw"), spell_rate(minbw), allowed()))
}

fn beyond(path: &str, maxbw: Option<BitRate>, promised: u64, whose: &str) -> Option<FieldError> {
    let maxbw = maxbw.filter(|maxbw| maxbw.bps() < promised)?;
    let allowed = format!("{whose} guaranteed {} together (minbw)", spell_rate(BitRate::from_bps(promised)));
    Some(FieldError::new(format!("{path}.maxbw"), spell_rate(maxbw), allowed))
}
