//! [`Removal`]: removes a directory with everything in it, contents first.

use super::{Directory, Item, Tree, Unknown, Walk};
use crate::copy::Place;
use crate::everywhere::together;
use crate::failure::{Cause, Error};
use crate::filesystem::FileSystem;

/// Files or empty directories that one step removes.
const STEP: usize = 256;

/// What became of one file or directory.
#[derive(Debug)]
pub struct Removed {
    /// Which one.
    pub place: Place,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Whether it is gone now.
    pub result: Result<(), Error>,
}

/// A directory whose contents are being removed.
struct Level {
    place: Place,
    servers: Vec<FileSystem>,
    /// Directories in it that are empty now.
    empty: Vec<(Place, Vec<FileSystem>)>,
    /// Something in it stays, so it stays too.
    stays: bool,
}

/// Removes what is below the root of a tree, and the root. Links to directories are neither followed nor removed.
#[derive(Debug)]
pub struct Removal {
    walk: Walk,
    levels: Vec<Level>,
    files: Vec<(Place, Vec<FileSystem>)>,
    is_over: bool,
}

impl std::fmt::Debug for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Level({})", self.place)
    }
}

impl Removal {
    /// Of everything in a tree.
    #[must_use]
    pub fn of(tree: Tree) -> Self {
        Self { walk: Walk::through(tree.to_remove()), levels: Vec::new(), files: Vec::new(), is_over: false }
    }

    /// Removes some more; `None` when there is nothing left to do.
    pub async fn next(&mut self) -> Option<Vec<Removed>> {
        if !self.files.is_empty() {
            let rest = self.files.split_off(self.files.len().min(STEP));
            let files = std::mem::replace(&mut self.files, rest);
            let removed = self.remove(files, false).await;
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

    /// Something in the innermost directory is not gone.
    fn note(&mut self, removed: &[Removed]) {
        if removed.iter().any(|one| one.result.is_err())
            && let Some(level) = self.levels.last_mut()
        {
            level.stays = true;
        }
    }

    fn open(&mut self, mut directory: Directory, removed: &mut Vec<Removed>) {
        self.walk.enter_all(&mut directory);
        let is_file = |item: &&Item| !item.is_directory;
        let tree = self.walk.tree();
        let files = directory.items.iter().filter(is_file);
        self.files = files.map(|item| (directory.child(item), tree.servers_at(&item.servers()))).collect();
        let Directory { place, unknown, is_missing, .. } = &directory;
        let stays = !unknown.is_empty();
        let failed = unknown.iter().map(|Unknown { error, name, .. }| Removed {
            place: place.clone(),
            is_directory: name.is_none(),
            result: Err(error.clone()),
        });
        removed.extend(failed);
        if *is_missing && !stays {
            removed.push(Removed { place: place.clone(), is_directory: true, result: Ok(()) });
            return;
        }
        let servers = tree.servers_at(&directory.at);
        self.levels.push(Level { place: directory.place, servers, empty: Vec::new(), stays });
    }

    /// Ends the directories from a depth on.
    async fn close(&mut self, depth: usize, removed: &mut Vec<Removed>) {
        while self.levels.len() > depth {
            let Some(mut level) = self.levels.pop() else { return };
            let below = self.remove(std::mem::take(&mut level.empty), true).await;
            let stays = level.stays || below.iter().any(|one| one.result.is_err());
            removed.extend(below);
            match self.levels.last_mut() {
                Some(above) if stays => above.stays = true,
                Some(above) => above.empty.push((level.place, level.servers)),
                None if stays => {}
                None => removed.extend(self.remove(vec![(level.place, level.servers)], true).await),
            }
            // Of a wide directory not all are kept until its end.
            let full = self.levels.last_mut().filter(|above| above.empty.len() >= STEP);
            if let Some(empty) = full.map(|above| std::mem::take(&mut above.empty)) {
                let below = self.remove(empty, true).await;
                self.note(&below);
                removed.extend(below);
            }
        }
    }

    async fn remove(&self, places: Vec<(Place, Vec<FileSystem>)>, is_directory: bool) -> Vec<Removed> {
        let remove = |(place, servers): (Place, Vec<FileSystem>)| {
            let tree = self.walk.tree().clone();
            async move {
                let result = tree.remove(&place, &servers, is_directory).await;
                Removed { place, is_directory, result }
            }
        };
        together(places, remove).await
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
                    done.map_err(|error| Error::new("rm", path.display(), Cause::System(error.to_string())))
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
