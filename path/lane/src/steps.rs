//! The event list: which protocol steps the packets of a connection, or of a forwarded flow, pass.
//!
//! Each connection carries a [`StepListId`], and so does each forwarded flow in the classifier's cache; the slow path
//! (open, accept, a flow's first packet, a change of configuration) chooses it; the fast path walks it. A new protocol is a new [`Step`] and a new list, not
//! a new branch in TCP. Steps are values of an enum and dispatched by `match`: no trait object on the path.

use firelane_units::StepListId;

/// One station that a packet of a connection, or of a forwarded flow, passes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// The netstack's rules.
    Filter,
    /// Other addresses outside than inside.
    Nat,
    /// A router's: a hop less, the next station, out by its link.
    Forward,
    /// Into a tunnel, or out of one.
    Tunnel,
    /// IP's checks, reassembly, and its header on the way out.
    Ip,
    /// The TCP connection.
    Tcp,
    /// UDP's checks, and its header on the way out.
    Udp,
    /// The socket's rings, readiness and errors.
    Socket,
    /// A connection whose text does not come in segments (TCP Fusion).
    Fused,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Filter,
        Self::Nat,
        Self::Forward,
        Self::Tunnel,
        Self::Ip,
        Self::Tcp,
        Self::Udp,
        Self::Socket,
        Self::Fused,
    ];

    /// The word used in traces and commands.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
            Self::Forward => "forward",
            Self::Tunnel => "tunnel",
            Self::Ip => "ip",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Socket => "socket",
            Self::Fused => "fused",
        }
    }
}

/// Most steps that one direction of a list has: a list is read at every packet and stays in a cache line.
pub const STEPS_MAX: usize = 8;

/// The steps of both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StepList {
    inbound: Steps,
    outbound: Steps,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Steps {
    steps: [Step; STEPS_MAX],
    len: u8,
}

impl Steps {
    const fn new(list: &[Step]) -> Self {
        assert!(list.len() <= STEPS_MAX, "a list is short");
        let mut steps = [Step::Socket; STEPS_MAX];
        let mut at = 0;
        while at < list.len() {
            steps[at] = list[at];
            at += 1;
        }
        Self { steps, len: list.len() as u8 }
    }

    fn as_slice(&self) -> &[Step] {
        &self.steps[..usize::from(self.len)]
    }
}

impl StepList {
    /// A list of `inbound` steps, from the wire to the socket, and `outbound` steps, back.
    pub const fn new(inbound: &[Step], outbound: &[Step]) -> Self {
        Self { inbound: Steps::new(inbound), outbound: Steps::new(outbound) }
    }

    /// From the wire to the socket.
    pub fn inbound(&self) -> &[Step] {
        self.inbound.as_slice()
    }

    /// From the socket to the wire.
    pub fn outbound(&self) -> &[Step] {
        self.outbound.as_slice()
    }
}

/// Whether a walk goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Onward {
    /// To the next step.
    Next,
    /// The packet ends here: consumed, held or dropped, and counted as such by the step.
    Ended,
}

/// Walks `steps` until one ends the packet; answers whether all of them were passed.
pub fn walk(steps: &[Step], mut pass: impl FnMut(Step) -> Onward) -> bool {
    steps.iter().all(|&step| pass(step) == Onward::Next)
}

/// The lists of one lane, by id.
#[derive(Clone, Debug)]
pub struct StepLists(Vec<StepList>);

impl StepLists {
    /// A plain TCP connection's list.
    pub const TCP: StepListId = StepListId(0);
    /// A plain UDP socket's list.
    pub const UDP: StepListId = StepListId(1);
    /// A forwarded flow's list: it has one direction.
    pub const FORWARD: StepListId = StepListId(2);
    /// The list of a TCP connection that is fused with its peer.
    pub const FUSED: StepListId = StepListId(3);
    /// A forwarded flow's list where the netstack has a filter.
    pub const FILTERED: StepListId = StepListId(4);
    /// A forwarded flow's list where addresses are translated.
    pub const TRANSLATED: StepListId = StepListId(5);
    /// A forwarded flow's list where the netstack has both.
    pub const TRANSLATED_FILTERED: StepListId = StepListId(6);
    /// The most lists that a lane keeps.
    pub const MAX: usize = 1 << 16;

    /// Adds a list, or finds the equal one; `None` if there are too many.
    pub fn intern(&mut self, list: StepList) -> Option<StepListId> {
        let place = match self.0.iter().position(|known| *known == list) {
            Some(place) => place,
            None if self.0.len() == Self::MAX => return None,
            None => {
                self.0.push(list);
                self.0.len() - 1
            }
        };
        Some(StepListId(u16::try_from(place).expect("at most StepLists::MAX lists")))
    }

    /// The list `id`.
    pub fn list(&self, id: StepListId) -> &StepList {
        self.0.get(id.index()).expect("ids are minted by intern")
    }
}

impl Default for StepLists {
    /// The lists that every lane has.
    fn default() -> Self {
        Self(vec![
            StepList::new(&[Step::Ip, Step::Tcp, Step::Socket], &[Step::Socket, Step::Tcp, Step::Ip]),
            StepList::new(&[Step::Ip, Step::Udp, Step::Socket], &[Step::Socket, Step::Udp, Step::Ip]),
            StepList::new(&[Step::Forward], &[]),
            StepList::new(&[Step::Ip, Step::Fused, Step::Tcp, Step::Socket], &[Step::Fused]),
            StepList::new(&[Step::Filter, Step::Forward], &[Step::Filter]),
            StepList::new(&[Step::Nat, Step::Forward], &[Step::Nat]),
            StepList::new(&[Step::Nat, Step::Filter, Step::Forward], &[Step::Filter, Step::Nat]),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_ends_where_a_step_ends_it() {
        let lists = StepLists::default();
        let inbound = lists.list(StepLists::TCP).inbound();
        let mut seen = Vec::new();
        let passed = walk(inbound, |step| {
            seen.push(step);
            if step == Step::Tcp { Onward::Ended } else { Onward::Next }
        });
        assert!(!passed);
        assert_eq!(seen, [Step::Ip, Step::Tcp]);
        assert!(walk(inbound, |_| Onward::Next));
    }

    #[test]
    fn the_way_out_is_the_way_in_reversed() {
        let lists = StepLists::default();
        for id in [StepLists::TCP, StepLists::UDP] {
            let list = lists.list(id);
            let reversed: Vec<Step> = list.outbound().iter().rev().copied().collect();
            assert_eq!(list.inbound(), reversed);
        }
    }

    #[test]
    fn every_step_has_its_place_and_word() {
        for (nth, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, nth);
            assert_eq!(Step::ALL.iter().filter(|other| other.word() == step.word()).count(), 1);
        }
    }

    #[test]
    fn equal_lists_share_an_id() {
        let mut lists = StepLists::default();
        let list = StepList::new(&[Step::Ip, Step::Socket], &[Step::Ip]);
        let id = lists.intern(list).unwrap();
        assert_eq!((lists.intern(list), id), (Some(id), StepListId(7)));
        assert_eq!(lists.intern(*lists.list(StepLists::UDP)), Some(StepLists::UDP));
    }
}
