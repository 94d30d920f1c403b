//! A program that locks all its memory (mlockall(2)). What it shares with the daemon is address space by the gigabyte, of which little is ever
//! touched; locked, all of it would be memory. So the kernel locks what else there is, mapping by mapping, and what is mapped later for sockets
//! is not locked (`sys.rs` of `drivers/shm`). Called by the hook.

use core::ffi::c_int;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read};
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

use crate::{arenas, memory, room};

const KNOWN: c_int = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;

/// What is mapped later is locked.
static IS_FUTURE: AtomicBool = AtomicBool::new(false);

/// `None` if the kernel may do it, because nothing is shared as yet, or is to be locked.
pub(crate) fn lock_all(flags: c_int) -> Option<Result<c_int, Errno>> {
    let is_wanted = flags & libc::MCL_CURRENT != 0 && flags & !KNOWN == 0;
    (is_wanted && arenas::all().next().is_some()).then(|| lock_others(flags).map(|()| 0))
}

fn lock_others(flags: c_int) -> Result<(), Errno> {
    may_lock()?;
    let mappings = mappings()?;
    if flags & libc::MCL_FUTURE != 0 {
        let on_fault = MlockAllFlags::from_bits_retain(flags.cast_unsigned()) & MlockAllFlags::ONFAULT;
        mlockall(MlockAllFlags::FUTURE | on_fault)?;
        IS_FUTURE.store(true, Ordering::Relaxed);
    } else if IS_FUTURE.swap(false, Ordering::Relaxed) {
        munlockall()?;
    }
    for Mapped { range, is_inaccessible } in mappings.lines().filter_map(mapped) {
        let is_shared = arenas::all().any(|arena| arena.range().contains(&range.start));
        if !is_shared {
            // As in the kernel, what cannot be locked is not, and what is not there is when it is touched.
            memory::lock(range, flags & libc::MCL_ONFAULT != 0 || is_inaccessible);
        }
    }
    Ok(())
}

/// As in the kernel: without the privilege all must fit the limit.
fn may_lock() -> Result<(), Errno> {
    let is_privileged = capabilities(None).is_ok_and(|it| it.effective.contains(CapabilitySet::IPC_LOCK));
    let Some(limit) = getrlimit(Resource::Memlock).current.filter(|_| !is_privileged) else { return Ok(()) };
    match limit {
        0 => Err(Errno::PERM),
        limit if room::others().is_none_or(|others| others > limit) => Err(Errno::NOMEM),
        _ => Ok(()),
    }
}

/// What the process has mapped, as proc(5) says it.
fn mappings() -> Result<String, Errno> {
    let maps = open("/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match read(&maps, &mut piece)? {
            0 => break,
            len => text.extend_from_slice(&piece[..len]),
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[derive(PartialEq, Eq, Debug)]
struct Mapped {
    range: Range<usize>,
    is_inaccessible: bool,
}

/// A line of that, if it is memory: not what the kernel keeps in the program's address space for itself.
fn mapped(line: &str) -> Option<Mapped> {
    const KERNELS: [&str; 3] = ["[vdso]", "[vvar", "[vsyscall]"];
    let mut words = line.split_ascii_whitespace();
    let (range, access) = (words.next()?, words.next()?);
    let is_kernels = words.nth(3).is_some_and(|name| KERNELS.iter().any(|it| name.starts_with(it)));
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let range = number(start)?..number(end)?;
    (!is_kernels).then(|| Mapped { range, is_inaccessible: access.starts_with("---") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let mapping = |start, end, is_inaccessible| Some(Mapped { range: start..end, is_inaccessible });
        for (line, read) in [
            ("55d0-55d8 r-xp 00002000 fd:00 1234   /usr/bin/a name", mapping(0x55d0, 0x55d8, false)),
            ("7f00-7f10 ---p 00000000 00:00 0 ", mapping(0x7f00, 0x7f10, true)),
            ("7ffc-7ffe rw-p 00000000 00:00 0    [stack]", mapping(0x7ffc, 0x7ffe, false)),
            ("7ffc-7ffe r--p 00000000 00:00 0    [vvar]", None),
            ("7ffc-7ffe r--p 00000000 00:00 0    [vvar_vclock]", None),
            ("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]", None),
            ("nonsense", None),
        ] {
            assert_eq!(mapped(line), read, "{line}");
        }
        let all = mappings().unwrap();
        assert!(all.lines().filter_map(mapped).any(|it| it.range.contains(&(&raw const IS_FUTURE as usize))));
    }
}
