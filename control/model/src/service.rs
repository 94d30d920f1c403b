//! A service that the daemon runs on a netstack, written with the crate `firelane` as any program could be.

use std::path::PathBuf;

use firelane_units::Port;
use serde::{Deserialize, Serialize};

use crate::NetstackName;
use crate::value::{self, TextValue, serde_as_text};

/// What a service does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceKind {
    /// Serves the files of a folder over HTTP/1.1.
    Http,
}

impl TextValue for ServiceKind {
    const ALLOWED: &'static str = "a kind of service is http";

    fn read(text: &str) -> Option<Self> {
        (text == "http").then_some(Self::Http)
    }

    fn write(&self) -> String {
        "http".to_owned()
    }
}

serde_as_text!(ServiceKind);

/// A service and where it listens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// What it does.
    pub kind: ServiceKind,
    /// The netstack on which it listens, on every address.
    pub netstack: NetstackName,
    /// The TCP port.
    #[serde(with = "value")]
    #[cfg_attr(feature = "schema", schema(value_type = u16, minimum = 1))]
    pub port: Port,
    /// The folder that it serves. A relative path begins at the daemon's data folder.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub root: PathBuf,
}
