//! Copies files: between this machine and servers, between servers, from standard input and to standard output.
//!
//! ```text
//! let copier = Copier::new(&client);
//! let job = CopyJob { source: Place::parse("root://host//file")?, target: Place::parse("file")?, size: None };
//! let done = copier.copy(&job, &CopyOptions::of(client.settings()), &Watch::default()).await?;
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | [`Copier`] |
//! | `tree` | [`CopyAll`]: folders, patterns, several files at once |
//! | `sync` | [`Sync`]: a folder becomes like another one |
//! | `equal` | which files need not be copied |
//! | `nested` | whether one directory is inside another |
//! | `third` | copies from server to server |
//! | `pattern` | wildcards |
//! | `job` | one file from its opening to its name |
//! | `checks` | checksums of both ends |
//! | `place` | [`Place`]: where files come from and go to |
//! | `options` | [`CopyOptions`], [`CopyJob`], [`CopyDone`], [`Watch`] |
//! | `failure` | [`CopyError`] |
//! | `source`, `target` | the two ends of a copy |
//! | `opening` | what a copy makes is opened, or the copy is stopped meanwhile |
//! | `member`, `archived` | a member of a ZIP archive as source, and as target |
//! | `mirrored` | a metalink as source |
//! | `rate` | [`Rate`]: limits of the rate |
//! | `attributes` | extended attributes that go along |
//! | `local_source`, `local` | files of this machine: as sources, and as targets with temporary names, holes, times |
//! | `publish` | how files and directories of this machine get their names |
//! | `continued`, `note` | what an earlier copy left: what is known of it, and from where on it is completed |
//! | `pump` | chunks on their way |
//! | `sequence` | what has to be taken in the order of the file |
//! | `many`, `shares` | several sources of one file, and which of them gives what |
//! | `given`, `sample`, `witness`, `repair` | sources that lie: who gave what, who disagrees, what is replaced |
//! | `disk`, `descriptors` | threads for calls that block; how many files are open at once |

mod archived;
mod attributes;
mod checks;
mod continued;
mod descriptors;
pub(crate) mod disk;
mod equal;
mod failure;
mod given;
mod job;
mod local;
mod local_source;
mod many;
mod member;
mod mirrored;
mod nested;
mod note;
mod opening;
mod options;
mod pattern;
mod place;
mod publish;
mod pump;
mod rate;
mod repair;
mod sample;
mod sequence;
mod shares;
mod source;
mod sync;
mod target;
mod third;
mod tree;
mod witness;

use crate::client::Client;
use crate::walk::Tree;
use descriptors::Descriptors;
use disk::Disk;

pub use equal::{Equal, Reason};
pub use failure::{CopyError, Side};
pub use many::SOURCES_MAX;
pub use options::{
    Against, ChecksumWish, CopyDone, CopyJob, CopyOptions, Progress, Share, ThirdParty, Watch,
};
pub use pattern::{has_wildcard, matches};
pub use place::Place;
pub use rate::Rate;
pub use sync::{Step, Sync};
pub use tree::{CopyAll, Listener, PARALLEL, Tally};

/// Copies files. Clones share connections, memory, threads and the files that may be open at once: copies of files of this
/// machine wait for their turn when the limit of the process (`ulimit -n`, when this was made) does not allow all of them.
#[derive(Clone)]
pub struct Copier {
    client: Client,
    disk: Disk,
    descriptors: Descriptors,
}

impl std::fmt::Debug for Copier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Copier")
    }
}

impl Copier {
    /// With the connections of `client`.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        let disk = Disk::start(Disk::threads(client.settings()));
        Self { client: client.clone(), disk, descriptors: Descriptors::of_process() }
    }

    /// A directory of this machine that is copied to `target`, to be walked through.
    #[must_use]
    pub fn tree_here(&self, path: &std::path::Path, target: &Place) -> Tree {
        Tree::here(&self.client, &self.disk, path, target)
    }

    /// Its client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }
}
