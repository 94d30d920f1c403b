//! The control socket: messages with descriptors beside them, and the socket's path.
//!
//! Called by `keeper.rs` and `open.rs`. Nothing here waits.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg, socket_with,
};

use crate::config::OpenError;
use crate::message::{MESSAGE_BYTES, Message};

/// More descriptors than this come beside no message; the kernel closes the others.
const DESCRIPTORS_MAX: usize = 4;
const SPACE: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX));
/// How often a path is tried that others take and give up meanwhile.
const BIND_TRIES: usize = 4;
/// Clients that wait while one is being served.
const BACKLOG: i32 = 8;

/// Sends a message. One that finds no room at once is an error: 128 bytes always do, with an honest reader.
pub(crate) fn send(socket: impl AsFd, message: &Message, beside: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [const { MaybeUninit::uninit() }; SPACE];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = beside.as_slice();
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = message.encode();
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(&bytes)], &mut ancillary, flags))?;
    Ok(())
}

/// What came.
#[derive(Debug)]
pub(crate) enum Arrival {
    Message([u8; MESSAGE_BYTES], Vec<OwnedFd>),
    /// Not 128 bytes, or more descriptors than any message has.
    Malformed,
    /// With descriptors that this process has no room for.
    NoRoom,
    End,
    Nothing,
}

/// Receives a message, without waiting.
pub(crate) fn receive(socket: impl AsFd) -> Arrival {
    let mut space = [const { MaybeUninit::uninit() }; SPACE];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; MESSAGE_BYTES];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags);
    let got = match got {
        Ok(got) => got,
        Err(Errno::AGAIN | Errno::INTR) => return Arrival::Nothing,
        Err(_) => return Arrival::End,
    };
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    if got.bytes == 0 {
        return Arrival::End;
    }
    // The kernel cuts off both what the message has no place for and what this process may not have.
    if got.flags.contains(ReturnFlags::CTRUNC) && fds.len() < DESCRIPTORS_MAX {
        return Arrival::NoRoom;
    }
    if got.bytes != MESSAGE_BYTES || got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Arrival::Malformed;
    }
    Arrival::Message(bytes, fds)
}

fn seqpacket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Connects to a server, without waiting.
pub(crate) fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = seqpacket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// The path that a server's socket was bound to, and what tells that socket from another one at the same path.
#[derive(Debug)]
pub(crate) struct Bound {
    path: PathBuf,
    file: (u64, u64),
}

impl Bound {
    fn at(path: &Path) -> Result<Self, Errno> {
        Ok(Self { path: path.to_owned(), file: file_at(path)? })
    }

    /// Removes the socket from its path. Somebody may have tidied it away, and another server may listen there.
    pub(crate) fn remove(&self) {
        if file_at(&self.path) == Ok(self.file) {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// Device and inode of what has a path; as long as a socket is open that was bound there, nothing else has its inode.
fn file_at(path: &Path) -> Result<(u64, u64), Errno> {
    let status = rustix::fs::lstat(path)?;
    Ok((status.st_dev, status.st_ino))
}

/// Listens at `path`. What a dead server left there is removed; the socket is its owner's alone.
pub(crate) fn listen(path: &Path) -> Result<(OwnedFd, Bound), OpenError> {
    let failed = |what| move |error: Errno| OpenError::System(what, error.into());
    let socket = seqpacket().map_err(|error| OpenError::System("control socket", error))?;
    let address = SocketAddrUnix::new(path).map_err(failed("control socket's path"))?;
    let mut tries = BIND_TRIES;
    while let Err(error) = rustix::net::bind(&socket, &address) {
        if error != Errno::ADDRINUSE {
            return Err(OpenError::System("binding the control socket", error.into()));
        }
        if tries == 0 {
            return Err(OpenError::InUse(path.to_owned()));
        }
        tries -= 1;
        make_way(path)?;
    }
    rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR).map_err(failed("the control socket's permissions"))?;
    rustix::net::listen(&socket, BACKLOG).map_err(failed("listening on the control socket"))?;
    let bound = Bound::at(path).map_err(failed("control socket's path"))?;
    Ok((socket, bound))
}

/// Whether a server could have `path`: nothing is there, or the socket of a dead one. Nothing is changed there; a server that lives
/// hears of somebody who comes and goes.
///
/// # Errors
/// [`OpenError`] says what has it.
pub fn check_path(path: &Path) -> Result<(), OpenError> {
    has_dead_socket(path).map(drop)
}

/// Whether a server could have it because the socket of a dead one is there, and not because nothing is.
fn has_dead_socket(path: &Path) -> Result<bool, OpenError> {
    let failed = |error: Errno| OpenError::System("control socket's path", error.into());
    let status = match rustix::fs::lstat(path) {
        Err(Errno::NOENT) => return Ok(false),
        status => status.map_err(failed)?,
    };
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket {
        return Err(OpenError::NoSocket(path.to_owned()));
    }
    // Only a socket that nobody listens on refuses.
    match connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        _ => Err(OpenError::InUse(path.to_owned())),
    }
}

/// Removes the socket that a dead server has left at `path`. Who had the path may have given it up meanwhile.
fn make_way(path: &Path) -> Result<(), OpenError> {
    let failed = |what| move |error: Errno| OpenError::System(what, error.into());
    if !has_dead_socket(path)? {
        return Ok(());
    }
    match rustix::fs::unlink(path) {
        Err(Errno::NOENT) => Ok(()),
        removed => removed.map_err(failed("removing a dead server's socket")),
    }
}

/// The next client; `None` if there is none. An error says that one may wait who cannot be had.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<Option<OwnedFd>> {
    match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
