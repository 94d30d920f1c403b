//! How much a model may hold. Each number has its reason; none is a promise of speed.

/// Links, VNICs and etherstubs together. Twice the 10,000 VNICs that one host is tested with.
pub const LINKS_MAX: usize = 20_000;
/// Netstacks: their identifier has 16 bits and each needs a shard in every lane.
pub const NETSTACKS_MAX: usize = 4_096;
/// Addresses of one netstack, those among them that its VNICs make for their links, one each: so many has each lane room for.
pub const ADDRESSES_MAX: usize = 1024;
/// Sources that routes of one netstack are for: the first packet of each flow asks for them one after the other.
pub const ROUTE_SOURCES_MAX: usize = 64;
/// Flows, services, and the routes of one netstack, each: bounds the work of one apply.
pub const OBJECTS_MAX: usize = 65_536;
/// Kinds of flows of one link: each costs every frame a look-up.
pub(crate) const FLOW_KINDS_MAX: usize = 64;
/// Flows of one link that are alike but for ranges of local and of remote ports: they are compared one by one.
pub(crate) const FLOW_RANGE_PAIRS_MAX: usize = 64;
/// Rules of a netstack's filter: a new flow is compared with them one after the other.
pub const FILTER_RULES_MAX: usize = 16_384;
/// Rules of a program's sockets, as text: they go with its first message to the daemon.
pub const SOCKET_FILTER_TEXT_MAX: usize = 4096;
/// Rules of a netstack's address translation: a new conversation is compared with them one after the other.
pub const NAT_RULES_MAX: usize = 4096;
/// Networks in all pools of a netstack: twice what a pool is tested with.
pub const POOLED_MAX: usize = 200_000;
/// Lanes: one per CPU of the largest machines in use.
pub const LANES_MAX: u16 = 256;
/// Lanes where their number is left to the daemon. Programs have sockets in 64 lanes: this leaves a quarter of them to netstacks and flows that name
/// their CPUs.
pub const LANES_AUTO_MAX: u16 = 48;
/// A configuration file or request body in bytes: 20,000 VNICs take about 3 MB.
pub const MODEL_TEXT_MAX: usize = 16 << 20;
