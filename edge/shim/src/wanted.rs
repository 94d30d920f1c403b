//! Whether this program is to be on a netstack, and where its daemon is: what its environment says.
//!
//! The environment is read once, when the library is loaded or at the first call that asks, whichever comes first: what
//! the program sets later is for the programs that it starts. It is copied without the allocator, which may be the one
//! that asks: some make system calls while they set themselves up.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use firelane_shm::control::FILTER_MAX;

use crate::sys;

/// Where the daemon takes programs. Without it everything passes through.
pub(crate) const SOCKET: &CStr = c"FIRELANE_APP_SOCKET";
/// Who the program is on the network. The VNIC says it more exactly.
pub(crate) const NAMES: [&CStr; 2] = [c"FIRELANE_VNIC", c"FIRELANE_NETSTACK"];

/// The rules that its sockets begin with.
pub(crate) const FILTER: &CStr = c"FIRELANE_FILTER";

/// As long as the path of a socket may be, and longer than a name.
const TEXT_MAX: usize = 108;

/// A variable's value.
struct Text<const MAX: usize> {
    bytes: [u8; MAX],
    len: usize,
}

/// What was asked for.
pub(crate) struct Wanted {
    socket: Text<TEXT_MAX>,
    name: Text<TEXT_MAX>,
    /// `None` if there is one that does not fit: without it the program would have more than it was to have.
    filter: Option<Text<FILTER_MAX>>,
}

static WANTED: OnceLock<Option<Wanted>> = OnceLock::new();

/// What this program's environment asks for.
#[inline]
pub(crate) fn wanted() -> Option<&'static Wanted> {
    WANTED.get_or_init(read).as_ref()
}

fn read() -> Option<Wanted> {
    let name = NAMES.into_iter().find_map(variable).unwrap_or(Text { bytes: [0; TEXT_MAX], len: 0 });
    let filter = match sys::has_variable(FILTER) {
        true => variable(FILTER),
        false => Some(Text { bytes: [0; FILTER_MAX], len: 0 }),
    };
    Some(Wanted { socket: variable(SOCKET)?, name, filter })
}

/// The value of a variable that is not empty. One that is too long is none.
fn variable<const MAX: usize>(name: &CStr) -> Option<Text<MAX>> {
    let mut bytes = [0; MAX];
    let len = sys::variable(name, &mut bytes)?;
    (len > 0).then_some(Text { bytes, len })
}

impl Wanted {
    /// The path of the daemon's socket.
    pub(crate) fn socket(&self) -> &OsStr {
        OsStr::from_bytes(&self.socket.bytes[..self.socket.len])
    }

    /// The VNIC or netstack; empty is the daemon's choice.
    pub(crate) fn name(&self) -> &str {
        str::from_utf8(&self.name.bytes[..self.name.len]).unwrap_or("")
    }

    /// The rules that its sockets begin with; `None` if they do not fit a message.
    pub(crate) fn filter(&self) -> Option<&str> {
        let text = self.filter.as_ref()?;
        str::from_utf8(&text.bytes[..text.len]).ok()
    }
}
