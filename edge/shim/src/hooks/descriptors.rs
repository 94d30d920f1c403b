//! Descriptors as such: copies, flags, and their end.

use core::ffi::{c_int, c_uint, c_ulong, c_void};

use libc::ifconf;
use rustix::io::Errno;

use crate::interfaces::IFREQ_BYTES;
use crate::real::hooks;
use crate::{buffers, descriptors, interfaces, ioctl, signals, socket};

hooks! {
    @point fn close(fd: c_int) -> c_int = descriptors::closing(fd);

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int =
        descriptors::closing_range(first, last, flags);

    /// In libc since 2.34.
    fn closefrom(first: c_int) -> () =
        descriptors::closing_range(first.max(0) as c_uint, c_uint::MAX, 0).map(|result| result.map(|_| ()));

    // SAFETY: no memory is involved.
    fn dup(fd: c_int) -> c_int = Some(Ok(descriptors::copied(fd, unsafe { next::dup(fd) })));

    fn dup2(fd: c_int, to: c_int) -> c_int =
        // SAFETY: no memory is involved.
        descriptors::copied_over(fd, to, || unsafe { next::dup2(fd, to) });

    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int =
        // SAFETY: no memory is involved.
        descriptors::copied_over(fd, to, || unsafe { next::dup3(fd, to, flags) });

    /// Variadic in C; the third argument stands in the same register.
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int =
        // SAFETY: the caller's arguments are handed on.
        descriptors::controlled(fd, command, argument, || unsafe { next::fcntl(fd, command, argument) });

    /// As `fcntl`.
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int =
        // SAFETY: the caller's arguments are handed on.
        descriptors::controlled(fd, command, argument, || unsafe { next::fcntl64(fd, command, argument) });

    /// Variadic in C; the third argument stands in the same register.
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int = {
        let bytes = ioctl::argument_bytes(request);
        if interfaces::is_asked(fd, request) {
            // SAFETY: the caller's promise about the argument of this request.
            match unsafe { about_interfaces(request, argument) } {
                // Netlink names and numbers the kernel's, and who has them from there asks on.
                Err(Errno::NODEV) if interfaces::is_for_any(request) => None,
                done => Some(done.map(|()| 0)),
            }
        } else if signals::is_about(request) {
            socket::at(fd).map(|s| {
                // SAFETY: the caller's arguments are handed on.
                let answer = unsafe { next::ioctl(fd, request, argument) };
                if answer == 0 {
                    signals::changed(&s);
                }
                Ok(answer)
            })
        } else {
            socket::at(fd).filter(|_| bytes > 0).map(|s| {
                ioctl::check(&s, request)?;
                if request == libc::FIONBIO {
                    // The program may have it where nobody may write.
                    let mut told = [0; size_of::<c_int>()];
                    // SAFETY: the caller's promise about the argument of this request.
                    told.copy_from_slice(unsafe { buffers::bytes(argument, size_of::<c_int>()) }?);
                    return ioctl::control(s, request, &mut told).map(|()| 0);
                }
                // SAFETY: the caller's promise about the argument of this request.
                ioctl::control(s, request, unsafe { buffers::bytes_mut(argument, bytes) }?).map(|()| 0)
            })
        }
    };

    /// Libc's asks the kernel past every hook.
    fn sockatmark(fd: c_int) -> c_int = socket::at(fd).map(|s| ioctl::is_at_mark(s).map(c_int::from));

    /// Detaches from the terminal. Libc itself puts `/dev/null` in the place of the first three descriptors.
    fn daemon(keep_folder: c_int, keep_descriptors: c_int) -> c_int = {
        // SAFETY: no memory is involved.
        let answer = unsafe { next::daemon(keep_folder, keep_descriptors) };
        if answer == 0 && keep_descriptors == 0 {
            descriptors::forget(0..=2);
        }
        Some(Ok(answer))
    };
}

/// A request about interfaces.
///
/// # Safety
/// `argument` is what the request takes, or among what [`buffers::check`] refuses.
unsafe fn about_interfaces(request: c_ulong, argument: *mut c_void) -> Result<(), Errno> {
    if request != libc::SIOCGIFCONF {
        // SAFETY: the caller's promise: a `struct ifreq`.
        let entry = unsafe { buffers::bytes_mut(argument, IFREQ_BYTES) }?;
        return interfaces::answer(request, entry.first_chunk_mut().ok_or(Errno::FAULT)?);
    }
    buffers::check_mut(argument, size_of::<ifconf>())?;
    let place = argument.cast::<ifconf>();
    // SAFETY: the caller's promise: a `struct ifconf`, which need not be aligned, as for the kernel.
    let mut list = unsafe { place.read_unaligned() };
    let known = interfaces::configured()?;
    // SAFETY: a union of pointers.
    let entries = unsafe { list.ifc_ifcu.ifcu_buf };
    let count = if entries.is_null() {
        known.len()
    } else {
        let room = usize::try_from(list.ifc_len).map_err(|_| Errno::INVAL)?;
        // SAFETY: the caller's promise: as many bytes as he says.
        let room = unsafe { buffers::bytes_mut(entries.cast(), room) }?;
        let (rooms, _) = room.as_chunks_mut::<IFREQ_BYTES>();
        rooms.iter_mut().zip(&known).for_each(|(room, entry)| *room = *entry);
        rooms.len().min(known.len())
    };
    list.ifc_len = (count * IFREQ_BYTES) as c_int;
    // SAFETY: as it was read.
    unsafe { place.write_unaligned(list) };
    Ok(())
}
