//! Many hosts, virtual time, one seed.
