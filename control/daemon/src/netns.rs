//! Network namespaces with a name, as `ip netns` has them: files below `/run/netns` that hold them.
//!
//! Called by `kernel.rs`. Only a thread can change its namespace, so everything that happens inside one is done
//! by a thread that ends afterwards. The conventions are those of iproute2 (`ip/ipnetns.c`), so that
//! `ip netns exec NAME` finds what is made here.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::netlink;

/// Where the files are.
const FOLDER: &str = "/run/netns";
/// `NSFS_MAGIC` of `linux/magic.h`: what a file is of that holds a namespace.
const NSFS_MAGIC: rustix::fs::FsWord = 0x6e73_6673;

/// What stands behind a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Presence {
    /// Nothing.
    Absent,
    /// A namespace, by its inode.
    Namespace(u64),
    /// A file that holds none: something ended before it was mounted.
    Leftover,
}

/// The file that holds the namespace `name`.
pub(crate) fn path_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Looks what stands behind `name`.
pub(crate) fn look(name: &str) -> io::Result<Presence> {
    let path = path_of(name);
    let file = match fs::metadata(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Presence::Absent),
        Err(error) => return Err(error),
    };
    let is_namespace = rustix::fs::statfs(&path)?.f_type == NSFS_MAGIC;
    Ok(if is_namespace { Presence::Namespace(file.ino()) } else { Presence::Leftover })
}

/// What tells a namespace from all others: the device and inode of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity(u64, u64);

/// That of a namespace that is open.
pub(crate) fn identity(namespace: impl AsFd) -> io::Result<Identity> {
    let file = rustix::fs::fstat(namespace)?;
    Ok(Identity(file.st_dev, file.st_ino))
}

/// The name of a namespace, if it has one.
pub(crate) fn name_of(namespace: Identity) -> Option<String> {
    let is_it = |file: &fs::DirEntry| {
        // What is mounted on the file, which the entry itself would not tell.
        fs::metadata(file.path()).is_ok_and(|it| Identity(it.dev(), it.ino()) == namespace)
    };
    let found = fs::read_dir(FOLDER).ok()?.flatten().find(is_it)?;
    found.file_name().into_string().ok()
}

/// Makes the namespace `name`, with its loopback interface up, and gives its inode.
pub(crate) fn create(name: &str) -> io::Result<u64> {
    share_folder()?;
    let path = path_of(name);
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o444).open(&path)?;
    let made = in_new_thread(|| {
        unshare_network()?;
        rustix::mount::mount_bind("/proc/thread-self/ns/net", &path)?;
        netlink::set_up("lo")
    });
    if let Err(error) = made {
        let _ = delete(name);
        return Err(error);
    }
    Ok(fs::metadata(&path)?.ino())
}

/// Removes the name; the namespace ends with the last process inside.
pub(crate) fn delete(name: &str) -> io::Result<()> {
    let path = path_of(name);
    match rustix::mount::unmount(&path, UnmountFlags::DETACH) {
        // Nothing is mounted there, or not even the file is there.
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Does `work` in a network namespace; without one, in the daemon's own.
pub(crate) fn inside<T: Send>(
    namespace: Option<&Path>,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    in_new_thread(|| {
        if let Some(path) = namespace {
            let file = File::open(path)?;
            let kind = Some(LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(file.as_fd(), kind)?;
        }
        work()
    })
}

fn in_new_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    // Where the kernel has no thread left it is an error as any, and what was begun is taken back.
    let ended = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, work)?;
        io::Result::Ok(thread.join())
    });
    ended?.unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace failed")))
}

#[expect(
    deprecated,
    reason = "deprecated for its flag FILES alone, which lets threads disagree on descriptors"
)]
fn unshare_network() -> io::Result<()> {
    Ok(rustix::thread::unshare(UnshareFlags::NEWNET)?)
}

/// Makes the folder a mount that other mount namespaces share, so that a name made or removed here is made or
/// removed for all of them.
fn share_folder() -> io::Result<()> {
    fs::create_dir_all(FOLDER)?;
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    match rustix::mount::mount_change(FOLDER, shared) {
        Err(rustix::io::Errno::INVAL) => {
            rustix::mount::mount_bind_recursive(FOLDER, FOLDER)?;
            Ok(rustix::mount::mount_change(FOLDER, shared)?)
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_file_is_absent() {
        assert_eq!(look("firelane-no-such-name").unwrap(), Presence::Absent);
        delete("firelane-no-such-name").unwrap();
    }

    #[test]
    fn a_panic_inside_is_an_error_outside() {
        assert!(inside::<()>(None, || panic!("as a test")).is_err());
        assert!(inside(Some(Path::new("/nonexistent")), || Ok(())).is_err());
    }
}
