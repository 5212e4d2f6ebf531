//! Uploads to HTTP servers: one PUT, whose body is the source in its order.
//!
//! The file does not exist before (a HEAD, and `If-None-Match: *` for what appears afterwards), unless `--force`
//! overwrites it. The body is sent after `100 Continue`, so a server can refuse or redirect the upload before.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use digest::{Checksum, RunningChecksum};
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use tokio::time::timeout;

use super::Copier;
use super::checks::Checks;
use super::failure::{CopyError, Side};
use super::opening::{REMOVE_TIME, unless_stopped};
use super::options::{CopyDone, CopyJob, CopyOptions, Watch};
use super::source::SourceReader;
use super::upload_feed::UploadFeed;
use super::web_source::{not_the_source, not_the_third_source};
use crate::answers::StatInfo;
use crate::failure::Cause;
use crate::http::{TransferFailure, UrlTransfer};
use crate::url::Url;

/// Time in which a part of a file does not change if nobody writes it.
const PART_TIME: Duration = Duration::from_secs(2);

/// An upload.
#[derive(Clone, Copy)]
pub(super) struct WebUpload<'a> {
    pub(super) copier: &'a Copier,
    pub(super) job: &'a CopyJob,
    pub(super) options: &'a CopyOptions,
    pub(super) watch: &'a Watch,
    pub(super) url: &'a Url,
}

impl WebUpload<'_> {
    pub(super) async fn run(&self, source: SourceReader) -> Result<CopyDone, CopyError> {
        let Self { copier, job, options, watch, url } = *self;
        let Some(size) = source.size else {
            let text = format!(
                "{}: an upload over HTTP needs the size of the file at its beginning; copy it to a file first",
                job.source
            );
            return Err(CopyError::Usage(text));
        };
        let begin = Box::pin(Checks::begin(copier, &source, &job.target, options));
        let mut checks = unless_stopped(watch, begin).await?;
        unless_stopped(watch, Box::pin(self.check_target(&source))).await?;
        let algorithms = checks.sums().iter().map(RunningChecksum::algorithm).collect();
        let feed = Arc::new(UploadFeed::new(self, source, algorithms));
        let sums = match self.send(&feed).await {
            Ok(sums) => sums,
            Err(error) => {
                // After a reply of the server nothing is removed: the file may be that of another client.
                if leaves_part(&error) && !feed.is_refused.load(Ordering::Relaxed) {
                    self.remove_part(&feed).await;
                }
                return Err(error);
            }
        };
        let own = self.own(size).await;
        let heard = async {
            checks.hear().await?;
            checks.verify_source(&job.source, &sums)
        };
        let mut checksums = match unless_stopped(watch, Box::pin(heard)).await {
            Ok(checksums) => checksums,
            Err(error) => {
                self.remove(own).await;
                return Err(error);
            }
        };
        let verified = Box::pin(checks.verify_target(copier, &job.target, Some(url), &sums));
        match unless_stopped(watch, verified).await {
            Ok(of_target) => checksums.extend(of_target),
            Err(error) => {
                if matches!(error, CopyError::Checksum { .. }) {
                    self.remove(own).await;
                }
                return Err(error);
            }
        }
        Ok(CopyDone { checksums, ..CopyDone::of(size, size) })
    }

    /// Removes what a failed upload has left of a new file. Some servers keep it. It is smaller than the file and not
    /// larger than what was sent. One that changes is written by another client.
    async fn remove_part(&self, feed: &UploadFeed) {
        let copied = feed.copied.load(Ordering::Relaxed).max(feed.copied_before.load(Ordering::Relaxed));
        let size = feed.size.unwrap_or(0);
        if self.options.force || copied == 0 {
            return;
        }
        let files = self.copier.client.file_system(self.url);
        let find = async || {
            let found = files.find(&self.url.path).await.ok().flatten()?;
            (!found.is_dir() && found.size < size && found.size <= copied).then_some(found)
        };
        let look = async {
            let Some(first) = find().await else { return };
            tokio::time::sleep(PART_TIME).await;
            if find().await.is_some_and(|second| is_unchanged(&first, &second)) {
                files.rm(&self.url.path).await.ok();
            }
        };
        // An unresponsive server is abandoned.
        timeout(REMOVE_TIME, look).await.ok();
    }

    /// Returns the status of a new file that was uploaded just now. Nothing that `--force` replaces is removed, because
    /// its name may have other copies, and nothing else would be left.
    pub(super) async fn own(&self, size: u64) -> Option<StatInfo> {
        // Without a checksum nothing is found to be wrong.
        if self.options.force || self.options.checksums.is_empty() {
            return None;
        }
        let files = self.copier.client.file_system(self.url);
        let found = timeout(REMOVE_TIME, files.find(&self.url.path)).await.ok()?.ok()??;
        (found.size == size).then_some(found)
    }

    /// Removes the file, which is not what it should be, if it is still that of the upload.
    pub(super) async fn remove(&self, own: Option<StatInfo>) {
        let Some(own) = own else { return };
        let files = self.copier.client.file_system(self.url);
        let look = async {
            let found = files.find(&self.url.path).await.ok().flatten();
            if found.is_some_and(|found| is_unchanged(&own, &found)) {
                files.rm(&self.url.path).await.ok();
            }
        };
        // An unresponsive server is abandoned.
        timeout(REMOVE_TIME, look).await.ok();
    }

    /// Checks that nothing is overwritten that should not be.
    async fn check_target(&self, source: &SourceReader) -> Result<(), CopyError> {
        let Self { copier, options, url, .. } = *self;
        let found = copier.client.file_system(url).find(&url.path).await.map_err(CopyError::target)?;
        match found {
            Some(found) if found.is_dir() => Err(CopyError::IsDirectory(url.to_string())),
            Some(_) if !options.force => Err(CopyError::Exists(url.to_string())),
            Some(_) => not_the_source(copier, source, url).await,
            None => Ok(()),
        }
    }

    /// Checks as [`WebUpload::check_target`] does for a copy that servers carry out.
    pub(super) async fn check_place(&self, source: (&Url, &StatInfo)) -> Result<(), CopyError> {
        let Self { copier, options, url, .. } = *self;
        let found = copier.client.file_system(url).find(&url.path).await.map_err(CopyError::target)?;
        match found {
            Some(found) if found.is_dir() => Err(CopyError::IsDirectory(url.to_string())),
            Some(_) if !options.force => Err(CopyError::Exists(url.to_string())),
            Some(found) => not_the_third_source(source, (url, &found)),
            None => Ok(()),
        }
    }

    /// Sends the file. If the directory is missing, it is created.
    async fn send(&self, feed: &Arc<UploadFeed>) -> Result<Vec<Checksum>, CopyError> {
        let Self { copier, watch, url, .. } = *self;
        let transfer = UrlTransfer::new(&copier.client, url, "write").await.map_err(CopyError::target)?;
        let is_conflict = |failure: &TransferFailure| {
            matches!(failure, TransferFailure::Status { status: StatusCode::CONFLICT, .. })
        };
        let failure = match self.put(&transfer, feed).await? {
            Ok(()) => return feed.sums().await,
            Err(failure) => failure,
        };
        let parent = url.path.trim_end_matches('/').rsplit_once('/').map_or("", |(parent, _)| parent);
        if !is_conflict(&failure) || parent.is_empty() {
            return Err(self.failed(&transfer, feed, failure));
        }
        let files = copier.client.file_system(url);
        let made = async { files.mkdir_all(parent, 0o755).await.map_err(CopyError::target) };
        unless_stopped(watch, made).await?;
        match self.put(&transfer, feed).await? {
            Ok(()) => feed.sums().await,
            Err(failure) => Err(self.failed(&transfer, feed, failure)),
        }
    }

    /// Makes the request, and ends it if the source fails or nothing moves.
    async fn put(
        &self,
        transfer: &UrlTransfer,
        feed: &Arc<UploadFeed>,
    ) -> Result<Result<(), TransferFailure>, CopyError> {
        let mut headers = HeaderMap::new();
        if !self.options.force {
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        // `run` has refused a source without a size.
        let (source, size) = (feed.source(), feed.size.unwrap_or(0));
        tokio::select! {
            biased;
            () = self.watch.cancelled() => Err(CopyError::Cancelled),
            error = feed.failed() => Err(error),
            error = feed.too_slow() => Err(error),
            done = transfer.transfer().put(headers, size, &source) => Ok(done),
            seconds = feed.overdue() => {
                let error = transfer.error_of(Cause::TimedOut(seconds)).uncertain(true);
                Err(CopyError::target(error))
            }
        }
    }

    fn failed(&self, transfer: &UrlTransfer, feed: &UploadFeed, failure: TransferFailure) -> CopyError {
        match failure {
            TransferFailure::Status { status: StatusCode::PRECONDITION_FAILED, .. }
                if !self.options.force =>
            {
                CopyError::Exists(self.url.to_string())
            }
            failure => {
                let is_refused = matches!(failure, TransferFailure::Status { .. });
                feed.is_refused.store(is_refused, Ordering::Relaxed);
                // The server may have stored a file of which it has all bytes.
                let is_lost = matches!(failure, TransferFailure::Cause(Cause::Lost(_)));
                CopyError::target(transfer.error(failure).uncertain(is_lost && feed.is_sent()))
            }
        }
    }
}

/// Reports whether two looks have found the same version of a file.
fn is_unchanged(one: &StatInfo, other: &StatInfo) -> bool {
    (one.size, one.mtime, one.id) == (other.size, other.mtime, other.id)
}

/// Reports whether an upload that has failed in this way can have left a part of the file.
fn leaves_part(error: &CopyError) -> bool {
    match error {
        CopyError::Exists(_) => false,
        CopyError::Remote { side: Side::Target, error } => {
            let is_broken_off = match error.cause() {
                // The latter is also a success before the end of the file.
                Cause::Lost(_) | Cause::TimedOut(_) | Cause::BadAnswer(_) => true,
                _ => false,
            };
            is_broken_off && !error.is_uncertain()
        }
        _ => true,
    }
}
