//! [`HttpUpload`]: a new file of a web server with WebDAV, which appears whole or not at all.
//!
//! It is sent under a temporary name in its directory, and renamed at the end. Some servers would show a part of it
//! otherwise, and keep that when the connection is lost.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use hyper::header::HeaderMap;
use hyper::{Method, StatusCode};
use wire::xroot::ErrorCode;

use super::address::HttpAddress;
use super::exchange::{HttpExchange, HttpReply, HttpRequest};
use super::files::find;
use super::refusal::refusal;
use super::transfer::UploadSource;
use super::url_transfer::UrlTransfer;
use crate::client::Client;
use crate::failure::{Cause, Error};
use crate::pacing::RequestPacing;
use crate::path::RemotePath;
use crate::url::Url;

/// Beginning of temporary names.
const TEMPORARY: &str = ".scalla-upload-";

/// A file that is to be created. Clones create the same one.
#[derive(Clone)]
pub struct HttpUpload {
    client: Client,
    state: Arc<HttpUploadState>,
}

struct HttpUploadState {
    url: Url,
    /// The URL of the temporary name.
    temporary: Url,
    /// No file of this name may be replaced.
    is_new: bool,
}

impl std::fmt::Debug for HttpUpload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpUpload({})", self.state.url)
    }
}

impl HttpUpload {
    /// Looks whether a file may be created. Nothing is created yet.
    pub(crate) async fn open(client: &Client, url: &Url, is_new: bool) -> Result<Self, Error> {
        let path = url.path.as_str();
        let bad = |why: String| Error::new("open", url, Cause::BadArgument(why));
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        if name.is_empty() {
            return Err(bad("a path with a slash at its end is that of a directory".to_owned()));
        }
        check_target(client, url, "open", !is_new).await?;
        let number = RandomState::new().build_hasher().finish();
        let temporary = RemotePath::new(format!("{directory}/{TEMPORARY}{number:016x}"));
        let temporary = url.at(temporary.map_err(|why| bad(why.to_string()))?);
        let state = Arc::new(HttpUploadState { url: url.clone(), temporary, is_new });
        Ok(Self { client: client.clone(), state })
    }

    /// Returns this upload with requests that `pacing` can hold back.
    #[must_use]
    pub fn paced(&self, pacing: Arc<dyn RequestPacing>) -> Self {
        Self { client: self.client.paced(pacing), state: self.state.clone() }
    }

    /// Returns the URL.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.state.url
    }

    /// Sends the content under the temporary name. It has a connection of its own.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn put(&self, length: u64, source: &UploadSource) -> Result<(), Error> {
        let transfer = UrlTransfer::new(&self.client, &self.state.temporary, "write").await?;
        let sent = transfer.transfer().put(HeaderMap::new(), length, source).await;
        sent.map_err(|failure| transfer.error(failure))
    }

    /// Has the file appear under its name.
    ///
    /// # Errors
    /// [`Error`]. If the reply is lost, the file may be there.
    pub async fn publish(&self) -> Result<(), Error> {
        let HttpUploadState { url, temporary, is_new } = &*self.state;
        // A directory that has appeared meanwhile would be replaced with all that is in it.
        check_target(&self.client, url, "close", !is_new).await?;
        let exchange = HttpExchange::new(&self.client, temporary, "close");
        let to = HttpAddress::of(url).map_err(|cause| exchange.refused(cause))?;
        let mut from = exchange.address()?;
        if to.path().contains('%') {
            let [decoded, encoded] = spaced(&exchange, &from)?;
            move_entry(&exchange, &from, &decoded, true).await?;
            if !is_there(&exchange, &decoded).await? {
                delete(&exchange, &encoded).await?;
                let text =
                    format!("{from} cannot get its name, because the server does not decode names of MOVE");
                return Err(exchange.refused(Cause::Unsupported(text)));
            }
            from = decoded;
        }
        move_entry(&exchange, &from, &to, !is_new).await
    }

    /// Removes the bytes that were sent.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn discard(&self) -> Result<(), Error> {
        let exchange = HttpExchange::new(&self.client, &self.state.temporary, "close");
        let from = exchange.address()?;
        delete(&exchange, &from).await?;
        if HttpAddress::of(&self.state.url).is_ok_and(|to| to.path().contains('%')) {
            for other in spaced(&exchange, &from)? {
                delete(&exchange, &other).await?;
            }
        }
        Ok(())
    }
}

/// Returns the address of a temporary name with a space at its end, and that under which a server stores it that does
/// not decode the names of MOVE (XRootD is one). By it, such a server is found before a file gets a wrong name.
fn spaced(exchange: &HttpExchange<'_>, from: &HttpAddress) -> Result<[HttpAddress; 2], Error> {
    let with = |end: &str| {
        let address = HttpAddress::in_server(&from.server, &format!("{}{end}", from.path()));
        address.map_err(|cause| exchange.refused(cause))
    };
    Ok([with("%20")?, with("%2520")?])
}

/// Reports whether a server shows a file.
async fn is_there(exchange: &HttpExchange<'_>, address: &HttpAddress) -> Result<bool, Error> {
    match find(exchange, address).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a file, which may be missing.
async fn delete(exchange: &HttpExchange<'_>, address: &HttpAddress) -> Result<(), Error> {
    let HttpReply { address, hops, status, body, .. } =
        exchange.send(&HttpRequest::new(Method::DELETE), address).await?;
    body.discard().await;
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Ok(()),
        status if status.is_success() => Ok(()),
        status => Err(exchange.error(refusal(status, &address), &address, &hops)),
    }
}

/// Fails if a URL is that of a directory, or of a file that must not be replaced.
async fn check_target(
    client: &Client,
    url: &Url,
    operation: &'static str,
    replaces: bool,
) -> Result<(), Error> {
    let refused = |code, why: &str| {
        let text = format!("{url} {why}");
        Err(Error::new(operation, url, Cause::Server { code, text }))
    };
    match client.http_files(url).find(url.path.as_str()).await? {
        Some(found) if found.is_dir() => refused(ErrorCode::IS_DIRECTORY, "is a directory"),
        Some(_) if !replaces => refused(ErrorCode::IT_EXISTS, "exists already"),
        _ => Ok(()),
    }
}

/// Renames a file. It is asked for once, because a repetition would not find the old name.
pub(super) async fn move_entry(
    exchange: &HttpExchange<'_>,
    from: &HttpAddress,
    to: &HttpAddress,
    replaces: bool,
) -> Result<(), Error> {
    let method = Method::from_bytes(b"MOVE").unwrap_or(Method::OPTIONS);
    let request = HttpRequest { is_once: true, ..HttpRequest::new(method) }
        .with("destination", &to.to_string())
        .with("overwrite", if replaces { "T" } else { "F" });
    let lost = |error: Error| {
        let is_lost = matches!(error.cause(), Cause::Lost(_) | Cause::TimedOut(_) | Cause::BadAnswer(_));
        let is_uncertain = is_lost || error.is_uncertain();
        error.uncertain(is_uncertain)
    };
    let HttpReply { address, hops, status, body, .. } = exchange.send(&request, from).await.map_err(lost)?;
    body.discard().await;
    let failed = |code, text| Err(exchange.error(Cause::Server { code, text }, &address, &hops));
    match status {
        StatusCode::CREATED | StatusCode::NO_CONTENT | StatusCode::OK => Ok(()),
        StatusCode::PRECONDITION_FAILED if !replaces => {
            failed(ErrorCode::IT_EXISTS, format!("{to} exists: another client has created it"))
        }
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            failed(ErrorCode::UNSUPPORTED, format!("{address} offers no MOVE, so no file can appear whole"))
        }
        StatusCode::CONFLICT => {
            failed(ErrorCode::NOT_FOUND, format!("the directory above {to} does not exist"))
        }
        status if status.is_success() => {
            failed(ErrorCode::SERVER_ERROR, format!("{address} answers {status} to a renaming"))
        }
        status => Err(exchange.error(refusal(status, &address), &address, &hops)),
    }
}
