//! Packet scripts, one behaviour per file.
