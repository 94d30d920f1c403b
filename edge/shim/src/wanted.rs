//! Whether this program is to be on a netstack, and where its daemon is: what its environment says.
//!
//! The environment is read once, when the library is loaded or at the first socket, whichever comes first: what the
//! program sets later is for the programs that it starts.

use std::ffi::OsString;
use std::sync::OnceLock;

/// Where the daemon takes programs. Without it everything passes through.
const SOCKET: &str = "FIRELANE_APP_SOCKET";
/// Who the program is on the network. The VNIC says it more exactly.
const NAMES: [&str; 2] = ["FIRELANE_VNIC", "FIRELANE_NETSTACK"];

/// What was asked for.
pub(crate) struct Wanted {
    /// The path of the daemon's socket.
    pub(crate) socket: OsString,
    /// The VNIC or netstack; empty is the daemon's choice.
    pub(crate) name: String,
}

static WANTED: OnceLock<Option<Wanted>> = OnceLock::new();

/// What this program's environment asks for.
pub(crate) fn wanted() -> Option<&'static Wanted> {
    WANTED.get_or_init(read).as_ref()
}

fn read() -> Option<Wanted> {
    let socket = std::env::var_os(SOCKET).filter(|socket| !socket.is_empty())?;
    let name = NAMES.iter().find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()));
    Some(Wanted { socket, name: name.unwrap_or_default() })
}
