//! Makes a folder like another one: copies what is missing or different, and removes what is too much when told to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use digest::{Algorithm, Running};
use tokio::sync::mpsc;

use super::Copier;
use super::failure::{CopyError, Side};
use super::options::{CopyJob, CopyOptions, Watch};
use super::place::Place;
use super::target::unless_stopped;
use super::tree::{Listener, Tally};
use crate::filesystem::ListWith;
use crate::path::{EntryName, RelativePath};

/// When two files count as equal. Sizes are compared in any case.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Equal {
    /// The target is not older than the source.
    #[default]
    Time,
    /// Their checksums are the same.
    Checksum(Algorithm),
    /// Nothing else counts.
    Size,
}

/// What is to become like what.
#[derive(Clone, Debug)]
pub struct Sync {
    /// The folder that is the model.
    pub source: Place,
    /// The folder that is to be like it.
    pub target: Place,
    /// When files count as equal.
    pub equal: Equal,
    /// What the source does not have is removed.
    pub delete: bool,
    /// Nothing is done, it is only said what would be.
    pub dry_run: bool,
    /// Most copies at once.
    pub parallel: usize,
    /// How files are copied.
    pub options: CopyOptions,
}

/// What is done to one path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// It is copied, of so many bytes: it is missing, or not equal.
    Copy(Place, u64),
    /// It is removed, as the source does not have it.
    Remove(Place),
    /// A folder is removed, which is empty by then.
    RemoveFolder(Place),
}

/// A file or folder below one of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Found {
    is_folder: bool,
    size: u64,
    /// Seconds since the epoch.
    modified: i64,
}

/// What is below a directory.
#[derive(Default)]
struct Tree {
    entries: BTreeMap<RelativePath, Found>,
    /// Names that cannot be carried to the other side, or in any request.
    refused: Vec<CopyError>,
}

type Named = (RelativePath, Found);

impl Copier {
    /// Makes `sync.target` like `sync.source`. `tell` hears of each step before it is taken.
    ///
    /// # Errors
    /// [`CopyError`] when one of the folders cannot be read, or it was stopped. Single failures are told to `listener`.
    pub async fn sync(
        &self,
        sync: &Sync,
        tell: impl Fn(&Step),
        listener: Arc<dyn Listener>,
        watch: &Watch,
    ) -> Result<Tally, CopyError> {
        let source = unless_stopped(watch, self.tree(&sync.source, Side::Source)).await?;
        let source = source.ok_or_else(|| {
            CopyError::Usage(format!("{} is no directory; scalla cp copies single files", sync.source))
        })?;
        let target = unless_stopped(watch, self.tree(&sync.target, Side::Target)).await?.unwrap_or_default();
        let mut tally = Tally::default();
        for error in source.refused.iter().chain(&target.refused) {
            listener.missed(error);
            tally.failed += 1;
        }
        let (copies, mut removals) = plan(&source, &target);
        if !source.refused.is_empty() {
            // What stands for a name that cannot be compared must not be taken for surplus.
            removals.clear();
        }
        let jobs = unless_stopped(watch, self.unequal(sync, copies, &target)).await?;
        for job in &jobs {
            tell(&Step::Copy(job.target.clone(), job.size.unwrap_or(0)));
        }
        if !sync.dry_run {
            // What is there is older or different: it is replaced when the new one is whole.
            let options = CopyOptions { force: true, preserve: true, ..sync.options.clone() };
            let (found, queue) = mpsc::channel(jobs.len().max(1));
            for job in jobs {
                listener.found(&job);
                // There is room for all of them.
                found.try_send(job).ok();
            }
            drop(found);
            let made = async {
                self.make_folders(&sync.target, &source, &target, &listener, &mut tally).await;
                Ok(())
            };
            unless_stopped(watch, made).await?;
            let copied = self.copy_found(queue, &options, sync.parallel, listener.clone(), watch).await?;
            tally = Tally { failed: tally.failed + copied.failed, ..copied };
        }
        if sync.delete {
            self.remove(sync, &removals, &tell, &listener, watch, &mut tally).await?;
        }
        Ok(tally)
    }

    /// Those that have to be copied, in their order. They are looked at one after the other: servers of release 5 fail when they
    /// have to sum up several files at once.
    async fn unequal(
        &self,
        sync: &Sync,
        copies: Vec<Named>,
        target: &Tree,
    ) -> Result<Vec<CopyJob>, CopyError> {
        let mut jobs = Vec::new();
        for (name, found) in copies {
            let job = CopyJob {
                source: sync.source.below(&name),
                target: sync.target.below(&name),
                size: Some(found.size),
            };
            if !self.is_equal(&job, found, target.entries.get(&name).copied(), sync.equal).await? {
                jobs.push(job);
            }
        }
        Ok(jobs)
    }

    /// Folders that the target does not have, those above first: local ones are needed by the files in them, and those at
    /// servers may be empty.
    async fn make_folders(
        &self,
        root: &Place,
        source: &Tree,
        target: &Tree,
        listener: &Arc<dyn Listener>,
        tally: &mut Tally,
    ) {
        let missing = source
            .entries
            .iter()
            .filter(|(name, found)| found.is_folder && !target.entries.contains_key(*name));
        let places = missing.map(|(name, _)| root.below(name));
        for place in std::iter::once(root.clone()).chain(places) {
            let made = match &place {
                Place::Local(path) => {
                    let path = path.clone();
                    let make = move || {
                        let made = std::fs::create_dir_all(&path);
                        made.map_err(|error| CopyError::local("mkdir", &path, &error))
                    };
                    self.disk.run(make).await.unwrap_or(Err(CopyError::Cancelled))
                }
                Place::Remote(url) => {
                    let made = self.client.file_system(url).mkdir_all(&url.path, 0o755).await;
                    made.map_err(CopyError::target)
                }
                Place::Stream => Ok(()),
            };
            if let Err(error) = made {
                listener.missed(&error);
                tally.failed += 1;
            }
        }
    }

    async fn remove(
        &self,
        sync: &Sync,
        removals: &[Named],
        tell: &impl Fn(&Step),
        listener: &Arc<dyn Listener>,
        watch: &Watch,
        tally: &mut Tally,
    ) -> Result<(), CopyError> {
        for (name, found) in removals {
            let place = sync.target.below(name);
            let step =
                if found.is_folder { Step::RemoveFolder(place.clone()) } else { Step::Remove(place.clone()) };
            tell(&step);
            if sync.dry_run {
                continue;
            }
            match unless_stopped(watch, self.remove_one(&place, found.is_folder)).await {
                Ok(()) => {}
                Err(CopyError::Cancelled) => return Err(CopyError::Cancelled),
                Err(error) => {
                    listener.missed(&error);
                    tally.failed += 1;
                }
            }
        }
        Ok(())
    }

    async fn remove_one(&self, place: &Place, is_folder: bool) -> Result<(), CopyError> {
        match place {
            Place::Local(path) => {
                let path = path.clone();
                let remove = move || {
                    let removed =
                        if is_folder { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) };
                    removed.map_err(|error| CopyError::local("remove", &path, &error))
                };
                self.disk.run(remove).await.unwrap_or(Err(CopyError::Cancelled))
            }
            Place::Remote(url) => {
                let files = self.client.file_system(url);
                let removed =
                    if is_folder { files.rmdir(&url.path).await } else { files.rm(&url.path).await };
                removed.map_err(CopyError::target)
            }
            Place::Stream => Ok(()),
        }
    }

    async fn is_equal(
        &self,
        job: &CopyJob,
        source: Found,
        target: Option<Found>,
        equal: Equal,
    ) -> Result<bool, CopyError> {
        let Some(target) = target.filter(|target| !target.is_folder && target.size == source.size) else {
            return Ok(false);
        };
        match equal {
            Equal::Size => Ok(true),
            Equal::Time => Ok(target.modified >= source.modified),
            Equal::Checksum(algorithm) => {
                let (source, target) = tokio::try_join!(
                    self.checksum_of(&job.source, algorithm, Side::Source),
                    self.checksum_of(&job.target, algorithm, Side::Target),
                )?;
                Ok(source == target)
            }
        }
    }

    /// In lower-case hexadecimal.
    async fn checksum_of(
        &self,
        place: &Place,
        algorithm: Algorithm,
        side: Side,
    ) -> Result<String, CopyError> {
        match place {
            Place::Local(path) => {
                let path = path.clone();
                let sum = move || local_checksum(&path, algorithm);
                self.disk.run(sum).await.unwrap_or(Err(CopyError::Cancelled))
            }
            Place::Remote(url) => {
                let sum = self.client.file_system(url).checksum(&url.path, Some(algorithm.name())).await;
                let sum = sum.map_err(|error| CopyError::Remote { side, error })?;
                // Some servers leave leading zeros out.
                Ok(format!("{:0>width$}", sum.value.to_ascii_lowercase(), width = algorithm.bytes() * 2))
            }
            Place::Stream => Ok(String::new()),
        }
    }

    /// Everything below a folder by its path from there; `None` when there is no such folder.
    async fn tree(&self, root: &Place, side: Side) -> Result<Option<Tree>, CopyError> {
        let mut tree = Tree::default();
        let mut folders = vec![RelativePath::default()];
        while let Some(folder) = folders.pop() {
            let place = root.below(&folder);
            let Some(entries) = self.found(&place, side).await? else {
                if folder.is_empty() {
                    return Ok(None);
                }
                continue;
            };
            for (name, found) in entries {
                let name = match name.component() {
                    Ok(name) => name,
                    Err(why) => {
                        tree.refused.push(CopyError::name(&place, name.as_str(), why));
                        continue;
                    }
                };
                let path = folder.join(name);
                if found.is_folder {
                    folders.push(path.clone());
                }
                tree.entries.insert(path, found);
            }
        }
        Ok(Some(tree))
    }

    async fn found(&self, place: &Place, side: Side) -> Result<Option<Vec<(EntryName, Found)>>, CopyError> {
        match place {
            Place::Local(path) => {
                let path = path.clone();
                let list = move || local_found(&path);
                self.disk.run(list).await.unwrap_or(Err(CopyError::Cancelled))
            }
            Place::Remote(url) => {
                let with = ListWith { stat: true, ..ListWith::default() };
                let listed = match self.client.file_system(url).list_everywhere(&url.path, &with).await {
                    Ok(listed) => listed,
                    Err(error) if error.is_not_found() => return Ok(None),
                    Err(error) => return Err(CopyError::Remote { side, error }),
                };
                // What a server that cannot be asked has must not look as if it were not there: it might be removed.
                if let Some(error) = listed.failed.into_iter().next() {
                    return Err(CopyError::Remote { side, error });
                }
                // A cluster without servers says nothing about what is there.
                if listed.servers.is_empty() {
                    return Ok(None);
                }
                let found = |entry: crate::answers::Entry| {
                    // A name that cannot be carried has no status at servers that do not list it.
                    let refused = entry.name.component().is_err();
                    let found = match entry.stat {
                        None if refused => Found { is_folder: false, size: 0, modified: 0 },
                        stat => {
                            let stat = stat?;
                            Found { is_folder: stat.is_dir(), size: stat.size, modified: stat.mtime }
                        }
                    };
                    Some((entry.name, found))
                };
                Ok(Some(listed.entries.into_iter().filter_map(found).collect()))
            }
            Place::Stream => Ok(None),
        }
    }
}

/// Files of the source, in order; and what only the target has, contents before their folders. What is a folder on one
/// side and a file on the other is left alone: the copy will say so.
fn plan(source: &Tree, target: &Tree) -> (Vec<Named>, Vec<Named>) {
    let files = source.entries.iter().filter(|(_, found)| !found.is_folder);
    let copies = files.map(|(name, found)| (name.clone(), *found)).collect();
    let surplus = target.entries.iter().filter(|(name, _)| !source.entries.contains_key(*name));
    let removals = surplus.rev().map(|(name, found)| (name.clone(), *found)).collect();
    (copies, removals)
}

fn local_found(path: &std::path::Path) -> Result<Option<Vec<(EntryName, Found)>>, CopyError> {
    let fail = |error| CopyError::local("list", path, &error);
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(fail)?;
        let name = EntryName::from_os(&entry.file_name());
        // Links to files count as these; folders behind links are not walked.
        let link = entry.file_type().map_err(fail)?.is_symlink();
        let Ok(meta) = std::fs::metadata(entry.path()) else { continue };
        if (link && meta.is_dir()) || !(meta.is_dir() || meta.is_file()) {
            continue;
        }
        let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified = modified.and_then(|time| i64::try_from(time.as_secs()).ok()).unwrap_or(0);
        found.push((name, Found { is_folder: meta.is_dir(), size: meta.len(), modified }));
    }
    Ok(Some(found))
}

fn local_checksum(path: &std::path::Path, algorithm: Algorithm) -> Result<String, CopyError> {
    use std::io::Read;
    let fail = |error| CopyError::local("read", path, &error);
    let mut file = std::fs::File::open(path).map_err(fail)?;
    let (mut running, mut buffer) = (Running::new(algorithm), vec![0; 1024 * 1024]);
    loop {
        match file.read(&mut buffer).map_err(fail)? {
            0 => return Ok(running.finish().hex()),
            count => running.update(buffer.get(..count).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Name;

    #[test]
    fn files_are_copied_and_the_surplus_goes_from_the_leaves_on() {
        let file = Found { is_folder: false, size: 1, modified: 0 };
        let folder = Found { is_folder: true, ..file };
        let path = |text: &str| {
            let names = text.split('/').map(|name| Name::new(name).unwrap());
            names.fold(RelativePath::default(), |path, name| path.join(&name))
        };
        let tree = |entries: &[(&str, Found)]| Tree {
            entries: entries.iter().map(|(name, found)| (path(name), *found)).collect(),
            refused: Vec::new(),
        };
        let source = tree(&[("a", file), ("d", folder), ("d/b", file)]);
        let target = tree(&[("d", folder), ("d/old", folder), ("d/old/x", file), ("z", file)]);
        let (copies, removals) = plan(&source, &target);
        let names = |list: &[Named]| list.iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&copies), ["a", "d/b"]);
        assert_eq!(names(&removals), ["z", "d/old/x", "d/old"]);
    }
}
