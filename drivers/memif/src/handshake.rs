//! The control protocol, both ends, sans-I/O: messages with descriptors in, messages and a session out.
//!
//! Called by `keeper.rs`. The server speaks first (hello); then the client names the interface (init), hands over
//! memory (add_region) and rings (add_ring), each acknowledged, and asks to begin (connect); the server agrees
//! (connected). Either may end it at any time (disconnect).
//!
//! ```text
//! server   Hello sent -> Init -> Rings -> Connect => session     client   wait Hello -> Acks.. -> Connected => session
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::OwnedFd;

use crate::config::{MemifConfig, Role, Secret};
use crate::layout::{LOG2_SIZE_MAX, Plan};
use crate::message::{
    AddRing, Hello, Init, MODE_ETHERNET, Message, Name, RING_TO_SERVER, VERSION, reason_text,
};

/// More regions than this serve nobody: DPDK's client without zero copy has one, with it a few.
pub(crate) const REGIONS_MAX: u16 = 16;
/// What one client may have mapped: 64 rings of 2^14 buffers of 1 KiB.
pub(crate) const MAPPED_BYTES_MAX: u64 = 1 << 30;

/// Why a handshake or a session ended. The text is also what the other end is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Not now.
    Unexpected(u16),
    UnknownType(u16),
    Version,
    Id(u32),
    Mode(u8),
    SecretRequired,
    SecretWrong,
    RegionIndex(u16),
    RegionSize(u64),
    RegionNotSealed,
    RegionShort,
    RingIndex(u16),
    RingRegion(u16),
    RingSize(u8),
    RingPlace(u32),
    RingTwice(u16),
    RingCookie,
    Descriptors(usize),
    NoEventfd,
    TooFewRings {
        wanted: u16,
    },
    Memory(i32),
    /// The other end's words.
    Told(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected(kind) => write!(f, "message type {kind} is out of turn"),
            Self::UnknownType(kind) => write!(f, "message type {kind} is unknown: 1 to 8"),
            Self::Version => f.write_str("memif version: 2.0 only"),
            Self::Id(id) => write!(f, "interface id {id} is not on this socket"),
            Self::Mode(mode) => write!(f, "interface mode {mode}: ethernet (0) only"),
            Self::SecretRequired => f.write_str("a secret is required"),
            Self::SecretWrong => f.write_str("the secret is wrong"),
            Self::RegionIndex(index) => write!(f, "region {index}: in order, fewer than {REGIONS_MAX}"),
            Self::RegionSize(size) => write!(f, "region of {size} bytes: 1 to {MAPPED_BYTES_MAX} in all"),
            Self::RegionNotSealed => {
                f.write_str("a region must be a memfd of ordinary pages with F_SEAL_SHRINK")
            }
            Self::RegionShort => f.write_str("a region's memfd is shorter than its message says"),
            Self::RingIndex(index) => write!(f, "ring {index} is not wanted"),
            Self::RingRegion(region) => write!(f, "a ring lies in region {region}, which does not exist"),
            Self::RingSize(log2) => write!(f, "ring of 2^{log2}: 2^1 to 2^{LOG2_SIZE_MAX}"),
            Self::RingPlace(at) => write!(f, "ring at {at}: on a multiple of 8, inside its region"),
            Self::RingTwice(index) => write!(f, "ring {index} came twice"),
            Self::RingCookie => f.write_str("a ring has the wrong cookie"),
            Self::Descriptors(count) => write!(f, "{count} descriptors beside a message: the wrong number"),
            Self::NoEventfd => f.write_str("a ring's descriptor must be an eventfd"),
            Self::TooFewRings { wanted } => write!(f, "{wanted} ring(s) each way are wanted"),
            Self::Memory(errno) => write!(f, "no memory for the session (errno {errno})"),
            Self::Told(reason) => write!(f, "the other end: {reason}"),
        }
    }
}

impl Refusal {
    /// What sets it right, for who looks at this end: the reason itself goes to the other one, and has no word of our settings.
    pub(crate) fn remedy(&self, config: &MemifConfig) -> Option<String> {
        let id = config.id;
        match (self, config.role) {
            (Self::SecretRequired | Self::SecretWrong, _) => {
                Some("`secret` has to be the same at both ends".to_owned())
            }
            (Self::Id(_), _) => Some(format!("`id` has to be the same at both ends: here {id}")),
            (Self::Told(_), Role::Client) => Some(format!(
                "`id` (here {id}) and `secret` have to be the same at both ends, and no other client may be there"
            )),
            _ => None,
        }
    }
}

/// A ring that a client has offered.
#[derive(Debug)]
pub(crate) struct RingOffer {
    pub(crate) region: u16,
    pub(crate) offset: u32,
    pub(crate) log2_size: u8,
    pub(crate) bell: OwnedFd,
}

/// Everything that a client has offered: as many rings each way as are wanted.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) regions: Vec<(OwnedFd, u64)>,
    pub(crate) to_server: Vec<RingOffer>,
    pub(crate) to_client: Vec<RingOffer>,
}

/// Who the other end says it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Peer {
    pub(crate) program: String,
    pub(crate) interface: String,
}

/// What a server does next.
#[derive(Debug)]
pub(crate) enum ServerStep {
    Send(Message),
    /// The session is made of this; if that succeeds, `connected` is sent.
    Connect(Offer, Peer),
}

/// The server's side of one connection.
#[derive(Debug)]
pub(crate) struct ServerHandshake {
    id: u32,
    secret: Option<Secret>,
    queues: u16,
    began: bool,
    regions: Vec<(OwnedFd, u64)>,
    to_server: Vec<Option<RingOffer>>,
    to_client: Vec<Option<RingOffer>>,
    peer: Peer,
}

impl ServerHandshake {
    pub(crate) fn new(config: &MemifConfig) -> Self {
        let none = || (0..config.queues).map(|_| None).collect();
        Self {
            id: config.id,
            secret: config.secret,
            queues: config.queues,
            began: false,
            regions: Vec::new(),
            to_server: none(),
            to_client: none(),
            peer: Peer::default(),
        }
    }

    /// What the server says first.
    pub(crate) fn hello(&self) -> Message {
        Message::Hello(Hello {
            name: Name::new(concat!("firelane ", env!("CARGO_PKG_VERSION"))),
            min_version: VERSION,
            max_version: VERSION,
            max_region: REGIONS_MAX - 1,
            max_to_client: self.queues - 1,
            max_to_server: self.queues - 1,
            max_log2_ring_size: LOG2_SIZE_MAX,
        })
    }

    /// Takes a message.
    pub(crate) fn take(&mut self, message: Message, fds: Vec<OwnedFd>) -> Result<ServerStep, Refusal> {
        let unexpected = Refusal::Unexpected(message.number());
        match message {
            Message::Disconnect { reason, .. } => Err(Refusal::Told(reason_text(&reason))),
            Message::Init(init) if !self.began => self.init(&init, &fds),
            _ if !self.began => Err(unexpected),
            Message::AddRegion { index, size } => self.add_region(index, size, fds),
            Message::AddRing(ring) => self.add_ring(&ring, fds),
            Message::Connect(name) => self.connect(name, &fds),
            _ => Err(unexpected),
        }
    }

    fn init(&mut self, init: &Init, fds: &[OwnedFd]) -> Result<ServerStep, Refusal> {
        if !fds.is_empty() {
            return Err(Refusal::Descriptors(fds.len()));
        }
        if init.version != VERSION {
            return Err(Refusal::Version);
        }
        if init.id != self.id {
            return Err(Refusal::Id(init.id));
        }
        if init.mode != MODE_ETHERNET {
            return Err(Refusal::Mode(init.mode));
        }
        if let Some(secret) = &self.secret {
            if init.secret[0] == 0 {
                return Err(Refusal::SecretRequired);
            }
            if !secret.is(&init.secret) {
                return Err(Refusal::SecretWrong);
            }
        }
        self.began = true;
        self.peer.program = init.name.text();
        Ok(ServerStep::Send(Message::Ack))
    }

    fn add_region(&mut self, index: u16, size: u64, fds: Vec<OwnedFd>) -> Result<ServerStep, Refusal> {
        let fd = only(fds)?;
        if usize::from(index) != self.regions.len() || index >= REGIONS_MAX {
            return Err(Refusal::RegionIndex(index));
        }
        let mapped: u64 = self.regions.iter().map(|(_, size)| size).sum();
        if size == 0 || size > MAPPED_BYTES_MAX - mapped {
            return Err(Refusal::RegionSize(size));
        }
        self.regions.push((fd, size));
        Ok(ServerStep::Send(Message::Ack))
    }

    fn add_ring(&mut self, ring: &AddRing, fds: Vec<OwnedFd>) -> Result<ServerStep, Refusal> {
        let bell = only(fds)?;
        if usize::from(ring.region) >= self.regions.len() {
            return Err(Refusal::RingRegion(ring.region));
        }
        if ring.log2_size == 0 || ring.log2_size > LOG2_SIZE_MAX {
            return Err(Refusal::RingSize(ring.log2_size));
        }
        let rings = if ring.flags & RING_TO_SERVER != 0 { &mut self.to_server } else { &mut self.to_client };
        let place = rings.get_mut(usize::from(ring.index)).ok_or(Refusal::RingIndex(ring.index))?;
        if place.is_some() {
            return Err(Refusal::RingTwice(ring.index));
        }
        let AddRing { region, offset, log2_size, .. } = *ring;
        *place = Some(RingOffer { region, offset, log2_size, bell });
        Ok(ServerStep::Send(Message::Ack))
    }

    fn connect(&mut self, name: Name, fds: &[OwnedFd]) -> Result<ServerStep, Refusal> {
        if !fds.is_empty() {
            return Err(Refusal::Descriptors(fds.len()));
        }
        let missing = Refusal::TooFewRings { wanted: self.queues };
        let all = |rings: &mut Vec<Option<RingOffer>>| rings.drain(..).collect::<Option<Vec<_>>>();
        let (Some(to_server), Some(to_client)) = (all(&mut self.to_server), all(&mut self.to_client)) else {
            return Err(missing);
        };
        self.peer.interface = name.text();
        let offer = Offer { regions: std::mem::take(&mut self.regions), to_server, to_client };
        Ok(ServerStep::Connect(offer, std::mem::take(&mut self.peer)))
    }
}

fn only(fds: Vec<OwnedFd>) -> Result<OwnedFd, Refusal> {
    let count = fds.len();
    let mut fds = fds.into_iter();
    match (fds.next(), count) {
        (Some(fd), 1) => Ok(fd),
        _ => Err(Refusal::Descriptors(count)),
    }
}

/// The descriptor that a client's message carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beside {
    Nothing,
    Region,
    Bell { to_server: bool, queue: u16 },
}

/// What a client does next.
#[derive(Debug)]
pub(crate) enum ClientStep {
    /// Memory of this plan is made, and then the first message is asked for with `next`.
    Make(Plan),
    Send(Message, Beside),
    Connected(Peer),
}

/// The client's side of one connection.
#[derive(Debug)]
pub(crate) struct ClientHandshake {
    id: u32,
    secret: Secret,
    plan: Plan,
    name: Name,
    greeted: bool,
    rest: VecDeque<(Message, Beside)>,
    peer: Peer,
}

impl ClientHandshake {
    pub(crate) fn new(config: &MemifConfig) -> Self {
        let plan = Plan {
            queues: config.queues,
            log2_size: config.ring_size.trailing_zeros() as u8,
            buffer_bytes: config.buffer_bytes.into(),
        };
        Self {
            id: config.id,
            secret: config.secret.unwrap_or_default(),
            plan,
            name: Name::new(&config.name),
            greeted: false,
            rest: VecDeque::new(),
            peer: Peer::default(),
        }
    }

    /// Takes a message.
    pub(crate) fn take(&mut self, message: Message, fds: &[OwnedFd]) -> Result<ClientStep, Refusal> {
        if !fds.is_empty() {
            return Err(Refusal::Descriptors(fds.len()));
        }
        match message {
            Message::Disconnect { reason, .. } => Err(Refusal::Told(reason_text(&reason))),
            Message::Hello(hello) if !self.greeted => self.hello(&hello),
            Message::Ack if self.greeted => match self.rest.pop_front() {
                Some((message, beside)) => Ok(ClientStep::Send(message, beside)),
                None => Err(Refusal::Unexpected(message.number())),
            },
            Message::Connected(name) if self.greeted && self.rest.is_empty() => {
                self.peer.interface = name.text();
                Ok(ClientStep::Connected(self.peer.clone()))
            }
            _ => Err(Refusal::Unexpected(message.number())),
        }
    }

    /// The first message, once the memory is there.
    pub(crate) fn first(&self) -> Message {
        Message::Init(Init {
            version: VERSION,
            id: self.id,
            mode: MODE_ETHERNET,
            secret: self.secret.0,
            name: Name::new(concat!("firelane ", env!("CARGO_PKG_VERSION"))),
        })
    }

    fn hello(&mut self, hello: &Hello) -> Result<ClientStep, Refusal> {
        if !(hello.min_version..=hello.max_version).contains(&VERSION) {
            return Err(Refusal::Version);
        }
        let wanted = self.plan.queues;
        if hello.max_to_client < wanted - 1 || hello.max_to_server < wanted - 1 {
            return Err(Refusal::TooFewRings { wanted });
        }
        self.plan.log2_size = self.plan.log2_size.min(hello.max_log2_ring_size);
        if self.plan.log2_size == 0 {
            return Err(Refusal::RingSize(0));
        }
        if !self.plan.is_addressable() {
            return Err(Refusal::RegionSize(self.plan.bytes()));
        }
        self.peer.program = hello.name.text();
        self.greeted = true;
        let region = Message::AddRegion { index: 0, size: self.plan.bytes() };
        self.rest.push_back((region, Beside::Region));
        for to_server in [true, false] {
            for queue in 0..self.plan.queues {
                let ring = AddRing {
                    flags: if to_server { RING_TO_SERVER } else { 0 },
                    index: queue,
                    region: 0,
                    offset: self.plan.ring_at(to_server, queue),
                    log2_size: self.plan.log2_size,
                    private_bytes: 0,
                };
                self.rest.push_back((Message::AddRing(ring), Beside::Bell { to_server, queue }));
            }
        }
        self.rest.push_back((Message::Connect(self.name), Beside::Nothing));
        Ok(ClientStep::Make(self.plan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fd() -> OwnedFd {
        rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()
    }

    fn config(queues: u16) -> MemifConfig {
        MemifConfig { queues, secret: Secret::new("s"), ..MemifConfig::new(Role::Server, "/x") }
    }

    /// Both ends talk to each other until the server has an offer.
    fn talk(server: &MemifConfig, client: &MemifConfig) -> Result<(Offer, Peer), Refusal> {
        let (mut server, mut client) = (ServerHandshake::new(server), ClientHandshake::new(client));
        let mut step = client.take(server.hello(), &[])?;
        loop {
            let (message, fds) = match step {
                ClientStep::Make(_) => (client.first(), Vec::new()),
                ClientStep::Send(message, Beside::Nothing) => (message, Vec::new()),
                ClientStep::Send(message, _) => (message, vec![fd()]),
                ClientStep::Connected(_) => unreachable!("nobody has connected"),
            };
            match server.take(message, fds)? {
                ServerStep::Send(message) => step = client.take(message, &[])?,
                ServerStep::Connect(offer, peer) => {
                    let connected = client.take(Message::Connected(Name::new("server0")), &[])?;
                    let ClientStep::Connected(peer_of_client) = connected else { panic!("{connected:?}") };
                    assert_eq!(peer_of_client.interface, "server0");
                    return Ok((offer, peer));
                }
            }
        }
    }

    #[test]
    fn both_ends_understand_each_other() {
        for queues in [1, 3] {
            let (offer, peer) = talk(&config(queues), &config(queues)).unwrap();
            let lengths = (offer.regions.len(), offer.to_server.len(), offer.to_client.len());
            assert_eq!(lengths, (1, usize::from(queues), usize::from(queues)));
            assert_eq!((peer.interface.as_str(), peer.program.starts_with("firelane")), ("firelane", true));
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused_with_its_reason() {
        let with = |change: fn(&mut MemifConfig)| {
            let mut client = config(1);
            change(&mut client);
            talk(&config(1), &client).unwrap_err()
        };
        assert_eq!(with(|it| it.id = 7), Refusal::Id(7));
        assert_eq!(with(|it| it.secret = None), Refusal::SecretRequired);
        assert_eq!(with(|it| it.secret = Secret::new("t")), Refusal::SecretWrong);
        assert_eq!(with(|it| it.queues = 2), Refusal::TooFewRings { wanted: 2 });
        assert_eq!(talk(&config(2), &config(1)).unwrap_err(), Refusal::TooFewRings { wanted: 2 });
    }

    /// A client that sends anything, in any order, with any number of descriptors.
    fn message() -> impl Strategy<Value = (Message, usize)> {
        let small = prop_oneof![0u16..3, any::<u16>()];
        let ring = (0u16..2, small.clone(), small.clone(), any::<u32>(), 0u8..17).prop_map(
            |(flags, index, region, offset, log2_size)| {
                Message::AddRing(AddRing { flags, index, region, offset, log2_size, private_bytes: 0 })
            },
        );
        let init = Message::Init(Init {
            version: VERSION,
            id: 0,
            mode: 0,
            secret: Secret::new("s").unwrap().0,
            name: Name::new("vandal"),
        });
        let message = prop_oneof![
            3 => Just(init),
            3 => (small, prop_oneof![Just(4096u64), any::<u64>()])
                .prop_map(|(index, size)| Message::AddRegion { index, size }),
            6 => ring,
            1 => Just(Message::Connect(Name::new("x"))),
            1 => Just(Message::Ack),
            1 => Just(Message::disconnect("bye")),
        ];
        (message, prop_oneof![4 => Just(1usize), 2 => Just(0), 1 => Just(2)])
    }

    proptest! {
        #[test]
        fn whatever_a_client_sends_an_offer_is_whole(
            queues in 1u16..3, messages in prop::collection::vec(message(), 1..40),
        ) {
            let mut server = ServerHandshake::new(&config(queues));
            for (message, fds) in messages {
                let fds = if matches!(message, Message::Init(_) | Message::Connect(_)) { 0 } else { fds };
                match server.take(message, (0..fds).map(|_| fd()).collect()) {
                    Ok(ServerStep::Send(answer)) => prop_assert_eq!(answer, Message::Ack),
                    Ok(ServerStep::Connect(offer, _)) => {
                        prop_assert_eq!(offer.to_server.len(), usize::from(queues));
                        prop_assert_eq!(offer.to_client.len(), usize::from(queues));
                        for ring in offer.to_server.iter().chain(&offer.to_client) {
                            prop_assert!(usize::from(ring.region) < offer.regions.len());
                            prop_assert!((1..=LOG2_SIZE_MAX).contains(&ring.log2_size));
                        }
                        let mapped: u64 = offer.regions.iter().map(|(_, size)| size).sum();
                        prop_assert!(mapped <= MAPPED_BYTES_MAX);
                        break;
                    }
                    Err(refusal) => {
                        prop_assert!(refusal.to_string().len() < 90, "it fits a disconnect");
                        break;
                    }
                }
            }
        }
    }
}
