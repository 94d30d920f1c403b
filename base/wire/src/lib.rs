//! Checked views and plain representations of headers.
