//! [`PatternSearch`]: the paths of a cluster that match a pattern with wildcards.

use wire::xroot::ErrorCode;

use crate::answers::RemoteEntry;
use crate::cluster::ClusterServers;
use crate::cluster_listing::{join_bounded, list_merged};
use crate::copy::{has_wildcard, matches};
use crate::failure::{Cause, Error};
use crate::filesystem::{FileSystem, ListWith};
use crate::path::RemotePath;

/// The paths that match a pattern.
#[derive(Clone, Default, Debug)]
pub struct Matches {
    /// The matching paths, sorted.
    pub paths: Vec<RemotePath>,
    /// Reasons for missing paths: matching names that no request can carry, and servers that could
    /// not be queried.
    pub failed: Vec<Error>,
}

/// The search for the paths that match a pattern, one part of it after the other.
pub(crate) struct PatternSearch<'a> {
    files: &'a FileSystem,
    servers: Vec<FileSystem>,
    /// The paths that match the parts so far.
    found: Matches,
}

impl<'a> PatternSearch<'a> {
    /// Implements [`FileSystem::matching`].
    pub(crate) async fn run(files: &'a FileSystem, path: &str) -> Result<Matches, Error> {
        let pattern = files.url_of("list", path)?.path;
        if !has_wildcard(&pattern) {
            return Ok(Matches { paths: vec![pattern], failed: Vec::new() });
        }
        let ClusterServers { servers, failed } = files.cluster_servers("/").await?;
        let found = Matches { paths: vec![RemotePath::default()], failed };
        let mut search = Self { files, servers, found };
        search.match_parts(&pattern).await?;
        search.finish(pattern).await
    }

    /// Matches all parts of a pattern.
    async fn match_parts(&mut self, pattern: &RemotePath) -> Result<(), Error> {
        let last = pattern.split('/').count() - 1;
        // Set if the existence of the paths is known.
        let mut certain = true;
        for (index, part) in pattern.split('/').enumerate() {
            if index == 0 && part.is_empty() {
                continue;
            }
            certain = has_wildcard(part);
            if certain {
                self.match_part(part, index == last).await?;
                continue;
            }
            for path in &mut self.found.paths {
                // A literal part of the pattern.
                *path = path.map(|path| format!("{path}/{part}")).unwrap_or_default();
            }
        }
        if !certain {
            let paths = std::mem::take(&mut self.found.paths);
            self.found.paths = self.existing(paths).await?;
        }
        Ok(())
    }

    /// Returns the matches, or an error if there is none.
    async fn finish(self, pattern: RemotePath) -> Result<Matches, Error> {
        let Self { files, found, .. } = self;
        if !found.paths.is_empty() {
            return Ok(found);
        }
        // A name may contain wildcard characters.
        if files.find(&pattern).await.ok().flatten().is_some() {
            return Ok(Matches { paths: vec![pattern], failed: Vec::new() });
        }
        if !found.failed.is_empty() {
            return Ok(found);
        }
        let text = "nothing matches the pattern".to_owned();
        let cause = Cause::Server { code: ErrorCode::NOT_FOUND, text };
        Err(Error::new("list", files.url().at(pattern), cause))
    }

    /// Replaces each directory found so far by its entries that match a part of the pattern.
    async fn match_part(&mut self, part: &str, is_last: bool) -> Result<(), Error> {
        let Self { files, servers, found } = self;
        let with = ListWith { stat: !is_last, ..ListWith::default() };
        let list = |directory: RemotePath| {
            let (servers, with) = (servers.to_vec(), with.clone());
            async move {
                let path = if directory.is_empty() { RemotePath::root() } else { directory };
                let listed = list_merged(&servers, &path, &with).await;
                (path, listed)
            }
        };
        let mut next = Vec::new();
        for (directory, listed) in join_bounded(std::mem::take(&mut found.paths), list).await {
            let merged = match listed {
                Ok(merged) => merged,
                // The path in front of the wildcard is missing or not a directory.
                Err(error) if is_no_directory(&error) => continue,
                Err(error) => return Err(error),
            };
            found.failed.extend(merged.failed);
            let is_directory = |entry: &RemoteEntry| entry.stat.as_ref().is_some_and(|stat| stat.is_dir());
            let matching = merged.entries.iter().filter(|entry| matches(part, &entry.name));
            for entry in matching {
                match entry.name.component() {
                    Ok(name) if is_last || is_directory(&entry) => next.push(directory.join(name)),
                    Ok(_) => {}
                    Err(_) => {
                        let at = files.url().at(directory.clone());
                        found.failed.push(Error::bad_name("list", at, &entry.name));
                    }
                }
            }
        }
        next.sort();
        found.paths = next;
        Ok(())
    }

    /// Returns the paths that exist.
    async fn existing(&self, paths: Vec<RemotePath>) -> Result<Vec<RemotePath>, Error> {
        let look = |path: RemotePath| {
            let files = self.files.clone();
            async move {
                let found = files.find(&path).await;
                found.map(|found| found.map(|_| path))
            }
        };
        let looked: Result<Vec<_>, Error> = join_bounded(paths, look).await.into_iter().collect();
        Ok(looked?.into_iter().flatten().collect())
    }
}

fn is_no_directory(error: &Error) -> bool {
    matches!(error.code(), Some(ErrorCode::NOT_FOUND | ErrorCode::FS_ERROR | ErrorCode::NOT_FILE))
}
