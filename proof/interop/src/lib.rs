//! Real programs against Linux in network namespaces.
