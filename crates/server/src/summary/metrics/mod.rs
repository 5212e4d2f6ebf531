//! [`ServerMetrics`]: the text of `/metrics`.
//!
//! The figures are those of the summary report, and some more. Names begin with `xrootd_` where collectors
//! of XRootD know a metric with the same meaning, with `process_` where all programs have it, and else with
//! `scalla_`. Labels have fixed sets of values, or come from the configuration; none comes from a client.
//!
//! | file | content |
//! |---|---|
//! | `front_families` | connections, requests, replies, logins |
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
use monitor::{MetricsFormat, MetricsText};
use net::Refusals;
use residency::PurgeThread;
use slow_figures::SlowSources;
use std::path::PathBuf;
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
}

impl ServerMetrics {
    pub(crate) fn new(summary: Arc<ServerSummary>, door: &Arc<XrootDoor>, sources: MetricsSources) -> Self {
        let MetricsSources { refusals, cluster, queue, purge } = sources;
        Self { summary, door: Arc::downgrade(door), refusals, slow: SlowSources::new(cluster, queue), purge }
    }

    fn text(&self, format: MetricsFormat) -> Option<String> {
        let begun = Instant::now();
        let front = self.door.upgrade()?.figures();
        let slow = self.slow.figures();
        let mut text = MetricsText::new(format);
        self.identity(&mut text);
        self.process(&mut text, &slow.process);
        front_families::connections(self, &mut text, &front);
        front_families::requests(&mut text, &front);
        front_families::replies(&mut text, &front);
        front_families::http(self, &mut text);
        self.files(&mut text);
        self.storage(&mut text);
        self.threads(&mut text, &front);
        self.cache(&mut text);
        self.certificates(&mut text);
        self.cluster(&mut text, slow.cluster.as_ref());
        self.transfers(&mut text, slow.queue.as_ref());
        text.gauge(
            "scalla_metrics_duration_seconds",
            "Time that it took to collect these metrics.",
            begun.elapsed().as_secs_f64(),
        );
        Some(text.finish())
    }
}
