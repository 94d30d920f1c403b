//! Memifs of the model as queues of the engine.
//!
//! Called by `works.rs`; `resources.rs` asks for its rings. A memif has one ring pair: its frames reach other lanes as any device's do.

use std::time::{Duration, Instant};

use firelane::{MemifConfig, MemifError, MemifRole, MemifSecret, MemifStatus, Queue, open_memif};
use firelane_api::{ApiError, Status};
use firelane_model::{LinkName, Memif};
use firelane_units::Mtu;

use crate::text::plain;

/// How many rings one has.
pub(crate) const RINGS: u16 = 1;
/// How long a path may stay taken: an interface ends when the lanes have let its queues go.
const PATH_WAIT: Duration = Duration::from_secs(1);
/// Between two looks.
const PATH_POLL: Duration = Duration::from_millis(10);

/// Opens a memif for the link or VNIC `name`.
pub(crate) fn open(name: &LinkName, memif: &Memif, mtu: Mtu) -> Result<(Vec<Queue>, MemifStatus), ApiError> {
    let role = match memif.role {
        firelane_model::MemifRole::Server => MemifRole::Server,
        firelane_model::MemifRole::Client => MemifRole::Client,
    };
    let config = MemifConfig {
        id: memif.id,
        secret: memif.secret.as_deref().and_then(MemifSecret::new),
        ring_size: memif.ring_size,
        mtu,
        name: name.to_string(),
        ..MemifConfig::new(role, &memif.socket)
    };
    let deadline = Instant::now() + PATH_WAIT;
    let opened = loop {
        match open_memif(&config) {
            Err(MemifError::InUse(_)) if Instant::now() < deadline => std::thread::sleep(PATH_POLL),
            other => break other,
        }
    };
    match opened {
        Ok((queues, status)) => Ok((queues.into_iter().map(Queue::from).collect(), status)),
        Err(error) => {
            let status = match &error {
                MemifError::InUse(_) | MemifError::NoSocket(_) => Status::Exists,
                MemifError::System(_, error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    Status::Denied
                }
                MemifError::System(..) | MemifError::Config(_) => Status::Io,
            };
            Err(ApiError::new(status, "memif", &memif.socket, plain(&error)))
        }
    }
}
