//! [`Walk`]: the common implementation of walks through directory trees, here and at servers.
//!
//! A tree is read directory by directory, each before those below it, while the next listings are
//! already requested. An entry is reported as a [`WalkItem`], or as an [`UnreliableEntry`]: seen,
//! but unreliable, with the reason. A caller that changes the tree must leave unknown entries and
//! everything below them alone.
//!
//! Servers follow links, so a link to a directory looks like a directory. A directory has an
//! identity, so a walk does not enter one that leads back to a directory above it. A link out of
//! the tree is only detected when a server is asked to remove it as an empty directory. The server
//! refuses a directory because it is not empty, and a link because it is not a directory. A walk
//! that removes sends this request before it enters a directory.
//!
//! | file | content |
//! |---|---|
//! | `mod` | [`Tree`]: the root and options of a walk; [`Directory`]: what it yields |
//! | `order` | [`Walk`]: the order of directories; prefetched listings |
//! | `items` | [`Items`]: the entries of a directory, in the form in which they were sent |
//! | `listing`, `local` | directories at servers and here |
//! | `listed` | the result of a listing: items, and [`UnreliableEntry`] entries (`unknown`) |
//! | `identity` | detection of a directory that leads back to one above it |
//! | `links` | detection of links to directories |
//! | `removal` | [`TreeRemoval`]: a walk that removes |
//!
//! `ListingBytes` limits the listings held by a walk: the current one and the directories that are
//! still to be entered on all levels. A third of it is the limit for prefetched listings. A
//! directory whose listing exceeds the memory is unknown.

mod identity;
mod items;
mod links;
mod listed;
mod listing;
mod local;
mod order;
mod removal;
mod unknown;

use std::path::Path;
use std::sync::Arc;

use crate::channel::BodyLimit;
use crate::client::Client;
use crate::cluster::ClusterServers;
use crate::cluster_listing::join_bounded;
use crate::copy::Place;
use crate::copy::disk::DiskThreads;
use crate::entries::{Entries, ServerListing};
use crate::failure::{Cause, Error};
use crate::filesystem::{FileSystem, ListWith};
use crate::listing_memory::ListingMemory;
use crate::listings::ListingRequest;
use crate::path::RelativePath;
use crate::url::Url;

use identity::{DirectoryMark, Identity};
use links::{Probed, probe};
use listed::DirectoryListing;
use listing::list_exactly;
use local::read_local;
use unknown::whole;

pub use items::{Items, ListedEntry, WalkItem};
pub(crate) use links::is_own_directory;
pub(crate) use order::DirectoryQueue;
pub use order::Walk;
pub use removal::{Removed, TreeRemoval};
pub use unknown::{UNKNOWN_MAX, UnreliableEntry};

/// Maximum number of directories above a directory that is entered.
pub const DEPTH_MAX: usize = 256;
/// Maximum length of a path below the root of a walk.
pub const PATH_BYTES_MAX: usize = 4096;
/// Maximum number of directories that one walk enters.
pub const DIRECTORIES_MAX: u64 = 100_000_000;
/// The ancestors of a directory, nearest first.
#[derive(Debug)]
struct Above {
    path: RelativePath,
    ids: Vec<Identity>,
    next: Option<Arc<Above>>,
}

/// The root of a walk, and how it is read.
#[derive(Clone)]
pub struct Tree {
    root: Place,
    disk: Option<DiskThreads>,
    /// For a manager, all servers of its cluster.
    servers: Arc<[FileSystem]>,
    /// Errors of managers whose servers are not known. No directory is complete then.
    unknown_servers: Arc<[Error]>,
    /// Set if entered directories are removed, so that no link may be entered.
    removes: bool,
    /// Set if entries missing in a listing with status are searched for in a plain listing.
    is_exact: bool,
    /// Set if no name becomes part of a path at a server, so that names that no request can carry
    /// are known, too.
    stays_here: bool,
    follows_links: bool,
    /// Set if directories of HTTP servers that are removed count as no links.
    ignores_links: bool,
    /// Set if a listing for which a server of HTTP redirects to another one is unknown.
    is_one_server: bool,
    /// Set if unreliable entries stay among the items, see [`Items::listed`].
    keeps_all: bool,
    /// Set if the stored checksums of files are requested.
    with_checksums: bool,
    /// Memory for the listings held at the same time.
    memory: ListingMemory,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree({})", self.root)
    }
}

/// A directory that must be read.
#[derive(Clone, Debug)]
pub struct Pending {
    path: RelativePath,
    depth: usize,
    /// The possible identities. For the root the number is not known yet.
    ids: Vec<Identity>,
    above: Option<Arc<Above>>,
}

impl Pending {
    /// Returns its path relative to the root.
    #[must_use]
    pub fn path(&self) -> &RelativePath {
        &self.path
    }
}

/// A directory that was read.
#[derive(Debug)]
pub struct Directory {
    /// The place.
    pub place: Place,
    /// The path relative to the root.
    pub path: RelativePath,
    /// The depth; 0 for the root.
    pub depth: usize,
    /// The entries, sorted by name.
    pub items: Items,
    /// Entries that are unreliable or may exist.
    pub unknown: Vec<UnreliableEntry>,
    /// Set if it was read at all servers that may have it. Otherwise it may have more entries.
    pub is_complete: bool,
    /// Set if it exists at none of the servers.
    pub is_missing: bool,
    at: Vec<usize>,
    chain: Arc<Above>,
}

impl Directory {
    /// Returns the place of an item.
    #[must_use]
    pub fn child(&self, item: &WalkItem) -> Place {
        self.place.join(&item.name)
    }

    /// Returns the subdirectories.
    pub fn directories(&self) -> impl DoubleEndedIterator<Item = WalkItem> + '_ {
        self.items.iter().filter(|item| item.is_directory)
    }

    /// Returns its number at a server, if only one server has it.
    #[must_use]
    pub fn server_number(&self) -> Option<u64> {
        match self.chain.ids.as_slice() {
            [(_, DirectoryMark::Remote(stat))] => Some(stat.id),
            _ => None,
        }
    }

    /// Records an unreliable entry.
    fn refuse(&mut self, unknown: UnreliableEntry) {
        let count = self.unknown.len();
        if count < UNKNOWN_MAX {
            self.unknown.push(unknown);
        } else if count == UNKNOWN_MAX {
            let text = format!("more than {UNKNOWN_MAX} entries of it cannot be relied on");
            let error = Error::new("list", &self.place, Cause::NotEntered(text));
            self.unknown.push(whole(&self.path, error));
            self.is_complete = false;
        }
    }

    /// Reports whether it could not be listed for lack of memory.
    fn lacks_memory(&self) -> bool {
        let is_whole = |unknown: &&UnreliableEntry| unknown.name.is_none();
        self.unknown.iter().filter(is_whole).any(|one| matches!(one.error.cause(), Cause::TooLarge(_)))
    }
}

/// Items of a directory that are kept.
pub(crate) struct Chosen {
    pub(crate) path: RelativePath,
    pub(crate) items: Items,
}

impl Tree {
    fn empty(memory: ListingMemory) -> Self {
        Self {
            root: Place::Stream,
            disk: None,
            servers: Arc::new([]),
            unknown_servers: Arc::new([]),
            removes: false,
            is_exact: false,
            stays_here: false,
            follows_links: false,
            ignores_links: false,
            is_one_server: false,
            keeps_all: false,
            with_checksums: false,
            memory,
        }
    }

    /// Creates a tree for a directory of a server, or of all servers of its cluster if it is a
    /// manager. If some servers of the cluster cannot be determined, no directory is complete, and
    /// the root has the reasons as unknown entries.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn at_server(files: &FileSystem, url: &Url) -> Result<Self, Error> {
        let ClusterServers { servers, failed } = files.cluster_servers(&url.path).await?;
        let (servers, unknown_servers) = (servers.into(), failed.into());
        let memory = files.client().listing_memory();
        Ok(Self { root: Place::Remote(url.clone()), servers, unknown_servers, ..Self::empty(memory) })
    }

    /// Creates a tree for a directory, here or at a server, that is copied to or from `other`.
    /// Local directories are read by `disk`.
    pub(crate) async fn at(
        client: &Client,
        disk: &DiskThreads,
        root: &Place,
        other: &Place,
    ) -> Result<Self, Error> {
        match root {
            Place::Remote(url) => Self::at_server(&client.file_system(url), url).await,
            Place::Local(path) => Ok(Self::here(client, disk, path, other)),
            Place::Stream => Ok(Self::empty(client.listing_memory())),
        }
    }

    /// Creates a tree for a directory of this machine that is copied to or from `other`.
    pub(crate) fn here(client: &Client, disk: &DiskThreads, path: &Path, other: &Place) -> Self {
        let (root, disk) = (Place::Local(path.to_owned()), Some(disk.clone()));
        let stays_here = matches!(other, Place::Local(_));
        Self { root, disk, stays_here, ..Self::empty(client.listing_memory()) }
    }

    /// Treats links to local directories as directories, and omits entries without data: links that
    /// lead nowhere, pipes, devices.
    #[must_use]
    pub fn following_links(mut self) -> Self {
        self.follows_links = true;
        self
    }

    /// Enters directories of HTTP servers to remove their entries, although they may be links.
    pub(crate) fn ignoring_web_links(mut self) -> Self {
        self.ignores_links = self.root.url().is_some_and(Url::is_http);
        self
    }

    /// Treats a directory as unknown if a server of HTTP redirects to another one for its listing, because files of
    /// the others would look missing.
    pub(crate) fn at_one_server(mut self) -> Self {
        self.is_one_server = true;
        self
    }

    /// Uses the memory of another tree, which is read in parallel.
    pub(crate) fn beside(mut self, other: &Self) -> Self {
        self.memory = other.memory.clone();
        self
    }

    /// Prepares the walk for a caller that removes the directories it enters.
    #[must_use]
    pub fn to_remove(mut self) -> Self {
        self.removes = true;
        self
    }

    /// Prepares the walk for a caller that only displays the tree: entries that would be unknown
    /// remain among the items, for [`Items::listed`].
    #[must_use]
    pub fn to_display(mut self) -> Self {
        self.keeps_all = true;
        self
    }

    /// Requests the stored checksum of each file, of the server's first type.
    #[must_use]
    pub fn with_checksums(mut self) -> Self {
        self.with_checksums = true;
        self
    }

    /// Makes missing entries reliable. Servers omit entries from a listing with status if they
    /// cannot access them: links that lead nowhere, files in a directory without search permission.
    /// These become unknown.
    #[must_use]
    pub(crate) fn exact(mut self) -> Self {
        self.is_exact = true;
        self
    }

    /// Returns the root, to be read.
    #[must_use]
    pub fn root(&self) -> Pending {
        let ids = (0..self.servers.len()).map(|server| (server, DirectoryMark::Unknown)).collect();
        Pending { path: RelativePath::default(), depth: 0, ids, above: None }
    }

    /// Returns the place of the root.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.root
    }

    /// Returns the servers that are read: one, or those of a cluster.
    #[must_use]
    pub fn servers(&self) -> &[FileSystem] {
        &self.servers
    }

    /// Returns the servers with these indices.
    pub(crate) fn servers_at(&self, numbers: &[usize]) -> Vec<FileSystem> {
        numbers.iter().filter_map(|number| self.servers.get(*number).cloned()).collect()
    }

    /// Returns the tree below a directory, at the servers with these indices.
    pub(crate) fn below(&self, path: &RelativePath, numbers: &[usize]) -> Self {
        let servers = self.servers_at(numbers).into();
        Self { root: self.root.below(path), servers, ..self.clone() }
    }

    /// Checks whether a subdirectory may be entered.
    ///
    /// # Errors
    /// [`UnreliableEntry`] if it leads back to a directory above it, or is too deep.
    pub(crate) fn enters(&self, directory: &Directory, item: &WalkItem) -> Result<(), Box<UnreliableEntry>> {
        let path = directory.path.join(&item.name);
        let refuse = |text: String| {
            let error = Error::new("list", directory.child(item), Cause::NotEntered(text));
            let name = Some(item.name.to_string());
            Err(Box::new(UnreliableEntry { directory: directory.path.clone(), name, error }))
        };
        let mut above = Some(&directory.chain);
        while let Some(one) = above {
            let is_above =
                |id: &Identity| one.ids.iter().any(|other| id.0 == other.0 && id.1.is_same(&other.1));
            if item.ids.iter().any(is_above) {
                return refuse(format!("it leads back to {}", self.root.below(&one.path)));
            }
            above = one.next.as_ref();
        }
        if directory.depth >= DEPTH_MAX {
            return refuse(format!("it is more than {DEPTH_MAX} directories down"));
        }
        if path.to_path().as_os_str().len() > PATH_BYTES_MAX {
            return refuse(format!("its path is longer than {PATH_BYTES_MAX} bytes"));
        }
        Ok(())
    }

    /// Copies some items of a directory, to be kept beyond its lifetime.
    ///
    /// # Errors
    /// [`Error`] if there is no memory for them.
    pub(crate) fn keep(&self, directory: &Directory, numbers: &[u32]) -> Result<Chosen, Error> {
        let items = directory.items.choose(numbers, &self.memory).ok_or_else(|| {
            let limit = BodyLimit::listing(&self.memory);
            Error::new("list", &directory.place, Cause::too_large(&limit))
        })?;
        Ok(Chosen { path: directory.path.clone(), items })
    }

    /// Queues subdirectories that must be read later.
    pub(crate) fn queue(&self, directory: &Directory, numbers: Vec<u32>) -> DirectoryQueue {
        DirectoryQueue::new(directory, numbers, &self.memory)
    }

    /// Reads a directory.
    pub(crate) async fn read(&self, pending: Pending) -> Directory {
        self.read_into(pending, &self.memory).await
    }

    async fn read_into(&self, pending: Pending, memory: &ListingMemory) -> Directory {
        let place = self.root.below(&pending.path);
        match &place {
            Place::Remote(url) => self.read_remote(url.clone(), pending, memory).await,
            Place::Local(path) => {
                let (path, from) = (path.clone(), pending.path.clone());
                let (stays_here, follows_links) = (self.stays_here, self.follows_links);
                let read = move || read_local(&path, &from, stays_here, follows_links);
                let listed = match &self.disk {
                    Some(disk) => disk.run(read).await,
                    None => None,
                };
                let listed = listed.unwrap_or_else(|| DirectoryListing {
                    unknown: vec![whole(&pending.path, Error::new("list", &place, Cause::Closed))],
                    ..DirectoryListing::default()
                });
                Self::directory(place, pending, listed)
            }
            Place::Stream => Self::directory(
                place,
                pending,
                DirectoryListing { is_missing: true, ..DirectoryListing::default() },
            ),
        }
    }

    fn directory(place: Place, pending: Pending, listed: DirectoryListing) -> Directory {
        let Pending { path, depth, above, .. } = pending;
        let chain = Arc::new(Above { path: path.clone(), ids: listed.ids, next: above });
        let is_complete = listed.unknown.iter().all(|unknown| unknown.name.is_some());
        Directory {
            place,
            path,
            depth,
            items: listed.items,
            unknown: listed.unknown,
            is_complete: is_complete && !listed.is_missing,
            is_missing: listed.is_missing,
            at: listed.at,
            chain,
        }
    }

    async fn read_remote(&self, url: Url, pending: Pending, memory: &ListingMemory) -> Directory {
        let mut listed = DirectoryListing::default();
        let mut at: Vec<usize> = pending.ids.iter().map(|(server, _)| *server).collect();
        if self.removes {
            at = self.without_links(&url, &pending.path, at, &mut listed).await;
        }
        // The numbers of subdirectories are known from their listings. The number of the root must
        // be requested.
        listed.ids = match &pending.above {
            None => self.identify(&url, &pending.path, &mut at, &mut listed.unknown).await,
            Some(_) => pending.ids.clone(),
        };
        let servers = self.servers_at(&at);
        let mut listings = Vec::new();
        let (mut missing, mut answered) = (None, listed.unknown.len());
        for (server, result) in at.iter().zip(self.list(servers, &url, memory).await) {
            match result {
                Ok(parts) => {
                    answered += 1;
                    listed.at.push(*server);
                    listings.extend(parts.into_iter().map(|part| (*server, part)));
                }
                Err(error) if error.is_not_found() => missing = Some(error),
                Err(error) => {
                    answered += 1;
                    listed.unknown.push(whole(&pending.path, error));
                }
            }
        }
        if pending.above.is_none() {
            let unknown = self.unknown_servers.iter().map(|error| whole(&pending.path, error.clone()));
            listed.unknown.extend(unknown);
            answered += self.unknown_servers.len();
        }
        match Entries::merge(listings) {
            Ok(entries) if self.keeps_all => listed.items = Items::all(entries),
            Ok(entries) => listed.take(entries, &url, &pending.path),
            Err(cause) => listed.unknown.push(whole(&pending.path, Error::new("list", &url, cause))),
        }
        if answered == 0 {
            listed.is_missing = true;
            if let Some(error) = missing.filter(|_| !self.removes) {
                listed.unknown.push(whole(&pending.path, error));
            }
        }
        let mut directory = Self::directory(Place::Remote(url), pending, listed);
        directory.is_complete &= self.unknown_servers.is_empty();
        directory
    }

    /// Lists a directory at each of these servers.
    async fn list(
        &self,
        servers: Vec<FileSystem>,
        url: &Url,
        memory: &ListingMemory,
    ) -> Vec<Result<Vec<ServerListing>, Error>> {
        let (path, is_exact, is_one_server) = (url.path.clone(), self.is_exact, self.is_one_server);
        let with =
            ListWith { stat: true, checksum: self.with_checksums.then(String::new), ..ListWith::default() };
        let list = |server: FileSystem| {
            let (path, memory, with) = (path.clone(), memory.clone(), with.clone());
            async move {
                if is_exact {
                    list_exactly(&server, &path, &memory, is_one_server).await
                } else {
                    let request =
                        ListingRequest { files: &server, path: &path, memory: &memory, is_one_server };
                    request.send(&with).await
                }
            }
        };
        match servers.as_slice() {
            [server] => vec![list(server.clone()).await],
            _ => join_bounded(servers, list).await,
        }
    }

    /// Returns the servers at which the path is a directory, neither a link nor empty. This removes
    /// an empty directory.
    async fn without_links(
        &self,
        url: &Url,
        path: &RelativePath,
        at: Vec<usize>,
        listed: &mut DirectoryListing,
    ) -> Vec<usize> {
        if self.ignores_links {
            return at;
        }
        let probe = |server: usize| {
            let (files, path) = (self.servers.get(server).cloned(), url.path.clone());
            async move {
                let probed = match files {
                    Some(files) => probe(&files, &path).await,
                    None => Probed::Gone,
                };
                (server, probed)
            }
        };
        let mut left = Vec::new();
        for (server, probed) in join_bounded(at, probe).await {
            match probed {
                Probed::Directory => left.push(server),
                Probed::Gone => {}
                Probed::Refused(error) => listed.unknown.push(whole(path, *error)),
            }
        }
        left
    }

    /// Requests the identity of a directory at each of these servers. A directory without an
    /// identity is not read, because a link that leads back to it would be entered.
    async fn identify(
        &self,
        url: &Url,
        path: &RelativePath,
        at: &mut Vec<usize>,
        unknown: &mut Vec<UnreliableEntry>,
    ) -> Vec<Identity> {
        let stat = |server: usize| {
            let (files, path) = (self.servers.get(server).cloned(), url.path.clone());
            async move {
                let stat = match files {
                    Some(files) => files.find(&path).await,
                    None => Ok(None),
                };
                (server, stat)
            }
        };
        let mut ids = Vec::new();
        for (server, stat) in join_bounded(at.clone(), stat).await {
            match stat {
                Ok(Some(stat)) => ids.push((server, DirectoryMark::of(Some(&stat)))),
                // Its listing shows whether it exists.
                Ok(None) => {}
                Err(error) => {
                    unknown.push(whole(path, error));
                    at.retain(|other| *other != server);
                }
            }
        }
        ids
    }
}
