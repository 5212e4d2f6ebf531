//! The download of revocation lists of grid authorities (`-crl:use,updt`, `-crl:require,updt`).
//!
//! Lists are downloaded in the background, on threads of their own, so that no login waits for an
//! authority. A list counts after its signature is verified, and only if it is newer than the one in
//! force (`auth::grid`). The last list stays in force while an authority does not answer. Lists are
//! kept on disk, so that a restart depends on no authority. Kept lists are read before each download,
//! so that no older list comes into force by a restart, or when an authority is new in the directory.
//!
//! | file | contents |
//! |---|---|
//! | `download` | the HTTP client: limits, permitted addresses |
//! | `kept_lists` | lists on disk |
//! | `schedule` | when the list of each authority is downloaded |

mod download;
mod kept_lists;
mod schedule;

use crate::background_downloads::{BackgroundDownloads, DownloadThreads, LOOK_INTERVAL, SourceDownload};
use crate::third_party::Outbound;
use auth::grid::{CrlSource, DownloadedList, GridTrust, ListRefusal};
use base::Supervisor;
use config::Effective;
use download::ListDownload;
use kept_lists::KeptLists;
use schedule::DownloadSchedule;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Maximum time of the download from all addresses of an authority.
const DOWNLOAD_TIME_MAX: Duration = Duration::from_secs(60);

/// Downloads from one address within some time. Blocks.
type FetchList = dyn Fn(&str, Duration) -> Result<Vec<u8>, String> + Send + Sync;

/// The download of lists. It ends when this is dropped.
pub(crate) struct CrlDownloads {
    _thread: BackgroundDownloads,
}

/// The state that the thread and the downloads share.
struct ListUpdater {
    trust: Arc<GridTrust>,
    schedule: Mutex<DownloadSchedule>,
    kept: KeptLists,
    started: Instant,
    fetch: Box<FetchList>,
}

/// Puts the lists of an earlier run of a server with this configuration into force. Returns the reasons
/// why some are not used. Blocks.
pub(crate) fn restore_kept(trust: &GridTrust, effective: &Effective) -> Vec<String> {
    if !trust.settings().downloads_lists {
        return Vec::new();
    }
    let kept = KeptLists::of_server(effective);
    let sources = trust.list_sources();
    let reason = |source: &CrlSource| {
        let name = &source.authority;
        let reason = restore(trust, &kept, source).err()?;
        Some(format!("the kept revocation list of {name:?} is not used: {reason}"))
    };
    sources.iter().filter_map(reason).collect()
}

/// Puts the kept list of an authority into force, if there is one.
fn restore(trust: &GridTrust, kept: &KeptLists, source: &CrlSource) -> Result<(), KeptListFault> {
    let text = kept.read(source).map_err(KeptListFault::Unreadable)?;
    let add = |text: Vec<u8>| trust.add_kept(source, &text, SystemTime::now());
    text.map_or(Ok(()), add).map_err(KeptListFault::Refused)
}

/// The reason why a kept list is not used.
enum KeptListFault {
    Refused(ListRefusal),
    Unreadable(io::Error),
}

impl fmt::Display for KeptListFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => reason.fmt(f),
            Self::Unreadable(error) => f.write_str(&base::errno_text(error)),
        }
    }
}

impl CrlDownloads {
    /// Starts to download. The lists of an earlier run are in force.
    pub(crate) fn start(
        trust: Arc<GridTrust>,
        effective: &Effective,
        supervisor: &Supervisor,
    ) -> io::Result<Self> {
        let sources = effective.security.grid_list_sources.value.clone();
        let outbound = Outbound::new(sources, &effective.host).of_directive("gsi.crlsource");
        let authorities = trust.clone();
        let fetch = move |address: &str, limit: Duration| {
            ListDownload::new(authorities.roots(), outbound.clone(), limit).fetch(address)
        };
        let updater = Arc::new(ListUpdater {
            schedule: Mutex::new(DownloadSchedule::new(trust.settings().refresh)),
            trust,
            kept: KeptLists::of_server(effective),
            started: Instant::now(),
            fetch: Box::new(fetch),
        });
        let start_due = move |threads: &Arc<DownloadThreads>| {
            updater.download_due(threads);
            updater.pause()
        };
        let what = "the download of revocation lists";
        Ok(Self { _thread: BackgroundDownloads::start("crl-downloads", what, supervisor, start_due)? })
    }
}

impl ListUpdater {
    fn schedule(&self) -> MutexGuard<'_, DownloadSchedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the downloads that are due.
    fn download_due(self: &Arc<Self>, threads: &Arc<DownloadThreads>) {
        let now = self.started.elapsed();
        let due = self.schedule().take_due(self.trust.list_sources(), now);
        for source in due {
            threads.start(Box::new(ListUpdate { updater: self.clone(), source, downloaded: None }));
        }
    }

    /// Downloads from the addresses of an authority, until one has a list of all its certificates.
    /// Returns the time of the first list that the authority makes next, if it is known.
    fn download(&self, source: &CrlSource, limit: Duration) -> Result<Option<SystemTime>, String> {
        // A clock that is behind would otherwise let an older list replace the kept one.
        if let Err(KeptListFault::Refused(reason @ ListRefusal::NotValidYet)) =
            restore(&self.trust, &self.kept, source)
        {
            return Err(format!("the kept list: {reason}"));
        }
        let end = Instant::now() + limit;
        let (mut reasons, mut next_update) = (Vec::new(), None);
        for (number, address) in source.addresses.iter().enumerate() {
            let left = end.saturating_duration_since(Instant::now());
            match self.download_from(source, address, share(left, source.addresses.len() - number)) {
                Ok(added) => {
                    next_update = [next_update, added.next_update].into_iter().flatten().min();
                    if added.is_whole {
                        reasons.clear();
                        break;
                    }
                }
                Err(reason) => reasons.push(format!("{address}: {reason}")),
            }
        }
        self.keep(source);
        if next_update.is_some_and(|next| next <= SystemTime::now()) {
            reasons.push("the downloaded list is past its time".to_owned());
        }
        if reasons.is_empty() { Ok(next_update) } else { Err(reasons.join("; ")) }
    }

    fn download_from(
        &self,
        source: &CrlSource,
        address: &str,
        limit: Duration,
    ) -> Result<DownloadedList, String> {
        let text = (self.fetch)(address, limit)?;
        let added = self.trust.add_downloaded(source, &text, SystemTime::now());
        let added = added.map_err(|reason| reason.to_string())?;
        if added.is_new {
            let name = &source.authority;
            tracing::info!("a new revocation list of {name:?} is in force, from {address}");
        }
        Ok(added)
    }

    /// Keeps the downloaded lists of an authority that are in force. It is tried after each download,
    /// because an earlier attempt may have failed.
    fn keep(&self, source: &CrlSource) {
        let lists = self.trust.downloaded_lists(source);
        if lists.is_empty() {
            return;
        }
        if let Err(error) = self.kept.write(source, &lists) {
            let (name, error) = (&source.authority, base::errno_text(&error));
            tracing::warn!("the revocation list of {name:?} is not kept over a restart: {error}");
        }
    }

    /// Records the end of a download. A failure is logged if its reason has changed.
    fn finish(&self, source: &CrlSource, downloaded: Result<Option<SystemTime>, String>) {
        let (now, name) = (self.started.elapsed(), &source.authority);
        match downloaded {
            Ok(next_update) => {
                let left = |next: SystemTime| next.duration_since(SystemTime::now()).unwrap_or_default();
                let has_failed = self.schedule().succeeded(name, next_update.map(left), now);
                if has_failed && !source.addresses.is_empty() {
                    tracing::info!("the revocation list of {name:?} can be downloaded again");
                }
            }
            Err(reason) => {
                if let Some(pause) = self.schedule().failed(name, &reason, now) {
                    let seconds = pause.as_secs();
                    tracing::warn!(
                        "the revocation list of {name:?} cannot be downloaded, and the newest one stays in \
                         force: {reason}; next attempt in {seconds} s"
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

/// One download of the list of an authority.
struct ListUpdate {
    updater: Arc<ListUpdater>,
    source: CrlSource,
    downloaded: Option<Result<Option<SystemTime>, String>>,
}

impl SourceDownload for ListUpdate {
    fn source(&self) -> &str {
        &self.source.authority
    }

    fn time_max(&self) -> Duration {
        DOWNLOAD_TIME_MAX
    }

    fn attempt(&mut self, limit: Duration) -> bool {
        self.downloaded = None;
        self.downloaded.insert(self.updater.download(&self.source, limit)).is_ok()
    }

    fn finish(self: Box<Self>) {
        let none = || Err("the download was not possible; this is an error of the server".to_owned());
        self.updater.finish(&self.source, self.downloaded.unwrap_or_else(none));
    }
}

/// Returns the part of a time for the first of some addresses, so that a slow one leaves time for others.
fn share(left: Duration, addresses: usize) -> Duration {
    left / u32::try_from(addresses).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::background_downloads::QUICK_TIME;

    #[test]
    fn an_authority_with_slow_addresses_uses_its_thread_for_a_limited_time() {
        for (mut left, least) in [(DOWNLOAD_TIME_MAX, 7), (QUICK_TIME, 1)] {
            for addresses in (1..=8).rev() {
                let limit = share(left, addresses);
                assert!(limit >= Duration::from_secs(least), "{limit:?}");
                left -= limit;
            }
            assert_eq!(left, Duration::ZERO);
        }
        assert_eq!(share(DOWNLOAD_TIME_MAX, 1), DOWNLOAD_TIME_MAX);
    }
}
