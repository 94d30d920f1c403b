//! Properties of links that the original has and Firelane has not, and why.
//!
//! Asked by `props.rs` when one is set, and by `dladm show-linkprop` when one is shown.

use crate::{ApiError, Status};

const BRIDGED: &str = "links are not bridged: VNICs over one link or etherstub are on a switch without loops";
const CABLE: &str = "it is the NIC's driver's: ethtool(8) sets it, dladm show-phys and show-ether show it";

/// Names, and why nothing is behind them.
const ABSENT: &[(&[&str], &str)] = &[
    (
        &["zone"],
        "a VNIC's user is said by ipadm create-if -N (a netstack), or in the configuration file (a network namespace, too)",
    ),
    (&["pool", "pool-effective"], "CPUs are not pooled: the property cpus names them"),
    (&["tagmode"], "frames are tagged for a VLAN and never for a priority alone, as vlanonly says"),
    (&["autopush"], "there are no STREAMS modules that could be pushed"),
    (&["secondary-macs"], "a VNIC has one address, its mac-address; more are those of more VNICs"),
    (&["flowctrl", "duplex", "media", "en_fec_cap", "adv_fec_cap"], CABLE),
    (
        &[
            "forward",
            "default_tag",
            "stp",
            "stp_priority",
            "stp_cost",
            "stp_edge",
            "stp_p2p",
            "stp_mcheck",
            "learn_limit",
            "learn_decay",
        ],
        BRIDGED,
    ),
];

/// What setting or showing the link property `name` is answered, if it is one of the original's that there is not here.
pub fn absent_link_prop(name: &str) -> Option<ApiError> {
    let is_mode = ["adv_", "en_"].iter().any(|it| name.starts_with(it)) && name.ends_with("_cap");
    let known = ABSENT.iter().find(|(names, _)| names.contains(&name)).map(|(_, why)| *why);
    let why = known.or_else(|| is_mode.then_some(CABLE))?;
    Some(ApiError::new(Status::NotSupported, name, "", why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PropChange, set_vnic_prop};
    use firelane_model::Model;

    #[test]
    fn what_is_absent_says_why_and_nothing_that_is_there_is_called_absent() {
        let mut model = Model::from_toml("f.toml", "[etherstub.s0]\n[vnic.v0]\nover = 's0'\n").unwrap();
        let mut vnic = model.vnics.remove("v0").unwrap();
        let mut set = |name: &str, value: &str| {
            let change = PropChange { name: name.to_owned(), value: Some(value.to_owned()) };
            set_vnic_prop(&mut vnic, &change).map_err(|error| error.to_string())
        };
        assert_eq!(
            set("pool", "pool_default"),
            Err("operation not supported (pool: CPUs are not pooled: the property cpus names them)"
                .to_owned())
        );
        for name in ABSENT.iter().flat_map(|(names, _)| *names).chain(&["adv_1000fdx_cap", "en_100hdx_cap"]) {
            assert!(set(name, "1").unwrap_err().starts_with("operation not supported"), "{name}");
        }
        assert_eq!(set("maxbw", "10M"), Ok(()));
        assert!(set("colour", "1").unwrap_err().starts_with("invalid property"));
        assert_eq!(absent_link_prop("cpus"), None);
    }
}
