//! Fuzz targets and corpora, replayed in tests.
