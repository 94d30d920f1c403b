//! System calls without a safe wrapper, and rings that the kernel shares: the only unsafe code of this driver.
//!
//! Called by `bpf.rs`, `socket.rs` and `interface.rs`. Ring words are atomics; frames are copied in and out of the
//! memory, which the kernel may write at any time, and never lent. The kernel is trusted to keep to its side of the
//! rings, but addresses that it hands over are checked.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::net::xdp::{XdpRingOffset, XdpUmemReg, XdpUmemRegFlags};

/// `union bpf_attr`, as far as anything here needs it, with what it points to kept alive.
#[derive(Debug)]
pub(crate) struct Attributes<'a> {
    bytes: [u64; 16],
    kept: PhantomData<&'a [u8]>,
}

impl Default for Attributes<'_> {
    fn default() -> Self {
        Self { bytes: [0; 16], kept: PhantomData }
    }
}

impl<'a> Attributes<'a> {
    /// Writes a word at byte `at`, a multiple of four.
    pub(crate) fn put(&mut self, at: usize, value: u32) -> &mut Self {
        let mut pair = self.bytes[at / 8].to_ne_bytes();
        pair[at % 8..at % 8 + 4].copy_from_slice(&value.to_ne_bytes());
        self.bytes[at / 8] = u64::from_ne_bytes(pair);
        self
    }

    /// Writes a pointer that the kernel reads from at byte `at`, a multiple of eight.
    pub(crate) fn point(&mut self, at: usize, to: &'a [u8]) -> &mut Self {
        self.bytes[at / 8] = to.as_ptr() as u64;
        self
    }

    /// Writes a pointer that the kernel writes to.
    pub(crate) fn point_mut(&mut self, at: usize, to: &'a mut [u8]) -> &mut Self {
        self.bytes[at / 8] = to.as_mut_ptr() as u64;
        self
    }
}

/// bpf(2).
pub(crate) fn bpf(command: u32, attributes: &mut Attributes<'_>) -> Result<i32, Errno> {
    let length = size_of_val(&attributes.bytes);
    // SAFETY: the attributes are as long as is said, zero where nothing was written, and their pointers borrow what
    // they point to; callers give lengths that fit, and the kernel keeps no pointer.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.bytes.as_mut_ptr(), length) };
    if result < 0 { Err(last_error()) } else { Ok(result as i32) }
}

/// bpf(2) for commands that answer with a descriptor.
pub(crate) fn bpf_descriptor(command: u32, attributes: &mut Attributes<'_>) -> Result<OwnedFd, Errno> {
    let raw = bpf(command, attributes)?;
    // SAFETY: the command has just made this descriptor (close-on-exec) and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Memory that a NIC's queues share with us.
#[derive(Debug)]
pub(crate) struct Umem {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory that is only copied, by raw pointers.
unsafe impl Send for Umem {}
// SAFETY: as above; who copies where is decided by who holds the piece's address.
unsafe impl Sync for Umem {}

/// A large page of x86-64 and of Arm with small pages of 4 KiB.
const LARGE_PAGE_BYTES: usize = 2 << 20;

impl Umem {
    /// Zeroed memory of `len` bytes, whole large pages where the kernel has some: frames lie in all of it, a page each, and
    /// a processor remembers the places of fewer small pages than there are frames. The kernel fills it when it is registered.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let whole = len + LARGE_PAGE_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let first = unsafe { mmap_anonymous(ptr::null_mut(), whole, prot, flags) }?;
        let before = first.cast::<u8>().align_offset(LARGE_PAGE_BYTES);
        let base = first.wrapping_byte_add(before);
        // SAFETY: what is given back are the ends of the new mapping on both sides of the `len` bytes from `base`, whole pages as
        // both are; nobody has been told of them. One that cannot be given back costs no memory, as it is never touched.
        unsafe {
            if before > 0 {
                let _ = munmap(first, before);
            }
            let _ = munmap(base.wrapping_byte_add(len), LARGE_PAGE_BYTES - before);
        }
        // SAFETY: the range is the mapping that was just made. A kernel without large pages refuses, and has small ones.
        let _ = unsafe { madvise(base, len, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// Makes it the memory of a socket.
    pub(crate) fn register(&self, socket: impl AsFd, chunk_bytes: u32) -> Result<(), Errno> {
        let value = XdpUmemReg {
            addr: self.base.as_ptr() as u64,
            len: self.len as u64,
            chunk_size: chunk_bytes,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        rustix::net::sockopt::set_xdp_umem_reg(socket, value)
    }

    fn part(&self, at: u64, len: usize) -> Option<*mut u8> {
        let at = usize::try_from(at).ok()?;
        let is_inside = at <= self.len && len <= self.len - at;
        // SAFETY: the range was just checked to be inside the mapping.
        is_inside.then(|| unsafe { self.base.as_ptr().add(at) })
    }

    /// Starts to fetch the beginning of a frame from the CPU that has written it.
    #[inline]
    pub(crate) fn read_ahead(&self, at: u64, len: usize) {
        if let Some(from) = self.part(at, len) {
            firelane_frame::read_bytes_ahead(from, len);
        }
    }

    /// Copies bytes out. Whether all of the range is here.
    #[must_use]
    pub(crate) fn copy_out(&self, at: u64, to: &mut [u8]) -> bool {
        let Some(from) = self.part(at, to.len()) else { return false };
        // SAFETY: `from` is good for that many bytes and no Rust reference to them exists.
        unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        true
    }

    /// Copies bytes in. Whether all of the range is here.
    #[must_use]
    pub(crate) fn copy_in(&self, at: u64, from: &[u8]) -> bool {
        let Some(to) = self.part(at, from.len()) else { return false };
        // SAFETY: as in `copy_out`, the other way.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        true
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length. Sockets that still have it keep its pages.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// What a ring holds.
pub(crate) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for Descriptor {}

/// `struct xdp_desc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct Descriptor {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) options: u32,
}

/// One of a socket's four rings.
#[derive(Debug)]
pub(crate) struct Ring<T> {
    base: NonNull<u8>,
    len: usize,
    at: XdpRingOffset,
    size: u32,
    entries: PhantomData<T>,
}

// SAFETY: ring words are atomics, and its entries belong to one side at a time, as the cursors say.
unsafe impl<T: Entry> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
    /// Maps the ring that the kernel keeps at `page_offset` of a socket.
    pub(crate) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        at: XdpRingOffset,
        size: u32,
    ) -> io::Result<Self> {
        let len = at.desc as usize + size as usize * size_of::<T>();
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap(ptr::null_mut(), len, prot, flags, socket, page_offset) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, at, size, entries: PhantomData })
    }

    fn word(&self, at: u64) -> &AtomicU32 {
        // SAFETY: the kernel told this offset of an aligned word of the ring, which is mapped.
        unsafe { self.base.add(at as usize).cast().as_ref() }
    }

    /// How many entries it has.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// What the writing side has moved.
    pub(crate) fn producer(&self) -> u32 {
        self.word(self.at.producer).load(Ordering::Acquire)
    }

    /// What the reading side has moved.
    pub(crate) fn consumer(&self) -> u32 {
        self.word(self.at.consumer).load(Ordering::Acquire)
    }

    /// We have written up to here.
    pub(crate) fn publish(&self, cursor: u32) {
        self.word(self.at.producer).store(cursor, Ordering::Release);
    }

    /// We have read up to here.
    pub(crate) fn release(&self, cursor: u32) {
        self.word(self.at.consumer).store(cursor, Ordering::Release);
    }

    /// Whether the kernel sleeps on this ring and wants to be woken (`XDP_RING_NEED_WAKEUP`).
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.at.flags.is_some_and(|at| self.word(at).load(Ordering::Relaxed) & 1 != 0)
    }

    fn entry(&self, cursor: u32) -> *mut T {
        let index = cursor & (self.size - 1);
        // SAFETY: the size is a power of two, so the index is below it, and `map` has mapped so many entries.
        unsafe { self.base.as_ptr().add(self.at.desc as usize).cast::<T>().add(index as usize) }
    }

    /// Reads an entry that is ours by the cursors.
    pub(crate) fn read(&self, cursor: u32) -> T {
        // SAFETY: mapped and aligned; any bytes are an entry.
        unsafe { self.entry(cursor).read_volatile() }
    }

    /// Writes an entry that is ours by the cursors.
    pub(crate) fn write(&self, cursor: u32, entry: T) {
        // SAFETY: as in `read`.
        unsafe { self.entry(cursor).write_volatile(entry) };
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length; no reference outlives the ring.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Sends nothing: the kernel takes what the transmit ring holds.
pub(crate) fn kick_transmit(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: no bytes and no address are passed.
    let result =
        unsafe { libc::sendto(socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    if result < 0 { Err(last_error()) } else { Ok(()) }
}

/// Receives nothing: the kernel takes what the fill ring holds, or polls its device.
pub(crate) fn kick_receive(socket: BorrowedFd<'_>) {
    // What it answers is in the rings.
    // SAFETY: no bytes and no address are passed.
    unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
}

/// Sets a socket option that is a number.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    value: libc::c_int,
) -> Result<(), Errno> {
    // SAFETY: the kernel reads `size_of::<c_int>()` bytes from a live integer and keeps no pointer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            ptr::from_ref(&value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(last_error()) } else { Ok(()) }
}

/// The words of the longest question to ethtool that is asked here: link settings with three maps of 127 words each.
pub(crate) const ETHTOOL_WORDS: usize = 12 + 3 * 127;

/// Asks ethtool about an interface, or changes it: the first word is the command, and the answer comes in the same place. Only
/// commands whose structure is not longer than that, whatever the kernel finds in it.
pub(crate) fn ethtool(
    socket: BorrowedFd<'_>,
    name: &str,
    words: &mut [u32; ETHTOOL_WORDS],
) -> Result<(), Errno> {
    // SAFETY: these commands' structures fit into the words.
    unsafe { ask_ethtool(socket, name, words) }
}

/// Asks for the table of queues by which an interface deals out what it receives, or sets it: `ETHTOOL_GRXFHINDIR` and
/// `ETHTOOL_SRXFHINDIR`. Answers how many places the interface's has; a question without any asks for that alone.
pub(crate) fn queue_table(
    socket: BorrowedFd<'_>,
    name: &str,
    command: u32,
    table: &mut [u32],
) -> Result<u32, Errno> {
    let mut words = vec![command, table.len() as u32];
    words.extend_from_slice(table);
    // SAFETY: both commands read and write as many places as the second word says, and two words before them.
    unsafe { ask_ethtool(socket, name, &mut words)? };
    table.copy_from_slice(&words[2..]);
    Ok(words[1])
}

/// # Safety
/// The command, which is the first word, reads and writes no more than the words.
unsafe fn ask_ethtool(socket: BorrowedFd<'_>, name: &str, words: &mut [u32]) -> Result<(), Errno> {
    // SAFETY: `ifreq` is plain old data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: SIOCETHTOOL reads the request and reads or writes at most the words that it points to, as the caller says.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, ptr::from_mut(&mut request)) };
    if result < 0 { Err(last_error()) } else { Ok(()) }
}
