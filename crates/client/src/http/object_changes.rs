//! [`HttpFiles`]: changes of names in an object store.
//!
//! A store has no directories. An empty object whose key ends with a slash shows an empty one, as other programs do it.

use bytes::Bytes;
use hyper::{Method, StatusCode};
use wire::xroot::ErrorCode;

use super::address::HttpAddress;
use super::exchange::{HttpExchange, HttpReply, HttpRequest};
use super::files::{FoundFile, HttpFiles, directory_path, find};
use super::object_files::{is_empty_prefix, stat_object};
use super::object_store::{ObjectStore, code_in, store_refusal};
use super::object_upload::{INTERNAL_ERROR, result_text};
use crate::failure::{Cause, Error};

/// Maximum size of an object that a store copies with one request.
const COPY_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;

impl HttpFiles {
    /// Removes an object, or that which shows an empty directory.
    pub(super) async fn remove_object(&self, store: &ObjectStore, path: &str) -> Result<(), Error> {
        let (url, address) = self.at("rm", path)?;
        let exchange = HttpExchange::new(self.client(), &url, "rm");
        // A store reports success for a key that it does not have.
        if stat_object(&exchange, store, &address).await?.is_dir() {
            return self.remove_marker(&exchange, store, path).await;
        }
        delete(&exchange, &address).await
    }

    /// Removes the object that shows an empty directory. A missing one is not an error, as clients expect.
    pub(super) async fn remove_object_directory(&self, store: &ObjectStore, path: &str) -> Result<(), Error> {
        let (url, address) = self.at("rmdir", path)?;
        let exchange = HttpExchange::new(self.client(), &url, "rmdir");
        match stat_object(&exchange, store, &address).await {
            Ok(found) if found.is_dir() => self.remove_marker(&exchange, store, path).await,
            Ok(_) => Err(refused(&exchange, ErrorCode::FS_ERROR, format!("{address} is not a directory"))),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes the object that shows a directory, in which there is nothing else.
    async fn remove_marker(
        &self,
        exchange: &HttpExchange<'_>,
        store: &ObjectStore,
        path: &str,
    ) -> Result<(), Error> {
        let (_, marker) = self.at(exchange.operation, &directory_path(path))?;
        if !is_empty_prefix(exchange, store, &marker).await? {
            return Err(refused(exchange, ErrorCode::IT_EXISTS, "the directory is not empty".to_owned()));
        }
        delete(exchange, &marker).await
    }

    /// Creates an object that shows an empty directory. An existing directory is a success, as clients expect.
    pub(super) async fn make_object_directory(&self, store: &ObjectStore, path: &str) -> Result<(), Error> {
        let (url, address) = self.at("mkdir", path)?;
        let exchange = HttpExchange::new(self.client(), &url, "mkdir");
        match stat_object(&exchange, store, &address).await {
            Ok(found) if found.is_dir() => return Ok(()),
            Ok(_) => {
                return Err(refused(&exchange, ErrorCode::IT_EXISTS, format!("{address} exists already")));
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        let (_, marker) = self.at("mkdir", &directory_path(path))?;
        let HttpReply { status, body, .. } = exchange.send(&HttpRequest::new(Method::PUT), &marker).await?;
        if !status.is_success() {
            let cause = store_refusal(status, body, &marker).await;
            return Err(exchange.error(cause, &marker, &[]));
        }
        body.discard().await;
        Ok(())
    }

    /// Renames an object: the store copies it, and then the old one is removed. In between, both are there.
    pub(super) async fn move_object(&self, store: &ObjectStore, from: &str, to: &str) -> Result<(), Error> {
        let ((url, old), (_, new)) = (self.at("mv", from)?, self.at("mv", to)?);
        let exchange = HttpExchange::new(self.client(), &url, "mv");
        let stat = stat_object(&exchange, store, &old).await?;
        let unsupported = |why: &str| exchange.refused(Cause::Unsupported(format!("{old} {why}")));
        if stat.is_dir() {
            return Err(unsupported(
                "is a directory, which an object store cannot rename; copy the files and remove the old ones",
            ));
        }
        if stat.size > COPY_BYTES_MAX {
            return Err(unsupported(
                "has more than 5 GiB, which a store does not copy at once; copy it by a client",
            ));
        }
        match stat_object(&exchange, store, &new).await {
            Ok(found) if found.is_dir() => {
                return Err(refused(&exchange, ErrorCode::IS_DIRECTORY, format!("{new} is a directory")));
            }
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        if old.is_same_path(&new) {
            return Ok(());
        }
        let found = find(&exchange, &old).await?;
        copy(&exchange, (&old, &found), &new).await?;
        let both = |error: Error| {
            error.uncertain(true).afterwards("both names are there: remove the one that is not wanted")
        };
        // What another client has stored meanwhile stays.
        if !find(&exchange, &old).await.map_err(both)?.version.may_be(&found.version) {
            let text = format!("{old} was changed while it was copied");
            return Err(both(exchange.error(Cause::Changed(text), &old, &[])));
        }
        delete(&exchange, &old).await.map_err(both)
    }
}

fn refused(exchange: &HttpExchange<'_>, code: ErrorCode, text: String) -> Error {
    exchange.refused(Cause::Server { code, text })
}

/// Removes an object.
async fn delete(exchange: &HttpExchange<'_>, address: &HttpAddress) -> Result<(), Error> {
    let HttpReply { status, body, .. } = exchange.send(&HttpRequest::new(Method::DELETE), address).await?;
    if status.is_success() || status == StatusCode::NOT_FOUND {
        body.discard().await;
        return Ok(());
    }
    Err(exchange.error(store_refusal(status, body, address).await, address, &[]))
}

/// Has the store copy an object of this version.
async fn copy(
    exchange: &HttpExchange<'_>,
    (old, found): (&HttpAddress, &FoundFile),
    new: &HttpAddress,
) -> Result<(), Error> {
    let mut request = HttpRequest::new(Method::PUT).with("x-amz-copy-source", old.path());
    if let Some(tag) = found.version.tag.as_ref().filter(|_| !found.version.is_weak) {
        request = request.with("x-amz-copy-source-if-match", tag);
    }
    let HttpReply { status, body, .. } =
        exchange.send(&HttpRequest { body: Bytes::new(), ..request }, new).await?;
    let failed = |cause| exchange.error(cause, new, &[]);
    if status != StatusCode::OK {
        return Err(failed(store_refusal(status, body, new).await));
    }
    // A store can begin a success and find later that it is none.
    let result = result_text(body).await.map_err(|cause| failed(cause).uncertain(true))?;
    match code_in(result.as_bytes()) {
        None if result.contains("<CopyObjectResult") => Ok(()),
        None => {
            Err(failed(Cause::BadAnswer("it does not say that the object is copied".to_owned()))
                .uncertain(true))
        }
        Some(code) => {
            let text = format!("{old} could not be copied ({code})");
            Err(failed(Cause::Server { code: ErrorCode::SERVER_ERROR, text })
                .uncertain(code == INTERNAL_ERROR))
        }
    }
}
