//! The management interface: its types, errors and OpenAPI text.
