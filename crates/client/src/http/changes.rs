//! [`HttpFiles`]: changes of the name space of an HTTP server, by DELETE and MKCOL.

use hyper::{Method, StatusCode};
use wire::xroot::ErrorCode;

use super::address::HttpAddress;
use super::exchange::{HttpExchange, HttpReply, HttpRequest, reason};
use super::files::{
    HttpFiles, directory_path, find, is_dav_unknown, propfind, read_body, request_listing, without_directory,
};
use super::multistatus::{DavEntry, segments};
use super::refusal::refusal;
use super::web_upload::move_entry;
use crate::answers::StatInfo;
use crate::failure::{Cause, Error};

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

    /// Removes a file. In an object store, it can be an empty directory.
    ///
    /// # Errors
    /// [`Error`], also for a directory of another server, because DELETE removes everything in it.
    pub async fn remove_file(&self, path: &str) -> Result<(), Error> {
        if let Some(store) = self.store() {
            return self.remove_object(&store, path).await;
        }
        self.check_is_file(path).await?;
        self.delete("rm", path).await
    }

    /// Checks that a path is certainly a file. A server can serve a directory as if it were one, so its properties in
    /// WebDAV decide.
    async fn check_is_file(&self, path: &str) -> Result<(), Error> {
        let (url, asked) = self.at("rm", path)?;
        let exchange = HttpExchange::new(self.client(), &url, "rm");
        let is_directory = |why: &str| self.refused("rm", path, ErrorCode::IS_DIRECTORY, why.to_owned());
        if path.ends_with('/') {
            return Err(is_directory("a path with a slash at its end is that of a directory"));
        }
        let reply = exchange.send(&propfind("0"), &asked).await?;
        let HttpReply { address, hops, status, body, .. } = reply;
        let failed = |cause| exchange.error(cause, &address, &hops);
        if is_dav_unknown(status) {
            body.discard().await;
            return self.check_is_file_by_head(&exchange, path, &asked).await;
        }
        if status != StatusCode::MULTI_STATUS {
            body.discard().await;
            return Err(failed(refusal(status, &address)));
        }
        let base = segments(address.path()).map_err(failed)?;
        let mut own: Option<DavEntry> = None;
        let keep = |entry: DavEntry| {
            if entry.path == base {
                own.get_or_insert(entry);
            }
            Ok(())
        };
        read_body(body, keep).await.map_err(failed)?;
        match own {
            Some(own) if own.is_collection => Err(is_directory("it is a directory")),
            _ if !asked.is_same_path(&address) => Err(failed(elsewhere(&address))),
            Some(own) if own.has_type || own.size.is_some() => Ok(()),
            _ => {
                let text = format!("{address} does not tell whether it is a directory");
                Err(failed(Cause::BadAnswer(text)))
            }
        }
    }

    /// Checks that a path is a file at a server without WebDAV: a directory would have a page of its own.
    async fn check_is_file_by_head(
        &self,
        exchange: &HttpExchange<'_>,
        path: &str,
        asked: &HttpAddress,
    ) -> Result<(), Error> {
        let is_directory = |why: &str| self.refused("rm", path, ErrorCode::IS_DIRECTORY, why.to_owned());
        let found = find(exchange, asked).await?;
        if found.stat.is_dir() || found.address.path().ends_with('/') {
            return Err(is_directory("it is a directory"));
        }
        if !asked.is_same_path(&found.address) {
            return Err(exchange.error(elsewhere(&found.address), &found.address, &[]));
        }
        let (_, page) = self.at("rm", &directory_path(path))?;
        let HttpReply { status, body, .. } = exchange.send(&HttpRequest::new(Method::HEAD), &page).await?;
        body.discard().await;
        match status.as_u16() {
            400 | 404 | 409 | 410 => Ok(()),
            _ => {
                let status = reason(status);
                Err(is_directory(&format!(
                    "it may be a directory: the server offers no WebDAV, and answers {status} for the path with a \
                     slash at its end"
                )))
            }
        }
    }

    /// Removes an empty directory. It is listed first, because some servers remove everything in a directory. An
    /// entry that appears after that may be removed, too. In an object store, a missing directory is a success.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn remove_directory(&self, path: &str) -> Result<(), Error> {
        if let Some(store) = self.store() {
            return self.remove_object_directory(&store, path).await;
        }
        if !self.stat(path).await?.is_dir() {
            let text = "it is not a directory".to_owned();
            return Err(self.refused("rmdir", path, ErrorCode::FS_ERROR, text));
        }
        if !self.is_empty_directory(path).await? {
            let text = "the directory is not empty".to_owned();
            return Err(self.refused("rmdir", path, ErrorCode::IT_EXISTS, text));
        }
        self.delete("rmdir", path).await
    }

    /// Reports whether the listing of a directory has no entry, also none whose name cannot be shown.
    async fn is_empty_directory(&self, path: &str) -> Result<bool, Error> {
        let (url, _) = self.at("rmdir", path)?;
        let (_, asked) = self.at("rmdir", &directory_path(path))?;
        let exchange = HttpExchange::new(self.client(), &url, "rmdir");
        let HttpReply { address, hops, body, .. } = request_listing(&exchange, &asked).await?;
        let failed = |cause| exchange.error(cause, &address, &hops);
        if !asked.is_same_path(&address) {
            return Err(failed(elsewhere(&address)));
        }
        let base = segments(address.path()).map_err(failed)?;
        let (mut is_shown, mut others) = (false, 0_u64);
        let count = |entry: DavEntry| {
            match entry.path == base {
                true => is_shown |= entry.is_collection,
                false => others += 1,
            }
            Ok(())
        };
        read_body(body, count).await.map_err(failed)?;
        if !is_shown && others == 0 {
            return Err(failed(without_directory(&address)));
        }
        Ok(others == 0)
    }

    /// Creates a directory. Its parent must exist, unless `parents` is set, which also accepts an existing
    /// directory. An object store needs no parents, and accepts an existing directory.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn make_directory(&self, path: &str, parents: bool) -> Result<(), Error> {
        if let Some(store) = self.store() {
            return self.make_object_directory(&store, path).await;
        }
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
        if self.create_collection(path, parents).await? {
            return Ok(());
        }
        let parent = path.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty());
        if let Some(parent) = parent.filter(|_| parents) {
            Box::pin(self.make_directory(parent, true)).await?;
            if self.create_collection(path, true).await? {
                return Ok(());
            }
        }
        let text = "the directory above it does not exist".to_owned();
        Err(self.refused("mkdir", path, ErrorCode::NOT_FOUND, text))
    }

    /// Renames a file, or a directory of a web server. An existing file of the new name is replaced.
    ///
    /// # Errors
    /// [`Error`], also for a directory of an object store.
    pub async fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        if let Some(store) = self.store() {
            return self.move_object(&store, from, to).await;
        }
        // A directory would be replaced with everything in it.
        if self.find(to).await?.is_some_and(|found| found.is_dir()) {
            return Err(self.refused("mv", to, ErrorCode::IS_DIRECTORY, "it is a directory".to_owned()));
        }
        let ((url, old), (_, new)) = (self.at("mv", from)?, self.at("mv", to)?);
        if new.path().contains('%') {
            // Some servers do not decode the new name.
            let text =
                "a web server renames to names without characters that must be escaped only".to_owned();
            return Err(self.refused("mv", to, ErrorCode::UNSUPPORTED, text));
        }
        move_entry(&HttpExchange::new(self.client(), &url, "mv"), &old, &new, true).await
    }

    /// Creates a directory. Returns `false` if the one above it is missing.
    /// An existing one is a success only with `parents`; otherwise the request is made once, so that the reply tells
    /// which client has created it.
    async fn create_collection(&self, path: &str, parents: bool) -> Result<bool, Error> {
        // With a slash at the end, because some servers create nothing without it.
        let (url, address) = self.at("mkdir", &directory_path(path))?;
        let exchange = HttpExchange::new(self.client(), &url, "mkdir");
        let method = Method::from_bytes(b"MKCOL").unwrap_or(Method::OPTIONS);
        let request = HttpRequest { is_once: !parents, ..HttpRequest::new(method) };
        let reply = exchange.send(&request, &address).await?;
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
                    let text = "it exists already".to_owned();
                    let exists = || self.refused("mkdir", path, ErrorCode::IT_EXISTS, text);
                    return if parents { Ok(true) } else { Err(exists()) };
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
            // Some servers also hide what must not be changed in this way, and some remove it later.
            StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::ACCEPTED => {
                let is_there = self.find(path).await?.is_some();
                let text = format!("{address} answers {}, but it is still there", reason(status));
                let code = if status == StatusCode::ACCEPTED {
                    ErrorCode::FS_ERROR
                } else {
                    ErrorCode::NOT_AUTHORIZED
                };
                let error = || exchange.error(Cause::Server { code, text }, &address, &hops);
                if is_there { Err(error().uncertain(status == StatusCode::ACCEPTED)) } else { Ok(()) }
            }
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

/// The cause of a removal of a path for which the server shows another one.
fn elsewhere(address: &HttpAddress) -> Cause {
    Cause::BadRedirect(format!("{address}; nothing is removed for another path"))
}
