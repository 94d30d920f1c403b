//! The persistent configuration: one file, `model.toml`, that the next start begins with.
//!
//! Called by `daemon.rs` at the start and by `host.rs` around every change. A file with something else in it is set
//! aside, not overwritten. A folder that cannot be written to refuses persistent changes and nothing else, and so does a file that could
//! not be read, as long as it is there: the next start may find it well.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use firelane_api::{ApiError, Status};
use firelane_model::{MODEL_TEXT_MAX, Model};

use crate::folder::{self, Prepared};
use crate::text::{first_of, plain};

/// The file's name, in the state folder.
const FILE: &str = "model.toml";
/// How many files that could not be read are kept, each by a name of its own; the last one is written over.
const KEPT_MAX: u32 = 10;

/// The persistent configuration's place.
#[derive(Clone, Debug)]
pub(crate) struct State {
    path: PathBuf,
    /// Why the file could not be read at the start.
    unread: OnceLock<String>,
}

/// What was found at the start.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing: this is the first start.
    Nothing,
    /// A configuration.
    Model(Box<Model>),
    /// Something else, and what is wrong with it.
    Broken(String),
    /// Something that could not be read: why is told by each write that is refused for it.
    Unread,
}

impl State {
    /// The state in `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { path: folder.join(FILE), unread: OnceLock::new() }
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it. A broken file is renamed, so that it can be repaired by hand.
    pub(crate) fn load(&self) -> Found {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Nothing,
            Err(error) => {
                let why = format!("{}: {}", self.path.display(), plain(&error));
                return match error.kind() {
                    // It is no text.
                    io::ErrorKind::InvalidData => self.broken(&why),
                    _ => {
                        self.unread.get_or_init(|| why);
                        Found::Unread
                    }
                };
            }
        };
        match Model::from_toml(&self.path.to_string_lossy(), &text) {
            Ok(model) => Found::Model(Box::new(model)),
            Err(faults) => self.broken(&first_of(&faults)),
        }
    }

    fn broken(&self, why: &str) -> Found {
        // One that was kept before may be the last that worked.
        let aside = |nth: u32| match nth {
            1 => self.path.with_extension("toml.broken"),
            _ => self.path.with_extension(format!("toml.broken.{nth}")),
        };
        let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
        let aside = (1..=KEPT_MAX).map(aside).find(is_free).unwrap_or_else(|| aside(KEPT_MAX));
        match fs::rename(&self.path, &aside) {
            Ok(()) => Found::Broken(format!("{why}; the file is kept as {}", aside.display())),
            Err(_) => Found::Broken(why.to_owned()),
        }
    }

    /// Writes `model` beside the file: the part of a change that a full disk can refuse. What [`load`](Self::load) would not read is refused as
    /// well, or the next start would begin with nothing.
    pub(crate) fn prepare(&self, model: &Model) -> Result<Prepared<'_>, ApiError> {
        let is_gone =
            || fs::symlink_metadata(&self.path).is_err_and(|it| it.kind() == io::ErrorKind::NotFound);
        if let Some(why) = self.unread.get().filter(|_| !is_gone()) {
            let text =
                format!("{why}: its configuration would be lost; start the daemon again, or move the file");
            return Err(ApiError::new(Status::Io, "state", self.path.display(), text));
        }
        if let Some(fault) = model.validate().first() {
            return Err(ApiError::new(Status::OutOfRange, "state", self.path.display(), fault.to_string()));
        }
        let text = model.to_toml();
        if text.len() > MODEL_TEXT_MAX {
            let allowed =
                format!("a configuration is at most {MODEL_TEXT_MAX} bytes, and this one {}", text.len());
            return Err(ApiError::new(Status::TooMany, "state", self.path.display(), allowed));
        }
        let unread = match Model::from_toml(FILE, &text) {
            Ok(again) => (again != *model).then(|| String::from("it would be another at the next start")),
            Err(faults) => Some(first_of(&faults)),
        };
        if let Some(why) = unread {
            return Err(ApiError::new(Status::OutOfRange, "state", self.path.display(), why));
        }
        // It has the secrets of memifs.
        folder::prepare_private(&self.path, &text).map_err(|error| self.refused(&error))
    }

    /// The error of a write that failed.
    pub(crate) fn refused(&self, error: &io::Error) -> ApiError {
        ApiError::new(Status::Io, "state", self.path.display(), plain(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::tests::Scratch;

    #[test]
    fn what_was_committed_is_found_again() {
        let folder = Scratch::new();
        let state = State::new(folder.path());
        assert!(matches!(state.load(), Found::Nothing));
        let model = Model::from_toml("test", "[etherstub.vswitch1]\n").unwrap();
        state.prepare(&model).unwrap().commit().unwrap();
        match state.load() {
            Found::Model(found) => assert_eq!(*found, model),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_the_next_start_would_not_read_is_not_written() {
        let folder = Scratch::new();
        let state = State::new(folder.path());
        let mut wrong =
            Model::from_toml("test", "[etherstub.s0]\n[vnic.a0]\nover = 's0'\ntap = {}\n").unwrap();
        wrong.etherstubs.clear();
        assert_eq!(state.prepare(&wrong).unwrap_err().status, Status::OutOfRange);
        let with_pool = |name: &str| {
            let network = |n: u32| {
                format!("'2001:db8:1111:2222:{:x}:{:x}:3333:4444/128',", 0x1000 + (n >> 16), n & 0xffff)
            };
            let networks: String = (0..200_000).map(network).collect();
            Model::from_toml("test", &format!("[netstack.{name}.pools]\n7 = [{networks}]\n")).unwrap()
        };
        let mut unwritten = Model::default();
        // Nobody can say it in a text.
        unwritten.daemon.lanes = firelane_model::Lanes::Count(1000);
        assert_eq!(unwritten.validate(), []);
        let refused = state.prepare(&unwritten).unwrap_err();
        assert_eq!(refused.status, Status::OutOfRange);
        assert!(refused.to_string().contains("lanes is auto or a number"), "{refused}");
        let (mut large, other) = (with_pool("a"), with_pool("b"));
        large.netstacks.extend(other.netstacks);
        assert_eq!(large.validate(), []);
        assert_eq!(state.prepare(&large).unwrap_err().status, Status::TooMany);
        assert!(matches!(state.load(), Found::Nothing), "nothing was written");
    }

    #[test]
    fn who_may_not_ask_the_daemon_does_not_read_its_configuration() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Scratch::new();
        let state = State::new(folder.path());
        state.prepare(&Model::default()).unwrap().commit().unwrap();
        assert_eq!(fs::metadata(state.path()).unwrap().permissions().mode() & 0o007, 0);
    }

    #[test]
    fn a_broken_file_is_named_and_set_aside() {
        let folder = Scratch::new();
        let state = State::new(folder.path());
        for content in [&b"[vnic.web0]\nover = 7\n"[..], b"\xff\xfe", b"[[["] {
            fs::write(state.path(), content).unwrap();
            match state.load() {
                Found::Broken(why) => {
                    assert!(why.contains("model.toml") && why.lines().count() == 1, "{why}");
                    assert!(why.contains("model.toml.broken"), "{why}");
                }
                other => panic!("{other:?}"),
            }
            assert!(matches!(state.load(), Found::Nothing), "it is out of the way");
        }
        let kept = ["model.toml.broken", "model.toml.broken.2", "model.toml.broken.3"];
        let kept = kept.map(|name| fs::read(folder.path().join(name)).unwrap());
        assert_eq!(kept, [&b"[vnic.web0]\nover = 7\n"[..], b"\xff\xfe", b"[[["], "each is kept");
    }

    #[test]
    fn a_file_that_could_not_be_read_stays_until_somebody_moves_it() {
        let folder = Scratch::new();
        let state = State::new(folder.path());
        // It cannot be read, by root neither.
        fs::create_dir(state.path()).unwrap();
        assert!(matches!(state.load(), Found::Unread));
        assert!(state.path().is_dir(), "it is where it was");
        let refused = state.prepare(&Model::default()).unwrap_err();
        assert_eq!(refused.status, Status::Io);
        let text = refused.to_string();
        assert!(text.contains("model.toml: ") && text.contains("start the daemon again"), "{text}");
        fs::remove_dir(state.path()).unwrap();
        state.prepare(&Model::default()).unwrap().commit().unwrap();
        assert!(matches!(state.load(), Found::Model(_)));
    }

    #[test]
    fn a_folder_that_is_gone_refuses_with_the_files_name() {
        let state = State::new(Path::new("/nonexistent"));
        assert!(
            state.prepare(&Model::default()).unwrap_err().to_string().contains("/nonexistent/model.toml")
        );
    }
}
