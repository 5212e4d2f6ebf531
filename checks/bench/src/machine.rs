//! The machine on which a measurement was made.
//!
//! Results are only comparable for equal machines.

use serde::{Deserialize, Serialize};
use std::fs::read_to_string;
use std::path::Path;
use std::process::Command;

use crate::server::XROOTD;

/// Processor time of this machine so far, in ticks.
pub(crate) struct Processors {
    all: u64,
    /// Time that the hypervisor gave to other guests.
    stolen: u64,
}

impl Processors {
    pub(crate) fn now() -> Self {
        Self::parse(&read_to_string("/proc/stat").unwrap_or_default())
    }

    /// Parses the first line of the kernel's statistics: user, nice, system, idle, iowait, irq,
    /// softirq, steal. The fields behind them are ignored, because the time of guests of this
    /// machine is included in user.
    fn parse(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).take(8).filter_map(|ticks| ticks.parse().ok()).collect();
        Self { all: ticks.iter().sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    /// Returns the share of other guests since `before`.
    pub(crate) fn stolen_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.stolen.saturating_sub(before.stolen) as f64 / all as f64
    }
}

/// Properties of the machine that affect results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TestMachine {
    processor: String,
    processors: usize,
    memory_bytes: u64,
    kernel: String,
    /// Congestion control, of which some kinds pace the loopback interface as well.
    #[serde(default)]
    congestion: String,
    file_system: String,
    theirs: String,
    date: String,
    load_average_before: String,
    load_average_after: String,
}

impl TestMachine {
    /// Collects the properties of this machine and of the exported directory.
    pub(crate) fn look(disk: &Path) -> Self {
        let read = |path: &str| read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let version = Command::new(XROOTD).arg("-v").output();
        let version = version.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
        Self {
            processor: field(&read("/proc/cpuinfo"), "model name"),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: memory.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0)
                * 1024,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            congestion: read("/proc/sys/net/ipv4/tcp_congestion_control").trim().to_owned(),
            file_system: file_system(disk, &read("/proc/self/mounts")),
            theirs: String::from_utf8_lossy(&version).trim().to_owned(),
            date: jiff::Zoned::now().date().to_string(),
            load_average_before: load_average(),
            load_average_after: load_average(),
        }
    }

    /// Returns a text for terminals.
    pub(crate) fn text(&self) -> String {
        format!(
            "{} processors ({}), {:.0} GiB, Linux {}, {}, xrootd {}, load average {}\n",
            self.processors,
            self.processor,
            self.memory_bytes as f64 / (1 << 30) as f64,
            self.kernel,
            self.file_system,
            self.theirs,
            self.load_average_before
        )
    }

    /// Returns the rows of a table of names and values.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        vec![
            ("date", self.date.clone()),
            ("processors", format!("{} x {}", self.processors, self.processor)),
            ("memory", format!("{:.0} GiB", self.memory_bytes as f64 / (1 << 30) as f64)),
            ("kernel", format!("Linux {}", self.kernel)),
            ("congestion control", self.congestion.clone()),
            ("file system", self.file_system.clone()),
            ("theirs", format!("xrootd {}", self.theirs)),
            (
                "load average before and after",
                format!("{}; {}", self.load_average_before, self.load_average_after),
            ),
        ]
    }

    /// Updates the load average after the measurement.
    pub(crate) fn look_again(&mut self) {
        self.load_average_after = load_average();
    }
}

/// Returns the load averages of one, five and fifteen minutes.
fn load_average() -> String {
    let text = read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Returns the type of the file system of a path: that of its longest mount point.
fn file_system(path: &Path, mounts: &str) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let above = mounts.filter(|(point, _)| path.starts_with(point));
    above.max_by_key(|(point, _)| point.len()).map(|(_, kind)| kind.to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_other_guests_is_computed() {
        let before = Processors::parse("cpu  100 0 50 800 0 0 0 50 7 0\ncpu0 1 2 3\n");
        let after = Processors::parse("cpu  150 0 60 830 0 0 0 60 9 0\n");
        assert!((after.stolen_since(&before) - 0.1).abs() < 1e-9);
        assert!(Processors::parse("").stolen_since(&before) < 1e-9);
    }

    #[test]
    fn the_longest_mount_point_decides() {
        let mounts =
            "/dev/vda / ext4 rw 0 0\ntmpfs /nonexistent/a tmpfs rw 0 0\ntmpfs /nonexistent/ab xfs rw 0 0\n";
        assert_eq!(file_system(Path::new("/nonexistent/ab/c"), mounts), "xfs");
        assert_eq!(file_system(Path::new("/nonexistent"), mounts), "ext4");
    }
}
