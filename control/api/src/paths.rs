//! The paths of the interface. A name follows its collection's path after a slash.

/// What runs, and whether all is well.
pub const STATUS: &str = "/v1/status";
/// The whole configuration: read, or replaced.
pub const MODEL: &str = "/v1/model";
/// What applying a configuration would do.
pub const PLAN: &str = "/v1/plan";
/// Links of every class.
pub const LINKS: &str = "/v1/links";
/// VNICs.
pub const VNICS: &str = "/v1/vnics";
/// Virtual switches.
pub const ETHERSTUBS: &str = "/v1/etherstubs";
/// Flows.
pub const FLOWS: &str = "/v1/flows";
/// Address objects.
pub const ADDRS: &str = "/v1/addrs";
/// IP interfaces.
pub const IFS: &str = "/v1/ifs";
/// Netstacks.
pub const NETSTACKS: &str = "/v1/netstacks";
/// Traffic of links.
pub const LINK_STATS: &str = "/v1/stats/links";
/// Traffic of flows.
pub const FLOW_STATS: &str = "/v1/stats/flows";
/// Frames that ended, by station and reason.
pub const DROPS: &str = "/v1/drops";
/// This interface as OpenAPI 3.1.
pub const OPENAPI: &str = "/v1/openapi.json";
/// Follows a link's or flow's name: its properties.
pub const PROPS: &str = "props";
