//! How much memory the machine has for us.

use std::fs;
use std::path::Path;

/// Where control groups of version 2 are.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory of the machine, or of the control group that this process is in, if it has fewer; `None` where neither can be
/// told.
pub fn memory_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| group_limit(&text));
    machine.into_iter().chain(group).min()
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The smallest limit of the control group and those above it.
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
    fn the_memory_of_the_machine_is_told_in_bytes() {
        assert_eq!(total("MemTotal:       24576000 kB\nMemFree: 1 kB\n"), Some(24_576_000 * 1024));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
