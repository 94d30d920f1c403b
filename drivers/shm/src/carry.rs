//! How messages travel over a control socket or a listener's pair: bytes, with descriptors beside them (SCM_RIGHTS).
//!
//! Used by both ends. Descriptors arrive with close-on-exec; what came is whole, or it is an error.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The most descriptors beside a message: an arena and every lane's bell.
pub const DESCRIPTORS_MAX: usize = 65;

/// The most that the kernel takes along (`SCM_MAX_FD`). There is room for all of them: those without room the kernel closes
/// at once, which may take as long as whoever sent them likes.
const TAKEN_MAX: usize = 253;

const SPACE: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX));
const TAKEN_SPACE: usize = rustix::cmsg_space!(ScmRights(TAKEN_MAX));

/// Sends a message with its descriptors. Without `wait`, `WouldBlock` if the other end does not take it at once.
///
/// # Errors
/// The other end is gone, or took a part only; more descriptors than [`DESCRIPTORS_MAX`].
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>], wait: bool) -> io::Result<()> {
    let mut space = [const { MaybeUninit::uninit() }; SPACE];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let fits = fds.len() <= DESCRIPTORS_MAX;
    if !fits || !fds.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | if wait { SendFlags::empty() } else { SendFlags::DONTWAIT };
    let sent = retry_on_intr(|| sendmsg(&socket, &[IoSlice::new(bytes)], &mut beside, flags))?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives a message of at most `to`'s length, and appends its descriptors to `fds`. Zero is the end. Without `wait`,
/// `WouldBlock` if there is none. A signal ends the wait: `Interrupted`. Descriptors for which this process has no number
/// left are not among them.
///
/// # Errors
/// The other end is gone, or the message did not fit.
pub fn receive(socket: impl AsFd, to: &mut [u8], fds: &mut Vec<OwnedFd>, wait: bool) -> io::Result<usize> {
    let mut space = [const { MaybeUninit::uninit() }; TAKEN_SPACE];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    let got = recvmsg(socket, &mut [IoSliceMut::new(to)], &mut beside, flags)?;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    if got.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(got.bytes)
}

/// Whether the other end has read all that was sent.
///
/// # Errors
/// It is no socket.
pub fn is_all_read(socket: impl AsFd) -> io::Result<bool> {
    Ok(crate::sys::unread(socket)? == 0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn inode(fd: impl AsFd) -> u64 {
        rustix::fs::fstat(fd).unwrap().st_ino
    }

    #[test]
    fn it_is_seen_what_is_still_to_be_read() {
        let (a, b) = pair(SocketType::STREAM);
        assert!(is_all_read(&a).unwrap());
        send(&a, b"hello", &[], true).unwrap();
        send(&a, b"hello", &[], true).unwrap();
        for is_last in [false, true] {
            assert!(!is_all_read(&a).unwrap());
            receive(&b, &mut [0; 5], &mut Vec::new(), false).unwrap();
            assert_eq!(is_all_read(&a).unwrap(), is_last);
        }
        assert!(is_all_read(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn descriptors_arrive_as_what_they_were() {
        let (a, b) = pair(SocketType::SEQPACKET);
        let all: Vec<BorrowedFd<'_>> = (0..DESCRIPTORS_MAX).map(|_| a.as_fd()).collect();
        send(&a, b"hello", &all, true).unwrap();
        let (mut bytes, mut fds) = ([0; 9], Vec::new());
        assert_eq!(receive(&b, &mut bytes, &mut fds, true).unwrap(), 5);
        assert_eq!((&bytes[..5], fds.len()), (&b"hello"[..], DESCRIPTORS_MAX));
        assert!(fds.iter().all(|fd| inode(fd) == inode(&a)));
        assert_eq!(receive(&b, &mut bytes, &mut fds, false).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop((a, fds));
        assert_eq!(receive(&b, &mut bytes, &mut Vec::new(), true).unwrap(), 0, "the end");
        assert!(send(&b, b"x", &[], true).is_err());
    }

    #[test]
    fn as_many_descriptors_as_the_kernel_takes_arrive() {
        let (a, b) = pair(SocketType::SEQPACKET);
        let all: Vec<BorrowedFd<'_>> = (0..TAKEN_MAX).map(|_| a.as_fd()).collect();
        let mut space = [const { MaybeUninit::uninit() }; TAKEN_SPACE];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(beside.push(SendAncillaryMessage::ScmRights(&all)));
        sendmsg(&a, &[IoSlice::new(b"x")], &mut beside, SendFlags::empty()).unwrap();
        let mut fds = Vec::new();
        assert_eq!(receive(&b, &mut [0; 9], &mut fds, true).unwrap(), 1);
        assert_eq!(fds.len(), TAKEN_MAX);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let (a, b) = pair(SocketType::SEQPACKET);
        let all: Vec<BorrowedFd<'_>> = (0..DESCRIPTORS_MAX + 1).map(|_| a.as_fd()).collect();
        assert_eq!(send(&a, b"x", &all, true).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        send(&a, b"long", &[], true).unwrap();
        let cut = receive(&b, &mut [0; 3], &mut Vec::new(), true).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn messages_of_one_length_stay_whole_on_a_stream() {
        let (daemon, program) = pair(SocketType::STREAM);
        for n in 0..3u8 {
            send(&daemon, &[n; 96], &[daemon.as_fd()], false).unwrap();
        }
        for n in 0..3 {
            let (mut bytes, mut fds) = ([0; 96], Vec::new());
            assert_eq!(receive(&program, &mut bytes, &mut fds, false).unwrap(), 96);
            assert_eq!((bytes, fds.len()), ([n; 96], 1), "one message and its own descriptor");
        }
    }
}
