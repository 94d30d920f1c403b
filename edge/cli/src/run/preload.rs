//! The library in front of the program's own: where it is, and what the program's environment says then.
//!
//! Called by `run/mod.rs`. The library is looked for where an installation or a build puts it: beside the command,
//! and in `../lib`. The loader splits `LD_PRELOAD` at spaces and colons, so a path with one cannot be given to it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use firelane_api::paths;
use firelane_model::SocketFilter;

use super::target::Target;

/// The library's file.
const LIBRARY: &str = "libfirelane_preload.so";
/// Names the library's file instead.
const LIBRARY_VARIABLE: &str = "FIRELANE_PRELOAD";
/// Libraries that the loader puts in front of a program's own (`ld.so(8)`).
const LOADER_VARIABLE: &str = "LD_PRELOAD";
/// What tells the library where it belongs.
const NETSTACK_VARIABLE: &str = "FIRELANE_NETSTACK";
const VNIC_VARIABLE: &str = "FIRELANE_VNIC";
const PROGRAMS_VARIABLE: &str = "FIRELANE_APP_SOCKET";
/// What its sockets begin with. Programs that it starts have it, too, as long as they keep their environment.
const FILTER_VARIABLE: &str = "FIRELANE_FILTER";

/// The library's path, or why there is none that could be used.
pub(super) fn library() -> Result<PathBuf, String> {
    let given = std::env::var_os(LIBRARY_VARIABLE).filter(|it| !it.is_empty()).map(PathBuf::from);
    let own = std::env::current_exe().ok();
    choose(given, own.as_deref().and_then(Path::parent))
}

fn choose(given: Option<PathBuf>, folder: Option<&Path>) -> Result<PathBuf, String> {
    let places = match (given, folder) {
        (Some(given), _) => vec![given],
        (None, Some(folder)) => vec![folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)],
        (None, None) => Vec::new(),
    };
    let Some(path) = places.iter().find_map(|it| it.canonicalize().ok().filter(|it| it.is_file())) else {
        let places: Vec<_> = places.iter().map(|it| it.display().to_string()).collect();
        return Err(format!("there is no {} ({LIBRARY_VARIABLE} names the library)", places.join(" or ")));
    };
    if path.as_os_str().as_bytes().iter().any(|byte| b" :\t".contains(byte)) {
        let path = path.display();
        return Err(format!("{path}: the loader takes no path with a space or a colon"));
    }
    Ok(path)
}

/// Makes `command` load `library` and find its netstack.
pub(super) fn prepare(
    command: &mut Command,
    library: &Path,
    target: &Target,
    filter: Option<&SocketFilter>,
) -> Result<(), String> {
    // Without a filter of its own it keeps that of a program that has started it.
    if let Some(filter) = filter {
        command.env(FILTER_VARIABLE, filter.text());
    }
    command.env(LOADER_VARIABLE, in_front(library, std::env::var_os(LOADER_VARIABLE)));
    command.env(NETSTACK_VARIABLE, target.netstack.as_str());
    match target.vnics.first().filter(|_| target.by_vnic) {
        Some(vnic) => command.env(VNIC_VARIABLE, vnic.as_str()),
        None => command.env_remove(VNIC_VARIABLE),
    };
    // Also where a program that is on a netstack starts another: it may have asked another daemon.
    let interface = crate::client::socket_of_environment();
    let interface = interface.ok_or_else(|| format!("set {} or XDG_RUNTIME_DIR", paths::SOCKET_VARIABLE))?;
    command.env(PROGRAMS_VARIABLE, paths::programs_socket(&interface));
    Ok(())
}

/// Takes `command` off the netstack that this command's own starter may be on.
pub(super) fn take_off(command: &mut Command) {
    let present = std::env::var_os(LOADER_VARIABLE);
    if present.is_none() && std::env::var_os(PROGRAMS_VARIABLE).is_none() {
        return;
    }
    // Also if nothing is left of it: an environment without it would be given the starter's again (edge/shim).
    command.env(LOADER_VARIABLE, list(others(&present.unwrap_or_default())));
    for name in [PROGRAMS_VARIABLE, NETSTACK_VARIABLE, VNIC_VARIABLE] {
        command.env_remove(name);
    }
}

/// `library` before what is preloaded already.
fn in_front(library: &Path, present: Option<OsString>) -> OsString {
    let present = present.unwrap_or_default();
    let behind = others(&present).filter(|it| *it != library.as_os_str());
    list(std::iter::once(library.as_os_str()).chain(behind))
}

/// What of a list of the loader is not the library, wherever that lies: two of them would answer the same calls.
fn others(present: &OsStr) -> impl Iterator<Item = &OsStr> {
    let entries = present.as_bytes().split(|byte| b" :".contains(byte)).filter(|it| !it.is_empty());
    entries.map(OsStr::from_bytes).filter(|it| Path::new(it).file_name() != Some(OsStr::new(LIBRARY)))
}

fn list<'a>(entries: impl Iterator<Item = &'a OsStr>) -> OsString {
    entries.collect::<Vec<_>>().join(OsStr::new(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_beside_the_command_or_in_lib_or_where_the_variable_says() {
        let folder = std::env::temp_dir().join(format!("firelane-preload-{}", std::process::id()));
        let [bin, lib, odd] = ["bin", "lib", "o dd"].map(|name| folder.join(name));
        for place in [&bin, &lib, &odd] {
            std::fs::create_dir_all(place).unwrap();
        }
        let missing = choose(None, Some(&bin)).unwrap_err();
        assert!(
            missing.contains("bin/libfirelane_preload.so or ") && missing.contains(LIBRARY_VARIABLE),
            "{missing}"
        );
        std::fs::write(lib.join(LIBRARY), "").unwrap();
        assert_eq!(choose(None, Some(&bin)), Ok(lib.join(LIBRARY).canonicalize().unwrap()));
        std::fs::write(bin.join(LIBRARY), "").unwrap();
        assert_eq!(choose(None, Some(&bin)), Ok(bin.join(LIBRARY).canonicalize().unwrap()));
        std::fs::write(odd.join(LIBRARY), "").unwrap();
        assert!(choose(Some(odd.join(LIBRARY)), Some(&bin)).unwrap_err().contains("no path with a space"));
        assert!(choose(Some(odd), Some(&bin)).unwrap_err().contains("there is no"), "a folder is no library");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_preloaded_already_stays_behind_it() {
        let list = |present: Option<&str>| in_front(Path::new("/l/f.so"), present.map(OsString::from));
        assert_eq!(list(None), "/l/f.so");
        assert_eq!(list(Some("")), "/l/f.so");
        assert_eq!(list(Some("/a.so /b.so")), "/l/f.so:/a.so:/b.so");
        assert_eq!(list(Some("/a.so:/l/f.so")), "/l/f.so:/a.so");
        assert_eq!(list(Some("/other/libfirelane_preload.so:/a.so")), "/l/f.so:/a.so", "another build of it");
    }
}
