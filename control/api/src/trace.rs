//! Frames followed on their way, and what steps cost.

use std::net::IpAddr;

use firelane_model::{FlowName, LinkName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ApiError, Status};

/// How many frames one trace follows at the most.
pub const TRACED_FRAMES_MAX: u32 = 64;
/// How long one trace, or one count of steps, lasts at the most, in seconds.
pub const WATCH_SECONDS_MAX: u32 = 60;

/// What is followed. Exactly one of `address`, `flow` and `frame` is said.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// Frames from or to this address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// Frames of this flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<FlowName>,
    /// A frame that is made up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame: Option<InventedFrame>,
    /// How many frames.
    pub frames: u32,
    /// How long, if fewer come.
    pub seconds: u32,
}

/// A frame that is made up, and where it comes in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InventedFrame {
    /// The VNIC whose user seems to send it, or the link whose device seems to bring it.
    pub link: LinkName,
    /// The whole frame in hexadecimal digits, or a packet in words: `tcp SRC:PORT DST:PORT [FLAGS]`, `udp SRC:PORT DST:PORT`,
    /// `icmp SRC DST`.
    pub text: String,
    /// The VNIC that a packet in words is sent to; the one that has its destination address if not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<LinkName>,
}

impl TraceRequest {
    /// Whether it can be answered.
    ///
    /// # Errors
    /// Nothing or several things are to be followed, or too long, or too many frames.
    pub fn check(&self) -> Result<(), ApiError> {
        let said = [self.address.is_some(), self.flow.is_some(), self.frame.is_some()];
        if said.into_iter().filter(|it| *it).count() != 1 {
            return Err(ApiError::new(Status::BadArg, "trace", "", "one of address, flow and frame"));
        }
        within("frames", self.frames, TRACED_FRAMES_MAX)?;
        within("seconds", self.seconds, WATCH_SECONDS_MAX)
    }
}

/// Whether a number is from 1 to `most`.
///
/// # Errors
/// It is not.
pub(crate) fn within(field: &str, value: u32, most: u32) -> Result<(), ApiError> {
    match (1..=most).contains(&value) {
        true => Ok(()),
        false => Err(ApiError::new(Status::BadArg, field, value, format!("from 1 to {most}"))),
    }
}

/// What became of the frames that were followed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TraceReport {
    /// Everything that was seen, in order.
    pub seen: Vec<SeenInfo>,
    /// How much found no room.
    pub lost: u64,
}

/// A station or step that a frame has passed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SeenInfo {
    /// The frame's number.
    pub frame: u32,
    /// The lane.
    pub lane: u16,
    /// The station, in the word of counters.
    pub station: String,
    /// What was decided there.
    pub decision: String,
    /// Why the frame ended, in the word of counters, if it was dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a step has cost while it was counted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct StepInfo {
    /// The step.
    pub step: String,
    /// `in` or `out`.
    pub direction: String,
    /// Frames, or segments outward.
    pub frames: u64,
    /// Cycles of the CPU's counter.
    pub cycles: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_one_thing_and_has_bounds() {
        let address = Some("10.0.0.1".parse().unwrap());
        let good = TraceRequest { address, frames: 1, seconds: 5, ..TraceRequest::default() };
        assert_eq!(good.check(), Ok(()));
        for (bad, said) in [
            (TraceRequest { address: None, ..good.clone() }, "one of address, flow and frame"),
            (TraceRequest { flow: Some("f-1".parse().unwrap()), ..good.clone() }, "one of address"),
            (TraceRequest { frames: 0, ..good.clone() }, "from 1 to 64"),
            (TraceRequest { seconds: 61, ..good.clone() }, "from 1 to 60"),
        ] {
            let error = bad.check().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
