//! The record of what the daemon has made in the kernel and what would outlive it.
//!
//! Called by `kernel.rs`, which writes a thing down before it makes it, so that the next start can clean up
//! whatever moment ended the daemon. A TAP needs no record: it goes with its descriptors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::folder;
use crate::text::plain;

/// The file's name, in the state folder.
const FILE: &str = "owned.toml";

/// Namespaces and interfaces that are ours.
#[derive(Debug)]
pub(crate) struct Owned {
    path: PathBuf,
    record: Record,
    /// Why nobody knows what an earlier run has made, if nobody does.
    lost: Option<String>,
    /// Why the record on the disk is not true, if it is not.
    fault: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// Nothing that was made before the last boot exists.
    #[serde(default)]
    boot: String,
    /// Network namespaces with their inode, which is 0 until it is known.
    #[serde(default)]
    namespaces: BTreeMap<String, u64>,
    /// Near ends of veth pairs.
    #[serde(default)]
    interfaces: BTreeSet<String>,
}

impl Record {
    /// The one in the file, or an empty one if there is no file; else what is wrong with it.
    fn read(path: &Path) -> Result<Self, String> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(plain(&error)),
        };
        let record: Self = toml::from_str(&text).map_err(|error| error.message().to_owned())?;
        match record.foreign_name() {
            Some(name) => Err(format!("{name:?} is no name of ours")),
            None => Ok(record),
        }
    }

    /// A name that is a path: it would lead out of the folder in which its thing is removed.
    fn foreign_name(&self) -> Option<&str> {
        let mut names = self.namespaces.keys().chain(&self.interfaces).map(String::as_str);
        names.find(|name| name.contains('/') || matches!(*name, "" | "." | ".."))
    }
}

impl Owned {
    /// The record in `folder`; empty if there is none of this boot.
    pub(crate) fn load(folder: &Path) -> Self {
        Self::load_for(folder, &boot())
    }

    fn load_for(folder: &Path, boot: &str) -> Self {
        let path = folder.join(FILE);
        let (record, lost) = match Record::read(&path) {
            Ok(record) => (record, None),
            Err(why) => (Record::default(), Some(set_aside(&path, &why))),
        };
        let record = if record.boot == boot { record } else { Record::default() };
        Self { path, record: Record { boot: boot.to_owned(), ..record }, lost, fault: None }
    }

    /// Whether the namespace `name` with that inode is ours.
    pub(crate) fn has_namespace(&self, name: &str, inode: u64) -> bool {
        self.record.namespaces.get(name).is_some_and(|known| *known == inode || *known == 0)
    }

    /// Whether we have at least begun to make a namespace `name`.
    pub(crate) fn has_begun_namespace(&self, name: &str) -> bool {
        self.record.namespaces.contains_key(name)
    }

    /// The names of all namespaces that are ours.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        self.record.namespaces.keys().cloned().collect()
    }

    /// All interfaces that are ours.
    pub(crate) fn interfaces(&self) -> Vec<String> {
        self.record.interfaces.iter().cloned().collect()
    }

    /// Whether the interface `name` is ours.
    pub(crate) fn has_interface(&self, name: &str) -> bool {
        self.record.interfaces.contains(name)
    }

    /// Writes a namespace down: before it is made with inode 0, then with the one it has.
    pub(crate) fn note_namespace(&mut self, name: &str, inode: u64) {
        self.record.namespaces.insert(name.to_owned(), inode);
        self.save();
    }

    /// The namespace `name` is gone.
    pub(crate) fn forget_namespace(&mut self, name: &str) {
        self.record.namespaces.remove(name);
        self.save();
    }

    /// Writes an interface down.
    pub(crate) fn note_interface(&mut self, name: &str) {
        self.record.interfaces.insert(name.to_owned());
        self.save();
    }

    /// The interface `name` is gone.
    pub(crate) fn forget_interface(&mut self, name: &str) {
        self.record.interfaces.remove(name);
        self.save();
    }

    /// Why the next start might not clean up everything.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_ref().or(self.lost.as_ref()).map(String::as_str)
    }

    fn save(&mut self) {
        let text = toml::to_string(&self.record).expect("the record has only names and numbers");
        let written = folder::replace(&self.path, &text);
        self.fault = written.err().map(|error| {
            tracing::warn!("{}: {error}", self.path.display());
            format!(
                "{}: {}; what is made may remain if firelaned is killed",
                self.path.display(),
                plain(&error)
            )
        });
    }
}

/// Keeps a record that could not be read out of the way of the next one, for who wants to clean up by hand. What is to be told of it.
fn set_aside(path: &Path, why: &str) -> String {
    let aside = path.with_extension("toml.broken");
    let kept = match fs::rename(path, &aside) {
        Ok(()) => format!("; it is kept as {}", aside.display()),
        Err(_) => String::new(),
    };
    let text = format!("{}: {why}; what an earlier run has made may remain{kept}", path.display());
    tracing::error!("{text}");
    text
}

/// The kernel's name for the time since the last boot.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;

    #[test]
    fn what_is_noted_is_known_after_a_restart_but_not_after_a_boot() {
        let folder = Scratch::new();
        let mut owned = Owned::load_for(folder.path(), "boot 1");
        owned.note_namespace("alice", 0);
        owned.note_namespace("bob", 77);
        owned.note_interface("fl1");
        let again = Owned::load_for(folder.path(), "boot 1");
        assert_eq!(
            (again.namespaces(), again.interfaces()),
            (vec!["alice".into(), "bob".into()], vec!["fl1".into()])
        );
        assert!(again.has_namespace("alice", 5), "its inode was never learnt");
        assert!(again.has_namespace("bob", 77) && !again.has_namespace("bob", 78));
        assert!(!again.has_begun_namespace("carol"));
        assert!(Owned::load_for(folder.path(), "boot 2").namespaces().is_empty());
        owned.forget_namespace("alice");
        owned.forget_interface("fl1");
        let again = Owned::load_for(folder.path(), "boot 1");
        assert_eq!((again.namespaces(), again.interfaces()), (vec!["bob".into()], vec![]));
    }

    #[test]
    fn a_record_with_a_path_for_a_name_is_nobodys() {
        for name in ["/etc/passwd", "../alice", "..", ".", ""] {
            for table in [format!("[namespaces]\n\"{name}\" = 0"), format!("interfaces = [\"{name}\"]")] {
                let folder = Scratch::new();
                let text = format!("boot = \"boot\"\n{table}\n");
                fs::write(folder.path().join(FILE), text).unwrap();
                let owned = Owned::load_for(folder.path(), "boot");
                assert!(owned.namespaces().is_empty() && owned.interfaces().is_empty(), "{table}");
                assert!(owned.fault().is_some_and(|it| it.contains(&format!("{name:?}"))), "{table}");
            }
        }
    }

    #[test]
    fn a_record_that_cannot_be_written_is_a_named_fault() {
        let mut lost = Owned::load_for(Path::new("/nonexistent"), "boot");
        assert_eq!(lost.fault(), None, "there is none as yet");
        lost.note_interface("fl1");
        assert!(lost.fault().unwrap().contains("/nonexistent/owned.toml"));
    }

    #[test]
    fn a_record_that_cannot_be_read_is_set_aside_and_told_of_all_along() {
        let aside = |folder: &Scratch| folder.path().join("owned.toml.broken");
        for content in
            [&b"namespaces = 7\n"[..], b"later = 1\n", b"boot = 'bo", b"\xff", b"interfaces = ['..']\n"]
        {
            let folder = Scratch::new();
            fs::write(folder.path().join(FILE), content).unwrap();
            let mut owned = Owned::load_for(folder.path(), "boot");
            for _ in 0..2 {
                assert!(
                    owned.fault().is_some_and(|it| it.contains("owned.toml.broken")),
                    "{:?}",
                    owned.fault()
                );
                owned.note_interface("fl1");
            }
            assert_eq!(fs::read(aside(&folder)).unwrap(), content);
            assert_eq!(Owned::load_for(folder.path(), "boot").interfaces(), ["fl1"]);
        }
        let folder = Scratch::new();
        // It cannot be read, by root neither.
        fs::create_dir(folder.path().join(FILE)).unwrap();
        let mut owned = Owned::load_for(folder.path(), "boot");
        owned.note_interface("fl1");
        assert!(aside(&folder).is_dir() && owned.fault().is_some());
    }
}
