//! The nouns of the configuration.
