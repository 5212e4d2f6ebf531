//! [`HttpFiles`]: status, listings and checksums of the paths of an HTTP server.

use std::sync::Arc;

use bytes::Bytes;
use digest::Algorithm;
use hyper::header::{self, HeaderMap};
use hyper::{Method, StatusCode};
use wire::xroot::ErrorCode;
use wire::xroot::flags::StatFlags;
use wire::xroot::reply::StatText;

use super::address::HttpAddress;
use super::elements::BodyReader;
use super::exchange::{HttpBody, HttpExchange, HttpReply, HttpRequest, reason};
use super::headers::{ContentRange, HttpVersion, content_length, digest, text};
use super::multistatus::{DavEntry, read_multistatus, segments};
use super::object_files::{list_objects, stat_object};
use super::object_store::ObjectStore;
use super::refusal::refusal;
use crate::answers::{FileChecksum, StatInfo};
use crate::client::Client;
use crate::entries::{Entries, ServerListing};
use crate::failure::{Cause, Error};
use crate::filesystem::ListWith;
use crate::listing_memory::ListingMemory;
use crate::path::RemotePath;
use crate::url::Url;

/// The properties that are asked for.
const PROPERTIES: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:propfind xmlns:D=\"DAV:\"><D:prop>\
    <D:resourcetype/><D:getcontentlength/><D:getlastmodified/><D:getetag/></D:prop></D:propfind>\n";
/// Maximum size of a digest.
const DIGEST_BYTES_MAX: usize = 64;

/// The files of an HTTP server.
#[derive(Clone, Debug)]
pub struct HttpFiles {
    client: Client,
    url: Url,
}

/// A file or directory.
pub(super) struct FoundFile {
    pub(super) stat: StatInfo,
    pub(super) version: HttpVersion,
    /// The address to which the request was redirected.
    pub(super) address: HttpAddress,
    /// The server is not known to ignore ranges.
    pub(super) has_ranges: bool,
}

impl FoundFile {
    fn directory(address: HttpAddress) -> Self {
        Self { stat: stat(true, 0, 0, 0), version: HttpVersion::default(), address, has_ranges: true }
    }
}

/// Finds the status of a file or directory by `HEAD`, and by WebDAV what that does not show.
pub(super) async fn find(exchange: &HttpExchange<'_>, from: &HttpAddress) -> Result<FoundFile, Error> {
    find_by_head(exchange, from, None).await
}

/// Finds the status as [`find`] does. A size that is known already does not depend on the headers.
async fn find_by_head(
    exchange: &HttpExchange<'_>,
    from: &HttpAddress,
    known_size: Option<u64>,
) -> Result<FoundFile, Error> {
    let reply = exchange.send(&HttpRequest::new(Method::HEAD), from).await?;
    let HttpReply { address, hops, is_directory, status, headers, body, .. } = reply;
    body.discard().await;
    if is_directory && status != StatusCode::NOT_FOUND {
        return Ok(FoundFile::directory(address));
    }
    let is_unknown = matches!(status, StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED);
    let shown_size = content_length(&headers).filter(|_| status == StatusCode::OK);
    let (headers, size) = match known_size.or(shown_size) {
        Some(size) if status == StatusCode::OK || is_unknown => (headers, size),
        _ if status == StatusCode::OK || is_unknown => {
            let first = first_byte(exchange, &address).await?;
            let size = first.size.ok_or_else(|| first.unknown_size(exchange))?;
            (first.headers, size)
        }
        _ => return Err(exchange.error(refusal(status, &address), &address, &hops)),
    };
    let mut found = found_file(exchange, (address, &hops), &headers, size).await?;
    // Some servers send this length with the head of each file.
    let is_doubtful = size == 0 && known_size.is_none() && shown_size.is_some() && exchange.store().is_none();
    if is_doubtful && !found.stat.is_dir() {
        let first = first_byte(exchange, &found.address).await?;
        let empty = first.is_empty.then_some(0);
        found.stat.size = first.size.or(empty).ok_or_else(|| first.unknown_size(exchange))?;
    }
    Ok(found)
}

/// Finds the status of a file by a request for its first byte. A server that refuses to send that fails, also if
/// it answers `HEAD`. Reports whether the version is that in the reply; otherwise it is that of `HEAD`.
pub(super) async fn find_readable(
    exchange: &HttpExchange<'_>,
    from: &HttpAddress,
) -> Result<(FoundFile, bool), Error> {
    let first = first_byte(exchange, from).await?;
    if first.is_directory {
        return Ok((FoundFile::directory(first.address), true));
    }
    let has_version = HttpVersion::of(&first.headers) != HttpVersion::default();
    if let Some(size) = first.size.filter(|_| has_version) {
        let FirstByte { address, hops, headers, is_whole, .. } = first;
        let found = found_file(exchange, (address, &hops), &headers, size).await?;
        return Ok((FoundFile { has_ranges: !is_whole, ..found }, true));
    }
    let found = find_by_head(exchange, from, first.size).await?;
    // Later requests for data begin where this one has arrived.
    Ok((FoundFile { address: first.address, has_ranges: !first.is_whole, ..found }, false))
}

/// Returns the status of a file from the headers of a reply, and by WebDAV what they do not show.
async fn found_file(
    exchange: &HttpExchange<'_>,
    (address, hops): (HttpAddress, &[String]),
    headers: &HeaderMap,
    size: u64,
) -> Result<FoundFile, Error> {
    let failed = |cause| exchange.error(cause, &address, hops);
    if text(headers, &header::ACCEPT_RANGES) == Some("none") {
        let text = format!("{address} has no ranges (Accept-Ranges: none), so parts of files cannot be read");
        return Err(failed(Cause::Unsupported(text)));
    }
    exchange.check_encoding(headers).map_err(failed)?;
    let version = HttpVersion::of(headers);
    let mut found = stat(false, size, version.modified.unwrap_or(0), version.id());
    // Such servers answer a request for the head of a directory as that of a file.
    if version.modified.is_none()
        && let Some(entry) = properties(exchange, &address).await?
    {
        if entry.is_collection {
            found = stat(true, size, entry.modified.unwrap_or(0), 0);
        } else {
            found.mtime = entry.modified.unwrap_or(0);
        }
    }
    Ok(FoundFile { stat: found, version, address, has_ranges: true })
}

/// The reply to a request for the first byte of a file.
struct FirstByte {
    address: HttpAddress,
    hops: Vec<String>,
    is_directory: bool,
    /// There is no such byte.
    is_empty: bool,
    /// The server has sent the whole file, so it ignores ranges.
    is_whole: bool,
    headers: HeaderMap,
    /// The size of the file, if the reply shows it.
    size: Option<u64>,
}

impl FirstByte {
    fn unknown_size(&self, exchange: &HttpExchange<'_>) -> Error {
        let Self { address, hops, .. } = self;
        let text = format!("{address} does not tell the size of the file, so it cannot be read in parts");
        exchange.error(Cause::Unsupported(text), address, hops)
    }
}

/// Requests the first byte of a file.
async fn first_byte(exchange: &HttpExchange<'_>, from: &HttpAddress) -> Result<FirstByte, Error> {
    let request = HttpRequest::new(Method::GET).with("range", "bytes=0-0");
    let HttpReply { address, hops, is_directory, status, headers, body, .. } =
        exchange.send(&request, from).await?;
    let range = text(&headers, &header::CONTENT_RANGE).and_then(ContentRange::parse);
    let size = match status {
        _ if is_directory && status != StatusCode::NOT_FOUND => None,
        StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
            range.and_then(|range| range.total)
        }
        // It sends the whole file.
        StatusCode::OK => content_length(&headers),
        status => return Err(exchange.error(refusal(status, &address), &address, &hops)),
    };
    let is_directory = is_directory && status != StatusCode::NOT_FOUND;
    // XRootD 5.5 answers so for an empty file, and announces a byte that never arrives.
    let has_no_range =
        text(&headers, &header::CONTENT_RANGE).is_some_and(|range| range.trim_end().ends_with("/0"));
    let is_unsatisfiable = status == StatusCode::RANGE_NOT_SATISFIABLE;
    let is_empty = has_no_range || is_unsatisfiable || content_length(&headers) == Some(0);
    if !has_no_range || is_unsatisfiable {
        body.discard().await;
    }
    let is_whole = status == StatusCode::OK;
    Ok(FirstByte { address, hops, is_directory, is_empty, is_whole, headers, size })
}

/// Returns the properties of a path, if the server offers WebDAV.
async fn properties(exchange: &HttpExchange<'_>, address: &HttpAddress) -> Result<Option<DavEntry>, Error> {
    let pool = exchange.client.http_pool();
    let offers_dav = pool.offers_dav(&address.server);
    if offers_dav == Some(false) || exchange.store().is_some() {
        return Ok(None);
    }
    let reply = match exchange.send(&propfind("0"), address).await {
        // Something on the way may close a connection for a method that it does not know.
        Err(error) if offers_dav.is_none() && matches!(error.cause(), Cause::Lost(_)) => return Ok(None),
        reply => reply?,
    };
    let HttpReply { address, hops, status, body, .. } = reply;
    if status != StatusCode::MULTI_STATUS {
        if is_dav_unknown(status) {
            pool.record_dav(&address.server, false);
        }
        body.discard().await;
        return Ok(None);
    }
    pool.record_dav(&address.server, true);
    let mut first = None;
    let keep = |entry| {
        first.get_or_insert(entry);
        Ok(())
    };
    read_body(body, keep).await.map_err(|cause| exchange.error(cause, &address, &hops))?;
    Ok(first)
}

/// Reports whether a server that answers a request of WebDAV in this way offers it for no path.
pub(super) const fn is_dav_unknown(status: StatusCode) -> bool {
    matches!(status.as_u16(), 405 | 501)
}

/// Reports whether a server that answers a request of WebDAV in this way does not offer it for the path.
const fn is_without_dav(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 400 | 405 | 501)
}

pub(super) fn propfind(depth: &str) -> HttpRequest {
    let method = Method::from_bytes(b"PROPFIND").unwrap_or(Method::OPTIONS);
    let request = HttpRequest::new(method).with("depth", depth).with("content-type", "application/xml");
    HttpRequest { body: Bytes::from_static(PROPERTIES.as_bytes()), ..request }
}

/// Reads a listing of WebDAV to its end.
pub(super) async fn read_body(
    mut body: HttpBody,
    found: impl FnMut(DavEntry) -> Result<(), Cause> + Send,
) -> Result<(), Cause> {
    read_multistatus(BodyReader::new(&mut body), found).await
}

pub(super) fn stat(is_directory: bool, size: u64, mtime: i64, id: u64) -> StatInfo {
    let flags = match is_directory {
        true => StatFlags::READABLE.with(StatFlags::IS_DIR).with(StatFlags::XSET),
        false => StatFlags::READABLE,
    };
    StatInfo { id, size, flags, mtime, more: None }
}

impl HttpFiles {
    pub(crate) const fn new(client: Client, url: Url) -> Self {
        Self { client, url }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Reports whether the files are objects of a store.
    #[must_use]
    pub fn is_object_store(&self) -> bool {
        self.store().is_some()
    }

    /// Returns the object store, if the files are those of one.
    pub(super) fn store(&self) -> Option<Arc<ObjectStore>> {
        HttpExchange::new(&self.client, &self.url, "look").shared_store().cloned()
    }

    pub(super) fn at(&self, operation: &'static str, path: &str) -> Result<(Url, HttpAddress), Error> {
        let failed = |cause| Error::new(operation, &self.url, cause);
        let path = RemotePath::new(path).map_err(|why| failed(Cause::BadArgument(why.to_string())))?;
        let url = self.url.at(path);
        let address = HttpExchange::new(&self.client, &url, operation).address()?;
        Ok((url, address))
    }

    /// Returns the status of a path.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn stat(&self, path: &str) -> Result<StatInfo, Error> {
        let (url, address) = self.at("stat", path)?;
        let exchange = HttpExchange::new(&self.client, &url, "stat");
        match exchange.store() {
            Some(store) => stat_object(&exchange, store, &address).await,
            None => Ok(find(&exchange, &address).await?.stat),
        }
    }

    /// Makes a request that each server answers, without a token, and does not look at the answer.
    pub(crate) async fn probe(&self) -> Result<(), Error> {
        let exchange = HttpExchange::new(&self.client, &self.url, "connect").without_token();
        let address = exchange.address()?.root();
        match exchange.send_once(&HttpRequest::new(Method::HEAD), &address).await {
            Ok(_) => Ok(()),
            Err(cause) => Err(exchange.error(cause, &address, &[])),
        }
    }

    /// Returns the checksum of a file, if the server knows it (RFC 3230). `None` stands for adler32.
    ///
    /// # Errors
    /// [`Error`]: also [`Cause::Unsupported`] if the server sends no checksum of this kind.
    pub async fn checksum(&self, path: &str, kind: Option<&str>) -> Result<FileChecksum, Error> {
        let (url, address) = self.at("checksum", path)?;
        let exchange = HttpExchange::new(&self.client, &url, "checksum");
        let kind = kind.filter(|kind| !kind.is_empty()).unwrap_or("adler32").to_ascii_lowercase();
        let request = HttpRequest::new(Method::HEAD).with("want-digest", &kind);
        let HttpReply { address, hops, status, headers, body, .. } =
            exchange.send(&request, &address).await?;
        body.discard().await;
        let failed = |cause| exchange.error(cause, &address, &hops);
        if status != StatusCode::OK {
            return Err(failed(refusal(status, &address)));
        }
        let none = || {
            let text = format!("{kind} checksum not supported by {address}");
            failed(Cause::Server { code: ErrorCode::UNSUPPORTED, text })
        };
        let value = digest(&headers, &kind).ok_or_else(none)?;
        let value = hexadecimal(&kind, value)
            .ok_or_else(|| failed(Cause::BadAnswer("the checksum in it is malformed".to_owned())))?;
        Ok(FileChecksum { kind, value })
    }

    /// Lists a directory by WebDAV, or one of an object store. The entries are kept in a short form, because they
    /// may be many.
    ///
    /// # Errors
    /// [`Error`]: also [`Cause::Unsupported`] if the server does not offer WebDAV.
    pub async fn list_entries(&self, path: &str, with: &ListWith) -> Result<Entries, Error> {
        let (url, _) = self.at("list", path)?;
        let exchange = HttpExchange::new(&self.client, &url, "list");
        let listing = self.list_server(path, with, &self.client.listing_memory(), false).await?;
        Entries::merge([(0, listing)]).map_err(|cause| exchange.refused(cause))
    }

    /// Lists a directory as [`HttpFiles::list_entries`] does. The listing is charged to `memory`. With `is_one_server`,
    /// one of another server is an error.
    pub(crate) async fn list_server(
        &self,
        path: &str,
        with: &ListWith,
        memory: &ListingMemory,
        is_one_server: bool,
    ) -> Result<ServerListing, Error> {
        let (url, _) = self.at("list", path)?;
        let (_, asked) = self.at("list", &directory_path(path))?;
        let exchange = HttpExchange::new(&self.client, &url, "list");
        if let Some(store) = exchange.store() {
            return list_objects(&exchange, store, &asked, with, memory).await;
        }
        let HttpReply { address, hops, body, .. } = request_listing(&exchange, &asked).await?;
        let failed = |cause| exchange.error(cause, &address, &hops);
        let base = segments(address.path()).map_err(failed)?;
        if is_one_server && address.server != asked.server {
            return Err(failed(of_another_server(&asked, &address)));
        }
        let mut listing = ServerListing::empty(memory, with.stat);
        let (mut is_file, mut entries) = (false, 0_u64);
        let add = |entry: DavEntry| {
            entries += 1;
            let Some(name) = entry.name_below(&base)? else {
                is_file |= !entry.is_collection;
                return Ok(());
            };
            // No line of a listing can carry it.
            if name.contains(&b'\n') {
                return Ok(());
            }
            let info = stat(entry.is_collection, entry.size.unwrap_or(0), entry.modified.unwrap_or(0), 0);
            let StatInfo { id, size, flags, mtime, .. } = info;
            let line = StatText { id, size, flags, mtime, extended: None };
            if listing.add(&name, with.stat.then_some(&line)) {
                return Ok(());
            }
            Err(Cause::TooLarge(format!("{} bytes of listings (XRD_LISTINGBYTES)", memory.bytes_max())))
        };
        read_body(body, add).await.map_err(failed)?;
        if is_file {
            return Err(failed(not_a_directory(&address)));
        }
        if entries == 0 {
            return Err(failed(without_directory(&address)));
        }
        Ok(listing)
    }

    /// Checks that listings are those of the server of the URL. A manager of a cluster redirects to one of its servers,
    /// so that files of the others look missing.
    pub(crate) async fn check_is_one_server(&self, path: &str) -> Result<(), Error> {
        let (url, asked) = self.at("list", &directory_path(path))?;
        let exchange = HttpExchange::new(&self.client, &url, "list");
        if exchange.store().is_some() {
            return Ok(());
        }
        let HttpReply { address, hops, body, .. } = exchange.send(&propfind("0"), &asked).await?;
        body.discard().await;
        if address.server == asked.server {
            return Ok(());
        }
        Err(exchange.error(of_another_server(&asked, &address), &address, &hops))
    }
}

/// Requests the listing of a directory, whose path ends with a slash. The reply has a body of WebDAV.
pub(super) async fn request_listing(
    exchange: &HttpExchange<'_>,
    address: &HttpAddress,
) -> Result<HttpReply, Error> {
    let reply = exchange.send(&propfind("1"), address).await?;
    let HttpReply { address, hops, status, .. } = &reply;
    let failed = |cause| exchange.error(cause, address, hops);
    let pool = exchange.client.http_pool();
    if is_dav_unknown(*status) {
        pool.record_dav(&address.server, false);
    }
    if is_without_dav(*status) {
        let text = format!(
            "{address} cannot be listed, because the server offers no WebDAV (PROPFIND: {}); read files by their \
             names",
            reason(*status)
        );
        return Err(failed(Cause::Unsupported(text)));
    }
    if *status == StatusCode::CONFLICT {
        // So our servers answer for the path of a file with a slash at its end.
        return Err(failed(not_a_directory(address)));
    }
    if *status != StatusCode::MULTI_STATUS {
        return Err(failed(refusal(*status, address)));
    }
    pool.record_dav(&address.server, true);
    Ok(reply)
}

fn of_another_server(asked: &HttpAddress, address: &HttpAddress) -> Cause {
    Cause::Unsupported(format!(
        "{asked} redirects to {}, so files at other servers of a cluster would look missing; use root://, or \
         --allow-away",
        address.server.authority()
    ))
}

fn not_a_directory(address: &HttpAddress) -> Cause {
    Cause::Server { code: ErrorCode::FS_ERROR, text: format!("{address} is not a directory") }
}

/// The error of a listing without any entry. It always shows the directory itself, so it is not complete.
pub(super) fn without_directory(address: &HttpAddress) -> Cause {
    Cause::BadAnswer(format!(
        "the listing of {address} does not show the directory itself, so it may have entries"
    ))
}

/// Returns the path of a directory, with the slash at its end.
pub(super) fn directory_path(path: &str) -> String {
    format!("{}/", path.trim_end_matches('/'))
}

/// Returns a digest in hexadecimal, as clients of the xroot protocol expect it.
fn hexadecimal(kind: &str, value: &str) -> Option<String> {
    let value = value.trim();
    if matches!(kind, "adler32" | "crc32" | "crc32c") {
        let is_hexadecimal = (1..=8).contains(&value.len()) && value.bytes().all(|b| b.is_ascii_hexdigit());
        return is_hexadecimal.then(|| format!("{:0>8}", value.to_ascii_lowercase()));
    }
    let size = Algorithm::from_name(kind).map(Algorithm::bytes);
    // Some servers send all of them in hexadecimal, which could also be base64 of more bytes.
    if size.is_some_and(|size| value.len() == 2 * size) && value.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Some(value.to_ascii_lowercase());
    }
    let bytes = base64_bytes(value).filter(|bytes| size.is_none_or(|size| bytes.len() == size))?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Decodes a short base64 text.
fn base64_bytes(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    if digits.len() > 2 * DIGEST_BYTES_MAX || text.len() - digits.len() > 2 {
        return None;
    }
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(bytes)
}

impl DavEntry {
    /// Returns the name of an entry of a directory; `None` for the directory itself.
    ///
    /// # Errors
    /// [`Cause::BadAnswer`]: it lies elsewhere, so it would lead out of the directory.
    pub(super) fn name_below(&self, base: &[Vec<u8>]) -> Result<Option<Vec<u8>>, Cause> {
        match self.path.strip_prefix(base) {
            Some([]) => Ok(None),
            Some([name]) => Ok(Some(name.clone())),
            _ => Err(Cause::BadAnswer("an entry in it lies outside of the directory".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_in_hexadecimal() {
        assert_eq!(hexadecimal("adler32", "3DA0195").as_deref(), Some("03da0195"));
        let md5 = hexadecimal("md5", "b1kCrCNwJL3QwXbLkwY9xA==");
        assert_eq!(md5.as_deref(), Some("6f5902ac237024bdd0c176cb93063dc4"));
        let hex = "6F5902AC237024bdd0c176cb93063dc4";
        assert_eq!(hexadecimal("md5", hex).as_deref(), Some("6f5902ac237024bdd0c176cb93063dc4"));
        for (kind, value) in [
            ("md5", "b1kCrCNwJL3QwXbLkwY9"),
            ("adler32", ""),
            ("crc32", "123456789"),
            ("crc32c", "xyz"),
            ("md5", "a b="),
        ] {
            assert_eq!(hexadecimal(kind, value), None, "{value}");
        }
    }
}
