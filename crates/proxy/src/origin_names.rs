//! [`OriginNameSpace`]: the names of an origin, by the protocol that the origin speaks.

use crate::origin_file::{is_http, unsupported};
use client::http::HttpFiles;
use client::xroot::codes::QueryType;
use client::xroot::flags::ServerFlags;
use client::{Cause, Client, Entries, Error, FileChecksum, FileSystem, ListWith, SpaceInfo, StatInfo, Url};

/// The names of an origin.
pub(crate) enum OriginNameSpace {
    Xroot(FileSystem),
    Http(HttpFiles, Url),
}

impl OriginNameSpace {
    /// Returns the names at a URL.
    pub(crate) fn new(client: &Client, url: &Url) -> Self {
        match is_http(url) {
            true => Self::Http(client.http_files(url), url.clone()),
            false => Self::Xroot(client.file_system(url)),
        }
    }

    /// Returns the names for a request that HTTP does not have.
    fn xroot(&self, operation: &'static str) -> Result<&FileSystem, Error> {
        match self {
            Self::Xroot(files) => Ok(files),
            Self::Http(_, url) => {
                let text = "an HTTP server does not support it".to_owned();
                Err(Error::new(operation, url, Cause::Unsupported(text)))
            }
        }
    }

    pub(crate) async fn stat(&self, path: &str) -> Result<StatInfo, Error> {
        match self {
            Self::Xroot(files) => files.stat(path).await,
            Self::Http(files, _) => Box::pin(files.stat(path)).await,
        }
    }

    pub(crate) async fn checksum(&self, path: &str, kind: Option<&str>) -> Result<FileChecksum, Error> {
        match self {
            Self::Xroot(files) => files.checksum(path, kind).await,
            Self::Http(files, _) => Box::pin(files.checksum(path, kind)).await,
        }
    }

    /// Lists a directory: at all servers of the origin, if it is a manager. It fails if one of them fails,
    /// because entries would be missing.
    pub(crate) async fn list(&self, path: &str, with: &ListWith) -> Result<Entries, Error> {
        let files = match self {
            Self::Xroot(files) => files,
            Self::Http(files, _) => return Box::pin(files.list_entries(path, with)).await,
        };
        if !files.server().await?.flags.intersects(ServerFlags::IS_MANAGER) {
            return files.list_entries(path, with).await;
        }
        let mut merged = files.list_cluster(path, with).await?;
        match merged.failed.pop() {
            Some(error) => Err(error),
            None => Ok(merged.entries),
        }
    }

    pub(crate) async fn space(&self, path: &str) -> Result<SpaceInfo, Error> {
        self.xroot("space")?.space(path).await
    }

    pub(crate) async fn query(&self, kind: QueryType, argument: &str) -> Result<Vec<u8>, Error> {
        Ok(self.xroot("query")?.query(kind, argument).await?.to_vec())
    }

    pub(crate) async fn mkdir(&self, path: &str, mode: u16, parents: bool) -> Result<(), Error> {
        match self {
            Self::Xroot(files) => files.mkdir(path, mode, parents).await,
            Self::Http(files, _) => Box::pin(files.make_directory(path, parents)).await,
        }
    }

    pub(crate) async fn rmdir(&self, path: &str) -> Result<(), Error> {
        match self {
            Self::Xroot(files) => files.rmdir(path).await,
            Self::Http(files, _) => Box::pin(files.remove_directory(path)).await,
        }
    }

    pub(crate) async fn rm(&self, path: &str) -> Result<(), Error> {
        match self {
            Self::Xroot(files) => files.rm(path).await,
            Self::Http(files, _) => Box::pin(files.remove_file(path)).await,
        }
    }

    pub(crate) async fn mv(&self, from: &str, to: &str) -> Result<(), Error> {
        match self {
            Self::Xroot(files) => files.mv(from, to).await,
            Self::Http(files, _) => Box::pin(files.rename(from, to)).await,
        }
    }

    pub(crate) async fn truncate(&self, path: &str, size: u64) -> Result<(), Error> {
        match self {
            Self::Xroot(files) => files.truncate(path, size).await,
            Self::Http(_, url) => Err(unsupported("truncate", url, "set the size of a file: write it anew")),
        }
    }
}
