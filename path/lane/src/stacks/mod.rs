//! The netstacks of a lane: one shard of each.

use core::net::IpAddr;
use firelane_frame::{Chain, Driver};
use firelane_socket::ConnRef;
use firelane_tcp::TcpConfig;
use firelane_units::{Instant, IpPrefix, LinkId, NetstackId, SocketId};
use std::sync::Arc;

use crate::common::Common;
use crate::config::LaneConfig;
use crate::control::Refusal;
use crate::links::Links;
use crate::message::{Learned, NetstackConfig, PortConfig, RouteConfig, SocketCommand};

pub(crate) struct Stacks;

impl Stacks {
    pub(crate) fn new(_config: &LaneConfig) -> Self {
        Self
    }
    pub(crate) fn arrive<D: Driver>(&mut self, common: &mut Common<D>, links: &mut Links<D>) {
        for arrival in links.arrivals.drain(..) {
            common.deliver(arrival.frame);
        }
    }
    pub(crate) fn transmit<D>(&mut self, _: &mut Common<D>, _: &mut Links<D>, _: &mut Chain) {}
    pub(crate) fn kick<D>(&mut self, _: &mut Common<D>, _: NetstackId, _: ConnRef) {}
    pub(crate) fn kick_datagrams(&mut self, _: NetstackId, _: SocketId) {}
    pub(crate) fn on_command<D>(
        &mut self,
        _: &mut Common<D>,
        _: &mut Links<D>,
        _: NetstackId,
        _: SocketCommand,
    ) {
    }
    pub(crate) fn on_learned<D>(&mut self, _: &mut Common<D>, _: NetstackId, _: Learned) {}
    pub(crate) fn attach<D>(
        &mut self,
        _: &mut Common<D>,
        _: &mut Links<D>,
        _: PortConfig,
    ) -> Result<(), Refusal> {
        Ok(())
    }
    pub(crate) fn detach<D>(&mut self, _: &mut Common<D>, _: &mut Links<D>, _: LinkId) {}
    pub(crate) fn add<D>(&mut self, _: &mut Common<D>, _: NetstackConfig) -> Result<(), Refusal> {
        Ok(())
    }
    pub(crate) fn remove<D>(&mut self, _: &mut Common<D>, _: NetstackId) -> Result<(), Refusal> {
        Ok(())
    }
    pub(crate) fn add_address<D>(
        &mut self,
        _: &mut Common<D>,
        _: NetstackId,
        _: LinkId,
        _: IpPrefix,
    ) -> Result<(), Refusal> {
        Ok(())
    }
    pub(crate) fn remove_address<D>(
        &mut self,
        _: &mut Common<D>,
        _: NetstackId,
        _: LinkId,
        _: IpAddr,
    ) -> Result<(), Refusal> {
        Ok(())
    }
    pub(crate) fn add_route(&mut self, _: NetstackId, _: RouteConfig) -> Result<(), Refusal> {
        Ok(())
    }
    pub(crate) fn remove_route(&mut self, _: NetstackId, _: RouteConfig) -> Result<(), Refusal> {
        Ok(())
    }
    pub(crate) fn set_tcp(&mut self, _: NetstackId, _: Arc<TcpConfig>) -> Result<(), Refusal> {
        Ok(())
    }
    pub(crate) fn on_time<D>(&mut self, _: &mut Common<D>) {}
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        None
    }
    pub(crate) fn held(&self) -> usize {
        0
    }
    pub(crate) fn connections(&self) -> usize {
        0
    }
    pub(crate) fn time_wait(&self) -> usize {
        0
    }
}
