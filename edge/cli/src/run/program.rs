//! The program: which file its name means, and what stands in the way of preloading a library into it.
//!
//! Called by `run/mod.rs`. What is looked at is what the kernel will load: a script's interpreter, and behind
//! `#!/usr/bin/env` the program that it will find.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::io::Errno;
use rustix::process::{Resource, getegid, geteuid, getrlimit};

use super::elf::{self, Elf};
use super::{EXIT_NOT_FOUND, EXIT_NOT_RUN};
use crate::common::system_message;

/// Where programs are looked for if `PATH` is not set, as the C library does.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// How often one script may be the interpreter of another: Linux' own limit is 5.
const SCRIPTS_MAX: usize = 5;
/// How much of a script's first line counts: Linux' `BINPRM_BUF_SIZE`.
const LINE_MAX: u64 = 256;
/// What runs a file that is neither a program nor says what runs it, by `execvp`'s rule.
const SHELL: &str = "/bin/sh";
/// With less address space a program has no room for an arena beside its own memory.
const ADDRESS_SPACE_MEGABYTES: u64 = 128;
/// The set-user-ID and set-group-ID bits, and the bit that makes the latter count.
const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2010;

/// Why a program cannot be run at all.
#[derive(Debug)]
pub(super) struct NotRun {
    pub(super) text: String,
    pub(super) code: u8,
}

/// Why no library can be put in front of a program's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Obstacle {
    /// What the file says.
    Elf(Elf),
    /// It takes on rights of somebody else, and the loader forgets what the environment asks for.
    Privileged(&'static str),
    /// Nobody can tell what it is.
    Unknown(String),
    /// It is a script, and this is wrong with what runs it.
    Interpreter(PathBuf, Box<Obstacle>),
    /// The library cannot be had.
    Library(String),
    /// There is not enough address space for what it shares with the daemon: as many bytes.
    AddressSpace(u64),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elf(Elf::Static) => f.write_str("statically linked"),
            Self::Elf(Elf::Go) => f.write_str("made by Go, which does not use the C library's sockets"),
            Self::Elf(Elf::Bare(call)) => {
                write!(
                    f,
                    "its own code makes the system call {call}, which does not go by the C library's sockets"
                )
            }
            Self::Elf(Elf::Foreign(what)) => f.write_str(what),
            Self::Elf(Elf::Dynamic(loader)) => {
                write!(f, "its loader is {}, not that of the GNU C library", loader.display())
            }
            Self::Privileged(what) => write!(f, "it has {what}, so its loader preloads nothing"),
            Self::Unknown(why) => write!(f, "cannot be looked at: {why}"),
            Self::Interpreter(path, why) => write!(f, "{}, which runs it: {why}", path.display()),
            Self::Library(why) => f.write_str(why),
            Self::AddressSpace(bytes) => {
                let kilobytes = bytes >> 10;
                write!(
                    f,
                    "its address space is limited (ulimit -v {kilobytes}): with sockets it takes {ADDRESS_SPACE_MEGABYTES} MB"
                )
            }
        }
    }
}

/// The exit code for a program that could not be run.
pub(super) fn code_of(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { EXIT_NOT_FOUND } else { EXIT_NOT_RUN }
}

/// Finds the file that `name` means, by `execvp`'s rules.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, NotRun> {
    find_in(name, &std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into()))
}

fn find_in(name: &OsStr, path: &OsStr) -> Result<PathBuf, NotRun> {
    let refused = |error: io::Error| NotRun { text: system_message(&error), code: code_of(&error) };
    if name.is_empty() {
        return Err(refused(Errno::NOENT.into()));
    }
    if name.as_bytes().contains(&b'/') {
        return runnable(Path::new(name)).map(|()| name.into()).map_err(refused);
    }
    let mut denied = None;
    for folder in std::env::split_paths(path) {
        let file = folder.join(name);
        match runnable(&file) {
            Ok(()) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied = Some(error),
            Err(_) => {}
        }
    }
    let not_found = || NotRun { text: "not found in PATH".to_owned(), code: EXIT_NOT_FOUND };
    Err(denied.map_or_else(not_found, refused))
}

fn runnable(file: &Path) -> io::Result<()> {
    if !fs::metadata(file)?.is_file() {
        return Err(Errno::ACCESS.into());
    }
    Ok(rustix::fs::access(file, Access::EXEC_OK)?)
}

/// A file that is going to run.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) obstacle: Option<Obstacle>,
}

impl Program {
    /// Looks at the program behind `path`.
    pub(super) fn look(path: &Path) -> Self {
        let limit = getrlimit(Resource::As).current;
        Self { obstacle: obstacle(path, SCRIPTS_MAX).or_else(|| narrow(limit)) }
    }
}

/// Whether so much address space is too little.
fn narrow(limit: Option<u64>) -> Option<Obstacle> {
    limit.filter(|&bytes| bytes < ADDRESS_SPACE_MEGABYTES << 20).map(Obstacle::AddressSpace)
}

fn obstacle(path: &Path, scripts: usize) -> Option<Obstacle> {
    let unknown = |error: io::Error| Some(Obstacle::Unknown(system_message(&error)));
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return unknown(error),
    };
    let mut head = Vec::new();
    if let Err(error) = file.by_ref().take(LINE_MAX).read_to_end(&mut head) {
        return unknown(error);
    }
    if !head.starts_with(elf::MAGIC) {
        // A script's own set-user-ID bit means nothing to Linux.
        return of_script(&head, scripts);
    }
    match elf::read(file, &head) {
        Err(error) => return Some(Obstacle::Unknown(error.to_string())),
        Ok(Elf::Dynamic(loader)) if is_gnu(&loader) => {}
        Ok(other) => return Some(Obstacle::Elf(other)),
    }
    match fs::metadata(path) {
        Ok(metadata) => privilege(path, &metadata).map(Obstacle::Privileged),
        Err(error) => unknown(error),
    }
}

fn is_gnu(loader: &Path) -> bool {
    loader.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-linux"))
}

/// The rights that a program takes on with which the kernel starts its loader in secure mode (`AT_SECURE`).
fn privilege(path: &Path, metadata: &Metadata) -> Option<&'static str> {
    let mode = metadata.mode();
    if mode & SET_USER != 0 && metadata.uid() != geteuid().as_raw() {
        return Some("the set-user-ID bit");
    }
    if mode & SET_GROUP == SET_GROUP && metadata.gid() != getegid().as_raw() {
        return Some("the set-group-ID bit");
    }
    let has_capabilities = rustix::fs::getxattr(path, "security.capability", &mut [0u8; 64]).is_ok();
    (has_capabilities && !geteuid().is_root()).then_some("file capabilities")
}

fn of_script(head: &[u8], scripts: usize) -> Option<Obstacle> {
    let (interpreter, argument) = match interpreter(head) {
        Some(words) => words,
        None => (PathBuf::from(SHELL), None),
    };
    if scripts == 0 {
        return Some(Obstacle::Unknown("too many scripts run each other".to_owned()));
    }
    let behind_env = argument.filter(|_| interpreter.file_name() == Some(OsStr::new("env")));
    let runs = match behind_env.as_deref().and_then(program_of_env).map(find) {
        None => interpreter,
        Some(Ok(found)) => found,
        Some(Err(refused)) => return Some(Obstacle::Unknown(refused.text)),
    };
    obstacle(&runs, scripts - 1).map(|why| Obstacle::Interpreter(runs, Box::new(why)))
}

/// A script's interpreter and the rest of its first line, by the kernel's rules.
fn interpreter(head: &[u8]) -> Option<(PathBuf, Option<OsString>)> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (path, rest) = (&line[..end], line[end..].trim_ascii());
    let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    (!path.is_empty()).then(|| (word(path).into(), (!rest.is_empty()).then(|| word(rest))))
}

/// The program that `env` will look for: the first word that is neither an option nor a variable.
fn program_of_env(argument: &OsStr) -> Option<&OsStr> {
    let mut words = argument.as_bytes().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.find(|word| !word.starts_with(b"-") && !word.contains(&b'=')).map(OsStr::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("firelane-run-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// An ELF file of 64 bits with the segments `(type, bytes)`.
    fn elf(machine: u16, segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for half in [3u16, machine] {
            bytes.extend(half.to_le_bytes());
        }
        bytes.extend(1u32.to_le_bytes());
        for word in [0u64, 64, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(0u32.to_le_bytes());
        for half in [64u16, 56, segments.len() as u16, 64, 0, 0] {
            bytes.extend(half.to_le_bytes());
        }
        let mut offset = 64 + 56 * segments.len();
        for (kind, content) in segments {
            let flags = if *kind == LOAD { 5u32 } else { 4 };
            bytes.extend(kind.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            let size = content.len() as u64;
            for word in [offset as u64, 0, 0, size, size, 4] {
                bytes.extend(word.to_le_bytes());
            }
            offset += content.len();
        }
        segments.iter().for_each(|(_, content)| bytes.extend(*content));
        bytes
    }

    /// The same with a table of symbols, of which these are the names.
    fn with_names(mut file: Vec<u8>, names: &[u8]) -> Vec<u8> {
        const SYMTAB: u32 = 2;
        const STRTAB: u32 = 3;
        let at = file.len() as u64;
        file.extend(names);
        let headers = file.len() as u64;
        for (kind, size, link) in [(0, 0, 0), (SYMTAB, 0, 2), (STRTAB, names.len() as u64, 0)] {
            file.extend([0, kind].iter().flat_map(|it: &u32| it.to_le_bytes()));
            file.extend([0, 0, at, size].iter().flat_map(|it: &u64| it.to_le_bytes()));
            file.extend([link, 0].iter().flat_map(|it: &u32| it.to_le_bytes()));
            file.extend([0u64; 2].iter().flat_map(|it| it.to_le_bytes()));
        }
        file[40..48].copy_from_slice(&headers.to_le_bytes());
        file[60..62].copy_from_slice(&3u16.to_le_bytes());
        file
    }

    const LOAD: u32 = 1;
    const INTERP: u32 = 3;
    const NOTE: u32 = 4;
    const GO: &[u8] = b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd";
    const CONNECT: &[u8] = b"\0_ZN6rustix7backend3net8syscalls7connect17h89daf1a10e37ac2fE\0";
    const GNU: &[u8] = b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0abcd";

    /// A program's own call of `socket`.
    fn own_call() -> &'static [u8] {
        if elf::MACHINE == 62 { b"\xb8\x29\0\0\0\x0f\x05" } else { b"\xc8\x18\x80\xd2\x01\0\0\xd4" }
    }

    /// A call whose number lies on the stack.
    fn unknown_call() -> &'static [u8] {
        if elf::MACHINE == 62 { b"\x48\x8b\x44\x24\x28\x0f\x05" } else { b"\xe8\x07\x40\xf9\x01\0\0\xd4" }
    }

    #[test]
    fn what_a_file_says_decides() {
        let folder = Folder::new("elf");
        let loader: (u32, &[u8]) = (INTERP, b"/lib64/ld-linux-x86-64.so.2\0");
        let mut narrow = elf(elf::MACHINE, &[loader]);
        narrow[4] = 1;
        let mut cut_off = elf(elf::MACHINE, &[loader]);
        cut_off.truncate(90);
        // Two pieces of code; the call lies across their border.
        let plain = vec![0x90; 3 << 20];
        let mut bare = plain.clone();
        let (at, call) = ((1 << 20) - 4, own_call());
        bare[at..at + call.len()].copy_from_slice(call);
        for (name, bytes, words) in [
            ("dynamic", elf(elf::MACHINE, &[(NOTE, GNU), loader]), None),
            ("static", elf(elf::MACHINE, &[(NOTE, GNU)]), Some("statically linked")),
            ("go", elf(elf::MACHINE, &[loader, (NOTE, GO)]), Some("made by Go")),
            (
                "musl",
                elf(elf::MACHINE, &[(INTERP, b"/lib/ld-musl-x86_64.so.1\0")]),
                Some("ld-musl-x86_64.so.1"),
            ),
            ("plain", elf(elf::MACHINE, &[loader, (LOAD, &plain)]), None),
            ("bare", elf(elf::MACHINE, &[loader, (LOAD, &bare)]), Some("makes the system call socket")),
            ("unknown", elf(elf::MACHINE, &[loader, (LOAD, unknown_call())]), None),
            ("files", with_names(elf(elf::MACHINE, &[loader, (LOAD, unknown_call())]), b"\0open\0"), None),
            ("by-libc", with_names(elf(elf::MACHINE, &[loader, (LOAD, &plain)]), CONNECT), None),
            (
                "unoptimised",
                with_names(elf(elf::MACHINE, &[loader, (LOAD, unknown_call())]), CONNECT),
                Some("makes the system call connect"),
            ),
            ("other", elf(2, &[loader]), Some("another machine (ELF machine 2)")),
            ("narrow", narrow, Some("a 32-bit program")),
            ("cut-off", cut_off, Some("cannot be looked at")),
        ] {
            let found = Program::look(&folder.file(name, &bytes, 0o755)).obstacle.map(|it| it.to_string());
            match words {
                None => assert_eq!(found, None, "{name}"),
                Some(words) => {
                    assert!(found.as_ref().is_some_and(|it| it.contains(words)), "{name}: {found:?}")
                }
            }
        }
    }

    #[test]
    fn a_limit_of_address_space_is_an_obstacle_if_it_is_too_low() {
        assert_eq!((narrow(None), narrow(Some(128 << 20)), narrow(Some(u64::MAX))), (None, None, None));
        let told = narrow(Some(100_000 << 10)).map(|it| it.to_string());
        assert_eq!(
            told.as_deref(),
            Some("its address space is limited (ulimit -v 100000): with sockets it takes 128 MB")
        );
    }

    #[test]
    fn a_script_is_what_runs_it() {
        let folder = Folder::new("script");
        let fixed = folder.file("fixed", &elf(elf::MACHINE, &[]), 0o755);
        let shown = |name: &str, text: String| {
            Program::look(&folder.file(name, text.as_bytes(), 0o755)).obstacle.map(|it| it.to_string())
        };
        let why = Some(format!("{}, which runs it: statically linked", fixed.display()));
        assert_eq!(shown("direct", format!("#! {} -x\nrest", fixed.display())), why);
        assert_eq!(shown("by-env", format!("#!/usr/bin/env -S A=b {} -x\n", fixed.display())), why);
        assert_eq!(shown("shell", "#!/bin/sh\n".to_owned()), shown("plain", "echo\n".to_owned()));
        let own = folder.0.join("circle");
        assert!(shown("circle", format!("#!{}\n", own.display())).is_some_and(|it| it.contains("too many")));
        assert!(
            shown("nothing", "#!/nonexistent/x\n".to_owned()).is_some_and(|it| it.contains("No such file"))
        );
    }

    #[test]
    fn rights_of_others_are_an_obstacle_unless_they_are_ours() {
        let folder = Folder::new("rights");
        let file = folder.file("own", b"", 0o6755);
        let metadata = fs::metadata(&file).unwrap();
        assert_eq!(privilege(&file, &metadata), None, "they are the user's own");
        let Ok(metadata) = fs::metadata("/usr/bin/passwd") else { return };
        if metadata.uid() != geteuid().as_raw() {
            assert_eq!(privilege(Path::new("/usr/bin/passwd"), &metadata), Some("the set-user-ID bit"));
        }
    }

    #[test]
    fn names_mean_what_they_mean_to_execvp() {
        let folder = Folder::new("path");
        let tool = folder.file("tool", b"", 0o755);
        let data = folder.file("data", b"", 0o644);
        let path = std::env::join_paths([Path::new("/nonexistent"), &folder.0]).unwrap();
        assert_eq!(find_in(OsStr::new("tool"), &path).unwrap(), tool);
        assert_eq!(find_in(tool.as_os_str(), OsStr::new("")).unwrap(), tool);
        for (name, code) in [
            (OsStr::new("nosuch"), EXIT_NOT_FOUND),
            (OsStr::new(""), EXIT_NOT_FOUND),
            (OsStr::new("/nonexistent/x"), EXIT_NOT_FOUND),
            (OsStr::new("/"), EXIT_NOT_RUN),
            (data.as_os_str(), EXIT_NOT_RUN),
            (OsStr::new("data"), EXIT_NOT_RUN),
        ] {
            assert_eq!(find_in(name, &path).unwrap_err().code, code, "{name:?}");
        }
        for (name, text) in [("", "No such file or directory"), ("/", "Permission denied")] {
            assert_eq!(find_in(OsStr::new(name), &path).unwrap_err().text, text, "{name:?}");
        }
    }
}
