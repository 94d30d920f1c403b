//! Whether a packet's source is where the packet came from (RFC 2827, RFC 3704, RFC 8704).
//!
//! Asked for every packet that arrives by an interface whose operator wants to know, before anything else is made of
//! it. The routes answer by which an answer would go: those of whom the packet is for, if it has some of its own, come first. One that
//! ends packets vouches for nobody, so a blackhole also silences a source.

use core::net::IpAddr;

use firelane_units::LinkId;

use crate::config::ReversePath;
use crate::egress::is_link_local;
use crate::route::{Route, RouteKind};
use crate::stack::Ip;

impl Ip {
    /// Whether `src` may send to `dst` by `link`.
    pub(crate) fn is_on_reverse_path(&self, link: LinkId, src: IpAddr, dst: IpAddr) -> bool {
        let mode = self.interfaces.routing(link).reverse_path(src);
        // Who has no address yet, and who is on the link by his address' meaning.
        if mode == ReversePath::Off || src.is_unspecified() || is_link_local(src) {
            return true;
        }
        let vouches = |route: &Route| {
            let by = self.route_link(route).filter(|_| route.kind == RouteKind::Unicast);
            by.is_some_and(|by| mode == ReversePath::Loose || by == link)
        };
        let of_answers = self.sourced.of(Some(dst)).map(|table| table.longest(src)).find(|it| !it.is_empty());
        of_answers.unwrap_or_else(|| self.routes.longest(src)).iter().any(vouches)
    }
}
