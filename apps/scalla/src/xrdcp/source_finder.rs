//! The files to copy, found one by one: named files, and those of directories.

use super::error_texts::status_of_metalink;
use super::failure::{FILE_STATUS, XrdcpFailure, local_failure, request_failure};
use super::options::XrdcpOptions;
use super::place_names::{absolute, named_place};
use crate::xrootd_compat::{CopySide, XrdClStatus, code};
use client::Url;
use client::copy::{Copier, CopyError, CopyOptions, Place, TargetPath};
use client::walk::{Directory, Tree, Walk};
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

/// A source and its name below the target, which begins with the name of the given directory.
pub(super) struct FoundSource {
    pub(super) place: Place,
    pub(super) relative_path: Option<PathBuf>,
    pub(super) size: Option<u64>,
    /// The reason why it cannot be copied.
    pub(super) refused: Option<XrdClStatus>,
}

impl FoundSource {
    fn file(place: Place, below: Option<PathBuf>, size: Option<u64>) -> Self {
        Self { place, relative_path: below, size, refused: None }
    }
}

/// The sources of a command line that have not been found yet.
pub(super) struct SourceFinder {
    words: IntoIter<String>,
    target: Place,
    recursive: bool,
    source_cgi: String,
    zip_member: Option<String>,
    options: CopyOptions,
    copier: Copier,
    /// The directory that is searched.
    tree: Option<TreeFiles>,
    /// Set while copies run, so that a listing can contain their results.
    is_copying: bool,
}

impl SourceFinder {
    pub(super) fn new(
        words: Vec<String>,
        target: Place,
        command: &XrdcpOptions,
        options: &CopyOptions,
        copier: &Copier,
    ) -> Self {
        Self {
            words: words.into_iter(),
            target,
            recursive: command.recursive,
            source_cgi: command.source_cgi.clone(),
            zip_member: command.zip_member.clone(),
            options: options.clone(),
            copier: copier.clone(),
            tree: None,
            is_copying: false,
        }
    }

    /// Prepares the search for copies that run at the same time: a directory that leads to its own
    /// target is no longer searched.
    ///
    /// # Errors
    /// [`XrdcpFailure`] if the target is inside the directory that is being searched. Nothing has
    /// been copied yet.
    pub(super) async fn begin_copies(&mut self) -> Result<(), XrdcpFailure> {
        self.is_copying = true;
        let Some(tree) = &mut self.tree else { return Ok(()) };
        let root = tree.walk.tree().place().clone();
        let checked = tree.outside(&root, Path::new(""), None, (&self.copier, &self.target)).await;
        checked.map_err(XrdcpFailure::Run)
    }

    /// Returns the next source, or `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<FoundSource>, XrdcpFailure> {
        let mut found = loop {
            if let Some(tree) = &mut self.tree {
                let copying = self.is_copying.then_some((&self.copier, &self.target));
                match tree.next(copying).await? {
                    Some(found) => break found,
                    None => self.tree = None,
                }
                continue;
            }
            let Some(word) = self.words.next() else { return Ok(None) };
            let source = named_place(&word, false, &self.source_cgi)?;
            let file = match &source {
                Place::Local(path) => self.local(&word, path)?,
                Place::Remote(url) => self.remote(url).await?,
                Place::Stream => Some(FoundSource::file(source, None, None)),
            };
            if let Some(found) = file {
                break found;
            }
        };
        if found.refused.is_none() {
            self.apply_metalink(&mut found).await?;
        }
        Ok(Some(found))
    }

    /// Takes size and name of a metalink.
    async fn apply_metalink(&self, found: &mut FoundSource) -> Result<(), XrdcpFailure> {
        let metalink = self.copier.metalink(&found.place, &self.options).await;
        let metalink = metalink.map_err(|error| XrdcpFailure::Prepare(status_of_metalink(&error)))?;
        if let Some(metalink) = metalink {
            found.size = metalink.size;
            if self.options.member_of(&found.place).is_none() {
                found.relative_path =
                    metalink.name.map(|name| name.as_str().into()).or(found.relative_path.take());
            }
        }
        Ok(())
    }

    /// Returns a local file, or begins to search a directory.
    fn local(&mut self, word: &str, path: &Path) -> Result<Option<FoundSource>, XrdcpFailure> {
        let metadata = std::fs::metadata(path).map_err(|error| local_failure(&error, word))?;
        if !metadata.is_dir() {
            let (place, below) = (Place::Local(path.to_owned()), path.file_name().map(PathBuf::from));
            return Ok(Some(FoundSource::file(place, below, Some(metadata.len()))));
        }
        if !self.recursive {
            return Err(XrdcpFailure::Plain(format!("xrdcp: {word} is a directory.\n"), FILE_STATUS));
        }
        let name = absolute(path).file_name().map_or_else(PathBuf::new, PathBuf::from);
        // Like the real program, follows links. A link back to an ancestor is a failure.
        let tree = self.copier.tree_here(path, &self.target).following_links();
        self.tree = Some(TreeFiles::of(tree, name));
        Ok(None)
    }

    /// Returns a remote file, or begins to search a directory.
    async fn remote(&mut self, url: &Url) -> Result<Option<FoundSource>, XrdcpFailure> {
        let named = url.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let named = PathBuf::from(named);
        let member = url.cgi.get("xrdcl.unzip").or(self.zip_member.as_ref());
        let member = member.and_then(|member| member.rsplit('/').next());
        let below = member.map_or_else(|| named.clone(), PathBuf::from);
        let fs = self.copier.client().file_system(url);
        if !self.recursive || !fs.is_dir(&url.path).await.map_err(request_failure)? {
            return Ok(Some(FoundSource::file(Place::Remote(url.clone()), Some(below), None)));
        }
        let root = url.at(url.path.without_slashes());
        let tree = Tree::at_server(&fs, &root).await.map_err(request_failure)?;
        self.tree = Some(TreeFiles::of(tree, named));
        Ok(None)
    }
}

/// The files of a tree.
struct TreeFiles {
    /// The name of the root at the target.
    named: PathBuf,
    walk: Walk,
    /// The current directory, and the numbers of its items that follow.
    current: Option<(Directory, IntoIter<u32>)>,
    /// The comparison with the target, while copies run.
    target_path: Option<TargetPath>,
}

impl TreeFiles {
    fn of(tree: Tree, named: PathBuf) -> Self {
        // Jobs are numbered in breadth-first order, like those of the real program.
        Self { named, walk: Walk::through(tree).nearest_first(), current: None, target_path: None }
    }

    /// Returns the next file. After a failure the search can go on. While files are copied to a
    /// target, directories that lead to it are refused, because the search would find the copies.
    async fn next(
        &mut self,
        copying: Option<(&Copier, &Place)>,
    ) -> Result<Option<FoundSource>, XrdcpFailure> {
        loop {
            if let Some((directory, numbers)) = &mut self.current {
                let mut items = numbers.filter_map(|number| directory.items.get(number));
                if let Some(item) = items.find(|item| !item.is_directory) {
                    let below = self.named.join(directory.path.to_path()).join(item.name.to_os());
                    return Ok(Some(FoundSource::file(directory.child(&item), Some(below), Some(item.size))));
                }
                // An unreadable part is a failure, even at a single server of a cluster, because
                // the copy would be incomplete.
                if let Some(unknown) = directory.unknown.pop() {
                    let refused = Some(XrdClStatus::from(unknown.error).at(CopySide::Source));
                    let place = directory.place.clone();
                    return Ok(Some(FoundSource { place, relative_path: None, size: None, refused }));
                }
            }
            let Some(mut directory) = self.walk.next().await else { return Ok(None) };
            if let Some(copying) = copying {
                let (place, path) = (&directory.place, directory.path.to_path());
                let outside = self.outside(place, &path, directory.server_number(), copying).await;
                if let Err(status) = outside {
                    let (place, refused) = (directory.place, Some(status));
                    return Ok(Some(FoundSource { place, relative_path: None, size: None, refused }));
                }
            }
            let whole = directory.unknown.iter().find(|unknown| unknown.name.is_none());
            if let Some(whole) = whole.filter(|_| directory.items.is_empty()) {
                return Err(request_failure(whole.error.clone()));
            }
            self.walk.enter_all(&mut directory);
            directory.unknown.reverse();
            let numbers: Vec<u32> = directory.items.numbers().collect();
            self.current = Some((directory, numbers.into_iter()));
        }
    }

    /// Refuses a directory that leads to the place to which it is copied. Local links are followed,
    /// so each directory of this machine is compared, too.
    async fn outside(
        &mut self,
        source: &Place,
        path: &Path,
        number: Option<u64>,
        (copier, target): (&Copier, &Place),
    ) -> Result<(), XrdClStatus> {
        let to = below(target, &self.named.join(path));
        let checked = match source {
            Place::Local(_) => copier.not_nested(source, &to).await,
            Place::Remote(_) | Place::Stream => {
                let target_path = match &mut self.target_path {
                    Some(known) => known,
                    unknown => {
                        let root = self.walk.tree().place();
                        unknown.insert(TargetPath::between(copier, root, target).await)
                    }
                };
                target_path.check(copier, source, number, &to).await
            }
        };
        checked.map_err(|error| match error {
            CopyError::Usage(text) => XrdClStatus::error(code::NOT_SUPPORTED).with_message(text),
            other => XrdClStatus::error(code::INTERNAL).with_message(other.to_string()),
        })
    }
}

/// Returns a place below a target, or the target if no request can carry the name.
fn below(target: &Place, path: &Path) -> Place {
    let place = path.iter().try_fold(target.clone(), |place, name| place.join_os(name));
    place.unwrap_or_else(|_| target.clone())
}
