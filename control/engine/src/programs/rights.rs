//! Options that not everybody may set, or not to any value: what Linux asks of a program's user before it looks at the option.
//!
//! Called by `socket.rs`.

use rustix::io::Errno;

use super::alike::Alike;
use super::numbers::{may_have_priority, number, socket};

/// Whether a user may set an option of a socket of which `alike` is known.
pub(super) fn check(alike: &Alike, user: u32, (level, name): (i32, i32), value: &[u8]) -> Result<(), Errno> {
    if level != socket::LEVEL {
        return Ok(());
    }
    // What is too short for a number is refused by who reads it.
    let Ok(value) = number(level, value) else { return Ok(()) };
    let (is_root, kept) = (user == 0, alike.get(level, name).unwrap_or(0));
    match name {
        // Root may have buffers beyond what others may; here all have the same bound. Nor has Linux marks for others.
        socket::SNDBUFFORCE | socket::RCVBUFFORCE | socket::MARK if !is_root => Err(Errno::PERM),
        socket::PRIORITY if !may_have_priority(value, user) => Err(Errno::PERM),
        socket::DEBUG if value != 0 && !is_root => Err(Errno::ACCESS),
        socket::BUSY_POLL if value < 0 => Err(Errno::INVAL),
        socket::PREFER_BUSY_POLL if value != 0 && !is_root => Err(Errno::PERM),
        socket::BUSY_POLL_BUDGET if value > 0 && !is_root => Err(Errno::PERM),
        // What has locked it has locked it for good.
        socket::LOCK_FILTER if value == 0 && kept != 0 => Err(Errno::PERM),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_roots_is_refused_to_others() {
        let mut alike = Alike::default();
        for (name, value, others, roots) in [
            (36, 0, Err(Errno::PERM), Ok(())),
            (12, 7, Err(Errno::PERM), Ok(())),
            (12, 6, Ok(()), Ok(())),
            (1, 1, Err(Errno::ACCESS), Ok(())),
            (1, 0, Ok(()), Ok(())),
            (46, -1, Err(Errno::INVAL), Err(Errno::INVAL)),
            (69, 1, Err(Errno::PERM), Ok(())),
            (70, 1, Err(Errno::PERM), Ok(())),
            (70, 0, Ok(()), Ok(())),
        ] {
            for (user, said) in [(1000, others), (0, roots)] {
                let value = i32::to_ne_bytes(value);
                assert_eq!(check(&alike, user, (1, name), &value), said, "{name} {value:?} {user}");
            }
        }
        assert_eq!(check(&alike, 0, (1, 44), &[0; 4]), Ok(()));
        assert!(alike.set(1, 44, 1));
        assert_eq!(check(&alike, 0, (1, 44), &[0; 4]), Err(Errno::PERM));
    }
}
