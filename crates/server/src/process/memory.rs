//! The size of the memory available to this process, from which `assembly` derives the default
//! memory for requests in flight.

use std::fs;
use std::path::Path;

/// The mount point of control groups version 2.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Returns the bytes of memory of the machine, or of this process's control group if that has
/// fewer; `None` if both are unknown.
pub fn memory_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| group_limit(&text));
    machine.into_iter().chain(group).min()
}

/// Parses `MemTotal` of `/proc/meminfo`, in bytes.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the smallest limit of the control group and its parents.
fn group_limit(text: &str) -> Option<u64> {
    let group = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let group = Path::new(group.trim_start_matches('/'));
    let limits = group.ancestors().filter_map(|group| {
        let file = Path::new(CONTROL_GROUPS).join(group).join("memory.max");
        fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_machine_is_returned_in_bytes() {
        assert_eq!(total("MemTotal:       24576000 kB\nMemFree: 1 kB\n"), Some(24_576_000 * 1024));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
