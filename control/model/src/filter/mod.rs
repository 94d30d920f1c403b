//! The packet filter of a netstack, in the language of ipf(5).
//!
//! A rule is a line of `ipf.conf`, in the file of the configuration too (`filter = ["block in all", ...]`), and is
//! printed in one form, which reads back as the same rule. What one rule may not say is refused when it is read
//! (`check.rs`); what rules may not say together (groups without a head, links that are not there) is a fault of the model.
//!
//! The original is followed in its meaning and its words, except that what it knows and we do not follow is refused, never
//! ignored: a filter that says less than its author thinks is worse than none.

mod check;
mod ends;
mod error;
mod file;
mod maps;
mod nat;
mod pool;
mod pool_file;
mod read;
mod rule;
mod set;
mod socket;
mod tokens;
mod words;
mod write;

pub use error::RuleError;
pub use file::{IpfFile, IpnatFile, RuleFile, RuleLine};
pub use nat::IpnatRule;
pub use pool::{MapGroup, Pool, PoolEntry, PoolNumber};
pub use pool_file::{PoolFile, PoolMember, read_pools};
pub use rule::{IpfRule, PlacedRule};
pub use set::Filter;
pub(crate) use set::{Part as FilterPart, faults};
pub use socket::SocketFilter;
