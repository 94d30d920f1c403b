//! Who reads it.
