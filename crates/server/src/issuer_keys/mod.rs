//! The keys of token issuers, fetched over HTTPS.
//!
//! Keys are fetched in the background, on threads of their own, so that an issuer that does not answer
//! costs only its own tokens. The last keys stay in force while an issuer does not answer, for at most
//! a day, and are kept on disk over a restart.
//!
//! A token that names an unknown key causes a fetch, because the issuer may have a new key. All requests
//! with such tokens wait for the same fetch. Anybody can invent such tokens, so an issuer is asked at
//! most once per minute for their sake, and requests wait only for issuers that answered before.
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

use crate::background_downloads::{BackgroundDownloads, DownloadThreads, LOOK_INTERVAL, SourceDownload};
use crate::error::StartError;
use auth::tokens::{KeySet, TokenPolicy};
use base::Supervisor;
use download::{DOWNLOAD_TIME_MAX, download_keys_within};
use kept_keys::KeptKeys;
use schedule::{FetchSchedule, KeyRequestAnswer};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

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

/// The keys of an issuer, also as text, or the reason why there are none.
type FetchedKeys = Result<(KeySet, Vec<u8>), String>;

/// Fetches the keys of an issuer within a time. Blocks.
type DownloadKeys = dyn Fn(&str, Duration) -> FetchedKeys + Send + Sync;

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
            tokens: tokens.clone(),
            schedule: Mutex::default(),
            kept: KeptKeys::new(directory),
            started: Instant::now(),
            download: Box::new(move |issuer, limit| download_keys_within(issuer, trusted.as_deref(), limit)),
        });
        fetcher.restore();
        let start_due = move |threads: &Arc<DownloadThreads>| {
            fetcher.fetch_due(threads);
            fetcher.pause()
        };
        let what = "the fetching of keys of token issuers";
        let thread = BackgroundDownloads::start("issuer-keys", what, supervisor, start_due)
            .map_err(|source| StartError::System { what: "a thread", source })?;
        let waker = thread.waker();
        tokens.on_missing_key(move || waker.wake());
        Ok(Self { _thread: thread })
    }
}

impl KeyFetcher {
    fn schedule(&self) -> MutexGuard<'_, FetchSchedule> {
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

    /// Starts the fetches that are due and those for tokens with unknown keys, and removes keys that are
    /// too old.
    fn fetch_due(self: &Arc<Self>, threads: &Arc<DownloadThreads>) {
        let now = self.started.elapsed();
        let issuers = self.tokens.remote_issuers();
        let (mut due, outdated) = self.schedule().take_due(&issuers, now);
        for issuer in outdated {
            tracing::error!("the keys of {issuer} are no longer used: it has not answered for a day");
            self.tokens.set_keys(&issuer, None);
        }
        for issuer in self.tokens.issuers_of_missing_keys() {
            let answer = match issuers.contains(&issuer) {
                true => self.schedule().request(&issuer, now),
                false => KeyRequestAnswer { starts_fetch: false, may_wait: false },
            };
            if !answer.may_wait {
                self.tokens.end_wait_for_keys(&issuer);
            }
            if answer.starts_fetch {
                due.push(issuer);
            }
        }
        for issuer in due {
            threads.start(Box::new(KeyFetch { fetcher: self.clone(), issuer, fetched: None }));
        }
    }

    /// Puts the result of a fetch into force.
    fn finish(&self, issuer: &str, fetched: FetchedKeys) {
        let now = self.started.elapsed();
        match fetched {
            Ok((keys, text)) => {
                let is_first = self.schedule().succeeded(issuer, now);
                let (count, skipped) = (keys.len(), keys.unusable());
                self.tokens.set_keys(issuer, Some(keys));
                self.tokens.set_fetch_failure(issuer, None);
                if let Err(error) = self.kept.write(issuer, &text, SystemTime::now()) {
                    let error = base::errno_text(&error);
                    tracing::warn!("the keys of {issuer} are not kept over a restart: {error}");
                }
                // Only now, so that keys in the log are those of the next start, too.
                if is_first {
                    tracing::info!("{count} keys of {issuer} were fetched, and {skipped} others skipped");
                }
            }
            Err(reason) => {
                let pause = self.schedule().failed(issuer, now);
                self.tokens.set_fetch_failure(issuer, Some(&reason));
                let seconds = pause.as_secs();
                tracing::warn!(
                    "the keys of {issuer} cannot be fetched: {reason}; next attempt in {seconds} s"
                );
            }
        }
        self.tokens.end_wait_for_keys(issuer);
    }

    /// Returns the time until the next look at the schedule.
    fn pause(&self) -> Duration {
        let now = self.started.elapsed();
        self.schedule().next_due(now).map_or(LOOK_INTERVAL, |pause| pause.min(LOOK_INTERVAL))
    }
}

/// One fetch.
struct KeyFetch {
    fetcher: Arc<KeyFetcher>,
    issuer: String,
    fetched: Option<FetchedKeys>,
}

impl SourceDownload for KeyFetch {
    fn source(&self) -> &str {
        &self.issuer
    }

    fn time_max(&self) -> Duration {
        DOWNLOAD_TIME_MAX
    }

    fn attempt(&mut self, limit: Duration) -> bool {
        self.fetched = None;
        let fetched = self.fetched.insert((self.fetcher.download)(&self.issuer, limit));
        fetched.is_ok()
    }

    fn finish(self: Box<Self>) {
        let none = || Err("the fetch was not possible; this is an error of the server".to_owned());
        self.fetcher.finish(&self.issuer, self.fetched.unwrap_or_else(none));
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

    /// Starts the fetches that are due, and returns when they have ended.
    fn fetch(fetcher: &Arc<KeyFetcher>) {
        let (due, _) = fetcher.schedule().take_due(&[ISSUER.to_owned()], fetcher.started.elapsed());
        assert_eq!(due, [ISSUER]);
        let fetch = KeyFetch { fetcher: fetcher.clone(), issuer: ISSUER.to_owned(), fetched: None };
        DownloadThreads::new("test").start(Box::new(fetch));
        while fetcher.schedule().next_due(Duration::ZERO).is_none() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_fetch_that_panics_is_repeated() {
        let fetcher = fetcher(Box::new(|_, _| panic!("as by a defect of the HTTPS client")));
        fetch(&fetcher);
    }

    #[test]
    fn the_state_has_the_reason_of_a_failure() {
        let fetcher = fetcher(Box::new(|_, _| Err("no route".to_owned())));
        fetch(&fetcher);
        let expected = format!("no keys of {ISSUER} (no route)");
        while !fetcher.tokens.state().contains(&expected) {
            std::thread::yield_now();
        }
    }
}
