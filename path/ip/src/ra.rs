//! A router advertisement that arrived (RFC 4861 §6.3.4, RFC 4862 §5.5.3, RFC 4191, RFC 8106).
//!
//! Takes the message apart and gives each part to the list that it is about; `ndp.rs` has checked what RFC 4861
//! checks of every message. Only the home lane comes here, and only on a link where the operator has asked for
//! automatic configuration: elsewhere an advertisement is refused (A07).

use core::net::Ipv6Addr;
use core::time::Duration;

use firelane_units::{DropReason, Instant, IpPrefix, LinkId, MacAddr, Mtu};
use firelane_wire::{
    NdpEnvelope, NdpMessage, NdpOption, NdpView, PrefixInformation, RouteInformation, RouterPreference,
    ndp_options,
};

use crate::autoconf::AutoLink;
use crate::event::{Configured, IpEvent, LinkParameters, RouterFlags};
use crate::neighbour::Evidence;
use crate::prefixes::OnLink;
use crate::resolvers::Heard;
use crate::routers::{Announced, everywhere};
use crate::slaac::Lifetimes;
use crate::stack::Ip;

/// We differ: RFC 4861 §6.3.4 lets a router set any hop limit; one below this cuts a host off (CVE-2015-2922).
const HOP_LIMIT_LEAST: u8 = 32;
/// RFC 4861 §6.2.1: the longest reachable time that a router may announce.
const REACHABLE_MOST: Duration = Duration::from_secs(3600);
/// Shorter times serve only to make hosts ask more.
const REACHABLE_LEAST: Duration = Duration::from_secs(1);
const RETRANSMIT_LEAST: Duration = Duration::from_millis(100);
const RETRANSMIT_MOST: Duration = Duration::from_secs(60);
/// RFC 8200 §5: every IPv6 link carries this.
const MTU_LEAST: u16 = 1280;
/// An address is the network's half and the host's.
const HALF: u8 = 64;

impl Ip {
    /// A router advertisement from `envelope.src`, which is link-local.
    pub(crate) fn on_router_advert(
        &mut self,
        now: Instant,
        link: LinkId,
        envelope: &NdpEnvelope,
        view: &NdpView<'_>,
        from: MacAddr,
    ) -> Result<(), DropReason> {
        let NdpMessage::RouterAdvert {
            hop_limit,
            managed,
            other,
            preference,
            lifetime,
            reachable,
            retransmit,
        } = view.message()
        else {
            return Err(DropReason::BadNdp);
        };
        // RFC 4861 §6.2.7: a router only compares advertisements; ours are the operator's.
        let is_wanted = self.autoconf.link(link).is_some_and(|auto| auto.settings.is_some());
        if self.forwards(link, false) || !is_wanted {
            return Err(DropReason::BadNdp);
        }
        let router = envelope.src;
        if let Some(mac) = view.options().source_mac().filter(|mac| mac.is_unicast()) {
            self.learn(now, link, router.into(), Some(mac), Evidence::Question);
        } else {
            self.learn(now, link, router.into(), Some(from), Evidence::Claim { replace: false });
        }
        self.hear_route(now, link, Announced { router, destination: everywhere(), preference }, lifetime);
        self.hear_flags(link, RouterFlags { managed, other });
        let mut parameters = LinkParameters { hop_limit: Some(hop_limit), mtu: None, reachable, retransmit };
        for option in view.options() {
            match option {
                NdpOption::Mtu(mtu) => parameters.mtu = u16::try_from(mtu).ok().and_then(Mtu::new),
                NdpOption::Prefix(prefix) => self.hear_prefix(now, link, &prefix),
                NdpOption::Route(route) => self.hear_route_option(now, link, router, &route),
                NdpOption::RecursiveDns { lifetime, servers } => {
                    for server in servers {
                        self.hear_server(now, link, Ipv6Addr::from(*server), lifetime);
                    }
                }
                NdpOption::DnsSearch { lifetime, names } => self.hear_domains(now, link, lifetime, names),
                _ => {}
            }
        }
        self.hear_parameters(link, parameters);
        self.run_auto_link(now, link);
        Ok(())
    }

    /// RFC 4861 §7.2.5: a neighbour says that it is no router. It is no default router then, until it advertises itself again; what
    /// it has said lies behind it stays, as in Linux.
    pub(crate) fn on_no_router(&mut self, now: Instant, link: LinkId, router: Ipv6Addr) {
        if self.autoconf.link(link).is_some_and(|auto| auto.routers.is_default(router)) {
            let (destination, preference) = (everywhere(), RouterPreference::default());
            self.hear_route(now, link, Announced { router, destination, preference }, Duration::ZERO);
            self.run_auto_link(now, link);
        }
    }

    fn hear_route(&mut self, now: Instant, link: LinkId, said: Announced, lifetime: Duration) {
        let is_default = said.destination.prefix_len() == 0;
        let Some(auto) = self.autoconf.link(link) else { return };
        let change = auto.routers.hear(now, said, lifetime);
        let has_default = auto.routers.has_default();
        if is_default && !lifetime.is_zero() {
            auto.solicit.on_router();
        }
        if change.is_refused {
            let refused = &mut self.refused;
            *(if is_default { &mut refused.routers } else { &mut refused.routes }) += 1;
        }
        if let Some(gone) = change.gone {
            self.configure(Configured::NoRoute(gone.route(link)));
        }
        if let Some(new) = change.new {
            self.configure(Configured::Route(new.route(link)));
        }
        if change.gone.is_some() && !has_default {
            self.ask_for_another_router(now, link);
        }
    }

    fn hear_flags(&mut self, link: LinkId, said: RouterFlags) {
        let known = self.autoconf.link(link).map(|auto| core::mem::replace(&mut auto.flags, said));
        if known.is_some_and(|known| known != said) {
            self.tell(IpEvent::RouterFlags(link, said));
        }
    }

    fn hear_route_option(&mut self, now: Instant, link: LinkId, router: Ipv6Addr, route: &RouteInformation) {
        let RouteInformation { prefix, prefix_len, preference, lifetime } = *route;
        let Some(destination) = IpPrefix::new(prefix.into(), prefix_len).map(IpPrefix::network) else {
            return;
        };
        if is_ours_to_know(prefix) {
            self.hear_route(now, link, Announced { router, destination, preference }, lifetime);
        }
    }

    fn hear_prefix(&mut self, now: Instant, link: LinkId, said: &PrefixInformation) {
        let Some(prefix) = IpPrefix::new(said.prefix.into(), said.prefix_len).map(IpPrefix::network) else {
            return;
        };
        // RFC 4861 §6.3.4, RFC 4862 §5.5.3 (b): the link-local prefix is nobody's to announce.
        if !is_ours_to_know(said.prefix) || said.prefix_len == 0 {
            return;
        }
        if said.on_link {
            self.hear_on_link(now, link, prefix, said.valid);
        }
        // RFC 4862 §5.5.3 (c) and (d): lifetimes that contradict each other, or a length that leaves no half.
        let is_sane = said.preferred <= said.valid && said.prefix_len == HALF;
        if said.autonomous && is_sane {
            let lifetimes = Lifetimes { valid: said.valid, preferred: said.preferred };
            self.hear_autonomous(now, link, prefix, lifetimes);
        }
    }

    fn hear_on_link(&mut self, now: Instant, link: LinkId, prefix: IpPrefix, lifetime: Duration) {
        let Some(auto) = self.autoconf.link(link) else { return };
        match auto.prefixes.hear(now, prefix, lifetime) {
            OnLink::Same => {}
            OnLink::New => self.configure(Configured::Route(AutoLink::on_link_route(link, prefix))),
            OnLink::Gone => self.configure(Configured::NoRoute(AutoLink::on_link_route(link, prefix))),
            OnLink::Refused => self.refused.prefixes += 1,
        }
    }

    fn hear_autonomous(&mut self, now: Instant, link: LinkId, prefix: IpPrefix, said: Lifetimes) {
        let secret = self.autoconf.secret;
        let Some(auto) = self.autoconf.link(link) else { return };
        let (Some(recipe), core::net::IpAddr::V6(network)) = (auto.recipe(secret), prefix.addr()) else {
            return;
        };
        if !auto.slaac.hear(now, network, said, &recipe) {
            self.refused.addresses += 1;
        }
    }

    fn hear_server(&mut self, now: Instant, link: LinkId, server: Ipv6Addr, lifetime: Duration) {
        let Some(auto) = self.autoconf.link(link) else { return };
        if server.is_multicast() || server.is_unspecified() || server.is_loopback() {
            return;
        }
        let heard = auto.resolvers.hear_server(now, server, lifetime);
        self.refused.servers += u64::from(heard == Heard::Refused);
        self.note_resolvers(heard, link);
    }

    fn hear_domains(&mut self, now: Instant, link: LinkId, lifetime: Duration, names: &[u8]) {
        for name in ndp_options::search_domains(names) {
            let Some(domain) = domain_text(name) else { continue };
            let Some(auto) = self.autoconf.link(link) else { return };
            let heard = auto.resolvers.hear_domain(now, domain, lifetime);
            self.refused.domains += u64::from(heard == Heard::Refused);
            self.note_resolvers(heard, link);
        }
    }

    /// RFC 4861 §6.3.4: what the router does not say stays as it is.
    fn hear_parameters(&mut self, link: LinkId, said: LinkParameters) {
        let Some(interface) = self.interfaces.get(link).copied() else { return };
        let known = self.interfaces.parameters(link);
        let mtus = MTU_LEAST..=interface.mtu.bytes();
        let parameters = LinkParameters {
            hop_limit: said.hop_limit.filter(|it| *it >= HOP_LIMIT_LEAST).or(known.hop_limit),
            mtu: said.mtu.filter(|mtu| mtus.contains(&mtu.bytes())).or(known.mtu),
            reachable: match said.reachable {
                Duration::ZERO => known.reachable,
                // RFC 4861 §6.2.1: longer ones are not allowed, so they mean nothing.
                span if span > REACHABLE_MOST => known.reachable,
                span => span.max(REACHABLE_LEAST),
            },
            retransmit: match said.retransmit {
                Duration::ZERO => known.retransmit,
                span => span.clamp(RETRANSMIT_LEAST, RETRANSMIT_MOST),
            },
        };
        if parameters != known {
            self.configure(Configured::Link(link, parameters));
        }
    }
}

/// Whether a router may say anything about addresses like this one.
const fn is_ours_to_know(prefix: Ipv6Addr) -> bool {
    !prefix.is_unicast_link_local() && !prefix.is_multicast() && !prefix.is_loopback()
}

/// A domain as text; `None` if it is no name of hosts (RFC 1123 §2.1): what is passed to programs must not hide
/// anything.
fn domain_text<'a>(labels: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let mut text = String::new();
    for label in labels {
        let is_sane = label.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        if !is_sane {
            return None;
        }
        if !text.is_empty() {
            text.push('.');
        }
        text.extend(label.iter().map(|byte| byte.to_ascii_lowercase() as char));
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_are_passed_on_and_others_are_not() {
        let text = |name: &[&[u8]]| domain_text(name.iter().copied());
        assert_eq!(text(&[b"Example", b"org"]).as_deref(), Some("example.org"));
        assert_eq!(text(&[b"a_b-1"]).as_deref(), Some("a_b-1"));
        for bad in [&[b"exa mple".as_slice()][..], &[b"a.b"], &[b"a\nb"], &[b"\xff"], &[]] {
            assert_eq!(text(bad), None);
        }
    }
}
