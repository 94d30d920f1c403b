//! A routing daemon that drives a netstack's routes: FRR's zebra with its module `dplane_fpm_nl`.
//!
//! In the file: `[netstack.router.fpm]`, which may be empty, or `listen = "127.0.0.1:2620"`, `namespace = "frr"`,
//! `grace = 60` and `settle = 5`. zebra connects by TCP, so that is what is listened for.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::value::{self, TextValue};
use crate::{NamespaceName, Netstack};

/// What is said of the daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Fpm {
    /// Where zebra connects: address and port.
    #[serde(default = "Fpm::default_listen", skip_serializing_if = "Fpm::is_default_listen", with = "value")]
    #[cfg_attr(feature = "schema", schema(value_type = String, example = "127.0.0.1:2620"))]
    pub listen: SocketAddr,
    /// The network namespace in which zebra is, if not the daemon's own: it is listened there, and zebra's numbers of
    /// interfaces are those of that namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub namespace: Option<NamespaceName>,
    /// Seconds for which routes stay after zebra has gone away.
    #[serde(default = "Fpm::default_grace", skip_serializing_if = "Fpm::is_default_grace")]
    pub grace: u32,
    /// Seconds of silence after which a zebra that has come back has told all its routes; those it has not told go.
    #[serde(default = "Fpm::default_settle", skip_serializing_if = "Fpm::is_default_settle")]
    pub settle: u32,
}

impl Default for Fpm {
    fn default() -> Self {
        Self {
            listen: Self::default_listen(),
            namespace: None,
            grace: Self::default_grace(),
            settle: Self::default_settle(),
        }
    }
}

impl Fpm {
    /// The port that zebra connects to unless told otherwise.
    const PORT: u16 = 2620;
    /// A day: longer, and the routes are the operator's to give.
    const GRACE_MAX: u32 = 86_400;
    /// An hour.
    const SETTLE_MAX: u32 = 3600;

    const fn default_listen() -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), Self::PORT)
    }

    fn is_default_listen(listen: &SocketAddr) -> bool {
        *listen == Self::default_listen()
    }

    const fn default_grace() -> u32 {
        60
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    const fn is_default_grace(grace: &u32) -> bool {
        *grace == Self::default_grace()
    }

    const fn default_settle() -> u32 {
        5
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    const fn is_default_settle(settle: &u32) -> bool {
        *settle == Self::default_settle()
    }

    /// Where it is listened, which only one netstack can do.
    pub const fn door(&self) -> (Option<&NamespaceName>, SocketAddr) {
        (self.namespace.as_ref(), self.listen)
    }

    /// Numbers that cannot be, each with its field and what is allowed.
    pub(crate) fn faults(&self) -> impl Iterator<Item = (&'static str, u32, String)> {
        let limits =
            [("grace", self.grace, 0, Self::GRACE_MAX), ("settle", self.settle, 1, Self::SETTLE_MAX)];
        limits.into_iter().filter_map(|(field, value, least, most)| {
            let is_fault = !(least..=most).contains(&value);
            is_fault.then(|| (field, value, format!("seconds from {least} to {most}")))
        })
    }
}

impl TextValue for SocketAddr {
    const ALLOWED: &'static str = "a station's address and a port, such as 127.0.0.1:2620 or [::1]:2620";

    fn read(text: &str) -> Option<Self> {
        let read: Self = text.parse().ok()?;
        let is_broadcast = read.ip() == IpAddr::V4(Ipv4Addr::BROADCAST);
        let is_station = !read.ip().is_unspecified() && !read.ip().is_multicast() && !is_broadcast;
        Some(read).filter(|read| is_station && read.port() != 0)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Netstack {
    /// Where a routing daemon of it is listened for.
    pub fn fpm_door(&self) -> Option<(Option<&NamespaceName>, SocketAddr)> {
        self.fpm.as_ref().map(Fpm::door)
    }
}

#[cfg(test)]
mod tests {
    use crate::Model;

    fn faults(text: &str) -> Vec<String> {
        match Model::from_toml("f.toml", text) {
            Ok(_) => Vec::new(),
            Err(faults) => faults.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn an_empty_table_is_what_zebra_expects() {
        let model = Model::from_toml("f.toml", "[netstack.r.fpm]\n").unwrap();
        let fpm = model.netstacks["r"].fpm.clone().unwrap();
        assert_eq!((fpm.listen.to_string().as_str(), fpm.grace, fpm.settle), ("127.0.0.1:2620", 60, 5));
        assert_eq!(Model::from_toml("f.toml", &model.to_toml()), Ok(model));
    }

    #[test]
    fn each_field_says_what_is_allowed() {
        for (line, want) in [
            (
                "listen = \"2620\"",
                "f.toml:2: netstack.r.fpm.listen: \"2620\": a station's address and a port",
            ),
            ("listen = \"0.0.0.0:2620\"", "f.toml:2: netstack.r.fpm.listen: \"0.0.0.0:2620\": a station's"),
            ("listen = \"127.0.0.1:0\"", "f.toml:2: netstack.r.fpm.listen: \"127.0.0.1:0\": a station's"),
            ("namespace = \"../x\"", "f.toml:2: netstack.r.fpm.namespace: \"../x\": "),
            ("grace = 86401", "f.toml:2: netstack.r.fpm.grace: \"86401\": seconds from 0 to 86400"),
            ("settle = 0", "f.toml:2: netstack.r.fpm.settle: \"0\": seconds from 1 to 3600"),
            ("port = 1", "f.toml:2: netstack.r.fpm.port: unknown field `port`, expected one of `listen`"),
        ] {
            let got = faults(&format!("[netstack.r.fpm]\n{line}\n"));
            assert!(matches!(&got[..], [one] if one.starts_with(want)), "{line}: {got:?}");
        }
    }

    #[test]
    fn a_door_is_one_netstacks() {
        let two = |second: &str| format!("[netstack.a.fpm]\n[netstack.b.fpm]\n{second}\n");
        let got = faults(&two("grace = 1"));
        assert!(matches!(&got[..], [one] if one.contains("netstack.b.fpm.listen")), "{got:?}");
        assert!(got[0].contains("netstack.a.fpm.listen has it already"), "{got:?}");
        assert_eq!(faults(&two("listen = \"127.0.0.1:2621\"")), [""; 0]);
        assert_eq!(faults(&two("namespace = \"frr\"")), [""; 0]);
    }
}
