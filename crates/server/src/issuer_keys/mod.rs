//! The keys of token issuers, fetched over HTTPS.
//!
//! Keys are fetched in the background, on threads of their own, so that no request waits for an
//! issuer, and an issuer that does not answer costs only its own tokens. The last keys stay in force
//! while an issuer does not answer, for at most a day, and are kept on disk over a restart.
//!
//! | file | contents |
//! |---|---|
//! | `download` | the HTTPS client: metadata of an issuer, then its keys |
//! | `kept_keys` | keys on disk |
//! | `schedule` | when the keys of each issuer are fetched |

mod download;
mod kept_keys;
mod schedule;

pub use download::download_keys;

use crate::background_downloads::{BackgroundDownloads, LOOK_INTERVAL};
use crate::error::StartError;
use auth::tokens::{KeySet, TokenPolicy};
use base::{Owner, Supervisor};
use kept_keys::KeptKeys;
use schedule::FetchSchedule;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use storage::Pool;

/// The fetching of keys. It ends when this is dropped.
pub(crate) struct IssuerKeys {
    _thread: BackgroundDownloads,
}

/// The state that the thread and the fetches share.
struct KeyFetcher {
    tokens: Arc<TokenPolicy>,
    schedule: Mutex<FetchSchedule>,
    kept: KeptKeys,
    started: Instant,
    download: Box<DownloadKeys>,
}

/// Fetches the keys of an issuer. Returns them also as text. Blocks.
type DownloadKeys = dyn Fn(&str) -> Result<(KeySet, Vec<u8>), String> + Send + Sync;

impl IssuerKeys {
    /// Puts the keys of an earlier run into force and starts to fetch. `directory` is for keys on
    /// disk, and `trusted` as for [`download_keys`].
    pub(crate) fn start(
        tokens: Arc<TokenPolicy>,
        directory: &Path,
        trusted: Option<PathBuf>,
        supervisor: &Supervisor,
    ) -> Result<Self, StartError> {
        let fetcher = Arc::new(KeyFetcher {
            tokens,
            schedule: Mutex::default(),
            kept: KeptKeys::new(directory),
            started: Instant::now(),
            download: Box::new(move |issuer| download_keys(issuer, trusted.as_deref())),
        });
        fetcher.restore();
        let start_due = move |pool: &Arc<Pool>| {
            fetcher.fetch_due(pool);
            fetcher.pause()
        };
        let what = "the fetching of keys of token issuers";
        let thread = BackgroundDownloads::start("issuer-keys", what, supervisor, start_due);
        Ok(Self { _thread: thread.map_err(|source| StartError::System { what: "a thread", source })? })
    }
}

impl KeyFetcher {
    fn schedule(&self) -> std::sync::MutexGuard<'_, FetchSchedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts keys of an earlier run into force.
    fn restore(&self) {
        for issuer in self.tokens.remote_issuers() {
            let Some((text, age)) = self.kept.read(&issuer, SystemTime::now()) else { continue };
            match KeySet::parse(&text) {
                Ok(keys) => {
                    self.tokens.set_keys(&issuer, Some(keys));
                    self.schedule().restored(&issuer, age, self.started.elapsed());
                }
                Err(error) => tracing::warn!("the kept keys of {issuer} are not used: {error}"),
            }
        }
    }

    /// Starts the fetches that are due, and removes keys that are too old.
    fn fetch_due(self: &Arc<Self>, pool: &Arc<Pool>) {
        let now = self.started.elapsed();
        let (due, outdated) = self.schedule().take_due(&self.tokens.remote_issuers(), now);
        for issuer in outdated {
            tracing::error!("the keys of {issuer} are no longer used: it has not answered for a day");
            self.tokens.set_keys(&issuer, None);
        }
        for issuer in due {
            let (fetcher, name) = (self.clone(), issuer.clone());
            let job = move || fetcher.fetch(&name);
            if pool.run(Owner::SERVER, Box::new(job)).is_err() {
                self.schedule().failed(&issuer, now);
            }
        }
    }

    /// Fetches the keys of an issuer. A panic counts as a failure; otherwise the schedule would wait
    /// for the end of this fetch for ever.
    fn fetch(&self, issuer: &str) {
        let work = || {
            let fetched = (self.download)(issuer);
            self.finish(issuer, fetched);
        };
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.finish(issuer, Err("the fetch panicked; this is an error of the server".to_owned()));
        }
    }

    /// Puts the result of a fetch into force.
    fn finish(&self, issuer: &str, fetched: Result<(KeySet, Vec<u8>), String>) {
        let now = self.started.elapsed();
        match fetched {
            Ok((keys, text)) => {
                let is_first = self.schedule().succeeded(issuer, now);
                let (count, skipped) = (keys.len(), keys.unusable());
                self.tokens.set_keys(issuer, Some(keys));
                if is_first {
                    tracing::info!("{count} keys of {issuer} were fetched, and {skipped} others skipped");
                }
                if let Err(error) = self.kept.write(issuer, &text, SystemTime::now()) {
                    let error = base::errno_text(&error);
                    tracing::warn!("the keys of {issuer} are not kept over a restart: {error}");
                }
            }
            Err(reason) => {
                let pause = self.schedule().failed(issuer, now);
                let seconds = pause.as_secs();
                tracing::warn!(
                    "the keys of {issuer} cannot be fetched: {reason}; next attempt in {seconds} s"
                );
            }
        }
    }

    /// Returns the time until the next look at the schedule.
    fn pause(&self) -> Duration {
        let now = self.started.elapsed();
        self.schedule().next_due(now).map_or(LOOK_INTERVAL, |pause| pause.min(LOOK_INTERVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use auth::access::AuthdbCheck;
    use auth::tokens::{IssuerFile, TokenPolicySource};

    const ISSUER: &str = "https://issuer.example.org";

    fn fetcher(download: Box<DownloadKeys>) -> Arc<KeyFetcher> {
        let text = format!("[Issuer a]\nissuer = {ISSUER}\nbase_path = /\n");
        let (path, check) = ("/nonexistent".into(), AuthdbCheck::None);
        let file = IssuerFile::parse(text.as_bytes(), Path::new("/f"), &mut |_, _| Err(String::new()));
        Arc::new(KeyFetcher {
            tokens: Arc::new(TokenPolicy::new(TokenPolicySource { path, check }, file.unwrap())),
            schedule: Mutex::default(),
            kept: KeptKeys::new(Path::new("/nonexistent")),
            started: Instant::now(),
            download,
        })
    }

    #[test]
    fn a_fetch_that_panics_is_repeated() {
        let fetcher = fetcher(Box::new(|_| panic!("as by a defect of the HTTPS client")));
        let (due, _) = fetcher.schedule().take_due(&[ISSUER.to_owned()], Duration::ZERO);
        assert_eq!(due, [ISSUER]);
        assert_eq!(fetcher.schedule().next_due(Duration::ZERO), None);
        fetcher.fetch(ISSUER);
        assert!(fetcher.schedule().next_due(Duration::ZERO).is_some());
    }
}
