//! The download of revocation lists of grid authorities (`-crl:use,updt`, `-crl:require,updt`).
//!
//! Lists are downloaded in the background, on threads of their own, so that no login waits for an
//! authority. A list counts after its signature is verified, and only if it is newer than the one in
//! force (`auth::grid`). The last list stays in force while an authority does not answer. Lists are
//! kept on disk, so that a restart depends on no authority, and an older list cannot come into force
//! by a restart.
//!
//! | file | contents |
//! |---|---|
//! | `download` | the HTTP client: limits, permitted addresses |
//! | `kept_lists` | lists on disk |
//! | `schedule` | when the list of each authority is downloaded |

mod download;
mod kept_lists;
mod schedule;

use crate::third_party::Outbound;
use auth::grid::{CrlSource, DownloadedList, GridTrust};
use base::{Owner, Supervisor};
use config::Effective;
use download::ListDownload;
use kept_lists::KeptLists;
use schedule::DownloadSchedule;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use storage::Pool;

/// Maximum number of threads that wait for authorities.
const DOWNLOAD_THREADS_MAX: usize = 4;
/// Maximum interval at which changed addresses of authorities, and the end of a download, are noticed.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// The directory for lists, below the administrative path.
const LISTS: &str = ".revocation-lists";

/// Downloads from one address. Blocks.
type FetchList = dyn Fn(&str) -> Result<Vec<u8>, String> + Send + Sync;

/// The download of lists. It ends when this is dropped.
pub(crate) struct CrlDownloads {
    _end: Sender<()>,
}

/// The state that the thread and the downloads share.
struct ListUpdater {
    trust: Arc<GridTrust>,
    schedule: Mutex<DownloadSchedule>,
    kept: KeptLists,
    started: Instant,
    fetch: Box<FetchList>,
}

impl CrlDownloads {
    /// Puts the lists of an earlier run into force and starts to download.
    pub(crate) fn start(
        trust: Arc<GridTrust>,
        effective: &Effective,
        supervisor: &Supervisor,
    ) -> std::io::Result<Self> {
        let sources = effective.security.grid_list_sources.value.clone();
        let outbound = Outbound::new(sources, &effective.host).of_directive("gsi.crlsource");
        let authorities = trust.clone();
        let fetch =
            move |address: &str| ListDownload::new(authorities.roots(), outbound.clone()).fetch(address);
        let updater = Arc::new(ListUpdater {
            schedule: Mutex::new(DownloadSchedule::new(trust.settings().refresh)),
            trust,
            kept: KeptLists::new(&effective.admin_directory().join(LISTS)),
            started: Instant::now(),
            fetch: Box::new(fetch),
        });
        updater.restore();
        let (end, ended) = mpsc::channel();
        let run = move || {
            let pool = Pool::new("crl-downloads", DOWNLOAD_THREADS_MAX);
            loop {
                updater.download_due(&pool);
                if ended.recv_timeout(updater.pause()) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        supervisor.spawn("crl-downloads", "the download of revocation lists", run)?;
        Ok(Self { _end: end })
    }
}

impl ListUpdater {
    fn schedule(&self) -> MutexGuard<'_, DownloadSchedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts lists of an earlier run into force.
    fn restore(&self) {
        for source in self.trust.list_sources() {
            let Some(text) = self.kept.read(&source.hash) else { continue };
            if let Err(reason) = self.trust.add_downloaded(&source, &text, SystemTime::now()) {
                let name = &source.authority;
                tracing::info!("the kept revocation list of {name:?} is not used: {reason}");
            }
        }
    }

    /// Starts the downloads that are due.
    fn download_due(self: &Arc<Self>, pool: &Arc<Pool>) {
        let now = self.started.elapsed();
        let due = self.schedule().take_due(self.trust.list_sources(), now);
        for source in due {
            let (updater, hash) = (self.clone(), source.hash.clone());
            let job = move || updater.update(&source);
            if pool.run(Owner::SERVER, Box::new(job)).is_err() {
                self.schedule().postponed(&hash, now);
            }
        }
    }

    /// Downloads the list of an authority. A panic counts as a failure; otherwise the schedule would
    /// wait for the end of this download for ever.
    fn update(&self, source: &CrlSource) {
        let work = || self.download(source);
        let downloaded = catch_unwind(AssertUnwindSafe(work));
        let panicked = || Err("the download panicked; this is an error of the server".to_owned());
        self.finish(source, downloaded.unwrap_or_else(|_| panicked()));
    }

    /// Tries the addresses of an authority, until one has a list that can be used.
    fn download(&self, source: &CrlSource) -> Result<DownloadedList, String> {
        let mut reasons = Vec::new();
        for address in &source.addresses {
            match self.download_from(source, address) {
                Ok(added) => return Ok(added),
                Err(reason) => reasons.push(format!("{address}: {reason}")),
            }
        }
        Err(reasons.join("; "))
    }

    fn download_from(&self, source: &CrlSource, address: &str) -> Result<DownloadedList, String> {
        let text = (self.fetch)(address)?;
        let added = self.trust.add_downloaded(source, &text, SystemTime::now())?;
        if added.is_new {
            let name = &source.authority;
            tracing::info!("a new revocation list of {name:?} is in force, from {address}");
            if let Err(error) = self.kept.write(&source.hash, &text) {
                let error = base::errno_text(&error);
                tracing::warn!("the revocation list of {name:?} is not kept over a restart: {error}");
            }
        }
        Ok(added)
    }

    /// Records the end of a download. A failure is logged if its reason has changed.
    fn finish(&self, source: &CrlSource, downloaded: Result<DownloadedList, String>) {
        let (now, name) = (self.started.elapsed(), &source.authority);
        match downloaded {
            Ok(added) => {
                // A time that has passed leaves no time.
                let left = |next: SystemTime| next.duration_since(SystemTime::now()).unwrap_or_default();
                let left = added.next_update.map(left);
                if self.schedule().succeeded(&source.hash, left, now) {
                    tracing::info!("the revocation list of {name:?} can be downloaded again");
                }
                if left == Some(Duration::ZERO) {
                    tracing::warn!("the downloaded revocation list of {name:?} is past its time");
                }
            }
            Err(reason) => {
                if let Some(pause) = self.schedule().failed(&source.hash, &reason, now) {
                    let seconds = pause.as_secs();
                    tracing::warn!(
                        "the revocation list of {name:?} cannot be downloaded, so nothing changes: {reason}; \
                         next attempt in {seconds} s"
                    );
                }
            }
        }
    }

    /// Returns the time until the next look at the schedule.
    fn pause(&self) -> Duration {
        let now = self.started.elapsed();
        let look = LOOK_INTERVAL.min(self.trust.settings().refresh);
        self.schedule().next_due(now).map_or(look, |pause| pause.min(look))
    }
}
