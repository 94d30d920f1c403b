//! Is it for us, or onward.
