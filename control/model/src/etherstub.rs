//! An etherstub: a virtual switch with no way out. VNICs over it reach one another and nothing else.

use firelane_units::{BitRate, Mtu, Priority};
use serde::{Deserialize, Serialize};

use crate::fusing::{Fusing, is_same_zone};
use crate::link::{high, is_high};
use crate::value;

/// A virtual switch and its properties.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Etherstub {
    /// The largest packet it carries: 9000 unless said otherwise, and never more.
    #[serde(default = "etherstub", with = "value", skip_serializing_if = "is_etherstub")]
    #[cfg_attr(feature = "schema", schema(value_type = u16, default = 9000))]
    pub mtu: Mtu,
    /// The limit of everything that passes it, in each direction.
    #[serde(default, with = "value::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, example = "50M"))]
    pub maxbw: Option<BitRate>,
    /// Its place when a lane cannot serve everything.
    #[serde(default = "high", with = "value", skip_serializing_if = "is_high")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "high"))]
    pub priority: Priority,
    /// Whether its connections may be fused.
    #[serde(default, skip_serializing_if = "is_same_zone")]
    #[cfg_attr(feature = "schema", schema(value_type = String, default = "same-zone"))]
    pub fusion: Fusing,
}

impl Default for Etherstub {
    fn default() -> Self {
        Self { mtu: Mtu::ETHERSTUB, maxbw: None, priority: Priority::High, fusion: Fusing::default() }
    }
}

fn etherstub() -> Mtu {
    Mtu::ETHERSTUB
}

fn is_etherstub(mtu: &Mtu) -> bool {
    *mtu == Mtu::ETHERSTUB
}
