//! [`DirectoryWalk`]: traversal of the directories below a remote directory, for commands.

use client::walk::{self, Directory, Tree};
use client::{Error, FileSystem, StatInfo, Url};

pub(super) use client::walk::{Items, WalkItem};

/// Yields each directory before those below it. Siblings follow in the order in which they were
/// entered.
pub(super) struct DirectoryWalk(walk::Walk);

/// A directory that was read.
pub(super) struct WalkedDirectory {
    pub(super) url: Url,
    /// 0 for the starting directory.
    pub(super) depth: usize,
    /// The entries with their status, sorted by name.
    pub(super) entries: Items,
    /// Failures: the listing as a whole, servers that did not reply, unreliable entries. After
    /// [`DirectoryWalk::enter`] also the directories that were not entered.
    pub(super) failed: Vec<Error>,
    directory: Directory,
}

impl DirectoryWalk {
    /// Begins at a directory. At a manager, covers all servers of its cluster.
    pub(super) async fn begin(files: &FileSystem, url: &Url) -> Result<Self, Error> {
        Ok(Self(walk::Walk::through(Tree::at_server(files, url).await?)))
    }

    /// Returns the next directory, or `None` at the end.
    pub(super) async fn next(&mut self) -> Option<WalkedDirectory> {
        let mut directory = self.0.next().await?;
        let url = directory.place.url()?.clone();
        let entries = directory.items.clone();
        let failed = directory.unknown.drain(..).map(|unknown| unknown.error).collect();
        Some(WalkedDirectory { url, depth: directory.depth, entries, failed, directory })
    }

    /// Enters subdirectories by their indices. They follow next, in this order. Reports for each
    /// whether it is entered.
    pub(super) fn enter(&mut self, listed: &mut WalkedDirectory, numbers: &[u32]) -> Vec<bool> {
        let entered = self.0.enter(&mut listed.directory, numbers);
        listed.failed.extend(listed.directory.unknown.drain(..).map(|unknown| unknown.error));
        entered
    }

    /// Enters all subdirectories.
    pub(super) fn enter_all(&mut self, listed: &mut WalkedDirectory) {
        let directories = listed.entries.iter().filter(|entry| entry.is_directory);
        let numbers: Vec<u32> = directories.map(|entry| entry.number()).collect();
        self.enter(listed, &numbers);
    }
}

impl WalkedDirectory {
    /// Returns the URL of an entry.
    pub(super) fn child(&self, entry: &WalkItem) -> Url {
        self.url.at(self.url.path.join(&entry.name))
    }
}

/// Reports whether an entry is a directory.
pub(super) fn is_dir(entry: &WalkItem) -> bool {
    entry.stat.as_ref().is_some_and(StatInfo::is_dir)
}
