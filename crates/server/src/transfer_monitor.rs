//! [`TransferMonitor`]: records about transfers and purges for collectors (`frm.all.monitor`).
//!
//! Records may be lost, as all data of monitoring. A thread of its own sends them, so that no transfer or purge
//! waits for the network or for a look-up of a name.

use crate::error::StartError;
use base::LogicalPath;
use config::{Effective, RecordDestination};
use monitor::{PurgeFigures, RecordSender, ReportSender, TransferFigures, TransferKind, TransferRecords};
use residency::{EndedCopy, FailureReason, TransferDirection};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use storage::{Metadata, UserNameCache};

/// Number of records that wait for the thread. Further ones are lost.
const RECORDS_MAX: usize = 4096;

/// Maximum time that the end waits for the last records.
const END_MAX: Duration = Duration::from_secs(5);

/// The status of a copy of a missing file, and that of one that failed for another reason.
const NOT_FOUND: u8 = 2;
const FAILED: u8 = 1;

/// A record, for destinations that want it.
enum MonitorRecord {
    Transfer(TransferFigures),
    Purge(PurgeFigures),
}

impl MonitorRecord {
    fn is_for(&self, destination: &RecordDestination) -> bool {
        match self {
            Self::Transfer(TransferFigures { kind: TransferKind::Stage, .. }) => destination.stages,
            Self::Transfer(_) => destination.migrations,
            Self::Purge(_) => destination.purges,
        }
    }
}

/// Sends records until it is dropped.
pub(crate) struct TransferMonitor {
    /// `None` while it is dropped.
    records: Option<SyncSender<MonitorRecord>>,
    /// Disconnected when the thread has ended.
    ended: Mutex<Receiver<()>>,
    /// Records were lost since the last one that found a place.
    is_full: AtomicBool,
}

impl TransferMonitor {
    /// Starts the thread. `None` if no collector is configured.
    pub(crate) fn start(effective: &Effective) -> Result<Option<Arc<Self>>, StartError> {
        let Some(settings) = &effective.residency.monitoring.value else { return Ok(None) };
        let (records, received) = sync_channel(RECORDS_MAX);
        let (end, ended) = sync_channel(0);
        let destination = |destination: &RecordDestination| RecordCollector {
            sender: ReportSender::new(destination.address.clone()),
            wanted: destination.clone(),
            sequence: 0,
        };
        let thread = MonitorThread {
            records: TransferRecords::new(&sender(effective)),
            destinations: settings.destinations.iter().map(destination).collect(),
            received,
            interval: settings.interval,
            _end: end,
        };
        std::thread::Builder::new()
            .name("transfer-monitor".to_owned())
            .spawn(move || thread.run())
            .map_err(|source| StartError::System { what: "the thread of frm.all.monitor", source })?;
        let (records, ended) = (Some(records), Mutex::new(ended));
        Ok(Some(Arc::new(Self { records, ended, is_full: AtomicBool::new(false) })))
    }

    /// Sends a record of a copy.
    pub(crate) fn copied(&self, copy: &EndedCopy<'_>) {
        let status = match copy.failure.map(|failure| failure.reason) {
            None => 0,
            Some(FailureReason::NotFound) => NOT_FOUND,
            Some(_) => FAILED,
        };
        let kind = match copy.entry.key.direction {
            TransferDirection::In => TransferKind::Stage,
            TransferDirection::Out if copy.entry.removes => TransferKind::MigrateAndRemove,
            TransferDirection::Out => TransferKind::Migrate,
        };
        self.send(MonitorRecord::Transfer(TransferFigures {
            client: copy.entry.client.to_string(),
            path: copy.entry.key.path.shown().to_string(),
            ended: copy.ended,
            bytes: copy.bytes,
            queued: copy.queued(),
            copying: copy.seconds(),
            kind,
            status,
        }));
    }

    /// Sends a record of a purge.
    pub(crate) fn purged(&self, path: &LogicalPath, metadata: &Metadata) {
        self.send(MonitorRecord::Purge(PurgeFigures {
            path: path.shown().to_string(),
            removed: seconds_since_epoch(),
            bytes: metadata.size,
            times: [metadata.accessed, metadata.changed, metadata.modified],
        }));
    }

    fn send(&self, record: MonitorRecord) {
        let Some(records) = &self.records else { return };
        let is_full = records.try_send(record).is_err();
        let was_full = self.is_full.swap(is_full, Ordering::Relaxed);
        if is_full && !was_full {
            tracing::warn!("records of frm.all.monitor are lost, because they cannot be sent fast enough");
        }
    }
}

impl Drop for TransferMonitor {
    /// Waits until the last records are sent, because the process may end then.
    fn drop(&mut self) {
        self.records = None;
        // Disconnected at the end of the thread; other results mean that the records are lost.
        let _ = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner).recv_timeout(END_MAX);
    }
}

/// A collector.
struct RecordCollector {
    sender: ReportSender,
    wanted: RecordDestination,
    sequence: u8,
}

/// The thread.
struct MonitorThread {
    records: TransferRecords,
    destinations: Vec<RecordCollector>,
    received: Receiver<MonitorRecord>,
    interval: Duration,
    _end: SyncSender<()>,
}

impl MonitorThread {
    fn run(mut self) {
        let mut due = Instant::now();
        loop {
            let now = Instant::now();
            if now >= due {
                due = now + self.interval;
                let record = self.records.identification();
                self.destinations.iter_mut().for_each(|destination| destination.sender.send(&record));
            }
            match self.received.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(record) => self.send(&record),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn send(&mut self, record: &MonitorRecord) {
        let mut packet = match record {
            MonitorRecord::Transfer(transfer) => self.records.transfer(transfer),
            MonitorRecord::Purge(purge) => self.records.purge(purge),
        };
        for destination in &mut self.destinations {
            if record.is_for(&destination.wanted) {
                destination.sequence = destination.sequence.wrapping_add(1);
                TransferRecords::set_sequence(&mut packet, destination.sequence);
                destination.sender.send(&packet);
            }
        }
    }
}

/// Returns the names of this server in records.
pub(crate) fn sender(effective: &Effective) -> RecordSender {
    let user = rustix::process::geteuid().as_raw();
    RecordSender {
        site: effective.process.site_name.value.clone().unwrap_or_default(),
        host: effective.host.clone(),
        instance: effective.instance.as_deref().unwrap_or(config::ANONYMOUS).to_owned(),
        program: effective.program.clone(),
        port: effective.network.port.to_bind(),
        user: UserNameCache::new().user(user).to_string(),
        process: std::process::id(),
        started: seconds_since_epoch(),
    }
}

fn seconds_since_epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
