//! firelaned: applies plans to an engine and serves the API.
