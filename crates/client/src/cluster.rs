//! [`Cluster`]: the servers of a cluster, and operations on all of them.
//!
//! They exist because a manager redirects each request to one server, which knows only its own
//! files.

use std::collections::{BTreeSet, HashSet, VecDeque};

use wire::xroot::ErrorCode;
use wire::xroot::flags::LocateOptions;

use crate::answers::{RemoteEntry, ReplicaLocation};
use crate::cluster_listing::{Merged, join_bounded, merge_listings};
use crate::failure::{Cause, Error};
use crate::filesystem::{FileSystem, ListWith};
use crate::pattern_search::{Matches, PatternSearch};

/// Maximum number of managers that a deep locate asks.
const DEEP_LOCATE_MANAGERS_MAX: usize = 4096;
/// Maximum number of managers and servers that a deep locate finds.
const DEEP_LOCATE_NODES_MAX: usize = 65_536;

/// The locations of a path at the servers behind several managers.
#[derive(Default)]
struct DeepLocations {
    servers: Vec<ReplicaLocation>,
    /// Errors of managers whose servers are not known. A manager that does not know the path has no
    /// such servers.
    failed: Vec<Error>,
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
    /// Returns the entries of a directory on all servers of a cluster, each name once. Servers that
    /// fail are omitted. [`FileSystem::list_cluster`] reports them.
    ///
    /// # Errors
    /// [`Error`] of the locate, or of every server.
    pub async fn list_all(&self, path: &str, with: &ListWith) -> Result<Vec<RemoteEntry>, Error> {
        Ok(self.list_cluster(path, with).await?.entries.iter().collect())
    }

    /// Returns the servers that have a path. Every manager in the reply is asked in turn. The error
    /// of one manager is ignored if another manager knows a location. Servers of a nearer manager
    /// come first.
    ///
    /// # Errors
    /// [`Error`], also if there are more than 4,096 managers or 65,536 nodes.
    pub async fn locate_deep(
        &self,
        path: &str,
        options: LocateOptions,
    ) -> Result<Vec<ReplicaLocation>, Error> {
        Ok(Cluster::of(self).locate(path, options).await?.servers)
    }

    /// Returns the servers that the cluster of a manager expects and that are disconnected, as its
    /// managers and supervisors report them (`query config scalla.away`). A single server has none.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn servers_away(&self, path: &str) -> Result<AwayServers, Error> {
        Cluster::of(self).away(path).await
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
        Cluster::of(self).servers(path).await
    }

    /// Returns the servers that have a path: this server, or the servers of its cluster that report
    /// the path if it is a manager.
    ///
    /// # Errors
    /// [`Error`], also of one of several managers.
    pub async fn holders(&self, path: &str) -> Result<Vec<Self>, Error> {
        Cluster::of(self).holders(path).await
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
        Cluster::of(self).make_directory(path, mode, parents).await
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
        PatternSearch::run(self, path).await
    }
}

/// The cluster behind a file system, which may be a single server.
struct Cluster<'a> {
    files: &'a FileSystem,
}

impl<'a> Cluster<'a> {
    fn of(files: &'a FileSystem) -> Self {
        Self { files }
    }

    /// Implements [`FileSystem::locate_deep`], and returns the errors of managers, too.
    async fn locate(&self, path: &str, options: LocateOptions) -> Result<DeepLocations, Error> {
        let (mut managers, mut seen) = (0, HashSet::new());
        let mut open = VecDeque::new();
        let mut more = self.files.locate(path, options).await?;
        let mut found = DeepLocations::default();
        let mut missing = None;
        loop {
            open.extend(more.drain(..).filter(|location| seen.insert(location.address.clone())));
            if seen.len() > DEEP_LOCATE_NODES_MAX {
                return Err(self.too_many("locate", path, DEEP_LOCATE_NODES_MAX));
            }
            let Some(location) = open.pop_front() else { break };
            if !location.is_manager {
                found.servers.push(location);
                continue;
            }
            managers += 1;
            if managers > DEEP_LOCATE_MANAGERS_MAX {
                return Err(self.too_many("locate", path, DEEP_LOCATE_MANAGERS_MAX));
            }
            match self.files.beside(&location).locate(path, options).await {
                Ok(locations) => more = locations,
                Err(error) if error.is_not_found() => missing = Some(error),
                Err(error) => found.failed.push(error),
            }
        }
        match found.failed.pop_if(|_| found.servers.is_empty()).or(missing) {
            Some(error) if found.servers.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    /// Implements [`FileSystem::servers_away`].
    async fn away(&self, path: &str) -> Result<AwayServers, Error> {
        let mut away = AwayServers::default();
        if let Some(files) = self.files.http() {
            return match files.check_is_one_server(path).await {
                Err(error) if !error.is_not_found() => Err(error),
                _ => Ok(away),
            };
        }
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
                    away.present.insert(self.files.beside(&location).url().authority());
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

    /// Returns the file system at the first of several hosts that answers.
    async fn first_answering(&self) -> Result<FileSystem, Error> {
        let (client, url) = (self.files.client(), self.files.url());
        let mut places = url.each();
        let mut place = places.next().unwrap_or_else(|| url.clone());
        loop {
            match (client.channel(&place).await, places.next()) {
                (Ok(_), _) => return Ok(client.file_system(&place)),
                (Err(_), Some(next)) => place = next,
                (Err(error), None) => return Err(error),
            }
        }
    }

    /// Implements [`FileSystem::cluster_servers`].
    async fn servers(&self, path: &str) -> Result<ClusterServers, Error> {
        if self.files.url().is_http() {
            return Ok(ClusterServers { servers: vec![self.files.clone()], failed: Vec::new() });
        }
        let here = self.first_answering().await?;
        if !here.client().channel(here.url()).await?.is_manager() {
            return Ok(ClusterServers { servers: vec![self.files.clone()], failed: Vec::new() });
        }
        let options = LocateOptions::PREFNAME | LocateOptions::FOR_DIRLIST | LocateOptions::COMPRESS;
        let DeepLocations { servers, failed } =
            Cluster::of(&here).locate(&format!("*{path}"), options).await?;
        let servers = servers.iter().map(|location| self.files.beside(location)).collect();
        Ok(ClusterServers { servers, failed })
    }

    /// Implements [`FileSystem::holders`].
    async fn holders(&self, path: &str) -> Result<Vec<FileSystem>, Error> {
        let files = self.files;
        if files.url().is_http() {
            return Ok(vec![files.clone()]);
        }
        if !files.client().channel(files.url()).await?.is_manager() {
            return Ok(vec![files.clone()]);
        }
        let DeepLocations { servers, failed } = self.locate(path, LocateOptions::PREFNAME).await?;
        let servers = servers.iter().map(|location| files.beside(location)).collect();
        ClusterServers { servers, failed }.all()
    }

    /// Implements [`FileSystem::mkdir_everywhere`].
    async fn make_directory(&self, path: &str, mode: u16, parents: bool) -> Result<(), Error> {
        let ClusterServers { servers, failed: mut unknown } = self.servers(path).await?;
        let several = servers.len() > 1 || !unknown.is_empty();
        let make = |server: FileSystem| {
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

    /// Creates the error of a cluster that is larger than this client supports.
    fn too_many(&self, name: &'static str, path: &str, limit: usize) -> Error {
        self.files.error(name, path, Cause::TooLarge(format!("{limit} nodes")))
    }
}
