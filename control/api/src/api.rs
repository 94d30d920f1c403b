//! The trait that the daemon, the stub and the client implement.

use firelane_model::Model;

use crate::{
    AccountingInfo, AddrInfo, AddrProperty, ApiError, CaptureRequest, ChangeRequest, DestinationInfo,
    DropInfo, EtherstubInfo, FilterInfo, Finding, FlowInfo, FlowStats, FpmInfo, GroupInfo, IfInfo, IptunInfo,
    LeaseAction, LinkInfo, LinkStats, MemoryInfo, NatInfo, NatSession, NeighbourInfo, NetstackInfo,
    ObjectProps, PlanReply, PoolsInfo, ProgramReport, Property, ProtocolCounters, ProtocolProperty,
    Replacing, RouteInfo, SocketPage, StatusInfo, StepInfo, TraceReport, TraceRequest, Usage, UsageRequest,
    UsageSample, VnicInfo, WireInfo, WireStats,
};

/// Which of the two configurations is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Which {
    /// What is in force.
    #[default]
    Active,
    /// What the next start begins with (`-P`).
    Persistent,
}

/// What can be asked of a Firelane host. Every call is whole: it fails without an effect, or succeeds.
/// Calls may block; a server makes them off its own threads.
pub trait Api: Send + Sync {
    /// What runs, and whether all is well.
    fn status(&self) -> Result<StatusInfo, ApiError>;
    /// The whole configuration.
    fn model(&self, which: Which) -> Result<Model, ApiError>;
    /// What replacing the active configuration would do; changes nothing.
    fn plan(&self, wanted: &Model) -> Result<PlanReply, ApiError>;
    /// Replaces the configuration: the active one and, unless it is `temporary`, the persistent one. Gives the
    /// steps that were carried out.
    fn apply(&self, wanted: &Model, how: Replacing) -> Result<PlanReply, ApiError>;
    /// Changes one thing.
    fn change(&self, request: &ChangeRequest) -> Result<(), ApiError>;
    /// Links of every class.
    fn links(&self, which: Which) -> Result<Vec<LinkInfo>, ApiError>;
    /// VNICs.
    fn vnics(&self, which: Which) -> Result<Vec<VnicInfo>, ApiError>;
    /// Tunnels.
    fn iptuns(&self, which: Which) -> Result<Vec<IptunInfo>, ApiError>;
    /// Virtual switches.
    fn etherstubs(&self, which: Which) -> Result<Vec<EtherstubInfo>, ApiError>;
    /// Wires.
    fn wires(&self, which: Which) -> Result<Vec<WireInfo>, ApiError>;
    /// Flows.
    fn flows(&self, which: Which) -> Result<Vec<FlowInfo>, ApiError>;
    /// Address objects.
    fn addrs(&self, which: Which) -> Result<Vec<AddrInfo>, ApiError>;
    /// Tells the DHCP client of an address object what to do.
    fn tell_client(&self, name: &str, action: LeaseAction) -> Result<(), ApiError>;
    /// IP interfaces.
    fn ifs(&self, which: Which) -> Result<Vec<IfInfo>, ApiError>;
    /// Netstacks.
    fn netstacks(&self, which: Which) -> Result<Vec<NetstackInfo>, ApiError>;
    /// The properties of the link `name`.
    fn link_props(&self, name: &str, which: Which) -> Result<Vec<Property>, ApiError>;
    /// The properties of all links, as they are at one time.
    fn all_link_props(&self, which: Which) -> Result<Vec<ObjectProps>, ApiError>;
    /// The properties of the flow `name`.
    fn flow_props(&self, name: &str, which: Which) -> Result<Vec<Property>, ApiError>;
    /// The properties of all flows, as they are at one time.
    fn all_flow_props(&self, which: Which) -> Result<Vec<ObjectProps>, ApiError>;
    /// The protocol properties of the netstack `name`.
    fn netstack_props(&self, name: &str) -> Result<Vec<ProtocolProperty>, ApiError>;
    /// The properties of the IP interface `name`.
    fn if_props(&self, name: &str) -> Result<Vec<ProtocolProperty>, ApiError>;
    /// The properties of the address object `name`.
    fn addr_props(&self, name: &str) -> Result<Vec<AddrProperty>, ApiError>;
    /// The routes of the netstack `name`.
    fn routes(&self, name: &str) -> Result<Vec<RouteInfo>, ApiError>;
    /// The neighbours of the netstack `name`, and its own addresses beside them.
    fn neighbours(&self, name: &str) -> Result<Vec<NeighbourInfo>, ApiError>;
    /// The destinations of the netstack `name` whose paths carry less than their links.
    fn destinations(&self, name: &str) -> Result<Vec<DestinationInfo>, ApiError>;
    /// The memory of lanes.
    fn memory(&self) -> Result<MemoryInfo, ApiError>;
    /// What the netstack `name` has counted, protocol by protocol.
    fn counters(&self, name: &str) -> Result<Vec<ProtocolCounters>, ApiError>;
    /// The packet filter of the netstack `name`.
    fn filter(&self, name: &str) -> Result<FilterInfo, ApiError>;
    /// The pools that the rules of the packet filter of the netstack `name` may name.
    fn pools(&self, name: &str) -> Result<PoolsInfo, ApiError>;
    /// The address translation of the netstack `name`.
    fn nat(&self, name: &str) -> Result<NatInfo, ApiError>;
    /// The sessions that the address translation of the netstack `name` has made.
    fn nat_sessions(&self, name: &str) -> Result<Vec<NatSession>, ApiError>;
    /// Ends all of them; how many there were.
    fn flush_nat(&self, name: &str) -> Result<u64, ApiError>;
    /// The routing daemons of netstacks.
    fn fpm(&self) -> Result<Vec<FpmInfo>, ApiError>;
    /// The groups that the netstack `name` listens to.
    fn groups(&self, name: &str) -> Result<Vec<GroupInfo>, ApiError>;
    /// Sockets of the netstack `netstack` or of all; `after` is where the page before said that this one begins.
    fn sockets(&self, netstack: Option<&str>, after: Option<&str>) -> Result<SocketPage, ApiError>;
    /// The process `pid` and its sockets, explained.
    fn program(&self, pid: u32) -> Result<ProgramReport, ApiError>;
    /// Traffic of every link since it was made.
    fn link_stats(&self) -> Result<Vec<LinkStats>, ApiError>;
    /// Traffic of every flow since it was made.
    fn flow_stats(&self) -> Result<Vec<FlowStats>, ApiError>;
    /// What became of every wire's frames since it was made.
    fn wire_stats(&self) -> Result<Vec<WireStats>, ApiError>;
    /// What every link or every flow has carried in a time. Asks the history and no lane.
    fn usage(&self, request: &UsageRequest) -> Result<Vec<Usage>, ApiError>;
    /// What the link or flow `name` has carried, piece by piece.
    fn usage_samples(&self, name: &str, request: &UsageRequest) -> Result<Vec<UsageSample>, ApiError>;
    /// Writes what is captured as pcapng into `sink`, until it answers `false` or the request is fulfilled. The sink is
    /// also asked with nothing to write, several times a second.
    fn capture(&self, wanted: &CaptureRequest, sink: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), ApiError>;
    /// Follows frames, real ones or one that is made up, and waits for the end of their way, or until the answer is not `is_awaited`,
    /// which is asked several times a second.
    fn trace(&self, wanted: &TraceRequest, is_awaited: &dyn Fn() -> bool) -> Result<TraceReport, ApiError>;
    /// What steps cost, of everything that passes within so many seconds, or until the answer is not `is_awaited`.
    fn steps(&self, seconds: u32, is_awaited: &dyn Fn() -> bool) -> Result<Vec<StepInfo>, ApiError>;
    /// Accounting of links and flows to a file.
    fn accounting(&self) -> Result<AccountingInfo, ApiError>;
    /// Frames that ended, by station and reason, since the daemon's start.
    fn drops(&self) -> Result<Vec<DropInfo>, ApiError>;
    /// What the host offers, and what links and VNICs got of it.
    fn doctor(&self) -> Result<Vec<Finding>, ApiError>;
}
