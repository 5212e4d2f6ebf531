//! Operations on all servers of a cluster: merged listings, directories and paths with wildcards.
//!
//! They exist because a manager redirects each request to one server, which knows only its own
//! files.

use std::collections::{BTreeMap, BTreeSet};

use tokio::task::JoinSet;
use wire::xroot::ErrorCode;
use wire::xroot::flags::LocateOptions;

use crate::answers::RemoteEntry;
use crate::copy::{has_wildcard, matches};
use crate::entries::{Entries, ServerListing};
use crate::failure::{Cause, Error};
use crate::filesystem::{
    DEEP_LOCATE_MANAGERS_MAX, DEEP_LOCATE_NODES_MAX, DeepLocations, FileSystem, ListWith,
};
use crate::listing_memory::ListingMemory;
use crate::listings::ListingRequest;
use crate::path::RemotePath;

/// Maximum number of requests of one call in flight.
const AT_ONCE: usize = 64;

/// A directory merged from the listings of all servers that have it.
#[derive(Debug)]
pub struct Merged {
    /// Entries without duplicates, sorted by name.
    pub entries: Entries,
    /// The servers that have the directory.
    pub servers: Vec<FileSystem>,
    /// Errors of the servers that could not be queried, and of managers whose servers are not
    /// known. Entries that only they have are missing.
    pub failed: Vec<Error>,
}

/// The paths that match a pattern.
#[derive(Clone, Default, Debug)]
pub struct Matches {
    /// The matching paths, sorted.
    pub paths: Vec<RemotePath>,
    /// Reasons for missing paths: matching names that no request can carry, and servers that could
    /// not be queried.
    pub failed: Vec<Error>,
}

/// Applies `work` to all items with bounded concurrency. The results are in the order of the items.
pub async fn join_bounded<T, R, F>(items: impl IntoIterator<Item = T>, work: impl Fn(T) -> F) -> Vec<R>
where
    F: Future<Output = R> + Send + 'static,
    R: Send + 'static,
{
    let mut tasks = JoinSet::new();
    let mut done = BTreeMap::new();
    let mut keep = |ended: Result<(usize, R), tokio::task::JoinError>| match ended {
        Ok((index, result)) => drop(done.insert(index, result)),
        Err(error) => {
            if let Ok(panic) = error.try_into_panic() {
                std::panic::resume_unwind(panic);
            }
        }
    };
    for (index, item) in items.into_iter().enumerate() {
        if tasks.len() >= AT_ONCE
            && let Some(ended) = tasks.join_next().await
        {
            keep(ended);
        }
        let work = work(item);
        tasks.spawn(async move { (index, work.await) });
    }
    while let Some(ended) = tasks.join_next().await {
        keep(ended);
    }
    done.into_values().collect()
}

/// Lists a directory at each of these servers, in their order.
async fn list_at_each(
    servers: &[FileSystem],
    path: &str,
    with: &ListWith,
    memory: &ListingMemory,
) -> Vec<(FileSystem, Result<Vec<ServerListing>, Error>)> {
    if let [files] = servers {
        return vec![(files.clone(), ListingRequest { files, path, memory }.send(with).await)];
    }
    let list = |server: FileSystem| {
        let (path, with, memory) = (path.to_owned(), with.clone(), memory.clone());
        async move {
            let request = ListingRequest { files: &server, path: &path, memory: &memory };
            let listed = request.send(&with).await;
            (server, listed)
        }
    };
    join_bounded(servers.iter().cloned(), list).await
}

/// Lists a directory at all of these servers and merges the replies. Servers without the directory
/// are ignored, unless none has it.
///
/// # Errors
/// [`Error`] of one of the servers if none of them lists it.
pub async fn list_merged(servers: &[FileSystem], path: &str, with: &ListWith) -> Result<Merged, Error> {
    merge_listings(servers, Vec::new(), path, with).await
}

/// Implements [`list_merged`]. `failed` are the errors of managers whose servers are not known.
async fn merge_listings(
    servers: &[FileSystem],
    failed: Vec<Error>,
    path: &str,
    with: &ListWith,
) -> Result<Merged, Error> {
    let mut merged = Merged { entries: Entries::default(), servers: Vec::new(), failed };
    let mut found = Vec::new();
    let mut missing = None;
    let Some(first) = servers.first() else { return Ok(merged) };
    let memory = first.client().listing_memory();
    for (server, listed) in list_at_each(servers, path, with, &memory).await {
        match listed {
            Ok(listings) => {
                found.extend(listings.into_iter().map(|listing| (merged.servers.len(), listing)));
                merged.servers.push(server);
            }
            Err(error) if error.is_not_found() => missing = Some(error),
            Err(error) => merged.failed.push(error),
        }
    }
    merged.entries = Entries::merge(found).map_err(|cause| first.error("list", path, cause))?;
    if merged.servers.is_empty()
        && let Some(error) = merged.failed.pop().or(missing)
    {
        return Err(error);
    }
    Ok(merged)
}

/// The servers of a cluster that are expected and disconnected.
#[derive(Clone, Default, Debug)]
pub struct AwayServers {
    /// Their number.
    pub count: u64,
    /// The addresses of servers, and of supervisors with all servers below them.
    pub addresses: Vec<String>,
    /// Managers that do not report them, as those of XRootD.
    pub unknown_at: Vec<String>,
    /// Managers that cannot report them yet, because they have started a short time ago. Servers
    /// below them are in none of these fields.
    pub restarted: Vec<String>,
    /// The addresses of the connected servers.
    pub present: BTreeSet<String>,
}

impl AwayServers {
    /// Records the reply of a manager. Returns the addresses in it.
    fn record<'a>(&mut self, manager: &str, reply: Option<&'a str>) -> Vec<&'a str> {
        let mut words = reply.unwrap_or_default().split_ascii_whitespace();
        match words.next() {
            Some("unknown") => self.restarted.push(manager.to_owned()),
            first => match first.and_then(|count| count.parse::<u64>().ok()) {
                Some(count) => {
                    self.count = self.count.saturating_add(count);
                    return words.collect();
                }
                None => self.unknown_at.push(manager.to_owned()),
            },
        }
        Vec::new()
    }
}

/// The servers of a cluster.
#[derive(Debug)]
pub struct ClusterServers {
    /// The known servers.
    pub servers: Vec<FileSystem>,
    /// Errors of managers whose servers are not known.
    pub failed: Vec<Error>,
}

impl ClusterServers {
    /// Returns the servers, or an error if they are not all servers of the cluster.
    fn all(mut self) -> Result<Vec<FileSystem>, Error> {
        self.failed.pop().map_or(Ok(self.servers), Err)
    }
}

impl FileSystem {
    /// Returns the servers that the cluster of a manager expects and that are disconnected, as its
    /// managers and supervisors report them (`query config scalla.away`). A single server has none.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn servers_away(&self, path: &str) -> Result<AwayServers, Error> {
        let mut away = AwayServers::default();
        let here = self.first_answering().await?;
        if !here.client().channel(here.url()).await?.is_manager() {
            return Ok(away);
        }
        let options = LocateOptions::PREFNAME | LocateOptions::FOR_DIRLIST | LocateOptions::COMPRESS;
        let (mut seen, mut named, mut present) = (BTreeSet::new(), Vec::new(), Vec::new());
        let mut open = vec![here];
        while let Some(manager) = open.pop() {
            let address = manager.url().authority();
            if !seen.insert(address.clone()) {
                continue;
            }
            if seen.len() > DEEP_LOCATE_MANAGERS_MAX {
                return Err(self.too_many("query", path, DEEP_LOCATE_MANAGERS_MAX));
            }
            let reported = manager.config(&["scalla.away"]).await?.pop().flatten();
            let servers = away.record(&address, reported.as_deref());
            named.extend(servers.into_iter().map(|server| (server.to_owned(), address.clone())));
            if away.restarted.contains(&address) {
                // It may have no server yet, so a locate would fail.
                continue;
            }
            for location in manager.locate(&format!("*{path}"), options).await? {
                if location.is_manager {
                    open.push(manager.beside(&location));
                } else {
                    away.present.insert(self.beside(&location).url().authority());
                    present.push((location.address, address.clone()));
                }
            }
            if open.len() + named.len() + present.len() > DEEP_LOCATE_NODES_MAX {
                return Err(self.too_many("query", path, DEEP_LOCATE_NODES_MAX));
            }
        }
        for (server, manager) in named {
            // A server that a supervisor has lost may be below another one by now.
            let is_elsewhere = present.iter().any(|(other, at)| *other == server && *at != manager);
            if is_elsewhere {
                away.count = away.count.saturating_sub(1);
            } else {
                away.addresses.push(server);
            }
        }
        Ok(away)
    }

    /// Returns this name space at the first of several hosts that answers.
    async fn first_answering(&self) -> Result<Self, Error> {
        let mut places = self.url().each();
        let mut place = places.next().unwrap_or_else(|| self.url().clone());
        loop {
            match (self.client().channel(&place).await, places.next()) {
                (Ok(_), _) => return Ok(self.client().file_system(&place)),
                (Err(_), Some(next)) => place = next,
                (Err(error), None) => return Err(error),
            }
        }
    }

    /// Returns the servers that may have a path: this server, or all servers of its cluster if it
    /// is a manager.
    ///
    /// # Errors
    /// [`Error`], also of one of several managers.
    pub async fn servers(&self, path: &str) -> Result<Vec<Self>, Error> {
        self.cluster_servers(path).await?.all()
    }

    /// Returns the servers that may have a path, and the errors of managers whose servers are not
    /// known.
    ///
    /// # Errors
    /// [`Error`] if no server is known.
    pub async fn cluster_servers(&self, path: &str) -> Result<ClusterServers, Error> {
        let here = self.first_answering().await?;
        if !here.client().channel(here.url()).await?.is_manager() {
            return Ok(ClusterServers { servers: vec![self.clone()], failed: Vec::new() });
        }
        let options = LocateOptions::PREFNAME | LocateOptions::FOR_DIRLIST | LocateOptions::COMPRESS;
        let DeepLocations { servers, failed } = here.locate_each(&format!("*{path}"), options).await?;
        let servers = servers.iter().map(|location| self.beside(location)).collect();
        Ok(ClusterServers { servers, failed })
    }

    /// Returns the servers that have a path: this server, or the servers of its cluster that report
    /// the path if it is a manager.
    ///
    /// # Errors
    /// [`Error`], also of one of several managers.
    pub async fn holders(&self, path: &str) -> Result<Vec<Self>, Error> {
        if !self.client().channel(self.url()).await?.is_manager() {
            return Ok(vec![self.clone()]);
        }
        let DeepLocations { servers, failed } = self.locate_each(path, LocateOptions::PREFNAME).await?;
        let servers = servers.iter().map(|location| self.beside(location)).collect();
        ClusterServers { servers, failed }.all()
    }

    /// Creates a directory at each server that may hold files in it. In a cluster these are all
    /// servers with write access to the path, so that every file in it finds the directory. Without
    /// `parents`, servers without the parent directory are ignored, unless all lack it. An existing
    /// directory is not an error if another server has created it.
    ///
    /// # Errors
    /// [`Error`] of the locate, of a manager whose servers are not known, or of one of the servers;
    /// the other servers have the directory then.
    pub async fn mkdir_everywhere(&self, path: &str, mode: u16, parents: bool) -> Result<(), Error> {
        let ClusterServers { servers, failed: mut unknown } = self.cluster_servers(path).await?;
        let several = servers.len() > 1 || !unknown.is_empty();
        let make = |server: Self| {
            let path = path.to_owned();
            async move {
                if parents {
                    server.mkdir_all(&path, mode).await
                } else {
                    server.mkdir(&path, mode, false).await
                }
            }
        };
        let (mut made, mut there, mut missing, mut failed) = (false, None, None, None);
        for result in join_bounded(servers, make).await {
            match result {
                Ok(()) => made = true,
                Err(error) => match error.code() {
                    // It may also exist because a server with the same disks was faster.
                    Some(ErrorCode::IT_EXISTS) if several => there = Some(error),
                    Some(ErrorCode::NOT_FOUND) => missing = Some(error),
                    Some(ErrorCode::FS_READ_ONLY) if several => missing = missing.or(Some(error)),
                    _ => failed = Some(error),
                },
            }
        }
        match failed.or(unknown.pop()).or(there.or(missing).filter(|_| !made)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Lists a directory on all servers of a cluster, without duplicates, sorted by name.
    ///
    /// # Errors
    /// [`Error`] of the locate, or of one of the servers if none lists it.
    pub async fn list_cluster(&self, path: &str, with: &ListWith) -> Result<Merged, Error> {
        let ClusterServers { servers, failed } = self.cluster_servers(path).await?;
        merge_listings(&servers, failed, path, with).await
    }

    /// Returns the paths that match a pattern (see [`copy::matches`](crate::copy::matches)). A path
    /// without wildcards is returned even if it does not exist.
    ///
    /// # Errors
    /// [`Error`], also if nothing is found.
    pub async fn matching(&self, path: &str) -> Result<Matches, Error> {
        let pattern = self.url_of("list", path)?.path;
        if !has_wildcard(&pattern) {
            return Ok(Matches { paths: vec![pattern], failed: Vec::new() });
        }
        let ClusterServers { servers, failed } = self.cluster_servers("/").await?;
        let last = pattern.split('/').count() - 1;
        let mut matches = Matches { paths: vec![RemotePath::default()], failed };
        // Set if the existence of the paths is known.
        let mut certain = true;
        for (index, part) in pattern.split('/').enumerate() {
            if index == 0 && part.is_empty() {
                continue;
            }
            certain = has_wildcard(part);
            if certain {
                self.match_part(part, index == last, &servers, &mut matches).await?;
                continue;
            }
            for path in &mut matches.paths {
                // A literal part of the pattern.
                *path = path.map(|path| format!("{path}/{part}")).unwrap_or_default();
            }
        }
        if !certain {
            matches.paths = self.existing(matches.paths).await?;
        }
        if matches.paths.is_empty() {
            // A name may contain wildcard characters.
            if self.find(&pattern).await.ok().flatten().is_some() {
                return Ok(Matches { paths: vec![pattern], failed: Vec::new() });
            }
            if !matches.failed.is_empty() {
                return Ok(matches);
            }
            let text = "nothing matches the pattern".to_owned();
            let cause = Cause::Server { code: ErrorCode::NOT_FOUND, text };
            return Err(Error::new("list", self.url().at(pattern), cause));
        }
        Ok(matches)
    }

    /// Replaces each directory found so far by its entries that match a part of the pattern.
    async fn match_part(
        &self,
        part: &str,
        is_last: bool,
        servers: &[Self],
        found: &mut Matches,
    ) -> Result<(), Error> {
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
                        let at = self.url().at(directory.clone());
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
            let files = self.clone();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn results_are_in_the_order_of_the_items() {
        let work = |item: usize| async move {
            for _ in 0..(item * 7) % 13 {
                tokio::task::yield_now().await;
            }
            item * 2
        };
        let expected: Vec<usize> = (0..500).map(|item| item * 2).collect();
        assert_eq!(join_bounded(0..500, work).await, expected);
    }
}
