//! Options about which every socket of the internet's families says the same, here as in Linux: of whom it is connected with there are no
//! credentials, there are no protocols above TCP to choose, no memory is set aside.
//!
//! Called by `socket.rs` before a socket's own options are asked.

use rustix::io::Errno;

use super::numbers::{number, socket, tcp};

/// `struct ucred` of nobody: no process, and neither a user nor a group.
const NOBODY: [i32; 3] = [0, -1, -1];
/// The largest SO_BUSY_POLL_BUDGET.
const BUDGET_MAX: i32 = u16::MAX as i32;

/// getsockopt(2), if it is such an option.
pub(super) fn get(level: i32, name: i32) -> Option<Result<Vec<u8>, Errno>> {
    let shown = |number: i32| Some(Ok(number.to_ne_bytes().to_vec()));
    match (level, name) {
        (socket::LEVEL, socket::PEERCRED) => {
            Some(Ok(NOBODY.into_iter().flat_map(i32::to_ne_bytes).collect()))
        }
        (socket::LEVEL, socket::PEERGROUPS | socket::PEERPIDFD) => Some(Err(Errno::NODATA)),
        (socket::LEVEL, _) if is_of_unix(name) => Some(Err(Errno::OPNOTSUPP)),
        (socket::LEVEL, socket::BSDCOMPAT | socket::RESERVE_MEM) => shown(0),
        (tcp::LEVEL, tcp::THIN_DUPACK | tcp::IS_MPTCP) => shown(0),
        (tcp::LEVEL, tcp::ULP) => Some(Ok(Vec::new())),
        _ => None,
    }
}

/// setsockopt(2), if it is such an option.
pub(super) fn set(level: i32, name: i32, value: &[u8]) -> Option<Result<(), Errno>> {
    let number = || number(level, value);
    let checked = |is_good: fn(i32) -> bool| match number() {
        Ok(value) if is_good(value) => Ok(()),
        Ok(_) => Err(Errno::INVAL),
        Err(errno) => Err(errno),
    };
    match (level, name) {
        (socket::LEVEL, _) if is_of_unix(name) => Some(number().and(Err(Errno::OPNOTSUPP))),
        (socket::LEVEL, socket::BSDCOMPAT) => Some(number().map(drop)),
        (socket::LEVEL, socket::BUSY_POLL_BUDGET) => Some(checked(|value| (0..=BUDGET_MAX).contains(&value))),
        (socket::LEVEL, socket::RESERVE_MEM) => Some(checked(|value| value >= 0).and(Err(Errno::OPNOTSUPP))),
        (tcp::LEVEL, tcp::THIN_DUPACK) => Some(checked(|value| (0..=1).contains(&value))),
        (tcp::LEVEL, tcp::ULP) if value.is_empty() => Some(Err(Errno::INVAL)),
        (tcp::LEVEL, tcp::ULP) => Some(Err(Errno::NOENT)),
        _ => None,
    }
}

/// Whether it is about what UNIX sockets carry.
const fn is_of_unix(name: i32) -> bool {
    matches!(name, socket::PASSCRED | socket::PASSSEC | socket::PASSPIDFD | socket::PASSRIGHTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_linux() {
        let number = |number: i32| number.to_ne_bytes();
        assert_eq!(get(1, 17).unwrap().unwrap().len(), 12);
        assert_eq!(
            [59, 16, 34].map(|name| get(1, name).unwrap().unwrap_err()),
            [Errno::NODATA, Errno::OPNOTSUPP, Errno::OPNOTSUPP]
        );
        for (name, value, said) in [
            (70, -1, Some(Err(Errno::INVAL))),
            (70, 65_536, Some(Err(Errno::INVAL))),
            (70, 65_535, Some(Ok(()))),
            (73, -1, Some(Err(Errno::INVAL))),
            (73, 1, Some(Err(Errno::OPNOTSUPP))),
            (14, 7, Some(Ok(()))),
            (2, 1, None),
        ] {
            assert_eq!(set(1, name, &number(value)), said, "{name} {value}");
        }
        assert_eq!(set(1, 14, &[1]), Some(Err(Errno::INVAL)), "too short for a number");
        assert_eq!(set(6, 31, b"tls"), Some(Err(Errno::NOENT)));
        assert_eq!(set(6, 17, &number(2)), Some(Err(Errno::INVAL)));
    }
}
