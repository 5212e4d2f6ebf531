//! Starts detailed monitoring: records about clients, files and redirects (`xrootd.monitor`), and streams of records
//! about copies, the cache and HTTP (`xrootd.mongstream`).

use crate::VERSION;
use crate::error::StartError;
use crate::third_party::CopyRecords;
use crate::transfer_monitor;
use base::Supervisor;
use cache::{CacheObserver, ClosedCacheFile};
use config::{ConfigSource, Effective, GStream, LocalFiles, PacketMarking, PathKind};
use http::StatusCounters;
use monitor::{
    CachedFileFigures, FlowMarker, GStreamWriter, GStreams, MarkRules, MonitorStreams, RecordSender,
    http_records,
};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time that the end of the server waits for the last records.
const LAST_RECORDS_MAX: Duration = Duration::from_secs(2);

/// Detailed monitoring of a server.
pub(crate) struct DetailedMonitors {
    streams: Option<Arc<MonitorStreams>>,
    /// `None` if no collector gets such a stream.
    gstreams: Option<Arc<GStreams>>,
    /// The counters of HTTP, if a collector gets them.
    pub(crate) statuses: Option<Arc<StatusCounters>>,
    /// Reports flows of data; `None` if none are reported.
    pub(crate) marker: Option<Arc<FlowMarker>>,
    /// Records of copies, if a collector gets them.
    pub(crate) copies: Option<Arc<CopyRecords>>,
}

impl DetailedMonitors {
    /// Starts a thread for each collector and each stream.
    ///
    /// # Errors
    /// [`StartError`] if a thread cannot be started.
    pub(crate) fn start(
        effective: &Effective,
        port: u16,
        supervisor: &Supervisor,
    ) -> Result<Self, StartError> {
        let started = Self::start_threads(effective, port, supervisor);
        let threads = |source| StartError::System { what: "the threads of monitoring", source };
        Ok(Self { marker: marker(effective, supervisor)?, ..started.map_err(threads)? })
    }

    fn start_threads(effective: &Effective, port: u16, supervisor: &Supervisor) -> io::Result<Self> {
        let settings = effective.monitoring.detailed.value.as_ref();
        let sender = RecordSender { port, ..transfer_monitor::sender(effective) };
        let (streams, senders) =
            settings.map(|settings| MonitorStreams::new(settings, &sender, VERSION)).unzip();
        for sender in senders.unwrap_or_default() {
            supervisor.spawn("monitor", "detailed monitoring", move || sender.run())?;
        }
        let table = &effective.monitoring.gstreams.value;
        let (gstreams, writers) = GStreams::new(table, settings.zip(streams.as_ref()), &sender, VERSION);
        let gstreams = (!writers.is_empty()).then_some(gstreams);
        let statuses = gstreams.as_ref().filter(|streams| streams.has(GStream::Http));
        let statuses = statuses.map(|_| Arc::<StatusCounters>::default());
        for writer in writers {
            let writer = with_samples(writer, statuses.as_ref());
            supervisor.spawn("monitor", "a stream of xrootd.mongstream", move || writer.run())?;
        }
        let own = format!("{}:{port}", effective.host);
        let copies = gstreams.as_ref().and_then(|streams| CopyRecords::new(streams, own));
        Ok(Self { streams, gstreams, statuses, marker: None, copies })
    }

    /// Adds the records about clients, files and redirects to the front end.
    pub(crate) fn join(&self, door: &mut xroot::Config) {
        door.marker = self.marker.clone();
        if let Some(streams) = &self.streams {
            door.streams = Some(streams.clone());
            door.settings.has_monitoring = true;
        }
    }

    /// Adds the records about the files of a cache.
    pub(crate) fn observe(&self, proxy: &proxy::ProxyFiles) {
        let wanted = self.gstreams.as_ref().filter(|streams| streams.has(GStream::FileCache));
        if let Some(streams) = wanted {
            proxy.observe_cache(Arc::new(CacheRecords(streams.clone())));
        }
    }

    /// Sends the last records, within a limited time.
    pub(crate) async fn flush(&self) {
        let Some(streams) = self.gstreams.clone() else { return };
        let (done, flushed) = tokio::sync::oneshot::channel::<()>();
        let flush = move || {
            streams.flush(LAST_RECORDS_MAX);
            drop(done);
        };
        // It waits for other threads. Without a thread the records are lost, as all data of monitoring may be.
        if std::thread::Builder::new().name("last-records".to_owned()).spawn(flush).is_ok() {
            let _ = flushed.await;
        }
    }
}

/// Starts reports about flows of data, if the configuration asks for them.
fn marker(effective: &Effective, supervisor: &Supervisor) -> Result<Option<Arc<FlowMarker>>, StartError> {
    let settings = effective.monitoring.marking.value.as_ref().filter(|settings| settings.is_in_force());
    let Some(settings) = settings else { return Ok(None) };
    let rules = match mark_rules(settings) {
        Ok(rules) => rules,
        Err(why) if settings.needs_registry => return Err(StartError::PacketMarking(why)),
        Err(why) => {
            tracing::warn!("{why}; only the experiments that clients name are reported");
            MarkRules::of_clients(settings)
        }
    };
    let (marker, sender) = FlowMarker::new(settings, rules, &effective.host);
    let started = supervisor.spawn("flows", "the reports about flows", move || sender.run());
    started.map_err(|source| StartError::System { what: "the thread of reports about flows", source })?;
    Ok(Some(marker))
}

/// Returns the rules of flows, with the numbers from the file if there are any.
fn mark_rules(settings: &PacketMarking) -> Result<MarkRules, String> {
    let path = settings.registry.as_deref().filter(|_| settings.has_rules());
    let failed =
        |why: &dyn std::fmt::Display| format!("xrootd.pmark defsfile {}: {why}", path.unwrap_or_default());
    let text = path.map(read_registry).transpose().map_err(|error| failed(&error))?;
    MarkRules::new(settings, text.as_deref()).map_err(|error| failed(&error))
}

/// Reads the file with the numbers of experiments, which has a bounded size.
fn read_registry(path: &str) -> io::Result<String> {
    if matches!(LocalFiles.kind(path)?, PathKind::File { .. }) {
        return String::from_utf8(LocalFiles.read(path)?).map_err(io::Error::other);
    }
    Err(io::Error::other("it is not a regular file"))
}

/// Adds the counters of HTTP to the writer of their stream.
fn with_samples(writer: GStreamWriter, statuses: Option<&Arc<StatusCounters>>) -> GStreamWriter {
    match statuses {
        Some(statuses) if writer.stream() == GStream::Http => {
            let statuses = statuses.clone();
            writer.sampling(move |bytes_max| http_records(&statuses.figures(), bytes_max))
        }
        _ => writer,
    }
}

/// Sends a record about each period in which clients had a file of the cache open.
struct CacheRecords(Arc<GStreams>);

impl CacheObserver for CacheRecords {
    fn closed(&self, file: &ClosedCacheFile<'_>) {
        let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        self.0.add(GStream::FileCache, |bytes_max| {
            CachedFileFigures {
                path: &file.path.text(),
                size: file.size,
                block_bytes: file.block_bytes,
                blocks: file.size.div_ceil(file.block_bytes.max(1)),
                blocks_stored: file.blocks_stored,
                accesses: file.opens,
                period: (file.access.attached, file.access.detached),
                remotes: file.remotes,
                hit: bytes(file.access.bytes_hit),
                missed: bytes(file.access.bytes_missed),
                bypassed: bytes(file.access.bytes_bypassed),
                stored: file.stored,
                prefetched: file.ahead,
                damaged: file.damaged,
            }
            .record(bytes_max)
        });
    }
}
