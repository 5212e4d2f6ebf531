//! Copies of many files: directories, patterns, lists.
//!
//! Directories are walked while the first files are copied already. The number of concurrent copies
//! and their memory are limited: many small files, few large ones.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use wire::xroot::ErrorCode;

use super::Copier;
use super::failure::{CopyError, Side};
use super::nested::TargetPath;
use super::options::{CopyDone, CopyJob, CopyOptions, Progress, Watch};
use super::place::Place;
use super::publish::create_directories;
use crate::abort_on_drop::AbortOnDrop;
use crate::walk::{Directory, Tree, Walk};

/// Default number of concurrent copies.
pub const PARALLEL: usize = 64;
/// Memory for the chunks of all concurrent copies.
const MEMORY_BYTES: usize = 64 * 1024 * 1024;
/// Unit of that memory.
const PERMIT_BYTES: usize = 64 * 1024;
/// Maximum number of files that are found and not started.
pub(super) const KNOWN_MAX: usize = 1024;

/// A copy of several sources.
#[derive(Clone, Debug)]
pub struct CopyAll {
    /// The sources; paths at servers may contain wildcards.
    pub sources: Vec<Place>,
    /// The target.
    pub target: Place,
    /// Set to copy directories with everything below.
    pub recursive: bool,
    /// Maximum number of concurrent copies.
    pub parallel: usize,
    /// The options for each file.
    pub options: CopyOptions,
}

/// Receives the progress of copies. Calls come from any thread.
pub trait CopyListener: Send + Sync {
    /// Another file to copy was found; its size is included if known.
    fn found(&self, _job: &CopyJob) {}
    /// A copy has begun.
    fn began(&self, _job: &CopyJob) {}
    /// A copy has made progress.
    fn progress(&self, _job: &CopyJob, _progress: Progress) {}
    /// A copy has ended.
    fn ended(&self, job: &CopyJob, result: &Result<CopyDone, CopyError>);
    /// A fact that the user may need to know.
    fn note(&self, _text: &str) {}
    /// A directory could not be read, or a source does not exist.
    fn missed(&self, error: &CopyError);
}

/// Ignores all events.
impl CopyListener for () {
    fn ended(&self, _: &CopyJob, _: &Result<CopyDone, CopyError>) {}
    fn missed(&self, _: &CopyError) {}
}

/// The numbers of copied and failed files.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Number of files copied.
    pub copied: u64,
    /// Number of bytes copied.
    pub bytes: u64,
    /// Number of files and directories that failed.
    pub failed: u64,
}

impl Copier {
    /// Copies files and directories. Failures are reported to `listener`, and the other copies
    /// continue.
    ///
    /// # Errors
    /// [`CopyError`] if there is nothing that could be copied, or the copies were cancelled.
    pub async fn copy_all(
        &self,
        all: &CopyAll,
        listener: Arc<dyn CopyListener>,
        watch: &Watch,
    ) -> Result<Tally, CopyError> {
        let (found, jobs) = mpsc::channel(KNOWN_MAX);
        let walk = Finder {
            copier: self.clone(),
            listener: listener.clone(),
            found,
            recursive: all.recursive,
            options: all.options.clone(),
            failed: AtomicU64::new(0),
        };
        let walking = AbortOnDrop::spawn(walk.run(all.sources.clone(), all.target.clone()));
        let mut tally = self.copy_found(jobs, &all.options, all.parallel, listener, watch).await?;
        tally.failed += walking.join().await.unwrap_or(Err(CopyError::Cancelled))?;
        Ok(tally)
    }

    /// Creates a directory and its missing ancestors. With `sync`, local ones survive a loss of
    /// power.
    ///
    /// # Errors
    /// [`CopyError`].
    pub async fn make_directory(&self, place: &Place, sync: bool) -> Result<(), CopyError> {
        match place {
            Place::Local(path) => {
                let path = path.clone();
                let create = move || create_directories(&path, sync);
                self.disk.run(create).await.unwrap_or(Err(CopyError::Cancelled))
            }
            Place::Remote(url) => {
                let made = self.client.file_system(url).mkdir_all(&url.path, 0o755).await;
                made.map_err(CopyError::target)
            }
            Place::Stream => Ok(()),
        }
    }

    /// Copies files as they are found.
    pub(super) async fn copy_found(
        &self,
        mut jobs: mpsc::Receiver<CopyJob>,
        options: &CopyOptions,
        parallel: usize,
        listener: Arc<dyn CopyListener>,
        watch: &Watch,
    ) -> Result<Tally, CopyError> {
        let memory = Arc::new(Semaphore::new(MEMORY_BYTES / PERMIT_BYTES));
        let mut running = JoinSet::new();
        let mut tally = Tally::default();
        let full = Arc::new(FullServers::default());
        loop {
            let room = running.len() < parallel.max(1);
            tokio::select! {
                biased;
                () = watch.cancelled() => break,
                Some(ended) = running.join_next(), if !running.is_empty() => tally.count(ended.ok()),
                job = jobs.recv(), if room => match job {
                    Some(job) => match full.refusal(&job) {
                        Some(error) => {
                            listener.ended(&job, &Err(error));
                            tally.count(None);
                        }
                        None => {
                            let (options, listener) = (options.clone(), listener.clone());
                            let (watch, memory, full) = (watch.clone(), memory.clone(), full.clone());
                            running.spawn(self.clone().one(job, options, listener, watch, memory, full));
                        }
                    },
                    None => break,
                },
            }
        }
        while let Some(ended) = running.join_next().await {
            tally.count(ended.ok());
        }
        if watch.is_cancelled() { Err(CopyError::Cancelled) } else { Ok(tally) }
    }

    /// Copies one file once there is memory for it.
    async fn one(
        self,
        job: CopyJob,
        options: CopyOptions,
        listener: Arc<dyn CopyListener>,
        watch: Watch,
        memory: Arc<Semaphore>,
        full: Arc<FullServers>,
    ) -> Option<u64> {
        let most = options.chunk_bytes * options.chunks;
        let bytes = job.size.and_then(|size| usize::try_from(size).ok()).map_or(most, |size| size.min(most));
        let permits = bytes.div_ceil(PERMIT_BYTES).clamp(1, MEMORY_BYTES / PERMIT_BYTES);
        let _memory = tokio::select! {
            permits = memory.acquire_many(u32::try_from(permits).unwrap_or(1)) => permits.ok()?,
            () = watch.cancelled() => return None,
        };
        listener.began(&job);
        let told = {
            let (listener, job) = (listener.clone(), job.clone());
            watch.child(move |progress| listener.progress(&job, progress))
        };
        let result = self.copy(&job, &options, &told).await;
        if let Err(error) = &result {
            full.note(&job, error);
        }
        listener.ended(&job, &result);
        result.ok().map(|done| done.copied)
    }
}

/// Servers without space for the uploads of one command: the smallest size that each had no space
/// for. A file of that size or more is not begun there. Servers of a cluster do not count, because
/// its manager may choose another one for the next file.
#[derive(Default)]
struct FullServers(Mutex<HashMap<String, u64>>);

impl FullServers {
    /// Returns the error of a copy that would find no space.
    fn refusal(&self, job: &CopyJob) -> Option<CopyError> {
        let server = job.target.url()?.authority();
        let sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let too_large = sizes.get(&server).is_some_and(|least| job.size.is_some_and(|size| size >= *least));
        too_large.then(|| CopyError::Full { target: job.target.to_string(), server })
    }

    /// Records a failed copy.
    fn note(&self, job: &CopyJob, error: &CopyError) {
        let CopyError::Remote { side: Side::Target, error } = error else { return };
        let (Some(url), Some(size)) = (job.target.url(), job.size) else { return };
        let server = url.authority();
        let is_full = matches!(error.code(), Some(ErrorCode::NO_SPACE | ErrorCode::OVER_QUOTA));
        if is_full && error.failure().server.as_ref().is_none_or(|at| *at == server) {
            let mut sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let least = sizes.entry(server).or_insert(size);
            *least = size.min(*least);
        }
    }
}

impl Tally {
    fn count(&mut self, ended: Option<Option<u64>>) {
        match ended.flatten() {
            Some(bytes) => {
                self.copied += 1;
                self.bytes += bytes;
            }
            None => self.failed += 1,
        }
    }
}

/// Finds the files to copy.
struct Finder {
    copier: Copier,
    listener: Arc<dyn CopyListener>,
    found: mpsc::Sender<CopyJob>,
    recursive: bool,
    options: CopyOptions,
    /// Files and directories that cannot be copied.
    failed: AtomicU64,
}

/// The kind of a source.
enum FoundKind {
    File(Option<u64>),
    Directory,
}

impl Finder {
    /// Returns the number of files and directories that cannot be copied.
    async fn run(self, sources: Vec<Place>, target: Place) -> Result<u64, CopyError> {
        let mut each = Vec::new();
        for source in sources {
            match self.expand(source).await {
                Ok(found) => each.extend(found),
                Err(error) => self.miss(&error),
            }
        }
        let into = self.is_directory(&target).await?;
        if each.len() > 1 && !into && !target.ends_with_slash() {
            let text = format!(
                "{target} is not a directory, but several files were named; create it, or end it with /"
            );
            return Err(CopyError::Usage(text));
        }
        if !into && target.ends_with_slash() && !each.is_empty() {
            // Servers create directories themselves.
            self.create_directory(&target, false).await?;
        }
        let several = each.len() > 1;
        for source in each {
            let result = self.source(source, &target, into, several).await;
            if let Err(error) = result {
                self.miss(&error);
            }
        }
        Ok(self.failed.load(Ordering::Relaxed))
    }

    fn miss(&self, error: &CopyError) {
        self.listener.missed(error);
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    async fn source(
        &self,
        source: Place,
        target: &Place,
        into: bool,
        several: bool,
    ) -> Result<(), CopyError> {
        let kind = if self.recursive { self.kind(&source).await? } else { FoundKind::File(None) };
        let below = into || several || (target.ends_with_slash() && matches!(kind, FoundKind::File(_)));
        // A member uses the last component of its own name.
        let named = self.options.member_of(&source).map(|member| Place::Local(member.into()).name());
        let mut name = named.unwrap_or_else(|| source.name());
        if below && self.options.member_of(&source).is_none() {
            // An unreadable file is reported when it is copied.
            let metalink = self.copier.metalink(&source, &self.options).await.ok().flatten();
            name = metalink.and_then(|metalink| metalink.name).map(|name| name.as_str().into()).or(name);
        }
        let target = match name {
            Some(name) if below && *target != Place::Stream => joined(target, &name)?,
            None if below => {
                return Err(CopyError::Usage(format!(
                    "{source} has no name of its own; name the target file"
                )));
            }
            _ => target.clone(),
        };
        match kind {
            FoundKind::File(size) => self.file(CopyJob { source, target, size }).await,
            FoundKind::Directory => self.directory(source, target).await?,
        }
        Ok(())
    }

    async fn file(&self, job: CopyJob) {
        self.listener.found(&job);
        // The receiver is gone if the copies were cancelled.
        self.found.send(job).await.ok();
    }

    /// Finds all files below a directory.
    async fn directory(&self, source: Place, target: Place) -> Result<(), CopyError> {
        self.copier.not_nested(&source, &target).await?;
        let tree = Tree::at(&self.copier.client, &self.copier.disk, &source, &target).await;
        let mut walk = Walk::through(tree.map_err(CopyError::source)?.exact());
        let mut target_path = TargetPath::between(&self.copier, &source, &target).await;
        while let Some(mut directory) = walk.next().await {
            let to = target.below(&directory.path);
            let is_empty = directory.items.is_empty();
            let made = match directory.is_complete || !is_empty {
                true => self.create_directory(&to, is_empty).await,
                false => Ok(()),
            };
            match made {
                Ok(()) => {
                    let numbers = self.outside(&directory, &to, &mut target_path).await;
                    walk.enter(&mut directory, &numbers);
                }
                Err(error) => {
                    self.miss(&error);
                    continue;
                }
            }
            for unknown in &directory.unknown {
                self.miss(&CopyError::source(unknown.error.clone()));
            }
            for item in directory.items.iter().filter(|item| !item.is_directory) {
                let (source, target) = (directory.child(&item), to.join(&item.name));
                self.file(CopyJob { source, target, size: Some(item.size) }).await;
                if self.found.is_closed() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns the subdirectories that do not lead to the place to which they are copied.
    async fn outside(&self, directory: &Directory, to: &Place, target_path: &mut TargetPath) -> Vec<u32> {
        let mut numbers = Vec::new();
        for item in directory.directories() {
            let (source, to) = (directory.child(&item), to.join(&item.name));
            match target_path.check(&self.copier, &source, item.server_number(), &to).await {
                Ok(()) => numbers.push(item.number()),
                Err(error) => {
                    self.miss(&error);
                }
            }
        }
        numbers
    }

    /// Creates a directory. At a server only an empty one, because servers create the others with
    /// the first file in them.
    async fn create_directory(&self, target: &Place, is_empty: bool) -> Result<(), CopyError> {
        if matches!(target, Place::Remote(_)) && !is_empty {
            return Ok(());
        }
        self.copier.make_directory(target, self.options.sync).await
    }

    async fn is_directory(&self, place: &Place) -> Result<bool, CopyError> {
        match place {
            Place::Local(path) => {
                let path = path.clone();
                Ok(self.copier.disk.run(move || path.is_dir()).await.unwrap_or(false))
            }
            Place::Remote(url) => {
                let files = self.copier.client.file_system(url);
                files.is_dir(&url.path).await.map_err(CopyError::target)
            }
            Place::Stream => Ok(false),
        }
    }

    async fn kind(&self, place: &Place) -> Result<FoundKind, CopyError> {
        match place {
            Place::Local(path) => {
                let path = path.clone();
                let look = move || match std::fs::metadata(&path) {
                    Ok(meta) if meta.is_dir() => Ok(FoundKind::Directory),
                    Ok(meta) => Ok(FoundKind::File(meta.is_file().then_some(meta.len()))),
                    Err(error) => Err(CopyError::local("stat", &path, &error)),
                };
                self.copier.disk.run(look).await.unwrap_or(Err(CopyError::Cancelled))
            }
            Place::Remote(url) => {
                let stat = self.copier.client.file_system(url).stat(&url.path).await;
                let stat = stat.map_err(CopyError::source)?;
                Ok(if stat.is_dir() { FoundKind::Directory } else { FoundKind::File(Some(stat.size)) })
            }
            Place::Stream => Ok(FoundKind::File(None)),
        }
    }

    /// Expands a path with wildcards.
    async fn expand(&self, place: Place) -> Result<Vec<Place>, CopyError> {
        let Place::Remote(url) = &place else { return Ok(vec![place]) };
        let found =
            self.copier.client.file_system(url).matching(&url.path).await.map_err(CopyError::source)?;
        for error in found.failed {
            self.miss(&CopyError::source(error));
        }
        Ok(found.paths.into_iter().map(|path| Place::Remote(url.at(path))).collect())
    }
}

/// Returns the place of an entry.
fn joined(directory: &Place, name: &OsStr) -> Result<Place, CopyError> {
    directory.join_os(name).map_err(|why| CopyError::name(directory, name.to_string_lossy(), why))
}
