//! A service that the daemon runs on a netstack, written with the crate `firelane` as any program could be.

use std::path::{Path, PathBuf};

use firelane_units::Port;
use serde::{Deserialize, Serialize};

use crate::NetstackName;
use crate::value::{self, TextValue, serde_as_text};

/// What a service does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceKind {
    /// Serves the files of a folder over HTTP/1.1.
    Http,
    /// Sends back what it is sent, over TCP and UDP (RFC 862).
    Echo,
    /// Throws away what it is sent, over TCP and UDP (RFC 863).
    Discard,
    /// Sends characters, over TCP and UDP (RFC 864).
    Chargen,
    /// Counts what it is sent, over TCP and UDP, and says at the end how much it was.
    Sink,
}

impl ServiceKind {
    /// Every kind with its word.
    const WORDS: [(Self, &'static str); 5] = [
        (Self::Http, "http"),
        (Self::Echo, "echo"),
        (Self::Discard, "discard"),
        (Self::Chargen, "chargen"),
        (Self::Sink, "sink"),
    ];

    /// Whether it serves a folder.
    pub const fn has_root(self) -> bool {
        matches!(self, Self::Http)
    }
}

impl TextValue for ServiceKind {
    const ALLOWED: &'static str = "a kind of service is http, echo, discard, chargen or sink";

    fn read(text: &str) -> Option<Self> {
        Self::WORDS.into_iter().find(|(_, word)| *word == text).map(|(kind, _)| kind)
    }

    fn write(&self) -> String {
        let own = Self::WORDS.into_iter().find(|(kind, _)| kind == self);
        own.map_or("", |(_, word)| word).to_owned()
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
    /// The TCP port, and the UDP port of a kind that serves datagrams.
    #[serde(with = "value")]
    #[cfg_attr(feature = "schema", schema(value_type = u16, minimum = 1))]
    pub port: Port,
    /// The folder that it serves, if its kind serves one. A relative path begins at the daemon's data folder.
    #[serde(default, skip_serializing_if = "is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub root: PathBuf,
}

fn is_empty(root: &Path) -> bool {
    root.as_os_str().is_empty()
}
