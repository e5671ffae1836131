//! What the kernel says of processes: memory.

use std::fs;

/// Proportional set size of a process in bytes: its memory, shared pages
/// divided among those who share them. 0 if the process is gone.
pub(super) fn pss_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) * 1024
}

/// From now on [`peak_bytes`] is about what comes.
pub(super) fn reset_peak() {
    // Where the kernel does not let it, the peak is that of all so far.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The most memory that this process ever had resident, or since
/// [`reset_peak`], in bytes; 0 if the kernel does not say.
pub(super) fn peak_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) * 1024
}
