//! Whether what is guaranteed (`minbw`) can be kept: no limit may be less than what is promised of it.
//!
//! Called by [`Model::validate`]. A guarantee is a part of the limits above it. Where there is none nothing has to wait, and it
//! is kept by itself.

use firelane_units::BitRate;

use crate::value::spell_rate;
use crate::{FieldError, Flow, Model, Vnic};

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
    for (name, vnic) in &model.vnics {
        let path = format!("vnic.{name}");
        faults.extend(beyond_own(&path, vnic.minbw, vnic.maxbw));
        faults.extend(beyond(&path, vnic.maxbw, of_flows(model, name.as_str()), "its flows are"));
    }
    let links = model.links.iter().map(|(name, link)| ("link", name, link.maxbw));
    let stubs = model.etherstubs.iter().map(|(name, stub)| ("etherstub", name, stub.maxbw));
    for (kind, name, maxbw) in links.chain(stubs) {
        let of_vnic =
            |(vnic, it): (&crate::LinkName, &Vnic)| bits(it.minbw).max(of_flows(model, vnic.as_str()));
        let promised = model.vnics_over(name.as_str()).map(of_vnic).fold(0, u64::saturating_add);
        faults.extend(beyond(&format!("{kind}.{name}"), maxbw, promised, "what is over it is"));
    }
    faults
}

fn bits(rate: Option<BitRate>) -> u64 {
    rate.map_or(0, BitRate::bps)
}

/// What the flows of a VNIC are guaranteed together.
fn of_flows(model: &Model, vnic: &str) -> u64 {
    let of = |(_, flow): (_, &Flow)| bits(flow.minbw);
    model.flows_on(vnic).map(of).fold(0, u64::saturating_add)
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
