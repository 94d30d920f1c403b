//! What a program and the daemon say to each other beside shared memory: requests and answers, one at a time.
//!
//! A session is one SOCK_SEQPACKET connection; each packet is one message, at most [`MESSAGE_MAX`] bytes, with its
//! descriptors beside it. Every request but [`Request::Child`] and [`Request::Closed`] gets one answer, with the request's number:
//! [`Answer::Failed`] with a number of errno(3), or the one that belongs to it. A socket is named by the inode of the program's descriptor ([`SocketId`]);
//! the daemon looks only at sockets that the session holds. What a listener has accepted waits in its words, or comes by the
//! listener's own descriptor, as [`Arrived`].

use core::net::{IpAddr, SocketAddr};

pub use firelane_units::Family;

use crate::codec::{In, Malformed, Out};
use crate::layout::{BLOCKS_MAX, LANES_MAX, MAGIC, SLOTS, VERSION};

/// The longest message.
pub const MESSAGE_MAX: usize = 8192;
/// The most bytes of a socket option.
pub const OPTION_MAX: usize = 1024;
/// The most sockets that are asked for at a time.
pub const SOCKETS_MAX: u32 = 32;
/// The most interfaces and addresses in one answer.
pub const ADDRESSES_MAX: usize = 80;
/// The level of socket options that no kernel has, `"FL"`, and at it a socket's filter, lines of ipf.conf(5) of at most
/// [`OPTION_MAX`] bytes.
pub const OWN_LEVEL: i32 = 0x464c;
/// See [`OWN_LEVEL`].
pub const OWN_FILTER: i32 = 1;
/// At [`OWN_LEVEL`]: of what the descriptor's owner is signalled, [`SIGNAL_IO`] and [`SIGNAL_URGENT`] as an `int`. The preloaded library
/// says so when the program has set an owner or O_ASYNC.
pub const OWN_SIGNALS: i32 = 2;
/// SIGIO, of all that happens.
pub const SIGNAL_IO: u8 = 1;
/// SIGURG, of urgent text.
pub const SIGNAL_URGENT: u8 = 2;
/// The backlog of a [`Request::Listen`] that leaves a listener's as it is; a program cannot ask for so many.
pub const SAME_BACKLOG: u32 = u32::MAX;
/// The most bytes of a program's filter.
pub const FILTER_MAX: usize = 4096;
const NAME_MAX: usize = 64;
const TEXT_MAX: usize = 256;
/// What [`Request::Closed`] is.
const CLOSED: u8 = 19;
/// Its length.
const CLOSED_BYTES: usize = 37;
/// Arenas are counted from one.
const NOWHERE: Place = Place { arena: 0, block: 0 };

/// The number of a request that is not answered, whatever comes of it.
pub const UNANSWERED: u32 = 0;

/// A socket of a session: the inode of the program's descriptor (fstat(2)).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SocketId(pub u64);

/// Where a stream's words are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// Which arena.
    pub arena: u64,
    /// Which of its blocks.
    pub block: u32,
}

/// What a socket is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// SOCK_STREAM.
    Stream,
    /// SOCK_DGRAM.
    Datagram,
    /// SOCK_DGRAM of ICMP: echoes.
    Echo,
}

/// What has become of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Made, perhaps bound.
    Fresh,
    /// A listener.
    Listening,
    /// Connecting or connected: its words say the rest.
    Connected,
}

/// A program's request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// The first: who asks. With it no descriptor. [`Answer::Welcome`] or [`Answer::Refused`].
    Hello {
        /// The VNIC or netstack that the program is to use; empty is the daemon's choice.
        netstack: String,
        /// The rules that its listeners and datagram sockets begin with, lines of ipf.conf(5); empty is none. Longer than
        /// [`FILTER_MAX`] it must not be: what is cut off says something else.
        filter: String,
        /// How many bytes of its address space its arena may take; [`u64::MAX`] is any number.
        room: u64,
    },
    /// New sockets, so many at a time. [`Answer::Sockets`].
    Socket {
        /// Of which family.
        family: Family,
        /// Of which kind.
        kind: Kind,
        /// How many, at most [`SOCKETS_MAX`].
        count: u32,
    },
    /// bind(2). [`Answer::Done`].
    Bind {
        /// Which socket.
        socket: SocketId,
        /// To what.
        address: SocketAddr,
    },
    /// listen(2). [`Answer::Stream`] with the place of the listener's [`AcceptQueue`](crate::AcceptQueue), or [`Answer::Done`] if it has
    /// none. Of a listener: what waits there goes to the descriptor if somebody watches that.
    Listen {
        /// Which socket.
        socket: SocketId,
        /// How many may wait; [`SAME_BACKLOG`] of a listener is as many as before.
        backlog: u32,
    },
    /// connect(2): begins it. [`Answer::Stream`]; the outcome is told by the stream's words.
    Connect {
        /// Which socket.
        socket: SocketId,
        /// To whom.
        address: SocketAddr,
        /// Whether text goes with the SYN if the peer takes it (MSG_FASTOPEN): then the stream is
        /// [`DEFERRED`](crate::layout::DEFERRED).
        fast: bool,
    },
    /// setsockopt(2), for what the stream's words do not have. [`Answer::Done`].
    SetOption {
        /// Which socket.
        socket: SocketId,
        /// SOL_SOCKET and so on.
        level: i32,
        /// Which option.
        name: i32,
        /// Its value, as the program gave it.
        value: Vec<u8>,
    },
    /// getsockopt(2), TCP_INFO too. [`Answer::Option`].
    GetOption {
        /// Which socket.
        socket: SocketId,
        /// SOL_SOCKET and so on.
        level: i32,
        /// Which option.
        name: i32,
        /// The most bytes that the program takes.
        len: u32,
    },
    /// getsockname(2) and getpeername(2). [`Answer::Names`].
    Names {
        /// Which socket.
        socket: SocketId,
    },
    /// Ends what a TCP socket is, a connection or an attempt that failed: it is without a connection again, with its options and with the
    /// address that it was bound to (`tcp_disconnect` of Linux). [`Answer::Done`].
    Disconnect {
        /// Which socket.
        socket: SocketId,
    },
    /// What is behind a descriptor that came by exec(3) or SCM_RIGHTS; the descriptor is beside it. [`Answer::Attached`].
    Attach,
    /// A waiter's slot in an arena; the doorbell that wakes it is beside it. [`Answer::Slot`].
    Waiter {
        /// Which arena.
        arena: u64,
    },
    /// A waiter that has the shared slot of an arena is to be rung for news of a stream there; its doorbell is beside it.
    /// [`Answer::Done`].
    Share {
        /// The stream.
        place: Place,
        /// What the program calls the waiter.
        waiter: u32,
        /// What it has named there before, it waits for no more.
        is_anew: bool,
    },
    /// The slot is not used any more. [`Answer::Done`].
    NoWaiter {
        /// Which arena.
        arena: u64,
        /// Which slot.
        slot: u32,
    },
    /// The segment of a fused connection that the session has; beside [`Answer::Done`] its memfd.
    Segment {
        /// Its number, from the stream's words.
        segment: u64,
    },
    /// What wakes a waiter of a segment; beside [`Answer::Done`] its doorbell.
    Bell {
        /// Which segment.
        segment: u64,
        /// Which slot.
        slot: u32,
    },
    /// close(2) with SO_LINGER: how far a socket is that the session had. [`Answer::Failed`] with EINPROGRESS as long as nobody
    /// has it and its peer has yet to acknowledge what was written, or the FIN; else [`Answer::Done`].
    Linger {
        /// Which socket.
        socket: SocketId,
    },
    /// What the program is about to write up to a cursor of its send ring is urgent (MSG_OOB). [`Answer::Done`] once the lane
    /// knows.
    Urgent {
        /// Which socket.
        socket: SocketId,
        /// The cursor behind the urgent byte.
        end: u64,
    },
    /// recvmsg(2) with MSG_ERRQUEUE: the datagram that did not arrive longest ago. [`Answer::Option`] with a
    /// [`Fault`](crate::Fault), or [`Answer::Failed`] with EAGAIN.
    Fault {
        /// Which socket.
        socket: SocketId,
    },
    /// close(2) by a program that keeps a copy of the descriptor: what the socket was ends as if that were the last, and the socket
    /// is a new one of its family. There is no answer. ([`closed`] makes its bytes.)
    Closed {
        /// Which socket.
        socket: SocketId,
        /// The connection that it was, if any. The name may stand for the next one already.
        place: Option<Place>,
    },
    /// accept(2) of a connection that has arrived, by a socket that is made for it. [`Answer::Sockets`].
    Take {
        /// Where its words are.
        place: Place,
    },
    /// The netstack's interfaces and addresses. [`Answer::Interfaces`].
    Interfaces,
    /// A forked child, over the connection that it has of its parent: beside it is one end of a pair of its own, which is
    /// a connection from then on, with the parent's netstack whoever the child has become. There is no answer, because
    /// only the parent reads here; and it is taken as long as somebody has the connection, also after the parent's end.
    Child,
}

/// The daemon's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The session has begun. Beside it: the arena's memfd, then the bell of each lane.
    Welcome {
        /// The session's number; not zero.
        session: u32,
        /// How many lanes, and bells, there are.
        lanes: u32,
        /// The arena's number.
        arena: u64,
        /// The netstack that was found.
        netstack: String,
    },
    /// No session: why, in words for the program's user.
    Refused {
        /// A number of errno(3).
        errno: i32,
        /// The reason.
        text: String,
    },
    /// The request failed.
    Failed {
        /// A number of errno(3).
        errno: i32,
    },
    /// It is done.
    Done,
    /// New sockets; beside it their descriptors, in the same order.
    Sockets {
        /// Their names.
        sockets: Vec<SocketId>,
    },
    /// A stream has its words there, or a listener.
    Stream {
        /// Where.
        place: Place,
    },
    /// An option's value.
    Option {
        /// As the program gets it.
        value: Vec<u8>,
    },
    /// A socket's addresses, as far as it has any.
    Names {
        /// Its own.
        local: Option<SocketAddr>,
        /// The peer's.
        remote: Option<SocketAddr>,
    },
    /// What is behind a descriptor. Beside it the arena's memfd, if the socket has a place.
    Attached {
        /// Its name.
        socket: SocketId,
        /// Its family.
        family: Family,
        /// Its kind.
        kind: Kind,
        /// What has become of it.
        state: State,
        /// Where its words are.
        place: Option<Place>,
    },
    /// A waiter's slot.
    Slot {
        /// Which.
        slot: u32,
    },
    /// The netstack's interfaces.
    Interfaces {
        /// Each with one address; an interface with several stands several times.
        addresses: Vec<Interface>,
    },
}

/// Who hears what leaves by an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Stations of a link: one, some, or all.
    Link,
    /// The other end of a tunnel.
    End,
    /// Whom the address of each packet names, as with 6to4.
    Named,
}

/// An interface and one of its addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number, not zero.
    pub index: u32,
    /// Its largest packet.
    pub mtu: u32,
    /// Its address on the link; of a tunnel nobody's.
    pub mac: [u8; 6],
    /// Who hears what leaves by it.
    pub reach: Reach,
    /// Its address, if it has any.
    pub address: Option<(IpAddr, u8)>,
}

/// A connection that waits at a listener of whom somebody watches the descriptor: a message of [`Arrived::BYTES`] on the listener's own descriptor. Who reads it takes the
/// connection by a new socket of his session, whose name he writes into the stream's words ([`taken_as`](crate::Block::taken_as)).
/// His session must have the listener's arena. Without a socket he asks for one ([`Request::Take`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Where its words are.
    pub place: Place,
    /// Its own address.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

impl Arrived {
    /// Its length: always the same, so that readers of a stream socket take whole messages.
    pub const BYTES: usize = 96;

    /// Its bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = Out::default();
        out.u64(MAGIC).u32(VERSION).u64(self.place.arena).u32(self.place.block);
        out.address(self.local).address(self.remote);
        let mut bytes = [0; Self::BYTES];
        bytes[..out.0.len()].copy_from_slice(&out.0);
        bytes
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is another message, or of another version.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Result<Self, Malformed> {
        let mut from = In(bytes);
        head(&mut from)?;
        let place = place(&mut from)?;
        Ok(Self { place, local: from.address("local")?, remote: from.address("remote")? })
    }
}

fn head(from: &mut In<'_>) -> Result<(), Malformed> {
    let magic = from.u64("magic")?;
    if magic != MAGIC {
        return Err(Malformed::new("magic", format!("{magic:#x} is not {MAGIC:#x}")));
    }
    let version = from.u32("version")?;
    if version != VERSION {
        return Err(Malformed::new("version", format!("{version}: this is version {VERSION}")));
    }
    Ok(())
}

/// A name of a waiter.
fn share(from: &mut In<'_>) -> Result<Request, Malformed> {
    let (place, waiter) = (place(from)?, from.u32("waiter")?);
    Ok(Request::Share { place, waiter, is_anew: from.u8("is_anew")? != 0 })
}

fn place(from: &mut In<'_>) -> Result<Place, Malformed> {
    Ok(Place { arena: from.u64("arena")?, block: from.at_most("block", BLOCKS_MAX - 1)? })
}

/// Each variant of a list of words as a byte.
macro_rules! word {
    ($read:ident, $write:ident, $type:ident { $($variant:ident = $value:literal),* }) => {
        fn $read(from: &mut In<'_>) -> Result<$type, Malformed> {
            match from.u8(stringify!($read))? {
                $($value => Ok($type::$variant),)*
                other => Err(Malformed::new(stringify!($read), format!("{other} is not known"))),
            }
        }

        fn $write(value: $type) -> u8 {
            match value { $($type::$variant => $value,)* }
        }
    };
}

word!(family, family_byte, Family { V4 = 4, V6 = 6 });
word!(kind, kind_byte, Kind { Stream = 1, Datagram = 2, Echo = 3 });
word!(state, state_byte, State { Fresh = 0, Listening = 1, Connected = 2 });

/// What stands before every request and answer.
fn envelope(what: u8, number: u32) -> Out {
    let mut out = Out::default();
    out.u64(MAGIC).u32(VERSION).u32(number).u8(what);
    out
}

/// The bytes of [`Request::Closed`], for who may not ask for memory: close(2) may come in a signal handler.
pub fn closed(socket: SocketId, place: Option<Place>) -> [u8; CLOSED_BYTES] {
    let place = place.unwrap_or(NOWHERE);
    let mut bytes = [0; CLOSED_BYTES];
    // The number between version and kind is of no use without an answer.
    bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16] = CLOSED;
    bytes[17..25].copy_from_slice(&socket.0.to_le_bytes());
    bytes[25..33].copy_from_slice(&place.arena.to_le_bytes());
    bytes[33..].copy_from_slice(&place.block.to_le_bytes());
    bytes
}

fn open<'a>(bytes: &'a [u8]) -> Result<(In<'a>, u32, u8), Malformed> {
    let mut from = In(bytes);
    head(&mut from)?;
    let number = from.u32("number")?;
    let what = from.u8("what")?;
    Ok((from, number, what))
}

impl Request {
    /// Its bytes, with a number that the answer will have.
    pub fn encode(&self, number: u32) -> Vec<u8> {
        let mut out = envelope(self.what(), number);
        match self {
            Self::Hello { netstack, filter, room } => {
                out.text(netstack, NAME_MAX).text(filter, FILTER_MAX).u64(*room);
            }
            Self::Socket { family, kind, count } => {
                out.u8(family_byte(*family)).u8(kind_byte(*kind)).u32(*count);
            }
            Self::Bind { socket, address } => {
                out.u64(socket.0).address(*address);
            }
            Self::Connect { socket, address, fast } => {
                out.u64(socket.0).address(*address).u8((*fast).into());
            }
            Self::Listen { socket, backlog } => {
                out.u64(socket.0).u32(*backlog);
            }
            Self::SetOption { socket, level, name, value } => {
                out.u64(socket.0).i32(*level).i32(*name).bytes(value, OPTION_MAX);
            }
            Self::GetOption { socket, level, name, len } => {
                out.u64(socket.0).i32(*level).i32(*name).u32(*len);
            }
            Self::Names { socket }
            | Self::Linger { socket }
            | Self::Fault { socket }
            | Self::Disconnect { socket } => {
                out.u64(socket.0);
            }
            Self::Closed { socket, place } => {
                let place = place.unwrap_or(NOWHERE);
                out.u64(socket.0).u64(place.arena).u32(place.block);
            }
            Self::Urgent { socket, end } => {
                out.u64(socket.0).u64(*end);
            }
            Self::Attach | Self::Interfaces | Self::Child => {}
            Self::Waiter { arena } => {
                out.u64(*arena);
            }
            Self::NoWaiter { arena, slot } => {
                out.u64(*arena).u32(*slot);
            }
            Self::Share { place, waiter, is_anew } => {
                out.u64(place.arena).u32(place.block).u32(*waiter).u8((*is_anew).into());
            }
            Self::Take { place } => {
                out.u64(place.arena).u32(place.block);
            }
            Self::Segment { segment } => {
                out.u64(*segment);
            }
            Self::Bell { segment, slot } => {
                out.u64(*segment).u32(*slot);
            }
        }
        out.0
    }

    fn what(&self) -> u8 {
        match self {
            Self::Hello { .. } => 1,
            Self::Socket { .. } => 2,
            Self::Bind { .. } => 3,
            Self::Listen { .. } => 4,
            Self::Connect { .. } => 5,
            Self::SetOption { .. } => 6,
            Self::GetOption { .. } => 7,
            Self::Names { .. } => 8,
            Self::Attach => 9,
            Self::Waiter { .. } => 10,
            Self::NoWaiter { .. } => 11,
            Self::Interfaces => 12,
            Self::Child => 13,
            Self::Segment { .. } => 14,
            Self::Bell { .. } => 15,
            Self::Linger { .. } => 16,
            Self::Urgent { .. } => 17,
            Self::Fault { .. } => 18,
            Self::Disconnect { .. } => 22,
            Self::Closed { .. } => CLOSED,
            Self::Take { .. } => 20,
            Self::Share { .. } => 21,
        }
    }

    /// Reads a request and its number.
    ///
    /// # Errors
    /// Which field is wrong.
    pub fn decode(bytes: &[u8]) -> Result<(u32, Self), Malformed> {
        let (mut from, number, what) = open(bytes)?;
        let socket = |from: &mut In<'_>| Ok(SocketId(from.u64("socket")?));
        let from = &mut from;
        let request = match what {
            1 => Self::Hello {
                netstack: from.text("netstack", NAME_MAX)?,
                filter: from.text("filter", FILTER_MAX)?,
                room: from.u64("room")?,
            },
            2 => {
                let (family, kind) = (family(from)?, kind(from)?);
                let count = from.at_most("count", SOCKETS_MAX)?;
                if count == 0 {
                    return Err(Malformed::new("count", format!("0: 1 to {SOCKETS_MAX} are allowed")));
                }
                Self::Socket { family, kind, count }
            }
            3 => Self::Bind { socket: socket(from)?, address: from.address("address")? },
            4 => Self::Listen { socket: socket(from)?, backlog: from.u32("backlog")? },
            5 => Self::Connect {
                socket: socket(from)?,
                address: from.address("address")?,
                fast: from.u8("fast")? != 0,
            },
            6 => Self::SetOption {
                socket: socket(from)?,
                level: from.i32("level")?,
                name: from.i32("name")?,
                value: from.bytes("value", OPTION_MAX)?,
            },
            7 => Self::GetOption {
                socket: socket(from)?,
                level: from.i32("level")?,
                name: from.i32("name")?,
                len: from.at_most("len", OPTION_MAX as u32)?,
            },
            8 => Self::Names { socket: socket(from)? },
            22 => Self::Disconnect { socket: socket(from)? },
            9 => Self::Attach,
            10 => Self::Waiter { arena: from.u64("arena")? },
            11 => Self::NoWaiter { arena: from.u64("arena")?, slot: from.at_most("slot", SLOTS - 1)? },
            12 => Self::Interfaces,
            13 => Self::Child,
            14 => Self::Segment { segment: from.u64("segment")? },
            15 => Self::Bell { segment: from.u64("segment")?, slot: from.at_most("slot", SLOTS - 1)? },
            16 => Self::Linger { socket: socket(from)? },
            17 => Self::Urgent { socket: socket(from)?, end: from.u64("end")? },
            18 => Self::Fault { socket: socket(from)? },
            CLOSED => {
                let (socket, place) = (socket(from)?, place(from)?);
                Self::Closed { socket, place: (place.arena != NOWHERE.arena).then_some(place) }
            }
            20 => Self::Take { place: place(from)? },
            21 => share(from)?,
            other => return Err(Malformed::new("what", format!("no request is {other}"))),
        };
        In(from.0).end((number, request))
    }
}

impl Answer {
    /// Its bytes, with the request's number.
    pub fn encode(&self, number: u32) -> Vec<u8> {
        let mut out = envelope(self.what(), number);
        match self {
            Self::Welcome { session, lanes, arena, netstack } => {
                out.u32(*session).u32(*lanes).u64(*arena).text(netstack, NAME_MAX);
            }
            Self::Refused { errno, text } => {
                out.i32(*errno).text(text, TEXT_MAX);
            }
            Self::Failed { errno } => {
                out.i32(*errno);
            }
            Self::Done => {}
            Self::Sockets { sockets } => {
                out.list(sockets, SOCKETS_MAX as usize, |out, socket| {
                    out.u64(socket.0);
                });
            }
            Self::Stream { place } => {
                out.u64(place.arena).u32(place.block);
            }
            Self::Option { value } => {
                out.bytes(value, OPTION_MAX);
            }
            Self::Names { local, remote } => {
                for name in [local, remote] {
                    out.optional(*name, |out, name| {
                        out.address(name);
                    });
                }
            }
            Self::Attached { socket, family, kind, state, place } => {
                out.u64(socket.0).u8(family_byte(*family)).u8(kind_byte(*kind)).u8(state_byte(*state));
                out.optional(*place, |out, place| {
                    out.u64(place.arena).u32(place.block);
                });
            }
            Self::Slot { slot } => {
                out.u32(*slot);
            }
            Self::Interfaces { addresses } => {
                out.list(addresses, ADDRESSES_MAX, |out, interface| {
                    out.text(&interface.name, NAME_MAX).u32(interface.index).u32(interface.mtu);
                    out.0.extend(interface.mac);
                    out.u8(interface.reach as u8);
                    out.optional(interface.address, |out, (ip, prefix)| {
                        out.ip(ip).u8(prefix);
                    });
                });
            }
        }
        out.0
    }

    fn what(&self) -> u8 {
        match self {
            Self::Welcome { .. } => 128,
            Self::Refused { .. } => 129,
            Self::Failed { .. } => 130,
            Self::Done => 131,
            Self::Sockets { .. } => 132,
            Self::Stream { .. } => 133,
            Self::Option { .. } => 134,
            Self::Names { .. } => 135,
            Self::Attached { .. } => 136,
            Self::Slot { .. } => 137,
            Self::Interfaces { .. } => 138,
        }
    }

    /// Reads an answer and its number.
    ///
    /// # Errors
    /// Which field is wrong.
    pub fn decode(bytes: &[u8]) -> Result<(u32, Self), Malformed> {
        let (mut from, number, what) = open(bytes)?;
        let from = &mut from;
        let answer = match what {
            128 => Self::Welcome {
                session: from.u32("session")?,
                lanes: from.at_most("lanes", LANES_MAX)?,
                arena: from.u64("arena")?,
                netstack: from.text("netstack", NAME_MAX)?,
            },
            129 => Self::Refused { errno: from.i32("errno")?, text: from.text("text", TEXT_MAX)? },
            130 => Self::Failed { errno: from.i32("errno")? },
            131 => Self::Done,
            132 => {
                let one = |from: &mut In<'_>| Ok(SocketId(from.u64("socket")?));
                Self::Sockets { sockets: from.list("sockets", SOCKETS_MAX as usize, one)? }
            }
            133 => Self::Stream { place: place(from)? },
            134 => Self::Option { value: from.bytes("value", OPTION_MAX)? },
            135 => Self::Names {
                local: from.optional("local", |from| from.address("local"))?,
                remote: from.optional("remote", |from| from.address("remote"))?,
            },
            136 => Self::Attached {
                socket: SocketId(from.u64("socket")?),
                family: family(from)?,
                kind: kind(from)?,
                state: state(from)?,
                place: from.optional("place", place)?,
            },
            137 => Self::Slot { slot: from.at_most("slot", SLOTS - 1)? },
            138 => Self::Interfaces { addresses: from.list("addresses", ADDRESSES_MAX, interface)? },
            other => return Err(Malformed::new("what", format!("no answer is {other}"))),
        };
        In(from.0).end((number, answer))
    }
}

fn interface(from: &mut In<'_>) -> Result<Interface, Malformed> {
    let (name, index, mtu) = (from.text("name", NAME_MAX)?, from.u32("index")?, from.u32("mtu")?);
    let mut mac = [0; 6];
    for byte in &mut mac {
        *byte = from.u8("mac")?;
    }
    let reach = match from.u8("reach")? {
        0 => Reach::Link,
        1 => Reach::End,
        2 => Reach::Named,
        other => return Err(Malformed::new("reach", format!("no interface reaches {other}"))),
    };
    let address = from.optional("address", |from| Ok((from.ip("address")?, from.u8("prefix")?)))?;
    Ok(Interface { name, index, mtu, mac, reach, address })
}

#[cfg(all(test, not(loom)))]
mod tests;
