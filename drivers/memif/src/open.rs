//! Making an interface: its socket, its queues and its keeper.
//!
//! Called by the engine.

use std::sync::Arc;

use crate::config::{MemifConfig, OpenError, Role};
use crate::keeper::Keeper;
use crate::queue::MemifQueue;
use crate::seat::{Interface, MemifStatus, Shared};
use crate::wire;

/// Makes an interface and returns its queues. It works at once; sessions come and go.
///
/// A server's socket may be opened by its owner alone; who wants to let others in changes owner or mode.
///
/// # Errors
/// [`OpenError`] names the setting, or what has the socket's path. A server that is not there is no error: the
/// client tries again until it is.
pub fn open(config: &MemifConfig) -> Result<(Vec<MemifQueue>, MemifStatus), OpenError> {
    config.check()?;
    let shared = Arc::new(Shared::new(config.queues).map_err(|e| OpenError::System("descriptors", e))?);
    let (listener, bound) = match config.role {
        Role::Server => Some(wire::listen(&config.socket)?),
        Role::Client => None,
    }
    .unzip();
    let interface = Arc::new(Interface { shared: Arc::clone(&shared), bound });
    let keeper = Keeper::new(config.clone(), Arc::clone(&shared), listener);
    let thread = std::thread::Builder::new().name("memif".into()).spawn(move || keeper.run());
    thread.map_err(|error| OpenError::System("thread", error))?;
    let queue = |nth| MemifQueue::new(Arc::clone(&interface), usize::from(nth), config.mtu);
    Ok(((0..config.queues).map(queue).collect(), MemifStatus(shared)))
}
