//! Tells who has started the daemon how far it is, if that wants to know (sd_notify(3)): programs that come after it find it ready.
//!
//! Called by `daemon.rs`. Whoever asks names a socket in `NOTIFY_SOCKET`; who does not hears nothing.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable with the socket's name.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// What is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The configuration is carried out, and programs may come.
    Ready,
    /// It ends.
    Stopping,
}

impl State {
    /// Tells whom this process' environment names.
    pub(crate) fn tell(self) {
        let asker = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
        if let Some(name) = asker
            && let Err(error) = send(&name, self)
        {
            tracing::warn!("{VARIABLE}={}: {error}", name.display());
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Ready => "READY=1",
            Self::Stopping => "STOPPING=1",
        }
    }
}

fn send(name: &OsStr, state: State) -> io::Result<()> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // Who does not listen is not waited for.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.words().as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(socket: &UnixDatagram) -> String {
        let mut room = [0; 64];
        let len = socket.recv(&mut room).unwrap();
        String::from_utf8_lossy(&room[..len]).into_owned()
    }

    #[test]
    fn who_asks_is_told_by_a_path_or_an_abstract_name() {
        let unique = format!("firelane-ready-{}", std::process::id());
        let path = std::env::temp_dir().join(&unique);
        let _ = std::fs::remove_file(&path);
        let by_path = UnixDatagram::bind(&path).unwrap();
        let abstract_name = SocketAddr::from_abstract_name(&unique).unwrap();
        let by_name = UnixDatagram::bind_addr(&abstract_name).unwrap();
        for (socket, name) in
            [(by_path, path.clone().into_os_string()), (by_name, format!("@{unique}").into())]
        {
            [State::Ready, State::Stopping].into_iter().for_each(|state| send(&name, state).unwrap());
            assert_eq!([hear(&socket), hear(&socket)], ["READY=1", "STOPPING=1"]);
        }
        let _ = std::fs::remove_file(&path);
    }

    #[test]
    fn who_is_not_there_is_not_waited_for() {
        assert!(send(OsStr::new("/nowhere/at/all"), State::Ready).is_err());
    }
}
