//! [`Walk`]: the one way through a directory tree, here or at servers.
//!
//! A tree is read directory by directory, each before those below it, while the next listings are on their way already. What is
//! found is an [`Item`], or it is [`Unknown`]: seen, but not to be relied on, with the reason. A caller that changes something
//! must leave alone what is unknown and all below it.
//!
//! Servers follow links, so a link to a directory looks like one. A directory has an identity, so a walk does not enter one
//! that leads back to a directory above it. That a link leads out of the tree only shows when a server is asked to remove it
//! as an empty directory: it refuses a directory because it is not empty, and a link because it is none. A walk that
//! removes asks so before it enters a directory.

mod links;
mod listing;
mod local;
mod removal;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::abort_on_drop::AbortOnDrop;
use crate::answers::{Entry, StatInfo};
use crate::client::Client;
use crate::copy::Place;
use crate::copy::disk::Disk;
use crate::everywhere::together;
use crate::failure::{Cause, Error};
use crate::filesystem::FileSystem;
use crate::path::{EntryName, Name, RelativePath};
use crate::url::Url;

use links::{Probed, probe};
use listing::{list_exactly, list_status};
use local::read_local;

pub(crate) use links::is_own_directory;
pub use removal::{Removal, Removed};

/// Most directories above a directory that is entered.
pub const DEPTH_MAX: usize = 256;
/// Longest path below the root of a walk.
pub const PATH_BYTES_MAX: usize = 4096;
/// Most directories that one walk enters.
pub const DIRECTORIES_MAX: u64 = 100_000_000;
/// Listings that are on their way at once.
const AHEAD: usize = 64;

/// A directory at one server or on this machine: which of the walk's servers, and its mark there.
type Identity = (usize, Mark);

/// What tells directories of one machine apart.
#[derive(Clone, Debug)]
enum Mark {
    /// Nothing is known of it.
    Unknown,
    /// Device and inode.
    Local(u64, u64),
    /// Its status. The number in it has only 32 bits of the inode, so it does not suffice.
    Remote(Arc<StatInfo>),
}

impl Mark {
    fn of(stat: Option<&StatInfo>) -> Self {
        stat.map_or(Self::Unknown, |stat| Self::Remote(Arc::new(stat.clone())))
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local(device, inode), Self::Local(other_device, other_inode)) => {
                (device, inode) == (other_device, other_inode)
            }
            (Self::Remote(one), Self::Remote(other)) => one.is_same_directory(other),
            _ => false,
        }
    }
}

/// An entry that is known.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name.
    pub name: Name,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Bytes.
    pub size: u64,
    /// Last modification, seconds since the epoch.
    pub modified: i64,
    /// All that a server says of it.
    pub stat: Option<StatInfo>,
    /// Where it is, and as what.
    ids: Vec<Identity>,
}

impl Item {
    /// The numbers of the servers where it is.
    pub(crate) fn servers(&self) -> Vec<usize> {
        self.ids.iter().map(|(server, _)| *server).collect()
    }
}

/// What was seen, but cannot be relied on.
#[derive(Clone, Debug)]
pub struct Unknown {
    /// The directory in which it is, or that it is, from the root of the walk on.
    pub directory: RelativePath,
    /// Its name as it is shown; `None` when it is the directory, or what else may be in it.
    pub name: Option<String>,
    /// Why.
    pub error: Error,
}

/// The directories above one, nearest first.
#[derive(Debug)]
struct Above {
    path: RelativePath,
    ids: Vec<Identity>,
    next: Option<Arc<Above>>,
}

/// Where a walk goes: a root, and how it is read.
#[derive(Clone)]
pub struct Tree {
    root: Place,
    disk: Option<Disk>,
    /// At a manager, all servers of its cluster.
    servers: Arc<[FileSystem]>,
    /// What is entered is removed, so no link is to be entered.
    removes: bool,
    /// What is missing in a listing with status is looked for in a plain one.
    is_exact: bool,
    /// Nothing in it becomes part of a path at a server, so names that no request can carry are known too.
    stays_here: bool,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tree({})", self.root)
    }
}

/// A directory that is to be read.
#[derive(Clone, Debug)]
pub struct Pending {
    path: RelativePath,
    depth: usize,
    /// Where it may be, and as what; of the root the number is not known yet.
    ids: Vec<Identity>,
    above: Option<Arc<Above>>,
}

impl Pending {
    /// Its path from the root on.
    #[must_use]
    pub fn path(&self) -> &RelativePath {
        &self.path
    }
}

/// A directory that was read.
#[derive(Debug)]
pub struct Directory {
    /// Where it is.
    pub place: Place,
    /// Its path from the root on.
    pub path: RelativePath,
    /// 0 for the root.
    pub depth: usize,
    /// What is in it, sorted by name.
    pub items: Vec<Item>,
    /// What else is in it, or may be.
    pub unknown: Vec<Unknown>,
    /// It could be read, at all servers that may have it. Otherwise more may be in it.
    pub is_complete: bool,
    /// It is not there, at none of the servers.
    pub is_missing: bool,
    at: Vec<usize>,
    chain: Arc<Above>,
}

impl Directory {
    /// The place of an item.
    #[must_use]
    pub fn child(&self, item: &Item) -> Place {
        self.place.join(&item.name)
    }

    /// The names of the directories in it.
    pub fn directories(&self) -> impl DoubleEndedIterator<Item = &Item> {
        self.items.iter().filter(|item| item.is_directory)
    }
}

impl Tree {
    fn empty() -> Self {
        let servers = Arc::new([]);
        Self { root: Place::Stream, disk: None, servers, removes: false, is_exact: false, stays_here: false }
    }

    /// A directory of a server, or of all servers of its cluster if it is a manager.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn at_server(files: &FileSystem, url: &Url) -> Result<Self, Error> {
        let servers = files.servers(&url.path).await?.into();
        Ok(Self { root: Place::Remote(url.clone()), servers, ..Self::empty() })
    }

    /// A directory here or at a server that is copied to `other`, or from there; local ones are read by `disk`.
    pub(crate) async fn at(client: &Client, disk: &Disk, root: &Place, other: &Place) -> Result<Self, Error> {
        match root {
            Place::Remote(url) => Self::at_server(&client.file_system(url), url).await,
            _ => Ok(Self {
                root: root.clone(),
                disk: Some(disk.clone()),
                stays_here: matches!(other, Place::Local(_)),
                ..Self::empty()
            }),
        }
    }

    /// The same for a caller that removes what it enters.
    #[must_use]
    pub fn to_remove(mut self) -> Self {
        self.removes = true;
        self
    }

    /// The same for a caller to which a missing entry means something. Servers leave entries out of a listing with status
    /// when they cannot look at them: links that lead nowhere, files in a directory without search permission. These become
    /// unknown.
    #[must_use]
    pub(crate) fn exact(mut self) -> Self {
        self.is_exact = true;
        self
    }

    /// Its root, to be read.
    #[must_use]
    pub fn root(&self) -> Pending {
        let ids = (0..self.servers.len()).map(|server| (server, Mark::Unknown)).collect();
        Pending { path: RelativePath::default(), depth: 0, ids, above: None }
    }

    /// The servers of these numbers.
    pub(crate) fn servers_at(&self, numbers: &[usize]) -> Vec<FileSystem> {
        numbers.iter().filter_map(|number| self.servers.get(*number).cloned()).collect()
    }

    /// What is below a directory of it, at the servers of these numbers.
    pub(crate) fn below(&self, path: &RelativePath, numbers: &[usize]) -> Self {
        let servers = self.servers_at(numbers).into();
        Self { root: self.root.below(path), servers, ..self.clone() }
    }

    /// A directory in a directory, to be read.
    ///
    /// # Errors
    /// [`Unknown`]: it leads back to a directory above it, or too far down.
    pub fn enter(&self, directory: &Directory, item: &Item) -> Result<Pending, Box<Unknown>> {
        let path = directory.path.join(&item.name);
        let refuse = |text: String| {
            let error = Error::new("list", directory.child(item), Cause::NotEntered(text));
            let name = Some(item.name.to_string());
            Err(Box::new(Unknown { directory: directory.path.clone(), name, error }))
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
        if path.as_str().len() > PATH_BYTES_MAX {
            return refuse(format!("its path is longer than {PATH_BYTES_MAX} bytes"));
        }
        let (ids, above) = (item.ids.clone(), Some(directory.chain.clone()));
        Ok(Pending { path, depth: directory.depth + 1, ids, above })
    }

    /// Reads a directory.
    pub async fn read(&self, pending: Pending) -> Directory {
        let place = self.root.below(&pending.path);
        match &place {
            Place::Remote(url) => self.read_remote(url.clone(), pending).await,
            Place::Local(path) => {
                let (path, from) = (path.clone(), pending.path.clone());
                let stays_here = self.stays_here;
                let read = move || read_local(&path, &from, stays_here);
                let listed = match &self.disk {
                    Some(disk) => disk.run(read).await,
                    None => None,
                };
                let listed = listed.unwrap_or_else(|| Listed {
                    unknown: vec![whole(&pending.path, Error::new("list", &place, Cause::Closed))],
                    ..Listed::default()
                });
                Self::directory(place, pending, listed)
            }
            Place::Stream => {
                Self::directory(place, pending, Listed { is_missing: true, ..Listed::default() })
            }
        }
    }

    fn directory(place: Place, pending: Pending, listed: Listed) -> Directory {
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

    async fn read_remote(&self, url: Url, pending: Pending) -> Directory {
        let mut listed = Listed::default();
        let mut at: Vec<usize> = pending.ids.iter().map(|(server, _)| *server).collect();
        if self.removes {
            at = self.without_links(&url, &pending.path, at, &mut listed).await;
        }
        // The numbers of directories below are known from their listings; that of the root has to be asked for.
        listed.ids = match &pending.above {
            None => self.identify(&url, &at).await,
            Some(_) => pending.ids.clone(),
        };
        let servers = self.servers_at(&at);
        let mut merge = Merge::default();
        let (mut missing, mut answered) = (None, listed.unknown.len());
        for (server, result) in at.iter().zip(self.list(servers, &url).await) {
            match result {
                Ok(entries) => {
                    answered += 1;
                    listed.at.push(*server);
                    entries.into_iter().for_each(|entry| merge.add(*server, entry));
                }
                Err(error) if error.is_not_found() => missing = Some(error),
                Err(error) => {
                    answered += 1;
                    listed.unknown.push(whole(&pending.path, error));
                }
            }
        }
        merge.end(&url, &pending.path, &mut listed);
        if answered == 0 {
            listed.is_missing = true;
            if let Some(error) = missing.filter(|_| !self.removes) {
                listed.unknown.push(whole(&pending.path, error));
            }
        }
        Self::directory(Place::Remote(url), pending, listed)
    }

    /// The entries of a directory at each of these servers.
    async fn list(&self, servers: Vec<FileSystem>, url: &Url) -> Vec<Result<Vec<Entry>, Error>> {
        let (path, is_exact) = (url.path.clone(), self.is_exact);
        let list = |server: FileSystem| {
            let path = path.clone();
            async move {
                if is_exact { list_exactly(&server, &path).await } else { list_status(&server, &path).await }
            }
        };
        match servers.as_slice() {
            [server] => vec![list(server.clone()).await],
            _ => together(servers, list).await,
        }
    }

    /// Those of the servers at which a directory is one, and neither a link nor empty: an empty one is removed by this.
    async fn without_links(
        &self,
        url: &Url,
        path: &RelativePath,
        at: Vec<usize>,
        listed: &mut Listed,
    ) -> Vec<usize> {
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
        for (server, probed) in together(at, probe).await {
            match probed {
                Probed::Directory => left.push(server),
                Probed::Gone => {}
                Probed::Refused(error) => listed.unknown.push(whole(path, *error)),
            }
        }
        left
    }

    async fn identify(&self, url: &Url, at: &[usize]) -> Vec<Identity> {
        let stat = |server: usize| {
            let (files, path) = (self.servers.get(server).cloned(), url.path.clone());
            async move {
                let stat = files?.stat(&path).await.ok()?;
                Some((server, Mark::of(Some(&stat))))
            }
        };
        together(at.to_vec(), stat).await.into_iter().flatten().collect()
    }
}

/// What is known of a directory once it was listed.
#[derive(Default)]
struct Listed {
    items: Vec<Item>,
    unknown: Vec<Unknown>,
    is_missing: bool,
    at: Vec<usize>,
    ids: Vec<Identity>,
}

/// That more may be in a directory than is known.
fn whole(directory: &RelativePath, error: Error) -> Unknown {
    Unknown { directory: directory.clone(), name: None, error }
}

/// Listings of one directory by several servers.
#[derive(Default)]
struct Merge(BTreeMap<EntryName, (Option<StatInfo>, Vec<Identity>, bool)>);

impl Merge {
    fn add(&mut self, server: usize, entry: Entry) {
        let mark = Mark::of(entry.stat.as_ref().filter(|stat| stat.is_dir()));
        let is_directory = |stat: &Option<StatInfo>| stat.as_ref().map(StatInfo::is_dir);
        let Some((stat, ids, is_same)) = self.0.get_mut(&entry.name) else {
            self.0.insert(entry.name, (entry.stat, vec![(server, mark)], true));
            return;
        };
        *is_same &= is_directory(stat) == is_directory(&entry.stat);
        ids.push((server, mark));
        if stat.is_none() {
            *stat = entry.stat;
        }
    }

    fn end(self, url: &Url, path: &RelativePath, listed: &mut Listed) {
        for (name, (stat, ids, is_same)) in self.0 {
            let unknown = |cause: Cause| {
                let at = name.component().map_or_else(|_| url.clone(), |name| url.at(url.path.join(name)));
                let (name, error) = (Some(name.to_string()), Error::new("list", at, cause));
                Unknown { directory: path.clone(), name, error }
            };
            match (name.component(), stat) {
                (Err(why), _) => {
                    let name = name.to_string();
                    listed.unknown.push(unknown(Cause::BadName { name, why }));
                }
                (Ok(_), None) => {
                    let text = "its server does not tell what it is".to_owned();
                    listed.unknown.push(unknown(Cause::NotEntered(text)));
                }
                (Ok(_), Some(_)) if !is_same => {
                    let text = "it is a directory at one server, and a file at another".to_owned();
                    listed.unknown.push(unknown(Cause::NotEntered(text)));
                }
                (Ok(name), Some(stat)) => listed.items.push(Item {
                    name: name.clone(),
                    is_directory: stat.is_dir(),
                    size: stat.size,
                    modified: stat.mtime,
                    stat: Some(stat),
                    ids,
                }),
            }
        }
    }
}

/// A walk through a tree: directories, each before those below it, those of one directory in the order in which they were
/// entered. While one is looked at, the next ones are read already.
pub struct Walk {
    tree: Tree,
    /// The next one last.
    open: Vec<(Pending, Option<AbortOnDrop<Directory>>)>,
    entered: u64,
}

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Walk({:?})", self.tree)
    }
}

impl Walk {
    /// Begins at the root of a tree.
    #[must_use]
    pub fn through(tree: Tree) -> Self {
        let root = tree.root();
        Self { tree, open: vec![(root, None)], entered: 0 }
    }

    /// What it goes through.
    #[must_use]
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The next directory; `None` when there are no more.
    pub async fn next(&mut self) -> Option<Directory> {
        for (pending, reading) in self.open.iter_mut().rev().take(AHEAD) {
            reading.get_or_insert_with(|| {
                let (tree, pending) = (self.tree.clone(), pending.clone());
                AbortOnDrop::spawn(async move { tree.read(pending).await })
            });
        }
        let (pending, reading) = self.open.pop()?;
        let read = match reading {
            Some(reading) => reading.join().await,
            None => return None,
        };
        Some(read.unwrap_or_else(|_| {
            // Its task panicked, which says so itself.
            let error = Error::new("list", self.tree.root.below(&pending.path), Cause::Closed);
            let unknown = vec![whole(&pending.path, error)];
            Tree::directory(
                self.tree.root.below(&pending.path),
                pending,
                Listed { unknown, ..Listed::default() },
            )
        }))
    }

    /// Enters directories of a directory: those come next, in this order. Those that are not entered become unknown. Tells of
    /// each whether it is entered.
    pub fn enter(&mut self, directory: &mut Directory, items: &[Item]) -> Vec<bool> {
        let mut entered_all = Vec::with_capacity(items.len());
        for item in items.iter().rev() {
            let entered = if self.entered < DIRECTORIES_MAX {
                self.tree.enter(directory, item)
            } else {
                let text = format!("there are more than {DIRECTORIES_MAX} directories");
                let error = Error::new("list", directory.child(item), Cause::NotEntered(text));
                let name = Some(item.name.to_string());
                Err(Box::new(Unknown { directory: directory.path.clone(), name, error }))
            };
            entered_all.push(entered.is_ok());
            match entered {
                Ok(pending) => {
                    self.entered += 1;
                    self.open.push((pending, None));
                }
                Err(unknown) => directory.unknown.push(*unknown),
            }
        }
        entered_all.reverse();
        entered_all
    }

    /// Enters all directories of a directory.
    pub fn enter_all(&mut self, directory: &mut Directory) {
        let items: Vec<Item> = directory.directories().cloned().collect();
        self.enter(directory, &items);
    }
}
