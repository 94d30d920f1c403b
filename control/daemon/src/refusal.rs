//! What the engine refuses, in the words of the interface: which status, and of which property.
//!
//! Used by `works.rs` and by all that ask the engine for something.

use firelane::RuleError;
use firelane_api::{ApiError, Status};

use crate::works::Properties;

/// Whether the system has that CPU, on line or not.
fn is_present(cpu: usize) -> bool {
    std::path::Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists()
}

/// The same, of a property that is called by another name for other links.
pub(crate) fn refused_to(error: firelane::ChangeError, to: Properties<'_>) -> ApiError {
    use firelane::ChangeError as E;
    let [fetched, sent] = to.ring_names;
    let (name, asked) = match &error {
        E::NoRings { fetched: false, asked, .. } => (sent, *asked),
        E::NoRings { asked, .. } | E::FixedRings { asked, .. } => (fetched, *asked),
        E::Spread(_) => (fetched, to.rings.fetched.unwrap_or_default()),
        _ => return refused(error),
    };
    ApiError::new(Status::HwRings, name, asked, error.to_string())
}

/// The engine's refusal in the words of the interface.
pub(crate) fn refused(error: firelane::ChangeError) -> ApiError {
    use firelane::ChangeError as E;
    let status = match &error {
        E::NoLink(_) => Status::LinkInvalid,
        E::NoFlow(_) | E::NoNetstack(_) => Status::NotFound,
        E::LinkBusy(_) | E::VnicBusy(_) => Status::LinkBusy,
        E::MacTaken(_) => Status::MacInUse,
        E::AddressTaken(_) => Status::Exists,
        E::TunnelTaken(_) => Status::IptunInUse,
        E::NoWire(_) => Status::NotSupported,
        E::Rule(RuleError::Identical(_)) => Status::FlowIdentical,
        E::Rule(RuleError::Empty) => Status::BadArg,
        E::Rule(RuleError::MixedFamilies) => Status::BadIp,
        E::Rule(RuleError::TooManyMaskSets | RuleError::TooManyRangePairs) => Status::TooMany,
        E::NoUser(_) => Status::NoIf,
        E::Device(_) | E::Tap(_) => Status::Io,
        E::NoCpu { cpu, .. } if is_present(*cpu) => Status::CpuOffline,
        E::NoCpu { .. } => Status::CpuUnknown,
        E::NoQueues(_) => Status::NotSupported,
        E::NoRings { .. } | E::FixedRings { .. } | E::Spread(_) => Status::HwRings,
        E::NoLane(_) | E::ManyNetstacks => Status::TooMany,
        E::FixedLanes { .. } | E::NoService | E::OneLane(_) => Status::NotSupported,
        E::SharedLane(_) => Status::LinkBusy,
        E::ManyCaptures(_) => Status::TooMany,
        E::Tracing | E::Metering => Status::TooMany,
        E::HasUplink(_) | E::LaneFailed => Status::Failed,
    };
    match &error {
        E::NoCpu { cpu, .. } | E::NoLane(cpu) | E::SharedLane(cpu) => {
            ApiError::new(status, "cpus", cpu, error.to_string())
        }
        E::NoService | E::OneLane(_) => ApiError::new(status, "cpus", "", error.to_string()),
        _ => ApiError::new(status, "", "", error.to_string()),
    }
}
