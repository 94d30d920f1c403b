//! IP tunnels as links: a switch of their own with two ports, one of which is the netstack's interface, while the tunnel is the other
//! one's user (`path/lane/src/stacks/tunneled.rs`).
//!
//! Called by the daemon. A tunnel without a netstack carries nothing, and has its VNIC alone; what it leads through is said when it
//! has one, and may be changed while it runs.

use std::net::IpAddr;

use firelane_lane::{Control, PortConfig, PortKind, PortUser, TunnelSetup};
use firelane_tunnel::{Config, Gre, Kind};
use firelane_units::{LaneId, LinkId, Mtu, NetstackId};

use crate::engine::{Engine, VnicConfig, VnicUser};
use crate::error::ChangeError;
use crate::registry::Tunnel;

/// Between which stations a tunnel carries packets, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunnelConfig {
    /// How.
    pub kind: Kind,
    /// This end: an address of the tunnel's netstack.
    pub local: IpAddr,
    /// The other end, of the same family; of no meaning for 6to4.
    pub remote: IpAddr,
    /// TTL or hop limit of the packets outside.
    pub hops: u8,
    /// How many more tunnels a packet may enter inside this one, where the packets outside can say it (RFC 2473 §4.1.1).
    pub limit: Option<u8>,
}

impl TunnelConfig {
    fn at(&self, link: LinkId) -> Config {
        let Self { kind, local, remote, hops, limit } = *self;
        Config { link, kind, local, remote, hops, limit }
    }

    /// Whether two tunnels of one netstack could not be told apart by what arrives.
    fn meets(&self, other: &Self) -> bool {
        let same_kind = match (self.kind, other.kind) {
            (Kind::Gre(mine), Kind::Gre(theirs)) => mine.key == theirs.key,
            (mine, theirs) => mine == theirs,
        };
        let same_remote = self.remote == other.remote || self.kind == Kind::SixToFour;
        same_kind && self.local == other.local && same_remote
    }
}

impl Engine {
    /// Adds a tunnel and the VNIC that leads into it, over a link of its own with packets of `mtu` bytes; with a netstack it carries
    /// packets at once. The VNIC is the tunnel's name in all other calls.
    ///
    /// # Errors
    /// The netstack does not exist, or another one of its tunnels has the same ends.
    pub fn add_tunnel(
        &self,
        config: &VnicConfig,
        mtu: Mtu,
        carries: Option<(NetstackId, TunnelConfig)>,
    ) -> Result<LinkId, ChangeError> {
        if let Some((netstack, tunnel)) = &carries {
            self.check_tunnel(None, *netstack, tunnel)?;
        }
        let link = self.add_link(mtu)?;
        let port =
            carries.map(|(netstack, tunnel)| self.add_tunnel_port(link, netstack, &tunnel)).transpose();
        let user = carries.map_or(VnicUser::Nobody, |(netstack, _)| VnicUser::Netstack(netstack));
        let vnic = match port.and_then(|port| self.add_vnic(link, config, user).map(|vnic| (vnic, port))) {
            Ok((vnic, port)) => {
                let entry = Tunnel { link, port, carries, mac: config.mac };
                self.0.registry().tunnels.insert(vnic, entry);
                vnic
            }
            Err(error) => {
                self.remove_link(link)?;
                return Err(error);
            }
        };
        self.begin_tunnel(vnic)?;
        Ok(vnic)
    }

    /// Lets a tunnel that has a netstack carry packets between other stations, or otherwise. What is on its way is lost.
    ///
    /// # Errors
    /// There is no such tunnel, it has no netstack, or another one has the same ends.
    pub fn set_tunnel(&self, vnic: LinkId, tunnel: TunnelConfig) -> Result<(), ChangeError> {
        let known = self.0.registry().tunnels.get(&vnic).copied().ok_or(ChangeError::NoLink(vnic))?;
        let (Some((netstack, _)), Some(port)) = (known.carries, known.port) else {
            return Err(ChangeError::NoUser(vnic));
        };
        self.check_tunnel(Some(vnic), netstack, &tunnel)?;
        let user = self.user_of(port, netstack, &tunnel);
        self.0.tell_all(|_| Control::SetUser(port, user))?;
        let mut registry = self.0.registry();
        registry.tunnels.insert(vnic, Tunnel { carries: Some((netstack, tunnel)), ..known });
        drop(registry);
        self.begin_tunnel(vnic)
    }

    /// Removes a tunnel and its VNIC.
    ///
    /// # Errors
    /// There is no such tunnel.
    pub fn remove_tunnel(&self, vnic: LinkId) -> Result<(), ChangeError> {
        let known = self.0.registry().tunnels.get(&vnic).copied().ok_or(ChangeError::NoLink(vnic))?;
        if let (Some((netstack, _)), Some(port)) = (known.carries, known.port) {
            self.0.tell_all(|_| Control::SetTunnel(netstack, port, None))?;
        }
        self.remove_vnic(vnic)?;
        self.remove_link(known.link)?;
        self.0.registry().tunnels.remove(&vnic);
        Ok(())
    }

    /// The port by which packets enter and leave the tunnel of a VNIC, if it carries any. Who follows frames meets it.
    pub fn tunnel_port(&self, vnic: LinkId) -> Option<LinkId> {
        self.0.registry().tunnels.get(&vnic)?.port
    }

    fn check_tunnel(
        &self,
        own: Option<LinkId>,
        netstack: NetstackId,
        tunnel: &TunnelConfig,
    ) -> Result<(), ChangeError> {
        let mut registry = self.0.registry();
        registry.netstack_mut(netstack)?;
        let taken = registry.tunnels.iter().find(|&(&vnic, it)| {
            let is_same = it.carries.is_some_and(|(its, other)| its == netstack && tunnel.meets(&other));
            Some(vnic) != own && is_same
        });
        taken.map_or(Ok(()), |(&vnic, _)| Err(ChangeError::TunnelTaken(vnic)))
    }

    fn add_tunnel_port(
        &self,
        link: LinkId,
        netstack: NetstackId,
        tunnel: &TunnelConfig,
    ) -> Result<LinkId, ChangeError> {
        let id = self.0.registry().mint_link();
        let user = self.user_of(id, netstack, tunnel);
        self.0.add_plain_port(PortConfig { id, over: link, kind: PortKind::Uplink, user })?;
        if let Some(link) = self.0.registry().links.get_mut(&link) {
            link.uplink = Some(id);
        }
        Ok(id)
    }

    /// What has numbers enters in one lane, which differs from tunnel to tunnel.
    fn user_of(&self, port: LinkId, netstack: NetstackId, tunnel: &TunnelConfig) -> PortUser {
        let has_numbers = matches!(tunnel.kind, Kind::Gre(Gre { sequence: true, .. }));
        let lane = LaneId((port.0 as usize % self.lanes()) as u16);
        PortUser::Tunnel { netstack, through: has_numbers.then_some(lane) }
    }

    fn begin_tunnel(&self, vnic: LinkId) -> Result<(), ChangeError> {
        let known = self.0.registry().tunnels.get(&vnic).copied();
        let Some(Tunnel { port: Some(port), carries: Some((netstack, tunnel)), mac, .. }) = known else {
            return Ok(());
        };
        let setup = TunnelSetup { config: tunnel.at(port), mac };
        self.0.tell_all(|_| Control::SetTunnel(netstack, port, Some(setup)))
    }
}

impl TunnelConfig {
    /// Bytes that stand before each packet.
    pub fn overhead(&self) -> usize {
        self.at(LinkId(0)).overhead()
    }
}
