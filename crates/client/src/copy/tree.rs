//! Copies of many files: directories, patterns, lists.
//!
//! Directories are walked while `parallel` copies the first files already.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use super::Copier;
use super::failure::CopyError;
use super::nested::TargetPath;
use super::options::{CopyDone, CopyJob, CopyOptions, Progress, Watch};
use super::parallel::{ParallelCopies, Tally};
use super::place::Place;
use crate::abort_on_drop::AbortOnDrop;
use crate::walk::{Directory, Tree, Walk};

/// Default number of concurrent copies.
pub const PARALLEL: usize = 64;
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

impl CopyAll {
    /// Copies the files while it finds them.
    pub(super) async fn run(
        &self,
        copier: &Copier,
        listener: Arc<dyn CopyListener>,
        watch: &Watch,
    ) -> Result<Tally, CopyError> {
        let (found, jobs) = mpsc::channel(KNOWN_MAX);
        let finder = Finder {
            copier: copier.clone(),
            listener: listener.clone(),
            found,
            recursive: self.recursive,
            options: self.options.clone(),
            failed: AtomicU64::new(0),
        };
        let finding = AbortOnDrop::spawn(finder.run(self.sources.clone(), self.target.clone()));
        let copies = ParallelCopies::new(copier, &self.options, listener, watch);
        let mut tally = copies.run(jobs, self.parallel).await?;
        tally.failed += finding.join().await.unwrap_or(Err(CopyError::Cancelled))?;
        Ok(tally)
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
