//! Resource usage of a server process, from `/proc`.

use anyhow::Context;
use std::collections::BTreeMap;
use std::fs;

/// The resources that a process has used up to a moment.
#[derive(Clone, Default, Debug)]
pub(super) struct ProcessCosts {
    /// CPU time of the process including ended threads, in nanoseconds with the kernel's tick as
    /// resolution.
    cpu_nanoseconds: u64,
    /// CPU time in nanoseconds and number of context switches of each live thread.
    threads: BTreeMap<u32, (u64, u64)>,
    /// Resident memory in bytes.
    pub(super) resident: u64,
}

/// The resources that a process used between two moments.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct UsageDifference {
    pub(super) cpu_nanoseconds: u64,
    pub(super) context_switches: u64,
}

/// Nanoseconds per tick of `/proc/PID/stat`. The value is equal on all architectures.
const TICK: u64 = 10_000_000;

impl ProcessCosts {
    /// Reads the usage of a process from the kernel.
    pub(super) fn of(pid: u32) -> anyhow::Result<Self> {
        let file = |name: &str| {
            fs::read_to_string(format!("/proc/{pid}/{name}"))
                .with_context(|| format!("cannot read what process {pid} uses (--server-pid)"))
        };
        let stat = file("stat")?;
        // The program name is enclosed in parentheses and may contain any byte. The next field is
        // number 3.
        let fields: Vec<u64> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let ticks = |number: usize| fields.get(number - 3).copied().unwrap_or(0);
        let mut threads = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let Some(id) = thread.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A thread may end during the scan.
            let Ok(schedule) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
            let running = schedule.split_whitespace().next().and_then(|field| field.parse().ok());
            let switches =
                field(&status, "voluntary_ctxt_switches:") + field(&status, "nonvoluntary_ctxt_switches:");
            threads.insert(id, (running.unwrap_or(0), switches));
        }
        Ok(Self {
            cpu_nanoseconds: (ticks(14) + ticks(15)) * TICK,
            threads,
            resident: field(&file("status")?, "VmRSS:") * 1024,
        })
    }

    /// Returns the usage since `before`. Live threads report it in nanoseconds. The time of a
    /// thread that has ended is only in the total of the process.
    pub(super) fn since(&self, before: &Self) -> UsageDifference {
        let mut used = UsageDifference::default();
        for (id, (running, switches)) in &self.threads {
            let (running_before, switches_before) = before.threads.get(id).copied().unwrap_or_default();
            used.cpu_nanoseconds += running.saturating_sub(running_before);
            used.context_switches += switches.saturating_sub(switches_before);
        }
        if before.threads.keys().any(|id| !self.threads.contains_key(id)) || used.cpu_nanoseconds == 0 {
            used.cpu_nanoseconds = self.cpu_nanoseconds.saturating_sub(before.cpu_nanoseconds);
        }
        used
    }
}

/// Returns the number after `name` in a status file.
fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_threads_and_memory() {
        let usage = ProcessCosts::of(std::process::id()).unwrap();
        assert!(usage.threads.len() >= 2, "the runner's thread and this one: {usage:?}");
        assert!(usage.resident > 100_000);
        assert!(ProcessCosts::of(u32::MAX).is_err());
    }

    #[test]
    fn the_time_of_ended_threads_comes_from_the_process() {
        let usage = |whole, threads: &[(u32, u64, u64)]| ProcessCosts {
            cpu_nanoseconds: whole,
            threads: threads.iter().map(|(id, running, switches)| (*id, (*running, *switches))).collect(),
            resident: 0,
        };
        let before = usage(1_000, &[(1, 10, 1), (2, 20, 2)]);
        let used = usage(9_000, &[(1, 15, 2), (2, 26, 2), (3, 7, 4)]).since(&before);
        assert_eq!((used.cpu_nanoseconds, used.context_switches), (5 + 6 + 7, 5));
        let used = usage(9_000, &[(1, 15, 2)]).since(&before);
        assert_eq!((used.cpu_nanoseconds, used.context_switches), (8_000, 1));
    }
}
