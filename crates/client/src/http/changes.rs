//! [`HttpFiles`]: changes of the name space of an HTTP server, by DELETE and MKCOL.

use hyper::{Method, StatusCode};
use wire::xroot::ErrorCode;

use super::exchange::{HttpExchange, HttpReply, HttpRequest};
use super::files::HttpFiles;
use super::refusal::refusal;
use crate::answers::StatInfo;
use crate::failure::{Cause, Error};
use crate::filesystem::ListWith;

impl HttpFiles {
    /// Returns the status of a path; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn find(&self, path: &str) -> Result<Option<StatInfo>, Error> {
        match self.stat(path).await {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`Error`], also for a directory, because DELETE removes everything in it.
    pub async fn remove_file(&self, path: &str) -> Result<(), Error> {
        if self.stat(path).await?.is_dir() {
            let text = "it is a directory".to_owned();
            return Err(self.refused("rm", path, ErrorCode::IS_DIRECTORY, text));
        }
        self.delete("rm", path).await
    }

    /// Removes an empty directory. It is listed first, because some servers remove everything in a directory.
    /// An entry that appears after that may be removed, too.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn remove_directory(&self, path: &str) -> Result<(), Error> {
        if !self.stat(path).await?.is_dir() {
            let text = "it is not a directory".to_owned();
            return Err(self.refused("rmdir", path, ErrorCode::FS_ERROR, text));
        }
        if self.list_entries(path, &ListWith::default()).await?.numbers().next().is_some() {
            let text = "the directory is not empty".to_owned();
            return Err(self.refused("rmdir", path, ErrorCode::IT_EXISTS, text));
        }
        self.delete("rmdir", path).await
    }

    /// Creates a directory. Its parent must exist, unless `parents` is set, which also accepts an existing
    /// directory.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn make_directory(&self, path: &str, parents: bool) -> Result<(), Error> {
        let path = path.trim_end_matches('/');
        if !parents {
            // Some servers create missing parents, and report success for what exists.
            let parent = path.rsplit_once('/').map_or("/", |(parent, _)| parent);
            if !parent.is_empty() && !self.stat(parent).await?.is_dir() {
                let text = format!("{parent} is not a directory");
                return Err(self.refused("mkdir", path, ErrorCode::FS_ERROR, text));
            }
        }
        match self.find(path).await? {
            Some(found) if parents && found.is_dir() => return Ok(()),
            Some(_) => {
                let text = "it exists already".to_owned();
                return Err(self.refused("mkdir", path, ErrorCode::IT_EXISTS, text));
            }
            None => {}
        }
        if self.create_collection(path).await? {
            return Ok(());
        }
        let parent = path.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty());
        if let Some(parent) = parent.filter(|_| parents) {
            Box::pin(self.make_directory(parent, true)).await?;
            if self.create_collection(path).await? {
                return Ok(());
            }
        }
        let text = "the directory above it does not exist".to_owned();
        Err(self.refused("mkdir", path, ErrorCode::NOT_FOUND, text))
    }

    /// Creates a directory. Returns `false` if the one above it is missing.
    async fn create_collection(&self, path: &str) -> Result<bool, Error> {
        let (url, address) = self.at("mkdir", path)?;
        let exchange = HttpExchange::new(self.client(), &url, "mkdir");
        let method = Method::from_bytes(b"MKCOL").unwrap_or(Method::OPTIONS);
        let reply = exchange.send(&HttpRequest::new(method), &address).await?;
        let HttpReply { address, hops, status, body, .. } = reply;
        body.discard().await;
        match status {
            status if status.is_success() => Ok(true),
            StatusCode::CONFLICT => Ok(false),
            status => {
                // Another client may have created it just now.
                if status == StatusCode::METHOD_NOT_ALLOWED
                    && self.find(path).await?.is_some_and(|stat| stat.is_dir())
                {
                    return Ok(true);
                }
                Err(exchange.error(refusal(status, &address), &address, &hops))
            }
        }
    }

    /// Removes an entry that exists. If the reply is lost, it counts as removed when it no longer exists.
    async fn delete(&self, operation: &'static str, path: &str) -> Result<(), Error> {
        let (url, address) = self.at(operation, path)?;
        let exchange = HttpExchange::new(self.client(), &url, operation);
        let reply = match exchange.send(&HttpRequest::new(Method::DELETE), &address).await {
            Err(error) if matches!(error.cause(), Cause::Lost(_) | Cause::TimedOut(_)) => {
                return match self.find(path).await {
                    Ok(None) => Ok(()),
                    Ok(Some(_)) => Err(error.uncertain(true).afterwards("something of that name is there")),
                    Err(_) => Err(error.uncertain(true)),
                };
            }
            reply => reply?,
        };
        let HttpReply { address, hops, status, body, .. } = reply;
        body.discard().await;
        match status {
            // It existed before, so it was removed by this request, of which a part was repeated, or by another client.
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(()),
            StatusCode::CONFLICT => {
                let text = format!("{address} answers 409 Conflict: the directory is not empty");
                let cause = Cause::Server { code: ErrorCode::IT_EXISTS, text };
                Err(exchange.error(cause, &address, &hops))
            }
            // Parts of it could not be removed.
            StatusCode::MULTI_STATUS => {
                let text = format!("{address} could not remove all of it (207 Multi-Status)");
                let cause = Cause::Server { code: ErrorCode::SERVER_ERROR, text };
                Err(exchange.error(cause, &address, &hops))
            }
            status if status.is_success() => Ok(()),
            status => Err(exchange.error(refusal(status, &address), &address, &hops)),
        }
    }

    fn refused(&self, operation: &'static str, path: &str, code: ErrorCode, text: String) -> Error {
        let cause = Cause::Server { code, text };
        match self.at(operation, path) {
            Ok((url, _)) => Error::new(operation, url, cause),
            Err(error) => error,
        }
    }
}
