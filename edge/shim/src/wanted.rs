//! Whether this program is to be on a netstack, and where its daemon is: what its environment says.
//!
//! The environment is read once, when the library is loaded or at the first call that asks, whichever comes first: what
//! the program sets later is for the programs that it starts. It is copied without the allocator, which may be the one
//! that asks: some make system calls while they set themselves up.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use crate::sys;

/// Where the daemon takes programs. Without it everything passes through.
const SOCKET: &CStr = c"FIRELANE_APP_SOCKET";
/// Who the program is on the network. The VNIC says it more exactly.
const NAMES: [&CStr; 2] = [c"FIRELANE_VNIC", c"FIRELANE_NETSTACK"];

/// As long as the path of a socket may be, and longer than a name.
const TEXT_MAX: usize = 108;

/// A variable's value.
struct Text {
    bytes: [u8; TEXT_MAX],
    len: usize,
}

/// What was asked for.
pub(crate) struct Wanted {
    socket: Text,
    name: Text,
}

static WANTED: OnceLock<Option<Wanted>> = OnceLock::new();

/// What this program's environment asks for.
#[inline]
pub(crate) fn wanted() -> Option<&'static Wanted> {
    WANTED.get_or_init(read).as_ref()
}

fn read() -> Option<Wanted> {
    let name = NAMES.into_iter().find_map(variable).unwrap_or(Text { bytes: [0; TEXT_MAX], len: 0 });
    Some(Wanted { socket: variable(SOCKET)?, name })
}

/// The value of a variable that is not empty. One that is too long is none.
fn variable(name: &CStr) -> Option<Text> {
    let mut bytes = [0; TEXT_MAX];
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
}
