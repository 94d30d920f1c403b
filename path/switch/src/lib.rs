//! Where does it go.
//!
//! A virtual switch: what VNICs that share a link or an etherstub see between them. It does not learn where its stations are:
//! their addresses are known, because the switch's owner gave them out, so a frame with a stolen source address moves no
//! table entry, and a flood of random addresses fills nothing. What is for nobody here leaves by an exit: the uplink, or a wire. Only
//! where there are several it is learned who lies beyond which.
//!
//! ```text
//!   station port --\                            /--> station port     (address, VLAN) is known
//!   station port ---> check_ingress -> forward ----> every port        broadcast, multicast
//!   uplink, trunk --/                           \--> an exit, or drop not known
//! ```
//!
//! Per frame the lane calls [`Switch::forward`] and then, for each port that gets it, [`Switch::deliver`], which
//! counts it and sets or strips the VLAN tag; [`Switch::flood`] does both for all receivers of a group, and
//! [`Switch::show`] for ports that look on. Inside a
//! station's port frames carry no tag: the port's VLAN is a fact of the port. A [`Guard`] stands before a port whose
//! user may not say just anything of itself.
#![forbid(unsafe_code)]

mod address_table;
mod allowance;
mod counters;
mod dhcp;
mod dhcp6;
mod exits;
mod flood;
mod guard;
mod heard;
mod known;
mod onlookers;
mod port;
mod switch;
mod tag;

pub use counters::PortCounters;
pub use flood::Flooded;
pub use guard::{Guard, GuardCounters, Packet, Piece, Rules};
pub use known::{Lease, Lesson};
pub use port::{GroupFilter, PortConfig, PortError, Role};
pub use switch::{Destination, L2, Located, Switch};
