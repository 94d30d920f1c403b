//! What was refused because a list was full: one number per list.
//!
//! Every list that others fill from outside has a limit, and a message that does not fit is otherwise obeyed; these
//! numbers are what an operator sees of it (A07, V10).

/// How often each list was full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refused {
    /// Default routers (RFC 4861).
    pub routers: u64,
    /// More specific routes (RFC 4191).
    pub routes: u64,
    /// Prefixes that are on a link.
    pub prefixes: u64,
    /// Prefixes from which addresses are made (RFC 4862).
    pub addresses: u64,
    /// Name servers (RFC 8106).
    pub servers: u64,
    /// Search domains (RFC 8106).
    pub domains: u64,
    /// Groups, or members of one.
    pub groups: u64,
}

impl Refused {
    /// Adds another lane's.
    pub fn merge(&mut self, other: &Self) {
        self.routers += other.routers;
        self.routes += other.routes;
        self.prefixes += other.prefixes;
        self.addresses += other.addresses;
        self.servers += other.servers;
        self.domains += other.domains;
        self.groups += other.groups;
    }
}
