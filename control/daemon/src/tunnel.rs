//! Tunnels: what the model says of one, in the engine's words. Called by `works.rs`, whose VNICs they are otherwise.

use firelane::{Gre, TunnelConfig, TunnelKind, VnicConfig};
use firelane_api::{ApiError, Status};
use firelane_model::{Iptun, IptunType, LinkName, Vnic};
use firelane_units::LinkId;

use crate::refusal::refused;
use crate::settings;
use crate::works::{Done, Properties, Upper, Works};

impl Works {
    pub(crate) fn create_tunnel(&mut self, name: &LinkName, vnic: &Vnic, tunnel: &Iptun) -> Done {
        let mac = self.macs.choose(name, vnic.mac, self.is_taken());
        let netstack = vnic.netstack().map(|netstack| self.netstack(netstack)).transpose()?;
        let carries = netstack.map(|netstack| config(tunnel).map(|config| (netstack, config))).transpose()?;
        let config = VnicConfig {
            maxbw: vnic.maxbw,
            priority: vnic.priority,
            protection: settings::protection(&vnic.guard),
            ..VnicConfig::new(mac)
        };
        let mtu = vnic.mtu.unwrap_or_else(|| tunnel.default_mtu());
        let id = self.engine.add_tunnel(&config, mtu, carries).map_err(refused)?;
        self.vnics.insert(name.clone(), Upper { id, mac, device: None, memif: None, over: None });
        let begins = Properties { maxbw: vnic.maxbw, priority: vnic.priority, ..Properties::UNLIMITED };
        self.limit(id, begins, vnic.into())
    }

    /// Leads a tunnel elsewhere; one that no netstack has is led nowhere yet.
    pub(crate) fn set_tunnel(&self, id: LinkId, to: &Vnic) -> Done {
        match (to.over.tunnel(), to.netstack()) {
            (Some(tunnel), Some(_)) => self.engine.set_tunnel(id, config(tunnel)?).map_err(refused),
            _ => Ok(()),
        }
    }
}

/// A tunnel as lanes know it.
fn config(tunnel: &Iptun) -> Result<TunnelConfig, ApiError> {
    let Some((local, remote)) = tunnel.ends() else {
        return Err(ApiError::new(Status::BadIptunRemote, "remote", "", "missing"));
    };
    let kind = match tunnel.kind {
        IptunType::Ipv4 | IptunType::Ipv6 => TunnelKind::Ip,
        IptunType::SixToFour => TunnelKind::SixToFour,
        IptunType::Gre => {
            let Iptun { key, checksum, sequence, .. } = *tunnel;
            TunnelKind::Gre(Gre { key, checksum, sequence })
        }
    };
    let limit = (tunnel.encaplimit > 0).then_some(tunnel.encaplimit);
    Ok(TunnelConfig { kind, local, remote, hops: tunnel.hoplimit, limit })
}
