//! Numbers of the kernel's that the C library's bindings lack or hide.

/// `struct io_uring_params` is so many bytes.
pub(crate) const RING_PARAMETERS: usize = 120;

/// Source: Linux, `include/uapi/linux/keyctl.h`.
pub(crate) const SESSION_KEYRING: i64 = -3;
pub(crate) const USER_KEYRING: i64 = -4;
pub(crate) const KEYCTL_JOIN_SESSION: usize = 1;
pub(crate) const KEYCTL_READ: usize = 11;
pub(crate) const KEYCTL_SEARCH: usize = 10;

/// Source: Linux, `include/uapi/linux/ioprio.h`: the idle class, of a process.
pub(crate) const IOPRIO_WHO_PROCESS: usize = 1;
pub(crate) const IOPRIO_IDLE: usize = 3 << 13;

/// The keeper, as its guest's process numbers have it.
pub(crate) const KEEPER: usize = 1;
