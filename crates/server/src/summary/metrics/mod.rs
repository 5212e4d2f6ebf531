//! [`ServerMetrics`]: the text of `/metrics`.
//!
//! The figures are those of the summary report, and some more. Names begin with `xrootd_` where collectors
//! of XRootD know a metric with the same meaning, with `process_` where all programs have it, and else with
//! `scalla_`. Labels have fixed sets of values, or come from the configuration; none comes from a client.
//!
//! | file | content |
//! |---|---|
//! | `front_families` | connections, requests and their times, replies, logins |
//! | `file_families` | open files, storage, threads for disks, the disk cache |
//! | `node_families` | the server itself, its process and certificates, the cluster, mass storage |
//! | `process_status` | the memory, threads and descriptors of the process |
//! | `slow_figures` | figures that need another thread or a disk |
//! | `threads` | the threads that make the text |

mod file_families;
mod front_families;
mod node_families;
mod process_status;
mod slow_figures;
mod threads;

use super::ServerSummary;
use crate::cluster::ClusterView;
use base::Supervisor;
use monitor::{MetricKind, MetricsFormat, MetricsText};
use net::Refusals;
use residency::PurgeThread;
use slow_figures::SlowSources;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;
use xroot::XrootDoor;

pub(crate) use threads::MetricsThreads;

/// The place of the metrics of a server, which is empty until the server has all its parts.
#[derive(Clone, Default)]
pub(crate) struct MetricsPlace(Arc<OnceLock<ServerMetrics>>);

impl MetricsPlace {
    /// Puts the metrics into their place.
    pub(crate) fn set(&self, metrics: ServerMetrics) {
        // There is one server.
        let _ = self.0.set(metrics);
    }

    /// Returns the text; `None` before the server has all its parts, and after its end. It may block for a
    /// while.
    pub(crate) fn text(&self, format: MetricsFormat) -> Option<String> {
        self.0.get()?.text(format)
    }
}

/// The parts of a server that its summary does not know.
pub(crate) struct MetricsSources {
    /// Connections that were refused.
    pub(crate) refusals: Arc<Refusals>,
    /// The node of a cluster.
    pub(crate) cluster: Option<ClusterView>,
    /// The directory of the queue of transfers.
    pub(crate) queue: Option<PathBuf>,
    /// The purges.
    pub(crate) purge: Option<Weak<PurgeThread>>,
}

/// Makes the text of `/metrics`.
pub(crate) struct ServerMetrics {
    summary: Arc<ServerSummary>,
    door: Weak<XrootDoor>,
    refusals: Arc<Refusals>,
    slow: SlowSources,
    purge: Option<Weak<PurgeThread>>,
    other_requests: RisingCount,
    unauthenticated: RisingCount,
}

/// A count that is calculated from counters of other threads, which are not stopped for it. It may come out
/// smaller than before; a metric that falls would mean a restart of the server.
#[derive(Default)]
struct RisingCount(AtomicU64);

impl RisingCount {
    /// Returns the greatest of all counts.
    fn at_least(&self, count: u64) -> u64 {
        self.0.fetch_max(count, Ordering::Relaxed).max(count)
    }
}

impl ServerMetrics {
    /// Starts the threads for figures that may hang.
    ///
    /// # Errors
    /// The error of the system, if threads cannot be started.
    pub(crate) fn start(
        summary: Arc<ServerSummary>,
        door: &Arc<XrootDoor>,
        sources: MetricsSources,
        supervisor: &Supervisor,
    ) -> io::Result<Self> {
        let MetricsSources { refusals, cluster, queue, purge } = sources;
        Ok(Self {
            summary,
            door: Arc::downgrade(door),
            refusals,
            slow: SlowSources::start(cluster, queue, supervisor)?,
            purge,
            other_requests: RisingCount::default(),
            unauthenticated: RisingCount::default(),
        })
    }

    fn text(&self, format: MetricsFormat) -> Option<String> {
        let begun = Instant::now();
        let front = self.door.upgrade()?.figures();
        let slow = self.slow.figures();
        let mut text = MetricsText::new(format);
        self.identity(&mut text);
        self.process(&mut text, slow.process.as_deref());
        front_families::connections(self, &mut text, &front);
        front_families::requests(self, &mut text, &front);
        front_families::replies(self, &mut text, &front);
        front_families::http(self, &mut text);
        front_families::latencies(self, &mut text, &front);
        self.files(&mut text);
        self.storage(&mut text);
        self.threads(&mut text, &front);
        self.cache(&mut text);
        self.certificates(&mut text);
        self.cluster(&mut text, slow.cluster.as_ref().map(Option::as_deref));
        self.transfers(&mut text, slow.queue.as_deref());
        let help = "Time since the figures were looked at that need a disk or another thread.";
        let mut ages = text.family(MetricKind::Gauge, "scalla_metrics_age_seconds", help);
        for (source, age) in &slow.ages {
            ages.sample(&[("source", source)], age.as_secs_f64());
        }
        text.gauge(
            "scalla_metrics_duration_seconds",
            "Time that it took to collect these metrics.",
            begun.elapsed().as_secs_f64(),
        );
        Some(text.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calculated_count_never_falls() {
        let count = RisingCount::default();
        assert_eq!([5, 4, 5, 7, 0].map(|now| count.at_least(now)), [5, 5, 5, 7, 7]);
    }
}
