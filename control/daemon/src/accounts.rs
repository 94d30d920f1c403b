//! Users and groups of the host: whether a process may use a netstack, by the model's word.
//!
//! Called by `programs.rs` with what the kernel says of the process at the other end of its connection (SO_PEERCRED). Names
//! are looked up in the host's own files; users of a directory service are named by their numbers.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use firelane::Kin;
use firelane_model::{AccountName, Programs};

/// The superuser.
const ROOT: u32 = 0;

/// A process' user and group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Peer {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

impl Peer {
    /// Its kin, by the namespaces that it lives in. Who may not see those knows of none.
    pub(crate) fn kin(self, pid: u32) -> Option<Kin> {
        let inode = |name| Some(std::fs::metadata(format!("/proc/{pid}/ns/{name}")).ok()?.ino());
        let Self { user, group } = self;
        Some(Kin { user, group, users: inode("user")?, processes: inode("pid")? })
    }
}

/// The host's users and groups.
#[derive(Debug)]
pub(crate) struct Accounts {
    users: String,
    groups: String,
}

impl Accounts {
    /// As the files say at present. Without them nobody has a name.
    pub(crate) fn read() -> Self {
        let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
        Self { users: read("/etc/passwd"), groups: read("/etc/group") }
    }

    /// Whether `peer` may use a netstack; `own` is the daemon, who may everything, as root and its group may if nobody is
    /// named.
    pub(crate) fn admit(&self, peer: Peer, own: Peer, programs: &Programs) -> bool {
        if peer.user == ROOT || peer.user == own.user {
            return true;
        }
        if !programs.names_users() {
            return self.is_in(peer, own.group);
        }
        let of_user = |name: &AccountName| number(&self.users, name.as_str()) == Some(peer.user);
        let of_group = |name: &AccountName| {
            number(&self.groups, name.as_str()).is_some_and(|group| self.is_in(peer, group))
        };
        programs.users.iter().any(of_user) || programs.groups.iter().any(of_group)
    }

    /// Whether the process has the group, or its user is a member of it.
    fn is_in(&self, peer: Peer, group: u32) -> bool {
        let name = self.name_of(peer.user);
        let is_member = |line: &str| {
            let mut fields = line.split(':').skip(2);
            let is_it = fields.next().and_then(|it| it.parse().ok()) == Some(group);
            is_it && fields.next().is_some_and(|members| members.split(',').any(|it| Some(it) == name))
        };
        peer.group == group || name.is_some() && self.groups.lines().any(is_member)
    }

    fn name_of(&self, user: u32) -> Option<&str> {
        let has = |line: &&str| line.split(':').nth(2).and_then(|it| it.parse().ok()) == Some(user);
        self.users.lines().find(has)?.split(':').next()
    }

    /// A user's name, or the number of who has none.
    pub(crate) fn spelled(&self, user: u32) -> String {
        self.name_of(user).map_or_else(|| user.to_string(), str::to_owned)
    }

    /// Why `peer` is not admitted.
    pub(crate) fn refusal(&self, peer: Peer, netstack: &str, programs: &Programs) -> String {
        let user = peer.user;
        let who = self.name_of(user).map_or_else(|| user.to_string(), |name| format!("{name} ({user})"));
        let allowed = if programs.names_users() {
            let list = [("users", &programs.users), ("groups", &programs.groups)];
            let some = list.into_iter().filter(|(_, names)| !names.is_empty());
            let some = some.map(|(kind, names)| format!("{kind} {}", join(names))).collect::<Vec<_>>();
            format!("allows {}", some.join(" and "))
        } else {
            "names nobody, so only who may configure the daemon may".to_owned()
        };
        format!("user {who} may not use netstack {netstack}: netstack.{netstack}.programs {allowed}")
    }
}

fn join(names: &BTreeSet<impl Display>) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The number of a name in a file of lines `name:password:number:...`; a number is its own.
fn number(file: &str, name: &str) -> Option<u32> {
    let of_line = |line: &str| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    };
    name.parse().ok().or_else(|| file.lines().find_map(of_line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAEMON: Peer = Peer { user: 500, group: 50 };

    fn accounts() -> Accounts {
        Accounts {
            users: "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:100::/:\nbob:x:1001:100::/:\n".to_owned(),
            groups: "wheel:x:50:bob\nusers:x:100:\nweb:x:33:alice,carol\n".to_owned(),
        }
    }

    fn programs(users: &[&str], groups: &[&str]) -> Programs {
        let all = |names: &[&str]| names.iter().map(|it| it.parse().unwrap()).collect();
        Programs { users: all(users), groups: all(groups), ..Programs::default() }
    }

    #[test]
    fn a_user_is_spelled_by_name_if_there_is_one() {
        assert_eq!([0, 1001, 7].map(|user| accounts().spelled(user)), ["root", "bob", "7"]);
    }

    #[test]
    fn who_is_named_or_belongs_to_the_daemon_may() {
        let (alice, bob) = (Peer { user: 1000, group: 100 }, Peer { user: 1001, group: 100 });
        let stranger = Peer { user: 1002, group: 7 };
        for (users, groups, peer, may) in [
            (&[][..], &[][..], Peer { user: 0, group: 9 }, true),
            (&[], &[], Peer { user: 500, group: 9 }, true),
            (&[], &[], Peer { user: 1002, group: 50 }, true),
            (&[], &[], bob, true),
            (&[], &[], alice, false),
            (&["alice"], &[], alice, true),
            (&["alice"], &[], bob, false),
            (&["alice"], &[], Peer { user: 0, group: 0 }, true),
            (&["1002"], &[], stranger, true),
            (&["nobody-there"], &[], stranger, false),
            (&[], &["web"], alice, true),
            (&[], &["web"], bob, false),
            (&[], &["33"], Peer { user: 1002, group: 33 }, true),
            (&[], &["users"], bob, true),
            (&["bob"], &["web"], alice, true),
        ] {
            let programs = programs(users, groups);
            assert_eq!(accounts().admit(peer, DAEMON, &programs), may, "{peer:?} {programs:?}");
        }
    }

    #[test]
    fn a_refusal_says_who_and_what_is_allowed() {
        let programs = programs(&["bob", "7"], &["web"]);
        assert_eq!(
            accounts().refusal(Peer { user: 1000, group: 100 }, "web", &programs),
            "user alice (1000) may not use netstack web: netstack.web.programs allows users 7, bob and groups web"
        );
        assert_eq!(
            accounts().refusal(Peer { user: 7, group: 7 }, "n", &Programs::default()),
            "user 7 may not use netstack n: netstack.n.programs names nobody, so only who may configure the daemon may"
        );
    }
}
