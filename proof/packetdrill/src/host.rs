//! Descriptors of the host: one behind each socket, and those that are the script's own, such as pipes.
//!
//! packetdrill closes with close(2) what a script leaves open, so each socket has a descriptor that exists: an AF_UNIX
//! socket that nobody uses. Its inode tells later whether the number still means it.

use crate::errno::{Errno, Sys};

/// A socket's descriptor.
#[derive(Debug)]
pub(crate) struct HostFd {
    pub(crate) fd: i32,
    inode: u64,
}

impl HostFd {
    pub(crate) fn open() -> Sys<Self> {
        // SAFETY: socket(2) takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
        checked(fd.into())?;
        let inode = inode(fd).ok_or_else(last)?;
        Ok(Self { fd, inode })
    }

    /// Closes it, unless packetdrill has and the number means something else now.
    pub(crate) fn close(self) {
        if inode(self.fd) == Some(self.inode) {
            // SAFETY: the descriptor is still the one that `open` made, and this value was its only owner here.
            unsafe { libc::close(self.fd) };
        }
    }
}

fn inode(fd: i32) -> Option<u64> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` has room for what fstat(2) writes.
    let result = unsafe { libc::fstat(fd, stat.as_mut_ptr()) };
    // SAFETY: fstat(2) has filled the structure if it returned zero.
    (result == 0).then(|| unsafe { stat.assume_init() }.st_ino)
}

/// The last error of the host.
fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

fn checked(result: i64) -> Sys<i64> {
    if result < 0 { Err(last()) } else { Ok(result) }
}

/// pipe(2).
pub(crate) fn pipe() -> Sys<[i32; 2]> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    checked(unsafe { libc::pipe(ends.as_mut_ptr()) }.into())?;
    Ok(ends)
}

/// read(2) of a descriptor that is none of ours.
pub(crate) fn read(fd: i32, to: &mut [u8]) -> Sys<usize> {
    // SAFETY: the pointer and the length are those of `to`.
    let count = unsafe { libc::read(fd, to.as_mut_ptr().cast(), to.len()) };
    checked(count as i64).map(|count| count as usize)
}

/// write(2) of a descriptor that is none of ours.
pub(crate) fn write(fd: i32, from: &[u8]) -> Sys<usize> {
    // SAFETY: the pointer and the length are those of `from`.
    let count = unsafe { libc::write(fd, from.as_ptr().cast(), from.len()) };
    checked(count as i64).map(|count| count as usize)
}

/// close(2) of a descriptor that is none of ours.
pub(crate) fn close(fd: i32) -> Sys<()> {
    // SAFETY: close(2) takes no pointers; the descriptor is the script's, which asked for it.
    checked(unsafe { libc::close(fd) }.into()).map(drop)
}

/// fcntl(2) with a number for its argument.
pub(crate) fn fcntl(fd: i32, command: i32, argument: i64) -> Sys<i32> {
    // SAFETY: the commands that take a pointer are not passed on by the caller.
    checked(unsafe { libc::fcntl(fd, command, argument) }.into()).map(|value| value as i32)
}

/// What poll(2) says of a descriptor that is none of ours, at once.
pub(crate) fn poll(fd: i32, events: i16) -> i16 {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry, and its place.
    unsafe { libc::poll(&mut entry, 1, 0) };
    entry.revents
}

/// Tells the calling thread why its call failed.
pub(crate) fn set_errno(number: i32) {
    // SAFETY: the C library gives each thread a place for its error number.
    unsafe { *libc::__errno_location() = number };
}
