//! Wanted and present in, steps out.
