//! The load of this machine from the counters of the system, in the percentages that nodes
//! exchange.
//!
//! | figure | 100 means | source |
//! |---|---|---|
//! | processor | no processor was idle since the last sample | `stat` |
//! | run queue | as many tasks are ready as there are processors | `loadavg`, mean of a minute |
//! | memory | a program gets memory only by taking it from another | `meminfo` |
//! | paging | some task waited for memory all the time | `pressure/memory` |
//! | paging, without it | [`PAGES_MAX`] pages per second | `vmstat` |
//! | network | the most used interface is saturated in one direction | `net/dev`, its speed |
//!
//! Time spent waiting for a disk counts as idle. Source of the order and range of the figures: cms
//! protocol 3, section usage, load, avail.

use cluster::tree::LoadReport;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Pages per second moved between memory and disk that count as 100 percent of paging.
pub(super) const PAGES_MAX: u64 = 1000;
/// The fallback for the speed of an interface that does not report it, in Mbit/s.
const SPEED_DEFAULT: u64 = 1000;

/// A snapshot of the counters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Counters {
    /// Ticks of all processors, and the idle ones among them.
    ticks: u64,
    idle: u64,
    /// Microseconds in which some task waited for memory; `None` if the kernel does not count them.
    stalled: Option<u64>,
    /// Pages moved to and from disk because of a lack of memory.
    pages: u64,
    /// Bytes received and sent by each interface.
    bytes: HashMap<String, (u64, u64)>,
}

/// Samples the counters.
#[derive(Debug)]
pub(super) struct Sampler {
    proc: PathBuf,
    interfaces: PathBuf,
    before: Option<Counters>,
}

impl Sampler {
    /// Creates the sampler of this machine.
    pub(super) fn new() -> Self {
        Self::at(Path::new("/proc"), Path::new("/sys/class/net"))
    }

    fn at(proc: &Path, interfaces: &Path) -> Self {
        Self { proc: proc.to_owned(), interfaces: interfaces.to_owned(), before: None }
    }

    /// Returns the load since the last call, `elapsed` ago.
    ///
    /// The first call has only the figures that need no earlier snapshot. A counter that cannot be
    /// read counts as 0. The caller sets `disk`.
    pub(super) fn sample(&mut self, elapsed: Duration) -> LoadReport {
        let read = |name: &str| std::fs::read_to_string(self.proc.join(name)).unwrap_or_default();
        let stat = read("stat");
        let (ticks, idle) = ticks(&stat);
        let now = Counters {
            ticks,
            idle,
            stalled: stalled(&read("pressure/memory")),
            pages: pages(&read("vmstat")),
            bytes: bytes(&read("net/dev")),
        };
        let load = LoadReport {
            run_queue: run_queue(&read("loadavg"), processors(&stat)),
            memory: memory(&read("meminfo")),
            ..self.before.as_ref().map(|before| self.since(before, &now, elapsed)).unwrap_or_default()
        };
        self.before = Some(now);
        load
    }

    fn since(&self, before: &Counters, now: &Counters, elapsed: Duration) -> LoadReport {
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        let ticks = now.ticks.saturating_sub(before.ticks);
        let idle = now.idle.saturating_sub(before.idle).min(ticks);
        let paging = match (before.stalled, now.stalled) {
            (Some(before), Some(now)) => percent(now.saturating_sub(before), micros),
            _ => {
                let most = u128::from(PAGES_MAX) * elapsed.as_millis() / 1000;
                percent(now.pages.saturating_sub(before.pages), u64::try_from(most).unwrap_or(u64::MAX))
            }
        };
        LoadReport {
            cpu: percent(ticks - idle, ticks),
            net: self.network(before, now, micros),
            paging,
            ..LoadReport::default()
        }
    }

    /// Returns the use of the most used interface. Loopback is left out. Virtual interfaces of a
    /// host repeat the traffic of the physical ones, so they count only if there are no others, as
    /// in a container.
    fn network(&self, before: &Counters, now: &Counters, micros: u64) -> u8 {
        let place = |name: &str| self.interfaces.join(name);
        let any_real = now.bytes.keys().any(|name| place(name).join("device").exists());
        let used = now.bytes.iter().filter_map(|(name, (received, sent))| {
            let (received_before, sent_before) = before.bytes.get(name)?;
            if name == "lo" || any_real && !place(name).join("device").exists() {
                return None;
            }
            let busier = received.saturating_sub(*received_before).max(sent.saturating_sub(*sent_before));
            let speed = std::fs::read_to_string(place(name).join("speed")).unwrap_or_default();
            let speed = speed.trim().parse::<u64>().ok().filter(|speed| *speed > 0).unwrap_or(SPEED_DEFAULT);
            // Mbit/s times microseconds are bits.
            Some(percent(busier, speed.saturating_mul(micros) / 8))
        });
        used.max().unwrap_or(0)
    }
}

fn percent(part: u64, whole: u64) -> u8 {
    let part = u128::from(part) * 100;
    u8::try_from(part.checked_div(u128::from(whole)).unwrap_or(0).min(100)).unwrap_or(100)
}

/// Returns the ticks of all processors, and those in which they were idle or waited for a disk.
fn ticks(stat: &str) -> (u64, u64) {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    // user nice system idle iowait irq softirq steal; the time of guests is already included in
    // `user`.
    let parts: Vec<u64> = line.split_whitespace().take(8).filter_map(|part| part.parse().ok()).collect();
    let idle = parts.iter().skip(3).take(2).sum();
    (parts.iter().sum(), idle)
}

fn processors(stat: &str) -> u64 {
    let is_one = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
    };
    stat.lines().filter(is_one).count().max(1) as u64
}

fn run_queue(loadavg: &str, processors: u64) -> u8 {
    let ready: f64 = loadavg.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    // Hundredths of a task divided by processors are percent.
    percent((ready.clamp(0.0, 1e9) * 100.0) as u64, processors * 100)
}

fn memory(meminfo: &str) -> u8 {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    match (field("MemTotal"), field("MemAvailable")) {
        (Some(total), Some(available)) => percent(total.saturating_sub(available), total),
        _ => 0,
    }
}

fn stalled(pressure: &str) -> Option<u64> {
    let line = pressure.lines().find(|line| line.starts_with("some"))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

fn pages(vmstat: &str) -> u64 {
    let field = |name: &str| {
        let line = vmstat.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    field("pswpin ").unwrap_or(0) + field("pswpout ").unwrap_or(0)
}

fn bytes(dev: &str) -> HashMap<String, (u64, u64)> {
    let one = |line: &str| {
        let (name, figures) = line.split_once(':')?;
        let mut figures = figures.split_whitespace();
        let received = figures.next()?.parse().ok()?;
        let sent = figures.nth(7)?.parse().ok()?;
        Some((name.trim().to_owned(), (received, sent)))
    };
    dev.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A machine of two processors with counters that a test sets.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str) -> Self {
            let directory = std::env::temp_dir().join(format!("scalla-load-{}-{name}", std::process::id()));
            fs::create_dir_all(directory.join("proc/pressure")).unwrap();
            fs::create_dir_all(directory.join("proc/net")).unwrap();
            fs::create_dir_all(directory.join("net")).unwrap();
            Self(directory)
        }

        fn set(&self, name: &str, text: &str) {
            fs::write(self.0.join("proc").join(name), text).unwrap();
        }

        fn interface(&self, name: &str, speed: &str, real: bool) {
            let place = self.0.join("net").join(name);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("speed"), speed).unwrap();
            if real {
                fs::create_dir_all(place.join("device")).unwrap();
            }
        }

        fn sampler(&self) -> Sampler {
            Sampler::at(&self.0.join("proc"), &self.0.join("net"))
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const SECONDS: Duration = Duration::from_secs(10);

    fn dev(lines: &[(&str, u64, u64)]) -> String {
        let lines: Vec<String> = lines
            .iter()
            .map(|(name, received, sent)| {
                format!("  {name}: {received} 1 2 3 4 5 6 7 {sent} 1 2 3 4 5 6 7\n")
            })
            .collect();
        format!("Inter-|   Receive  |  Transmit\n face |bytes packets|bytes packets\n{}", lines.concat())
    }

    #[test]
    fn the_load_is_the_change_since_the_last_sample() {
        let machine = Machine::new("changed");
        machine.interface("eth0", "10000\n", true);
        machine.set("stat", "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1\ncpu1 1\nintr 5\n");
        machine.set("loadavg", "0.50 9.00 9.00 3/133 15408\n");
        machine.set("meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    250 kB\n");
        machine.set("pressure/memory", "some avg10=0.00 total=1000000\nfull avg10=0.00 total=0\n");
        machine.set("net/dev", &dev(&[("lo", 0, 0), ("eth0", 1000, 1000)]));
        let mut sampler = machine.sampler();
        let first = sampler.sample(SECONDS);
        assert_eq!(first, LoadReport { run_queue: 25, memory: 75, ..LoadReport::default() });
        // 400 ticks, 300 of them idle or waiting for a disk; the time of guests counts once.
        machine.set("stat", "cpu  150 0 150 900 200 0 0 0 90 0\ncpu0 1\ncpu1 1\n");
        machine.set("loadavg", "7.00 9.00 9.00 3/133 15408\n");
        machine.set("pressure/memory", "some avg10=0.00 total=4000000\nfull avg10=0.00 total=9\n");
        // 10 Gbit/s for 10 s are 12.5 GB; the busier direction counts, and loopback does not.
        machine.set("net/dev", &dev(&[("lo", 1 << 50, 1 << 50), ("eth0", 1000 + 2_500_000_000, 2000)]));
        let load = sampler.sample(SECONDS);
        assert_eq!(
            load,
            LoadReport { cpu: 25, run_queue: 100, memory: 75, paging: 30, net: 20, disk: 0 },
            "the queue is cut to 100"
        );
    }

    #[test]
    fn kernels_and_interfaces_with_fewer_counters() {
        let machine = Machine::new("less");
        machine.interface("veth0", "-1\n", false);
        machine.set("vmstat", "nr_free_pages 5\npswpin 100\npswpout 100\n");
        machine.set("net/dev", &dev(&[("veth0", 0, 0)]));
        let mut sampler = machine.sampler();
        assert_eq!(sampler.sample(SECONDS), LoadReport::default(), "nothing can be read");
        machine.set("vmstat", "pswpin 1100\npswpout 1600\n");
        machine.set("net/dev", &dev(&[("veth0", 0, 625_000_000), ("late", 1 << 40, 0)]));
        let load = sampler.sample(SECONDS);
        assert_eq!((load.paging, load.net), (25, 50), "1000 pages a second and 1 Gbit/s are all");
        // Beside a physical interface virtual ones do not count, because their bytes are included
        // in it.
        machine.interface("eth0", "", true);
        machine.set("net/dev", &dev(&[("veth0", 1 << 40, 1 << 40), ("eth0", 0, 0)]));
        sampler.sample(SECONDS);
        machine.set("net/dev", &dev(&[("veth0", 1 << 41, 1 << 41), ("eth0", 125_000_000, 0)]));
        assert_eq!(sampler.sample(SECONDS).net, 10);
    }

    #[test]
    fn counters_that_go_backwards_are_no_load() {
        let machine = Machine::new("backwards");
        machine.set("stat", "cpu  500 0 500 500 0 0 0 0\n");
        machine.set("net/dev", &dev(&[("eth0", 1 << 40, 1 << 40)]));
        let mut sampler = machine.sampler();
        sampler.sample(SECONDS);
        machine.set("stat", "cpu  100 0 100 900 0 0 0 0\n");
        machine.set("net/dev", &dev(&[("eth0", 0, 0)]));
        let load = sampler.sample(SECONDS);
        assert_eq!((load.cpu, load.net), (0, 0));
    }

    #[test]
    fn this_machine_has_counters() {
        let mut sampler = Sampler::new();
        let load = sampler.sample(SECONDS);
        assert!(load.memory > 0 && load.memory <= 100);
        assert!(sampler.before.is_some_and(|counters| counters.ticks > 0 && counters.idle > 0));
    }
}
