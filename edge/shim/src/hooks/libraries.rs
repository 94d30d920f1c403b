//! Loading libraries while the program runs, and what is looked up in them. With RTLD_DEEPBIND a library finds libc's functions past every
//! preloaded library: its sockets would be the kernel's, and ours in its hands none (PHP loads its extensions so). So the flag is left out.
//! What a library that is loaded without it finds first is what every library that was linked finds.
//!
//! Nor are the preloaded ones asked by who has libc's own handle, as interpreters get it for what runs in them (ctypes, JNA, P/Invoke). So
//! where a program opens libc it is given the handle of this library, behind which the loader looks in libc, for this needs it.
//!
//! `dlopen` looks for its caller, by whose RUNPATH and $ORIGIN it searches, so nothing may stand between the two: the call goes on with
//! its own return address. So does `dlvsym`, for RTLD_NEXT.

// These calls stand in front of libc's on one platform as yet.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr::{null, null_mut};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::OnceLock;

use libc::{Dl_info, RTLD_LAZY, RTLD_NOLOAD};

use crate::real::Next;
use crate::session;

static DLOPEN: Next = Next::new(c"dlopen");
static DLMOPEN: Next = Next::new(c"dlmopen");
static DLVSYM: Next = Next::new(c"dlvsym");

extern "C" fn next_dlopen() -> *mut c_void {
    DLOPEN.address()
}

extern "C" fn next_dlmopen() -> *mut c_void {
    DLMOPEN.address()
}

extern "C" fn next_dlvsym() -> *mut c_void {
    DLVSYM.address()
}

/// Looks up the functions behind these.
pub(super) fn resolve() {
    next_dlopen();
    next_dlmopen();
    next_dlvsym();
}

/// Libc, as the loader calls it. Of libpthread old programs know that it has calls of sockets, too; they are libc's by now.
const LIBC: &CStr = c"libc.so.6";
const PTHREAD: &CStr = c"libpthread.so.0";

/// A library that is loaded.
struct Loaded {
    handle: *mut c_void,
    path: CString,
}

// SAFETY: a handle is a number to this library, and neither of those that have one is ever unloaded.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Loaded {
    /// Where its file was found.
    fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.path.as_bytes()))
    }
}

/// Libc and this library, once a program asks for the first.
fn known() -> Option<&'static (Loaded, Loaded)> {
    static KNOWN: OnceLock<Option<(Loaded, Loaded)>> = OnceLock::new();
    let find = || {
        let path = |function: *const c_void| {
            let info = info(function)?;
            // SAFETY: the loader's name of a library that stays.
            Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_owned())
        };
        let loaded = |name: &CStr, path: CString| {
            let handle = open(name, RTLD_LAZY | RTLD_NOLOAD);
            (!handle.is_null()).then_some(Loaded { handle, path })
        };
        let own = path(known as *const c_void)?;
        let of_libc = open(LIBC, RTLD_LAZY | RTLD_NOLOAD);
        // SAFETY: a handle of the loader's, and a name.
        let function = unsafe { libc::dlsym(of_libc, c"gnu_get_libc_version".as_ptr()) };
        Some((loaded(LIBC, path(function)?)?, loaded(&own.clone(), own)?))
    };
    KNOWN.get_or_init(find).as_ref()
}

/// `dlopen`, as this library calls it.
fn open(name: &CStr, flags: c_int) -> *mut c_void {
    // SAFETY: the function of this name.
    let open: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void =
        unsafe { transmute(DLOPEN.address()) };
    // SAFETY: a name that lives through the call.
    unsafe { open(name.as_ptr(), flags) }
}

/// What the loader knows of an address.
fn info(address: *const c_void) -> Option<Dl_info> {
    let mut info = MaybeUninit::<Dl_info>::zeroed();
    // SAFETY: room for what is told; all of it may be zeros.
    let info = unsafe { (libc::dladdr(address, info.as_mut_ptr()) != 0).then(|| info.assume_init()) };
    info.filter(|it| !it.dli_fname.is_null())
}

/// Which name is to be opened where a program opens `name`: this library's where that is libc.
extern "C" fn instead(name: *const c_char, flags: c_int, caller: *const c_void) -> *const c_char {
    if name.is_null() || !session::is_wanted() {
        return name;
    }
    // SAFETY: the caller's promise: it is a string.
    let asked = unsafe { CStr::from_ptr(name) };
    match known() {
        Some((libc, own)) if is_libc(libc, asked, flags) && !is_behind_ours(caller) => own.path.as_ptr(),
        _ => name,
    }
}

/// Whether the loader would open libc, or libpthread, by this name.
fn is_libc(libc: &Loaded, asked: &CStr, flags: c_int) -> bool {
    let beside = Path::new(OsStr::from_bytes(PTHREAD.to_bytes()));
    let is_one =
        |name: &CStr, path: &Path| asked == name || asked.to_bytes().contains(&b'/') && is_file(asked, path);
    if is_one(LIBC, libc.path()) {
        // Another file may lie there by now: what counts is which one is loaded.
        return keeps(asked, RTLD_NOLOAD).is_some_and(|handle| handle == libc.handle);
    }
    // The loader may not have it as yet, and who asks for it later is to find it.
    is_one(PTHREAD, &libc.path().with_file_name(beside)) && keeps(asked, flags & RTLD_NOLOAD).is_some()
}

/// Which library has this name, if the loader has it, or loads it unless RTLD_NOLOAD is there. It stays.
fn keeps(name: &CStr, flags: c_int) -> Option<*mut c_void> {
    let handle = open(name, RTLD_LAZY | libc::RTLD_NODELETE | flags);
    if !handle.is_null() {
        // SAFETY: a handle that was just opened, of a library that stays.
        unsafe { libc::dlclose(handle) };
    }
    (!handle.is_null()).then_some(handle)
}

/// Whether a path leads to that file, or is called so.
fn is_file(asked: &CStr, path: &Path) -> bool {
    let same = || {
        let [one, other] = [rustix::fs::stat(asked).ok()?, rustix::fs::stat(path).ok()?];
        Some((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
    };
    asked.to_bytes() == path.as_os_str().as_bytes() || same().unwrap_or(false)
}

/// Whether the code there is of a library that stands between this one and libc: what that finds by its handle is what it calls, and it is
/// what ours call.
fn is_behind_ours(caller: *const c_void) -> bool {
    let begin = |address| info(address).map_or(null_mut(), |it| it.dli_fbase);
    let begin_of_caller = begin(caller);
    super::behind().any(|next| begin(next.address()) == begin_of_caller)
}

/// This library's function for who looks one of libc's up by its version, if ours stands in front of that one: of an older one of the same
/// name it is no replacement.
extern "C" fn own_of(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    if !session::is_wanted() || name.is_null() || version.is_null() {
        return null_mut();
    }
    let Some((libc, own)) = known().filter(|(_, own)| handle == own.handle || handle == libc::RTLD_DEFAULT)
    else {
        return null_mut();
    };
    // SAFETY: the function of this name.
    let find: unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void =
        unsafe { transmute(DLVSYM.address()) };
    // SAFETY: handles of the loader's, and the caller's promise about the names.
    let (versioned, plain, found) = unsafe {
        (find(libc.handle, name, version), libc::dlsym(libc.handle, name), libc::dlsym(own.handle, name))
    };
    let begin = |address: *const c_void| info(address).map_or(null(), |it| it.dli_fbase.cast_const());
    let is_ours = !versioned.is_null() && versioned == plain && found != plain;
    if is_ours && begin(found) == begin(own_of as *const c_void) { found } else { null_mut() }
}

/// The function of this name, without RTLD_DEEPBIND among its flags, and with this library in libc's place.
///
/// # Safety
/// As for the function of this name.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dlopen() {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        // The address to return to is the caller's.
        "mov rdx, [rsp + 24]",
        "call {instead}",
        "mov [rsp + 16], rax",
        "call {next}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "and esi, {others}",
        "jmp rax",
        instead = sym instead,
        next = sym next_dlopen,
        others = const !libc::RTLD_DEEPBIND,
    )
}

/// The function of this name, without RTLD_DEEPBIND among its flags. Another namespace has its own libc.
///
/// # Safety
/// As for the function of this name.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dlmopen() {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {next}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "and edx, {others}",
        "jmp rax",
        next = sym next_dlmopen,
        others = const !libc::RTLD_DEEPBIND,
    )
}

/// The function of this name, which finds ours, too: they have no versions.
///
/// # Safety
/// As for the function of this name.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn dlvsym() {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {own}",
        "test rax, rax",
        "jnz 2f",
        "call {next}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        "2: add rsp, 24",
        "ret",
        own = sym own_of,
        next = sym next_dlvsym,
    )
}
