//! The firelane command.

fn main() {}
