//! [`TreeRemoval`]: removes a directory with everything in it, contents first.

use super::{Directory, Items, Tree, UnreliableEntry, Walk};
use crate::cluster_listing::join_bounded;
use crate::copy::Place;
use crate::failure::{Cause, Error};
use crate::filesystem::FileSystem;
use crate::path::{Name, shown_path};

/// Files or empty directories that one step removes.
const STEP: usize = 256;

/// The result for one file or directory.
#[derive(Debug)]
pub struct Removed {
    /// The place.
    pub place: Place,
    /// Set for a directory.
    pub is_directory: bool,
    /// `Ok` if it no longer exists.
    pub result: Result<(), Error>,
}

impl Removed {
    /// Reports whether it may still be there. An entry that is not found does not keep its
    /// directory, because the server checks that the directory is empty.
    fn stays(&self) -> bool {
        self.result.as_ref().is_err_and(|error| !error.is_not_found())
    }
}

/// A directory whose contents are being removed.
struct RemovalLevel {
    place: Place,
    /// `None` for the root.
    name: Option<Name>,
    at: Vec<usize>,
    /// Directories in it that are empty now, and the servers that have them.
    empty: Vec<(Name, Vec<usize>)>,
    /// Set if an entry in it remains, so that it remains, too.
    stays: bool,
}

/// Removes everything below the root of a tree, and the root. Links to directories are neither
/// followed nor removed.
#[derive(Debug)]
pub struct TreeRemoval {
    walk: Walk,
    levels: Vec<RemovalLevel>,
    /// Files of the innermost directory that are not removed yet: all of its items from a number
    /// on.
    files: Option<(Items, std::ops::Range<u32>)>,
    is_over: bool,
}

impl std::fmt::Debug for RemovalLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Level({})", self.place)
    }
}

impl TreeRemoval {
    /// Creates the removal of a tree.
    #[must_use]
    pub fn of(tree: Tree) -> Self {
        Self { walk: Walk::through(tree.to_remove()), levels: Vec::new(), files: None, is_over: false }
    }

    /// Removes the next entries; `None` at the end.
    pub async fn next(&mut self) -> Option<Vec<Removed>> {
        if let Some(some) = self.next_files() {
            let removed = self.remove(some, false).await;
            self.note(&removed);
            return Some(removed);
        }
        if self.is_over {
            return None;
        }
        let mut removed = Vec::new();
        match self.walk.next().await {
            Some(directory) => {
                self.close(directory.depth, &mut removed).await;
                self.open(directory, &mut removed);
            }
            None => {
                self.close(0, &mut removed).await;
                self.is_over = true;
            }
        }
        Some(removed)
    }

    /// Returns the next files of the innermost directory.
    fn next_files(&mut self) -> Option<Vec<(Place, Vec<FileSystem>)>> {
        let (items, numbers) = self.files.as_mut()?;
        let place = &self.levels.last()?.place;
        let tree = self.walk.tree();
        let files = numbers.filter_map(|number| items.get(number)).filter(|item| !item.is_directory);
        let files = files.map(|item| (place.join(&item.name), tree.servers_at(&item.servers())));
        let some: Vec<_> = files.take(STEP).collect();
        if some.is_empty() {
            self.files = None;
            return None;
        }
        Some(some)
    }

    /// Records whether an entry of the innermost directory remains.
    fn note(&mut self, removed: &[Removed]) {
        if removed.iter().any(Removed::stays)
            && let Some(level) = self.levels.last_mut()
        {
            level.stays = true;
        }
    }

    fn open(&mut self, mut directory: Directory, removed: &mut Vec<Removed>) {
        self.walk.enter_all(&mut directory);
        let end = directory.items.numbers().next_back().map_or(0, |last| last + 1);
        self.files = Some((directory.items.clone(), 0..end));
        let Directory { place, unknown, is_missing, .. } = &directory;
        let stays = !unknown.is_empty();
        let failed = unknown.iter().map(|UnreliableEntry { error, name, .. }| Removed {
            place: place.clone(),
            is_directory: name.is_none(),
            result: Err(error.clone()),
        });
        removed.extend(failed);
        if *is_missing && !stays {
            removed.push(Removed { place: place.clone(), is_directory: true, result: Ok(()) });
            return;
        }
        let (name, place, at) = (directory.path.last(), directory.place, directory.at);
        self.levels.push(RemovalLevel { place, name, at, empty: Vec::new(), stays });
    }

    /// Closes all directories from a depth on.
    async fn close(&mut self, depth: usize, removed: &mut Vec<Removed>) {
        while self.levels.len() > depth {
            let Some(mut level) = self.levels.pop() else { return };
            let below = self.remove_empty(&mut level).await;
            let stays = level.stays || below.iter().any(Removed::stays);
            removed.extend(below);
            match self.levels.last_mut() {
                Some(above) if stays => above.stays = true,
                Some(above) => above.empty.extend(level.name.map(|name| (name, level.at))),
                None if stays => {}
                None => {
                    let servers = self.walk.tree().servers_at(&level.at);
                    removed.extend(self.remove(vec![(level.place, servers)], true).await);
                }
            }
            // A directory with many subdirectories does not keep all of them until its end.
            if let Some(mut above) = self.levels.pop_if(|above| above.empty.len() >= STEP) {
                let below = self.remove_empty(&mut above).await;
                self.levels.push(above);
                self.note(&below);
                removed.extend(below);
            }
        }
    }

    async fn remove_empty(&self, level: &mut RemovalLevel) -> Vec<Removed> {
        let empty = std::mem::take(&mut level.empty).into_iter();
        let tree = self.walk.tree();
        let places = empty.map(|(name, at)| (level.place.join(&name), tree.servers_at(&at))).collect();
        self.remove(places, true).await
    }

    async fn remove(&self, places: Vec<(Place, Vec<FileSystem>)>, is_directory: bool) -> Vec<Removed> {
        let remove = |(place, servers): (Place, Vec<FileSystem>)| {
            let tree = self.walk.tree().clone();
            async move {
                let result = tree.remove(&place, &servers, is_directory).await;
                Removed { place, is_directory, result }
            }
        };
        join_bounded(places, remove).await
    }
}

impl Tree {
    /// Removes a file or an empty directory, at each of these servers that has it.
    pub(crate) async fn remove(
        &self,
        place: &Place,
        servers: &[FileSystem],
        is_directory: bool,
    ) -> Result<(), Error> {
        match place {
            Place::Local(path) => {
                let path = path.clone();
                let remove = move || {
                    let done =
                        if is_directory { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) };
                    done.map_err(|error| {
                        Error::new("rm", shown_path(&path), Cause::System(error.to_string()))
                    })
                };
                let lost = || Err(Error::new("rm", place, Cause::Closed));
                match &self.disk {
                    Some(disk) => disk.run(remove).await.unwrap_or_else(lost),
                    None => lost(),
                }
            }
            Place::Remote(url) => {
                let (mut missing, mut is_done) = (None, false);
                for server in servers {
                    let done =
                        if is_directory { server.rmdir(&url.path).await } else { server.rm(&url.path).await };
                    match done {
                        Ok(()) => is_done = true,
                        Err(error) if error.is_not_found() => missing = Some(error),
                        Err(error) => return Err(error),
                    }
                }
                missing.filter(|_| !is_done).map_or(Ok(()), Err)
            }
            Place::Stream => Ok(()),
        }
    }
}
