//! The copy of one file: opens, moves the bytes, verifies and publishes the target.
//!
//! It joins the parts in the neighbouring files, and repeats them when a copy may be retried.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::Copier;
use super::attributes;
use super::checks::Checks;
use super::failure::CopyError;
use super::local::LocalTarget;
use super::local_source::LocalId;
use super::metadata::PreservedMetadata;
use super::object_target::ObjectCopy;
use super::opening::{remove_own, unless_stopped};
use super::options::{CopyDone, CopyJob, CopyOptions, Progress, ThirdParty, Watch};
use super::place::Place;
use super::pump::Pump;
use super::repair::Repair;
use super::source::{SourceKind, SourceReader};
use super::target::CopyTarget;
use super::third::{ThirdPartyRefusal, ThirdPartyTransfer};
use super::web_source;
use super::web_target::WebUpload;
use crate::failure::{Cause, Error};
use crate::url::{Scheme, Url};

/// Returns the metadata of the source that the target gets.
fn kept(of_source: Option<PreservedMetadata>, options: &CopyOptions) -> Option<PreservedMetadata> {
    match (options.preserve, options.times) {
        (true, _) => of_source,
        (false, true) => of_source.map(|kept| PreservedMetadata { mode: None, ..kept }),
        (false, false) => None,
    }
}

/// Refuses options that contradict the places of a copy.
fn check_options(job: &CopyJob, options: &CopyOptions) -> Result<(), CopyError> {
    if matches!((&job.source, &job.target), (Place::Stream, _) | (_, Place::Stream)) && options.resume {
        return Err(CopyError::Usage("a stream cannot be continued".to_owned()));
    }
    if options.zip_append && (job.target.url().is_none() || options.force || options.resume) {
        let text = "a member is added to an archive at a server, which is neither overwritten nor continued";
        return Err(CopyError::Usage(text.to_owned()));
    }
    Ok(())
}

/// Returns the parts of the path of a URL that count in requests of HTTP.
fn parts_of(url: &Url) -> impl Iterator<Item = &str> {
    url.path.split('/').filter(|part| !matches!(*part, "" | "."))
}

/// Returns the key of an object.
fn key_of(url: &Url) -> &str {
    url.path.strip_prefix('/').unwrap_or(&url.path)
}

/// The copy of one file, which is retried after temporary failures.
#[derive(Clone, Copy)]
pub(super) struct FileCopy<'a> {
    pub(super) copier: &'a Copier,
    pub(super) job: &'a CopyJob,
    pub(super) options: &'a CopyOptions,
    /// Receives the progress, and can stop the copy.
    pub(super) watch: &'a Watch,
}

impl FileCopy<'_> {
    /// Copies the file within the deadline of a copy, once it may open its local files.
    pub(super) async fn run(&self) -> Result<CopyDone, CopyError> {
        let own_files = async { self.copier.descriptors.of(self.job).await.ok_or(CopyError::Cancelled) };
        let _own_files = unless_stopped(self.watch, own_files).await?;
        let begun = Instant::now();
        let seconds = self.copier.client.settings().cp_timeout;
        let made = if seconds == 0 {
            // Boxed because a large value that is used twice in a future would be on the stack
            // twice.
            Box::pin(self.attempts()).await
        } else {
            Box::pin(self.within(Duration::from_secs(seconds))).await
        };
        made.map(|done| CopyDone { time: begun.elapsed(), ..done })
    }

    /// Copies one file, or stops at its deadline.
    async fn within(&self, limit: Duration) -> Result<CopyDone, CopyError> {
        let told = self.watch.clone();
        let own = Watch::new(move |Progress { done, total }| told.tell(done, total));
        let cancellable = FileCopy { watch: &own, ..*self };
        let mut work = Box::pin(cancellable.attempts());
        let is_late = tokio::select! {
            made = &mut work => return made,
            () = self.watch.cancelled() => false,
            () = tokio::time::sleep(limit) => true,
        };
        own.cancel();
        match work.await {
            Err(CopyError::Cancelled) if is_late => {
                let late = Cause::TimedOut(limit.as_secs());
                Err(CopyError::source(Error::new("copy", &self.job.source, late)))
            }
            made => made,
        }
    }

    /// Refuses a copy of a file onto itself, because writing from the start would destroy the
    /// source. The open files are compared again before the target is truncated.
    async fn not_onto_itself(&self) -> Result<(), CopyError> {
        let job = self.job;
        let is_same = match (&job.source, &job.target) {
            (Place::Local(source), Place::Local(target)) => {
                let (source, target) = (source.clone(), target.clone());
                let look = move || match (std::fs::metadata(source), std::fs::metadata(target)) {
                    (Ok(a), Ok(b)) => a.is_file() && LocalId::of(&a) == LocalId::of(&b),
                    _ => false,
                };
                self.copier.disk.run(look).await.unwrap_or(false)
            }
            (Place::Remote(source), Place::Remote(target)) => {
                let is_same_path = match source.scheme {
                    // The first slash is not part of a key.
                    Scheme::S3 => key_of(source) == key_of(target),
                    // They are requested alike.
                    Scheme::Http | Scheme::Https => parts_of(source).eq(parts_of(target)),
                    _ => source.path == target.path,
                };
                source.authority().eq_ignore_ascii_case(&target.authority())
                    && is_same_path
                    && self.options.member_of(&job.source).is_none()
            }
            _ => false,
        };
        match is_same {
            true => Err(CopyError::Usage(format!("{} and {} are the same file", job.source, job.target))),
            false => Ok(()),
        }
    }

    /// Copies one file and retries it after temporary failures, as often as the options allow.
    async fn attempts(&self) -> Result<CopyDone, CopyError> {
        self.not_onto_itself().await?;
        let mut options = self.options.clone();
        let mut attempts = 0;
        loop {
            let made = FileCopy { options: &options, ..*self }.attempt().await;
            match made {
                Ok(done) => return Ok(done),
                Err(error)
                    if error.is_transient() && attempts < options.retries && !self.watch.is_cancelled() =>
                {
                    attempts += 1;
                }
                Err(error) => return Err(error),
            }
            // `CpRetryPolicy` decides between continuing and restarting.
            if !options.resume {
                let policy = &self.copier.client.settings().cp_retry_policy;
                options.resume = policy.eq_ignore_ascii_case("continue");
                options.recorded_only = options.resume;
            }
        }
    }

    /// Copies the file once: between the servers, or through this client.
    async fn attempt(&self) -> Result<CopyDone, CopyError> {
        let Self { copier, job, options, watch } = *self;
        check_options(job, options)?;
        web_source::check_options(job, options)?;
        // Servers copy only whole files from each other.
        let mut member = options.zip_append || options.member_of(&job.source).is_some();
        if options.third_party != ThirdParty::Never && !member {
            member = unless_stopped(watch, Box::pin(copier.metalink(&job.source, options))).await?.is_some();
        }
        match options.third_party {
            ThirdParty::Only if member => {
                let text =
                    "servers copy files from each other, not members of archives or what metalinks name";
                return Err(CopyError::Usage(text.to_owned()));
            }
            ThirdParty::Never => {}
            ThirdParty::First if member => {}
            ThirdParty::Only => {
                let copied = Box::pin(ThirdPartyTransfer { copier, job, options, watch }.run()).await;
                return copied.map_err(ThirdPartyRefusal::into_error);
            }
            ThirdParty::First => {
                match Box::pin(ThirdPartyTransfer { copier, job, options, watch }.run()).await {
                    Ok(done) => return Ok(done),
                    Err(ThirdPartyRefusal::Failed(error)) => return Err(error),
                    // Fallback: the bytes pass through this client.
                    Err(ThirdPartyRefusal::Cannot(CopyError::Cancelled)) => return Err(CopyError::Cancelled),
                    Err(ThirdPartyRefusal::Cannot(_)) => {}
                }
            }
        }
        self.transfer().await
    }

    /// Copies the file through this client.
    async fn transfer(&self) -> Result<CopyDone, CopyError> {
        let Self { copier, job, options, watch } = *self;
        // Each step has a box of its own that is freed after it, because thousands of copies hold
        // the memory of the transfer step only.
        let source =
            unless_stopped(watch, Box::pin(SourceReader::open(copier, &job.source, options))).await?;
        if let Some(url) = job.target.url() {
            if url.is_http() {
                let upload = WebUpload { copier, job, options, watch, url };
                if url.is_object() {
                    return Box::pin(ObjectCopy(upload).run(source)).await;
                }
                return Box::pin(upload.run(source)).await;
            }
            if options.force {
                unless_stopped(watch, Box::pin(web_source::not_the_source(copier, &source, url))).await?;
            }
        }
        if let (Some(size), Place::Local(path)) = (source.size, &job.target)
            && size <= options.chunk_bytes as u64
            && options.checksums.is_empty()
            && !options.resume
            && !options.attributes
            && options.rate.is_none()
            && source.known.is_empty()
        {
            let length = usize::try_from(size).unwrap_or(0);
            let data = match size {
                0 => Bytes::new(),
                _ => unless_stopped(watch, Box::pin(source.read(0, length))).await?,
            };
            return Box::pin(self.small(source, path.clone(), data)).await;
        }
        let begin = Box::pin(Checks::begin(copier, &source, &job.target, options));
        let mut checks = unless_stopped(watch, begin).await?;
        let attributes = if options.attributes {
            unless_stopped(watch, Box::pin(attributes::of_source(copier, &source))).await?
        } else {
            Vec::new()
        };
        let (target, from) = Box::pin(CopyTarget::open(copier, &job.target, &source, options, watch)).await?;
        let flow = self.flow(source, target, from, &mut checks);
        let (done, at) = Box::pin(flow).await?;
        Box::pin(attributes::set(copier, &job.target, at.as_ref(), attributes)).await?;
        Ok(done)
    }

    /// Copies a small local source that was read completely, with one visit to the disk pool.
    async fn small(
        &self,
        source: SourceReader,
        path: std::path::PathBuf,
        data: Bytes,
    ) -> Result<CopyDone, CopyError> {
        let size = data.len() as u64;
        let (kept, id) = (kept(source.kept, self.options), source.local_id());
        let options = self.options.clone();
        let write = move || {
            let (mut target, _) = LocalTarget::create(&path, &options, id)?;
            target.write(0, &data)?;
            target.finish(size, kept)
        };
        self.copier.disk.run(write).await.unwrap_or(Err(CopyError::Cancelled))?;
        self.watch.advance(size, Some(size));
        Ok(CopyDone::of(size, size))
    }

    /// Moves the bytes from byte `from` on, verifies them and publishes the target. Returns also
    /// its URL if it is at a server.
    async fn flow(
        &self,
        source: SourceReader,
        target: CopyTarget,
        from: u64,
        checks: &mut Checks,
    ) -> Result<(CopyDone, Option<Url>), CopyError> {
        let Self { copier, job, options, watch } = *self;
        let (size, kept) = (source.size, kept(source.kept, options));
        let ordered = options.resume || !matches!(source.from, SourceKind::Many(_));
        let flow = target.into_flow(copier, from, checks.sums(), ordered, options);
        let (into, ending) = Box::pin(flow).await?;
        let ends_with_hole = Box::pin(source.extents(from)).await.last().map(|extent| extent.end) != size;
        let pump = Box::pin(Pump::new(source, into, from, options, watch.clone())).await;
        let run = async {
            unless_stopped(watch, Box::pin(pump.sum_up(from))).await?;
            let lanes = match &pump.source.from {
                SourceKind::Many(sources) => sources.lanes(),
                _ => options.chunks,
            };
            pump.run(lanes).await
        };
        let size = match run.await {
            Ok(size) => size,
            Err(error) => {
                Box::pin(ending.give_up(copier, pump.whole_to(), options)).await;
                return Err(error);
            }
        };
        let copied = pump.copied();
        let mut written = Box::pin(ending.written(copier, size)).await?;
        let verified = async {
            checks.hear().await?;
            let SourceKind::Many(sources) = &pump.source.from else {
                return checks.verify_source(&job.source, &written.sums);
            };
            let (source, chunk_bytes) = (&job.source, options.chunk_bytes);
            let repair = Repair { copier, sources, checks, source, size, chunk_bytes };
            repair.verify(&mut written).await
        };
        let mut checksums = match unless_stopped(watch, Box::pin(verified)).await {
            Ok(told) => told,
            Err(error) => {
                Box::pin(written.discard(copier, options)).await;
                return Err(error);
            }
        };
        let shares = match &pump.source.from {
            SourceKind::Many(sources) => sources.shares(),
            _ => Vec::new(),
        };
        let (sums, own) = (written.sums.clone(), written.identity());
        let at = Box::pin(written.finish(copier, size, ends_with_hole, kept)).await?;
        let verified = Box::pin(checks.verify_target(copier, &job.target, at.as_ref(), &sums));
        match unless_stopped(watch, verified).await {
            Ok(told) => checksums.extend(told),
            Err(error) => {
                if let (Some(at), CopyError::Checksum { .. }) = (&at, &error) {
                    remove_own(&copier.client, at, own.as_ref()).await;
                }
                return Err(error);
            }
        }
        Ok((CopyDone { checksums, shares, ..CopyDone::of(size, copied) }, at))
    }
}
