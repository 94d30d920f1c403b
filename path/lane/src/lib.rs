//! The vertical perimeter that walks the whole path.
