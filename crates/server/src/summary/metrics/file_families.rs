//! Families about open files, storage, threads for disks, and the disk cache.

use super::ServerMetrics;
use crate::summary::seconds;
use cache::DiskCacheStatus;
use logical::{LogicalTotals, ThirdPartyCounts};
use monitor::{MetricKind, MetricsText, StorageFigures};
use xroot::FrontEndFigures;

/// Maximum number of exports and of spaces that metrics have, because each has series of its own.
const PATHS_MAX: usize = 256;

/// The path that stands for the disk cache, as collectors of XRootD name it.
const CACHE_PATH: &str = "/cache";

/// Writes whether the sizes of exports are known, and since when.
fn exports(text: &mut MetricsText, found: &StorageFigures) {
    let Some(looked) = found.looked else { return };
    let help =
        "The end of the last look at the file systems of exports and at spaces, in seconds since 1970.";
    text.gauge("scalla_storage_survey_timestamp_seconds", help, seconds(looked));
    if !found.paths.is_empty() {
        let help = "1 if the file system of the export has told its size.";
        let mut family = text.family(MetricKind::Gauge, "scalla_export_answers", help);
        for path in found.paths.iter().take(PATHS_MAX) {
            family.sample(&[("ns", &path.logical)], u64::from(path.is_known));
        }
    }
}

impl ServerMetrics {
    pub(super) fn files(&self, text: &mut MetricsText) {
        let Some(logical) = &self.summary.logical else { return };
        let status = logical.status();
        let reading = status.open_files.saturating_sub(status.writers) as u64;
        text.family(MetricKind::Gauge, "scalla_open_files", "Files that are open.")
            .each("mode", [("read", reading), ("write", status.writers as u64)]);
        text.gauge(
            "scalla_pending_files",
            "Open files that persist only on a close.",
            status.pending_files as u64,
        );
        text.gauge("scalla_checkpoints", "Checkpoints of files.", status.checkpoints as u64);
        text.gauge(
            "scalla_checksum_calculations",
            "Checksums that are being calculated.",
            status.checksums as u64,
        );
        let LogicalTotals { undone_files, third_party } = logical.totals();
        text.counter(
            "scalla_undone_files",
            "Files that were removed because they did not persist.",
            undone_files,
        );
        let ThirdPartyCounts { granted, denied, failed, expired } = third_party;
        text.family(
            MetricKind::Counter,
            "scalla_third_party_copies",
            "Third-party copies from and to this server.",
        )
        .each("result", [("granted", granted), ("denied", denied), ("failed", failed), ("expired", expired)]);
    }

    pub(super) fn storage(&self, text: &mut MetricsText) {
        let cache = self.cache_status();
        let found = self.summary.storage.as_ref().map(|storage| storage.found()).unwrap_or_default();
        exports(text, &found);
        let known: Vec<_> = found.paths.iter().take(PATHS_MAX).filter(|path| path.is_known).collect();
        if !known.is_empty() || cache.is_some() {
            let help = "Size of the file systems of exports and of the disk cache.";
            let mut family = text.family(MetricKind::Gauge, "xrootd_storage_volume_bytes", help);
            for path in &known {
                for (kind, bytes) in [("total", path.total), ("free", path.free)] {
                    family.sample(&[("ns", &path.logical), ("type", kind), ("server_type", "origin")], bytes);
                }
            }
            if let Some(cache) = &cache {
                let total = cache.disk.0;
                for (kind, bytes) in [("total", total), ("free", total.saturating_sub(cache.disk_used))] {
                    family.sample(&[("ns", CACHE_PATH), ("type", kind), ("server_type", "cache")], bytes);
                }
            }
        }
        if !known.is_empty() {
            let help = "Inodes of the file systems of exports.";
            let mut family = text.family(MetricKind::Gauge, "scalla_storage_inodes", help);
            for path in &known {
                for (kind, number) in [("total", path.inodes), ("free", path.inodes_free)] {
                    family.sample(&[("ns", &path.logical), ("type", kind)], number);
                }
            }
        }
        if !found.spaces.is_empty() {
            let mut family = text.family(MetricKind::Gauge, "scalla_space_bytes", "Spaces of the storage.");
            for space in found.spaces.iter().take(PATHS_MAX) {
                let figures = [
                    ("total", Some(space.total)),
                    ("free", Some(space.free)),
                    ("largest_free", Some(space.largest_free)),
                    ("used", Some(space.used)),
                    ("quota", space.quota),
                ];
                for (kind, bytes) in figures {
                    if let Some(bytes) = bytes {
                        family.sample(&[("space", &space.name), ("type", kind)], bytes);
                    }
                }
            }
        }
    }

    pub(super) fn threads(&self, text: &mut MetricsText, front: &FrontEndFigures) {
        let found = self.summary.scheduler(front);
        let running = found.threads.saturating_sub(found.idle);
        text.family(
            MetricKind::Gauge,
            "xrootd_sched_thread_count",
            "Threads for work that can wait for a disk.",
        )
        .each("state", [("idle", found.idle), ("running", running)]);
        let help = "Jobs since the start: times a connection was resumed, and works of threads for disks.";
        text.gauge("xrootd_sched_jobs", help, found.jobs);
        text.gauge("xrootd_sched_queued", "Jobs that wait for a thread.", found.waiting);
        let help = "Maximum number of jobs that waited at one time.";
        text.gauge("xrootd_sched_queue_longest_length", help, found.waiting_most);
    }

    pub(super) fn cache(&self, text: &mut MetricsText) {
        let Some(cache) = self.cache_status() else { return };
        let help = "Bytes since the start: read from the disk cache (hit), from the origin (miss), from the origin and \
                    not stored (bypass), fetched ahead (prefetch), stored (to_disk).";
        let mut family = text.family(MetricKind::Gauge, "xrootd_cache_access_bytes", help);
        for (kind, bytes) in [
            ("hit", cache.bytes_hit),
            ("miss", cache.bytes_shared),
            ("bypass", cache.bytes_bypassed),
            ("prefetch", cache.bytes_ahead),
            ("to_disk", cache.bytes_stored),
        ] {
            family.sample(&[("path", "/"), ("type", kind)], bytes);
        }
        let (total, high, low) = cache.disk;
        text.family(
            MetricKind::Gauge,
            "scalla_cache_disk_bytes",
            "The disk of the cache: its size, what the cache uses, and the \
                    used bytes above which files are removed (high), and down to which (low).",
        )
        .each("type", [("total", total), ("used", cache.bytes), ("high", high), ("low", low)]);
        text.counter(
            "scalla_cache_fetched_bytes",
            "Bytes that were fetched to be stored.",
            cache.bytes_missed,
        );
        text.counter("scalla_cache_delivered_bytes", "Bytes that readers got.", cache.bytes_delivered);
        text.counter(
            "scalla_cache_evicted_bytes",
            "Bytes of files and parts of files that were removed to make room.",
            cache.evicted_bytes,
        );
        text.counter(
            "scalla_cache_evicted_files",
            "Files that were removed to make room.",
            cache.evicted_files,
        );
        text.counter(
            "scalla_cache_evicted_parts",
            "Parts that were removed from files of which others stay, to make room.",
            cache.evicted_parts,
        );
        text.counter(
            "scalla_cache_damaged_blocks",
            "Stored blocks that were wrong and were fetched again.",
            cache.damaged_blocks,
        );
        text.counter("scalla_cache_bypasses", "Requests for bytes that were not stored.", cache.bypasses);
        text.family(MetricKind::Counter, "scalla_cache_opens", "Opens of files through the cache.")
            .each("result", [("cached", cache.opens), ("uncached", cache.uncached_opens)]);
        text.counter(
            "scalla_cache_direct_opens",
            "Opens after which clients on this machine read the file directly.",
            cache.direct_opens,
        );
        text.gauge("scalla_cache_files", "Files in the cache.", cache.files);
        text.gauge("scalla_cache_open_files", "Open files of the cache.", cache.open_files);
        text.family(
            MetricKind::Gauge,
            "scalla_cache_memory_bytes",
            "Bytes between their request at the origin and the disk.",
        )
        .each("type", [("used", cache.memory), ("limit", cache.memory_limit)]);
        text.gauge("scalla_cache_waiting_writes", "Blocks that wait for the disk.", cache.waiting_writes);
        let help = "1 if nothing is stored, because the disk is full or has failed.";
        text.gauge("scalla_cache_paused", help, u64::from(cache.is_paused));
    }

    fn cache_status(&self) -> Option<DiskCacheStatus> {
        Some(self.summary.proxy.as_ref()?.cache_orders()?.status().1)
    }
}
