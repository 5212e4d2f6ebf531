//! [`Walk`]: the folders below a folder, in order, with several listings on their way at once.

use std::sync::Arc;

use client::{Entry, Error, FileSystem, ListWith, Merged, Name, RemotePath, StatInfo, Url, list_merged};
use tokio::task::JoinHandle;

/// Listings that are on their way at once.
const AHEAD: usize = 64;

/// Folders, each before those below it, those of one folder in the order in which they were entered. While one is looked at,
/// the next ones are listed already.
pub(super) struct Walk {
    root: Url,
    with: ListWith,
    /// The next one last.
    open: Vec<Pending>,
}

struct Pending {
    path: RemotePath,
    depth: usize,
    servers: Arc<[FileSystem]>,
    listing: Option<Aborted>,
}

/// A listing that ends with its owner.
struct Aborted(JoinHandle<Result<Merged, Error>>);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An entry of a folder.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) name: Name,
    pub(super) stat: Option<StatInfo>,
}

/// A folder that was listed.
pub(super) struct Folder {
    pub(super) url: Url,
    /// 0 for the one where the walk began.
    pub(super) depth: usize,
    /// Its entries, sorted by name, with their status.
    pub(super) entries: Vec<Item>,
    /// What failed: the listing as a whole, servers that could not be asked, names that no request can carry.
    pub(super) failed: Vec<Error>,
    servers: Arc<[FileSystem]>,
}

impl Walk {
    /// Begins at a folder: at a manager, at all servers of its cluster.
    pub(super) async fn begin(files: &FileSystem, url: &Url) -> Result<Self, Error> {
        let servers = files.servers(&url.path).await?.into();
        let with = ListWith { stat: true, ..ListWith::default() };
        let path = url.path.clone();
        Ok(Self { root: url.clone(), with, open: vec![Pending { path, depth: 0, servers, listing: None }] })
    }

    /// The next folder; `None` when there are no more.
    pub(super) async fn next(&mut self) -> Option<Folder> {
        for pending in self.open.iter_mut().rev().take(AHEAD) {
            let Pending { path, servers, .. } = pending;
            pending.listing.get_or_insert_with(|| {
                let (path, servers, with) = (path.clone(), servers.clone(), self.with.clone());
                Aborted(tokio::spawn(async move { list_merged(&servers, &path, &with).await }))
            });
        }
        let Pending { path, depth, servers, listing } = self.open.pop()?;
        let listed = match listing {
            Some(mut listing) => (&mut listing.0).await.ok(),
            None => None,
        };
        let url = self.root.at(path);
        let (listed, mut failed, servers) = match listed {
            Some(Ok(merged)) => (merged.entries, merged.failed, merged.servers.into()),
            Some(Err(error)) => (Vec::new(), vec![error], servers),
            // Its task panicked, which says so itself.
            None => (Vec::new(), Vec::new(), servers),
        };
        let mut entries = Vec::with_capacity(listed.len());
        for Entry { name, stat, .. } in listed {
            match name.component() {
                Ok(name) => entries.push(Item { name: name.clone(), stat }),
                Err(_) => failed.push(Error::bad_name("list", &url, &name)),
            }
        }
        Some(Folder { url, depth, entries, failed, servers })
    }

    /// Enters folders of a folder: those come next, in this order.
    pub(super) fn enter<'a>(&mut self, folder: &Folder, names: impl DoubleEndedIterator<Item = &'a Name>) {
        let depth = folder.depth + 1;
        for name in names.rev() {
            let (path, servers) = (folder.url.path.join(name), folder.servers.clone());
            self.open.push(Pending { path, depth, servers, listing: None });
        }
    }
}

impl Folder {
    /// The URL of an entry.
    pub(super) fn child(&self, entry: &Item) -> Url {
        self.url.at(self.url.path.join(&entry.name))
    }

    /// The names of the folders in it.
    pub(super) fn folders(&self) -> impl DoubleEndedIterator<Item = &Name> {
        self.entries.iter().filter(|entry| is_dir(entry)).map(|entry| &entry.name)
    }
}

/// Whether an entry is a folder.
pub(super) fn is_dir(entry: &Item) -> bool {
    entry.stat.as_ref().is_some_and(StatInfo::is_dir)
}
