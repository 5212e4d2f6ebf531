//! Copies files between this machine and servers, between servers, from standard input and to
//! standard output.
//!
//! ```text
//! let copier = Copier::new(&client);
//! let (source, target) = (Place::parse("root://host//file")?, Place::parse("file")?);
//! let job = CopyJob { source, target, size: None };
//! let done = copier.copy(&job, &CopyOptions::of(client.settings()), &Watch::default()).await?;
//! ```
//!
//! | file | content |
//! |---|---|
//! | `mod` | [`Copier`] |
//! | `tree` | [`CopyAll`]: directories, patterns, several sources |
//! | `parallel` | concurrent copies of many files; [`Tally`] |
//! | `sync` | [`DirectorySync`]: synchronization of directories |
//! | `comparison` | the comparison of two trees |
//! | `surplus` | removal of the entries that only the target of a synchronization has |
//! | `away` | the check that no server of a cluster is away |
//! | `equal` | the test whether a file need not be copied |
//! | `nested` | the test whether one directory is inside another |
//! | `third`, `third_web` | copies from server to server; by servers of HTTP |
//! | `pattern` | wildcards |
//! | `job` | one copy from the open to the final name |
//! | `checks` | checksums of both ends |
//! | `place` | [`Place`]: the source or target of a copy |
//! | `options` | [`CopyOptions`], [`CopyJob`], [`CopyDone`], [`Watch`] |
//! | `failure` | [`CopyError`] |
//! | `source`, `target` | the two ends of a copy |
//! | `overwrite` | opens of new and replaced files at servers; never of the source |
//! | `opening` | cancellation of an open, and removal of the new file |
//! | `member`, `archived` | a member of a ZIP archive as source, and as target |
//! | `mirrored` | a metalink as source |
//! | `rate` | [`Rate`]: limits of the rate |
//! | `attributes` | extended attributes that are copied |
//! | `local_source`, `local` | files of this machine as sources and as targets |
//! | `web_source`, `web_target` | files of HTTP servers as sources and as targets |
//! | `upload_feed` | the source of such an upload |
//! | `object_target` | objects of object stores as targets |
//! | `holes` | zeros that become holes |
//! | `metadata` | times and permission bits that a copy preserves |
//! | `publish` | naming of complete files and directories of this machine |
//! | `removed` | syncs after removals on this machine |
//! | `continued` | completion of an earlier copy |
//! | `note`, `upload_note` | the record about a part, and about an upload |
//! | `pump` | chunks in flight |
//! | `sequence` | processing in the order of the file |
//! | `multi_source`, `shares` | several sources of one file, and their shares |
//! | `provenance`, `sample`, `checksum_vote`, `repair` | untrusted sources: detection and repair |
//! | `disk`, `descriptors` | threads for blocking calls; the limit of open files |

mod archived;
mod attributes;
mod away;
mod checks;
mod checksum_vote;
mod comparison;
mod continued;
mod descriptors;
pub(crate) mod disk;
mod equal;
mod failure;
mod holes;
mod job;
mod local;
mod local_source;
mod member;
mod metadata;
mod mirrored;
mod multi_source;
mod nested;
mod note;
mod object_target;
mod opening;
mod options;
mod overwrite;
mod parallel;
mod pattern;
mod place;
mod provenance;
mod publish;
mod pump;
mod rate;
mod removed;
mod repair;
mod sample;
mod sequence;
mod shares;
mod source;
mod surplus;
mod sync;
mod target;
mod third;
mod third_web;
mod tree;
mod upload_feed;
mod upload_note;
mod web_source;
mod web_target;

use std::sync::Arc;

use crate::client::Client;
use crate::metalink::Metalink;
use crate::walk::Tree;
use descriptors::Descriptors;
use disk::DiskThreads;
use job::FileCopy;
use mirrored::MetalinkDocument;
use nested::NestingCheck;
use object_target::ObjectPartMemory;
use publish::create_directories;
use sync::SyncRun;

pub use equal::{Equal, Reason};
pub use failure::{CopyError, Side};
pub use multi_source::SOURCES_MAX;
pub use nested::TargetPath;
pub use options::{
    Against, ChecksumWish, CopyDelegation, CopyDone, CopyJob, CopyOptions, Progress, Share, ThirdParty, Watch,
};
pub use parallel::Tally;
pub use pattern::{has_wildcard, matches};
pub use place::Place;
pub use rate::Rate;
pub use sync::{DirectorySync, SyncStep};
pub use tree::{CopyAll, CopyListener, PARALLEL};
pub use web_source::checksum_by_reading;

/// Copies files. Clones share connections, memory, threads and the limit of open files. If the
/// limit of the process (`ulimit -n` at the creation of this object) does not allow all copies of
/// local files, they wait for their turn.
#[derive(Clone)]
pub struct Copier {
    client: Client,
    disk: DiskThreads,
    descriptors: Descriptors,
    part_memory: ObjectPartMemory,
}

impl std::fmt::Debug for Copier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Copier")
    }
}

impl Copier {
    /// Creates a copier that uses the connections of `client`.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        let disk = DiskThreads::start(DiskThreads::threads(client.settings()));
        let descriptors = Descriptors::of_process();
        Self { client: client.clone(), disk, descriptors, part_memory: ObjectPartMemory::default() }
    }

    /// Copies one file. `watch` receives the progress and can stop the copy.
    ///
    /// # Errors
    /// [`CopyError`]. No target that looks complete remains then, unless `options` request it.
    pub async fn copy(
        &self,
        job: &CopyJob,
        options: &CopyOptions,
        watch: &Watch,
    ) -> Result<CopyDone, CopyError> {
        FileCopy { copier: self, job, options, watch }.run().await
    }

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
        all.run(self, listener, watch).await
    }

    /// Makes `sync.target` equal to `sync.source`. `tell` is called for each copy before it begins,
    /// and for each removal.
    ///
    /// # Errors
    /// [`CopyError`] if one of the directories cannot be read, or the synchronization was
    /// cancelled. Failures of single files are reported to `listener`.
    pub async fn sync(
        &self,
        sync: &DirectorySync,
        tell: impl Fn(&SyncStep),
        listener: Arc<dyn CopyListener>,
        watch: &Watch,
    ) -> Result<Tally, CopyError> {
        SyncRun { copier: self, sync, tell: &tell, listener: &listener, watch }.run().await
    }

    /// Reads the metalink at this place; `None` if `options` disable metalinks or the name has
    /// another suffix.
    ///
    /// # Errors
    /// [`CopyError`].
    pub async fn metalink(
        &self,
        place: &Place,
        options: &CopyOptions,
    ) -> Result<Option<Metalink>, CopyError> {
        match MetalinkDocument::at(self, place).filter(|_| options.metalinks) {
            Some(document) => document.read().await.map(Some),
            None => Ok(None),
        }
    }

    /// Refuses a directory `inner` that is equal to `outer` or inside it, under any name.
    ///
    /// # Errors
    /// [`CopyError`] because a copy from `outer` to `inner` would copy its own results.
    pub async fn not_nested(&self, outer: &Place, inner: &Place) -> Result<(), CopyError> {
        NestingCheck { copier: self, outer, inner }.run().await
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

    /// Creates a walk tree for a directory of this machine that is copied to `target`.
    #[must_use]
    pub fn tree_here(&self, path: &std::path::Path, target: &Place) -> Tree {
        Tree::here(&self.client, &self.disk, path, target)
    }

    /// Returns its client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }
}
