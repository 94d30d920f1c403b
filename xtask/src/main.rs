//! The household rules, as tests.

fn main() {}
