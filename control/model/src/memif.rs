//! A memif: frames through memory shared with another process, as the lower side of a link or as a VNIC's user.

use serde::{Deserialize, Serialize};

/// The longest path that the address of a Unix socket holds.
const PATH_BYTES_MAX: usize = 107;
/// The longest secret that the protocol carries.
const SECRET_BYTES_MAX: usize = 23;

/// Which end of the control socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MemifRole {
    /// Listens; the other process connects.
    Server,
    /// Connects, again and again until the other process listens.
    Client,
}

impl MemifRole {
    /// The word in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// A memif and its properties.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Memif {
    /// Which end of the control socket.
    pub role: MemifRole,
    /// The control socket: an absolute path.
    pub socket: String,
    /// Which interface of that socket.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub id: u32,
    /// What both ends must know; without one, permission to open the socket is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Descriptors of each ring, if this end is the client: a power of two.
    #[serde(default = "usual_ring_size", skip_serializing_if = "is_usual_ring_size")]
    pub ring_size: u16,
}

fn is_zero(id: &u32) -> bool {
    *id == 0
}

fn usual_ring_size() -> u16 {
    1024
}

fn is_usual_ring_size(size: &u16) -> bool {
    *size == usual_ring_size()
}

impl Memif {
    /// A memif with the usual properties.
    pub fn new(role: MemifRole, socket: impl Into<String>) -> Self {
        Self { role, socket: socket.into(), id: 0, secret: None, ring_size: usual_ring_size() }
    }

    /// The fields that have values which are not allowed: field, value, what is allowed.
    pub(crate) fn faults(&self) -> Vec<(&'static str, String, &'static str)> {
        let mut faults = Vec::new();
        let is_path = self.socket.starts_with('/') && !self.socket.contains('\0');
        if !is_path || self.socket.len() > PATH_BYTES_MAX {
            faults.push(("socket", self.socket.clone(), "an absolute path of at most 107 bytes"));
        }
        let is_secret = |text: &String| {
            (1..=SECRET_BYTES_MAX).contains(&text.len())
                && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
        };
        if self.secret.as_ref().is_some_and(|text| !is_secret(text)) {
            // Not the value: messages are read by others.
            faults.push(("secret", "(not shown)".to_owned(), "1 to 23 printable characters"));
        }
        if !self.ring_size.is_power_of_two() || !(32..=16_384).contains(&self.ring_size) {
            faults.push(("ring_size", self.ring_size.to_string(), "a power of two from 32 to 16384"));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use crate::Model;

    fn faults(memif: &str) -> String {
        let text = format!("[etherstub.s0]\n[vnic.v0]\nover = \"s0\"\nmemif = {memif}\n");
        match Model::from_toml("x", &text) {
            Ok(model) => {
                assert_eq!(Model::from_toml("dump", &model.to_toml()), Ok(model));
                String::new()
            }
            Err(faults) => faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        }
    }

    #[test]
    fn every_field_says_what_is_allowed() {
        assert_eq!(faults(r#"{ role = "server", socket = "/run/x" }"#), "");
        assert_eq!(
            faults(r#"{ role = "client", socket = "/run/x", id = 7, secret = "s", ring_size = 64 }"#),
            ""
        );
        for (memif, field, allowed) in [
            (r#"{ role = "server", socket = "x" }"#, "vnic.v0.memif.socket", "absolute path"),
            (r#"{ role = "server", socket = "/x", secret = "" }"#, "vnic.v0.memif.secret", "1 to 23"),
            (
                r#"{ role = "server", socket = "/x", ring_size = 48 }"#,
                "vnic.v0.memif.ring_size",
                "power of two",
            ),
            (r#"{ role = "master", socket = "/x" }"#, "vnic.v0", "server"),
            (r#"{ role = "server" }"#, "vnic.v0", "socket"),
        ] {
            let text = faults(memif);
            assert!(text.contains(field) && text.contains(allowed), "{memif}: {text:?}");
        }
    }

    #[test]
    fn two_servers_cannot_listen_on_one_socket() {
        let text = "[etherstub.s0]\n[vnic.v0]\nover = \"s0\"\nmemif = { role = \"server\", socket = \"/x\" }\n\
                    [link.l0]\nkind = \"memif\"\nmemif = { role = \"server\", socket = \"/x\" }\n";
        let faults = Model::from_toml("x", text).unwrap_err();
        assert!(faults[0].to_string().contains("socket"), "{faults:?}");
        assert!(Model::from_toml("x", &text.replacen("server", "client", 1)).is_ok());
    }

    #[test]
    fn a_link_of_memif_has_a_table_and_no_interface() {
        for (text, allowed) in [
            ("kind = \"memif\"", "needs a table memif"),
            (
                "kind = \"memif\"\nifname = \"t\"\nmemif = { role = \"client\", socket = \"/x\" }",
                "only kind = \"tap\"",
            ),
            ("kind = \"memory\"\nmemif = { role = \"client\", socket = \"/x\" }", "only kind = \"memif\""),
        ] {
            let faults = Model::from_toml("x", &format!("[link.l0]\n{text}\n")).unwrap_err();
            assert!(faults[0].to_string().contains(allowed), "{faults:?}");
        }
    }
}
