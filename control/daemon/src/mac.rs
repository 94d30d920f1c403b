//! Ethernet addresses and interface names that the daemon chooses: the same again after a restart, others on
//! another host or in another instance.
//!
//! Called by `works.rs` and `kernel.rs`.

use std::fs;

use firelane_model::{AUTOMATIC_MAC_PREFIX, Instance, LinkName, Mac, prefixed_mac};
use firelane_units::MacAddr;

/// Chooses addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Macs {
    seed: u64,
}

impl Macs {
    /// The choices of this host and `instance`.
    pub(crate) fn of_host(instance: &Instance) -> Self {
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        Self { seed: digest(&[machine.trim(), &instance.to_string()]) }
    }

    /// The address of the VNIC or link `name`, which is not taken. A factory's is not chosen, but had.
    pub(crate) fn choose(self, name: &LinkName, wanted: Mac, is_taken: impl Fn(&MacAddr) -> bool) -> MacAddr {
        match wanted {
            Mac::Fixed(mac) => mac,
            Mac::Auto | Mac::Random | Mac::Factory(_) => self.free(AUTOMATIC_MAC_PREFIX, name, is_taken),
            Mac::Prefixed(prefix) => self.free(prefix, name, is_taken),
        }
    }

    /// How a configuration says that `name` has the address `mac`: not at all, if it would be chosen.
    pub(crate) fn said(self, name: &LinkName, mac: MacAddr) -> Mac {
        if self.choose(name, Mac::Auto, |_| false) == mac { Mac::Auto } else { Mac::Fixed(mac) }
    }
}

impl Macs {
    fn free(self, prefix: [u8; 3], name: &LinkName, is_taken: impl Fn(&MacAddr) -> bool) -> MacAddr {
        let mut choices = (0..).map(|attempt| prefixed_mac(prefix, name, self.seed, attempt));
        choices.find(|mac| !is_taken(mac)).expect("there are more addresses than VNICs")
    }
}

/// The name of the near end of a veth pair for the VNIC `name`, the first or another: eleven characters, so that one more fits.
pub(crate) fn near_name(name: &LinkName, instance: &Instance, nth: u32) -> String {
    let parts = [&instance.to_string(), name.as_str(), &nth.to_string()];
    format!("fl{:09x}", digest(&parts) >> 28)
}

/// FNV-1a over parts with their ends: names things, keeps no secret.
fn digest(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_repeat_avoid_what_is_taken_and_differ_between_instances() {
        let name: LinkName = "web0".parse().unwrap();
        let [one, two] = ["", "demo"].map(|it| it.parse::<Instance>().unwrap());
        let macs = Macs::of_host(&one);
        let first = macs.choose(&name, Mac::Auto, |_| false);
        assert_eq!(macs.choose(&name, Mac::Random, |_| false), first);
        assert_ne!(macs.choose(&name, Mac::Auto, |it| *it == first), first);
        assert_ne!(Macs::of_host(&two).choose(&name, Mac::Auto, |_| false), first);
        assert_eq!(macs.choose(&name, Mac::Fixed(first), |it| *it == first), first);
        assert_eq!(macs.said(&name, first), Mac::Auto);
        let other: LinkName = "web1".parse().unwrap();
        assert_eq!(macs.said(&other, first), Mac::Fixed(first));
    }

    #[test]
    fn a_pairs_name_fits_the_kernel() {
        let [one, two] = ["", "demo"].map(|it| it.parse::<Instance>().unwrap());
        let names = ["web0", "a_very_long_name_of_a_vnic_12345"].map(|it| it[..it.len().min(31)].to_owned());
        for name in names {
            let name: LinkName = name.trim_end_matches(char::is_alphabetic).parse().unwrap();
            assert!((0..3).all(|nth| near_name(&name, &one, nth).len() == 11));
            assert_ne!(near_name(&name, &one, 0), near_name(&name, &two, 0));
            assert_ne!(near_name(&name, &one, 0), near_name(&name, &one, 1));
        }
    }
}
