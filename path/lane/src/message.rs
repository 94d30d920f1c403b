//! What enters a lane through its squeue: frames of other lanes, changes of configuration, commands of sockets.
//!
//! A lane never stops for a change: it receives it as a message (that is what "IP multithreading" means
//! here). Every change is sent to all lanes; each applies it to its own replica. The engine checks a change
//! before it sends it, so a lane that must refuse one reports a [`crate::Notice`] and goes on.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::num::NonZeroU8;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::sync::{Arc, OnceLock};

use firelane_classify::{FlowMatch, Steering};
use firelane_filter::{FilterSetup, PoolChange, RuleList};
use firelane_flow::{Board, FlowConfig};
use firelane_frame::Chain;
use firelane_ip::{
    AutoconfConfig, Configured, DadConfig, Forwarding, Hearsay, HopLimits, IfRouting, IidKind, Primacy,
    RouteKind, SourceFilter, TransportError,
};
use firelane_nat::NatList;
use firelane_socket::{
    ConnRef, DatagramSlot, ListenerSlot, SocketError, StreamConfig, StreamRef, StreamSlot,
};
use firelane_switch::{Lesson, Located, Rules};
use firelane_tcp::congestion::Algorithm;
use firelane_tcp::{FastOpenNews, Keepalive, ResetBudget, TcpConfig, Tuning};
use firelane_tunnel::Config as TunnelConfig;
use firelane_udp::Sharing;
use firelane_units::{
    BitRate, Bytes, Direction, Family, FlowId, IpPrefix, LaneId, LinkId, MacAddr, Mss, Mtu, NetstackId,
    Priority, SocketId, VlanId,
};
use firelane_wire::GroupSaying;

use crate::capture::CaptureTap;
use crate::lending::Errand;
use crate::look::Look;
use crate::moving::{Fence, MovingQueue};
use crate::poll::Polling;
use crate::stacks::Band;
use crate::view::Question;

/// An item of a lane's squeue, for a lane whose driver queues are `D`.
#[derive(Debug)]
pub enum LaneMessage<D> {
    /// Frames that another lane hands over.
    Frames(Frames),
    /// An application wrote into, or read from, a stream's rings.
    Kick {
        /// The connection's netstack.
        netstack: NetstackId,
        /// The connection.
        conn: ConnRef,
    },
    /// Text that two programs have carried past the lane, to be counted: what went from the connection to its peer, and what came.
    Carried(ConnRef, [u64; 2]),
    /// An application queued datagrams.
    KickDatagrams {
        /// The socket's netstack.
        netstack: NetstackId,
        /// The socket.
        socket: SocketId,
    },
    /// A socket's command.
    Socket(NetstackId, SocketCommand),
    /// A change of configuration.
    Control(Box<Control<D>>),
    /// What one lane of a netstack learned and the others need.
    Learned(NetstackId, Box<Learned>),
    /// What the guard of a port has learned in another lane.
    Lesson(LinkId, Lesson),
    /// The user of a port has said something of groups in another lane.
    Heard(LinkId, GroupSaying),
    /// A station was heard beyond an exit in another lane.
    Located(LinkId, Located),
    /// A connection's question for credit, or the answer.
    Errand(Box<Errand>),
    /// A lane hands frames over to the limit of a flow, and asks for the board of what waits there.
    ShowBoard(FlowId, Direction, LaneId),
    /// This lane keeps a flow's limit, and shows what waits there.
    Board(FlowId, Direction, LaneId, Arc<Board>),
    /// A driver's queue that another lane has given to this one, or that comes back.
    Queue(Box<MovingQueue<D>>),
    /// Behind frames that another lane has sent to a device whose queue moves.
    Fence(Fence),
    /// A question about the lane's sockets.
    Ask(Box<Question>),
    /// A question about a netstack's routes and neighbours.
    Look(Box<Look>),
}

impl<D> LaneMessage<D> {
    /// Whether it is what a packet has taught, as the next one may: whoever sends packets makes as many of them as he likes.
    pub(crate) fn is_gossip(&self) -> bool {
        use Learned::{Error, FastOpen, Filtered, Neighbour, PathMtu};
        let is_of_packets = |it: &Learned| {
            matches!(it, Neighbour { .. } | PathMtu { .. } | Error(..) | FastOpen(_) | Filtered(_))
        };
        matches!(self, Self::Learned(_, learned) if is_of_packets(learned))
    }
}

/// Frames on their way, and where they go on.
#[derive(Debug)]
pub struct Frames {
    /// The lane that fetched or made them: its backlog counts them until they are consumed.
    pub from: LaneId,
    /// Where their way goes on.
    pub stage: Stage,
    /// The link that the stage is about.
    pub link: LinkId,
    /// The frames.
    pub chain: Chain,
}

/// A place on a frame's way at which lanes hand over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// Before the outward limits of the VNIC that sent them: their home is the receiving lane.
    Out,
    /// Before the inward limits of the VNIC that gets them: their home is the receiving lane.
    In,
    /// Past all limits, before the user of the link: a driver queue or a netstack's shard.
    Deliver,
    /// At the door of a netstack's shard in the receiving lane, whatever lane such packets belong to: that one has the state of what an
    /// ICMP error is about, or of a datagram that comes in pieces.
    Door(NetstackId),
    /// At the same door, because things are not where they would begin now, or because somebody behind the translator gets what no socket
    /// is for: that lane was asked first for what the packet is for, and has it not. Of a piece: that lane's filter has let it through.
    Asked(NetstackId, LaneId),
    /// From a netstack to itself: before its shard in the receiving lane.
    Loopback(NetstackId),
    /// The same before the outward limits of the VNIC with its source address: their home is the receiving lane.
    LoopOut(NetstackId),
    /// The same before the inward limits of the VNIC with its destination address.
    LoopIn(NetstackId),
}

/// A change of configuration.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // It travels in a box of its own, and rarely.
pub enum Control<D> {
    /// A link begins: a NIC, a TAP, a wire, or an etherstub, each with the switch that its VNICs share.
    AddLink(LinkConfig),
    /// Packets between a link's VNICs are as large as this from here on; traffic runs on.
    SetMtu(LinkConfig),
    /// A link ends; its ports were removed before.
    RemoveLink(LinkId),
    /// A port begins, with this lane's queue of its driver if it has one here.
    AddPort(PortConfig, Option<D>),
    /// One more queue of a port's driver is here.
    AddQueue(LinkId, D),
    /// The ring of this number of a port's device ends, by which nothing more comes and this lane sends nothing: what is in it is
    /// fetched first.
    EndQueue(LinkId, u16),
    /// What was lent to this lane to send to a port's device by ends; it sends through another one by now.
    GiveBack(LinkId),
    /// A port ends.
    RemovePort(LinkId),
    /// A port is protected from its user, in another way, or no more. It may come before the port, so that nothing
    /// passes unseen.
    SetGuard(LinkId, MacAddr, Option<Rules>),
    /// A port gets another user.
    SetUser(LinkId, PortUser),
    /// A VNIC that has no user leads to another link by a wire, whose queue may be here, or no more: what nobody over its own link has
    /// goes there.
    Plug(LinkId, PortUser, Option<D>),
    /// A flow begins.
    AddFlow(FlowSetup),
    /// A flow ends.
    RemoveFlow(FlowId),
    /// A flow's limit changes; traffic runs on.
    SetMaxbw(FlowId, Option<BitRate>),
    /// What a flow is guaranteed changes.
    SetMinbw(FlowId, Option<BitRate>),
    /// A flow's priority changes.
    SetPriority(FlowId, Priority),
    /// With whom connections may be fused that belong to a flow, or to one that is part of it.
    SetFusion(FlowId, FuseWith),
    /// Whether a port's device is read without having called changes.
    SetPolling(LinkId, Polling),
    /// Whether a VNIC's port looks on at what others of its VLAN send each other changes.
    SetOnlooker(LinkId, bool),
    /// Gives a queue of a port's driver to another lane.
    GiveQueue(LinkId, LaneId),
    /// Frames for a port whose driver has no queue here go to another lane than before.
    SendThrough(LinkId, LaneId),
    /// A flow's home changes (a limit came or went above it).
    SetHome(FlowId, Option<LaneId>),
    /// Who is on a netstack's link may be another than before.
    Rejoin(NetstackId, LinkId),
    /// A netstack begins.
    AddNetstack(NetstackConfig),
    /// A netstack ends; its connections are aborted.
    RemoveNetstack(NetstackId),
    /// An address of a netstack begins.
    AddAddress(NetstackId, LinkId, IpPrefix),
    /// An address of a netstack has another prefix length, and nothing new begins with it, or something may again.
    SetAddress(NetstackId, LinkId, IpPrefix, bool),
    /// An address of a netstack is not used until it is added again: nothing comes for it, and what has begun with it waits.
    SuspendAddress(NetstackId, LinkId, IpAddr),
    /// An address of a netstack ends.
    RemoveAddress(NetstackId, LinkId, IpAddr),
    /// What has begun with an address that is not used now ends.
    AbortAddress(NetstackId, IpAddr),
    /// A link of a netstack is configured automatically, in another way, or no more.
    SetAutoconf(NetstackId, LinkId, Option<AutoconfConfig>),
    /// A route of a netstack begins.
    AddRoute(NetstackId, RouteConfig),
    /// A route of a netstack ends.
    RemoveRoute(NetstackId, RouteConfig),
    /// Routes of a routing daemon begin and end, in this order and at once. One that begins again or that has ended already
    /// changes nothing.
    ChangeRoutes(NetstackId, Arc<[RouteChange]>),
    /// An interface of a netstack has other settings.
    SetRouting(NetstackId, LinkId, IfRouting),
    /// A netstack's filter follows other rules; what they let through before may go on. Whoever gives the list keeps the one before it
    /// until all lanes follow this one: its end takes as long as it is.
    SetFilter(NetstackId, Arc<RuleList>),
    /// Networks come into the pools that its rules name, and go.
    ChangePools(NetstackId, Arc<[PoolChange]>),
    /// A netstack's addresses are translated by other rules; what a rule has made that stays, stays. Whoever gives the list keeps the one
    /// before it until all lanes follow this one.
    SetNat(NetstackId, Arc<NatList>),
    /// A DHCP client of the netstack's own waits on a link for the answer to the exchange with this number, or for none: that answer
    /// passes the filter and the translation.
    Await(NetstackId, LinkId, Family, Option<u32>),
    /// Begins a netstack's tunnel, changes it, or ends that of a port.
    SetTunnel(NetstackId, LinkId, Option<TunnelSetup>),
    /// A netstack's tunables change; identity, steering and address tests stay.
    Tune(NetstackConfig),
    /// The sockets of a netstack begin in other lanes from now on; those that there are stay where they are.
    Steer(NetstackId, Steering),
    /// Somebody looks on.
    AddTap(CaptureTap),
    /// Nobody looks on any more.
    RemoveTap(u32),
}

impl<D> Control<D> {
    /// The change in words, for notices.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::AddLink(_) => "add link",
            Self::SetMtu(_) => "set MTU",
            Self::RemoveLink(_) => "remove link",
            Self::AddPort(..) => "add port",
            Self::AddQueue(..) => "add queue",
            Self::EndQueue(..) => "end queue",
            Self::GiveBack(_) => "give back",
            Self::RemovePort(_) => "remove port",
            Self::SetGuard(..) => "set guard",
            Self::SetUser(..) => "set user",
            Self::Plug(..) => "plug",
            Self::AddFlow(_) => "add flow",
            Self::RemoveFlow(_) => "remove flow",
            Self::SetMaxbw(..) => "set maxbw",
            Self::SetMinbw(..) => "set minbw",
            Self::SetPriority(..) => "set priority",
            Self::SetFusion(..) => "set fusion",
            Self::SetPolling(..) => "set polling",
            Self::SetOnlooker(..) => "set onlooker",
            Self::GiveQueue(..) => "give queue",
            Self::SendThrough(..) => "send through",
            Self::SetHome(..) => "set home",
            Self::Rejoin(..) => "rejoin",
            Self::AddNetstack(_) => "add netstack",
            Self::RemoveNetstack(_) => "remove netstack",
            Self::AddAddress(..) => "add address",
            Self::RemoveAddress(..) => "remove address",
            Self::SuspendAddress(..) => "suspend address",
            Self::AbortAddress(..) => "abort address",
            Self::SetAutoconf(..) => "set autoconf",
            Self::AddRoute(..) => "add route",
            Self::RemoveRoute(..) => "remove route",
            Self::ChangeRoutes(..) => "change routes",
            Self::SetRouting(..) => "set routing",
            Self::SetAddress(..) => "set address",
            Self::SetFilter(..) => "set filter",
            Self::ChangePools(..) => "change pools",
            Self::SetNat(..) => "set nat",
            Self::Await(..) => "await",
            Self::SetTunnel(..) => "set tunnel",
            Self::Tune(_) => "tune",
            Self::Steer(..) => "steer",
            Self::AddTap(_) => "add tap",
            Self::RemoveTap(_) => "remove tap",
        }
    }
}

/// A link and its switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// Its identifier.
    pub link: LinkId,
    /// The largest packet between its VNICs.
    pub mtu: Mtu,
}

/// With whom connections of a link or a flow may be fused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FuseWith {
    /// With nobody: segments carry their text.
    Nobody,
    /// With sockets of the same netstack.
    #[default]
    Itself,
    /// With those of other netstacks on the same switch as well, if the other end says so, too.
    Others,
}

/// A port of a link's switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortConfig {
    /// The port's own identifier: the VNIC's, or for the uplink the link's.
    pub id: LinkId,
    /// The link whose switch it is attached to.
    pub over: LinkId,
    /// What it is.
    pub kind: PortKind,
    /// Who gets what arrives at it.
    pub user: PortUser,
}

/// What a port is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortKind {
    /// The link's lower side: unknown destinations go there.
    Uplink,
    /// The end of a wire: another link lies beyond it, and unknown destinations go there, too.
    Trunk {
        /// The flow of all that passes.
        flow: FlowId,
    },
    /// A VNIC.
    Vnic {
        /// Its address.
        mac: MacAddr,
        /// Its VLAN.
        vlan: Option<VlanId>,
        /// The flow that everything belongs to that no flow of its own matches. It carries the VNIC's limit.
        flow: FlowId,
    },
}

/// Who gets what arrives at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortUser {
    /// Nobody as yet: what arrives is dropped.
    Nobody,
    /// A driver. A lane that has no queue of it hands its frames to lane `through`.
    Driver {
        /// The lane whose queue takes what other lanes send.
        through: LaneId,
    },
    /// A netstack.
    Netstack(NetstackId),
    /// A tunnel of a netstack, whose addresses carry what leaves by the port.
    Tunnel {
        /// The netstack.
        netstack: NetstackId,
        /// The lane in which all of it enters, if its order is told.
        through: Option<LaneId>,
    },
}

/// A tunnel, and the port of the netstack that it leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunnelSetup {
    /// The tunnel; its link is the port whose user it is.
    pub config: TunnelConfig,
    /// The address of the netstack's port.
    pub mac: MacAddr,
}

/// A flow of a VNIC or of a link's wire, or the flow that carries a VNIC's or a link's own limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowSetup {
    /// Its identifier.
    pub flow: FlowId,
    /// The VNIC, uplink or link that it belongs to.
    pub owner: LinkId,
    /// What its frames have in common; `None` for the flow that carries a VNIC's or link's own limit.
    pub rule: Option<FlowMatch>,
    /// Limit, priority and parent.
    pub config: FlowConfig,
    /// The lane in which it is limited, if it or anything above it has a limit: one lane, so that the limit
    /// is exact, and the same for all that share a limit.
    pub home: Option<LaneId>,
}

/// One IP instance, as each lane's shard gets it.
#[derive(Clone, Debug)]
pub struct NetstackConfig {
    /// Its identifier.
    pub id: NetstackId,
    /// Which lane owns which connections.
    pub steering: Steering,
    /// TCP's tunables.
    pub tcp: Arc<TcpConfig>,
    /// Where connections' local ports are chosen from (RFC 6056).
    pub tcp_ports: RangeInclusive<u16>,
    /// Where datagram sockets' local ports are chosen from.
    pub udp_ports: RangeInclusive<u16>,
    /// How long TIME-WAIT lasts.
    pub time_wait: Duration,
    /// Whether packets for others are forwarded.
    pub forwarding: Forwarding,
    /// The hops that its packets may take.
    pub hops: HopLimits,
    /// How many RSTs each lane sends per second to segments of no connection; `u32::MAX` is no limit.
    pub resets_per_second: u32,
    /// How its addresses are tested before they are used; not at all unless asked for.
    pub dad: DadConfig,
    /// How the link-local addresses of its interfaces are made; none unless asked for.
    pub link_local: Option<IidKind>,
    /// Whether the groups that it listens to are reported (IGMP, MLD).
    pub group_reports: bool,
    /// Whether connections between its own sockets are fused.
    pub fusion: FusionTuning,
    /// What the identifiers of its own addresses are made from; `None` draws it from the process' secrets.
    pub stable_secret: Option<[u8; 16]>,
}

impl NetstackConfig {
    /// A netstack with default tunables, all in one lane.
    pub fn new(id: NetstackId) -> Self {
        Self {
            id,
            steering: Steering::single(LaneId(0)),
            tcp: Arc::new(TcpConfig::default()),
            // Solaris' smallest and largest anonymous port.
            tcp_ports: 32_768..=65_535,
            udp_ports: 32_768..=65_535,
            time_wait: Duration::from_secs(60),
            forwarding: Forwarding::OFF,
            hops: HopLimits::DEFAULT,
            resets_per_second: ResetBudget::DEFAULT_RATE,
            dad: DadConfig::OFF,
            link_local: None,
            group_reports: false,
            fusion: FusionTuning::default(),
            stable_secret: None,
        }
    }
}

/// How connections are fused (Solaris: `do_tcp_fusion`, `tcp_fusion_rcv_unread_min`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FusionTuning {
    /// Whether they are at all.
    pub is_on: bool,
    /// How many writes may be unread; zero is as many as the buffers hold.
    pub unread_min: u32,
}

impl Default for FusionTuning {
    fn default() -> Self {
        Self { is_on: true, unread_min: 0 }
    }
}

/// A route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteConfig {
    /// Where to.
    pub destination: IpPrefix,
    /// Through whom; `None` if it is on the link.
    pub gateway: Option<IpAddr>,
    /// By which link; `None` chooses the one on which the gateway is.
    pub link: Option<LinkId>,
    /// Which sources' packets may take it; such routes come before those for all.
    pub source: Option<IpPrefix>,
    /// What becomes of packets that take it.
    pub kind: RouteKind,
    /// Which congestion control connections over it use, if not the netstack's; what a socket asks for counts more.
    pub congestion: Option<Algorithm>,
    /// Whose lease it comes from, if not from the operator, whose routes come before those of leases.
    pub lease: Option<Primacy>,
}

impl RouteConfig {
    /// A route to stations on a link.
    pub const fn on_link(destination: IpPrefix, link: LinkId) -> Self {
        Self {
            destination,
            gateway: None,
            link: Some(link),
            source: None,
            kind: RouteKind::Unicast,
            congestion: None,
            lease: None,
        }
    }

    /// A route through a gateway, by the link on which that is.
    pub const fn via(destination: IpPrefix, gateway: IpAddr) -> Self {
        Self {
            destination,
            gateway: Some(gateway),
            link: None,
            source: None,
            kind: RouteKind::Unicast,
            congestion: None,
            lease: None,
        }
    }

    /// A route on which packets end.
    pub const fn ending(destination: IpPrefix, kind: RouteKind) -> Self {
        Self { destination, gateway: None, link: None, source: None, kind, congestion: None, lease: None }
    }

    /// What a route of the tables says of congestion control.
    pub fn congestion_of(route: &firelane_ip::Route) -> Option<Algorithm> {
        crate::stacks::said_by(route.hint)
    }
}

/// What changes of a routing daemon's routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteChange {
    /// A route begins.
    Add(RouteConfig),
    /// A route ends.
    Remove(RouteConfig),
}

/// A socket's command. Commands for connections that are gone do nothing.
#[derive(Debug)]
pub enum SocketCommand {
    /// Opens a connection.
    Connect(Box<Connect>),
    /// The same for one without a local port for which the lanes before this one have none; the one named was asked first.
    ConnectElsewhere(Box<Connect>, LaneId),
    /// Listens; sent to every lane of the netstack.
    Listen(Box<Listen>),
    /// Ends a listener; sent to every lane of the netstack.
    Unlisten(SocketId),
    /// What a listener's connections start with from now on; sent to every lane of the netstack.
    Relisten(SocketId, Box<Relisten>),
    /// A listener or a datagram socket has a filter of its own, with other rules, or without any none; sent to every lane that has the
    /// socket. Rules that keep something keep nothing here. Whoever gives the setup keeps the one before it until all lanes follow this one.
    Filter(SocketId, Arc<FilterSetup>),
    /// The program writes no more.
    Shutdown(ConnRef),
    /// The program reads no more of what is to come.
    ShutdownRead(ConnRef),
    /// What the program has written up to a cursor of its send ring is urgent (MSG_OOB).
    Urgent(ConnRef, u64),
    /// A program lacks credit for what it wants to carry past the lane.
    Borrow {
        /// Its connection.
        conn: ConnRef,
        /// How much it lacks.
        lacks: Bytes,
        /// How much it has carried so far.
        carried: Bytes,
    },
    /// The program closed the socket.
    Close(ConnRef),
    /// The same for one whose lane had not made its connection then: it has now, as this comes behind [`Self::Connect`], or
    /// has failed, or looks for a port still, or has handed it to another lane.
    CloseUnmade(StreamRef),
    /// The program wants a reset.
    Abort(ConnRef),
    /// An option of a connection.
    SetOption(ConnRef, StreamOption),
    /// Opens a datagram socket; sent to the lane that [`crate::datagram_lane`] names.
    Bind(Box<Bind>),
    /// Names the only peer of a datagram socket, or none.
    ConnectDatagrams(Box<ConnectDatagrams>),
    /// The program closed a datagram socket.
    CloseDatagrams(SocketId),
    /// An option of a datagram socket.
    SetDatagramOption(SocketId, DatagramOption),
    /// What a datagram socket wants to hear of a group; sent to every lane of the netstack.
    Join(Box<Join>),
    /// A datagram socket leaves all groups; sent to every lane of the netstack.
    LeaveGroups(SocketId),
}

/// An active open.
#[derive(Debug)]
pub struct Connect {
    /// To whom.
    pub remote: SocketAddr,
    /// From which address, if the program bound one. A port other than zero must steer to this lane.
    pub local: Option<SocketAddr>,
    /// The lane's side of the stream.
    pub stream: StreamSlot,
    /// What the program chose.
    pub options: StreamOptions,
}

/// What the next connections of a listener start with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relisten {
    /// Their ring sizes.
    pub rings: StreamConfig,
    /// Their options.
    pub options: StreamOptions,
}

/// A listener.
#[derive(Clone, Debug)]
pub struct Listen {
    /// The engine's name for it, the same in every lane.
    pub socket: SocketId,
    /// On what; an unspecified address is every address of its family.
    pub local: SocketAddr,
    /// Whether `[::]` leaves IPv4 to others.
    pub v6_only: bool,
    /// Whether others that say so, too, may listen there (SO_REUSEPORT); each gets a part of the connections.
    pub shares: bool,
    /// This lane's side of the accept queue.
    pub slot: ListenerSlot,
    /// The ring sizes of its connections.
    pub rings: StreamConfig,
    /// What its connections start with.
    pub options: StreamOptions,
}

/// A datagram socket.
#[derive(Debug)]
pub struct Bind {
    /// The engine's name for it.
    pub socket: SocketId,
    /// On what; port zero lets the lane choose.
    pub local: SocketAddr,
    /// Whether `[::]` leaves IPv4 to others.
    pub v6_only: bool,
    /// Which others may be bound to the same.
    pub sharing: Sharing,
    /// With whom only, if it is connected.
    pub remote: Option<SocketAddr>,
    /// Over which protocol.
    pub kind: DatagramKind,
    /// Over which link only (SO_BINDTODEVICE, Solaris' IP_BOUND_IF). Without an address such a socket sends to
    /// everybody without a source, as a station does that has none yet (IP_UNSPEC_SRC, RFC 2131 §4.1).
    pub link: Option<LinkId>,
    /// The lane's side of the queues.
    pub slot: DatagramSlot,
}

/// What a datagram socket's datagrams are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DatagramKind {
    /// UDP.
    #[default]
    Udp,
    /// Echoes of ICMP, in the netstack's home lane. The port is their identifier; a record is a sequence number of two
    /// octets and the text.
    Echo,
}

/// Another peer for a datagram socket.
#[derive(Clone, Debug)]
pub struct ConnectDatagrams {
    /// Which socket.
    pub socket: SocketId,
    /// With whom only; `None` is with everybody, from what it was bound to.
    pub remote: Option<SocketAddr>,
    /// The only link that it speaks over from then on.
    pub link: Option<LinkId>,
    /// The local address from then on, or why the socket stays as it was. Set when the command is carried out.
    pub outcome: Arc<OnceLock<Result<SocketAddr, SocketError>>>,
}

/// The options that a stream starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamOptions {
    /// Which rings grow with what the path carries: those whose sizes the program left open (SO_SNDBUF, SO_RCVBUF).
    pub tuning: Tuning,
    /// Small segments do not wait for each other (TCP_NODELAY).
    pub nodelay: bool,
    /// The peer is asked whether it lives (SO_KEEPALIVE).
    pub keepalive: Option<Keepalive>,
    /// The same at the times that the netstack has when the connection begins.
    pub keepalive_default: bool,
    /// How long data may stay unacknowledged (TCP_USER_TIMEOUT).
    pub user_timeout: Option<Duration>,
    /// Which congestion control it uses, if not the netstack's (TCP_CONGESTION).
    pub congestion: Option<Algorithm>,
    /// How fast it may send (SO_MAX_PACING_RATE).
    pub pacing_limit: Option<BitRate>,
    /// How much may be written and unsent (TCP_NOTSENT_LOWAT).
    pub unsent_limit: Option<u32>,
    /// A connect's SYN may carry what stands in its send ring (TCP_FASTOPEN_CONNECT).
    pub fast_open: bool,
    /// Text goes with a SYN, and is taken from one, also without a cookie (TCP_FASTOPEN_NO_COOKIE).
    pub fast_open_trusts: bool,
    /// How many connections a listener lets begin with the text of their SYNs, in each lane, before their handshakes are
    /// over (TCP_FASTOPEN); zero leaves it to the netstack.
    pub fast_open_queue: u32,
    /// The only link that it speaks over (SO_BINDTODEVICE): by which it sends, and by which a listener's connections come.
    pub link: Option<LinkId>,
    /// How often a SYN is repeated (TCP_SYNCNT).
    pub syn_retries: Option<u8>,
    /// How long FIN-WAIT-2 lasts once the socket is closed (TCP_LINGER2).
    pub fin_wait_2: Option<Duration>,
    /// The largest segment that is announced, and sent (TCP_MAXSEG).
    pub mss_limit: Option<Mss>,
    /// The largest window that is announced (TCP_WINDOW_CLAMP).
    pub window_clamp: Option<u32>,
    /// Whether ICMP errors are its program's to hear at once, of IPv4 and of IPv6 (IP_RECVERR, IPV6_RECVERR).
    pub hears_errors: [bool; 2],
    /// The hop limits of packets of IPv4 and of IPv6, from the SYN on; `None` is the link's (IP_TTL, IPV6_UNICAST_HOPS).
    pub hops: [Option<NonZeroU8>; 2],
    /// Their differentiated services code points, 0 to 63 (IP_TOS, IPV6_TCLASS).
    pub dscp: [u8; 2],
    /// How many hops must be left of a packet of IPv4, and of IPv6 (IP_MINTTL, IPV6_MINHOPCOUNT).
    pub least_hops: [u8; 2],
    /// For how many seconds a listener's connections wait for text before it hears of them (TCP_DEFER_ACCEPT).
    pub defer: u32,
}

/// A change of one option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamOption {
    /// The program chose the size of a buffer (SO_SNDBUF, SO_RCVBUF): it grows no more by itself.
    Tuning(Tuning),
    /// SO_SNDBUF: so much may be unacknowledged.
    SendBuffer(usize),
    /// SO_RCVBUF: so much may be unread. What was promised the peer is not taken back.
    ReceiveBuffer(usize),
    /// TCP_NODELAY.
    Nodelay(bool),
    /// TCP_CORK.
    Cork(bool),
    /// TCP_QUICKACK.
    QuickAck(bool),
    /// SO_KEEPALIVE and its times.
    Keepalive(Option<Keepalive>),
    /// The hop limit of its packets, if they are of this family; `None` is the link's (IP_TTL, IPV6_UNICAST_HOPS).
    Hops(Family, Option<NonZeroU8>),
    /// The differentiated services code point of its packets, 0 to 63, if they are of this family (IP_TOS, IPV6_TCLASS).
    Dscp(Family, u8),
    /// How many hops must be left of a packet, if it is of this family (IP_MINTTL, IPV6_MINHOPCOUNT).
    LeastHops(Family, u8),
    /// TCP_USER_TIMEOUT.
    UserTimeout(Option<Duration>),
    /// The program is signalled for what happens (O_ASYNC), so that the lane must see it.
    Signalled(bool),
    /// TCP_CONGESTION.
    Congestion(Algorithm),
    /// TCP_NOTSENT_LOWAT.
    UnsentLimit(Option<u32>),
    /// SO_MAX_PACING_RATE.
    PacingLimit(Option<BitRate>),
    /// TCP_SYNCNT.
    SynRetries(Option<u8>),
    /// TCP_LINGER2.
    FinWait2(Option<Duration>),
    /// TCP_WINDOW_CLAMP.
    WindowClamp(Option<u32>),
    /// IP_RECVERR and IPV6_RECVERR.
    HearsErrors([bool; 2]),
    /// SO_PRIORITY.
    Band(Band),
}

impl StreamOption {
    /// Whether nothing is left of an earlier one behind this.
    pub fn overrules(&self, earlier: &Self) -> bool {
        let family = |option: &Self| match option {
            Self::Hops(family, _) | Self::Dscp(family, _) | Self::LeastHops(family, _) => Some(*family),
            _ => None,
        };
        core::mem::discriminant(self) == core::mem::discriminant(earlier) && family(self) == family(earlier)
    }

    /// Whether it has a say only where nothing is heard of the peer for long, so that it is all the same whether text that is written
    /// meanwhile comes before or after it.
    pub fn is_of_silence(&self) -> bool {
        matches!(self, Self::Keepalive(_) | Self::UserTimeout(_) | Self::SynRetries(_) | Self::FinWait2(_))
    }
}

/// What a datagram socket wants to hear of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// Which socket.
    pub socket: SocketId,
    /// Which group.
    pub group: IpAddr,
    /// On which link; `None` is the one that leads to the group.
    pub link: Option<LinkId>,
    /// From whom; from nobody ends the membership.
    pub filter: SourceFilter,
}

/// What a datagram socket's packets of one family are like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketOption {
    /// IP_TTL, IPV6_UNICAST_HOPS; `None` is the link's.
    Hops(Option<NonZeroU8>),
    /// IP_TOS, IPV6_TCLASS: the whole octet.
    TrafficClass(u8),
    /// IP_MTU_DISCOVER, IPV6_DONTFRAG: what is too large for the way is refused, here and by routers.
    DontFragment(bool),
    /// IP_MULTICAST_TTL, IPV6_MULTICAST_HOPS.
    MulticastHops(u8),
    /// IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP.
    MulticastLoop(bool),
    /// IP_MULTICAST_ALL, IPV6_MULTICAST_ALL: it hears groups that it has not joined, where others of the netstack have.
    MulticastAll(bool),
    /// IP_MULTICAST_IF, IPV6_MULTICAST_IF: by which link its packets to groups leave, and from which address of IPv4 if the socket has none.
    MulticastLink(Option<LinkId>, Option<Ipv4Addr>),
    /// IP_UNICAST_IF, IPV6_UNICAST_IF: by which link its packets to one station leave, unless it is bound to one or names one.
    UnicastLink(Option<LinkId>),
}

/// A change of one option of a datagram socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramOption {
    /// What its packets of this family are like.
    Packets(Family, PacketOption),
    /// SO_BROADCAST.
    Broadcast(bool),
    /// IPV6_MTU (RFC 3542 §11.1, Linux's too): no packet over IPv6 is larger, whatever the way carries.
    PacketMax(Option<Mtu>),
    /// UDP_GRO.
    ReceiveOffload(bool),
    /// SO_RCVBUF: the most bytes of records that wait to be received.
    ReceiveQueue(usize),
    /// IP_RECVERR, IPV6_RECVERR: its program is told of each error ([`Fault`]), not only of what ends a conversation.
    Faults {
        /// Of datagrams over IPv4.
        v4: bool,
        /// Of datagrams over IPv6.
        v6: bool,
    },
    /// SO_PRIORITY.
    Band(Band),
    /// SO_MAX_PACING_RATE.
    PacingLimit(Option<BitRate>),
    /// A record of an echo is the whole message, with ICMP's header.
    WholeMessages(bool),
    /// SO_REUSEADDR, SO_REUSEPORT: who else may be bound to the same from now on.
    Sharing(Sharing),
}

/// What became of a datagram that a program had sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Somebody says so by ICMP.
    Told(TransportError),
    /// It was too large for the way that it was to take, and not to be cut.
    TooLong {
        /// Where it was to go.
        to: SocketAddr,
        /// What the way carries.
        mtu: Mtu,
    },
}

/// A packet that a lane's filter has met.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilteredPacket {
    /// In to the netstack, or out of it.
    pub direction: Direction,
    /// By which link.
    pub link: LinkId,
    /// The rule by which, if it is of the list that is there.
    pub rule: Option<u32>,
    /// Which list of rules that is.
    pub list: u32,
    /// The packet's begin, from its IP header on.
    pub bytes: Vec<u8>,
}

/// What one lane of a netstack tells the others.
#[derive(Clone, Debug)]
pub enum Learned {
    /// What the home lane has configured is told from the beginning: this one has not heard of it for a while.
    Anew,
    /// A neighbour's address.
    Neighbour {
        /// On which link.
        link: LinkId,
        /// Whose.
        ip: IpAddr,
        /// What it is, if it was said.
        mac: Option<MacAddr>,
        /// How it was said.
        how: Hearsay,
    },
    /// A path's largest packet.
    PathMtu {
        /// Towards whom.
        dst: IpAddr,
        /// How large.
        mtu: Mtu,
    },
    /// Nobody else has an address of ours.
    Ready {
        /// On which link.
        link: LinkId,
        /// Which.
        ip: IpAddr,
    },
    /// Somebody else has an address of ours.
    Duplicate {
        /// On which link.
        link: LinkId,
        /// Which.
        ip: IpAddr,
    },
    /// The home lane tests an address of the netstack again that another station had.
    Again {
        /// On which link.
        link: LinkId,
        /// The address.
        ip: IpAddr,
    },
    /// Something that the netstack configured by itself.
    Configured(Configured),
    /// An ICMP error about a packet of a connection or socket of the lane that is told, or of another one if this one has it not: the
    /// lane that was asked first, if it is not this one.
    Error(TransportError, Option<LaneId>),
    /// What a server says of Fast Open.
    FastOpen(FastOpenNews),
    /// A filter has let a packet through, and the lane that is told gets what comes back.
    Filtered(Box<FilteredPacket>),
}
