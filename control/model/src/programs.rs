//! Who may run programs on a netstack, and how much each program may have there.
//!
//! In the file: `[netstack.web.programs]` with `users = ["alice"]`, `groups = ["staff"]`, `sockets = 1000` and
//! `memory = 67108864`. The daemon judges by what the kernel says of a process that comes to its socket (SO_PEERCRED).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::AccountName;

/// Programs of a netstack.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Programs {
    /// The users whose programs may use the netstack. Without users and groups: whoever may configure the daemon.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub users: BTreeSet<AccountName>,
    /// The groups whose members' programs may use it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>))]
    pub groups: BTreeSet<AccountName>,
    /// The most sockets of a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u32>,
    /// The most bytes that the buffers of a process' sockets have at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

impl Programs {
    /// The most sockets of a process, if nothing is said.
    pub const SOCKETS_MAX: u32 = 1 << 17;
    /// The least memory that a program can do anything with.
    pub const MEMORY_LEAST: u64 = 1 << 20;
    /// The address space that an arena has for buffers.
    pub const MEMORY_MAX: u64 = 64 << 30;

    /// Whether nothing is said.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it is said who may use the netstack.
    pub fn names_users(&self) -> bool {
        !self.users.is_empty() || !self.groups.is_empty()
    }

    /// Numbers that cannot be, each with its field and what is allowed.
    pub(crate) fn faults(&self) -> impl Iterator<Item = (&'static str, u64, String)> {
        let limits = [
            ("sockets", self.sockets.map(u64::from), 1, u64::from(Self::SOCKETS_MAX)),
            ("memory", self.memory, Self::MEMORY_LEAST, Self::MEMORY_MAX),
        ];
        limits.into_iter().filter_map(|(field, value, least, most)| {
            let value = value.filter(|value| !(least..=most).contains(value))?;
            Some((field, value, format!("from {least} to {most}")))
        })
    }
}
