//! May it pass now.
