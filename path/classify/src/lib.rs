//! Whose frame is it.
