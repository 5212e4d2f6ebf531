//! The remote servers of third-party copies over HTTP, for [`http::RemoteServers`].
//!
//! Each copy has a client of its own, which connects only to addresses that the policy of outgoing
//! connections allows for the client that has ordered the copy. It has no credentials but the headers of
//! the order.

use super::outbound::{ClientOutbound, Outbound};
use auth::tls::TrustAnchors;
use client::http::{DownloadedFile, HttpTransfer, TransferFailure};
use client::{AddressFilter, Cause, Client, Credentials, File, OpenWith, Settings, SharedTrust, Url};
use http::{
    Copies, HttpCopyObserver, RemoteDownload, RemoteFailure, RemoteFuture, RemoteParts, RemoteRanges,
    RemoteRequest, RemoteServers, UploadSource,
};
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Bytes of one read of a file of the xroot protocol.
const PIECE_BYTES: usize = 1 << 20;

/// Headers with checksums.
const DIGESTS: [HeaderName; 2] = [HeaderName::from_static("repr-digest"), HeaderName::from_static("digest")];

/// Returns third-party copies over HTTP, if the configuration allows them.
pub(crate) fn copies(
    effective: &config::Effective,
    observer: Option<Arc<dyn HttpCopyObserver>>,
) -> Option<Copies> {
    let values = &effective.http;
    if !effective.serves_http_copies() {
        return None;
    }
    let policy = Outbound::new(effective.logical.copy_sources.value.clone(), &effective.host);
    let (directory, file) = (values.authority_directory.value.clone(), values.authority_file.value.clone());
    let own = (directory.is_some() || file.is_some()).then_some(TrustAnchors { directory, file });
    let servers = HttpServers {
        outbound: policy.with_networks(*values.copy_networks),
        trusted: SharedTrust::of(own.or_else(|| crate::tls::trusted_servers(effective))),
    };
    Some(Copies {
        servers: Arc::new(servers),
        stall_time: values.copy_times.stall,
        first_time: values.copy_times.first,
        redirects: effective.cluster.role.redirects(),
        observer,
    })
}

/// Connects to remote servers.
struct HttpServers {
    outbound: Outbound,
    trusted: SharedTrust,
}

impl HttpServers {
    /// Returns the client of a copy that a client at this address has ordered.
    fn client(&self, address: IpAddr) -> Client {
        let outbound: ClientOutbound = self.outbound.for_client(Some(address));
        let resolver = outbound.resolver();
        let filter = AddressFilter::new(move |host, address| outbound.choose(host, address));
        let filter = filter.with_resolver(resolver);
        let (settings, credentials) = (Settings::default(), Credentials::none());
        Client::for_server_with(settings, "scalla third-party copy", filter, &self.trusted, credentials)
    }
}

impl RemoteServers for HttpServers {
    fn fetch(&self, request: RemoteRequest) -> RemoteFuture<'static, RemoteDownload> {
        let client = self.client(request.client);
        Box::pin(async move {
            match is_xroot(&request.url) {
                true => fetch_xroot(client, request).await,
                false => fetch_http(client, request).await,
            }
        })
    }

    fn store(&self, request: RemoteRequest, length: u64, source: UploadSource) -> RemoteFuture<'static, ()> {
        let client = self.client(request.client);
        Box::pin(async move {
            let transfer = transfer(&client, &request)?;
            transfer.put(HeaderMap::new(), length, &source).await.map_err(failed)
        })
    }
}

fn is_xroot(url: &str) -> bool {
    let scheme = url.split("://").next().unwrap_or_default().to_ascii_lowercase();
    matches!(scheme.as_str(), "root" | "roots" | "xroot" | "xroots")
}

fn transfer(client: &Client, request: &RemoteRequest) -> Result<HttpTransfer, RemoteFailure> {
    let peer = request.peer.clone();
    let on_connect = move |address| peer.set(address);
    let headers = request.headers.clone();
    let made = HttpTransfer::new(client, &request.url, headers, request.reply_time, on_connect);
    made.map_err(|cause| RemoteFailure::Invalid(cause.to_string()))
}

/// Returns the time after which a copy goes on without the checksum of the source.
fn checksum_time(request: &RemoteRequest) -> Duration {
    request.reply_time / 2
}

async fn fetch_http(client: Client, request: RemoteRequest) -> Result<RemoteDownload, RemoteFailure> {
    let transfer = transfer(&client, &request)?;
    let mut digests = HeaderMap::new();
    if let Some(wanted) = &request.wanted_digest {
        let mut more = HeaderMap::new();
        if let Ok(wanted) = HeaderValue::from_str(wanted) {
            more.insert(HeaderName::from_static("want-digest"), wanted);
        }
        // The request for the file shows whether it can be read. Not all URLs are also for HEAD, and a server
        // may compute the checksum of a large file for long.
        let found = timeout(checksum_time(&request), transfer.head(more)).await;
        let found = found.ok().and_then(Result::ok).unwrap_or_default();
        for name in DIGESTS {
            for value in found.get_all(&name) {
                digests.append(name.clone(), value.clone());
            }
        }
    }
    let file = transfer.get(HeaderMap::new()).await.map_err(failed)?;
    let ranges = file.size().filter(|_| file.may_have_ranges()).map(|size| {
        let tag = file.tag().map(str::to_owned);
        Arc::new(HttpRanges { transfer: Arc::new(transfer), size, tag }) as Arc<dyn RemoteRanges>
    });
    Ok(RemoteDownload { size: file.size(), digests, parts: Box::new(HttpParts(file)), ranges })
}

/// Ranges of a file that arrives over HTTP.
struct HttpRanges {
    transfer: Arc<HttpTransfer>,
    size: u64,
    /// The strong entity tag of the version that arrives.
    tag: Option<String>,
}

impl RemoteRanges for HttpRanges {
    fn is_one_version(&self) -> bool {
        self.tag.is_some()
    }

    fn range(&self, offset: u64, length: u64) -> RemoteFuture<'static, Box<dyn RemoteParts>> {
        let (transfer, size, tag) = (self.transfer.clone(), self.size, self.tag.clone());
        Box::pin(async move {
            let range = transfer.get_range((offset, length), size, tag.as_deref()).await;
            Ok(Box::new(HttpParts(range.map_err(failed)?)) as Box<dyn RemoteParts>)
        })
    }
}

/// A file that arrives over HTTP.
struct HttpParts(DownloadedFile);

impl RemoteParts for HttpParts {
    fn next(&mut self) -> RemoteFuture<'_, Option<client::Bytes>> {
        Box::pin(async move { self.0.next().await.map_err(|cause| failed(cause.into())) })
    }
}

async fn fetch_xroot(client: Client, request: RemoteRequest) -> Result<RemoteDownload, RemoteFailure> {
    let url = Url::parse(&request.url).map_err(|error| RemoteFailure::Invalid(error.to_string()))?;
    let opened = client.open(&url, &OpenWith::read()).await;
    let file = opened.map_err(|error| failed_cause(error.cause()))?;
    let size = file.stat().await.map_err(|error| failed_cause(error.cause()))?.size;
    let mut digests = HeaderMap::new();
    if let Some(wanted) = &request.wanted_digest {
        let files = client.file_system(&url);
        let asked = files.checksum(&url.path, Some(kind_of(wanted)));
        if let Ok(Ok(found)) = timeout(checksum_time(&request), asked).await
            && let Ok(value) = HeaderValue::from_str(&format!("{}={}", found.kind, found.value))
        {
            digests.insert(HeaderName::from_static("digest"), value);
        }
    }
    let parts = XrootParts { file: file.clone(), offset: 0, end: size, read: None };
    let ranges = Some(Arc::new(XrootRanges(file)) as Arc<dyn RemoteRanges>);
    Ok(RemoteDownload { size: Some(size), digests, parts: Box::new(parts), ranges })
}

/// Ranges of an open file of the xroot protocol.
struct XrootRanges(File);

impl RemoteRanges for XrootRanges {
    fn is_one_version(&self) -> bool {
        true
    }

    fn range(&self, offset: u64, length: u64) -> RemoteFuture<'static, Box<dyn RemoteParts>> {
        let parts =
            XrootParts { file: self.0.clone(), offset, end: offset.saturating_add(length), read: None };
        Box::pin(async move { Ok(Box::new(parts) as Box<dyn RemoteParts>) })
    }
}

/// Returns the type of checksum that a server of the xroot protocol is asked for: the first one that is
/// wanted, if it can be compared.
fn kind_of(wanted: &str) -> &'static str {
    let first = wanted.split([',', ';']).next().unwrap_or_default().trim();
    match first.to_ascii_lowercase().as_str() {
        "crc32c" => "crc32c",
        "md5" => "md5",
        "sha" | "sha1" | "sha-1" => "sha1",
        "sha-256" | "sha256" => "sha256",
        _ => "adler32",
    }
}

/// A read in progress.
type PendingRead = std::pin::Pin<Box<dyn Future<Output = Result<client::Bytes, client::Error>> + Send>>;

/// A file that is read by the xroot protocol.
struct XrootParts {
    file: File,
    offset: u64,
    end: u64,
    /// The read in progress, which is kept when a call of `next` is dropped.
    read: Option<PendingRead>,
}

impl RemoteParts for XrootParts {
    fn next(&mut self) -> RemoteFuture<'_, Option<client::Bytes>> {
        Box::pin(async move {
            let left = self.end.saturating_sub(self.offset);
            if left == 0 {
                return Ok(None);
            }
            let length = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let (file, offset) = (self.file.clone(), self.offset);
            let start = || Box::pin(async move { file.read_pages(offset, length).await }) as PendingRead;
            let read = self.read.get_or_insert_with(start).await;
            self.read = None;
            let data = read.map_err(|error| failed_cause(error.cause()))?;
            if data.len() != length {
                return Err(RemoteFailure::Failed("the file has become shorter".to_owned()));
            }
            self.offset += data.len() as u64;
            Ok(Some(data))
        })
    }
}

fn failed(failure: TransferFailure) -> RemoteFailure {
    match failure {
        TransferFailure::Status { status, text } => RemoteFailure::Status { status: status.as_u16(), text },
        TransferFailure::Cause(cause) => failed_cause(&cause),
    }
}

fn failed_cause(cause: &Cause) -> RemoteFailure {
    match cause {
        Cause::NotAllowed(reason) => RemoteFailure::Refused(reason.clone()),
        Cause::BadArgument(text) => RemoteFailure::Invalid(text.clone()),
        Cause::Server { code, text } if *code == client::xroot::codes::ErrorCode::NOT_FOUND => {
            RemoteFailure::Status { status: 404, text: text.clone() }
        }
        Cause::Server { code, text } if *code == client::xroot::codes::ErrorCode::NOT_AUTHORIZED => {
            RemoteFailure::Status { status: 403, text: text.clone() }
        }
        cause => RemoteFailure::Failed(cause.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_xroot_are_asked_for_the_wanted_checksum() {
        for (wanted, kind) in [
            ("md5", "md5"),
            ("SHA-256;q=1, md5", "sha256"),
            ("sha", "sha1"),
            ("crc32c", "crc32c"),
            ("x", "adler32"),
        ] {
            assert_eq!(kind_of(wanted), kind, "{wanted}");
        }
    }
}
