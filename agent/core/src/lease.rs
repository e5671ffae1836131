//! The lease.
