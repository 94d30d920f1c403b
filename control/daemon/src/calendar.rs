//! The time of day: leases, pools, records and the history outlive the daemon, which a lane's clock does not.

use std::time::{Duration, SystemTime};

/// How long it is since 1970 began; nothing where the clock stands before that.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The same in whole seconds.
pub(crate) fn seconds() -> u64 {
    since_1970().as_secs()
}
