//! The persistent configuration: one file, `model.toml`, that the next start begins with.
//!
//! Called by `daemon.rs` at the start and by `host.rs` around every change. A file with something else in it is set
//! aside, not overwritten, and so is one that somebody has edited while the daemon ran. A folder that cannot be written
//! to refuses persistent changes and nothing else, and so does a file that could not be read, as long as it is there: the
//! next start may find it well.

use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use firelane_api::{ApiError, Status};
use firelane_model::{MODEL_TEXT_MAX, Model};

use crate::folder;
use crate::text::{first_of, plain};

/// The file's name, in the state folder.
const FILE: &str = "model.toml";
/// How many files that could not be read are kept, and how many that were edited, each by a name of its own; the last one is written over.
const KEPT_MAX: u32 = 10;
/// What stands on top of the file, for who opens it.
const HEAD: &str = "# What firelaned begins with. It writes this file whenever something changes: `firelane apply FILE` and the other\n\
                    # commands change both it and what runs; see firelaned(8).\n\n";

/// The persistent configuration's place.
#[derive(Clone, Debug)]
pub(crate) struct State {
    path: PathBuf,
    /// Why the file could not be read at the start.
    unread: OnceLock<String>,
    known: Arc<Mutex<Known>>,
}

/// What this daemon knows of the file.
#[derive(Clone, Default, Debug)]
struct Known {
    /// What was read at the start or written last, as a number.
    content: Option<u64>,
    /// The file that was looked at last, and whether it says the same.
    looked: Option<(Stamp, bool)>,
    /// The last one that somebody had edited, under the name by which it is kept.
    kept: Option<PathBuf>,
}

/// A state of the file: another one after each write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp([u64; 3], [i64; 2]);

impl Stamp {
    fn of(file: &Metadata) -> Self {
        Self([file.dev(), file.ino(), file.size()], [file.mtime(), file.mtime_nsec()])
    }
}

/// A new content of the file that is on the disk but not yet in its place.
#[derive(Debug)]
pub(crate) struct Prepared<'a> {
    state: &'a State,
    file: folder::Prepared<'a>,
    content: u64,
}

impl Prepared<'_> {
    /// Puts it in its place.
    pub(crate) fn commit(self) -> io::Result<()> {
        self.file.commit()?;
        let mut known = self.state.known();
        known.content = Some(self.content);
        known.looked = fs::metadata(&self.state.path).ok().map(|file| (Stamp::of(&file), true));
        Ok(())
    }
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
        Self { path: folder.join(FILE), unread: OnceLock::new(), known: Arc::default() }
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
            Ok(model) => {
                self.known().content = Some(number(&model.to_toml()));
                Found::Model(Box::new(model))
            }
            Err(faults) => self.broken(&first_of(&faults)),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each field is right by itself.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names by which files are kept of which something is `wrong`.
    fn names(&self, wrong: &str) -> impl Iterator<Item = PathBuf> {
        (1..=KEPT_MAX).map(move |nth| match nth {
            1 => self.path.with_extension(format!("toml.{wrong}")),
            _ => self.path.with_extension(format!("toml.{wrong}.{nth}")),
        })
    }

    /// The first of these names that is free, or the last one.
    fn free(&self, wrong: &str) -> PathBuf {
        // One that was kept before may be the last that worked.
        let free = self.names(wrong).find(|path| fs::symlink_metadata(path).is_err());
        free.or_else(|| self.names(wrong).last()).unwrap_or_default()
    }

    fn broken(&self, why: &str) -> Found {
        let aside = self.free("broken");
        match fs::rename(&self.path, &aside) {
            Ok(()) => Found::Broken(format!("{why}; the file is kept as {}", aside.display())),
            Err(_) => Found::Broken(why.to_owned()),
        }
    }

    /// The file, if what it says is neither what this daemon has read or written, nor what `but` is.
    fn edited(&self, but: Option<u64>) -> Option<Metadata> {
        let file = fs::metadata(&self.path).ok().filter(Metadata::is_file)?;
        let (stamp, mut known) = (Stamp::of(&file), self.known());
        match known.looked {
            Some((looked, true)) if looked == stamp => return None,
            Some((looked, false)) if looked == stamp && but.is_none() => return Some(file),
            _ => {}
        }
        // Whose rights alone are others is as it was.
        let bytes = fs::read(&self.path).ok()?;
        let model = str::from_utf8(&bytes).ok().and_then(|text| Model::from_toml(FILE, text).ok());
        let content = model.map(|model| number(&model.to_toml()));
        let is_known = content.is_some() && content == known.content;
        known.looked = Some((stamp, is_known));
        (!is_known && (content.is_none() || content != but)).then_some(file)
    }

    /// What is wrong with the file, or was.
    pub(crate) fn problem(&self) -> Option<String> {
        let (path, is_edited) = (self.path.display(), self.edited(None).is_some());
        if is_edited {
            return Some(format!(
                "{path}: was changed by another than firelaned; `firelane apply {path}` takes it over, and the next change of anything \
                 else replaces it"
            ));
        }
        let kept = self.known().kept.clone()?;
        Some(format!(
            "{path}: was changed by another than firelaned and then replaced; it is kept as {}",
            kept.display()
        ))
    }

    /// Keeps the file if somebody has edited it, unless he has written what becomes of it now.
    fn keep(&self, becomes: u64) -> Result<(), ApiError> {
        let Some(file) = self.edited(Some(becomes)) else { return Ok(()) };
        // A change that was prepared before and not made has kept it.
        let is_it = |path: &PathBuf| {
            fs::symlink_metadata(path).is_ok_and(|it| (it.dev(), it.ino()) == (file.dev(), file.ino()))
        };
        let aside = self.names("edited").find(is_it).map_or_else(
            || {
                let aside = self.free("edited");
                match fs::remove_file(&aside) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => fs::hard_link(&self.path, &aside)?,
                }
                Ok(aside)
            },
            Ok,
        );
        let aside = aside.map_err(|error| {
            let why = format!("was changed by another than firelaned and cannot be kept: {}", plain(&error));
            ApiError::new(Status::Io, "state", self.path.display(), why)
        })?;
        tracing::warn!(
            "{}: was changed by another than firelaned; it is kept as {}",
            self.path.display(),
            aside.display()
        );
        self.known().kept = Some(aside);
        Ok(())
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
        let said = model.to_toml();
        let text = format!("{HEAD}{said}");
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
        let content = number(&said);
        self.keep(content)?;
        // It has the secrets of memifs.
        let file = folder::prepare_private(&self.path, &text).map_err(|error| self.refused(&error))?;
        Ok(Prepared { state: self, file, content })
    }

    /// The error of a write that failed.
    pub(crate) fn refused(&self, error: &io::Error) -> ApiError {
        ApiError::new(Status::Io, "state", self.path.display(), plain(error))
    }
}

/// A number that another text has not.
fn number(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
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
    fn what_somebody_has_written_into_the_file_is_told_and_kept() {
        let folder = Scratch::new();
        let state = State::new(folder.path());
        let model = |text: &str| Model::from_toml("test", text).unwrap();
        let write = |model: &Model| state.prepare(model).unwrap().commit().unwrap();
        let kept = |name: &str| fs::read_to_string(folder.path().join(name)).ok();
        write(&model("[etherstub.s1]\n"));
        assert_eq!(state.problem(), None);
        // Other words for the same are no other configuration.
        fs::write(state.path(), "# by hand\n[etherstub]\ns1 = {}\n").unwrap();
        assert_eq!(state.problem(), None);
        write(&model("[etherstub.s2]\n"));
        assert_eq!((state.problem(), kept("model.toml.edited")), (None, None));
        for (nth, edited) in ["[etherstub.s7]\n", "[etherstub.s", ""].into_iter().enumerate() {
            fs::write(state.path(), edited).unwrap();
            let told = state.problem().unwrap();
            assert!(told.contains("model.toml") && told.contains("firelane apply"), "{told}");
            // A change that is not made after all does not keep it twice.
            drop(state.prepare(&model("[etherstub.s3]\n")).unwrap());
            assert_eq!(fs::read_to_string(state.path()).unwrap(), edited);
            write(&model("[etherstub.s3]\n"));
            let aside = ["model.toml.edited", "model.toml.edited.2", "model.toml.edited.3"];
            assert_eq!(kept(aside[nth]).as_deref(), Some(edited));
            assert!(aside[nth + 1..].iter().all(|name| kept(name).is_none()), "{nth}");
            let told = state.problem().unwrap();
            assert!(told.contains(aside[nth]), "{told}");
            assert!(matches!(state.load(), Found::Model(it) if *it == model("[etherstub.s3]\n")));
        }
        // Who carries out what was written has lost nothing.
        fs::write(state.path(), "[etherstub.s8]\n").unwrap();
        write(&model("[etherstub.s8]\n"));
        assert_eq!(kept("model.toml.edited.4"), None);
    }

    #[test]
    fn the_file_says_who_writes_it() {
        let folder = Scratch::new();
        let state = State::new(folder.path());
        state.prepare(&Model::default()).unwrap().commit().unwrap();
        let text = fs::read_to_string(state.path()).unwrap();
        assert!(text.starts_with("# ") && text.contains("firelane apply"), "{text}");
    }

    #[test]
    fn a_folder_that_is_gone_refuses_with_the_files_name() {
        let state = State::new(Path::new("/nonexistent"));
        assert!(
            state.prepare(&Model::default()).unwrap_err().to_string().contains("/nonexistent/model.toml")
        );
    }
}
